package couch

import (
	"context"
	"fmt"
	"io"
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
	h         http.Header
	n, status int
}

func (w *nowhere) Header() http.Header         { return w.h }
func (w *nowhere) Write(p []byte) (int, error) { w.n += len(p); return len(p), nil }
func (w *nowhere) WriteHeader(status int)      { w.status = status }

// local is the door with the server before it, without the network. send answers
// with the status.
func local(b *testing.B) (s *server.Server, send func(method, path, body string) int) {
	b.Helper()
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { eng.Close() })
	s, err = server.New(context.Background(), eng.Store, &server.Options{Doors: []server.Door{New()},
		Admin: &server.Credentials{Name: adminName, Password: adminPass}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s, func(method, path, body string) int {
		r := httptest.NewRequest(method, path, nil)
		if body != "" {
			r = httptest.NewRequest(method, path, strings.NewReader(body))
		}
		r.SetBasicAuth(adminName, adminPass)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code
	}
}

func BenchmarkGet(b *testing.B) {
	s, send := local(b)
	if send("PUT", "/db", "") != 201 || send("PUT", "/db/a", `{"n":1,"pad":""}`) != 201 {
		b.Fatal("the document could not be stored")
	}
	r := httptest.NewRequest("GET", "/db/a", nil)
	r.SetBasicAuth(adminName, adminPass)
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

// BenchmarkPut stores new documents of 1 KiB.
func BenchmarkPut(b *testing.B) {
	s, send := local(b)
	if send("PUT", "/db", "") != 201 {
		b.Fatal("the database could not be made")
	}
	text := `{"n":1,"pad":"` + strings.Repeat("0123456789abcdef", 62) + `"}`
	r := httptest.NewRequest("PUT", "/db/a", nil)
	r.SetBasicAuth(adminName, adminPass)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(text))
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		r.URL = &url.URL{Path: fmt.Sprintf("/db/d%08d", n)}
		r.Body = io.NopCloser(strings.NewReader(text))
		w := &nowhere{h: http.Header{}}
		s.Handler().ServeHTTP(w, r)
		if w.status != 201 {
			b.Fatalf("status %d", w.status)
		}
	}
}
