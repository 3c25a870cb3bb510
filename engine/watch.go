package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// Watch streams changes; see osier.Backend. A feed reads a stretch at a time
// from a snapshot, waits until all that the snapshot holds is durable, and
// shows the stretch without holding anything: what it shows no crash can take
// back, and a slow reader holds up nobody. Waiting costs nothing.
//
// The wait must cover the whole snapshot, not just the rows shown: a document
// whose newest change is not durable yet has left its old place in the order,
// and a feed that went past that place would never show the document if a
// crash took the change back.
func (e *Engine) Watch(ctx context.Context, f *osier.Feed) iter.Seq2[osier.Change, error] {
	if f.Topics != nil {
		return e.watchTopics(ctx, f)
	}
	return func(yield func(osier.Change, error) bool) {
		watch := e.watch
		if f.KV != nil {
			watch = e.watchKV
		}
		if err := watch(ctx, f, yield); err != nil {
			yield(osier.Change{}, err)
		}
	}
}

// stretch bounds what a feed reads ahead, in rows and bytes of bodies.
const (
	stretchRows  = 256
	stretchBytes = 1 << 20
)

// feed is a Feed being shown.
type feed struct {
	e     *Engine
	db    *database
	f     *osier.Feed
	since osier.Seq
	shown int
	// marked is where the last mark stood; a mark is shown once.
	marked osier.Seq
	begun  bool
	ids    map[osier.ID]bool
	live   *live
	parts  osier.Parts
	gone   <-chan struct{} // of a view's feed: closed when the view is dropped
}

func (e *Engine) watch(ctx context.Context, f *osier.Feed, yield func(osier.Change, error) bool) error {
	if f.Journal != nil {
		return e.watchJournal(ctx, f, yield)
	}
	db, err := e.lookup("watch", f.DB)
	if err != nil {
		return err
	}
	if f.Descending && f.Mode != osier.FeedOnce || len(f.IDs) > 0 && f.Collection == "" {
		return &osier.Error{Kind: osier.KindInvalid, Op: "watch", DB: f.DB,
			Err: errors.New("a descending feed ends, and a feed of ids needs a collection")}
	}
	if f.View != nil {
		return e.watchView(ctx, db, f, yield)
	}
	w := &feed{e: e, db: db, f: f, since: f.Since, parts: f.Parts}
	if f.Live != nil {
		if w.live, err = e.newLive(f); err != nil {
			return err
		}
		w.parts |= osier.WithBody
	}
	if len(f.IDs) > 0 {
		w.ids = make(map[osier.ID]bool, len(f.IDs))
		for _, id := range f.IDs {
			w.ids[id] = true
		}
	}
	if w.since == osier.SeqNow {
		w.since = osier.Seq(db.applied.Load())
		if err := e.awaitSeq(ctx, db, &db.durable, &db.durableWake, w.since); err != nil {
			return err
		}
	}
	if f.Descending {
		return w.descend(ctx, yield)
	}
	if w.live != nil {
		if done, err := w.beginLive(ctx, yield); done || err != nil {
			return e.storeError("watch", err)
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return &osier.Error{Kind: osier.KindCanceled, Op: "watch", DB: f.DB, Err: err}
		}
		wake := db.wakeOn(&db.durableWake)
		rows, full, err := w.read(ctx)
		if err != nil {
			return e.storeError("watch", err)
		}
		done, err := w.show(rows, full, yield)
		if done || err != nil {
			return err
		}
		if full || osier.Seq(db.durable.Load()) > w.since {
			continue
		}
		if err := w.sleep(ctx, wake); err != nil {
			return err
		}
	}
}

// show hands a stretch out, and a mark when the feed has caught up.
func (w *feed) show(rows []osier.Change, full bool, yield func(osier.Change, error) bool) (done bool, err error) {
	for i := range rows {
		if w.live != nil {
			if shown, err := w.live.event(&rows[i]); err != nil {
				return false, err
			} else if !shown {
				continue
			}
		}
		if !yield(rows[i], nil) {
			return true, nil
		}
		if w.shown++; w.shown == w.f.Limit {
			return true, nil
		}
	}
	if full {
		return false, nil
	}
	if w.live != nil {
		w.live.caughtUp = true
	}
	ends := w.f.Mode == osier.FeedOnce || w.f.Mode == osier.FeedWait && w.shown > 0
	if w.f.Marks && (!w.begun || w.marked != w.since) {
		w.begun, w.marked = true, w.since
		if !yield(osier.Change{Mark: true, Document: osier.Document{Seq: w.since}}, nil) {
			return true, nil
		}
	}
	return ends, nil
}

func (w *feed) sleep(ctx context.Context, wake <-chan struct{}) error {
	if err := w.e.usable(w.db); err != nil {
		return err
	}
	select {
	case <-wake:
		return w.e.usable(w.db)
	case <-w.gone:
		return errViewGone
	case <-w.e.closing:
		return &osier.Error{Kind: osier.KindClosed, Op: "watch", DB: w.db.name}
	case <-w.e.fenced:
		return &osier.Error{Kind: kindOf(w.e.fenceErr), Op: "watch", DB: w.db.name, Err: w.e.fenceErr}
	case <-ctx.Done():
		return &osier.Error{Kind: osier.KindCanceled, Op: "watch", DB: w.db.name, Err: ctx.Err()}
	}
}

// read takes the next stretch. full says that it ended by its bounds, not at
// the end of what there is.
func (w *feed) read(ctx context.Context) (rows []osier.Change, full bool, err error) {
	snap, err := w.e.store.NewSnapshot()
	if err != nil {
		return nil, false, err
	}
	defer snap.Close()
	state, err := stateIn(snap, w.db.num)
	if err != nil {
		return nil, false, err
	}
	head := state.lastSeq
	v := view{e: w.e, db: w.db, src: snap, fixed: true, q: &osier.Query{DB: w.f.DB, Collection: w.f.Collection, Parts: w.parts}}
	if w.live != nil {
		rows, err := w.dropped(&v)
		if err == nil && len(rows) > 0 {
			err = w.awaitDurable(ctx, &state)
		}
		if err != nil || len(rows) > 0 {
			return rows, true, err
		}
	}
	if head <= w.since {
		return nil, false, nil
	}
	if w.live != nil {
		if err := w.live.behind(w.since, head); err != nil {
			return nil, false, err
		}
	}
	if err := w.awaitDurable(ctx, &state); err != nil {
		return nil, false, err
	}
	m, err := w.merge(&v, w.since+1, head)
	if err != nil {
		return nil, false, err
	}
	defer m.close()
	bytes := 0
	for m.next() {
		if w.ids != nil && !w.ids[m.rec.id] {
			continue
		}
		ch, err := w.change(&v, m)
		if err != nil {
			return nil, false, err
		}
		rows = append(rows, ch)
		bytes += len(ch.Body)
		if len(rows) == stretchRows || bytes > stretchBytes || w.f.Limit > 0 && w.shown+len(rows) == w.f.Limit {
			w.since = m.seq
			return rows, true, m.err
		}
	}
	w.since = head
	return rows, false, m.err
}

// awaitDurable waits until no crash can take back what a snapshot holds: changes
// and drops of collections, which hide changes.
func (w *feed) awaitDurable(ctx context.Context, state *dbState) error {
	if err := w.e.awaitSeq(ctx, w.db, &w.db.durable, &w.db.durableWake, state.lastSeq); err != nil {
		return err
	}
	return w.e.awaitSeq(ctx, w.db, &w.db.durableDrops, &w.db.durableWake, osier.Seq(state.drops))
}

// change makes a feed's row of a by-sequence entry; its slices are its own.
func (w *feed) change(v *view, m *merge) (osier.Change, error) {
	c := m.colls[m.at]
	ch := osier.Change{Collection: c.name, Document: osier.Document{ID: m.rec.id, Rev: m.rec.rev, Seq: m.seq, Deleted: m.rec.deleted}}
	if w.parts == 0 {
		return ch, nil
	}
	var d document
	found, closer, err := v.doc(c.num, m.rec.id, &d)
	if err != nil {
		return ch, err
	}
	if !found {
		return ch, corrupt("follow changes", m.rec.id, errors.New("the feed names a document that is not there"))
	}
	defer closer.Close()
	if err := v.fill(&ch.Document, visibleColl{num: c.num, settings: c.settings}, m.rec.id, &d); err != nil {
		return ch, err
	}
	ch.Document = *ch.Document.Clone()
	ch.Seq = m.seq // the document's place, also when a loser moved it
	return ch, nil
}

// descend shows the newest changes first, from one state.
func (w *feed) descend(ctx context.Context, yield func(osier.Change, error) bool) error {
	snap, err := w.e.store.NewSnapshot()
	if err != nil {
		return w.e.storeError("watch", err)
	}
	defer snap.Close()
	state, err := stateIn(snap, w.db.num)
	if err != nil {
		return w.e.storeError("watch", err)
	}
	head := state.lastSeq
	if err := w.awaitDurable(ctx, &state); err != nil {
		return err
	}
	v := view{e: w.e, db: w.db, src: snap, fixed: true, q: &osier.Query{DB: w.f.DB, Collection: w.f.Collection, Parts: w.f.Parts}}
	m, err := w.merge(&v, w.since+1, head)
	if err != nil {
		return w.e.storeError("watch", err)
	}
	defer m.close()
	for m.prev() {
		if w.ids != nil && !w.ids[m.rec.id] {
			continue
		}
		ch, err := w.change(&v, m)
		if err != nil {
			return w.e.storeError("watch", err)
		}
		if !yield(ch, nil) {
			return nil
		}
		if w.shown++; w.shown == w.f.Limit {
			return nil
		}
		if ctx.Err() != nil {
			return &osier.Error{Kind: osier.KindCanceled, Op: "watch", DB: w.f.DB, Err: ctx.Err()}
		}
	}
	if w.f.Marks && m.err == nil {
		yield(osier.Change{Mark: true, Document: osier.Document{Seq: head}}, nil)
	}
	return w.e.storeError("watch", m.err)
}

// merge walks the by-sequence entries of several collections in one order.
type merge struct {
	colls []mergeColl
	begun bool
	at    int // the collection of the present entry
	seq   osier.Seq
	rec   seqRecord
	err   error
}

type mergeColl struct {
	name     string
	num      uint32
	settings osier.Settings
	it       *store.Iter
	ok       bool
}

// merge opens the feed's collections from first to last.
func (w *feed) merge(v *view, first, last osier.Seq) (*merge, error) {
	colls := map[string]*collState{}
	var err error
	if w.f.Collection != "" {
		err = v.oneColl(colls)
	} else {
		colls, err = readColls(v.src, w.db.num)
	}
	if err != nil {
		return nil, err
	}
	m := &merge{}
	for _, name := range slices.Sorted(maps.Keys(colls)) {
		c := colls[name]
		if c.lastSeq < first {
			continue
		}
		it, err := v.src.NewIter(seqKey(nil, w.db.num, c.num, first), seqKey(nil, w.db.num, c.num, last+1))
		if err != nil {
			m.close()
			return nil, err
		}
		m.colls = append(m.colls, mergeColl{name: name, num: c.num, settings: c.settings, it: it})
	}
	return m, nil
}

func (m *merge) close() {
	for i := range m.colls {
		m.colls[i].it.Close()
	}
}

func (m *merge) next() bool {
	return m.step((*store.Iter).First, (*store.Iter).Next, func(a, b osier.Seq) bool { return a < b })
}

func (m *merge) prev() bool {
	return m.step((*store.Iter).Last, (*store.Iter).Prev, func(a, b osier.Seq) bool { return a > b })
}

// step goes to the next entry in the direction that the functions say. Cost: a
// comparison a collection.
func (m *merge) step(begin, on func(*store.Iter) bool, before func(a, b osier.Seq) bool) bool {
	if !m.begun {
		m.begun = true
		for i := range m.colls {
			m.colls[i].ok = begin(m.colls[i].it)
		}
	} else if len(m.colls) > 0 {
		m.colls[m.at].ok = on(m.colls[m.at].it)
	}
	best := -1
	for i := range m.colls {
		c := &m.colls[i]
		if !c.ok {
			if err := c.it.Error(); err != nil {
				m.err = err
				return false
			}
			continue
		}
		seq := osier.Seq(binary.BigEndian.Uint64(c.it.Key()[prefixSize:]))
		if best < 0 || before(seq, m.seq) {
			best, m.seq = i, seq
		}
	}
	if best < 0 {
		return false
	}
	m.at = best
	m.rec, m.err = decodeSeqRecord(m.colls[best].it.Value())
	return m.err == nil
}
