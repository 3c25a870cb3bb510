package couch

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{` { "b" : 1 , "a" : [ true , null ] } `, `{"b":1,"a":[true,null]}`},
		{`{"k":1,"x":0,"k":2}`, `{"k":2,"x":0}`},
		{`{"k":1,"\u006b":{"y":1,"y":2}}`, `{"k":{"y":2}}`},
		{`-0`, `0`}, {`-0.0`, `-0.0`}, {`1.0`, `1.0`}, {`1E3`, `1000.0`}, {`1e+2`, `100.0`}, {`1e22`, `1e+22`}, {`1e-7`, `1e-7`},
		{`5e-324`, `0.0`}, {`1e-400`, `0.0`}, {`3.141592653589793238462643`, `3.141592653589793`},
		{`123456789012345678901234567890`, `123456789012345678901234567890`},
		{`"\u00e9\/\ud83d\ude00\u0000\n\"\u0008\u001f"`, "\"é/😀\\u0000\\n\\\"\\b\\u001F\""},
		{"\"\uffff\u007f\"", "\"\uffff\u007f\""},
	} {
		got, err := canonical(nil, []byte(c.in), 0)
		if err != nil || string(got) != c.want {
			t.Errorf("canonical(%s) = %s, %v, want %s", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{
		"", " ", "{", "}", "[1,]", `{"a":}`, `{"a":1,}`, `{'a':1}`, "01", "+1", ".5", "1.", "1e", "NaN", "nul", "truE", `"`, "\"\x01\"", `"\x"`,
		`"\u12"`, `"\ud800"`, `"\ud800\u0041"`, `"\udc00\ud800"`, "\"\xff\"", "\xef\xbb\xbf{}", "1e400", "{}{}", `{"a" 1}`, "[1 2]",
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), strings.Repeat("9", maxDigits+1),
	} {
		if got, err := canonical(nil, []byte(in), 0); err == nil {
			t.Errorf("canonical(%.40q) = %.40q, want an error", in, got)
		}
	}
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	if got, err := canonical(nil, []byte(deep), 0); err != nil || string(got) != deep {
		t.Errorf("a text of the greatest depth: %v", err)
	}
}

// A repeated name is found however many members there are.
func TestCanonicalRepeats(t *testing.T) {
	for _, n := range []int{2, manyMembers, manyMembers + 1, 200} {
		var in, want strings.Builder
		in.WriteString(`{"first":0`)
		want.WriteString(`{"first":-1`)
		for i := range n - 1 {
			in.WriteString(`,"m` + strconv.Itoa(i) + `":` + strconv.Itoa(i))
			want.WriteString(`,"m` + strconv.Itoa(i) + `":` + strconv.Itoa(i))
		}
		in.WriteString(`,"first":-1}`)
		want.WriteString(`}`)
		got, err := canonical(nil, []byte(in.String()), 0)
		if err != nil || string(got) != want.String() {
			t.Errorf("%d members: %s, %v", n, got, err)
		}
	}
}

func TestFloatsKeepTheirValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64().Draw(t, "f")
		text := appendFloat(nil, f)
		back, err := strconv.ParseFloat(string(text), 64)
		if math.Abs(f) < 0x1p-1022 {
			f = math.Copysign(0, f)
		}
		if err != nil || math.Float64bits(back) != math.Float64bits(f) {
			t.Fatalf("%v is written as %s, which is %v (%v)", f, text, back, err)
		}
		if !bytes.ContainsAny(text, ".e") {
			t.Fatalf("%v is written as the integer %s", f, text)
		}
	})
}

func TestQuotedStringsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		quoted := appendQuoted(nil, s)
		var std string
		if err := json.Unmarshal(quoted, &std); err != nil || std != s {
			t.Fatalf("%q is written as %s: %q, %v", s, quoted, std, err)
		}
		if got, ok := unquote(quoted); !ok || got != s {
			t.Fatalf("%q comes back as %q", s, got)
		}
		again, err := canonical(nil, quoted, 0)
		if err != nil || !bytes.Equal(again, quoted) {
			t.Fatalf("%s is no canonical form: %s, %v", quoted, again, err)
		}
	})
}

// The canonical form means the same, and is its own canonical form; encoding/json
// is the judge.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"a":1,"a":[1.50,-0,"\u00e9"]}`, `[[],{},"",null,true,1e5]`, `{"_id":"x","_rev":"1-a"}`, `"\ud83d\ude00"`, "01", `{"a":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := canonical(nil, in, 0)
		if err != nil {
			return
		}
		if !json.Valid(in) {
			t.Fatalf("%q is no JSON, and was taken as %q", in, out)
		}
		again, err := canonical(nil, out, 0)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q becomes %q, and that %q (%v)", in, out, again, err)
		}
		var a, b any
		if json.Unmarshal(in, &a) == nil && json.Unmarshal(out, &b) == nil {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			// Denormal numbers are read as zero, and -0 is 0; all else is the same.
			if !bytes.Equal(x, y) && !bytes.Contains(x, []byte("e-3")) && !bytes.Contains(x, []byte("-0")) {
				t.Fatalf("%q becomes %q: %s is not %s", in, out, x, y)
			}
		}
		if ok, err := fields(out, func(name, value []byte) error {
			if _, ok := unquote(name); !ok || !json.Valid(value) {
				t.Fatalf("%q has the member %q with %q", out, name, value)
			}
			return nil
		}); ok && err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever a client sends as a document or as many, it is taken or refused.
func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{
		`{"_id":"a","_rev":"1-a","_revisions":{"start":2,"ids":["b","a"]},"_attachments":{"x":{"data":"AAEC"},"y":{"stub":true,"revpos":1}}}`,
		`{"docs":[{"_id":"a"},{"_deleted":true}],"new_edits":false}`, `{"docs":[1]}`, `{"_attachments":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if doc, err := parseDoc(in, 0); err == nil {
			if !json.Valid(doc.body) || doc.body[0] != '{' {
				t.Fatalf("%q has the body %q", in, doc.body)
			}
			_ = checkDesign(doc.body) // either way
		}
		if b, err := parseBulk(in, 0); err == nil {
			for _, doc := range b.docs {
				if !json.Valid(doc.body) {
					t.Fatalf("%q has the body %q", in, doc.body)
				}
			}
		}
	})
}

func FuzzPaths(f *testing.F) {
	for _, seed := range []string{"/db/a%2Fb/c", "//db//_all_docs?x=%zz&y", "/db/_design%2fx/_view/%", "/a+b?keys=[\"a\"]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		path, query, _ := strings.Cut(in, "?")
		for _, s := range segments(path) {
			if s == "" {
				t.Fatalf("%q has an empty segment", path)
			}
			if back := unescape(escape(s)); back != s {
				t.Fatalf("%q comes back as %q", s, back)
			}
		}
		p := parseParams(query)
		if _, err := newListing(p); err != nil {
			return
		}
	})
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		header string
		ok     bool
		want   []byteRange
	}{
		{"", false, nil}, {"lines=0-1", false, nil}, {"bytes=", false, nil}, {"bytes=-", false, nil}, {"bytes=a-b", false, nil}, {"bytes=1", false, nil},
		{"bytes=0-9", true, []byteRange{{0, 10}}}, {"bytes=10-19", true, []byteRange{{10, 10}}}, {"bytes=90-", true, []byteRange{{90, 10}}},
		{"bytes=-10", true, []byteRange{{90, 10}}}, {"bytes=-500", true, []byteRange{{0, 100}}}, {"bytes=90-200", true, []byteRange{{90, 10}}},
		{"bytes=100-", true, nil}, {"bytes=9-0", true, nil}, {"bytes=0-0, 5-5", true, []byteRange{{0, 1}, {5, 1}}},
		{"bytes=" + strings.Repeat("0-0,", maxRanges) + "1-1", false, nil}, {"bytes=99999999999999999999-", false, nil},
	} {
		got, ok := parseRanges(c.header, 100)
		if ok != c.ok || len(got) != len(c.want) {
			t.Errorf("%q: %v, %v, want %v, %v", c.header, got, ok, c.want, c.ok)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%q: %v, want %v", c.header, got, c.want)
			}
		}
	}
}
