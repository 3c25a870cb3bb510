package mango

import "fmt"

// A Picker finds the values of paths in documents. It does not change; any
// number of goroutines may use it.
type Picker struct {
	slots []int
	scope scope
}

// NewPicker returns the picker of paths, dotted as in selectors. Errors are of
// type [*Error].
func NewPicker(paths []string) (*Picker, error) {
	p := &Picker{}
	all := &condition{op: opAnd}
	for i, f := range paths {
		path, ok := splitPath(f)
		if !ok {
			return nil, &Error{Name: ErrInvalidFieldName, Reason: "Invalid field name: " + f, Place: fmt.Sprintf("[%d]", i)}
		}
		all.kids = append(all.kids, &condition{op: opExists, path: path})
	}
	p.scope = newScope(all)
	for _, kid := range all.kids {
		p.slots = append(p.slots, kid.slot)
	}
	return p, nil
}

// Pick appends the JSON text of each path's value, nil for one that the document
// does not have. The texts are parts of the document. A document that is not a
// JSON object gives a [*DocumentError]; the values themselves are not checked.
func (p *Picker) Pick(dst [][]byte, d *Doc) ([][]byte, error) {
	var few [fewSlots]value
	slots := p.scope.values(&few)
	if err := p.scope.load(d, slots); err != nil {
		return dst, err
	}
	for _, slot := range p.slots {
		var text []byte
		switch v := slots[slot]; v.state {
		case isID:
			text = appendQuoted(nil, d.ID)
		case isRev:
			text = appendQuoted(nil, d.Rev)
		case inMeta:
			text = d.Meta[v.from:v.to]
		case inBody:
			text = d.Body[v.from:v.to]
		}
		dst = append(dst, text)
	}
	return dst, nil
}

// AppendValueKey appends the key of a JSON value, as an ascending field of a
// [Keyer] has it. What cannot be a key gives a [*DocumentError].
func AppendValueKey(dst, value []byte, c Collation) ([]byte, error) {
	start := len(dst)
	text := view(value)
	dst, end := c.appendKey(dst, text, space(text, 0), 0)
	if end < 0 || space(text, end) != len(text) {
		return dst[:start], &DocumentError{Reason: "a value cannot be a key"}
	}
	return dst, nil
}

// Elements appends the JSON texts of an array's elements, which are parts of it.
// array tells whether value is one; a broken one gives a [*DocumentError].
func Elements(dst [][]byte, value []byte) (list [][]byte, array bool, err error) {
	text := view(value)
	i := space(text, 0)
	if i == len(text) || text[i] != '[' {
		return dst, false, nil
	}
	broken := &DocumentError{Offset: i, Reason: "an array is not JSON"}
	if i = space(text, i+1); i == len(text) {
		return dst, true, broken
	}
	for text[i] != ']' {
		end := valueEnd(text, i)
		if end < 0 {
			return dst, true, broken
		}
		dst = append(dst, value[i:end])
		if i = next(text, end, ']'); i < 0 {
			return dst, true, broken
		}
	}
	return dst, true, nil
}
