package keys

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Bytes that no value encodes to are refused, at the place where they go wrong.
func TestDecodeMalformed(t *testing.T) {
	for _, c := range []struct {
		name, key string
		offset    int
	}{
		{"empty", "", 0},
		{"end without start", "01", 0},
		{"tag 0", "00", 0},
		{"reserved tag", "07", 0},
		{"reserved tag", "90", 0},
		{"tag 255", "ff", 0},
		{"two elements", "0202", 1},
		{"number without mantissa", "4e", 1},
		{"mantissa that stops", "4e01", 2},
		{"mantissa that ends in zeros", "560100", 3},
		{"negative one", "42feff", 3},
		{"fraction of 53 bits", "4e0101010101010102" + "00", 1},
		{"small exponent without bytes", "4dff", 2},
		{"small exponent below float64", "4dfbcd00", 1},
		{"subnormal with too many bits", "4dfbce80", 3},
		{"small exponent in the long form", "4d0000ffffffffffffffff00", 1},
		{"big fraction", "8e0000" + strings.Repeat("01", 9) + "40", 3},
		{"whole mantissa too short", "8e03c000", 4},
		{"whole mantissa too long", "8e03c0" + strings.Repeat("01", 147) + "00", 151},
		{"whole mantissa with padding set", "8e03c0" + strings.Repeat("01", 146) + "02", 150},
		{"exponent of more than memory", "8effff7ffffffffffffffe00", 3},
		{"exponent of more than int64", "8effffffffffffffffffff00", 3},
		{"short time", "a08000000000000000000000", 12},
		{"nanoseconds", "a080000000000000003b9aca00", 9},
		{"string without end", "a86162", 3},
		{"string that ends in an escape", "a86101", 3},
		{"escape of nothing", "a8610100", 2},
		{"escape of an ordinary byte", "a801016101" + "0300", 4},
		{"bytes without end", "b0", 1},
		{"array without end", "b8", 1},
		{"array without end", "b80202", 3},
		{"array of garbage", "b80207", 2},
		{"object without end", "c0", 1},
		{"object without value", "c0a86100", 4},
		{"object with an end for a value", "c0a8610001", 4},
		{"object with a number for a name", "c04e00", 1},
		{"object with a name without end", "c0a861", 3},
		{"deep arrays", strings.Repeat("b8", 1000), MaxDepth},
		{"deep objects", strings.Repeat("c0a800", 1000), 3 * MaxDepth},
	} {
		b, err := hex.DecodeString(c.key)
		if err != nil {
			t.Fatal(err)
		}
		v, err := Decode(b)
		var e *SyntaxError
		if !errors.As(err, &e) || !errors.Is(err, ErrKey) || v != nil {
			t.Errorf("%s: Decode(%s): got %v, %v, want an error", c.name, c.key, v, err)
			continue
		}
		if e.Offset != c.offset {
			t.Errorf("%s: Decode(%s): %v, want offset %d", c.name, c.key, err, c.offset)
		}
		if _, err := DecodeAll(append([]byte{tagNil}, b...)); len(b) > 0 && c.name != "two elements" && !errors.Is(err, ErrKey) {
			t.Errorf("%s: DecodeAll: got %v, want ErrKey", c.name, err)
		} else if errors.As(err, &e) && e.Offset != c.offset+1 {
			t.Errorf("%s: DecodeAll: %v, want offset %d", c.name, err, c.offset+1)
		}
	}
}

// What has no key is refused and leaves dst alone.
func TestAppendRefuses(t *testing.T) {
	deep := any("x")
	for range MaxDepth {
		deep = Tuple{deep}
	}
	if _, err := Decode(encode(t, deep)); err != nil {
		t.Errorf("%d levels: %v", MaxDepth, err)
	}
	for _, v := range []any{
		struct{}{}, map[string]any{}, []string{"a"}, []int{1}, [15]byte{}, [16]int8{}, new(int), make(chan int), func() {}, complex(1, 1), errors.New("x"),
		(*time.Time)(nil), json.Number(""), json.Number("x"), json.Number("1x"), json.Number("0x1"), json.Number("1_0"), json.Number("01"), json.Number("+1"),
		json.Number("1."), json.Number(".5"), json.Number("1e"), json.Number("1e+"), json.Number("-"), json.Number("Inf"), json.Number("NaN"), json.Number("1e400"),
		json.Number(strings.Repeat("1", maxDigits+1)),
		Tuple{deep}, Object{{"a", deep}}, Tuple{1, struct{}{}}, Object{{"a", struct{}{}}}, []any{Object{{"a", []any{make(chan int)}}}},
	} {
		dst := []byte("kept")
		got, err := Append(dst, v)
		if !errors.Is(err, ErrValue) || string(got) != "kept" {
			t.Errorf("Append(%T): got %q, %v, want ErrValue", v, got, err)
		}
	}
	_, err := Append(nil, Tuple{map[string]int{}})
	var e *TypeError
	if !errors.As(err, &e) || e.Type != reflect.TypeFor[map[string]int]() || !strings.Contains(err.Error(), "map[string]int") {
		t.Errorf("got %v, want a TypeError of map[string]int", err)
	}
	digits := strings.Repeat("1", maxDigits)
	if got, err := Decode(encode(t, json.Number(digits))); err != nil || got.(*big.Int).String() != digits {
		t.Errorf("number of %d digits: got %v, %v", maxDigits, got, err)
	}
}

// Next walks over elements, and each accessor fits exactly its kind.
func TestValue(t *testing.T) {
	var b []byte
	b = AppendNil(b)
	b = AppendBool(b, true)
	b = AppendInt(b, -7)
	b = AppendUint(b, math.MaxUint64)
	b = AppendFloat(b, 0.25)
	b = AppendTime(b, time.Unix(5, 6))
	b = AppendString(b, "a\x00b")
	b = AppendBytes(b, []byte("\x00"))
	b = AppendArrayEnd(AppendInt(AppendString(AppendArrayStart(b), "e"), 1))
	b = AppendObjectEnd(AppendInt(AppendString(AppendObjectStart(b), "n"), 1))
	kinds := "nil bool number number number time string bytes array object"
	var got []string
	for rest := b; len(rest) > 0; {
		var v Value
		var err error
		before := rest
		if v, rest, err = Next(rest); err != nil {
			t.Fatal(err)
		}
		if raw := before[:len(before)-len(rest)]; !bytes.Equal(v.Raw(), raw) {
			t.Errorf("Raw: got %x, want %x", v.Raw(), raw)
		}
		got = append(got, v.Kind().String())
		checkAccessors(t, v)
	}
	if s := strings.Join(got, " "); s != kinds {
		t.Errorf("kinds: got %s, want %s", s, kinds)
	}
	checkAccessors(t, Value{})
}

// checkAccessors compares every accessor with what Any returns.
func checkAccessors(t *testing.T, v Value) {
	t.Helper()
	want := v.Any()
	i, isInt := v.Int64()
	u, isUint := v.Uint64()
	f, text, data, instant := v.Float64(), v.Text(), v.Bytes(), v.Time()
	var elems Tuple
	for e := range v.Elems() {
		elems = append(elems, e.Any())
	}
	var members Object
	for name, e := range v.Members() {
		members = append(members, Member{name, e.Any()})
	}
	switch w := want.(type) {
	case bool:
		if v.Bool() != w {
			t.Errorf("Bool: got %v", v.Bool())
		}
	case int64:
		if i != w || !isInt || isUint != (w >= 0) || isUint && u != uint64(w) || f != float64(w) || v.Big().Int64() != w {
			t.Errorf("%d: got %d %v, %d %v, %g, %v", w, i, isInt, u, isUint, f, v.Big())
		}
	case uint64:
		if isInt || u != w || !isUint || f != float64(w) || v.Big().Uint64() != w {
			t.Errorf("%d: got %d %v, %d %v, %g, %v", w, i, isInt, u, isUint, f, v.Big())
		}
	case float64:
		if isInt || isUint || f != w || v.Big() != nil {
			t.Errorf("%g: got %d %v, %d %v, %g, %v", w, i, isInt, u, isUint, f, v.Big())
		}
	case time.Time:
		if !instant.Equal(w) || instant.Location() != time.UTC {
			t.Errorf("Time: got %v", instant)
		}
	case string:
		if text != w {
			t.Errorf("Text: got %q", text)
		}
	case []byte:
		if !bytes.Equal(data, w) {
			t.Errorf("Bytes: got %q", data)
		}
	case Tuple:
		if !reflect.DeepEqual(elems, w) {
			t.Errorf("Elems: got %v", elems)
		}
	case Object:
		if !reflect.DeepEqual(members, w) {
			t.Errorf("Members: got %v", members)
		}
	}
	_, isString := want.(string)
	_, isArray := want.(Tuple)
	_, isObject := want.(Object)
	if isNumber := v.Kind() == KindNumber; !isNumber && (isInt || isUint || f != 0 || v.Big() != nil) ||
		!isString && text != "" || v.Kind() != KindBytes && data != nil || !isArray && elems != nil || !isObject && members != nil ||
		v.Kind() != KindTime && !instant.IsZero() || v.Kind() != KindBool && v.Bool() {
		t.Errorf("an accessor of another kind fits %v", v)
	}
}

// Float64 rounds integers as Go and math/big do.
func TestFloat64OfIntegers(t *testing.T) {
	seed := rand.Uint64()
	g := gen{rand.New(rand.NewPCG(seed, 4))}
	for range 20_000 {
		i := g.big()
		if g.IntN(2) == 0 {
			i = big.NewInt(g.integer())
		}
		v, _, err := Next(AppendBig(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		want, _ := new(big.Float).SetInt(i).Float64()
		if got := v.Float64(); got != want {
			t.Fatalf("seed %d: %v: got %g, want %g", seed, i, got, want)
		}
		if got := v.Big(); got.Cmp(i) != 0 {
			t.Fatalf("seed %d: Big: got %v, want %v", seed, got, i)
		}
	}
}

// StringPrefix begins the keys of exactly the strings that begin with it, and
// PrefixEnd closes every range.
func TestPrefixes(t *testing.T) {
	seed := rand.Uint64()
	g := gen{rand.New(rand.NewPCG(seed, 5))}
	for range 20_000 {
		p, s := string(g.text()), string(g.text())
		if g.IntN(2) == 0 {
			s = p + s
		}
		prefix, key := StringPrefix(nil, p), AppendString(nil, s)
		want := strings.HasPrefix(s, p)
		if got := bytes.HasPrefix(key, prefix); got != want {
			t.Fatalf("seed %d: %q begins with %q: got %v", seed, s, p, got)
		}
		end := PrefixEnd(prefix)
		if got := bytes.Compare(key, prefix) >= 0 && bytes.Compare(key, end) < 0; got != want {
			t.Fatalf("seed %d: %q in the range of %q: got %v", seed, s, p, got)
		}
	}
	for _, c := range []struct{ prefix, want string }{{"", ""}, {"ff", ""}, {"ffff", ""}, {"00", "01"}, {"01ff", "02"}, {"a8fe", "a8ff"}, {"a8ffff", "a9"}} {
		p, err := hex.DecodeString(c.prefix)
		if err != nil {
			t.Fatal(err)
		}
		if got := PrefixEnd(p); hex.EncodeToString(got) != c.want || (got == nil) != (c.want == "") {
			t.Errorf("PrefixEnd(%s): got %x, want %s", c.prefix, got, c.want)
		}
		if hex.EncodeToString(p) != c.prefix {
			t.Errorf("PrefixEnd changed its argument to %x", p)
		}
	}
}

func TestFormat(t *testing.T) {
	uuid := [16]byte{0x12, 0x34, 15: 0xff}
	for _, c := range []struct {
		value any
		want  string
	}{
		{"user:1/x y", "user:1/x y"}, {"", ""}, {"17", "17"}, {"nil", "nil"},
		{nil, "nil"}, {true, "true"}, {-12, "-12"}, {0.5, "0.5"}, {1e300, "1" + Format(encode(t, 1e300))[1:]}, {math.NaN(), "NaN"}, {math.Inf(-1), "-Inf"},
		{uint64(math.MaxUint64), "18446744073709551615"},
		{new(big.Int).Lsh(big.NewInt(1), 1024), "16#1" + strings.Repeat("0", 256)}, {new(big.Int).Lsh(big.NewInt(-15), 1024), "-16#f" + strings.Repeat("0", 256)}, {time.Unix(0, 5), "1970-01-01T00:00:00.000000005Z"},
		{[]byte("ab"), "0x6162"}, {[]byte{}, "0x"}, {uuid, "12340000-0000-0000-0000-0000000000ff"},
		{Tuple{}, "[]"}, {Tuple{"a", 1, nil}, "a/1/nil"}, {Tuple{"a/b", "c d", "", "1", "-x", "true", "nil", "Inf", "NaN"}, `"a/b"/"c d"/""/"1"/"-x"/"true"/"nil"/"Inf"/"NaN"`},
		{Tuple{"é", "\x00", "\xff", "abcdefab-0000-0000-0000-000000000000"}, `é/"\x00"/"\xff"/"abcdefab-0000-0000-0000-000000000000"`},
		{Tuple{Tuple{"a", 1}, Object{{"k", "v"}, {"x y", Tuple{}}}}, `[a,1]/{k:v,"x y":[]}`}, {Object{}, "{}"},
	} {
		if got := Format(encode(t, c.value)); got != c.want {
			t.Errorf("Format of %v: got %s, want %s", c.value, got, c.want)
		}
	}
	for _, c := range []struct{ key, want string }{
		{"", ""}, {"a86100a86200", "a/b"}, {"4e00ff12", "1/!ff12"}, {"ff", "!ff"}, {"a861", "!a861"}, {"b8a861", "!b8a861"},
	} {
		b, err := hex.DecodeString(c.key)
		if err != nil {
			t.Fatal(err)
		}
		if got := Format(b); got != c.want {
			t.Errorf("Format(%s): got %s, want %s", c.key, got, c.want)
		}
	}
}

// No bytes make a decoder panic, and what decodes encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	for _, v := range []any{nil, true, 0, -1, 300, 0.1, 1e300, math.NaN(), new(big.Int).Lsh(big.NewInt(5), 2000), new(big.Int).Lsh(big.NewInt(-5), 100),
		time.Unix(1, 2), "a\x00b", []byte{0, 1, 255}, Tuple{1, Tuple{"x"}, nil}, Object{{"a", 1}, {"b", Tuple{}}}} {
		f.Add(encode(f, v))
	}
	f.Add([]byte{tagBig, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		Format(b)
		n, err := Skip(b)
		if err != nil {
			var e *SyntaxError
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(b) {
				t.Fatalf("Skip(%x): %v", b, err)
			}
			return
		}
		v, err := Decode(b[:n])
		if err != nil {
			t.Fatalf("Decode(%x): %v, but Skip accepts it", b[:n], err)
		}
		canonical(v)
		if again := encode(t, v); !bytes.Equal(again, b[:n]) {
			t.Fatalf("Decode(%x): got %v, which encodes to %x", b[:n], v, again)
		}
	})
}

// The order of any two keys is the order of their values.
func FuzzOrder(f *testing.F) {
	for _, pair := range [][2]any{{1, 1.5}, {"a", "a\x00"}, {Tuple{"a"}, Tuple{"a", nil}}, {-1, -2}, {time.Unix(1, 0), "x"}, {Object{{"a", 1}}, Object{{"a", 1}, {"b", 1}}}} {
		f.Add(encode(f, pair[0]), encode(f, pair[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, err := Decode(a)
		if err != nil {
			return
		}
		y, err := Decode(b)
		if err != nil {
			return
		}
		if got, want := bytes.Compare(a, b), compareValues(x, y); got != want && comparable(x) && comparable(y) {
			t.Fatalf("%v and %v: got %d, want %d\n%x\n%x", x, y, got, want, a, b)
		}
	})
}

// comparable reports whether v holds only times that time.Time itself can compare:
// it counts seconds from year 1, so that the first 62 thousand million it wraps.
func comparable(v any) bool {
	switch v := v.(type) {
	case time.Time:
		return v.Unix() < math.MaxInt64-62_135_596_800
	case Tuple:
		for _, e := range v {
			if !comparable(e) {
				return false
			}
		}
	case Object:
		for _, m := range v {
			if !comparable(m.Value) {
				return false
			}
		}
	}
	return true
}

// The hot paths do not allocate.
func TestAllocs(t *testing.T) {
	dst := make([]byte, 0, 128)
	key := AppendInt(AppendString(nil, "some document id"), 12345)
	for name, f := range map[string]func(){
		"AppendString": func() { AppendString(dst, "some document\x00 id") },
		"AppendBytes":  func() { AppendBytes(dst, key) },
		"AppendInt":    func() { AppendInt(dst, -1234567890123) },
		"AppendFloat":  func() { AppendFloat(dst, 0.1) },
		"Skip": func() {
			if _, err := Skip(key); err != nil {
				t.Error(err)
			}
		},
		"Int64": func() {
			_, rest, _ := Next(key)
			v, _, _ := Next(rest)
			if i, _ := v.Int64(); i != 12345 {
				t.Error(i)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	dst := make([]byte, 0, 128)
	b.Run("string16", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			AppendString(dst, "order:2024-00194")
		}
	})
	b.Run("int8", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			AppendInt(dst, 77)
		}
	})
	b.Run("int64", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			AppendInt(dst, -1234567890123456789)
		}
	})
	b.Run("float64", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			AppendFloat(dst, 0.1)
		}
	})
	tuple := any(Tuple{"posts", int64(2024), "order:2024-00194"})
	b.Run("tuple", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Append(dst, tuple); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	key := encode(b, Tuple{"posts", int64(2024), "order:2024-00194"})
	b.Run("skip", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Skip(key); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("any", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(key); err != nil {
				b.Fatal(err)
			}
		}
	})
}
