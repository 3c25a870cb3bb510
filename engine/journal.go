package engine

import (
	"maps"
	"slices"
	"sync"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
)

// journal is what the engine keeps in memory of a journal. Its events lie, in
// order, in complete blocks in the store; in the tail, the events of the open
// block, which the store has in records of their appends; in draining, Relaxed
// events on their way into the store; and in pending, those that are written
// behind.
//
// Lock order: queue.order, then mu of one journal at a time, then lanes.mu.
type journal struct {
	name string // without a prefix
	db   *database

	// The writer's, under queue.order.
	st    journalState
	tail  tail
	dirty bool // st is to be written
	gone  bool // dropped by the group under way

	mu       sync.Mutex // guards all below
	settings osier.JournalSettings
	shown    journalState // as readers see it, without what is draining or pending
	open     stretch      // the tail as readers see it
	draining []stretch
	pending  []stretch
	last     osier.Position // no event gets this position, or one before it
	durable  osier.Position // no crash takes back events up to here
	// ordered: a command in order decides on positions; no event may become
	// visible before its own do.
	ordered  bool
	released sync.Cond // on mu; ordered has ended
	closed   bool      // dropped, or the engine is closing
	queued   bool      // is in lanes.queued
	wake     chan struct{}
}

// stretch is a run of encoded events in memory. Bytes are only ever added behind
// those that somebody may be reading.
type stretch struct {
	stats
	bytes []byte
}

// tail is the open block.
type tail struct {
	stretch
	buf    []byte // bytes behind room for the header of their record
	stored int    // bytes of it that the store has
	fresh  stats  // of the events behind those
}

func newJournal(db *database, name string, st journalState) *journal {
	j := &journal{name: name, db: db, st: st}
	j.released.L = &j.mu
	return j
}

// next is the position after last for an event taken at micros.
func next(last osier.Position, micros int64) osier.Position {
	if micros > last.Micros {
		return osier.Position{Micros: micros}
	}
	return last.Next()
}

// announce wakes all who wait for events. The caller holds mu.
func (j *journal) announce() {
	if j.wake != nil {
		close(j.wake)
		j.wake = nil
	}
}

// wakeOn returns a channel that the next change closes.
func (j *journal) wakeOn() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wake == nil {
		j.wake = make(chan struct{})
	}
	return j.wake
}

// show makes the writer's state the readers'.
func (j *journal) show() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settings, j.shown, j.open = j.st.settings, j.st, j.tail.stretch
	if j.last.Before(j.st.last) {
		j.last = j.st.last
	}
	j.closed = j.closed || j.gone
	j.announce()
}

// retire ends what a journal that is dropped keeps in memory.
func (j *journal) retire(l *lanes) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	l.free(j.dropPending())
	j.announce()
	j.released.Broadcast()
}

// dropPending forgets what was not written and returns its size. The caller
// holds mu.
func (j *journal) dropPending() (bytes int) {
	for _, runs := range [...][]stretch{j.draining, j.pending} {
		for i := range runs {
			bytes += len(runs[i].bytes)
		}
	}
	j.draining, j.pending = nil, nil
	return bytes
}

// reached raises what no crash takes back.
func (j *journal) reached(p osier.Position) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.durable.Before(p) {
		j.durable = p
		j.announce()
	}
}

// readJournals reads the journals' records of a database.
func readJournals(s source, db uint32) (map[string]journalState, error) {
	out := map[string]journalState{}
	lower := prefix(nil, db, 0, spaceJournal)
	err := scanPrefix(s, lower, func(tail, value []byte) error {
		st, err := decodeJournalState(value)
		if err != nil {
			return &osier.Error{Kind: osier.KindCorrupt, Op: "read journal", Collection: osier.JournalResource(string(tail)), Err: err}
		}
		out[string(tail)] = st
		return nil
	})
	return out, err
}

// reloadJournals makes the writer's journals what the store has.
func (e *Engine) reloadJournals(db *database) error {
	states, err := readJournals(e.store, db.num)
	if err != nil {
		return err
	}
	journals := make(map[string]*journal, len(states))
	for name, st := range states {
		j := (*db.journalsSeen())[name]
		if j == nil || j.shown.num != st.num {
			j = newJournal(db, name, st)
		}
		j.st, j.dirty, j.gone = st, false, false
		if j.tail, err = e.readTail(db.num, &st); err != nil {
			return err
		}
		journals[name] = j
	}
	db.journals = journals
	return nil
}

// readTail reads the open block from the records of its appends.
func (e *Engine) readTail(db uint32, st *journalState) (t tail, err error) {
	if st.tailFirst.IsZero() {
		return t, nil
	}
	lower, upper := eventKey(nil, db, st.num, st.tailFirst), keys.PrefixEnd(eventsPrefix(nil, db, st.num))
	it, err := e.store.NewIter(lower, upper)
	if err != nil {
		return t, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		b, err := decodeBlock(it.Key(), it.Value())
		if err == nil {
			err = t.add(b.events)
		}
		if err != nil {
			return t, &osier.Error{Kind: osier.KindCorrupt, Op: "read journal", Err: err}
		}
	}
	t.keep(t.stretch)
	return t, it.Error()
}

// keep makes a stretch that the store has the tail.
func (t *tail) keep(s stretch) {
	t.stretch, t.fresh = s, stats{}
	t.buf = append(make([]byte, blockMost, blockMost+len(s.bytes)), s.bytes...)
	t.bytes = t.buf[blockMost:]
	t.stored = len(t.bytes)
}

// add takes encoded events that are known to be in order.
func (r *stretch) add(events []byte) error {
	for b := events; len(b) > 0; {
		e, rest, err := osier.CutEvent(b)
		if err != nil {
			return err
		}
		r.note(&e)
		b = rest
	}
	r.bytes = append(r.bytes, events...)
	return nil
}

// journalsSeen are the journals as readers know them.
func (db *database) journalsSeen() *map[string]*journal {
	if m := db.seen.Load(); m != nil {
		return m
	}
	return &map[string]*journal{}
}

// showJournals publishes which journals there are.
func (db *database) showJournals() {
	m := maps.Clone(db.journals)
	db.seen.Store(&m)
}

// loadJournals makes the journals of a database that was just read known.
func (e *Engine) loadJournals(db *database) {
	for _, j := range db.journals {
		j.show()
		j.durable = j.st.last
	}
	db.showJournals()
}

// publishJournals shows readers what a group has done to journals, once the store
// has it, and remembers what becomes durable with its batch. The caller holds
// queue.order.
func (e *Engine) publishJournals(a *applier, number uint64) {
	e.durable.mu.Lock()
	for _, j := range a.journals {
		e.durable.waiting = append(e.durable.waiting, awaited{number: number, journal: j, position: j.st.last})
	}
	e.durable.mu.Unlock()
	for _, j := range a.journals {
		j.mu.Lock()
		bytes := 0
		for i := range j.draining {
			bytes += len(j.draining[i].bytes)
		}
		j.draining = nil
		// In one step with the tail that has taken them in.
		j.settings, j.shown, j.open = j.st.settings, j.st, j.tail.stretch
		if j.last.Before(j.st.last) {
			j.last = j.st.last
		}
		if j.gone {
			j.closed = true
			bytes += j.dropPending()
		}
		j.announce()
		j.mu.Unlock()
		e.lanes.free(bytes)
	}
	for _, db := range a.journalShape {
		db.showJournals()
	}
	for _, db := range a.dropped {
		for _, j := range db.journals {
			j.retire(&e.lanes)
		}
	}
	e.keepJournals(a.journals)
}

// touchJournal notes that a journal's record is to be written.
func (a *applier) touchJournal(j *journal) {
	j.dirty = true
	if !slices.Contains(a.journals, j) {
		a.journals = append(a.journals, j)
	}
}

// finishJournals writes the records that the group moved, once each.
func (a *applier) finishJournals() error {
	for _, j := range a.journals {
		if !j.dirty || j.gone || !slices.Contains(a.touched, j.db) {
			continue
		}
		j.dirty = false
		a.key = append(prefix(a.key[:0], j.db.num, 0, spaceJournal), j.name...)
		a.buf = j.st.append(a.buf[:0])
		if err := a.b.Set(a.key, a.buf); err != nil {
			return err
		}
	}
	return nil
}
