package osier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Position is an event's place in its journal: the microsecond it was taken at
// and a counter within it. Positions of a journal increase strictly, for ever:
// also when the clock goes back, and one that was given out never comes again,
// even if a crash took its event back. They compare with ==. The zero Position
// is before all events.
type Position struct {
	Micros int64 // since 1970
	Count  uint32
}

// Beginning is the position to read from for everything that is kept.
func Beginning() Position { return Position{Count: 1} }

// PositionAt is the least position of a moment.
func PositionAt(t time.Time) Position { return Position{Micros: max(t.UnixMicro(), 0)} }

// IsZero reports whether p is before all events.
func (p Position) IsZero() bool { return p == Position{} }

// Time is the moment of the event, to the microsecond.
func (p Position) Time() time.Time { return time.UnixMicro(p.Micros).UTC() }

// Compare orders positions.
func (p Position) Compare(q Position) int {
	switch {
	case p == q:
		return 0
	case p.Before(q):
		return -1
	}
	return 1
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.Micros < q.Micros || p.Micros == q.Micros && p.Count < q.Count
}

// Next is the least position after p: where to go on reading.
func (p Position) Next() Position {
	if p.Count == math.MaxUint32 {
		return Position{Micros: p.Micros + 1}
	}
	return Position{p.Micros, p.Count + 1}
}

// PositionBytes is the length of a position's binary form.
const PositionBytes = 12

// Append writes the binary form: microseconds and counter, big-endian, so that
// the order of the bytes is the order of the positions.
func (p Position) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.Micros))
	return binary.BigEndian.AppendUint32(dst, p.Count)
}

// DecodePosition reads the binary form from the beginning of b.
func DecodePosition(b []byte) (Position, error) {
	if len(b) < PositionBytes || b[0] > 127 {
		return Position{}, invalid("decode position", "want 12 bytes, the first below 128")
	}
	return position(b), nil
}

// position is DecodePosition for bytes that are known to be good.
func position(b []byte) Position {
	_ = b[PositionBytes-1]
	return Position{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])}
}

// String writes "1700000000000000-3".
func (p Position) String() string {
	return strconv.FormatInt(p.Micros, 10) + "-" + strconv.FormatUint(uint64(p.Count), 10)
}

// ParsePosition reads the form of String.
func ParsePosition(s string) (Position, error) {
	a, b, ok := strings.Cut(s, "-")
	micros, err := strconv.ParseUint(a, 10, 63)
	count, cerr := strconv.ParseUint(b, 10, 32)
	if !ok || err != nil || cerr != nil {
		return Position{}, &Error{Kind: KindInvalid, Op: "parse position", Err: fmt.Errorf("%.40q is not like 1700000000000000-0", s)}
	}
	return Position{int64(micros), uint32(count)}, nil
}

// Event is an entry of a journal: bytes that the journal does not look into.
type Event struct {
	// Position is given by the journal; appends ignore it.
	Position Position
	// Type is a word by which reads can be filtered; it may be empty.
	Type string
	// Expires is when the event ends by itself, to the millisecond; zero means
	// not before the journal's retention ends it.
	Expires time.Time
	Data    []byte
}

// Limits of events. A journal's settings may ask for less.
const (
	// MaxEventBytes bounds an event's data and type together.
	MaxEventBytes = 15 << 20
	// MaxEventType bounds an event's type in bytes.
	MaxEventType = 255
)

// An event is stored and shown as flags (1 byte), the size of what follows the
// first 16 bytes (3), its position (12), then, if the flags say so, its expiry
// in milliseconds (8) and its type with a length (1), then its data.
const (
	eventHeaderBytes = 4 + PositionBytes
	eventExpires     = 1 << 0
	eventTyped       = 1 << 1
)

// AppendEvent writes an event as windows hold it. The caller has checked its
// size.
func AppendEvent(dst []byte, e *Event) []byte {
	flags, size := uint32(0), len(e.Data)
	if !e.Expires.IsZero() {
		flags |= eventExpires
		size += 8
	}
	if e.Type != "" {
		flags |= eventTyped
		size += 1 + len(e.Type)
	}
	dst = binary.BigEndian.AppendUint32(dst, flags<<24|uint32(size))
	dst = e.Position.Append(dst)
	if flags&eventExpires != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(max(e.Expires.UnixMilli(), 1)))
	}
	if flags&eventTyped != 0 {
		dst = append(append(dst, byte(len(e.Type))), e.Type...)
	}
	return append(dst, e.Data...)
}

// EncodedSize is the number of bytes that AppendEvent writes.
func (e *Event) EncodedSize() int {
	n := eventHeaderBytes + len(e.Data)
	if !e.Expires.IsZero() {
		n += 8
	}
	if e.Type != "" {
		n += 1 + len(e.Type)
	}
	return n
}

// RawEvent is an event in the form of AppendEvent, looked into without copies.
type RawEvent struct {
	Position Position
	Expires  int64 // milliseconds; 0: never
	Type     []byte
	Data     []byte
}

var errEvent = errors.New("the bytes of an event are damaged")

// CutEvent reads the event at the beginning of b and returns what follows it.
func CutEvent(b []byte) (e RawEvent, rest []byte, err error) {
	if len(b) < eventHeaderBytes {
		return e, nil, errEvent
	}
	head := binary.BigEndian.Uint32(b)
	size := int(head & 0xFFFFFF)
	if len(b) < eventHeaderBytes+size || head>>24 > eventExpires|eventTyped || b[4] > 127 {
		return e, nil, errEvent
	}
	e.Position = position(b[4:])
	e.Data, rest = b[eventHeaderBytes:eventHeaderBytes+size:eventHeaderBytes+size], b[eventHeaderBytes+size:]
	if head>>24 == 0 {
		return e, rest, nil
	}
	if head>>24&eventExpires != 0 {
		if len(e.Data) < 8 {
			return e, nil, errEvent
		}
		e.Expires, e.Data = int64(binary.BigEndian.Uint64(e.Data)), e.Data[8:]
		if e.Expires <= 0 { // none that an append writes
			return e, nil, errEvent
		}
	}
	if head>>24&eventTyped != 0 {
		if len(e.Data) == 0 || len(e.Data) <= int(e.Data[0]) || e.Data[0] == 0 {
			return e, nil, errEvent
		}
		n := 1 + int(e.Data[0])
		e.Type, e.Data = e.Data[1:n], e.Data[n:]
	}
	return e, rest, nil
}

// Window is a run of a journal's events as they lie in it: what a reader that
// passes them on wants. Bytes are Count events in the form of AppendEvent, one
// after the other, in ascending order of positions, from First to Last.
type Window struct {
	First, Last Position
	Count       int
	Bytes       []byte
}

// maxInterned bounds the types that a reader keeps as strings.
const maxInterned = 256

// eventDecoder makes Events of encoded ones. It allocates once a type.
type eventDecoder struct {
	last  string
	types map[string]string
}

func (d *eventDecoder) event(raw *RawEvent) Event {
	e := Event{Position: raw.Position, Data: raw.Data}
	if raw.Expires != 0 {
		e.Expires = time.UnixMilli(raw.Expires).UTC()
	}
	if len(raw.Type) > 0 {
		if d.last != string(raw.Type) {
			d.last = d.intern(raw.Type)
		}
		e.Type = d.last
	}
	return e
}

func (d *eventDecoder) intern(b []byte) string {
	if s, ok := d.types[string(b)]; ok {
		return s
	}
	s := string(b)
	if d.types == nil {
		d.types = map[string]string{}
	}
	if len(d.types) < maxInterned {
		d.types[s] = s
	}
	return s
}

// plainSize is how many bytes the event at the beginning of b takes if it has
// neither type nor expiry and is whole; 0 otherwise.
func plainSize(b []byte) int {
	if len(b) < eventHeaderBytes || b[0] != 0 || b[4] > 127 {
		return 0
	}
	size := eventHeaderBytes + int(binary.BigEndian.Uint32(b))
	if size > len(b) {
		return 0
	}
	return size
}

// walk calls yield with the events of a window, backwards if reverse is set,
// and tells whether to go on.
func (d *eventDecoder) walk(w *Window, reverse bool, yield func(Event, error) bool) bool {
	var starts [][]byte
	for b := w.Bytes; len(b) > 0; {
		if size := plainSize(b); size > 0 && !reverse {
			// The most frequent case, without a detour.
			if !yield(Event{Position: position(b[4:]), Data: b[eventHeaderBytes:size:size]}, nil) {
				return false
			}
			b = b[size:]
			continue
		}
		raw, rest, err := CutEvent(b)
		if err != nil {
			yield(Event{}, &Error{Kind: KindCorrupt, Op: "read journal", Err: err})
			return false
		}
		if reverse {
			starts = append(starts, b[:len(b)-len(rest)])
		} else if !yield(d.event(&raw), nil) {
			return false
		}
		b = rest
	}
	for i := len(starts) - 1; i >= 0; i-- {
		raw, _, _ := CutEvent(starts[i]) // was read above
		if !yield(d.event(&raw), nil) {
			return false
		}
	}
	return true
}

// All calls yield with the window's events in order, without a copy: their Data
// is valid as long as the window.
func (w *Window) All(yield func(Event, error) bool) {
	var d eventDecoder
	d.walk(w, false, yield)
}
