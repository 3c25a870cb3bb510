package engine

import (
	"bytes"
	"errors"
	"io"

	"github.com/osierdb/osier/internal/store"
)

// latestRows opens an iterator over all of an index's rows in the latest state.
// Look-ups share these, see store.LatestIter, so they are all of the same bounds,
// and rowsIn keeps within a part of them.
func (ix *index) latestRows() (*store.Iter, error) {
	return ix.e.store.LatestIter(ix.rowLow, ix.rowHigh)
}

// rowsIn moves an iterator of latestRows over the rows of a range of keys.
type rowsIn struct {
	it           *store.Iter
	lower, upper []byte
	reverse      bool
}

func (r *rowsIn) first() bool {
	if r.reverse {
		return r.it.SeekLT(r.upper) && r.within()
	}
	return r.it.SeekGE(r.lower) && r.within()
}

func (r *rowsIn) next() bool {
	if r.reverse {
		return r.it.Prev() && r.within()
	}
	return r.it.Next() && r.within()
}

func (r *rowsIn) within() bool {
	if r.reverse {
		return bytes.Compare(r.it.Key(), r.lower) >= 0
	}
	return bytes.Compare(r.it.Key(), r.upper) < 0
}

// A pointReader reads records of the database in the state of an iterator of
// latestRows: as long as that is the latest one by gets, which cost least, later
// with a clone of the iterator.
type pointReader struct {
	ix    *index
	rows  *store.Iter
	clone *store.Iter
	held  io.Closer // of the last record
}

// get returns a record, nil if there is none; it is valid until the next call.
func (p *pointReader) get(key []byte) (record []byte, err error) {
	p.release()
	if p.clone == nil {
		record, p.held, err = p.ix.e.store.Get(key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if p.rows.Latest() {
			return record, nil
		}
		p.release()
		if p.clone, err = p.rows.Clone(databaseRange(p.ix.db.num)); err != nil {
			return nil, err
		}
	}
	if !p.clone.SeekExact(key) {
		return nil, p.clone.Error()
	}
	return p.clone.Value(), p.clone.Error()
}

func (p *pointReader) release() {
	if p.held != nil {
		_ = p.held.Close() // it only gives memory back
		p.held = nil
	}
}

func (p *pointReader) close() {
	p.release()
	if p.clone != nil {
		_ = p.clone.Close() // its errors were returned by get
		p.clone = nil
	}
}
