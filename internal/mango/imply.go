package mango

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/osierdb/osier/internal/keys"
)

// conjuncts returns the conditions that must all hold.
func (c *condition) conjuncts(list []*condition) []*condition {
	switch {
	case c == nil, c.op == opOr && len(c.kids) == 0: // true
	case c.op == opAnd:
		for _, kid := range c.kids {
			list = kid.conjuncts(list)
		}
	default:
		list = append(list, c)
	}
	return list
}

// Implies reports whether it is plain to see that whatever s matches p matches
// too: each condition of p is one of s, or is about one field of which s allows
// only values that p does. False says nothing.
func (s *Selector) Implies(p *Selector) bool {
	if s.never || p.never || s.collation != p.collation {
		return s.never
	}
	have := map[string]bool{}
	for _, c := range s.root.conjuncts(nil) {
		have[string(c.appendJSON(nil))] = true
	}
	for _, c := range p.root.conjuncts(nil) {
		if !have[string(c.appendJSON(nil))] && !s.within(c) {
			return false
		}
	}
	return true
}

// within reports whether c is about one field, which every match of s has with a
// value that meets c.
func (s *Selector) within(c *condition) bool {
	var path []string
	c.leaves(func(l *condition) { path = l.path })
	if len(path) == 0 || !c.only(path) || !s.root.requires(path) {
		return false
	}
	k, err := NewKeyer(Sort{{Path: JoinPath(path)}}, s.collation)
	if err != nil {
		return false
	}
	f := &k.fields[0]
	allowed, exact := k.set(c, f, s.collation)
	own, _ := k.set(s.root, f, s.collation)
	return exact && slices.EqualFunc(own.intersect(allowed), own, func(a, b interval) bool {
		return compareBounds(a.low, b.low) == 0 && compareBounds(a.high, b.high) == 0
	})
}

// Describe returns a bound of a Plan's ranges for people: the values in JSON, as
// far as they are values of the selector, whose texts a collation's keys do not
// hold.
func (k *Keyer) Describe(bound []byte, s *Selector) string {
	if len(bound) == 0 {
		return ""
	}
	at, behind := map[string]string{}, map[string]string{}
	note := func(c *constant, f *keyField) {
		if key, ok := k.comparable(c, f, s.collation); ok {
			at[string(key)], behind[string(keys.PrefixEnd(key))] = c.json, c.json
		}
	}
	s.root.leaves(func(c *condition) {
		for i := range k.fields {
			if slices.Equal(k.fields[i].path, c.path) && c.arg.json != "" {
				note(&c.arg, &k.fields[i])
				for e := range c.set {
					note(&c.set[e], &k.fields[i])
				}
			}
		}
	})
	var parts []string
	for i := range k.fields {
		b := slices.Clone(bound)
		if k.fields[i].Descending {
			complement(b)
		}
		n, err := keys.Skip(b)
		if err != nil {
			text, ok := behind[string(b)]
			switch {
			case ok:
				parts = append(parts, "behind "+text)
			case len(b) > 0:
				parts = append(parts, kindBound(b))
			}
			break
		}
		text, ok := at[string(b[:n])]
		if !ok {
			text = keys.Format(b[:n])
		}
		parts = append(parts, text)
		if bound = bound[n:]; len(bound) == 0 {
			break
		}
	}
	return strings.Join(parts, ", ")
}

// kindBound names the place between two kinds of values, or shows the bytes.
func kindBound(b []byte) string {
	for kind := kindNull; kind <= kindObject; kind++ {
		s := kindSet(kind)
		if slices.Equal(s[0].low.key(), b) {
			return "any " + kindNames[kind]
		}
		if slices.Equal(s[0].high.key(), b) {
			return "behind any " + kindNames[kind]
		}
	}
	return hex.EncodeToString(b)
}
