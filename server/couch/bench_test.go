package couch

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/server"
)

// nowhere is a ResponseWriter that keeps nothing.
type nowhere struct {
	h http.Header
	n int
}

func (w *nowhere) Header() http.Header         { return w.h }
func (w *nowhere) Write(p []byte) (int, error) { w.n += len(p); return len(p), nil }
func (w *nowhere) WriteHeader(int)             {}

// The door with the server before it, without the network.
func BenchmarkGet(b *testing.B) {
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		b.Fatal(err)
	}
	defer eng.Close()
	s, err := server.New(context.Background(), eng.Store, &server.Options{Doors: []server.Door{New()},
		Admin: &server.Credentials{Name: "admin", Password: "pw"}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	send := func(method, path, body string) {
		b.Helper()
		r := httptest.NewRequest(method, path, nil)
		if body != "" {
			r = httptest.NewRequest(method, path, stringReader(body))
		}
		r.SetBasicAuth("admin", "pw")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != 201 {
			b.Fatal(w.Code, w.Body.String())
		}
	}
	send("PUT", "/db", "")
	send("PUT", "/db/a", `{"n":1,"pad":"`+string(make([]byte, 0))+`"}`)
	r := httptest.NewRequest("GET", "/db/a", nil)
	r.SetBasicAuth("admin", "pw")
	r.Header.Set("Accept", "application/json")
	r.URL, _ = url.Parse("/db/a")
	b.ReportAllocs()
	for b.Loop() {
		w := &nowhere{h: http.Header{}}
		s.Handler().ServeHTTP(w, r)
		if w.n == 0 {
			b.Fatal("nothing was sent")
		}
	}
}

func stringReader(s string) *strings.Reader { return strings.NewReader(s) }
