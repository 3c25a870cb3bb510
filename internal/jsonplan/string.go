package jsonplan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

const (
	ones = 0x0101010101010101
	tops = 0x80 * ones
)

// plainBytes returns how many bytes at the start of b need no attention in a
// JSON string: all but controls, quotes, backslashes and what is not ASCII.
func plainBytes(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^('"'*ones), w^('\\'*ones)
		// Subtracting sets the top bit of a byte that is too small or equal. A borrow
		// may set the next higher one's by mistake: the lowest is right.
		if m := (w | (w - 0x20*ones) | (quote - ones) | (slash - ones)) & tops; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return i
}

const hexDigits = "0123456789abcdef"

// appendString writes s as encoding/json does when it does not escape for HTML.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for len(b) > 0 {
		n := plainBytes(b)
		if n > 0 {
			dst = append(dst, b[:n]...)
			if b = b[n:]; len(b) == 0 {
				break
			}
		}
		c := b[0]
		if c < utf8.RuneSelf {
			dst = appendEscaped(dst, c)
			b = b[1:]
			continue
		}
		r, size := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, `\ufffd`...)
		case r == 0x2028 || r == 0x2029:
			dst = append(dst, '\\', 'u', '2', '0', '2', hexDigits[r&0xF])
		default:
			dst = append(dst, b[:size]...)
		}
		b = b[size:]
	}
	return append(dst, '"')
}

func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
}

// text reads a string, whose opening quote is next. raw is what lies between the
// quotes if that is the string, else it is unescaped in the decoder's own memory
// and gone with the next call.
func (d *decoder) text() (raw []byte, ok bool) {
	if d.i >= len(d.b) || d.b[d.i] != '"' {
		return nil, false
	}
	start := d.i + 1
	i, ascii := start, true
	for i < len(d.b) {
		i += plainBytes(d.b[i:])
		if i >= len(d.b) {
			return nil, false
		}
		switch c := d.b[i]; {
		case c == '"':
			raw = d.b[start:i]
			d.i = i + 1
			// Encoding/json mends what is not UTF-8.
			return raw, ascii || utf8.Valid(raw)
		case c == '\\':
			return d.unescape(start, i, ascii)
		case c < 0x20:
			return nil, false
		default:
			ascii = false
			for i < len(d.b) && d.b[i] >= utf8.RuneSelf {
				i++
			}
		}
	}
	return nil, false
}

// unescape reads the string that began at start and has a backslash at i.
func (d *decoder) unescape(start, i int, ascii bool) ([]byte, bool) {
	out := append(d.scratch[:0], d.b[start:i]...)
	for i < len(d.b) {
		n := plainBytes(d.b[i:])
		out = append(out, d.b[i:i+n]...)
		if i += n; i >= len(d.b) {
			return nil, false
		}
		switch c := d.b[i]; {
		case c == '"':
			d.i, d.scratch = i+1, out
			return out, ascii || utf8.Valid(out)
		case c < 0x20:
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
			out = append(out, c)
			i++
		default:
			r, size := escape(d.b[i:])
			if size == 0 {
				return nil, false
			}
			out = utf8.AppendRune(out, r)
			i += size
		}
	}
	return nil, false
}

// escape reads an escape and returns what it stands for and its length, 0 if
// encoding/json must have a look.
func escape(b []byte) (rune, int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return 0, 0
	}
	r := hex4(b)
	if r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(b) < 12 {
		return 0, 0
	}
	if r = utf16.DecodeRune(r, hex4(b[6:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// hex4 reads \uXXXX, -1 if it is not that.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	r := rune(0)
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
