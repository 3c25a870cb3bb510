package pot

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// A Path leads from the value of a payload to one within, for View.Find. It may
// be used with any views, for payloads of all kinds, and by many goroutines at
// once; it is quickest with payloads of one kind.
type Path struct {
	names   []string
	indices []int // the names as indices in sequences, or -1

	trail atomic.Pointer[trail] // through the payload it was made for last
	lost  atomic.Int32          // counts payloads that the trail did not fit
}

// NewPath returns a path of steps, which are those of Value.Get.
func NewPath(steps ...string) *Path {
	p := &Path{names: append([]string(nil), steps...)}
	for _, name := range p.names {
		i, err := strconv.Atoi(name)
		if err != nil {
			i = -1
		}
		p.indices = append(p.indices, i)
	}
	return p
}

// String returns the steps with dots between them.
func (p *Path) String() string { return strings.Join(p.names, ".") }

// Find views a payload and follows a path. It does what Open and then Get do,
// several times as fast where a program reads the same field of many payloads:
// it remembers how it went through an earlier one, and compares what must be
// the same then.
func (v *View) Find(payload []byte, p *Path) (Value, error) {
	if v.ready {
		r, t := &v.r, p.trail.Load()
		r.data, r.defined = payload, 0
		if r.opts.Table == nil {
			r.syms, r.shapes, r.shapeAt = r.syms[:0], r.shapes[:0], r.shapeAt[:0]
		} else if s := r.opts.Table.snap.Load(); s != v.seen {
			v.seen, r.syms, r.shapes = s, s.syms, s.shapes
		}
		pos := 0
		if t != nil && t.seen == v.seen && t.header == v.header {
			r.mode = t.mode
			pos = t.follow(payload)
		}
		if pos == 0 {
			pos = v.learn(p)
		}
		if pos > 0 {
			return Value{r: r, pos: pos}, nil
		}
	}
	root, err := v.Open(payload)
	if err != nil {
		return Value{}, err
	}
	return root.Get(p.names...)
}

// The bounds of a trail: how far it goes, in bytes, and how many names a shape may
// have that it defines. What is defined on the way need not be taken from the
// default budget, which is far more.
const (
	maxTrail = 4 << 10
	maxNames = 256
)

// scalar reports whether an atom that begins with c is a value by itself.
func scalar(c byte) bool {
	return c <= specTrue || c >= intTag && c < seqTag || c >= bytesTag
}

// always is how often a path makes a new trail at once when the last one does not
// fit; from then on it does so ever more seldom.
const always = 32

// learn goes along a path, and makes the trail of it. It returns where the path
// leads, or 0 if it takes the general way to tell. The view has been opened
// before, so that its options are known to be good.
func (v *View) learn(p *Path) int {
	if n := p.lost.Add(1); n <= 0 || n > always && n&(n-1) != 0 {
		return 0
	}
	r, pos := &v.r, 0
	if !r.opts.NoHeader {
		mode, code := modeOf(r.data)
		if code != 0 {
			return 0
		}
		r.mode, pos = mode, headerSize
	}
	w := walker{r: r}
	for i, name := range p.names {
		if pos = w.step(pos, name, p.indices[i]); pos == 0 {
			return 0
		}
	}
	switch {
	case pos >= len(r.data) || r.data[pos] == specAbsent:
		return 0
	case r.opts.Table == nil && !scalar(r.data[pos]):
		return 0 // it may refer to names, which have not been entered
	}
	t := w.trail(pos, p.trail.Load())
	t.mode, t.header, t.seen, t.scalar = r.mode, v.header, v.seen, r.opts.Table == nil
	p.trail.Store(t)
	return pos
}

// walker goes through a payload and notes what need not be the same in the next.
// Its steps return where they lead, or 0 if that is not within the input, not
// there, or takes a closer look; they lead nowhere that the general way does not.
type walker struct {
	r      *Reader
	names  []string // those that the payload defines
	shapes [][]string
	atoms  []passed
	counts []counted
}

// passed is an atom that stands for itself and that a walk only passed.
type passed struct{ from, end int }

// counted is a place behind which the input must have a number of bytes.
type counted struct{ at, least int }

func (w *walker) step(pos int, name string, index int) int {
	data := w.r.data
	kind, arg, next, code := parseHeader(data, pos)
	if code != 0 {
		return 0
	}
	left := uint64(len(data) - next)
	switch {
	case kind == kindMap && arg <= left/2:
		w.counts = append(w.counts, counted{next, 2 * int(arg)})
		return w.member(next, int(arg), name)
	case kind == kindSeq && index >= 0 && uint64(index) < arg && arg <= left:
		w.counts = append(w.counts, counted{next, int(arg)})
		return w.pass(next, index)
	case kind == kindSpecial:
		names, next := w.record(arg, next)
		if len(names) == 0 || len(names) > len(data)-next {
			return 0
		}
		w.counts = append(w.counts, counted{next, len(names)})
		if i := slices.Index(names, name); i >= 0 {
			return w.pass(next, i)
		}
	}
	return 0
}

// member goes to the member of a name among the n pairs of a map.
func (w *walker) member(pos, n int, name string) int {
	for ; n > 0; n-- {
		kind, arg, next, code := parseHeader(w.r.data, pos)
		key := ""
		switch {
		case code != 0:
			return 0
		case kind == kindSymbol:
			key, next = w.symbol(arg, next)
		case kind == kindBytes && arg <= uint64(len(w.r.data)-next):
			key = string(w.r.data[next : next+int(arg)])
			next += int(arg)
		default:
			return 0
		}
		if key == name || next == 0 {
			return next
		}
		if pos = w.pass(next, 1); pos == 0 {
			return 0
		}
	}
	return 0
}

// symbol returns the text of a symbol, and where it ends.
func (w *walker) symbol(arg uint64, pos int) (string, int) {
	id := arg >> 1
	switch table := w.r.opts.Table != nil; {
	case arg&1 == 1 && table && id < uint64(len(w.r.syms)):
		return w.r.syms[id].text, pos
	case arg&1 == 1 && id < uint64(len(w.names)):
		return w.names[id], pos
	case arg&1 == 1 || table || id > uint64(len(w.r.data)-pos):
		return "", 0
	}
	end := pos + int(id)
	if !validText(w.r.data[pos:end]) {
		return "", 0
	}
	w.names = append(w.names, string(w.r.data[pos:end]))
	return w.names[len(w.names)-1], end
}

// record returns the names of the record that a special is, and where its values
// begin.
func (w *walker) record(arg uint64, pos int) (names []string, values int) {
	switch id := arg - specShape; {
	case w.r.mode != Shapes || arg < specDefine:
	case arg == specDefine && w.r.opts.Table == nil:
		return w.definition(pos)
	case arg == specDefine:
	case id < uint64(len(w.r.shapes)):
		for _, sym := range w.r.shapes[id].ids {
			names = append(names, w.r.syms[sym].text)
		}
	case id < uint64(len(w.shapes)):
		names = w.shapes[id]
	}
	return names, pos
}

// definition reads the names of a new shape.
func (w *walker) definition(pos int) (names []string, values int) {
	kind, n, pos, code := parseHeader(w.r.data, pos)
	if code != 0 || kind != kindSeq || n > maxNames {
		return nil, 0
	}
	for range n {
		kind, arg, next, code := parseHeader(w.r.data, pos)
		if code != 0 || kind != kindSymbol {
			return nil, 0
		}
		name, end := w.symbol(arg, next)
		if end == 0 || slices.Contains(names, name) {
			return nil, 0
		}
		names, pos = append(names, name), end
	}
	w.shapes = append(w.shapes, names)
	return names, pos
}

// pass passes n values.
func (w *walker) pass(pos, n int) int {
	data := w.r.data
	for n > 0 {
		if end := atomEnd(data, pos); end > 0 && data[pos]>>5 != kindSymbol {
			w.atoms = append(w.atoms, passed{pos, end})
			pos = end
			n--
			continue
		}
		kind, arg, next, code := parseHeader(data, pos)
		if code != 0 || arg > maxTrail || next > maxTrail {
			return 0
		}
		n--
		switch kind {
		case kindSeq:
			n += int(arg)
		case kindMap:
			n += 2 * int(arg)
		case kindSymbol:
			_, next = w.symbol(arg, next)
		case kindSpecial:
			var names []string
			names, next = w.record(arg, next)
			if n += len(names); len(names) == 0 {
				return 0
			}
		default:
			return 0
		}
		if pos = next; pos == 0 {
			return 0
		}
	}
	return pos
}

// atomEnd returns where the atom at pos ends if it stands for itself, or 0. The
// end may lie behind that of the input.
func atomEnd(data []byte, pos int) int {
	if uint(pos) >= uint(len(data)) {
		return 0
	}
	c := data[pos]
	if size := int(simpleLen[c]); size > 0 {
		return pos + size
	}
	if c < bytesTag || pos+1 >= len(data) || data[pos+1] >= 0x80 {
		return 0
	}
	return pos + 2 + int(c&argMask) + int(data[pos+1])<<4
}

// A trail is the way through a payload to a value: bytes of which some are the
// same in every payload of the kind (names, the first bytes of numbers and of
// texts of a fixed length), and between them atoms of any length. It saves going
// from atom to atom, where each tells only when it is there how long it is.
type trail struct {
	mode   Mode
	header bool      // the payload has a header
	scalar bool      // the value must be one
	seen   *snapshot // of the table whose numbers the bytes are
	legs   []leg
	least  int // bytes that there must be from the value on

	heads []uint16 // the first bytes of the atoms passed
	free  []bool   // which of them differ
}

// leg is a number of bytes, of whose first eight those that are always the same
// have a mask, and then a number of atoms.
type leg struct {
	word, mask  uint64
	size, atoms int
}

// trail makes the trail of a walk to pos. Atoms begin as they did in the last
// trail, or else they are free.
func (w *walker) trail(pos int, last *trail) *trail {
	t := new(trail)
	for i, a := range w.atoms {
		head := headOf(w.r.data, a.from)
		t.heads = append(t.heads, head)
		t.free = append(t.free, last != nil && len(last.heads) == len(w.atoms) && (last.free[i] || last.heads[i] != head))
	}
	short := 0 // how much longer than one byte free atoms are
	for i := len(w.atoms) - 1; i >= 0; i-- {
		for len(w.counts) > 0 && w.counts[len(w.counts)-1].at > w.atoms[i].from {
			t.need(&w.counts, pos, short)
		}
		if a := w.atoms[i]; t.free[i] {
			short += a.end - a.from - 1
		}
	}
	for len(w.counts) > 0 {
		t.need(&w.counts, pos, short)
	}
	from, begin := 0, 0
	for i, a := range w.atoms {
		if t.free[i] {
			t.add(w.r.data, from, a.from, w.atoms[begin:i])
			t.legs[len(t.legs)-1].atoms++
			from, begin = a.end, i+1
		}
	}
	t.add(w.r.data, from, pos, w.atoms[begin:])
	return t
}

// headOf returns the first byte of an atom, and the next if it is of the header.
func headOf(data []byte, pos int) uint16 {
	head := uint16(data[pos])
	if data[pos]&moreFlag != 0 {
		head |= uint16(data[pos+1]) << 8
	}
	return head
}

// need takes the last count off the list, behind which there may be fewer bytes
// up to the value at pos than now.
func (t *trail) need(counts *[]counted, pos, fewer int) {
	last := len(*counts) - 1
	c := (*counts)[last]
	t.least = max(t.least, c.least-(pos-c.at-fewer))
	*counts = (*counts)[:last]
}

// add adds the bytes from from to end, which hold the atoms.
func (t *trail) add(data []byte, from, end int, atoms []passed) {
	if len(t.legs) == 0 || from < end {
		t.legs = append(t.legs, leg{})
	}
	l := &t.legs[len(t.legs)-1]
	for at := from; at < end; at++ {
		for len(atoms) > 0 && atoms[0].end <= at {
			atoms = atoms[1:]
		}
		if len(atoms) == 0 || at <= atoms[0].from || at == atoms[0].from+1 && data[atoms[0].from]&moreFlag != 0 {
			if l.size >= 8 {
				t.legs = append(t.legs, leg{})
				l = &t.legs[len(t.legs)-1]
			}
			l.word |= uint64(data[at]) << (8 * l.size)
			l.mask |= 0xff << (8 * l.size)
		}
		l.size++
	}
}

// follow returns where the trail leads, or 0 if it does not fit.
func (t *trail) follow(data []byte) int {
	pos := 0
	for i := range t.legs {
		l := &t.legs[i]
		if pos+8 <= len(data) {
			if (word(data[pos:pos+8])^l.word)&l.mask != 0 {
				return 0
			}
		} else if !l.ends(data, pos) {
			return 0
		}
		pos += l.size
		for n := l.atoms; n > 0; n-- {
			if pos = atomEnd(data, pos); pos == 0 {
				return 0
			}
		}
	}
	if pos >= len(data) || len(data)-pos < t.least {
		return 0
	}
	if c := data[pos]; c == specAbsent || t.scalar && !scalar(c) {
		return 0
	}
	return pos
}

// ends reports whether the leg's bytes are there at the end of the input, where
// a whole word cannot be read.
//
//go:noinline
func (l *leg) ends(data []byte, pos int) bool {
	if pos+min(l.size, 8) > len(data) {
		return false
	}
	var buf [8]byte
	copy(buf[:], data[pos:])
	return (word(buf[:])^l.word)&l.mask == 0
}
