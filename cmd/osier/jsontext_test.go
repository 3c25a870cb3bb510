package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// Taking a member out and putting it back leaves every other byte as it was.
func TestTakeMember(t *testing.T) {
	for _, c := range []struct{ in, rest, value string }{
		{`{}`, `{}`, ``},
		{`{"_id":1}`, `{}`, `1`},
		{`{"_id":"a","b":2}`, `{"b":2}`, `"a"`},
		{`{"b":2,"_id":"a"}`, `{"b":2}`, `"a"`},
		{`{"b":2,"_id":{"x":[1,"]}",{}]},"c":3}`, `{"b":2,"c":3}`, `{"x":[1,"]}",{}]}`},
		{`{"\u005fid":1.50,"b":"\u00e9\""}`, `{"b":"\u00e9\""}`, `1.50`},
		{`{"b":{"_id":1}}`, `{"b":{"_id":1}}`, ``},
		{`{"b":"\"_id\":1","b":1e400}`, `{"b":"\"_id\":1","b":1e400}`, ``},
		{`[1]`, `[1]`, ``},
		{`"_id"`, `"_id"`, ``},
	} {
		rest, value, err := takeMember([]byte(c.in), "_id")
		if err != nil || string(rest) != c.rest || string(value) != c.value {
			t.Errorf("takeMember(%s): want %s, %s; got %s, %s, %v", c.in, c.rest, c.value, rest, value, err)
		}
	}
	if _, _, err := takeMember([]byte(`{"_id":1,"_id":1}`), "_id"); err == nil {
		t.Error("two members of that name: want an error, got none")
	}
}

func TestFindMember(t *testing.T) {
	const doc = `{"a":{"b":{"c":1}},"a.b":2,"x":3,"x":4,"":5,"d.e":{"f":6},"s":"text"}`
	for _, c := range []struct{ path, want string }{
		{"a.b", "2"}, {"a.b.c", "1"}, {"x", "4"}, {"", "5"}, {"d.e.f", "6"},
		{"a", `{"b":{"c":1}}`}, {"nothing", ""}, {"s.t", ""}, {"a.", ""}, {"a.b.c.d", ""}, {".", ""},
	} {
		got, ok := findMember([]byte(doc), c.path)
		if string(got) != c.want || ok != (c.want != "") {
			t.Errorf("findMember(%q): want %q, got %q, %v", c.path, c.want, got, ok)
		}
	}
}

// appendCompact takes exactly the valid texts in UTF-8 and drops white space
// between elements alone.
func FuzzCompact(f *testing.F) {
	for _, s := range []string{` { "a" : [ 1 , 2.50 , "x y" ] } `, `{"a":1}`, `nul`, "\"\xff\"", `"\ud800"`, "", "[1 2]", `{"_id":1,"_id":2}`, `{"a":"\u005fid","\u005fid":[]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := appendCompact(nil, in)
		if want := json.Valid(in) && utf8.Valid(in); (err == nil) != want {
			t.Fatalf("%q: valid is %v, got error %v", in, want, err)
		}
		if err != nil {
			return
		}
		if !sameJSON(in, got) {
			t.Fatalf("%q became %q", in, got)
		}
		if again, err := appendCompact(nil, got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("compact twice: want %q, got %q, %v", got, again, err)
		}
		checkSurgery(t, got)
	})
}

// checkSurgery judges takeMember and appendWithMember by each other and by
// encoding/json.
func checkSurgery(t *testing.T, doc []byte) {
	var decoded map[string]json.RawMessage
	isObject := doc[0] == '{' && json.Unmarshal(doc, &decoded) == nil
	rest, value, err := takeMember(bytes.Clone(doc), "_id")
	if err != nil {
		return // two of them
	}
	if !isObject {
		if value != nil || !bytes.Equal(rest, doc) {
			t.Fatalf("no object: want %s back, got %s and %s", doc, rest, value)
		}
		return
	}
	want, has := decoded["_id"]
	if has != (value != nil) || has && !bytes.Equal(value, want) {
		t.Fatalf("%s: want _id %s, got %s", doc, want, value)
	}
	if !json.Valid(rest) {
		t.Fatalf("%s without _id: not valid: %s", doc, rest)
	}
	if value == nil {
		value = []byte(`[{"x":"}"}]`)
		if !bytes.Equal(rest, doc) {
			t.Fatalf("want %s untouched, got %s", doc, rest)
		}
	}
	with := appendWithMember(nil, "_id", value, rest)
	if !json.Valid(with) {
		t.Fatalf("_id put back: not valid: %s", with)
	}
	rest2, value2, err := takeMember(with, "_id")
	if err != nil || !bytes.Equal(rest2, rest) || !bytes.Equal(value2, value) {
		t.Fatalf("out, in, out: want %s and %s, got %s and %s, %v", rest, value, rest2, value2, err)
	}
}

func TestSameJSON(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[2]}`, `{"b":[2],"a":1}`, true},
		{`"\u0041"`, `"A"`, true},
		{`1`, `1.0`, false},
		{`[1,2]`, `[2,1]`, false},
		{`{"a":null}`, `{}`, false},
	} {
		if got := sameJSON([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("%s and %s: want same %v, got %v", c.a, c.b, c.want, got)
		}
	}
}

func TestAppendQuoted(t *testing.T) {
	for _, s := range []string{"", "plain", "quote\" back\\ slash/", "\x00\x01\x1f\x7f\n\r\t\b\f", "東京 <&> \u2028"} {
		var got string
		b := appendQuoted(nil, s)
		if err := json.Unmarshal(b, &got); err != nil || got != s {
			t.Errorf("%q: want it back from %s, got %q, %v", s, b, got, err)
		}
	}
}
