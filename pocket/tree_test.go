package pocket

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Snapshots keep what they saw while keys come, go and change in transactions
// of all sizes, over a tree of several levels, and while others scan it: no
// node that a snapshot leads to is used again.
func TestSnapshotsOfChangingTree(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	s := mustOpen(t, tempPath(t), testOptions())
	now := map[string]int{}
	save := func(n, v int) {
		cs := make([]Change, n)
		for i := range cs {
			k := fmt.Sprintf("key%05d", r.IntN(20_000))
			if cs[i].Key = k; r.IntN(3) == 0 {
				delete(now, k)
				continue
			}
			cs[i].Value, now[k] = v, v
		}
		if _, err := s.SaveAll(cs...); err != nil {
			t.Fatal(err)
		}
	}
	type held struct {
		sn   *Snapshot
		want map[string]int
	}
	verify := func(h held) {
		got := maps.Collect(Scan[int](h.sn, All()))
		if !maps.Equal(got, h.want) {
			t.Fatalf("seed %d: snapshot %d has %d records that differ from the %d it saw", seed, h.sn.Version(), len(got), len(h.want))
		}
		from := r.IntN(20_000)
		n := 0
		for k := range Reverse[int](h.sn, Between(fmt.Sprintf("key%05d", from), "key1")) {
			if _, ok := h.want[k]; !ok {
				t.Fatalf("seed %d: snapshot %d has key %q, which it did not see", seed, h.sn.Version(), k)
			}
			n++
		}
		if want := Count(h.sn, Between(fmt.Sprintf("key%05d", from), "key1")); n != want {
			t.Fatalf("seed %d: %d keys backwards, want %d", seed, n, want)
		}
	}
	save(10_000, 0)
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !done.Load() {
			last := ""
			for k := range Scan[Record](s, All()) {
				if k <= last {
					t.Errorf("seed %d: %q comes after %q", seed, k, last)
					return
				}
				last = k
			}
		}
	})
	rounds := 200
	if testing.Short() {
		rounds = 80
	}
	var snapshots []held
	for round := range rounds {
		if round == rounds/2 {
			done.Store(true) // from here on most nodes can be used again
		}
		// Many small ones in a row come to nodes that nobody has seen.
		for range r.IntN(30) {
			save(1, round)
		}
		if r.IntN(10) == 0 {
			save(1000+r.IntN(5000), round)
		} else {
			save(1+r.IntN(40), round)
		}
		switch r.IntN(3) {
		case 0:
			snapshots = append(snapshots, held{s.Snapshot(), maps.Clone(now)})
		case 1:
			if len(snapshots) > 5 {
				i := r.IntN(len(snapshots))
				verify(snapshots[i])
				snapshots = slices.Delete(snapshots, i, i+1)
			}
		}
	}
	wg.Wait()
	for _, h := range snapshots {
		verify(h)
	}
	verify(held{s.Snapshot(), now})
	check(t, s)
}

// Spans bound by heads alone hold the same keys as their bytes say.
func TestSpanEnds(t *testing.T) {
	s := mustOpen(t, tempPath(t), testOptions())
	parts := []string{"", "a", "b", "\x00", "\x7f", "é", "12345678", "1234567"}
	var keys []string
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				keys = append(keys, a+b+c)
			}
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for _, k := range keys {
		mustSave(t, s, k, 1)
	}
	bounds := append(slices.Clone(keys), "\xff", "1\xff", "a\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff", "1234567\xff", "12345678\xff")
	for i, a := range bounds {
		sameSpan(t, s, keys, WithPrefix(a), fmt.Sprintf("prefix %q", a), func(k string) bool { return strings.HasPrefix(k, a) })
		sameSpan(t, s, keys, From(a), fmt.Sprintf("from %q", a), func(k string) bool { return k >= a })
		b := bounds[(i*31+7)%len(bounds)]
		sameSpan(t, s, keys, Between(a, b), fmt.Sprintf("from %q to %q", a, b), func(k string) bool { return a <= k && k < b })
	}
}

// sameSpan compares what the store finds in a span, in both directions, and what
// the span says of each key, with what belongs into it.
func sameSpan(t *testing.T, s *Store, keys []string, sp Span, what string, belongs func(string) bool) {
	t.Helper()
	var want, got, back []string
	for _, k := range keys {
		if belongs(k) {
			want = append(want, k)
		}
		if sp.Contains(k) != belongs(k) {
			t.Errorf("%s: Contains(%q) is %v", what, k, sp.Contains(k))
		}
	}
	for k := range Scan[int](s, sp) {
		got = append(got, k)
	}
	for k := range Reverse[int](s, sp) {
		back = append(back, k)
	}
	slices.Reverse(back)
	if !slices.Equal(got, want) || !slices.Equal(back, want) || Count(s, sp) != len(want) {
		t.Errorf("%s: got %q, backwards %q, %d counted, want %q", what, got, back, Count(s, sp), want)
	}
}
