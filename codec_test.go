package osier

import (
	"reflect"
	"testing"
)

func TestEachCodecBringsAValueBack(t *testing.T) {
	type doc struct {
		Name string
		Tags []string
		N    int64
	}
	want := doc{"<é & \"x\">", []string{"a", "b"}, -1 << 60}
	for _, c := range []Codec{JSON, Pot} {
		body, err := c.Append([]byte("before"), want)
		if err != nil || string(body[:6]) != "before" {
			t.Fatalf("codec %d: %q, %v", c.Tag(), body, err)
		}
		var got doc
		if err := c.Decode(body[6:], &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("codec %d: got %+v, %v; want %+v", c.Tag(), got, err, want)
		}
		shown, err := c.AppendJSON(nil, body[6:])
		const text = `{"Name":"<é & \"x\">","Tags":["a","b"],"N":-1152921504606846976}`
		if err != nil || string(shown) != text {
			t.Errorf("codec %d: shown %s, %v; want %s", c.Tag(), shown, err, text)
		}
		raw, err := c.Append(nil, Raw(body[6:]))
		if err != nil || string(raw) != string(body[6:]) {
			t.Errorf("codec %d: raw body %q, %v", c.Tag(), raw, err)
		}
		if out, err := c.Append(nil, Raw("{")); err == nil {
			t.Errorf("codec %d: took the damaged body %q", c.Tag(), out)
		}
	}
}
