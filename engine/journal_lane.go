package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// A Relaxed append needs no place in the order of commands: its journal gives it
// a position, readers see it in memory, and it is written behind, together with
// what came meanwhile, by a command that has its position. Before a command in
// order that touches the journal is sealed, what is pending is written into the
// same batch, so that the journal's order in the store is that of its positions,
// and what a crash takes is always the newest.

// Bounds of what waits to be written behind, in all journals together: from
// drainBytes on it is not put off any longer, at laneBytes appends wait.
const (
	drainBytes = 1 << 20
	laneBytes  = 32 << 20
)

// Sizes of the pieces of memory that pending events lie in.
const (
	firstPiece = 4 << 10
	nextPiece  = 64 << 10
)

// lanes is what all journals' pending events share.
type lanes struct {
	bytes atomic.Int64 // pending and draining

	mu      sync.Mutex // guards all below
	queued  []*journal // have pending events
	timer   *time.Timer
	armed   bool
	running bool // a goroutine writes
	closed  bool
	room    chan struct{} // closed when there is room again, or a write failed
	failed  error         // of the last write, nil if it went well
}

// AppendJournal is a command with one OpAppend, by the shorter way that Relaxed
// appends to a journal that is there can take.
func (e *Engine) AppendJournal(ctx context.Context, dbName, resource string, level osier.Durability, events []osier.Event) (res osier.JournalResult, handled bool, err error) {
	db := (*e.dbs.Load())[dbName]
	name, ok := osier.JournalName(resource)
	if !ok || db == nil || e.opts.ReadOnly || ctx.Err() != nil {
		return res, false, nil
	}
	j := (*db.journalsSeen())[name]
	if j == nil {
		return res, false, nil
	}
	for {
		var wait func(context.Context) error
		res, wait, handled, err = e.appendRelaxed(j, level, events)
		if wait == nil {
			return res, handled, err
		}
		if err := wait(ctx); err != nil {
			return res, true, err
		}
	}
}

// appendRelaxed takes events into memory. It returns a wait if that must come
// first; handled is false if the ordinary way must be taken.
func (e *Engine) appendRelaxed(j *journal, level osier.Durability, events []osier.Event) (res osier.JournalResult, wait func(context.Context) error, handled bool, err error) {
	select {
	case <-e.fenced:
		return res, nil, false, nil // the ordinary way says why
	default:
	}
	now := max(e.now().UnixMicro(), e.horizon.floor, 1)
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.ordered {
		j.released.Wait()
	}
	if j.closed || e.journalLevel(level, &j.settings) != store.Relaxed {
		return res, nil, false, nil
	}
	size, kind, text := checkAppend(&j.settings, events)
	if text != "" {
		return res, nil, true, &osier.Error{Kind: kind, Op: "append", DB: j.db.name, Collection: osier.JournalResource(j.name), Err: errors.New(text)}
	}
	if held := e.lanes.bytes.Load(); held > 0 && held+int64(size) > laneBytes {
		return res, e.awaitRoom, true, nil
	}
	first := next(j.last, now)
	upTo := e.horizon.upTo.Load()
	if first.Micros >= upTo {
		return res, func(ctx context.Context) error { return e.raiseHorizon(ctx, first.Micros) }, true, nil
	}
	if first.Micros >= upTo-horizonStep/2 {
		e.raiseSoon(first.Micros)
	}
	res.First, res.Last = first, j.take(events, first, size)
	j.last = res.Last
	e.lanes.bytes.Add(int64(size))
	e.lanes.enqueue(e, j)
	j.announce()
	return res, nil, true, nil
}

// take encodes events behind the pending ones. The caller holds mu.
func (j *journal) take(events []osier.Event, at osier.Position, size int) (last osier.Position) {
	for i := range events {
		e := events[i]
		e.Position = at
		n := e.EncodedSize()
		k := len(j.pending) - 1
		if k < 0 || cap(j.pending[k].bytes)-len(j.pending[k].bytes) < n {
			piece := nextPiece
			if k < 0 && size <= firstPiece {
				piece = firstPiece
			}
			j.pending = append(j.pending, stretch{bytes: make([]byte, 0, max(piece, n))})
			k++
		}
		s := &j.pending[k]
		s.bytes = osier.AppendEvent(s.bytes, &e)
		raw := osier.RawEvent{Position: at}
		if !e.Expires.IsZero() {
			raw.Expires = max(e.Expires.UnixMilli(), 1)
		}
		s.note(&raw)
		last, at = at, at.Next()
	}
	return last
}

// journalLevel is the level of an append to a journal.
func (e *Engine) journalLevel(asked osier.Durability, set *osier.JournalSettings) store.Durability {
	if asked == osier.DurabilityDefault {
		asked = set.Durability
	}
	return e.level(asked)
}

// enqueue makes sure that the journal's pending events are written in time. The
// caller holds the journal's mu.
func (l *lanes) enqueue(e *Engine, j *journal) {
	full := l.bytes.Load() >= drainBytes
	if j.queued && !full {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !j.queued {
		j.queued = true
		l.queued = append(l.queued, j)
	}
	if full {
		l.start(e)
	} else {
		l.arm(e)
	}
}

// start writes now. The caller holds mu.
func (l *lanes) start(e *Engine) {
	if l.running || l.closed {
		return
	}
	l.running = true
	e.background.Go(e.drainPending)
}

// arm writes after the interval. The caller holds mu.
func (l *lanes) arm(e *Engine) {
	if l.armed || l.running || l.closed {
		return
	}
	interval := e.opts.SyncInterval
	if interval <= 0 {
		interval = 100 * time.Millisecond
	}
	l.armed = true
	e.background.Add(1)
	l.timer = time.AfterFunc(interval, func() {
		defer e.background.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.armed = false
		l.start(e)
	})
}

// free gives room back.
func (l *lanes) free(bytes int) {
	if bytes == 0 {
		return
	}
	l.bytes.Add(int64(-bytes))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake()
}

// wake wakes appends that wait for room. The caller holds mu.
func (l *lanes) wake() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// awaitRoom waits until pending events have been written. It fails if they
// cannot be.
func (e *Engine) awaitRoom(ctx context.Context) error {
	l := &e.lanes
	l.mu.Lock()
	l.start(e)
	if l.room == nil {
		l.room = make(chan struct{})
	}
	room := l.room
	l.mu.Unlock()
	if l.bytes.Load() < laneBytes/2 {
		return nil
	}
	select {
	case <-room:
	case <-e.closing:
		return &osier.Error{Kind: osier.KindClosed, Op: "append"}
	case <-e.fenced:
		return &osier.Error{Kind: kindOf(e.fenceErr), Op: "append", Err: e.fenceErr}
	case <-ctx.Done():
		return &osier.Error{Kind: osier.KindCanceled, Op: "append", Err: ctx.Err()}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// drainPending writes what is pending until it is little again. While much is, it
// goes on without waiting for the disk: the store makes that durable in its
// interval, and the last write waits for all of them.
func (e *Engine) drainPending() {
	l := &e.lanes
	for {
		level := store.Sync
		if l.bytes.Load() >= drainBytes {
			level = store.Relaxed
		}
		err := e.drain(e.ctx, level)
		l.mu.Lock()
		l.failed = err
		if err == nil && l.bytes.Load() >= drainBytes && !l.closed {
			l.mu.Unlock()
			continue
		}
		l.running = false
		if err != nil {
			l.wake()
		}
		if len(l.queued) > 0 {
			l.arm(e)
		}
		l.mu.Unlock()
		return
	}
}

// drain writes all that is pending when it is called.
func (e *Engine) drain(ctx context.Context, level store.Durability) error {
	if e.lanes.bytes.Load() == 0 {
		return nil
	}
	// What comes until it is r's turn is written too: commit makes room for it.
	return e.submit(ctx, &request{level: level, fill: e.drainInto, drains: true}, drainBytes/4)
}

// drainInto writes what is pending into a group's batch.
func (e *Engine) drainInto(a *applier) error {
	l := &e.lanes
	l.mu.Lock()
	queued := l.queued
	l.queued = nil
	l.mu.Unlock()
	for i, j := range queued {
		j.mu.Lock()
		j.queued = false
		j.mu.Unlock()
		if err := a.drain(j); err != nil {
			for _, j := range queued[i:] {
				j.requeue(l)
			}
			return err
		}
	}
	a.drained = append(a.drained, queued...)
	return nil
}

func (j *journal) requeue(l *lanes) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !j.queued && !j.closed {
		j.queued = true
		l.queued = append(l.queued, j)
	}
}

// drain writes a journal's pending events into the batch.
func (a *applier) drain(j *journal) error {
	if j.gone || j.db.journals[j.name] != j || a.database(j.db.name) != j.db {
		return nil // dropped by this group
	}
	j.mu.Lock()
	j.draining = append(j.draining, j.pending...)
	j.pending = nil
	runs := j.draining
	j.mu.Unlock()
	for len(runs) > 0 && !j.st.last.Before(runs[0].first) {
		runs = runs[1:] // this group has it already
	}
	if len(runs) == 0 {
		return nil
	}
	op := &osier.JournalOp{Encoded: make([][]byte, len(runs))}
	for i := range runs {
		op.Encoded[i] = runs[i].bytes
	}
	c := &osier.Command{DB: j.db.name, Durability: osier.Relaxed,
		Ops: []osier.Op{{Kind: osier.OpAppend, Collection: osier.JournalResource(j.name), Journal: op}}}
	a.e.seal(c)
	c.Sealed.Micros = runs[len(runs)-1].last.Micros
	if _, _, err := a.command(c, nil); err != nil {
		var broken *brokenBatch
		if errors.As(err, &broken) {
			return err
		}
		return &brokenBatch{err}
	}
	return nil
}

// sealJournals decides on the positions of a command's events: it writes what is
// pending in its journals, holds up others there until the group is done, and
// fixes a moment after all their positions.
func (e *Engine) sealJournals(a *applier, c *osier.Command) error {
	db := a.database(c.DB)
	if db == nil {
		return nil
	}
	at := max(e.now().UnixMicro(), e.horizon.floor, 1)
	var touched []*journal
	for i := range c.Ops {
		name, _ := osier.JournalName(c.Ops[i].Collection)
		j := db.journals[name]
		if j == nil || !isJournalOp(c.Ops[i].Kind) || slices.Contains(touched, j) {
			continue
		}
		touched = append(touched, j)
		if err := a.hold(j); err != nil {
			return err
		}
		j.mu.Lock()
		at = max(at, j.last.Micros+1, j.st.last.Micros+1)
		j.mu.Unlock()
	}
	if c.Sealed.Time.IsZero() {
		c.Sealed.Micros = at
	} else {
		at = micros(&c.Sealed)
	}
	for _, j := range touched {
		j.mu.Lock()
		if p := (osier.Position{Micros: at, Count: math.MaxUint32}); j.last.Before(p) {
			j.last = p
		}
		j.mu.Unlock()
	}
	return nil
}

// hold keeps Relaxed events out of a journal until the group is done.
func (a *applier) hold(j *journal) error {
	if slices.Contains(a.held, j) {
		return nil
	}
	a.held = append(a.held, j)
	j.mu.Lock()
	j.ordered = true
	j.mu.Unlock()
	return a.drain(j)
}

// beginJournals makes the applier ready for a group.
func (a *applier) beginJournals() {
	clear(a.journals)
	a.journals, a.journalShape, a.held, a.drained = a.journals[:0], nil, nil, nil
	a.messages = nil
}

// release lets events into the journals again when a group is done, or has
// failed. Events whose write failed are tried again.
func (a *applier) releaseJournals() {
	for _, j := range a.held {
		j.mu.Lock()
		j.ordered = false
		j.released.Broadcast()
		left := len(j.draining) > 0
		j.mu.Unlock()
		if left {
			j.requeue(&a.e.lanes)
		}
	}
	for _, j := range a.drained {
		j.mu.Lock()
		left := len(j.draining) > 0
		j.mu.Unlock()
		if left {
			j.requeue(&a.e.lanes)
		}
	}
	a.held, a.drained = nil, nil
}

// closeLanes refuses Relaxed events from now on.
func (e *Engine) closeLanes() {
	for _, db := range *e.dbs.Load() {
		for _, j := range *db.journalsSeen() {
			j.mu.Lock()
			j.closed = true
			j.announce()
			j.mu.Unlock()
		}
	}
	l := &e.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake()
	if l.armed && l.timer.Stop() {
		l.armed = false
		e.background.Done()
	}
}

// lastDrain writes what is pending when nothing else goes on any more, and marks
// the store as one that no position was lost of.
func (e *Engine) lastDrain() {
	if e.opts.ReadOnly || e.lanes.bytes.Load() == 0 && !e.horizon.written.Load() {
		return
	}
	g := &group{applied: make(chan struct{}), done: make(chan struct{})}
	g.reqs = []*request{{level: store.Sync, fill: func(a *applier) error {
		return errors.Join(e.drainInto(a), e.settleHorizon(a))
	}}}
	e.lead(g, store.Sync) // an error fenced the store: Close reports it
}

// horizon is the moment from which on no position has been given out that a crash
// could take back, so that after a crash positions begin there. It is moved on
// durably before positions reach it.
type horizon struct {
	floor   int64 // where positions begin: the horizon found by Open
	upTo    atomic.Int64
	written atomic.Bool
	raising atomic.Bool
	mu      sync.Mutex // one at a time raises it
}

// horizonStep is how far it is moved, in microseconds: so much later than the
// clock may the first event after a crash be.
const horizonStep = 1e6

func (e *Engine) loadHorizon() error {
	if e.opts.InMemory {
		e.horizon.upTo.Store(math.MaxInt64)
		return nil
	}
	b, closer, err := e.store.Get([]byte{keyHorizon})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	if len(b) != 8 || b[0] > 127 {
		return &osier.Error{Kind: osier.KindCorrupt, Op: "read horizon", Err: errRecord}
	}
	e.horizon.floor = int64(binary.BigEndian.Uint64(b))
	return nil
}

// raiseHorizon returns when positions up to micros may be given out.
func (e *Engine) raiseHorizon(ctx context.Context, micros int64) error {
	h := &e.horizon
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.upTo.Load() > micros {
		return nil
	}
	to := max(micros, e.now().UnixMicro()) + horizonStep
	err := e.submit(ctx, &request{level: store.Sync, fill: func(a *applier) error {
		return a.b.Set([]byte{keyHorizon}, binary.BigEndian.AppendUint64(nil, uint64(to)))
	}}, 64)
	if err == nil {
		h.written.Store(true)
		h.upTo.Store(to)
	}
	return err
}

// raiseSoon moves the horizon on before it is reached. The caller holds the mu of
// a journal that is not closed.
func (e *Engine) raiseSoon(micros int64) {
	if e.horizon.raising.Swap(true) {
		return
	}
	e.background.Go(func() {
		defer e.horizon.raising.Store(false)
		// If it fails, who reaches the horizon is told.
		_ = e.raiseHorizon(e.ctx, micros+horizonStep/2)
	})
}

// settleHorizon sets the horizon back to where it stood: all positions given out
// since then are in the store.
func (e *Engine) settleHorizon(a *applier) error {
	if e.horizon.floor == 0 {
		return a.b.Delete([]byte{keyHorizon})
	}
	return a.b.Set([]byte{keyHorizon}, binary.BigEndian.AppendUint64(nil, uint64(e.horizon.floor)))
}

// coverHorizon returns when no crash can make a position up to micros, which a
// command has taken, be given out again.
func (e *Engine) coverHorizon(ctx context.Context, micros int64) error {
	upTo := e.horizon.upTo.Load()
	if micros >= upTo {
		// The command is carried out: its caller waits, whatever ctx says.
		return e.raiseHorizon(context.WithoutCancel(ctx), micros)
	}
	return nil
}

// commandLevel is the level of a command. One that does not say, and is about
// journals only, has the strictest that they say.
func (e *Engine) commandLevel(c *osier.Command) store.Durability {
	if d := kvLevel(c); d != c.Durability {
		return e.level(d)
	}
	db := (*e.dbs.Load())[c.DB]
	if c.Durability != osier.DurabilityDefault || db == nil || len(c.Ops) == 0 {
		return e.level(c.Durability)
	}
	level := store.Relaxed
	for i := range c.Ops {
		name, ok := osier.JournalName(c.Ops[i].Collection)
		j := (*db.journalsSeen())[name]
		if !ok || j == nil || c.Ops[i].Kind != osier.OpAppend {
			return e.level(c.Durability)
		}
		j.mu.Lock()
		level = min(level, e.journalLevel(c.Durability, &j.settings))
		j.mu.Unlock()
	}
	return level
}

// journalOpSize is about what an operation takes in a batch.
func journalOpSize(op *osier.JournalOp) (size int) {
	if op == nil {
		return 0
	}
	for i := range op.Events {
		size += op.Events[i].EncodedSize()
	}
	for _, b := range op.Encoded {
		size += len(b)
	}
	return size
}
