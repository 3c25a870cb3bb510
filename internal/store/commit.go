package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Durability says what an acknowledged batch survives, an acknowledgement
// being that Pending.Wait has returned nil.
//
//	level     the process killed   power cut or crash of the machine
//	Sync      survives             survives
//	Buffered  survives             may be lost for SyncInterval
//	Relaxed   may be lost for      may be lost for SyncInterval
//	          SyncInterval
//
// Whatever is lost, it is the newest batches: if one is there, all with lower
// numbers are. A batch is there whole or not at all.
type Durability uint8

const (
	// Sync: on stable storage. Waits that overlap share one fsync.
	Sync Durability = iota
	// Buffered: handed to the operating system.
	Buffered
	// Relaxed: in memory; Wait does not wait.
	Relaxed
)

func (d Durability) String() string {
	switch d {
	case Sync:
		return "sync"
	case Buffered:
		return "buffered"
	case Relaxed:
		return "relaxed"
	}
	return fmt.Sprintf("durability(%d)", uint8(d))
}

// checkBytes is how much is applied between two looks at write stalls and the
// free disk space, or half a memtable if that is less: between the looks the
// engine's own stall, a memtable further on, must not be reached.
const checkBytes = 1 << 20

// Apply makes a batch visible to readers, whole, and returns without waiting for
// the disk. It takes the batch's content: b is empty afterwards and may be filled
// again. With an error nothing was applied and b is as it was, except with a
// *FencedError, after which it is unknown whether the batch will be found when
// the store is reopened.
//
// Calls are carried out one after the other. Apply blocks while flushing or
// compaction is too far behind.
func (s *Store) Apply(b *Batch, d Durability) (Pending, error) {
	switch {
	case b.s != s || b.b == nil:
		return Pending{}, fmt.Errorf("apply batch: %w", ErrClosed)
	case s.opts.ReadOnly:
		return Pending{}, ErrReadOnly
	case d > Relaxed:
		return Pending{}, fmt.Errorf("apply batch: unknown durability %d", d)
	case b.b.Empty():
		return Pending{}, nil
	case b.b.Len() > MaxBatchBytes:
		return Pending{}, ErrTooLarge
	}
	if !s.uses.enter() {
		return Pending{}, ErrClosed
	}
	defer s.uses.leave()
	return s.apply(b, d)
}

func (s *Store) apply(b *Batch, d Durability) (Pending, error) {
	s.commit.Lock()
	defer s.commit.Unlock()
	if err := s.admit(int64(b.b.Len())); err != nil {
		return Pending{}, err
	}
	if s.opts.InMemory {
		d = Relaxed
	}
	w := &wait{s: s, number: s.applied.Load() + 1, level: d}
	if d == Sync {
		s.guard.syncWaiters.Add(1)
	}
	if err := s.commitEngine(b, d); err != nil {
		if d == Sync {
			s.guard.syncWaiters.Add(-1)
		}
		// The engine may hold on to the batch: it must not come back through the
		// engine's pool.
		b.b = nil
		return Pending{}, err
	}
	if d != Relaxed {
		w.b = b.b
	} else {
		_ = b.b.Close() // cannot fail after a commit
	}
	b.b = nil
	s.applied.Store(w.number)
	switch {
	case s.opts.InMemory:
		s.markSynced(w.number)
	case d != Sync:
		s.ticker.arm()
	}
	return Pending{Number: w.number, w: w}, nil
}

// commitEngine hands the batch to the engine. The recover is a second line: the
// engine panics where it cannot go on, and the guard keeps such errors from it.
func (s *Store) commitEngine(b *Batch, d Durability) (err error) {
	s.changes.begun.Add(1)
	defer s.changes.ended.Add(1)
	defer func() {
		if r := recover(); r != nil {
			s.fence.raise(fmt.Errorf("commit: %v", r))
			err = s.fence.failure()
		}
	}()
	if d == Relaxed {
		err = s.db.Apply(b.b, pebble.NoSync)
	} else {
		err = s.db.ApplyNoSyncWait(b.b, pebble.Sync)
	}
	if ferr := s.fence.failure(); ferr != nil {
		return ferr
	}
	return mapError("commit", err)
}

// admit refuses a batch of n bytes when the store is fenced or the disk almost
// full, and holds it back while background work is behind. The commit lock is
// held.
func (s *Store) admit(n int64) error {
	if err := s.fence.failure(); err != nil {
		return err
	}
	c := &s.commit
	if c.checked && c.unchecked < min(checkBytes, s.opts.MemTableBytes/2) {
		c.unchecked += n
		return nil
	}
	if err := s.checkSpace(); err != nil {
		c.checked = false // look again at the next batch
		return err
	}
	for s.behind() {
		// Compactions that fail are tried again, but nobody waits for that.
		if err := s.guard.compactionError(); err != nil {
			c.checked = false
			return mapError("write is held back by a failed compaction", err)
		}
		select {
		case <-s.progress:
		case <-s.fence.up:
			return s.fence.failure()
		}
	}
	c.unchecked, c.checked = n, true // n comes after this look
	return nil
}

// checkSpace returns ErrFull if less than the reserve is free. A file system that
// cannot say is not asked twice as hard: it has space.
func (s *Store) checkSpace() error {
	if s.opts.ReserveBytes < 0 || s.opts.InMemory {
		return nil
	}
	u, err := s.files.GetDiskUsage(s.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return mapError("read free disk space", err)
	}
	if u.AvailBytes < uint64(s.opts.ReserveBytes) {
		return fmt.Errorf("%w: %d bytes free on the disk of %s, %d are kept in reserve", ErrFull,
			u.AvailBytes, s.dir, s.opts.ReserveBytes)
	}
	return nil
}

// behind reports whether writes should wait for flushes or compactions.
func (s *Store) behind() bool {
	m := s.db.Metrics()
	return m.MemTable.Size >= stallMemTables*uint64(s.opts.MemTableBytes) ||
		m.Levels[0].Sublevels >= stallSublevels
}

// Pending is a batch that is visible and becomes durable. Its zero value stands
// for an empty batch. For each Pending Wait must be called at least once: until
// then a Sync batch makes every write of the log an fsync.
type Pending struct {
	// Number is the batch's place in the order of batches since Open, from 1.
	Number uint64

	w *wait
}

// wait is shared by the copies of a Pending.
type wait struct {
	s      *Store
	number uint64
	level  Durability
	once   sync.Once
	b      *pebble.Batch // nil if there is nothing to wait for
	err    error
}

// Wait returns once the batch has the durability it was applied with, or with a
// *FencedError if that cannot be had. It may be called concurrently and more than
// once, also after the store was closed.
func (p Pending) Wait() error {
	if p.w == nil {
		return nil
	}
	p.w.once.Do(p.w.wait)
	return p.w.err
}

func (w *wait) wait() {
	s := w.s
	if w.b != nil {
		err := w.b.SyncWait()
		_ = w.b.Close() // returns it to the engine's pool
		w.b = nil
		w.err = mapError("commit", err)
	}
	if w.level == Sync {
		s.guard.syncWaiters.Add(-1)
	}
	if s.synced.Load() >= w.number {
		return
	}
	// The order matters: if the log failed, the fence was raised before the engine
	// was told that its sync is done.
	if err := s.fence.failure(); err != nil && w.err == nil {
		w.err = err
	}
	if w.err == nil && w.level == Sync {
		s.markSynced(w.number)
	}
}

// Synced returns the greatest number n such that all batches up to n are durable.
func (s *Store) Synced() uint64 { return s.synced.Load() }

// Applied returns the number of the last batch applied since Open.
func (s *Store) Applied() uint64 { return s.applied.Load() }

// Fenced returns the *FencedError that writes fail with, or nil.
func (s *Store) Fenced() error { return s.fence.failure() }

func (s *Store) markSynced(n uint64) {
	for {
		old := s.synced.Load()
		if n <= old {
			return
		}
		if s.synced.CompareAndSwap(old, n) {
			break
		}
	}
	if s.opts.OnSynced != nil {
		s.opts.OnSynced(n)
	}
}

// Flush returns once every batch applied before the call is durable: one fsync of
// the log, or none if that is so already. It does not write memtables to tables.
func (s *Store) Flush() error {
	if !s.uses.enter() {
		return ErrClosed
	}
	defer s.uses.leave()
	return s.barrier()
}

func (s *Store) barrier() (err error) {
	if s.opts.ReadOnly || s.opts.InMemory {
		return nil
	}
	upTo := s.applied.Load()
	if s.synced.Load() >= upTo {
		return s.fence.failure()
	}
	if err := s.fence.failure(); err != nil {
		return err
	}
	// An empty log record with sync: it stands behind all batches up to upTo, and
	// raising the counter first makes its sync a real one.
	s.guard.syncWaiters.Add(1)
	defer s.guard.syncWaiters.Add(-1)
	defer func() {
		if r := recover(); r != nil {
			s.fence.raise(fmt.Errorf("sync: %v", r))
			err = s.fence.failure()
		}
	}()
	err = s.db.LogData(nil, pebble.Sync)
	if ferr := s.fence.failure(); ferr != nil {
		return ferr
	}
	if err != nil {
		return mapError("sync", err)
	}
	s.markSynced(upTo)
	return nil
}

// intervalSync runs a barrier SyncInterval after the first batch that was applied
// without one. It has no goroutine and no timer while everything is durable.
type intervalSync struct {
	s     *Store
	armed atomic.Bool // a barrier is scheduled that includes what is applied now

	mu      sync.Mutex // guards what follows
	stopped bool
	timer   *time.Timer
	running sync.WaitGroup
}

func (t *intervalSync) start(s *Store) { t.s = s }

// arm makes sure that a barrier follows what has been applied so far.
func (t *intervalSync) arm() {
	if t.armed.Swap(true) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped || t.s == nil {
		return
	}
	t.running.Add(1)
	t.timer = time.AfterFunc(t.s.opts.SyncInterval, t.fire)
}

func (t *intervalSync) fire() {
	defer t.running.Done()
	// Before the barrier reads how far it has to reach: who applies later finds
	// the flag down and arms the next one.
	t.armed.Store(false)
	if err := t.s.barrier(); err != nil && !errors.Is(err, ErrFenced) {
		// It will not get better, and nobody waits for this error.
		t.s.fence.raise(err)
	}
}

// stop ends the interval and waits for a barrier under way.
func (t *intervalSync) stop() {
	t.mu.Lock()
	t.stopped = true
	if t.timer != nil && t.timer.Stop() {
		t.running.Done()
	}
	t.mu.Unlock()
	t.running.Wait()
}
