package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/mango"
)

// Bounds of what a document may put into a view. What goes beyond is the
// document's failure.
const (
	maxRowKey   = 16 << 10
	maxRowValue = 1 << 20
	maxDocRows  = 1 << 16
	maxDocBytes = 16 << 20 // of all its rows in a view
)

// rowList is the rows of one document, in the order they were emitted.
type rowList struct {
	buf  []byte
	rows []rowSpan
}

type rowSpan struct {
	from, mid, to int // of key and value in buf
	n             uint16
}

func (l *rowList) reset() { l.buf, l.rows = l.buf[:0], l.rows[:0] }

func (l *rowList) key(i int) []byte   { return l.buf[l.rows[i].from:l.rows[i].mid] }
func (l *rowList) value(i int) []byte { return l.buf[l.rows[i].mid:l.rows[i].to] }

// add appends a row.
func (l *rowList) add(key, value []byte) {
	from := len(l.buf)
	l.buf = append(append(l.buf, key...), value...)
	l.close(from, from+len(key))
}

// close makes a row of what was appended to buf.
func (l *rowList) close(from, mid int) {
	l.rows = append(l.rows, rowSpan{from: from, mid: mid, to: len(l.buf)})
	i := len(l.rows) - 1
	for k := i - 1; k >= 0; k-- {
		// Numbers count the rows of one key; documents with many rows seldom
		// repeat one, and then the repetition is near.
		if bytes.Equal(l.key(k), l.buf[from:mid]) {
			l.rows[i].n = l.rows[k].n + 1
			return
		}
		if i-k == nearRows && i > manyRows {
			l.rows[i].n = l.countBefore(i)
			return
		}
	}
}

const (
	nearRows = 64
	manyRows = 128
)

// countBefore counts the rows before i that have its key.
func (l *rowList) countBefore(i int) uint16 {
	n := uint16(0)
	for k := range i {
		if len(l.key(k)) == len(l.key(i)) && bytes.Equal(l.key(k), l.key(i)) {
			n++
		}
	}
	return n
}

// check refuses the row that was added last.
func (l *rowList) check(v *viewDef) error {
	i := len(l.rows) - 1
	switch key, value := l.key(i), l.value(i); {
	case len(l.rows) >= maxDocRows:
		return fmt.Errorf("more than %d rows", maxDocRows-1)
	case len(l.buf) > maxDocBytes:
		return fmt.Errorf("more than %d bytes of rows", maxDocBytes)
	case len(key) > maxRowKey:
		return fmt.Errorf("a key of %d bytes, at most %d are allowed", len(key), maxRowKey)
	case len(value) > maxRowValue:
		return fmt.Errorf("a value of %d bytes, at most %d are allowed", len(value), maxRowValue)
	case v.builtin != nil:
		if err := v.builtin.Check(value); err != nil {
			return fmt.Errorf("%s: %w", v.reduceName, err)
		}
	}
	return nil
}

// mapping makes rows; one goroutine at a time uses it.
type mapping struct {
	def    *viewDef
	codecs osier.Codecs
	doc    mango.Doc
	json   []byte
	picked [][]byte
	elems  [][]byte
}

// rows fills l with a live document's rows. The error is the document's failure,
// which leaves no rows.
func (m *mapping) rows(d *osier.Document, l *rowList) (err error) {
	l.reset()
	if d.Deleted {
		return nil
	}
	if m.def.code != nil {
		if m.def.eager() {
			// Sealing knows no more of it.
			d = &osier.Document{ID: d.ID, Codec: d.Codec, Schema: d.Schema, Body: d.Body}
		}
		err = m.call(d, l)
	} else {
		err = m.fields(d, l)
	}
	if err != nil {
		l.reset()
	}
	return err
}

// call runs a program's function, whatever it does.
func (m *mapping) call(d *osier.Document, l *rowList) (err error) {
	defer recovered("map", &err)
	var refused error
	if err := m.def.code.Map(d, func(key, value []byte) {
		if refused == nil {
			l.add(key, value)
			refused = l.check(m.def)
		}
	}); err != nil {
		return err
	}
	return refused
}

// fields makes rows of fields.
func (m *mapping) fields(d *osier.Document, l *rowList) error {
	f := m.def.fields
	body := d.Body
	if d.Codec != osier.TagJSON {
		codec := m.codecs[d.Codec]
		if codec == nil {
			return fmt.Errorf("no codec for tag %d", d.Codec)
		}
		var err error
		if m.json, err = codec.AppendJSON(m.json[:0], body); err != nil {
			return err
		}
		body = m.json
	}
	if !isObject(body) {
		return nil // it has no fields
	}
	m.doc = mango.Doc{Body: body, Valid: d.Codec == osier.TagJSON}
	if f.needsID {
		m.doc.ID = d.ID.String()
	}
	if f.partial != nil {
		if ok, err := f.partial.Match(&m.doc); err != nil || !ok {
			return err
		}
	}
	if f.spread >= 0 {
		return m.spread(l)
	}
	var err error
	var complete bool
	l.buf, complete, err = f.keyer.AppendKey(l.buf, &m.doc)
	if err != nil {
		return err
	}
	if !complete {
		l.buf = l.buf[:0]
		return nil
	}
	mid := len(l.buf)
	if f.value {
		if m.picked, err = f.picker.Pick(m.picked[:0], &m.doc); err != nil {
			return err
		}
		if l.buf, err = appendCompact(l.buf, m.picked[0]); err != nil {
			return err
		}
	}
	l.close(0, mid)
	return l.check(m.def)
}

// spread makes a row of each element of the array that a key's field holds.
func (m *mapping) spread(l *rowList) (err error) {
	f := m.def.fields
	if m.picked, err = f.picker.Pick(m.picked[:0], &m.doc); err != nil {
		return err
	}
	var value []byte
	if f.value {
		value = m.picked[len(f.sort)]
	}
	for _, text := range m.picked[:len(f.sort)] {
		if text == nil {
			return nil
		}
	}
	var array bool
	if m.elems, array, err = mango.Elements(m.elems[:0], m.picked[f.spread]); err != nil {
		return err
	}
	if !array {
		m.elems = append(m.elems[:0], m.picked[f.spread])
	}
	for _, elem := range m.elems {
		from := len(l.buf)
		m.picked[f.spread] = elem
		for _, text := range m.picked[:len(f.sort)] {
			if l.buf, err = mango.AppendValueKey(l.buf, text, f.collation); err != nil {
				return err
			}
		}
		mid := len(l.buf)
		if l.buf, err = appendCompact(l.buf, value); err != nil {
			return err
		}
		l.close(from, mid)
		if err := l.check(m.def); err != nil {
			return err
		}
	}
	return nil
}

var errValue = errors.New("a value is not JSON")

// appendCompact appends a value of a document as JSON without white space; null
// is nothing.
func appendCompact(dst, text []byte) ([]byte, error) {
	if len(text) == 0 || text[0] == 'n' {
		return dst, nil
	}
	if text[0] != '{' && text[0] != '[' {
		return append(dst, text...), nil // bodies were checked when they were written
	}
	b := bytes.NewBuffer(dst)
	if err := json.Compact(b, text); err != nil {
		return dst, errValue
	}
	return b.Bytes(), nil
}
