package revtree

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// word reads null, true or false, which begins with c.
func (t *transcoder) word(out []byte, c byte) ([]byte, Reason) {
	word := "null"
	switch c {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	}
	if rest := t.json[t.pos:]; len(rest) < len(word) || string(rest[:len(word)]) != word {
		return out, ReasonSyntax
	}
	t.pos += len(word)
	return append(append(out, tagAtom, 0, byte(len(word))), word...), 0
}

// text reads a string, at whose opening quote the text stands.
func (t *transcoder) text(out []byte) ([]byte, Reason) {
	start := len(out)
	out = append(out, tagBinary, 0, 0, 0, 0)
	t.pos++
	for {
		n := plainLen(t.json[t.pos:])
		out = append(out, t.json[t.pos:t.pos+n]...)
		if t.pos += n; t.pos == len(t.json) {
			return out, ReasonSyntax
		}
		switch c := t.json[t.pos]; {
		case c == '"':
			t.pos++
			binary.BigEndian.PutUint32(out[start+1:], uint32(len(out)-start-headerSize))
			return out, 0
		case c == '\\':
			var reason Reason
			if out, reason = t.escape(out); reason != 0 {
				return out, reason
			}
		case c < ' ':
			return out, ReasonSyntax
		default:
			_, size := utf8.DecodeRune(t.json[t.pos:])
			if size == 1 { // an error: c is not ASCII
				return out, ReasonUTF8
			}
			out = append(out, t.json[t.pos:t.pos+size]...)
			t.pos += size
		}
	}
}

// plainLen returns how many bytes b begins with that stand for themselves in a
// string and are ASCII. It looks at eight at a time: the top bit of a byte of odd
// is set where the byte has it set itself or one of the subtractions borrows. A
// borrow reaches only higher bytes, so the lowest bit that is set can be trusted.
func plainLen(b []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; n+8 <= len(b); n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		odd := ((w - ones*' ') | (quote - ones) | (slash - ones) | w) & tops
		if odd != 0 {
			return n + bits.TrailingZeros64(odd)/8
		}
	}
	for n < len(b) && b[n] >= ' ' && b[n] < utf8.RuneSelf && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// escape reads an escape sequence, at whose backslash the text stands.
func (t *transcoder) escape(out []byte) ([]byte, Reason) {
	if t.pos+1 >= len(t.json) {
		return out, ReasonSyntax
	}
	c := t.json[t.pos+1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return t.unicode(out)
	default:
		return out, ReasonSyntax
	}
	t.pos += 2
	return append(out, c), 0
}

// unicode reads an escape of a code unit, or of two that make a pair.
func (t *transcoder) unicode(out []byte) ([]byte, Reason) {
	r, ok := t.unit(t.pos)
	if !ok {
		return out, ReasonSyntax
	}
	size := 6
	if 0xD800 <= r && r < 0xE000 {
		low, ok := t.unit(t.pos + 6)
		if !ok || r >= 0xDC00 || low < 0xDC00 || low >= 0xE000 {
			return out, ReasonSurrogate
		}
		r, size = 0x10000+(r-0xD800)<<10+(low-0xDC00), 12
	}
	t.pos += size
	return utf8.AppendRune(out, r), 0
}

// unit returns the code unit of the escape \uXXXX at pos.
func (t *transcoder) unit(pos int) (r rune, ok bool) {
	if len(t.json)-pos < 6 || t.json[pos] != '\\' || t.json[pos+1] != 'u' {
		return 0, false
	}
	for _, c := range t.json[pos+2 : pos+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number reads a number; small is true for an integer from 0 to 255.
func (t *transcoder) number(out []byte) (_ []byte, small bool, reason Reason) {
	start := t.pos
	neg := t.json[t.pos] == '-'
	if neg {
		t.pos++
	}
	first := t.pos
	n := t.digits()
	if n == 0 || n > 1 && t.json[first] == '0' {
		return out, false, ReasonSyntax
	}
	if t.pos < len(t.json) {
		if c := t.json[t.pos]; c == '.' || c == 'e' || c == 'E' {
			out, reason = t.float(out, start)
			return out, false, reason
		}
	}
	if n > MaxDigits {
		t.pos = start
		return out, false, ReasonDigits
	}
	var u uint64
	digits := t.json[first:t.pos]
	for _, c := range digits[:min(n, 19)] { // 19 digits fit
		u = 10*u + uint64(c-'0')
	}
	if n > 19 {
		return appendDigits(out, digits, neg), false, 0
	}
	if neg && u != 0 {
		return appendNegative(out, u), false, 0
	}
	return appendUint(out, u), u <= 0xFF, 0
}

// digits skips decimal digits and returns how many there were.
func (t *transcoder) digits() int {
	start := t.pos
	for t.pos < len(t.json) && '0' <= t.json[t.pos] && t.json[t.pos] <= '9' {
		t.pos++
	}
	return t.pos - start
}

// float reads the rest of a number that began at start and has a fraction or an
// exponent. As in CouchDB, numbers below the least normal one are zero.
func (t *transcoder) float(out []byte, start int) ([]byte, Reason) {
	if t.json[t.pos] == '.' {
		t.pos++
		if t.digits() == 0 {
			return out, ReasonSyntax
		}
	}
	if t.pos < len(t.json) && t.json[t.pos]|0x20 == 'e' {
		t.pos++
		if t.pos < len(t.json) && (t.json[t.pos] == '+' || t.json[t.pos] == '-') {
			t.pos++
		}
		if t.digits() == 0 {
			return out, ReasonSyntax
		}
	}
	f, err := strconv.ParseFloat(string(t.json[start:t.pos]), 64)
	if err != nil {
		t.pos = start
		return out, ReasonRange
	}
	const leastNormal = 0x1p-1022
	if math.Abs(f) < leastNormal {
		f = math.Copysign(0, f)
	}
	return binary.BigEndian.AppendUint64(append(out, tagFloat), math.Float64bits(f)), 0
}
