package jsonplan

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/base64"
	"encoding/json"

	"math"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"
)

// encoder is where an encoded value grows.
type encoder struct {
	out   []byte
	depth int
}

// Append encodes v behind dst as encoding/json does without escaping for HTML.
// It returns false, and dst as it was, if encoding/json must do it: v cannot be
// encoded, or there is no plan for it. It may be called concurrently.
func Append(dst []byte, v any) ([]byte, bool) {
	if v == nil {
		return append(dst, "null"...), true
	}
	p := planOf(reflect.TypeOf(v))
	if !p.encodes {
		return dst, false
	}
	// Encoded in memory that is kept, then copied: dst need not grow step by step.
	e := encoders.Get().(*encoder)
	e.out, e.depth = e.out[:0], 0
	ok := e.value(p, v)
	if ok {
		dst = append(dst, e.out...)
	}
	if cap(e.out) <= maxKept {
		encoders.Put(e)
	}
	return dst, ok
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// value encodes what an interface holds, by its type's plan.
func (e *encoder) value(p *plan, v any) bool {
	if p.inWord {
		return e.word(p, v)
	}
	return p.encode(e, (*[2]unsafe.Pointer)(unsafe.Pointer(&v))[1])
}

// word encodes what an interface holds in itself.
func (e *encoder) word(p *plan, v any) bool {
	return p.encode(e, unsafe.Pointer(&(*[2]unsafe.Pointer)(unsafe.Pointer(&v))[1]))
}

// encoder returns nil if there is no plan for a type.
func (b *builder) encoder(t reflect.Type) func(*encoder, unsafe.Pointer) bool {
	if t == timeType {
		return encodeTime
	}
	if fn, known := encodesItself(t); !known || fn != nil {
		return fn
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(e *encoder, p unsafe.Pointer) bool { e.out = strconv.AppendBool(e.out, *(*bool)(p)); return true }
	case reflect.String:
		if t == numberType {
			return nil
		}
		return func(e *encoder, p unsafe.Pointer) bool { e.out = appendString(e.out, *(*string)(p)); return true }
	case reflect.Int, reflect.Int64:
		return encodeInt[int64]
	case reflect.Int32:
		return encodeInt[int32]
	case reflect.Int16:
		return encodeInt[int16]
	case reflect.Int8:
		return encodeInt[int8]
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return encodeUint[uint64]
	case reflect.Uint32:
		return encodeUint[uint32]
	case reflect.Uint16:
		return encodeUint[uint16]
	case reflect.Uint8:
		return encodeUint[uint8]
	case reflect.Float64:
		return func(e *encoder, p unsafe.Pointer) bool { return e.float(*(*float64)(p), 64) }
	case reflect.Float32:
		return func(e *encoder, p unsafe.Pointer) bool { return e.float(float64(*(*float32)(p)), 32) }
	case reflect.Pointer:
		return b.encodePointer(t)
	case reflect.Interface:
		return encodeInterface(t)
	case reflect.Struct:
		return b.encodeStruct(t)
	case reflect.Slice:
		return b.encodeSlice(t)
	case reflect.Array:
		return b.encodeArray(t)
	case reflect.Map:
		return b.encodeMap(t)
	}
	return nil
}

// encodesItself returns how a type with methods for that is encoded; known is
// false if that depends on whether a value can be addressed.
func encodesItself(t reflect.Type) (fn func(*encoder, unsafe.Pointer) bool, known bool) {
	nilable := t.Kind() == reflect.Pointer
	switch {
	case t.Kind() == reflect.Interface:
		return nil, true // judged by what it holds
	case t.Implements(marshalerType):
		return func(e *encoder, p unsafe.Pointer) bool {
			v := reflect.NewAt(t, p).Elem()
			if nilable && v.IsNil() {
				e.out = append(e.out, "null"...)
				return true
			}
			b, err := v.Interface().(json.Marshaler).MarshalJSON()
			if err != nil {
				return false
			}
			buf := bytes.NewBuffer(e.out)
			if json.Compact(buf, b) != nil {
				return false
			}
			e.out = buf.Bytes()
			return true
		}, true
	case !nilable && reflect.PointerTo(t).Implements(marshalerType):
		return nil, false
	case t.Implements(textMarshalerType):
		return func(e *encoder, p unsafe.Pointer) bool {
			v := reflect.NewAt(t, p).Elem()
			if nilable && v.IsNil() {
				e.out = append(e.out, "null"...)
				return true
			}
			b, err := v.Interface().(encoding.TextMarshaler).MarshalText()
			if err != nil {
				return false
			}
			e.out = appendString(e.out, string(b))
			return true
		}, true
	case !nilable && reflect.PointerTo(t).Implements(textMarshalerType):
		return nil, false
	}
	return nil, true
}

func encodeTime(e *encoder, p unsafe.Pointer) bool {
	before := len(e.out)
	out, err := (*time.Time)(p).AppendText(append(e.out, '"'))
	if err != nil {
		e.out = e.out[:before]
		return false
	}
	e.out = append(out, '"')
	return true
}

func encodeInt[T int8 | int16 | int32 | int64](e *encoder, p unsafe.Pointer) bool {
	e.out = strconv.AppendInt(e.out, int64(*(*T)(p)), 10)
	return true
}

func encodeUint[T uint8 | uint16 | uint32 | uint64](e *encoder, p unsafe.Pointer) bool {
	e.out = strconv.AppendUint(e.out, uint64(*(*T)(p)), 10)
	return true
}

// float writes a number as ECMAScript does.
func (e *encoder) float(f float64, bits int) bool {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return false
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 {
		if bits == 64 && (abs < 1e-6 || abs >= 1e21) || bits == 32 && (float32(abs) < 1e-6 || float32(abs) >= 1e21) {
			format = 'e'
		}
	}
	e.out = strconv.AppendFloat(e.out, f, format, -1, bits)
	if format == 'e' { // e-09 becomes e-9
		if n := len(e.out); n >= 4 && e.out[n-4] == 'e' && e.out[n-3] == '-' && e.out[n-2] == '0' {
			e.out[n-2] = e.out[n-1]
			e.out = e.out[:n-1]
		}
	}
	return true
}

// deeper goes down one level; the caller comes up again.
func (e *encoder) deeper() bool { e.depth++; return e.depth <= maxDepth }

func (b *builder) encodePointer(t reflect.Type) func(*encoder, unsafe.Pointer) bool {
	elem := b.plan(t.Elem())
	return func(e *encoder, p unsafe.Pointer) bool {
		q := *(*unsafe.Pointer)(p)
		if q == nil {
			e.out = append(e.out, "null"...)
			return true
		}
		ok := e.deeper() && elem.encode(e, q)
		e.depth--
		return ok
	}
}

func encodeInterface(t reflect.Type) func(*encoder, unsafe.Pointer) bool {
	if t.NumMethod() > 0 {
		return nil
	}
	return func(e *encoder, p unsafe.Pointer) bool { return e.any(*(*any)(p)) }
}

func (e *encoder) any(v any) bool {
	switch v := v.(type) {
	case nil:
		e.out = append(e.out, "null"...)
	case string:
		e.out = appendString(e.out, v)
	case bool:
		e.out = strconv.AppendBool(e.out, v)
	case float64:
		return e.float(v, 64)
	default:
		p := planOf(reflect.TypeOf(v))
		if !p.encodes || !e.deeper() {
			return false
		}
		ok := e.value(p, v)
		e.depth--
		return ok
	}
	return true
}

func (b *builder) encodeStruct(t reflect.Type) func(*encoder, unsafe.Pointer) bool {
	fields, ok := b.fields(t)
	if !ok {
		return nil
	}
	return func(e *encoder, p unsafe.Pointer) bool {
		if !e.deeper() {
			return false
		}
		next := byte('{')
		for i := range fields {
			f := &fields[i]
			at := unsafe.Add(p, f.offset)
			if f.omitEmpty != nil && f.omitEmpty(at) || f.omitZero != nil && f.omitZero(at) {
				continue
			}
			e.out = append(append(e.out, next), f.key...)
			next = ','
			if !f.plan.encode(e, at) {
				return false
			}
		}
		if next == '{' {
			e.out = append(e.out, '{')
		}
		e.out = append(e.out, '}')
		e.depth--
		return true
	}
}

// slice is what a slice of anything is.
type slice struct {
	data     unsafe.Pointer
	len, cap int
}

func (b *builder) encodeSlice(t reflect.Type) func(*encoder, unsafe.Pointer) bool {
	if isBytes(t) {
		return func(e *encoder, p unsafe.Pointer) bool {
			v := *(*[]byte)(p)
			if v == nil {
				e.out = append(e.out, "null"...)
				return true
			}
			e.out = append(base64.StdEncoding.AppendEncode(append(e.out, '"'), v), '"')
			return true
		}
	}
	elem, size := b.plan(t.Elem()), t.Elem().Size()
	return func(e *encoder, p unsafe.Pointer) bool {
		s := (*slice)(p)
		if s.data == nil {
			e.out = append(e.out, "null"...)
			return true
		}
		return e.elements(elem, s.data, s.len, size)
	}
}

// isBytes reports whether a slice is encoded in base64.
func isBytes(t reflect.Type) bool {
	e := t.Elem()
	return e.Kind() == reflect.Uint8 && !reflect.PointerTo(e).Implements(marshalerType) && !reflect.PointerTo(e).Implements(textMarshalerType)
}

func (b *builder) encodeArray(t reflect.Type) func(*encoder, unsafe.Pointer) bool {
	elem, size, n := b.plan(t.Elem()), t.Elem().Size(), t.Len()
	return func(e *encoder, p unsafe.Pointer) bool { return e.elements(elem, p, n, size) }
}

func (e *encoder) elements(elem *plan, p unsafe.Pointer, n int, size uintptr) bool {
	if !e.deeper() {
		return false
	}
	e.out = append(e.out, '[')
	for i := range n {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		if !elem.encode(e, unsafe.Add(p, uintptr(i)*size)) {
			return false
		}
	}
	e.out = append(e.out, ']')
	e.depth--
	return true
}

func (b *builder) encodeMap(t reflect.Type) func(*encoder, unsafe.Pointer) bool {
	if t.Key().Kind() != reflect.String || t.Key().Implements(textMarshalerType) || reflect.PointerTo(t.Key()).Implements(textMarshalerType) {
		return nil
	}
	elem := b.plan(t.Elem())
	if t == reflect.TypeFor[map[string]any]() {
		return encodeObject
	}
	return func(e *encoder, p unsafe.Pointer) bool {
		m := reflect.NewAt(t, p).Elem()
		if m.IsNil() {
			e.out = append(e.out, "null"...)
			return true
		}
		if !e.deeper() {
			return false
		}
		keys := m.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		value := reflect.New(t.Elem())
		e.out = append(e.out, '{')
		for i, k := range keys {
			if i > 0 {
				e.out = append(e.out, ',')
			}
			e.out = append(appendString(e.out, k.String()), ':')
			value.Elem().Set(m.MapIndex(k))
			if !elem.encode(e, value.UnsafePointer()) {
				return false
			}
		}
		e.out = append(e.out, '}')
		e.depth--
		return true
	}
}

func encodeObject(e *encoder, p unsafe.Pointer) bool {
	m := *(*map[string]any)(p)
	if m == nil {
		e.out = append(e.out, "null"...)
		return true
	}
	if !e.deeper() {
		return false
	}
	keys := make([]string, 0, 16)
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	e.out = append(e.out, '{')
	for i, k := range keys {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		e.out = append(appendString(e.out, k), ':')
		if !e.any(m[k]) {
			return false
		}
	}
	e.out = append(e.out, '}')
	e.depth--
	return true
}
