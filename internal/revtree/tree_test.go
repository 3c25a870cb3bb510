package revtree

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// revs parses revisions that are separated by spaces.
func revs(t testing.TB, text string) []Rev {
	t.Helper()
	var list []Rev
	for _, f := range strings.Fields(text) {
		r, err := Parse(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// show writes revisions the way revs reads them.
func show(list []Rev) string {
	var b strings.Builder
	for i, r := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// showLeaves writes leaves with a minus before deleted ones.
func showLeaves(leaves []Leaf) string {
	var words []string
	for _, l := range leaves {
		word := l.Rev.String()
		if l.Deleted {
			word = "-" + word
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// grow returns a tree of paths, newest first; a minus marks a deletion.
func grow(t testing.TB, paths ...string) *Tree {
	t.Helper()
	var tree Tree
	for _, p := range paths {
		path, deleted := strings.CutPrefix(p, "-")
		if _, err := tree.Add(revs(t, path), deleted); err != nil {
			t.Fatal(err)
		}
	}
	return &tree
}

// Leaves come in the order in which a document shows them, whatever was added when.
func TestTreeLeaves(t *testing.T) {
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{nil, ""},
		{[]string{"1-a"}, "1-a"},
		{[]string{"1-a", "2-b 1-a"}, "2-b"},
		{[]string{"2-b 1-a", "2-c 1-a"}, "2-c 2-b"},
		{[]string{"2-b 1-a", "3-c 2-c 1-a"}, "3-c 2-b"},
		{[]string{"1-z", "-9-a 8-a"}, "1-z -9-a"},
		{[]string{"-2-b 1-a", "-2-c 1-a"}, "-2-c -2-b"},
		{[]string{"-2-b 1-a", "3-c 2-b"}, "3-c"},
		{[]string{"3-c", "3-d", "2-e"}, "3-d 3-c 2-e"},
		{[]string{"3-c 2-b", "2-b 1-a"}, "3-c"},
		{[]string{"10-a", "9-z"}, "10-a 9-z"},
	} {
		for range 4 {
			rand.Shuffle(len(c.paths), func(i, j int) { c.paths[i], c.paths[j] = c.paths[j], c.paths[i] })
			tree := grow(t, c.paths...)
			if got := showLeaves(tree.Leaves()); got != c.want {
				t.Errorf("leaves of %q: got %q, want %q", c.paths, got, c.want)
			}
			winner, ok := tree.Winner()
			if first, _, _ := strings.Cut(c.want, " "); ok != (c.want != "") || ok && showLeaves([]Leaf{winner}) != first {
				t.Errorf("winner of %q: got %v, %v", c.paths, winner, ok)
			}
		}
	}
}

// A later path tells ancestors that an earlier one did not know, and Parent shows them.
func TestTreePath(t *testing.T) {
	tree := grow(t, "4-d 3-c")
	if got := show(tree.Path(revs(t, "4-d")[0])); got != "4-d 3-c" {
		t.Errorf("path: got %q", got)
	}
	if added, err := tree.Add(revs(t, "3-c 2-b 1-a"), false); !added || err != nil {
		t.Errorf("body of a known ancestor: added %v, %v, want true", added, err)
	}
	if added, err := tree.Add(revs(t, "3-c 2-b 1-a"), false); added || err != nil {
		t.Errorf("again: added %v, %v, want false", added, err)
	}
	if got := show(tree.Path(revs(t, "4-d")[0])); got != "4-d 3-c 2-b 1-a" {
		t.Errorf("path: got %q", got)
	}
	if got := tree.Leaves()[0].Parent.String(); got != "3-c" {
		t.Errorf("parent: got %q, want 3-c", got)
	}
	if got := tree.Path(revs(t, "1-b")[0]); got != nil {
		t.Errorf("path of an unknown revision: got %v, want nil", got)
	}
	if got := grow(t, "1-a").Leaves()[0].Parent; !got.IsZero() {
		t.Errorf("parent of a root: got %v, want none", got)
	}
}

// A path that is none is refused and changes nothing.
func TestTreeAddMalformed(t *testing.T) {
	tree := grow(t, "2-b 1-a")
	want := grow(t, "2-b 1-a")
	for _, path := range [][]Rev{
		nil,
		{{}},
		{{Gen: 1}},
		revs(t, "3-c 1-a"),
		revs(t, "3-c 3-b"),
		revs(t, "1-a 2-b"),
		{{Gen: 1, Digest: "a"}, {}},
	} {
		if added, err := tree.Add(path, false); added || !errors.Is(err, ErrRev) {
			t.Errorf("Add(%v): got %v, %v, want ErrRev", path, added, err)
		}
	}
	if !tree.Equal(want) {
		t.Error("the tree changed")
	}
}

// Stemming cuts what is far from every leaf, and only that.
func TestTreeStem(t *testing.T) {
	for _, c := range []struct {
		limit  int
		want   string
		leaves string
	}{
		{9, "1-a 2-b 3-c 3-d 4-e", "4-e 3-d"},
		{4, "1-a 2-b 3-c 3-d 4-e", "4-e 3-d"},
		{3, "1-a 2-b 3-c 3-d 4-e", "4-e 3-d"},
		{2, "2-b 3-c 3-d 4-e", "4-e 3-d"},
		{1, "3-d 4-e", "4-e 3-d"},
		{0, "3-d 4-e", "4-e 3-d"},
		{-5, "3-d 4-e", "4-e 3-d"},
	} {
		tree := grow(t, "4-e 3-c 2-b 1-a", "3-d 2-b 1-a")
		cut := tree.Stem(c.limit)
		if got := show(tree.Revs()); got != c.want || cut != 5-tree.Len() {
			t.Errorf("Stem(%d) = %d: got %q, want %q", c.limit, cut, got, c.want)
		}
		if got := showLeaves(tree.Leaves()); got != c.leaves {
			t.Errorf("Stem(%d): leaves %q, want %q", c.limit, got, c.leaves)
		}
		for _, r := range tree.Revs() {
			for _, p := range tree.Path(r) {
				if !tree.Has(p) {
					t.Errorf("Stem(%d): path of %v goes on to %v", c.limit, r, p)
				}
			}
		}
	}
	var empty Tree
	if cut := empty.Stem(1); cut != 0 {
		t.Errorf("Stem of nothing cut %d", cut)
	}
}

// Missing answers as a server does to a replicator.
func TestTreeMissing(t *testing.T) {
	tree := grow(t, "3-c3 2-c2 1-a", "2-d2 1-a")
	for _, c := range []struct{ ask, missing, ancestors string }{
		{"4-zzz", "4-zzz", "3-c3 2-d2"},
		{"3-zzz", "3-zzz", "2-d2"},
		{"2-zzz", "2-zzz", ""},
		{"5-y 1-q", "1-q 5-y", "3-c3 2-d2"},
		{"5-y 5-y", "5-y", "3-c3 2-d2"},
		{"3-c3 2-c2 1-a", "", ""},
		{"", "", ""},
	} {
		missing, ancestors := tree.Missing(revs(t, c.ask))
		if show(missing) != c.missing || show(ancestors) != c.ancestors {
			t.Errorf("Missing(%s): got %q and %q, want %q and %q", c.ask, show(missing), show(ancestors), c.missing, c.ancestors)
		}
	}
}

// A step is a path to add.
type step struct {
	path    []Rev
	deleted bool
}

// drawSteps draws paths over few revisions, so that they meet and contradict each
// other in every way, forged ancestries included.
func drawSteps(t *rapid.T, label string) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		gen := rapid.Uint64Range(1, 5).Draw(t, "gen")
		length := rapid.Uint64Range(1, gen).Draw(t, "length")
		var s step
		for i := range length {
			digest := rapid.SampledFrom([]string{"a", "b", "c", "abcdefghijklmnop"}).Draw(t, "digest")
			r := Rev{Gen: gen - i, Digest: digest, text16: len(digest) == rawSize && rapid.Bool().Draw(t, "text")}
			s.path = append(s.path, r)
		}
		s.deleted = rapid.Bool().Draw(t, "deleted")
		return s
	}), 0, 8).Draw(t, label)
}

func build(t *rapid.T, lists ...[]step) *Tree {
	var tree Tree
	for _, s := range slices.Concat(lists...) {
		if _, err := tree.Add(s.path, s.deleted); err != nil {
			t.Fatal(err)
		}
	}
	return &tree
}

func merged(trees ...*Tree) *Tree {
	var out Tree
	for _, u := range trees {
		out.Merge(u)
	}
	return &out
}

// Merging is commutative, associative and idempotent, and the same as adding the
// paths in any order.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y, z := drawSteps(t, "x"), drawSteps(t, "y"), drawSteps(t, "z")
		a, b, c := build(t, x), build(t, y), build(t, z)
		for _, law := range []struct {
			name      string
			got, want *Tree
		}{
			{"commutative", merged(a, b), merged(b, a)},
			{"associative", merged(merged(a, b), c), merged(a, merged(b, c))},
			{"idempotent", merged(a, a), a},
			{"absorbs", merged(merged(a, b), a), merged(a, b)},
			{"adding is merging", build(t, x, y, z), merged(a, b, c)},
			{"order of adding", build(t, z, x, y, x), merged(a, b, c)},
		} {
			if !law.got.Equal(law.want) {
				t.Errorf("%s: got %v, want %v", law.name, law.got.nodes, law.want.nodes)
			}
			if diff := cmp.Diff(fmt.Sprint(law.want.Leaves()), fmt.Sprint(law.got.Leaves())); diff != "" {
				t.Errorf("%s: leaves (-want +got):\n%s", law.name, diff)
			}
		}
	})
}

// In every tree the leaves are those revisions that nothing builds on, their order
// is strict, and stemming keeps exactly the newest revisions of each leaf's path.
func TestTreeInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := drawSteps(t, "steps")
		tree := build(t, steps)
		checkLeaves(t, tree, steps)
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		before := tree.Leaves()
		want := make(map[Rev]bool)
		for _, l := range before {
			path := tree.Path(l.Rev)
			for _, r := range path[:min(limit, len(path))] {
				want[r] = true
			}
		}
		tree.Stem(limit)
		if tree.Len() != len(want) {
			t.Fatalf("stemming to %d: %d revisions, want %d", limit, tree.Len(), len(want))
		}
		for r := range want {
			if !tree.Has(r) {
				t.Fatalf("stemming to %d cut %v", limit, r)
			}
			for _, p := range tree.Path(r) {
				if !tree.Has(p) {
					t.Fatalf("stemming to %d: path of %v goes on to %v", limit, r, p)
				}
			}
		}
		for i, l := range tree.Leaves() {
			if l.Rev != before[i].Rev || l.Deleted != before[i].Deleted {
				t.Fatalf("stemming to %d: leaf %v became %v", limit, before[i], l)
			}
		}
	})
}

func checkLeaves(t *rapid.T, tree *Tree, steps []step) {
	ancestor := make(map[Rev]bool)
	for _, s := range steps {
		for _, r := range s.path[1:] {
			ancestor[r] = true
		}
	}
	want := make(map[Rev]bool)
	for _, s := range steps {
		if !ancestor[s.path[0]] {
			want[s.path[0]] = true
		}
	}
	leaves := tree.Leaves()
	if len(leaves) != len(want) {
		t.Fatalf("got %d leaves, want %d", len(leaves), len(want))
	}
	for i, l := range leaves {
		if !want[l.Rev] {
			t.Fatalf("%v is no leaf", l.Rev)
		}
		if i > 0 && CompareLeaves(leaves[i-1], l) >= 0 {
			t.Fatalf("leaves %v and %v are out of order", leaves[i-1], l)
		}
	}
}

// The winner is the one that the three rules name, in any order of the leaves.
func TestWinner(t *testing.T) {
	if _, ok := Winner(nil); ok {
		t.Error("nothing has a winner")
	}
	rapid.Check(t, func(t *rapid.T) {
		leaves := build(t, drawSteps(t, "steps")).Leaves()
		if len(leaves) == 0 {
			return
		}
		shuffled := rapid.Permutation(leaves).Draw(t, "shuffled")
		got, _ := Winner(shuffled)
		for _, l := range leaves {
			switch {
			case l.Rev == got.Rev:
			case got.Deleted && !l.Deleted:
				t.Fatalf("deleted %v beats live %v", got, l)
			case got.Deleted == l.Deleted && l.Rev.Gen > got.Rev.Gen:
				t.Fatalf("%v beats the higher generation %v", got, l)
			case got.Deleted == l.Deleted && l.Rev.Gen == got.Rev.Gen && l.Rev.Digest > got.Rev.Digest:
				t.Fatalf("%v beats the higher digest %v", got, l)
			}
		}
	})
}

func BenchmarkWinner(b *testing.B) {
	leaves := make([]Leaf, 4)
	for i := range leaves {
		leaves[i] = Leaf{Rev: NewRev(uint64(i%2+1), [16]byte{byte(i)}), Deleted: i == 1}
	}
	b.ReportAllocs()
	for b.Loop() {
		Winner(leaves)
	}
}
