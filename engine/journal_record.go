package engine

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
)

// blockBytes is the size of events at which a block is complete. It is a value
// of one engine step: larger ones share the step among more events, smaller
// ones waste less where a read begins.
const blockBytes = 32 << 10

// Parts of a journal's side space, behind its number.
const (
	sideKey     = 1 // idempotency key -> first and last position
	sideExpiry  = 2 // latest expiry, first position of a block -> nothing
	sideKeyRing = 3 // n -> the n-th idempotency key
)

func journalKey(db uint32, name string) []byte {
	return append(prefix(nil, db, 0, spaceJournal), name...)
}

// eventsPrefix begins the keys of a journal's blocks.
func eventsPrefix(dst []byte, db, num uint32) []byte {
	return binary.BigEndian.AppendUint32(prefix(dst, db, 0, spaceEvents), num)
}

// eventKey is the key of the block that begins at p.
func eventKey(dst []byte, db, num uint32, p osier.Position) []byte {
	return p.Append(eventsPrefix(dst, db, num))
}

// eventsRange bounds a journal's blocks.
func eventsRange(db, num uint32) (lower, upper []byte) {
	lower = eventsPrefix(nil, db, num)
	return lower, keys.PrefixEnd(lower)
}

// blockPosition reads the position at the end of a block's key.
func blockPosition(key []byte) (osier.Position, bool) {
	if len(key) != prefixSize+4+osier.PositionBytes {
		return osier.Position{}, false
	}
	p, err := osier.DecodePosition(key[prefixSize+4:])
	return p, err == nil
}

func sidePrefix(db, num uint32, part byte) []byte {
	return append(binary.BigEndian.AppendUint32(prefix(nil, db, 0, spaceJournalSide), num), part)
}

// sideRange bounds all of a journal's side records.
func sideRange(db, num uint32) (lower, upper []byte) {
	lower = sidePrefix(db, num, 0)
	lower = lower[:len(lower)-1]
	return lower, keys.PrefixEnd(lower)
}

func sideKeyOf(db, num uint32, key string) []byte {
	return append(sidePrefix(db, num, sideKey), key...)
}

func keyRingKey(db, num uint32, n uint64) []byte {
	return binary.BigEndian.AppendUint64(sidePrefix(db, num, sideKeyRing), n)
}

// expiryKey lists a block by its latest expiry.
func expiryKey(db, num uint32, millis int64, first osier.Position) []byte {
	return first.Append(binary.BigEndian.AppendUint64(sidePrefix(db, num, sideExpiry), uint64(millis)))
}

// journalState is a journal's record.
type journalState struct {
	num      uint32
	settings osier.JournalSettings
	last     osier.Position // of the last event ever appended
	trimmed  osier.Position // of the last event that a trim dropped
	// expiring is the last event with an expiry of its own: after it, ordinals
	// have no holes.
	expiring osier.Position
	// tailFirst is where the open block begins, whose events lie in records of
	// their appends until it is complete; zero: it is empty.
	tailFirst osier.Position
	count     uint64 // events kept
	bytes     uint64 // of them
	appended  uint64 // events ever appended
	written   uint64 // bytes of them
	keysFirst uint64 // idempotency keys forgotten so far
	keysNext  uint64 // and remembered so far
}

func (s *journalState) append(dst []byte) []byte {
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, uint64(s.num))
	set := &s.settings
	dst = append(dst, byte(set.Durability))
	for _, n := range [...]uint64{uint64(set.MaxAge), set.MaxEvents, set.MaxBytes, uint64(set.Window), uint64(set.MaxEventBytes), uint64(set.KeysKept)} {
		dst = binary.AppendUvarint(dst, n)
	}
	for _, p := range [...]osier.Position{s.last, s.trimmed, s.expiring, s.tailFirst} {
		dst = p.Append(dst)
	}
	for _, n := range [...]uint64{s.count, s.bytes, s.appended, s.written, s.keysFirst, s.keysNext} {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

func (r *reader) position() osier.Position {
	p, err := osier.DecodePosition(r.bytes(osier.PositionBytes))
	r.bad = r.bad || err != nil
	return p
}

func decodeJournalState(b []byte) (s journalState, err error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	s.num = uint32(r.uvarint())
	set := &s.settings
	set.Durability = osier.Durability(r.byte())
	set.MaxAge, set.MaxEvents, set.MaxBytes = time.Duration(r.uvarint()), r.uvarint(), r.uvarint()
	set.Window, set.MaxEventBytes, set.KeysKept = time.Duration(r.uvarint()), uint32(r.uvarint()), uint32(r.uvarint())
	s.last, s.trimmed, s.expiring, s.tailFirst = r.position(), r.position(), r.position(), r.position()
	s.count, s.bytes, s.appended, s.written = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	s.keysFirst, s.keysNext = r.uvarint(), r.uvarint()
	if r.bad || len(r.b) > 0 || s.num == 0 || set.Check() != nil {
		err = fmt.Errorf("journal: %w", errRecord)
	}
	return s, err
}

// A block is a run of events in one record, under the position of its first.
// The events of an append lie in a block of their own until enough have come for
// a complete one. ordinal and offset are how many events and bytes the journal
// had before it, so that counting a range takes two look-ups.
type block struct {
	stats
	ordinal uint64
	offset  uint64
	events  []byte // points into the record
}

// stats are what is known of a run of events without looking into it.
type stats struct {
	first, last osier.Position
	count       uint32
	// minExpiry and maxExpiry are the earliest and the latest end of an event by
	// its own expiry, in milliseconds.
	minExpiry, maxExpiry int64
}

// never is an expiry that does not come.
const never = math.MaxInt64

// note counts one more event, which comes after the others.
func (s *stats) note(e *osier.RawEvent) {
	expires := e.Expires
	if expires == 0 {
		expires = never
	}
	if s.count == 0 {
		*s = stats{first: e.Position, minExpiry: expires}
	}
	s.count++
	s.last = e.Position
	s.minExpiry, s.maxExpiry = min(s.minExpiry, expires), max(s.maxExpiry, expires)
}

// Block record: version 1, flags 1, checksum 4 of all that follows, count 4,
// ordinal 8, offset 8, last position 12, with flagExpiries the earliest and
// latest expiry 8 each, events.
const (
	blockFixed   = 2 + 4 + 4 + 8 + 8 + osier.PositionBytes
	flagExpiries = 1
)

// castagnoli is a checksum table; it is made by its first use and never changes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blockMost is the longest header of a block.
const blockMost = blockFixed + 16

func appendBlock(dst []byte, b *block) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, blockMost)...)
	dst = append(dst, b.events...)
	return append(dst[:at], sealBlock(dst[at:], b)...)
}

// sealBlock makes a block's record of its events, which stand in buf behind room
// for the longest header. It returns the part of buf that is the record.
func sealBlock(buf []byte, b *block) []byte {
	size, flags := blockFixed, byte(0)
	if b.minExpiry != never {
		size, flags = blockMost, flagExpiries
	}
	rec := buf[blockMost-size:]
	h := append(rec[:0], recordVersion, flags, 0, 0, 0, 0)
	h = binary.BigEndian.AppendUint32(h, b.count)
	h = binary.BigEndian.AppendUint64(h, b.ordinal)
	h = binary.BigEndian.AppendUint64(h, b.offset)
	h = b.last.Append(h)
	if flags != 0 {
		h = binary.BigEndian.AppendUint64(h, uint64(b.minExpiry))
		binary.BigEndian.AppendUint64(h, uint64(b.maxExpiry))
	}
	binary.BigEndian.PutUint32(rec[2:], crc32.Checksum(rec[6:], castagnoli))
	return rec
}

// decodeBlock reads a block's record and checks its sum.
func decodeBlock(key, value []byte) (b block, err error) {
	var ok bool
	if b, ok = blockHeader(key, value); !ok || crc32.Checksum(value[6:], castagnoli) != binary.BigEndian.Uint32(value[2:]) {
		return block{}, fmt.Errorf("block of events: %w", errRecord)
	}
	return b, nil
}

func blockHeader(key, v []byte) (b block, ok bool) {
	if b.first, ok = blockPosition(key); !ok || len(v) < blockFixed || v[0] != recordVersion || v[1] > flagExpiries {
		return b, false
	}
	b.count = binary.BigEndian.Uint32(v[6:])
	b.ordinal, b.offset = binary.BigEndian.Uint64(v[10:]), binary.BigEndian.Uint64(v[18:])
	last, err := osier.DecodePosition(v[26:])
	b.last, b.minExpiry, b.maxExpiry, b.events = last, never, never, v[blockFixed:]
	if v[1] == flagExpiries {
		if len(b.events) < 16 {
			return b, false
		}
		b.minExpiry = int64(binary.BigEndian.Uint64(b.events) & math.MaxInt64)
		b.maxExpiry = int64(binary.BigEndian.Uint64(b.events[8:]) & math.MaxInt64)
		b.events = b.events[16:]
	}
	return b, err == nil && b.count > 0 && !b.last.Before(b.first)
}

// sectionPositions begins, behind a remembered answer, the positions that its
// operations' events got. An answer without any has no such section.
const sectionPositions = 'j'

func appendPositions(dst []byte, ops []osier.OpResult) []byte {
	n := 0
	for i := range ops {
		if ops[i].Journal != nil {
			n++
		}
	}
	if n == 0 {
		return dst
	}
	dst = binary.AppendUvarint(append(dst, sectionPositions), uint64(n))
	for i := range ops {
		if j := ops[i].Journal; j != nil {
			dst = binary.AppendUvarint(dst, uint64(i))
			dst = j.Last.Append(j.First.Append(dst))
			repeated := byte(0)
			if j.Repeated {
				repeated = 1
			}
			dst = append(dst, repeated)
		}
	}
	return dst
}

func (r *reader) positions(ops []osier.OpResult) {
	for range r.count(2*osier.PositionBytes + 2) {
		i := r.uvarint()
		j := &osier.JournalResult{First: r.position(), Last: r.position(), Repeated: r.byte() == 1}
		if r.bad || i >= uint64(len(ops)) {
			r.bad = true
			return
		}
		ops[i].Journal = j
	}
}
