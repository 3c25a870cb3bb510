package engine

import (
	"cmp"
	"errors"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/mango"
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
	if !f.mayBeSmall() || f.selector.Never() {
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
	return f.ahead(w)
}

// atPoint is small for the plainest of queries, which need no compiling either:
// the first index by name whose fields the selector asks to equal one value each.
func (f *finder) atPoint() (w *way, release func(), err error) {
	q := f.view.q
	if f.q.Swap || len(f.q.Fields) > 0 || len(f.q.Sort) > 0 || f.q.SortedOnly || f.q.Bookmark != "" || f.q.PassOver != "" || !f.q.NoSummary || !f.mayBeSmall() {
		return nil, func() {}, nil
	}
	p, ok := mango.PointOf(f.q.Selector)
	c, known := (*f.db.visible.Load())[q.Collection]
	if !ok || !known {
		return nil, func() {}, nil
	}
	f.coll = c
	indexes, err := f.e.jsonIndexes(f.db, q.Collection)
	if err != nil {
		return nil, func() {}, err
	}
	for _, ix := range indexes {
		keyer := ix.keyer()
		if keyer == nil || ix.partial() != nil || !ix.def.Load().runs() {
			continue
		}
		if key, ok := keyer.AppendPoint(nil, &p); ok {
			w = &way{index: ix, keyer: keyer, ranges: []mango.Range{{Low: key, High: keys.PrefixEnd(key)}}}
			break
		}
	}
	return f.ahead(w)
}

// mayBeSmall tells the queries that are looked at: those of the latest state that
// leave the choice of the way to the engine, and do not want to know of it.
func (f *finder) mayBeSmall() bool {
	return f.view.q.Pin == 0 && f.q.UseIndex == "" && !f.q.Stale && f.q.Explain == osier.ExplainNone && !f.q.SortByIndex && !f.e.opts.ReadOnly
}

// ahead reads the rows of a way, and holds the state they are of until release is
// called. It returns no way if there is none, or if they are many.
func (f *finder) ahead(w *way) (_ *way, release func(), err error) {
	none := func() {}
	if w == nil {
		return nil, none, nil
	}
	err = f.probeCurrent(w.index)
	if err == nil {
		err = f.readAhead(w)
	}
	if err != nil || w.ahead == nil {
		f.closeProbe()
		if errors.Is(err, errViewGone) {
			err = nil // it has been dropped meanwhile
		}
		return nil, none, err
	}
	return w, f.closeProbe, nil
}

// compareSmall prefers the index that fixes more fields, then the one that
// bounds more, then the one that sorts.
func compareSmall(a, b *way) int {
	return cmp.Or(cmp.Compare(b.plan.Fixed, a.plan.Fixed), cmp.Compare(b.plan.Bounded, a.plan.Bounded), flagOrder(a.sorts, b.sorts))
}

// probeCurrent opens the probe, an iterator over the index's rows, in a state in
// which the index is up to date.
func (f *finder) probeCurrent(ix *index) error {
	for range smallTries {
		applied := f.db.applied.Load()
		if ix.current.Load() != applied {
			if err := ix.catchUp(f.ctx); err != nil {
				return err
			}
			ix.current.Store(applied)
		}
		var err error
		if f.probe, err = ix.latestRows(); err != nil {
			return err
		}
		f.point = pointReader{ix: ix, rows: f.probe}
		// Nothing has changed since: what is in the index is what is in the documents.
		if ok, err := f.probeShows(applied); err != nil || ok && !ix.isGone() {
			return err
		}
		f.closeProbe()
	}
	return errViewGone
}

// probeShows tells whether a sequence is the last of the probe's state. It is if
// the store has not even been given a later one after the probe was opened.
func (f *finder) probeShows(seq uint64) (bool, error) {
	if f.db.begun.Load() <= seq {
		return true, nil
	}
	record, err := f.point.get(stateKey(f.db.num))
	if err != nil || record == nil {
		return false, err
	}
	state, err := decodeDBState(record)
	return uint64(state.lastSeq) == seq, err
}

func (f *finder) closeProbe() {
	f.point.close()
	if f.probe != nil {
		_ = f.probe.Close() // its error was returned where it ended the search
		f.probe = nil
	}
}

// readAhead reads the rows of a way, unless they are many: then there is nothing
// ahead.
func (f *finder) readAhead(w *way) error {
	if w.index.at.Load().failed > 0 {
		return nil // it lacks documents since it was brought up to date
	}
	rows := make([]smallRow, 0, 4)
	it := rowsIn{it: f.probe, reverse: w.order.reverse}
	for i := range w.ranges {
		r := w.ranges[i]
		if w.order.reverse {
			r = w.ranges[len(w.ranges)-1-i]
		}
		it.lower, it.upper = w.index.bounds(string(r.Low), string(r.High))
		for ok := it.first(); ok; ok = it.next() {
			if len(rows) == smallRows {
				return nil
			}
			key, id, _, _, err := splitRow(f.probe.Key()[viewPrefixSize:], f.probe.Value())
			if err != nil {
				return err
			}
			row := slices.Concat(key, id)
			rows = append(rows, smallRow{row[:len(key)], row[len(key):]})
		}
		if err := f.probe.Error(); err != nil {
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
		key, id := w.ahead[i].key, w.ahead[i].id
		f.docKey = append(prefix(f.docKey[:0], f.db.num, f.coll.num, spaceDoc), id...)
		record, err := f.point.get(f.docKey)
		if err != nil {
			return false, err
		}
		if record == nil {
			continue // a row that is out of date
		}
		if more, err := f.try(w, key, id, record, take); !more || err != nil {
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
