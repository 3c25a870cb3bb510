package osier

import (
	"context"
	"errors"
	"iter"
)

// A transaction carries key-value operations in the order they were made. What
// they give is worked out by the backend on the transaction's state
// (KVQuery.Pending), by the same functions that the commit uses; what they
// depended on becomes a precondition by version, so that the commit gives the
// same or is a lost race.

// kvKey names a key within a database.
type kvKey struct{ namespace, key string }

// kvTx is a transaction's key-values.
type kvTx struct {
	ops   []*KVOp
	byKey map[kvKey][]*KVOp
	read  map[kvKey]bool
	// broken: a read could not be made a precondition; the commit fails.
	broken error
}

func (tx *Tx) noteKV(namespace, key string, version uint64) {
	k := kvKey{namespace, key}
	if tx.kv.read[k] {
		return
	}
	if tx.kv.read == nil {
		tx.kv.read = map[kvKey]bool{}
	}
	tx.kv.read[k] = true
	tx.reads = append(tx.reads, Read{KV: &KVRead{Namespace: namespace, Key: key, Version: version}})
}

// pendingKV lists the operations on keys, or, with none, on the namespace.
func (tx *Tx) pendingKV(namespace string, keys ...string) (ops []KVOp) {
	if len(keys) == 1 {
		for _, op := range tx.kv.byKey[kvKey{namespace, keys[0]}] {
			ops = append(ops, *op)
		}
		return ops
	}
	wanted := make(map[string]bool, len(keys))
	for _, k := range keys {
		wanted[k] = true
	}
	for _, op := range tx.kv.ops {
		if op.Namespace == namespace && (len(keys) == 0 || wanted[op.Key]) {
			ops = append(ops, *op)
		}
	}
	return ops
}

// writeKV takes an operation into the transaction.
func (tx *Tx) writeKV(ctx context.Context, op *Op) (OpResult, error) {
	if op.Kind != OpKV {
		return OpResult{}, &Error{Kind: KindUnsupported, Op: "write", DB: tx.db.name, Collection: "kv:" + op.KV.Namespace,
			Err: errors.New("a namespace is not dropped within a transaction")}
	}
	own := *op.KV
	if own.Verb >= KVLeaseAcquire {
		return OpResult{}, &Error{Kind: KindUnsupported, Op: "lease", DB: tx.db.name, Collection: "kv:" + own.Namespace, ID: own.Key,
			Err: errors.New("leases are taken and given back outside of transactions")}
	}
	res := &KVResult{Found: true, Type: KVPlain, Deadline: own.Deadline}
	if own.Verb != KVSet || own.If != IfAny || own.Previous {
		// It depends on what is there.
		q := &Query{Kind: QueryKVTry, DB: tx.db.name, Pin: tx.pin,
			KV: &KVQuery{Namespace: own.Namespace, Pending: append(tx.pendingKV(own.Namespace, own.Key), own)}}
		for row, err := range tx.db.backend.Query(ctx, q) {
			if err != nil {
				return OpResult{}, err
			}
			copied := *row.KV.Result
			res = &copied
			tx.noteKV(own.Namespace, own.Key, row.KV.Base)
			break
		}
	}
	k := kvKey{own.Namespace, own.Key}
	if tx.kv.byKey == nil {
		tx.kv.byKey = map[kvKey][]*KVOp{}
	}
	if own.Verb == KVSet && own.If == IfAny && !own.Keep {
		tx.forgetKV(k)
	}
	tx.kv.ops = append(tx.kv.ops, &own)
	tx.kv.byKey[k] = append(tx.kv.byKey[k], &own)
	res.Version = 0 // the commit gives it one
	return OpResult{KV: res}, nil
}

// DoKV takes an operation that was put together by hand into the transaction, and
// tells what it gives there.
func (tx *Tx) DoKV(ctx context.Context, op KVOp) (*KVResult, error) {
	res, err := tx.write(ctx, &Op{Kind: OpKV, KV: &op})
	return res.KV, err
}

// forgetKV drops the operations on a key that a write covers.
func (tx *Tx) forgetKV(k kvKey) {
	if len(tx.kv.byKey[k]) == 0 {
		return
	}
	kept := tx.kv.ops[:0]
	for _, op := range tx.kv.ops {
		if (kvKey{op.Namespace, op.Key}) != k {
			kept = append(kept, op)
		}
	}
	tx.kv.ops = kept
	delete(tx.kv.byKey, k)
}

// queryKV answers from the transaction's state and notes what was seen.
func (tx *Tx) queryKV(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	kq := *q.KV
	q.KV = &kq
	switch q.Kind {
	case QueryKVGet, QueryKVRead:
		return tx.keysKV(ctx, q)
	case QueryKVScan:
		return tx.scanKV(ctx, q)
	case QueryKVCount:
		return tx.countKV(ctx, q)
	}
	return failed(&Error{Kind: KindUnsupported, Op: "query", DB: q.DB, Err: errors.New("a transaction does not take this kind of query")})
}

// keysKV reads keys by name. Their versions before the transaction's own writes
// are asked for first.
func (tx *Tx) keysKV(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		head := &Query{Kind: QueryKVRead, DB: tx.db.name, Pin: tx.pin, KV: &KVQuery{Namespace: q.KV.Namespace, Keys: q.KV.Keys, Read: KVReadHead}}
		for row, err := range tx.db.backend.Query(ctx, head) {
			if err != nil {
				yield(Row{}, err)
				return
			}
			tx.noteKV(q.KV.Namespace, row.KV.Key, row.KV.Version)
		}
		q.KV.Pending = tx.pendingKV(q.KV.Namespace, q.KV.Keys...)
		for row, err := range tx.db.backend.Query(ctx, q) {
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// scanKV reads a range; what was not looked at is no precondition.
func (tx *Tx) scanKV(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		seen := KVRead{Namespace: q.KV.Namespace, Start: q.KV.Start, End: q.KV.End}
		q.KV.Pending = tx.pendingKV(q.KV.Namespace)
		shown, stopped := 0, false
		for row, err := range tx.db.backend.Query(ctx, q) {
			if err != nil {
				yield(Row{}, err)
				return
			}
			key := row.KV.Key
			more := yield(row, nil)
			if shown++; !more || shown == q.Limit {
				if q.Reverse {
					seen.Start = key
				} else {
					seen.End = key + "\x00"
				}
				stopped = !more
				break
			}
		}
		if err := tx.noteRange(ctx, &seen); err != nil && !stopped {
			yield(Row{}, err)
		} else if err != nil {
			tx.kv.broken = err
		}
	}
}

// noteRange sums up the part of a range that was seen, as it is below the
// transaction's own writes.
func (tx *Tx) noteRange(ctx context.Context, seen *KVRead) error {
	q := &Query{Kind: QueryKVScan, DB: tx.db.name, Pin: tx.pin, KV: &KVQuery{Namespace: seen.Namespace, Start: seen.Start, End: seen.End, NoValues: true}}
	d := NewKVDigest()
	for row, err := range tx.db.backend.Query(ctx, q) {
		if err != nil {
			return err
		}
		d.Add(row.KV.Key, row.KV.Version)
	}
	seen.Digest = d.Sum()
	tx.reads = append(tx.reads, Read{KV: seen})
	return nil
}

// countKV counts a namespace: any change in it is a conflict.
func (tx *Tx) countKV(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		base := &Query{Kind: QueryKVCount, DB: tx.db.name, Pin: tx.pin, KV: &KVQuery{Namespace: q.KV.Namespace}}
		for row, err := range tx.db.backend.Query(ctx, base) {
			if err != nil {
				yield(Row{}, err)
				return
			}
			tx.reads = append(tx.reads, Read{KV: &KVRead{Namespace: q.KV.Namespace, Whole: true, Version: row.KV.Version}})
		}
		q.KV.Pending = tx.pendingKV(q.KV.Namespace)
		for row, err := range tx.db.backend.Query(ctx, q) {
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}
