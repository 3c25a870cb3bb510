package store

import (
	"bytes"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// MaxBatchBytes bounds a batch, keys and values and a few bytes for each.
const MaxBatchBytes = 1 << 30

// maxKeptBatch bounds the memory of a batch that is kept for the next one: what a
// few thousand documents take. The garbage collector takes what is not used.
const maxKeptBatch = 6 << 20

// MaxKeyBytes bounds a key. Keys are held in index blocks and in memory.
const MaxKeyBytes = 64 << 10

// A Batch collects writes that are applied as one. It is for one goroutine at a
// time. A later write to a key replaces an earlier one; a DeleteRange covers the
// writes before it.
type Batch struct {
	s        *Store
	b        *pebble.Batch // nil when closed or after Apply until the next write
	readable bool          // Get and NewIter see the batch
	indexed  bool          // b has an index: made by the first read
	closed   bool
	size     int // expected
}

// NewBatch returns a batch that can be read: Get and NewIter see it over the
// store. From the first read on that finds it filled, writing costs about twice
// as much.
func (s *Store) NewBatch() *Batch { return s.NewBatchSize(0) }

// NewBatchSize is NewBatch for about size bytes of keys and values, which saves
// the batch from growing step by step.
func (s *Store) NewBatchSize(size int) *Batch {
	b := &Batch{s: s, readable: true, size: size}
	b.renew()
	return b
}

// NewWriteBatch returns a batch that cannot be read: Get and NewIter see the
// store alone.
func (s *Store) NewWriteBatch() *Batch {
	b := &Batch{s: s}
	b.renew()
	return b
}

// renew gives an empty batch its engine's part. Making one touches nothing that
// Close ends.
func (b *Batch) renew() {
	b.indexed = false
	b.b = b.s.db.NewBatchWithSize(b.size, pebble.WithMaxRetainedSizeBytes(maxKeptBatch))
}

// covers makes the batch ready to be read. With false there is nothing in it that
// a read could see. Most batches are never read: what an index costs is spent by
// the first read, not by every write.
func (b *Batch) covers() (bool, error) {
	if !b.readable || b.b == nil || b.b.Empty() {
		return false, nil
	}
	if b.indexed {
		return true, nil
	}
	x := b.s.db.NewIndexedBatchWithSize(max(b.size, 2*b.b.Len()))
	if err := x.Apply(b.b, nil); err != nil {
		_ = x.Close() // never used
		return false, err
	}
	_ = b.b.Close() // cannot fail: it was not committed
	b.b, b.indexed = x, true
	return true, nil
}

// writable makes room for n more bytes.
func (b *Batch) writable(n int) error {
	if b.closed {
		return ErrClosed
	}
	if b.b == nil {
		b.renew()
	}
	if n > MaxBatchBytes-32-b.b.Len() {
		return ErrTooLarge
	}
	return nil
}

// checkKey refuses what the engine cannot store: a block whose only key is empty
// makes it panic while flushing.
func checkKey(key []byte) error {
	switch {
	case len(key) == 0:
		return ErrEmptyKey
	case len(key) > MaxKeyBytes:
		return ErrTooLarge
	}
	return nil
}

// Set writes a value. Key and value are copied.
func (b *Batch) Set(key, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := b.writable(len(key) + len(value)); err != nil {
		return err
	}
	return mapError("set", b.b.Set(key, value, nil))
}

// Delete removes a key; it need not exist.
func (b *Batch) Delete(key []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := b.writable(len(key)); err != nil {
		return err
	}
	return mapError("delete", b.b.Delete(key, nil))
}

// DeleteRange removes all keys k with start <= k < end, at a cost that does not
// depend on their number. If start is not less than end that is none.
func (b *Batch) DeleteRange(start, end []byte) error {
	if len(start) > MaxKeyBytes || len(end) > MaxKeyBytes {
		return ErrTooLarge
	}
	if bytes.Compare(start, end) >= 0 {
		return nil
	}
	if err := b.writable(len(start) + len(end)); err != nil {
		return err
	}
	return mapError("delete range", b.b.DeleteRange(start, end, nil))
}

// Count returns the number of writes.
func (b *Batch) Count() int {
	if b.b == nil {
		return 0
	}
	return int(b.b.Count())
}

// Len returns the size in bytes, about what the batch takes in the log.
func (b *Batch) Len() int {
	if b.b == nil {
		return 0
	}
	return b.b.Len()
}

// Get is Store.Get over the batch's writes.
func (b *Batch) Get(key []byte) (value []byte, closer io.Closer, err error) {
	if b.closed || !b.s.uses.enter() {
		return nil, nil, ErrClosed
	}
	covers, err := b.covers()
	if err != nil || !covers {
		if err == nil {
			value, closer, err = b.s.db.Get(key)
		}
		return b.s.holdValue(value, closer, err)
	}
	value, closer, err = b.b.Get(key)
	return b.s.holdValue(value, closer, err)
}

// NewIter is Store.NewIter over the batch's writes so far. It must be closed
// before the batch is written to again, applied, reset or closed.
func (b *Batch) NewIter(lower, upper []byte) (*Iter, error) {
	if b.closed || !b.s.uses.enter() {
		return nil, ErrClosed
	}
	o := &pebble.IterOptions{LowerBound: lower, UpperBound: upper}
	covers, err := b.covers()
	if err != nil {
		return b.s.holdIter(nil, err)
	}
	if !covers {
		it, err := b.s.db.NewIter(o)
		return b.s.holdIter(it, err)
	}
	it, err := b.b.NewIter(o)
	return b.s.holdIter(it, err)
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	if b.b != nil {
		b.b.Reset()
	}
}

// Close gives the batch's memory back. It is idempotent and needed for batches
// that are not applied; after Apply there is nothing left to give back.
func (b *Batch) Close() error {
	b.closed = true
	if b.b == nil {
		return nil
	}
	err := b.b.Close()
	b.b = nil
	return mapError("close batch", err)
}
