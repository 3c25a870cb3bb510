package mango

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unsafe"
)

// Of valid JSON the members that a selector asks for can be found without
// walking over the others. A name in quotes that occurs in the text, and whose
// first quote is not escaped, is a whole string: that quote cannot end another
// one, since what follows the end of a string is white space or one of ,:]}, with
// which no such name begins. It is a member of the document if a colon follows
// and if as many brackets have been closed before it as opened, but one. All of
// that is found by vectorised searches and by words of eight bytes.
//
// A name is searched for by its rarest byte: what a search costs is mostly how
// often it stops. Members are searched for when a condition asks for them, so
// that of a conjunction those behind the first that fails are never looked for.

// mostSought is how many members are searched for at most: with more a walk over
// all is as soon done.
const mostSought = 8

// A term is a condition that has to hold, and the members it looks at, as kids
// of the scope's tree.
type term struct {
	condition *condition
	kids      uint // a bit each
	direct    bool // it compares the value of one path, which can be found by its names
}

// A needle is what a kid of the tree is searched for by.
type needle struct {
	name string // which stands in JSON as it is
	rare int    // which of its bytes to search for
}

// next returns where the needle stands next in a text, at place from or behind it,
// or -1.
func (n *needle) next(text string, from int) int {
	rare := n.name[n.rare]
	for i := from + n.rare; i < len(text); i++ {
		j := strings.IndexByte(text[i:], rare)
		if j < 0 {
			break
		}
		i += j
		if strings.HasPrefix(text[i-n.rare:], n.name) {
			return i - n.rare
		}
	}
	return -1
}

// A seek is how a scope is tried on valid text: every term has to hold.
type seek struct {
	terms   []term
	needles []needle // by kid
}

// sought tells whether a name stands in JSON as it is, or with \u, and can be told
// from other text.
func sought(name string) bool {
	if name == "" || strings.IndexByte(",:]} \t\r\n", name[0]) >= 0 {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c == '"' || c == '\\' || c == '/' || c == 0x7f {
			return false
		}
	}
	return true
}

// newSeek returns how the scope's members are sought, nil if they cannot be.
func newSeek(s *scope) *seek {
	kids := s.tree.kids
	if s.root == nil || s.tree.slot >= 0 || len(kids) > mostSought {
		return nil
	}
	for i := range kids {
		if !sought(kids[i].name) {
			return nil
		}
	}
	k := &seek{needles: make([]needle, len(kids))}
	for i := range kids {
		k.needles[i] = needle{kids[i].name, rarest(kids[i].name, rarity)}
	}
	if s.root.op != opAnd {
		k.terms = []term{s.newTerm(s.root)}
		return k
	}
	k.terms = make([]term, len(s.root.kids))
	for i, c := range s.root.kids {
		k.terms[i] = s.newTerm(c)
	}
	return k
}

func (s *scope) newTerm(c *condition) term {
	t := term{condition: c}
	c.leaves(func(c *condition) { t.kids |= 1 << s.tree.find(c.path[0]) })
	t.direct = c.op.compares() && !c.not && t.kids&s.idents() == 0
	for i, name := range c.path {
		t.direct = t.direct && (i == 0 || sought(name) && arrayIndex(name) < 0)
	}
	return t
}

// idents are the kids that are the document's own names, which bodies do not hold.
func (s *scope) idents() (kids uint) {
	if s.id >= 0 {
		kids |= 1 << s.id
	}
	if s.rev >= 0 {
		kids |= 1 << s.rev
	}
	return kids
}

// compares tells the operators that compare with one value.
func (op operator) compares() bool { return opEq <= op && op <= opGte }

// rarest returns which byte of a name is the least common.
func rarest(name string, common func(c byte) int) int {
	best, least := 0, common(name[0])
	for i := 1; i < len(name); i++ {
		if n := common(name[i]); n < least {
			best, least = i, n
		}
	}
	return best
}

// rarity guesses how common a byte is in documents, as long as none are known.
func rarity(c byte) int {
	return strings.IndexByte("ZQXJKVqzjxYUGBFHOLDMPNRWICSTEAkvw_bpfygmhcdul -sr9876543nioat210e", c)
}

// try reports whether the terms hold, or the place of the first that does not.
// ok is false if the text has to be walked over.
func (k *seek) try(s *scope, d *Doc) (failed int, ok bool) {
	f := seeker{text: view(d.Body)}
	if !f.begin() {
		return 0, false
	}
	var few [fewSlots]value
	slots := s.values(&few)
	found := s.loadIdents(d, slots)
	for i := range k.terms {
		t := &k.terms[i]
		if t.direct {
			holds, ok := f.compare(&k.needles[bits.TrailingZeros(t.kids)], t.condition)
			if !ok {
				return 0, false
			}
			if !holds {
				return i, true
			}
			continue
		}
		for left := t.kids &^ found; left != 0; left &= left - 1 {
			kid := bits.TrailingZeros(left)
			if !f.find(&s.tree.kids[kid], &k.needles[kid], slots) {
				return 0, false
			}
		}
		found |= t.kids
		holds, whole := t.condition.match(slots, &texts{d.ID, d.Rev, f.text, ""})
		if !whole {
			return 0, false
		}
		if !holds {
			return i, true
		}
	}
	return len(k.terms), true
}

// load fills the slots of all members; ok is false if the text has to be walked
// over.
func (k *seek) load(s *scope, d *Doc, slots []value) (ok bool) {
	f := seeker{text: view(d.Body)}
	if !f.begin() {
		return false
	}
	found := s.loadIdents(d, slots)
	for kid := range k.needles {
		if found>>kid&1 == 0 && !f.find(&s.tree.kids[kid], &k.needles[kid], slots) {
			return false
		}
	}
	return true
}

// loadIdents fills the slots of the names of the document itself, and returns
// which kids these are.
func (s *scope) loadIdents(d *Doc, slots []value) (kids uint) {
	s.loadIdent(s.id, d.ID, slots, isID)
	s.loadIdent(s.rev, d.Rev, slots, isRev)
	return s.idents()
}

// A seeker is a text being searched.
type seeker struct {
	text    string
	root    int  // where the object begins
	escapes bool // there are backslashes
	flat    int  // up to where no bracket has been opened but the root's; 0: not known
}

// begin is false if the text has to be walked over.
func (f *seeker) begin() bool {
	text := f.text
	if f.root = space(text, 0); f.root >= len(text) || text[f.root] != '{' || len(text) > maxDocument {
		return false
	}
	f.escapes = strings.IndexByte(text, '\\') >= 0
	return !f.escapes || !strings.Contains(text, `\u`)
}

// find fills the slots of a member as a walk does. It is false if the text proved
// not to be JSON.
func (f *seeker) find(kid *node, n *needle, slots []value) bool {
	at := f.member(n)
	if at < 0 {
		return true
	}
	w := walk{text: f.text, slots: slots, found: inBody}
	return w.find(kid, at) >= 0
}

// compare tells whether a value is there and compares as it shall.
func (f *seeker) compare(n *needle, c *condition) (holds, ok bool) {
	at := f.member(n)
	for i := 1; i < len(c.path) && at >= 0; i++ {
		if at == len(f.text) || f.text[at] != '{' {
			return false, true
		}
		if at, ok = memberOf(f.text, at, c.path[i]); !ok {
			return false, false
		}
	}
	if at < 0 {
		return false, true
	}
	result, end := c.text.compare(f.text, at, &c.arg)
	return c.op.holds(result), end >= 0
}

// memberOf returns where the value of an object's member begins, or -1.
func memberOf(s string, i int, name string) (value int, ok bool) {
	value = -1
	for i = space(s, i+1); i >= 0 && i < len(s); {
		if s[i] == '}' {
			return value, true
		}
		end, at := memberName(s, i)
		if at < 0 {
			return -1, false
		}
		if s[i+1:end-1] == name {
			value = at
		}
		if i = valueEnd(s, at); i >= 0 {
			i = next(s, i, '}')
		}
	}
	return -1, false
}

// member returns where the value of a member begins, that of its last occurrence
// if the name repeats, or -1.
func (f *seeker) member(n *needle) (value int) {
	text, name := f.text, n.name
	value = -1
	for start := n.next(text, f.root+2); start >= 0; start = n.next(text, start+1) {
		end := start + len(name)
		if end >= len(text) || text[end] != '"' || text[start-1] != '"' || text[start-2] == '\\' {
			continue
		}
		if end = space(text, end+1); end == len(text) || text[end] != ':' {
			continue
		}
		if f.outermost(start - 1) {
			value = space(text, end+1)
		}
	}
	return value
}

// outermost tells whether a name is one of the document's own members, from how
// many brackets are open where it stands: counted from the nearer end, since each
// that is open there is closed behind it.
func (f *seeker) outermost(name int) bool {
	inside := f.text[f.root+1:]
	if f.flat == 0 {
		f.flat = len(f.text)
		for _, c := range []byte("{[") {
			if i := strings.IndexByte(inside, c); i >= 0 {
				f.flat = min(f.flat, f.root+1+i)
			}
		}
	}
	count := openBrackets
	if f.escapes {
		count = openBracketsSlow
	}
	switch {
	case name < f.flat:
		return true
	case name < len(f.text)/2:
		return count(f.text[f.root+1:name]) == 0
	}
	return count(f.text[name:]) == -1
}

const (
	everyByte = 0x0101010101010101
	highBits  = 0x80 * everyByte
)

// equalBytes returns the high bits of the bytes of x that are c.
func equalBytes(x uint64, c byte) uint64 {
	x ^= uint64(c) * everyByte
	return ^((x&^highBits + 0x7f*everyByte) | x) & highBits
}

// openBrackets returns how many more brackets are opened than closed in a text
// without backslashes that begins and ends outside of strings.
func openBrackets(s string) int {
	open := 0
	var inside uint64 // all high bits if a string is open, else none
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for i := 0; i < len(b); i += 8 {
		var x uint64
		if i+8 <= len(b) {
			x = binary.LittleEndian.Uint64(b[i:])
		} else {
			var last [8]byte
			copy(last[:], b[i:])
			x = binary.LittleEndian.Uint64(last[:])
		}
		// How many quotes there are up to each byte: odd if a string is open behind it.
		inside ^= (equalBytes(x, '"') >> 7 * everyByte & everyByte) << 7
		// With the bit 0x20 [ becomes {, ] becomes }, and nothing else does; y and _
		// are let through here, and most words end with that.
		x |= 0x20 * everyByte
		if like := x&(0xf9*everyByte) ^ 0x79*everyByte; (like-everyByte)&^like&highBits != 0 {
			open += bits.OnesCount64(equalBytes(x, '{')&^inside) - bits.OnesCount64(equalBytes(x, '}')&^inside)
		}
		inside = uint64(int64(inside)>>63) & highBits
	}
	return open
}

// openBracketsSlow is openBrackets for text with escapes.
func openBracketsSlow(s string) (open int) {
	for i := 0; i < len(s); {
		switch s[i] {
		case '"':
			if i = stringEnd(s, i); i < 0 {
				return open
			}
			continue
		case '{', '[':
			open++
		case '}', ']':
			open--
		}
		i++
	}
	return open
}
