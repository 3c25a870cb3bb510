package pot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// drawType draws a type that a value can be compared by with reflect.DeepEqual.
func drawType(t *rapid.T, depth int) reflect.Type {
	scalars := []reflect.Type{
		reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int16](),
		reflect.TypeFor[int32](), reflect.TypeFor[int64](), reflect.TypeFor[uint](), reflect.TypeFor[uint8](),
		reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[uintptr](),
		reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[string](), reflect.TypeFor[[]byte](),
		reflect.TypeFor[[16]byte](), reflect.TypeFor[time.Duration](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[struct{}](),
	}
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	if depth <= 0 || kind < 5 {
		return rapid.SampledFrom(scalars).Draw(t, "scalar")
	}
	switch kind {
	case 5:
		return reflect.SliceOf(drawType(t, depth-1))
	case 6:
		return reflect.PointerTo(drawType(t, 0))
	case 7:
		keys := []reflect.Type{reflect.TypeFor[string](), reflect.TypeFor[int32](), reflect.TypeFor[bool](),
			reflect.TypeFor[[2]uint16](), reflect.TypeFor[struct{ A, B int8 }]()}
		return reflect.MapOf(rapid.SampledFrom(keys).Draw(t, "key"), drawType(t, depth-1))
	case 8:
		return reflect.ArrayOf(rapid.IntRange(0, 3).Draw(t, "length"), drawType(t, depth-1))
	}
	var fields []reflect.StructField
	for i := range rapid.IntRange(1, 9).Draw(t, "fields") {
		tag := rapid.SampledFrom([]string{"", `pot:",omitzero"`, `pot:",omitempty"`,
			fmt.Sprintf(`pot:"name_%d"`, i), fmt.Sprintf(`json:"j%d,omitempty"`, i)}).Draw(t, "tag")
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: drawType(t, depth-1), Tag: reflect.StructTag(tag)})
	}
	return reflect.StructOf(fields)
}

// drawInto draws a value of the type.
func drawInto(t *rapid.T, v reflect.Value) {
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr")))))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.String:
		v.SetString(rapid.String().Draw(t, "string"))
	case reflect.Float32, reflect.Float64:
		f := rapid.OneOf(rapid.Float64(), rapid.Map(rapid.Int16(), func(i int16) float64 { return float64(i) / 4 })).Draw(t, "float")
		v.SetFloat(f)
	case reflect.Slice:
		n := rapid.IntRange(0, 4).Draw(t, "len")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			drawInto(t, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			drawInto(t, v.Index(i))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "nil") {
			v.Set(reflect.New(v.Type().Elem()))
			drawInto(t, v.Elem())
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(0, 4).Draw(t, "entries") {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			drawInto(t, k)
			drawInto(t, e)
			v.SetMapIndex(k, e)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			drawInto(t, v.Field(i))
		}
	default:
		if v.CanInt() {
			v.SetInt(rapid.Int64().Draw(t, "int") >> rapid.IntRange(0, 63).Draw(t, "shift"))
		} else {
			v.SetUint(rapid.Uint64().Draw(t, "uint") >> rapid.IntRange(0, 63).Draw(t, "shift"))
		}
	}
}

var sameValue = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b }),
	cmp.Comparer(func(a, b float32) bool { return a == b || a != a && b != b })}

// Whatever the mode and the table: what was marshaled unmarshals to the same,
// also over the remains of another value, through a view, transcoded, and
// canonical.
func TestIdentityOverTypes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t, 3)
		v, other := reflect.New(typ), reflect.New(typ)
		drawInto(t, v.Elem())
		drawInto(t, other.Elem())
		table := NewTable(nil)
		enc := EncodeOptions{
			Mode:          rapid.SampledFrom([]Mode{V4, Full, Shapes}).Draw(t, "mode"),
			NoHeader:      rapid.Bool().Draw(t, "no header"),
			Deterministic: rapid.Bool().Draw(t, "deterministic"),
		}
		dec := DecodeOptions{Mode: enc.Mode, NoHeader: enc.NoHeader,
			Strings: rapid.SampledFrom([]StringMode{CopyStrings, BorrowStrings, InternStrings}).Draw(t, "strings")}
		if rapid.Bool().Draw(t, "table") {
			enc.Table, dec.Table = table, table
		}
		var payload []byte
		for range 2 { // the second uses what the first left in the table
			var err error
			if payload, err = enc.Marshal(v.Interface()); err != nil {
				t.Fatalf("%v: %v", typ, err)
			}
			back := reflect.New(typ)
			if err := dec.Unmarshal(payload, back.Interface()); err != nil {
				t.Fatalf("%v: %x: %v", typ, payload, err)
			}
			if d := cmp.Diff(v.Interface(), back.Interface(), sameValue); d != "" {
				t.Fatalf("%v: %x: %s", typ, payload, d)
			}
		}
		// A reused slice must show nothing of what was in it.
		slice := reflect.MakeSlice(reflect.SliceOf(typ), 1, 1)
		slice.Index(0).Set(other.Elem())
		holder := reflect.New(slice.Type())
		holder.Elem().Set(slice)
		one := reflect.MakeSlice(slice.Type(), 1, 1)
		one.Index(0).Set(v.Elem())
		listed, err := enc.Marshal(one.Interface())
		if err == nil {
			err = dec.Unmarshal(listed, holder.Interface())
		}
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		if d := cmp.Diff(v.Elem().Interface(), holder.Elem().Index(0).Interface(), sameValue); d != "" {
			t.Fatalf("over another value: %v: %x: %s", typ, listed, d)
		}
		checkWays(t, v, payload, &dec, table)
	})
}

// checkWays takes a payload through the ways that need no Go type.
func checkWays(t *rapid.T, v reflect.Value, payload []byte, dec *DecodeOptions, table *Table) {
	if err := Valid(payload, dec); err != nil {
		t.Fatalf("%x is not valid: %v", payload, err)
	}
	if _, err := Explain(nil, payload, dec); err != nil {
		t.Fatalf("explaining %x: %v", payload, err)
	}
	root, err := Open(payload, dec)
	if err != nil {
		t.Fatal(err)
	}
	viewed := reflect.New(v.Type().Elem())
	if err := root.Decode(viewed.Interface()); err != nil || !cmp.Equal(v.Interface(), viewed.Interface(), sameValue) {
		t.Fatalf("through a view: %x: %v", payload, err)
	}
	canonical, err := Canonical(nil, payload, dec)
	if err != nil {
		t.Fatal(err)
	}
	if direct, err := (&EncodeOptions{Canonical: true}).Marshal(v.Interface()); err != nil || !bytes.Equal(direct, canonical) {
		t.Fatalf("canonical form of the value %x, of its payload %x, %v", direct, canonical, err)
	}
	strict := DecodeOptions{Canonical: true}
	back := reflect.New(v.Type().Elem())
	if err := strict.Unmarshal(canonical, back.Interface()); err != nil || !cmp.Equal(v.Interface(), back.Interface(), sameValue) {
		t.Fatalf("canonical %x: %v", canonical, err)
	}
	for _, to := range []EncodeOptions{{}, {Mode: Full}, {Mode: Shapes}, {Mode: Shapes, Table: table}, {Table: table}} {
		for range 2 {
			other, err := Transcode(nil, payload, dec, &to)
			if err != nil {
				t.Fatal(err)
			}
			from := DecodeOptions{Table: to.Table}
			again, err := Canonical(nil, other, &from)
			if err != nil || !bytes.Equal(again, canonical) {
				t.Fatalf("transcoded to %+v: %x has canonical form %x, want %x, %v", to, other, again, canonical, err)
			}
		}
	}
	cb, err := ToCBOR(nil, payload, dec)
	if err != nil {
		t.Fatal(err)
	}
	var generic any
	if err := cbor.Unmarshal(cb, &generic); err != nil && !strings.Contains(err.Error(), "key type") {
		t.Fatalf("%x as CBOR %x: %v", payload, cb, err)
	}
	fromCBOR, err := FromCBOR(nil, cb, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Canonical(nil, fromCBOR, nil); err != nil || !bytes.Equal(again, canonical) {
		t.Fatalf("by way of CBOR: %x, want %x, %v", again, canonical, err)
	}
}

type everyKind struct {
	Time     time.Time
	Unix     time.Time     `pot:"unix,unix"`
	Milli    *time.Time    `pot:"milli,unixmilli"`
	Duration time.Duration `pot:"d"`
	Big      *big.Int
	BigVal   big.Int
	Raw      Raw
	Any      any
	Embedded
	*PtrEmbedded
	Named Embedded       `pot:"named"`
	Skip  int            `pot:"-"`
	JSON  int            `json:"from_json,omitempty"`
	Rest  map[string]any `pot:",inline"`
	Level string         `pot:"level,enum"`
}

type Embedded struct{ A, B int }

type PtrEmbedded struct {
	C int
	B int // hidden like Embedded.B: both are at the same depth
}

func TestEveryKind(t *testing.T) {
	milli := time.UnixMilli(1700000000123).UTC()
	raw, err := Marshal(map[string]any{"x": []any{int64(1), "two"}})
	if err != nil {
		t.Fatal(err)
	}
	v := everyKind{
		Time: time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.FixedZone("", 3600)), Unix: time.Unix(1e9, 0).UTC(), Milli: &milli,
		Duration: time.Minute, Big: big.NewInt(-5), BigVal: *new(big.Int).Lsh(big.NewInt(1), 126), Raw: raw,
		Any: map[string]any{"k": []any{int64(-1), uint64(2), 1.5, "s", nil, true}}, Embedded: Embedded{A: 1},
		PtrEmbedded: &PtrEmbedded{C: 3}, Named: Embedded{7, 8}, Rest: map[string]any{"more": "text"}, Level: "Warn",
	}
	for _, mode := range []Mode{V4, Full, Shapes} {
		payload, err := (&EncodeOptions{Mode: mode}).Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got everyKind
		if err := Unmarshal(payload, &got); err != nil {
			t.Fatalf("%v: %v", mode, err)
		}
		if !got.Time.Equal(v.Time) {
			t.Errorf("time: want %v, got %v", v.Time, got.Time)
		}
		got.Time = v.Time
		if d := cmp.Diff(v, got, cmp.Comparer(func(a, b big.Int) bool { return a.Cmp(&b) == 0 }), cmp.AllowUnexported()); d != "" {
			t.Errorf("%v: %s", mode, d)
		}
	}
}

// The rules of names follow encoding/json, but for the case of letters.
func TestNamesLikeJSON(t *testing.T) {
	type deep struct{ X, Y int }
	type left struct {
		deep
		Z int
	}
	type right struct {
		X int
		Z int
	}
	for _, v := range []any{
		struct {
			left
			right
		}{left{deep{1, 2}, 3}, right{4, 5}},
		struct {
			*left
			W int `json:",omitempty"`
		}{},
		struct {
			left `json:"named"`
			_    int
		}{left{deep{1, 2}, 3}, 0},
		everyKindless{},
	} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ToJSON(nil, payload, nil)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%T: want %s, got %s, %v", v, want, got, err)
		}
	}
}

type everyKindless struct {
	A []int           `json:"a,omitempty"`
	B map[string]int  `json:"b,omitempty"`
	C *int            `json:"c,omitempty"`
	D any             `json:"d,omitempty"`
	E [0]int          `json:"e,omitempty"`
	F bool            `json:"f,omitempty"`
	G uint8           `json:"g,omitempty"`
	H struct{ X int } `json:"h,omitempty"`
	I time.Time       `json:"i,omitzero"`
}

// What cannot be encoded is an error with a path, and never ends in a loop.
func TestEncodeErrors(t *testing.T) {
	type cyclic struct{ Next *cyclic }
	loop := &cyclic{}
	loop.Next = loop
	self := map[string]any{}
	self["a"] = self
	slice := []any{nil}
	slice[0] = slice
	type ptr *ptr
	var pp ptr
	pp = &pp
	u := NewUnions()
	if err := RegisterUnion(u, map[string]fmt.Stringer{"Duration": time.Duration(0)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		v    any
		opts EncodeOptions
		code Code
		path string
	}{
		{loop, EncodeOptions{}, ErrDepth, "Next.Next.Next"},
		{self, EncodeOptions{}, ErrDepth, "a.a.a"},
		{self, EncodeOptions{Mode: Shapes}, ErrDepth, "a.a.a"},
		{slice, EncodeOptions{}, ErrDepth, "[0][0]"},
		{pp, EncodeOptions{}, ErrDepth, ""},
		{struct{ A []any }{[]any{1, make(chan int)}}, EncodeOptions{}, ErrUnsupported, "A[1]"},
		{map[string]any{"f": func() {}}, EncodeOptions{}, ErrUnsupported, "f"},
		{1i, EncodeOptions{}, ErrUnsupported, ""},
		{"\xff", EncodeOptions{}, ErrUTF8, ""},
		{map[string]int{"\xff": 1}, EncodeOptions{}, ErrUTF8, "key"},
		{new(big.Int).Lsh(big.NewInt(1), 128), EncodeOptions{}, ErrRange, ""},
		{new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(3), 126)), EncodeOptions{}, ErrRange, ""},
		{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), EncodeOptions{}, ErrRange, ""},
		{struct {
			T time.Time `pot:",unixnano"`
		}{time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)}, EncodeOptions{}, ErrRange, "T"},
		{struct {
			A int `pot:"a,bogus"`
		}{}, EncodeOptions{}, ErrUnsupported, ""},
		{struct {
			A int `pot:",enum"`
		}{}, EncodeOptions{}, ErrUnsupported, ""},
		{Raw("junk"), EncodeOptions{}, ErrHeader, "raw"},
		{[]fmt.Stringer{big.NewInt(1)}, EncodeOptions{Unions: u}, ErrUnknownVariant, "[0]"},
		{badMarshaler(0), EncodeOptions{}, ErrMarshaler, ""},
		{badMarshaler(1), EncodeOptions{}, ErrMarshaler, ""},
		{badMarshaler(2), EncodeOptions{}, ErrMarshaler, ""},
		{1, EncodeOptions{Canonical: true, Mode: Full}, ErrOptions, ""},
		{1, EncodeOptions{Link: true}, ErrOptions, ""},
		{1, EncodeOptions{Mode: 9}, ErrOptions, ""},
	} {
		dst := []byte("before")
		got, err := c.opts.Append(dst, c.v)
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.HasPrefix(e.Path, c.path) || e.Offset > 0 && c.code != ErrHeader {
			t.Errorf("%T: want %v at %q, got %v", c.v, c.code, c.path, err)
		}
		if string(got) != "before" {
			t.Errorf("%T: dst was changed to %q", c.v, got)
		}
	}
}

// badMarshaler writes no value, two values, or fails.
type badMarshaler int

func (m badMarshaler) MarshalPotTo(w *Writer) error {
	switch m {
	case 1:
		w.WriteInt(1)
		w.WriteInt(2)
	case 2:
		return errors.New("no")
	}
	return nil
}

type goodMarshaler struct{ names []string }

func (m goodMarshaler) MarshalPotTo(w *Writer) error {
	w.WriteMap(len(m.names))
	for i, n := range m.names {
		if err := w.WriteSymbol(n); err != nil {
			return err
		}
		if err := w.Write(logAddress{X0: uint8(i)}); err != nil {
			return err
		}
	}
	return nil
}

func (m *goodMarshaler) UnmarshalPotFrom(r *Reader) error {
	m.names = nil
	n, err := r.ReadMap()
	for i := 0; i < n && err == nil; i++ {
		var name string
		if name, err = r.ReadName(); err != nil {
			return err
		}
		m.names = append(m.names, name)
		var a logAddress
		if err = r.Read(&a); err == nil && int(a.X0) != i {
			err = fmt.Errorf("value %d is %d", i, a.X0)
		}
	}
	return err
}

// Types that write themselves share symbols and shapes with those around them.
func TestMarshalerSharesSymbols(t *testing.T) {
	v := []any{goodMarshaler{[]string{"x1", "own"}}, logAddress{X3: 1}, goodMarshaler{[]string{"own", "x0"}}}
	for _, mode := range []Mode{V4, Full, Shapes} {
		payload, err := (&EncodeOptions{Mode: mode}).Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(payload, []byte("own")); n != 1 {
			t.Errorf("%v: the name is written %d times in %x", mode, n, payload)
		}
		var a, c goodMarshaler
		var b logAddress
		var got struct {
			_ struct{} `pot:",tuple"`
			A goodMarshaler
			B logAddress
			C goodMarshaler
		}
		if err := Unmarshal(payload, &got); err != nil {
			t.Fatalf("%v: %x: %v", mode, payload, err)
		}
		a, b, c = got.A, got.B, got.C
		if !cmp.Equal(a.names, []string{"x1", "own"}) || b.X3 != 1 || !cmp.Equal(c.names, []string{"own", "x0"}) {
			t.Errorf("%v: got %v %v %v", mode, a, b, c)
		}
	}
}

// Shared values read from both codecs alike.
func TestDifferentialWithCBOR(t *testing.T) {
	type doc struct {
		ID    int64              `json:"id"`
		Name  string             `json:"name,omitempty"`
		Tags  []string           `json:"tags"`
		Score map[string]float64 `json:"score"`
		Blob  []byte             `json:"blob"`
		Sub   *doc               `json:"sub"`
		Flag  bool               `json:"flag"`
		U     uint64             `json:"u"`
		F     float32            `json:"f"`
	}
	var gen func(t *rapid.T, depth int) *doc
	gen = func(t *rapid.T, depth int) *doc {
		d := &doc{ID: rapid.Int64().Draw(t, "id"), Name: rapid.String().Draw(t, "name"),
			Tags: rapid.SliceOf(rapid.String()).Draw(t, "tags"), Blob: rapid.SliceOf(rapid.Byte()).Draw(t, "blob"),
			Score: rapid.MapOf(rapid.String(), rapid.Float64()).Draw(t, "score"), Flag: rapid.Bool().Draw(t, "flag"),
			U: rapid.Uint64().Draw(t, "u"), F: rapid.Float32().Draw(t, "f")}
		if depth > 0 && rapid.Bool().Draw(t, "sub") {
			d.Sub = gen(t, depth-1)
		}
		return d
	}
	rapid.Check(t, func(t *rapid.T) {
		d := gen(t, 3)
		cb, err := cbor.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var fromCBOR, fromPot, crossed doc
		if err := cbor.Unmarshal(cb, &fromCBOR); err != nil {
			t.Fatal(err)
		}
		if err := Unmarshal(payload, &fromPot); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(fromCBOR, fromPot, sameValue); d != "" {
			t.Fatal(d)
		}
		converted, err := FromCBOR(nil, cb, &EncodeOptions{Mode: Shapes})
		if err != nil {
			t.Fatal(err)
		}
		if err := Unmarshal(converted, &crossed); err != nil {
			t.Fatalf("%x: %v", converted, err)
		}
		if d := cmp.Diff(fromCBOR, crossed, sameValue); d != "" {
			t.Fatal(d)
		}
	})
}

// Decoding again into the same value allocates nothing.
func TestReuseAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop what they hold under the race detector")
	}
	set := &logSet{Logs: makeLogSet().Logs[:100]}
	for _, mode := range []Mode{V4, Shapes} {
		table := NewTable(nil)
		payload, err := (&EncodeOptions{Mode: mode, Table: table}).Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []StringMode{CopyStrings, BorrowStrings} {
			dec := DecodeOptions{Strings: s, Table: table}
			var v logSet
			n := testing.AllocsPerRun(20, func() {
				if err := dec.Unmarshal(payload, &v); err != nil {
					t.Fatal(err)
				}
			})
			if n > 0 {
				t.Errorf("%v, strings %d: %v allocations", mode, s, n)
			}
		}
		buf := make([]byte, 0, 2*len(payload))
		enc := EncodeOptions{Mode: mode, Table: table}
		if n := testing.AllocsPerRun(20, func() { buf, _ = enc.Append(buf[:0], set) }); n > 0 {
			t.Errorf("%v: %v allocations to encode", mode, n)
		}
	}
}

// Depth limits hold on both sides, and what the default encodes the default decodes.
func TestDepth(t *testing.T) {
	nest := func(n int) any {
		var v any = int64(1)
		for range n {
			v = []any{v}
		}
		return v
	}
	payload, err := Marshal(nest(DefaultMaxDepth))
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := Unmarshal(payload, &got); err != nil || !reflect.DeepEqual(got, nest(DefaultMaxDepth)) {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := Marshal(nest(DefaultMaxDepth + 1)); !errors.Is(err, ErrDepth) {
		t.Errorf("encoding beyond the limit: %v", err)
	}
	if payload, err = (&EncodeOptions{MaxDepth: 1000}).Marshal(nest(1000)); err != nil {
		t.Fatal(err)
	}
	deep := append(append([]byte("Pot\x01"), bytes.Repeat([]byte{specNamed, 0xc2, 'a'}, 300)...), 0)
	open := append([]byte("Pot\x01"), bytes.Repeat([]byte{specDynMap, 0xe0}, 300)...)
	for _, p := range [][]byte{payload, deep, open} {
		if err := Unmarshal(p, &got); !errors.Is(err, ErrDepth) {
			t.Errorf("decoding beyond the limit: %v", err)
		}
		if _, err := ToJSON(nil, p, nil); !errors.Is(err, ErrDepth) {
			t.Errorf("converting beyond the limit: %v", err)
		}
	}
	if _, err := FromJSON(nil, []byte(strings.Repeat("[", 300)), nil); !errors.Is(err, ErrDepth) {
		t.Errorf("JSON beyond the limit: %v", err)
	}
	if _, err := FromCBOR(nil, bytes.Repeat([]byte{0x81}, 300), nil); !errors.Is(err, ErrDepth) {
		t.Errorf("CBOR beyond the limit: %v", err)
	}
}

// Every prefix of a payload is an error with an offset, and so is every byte more.
func TestEveryPrefixFails(t *testing.T) {
	text := "Voluptas et."
	value := struct {
		Logs []vecLog
		Any  map[string]any
		Num  vecNumbers
		F    *float64
	}{[]vecLog{vecLogOf("Info", &text), vecLogOf("Warn", nil)}, map[string]any{"a": []any{1.5, nil}}, vecNumbers{F64: math.Pi}, new(float64)}
	for _, mode := range []Mode{V4, Shapes, Full} {
		payload, err := (&EncodeOptions{Mode: mode}).Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		for n := range payload {
			into := value
			var e *Error
			if err := Unmarshal(payload[:n:n], &into); !errors.As(err, &e) || e.Code != ErrTruncated && e.Code != ErrHeader || e.Offset < 0 || e.Offset > int64(n) {
				t.Errorf("%v, %d of %d bytes: %v", mode, n, len(payload), err)
			}
			if mode != Full {
				if err := Valid(payload[:n], nil); err == nil {
					t.Errorf("%v, %d of %d bytes are valid", mode, n, len(payload))
				}
			}
		}
		if err := Unmarshal(append(payload, 0), &value); !errors.Is(err, ErrTrailing) {
			t.Errorf("%v: a byte more: %v", mode, err)
		}
	}
}
