package pocket

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// cache keeps decoded values of registered types, so that a second Get costs
// no decoding. A record that has one carries its index in word 3; when the
// record is replaced, the index is freed at once. Readers fill the cache, so
// nothing is decoded that nobody reads.
type cache struct {
	limit int // most values kept; 0 for none

	pages atomic.Pointer[[]*cachePage]

	mu   sync.Mutex // guards free, next and additions to pages
	free []uint32
	next uint32
}

const cachePageLen = 1024

type cachePage [cachePageLen]atomic.Pointer[cell]

// cell is a decoded value. owner is the address of its record as a number: it
// tells a reader that holds an older version of the record, whose index was
// given away since, that the cell is not meant for it.
type cell struct {
	owner uintptr
	value any // a *T
}

type decoded[T any] struct {
	cell cell
	v    T
}

func newCache(limit int) *cache {
	c := &cache{limit: limit, next: 1}
	c.pages.Store(&[]*cachePage{})
	return c
}

// cellAt returns the cell of r, or nil.
func cellAt(pages []*cachePage, r record) *cell {
	i := r.cacheIndex()
	n := int(i / cachePageLen)
	if n >= len(pages) {
		return nil // frozen is beyond all pages
	}
	x := pages[n][i%cachePageLen].Load()
	if x == nil || x.owner != uintptr(unsafe.Pointer(r.p)) {
		return nil
	}
	return x
}

// store keeps x for r, unless the cache is full or r has been replaced.
func (c *cache) store(r record, x *cell) {
	x.owner = uintptr(unsafe.Pointer(r.p))
	c.mu.Lock()
	defer c.mu.Unlock()
	i := r.cacheIndex()
	if i == frozen {
		return
	}
	if i != 0 { // another reader was faster, perhaps with another Go type
		c.set(i, x)
		return
	}
	n := len(c.free)
	switch {
	case n > 0:
		i = c.free[n-1]
	case int64(c.next) <= int64(c.limit):
		i = c.next
	default:
		return
	}
	// The writer may freeze r at this moment.
	if !r.setCacheIndex(0, i) {
		return
	}
	if n > 0 {
		c.free = c.free[:n-1]
	} else {
		c.next++
	}
	c.set(i, x)
}

// set needs mu.
func (c *cache) set(i uint32, x *cell) {
	pages := *c.pages.Load()
	if int(i/cachePageLen) >= len(pages) {
		// Indices are given out one by one, so one page is enough. Readers
		// hold the old slice by its length, so appending is safe.
		pages = append(pages, new(cachePage))
		c.pages.Store(&pages)
	}
	pages[i/cachePageLen][i%cachePageLen].Store(x)
}

// freeze ends the caching of a record that is being replaced.
func (c *cache) freeze(r record) {
	if r.setCacheIndex(0, frozen) || r.frozen() {
		return
	}
	c.mu.Lock() // no reader gives r an index now
	defer c.mu.Unlock()
	i := r.cacheIndex()
	r.setCacheIndex(i, frozen)
	c.set(i, nil)
	c.free = append(c.free, i)
}

// size returns the number of values kept.
func (c *cache) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.next) - 1 - len(c.free)
}
