package store

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// trimAfter is how long the store must have been quiet.
	trimAfter = time.Second
	// trimMisses is how many blocks must have passed through the cache since the
	// last time: at 16 KiB each a quarter of the default cache.
	trimMisses = 1024
	// quietMisses is how many blocks a second are still taken for quiet.
	quietMisses = 16
)

// A trimmer gives memory back to the system when the store has become quiet after
// a lot of blocks went through the cache. The cache's memory is outside Go's heap,
// from the C library, which keeps what it is given back in pieces between others:
// after a scan of a large store as much as the cache holds.
//
// It has no goroutine, and no timer unless something was read.
type trimmer struct {
	misses func() int64
	armed  atomic.Bool

	mu      sync.Mutex // guards what follows
	stopped bool
	timer   *time.Timer
	running sync.WaitGroup
	done    int64 // misses at the last trim
	seen    int64 // misses when the timer was set
}

// arm is called after reads.
func (t *trimmer) arm() {
	if t.misses == nil || t.armed.Load() || t.armed.Swap(true) {
		return
	}
	t.set()
}

func (t *trimmer) set() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	t.seen = t.misses()
	t.running.Add(1)
	t.timer = time.AfterFunc(trimAfter, t.fire)
}

func (t *trimmer) fire() {
	defer t.running.Done()
	now := t.misses()
	t.mu.Lock()
	due, quiet := now-t.done >= trimMisses, now-t.seen <= quietMisses
	if due && quiet {
		t.done = now
	}
	t.mu.Unlock()
	switch {
	case !due:
		t.armed.Store(false)
	case quiet:
		t.armed.Store(false)
		trimMemory()
	default:
		t.set()
	}
}

// stop ends the trimmer and waits for a trim under way.
func (t *trimmer) stop() {
	t.mu.Lock()
	t.stopped = true
	if t.timer != nil && t.timer.Stop() {
		t.running.Done()
	}
	t.mu.Unlock()
	t.running.Wait()
}
