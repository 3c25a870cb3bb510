package clients

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/server"
	"github.com/osierdb/osier/server/couch"
)

const (
	user     = "admin"
	password = "secret"
)

// serve starts a server with the door on a store in memory and returns its
// address with the administrator's credentials in it.
func serve(t *testing.T) string {
	t.Helper()
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(context.Background(), eng.Store, &server.Options{Doors: []server.Door{couch.New()},
		Admin: &server.Credentials{Name: user, Password: password}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
		if err := s.Close(); err != nil {
			t.Errorf("close server: %v", err)
		}
		if _, err := eng.Check(context.Background(), func(p engine.Problem) { t.Errorf("check: %v", p) }); err != nil {
			t.Errorf("check: %v", err)
		}
		if err := eng.Close(); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return strings.Replace(hs.URL, "://", "://"+user+":"+password+"@", 1)
}
