package osier

import (
	"bytes"
	"testing"
	"time"
)

// Whatever bytes there are, reading events from them ends, in an error or with
// events that are written as they were read.
func FuzzCutEvent(f *testing.F) {
	var all []byte
	for _, e := range []Event{{}, {Data: []byte("data")}, {Type: "t", Data: []byte{0}}, {Type: "type", Expires: time.UnixMilli(1), Position: Position{7, 9}},
		{Expires: time.UnixMilli(1 << 40), Position: Position{1 << 50, 1<<32 - 1}}} {
		b := AppendEvent(nil, &e)
		if len(b) != e.EncodedSize() {
			f.Errorf("%+v takes %d bytes, said were %d", e, len(b), e.EncodedSize())
		}
		f.Add(b)
		all = append(all, b...)
	}
	f.Add(all)
	// An expiry with its highest bit set, and one of zero: no append writes them.
	f.Add([]byte("\x01\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x09\x80\x00\x00\x00\x00\x00\x00\x01"))
	f.Add([]byte("\x01\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d eventDecoder
		for rest := b; len(rest) > 0; {
			raw, after, err := CutEvent(rest)
			if err != nil {
				return
			}
			e := d.event(&raw)
			if raw.Expires > 1<<50 {
				return // beyond the years that time.Time can go to and back from
			}
			if out := AppendEvent(nil, &e); !bytes.Equal(out, rest[:len(rest)-len(after)]) {
				t.Fatalf("%x was read as %+v, which is written %x", rest[:len(rest)-len(after)], e, out)
			}
			rest = after
		}
	})
}

func FuzzParsePosition(f *testing.F) {
	f.Add("1700000000000000-3")
	f.Add("-1-0")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s)
		if err != nil {
			return
		}
		if q, err := ParsePosition(p.String()); err != nil || q != p {
			t.Errorf("%q: %v, then %v (%v)", s, p, q, err)
		}
		if q, err := DecodePosition(p.Append(nil)); err != nil || q != p {
			t.Errorf("%q: %v is decoded as %v (%v)", s, p, q, err)
		}
		if n := p.Next(); p.Micros < 1<<62 && (!p.Before(n) || n.Before(p) || p.Compare(n) != -1 || n.Compare(p) != 1) {
			t.Errorf("%v is not before %v", p, n)
		}
	})
}
