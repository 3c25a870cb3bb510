package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// A feed of a view compares two states: of each document that has changed
// between them it looks its rows up in both, by its back-references. So nothing
// is kept of what has been shown, and nothing is written for those who watch. It
// holds the older state meanwhile, which keeps the space of what was
// overwritten since: hence the bounds.
const (
	watchedDocs = 1 << 16
	watchedFor  = time.Minute
)

// viewFeed is a feed of a view being shown.
type viewFeed struct {
	e     *Engine
	db    *database
	f     *osier.Feed
	name  viewName
	ix    *index
	yield func(osier.Change, error) bool
	since osier.Seq // shown up to here
	shown int
	began time.Time // of the stretch being shown

	old, now *store.Snapshot
	row      osier.ViewChange
	a, b     rowList
	key      []byte
}

// errShown ends a feed: the reader wants no more, or has all it asked for.
var errShown = errors.New("shown")

func (e *Engine) watchView(ctx context.Context, db *database, f *osier.Feed, yield func(osier.Change, error) bool) error {
	if f.Descending || len(f.IDs) > 0 || f.Collection == "" {
		return &osier.Error{Kind: osier.KindInvalid, Op: "watch view", DB: f.DB, Collection: f.Collection,
			Err: errors.New("a feed of a view needs a collection, and neither descends nor takes ids")}
	}
	w := &viewFeed{e: e, db: db, f: f, name: viewName{f.Collection, f.View.Name}, since: f.Since, yield: yield}
	defer w.release()
	err := w.follow(ctx)
	switch {
	case errors.Is(err, errShown):
		return nil
	case errors.Is(err, errViewGone):
		return w.gap("the view or its collection was dropped or replaced: begin anew")
	}
	return e.storeError("watch view", err)
}

func (w *viewFeed) gap(text string) error {
	return viewError(osier.KindGap, w.db, w.name, errors.New(text))
}

func (w *viewFeed) release() {
	for _, s := range []*store.Snapshot{w.old, w.now} {
		if s != nil {
			s.Close()
		}
	}
	w.old, w.now = nil, nil
}

func (w *viewFeed) follow(ctx context.Context) error {
	for {
		wake := w.db.wakeOn(&w.db.durableWake)
		seq, err := w.advance(ctx)
		if err != nil {
			return err
		}
		w.began = w.e.now()
		switch {
		case w.old == nil && w.f.Since == 0:
			err = w.present(seq)
		case w.old == nil && w.f.Since == osier.SeqNow:
			w.since, err = seq, w.mark(seq)
		case w.old == nil:
			if err = w.changes(seq); err == nil {
				err = w.mark(seq)
			}
		case seq > w.since:
			err = w.changes(seq)
		}
		if err != nil {
			return err
		}
		if w.f.Mode == osier.FeedOnce || w.f.Mode == osier.FeedWait && w.shown > 0 {
			return errShown
		}
		if w.old != nil {
			w.old.Close()
		}
		w.old, w.now = w.now, nil
		if osier.Seq(w.db.durable.Load()) > seq && w.behind(seq) {
			continue
		}
		f := feed{e: w.e, db: w.db, gone: w.ix.gone}
		if err := f.sleep(ctx, wake); err != nil {
			return err
		}
	}
}

// behind tells whether the collection has changed after seq.
func (w *viewFeed) behind(seq osier.Seq) bool {
	last, err := w.ix.collectionSeq(w.e.store)
	return err != nil || last > seq
}

// advance takes the next state: one that the view is up to date in, and that no
// crash can take back.
func (w *viewFeed) advance(ctx context.Context) (osier.Seq, error) {
	ix, err := w.e.freshIndex(ctx, w.db, w.name, osier.Fresh)
	if err != nil {
		return 0, err
	}
	if ix == nil || w.ix != nil && ix != w.ix {
		return 0, errViewGone
	}
	w.ix = ix
	if w.now, err = w.e.store.NewSnapshot(); err != nil {
		return 0, err
	}
	p, ok, err := ix.readableIn(w.now)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, errViewGone
	}
	state, err := stateIn(w.now, w.db.num)
	if err != nil {
		return 0, err
	}
	f := feed{e: w.e, db: w.db}
	return p.seq, f.awaitDurable(ctx, &state)
}

// emit shows a change.
func (w *viewFeed) emit(kind osier.ViewChangeKind, id osier.ID, key []byte, n uint16, value []byte, seq osier.Seq) error {
	w.row = osier.ViewChange{Kind: kind, Row: osier.ViewRow{Key: key, ID: id, N: n, Value: value}}
	if !w.yield(osier.Change{Collection: w.name.coll, Document: osier.Document{ID: id, Seq: seq}, View: &w.row}, nil) {
		return errShown
	}
	if w.shown++; w.shown == w.f.Limit {
		return errShown
	}
	if w.shown%256 == 0 && w.e.now().Sub(w.began) > watchedFor {
		return w.gap(fmt.Sprintf("the rows were not taken within %v: resume", watchedFor))
	}
	return nil
}

func (w *viewFeed) mark(seq osier.Seq) error {
	w.since = seq
	if !w.yield(osier.Change{Collection: w.name.coll, Mark: true, Document: osier.Document{Seq: seq}}, nil) {
		return errShown
	}
	return nil
}

// present shows the rows there are.
func (w *viewFeed) present(seq osier.Seq) error {
	lower, upper := w.ix.bounds(w.f.View.Start, w.f.View.End)
	c, err := newRowCursor(w.now, lower, upper, nil, false)
	if err != nil {
		return err
	}
	defer c.close()
	for c.next() {
		if err := w.emit(osier.ViewAdded, c.id(), c.key, c.n, c.value, 0); err != nil {
			return err
		}
	}
	if c.err != nil {
		return c.err
	}
	return w.mark(seq)
}

// changes shows what has happened to the rows up to seq.
func (w *viewFeed) changes(seq osier.Seq) error {
	it, err := w.now.NewIter(seqKey(nil, w.db.num, w.ix.coll, w.since+1), seqKey(nil, w.db.num, w.ix.coll, seq+1))
	if err != nil {
		return err
	}
	defer it.Close()
	docs := 0
	for ok := it.First(); ok; ok = it.Next() {
		if docs++; docs > watchedDocs && w.old != nil {
			return w.gap(fmt.Sprintf("more than %d documents have changed: resume", watchedDocs))
		}
		rec, err := decodeSeqRecord(it.Value())
		if err != nil {
			return err
		}
		at := osier.Seq(binary.BigEndian.Uint64(it.Key()[prefixSize:]))
		if err := w.document(rec.id, at); err != nil {
			return err
		}
		w.since = at
	}
	w.since = max(w.since, seq)
	return it.Error()
}

// rowEvent is a change of a row of a document.
type rowEvent struct {
	kind  osier.ViewChangeKind
	key   []byte
	n     uint16
	value []byte
}

// document shows what has happened to a document's rows. The last of its changes
// has the document's sequence, the others the one before.
func (w *viewFeed) document(id osier.ID, seq osier.Seq) error {
	events, err := w.events(id)
	if err != nil {
		return err
	}
	for i, ev := range events {
		at := w.since
		if i == len(events)-1 {
			at = seq
		}
		if err := w.emit(ev.kind, id, ev.key, ev.n, ev.value, at); err != nil {
			return err
		}
	}
	return nil
}

// events compares a document's rows in two states; without the older one all
// that it had are said to be gone.
func (w *viewFeed) events(id osier.ID) (list []rowEvent, err error) {
	if _, err := w.ix.backref(w.now, id, &w.b, &w.key); err != nil {
		return nil, err
	}
	w.a.reset()
	if w.old == nil {
		list = append(list, rowEvent{kind: osier.ViewRemoved})
	} else if _, err := w.ix.backref(w.old, id, &w.a, &w.key); err != nil {
		return nil, err
	}
	for i := range w.a.rows {
		if key, n := w.a.key(i), w.a.rows[i].n; w.wanted(key) && w.b.find(nil, key, n) < 0 {
			list = append(list, rowEvent{osier.ViewRemoved, key, n, nil})
		}
	}
	for i := range w.b.rows {
		key, n := w.b.key(i), w.b.rows[i].n
		if !w.wanted(key) {
			continue
		}
		value, err := w.value(w.now, key, id, n)
		if err != nil {
			return nil, err
		}
		if w.a.find(nil, key, n) < 0 {
			list = append(list, rowEvent{osier.ViewAdded, key, n, value})
			continue
		}
		old, err := w.value(w.old, key, id, n)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(old, value) {
			list = append(list, rowEvent{osier.ViewChanged, key, n, value})
		}
	}
	return list, nil
}

// wanted tells whether a key is in the feed's range.
func (w *viewFeed) wanted(key []byte) bool {
	return string(key) >= w.f.View.Start && (w.f.View.End == "" || string(key) < w.f.View.End)
}

// value reads a row that a back-reference names.
func (w *viewFeed) value(src source, key []byte, id osier.ID, n uint16) ([]byte, error) {
	w.key = appendRowKey(viewSpace(w.key[:0], w.db.num, w.ix.coll, spaceRow, w.ix.num), key, id, n)
	b, closer, err := src.Get(w.key)
	if err != nil {
		return nil, corrupt("watch view", id, fmt.Errorf("a row that it is said to have: %w", err))
	}
	defer closer.Close()
	return bytes.Clone(rowValue(b)), nil
}
