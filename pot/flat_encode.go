package pot

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// flatPlan returns the flat plan for the struct that is written next, or nil.
func (w *Writer) flatPlan(st *structPlan) *flatPlan {
	switch {
	case w.opts.Table != nil:
		return w.tableFlat(st)
	case w.depth == 0: // only the whole payload has no level around it
		return st.wholeFlat(w.opts.Mode, false)
	}
	return nil
}

// tableFlat returns the flat plan by the writer's table, once the table knows
// the names of the struct. Its numbers never change.
func (w *Writer) tableFlat(st *structPlan) *flatPlan {
	if w.opts.Link {
		return nil
	}
	cache := &w.flat[flatIndex(w.opts.Mode)]
	if st.num < len(*cache) {
		if fp := (*cache)[st.num]; fp != nil {
			if fp == noFlatPlan {
				return nil
			}
			return fp
		}
	}
	for st.num >= len(*cache) {
		*cache = append(*cache, nil)
	}
	(*cache)[st.num] = flatten(w, st, false)
	if fp := (*cache)[st.num]; fp != noFlatPlan {
		return fp
	}
	return nil
}

// appendFlat appends a struct by its flat plan. It reports false if that is not
// possible; what it did is then to be done again.
func (w *Writer) appendFlat(b []byte, fp *flatPlan, p unsafe.Pointer) ([]byte, bool) {
	if w.depth+fp.depth > w.maxDepth {
		return b, false
	}
	from, i, depth := len(b), len(b), w.depth
	if cap(b)-i < fp.room {
		b = slices.Grow(b, fp.room)
	}
	b = b[:cap(b)]
	for k := range fp.leaves {
		l := &fp.leaves[k]
		if l.short {
			binary.LittleEndian.PutUint64(b[i:], l.word)
		} else {
			copy(b[i:], l.before)
		}
		i += len(l.before)
		vp := unsafe.Add(p, l.offset)
		switch l.op {
		case opString:
			s := *(*string)(vp)
			if len(s) >= 1<<11 {
				return b[:from], false // rare enough to be done again
			}
			if len(b)-i < len(s)+l.room {
				b = moreRoom(b, i, len(s)+l.room)
			}
			if i = putText(b, i, s); i < 0 {
				return b[:from], false
			}
		case opUint8:
			b[i], b[i+1] = uintTag, *(*uint8)(vp)
			i += 2
		case opUint16:
			i = putUint(b, i, uint64(*(*uint16)(vp)))
		case opUint32:
			i = putUint(b, i, uint64(*(*uint32)(vp)))
		case opUint64:
			i = putUint(b, i, *(*uint64)(vp))
		case opInt32:
			i = putInt(b, i, int64(*(*int32)(vp)))
		case opInt64:
			i = putInt(b, i, *(*int64)(vp))
		case opBool:
			b[i] = specFalse
			if *(*bool)(vp) {
				b[i] = specTrue
			}
			i++
		case opFloat64:
			v := *(*float64)(vp)
			if f := float32(v); float64(f) == v {
				i = len(appendFloat32(b[:i], f)) // there is room
				break
			}
			b[i] = floatTag | 7
			binary.LittleEndian.PutUint64(b[i+1:], math.Float64bits(v))
			i += 9
		default:
			var err error
			w.depth = depth + l.depth
			b, err = w.append(b[:i], l.plan, l.op, vp)
			if w.depth = depth; err != nil {
				return b[:from], false
			}
			if i = len(b); cap(b)-i < l.room {
				b = slices.Grow(b, l.room)
			}
			b = b[:cap(b)]
		}
	}
	return b[:i], true
}

// moreRoom returns b with room for n bytes after the first i.
func moreRoom(b []byte, i, n int) []byte {
	b = slices.Grow(b[:i], n)
	return b[:cap(b)]
}

// putText puts a text of less than 2,048 bytes at i, where there is room, and
// returns its end, or -1 if it is not UTF-8.
func putText(b []byte, i int, s string) int {
	if len(s) <= argMask {
		b[i] = bytesTag | byte(len(s))
		i++
	} else {
		b[i], b[i+1] = bytesTag|moreFlag|byte(len(s)&argMask), byte(len(s)>>4)
		i += 2
	}
	if !copyText(b[i:], s) {
		return -1
	}
	return i + len(s)
}

// putUint is appendUint where there is room for nine bytes.
func putUint(b []byte, i int, v uint64) int {
	n := int(numberLen[bits.Len64(v)])
	b[i] = uintTag | byte(n-1)
	binary.LittleEndian.PutUint64(b[i+1:], v)
	return i + 1 + n
}

// putInt is appendInt where there is room for nine bytes.
func putInt(b []byte, i int, v int64) int {
	n := int(numberLen[bits.Len64(uint64(v^v>>63))+1])
	b[i] = intTag | byte(n-1)
	binary.LittleEndian.PutUint64(b[i+1:], uint64(v))
	return i + 1 + n
}
