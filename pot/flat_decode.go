package pot

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// wholeInto decodes a struct that is the whole payload, by its flat plan if it
// has one.
func (r *Reader) wholeInto(pl *plan, p unsafe.Pointer) error {
	st := pl.st
	switch {
	case r.opts.Table != nil:
		return r.structInto(pl, p)
	case r.strange == st && r.patience > 0:
		r.patience--
		return r.structInto(pl, p)
	}
	if fp := st.wholeFlat(r.mode, true); fp != nil {
		if r.flatInto(fp, p) {
			return nil
		}
		// The payloads of another program, or of other versions of the type,
		// are seldom single ones.
		r.strange, r.patience = st, 15
	}
	return r.structInto(pl, p)
}

// flatInto decodes a struct that is the whole payload by its flat plan. It
// reports false, with the reader as it was, if the input is not the one that
// the plan expects or cannot be decoded: then the general way has the word.
func (r *Reader) flatInto(fp *flatPlan, p unsafe.Pointer) bool {
	from, budget := r.pos, r.budget
	if fp.depth+2 > r.maxDepth || fp.cost+fp.most+fp.each*int64(len(r.data)) > budget {
		return false // a limit is near, and what it stops must be the same as ever
	}
	r.budget -= fp.cost
	// The names are not entered: if a value is a name, or defines one, it is read
	// by numbers other than those it was written with.
	if r.leavesInto(fp, p) && r.defined == 0 {
		r.depth = 0
		return true
	}
	clear(r.syms)
	r.pos, r.depth, r.wipe, r.budget, r.defined, r.syms = from, 0, false, budget, 0, r.syms[:0]
	return false
}

// leavesInto decodes the leaves of a flat plan, and reports whether that was
// possible. What it sets, the general way sets again: it reads no further than
// the struct goes.
func (r *Reader) leavesInto(fp *flatPlan, p unsafe.Pointer) bool {
	var missing [maxCounts]int // how many fields of each level are still to be absent
	for k := range fp.leaves {
		l := &fp.leaves[k]
		if l.op == opCount {
			n := r.countOf(l)
			if n < 0 || missing[l.depth] != 0 {
				return false
			}
			missing[l.depth] = n
			continue
		}
		if l.option != nil && !fp.record {
			// It is absent if as many must be as are left, or if it is not next.
			if missing[l.depth] == int(l.after) || !l.next(r.data, r.pos) {
				if missing[l.depth]--; missing[l.depth] < 0 {
					return false
				}
				continue
			}
		} else if !l.next(r.data, r.pos) {
			return false
		}
		pos := r.pos + len(l.before)
		vp := unsafe.Add(p, l.offset)
		if end := r.quick(l.op, vp, pos); end > 0 {
			r.pos = end
			continue
		}
		if fp.record && pos < len(r.data) && r.data[pos] == specAbsent {
			r.pos = pos + 1
			continue
		}
		r.pos, r.depth = pos, int(l.depth)
		if r.value(l.plan, l.op, vp) != nil {
			return false
		}
	}
	return missing == [maxCounts]int{}
}

// countOf reads the header of the map that a leaf is, and returns how many of
// the struct's fields are absent, or -1 if something else is next.
func (r *Reader) countOf(l *leaf) int {
	last := len(l.before) - 1
	if len(r.data)-r.pos <= last || string(r.data[r.pos:r.pos+last]) != l.before[:last] {
		return -1
	}
	c, full := r.data[r.pos+last], l.before[last]
	if c < mapTag || c > full {
		return -1
	}
	r.pos += last + 1
	return int(full - c)
}

// next reports whether the bytes that stand before the leaf are the next ones.
func (l *leaf) next(data []byte, pos int) bool {
	if l.short && pos+8 <= len(data) {
		return (binary.LittleEndian.Uint64(data[pos:])^l.word)&l.mask == 0
	}
	n := len(l.before)
	return len(data)-pos >= n && string(data[pos:pos+n]) == l.before
}

// quick decodes the value at pos if its type is a common scalar and its form
// the usual one, and returns where it ends. Else it returns 0, having done
// nothing.
func (r *Reader) quick(o op, p unsafe.Pointer, pos int) int {
	switch o {
	case opString:
		return r.quickText((*string)(p), pos)
	case opUint8:
		if pos+1 < len(r.data) && r.data[pos] == uintTag {
			*(*uint8)(p) = r.data[pos+1]
			return pos + 2
		}
	case opUint16:
		if v, end := quickWord(r.data, pos, uintTag); end > 0 && v <= math.MaxUint16 {
			*(*uint16)(p) = uint16(v)
			return end
		}
	case opUint32:
		if v, end := quickWord(r.data, pos, uintTag); end > 0 && v <= math.MaxUint32 {
			*(*uint32)(p) = uint32(v)
			return end
		}
	case opUint64:
		if v, end := quickWord(r.data, pos, uintTag); end > 0 {
			*(*uint64)(p) = v
			return end
		}
	case opInt32:
		if v, end := quickWord(r.data, pos, intTag); end > 0 && int64(v) == int64(int32(v)) {
			*(*int32)(p) = int32(v)
			return end
		}
	case opInt64:
		if v, end := quickWord(r.data, pos, intTag); end > 0 {
			*(*int64)(p) = int64(v)
			return end
		}
	case opBool:
		if pos < len(r.data) && r.data[pos]&^1 == specFalse {
			*(*bool)(p) = r.data[pos] == specTrue
			return pos + 1
		}
	case opFloat64:
		if pos+9 <= len(r.data) && r.data[pos] == floatTag|7 {
			*(*float64)(p) = math.Float64frombits(binary.LittleEndian.Uint64(r.data[pos+1:]))
			return pos + 9
		}
	}
	return 0
}

// quickWord returns the integer of up to eight bytes and of the kind of the tag
// at pos, sign-extended, and where it ends, or 0 if there is none.
func quickWord(data []byte, pos int, tag byte) (v uint64, end int) {
	if uint(pos) >= uint(len(data)) {
		return 0, 0
	}
	c := data[pos]
	n := int(wordLen[c])
	if n == 0 || c&^argMask != tag {
		return 0, 0
	}
	end = pos + 1 + n
	shift := uint(64-8*n) & 63
	switch {
	case pos+9 <= len(data):
		v = binary.LittleEndian.Uint64(data[pos+1:]) << shift
	case end <= len(data) && end >= 8:
		v = binary.LittleEndian.Uint64(data[end-8:])
	default:
		return 0, 0
	}
	if tag == intTag {
		return uint64(int64(v) >> shift), end
	}
	return v >> shift, end
}

// quickText decodes the text at pos if it is a short byte atom.
func (r *Reader) quickText(p *string, pos int) int {
	data := r.data
	if pos+1 >= len(data) || data[pos] < bytesTag {
		return 0
	}
	n, from := int(data[pos]&argMask), pos+1
	if data[pos]&moreFlag != 0 {
		if data[from] >= 0x80 {
			return 0
		}
		n |= int(data[from]) << 4
		from++
	}
	if n > len(data)-from {
		return 0
	}
	text := data[from : from+n]
	if r.opts.Strings != CopyStrings || n > len(r.chunk) || len(*p) == n {
		return r.otherText(p, text, from)
	}
	if !copyText(unsafe.Pointer(unsafe.SliceData(r.chunk)), unsafe.String(unsafe.SliceData(text), n)) || r.budget < int64(n) {
		return 0
	}
	r.budget -= int64(n)
	*p = unsafe.String(unsafe.SliceData(r.chunk), n)
	r.chunk = r.chunk[n:]
	return from + n
}

// otherText is the part of quickText that does not copy into the chunk that is
// there.
func (r *Reader) otherText(p *string, text []byte, from int) int {
	if !validText(text) {
		return 0
	}
	if len(text) == len(*p) && string(text) == *p && r.opts.Strings != BorrowStrings {
		return from + len(text) // decoding the same again allocates nothing
	}
	s, err := r.newString(text)
	if err != nil {
		return 0
	}
	*p = s
	return from + len(text)
}
