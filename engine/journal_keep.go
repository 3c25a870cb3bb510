package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/osierdb/osier"
)

// defaultKeepEvery is how often the journals with a retention are looked at. What is
// over is dropped by commands like any other's, so that applying needs no clock.
const defaultKeepEvery = time.Second

// keeper knows which journals have something to drop one day. It has no goroutine
// and no timer while there are none.
type keeper struct {
	mu    sync.Mutex // guards all below
	due   []*journal
	timer *time.Timer
	armed bool
}

// ends reports whether the journal's events end other than by a trim.
func (s *journalState) ends() bool {
	set := &s.settings
	return s.count > 0 && (set.MaxAge > 0 || set.MaxEvents > 0 || set.MaxBytes > 0 || s.trimmed.Before(s.expiring))
}

// keepJournals makes sure that journals are looked at. The caller holds
// queue.order, or is Open.
func (e *Engine) keepJournals(journals []*journal) {
	for _, j := range journals {
		if e.opts.ReadOnly || j.gone || !j.st.ends() {
			continue
		}
		k := &e.keeper
		k.mu.Lock()
		if !slices.Contains(k.due, j) {
			k.due = append(k.due, j)
		}
		e.armKeeper()
		k.mu.Unlock()
	}
}

// armKeeper sets the timer. The caller holds keeper.mu.
func (e *Engine) armKeeper() {
	k := &e.keeper
	if k.armed || e.open("keep journals") != nil {
		return
	}
	k.armed = true
	k.timer = time.AfterFunc(cmp.Or(e.opts.keepEvery, defaultKeepEvery), func() {
		k.mu.Lock()
		k.armed = false
		if e.open("keep journals") != nil {
			k.mu.Unlock()
			return
		}
		e.background.Add(1)
		k.mu.Unlock()
		defer e.background.Done()
		e.keep(e.ctx)
	})
}

// closeKeeper keeps the timer from beginning anything new.
func (e *Engine) closeKeeper() {
	k := &e.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.armed {
		k.timer.Stop()
	}
}

// keep looks at all journals that are due, once.
func (e *Engine) keep(ctx context.Context) {
	k := &e.keeper
	k.mu.Lock()
	due := slices.Clone(k.due)
	k.mu.Unlock()
	var over []*journal // nothing in them ends any more
	for _, j := range due {
		j.mu.Lock()
		st, closed := j.shown, j.closed
		j.mu.Unlock()
		if closed || !st.ends() {
			over = append(over, j)
			continue
		}
		if err := e.keepJournal(ctx, j, &st); err != nil && e.opts.Logger != nil && ctx.Err() == nil {
			e.opts.Logger.Warn("events that have ended are dropped later", "journal", j.name, "error", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.due = slices.DeleteFunc(k.due, func(j *journal) bool { return slices.Contains(over, j) })
	if len(k.due) > 0 {
		e.armKeeper()
	}
	for _, j := range over {
		// What came while it was looked at counts.
		j.mu.Lock()
		again := !j.closed && j.shown.ends()
		j.mu.Unlock()
		if again {
			k.due = append(k.due, j)
			e.armKeeper()
		}
	}
}

// keepJournal drops what a journal's retention has ended.
func (e *Engine) keepJournal(ctx context.Context, j *journal, st *journalState) error {
	before, err := e.excess(j, st)
	if err != nil {
		return err
	}
	if age := st.settings.MaxAge; age > 0 {
		aged, err := e.aged(j, st, osier.PositionAt(e.now().Add(-age)))
		if err != nil {
			return err
		}
		if before.Before(aged) {
			before = aged
		}
	}
	op := osier.JournalOp{Before: before}
	if st.trimmed.Before(st.expiring) {
		if op.ExpiredMillis, err = e.expired(j, st); err != nil {
			return err
		}
	}
	if before.IsZero() && op.ExpiredMillis == 0 {
		return nil
	}
	_, err = e.Exec(ctx, &osier.Command{DB: j.db.name, Durability: osier.Relaxed,
		Ops: []osier.Op{{Kind: osier.OpTrim, Collection: osier.JournalResource(j.name), Journal: &op}}})
	if osier.KindOf(err) == osier.KindNotFound {
		return nil // dropped meanwhile
	}
	return err
}

// excess is the position before which events are too many or too large.
func (e *Engine) excess(j *journal, st *journalState) (osier.Position, error) {
	var events, size uint64
	if most := st.settings.MaxEvents; most > 0 && st.count > most {
		events = st.count - most
	}
	if most := st.settings.MaxBytes; most > 0 && st.bytes > most {
		size = st.bytes - most
	}
	if events == 0 && size == 0 {
		return osier.Position{}, nil
	}
	lower, upper := eventsRange(j.db.num, st.num)
	it, err := e.store.NewIter(lower, upper)
	if err != nil {
		return osier.Position{}, err
	}
	defer it.Close()
	var p osier.Position
	for ok := it.First(); ok; ok = it.Next() {
		b, err := decodeBlock(it.Key(), it.Value())
		if err != nil {
			return p, err
		}
		if uint64(b.count) <= events || uint64(len(b.events)) <= size {
			events, size = events-min(events, uint64(b.count)), size-min(size, uint64(len(b.events)))
			if p = b.last.Next(); events == 0 && size == 0 {
				return p, nil
			}
			continue
		}
		for rest := b.events; len(rest) > 0 && (events > 0 || size > 0); {
			ev, after, err := osier.CutEvent(rest)
			if err != nil {
				return p, err
			}
			events, size = events-min(events, 1), size-min(size, uint64(len(rest)-len(after)))
			p, rest = ev.Position.Next(), after
		}
		return p, nil
	}
	return p, it.Error()
}

// aged is the position before which whole blocks are older than cut; zero if
// there are none.
func (e *Engine) aged(j *journal, st *journalState, cut osier.Position) (osier.Position, error) {
	lower, upper := eventsRange(j.db.num, st.num)
	it, err := e.store.NewIter(lower, upper)
	if err != nil {
		return osier.Position{}, err
	}
	defer it.Close()
	if !it.First() {
		return osier.Position{}, it.Error()
	}
	first, ok := blockPosition(it.Key())
	if !ok || !it.SeekLT(eventKey(nil, j.db.num, st.num, cut)) {
		return osier.Position{}, it.Error()
	}
	b, err := decodeBlock(it.Key(), it.Value())
	if err != nil {
		return osier.Position{}, err
	}
	p := b.first
	if b.last.Before(cut) {
		p = b.last.Next()
	}
	if !first.Before(p) {
		return osier.Position{}, nil
	}
	return p, nil
}

// expired is the present moment if a block has expired by it, else 0.
func (e *Engine) expired(j *journal, st *journalState) (int64, error) {
	lower := sidePrefix(j.db.num, st.num, sideExpiry)
	now := e.now().UnixMilli()
	it, err := e.store.NewIter(lower, binary.BigEndian.AppendUint64(slices.Clone(lower), uint64(max(now, 0))+1))
	if err != nil {
		return 0, err
	}
	defer it.Close()
	if !it.First() {
		return 0, it.Error()
	}
	return now, nil
}
