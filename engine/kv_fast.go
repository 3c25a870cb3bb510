package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
	"github.com/osierdb/osier/internal/kvmem"
	"github.com/osierdb/osier/internal/store"
)

// KVLimits bound key-values; more is ErrTooLarge. Zero fields have the defaults.
type KVLimits struct {
	KeyBytes   int // of a key, a field or a member; default 4 KiB, at most 32 KiB
	ValueBytes int // of a value or element; default 16 MiB, at most 64 MiB
	Elements   int // in one operation or query; default 100,000
}

func (l *KVLimits) withDefaults() {
	if l.KeyBytes <= 0 {
		l.KeyBytes = 4 << 10
	}
	if l.ValueBytes <= 0 {
		l.ValueBytes = 16 << 20
	}
	if l.Elements <= 0 {
		l.Elements = 100_000
	}
	l.KeyBytes, l.ValueBytes = min(l.KeyBytes, 32<<10), min(l.ValueBytes, 64<<20)
}

// Defaults of Options for key-values.
const (
	defaultKVMemory   = 256 << 20
	defaultKVInterval = 100 * time.Millisecond
	defaultKVKeys     = 32 << 10
	// kvWriteBytes of changed values are written behind at once, and four times
	// as much makes writers wait; so does four times Options.KVWriteKeys.
	kvWriteBytes = 16 << 20
	// kvFastBytes is the largest value that an operation in memory writes; larger ones
	// take the way of durable writes.
	kvFastBytes = 1 << 20
)

func (o *Options) kvDefaults() {
	if o.KVMemoryBytes <= 0 {
		o.KVMemoryBytes = defaultKVMemory
	}
	if o.KVInterval <= 0 {
		o.KVInterval = defaultKVInterval
	}
	if o.KVWriteKeys <= 0 {
		o.KVWriteKeys = defaultKVKeys
	}
	o.KVLimits.withDefaults()
}

// kvHandle is the shorter way to a namespace.
type kvHandle struct {
	e        *Engine
	db, name string
	now      atomic.Pointer[kvBound]
}

// kvBound is what the names of a handle mean, until the database is dropped.
type kvBound struct {
	m *kvMemory
	s *kvSpace
}

// OpenKV returns the shorter way to a namespace's plain values.
func (e *Engine) OpenKV(db, namespace string) osier.KVSpace {
	return &kvHandle{e: e, db: db, name: namespace}
}

// bind finds what the names mean now.
func (h *kvHandle) bind(step string) (*kvBound, error) {
	if b := h.now.Load(); b != nil && !b.m.gone.Load() {
		return b, nil
	}
	db, err := h.e.lookup(step, h.db)
	if err != nil {
		return nil, err
	}
	b := &kvBound{m: h.e.kvOf(db)}
	if b.s, err = b.m.space(h.name); err != nil {
		return nil, h.e.storeError(step, err)
	}
	if b.m.gone.Load() {
		return nil, &osier.Error{Kind: osier.KindClosed, Op: step, DB: h.db}
	}
	h.now.Store(b)
	return b, nil
}

// GetKV reads a plain value; see osier.KVSpace.
func (h *kvHandle) GetKV(ctx context.Context, dst []byte, key string) ([]byte, osier.KVMeta, error) {
	b := h.now.Load()
	if b == nil || b.m.gone.Load() {
		var err error
		if b, err = h.bind("get"); err != nil {
			return dst, osier.KVMeta{}, err
		}
	}
	m, s := b.m, b.s
	sh, tag := m.hash(s.id, key)
	sh.mu.RLock()
	r := sh.t.Find(tag, s.id, key)
	if r == 0 {
		whole := s.whole.Load()
		sh.mu.RUnlock()
		if whole && !m.gone.Load() && key != "" && len(key) <= h.e.opts.KVLimits.KeyBytes {
			return dst, osier.KVMeta{}, nil
		}
		return h.miss(ctx, b, dst, key)
	}
	c := sh.t.Show(r)
	if c.Busy {
		sh.mu.RUnlock()
		return h.miss(ctx, b, dst, key)
	}
	meta := osier.KVMeta{Type: osier.KVType(c.Type), Version: c.Version, Deadline: c.Deadline}
	at := len(dst)
	if meta.Type == osier.KVPlain {
		dst = append(dst, c.Value...)
	}
	sh.mu.RUnlock()
	if meta.Deadline != 0 && meta.Deadline <= h.e.now().UnixMilli() {
		return dst[:at], osier.KVMeta{}, nil
	}
	if meta.Type == osier.KVNone {
		return dst, osier.KVMeta{}, nil
	}
	return dst, meta, nil
}

// miss reads a key that is not in memory, or that a commit is about to change.
func (h *kvHandle) miss(ctx context.Context, b *kvBound, dst []byte, key string) ([]byte, osier.KVMeta, error) {
	fail := func(err error) ([]byte, osier.KVMeta, error) {
		return dst, osier.KVMeta{}, named(h.e.storeError("get", err), h.db, h.name, key)
	}
	if err := ctx.Err(); err != nil {
		return fail(&osier.Error{Kind: osier.KindCanceled, Op: "get", Err: err})
	}
	if err := h.e.checkKVKey("get", key); err != nil {
		return fail(err)
	}
	m, s := b.m, b.s
	sh, tag := m.hash(s.id, key)
	sh.mu.RLock()
	r := sh.t.Find(tag, s.id, key)
	busy := r != 0 && sh.t.Show(r).Busy
	sh.mu.RUnlock()
	var c kvmem.Cell
	var err error
	switch {
	case busy || r != 0:
		// The commit is short; or somebody else has just read it.
		sh.w.Lock()
	case !sh.w.TryLock():
		// Not worth waiting for: what the store has is what it is now.
		var closer io.Closer
		if c, closer, err = m.read(s, key, false); err != nil {
			return fail(err)
		}
		if closer != nil {
			defer closer.Close()
		}
		return h.show(dst, &c)
	}
	defer sh.w.Unlock()
	if m.gone.Load() {
		return fail(&osier.Error{Kind: osier.KindUnavailable, Op: "get", Err: errors.New("the database is being closed or dropped")})
	}
	if c, err = m.load(sh, tag, s, key); err != nil {
		return fail(err)
	}
	return h.show(dst, &c)
}

func (h *kvHandle) show(dst []byte, c *kvmem.Cell) ([]byte, osier.KVMeta, error) {
	if c.Type == uint8(osier.KVNone) || c.Deadline != 0 && c.Deadline <= h.e.now().UnixMilli() {
		return dst, osier.KVMeta{}, nil
	}
	if osier.KVType(c.Type) == osier.KVPlain {
		dst = append(dst, c.Value...)
	}
	return dst, osier.KVMeta{Type: osier.KVType(c.Type), Version: c.Version, Deadline: c.Deadline}, nil
}

// named adds to an error where it happened.
func named(err error, db, namespace, key string) error {
	var own *osier.Error
	if !errors.As(err, &own) || own.DB != "" {
		return err
	}
	c := *own
	c.DB, c.Collection, c.ID = db, "kv:"+namespace, key
	return &c
}

// read finds a key in the store. The cell's Value is valid until closer is
// closed. held says that the caller holds a writer lock: the namespace's number
// cannot change then.
func (m *kvMemory) read(s *kvSpace, key string, held bool) (c kvmem.Cell, closer io.Closer, err error) {
	num := s.num.Load()
	if num == 0 {
		if num, err = namespaceNum(m.e.store, m.db.num, s.name); err != nil || num == 0 {
			return kvmem.Cell{}, nil, err
		}
		if held {
			s.num.Store(num)
		}
	}
	b, closer, err := m.e.store.Get(kv.HeadKey(kvRow(nil, m.db.num), num, key))
	if errors.Is(err, store.ErrNotFound) {
		return kvmem.Cell{}, nil, nil
	}
	if err != nil {
		return kvmem.Cell{}, nil, err
	}
	e, err := kv.DecodeEntry(b)
	if err != nil {
		closer.Close()
		return kvmem.Cell{}, nil, &osier.Error{Kind: osier.KindCorrupt, Op: "read key-value", Err: err}
	}
	return cellOf(&e, true), closer, nil
}

// cellOf is an entry as memory has it.
func cellOf(e *kv.Entry, stored bool) kvmem.Cell {
	c := kvmem.Cell{Type: uint8(e.Type), Version: e.Version, Deadline: e.Deadline}
	if e.Type == osier.KVPlain {
		c.Value = e.Value
	}
	if stored && e.Type != osier.KVNone {
		c.Was, c.Stored = true, e.Deadline
	}
	return c
}

func namespaceNum(src source, db uint32, name string) (uint32, error) {
	b, closer, err := src.Get(append(kvRow(nil, db), append(kv.NamespacePrefix(), name...)...))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	n, err := kv.DecodeNamespace(b)
	if err != nil {
		return 0, &osier.Error{Kind: osier.KindCorrupt, Op: "read namespace", Collection: "kv:" + name, Err: err}
	}
	return n.Num, nil
}

func (e *Engine) checkKVKey(step, key string) error {
	if key == "" {
		return &osier.Error{Kind: osier.KindInvalid, Op: step, Err: errors.New("a key must not be empty")}
	}
	if len(key) > e.opts.KVLimits.KeyBytes {
		return &osier.Error{Kind: osier.KindTooLarge, Op: step, Err: fmt.Errorf("a key of %d bytes, at most %d are allowed", len(key), e.opts.KVLimits.KeyBytes)}
	}
	return nil
}

// SetKV writes a value in memory; see osier.KVSpace.
func (h *kvHandle) SetKV(ctx context.Context, key string, value []byte, ttl int64) (uint64, bool, error) {
	if h.e.opts.ReadOnly || len(value) > kvFastBytes || len(value) > h.e.opts.KVLimits.ValueBytes || key == "" || len(key) > h.e.opts.KVLimits.KeyBytes {
		return 0, false, nil // the long way says what is wrong
	}
	var deadline int64
	if ttl > 0 {
		now := h.e.now().UnixMilli()
		if ttl > math.MaxInt64-now {
			return 0, false, nil
		}
		deadline = now + ttl
	}
	b, err := h.bind("set")
	if err != nil {
		return 0, false, err
	}
	m, s := b.m, b.s
	if err := m.room(ctx); err != nil {
		return 0, false, err
	}
	sh, tag := m.hash(s.id, key)
	sh.w.Lock()
	defer sh.w.Unlock()
	if m.gone.Load() {
		return 0, false, nil
	}
	r := sh.t.Find(tag, s.id, key)
	var old kvmem.Cell
	if r != 0 {
		old = sh.t.Read(r)
	} else if old, err = m.load(sh, tag, s, key); err != nil {
		return 0, false, named(h.e.storeError("set", err), h.db, h.name, key)
	}
	if old.Type > uint8(osier.KVPlain) {
		return 0, false, nil
	}
	next := kvmem.Cell{Value: value, Version: m.version.Add(1), Deadline: deadline, Type: uint8(osier.KVPlain)}
	next.Epoch = m.modify(sh, tag, s, key, &old, len(value))
	next.Was, next.Stored = old.Was, old.Stored
	if r == 0 || !m.overwrite(sh, r, &next) {
		m.put(sh, tag, s.id, key, &next)
	}
	if deadline != 0 {
		m.deadlines.note(m, deadline)
	}
	return next.Version, true, nil
}

// DoKV carries out an operation on a plain value in memory; see osier.KVSpace.
func (h *kvHandle) DoKV(ctx context.Context, op *osier.KVOp, res *osier.KVResult) (done bool, err error) {
	if h.e.opts.ReadOnly || !kv.IsPlain(op.Verb) || len(op.Value) > kvFastBytes || h.e.checkKVOp(op) != nil {
		return false, nil
	}
	b, err := h.bind("change")
	if err != nil {
		return false, err
	}
	m, s := b.m, b.s
	if err := m.room(ctx); err != nil {
		return false, err
	}
	now := h.e.now().UnixMilli()
	own := *op
	sealTTL(&own, now)
	sh, tag := m.hash(s.id, op.Key)
	sh.w.Lock()
	defer sh.w.Unlock()
	if m.gone.Load() {
		return false, nil
	}
	old, err := m.load(sh, tag, s, op.Key)
	if err != nil {
		return false, named(h.e.storeError("change", err), h.db, h.name, op.Key)
	}
	before := kv.Entry{Type: osier.KVType(old.Type), Version: old.Version, Deadline: old.Deadline, Value: old.Value}
	if !before.Live(now) {
		before = kv.Entry{}
	}
	// A structure past its deadline still has elements to be removed.
	if old.Type > uint8(osier.KVPlain) || own.Verb == osier.KVAppend && len(before.Value)+len(own.Value) > kvFastBytes {
		return false, nil
	}
	var next kv.Entry
	version := m.version.Add(1)
	changed, err := kv.Plain(&before, &own, now, version, nil, &next, res)
	if err != nil || !changed {
		return true, named(err, h.db, h.name, op.Key)
	}
	c := cellOf(&next, false)
	c.Version = version
	c.Epoch = m.modify(sh, tag, s, op.Key, &old, len(next.Value))
	c.Was, c.Stored = old.Was, old.Stored
	m.put(sh, tag, s.id, op.Key, &c)
	if c.Deadline != 0 {
		m.deadlines.note(m, c.Deadline)
	}
	return true, nil
}

// sealTTL turns a time to live into a deadline.
func sealTTL(op *osier.KVOp, now int64) {
	if op.TTL > 0 {
		if op.Deadline = now + op.TTL; op.Deadline < now {
			op.Deadline = math.MaxInt64
		}
		op.TTL = 0
	}
}

// execFast takes the shorter way for a command that could have come by it: one
// relaxed operation on a plain value, without a session.
func (e *Engine) execFast(ctx context.Context, c *osier.Command) (res *osier.Result, done bool, err error) {
	if len(c.Ops) != 1 || c.Ops[0].Kind != osier.OpKV || c.Session != "" || len(c.Reads) > 0 || c.PerDocument || !c.Sealed.Time.IsZero() ||
		e.level(kvLevel(c)) != store.Relaxed {
		return nil, false, nil
	}
	out := new(osier.KVResult)
	h := kvHandle{e: e, db: c.DB, name: c.Ops[0].KV.Namespace}
	if done, err = h.DoKV(ctx, c.Ops[0].KV, out); !done || err != nil {
		return nil, done, err
	}
	db, err := e.lookup("change", c.DB)
	if err != nil {
		return nil, false, err
	}
	seq := osier.Seq(db.applied.Load())
	return &osier.Result{First: seq, Last: seq, Time: e.now().UTC().Truncate(time.Millisecond), Ops: []osier.OpResult{{KV: out}}}, true, nil
}

// kvLevel is the durability a command asks for: key-values alone are Relaxed if
// it does not say.
func kvLevel(c *osier.Command) osier.Durability {
	if c.Durability != osier.DurabilityDefault || len(c.Ops) == 0 {
		return c.Durability
	}
	for i := range c.Ops {
		if k := c.Ops[i].Kind; k < osier.OpKV || k > osier.OpKVDrop {
			return c.Durability
		}
	}
	return osier.Relaxed
}

// kvSize is about what an operation takes in a batch.
func kvSize(op *osier.KVOp) int {
	if op == nil {
		return 0
	}
	n := len(op.Key) + len(op.Value) + len(op.Packed)
	for i := range op.Items {
		n += len(op.Items[i].Name) + len(op.Items[i].Value) + 64
	}
	return n
}
