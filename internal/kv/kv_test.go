package kv

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

// settle flushes a space into the map it is based on.
func settle(s *Space, into MapBase) {
	if err := s.Finish(); err != nil {
		panic(err)
	}
	_ = s.Rows.Flush(
		func(k, v []byte) error { into[string(k)] = bytes.Clone(v); return nil },
		func(k []byte) error { delete(into, string(k)); return nil },
		func(lo, hi []byte) error {
			for k := range into {
				if k >= string(lo) && k < string(hi) {
					delete(into, k)
				}
			}
			return nil
		})
}

// build makes a state of all types.
func build(t *rapid.T, into MapBase) {
	s := NewSpace(into, 1000)
	version := uint64(0)
	do := func(op osier.KVOp) {
		version++
		op.Namespace = fmt.Sprint("n", version%2)
		if err := s.Do(&op, version, new(osier.KVResult)); err != nil && osier.KindOf(err) != osier.KindInvalid {
			t.Fatalf("%+v: %v", op, err)
		}
	}
	for range rapid.IntRange(5, 60).Draw(t, "operations") {
		name := fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "name"))
		items := []osier.KVItem{{Name: name, Value: []byte(name), Score: float64(len(name))}, {Name: name + "x", Score: 3}}
		switch rapid.IntRange(0, 5).Draw(t, "verb") {
		case 0:
			do(osier.KVOp{Verb: osier.KVSet, Key: "p" + name, Value: []byte(name)})
		case 1:
			do(osier.KVOp{Verb: osier.KVListPush, Key: "l", Items: items})
		case 2:
			do(osier.KVOp{Verb: osier.KVHashSet, Key: "h", Items: items})
		case 3:
			do(osier.KVOp{Verb: osier.KVSetAdd, Key: "s", Items: items})
		case 4:
			do(osier.KVOp{Verb: osier.KVSortedAdd, Key: "z", Items: items})
		case 5:
			do(osier.KVOp{Verb: osier.KVExpire, Key: rapid.SampledFrom([]string{"l", "z", "p1"}).Draw(t, "key"), Deadline: 5000})
		}
	}
	settle(s, into)
}

func problems(t *rapid.T, base Base) (out []string) {
	_, err := Verify(base, func(namespace, key string, err error) error {
		out = append(out, fmt.Sprint(namespace, "/", key, ": ", err))
		return nil
	})
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	return out
}

// A lost row is found by Verify and mended by Mend, whichever it is.
func TestLostRowsAreFoundAndMended(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := MapBase{}
		build(t, base)
		if p := problems(t, base); len(p) > 0 {
			t.Fatalf("before any damage: %v", p)
		}
		rows := make([]string, 0, len(base))
		for k := range base {
			rows = append(rows, k)
		}
		slices.Sort(rows)
		for range rapid.IntRange(1, 3).Draw(t, "lost rows") {
			victim := rapid.SampledFrom(rows).Draw(t, "row")
			if rapid.Bool().Draw(t, "damaged") && len(base[victim]) > 0 {
				base[victim] = base[victim][:len(base[victim])-1]
			} else {
				delete(base, victim)
			}
		}
		damaged := len(problems(t, base)) > 0
		s := NewSpace(base, 0)
		reported := 0
		if err := Mend(s, func(string, string, error) { reported++ }); err != nil {
			t.Fatalf("mend: %v", err)
		}
		settle(s, base)
		if p := problems(t, base); len(p) > 0 {
			t.Fatalf("after mending (damage seen: %v, reported %d): %v", damaged, reported, p)
		}
	})
}

// An overlay is what its writes make of its base.
func TestOverlayIsItsWritesOverTheBase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.ByteRange('a', 'c'), 1, 3)
		base := MapBase{}
		for range rapid.IntRange(0, 12).Draw(t, "rows") {
			base[string(key.Draw(t, "row"))] = []byte("base")
		}
		want := MapBase{}
		for k, v := range base {
			want[k] = v
		}
		o := NewOverlay(base)
		for range rapid.IntRange(0, 12).Draw(t, "writes") {
			k := key.Draw(t, "key")
			switch rapid.IntRange(0, 2).Draw(t, "write") {
			case 0:
				o.Set(k, k)
				want[string(k)] = k
			case 1:
				o.Delete(k)
				delete(want, string(k))
			case 2:
				hi := append(k[:len(k):len(k)], 'z')
				o.DeleteRange(k, hi)
				for w := range want {
					if w >= string(k) && w < string(hi) {
						delete(want, w)
					}
				}
			}
		}
		lo, hi, reverse := key.Draw(t, "lo"), key.Draw(t, "hi"), rapid.Bool().Draw(t, "reverse")
		list := func(b Base) (out []string) {
			_ = b.Scan(lo, hi, reverse, func(k, v []byte) bool {
				out = append(out, string(k)+"="+string(v))
				return len(out) < 4
			})
			return out
		}
		if got, want := list(o), list(want); !slices.Equal(got, want) {
			t.Fatalf("scan %q to %q, reverse %v: got %q, want %q", lo, hi, reverse, got, want)
		}
	})
}

// counted counts the rows that are read.
type counted struct {
	Base
	rows int
}

func (c *counted) Get(key []byte) ([]byte, bool, error) {
	c.rows++
	return c.Base.Get(key)
}

func (c *counted) Scan(lo, hi []byte, reverse bool, fn func(k, v []byte) bool) error {
	return c.Base.Scan(lo, hi, reverse, func(k, v []byte) bool {
		c.rows++
		return fn(k, v)
	})
}

// The rows that a change or a rank of a sorted set touches grow with the
// logarithm of its size.
func TestSortedSetsCostLogarithmically(t *testing.T) {
	cost := func(n int) (change, rank float64) {
		floor := NewOverlay(MapBase{})
		s := &Space{Rows: floor, spaces: map[string]*namespace{}}
		op := osier.KVOp{Namespace: "n", Key: "z", Verb: osier.KVSortedAdd, Items: make([]osier.KVItem, 1)}
		for i := range n {
			op.Items[0] = osier.KVItem{Name: fmt.Sprint("member-", i), Score: float64(i * 7919 % n)}
			if err := s.Do(&op, uint64(i+1), new(osier.KVResult)); err != nil {
				t.Fatal(err)
			}
			s.Events = s.Events[:0]
		}
		if err := s.Finish(); err != nil {
			t.Fatal(err)
		}
		c := &counted{Base: floor}
		const tries = 50
		for i := range tries {
			s := NewSpace(c, 0)
			op.Items[0] = osier.KVItem{Name: fmt.Sprint("new-", i), Score: float64(i * n / tries)}
			if err := s.Do(&op, 1<<40, new(osier.KVResult)); err != nil {
				t.Fatal(err)
			}
		}
		change, c.rows = float64(c.rows)/tries, 0
		for i := range tries {
			s := NewSpace(c, 0)
			name := fmt.Sprint("member-", i*n/tries)
			want := int64(i * n / tries * 7919 % n)
			err := s.Query(osier.QueryKVRead, &osier.KVQuery{Namespace: "n", Keys: []string{"z"}, Read: osier.KVReadRank, Names: []string{name}}, false, 0, 0,
				func(row *osier.KVRow) bool {
					if row.Missing || row.Count != want {
						t.Errorf("%s of %d: got rank %d, want %d", name, n, row.Count, want)
					}
					return true
				})
			if err != nil {
				t.Fatal(err)
			}
		}
		return change, float64(c.rows) / tries
	}
	smallChange, smallRank := cost(500)
	largeChange, largeRank := cost(20_000)
	t.Logf("rows read at 500 and 20,000 members: a change %.0f and %.0f, a rank %.0f and %.0f", smallChange, largeChange, smallRank, largeRank)
	if largeChange > 4*smallChange || largeRank > 4*smallRank || largeRank > 400 {
		t.Errorf("forty times the members cost %.1f times a change and %.1f times a rank", largeChange/smallChange, largeRank/smallRank)
	}
}

// Records come back as they were written; damaged ones are refused.
func FuzzEntry(f *testing.F) {
	f.Add((&Entry{Type: osier.KVPlain, Version: 7, Value: []byte("v")}).Append(nil))
	f.Add((&Entry{Type: osier.KVLists, Version: 7, Deadline: 99, ID: 3, Count: 2, First: -4}).Append(nil))
	f.Add((&Entry{Type: osier.KVSorteds, Version: 7, ID: 3, Count: 2, Levels: 1}).Append(nil))
	f.Add((&Entry{Type: osier.KVLeases, Version: 7, Deadline: 5, Token: 3, Value: []byte("me")}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		again, err := DecodeEntry(e.Append(nil))
		if err != nil || again.Version != e.Version || again.Deadline != e.Deadline || !bytes.Equal(again.Value, e.Value) || again.Count != e.Count || again.First != e.First {
			t.Errorf("got %+v, %v, want %+v", again, err, e)
		}
		if n, err := DecodeNamespace(b); err == nil {
			if back, err := DecodeNamespace(n.Append(nil)); err != nil || back != n {
				t.Errorf("got %+v, %v, want %+v", back, err, n)
			}
		}
		if s, err := DecodeState(b); err == nil {
			if back, err := DecodeState(s.Append(nil)); err != nil || back != s {
				t.Errorf("got %+v, %v, want %+v", back, err, s)
			}
		}
	})
}

// Packed states come back as they were packed; damaged ones are refused.
func FuzzPacked(f *testing.F) {
	states := AppendPacked(nil, []byte("a"), &Entry{Type: osier.KVPlain, Version: 3, Deadline: 9, Value: []byte("v")}, true, 5)
	states = AppendPacked(states, []byte("b"), &Entry{Version: 4}, true, 0)
	f.Add(AppendPackedNamespace(nil, "n", 2, states))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		err := ReadPacked(b, func(name string, p *Packed) error {
			again = AppendPackedNamespace(again, name, 1, AppendPacked(nil, p.Key, &p.Entry, p.Was, p.StoredDeadline))
			return nil
		})
		if err != nil {
			return
		}
		n := 0
		if err := ReadPacked(again, func(string, *Packed) error { n++; return nil }); err != nil {
			t.Errorf("packed again: %v", err)
		}
	})
}

// MapBase is rows in a map.
type MapBase map[string][]byte

// Get reads a row.
func (m MapBase) Get(key []byte) ([]byte, bool, error) {
	v, ok := m[string(key)]
	return v, ok, nil
}

// Scan reads rows in order, sorting all of them first.
func (m MapBase) Scan(lo, hi []byte, reverse bool, fn func(key, value []byte) bool) error {
	var own []string
	for k := range m {
		if k >= string(lo) && (hi == nil || bytes.Compare([]byte(k), hi) < 0) {
			own = append(own, k)
		}
	}
	slices.Sort(own)
	if reverse {
		slices.Reverse(own)
	}
	for _, k := range own {
		if !fn([]byte(k), m[k]) {
			break
		}
	}
	return nil
}
