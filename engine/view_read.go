package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/reduce"
)

// freshIndex returns the index that answers for a view, as fresh as asked; nil
// if its collection is not there, which is empty.
func (e *Engine) freshIndex(ctx context.Context, db *database, n viewName, f osier.Freshness) (*index, error) {
	for attempt := 0; ; attempt++ {
		ix, err := e.tryIndex(ctx, db, n, f)
		if !errors.Is(err, errViewGone) || attempt == maxViewAttempts {
			return ix, err
		}
	}
}

// maxViewAttempts bounds how often a query looks again for a view that was
// replaced while it waited.
const maxViewAttempts = 16

func (e *Engine) tryIndex(ctx context.Context, db *database, n viewName, f osier.Freshness) (*index, error) {
	ready, building, err := e.findView(db, n)
	if err != nil || ready == nil && building == nil {
		return nil, err
	}
	if ready == nil {
		if err := building.awaitBuild(ctx); err != nil {
			return nil, err
		}
		return nil, errViewGone // look again: it is ready now
	}
	if building != nil && building.at.Load().state != osier.ViewFailed && building.def.Load().runs() {
		building.ensureBuilt()
	}
	def := ready.def.Load()
	if !def.runs() {
		if building == nil {
			return nil, viewError(osier.KindUnsupported, db, n, errUndeclared)
		}
		return ready, nil // as it was when its function was known
	}
	switch wanted(f, def.policy) {
	case osier.Fresh:
		return ready, ready.catchUp(ctx)
	case osier.StaleThenUpdate:
		e.spawn(func() { e.tolerate("update view "+n.name, ready.catchUp(e.ctx)) })
	}
	return ready, nil
}

// wanted is what a query asks for, by itself or by the view's policy.
func wanted(f osier.Freshness, p osier.UpdatePolicy) osier.Freshness {
	if f != osier.AsDeclared {
		return f
	}
	switch p {
	case osier.AfterAnswer:
		return osier.StaleThenUpdate
	case osier.Never:
		return osier.Stale
	}
	return osier.Fresh
}

// tolerate reports an error of background work that comes again by itself.
func (e *Engine) tolerate(step string, err error) {
	if err != nil && !errors.Is(err, errViewGone) && e.ctx.Err() == nil && e.opts.Logger != nil {
		e.opts.Logger.Warn(step, "error", err)
	}
}

// viewReader answers a query of a view from one state.
type viewReader struct {
	v      *view
	q      *osier.Query
	vq     *osier.ViewQuery
	ix     *index
	over   *overlay
	one    [1]span
	latest rowCursor
	docs   pointReader // the rows' documents, where no snapshot holds the state
	after  *osier.ViewCursor
	skip   int
	shown  int
	row    osier.ViewRow
	doc    document
	value  []byte
	yield  func(osier.Row, error) bool
}

// errEnough ends an answer: the reader wants no more.
var errEnough = errors.New("enough")

// queryView answers a query of a view.
func (e *Engine) queryView(ctx context.Context, v *view, yield func(osier.Row, error) bool) error {
	q, vq := v.q, v.q.View
	if vq == nil {
		return &osier.Error{Kind: osier.KindInvalid, Op: "query view", DB: q.DB, Err: errors.New("no view is named")}
	}
	r := &viewReader{v: v, q: q, vq: vq, skip: q.Skip, yield: yield}
	if vq.After != "" {
		c, err := osier.ParseViewCursor(vq.After)
		if err != nil {
			return err
		}
		r.after = &c
	}
	n := viewName{q.Collection, vq.Name}
	for attempt := 0; ; attempt++ {
		ix, err := e.freshIndex(ctx, v.db, n, vq.Freshness)
		if err != nil {
			return err
		}
		if ix == nil {
			return r.nothing()
		}
		if q.MinSeq > ix.at.Load().seq {
			// Also of a view that answers as it is.
			if err := ix.catchUp(ctx); err != nil && !errors.Is(err, errViewGone) {
				return err
			}
		}
		release := noRelease
		if q.Pin != 0 || q.Parts&osier.WithAncestors != 0 || len(vq.Pending) > 0 || vq.Reduce || vq.Count || len(vq.Keys) > 1 {
			if release, err = v.hold(); err != nil {
				return err
			}
		} // else one iterator, or its clone, sees one state by itself
		r.ix = ix
		err = r.open()
		if err == nil {
			err = r.answer(ctx)
		}
		release()
		if errors.Is(err, errViewGone) && attempt < maxViewAttempts {
			continue
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	}
}

// open looks the index up in the state that is read.
func (r *viewReader) open() error {
	if r.q.Pin == 0 && len(r.vq.Pending) == 0 {
		if r.ix.isGone() {
			return errViewGone // what is not gone now was whole when the state was taken
		}
		if p := r.ix.at.Load(); r.vq.FailOnError && p.failed > 0 {
			return r.ix.firstFailure(r.v.src, p.failed)
		}
		return nil
	}
	p, err := readProgress(r.v.src, r.v.db.num, r.ix.coll, r.ix.num)
	if err != nil {
		return err
	}
	if p.state != osier.ViewReady {
		return r.behind()
	}
	if r.vq.FailOnError && p.failed > 0 {
		return r.ix.firstFailure(r.v.src, p.failed)
	}
	return r.overlay(p)
}

// firstFailure is the error of a query that does not want failures.
func (ix *index) firstFailure(src source, failed uint64) error {
	list, err := ix.failures(src, 1)
	if err != nil || len(list) == 0 {
		return errors.Join(err, errRecord)
	}
	return &osier.Error{Kind: osier.KindInvalid, Op: "view " + ix.name.name, DB: ix.db.name, Collection: ix.name.coll, ID: list[0].ID.String(),
		Err: fmt.Errorf("the view's function failed on this document (of %d): %s", failed, list[0].Message)}
}

// failures lists the first documents that the view's function failed on.
func (ix *index) failures(src source, limit int) (list []osier.ViewFailure, err error) {
	lower := append(viewSpace(nil, ix.db.num, ix.coll, spaceBuild, ix.num), buildFailure)
	it, err := src.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for ok := it.First(); ok && len(list) < limit; ok = it.Next() {
		list = append(list, osier.ViewFailure{ID: osier.TrustedID(it.Key()[len(lower):]), Message: string(it.Value())})
	}
	return list, it.Error()
}

// nothing answers for a collection that is not there.
func (r *viewReader) nothing() error {
	if r.vq.Count || r.vq.Reduce && r.vq.Group == 0 {
		r.row = osier.ViewRow{Value: []byte("0")}
		if !r.vq.Count {
			r.row.Value = nil
		}
		r.yield(osier.Row{View: &r.row}, nil)
	}
	return nil
}

// span is a run of rows by bounds of their keys; an empty hi is open.
type span struct {
	lo, hi string
	at     int
}

// spans are the runs of rows that the query asks for, in its order.
func (r *viewReader) spans() []span {
	if r.vq.Keys == nil {
		return append(r.one[:0], span{r.q.Start, r.q.End, 0})
	}
	out := slices.Grow(r.one[:0], len(r.vq.Keys))
	for i, k := range r.vq.Keys {
		out = append(out, span{k, string(keys.PrefixEnd([]byte(k))), i})
	}
	if r.after != nil {
		out = out[min(r.after.At, len(out)):]
	}
	return out
}

func (r *viewReader) answer(ctx context.Context) error {
	spans := r.spans()
	switch {
	case r.vq.Count || r.vq.Reduce && r.vq.Group == 0:
		return r.total(spans)
	case r.vq.Reduce:
		return r.groups(ctx, spans)
	}
	for _, s := range spans {
		if err := r.rows(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// total answers with one row about all spans.
func (r *viewReader) total(spans []span) error {
	t := r.ix.tree()
	if r.vq.Count {
		t.Func = nil
	} else if err := r.reduces(); err != nil {
		return err
	}
	sum := t.NewAccumulator()
	for _, s := range spans {
		if s.hi != "" && s.lo >= s.hi {
			continue
		}
		n, err := r.fold(&t, s)
		if err != nil {
			return err
		}
		sum.Node(&n)
	}
	n := sum.Result()
	if r.vq.Count {
		r.row = osier.ViewRow{Value: strconv.AppendUint(nil, n.Count, 10), Count: n.Count}
		r.yield(osier.Row{View: &r.row}, nil)
		return nil
	}
	return r.reduced(nil, &n, 0)
}

// fold reduces a span: by the tree, or row by row where the state read is not
// the one that the tree is of.
func (r *viewReader) fold(t *reduce.Tree, s span) (reduce.Node, error) {
	if r.over == nil {
		var hi []byte
		if s.hi != "" {
			hi = []byte(s.hi)
		}
		return t.Fold(treeRecords{ix: r.ix, src: r.v.src}, []byte(s.lo), hi)
	}
	a := t.NewAccumulator()
	c, err := r.cursor(s, false)
	if err != nil {
		return reduce.Node{}, err
	}
	defer c.close()
	for c.next() {
		a.Row(c.value)
	}
	return a.Result(), c.err
}

// reduces refuses a reduce of a view that has none.
func (r *viewReader) reduces() error {
	if r.ix.def.Load().reduceName == "" {
		return viewError(osier.KindInvalid, r.v.db, r.ix.name, errors.New("the view has no reduce"))
	}
	return nil
}

// reduced shows a reduced row.
func (r *viewReader) reduced(key []byte, n *reduce.Node, at int) error {
	def := r.ix.def.Load()
	if n.Failed != "" {
		return viewError(osier.KindInvalid, r.v.db, r.ix.name, errors.New(n.Failed))
	}
	var err error
	switch {
	case def.builtin != nil:
		if r.value, err = def.builtin.AppendResult(r.value[:0], n); err != nil {
			return viewError(osier.KindInvalid, r.v.db, r.ix.name, err)
		}
	default:
		r.value = append(r.value[:0], n.Partial...)
	}
	r.row = osier.ViewRow{Key: key, Value: r.value, Count: n.Count, At: at}
	return r.emit(osier.Row{View: &r.row})
}

// emit shows a row that Skip does not pass over.
func (r *viewReader) emit(row osier.Row) error {
	if r.skip > 0 {
		r.skip--
		return nil
	}
	if !r.yield(row, nil) {
		return errEnough
	}
	if r.shown++; r.shown == r.q.Limit {
		return errEnough
	}
	return nil
}

// rows shows the rows of a span.
func (r *viewReader) rows(ctx context.Context, s span) error {
	c, err := r.cursor(s, r.q.Reverse)
	if err != nil {
		return err
	}
	defer c.close()
	if !r.v.fixed {
		r.docs = pointReader{ix: r.ix, rows: c.it}
		defer r.docs.close()
	}
	var row osier.Row
	for n := 1; c.next(); n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return &osier.Error{Kind: osier.KindCanceled, Op: "query view", Err: ctx.Err()}
		}
		if r.skip > 0 {
			r.skip--
			continue
		}
		r.row = osier.ViewRow{Key: c.key, ID: c.id(), N: c.n, Value: c.value, At: s.at}
		row = osier.Row{View: &r.row, Document: osier.Document{ID: r.row.ID}}
		release, err := r.document(&row)
		if err != nil {
			return err
		}
		err = r.emit(row)
		release()
		if err != nil {
			return err
		}
	}
	return c.err
}

// cursor walks over a span's rows from where the query continues.
func (r *viewReader) cursor(s span, reverse bool) (*rowCursor, error) {
	lower, upper := r.ix.bounds(s.lo, s.hi)
	if a := r.after; a != nil && a.At == s.at && !r.vq.Reduce {
		// Behind the row: below it in reverse, else from the next key on.
		key := append(viewSpace(nil, r.ix.db.num, r.ix.coll, spaceRow, r.ix.num), appendRowKey(nil, []byte(a.Key), a.ID, a.N)...)
		if reverse {
			if bytes.Compare(key, upper) < 0 {
				upper = key
			}
		} else if key = append(key, 0); bytes.Compare(key, lower) > 0 {
			lower = key
		}
	}
	if !r.v.fixed {
		return &r.latest, r.latest.ofLatest(r.ix, lower, upper, reverse)
	}
	return newRowCursor(r.v.src, lower, upper, r.over, reverse)
}

func noRelease() {}

// document adds the document that the query wants to a row.
func (r *viewReader) document(row *osier.Row) (release func(), err error) {
	if r.q.Parts == 0 {
		return noRelease, nil
	}
	id, ok := row.View.ID, true
	switch r.vq.Link {
	case osier.LinkValue:
		id, ok = linkOf(row.View.Value)
	case osier.LinkKey:
		var err error
		id, err = osier.DecodeID(row.View.Key)
		ok = err == nil
	}
	row.Document = osier.Document{ID: id}
	if !ok {
		row.Missing = true
		return noRelease, nil
	}
	if op := r.pendingOp(id); op != nil {
		row.Document = osier.Document{ID: id, Deleted: op.Deleted, Codec: op.Codec, Schema: op.Schema, Body: op.Body}
		row.Missing = op.Deleted
		return noRelease, nil
	}
	if !r.v.fixed {
		return noRelease, r.pointed(row, id)
	}
	var d document
	found, closer, err := r.v.doc(r.ix.coll, id, &d)
	if err != nil {
		return nil, err
	}
	if !found {
		row.Missing = true
		return noRelease, nil
	}
	row.Missing = d.winner.deleted
	if err := r.v.fill(&row.Document, visibleColl{num: r.ix.coll}, id, &d); err != nil {
		closer.Close()
		return nil, err
	}
	return func() { closer.Close() }, nil
}

// pointed adds the document in the state of the rows' iterator.
func (r *viewReader) pointed(row *osier.Row, id osier.ID) error {
	r.v.key = docKey(r.v.key[:0], r.ix.db.num, r.ix.coll, id)
	record, err := r.docs.get(r.v.key)
	if err != nil || record == nil {
		row.Missing = true
		return err
	}
	if err := decodeDocument(record, &r.doc); err != nil {
		return corrupt("read document", id, err)
	}
	row.Missing = r.doc.winner.deleted
	return r.v.fill(&row.Document, visibleColl{num: r.ix.coll}, id, &r.doc)
}

// linkOf is the id that a row's value names.
func linkOf(value []byte) (osier.ID, bool) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	if len(value) == 0 || dec.Decode(&v) != nil {
		return osier.ID{}, false
	}
	if o, ok := v.(map[string]any); ok {
		v = o["_id"]
	}
	switch v.(type) {
	case string, json.Number:
		id, err := osier.IDOf(v)
		return id, err == nil
	}
	return osier.ID{}, false
}

// smallGroup is how many rows of a group are read one by one before the tree is
// asked: below it that is faster.
const smallGroup = 100

// groups shows a row for each group.
func (r *viewReader) groups(ctx context.Context, spans []span) error {
	if err := r.reduces(); err != nil {
		return err
	}
	if r.vq.Group > 0 && r.ix.kind == viewJSON {
		return viewError(osier.KindInvalid, r.v.db, r.ix.name, errors.New("a JSON index has no groups of first fields; use a fields view"))
	}
	for _, s := range spans {
		if r.q.Reverse {
			if err := r.groupsBack(ctx, s); err != nil {
				return err
			}
			continue
		}
		if err := r.groupsOn(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// groupsOn shows the groups of a span in order.
func (r *viewReader) groupsOn(ctx context.Context, s span) error {
	if r.after != nil && r.after.At == s.at {
		p, _ := r.ix.group([]byte(r.after.Key), r.vq.Group)
		s.lo = max(s.lo, string(keys.PrefixEnd(p)))
	}
	c, err := r.cursor(s, false)
	if err != nil {
		return err
	}
	defer c.close()
	tree := r.ix.tree()
	a := tree.NewAccumulator()
	for ok := c.next(); ok; {
		if ctx.Err() != nil {
			return &osier.Error{Kind: osier.KindCanceled, Op: "query view", Err: ctx.Err()}
		}
		p, shown := r.ix.group(c.key, r.vq.Group)
		p = bytes.Clone(p) // the key is gone with the next move
		end := string(keys.PrefixEnd(p))
		group := span{lo: max(s.lo, string(p)), hi: end, at: s.at}
		if s.hi != "" && s.hi < end {
			group.hi = s.hi
		}
		count := 0
		for ; ok && bytes.HasPrefix(c.key, p) && (count < smallGroup || r.over != nil); ok = c.next() {
			a.Row(c.value)
			count++
		}
		n := a.Result()
		if ok && bytes.HasPrefix(c.key, p) {
			if n, err = r.fold(&tree, group); err != nil {
				return err
			}
			ok = c.seek(group.hi)
		}
		if err := r.reduced(shown, &n, s.at); err != nil {
			return err
		}
	}
	return c.err
}

// groupsBack shows the groups of a span from its end.
func (r *viewReader) groupsBack(ctx context.Context, s span) error {
	if r.after != nil && r.after.At == s.at {
		p, _ := r.ix.group([]byte(r.after.Key), r.vq.Group)
		if s.hi == "" || string(p) < s.hi {
			s.hi = string(p)
		}
	}
	tree := r.ix.tree()
	for {
		if ctx.Err() != nil {
			return &osier.Error{Kind: osier.KindCanceled, Op: "query view", Err: ctx.Err()}
		}
		c, err := r.cursor(s, true)
		if err != nil {
			return err
		}
		ok := c.next()
		var p, shown []byte
		if ok {
			p, shown = r.ix.group(c.key, r.vq.Group)
			p = bytes.Clone(p)
		}
		err = errors.Join(c.err, c.close())
		if err != nil || !ok {
			return err
		}
		group := span{lo: max(s.lo, string(p)), hi: string(keys.PrefixEnd(p)), at: s.at}
		if s.hi != "" && s.hi < group.hi {
			group.hi = s.hi
		}
		n, err := r.fold(&tree, group)
		if err != nil {
			return err
		}
		if err := r.reduced(shown, &n, s.at); err != nil {
			return err
		}
		if s.hi = group.lo; s.hi == "" || s.hi <= s.lo {
			return nil
		}
	}
}

// group returns the part of a key that its group shares, and the group's own
// key, which is that part or the array of its fields.
func (ix *index) group(key []byte, fields int) (part, shown []byte) {
	if fields < 0 {
		return key, slices.Clone(key)
	}
	rest, array := key, false
	if open := keys.AppendArrayStart(nil); ix.kind == viewGo {
		if !bytes.HasPrefix(key, open) {
			return key, slices.Clone(key)
		}
		rest, array = key[len(open):], true
	}
	for range fields {
		n, err := keys.Skip(rest)
		if err != nil {
			return key, slices.Clone(key) // it has no more fields
		}
		rest = rest[n:]
	}
	part = key[:len(key)-len(rest)]
	shown = slices.Clone(part)
	if array {
		shown = keys.AppendArrayEnd(shown)
	}
	return part, shown
}
