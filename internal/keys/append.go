package keys

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// ErrValue is matched by every error of [Append]: the value has no key.
var ErrValue = errors.New("value has no key")

// A TypeError reports a value of a type that keys cannot hold.
type TypeError struct {
	Type reflect.Type
}

// Error implements error.
func (e *TypeError) Error() string { return "keys: append: type " + e.Type.String() + " has no key" }

// Unwrap returns [ErrValue].
func (e *TypeError) Unwrap() error { return ErrValue }

// A Tuple is an array of elements.
type Tuple []any

// An Object is an array of named values. Its order counts: two objects with the
// same members in different order are different keys. Names may repeat.
type Object []Member

// A Member is a name and a value of an [Object].
type Member struct {
	Name  string
	Value any
}

// maxDigits bounds the text of a json.Number, since the cost of converting it
// grows with the square of its length.
const maxDigits = 1 << 14

// AppendNil appends the encoding of nil, the least key.
func AppendNil(dst []byte) []byte { return append(dst, tagNil) }

// AppendBool appends the encoding of v.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, tagTrue)
	}
	return append(dst, tagFalse)
}

// AppendTime appends the encoding of the instant v, 13 bytes. The location is
// not kept. The order is that of v.Unix and v.Nanosecond, so it is right for
// every time whose seconds since 1970 fit an int64.
func AppendTime(dst []byte, v time.Time) []byte {
	dst = append(dst, tagTime)
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.Unix())^(1<<63))
	return binary.BigEndian.AppendUint32(dst, uint32(v.Nanosecond()))
}

// AppendString appends the encoding of v, which need not be UTF-8. It takes
// len(v)+2 bytes, and one more for each byte of v that is 0x00 or 0x01.
func AppendString(dst []byte, v string) []byte {
	return append(StringPrefix(dst, v), textEnd)
}

// StringPrefix appends the encoding of a string without its end. What it
// appends is a prefix of the encoding of exactly the strings that begin with s.
func StringPrefix(dst []byte, s string) []byte {
	dst = append(dst, tagString)
	if strings.IndexByte(s, 0) < 0 && strings.IndexByte(s, 1) < 0 {
		return append(dst, s...)
	}
	for i := range len(s) {
		dst = appendEscaped(dst, s[i])
	}
	return dst
}

// AppendBytes appends the encoding of v, of the same size as a string's.
// A nil slice is an empty one.
func AppendBytes(dst, v []byte) []byte {
	dst = append(dst, tagBytes)
	if bytes.IndexByte(v, 0) < 0 && bytes.IndexByte(v, 1) < 0 {
		return append(append(dst, v...), textEnd)
	}
	for _, c := range v {
		dst = appendEscaped(dst, c)
	}
	return append(dst, textEnd)
}

func appendEscaped(dst []byte, c byte) []byte {
	if c <= 1 {
		return append(dst, escape, c+1)
	}
	return append(dst, c)
}

// AppendArrayStart opens an array: append its elements, then [AppendArrayEnd].
// A start without an end is the prefix of all arrays with these first elements.
// The caller keeps nesting within [MaxDepth], or the key cannot be decoded.
func AppendArrayStart(dst []byte) []byte { return append(dst, tagArray) }

// AppendArrayEnd closes an array.
func AppendArrayEnd(dst []byte) []byte { return append(dst, tagEnd) }

// AppendObjectStart opens an object: append each member's name with
// [AppendString] and its value, then [AppendObjectEnd]. The caller keeps nesting
// within [MaxDepth], or the key cannot be decoded.
func AppendObjectStart(dst []byte) []byte { return append(dst, tagObject) }

// AppendObjectEnd closes an object.
func AppendObjectEnd(dst []byte) []byte { return append(dst, tagEnd) }

// Append appends the encoding of v: nil, bool, integers and floats of every
// width, *big.Int, json.Number, time.Time, string, []byte, [16]byte (as bytes),
// []any, [Tuple] and [Object]; also named types whose underlying type is a
// boolean, number, string, []byte or [16]byte. A nil *big.Int is nil.
//
// A json.Number without fraction and exponent is an exact integer of at most
// 16,384 digits, any other the nearest float64.
//
// On error dst comes back as it was. A value of another type gives a
// [*TypeError]; it, nesting beyond [MaxDepth] and a json.Number that is
// malformed, too long or beyond float64 match [ErrValue].
func Append(dst []byte, v any) ([]byte, error) {
	out, err := appendAny(dst, v, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func appendAny(dst []byte, v any, depth int) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return AppendNil(dst), nil
	case bool:
		return AppendBool(dst, v), nil
	case int:
		return AppendInt(dst, int64(v)), nil
	case int64:
		return AppendInt(dst, v), nil
	case uint64:
		return AppendUint(dst, v), nil
	case float64:
		return AppendFloat(dst, v), nil
	case string:
		return AppendString(dst, v), nil
	case []byte:
		return AppendBytes(dst, v), nil
	case [16]byte:
		return AppendBytes(dst, v[:]), nil
	case time.Time:
		return AppendTime(dst, v), nil
	case *big.Int:
		if v == nil {
			return AppendNil(dst), nil
		}
		return AppendBig(dst, v), nil
	case json.Number:
		return appendNumber(dst, string(v))
	case []any:
		return appendArray(dst, v, depth+1)
	case Tuple:
		return appendArray(dst, v, depth+1)
	case Object:
		return appendObject(dst, v, depth+1)
	}
	return appendReflect(dst, reflect.ValueOf(v))
}

// appendReflect encodes the widths that appendAny does not name, and named types.
func appendReflect(dst []byte, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Bool:
		return AppendBool(dst, v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return AppendInt(dst, v.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return AppendUint(dst, v.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return AppendFloat(dst, v.Float()), nil
	case reflect.String:
		return AppendString(dst, v.String()), nil
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return AppendBytes(dst, v.Bytes()), nil
		}
	case reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 && v.Len() == 16 {
			var b [16]byte
			reflect.Copy(reflect.ValueOf(b[:]), v)
			return AppendBytes(dst, b[:]), nil
		}
	}
	return dst, &TypeError{Type: v.Type()}
}

func appendArray(dst []byte, elems []any, depth int) ([]byte, error) {
	if depth > MaxDepth {
		return dst, errDepth()
	}
	dst = AppendArrayStart(dst)
	for _, e := range elems {
		var err error
		if dst, err = appendAny(dst, e, depth); err != nil {
			return dst, err
		}
	}
	return AppendArrayEnd(dst), nil
}

func appendObject(dst []byte, members Object, depth int) ([]byte, error) {
	if depth > MaxDepth {
		return dst, errDepth()
	}
	dst = AppendObjectStart(dst)
	for _, m := range members {
		var err error
		if dst, err = appendAny(AppendString(dst, m.Name), m.Value, depth); err != nil {
			return dst, err
		}
	}
	return AppendObjectEnd(dst), nil
}

func errDepth() error {
	return fmt.Errorf("keys: append: nested deeper than %d: %w", MaxDepth, ErrValue)
}

// appendNumber encodes the text of a JSON number.
func appendNumber(dst []byte, s string) ([]byte, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil && isNumber(s) {
		return AppendInt(dst, i), nil
	}
	if !isNumber(s) {
		return dst, fmt.Errorf("keys: append: malformed number: %w", ErrValue)
	}
	if len(s) > maxDigits {
		return dst, fmt.Errorf("keys: append: number of %d characters: %w", len(s), ErrValue)
	}
	if !strings.ContainsAny(s, ".eE") {
		i, ok := new(big.Int).SetString(s, 10)
		if !ok {
			return dst, fmt.Errorf("keys: append: malformed number: %w", ErrValue)
		}
		return AppendBig(dst, i), nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return dst, fmt.Errorf("keys: append: number beyond float64: %w", ErrValue)
	}
	return AppendFloat(dst, f), nil
}

// isNumber reports whether s is a number by the grammar of JSON.
func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	n := digits(s)
	if n == 0 || n > 1 && s[0] == '0' {
		return false
	}
	s = s[n:]
	if s != "" && s[0] == '.' {
		if n = digits(s[1:]); n == 0 {
			return false
		}
		s = s[1+n:]
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		s = s[1:]
		if s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		n = digits(s)
		return n > 0 && n == len(s)
	}
	return s == ""
}

// digits returns how many decimal digits s begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// PrefixEnd returns the least key that is greater than every key with prefix p,
// in memory of its own, or nil if there is none: p is empty or all 0xFF.
func PrefixEnd(p []byte) []byte {
	n := len(p)
	for n > 0 && p[n-1] == 0xFF {
		n--
	}
	if n == 0 {
		return nil
	}
	end := bytes.Clone(p[:n])
	end[n-1]++
	return end
}
