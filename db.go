package osier

import (
	"context"
	"iter"
	"slices"
	"time"
)

// DB is a handle on a database: the unit of naming, permission, backup and
// transaction. Handles are cheap and need no closing.
type DB struct {
	store   *Store
	backend Backend
	name    string
}

// Reader is where documents are read from: a *DB, which shows the latest
// state, or a *Tx, which shows its own.
type Reader interface {
	query(ctx context.Context, q *Query) iter.Seq2[Row, error]
	set() *Store
}

// Writer is where documents are written to: a *DB, which commits each write
// by itself, a *Tx or a *Batch, which commit theirs together.
type Writer interface {
	write(ctx context.Context, op *Op) (OpResult, error)
}

// Name returns the database's name.
func (db *DB) Name() string { return db.name }

// Backend returns what carries out this handle's requests, under the rights of
// the handle's principal.
func (db *DB) Backend() Backend { return db.backend }

// Info describes the database and its collections.
func (db *DB) Info(ctx context.Context) (*DBInfo, error) {
	for row, err := range db.backend.Query(ctx, &Query{Kind: QueryInfo, DB: db.name}) {
		if err != nil {
			return nil, err
		}
		return row.DB, nil
	}
	return nil, &Error{Kind: KindNotFound, Op: "info", DB: db.name}
}

// identifier is what a Backend may have beside its verbs: it knows which databases
// there are without a query. One that judges rights has it not.
type identifier interface {
	DatabaseUUID(name string) (id UUID, ok bool)
}

// UUID returns the database's identity: one that is made later under its name has
// another. ErrNotFound if it was dropped. It costs a look-up in memory where the
// store is in this process and the handle has all rights.
func (db *DB) UUID(ctx context.Context) (UUID, error) {
	if b, ok := db.backend.(identifier); ok {
		if id, ok := b.DatabaseUUID(db.name); ok {
			return id, nil
		}
	}
	// Describing one collection is a look-up; the whole would be measured.
	for row, err := range db.Query(ctx, &Query{Kind: QueryInfo, Collection: DefaultCollection}) {
		if err != nil {
			return UUID{}, err
		}
		return row.DB.UUID, nil
	}
	return UUID{}, &Error{Kind: KindNotFound, Op: "open", DB: db.name}
}

// DropCollection deletes a collection and all in it.
func (db *DB) DropCollection(ctx context.Context, name string) error {
	_, err := db.Exec(ctx, &Command{Ops: []Op{{Kind: OpDropCollection, Collection: name}}})
	return err
}

// Exec carries out a command that was put together by hand; its DB is set.
func (db *DB) Exec(ctx context.Context, c *Command) (*Result, error) {
	c.DB = db.name
	return db.backend.Exec(ctx, c)
}

// Query streams the answer to a query that was put together by hand; its DB is
// set.
func (db *DB) Query(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	q.DB = db.name
	return db.backend.Query(ctx, q)
}

// Watch streams changes of all collections, or of f.Collection. A nil f means
// all changes there are, once.
func (db *DB) Watch(ctx context.Context, f *Feed) iter.Seq2[Change, error] {
	var own Feed
	if f != nil {
		own = *f
	}
	own.DB = db.name
	return db.backend.Watch(ctx, &own)
}

// Transactions lists the executed transactions that took sequences after
// since, oldest first, at most limit (0: all that are kept).
func (db *DB) Transactions(ctx context.Context, since Seq, limit int) iter.Seq2[Transaction, error] {
	return func(yield func(Transaction, error) bool) {
		for row, err := range db.backend.Query(ctx, &Query{Kind: QueryTransactions, DB: db.name, Seq: since, Limit: limit}) {
			if err != nil {
				yield(Transaction{}, err)
				return
			}
			if !yield(*row.Tx, nil) {
				return
			}
		}
	}
}

// AppendJSON shows a document's body as JSON, whatever its codec.
func (db *DB) AppendJSON(dst []byte, d *Document) ([]byte, error) {
	codec, err := db.store.codecs.lookup(d.Codec)
	if err != nil {
		return dst, err
	}
	return codec.AppendJSON(dst, d.Body)
}

func (db *DB) set() *Store { return db.store }

func (db *DB) query(ctx context.Context, q *Query) iter.Seq2[Row, error] { return db.Query(ctx, q) }

func (db *DB) write(ctx context.Context, op *Op) (OpResult, error) {
	c := &Command{DB: db.name, Ops: []Op{*op}}
	res, err := db.backend.Exec(ctx, c)
	if err != nil {
		return OpResult{}, err
	}
	return res.Ops[0], nil
}

// With returns a handle whose writes have the given durability.
func (db *DB) With(d Durability) *DB {
	c := *db
	c.backend = durable{db.backend, d}
	return &c
}

// durable sets the durability of commands that leave it open.
type durable struct {
	Backend
	d Durability
}

func (b durable) Exec(ctx context.Context, c *Command) (*Result, error) {
	if c.Durability == DurabilityDefault {
		c.Durability = b.d
	}
	return b.Backend.Exec(ctx, c)
}

// Batch collects writes to be committed together, without a look at the
// present state: its writes return no revision yet. The zero value is ready;
// it is not safe for concurrent use.
type Batch struct {
	// PerDocument lets each write succeed or fail by itself within the one
	// commit; otherwise the first failure undoes all.
	PerDocument bool
	// Session and Number make the batch repeatable: see Command.
	Session    string
	Number     uint64
	Durability Durability

	ops []Op
}

// Len is the number of writes collected.
func (b *Batch) Len() int { return len(b.ops) }

func (b *Batch) write(_ context.Context, op *Op) (OpResult, error) {
	if len(b.ops) == cap(b.ops) {
		// Operations are large: append would move them a dozen times to a thousand.
		b.ops = slices.Grow(b.ops, max(8, len(b.ops)))
	}
	b.ops = append(b.ops, *op)
	return OpResult{ID: op.ID}, nil
}

// Commit carries out a batch. The result has an entry a write, in order; with
// PerDocument look at each entry's Err. The batch must not be used again.
func (db *DB) Commit(ctx context.Context, b *Batch) (*Result, error) {
	return db.Exec(ctx, &Command{Ops: b.ops, PerDocument: b.PerDocument, Session: b.Session, Number: b.Number, Durability: b.Durability})
}

// now is the store's clock, to the millisecond as stored times are.
func (s *Store) now() time.Time { return s.clock().Truncate(time.Millisecond) }
