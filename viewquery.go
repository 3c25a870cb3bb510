package osier

import (
	"context"
	"encoding/json"
	"iter"
	"strconv"

	"github.com/osierdb/osier/internal/keys"
)

// ViewEntry is a row of a view.
type ViewEntry[K, V any] struct {
	Key   K
	Value V
	ID    ID // of the document that it comes from

	place ViewCursor
}

// Cursor returns the place behind this row, for Continue.
func (e *ViewEntry[K, V]) Cursor() string { return e.place.encode() }

// ViewGroup is a row of a grouped reduce.
type ViewGroup[K, R any] struct {
	Key   K // the group's first fields
	Value R
	Count uint64 // rows in the group

	place ViewCursor
}

// Cursor returns the place behind this group, for Continue.
func (g *ViewGroup[K, R]) Cursor() string { return g.place.encode() }

// Joined is a row of a view with a document.
type Joined[T, K, V any] struct {
	ViewEntry[K, V]
	Doc     Doc[T]
	Missing bool // there is no such live document
}

// request is a query of a view in the making.
type request struct {
	q    Query
	vq   ViewQuery
	flat bool
	err  error
}

// RowsOption says which rows of a view are wanted, and how. Without any it is
// all of them, ascending.
type RowsOption func(r *request)

func (r *request) encode(k any) string {
	s, err := EncodeKey(k, r.flat)
	if err != nil && r.err == nil {
		r.err = err
	}
	return s
}

// Key wants the rows of one key.
func Key(k any) RowsOption { return Keys(k) }

// Keys wants the rows of each of the keys, in this order.
func Keys(list ...any) RowsOption {
	return func(r *request) {
		r.vq.Keys = make([]string, 0, len(list))
		for _, k := range list {
			r.vq.Keys = append(r.vq.Keys, r.encode(k))
		}
	}
}

// From wants keys from k on.
func From(k any) RowsOption { return func(r *request) { r.q.Start = max(r.q.Start, r.encode(k)) } }

// Above wants keys above k.
func Above(k any) RowsOption {
	return func(r *request) { r.q.Start = max(r.q.Start, string(keys.PrefixEnd([]byte(r.encode(k))))) }
}

// Below wants keys below k.
func Below(k any) RowsOption { return func(r *request) { r.until(r.encode(k)) } }

// UpTo wants keys up to k and k itself.
func UpTo(k any) RowsOption {
	return func(r *request) { r.until(string(keys.PrefixEnd([]byte(r.encode(k))))) }
}

func (r *request) until(end string) {
	if r.q.End == "" || end < r.q.End {
		r.q.End = end
	}
}

// Prefix wants keys that begin with p: of a string, the strings that begin with
// it; of a Tuple, the composite keys whose first fields it is. The last field of
// a Tuple may be a StringPrefix.
func Prefix(p any) RowsOption {
	return func(r *request) {
		b, err := r.prefix(p)
		if err != nil {
			r.err = err
			return
		}
		r.q.Start = max(r.q.Start, string(b))
		if end := keys.PrefixEnd(b); end != nil {
			r.until(string(end))
		}
	}
}

// StringPrefix stands, as the last field of a Prefix, for all strings that begin
// with it.
type StringPrefix string

func (r *request) prefix(p any) ([]byte, error) {
	switch x := p.(type) {
	case string:
		return keys.StringPrefix(nil, x), nil
	case StringPrefix:
		return keys.StringPrefix(nil, string(x)), nil
	case Tuple:
		var b []byte
		if !r.flat {
			b = keys.AppendArrayStart(b)
		}
		for i, f := range x {
			if s, ok := f.(StringPrefix); ok && i == len(x)-1 {
				return keys.StringPrefix(b, string(s)), nil
			}
			var err error
			if b, err = keys.Append(b, f); err != nil {
				return nil, &Error{Kind: KindInvalid, Op: "encode prefix", Err: err}
			}
		}
		return b, nil
	}
	return nil, invalid("encode prefix", "a prefix is a string or a Tuple")
}

// Descending shows the rows from the greatest key down.
func Descending() RowsOption { return func(r *request) { r.q.Reverse = true } }

// LimitRows shows at most n rows.
func LimitRows(n int) RowsOption { return func(r *request) { r.q.Limit = n } }

// SkipRows passes over n rows, reading them; Continue is cheaper.
func SkipRows(n int) RowsOption { return func(r *request) { r.q.Skip = n } }

// Continue goes on behind the row that a cursor came with. The other options
// must be the same. A cursor holds a key, not a position: it stays right when
// rows come and go.
func Continue(cursor string) RowsOption { return func(r *request) { r.vq.After = cursor } }

// As sets how fresh the answer must be, whatever the view's policy.
func As(f Freshness) RowsOption { return func(r *request) { r.vq.Freshness = f } }

// AtLeast waits until the answer includes sequence seq.
func AtLeast(seq Seq) RowsOption { return func(r *request) { r.q.MinSeq = seq } }

// FailOnError refuses to answer while the view's function has failed on any
// document.
func FailOnError() RowsOption { return func(r *request) { r.vq.FailOnError = true } }

// Linked has Join show the documents that the rows name.
func Linked(l Link) RowsOption { return func(r *request) { r.vq.Link = l } }

func (v *View[K, V]) request(opts []RowsOption) (*Query, error) {
	r := &request{flat: v.flat}
	for _, o := range opts {
		o(r)
	}
	r.q.Kind, r.q.Collection, r.vq.Name = QueryView, v.coll, v.name
	r.q.View = &r.vq
	return &r.q, r.err
}

// NewQuery returns the query that the options make, for DB.Query: who shows rows
// without knowing their types needs it.
func (v *View[K, V]) NewQuery(opts ...RowsOption) (*Query, error) { return v.request(opts) }

// Query streams rows, all of one state: of a *DB the latest that the view's
// policy allows, of a *Tx its own, with what it has written itself.
//
// In a transaction the answer counts as a read of the whole collection: the
// transaction runs again if another changes any document of it first. Cost: a
// step of the engine a row.
func (v *View[K, V]) Query(ctx context.Context, r Reader, opts ...RowsOption) iter.Seq2[ViewEntry[K, V], error] {
	return func(yield func(ViewEntry[K, V], error) bool) {
		q, err := v.request(opts)
		if err != nil {
			yield(ViewEntry[K, V]{}, err)
			return
		}
		for row, err := range r.query(ctx, q) {
			var e ViewEntry[K, V]
			if err == nil {
				err = v.decode(row.View, &e)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// decode makes a typed row.
func (v *View[K, V]) decode(row *ViewRow, e *ViewEntry[K, V]) error {
	e.ID, e.place = row.ID, ViewCursor{At: row.At, Key: string(row.Key), ID: row.ID, N: row.N}
	if err := v.key(row.Key, &e.Key); err != nil {
		return err
	}
	return v.value(row, &e.Value)
}

func (v *View[K, V]) key(key []byte, k any) error {
	if setPlainKey(k, key) {
		return nil
	}
	x, err := KeyValue(key)
	if err == nil {
		err = setKey(k, x)
	}
	return v.wrap(err)
}

func (v *View[K, V]) value(row *ViewRow, p any) error {
	if len(row.Value) == 0 {
		return nil
	}
	switch x := p.(type) {
	case *json.RawMessage:
		*x = append(json.RawMessage(nil), row.Value...)
		return nil
	case *int:
		if n, err := strconv.Atoi(string(row.Value)); err == nil {
			*x = n
			return nil
		}
	}
	return v.wrap(json.Unmarshal(row.Value, p))
}

func (v *View[K, V]) wrap(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: KindInvalid, Op: "decode a row of view " + v.name, Collection: v.coll, Err: err}
}

// Join is Query with the document of each row, or, with Linked, the one that it
// names, decoded as one of c, which must be the view's collection.
func Join[T, K, V any](ctx context.Context, r Reader, v *View[K, V], c *Collection[T], opts ...RowsOption) iter.Seq2[Joined[T, K, V], error] {
	return func(yield func(Joined[T, K, V], error) bool) {
		q, err := v.request(opts)
		if err == nil && c.name != v.coll {
			err = invalid("join view "+v.name, "the view is of collection "+v.coll+", not "+c.name)
		}
		if err != nil {
			yield(Joined[T, K, V]{}, err)
			return
		}
		q.Parts = WithBody
		for row, err := range r.query(ctx, q) {
			var j Joined[T, K, V]
			if err == nil {
				err = v.decode(row.View, &j.ViewEntry)
			}
			if err == nil {
				j.Missing, j.Doc = row.Missing, docOf[T](&row.Document)
				err = c.decodeInto(r, q.DB, &row.Document, &j.Doc.Value)
			}
			if !yield(j, err) || err != nil {
				return
			}
		}
	}
}

// ViewEvent is a change of a view's row.
type ViewEvent[K, V any] struct {
	Kind ViewChangeKind
	ViewEntry[K, V]
	// Whole says that Kind is ViewRemoved and all rows of the document ID are
	// meant.
	Whole bool
	// Mark says that there is no row: the feed has caught up.
	Mark bool
	Seq  Seq // where the feed can be resumed; see ViewFeed
}

// Watch streams the rows of the keys that the options ask for (From, Above,
// Below, UpTo, Prefix; others mean nothing here) and then their changes, until
// ctx ends: see ViewFeed.
func (v *View[K, V]) Watch(ctx context.Context, db *DB, since Seq, opts ...RowsOption) iter.Seq2[ViewEvent[K, V], error] {
	return func(yield func(ViewEvent[K, V], error) bool) {
		q, err := v.request(opts)
		if err != nil {
			yield(ViewEvent[K, V]{}, err)
			return
		}
		f := &Feed{Collection: v.coll, Since: since, Mode: FeedLive, View: &ViewFeed{Name: v.name, Start: q.Start, End: q.End}}
		for ch, err := range db.Watch(ctx, f) {
			e := ViewEvent[K, V]{Mark: ch.Mark, Seq: ch.Seq}
			if err == nil && ch.View != nil {
				e.Kind, e.ID = ch.View.Kind, ch.View.Row.ID
				if e.Whole = len(ch.View.Row.Key) == 0; !e.Whole {
					err = v.decode(&ch.View.Row, &e.ViewEntry)
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Count returns the number of rows that the options ask for, in O(log n): the
// rows are not read.
func (v *View[K, V]) Count(ctx context.Context, r Reader, opts ...RowsOption) (uint64, error) {
	q, err := v.request(opts)
	if err != nil {
		return 0, err
	}
	q.View.Count = true
	for row, err := range r.query(ctx, q) {
		if err != nil {
			return 0, err
		}
		return row.View.Count, nil
	}
	return 0, nil
}

// Reduce returns the reduced value of the rows that the options ask for, in
// O(log n); of none it is the zero value. For reduces whose result is not a V
// see ReduceTo.
func (v *View[K, V]) Reduce(ctx context.Context, r Reader, opts ...RowsOption) (V, error) {
	return ReduceTo[V](ctx, r, v, opts...)
}

// ReduceTo is View.Reduce with a result of type R: uint64 for CountRows and
// Distinct, Stats for StatsOf, its own for ReduceWith.
func ReduceTo[R, K, V any](ctx context.Context, r Reader, v *View[K, V], opts ...RowsOption) (R, error) {
	var out R
	q, err := v.request(opts)
	if err != nil {
		return out, err
	}
	q.View.Reduce = true
	for row, err := range r.query(ctx, q) {
		if err != nil {
			return out, err
		}
		return out, v.value(row.View, &out)
	}
	return out, nil
}

// Groups reduces the rows of each group of keys with the same first fields; 0
// fields means equal keys. Its cost is O(log n) a large group, a step a row of a
// small one. K is the type of whole keys, so group first fields with K a Tuple
// or any.
func (v *View[K, V]) Groups(ctx context.Context, r Reader, fields int, opts ...RowsOption) iter.Seq2[ViewGroup[K, V], error] {
	return GroupsTo[V](ctx, r, v, fields, opts...)
}

// GroupsTo is View.Groups with results of type R.
func GroupsTo[R, K, V any](ctx context.Context, r Reader, v *View[K, V], fields int, opts ...RowsOption) iter.Seq2[ViewGroup[K, R], error] {
	return func(yield func(ViewGroup[K, R], error) bool) {
		q, err := v.request(opts)
		if err != nil {
			yield(ViewGroup[K, R]{}, err)
			return
		}
		q.View.Reduce, q.View.Group = true, fields
		if fields <= 0 {
			q.View.Group = GroupAll
		}
		for row, err := range r.query(ctx, q) {
			var g ViewGroup[K, R]
			if err == nil {
				g.Count, g.place = row.View.Count, ViewCursor{At: row.View.At, Key: string(row.View.Key)}
				err = v.key(row.View.Key, &g.Key)
			}
			if err == nil {
				err = v.value(row.View, &g.Value)
			}
			if !yield(g, err) || err != nil {
				return
			}
		}
	}
}
