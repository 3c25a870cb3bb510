package mango

import (
	"fmt"
	"slices"
)

// A Projection writes the wanted fields of documents. It does not change; any
// number of goroutines may use it.
type Projection struct {
	fields []wanted
	scope  scope
}

// wanted is a field and its names as they are written.
type wanted struct {
	path   []string
	quoted []string
	slot   int
}

// NewProjection returns the projection on paths, dotted as in selectors. Without
// any it is nil, which writes whole documents. Errors are of type [*Error].
func NewProjection(fields []string) (*Projection, error) {
	if len(fields) == 0 {
		return nil, nil
	}
	p := &Projection{}
	all := &condition{op: opAnd}
	for i, f := range fields {
		path, ok := splitPath(f)
		if !ok {
			return nil, &Error{Name: ErrInvalidFieldName, Reason: "Invalid field name: " + f, Place: fmt.Sprintf("[%d]", i)}
		}
		w := wanted{path: path}
		for _, name := range path {
			w.quoted = append(w.quoted, string(appendQuoted(nil, name)))
		}
		p.fields = append(p.fields, w)
		all.kids = append(all.kids, &condition{op: opExists, path: path})
	}
	p.scope = newScope(all)
	for i := range p.fields {
		p.fields[i].slot = all.kids[i].slot
	}
	return p, nil
}

// Needs reports whether a wanted field is in the member of that name. A nil
// Projection needs all.
func (p *Projection) Needs(member string) bool { return p == nil || p.scope.needs(member) }

// AppendDoc appends the JSON object of the wanted fields that the document has.
// Members are in the order of the fields; fields of one object stand together at
// the first one's place. An element of an array becomes a member named by its
// index. Values are copied as they are stored. A document that is not JSON gives
// a [*DocumentError].
//
// A nil Projection appends _id, _rev if there is one, the body's members, then
// Meta's.
func (p *Projection) AppendDoc(dst []byte, d *Doc) ([]byte, error) {
	if p == nil {
		return appendWhole(dst, d)
	}
	var few [fewSlots]value
	slots := p.scope.values(&few)
	if err := p.scope.load(d, slots); err != nil {
		return dst, err
	}
	var out output
	for i := range p.fields {
		f := &p.fields[i]
		if v := slots[f.slot]; v.state >= inBody {
			out.put(f.quoted, v)
		}
	}
	return out.append(dst, 0, d), nil
}

// output is the object that is put together: a list of members, each linked to
// its first member, if it is an object in the making, and to its next sibling.
type output struct {
	members []outMember // the first stands for the whole object
}

type outMember struct {
	name        string // quoted
	value       value
	first, next int // 0: none
}

// put adds a value at a path. A whole takes the place of its parts, whichever
// comes first.
func (o *output) put(names []string, v value) {
	if o.members == nil {
		o.members = make([]outMember, 1, 8)
	}
	at := 0
	for _, name := range names {
		last, kid := 0, o.members[at].first
		for kid != 0 && o.members[kid].name != name {
			last, kid = kid, o.members[kid].next
		}
		if kid == 0 {
			kid = len(o.members)
			o.members = append(o.members, outMember{name: name})
			if last == 0 {
				o.members[at].first = kid
			} else {
				o.members[last].next = kid
			}
		}
		at = kid
	}
	o.members[at].value, o.members[at].first = v, 0
}

func (o *output) append(dst []byte, at int, d *Doc) []byte {
	dst = append(dst, '{')
	if len(o.members) == 0 {
		return append(dst, '}')
	}
	for kid := o.members[at].first; kid != 0; kid = o.members[kid].next {
		m := &o.members[kid]
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(append(dst, m.name...), ':')
		switch v := m.value; v.state {
		case inBody:
			dst = append(dst, d.Body[v.from:v.to]...)
		case inMeta:
			dst = append(dst, d.Meta[v.from:v.to]...)
		case isID:
			dst = appendQuoted(dst, d.ID)
		case isRev:
			dst = appendQuoted(dst, d.Rev)
		default:
			dst = o.append(dst, kid, d)
		}
	}
	return append(dst, '}')
}

// appendWhole appends the document with what the store keeps beside the body.
func appendWhole(dst []byte, d *Doc) ([]byte, error) {
	start := len(dst)
	dst = append(dst, '{')
	var hidden []string // names that the body's members would repeat
	if d.ID != "" {
		dst = appendQuoted(append(dst, `"_id":`...), d.ID)
		hidden = append(hidden, "_id")
	}
	if d.Rev != "" {
		if len(hidden) > 0 {
			dst = append(dst, ',')
		}
		dst = appendQuoted(append(dst, `"_rev":`...), d.Rev)
		hidden = append(hidden, "_rev")
	}
	meta := len(hidden)
	if len(d.Meta) > 0 {
		err := eachMember(d.Meta, func(name, _ string) { hidden = append(hidden, name) })
		if err != nil {
			return dst[:start], err
		}
	}
	write := func(name, text string) {
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		dst = append(dst, text...)
	}
	err := eachMember(d.Body, func(name, text string) {
		if !slices.Contains(hidden, name) {
			write(name, text)
		}
	})
	if err == nil && len(d.Meta) > 0 {
		err = eachMember(d.Meta, func(name, text string) {
			if !slices.Contains(hidden[:meta], name) {
				write(name, text)
			}
		})
	}
	if err != nil {
		return dst[:start], err
	}
	return append(dst, '}'), nil
}

// eachMember calls f with the name and the text of each member of an object.
func eachMember(object []byte, f func(name, text string)) error {
	s := view(object)
	broken := func(at int) error { return &DocumentError{Offset: at, Reason: "not a JSON object"} }
	i := space(s, 0)
	if i == len(s) || s[i] != '{' {
		return broken(i)
	}
	at := i
	for i = space(s, i+1); i >= 0 && i < len(s); {
		if at = i; s[i] == '}' {
			if space(s, i+1) != len(s) {
				return broken(i + 1)
			}
			return nil
		}
		nameEnd, value := memberName(s, i)
		if value < 0 {
			return broken(i)
		}
		end := valueEnd(s, value)
		if end < 0 {
			return broken(value)
		}
		var buf [64]byte
		f(plain(s[i+1:nameEnd-1], buf[:]), s[i:end])
		i = next(s, end, '}')
	}
	return broken(at)
}
