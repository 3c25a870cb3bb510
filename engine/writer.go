package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
	"github.com/osierdb/osier/internal/store"
)

// request is a command, or a piece of internal work, on its way to the store.
type request struct {
	cmd      *osier.Command
	prepared []prepared // an operation each; nil: nothing was
	scratch  []*[]byte  // holds what prepared refers to
	one      struct {   // their memory for a single operation
		prepared [1]prepared
		scratch  [1]*[]byte
	}
	fill  func(a *applier) error // internal work instead of a command
	level store.Durability

	state    atomic.Int32 // waiting, taken or abandoned
	res      *osier.Result
	err      error
	replayed bool // the answer is an earlier one
	journals bool // the command has operations on journals
	drains   bool // fill writes what is pending in journals
}

const (
	waiting int32 = iota
	taken
	abandoned
)

// A group is what one engine batch commits: all requests that came while the
// group before it was being applied. Its first request leads it.
type group struct {
	reqs    []*request
	size    int
	applied chan struct{} // closed when readers see it: enough for Relaxed
	done    chan struct{} // closed when it is durable as asked
}

// maxGroup bounds a batch in bytes of bodies; a larger command goes alone.
const maxGroup = 4 << 20

// queue hands requests to groups and groups to the store, in order.
type queue struct {
	mu     sync.Mutex // guards the three below
	next   *group     // collects; nil before the first
	closed bool
	active sync.WaitGroup // requests under way

	// order is held while a group is applied and handed to the store, never
	// while anybody waits for the disk. Lock order: order, then mu.
	order sync.Mutex
}

// submit carries r out and returns when it is done and durable at its level.
// When ctx ends before r's turn has come, nothing happens; after that the
// outcome is waited for, which the disk bounds.
func (e *Engine) submit(ctx context.Context, r *request, size int) error {
	if err := ctx.Err(); err != nil {
		return &osier.Error{Kind: osier.KindCanceled, Op: "submit command", Err: err}
	}
	q := &e.queue
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return &osier.Error{Kind: osier.KindClosed, Op: "submit command"}
	}
	q.active.Add(1)
	defer q.active.Done()
	g := q.next
	if g == nil || g.size > 0 && g.size+size > maxGroup {
		g = &group{applied: make(chan struct{}), done: make(chan struct{})}
		q.next = g
	}
	leads := len(g.reqs) == 0
	g.reqs = append(g.reqs, r)
	g.size += size
	q.mu.Unlock()

	done := g.done
	if r.level == store.Relaxed {
		done = g.applied
	}
	if leads {
		e.lead(g, r.level)
	}
	select {
	case <-done:
	case <-ctx.Done():
		if r.state.CompareAndSwap(waiting, abandoned) {
			return &osier.Error{Kind: osier.KindCanceled, Op: "submit command", Err: ctx.Err()}
		}
		<-done
	}
	return r.err
}

// lead applies a group in its turn, lets the next one go on, and waits for the
// disk on behalf of all. A leader that need not wait itself leaves that to
// another goroutine.
func (e *Engine) lead(g *group, own store.Durability) {
	q := &e.queue
	e.gather(g)
	q.order.Lock()
	q.mu.Lock()
	if q.next == g {
		q.next = nil
	}
	q.mu.Unlock()
	pending, level, err := e.commit(g)
	q.order.Unlock()

	g.fail(e.storeError("commit", err), store.Relaxed)
	e.topics.send()
	close(g.applied)
	if own == store.Relaxed && level < store.Relaxed && err == nil {
		q.active.Add(1)
		go func() {
			defer q.active.Done()
			e.settle(g, pending)
		}()
		return
	}
	if err != nil {
		close(g.done)
		return
	}
	e.settle(g, pending)
}

// gather lets those who are about to submit join the group. An fsync that ends
// wakes all who waited for it, and what they write next costs a group less than
// groups of their own. Alone, a leader only looks once if anybody else can run.
func (e *Engine) gather(g *group) {
	for had := 1; ; {
		runtime.Gosched()
		e.queue.mu.Lock()
		have := len(g.reqs)
		e.queue.mu.Unlock()
		if have == had {
			return
		}
		had = have
	}
}

// settle waits until a group is durable as its requests asked.
func (e *Engine) settle(g *group, pending *store.Pending) {
	defer close(g.done)
	var err error
	if pending != nil {
		err = pending.Wait()
	}
	if err == nil {
		err = e.settleReplays(g, pending)
	}
	// Whoever caused messages may go on after they have gone out.
	e.topics.send()
	g.fail(e.storeError("commit", err), store.Buffered)
}

// fail gives an error to all requests, up to a level, that have none of their
// own. Weaker ones have their answer already.
func (g *group) fail(err error, weakest store.Durability) {
	if err == nil {
		return
	}
	for _, r := range g.reqs {
		if r.err == nil && r.level <= weakest {
			r.res, r.err = nil, err
		}
	}
}

// settleReplays makes sure that an answer given a second time is durable: the
// first one may still be waiting for its fsync.
func (e *Engine) settleReplays(g *group, pending *store.Pending) error {
	if pending != nil || e.opts.ReadOnly {
		return nil
	}
	for _, r := range g.reqs {
		if r.replayed && r.level == store.Sync {
			return e.store.Flush()
		}
	}
	return nil
}

// commit applies a group's requests in order to one batch and hands it to the
// store. It returns nil if there was nothing to write. The caller holds
// queue.order.
func (e *Engine) commit(g *group) (pending *store.Pending, level store.Durability, err error) {
	size := g.size
	if slices.ContainsFunc(g.reqs, func(r *request) bool { return r.drains || r.journals }) {
		size += int(e.lanes.bytes.Load())
	}
	b := e.store.NewBatchSize(size + size/4)
	defer b.Close()
	a := &e.applier
	a.begin(e, b, len(g.reqs) > 1)
	defer func() {
		if err != nil {
			a.abandonKV()
		} else if pending == nil {
			a.publishKV()
		}
	}()
	defer a.releaseJournals()
	level = store.Relaxed
	var broken *brokenBatch
	for _, r := range g.reqs {
		if !r.state.CompareAndSwap(waiting, taken) {
			continue
		}
		level = min(level, r.level)
		if r.fill != nil {
			r.err = r.fill(a)
		} else {
			e.carryOut(a, r)
		}
		if errors.As(r.err, &broken) {
			return nil, level, errors.Join(broken.err, e.reload(a.moved()))
		}
	}
	if err := a.finish(); err != nil {
		return nil, level, errors.Join(err, e.reload(a.moved()))
	}
	if b.Count() == 0 {
		e.topics.queue(a, 0, level)
		return nil, level, nil
	}
	a.markBusy()
	defer a.fenceDrops()()
	p, err := e.store.Apply(b, level)
	if err != nil {
		// What was worked out did not happen, and may never (a full disk).
		return nil, level, errors.Join(err, e.reload(a.moved()))
	}
	e.commits.Add(1)
	e.publish(a, p.Number)
	e.topics.queue(a, p.Number, level)
	return &p, level, nil
}

// carryOut seals a request's command and applies it.
func (e *Engine) carryOut(a *applier, r *request) {
	e.commands.Add(1)
	if r.journals {
		if r.err = e.sealJournals(a, r.cmd); r.err != nil {
			return
		}
	}
	e.seal(r.cmd)
	r.res, r.replayed, r.err = a.command(r.cmd, r.prepared)
}

// moved are the databases whose state in memory a group may have changed.
func (a *applier) moved() []*database { return slices.Concat(a.touched, a.dropped) }

// publish shows readers what the store now holds, and remembers which
// sequences become durable with the batch.
func (e *Engine) publish(a *applier, number uint64) {
	if a.directory {
		e.publishDirectory(a)
	}
	a.publishKV()
	for _, w := range a.views {
		p := w.p
		w.ix.at.Store(&p)
	}
	e.durable.mu.Lock()
	for _, db := range a.touched {
		db.showLast()
		db.applied.Store(uint64(db.state.lastSeq))
		e.noteDefinitions(db)
		e.durable.waiting = append(e.durable.waiting, awaited{number: number, db: db, seq: db.state.lastSeq, drops: db.state.drops, kv: a.shown(db)})
	}
	e.durable.mu.Unlock()
	e.publishJournals(a, number)
	for _, db := range a.touched {
		db.announce(&db.appliedWake)
	}
	// The fsync may have been faster than we.
	if done := e.store.Synced(); done >= number {
		e.synced(done)
	}
}

// awaited is a sequence that becomes durable with a batch.
type awaited struct {
	number uint64
	db     *database
	seq    osier.Seq
	drops  uint64
	kv     []kv.Event

	journal  *journal // instead of a database
	position osier.Position
}

// durableState lists, in order of batches, what is applied but not durable.
type durableState struct {
	mu      sync.Mutex
	waiting []awaited
}

// synced is told that every batch up to number is durable, and wakes the feeds.
func (e *Engine) synced(number uint64) {
	d := &e.durable
	d.mu.Lock()
	n := 0
	for n < len(d.waiting) && d.waiting[n].number <= number {
		n++
	}
	ready := d.waiting[:n:n]
	d.waiting = d.waiting[n:]
	for i := range ready {
		ready[i].db.showKV(ready[i].kv) // in order, so under the lock
	}
	d.mu.Unlock()
	for _, w := range ready {
		if w.journal != nil {
			w.journal.reached(w.position)
			continue
		}
		seqs, drops := advance(&w.db.durable, uint64(w.seq)), advance(&w.db.durableDrops, w.drops)
		if seqs || drops {
			w.db.announce(&w.db.durableWake)
		}
	}
}

// advance raises v to n and reports whether that changed it.
func advance(v *atomic.Uint64, n uint64) bool {
	for {
		old := v.Load()
		if old >= n {
			return false
		}
		if v.CompareAndSwap(old, n) {
			return true
		}
	}
}
