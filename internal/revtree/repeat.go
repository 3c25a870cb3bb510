package revtree

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
)

// A name that repeats is rare, but must not become a way to make a short text
// expensive. So while a document is read, its objects are written with all their
// members; those with repeated names are noted, and put right at the end, all in
// one pass over the output.

// A repair is what becomes of an object with repeated names.
type repair struct {
	start, end int       // the object in the output
	pairs      []segment // the names and values to keep, in order
}

// A segment is the name of one member and the value of the same or a later one,
// by offsets in the output.
type segment struct{ name, nameEnd, value, valueEnd int }

// linearMembers is up to how many members comparing all pairs of names is the
// fastest way to find a repeated one.
const linearMembers = 8

// nameOf returns the name of m.
func nameOf(out []byte, m member) []byte { return out[m.start+nameOffset : m.value] }

// repeated reports whether two of an object's members have the same name.
func repeated(out []byte, members []member) bool {
	if len(members) <= linearMembers {
		for i, m := range members {
			name := nameOf(out, m)
			for _, o := range members[:i] {
				if o.value-o.start == m.value-m.start && string(nameOf(out, o)) == string(name) {
					return true
				}
			}
		}
		return false
	}
	// A hash table of member numbers from 1, at most half full. The seed is not
	// a constant, so that nobody can choose names that collide.
	var array [256]uint32
	table := array[:]
	if size := 1 << bits.Len(uint(2*len(members)-1)); size > len(table) {
		table = make([]uint32, size)
	}
	seed := maphash.MakeSeed()
	for i, m := range members {
		name := nameOf(out, m)
		for h := maphash.Bytes(seed, name); ; h++ {
			slot := &table[h&uint64(len(table)-1)]
			if *slot == 0 {
				*slot = uint32(i + 1)
				break
			}
			if string(nameOf(out, members[*slot-1])) == string(name) {
				return true
			}
		}
	}
	return false
}

// newRepair returns the repair of the object that stands at start and reaches to
// the end of out.
func newRepair(out []byte, start int, members []member) repair {
	r := repair{start: start, end: len(out)}
	place := make(map[string]int, len(members))
	for i, m := range members {
		end := len(out) - 1 // the list's tail
		if i+1 < len(members) {
			end = members[i+1].start
		}
		name := string(nameOf(out, m))
		if at, ok := place[name]; ok {
			r.pairs[at].value, r.pairs[at].valueEnd = m.value, end
			continue
		}
		place[name] = len(r.pairs)
		r.pairs = append(r.pairs, segment{m.start, m.value, m.value, end})
	}
	return r
}

// repaired returns a copy of out[from:] with all noted objects in it put right.
func (t *transcoder) repaired(out []byte, from int) []byte {
	slices.SortFunc(t.repairs, func(a, b repair) int { return a.start - b.start })
	return rewrite(nil, out, t.repairs, from, len(out))
}

// rewrite appends out[from:to] to dst; repairs are sorted by their start. What is
// dropped is never looked at, so every byte is copied at most once. It recurses as
// deep as objects with repeated names nest, at most MaxDepth.
func rewrite(dst, out []byte, repairs []repair, from, to int) []byte {
	i, _ := slices.BinarySearchFunc(repairs, from, func(r repair, at int) int { return r.start - at })
	for i < len(repairs) && repairs[i].start < to {
		r := repairs[i]
		dst = append(dst, out[from:r.start]...)
		dst = append(dst, tagTuple, 1, tagList)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.pairs)))
		for _, p := range r.pairs {
			dst = append(dst, out[p.name:p.nameEnd]...)
			dst = rewrite(dst, out, repairs, p.value, p.valueEnd)
		}
		dst = append(dst, tagNil)
		from = r.end
		i, _ = slices.BinarySearchFunc(repairs, from, func(r repair, at int) int { return r.start - at })
	}
	return append(dst, out[from:to]...)
}
