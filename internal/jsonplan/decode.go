package jsonplan

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// decoder reads a JSON text.
type decoder struct {
	b       []byte
	i       int
	depth   int
	scratch []byte // of unescaped strings
}

// decoders and encoders are kept between calls.
var decoders = sync.Pool{New: func() any { return new(decoder) }}

// maxKept bounds the memory of one that is kept.
const maxKept = 64 << 10

// Decode fills the variable that v points to, which must be zero, from the JSON
// text b, as encoding/json does. It returns false, and the variable zero, if
// encoding/json must do it: the text does not fit or is no JSON, or there is no
// plan for the type. It keeps nothing of b. It may be called concurrently.
func Decode(b []byte, v any) bool {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer {
		return false
	}
	p := planOf(t.Elem())
	if !p.decodes {
		return false
	}
	at := (*[2]unsafe.Pointer)(unsafe.Pointer(&v))[1]
	if at == nil || !reflect.ValueOf(v).Elem().IsZero() {
		return false
	}
	d := decoders.Get().(*decoder)
	*d = decoder{b: b, scratch: d.scratch}
	d.space()
	ok := p.decode(d, at)
	d.space()
	ok = ok && d.i == len(b)
	d.b = nil
	if cap(d.scratch) <= maxKept {
		decoders.Put(d)
	}
	if !ok {
		reflect.ValueOf(v).Elem().SetZero()
	}
	return ok
}

// space skips white space.
func (d *decoder) space() {
	for d.i < len(d.b) && d.b[d.i] <= ' ' {
		switch d.b[d.i] {
		case ' ', '\n', '\t', '\r':
			d.i++
		default:
			return
		}
	}
}

// next skips white space and takes a byte if it is c.
func (d *decoder) next(c byte) bool {
	if d.i < len(d.b) && d.b[d.i] == c {
		d.i++
		return true
	}
	d.space()
	if d.i < len(d.b) && d.b[d.i] == c {
		d.i++
		return true
	}
	return false
}

// another takes what stands behind an element: a comma, so that another follows, or
// the end. ok is false if it is neither.
func (d *decoder) another(end byte) (more, ok bool) {
	if d.next(',') {
		return true, true
	}
	return false, d.next(end)
}

// peek is the byte that comes after white space, 0 at the end.
func (d *decoder) peek() byte {
	d.space()
	if d.i < len(d.b) {
		return d.b[d.i]
	}
	return 0
}

// word takes true, false or null.
func (d *decoder) word(s string) bool {
	if len(d.b)-d.i >= len(s) && string(d.b[d.i:d.i+len(s)]) == s {
		d.i += len(s)
		return true
	}
	return false
}

func (d *decoder) deeper() bool { d.depth++; return d.depth <= maxDepth }

// number takes a number; whole says that it has neither fraction nor exponent.
func (d *decoder) number() (token []byte, whole, ok bool) {
	b, i := d.b, d.i
	start := i
	if i < len(b) && b[i] == '-' {
		i++
	}
	digits := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == digits || b[digits] == '0' && i > digits+1 {
		return nil, false, false
	}
	whole = true
	if i < len(b) && b[i] == '.' {
		whole = false
		i++
		digits = i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		if i == digits {
			return nil, false, false
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		whole = false
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		digits = i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		if i == digits {
			return nil, false, false
		}
	}
	d.i = i
	return b[start:i], whole, true
}

// skip passes over a value and checks it.
func (d *decoder) skip() bool {
	switch d.peek() {
	case '"':
		_, ok := d.text()
		return ok
	case '{':
		d.i++
		if !d.deeper() {
			return false
		}
		if !d.next('}') {
			for {
				d.space()
				if _, ok := d.text(); !ok || !d.next(':') || !d.skip() {
					return false
				}
				more, ok := d.another('}')
				if !ok {
					return false
				}
				if !more {
					break
				}
			}
		}
		d.depth--
		return true
	case '[':
		d.i++
		if !d.deeper() {
			return false
		}
		if !d.next(']') {
			for {
				if !d.skip() {
					return false
				}
				more, ok := d.another(']')
				if !ok {
					return false
				}
				if !more {
					break
				}
			}
		}
		d.depth--
		return true
	case 't':
		return d.word("true")
	case 'f':
		return d.word("false")
	case 'n':
		return d.word("null")
	}
	_, _, ok := d.number()
	return ok
}

// null takes null if it is next.
func (d *decoder) null() bool { return d.i < len(d.b) && d.b[d.i] == 'n' && d.word("null") }

// decoder returns nil if there is no plan for a type. Plans are called where a
// value begins.
func (b *builder) decoder(t reflect.Type) func(*decoder, unsafe.Pointer) bool {
	if fn, itself := decodesItself(t); itself {
		return fn
	}
	switch t.Kind() {
	case reflect.Bool:
		return decodeBool
	case reflect.String:
		if t == numberType {
			return nil
		}
		return decodeText
	case reflect.Int, reflect.Int64:
		return decodeInt[int64]
	case reflect.Int32:
		return decodeInt[int32]
	case reflect.Int16:
		return decodeInt[int16]
	case reflect.Int8:
		return decodeInt[int8]
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return decodeUint[uint64]
	case reflect.Uint32:
		return decodeUint[uint32]
	case reflect.Uint16:
		return decodeUint[uint16]
	case reflect.Uint8:
		return decodeUint[uint8]
	case reflect.Float64:
		return decodeFloat[float64]
	case reflect.Float32:
		return decodeFloat[float32]
	case reflect.Pointer:
		return b.decodePointer(t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return nil
		}
		return decodeAny
	case reflect.Struct:
		return b.decodeStruct(t)
	case reflect.Slice:
		return b.decodeSlice(t)
	case reflect.Array:
		return b.decodeArray(t)
	case reflect.Map:
		return b.decodeMap(t)
	}
	return nil
}

// decodesItself returns how a type with methods for that is decoded; itself with
// no function says that encoding/json must do it.
func decodesItself(t reflect.Type) (fn func(*decoder, unsafe.Pointer) bool, itself bool) {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return nil, t.Implements(unmarshalerType) && t.Kind() == reflect.Interface
	}
	if t.Implements(unmarshalerType) || t.Implements(textUnmarshalerType) {
		return nil, true // by values, such as maps
	}
	switch pt := reflect.PointerTo(t); {
	case pt.Implements(unmarshalerType):
		return func(d *decoder, p unsafe.Pointer) bool {
			start := d.i
			return d.skip() && reflect.NewAt(t, p).Interface().(json.Unmarshaler).UnmarshalJSON(bytes.Clone(d.b[start:d.i])) == nil
		}, true
	case pt.Implements(textUnmarshalerType):
		return func(d *decoder, p unsafe.Pointer) bool {
			s, ok := d.text()
			return ok && reflect.NewAt(t, p).Interface().(encoding.TextUnmarshaler).UnmarshalText(bytes.Clone(s)) == nil
		}, true
	}
	return nil, false
}

func decodeBool(d *decoder, p unsafe.Pointer) bool {
	switch {
	case d.word("true"):
		*(*bool)(p) = true
		return true
	case d.word("false"):
		*(*bool)(p) = false
		return true
	}
	return d.null()
}

func decodeText(d *decoder, p unsafe.Pointer) bool {
	s, ok := d.text()
	if !ok {
		return d.null()
	}
	*(*string)(p) = string(s)
	return true
}

// whole reads an integer: its digits' value and its sign.
func (d *decoder) whole() (n uint64, negative, ok bool) {
	token, whole, ok := d.number()
	if !ok || !whole {
		return 0, false, false
	}
	if token[0] == '-' {
		negative, token = true, token[1:]
	}
	if len(token) > 19 {
		n, err := strconv.ParseUint(string(token), 10, 64)
		return n, negative, err == nil
	}
	for _, c := range token {
		n = n*10 + uint64(c-'0')
	}
	return n, negative, true
}

func decodeInt[T int8 | int16 | int32 | int64](d *decoder, p unsafe.Pointer) bool {
	n, negative, ok := d.whole()
	if !ok {
		return d.null()
	}
	v := int64(n)
	if negative {
		v = -v
	}
	if n > math.MaxInt64 && !(negative && n == 1<<63) || int64(T(v)) != v {
		return false
	}
	*(*T)(p) = T(v)
	return true
}

func decodeUint[T uint8 | uint16 | uint32 | uint64](d *decoder, p unsafe.Pointer) bool {
	n, negative, ok := d.whole()
	if !ok {
		return d.null()
	}
	if negative || uint64(T(n)) != n {
		return false
	}
	*(*T)(p) = T(n)
	return true
}

func (d *decoder) float(bits int) (f float64, ok bool) {
	token, whole, ok := d.number()
	if !ok {
		return 0, false
	}
	// Up to 15 digits every integer is a float64.
	if whole && bits == 64 && len(token) <= 15 && token[0] != '-' {
		n := uint64(0)
		for _, c := range token {
			n = n*10 + uint64(c-'0')
		}
		return float64(n), true
	}
	f, err := strconv.ParseFloat(unsafe.String(&token[0], len(token)), bits)
	return f, err == nil
}

func decodeFloat[T float32 | float64](d *decoder, p unsafe.Pointer) bool {
	f, ok := d.float(int(unsafe.Sizeof(T(0))) * 8)
	if !ok {
		return d.null()
	}
	*(*T)(p) = T(f)
	return true
}

func (b *builder) decodePointer(t reflect.Type) func(*decoder, unsafe.Pointer) bool {
	elem := b.plan(t.Elem())
	return func(d *decoder, p unsafe.Pointer) bool {
		if d.null() {
			*(*unsafe.Pointer)(p) = nil
			return true
		}
		q := reflect.New(elem.typ).UnsafePointer()
		*(*unsafe.Pointer)(p) = q
		ok := d.deeper() && elem.decode(d, q)
		d.depth--
		return ok
	}
}

// decodeAny makes what encoding/json makes of a value of any kind.
func decodeAny(d *decoder, p unsafe.Pointer) bool {
	v, ok := d.any()
	*(*any)(p) = v
	return ok
}

func (d *decoder) any() (v any, ok bool) {
	switch d.peek() {
	case '"':
		s, ok := d.text()
		return string(s), ok
	case '{':
		return d.object()
	case '[':
		d.i++
		if !d.deeper() {
			return nil, false
		}
		out := []any{}
		if !d.next(']') {
			for {
				e, ok := d.any()
				if !ok {
					return nil, false
				}
				out = append(out, e)
				more, ok := d.another(']')
				if !ok {
					return nil, false
				}
				if !more {
					break
				}
			}
		}
		d.depth--
		return out, true
	case 't':
		return true, d.word("true")
	case 'f':
		return false, d.word("false")
	case 'n':
		return nil, d.word("null")
	}
	f, ok := d.float(64)
	return f, ok
}

func (d *decoder) object() (v any, ok bool) {
	d.i++
	if !d.deeper() {
		return nil, false
	}
	out := map[string]any{}
	if !d.next('}') {
		for {
			d.space()
			k, ok := d.text()
			if !ok {
				return nil, false
			}
			key := string(k)
			if !d.next(':') {
				return nil, false
			}
			e, ok := d.any()
			if !ok {
				return nil, false
			}
			out[key] = e
			more, ok := d.another('}')
			if !ok {
				return nil, false
			}
			if !more {
				break
			}
		}
	}
	d.depth--
	return out, true
}

// members are a struct's fields by name.
type members struct {
	fields  []field
	exact   map[string]int
	lower   map[string]bool // in small letters
	longest int
}

func (b *builder) decodeStruct(t reflect.Type) func(*decoder, unsafe.Pointer) bool {
	fields, ok := b.fields(t)
	if !ok || len(fields) > 64 {
		return nil
	}
	m := &members{fields: fields, exact: map[string]int{}, lower: map[string]bool{}}
	for i := range fields {
		name := fields[i].name
		for _, c := range []byte(name) {
			if c >= utf8.RuneSelf {
				return nil // letters whose case folds in other ways
			}
		}
		m.exact[name] = i
		m.lower[string(lowered(nil, []byte(name)))] = true
		m.longest = max(m.longest, len(name))
	}
	return func(d *decoder, p unsafe.Pointer) bool { return d.members(m, p) }
}

// lowered appends b with small letters.
func lowered(dst, b []byte) []byte {
	for _, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst
}

// member finds the field of a key, -1 if it has none. ok is false if one has that
// name in other letters. next is the field that is expected.
func (m *members) member(key []byte, next int) (at int, ok bool) {
	if next < len(m.fields) && m.fields[next].name == string(key) {
		return next, true
	}
	if i, found := m.exact[string(key)]; found {
		return i, true
	}
	// Folding makes k of the Kelvin sign, which is three bytes, and s of another
	// that is two; else names have as many bytes as their keys.
	if len(key) > 3*m.longest {
		return -1, true
	}
	if !isASCII(key) {
		return -1, false
	}
	var buf [64]byte
	return -1, len(key) > m.longest || !m.lower[string(lowered(buf[:0], key))]
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// members reads an object into a struct.
func (d *decoder) members(m *members, p unsafe.Pointer) bool {
	if d.i >= len(d.b) || d.b[d.i] != '{' {
		return d.null()
	}
	d.i++
	if !d.deeper() {
		return false
	}
	if d.next('}') {
		d.depth--
		return true
	}
	seen, expected := uint64(0), 0
	for {
		d.space()
		key, ok := d.text()
		if !ok {
			return false
		}
		at, ok := m.member(key, expected)
		if !ok || !d.next(':') {
			return false
		}
		if at < 0 {
			if !d.skip() {
				return false
			}
		} else {
			if seen&(1<<at) != 0 {
				return false // the second may complete the first
			}
			seen |= 1 << at
			expected = at + 1
			d.space()
			f := &m.fields[at]
			if !f.plan.decode(d, unsafe.Add(p, f.offset)) {
				return false
			}
		}
		if more, ok := d.another('}'); !more {
			d.depth--
			return ok
		}
	}
}

func (b *builder) decodeSlice(t reflect.Type) func(*decoder, unsafe.Pointer) bool {
	if t.Elem().Kind() == reflect.Uint8 {
		if t.Elem() != reflect.TypeFor[byte]() {
			return nil
		}
		return decodeBytes
	}
	elem, size := b.plan(t.Elem()), t.Elem().Size()
	return func(d *decoder, p unsafe.Pointer) bool {
		if d.null() {
			return true
		}
		if !d.next('[') || !d.deeper() {
			return false
		}
		v := reflect.NewAt(t, p).Elem()
		s := (*slice)(p)
		if d.next(']') {
			v.Set(reflect.MakeSlice(t, 0, 0))
			d.depth--
			return true
		}
		for n := 0; ; n++ {
			if n >= s.cap {
				v.Grow(max(1, min(4, 1024/int(max(size, 1)))))
			}
			s.len = n + 1
			d.space()
			if !elem.decode(d, unsafe.Add(s.data, uintptr(n)*size)) {
				return false
			}
			if more, ok := d.another(']'); !more {
				d.depth--
				return ok
			}
		}
	}
}

func decodeBytes(d *decoder, p unsafe.Pointer) bool {
	s, ok := d.text()
	if !ok {
		return d.null()
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Decode(out, s)
	*(*[]byte)(p) = out[:n]
	return err == nil
}

func (b *builder) decodeArray(t reflect.Type) func(*decoder, unsafe.Pointer) bool {
	elem, size, n := b.plan(t.Elem()), t.Elem().Size(), t.Len()
	return func(d *decoder, p unsafe.Pointer) bool {
		if d.null() {
			return true
		}
		if !d.next('[') || !d.deeper() {
			return false
		}
		if d.next(']') {
			d.depth--
			return true
		}
		for i := 0; ; i++ {
			d.space()
			if i < n {
				if !elem.decode(d, unsafe.Add(p, uintptr(i)*size)) {
					return false
				}
			} else if !d.skip() {
				return false
			}
			if more, ok := d.another(']'); !more {
				d.depth--
				return ok
			}
		}
	}
}

func (b *builder) decodeMap(t reflect.Type) func(*decoder, unsafe.Pointer) bool {
	key := t.Key()
	if key.Kind() != reflect.String || reflect.PointerTo(key).Implements(textUnmarshalerType) {
		return nil
	}
	elem := b.plan(t.Elem())
	return func(d *decoder, p unsafe.Pointer) bool {
		if d.null() {
			return true
		}
		if !d.next('{') || !d.deeper() {
			return false
		}
		m := reflect.MakeMap(t)
		reflect.NewAt(t, p).Elem().Set(m)
		if d.next('}') {
			d.depth--
			return true
		}
		for {
			d.space()
			k, ok := d.text()
			if !ok {
				return false
			}
			name := reflect.ValueOf(string(k)).Convert(key)
			if !d.next(':') {
				return false
			}
			d.space()
			v := reflect.New(t.Elem())
			if !elem.decode(d, v.UnsafePointer()) {
				return false
			}
			m.SetMapIndex(name, v.Elem())
			if more, ok := d.another('}'); !more {
				d.depth--
				return ok
			}
		}
	}
}
