// Package jsonplan encodes and decodes Go values as encoding/json does, only
// faster: it works out once for a type what is to be done. What it does is
// encoding/json's, to the byte, and where it meets anything that it has no plan
// for, or an error, it says so and its caller turns to encoding/json.
//
// Known plans are those for structs, embedded ones too, slices, arrays, maps with
// string keys, pointers, any, all numbers, strings, booleans, []byte, time.Time
// and types that encode themselves.
package jsonplan

import (
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unsafe"
)

// maxDepth bounds nesting, and what values that point to themselves can do.
const maxDepth = 500

// plan says how values of a type are encoded and decoded. A function returns
// false if encoding/json must do it.
type plan struct {
	typ    reflect.Type
	encode func(e *encoder, p unsafe.Pointer) bool
	decode func(d *decoder, p unsafe.Pointer) bool
	inWord bool // an interface holds the value itself, not a pointer to it
	// Whether all that the type can hold is known; else it is not tried.
	encodes, decodes bool
}

func unknownEncode(*encoder, unsafe.Pointer) bool { return false }
func unknownDecode(*decoder, unsafe.Pointer) bool { return false }

// plans has those of all types seen: programs have few.
var plans sync.Map // reflect.Type to *plan

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	b := builder{made: map[reflect.Type]*plan{}, encodes: true, decodes: true}
	p := b.plan(t)
	// Plans within it are known to be whole only with it.
	p.encodes, p.decodes = b.encodes, b.decodes
	got, _ := plans.LoadOrStore(t, p)
	return got.(*plan)
}

// builder makes the plan of a type and of those within it.
type builder struct {
	made             map[reflect.Type]*plan
	encodes, decodes bool
}

var (
	marshalerType       = reflect.TypeFor[json.Marshaler]()
	textMarshalerType   = reflect.TypeFor[encoding.TextMarshaler]()
	unmarshalerType     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	timeType            = reflect.TypeFor[time.Time]()
	numberType          = reflect.TypeFor[json.Number]()
)

func (b *builder) plan(t reflect.Type) *plan {
	if p := b.made[t]; p != nil {
		return p
	}
	p := &plan{typ: t, inWord: inWord(t)}
	b.made[t] = p
	p.encode, p.decode = b.encoder(t), b.decoder(t)
	if p.encode == nil {
		p.encode, b.encodes = unknownEncode, false
	}
	if p.decode == nil {
		p.decode, b.decodes = unknownDecode, false
	}
	return p
}

// inWord reports whether an interface holds values of a type in its own word.
func inWord(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return true
	case reflect.Struct:
		return t.NumField() == 1 && inWord(t.Field(0).Type)
	case reflect.Array:
		return t.Len() == 1 && inWord(t.Elem())
	}
	return false
}

// field is a member of a struct.
type field struct {
	name      string
	key       string // encoded, with the colon
	offset    uintptr
	plan      *plan
	omitEmpty func(unsafe.Pointer) bool
	omitZero  func(unsafe.Pointer) bool
}

// fields returns a struct's members in order, false if there is more to it than
// is known here: names that hide each other, pointers to embedded structs,
// numbers in quotes.
func (b *builder) fields(t reflect.Type) ([]field, bool) {
	fs, ok := b.collect(nil, t, 0, 0)
	if !ok {
		return nil, false
	}
	names := make([]string, len(fs))
	for i := range fs {
		names[i] = fs[i].name
	}
	slices.Sort(names)
	return fs, len(slices.Compact(names)) == len(fs)
}

func (b *builder) collect(fs []field, t reflect.Type, base uintptr, depth int) ([]field, bool) {
	if depth > 8 {
		return nil, false
	}
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" {
			continue
		}
		if !validName(name) {
			name = ""
		}
		embeds := sf.Anonymous && name == ""
		if embeds && sf.Type.Kind() == reflect.Struct {
			var ok bool
			if fs, ok = b.collect(fs, sf.Type, base+sf.Offset, depth+1); !ok {
				return nil, false
			}
			continue
		}
		pointed := sf.Type.Kind() == reflect.Pointer && sf.Type.Elem().Kind() == reflect.Struct
		if embeds && pointed || sf.Anonymous && !sf.IsExported() && (pointed || sf.Type.Kind() == reflect.Struct) {
			return nil, false
		}
		if !sf.IsExported() {
			continue
		}
		f := field{name: cmp.Or(name, sf.Name), offset: base + sf.Offset, plan: b.plan(sf.Type)}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "string":
				return nil, false
			case "omitempty":
				f.omitEmpty = emptyFunc(sf.Type)
			case "omitzero":
				var ok bool
				if f.omitZero, ok = zeroFunc(sf.Type); !ok {
					return nil, false
				}
			}
		}
		f.key = string(appendString(nil, f.name)) + ":"
		fs = append(fs, f)
	}
	return fs, true
}

// validName reports whether encoding/json takes a name from a tag.
func validName(s string) bool {
	for _, c := range s {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return s != ""
}

// emptyFunc says for a type whether a value is empty; nil if none ever is.
func emptyFunc(t reflect.Type) func(unsafe.Pointer) bool {
	switch t.Kind() {
	case reflect.Struct:
		return nil
	case reflect.Array:
		if t.Len() > 0 {
			return nil
		}
		return func(unsafe.Pointer) bool { return true }
	case reflect.String:
		return func(p unsafe.Pointer) bool { return *(*string)(p) == "" }
	case reflect.Slice:
		return func(p unsafe.Pointer) bool { return len(*(*[]struct{})(p)) == 0 }
	case reflect.Map:
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().Len() == 0 }
	}
	return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }
}

// zeroFunc says for a type whether a value is zero.
func zeroFunc(t reflect.Type) (func(unsafe.Pointer) bool, bool) {
	type zeroer interface{ IsZero() bool }
	is := reflect.TypeFor[zeroer]()
	switch {
	case t.Kind() == reflect.Interface:
		return nil, false
	case t.Kind() == reflect.Pointer && t.Implements(is):
		return func(p unsafe.Pointer) bool {
			v := reflect.NewAt(t, p).Elem()
			return v.IsNil() || v.Interface().(zeroer).IsZero()
		}, true
	case t.Implements(is):
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Interface().(zeroer).IsZero() }, true
	case reflect.PointerTo(t).Implements(is):
		return nil, false
	}
	return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }, true
}
