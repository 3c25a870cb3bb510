package revtree

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

const someHex = "967a00dff5e02add41819138abb3284d"

func TestParse(t *testing.T) {
	raw, err := hex.DecodeString(someHex)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text   string
		gen    uint64
		digest string
		raw    bool
		back   string
	}{
		{"1-" + someHex, 1, string(raw), true, ""},
		{"12-" + strings.ToUpper(someHex), 12, string(raw), true, "12-" + someHex},
		{"1-x", 1, "x", false, ""},
		{"2-a-b", 2, "a-b", false, ""},
		{"1--", 1, "-", false, ""},
		{"1-abcdefghijklmnop", 1, "abcdefghijklmnop", false, ""},
		{"1-" + someHex[:31] + "g", 1, someHex[:31] + "g", false, ""},
		{"1-" + someHex[:31], 1, someHex[:31], false, ""},
		{"9223372036854775807-x", math.MaxInt64, "x", false, ""},
		{"1-" + strings.Repeat("x", MaxText), 1, strings.Repeat("x", MaxText), false, ""},
		{"1-é", 1, "é", false, ""},
	} {
		r, err := Parse(c.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.text, err)
			continue
		}
		if c.back == "" {
			c.back = c.text
		}
		if r.Gen != c.gen || r.Digest != c.digest || r.IsRaw() != c.raw || r.String() != c.back {
			t.Errorf("Parse(%q): got %d, %q, raw %v, %q", c.text, r.Gen, r.Digest, r.IsRaw(), r)
		}
		if parts, err := FromParts(c.gen, strings.SplitN(c.text, "-", 2)[1]); err != nil || parts != r {
			t.Errorf("FromParts of %q: got %v, %v", c.text, parts, err)
		}
	}
}

func TestParseMalformed(t *testing.T) {
	for _, text := range []string{
		"", "foo", "1", "-", "1-", "-x", "0-x", "01-x", "+1-x", "-1-x", " 1-x", "1 -x", "1.0-x", "x-1", "９-x",
		"9223372036854775808-x", "99999999999999999999-x", "1-a\nb", "1-\x00", "1-\x7f", "1-\xff", "1-" + strings.Repeat("x", MaxText+1),
	} {
		if r, err := Parse(text); !errors.Is(err, ErrRev) || !r.IsZero() {
			t.Errorf("Parse(%q): got %v, %v, want ErrRev", text, r, err)
		}
	}
	for _, gen := range []uint64{0, math.MaxInt64 + 1} {
		if _, err := FromParts(gen, "x"); !errors.Is(err, ErrRev) {
			t.Errorf("FromParts(%d): got %v, want ErrRev", gen, err)
		}
	}
}

// A text of 16 characters is another revision than the raw bytes that read alike.
func TestText16(t *testing.T) {
	const letters = "abcdefghijklmnop"
	text, err := Parse("1-" + letters)
	if err != nil {
		t.Fatal(err)
	}
	raw := NewRev(1, [16]byte([]byte(letters)))
	if text == raw || Compare(text, raw) != +1 || Compare(raw, text) != -1 {
		t.Errorf("%v and %v: equal %v, compare %d", text, raw, text == raw, Compare(text, raw))
	}
	if (Rev{Gen: 1, Digest: letters}) != raw {
		t.Error("16 bytes in a literal are not raw")
	}
	if (Rev{Gen: 1, Digest: "x"}) != revs(t, "1-x")[0] {
		t.Error("a literal text differs from the parsed one")
	}
}

// The compact form is a format: these bytes may never change.
func TestBinaryFixed(t *testing.T) {
	for _, c := range []struct{ rev, want string }{
		{"1-" + someHex, "0100" + someHex},
		{"300-" + someHex, "ac0200" + someHex},
		{"2-x", "020178"},
		{"1-abcdefghijklmnop", "0110" + hex.EncodeToString([]byte("abcdefghijklmnop"))},
	} {
		if got := hex.EncodeToString(revs(t, c.rev)[0].AppendBinary(nil)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.rev, got, c.want)
		}
	}
	if got := (Rev{}).AppendBinary(nil); !bytes.Equal(got, []byte{0}) {
		t.Errorf("zero: got %x, want 00", got)
	}
}

func TestDecodeBinaryMalformed(t *testing.T) {
	for _, text := range []string{
		"", "80", "8100", "01", "0100", "0100" + someHex[:30], "0102" + "78", "8000", "ffffffffffffffffff01" + "0178",
		"0101ff", "010100", "0120" + hex.EncodeToString([]byte(someHex)), "ffffffffffffffffffff01",
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if r, rest, err := DecodeBinary(b); !errors.Is(err, ErrRev) || !r.IsZero() || !bytes.Equal(rest, b) {
			t.Errorf("DecodeBinary(%s): got %v, %x, %v, want ErrRev", text, r, rest, err)
		}
	}
}

// Compare is a total order by generation and digest, in agreement with ==, and both
// forms bring every revision back.
func TestRevRandom(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	sign := func(a, b Rev) int { return cmp.Or(cmp.Compare(a.Gen, b.Gen), cmp.Compare(a.Digest, b.Digest)) }
	for range 20_000 {
		a, b := randomRev(r, uint64(r.IntN(3)+1)), randomRev(r, uint64(r.IntN(3)+1))
		got := Compare(a, b)
		if (got == 0) != (a == b) || got != -Compare(b, a) {
			t.Fatalf("seed %d: Compare(%v, %v) = %d", seed, a, b, got)
		}
		if want := sign(a, b); want != 0 && got != want {
			t.Fatalf("seed %d: Compare(%v, %v): got %d, want %d", seed, a, b, got, want)
		}
		again, err := Parse(a.String())
		if err != nil || again != a {
			t.Fatalf("seed %d: Parse(%v): got %v, %v", seed, a, again, err)
		}
		enc := b.AppendBinary(a.AppendBinary(nil))
		x, rest, err := DecodeBinary(enc)
		if err != nil || x != a {
			t.Fatalf("seed %d: DecodeBinary of %v: got %v, %v", seed, a, x, err)
		}
		y, rest, err := DecodeBinary(rest)
		if err != nil || y != b || len(rest) != 0 {
			t.Fatalf("seed %d: DecodeBinary of %v: got %v, %x, %v", seed, b, y, rest, err)
		}
	}
}

// What Parse accepts comes back the same from both forms.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"1-" + someHex, "2-x", "10-abcdefghijklmnop", "01-x", "1-", "1-" + strings.ToUpper(someHex), "9223372036854775807-é"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrRev) || !r.IsZero() {
				t.Fatalf("Parse(%q): got %v, %v", text, r, err)
			}
			return
		}
		if got := r.String(); got != text && !(r.IsRaw() && strings.EqualFold(got, text)) {
			t.Fatalf("Parse(%q).String() = %q", text, got)
		}
		if again, rest, err := DecodeBinary(r.AppendBinary(nil)); err != nil || again != r || len(rest) != 0 {
			t.Fatalf("compact form of %q: got %v, %x, %v", text, again, rest, err)
		}
	})
}

// What DecodeBinary accepts is exactly what AppendBinary writes.
func FuzzDecodeBinary(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("\x01\x01x"))
	f.Add([]byte("\xac\x02\x000123456789abcdef"))
	f.Add([]byte("\x05\x100123456789abcdef..."))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := DecodeBinary(b)
		if err != nil {
			if !errors.Is(err, ErrRev) {
				t.Fatalf("DecodeBinary(%x): %v", b, err)
			}
			return
		}
		if got := append(r.AppendBinary(nil), rest...); !bytes.Equal(got, b) {
			t.Fatalf("DecodeBinary(%x): got %v, which encodes to %x", b, r, got)
		}
		if again, err := Parse(r.String()); !r.IsZero() && (err != nil || again != r) {
			t.Fatalf("Parse(%q): got %v, %v", r, again, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("12-" + someHex); err != nil {
			b.Fatal(err)
		}
	}
}
