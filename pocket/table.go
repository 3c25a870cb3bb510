package pocket

import (
	"math/bits"
	"sync/atomic"
)

// table maps a key's hash to the newest version of its record: open
// addressing over words of 16 bits of the hash and 48 bits of offset. One
// writer stores, any number of readers load without a lock. A slot that was
// filled is never empty again, so that probing readers miss nothing; the
// writer replaces the whole table when it fills up.
//
// The bits of the hash below the tag are the slot's number, the highest first:
// in the order of their hashes, keys fill a table of any size from its
// beginning to its end.
type table struct {
	mask  uint64
	shift uint // see slot
	slots []atomic.Uint64
	used  int // slots that are not empty; the writer's
}

const (
	slotEmpty = 0
	slotGone  = 1 // the key was deleted and its record cleaned away
	tagShift  = 48
	midShift  = 16 // of the 32 bits of the hash below the tag, which records hold
)

const minTableSlots = 64

func newTable(records int) *table {
	n := minTableSlots
	for n < records*2 {
		n *= 2
	}
	return &table{mask: uint64(n - 1), shift: uint(64 - bits.TrailingZeros(uint(n))), slots: make([]atomic.Uint64, n)}
}

// slot returns where the probing for a hash begins.
func (t *table) slot(hash uint64) uint64 { return hash << (64 - tagShift) >> (t.shift & 63) }

// full reports whether another insertion would make probing slow.
func (t *table) full() bool { return t.used*8 >= len(t.slots)*5 }

// insert stores off for a hash that is known to be absent.
func (t *table) insert(hash uint64, off offset) {
	t.insertTagged(hash, hash>>tagShift, off)
}

func (t *table) insertTagged(hash, tag uint64, off offset) {
	i := t.slot(hash)
	for t.slots[i].Load() != slotEmpty {
		i = (i + 1) & t.mask
	}
	t.slots[i].Store(tag<<tagShift | uint64(off))
	t.used++
}

// find returns the slot and the record of key as the writer sees them.
func (t *table) find(dir *directory, hash uint64, key string) (slot *atomic.Uint64, off offset, r record) {
	tag := hash >> tagShift
	for i := t.slot(hash); ; i = (i + 1) & t.mask {
		w := t.slots[i].Load()
		if w == slotEmpty {
			return nil, 0, record{}
		}
		if w>>tagShift != tag || w == slotGone {
			continue
		}
		off = offset(w & offsetMask)
		if r, ok := dir.at(off); ok && r.key() == key {
			return &t.slots[i], off, r
		}
	}
}

// rebuilt returns a table with twice the room it needs, without the slots of
// keys whose deletion every reader can see already.
func (t *table) rebuilt(dir *directory, published uint64) *table {
	live := 0
	for i := range t.slots {
		if w := t.slots[i].Load(); w > slotGone {
			live++
		}
	}
	nt := newTable(live + 1)
	for i := range t.slots {
		w := t.slots[i].Load()
		if w <= slotGone {
			continue
		}
		r, ok := dir.at(offset(w & offsetMask))
		if !ok || r.deleted() && r.version() <= published {
			continue
		}
		nt.insertTagged(r.midHash()<<midShift, w>>tagShift, offset(w&offsetMask))
	}
	return nt
}
