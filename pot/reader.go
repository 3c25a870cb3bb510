package pot

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"
	"unsafe"
)

// UnmarshalerFrom is implemented by types that read themselves.
// UnmarshalPotFrom must read exactly one value. It may be called more than once
// for one value when a Decoder waits for more input.
type UnmarshalerFrom interface {
	UnmarshalPotFrom(r *Reader) error
}

// A Reader reads a payload atom by atom. It is what UnmarshalerFrom is given,
// and is valid during that call only. A Reader belongs to one goroutine.
//
// Its methods convert as decoding does: none and unit are the zero of every
// type, integers of either kind are read as the other if they fit, a float is
// read from a signed integer, and text from a symbol. They fail with
// ErrTruncated, ErrSyntax, ErrType, ErrRange, ErrUTF8, ErrBudget, ErrDepth,
// ErrSymbol or ErrShape.
type Reader struct {
	data     []byte
	pos      int
	mode     Mode
	opts     DecodeOptions
	depth    int
	maxDepth int
	budget   int64

	// syms and shapes are those of the table or, without one, of the payload.
	// Definitions before defined have been entered already: values may be
	// visited twice, but a definition counts once.
	syms    []sym
	shapes  []*shape
	defined int
	shapeAt []int        // where the payload's shapes are defined, ascending
	before  TableVersion // of the table when reading began

	wipe   bool   // the value is decoded over the remains of another
	chunk  []byte // room for copies of short strings
	intern *[256]string
	scan   scanner
	own    []sym // memory of syms without a table

	// strange is the struct whose flat plan did not fit last time, and patience
	// how many payloads of it are not tried by the plan.
	strange  *structPlan
	patience int

	spare  []*shape // shapes of earlier payloads, to be used again
	places [8]place // of a view
}

// What a reader keeps for the next payload is bounded.
const (
	maxSpareShapes  = 64
	maxSpareSymbols = 1 << 12
)

var readerPool = sync.Pool{New: func() any { return new(Reader) }}

func newReader(data []byte, o *DecodeOptions) *Reader {
	r := readerPool.Get().(*Reader)
	r.data, r.pos, r.depth, r.defined, r.wipe = data, 0, 0, 0, false
	r.opts, r.mode = *o, o.Mode
	r.maxDepth, r.budget = depthLimit(o.MaxDepth), o.budget(len(data))
	r.syms, r.shapes, r.shapeAt = r.own[:0], r.shapes[:0], r.shapeAt[:0]
	r.before = TableVersion{}
	if t := o.Table; t != nil {
		r.useTable()
		r.before = TableVersion{Symbols: len(r.syms), Shapes: len(r.shapes)}
	}
	return r
}

func (r *Reader) useTable() {
	s := r.opts.Table.snap.Load()
	r.syms, r.shapes = s.syms, s.shapes
}

// release gives the reader back. Strings that were copied into its chunk stay.
func (r *Reader) release() {
	if r.opts.Table == nil {
		r.own = r.syms
		clear(r.own)
		if cap(r.own) > maxSpareSymbols {
			r.own = nil
		}
		if len(r.shapes) > 0 {
			if len(r.spare)+len(r.shapes) <= maxSpareShapes {
				r.spare = append(r.spare, r.shapes...)
			}
			clear(r.shapes)
			r.shapes = r.shapes[:0]
		}
	} else {
		r.shapes = nil
	}
	if r.intern != nil {
		clear(r.intern[:])
	}
	r.data, r.syms = nil, nil
	if r.opts.Table != nil || r.opts.Unions != nil { // the others hold nothing
		r.opts = DecodeOptions{}
	}
	readerPool.Put(r)
}

// readHeader reads the payload's first four bytes, if there shall be any.
func (r *Reader) readHeader() error {
	if r.opts.NoHeader {
		return nil
	}
	mode, code := modeOf(r.data)
	if code != 0 {
		return errAt(code, min(len(r.data), headerSize-1), "want \"Pot\" and a version of 0, 1 or 128")
	}
	r.mode, r.pos = mode, headerSize
	return nil
}

// modeOf reads a payload's header.
func modeOf(data []byte) (Mode, Code) {
	if len(data) < headerSize || data[0] != 'P' || data[1] != 'o' || data[2] != 't' {
		return 0, ErrHeader
	}
	switch data[3] {
	case versionFull:
		return Full, 0
	case versionV4:
		return V4, 0
	case versionShapes:
		return Shapes, 0
	}
	return 0, ErrHeader
}

// end fails if bytes are left.
func (r *Reader) end() error {
	if r.pos != len(r.data) {
		return errAt(ErrTrailing, r.pos, "%d bytes", len(r.data)-r.pos)
	}
	return nil
}

// Mode returns the mode of the payload.
func (r *Reader) Mode() Mode { return r.mode }

// Offset returns the place of the next atom within the payload.
func (r *Reader) Offset() int { return r.pos }

func (r *Reader) fail(code Code, format string, args ...any) error {
	return errAt(code, r.pos, format, args...)
}

func codeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ErrMarshaler
}

// charge takes n bytes from the budget.
func (r *Reader) charge(n int) error {
	if r.budget -= int64(n); r.budget < 0 {
		return r.fail(ErrBudget, "it would take another %d bytes", n)
	}
	return nil
}

// chargeElems takes n elements of a size from the budget.
func (r *Reader) chargeElems(n int, size uintptr) error {
	if size > 0 && uint64(n) > uint64(1<<62)/uint64(size) {
		return r.fail(ErrBudget, "%d elements", n)
	}
	return r.charge(n * int(size))
}

// enter counts a level of nesting; every success is paired with r.depth--.
func (r *Reader) enter() error {
	if r.depth >= r.maxDepth {
		return r.fail(ErrDepth, "more than %d levels", r.maxDepth)
	}
	r.depth++
	return nil
}

// header reads an atom's header and leaves r.pos at its payload. On failure
// r.pos stays.
func (r *Reader) header() (kind byte, arg uint64, err error) {
	if uint(r.pos) < uint(len(r.data)) {
		if c := r.data[r.pos]; c&moreFlag == 0 {
			r.pos++
			return c >> 5, uint64(c & argMask), nil
		}
	}
	kind, arg, next, code := parseHeader(r.data, r.pos)
	if code != 0 {
		return 0, 0, r.fail(code, "atom header")
	}
	r.pos = next
	return kind, arg, nil
}

// take returns the next n bytes.
func (r *Reader) take(n uint64, what string) ([]byte, error) {
	if n > uint64(len(r.data)-r.pos) {
		return nil, r.fail(ErrTruncated, "%s of %d bytes", what, n)
	}
	b := r.data[r.pos : r.pos+int(n) : r.pos+int(n)]
	r.pos += int(n)
	return b, nil
}

// mismatch goes back to an atom and says that it cannot be read so.
func (r *Reader) mismatch(at int, want string) error {
	r.pos = at
	kind, arg, _, code := parseHeader(r.data, at)
	if code != 0 {
		return r.fail(code, "atom header")
	}
	if kind == kindSpecial {
		switch name := specialName(arg, r.mode); {
		case name == "":
			return r.fail(ErrSyntax, "unknown special %d", arg)
		case arg == specDynEnd:
			return r.fail(ErrSyntax, "end of a map without its beginning")
		case arg == specAbsent:
			return r.fail(ErrSyntax, "absent outside of a record")
		default:
			return r.fail(ErrType, "want %s, got %s", want, name)
		}
	}
	return r.fail(ErrType, "want %s, got %s", want, kindNames[kind])
}

// specialName returns "" for specials that do not exist in the mode.
func specialName(arg uint64, mode Mode) string {
	names := [...]string{"none", "unit", "false", "true", "variant", "open map", "end of map", "absent", "definition of a shape"}
	switch {
	case arg <= specDynEnd || mode == Shapes && arg < uint64(len(names)):
		return names[arg]
	case mode == Shapes:
		return "record"
	}
	return ""
}

// readWide reads an integer of any width; none and unit are 0.
func (r *Reader) readWide(want string) (w wide, err error) {
	at := r.pos
	kind, arg, err := r.header()
	if err != nil {
		return w, err
	}
	switch {
	case kind == kindSpecial && arg <= specUnit:
		return w, nil
	case kind != kindInt && kind != kindUint:
		return w, r.mismatch(at, want)
	}
	return r.wideBody(kind, arg, at)
}

// wideBody reads the bytes of an integer.
func (r *Reader) wideBody(kind byte, arg uint64, at int) (w wide, err error) {
	if !validIntLen(arg) {
		r.pos = at
		return w, r.fail(ErrSyntax, "integer with the width argument %d", arg)
	}
	b, err := r.take(arg+1, "integer")
	if err != nil {
		return w, err
	}
	var buf [16]byte
	if kind == kindInt && b[len(b)-1] >= 0x80 {
		for i := len(b); i < len(buf); i++ {
			buf[i] = 0xff
		}
	}
	copy(buf[:], b)
	w.lo, w.hi = binary.LittleEndian.Uint64(buf[:]), binary.LittleEndian.Uint64(buf[8:])
	w.signed = kind == kindInt
	return w, nil
}

// ReadInt reads a signed integer.
func (r *Reader) ReadInt() (int64, error) {
	if pos := r.pos; pos+9 <= len(r.data) {
		c := r.data[pos]
		if n := uint(wordLen[c]); n > 0 {
			shift := 64 - 8*n
			v := binary.LittleEndian.Uint64(r.data[pos+1:]) << (shift & 63)
			if c < uintTag {
				r.pos = pos + 1 + int(n)
				return int64(v) >> (shift & 63), nil
			}
			if v >>= shift & 63; v <= math.MaxInt64 {
				r.pos = pos + 1 + int(n)
				return int64(v), nil
			}
		}
	}
	if v, end := quickWord(r.data, r.pos, intTag); end > 0 {
		r.pos = end
		return int64(v), nil
	}
	at := r.pos
	w, err := r.readWide("integer")
	if err != nil {
		return 0, err
	}
	v, ok := w.int64()
	if !ok {
		return 0, errAt(ErrRange, at, "%v does not fit in 64 signed bits", w.big())
	}
	return v, nil
}

// ReadUint reads an unsigned integer.
func (r *Reader) ReadUint() (uint64, error) {
	if pos := r.pos; pos+9 <= len(r.data) {
		c := r.data[pos]
		if n := uint(wordLen[c]); n > 0 {
			shift := 64 - 8*n
			v := binary.LittleEndian.Uint64(r.data[pos+1:]) << (shift & 63)
			if c >= uintTag || int64(v) >= 0 {
				r.pos = pos + 1 + int(n)
				return v >> (shift & 63), nil
			}
		}
	}
	if v, end := quickWord(r.data, r.pos, uintTag); end > 0 {
		r.pos = end
		return v, nil
	}
	at := r.pos
	w, err := r.readWide("integer")
	if err != nil {
		return 0, err
	}
	v, ok := w.uint64()
	if !ok {
		return 0, errAt(ErrRange, at, "%v does not fit in 64 unsigned bits", w.big())
	}
	return v, nil
}

// ReadBigInt reads an integer of up to 128 bits.
func (r *Reader) ReadBigInt() (*big.Int, error) {
	w, err := r.readWide("integer")
	if err != nil {
		return nil, err
	}
	return w.big(), r.charge(16)
}

// ReadFloat64 reads a float, or a signed integer that a float can hold.
func (r *Reader) ReadFloat64() (float64, error) {
	if pos := r.pos; pos+9 <= len(r.data) && r.data[pos] == floatTag|7 {
		r.pos += 9
		return math.Float64frombits(binary.LittleEndian.Uint64(r.data[pos+1:])), nil
	}
	at := r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return 0, err
	case kind == kindFloat:
		f, _, err := r.floatBody(arg, at)
		return f, err
	case kind == kindSpecial && arg <= specUnit:
		return 0, nil
	case kind != kindInt:
		return 0, r.mismatch(at, "float")
	}
	w, err := r.wideBody(kind, arg, at)
	if err != nil {
		return 0, err
	}
	v, ok := w.int64()
	if f := float64(v); ok && f < math.MaxInt64 && int64(f) == v {
		return f, nil
	}
	return 0, errAt(ErrRange, at, "%v as a float loses precision", w.big())
}

// floatBody reads the bytes of a float. It also returns its width.
func (r *Reader) floatBody(arg uint64, at int) (float64, int, error) {
	if arg != 1 && arg != 3 && arg != 7 {
		r.pos = at
		return 0, 0, r.fail(ErrSyntax, "float with the width argument %d", arg)
	}
	b, err := r.take(arg+1, "float")
	if err != nil {
		return 0, 0, err
	}
	switch len(b) {
	case 2:
		return float64(fromHalf(binary.LittleEndian.Uint16(b))), 2, nil
	case 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 4, nil
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b)), 8, nil
}

// ReadFloat32 reads a float that loses nothing in four bytes.
func (r *Reader) ReadFloat32() (float32, error) {
	at := r.pos
	v, err := r.ReadFloat64()
	if f := float32(v); err != nil || float64(f) == v || math.IsNaN(v) {
		return f, err
	}
	return 0, errAt(ErrRange, at, "%v in four bytes loses precision", v)
}

// ReadBool reads a truth value; an integer is true if it is not zero.
func (r *Reader) ReadBool() (bool, error) {
	at := r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return false, err
	case kind == kindSpecial && arg <= specTrue:
		return arg == specTrue, nil
	case kind == kindInt || kind == kindUint:
		w, err := r.wideBody(kind, arg, at)
		return w.lo|w.hi != 0, err
	}
	return false, r.mismatch(at, "bool")
}

// ReadNone reads a none if there is one next, and reports whether it did.
func (r *Reader) ReadNone() bool {
	if r.pos < len(r.data) && r.data[r.pos] == specNone {
		r.pos++
		return true
	}
	return false
}

// checkCount fails if n values of at least min bytes each cannot follow.
func (r *Reader) checkCount(n uint64, min int) error {
	if n > uint64((len(r.data)-r.pos)/min) {
		return r.fail(ErrTruncated, "%d members, but %d bytes are left", n, len(r.data)-r.pos)
	}
	return nil
}

// ReadSeq reads the beginning of a sequence and returns the number of its
// elements, which is never more than the bytes that are left. None and unit are
// empty sequences.
func (r *Reader) ReadSeq() (int, error) {
	at := r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return 0, err
	case kind == kindSpecial && arg <= specUnit:
		return 0, nil
	case kind != kindSeq:
		return 0, r.mismatch(at, "sequence")
	}
	return int(arg), r.checkCount(arg, 1)
}

// ReadMap reads the beginning of a map and returns the number of its pairs,
// which is never more than half the bytes that are left, or -1 if the map is
// open: then its pairs go on until ReadMapEnd reports true. Records of mode
// Shapes cannot be read so; read them with Read.
func (r *Reader) ReadMap() (int, error) {
	at := r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return 0, err
	case kind == kindMap:
		return int(arg), r.checkCount(arg, 2)
	case kind == kindSpecial && arg <= specUnit:
		return 0, nil
	case kind == kindSpecial && arg == specDynMap:
		return -1, nil
	}
	return 0, r.mismatch(at, "map")
}

// ReadMapEnd reads the end of an open map if it is next, and reports whether it
// did.
func (r *Reader) ReadMapEnd() bool {
	kind, arg, next, code := parseHeader(r.data, r.pos)
	if code == 0 && kind == kindSpecial && arg == specDynEnd {
		r.pos = next
		return true
	}
	return false
}

// ReadVariant reads the name of a variant, of which unit tells whether it has
// no value; else the value is next. In mode Full a unit variant cannot be told
// by its bytes alone; it is taken for one if what follows cannot be a value.
func (r *Reader) ReadVariant() (name string, unit bool, err error) {
	name, named, err := r.variantName()
	if err != nil {
		return "", false, err
	}
	return name, !named || r.mode == Full && unitFollows(r.data, r.pos), nil
}

// variantName reads a variant's name, and reports whether the special for a
// variant stood before it.
func (r *Reader) variantName() (name string, named bool, err error) {
	at := r.pos
	kind, arg, err := r.header()
	if err != nil {
		return "", false, err
	}
	if kind == kindSpecial && arg == specNamed {
		named, at = true, r.pos
		if kind, arg, err = r.header(); err != nil {
			return "", false, err
		}
	}
	switch {
	case kind == kindSymbol:
		name, _, err = r.symbolBody(arg, at)
		return name, named, err
	case kind == kindBytes:
		b, err := r.take(arg, "variant")
		if err == nil && !utf8.Valid(b) {
			err = errAt(ErrUTF8, at, "name of a variant")
		}
		return string(b), named, err
	case named:
		return "", false, errAt(ErrSyntax, at, "variant without a name")
	}
	return "", false, r.mismatch(at, "variant")
}

// ReadName reads the key of a struct's member: a symbol or a text.
func (r *Reader) ReadName() (string, error) { return r.ReadText() }

// Read reads any Go value, as Unmarshal does.
func (r *Reader) Read(v any) error { return r.decode(v, false) }

// symbolBody reads the rest of a symbol atom that begins at at. The text is
// valid while the input and the table are. The id of a definition that is met
// again is not known; it is given as -1.
func (r *Reader) symbolBody(arg uint64, at int) (text string, id int, err error) {
	if arg&1 == 1 {
		if arg>>1 >= uint64(len(r.syms)) {
			r.pos = at
			return "", 0, r.fail(ErrSymbol, "symbol %d of %d", arg>>1, len(r.syms))
		}
		return r.syms[arg>>1].text, int(arg >> 1), nil
	}
	b, err := r.take(arg>>1, "symbol")
	if err != nil {
		return "", 0, err
	}
	text = unsafe.String(unsafe.SliceData(b), len(b))
	if at < r.defined {
		return text, -1, nil
	}
	if code := r.defineSymbol(at, b); code != 0 {
		return "", 0, errAt(code, at, "definition of symbol %q", b)
	}
	return text, len(r.syms) - 1, nil
}

const (
	symbolCost  = int(unsafe.Sizeof(sym{}))
	shapeCost   = int(unsafe.Sizeof(shape{})) + 16
	shapeIDCost = 4
)

// defineSymbol enters the symbol defined at offset at, unless it has been.
func (r *Reader) defineSymbol(at int, text []byte) Code {
	if at < r.defined {
		return 0
	}
	r.defined = at + 1
	if !utf8.Valid(text) {
		return ErrUTF8
	}
	if r.budget -= int64(symbolCost); r.budget < 0 {
		return ErrBudget
	}
	if r.opts.Table == nil {
		r.syms = append(r.syms, sym{text: unsafe.String(unsafe.SliceData(text), len(text)), num: -1})
		return 0
	}
	if !r.opts.Link {
		return ErrTable // a table that others share takes nothing from a payload
	}
	if r.budget -= int64(len(text)); r.budget < 0 {
		return ErrBudget
	}
	if _, added, ok := r.opts.Table.symbol(string(text)); !ok || !added {
		return ErrTable
	}
	r.useTable()
	return 0
}

// readDefinition reads the list of symbols of a shape whose definition begins
// at at; r.pos is behind the special. It returns the shape's number.
func (r *Reader) readDefinition(at int) (int, error) {
	kind, n, err := r.header()
	switch {
	case err != nil:
		return 0, err
	case kind != kindSeq || n == 0:
		return 0, errAt(ErrShape, at, "definition of a shape without a list of symbols")
	}
	if err := r.checkCount(n, 1); err != nil {
		return 0, err
	}
	if err := r.charge(shapeCost + int(n)*shapeIDCost); err != nil {
		return 0, err
	}
	if i, again := slices.BinarySearch(r.shapeAt, at); again {
		return r.before.Shapes + i, r.skipNames(n)
	}
	sh := r.newShape(int(n))
	for range n {
		from := r.pos
		kind, arg, err := r.header()
		if err != nil {
			return 0, err
		}
		if kind != kindSymbol {
			return 0, errAt(ErrShape, from, "a shape consists of symbols")
		}
		_, id, err := r.symbolBody(arg, from)
		if err != nil {
			return 0, err
		}
		sh.ids = append(sh.ids, uint32(id))
	}
	r.shapeAt = append(r.shapeAt, at)
	return r.addShape(sh, at)
}

// newShape returns an empty shape with room for n names, from an earlier
// payload if there is one.
func (r *Reader) newShape(n int) *shape {
	if last := len(r.spare) - 1; last >= 0 && r.opts.Table == nil {
		sh := r.spare[last]
		r.spare = r.spare[:last]
		sh.ids = sh.ids[:0]
		sh.bound.Store(nil)
		return sh
	}
	return &shape{ids: make([]uint32, 0, n)}
}

// skipNames reads over n symbols that have been read before.
func (r *Reader) skipNames(n uint64) error {
	for range n {
		if _, err := r.textBytes(); err != nil {
			return err
		}
	}
	return nil
}

// twice reports whether two of the symbols have the same text.
func (r *Reader) twice(ids []uint32) bool {
	const few = 24
	if len(ids) > few {
		seen := make(map[string]struct{}, len(ids))
		for _, id := range ids {
			seen[r.syms[id].text] = struct{}{}
		}
		return len(seen) < len(ids)
	}
	for i, a := range ids {
		for _, b := range ids[:i] {
			if a == b || r.syms[a].text == r.syms[b].text {
				return true
			}
		}
	}
	return false
}

// addShape enters a shape that was defined at offset at.
func (r *Reader) addShape(sh *shape, at int) (int, error) {
	if r.twice(sh.ids) {
		return 0, errAt(ErrShape, at, "a name twice in a shape")
	}
	if r.opts.Table == nil {
		r.shapes = append(r.shapes, sh)
		return len(r.shapes) - 1, nil
	}
	if !r.opts.Link {
		return 0, errAt(ErrTable, at, "definition of a shape although a table is given")
	}
	names := make([]string, len(sh.ids))
	for i, id := range sh.ids {
		names[i] = r.syms[id].text
	}
	id, added, ok := r.opts.Table.shape(names, true)
	if !ok || !added {
		return 0, errAt(ErrTable, at, "the linked table has no room for a shape, or has it")
	}
	r.useTable()
	return int(id), nil
}

// memberOf returns which field of a struct a known symbol names, or -1. It
// tries the fields that come next in the struct's own order first.
func (r *Reader) memberOf(st *structPlan, id, next int) int {
	s := &r.syms[id]
	num := atomic.LoadInt32(&s.num)
	for i := next; num >= 0 && i < len(st.fields) && i < next+fewFields; i++ {
		if st.fields[i].num == num {
			return i
		}
	}
	if num < 0 && next < len(st.fields) && st.fields[next].name == s.text {
		atomic.StoreInt32(&s.num, st.fields[next].num)
		return next
	}
	i, ok := st.byName[s.text]
	if !ok {
		return -1
	}
	if num < 0 {
		atomic.StoreInt32(&s.num, st.fields[i].num)
	}
	return i
}
