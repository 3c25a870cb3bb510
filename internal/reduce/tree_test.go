package reduce

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// memory is a Source and a Sink of sorted lists.
type memory struct {
	levels [MaxLevel + 1]map[string][]byte
	steps  int // of cursors
}

func newMemory() *memory {
	m := &memory{}
	for i := range m.levels {
		m.levels[i] = map[string][]byte{}
	}
	return m
}

func (m *memory) Set(level int, key, node []byte) error {
	m.levels[level][string(key)] = bytes.Clone(node)
	return nil
}

func (m *memory) Delete(level int, key []byte) error {
	delete(m.levels[level], string(key))
	return nil
}

func (m *memory) Top() (int, error) {
	for l := MaxLevel; l > 0; l-- {
		if len(m.levels[l]) > 0 {
			return l, nil
		}
	}
	return 0, nil
}

func (m *memory) Cursor(level int) (Cursor, error) {
	c := &memoryCursor{m: m, values: m.levels[level], at: -1}
	for k := range c.values {
		c.keys = append(c.keys, k)
	}
	sort.Strings(c.keys)
	return c, nil
}

type memoryCursor struct {
	m      *memory
	keys   []string
	values map[string][]byte
	at     int
}

func (c *memoryCursor) ok() bool { c.m.steps++; return c.at >= 0 && c.at < len(c.keys) }
func (c *memoryCursor) SeekGE(key []byte) bool {
	c.at = sort.SearchStrings(c.keys, string(key))
	return c.ok()
}
func (c *memoryCursor) SeekLT(key []byte) bool {
	c.at = sort.SearchStrings(c.keys, string(key)) - 1
	return c.ok()
}
func (c *memoryCursor) Next() bool    { c.at++; return c.ok() }
func (c *memoryCursor) Key() []byte   { return []byte(c.keys[c.at]) }
func (c *memoryCursor) Value() []byte { return c.values[c.keys[c.at]] }
func (c *memoryCursor) Error() error  { return nil }
func (c *memoryCursor) Close() error  { return nil }

// ends keeps the first and last value and all between as a digest that depends
// on their order: it is associative and does not commute.
type ends struct{}

func (ends) Reduce(values [][]byte) ([]byte, error) { return bytes.Join(values, []byte(",")), nil }
func (ends) Rereduce(partials [][]byte) ([]byte, error) {
	return bytes.Join(partials, []byte(",")), nil
}

func (m *memory) naive(lo, hi []byte) (uint64, []byte) {
	var values [][]byte
	c, _ := m.Cursor(0)
	for ok := c.SeekGE(lo); ok && (hi == nil || bytes.Compare(c.Key(), hi) < 0); ok = c.Next() {
		values = append(values, c.Value())
	}
	return uint64(len(values)), bytes.Join(values, []byte(","))
}

// TestTreeEqualsNaiveReduce: after any changes every range's reduce is the one
// over its rows, and the nodes are those of a tree built at once.
func TestTreeEqualsNaiveReduce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := &Tree{Seed: rapid.Uint64().Draw(t, "seed"), Func: ends{}}
		m := newMemory()
		space := rapid.SampledFrom([]int{3, 200, 5000}).Draw(t, "space")
		key := func(n int) []byte { return fmt.Appendf(nil, "%05d", n) }
		for round := range rapid.IntRange(1, 5).Draw(t, "rounds") {
			changes := map[string]State{}
			for range rapid.IntRange(0, 700).Draw(t, "changes") {
				k := string(key(rapid.IntRange(0, space).Draw(t, "key")))
				_, was := m.levels[0][k]
				if _, again := changes[k]; again {
					continue
				}
				if was && rapid.Bool().Draw(t, "remove") {
					delete(m.levels[0], k)
					changes[k] = Removed
					continue
				}
				m.levels[0][k] = fmt.Appendf(nil, "%s.%d", k, round)
				changes[k] = Added
				if was {
					changes[k] = Touched
				}
			}
			var list []Change
			for k, s := range changes {
				list = append(list, Change{[]byte(k), s})
			}
			slices.SortFunc(list, func(a, b Change) int { return bytes.Compare(a.Key, b.Key) })
			if err := tree.Update(m, m, list); err != nil {
				t.Fatalf("update: %v", err)
			}
			for range 8 {
				var lo, hi []byte
				if rapid.Bool().Draw(t, "from") {
					lo = key(rapid.IntRange(0, space).Draw(t, "lo"))
				}
				if rapid.Bool().Draw(t, "to") {
					hi = key(rapid.IntRange(0, space).Draw(t, "hi"))
				}
				count, want := m.naive(lo, hi)
				got, err := tree.Fold(m, lo, hi)
				if err != nil || got.Count != count || !bytes.Equal(got.Partial, want) {
					t.Fatalf("fold %q to %q: got %d rows %q (%v), want %d rows %q", lo, hi, got.Count, got.Partial, err, count, want)
				}
			}
			compareWithBuilt(t, tree, m)
		}
	})
}

// compareWithBuilt builds the tree of the rows anew. An updated tree may keep
// a top level that has become superfluous.
func compareWithBuilt(t *rapid.T, tree *Tree, m *memory) {
	built := newMemory()
	b := tree.NewBuilder(built)
	c, _ := m.Cursor(0)
	for ok := c.SeekGE(nil); ok; ok = c.Next() {
		if err := b.Add(c.Key(), c.Value()); err != nil {
			t.Fatalf("build: %v", err)
		}
	}
	if err := b.Finish(); err != nil {
		t.Fatalf("build: %v", err)
	}
	for level := 1; level <= MaxLevel; level++ {
		for k, want := range built.levels[level] {
			if got := m.levels[level][k]; !bytes.Equal(got, want) {
				t.Fatalf("node %q of level %d: got %q, want %q", k, level, got, want)
			}
		}
		for k := range m.levels[level] {
			if _, ok := built.levels[level][k]; !ok && !(k == "" && level > 1 && len(m.levels[level]) == 1) {
				t.Fatalf("node %q of level %d should not be there", k, level)
			}
		}
	}
}

// TestCostGrowsWithTheLogarithm: half of 20 times as many rows is reduced in at
// most three times as many steps.
func TestCostGrowsWithTheLogarithm(t *testing.T) {
	steps := func(n int) int {
		tree := &Tree{Seed: 7}
		m := newMemory()
		b := tree.NewBuilder(m)
		for i := range n {
			k := fmt.Appendf(nil, "%08d", i)
			m.levels[0][string(k)] = nil
			if err := b.Add(k, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Finish(); err != nil {
			t.Fatal(err)
		}
		total := 0
		for i := range 8 {
			m.steps = 0
			lo := fmt.Appendf(nil, "%08d", i*n/16)
			hi := fmt.Appendf(nil, "%08d", i*n/16+n/2)
			got, err := tree.Fold(m, lo, hi)
			if err != nil || got.Count != uint64(n/2) {
				t.Fatalf("fold of %d: got %d, %v", n, got.Count, err)
			}
			total += m.steps
		}
		return total
	}
	small, large := steps(5_000), steps(100_000)
	if large > 3*small {
		t.Errorf("half of 100,000 rows takes %d steps, half of 5,000 takes %d: more than three times as many", large, small)
	}
}

type failing struct{ ends }

func (failing) Reduce(values [][]byte) ([]byte, error) {
	if slices.ContainsFunc(values, func(v []byte) bool { return string(v) == "bad" }) {
		return nil, errors.New("no bad ones")
	}
	return bytes.Join(values, []byte(",")), nil
}

// TestFailedReduceIsKept: a failure stays in the nodes it concerns; ranges
// without it go on, and all is well once the row is gone.
func TestFailedReduceIsKept(t *testing.T) {
	tree := &Tree{Seed: 3, Func: failing{}}
	m := newMemory()
	var list []Change
	for i := range 300 {
		k := fmt.Sprintf("%03d", i)
		m.levels[0][k] = []byte("x")
		list = append(list, Change{[]byte(k), Added})
	}
	m.levels[0]["150"] = []byte("bad")
	if err := tree.Update(m, m, list); err != nil {
		t.Fatal(err)
	}
	if n, err := tree.Fold(m, nil, nil); err != nil || n.Failed != "no bad ones" || n.Count != 300 {
		t.Errorf("fold of all: got %+v, %v; want the failure and 300 rows", n, err)
	}
	if n, err := tree.Fold(m, []byte("290"), nil); err != nil || n.Failed != "" || n.Count != 10 {
		t.Errorf("fold without the bad one: got %+v, %v; want 10 rows", n, err)
	}
	delete(m.levels[0], "150")
	if err := tree.Update(m, m, []Change{{[]byte("150"), Removed}}); err != nil {
		t.Fatal(err)
	}
	if n, err := tree.Fold(m, nil, nil); err != nil || n.Failed != "" || n.Count != 299 {
		t.Errorf("fold after the removal: got %+v, %v; want 299 rows", n, err)
	}
}

// TestBuiltins: each built-in reduce of values split anywhere equals the one
// computed by hand.
func TestBuiltins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ints := rapid.SliceOfN(rapid.IntRange(-1000, 1000), 1, 60).Draw(t, "values")
		sum, low, high, squares := 0, math.MaxInt, math.MinInt, 0
		seen := map[int]bool{}
		var values [][]byte
		for _, v := range ints {
			sum, low, high, squares = sum+v, min(low, v), max(high, v), squares+v*v
			seen[v] = true
			values = append(values, strconv.AppendInt(nil, int64(v), 10))
		}
		want := map[string]string{
			"count": strconv.Itoa(len(ints)), "sum": strconv.Itoa(sum), "min": strconv.Itoa(low), "max": strconv.Itoa(high),
			"stats":    fmt.Sprintf(`{"count":%d,"sum":%d,"min":%d,"max":%d,"sumsqr":%d}`, len(ints), sum, low, high, squares),
			"distinct": strconv.Itoa(len(seen)),
		}
		for _, name := range Names() {
			f, _ := Lookup(name)
			a := acc{f: f}
			cut := rapid.IntRange(0, len(values)).Draw(t, "cut")
			for _, part := range [][][]byte{values[:cut], values[cut:]} {
				b := acc{f: f}
				for _, v := range part {
					b.row(v)
				}
				n := b.result()
				a.node(&n)
			}
			n := a.result()
			got, err := f.AppendResult(nil, &n)
			if err != nil || string(got) != want[name] {
				t.Fatalf("%s of %v: got %s (%v), want %s", name, ints, got, err, want[name])
			}
		}
	})
}

// TestBuiltinsOfNothing: no rows, and rows of null, have results in JSON.
func TestBuiltinsOfNothing(t *testing.T) {
	for _, name := range Names() {
		f, ok := Lookup(name)
		if !ok {
			t.Fatalf("no reduce %q", name)
		}
		a := acc{f: f}
		empty := a.result()
		a.row([]byte("null"))
		null := a.result()
		for _, n := range []Node{empty, null} {
			got, err := f.AppendResult(nil, &n)
			if err != nil || !json.Valid(got) {
				t.Errorf("%s of %d rows: got %q, %v; want JSON", name, n.Count, got, err)
			}
		}
	}
	if _, ok := Lookup("median"); ok {
		t.Error("there is a reduce that should not be")
	}
}

// TestSumBeyondIntegers: a sum that does not fit 64 bits goes on as a float.
func TestSumBeyondIntegers(t *testing.T) {
	a := acc{f: summer{}}
	for range 3 {
		a.row([]byte("9000000000000000000"))
	}
	n := a.result()
	got, err := summer{}.AppendResult(nil, &n)
	if err != nil || string(got) != "2.7e+19" {
		t.Errorf("got %s, %v; want 2.7e+19", got, err)
	}
}

// TestDistinctIsClose: the estimate is within 6 % (nearly four standard errors)
// at every size.
func TestDistinctIsClose(t *testing.T) {
	for _, n := range []int{10, 250, 1000, 20_000, 200_000} {
		a := acc{f: distinct{}}
		for i := range n {
			v := strconv.AppendInt(nil, int64(i), 10)
			a.row(v)
			a.row(v)
		}
		node := a.result()
		got, err := distinct{}.AppendResult(nil, &node)
		estimate, _ := strconv.Atoi(string(got))
		if err != nil || math.Abs(float64(estimate-n)) > 0.06*float64(n) {
			t.Errorf("distinct of %d: got %s, %v", n, got, err)
		}
	}
}

// FuzzNode: no bytes make the decoders panic, and what decodes encodes again.
func FuzzNode(f *testing.F) {
	for _, n := range []Node{{}, {Count: 3, Partial: []byte{1, 2}}, {Count: 300, Failed: "no"}} {
		f.Add(n.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := DecodeNode(b)
		if err != nil {
			return
		}
		for _, name := range Names() {
			r, _ := Lookup(name)
			_, _ = r.AppendResult(nil, &n)
			if n.Failed == "" {
				_, _ = r.Rereduce([][]byte{n.Partial, n.Partial})
			}
		}
		again, err := DecodeNode(n.Append(nil))
		if err != nil || again.Count != n.Count || again.Failed != n.Failed || !bytes.Equal(again.Partial, n.Partial) {
			t.Errorf("%x decodes to %+v, encoded again to %+v (%v)", b, n, again, err)
		}
	})
}
