package osier

import (
	"bytes"

	"github.com/osierdb/osier/internal/mango"
)

// Matcher tries a selector on one document at a time, stored or not: what
// filters a feed needs no query. It is safe for concurrent use.
type Matcher struct {
	selector *mango.Selector
	fields   *mango.Projection // nil: whole documents
}

// NewMatcher compiles a selector, and paths to project documents on if there are
// some. ErrInvalid, with a SelectorError in it, for what is no selector or path.
func NewMatcher(s Selector, fields ...string) (*Matcher, error) {
	text, swap, err := s.selector()
	if err != nil {
		return nil, err
	}
	m := &Matcher{}
	if swap {
		m.selector, err = mango.CompileSwap(text, nil)
	} else {
		m.selector, err = mango.Compile(text, nil)
	}
	if err == nil && len(fields) > 0 {
		m.fields, err = mango.NewProjection(fields)
	}
	if err != nil {
		return nil, RefusedSelector("match", err)
	}
	return m, nil
}

// doc makes a document's parts a whole. meta is a JSON object of members that the
// body does not hold, such as _deleted, or empty.
func (m *Matcher) doc(id string, rev Rev, body, meta []byte) *mango.Doc {
	if body = bytes.TrimSpace(body); len(body) == 0 {
		body = []byte("{}")
	}
	return &mango.Doc{ID: id, Rev: rev.String(), Body: body, Meta: meta}
}

// Match reports whether the document with the JSON object body is meant. A body
// that is no object gives ErrInvalid.
func (m *Matcher) Match(id string, rev Rev, body, meta []byte) (bool, error) {
	ok, err := m.selector.Match(m.doc(id, rev, body, meta))
	if err != nil {
		return false, &Error{Kind: KindInvalid, Op: "match", ID: id, Err: err}
	}
	return ok, nil
}

// AppendFields appends the document projected on the matcher's fields, or as it
// is if there are none.
func (m *Matcher) AppendFields(dst []byte, id string, rev Rev, body, meta []byte) ([]byte, error) {
	if m.fields == nil {
		return append(dst, body...), nil
	}
	out, err := m.fields.AppendDoc(dst, m.doc(id, rev, body, meta))
	if err != nil {
		return dst, &Error{Kind: KindInvalid, Op: "project", ID: id, Err: err}
	}
	return out, nil
}
