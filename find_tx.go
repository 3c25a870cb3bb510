package osier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/osierdb/osier/internal/mango"
)

// find answers a QueryFind in a transaction, which counts as reading the whole
// collection. While the transaction has written nothing there, the backend
// answers from the pinned state. Otherwise what the transaction has written is
// merged in here, and a sort keeps to memory.
func (tx *Tx) find(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	tx.reads = append(tx.reads, Read{Collection: q.Collection})
	if _, written := tx.ownRange(&Query{Collection: q.Collection}); !written || q.Find == nil {
		return tx.db.backend.Query(ctx, q)
	}
	return func(yield func(Row, error) bool) {
		f := &localFind{tx: tx, q: q, start: tx.db.store.now(), skip: q.Skip}
		if err := f.compile(); err != nil {
			yield(Row{}, err)
			return
		}
		more, err := f.run(ctx, yield)
		if err != nil {
			yield(Row{}, err)
			return
		}
		if more && !q.Find.NoSummary {
			f.sum.Elapsed = tx.db.store.now().Sub(f.start)
			yield(Row{Found: &f.sum}, nil)
		}
	}
}

// localFind is a find over the rows of a scan.
type localFind struct {
	tx         *Tx
	q          *Query
	selector   *mango.Selector
	projection *mango.Projection
	keyer      *mango.Keyer // nil: the scan's order is the one asked for
	reverse    bool
	start      time.Time

	sum  FindSummary
	skip int
	doc  mango.Doc
	json []byte
	body []byte
}

// localRow is a row that waits to be sorted.
type localRow struct {
	place []byte
	row   Row
}

func (f *localFind) compile() (err error) {
	q := f.q.Find
	if q.Bookmark != "" {
		return f.fail(KindUnsupported, errors.New("a bookmark leads on only in a transaction that has written nothing to the collection"))
	}
	text := q.Selector
	if len(text) == 0 {
		text = []byte("{}")
	}
	if q.Swap {
		f.selector, err = mango.CompileSwap(text, nil)
	} else {
		f.selector, err = mango.Compile(text, nil)
	}
	if err != nil {
		return RefusedSelector("find", err)
	}
	sort := make(mango.Sort, len(q.Sort))
	paths := make([]string, len(q.Sort))
	for i, s := range q.Sort {
		sort[i], paths[i] = mango.SortField(s), s.Path
	}
	if q.SortedOnly {
		if f.selector, err = f.selector.Requiring(paths...); err != nil {
			return RefusedSelector("find", err)
		}
	}
	fields, reverse := sort.Order()
	f.reverse = reverse
	if len(fields) > 0 {
		if f.keyer, err = mango.NewKeyer(fields, mango.Unicode); err != nil {
			return RefusedSelector("find", err)
		}
	}
	if f.projection, err = mango.NewProjection(q.Fields); err != nil {
		return RefusedSelector("find", err)
	}
	if q.Explain != ExplainNone {
		f.sum.Plan = &FindPlan{Selector: f.selector.String(), Residual: f.selector.String(), Reverse: reverse, Sorts: f.keyer != nil,
			Why: "the transaction has written to the collection: all of it is read"}
	}
	return nil
}

func (f *localFind) fail(kind Kind, err error) error {
	return &Error{Kind: kind, Op: "find", DB: f.tx.db.name, Collection: f.q.Collection, Err: err}
}

// run shows the rows; more is false if the reader wants no more.
func (f *localFind) run(ctx context.Context, yield func(Row, error) bool) (more bool, err error) {
	if f.q.Find.Explain == ExplainOnly {
		return true, nil
	}
	scan := &Query{Kind: QueryScan, DB: f.q.DB, Pin: f.q.Pin, Collection: f.q.Collection, Parts: f.q.Parts | WithBody,
		Reverse: f.reverse && f.keyer == nil}
	var rows []localRow
	var size int64
	f.sum.Complete = true
	for row, err := range f.tx.scan(ctx, scan) {
		if err != nil {
			return false, err
		}
		ok, err := f.match(&row)
		if err != nil {
			return false, err
		}
		switch {
		case !ok:
			continue
		case f.keyer == nil:
			if more, stopped := f.show(&row, yield); !more {
				f.sum.Complete = false
				return !stopped, nil
			}
			continue
		}
		key, _, err := f.keyer.AppendKey(nil, &f.doc)
		if err != nil {
			if err := f.unreadable(&row, err); err != nil {
				return false, err
			}
			continue
		}
		row.Document = *row.Document.Clone()
		rows = append(rows, localRow{append(key, row.ID.key...), row})
		if size += int64(len(key)+len(row.Body)) + 256; size > f.sortBytes() {
			return false, f.fail(KindTooLarge, fmt.Errorf("a sort of more than %d bytes in a transaction that has written to the collection", f.sortBytes()))
		}
	}
	slices.SortFunc(rows, func(a, b localRow) int {
		if f.reverse {
			a, b = b, a
		}
		return bytes.Compare(a.place, b.place)
	})
	for i := range rows {
		if more, stopped := f.show(&rows[i].row, yield); !more {
			f.sum.Complete = false
			return !stopped, nil
		}
	}
	return true, nil
}

func (f *localFind) sortBytes() int64 {
	if f.q.Find.SortBytes > 0 {
		return f.q.Find.SortBytes
	}
	return DefaultSortBytes
}

// look gives a row the form that selectors work on, in doc.
func (f *localFind) look(row *Row) error {
	f.doc = mango.Doc{ID: row.ID.String(), Key: row.ID.Encoded(), Body: row.Body}
	if !row.Rev.IsZero() { // a write that is not committed has none yet
		f.doc.Rev = row.Rev.String()
	}
	if row.Codec > TagJSON {
		codec, err := f.tx.db.store.codecs.lookup(row.Codec)
		if err == nil {
			f.json, err = codec.AppendJSON(f.json[:0], row.Body)
		}
		if err != nil {
			return err
		}
		f.doc.Body = f.json
	}
	if b := bytes.TrimLeft(f.doc.Body, " \t\r\n"); len(b) == 0 || b[0] != '{' {
		f.doc.Body = []byte("{}")
	}
	return nil
}

// match tests a row, of which doc then holds the form.
func (f *localFind) match(row *Row) (bool, error) {
	if err := f.look(row); err != nil {
		return false, f.unreadable(row, err)
	}
	f.sum.DocsExamined++
	ok, err := f.selector.Match(&f.doc)
	if err != nil {
		return false, f.unreadable(row, err)
	}
	return ok, nil
}

func (f *localFind) unreadable(row *Row, err error) error {
	if f.q.Find.FailOnError {
		return &Error{Kind: KindInvalid, Op: "find", DB: f.tx.db.name, Collection: f.q.Collection, ID: row.ID.String(), Err: err}
	}
	if f.sum.Failed++; f.sum.Failed == 1 {
		f.sum.FirstFailed = row.ID.String()
	}
	return nil
}

// show hands a row out. stopped tells that the reader wants no more.
func (f *localFind) show(row *Row, yield func(Row, error) bool) (more, stopped bool) {
	if f.skip > 0 {
		f.skip--
		return true, false
	}
	if f.projection != nil {
		err := f.look(row)
		if err == nil {
			f.body, err = f.projection.AppendDoc(f.body[:0], &f.doc)
		}
		if err != nil {
			return yield(Row{}, f.fail(KindOther, err)), true // what matched can be projected
		}
		row.Body, row.Codec, row.Schema = f.body, TagJSON, 0
	}
	f.sum.Rows++
	if !yield(*row, nil) {
		return false, true
	}
	return f.sum.Rows != uint64(max(f.q.Limit, 0)), false
}
