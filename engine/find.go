package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/mango"
	"github.com/osierdb/osier/internal/store"
)

var errNotJSON = errors.New("the codec's JSON form of the body is not JSON")

func errCodec(tag osier.CodecTag) error {
	return fmt.Errorf("no codec for tag %d: give it to the engine's Codecs", tag)
}

// finder answers a QueryFind. The selector is matched over the records as the
// store holds them; only documents that match are decoded. Rows come straight
// from the iterator, or, if their order is not the one asked for, out of a
// rowSorter, when the iterator is closed already.
type finder struct {
	*view
	ctx   context.Context
	yield func(osier.Row, error) bool
	q     *osier.FindQuery
	coll  visibleColl

	selector   *mango.Selector
	projection *mango.Projection
	passOver   []byte          // how the encoded ids begin that are left out; nil: none
	order      order           // of the answer, if it has to have one
	ordered    bool            // it has
	from       *place          // the bookmark's
	asked      *mango.Selector // without what Requiring has added

	docs       docReader
	matcher    *mango.Matcher // of the way's test, if it is tried on many documents
	turn       turn
	sum        osier.FindSummary
	candidates []osier.FindCandidate
	expected   uint64 // matches, at most

	skip    int
	stopped bool  // the reader wants no more
	last    place // of the last row shown
	row     osier.Row
	full    document
	ids     idArena
	body    []byte
	key     []byte
	docKey  []byte
	scan    *store.Iter
	probe   *store.Iter // of a query for few rows: see small
	point   pointReader // in the probe's state
}

// find answers a QueryFind.
func (v *view) find(ctx context.Context, yield func(osier.Row, error) bool) error {
	if v.q.Find == nil {
		return &osier.Error{Kind: osier.KindInvalid, Op: "find", Err: errors.New("no selector given")}
	}
	start := v.e.now()
	f := &finder{view: v, ctx: ctx, yield: yield, q: v.q.Find, skip: v.q.Skip}
	f.turn.turns = v.e.turns
	f.docs.codecs = v.e.opts.Codecs
	w, release, err := f.atPoint()
	if w == nil && err == nil {
		if err := f.compile(); err != nil {
			return err
		}
		w, release, err = f.choose()
	}
	if err != nil {
		return err
	}
	defer release()
	if f.q.Explain != osier.ExplainNone {
		f.sum.Plan = f.explain(w)
	}
	if f.q.Explain != osier.ExplainOnly && w != nil {
		if err := f.run(w); err != nil {
			return canceled(ctx, err)
		}
	}
	if f.stopped || f.q.NoSummary {
		return nil
	}
	if w != nil && w.forced {
		f.sum.Warning = fmt.Sprintf("index %s was asked for: documents that its filter leaves out are not found", w.index.name.name)
	}
	if f.sum.Rows > 0 {
		f.sum.Bookmark = encodeBookmark(&f.last, f.mark())
	} else if f.from != nil {
		f.sum.Bookmark = f.q.Bookmark
	}
	f.sum.Elapsed = v.e.now().Sub(start)
	yield(osier.Row{Found: &f.sum}, nil)
	return nil
}

// canceled gives an error of a context that has ended its Kind.
func canceled(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
		return &osier.Error{Kind: osier.KindCanceled, Op: "find", Err: cause}
	}
	return err
}

// compile reads what the query consists of.
func (f *finder) compile() (err error) {
	if f.selector, err = compileSelector(f.q.Selector, f.q.Swap); err != nil {
		return err
	}
	if f.projection, err = mango.NewProjection(f.q.Fields); err != nil {
		return osier.RefusedSelector("find", err)
	}
	f.asked = f.selector
	if f.q.PassOver != "" {
		f.passOver = keys.StringPrefix(nil, f.q.PassOver)
	}
	if len(f.q.Sort) > maxFields {
		return &osier.Error{Kind: osier.KindTooLarge, Op: "find", Err: fmt.Errorf("a sort by %d fields, at most %d are allowed", len(f.q.Sort), maxFields)}
	}
	if f.q.SortedOnly {
		fields := make([]string, len(f.q.Sort))
		for i := range f.q.Sort {
			fields[i] = f.q.Sort[i].Path
		}
		if f.selector, err = f.selector.Requiring(fields...); err != nil {
			return osier.RefusedSelector("find", err)
		}
	}
	f.order, f.ordered = orderOf(f.q.Sort), len(f.q.Sort) > 0
	if len(f.order.fields) > 0 {
		if _, err := mango.NewKeyer(f.order.fields, mango.Unicode); err != nil {
			return osier.RefusedSelector("find", err)
		}
	}
	if f.q.Bookmark != "" {
		if f.from, err = decodeBookmark(f.q.Bookmark, f.mark()); err != nil {
			return &osier.Error{Kind: osier.KindInvalid, Op: "find", Err: &osier.SelectorError{Name: mango.ErrInvalidBookmark, Reason: "Invalid bookmark value: " + err.Error()}}
		}
		f.order, f.ordered = f.from.order, true
	}
	f.docs.want(f.selector)
	if f.projection != nil {
		f.docs.want(f.projection)
	}
	return nil
}

// mark is the fingerprint of the query that its bookmarks carry.
func (f *finder) mark() uint64 {
	return fingerprint(f.asked.String(), f.q.Sort, f.q.SortedOnly)
}

// compileSelector compiles a selector or SwapQuery; empty means {}.
func compileSelector(text []byte, swap bool) (s *mango.Selector, err error) {
	switch {
	case len(text) == 0:
		text = emptyObject
		fallthrough
	case !swap:
		s, err = mango.Compile(text, nil)
	default:
		s, err = mango.CompileSwap(text, nil)
	}
	return s, osier.RefusedSelector("find", err)
}

// run shows the rows that the way leads to.
func (f *finder) run(w *way) error {
	defer f.turn.pause()
	defer f.closeScan()
	if !w.sorts {
		f.last.order = w.order
		more, err := f.walk(w, f.show)
		f.sum.Complete = more
		return err
	}
	keyer, err := mango.NewKeyer(f.order.fields, mango.Unicode)
	if err != nil {
		return osier.RefusedSelector("find", err)
	}
	f.docs.want(keyer)
	f.docs.key = true
	limit := 0
	if f.view.q.Limit > 0 {
		limit = f.view.q.Limit + max(f.skip, 0)
	}
	s := newRowSorter(f.e, f.order.reverse, limit, f.q.SortBytes)
	defer s.close()
	after := f.after()
	if _, err := f.walk(w, func(_, id, record []byte, d *mango.Doc) (bool, error) {
		key, _, err := keyer.AppendKey(f.key[:0], d)
		if err != nil {
			return true, f.unreadable(id, err)
		}
		n := len(key)
		f.key = append(key, id...)
		if after != nil && s.compare(f.key, after) <= 0 {
			return true, nil
		}
		return true, s.add(f.key, n, record)
	}); err != nil {
		return err
	}
	f.closeScan()
	f.turn.pause()
	f.last.order = f.order
	f.sum.SpilledBytes = s.spilled()
	f.sum.Complete = true
	return s.each(func(r *sortRow) (bool, error) {
		more, err := f.showSorted(r)
		f.sum.Complete = more
		return more, err
	})
}

// after returns the bookmark's key and id as a sorted row has them.
func (f *finder) after() []byte {
	if f.from == nil {
		return nil
	}
	return append(bytes.Clone(f.from.key), f.from.id...)
}

func (f *finder) showSorted(r *sortRow) (more bool, err error) {
	id := r.place[r.key:]
	var d *mango.Doc
	if f.projection != nil {
		if d, _, err = f.docs.read(id, r.record); err != nil {
			return false, err
		}
	}
	return f.show(r.place[:r.key], id, r.record, d)
}

// show hands a row out. d is needed for a projection only.
func (f *finder) show(key, id, record []byte, d *mango.Doc) (more bool, err error) {
	if f.skip > 0 {
		f.skip--
		return true, nil
	}
	if err := decodeDocument(record, &f.full); err != nil {
		return false, corrupt("read document", osier.TrustedID(id), err)
	}
	if err := f.fill(&f.row.Document, f.coll, f.ids.id(id), &f.full); err != nil {
		return false, err
	}
	if f.projection != nil {
		if f.body, err = f.projection.AppendDoc(f.body[:0], d); err != nil {
			return true, f.unreadable(id, err)
		}
		f.row.Body, f.row.Codec, f.row.Schema = f.body, osier.TagJSON, 0
	}
	f.last.key, f.last.id = append(f.last.key[:0], key...), append(f.last.id[:0], id...)
	f.turn.pause()
	f.sum.Rows++
	if !f.yield(f.row, nil) {
		f.stopped = true
		return false, nil
	}
	f.turn.resume()
	return f.sum.Rows != uint64(max(f.view.q.Limit, 0)), nil
}

// unreadable notes a document that cannot be looked at, or returns the error if
// it shall end the query.
func (f *finder) unreadable(id []byte, err error) error {
	text := osier.TrustedID(id).String()
	if osier.KindOf(err) == osier.KindCorrupt {
		return err
	}
	if f.q.FailOnError {
		return &osier.Error{Kind: osier.KindInvalid, Op: "find", ID: text, Err: err}
	}
	if f.sum.Failed++; f.sum.Failed == 1 {
		f.sum.FirstFailed = text
	}
	return nil
}
