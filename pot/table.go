package pot

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// A Table holds symbols and shapes that outlive a payload: the names that many
// documents share. With one, a document carries no field names at all.
//
// A table only grows; what it holds never changes its number. Encoding adds
// what is missing, and Version tells whether it has grown: a table must reach
// stable storage, or the reader, before any payload that was written with it.
// Any number of goroutines may use a table at once, except with the options'
// Link, which give it to one sender or one receiver.
//
// In mode Shapes structs are added to the table when they are first met, and
// objects without a Go type (from JSON, from CBOR, of type map[string]any) when
// the same list of keys is met for the second time within the last few hundred
// different ones, so that maps whose keys are values do not fill the table;
// until then they are written with their keys in place. In the other modes the
// names of structs, and of objects from JSON and CBOR, are added when they are
// first met; those of a struct's fields that are left out may come with them.
// What the table cannot take any more because of its limits is written with names
// in place, too.
type Table struct {
	opts TableOptions

	// snap is what decoders see; they take no lock. Its slices only grow, and
	// new entries are published by a new snapshot.
	snap atomic.Pointer[snapshot]

	// writers holds idle encoders whose caches of this table's numbers remain
	// valid, since numbers never change.
	writers sync.Pool

	// flat holds flat plans by number of the struct plan. The lists are replaced,
	// not changed.
	flat [2]atomic.Pointer[[]*flatPlan]

	mu        sync.RWMutex // guards all below, and the making of snapshots
	bySymbol  map[string]int32
	byNames   map[uint64][]int32 // shapes by a hash of their names
	textBytes int
	seen      [256]uint64 // hashes of lists of keys that were met once
}

// TableOptions bounds a table. The zero value, or a nil pointer, is the default.
type TableOptions struct {
	// MaxSymbols and MaxShapes bound the entries; 0 means 16,384 and 2,048.
	MaxSymbols, MaxShapes int
	// MaxTextBytes bounds the text of all symbols together; 0 means 1 MiB.
	MaxTextBytes int
	// MaxFields bounds the fields of one shape; 0 means 256.
	MaxFields int
	// Eager adds the keys of objects without a Go type when they are first
	// met. The table is then a function of the values encoded, whatever
	// happened before in the process.
	Eager bool
}

// TableVersion says how far a table has grown.
type TableVersion struct {
	Symbols, Shapes int
}

// Covers reports whether a table of version v holds all that one of version o does.
func (v TableVersion) Covers(o TableVersion) bool {
	return v.Symbols >= o.Symbols && v.Shapes >= o.Shapes
}

// snapshot is the content of a table at one version.
type snapshot struct {
	syms   []sym
	shapes []*shape
}

// sym is a symbol: its text, and the number that plans know it by, or -1.
type sym struct {
	text string
	num  int32 // atomic in tables
	own  bool  // text does not point into the input
}

// shape is the list of a record's symbols.
type shape struct {
	ids   []uint32
	bound atomic.Pointer[binding]
}

// binding says which field of a struct each entry of a shape is, -1 for none.
// Bindings of one shape form a list, newest first.
type binding struct {
	st      *structPlan
	fields  []int32
	missing []int32 // fields that the shape does not have
	next    *binding
}

var hashSeed = maphash.MakeSeed()

// NewTable returns an empty table.
func NewTable(opts *TableOptions) *Table {
	t := &Table{bySymbol: make(map[string]int32), byNames: make(map[uint64][]int32)}
	if opts != nil {
		t.opts = *opts
	}
	for _, d := range []struct {
		limit *int
		value int
	}{{&t.opts.MaxSymbols, 1 << 14}, {&t.opts.MaxShapes, 1 << 11}, {&t.opts.MaxTextBytes, 1 << 20}, {&t.opts.MaxFields, 256}} {
		if *d.limit <= 0 {
			*d.limit = d.value
		}
	}
	t.snap.Store(new(snapshot))
	return t
}

// Version returns how far the table has grown.
func (t *Table) Version() TableVersion {
	s := t.snap.Load()
	return TableVersion{Symbols: len(s.syms), Shapes: len(s.shapes)}
}

// Symbols returns the symbols in order of their numbers.
func (t *Table) Symbols() []string {
	s := t.snap.Load()
	out := make([]string, len(s.syms))
	for i := range s.syms {
		out[i] = s.syms[i].text
	}
	return out
}

// Shapes returns the lists of names in order of their numbers.
func (t *Table) Shapes() [][]string {
	s := t.snap.Load()
	out := make([][]string, len(s.shapes))
	for i, sh := range s.shapes {
		for _, id := range sh.ids {
			out[i] = append(out[i], s.syms[id].text)
		}
	}
	return out
}

// AddSymbols adds symbols that the table does not hold yet.
func (t *Table) AddSymbols(names ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		if _, _, err := t.addSymbol(n); err != nil {
			return err
		}
	}
	return nil
}

// AddShape adds a shape if the table does not hold it yet.
func (t *Table) AddShape(names ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.addShape(names)
	return err
}

// symbol returns the number of a text, adding it if need be. It fails if the
// table is full.
func (t *Table) symbol(text string) (id int32, added, ok bool) {
	t.mu.RLock()
	id, ok = t.bySymbol[text]
	t.mu.RUnlock()
	if ok {
		return id, false, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	id, added, err := t.addSymbol(text)
	return id, added, err == nil
}

// shape returns the number of a list of names. If the table lacks it, typed
// lists are added at once and others when they are seen again.
func (t *Table) shape(names []string, typed bool) (id int32, added, ok bool) {
	h := hashNames(names)
	t.mu.RLock()
	id, ok = t.findShape(h, names)
	t.mu.RUnlock()
	if ok {
		return id, false, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok = t.findShape(h, names); ok {
		return id, false, true
	}
	if !typed && !t.opts.Eager && t.seen[h%uint64(len(t.seen))] != h {
		t.seen[h%uint64(len(t.seen))] = h
		return 0, false, false
	}
	id, err := t.addShape(names)
	return id, true, err == nil
}

// hashNames needs to be the same within one process only.
func hashNames(names []string) uint64 {
	h := uint64(len(names)) + 1
	for _, n := range names {
		h = h*0x9e3779b97f4a7c15 ^ maphash.String(hashSeed, n)
	}
	return h
}

// findShape needs t.mu.
func (t *Table) findShape(h uint64, names []string) (int32, bool) {
	s := t.snap.Load()
	for _, id := range t.byNames[h] {
		if ids := s.shapes[id].ids; len(ids) == len(names) {
			same := true
			for i := range ids {
				same = same && s.syms[ids[i]].text == names[i]
			}
			if same {
				return id, true
			}
		}
	}
	return 0, false
}

// addSymbol needs t.mu.
func (t *Table) addSymbol(text string) (id int32, added bool, err error) {
	if id, ok := t.bySymbol[text]; ok {
		return id, false, nil
	}
	s := t.snap.Load()
	switch {
	case !utf8.ValidString(text):
		return 0, false, encodeError(ErrUTF8, "symbol %q", text)
	case len(s.syms) >= t.opts.MaxSymbols || t.textBytes+len(text) > t.opts.MaxTextBytes:
		return 0, false, encodeError(ErrTable, "no room for symbol %q", text)
	}
	text = strings.Clone(text)
	id = int32(len(s.syms))
	t.bySymbol[text] = id
	t.textBytes += len(text)
	t.snap.Store(&snapshot{syms: appendSym(s.syms, text), shapes: s.shapes})
	return id, true, nil
}

// appendSym appends without a race with those who number entries of the old slice.
func appendSym(syms []sym, text string) []sym {
	if len(syms) == cap(syms) {
		grown := make([]sym, len(syms), 2*len(syms)+8)
		for i := range syms {
			grown[i] = sym{text: syms[i].text, num: atomic.LoadInt32(&syms[i].num), own: true}
		}
		syms = grown
	}
	return append(syms, sym{text: text, num: -1, own: true})
}

// addShape needs t.mu.
func (t *Table) addShape(names []string) (int32, error) {
	h := hashNames(names)
	if id, ok := t.findShape(h, names); ok {
		return id, nil
	}
	s := t.snap.Load()
	switch {
	case len(names) == 0 || len(names) > t.opts.MaxFields:
		return 0, encodeError(ErrTable, "a shape of %d names", len(names))
	case len(s.shapes) >= t.opts.MaxShapes:
		return 0, encodeError(ErrTable, "no room for another shape")
	}
	before := t.Version()
	sh := &shape{ids: make([]uint32, len(names))}
	for i, n := range names {
		id, _, err := t.addSymbol(n)
		if err == nil && slices.Contains(sh.ids[:i], uint32(id)) {
			err = encodeError(ErrTable, "name %q twice in a shape", n)
		}
		if err != nil {
			t.truncateLocked(before)
			return 0, err
		}
		sh.ids[i] = uint32(id)
	}
	s = t.snap.Load()
	id := int32(len(s.shapes))
	t.byNames[h] = append(t.byNames[h], id)
	t.snap.Store(&snapshot{syms: s.syms, shapes: append(s.shapes, sh)})
	return id, nil
}

// truncate takes back what was added after version v. Only linked tables are
// ever taken back, which one sender or receiver has for itself.
func (t *Table) truncate(v TableVersion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.truncateLocked(v)
}

func (t *Table) truncateLocked(v TableVersion) {
	s := t.snap.Load()
	for i := range s.syms[v.Symbols:] {
		text := s.syms[v.Symbols+i].text
		delete(t.bySymbol, text)
		t.textBytes -= len(text)
	}
	for h, ids := range t.byNames {
		if v.Shapes == len(s.shapes) {
			break
		}
		t.byNames[h] = slices.DeleteFunc(ids, func(id int32) bool { return int(id) >= v.Shapes })
	}
	// The capacity is cut as well, so that no other snapshot's entries are overwritten.
	t.snap.Store(&snapshot{syms: slices.Clip(s.syms[:v.Symbols]), shapes: slices.Clip(s.shapes[:v.Shapes])})
}

// AppendBinary appends the table's serialized form: without shapes that of the
// persistent symbol maps of Pot 3, else a payload of mode Shapes that holds the
// texts of the symbols and, per shape, the numbers of its symbols.
func (t *Table) AppendBinary(dst []byte) ([]byte, error) {
	s := t.snap.Load()
	if len(s.shapes) == 0 {
		dst = append(dst, 'P', 'o', 't', versionFull)
		return appendTexts(dst, s.syms), nil
	}
	dst = append(dst, 'P', 'o', 't', versionShapes)
	dst = appendHeader(dst, kindSeq, 2)
	return appendShapeIDs(appendTexts(dst, s.syms), s.shapes), nil
}

// MarshalBinary returns what AppendBinary appends.
func (t *Table) MarshalBinary() ([]byte, error) { return t.AppendBinary(nil) }

// AppendSince appends what was added after version v, for Apply, and returns
// the version that a table has after that.
func (t *Table) AppendSince(dst []byte, v TableVersion) ([]byte, TableVersion, error) {
	s := t.snap.Load()
	now := TableVersion{Symbols: len(s.syms), Shapes: len(s.shapes)}
	if !now.Covers(v) || v.Symbols < 0 || v.Shapes < 0 {
		return dst, now, encodeError(ErrTable, "version %v is later than %v", v, now)
	}
	dst = append(dst, 'P', 'o', 't', versionShapes)
	dst = appendHeader(dst, kindSeq, 4)
	dst = appendUint(appendUint(dst, uint64(v.Symbols)), uint64(v.Shapes))
	return appendShapeIDs(appendTexts(dst, s.syms[v.Symbols:]), s.shapes[v.Shapes:]), now, nil
}

func appendTexts(dst []byte, syms []sym) []byte {
	dst = appendHeader(dst, kindSeq, uint64(len(syms)))
	for i := range syms {
		dst = append(appendHeader(dst, kindBytes, uint64(len(syms[i].text))), syms[i].text...)
	}
	return dst
}

func appendShapeIDs(dst []byte, shapes []*shape) []byte {
	dst = appendHeader(dst, kindSeq, uint64(len(shapes)))
	for _, sh := range shapes {
		dst = appendHeader(dst, kindSeq, uint64(len(sh.ids)))
		for _, id := range sh.ids {
			dst = appendUint(dst, uint64(id))
		}
	}
	return dst
}

// UnmarshalBinary does what Apply does. It makes an empty table out of a zero
// Table, which is not usable otherwise.
func (t *Table) UnmarshalBinary(data []byte) error {
	if t.snap.Load() == nil {
		n := NewTable(nil)
		t.opts, t.bySymbol, t.byNames = n.opts, n.bySymbol, n.byNames
		t.snap.Store(n.snap.Load())
	}
	return t.Apply(data)
}

// Apply adds the content of a serialized table, or of what AppendSince wrote.
// Where both hold an entry of the same number, the entries must be equal; an
// input that contradicts the table, or leaves a gap, changes nothing and gives
// an error with ErrTable. It costs a pass over both.
func (t *Table) Apply(data []byte) error {
	base, texts, shapes, err := parseTable(data)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.Version()
	if err := t.apply(base, texts, shapes); err != nil {
		t.truncateLocked(before)
		return err
	}
	return nil
}

// Merge adds what o holds beyond t. One of the two must begin with all that the
// other holds.
func (t *Table) Merge(o *Table) error {
	s := o.snap.Load()
	data := appendHeader([]byte{'P', 'o', 't', versionShapes}, kindSeq, 2)
	return t.Apply(appendShapeIDs(appendTexts(data, s.syms), s.shapes))
}

// apply needs t.mu.
func (t *Table) apply(base TableVersion, texts []string, shapes [][]uint32) error {
	now := t.Version()
	if base.Symbols > now.Symbols || base.Shapes > now.Shapes {
		return encodeError(ErrTable, "it continues version %v of a table, this one is at %v", base, now)
	}
	for i, text := range texts {
		want := base.Symbols + i
		if want < now.Symbols {
			if have := t.snap.Load().syms[want].text; have != text {
				return encodeError(ErrTable, "symbol %d is %q here and %q there", want, have, text)
			}
			continue
		}
		if _, added, err := t.addSymbol(text); err != nil {
			return err
		} else if !added {
			return encodeError(ErrTable, "symbol %q twice", text)
		}
	}
	for i, ids := range shapes {
		names := make([]string, len(ids))
		syms := t.snap.Load().syms
		for j, id := range ids {
			if int(id) >= len(syms) {
				return encodeError(ErrTable, "shape %d refers to symbol %d", base.Shapes+i, id)
			}
			names[j] = syms[id].text
		}
		id, err := t.addShape(names)
		if err != nil {
			return err
		}
		if int(id) != base.Shapes+i {
			return encodeError(ErrTable, "shape %d is shape %d here", base.Shapes+i, id)
		}
	}
	return nil
}

// parseTable reads the three forms of a serialized table.
func parseTable(data []byte) (base TableVersion, texts []string, shapes [][]uint32, err error) {
	r := newReader(data, &DecodeOptions{})
	defer r.release()
	fail := func(err error) (TableVersion, []string, [][]uint32, error) {
		return base, nil, nil, &Error{Code: ErrTable, Offset: int64(r.pos), Err: err}
	}
	if err := r.readHeader(); err != nil {
		return fail(err)
	}
	if r.mode != Shapes {
		if err := r.decode(&texts, false); err != nil {
			return fail(err)
		}
		return base, texts, nil, r.end()
	}
	n, err := r.ReadSeq()
	if err == nil && n == 4 {
		if err = r.decode(&base.Symbols, false); err == nil {
			err = r.decode(&base.Shapes, false)
		}
		n -= 2
	}
	if err == nil && (n != 2 || base.Symbols < 0 || base.Shapes < 0) {
		err = fmt.Errorf("neither a table nor an addition to one")
	}
	if err == nil {
		err = r.decode(&texts, false)
	}
	if err == nil {
		err = r.decode(&shapes, false)
	}
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return fail(err)
	}
	return base, texts, shapes, nil
}
