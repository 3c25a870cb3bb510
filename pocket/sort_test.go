package pocket

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSortEntries: entries are in the order of their keys' bytes afterwards,
// whatever the keys have in common, and have their heads.
func TestSortEntries(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		common := rapid.SampledFrom([]string{"", "a", "12345678", "product/", strings.Repeat("deep", 20)}).Draw(rt, "common")
		tails := rapid.SliceOfNDistinct(rapid.StringMatching("[a-c\x00]{0,20}|[0-9]{1,7}"), 0, 4*radixLeast, rapid.ID[string]).Draw(rt, "tails")
		a := newArena()
		var entries []entry
		var want []string
		for _, tail := range tails {
			d := draft{key: common + tail, value: "1"}
			off, words := a.alloc(d.words())
			d.put(words, 0)
			entries = append(entries, entry{head(d.key), off})
			want = append(want, d.key)
		}
		slices.Sort(want)
		sortEntries(a.dir, entries)
		for i, en := range entries {
			r, _ := a.dir.at(en.off)
			if r.key() != want[i] || en.head != head(want[i]) {
				rt.Fatalf("entry %d: got key %q and head %x, want %q and %x", i, r.key(), en.head, want[i], head(want[i]))
			}
		}
	})
}

// TestHead: heads order like the first eight bytes of keys.
func TestHead(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.String().Draw(rt, "key")
		want := uint64(0)
		for i := range 8 {
			want <<= 8
			if i < len(key) {
				want |= uint64(key[i])
			}
		}
		if got := head(key); got != want {
			rt.Fatalf("head(%q): got %x, want %x", key, got, want)
		}
	})
}
