package engine

import (
	"fmt"
	"testing"

	"github.com/osierdb/osier"
)

// BenchmarkFindScan is a selector over all documents of a collection in memory's
// reach, of which few match.
func BenchmarkFindScan(b *testing.B) {
	const docs = 20000
	e, err := Open("", &Options{InMemory: true})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	ctx := b.Context()
	db, err := e.CreateDB(ctx, "shop")
	if err != nil {
		b.Fatal(err)
	}
	posts := osier.NewCollection[osier.Raw]("posts")
	var batch osier.Batch
	for i := range docs {
		body := fmt.Appendf(nil, `{"type":"post","title":"Notes on number %d","author":"Ada %d","tags":["go","db","t%d"],"words":%d,"score":%d.%d,"city":"Oslo","address":{"zip":"0%d","geo":{"lat":59.%d,"lon":10.75}},"draft":false}`,
			i, i%50, i%7, i%1000, i%10, i%10, 100+i%900, i%100)
		if _, err := posts.InsertWithID(ctx, &batch, fmt.Sprintf("doc-%06d", i), body); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := db.Commit(ctx, &batch); err != nil {
		b.Fatal(err)
	}
	if err := e.store.Flush(); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ name, selector string }{
		{"equal", `{"city":"Bergen"}`},
		{"range", `{"score":{"$gt":9.8}}`},
		{"conjunction", `{"type":"post","words":{"$gt":990},"draft":false}`},
		{"missing", `{"nowhere":1}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range db.Find(ctx, "posts", osier.Mango(c.selector), nil) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/docs, "ns/doc")
		})
	}
}

// BenchmarkFindByIndex looks one document up by a field that is indexed.
func BenchmarkFindByIndex(b *testing.B) {
	e := mustOpen(b, "", &Options{InMemory: true})
	defer e.Close()
	const docs = 20000
	db := withNumbers(b, e, docs)
	makeIndex(b, db, "by-n", nil, osier.Asc("n"))
	if err := e.store.Flush(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for _, err := range db.Find(b.Context(), "numbers", osier.Mango(fmt.Sprintf(`{"n":%d}`, i*7919%docs)), nil) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkViewLookUp looks one document up by a key of a view.
func BenchmarkViewLookUp(b *testing.B) {
	e := mustOpen(b, "", &Options{InMemory: true})
	defer e.Close()
	const docs = 20000
	db := withNumbers(b, e, docs)
	byN := osier.NewFieldView[int, int]("by-n", "numbers", &osier.FieldViewOptions{Keys: []string{"n"}})
	if _, err := osier.NewStore(db.Backend(), nil).OpenDB(b.Context(), db.Name(), osier.Schema(byN)); err != nil {
		b.Fatal(err)
	}
	if err := byN.Refresh(b.Context(), db); err != nil {
		b.Fatal(err)
	}
	numbers := osier.NewCollection[osier.Raw]("numbers")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for _, err := range osier.Join(b.Context(), db, byN, numbers, osier.Key(i*7919%docs)) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
