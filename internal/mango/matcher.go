package mango

import (
	"slices"
	"strings"
)

// A Matcher is a selector at work on one document after the other. It gives the
// same answers as the selector, and learns from the documents which condition
// fails most often and which bytes of the names are rare in them: both make the
// next document sooner done. It is for one goroutine.
type Matcher struct {
	selector *Selector
	seek     *seek // nil: as the selector does
	tried    int
	texts    []soughtText // what a match has to contain
}

// A soughtText is a string that a field has to equal: a document without it
// anywhere does not match.
type soughtText struct {
	needle     // with its quotes
	found  int // documents in a row that had it
}

// oftenFound is after how many documents in a row with a text it is not searched
// for any more, until the rare bytes are looked up again.
const oftenFound = 8

// relearn is after how many documents the rare bytes are looked up again.
const relearn = 512

// Matcher returns a matcher of the selector.
func (s *Selector) Matcher() *Matcher {
	m := &Matcher{selector: s}
	if k := s.scope.seek; k != nil {
		m.seek = &seek{terms: slices.Clone(k.terms), needles: slices.Clone(k.needles)}
		for i := range k.terms {
			if c := k.terms[i].condition; k.terms[i].direct && c.op == opEq && c.arg.plainText() {
				m.texts = append(m.texts, soughtText{needle: needle{name: c.arg.json}})
			}
		}
	}
	return m
}

// plainText tells strings of visible ASCII that stand in JSON as they are: among
// such no two different ones are equal in any collation.
func (c *constant) plainText() bool {
	if c.kind != kindString || len(c.json) != len(c.str)+2 {
		return false
	}
	for i := range len(c.str) {
		if c.str[i] < ' ' || c.str[i] > '~' {
			return false
		}
	}
	return true
}

// Match is Selector.Match.
func (m *Matcher) Match(d *Doc) (bool, error) {
	if m.seek == nil || !d.Valid || len(d.Meta) > 0 || m.selector.never {
		return m.selector.Match(d)
	}
	if m.tried%relearn == 0 {
		m.learn(view(d.Body))
	}
	m.tried++
	if len(m.texts) > 0 && m.lacks(view(d.Body)) {
		return false, nil
	}
	failed, ok := m.seek.try(&m.selector.scope, d)
	if !ok {
		return m.selector.walk(d)
	}
	if failed == len(m.seek.terms) {
		return true, nil
	}
	if failed > 0 { // it comes one place sooner the next time
		t := m.seek.terms
		t[failed-1], t[failed] = t[failed], t[failed-1]
	}
	return false, nil
}

// lacks reports whether a text that a field has to equal is not there.
func (m *Matcher) lacks(text string) bool {
	asIs := false
	for i := range m.texts {
		t := &m.texts[i]
		if t.found == oftenFound {
			continue
		}
		if !asIs {
			// With escapes a string can be written otherwise, and outside of ASCII one
			// can be equal to another.
			f := seeker{text: text}
			if !f.begin() || f.escapes || !ascii(text) {
				return false
			}
			asIs = true
		}
		if t.next(text, 0) < 0 {
			t.found = 0
			return true
		}
		t.found++
	}
	return false
}

// learn takes the bytes to search for that are rarest in a text.
func (m *Matcher) learn(text string) {
	for i := range m.seek.needles {
		n := &m.seek.needles[i]
		n.rare = rarest(n.name, func(c byte) int { return strings.Count(text, string([]byte{c})) })
	}
	for i := range m.texts {
		t := &m.texts[i]
		t.rare = rarest(t.name, func(c byte) int { return strings.Count(text, string([]byte{c})) })
		t.found = 0
	}
}
