package main

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

// genID draws values of every kind that an id can hold.
func genID(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 9
		if depth > 0 {
			kinds = 10
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return rapid.StringN(1, 20, -1).Draw(t, "text")
		case 1:
			return rapid.Int64().Draw(t, "int")
		case 2:
			return rapid.Uint64().Draw(t, "uint")
		case 3:
			return rapid.Float64().Draw(t, "float")
		case 4:
			return rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -0.5}).Draw(t, "special")
		case 5:
			return rapid.Bool().Draw(t, "bool")
		case 6:
			return time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "nanos")).UTC()
		case 7:
			return rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")
		case 8:
			n := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "big"))
			return n.Neg(n)
		}
		tuple := make(osier.Tuple, rapid.IntRange(0, 3).Draw(t, "fields"))
		for i := range tuple {
			tuple[i] = genID(depth-1).Draw(t, "field")
		}
		return tuple
	})
}

// An id comes back from its JSON form, whatever its kind.
func TestIDJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id, err := osier.IDOf(genID(2).Draw(t, "id"))
		if err != nil {
			t.Fatal(err)
		}
		b := appendIDJSON(nil, id)
		got, err := idFromJSON(b)
		if err != nil || got != id {
			t.Fatalf("want %v back from %s, got %v, %v", id, b, got, err)
		}
	})
}

func TestIDFromJSONErrors(t *testing.T) {
	for _, s := range []string{``, `null`, `""`, `{}`, `{"a":1}`, `{"$time":"yesterday"}`, `{"$uuid":"12"}`, `{"$float":"1"}`, `{"$bytes":"?"}`, `[{"x":[]}]`,
		`1 2`, `nul`, "\"\xff\"", strings.Repeat("[", 100) + strings.Repeat("]", 100), `"` + strings.Repeat("x", 40<<10) + `"`} {
		if id, err := idFromJSON([]byte(s)); err == nil {
			t.Errorf("%.60q: want an error, got %v", s, id)
		}
	}
}

func TestParseID(t *testing.T) {
	uuid := osier.UUID{0x01, 0x90, 0xa6, 0xe4, 0x93, 0xd1, 0x7c, 0x2e, 0x8f, 0x00, 0x3a, 0x5b, 0x7c, 0x9d, 0x1e, 0x2f}
	for _, c := range []struct {
		text, typ string
		want      any
	}{
		{"42", "text", "42"}, {"42", "int", 42}, {"-1", "int", -1}, {"18446744073709551615", "uint", uint64(math.MaxUint64)}, {"1.5", "float", 1.5},
		{"0190a6e4-93d1-7c2e-8f00-3a5b7c9d1e2f", "uuid", uuid}, {"0190A6E493D17C2E8F003A5B7C9D1E2F", "uuid", uuid},
		{"2026-05-04T10:20:30.5Z", "time", time.Date(2026, 5, 4, 10, 20, 30, 5e8, time.UTC)},
		{"2026-05-04", "time", time.Date(2026, 5, 4, 0, 0, 0, 0, time.Local)},
		{`["a",1]`, "json", osier.Tuple{"a", 1}}, {`"42"`, "json", "42"},
	} {
		if got, err := parseID(c.text, c.typ); err != nil || got != osier.MustID(c.want) {
			t.Errorf("%s as %s: want %v, got %v, %v", c.text, c.typ, c.want, got, err)
		}
	}
	for _, c := range []struct{ text, typ string }{{"", "text"}, {"x", "int"}, {"-1", "uint"}, {"1e999", "float"}, {"0190a6e4-93d1", "uuid"}, {"01-90a6e493d17c2e8f003a5b7c9d1e2f---", "uuid"}, {"soon", "time"}, {"{}", "json"}} {
		if got, err := parseID(c.text, c.typ); err == nil {
			t.Errorf("%q as %s: want an error, got %v", c.text, c.typ, got)
		}
	}
}

func TestIDFromMember(t *testing.T) {
	for _, c := range []struct {
		value, typ string
		csv        bool
		want       any
	}{
		{`"a\u0041"`, "auto", false, "aA"}, {`12`, "auto", false, 12}, {`12`, "auto", true, "12"}, {`12`, "text", false, "12"},
		{`"12"`, "int", false, 12}, {`"2026-05-04T00:00:00Z"`, "time", true, time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)}, {`[1,"a"]`, "auto", false, osier.Tuple{1, "a"}},
	} {
		if got, err := idFromMember([]byte(c.value), c.typ, c.csv); err != nil || got != osier.MustID(c.want) {
			t.Errorf("%s as %s: want %v, got %v, %v", c.value, c.typ, c.want, got, err)
		}
	}
	for _, value := range []string{`null`, `""`, `{"a":1}`} {
		if got, err := idFromMember([]byte(value), "text", false); err == nil {
			t.Errorf("%s: want an error, got %v", value, got)
		}
	}
}

// Ids that the store makes are known by their form.
func TestLooksMade(t *testing.T) {
	var ids osier.IDSource
	for range 100 {
		if id := ids.Next(time.Now()); !looksMade(osier.MustID(id)) {
			t.Fatalf("%s: want it to look made", id)
		}
	}
	for _, id := range []any{"short", "38hd47sxerj7zetU", "38hd47sxerj7zets1", 38} {
		if looksMade(osier.MustID(id)) {
			t.Errorf("%v: want it not to look made", id)
		}
	}
}

func TestTarget(t *testing.T) {
	for _, c := range []struct {
		in   string
		want target
	}{{"shop", target{"shop", "_default", true}}, {"shop:Films", target{"shop", "Films", false}}, {"a/b:c.d", target{"a/b", "c.d", false}}} {
		var got target
		if err := got.UnmarshalText([]byte(c.in)); err != nil || got != c.want || got.String() != c.in {
			t.Errorf("%s: want %v, got %v, %v", c.in, c.want, got, err)
		}
	}
	for _, in := range []string{"", ":", "shop:", ":x", "Shop", "shop:a:b", "shop:a b"} {
		var got target
		if err := got.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q: want an error, got %v", in, got)
		}
	}
}

// A prefix finds what a typed collection's List finds.
func TestPrefixRange(t *testing.T) {
	db := memoryDB(t)
	docs := osier.NewCollection[int]("docs")
	parts := []any{"a", "ab", "a\x00", "a\x00b", "a\xff", "a\xff\xff", "b", "é"}
	for _, v := range parts {
		for _, id := range []any{v, osier.Tuple{v}, osier.Tuple{v, 1}, osier.Tuple{v, "a"}, osier.Tuple{osier.Tuple{v}, 2}} {
			if _, err := docs.Upsert(t.Context(), db, id, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, v := range parts {
		for _, prefix := range []any{v, osier.Tuple{v}, osier.Tuple{}, osier.Tuple{osier.Tuple{v}}} {
			var want, got []string
			for doc, err := range docs.List(t.Context(), db, &osier.ListOptions{Prefix: prefix}) {
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, doc.ID.String())
			}
			start, end, err := osier.PrefixRange(prefix)
			if err != nil {
				t.Fatal(err)
			}
			for row, err := range db.Query(t.Context(), &osier.Query{Kind: osier.QueryScan, Collection: "docs", Start: start, End: end}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, row.ID.String())
			}
			if len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("prefix %q: want %q, got %q", prefix, want, got)
			}
		}
	}
	if _, _, err := osier.PrefixRange(1); err == nil {
		t.Error("a number as prefix: want an error, got none")
	}
}
