package clients

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/go-kivik/kivik/v4"
	_ "github.com/go-kivik/kivik/v4/couchdb" // The driver
)

type film struct {
	ID    string `json:"_id,omitempty"`
	Rev   string `json:"_rev,omitempty"`
	Title string `json:"title"`
	Year  int    `json:"year"`
}

// A program written with kivik for CouchDB.
func TestKivik(t *testing.T) {
	ctx := context.Background()
	client, err := kivik.New("couch", serve(t))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	version, err := client.Version(ctx)
	must("version", err)
	if version.Version == "" || version.Vendor != "Osier" {
		t.Errorf("the version is %+v", version)
	}
	if up, err := client.Ping(ctx); !up || err != nil {
		t.Errorf("ping: %v, %v", up, err)
	}
	must("create", client.CreateDB(ctx, "films"))
	if status := kivik.HTTPStatus(client.CreateDB(ctx, "films")); status != http.StatusPreconditionFailed {
		t.Errorf("creating it again: status %d", status)
	}
	names, err := client.AllDBs(ctx)
	must("all databases", err)
	if !slices.Contains(names, "films") {
		t.Errorf("the databases are %v", names)
	}
	db := client.DB("films")

	rev, err := db.Put(ctx, "alien", film{Title: "Alien", Year: 1978})
	must("put", err)
	var got film
	must("get", db.Get(ctx, "alien").ScanDoc(&got))
	if got.Rev != rev || got.Title != "Alien" {
		t.Errorf("the document is %+v, want revision %s", got, rev)
	}
	got.Year = 1979
	rev2, err := db.Put(ctx, "alien", got)
	must("update", err)
	if _, err := db.Put(ctx, "alien", got); kivik.HTTPStatus(err) != http.StatusConflict {
		t.Errorf("updating the old revision: %v", err)
	}
	kivikAttachments(t, db, rev2)
	kivikLists(t, db)
	kivikFind(t, db)

	sec, err := db.Security(ctx)
	must("security", err)
	sec.Members.Names = []string{"ann"}
	must("set security", db.SetSecurity(ctx, sec))
	must("compact", db.Compact(ctx))
	stats, err := db.Stats(ctx)
	must("stats", err)
	if stats.DocCount != 3 {
		t.Errorf("there are %d documents, want 3", stats.DocCount)
	}
	must("destroy", client.DestroyDB(ctx, "films"))
}

func kivikAttachments(t *testing.T, db *kivik.DB, rev string) {
	t.Helper()
	ctx := context.Background()
	want := bytes.Repeat([]byte("bytes "), 5000)
	rev, err := db.PutAttachment(ctx, "alien", &kivik.Attachment{Filename: "poster.png", ContentType: "image/png",
		Content: io.NopCloser(bytes.NewReader(want))}, kivik.Rev(rev))
	if err != nil {
		t.Fatalf("put attachment: %v", err)
	}
	att, err := db.GetAttachment(ctx, "alien", "poster.png")
	if err != nil {
		t.Fatalf("get attachment: %v", err)
	}
	got, err := io.ReadAll(att.Content)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the attachment has %d bytes (%v), want %d", len(got), err, len(want))
	}
	// The same as multipart/related, in one request.
	atts, err := db.Get(ctx, "alien", kivik.Param("attachments", true)).Attachments()
	if err != nil {
		t.Fatalf("document with attachments: %v", err)
	}
	first, err := atts.Next()
	if err != nil {
		t.Fatalf("first attachment: %v", err)
	}
	if got, err = io.ReadAll(first.Content); err != nil || !bytes.Equal(got, want) {
		t.Errorf("beside the document it has %d bytes (%v), want %d", len(got), err, len(want))
	}
	if _, err := db.DeleteAttachment(ctx, "alien", rev, "poster.png"); err != nil {
		t.Errorf("delete attachment: %v", err)
	}
}

func kivikLists(t *testing.T, db *kivik.DB) {
	t.Helper()
	ctx := context.Background()
	results, err := db.BulkDocs(ctx, []any{film{ID: "brazil", Title: "Brazil", Year: 1985}, film{ID: "alien", Title: "Again"}, film{ID: "clue", Title: "Clue", Year: 1985}})
	if err != nil {
		t.Fatalf("bulk: %v", err)
	}
	if results[0].Error != nil || kivik.HTTPStatus(results[1].Error) != http.StatusConflict || results[2].Error != nil {
		t.Errorf("the results are %+v", results)
	}
	rows := db.AllDocs(ctx, kivik.IncludeDocs(), kivik.Param("startkey", "b"))
	var ids []string
	for rows.Next() {
		var f film
		if err := rows.ScanDoc(&f); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, f.ID)
	}
	if err := rows.Err(); err != nil || !slices.Equal(ids, []string{"brazil", "clue"}) {
		t.Errorf("the documents are %v (%v)", ids, err)
	}
	changes := db.Changes(ctx, kivik.Param("feed", "normal"), kivik.Param("style", "all_docs"))
	seen := map[string]bool{}
	for changes.Next() {
		seen[changes.ID()] = true
	}
	if err := changes.Err(); err != nil || len(seen) != 3 {
		t.Errorf("the changes are of %v (%v)", seen, err)
	}
	diff := db.RevsDiff(ctx, map[string][]string{"alien": {"9-abc"}})
	for diff.Next() {
		var d struct{ Missing []string }
		if err := diff.ScanValue(&d); err != nil || !slices.Equal(d.Missing, []string{"9-abc"}) {
			t.Errorf("missing are %v (%v)", d.Missing, err)
		}
	}
	if err := diff.Err(); err != nil {
		t.Errorf("revs diff: %v", err)
	}
}

func kivikFind(t *testing.T, db *kivik.DB) {
	t.Helper()
	ctx := context.Background()
	if err := db.CreateIndex(ctx, "films", "year", map[string]any{"fields": []string{"year"}}); err != nil {
		t.Fatalf("create index: %v", err)
	}
	indexes, err := db.GetIndexes(ctx)
	if err != nil || len(indexes) != 2 {
		t.Errorf("the indexes are %v (%v)", indexes, err)
	}
	rows := db.Find(ctx, map[string]any{"selector": map[string]any{"year": map[string]any{"$lt": 1985}}, "sort": []string{"year"}})
	var titles []string
	for rows.Next() {
		var f film
		if err := rows.ScanDoc(&f); err != nil {
			t.Fatal(err)
		}
		titles = append(titles, f.Title)
	}
	if err := rows.Err(); err != nil || !slices.Equal(titles, []string{"Alien"}) {
		t.Errorf("found are %v (%v)", titles, err)
	}
	if err := db.DeleteIndex(ctx, "films", "year"); err != nil {
		t.Errorf("delete index: %v", err)
	}
}
