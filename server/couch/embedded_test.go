package couch

import (
	"context"
	"strings"
	"testing"

	"github.com/osierdb/osier"
)

// What a program has written by itself is shown as CouchDB would show it.
func TestDocumentsOfPrograms(t *testing.T) {
	ctx := context.Background()
	r := newRig(t)
	r.want(201, "PUT", "/shop", "")
	db, err := r.eng.OpenDB(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	type film struct {
		Title string `pot:"title"`
		Year  int    `pot:"year"`
	}
	films := osier.NewCollection("films", osier.CollectionOptions[film]{Codec: osier.Pot})
	if _, err := films.InsertWithID(ctx, db, "alien", film{"Alien", 1979}); err != nil {
		t.Fatal(err)
	}
	if _, err := films.InsertWithID(ctx, db, 42, film{"Brazil", 1985}); err != nil {
		t.Fatal(err)
	}
	plain := osier.NewCollection[osier.Raw](osier.DefaultCollection)
	for id, body := range map[string]string{
		"pretty": "{\n  \"a\": 1,\n  \"_id\": \"not this\"\n}", "list": `[1, 2]`, "own": `{"v":{"_x":1}}`,
	} {
		if _, err := plain.InsertWithID(ctx, db, id, osier.Raw(body)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/shop:films/alien":                       `"title":"Alien","year":1979}`,
		"/shop:films/_all_docs?include_docs=true": `{"id":"42","key":"42",`,
		"/shop:films/_changes":                    `"id":"alien"`,
		"/shop/pretty":                            `","a":1}`,
		"/shop/list":                              `","value":[1,2]}`,
		"/shop/own":                               `","v":{"_x":1}}`,
		"/shop:films":                             `"doc_count":2`,
		"/shop":                                   `"doc_count":3`,
	} {
		if got := r.want(200, "GET", path, ""); !strings.Contains(string(got.body), want) {
			t.Errorf("%s is %s, want %s in it", path, got.body, want)
		}
	}
	r.want(201, "PUT", "/shop:films/clue", `{"title":"Clue","year":1985}`)
	got, err := films.Get(ctx, db, "clue")
	if err != nil || got.Value != (film{"Clue", 1985}) {
		t.Errorf("the program reads %+v, %v", got.Value, err)
	}
	r.want(404, "GET", "/shop:bad name/_all_docs", "")
	r.want(200, "DELETE", "/shop:films", "")
	r.want(404, "GET", "/shop:films/alien", "")
}
