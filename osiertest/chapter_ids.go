package osiertest

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/osierdb/osier"
)

func idTests() []test {
	return []test{
		{"ids of every key type list in the order of their values", idOrder},
		{"equal numbers of different types are one id", func(x *tc) {
			x.insert(1, "one")
			for _, same := range []any{int8(1), uint64(1), 1.0, float32(1), int64(1)} {
				x.same(fmt.Sprintf("%T", same), x.title(x.db, same), "one")
				_, err := films.InsertWithID(x.ctx, x.db, same, film{})
				x.kind(err, osier.KindConflict)
			}
			_, err := films.Get(x.ctx, x.db, "1")
			x.kind(err, osier.KindNotFound)
		}},
		{"ids come back as the values they were", func(x *tc) {
			at := time.Date(2024, 2, 29, 12, 30, 0, 123456789, time.UTC)
			values := []any{true, int64(-5), 2.5, uint64(math.MaxUint64), at, "a\x00b", []byte{0, 0xff}, osier.Tuple{"a", int64(1), osier.Tuple{true}}}
			for _, v := range values {
				x.insert(v, fmt.Sprint(v))
			}
			var got []any
			for _, d := range collect(x, films.List(x.ctx, x.db, nil)) {
				got = append(got, d.ID.Value())
			}
			x.same("values", got, values)
			uuid := osier.UUID{1, 2, 3, 0, 255}
			doc := x.insert(uuid, "uuid")
			back, ok := doc.ID.UUID()
			if !ok || back != uuid {
				x.Fatalf("got %x, want %x", back, uuid)
			}
		}},
		{"ids with zero bytes, slashes and other letters are kept apart", func(x *tc) {
			odd := []string{"a", "a\x00", "a\x00\x00", "a\x00b", "a/b", "a/", "/", " ", "a%2Fb", "é", "e\u0301", "😀", "\xff", "_design/x", "日本"}
			for _, id := range odd {
				x.insert(id, id)
			}
			for _, id := range odd {
				x.same("title of "+id, x.title(x.db, id), strings.ToValidUTF8(id, "\ufffd"))
			}
			n, err := films.Count(x.ctx, x.db)
			x.must(err)
			x.same("count", n, uint64(len(odd)))
		}},
		{"a prefix of a string or tuple finds what begins with it, no more", idPrefixes},
		{"an id must not be empty, nor longer than MaxIDBytes", func(x *tc) {
			for _, bad := range []any{"", osier.ID{}, struct{}{}, map[string]int{}} {
				_, err := films.InsertWithID(x.ctx, x.db, bad, film{})
				x.kind(err, osier.KindInvalid)
				_, err = films.Get(x.ctx, x.db, bad)
				x.kind(err, osier.KindInvalid)
			}
			longest := strings.Repeat("x", osier.MaxIDBytes-2) // a string takes two bytes more
			x.insert(longest, "long")
			x.same("title", x.title(x.db, longest), "long")
			_, err := films.InsertWithID(x.ctx, x.db, longest+"x", film{})
			x.kind(err, osier.KindTooLarge)
		}},
	}
}

// idOrder inserts values of each type, mixed up, and lists them.
func idOrder(x *tc) {
	day := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	ordered := []any{
		false, true,
		math.Inf(-1), new(big.Int).Neg(huge), -1e20, int64(math.MinInt64), int32(math.MinInt32), -300.5, -300, int8(-128), -2, -1.5, -1, -0.1, -math.SmallestNonzeroFloat64,
		0, math.SmallestNonzeroFloat64, 0.1, 1, 1.5, uint8(2), 255, uint16(256), 257.25, int32(math.MaxInt32), uint32(math.MaxUint32), int64(1) << 53, int64(1)<<53 + 1, int64(math.MaxInt64), uint64(math.MaxUint64), huge, math.Inf(1),
		time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(-1, 5), time.Unix(0, 0), day, day.Add(time.Nanosecond), day.Add(time.Hour),
		"\x00", "\x00a", "A", "Z", "a", "a\x00", "a\x00b", "aa", "b", "z", "é", "\xff",
		[]byte{}, []byte{0}, []byte{0, 0}, []byte{0, 1}, []byte{1}, osier.UUID{1, 0}, []byte{0xff}, []byte{0xff, 0},
		osier.Tuple{}, osier.Tuple{false}, osier.Tuple{-1, "z"}, osier.Tuple{1}, osier.Tuple{1, "a"}, osier.Tuple{1, "a\x00"}, osier.Tuple{1, "b"}, osier.Tuple{2}, osier.Tuple{"a", 1}, osier.Tuple{"a", osier.Tuple{1}}, osier.Tuple{"b"},
	}
	step := 37 // has no factor in common with the number of values
	for len(ordered)%step == 0 {
		step++
	}
	for i := range ordered {
		at := i * step % len(ordered)
		x.insert(ordered[at], fmt.Sprint(at))
	}
	var want, got []string
	for i, v := range ordered {
		want = append(want, fmt.Sprint(i))
		// Each is found by itself too, and bounds a range from itself on.
		x.same(fmt.Sprintf("title of %T %v", v, v), x.title(x.db, v), fmt.Sprint(i))
		for _, d := range collect(x, films.List(x.ctx, x.db, &osier.ListOptions{From: v, Limit: 1})) {
			x.same("first from itself on", d.Value.Title, fmt.Sprint(i))
		}
	}
	for _, d := range collect(x, films.List(x.ctx, x.db, nil)) {
		got = append(got, d.Value.Title)
	}
	x.same("order", got, want)
}

func idPrefixes(x *tc) {
	for _, id := range []any{"a", "ab", "ab\x00", "ab\xff", "abc", "ac", "b",
		osier.Tuple{"ab"}, osier.Tuple{"ab", 1}, osier.Tuple{"ab", 1, "x"}, osier.Tuple{"ab", 2}, osier.Tuple{"abc", 1}, osier.Tuple{1}} {
		x.insert(id, fmt.Sprintf("%q", fmt.Sprint(id)))
	}
	cases := []struct {
		prefix any
		want   []any
	}{
		{"ab", []any{"ab", "ab\x00", "abc", "ab\xff"}},
		{"abc", []any{"abc"}},
		{"x", nil},
		{osier.Tuple{"ab"}, []any{osier.Tuple{"ab"}, osier.Tuple{"ab", 1}, osier.Tuple{"ab", 1, "x"}, osier.Tuple{"ab", 2}}},
		{osier.Tuple{"ab", 1}, []any{osier.Tuple{"ab", 1}, osier.Tuple{"ab", 1, "x"}}},
	}
	for _, c := range cases {
		for _, reverse := range []bool{false, true} {
			var got, want []osier.ID
			for _, d := range collect(x, films.List(x.ctx, x.db, &osier.ListOptions{Prefix: c.prefix, Reverse: reverse})) {
				got = append(got, d.ID)
			}
			for _, id := range c.want {
				want = append(want, osier.MustID(id))
			}
			if reverse {
				slices.Reverse(want)
			}
			x.same(fmt.Sprintf("prefix %v, reverse %v", c.prefix, reverse), got, want)
		}
	}
}
