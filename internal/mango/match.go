package mango

import (
	"math"
	"strings"
)

// A Doc is a document as the store holds it. Its bytes must not change while a
// call uses them, and no call keeps them.
type Doc struct {
	ID   string // what the selectors' _id is
	Rev  string // what the selectors' _rev is; empty: the document has none
	Body []byte // a JSON object

	// Meta is another JSON object or empty: members that a reader of the document
	// sees though the body does not hold them, such as _deleted or _attachments.
	// They hide the body's. Only selectors with such a path look at it, so see
	// Fields before making it.
	Meta []byte

	// Valid says that Body is known to be valid JSON. What is not needed for the
	// answer is then not looked at.
	Valid bool

	// Key is the id as an element of package keys, which keys hold in its place;
	// empty: the key of the string ID.
	Key []byte
}

// Match reports whether the document matches. It walks over the body once,
// whatever the number of paths, and decodes only what conditions look at; of
// valid text not even that, see [Doc]. For many documents see [Selector.Matcher].
// Nothing is allocated, except for more than eight paths, for text with escapes
// that is longer than 64 bytes or meets a $regex, and by package regexp when it
// has no matcher at hand.
//
// A body that is not a JSON object gives a [*DocumentError], if the fault is in
// what was looked at: the members' names and separators on the way to the paths,
// the values compared, and in all the rest the pairing of brackets and quotes.
// If a name repeats on the way to a path, its last value counts; objects that are
// compared as a whole have their members as stored. A number beyond float64
// compares as an infinity. Any number of goroutines may match at once.
func (s *Selector) Match(d *Doc) (bool, error) {
	if s.never {
		return false, nil
	}
	if k := s.scope.seek; k != nil && d.Valid && len(d.Meta) == 0 {
		if failed, ok := k.try(&s.scope, d); ok {
			return failed == len(k.terms), nil
		}
	}
	return s.walk(d)
}

// walk is Match by a walk over the whole body.
func (s *Selector) walk(d *Doc) (bool, error) {
	var few [fewSlots]value
	slots := s.scope.values(&few)
	if err := s.scope.walk(d, slots); err != nil {
		return false, err
	}
	if s.root == nil {
		return true, nil
	}
	ok, whole := s.root.match(slots, &texts{d.ID, d.Rev, view(d.Body), view(d.Meta)})
	if !whole {
		return false, &DocumentError{Reason: "a value that the selector compares is not JSON"}
	}
	return ok, nil
}

// fewSlots is how many values a scope finds without allocating.
const fewSlots = 8

// A value is what a walk has found of a path: where, not the text itself, since
// a slice of texts would have to be on the heap.
type value struct {
	from, to int32
	state    state
}

type state uint8

const (
	absent  state = iota
	blocked       // on the way there is a value without members of such names
	inBody        // or in the element of an element operator
	inMeta
	isID
	isRev
)

// texts are what values are parts of.
type texts struct{ id, rev, body, meta string }

// maxDocument is the size of the largest body that is walked over.
const maxDocument = math.MaxInt32

func (s *scope) values(few *[fewSlots]value) []value {
	if s.slots <= fewSlots {
		return few[:s.slots]
	}
	return make([]value, s.slots)
}

// load finds the values of a document's paths.
func (s *scope) load(d *Doc, slots []value) error {
	if s.seek != nil && d.Valid && len(d.Meta) == 0 {
		if s.seek.load(s, d, slots) {
			return nil
		}
		clear(slots)
	}
	return s.walk(d, slots)
}

// walk is load by a walk over the whole document.
func (s *scope) walk(d *Doc, slots []value) error {
	if err := s.loadObject(d.Body, slots, inBody); err != nil {
		return err
	}
	if len(d.Meta) > 0 && s.slots > 0 {
		if err := s.loadObject(d.Meta, slots, inMeta); err != nil {
			return err
		}
	}
	s.loadIdent(s.id, d.ID, slots, isID)
	s.loadIdent(s.rev, d.Rev, slots, isRev)
	return nil
}

func (s *scope) loadObject(object []byte, slots []value, found state) error {
	text := view(object)
	if len(text) > maxDocument {
		return &DocumentError{Reason: "larger than 2 GiB"}
	}
	start := space(text, 0)
	if start == len(text) || text[start] != '{' {
		return &DocumentError{Offset: start, Reason: "not a JSON object"}
	}
	w := walk{text: text, slots: slots, found: found}
	end := w.find(&s.tree, start)
	if end >= 0 && space(text, end) == len(text) {
		return nil
	}
	return &DocumentError{Offset: max(w.at, end), Reason: "not JSON"}
}

// loadIdent puts in what the document is called.
func (s *scope) loadIdent(kid int, text string, slots []value, found state) {
	if kid < 0 {
		return
	}
	n := &s.tree.kids[kid]
	clear(slots[n.low:n.high])
	if text == "" {
		return
	}
	block(n, slots)
	if n.slot >= 0 {
		slots[n.slot] = value{state: found}
	}
}

// block marks what is below n, of which the value has no members.
func block(n *node, slots []value) {
	for i := n.low; i < n.high; i++ {
		if i != n.slot {
			slots[i] = value{state: blocked}
		}
	}
}

// A walk goes over a text and notes the values that a tree of paths asks for.
type walk struct {
	text  string
	slots []value
	found state // what found values get
	at    int   // how far it has come, for messages
}

// find walks over the value at i, which is n's, and returns the offset behind
// it, or broken. It recurses as deep as the paths are long.
func (w *walk) find(n *node, i int) int {
	end := broken
	switch {
	case i >= len(w.text):
	case w.text[i] == '{':
		end = w.object(n, i)
	case w.text[i] == '[' && len(n.kids) > 0:
		end = w.array(n, i)
	default:
		block(n, w.slots)
		end = valueEnd(w.text, i)
	}
	if end >= 0 && n.slot >= 0 {
		w.slots[n.slot] = value{int32(i), int32(end), w.found}
	}
	return end
}

func (w *walk) object(n *node, i int) int {
	if len(n.kids) == 0 && n.slot >= 0 {
		return nestedEnd(w.text, i)
	}
	s := w.text
	for i = space(s, i+1); i >= 0 && i < len(s); {
		w.at = i
		if s[i] == '}' {
			return i + 1
		}
		end, at := memberName(s, i)
		if at < 0 {
			return broken
		}
		if kid := n.member(s[i+1 : end-1]); kid == nil {
			end = valueEnd(s, at)
		} else {
			clear(w.slots[kid.low:kid.high]) // of a member of the same name
			end = w.find(kid, at)
		}
		if end < 0 {
			return broken
		}
		i = next(s, end, '}')
	}
	return broken
}

// member returns the kid of the name whose JSON, without quotes, is raw.
func (n *node) member(raw string) *node {
	if n.byName == nil {
		for i := range n.kids {
			if n.kids[i].name == raw {
				return &n.kids[i]
			}
		}
		if strings.IndexByte(raw, '\\') < 0 {
			return nil
		}
	}
	var buf [64]byte
	if i := n.find(plain(raw, buf[:])); i >= 0 {
		return &n.kids[i]
	}
	return nil
}

func (w *walk) array(n *node, i int) int {
	block(n, w.slots)
	s := w.text
	for k := 0; ; k++ {
		if k == 0 {
			i = space(s, i+1)
		}
		if i < 0 || i >= len(s) {
			return broken
		}
		w.at = i
		if s[i] == ']' {
			return i + 1
		}
		end := broken
		if kid := n.element(k); kid == nil {
			end = valueEnd(s, i)
		} else {
			clear(w.slots[kid.low:kid.high])
			end = w.find(kid, i)
		}
		if end < 0 {
			return broken
		}
		i = next(s, end, ']')
	}
}

// element returns the kid of an index.
func (n *node) element(index int) *node {
	for i := range n.kids {
		if n.kids[i].index == index {
			return &n.kids[i]
		}
	}
	return nil
}

// match reports whether the values that a walk found meet the condition. whole
// is false if one of them proved not to be JSON.
func (c *condition) match(slots []value, t *texts) (ok, whole bool) {
	switch c.op {
	case opText:
		return true, true
	case opAnd:
		for _, kid := range c.kids {
			if ok, whole := kid.match(slots, t); !ok || !whole {
				return false, whole
			}
		}
		return true, true
	case opOr:
		for _, kid := range c.kids {
			if ok, whole := kid.match(slots, t); ok || !whole {
				return ok, whole
			}
		}
		return len(c.kids) == 0, true
	}
	v := &slots[c.slot]
	switch v.state {
	case absent:
		return c.op == opExists && !c.exists, true
	case blocked:
		return false, true
	case isID:
		return c.matchIdent(t.id) != c.not, true
	case isRev:
		return c.matchIdent(t.rev) != c.not, true
	case inMeta:
		ok, whole = c.matchValue(t.meta[v.from:v.to])
	default:
		ok, whole = c.matchValue(t.body[v.from:v.to])
	}
	return ok != c.not && whole, whole
}

// matchIdent tests the document's id or revision, which is not stored as JSON.
func (c *condition) matchIdent(text string) bool {
	switch c.op {
	case opRegex:
		return c.regex.MatchString(text)
	case opBeginsWith:
		return strings.HasPrefix(text, c.arg.str)
	case opIn, opNin:
		return c.identIn(text) == (c.op == opIn)
	case opEq, opNe, opLt, opLte, opGt, opGte:
		result := 1 // behind all values of other kinds
		if c.arg.kind == kindString {
			result = strings.Compare(text, c.arg.str)
		}
		return c.op.holds(result)
	case opExists:
		return c.exists
	case opType:
		return c.kind == kindString
	}
	return false
}

func (c *condition) identIn(text string) bool {
	low, high := 0, len(c.set)
	for low < high {
		mid := int(uint(low+high) >> 1)
		result := int(kindString) - int(c.set[mid].kind)
		if result == 0 {
			result = strings.Compare(text, c.set[mid].str)
		}
		switch {
		case result == 0:
			return true
		case result < 0:
			high = mid
		default:
			low = mid + 1
		}
	}
	return false
}

// holds reports whether a comparison with such a result is true.
func (op operator) holds(result int) bool {
	switch op {
	case opEq:
		return result == 0
	case opNe:
		return result != 0
	case opLt:
		return result < 0
	case opLte:
		return result <= 0
	case opGt:
		return result > 0
	}
	return result >= 0
}

// matchValue tests a JSON value by the operator alone, not its negation.
func (c *condition) matchValue(s string) (ok, whole bool) {
	k := kindOf(s[0])
	switch c.op {
	case opEq, opNe, opLt, opLte, opGt, opGte:
		result, end := c.text.compare(s, 0, &c.arg)
		return end >= 0 && c.op.holds(result), end >= 0
	case opIn, opNin:
		in, whole := c.in(s, k)
		return in == (c.op == opIn), whole
	case opAll:
		return c.all(s, k)
	case opExists:
		return c.exists, true
	case opType:
		return k == c.kind, k != kindNone
	case opMod:
		return c.mod(s, k)
	case opSize:
		n := int64(0)
		whole := true
		if k == kindArray {
			whole = eachElement(s, func(int) bool { n++; return true })
		}
		return k == kindArray && n == c.number, whole
	case opRegex, opBeginsWith:
		if k != kindString {
			return false, true
		}
		return c.matchText(s[1 : len(s)-1]), true
	case opElemMatch, opAllMatch:
		return c.elements(s, k)
	}
	return c.keys(s, k)
}

func (c *condition) in(s string, k kind) (ok, whole bool) {
	if k != kindArray {
		place, whole := c.text.find(s, 0, c.set)
		return place >= 0, whole
	}
	sound := true
	whole = eachElement(s, func(i int) bool {
		var place int
		place, sound = c.text.find(s, i, c.set)
		ok = place >= 0
		return sound && !ok
	})
	return ok, whole && sound
}

// all reports whether an array has every member of the set.
func (c *condition) all(s string, k kind) (ok, whole bool) {
	if k != kindArray || len(c.set) == 0 {
		return false, true
	}
	if c.whole != nil {
		if result, end := c.text.compare(s, 0, c.whole); end < 0 || result == 0 {
			return end >= 0, end >= 0
		}
	}
	var few [4]uint64
	seen := few[:]
	if len(c.set) > len(few)*64 {
		seen = make([]uint64, (len(c.set)+63)/64)
	}
	left, sound := len(c.set), true
	whole = eachElement(s, func(i int) bool {
		var place int
		if place, sound = c.text.find(s, i, c.set); place < 0 {
			return sound
		}
		if bit := uint64(1) << (place % 64); seen[place/64]&bit == 0 {
			seen[place/64] |= bit
			left--
		}
		return left > 0
	})
	return left == 0, whole && sound
}

func (c *condition) mod(s string, k kind) (ok, whole bool) {
	if k != kindNumber {
		return false, true
	}
	x, whole := parseNumber(s)
	rest, integer := x.remainder(c.divisor)
	return whole && integer && rest == c.number, whole
}

// matchText tests the text of a string, which is JSON without quotes.
func (c *condition) matchText(raw string) bool {
	if c.op == opRegex {
		return c.regex.MatchString(plain(raw, nil)) // which would move buf to the heap
	}
	var buf [64]byte
	return strings.HasPrefix(plain(raw, buf[:]), c.arg.str)
}

// elements tests whether any, or all and at least one, of an array's elements match.
func (c *condition) elements(s string, k kind) (ok, whole bool) {
	if k != kindArray {
		return false, true
	}
	all, some, sound := c.op == opAllMatch, false, true
	ok = all
	whole = eachElement(s, func(i int) bool {
		some = true
		ok, sound = c.inner.matchElement(s, i)
		return sound && ok == all
	})
	return ok && some, whole && sound
}

// keys tests whether any of an object's names match.
func (c *condition) keys(s string, k kind) (ok, whole bool) {
	if k != kindObject {
		return false, true
	}
	sound := true
	for i := space(s, 1); ; {
		if i < 0 || i >= len(s) {
			return false, false
		}
		if s[i] == '}' {
			return false, true
		}
		end, at := memberName(s, i)
		if at < 0 {
			return false, false
		}
		if ok, sound = c.inner.matchElement(s[:end], i); ok || !sound {
			return ok, sound
		}
		if end = valueEnd(s, at); end < 0 {
			return false, false
		}
		i = next(s, end, '}')
	}
}

// matchElement tests the value at i against an element operator's argument.
func (s *scope) matchElement(text string, i int) (ok, whole bool) {
	if s.root == nil {
		return true, true
	}
	var few [fewSlots]value
	slots := s.values(&few)
	w := walk{text: text, slots: slots, found: inBody}
	if w.find(&s.tree, i) < 0 {
		return false, false
	}
	return s.root.match(slots, &texts{body: text})
}

// eachElement calls f with where the elements of an array begin, until f returns
// false. It returns false if the array is broken before that.
func eachElement(s string, f func(i int) bool) bool {
	for i := space(s, 1); ; {
		if i < 0 || i >= len(s) {
			return false
		}
		if s[i] == ']' {
			return true
		}
		if !f(i) {
			return true
		}
		end := valueEnd(s, i)
		if end < 0 {
			return false
		}
		i = next(s, end, ']')
	}
}
