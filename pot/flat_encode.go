package pot

import (
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// appendWhole appends the payload of v if v points to a struct with a flat plan.
// It reports false if that is not so or v cannot be encoded.
func (o *EncodeOptions) appendWhole(dst []byte, v any) ([]byte, bool) {
	e := (*eface)(unsafe.Pointer(&v))
	pl, p := recentPlan(e.typ), e.data
	if pl == nil || pl.enc != opPtr || pl.elem.enc != opStruct || p == nil || o.Link {
		return dst, false
	}
	var fp *flatPlan
	if o.Table == nil {
		fp = pl.elem.st.wholeFlat(o.Mode, false)
	} else {
		fp = o.Table.flatPlan(nil, o.Mode, pl.elem.st)
	}
	if fp == nil || fp.depth > depthLimit(o.MaxDepth) {
		return dst, false
	}
	b := dst
	if !o.NoHeader {
		b = append(b, 'P', 'o', 't', o.Mode.version())
	}
	if fp.plain {
		return appendFlat(b, fp, p, nil)
	}
	w := newWriter(nil, o)
	b, done := appendFlat(b, fp, p, w)
	w.release(!done)
	return b, done
}

// flatPlan returns the flat plan for the struct that is written next, or nil.
func (w *Writer) flatPlan(st *structPlan) (fp *flatPlan) {
	switch {
	case w.opts.Table != nil && !w.opts.Link:
		fp = w.opts.Table.flatPlan(w, w.opts.Mode, st)
	case w.opts.Table == nil:
		fp = st.wholeFlat(w.opts.Mode, false)
		if fp != nil && w.depth > 0 { // only the whole payload has no level around it
			fp = w.listFlat(st)
		}
	}
	if fp == nil || fp == noFlatPlan || w.depth+fp.depth > w.maxDepth {
		return nil
	}
	return fp
}

// listPlan is the flat plan of a struct that occurs many times in payloads
// without a table. It fits the payloads in which its names have the same numbers.
type listPlan struct {
	fp      *flatPlan
	numbers []uint32
	payload int // of the writer, counted, in which the numbers were compared last
	fits    bool
	met     int // times without a plan that fits
}

// worthAPlan is how often a struct occurs before a flat plan is made for it.
const worthAPlan = 16

// listFlat returns the flat plan of a struct within a payload without a table,
// once the payload has defined all its names. It is made when the struct has
// occurred several times, here or in earlier payloads.
func (w *Writer) listFlat(st *structPlan) *flatPlan {
	for st.num >= len(w.lists) {
		w.lists = append(w.lists, listPlan{payload: -1})
	}
	l := &w.lists[st.num]
	if l.payload == w.payload && l.fits {
		return l.fp
	}
	l.met++
	due := l.met >= worthAPlan
	if !due && (l.fp == nil || l.payload == w.payload) {
		return nil
	}
	numbers, known := w.appendNumbers(append(w.numbers[:0], uint32(w.opts.Mode)), st)
	w.numbers = numbers
	if !known {
		l.met = 0
		return nil
	}
	if l.fits, l.payload = slices.Equal(numbers, l.numbers), w.payload; !l.fits && due {
		l.fp, l.numbers, l.fits = newFlattener(w).flatten(st), slices.Clone(numbers), true
	}
	if !l.fits {
		return nil
	}
	l.met = 0
	return l.fp
}

// appendNumbers appends the numbers that a flat plan of the struct depends on.
// It reports false if the payload has not defined one yet.
func (w *Writer) appendNumbers(dst []uint32, st *structPlan) (_ []uint32, known bool) {
	if w.opts.Mode == Shapes {
		if st.num >= len(w.shapes) || w.shapes[st.num] <= 0 {
			return dst, false
		}
		dst = append(dst, uint32(w.shapes[st.num]))
	}
	for i := range st.fields {
		f := &st.fields[i]
		if w.opts.Mode != Shapes {
			if int(f.num) >= len(w.symbols) || w.symbols[f.num] == 0 {
				return dst, false
			}
			dst = append(dst, w.symbols[f.num])
		}
		if f.enc == opStruct {
			if dst, known = w.appendNumbers(dst, f.plan.st); !known {
				return dst, false
			}
		}
	}
	return dst, true
}

// appendFlat appends a struct by its flat plan. It reports false if a value
// cannot be encoded; then b is as it was. The writer is needed only if the plan
// is not plain.
//
// It writes to memory that it has made sure is there, without asking again: a
// leaf's room covers it and all that follow, but for texts and for what
// appendLeaf writes, both of which make that room again.
func appendFlat(b []byte, fp *flatPlan, p unsafe.Pointer, w *Writer) ([]byte, bool) {
	from, i := len(b), len(b)
	b = slices.Grow(b, fp.room)
	out, size := unsafe.Pointer(unsafe.SliceData(b)), cap(b)
	leaves := fp.leaves
	var counts [maxCounts]int // where the counts of maps are
	for k := 0; k < len(leaves); k++ {
		l := &leaves[k]
		setWord(out, i, l.word)
		if !l.short {
			setLong(out, i, l.before)
		}
		i += len(l.before)
		vp := unsafe.Add(p, l.offset)
		switch l.op {
		case opCount:
			counts[l.depth] = i - 1
		case opOption:
			if !l.option.zero(vp) {
				continue
			}
			k++
			i = fp.leaveOut(out, i, leaves[k].before, counts[l.depth])
		case opTextPtr:
			if vp = *(*unsafe.Pointer)(vp); vp == nil {
				*(*byte)(unsafe.Add(out, i)) = specNone
				i++
				continue
			}
			fallthrough
		case opString:
			s := *(*string)(vp)
			if need := len(s) + int(l.room); size-i < need {
				out, size = growFlat(out, size, i, need)
			}
			if i = setText(out, i, s); i < 0 {
				return unsafe.Slice((*byte)(out), size)[:from], false
			}
		case opTexts:
			if out, size, i = setTexts(out, size, i, *(*[]string)(vp), int(l.room)); i < 0 {
				return unsafe.Slice((*byte)(out), size)[:from], false
			}
		case opUint8:
			*(*[2]byte)(unsafe.Add(out, i)) = [2]byte{uintTag, *(*uint8)(vp)}
			i += 2
		case opUint16:
			i = setUint(out, i, uint64(*(*uint16)(vp)))
		case opUint32:
			i = setUint(out, i, uint64(*(*uint32)(vp)))
		case opUint64:
			i = setUint(out, i, *(*uint64)(vp))
		case opInt32:
			i = setInt(out, i, int64(*(*int32)(vp)))
		case opInt64:
			i = setInt(out, i, *(*int64)(vp))
		case opBool:
			*(*byte)(unsafe.Add(out, i)) = specFalse + *(*byte)(vp)
			i++
		case opFloat64:
			i = setFloat(out, i, *(*float64)(vp))
		default:
			more, done := appendLeaf(unsafe.Slice((*byte)(out), size)[:i], l, vp, w)
			if !done {
				return unsafe.Slice((*byte)(out), size)[:from], false
			}
			out, size, i = unsafe.Pointer(unsafe.SliceData(more)), cap(more), len(more)
		}
	}
	return unsafe.Slice((*byte)(out), size)[:i], true
}

// leaveOut says that a value is absent: in its place, behind the bytes before it,
// or in the count of the map.
func (fp *flatPlan) leaveOut(out unsafe.Pointer, i int, before string, count int) int {
	if !fp.record {
		*(*byte)(unsafe.Add(out, count))--
		return i
	}
	i += copy(unsafe.Slice((*byte)(unsafe.Add(out, i)), len(before)), before)
	*(*byte)(unsafe.Add(out, i)) = specAbsent
	return i + 1
}

// growFlat makes room for need bytes behind the first i.
//
//go:noinline
func growFlat(out unsafe.Pointer, size, i, need int) (unsafe.Pointer, int) {
	b := slices.Grow(unsafe.Slice((*byte)(out), size)[:i], need)
	return unsafe.Pointer(unsafe.SliceData(b)), cap(b)
}

// setLong sets all but the first eight bytes of a text whose memory is a number
// of whole words.
func setLong(out unsafe.Pointer, i int, text string) {
	from := unsafe.Pointer(unsafe.StringData(text))
	for k := 8; k < len(text); k += 8 {
		*(*[8]byte)(unsafe.Add(out, i+k)) = *(*[8]byte)(unsafe.Add(from, k))
	}
}

// setUint is appendUint where there is room for nine bytes.
func setUint(out unsafe.Pointer, i int, v uint64) int {
	n := int(numberLen[bits.Len64(v)])
	*(*byte)(unsafe.Add(out, i)) = uintTag | byte(n-1)
	setWord(out, i+1, v)
	return i + 1 + n
}

// setInt is appendInt where there is room for nine bytes.
func setInt(out unsafe.Pointer, i int, v int64) int {
	n := int(numberLen[bits.Len64(uint64(v^v>>63))+1])
	*(*byte)(unsafe.Add(out, i)) = intTag | byte(n-1)
	setWord(out, i+1, uint64(v))
	return i + 1 + n
}

// setFloat is appendFloat64 where there is room for nine bytes.
func setFloat(out unsafe.Pointer, i int, v float64) int {
	if float64(float32(v)) == v {
		return i + len(appendFloat32(unsafe.Slice((*byte)(unsafe.Add(out, i)), leafRoom)[:0], float32(v)))
	}
	*(*byte)(unsafe.Add(out, i)) = floatTag | 7
	setWord(out, i+1, math.Float64bits(v))
	return i + 9
}

// setText sets a text, for which there is room, and returns its end, or -1 if it
// is not UTF-8.
func setText(out unsafe.Pointer, i int, s string) int {
	i = setHeader(out, i, kindBytes, len(s))
	if !copyText(unsafe.Add(out, i), s) {
		return -1
	}
	return i + len(s)
}

// setHeader sets the header of an atom, for which there is room.
func setHeader(out unsafe.Pointer, i int, kind byte, arg int) int {
	switch {
	case arg <= argMask:
		*(*byte)(unsafe.Add(out, i)) = kind<<5 | byte(arg)
		return i + 1
	case arg < 1<<11:
		*(*[2]byte)(unsafe.Add(out, i)) = [2]byte{kind<<5 | moreFlag | byte(arg&argMask), byte(arg >> 4)}
		return i + 2
	}
	return i + len(appendHeader(unsafe.Slice((*byte)(unsafe.Add(out, i)), leafRoom)[:0], kind, uint64(arg)))
}

// setTexts sets a sequence of texts, makes room for each, and returns where it
// ends, or -1 if one is not UTF-8.
func setTexts(out unsafe.Pointer, size, i int, texts []string, room int) (_ unsafe.Pointer, _, end int) {
	i = setHeader(out, i, kindSeq, len(texts))
	for _, s := range texts {
		if need := len(s) + room; size-i < need {
			out, size = growFlat(out, size, i, need)
		}
		if i = setText(out, i, s); i < 0 {
			break
		}
	}
	return out, size, i
}

// appendLeaf appends a value of a less common type, and makes room for what
// follows. It reports false if the value cannot be encoded.
func appendLeaf(b []byte, l *leaf, p unsafe.Pointer, w *Writer) (_ []byte, done bool) {
	room := int(l.room)
	switch l.op {
	case opStructs, opStructPtr:
		b, done = appendStructs(b, l, p, w)
	default:
		var err error
		depth := w.depth
		w.depth += int(l.depth)
		b, err = w.append(b, l.plan, l.op, p)
		w.depth, done = depth, err == nil
	}
	if cap(b)-len(b) < room {
		b = slices.Grow(b, room)
	}
	return b, done
}

// appendStructs appends a slice of structs, or what a pointer to a struct points
// to.
func appendStructs(b []byte, l *leaf, p unsafe.Pointer, w *Writer) (_ []byte, done bool) {
	outer := int(l.depth)
	if l.op == opStructs {
		outer++
	}
	if w != nil {
		w.depth += outer
	}
	done = true
	switch pl := l.plan; {
	case l.op == opStructs:
		h := (*sliceHeader)(p)
		b = appendHeader(b, kindSeq, uint64(h.len))
		fp := pl.first
		for k := 0; k < h.len && done; k++ {
			b, done = appendFlat(b, fp, unsafe.Add(h.data, uintptr(k)*pl.elem.size), w)
			fp = pl.rest
		}
	case *(*unsafe.Pointer)(p) == nil:
		b = append(b, specNone)
	default:
		b, done = appendFlat(b, pl.first, *(*unsafe.Pointer)(p), w)
	}
	if w != nil {
		w.depth -= outer
	}
	return b, done
}

// putText puts a text at i and returns its end, or -1 if it is not UTF-8. There
// is room for a header, and is again for what follows it.
func putText(b []byte, i int, s string, room int) ([]byte, int) {
	if room += len(s); len(b)-i < room {
		b = slices.Grow(b[:i], room)
		b = b[:cap(b)]
	}
	return b, setText(unsafe.Pointer(unsafe.SliceData(b)), i, s)
}
