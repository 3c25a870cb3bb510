package engine

import (
	"hash/maphash"

	"github.com/osierdb/osier"
)

// freshIDs tells, for ids at the upper end of a collection, that there is no
// such document, without a look into the store: that is where the ids are that
// the store makes, and those of an import in order, also when many writers come
// out of turn. It is the writer's, under queue.order, and only spares look-ups:
// what apply does is the same with and without it.
//
// Every id above floor that was ever asked for, and so every document there, is
// in one of two sets. When the younger is full, the older one is forgotten and
// the floor rises to its highest id.
type freshIDs struct {
	floor      string // no lower than any id that is in neither set
	older, now idSet
}

// idSet is a Bloom filter: it has what was added, and takes a few others for it.
type idSet struct {
	bits []uint64
	n    int    // ids added
	top  string // the highest of them
}

const (
	leastIDSet = 1 << 4  // words of the first set
	mostIDSet  = 1 << 11 // of the largest: 16 KiB for 8,192 ids
	bitsPerID  = 16
)

var freshSeed = maphash.MakeSeed()

// absent reports that no document has this id. False means that one may have.
func (f *freshIDs) absent(id string) bool {
	if id <= f.floor {
		return false
	}
	h := maphash.String(freshSeed, id)
	known := f.older.has(h)
	known = !f.now.add(h, id) || known
	if f.now.n*bitsPerID >= len(f.now.bits)*64 {
		f.turn()
	}
	return !known
}

// turn begins a new set, twice as large as the full one up to a bound.
func (f *freshIDs) turn() {
	f.floor = max(f.floor, f.older.top)
	bits := f.older.bits
	f.older = f.now
	if words := min(2*len(f.older.bits), mostIDSet); len(bits) < words {
		bits = make([]uint64, words)
	} else {
		clear(bits)
	}
	f.now = idSet{bits: bits}
}

// places are the two bits of a hash.
func (s *idSet) places(h uint64) (a, b uint64) {
	n := uint64(len(s.bits)) * 64
	return h & (n - 1), h >> 32 & (n - 1)
}

func (s *idSet) has(h uint64) bool {
	if s.n == 0 {
		return false
	}
	a, b := s.places(h)
	return s.bits[a/64]>>(a%64)&1 != 0 && s.bits[b/64]>>(b%64)&1 != 0
}

// add reports whether the id was not there.
func (s *idSet) add(h uint64, id string) bool {
	if s.bits == nil {
		s.bits = make([]uint64, leastIDSet)
	}
	if s.top < id {
		s.top = id
	}
	a, b := s.places(h)
	if s.has(h) {
		return false
	}
	s.bits[a/64] |= 1 << (a % 64)
	s.bits[b/64] |= 1 << (b % 64)
	s.n++
	return true
}

// fresh tells whether a document is known to be absent.
func (r *run) fresh(c *collState, id osier.ID) (bool, error) {
	if c.fresh == nil {
		it, err := r.a.b.NewIter(collSpace(r.db.num, c.num, spaceDoc))
		if err != nil {
			return false, err
		}
		f := &freshIDs{}
		if it.Last() {
			f.floor = string(it.Key()[prefixSize:])
		}
		if err := it.Close(); err != nil {
			return false, err
		}
		c.fresh = f
	}
	return c.fresh.absent(id.Key()), nil
}
