package engine

import (
	"bytes"
	"errors"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/reduce"
	"github.com/osierdb/osier/internal/store"
)

// indexEdit collects changes of an index in a batch that can be read.
type indexEdit struct {
	ix      *index
	b       *store.Batch
	p       progress // as it will be
	changes []reduce.Change
	old     rowList
	key     []byte
	buf     []byte
}

func (ix *index) edit(b *store.Batch) *indexEdit {
	return &indexEdit{ix: ix, b: b, p: *ix.at.Load()}
}

// doc replaces a document's rows. failure is why there are none, if the view's
// function failed on the document.
func (w *indexEdit) doc(id osier.ID, l *rowList, failure error) error {
	had, err := w.ix.backref(w.b, id, &w.old, &w.key)
	if err != nil {
		return err
	}
	if err := w.fail(id, failure); err != nil {
		return err
	}
	if had || len(l.rows) > 0 {
		if err := errors.Join(w.remove(id, l), w.add(id, l)); err != nil {
			return err
		}
	}
	w.key = append(viewSpace(w.key[:0], w.ix.db.num, w.ix.coll, spaceBackref, w.ix.num), id.Key()...)
	switch {
	case len(l.rows) > 0 && !(had && l.sameKeys(&w.old)):
		w.buf = appendBackref(w.buf[:0], l)
		return w.b.Set(w.key, w.buf)
	case len(l.rows) == 0 && had:
		return w.b.Delete(w.key)
	}
	return nil
}

// backref reads the keys of a document's present rows.
func (ix *index) backref(src source, id osier.ID, l *rowList, key *[]byte) (found bool, err error) {
	*key = append(viewSpace((*key)[:0], ix.db.num, ix.coll, spaceBackref, ix.num), id.Key()...)
	b, closer, err := src.Get(*key)
	if errors.Is(err, store.ErrNotFound) {
		l.reset()
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closer.Close()
	return true, decodeBackref(b, l)
}

func (l *rowList) sameKeys(o *rowList) bool {
	if len(l.rows) != len(o.rows) {
		return false
	}
	for i := range l.rows {
		if !bytes.Equal(l.key(i), o.key(i)) {
			return false
		}
	}
	return true
}

// places finds rows by key and number.
type places map[string]int

func (l *rowList) places() places {
	if len(l.rows) < manyPlaces {
		return nil
	}
	p := make(places, len(l.rows))
	var buf []byte
	for i := range l.rows {
		buf = append(buf[:0], byte(l.rows[i].n), byte(l.rows[i].n>>8))
		p[string(append(buf, l.key(i)...))] = i
	}
	return p
}

const manyPlaces = 16

// find returns the row of a key and number, -1 if there is none.
func (l *rowList) find(p places, key []byte, n uint16) int {
	if p != nil {
		if i, ok := p[string(append([]byte{byte(n), byte(n >> 8)}, key...))]; ok {
			return i
		}
		return -1
	}
	for i := range l.rows {
		if l.rows[i].n == n && bytes.Equal(l.key(i), key) {
			return i
		}
	}
	return -1
}

func (w *indexEdit) rowKey(key []byte, id osier.ID, n uint16) []byte {
	w.key = viewSpace(w.key[:0], w.ix.db.num, w.ix.coll, spaceRow, w.ix.num)
	w.key = appendRowKey(w.key, key, id, n)
	return w.key
}

// changed notes a change of the row whose key was made last.
func (w *indexEdit) changed(s reduce.State) {
	w.changes = append(w.changes, reduce.Change{Key: bytes.Clone(w.key[viewPrefixSize:]), State: s})
}

// remove removes the old rows that l does not have.
func (w *indexEdit) remove(id osier.ID, l *rowList) error {
	p := l.places()
	for i := range w.old.rows {
		key, n := w.old.key(i), w.old.rows[i].n
		if l.find(p, key, n) >= 0 {
			continue
		}
		if err := w.b.Delete(w.rowKey(key, id, n)); err != nil {
			return err
		}
		w.changed(reduce.Removed)
		w.p.rows--
	}
	return nil
}

// add writes the rows of l that were not there or had another value.
func (w *indexEdit) add(id osier.ID, l *rowList) error {
	p := w.old.places()
	for i := range l.rows {
		key := w.rowKey(l.key(i), id, l.rows[i].n)
		w.buf = appendRowValue(w.buf[:0], id, l.value(i))
		state := reduce.Added
		if w.old.find(p, l.key(i), l.rows[i].n) >= 0 {
			v, closer, err := w.b.Get(key)
			if err != nil {
				return err
			}
			same := bytes.Equal(v, w.buf)
			closer.Close()
			if same {
				continue
			}
			state = reduce.Touched
		} else {
			w.p.rows++
		}
		if err := w.b.Set(key, w.buf); err != nil {
			return err
		}
		w.changed(state)
	}
	return nil
}

// maxFailureText bounds what is kept of a failure's message.
const maxFailureText = 1 << 10

// fail notes that the view's function failed on a document, or no longer does.
func (w *indexEdit) fail(id osier.ID, failure error) error {
	if failure == nil && w.p.failed == 0 {
		return nil
	}
	w.key = append(viewSpace(w.key[:0], w.ix.db.num, w.ix.coll, spaceBuild, w.ix.num), buildFailure)
	w.key = append(w.key, id.Key()...)
	_, closer, err := w.b.Get(w.key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	had := err == nil
	if had {
		closer.Close()
	}
	switch {
	case failure != nil:
		if !had {
			w.p.failed++
		}
		text := failure.Error()
		return w.b.Set(w.key, []byte(text[:min(len(text), maxFailureText)]))
	case had:
		w.p.failed--
		return w.b.Delete(w.key)
	}
	return nil
}

// finish brings the tree up to date and writes the progress.
func (w *indexEdit) finish() error {
	nodes := treeRecords{w.ix, w.b, w.b}
	tree := w.ix.tree()
	if err := tree.Update(nodes, nodes, mergeChanges(w.changes)); err != nil {
		return err
	}
	w.buf = w.p.append(w.buf[:0])
	return w.b.Set(w.ix.progressKey(w.key[:0]), w.buf)
}

// mergeChanges sorts changes and makes one of those of the same row.
func mergeChanges(list []reduce.Change) []reduce.Change {
	slices.SortStableFunc(list, func(a, b reduce.Change) int { return bytes.Compare(a.Key, b.Key) })
	out := list[:0]
	for i := 0; i < len(list); {
		k := i + 1
		for k < len(list) && bytes.Equal(list[k].Key, list[i].Key) {
			k++
		}
		before, after := list[i].State != reduce.Added, list[k-1].State != reduce.Removed
		c := reduce.Change{Key: list[i].Key}
		switch {
		case before && after:
			c.State = reduce.Touched
		case after:
			c.State = reduce.Added
		default:
			c.State = reduce.Removed
		}
		if before || after {
			out = append(out, c)
		}
		i = k
	}
	return out
}

// treeRecords are an index's rows and nodes as package reduce sees them.
type treeRecords struct {
	ix  *index
	src source
	b   *store.Batch // nil: for reading only
}

func (t treeRecords) space(level int) []byte {
	if level == 0 {
		return viewSpace(nil, t.ix.db.num, t.ix.coll, spaceRow, t.ix.num)
	}
	return append(viewSpace(nil, t.ix.db.num, t.ix.coll, spaceTree, t.ix.num), byte(level))
}

func (t treeRecords) Cursor(level int) (reduce.Cursor, error) {
	lower := t.space(level)
	it, err := t.src.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return nil, err
	}
	return &treeCursor{Iter: it, base: lower, rows: level == 0}, nil
}

func (t treeRecords) Top() (int, error) {
	lower := viewSpace(nil, t.ix.db.num, t.ix.coll, spaceTree, t.ix.num)
	it, err := t.src.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return 0, err
	}
	defer it.Close()
	if !it.Last() {
		return 0, it.Error()
	}
	if len(it.Key()) <= viewPrefixSize {
		return 0, errRecord
	}
	return min(int(it.Key()[viewPrefixSize]), reduce.MaxLevel), nil
}

func (t treeRecords) Set(level int, key, node []byte) error {
	return t.b.Set(append(t.space(level), key...), node)
}

func (t treeRecords) Delete(level int, key []byte) error {
	return t.b.Delete(append(t.space(level), key...))
}

// treeCursor is an iterator without its prefix.
type treeCursor struct {
	*store.Iter
	base []byte
	key  []byte
	rows bool
}

func (c *treeCursor) whole(key []byte) []byte {
	c.key = append(append(c.key[:0], c.base...), key...)
	return c.key
}

func (c *treeCursor) SeekGE(key []byte) bool { return c.Iter.SeekGE(c.whole(key)) }
func (c *treeCursor) SeekLT(key []byte) bool { return c.Iter.SeekLT(c.whole(key)) }
func (c *treeCursor) Key() []byte            { return c.Iter.Key()[len(c.base):] }

func (c *treeCursor) Value() []byte {
	if c.rows {
		return rowValue(c.Iter.Value())
	}
	return c.Iter.Value()
}

// fold reduces, or only counts, the rows of a range of encoded keys.
func (ix *index) fold(src source, lo, hi string, count bool) (reduce.Node, error) {
	t := ix.tree()
	if count {
		t.Func = nil
	}
	var upper []byte
	if hi != "" {
		upper = []byte(hi)
	}
	return t.Fold(treeRecords{ix: ix, src: src}, []byte(lo), upper)
}
