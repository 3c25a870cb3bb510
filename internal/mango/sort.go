package mango

import (
	"fmt"

	"github.com/osierdb/osier/internal/keys"
)

// A SortField is a path to sort by.
type SortField struct {
	Path       string // dotted, as in selectors
	Descending bool
}

// A Sort is an order of documents, or the fields of an index.
type Sort []SortField

// ParseSort reads a sort: a JSON array of paths and of objects with one member,
// a path and "asc" or "desc". Errors are of type [*Error].
//
// Directions may differ, which CouchDB refuses: see [Sort.Mixed].
func ParseSort(sort []byte) (Sort, error) {
	if !validText(sort) {
		return nil, &Error{Name: ErrBadRequest, Reason: "invalid UTF-8 JSON"}
	}
	return parseSort(string(sort), space(view(sort), 0))
}

func parseSort(text string, i int) (Sort, error) {
	if text[i] != '[' {
		return nil, &Error{Name: ErrInvalidSortJSON, Reason: "Sort must be an array of sort specs, not: " + brief(compact(text, i)), Offset: i}
	}
	s := Sort{}
	for k, at := range elements(text, i) {
		f, ok := parseSortField(newConstant(text, at))
		if ok {
			_, ok = splitPath(f.Path)
		}
		if !ok {
			return nil, &Error{Name: ErrInvalidSortField, Reason: "Invalid sort field: " + brief(compact(text, at)),
				Place: fmt.Sprintf("[%d]", k), Offset: at}
		}
		s = append(s, f)
	}
	return s, nil
}

func parseSortField(c constant) (f SortField, ok bool) {
	if c.kind == kindString {
		return SortField{Path: c.str}, true
	}
	if c.kind != kindObject || len(c.items) != 1 || c.items[0].kind != kindString {
		return f, false
	}
	f = SortField{Path: c.names[0], Descending: c.items[0].str == "desc"}
	return f, f.Descending || c.items[0].str == "asc"
}

// Mixed reports whether some fields ascend and others descend.
func (s Sort) Mixed() bool {
	for _, f := range s {
		if f.Descending != s[0].Descending {
			return true
		}
	}
	return false
}

// Order returns the total order that a sort stands for: by the keys of fields,
// then by id, and all of that the other way round if reverse. Documents that are
// equal by the sort thus come in order of their ids, descending if its first
// field does. What stands behind _id has no say; without fields the order is
// that of ids alone.
func (s Sort) Order() (fields Sort, reverse bool) {
	for _, f := range s {
		fields = append(fields, f)
		if f.Path == "_id" {
			break
		}
	}
	if len(fields) == 0 {
		return nil, false
	}
	if reverse = fields[0].Descending; reverse {
		fields = fields.Reversed()
	}
	if last := len(fields) - 1; fields[last] == (SortField{Path: "_id"}) {
		fields = fields[:last]
	}
	return fields, reverse
}

// Reversed returns s with all directions turned round.
func (s Sort) Reversed() Sort {
	r := make(Sort, len(s))
	for i, f := range s {
		r[i] = SortField{Path: f.Path, Descending: !f.Descending}
	}
	return r
}

// MarshalJSON returns s as CouchDB shows it: [{"path":"asc"}, …].
func (s Sort) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, f := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(append(b, '{'), f.Path)
		if f.Descending {
			b = append(b, `:"desc"}`...)
		} else {
			b = append(b, `:"asc"}`...)
		}
	}
	return append(b, ']'), nil
}

// missingKey stands in a key for a field that a document does not have: below
// every element of package keys, of which it is none.
const missingKey = 0x01

// A Keyer makes the keys of documents in the order of a Sort. It does not
// change; any number of goroutines may use it.
type Keyer struct {
	fields    []keyField
	scope     scope
	collation Collation
}

type keyField struct {
	SortField
	path []string
	slot int
	ids  bool
}

// NewKeyer returns the maker of keys in the order of s with strings in that of
// c; ids and revisions are always in order of their bytes. Errors are of type
// [*Error].
func NewKeyer(s Sort, c Collation) (*Keyer, error) {
	k := &Keyer{collation: c}
	all := &condition{op: opAnd}
	for _, f := range s {
		path, ok := splitPath(f.Path)
		if !ok {
			return nil, &Error{Name: ErrInvalidSortField, Reason: "Invalid sort field: " + string(appendQuoted(nil, f.Path))}
		}
		k.fields = append(k.fields, keyField{SortField: f, path: path, ids: isIdent(path)})
		all.kids = append(all.kids, &condition{op: opExists, path: path})
	}
	k.scope = newScope(all)
	for i := range k.fields {
		k.fields[i].slot = all.kids[i].slot
	}
	return k, nil
}

// Needs reports whether the keys' fields are in the member of that name.
func (k *Keyer) Needs(member string) bool { return k.scope.needs(member) }

// isIdent reports whether a path is one of those that compare by bytes.
func isIdent(path []string) bool {
	return len(path) == 1 && (path[0] == "_id" || path[0] == "_rev")
}

// Sort returns the order of the keys.
func (k *Keyer) Sort() Sort {
	s := make(Sort, len(k.fields))
	for i, f := range k.fields {
		s[i] = f.SortField
	}
	return s
}

// AppendKey appends the document's key: the fields' values one after the other,
// each encoded by package keys with strings replaced by their collation keys,
// the bytes complemented if the field descends. Keys compare bytewise, none is
// the prefix of another, and the key of the first fields alone is a prefix.
//
// A missing field counts as less than null, and complete is false then: indexes
// leave such documents out. A value that cannot be a key, since it nests deeper
// than 64 or has an integer of more than 16,384 digits, and what is not JSON,
// give a [*DocumentError].
func (k *Keyer) AppendKey(dst []byte, d *Doc) (key []byte, complete bool, err error) {
	var few [fewSlots]value
	slots := k.scope.values(&few)
	if err := k.scope.load(d, slots); err != nil {
		return dst, false, err
	}
	complete = true
	start := len(dst)
	for i := range k.fields {
		f := &k.fields[i]
		from, end := len(dst), 0
		switch v := slots[f.slot]; v.state {
		case absent, blocked:
			dst, complete = append(dst, missingKey), false
		case isID:
			if len(d.Key) > 0 {
				dst = append(dst, d.Key...)
			} else {
				dst = keys.AppendString(dst, d.ID)
			}
		case isRev:
			dst = keys.AppendString(dst, d.Rev)
		case inMeta:
			dst, end = k.collation.appendKey(dst, view(d.Meta), int(v.from), 0)
		case inBody:
			dst, end = k.collation.appendKey(dst, view(d.Body), int(v.from), 0)
		}
		if end < 0 {
			return dst[:start], false, &DocumentError{Offset: int(slots[f.slot].from), Reason: "the value of " + f.Path + " cannot be a key"}
		}
		if f.Descending {
			complement(dst[from:])
		}
	}
	return dst, complete, nil
}

func complement(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}
