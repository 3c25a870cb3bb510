package engine

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/osierdb/osier"
)

func TestViewSmoke(t *testing.T) {
	e, err := Open("", &Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx := t.Context()
	db, err := e.CreateDB(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	movies := osier.NewCollection[map[string]any]("movies")
	views := osier.NewCollection[json.RawMessage]("_views")
	for i := range 3000 {
		if _, err := movies.InsertWithID(ctx, db, fmt.Sprintf("m%04d", i), map[string]any{"year": 1900 + i%100, "tags": []string{"a", fmt.Sprint("t", i%7)}, "n": i}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := views.Upsert(ctx, db, "by-year", json.RawMessage(`{"collection":"movies","keys":["year"],"value":"n","reduce":"sum"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := views.Upsert(ctx, db, "by-tag", json.RawMessage(`{"collection":"movies","keys":["tags","year"],"spread":"tags","value":"n","reduce":"count"}`)); err != nil {
		t.Fatal(err)
	}
	show := func(q *osier.Query) {
		q.Kind, q.Collection = osier.QueryView, "movies"
		n := 0
		for row, err := range db.Query(ctx, q) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n < 5 {
				t.Logf("%s %x %v %s %d", q.View.Name, row.View.Key, row.View.ID, row.View.Value, row.View.Count)
			}
		}
		t.Log(n)
	}
	show(&osier.Query{View: &osier.ViewQuery{Name: "by-year"}})
	show(&osier.Query{View: &osier.ViewQuery{Name: "by-year", Reduce: true}})
	show(&osier.Query{View: &osier.ViewQuery{Name: "by-tag", Reduce: true, Group: 1}})
	show(&osier.Query{View: &osier.ViewQuery{Name: "by-tag", Reduce: true, Group: 1}, Reverse: true})
	show(&osier.Query{View: &osier.ViewQuery{Name: "by-tag", Count: true}})
	if err := movies.Delete(ctx, db, "m0000", osier.Rev{}); err != nil {
		t.Fatal(err)
	}
	show(&osier.Query{View: &osier.ViewQuery{Name: "by-year", Reduce: true}})
	show(&osier.Query{View: &osier.ViewQuery{Name: "by-tag", Count: true}})
	for row, err := range db.Query(ctx, &osier.Query{Kind: osier.QueryViewInfo}) {
		t.Logf("%+v %v", row.ViewInfo, err)
	}
	if err := views.Delete(ctx, db, "by-tag", osier.Rev{}); err != nil {
		t.Fatal(err)
	}
	for row, err := range db.Query(ctx, &osier.Query{Kind: osier.QueryViewInfo}) {
		t.Logf("%+v %v", row.ViewInfo, err)
	}
}
