package engine

import (
	"cmp"
	"errors"
	"slices"

	"github.com/osierdb/osier"
)

// Most queries ask for a few documents by the value of an indexed field. For
// these the planner's counting costs more than the answer: if an index with such
// a field, gone through, turns out to have few rows, it is the way, and its rows
// are at hand.
const (
	smallRows   = 64
	smallRanges = 8
	smallTries  = 3
)

// smallRow is a row of an index that was read ahead.
type smallRow struct{ key, id []byte }

// small finds the way of a query that an index answers with few rows, nil if the
// planner has to look closer. It holds the state that is read until release is
// called.
func (f *finder) small() (w *way, release func(), err error) {
	none := func() {}
	q := f.view.q
	if q.Pin != 0 || f.q.UseIndex != "" || f.q.Stale || f.q.Explain != osier.ExplainNone || f.q.SortByIndex || f.selector.Never() || f.e.opts.ReadOnly {
		return nil, none, nil
	}
	c, known := (*f.db.visible.Load())[q.Collection]
	if !known {
		return nil, none, nil
	}
	f.coll = c
	indexes, err := f.e.jsonIndexes(f.db, q.Collection)
	if err != nil {
		return nil, none, err
	}
	for _, ix := range indexes {
		at, _, err := f.byIndex(ix, false)
		if err != nil {
			return nil, none, err
		}
		if at != nil && at.plan.Fixed > 0 && len(at.ranges) <= smallRanges && (w == nil || compareSmall(at, w) < 0) {
			w = at
		}
	}
	if w == nil {
		return nil, none, nil
	}
	release, err = f.holdCurrent(w.index)
	if err == nil {
		err = f.readAhead(w)
	}
	if err != nil || w.ahead == nil {
		release()
		f.view.src, f.view.fixed = f.e.store, false
		if errors.Is(err, errViewGone) {
			err = nil // it has been dropped meanwhile
		}
		return nil, none, err
	}
	return w, release, nil
}

// compareSmall prefers the index that fixes more fields, then the one that
// bounds more, then the one that sorts.
func compareSmall(a, b *way) int {
	return cmp.Or(cmp.Compare(b.plan.Fixed, a.plan.Fixed), cmp.Compare(b.plan.Bounded, a.plan.Bounded), flagOrder(a.sorts, b.sorts))
}

// holdCurrent holds a state in which the index is up to date.
func (f *finder) holdCurrent(ix *index) (release func(), err error) {
	for range smallTries {
		applied := f.db.applied.Load()
		if ix.current.Load() != applied {
			if err := ix.catchUp(f.ctx); err != nil {
				return func() {}, err
			}
			ix.current.Store(applied)
		}
		if release, err = f.hold(); err != nil {
			return func() {}, err
		}
		// Nothing has changed since: what is in the index is what is in the documents.
		if seq, err := f.lastSeq(); err != nil || uint64(seq) == applied && !ix.isGone() {
			return release, err
		}
		release()
		f.view.src, f.view.fixed = f.e.store, false
	}
	return func() {}, errViewGone
}

// readAhead reads the rows of a way, unless they are many: then there is nothing
// ahead.
func (f *finder) readAhead(w *way) error {
	if w.index.at.Load().failed > 0 {
		return nil // it lacks documents since it was brought up to date
	}
	rows := make([]smallRow, 0, 4)
	for i := range w.ranges {
		r := w.ranges[i]
		if w.order.reverse {
			r = w.ranges[len(w.ranges)-1-i]
		}
		lower, upper := w.index.bounds(string(r.Low), string(r.High))
		c, err := newRowCursor(f.src, lower, upper, nil, w.order.reverse)
		if err != nil {
			return err
		}
		for c.next() {
			if len(rows) == smallRows {
				return c.close()
			}
			row := slices.Concat(c.key, c.idKey)
			rows = append(rows, smallRow{row[:len(c.key)], row[len(c.key):]})
		}
		if err := errors.Join(c.err, c.close()); err != nil {
			return err
		}
	}
	w.ahead = rows
	return nil
}

// walkAhead goes through rows that were read ahead.
func (f *finder) walkAhead(w *way, take taker) (more bool, err error) {
	for i := range w.ahead {
		f.sum.KeysExamined++
		if more, err := f.tryRow(w, w.ahead[i].key, w.ahead[i].id, take); !more || err != nil {
			return false, err
		}
	}
	return true, nil
}

// count says how many rows of its index a way reads at most.
func (w *way) count(src source) error {
	for i, r := range w.ranges {
		if i == maxCounted {
			w.keys = w.keys * uint64(len(w.ranges)) / maxCounted
			break
		}
		n, err := w.index.rangeCount(src, string(r.Low), string(r.High))
		if err != nil {
			return err
		}
		w.keys += n
	}
	return nil
}

// maxCounted is in how many ranges rows are counted; more are guessed from these.
const maxCounted = 16
