package pot

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"
)

// flatThing has leaves of every kind that a flat plan may have, names that occur
// twice, and a name that is longer than a word.
type flatThing struct {
	ID      string
	Pair    flatPair
	Small   int8
	Flags   [3]bool
	Body    []byte
	Digest  [4]byte
	Names   []string
	Grid    [][]int32
	Message *string `pot:"a message whose name is longer than two words"`
	Other   struct {
		ID   string
		Pair flatPair
	}
	Half  float32
	Real  float64
	When  time.Time
	Stamp time.Time `pot:",unixmilli"`
	Wide  big.Int
	U16   uint16
	U32   uint32
	U64   uint64
	I16   int16
	I32   int32
	I64   int64
	Yes   bool
}

type flatPair struct {
	X, Y int
}

// flatOption has fields that may be absent, here and in a struct within it.
type flatOption struct {
	Name string `pot:",omitempty"`
	N    int64  `pot:",omitzero"`
	In   struct {
		Tiny int8      `pot:",omitempty"`
		Tags []string  `pot:",omitempty"`
		When time.Time `pot:",omitzero"`
		Pair flatPair
	}
	Body []byte  `pot:"a body whose name is longer than a word,omitempty"`
	Real float64 `pot:",omitempty"`
	Text *string `pot:",omitzero"`
	Yes  bool
}

// flatOptions returns a value for each way to leave fields out.
func flatOptions() []flatOption {
	out := make([]flatOption, 1<<8)
	text := "text"
	for i := range out {
		v := &out[i]
		set := func(bit int, do func()) {
			if i>>bit&1 == 1 {
				do()
			}
		}
		set(0, func() { v.Name = "name" })
		set(1, func() { v.N = -300 })
		set(2, func() { v.In.Tiny = 7 })
		set(3, func() { v.In.Tags = []string{"a", "b"} })
		set(4, func() { v.In.When = time.Unix(1, 2).UTC() })
		set(5, func() { v.Body = []byte{1, 0xff} })
		set(6, func() { v.Real = 0.1 })
		set(7, func() { v.Text = &text })
	}
	return out
}

func flatThings() []flatThing {
	texts := []string{"", "a", "four", "sixteen letters!", strings.Repeat("long ", 30), strings.Repeat("é", 50), "ends in é", strings.Repeat("x", 3000)}
	numbers := []int64{0, 1, -1, 15, 127, 128, -128, -129, 1 << 15, -1 << 23, 1<<31 - 1, 1 << 31, 1<<47 + 1, -1 << 47, math.MaxInt64, math.MinInt64}
	var out []flatThing
	for i, n := range numbers {
		text := texts[i%len(texts)]
		v := flatThing{ID: text, Pair: flatPair{int(n), i}, Small: int8(n), Flags: [3]bool{true, false, i%2 == 0}, Body: []byte(text),
			Digest: [4]byte{byte(i)}, Half: float32(n), Real: float64(n) / 3, When: time.Unix(n%1e9, 5).UTC(), Stamp: time.UnixMilli(n % 1e12).UTC(),
			U16: uint16(n), U32: uint32(n), U64: uint64(n), I16: int16(n), I32: int32(n), I64: n, Yes: n > 0}
		v.Wide.Mul(big.NewInt(n), big.NewInt(n))
		v.Other.ID, v.Other.Pair.Y = texts[(i+1)%len(texts)], int(n)
		if i%3 == 0 {
			v.Message, v.Names, v.Grid = &texts[i%len(texts)], texts[:i%5], [][]int32{{1, 2}, nil, {int32(n)}}
		}
		out = append(out, v)
	}
	return out
}

// A struct that is a whole payload is written by its flat plan and a list of
// one such struct the general way: the same bytes follow the list's head. So
// they do with a table, where a linked one is written the general way.
func TestFlatEncodeEqualsGeneral(t *testing.T) {
	type sevenTimes struct{ A, B, C, D, E, F, G flatPair }
	type repeated struct {
		X  int `pot:",omitempty"`
		In struct{ Y, X int }
	}
	type order struct {
		ID    string
		Items []flatPair
		First *flatPair
		Any   any
		Names map[string]int8
		Last  []any
	}
	// With a table a flat plan adds all names of a struct at once, the general way
	// those that are present: values with all of them come first.
	values := []any{sevenTimes{}, makeLogSet().Logs[7], vecUser{1, "a"}, repeated{X: 1}, repeated{}, flatOptions()[255],
		order{ID: "1", Items: make([]flatPair, 20), First: &flatPair{}, Any: flatPair{1, 2}, Names: map[string]int8{"a": 1}, Last: []any{"x", flatPair{}}}, order{}}
	for _, v := range flatOptions() {
		values = append(values, v)
	}
	for _, v := range flatThings() {
		values = append(values, v)
	}
	for _, mode := range []Mode{V4, Full, Shapes} {
		opts := EncodeOptions{Mode: mode}
		shared, linked := opts, opts
		shared.Table, linked.Table, linked.Link = NewTable(nil), NewTable(nil), true
		for i, v := range values {
			_, isOrder := v.(order)
			_, isRepeated := v.(repeated)
			if want := !isOrder && (!isRepeated || mode == Shapes); hasFlat(t, v, mode) != want {
				t.Fatalf("%T in mode %v has a flat plan: want %v", v, mode, want)
			}
			list := reflect.MakeSlice(reflect.SliceOf(reflect.TypeOf(v)), 1, 1)
			list.Index(0).Set(reflect.ValueOf(v))
			want := mustMarshal(t, &opts, list.Interface())
			want = append(want[:headerSize:headerSize], want[headerSize+1:]...)
			if got := mustMarshal(t, &opts, v); string(got) != string(want) {
				t.Fatalf("mode %v, value %d: want %x, got %x", mode, i, want, got)
			}
			mustMarshal(t, &linked, v) // defines the names
			want = mustMarshal(t, &linked, v)
			if got := mustMarshal(t, &shared, v); string(got) != string(want) {
				t.Fatalf("mode %v with a table, value %d: want %x, got %x", mode, i, want, got)
			}
		}
	}
}

func hasFlat(t *testing.T, v any, mode Mode) bool {
	t.Helper()
	pl, err := planOf(reflect.TypeOf(v))
	if err != nil {
		t.Fatal(err)
	}
	return pl.st.wholeFlat(mode, false) != nil && pl.st.wholeFlat(mode, true) != nil
}

func mustMarshal(t testing.TB, o *EncodeOptions, v any) []byte {
	t.Helper()
	b, err := o.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// other is like flatPair but for its names.
type other struct {
	K string
	V *int8
}

// Lists of structs and pointers to them define their names where they are met
// first: within a payload that has a flat plan, if no name's number depends on it.
func TestFlatStructsWithin(t *testing.T) {
	type plainList struct {
		ID    string
		Items []flatPair
		Note  string
	}
	type nameBefore struct {
		X     int
		Items []flatPair
		Tags  []string
		Last  *other
	}
	type nameAfter struct {
		Items []flatPair
		X     int
	}
	type twoLists struct {
		A []flatPair
		B []other
	}
	type sameTwice struct{ A, B *flatPair }
	type pointers struct {
		A *flatPair `pot:",omitempty"`
		B *other
		C []uint16 `pot:",omitempty"`
	}
	type optional struct {
		N    int8         `pot:",omitempty"`
		List []flatOption `pot:",omitempty"`
		M    int8         `pot:",omitempty"`
	}
	type nested struct {
		ID   string
		List []plainList
	}
	type many struct{ A, B, C, D, E, F, G, H, I int8 }
	type manyNames struct {
		Many many
		List []flatPair
		X    int8
	}
	type manyOptions struct {
		M    int8 `pot:",omitempty"`
		Many many
		J    int8 `pot:",omitempty"`
		Last struct{ K, J int8 }
	}
	pair, pairs, one := &flatPair{1, 2}, []flatPair{{1, 2}, {3, 4}, {5, 6}}, int8(1)
	for _, v := range []struct {
		value  any
		v4, sh bool // whether there is a plan
	}{
		{plainList{"a", pairs, "note"}, true, true}, {plainList{}, true, true}, {plainList{"", pairs[:1], ""}, true, true},
		{nameBefore{1, pairs, []string{"a"}, &other{"k", &one}}, true, true}, {nameBefore{Items: pairs[:1]}, true, true}, {nameBefore{}, true, true},
		{nameAfter{pairs, 1}, false, true}, {nameAfter{nil, 1}, false, true},
		{twoLists{pairs, []other{{"k", nil}, {"l", &one}}}, false, false}, {twoLists{nil, []other{{"k", nil}, {"l", &one}}}, false, false},
		{sameTwice{pair, pair}, false, false}, {sameTwice{nil, pair}, false, false},
		{pointers{pair, &other{}, []uint16{1}}, true, true}, {pointers{nil, &other{"", &one}, nil}, true, true}, {pointers{pair, nil, nil}, true, true}, {pointers{}, true, true},
		{optional{1, flatOptions()[100:103], 2}, false, true}, {optional{0, nil, 2}, false, true}, {optional{0, flatOptions()[:1], 0}, false, true},
		{manyNames{List: pairs, X: 1}, false, true}, {manyNames{X: 1}, false, true},
		{manyOptions{M: 1}, false, true}, {manyOptions{J: 1}, false, true},
		{nested{"a", []plainList{{"b", pairs, "c"}, {}}}, false, false},
	} {
		for _, mode := range []Mode{V4, Full, Shapes} {
			pl, err := planOf(reflect.TypeOf(v.value))
			if err != nil {
				t.Fatal(err)
			}
			want := v.v4
			if mode == Shapes {
				want = v.sh
			}
			if got := pl.st.wholeFlat(mode, false) != nil; got != want {
				t.Errorf("%T in mode %v has a flat plan: want %v, got %v", v.value, mode, want, got)
			}
			list := reflect.MakeSlice(reflect.SliceOf(pl.typ), 1, 1)
			list.Index(0).Set(reflect.ValueOf(v.value))
			general := mustMarshal(t, &EncodeOptions{Mode: mode}, list.Interface())[headerSize+1:]
			payload := mustMarshal(t, &EncodeOptions{Mode: mode}, v.value)
			if string(payload[headerSize:]) != string(general) {
				t.Fatalf("%+v in mode %v: want %x, got %x", v.value, mode, general, payload[headerSize:])
			}
			table := NewTable(nil)
			withTable := mustMarshal(t, &EncodeOptions{Mode: mode, Table: table}, v.value)
			again, err := Transcode(nil, withTable, &DecodeOptions{Table: table}, &EncodeOptions{Canonical: true})
			plain, plainErr := Transcode(nil, payload, nil, &EncodeOptions{Canonical: true})
			if err != nil || plainErr != nil || string(again) != string(plain) {
				t.Fatalf("%+v in mode %v with a table: want %x, %v, got %x, %v", v.value, mode, plain, plainErr, again, err)
			}
			for depth := range 5 {
				_, err := (&EncodeOptions{Mode: mode, MaxDepth: depth + 1}).Marshal(v.value)
				_, listErr := (&EncodeOptions{Mode: mode, MaxDepth: depth + 2}).Marshal(list.Interface())
				if (err == nil) != (listErr == nil) {
					t.Errorf("%+v with %d levels: %v; in a list: %v", v.value, depth+1, err, listErr)
				}
			}
		}
	}
	bad := plainList{Items: pairs, Note: "\xff"}
	var e *Error
	if _, err := Marshal(bad); !errors.As(err, &e) || e.Path != "Note" {
		t.Errorf("want an error at Note, got %v", err)
	}
}

// Lists of structs get flat plans within payloads, whose names have other numbers
// in the next. What a fresh linked table makes of the same values, by the general
// way, are the same bytes.
func TestFlatListsEqualGeneral(t *testing.T) {
	type one struct {
		Name   string
		Pairs  []flatPair
		Things []flatThing
	}
	type two struct {
		Y      int8
		Things []flatThing
		Pairs  []flatPair
		Logs   []logRecord
		Some   []flatOption
	}
	things := slices.Concat(flatThings(), flatThings(), flatThings())
	pairs := make([]flatPair, 40)
	values := []any{one{"a", pairs, things}, two{1, things, pairs, makeLogSet().Logs[:50], flatOptions()}, pairs, things, one{"b", pairs[:3], things[:2]}, two{Y: 2, Pairs: pairs[:1]}, flatOptions()}
	for i := range 60 {
		for _, mode := range []Mode{V4, Shapes, Full} {
			v := values[(i+i/9)%len(values)]
			want := mustMarshal(t, &EncodeOptions{Mode: mode, Table: NewTable(nil), Link: true}, v)
			if got := mustMarshal(t, &EncodeOptions{Mode: mode}, v); string(got) != string(want) {
				t.Fatalf("payload %d, %T in mode %v: want %x, got %x", i, v, mode, want, got)
			}
		}
	}
	bad := append([]flatPair(nil), pairs...)
	texts := make([]struct{ A, B string }, 40)
	texts[39].B = "\xff"
	var e *Error
	if _, err := Marshal([]any{bad, texts}); !errors.As(err, &e) || e.Code != ErrUTF8 || e.Path != "[1][39].B" {
		t.Errorf("want %v at [1][39].B, got %v", ErrUTF8, err)
	}
}

// What a flat plan cannot write fails with the error of the general way, and
// nothing is appended.
func TestFlatEncodeErrors(t *testing.T) {
	bad := flatThings()[0]
	bad.Other.ID = "\xff"
	got, err := MarshalAppend([]byte("before"), bad)
	var e *Error
	if !errors.As(err, &e) || e.Code != ErrUTF8 || e.Path != "Other.ID" || string(got) != "before" {
		t.Errorf("want %v at Other.ID, got %v; %q", ErrUTF8, err, got)
	}
	if _, err := (&EncodeOptions{MaxDepth: 1}).Marshal(flatThing{}); !errors.Is(err, ErrDepth) {
		t.Errorf("want %v, got %v", ErrDepth, err)
	}
	for n := range 40 { // room that ends anywhere
		dst := make([]byte, n, n+40)
		if got, err := MarshalAppend(dst, flatThings()[3]); err != nil || string(got[n:]) != string(mustMarshal(t, &EncodeOptions{}, flatThings()[3])) {
			t.Errorf("behind %d bytes: %x, %v", n, got[n:], err)
		}
	}
}

// sameAsGeneral decodes a value as a whole payload, which is done by the flat
// plan first, and as the only element of a list, which is done the general way.
func sameAsGeneral[T any](body []byte, mode Mode, opts DecodeOptions) error {
	head := []byte{'P', 'o', 't', mode.version()}
	var one T
	err := opts.Unmarshal(append(head[:headerSize:headerSize], body...), &one)
	opts.MaxDepth = depthLimit(opts.MaxDepth) + 1
	list := make([]T, 1)
	listErr := opts.Unmarshal(append(append(head[:headerSize:headerSize], seqTag|1), body...), &list)
	if (err == nil) != (listErr == nil) {
		return fmt.Errorf("%w; in a list: %v", err, listErr)
	}
	if err == nil {
		if !reflect.DeepEqual(one, list[0]) {
			return fmt.Errorf("got %+v; in a list: %+v", one, list[0])
		}
		return nil
	}
	var e, l *Error
	if !errors.As(err, &e) || !errors.As(listErr, &l) || e.Code != l.Code || e.Offset+1 != l.Offset {
		return fmt.Errorf("%w; in a list: %v", err, listErr)
	}
	return nil
}

// Every whole payload, every prefix of it and every change of one byte is
// decoded by the flat plan as it is the general way, errors and offsets included.
func TestFlatDecodeEqualsGeneral(t *testing.T) {
	v, some := flatThings()[9], flatOptions()
	v.Message = nil
	options := []DecodeOptions{{}, {Strings: BorrowStrings}, {DisallowUnknownFields: true, Strings: InternStrings}, {MaxDepth: 2}}
	if raceEnabled {
		options = options[1:2]
	}
	for _, mode := range []Mode{V4, Full, Shapes} {
		payload := mustMarshal(t, &EncodeOptions{Mode: mode}, v)[headerSize:]
		for i := 0; i < len(some); i += 23 {
			body := mustMarshal(t, &EncodeOptions{Mode: mode}, some[i])[headerSize:]
			decodeChanged[flatOption](t, body, mode, options[i%len(options)], []byte{0, 7, 0xa0, 0xa6, body[i%len(body)] + 1})
		}
		for _, opts := range options {
			decodeChanged[flatThing](t, payload, mode, opts, []byte{0, 5, 8, 0x10, 0x47, 0x80, 0xc1, 0xff, 0xaa})
		}
	}
}

// decodeChanged decodes a payload, and what is left of it with every byte cut
// off or changed, in both ways.
func decodeChanged[T any](t *testing.T, payload []byte, mode Mode, opts DecodeOptions, changes []byte) {
	t.Helper()
	try := func(body []byte) {
		if err := sameAsGeneral[T](body, mode, opts); err != nil {
			t.Fatalf("mode %v, %+v, %x: %v", mode, opts, body, err)
		}
	}
	try(payload)
	for i := range payload {
		try(payload[:i])
		for _, c := range append(changes, payload[i]^1) {
			changed := append([]byte(nil), payload...)
			changed[i] = c
			try(changed)
		}
	}
}

// Values that are names, or define them, number the names anew.
func TestFlatDecodeSymbolsAsValues(t *testing.T) {
	type pair struct{ A, B string }
	for _, c := range []struct {
		body string
		want pair
	}{
		{"\xa2\xc2A\xe1x\xc2B\xc1", pair{"x", "A"}},
		{"\xa2\xc2A\xc2y\xc2B\xc3", pair{"y", "y"}},
		{"\xa2\xc2A\xc1\xc2B\xe1z", pair{"A", "z"}},
	} {
		var got pair
		if err := Unmarshal([]byte("Pot\x01"+c.body), &got); err != nil || got != c.want {
			t.Errorf("%x: want %v, got %v, %v", c.body, c.want, got, err)
		}
		if err := sameAsGeneral[pair]([]byte(c.body), V4, DecodeOptions{}); err != nil {
			t.Errorf("%x: %v", c.body, err)
		}
	}
}

// What follows a payload is not taken for fields that it leaves out.
func TestFlatDecodePrefix(t *testing.T) {
	type pair struct {
		A, B int8 `pot:",omitempty"`
	}
	for _, c := range []struct {
		body, rest string
		want       pair
	}{
		{"\xa0", "\xc2A\x20\x01", pair{}},
		{"\xa1\xc2A\x20\x01", "\xc2B\x20\x02", pair{A: 1}},
		{"\xa1\xc2B\x20\x02", "\xc2A\x20\x01", pair{B: 2}},
	} {
		var got pair
		rest, err := (&DecodeOptions{NoHeader: true}).UnmarshalPrefix([]byte(c.body+c.rest), &got)
		if err != nil || got != c.want || string(rest) != c.rest {
			t.Errorf("%x: want %v, got %v with %x left, %v", c.body, c.want, got, rest, err)
		}
	}
}

// The budget stops a whole payload where it stops the same in a list.
func TestFlatDecodeBudget(t *testing.T) {
	v := flatThings()[0]
	payload := mustMarshal(t, &EncodeOptions{}, v)
	for n := int64(1); ; n++ {
		err := (&DecodeOptions{MaxAlloc: n}).Unmarshal(payload, new(flatThing))
		list := append(append(payload[:headerSize:headerSize], seqTag|1), payload[headerSize:]...)
		var into []flatThing
		listErr := (&DecodeOptions{MaxAlloc: n + int64(reflect.TypeFor[flatThing]().Size())}).Unmarshal(list, &into)
		if codeOf(err) != codeOf(listErr) {
			t.Fatalf("budget %d: %v; in a list: %v", n, err, listErr)
		}
		if err == nil {
			return
		}
	}
}

// Payloads that a flat plan does not fit do not hinder those that it fits.
func TestFlatDecodePatience(t *testing.T) {
	other := mustMarshal(t, &EncodeOptions{}, struct {
		Y    uint8
		More []string
		X    int8
	}{2, []string{"more"}, 1})
	own := mustMarshal(t, &EncodeOptions{}, flatPair{1, 2})
	for i := range 100 {
		payload := own
		if i%7 == 0 {
			payload = other
		}
		var got flatPair
		if err := Unmarshal(payload, &got); err != nil || got != (flatPair{1, 2}) {
			t.Fatalf("payload %d: %+v, %v", i, got, err)
		}
	}
}

// FuzzFlat decodes bytes as a whole payload and in a list.
func FuzzFlat(f *testing.F) {
	for _, v := range flatThings() {
		for _, mode := range []Mode{V4, Full, Shapes} {
			f.Add(byte(mode), mustMarshal(f, &EncodeOptions{Mode: mode}, v)[headerSize:])
		}
	}
	for _, v := range flatOptions()[200:210] {
		f.Add(byte(V4), mustMarshal(f, &EncodeOptions{}, v)[headerSize:])
		f.Add(byte(Shapes), mustMarshal(f, &EncodeOptions{Mode: Shapes}, v)[headerSize:])
	}
	f.Add(byte(V4), []byte("\xa2\xc2X\xe1x\xc2Y\xc1"))
	f.Fuzz(func(t *testing.T, m byte, body []byte) {
		mode := Mode(m % 3)
		if err := sameAsGeneral[flatThing](body, mode, DecodeOptions{}); err != nil {
			t.Error(err)
		}
		if err := sameAsGeneral[flatOption](body, mode, DecodeOptions{Strings: BorrowStrings}); err != nil {
			t.Error(err)
		}
		if err := sameAsGeneral[flatPair](body, mode, DecodeOptions{Strings: InternStrings}); err != nil {
			t.Error(err)
		}
	})
}

// Texts of every length are copied whole and found to be UTF-8 or not as
// utf8.Valid does, with an odd byte anywhere.
func TestTextsOfEveryLength(t *testing.T) {
	for n := range 140 {
		for at := range n + 1 {
			for _, odd := range []string{"", "\xff", "\x80", "é", "€", "😀", "\xed\xa0\x80"} {
				text := strings.Repeat("abcdefgh", 20)[:at] + odd + strings.Repeat("ABCDEFGH", 20)[:n-at]
				dst := make([]byte, len(text)+1)
				want := utf8.ValidString(text)
				if got := copyText(unsafe.Pointer(&dst[0]), text); got != want || string(dst) != text+"\x00" {
					t.Fatalf("%q: want %v, got %v and %q", text, want, got, dst)
				}
				if got := validText([]byte(text)); got != want {
					t.Fatalf("%q: want %v, got %v", text, want, got)
				}
			}
		}
	}
}
