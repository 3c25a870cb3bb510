package mango

import (
	"bytes"
	"slices"
	"strings"

	"github.com/osierdb/osier/internal/keys"
)

// A Range is a run of keys: those from Low on that are below High. An empty Low
// or High leaves that end open.
type Range struct{ Low, High []byte }

// A Plan tells what an index is good for to a selector. The index holds the
// documents that have all its fields, at the keys of its [Keyer].
type Plan struct {
	// Ranges hold the keys of every document in the index that matches. They are
	// ascending and disjoint; there is none if nothing in the index can match.
	Ranges  []Range
	Bounded int // how many of the index's first fields the ranges bound
	Fixed   int // how many of the first fields have one value in each range

	// Exists tells of each field of the index whether every match has it. If not
	// all do, the index misses matches.
	Exists []bool

	// Residual is what is left to be tested of the documents in the ranges, nil if
	// nothing is. Covered counts the conditions that the ranges alone imply.
	Residual *Selector
	Covered  int
}

// Usable reports whether the index has all matches.
func (p *Plan) Usable() bool { return !slices.Contains(p.Exists, false) }

// maxRanges is how many ranges a plan has at most: beyond that the bounds of the
// next field are not multiplied in, or neighbours are joined.
const maxRanges = 256

// Ranges returns what the index of a Keyer is good for. The index may order
// strings otherwise than the selector does; strings then bound it by type alone.
func (s *Selector) Ranges(index *Keyer) *Plan {
	p := &Plan{Exists: make([]bool, len(index.fields))}
	for i, f := range index.fields {
		p.Exists[i] = s.never || f.ids || s.root.requires(f.path)
	}
	if s.never {
		return p
	}
	ranges := []Range{{}}
	fixed := true
	for i := range index.fields {
		f := &index.fields[i]
		set, _ := index.set(s.root, f, s.collation)
		if !fixed || set.full() || len(set)*len(ranges) > maxRanges {
			break
		}
		p.Bounded = i + 1
		if fixed = set.points(); fixed {
			p.Fixed = i + 1
		}
		ranges = multiply(ranges, set, f.Descending)
	}
	p.Ranges = ranges
	s.cover(p, index)
	return p
}

// cover sorts the conditions that must all hold into what the ranges imply and
// what is left.
func (s *Selector) cover(p *Plan, index *Keyer) {
	var rest []*condition
	var visit func(c *condition)
	visit = func(c *condition) {
		switch {
		case c == nil, c.op == opOr && len(c.kids) == 0: // true
		case c.op == opAnd:
			for _, kid := range c.kids {
				visit(kid)
			}
		case index.implies(c, p.Bounded, s.collation):
			p.Covered++
		default:
			rest = append(rest, c)
		}
	}
	visit(s.root)
	if len(rest) == 0 {
		return
	}
	p.Residual = &Selector{root: rest[0].clone(), collation: s.collation}
	if len(rest) > 1 {
		p.Residual.root = (&condition{op: opAnd, kids: rest}).clone()
	}
	p.Residual.scope = newScope(p.Residual.root)
}

// clone copies the nodes of a condition, whose slots are another scope's.
func (c *condition) clone() *condition {
	d := *c
	d.kids = nil
	for _, kid := range c.kids {
		d.kids = append(d.kids, kid.clone())
	}
	return &d
}

// implies reports whether the sets of the first n fields tell all about c: its
// leaves are on one of these fields, and each is a set of keys exactly.
func (k *Keyer) implies(c *condition, n int, text Collation) bool {
	for i := range n {
		if f := &k.fields[i]; c.only(f.path) {
			_, exact := k.set(c, f, text)
			return exact
		}
	}
	return false
}

// only reports whether c has leaves and all are on the path.
func (c *condition) only(path []string) bool {
	some, all := false, true
	c.leaves(func(l *condition) {
		some = true
		all = all && slices.Equal(l.path, path)
	})
	return some && all
}

// requires reports whether a document that meets c has a value at the path.
func (c *condition) requires(path []string) bool {
	requires := func(kid *condition) bool { return kid.requires(path) }
	switch {
	case c == nil:
		return false
	case c.op == opAnd:
		return slices.ContainsFunc(c.kids, requires)
	case c.op == opOr:
		return len(c.kids) > 0 && !slices.ContainsFunc(c.kids, func(kid *condition) bool { return !requires(kid) })
	case c.op == opExists && !c.exists, !c.leaf():
		return false
	}
	return len(c.path) >= len(path) && slices.Equal(c.path[:len(path)], path)
}

// A bound is a place between keys of one element: before or behind all that
// begin with a prefix.
type bound struct {
	prefix []byte
	behind bool
}

// key returns the least key that is not below the bound; nil: there is none
// above, or, of a first bound, none below.
func (b bound) key() []byte {
	if b.behind {
		return keys.PrefixEnd(b.prefix)
	}
	return b.prefix
}

// complement returns the bound among complemented keys.
func (b bound) complement() bound {
	p := bytes.Clone(b.prefix)
	complement(p)
	return bound{p, !b.behind}
}

// An interval is the elements between two bounds.
type interval struct{ low, high bound }

// point reports whether the interval is one element.
func (v interval) point() bool {
	if v.low.behind || !v.high.behind || !bytes.Equal(v.low.prefix, v.high.prefix) {
		return false
	}
	n, err := keys.Skip(v.low.prefix)
	return err == nil && n == len(v.low.prefix)
}

// A set is elements: intervals that are ascending and disjoint.
type set []interval

// everything is all elements: from the least tag to behind the greatest.
func everything() set { return set{{bound{}, bound{behind: true}}} }

func (s set) full() bool {
	return len(s) == 1 && len(s[0].low.prefix) == 0 && len(s[0].high.prefix) == 0
}

func (s set) points() bool {
	return !slices.ContainsFunc(s, func(v interval) bool { return !v.point() })
}

// compareBounds orders bounds; as an upper one a bound without key is the greatest.
func compareBounds(a, b bound) int {
	x, y := a.key(), b.key()
	if openA, openB := x == nil && a.behind, y == nil && b.behind; openA || openB {
		switch {
		case !openB:
			return 1
		case !openA:
			return -1
		}
		return 0
	}
	return bytes.Compare(x, y)
}

func (s set) intersect(t set) set {
	var out set
	for i, k := 0, 0; i < len(s) && k < len(t); {
		low, high := s[i].low, s[i].high
		if compareBounds(t[k].low, low) > 0 {
			low = t[k].low
		}
		last := compareBounds(s[i].high, t[k].high)
		if last > 0 {
			high = t[k].high
		}
		if compareBounds(low, high) < 0 {
			out = append(out, interval{low, high})
		}
		if last <= 0 {
			i++
		} else {
			k++
		}
	}
	return out
}

func (s set) union(t set) set {
	all := slices.Concat(s, t)
	slices.SortFunc(all, func(a, b interval) int { return compareBounds(a.low, b.low) })
	var out set
	for _, v := range all {
		if n := len(out) - 1; n >= 0 && compareBounds(v.low, out[n].high) <= 0 {
			if compareBounds(v.high, out[n].high) > 0 {
				out[n].high = v.high
			}
			continue
		}
		out = append(out, v)
	}
	return out
}

// multiply appends to each range, which is a prefix with the same beginning at
// both ends, the intervals of the next field.
func multiply(ranges []Range, s set, descending bool) []Range {
	out := make([]Range, 0, len(ranges)*len(s))
	for _, r := range ranges {
		prefix := r.Low
		for i := range s {
			v := s[i]
			if descending {
				v = s[len(s)-1-i]
				v = interval{v.high.complement(), v.low.complement()}
			}
			low := bound{slices.Concat(prefix, v.low.prefix), v.low.behind && len(v.low.prefix) > 0}
			high := bound{slices.Concat(prefix, v.high.prefix), true}
			if len(v.high.prefix) > 0 {
				high.behind = v.high.behind
			}
			out = append(out, Range{low.key(), high.key()})
		}
	}
	return out
}

// set returns the elements that a field of the index can have in documents that
// meet c, and whether every document with such an element meets it, as far as c
// is about the field.
func (k *Keyer) set(c *condition, f *keyField, text Collation) (s set, exact bool) {
	switch {
	case c == nil || c.op == opText:
		return everything(), false
	case c.leaf() && !slices.Equal(c.path, f.path):
		return everything(), false
	case c.leaf():
		return k.leafSet(c, f, text)
	case len(c.kids) == 0:
		return everything(), true
	}
	s, exact = k.set(c.kids[0], f, text)
	for _, kid := range c.kids[1:] {
		t, e := k.set(kid, f, text)
		exact = exact && e
		if c.op == opAnd {
			s = s.intersect(t)
		} else if s = s.union(t); len(s) > maxRanges {
			s, exact = set{{s[0].low, s[len(s)-1].high}}, false
		}
	}
	return s, exact
}

// kindSet returns the elements of a kind of JSON value.
func kindSet(k kind) set {
	var low, high bound
	switch k {
	case kindNone:
		return nil
	case kindNull:
		low.prefix = keys.AppendNil(nil)
		high = bound{low.prefix, true}
	case kindBool:
		low.prefix = keys.AppendBool(nil, false)
		high = bound{keys.AppendBool(nil, true), true}
	case kindNumber:
		low = bound{keys.AppendBool(nil, true), true}
		high.prefix = keys.StringPrefix(nil, "")
	case kindString:
		low.prefix = keys.StringPrefix(nil, "")
		high = bound{low.prefix, true}
	case kindArray:
		low.prefix = keys.AppendArrayStart(nil)
		high = bound{low.prefix, true}
	case kindObject:
		low.prefix = keys.AppendObjectStart(nil)
		high = bound{low.prefix, true}
	}
	return set{{low, high}}
}

func (k *Keyer) leafSet(c *condition, f *keyField, text Collation) (s set, exact bool) {
	switch c.op {
	case opExists:
		if c.exists {
			return everything(), true
		}
		return nil, true // of the documents that the index holds
	case opIn, opNin:
		return k.inSet(c, f, text)
	}
	if c.op <= opGte {
		return k.comparisonSet(c, f, text)
	}
	if c.not {
		return everything(), false
	}
	switch c.op {
	case opType:
		return kindSet(c.kind), true
	case opMod:
		return kindSet(kindNumber), false
	case opBeginsWith:
		return k.prefixSet(c, f)
	case opRegex:
		return kindSet(kindString), false
	case opKeyMapMatch:
		return kindSet(kindObject), false
	}
	return kindSet(kindArray), false
}

// prefixSet returns the strings that begin with the argument: exactly in order
// of bytes; else those whose letters do, whatever their accents and case.
func (k *Keyer) prefixSet(c *condition, f *keyField) (set, bool) {
	exact := f.ids || k.collation == Binary
	text := c.arg.str
	if !exact {
		// A last и may be the first half of another letter, й.
		text = strings.TrimSuffix(strings.TrimSuffix(text, "и"), "И")
		text = string(appendPrimary(nil, text))
	}
	p := keys.StringPrefix(nil, text)
	return set{{bound{p, false}, bound{p, true}}}, exact
}

// comparable returns the key of a constant, and whether the index orders it
// against all values as the selector does.
func (k *Keyer) comparable(c *constant, f *keyField, text Collation) (key []byte, ok bool) {
	order := k.collation
	if f.ids {
		order, text = Binary, Binary
	}
	if order != text && c.hasText() {
		return nil, false
	}
	key, end := order.appendKey(nil, c.json, 0, 0)
	return key, end >= 0
}

func (k *Keyer) comparisonSet(c *condition, f *keyField, text Collation) (set, bool) {
	if f.ids && c.arg.kind != kindString { // ids are behind all other values
		if c.op.holds(1) {
			return everything(), true
		}
		return nil, true
	}
	key, exact := k.comparable(&c.arg, f, text)
	low, high := bound{key, false}, bound{key, true}
	if !exact {
		if c.op == opNe {
			return everything(), false
		}
		s := kindSet(c.arg.kind)
		low, high = s[0].low, s[0].high
		switch c.op { // anything of the argument's kind may hold
		case opLt, opLte:
			return set{{bound{}, high}}, false
		case opGt, opGte:
			return set{{low, bound{behind: true}}}, false
		}
		return s, false
	}
	switch c.op {
	case opEq:
		return set{{low, high}}, true
	case opNe:
		return set{{bound{}, low}, {high, bound{behind: true}}}, true
	case opLt:
		return set{{bound{}, low}}, true
	case opLte:
		return set{{bound{}, high}}, true
	case opGt:
		return set{{high, bound{behind: true}}}, true
	}
	return set{{low, bound{behind: true}}}, true
}

// inSet returns the elements that equal an argument, and all arrays, since an
// array is looked into. Of an id the set is exact.
func (k *Keyer) inSet(c *condition, f *keyField, text Collation) (set, bool) {
	if c.op == opNin || len(c.set) > maxRanges {
		return everything(), false
	}
	var s set
	exact := f.ids
	if !f.ids && len(c.set) > 0 {
		s = kindSet(kindArray)
	}
	for i := range c.set {
		arg := &c.set[i]
		if f.ids && arg.kind != kindString {
			continue
		}
		if key, ok := k.comparable(arg, f, text); ok {
			s = s.union(set{{bound{key, false}, bound{key, true}}})
			continue
		}
		exact = false
		s = s.union(kindSet(arg.kind))
	}
	return s, exact || len(c.set) == 0
}
