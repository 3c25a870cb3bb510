package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
)

// kvWatchers are the feeds of a database's key-values.
type kvWatchers struct {
	n    atomic.Int64 // of list, for those who only ask whether there are any
	mu   sync.Mutex
	list []*kvWatcher // guarded by mu
}

// kvWatcher is a feed of key-values. What is durable is put into rows by
// whoever learns of it, who never waits.
type kvWatcher struct {
	f    *osier.KVFeed
	wake chan struct{} // holds one

	mu    sync.Mutex // guards the three below
	rows  []osier.KVChange
	bytes int
	lost  bool
}

// kvFeedBytes bounds what a feed keeps of values.
const kvFeedBytes = 16 << 20

func (w *kvWatcher) wants(ev *kv.Event) bool {
	if ev.Namespace != w.f.Namespace {
		return false
	}
	if w.f.Key != "" {
		return ev.Key == w.f.Key
	}
	return strings.HasPrefix(ev.Key, w.f.Prefix)
}

func (w *kvWatcher) add(events []kv.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range events {
		ev := &events[i]
		if w.lost || !w.wants(ev) {
			continue
		}
		if len(w.rows) >= osier.KVFeedRows || w.bytes >= kvFeedBytes {
			w.lost = true
			break
		}
		ch := osier.KVChange{Key: ev.Key, Version: ev.Entry.Version, Type: ev.Entry.Type, Expired: ev.Expired, Deadline: ev.Entry.Deadline}
		if ch.Type == osier.KVPlain {
			ch.Value = slices.Clone(ev.Entry.Value)
		}
		w.rows = append(w.rows, ch)
		w.bytes += len(ch.Value)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// showKV gives feeds what has become durable, in order.
func (db *database) showKV(events []kv.Event) {
	if len(events) == 0 {
		return
	}
	m := db.kv.Load()
	if m == nil {
		return
	}
	m.watchers.mu.Lock()
	defer m.watchers.mu.Unlock()
	for _, w := range m.watchers.list {
		w.add(events)
	}
}

// show notes for feeds what is written behind.
func (g *kvGroup) show(packed []byte) {
	if g.m.watchers.n.Load() == 0 {
		return
	}
	at := len(g.shown)
	// It was packed by us just now, so it can be read.
	_ = kv.ReadPacked(packed, func(name string, p *kv.Packed) error {
		g.shown = append(g.shown, kv.Event{Namespace: name, Key: string(p.Key), Entry: p.Entry})
		return nil
	})
	slices.SortStableFunc(g.shown[at:], func(a, b kv.Event) int {
		switch {
		case a.Entry.Version < b.Entry.Version:
			return -1
		case a.Entry.Version > b.Entry.Version:
			return 1
		}
		return 0
	})
}

// shown is what feeds of a database's key-values will be given of the group.
func (a *applier) shown(db *database) []kv.Event {
	for _, g := range a.kv {
		if g.m.db == db && g.m.watchers.n.Load() > 0 {
			latest := g.latest()
			out := g.shown
			for _, ev := range slices.Backward(latest) {
				out = append(out, *ev)
			}
			return out
		}
	}
	return nil
}

// watchKV shows changes of keys from now on.
func (e *Engine) watchKV(ctx context.Context, f *osier.Feed, yield func(osier.Change, error) bool) error {
	fail := func(kind osier.Kind, text string) error {
		return &osier.Error{Kind: kind, Op: "watch", DB: f.DB, Collection: "kv:" + f.KV.Namespace, ID: f.KV.Key, Err: errors.New(text)}
	}
	if f.Mode == osier.FeedOnce || f.Descending || len(f.IDs) > 0 {
		return fail(osier.KindInvalid, "a feed of key-values begins now and waits")
	}
	if err := osier.CheckKVName(f.KV.Namespace); err != nil {
		return err
	}
	db, err := e.lookup("watch", f.DB)
	if err != nil {
		return err
	}
	m := e.kvOf(db)
	w := &kvWatcher{f: f.KV, wake: make(chan struct{}, 1)}
	m.join(w)
	defer m.leave(w)
	if f.Marks && !yield(osier.Change{Mark: true}, nil) {
		return nil
	}
	shown := 0
	gone := db.wakeOn(&db.durableWake)
	for {
		rows, lost := w.take()
		for i := range rows {
			if !yield(osier.Change{KV: &rows[i]}, nil) {
				return nil
			}
			if shown++; shown == f.Limit {
				return nil
			}
		}
		if lost {
			return fail(osier.KindGap, "the feed was not read fast enough, and rows were left out")
		}
		if shown > 0 && f.Mode == osier.FeedWait {
			return nil
		}
		if err := e.usable(db); err != nil {
			return err
		}
		select {
		case <-w.wake:
		case <-gone:
			gone = db.wakeOn(&db.durableWake)
		case <-e.closing:
			return &osier.Error{Kind: osier.KindClosed, Op: "watch", DB: f.DB}
		case <-e.fenced:
			return &osier.Error{Kind: kindOf(e.fenceErr), Op: "watch", DB: f.DB, Err: e.fenceErr}
		case <-ctx.Done():
			return &osier.Error{Kind: osier.KindCanceled, Op: "watch", DB: f.DB, Err: ctx.Err()}
		}
	}
}

func (w *kvWatcher) take() (rows []osier.KVChange, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows, w.rows, w.bytes = w.rows, nil, 0
	return rows, w.lost
}

// join begins a feed. What is being committed may or may not be shown; what comes
// later will be.
func (m *kvMemory) join(w *kvWatcher) {
	m.watchers.mu.Lock()
	m.watchers.list = append(m.watchers.list, w)
	m.watchers.n.Add(1)
	m.watchers.mu.Unlock()
	// A group that is under way has made up its mind about feeds.
	m.e.queue.order.Lock()
	defer m.e.queue.order.Unlock()
}

func (m *kvMemory) leave(w *kvWatcher) {
	m.watchers.mu.Lock()
	defer m.watchers.mu.Unlock()
	m.watchers.list = slices.DeleteFunc(m.watchers.list, func(x *kvWatcher) bool { return x == w })
	m.watchers.n.Add(-1)
}
