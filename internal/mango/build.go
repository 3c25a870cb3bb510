package mango

import (
	"encoding/json"
	"slices"
)

// A Filter is a selector made in Go: conditions on fields, joined by [And], [Or],
// [Nor] and [Not]. The zero Filter matches everything. Filters are values; the
// functions that take them never change them. Encoding one as JSON gives the
// selector, and fails if an operator's argument cannot be encoded.
type Filter struct {
	op   string // empty: everything
	path string // of a leaf; empty: the element of an element operator
	arg  any
	kids []Filter
}

// A FieldName is what conditions are made on.
type FieldName struct{ path string }

// Field names a field by its path, dotted as in selectors: "address.zip", or
// "tags.0" for an array's first element.
func Field(path string) FieldName { return FieldName{path} }

// Names names a field by the names on the way to it, in which dots mean nothing.
func Names(names ...string) FieldName { return FieldName{joinPath(names)} }

// Element names the element itself in a Filter for Any, All or AnyKey.
func Element() FieldName { return FieldName{} }

func (f FieldName) is(op string, arg any) Filter { return Filter{op: op, path: f.path, arg: arg} }

// Eq matches documents whose field has the value, objects and arrays as a whole.
func (f FieldName) Eq(v any) Filter { return f.is("$eq", v) }

// Ne matches documents that have the field with another value.
func (f FieldName) Ne(v any) Filter { return f.is("$ne", v) }

// Lt matches values before v, in the order null, false, true, numbers, strings,
// arrays, objects.
func (f FieldName) Lt(v any) Filter { return f.is("$lt", v) }

// Lte matches values before v or equal to it.
func (f FieldName) Lte(v any) Filter { return f.is("$lte", v) }

// Gt matches values behind v.
func (f FieldName) Gt(v any) Filter { return f.is("$gt", v) }

// Gte matches values behind v or equal to it.
func (f FieldName) Gte(v any) Filter { return f.is("$gte", v) }

// Between matches values from low to high, both included.
func (f FieldName) Between(low, high any) Filter { return And(f.Gte(low), f.Lte(high)) }

// In matches values that equal one of these, and arrays with such an element.
func (f FieldName) In(values ...any) Filter { return f.is("$in", orNone(values)) }

// Nin matches values that equal none of these, and arrays without such an element.
func (f FieldName) Nin(values ...any) Filter { return f.is("$nin", orNone(values)) }

// HasAll matches arrays that have all of these elements.
func (f FieldName) HasAll(values ...any) Filter { return f.is("$all", orNone(values)) }

// Exists matches documents that have the field.
func (f FieldName) Exists() Filter { return f.is("$exists", true) }

// Missing matches documents that do not have the field.
func (f FieldName) Missing() Filter { return f.is("$exists", false) }

// Type matches values of a type: "null", "boolean", "number", "string", "array"
// or "object".
func (f FieldName) Type(name string) Filter { return f.is("$type", name) }

// Mod matches integers that leave the remainder when divided.
func (f FieldName) Mod(divisor, remainder int64) Filter {
	return f.is("$mod", []int64{divisor, remainder})
}

// Regex matches strings in which the pattern, in the syntax of package regexp,
// occurs.
func (f FieldName) Regex(pattern string) Filter { return f.is("$regex", pattern) }

// HasPrefix matches strings that begin with prefix.
func (f FieldName) HasPrefix(prefix string) Filter { return f.is("$beginsWith", prefix) }

// Len matches arrays of n elements.
func (f FieldName) Len(n int) Filter { return f.is("$size", n) }

// Any matches arrays of which at least one element matches.
func (f FieldName) Any(element Filter) Filter { return f.is("$elemMatch", element) }

// All matches arrays of at least one element, all of which match.
func (f FieldName) All(element Filter) Filter { return f.is("$allMatch", element) }

// AnyKey matches objects of which at least one name matches.
func (f FieldName) AnyKey(name Filter) Filter { return f.is("$keyMapMatch", name) }

func orNone(values []any) []any {
	if values == nil {
		return []any{} // null is no argument
	}
	return values
}

// nothing matches no document: none has an id out of no ids.
func nothing() Filter { return Field("_id").In() }

func (f Filter) everything() bool { return f.op == "" }

// And matches what all of the filters match; without any, everything.
func And(filters ...Filter) Filter {
	kids := slices.DeleteFunc(slices.Clone(filters), Filter.everything)
	switch len(kids) {
	case 0:
		return Filter{}
	case 1:
		return kids[0]
	}
	return Filter{op: "$and", kids: kids}
}

// Or matches what at least one of the filters matches; without any, nothing.
func Or(filters ...Filter) Filter {
	switch {
	case len(filters) == 0:
		return nothing()
	case slices.ContainsFunc(filters, Filter.everything):
		return Filter{}
	case len(filters) == 1:
		return filters[0]
	}
	return Filter{op: "$or", kids: slices.Clone(filters)}
}

// Nor matches what none of the filters matches; see [Not].
func Nor(filters ...Filter) Filter {
	negated := make([]Filter, len(filters))
	for i, f := range filters {
		negated[i] = Not(f)
	}
	return And(negated...)
}

// Not matches what the filter does not match, but only documents that have the
// fields asked for: a missing field never matches, except [FieldName.Missing].
func Not(f Filter) Filter {
	if f.everything() {
		return nothing()
	}
	return Filter{op: "$not", kids: []Filter{f}}
}

// MarshalJSON returns the selector.
func (f Filter) MarshalJSON() ([]byte, error) {
	switch f.op {
	case "":
		return []byte("{}"), nil
	case "$and", "$or":
		return json.Marshal(map[string][]Filter{f.op: f.kids})
	case "$not":
		return json.Marshal(map[string]Filter{f.op: f.kids[0]})
	}
	leaf := map[string]any{f.op: f.arg}
	if f.path == "" {
		return json.Marshal(leaf)
	}
	return json.Marshal(map[string]any{f.path: leaf})
}

// Compile compiles the filter.
func (f Filter) Compile(o *Options) (*Selector, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, &Error{Name: ErrBadArg, Reason: err.Error()}
	}
	return Compile(text, o)
}
