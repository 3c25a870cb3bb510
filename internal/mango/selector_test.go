package mango

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// people are documents that CouchDB 3.5 was asked about; the answers below are its.
var people = []Doc{
	{ID: "1", Rev: "1-a", Body: []byte(`{"name":"Ann","age":30,"city":"Oslo","tags":["a","b"],"addr":{"zip":"0150","geo":{"lat":59.9}},"ok":true,"score":1.5}`)},
	{ID: "2", Rev: "1-b", Body: []byte(`{"name":"bob","age":25,"city":"Bergen","tags":["b"],"addr":{"zip":"5003"},"ok":false,"score":null}`)},
	{ID: "3", Rev: "1-c", Body: []byte(`{"name":"Cid","age":41,"city":"Oslo","tags":[],"addr":{},"score":"n/a","items":[{"n":1,"q":5},{"n":2,"q":7}]}`)},
	{ID: "4", Rev: "1-d", Body: []byte(`{"name":"Dee","age":30,"city":"Tromsø","tags":["c","a",5],"items":[{"n":2,"q":1}],"ok":null}`)},
	{ID: "5", Rev: "1-e", Body: []byte(`{"name":"Eve","age":7,"tags":"a","addr":{"zip":"0150"},"dot.ted":1,"scores":{"x":1,"y":9}}`)},
	{ID: "6", Rev: "1-f", Body: []byte(`{"name":"","age":"30","city":["Oslo"],"n":-3,"scores":{"z":2}}`)},
}

// values hold one value of each kind and size, in order of ids.
var values = func() (docs []Doc) {
	for i, v := range []string{"null", "false", "true", "-1", "0", "2", "10", `""`, `"A"`, `"a"`, `"B"`, `"b"`, `"é"`,
		"[]", "[1]", `["a"]`, "{}", `{"a":1}`} {
		docs = append(docs, Doc{ID: string(rune('a' + i)), Body: []byte(`{"v":` + v + `}`)})
	}
	return docs
}()

// found returns the ids of the documents that match, joined.
func found(t *testing.T, s *Selector, docs []Doc) string {
	t.Helper()
	var ids strings.Builder
	for i := range docs {
		ok, err := s.Match(&docs[i])
		if err != nil {
			t.Fatalf("%s: document %s: %v", s, docs[i].ID, err)
		}
		if ok {
			ids.WriteString(docs[i].ID)
		}
	}
	return ids.String()
}

// Selectors find what CouchDB finds.
func TestMatchAsCouchDB(t *testing.T) {
	for _, c := range []struct{ selector, want string }{
		{`{}`, "123456"},
		{`{"_id":"1"}`, "1"},
		{`{"_id":{"$gt":null}}`, "123456"},
		{`{"_rev":"1-c"}`, "3"},
		{`{"$or":[{"_id":"1"}]}`, "1"},
		{`{"$and":[]}`, ""},
		{`{"$and":[{"age":30},{"city":"Oslo"}]}`, "1"},
		{`{"age":30,"city":"Oslo"}`, "1"},
		{`{"$and":[{"age":{"$gt":1}},{"$or":[{"name":"Ann"},{"name":"Cid"}]}]}`, "13"},
		{`{"city":{"$exists":true}}`, "12346"},
		{`{"city":{"$exists":false}}`, "5"},
		{`{"addr.zip":{"$exists":true}}`, "125"},
		{`{"ok":{"$exists":true}}`, "124"},
		{`{"_attachments":{"$exists":false}}`, "123456"},
		{`{"age":{"$in":[7,41]}}`, "35"},
		{`{"age":{"$in":[]}}`, ""},
		{`{"name":{"$in":["Ann","Eve",5]}}`, "15"},
		{`{"tags":{"$in":["a"]}}`, "145"},
		{`{"tags":{"$in":[["b"]]}}`, ""},
		{`{"score":{"$in":[null]}}`, "2"},
		{`{"age":{"$nin":[7,41]}}`, "1246"},
		{`{"tags":{"$nin":["a"]}}`, "23"},
		{`{"age":{"$nin":[]}}`, "123456"},
		{`{"age":{"$lt":30}}`, "25"},
		{`{"age":{"$lte":30}}`, "1245"},
		{`{"name":{"$lt":"C"}}`, "126"},
		{`{"age":{"$lt":"a"}}`, "123456"},
		{`{"age":{"$lt":{}}}`, "123456"},
		{`{"score":{"$lt":0}}`, "2"},
		{`{"age":{"$ne":30}}`, "2356"},
		{`{"score":{"$ne":null}}`, "13"},
		{`{"nosuch":{"$ne":1}}`, ""},
		{`{"tags":{"$ne":[]}}`, "1245"},
		{`{"$not":{"age":30}}`, "2356"},
		{`{"age":{"$not":{"$gt":25}}}`, "25"},
		{`{"$not":{"$and":[{"age":30},{"city":"Oslo"}]}}`, "23456"},
		{`{"age":{"$gt":7,"$lt":41}}`, "124"},
		{`{"age":{"$gte":25,"$lte":30,"$ne":30}}`, "2"},
		{`{"age":{"$gt":1,"x":2}}`, ""},
		{`{"addr.zip":"0150"}`, "15"},
		{`{"addr.geo.lat":{"$gt":50}}`, "1"},
		{`{"addr":{"zip":"0150","geo":{"lat":59.9}}}`, "1"},
		{`{"addr":{"zip":"0150"}}`, "15"},
		{`{"addr":{"geo":{"lat":{"$gt":1}}}}`, "1"},
		{`{"dot\\.ted":1}`, "5"},
		{`{"dot.ted":1}`, ""},
		{`{"tags":{"$all":["a"]}}`, "14"},
		{`{"tags":{"$all":["a","b"]}}`, "1"},
		{`{"tags":{"$all":[]}}`, ""},
		{`{"tags":{"$all":[["b"]]}}`, "2"},
		{`{"tags":{"$all":[["a","b"]]}}`, "1"},
		{`{"items":{"$allMatch":{"n":2}}}`, "4"},
		{`{"tags":{"$allMatch":{"$type":"string"}}}`, "12"},
		{`{"tags":{"$allMatch":{"$eq":"a"}}}`, ""},
		{`{"age":{"$type":"number"}}`, "12345"},
		{`{"age":{"$type":"string"}}`, "6"},
		{`{"tags":{"$type":"array"}}`, "1234"},
		{`{"addr":{"$type":"object"}}`, "1235"},
		{`{"ok":{"$type":"boolean"}}`, "12"},
		{`{"score":{"$type":"null"}}`, "2"},
		{`{"age":{"$type":"nosuch"}}`, ""},
	} {
		s, err := Compile([]byte(c.selector), nil)
		if err != nil {
			t.Errorf("%s: %v", c.selector, err)
			continue
		}
		if got := found(t, s, people); got != c.want {
			t.Errorf("%s: got %q, want %q", c.selector, got, c.want)
		}
	}
}

// What the recorded answers leave open follows from the documentation.
func TestMatchFurther(t *testing.T) {
	for _, c := range []struct{ selector, want string }{
		{`{"items":{"$elemMatch":{"n":2,"q":{"$lt":5}}}}`, "4"},
		{`{"items":{"$elemMatch":{}}}`, "34"},
		{`{"tags":{"$elemMatch":{"$gt":"a","$lt":"c"}}}`, "12"},
		{`{"tags":{"$not":{"$elemMatch":{"$eq":"a"}}}}`, "235"},
		{`{"items":{"$elemMatch":{"$nor":[{"n":1},{"q":1}]}}}`, "3"},
		{`{"scores":{"$keyMapMatch":{"$eq":"x"}}}`, "5"},
		{`{"scores":{"$keyMapMatch":{"$regex":"^[yz]$"}}}`, "56"},
		{`{"tags":{"$size":0}}`, "3"},
		{`{"tags":{"$size":2}}`, "1"},
		{`{"age":{"$mod":[5,0]}}`, "124"},
		{`{"n":{"$mod":[2,-1]}}`, "6"},
		{`{"name":{"$regex":"(?i)^B"}}`, "2"},
		{`{"name":{"$beginsWith":"D"}}`, "4"},
		{`{"city":{"$beginsWith":"Trom"}}`, "4"},
		{`{"tags.0":"a"}`, "1"},
		{`{"tags.1":{"$exists":true}}`, "14"},
		{`{"tags.9":{"$exists":false}}`, "6"}, // without tags at all; an array that is too short is another matter
		{`{"items.1.q":7}`, "3"},
		{`{"name.first":{"$exists":false}}`, ""},
		{`{"$nor":[{"age":30},{"city":"Oslo"}]}`, "26"},
		{`{"$nor":[]}`, ""},
		{`{"age":7,"$or":[]}`, "5"},
		{`{"_id":{"$in":["2","4",3]}}`, "24"},
		{`{"_id":{"$gt":{}}}`, "123456"},
		{`{"_id":{"$lt":[]}}`, ""},
		{`{"_id":{"$gte":"3"},"_rev":{"$regex":"[de]$"}}`, "45"},
		{`{"_id":{"x":{"$exists":false}}}`, ""},
		{`{"addr":{"$eq":{"zip":"0150"}}}`, "5"},
		{`{"addr":{}}`, "3"},
		{`{"addr":{"$ne":{}}}`, "125"},
	} {
		s, err := Compile([]byte(c.selector), nil)
		if err != nil {
			t.Errorf("%s: %v", c.selector, err)
			continue
		}
		if got := found(t, s, people); got != c.want {
			t.Errorf("%s: got %q, want %q", c.selector, got, c.want)
		}
	}
}

// Comparisons go across types in the order of views.
func TestMatchAcrossTypes(t *testing.T) {
	for _, c := range []struct{ selector, want string }{
		{`{"v":{"$gt":"a"}}`, "iklmnopqr"},
		{`{"v":{"$lt":"a"}}`, "abcdefgh"},
		{`{"v":{"$gte":null}}`, "abcdefghijklmnopqr"},
		{`{"v":{"$gt":true}}`, "defghijklmnopqr"},
		{`{"v":{"$lt":2}}`, "abcde"},
		{`{"v":{"$gt":[]}}`, "opqr"},
		{`{"v":{"$gte":{}}}`, "qr"},
		{`{"_id":{"$in":["B","a","C"]}}`, "a"}, // ids by bytes
		{`{"_id":{"$gt":"Z","$lt":"c"}}`, "ab"},
	} {
		s, err := Compile([]byte(c.selector), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := found(t, s, values); got != c.want {
			t.Errorf("%s: got %q, want %q", c.selector, got, c.want)
		}
	}
}

// Members that the store keeps beside the body hide those in it.
func TestMatchMeta(t *testing.T) {
	d := Doc{ID: "x", Body: []byte(`{"_id":"no","a":1,"_deleted":0}`), Meta: []byte(`{"_deleted":true,"_attachments":{"f.txt":{"length":5}}}`)}
	for selector, want := range map[string]bool{
		`{"_deleted":true}`:                   true,
		`{"_id":"no"}`:                        false,
		`{"_rev":{"$exists":false}}`:          true,
		`{"_attachments.f\\.txt.length":5}`:   true,
		`{"a":1,"_attachments":{"$gt":null}}`: true,
	} {
		s, err := Compile([]byte(selector), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Match(&d); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", selector, got, err, want)
		}
	}
}

// Of a name that repeats the last value counts; paths may be many; names are
// found however they are written.
func TestMatchNames(t *testing.T) {
	many := "{"
	for i := range 20 {
		many += fmt.Sprintf(`"n%d":%d,`, i, i)
	}
	for _, c := range []struct {
		body, selector string
		want           bool
	}{
		{`{"a":1,"a":2}`, `{"a":2}`, true},
		{`{"a":{"b":1},"a":{"c":1}}`, `{"a.b":{"$exists":true}}`, false},
		{`{"a":{"b":1},"a":{"c":1}}`, `{"a.b":{"$exists":false}}`, true},
		{`{"a":5,"a":{"c":1}}`, `{"a.b":{"$exists":false}}`, true},
		{`{"a":[1],"a":5}`, `{"a.0":{"$exists":true}}`, false},
		{many + `"n20":20}`, many + `"n20":20}`, true},
		{many + `"n20":20}`, many + `"n20":21}`, false},
		{many + `"\u006e20":20}`, many + `"n20":20}`, true},
		{`{"\u00e4\n":1}`, `{"ä\n":1}`, true},
		{`{"` + strings.Repeat("x", 200) + `\u0061":1}`, `{"` + strings.Repeat("x", 200) + `a":1}`, true},
	} {
		s, err := Compile([]byte(c.selector), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Match(&Doc{ID: "x", Body: []byte(c.body)}); err != nil || got != c.want {
			t.Errorf("%s of %s: got %v, %v, want %v", c.selector, c.body, got, err, c.want)
		}
	}
}

// Numbers are compared exactly, however they are written.
func TestMatchNumbers(t *testing.T) {
	for _, c := range []struct {
		value, selector string
		want            bool
	}{
		{"1", `{"v":1.0}`, true},
		{"1e2", `{"v":100}`, true},
		{"-0", `{"v":0.0}`, true},
		{"9007199254740993", `{"v":{"$gt":9007199254740992.0}}`, true},
		{"9007199254740992", `{"v":9007199254740993}`, false},
		{"123456789012345678901234567890", `{"v":123456789012345678901234567890}`, true},
		{"123456789012345678901234567891", `{"v":{"$gt":123456789012345678901234567890}}`, true},
		{"-123456789012345678901234567891", `{"v":{"$lt":-1e29}}`, true},
		{"1e400", `{"v":{"$gt":1e308}}`, true},
		{"123456789012345678901234567891", `{"v":{"$mod":[7,0]}}`, false},
		{"123456789012345678901234567890", `{"v":{"$mod":[1000,890]}}`, true},
		{"7.0", `{"v":{"$mod":[7,0]}}`, false},
		{"0.1", `{"v":{"$lt":0.2}}`, true},
		{"-9223372036854775808", `{"v":{"$mod":[-1,0]}}`, true},
	} {
		s, err := Compile([]byte(c.selector), nil)
		if err != nil {
			t.Fatal(err)
		}
		d := Doc{ID: "x", Body: []byte(`{"v":` + c.value + `}`)}
		if got, err := s.Match(&d); err != nil || got != c.want {
			t.Errorf("%s of %s: got %v, %v, want %v", c.selector, c.value, got, err, c.want)
		}
	}
}

// Wrong selectors give CouchDB's errors, and say where.
func TestCompileErrors(t *testing.T) {
	for _, c := range []struct{ selector, name, reason, place string }{
		{`{"age":{"$nosuch":1}}`, ErrInvalidOperator, "Invalid operator: $nosuch", "age.$nosuch"},
		{`{"$nosuch":[]}`, ErrInvalidOperator, "Invalid operator: $nosuch", "$nosuch"},
		{`{"$and":{}}`, ErrBadArg, "Bad argument for operator $and: {}", "$and"},
		{`{"$or":"x"}`, ErrBadArg, `Bad argument for operator $or: "x"`, "$or"},
		{`{"$not":5}`, ErrBadArg, "Bad argument for operator $not: 5", "$not"},
		{`{"a":[],"$or":[{"x":1},{"age":{"$in":5}}]}`, ErrBadArg, "Bad argument for operator $in: 5", "$or[1].age.$in"},
		{`{"age":{"$nin":"x"}}`, ErrBadArg, `Bad argument for operator $nin: "x"`, "age.$nin"},
		{`{"age":{"$exists":"yes"}}`, ErrBadArg, `Bad argument for operator $exists: "yes"`, "age.$exists"},
		{`{"age":{"$type":5}}`, ErrBadArg, "Bad argument for operator $type: 5", "age.$type"},
		{`{"age":{"$size":1.5}}`, ErrBadArg, "Bad argument for operator $size: 1.5", "age.$size"},
		{`{"age":{"$size":-1}}`, ErrBadArg, "Bad argument for operator $size: -1", "age.$size"},
		{`{"age":{"$mod":5}}`, ErrBadArg, "Bad argument for operator $mod: 5", "age.$mod"},
		{`{"age":{"$mod":[0,1]}}`, ErrBadArg, "Bad argument for operator $mod: [0,1]", "age.$mod"},
		{`{"age":{"$mod":[2]}}`, ErrBadArg, "Bad argument for operator $mod: [2]", "age.$mod"},
		{`{"age":{"$mod":["a",1]}}`, ErrBadArg, `Bad argument for operator $mod: ["a",1]`, "age.$mod"},
		{`{"name":{"$regex":5}}`, ErrInvalidOperator, "Invalid operator: $regex", "name.$regex"},
		{`{"name":{"$regex":"["}}`, ErrBadArg, `Bad argument for operator $regex: "[" (missing closing ] "[")`, "name.$regex"},
		{`{"tags":{"$all":"a"}}`, ErrBadArg, `Bad argument for operator $all: "a"`, "tags.$all"},
		{`{"tags":{"$elemMatch":5}}`, ErrBadArg, "Bad argument for operator $elemMatch: 5", "tags.$elemMatch"},
		{`{"tags":{"$elemMatch":{"x":{"$size":"n"}}}}`, ErrBadArg, `Bad argument for operator $size: "n"`, "tags.$elemMatch.x.$size"},
		{`{"name":{"$beginsWith":5}}`, ErrInvalidOperator, "Invalid operator: $beginsWith", "name.$beginsWith"},
		{`{"$text":"x"}`, ErrInvalidOperator, "Invalid operator: $text", "$text"},
		{`{"$where":"x"}`, ErrNotSupported, "Unsupported operator: $where", "$where"},
		{`{"$gt":5}`, ErrInvalidSelector, "One or more conditions is missing a field name.", "$gt"},
		{`{"$and":[{}]}`, ErrInvalidSelector, "One or more conditions is missing a field name.", "$and[0]"},
		{`{"a..b":5}`, ErrInvalidFieldName, "Invalid field name: a..b", "a..b"},
		{`[]`, ErrInvalidSelectorJSON, "Selector must be a JSON object, not: []", ""},
		{`{"a":1`, ErrBadRequest, "invalid UTF-8 JSON", ""},
		{"{\"a\":\"\xff\"}", ErrBadRequest, "invalid UTF-8 JSON", ""},
	} {
		s, err := Compile([]byte(c.selector), nil)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v, %v, want an *Error", c.selector, s, err)
			continue
		}
		got, want := [3]string{e.Name, e.Reason, e.Place}, [3]string{c.name, c.reason, c.place}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.selector, diff)
		}
	}
}

// Patterns that only a backtracking matcher has say so.
func TestCompileRegexForms(t *testing.T) {
	for _, pattern := range []string{"(?=a)b", "(?!a)b", "(?<=a)b", `(a)\\1`, "(?>a)"} {
		_, err := Compile([]byte(`{"a":{"$regex":"`+pattern+`"}}`), nil)
		if err == nil || !strings.Contains(err.Error(), "linear time") {
			t.Errorf("%s: got %v, want an error that tells why", pattern, err)
		}
	}
}

// Limits hold at their bound, and a larger selector is refused beyond it.
func TestCompileLimits(t *testing.T) {
	nest := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	many := func(n int) string { return `{"$or":[` + strings.Repeat(`{"a":1},`, n-2) + `{"a":1}]}` }
	long := func(n int) string { return `{"` + strings.Repeat("a", n) + `":1}` }
	for _, c := range []struct {
		name     string
		selector string
		options  Options
		ok       bool
	}{
		{"depth", nest(5), Options{MaxDepth: 5}, true},
		{"depth", nest(6), Options{MaxDepth: 5}, false},
		{"default depth", nest(51), Options{}, false},
		{"conditions", many(1000), Options{}, true},
		{"conditions", many(1001), Options{}, false},
		{"bytes", nest(2), Options{MaxBytes: len(nest(2))}, true},
		{"bytes", nest(2), Options{MaxBytes: len(nest(2)) - 1}, false},
		{"name", long(maxPathBytes), Options{}, true},
		{"name", long(maxPathBytes + 1), Options{}, false},
	} {
		_, err := Compile([]byte(c.selector), &c.options)
		var e *Error
		if c.ok && err != nil || !c.ok && (!errors.As(err, &e) || e.Name != ErrTooLarge) {
			t.Errorf("%s: got %v, want success: %v", c.name, err, c.ok)
		}
	}
}

// The normal form names every operator and moves negations inwards, and compiles
// to itself.
func TestString(t *testing.T) {
	for _, c := range [][2]string{
		{`{}`, `{}`},
		{`{"age":1}`, `{"age":{"$eq":1}}`},
		{`{"age": 1, "name": "x"}`, `{"$and":[{"age":{"$eq":1}},{"name":{"$eq":"x"}}]}`},
		{`{"age":{"$gt":7,"$lt":41}}`, `{"$and":[{"age":{"$gt":7}},{"age":{"$lt":41}}]}`},
		{`{"addr":{"geo":{"lat":{"$gt":1}}}}`, `{"addr.geo.lat":{"$gt":1}}`},
		{`{"a\\.b":{"c":[1, {"x": 2}]}}`, `{"a\\.b.c":{"$eq":[1,{"x":2}]}}`},
		{`{"$not":{"$or":[{"a":1},{"b":{"$in":[1]}}]}}`, `{"$and":[{"a":{"$ne":1}},{"b":{"$nin":[1]}}]}`},
		{`{"$nor":[{"a":{"$lt":1}},{"b":{"$exists":true}}]}`, `{"$and":[{"a":{"$gte":1}},{"b":{"$exists":false}}]}`},
		{`{"a":{"$not":{"$regex":"x"}}}`, `{"a":{"$not":{"$regex":"x"}}}`},
		{`{"a":{"$not":{"$not":{"$size":1}}}}`, `{"a":{"$size":1}}`},
		{`{"a":{"$elemMatch":{"b":1,"$not":{"c":2}}}}`, `{"a":{"$elemMatch":{"$and":[{"b":{"$eq":1}},{"c":{"$ne":2}}]}}}`},
		{`{"a":{"$allMatch":{"$gt":1}}}`, `{"a":{"$allMatch":{"$gt":1}}}`},
		{`{"\\$ref":1}`, `{"\\$ref":{"$eq":1}}`},
		{`{"a":{}}`, `{"a":{"$eq":{}}}`},
	} {
		s, err := Compile([]byte(c[0]), nil)
		if err != nil {
			t.Errorf("%s: %v", c[0], err)
			continue
		}
		if got := s.String(); got != c[1] {
			t.Errorf("%s: got %s, want %s", c[0], got, c[1])
		}
		again, err := Compile([]byte(s.String()), nil)
		if err != nil || again.String() != s.String() {
			t.Errorf("%s: compiled again: got %v, %v", s, again, err)
		}
	}
}

// Fields lists the paths that a selector looks at.
func TestFields(t *testing.T) {
	s, err := Compile([]byte(`{"b":{"c":1},"a\\.x":{"$gt":1,"$lt":2},"$or":[{"_id":"1"},{"l":{"$elemMatch":{"z":1}}}]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b.c", `a\.x`, "_id", "l"}, s.Fields()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A server without search takes $text for true, if it is asked to.
func TestAcceptText(t *testing.T) {
	s, err := Compile([]byte(`{"$text":"x"}`), &Options{AcceptText: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := found(t, s, people); got != "123456" {
		t.Errorf("got %q", got)
	}
	if _, err := Compile([]byte(`{"$not":{"$text":"x"}}`), &Options{AcceptText: true}); err == nil {
		t.Error("a negated $text was accepted")
	}
}

// Documents that are not JSON objects are errors, whatever is looked at.
func TestMatchMalformed(t *testing.T) {
	for _, body := range []string{"", "[]", "5", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{"a":1}}`, `{"a" 1}`, `{a:1}`,
		`{"a":"x}`, `{"b":[1,2}`, `{"b":{"c":[}]}`, `{"a":tru}`, `{"a":1 "b":2}`, `{"x":"\`, `{"a":1}x`} {
		for _, selector := range []string{`{}`, `{"a":1}`, `{"a.b":1}`, `{"b":{"$elemMatch":{"c":1}}}`} {
			s, err := Compile([]byte(selector), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Match(&Doc{ID: "x", Body: []byte(body)}); !errors.Is(err, ErrDocument) {
				t.Errorf("%s of %q: got %v, want ErrDocument", selector, body, err)
			}
		}
	}
	for _, v := range []string{"1.", "01", "-", "1e", "1.2.3", "[1,2", `[1 2]`, `{"x" 1}`} {
		for _, selector := range []string{`{"a":{"$gt":0}}`, `{"a":{"$in":[1,[5]]}}`, `{"a":[1,2]}`, `{"a":{"$eq":{"x":1}}}`} {
			s, err := Compile([]byte(selector), nil)
			if err != nil {
				t.Fatal(err)
			}
			ok, err := s.Match(&Doc{ID: "x", Body: []byte(`{"a":` + v + `}`)})
			if ok && err != nil {
				t.Errorf("%s of %s: both a match and %v", selector, v, err)
			}
		}
	}
}

// Common selectors allocate nothing.
func TestMatchAllocations(t *testing.T) {
	docs := benchDocs(10)
	for _, selector := range []string{
		`{"city":"Oslo"}`, `{"city":"Bergen"}`, `{"score":{"$gt":8.5}}`, `{"author":{"$gte":"Ada 40"}}`,
		`{"address.geo.lat":{"$gte":59.9},"type":"post","draft":false}`, `{"tags":{"$in":["t3","t5"]}}`,
		`{"tags":{"$elemMatch":{"$beginsWith":"t"}}}`, `{"_id":{"$gt":"doc-000005"}}`, `{"tags":{"$all":["go","t3"]}}`,
	} {
		s, err := Compile([]byte(selector), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(20, func() {
			for i := range docs {
				if _, err := s.Match(&docs[i]); err != nil {
					t.Fatal(err)
				}
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for %d documents, want 0", selector, n, len(docs))
		}
	}
}
