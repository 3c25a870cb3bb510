package pocket

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"unicode/utf8"
	"unsafe"
)

// Errors of the JSON scanner. errShort means that the text ended in the middle
// of a value, which is what a torn write leaves behind.
var (
	errShort  = errors.New("line ends in the middle of a value")
	errSyntax = errors.New("not a JSON value")
	errDeep   = errors.New("values nested too deeply")
)

// maxDepth is that of encoding/json.
const maxDepth = 10_000

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue checks the JSON value that starts at b[i] and returns the position
// after it.
func skipValue(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return i, errShort
	}
	switch c := b[i]; c {
	case '"':
		return skipText(b, i)
	case '{', '[':
		if depth >= maxDepth {
			return i, errDeep
		}
		return skipComposite(b, i, depth+1)
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return skipNumber(b, i)
		}
	}
	return i, errSyntax
}

func skipWord(b []byte, i int, word string) (int, error) {
	for k := range len(word) {
		if i+k >= len(b) {
			return i, errShort
		}
		if b[i+k] != word[k] {
			return i, errSyntax
		}
	}
	return i + len(word), nil
}

// skipText checks a JSON text. The caller knows that b[i] is its quote.
func skipText(b []byte, i int) (int, error) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			i++
			if i >= len(b) {
				return i, errShort
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					i++
					if i >= len(b) {
						return i, errShort
					}
					if !isHex(b[i]) {
						return i, errSyntax
					}
				}
			default:
				return i, errSyntax
			}
		case c < 0x20:
			return i, errSyntax
		case c >= utf8.RuneSelf:
			_, n := utf8.DecodeRune(b[i:])
			if n == 1 {
				return i, errSyntax // not UTF-8
			}
			i += n - 1
		}
	}
	return i, errShort
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func skipNumber(b []byte, i int) (int, error) {
	digits := func() error {
		if i >= len(b) {
			return errShort
		}
		if !isDigit(b[i]) {
			return errSyntax
		}
		for i < len(b) && isDigit(b[i]) {
			i++
		}
		return nil
	}
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if err := digits(); err != nil {
		return i, err
	}
	if i < len(b) && b[i] == '.' {
		i++
		if err := digits(); err != nil {
			return i, err
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if err := digits(); err != nil {
			return i, err
		}
	}
	return i, nil
}

func skipComposite(b []byte, i, depth int) (int, error) {
	object := b[i] == '{'
	end := byte(']')
	if object {
		end = '}'
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == end {
		return i + 1, nil
	}
	for {
		var err error
		if object {
			if i, err = skipName(b, i); err != nil {
				return i, err
			}
		}
		if i, err = skipValue(b, i, depth); err != nil {
			return i, err
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return i, errShort
		}
		if b[i] == end {
			return i + 1, nil
		}
		if b[i] != ',' {
			return i, errSyntax
		}
		i = skipSpace(b, i+1)
	}
}

// skipName passes a member's name, the colon and the space after it.
func skipName(b []byte, i int) (int, error) {
	if i >= len(b) {
		return i, errShort
	}
	if b[i] != '"' {
		return i, errSyntax
	}
	i, err := skipText(b, i)
	if err != nil {
		return i, err
	}
	i = skipSpace(b, i)
	if i >= len(b) {
		return i, errShort
	}
	if b[i] != ':' {
		return i, errSyntax
	}
	return skipSpace(b, i+1), nil
}

// checkJSON reports why b is not exactly one JSON value on one line.
func checkJSON(b []byte) error {
	i, err := skipValue(b, skipSpace(b, 0), 0)
	if err != nil {
		return err
	}
	if skipSpace(b, i) != len(b) {
		return errSyntax
	}
	return nil
}

// unquote returns the characters of a checked JSON text.
func unquote(b []byte) (string, error) {
	inner := b[1 : len(b)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return "", errSyntax
	}
	return s, nil
}

// isPlain reports whether a text consists of ASCII characters that stand for
// themselves in JSON. It looks at eight bytes at a time.
func isPlain(s string) bool {
	n := len(s)
	b := unsafe.Slice(unsafe.StringData(s), n)
	switch {
	case n >= 8:
		for i := 0; i+8 < n; i += 8 {
			if special(binary.LittleEndian.Uint64(b[i:])) != 0 {
				return false
			}
		}
		return special(binary.LittleEndian.Uint64(b[n-8:])) == 0
	case n >= 4:
		return special(uint64(binary.LittleEndian.Uint32(b))|uint64(binary.LittleEndian.Uint32(b[n-4:]))<<32) == 0
	}
	for _, c := range b {
		if c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// special returns 0 when none of eight bytes is a control character, a quote,
// a backslash or beyond ASCII.
func special(x uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^ones*'"', x^ones*'\\'
	// Subtracting borrows into a byte's high bit where the byte was too small.
	return (x | (x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & high
}

// appendPlain is appendQuoted for a text that isPlain.
func appendPlain(b []byte, s string) []byte {
	b = append(b, '"')
	return append(append(b, s...), '"')
}

// appendQuoted appends s as a JSON text. Keys and texts are valid UTF-8 by
// the time they come here.
func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	if isPlain(s) {
		return appendPlain(b, s)
	}
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// quotedLen returns the length of what appendQuoted appends.
func quotedLen(s string) int {
	n := len(s) + 2
	if isPlain(s) {
		return n
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			n++
		case c < 0x20:
			n += 5
		}
	}
	return n
}
