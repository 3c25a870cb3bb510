package couch

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/server"
)

// fullDisk refuses what writes to the disk, as the engine does when that is full.
type fullDisk struct {
	osier.Backend
	full *atomic.Bool
}

func (b fullDisk) failure(db string) error {
	if b.full.Load() {
		return &osier.Error{Kind: osier.KindFull, Op: "commit", DB: db}
	}
	return nil
}

func (b fullDisk) Exec(ctx context.Context, c *osier.Command) (*osier.Result, error) {
	if err := b.failure(c.DB); err != nil {
		return nil, err
	}
	return b.Backend.Exec(ctx, c)
}

func (b fullDisk) Stage(ctx context.Context, db string, r io.Reader) (osier.Attachment, error) {
	if err := b.failure(db); err != nil {
		return osier.Attachment{}, err
	}
	return b.Backend.Stage(ctx, db, r)
}

// A full disk answers 507 to writes of every kind, and reads go on; when there is
// room again so do writes.
func TestFullDisk(t *testing.T) {
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	full := new(atomic.Bool)
	store := eng.Through(func(b osier.Backend) osier.Backend { return fullDisk{b, full} })
	srv, err := server.New(t.Context(), store, &server.Options{Doors: []server.Door{New()}, Admin: &server.Credentials{Name: adminName, Password: adminPass},
		Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, eng: eng, srv: srv, http: httptest.NewServer(srv.Handler())}
	t.Cleanup(r.close)
	r.want(201, "PUT", "/db", "")
	rev := r.want(201, "PUT", "/db/a", `{"n":1}`).rev(t)
	writes := []struct{ method, path, body string }{
		{"PUT", "/db/b", `{"n":2}`}, {"POST", "/db", `{"n":3}`}, {"PUT", "/db/a?rev=" + rev, `{"n":4}`}, {"DELETE", "/db/a?rev=" + rev, ""},
		{"POST", "/db/_bulk_docs", `{"docs":[{"_id":"c"}]}`}, {"POST", "/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"d","_rev":"1-a"}]}`},
		{"PUT", "/db/a/file?rev=" + rev, "content"}, {"PUT", "/db/e", `{"_attachments":{"f":{"data":"aGk="}}}`},
		{"PUT", "/db/_local/x", `{}`}, {"PUT", "/db/_security", `{}`}, {"PUT", "/other", ""}, {"DELETE", "/db", ""},
	}
	full.Store(true)
	for _, w := range writes {
		a := r.do(w.method, w.path, w.body)
		var told struct{ Error string }
		if a.into(t, &told); a.StatusCode != 507 || told.Error != "insufficient_storage" {
			t.Errorf("%s %s on a full disk: status %d: %s", w.method, w.path, a.StatusCode, a.body)
		}
	}
	var got struct {
		N   int
		Rev string `json:"_rev"`
	}
	if r.want(200, "GET", "/db/a", "").into(t, &got); got.N != 1 || got.Rev != rev {
		t.Errorf("after writes that failed the document is %+v", got)
	}
	r.want(200, "GET", "/db/_all_docs", "")
	r.want(200, "GET", "/db/_changes", "")
	full.Store(false)
	r.want(201, "PUT", "/db/b", `{"n":2}`)
	r.want(201, "PUT", "/db/a/file?rev="+rev, "content")
}
