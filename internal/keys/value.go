package keys

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math/big"
	"time"
)

// A Kind is the kind of a [Value]. Kinds order as their values do.
type Kind uint8

// The kinds, in key order.
const (
	KindNil Kind = iota
	KindBool
	KindNumber
	KindTime
	KindString
	KindBytes
	KindArray
	KindObject
)

// String returns the name of k, such as "number".
func (k Kind) String() string {
	switch k {
	case KindNil:
		return "nil"
	case KindBool:
		return "bool"
	case KindNumber:
		return "number"
	case KindTime:
		return "time"
	case KindString:
		return "string"
	case KindBytes:
		return "bytes"
	case KindArray:
		return "array"
	case KindObject:
		return "object"
	}
	return "unknown kind"
}

// A Value is a decoded element, a view of the bytes given to [Next]. Only valid
// elements become Values, so its methods cannot fail: one that does not fit the
// kind returns a zero value. The zero Value is nil.
type Value struct {
	raw []byte // exactly one valid element; empty means nil
}

func valueOf(raw []byte) Value { return Value{raw: raw} }

// Kind returns the kind of v.
func (v Value) Kind() Kind {
	if len(v.raw) == 0 {
		return KindNil
	}
	switch tag := v.raw[0]; tag {
	case tagNil:
		return KindNil
	case tagFalse, tagTrue:
		return KindBool
	case tagTime:
		return KindTime
	case tagString:
		return KindString
	case tagBytes:
		return KindBytes
	case tagArray:
		return KindArray
	case tagObject:
		return KindObject
	}
	return KindNumber
}

// Raw returns the encoding of v, which is empty for the zero Value.
func (v Value) Raw() []byte { return v.raw }

// Bool returns the value of a bool.
func (v Value) Bool() bool { return len(v.raw) > 0 && v.raw[0] == tagTrue }

func (v Value) number() (x number, ok bool) {
	if v.Kind() != KindNumber {
		return number{}, false
	}
	x, _, _ = scanNumber(v.raw)
	return x, true
}

// Int64 returns the value of a number and whether it is an integer that fits.
func (v Value) Int64() (i int64, ok bool) {
	x, ok := v.number()
	if !ok {
		return 0, false
	}
	if i, ok = x.int64(); !ok {
		return 0, false
	}
	return i, true
}

// Uint64 returns the value of a number and whether it is an integer that fits.
func (v Value) Uint64() (u uint64, ok bool) {
	x, ok := v.number()
	if !ok {
		return 0, false
	}
	return x.uint64()
}

// Float64 returns the float64 that is nearest to a number; it is exact if the
// number was encoded from one.
func (v Value) Float64() float64 {
	x, ok := v.number()
	if !ok {
		return 0
	}
	return x.float64()
}

// Big returns the value of a number that is an integer, else nil.
func (v Value) Big() *big.Int {
	x, ok := v.number()
	if !ok {
		return nil
	}
	return x.big()
}

// Time returns the instant of a time, in UTC.
func (v Value) Time() time.Time {
	if v.Kind() != KindTime {
		return time.Time{}
	}
	sec := int64(binary.BigEndian.Uint64(v.raw[1:]) ^ 1<<63)
	return time.Unix(sec, int64(binary.BigEndian.Uint32(v.raw[9:]))).UTC()
}

// Text returns the value of a string.
func (v Value) Text() string {
	if v.Kind() != KindString {
		return ""
	}
	body := v.raw[1 : len(v.raw)-1]
	if bytes.IndexByte(body, escape) < 0 {
		return string(body)
	}
	return string(unescape(body))
}

// Bytes returns a copy of the value of bytes, not nil even if empty, and nil for
// other kinds.
func (v Value) Bytes() []byte {
	if v.Kind() != KindBytes {
		return nil
	}
	return unescape(v.raw[1 : len(v.raw)-1])
}

// unescape returns a copy of a text without its escapes.
func unescape(body []byte) []byte {
	out := make([]byte, 0, len(body))
	for {
		i := bytes.IndexByte(body, escape)
		if i < 0 {
			return append(out, body...)
		}
		out = append(append(out, body[:i]...), body[i+1]-1)
		body = body[i+2:]
	}
}

// Elems returns the elements of an array.
func (v Value) Elems() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.Kind() != KindArray {
			return
		}
		for rest := v.raw[1 : len(v.raw)-1]; len(rest) > 0; {
			var e Value
			if e, rest = first(rest); !yield(e) {
				return
			}
		}
	}
}

// Members returns the names and values of an object's members, in stored order.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if v.Kind() != KindObject {
			return
		}
		for rest := v.raw[1 : len(v.raw)-1]; len(rest) > 0; {
			var name, e Value
			name, rest = first(rest)
			if e, rest = first(rest); !yield(name.Text(), e) {
				return
			}
		}
	}
}

// first splits off the first element of b, which holds valid elements.
func first(b []byte) (v Value, rest []byte) {
	n, _ := scan(b, 0)
	return valueOf(b[:n]), b[n:]
}

// Any returns v as [Decode] does.
func (v Value) Any() any {
	if len(v.raw) == 0 {
		return nil
	}
	x, _ := take(v.raw)
	return x
}

// take returns the value of the valid element that b begins with, and its length.
// It looks at every byte once, however deep the element nests.
func take(b []byte) (v any, n int) {
	switch b[0] {
	case tagNil:
		return nil, 1
	case tagFalse, tagTrue:
		return b[0] == tagTrue, 1
	case tagTime:
		return valueOf(b).Time(), 13
	case tagString:
		n = bytes.IndexByte(b, textEnd) + 1
		return valueOf(b[:n]).Text(), n
	case tagBytes:
		n = bytes.IndexByte(b, textEnd) + 1
		return valueOf(b[:n]).Bytes(), n
	case tagArray:
		return takeArray(b)
	case tagObject:
		return takeObject(b)
	}
	x, n, _ := scanNumber(b)
	return x.any(), n
}

func takeArray(b []byte) (t Tuple, n int) {
	t = Tuple{}
	for n = 1; b[n] != tagEnd; {
		v, size := take(b[n:])
		if cap(t) == 0 {
			t = make(Tuple, 0, 4)
		}
		t, n = append(t, v), n+size
	}
	return t, n + 1
}

func takeObject(b []byte) (o Object, n int) {
	o = Object{}
	for n = 1; b[n] != tagEnd; {
		size := bytes.IndexByte(b[n:], textEnd) + 1
		name := valueOf(b[n : n+size]).Text()
		n += size
		v, size := take(b[n:])
		o, n = append(o, Member{Name: name, Value: v}), n+size
	}
	return o, n + 1
}

// any returns x as the narrowest of int64, uint64, *big.Int, float64 that holds it.
func (x *number) any() any {
	if i, ok := x.int64(); ok {
		return i
	}
	if u, ok := x.uint64(); ok {
		return u
	}
	if i := x.big(); i != nil {
		return i
	}
	return x.float64()
}
