package osier

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/osierdb/osier/internal/keys"
)

// MaxIDBytes is the longest encoded document id.
const MaxIDBytes = 32 << 10

// UUID is a 16-byte identifier usable as a document id or a part of one.
type UUID = [16]byte

// Tuple is a composite key: its fields compare one after the other.
type Tuple = keys.Tuple

// ID names a document within its collection. It holds a value of any key
// type (strings, integers of every width, floats, booleans, time.Time, UUID,
// []byte, and Tuples of these) in an encoding whose byte order is the order of
// the values, so IDs compare with <, serve as map keys, and scan in order.
// Numbers are one kind: the ids 1, int8(1) and 1.0 are equal. The zero ID is
// no id; where a write takes one, the store makes an id.
type ID struct{ key string }

// IDOf turns v into an ID. An ID is returned as it is; nil gives the zero ID.
func IDOf(v any) (ID, error) {
	switch x := v.(type) {
	case ID:
		return x, nil
	case nil:
		return ID{}, nil
	case string:
		if x == "" {
			return ID{}, invalid("make id", "an id must not be the empty string")
		}
		var buf [64]byte
		return idFromKey(keys.AppendString(buf[:0], x))
	case int:
		var buf [16]byte
		return idFromKey(keys.AppendInt(buf[:0], int64(x)))
	}
	b, err := keys.Append(make([]byte, 0, 32), v)
	if err != nil {
		return ID{}, &Error{Kind: KindInvalid, Op: "make id", Err: err}
	}
	return idFromKey(b)
}

// MustID is IDOf for values known to be key types; it panics on any other.
func MustID(v any) ID {
	id, err := IDOf(v)
	if err != nil {
		panic(err)
	}
	return id
}

func idFromKey(b []byte) (ID, error) {
	if len(b) > MaxIDBytes {
		return ID{}, &Error{Kind: KindTooLarge, Op: "make id", Err: fmt.Errorf("id of %d bytes, at most %d are allowed", len(b), MaxIDBytes)}
	}
	return ID{key: string(b)}, nil
}

// DecodeID reads the form that Encoded writes, checking it whole.
func DecodeID(b []byte) (ID, error) {
	n, err := keys.Skip(b)
	if err != nil {
		return ID{}, &Error{Kind: KindInvalid, Op: "decode id", Err: err}
	}
	if n != len(b) {
		return ID{}, &Error{Kind: KindInvalid, Op: "decode id", Err: errors.New("trailing bytes")}
	}
	return idFromKey(b)
}

// TrustedID makes an ID of bytes that are known to be an encoded key: a
// backend uses it on what it stored itself. A string is not copied.
func TrustedID[K []byte | string](key K) ID { return ID{key: string(key)} }

// Encoded returns the order-preserving form.
func (id ID) Encoded() []byte { return []byte(id.key) }

// Key returns the order-preserving form as a string, without a copy.
func (id ID) Key() string { return id.key }

// IsZero reports whether id is no id.
func (id ID) IsZero() bool { return id.key == "" }

// Compare orders ids by value.
func (id ID) Compare(other ID) int {
	switch {
	case id.key < other.key:
		return -1
	case id.key > other.key:
		return 1
	}
	return 0
}

// String returns the id for people: a string as it is, numbers in decimal, a
// tuple's fields joined with "/". It is not meant to be parsed; see Value.
func (id ID) String() string {
	if id.key == "" {
		return ""
	}
	return keys.Format([]byte(id.key))
}

// Value returns the id as a Go value: string, int64 (uint64 or *big.Int when
// larger), float64, bool, time.Time in UTC, []byte (also for UUIDs) or Tuple.
func (id ID) Value() any {
	v, err := keys.Decode([]byte(id.key))
	if err != nil {
		return nil
	}
	return v
}

// Text returns the id if it is a string.
func (id ID) Text() (string, bool) {
	s, ok := id.Value().(string)
	return s, ok
}

// Int64 returns the id if it is an integer that fits.
func (id ID) Int64() (int64, bool) {
	n, ok := id.Value().(int64)
	return n, ok
}

// UUID returns the id if it is 16 bytes.
func (id ID) UUID() (UUID, bool) {
	b, ok := id.Value().([]byte)
	if !ok || len(b) != 16 {
		return UUID{}, false
	}
	return UUID(b), true
}

// MarshalText writes the form of String, for logs and JSON output.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// idAlphabet is in byte order, so that ids sort by time; no letter can be
// mistaken for a digit.
const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// idTimeBits of milliseconds since 1970 last until the year 2527; the other
// 36 of an id's 80 bits count up from a random start within a millisecond.
const (
	idTailBits = 36
	idTailMask = 1<<idTailBits - 1
)

// IDSource makes document ids: 16 letters and digits that sort by the time
// they were made, strictly increasing within one source, also when the clock
// goes back. It is safe for concurrent use.
type IDSource struct {
	mu     sync.Mutex // guards the two fields below
	millis uint64
	tail   uint64
}

// Next returns the id for now, later than every id before it.
func (s *IDSource) Next(now time.Time) string {
	millis := uint64(max(now.UnixMilli(), 0))
	s.mu.Lock()
	if millis > s.millis {
		s.millis = millis
		var b [8]byte
		rand.Read(b[:])
		// The top bit stays clear, so that at least 2^35 ids fit a millisecond.
		s.tail = binary.LittleEndian.Uint64(b[:]) & (idTailMask >> 1)
	} else if s.tail++; s.tail > idTailMask {
		s.millis, s.tail = s.millis+1, 0
	}
	millis, tail := s.millis, s.tail
	s.mu.Unlock()

	var out [16]byte
	hi, lo := millis>>(64-idTailBits), millis<<idTailBits|tail
	for i := 15; i >= 0; i-- {
		out[i] = idAlphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}
