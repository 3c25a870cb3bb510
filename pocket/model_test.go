package pocket

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// modelKeys come close to each other and to the edges: empty, with NULs,
// sharing their first eight bytes, above ASCII.
func modelKeys() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "a\x00", "a\x00b", "val", "$type", "key", `q"uote\`, "\n", "ü", "日本語", "\U0010ffff"}),
		rapid.Map(rapid.IntRange(0, 400), func(i int) string { return fmt.Sprintf("prefix-%d", i) }),
		rapid.Map(rapid.IntRange(0, 400), func(i int) string { return fmt.Sprint(i) }),
	)
}

func modelValues() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Map(rapid.StringN(0, 8, 20), func(s string) any { return strings.ToValidUTF8(s, "?") }),
		rapid.Map(rapid.Int(), func(i int) any { return i }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.IntRange(0, 3000), func(i int) any { return entity{strings.Repeat("x", i)} }),
	)
}

type modelRecord struct {
	value   any
	version Version
}

// model is the simplest thing that does what a store promises.
type model struct {
	records map[string]modelRecord
	old     []modelSnapshot
}

type modelSnapshot struct {
	sn   *Snapshot
	want []string
}

func (m *model) keys() []string { return slices.Sorted(maps.Keys(m.records)) }

func (m *model) apply(changes []Change, v Version) {
	for _, c := range changes {
		if c.Check {
			continue
		}
		if c.Value == nil {
			delete(m.records, c.Key)
		} else {
			m.records[c.Key] = modelRecord{c.Value, v}
		}
	}
}

func (m *model) holds(c Change) bool {
	r, ok := m.records[c.Key]
	switch c.If.kind {
	case condAbsent:
		return !ok
	case condVersion:
		return ok && r.version == c.If.version
	case condValue:
		return ok && r.value == c.If.value
	}
	return true
}

func (m *model) condition(t *rapid.T, key string) Condition {
	r, ok := m.records[key]
	switch rapid.IntRange(0, 6).Draw(t, "condition") {
	case 0:
		return Absent()
	case 1:
		return At(Version(rapid.IntRange(1, 50).Draw(t, "version")))
	case 2:
		return Equals(modelValues().Draw(t, "old"))
	case 3:
		if ok {
			return At(r.version)
		}
	case 4:
		if ok {
			return Equals(r.value)
		}
	}
	return Condition{}
}

func (m *model) compare(t *rapid.T, s *Store) {
	keys := m.keys()
	var got []string
	for k, r := range Scan[Record](s, All()) {
		got = append(got, k)
		want := m.records[k]
		v, err := ValueOf[any](r)
		if err != nil || r.Version() != want.version || !sameModelValue(v, want.value) {
			t.Fatalf("record %q: got %v version %d, %v; want %v version %d", k, v, r.Version(), err, want.value, want.version)
		}
	}
	if !slices.Equal(got, keys) {
		t.Fatalf("keys: got %q, want %q", got, keys)
	}
	for _, o := range m.old {
		if got := dump(o.sn); !slices.Equal(got, o.want) {
			t.Fatalf("snapshot %d changed: got %q, want %q", o.sn.Version(), got, o.want)
		}
	}
}

func sameModelValue(got, want any) bool {
	if i, ok := want.(int); ok {
		f, ok := got.(float64)
		return ok && f == float64(i)
	}
	return got == want
}

// A store does what a map does, whatever is asked of it in whatever order, and
// also after it was rewritten, compressed and opened again.
func TestModel(t *testing.T) {
	for _, d := range []Durability{Cached, Synced} {
		t.Run(d.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { runModel(t, rt, d) })
		})
	}
}

func runModel(t *testing.T, rt *rapid.T, d Durability) {
	path := tempPath(t)
	o := testOptions()
	o.Durability = d
	if d == Synced {
		o.fs = newCrashFS() // without a disk to wait for
		path = "/model.pocket"
	}
	s, err := Open(path, o)
	if err != nil {
		rt.Fatal(err)
	}
	defer func() { s.Close(context.Background()) }()
	m := &model{records: map[string]modelRecord{}}
	rt.Repeat(map[string]func(*rapid.T){
		"save": func(rt *rapid.T) {
			m.save(rt, s)
		},
		"get": func(rt *rapid.T) {
			key := modelKeys().Draw(rt, "key")
			got, err := Lookup[any](s, key)
			want, ok := m.records[key]
			if ok != (err == nil) || ok && (got.Version != want.version || !sameModelValue(got.Value, want.value)) {
				rt.Fatalf("get %q: got %v, %v; want %v, %v", key, got, err, want, ok)
			}
		},
		"range": func(rt *rapid.T) {
			a, b := modelKeys().Draw(rt, "from"), modelKeys().Draw(rt, "to")
			compareSpan(rt, s, m, Between(a, b))
			compareSpan(rt, s, m, WithPrefix(a))
			compareSpan(rt, s, m, From(b))
		},
		"snapshot": func(rt *rapid.T) {
			sn := s.Snapshot()
			m.old = append(m.old, modelSnapshot{sn, dump(sn)})
			if len(m.old) > 3 {
				m.old = m.old[1:]
			}
		},
		"rewrite": func(rt *rapid.T) {
			if err := s.Rewrite(context.Background()); err != nil {
				rt.Fatal(err)
			}
		},
		"reopen": func(rt *rapid.T) {
			if err := s.Close(context.Background()); err != nil {
				rt.Fatal(err)
			}
			o.Compress = rapid.Bool().Draw(rt, "compress")
			var err error
			if s, err = Open(path, o); err != nil {
				rt.Fatal(err)
			}
			if r := s.Report(); !r.Clean() {
				rt.Fatalf("report after reopen: %+v", r)
			}
		},
		"": func(rt *rapid.T) {
			m.compare(rt, s)
			check(t, s)
		},
	})
}

// save does a transaction on both.
func (m *model) save(rt *rapid.T, s *Store) {
	n := rapid.SampledFrom([]int{1, 1, 1, 2, 5, 40, 300}).Draw(rt, "n")
	var changes []Change
	for range n {
		c := Change{Key: modelKeys().Draw(rt, "key")}
		c.If = m.condition(rt, c.Key)
		switch rapid.IntRange(0, 5).Draw(rt, "kind") {
		case 0: // delete
		case 1:
			c.Check = true
		default:
			c.Value = modelValues().Draw(rt, "value")
		}
		if n > 5 {
			c.If = Condition{} // or hardly any transaction would succeed
		}
		changes = append(changes, c)
	}
	want := !slices.ContainsFunc(changes, func(c Change) bool { return !m.holds(c) })
	v, err := s.SaveAll(changes...)
	if want != (err == nil) || err != nil && !errors.Is(err, ErrConflict) {
		rt.Fatalf("save %v: got error %v, want success %v", changes, err, want)
	}
	if err == nil {
		m.apply(changes, v)
	}
}

func compareSpan(rt *rapid.T, s *Store, m *model, sp Span) {
	var want, got []string
	for _, k := range m.keys() {
		if sp.Contains(k) {
			want = append(want, k)
		}
	}
	for k := range Scan[Record](s, sp) {
		got = append(got, k)
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("scan %+v: got %q, want %q", sp, got, want)
	}
	if n := Count(s, sp); n != len(want) {
		rt.Fatalf("count %+v: got %d, want %d", sp, n, len(want))
	}
	got = nil
	for k := range Reverse[Record](s, sp) {
		got = append(got, k)
	}
	slices.Reverse(want)
	if !slices.Equal(got, want) {
		rt.Fatalf("reverse %+v: got %q, want %q", sp, got, want)
	}
}
