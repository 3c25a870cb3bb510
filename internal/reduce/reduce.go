// Package reduce keeps partial reduces over an ordered list of rows, so that the
// reduce of any range of keys costs O(log n), for any associative function, also
// one that does not commute and cannot be undone.
//
// # Structure
//
// The rows are level 0. A hash of its key gives each row a level: one row in 16
// is a boundary of level 1, one of these in 16 of level 2, and so on. A node of
// level l stands at a boundary of that level and holds the count and the partial
// reduce of all rows from there to the next boundary of its level; the node with
// the empty key holds those before the first one. So the tree is a function of
// the set of rows alone: it has no history, nothing is split, merged or
// balanced, and a check is a recomputation.
//
// A B+tree of partial reduces was weighed against it. There the nodes are blocks
// of some kilobytes that every change of a row writes anew, level by level, and
// their borders depend on the order of changes, so that two stores with equal
// rows differ. Here a change writes one record of some dozen bytes a level.
// Rows of equal keys are told apart by what follows the key (document and
// number), so a key with a million rows is a range like any other.
//
// The hash is seeded, so that nobody who chooses keys can choose levels.
//
// All functions are pure but for the Source and Sink they are given.
package reduce

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Func is an associative function over rows' values, in the order of the rows.
// Its methods may be called concurrently. A returned partial must not refer to
// the arguments.
type Func interface {
	// Reduce returns the partial of the values of neighbouring rows, at least one.
	Reduce(values [][]byte) ([]byte, error)
	// Rereduce returns the partial of neighbouring partials, at least two.
	Rereduce(partials [][]byte) ([]byte, error)
}

// A Node is what is known of a run of rows.
type Node struct {
	Count   uint64
	Partial []byte // of the rows' values; nil without rows or without a Func
	Failed  string // why there is no partial, if the Func failed
}

// ErrNode: bytes that are no node.
var ErrNode = errors.New("reduce: node is damaged")

// Append encodes a node: the count as a uvarint, 0 or 1 for a failure, then the
// partial or the failure's text.
func (n *Node) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, n.Count)
	if n.Failed != "" {
		return append(append(dst, 1), n.Failed...)
	}
	return append(append(dst, 0), n.Partial...)
}

// DecodeNode reads what Append wrote; Partial points into b.
func DecodeNode(b []byte) (n Node, err error) {
	count, k := binary.Uvarint(b)
	if k <= 0 || len(b) == k || b[k] > 1 {
		return n, ErrNode
	}
	n.Count = count
	if b[k] == 1 {
		n.Failed = string(b[k+1:])
	} else {
		n.Partial = b[k+1:]
	}
	return n, nil
}

// A Cursor walks over the entries of one level in order of their keys. Moves
// tell whether it stands on an entry; Key and Value are valid until the next
// one. Values of level 0 are rows' values, of others encoded nodes.
type Cursor interface {
	SeekGE(key []byte) bool
	SeekLT(key []byte) bool
	Next() bool
	Key() []byte
	Value() []byte
	Error() error
	Close() error
}

// A Source gives cursors over what is there now.
type Source interface {
	Cursor(level int) (Cursor, error)
	// Top returns the highest level that has nodes, 0 if there are none.
	Top() (int, error)
}

// A Sink takes nodes. Cursors opened after a call see its effect.
type Sink interface {
	Set(level int, key, node []byte) error
	Delete(level int, key []byte) error
}

// A Tree says how nodes are made. Func nil counts only.
type Tree struct {
	Seed uint64
	Func Func
}

const (
	fanBits = 4 // a boundary in 1<<fanBits
	// MaxLevel bounds the levels: a hash has no more bits.
	MaxLevel = 64 / fanBits
)

// Level returns the level of a row's key: how many levels it is a boundary of.
func (t *Tree) Level(key []byte) int {
	return min(bits.TrailingZeros64(hash(t.Seed, key)|1<<63)/fanBits, MaxLevel)
}

// hash mixes eight bytes at a time by wide multiplications.
func hash(seed uint64, b []byte) uint64 {
	const k1, k2 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
	h := seed ^ uint64(len(b))*k2
	for ; len(b) >= 8; b = b[8:] {
		hi, lo := bits.Mul64(h^binary.LittleEndian.Uint64(b), k1)
		h = hi ^ lo ^ seed
	}
	var tail uint64
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	hi, lo := bits.Mul64(h^tail^k2, k1)
	hi, lo = bits.Mul64(hi^lo^seed, k2)
	return hi ^ lo
}

// How many values or partials are collected before they are reduced, which
// bounds memory.
const (
	maxValues   = 512
	maxPartials = 256
	maxBytes    = 1 << 20
)

// acc collects rows and nodes in order.
type acc struct {
	f      Func
	count  uint64
	failed string
	buf    []byte   // of values
	ends   []int    // of values in buf
	parts  [][]byte // partials of what came before the values
	size   int      // of parts
}

func (a *acc) reset() {
	a.count, a.failed, a.buf, a.ends, a.parts, a.size = 0, "", a.buf[:0], a.ends[:0], a.parts[:0], 0
}

func (a *acc) row(value []byte) {
	a.count++
	if a.f == nil || a.failed != "" {
		return
	}
	a.buf = append(a.buf, value...)
	a.ends = append(a.ends, len(a.buf))
	if len(a.ends) == maxValues || len(a.buf) > maxBytes {
		a.flush()
	}
}

func (a *acc) node(n *Node) {
	a.count += n.Count
	if a.f == nil || a.failed != "" || n.Count == 0 {
		return
	}
	if n.Failed != "" {
		a.failed = n.Failed
		return
	}
	a.flush()
	a.part(append([]byte(nil), n.Partial...))
}

// flush makes a partial of the values collected.
func (a *acc) flush() {
	if len(a.ends) == 0 || a.failed != "" {
		return
	}
	values := make([][]byte, len(a.ends))
	from := 0
	for i, end := range a.ends {
		values[i] = a.buf[from:end:end]
		from = end
	}
	p, err := a.f.Reduce(values)
	a.buf, a.ends = a.buf[:0], a.ends[:0]
	if err != nil {
		a.fail(err)
		return
	}
	a.part(p)
}

func (a *acc) part(p []byte) {
	a.parts = append(a.parts, p)
	if a.size += len(p); len(a.parts) >= maxPartials || a.size > maxBytes && len(a.parts) > 1 {
		a.join()
	}
}

func (a *acc) join() {
	if len(a.parts) < 2 || a.failed != "" {
		return
	}
	p, err := a.f.Rereduce(a.parts)
	if err != nil {
		a.fail(err)
		return
	}
	a.parts, a.size = append(a.parts[:0], p), len(p)
}

func (a *acc) fail(err error) {
	if a.failed = err.Error(); a.failed == "" {
		a.failed = "the reduce failed"
	}
}

// result returns the node of all collected.
func (a *acc) result() Node {
	n := Node{Count: a.count}
	if a.f != nil && a.count > 0 {
		a.flush()
		a.join()
		if n.Failed = a.failed; n.Failed == "" && len(a.parts) > 0 {
			n.Partial = a.parts[0]
		}
	}
	return n
}

// An Accumulator reduces rows and nodes that come in order.
type Accumulator struct{ a acc }

// NewAccumulator returns an empty Accumulator.
func (t *Tree) NewAccumulator() *Accumulator { return &Accumulator{acc{f: t.Func}} }

// Row takes the next row's value.
func (a *Accumulator) Row(value []byte) { a.a.row(value) }

// Node takes the node of the next rows.
func (a *Accumulator) Node(n *Node) { a.a.node(n) }

// Result returns the node of all that was taken, and begins anew.
func (a *Accumulator) Result() Node {
	n := a.a.result()
	a.a.reset()
	return n
}
