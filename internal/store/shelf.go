package store

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// shelfSize is how many iterators are kept.
	shelfSize = 8
	// shelfTime is how long one may lie unused, twice that at most. While it does
	// it holds back the space of what has been deleted since it was opened.
	shelfTime = 50 * time.Millisecond
)

// A changeCount tells whether a state that was taken still is the latest one: it
// is if nothing has been given to the engine since, even in part.
type changeCount struct{ begun, ended atomic.Uint64 }

// quiet returns the number of changes so far, and whether all of them have ended:
// then a state taken later has exactly these, as long as unchanged says so.
func (c *changeCount) quiet() (mark uint64, ok bool) {
	mark = c.ended.Load()
	return mark, c.begun.Load() == mark
}

func (c *changeCount) unchanged(mark uint64) bool { return c.begun.Load() == mark }

// A shelf keeps iterators over the latest state that are done with, for the next
// who wants the same range while nothing has been written. Opening an iterator,
// and the tables for it, and closing it costs more than a look-up with it.
//
// It has no goroutine, and no timer while it is empty.
type shelf struct {
	mu      sync.Mutex // guards what follows
	list    []shelved  // the longest unused first
	stopped bool
	timer   *time.Timer
	running sync.WaitGroup
}

type shelved struct {
	it           *pebble.Iterator
	lower, upper []byte
	mark         uint64
	old          bool // it was there when the timer fired last
}

// take returns an iterator over the range in a state with that mark, nil if there
// is none.
func (h *shelf) take(lower, upper []byte, mark uint64) *pebble.Iterator {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.list) - 1; i >= 0; i-- {
		s := &h.list[i]
		if s.mark == mark && bytes.Equal(s.lower, lower) && bytes.Equal(s.upper, upper) {
			it := s.it
			h.list = append(h.list[:i], h.list[i+1:]...)
			return it
		}
	}
	return nil
}

// put keeps an iterator that is done with. false: it has to be closed.
func (h *shelf) put(s shelved) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	if len(h.list) == shelfSize {
		_ = h.list[0].it.Close() // its errors were returned to who used it
		h.list = append(h.list[:0], h.list[1:]...)
	}
	h.list = append(h.list, s)
	if h.timer == nil {
		h.set()
	}
	return true
}

func (h *shelf) set() {
	h.running.Add(1)
	h.timer = time.AfterFunc(shelfTime, h.fire)
}

// fire clears what has not been used for a while.
func (h *shelf) fire() {
	defer h.running.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = nil
	kept := h.list[:0]
	for _, s := range h.list {
		if s.old {
			_ = s.it.Close() // as in put
			continue
		}
		s.old = true
		kept = append(kept, s)
	}
	clear(h.list[len(kept):])
	if h.list = kept; len(kept) > 0 && !h.stopped {
		h.set()
	}
}

// stop clears the shelf for good.
func (h *shelf) stop() {
	h.mu.Lock()
	h.stopped = true
	for _, s := range h.list {
		_ = s.it.Close() // as in put
	}
	h.list = nil
	if h.timer != nil && h.timer.Stop() {
		h.running.Done()
	}
	h.mu.Unlock()
	h.running.Wait()
}

// LatestIter is NewIter for look-ups that come again and again: the iterator may
// be one that was closed before, if nothing was written since it was opened, and
// Close keeps it for a moment. It is for short use, and keeps its bounds: SetBounds
// must not be called. The bounds must not change, not even after it is closed.
func (s *Store) LatestIter(lower, upper []byte) (*Iter, error) {
	if !s.uses.enter() {
		return nil, ErrClosed
	}
	mark, quiet := s.changes.quiet()
	keep := shelved{lower: lower, upper: upper, mark: mark}
	if quiet {
		if it := s.shelf.take(lower, upper, mark); it != nil {
			return &Iter{s: s, it: it, keep: keep, latest: true}, nil
		}
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	i, err := s.holdIter(it, err)
	if err == nil {
		i.keep, i.latest = keep, quiet
	}
	return i, err
}

// Latest reports, for one of LatestIter, whether its state still is the store's:
// what a Get has returned before is then of the same state. false may be an error
// on the safe side.
func (i *Iter) Latest() bool { return i.latest && i.s.changes.unchanged(i.keep.mark) }
