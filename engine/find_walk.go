package engine

import (
	"bytes"
	"errors"

	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/mango"
	"github.com/osierdb/osier/internal/store"
)

// taker takes a document that matches: the index's key, nil without one, the
// encoded id, the record, and the form the selector saw. It tells whether it
// wants more.
type taker func(key, id, record []byte, d *mango.Doc) (more bool, err error)

// walk hands the documents of a way that match to take. more is false if take
// wanted no more.
func (f *finder) walk(w *way, take taker) (more bool, err error) {
	if w.ahead != nil {
		return f.walkAhead(w, take)
	}
	if w.test != nil {
		f.matcher = w.test.Matcher()
	}
	for i := range w.ranges {
		r := w.ranges[i]
		if w.order.reverse {
			r = w.ranges[len(w.ranges)-1-i]
		}
		if w.index != nil {
			more, err = f.walkRows(w, r, take)
		} else {
			more, err = f.walkIDs(w, r, take)
		}
		if !more || err != nil {
			return false, err
		}
	}
	return true, nil
}

// idBounds are the keys of the documents in a range of ids.
func (f *finder) idBounds(r mango.Range) (lower, upper []byte) {
	base := prefix(nil, f.db.num, f.coll.num, spaceDoc)
	lower, upper = append(bytes.Clone(base), r.Low...), keys.PrefixEnd(base)
	if len(r.High) > 0 {
		upper = append(bytes.Clone(base), r.High...)
	}
	return lower, upper
}

func (f *finder) walkIDs(w *way, r mango.Range, take taker) (more bool, err error) {
	lower, upper := f.idBounds(r)
	it, err := f.scanned(lower, upper)
	if err != nil {
		return false, err
	}
	step, ok := it.Next, false
	if w.order.reverse {
		step, ok = it.Prev, it.Last()
	} else {
		ok = it.First()
	}
	for ; ok; ok = step() {
		if more, err := f.try(w, nil, it.Key()[prefixSize:], it.Value(), take); !more || err != nil {
			return false, err
		}
	}
	return true, it.Error()
}

// scanned returns the one iterator over documents that all ranges of ids are read
// with, so that they are of one state. It is closed with closeScan.
func (f *finder) scanned(lower, upper []byte) (*store.Iter, error) {
	if f.scan == nil {
		var err error
		f.scan, err = f.src.NewIter(lower, upper)
		return f.scan, err
	}
	f.scan.SetBounds(lower, upper)
	return f.scan, nil
}

func (f *finder) closeScan() {
	if f.scan != nil {
		_ = f.scan.Close() // its error was returned where it ended the scan
		f.scan = nil
	}
}

func (f *finder) walkRows(w *way, r mango.Range, take taker) (more bool, err error) {
	lower, upper := w.index.bounds(string(r.Low), string(r.High))
	c, err := newRowCursor(f.src, lower, upper, w.over, w.order.reverse)
	if err != nil {
		return false, err
	}
	defer c.close()
	for c.next() {
		f.sum.KeysExamined++
		if more, err := f.tryRow(w, c.key, c.idKey, take); !more || err != nil {
			return false, err
		}
	}
	return true, c.err
}

// tryRow reads a row's document and tests it.
func (f *finder) tryRow(w *way, key, id []byte, take taker) (more bool, err error) {
	f.docKey = append(prefix(f.docKey[:0], f.db.num, f.coll.num, spaceDoc), id...)
	record, closer, err := f.src.Get(f.docKey)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil // a row that is out of date
	}
	if err != nil {
		return false, err
	}
	defer closer.Close()
	return f.try(w, key, id, record, take)
}

// try tests a document and hands it on if it matches.
func (f *finder) try(w *way, key, id, record []byte, take taker) (more bool, err error) {
	if err := f.turn.step(f.ctx); err != nil {
		return false, err
	}
	if f.passOver != nil && bytes.HasPrefix(id, f.passOver) {
		return true, nil
	}
	d, live, err := f.docs.read(id, record)
	if err != nil {
		return true, f.unreadable(id, err)
	}
	if !live {
		return true, nil
	}
	f.sum.DocsExamined++
	if w.test != nil {
		var ok bool
		if f.matcher != nil {
			ok, err = f.matcher.Match(d)
		} else {
			ok, err = w.test.Match(d)
		}
		if err != nil {
			return true, f.unreadable(id, err)
		}
		if !ok {
			return true, nil
		}
	}
	return take(key, id, record, d)
}
