package jsonplan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

type inner struct {
	A int8   `json:"a"`
	B string `json:"b,omitempty"`
	C *inner `json:"c,omitempty"`
}

type base struct {
	ID   string
	Kind uint16 `json:"kind"`
}

type text struct{ s string }

func (t text) MarshalText() ([]byte, error)  { return []byte("<" + t.s + ">"), nil }
func (t *text) UnmarshalText(b []byte) error { t.s = strings.Trim(string(b), "<>"); return nil }

type celsius float64

func (c celsius) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, ` {"c" : %d}`, int(c)), nil }
func (c *celsius) UnmarshalJSON(b []byte) error {
	var v struct{ C int }
	err := json.Unmarshal(b, &v)
	*c = celsius(v.C)
	return err
}

type level string

type everything struct {
	base
	Bool     bool
	I        int `json:",omitempty"`
	I8       int8
	I16      int16
	I32      int32
	I64      int64 `json:"i-64"`
	U        uint
	U8       uint8
	U16      uint16
	U32      uint32
	U64      uint64
	F32      float32
	F64      float64
	S        string `json:"s"`
	Skipped  string `json:"-"`
	Level    level
	Bytes    []byte
	Strings  []string
	Ints     []int32 `json:",omitempty"`
	Array    [3]int
	Inner    inner
	Inners   []inner
	Pointer  *inner
	Pointers []*string
	Map      map[string]int
	MapOf    map[level]inner
	Any      any
	Object   map[string]any
	Time     time.Time
	TimeP    *time.Time `json:",omitzero"`
	Zero     time.Time  `json:",omitzero"`
	Text     text
	TextP    *text
	Celsius  celsius
	Raw      json.RawMessage `json:",omitempty"`
	Addr     netip.Addr
	Empty    struct{}
	Next     *everything `json:",omitempty"`
	Amp      int         `json:"a&b"`
}

// Types that encoding/json must do.
type (
	quoted struct {
		N int `json:",string"`
	}
	number struct{ N json.Number }
	hidden struct {
		base
		ID int
	}
	bigger   struct{ N big.Int }
	embedded struct{ *base }
	intKeys  struct{ M map[int]string }
	letters  struct{ Größe int }
)

func randomText(r *rand.Rand) string {
	alphabets := []string{"abcdefghijklmnopqrstuvwxyz ABC 0123", "a\"\\/\b\f\n\r\t\x00\x1f\x7f<>&'", "aé漢😀\u2028\u2029\ufffd", "a\xff\xc3\xed\xa0\x80"}
	a := []rune(alphabets[min(r.IntN(6), 3)])
	if r.IntN(8) == 0 {
		return strings.Repeat("\xff", r.IntN(3)) + "\xc3"
	}
	var b strings.Builder
	for range r.IntN(30) {
		b.WriteRune(a[r.IntN(len(a))])
	}
	return b.String()
}

func randomFloat(r *rand.Rand) float64 {
	switch r.IntN(5) {
	case 0:
		return float64(r.IntN(2000) - 1000)
	case 1:
		return math.Copysign(0, -1)
	case 2:
		return r.NormFloat64() * math.Pow(10, float64(r.IntN(60)-30))
	case 3:
		return float64(r.IntN(1e6)) / 100
	}
	return math.MaxFloat64 * r.Float64()
}

func randomAny(r *rand.Rand, depth int) any {
	switch n := r.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return r.IntN(2) == 0
	case n == 2:
		return randomFloat(r)
	case n == 3 && depth > 0:
		out := []any{}
		for range r.IntN(4) {
			out = append(out, randomAny(r, depth-1))
		}
		return out
	case n <= 5 && depth > 0:
		out := map[string]any{}
		for range r.IntN(4) {
			out[randomText(r)] = randomAny(r, depth-1)
		}
		return out
	case n == 6:
		return r.IntN(100) // encoded alike, read back as float64
	}
	return randomText(r)
}

// fill sets a variable to something random.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(r.Int64N(4e9), r.Int64N(1e9)).UTC()
		return
	case *text:
		*x = text{strings.Trim(strings.ToValidUTF8(randomText(r), ""), "<>")}
		return
	case *json.RawMessage:
		*x = json.RawMessage(`[1, {"x" : "y"}]`)
		return
	case *netip.Addr:
		*x = netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(256)), 1})
		return
	case *any:
		*x = randomAny(r, 3)
		return
	case *map[string]any:
		*x, _ = randomAny(r, 3).(map[string]any)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64))
	case reflect.Float32:
		v.SetFloat(float64(float32(r.NormFloat64() * math.Pow(10, float64(r.IntN(40)-20)))))
	case reflect.Float64:
		v.SetFloat(randomFloat(r))
	case reflect.String:
		v.SetString(randomText(r))
	case reflect.Slice:
		if n := r.IntN(5) - 1; n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(r, v.Index(i), depth)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i), depth)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() || v.Type().Field(i).Anonymous {
				fill(r, reflect.NewAt(v.Field(i).Type(), v.Field(i).Addr().UnsafePointer()).Elem(), depth)
			}
		}
	case reflect.Pointer:
		if depth > 0 && r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth-1)
		}
	case reflect.Map:
		if r.IntN(3) > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range r.IntN(4) {
				k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				fill(r, k, depth)
				fill(r, e, 0)
				v.SetMapIndex(k, e)
			}
		}
	}
}

// reference encodes as encoding/json does.
func reference(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// samples returns values of many types, and pointers to them.
func samples(r *rand.Rand) []any {
	e := new(everything)
	fill(r, reflect.ValueOf(e).Elem(), 2)
	dash := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "Dash", Type: reflect.TypeFor[string](), Tag: `json:"-,"`}})).Elem()
	dash.Field(0).SetString(e.S)
	list := []any{e, *e, e.Inner, e.Strings, e.Array, e.Map, e.MapOf, e.S, e.F64, e.F32, e.I64, e.Any, e.Object, e.Time, e.Text, e.Celsius, e.Pointer,
		[]any{e.Inner, &e.Inner, e.Map}, [1]*inner{e.Pointer}, struct{ P *inner }{e.Pointer}, struct{ M map[string]int }{e.Map},
		map[string]any{"x": e.Inner, "y": []int{1}}, dash.Interface(), struct{ A, b int }{1, 2}, nil}
	return list
}

func TestEncodesAsEncodingJSON(t *testing.T) {
	r := seeded(t)
	for range 600 {
		for _, v := range samples(r) {
			want, err := reference(v)
			got, ok := Append([]byte("x"), v)
			if err != nil {
				if ok {
					t.Fatalf("%T %+v: encoded as %s, encoding/json says %v", v, v, got, err)
				}
				continue
			}
			if !ok {
				t.Fatalf("%T %+v: not encoded", v, v)
			}
			if string(got[1:]) != string(want) {
				t.Fatalf("%T:\n got %s\nwant %s", v, got[1:], want)
			}
		}
	}
}

// both decodes a text with a plan and with encoding/json, and compares. It
// returns whether the plan did it.
func both(t testing.TB, body []byte, typ reflect.Type) bool {
	t.Helper()
	want, got := reflect.New(typ), reflect.New(typ)
	err := json.Unmarshal(body, want.Interface())
	kept := bytes.Clone(body)
	ok := Decode(kept, got.Interface())
	clear(kept) // nothing may be kept of it
	switch {
	case ok && err != nil:
		t.Fatalf("%v: decoded %s, encoding/json says %v", typ, body, err)
	case ok && !reflect.DeepEqual(got.Interface(), want.Interface()):
		t.Fatalf("%v of %s:\n got %+v\nwant %+v", typ, body, got.Elem(), want.Elem())
	case !ok && !got.Elem().IsZero():
		t.Fatalf("%v of %s: left %+v behind", typ, body, got.Elem())
	}
	return ok
}

func TestDecodesAsEncodingJSON(t *testing.T) {
	r := seeded(t)
	for range 400 {
		for _, v := range samples(r) {
			if v == nil {
				continue
			}
			body, err := reference(v)
			if err != nil {
				t.Fatal(err)
			}
			typ := reflect.TypeOf(v)
			if !both(t, body, typ) && json.Unmarshal(body, reflect.New(typ).Interface()) == nil {
				t.Fatalf("%v: not decoded: %s", typ, body)
			}
			both(t, mutate(r, body), typ)
		}
	}
}

// mutate changes a text a little, so that it may be wrong or odd.
func mutate(r *rand.Rand, body []byte) []byte {
	b := bytes.Clone(body)
	if len(b) == 0 {
		return b
	}
	i := r.IntN(len(b))
	switch r.IntN(8) {
	case 0:
		b = b[:i]
	case 1:
		b[i] ^= 1 << r.IntN(8)
	case 2:
		pieces := []string{" ", "\n", ",", "{", "}", "[]", "null", `"`, "0", "-", ".5", "e1", `\u0041`, `\ud800`, `\`, "true", "{}", "1e999"}
		b = append(b[:i:i], append([]byte(pieces[r.IntN(len(pieces))]), body[i:]...)...)
	case 3:
		b = bytes.Replace(b, []byte(`"a":`), []byte(`"A":`), 1)
	case 4:
		b = bytes.Replace(b, []byte(`"kind":`), []byte(`"`+"\u212a"+`ind":`), 1)
	case 5:
		b = bytes.Replace(b, []byte(`{`), []byte(`{"new":{"x":[1,"é"]},"a":7,`), 1)
	case 6:
		b = bytes.ReplaceAll(b, []byte(`,"`), []byte(" ,\t\r\n\""))
		b = bytes.ReplaceAll(b, []byte(`":`), []byte("\" : "))
	case 7:
		j := r.IntN(len(b))
		b = append(b[:i:i], body[j:]...)
	}
	return b
}

func TestLeavesTheRestToEncodingJSON(t *testing.T) {
	for _, v := range []any{quoted{1}, number{"1"}, bigger{}, embedded{}, intKeys{map[int]string{1: "a"}}, hidden{}, math.Inf(1), make(chan int), func() {}, everything{F64: math.NaN()},
		struct{ E error }{}, struct{ V map[string]chan int }{}} {
		if got, ok := Append(nil, v); ok {
			t.Errorf("%T: encoded as %s", v, got)
		}
	}
	for _, v := range []any{&quoted{}, &number{}, &embedded{}, &intKeys{}, &hidden{}, &letters{}, &struct{ E error }{}, &everything{I: 1}, inner{}, nil, (*inner)(nil), new(chan int)} {
		if Decode([]byte(`{}`), v) {
			t.Errorf("%T: decoded", v)
		}
	}
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	if both(t, []byte(deep), reflect.TypeFor[any]()) {
		t.Error("600 levels are decoded")
	}
	type ring struct{ Next *ring }
	loop := &ring{}
	loop.Next = loop
	if _, ok := Append(nil, loop); ok {
		t.Error("a ring is encoded")
	}
}

func TestTextsOfAllKinds(t *testing.T) {
	for _, body := range []string{`{"ID":"x","kind":65535}`, `{"ID":"x","kind":65536}`, `{"kind":-1}`, `{"kind":1.0}`, `{"kind":1e2}`, `{"I8":-128}`, `{"I8":-129}`, `{"I64":1}`,
		`{"i-64":-9223372036854775808}`, `{"i-64":9223372036854775807}`, `{"i-64":9223372036854775808}`, `{"i-64":-9223372036854775809}`, `{"U64":18446744073709551615}`,
		`{"U64":18446744073709551616}`, `{"U64":-0}`, `{"I":-0}`, `{"I":01}`, `{"F64":-0}`, `{"F64":1e400}`, `{"F64":123456789012345678}`, `{"F32":1e39}`, `{"F64":.5}`, `{"F64":5.}`, `{"F64":5e}`,
		`{"S":"a"}`, `{"s":"\ud83d\ude00"}`, `{"s":"\ud83d"}`, `{"s":"\ud83dx"}`, `{"s":"\u00e9\/"}`, `{"s":"\x"}`, `{"s":null}`, `{"s":1}`, "{\"s\":\"\xff\"}", "{\"s\":\"a\nb\"}", `{"S":1,"s":"b"}`,
		`{"Bytes":"AAEC"}`, `{"Bytes":"AAE"}`, `{"Bytes":"A A=="}`, `{"Bytes":null}`, `{"Bytes":[1,2]}`, `{"Array":[1]}`, `{"Array":[1,2,3,4]}`, `{"Array":null}`, `{"Array":[1,2,3,"x"]}`,
		`{"Strings":[]}`, `{"Strings":[null]}`, `{"Strings":null}`, `{"Map":{"a":1,"a":2}}`, `{"Map":null}`, `{"Inner":null}`, `{"Inner":{"a":1},"Inner":{"b":"x"}}`, `{"Pointer":null}`,
		`{"Pointer":{"c":{"c":null}}}`, `{"Any":{"a":[1,"x",null,true,{}]}}`, `{"Any":01}`, `{"Time":"2020-01-02T03:04:05.6+07:00"}`, `{"Time":"x"}`, `{"Time":null}`, `{"Celsius":{"c":3}}`, `{"Celsius":null}`,
		`{"Text":"<q>"}`, `{"Text":null}`, `{"Text":5}`, `{"TextP":null}`, `{"Raw": {"a" : 1} }`, `{"Raw":null}`, ` { } `, `{}x`, `{`, ``, `null`, `nulL`, `true`, `[]`, `{"a"}`, `{"a":}`, `{,}`, `{"a":1,}`,
		`{"unknown":{"a":[1,{"b":"\u0000"}],"c":-1.5e-3}}`, `{"unknown":[1,]}`, `{"unknown":tru}`, `{"boOl":true}`, `{"Bool":truee}`, `{"Empty":{"x":1}}`, `{"Empty":[]}`, `{"skipped":"x","-":"y"}`} {
		both(t, []byte(body), reflect.TypeFor[everything]())
		both(t, []byte(body), reflect.TypeFor[any]())
		both(t, []byte(body), reflect.TypeFor[map[string]any]())
		both(t, []byte(body), reflect.TypeFor[base]())
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 8 {
		for _, v := range samples(r) {
			if body, err := reference(v); err == nil {
				f.Add(body)
			}
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		both(t, body, reflect.TypeFor[everything]())
		both(t, body, reflect.TypeFor[any]())
		both(t, body, reflect.TypeFor[[]inner]())
		var v any
		if json.Unmarshal(body, &v) == nil {
			want, err := reference(v)
			if got, ok := Append(nil, v); ok != (err == nil) && len(body) < maxDepth || ok && string(got) != string(want) {
				t.Fatalf("encoded as %s, want %s, %v", got, want, err)
			}
		}
	})
}

type row struct {
	ID        int64  `json:"id"`
	Timestamp uint64 `json:"timestamp"`
	Message   string `json:"message"`
}

func BenchmarkRow(b *testing.B) {
	v := row{12345, 1700000000000, strings.Repeat("The quick brown fox. ", 7)}
	body, err := json.Marshal(v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf, _ = Append(buf[:0], v)
		}
	})
	b.Run("encode/std", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			var out row
			if !Decode(body, &out) {
				b.Fatal("not decoded")
			}
		}
	})
	b.Run("decode/std", func(b *testing.B) {
		for b.Loop() {
			var out row
			if err := json.Unmarshal(body, &out); err != nil {
				b.Fatal(err)
			}
		}
	})
}
