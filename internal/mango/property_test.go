package mango

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/osierdb/osier/internal/naive"
)

// Random documents and selectors are made of few names and values, so that they
// meet often.

var (
	someNames   = []string{"a", "b", "c", "0", "1", "_id", `d\"e`, "ä", `\u0061`, `x\"a`}
	someScalars = []string{"null", "true", "false", "0", "1", "-1", "2", "1.0", "1.5", "-0.5", "1e2", "100",
		"9007199254740993", "9007199254740992.0", "123456789012345678901234567890", "1e30",
		`""`, `"a"`, `"A"`, `"ab"`, `"b"`, `"ä"`, `"a\u0308"`, `"a\u0000"`, `"x y"`, `"\n"`, `"\ud83d\ude00"`, `"я"`}
)

func drawValue(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	if depth == 0 || kind < 6 {
		return rapid.SampledFrom(someScalars).Draw(t, "scalar")
	}
	n := rapid.IntRange(0, 3).Draw(t, "size")
	parts := make([]string, n)
	if kind < 8 {
		for i := range parts {
			parts[i] = drawValue(t, depth-1)
		}
		return "[" + strings.Join(parts, drawSpace(t, ",")) + "]"
	}
	return drawObject(t, depth, n)
}

// drawObject draws an object, in which a name may repeat.
func drawObject(t *rapid.T, depth, n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = `"` + rapid.SampledFrom(someNames).Draw(t, "name") + `"` + drawSpace(t, ":") + drawValue(t, depth-1)
	}
	return "{" + strings.Join(parts, drawSpace(t, ",")) + "}"
}

func drawSpace(t *rapid.T, around string) string {
	return rapid.SampledFrom([]string{around, around, around, " " + around + "\n\t"}).Draw(t, "space")
}

func drawBody(t *rapid.T) string { return drawObject(t, 3, rapid.IntRange(0, 5).Draw(t, "members")) }

func drawPath(t *rapid.T) string {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a", "b", "c", "0", "1", "_id", `d\"e`, "ä"}), 1, 3).Draw(t, "path")
	return strings.Join(names, ".")
}

func drawList(t *rapid.T, least int, draw func() string) string {
	parts := make([]string, rapid.IntRange(least, 3).Draw(t, "count"))
	for i := range parts {
		parts[i] = draw()
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// drawSelector draws the object of a selector; inner ones are of elements.
func drawSelector(t *rapid.T, depth int, inner bool) string {
	n := rapid.IntRange(1, 3).Draw(t, "conditions")
	seen := map[string]bool{}
	var parts []string
	for range n {
		name, value := drawMember(t, depth, inner)
		if !seen[name] { // the naive evaluator and encoders differ on repeated names
			seen[name] = true
			parts = append(parts, `"`+name+`":`+value)
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func drawMember(t *rapid.T, depth int, inner bool) (name, value string) {
	kind := rapid.IntRange(0, 9).Draw(t, "member")
	if inner && kind < 3 {
		return drawOperator(t, depth)
	}
	if depth == 0 || kind < 7 {
		return strings.ReplaceAll(drawPath(t), `\`, `\\\`), drawCondition(t, depth)
	}
	sub := func() string { return drawSelector(t, depth-1, inner) }
	if op := rapid.SampledFrom([]string{"$and", "$or", "$nor", "$not"}).Draw(t, "junction"); op != "$not" {
		return op, drawList(t, 0, sub)
	}
	return "$not", sub()
}

// drawCondition draws what a field shall be.
func drawCondition(t *rapid.T, depth int) string {
	switch kind := rapid.IntRange(0, 9).Draw(t, "condition"); {
	case kind == 0:
		return drawValue(t, 0)
	case kind == 1 && depth > 0:
		return drawSelector(t, depth-1, true)
	case kind == 2:
		name, value := drawOperator(t, depth)
		return `{"$not":{"` + name + `":` + value + `}}`
	}
	name, value := drawOperator(t, depth)
	other, otherValue := drawOperator(t, depth)
	if name == other || rapid.Bool().Draw(t, "one") {
		return `{"` + name + `":` + value + `}`
	}
	return `{"` + name + `":` + value + `,"` + other + `":` + otherValue + `}`
}

func drawOperator(t *rapid.T, depth int) (name, value string) {
	anything := func() string { return drawValue(t, 2) }
	ops := operatorNames[opEq:]
	if depth == 0 {
		ops = operatorNames[opEq:opElemMatch]
	}
	name = rapid.SampledFrom(ops).Draw(t, "operator")
	switch name {
	case "$in", "$nin", "$all":
		return name, drawList(t, 0, anything)
	case "$exists":
		return name, rapid.SampledFrom([]string{"true", "false"}).Draw(t, "exists")
	case "$type":
		return name, `"` + rapid.SampledFrom(append(slices.Clone(kindNames[1:]), "nosuch")).Draw(t, "type") + `"`
	case "$mod":
		return name, fmt.Sprintf("[%d,%d]", rapid.SampledFrom([]int{-2, 1, 2, 3, 10}).Draw(t, "divisor"), rapid.IntRange(-1, 2).Draw(t, "rest"))
	case "$regex":
		return name, rapid.SampledFrom([]string{`"a"`, `"^A$"`, `"(?i)Ä"`, `"."`, `""`, `"\\n"`}).Draw(t, "pattern")
	case "$beginsWith":
		return name, rapid.SampledFrom([]string{`"a"`, `""`, `"ä"`, `"A"`, `"\n"`}).Draw(t, "prefix")
	case "$size":
		return name, fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "size"))
	case "$elemMatch", "$allMatch", "$keyMapMatch":
		if rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
			return name, "{}"
		}
		return name, drawSelector(t, depth-1, true)
	}
	return name, anything()
}

// judge is who is right.
var judge = naive.Judge{Strings: Unicode.Compare}

// asSeen returns the document as selectors see it, for the naive evaluator.
func asSeen(t interface{ Fatal(...any) }, d *Doc) naive.Object {
	v, err := naive.Decode(string(d.Body), true)
	if err != nil {
		t.Fatal(string(d.Body), err)
	}
	body := slices.DeleteFunc(v.(naive.Object), func(m naive.Member) bool { return m.Name == "_id" || m.Name == "_rev" })
	seen := naive.Object{{Name: "_id", Value: d.ID}}
	if d.Rev != "" {
		seen = append(seen, naive.Member{Name: "_rev", Value: d.Rev})
	}
	return append(seen, body...)
}

// checkAgainstNaive compares the verdicts on one document.
func checkAgainstNaive(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, selector string, d *Doc) {
	s, err := Compile([]byte(selector), nil)
	if err != nil {
		t.Fatalf("compile %s: %v", selector, err)
	}
	want := judge.Match(selector, asSeen(t, d))
	got, err := s.Match(d)
	if err != nil || got != want {
		t.Fatalf("selector %s\ncompiled %s\nid %q body %s\ngot %v, %v, want %v", selector, s, d.ID, d.Body, got, err, want)
	}
	valid := *d
	valid.Valid = true
	if got, err := s.Match(&valid); err != nil || got != want {
		t.Fatalf("selector %s\ncompiled %s\nid %q valid body %s\ngot %v, %v, want %v", selector, s, d.ID, d.Body, got, err, want)
	}
	again, err := Compile([]byte(s.String()), nil)
	if err != nil {
		t.Fatalf("compile the normal form %s: %v", s, err)
	}
	if got, err := again.Match(d); again.String() != s.String() || got != want && !s.Never() || err != nil {
		t.Fatalf("selector %s\nnormal form %s\ncompiled again %s\nbody %s: got %v, %v, want %v", selector, s, again, d.Body, got, err, want)
	}
}

// The compiled selector agrees with the naive evaluator, and so does its normal
// form when it is compiled.
func TestMatchAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &Doc{ID: rapid.SampledFrom([]string{"a", "b", "ä", "1"}).Draw(t, "id"), Body: []byte(drawBody(t))}
		checkAgainstNaive(t, drawSelector(t, 3, false), d)
	})
}

// A matcher gives each of many documents the naive evaluator's verdict, whatever
// it has learned from those before.
func TestMatcherAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		selector := drawSelector(t, 2, false)
		s, err := Compile([]byte(selector), nil)
		if err != nil {
			t.Fatalf("compile %s: %v", selector, err)
		}
		m := s.Matcher()
		for i := range rapid.IntRange(1, 20).Draw(t, "documents") {
			d := &Doc{ID: "a", Body: []byte(drawBody(t)), Valid: rapid.IntRange(0, 9).Draw(t, "valid") > 0}
			want := judge.Match(selector, asSeen(t, d))
			if got, err := m.Match(d); err != nil || got != want {
				t.Fatalf("selector %s\ncompiled %s\ndocument %d, body %s, valid %v\ngot %v, %v, want %v", selector, s, i, d.Body, d.Valid, got, err, want)
			}
		}
	})
}

// What is found in text that is known to be valid is what a walk over it finds.
func TestSeekFindsAsWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := make([]string, rapid.IntRange(1, 4).Draw(t, "paths"))
		for i := range paths {
			paths[i] = strings.ReplaceAll(drawPath(t), `\`, `\\`)
		}
		p, err := NewPicker(paths)
		if err != nil {
			t.Fatalf("picker of %q: %v", paths, err)
		}
		d := Doc{ID: "a", Body: []byte(drawBody(t))}
		want, err := p.Pick(nil, &d)
		if err != nil {
			t.Fatalf("pick %q of %s: %v", paths, d.Body, err)
		}
		d.Valid = true
		got, err := p.Pick(nil, &d)
		if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("paths %q of %s: got %q, %v, want %q", paths, d.Body, got, err, want)
		}
	})
}

// openBrackets counts as a look at every byte does.
func TestOpenBrackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{"{", "}", "[", "]", `"{[y"`, `"}]_"`, `"ab:,"`, ",", "y", "_", "123456789", " "})).Draw(t, "parts")
		text := strings.Join(parts, "")
		if got, want := openBrackets(text), openBracketsSlow(text); got != want {
			t.Fatalf("%s: got %d, want %d", text, got, want)
		}
	})
}

// The bytes of sort keys are in the order of comparisons, and equal only for
// values that compare as equal.
func TestKeysInOrder(t *testing.T) {
	for _, c := range []Collation{Unicode, Binary} {
		rapid.Check(t, func(t *rapid.T) {
			a, b := drawValue(t, 3), drawValue(t, 3)
			k, err := NewKeyer(Sort{{Path: "v"}}, c)
			if err != nil {
				t.Fatal(err)
			}
			down, err := NewKeyer(Sort{{Path: "v", Descending: true}}, c)
			if err != nil {
				t.Fatal(err)
			}
			b = distinct(b)
			constant := newConstant(b, 0)
			want, end := c.compare(a, 0, &constant)
			if end < 0 {
				t.Fatalf("compare %s: broken", a)
			}
			key := func(k *Keyer, v string) []byte {
				key, complete, err := k.AppendKey(nil, &Doc{ID: "x", Body: []byte(`{"v":` + v + `}`)})
				if err != nil || !complete {
					t.Fatalf("key of %s: %v, %v", v, complete, err)
				}
				return key
			}
			if got := bytes.Compare(key(k, a), key(k, b)); got != want {
				t.Fatalf("%v order of %s and %s: keys %d, values %d", c, a, b, got, want)
			}
			if got := bytes.Compare(key(down, a), key(down, b)); got != -want {
				t.Fatalf("%v descending order of %s and %s: keys %d, values %d", c, a, b, got, want)
			}
		})
	}
}

// distinct returns a value without members of a name that repeats: selectors do
// not keep them, documents do.
func distinct(v string) string {
	c := newConstant(v, 0)
	switch c.kind {
	case kindArray:
		for i := range c.items {
			c.items[i].json = distinct(c.items[i].json)
		}
	case kindObject:
		for i := range c.items {
			c.items[i].json = string(appendQuoted(nil, c.names[i])) + ":" + distinct(c.items[i].json)
		}
	default:
		return c.json
	}
	var parts []string
	for _, item := range c.items {
		parts = append(parts, item.json)
	}
	return c.json[:1] + strings.Join(parts, ",") + c.json[len(c.json)-1:]
}

// A plan's ranges hold every match of the index; what the residual lets through
// of the ranges is exactly the matches; a usable index has all matches.
func TestRangesAgainstMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		selector := drawSelector(t, 2, false)
		text := Collation(rapid.IntRange(0, 1).Draw(t, "collation"))
		s, err := Compile([]byte(selector), &Options{Collation: text})
		if err != nil {
			t.Fatal(err)
		}
		var fields Sort
		for _, f := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "a.b", "_id"}), 1, 3, rapid.ID).Draw(t, "index") {
			fields = append(fields, SortField{f, rapid.Bool().Draw(t, "descending")})
		}
		k, err := NewKeyer(fields, Collation(rapid.IntRange(0, 1).Draw(t, "index order")))
		if err != nil {
			t.Fatal(err)
		}
		p := s.Ranges(k)
		for i, r := range p.Ranges {
			if len(r.High) > 0 && bytes.Compare(r.Low, r.High) >= 0 || i > 0 && bytes.Compare(p.Ranges[i-1].High, r.Low) > 0 {
				t.Fatalf("%s: ranges not ascending: %x", s, p.Ranges)
			}
		}
		for range 10 {
			d := &Doc{ID: rapid.SampledFrom([]string{"a", "b", "ä", "1"}).Draw(t, "id"), Body: []byte(drawBody(t))}
			checkPlan(t, s, k, p, d)
		}
	})
}

func checkPlan(t *rapid.T, s *Selector, k *Keyer, p *Plan, d *Doc) {
	want, err := s.Match(d)
	if err != nil {
		t.Fatal(err)
	}
	key, complete, err := k.AppendKey(nil, d)
	if err != nil {
		t.Fatal(err)
	}
	if !complete {
		if want && p.Usable() {
			t.Fatalf("%s matches %s, which the index %v lacks", s, d.Body, k.Sort())
		}
		return
	}
	within := slices.ContainsFunc(p.Ranges, func(r Range) bool {
		return bytes.Compare(key, r.Low) >= 0 && (len(r.High) == 0 || bytes.Compare(key, r.High) < 0)
	})
	got := within
	if within && p.Residual != nil {
		if got, err = p.Residual.Match(d); err != nil {
			t.Fatal(err)
		}
	}
	if got != want {
		t.Fatalf("selector %s, index %v by %v\nid %q body %s key %x\nranges %x within %v residual %v covered %v\ngot %v, want %v",
			s, k.Sort(), k.collation, d.ID, d.Body, key, p.Ranges, within, p.Residual, p.Covered, got, want)
	}
}

// FuzzCompile: any text compiles or is an *Error; the normal form compiles to itself.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `{"$or":[{"a.b":{"$gt":1}},{"c":{"$in":[1,"x",null]}}]}`, `{"a":{"$elemMatch":{"$not":{"$regex":"^x"}}}}`,
		`{"a\\.b":{"$mod":[2,1]},"c":{"$all":[[1]]}}`, `{"$nor":[]}`, `{"a":{"$not":{"$keyMapMatch":{"$eq":"x"}}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Compile(text, nil)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Name == "" || e.Reason == "" || e.Offset > len(text) {
				t.Fatalf("got %#v, want an *Error", err)
			}
			return
		}
		again, err := Compile([]byte(s.String()), &Options{MaxBytes: 1 << 26, MaxDepth: 1000})
		if err != nil || again.String() != s.String() {
			t.Fatalf("%s: normal form %s: compiled again: %v, %v", text, s, again, err)
		}
	})
}

// FuzzMatch: no document makes matching, projecting or key-making panic, and on
// JSON objects the compiled selector agrees with the naive evaluator.
func FuzzMatch(f *testing.F) {
	for i := range people {
		f.Add(people[i].Body, []byte(`{"tags":{"$elemMatch":{"$gte":"a"}},"addr.zip":{"$exists":true}}`))
	}
	for _, v := range values {
		f.Add(v.Body, []byte(`{"v":{"$gt":"a","$nin":[1,[]]}}`))
	}
	f.Add([]byte(`{"a":[{"b":"\u00e4"}]}`), []byte(`{"a.0.b":{"$regex":"ä"}}`))
	f.Fuzz(func(t *testing.T, body, selector []byte) {
		s, err := Compile(selector, nil)
		if err != nil {
			return
		}
		d := &Doc{ID: "x", Body: body}
		s.Match(d) // must not panic, whatever the body is
		s.Match(&Doc{ID: "x", Body: body, Valid: true})
		if k, err := NewKeyer(Sort{{Path: "a"}, {Path: "v.0", Descending: true}}, Unicode); err == nil {
			k.AppendKey(nil, d)
		}
		if p, err := NewProjection([]string{"a", "v.0", "a.b"}); err == nil {
			if out, err := p.AppendDoc(nil, d); err == nil && json.Valid(body) && !json.Valid(out) {
				t.Fatalf("projection of %s: %s", body, out)
			}
		}
		if validText(body) && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
			checkAgainstNaive(t, string(selector), d)
		}
	})
}
