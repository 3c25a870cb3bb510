package pocket

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// flatStruct is how a registered struct becomes JSON without encoding/json, which
// takes several times as long as all else that a Save does. Only structs of
// plain fields have one; what it appends is byte for byte what encoding/json
// makes, and where that is not certain, encoding/json is asked.
type flatStruct struct {
	fields []flatField
}

type flatField struct {
	index int
	name  string // `"Name":`, with the brace or comma before it
	kind  reflect.Kind
}

// flatOf returns nil for types that are left to encoding/json.
func flatOf(t reflect.Type) *flatStruct {
	if t.Kind() != reflect.Struct || marshalsItself(t) {
		return nil
	}
	fs := &flatStruct{}
	seen := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		switch {
		case f.Anonymous || strings.Contains(tag, ","):
			return nil
		case !f.IsExported() || tag == "-":
			continue
		}
		name := f.Name
		if tag != "" {
			name = tag
		}
		if !isWord(name) || seen[name] || !hasPlainKind(f.Type) || marshalsItself(f.Type) {
			return nil
		}
		seen[name] = true
		mark := ","
		if len(fs.fields) == 0 {
			mark = "{"
		}
		fs.fields = append(fs.fields, flatField{i, mark + `"` + name + `":`, f.Type.Kind()})
	}
	if len(fs.fields) == 0 {
		return nil
	}
	return fs
}

func hasPlainKind(t reflect.Type) bool {
	return isPlainKind(t) && t.Kind() != reflect.Interface && t.Kind() != reflect.Float32 &&
		t != reflect.TypeFor[json.Number]()
}

// marshalsItself reports whether t or *t decides on its own JSON form.
func marshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	for _, m := range []string{"MarshalJSON", "MarshalText"} {
		if _, ok := p.MethodByName(m); ok { // it has those of t too
			return true
		}
	}
	return false
}

// isWord reports whether a name is of letters, digits and underscores only.
func isWord(name string) bool {
	for i := range len(name) {
		c := name[i] | 0x20
		if !isDigit(name[i]) && name[i] != '_' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return name != ""
}

// append appends v, a struct of the type that fs was made of. It returns false when
// encoding/json has to do it; b may then have been appended to.
func (fs *flatStruct) append(b []byte, v reflect.Value) ([]byte, bool) {
	for i := range fs.fields {
		f := &fs.fields[i]
		b = append(b, f.name...)
		x := v.Field(f.index)
		switch f.kind {
		case reflect.String:
			s := x.String()
			if !isPlain(s) {
				return b, false
			}
			b = append(b, '"')
			b = append(b, s...)
			b = append(b, '"')
		case reflect.Bool:
			b = strconv.AppendBool(b, x.Bool())
		case reflect.Float64:
			n := x.Float()
			// Others are written with an exponent, or cannot be.
			if a := math.Abs(n); n != 0 && (a < 1e-6 || a >= 1e21) || n != n {
				return b, false
			}
			b = strconv.AppendFloat(b, n, 'f', -1, 64)
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			b = strconv.AppendInt(b, x.Int(), 10)
		default:
			b = strconv.AppendUint(b, x.Uint(), 10)
		}
	}
	return append(b, '}'), true
}
