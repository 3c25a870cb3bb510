// Package peers puts the stores that Osier is measured against behind one small
// interface: what a row is, how it is put in, read and scanned. Osier itself is
// one of them, driven through its typed API.
package peers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Row is the row of the Nebari suite.
type Row struct {
	ID        int64  `json:"id"`
	Timestamp uint64 `json:"timestamp"`
	Message   string `json:"message"`
}

// AppendBinary writes two fixed numbers and the message behind them.
func (r Row) AppendBinary(b []byte) ([]byte, error) {
	b = binary.LittleEndian.AppendUint64(b, uint64(r.ID))
	b = binary.LittleEndian.AppendUint64(b, r.Timestamp)
	return append(b, r.Message...), nil
}

// UnmarshalBinary reads what AppendBinary wrote.
func (r *Row) UnmarshalBinary(b []byte) error {
	if len(b) < 16 {
		return fmt.Errorf("row of %d bytes", len(b))
	}
	r.ID, r.Timestamp = int64(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:])
	r.Message = string(b[16:])
	return nil
}

// Shape bounds the letters of a row's message; the lengths are spread evenly.
type Shape struct{ Min, Max int }

var (
	// Nebari rows have 50 to 1,023 letters.
	Nebari = Shape{50, 1023}
	// KiB rows are 1,024 bytes as JSON.
	KiB = Shape{968, 968}
	// Small rows are 200 bytes as JSON.
	Small = Shape{144, 144}
)

// epoch of the rows' timestamps, in microseconds.
const epoch = 1_700_000_000_000_000

// Len is how many letters row id has.
func (s Shape) Len(id int64) int {
	return s.Min + int(mix(uint64(id))%uint64(s.Max-s.Min+1))
}

// Row makes row id. Rows share their letters' memory.
func (s Shape) Row(id int64) Row {
	n := s.Len(id)
	at := int(mix(uint64(id)+1<<40) % uint64(len(letters)-n))
	return Row{ID: id, Timestamp: epoch + uint64(id), Message: letters[at : at+n]}
}

// Rows makes n rows from id on.
func (s Shape) Rows(id int64, n int) []Row {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = s.Row(id + int64(i))
	}
	return rows
}

// letters is what messages are cut from: without repetitions that a block
// compressor could find within one row.
var letters = func() string {
	var b strings.Builder
	for i := range uint64(1 << 20) {
		b.WriteByte('a' + byte(mix(i)%26))
	}
	return b.String()
}()

// mix is the finaliser of splitmix64; the C++ peer has the same.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Level is what a write survives when it has been answered.
type Level int

const (
	// Synced writes are on the disk, by fsync or fdatasync.
	Synced Level = iota
	// Buffered writes are with the operating system, or on their way there:
	// each peer's setting without fsync.
	Buffered
)

func (l Level) String() string {
	if l == Buffered {
		return "buffered"
	}
	return "synced"
}

// CacheBytes is what every store that has a block cache is given: enough for a
// million Nebari rows, so that warm reads are what is compared.
const CacheBytes = 1 << 30

// Store is what a peer written in Go offers. All methods but Close may be called
// concurrently.
type Store interface {
	// Insert adds rows in one transaction.
	Insert(rows []Row) error
	// Put adds one row in a transaction of its own, in the way that suits
	// many concurrent callers best.
	Put(row Row) error
	// Get reads rows from one state, and returns how many letters they have.
	// A row that is not there is an error.
	Get(ids []int64) (letters int, err error)
	// Scan reads up to n rows in order, from id on.
	Scan(id int64, n int) (rows, letters int, err error)
	// Settle ends the background work that loading has caused.
	Settle() error
	Close() error
}

// ErrAbsent says that a peer cannot be measured here, and why.
var ErrAbsent = errors.New("peer is not available")

var errMissing = errors.New("row is missing")

// key is a row's id as stores of bytes have it.
func key(b []byte, id int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(id)) }

// bare is the value of a store of bytes.
func bare(b []byte, r *Row) []byte {
	b, _ = r.AppendBinary(b) // cannot fail
	return b
}

// lettersOf is how much of a bare value is the message.
func lettersOf(v []byte) int { return len(v) - 16 }

// Pick makes n rows of different ids out of the first of, at random by seed.
func (s Shape) Pick(seed uint64, of int64, n int) []Row {
	rows := make([]Row, 0, n)
	seen := make(map[int64]bool, n)
	for i := uint64(0); len(rows) < n; i++ {
		id := int64(mix(seed<<20+i) % uint64(of))
		if !seen[id] {
			seen[id] = true
			row := s.Row(id)
			row.Timestamp += seed
			rows = append(rows, row)
		}
	}
	return rows
}
