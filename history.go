package osier

import (
	"context"
	"iter"
	"time"
)

// Versions streams what is known of a document: its leaves, the winner
// leading, then earlier versions, newest first. A version whose body is not
// kept has a zero Value; see CollectionOptions.History.
func (c *Collection[T]) Versions(ctx context.Context, r Reader, id any) iter.Seq2[Doc[T], error] {
	return func(yield func(Doc[T], error) bool) {
		key, err := c.id("list versions", id)
		if err != nil {
			yield(Doc[T]{}, err)
			return
		}
		q := &Query{Kind: QueryVersions, Collection: c.name, IDs: []ID{key}, Parts: WithBody}
		for row, err := range r.query(ctx, q) {
			var doc Doc[T]
			switch {
			case err != nil:
			case row.Missing:
				err = &Error{Kind: KindNotFound, Op: "list versions", DB: q.DB, Collection: c.name, ID: key.String()}
			default:
				doc, err = c.decode(r, q, &row.Document)
			}
			if !yield(doc, err) || err != nil {
				return
			}
		}
	}
}

// Conflicts returns the losing live leaves of a document's revision tree, in
// descending order. Read one with GetRev; Delete with its revision ends it.
func (c *Collection[T]) Conflicts(ctx context.Context, r Reader, id any) ([]Rev, error) {
	key, err := c.id("list conflicts", id)
	if err != nil {
		return nil, err
	}
	q := &Query{Kind: QueryGet, Collection: c.name, IDs: []ID{key}, Parts: WithConflicts, Deleted: true}
	var out []Rev
	for row, err := range r.query(ctx, q) {
		if err != nil {
			return nil, err
		}
		if row.Missing {
			return nil, &Error{Kind: KindNotFound, Op: "list conflicts", DB: q.DB, Collection: c.name, ID: key.String()}
		}
		for _, leaf := range row.Conflicts {
			if !leaf.Deleted {
				out = append(out, leaf.Rev)
			}
		}
	}
	return out, nil
}

// AsOf reads the document as it was right after sequence seq. ErrNotFound if
// it was not there; ErrGap if that version's body is not kept.
func (c *Collection[T]) AsOf(ctx context.Context, r Reader, id any, seq Seq) (Doc[T], error) {
	return c.asOf(ctx, r, id, seq, time.Time{})
}

// AsOfTime reads the document as it was at time t: see AsOf.
func (c *Collection[T]) AsOfTime(ctx context.Context, r Reader, id any, t time.Time) (Doc[T], error) {
	return c.asOf(ctx, r, id, 0, t)
}

func (c *Collection[T]) asOf(ctx context.Context, r Reader, id any, seq Seq, t time.Time) (Doc[T], error) {
	key, err := c.id("get as of", id)
	if err != nil {
		return Doc[T]{}, err
	}
	return c.one(ctx, r, &Query{Kind: QueryAsOf, Collection: c.name, IDs: []ID{key}, Seq: seq, Time: t, Parts: WithBody})
}

// DocChange is an element of a collection's change feed.
type DocChange[T any] struct {
	Doc[T]
	// Mark: nothing but Seq is set; the feed has caught up with it.
	Mark bool
}

// Changes streams a collection's changes: a row a document, at its latest
// change, in order of sequences; see Feed. A nil f means all there are, once.
// keep, unless nil, filters; a filtered feed's position is best taken from
// marks.
func (c *Collection[T]) Changes(ctx context.Context, db *DB, f *Feed, keep func(Doc[T]) bool) iter.Seq2[DocChange[T], error] {
	return func(yield func(DocChange[T], error) bool) {
		var own Feed
		if f != nil {
			own = *f
		}
		own.Collection = c.name
		limit, poll := own.Limit, own.Mode == FeedWait && keep != nil
		if keep != nil {
			own.Limit = 0
		}
		if poll {
			// What does not pass must not end the wait: go on to the mark that
			// follows something that did.
			own.Mode, own.Marks = FeedLive, true
		}
		q := &Query{DB: db.name}
		shown := 0
		for ch, err := range db.Watch(ctx, &own) {
			row := DocChange[T]{Mark: ch.Mark}
			if err == nil {
				row.Doc, err = c.decode(db, q, &ch.Document)
			}
			if err == nil && keep != nil && !row.Mark && !keep(row.Doc) {
				continue
			}
			if !poll || !row.Mark || f.Marks && shown > 0 {
				if !yield(row, err) || err != nil {
					return
				}
			}
			if row.Mark && poll && shown > 0 {
				return
			}
			if !row.Mark {
				shown++
			}
			if limit > 0 && shown == limit {
				return
			}
		}
	}
}

// MigrateProgress tells how far MigrateAll is.
type MigrateProgress struct{ Seen, Total, Written uint64 }

// migrateBatch is how many documents one commit of MigrateAll writes.
const migrateBatch = 256

// MigrateAll writes every document that has an older schema version in its
// new form. It works in commits of some hundred documents, can be broken off
// and started again, and leaves alone what others change meanwhile (they write
// the new form). progress may be nil.
func (c *Collection[T]) MigrateAll(ctx context.Context, db *DB, progress func(MigrateProgress)) error {
	total, err := c.Count(ctx, db)
	if err != nil {
		return err
	}
	p := MigrateProgress{Total: total}
	q := &Query{Kind: QueryScan, DB: db.name, Collection: c.name, Parts: WithBody}
	batch := &Batch{PerDocument: true}
	flush := func() error {
		if batch.Len() == 0 {
			return nil
		}
		res, err := db.Commit(ctx, batch)
		if err != nil {
			return err
		}
		for _, r := range res.Ops {
			if r.Err == nil {
				p.Written++
			} else if r.Err.Kind != KindConflict {
				return r.Err
			}
		}
		batch = &Batch{PerDocument: true}
		return nil
	}
	for row, err := range db.Query(ctx, q) {
		if err != nil {
			return err
		}
		if p.Seen++; row.Schema < c.o.Schema {
			doc, err := c.decode(db, q, &row.Document)
			if err != nil {
				return err
			}
			if _, err := c.Update(ctx, batch, doc); err != nil {
				return err
			}
		}
		if batch.Len() < migrateBatch {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		if progress != nil {
			progress(p)
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if progress != nil {
		progress(p)
	}
	return nil
}
