package revtree

import "encoding/binary"

const (
	// MaxDepth is how deep the objects and arrays of a document may nest, the
	// document itself included.
	MaxDepth = 5000

	// MaxDigits is how many digits an integer may have. The cost of converting
	// one grows with the square of its length.
	MaxDigits = 1 << 14
)

// AppendTerm appends the Erlang external term, without version byte, of the
// document that the JSON text holds: what a revision's digest is computed from.
// Members of the document itself whose names begin with an underscore are read
// but left out; a name that repeats stays at its first place with its last value.
//
// The text is one object in UTF-8 and nothing else. An error is a [*JSONError],
// matches [ErrJSON], and leaves dst as it was. The cost is linear in the length
// of the text, except for the digits of huge integers (see [MaxDigits]), and so is
// the memory; while no more than 48 levels are open, and 48 members in the objects
// among them, nothing is allocated but the growth of dst.
func AppendTerm(dst, json []byte) ([]byte, error) {
	t := transcoder{json: json}
	t.space()
	if t.pos == len(json) || json[t.pos] != '{' {
		return dst, t.notObject()
	}
	out := dst
	for more := true; more; {
		var reason Reason
		if out, more, reason = t.step(out); reason != 0 {
			return dst, &JSONError{Offset: t.pos, Reason: reason}
		}
	}
	t.space()
	if t.pos != len(json) {
		return dst, &JSONError{Offset: t.pos, Reason: ReasonSyntax}
	}
	if len(t.repairs) > 0 {
		out = append(dst, t.repaired(out, len(dst))...)
	}
	return out, nil
}

// A frame is an object or array that is open.
type frame struct {
	start   int // offset in the output of its tuple or list
	count   int // elements or members so far
	members int // offset in transcoder.members of an object's first member
	object  bool
	small   bool // array: all elements so far are integers 0 to 255
	hidden  bool // document: the member being read is to be left out
}

// A member is a name and value of an open object, by offsets in the output. The
// value ends where the next member starts.
type member struct{ start, value int }

// nameOffset is from the start of a member, a pair, to the bytes of its name.
const nameOffset = 2 + headerSize

// A transcoder reads a JSON text in one pass. Containers are kept on a stack of
// its own, so that a level costs 32 bytes and no call.
//
// Methods take the output and return it, instead of holding it here: that keeps
// the transcoder, with its stacks, off the heap.
type transcoder struct {
	json    []byte
	pos     int
	frames  stack[frame]
	members stack[member]
	repairs []repair
}

// notObject returns the error of a text that does not begin with an object.
func (t *transcoder) notObject() error {
	if t.pos < len(t.json) {
		return &JSONError{Offset: t.pos, Reason: ReasonNotObject}
	}
	return &JSONError{Offset: t.pos, Reason: ReasonSyntax}
}

// space skips white space.
func (t *transcoder) space() {
	for t.pos < len(t.json) {
		switch t.json[t.pos] {
		case ' ', '\t', '\n', '\r':
			t.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the byte after it, or 0 at the end.
func (t *transcoder) peek() byte {
	if t.pos < len(t.json) && t.json[t.pos] > ' ' {
		return t.json[t.pos]
	}
	t.space()
	if t.pos < len(t.json) {
		return t.json[t.pos]
	}
	return 0
}

// step reads one value, or opens one, and then closes what ends after it. more is
// false when the document is complete. Before it, the text stands at a value.
func (t *transcoder) step(out []byte) (_ []byte, more bool, reason Reason) {
	small := false
	switch c := t.peek(); {
	case c == '{' || c == '[':
		var opened bool
		if out, opened, reason = t.open(out, c); opened || reason != 0 {
			return out, true, reason
		}
	case c == '"':
		out, reason = t.text(out)
	case c == '-' || '0' <= c && c <= '9':
		out, small, reason = t.number(out)
	default:
		out, reason = t.word(out, c)
	}
	for reason == 0 {
		if t.frames.n == 0 {
			return out, false, 0
		}
		f := t.frames.top()
		f.small = f.small && small
		f.count++
		if f.hidden {
			out = t.dropLast(out, f)
		}
		var closed bool
		if out, closed, reason = t.next(out, f); !closed {
			return out, true, reason
		}
		small = false
	}
	return out, false, reason
}

// open starts an object or array at c. If it is empty it is complete, and opened
// is false; else the text then stands at its first value.
func (t *transcoder) open(out []byte, c byte) (_ []byte, opened bool, reason Reason) {
	if t.frames.n == MaxDepth {
		return out, false, ReasonDepth
	}
	t.pos++
	f := frame{start: len(out), members: t.members.n, object: c == '{', small: c == '['}
	if f.object {
		out = append(out, tagTuple, 1)
	}
	if t.peek() == c+2 { // } or ]
		t.pos++
		return append(out, tagNil), false, 0
	}
	out = append(out, tagList, 0, 0, 0, 0)
	t.frames.push(f)
	if f.object {
		out, reason = t.name(out, t.frames.top())
	}
	return out, true, reason
}

// next reads what follows a value in f: a comma, and closed is false, or the end
// of f, and it is closed.
func (t *transcoder) next(out []byte, f *frame) (_ []byte, closed bool, reason Reason) {
	switch c := t.peek(); {
	case c == ',':
		t.pos++
		if f.object {
			out, reason = t.name(out, f)
		}
		return out, false, reason
	case c == '}' && f.object:
		out = t.closeObject(out, f)
	case c == ']' && !f.object:
		out = closeArray(out, f)
	default:
		return out, false, ReasonSyntax
	}
	t.pos++
	t.frames.n--
	return out, true, 0
}

// name reads a member's name and the colon, and starts its pair.
func (t *transcoder) name(out []byte, f *frame) ([]byte, Reason) {
	if t.peek() != '"' {
		return out, ReasonSyntax
	}
	m := member{start: len(out)}
	out, reason := t.text(append(out, tagTuple, 2))
	if reason != 0 {
		return out, reason
	}
	if t.peek() != ':' {
		return out, ReasonSyntax
	}
	t.pos++
	m.value = len(out)
	t.members.push(m)
	f.hidden = t.frames.n == 1 && m.value > m.start+nameOffset && out[m.start+nameOffset] == '_'
	return out, 0
}

// dropLast takes the last member back: it does not belong to the body.
func (t *transcoder) dropLast(out []byte, f *frame) []byte {
	start := t.members.top().start
	t.members.n--
	for n := len(t.repairs); n > 0 && t.repairs[n-1].start >= start; n-- {
		t.repairs = t.repairs[:n-1]
	}
	f.count--
	return out[:start]
}

// closeObject ends an object and notes it for repair if a name repeats.
func (t *transcoder) closeObject(out []byte, f *frame) []byte {
	members := t.members.from(f.members)
	t.members.n = f.members
	if f.count == 0 { // all its members were left out
		return append(out[:f.start+2], tagNil)
	}
	binary.BigEndian.PutUint32(out[f.start+3:], uint32(f.count))
	out = append(out, tagNil)
	if repeated(out, members) {
		t.repairs = append(t.repairs, newRepair(out, f.start, members))
	}
	return out
}

// closeArray ends an array, which is a string of bytes if its elements allow.
func closeArray(out []byte, f *frame) []byte {
	if !f.small || f.count > maxStringLen {
		binary.BigEndian.PutUint32(out[f.start+1:], uint32(f.count))
		return append(out, tagNil)
	}
	from := out[f.start+headerSize:] // pairs of a tag and a byte
	out = append(out[:f.start], tagString, byte(f.count>>8), byte(f.count))
	for i := range f.count {
		out = append(out, from[2*i+1]) // behind what is still to be read
	}
	return out
}
