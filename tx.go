package osier

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// maxAttempts bounds how often Update and Modify begin again.
const maxAttempts = 64

// Tx is a transaction in the hands of the function given to DB.Update. Its
// reads see one state of the database, and what the transaction itself has
// written; its writes become visible to others together, when the function
// has returned nil and the commit has found that nothing the function read
// has changed. It is not safe for concurrent use, nor after the function's
// return.
type Tx struct {
	db       *DB
	pin      uint64
	snapshot Seq
	drops    uint64
	reads    []Read
	read     map[docKey]bool
	writes   map[docKey]*Op
	order    []docKey // of first write
	kv       kvTx
	others   []Op  // what is no document's, in order
	err      error // set when the transaction is over
}

type docKey struct {
	collection string
	id         ID
}

var errTxOver = errors.New("the transaction is over")

// Update runs fn in a transaction and commits it. When others changed what fn
// read (documents, ranges, absences) the function is run again on the newer
// state: it must have no other effects. An error of fn rolls all back and is
// returned as it is.
func (db *DB) Update(ctx context.Context, fn func(tx *Tx) error) error {
	for attempt := 0; ; attempt++ {
		err := db.try(ctx, fn)
		var lost *lostRace
		if !errors.As(err, &lost) {
			return err
		}
		if attempt >= maxAttempts {
			return lost.error
		}
		if err := backoff(ctx, attempt); err != nil {
			return &Error{Kind: KindCanceled, Op: "update", DB: db.name, Err: err}
		}
	}
}

// lostRace marks a conflict that was found at the commit: another try may win.
type lostRace struct{ error }

func (l *lostRace) Unwrap() error { return l.error }

// backoff lets the others pass, longer with each attempt, up to some 10 ms.
func backoff(ctx context.Context, attempt int) error {
	if attempt < 2 {
		return ctx.Err()
	}
	t := time.NewTimer(rand.N(time.Duration(min(attempt, 16)) * 600 * time.Microsecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (db *DB) try(ctx context.Context, fn func(*Tx) error) error {
	tx := &Tx{db: db, read: map[docKey]bool{}, writes: map[docKey]*Op{}}
	for row, err := range db.Query(ctx, &Query{Kind: QueryPin}) {
		if err != nil {
			return err
		}
		tx.pin, tx.snapshot, tx.drops = row.Pin, row.Seq, row.DB.Drops
	}
	defer func() {
		tx.err = errTxOver
		for range db.Query(context.WithoutCancel(ctx), &Query{Kind: QueryUnpin, Pin: tx.pin}) {
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if tx.kv.broken != nil {
		return tx.kv.broken
	}
	if len(tx.order) == 0 && len(tx.kv.ops) == 0 && len(tx.others) == 0 {
		// All it read was one state; there is nothing to check.
		return nil
	}
	c := &Command{Snapshot: tx.snapshot, Drops: tx.drops, Reads: tx.reads}
	for _, k := range tx.order {
		if op := tx.writes[k]; op != nil {
			c.Ops = append(c.Ops, *op)
		}
	}
	for _, op := range tx.kv.ops {
		c.Ops = append(c.Ops, Op{Kind: OpKV, KV: op})
	}
	c.Ops = append(c.Ops, tx.others...)
	if len(c.Ops) == 0 {
		return nil
	}
	_, err := db.Exec(ctx, c)
	if KindOf(err) == KindConflict {
		return &lostRace{err}
	}
	return err
}

// Snapshot returns the sequence of the state that the transaction sees.
func (tx *Tx) Snapshot() Seq { return tx.snapshot }

func (tx *Tx) set() *Store { return tx.db.store }

func (tx *Tx) query(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	q.DB, q.Pin = tx.db.name, tx.pin
	if tx.err != nil {
		return failed(&Error{Kind: KindInvalid, Op: "query", DB: q.DB, Err: tx.err})
	}
	if q.KV != nil {
		return tx.queryKV(ctx, q)
	}
	switch q.Kind {
	case QueryGet:
		return tx.get(ctx, q)
	case QueryScan:
		return tx.scan(ctx, q)
	case QueryFind:
		return tx.find(ctx, q)
	case QueryView:
		return tx.view(ctx, q)
	case QueryInfo:
		// Counts depend on every document.
		tx.reads = append(tx.reads, Read{Collection: q.Collection})
		return tx.info(ctx, q)
	}
	if _, ok := JournalName(q.Collection); ok {
		return tx.journal(ctx, q)
	}
	for _, id := range q.IDs {
		tx.note(q.Collection, id)
	}
	return tx.db.backend.Query(ctx, q)
}

func failed(err error) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) { yield(Row{}, err) }
}

// note records that a document's state was looked at.
func (tx *Tx) note(collection string, id ID) {
	k := docKey{collection, id}
	if !tx.read[k] {
		tx.read[k] = true
		tx.reads = append(tx.reads, Read{Collection: collection, ID: id})
	}
}

// get answers from the transaction's own writes first.
func (tx *Tx) get(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for _, id := range q.IDs {
			if op := tx.writes[docKey{q.Collection, id}]; op != nil {
				if !yield(pending(q, op), nil) {
					return
				}
				continue
			}
			one := *q
			one.IDs = []ID{id}
			for row, err := range tx.db.backend.Query(ctx, &one) {
				if err == nil {
					tx.note(q.Collection, id)
				}
				if !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}

// pending shows a write that is not committed yet; it has no revision, and its
// attachments are seen after the commit.
func pending(q *Query, op *Op) Row {
	row := Row{Missing: op.Deleted, Document: Document{ID: op.ID, Deleted: op.Deleted, Codec: op.Codec, Schema: op.Schema}}
	if q.Parts&WithBody != 0 {
		row.Body = op.Body
	}
	return row
}

// scan merges the transaction's own writes into a range.
func (tx *Tx) scan(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		own, merges := tx.ownRange(q)
		s := &txScan{q: q, yield: yield, seen: Read{Collection: q.Collection, Start: q.Start, End: q.End}}
		under := *q
		if merges {
			s.skip = q.Skip
			under.Skip, under.Limit = 0, 0
		}
		defer func() {
			if !s.failed {
				tx.reads = append(tx.reads, s.seen)
			}
		}()
		for row, err := range tx.db.backend.Query(ctx, &under) {
			for err == nil && len(own) > 0 && tx.before(q, own[0].ID, row.ID) {
				if !s.emit(pending(q, own[0]), nil) {
					return
				}
				own = own[1:]
			}
			if err == nil && tx.writes[docKey{q.Collection, row.ID}] != nil {
				continue // own has it
			}
			if !s.emit(row, err) {
				return
			}
		}
		for _, op := range own {
			if !s.emit(pending(q, op), nil) {
				return
			}
		}
	}
}

// txScan is a range being shown to a transaction. What it counts as seen
// reaches to where the reader stopped.
type txScan struct {
	q      *Query
	yield  func(Row, error) bool
	skip   int // rows to pass over here, not below
	shown  int
	seen   Read
	failed bool
}

// emit shows a row and tells whether to go on.
func (s *txScan) emit(row Row, err error) bool {
	if err != nil {
		s.failed = true
		s.yield(row, err)
		return false
	}
	if s.skip > 0 {
		s.skip--
		return true
	}
	more := s.yield(row, nil)
	if s.shown++; more && s.shown != s.q.Limit {
		return true
	}
	if s.q.Reverse {
		s.seen.Start = row.ID.key
	} else {
		s.seen.End = row.ID.key + "\x00"
	}
	return false
}

// before tells whether own write a comes no later than row b.
func (tx *Tx) before(q *Query, a, b ID) bool {
	if q.Reverse {
		return a.key >= b.key
	}
	return a.key <= b.key
}

// ownRange returns the transaction's writes within a scan's range, in its
// order. merges tells whether there are any, shown or not.
func (tx *Tx) ownRange(q *Query) (own []*Op, merges bool) {
	for _, k := range tx.order {
		op := tx.writes[k]
		if op == nil || k.collection != q.Collection || k.id.key < q.Start || q.End != "" && k.id.key >= q.End {
			continue
		}
		own = append(own, op)
	}
	slices.SortFunc(own, func(a, b *Op) int { return strings.Compare(a.ID.key, b.ID.key) })
	if q.Reverse {
		slices.Reverse(own)
	}
	merges = len(own) > 0
	if !q.Deleted {
		// Deleted ones still hide the row below them.
		kept := own[:0:0]
		for _, op := range own {
			if !op.Deleted {
				kept = append(kept, op)
			}
		}
		own = kept
	}
	return own, merges
}

// info shows the database with the transaction's own writes counted in.
func (tx *Tx) info(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row, err := range tx.db.backend.Query(ctx, q) {
			if err != nil {
				yield(row, err)
				return
			}
			for _, k := range tx.order {
				if err := tx.recount(ctx, row.DB, k); err != nil {
					yield(Row{}, err)
					return
				}
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// recount corrects a collection's count for one of the transaction's writes.
func (tx *Tx) recount(ctx context.Context, info *DBInfo, k docKey) error {
	op := tx.writes[k]
	if op == nil {
		return nil
	}
	c := info.collection(k.collection)
	if c == nil {
		info.Collections = append(info.Collections, CollectionInfo{Name: k.collection})
		c = &info.Collections[len(info.Collections)-1]
	}
	was, err := tx.base(ctx, k)
	if err != nil {
		return err
	}
	switch {
	case was.Missing && !op.Deleted:
		c.Count++
	case !was.Missing && op.Deleted:
		c.Count--
	}
	return nil
}

// base reads what the snapshot holds under k.
func (tx *Tx) base(ctx context.Context, k docKey) (Row, error) {
	q := &Query{Kind: QueryGet, DB: tx.db.name, Pin: tx.pin, Collection: k.collection, IDs: []ID{k.id}, Parts: WithBody | WithConflicts}
	for row, err := range tx.db.backend.Query(ctx, q) {
		if err == nil && row.Body != nil {
			row.Document = *row.Document.Clone()
		}
		return row, err
	}
	return Row{Missing: true}, nil
}

// write checks the expectation against what the transaction sees, so that a
// conflict at the commit always means a race, and keeps one operation a
// document.
func (tx *Tx) write(ctx context.Context, op *Op) (OpResult, error) {
	if tx.err != nil {
		return OpResult{}, &Error{Kind: KindInvalid, Op: "write", DB: tx.db.name, Err: tx.err}
	}
	if op.KV != nil {
		return tx.writeKV(ctx, op)
	}
	if op.Kind == OpAppend || op.Kind == OpTrim || op.Kind == OpPublish {
		tx.others = append(tx.others, *op)
		return OpResult{}, nil
	}
	if op.Kind != OpPut {
		return OpResult{}, &Error{Kind: KindUnsupported, Op: "write", DB: tx.db.name, Collection: op.Collection, ID: op.ID.String(),
			Err: errors.New("a transaction takes ordinary writes only; use a batch")}
	}
	own := *op
	fresh := own.ID.IsZero()
	if fresh {
		own.ID = MustID(tx.db.store.ids.Next(tx.db.store.now()))
	}
	k := docKey{own.Collection, own.ID}
	if prev := tx.writes[k]; prev != nil {
		return tx.rewrite(ctx, k, prev, &own)
	}
	if !fresh && own.Expect != ExpectAny {
		tx.note(k.collection, k.id)
		row, err := tx.base(ctx, k)
		if err != nil {
			return OpResult{}, err
		}
		if err := tx.expect(&own, row); err != nil {
			return OpResult{}, err
		}
	}
	if _, again := tx.writes[k]; !again {
		tx.order = append(tx.order, k)
	}
	tx.writes[k] = &own
	return OpResult{ID: own.ID}, nil
}

// expect is the precondition of a first write, on the transaction's state.
func (tx *Tx) expect(op *Op, row Row) error {
	live := !row.Missing && !row.Deleted
	kind := KindConflict
	switch op.Expect {
	case ExpectAbsent:
		if !live {
			return nil
		}
	case ExpectPresent:
		if live {
			return nil
		}
		if kind = KindNotFound; row.Deleted {
			kind = KindDeleted
		}
	case ExpectRev:
		leaves := append([]Leaf{{row.Rev, row.Deleted}}, row.Conflicts...)
		for _, l := range leaves {
			if l.Rev == op.Rev && !(op.Deleted && l.Deleted) {
				return nil
			}
		}
	}
	return &Error{Kind: kind, Op: "write", DB: tx.db.name, Collection: op.Collection, ID: op.ID.String()}
}

// newHere tells whether a document was made by the transaction's own write.
func (tx *Tx) newHere(ctx context.Context, k docKey, prev *Op) (bool, error) {
	if prev.Expect != ExpectAny {
		return prev.Expect == ExpectAbsent, nil
	}
	tx.note(k.collection, k.id)
	row, err := tx.base(ctx, k)
	return row.Missing || row.Deleted, err
}

// rewrite folds a second write to a document into the first.
func (tx *Tx) rewrite(ctx context.Context, k docKey, prev, op *Op) (OpResult, error) {
	fail := func(kind Kind) (OpResult, error) {
		return OpResult{}, &Error{Kind: kind, Op: "write", DB: tx.db.name, Collection: k.collection, ID: k.id.String()}
	}
	switch {
	case op.Expect == ExpectAbsent && !prev.Deleted:
		return fail(KindConflict)
	case op.Expect == ExpectPresent && prev.Deleted:
		return fail(KindNotFound)
	case op.Expect == ExpectRev && op.Rev != prev.Rev:
		return fail(KindConflict)
	}
	if op.Deleted {
		gone, err := tx.newHere(ctx, k, prev)
		if err != nil {
			return OpResult{}, err
		}
		if gone {
			// Made and deleted within the transaction: nothing remains.
			tx.writes[k] = nil
			return OpResult{ID: k.id}, nil
		}
	}
	merged := *op
	merged.Expect, merged.Rev = prev.Expect, prev.Rev
	tx.writes[k] = &merged
	return OpResult{ID: k.id}, nil
}

// view queries a view of the transaction's state, its own writes included. It
// counts as a read of the whole collection, as rows may come from any document.
func (tx *Tx) view(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		tx.reads = append(tx.reads, Read{Collection: q.Collection})
		for _, k := range tx.order {
			if op := tx.writes[k]; op != nil && k.collection == q.Collection {
				q.View.Pending = append(q.View.Pending, *op)
			}
		}
		for row, err := range tx.db.backend.Query(ctx, q) {
			if KindOf(err) == KindConflict {
				err = &lostRace{err} // the view was behind; another run finds it there
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}
