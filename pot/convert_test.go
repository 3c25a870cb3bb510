package pot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
)

// JSON goes to a payload and back without a change, in every mode and with a
// table, whatever the order of members.
func TestJSONThereAndBack(t *testing.T) {
	table := NewTable(nil)
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `-1`, `255`, `18446744073709551615`, `-9223372036854775808`,
		`170141183460469231731687303715884105727`, `-170141183460469231731687303715884105728`,
		`340282366920938463463374607431768211455`, `999999999999999999`, `1000000000000000000`, `-0.0`, `1.5`, `1.0`, `1e+21`, `1e-07`, `0.1`,
		`5e-324`, `1.7976931348623157e+308`, `""`, `"\u0000\u001f\"\\\n\r\t\b\f/€😀"`, `[]`, `{}`, `[[],{}]`, `{"z":1,"a":[true,null],"m":{"z":2}}`,
		`[{"id":1,"name":"a"},{"id":2,"name":"b"},{"name":"c","id":3},{"id":4,"name":"d"}]`,
		`{"":{"":""}}`, `[9007199254740993,1.0]`,
	} {
		for _, enc := range []EncodeOptions{{}, {Mode: Full}, {Mode: Shapes}, {Mode: Shapes, Table: table}, {Table: table}} {
			for range 3 {
				payload, err := FromJSON([]byte("x"), []byte(text), &enc)
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				got, err := ToJSON([]byte("y"), payload[1:], &JSONOptions{DecodeOptions: DecodeOptions{Table: enc.Table}})
				if err != nil || string(got) != "y"+text {
					t.Errorf("%v: %s became %x and %s, %v", enc.Mode, text, payload, got, err)
				}
			}
		}
	}
	spaced := " \n{ \"a\" : [ 1 , 2.50 ] , \"b\\u0041\\ud83d\\ude00\\/\" : -0 }\t"
	payload, err := FromJSON(nil, []byte(spaced), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ToJSON(nil, payload, &JSONOptions{Indent: "  "})
	want := "{\n  \"a\": [\n    1,\n    2.5\n  ],\n  \"bA😀/\": -0.0\n}"
	if err != nil || string(got) != want {
		t.Errorf("want %s, got %s, %v", want, got, err)
	}
}

func TestJSONErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		code Code
		at   int64
	}{
		{``, ErrTruncated, 0}, {`nul`, ErrSyntax, 0}, {`[1`, ErrTruncated, 2}, {`[1,]`, ErrSyntax, 3}, {`{"a"}`, ErrSyntax, 4}, {`{"a":1,}`, ErrSyntax, 7},
		{`{a:1}`, ErrSyntax, 1}, {`01`, ErrSyntax, 1}, {`-`, ErrTruncated, 1}, {`1.`, ErrTruncated, 2}, {`1.e`, ErrSyntax, 2}, {`1e`, ErrTruncated, 2}, {`+1`, ErrSyntax, 0},
		{`1e400`, ErrRange, 0}, {`[340282366920938463463374607431768211456]`, ErrRange, 1}, {`-170141183460469231731687303715884105729`, ErrRange, 0},
		{"\"\xff\"", ErrUTF8, 0}, {`"\ud800"`, ErrUTF8, 7}, {`"\ud800\u0041"`, ErrUTF8, 7}, {`"\udc00"`, ErrUTF8, 7}, {`"\x"`, ErrSyntax, 2}, {"\"\n\"", ErrSyntax, 1}, {`"a`, ErrTruncated, 2}, {`"a\`, ErrTruncated, 3},
		{`{"a":1,"b":2,"a":3}`, ErrDuplicate, 13}, {`1 2`, ErrTrailing, 2}, {`[1 2]`, ErrSyntax, 3}, {`NaN`, ErrSyntax, 0}, {`// x`, ErrSyntax, 0},
	} {
		_, err := FromJSON(nil, []byte(c.text), nil)
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || e.Offset != c.at {
			t.Errorf("%s: want %v at %d, got %v", c.text, c.code, c.at, err)
		}
		if json.Valid([]byte(c.text)) && c.code != ErrRange && c.code != ErrDuplicate && c.code != ErrUTF8 {
			t.Errorf("%s is valid JSON", c.text)
		}
	}
	var many strings.Builder
	for i := range 40 {
		fmt.Fprintf(&many, `,"k%d":1`, i)
	}
	if _, err := FromJSON(nil, []byte("{"+many.String()[1:]+`,"k3":2}`), nil); !errors.Is(err, ErrDuplicate) {
		t.Errorf("duplicate among many: %v", err)
	}
	for _, c := range []struct {
		value any
		lossy string
	}{
		{[]byte{0xff}, `"/w=="`}, {math.NaN(), `null`}, {[]float64{math.Inf(1)}, `[null]`}, {map[int]string{1: "x"}, `{"1":"x"}`},
		{map[bool]int{true: 1}, `{"true":1}`}, {map[[1]int]int{{2}: 1}, ""},
	} {
		payload, err := Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ToJSON(nil, payload, nil); !errors.Is(err, ErrNotRepresentable) {
			t.Errorf("%v: want %v, got %v", c.value, ErrNotRepresentable, err)
		}
		got, err := ToJSON(nil, payload, &JSONOptions{Lossy: true})
		if string(got) != c.lossy || (c.lossy == "") != errors.Is(err, ErrNotRepresentable) {
			t.Errorf("%v: want %s, got %s, %v", c.value, c.lossy, got, err)
		}
	}
}

// Variants become what serde's JSON makes of them.
func TestVariantsAsJSON(t *testing.T) {
	payload, err := (&EncodeOptions{Unions: vecUnions(t)}).Marshal([]vecEnum{vecUnit{}, vecTuple(3), vecTwo{1, 2}, vecArg{5}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ToJSON(nil, payload, nil)
	if want := `["Unit",{"Tuple":3},{"TupleTwoArgs":[1,2]},{"Struct":{"arg":5}}]`; err != nil || string(got) != want {
		t.Errorf("want %s, got %s, %v", want, got, err)
	}
}

// CBOR goes there and back byte for byte when it is in its shortest form, and
// agrees with another codec.
func TestCBORThereAndBack(t *testing.T) {
	for _, h := range []string{
		"00", "17", "1818", "1903e8", "1bffffffffffffffff", "20", "3bffffffffffffffff", "c249010000000000000000", "c349010000000000000000",
		"f4", "f5", "f6", "f7", "f90000", "f98000", "f97c00", "f97e00", "f9fe00", "fa47c35000", "fb3ff199999999999a", "fa7fc00000", "fb7ff8000000000000",
		"60", "6161", "62c3bc", "41ff", "80", "83010203", "a0", "a26161016162820203", "a201020304", "a1f601", "a18001",
	} {
		in := unhex(t, h)
		payload, err := FromCBOR(nil, in, nil)
		if err != nil {
			t.Errorf("%s: %v", h, err)
			continue
		}
		got, err := ToCBOR(nil, payload, nil)
		if err != nil || !bytes.Equal(got, in) {
			t.Errorf("%s became %x and %x, %v", h, payload, got, err)
		}
	}
	for in, want := range map[string]string{"5f41ff41feff": "42fffe", "7f61616162ff": "626162", "9f0102ff": "820102", "bf616101ff": "a1616101",
		"fb3ff0000000000000": "f93c00", "1800": "00", "c24101": "01"} {
		payload, err := FromCBOR(nil, unhex(t, in), nil)
		got, err2 := ToCBOR(nil, payload, nil)
		if err != nil || err2 != nil || hex.EncodeToString(got) != want {
			t.Errorf("%s: want %s, got %x, %v %v", in, want, got, err, err2)
		}
	}
	for in, code := range map[string]Code{"": ErrTruncated, "18": ErrTruncated, "1c": ErrSyntax, "1f": ErrSyntax, "ff": ErrSyntax, "61": ErrTruncated,
		"61ff": ErrUTF8, "81": ErrTruncated, "9f01": ErrTruncated, "a16161": ErrTruncated, "a2616101616102": ErrDuplicate, "c074323031332d30332d32315432303a30343a30305a": ErrNotRepresentable,
		"c2": ErrTruncated, "c201": ErrSyntax, "c25101ffffffffffffffffffffffffffffffff": ErrNotRepresentable, "c350ffffffffffffffffffffffffffffffff": ErrNotRepresentable,
		"f0": ErrNotRepresentable, "f818": ErrNotRepresentable, "0000": ErrTrailing, "5f6161ff": ErrSyntax, "5f5f4101ffff": ErrSyntax,
		"9bffffffffffffffff": ErrTruncated, "bbffffffffffffffff": ErrTruncated, "5bffffffffffffffff": ErrTruncated} {
		if _, err := FromCBOR(nil, unhex(t, in), nil); !errors.Is(err, code) {
			t.Errorf("%s: want %v, got %v", in, code, err)
		}
	}
	set := &logSet{Logs: makeLogSet().Logs[:50]}
	payload, _ := (&EncodeOptions{Mode: Shapes}).Marshal(set)
	got, err := ToCBOR(nil, payload, nil)
	if want, _ := cbor.Marshal(set); err != nil || !bytes.Equal(got, want) {
		t.Errorf("log set as CBOR differs from another codec's, %v", err)
	}
}

// The view finds what decoding finds, in every mode.
func TestView(t *testing.T) {
	set := &logSet{Logs: makeLogSet().Logs[:20]}
	for _, enc := range []EncodeOptions{{}, {Mode: Full}, {Mode: Shapes}, {Mode: Shapes, Table: NewTable(nil)}} {
		payload, err := enc.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		view := NewView(&DecodeOptions{Table: enc.Table})
		root, err := view.Open(payload)
		if err != nil {
			t.Fatal(err)
		}
		logs, err := root.Get("logs")
		if n, _ := logs.Len(); err != nil || n != 20 || logs.Kind() != KindSeq {
			t.Fatalf("logs: %d of kind %v, %v", n, logs.Kind(), err)
		}
		for _, i := range []string{"7", "0", "19", "7"} { // forth and back
			rec := set.Logs[map[string]int{"7": 7, "0": 0, "19": 19}[i]]
			code, err := root.Get("logs", i, "code")
			got, err2 := code.Uint()
			if err != nil || err2 != nil || got != uint64(rec.Code) || code.Kind() != KindUint {
				t.Errorf("%v: code of %s: want %d, got %d, %v %v", enc.Mode, i, rec.Code, got, err, err2)
			}
			x3, _ := root.Get("logs", i, "address", "x3")
			if got, err := x3.Int(); err != nil || got != int64(rec.Address.X3) {
				t.Errorf("%v: x3 of %s: want %d, got %d, %v", enc.Mode, i, rec.Address.X3, got, err)
			}
		}
		i := 0
		for elem, err := range logs.Elems() {
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for m, err := range elem.Members() {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, m.Name)
				if m.Name == "address" {
					if n, err := m.Value.Len(); n != 4 || err != nil || m.Value.Kind() != KindMap {
						t.Errorf("address has %d members, %v", n, err)
					}
				}
			}
			if want := []string{"address", "identity", "userid", "date", "request", "code", "size"}; !cmp.Equal(names, want) {
				t.Errorf("names %v", names)
			}
			var got logRecord
			if err := elem.Decode(&got); err != nil || got != set.Logs[i] {
				t.Errorf("record %d: got %v, %v", i, got, err)
			}
			raw, err := elem.Raw()
			got = logRecord{}
			if err2 := Unmarshal(raw, &got); err != nil || err2 != nil || got != set.Logs[i] {
				t.Errorf("record %d raw: got %v, %v %v", i, got, err, err2)
			}
			i++
		}
		if i != 20 {
			t.Errorf("%d elements", i)
		}
		for _, path := range [][]string{{"x"}, {"logs", "20"}, {"logs", "-1"}, {"logs", "x"}, {"logs", "1", "code2"}} {
			if v, err := root.Get(path...); !errors.Is(err, ErrNotFound) || v.Kind() != KindInvalid {
				t.Errorf("%v: %v", path, err)
			}
		}
		if _, err := root.Get("logs", "1", "code", "deeper"); !errors.Is(err, ErrType) {
			t.Errorf("a path through a number: %v", err)
		}
	}
	if _, err := (Value{}).Int(); !errors.Is(err, ErrNotFound) {
		t.Errorf("no value: %v", err)
	}
}

func TestViewKinds(t *testing.T) {
	values := vecOpenMap{"none", nil, "unit", struct{}{}, "bool", true, "int", -1, "uint", uint8(1), "float", 1.5, "text", "x", "bytes", []byte{0xff},
		"seq", []any{}, "map", map[string]any{}, "unitvariant", Variant{Name: "U", Unit: true}, "variant", Variant{Name: "V", Value: 2}}
	payload, err := Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	root, err := Open(payload, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]ValueKind{"none": KindNone, "unit": KindUnit, "bool": KindBool, "int": KindInt, "uint": KindUint, "float": KindFloat,
		"text": KindText, "bytes": KindBytes, "seq": KindSeq, "map": KindMap, "unitvariant": KindVariant, "variant": KindVariant} {
		v, err := root.Field(name)
		if err != nil || v.Kind() != want {
			t.Errorf("%s: want %v, got %v, %v", name, want, v.Kind(), err)
		}
	}
	v, _ := root.Field("variant")
	name, value, err := v.Variant()
	if n, _ := value.Int(); err != nil || name != "V" || n != 2 {
		t.Errorf("variant %s %d, %v", name, n, err)
	}
	if n, err := root.Len(); n != 12 || err != nil {
		t.Errorf("%d members, %v", n, err)
	}
}

// The stream's payloads come one by one, however the bytes arrive, and the
// decoder does not wait for more than it needs.
func TestStream(t *testing.T) {
	unions := vecUnions(t)
	for _, mode := range []Mode{V4, Full, Shapes} {
		for _, link := range []bool{false, true} {
			enc, dec := EncodeOptions{Mode: mode, Unions: unions}, DecodeOptions{Unions: unions}
			if link {
				enc.Table, enc.Link, dec.Table, dec.Link = NewTable(nil), true, NewTable(nil), true
			}
			type message struct {
				Rec  logRecord
				Enum []vecEnum
				Open vecOpenAny
			}
			var sent []message
			var buf bytes.Buffer
			e := NewEncoder(&buf, &enc)
			for i, rec := range makeLogSet().Logs[:30] {
				m := message{rec, []vecEnum{vecUnit{}, vecTuple(i)}[:i%3/2*2], vecOpenAny{int64(i)}}
				sent = append(sent, m)
				if err := e.Encode(m); err != nil {
					t.Fatal(err)
				}
			}
			stream := buf.Bytes()
			for name, r := range map[string]io.Reader{"whole": bytes.NewReader(stream), "bytes": iotest.OneByteReader(bytes.NewReader(stream)),
				"halves": iotest.HalfReader(bytes.NewReader(stream)), "data with EOF": iotest.DataErrReader(bytes.NewReader(stream))} {
				if link {
					dec.Table = NewTable(nil)
				}
				d := NewDecoder(r, &dec)
				for i := range sent {
					var got message
					if err := d.Decode(&got); err != nil {
						t.Fatalf("%v, %s, message %d: %v", mode, name, i, err)
					}
					if !cmp.Equal(got.Rec, sent[i].Rec) || len(got.Enum) != len(sent[i].Enum) || !cmp.Equal(got.Open, sent[i].Open) {
						t.Fatalf("%v, %s: want %v, got %v", mode, name, sent[i], got)
					}
				}
				if err := d.Decode(new(message)); err != io.EOF || d.Offset() != int64(len(stream)) {
					t.Errorf("at the end: %v, offset %d of %d", err, d.Offset(), len(stream))
				}
			}
			d := NewDecoder(bytes.NewReader(stream[:len(stream)-1]), &DecodeOptions{Unions: unions, Table: nil})
			if link {
				d = NewDecoder(bytes.NewReader(stream[:len(stream)-1]), &DecodeOptions{Unions: unions, Table: NewTable(nil), Link: true})
			}
			var err error
			for err == nil {
				err = d.Decode(new(message))
			}
			if !errors.Is(err, ErrTruncated) {
				t.Errorf("%v: cut stream: %v", mode, err)
			}
			if again := d.Decode(new(message)); again != err {
				t.Errorf("after an error: %v", again)
			}
		}
	}
}

// vecOpenAny is an open map from 0 on to the values.
type vecOpenAny []int64

func (m vecOpenAny) MarshalPotTo(w *Writer) error {
	w.WriteOpenMap()
	for i, v := range m {
		w.WriteInt(int64(i))
		w.WriteInt(v)
	}
	w.CloseMap()
	return nil
}

func (m *vecOpenAny) UnmarshalPotFrom(r *Reader) error {
	*m = nil
	n, err := r.ReadMap()
	if err != nil || n != -1 {
		return errors.Join(err, errors.New("want an open map"))
	}
	for !r.ReadMapEnd() {
		if _, err := r.ReadInt(); err != nil {
			return err
		}
		v, err := r.ReadInt()
		if err != nil {
			return err
		}
		*m = append(*m, v)
	}
	return nil
}

// A payload that comes over a pipe is decoded when its last byte is there.
func TestStreamDoesNotWait(t *testing.T) {
	r, w := io.Pipe()
	answer := make(chan error)
	go func() {
		d := NewDecoder(r, nil)
		for range 3 {
			var got logRecord
			answer <- d.Decode(&got)
		}
	}()
	payload, _ := Marshal(makeLogSet().Logs[0])
	for range 3 {
		if _, err := w.Write(payload); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; err != nil { // would block for ever if it waited for more
			t.Fatal(err)
		}
	}
}

func TestStreamLimit(t *testing.T) {
	payload, _ := Marshal(strings.Repeat("x", 10000))
	d := NewDecoder(iotest.OneByteReader(bytes.NewReader(payload)), nil)
	d.SetMaxPayload(100)
	if err := d.Decode(new(string)); !errors.Is(err, ErrBudget) {
		t.Errorf("want %v, got %v", ErrBudget, err)
	}
	d = NewDecoder(strings.NewReader("PotX"), nil)
	if err := d.Decode(new(string)); !errors.Is(err, ErrHeader) {
		t.Errorf("want %v, got %v", ErrHeader, err)
	}
}

// The explanation accounts for every byte, and the notation tells kinds apart.
func TestExplainAndFormat(t *testing.T) {
	text := "hi"
	payload, err := (&EncodeOptions{Mode: Shapes}).Marshal([]any{vecUser{42, "ecton"}, vecUser{43, text}, []byte{0xfe}, Variant{Name: "V w", Value: -1.5}, vecOpenMap{1, nil}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Explain(nil, payload, nil)
	want := `000000  50 6f 74 80                header: Pot, mode Shapes
000004  85                         sequence of 5
000005  08                           definition of shape 0 and its first record
000006  82                             2 names
000007  c4 69 64                       symbol 0 "id"
00000a  c8 6e 61 6d 65                 symbol 1 "name"
00000f  40 2a                          id: uint 42
000011  e5 65 63 74 6f 6e              name: text of 5 bytes "ecton"
000017  09                           record of shape 0, 2 fields
000018  40 2b                          id: uint 43
00001a  e2 68 69                       name: text of 2 bytes "hi"
00001d  e1 fe                        1 bytes
00001f  04                           variant
000020  c6 56 20 77                    name: new symbol 2 "V w"
000024  61 00 be                       value: float -1.5 of 2 bytes
000027  05                           open map
000028  20 01                          key: int 1
00002a  00                             value: none
00002b  06                           end of the map
`
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s", err, cmp.Diff(want, string(got)))
	}
	flat, err := Format(nil, payload, "", nil)
	if want := "[{id: 42u, name: \"ecton\"}, {id: 43u, name: \"hi\"}, h'fe', `V w`(-1.5), {1: none}]"; err != nil || string(flat) != want {
		t.Errorf("want %s, got %s, %v", want, flat, err)
	}
	broken, err := Explain(nil, payload[:0x25], nil)
	if !errors.Is(err, ErrTruncated) || !bytes.Contains(broken, []byte(`"V w"`)) {
		t.Errorf("of a cut payload: %s, %v", broken, err)
	}
}

// Equal values have one canonical form, whatever they were written from.
func TestCanonical(t *testing.T) {
	type ab struct {
		B uint8 `pot:"b"`
		A int64 `pot:"a"`
	}
	canon := EncodeOptions{Canonical: true}
	var forms []string
	for _, v := range []any{ab{B: 2, A: 1}, map[string]any{"a": 1, "b": 2}, map[string]uint64{"b": 2, "a": 1}, vecOpenMap{"b", 2, "a", 1}} {
		got, err := canon.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		forms = append(forms, hex.EncodeToString(got))
	}
	for _, f := range forms {
		if want := "506f7401a2c2612001c2622002"; f != want {
			t.Errorf("want %s, got %s", want, f)
		}
	}
	strict := DecodeOptions{Canonical: true}
	for h, code := range map[string]Code{"506f7401a2c2612001c2622002": 0, "506f7400a2c2612001c2622002": ErrNotCanonical, "506f7401a2c2622002c2612001": ErrNotCanonical,
		"506f7401a2e1612001c2622002": ErrNotCanonical, "506f74014001": ErrNotCanonical, "506f7401210100": ErrNotCanonical, "506f740163000000" + "00": ErrNotCanonical,
		"506f7401a2c2612001c12002": ErrDuplicate} {
		var got any
		err := strict.Unmarshal(unhex(t, h), &got)
		if code == 0 && err != nil || code != 0 && !errors.Is(err, code) {
			t.Errorf("%s: want %v, got %v", h, code, err)
		}
	}
}
