package mango

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/osierdb/osier/internal/keys"
)

// Fields are picked in the order asked for, nested ones into one object, as
// CouchDB does.
func TestProjection(t *testing.T) {
	for _, c := range []struct {
		doc    int
		fields []string
		want   string
	}{
		{0, []string{"name"}, `{"name":"Ann"}`},
		{0, []string{"_id", "addr.zip", "addr.geo.lat"}, `{"_id":"1","addr":{"zip":"0150","geo":{"lat":59.9}}}`},
		{0, []string{"addr.zip", "name", "addr.geo.lat"}, `{"addr":{"zip":"0150","geo":{"lat":59.9}},"name":"Ann"}`},
		{0, []string{"nosuch"}, `{}`},
		{2, []string{"items.n", "items"}, `{"items":[{"n":1,"q":5},{"n":2,"q":7}]}`},
		{4, []string{`dot\.ted`, "dot.ted"}, `{"dot.ted":1}`},
		{0, []string{"tags.0", "tags.[0]"}, `{"tags":{"0":"a"}}`},
		{1, []string{"_rev", "_id"}, `{"_rev":"1-b","_id":"2"}`},
		{0, []string{"addr", "addr.zip"}, `{"addr":{"zip":"0150","geo":{"lat":59.9}}}`},
		{0, []string{"addr.zip", "name", "addr"}, `{"addr":{"zip":"0150","geo":{"lat":59.9}},"name":"Ann"}`},
		{0, []string{"addr.nosuch", "name", "addr"}, `{"name":"Ann","addr":{"zip":"0150","geo":{"lat":59.9}}}`},
		{0, []string{"name", "name"}, `{"name":"Ann"}`},
		{5, nil, `{"_id":"6","_rev":"1-f","name":"","age":"30","city":["Oslo"],"n":-3,"scores":{"z":2}}`},
	} {
		p, err := NewProjection(c.fields)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.AppendDoc([]byte("x"), &people[c.doc])
		if err != nil || string(got) != "x"+c.want {
			t.Errorf("%v: got %s, %v, want x%s", c.fields, got, err, c.want)
		}
	}
}

// What the store keeps beside the body is part of the document.
func TestProjectionMeta(t *testing.T) {
	d := Doc{ID: "a\"b", Body: []byte(`{ "x" : 1, "_id":"old", "_deleted":false }`), Meta: []byte(`{"_deleted":true,"_id":"other"}`)}
	got, err := (*Projection)(nil).AppendDoc(nil, &d)
	if want := `{"_id":"a\"b","x" : 1,"_deleted":true}`; err != nil || string(got) != want {
		t.Errorf("whole: got %s, %v, want %s", got, err, want)
	}
	p, err := NewProjection([]string{"_deleted", "_id", "_rev"})
	if err != nil {
		t.Fatal(err)
	}
	got, err = p.AppendDoc(nil, &d)
	if want := `{"_deleted":true,"_id":"a\"b"}`; err != nil || string(got) != want {
		t.Errorf("fields: got %s, %v, want %s", got, err, want)
	}
	for _, body := range []string{"", "[]", `{"x":}`, `{"x":1`, `{"x":1}y`} {
		for _, p := range []*Projection{nil, p} {
			if got, err := p.AppendDoc([]byte("x"), &Doc{ID: "a", Body: []byte(body)}); !errors.Is(err, ErrDocument) || string(got) != "x" {
				t.Errorf("%q: got %q, %v, want ErrDocument", body, got, err)
			}
		}
	}
}

// Sorts are read in all spellings, and shown in one.
func TestParseSort(t *testing.T) {
	s, err := ParseSort([]byte(` ["a", {"b.c":"desc"}, {"d":"asc"}] `))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(s); err != nil || string(text) != `[{"a":"asc"},{"b.c":"desc"},{"d":"asc"}]` {
		t.Errorf("got %s, %v", text, err)
	}
	if !s.Mixed() || s[:1].Mixed() {
		t.Errorf("mixed: got %v, %v", s.Mixed(), s[:1].Mixed())
	}
	for _, c := range [][3]string{
		{`"x"`, ErrInvalidSortJSON, `Sort must be an array of sort specs, not: "x"`},
		{`[{"a":"up"}]`, ErrInvalidSortField, `Invalid sort field: {"a":"up"}`},
		{`[1]`, ErrInvalidSortField, "Invalid sort field: 1"},
		{`["a",""]`, ErrInvalidSortField, `Invalid sort field: ""`},
		{`[{"a":"asc","b":"asc"}]`, ErrInvalidSortField, `Invalid sort field: {"a":"asc","b":"asc"}`},
		{`[`, ErrBadRequest, "invalid UTF-8 JSON"},
	} {
		var e *Error
		if _, err := ParseSort([]byte(c[0])); !errors.As(err, &e) || e.Name != c[1] || e.Reason != c[2] {
			t.Errorf("%s: got %v, want %s: %s", c[0], err, c[1], c[2])
		}
	}
}

// sorted returns the ids in order of the documents' keys, and of those that have
// all fields.
func sorted(t *testing.T, sort string, docs []Doc) (all, complete string) {
	t.Helper()
	s, err := ParseSort([]byte(sort))
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKeyer(s, Unicode)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		key []byte
		id  string
	}
	var rows []row
	for i := range docs {
		key, whole, err := k.AppendKey(nil, &docs[i])
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row{key, docs[i].ID})
		if whole {
			complete += docs[i].ID
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return bytes.Compare(a.key, b.key) })
	for _, r := range rows {
		all += r.id
	}
	return all, complete
}

// Keys sort as CouchDB's indexes do; a missing field comes first.
func TestKeyer(t *testing.T) {
	for _, c := range []struct {
		docs                []Doc
		sort, all, complete string
	}{
		{people, `["age"]`, "521436", "123456"},
		{people, `[{"age":"desc"}]`, "631425", "123456"},
		{people, `["city","age"]`, "521346", "12346"},
		{people, `["age",{"name":"desc"}]`, "524136", "123456"},
		{people, `["addr.zip"]`, "346152", "125"},
		{people, `[{"_id":"desc"}]`, "654321", "123456"},
		{values, `["v"]`, "abcdefghjilkmnopqr", "abcdefghijklmnopqr"},
		{values, `[{"v":"desc"}]`, "rqponmkli" + "jhgfedcba", "abcdefghijklmnopqr"},
	} {
		all, complete := sorted(t, c.sort, c.docs)
		if all != c.all || complete != c.complete {
			t.Errorf("%s: got %s, %s, want %s, %s", c.sort, all, complete, c.all, c.complete)
		}
	}
	deep := Doc{ID: "x", Body: []byte(`{"v":` + strings.Repeat("[", keys.MaxDepth+1) + strings.Repeat("]", keys.MaxDepth+1) + `}`)}
	k, err := NewKeyer(Sort{{Path: "v"}}, Unicode)
	if err != nil {
		t.Fatal(err)
	}
	if key, _, err := k.AppendKey([]byte("x"), &deep); !errors.Is(err, ErrDocument) || string(key) != "x" {
		t.Errorf("too deep a value: got %q, %v, want ErrDocument", key, err)
	}
}

// Plans say what an index is good for.
func TestRanges(t *testing.T) {
	type plan struct {
		Ranges         []string
		Bounded, Fixed int
		Usable         bool
		Residual       string
		Covered        int
	}
	for _, c := range []struct {
		selector string
		index    []string
		want     plan
	}{
		{`{"a":1}`, []string{"a"}, plan{[]string{"1"}, 1, 1, true, "", 1}},
		{`{"a":1,"b":{"$gt":2}}`, []string{"a", "b"}, plan{[]string{"1/>2 to 1/>"}, 2, 1, true, "", 2}},
		{`{"a":{"$gt":1},"b":2}`, []string{"a", "b"}, plan{[]string{">1 to"}, 1, 0, true, `{"b":{"$eq":2}}`, 1}},
		{`{"b":2}`, []string{"a"}, plan{[]string{"all"}, 0, 0, false, `{"b":{"$eq":2}}`, 0}},
		{`{"a":{"$exists":true}}`, []string{"a"}, plan{[]string{"all"}, 0, 0, true, `{"a":{"$exists":true}}`, 0}},
		{`{"a":{"$gt":5,"$lt":3}}`, []string{"a"}, plan{nil, 1, 1, true, "", 2}},
		{`{"a":{"$ne":3}}`, []string{"a"}, plan{[]string{" to 3", ">3 to"}, 1, 0, true, "", 1}},
		{`{"$or":[{"a":7},{"a":41}]}`, []string{"a"}, plan{[]string{"7", "41"}, 1, 1, true, "", 1}},
		{`{"$or":[{"a":7},{"a":{"$size":2}}]}`, []string{"a"}, plan{[]string{"7", "arrays"}, 1, 0, true, `{"$or":[{"a":{"$eq":7}},{"a":{"$size":2}}]}`, 0}},
		{`{"a":{"$in":[7]}}`, []string{"a"}, plan{[]string{"7", "arrays"}, 1, 0, true, `{"a":{"$in":[7]}}`, 0}},
		{`{"_id":{"$in":["x","y"]}}`, []string{"_id"}, plan{[]string{"x", "y"}, 1, 1, true, "", 1}},
		{`{"$or":[{"a":7},{"b":41}]}`, []string{"a"}, plan{[]string{"all"}, 0, 0, false, `{"$or":[{"a":{"$eq":7}},{"b":{"$eq":41}}]}`, 0}},
	} {
		s, err := Compile([]byte(c.selector), nil)
		if err != nil {
			t.Fatal(err)
		}
		var index Sort
		for _, f := range c.index {
			index = append(index, SortField{Path: f})
		}
		k, err := NewKeyer(index, Unicode)
		if err != nil {
			t.Fatal(err)
		}
		p := s.Ranges(k)
		got := plan{Bounded: p.Bounded, Fixed: p.Fixed, Usable: p.Usable(), Covered: p.Covered}
		if p.Residual != nil {
			got.Residual = p.Residual.String()
		}
		if got.Bounded != c.want.Bounded || got.Fixed != c.want.Fixed || got.Usable != c.want.Usable ||
			got.Residual != c.want.Residual || got.Covered != c.want.Covered || len(p.Ranges) != len(c.want.Ranges) {
			t.Errorf("%s on %v: got %+v with %d ranges, want %+v", c.selector, c.index, got, len(p.Ranges), c.want)
			continue
		}
		for i, r := range p.Ranges {
			if want := rangeOf(t, c.want.Ranges[i]); !bytes.Equal(r.Low, want.Low) || !bytes.Equal(r.High, want.High) {
				t.Errorf("%s on %v: range %d: got %x, want %x (%s)", c.selector, c.index, i, r, want, c.want.Ranges[i])
			}
		}
	}
}

// Strings bound an index of another order by type alone, and a prefix bounds one
// in Unicode's order by its letters, whatever follows.
func TestRangesOfStrings(t *testing.T) {
	for _, c := range []struct {
		selector string
		index    Collation
		value    string // in the ranges, though the bytes or letters are not
		covered  int
	}{
		{`{"v":{"$gt":"a"}}`, Unicode, `"A"`, 1},
		{`{"v":{"$gt":"a"}}`, Binary, `"A"`, 0},
		{`{"v":{"$lt":"B"}}`, Binary, `"a"`, 0},
		{`{"v":"\u00e9"}`, Binary, `"e\u0301"`, 0},
		{`{"v":"\u00e9"}`, Unicode, `"e\u0301"`, 1},
		{`{"v":{"$beginsWith":"а и"}}`, Unicode, `"а й"`, 0},
		{`{"v":{"$beginsWith":"а и"}}`, Unicode, `"а и\u0306"`, 0},
		{`{"v":{"$beginsWith":"ab"}}`, Binary, `"abc"`, 1},
	} {
		s, err := Compile([]byte(c.selector), nil)
		if err != nil {
			t.Fatal(err)
		}
		k, err := NewKeyer(Sort{{Path: "v"}}, c.index)
		if err != nil {
			t.Fatal(err)
		}
		key, _, err := k.AppendKey(nil, &Doc{ID: "x", Body: []byte(`{"v":` + c.value + `}`)})
		if err != nil {
			t.Fatal(err)
		}
		p := s.Ranges(k)
		if len(p.Ranges) != 1 || bytes.Compare(key, p.Ranges[0].Low) < 0 || len(p.Ranges[0].High) > 0 && bytes.Compare(key, p.Ranges[0].High) >= 0 {
			t.Errorf("%s by %v: %s at %x is not in %x", c.selector, c.index, c.value, key, p.Ranges)
		}
		if p.Covered != c.covered || (p.Residual == nil) != (c.covered == 1) {
			t.Errorf("%s by %v: covered %d, left %v", c.selector, c.index, p.Covered, p.Residual)
		}
	}
}

// rangeOf returns the range of a description: "low to high", each elements that
// are integers or letters joined by slashes, with > before the last for behind it.
func rangeOf(t *testing.T, text string) (r Range) {
	t.Helper()
	switch text {
	case "all":
		return r
	case "arrays":
		low := keys.AppendArrayStart(nil)
		return Range{low, keys.PrefixEnd(low)}
	}
	end := func(text string) []byte {
		var b []byte
		behind := false
		for e := range strings.SplitSeq(text, "/") {
			e, after := strings.CutPrefix(strings.TrimSpace(e), ">")
			behind = after
			n := 0
			if e == "" {
				continue
			}
			if _, err := fmt.Sscan(e, &n); err == nil {
				b = keys.AppendInt(b, int64(n))
			} else {
				b = keys.AppendString(b, e)
			}
		}
		if behind {
			return keys.PrefixEnd(b)
		}
		return b
	}
	low, high, ok := strings.Cut(text, " to")
	if r.Low = end(low); !ok {
		r.High = keys.PrefixEnd(r.Low)
		return r
	}
	r.High = end(high)
	return r
}

// A whole request is read, with CouchDB's defaults.
func TestParseRequest(t *testing.T) {
	r, err := ParseRequest([]byte(`{"selector":{"a":1}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Limit != 25 || r.Skip != 0 || r.R != 1 || !r.Update || !r.AllowFallback || r.Conflicts || r.Stable || r.Projection() != nil {
		t.Errorf("defaults: got %+v", r)
	}
	r, err = ParseRequest([]byte(`{"selector":{"a":1},"limit":5,"skip":2,"sort":["a"],"fields":["a","b.c"],"bookmark":"nil",
		"use_index":"_design/d/ix","r":2,"conflicts":true,"update":false,"stable":true,"execution_stats":true,"allow_fallback":false,"partition":"p"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Request{Fields: []string{"a", "b.c"}, Sort: Sort{{Path: "a"}}, Limit: 5, Skip: 2, UseIndex: []string{"d", "ix"}, R: 2,
		Conflicts: true, Stable: true, ExecutionStats: true, Partition: "p"}
	if r.Selector.String() != `{"a":{"$eq":1}}` || r.Projection() == nil {
		t.Errorf("got %s, %v", r.Selector, r.Projection())
	}
	r.Selector, r.projection = nil, nil
	if diff := cmp.Diff(want, *r, cmp.AllowUnexported(Request{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Requests are refused as CouchDB refuses them.
func TestParseRequestErrors(t *testing.T) {
	for _, c := range [][3]string{
		{`{`, ErrBadRequest, "invalid UTF-8 JSON"},
		{``, ErrBadRequest, "invalid UTF-8 JSON"},
		{`[]`, ErrBadRequest, "Request body must be a JSON object"},
		{`"x"`, ErrBadRequest, "Request body must be a JSON object"},
		{`{}`, ErrMissingKey, "Missing required key: selector"},
		{`{"selector":"x"}`, ErrInvalidSelectorJSON, `Selector must be a JSON object, not: "x"`},
		{`{"selector":[]}`, ErrInvalidSelectorJSON, "Selector must be a JSON object, not: []"},
		{`{"selector":{"a":{"$x":1}}}`, ErrInvalidOperator, "Invalid operator: $x"},
		{`{"selector":{},"limit":"x"}`, ErrInvalidNonNegInt, `"x" is not an integer greater than or equal to zero`},
		{`{"selector":{},"limit":-1}`, ErrInvalidNonNegInt, "-1 is not an integer greater than or equal to zero"},
		{`{"selector":{},"limit":1.0}`, ErrInvalidNonNegInt, "1.0 is not an integer greater than or equal to zero"},
		{`{"selector":{},"skip":-1}`, ErrInvalidNonNegInt, "-1 is not an integer greater than or equal to zero"},
		{`{"selector":{},"fields":"x"}`, ErrInvalidFields, `Fields must be an array of strings, not: "x"`},
		{`{"selector":{},"fields":[1]}`, ErrInvalidField, "Invalid JSON for field spec: 1"},
		{`{"selector":{},"fields":["a..b"]}`, ErrInvalidFieldName, "Invalid field name: a..b"},
		{`{"selector":{},"sort":"x"}`, ErrInvalidSortJSON, `Sort must be an array of sort specs, not: "x"`},
		{`{"selector":{},"sort":[1]}`, ErrInvalidSortField, "Invalid sort field: 1"},
		{`{"selector":{},"bookmark":5}`, ErrInvalidBookmark, "Invalid bookmark value: 5"},
		{`{"selector":{},"use_index":5}`, ErrInvalidIndexName, "Invalid index name: 5"},
		{`{"selector":{},"r":"x"}`, ErrInvalidPosInt, `"x" is not an integer greater than zero`},
		{`{"selector":{},"r":0}`, ErrInvalidPosInt, "0 is not an integer greater than zero"},
		{`{"selector":{},"conflicts":"x"}`, ErrInvalidBoolean, `Invalid boolean value: "x"`},
		{`{"selector":{},"execution_stats":1}`, ErrInvalidBoolean, "Invalid boolean value: 1"},
		{`{"selector":{},"nosuch":1}`, ErrInvalidKey, "Invalid key nosuch for this request."},
		{`{"selector":{},"partition":"_x"}`, ErrBadRequest, `Partition must be a string that does not begin with an underscore, not: "_x"`},
	} {
		var e *Error
		if _, err := ParseRequest([]byte(c[0]), nil); !errors.As(err, &e) || e.Name != c[1] || e.Reason != c[2] {
			t.Errorf("%s: got %v, want %s: %s", c[0], err, c[1], c[2])
		}
	}
}
