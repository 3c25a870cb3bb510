package osier

import (
	"context"
	"iter"
)

// kvResource is a namespace as rights name it: a grant for "kv:sessions" is for
// one namespace, for "kv:*" for all, and one for all collections covers them.
func kvResource(db, namespace string) Resource { return Resource{db, "kv:" + namespace} }

// resourceOf is what an operation is about.
func resourceOf(db string, op *Op) Resource {
	switch {
	case op.Kind == OpKVBehind:
		return Resource{DB: db} // it may hold any namespace
	case op.KV != nil:
		return kvResource(db, op.KV.Namespace)
	}
	return Resource{db, op.Collection}
}

// kvActions are the rights an operation takes: also to read, if its answer tells
// what was there.
func kvActions(op *KVOp) Action {
	if op == nil {
		return MayWrite
	}
	switch op.Verb {
	case KVSet, KVDelete, KVExpire, KVPersist, KVListPush, KVListTrim, KVListSet, KVHashSet, KVHashInsert, KVHashDelete,
		KVSetAdd, KVSetRemove, KVSortedAdd, KVSortedRemove, KVSortedRemoveRange, KVLeaseAcquire, KVLeaseRenew, KVLeaseRelease:
		if !op.Previous && op.If != IfEqual {
			return MayWrite
		}
	}
	return MayWrite | MayRead
}

// queryKV judges a query of key-values. What would be written to a copy must be
// allowed to be written.
func (g guard) queryKV(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	if err := g.judge("read", MayRead, kvResource(q.DB, q.KV.Namespace)); err != nil && q.Kind != QueryKVTry {
		return failed(err)
	}
	for i := range q.KV.Pending {
		if err := g.judge("change", kvActions(&q.KV.Pending[i]), kvResource(q.DB, q.KV.Pending[i].Namespace)); err != nil {
			return failed(err)
		}
	}
	return g.Backend.Query(ctx, q)
}

// visibleNamespaces lists the namespaces that may be read.
func (g guard) visibleNamespaces(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row, err := range g.Backend.Query(ctx, q) {
			if err == nil && !g.p.Can(MayRead, kvResource(q.DB, row.KV.Key)) {
				continue
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}
