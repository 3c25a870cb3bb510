package pocket

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type flatNamed string

type flatAll struct {
	Text   string
	Named  flatNamed `json:"named"`
	Yes    bool
	I      int
	I8     int8 `json:"i_8"`
	I64    int64
	U      uint
	U16    uint16
	F      float64
	Gone   string `json:"-"`
	hidden int
}

type selfMade struct{ A string }

func (selfMade) MarshalJSON() ([]byte, error) { return []byte(`"self"`), nil }

type selfMadePointer struct{ A string }

func (*selfMadePointer) MarshalText() ([]byte, error) { return []byte("self"), nil }

// TestFlatAsJSON: what flatStruct appends is what encoding/json makes.
func TestFlatAsJSON(t *testing.T) {
	flat := flatOf(reflect.TypeFor[flatAll]())
	if flat == nil {
		t.Fatal("flatAll is not flat")
	}
	texts := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,40}`), rapid.SampledFrom([]string{
		"", "\"", "\\", "\x1f", "\x7f", "a\u2028b", "<&>", "\xff", "1234567\"", "12345678", "\"2345678", "1234567\x1f9"}))
	floats := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1e-6, 9.99e-7, 1e21,
		math.Nextafter(1e21, 0), math.MaxFloat64, 5e-324, 0.1, -1.5, math.Inf(1), math.NaN()}))
	rapid.Check(t, func(rt *rapid.T) {
		v := flatAll{Text: texts.Draw(rt, "text"), Named: flatNamed(texts.Draw(rt, "named")), Yes: rapid.Bool().Draw(rt, "yes"),
			I: rapid.Int().Draw(rt, "i"), I8: rapid.Int8().Draw(rt, "i8"), I64: rapid.Int64().Draw(rt, "i64"),
			U: rapid.Uint().Draw(rt, "u"), U16: rapid.Uint16().Draw(rt, "u16"), F: floats.Draw(rt, "f"), hidden: 1}
		got, ok := flat.append(nil, reflect.ValueOf(v))
		if !ok {
			return // encoding/json is asked
		}
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			rt.Fatalf("got %s, want error %v", got, err)
		}
		if want := want.String(); string(got)+"\n" != want {
			rt.Fatalf("got %s, want %s", got, want)
		}
	})
	plain := flatAll{Text: "some text", F: -12.5}
	if got, ok := flat.append(nil, reflect.ValueOf(plain)); !ok {
		t.Errorf("got %s and encoding/json is asked, want it done", got)
	}
}

// TestFlatOnly: types whose JSON form depends on more than their plain fields
// are left to encoding/json.
func TestFlatOnly(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[selfMade](), reflect.TypeFor[selfMadePointer](), reflect.TypeFor[struct{}](), reflect.TypeFor[string](),
		reflect.TypeFor[struct{ T time.Time }](), reflect.TypeFor[struct{ S []string }](), reflect.TypeFor[struct{ P *int }](),
		reflect.TypeFor[struct{ N json.Number }](), reflect.TypeFor[struct{ F float32 }](), reflect.TypeFor[struct{ X any }](),
		reflect.TypeFor[struct{ S selfMade }](), reflect.TypeFor[struct{ entity }](), reflect.TypeFor[struct {
			A int `json:",omitempty"`
		}](),
		reflect.StructOf([]reflect.StructField{ // two of one name
			{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"B"`}, {Name: "B", Type: reflect.TypeFor[int]()},
		}), reflect.TypeFor[struct {
			A int `json:"a<b"`
		}](),
	} {
		if flatOf(typ) != nil {
			t.Errorf("%v: flat, want it left to encoding/json", typ)
		}
	}
}

// TestPlainText: isPlain says of every text what a look at each byte says.
func TestPlainText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := []byte(rapid.StringMatching(`[ !#-\[\]-~]{0,40}`).Draw(rt, "text"))
		if len(b) > 0 && rapid.Bool().Draw(rt, "change") {
			b[rapid.IntRange(0, len(b)-1).Draw(rt, "at")] = rapid.Byte().Draw(rt, "byte")
		}
		want := true
		for _, c := range b {
			want = want && c >= 0x20 && c < 0x80 && c != '"' && c != '\\'
		}
		if got := isPlain(string(b)); got != want {
			rt.Fatalf("isPlain(%q): got %v, want %v", b, got, want)
		}
	})
}
