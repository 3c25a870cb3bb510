package mango

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Options tell how a selector is compiled. Nil is the same as the zero value.
type Options struct {
	Collation Collation // the order of strings; default Unicode

	MaxBytes      int // of the JSON text; default 1 MiB
	MaxDepth      int // of its nesting, values included; default 50, at most 1,000
	MaxConditions int // default 1,000

	// AcceptText takes $text for a condition that is always true, like a CouchDB
	// server without a search service. Otherwise it is an invalid operator.
	AcceptText bool
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.MaxBytes <= 0 {
		d.MaxBytes = 1 << 20
	}
	if d.MaxDepth <= 0 {
		d.MaxDepth = 50
	}
	d.MaxDepth = min(d.MaxDepth, 1000)
	if d.MaxConditions <= 0 {
		d.MaxConditions = 1000
	}
	return d
}

// A Selector is a compiled selector. It does not change; any number of
// goroutines may match with it.
type Selector struct {
	root      *condition // nil: everything matches
	never     bool       // nothing does: a lone junction without arguments
	scope     scope
	collation Collation
}

// An operator is what a condition asks of a value, or how it joins others.
type operator uint8

const (
	opAnd operator = iota
	opOr
	opText
	opEq
	opNe
	opLt
	opLte
	opGt
	opGte
	opIn
	opNin
	opAll
	opExists
	opType
	opMod
	opRegex
	opBeginsWith
	opSize
	opElemMatch
	opAllMatch
	opKeyMapMatch
)

var operatorNames = [...]string{
	opAnd: "$and", opOr: "$or", opText: "$text", opEq: "$eq", opNe: "$ne", opLt: "$lt",
	opLte: "$lte", opGt: "$gt", opGte: "$gte", opIn: "$in", opNin: "$nin", opAll: "$all",
	opExists: "$exists", opType: "$type", opMod: "$mod", opRegex: "$regex",
	opBeginsWith: "$beginsWith", opSize: "$size", opElemMatch: "$elemMatch",
	opAllMatch: "$allMatch", opKeyMapMatch: "$keyMapMatch",
}

func operatorOf(name string) (operator, bool) {
	i := slices.Index(operatorNames[:], name)
	return operator(max(i, 0)), i >= 0
}

// negations are the operators that ask for the contrary.
var negations = map[operator]operator{
	opEq: opNe, opNe: opEq, opLt: opGte, opGte: opLt, opGt: opLte, opLte: opGt, opIn: opNin, opNin: opIn,
}

// A condition is a node of a normalised selector: negations have been moved to
// the leaves and fields' names are whole paths. A leaf is never true of a
// missing value, negated or not, except $exists: false.
type condition struct {
	op   operator
	not  bool         // a leaf whose operator has no contrary is negated
	kids []*condition // opAnd, opOr
	path []string     // of a leaf; empty: the value itself
	slot int          // of the path, in the scope
	text Collation    // the order of strings that the condition goes by

	arg     constant   // what String shows; comparisons compare with it
	set     []constant // opIn, opNin, opAll: sorted
	whole   *constant  // opAll: the array that the value itself may equal
	kind    kind       // opType
	divisor int64      // opMod
	number  int64      // opMod: remainder; opSize: length
	exists  bool       // opExists
	regex   *regexp.Regexp
	inner   *scope // opElemMatch, opAllMatch, opKeyMapMatch
}

func (c *condition) leaf() bool { return c.op > opText }

// leaves calls f with every leaf outside of element operators.
func (c *condition) leaves(f func(*condition)) {
	if c == nil {
		return
	}
	if c.leaf() {
		f(c)
	}
	for _, kid := range c.kids {
		kid.leaves(f)
	}
}

// Compile returns the selector of a JSON text. Errors are of type [*Error].
//
// It costs at most the text's size times its nesting, and the sorting of $in's,
// $nin's and $all's arguments; the Match of what it returns at most the
// document's size times the number of conditions.
func Compile(selector []byte, o *Options) (*Selector, error) {
	if !validText(selector) {
		return nil, &Error{Name: ErrBadRequest, Reason: "invalid UTF-8 JSON"}
	}
	return compile(string(selector), o.withDefaults())
}

// compile compiles valid JSON text.
func compile(text string, o Options) (*Selector, error) {
	start := space(text, 0)
	switch {
	case len(text) > o.MaxBytes:
		return nil, &Error{Name: ErrTooLarge, Reason: fmt.Sprintf("selector of %d bytes, at most %d are allowed", len(text), o.MaxBytes)}
	case kindOf(text[start]) != kindObject:
		return nil, &Error{Name: ErrInvalidSelectorJSON, Reason: "Selector must be a JSON object, not: " + brief(compact(text, start))}
	}
	if d := depth(text); d > o.MaxDepth {
		return nil, &Error{Name: ErrTooLarge, Reason: fmt.Sprintf("selector nests %d deep, at most %d are allowed", d, o.MaxDepth)}
	}
	s := &Selector{collation: o.Collation}
	if list := members(text, start); len(list) > 0 {
		p := parser{text: text, options: o}
		root, err := p.conditions(list, place{offset: start}, nil, false)
		if err != nil {
			return nil, err
		}
		s.root = root
		s.never = !root.leaf() && root.op != opText && len(root.kids) == 0
	}
	s.scope = newScope(s.root)
	return s, nil
}

// Never reports whether the selector, normalised, is a lone $and or $or of
// nothing, which CouchDB lets match nothing, and answers without a bookmark.
// (Among other conditions, there as here, such a junction is true.)
func (s *Selector) Never() bool { return s.never }

// Everything reports whether the selector is {}.
func (s *Selector) Everything() bool { return s.root == nil }

// Needs reports whether the selector looks into the document's member of that
// name: of _id, _rev and what Doc.Meta holds a caller can spare the making.
func (s *Selector) Needs(member string) bool { return s.scope.needs(member) }

// Requiring returns the selector of those matches of s that have all of the
// fields, which are dotted paths. Errors are of type [*Error].
func (s *Selector) Requiring(fields ...string) (*Selector, error) {
	all := &condition{op: opAnd}
	if s.root != nil {
		all.kids = append(all.kids, s.root.clone())
	}
	for _, f := range fields {
		path, ok := splitPath(f)
		if !ok {
			return nil, &Error{Name: ErrInvalidSortField, Reason: "Invalid sort field: " + string(appendQuoted(nil, f))}
		}
		if s.root.requires(path) || isIdent(path) {
			continue
		}
		all.kids = append(all.kids, &condition{op: opExists, exists: true, path: path, arg: constant{kind: kindBool, json: "true", bool: true}})
	}
	switch {
	case s.never || len(all.kids) == 0:
		return s, nil
	case len(all.kids) == 1:
		all = all.kids[0]
	}
	r := &Selector{root: all, collation: s.collation}
	r.scope = newScope(r.root)
	return r, nil
}

// Fields returns the paths that the selector looks at, each once, in order of
// appearance, with dots and backslashes in names escaped. Fields within
// $elemMatch, $allMatch and $keyMapMatch are not named, only what these look at.
func (s *Selector) Fields() []string {
	var list []string
	seen := map[string]bool{}
	s.root.leaves(func(c *condition) {
		if f := JoinPath(c.path); !seen[f] {
			seen[f] = true
			list = append(list, f)
		}
	})
	return list
}

// String returns the selector as it is understood, in JSON: implicit operators
// named, negations moved inwards, nested names joined, as CouchDB's _explain
// shows it. Compiling it gives the same selector again.
func (s *Selector) String() string {
	if s.root == nil {
		return "{}"
	}
	return string(s.root.appendJSON(nil))
}

// MarshalJSON returns what String does.
func (s *Selector) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }

func (c *condition) appendJSON(dst []byte) []byte {
	if !c.leaf() {
		dst = append(append(dst, `{"`...), operatorNames[c.op]...)
		if c.op == opText {
			return append(append(append(dst, `":`...), c.arg.json...), '}')
		}
		dst = append(dst, `":[`...)
		for i, kid := range c.kids {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = kid.appendJSON(dst)
		}
		return append(dst, `]}`...)
	}
	closing := "}"
	dst = append(dst, '{')
	if len(c.path) > 0 {
		dst = append(appendQuoted(dst, JoinPath(c.path)), `:{`...)
		closing += "}"
	}
	if c.not {
		dst = append(dst, `"$not":{`...)
		closing += "}"
	}
	dst = append(append(append(dst, '"'), operatorNames[c.op]...), `":`...)
	switch {
	case c.inner == nil:
		dst = append(dst, c.arg.json...)
	case c.inner.root == nil:
		dst = append(dst, "{}"...)
	default:
		dst = c.inner.root.appendJSON(dst)
	}
	return append(dst, closing...)
}

// brief cuts the text of a value for a message.
func brief(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
