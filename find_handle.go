package osier

import (
	"context"
	"iter"
)

// FindOptions of Find. The zero value is all that the selector means, in the
// order in which it is found.
type FindOptions struct {
	Fields     []string    // project bodies on these paths; Find's typed values then lack the rest
	Sort       []SortField // see Asc and Desc
	SortedOnly bool        // leave out documents without one of Sort's fields
	Skip       int
	Limit      int    // 0: no limit
	Bookmark   string // go on behind an earlier answer: see FindSummary
	UseIndex   string // "_id": none; empty: the planner chooses
	Strict     bool   // an unusable UseIndex is an error
	Stale      bool   // take indexes as they are
	SortBytes  int64  // memory of a sort before it goes on in a file; 0: DefaultSortBytes
	Conflicts  bool   // fill Conflicts
	// FailOnError ends with an error at a document that has no JSON form.
	FailOnError bool
	MinSeq      Seq // wait for a state that includes this sequence
	// Explain fills Summary.Plan, too.
	Explain bool
	// Summary is filled behind the last row. It is left alone if the loop is
	// broken off before.
	Summary *FindSummary
}

// query returns the query of a selector in a collection.
func (o *FindOptions) query(collection string, s Selector) (*Query, error) {
	text, swap, err := s.selector()
	if err != nil {
		return nil, err
	}
	q := &Query{Kind: QueryFind, Collection: collection, Parts: WithBody, Find: &FindQuery{Selector: text, Swap: swap}}
	f := q.Find
	f.NoSummary = o == nil || o.Summary == nil
	if o == nil {
		return q, nil
	}
	q.Skip, q.Limit, q.MinSeq = o.Skip, o.Limit, o.MinSeq
	f.Fields, f.Sort, f.SortedOnly, f.Bookmark, f.SortBytes = o.Fields, o.Sort, o.SortedOnly, o.Bookmark, o.SortBytes
	f.UseIndex, f.Strict, f.Stale, f.FailOnError = o.UseIndex, o.Strict, o.Stale, o.FailOnError
	if o.Conflicts {
		q.Parts |= WithConflicts
	}
	if o.Explain {
		f.Explain = ExplainRun
	}
	return q, nil
}

// Find streams the collection's documents that the selector means, all of one
// state, in the order of o.Sort. ErrInvalid (with a SelectorError) for a
// selector, sort, field or bookmark that is none.
//
// Cost: what the chosen index or, without one, the whole collection takes to
// read, a third to half a microsecond a document of 200 bytes; see DB.Explain. A sort that no index serves
// collects the answer first, beyond o.SortBytes in a temporary file.
//
// In a transaction it counts as reading the whole collection.
func (c *Collection[T]) Find(ctx context.Context, r Reader, s Selector, o *FindOptions) iter.Seq2[Doc[T], error] {
	return func(yield func(Doc[T], error) bool) {
		value := new(T) // for all rows: decoders take its address
		for row, err := range findRows(ctx, r, c.name, s, o) {
			doc := docOf[T](&row.Document)
			if err == nil {
				*value = doc.Value
				err = c.decodeInto(r, "", &row.Document, value)
				doc.Value = *value
			}
			if !yield(doc, err) || err != nil {
				return
			}
		}
	}
}

// Find streams the documents of a collection that the selector means, with their
// bodies as they are stored or, with o.Fields, as JSON; see Collection.Find. A
// row's slices are valid until the next one.
func (db *DB) Find(ctx context.Context, collection string, s Selector, o *FindOptions) iter.Seq2[Row, error] {
	return findRows(ctx, db, collection, s, o)
}

// Find is DB.Find on what the transaction sees.
func (tx *Tx) Find(ctx context.Context, collection string, s Selector, o *FindOptions) iter.Seq2[Row, error] {
	return findRows(ctx, tx, collection, s, o)
}

// findRows keeps the summary from the reader's eyes.
func findRows(ctx context.Context, r Reader, collection string, s Selector, o *FindOptions) iter.Seq2[Row, error] {
	q, err := o.query(collection, s)
	if err != nil {
		return failed(err)
	}
	return func(yield func(Row, error) bool) {
		for row, err := range r.query(ctx, q) {
			if err == nil && row.Found != nil {
				if o != nil && o.Summary != nil {
					*o.Summary = *row.Found
				}
				continue
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// Explain tells how Find would carry out a query now, without doing so.
func (db *DB) Explain(ctx context.Context, collection string, s Selector, o *FindOptions) (*FindPlan, error) {
	q, err := o.query(collection, s)
	if err != nil {
		return nil, err
	}
	q.Find.Explain, q.Find.NoSummary = ExplainOnly, false
	for row, err := range db.Query(ctx, q) {
		if err != nil {
			return nil, err
		}
		if row.Found != nil && row.Found.Plan != nil {
			return row.Found.Plan, nil
		}
	}
	return nil, &Error{Kind: KindUnsupported, Op: "explain", DB: db.name, Collection: collection}
}

// Live is a change to the documents that a selector means; see LiveQuery.
type Live[T any] struct {
	Doc[T]
	// Event is 0 in a mark: all there is has been shown, and Seq is where to
	// resume from.
	Event LiveEvent
}

// LiveOptions of Collection.Live. The zero value is useful.
type LiveOptions struct {
	Since        Seq    // resume from a mark's or a change's sequence; 0: begin with all that is there
	MaxDocuments int    // see LiveQuery
	MaxBehind    uint64 // see LiveQuery
}

// Live streams the documents that the selector means and then every change to
// them, for ever: see LiveQuery. A mark comes whenever all there is has been
// shown. It ends with ctx (ErrCanceled) or the store (ErrClosed).
func (c *Collection[T]) Live(ctx context.Context, db *DB, s Selector, o *LiveOptions) iter.Seq2[Live[T], error] {
	return func(yield func(Live[T], error) bool) {
		text, swap, err := s.selector()
		if err != nil {
			yield(Live[T]{}, err)
			return
		}
		f := &Feed{Collection: c.name, Mode: FeedLive, Parts: WithBody, Marks: true, Live: &LiveQuery{Selector: text, Swap: swap}}
		if o != nil {
			f.Since, f.Live.MaxDocuments, f.Live.MaxBehind = o.Since, o.MaxDocuments, o.MaxBehind
		}
		for ch, err := range db.Watch(ctx, f) {
			live := Live[T]{Doc: docOf[T](&ch.Document), Event: ch.Event}
			if err == nil && ch.Event != LiveRemoved {
				err = c.decodeInto(db, db.name, &ch.Document, &live.Value)
			}
			if !yield(live, err) || err != nil {
				return
			}
		}
	}
}
