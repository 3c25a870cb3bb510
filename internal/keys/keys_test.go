package keys

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// compareValues is the judge of the encoding: it compares values as the package's
// documentation says, number by number as fractions, without any bytes of keys.
func compareValues(a, b any) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch x := a.(type) {
	case nil:
		return 0
	case bool:
		if x == b.(bool) {
			return 0
		}
		if x {
			return 1
		}
		return -1
	case time.Time:
		return x.Compare(b.(time.Time))
	case string:
		return strings.Compare(x, b.(string))
	case []byte:
		return bytes.Compare(x, b.([]byte))
	case Tuple:
		return slices.CompareFunc(x, b.(Tuple), compareValues)
	case Object:
		return slices.CompareFunc(x, b.(Object), func(m, n Member) int {
			return cmp.Or(strings.Compare(m.Name, n.Name), compareValues(m.Value, n.Value))
		})
	}
	return compareNumbers(a, b)
}

func rank(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case bool:
		return 1
	case time.Time:
		return 3
	case string:
		return 4
	case []byte:
		return 5
	case Tuple:
		return 6
	case Object:
		return 7
	}
	return 2
}

// compareNumbers compares by class (NaN, -Inf, finite, Inf), then as fractions.
func compareNumbers(a, b any) int {
	x, classA := fraction(a)
	y, classB := fraction(b)
	if classA != classB || x == nil {
		return cmp.Compare(classA, classB)
	}
	return x.Cmp(y)
}

func fraction(v any) (*big.Rat, int) {
	switch v := v.(type) {
	case int64:
		return new(big.Rat).SetInt64(v), 2
	case uint64:
		return new(big.Rat).SetUint64(v), 2
	case *big.Int:
		return new(big.Rat).SetInt(v), 2
	case float64:
		switch {
		case math.IsNaN(v):
			return nil, 0
		case math.IsInf(v, -1):
			return nil, 1
		case math.IsInf(v, 1):
			return nil, 3
		}
		return new(big.Rat).SetFloat64(v), 2
	}
	panic(fmt.Sprintf("not a number: %T", v))
}

// A gen makes random values that are near to each other often enough.
type gen struct{ *rand.Rand }

func (g gen) integer() int64 {
	n := int64(g.Uint64()) >> g.IntN(64)
	return n + int64(g.IntN(3)-1)
}

func (g gen) float() float64 {
	switch g.IntN(6) {
	case 0:
		return float64(g.integer())
	case 1:
		return float64(g.integer()) + 0.5
	case 2:
		special := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64,
			math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64, 0x1p-1022, 0x0.8p-1022, 0x1p53, 0x1p63, 0x1p64, -0x1p63, 0x1p1023, 0.1}
		return special[g.IntN(len(special))]
	case 3:
		return math.Ldexp(g.Float64()-0.5, g.IntN(130)-65)
	case 4:
		return float64(math.Float32frombits(g.Uint32()))
	}
	return math.Float64frombits(g.Uint64())
}

func (g gen) big() *big.Int {
	n := big.NewInt(g.integer())
	size := 70
	if g.IntN(4) == 0 {
		size = 1100 // beyond float64, around where the form changes
	}
	n.Lsh(n, uint(g.IntN(size)))
	if g.IntN(2) == 0 {
		n.Mul(n, n).Mul(n, big.NewInt(int64(g.IntN(3)-1)))
	}
	return n.Add(n, big.NewInt(int64(g.IntN(5)-2)))
}

func (g gen) number() any {
	switch g.IntN(4) {
	case 0:
		return g.integer()
	case 1:
		return uint64(g.integer())
	case 2:
		return g.float()
	}
	return g.big()
}

func (g gen) text() []byte {
	b := make([]byte, g.IntN(7))
	for i := range b {
		b[i] = []byte{0, 0, 1, 2, 'a', 0xFE, 0xFF}[g.IntN(7)]
	}
	return b
}

func (g gen) time() time.Time {
	sec := g.integer() >> 8 // within what time.Time compares right
	return time.Unix(sec, int64(g.IntN(3))*499_999_999).In(time.FixedZone("", g.IntN(7200)))
}

func (g gen) value(depth int) any {
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch g.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return g.IntN(2) == 0
	case 2:
		return g.number()
	case 3:
		return g.time()
	case 4:
		return string(g.text())
	case 5:
		return g.text()
	case 6:
		t := Tuple{}
		for range g.IntN(4) {
			t = append(t, g.value(depth-1))
		}
		return t
	}
	o := Object{}
	for range g.IntN(3) {
		o = append(o, Member{Name: string(g.text()), Value: g.value(depth - 1)})
	}
	return o
}

// near returns v with one part of it changed, or a value that begins or ends like it.
func (g gen) near(v any) any {
	switch x := v.(type) {
	case string:
		return x + string(g.text())
	case []byte:
		return slices.Concat(x, g.text())
	case Tuple:
		x = slices.Clone(x)
		if len(x) > 0 && g.IntN(2) == 0 {
			i := g.IntN(len(x))
			x[i] = g.near(x[i])
			return x
		}
		return append(x, g.value(1))
	case Object:
		x = slices.Clone(x)
		if len(x) > 0 && g.IntN(2) == 0 {
			i := g.IntN(len(x))
			x[i].Value = g.near(x[i].Value)
			return x
		}
		return append(x, Member{Name: string(g.text()), Value: g.value(1)})
	case time.Time:
		return x.Add(time.Duration(g.IntN(3) - 1))
	case int64:
		if g.IntN(2) == 0 {
			return float64(x)
		}
		return new(big.Int).Add(big.NewInt(x), big.NewInt(int64(g.IntN(3)-1)))
	case float64:
		return math.Nextafter(x, g.float())
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f
	}
	return g.value(1)
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := Append(nil, v)
	if err != nil {
		t.Fatalf("Append(%v): %v", v, err)
	}
	return b
}

// checkPair compares the order of keys with that of values, and checks that neither key is a prefix of the other.
func checkPair(t *testing.T, seed uint64, a, b any) {
	t.Helper()
	x, y := encode(t, a), encode(t, b)
	want := compareValues(a, b)
	if got := bytes.Compare(x, y); got != want {
		t.Fatalf("seed %d: %T %v and %T %v: got %d, want %d\n%x\n%x", seed, a, a, b, b, got, want, x, y)
	}
	if want != 0 {
		if bytes.HasPrefix(x, y) || bytes.HasPrefix(y, x) {
			t.Fatalf("seed %d: the key of one of %T %v and %T %v is a prefix of the other\n%x\n%x", seed, a, a, b, b, x, y)
		}
	}
}

func checkRoundTrip(t *testing.T, seed uint64, v any) {
	t.Helper()
	b := encode(t, v)
	got, err := Decode(b)
	if err != nil {
		t.Fatalf("seed %d: Decode of %T %v: %v\n%x", seed, v, v, err, b)
	}
	if compareValues(canonical(got), v) != 0 {
		t.Fatalf("seed %d: Decode of %T %v: got %T %v", seed, v, v, got, got)
	}
	if again := encode(t, got); !bytes.Equal(again, b) {
		t.Fatalf("seed %d: %v encodes to %x, but once decoded to %x", seed, v, b, again)
	}
	if n, err := Skip(append(b, 0xFF)); n != len(b) || err != nil {
		t.Fatalf("seed %d: Skip of %v: got %d, %v, want %d", seed, v, n, err, len(b))
	}
	for i := range b {
		if _, err := Decode(b[:i]); !errors.Is(err, ErrKey) {
			t.Fatalf("seed %d: Decode of %d of %d bytes of %v: got %v, want ErrKey", seed, i, len(b), v, err)
		}
	}
}

// canonical panics if v holds a type that Decode may not return.
func canonical(v any) any {
	rank(v)
	switch v := v.(type) {
	case nil, bool, int64, string, []byte, time.Time:
	case uint64:
		if v <= math.MaxInt64 {
			panic("uint64 of an int64's range")
		}
	case *big.Int:
		if v.IsInt64() || v.IsUint64() {
			panic("big.Int of an integer's range")
		}
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			panic("float64 of an integral value")
		}
	case Tuple:
		for _, e := range v {
			canonical(e)
		}
	case Object:
		for _, m := range v {
			canonical(m.Value)
		}
	default:
		panic(fmt.Sprintf("unexpected %T", v))
	}
	return v
}

// For every kind, and across kinds, the order of keys is the order of values.
func TestOrder(t *testing.T) {
	seed := rand.Uint64()
	g := gen{rand.New(rand.NewPCG(seed, 0))}
	for name, next := range map[string]func() any{
		"integers": func() any { return g.integer() },
		"floats":   func() any { return g.float() },
		"bigs":     func() any { return g.big() },
		"numbers":  g.number,
		"times":    func() any { return g.time() },
		"strings":  func() any { return string(g.text()) },
		"bytes":    func() any { return g.text() },
		"arrays":   func() any { return Tuple{g.value(2), g.value(1)}[:g.IntN(3)] },
		"objects":  func() any { return Object{{string(g.text()), g.value(1)}, {"", g.value(1)}}[:g.IntN(3)] },
		"all":      func() any { return g.value(3) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 5_000 {
				v := next()
				checkPair(t, seed, v, next())
				checkPair(t, seed, v, g.near(v))
				checkRoundTrip(t, seed, v)
			}
		})
	}
}

// A list in ascending order, with the borders between tags and forms, stays so.
func TestOrderOfBorders(t *testing.T) {
	pow := func(n uint, add int64) *big.Int {
		x := new(big.Int).Lsh(big.NewInt(1), n)
		return x.Add(x, big.NewInt(add))
	}
	positive := []any{
		math.SmallestNonzeroFloat64, 2 * math.SmallestNonzeroFloat64, 0x1p-1022, 0x1p-2, 0.3, 0.5, math.Nextafter(1, 0), int64(1),
		math.Nextafter(1, 2), 1.5, int64(2), int64(3), int64(127), int64(128), int64(255), int64(256),
		int64(9007199254740991), 9007199254740992.0, int64(9007199254740993), int64(math.MaxInt64), uint64(1 << 63), uint64(1<<63 + 1),
		uint64(math.MaxUint64), 0x1p64, pow(64, 1), 0x1p65, pow(1023, -1), 0x1p1023, math.MaxFloat64, pow(1024, -1), pow(1024, 0),
		pow(1024, 1), pow(1025, -1), pow(1025, 0), pow(65600, -1), pow(65600, 0), pow(65600, 1), pow(70000, 0), math.Inf(1),
	}
	list := []any{nil, false, true, math.NaN()}
	for _, v := range slices.Backward(positive) {
		b, err := Decode(encode(t, v))
		if err != nil {
			t.Fatal(err)
		}
		switch x := b.(type) {
		case int64:
			list = append(list, -x)
		case uint64:
			list = append(list, new(big.Int).Neg(new(big.Int).SetUint64(x)))
		case *big.Int:
			list = append(list, new(big.Int).Neg(x))
		case float64:
			list = append(list, -x)
		}
	}
	list = append(list, int64(0))
	list = append(list, positive...)
	list = append(list, time.Unix(math.MinInt64, 0), time.Unix(-1, 0), time.Unix(-1, 999_999_999), time.Unix(0, 0), time.Unix(math.MaxInt64, 999_999_999),
		"", "\x00", "\x00\x00", "\x00\xff", "\x01", "\x01\x00", "\x01\xff", "\x02", "a", "a\x00", "a\x00b", "a\x01", "a\x02", "ab", "\xff",
		[]byte{}, []byte{0}, []byte{0xFF}, Tuple{}, Tuple{nil}, Tuple{nil, nil}, Tuple{""}, Tuple{"", "b"}, Tuple{"\x00"}, Tuple{"a"}, Tuple{"a", "b"}, Tuple{"a\x00", "b"},
		Tuple{Tuple{}}, Tuple{Tuple{}, nil}, Tuple{Tuple{nil}},
		Object{}, Object{{"a", 1}}, Object{{"a", 2}}, Object{{"b", 1}}, Object{{"b", 2}, {"a", 1}}, Object{{"b", 2}, {"c", 2}})
	for i := 1; i < len(list); i++ {
		if a, b := encode(t, list[i-1]), encode(t, list[i]); bytes.Compare(a, b) >= 0 {
			t.Errorf("%v is not before %v:\n%x\n%x", list[i-1], list[i], a, b)
		}
		if got, err := Decode(encode(t, list[i])); err != nil || !bytes.Equal(encode(t, got), encode(t, list[i])) {
			t.Errorf("Decode of %v: got %v, %v", list[i], got, err)
		}
	}
}

// Concatenated elements order like tuples of them, also when some are left out.
func TestOrderOfConcatenations(t *testing.T) {
	seed := rand.Uint64()
	g := gen{rand.New(rand.NewPCG(seed, 3))}
	join := func(t Tuple) (b []byte) {
		for _, v := range t {
			var err error
			if b, err = Append(b, v); err != nil {
				panic(err)
			}
		}
		return b
	}
	for range 10_000 {
		var a, b Tuple
		for range g.IntN(4) {
			a = append(a, g.value(1))
		}
		b = slices.Clone(a[:g.IntN(len(a)+1)])
		for range g.IntN(3) {
			b = append(b, g.value(1))
		}
		x, y := join(a), join(b)
		if got, want := bytes.Compare(x, y), compareValues(a, b); got != want {
			t.Fatalf("seed %d: %v and %v: got %d, want %d", seed, a, b, got, want)
		}
		got, err := DecodeAll(x)
		if err != nil || compareValues(got, a) != 0 && len(a) > 0 {
			t.Fatalf("seed %d: DecodeAll of %v: got %v, %v", seed, a, got, err)
		}
	}
}

// Equal values of different types have one key.
func TestSameKey(t *testing.T) {
	type (
		myBool   bool
		myInt    int16
		myUint   uint8
		myFloat  float32
		myString string
		myBytes  []byte
		myUUID   [16]byte
	)
	uuid := [16]byte{1, 0, 255}
	instant := time.Date(2024, 2, 29, 1, 2, 3, 4, time.UTC)
	for _, same := range [][]any{
		{nil, (*big.Int)(nil)},
		{true, myBool(true)},
		{1, int8(1), int16(1), int32(1), int64(1), uint(1), uint8(1), uint16(1), uint32(1), uint64(1), uintptr(1), float32(1), 1.0,
			big.NewInt(1), json.Number("1"), json.Number("1.0"), json.Number("10e-1"), myInt(1), myUint(1), myFloat(1)},
		{0, 0.0, math.Copysign(0, -1), json.Number("-0"), json.Number("-0.0"), new(big.Int)},
		{0.5, float32(0.5), json.Number("0.5"), json.Number("5E-1")},
		{math.NaN(), math.Float64frombits(0xFFF8000000000001), float32(math.NaN())},
		{uint64(math.MaxUint64), json.Number("18446744073709551615")},
		{int64(math.MinInt64), -0x1p63, json.Number("-9223372036854775808")},
		{1e300, json.Number("1e300"), func() any { i, _ := big.NewFloat(1e300).Int(nil); return i }()},
		{instant, instant.In(time.FixedZone("x", 3600))},
		{"a", myString("a")},
		{[]byte("a"), myBytes("a")},
		{[]byte{}, []byte(nil), myBytes(nil)},
		{uuid, uuid[:], myUUID(uuid)},
		{[]any{1, "a"}, Tuple{1, "a"}},
	} {
		want := encode(t, same[0])
		for _, v := range same[1:] {
			if got := encode(t, v); !bytes.Equal(got, want) {
				t.Errorf("%T %v: got %x, want %x as of %T", v, v, got, want, same[0])
			}
		}
	}
}

// The encoding is a format: these bytes may never change.
func TestEncodingFixed(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, "02"}, {false, "03"}, {true, "04"}, {0, "4c"}, {1, "4e00"}, {2, "4f00"}, {3, "4f80"}, {-1, "4aff"}, {255, "55fe"},
		{256, "5600"}, {257, "560180"}, {0.5, "4dffff00"}, {-0.5, "4b0000ff"}, {1.5, "4e80"}, {math.NaN(), "08"},
		{math.Inf(-1), "09"}, {math.Inf(1), "8f"}, {0x1p64, "8e000000"}, {int64(math.MaxInt64), "8cfffffffffffffffffc"},
		{math.SmallestNonzeroFloat64, "4dfbce00"},
		{time.Unix(1, 2), "a0800000000000000100000002"}, {"a\x00b", "a86101016200"}, {[]byte{0, 1, 2}, "b0010101020200"},
		{Tuple{}, "b801"}, {Tuple{1, "x"}, "b84e00a8780001"}, {Object{{"a", nil}}, "c0a861000201"},
	} {
		if got := hex.EncodeToString(encode(t, c.value)); got != c.want {
			t.Errorf("%T %v: got %s, want %s", c.value, c.value, got, c.want)
		}
	}
}
