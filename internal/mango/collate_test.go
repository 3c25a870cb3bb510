package mango

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// All of ASCII is in ICU's order, its control characters without weight.
func TestCollateASCII(t *testing.T) {
	const ignored = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f"
	const ordered = "\t\n\v\f\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ"
	if len(ignored)+len(ordered) != 128 {
		t.Fatalf("%d characters", len(ignored)+len(ordered))
	}
	for _, c := range ignored {
		if got := Unicode.Compare("a"+string(c)+"b", "ab"); got != 0 {
			t.Errorf("%q is not ignored: %d", c, got)
		}
	}
	for i, a := range ordered {
		for k, b := range ordered {
			want := min(max(i-k, -1), 1)
			if got := Unicode.Compare(string(a), string(b)); got != want {
				t.Errorf("%q and %q: got %d, want %d", a, b, got, want)
			}
		}
	}
}

// collated are keys in the order in which a CouchDB view lists them; those in one
// string, separated by bars, are equal.
var collated = []string{"\x00|\u200b", "\t", "\n", " ", "_", "-", "!", "'", `"`, "@", "~", "0", "1", "9", "a", "A", "å", "Å", "aa", "aA",
	"Aa", "AA", "ab", "b", "B", "c", "č", "ç", "co op", "co-op", "coop", "e", "E", "é|e\u0301", "è", "éx|e\u0301x", "f", "fi", "ﬁ",
	"n", "ñ", "o", "ö", "ø", "resume", "Resume", "résumé", "z", "Z", "α", "β", "а", "я", "あ", "ア", "中", "文"}

// further are words in the order that ICU 72 has for them.
var further = strings.Fields("aero Ærø cote coté|cote\u0301 côte côté Côté d D ď đ ð dz ǳ ǲ Ǳ dž ǆ DŽ ǅ Ǆ i ĳ ı l ł n naive naïve ŋ oe œ Œ og s š ss SS ß " +
	"st ſt Strasse STRASSE Straße sz t ŧ u U ü|u\u0308 Ü ű z ž Zoë zoo ʒ þ αβγ άβγ г ѓ ґ ё_ ж и і ї й|и\u0306 Й ј к")

// The order of strings is that of CouchDB's views.
func TestCollateOrder(t *testing.T) {
	checkOrder(t, collated)
	checkOrder(t, further)
}

func checkOrder(t *testing.T, groups []string) {
	t.Helper()
	for i, g := range groups {
		for k, h := range groups {
			for a := range strings.SplitSeq(g, "|") {
				for b := range strings.SplitSeq(h, "|") {
					want := min(max(i-k, -1), 1)
					if got := Unicode.Compare(a, b); got != want {
						t.Errorf("%q and %q: got %d, want %d", a, b, got, want)
					}
					if got := bytes.Compare(Unicode.AppendKey(nil, a), Unicode.AppendKey(nil, b)); got != want {
						t.Errorf("keys of %q and %q: got %d, want %d", a, b, got, want)
					}
				}
			}
		}
	}
}

// Keys order as Compare does, over strings of all kinds of characters; the order
// is total.
func TestCollateKeys(t *testing.T) {
	some := rapid.StringOfN(rapid.OneOf(
		rapid.SampledFrom([]rune("aAbBäÄáàßsſæe\u0301\u0308\u0323иИ\u0306й中あァ -\x00\u200b٣ไก가豈𠀀😀∑")),
		rapid.Rune()), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := some.Draw(t, "a"), some.Draw(t, "b"), some.Draw(t, "c")
		got := bytes.Compare(Unicode.AppendKey(nil, a), Unicode.AppendKey(nil, b))
		if want := Unicode.Compare(a, b); got != want || want != -Unicode.Compare(b, a) {
			t.Fatalf("%q and %q: keys %d, strings %d, reversed %d", a, b, got, want, Unicode.Compare(b, a))
		}
		if Unicode.Compare(a, b) <= 0 && Unicode.Compare(b, c) <= 0 && Unicode.Compare(a, c) > 0 {
			t.Fatalf("%q <= %q <= %q, but not the first and the last", a, b, c)
		}
		if got := Unicode.AppendKey(nil, a); !bytes.HasPrefix(Unicode.AppendKey(nil, a+"x"), appendPrimary(nil, a)) || bytes.ContainsAny(got, "\x00\x01") {
			t.Fatalf("key of %q: %x", a, got)
		}
	})
}
