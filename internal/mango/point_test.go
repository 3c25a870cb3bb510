package mango

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/osierdb/osier/internal/keys"
)

// TestPointIsThePlansRange: what a point finds in an index is what the compiled
// selector's plan finds.
func TestPointIsThePlansRange(t *testing.T) {
	names := []string{"a", "b", "c", "é", "a b"}
	values := []string{"1", "1.0", "-0", "1e3", "12345678901234567890", `"x"`, `"X"`, `"ß"`, `"\u00e9"`, `"é"`, `""`, `"a\"b"`, "null", "true", "false"}
	rapid.Check(t, func(t *rapid.T) {
		var fields Sort
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(t, "fields") {
			fields = append(fields, SortField{Path: name, Descending: rapid.Bool().Draw(t, "descending")})
		}
		k, err := NewKeyer(fields, Unicode)
		if err != nil {
			t.Fatal(err)
		}
		text := []byte(`{`)
		for i, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(t, "names") {
			if i > 0 {
				text = append(text, ", "...)
			}
			text = append(append(appendQuoted(text, name), ':'), rapid.SampledFrom(values).Draw(t, "value")...)
		}
		text = append(text, '}')
		s, err := Compile(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		plan := s.Ranges(k)
		want := plan.Usable() && plan.Fixed == len(fields) && plan.Residual == nil
		p, ok := PointOf(text)
		if !ok {
			t.Fatalf("%s is not taken for a point", text)
		}
		key, ok := k.AppendPoint(nil, &p)
		if ok != want {
			t.Fatalf("%s in the index %v: want %v, got %v", text, fields, want, ok)
		}
		if !ok {
			return
		}
		if len(plan.Ranges) != 1 || !bytes.Equal(plan.Ranges[0].Low, key) || !bytes.Equal(plan.Ranges[0].High, keys.PrefixEnd(key)) {
			t.Fatalf("%s in the index %v: want %x, got %x", text, fields, plan.Ranges, key)
		}
	})
}

// TestPointLeavesOthersAlone: what is not a point's selector is not taken for one.
func TestPointLeavesOthersAlone(t *testing.T) {
	k, err := NewKeyer(Sort{{Path: "a"}}, Unicode)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		``, ` `, `{`, `[]`, `"a"`, `{}`, `{"a"}`, `{"a":1}}`, `{"a":1,}`, `{"a":01}`, "{\"a\":\"\xff\"}",
		`{"$and":[]}`, `{"$eq":1}`, `{"a":{"$gt":1}}`, `{"a":{}}`, `{"a":[1]}`, `{"a.b":1}`, `{"\u0061":1}`, `{"":1}`,
		`{"_id":"x"}`, `{"_rev":"x"}`, `{"a":1,"b":2}`, `{"a":1,"a":1}`, `{"b":1}`,
	} {
		p, ok := PointOf([]byte(text))
		if ok {
			_, ok = k.AppendPoint(nil, &p)
		}
		if ok {
			t.Errorf("%s is taken for a point of an index on a", text)
		}
	}
	twice, err := NewKeyer(Sort{{Path: "a"}, {Path: "a"}}, Unicode)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := PointOf([]byte(`{"a":1,"b":2}`))
	if _, ok := twice.AppendPoint(nil, &p); ok {
		t.Error("two names are taken for a point of an index on one of them twice")
	}
}
