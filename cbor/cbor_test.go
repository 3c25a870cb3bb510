package cbor_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/cbor"
)

type event struct {
	Name  string
	Bytes []byte
	Big   uint64
	When  time.Time
	Tags  map[string]int
}

func TestAValueComesBack(t *testing.T) {
	want := event{"x", []byte{0, 255}, math.MaxUint64, time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC), map[string]int{"b": 2, "a": 1}}
	body, err := cbor.Codec.Append([]byte("before"), want)
	if err != nil || string(body[:6]) != "before" {
		t.Fatalf("encode: %q, %v", body, err)
	}
	var got event
	if err := cbor.Codec.Decode(body[6:], &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	again, _ := cbor.Codec.Append(nil, got)
	if string(again) != string(body[6:]) {
		t.Errorf("equal values, different bytes: %x and %x", again, body[6:])
	}
	shown, err := cbor.Codec.AppendJSON(nil, body[6:])
	const text = `{"Big":18446744073709551615,"Bytes":"AP8=","Name":"x","Tags":{"a":1,"b":2},"When":"2026-03-01T12:00:00.000000005Z"}`
	if err != nil || string(shown) != text {
		t.Errorf("shown %s, %v; want %s", shown, err, text)
	}
}

func TestBadInputIsAnError(t *testing.T) {
	for _, b := range [][]byte{nil, {0xa1}, {0xbf}, {0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0xa2, 0x61, 'a', 1, 0x61, 'a', 2}, {0x61, 0xff}, {1, 2}} {
		var v any
		if err := cbor.Codec.Decode(b, &v); err == nil {
			t.Errorf("%x: decoded as %v", b, v)
		}
		if out, err := cbor.Codec.AppendJSON(nil, b); err == nil {
			t.Errorf("%x: shown as %s", b, out)
		}
	}
	if _, err := cbor.Codec.Append(nil, osier.Raw{0xa1}); err == nil {
		t.Error("a raw body that is not CBOR was taken")
	}
	var r osier.Raw
	if err := cbor.Codec.Decode([]byte{1}, &r); err != nil || string(r) != "\x01" {
		t.Errorf("raw: %x, %v", r, err)
	}
	if out, err := cbor.Codec.AppendJSON(nil, []byte{0xf9, 0x7e, 0x00}); err == nil {
		t.Errorf("a NaN was shown as %s", out)
	}
}

func FuzzDecode(f *testing.F) {
	body, _ := cbor.Codec.Append(nil, event{Name: "x"})
	f.Add(body)
	f.Fuzz(func(t *testing.T, b []byte) {
		var e event
		_ = cbor.Codec.Decode(b, &e)
		_, _ = cbor.Codec.AppendJSON(nil, b)
	})
}
