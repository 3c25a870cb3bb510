package pot

import (
	"encoding/binary"
	"math/big"
	"slices"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// MarshalerTo is implemented by types that write themselves. MarshalPotTo must
// write exactly one value: one scalar, or one container with all its members.
type MarshalerTo interface {
	MarshalPotTo(w *Writer) error
}

// A Writer writes a payload atom by atom. It is what MarshalerTo is given, and
// is valid during that call only. Containers are announced with their number
// of members, which the caller then writes; a map's members are a key and a
// value each. A Writer belongs to one goroutine.
type Writer struct {
	buf      []byte
	start    int // of the payload within buf
	opts     EncodeOptions
	maxDepth int
	depth    int

	// symbols holds, by number of the name, 0 if the name has not been met,
	// noSymbol if the table cannot take it, or else the argument of the atom
	// that refers to the symbol. With a table the entries stay valid over many
	// payloads, without one those in touched are reset for the next.
	symbols  []uint32
	touched  []int32
	dynamic  map[string]uint32 // the same for names that no plan has
	nsymbols uint32

	// shapes holds, by number of the struct plan, 0, noShape or the shape's
	// number plus one.
	shapes        []int32
	touchedShapes []int32
	nshapes       int32
	lens          []int               // of the shapes that the payload defines
	objects       map[uint64][]object // shapes of objects without a Go type
	names         []string            // of one object, for a moment
	fresh         []int32             // symbols that came with a linked table's new shape

	// lists holds flat plans within payloads, by number of the struct plan.
	lists   []listPlan
	numbers []uint32 // of one struct, for a moment
	payload int      // counts the payloads

	before TableVersion // of a linked table, to go back to on failure
}

// object is a list of keys and its shape; the shape is -1 if it was seen once.
type object struct {
	names []string
	shape int32
}

const (
	noSymbol = 1<<32 - 1
	noShape  = -1
)

var writerPool sync.Pool

// newWriter returns a writer that appends to dst.
func newWriter(dst []byte, o *EncodeOptions) *Writer {
	pool := &writerPool
	if o.Table != nil {
		pool = &o.Table.writers
	}
	w, ok := pool.Get().(*Writer)
	if !ok {
		w = new(Writer)
	}
	w.buf, w.start, w.depth = dst, len(dst), 0
	w.opts, w.maxDepth = *o, depthLimit(o.MaxDepth)
	if o.Link {
		w.before = o.Table.Version()
	}
	return w
}

// release gives the writer back; after a failure of a linked one what the
// receiver has not seen is forgotten.
func (w *Writer) release(failed bool) {
	t := w.opts.Table
	w.buf, w.names = nil, w.names[:0]
	if t == nil {
		w.reset()
		writerPool.Put(w)
		return
	}
	if failed && w.opts.Link {
		t.truncate(w.before)
		return
	}
	t.writers.Put(w)
}

// reset forgets the symbols and shapes of a payload.
func (w *Writer) reset() {
	for _, n := range w.touched {
		w.symbols[n] = 0
	}
	for _, n := range w.touchedShapes {
		w.shapes[n] = 0
	}
	w.touched, w.touchedShapes = w.touched[:0], w.touchedShapes[:0]
	w.nsymbols, w.nshapes, w.lens = 0, 0, w.lens[:0]
	w.payload++
	if len(w.dynamic) > 0 {
		clear(w.dynamic)
	}
	if len(w.objects) > 0 {
		clear(w.objects)
	}
	w.opts.Unions = nil
}

// header appends the payload's first four bytes.
func (w *Writer) header() {
	if !w.opts.NoHeader {
		w.buf = append(w.buf, 'P', 'o', 't', w.opts.Mode.version())
	}
}

// Mode returns the mode of the payload.
func (w *Writer) Mode() Mode { return w.opts.Mode }

// WriteNone writes the absence of a value: nil, null.
func (w *Writer) WriteNone() { w.buf = append(w.buf, specNone) }

// WriteUnit writes the value of a type that has only one.
func (w *Writer) WriteUnit() { w.buf = append(w.buf, specUnit) }

// WriteBool writes a truth value.
func (w *Writer) WriteBool(v bool) { w.buf = appendBool(w.buf, v) }

// WriteInt writes a signed integer.
func (w *Writer) WriteInt(v int64) { w.buf = appendInt(w.buf, v) }

// WriteUint writes an unsigned integer.
func (w *Writer) WriteUint(v uint64) { w.buf = appendUint(w.buf, v) }

// WriteBigInt writes an integer of up to 128 bits: signed if it fits in as
// many signed bits, else unsigned. It fails with ErrRange.
func (w *Writer) WriteBigInt(v *big.Int) error {
	x, ok := wideFromBig(v)
	if !ok {
		return encodeError(ErrRange, "%d bits", v.BitLen())
	}
	w.buf = appendWide(w.buf, x)
	return nil
}

// WriteFloat64 writes a float, narrowed to four or two bytes if nothing is lost.
func (w *Writer) WriteFloat64(v float64) { w.buf = appendFloat64(w.buf, v) }

// WriteFloat32 writes a float, narrowed to two bytes if nothing is lost.
func (w *Writer) WriteFloat32(v float32) { w.buf = appendFloat32(w.buf, v) }

// WriteText writes a string. It fails with ErrUTF8.
func (w *Writer) WriteText(v string) (err error) {
	w.buf, err = appendValidText(w.buf, v)
	return err
}

// WriteBytes writes bytes. The format has one kind for text and bytes.
func (w *Writer) WriteBytes(v []byte) {
	w.buf = append(appendHeader(w.buf, kindBytes, uint64(len(v))), v...)
}

// WriteSeq begins a sequence of n values.
func (w *Writer) WriteSeq(n int) { w.buf = appendHeader(w.buf, kindSeq, uint64(n)) }

// WriteMap begins a map of n pairs.
func (w *Writer) WriteMap(n int) { w.buf = appendHeader(w.buf, kindMap, uint64(n)) }

// WriteOpenMap begins a map whose number of pairs is not known; CloseMap ends it.
func (w *Writer) WriteOpenMap() { w.buf = append(w.buf, specDynMap) }

// CloseMap ends a map begun with WriteOpenMap.
func (w *Writer) CloseMap() { w.buf = append(w.buf, specDynEnd) }

// WriteSymbol writes a name as a symbol: the key of a struct's member. It
// fails with ErrUTF8.
func (w *Writer) WriteSymbol(name string) error {
	if !utf8.ValidString(name) {
		return encodeError(ErrUTF8, "symbol %q", name)
	}
	w.buf = w.appendName(w.buf, name)
	return nil
}

// WriteVariant begins a variant of an enum; its value must follow. It fails
// with ErrUTF8.
func (w *Writer) WriteVariant(name string) error {
	w.buf = append(w.buf, specNamed)
	return w.WriteSymbol(name)
}

// WriteUnitVariant writes a variant that has no value. It fails with ErrUTF8.
func (w *Writer) WriteUnitVariant(name string) error {
	if w.opts.Mode == Full {
		return w.WriteVariant(name)
	}
	return w.WriteSymbol(name)
}

// Write writes any Go value, as Marshal does.
func (w *Writer) Write(v any) error {
	b, err := w.appendAny(w.buf, v)
	if err == nil {
		w.buf = b
	}
	return err
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, specTrue)
	}
	return append(b, specFalse)
}

func appendText(b []byte, s string) []byte {
	return append(appendHeader(b, kindBytes, uint64(len(s))), s...)
}

func appendValidText(b []byte, s string) ([]byte, error) {
	if from := len(b); cap(b)-from >= len(s)+leafRoom {
		if b, end := putText(b[:cap(b)], from, s, leafRoom); end > 0 {
			return b[:end], nil
		}
	}
	if !validText(unsafe.Slice(unsafe.StringData(s), len(s))) {
		return b, encodeError(ErrUTF8, "string of %d bytes", len(s))
	}
	return appendText(b, s), nil
}

// appendKey appends the symbol of a struct's member.
func (w *Writer) appendKey(b []byte, f *field) []byte {
	if int(f.num) < len(w.symbols) {
		switch arg := w.symbols[f.num]; {
		case arg == 0:
		case arg <= argMask:
			return append(b, symbolTag|byte(arg))
		default:
			return appendKnown(b, arg, f.name)
		}
	}
	return w.appendFirst(b, f)
}

func appendKnown(b []byte, arg uint32, name string) []byte {
	if arg == noSymbol {
		return appendText(b, name)
	}
	return appendHeader(b, kindSymbol, uint64(arg))
}

// appendFirst appends the key of a struct's member that has not been met yet.
func (w *Writer) appendFirst(b []byte, f *field) []byte {
	if w.opts.Table != nil || int(f.num) >= len(w.symbols) {
		return w.appendNew(b, f.num, f.name)
	}
	w.symbols[f.num] = w.nsymbols<<1 | 1
	w.nsymbols++
	w.touched = append(w.touched, f.num)
	return append(b, f.symbol...)
}

// appendNew numbers the name and appends the atom that defines it or, with a
// table, refers to it.
func (w *Writer) appendNew(b []byte, num int32, name string) []byte {
	for int(num) >= len(w.symbols) {
		w.symbols = append(w.symbols, 0)
	}
	b, arg := w.define(b, name)
	w.symbols[num] = arg
	if w.opts.Table == nil {
		w.touched = append(w.touched, num)
	}
	return b
}

// appendName appends the symbol of a name that may belong to no plan.
func (w *Writer) appendName(b []byte, name string) []byte {
	if num := registry.number(name); num >= 0 {
		if int(num) < len(w.symbols) && w.symbols[num] != 0 {
			return appendKnown(b, w.symbols[num], name)
		}
		return w.appendNew(b, num, name)
	}
	if arg := w.dynamic[name]; arg != 0 {
		return appendKnown(b, arg, name)
	}
	if w.dynamic == nil {
		w.dynamic = make(map[string]uint32)
	}
	b, arg := w.define(b, name)
	w.dynamic[name] = arg
	return b
}

// define finds a number for a name and appends the atom for its first use. It
// returns the argument of the atom for later uses.
func (w *Writer) define(b []byte, name string) ([]byte, uint32) {
	if t := w.opts.Table; t != nil {
		id, added, ok := t.symbol(name)
		if !ok {
			return appendText(b, name), noSymbol
		}
		arg := uint32(id)<<1 | 1
		if !added || !w.opts.Link {
			return appendHeader(b, kindSymbol, uint64(arg)), arg
		}
		return append(appendHeader(b, kindSymbol, uint64(len(name))*2), name...), arg
	}
	arg := w.nsymbols<<1 | 1
	w.nsymbols++
	return append(appendHeader(b, kindSymbol, uint64(len(name))*2), name...), arg
}

// structShape returns the shape of a struct, appending its definition if the
// payload must hold one. It returns noShape if the struct has to be a map.
func (w *Writer) structShape(b []byte, st *structPlan) ([]byte, int32) {
	for st.num >= len(w.shapes) {
		w.shapes = append(w.shapes, 0)
	}
	id := int32(noShape)
	switch t := w.opts.Table; {
	case st.rest != nil || len(st.fields) == 0:
	case t == nil:
		w.touchedShapes = append(w.touchedShapes, int32(st.num))
		id = w.nshapes
		w.nshapes++
		w.lens = append(w.lens, len(st.fields))
		b = appendHeader(append(b, specDefine), kindSeq, uint64(len(st.fields)))
		for i := range st.fields {
			b = w.appendKey(b, &st.fields[i])
		}
		w.shapes[st.num] = id + 1
		return b, id | definedHere
	default:
		var added, ok bool
		if id, added, ok = w.tableShape(t, st.names, true); !ok {
			id = noShape
		} else if added && w.opts.Link {
			w.shapes[st.num] = id + 1
			return w.defineLinked(b, st.names), id | definedHere
		}
	}
	w.shapes[st.num] = noShape
	if id >= 0 {
		w.shapes[st.num] = id + 1
	}
	return b, id
}

// definedHere marks a shape whose definition was just written, after which the
// values follow without a reference to it.
const definedHere = 1 << 30

// tableShape looks a shape up. A linked table adds its symbols one by one when
// the definition is written, so that the receiver numbers them alike.
func (w *Writer) tableShape(t *Table, names []string, typed bool) (id int32, added, ok bool) {
	if !w.opts.Link {
		return t.shape(names, typed)
	}
	before := t.Version()
	id, added, ok = t.shape(names, typed)
	if !ok || !added {
		return id, added, ok
	}
	// The symbols that came with the shape are defined within its definition.
	for i := before.Symbols; i < t.Version().Symbols; i++ {
		w.fresh = append(w.fresh, int32(i))
	}
	return id, true, true
}

// defineLinked appends the definition of a shape that a linked table just got.
func (w *Writer) defineLinked(b []byte, names []string) []byte {
	b = appendHeader(append(b, specDefine), kindSeq, uint64(len(names)))
	for _, name := range names {
		id, _, _ := w.opts.Table.symbol(name)
		if slices.Contains(w.fresh, id) {
			b = append(appendHeader(b, kindSymbol, uint64(len(name))*2), name...)
		} else {
			b = appendHeader(b, kindSymbol, uint64(id)<<1|1)
		}
	}
	w.fresh = w.fresh[:0]
	return b
}

// appendRecord begins a record of a shape, unless its definition has done so.
func appendRecord(b []byte, id int32) []byte {
	if id&definedHere != 0 {
		return b
	}
	return appendHeader(b, kindSpecial, uint64(specShape+id))
}

// objectShape is structShape for objects without a Go type. Within one payload
// a list of keys becomes a shape when it is met for the second time.
func (w *Writer) objectShape(b []byte, names []string) ([]byte, int32) {
	if len(names) == 0 {
		return b, noShape
	}
	if t := w.opts.Table; t != nil {
		id, added, ok := w.tableShape(t, names, false)
		switch {
		case !ok:
			return b, noShape
		case added && w.opts.Link:
			return w.defineLinked(b, names), id | definedHere
		}
		return b, id
	}
	if w.objects == nil {
		w.objects = make(map[uint64][]object)
	}
	h := hashNames(names)
	for i, o := range w.objects[h] {
		if !slices.Equal(o.names, names) {
			continue
		}
		if o.shape >= 0 {
			return b, o.shape
		}
		id := w.nshapes
		w.nshapes++
		w.lens = append(w.lens, len(names))
		w.objects[h][i].shape = id
		b = appendHeader(append(b, specDefine), kindSeq, uint64(len(names)))
		for _, name := range names {
			b = w.appendName(b, name)
		}
		return b, id | definedHere
	}
	w.objects[h] = append(w.objects[h], object{names: slices.Clone(names), shape: -1})
	return b, noShape
}

// wideFromBig converts if v fits in 128 bits.
func wideFromBig(v *big.Int) (wide, bool) {
	var buf [16]byte
	if v.BitLen() > 128 {
		return wide{}, false
	}
	v.FillBytes(buf[:])
	w := wide{hi: binary.BigEndian.Uint64(buf[:8]), lo: binary.BigEndian.Uint64(buf[8:])}
	if v.Sign() >= 0 {
		return w.preferSigned(), true
	}
	w.lo = -w.lo
	w.hi = ^w.hi
	if w.lo == 0 {
		w.hi++
	}
	w.signed = true
	return w, int64(w.hi) < 0 && v.BitLen() <= 128
}

// big converts to a big integer.
func (w wide) big() *big.Int {
	hi, lo, neg := w.hi, w.lo, w.negative()
	if neg {
		lo = -lo
		hi = ^hi
		if lo == 0 {
			hi++
		}
	}
	var buf [16]byte
	binary.BigEndian.PutUint64(buf[:8], hi)
	binary.BigEndian.PutUint64(buf[8:], lo)
	v := new(big.Int).SetBytes(buf[:])
	if neg {
		v.Neg(v)
	}
	return v
}
