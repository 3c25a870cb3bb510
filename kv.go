package osier

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
)

// Namespace is a handle on the key-values of a name: small values by key, with
// conditions, numbers, expiry, and lists, hashes, sets, sorted sets and leases
// beside plain values. A namespace comes into being with its first key.
//
//	sessions := db.KV("sessions")
//	err := sessions.SetFor(ctx, "42", token, time.Hour)
//
// Keys are any bytes, up to 4 KiB, values up to 16 MiB (limits of the engine,
// which its options can change): more is ErrTooLarge. Writes of a *DB are Relaxed unless
// With says otherwise: they answer from memory and are written behind within the
// engine's interval (100 ms), in order. A crash may take back the last interval,
// never a part of the order: no later command of the database, at whatever level,
// survives an earlier one that is lost. Durable writes share the commit with
// documents.
//
// A get of a value in memory takes a look-up in a hash table, a copy, and no
// allocation (Append); one of a value that is not takes a look-up in the engine. Everything is safe for
// concurrent use, but for the handles of a Tx and a Batch. Kinds of errors beside
// those named: ErrInvalid for a key of another type, a bad number or a bad
// argument, ErrDenied, ErrClosed, ErrFull, ErrIO, and ErrNotFound if the
// database is not there.
type Namespace struct {
	db   *DB // nil for a batch
	r    Reader
	w    Writer
	name string
	fast KVSpace // nil: none, or not allowed
	set  bool    // fast may write
	err  error   // a bad name
}

// KVSpace is the shorter way to plain values in memory that a Backend may have
// beside its verbs (see OpenKV). What it does means the same as the commands
// and queries.
type KVSpace interface {
	// GetKV appends the value to dst.
	GetKV(ctx context.Context, dst []byte, key string) (value []byte, m KVMeta, err error)
	// SetKV carries out KVSet, Relaxed. done false: nothing happened, a command
	// is needed.
	SetKV(ctx context.Context, key string, value []byte, ttlMillis int64) (version uint64, done bool, err error)
	// DoKV carries out an operation on a plain value, Relaxed.
	DoKV(ctx context.Context, op *KVOp, res *KVResult) (done bool, err error)
}

// kvOpener is what a Backend with such a way has.
type kvOpener interface {
	OpenKV(db, namespace string) KVSpace
}

// KVMeta is what is known of a key beside its value.
type KVMeta struct {
	Type    KVType // KVNone: there is no such key
	Version uint64 // grows with every change, and is never used again for a key
	// Deadline in milliseconds since 1970; 0: none.
	Deadline int64
}

// Found reports whether there is a plain value.
func (m KVMeta) Found() bool { return m.Type == KVPlain }

// Expires returns the time from which on the key is gone; zero: never.
func (m KVMeta) Expires() time.Time { return deadlineTime(m.Deadline) }

func deadlineTime(millis int64) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis).UTC()
}

// KVEntry is a key with its value.
type KVEntry struct {
	Key   string
	Value []byte
	KVMeta
}

// CheckKVName applies the rule for collections to the name of a namespace.
func CheckKVName(name string) error {
	if err := CheckCollectionName(name); err != nil {
		return &Error{Kind: KindInvalid, Op: "name namespace", ID: name, Err: fmt.Errorf("want 1 to %d letters, digits or any of _ - . $", MaxNameBytes)}
	}
	return nil
}

// KV returns the namespace of that name. A bad name (see CheckKVName) fails with
// the first use.
func (db *DB) KV(namespace string) Namespace {
	n := Namespace{db: db, r: db, w: db, name: namespace, err: CheckKVName(namespace)}
	if o, ok := db.backend.(kvOpener); ok && n.err == nil {
		n.fast, n.set = o.OpenKV(db.name, namespace), true
	}
	return n
}

// KV returns the namespace within the transaction: reads see the transaction's
// state and its own writes, and are preconditions of the commit; writes happen
// with the commit, all or nothing with the documents'.
func (tx *Tx) KV(namespace string) Namespace {
	return Namespace{db: tx.db, r: tx, w: tx, name: namespace, err: CheckKVName(namespace)}
}

// KV returns the namespace within the batch: writes are collected, their results
// come with the commit; reads are ErrInvalid.
func (b *Batch) KV(namespace string) Namespace {
	return Namespace{w: b, name: namespace, err: CheckKVName(namespace)}
}

// Name returns the namespace's name.
func (n Namespace) Name() string { return n.name }

// With returns a handle whose writes have the given durability. In a transaction
// or batch the commit's counts, and With changes nothing.
func (n Namespace) With(d Durability) Namespace {
	if db, ok := n.w.(*DB); ok && n.db != nil {
		n.w = db.With(d)
		n.set = n.set && (d == Relaxed || d == DurabilityDefault)
	}
	return n
}

func (n Namespace) fail(kind Kind, step, key, text string) *Error {
	e := &Error{Kind: kind, Op: step, Collection: "kv:" + n.name, ID: key}
	if n.db != nil {
		e.DB = n.db.name
	}
	if text != "" {
		e.Err = errors.New(text)
	}
	return e
}

// do carries an operation out.
func (n Namespace) do(ctx context.Context, op *KVOp) (*KVResult, error) {
	if n.err != nil {
		return nil, n.err
	}
	op.Namespace = n.name
	if n.set && op.Verb <= KVAppend {
		res := new(KVResult)
		if done, err := n.fast.DoKV(ctx, op, res); done || err != nil {
			return res, err
		}
	}
	out, err := n.w.write(ctx, &Op{Kind: OpKV, KV: op})
	if err != nil {
		return nil, err
	}
	if out.KV == nil {
		return new(KVResult), nil // a batch's
	}
	return out.KV, nil
}

// query asks about key-values.
func (n Namespace) query(ctx context.Context, kind QueryKind, kq *KVQuery) iter.Seq2[Row, error] {
	return n.queryBounded(ctx, &Query{Kind: kind, KV: kq})
}

func (n Namespace) queryBounded(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	switch {
	case n.err != nil:
		return failed(n.err)
	case n.r == nil:
		return failed(n.fail(KindInvalid, "read", "", "a batch only writes"))
	}
	q.KV.Namespace = n.name
	return n.r.query(ctx, q)
}

// one reads a single row.
func (n Namespace) one(ctx context.Context, kind QueryKind, kq *KVQuery, show func(*KVRow)) error {
	for row, err := range n.query(ctx, kind, kq) {
		if err != nil {
			return err
		}
		show(row.KV)
		return nil
	}
	return n.fail(KindOther, "read", "", "the backend gave no answer")
}

// Append appends the key's value to dst, and returns what is known of the key.
// A vacant key is no error: Found tells. It is the way to read without an
// allocation.
func (n Namespace) Append(ctx context.Context, dst []byte, key string) ([]byte, KVMeta, error) {
	if n.fast != nil {
		return n.fast.GetKV(ctx, dst, key)
	}
	return n.appendByQuery(ctx, dst, key)
}

// appendByQuery is apart, so that what it moves to the heap costs the shorter way
// nothing.
func (n Namespace) appendByQuery(ctx context.Context, dst []byte, key string) ([]byte, KVMeta, error) {
	var m KVMeta
	err := n.one(ctx, QueryKVGet, &KVQuery{Keys: []string{key}}, func(row *KVRow) {
		m = KVMeta{row.Type, row.Version, row.Deadline}
		if row.Type == KVPlain {
			dst = append(dst, row.Item.Value...)
		}
	})
	return dst, m, err
}

// Get returns the key's value, in memory of its own. ErrNotFound if the key is
// vacant, ErrInvalid if it holds something else than a plain value.
func (n Namespace) Get(ctx context.Context, key string) (KVEntry, error) {
	value, m, err := n.Append(ctx, nil, key)
	if err != nil {
		return KVEntry{}, err
	}
	switch m.Type {
	case KVNone:
		return KVEntry{}, n.fail(KindNotFound, "get", key, "")
	case KVPlain:
		if value == nil {
			value = []byte{}
		}
		return KVEntry{key, value, m}, nil
	}
	return KVEntry{}, n.fail(KindInvalid, "get", key, "the key holds "+m.Type.String())
}

// GetMany returns the values of keys in their order, all of one state. The entry
// of a key without a plain value is not Found.
func (n Namespace) GetMany(ctx context.Context, keys ...string) ([]KVEntry, error) {
	out := make([]KVEntry, 0, len(keys))
	for row, err := range n.query(ctx, QueryKVGet, &KVQuery{Keys: keys}) {
		if err != nil {
			return nil, err
		}
		out = append(out, entryOf(row.KV))
	}
	return out, nil
}

func entryOf(row *KVRow) KVEntry {
	e := KVEntry{Key: row.Key, KVMeta: KVMeta{row.Type, row.Version, row.Deadline}}
	if row.Type == KVPlain {
		e.Value = append([]byte{}, row.Item.Value...)
	}
	return e
}

// Info returns what is known of a key of any type, its value left out.
func (n Namespace) Info(ctx context.Context, key string) (m KVMeta, err error) {
	err = n.one(ctx, QueryKVRead, &KVQuery{Keys: []string{key}, Read: KVReadHead}, func(row *KVRow) {
		m = KVMeta{row.Type, row.Version, row.Deadline}
	})
	return m, err
}

// Exists reports whether there is anything under the key.
func (n Namespace) Exists(ctx context.Context, key string) (bool, error) {
	m, err := n.Info(ctx, key)
	return m.Type != KVNone, err
}

// TimeLeft returns how long the key will live by the store's clock. Without an
// expiration expires is false; ErrNotFound if it is vacant.
func (n Namespace) TimeLeft(ctx context.Context, key string) (left time.Duration, expires bool, err error) {
	m, err := n.Info(ctx, key)
	if err != nil {
		return 0, false, err
	}
	if m.Type == KVNone {
		return 0, false, n.fail(KindNotFound, "get time to live", key, "")
	}
	if m.Deadline == 0 {
		return 0, false, nil
	}
	return m.Expires().Sub(n.db.store.now()), true, nil
}

// KVSetOptions are what a Put asks for beyond writing a value. The zero value
// writes and takes an expiration off.
type KVSetOptions struct {
	If      KVIf
	Version uint64 // for IfVersion
	Equal   []byte // for IfEqual
	// For is how long the value lives, to the millisecond; Until is the time
	// at which it is gone. At most one of them.
	For   time.Duration
	Until time.Time
	// KeepExpiration leaves the key's expiration as it is.
	KeepExpiration bool
	// Previous asks for the value that was there.
	Previous bool
}

// KVDone is what a write did.
type KVDone struct {
	Found    bool   // the key was there before
	Previous []byte // the plain value that was there, if asked for; nil: none
	KVMeta          // the key now
}

func doneOf(res *KVResult) KVDone {
	return KVDone{Found: res.Found, Previous: res.Value, KVMeta: KVMeta{res.Type, res.Version, res.Deadline}}
}

// millis turns a time to live into milliseconds: 0 is none, and a part of one is
// a whole one.
func (n Namespace) millis(step, key string, ttl time.Duration) (int64, error) {
	if ttl < 0 {
		return 0, n.fail(KindInvalid, step, key, "a time to live is not negative")
	}
	return int64((ttl + time.Millisecond - 1) / time.Millisecond), nil
}

// life fills in an operation's deadline.
func (n Namespace) life(step string, op *KVOp, ttl time.Duration, until time.Time) (err error) {
	if ttl != 0 && !until.IsZero() {
		return n.fail(KindInvalid, step, op.Key, "both a time to live and a deadline are given")
	}
	if op.TTL, err = n.millis(step, op.Key, ttl); err != nil || until.IsZero() {
		return err
	}
	// A deadline before 1970 has passed as well as the first one after it.
	op.Deadline = max(until.UnixMilli(), 1)
	return nil
}

// Set writes a value over whatever is there, and takes an expiration off.
func (n Namespace) Set(ctx context.Context, key string, value []byte) error {
	return n.SetFor(ctx, key, value, 0)
}

// SetFor writes a value that is gone after ttl; 0 is never.
func (n Namespace) SetFor(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	millis, err := n.millis("set", key, ttl)
	if err != nil {
		return err
	}
	if n.set {
		if _, done, err := n.fast.SetKV(ctx, key, value, millis); done || err != nil {
			return err
		}
	}
	_, err = n.do(ctx, &KVOp{Verb: KVSet, Key: key, Value: value, TTL: millis})
	return err
}

// Put writes a value as the options say. ErrConflict if the condition does not
// hold; nothing is changed then.
func (n Namespace) Put(ctx context.Context, key string, value []byte, o KVSetOptions) (KVDone, error) {
	op := &KVOp{Verb: KVSet, Key: key, Value: value, If: o.If, IfVersion: o.Version, IfValue: o.Equal, Keep: o.KeepExpiration, Previous: o.Previous}
	if o.KeepExpiration && (o.For != 0 || !o.Until.IsZero()) {
		return KVDone{}, n.fail(KindInvalid, "set", key, "an expiration is either kept or given")
	}
	if err := n.life("set", op, o.For, o.Until); err != nil {
		return KVDone{}, err
	}
	res, err := n.do(ctx, op)
	if err != nil {
		return KVDone{}, err
	}
	return doneOf(res), nil
}

// Delete removes the key, whatever it holds. A vacant one is no error: the
// result tells.
func (n Namespace) Delete(ctx context.Context, key string) (found bool, err error) {
	res, err := n.do(ctx, &KVOp{Verb: KVDelete, Key: key})
	if err != nil {
		return false, err
	}
	return res.Found, nil
}

// Take removes the key and returns the plain value that was there: get and
// delete in one. The result is not Found if it was vacant.
func (n Namespace) Take(ctx context.Context, key string) (KVDone, error) {
	return n.DeleteIf(ctx, key, KVSetOptions{Previous: true})
}

// DeleteIf removes the key if o's condition holds; else ErrConflict.
func (n Namespace) DeleteIf(ctx context.Context, key string, o KVSetOptions) (KVDone, error) {
	res, err := n.do(ctx, &KVOp{Verb: KVDelete, Key: key, If: o.If, IfVersion: o.Version, IfValue: o.Equal, Previous: o.Previous})
	if err != nil {
		return KVDone{}, err
	}
	return doneOf(res), nil
}

// Expire makes the key, of any type, go after ttl, which is more than 0. found
// is false if it is vacant.
func (n Namespace) Expire(ctx context.Context, key string, ttl time.Duration) (found bool, err error) {
	if ttl <= 0 {
		return false, n.fail(KindInvalid, "set expiry", key, "a time to live is more than 0")
	}
	return n.expire(ctx, key, ttl, time.Time{})
}

// ExpireAt makes the key go at a time; at one that has passed, at once.
func (n Namespace) ExpireAt(ctx context.Context, key string, at time.Time) (found bool, err error) {
	if at.IsZero() {
		return false, n.fail(KindInvalid, "set expiry", key, "no time given")
	}
	return n.expire(ctx, key, 0, at)
}

func (n Namespace) expire(ctx context.Context, key string, ttl time.Duration, at time.Time) (bool, error) {
	op := &KVOp{Verb: KVExpire, Key: key}
	if err := n.life("set expiry", op, ttl, at); err != nil {
		return false, err
	}
	res, err := n.do(ctx, op)
	if err != nil {
		return false, err
	}
	return res.Found, nil
}

// Persist takes the key's expiration off. found is false if it is vacant.
func (n Namespace) Persist(ctx context.Context, key string) (found bool, err error) {
	res, err := n.do(ctx, &KVOp{Verb: KVPersist, Key: key})
	if err != nil {
		return false, err
	}
	return res.Found, nil
}

// Add adds to the number under the key, a vacant one counting as 0, and returns
// the sum. Numbers are values in decimal text. At the ends of int64 the sum stays
// there; see AddWith. ErrInvalid if the value is no such number. The key's
// expiration stays.
func (n Namespace) Add(ctx context.Context, key string, by int64) (int64, error) {
	return n.AddWith(ctx, key, by, Saturate)
}

// AddWith is Add with a choice of what happens at the ends of the type.
func (n Namespace) AddWith(ctx context.Context, key string, by int64, o Overflow) (int64, error) {
	res, err := n.do(ctx, &KVOp{Verb: KVAddInt, Key: key, Number: uint64(by), Overflow: o})
	if err != nil {
		return 0, err
	}
	return int64(res.Number), nil
}

// AddUint is AddWith for unsigned numbers.
func (n Namespace) AddUint(ctx context.Context, key string, by uint64, o Overflow) (uint64, error) {
	return n.addUint(ctx, key, by, false, o)
}

// SubUint takes off an unsigned number.
func (n Namespace) SubUint(ctx context.Context, key string, by uint64, o Overflow) (uint64, error) {
	return n.addUint(ctx, key, by, true, o)
}

func (n Namespace) addUint(ctx context.Context, key string, by uint64, negative bool, o Overflow) (uint64, error) {
	res, err := n.do(ctx, &KVOp{Verb: KVAddUint, Key: key, Number: by, Negative: negative, Overflow: o})
	if err != nil {
		return 0, err
	}
	return res.Number, nil
}

// AddFloat is AddWith for floating-point numbers: NaN and infinities are
// refused, Wrap too; saturating, a sum too large is the largest finite number.
func (n Namespace) AddFloat(ctx context.Context, key string, by float64, o Overflow) (float64, error) {
	res, err := n.do(ctx, &KVOp{Verb: KVAddFloat, Key: key, Number: math.Float64bits(by), Overflow: o})
	if err != nil {
		return 0, err
	}
	return math.Float64frombits(res.Number), nil
}

// Extend appends to the value under the key, a vacant one counting as empty, and
// returns its length. The key's expiration stays.
func (n Namespace) Extend(ctx context.Context, key string, tail []byte) (int64, error) {
	res, err := n.do(ctx, &KVOp{Verb: KVAppend, Key: key, Value: tail})
	if err != nil {
		return 0, err
	}
	return res.Count, nil
}

// SetMany writes several values in one commit, whole or not at all.
func (n Namespace) SetMany(ctx context.Context, items ...KVItem) error {
	ops := make([]Op, len(items))
	for i := range items {
		ops[i] = Op{Kind: OpKV, KV: &KVOp{Verb: KVSet, Key: items[i].Name, Value: items[i].Value}}
	}
	_, err := n.doMany(ctx, ops)
	return err
}

// DeleteMany removes several keys in one commit and returns how many there were.
func (n Namespace) DeleteMany(ctx context.Context, keys ...string) (found int, err error) {
	ops := make([]Op, len(keys))
	for i, key := range keys {
		ops[i] = Op{Kind: OpKV, KV: &KVOp{Verb: KVDelete, Key: key}}
	}
	results, err := n.doMany(ctx, ops)
	for _, r := range results {
		if r.KV != nil && r.KV.Found {
			found++
		}
	}
	return found, err
}

func (n Namespace) doMany(ctx context.Context, ops []Op) ([]OpResult, error) {
	if n.err != nil || len(ops) == 0 {
		return nil, n.err
	}
	for i := range ops {
		ops[i].KV.Namespace = n.name
	}
	if db, ok := n.w.(*DB); ok {
		res, err := db.Exec(ctx, &Command{Ops: ops})
		if err != nil {
			return nil, err
		}
		return res.Ops, nil
	}
	results := make([]OpResult, len(ops))
	for i := range ops {
		var err error
		if results[i], err = n.w.write(ctx, &ops[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// KVScan chooses what Scan shows. The zero value is all keys in order.
type KVScan struct {
	Prefix string
	// From is the first key, Until the one to stop before. To go on where a
	// scan ended, begin From the last key with "\x00" added.
	From, Until string
	Reverse     bool
	Skip, Limit int
	NoValues    bool
}

// Scan streams keys in the order of their bytes, with their values, all of one
// state, keys of other types than plain values too (see Type). Cost: one engine
// step a key, after what is in memory only has been written to the engine.
func (n Namespace) Scan(ctx context.Context, o *KVScan) iter.Seq2[KVEntry, error] {
	return func(yield func(KVEntry, error) bool) {
		if o == nil {
			o = &KVScan{}
		}
		q := &Query{Kind: QueryKVScan, Reverse: o.Reverse, Skip: o.Skip, Limit: o.Limit,
			KV: &KVQuery{Start: max(o.From, o.Prefix), End: o.Until, NoValues: o.NoValues}}
		if end := prefixEnd(o.Prefix); end != "" && (q.KV.End == "" || end < q.KV.End) {
			q.KV.End = end
		}
		for row, err := range n.queryBounded(ctx, q) {
			if err != nil {
				yield(KVEntry{}, err)
				return
			}
			if !yield(entryOf(row.KV), nil) {
				return
			}
		}
	}
}

// prefixEnd is the least string after all that begin with p; "" if there is
// none.
func prefixEnd(p string) string {
	for p != "" && p[len(p)-1] == 0xff {
		p = p[:len(p)-1]
	}
	if p == "" {
		return ""
	}
	return p[:len(p)-1] + string([]byte{p[len(p)-1] + 1})
}

// Count returns the number of keys. Cost: a look-up, and a step for each key that
// has expired within the last moment.
func (n Namespace) Count(ctx context.Context) (count uint64, err error) {
	err = n.one(ctx, QueryKVCount, &KVQuery{}, func(row *KVRow) { count = uint64(row.Count) })
	return count, err
}

// Drop deletes the namespace and all in it; a vacant one is no error. Cost: a
// step for each key with an expiration. It takes the right to manage, and does
// not belong into a transaction.
func (n Namespace) Drop(ctx context.Context) error {
	if n.err != nil {
		return n.err
	}
	_, err := n.w.write(ctx, &Op{Kind: OpKVDrop, KV: &KVOp{Namespace: n.name}})
	return err
}

// Watch streams what happens to the keys that begin with prefix from now on, until the
// caller breaks off or ctx ends: see KVFeed for what it shows and when. The
// first row has Mark set: the feed has begun.
func (n Namespace) Watch(ctx context.Context, prefix string) iter.Seq2[Change, error] {
	return n.watch(ctx, &KVFeed{Namespace: n.name, Prefix: prefix})
}

// WatchKey is Watch for one key.
func (n Namespace) WatchKey(ctx context.Context, key string) iter.Seq2[Change, error] {
	return n.watch(ctx, &KVFeed{Namespace: n.name, Key: key})
}

func (n Namespace) watch(ctx context.Context, f *KVFeed) iter.Seq2[Change, error] {
	db, ok := n.w.(*DB)
	if n.err != nil || !ok {
		err := n.err
		if err == nil {
			err = n.fail(KindInvalid, "watch", "", "a transaction or batch has no feed")
		}
		return func(yield func(Change, error) bool) { yield(Change{}, err) }
	}
	return db.Watch(ctx, &Feed{Mode: FeedLive, Marks: true, KV: f})
}

// Namespaces lists the database's namespaces by name.
func (db *DB) Namespaces(ctx context.Context) ([]NamespaceInfo, error) {
	var out []NamespaceInfo
	for row, err := range db.Query(ctx, &Query{Kind: QueryKVNamespaces, KV: &KVQuery{}}) {
		if err != nil {
			return nil, err
		}
		out = append(out, NamespaceInfo{row.KV.Key, uint64(row.KV.Count)})
	}
	return out, nil
}
