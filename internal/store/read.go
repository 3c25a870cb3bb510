package store

import (
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// A Snapshot is the store as it was when the snapshot was taken. It may be used
// concurrently, except for Close, and holds back the space of what is deleted or
// overwritten while it is open. Taking one costs about a microsecond.
type Snapshot struct {
	s    *Store
	snap *pebble.Snapshot
}

// NewSnapshot takes a snapshot; it must be closed.
func (s *Store) NewSnapshot() (*Snapshot, error) {
	if !s.uses.enter() {
		return nil, ErrClosed
	}
	return &Snapshot{s: s, snap: s.db.NewSnapshot()}, nil
}

// Get is Store.Get as of the snapshot.
func (n *Snapshot) Get(key []byte) (value []byte, closer io.Closer, err error) {
	if n.snap == nil || !n.s.uses.enter() {
		return nil, nil, ErrClosed
	}
	v, c, err := n.snap.Get(key)
	return n.s.holdValue(v, c, err)
}

// NewIter is Store.NewIter as of the snapshot. The iterator may outlive it.
func (n *Snapshot) NewIter(lower, upper []byte) (*Iter, error) {
	if n.snap == nil || !n.s.uses.enter() {
		return nil, ErrClosed
	}
	it, err := n.snap.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	return n.s.holdIter(it, err)
}

// Close releases the snapshot; it is idempotent.
func (n *Snapshot) Close() error {
	if n.snap == nil {
		return nil
	}
	err := n.snap.Close()
	n.snap = nil
	n.s.uses.leave()
	return mapError("close snapshot", err)
}

// NewIter returns an iterator over the keys k with lower <= k < upper, as the
// store is now; nil bounds are none. It must be closed, and is not positioned
// yet. The bounds must not change until it is closed or gets others.
func (s *Store) NewIter(lower, upper []byte) (*Iter, error) {
	if !s.uses.enter() {
		return nil, ErrClosed
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	return s.holdIter(it, err)
}

func (s *Store) holdIter(it *pebble.Iterator, err error) (*Iter, error) {
	if err != nil {
		s.uses.leave()
		return nil, mapError("open iterator", err)
	}
	return &Iter{s: s, it: it}, nil
}

// An Iter walks over keys in byte order, for one goroutine at a time. Moving it
// returns whether it stands on a key; if not, Error tells an end from a failure.
// Key and Value are valid until the next move.
type Iter struct {
	s  *Store
	it *pebble.Iterator

	keep   shelved // how it is kept by the shelf when it is closed
	latest bool    // it may be: see LatestIter
}

// First moves to the first key.
func (i *Iter) First() bool { return i.it.First() }

// Last moves to the last key.
func (i *Iter) Last() bool { return i.it.Last() }

// SeekGE moves to the first key that is not less than key.
func (i *Iter) SeekGE(key []byte) bool { return i.it.SeekGE(key) }

// SeekLT moves to the last key that is less than key.
func (i *Iter) SeekLT(key []byte) bool { return i.it.SeekLT(key) }

// SeekExact moves to the key itself, if it is there, and spares tables whose
// filters say that they do not have it. From there the iterator can only be sent
// elsewhere, not moved on.
func (i *Iter) SeekExact(key []byte) bool { return i.it.SeekPrefixGE(key) }

// Next moves to the next key.
func (i *Iter) Next() bool { return i.it.Next() }

// Prev moves to the previous key.
func (i *Iter) Prev() bool { return i.it.Prev() }

// Valid reports whether the iterator stands on a key.
func (i *Iter) Valid() bool { return i.it.Valid() }

// Key returns the key.
func (i *Iter) Key() []byte { return i.it.Key() }

// Value returns the value; if it cannot be read it is nil and Error says why.
func (i *Iter) Value() []byte { return i.it.Value() }

// SetBounds gives the iterator other bounds and leaves it without a position.
func (i *Iter) SetBounds(lower, upper []byte) { i.it.SetBounds(lower, upper) }

// Clone returns another iterator over the same state, between other bounds, which
// must be closed by itself.
func (i *Iter) Clone(lower, upper []byte) (*Iter, error) {
	if !i.s.uses.enter() {
		return nil, ErrClosed
	}
	it, err := i.it.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{LowerBound: lower, UpperBound: upper}})
	return i.s.holdIter(it, err)
}

// Error returns what ended the iteration before its end, or nil.
func (i *Iter) Error() error { return mapError("iterate", i.it.Error()) }

// Close releases the iterator and returns Error; it is idempotent. No other
// method may be called afterwards.
func (i *Iter) Close() error {
	if i.it == nil {
		return nil
	}
	var err error
	if i.keep.it = i.it; !i.Latest() || i.it.Error() != nil || !i.s.shelf.put(i.keep) {
		err = i.it.Close()
	}
	i.it, i.keep.it = nil, nil
	i.s.trimmer.arm()
	i.s.uses.leave()
	return mapError("iterate", err)
}
