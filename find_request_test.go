package osier

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// CouchDB's requests become queries that say the same.
func TestFindRequests(t *testing.T) {
	for _, c := range []struct {
		body string
		want FindRequest
	}{
		{`{"selector": {"a": 1}}`, FindRequest{FindQuery: FindQuery{Selector: []byte(`{"a": 1}`), SortedOnly: true, SortByIndex: true}, Limit: 25, AllowFallback: true, R: 1}},
		{`{"selector":{},"limit":0,"skip":3,"fields":["a","b.c"],"sort":["a",{"b":"desc"}],"bookmark":"nil","update":false,"execution_stats":true,"conflicts":true}`,
			FindRequest{FindQuery: FindQuery{Selector: []byte(`{}`), Fields: []string{"a", "b.c"}, Sort: []SortField{Asc("a"), Desc("b")}, SortedOnly: true, SortByIndex: true, Stale: true},
				Skip: 3, Conflicts: true, ExecutionStats: true, AllowFallback: true, MixedSort: true, R: 1}},
		{`{"selector":{},"use_index":"_design/d","allow_fallback":false}`,
			FindRequest{FindQuery: FindQuery{Selector: []byte(`{}`), SortedOnly: true, SortByIndex: true, UseIndex: "d$$", Strict: true}, Limit: 25, UseDesign: "d", R: 1}},
		{`{"selector":{},"use_index":["d/x","by name"],"limit":99999999999}`,
			FindRequest{FindQuery: FindQuery{Selector: []byte(`{}`), SortedOnly: true, SortByIndex: true, UseIndex: "d$2fx$$by$20name"}, Limit: 1<<31 - 1, AllowFallback: true, UseDesign: "d/x", UseName: "by name", R: 1}},
	} {
		got, err := ParseFindRequest([]byte(c.body))
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s:\ngot  %+v, %v\nwant %+v", c.body, got, err, c.want)
			continue
		}
		q := got.Query("docs")
		if q.Kind != QueryFind || q.Collection != "docs" || q.Limit != c.want.Limit || q.Parts&WithConflicts != 0 != c.want.Conflicts {
			t.Errorf("%s: query %+v", c.body, q)
		}
	}
	for body, name := range map[string]string{
		`{}`:                                  "missing_required_key",
		`[]`:                                  "bad_request",
		`{"selector":{"a":{"$x":1}}}`:         "invalid_operator",
		`{"selector":{},"limit":-1}`:          "invalid_non_neg_integer",
		`{"selector":{},"sort":"a"}`:          "invalid_sort_json",
		`{"selector":{},"colour":"blue"}`:     "invalid_key",
		`{"selector":{},"use_index":{}}`:      "invalid_index_name",
		`{"selector":{},"fields":["a","",1]}`: "invalid_field",
	} {
		_, err := ParseFindRequest([]byte(body))
		var e *SelectorError
		if KindOf(err) != KindInvalid || !errors.As(err, &e) || e.Name != name {
			t.Errorf("%s: got %v, want %s", body, err, name)
		}
	}
}

// CouchDB's indexes become ours and come back as they were.
func TestIndexRequests(t *testing.T) {
	for _, c := range []struct{ body, form string }{
		{`{"index":{"fields":["a",{"b.c":"asc"}]},"ddoc":"d","name":"n"}`,
			`{"ddoc":"_design/d","name":"n","type":"json","def":{"fields":[{"a":"asc"},{"b.c":"asc"}]}}`},
		{`{"index":{"fields":["a"],"partial_filter_selector":{"a":{"$gt":1}}},"ddoc":"_design/my ddoc","name":"ü$","type":"json"}`,
			`{"ddoc":"_design/my ddoc","name":"ü$","type":"json","def":{"fields":[{"a":"asc"}],"partial_filter_selector":{"a":{"$gt":1}}}}`},
	} {
		x, err := ParseIndexRequest([]byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		if err := CheckCollectionName(x.Name); err != nil {
			t.Errorf("%s: name %q: %v", c.body, x.Name, err)
		}
		form, err := x.CouchForm()
		if err != nil || string(form) != c.form {
			t.Errorf("%s:\ngot  %s, %v\nwant %s", c.body, form, err, c.form)
		}
	}
	a, err1 := ParseIndexRequest([]byte(`{"index":{"fields":["a"]}}`))
	b, err2 := ParseIndexRequest([]byte(`{"index":{"fields":[{"a":"asc"}]},"type":"json"}`))
	if err1 != nil || err2 != nil || a.Name != b.Name {
		t.Errorf("the same definition is named %v and %v, %v, %v", a, b, err1, err2)
	}
	for body, kind := range map[string]Kind{
		`{`: KindInvalid, `{}`: KindInvalid, `{"index":{}}`: KindInvalid, `{"index":{"fields":[]}}`: KindInvalid,
		`{"index":{"fields":[{"a":"up"}]}}`: KindInvalid, `{"index":{"fields":["a"],"partial_filter_selector":{"$x":1}}}`: KindInvalid,
		`{"index":{"fields":["a"]},"type":"text"}`: KindUnsupported,
	} {
		if _, err := ParseIndexRequest([]byte(body)); KindOf(err) != kind {
			t.Errorf("%s: got %v, want %v", body, err, kind)
		}
	}
}

// Names of CouchDB's indexes pass through ours whatever they hold.
func TestIndexNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		design, name := rapid.StringN(1, 20, 40).Draw(t, "design"), rapid.StringN(1, 20, 40).Draw(t, "name")
		x := Index{Name: CouchIndexName("_design/"+design, name)}
		if d, n := x.CouchName(); d != design || n != name {
			t.Fatalf("%q, %q became %q, then %q, %q", design, name, x.Name, d, n)
		}
	})
}
