package pot

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// More than 64 fields: each is decoded, and none may come twice.
func TestManyFields(t *testing.T) {
	var fields []reflect.StructField
	for i := range 200 {
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: reflect.TypeFor[int]()})
	}
	typ := reflect.StructOf(fields)
	in := reflect.New(typ)
	for i := range 200 {
		in.Elem().Field(i).SetInt(int64(i * i))
	}
	for _, mode := range []Mode{V4, Shapes} {
		payload, err := (&EncodeOptions{Mode: mode}).Marshal(in.Interface())
		if err != nil {
			t.Fatal(err)
		}
		out := reflect.New(typ)
		if err := Unmarshal(payload, out.Interface()); err != nil || !reflect.DeepEqual(in.Interface(), out.Interface()) {
			t.Errorf("%v: %v", mode, err)
		}
	}
	twice, err := Marshal(goodMarshaler{[]string{"F150", "F7", "F150"}})
	if err != nil {
		t.Fatal(err)
	}
	maps := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "F7", Type: reflect.TypeFor[logAddress]()}, {Name: "F150", Type: reflect.TypeFor[logAddress]()}}))
	if err := Unmarshal(twice, maps.Interface()); !errors.Is(err, ErrDuplicate) {
		t.Errorf("want %v, got %v", ErrDuplicate, err)
	}
	if err := (&DecodeOptions{AllowDuplicates: true}).Unmarshal(twice, maps.Interface()); err != nil || maps.Elem().Field(1).Field(0).Uint() != 2 {
		t.Errorf("the last one should win: %v, %v", maps.Elem(), err)
	}
}

type looseTuple struct {
	_ struct{} `pot:",tuple"`
	A int8
	B string
}

// Conversions beside those of the vectors: an encoded value into another type.
func TestConversions(t *testing.T) {
	type unix struct {
		S  time.Time `pot:"s,unix"`
		Us time.Time `pot:"us,unixmicro"`
		Ns time.Time `pot:"ns,unixnano"`
	}
	type enum struct {
		L string `pot:"l,enum"`
	}
	early := time.Date(1969, 12, 31, 23, 59, 58, 999999000, time.UTC)
	for i, c := range []struct {
		in   any
		into any
		want any
	}{
		{[]int{1, 2}, [2]int8{}, [2]int8{1, 2}},
		{[]int{1}, [2]int8{}, ErrType},
		{nil, [2]int8{1, 2}, [2]int8{}},
		{"x", [2]int8{}, ErrType},
		{[]any{1, "b"}, looseTuple{}, looseTuple{A: 1, B: "b"}},
		{[]any{1}, looseTuple{}, ErrType},
		{nil, looseTuple{A: 1}, looseTuple{}},
		{[]any{1, 2}, looseTuple{}, ErrType},
		{[]byte{1, 2}, [2]byte{}, [2]byte{1, 2}},
		{[]int{1, 2}, [2]byte{}, [2]byte{1, 2}},
		{[]int{1, 256}, [2]byte{}, ErrRange},
		{[]byte{1}, [2]byte{}, ErrType},
		{struct{}{}, [2]byte{1, 1}, [2]byte{}},
		{1, [2]byte{}, ErrType},
		{unix{early, early, early}, unix{}, unix{time.Unix(-2, 0).UTC(), early, early}},
		{map[string]any{"s": nil}, unix{}, unix{}},
		{map[string]any{"s": "x"}, unix{}, ErrType},
		{enum{"On"}, enum{}, enum{"On"}},
		{map[string]any{"l": "On"}, enum{}, enum{"On"}},
		{map[string]any{"l": nil}, enum{"x"}, enum{}},
		{map[string]any{"l": Variant{Name: "On", Value: 1}}, enum{}, ErrType},
		{"2026-11-30T00:00:00Z", time.Time{}, time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)},
		{"yesterday", time.Time{}, ErrType},
		{nil, early, time.Time{}},
		{map[string]int{}, struct{}{}, struct{}{}},
		{map[string]int{"a": 1}, struct{}{}, struct{}{}},
		{1, struct{}{}, ErrType},
		{vecUser{1, "a"}, map[string]any(nil), map[string]any{"id": uint64(1), "name": "a"}},
		{vecUser{1, "a"}, map[int]any(nil), ErrType},
		{map[string]int{"a": 1}, map[string]int{"b": 2}, map[string]int{"a": 1, "b": 2}},
		{map[int]string{1: "x"}, any(nil), map[any]any{int64(1): "x"}},
		{vecOpenMap{"a", 1, 2, "b"}, any(nil), map[any]any{"a": int64(1), int64(2): "b"}},
		{vecOpenMap{1, 1, 1, 2}, any(nil), ErrDuplicate},
		{vecOpenMap{[]int{1}, 1}, any(nil), ErrType},
		{vecOpenMap{[]int{1}, 1}, map[any]any(nil), ErrType},
		{new(big.Int).Lsh(big.NewInt(1), 127), any(nil), new(big.Int).Lsh(big.NewInt(1), 127)},
		{int64(1 << 53), 0.0, float64(1 << 53)},
		{int64(1<<53 + 1), 0.0, ErrRange},
		{"x", true, ErrType},
		{1, []string(nil), ErrType},
		{"text", []byte(nil), []byte("text")},
		{nil, Variant{Name: "x"}, Variant{}},
		{1, make(chan int), ErrUnsupported},
	} {
		for _, mode := range []Mode{V4, Shapes} {
			payload, err := (&EncodeOptions{Mode: mode}).Marshal(c.in)
			if err != nil {
				t.Fatalf("case %d: %v", i, err)
			}
			p := reflect.New(reflect.TypeFor[any]())
			if c.into != nil {
				p = reflect.New(reflect.TypeOf(c.into))
				p.Elem().Set(reflect.ValueOf(c.into))
				if m, ok := c.into.(map[string]int); ok { // filled, and must not be shared
					p.Elem().Set(reflect.ValueOf(map[string]int{"b": m["b"]}))
				}
			}
			err = Unmarshal(payload, p.Interface())
			code, fails := c.want.(Code)
			if fails && !errors.Is(err, code) || !fails && (err != nil || !reflect.DeepEqual(p.Elem().Interface(), c.want)) {
				t.Errorf("case %d, %v: %v into %T: want %v, got %v, %v", i, mode, c.in, c.into, c.want, p.Elem(), err)
			}
		}
	}
	for _, v := range []any{nil, 1, (*int)(nil)} {
		if err := Unmarshal([]byte("Pot\x01\x00"), v); !errors.Is(err, ErrUnsupported) {
			t.Errorf("into %T: %v", v, err)
		}
	}
}

// What is decoded over old values, in slices, leaves nothing of them: records
// and maps with fewer members, inline maps, pointers that others have.
func TestReusedElements(t *testing.T) {
	type elem struct {
		A    int             `pot:"a,omitzero"`
		P    *int            `pot:"p"`
		M    map[string]int  `pot:"m"`
		S    []int           `pot:"s,omitzero"`
		Rest map[string]bool `pot:",inline"`
	}
	type less struct {
		P *int `pot:"p"`
	}
	one, two := 1, 2
	for _, mode := range []Mode{V4, Shapes} {
		old := []elem{{A: 1, P: &one, M: map[string]int{"x": 1}, S: []int{1, 2}, Rest: map[string]bool{"r": true}}}
		kept := old[0]
		payload, err := (&EncodeOptions{Mode: mode}).Marshal([]less{{&two}})
		if err != nil {
			t.Fatal(err)
		}
		if err := Unmarshal(payload, &old); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]elem{{P: &two}}, old); d != "" || *kept.P != 1 || kept.M["x"] != 1 || !kept.Rest["r"] {
			t.Errorf("%v: %s, kept %+v", mode, d, kept)
		}
	}
	type target struct{ A, B int }
	shaped, _ := (&EncodeOptions{Mode: Shapes}).Marshal([]struct{ B int }{{5}})
	reused := []target{{1, 2}}
	if err := Unmarshal(shaped, &reused); err != nil || reused[0] != (target{0, 5}) {
		t.Errorf("record of fewer fields: %+v, %v", reused, err)
	}
}

func TestUnknownFields(t *testing.T) {
	payload, err := Marshal(struct {
		ID, Extra int
		More      []any
	}{1, 2, []any{map[string]any{"x": nil}, "y"}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ ID int }
	if err := Unmarshal(payload, &got); err != nil || got.ID != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	strict := DecodeOptions{DisallowUnknownFields: true}
	if err := strict.Unmarshal(payload, &got); !errors.Is(err, ErrUnknownField) {
		t.Errorf("want %v, got %v", ErrUnknownField, err)
	}
	if err := strict.Unmarshal(payload, new(struct{})); !errors.Is(err, ErrUnknownField) {
		t.Errorf("into no fields: want %v, got %v", ErrUnknownField, err)
	}
}

func TestPrefixAndAppend(t *testing.T) {
	data, err := MarshalAppend([]byte("ab"), 1)
	if err == nil {
		data, err = MarshalAppend(data, "two")
	}
	if err != nil || !bytes.HasPrefix(data, []byte("abPot")) {
		t.Fatalf("%q, %v", data, err)
	}
	var n int
	var s string
	opts := new(DecodeOptions)
	rest, err := opts.UnmarshalPrefix(data[2:], &n)
	if err == nil {
		rest, err = opts.UnmarshalPrefix(rest, &s)
	}
	if err != nil || n != 1 || s != "two" || len(rest) != 0 {
		t.Errorf("%d %q, %d bytes left, %v", n, s, len(rest), err)
	}
	if rest, err := opts.UnmarshalPrefix([]byte("junk"), &n); !errors.Is(err, ErrHeader) || string(rest) != "junk" {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestContradictoryOptions(t *testing.T) {
	for _, o := range []DecodeOptions{{Mode: 9}, {Link: true}, {Canonical: true, NoHeader: true}, {Canonical: true, Table: NewTable(nil)}} {
		if err := o.Unmarshal([]byte("Pot\x01\x00"), new(any)); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	linked := DecodeOptions{Link: true, Table: NewTable(nil)}
	if _, err := Open([]byte("Pot\x01\x00"), &linked); !errors.Is(err, ErrOptions) {
		t.Errorf("view of a linked table: %v", err)
	}
	if _, err := Explain(nil, []byte("Pot\x01\x00"), &linked); !errors.Is(err, ErrOptions) {
		t.Errorf("explanation with a linked table: %v", err)
	}
}

func TestViewAccessors(t *testing.T) {
	payload, err := Marshal(map[string]any{"f": 1.5, "b": true, "x": []byte{0xff}, "n": big.NewInt(7), "open": vecOpenMap{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	root, err := Open(payload, nil)
	if err != nil {
		t.Fatal(err)
	}
	get := func(name string) Value {
		v, err := root.Field(name)
		if err != nil || v.Offset() <= root.Offset() {
			t.Errorf("%s: %v", name, err)
		}
		return v
	}
	if f, err := get("f").Float(); f != 1.5 || err != nil {
		t.Errorf("float %v, %v", f, err)
	}
	if b, err := get("b").Bool(); !b || err != nil {
		t.Errorf("bool %v, %v", b, err)
	}
	if b, err := get("x").Bytes(); !bytes.Equal(b, []byte{0xff}) || err != nil {
		t.Errorf("bytes %v, %v", b, err)
	}
	if n, err := get("n").BigInt(); err != nil || n.Int64() != 7 {
		t.Errorf("big %v, %v", n, err)
	}
	for m, err := range get("open").Members() {
		if n, kerr := m.Key.Int(); err != nil || kerr != nil || n != 1 || m.Name != "" {
			t.Errorf("key %d, %v %v", n, err, kerr)
		}
	}
	if _, err := get("open").Field("x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("member of an open map: %v", err)
	}
	if KindMap.String() != "map" || ValueKind(99).String() != "ValueKind(99)" || Shapes.String() != "Shapes" || Mode(9).String() != "Mode(9)" {
		t.Error("names of kinds and modes")
	}
}
