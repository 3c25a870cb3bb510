package osier

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/osierdb/osier/internal/keys"
)

// Collection is a typed handle on documents of one kind. Declare it once, as a
// package variable, and use it with any database.
//
// Methods take ids of any key type (see ID). Reads take a Reader (*DB or *Tx),
// writes a Writer (*DB, *Tx or *Batch). A write on a *Tx or *Batch returns
// before the commit: its document has no revision or sequence yet.
type Collection[T any] struct {
	name string
	o    CollectionOptions[T]
}

// CollectionOptions of NewCollection. The zero value is useful.
type CollectionOptions[T any] struct {
	// ID takes a document's natural id from its fields. Without it, Insert
	// lets the store make one: 16 characters in order of time.
	ID func(T) any
	// Codec for new bodies; nil: JSON.
	Codec Codec
	// History: how many earlier versions keep their bodies; default none.
	History History
	// RevLimit: how many ancestors' revisions are kept; 0: DefaultRevLimit.
	RevLimit uint32
	// Schema is the version of T. Raise it when T changes its meaning, and
	// have Migrate turn older bodies into T: it runs when such a document is
	// read, and the next write stores the new form. MigrateAll does so at once.
	Schema  uint32
	Migrate func(old *Document) (T, error)
}

// NewCollection declares a collection. It panics if the name is against
// CheckCollectionName's rule, as that is a mistake in the program.
func NewCollection[T any](name string, opts ...CollectionOptions[T]) *Collection[T] {
	if err := CheckCollectionName(name); err != nil {
		panic(err)
	}
	c := &Collection[T]{name: name}
	if len(opts) > 0 {
		c.o = opts[0]
	}
	if c.o.Codec == nil {
		c.o.Codec = JSON
	}
	return c
}

// Name returns the collection's name.
func (c *Collection[T]) Name() string { return c.name }

func (c *Collection[T]) declare() *Op {
	return &Op{Kind: OpCollection, Collection: c.name, Settings: &Settings{
		Codec: c.o.Codec.Tag(), History: c.o.History, RevLimit: c.o.RevLimit, Schema: c.o.Schema,
	}}
}

// Insert adds a document under its natural id, or a new id made by the store.
// ErrConflict if a live document has that id.
func (c *Collection[T]) Insert(ctx context.Context, w Writer, v T) (Doc[T], error) {
	var id any
	if c.o.ID != nil {
		id = c.o.ID(v)
	}
	return c.put(ctx, w, "insert", id, Op{Expect: ExpectAbsent}, v)
}

// InsertWithID adds a document under the given id. ErrConflict if a live
// document has it.
func (c *Collection[T]) InsertWithID(ctx context.Context, w Writer, id any, v T) (Doc[T], error) {
	return c.put(ctx, w, "insert", id, Op{Expect: ExpectAbsent}, v)
}

// Update writes doc.Value over the revision doc.Rev. ErrConflict if that is
// not a leaf any more: somebody else has changed the document. In a
// transaction, a document that the transaction has written itself has no
// revision yet and is written over.
func (c *Collection[T]) Update(ctx context.Context, w Writer, doc Doc[T]) (Doc[T], error) {
	op := Op{Expect: ExpectRev, Rev: doc.Rev}
	if _, tx := w.(*Tx); tx && doc.Rev.IsZero() {
		op = Op{Expect: ExpectPresent}
	}
	return c.put(ctx, w, "update", doc.ID, op, doc.Value)
}

// Overwrite writes v over the document, whatever its revision; ErrNotFound if
// there is none.
func (c *Collection[T]) Overwrite(ctx context.Context, w Writer, id any, v T) (Doc[T], error) {
	return c.put(ctx, w, "overwrite", id, Op{Expect: ExpectPresent}, v)
}

// Upsert writes v under id, whether there is a document or not.
func (c *Collection[T]) Upsert(ctx context.Context, w Writer, id any, v T) (Doc[T], error) {
	return c.put(ctx, w, "upsert", id, Op{Expect: ExpectAny}, v)
}

// Delete deletes the document. With a revision it must be a leaf
// (ErrConflict), which also ends the losing branch of a conflict; with the
// zero Rev whatever is there is deleted. ErrNotFound if there is nothing.
func (c *Collection[T]) Delete(ctx context.Context, w Writer, id any, rev Rev) error {
	key, err := c.id("delete", id)
	if err != nil {
		return err
	}
	op := Op{Kind: OpPut, Collection: c.name, ID: key, Expect: ExpectPresent, Deleted: true, Codec: c.o.Codec.Tag(), Schema: c.o.Schema}
	if !rev.IsZero() {
		op.Expect, op.Rev = ExpectRev, rev
	}
	_, err = w.write(ctx, &op)
	return err
}

// Modify reads the document, lets change work on it, and writes it back,
// again from the start when somebody else came in between. An error of change
// ends it.
func (c *Collection[T]) Modify(ctx context.Context, db *DB, id any, change func(*T) error) (Doc[T], error) {
	for attempt := 0; ; attempt++ {
		doc, err := c.Get(ctx, db, id)
		if err != nil {
			return doc, err
		}
		if err := change(&doc.Value); err != nil {
			return doc, err
		}
		doc, err = c.Update(ctx, db, doc)
		if err == nil || KindOf(err) != KindConflict || attempt >= maxAttempts {
			return doc, err
		}
		if err := backoff(ctx, attempt); err != nil {
			return doc, &Error{Kind: KindCanceled, Op: "modify", DB: db.name, Collection: c.name, Err: err}
		}
	}
}

// Graft takes a foreign revision together with its ancestry, path, newest
// first. It is added as a leaf of the document's revision tree, or extends
// one; a known revision changes nothing. Conflicts are kept, and the winner is
// the same on every replica.
func (c *Collection[T]) Graft(ctx context.Context, w Writer, id any, path []Rev, v T) error {
	body, err := c.o.Codec.Append(nil, v)
	if err != nil {
		return c.wrap("graft", err)
	}
	return c.graft(ctx, w, id, &Op{Path: path, Body: body})
}

// GraftDeletion is Graft for a revision that deletes the document.
func (c *Collection[T]) GraftDeletion(ctx context.Context, w Writer, id any, path []Rev) error {
	return c.graft(ctx, w, id, &Op{Path: path, Deleted: true})
}

func (c *Collection[T]) graft(ctx context.Context, w Writer, id any, op *Op) error {
	key, err := c.id("graft", id)
	if err != nil {
		return err
	}
	op.Kind, op.Collection, op.ID = OpGraft, c.name, key
	op.Codec, op.Schema = c.o.Codec.Tag(), c.o.Schema
	_, err = w.write(ctx, op)
	return err
}

func (c *Collection[T]) put(ctx context.Context, w Writer, step string, id any, op Op, v T) (Doc[T], error) {
	op.Kind, op.Collection = OpPut, c.name
	if id != nil {
		key, err := c.id(step, id)
		if err != nil {
			return Doc[T]{}, err
		}
		op.ID = key
	}
	var err error
	if op.Body, err = c.o.Codec.Append(nil, v); err != nil {
		return Doc[T]{}, c.wrap(step, err)
	}
	op.Codec, op.Schema, op.KeepAttachments = c.o.Codec.Tag(), c.o.Schema, op.Expect != ExpectAbsent
	res, err := w.write(ctx, &op)
	if err != nil {
		return Doc[T]{}, err
	}
	return Doc[T]{ID: res.ID, Rev: res.Rev, Seq: res.Seq, Value: v}, nil
}

func (c *Collection[T]) id(step string, id any) (ID, error) {
	key, err := IDOf(id)
	if err == nil && key.IsZero() {
		err = invalid(step, "no document id given")
	}
	return key, err
}

func (c *Collection[T]) wrap(step string, err error) error {
	return &Error{Kind: KindInvalid, Op: step, Collection: c.name, Err: err}
}

// Get reads the document with that id. ErrNotFound if there is none, and
// ErrDeleted too if it has been deleted. Cost: one look-up in the engine.
func (c *Collection[T]) Get(ctx context.Context, r Reader, id any) (Doc[T], error) {
	key, err := c.id("get", id)
	if err != nil {
		return Doc[T]{}, err
	}
	if db, ok := r.(*DB); ok {
		if g, ok := db.backend.(documentGetter); ok {
			return c.get(ctx, db, g, key)
		}
	}
	return c.one(ctx, r, &Query{Kind: QueryGet, Collection: c.name, IDs: []ID{key}, Parts: WithBody})
}

// get takes the shorter way to a document.
func (c *Collection[T]) get(ctx context.Context, db *DB, g documentGetter, id ID) (Doc[T], error) {
	d := db.store.scratch.Get().(*Document)
	defer func() {
		*d = Document{}
		db.store.scratch.Put(d)
	}()
	found, release, err := g.GetDocument(ctx, db.name, c.name, id, d)
	if err != nil {
		return Doc[T]{}, err
	}
	if !found || d.Deleted {
		kind := KindNotFound
		if found {
			kind = KindDeleted
			release.Close()
		}
		return Doc[T]{}, &Error{Kind: kind, Op: "get", DB: db.name, Collection: c.name, ID: id.String()}
	}
	defer release.Close()
	doc := docOf[T](d)
	err = c.decodeInto(db, db.name, d, &doc.Value)
	return doc, err
}

// GetRev reads one version. ErrNotFound if the revision is unknown or its body
// is not kept any more.
func (c *Collection[T]) GetRev(ctx context.Context, r Reader, id any, rev Rev) (Doc[T], error) {
	key, err := c.id("get revision", id)
	if err != nil {
		return Doc[T]{}, err
	}
	return c.one(ctx, r, &Query{Kind: QueryRevs, Collection: c.name, IDs: []ID{key}, Revs: []Rev{rev}, Parts: WithBody})
}

// one reads a single row, which must be there with its body.
func (c *Collection[T]) one(ctx context.Context, r Reader, q *Query) (Doc[T], error) {
	for row, err := range r.query(ctx, q) {
		if err != nil {
			return Doc[T]{}, err
		}
		if row.Missing || row.Deleted || row.Body == nil {
			kind := KindNotFound
			if row.Deleted {
				kind = KindDeleted
			}
			e := &Error{Kind: kind, Op: "get", DB: q.DB, Collection: c.name, ID: q.IDs[0].String()}
			if !row.Missing && !row.Deleted {
				e.Err = fmt.Errorf("the body of revision %v is not kept any more", row.Rev)
			}
			return Doc[T]{}, e
		}
		return c.decode(r, q, &row.Document)
	}
	return Doc[T]{}, &Error{Kind: KindNotFound, Op: "get", DB: q.DB, Collection: c.name, ID: q.IDs[0].String()}
}

// GetMany reads documents in the order of ids; the entry of one that is not
// there is nil.
func (c *Collection[T]) GetMany(ctx context.Context, r Reader, ids ...any) ([]*Doc[T], error) {
	q := &Query{Kind: QueryGet, Collection: c.name, IDs: make([]ID, len(ids)), Parts: WithBody}
	for i, id := range ids {
		var err error
		if q.IDs[i], err = c.id("get", id); err != nil {
			return nil, err
		}
	}
	out := make([]*Doc[T], 0, len(ids))
	for row, err := range r.query(ctx, q) {
		if err != nil {
			return nil, err
		}
		if row.Missing {
			out = append(out, nil)
			continue
		}
		doc := docOf[T](&row.Document)
		if err := c.decodeInto(r, q.DB, &row.Document, &doc.Value); err != nil {
			return nil, err
		}
		out = append(out, &doc)
	}
	return out, nil
}

// ListOptions choose what List shows. The zero value is all documents in
// order of their ids.
type ListOptions struct {
	From, Until any // ids from From on, up to but without Until; nil is open
	// Prefix keeps ids that begin so: of a string, the strings that begin
	// with it; of a Tuple, the tuples whose first fields it is.
	Prefix    any
	Reverse   bool
	Skip      int
	Limit     int  // 0: no limit
	NoBody    bool // ids and revisions only
	Deleted   bool // deleted documents too; their Value is zero
	Conflicts bool // fill Conflicts
}

// List streams documents in order of their ids, all of one state. Cost: one
// engine step a document.
func (c *Collection[T]) List(ctx context.Context, r Reader, o *ListOptions) iter.Seq2[Doc[T], error] {
	return func(yield func(Doc[T], error) bool) {
		q, err := c.scan(o)
		if err != nil {
			yield(Doc[T]{}, err)
			return
		}
		value := new(T) // for all rows: decoders take its address
		for row, err := range r.query(ctx, q) {
			doc := docOf[T](&row.Document)
			if err == nil {
				*value = doc.Value
				err = c.decodeInto(r, q.DB, &row.Document, value)
				doc.Value = *value
			}
			if !yield(doc, err) || err != nil {
				return
			}
		}
	}
}

func (c *Collection[T]) scan(o *ListOptions) (*Query, error) {
	q := &Query{Kind: QueryScan, Collection: c.name, Parts: WithBody}
	if o == nil {
		return q, nil
	}
	q.Reverse, q.Skip, q.Limit, q.Deleted = o.Reverse, o.Skip, o.Limit, o.Deleted
	if o.NoBody {
		q.Parts = 0
	}
	if o.Conflicts {
		q.Parts |= WithConflicts
	}
	from, err := IDOf(o.From)
	if err != nil {
		return nil, err
	}
	until, err := IDOf(o.Until)
	if err != nil {
		return nil, err
	}
	q.Start, q.End = from.key, until.key
	if o.Prefix == nil {
		return q, nil
	}
	start, end, err := PrefixRange(o.Prefix)
	if err != nil {
		return nil, err
	}
	q.Start = max(q.Start, start)
	if q.End == "" || end != "" && end < q.End {
		q.End = end
	}
	return q, nil
}

// PrefixRange returns the bounds, for Query.Start and End, of the ids that begin
// with p: of a string (or an ID of one), the strings that begin with it; of a
// Tuple, the tuples whose first fields it is. Other types have no prefixes:
// ErrInvalid.
func PrefixRange(p any) (start, end string, err error) {
	var b []byte
	if id, ok := p.(ID); ok {
		p = id.Value()
	}
	switch x := p.(type) {
	case string:
		b = keys.StringPrefix(nil, x)
	case Tuple:
		if b, err = keys.Append(nil, x); err == nil {
			b = b[:len(b)-1] // without the terminator, so that more fields may follow
		}
	default:
		err = fmt.Errorf("a prefix is a string or a Tuple, not %T", p)
	}
	if err != nil {
		return "", "", &Error{Kind: KindInvalid, Op: "list by prefix", Err: err}
	}
	return string(b), string(keys.PrefixEnd(b)), nil
}

// Count returns the number of live documents, in O(1).
func (c *Collection[T]) Count(ctx context.Context, r Reader) (uint64, error) {
	for row, err := range r.query(ctx, &Query{Kind: QueryInfo, Collection: c.name}) {
		if err != nil {
			return 0, err
		}
		if info := row.DB.collection(c.name); info != nil {
			return info.Count, nil
		}
	}
	return 0, nil
}

// docOf makes a Doc of all but the body.
func docOf[T any](d *Document) Doc[T] {
	return Doc[T]{ID: d.ID, Rev: d.Rev, Seq: d.Seq, Time: d.Time, Deleted: d.Deleted, Attachments: d.Attachments, Conflicts: d.Conflicts}
}

// decode makes a Doc of a row.
func (c *Collection[T]) decode(r Reader, q *Query, d *Document) (Doc[T], error) {
	value := new(T)
	err := c.decodeInto(r, q.DB, d, value)
	doc := docOf[T](d)
	doc.Value = *value
	return doc, err
}

// decodeInto decodes a row's body; without one, value stays as it is.
func (c *Collection[T]) decodeInto(r Reader, db string, d *Document, value *T) (err error) {
	if d.Body == nil || d.Deleted {
		return nil
	}
	switch {
	case d.Schema < c.o.Schema && c.o.Migrate != nil:
		old := *d // so that only this case moves the row to the heap
		*value, err = c.o.Migrate(&old)
	case d.Schema > c.o.Schema && c.o.Schema > 0:
		err = &Error{Kind: KindUnsupported, Op: "decode", DB: db, Collection: c.name, ID: d.ID.String(),
			Err: fmt.Errorf("schema version %d, this program knows %d: run a newer program", d.Schema, c.o.Schema)}
	default:
		codec := c.o.Codec
		if d.Codec != codec.Tag() {
			if codec, err = r.set().codecs.lookup(d.Codec); err != nil {
				break
			}
		}
		err = codec.Decode(d.Body, value)
	}
	if err != nil {
		var own *Error
		if errors.As(err, &own) {
			named := *own
			named.DB, named.Collection, named.ID = db, c.name, d.ID.String()
			return &named
		}
		return &Error{Kind: KindInvalid, Op: "decode", DB: db, Collection: c.name, ID: d.ID.String(), Err: err}
	}
	return nil
}
