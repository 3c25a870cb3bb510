package engine

import (
	"bytes"
	"errors"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// overlay is what differs between an index and the state that a query reads:
// the documents that have changed since, with the rows they have now.
type overlay struct {
	ids  map[string]bool // whose rows in the index do not count
	rows []overlayRow    // in order
}

type overlayRow struct {
	tail   []byte // as a row's key behind the index's prefix
	record []byte
}

// maxOverlay bounds how many documents an overlay is made for.
const maxOverlay = 4096

// overlay makes the overlay of a pinned state or of a transaction's writes.
func (r *viewReader) overlay(p *progress) error {
	ix := r.ix
	o := &overlay{ids: map[string]bool{}}
	m := ix.mapping()
	var list rowList
	for i := range r.vq.Pending {
		op := &r.vq.Pending[i]
		if op.Collection != ix.name.coll {
			continue
		}
		doc := osier.Document{ID: op.ID, Deleted: op.Deleted, Codec: op.Codec, Schema: op.Schema, Body: op.Body}
		if err := m.rows(&doc, &list); err != nil {
			return viewError(osier.KindInvalid, r.v.db, ix.name, err)
		}
		o.add(op.ID, &list)
	}
	last, err := ix.collectionSeq(r.v.src)
	if err != nil {
		return err
	}
	if p.seq < last && !ix.enforced.Load() {
		if err := r.overlayChanges(o, m, p.seq, last); err != nil {
			return err
		}
	}
	if len(o.ids) == 0 {
		return nil
	}
	slices.SortFunc(o.rows, func(a, b overlayRow) int { return bytes.Compare(a.tail, b.tail) })
	r.over = o
	return nil
}

// overlayChanges adds the documents changed after since.
func (r *viewReader) overlayChanges(o *overlay, m *mapping, since, last osier.Seq) error {
	ix := r.ix
	it, err := r.v.src.NewIter(seqKey(nil, ix.db.num, ix.coll, since+1), seqKey(nil, ix.db.num, ix.coll, last+1))
	if err != nil {
		return err
	}
	defer it.Close()
	var list rowList
	for ok := it.First(); ok; ok = it.Next() {
		rec, err := decodeSeqRecord(it.Value())
		if err != nil {
			return err
		}
		if o.ids[rec.id.Key()] {
			continue // the transaction has written it
		}
		if len(o.ids) == maxOverlay {
			return r.behind()
		}
		if _, err := ix.rowsOf(r.v.src, m, rec.id, &list); err != nil {
			return err
		}
		o.add(rec.id, &list)
	}
	return it.Error()
}

// behind is the answer to a transaction whose state the view was too far behind
// of. The view has been brought up to date, so another run will find it there.
func (r *viewReader) behind() error {
	return viewError(osier.KindConflict, r.v.db, r.ix.name, errors.New("the view was too far behind the transaction's state; it is up to date now, begin again"))
}

func (o *overlay) add(id osier.ID, l *rowList) {
	o.ids[id.Key()] = true
	for i := range l.rows {
		o.rows = append(o.rows, overlayRow{
			appendRowKey(nil, l.key(i), id, l.rows[i].n),
			appendRowValue(nil, id, l.value(i)),
		})
	}
}

// pendingOp is the transaction's own write to a document.
func (r *viewReader) pendingOp(id osier.ID) *osier.Op {
	for i := range r.vq.Pending {
		if op := &r.vq.Pending[i]; op.ID == id && op.Collection == r.ix.name.coll {
			return op
		}
	}
	return nil
}

// rowCursor walks over rows, those of an overlay among them.
type rowCursor struct {
	it      *store.Iter
	in      rowsIn // if the iterator is one of latestRows
	reverse bool
	begun   bool
	ok      bool // the iterator stands on a row
	over    *overlay
	own     []overlayRow // of the overlay, within the bounds, in the cursor's order
	usedOwn bool         // the present row is the overlay's
	ids     idArena

	// The present row; valid until the next move.
	key, idKey, value []byte
	n                 uint16
	err               error
}

func newRowCursor(src source, lower, upper []byte, over *overlay, reverse bool) (*rowCursor, error) {
	c := &rowCursor{over: over, reverse: reverse}
	if bytes.Compare(lower, upper) >= 0 {
		c.begun = true
		return c, nil
	}
	it, err := src.NewIter(lower, upper)
	if err != nil {
		return nil, err
	}
	c.it = it
	if over != nil {
		at := func(bound []byte) int {
			i, _ := slices.BinarySearchFunc(over.rows, bound, func(r overlayRow, b []byte) int { return bytes.Compare(r.tail, b) })
			return i
		}
		from, to := at(lower[viewPrefixSize:]), len(over.rows)
		if len(upper) > viewPrefixSize {
			to = at(upper[viewPrefixSize:])
		}
		c.own = slices.Clone(over.rows[from:max(from, to)])
		if reverse {
			slices.Reverse(c.own)
		}
	}
	return c, nil
}

// ofLatest makes c a cursor over the latest state, for look-ups: see latestRows.
func (c *rowCursor) ofLatest(ix *index, lower, upper []byte, reverse bool) (err error) {
	*c = rowCursor{reverse: reverse}
	if bytes.Compare(lower, upper) >= 0 {
		c.begun = true
		return nil
	}
	if c.it, err = ix.latestRows(); err != nil {
		return err
	}
	c.in = rowsIn{it: c.it, lower: lower, upper: upper, reverse: reverse}
	return nil
}

func (c *rowCursor) close() error {
	if c.it == nil {
		return nil
	}
	it := c.it
	c.it = nil
	return it.Close()
}

// step moves the iterator.
func (c *rowCursor) step() {
	switch {
	case c.it == nil:
		c.ok = false
	case c.in.it != nil && !c.begun:
		c.ok = c.in.first()
	case c.in.it != nil:
		c.ok = c.in.next()
	case !c.begun && c.reverse:
		c.ok = c.it.Last()
	case !c.begun:
		c.ok = c.it.First()
	case c.reverse:
		c.ok = c.it.Prev()
	default:
		c.ok = c.it.Next()
	}
	c.begun = true
}

// next moves to the next row and tells whether there is one.
func (c *rowCursor) next() bool {
	if !c.begun {
		c.step()
	} else if c.ok && !c.usedOwn {
		c.step()
	}
	for c.ok {
		if !c.load(c.it.Key()[viewPrefixSize:], c.it.Value()) {
			return false
		}
		if c.over == nil || !c.over.ids[string(c.idKey)] {
			break
		}
		c.step()
	}
	if !c.ok && c.it != nil {
		if c.err = c.it.Error(); c.err != nil {
			return false
		}
	}
	if len(c.own) == 0 {
		c.usedOwn = false
		return c.ok
	}
	own := c.own[0]
	if c.ok {
		tail := c.it.Key()[viewPrefixSize:]
		if order := bytes.Compare(own.tail, tail); (order > 0) != c.reverse {
			c.usedOwn = false
			return true
		}
	}
	c.own = c.own[1:]
	c.usedOwn = true
	return c.load(own.tail, own.record)
}

// load takes a row's record apart.
func (c *rowCursor) load(tail, record []byte) bool {
	c.key, c.idKey, c.n, c.value, c.err = splitRow(tail, record)
	return c.err == nil
}

// id is the document of the present row.
func (c *rowCursor) id() osier.ID { return c.ids.id(c.idKey) }

// seek goes to the first row whose key is not less than key; "" is the end. It
// is for cursors that go forward without an overlay.
func (c *rowCursor) seek(key string) bool {
	if key == "" || c.it == nil {
		c.ok = false
		return false
	}
	base := bytes.Clone(c.it.Key()[:viewPrefixSize])
	c.ok = c.it.SeekGE(append(base, key...)) && (c.in.it == nil || c.in.within())
	if !c.ok {
		c.err = c.it.Error()
		return false
	}
	return c.load(c.it.Key()[viewPrefixSize:], c.it.Value())
}
