package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
	"github.com/osierdb/osier/internal/store"
)

// kvRow begins the keys of a database's key-values; the space's letter follows.
func kvRow(dst []byte, db uint32) []byte {
	dst = prefix(dst, db, 0, 0)
	return dst[:len(dst)-1]
}

// kvBase reads rows of key-values from a source.
type kvBase struct {
	src   source
	db    uint32
	key   []byte
	value []byte
}

// Get reads a row into memory of the base.
func (b *kvBase) Get(key []byte) ([]byte, bool, error) {
	b.key = append(kvRow(b.key[:0], b.db), key...)
	v, closer, err := b.src.Get(b.key)
	if err == store.ErrNotFound || errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	b.value = append(b.value[:0], v...)
	closer.Close()
	return b.value, true, nil
}

// Scan reads rows in order.
func (b *kvBase) Scan(lo, hi []byte, reverse bool, fn func(key, value []byte) bool) error {
	row := kvRow(nil, b.db)
	lower := append(append([]byte(nil), row...), lo...)
	upper := append(append([]byte(nil), row...), hi...)
	if hi == nil {
		upper = kv.PrefixEnd(row)
	}
	it, err := b.src.NewIter(lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	step, ok := it.Next, false
	if reverse {
		step, ok = it.Prev, it.Last()
	} else {
		ok = it.First()
	}
	for ; ok; ok = step() {
		if !fn(it.Key()[len(row):], it.Value()) {
			return nil
		}
	}
	return it.Error()
}

// space is the command's view of the database's key-values.
func (r *run) space() *kv.Space {
	if r.kv == nil {
		r.kv = kv.NewSpace(&kvBase{src: r.a.b, db: r.db.num}, r.cmd.Sealed.Time.UnixMilli())
		if r.db.kvCounters == nil {
			r.db.kvCounters = new(kv.Counters)
		}
		r.kv.Counters = r.db.kvCounters
	}
	return r.kv
}

// sealKV fixes the versions that a command's operations give.
func (e *Engine) sealKV(db *database, c *osier.Command) {
	n := uint64(0)
	for i := range c.Ops {
		if k := c.Ops[i].Kind; k == osier.OpKV || k == osier.OpKVExpire {
			n++
		}
	}
	if n == 0 {
		return
	}
	m := e.kvOf(db)
	if c.Sealed.KVVersion == 0 {
		c.Sealed.KVVersion = m.version.Add(n) - n + 1
		return
	}
	advance(&m.version, c.Sealed.KVVersion+n-1)
}

// operateKV carries out an operation on key-values.
func (r *run) operateKV(i int) (osier.OpResult, error) {
	op := &r.cmd.Ops[i]
	version := r.cmd.Sealed.KVVersion
	for k := range i {
		if kind := r.cmd.Ops[k].Kind; kind == osier.OpKV || kind == osier.OpKVExpire {
			version++
		}
	}
	if op.KV == nil {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "change", "no operation on key-values given")
	}
	s := r.space()
	switch op.Kind {
	case osier.OpKV:
		res := new(osier.KVResult)
		if err := s.Do(op.KV, version, res); err != nil {
			return osier.OpResult{}, named(err, r.db.name, op.KV.Namespace, op.KV.Key)
		}
		return osier.OpResult{KV: res}, nil
	case osier.OpKVExpire:
		gone, err := s.Expire(op.KV.Namespace, op.KV.Key, op.KV.Deadline, version)
		return osier.OpResult{KV: &osier.KVResult{Found: gone}}, err
	case osier.OpKVDrop:
		existed, err := s.Drop(op.KV.Namespace)
		if existed {
			r.kvDrops = append(r.kvDrops, op.KV.Namespace)
			// What the command did to it before is of no account.
			kept := s.Events[:0]
			for _, ev := range s.Events {
				if ev.Namespace != op.KV.Namespace {
					kept = append(kept, ev)
				}
			}
			s.Events = kept
		}
		return osier.OpResult{KV: &osier.KVResult{Found: existed}}, err
	}
	// What was written behind was judged when it happened in memory.
	if len(r.cmd.Ops) > 1 {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "write behind", "it must be the only operation")
	}
	r.behind = op.KV.Packed
	return osier.OpResult{}, nil
}

// flushKV writes what the command has changed into the batch.
func (r *run) flushKV() error {
	if r.kv == nil {
		return nil
	}
	b, db := r.a.b, r.db.num
	r.a.counted = append(r.a.counted, r.db)
	if r.behind != nil {
		if err := kv.Behind(r.behind, r.kv, b, func(dst []byte) []byte { return kvRow(dst, db) }); err != nil {
			return err
		}
	}
	if err := r.kv.Finish(); err != nil {
		return err
	}
	row := func(key []byte) []byte { return append(kvRow(nil, db), key...) }
	err := r.kv.Rows.Flush(
		func(key, value []byte) error { return b.Set(row(key), value) },
		func(key []byte) error { return b.Delete(row(key)) },
		func(lo, hi []byte) error { return b.DeleteRange(row(lo), row(hi)) },
	)
	if err != nil {
		return err
	}
	if m := r.db.kv.Load(); m != nil {
		g := r.a.kvGroup(m)
		if r.behind != nil && !r.a.ownBehind {
			// From a log: memory does not know it yet. It was read once already.
			_ = kv.ReadPacked(r.behind, func(name string, p *kv.Packed) error {
				g.events = append(g.events, kv.Event{Namespace: name, Key: string(p.Key), Entry: p.Entry})
				return nil
			})
		}
		g.drops = append(g.drops, r.kvDrops...)
		g.events = append(g.events, r.kv.Events...)
	}
	return nil
}

// finishKV writes the counters of key-values that the group moved.
func (a *applier) finishKV() error {
	for _, db := range a.counted {
		if slices.Contains(a.dropped, db) {
			continue
		}
		if err := db.kvCounters.Flush(func(key, value []byte) error { return a.b.Set(append(kvRow(nil, db.num), key...), value) }); err != nil {
			return err
		}
	}
	return nil
}

// kvChanged judges what a transaction has seen of key-values.
func (r *run) kvChanged(rd *osier.KVRead) (bool, error) {
	s := r.space()
	switch {
	case rd.Key != "":
		v, err := s.Version(rd.Namespace, rd.Key)
		return v != rd.Version, err
	case rd.Whole:
		v, err := s.Newest(rd.Namespace)
		return v != rd.Version, err
	}
	d, err := s.Digest(rd)
	return d != rd.Digest, err
}

// checkKVCommand refuses what no state could make right, and what is beyond the
// limits.
func (e *Engine) checkKVCommand(c *osier.Command) error {
	for i := range c.Ops {
		op := &c.Ops[i]
		if op.Kind < osier.OpKV || op.Kind > osier.OpKVDrop {
			continue
		}
		err := error(nil)
		switch {
		case op.KV == nil:
			err = &osier.Error{Kind: osier.KindInvalid, Op: "change", DB: c.DB, Err: errors.New("no operation on key-values given")}
		case op.Kind == osier.OpKV:
			if err = e.checkKVOp(op.KV); err != nil {
				err = named(err, c.DB, op.KV.Namespace, op.KV.Key)
			}
		case op.Kind == osier.OpKVDrop:
			err = osier.CheckKVName(op.KV.Namespace)
		case op.Kind == osier.OpKVBehind:
			err = kv.ReadPacked(op.KV.Packed, func(name string, _ *kv.Packed) error { return osier.CheckKVName(name) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) checkKVOp(op *osier.KVOp) error {
	if err := osier.CheckKVName(op.Namespace); err != nil {
		return err
	}
	if err := e.checkKVKey("change", op.Key); err != nil {
		return err
	}
	l := &e.opts.KVLimits
	fail := func(kind osier.Kind, format string, args ...any) error { return kv.Fail(op, kind, format, args...) }
	size := max(len(op.Value), len(op.IfValue))
	if len(op.Items) > l.Elements {
		return fail(osier.KindTooLarge, "%d elements, at most %d are allowed in one operation", len(op.Items), l.Elements)
	}
	total := len(op.Value)
	for i := range op.Items {
		if len(op.Items[i].Name) > l.KeyBytes {
			return fail(osier.KindTooLarge, "a name of %d bytes, at most %d are allowed", len(op.Items[i].Name), l.KeyBytes)
		}
		size = max(size, len(op.Items[i].Value))
		total += len(op.Items[i].Value)
	}
	if size > l.ValueBytes || total > MaxBodyBytes {
		return fail(osier.KindTooLarge, "a value of %d bytes, at most %d are allowed, and %d in one operation", size, l.ValueBytes, MaxBodyBytes)
	}
	if op.TTL < 0 || op.Deadline < 0 || op.Keep && (op.TTL > 0 || op.Deadline > 0) {
		return fail(osier.KindInvalid, "a time to live is more than 0, and not given with one that is kept")
	}
	if op.If > osier.IfVersion || op.Overflow > osier.Fail {
		return fail(osier.KindInvalid, "unknown condition %d or overflow %d", op.If, op.Overflow)
	}
	if n := op.Count; (op.Verb == osier.KVListPop || op.Verb == osier.KVSortedPop) && (n < 0 || n > int64(l.Elements)) {
		return fail(osier.KindTooLarge, "%d elements, 0 to %d are allowed in one operation", n, l.Elements)
	}
	return nil
}

func (e *Engine) checkKVQuery(q *osier.Query) error {
	fail := func(kind osier.Kind, text string) error {
		return &osier.Error{Kind: kind, Op: "query", DB: q.DB, Err: errors.New(text)}
	}
	if q.KV == nil {
		return fail(osier.KindInvalid, "a query of key-values needs its particulars")
	}
	k, l := q.KV, &e.opts.KVLimits
	if q.Kind != osier.QueryKVNamespaces {
		if err := osier.CheckKVName(k.Namespace); err != nil {
			return named(err, q.DB, k.Namespace, "")
		}
	}
	if len(k.Keys) > l.Elements || len(k.Names) > l.Elements || len(k.Pending) > l.Elements {
		return fail(osier.KindTooLarge, fmt.Sprintf("more than %d keys, names or operations", l.Elements))
	}
	for _, key := range k.Keys {
		if err := e.checkKVKey("read", key); err != nil {
			return named(err, q.DB, k.Namespace, "")
		}
	}
	for i := range k.Pending {
		if err := e.checkKVOp(&k.Pending[i]); err != nil {
			return named(err, q.DB, k.Namespace, "")
		}
	}
	return nil
}
