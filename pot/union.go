package pot

import (
	"reflect"
	"unicode/utf8"
)

// Unions tells which types the values of an interface type may have, and by
// which names they go: what serde calls an enum. Registering is for the start
// of a program; after that any number of goroutines may use it.
type Unions struct {
	m map[reflect.Type]*union
}

// union is one interface type with its variants.
type union struct {
	byType map[reflect.Type]*member
	byName map[string]*member
}

type member struct {
	name string
	typ  reflect.Type
	unit bool // without a value
}

// NewUnions returns an empty set.
func NewUnions() *Unions { return &Unions{m: make(map[reflect.Type]*union)} }

// RegisterUnion makes the interface type I a union. The map gives the name of
// each variant and a value of its type, of which only the type counts. A struct
// without fields, or a pointer to one, is a variant without a value. It fails
// with ErrUnsupported if I is no interface or a type occurs twice.
func RegisterUnion[I any](u *Unions, variants map[string]I) error {
	t := reflect.TypeFor[I]()
	if t.Kind() != reflect.Interface {
		return encodeError(ErrUnsupported, "%s is not an interface", t)
	}
	un := &union{byType: make(map[reflect.Type]*member), byName: make(map[string]*member)}
	for name, v := range variants {
		vt := reflect.TypeOf(v)
		switch {
		case vt == nil:
			return encodeError(ErrUnsupported, "variant %q of %s is nil", name, t)
		case !utf8.ValidString(name):
			return encodeError(ErrUTF8, "variant %q of %s", name, t)
		case un.byType[vt] != nil:
			return encodeError(ErrUnsupported, "type %s is two variants of %s", vt, t)
		}
		base := vt
		if base.Kind() == reflect.Pointer {
			base = base.Elem()
		}
		m := &member{name: name, typ: vt, unit: base.Kind() == reflect.Struct && base.NumField() == 0}
		un.byType[vt], un.byName[name] = m, m
	}
	u.m[t] = un
	return nil
}

// of returns the union of an interface type, or nil.
func (u *Unions) of(t reflect.Type) *union {
	if u == nil {
		return nil
	}
	return u.m[t]
}

// Variant is a variant of an enum that no Go type is known for.
type Variant struct {
	Name  string
	Value any  // nil for none, or if Unit is set
	Unit  bool // a variant without a value
}
