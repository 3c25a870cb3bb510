// Package kvmem is a hash table of keys and values in memory that the garbage
// collector has nothing to look for in: entries lie in chunks of bytes, and the
// table holds where. An entry costs 40 bytes, some 15 of the table and what
// rounding adds, beside its key and value.
//
// A Table is not safe for concurrent use, but readers (Find, Show) may run at
// the same time as each other.
package kvmem

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// Cell is an entry without its key.
type Cell struct {
	Value    []byte // when read: valid until the table is written to
	Version  uint64
	Deadline int64
	Stored   int64 // the deadline under which the store lists the key; 0: none
	// Epoch is when the entry was last changed; see Table.Evict.
	Epoch uint32
	Type  uint8
	// Was: the store has the key.
	Was bool
	// Busy: a commit is about to change the key.
	Busy bool
}

const flagBusy = 1

// Offsets in an entry.
const (
	atEpoch    = 0
	atSpace    = 4
	atVersion  = 8
	atDeadline = 16
	atStored   = 24
	atValueLen = 32
	atKeyLen   = 36
	atType     = 38
	atFlags    = 39
	headerSize = 40
)

// MaxKey is the longest key.
const MaxKey = 1<<16 - 1

// Ref names an entry until the next write to the table; 0 is none.
type Ref uint32

// Table is the table. The zero value is ready.
type Table struct {
	slots   []uint64 // tag in the upper half, Ref in the lower; 0 is empty
	used    int
	touched []uint32 // a bit a slot: read since the hand passed
	hand    int
	arena   arena
}

// Len is the number of entries.
func (t *Table) Len() int { return t.used }

// Bytes is what the table takes in memory.
func (t *Table) Bytes() int { return t.arena.bytes + 8*cap(t.slots) + 4*cap(t.touched) }

// locate finds an entry's slot; -1 is none.
func (t *Table) locate(tag, space uint32, key string) int {
	if len(t.slots) == 0 {
		return -1
	}
	mask := uint32(len(t.slots) - 1)
	for i := tag & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s == 0 {
			return -1
		}
		if uint32(s>>32) == tag {
			b := t.arena.at(Ref(s))
			if binary.LittleEndian.Uint32(b[atSpace:]) == space && string(keyOf(b)) == key {
				return int(i)
			}
		}
	}
}

func keyOf(b []byte) []byte {
	n := int(binary.LittleEndian.Uint16(b[atKeyLen:]))
	return b[headerSize : headerSize+n]
}

func valueOf(b []byte) []byte {
	k := headerSize + int(binary.LittleEndian.Uint16(b[atKeyLen:]))
	n := int(binary.LittleEndian.Uint32(b[atValueLen:]))
	return b[k : k+n : k+n]
}

func sizeOf(b []byte) int {
	return headerSize + int(binary.LittleEndian.Uint16(b[atKeyLen:])) + int(binary.LittleEndian.Uint32(b[atValueLen:]))
}

// Find looks an entry up and notes that it is wanted.
func (t *Table) Find(tag, space uint32, key string) Ref {
	i := t.locate(tag, space, key)
	if i < 0 {
		return 0
	}
	if w, bit := &t.touched[i/32], uint32(1)<<(i%32); atomic.LoadUint32(w)&bit == 0 {
		atomic.OrUint32(w, bit)
	}
	return Ref(t.slots[i])
}

// Read shows an entry.
func (t *Table) Read(r Ref) Cell {
	c := t.Show(r)
	b := t.arena.at(r)
	c.Epoch = binary.LittleEndian.Uint32(b[atEpoch:])
	stored := binary.LittleEndian.Uint64(b[atStored:])
	c.Was, c.Stored = stored&1 != 0, int64(stored>>1)
	return c
}

// Show is Read without Epoch, Was and Stored, which may be changed meanwhile.
func (t *Table) Show(r Ref) Cell {
	b := t.arena.at(r)
	return Cell{Value: valueOf(b), Version: binary.LittleEndian.Uint64(b[atVersion:]),
		Deadline: int64(binary.LittleEndian.Uint64(b[atDeadline:])), Type: b[atType], Busy: b[atFlags]&flagBusy != 0}
}

// Put makes c the entry under a key. With grow false it fails, changing nothing,
// if that takes more memory. c.Value must not be of this table, but may be the
// entry's own.
func (t *Table) Put(tag, space uint32, key string, c *Cell, grow bool) bool {
	i := t.locate(tag, space, key)
	size := headerSize + len(key) + len(c.Value)
	if i >= 0 {
		r := Ref(t.slots[i])
		b := t.arena.at(r)
		if old := sizeOf(b); units(old) != units(size) {
			next := t.arena.alloc(size, grow)
			if next == 0 {
				return false
			}
			fill(t.arena.at(next), space, key, c)
			t.arena.free(r, old)
			t.slots[i] = uint64(tag)<<32 | uint64(next)
			return true
		}
		fill(b, space, key, c)
		return true
	}
	if 4*(t.used+1) > 3*len(t.slots) {
		if !grow && len(t.slots) > 0 {
			return false
		}
		t.resize(max(16, 2*len(t.slots)))
	}
	r := t.arena.alloc(size, grow)
	if r == 0 {
		return false
	}
	fill(t.arena.at(r), space, key, c)
	t.insert(uint64(tag)<<32 | uint64(r))
	t.used++
	return true
}

// Overwrite makes c an entry that Find has just given, without looking for it
// again. It fails, changing nothing, if c takes another amount of room.
func (t *Table) Overwrite(r Ref, c *Cell) bool {
	b := t.arena.at(r)
	k := int(binary.LittleEndian.Uint16(b[atKeyLen:]))
	if units(sizeOf(b)) != units(headerSize+k+len(c.Value)) {
		return false
	}
	fillHeader(b, c)
	copy(b[headerSize+k:], c.Value)
	return true
}

func fill(b []byte, space uint32, key string, c *Cell) {
	binary.LittleEndian.PutUint32(b[atSpace:], space)
	binary.LittleEndian.PutUint16(b[atKeyLen:], uint16(len(key)))
	fillHeader(b, c)
	copy(b[headerSize:], key)
	copy(b[headerSize+len(key):], c.Value)
}

func fillHeader(b []byte, c *Cell) {
	binary.LittleEndian.PutUint32(b[atEpoch:], c.Epoch)
	binary.LittleEndian.PutUint64(b[atVersion:], c.Version)
	binary.LittleEndian.PutUint64(b[atDeadline:], uint64(c.Deadline))
	putStored(b, c.Was, c.Stored)
	binary.LittleEndian.PutUint32(b[atValueLen:], uint32(len(c.Value)))
	b[atType], b[atFlags] = c.Type, 0
	if c.Busy {
		b[atFlags] |= flagBusy
	}
}

func putStored(b []byte, was bool, stored int64) {
	n := uint64(stored) << 1
	if was {
		n |= 1
	}
	binary.LittleEndian.PutUint64(b[atStored:], n)
}

// SetStored notes what the store has of an entry. Readers that use Show may run
// meanwhile.
func (t *Table) SetStored(r Ref, was bool, stored int64) { putStored(t.arena.at(r), was, stored) }

// SetBusy marks an entry, or takes the mark off.
func (t *Table) SetBusy(r Ref, busy bool) {
	b := t.arena.at(r)
	b[atFlags] &^= flagBusy
	if busy {
		b[atFlags] |= flagBusy
	}
}

func (t *Table) insert(slot uint64) {
	mask := uint32(len(t.slots) - 1)
	for i := uint32(slot>>32) & mask; ; i = (i + 1) & mask {
		if t.slots[i] == 0 {
			t.slots[i] = slot
			t.setTouched(int(i), true)
			return
		}
	}
}

func (t *Table) setTouched(i int, on bool) {
	if on {
		t.touched[i/32] |= 1 << (i % 32)
	} else {
		t.touched[i/32] &^= 1 << (i % 32)
	}
}

func (t *Table) resize(n int) {
	old := t.slots
	t.slots, t.touched = make([]uint64, n), make([]uint32, (n+31)/32)
	t.hand = 0
	for _, s := range old {
		if s != 0 {
			t.insert(s)
		}
	}
}

// Remove takes an entry out.
func (t *Table) Remove(tag, space uint32, key string) {
	if i := t.locate(tag, space, key); i >= 0 {
		t.removeAt(i)
	}
}

// removeAt empties a slot and moves back what had to step aside for it.
func (t *Table) removeAt(i int) {
	r := Ref(t.slots[i])
	t.arena.free(r, sizeOf(t.arena.at(r)))
	t.used--
	mask := len(t.slots) - 1
	hole := i
	for j := (i + 1) & mask; t.slots[j] != 0; j = (j + 1) & mask {
		home := int(t.slots[j]>>32) & mask
		if (j-home)&mask < (j-hole)&mask {
			continue
		}
		t.slots[hole] = t.slots[j]
		t.setTouched(hole, t.touched[j/32]>>(j%32)&1 != 0)
		hole = j
	}
	t.slots[hole] = 0
	t.setTouched(hole, false)
}

// Tagged calls fn for the entries with a tag, which fn must not move.
func (t *Table) Tagged(tag uint32, fn func(r Ref, space uint32, key []byte)) {
	if len(t.slots) == 0 {
		return
	}
	mask := uint32(len(t.slots) - 1)
	for i := tag & mask; t.slots[i] != 0; i = (i + 1) & mask {
		if s := t.slots[i]; uint32(s>>32) == tag {
			b := t.arena.at(Ref(s))
			fn(Ref(s), binary.LittleEndian.Uint32(b[atSpace:]), keyOf(b))
		}
	}
}

// Each calls fn for every entry and removes those for which it returns true.
func (t *Table) Each(fn func(r Ref, space uint32, key []byte) (remove bool)) {
	for i := 0; i < len(t.slots); {
		s := t.slots[i]
		if s == 0 {
			i++
			continue
		}
		b := t.arena.at(Ref(s))
		if fn(Ref(s), binary.LittleEndian.Uint32(b[atSpace:]), keyOf(b)) {
			t.removeAt(i) // what moves here is looked at next
		} else {
			i++
		}
	}
}

// Evict removes up to n entries that were not read lately and not changed after
// epoch clean, telling fn their spaces. It looks at each slot twice at most.
func (t *Table) Evict(n int, clean uint32, fn func(space uint32)) (evicted int) {
	for looked := 0; looked < 2*len(t.slots) && evicted < n; looked++ {
		if t.hand >= len(t.slots) {
			t.hand = 0
		}
		i := t.hand
		s := t.slots[i]
		if s == 0 {
			t.hand++
			continue
		}
		b := t.arena.at(Ref(s))
		dirty := int32(binary.LittleEndian.Uint32(b[atEpoch:])-clean) > 0
		if dirty || b[atFlags]&flagBusy != 0 || t.touched[i/32]>>(i%32)&1 != 0 {
			t.setTouched(i, false)
			t.hand++
			continue
		}
		fn(binary.LittleEndian.Uint32(b[atSpace:]))
		t.removeAt(i)
		evicted++
	}
	return evicted
}

// Sparse reports whether Compact would give back much memory.
func (t *Table) Sparse() bool {
	f := t.arena.freed
	return f > 4<<10 && 2*f > t.arena.bytes || f > 64<<10 && 4*f > t.arena.bytes || len(t.slots) > 64 && 16*t.used < len(t.slots)
}

// Compact moves all entries together.
func (t *Table) Compact() {
	old := t.arena
	t.arena = arena{}
	for i, s := range t.slots {
		if s == 0 {
			continue
		}
		b := old.at(Ref(s))
		size := sizeOf(b)
		r := t.arena.alloc(size, true)
		copy(t.arena.at(r), b[:size])
		t.slots[i] = s>>32<<32 | uint64(r)
	}
	n := 16
	for 4*t.used > 3*n {
		n *= 2
	}
	if 4*n <= len(t.slots) {
		t.resize(n)
	}
}

// The arena gives out pieces in units of 16 bytes. A piece's size is rounded so
// that pieces of few sizes are used again for each other.
const (
	unitSize   = 16
	chunkUnits = 1 << 12
	ownChunk   = chunkUnits / 2 // from here on a piece has a chunk of its own
	classes    = 128
)

// units is the room for a piece of a size: exact up to 1 KiB, with four
// significant bits beyond.
func units(size int) int {
	u := (size + unitSize - 1) / unitSize
	if u <= 64 {
		return u
	}
	shift := bits.Len(uint(u-1)) - 4
	return (u + 1<<shift - 1) >> shift << shift
}

func class(u int) int {
	if u <= 64 {
		return u
	}
	shift := bits.Len(uint(u)) - 4
	return 64 + 8*(shift-3) + u>>shift - 8
}

type arena struct {
	chunks  [][]byte
	filling bool         // there is a chunk being filled:
	current int          // which
	next    int          // its first free unit
	heads   [classes]Ref // first free piece of each class; it holds the next
	spare   []int        // numbers of chunks given back
	bytes   int          // of all chunks
	freed   int          // of them, not in use
}

// at returns a piece's memory and what follows it. Refs begin at 1.
func (a *arena) at(r Ref) []byte {
	n := uint32(r) - 1
	return a.chunks[n/chunkUnits][n%chunkUnits*unitSize:]
}

func (a *arena) alloc(size int, grow bool) Ref {
	u := units(size)
	if u >= ownChunk {
		if !grow {
			return 0
		}
		return a.chunk(u * unitSize)
	}
	if r := a.heads[class(u)]; r != 0 {
		a.heads[class(u)] = Ref(binary.LittleEndian.Uint32(a.at(r)))
		a.freed -= u * unitSize
		return r
	}
	if !a.filling || a.next+u > len(a.chunks[a.current])/unitSize {
		if !grow {
			return 0
		}
		a.leave()
		want := min(max(1<<10, a.bytes, u*unitSize), chunkUnits*unitSize)
		r := a.chunk((want + unitSize - 1) / unitSize * unitSize)
		a.filling, a.current, a.next = true, int(r-1)/chunkUnits, 0
	}
	r := Ref(a.current*chunkUnits + a.next + 1)
	a.next += u
	return r
}

// leave makes the rest of the chunk being filled a free piece.
func (a *arena) leave() {
	if !a.filling {
		return
	}
	rest := len(a.chunks[a.current])/unitSize - a.next
	for rest > 0 {
		u := min(rest, 64)
		r := Ref(a.current*chunkUnits + a.next + 1)
		a.freed += u * unitSize
		a.release(r, u)
		a.next += u
		rest -= u
	}
}

func (a *arena) release(r Ref, u int) {
	binary.LittleEndian.PutUint32(a.at(r), uint32(a.heads[class(u)]))
	a.heads[class(u)] = r
}

// chunk adds memory of its own.
func (a *arena) chunk(size int) Ref {
	a.bytes += size
	if n := len(a.spare); n > 0 {
		i := a.spare[n-1]
		a.spare = a.spare[:n-1]
		a.chunks[i] = make([]byte, size)
		return Ref(i*chunkUnits + 1)
	}
	a.chunks = append(a.chunks, make([]byte, size))
	return Ref((len(a.chunks)-1)*chunkUnits + 1)
}

func (a *arena) free(r Ref, size int) {
	u := units(size)
	if u >= ownChunk {
		i := int(r-1) / chunkUnits
		a.bytes -= len(a.chunks[i])
		a.chunks[i] = nil
		a.spare = append(a.spare, i)
		return
	}
	a.freed += u * unitSize
	a.release(r, u)
}
