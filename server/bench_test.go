package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/osierdb/osier"
)

// BenchmarkChain is what a request costs before a door does anything, with
// basic authentication, and with the opening of a database.
func BenchmarkChain(bm *testing.B) {
	b := newBench(bm, &Options{Logger: slog.New(slog.DiscardHandler)})
	if _, err := b.admin().Store.CreateDB(bm.Context(), "shop"); err != nil {
		bm.Fatal(err)
	}
	run := func(name string, handle func(http.ResponseWriter, *http.Request), q func(*http.Request)) {
		bm.Run(name, func(bm *testing.B) {
			b.door.handle = handle
			r := httptest.NewRequest("GET", "/shop/doc", nil)
			q(r)
			w := httptest.NewRecorder()
			bm.ReportAllocs()
			for bm.Loop() {
				b.s.Handler().ServeHTTP(w, r)
			}
		})
	}
	nothing := func(http.ResponseWriter, *http.Request) {}
	open := func(_ http.ResponseWriter, r *http.Request) {
		if _, err := SessionOf(r.Context()).Open(r.Context(), "shop"); err != nil {
			panic(err)
		}
	}
	get := func(_ http.ResponseWriter, r *http.Request) {
		acc, err := SessionOf(r.Context()).Open(r.Context(), "shop")
		if err != nil {
			panic(err)
		}
		q := &osier.Query{Kind: osier.QueryGet, Collection: osier.DefaultCollection, IDs: []osier.ID{osier.MustID("doc")}, Parts: osier.WithBody}
		for _, err := range acc.DB.Query(r.Context(), q) {
			if err != nil {
				panic(err)
			}
		}
	}
	root := func(r *http.Request) { r.SetBasicAuth("root", "secret-of-root") }
	run("anonymous", nothing, func(*http.Request) {})
	run("basic", nothing, root)
	run("basic and open", open, root)
	run("basic, open and get", get, root)
}
