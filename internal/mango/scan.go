package mango

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// The walkers below read JSON text in place. Each takes the text and the offset
// of a token, and returns the offset behind it, or -1 if the text is broken
// there. They never recurse, so the nesting of a document costs no stack.

// view returns the bytes as a string without copying them. It is the only way
// by which document bytes become strings here; no such string outlives the call
// that the bytes were given to.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// space returns the offset of the first byte from i on that is not white space.
func space(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i
}

// inlineScan is how many bytes of a string are looked at one by one before the
// vectorised search takes over: most member names and values are shorter, and
// for them its call costs more than it saves.
const inlineScan = 16

// stringEnd returns the offset behind the string that begins at i.
func stringEnd(s string, i int) int {
	i++
	for end := min(len(s), i+inlineScan); i < end; i++ {
		switch s[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	for i < len(s) {
		q := strings.IndexByte(s[i:], '"')
		if q < 0 {
			return -1
		}
		b := strings.IndexByte(s[i:i+q], '\\')
		if b < 0 {
			return i + q + 1
		}
		i += b + 2
	}
	return -1
}

// valueEnd returns the offset behind the value that begins at i.
func valueEnd(s string, i int) int {
	if i >= len(s) {
		return -1
	}
	switch s[i] {
	case '"':
		return stringEnd(s, i)
	case '{', '[':
		return nestedEnd(s, i)
	}
	return scalarEnd(s, i)
}

// scalarEnd returns the offset behind the number or literal that begins at i.
// The form of a number is not checked here: see parseNumber.
func scalarEnd(s string, i int) int {
	word := ""
	switch s[i] {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		for i++; i < len(s) && isNumberByte(s[i]); i++ {
		}
		return i
	}
	if word == "" || !strings.HasPrefix(s[i:], word) {
		return -1
	}
	return i + len(word)
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// nestedEnd returns the offset behind the array or object that begins at i. It
// checks that brackets pair, in the innermost 64 levels by kind, deeper by
// number, and that strings end; commas, colons and scalars are not looked at.
func nestedEnd(s string, i int) int {
	var kinds uint64 // a bit a level, the innermost lowest: 1 for an array
	for depth := 0; i < len(s); {
		switch s[i] {
		case '"':
			if i = stringEnd(s, i); i < 0 {
				return -1
			}
			continue
		case '{':
			kinds, depth = kinds<<1, depth+1
		case '[':
			kinds, depth = kinds<<1|1, depth+1
		case '}', ']':
			array := s[i] == ']'
			if depth <= 64 && kinds&1 == 1 != array {
				return -1
			}
			if kinds, depth = kinds>>1, depth-1; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// next returns the offset of the next member or element, i being behind one,
// or of the closing bracket.
func next(s string, i int, closing byte) int {
	if i = space(s, i); i >= len(s) {
		return -1
	}
	if s[i] == closing {
		return i
	}
	if s[i] != ',' {
		return -1
	}
	if i = space(s, i+1); i >= len(s) || s[i] == closing {
		return -1
	}
	return i
}

// memberName returns the end of the name at i and the offset of its value.
func memberName(s string, i int) (end, value int) {
	if s[i] != '"' {
		return -1, -1
	}
	if end = stringEnd(s, i); end < 0 {
		return -1, -1
	}
	if i = space(s, end); i >= len(s) || s[i] != ':' {
		return -1, -1
	}
	if i = space(s, i+1); i >= len(s) {
		return -1, -1
	}
	return end, i
}

// plain returns the text of a JSON string without quotes: raw itself if it has
// no escapes, else the unescaped text, in buf if it has room.
func plain(raw string, buf []byte) string {
	b := strings.IndexByte(raw, '\\')
	if b < 0 {
		return raw
	}
	return view(appendUnescaped(append(buf[:0], raw[:b]...), raw[b:]))
}

// appendUnescaped appends the text of a JSON string without quotes. Half a
// surrogate pair, or an escape that JSON does not have, becomes U+FFFD.
func appendUnescaped(dst []byte, raw string) []byte {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			i++
			continue
		}
		if i+1 == len(raw) {
			return utf8.AppendRune(dst, utf8.RuneError)
		}
		c := raw[i+1]
		if i += 2; c == 'u' {
			r, n := escapedRune(raw[i:])
			dst, i = utf8.AppendRune(dst, r), i+n
			continue
		}
		if k := strings.IndexByte(`"\/bfnrt`, c); k >= 0 {
			dst = append(dst, "\"\\/\b\f\n\r\t"[k])
			continue
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	return dst
}

// escapedRune reads what follows \u, the second half of a surrogate pair too.
func escapedRune(s string) (r rune, n int) {
	r = hex4(s)
	if r < 0 {
		return utf8.RuneError, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if len(s) >= 10 && s[4] == '\\' && s[5] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(s[6:])); pair != utf8.RuneError {
			return pair, 10
		}
	}
	return utf8.RuneError, 4
}

func hex4(s string) rune {
	if len(s) < 4 {
		return -1
	}
	var r rune
	for i := range 4 {
		c := s[i]
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst, i = utf8.AppendRune(dst, r), i+n
			continue
		}
		i++
	}
	return append(dst, '"')
}

// A member is a name of an object in valid JSON text and where its value begins.
type member struct {
	name  string
	value int
}

// members returns the members of the object at i of valid JSON text. Of a name
// that repeats the last value counts, in the first one's place.
func members(s string, i int) []member {
	var list []member
	seen := map[string]int{}
	for i = space(s, i+1); s[i] != '}'; {
		end, value := memberName(s, i)
		name := strings.Clone(plain(s[i+1:end-1], nil))
		if k, ok := seen[name]; ok {
			list[k].value = value
		} else {
			seen[name] = len(list)
			list = append(list, member{name, value})
		}
		i = next(s, valueEnd(s, value), '}')
	}
	return list
}

// elements returns where the elements of the array at i of valid JSON text begin.
func elements(s string, i int) []int {
	var list []int
	for i = space(s, i+1); s[i] != ']'; {
		list = append(list, i)
		i = next(s, valueEnd(s, i), ']')
	}
	return list
}

// compact returns the value at i of valid JSON text without white space.
func compact(s string, i int) string {
	text := s[i:valueEnd(s, i)]
	var b strings.Builder
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case ' ', '\n', '\t', '\r':
			i++
		case '"':
			end := stringEnd(text, i)
			b.WriteString(text[i:end])
			i = end
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

// ascii reports whether a text is all ASCII.
func ascii(s string) bool {
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	var all uint64
	for ; len(b) >= 32; b = b[32:] {
		all |= binary.LittleEndian.Uint64(b) | binary.LittleEndian.Uint64(b[8:]) | binary.LittleEndian.Uint64(b[16:]) | binary.LittleEndian.Uint64(b[24:])
	}
	for ; len(b) >= 8; b = b[8:] {
		all |= binary.LittleEndian.Uint64(b)
	}
	for _, c := range b {
		all |= uint64(c)
	}
	return all&highBits == 0
}

// validText reports whether text is one JSON value in UTF-8.
func validText(text []byte) bool { return utf8.Valid(text) && json.Valid(text) }

// depth returns how deep arrays and objects nest in valid JSON text.
func depth(s string) int {
	deepest, now := 0, 0
	for i := 0; i < len(s); {
		switch s[i] {
		case '"':
			i = stringEnd(s, i)
			continue
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
		i++
	}
	return deepest
}
