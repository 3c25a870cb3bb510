package mango

import (
	"fmt"
	"testing"
)

// TestMatcherOfTexts: a matcher that looks for a text first finds also what is
// written otherwise, equal by the collation, or there in another place only.
func TestMatcherOfTexts(t *testing.T) {
	bodies := []string{
		`{"city":"Oslo"}`, `{"city":"Bergen"}`, `{"town":"Oslo"}`, `{"city":"Os\u006co"}`, `{"c\u0069ty":"Oslo"}`,
		"{\"city\":\"Os\u00adlo\"}", "{\"city\":\"O\u200bslo\"}", `{"city":"Oslo","city":"Bergen"}`, `{"city":"Bergen","city":"Oslo"}`,
		`{"city":["Oslo"]}`, `{"near":{"city":"Oslo"}}`, `{"city":"OSLO"}`, "{\"city\":\"Os\x7flo\"}", `{"city":"Oslo\n"}`, `{"city":{"name":"Oslo"}}`, `{"a":"\\","city":"Oslo"}`,
		"{\"long\":\"0123456789012345678901234567890123456789é\",\"city\":\"Os\u00adlo\"}",
	}
	for _, selector := range []string{
		`{"city":"Oslo"}`, `{"city":{"$ne":"Oslo"}}`, `{"city.name":"Oslo"}`, `{"near.city":"Oslo"}`, `{"city":"Oslo","a":"\\"}`,
		`{"$or":[{"city":"Oslo"},{"town":"Oslo"}]}`, `{"$not":{"city":"Oslo"}}`, `{"city":"Os\u00adlo"}`, `{"city":"Oslo","town":{"$exists":false}}`,
	} {
		s, err := Compile([]byte(selector), nil)
		if err != nil {
			t.Fatal(err)
		}
		m := s.Matcher()
		for i := range 3 * len(bodies) * oftenFound {
			// Each in a row, then all in turns.
			d := &Doc{Body: []byte(bodies[i/2/oftenFound%len(bodies)]), Valid: true}
			if i >= 2*len(bodies)*oftenFound {
				d.Body = []byte(bodies[i%len(bodies)])
			}
			want, err1 := s.walk(d)
			got, err2 := m.Match(d)
			if want != got || fmt.Sprint(err1) != fmt.Sprint(err2) {
				t.Fatalf("%s on %s: want %v, %v; got %v, %v", selector, d.Body, want, err1, got, err2)
			}
		}
	}
}
