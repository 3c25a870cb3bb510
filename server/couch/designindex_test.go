package couch

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/osierdb/osier"
)

// indexes lists a database's indexes as DDOC/NAME.
func (r *rig) indexes(db string) []string {
	r.t.Helper()
	var list struct {
		Indexes []struct{ Ddoc, Name string }
	}
	r.want(200, "GET", "/"+db+"/_index", "").into(r.t, &list)
	names := []string{}
	for _, x := range list.Indexes[1:] {
		names = append(names, strings.TrimPrefix(x.Ddoc, "_design/")+"/"+x.Name)
	}
	return names
}

func (r *rig) wantIndexes(what string, want ...string) {
	r.t.Helper()
	if got := r.indexes("db"); !slices.Equal(got, append([]string{}, want...)) {
		r.t.Errorf("%s: indexes are %v, want %v", what, got, want)
	}
}

// TestIndexIsAView wants an index to be a view of a design document.
func TestIndexIsAView(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	r.want(200, "POST", "/db/_index", `{"index":{"fields":["a",{"b.c":"asc"}]},"ddoc":"d","name":"one"}`)
	r.want(200, "POST", "/db/_index", `{"index":{"fields":[{"z":"desc"}],"partial_filter_selector":{"v":1}},"ddoc":"d","name":"two"}`)
	const want = `"language":"query","views":{` +
		`"one":{"map":{"fields":{"a":"asc","b.c":"asc"},"partial_filter_selector":{}},"reduce":"_count","options":{"def":{"fields":["a",{"b.c":"asc"}]}}},` +
		`"two":{"map":{"fields":{"z":"desc"},"partial_filter_selector":{"v":1}},"reduce":"_count","options":{"def":{"fields":[{"z":"desc"}],"partial_filter_selector":{"v":1}}}}}}`
	if got := string(r.want(200, "GET", "/db/_design/d", "").body); !strings.HasSuffix(strings.TrimSpace(got), want) {
		t.Errorf("the design document is\n%s\nwant its end to be\n%s", got, want)
	}
	var again struct{ Result, ID string }
	r.want(200, "POST", "/db/_index", `{"index":{"fields":["a",{"b.c":"asc"}]},"ddoc":"d","name":"one"}`).into(t, &again)
	if again.Result != "exists" {
		t.Errorf("made again: %+v, want that it exists", again)
	}
	r.want(200, "POST", "/db/_index", `{"index":{"fields":["q"]},"ddoc":"d","name":"one"}`).into(t, &again)
	if again.Result != "created" {
		t.Errorf("redefined: %+v, want that it was created", again)
	}
	r.wantIndexes("two in one document", "d/one", "d/two")
	r.want(200, "DELETE", "/db/_index/_design%2Fd/json/one", "")
	r.wantIndexes("one dropped", "d/two")
	r.want(200, "DELETE", "/db/_index/d/json/two", "")
	r.wantIndexes("all dropped")
	r.want(404, "GET", "/db/_design/d", "")
	r.want(404, "DELETE", "/db/_index/d/json/two", "")
	r.want(400, "POST", "/db/_index", `{"index":{"fields":["a",{"b":"desc"}]}}`)
}

// TestIndexFollowsItsDocument wants indexes to come and go with design documents,
// whatever writes these.
func TestIndexFollowsItsDocument(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	r.want(201, "PUT", "/db/x", `{"a":1}`)
	view := func(field string) string {
		return `{"map":{"fields":{"` + field + `":"asc"},"partial_filter_selector":{}},"reduce":"_count","options":{"def":{"fields":["` + field + `"]}}}`
	}
	rev := r.want(201, "PUT", "/db/_design/d", `{"language":"query","views":{"v":`+view("a")+`}}`).rev(t)
	r.wantIndexes("put", "d/v")
	var found struct {
		Docs    []json.RawMessage
		Warning string
	}
	r.want(200, "POST", "/db/_find", `{"selector":{"a":1},"use_index":"d"}`).into(t, &found)
	if len(found.Docs) != 1 || found.Warning != "" {
		t.Errorf("found %+v, want a document by the index", found)
	}
	rev = r.want(201, "PUT", "/db/_design/d", `{"_rev":"`+rev+`","language":"query","views":{"w":`+view("b")+`}}`).rev(t)
	r.wantIndexes("changed", "d/w")
	r.want(201, "POST", "/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"_design/e","_rev":"1-a","language":"query","views":{"v":`+view("a")+`}}]}`)
	r.wantIndexes("replicated", "d/w", "e/v")
	r.want(200, "DELETE", "/db/_design/d?rev="+rev, "")
	r.wantIndexes("deleted", "e/v")
	r.want(201, "POST", "/db/_purge", `{"_design/e":["1-a"]}`)
	r.wantIndexes("purged")
	r.want(201, "PUT", "/db/_design/js", `{"views":{"v":{"map":"function(d){}"}}}`)
	var refused struct{ Error string }
	r.want(400, "POST", "/db/_index", `{"index":{"fields":["a"]},"ddoc":"js"}`).into(t, &refused)
	if refused.Error != "invalid_ddoc_lang" {
		t.Errorf("an index in a document of another language: %+v, want it refused as invalid_ddoc_lang", refused)
	}
}

// TestIndexIsMadeGood wants indexes to follow documents that the door has not
// written, as after a crash between the document and its index.
func TestIndexIsMadeGood(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	ctx := context.Background()
	db, err := r.eng.DB(ctx, "db")
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPut, Collection: osier.DefaultCollection, ID: osier.MustID("_design/d"),
		Codec: osier.TagJSON, Expect: osier.ExpectAbsent, Body: []byte(`{"language":"query","views":{"v":{"map":{"fields":{"a":"asc"}}}}}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	r.wantIndexes("first look", "d/v")
}

// TestFindPassesOverDesignDocuments wants design documents to be found by no
// selector, whatever page of the answer they would be on.
func TestFindPassesOverDesignDocuments(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	r.want(201, "PUT", "/db/_design/js", `{"v":1}`)
	r.want(200, "POST", "/db/_index", `{"index":{"fields":["v"]},"ddoc":"d"}`)
	for _, id := range []string{"A", "b", "c"} {
		r.want(201, "PUT", "/db/"+id, `{"v":1}`)
	}
	for _, selector := range []string{`{"_id":{"$gt":null}}`, `{"v":1}`} {
		var page struct {
			Docs []struct {
				ID string `json:"_id"`
			}
			Bookmark string
		}
		var got []string
		for range 4 {
			r.want(200, "POST", "/db/_find", `{"selector":`+selector+`,"limit":1,"bookmark":"`+page.Bookmark+`"}`).into(t, &page)
			for _, d := range page.Docs {
				got = append(got, d.ID)
			}
		}
		if !slices.Equal(got, []string{"A", "b", "c"}) {
			t.Errorf("%s finds %v, want A, b and c", selector, got)
		}
	}
}
