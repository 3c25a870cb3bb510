package osier

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMadeIdsIncreaseWhateverTheClockDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s IDSource
		last := ""
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			at := time.UnixMilli(rapid.Int64Range(0, 1<<43).Draw(t, "millis"))
			id := s.Next(at)
			if len(id) != 16 || id <= last {
				t.Fatalf("made %q after %q", id, last)
			}
			last = id
		}
	})
}

func TestMadeIdsAreDifferentAcrossGoroutines(t *testing.T) {
	var s IDSource
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var own []string
			for range 2000 {
				own = append(own, s.Next(time.UnixMilli(5)))
			}
			mu.Lock()
			defer mu.Unlock()
			for _, id := range own {
				if seen[id] {
					t.Errorf("%q was made twice", id)
				}
				seen[id] = true
			}
		})
	}
	wg.Wait()
}

func TestMadeIdsSortByTheTimeTheyWereMade(t *testing.T) {
	times := []int64{0, 1, 999, 1_700_000_000_000, 1_700_000_000_001, 17_000_000_000_000}
	var ids []string
	for _, ms := range times {
		var s IDSource // of its own each, so that only the time orders them
		ids = append(ids, s.Next(time.UnixMilli(ms)))
	}
	if !slices.IsSorted(ids) {
		t.Errorf("not in order of time: %q", ids)
	}
}

func TestIdsKeepTheirValues(t *testing.T) {
	when := time.Date(2026, 3, 1, 12, 30, 0, 5, time.FixedZone("x", 3600))
	for _, c := range []struct {
		in, want any
		text     string
	}{
		{"a/b", "a/b", "a/b"},
		{"nul\x00byte", "nul\x00byte", ""},
		{42, int64(42), "42"},
		{int8(-7), int64(-7), "-7"},
		{uint64(1 << 63), uint64(1 << 63), "9223372036854775808"},
		{2.5, 2.5, "2.5"},
		{3.0, int64(3), "3"},
		{true, true, "true"},
		{when, when.UTC(), ""},
		{Tuple{"oslo", 9}, Tuple{"oslo", int64(9)}, "oslo/9"},
	} {
		id, err := IDOf(c.in)
		if err != nil {
			t.Errorf("%v: %v", c.in, err)
			continue
		}
		if got := id.Value(); !equal(got, c.want) {
			t.Errorf("%v: value %v (%T), want %v", c.in, got, got, c.want)
		}
		if c.text != "" && id.String() != c.text {
			t.Errorf("%v: text %q, want %q", c.in, id, c.text)
		}
		if again, err := DecodeID(id.Encoded()); err != nil || again != id {
			t.Errorf("%v: decoded %v, %v", c.in, again, err)
		}
	}
	for _, bad := range []any{"", struct{}{}, map[string]int{}, make(chan int)} {
		if id, err := IDOf(bad); KindOf(err) != KindInvalid {
			t.Errorf("%T: got %v, %v; want an error of kind invalid", bad, id, err)
		}
	}
	if _, err := IDOf(string(make([]byte, MaxIDBytes))); KindOf(err) != KindTooLarge {
		t.Errorf("a long id: %v, want kind too large", err)
	}
}

func equal(a, b any) bool {
	x, ok := a.(Tuple)
	if !ok {
		return a == b
	}
	y, _ := b.(Tuple)
	return slices.EqualFunc(x, y, equal)
}

func FuzzDecodeID(f *testing.F) {
	f.Add(MustID("a").Encoded())
	f.Add(MustID(Tuple{1, "x"}).Encoded())
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := DecodeID(b)
		if err != nil {
			return
		}
		if string(id.Encoded()) != string(b) {
			t.Errorf("decoded %x, encoded %x", b, id.Encoded())
		}
		_ = id.String()
	})
}

func TestRevisionsKeepTheirTextAndOrder(t *testing.T) {
	for _, s := range []string{"1-967a00dff5e02add41819138abb3284d", "1-x", "2-aaa", "12-abcdefghijklmnop"} {
		r, err := ParseRev(s)
		if err != nil || r.String() != s {
			t.Errorf("%s: got %v, %v", s, r, err)
		}
		digest, text := r.Digest()
		if again := RevOf(r.Generation(), digest, text); again != r {
			t.Errorf("%s: put together again %v", s, again)
		}
	}
	upper, _ := ParseRev("1-967A00DFF5E02ADD41819138ABB3284D")
	if upper.String() != "1-967a00dff5e02add41819138abb3284d" {
		t.Errorf("upper case: %v", upper)
	}
	for _, s := range []string{"x", "1", "1-", "-1-a", "0-a", "+1-a", "1-\x00", "99999999999999999999-a"} {
		if r, err := ParseRev(s); KindOf(err) != KindInvalid {
			t.Errorf("%q: got %v, %v", s, r, err)
		}
	}
	order := []string{"1-b", "1-c", "2-a", "10-a"}
	for i := range order[1:] {
		a, _ := ParseRev(order[i])
		b, _ := ParseRev(order[i+1])
		if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
			t.Errorf("order of %v and %v", a, b)
		}
	}
}
