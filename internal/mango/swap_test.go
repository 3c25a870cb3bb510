package mango

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// Queries translate to selectors.
func TestTranslate(t *testing.T) {
	for _, c := range [][2]string{
		{`{}`, `{}`},
		{`{"=":{}}`, `{}`},
		{`{"=":{"City":"Oslo"}}`, `{"City":{"$eq":"Oslo"}}`},
		{`{"=":{"City":"Oslo"},">":{"IMDB Rating":8}}`, `{"$and":[{"City":{"$eq":"Oslo"}},{"IMDB Rating":{"$gt":8}}]}`},
		{`{"=":{"a":{"b":1,"c":{"d":"x"}}}}`, `{"$and":[{"a.b":{"$eq":1}},{"a.c.d":{"$eq":"x"}}]}`},
		{`{"==":{"a":{"b":1}}}`, `{"a":{"$eq":{"b":1}}}`},
		{`{"!==":{"a":{}}}`, `{"a":{"$ne":{}}}`},
		{`{"=":{"a":{}}}`, `{"a":{"$type":"object"}}`},
		{`{"=":{"a.b":[1,{"c":2}]}}`, `{"a\\.b":{"$eq":[1,{"c":2}]}}`},
		{`{"=":{"$ref":1}}`, `{"\\$ref":{"$eq":1}}`},
		{`{"<=":{"a":1},">=":{"a":0},"!=":{"b":null}}`, `{"$and":[{"a":{"$lte":1}},{"a":{"$gte":0}},{"b":{"$ne":null}}]}`},
		{`{"in":{"a":[1,2]},"!in":{"b":[3]},"all":{"c":["x"]}}`, `{"$and":[{"a":{"$in":[1,2]}},{"b":{"$nin":[3]}},{"c":{"$all":["x"]}}]}`},
		{`{"^=":{"a":"x"},"~":{"b":"y$"},"exists":{"c":{"d":false}}}`, `{"$and":[{"a":{"$beginsWith":"x"}},{"b":{"$regex":"y$"}},{"c.d":{"$exists":false}}]}`},
		{`{"or":[{"=":{"a":1}},{">":{"b":2},"<":{"b":5}}]}`, `{"$or":[{"a":{"$eq":1}},{"$and":[{"b":{"$gt":2}},{"b":{"$lt":5}}]}]}`},
		{`{"not":{"=":{"a":1}}}`, `{"$not":{"a":{"$eq":1}}}`},
	} {
		got, err := Translate([]byte(c[0]), nil)
		if err != nil || string(got) != c[1] {
			t.Errorf("%s: got %s, %v, want %s", c[0], got, err, c[1])
			continue
		}
		if _, err := CompileSwap([]byte(c[0]), nil); err != nil {
			t.Errorf("%s: compile %s: %v", c[0], got, err)
		}
	}
}

// Queries find what they say.
func TestSwapQueryMatch(t *testing.T) {
	for _, c := range [][2]string{
		{`{"=":{"city":"Oslo"},">":{"age":30}}`, "3"},
		{`{"=":{"addr":{"zip":"0150"}}}`, "15"},
		{`{"==":{"addr":{"zip":"0150"}}}`, "5"},
		{`{"=":{"addr":{}}}`, "1235"},
		{`{"=":{"dot.ted":1}}`, "5"},
		{`{"not":{"=":{"age":30}}}`, "2356"},
	} {
		s, err := CompileSwap([]byte(c[0]), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := found(t, s, people); got != c[1] {
			t.Errorf("%s: got %q, want %q", c[0], got, c[1])
		}
	}
}

// Wrong queries are errors that say where.
func TestTranslateErrors(t *testing.T) {
	for _, c := range [][3]string{
		{`{"=~":{"a":1}}`, ErrInvalidOperator, "=~"},
		{`{"$gt":{"a":1}}`, ErrInvalidOperator, "$gt"},
		{`{"or":[{"=":{"a":1}},{"<>":{"a":1}}]}`, ErrInvalidOperator, "or[1].<>"},
		{`{"=":5}`, ErrBadArg, "="},
		{`{">":{"a":{"b":{}}}}`, ErrBadArg, ">.a.b"},
		{`{"or":[]}`, ErrBadArg, "or"},
		{`{"or":[{}]}`, ErrBadArg, "or[0]"},
		{`{"not":{}}`, ErrBadArg, "not"},
		{`{"=":{"":1}}`, ErrInvalidFieldName, "=."},
		{`[]`, ErrInvalidSelectorJSON, ""},
		{`{`, ErrBadRequest, ""},
		{`{"=":` + strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60) + `}`, ErrTooLarge, ""},
		{`{"=":{` + strings.Repeat(`"a":1,`, 3) + `"` + strings.Repeat("n", maxPathBytes+1) + `":1}}`, ErrTooLarge, "=." + strings.Repeat("n", maxPathBytes+1)},
	} {
		var e *Error
		if _, err := Translate([]byte(c[0]), nil); !errors.As(err, &e) || e.Name != c[1] || e.Place != c[2] {
			t.Errorf("%.100s: got %v, want %s at %s", c[0], err, c[1], c[2])
		}
	}
}

// The two spellings are told apart by their members.
func TestIsSwapQuery(t *testing.T) {
	for text, want := range map[string]bool{
		`{"=":{"a":1}}`: true, ` {"or":[]} `: true, `{}`: false, `{"a":1}`: false, `{"=":{},"a":1}`: false, `[]`: false, ``: false, `{`: false,
	} {
		if got := IsSwapQuery([]byte(text)); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// FuzzSwapQuery: any text translates to JSON, or is an *Error; what compiles
// matches without panic.
func FuzzSwapQuery(f *testing.F) {
	for _, q := range []string{`{}`, `{"=":{"City":"Oslo"},">":{"IMDB Rating":8}}`, `{"or":[{"=":{"a":{"b":1}}},{"not":{"in":{"c":[1]}}}]}`, `{"==":{"a":{}}}`, `{"~":{"$x.y\\":"["}}`} {
		f.Add([]byte(q))
	}
	f.Fuzz(func(t *testing.T, query []byte) {
		selector, err := Translate(query, nil)
		var e *Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *Error", err)
			}
			return
		}
		if !json.Valid(selector) {
			t.Fatalf("%s: not JSON: %s", query, selector)
		}
		s, err := CompileSwap(query, nil)
		if err != nil {
			if !errors.As(err, &e) || e.Name == ErrInvalidFieldName || e.Name == ErrInvalidOperator && e.Op != "$regex" && e.Op != "$beginsWith" {
				t.Fatalf("%s: selector %s: %v", query, selector, err)
			}
			return
		}
		for i := range people {
			if _, err := s.Match(&people[i]); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
		}
	})
}
