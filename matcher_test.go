package osier_test

import (
	"errors"
	"testing"

	"github.com/osierdb/osier"
)

func TestMatcher(t *testing.T) {
	rev, err := osier.ParseRev("1-a")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		selector, body, meta string
		want                 bool
	}{
		{`{"v":{"$gt":1}}`, `{"v":2}`, "", true}, {`{"v":{"$gt":1}}`, `{"v":1}`, "", false}, {`{}`, "", "", true},
		{`{"_id":"a"}`, `{}`, "", true}, {`{"_rev":"1-a"}`, `{}`, "", true}, {`{"_deleted":true}`, `{}`, `{"_deleted":true}`, true},
		{`{"_deleted":true}`, `{}`, "", false},
	} {
		m, err := osier.NewMatcher(osier.Mango(c.selector))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Match("a", rev, []byte(c.body), []byte(c.meta)); got != c.want || err != nil {
			t.Errorf("%s on %s %s: %v, %v, want %v", c.selector, c.body, c.meta, got, err, c.want)
		}
	}
	m, err := osier.NewMatcher(osier.Mango(`{}`), "_id", "a.b")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.AppendFields(nil, "x", rev, []byte(`{"a":{"b":1,"c":2}}`), nil); string(got) != `{"_id":"x","a":{"b":1}}` || err != nil {
		t.Errorf("projected: %s, %v", got, err)
	}
	var bad *osier.SelectorError
	if _, err := osier.NewMatcher(osier.Mango(`{"v":{"$none":1}}`)); !errors.As(err, &bad) || !errors.Is(err, osier.ErrInvalid) {
		t.Errorf("an unknown operator: %v", err)
	}
	if _, err := m.Match("a", rev, []byte(`[1]`), nil); !errors.Is(err, osier.ErrInvalid) {
		t.Errorf("a body that is no object: %v", err)
	}
}
