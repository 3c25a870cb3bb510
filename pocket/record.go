package pocket

import (
	"strings"
	"sync/atomic"
	"unsafe"
)

// A record lies in the arena as 8-byte words that the garbage collector never
// scans: four words of header, then the key's bytes, the value's JSON bytes
// and, when flagHasExpiry is set, eight bytes of expiry in Unix milliseconds.
//
//	word 0  version (the sequence of the transaction that wrote it)
//	word 1  offset of the version it replaced (48 bits) | flags (16 bits)
//	word 2  length of the value (32) | length of the key (16) | type (16)
//	word 3  the key's hash below its tag (32) | index of its decoded value (32)
//
// Everything but word 3's lower half is written before the record's offset is
// published by an atomic store and never changes afterwards.
const (
	headerWords = 4
	wordBytes   = 8

	// MaxKeyBytes is the longest key a store accepts.
	MaxKeyBytes = 1<<16 - 1
	// MaxValueBytes is the longest value (in its JSON form) a store accepts.
	MaxValueBytes = 1 << 30
)

// offset is the place of a record in the arena, in words since the store was
// opened. Offsets are never reused, so that a stale one is recognised: its
// chunk is no longer in the directory.
type offset uint64

const offsetMask = 1<<48 - 1

// Flags of a record.
const (
	flagUsed      = 1 << iota // set on every record: its header is never zero
	flagDeleted               // a deletion; the value is empty
	flagHasExpiry             // eight bytes of expiry follow the value
	flagPlainText             // the value is a text without escapes, and of no type
)

// frozen in word 3 says that the record is no longer the newest version of its
// key, and that its value must not enter the cache of decoded values.
const frozen = 1<<32 - 1

// record is a pointer to word 0 of a record. It keeps the chunk alive.
type record struct{ p *[headerWords]uint64 }

func (r record) version() uint64 { return r.p[0] }
func (r record) prev() offset    { return offset(r.p[1] & offsetMask) }
func (r record) flags() uint64   { return r.p[1] >> 48 }
func (r record) valueLen() int   { return int(r.p[2] & (1<<32 - 1)) }
func (r record) keyLen() int     { return int(r.p[2] >> 32 & (1<<16 - 1)) }
func (r record) typeID() uint16  { return uint16(r.p[2] >> 48) }
func (r record) deleted() bool   { return r.flags()&flagDeleted != 0 }

// key returns the key; the text shares the arena's memory.
func (r record) key() string {
	return unsafe.String((*byte)(unsafe.Add(unsafe.Pointer(r.p), headerWords*wordBytes)), r.keyLen())
}

// value returns the JSON text of the value; it shares the arena's memory.
func (r record) value() string {
	return unsafe.String((*byte)(unsafe.Add(unsafe.Pointer(r.p), headerWords*wordBytes+r.keyLen())), r.valueLen())
}

// text returns the characters of a value that flagPlainText says is one.
func (r record) text() string {
	return unsafe.String((*byte)(unsafe.Add(unsafe.Pointer(r.p), headerWords*wordBytes+r.keyLen()+1)), r.valueLen()-2)
}

// expiry returns the Unix millisecond at which the record ends, 0 for never.
func (r record) expiry() int64 {
	if r.flags()&flagHasExpiry == 0 {
		return 0
	}
	at := headerWords*wordBytes + r.keyLen() + r.valueLen()
	at = (at + wordBytes - 1) &^ (wordBytes - 1)
	return *(*int64)(unsafe.Add(unsafe.Pointer(r.p), at))
}

// cacheWord is word 3, which readers change too: by atomic steps, and only its
// lower half.
func (r record) cacheWord() *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&r.p[3]))
}

// cacheIndex returns the lower half of word 3.
func (r record) cacheIndex() uint32 { return uint32(r.cacheWord().Load()) }

// setCacheIndex sets the lower half of word 3 if it is old.
func (r record) setCacheIndex(old, index uint32) bool {
	w := r.cacheWord().Load()
	return uint32(w) == old && r.cacheWord().CompareAndSwap(w, w>>32<<32|uint64(index))
}

func (r record) frozen() bool { return r.cacheIndex() == frozen }

func (r record) midHash() uint64 { return r.cacheWord().Load() >> 32 }

// hasLineLike reports whether r's line differs from other's, which has the same
// key, in nothing but the value.
func (r record) hasLineLike(other record) bool {
	return r.typeID() == other.typeID() && (r.flags()|other.flags())&flagHasExpiry == 0
}

// words returns the size of the whole record in the arena.
func (r record) words() int {
	return recordWords(r.keyLen(), r.valueLen(), r.flags()&flagHasExpiry != 0)
}

func recordWords(keyLen, valueLen int, expires bool) int {
	n := headerWords + (keyLen+valueLen+wordBytes-1)/wordBytes
	if expires {
		n++
	}
	return n
}

// draft is a record before it has a place in the arena.
type draft struct {
	key     string
	value   string
	version uint64
	expiry  int64 // Unix milliseconds, 0 for never
	hash    uint64
	typeID  uint16
	deleted bool
	plain   bool // the value is a text known to satisfy isPlainText
}

func (d *draft) words() int { return recordWords(len(d.key), len(d.value), d.expiry != 0) }

// put writes the draft into words, which must be d.words() long.
func (d *draft) put(words []uint64, prev offset) {
	flags := uint64(flagUsed)
	if d.deleted {
		flags |= flagDeleted
	}
	if d.expiry != 0 {
		flags |= flagHasExpiry
		words[len(words)-1] = uint64(d.expiry)
	}
	if d.plain || d.typeID == 0 && isPlainText(d.value) {
		flags |= flagPlainText
	}
	words[0] = d.version
	words[1] = uint64(prev) | flags<<48
	words[2] = uint64(len(d.value)) | uint64(len(d.key))<<32 | uint64(d.typeID)<<48
	words[3] = d.hash >> midShift << 32
	if len(words) > headerWords {
		body := unsafe.Slice((*byte)(unsafe.Pointer(&words[headerWords])), (len(words)-headerWords)*wordBytes)
		copy(body[copy(body, d.key):], d.value)
	}
}

// isPlainText reports whether a JSON value is a text whose characters are
// exactly the bytes between its quotes.
func isPlainText(value string) bool {
	return len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' &&
		strings.IndexByte(value, '\\') < 0
}

// The arena is a row of chunks. A record never crosses from one into the
// next; one that is larger than a chunk takes as many chunk numbers as it
// needs and is addressed through the first.
const (
	chunkShift = 17 // 1 MiB
	chunkWords = 1 << chunkShift
)

// directory finds chunks. It is immutable: readers that hold an old one keep
// the chunks alive that have since been cleaned.
type directory struct {
	base   uint64           // number of the first chunk
	firsts []unsafe.Pointer // to the first words of chunks
	chunks [][]uint64       // the same, for those who need their lengths
}

func newDirectory(base uint64, chunks [][]uint64) *directory {
	d := &directory{base: base, chunks: chunks, firsts: make([]unsafe.Pointer, len(chunks))}
	for i, c := range chunks {
		d.firsts[i] = unsafe.Pointer(unsafe.SliceData(c))
	}
	return d
}

// at returns the record at off, or false when its chunk is not here.
func (d *directory) at(off offset) (record, bool) { return d.chunkList().at(off) }

// chunkList is the part of a directory that at needs, for loops that should
// not load it from there for each record.
type chunkList struct {
	base   uint64
	firsts []unsafe.Pointer
}

func (d *directory) chunkList() chunkList { return chunkList{d.base, d.firsts} }

func (c chunkList) at(off offset) (record, bool) {
	i := uint64(off)>>chunkShift - c.base
	if i >= uint64(len(c.firsts)) {
		return record{}, false
	}
	// An offset whose chunk is known always lies within the chunk.
	return record{(*[headerWords]uint64)(unsafe.Add(c.firsts[i], uint64(off)&(chunkWords-1)*wordBytes))}, true
}

// arena is the writer's side. It is guarded by the store's write lock.
type arena struct {
	dir   *directory
	fresh bool // dir has chunks that are not published yet
	next  offset
	last  []uint64 // chunk that is being filled
	room  []uint64 // what is left of it

	total     int // words of all chunks
	liveWords int // of the newest records of keys, without deletions
}

func newArena() *arena {
	// Number 0 stays unused, so that small offsets can have other meanings.
	return &arena{dir: newDirectory(1, nil)}
}

// alloc returns the place for a record of n words.
func (a *arena) alloc(n int) (offset, []uint64) {
	if n > len(a.room) {
		a.grow(n)
	}
	off, words := a.next, a.room[:n:n]
	a.room = a.room[n:]
	a.next += offset(n)
	return off, words
}

func (a *arena) grow(n int) {
	size := chunkWords
	if len(a.dir.chunks) == 0 && n < chunkWords/16 {
		size = chunkWords / 16 // a small store stays small
	}
	numbers := 1
	if n > size {
		size, numbers = n, (n+chunkWords-1)/chunkWords
	}
	c := make([]uint64, size)
	chunks := make([][]uint64, len(a.dir.chunks)+numbers)
	at := copy(chunks, a.dir.chunks)
	chunks[at] = c
	a.dir, a.fresh = newDirectory(a.dir.base, chunks), true
	a.next = offset(a.dir.base+uint64(at)) << chunkShift
	a.last, a.room = c, c
	a.total += size
}

// dropFirst forgets the oldest chunk, with the numbers its record covered.
func (a *arena) dropFirst() {
	n := 1
	a.total -= len(a.dir.chunks[0])
	for n < len(a.dir.chunks) && a.dir.chunks[n] == nil {
		n++
	}
	chunks := make([][]uint64, len(a.dir.chunks)-n)
	copy(chunks, a.dir.chunks[n:])
	a.dir, a.fresh = newDirectory(a.dir.base+uint64(n), chunks), true
}

// recordIn returns the record that was put into words.
func recordIn(words []uint64) record {
	return record{(*[headerWords]uint64)(unsafe.Pointer(&words[0]))}
}
