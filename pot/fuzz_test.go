package pot

import (
	"bytes"
	"errors"
	"reflect"
	"runtime"
	"testing"
)

// fuzzSeeds are payloads with headers: all vectors, and values in all modes.
func fuzzSeeds(f *testing.F) [][]byte {
	var seeds [][]byte
	unions := vecUnions(f)
	for _, v := range encodeVectors() {
		for _, mode := range []Mode{V4, Full, Shapes} {
			p, err := (&EncodeOptions{Mode: mode, Unions: unions}).Marshal(v.value)
			if err != nil {
				f.Fatal(err)
			}
			seeds = append(seeds, p)
		}
	}
	for _, v := range decodeVectors {
		seeds = append(seeds, unhex(f, v.hex))
	}
	set := &logSet{Logs: makeLogSet().Logs[:3]}
	p, err := (&EncodeOptions{Mode: Shapes}).Marshal(set)
	if err != nil {
		f.Fatal(err)
	}
	return append(seeds, p)
}

// fuzzTarget has a field of each way to decode.
type fuzzTarget struct {
	ID    uint64               `pot:"id"`
	Name  string               `pot:"name,omitzero"`
	Logs  []logRecord          `pot:"logs"`
	Ptr   **int16              `pot:"ptr"`
	Map   map[[2]int8][]string `pot:"map"`
	Any   any                  `pot:"any"`
	Obj   map[string]any       `pot:"obj"`
	Enum  vecEnum              `pot:"enum"`
	Raw   Raw                  `pot:"raw"`
	Self  []fuzzTarget         `pot:"self"`
	Bytes []byte               `pot:"bytes"`
	Array [3]uint8             `pot:"array"`
	Own   *goodMarshaler       `pot:"own"`
	Var   Variant              `pot:"var"`
	Rest  map[string]float32   `pot:",inline"`
}

// checkError fails unless err is nil or says where the input is at fault.
func checkError(t *testing.T, data []byte, err error) {
	t.Helper()
	var e *Error
	if err != nil && (!errors.As(err, &e) || e.Offset > int64(len(data))) {
		t.Fatalf("%x: untyped or misplaced error %v", data, err)
	}
}

// FuzzUnmarshal: no input makes decoding panic, run away or allocate beyond
// its budget; what decodes encodes again to something that decodes to the same.
func FuzzUnmarshal(f *testing.F) {
	for _, s := range fuzzSeeds(f) {
		f.Add(s)
	}
	unions := vecUnions(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		const budget = 1 << 20
		dec := DecodeOptions{Unions: unions, MaxAlloc: budget}
		var before, after runtime.MemStats
		for _, v := range []any{new(fuzzTarget), new(any), new(vecArchive), new(vecNumbers), new(map[any]any), new([]vecEnum)} {
			runtime.ReadMemStats(&before)
			err := dec.Unmarshal(data, v)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 16*budget+64*uint64(len(data)) {
				t.Fatalf("%x into %T allocates %d bytes", data, v, n)
			}
			checkError(t, data, err)
			if err != nil {
				continue
			}
			enc := EncodeOptions{Unions: unions, Deterministic: true, Mode: Shapes}
			payload, err := enc.Marshal(v)
			if err != nil {
				continue // a map[any]any can hold a key that only its payload can
			}
			again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			if err := (&DecodeOptions{Unions: unions}).Unmarshal(payload, again); err != nil {
				t.Fatalf("%x into %T: encoded to %x: %v", data, v, payload, err)
			}
			if other, err := enc.Marshal(again); err != nil || !bytes.Equal(payload, other) {
				t.Fatalf("%x into %T: %x and then %x, %v", data, v, payload, other, err)
			}
		}
	})
}

// walk visits all that a view can reach.
func walk(v Value, left *int) error {
	if *left--; *left < 0 {
		return nil
	}
	switch v.Kind() {
	case KindSeq:
		for e, err := range v.Elems() {
			if err != nil {
				return err
			}
			if err := walk(e, left); err != nil {
				return err
			}
		}
		return nil
	case KindMap:
		for m, err := range v.Members() {
			if err != nil {
				return err
			}
			if _, err := v.Field(m.Name); err != nil && m.Name != "" {
				return err
			}
			if err := walk(m.Value, left); err != nil {
				return err
			}
		}
		return nil
	case KindVariant:
		_, value, err := v.Variant()
		if err == nil && value.Kind() != KindInvalid {
			err = walk(value, left)
		}
		return err
	}
	var x any
	return v.Decode(&x)
}

// FuzzView: walking and explaining neither panics nor disagrees with Valid.
func FuzzView(f *testing.F) {
	for _, s := range fuzzSeeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		valid := Valid(data, nil)
		checkError(t, data, valid)
		_, err := Explain(nil, data, nil)
		checkError(t, data, err)
		if valid == nil && err != nil {
			t.Fatalf("%x is valid but cannot be explained: %v", data, err)
		}
		root, err := Open(data, nil)
		if err == nil {
			left := 1000
			err = walk(root, &left)
		}
		checkError(t, data, err)
		if valid == nil && err != nil && !errors.Is(err, ErrType) { // a map's key may not be comparable
			t.Fatalf("%x is valid but cannot be walked: %v", data, err)
		}
		var x any
		err = NewDecoder(bytes.NewReader(data), nil).Decode(&x)
		whole := Unmarshal(data, &x)
		if (err == nil) != (whole == nil) && !errors.Is(whole, ErrTrailing) && len(data) > 0 {
			t.Fatalf("%x: from a stream %v, from memory %v", data, err, whole)
		}
	})
}

// FuzzConvert: what JSON and CBOR can hold comes back from them as it was.
func FuzzConvert(f *testing.F) {
	for _, s := range fuzzSeeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		js, err := ToJSON(nil, data, nil)
		checkError(t, data, err)
		if err == nil && Valid(data, nil) == nil {
			payload, err := FromJSON(nil, js, &EncodeOptions{Mode: Shapes})
			if errors.Is(err, ErrDuplicate) { // a variant's name beside the same text
				return
			}
			if err != nil {
				t.Fatalf("%x as JSON %s: %v", data, js, err)
			}
			again, err := ToJSON(nil, payload, nil)
			if err != nil || !bytes.Equal(js, again) {
				t.Fatalf("%x: %s and then %s, %v", data, js, again, err)
			}
		}
		cb, err := ToCBOR(nil, data, nil)
		checkError(t, data, err)
		if err != nil || Valid(data, nil) != nil {
			return
		}
		payload, err := FromCBOR(nil, cb, nil)
		if errors.Is(err, ErrDuplicate) || errors.Is(err, ErrDepth) {
			return
		}
		if err != nil {
			t.Fatalf("%x as CBOR %x: %v", data, cb, err)
		}
		again, err := ToCBOR(nil, payload, nil)
		if err != nil || !bytes.Equal(cb, again) {
			t.Fatalf("%x: CBOR %x and then %x, %v", data, cb, again, err)
		}
	})
}

// FuzzFrom: the parsers of JSON and CBOR neither panic nor run away, and what
// they accept is a valid payload.
func FuzzFrom(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"x\u00e9",null,true]}`, `[{"k":1},{"k":2},{"k":3}]`, "\xa2\x61a\x01\x61b\x82\xf9\x3c\x00\xc2\x41\x05", "\xbf\x61a\x5f\x41\x01\xff\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, from := range []func(dst, data []byte, o *EncodeOptions) ([]byte, error){FromJSON, FromCBOR} {
			for _, mode := range []Mode{V4, Shapes} {
				payload, err := from(nil, data, &EncodeOptions{Mode: mode})
				checkError(t, data, err)
				if err == nil {
					if err := Valid(payload, nil); err != nil && !errors.Is(err, ErrDuplicate) {
						t.Fatalf("%x became %x: %v", data, payload, err)
					}
				}
			}
		}
	})
}

// FuzzTable: no serialized table panics or leaves a table half changed.
func FuzzTable(f *testing.F) {
	tb := NewTable(nil)
	if err := tb.AddShape("a", "b"); err != nil {
		f.Fatal(err)
	}
	whole, _ := tb.MarshalBinary()
	delta, _, _ := tb.AppendSince(nil, TableVersion{1, 0})
	f.Add(whole)
	f.Add(delta)
	f.Add([]byte("Pot\x00\x82\xe1a\xe1b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tb := NewTable(nil)
		if err := tb.AddSymbols("a"); err != nil {
			t.Fatal(err)
		}
		before := tb.Version()
		if err := tb.Apply(data); err != nil {
			if tb.Version() != before {
				t.Fatalf("%x failed and left version %v", data, tb.Version())
			}
			return
		}
		out, err := tb.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var again Table
		if err := again.UnmarshalBinary(out); err != nil || again.Version() != tb.Version() {
			t.Fatalf("%x: %x does not read back: %v", data, out, err)
		}
	})
}
