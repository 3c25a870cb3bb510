package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"unicode/utf8"
)

// The functions of this file work on JSON texts without decoding them, so that
// member order, the digits of numbers and the spelling of strings stay as they
// are. All but appendCompact expect valid texts without white space around
// their elements, which appendCompact makes.

var errNotObject = errors.New("want a JSON object")

// appendCompact appends src without white space between elements. It refuses
// what is not one valid JSON text in UTF-8.
func appendCompact(dst, src []byte) ([]byte, error) {
	if !utf8.Valid(src) {
		return dst, fmt.Errorf("invalid UTF-8 at byte %d", firstInvalid(src))
	}
	buf := bytes.NewBuffer(dst)
	if json.Compact(buf, src) != nil {
		return dst, syntaxError(src)
	}
	return buf.Bytes(), nil
}

// syntaxError says what is wrong with an invalid text, and where.
func syntaxError(src []byte) error {
	var raw json.RawMessage
	err := json.Unmarshal(src, &raw)
	var se *json.SyntaxError
	switch {
	case len(bytes.TrimSpace(src)) == 0:
		return errors.New("there is nothing where JSON should be")
	case errors.As(err, &se):
		return fmt.Errorf("invalid JSON at byte %d: %w", se.Offset, err)
	}
	return fmt.Errorf("invalid JSON: %w", err)
}

// firstInvalid returns the position, from 1, of the first byte that is not UTF-8.
func firstInvalid(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i + 1
		}
		i += n
	}
	return 0
}

// skipString returns the end of the string that begins at b[i].
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// scalarLen returns the length of the number or word that b begins with.
func scalarLen(b []byte) int {
	for i, c := range b {
		switch c {
		case ',', ':', ']', '}', '[', '{', '"', ' ', '\t', '\r', '\n':
			return i
		}
	}
	return len(b)
}

// skipValue returns the end of the value that begins at b[i].
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
	default:
		return i + scalarLen(b[i:])
	}
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(b)
}

// member is where a member of an object lies: b[start:end] is name, colon and
// value.
type member struct {
	name       string
	start, end int
	value      []byte
}

// members yields the members of the object b; nothing if b is no object.
func members(b []byte) iter.Seq[member] {
	return func(yield func(member) bool) {
		if len(b) == 0 || b[0] != '{' {
			return
		}
		for i := 1; i < len(b) && b[i] == '"'; {
			nameEnd := skipString(b, i)
			end := skipValue(b, nameEnd+1)
			if !yield(member{unquote(b[i:nameEnd]), i, end, b[nameEnd+1 : end]}) {
				return
			}
			i = end + 1 // behind the comma, or the closing brace
		}
	}
}

// unquote returns what a valid JSON string says.
func unquote(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1])
	}
	var s string
	if json.Unmarshal(b, &s) != nil {
		return ""
	}
	return s
}

// findMember returns the value under path: a member of that name, or else one
// that a path of names joined with dots leads to. Of members of the same name
// the last counts, as it does for decoders.
func findMember(b []byte, path string) ([]byte, bool) {
	var value []byte
	for m := range members(b) {
		if m.name == path {
			value = m.value
		}
	}
	if value != nil {
		return value, true
	}
	for dot := strings.IndexByte(path, '.'); dot >= 0; {
		for m := range members(b) {
			if m.name == path[:dot] {
				value = m.value
			}
		}
		if value != nil {
			return findMember(value, path[dot+1:])
		}
		next := strings.IndexByte(path[dot+1:], '.')
		if next < 0 {
			break
		}
		dot += 1 + next
	}
	return nil, false
}

// takeMember returns the object b without its member name, and that member's
// value; nil if there is none. rest is b itself, or its bytes moved.
func takeMember(b []byte, name string) (rest, value []byte, err error) {
	var found member
	for m := range members(b) {
		if m.name != name {
			continue
		}
		if found.value != nil {
			return nil, nil, fmt.Errorf("there are two members %q", name)
		}
		found = m
	}
	if found.value == nil {
		return b, nil, nil
	}
	value = bytes.Clone(found.value)
	start, end := found.start, found.end
	if b[end] == ',' {
		end++
	} else if b[start-1] == ',' {
		start--
	}
	return append(b[:start], b[end:]...), value, nil
}

// appendWithMember appends the object b with one more member in front; name
// must need no escapes.
func appendWithMember(dst []byte, name string, value, b []byte) []byte {
	dst = append(dst, '{', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	dst = append(dst, value...)
	if len(b) > 2 {
		dst = append(dst, ',')
	}
	return append(dst, b[1:]...)
}

// sameJSON reports whether two valid texts say the same: equal but for the
// order of members and the spelling of strings. Numbers count as equal only
// with the same digits.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func decodeJSON(b []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// appendQuoted appends s as a JSON string, escaping only what must be.
func appendQuoted(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
