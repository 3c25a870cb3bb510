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
}

// relearn is after how many documents the rare bytes are looked up again.
const relearn = 512

// Matcher returns a matcher of the selector.
func (s *Selector) Matcher() *Matcher {
	m := &Matcher{selector: s}
	if k := s.scope.seek; k != nil {
		m.seek = &seek{terms: slices.Clone(k.terms), needles: slices.Clone(k.needles)}
	}
	return m
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

// learn takes the bytes to search for that are rarest in a text.
func (m *Matcher) learn(text string) {
	for i := range m.seek.needles {
		n := &m.seek.needles[i]
		n.rare = rarest(n.name, func(c byte) int { return strings.Count(text, string([]byte{c})) })
	}
}
