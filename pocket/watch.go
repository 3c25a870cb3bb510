package pocket

import (
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
)

// An Event is a change of one record, as a watcher sees it.
type Event struct {
	Key     string
	Version Version // of the transaction
	Deleted bool    // the record is gone
	Expired bool    // it is gone because its time was over
	More    bool    // the transaction has more events for this watcher
	Record  Record  // what is stored now; without use when Deleted is set
}

// maxWatched is how many events may wait for a watcher.
const maxWatched = 1 << 16

// watchList holds the watchers of a store.
type watchList struct {
	n    atomic.Int32
	mu   sync.Mutex // guards all
	all  map[*watcher]struct{}
	over error // set when the store is closed
}

type watcher struct {
	span   Span
	signal chan struct{} // holds one token when there is news

	mu     sync.Mutex // guards the rest
	events []Event
	lagged bool
	over   error
}

// Watch yields the changes of keys that begin with prefix, in order and each
// transaction's together, from the call of Watch on, until ctx ends or the
// store is closed; it then yields the reason as the last error.
//
// A watcher that leaves more than 65,536 events waiting misses all of them; it
// is told with ErrLagged and goes on with what comes afterwards. To be whole
// again it scans the prefix.
//
// The sequence can be ranged over once. Not doing so at all keeps the watcher
// registered until ctx ends.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	w := &watcher{span: WithPrefix(prefix), signal: make(chan struct{}, 1)}
	s.watches.add(w)
	stop := context.AfterFunc(ctx, func() { s.watches.remove(w, ctx.Err()) })
	return func(yield func(Event, error) bool) {
		defer func() {
			stop()
			s.watches.remove(w, ErrClosed)
		}()
		for {
			events, lagged, over := w.take()
			if lagged && !yield(Event{}, ErrLagged) {
				return
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if len(events) == 0 && over != nil {
				yield(Event{}, over)
				return
			}
			if len(events) == 0 {
				<-w.signal
			}
		}
	}
}

func (l *watchList) add(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		w.over = l.over
		return
	}
	if l.all == nil {
		l.all = make(map[*watcher]struct{})
	}
	l.all[w] = struct{}{}
	l.n.Store(int32(len(l.all)))
}

func (l *watchList) remove(w *watcher, why error) {
	l.mu.Lock()
	delete(l.all, w)
	l.n.Store(int32(len(l.all)))
	l.mu.Unlock()
	w.end(why)
}

// end ends all watchers, those to come too.
func (l *watchList) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = why
	for w := range l.all {
		w.end(why)
	}
	clear(l.all)
	l.n.Store(0)
}

func (w *watcher) end(why error) {
	w.mu.Lock()
	if w.over == nil {
		w.over = why
	}
	w.mu.Unlock()
	poke(w.signal)
}

func (w *watcher) take() (events []Event, lagged bool, over error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events, lagged = w.events, w.lagged
	w.events, w.lagged = nil, false
	return events, lagged, w.over
}

// tell hands the published transactions to the watchers. Needs the store's
// write lock, so that watchers see transactions in order.
func (l *watchList) tell(s *Store, txs []*txn) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.all {
		for _, tx := range txs {
			if tx.seq != 0 {
				w.put(s, tx)
			}
		}
	}
}

func (w *watcher) put(s *Store, tx *txn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := -1
	for i := range tx.ops {
		o := &tx.ops[i]
		if o.check || !w.span.Contains(o.draft.key) {
			continue
		}
		if len(w.events) >= maxWatched {
			w.events, w.lagged, last = nil, true, -1
			break
		}
		if last >= 0 {
			w.events[last].More = true
		}
		last = len(w.events)
		w.events = append(w.events, s.event(tx, &o.draft))
	}
	if last >= 0 || w.lagged {
		poke(w.signal)
	}
}

func (s *Store) event(tx *txn, d *draft) Event {
	e := Event{Key: d.key, Version: Version(tx.seq), Deleted: d.deleted, Expired: tx.expired}
	if !d.deleted {
		// The key may come again in the same group: the record is built from
		// the draft, not looked up.
		words := make([]uint64, d.words())
		own := *d
		own.key = strings.Clone(d.key)
		own.put(words, 0)
		e.Record = Record{r: recordIn(words), s: s}
	}
	return e
}
