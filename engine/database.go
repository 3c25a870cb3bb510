package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
)

// database is what the engine keeps in memory of a database.
type database struct {
	name   string
	num    uint32
	uuid   osier.UUID
	millis int64 // of its creation

	// state and colls are the writer's, under queue.order.
	state dbState
	colls map[string]*collState

	// visible is what readers need of the collections; replaced whole.
	visible      atomic.Pointer[map[string]visibleColl]
	applied      atomic.Uint64 // the sequence readers see
	begun        atomic.Uint64 // the last sequence that the store was ever given
	durable      atomic.Uint64 // the sequence no crash can take back
	durableDrops atomic.Uint64 // the same for dropped collections
	gone         atomic.Bool   // dropped

	kv        atomic.Pointer[kvMemory]            // nil before the first use
	kvVersion uint64                              // with which it begins
	journals  map[string]*journal                 // the writer's, under queue.order
	seen      atomic.Pointer[map[string]*journal] // what readers need; replaced whole
	views     viewSet
	// eager are the indexes that apply keeps, by collection; replaced whole, by
	// the writer.
	eager atomic.Pointer[map[string][]*index]
	// defs is the last change of the definitions of views, 0 if there are none.
	defs atomic.Uint64
	// fence is held shared while derived records are written beside the order,
	// and alone while a drop of what they are derived from is committed.
	fence sync.RWMutex
	// kvCounters are the writer's, under queue.order; nil: to be read.
	kvCounters *kv.Counters

	mu          sync.Mutex // guards the two below
	appliedWake chan struct{}
	durableWake chan struct{}
}

type visibleColl struct {
	num      uint32
	settings osier.Settings
	last     *atomic.Uint64 // its last change; nil where nobody asks
}

// announce wakes all who wait on a channel that wakeOn gave out.
func (db *database) announce(ch *chan struct{}) {
	db.mu.Lock()
	if *ch != nil {
		close(*ch)
		*ch = nil
	}
	db.mu.Unlock()
}

// wakeOn returns a channel that the next announce closes. Who looks at the
// state after taking the channel misses nothing.
func (db *database) wakeOn(ch *chan struct{}) <-chan struct{} {
	db.mu.Lock()
	defer db.mu.Unlock()
	if *ch == nil {
		*ch = make(chan struct{})
	}
	return *ch
}

// awaitSeq waits until the counter (applied or durable) has reached seq.
func (e *Engine) awaitSeq(ctx context.Context, db *database, counter *atomic.Uint64, ch *chan struct{}, seq osier.Seq) error {
	for counter.Load() < uint64(seq) {
		wake := db.wakeOn(ch)
		if counter.Load() >= uint64(seq) {
			return nil
		}
		if err := e.usable(db); err != nil {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return &osier.Error{Kind: osier.KindCanceled, Op: "wait for sequence", DB: db.name, Err: ctx.Err()}
		case <-e.closing:
			return &osier.Error{Kind: osier.KindClosed, Op: "wait for sequence", DB: db.name}
		case <-e.fenced:
			return &osier.Error{Kind: kindOf(e.fenceErr), Op: "wait for sequence", DB: db.name, Err: e.fenceErr}
		}
	}
	return nil
}

// usable reports whether the database is still there and the engine open.
func (e *Engine) usable(db *database) error {
	select {
	case <-e.closing:
		return &osier.Error{Kind: osier.KindClosed, Op: "use database", DB: db.name}
	default:
	}
	if db.gone.Load() {
		return &osier.Error{Kind: osier.KindNotFound, Op: "use database", DB: db.name}
	}
	return nil
}

// showLast publishes the last changes of the writer's collections.
func (db *database) showLast() {
	for name, c := range db.colls {
		if c.shown == nil {
			// New, or read again after a commit that failed.
			if m := db.visible.Load(); m != nil && (*m)[name].num == c.num {
				c.shown = (*m)[name].last
			}
			if c.shown == nil {
				c.shown = new(atomic.Uint64)
			}
		}
		c.shown.Store(uint64(c.lastSeq))
	}
}

// showColls publishes the writer's collections to readers.
func (db *database) showColls() {
	m := make(map[string]visibleColl, len(db.colls))
	db.showLast()
	for name, c := range db.colls {
		m[name] = visibleColl{c.num, c.settings, c.shown}
	}
	db.visible.Store(&m)
}

// lookup finds a database by name.
func (e *Engine) lookup(step, name string) (*database, error) {
	if db := (*e.dbs.Load())[name]; db != nil {
		return db, e.usable(db)
	}
	select {
	case <-e.closing:
		return nil, &osier.Error{Kind: osier.KindClosed, Op: step, DB: name}
	default:
	}
	return nil, &osier.Error{Kind: osier.KindNotFound, Op: step, DB: name}
}
