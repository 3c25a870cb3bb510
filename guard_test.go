package osier

import "testing"

func TestGrantsCoverWhatTheirPatternsMatch(t *testing.T) {
	p := Principal{Name: "ann", Grants: []Grant{
		{Actions: MayRead, DB: "shop*"},
		{Actions: MayWrite, DB: "shop", Collection: "films"},
		{Actions: MayManage, DB: "lab"},
	}}
	for _, c := range []struct {
		a    Action
		r    Resource
		want bool
	}{
		{MayRead, Resource{"shop", ""}, true},
		{MayRead, Resource{"shop2", "x"}, true},
		{MayRead, Resource{"sho", ""}, false},
		{MayWrite, Resource{"shop", "films"}, true},
		{MayWrite, Resource{"shop", "film"}, false},
		{MayWrite, Resource{"shop", ""}, false}, // the whole takes a grant for the whole
		{MayRead | MayWrite, Resource{"shop", "films"}, true},
		{MayRead | MayManage, Resource{"shop", "films"}, false},
		{MayManage, Resource{"lab", "any"}, true},
		{MayRead, Resource{"lab", ""}, false},
	} {
		if got := p.Can(c.a, c.r); got != c.want {
			t.Errorf("%v on %+v: %v, want %v", c.a, c.r, got, c.want)
		}
	}
	if s := (MayRead | MayManage).String(); s != "read+manage" {
		t.Errorf("rights in words: %q", s)
	}
}

func TestEveryKindHasWordsAndASentinel(t *testing.T) {
	sentinels := []error{ErrInvalid, ErrNotFound, ErrDeleted, ErrConflict, ErrExists, ErrDenied, ErrClosed, ErrReadOnly,
		ErrCorrupt, ErrFull, ErrLocked, ErrFormat, ErrTooLarge, ErrUnavailable, ErrCanceled, ErrUnsupported, ErrIO, ErrGap, ErrNotUnique}
	if len(sentinels) != len(kindNames)-1 {
		t.Fatalf("%d sentinels for %d kinds", len(sentinels), len(kindNames)-1)
	}
	for _, s := range sentinels {
		k := Kind(s.(sentinel))
		if k.String() == "" || k.String() == "failed" {
			t.Errorf("kind %d has no words", k)
		}
		for _, other := range sentinels {
			e := &Error{Kind: k}
			want := other == s || k == KindDeleted && other == ErrNotFound || k == KindNotUnique && other == ErrConflict
			if got := e.Is(other); got != want {
				t.Errorf("kind %v is %v: %v, want %v", k, other, got, want)
			}
		}
	}
}
