package mango

import (
	"slices"
	"strings"
)

// A Point is a selector that asks fields to equal scalars and nothing else, such
// as {"city": "Oslo"}. Most look-ups are such; it need not be compiled, since it
// reads as a document that has in an index the very key that is looked for.
type Point struct {
	doc    Doc
	fields int
}

// maxPoint is the size of the largest selector that is taken for a point.
const maxPoint = 4 << 10

// PointOf reads a selector's text. ok is false of every other selector, and of
// what is none. The text must not change while the point is in use.
func PointOf(selector []byte) (p Point, ok bool) {
	if len(selector) > maxPoint || !validText(selector) {
		return p, false
	}
	s := view(selector)
	i := space(s, 0)
	if s[i] != '{' {
		return p, false
	}
	for i = space(s, i+1); s[i] != '}'; p.fields++ {
		end, value := memberName(s, i)
		if name := s[i+1 : end-1]; name == "" || name[0] == '$' || name[0] == '_' || strings.ContainsAny(name, `.\`) {
			return p, false
		}
		if s[value] == '{' || s[value] == '[' {
			return p, false
		}
		i = next(s, valueEnd(s, value), '}')
	}
	p.doc = Doc{Body: selector, Valid: true}
	return p, p.fields > 0
}

// AppendPoint appends the key of the documents that a point means. ok is false if
// the index's fields are not the point's.
func (k *Keyer) AppendPoint(dst []byte, p *Point) (key []byte, ok bool) {
	// As many different fields, each of which the point has: then these are all.
	if len(k.fields) != p.fields {
		return dst, false
	}
	for i := range k.fields {
		f := &k.fields[i]
		if len(f.path) != 1 || f.ids || slices.ContainsFunc(k.fields[:i], func(g keyField) bool { return g.Path == f.Path }) {
			return dst, false
		}
	}
	key, complete, err := k.AppendKey(dst, &p.doc)
	return key, complete && err == nil
}
