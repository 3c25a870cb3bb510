package pocket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type shape interface{ area() int }

type square struct{ Side int }

func (s square) area() int { return s.Side * s.Side }

type circle struct{ Radius int }

func (c *circle) area() int { return 3 * c.Radius * c.Radius }

type label string

func mustGet[T comparable](t *testing.T, from Reader, key string, want T) {
	t.Helper()
	got, err := Get[T](from, key)
	if err != nil || got != want {
		t.Errorf("get %q as %T: got %v, %v; want %v", key, want, got, err, want)
	}
}

// Plain values need no registration and come back as whatever kind fits.
func TestPlainValues(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, nil)
	values := map[string]any{
		"text": "some text", "escaped": "a\"b\\c\nd\x01é<&>", "empty": "", "true": true, "false": false,
		"int": 42, "negative": int64(math.MinInt64), "big": uint64(math.MaxUint64), "float": 1.5e300,
		"float32": float32(0.1), "label": label("l"), "number": json.Number("1e2"), "raw": json.RawMessage(` "x" `),
	}
	for k, v := range values {
		mustSave(t, s, k, v)
	}
	for range 2 {
		mustGet(t, s, "text", "some text")
		mustGet(t, s, "text", label("some text"))
		mustGet[any](t, s, "text", "some text")
		mustGet(t, s, "escaped", "a\"b\\c\nd\x01é<&>")
		mustGet(t, s, "empty", "")
		mustGet(t, s, "true", true)
		mustGet(t, s, "false", false)
		mustGet(t, s, "int", 42)
		mustGet(t, s, "int", 42.0)
		mustGet(t, s, "int", int8(42))
		mustGet[any](t, s, "int", 42.0)
		mustGet(t, s, "negative", int64(math.MinInt64))
		mustGet(t, s, "big", uint64(math.MaxUint64))
		mustGet(t, s, "float", 1.5e300)
		mustGet(t, s, "float32", float32(0.1))
		mustGet(t, s, "label", label("l"))
		mustGet(t, s, "number", 100.0)
		mustGet(t, s, "raw", "x")
		mustGet(t, s, "raw", Raw{JSON: `"x"`})
		for key, f := range map[string]func() error{
			"text":  func() error { _, err := Get[int](s, "text"); return err },
			"int":   func() error { _, err := Get[string](s, "int"); return err },
			"true":  func() error { _, err := Get[float64](s, "true"); return err },
			"float": func() error { _, err := Get[int](s, "float"); return err },
			"empty": func() error { _, err := Get[entity](s, "empty"); return err },
		} {
			if err := f(); !errors.Is(err, ErrType) || !strings.Contains(err.Error(), key) {
				t.Errorf("get %q as something else: %v", key, err)
			}
		}
		mustClose(t, s)
		s = mustOpen(t, path, nil)
	}
	for _, bad := range []any{math.NaN(), math.Inf(1), "\xff", []int{1}, map[string]int{}, entity{}, struct{}{},
		make(chan int), func() {}, json.Number("x"), json.Number(""), json.RawMessage(`{}`), json.RawMessage(`null`), Raw{JSON: "nul"},
		Raw{Type: "\xff", JSON: "1"}} {
		if err := s.Save("bad", bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("save %T %v: %v", bad, bad, err)
		}
	}
	if Has(s, "bad") {
		t.Error("something bad was saved")
	}
}

// Registered types come back as themselves, as pointers, as interfaces they
// implement, and only as those.
func TestRegisteredTypes(t *testing.T) {
	path := tempPath(t)
	o := &Options{Types: []Type{TypeOf[square]("Square"), TypeOf[circle]("Circle"), TypeOf[map[string]int]("Counts")}}
	s := mustOpen(t, path, o)
	mustSave(t, s, "s", square{3})
	mustSave(t, s, "c", &circle{2})
	mustSave(t, s, "m", map[string]int{"a": 1})
	mustSave(t, s, "text", "t")
	for range 2 {
		for range 2 { // decoded, then from the cache
			mustGet(t, s, "s", square{3})
			mustGet(t, s, "c", circle{2})
			if p, err := Get[*circle](s, "c"); err != nil || *p != (circle{2}) {
				t.Errorf("pointer: %v, %v", p, err)
			}
			if m, err := Get[map[string]int](s, "m"); err != nil || m["a"] != 1 {
				t.Errorf("map: %v, %v", m, err)
			}
			areas := map[string]int{}
			for k, sh := range Scan[shape](s, All()) {
				areas[k] = sh.area()
			}
			if fmt.Sprint(areas) != "map[c:12 s:9]" {
				t.Errorf("areas: %v", areas)
			}
			if v, err := Get[any](s, "s"); err != nil || v != any(square{3}) {
				t.Errorf("any: %v, %v", v, err)
			}
		}
		if _, err := Get[circle](s, "s"); !errors.Is(err, ErrType) {
			t.Errorf("square as circle: %v", err)
		}
		if _, err := Get[shape](s, "m"); !errors.Is(err, ErrType) {
			t.Errorf("map as shape: %v", err)
		}
		if _, err := Get[string](s, "s"); !errors.Is(err, ErrType) {
			t.Errorf("square as text: %v", err)
		}
		mustClose(t, s)
		s = mustOpen(t, path, o)
	}
	mustSave(t, s, "s", Raw{Type: "Square", JSON: "{\n\"Side\": \"three\"\n}"})
	if _, err := Get[square](s, "s"); !errors.Is(err, ErrType) {
		t.Errorf("a value that does not fit: %v", err)
	}
	if n := len(plainDump(s)); n != 4 {
		t.Errorf("%d records", n)
	}
	for _, bad := range [][]Type{{{}}, {TypeOf[int]("")}, {TypeOf[int]("A"), TypeOf[bool]("A")}, {TypeOf[int]("A"), TypeOf[int]("B")}} {
		if _, err := Open(tempPath(t), &Options{Types: bad}); !errors.Is(err, ErrInvalid) {
			t.Errorf("types %v: %v", bad, err)
		}
	}
}

// Conditions: by value, by version and on absence, over several keys, all or
// nothing.
func TestConditions(t *testing.T) {
	s := mustOpen(t, tempPath(t), testOptions())
	v1, err := s.Update("a", Absent(), entity{"1"})
	if err != nil {
		t.Fatal(err)
	}
	v2, err := s.Update("a", At(v1), entity{"2"})
	if err != nil || v2 <= v1 {
		t.Fatalf("update by version: %d, %v", v2, err)
	}
	if _, err := s.Update("a", At(v1), entity{"x"}); !errors.Is(err, ErrConflict) {
		t.Fatalf("update by an old version: %v", err)
	}
	if _, err := s.Update("a", Equals(entity{"2"}), entity{"3"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update("a", Equals("2"), entity{"x"}); !errors.Is(err, ErrConflict) {
		t.Fatalf("update by a value of another type: %v", err)
	}
	// By what a value written with other spaces means.
	mustSave(t, s, "a", Raw{Type: "Entity", JSON: `{ "body" : "3" }`})
	if _, err := s.Update("a", Equals(entity{"3"}), entity{"4"}); err != nil {
		t.Fatal(err)
	}
	mustSave(t, s, "b", "b")
	_, err = s.SaveAll(
		Change{Key: "a", If: Equals(entity{"4"}), Value: entity{"5"}},
		Change{Key: "b", If: Equals("wrong"), Check: true},
		Change{Key: "c", If: Absent(), Value: "c"})
	conflict, ok := errors.AsType[*ConflictError](err)
	if !ok || conflict.Key != "b" || Has(s, "c") {
		t.Fatalf("several keys: %v", err)
	}
	mustGet(t, s, "a", entity{"4"})
	if _, err := s.SaveAll(
		Change{Key: "a", If: Equals(entity{"4"}), Value: nil},
		Change{Key: "b", If: Equals("b"), Check: true},
		Change{Key: "c", If: Absent(), Value: "c"}); err != nil {
		t.Fatal(err)
	}
	if Has(s, "a") || !Has(s, "c") {
		t.Fatal("a transaction was not done")
	}
	got, swapped, err := Swap(s, "c", Equals("x"), "y")
	if err != nil || swapped || got.Value != "c" || got.Version == 0 {
		t.Fatalf("swap that fails: %+v, %v, %v", got, swapped, err)
	}
	got, swapped, err = Swap(s, "c", At(got.Version), "y")
	if err != nil || !swapped || got.Value != "y" {
		t.Fatalf("swap: %+v, %v, %v", got, swapped, err)
	}
	item, err := Lookup[string](s, "c")
	if err != nil || item != got {
		t.Fatalf("lookup: %+v, %v; want %+v", item, err, got)
	}
	if v, err := s.SaveAll(); v != 0 || err != nil {
		t.Fatalf("nothing to save: %d, %v", v, err)
	}
}

// Many goroutines that count with compare-and-swap lose no step, in every
// durability mode, so also within groups that share a flush.
func TestConcurrentConditions(t *testing.T) {
	for _, d := range []Durability{Synced, Delayed, Cached} {
		t.Run(d.String(), func(t *testing.T) {
			o := &Options{Durability: d}
			s := mustOpen(t, tempPath(t), o)
			mustSave(t, s, "n", 0)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 25 {
						for {
							it, err := Lookup[int](s, "n")
							if err != nil {
								t.Error(err)
								return
							}
							if _, err = s.Update("n", At(it.Version), it.Value+1); err == nil {
								break
							} else if !errors.Is(err, ErrConflict) {
								t.Error(err)
								return
							}
						}
					}
				})
			}
			wg.Wait()
			mustGet(t, s, "n", 200)
			check(t, s)
		})
	}
}

// Readers see whole transactions: within one snapshot, one iteration, and from
// one Get to the next.
func TestWholeTransactions(t *testing.T) {
	for _, d := range []Durability{Synced, Cached} {
		t.Run(d.String(), func(t *testing.T) {
			o := testOptions()
			o.Durability = d
			s := mustOpen(t, tempPath(t), o)
			const keys = 40
			save := func(i int) {
				var cs []Change
				for k := range keys {
					// Some keys come and go, so that the tree changes its shape.
					if k%5 == 4 && i%2 == 1 {
						cs = append(cs, Change{Key: fmt.Sprintf("k%02d", k)})
					} else {
						cs = append(cs, Change{Key: fmt.Sprintf("k%02d", k), Value: i})
					}
				}
				if _, err := s.SaveAll(cs...); err != nil {
					t.Error(err)
				}
			}
			save(0)
			var done atomic.Bool
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { readWhole(t, s, keys, &done) })
			}
			rounds := 3000
			if d == Synced || testing.Short() {
				rounds = 100
			}
			for i := range rounds {
				save(i + 1)
				if i%500 == 250 {
					if err := s.Rewrite(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
			done.Store(true)
			wg.Wait()
			check(t, s)
		})
	}
}

func readWhole(t *testing.T, s *Store, keys int, done *atomic.Bool) {
	for !done.Load() {
		n, first := 0, -1
		for k, v := range Prefix[int](s, "k") {
			if first < 0 {
				first = v
			}
			if v != first {
				t.Errorf("iteration sees %d and, under %s, %d", first, k, v)
				return
			}
			n++
		}
		if want := keys - first%2*keys/5; n != want {
			t.Errorf("iteration over state %d sees %d keys, want %d", first, n, want)
			return
		}
		sn := s.Snapshot()
		a, err1 := Get[int](sn, "k00")
		b, err2 := Get[int](sn, "k38")
		if a != b || err1 != nil || err2 != nil {
			t.Errorf("snapshot sees %d and %d: %v, %v", a, b, err1, err2)
			return
		}
		a, err1 = Get[int](s, "k38")
		b, err2 = Get[int](s, "k00")
		if b < a || err1 != nil || err2 != nil {
			t.Errorf("after state %d, a get sees state %d: %v, %v", a, b, err1, err2)
			return
		}
	}
}

// The arena's garbage is cleaned while snapshots hold on to it.
func TestCleaning(t *testing.T) {
	s := mustOpen(t, tempPath(t), testOptions())
	text := strings.Repeat("x", 2000)
	for i := range 1000 {
		mustSave(t, s, fmt.Sprintf("k%04d", i), text+fmt.Sprint(i))
	}
	sn := s.Snapshot()
	for i := range 20_000 {
		mustSave(t, s, fmt.Sprintf("k%04d", i%500), text+fmt.Sprint(i))
		if i%1000 == 999 {
			if err := s.Delete(fmt.Sprintf("k%04d", 500+i/1000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	check(t, s)
	if got := s.Stats().MemoryBytes; got > 14<<20 {
		t.Errorf("%d bytes of memory for 2 MB of records", got)
	}
	n := 0
	for k, v := range Scan[string](sn, All()) {
		if k != fmt.Sprintf("k%04d", n) || v != text+fmt.Sprint(n) {
			t.Fatalf("snapshot changed at %s", k)
		}
		n++
	}
	if n != 1000 || Count(s, All()) != 980 {
		t.Fatalf("%d in the snapshot, %d now", n, Count(s, All()))
	}
	mustGet(t, s, "k0499", text+"19999")
}

// What is not in memory any more is not in the cache of decoded values.
func TestCacheLimit(t *testing.T) {
	o := testOptions()
	o.MaxDecoded = 10
	s := mustOpen(t, tempPath(t), o)
	for round := range 3 {
		for i := range 30 {
			mustSave(t, s, fmt.Sprint(i), entity{fmt.Sprint(i, round)})
		}
		for range 2 {
			for i := range 30 {
				mustGet(t, s, fmt.Sprint(i), entity{fmt.Sprint(i, round)})
			}
		}
		if n := s.Stats().Decoded; n != 10 {
			t.Fatalf("%d decoded values, want 10", n)
		}
	}
	if err := s.Delete("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Decoded; n != 0 {
		t.Fatalf("%d decoded values after deleting them", n)
	}
}

// Gets allocate nothing.
func TestGetAllocatesNothing(t *testing.T) {
	s := mustOpen(t, tempPath(t), testOptions())
	mustSave(t, s, "text", "text")
	mustSave(t, s, "int", 7)
	mustSave(t, s, "typed", entity{"x"})
	mustGet(t, s, "typed", entity{"x"})
	if n := testing.AllocsPerRun(100, func() {
		mustGet(t, s, "text", "text")
		mustGet(t, s, "int", 7)
		mustGet(t, s, "typed", entity{"x"})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// One writer; its pid is in the error of the second.
func TestLock(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, nil)
	_, err := Open(path, nil)
	locked, ok := errors.AsType[*LockedError](err)
	if !ok || locked.PID != os.Getpid() || !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatalf("second writer: %v", err)
	}
	if _, err := RepairFile(context.Background(), path); !errors.Is(err, ErrLocked) {
		t.Fatalf("repair beside a writer: %v", err)
	}
	mustClose(t, s)
	s = mustOpen(t, path, nil)
	mustClose(t, s)
	if left, _ := filepath.Glob(path + "*"); len(left) != 1 {
		t.Fatalf("files left: %v", left)
	}
}

// Close is final, can be repeated, and honours its context.
func TestClose(t *testing.T) {
	s := mustOpen(t, tempPath(t), testOptions())
	mustSave(t, s, "a", 1)
	s.rewriting.Lock() // as a long rewrite would
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("close with an ended context: %v", err)
	}
	s.rewriting.Unlock()
	mustClose(t, s)
	mustClose(t, s)
	for name, err := range map[string]error{"save": s.Save("b", 1), "sync": s.Sync(), "rewrite": s.Rewrite(context.Background())} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
	mustGet(t, s, "a", 1)
}

// Options that make no sense are refused.
func TestBadOptions(t *testing.T) {
	for _, o := range []*Options{{Durability: 7}, {Durability: -1}, {SyncEvery: -time.Second}} {
		if _, err := Open(tempPath(t), o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none", "x"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such folder: %v", err)
	}
	if _, err := Open(tempPath(t), &Options{ReadOnly: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("read-only without a file: %v", err)
	}
}

func TestRangingAllocatesNothing(t *testing.T) {
	s := mustOpen(t, tempPath(t), testOptions())
	for i := range 10 {
		mustSave(t, s, fmt.Sprintf("text/%d", i), "text")
	}
	n := 0
	if allocs := testing.AllocsPerRun(100, func() {
		for _, v := range Prefix[string](s, "text/") {
			n += len(v)
		}
		for _, v := range Range[string](s, "text/1", "text/5") {
			n += len(v)
		}
		for _, r := range Scan[Record](s, All()) {
			n += len(r.JSON())
		}
		for _, r := range Reverse[Record](s, All()) {
			n += len(r.JSON())
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if n == 0 {
		t.Error("nothing was read")
	}
}
