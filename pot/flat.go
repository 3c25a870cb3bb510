package pot

import (
	"math"
	"slices"
	"sync/atomic"
)

// A flatPlan is a struct, with the structs within it, as a list of its leaves:
// the values that are no structs, each with the bytes that stand before it. It
// exists where those bytes are known beforehand: if the struct is a whole
// payload, so that its symbols are numbered from 0 in the order of its fields,
// if a table knows all its names, or within a list once the payload has defined
// them. Then encoding a field is a copy of a few bytes and the value, and
// decoding a comparison and the value.
//
// A flat plan never has the last word. Where a value cannot be encoded, or the
// input is not what this package would have written, the struct is done once
// more the general way, which also finds the error and its place. Nothing that
// flat plans do is therefore seen but in the time it takes.
type flatPlan struct {
	leaves []leaf
	room   int   // of all leaves
	plain  bool  // encoding needs no writer
	record bool  // absent values are written as such, or else not at all
	depth  int   // levels of nesting
	cost   int64 // what decoding charges for the definitions
	most   int64 // the most that it charges for values of a fixed number of bytes,
	each   int64 // and for each byte of the input besides
}

// leaf is one value of a flat plan. Its fields fill one line of the processor's
// cache.
type leaf struct {
	op     op
	short  bool   // the bytes before the value are up to eight
	depth  int8   // levels of nesting around the value within the struct
	after  int8   // how many values of its struct may be absent, this one and those after it
	room   int32  // the most that this leaf and those after it append, but texts and what op calls for
	word   uint64 // the bytes before the value, if short
	mask   uint64 // which bytes of word count
	before string // the bytes before the value
	offset uintptr
	plan   *plan
	option *field // if the value may be absent
}

// The bounds of a flat plan, and the room that writing whole words needs behind
// what counts of them.
const (
	maxLeaves   = 256
	maxLeafSize = 1 << 10 // of elements, in bytes
	maxCounts   = 4       // levels of structs whose fields may be absent
	maxLevels   = 64      // of structs within structs
	maxWithin   = 3       // lists of structs within lists of structs, with a table
	leafRoom    = 12      // of a value: a header and eight bytes, or a header of text
	wordRoom    = 8
)

// noFlatPlan stands for a struct that cannot have one.
var noFlatPlan = new(flatPlan)

// flatPlans are a struct's own, for whole payloads without a table.
type flatPlans struct {
	enc, dec [2]atomic.Pointer[flatPlan] // by flatIndex
}

// flatIndex tells mode Shapes from the others, which write leaves alike.
func flatIndex(m Mode) int {
	if m == Shapes {
		return 1
	}
	return 0
}

// wholeFlat returns the flat plan for a payload that the struct is, or nil.
func (st *structPlan) wholeFlat(m Mode, decode bool) *flatPlan {
	cache := &st.flat.enc[flatIndex(m)]
	if decode {
		cache = &st.flat.dec[flatIndex(m)]
	}
	fp := cache.Load()
	if fp == nil {
		w := &Writer{maxDepth: DefaultMaxDepth}
		w.opts.Mode = m
		fl := newFlattener(w)
		fl.decode, fl.whole = decode, !decode
		fp = fl.flatten(st)
		cache.Store(fp) // of two at once one wins, and both are the same
	}
	if fp == noFlatPlan {
		return nil
	}
	return fp
}

// flattener makes a flat plan out of what a writer would write.
type flattener struct {
	w        *Writer
	decode   bool
	whole    bool // encoding a whole payload: lists of structs define names where they are
	within   int  // lists and pointers that the struct is within
	before   []byte
	optional bool // a field may be absent
	repeated bool // a name defined within the struct is used again
	out      flatPlan

	// Symbols and shapes from these numbers on have other numbers if a list
	// before them is empty: nothing may refer to them.
	symbols, shapes int32
}

func newFlattener(w *Writer) *flattener {
	return &flattener{w: w, symbols: math.MaxInt32, shapes: math.MaxInt32, out: flatPlan{each: 1, record: w.opts.Mode == Shapes}}
}

// flatten makes the flat plan of a struct that the writer would write next.
func (fl *flattener) flatten(st *structPlan) *flatPlan {
	w, before := fl.w, fl.w.nsymbols
	if !fl.add(st, 0, 1) || len(fl.before) > 0 {
		return noFlatPlan
	}
	if fl.optional && fl.repeated && w.nsymbols > before && !fl.out.record {
		return noFlatPlan // the numbers depend on what is absent
	}
	out := &fl.out
	out.cost += int64(w.nsymbols) * int64(symbolCost)
	room := wordRoom
	for i := len(out.leaves) - 1; i >= 0; i-- {
		room += len(out.leaves[i].before) + leafRoom
		out.leaves[i].room = int32(room)
	}
	out.room = room
	out.plain = true
	for i := range out.leaves {
		out.plain = out.plain && out.leaves[i].plain()
	}
	return out
}

// add adds the struct at an offset. It reports false if that is not possible.
func (fl *flattener) add(st *structPlan, offset uintptr, depth int) bool {
	if st.rest != nil || len(st.fields) == 0 || depth > maxLevels || !fl.head(st, depth) {
		return false
	}
	fl.out.depth = max(fl.out.depth, depth)
	var options []int // which leaves may be absent
	for i := range st.fields {
		f := &st.fields[i]
		if !fl.out.record {
			from := len(fl.before)
			fl.before = fl.w.appendKey(fl.before, f)
			if fl.before[from]>>5 == kindSymbol && fl.before[from]&1 == 1 {
				fl.repeated = true
				if fl.moves(f) {
					return false
				}
			}
		}
		o := f.plan.enc
		if fl.decode {
			o = f.plan.dec
		}
		switch {
		case len(f.via) > 0:
			return false
		case o != opStruct:
			if !fl.value(f, o, offset+f.offset, depth) {
				return false
			}
			if f.omit != omitNever {
				options = append(options, len(fl.out.leaves)-1)
			}
		case f.omit == omitZero || !fl.add(f.plan.st, offset+f.offset, depth+1):
			return false
		}
	}
	for i, k := range options {
		fl.out.leaves[k].after = int8(min(len(options)-i, math.MaxInt8))
	}
	return true
}

// moves reports whether a field's name has a number that is not always the same.
func (fl *flattener) moves(f *field) bool {
	w := fl.w
	return w.opts.Table == nil && int(f.num) < len(w.symbols) && w.symbols[f.num] > 0 && int32(w.symbols[f.num]>>1) >= fl.symbols
}

// structs makes the leaf's plan of a slice of structs or a pointer to one, which
// without a table define their names where they occur first, or returns nil.
func (fl *flattener) structs(f *field, o op, depth int) *plan {
	elem, table := f.plan.elem, fl.w.opts.Table != nil
	switch {
	case o != opSlice && o != opPtr || elem.enc != opStruct || fl.decode:
		return nil
	case !fl.whole && (!table || fl.within >= maxWithin):
		return nil
	}
	symbols, shapes := min(fl.symbols, int32(fl.w.nsymbols)), min(fl.shapes, fl.w.nshapes)
	pl := &plan{typ: f.plan.typ, size: f.plan.size, elem: elem}
	for _, part := range []**flatPlan{&pl.first, &pl.rest} {
		sub := newFlattener(fl.w)
		sub.symbols, sub.shapes, sub.within = fl.symbols, fl.shapes, fl.within+1
		*part = sub.flatten(elem.st)
		if *part == noFlatPlan || sub.optional && !sub.out.record && !table {
			return nil
		}
		fl.repeated = fl.repeated || sub.repeated
		fl.out.depth = max(fl.out.depth, depth+1+sub.out.depth)
		if o == opPtr || table {
			pl.rest = pl.first
			break
		}
	}
	fl.symbols, fl.shapes = symbols, shapes
	return pl
}

// value adds a leaf. It reports false if that is not possible.
func (fl *flattener) value(f *field, o op, offset uintptr, depth int) bool {
	most, ok := fl.charge(f.plan, o, 2)
	pl := f.plan
	if list := fl.structs(f, o, depth); list != nil {
		pl, ok = list, true
		if o == opSlice {
			o = opStructs
		} else {
			o = opStructPtr
		}
	}
	if fl.w.opts.Table != nil && o != opUnsupported {
		ok = true // what a value adds to the table changes no number
	}
	if !ok || len(fl.out.leaves) >= maxLeaves {
		return false
	}
	fl.out.most += most
	if o == opSlice || o == opArray {
		fl.out.depth = max(fl.out.depth, depth+1)
	}
	if !fl.decode && f.plan.elem != nil && f.plan.elem.enc == opString {
		switch o {
		case opPtr:
			o = opTextPtr
		case opSlice:
			o = opTexts
		}
	}
	l := newLeaf(fl.before, pl, o, offset, depth)
	if f.omit != omitNever {
		l.option = f
		if !fl.decode {
			fl.out.leaves = append(fl.out.leaves, leaf{op: opOption, short: true, depth: int8(depth), offset: offset, option: f})
		}
	}
	fl.out.leaves = append(fl.out.leaves, l)
	fl.before = fl.before[:0]
	return true
}

// head adds what stands before the fields.
func (fl *flattener) head(st *structPlan, depth int) bool {
	w := fl.w
	fl.optional = fl.optional || st.optional
	if !fl.out.record {
		fl.before = appendHeader(fl.before, kindMap, uint64(len(st.fields)))
		if st.optional {
			if len(st.fields) > argMask || depth >= maxCounts {
				return false
			}
			fl.out.leaves = append(fl.out.leaves, newLeaf(fl.before, nil, opCount, 0, depth))
			fl.before = fl.before[:0]
		}
		return true
	}
	if st.num < len(w.shapes) && w.shapes[st.num] != 0 {
		id := w.shapes[st.num] - 1
		if w.shapes[st.num] == noShape || w.opts.Table == nil && id >= fl.shapes {
			return false
		}
		fl.before = appendRecord(fl.before, id)
		return true
	}
	for i := range st.fields {
		if fl.moves(&st.fields[i]) {
			return false
		}
	}
	var id int32
	fl.before, id = w.structShape(fl.before, st)
	if id == noShape {
		return false
	}
	fl.before = appendRecord(fl.before, id)
	fl.out.cost += int64(shapeCost + len(st.fields)*shapeIDCost)
	return true
}

// charge returns the most that decoding a value charges, apart from elements
// and texts. It reports false if such values define or use names, or are not
// known to leave them alone: then they are no leaves without a table.
func (fl *flattener) charge(pl *plan, o op, levels int) (most int64, ok bool) {
	switch o {
	case opByteArray, opTime, opUnixTime, opBigInt:
		return 16, true
	case opPtr, opSlice, opArray:
		inner := pl.elem.enc
		if fl.decode {
			inner = pl.elem.dec
		}
		if levels == 0 || pl.elem.size > maxLeafSize || pl.n > maxLeaves {
			return 0, false
		}
		most, ok = fl.charge(pl.elem, inner, levels-1)
		most += int64(pl.elem.size)
		switch o {
		case opSlice: // an element has a byte at least
			fl.out.each = max(fl.out.each, most)
			return 0, ok
		case opArray:
			return most * int64(pl.n), ok
		}
		return most, ok
	}
	return 0, o >= opBool && o <= opBytes
}

// plain reports whether appendFlat encodes the leaf by itself.
func (l *leaf) plain() bool {
	switch l.op {
	case opString, opUint8, opUint16, opUint32, opUint64, opInt32, opInt64, opBool, opFloat64, opTextPtr, opTexts, opCount, opOption:
		return true
	case opStructs, opStructPtr:
		return l.plan.first.plain && (l.plan.rest == nil || l.plan.rest.plain)
	}
	return false
}

// newLeaf makes a leaf. The memory of the bytes before it is whole words, so that
// they can be copied by words.
func newLeaf(before []byte, pl *plan, o op, offset uintptr, depth int) leaf {
	l := leaf{op: o, offset: offset, plan: pl, depth: int8(depth), short: len(before) <= 8}
	words := make([]byte, max((len(before)+7)&^7, 8))
	copy(words, before)
	l.before, l.word = string(words)[:len(before)], word(words)
	l.mask = 1<<(8*len(before)) - 1
	return l
}

// flat returns the flat plan by the table, once the table knows the names of the
// struct. Its numbers never change, unless it is linked. The writer is one for
// the table; without it no plan is made.
func (t *Table) flatPlan(w *Writer, m Mode, st *structPlan) *flatPlan {
	cache := &t.flat[flatIndex(m)]
	known := cache.Load()
	if known != nil && st.num < len(*known) && (*known)[st.num] != nil {
		if fp := (*known)[st.num]; fp != noFlatPlan {
			return fp
		}
		return nil
	}
	if w == nil {
		return nil
	}
	fp := newFlattener(w).flatten(st)
	for {
		var list []*flatPlan
		if known != nil {
			list = slices.Clone(*known)
		}
		for st.num >= len(list) {
			list = append(list, nil)
		}
		list[st.num] = fp
		if cache.CompareAndSwap(known, &list) {
			break
		}
		known = cache.Load()
	}
	if fp == noFlatPlan {
		return nil
	}
	return fp
}
