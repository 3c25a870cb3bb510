package osier

import (
	"encoding/json"
	"slices"

	"github.com/osierdb/osier/internal/mango"
)

// Selector says which documents are meant: a [Filter] made in Go, a [Mango]
// selector in JSON, or a [Swap] query in JSON.
type Selector interface {
	// selector returns the JSON text, and whether it is a SwapQuery.
	selector() (text []byte, swap bool, err error)
}

// Mango is a selector in JSON, in the language of CouchDB's _find:
//
//	{"city": "Oslo", "age": {"$gte": 18}, "$or": [{"tags": {"$in": ["x"]}}, {"a.b": 1}]}
//
// The empty text means {}, which matches everything.
type Mango string

func (m Mango) selector() ([]byte, bool, error) { return []byte(m), false, nil }

// Swap is a SwapQuery in JSON: operators first, fields below them.
//
//	{"=": {"city": "Oslo", "address": {"zip": "0150"}}, ">=": {"age": 18}}
//
// "=" matches partially: each leaf has to be equal, other members may be there.
// "==" compares the value as a whole.
type Swap string

func (s Swap) selector() ([]byte, bool, error) { return []byte(s), true, nil }

// Filter is a selector made in Go: conditions on fields, begun with [Where] and
// joined by [Filter.And], [Filter.Or], [AllOf], [AnyOf], [NoneOf] and [Not]. The
// zero Filter matches everything. Filters are values; what takes them never
// changes them. Encoding one as JSON gives the selector, and fails if an
// operator's argument cannot be encoded.
type Filter struct {
	op   string // empty: everything
	path string // of a leaf; empty: the element of an element operator
	arg  any
	kids []Filter
}

func (f Filter) selector() ([]byte, bool, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, false, &Error{Kind: KindInvalid, Op: "make selector", Err: err}
	}
	return text, false, nil
}

// Field is what conditions are made on.
type Field struct{ path string }

// Where names a field by its path, names joined by dots: "address.zip", or
// "tags.0" for an array's first element. A backslash takes the meaning from a dot.
func Where(path string) Field { return Field{path} }

// WhereNames names a field by the names on the way to it, in which dots mean
// nothing.
func WhereNames(names ...string) Field { return Field{mango.JoinPath(names)} }

// Element names the element itself in a Filter for Any, All or AnyKey.
func Element() Field { return Field{} }

func (f Field) is(op string, arg any) Filter { return Filter{op: op, path: f.path, arg: arg} }

// Eq matches documents whose field has the value, objects and arrays as a whole.
func (f Field) Eq(v any) Filter { return f.is("$eq", v) }

// Ne matches documents that have the field with another value.
func (f Field) Ne(v any) Filter { return f.is("$ne", v) }

// Lt matches values before v, in the order null, false, true, numbers, strings,
// arrays, objects.
func (f Field) Lt(v any) Filter { return f.is("$lt", v) }

// Lte matches values before v or equal to it.
func (f Field) Lte(v any) Filter { return f.is("$lte", v) }

// Gt matches values behind v.
func (f Field) Gt(v any) Filter { return f.is("$gt", v) }

// Gte matches values behind v or equal to it.
func (f Field) Gte(v any) Filter { return f.is("$gte", v) }

// Between matches values from low to high, both included.
func (f Field) Between(low, high any) Filter { return AllOf(f.Gte(low), f.Lte(high)) }

// In matches values that equal one of these, and arrays with such an element.
func (f Field) In(values ...any) Filter { return f.is("$in", orNone(values)) }

// Nin matches values that equal none of these, and arrays without such an element.
func (f Field) Nin(values ...any) Filter { return f.is("$nin", orNone(values)) }

// HasAll matches arrays that have all of these elements.
func (f Field) HasAll(values ...any) Filter { return f.is("$all", orNone(values)) }

// Exists matches documents that have the field.
func (f Field) Exists() Filter { return f.is("$exists", true) }

// Missing matches documents that do not have the field.
func (f Field) Missing() Filter { return f.is("$exists", false) }

// Type matches values of a type: "null", "boolean", "number", "string", "array"
// or "object".
func (f Field) Type(name string) Filter { return f.is("$type", name) }

// Mod matches integers that leave the remainder when divided.
func (f Field) Mod(divisor, remainder int64) Filter {
	return f.is("$mod", []int64{divisor, remainder})
}

// Regex matches strings in which the pattern, in the syntax of package regexp,
// occurs.
func (f Field) Regex(pattern string) Filter { return f.is("$regex", pattern) }

// HasPrefix matches strings that begin with prefix.
func (f Field) HasPrefix(prefix string) Filter { return f.is("$beginsWith", prefix) }

// Len matches arrays of n elements.
func (f Field) Len(n int) Filter { return f.is("$size", n) }

// Any matches arrays of which at least one element matches.
func (f Field) Any(element Filter) Filter { return f.is("$elemMatch", element) }

// All matches arrays of at least one element, all of which match.
func (f Field) All(element Filter) Filter { return f.is("$allMatch", element) }

// AnyKey matches objects of which at least one name matches.
func (f Field) AnyKey(name Filter) Filter { return f.is("$keyMapMatch", name) }

func orNone(values []any) []any {
	if values == nil {
		return []any{} // null is no argument
	}
	return values
}

// nothing matches no document: none has an id out of no ids.
func nothing() Filter { return Where("_id").In() }

func (f Filter) everything() bool { return f.op == "" }

// And matches what f and all of the others match.
func (f Filter) And(others ...Filter) Filter {
	return AllOf(slices.Insert(slices.Clone(others), 0, f)...)
}

// Or matches what f or one of the others matches.
func (f Filter) Or(others ...Filter) Filter {
	return AnyOf(slices.Insert(slices.Clone(others), 0, f)...)
}

// AllOf matches what all of the filters match; without any, everything.
func AllOf(filters ...Filter) Filter {
	kids := slices.DeleteFunc(slices.Clone(filters), Filter.everything)
	switch len(kids) {
	case 0:
		return Filter{}
	case 1:
		return kids[0]
	}
	return Filter{op: "$and", kids: kids}
}

// AnyOf matches what at least one of the filters matches; without any, nothing.
func AnyOf(filters ...Filter) Filter {
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

// NoneOf matches what none of the filters matches; see [Not].
func NoneOf(filters ...Filter) Filter {
	negated := make([]Filter, len(filters))
	for i, f := range filters {
		negated[i] = Not(f)
	}
	return AllOf(negated...)
}

// Not matches what the filter does not match, but only documents that have the
// fields asked for: a missing field never matches, except [Field.Missing].
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
