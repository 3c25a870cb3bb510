package engine

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
	"github.com/osierdb/osier/internal/kvmem"
	"github.com/osierdb/osier/internal/store"
)

// Writing behind. What relaxed operations have changed in memory becomes one
// OpKVBehind: before every command of the database, so that no command survives
// an operation before it that is lost, and at the latest after Options.KVInterval.
// The cut between what belongs to it and what comes later is one moment for all
// shards; a shard's states are packed after that, or by the next writer of a key,
// whoever is first.

// kick flushes now, in the background.
func (m *kvMemory) kick() {
	if m.kicked.CompareAndSwap(false, true) {
		go func() {
			// The outcome is told to whoever writes next.
			_ = m.flush(context.Background())
			m.kicked.Store(false)
		}()
	}
}

func (m *kvMemory) flushArmed() {
	m.armed.Store(false)
	_ = m.flush(context.Background())
}

// room holds writers up when the store does not keep up, and tells them why if it
// refuses.
func (m *kvMemory) room(ctx context.Context) error {
	if !m.stuck.Load() && m.dirty.Load() < 4*m.e.opts.KVWriteKeys && m.dirtyBytes.Load() < 4*kvWriteBytes {
		return nil
	}
	return m.flush(ctx)
}

// flush writes behind what is dirty and hands it to the operating system.
func (m *kvMemory) flush(ctx context.Context) error {
	if m.settled() {
		return nil
	}
	return m.e.submit(ctx, &request{level: store.Buffered, fill: func(a *applier) error { return a.behind(m, false) }}, 64)
}

// settled reports whether the store has everything that memory has.
func (m *kvMemory) settled() bool {
	return m.dirty.Load() == 0 && !m.writing.Load() && !m.stuck.Load()
}

// settleKV writes behind what a query's database has in memory only.
func (e *Engine) settleKV(ctx context.Context, db *database) error {
	m := db.kv.Load()
	if m == nil || e.opts.ReadOnly || m.settled() {
		return nil
	}
	return e.submit(ctx, &request{level: store.Relaxed, fill: func(a *applier) error { return a.behind(m, false) }}, 64)
}

// flushKV writes behind all databases.
func (e *Engine) flushKV(ctx context.Context) (err error) {
	for _, db := range *e.dbs.Load() {
		if m := db.kv.Load(); m != nil {
			err = errors.Join(err, m.flush(ctx))
		}
	}
	return err
}

// kvGroup is what a group of commands has to do with one database's memory.
type kvGroup struct {
	m      *kvMemory
	locked bool       // all writer locks are held
	frozen bool       // states were packed; they are clean when the batch is in the store
	events []kv.Event // of commands
	busy   []kvSlot   // marked entries
	drops  []string   // namespaces
	shown  []kv.Event // for feeds, of what was written behind
	// dropped: the database goes with the group.
	dropped bool
}

// kvGroup finds or begins a database's.
func (a *applier) kvGroup(m *kvMemory) *kvGroup {
	for _, g := range a.kv {
		if g.m == m {
			return g
		}
	}
	g := &kvGroup{m: m}
	a.kv = append(a.kv, g)
	return g
}

// behind writes a database's dirty states into the batch. With lock, nothing in
// memory changes from then on until the group is done. The caller holds
// queue.order.
func (a *applier) behind(m *kvMemory, lock bool) error {
	if a.database(m.db.name) != m.db {
		m.gone.Store(true) // dropped before anything was written
		return nil
	}
	g := a.kvGroup(m)
	if lock && !g.locked {
		m.lockAll()
		g.locked = true
	}
	if m.settled() {
		return nil
	}
	packed := m.freeze(g.locked)
	if m.stuck.Load() && !g.frozen {
		packed = append(slices.Clip(m.unwritten), packed...)
		m.unwritten = packed
	} else {
		m.unwritten = append(slices.Clip(m.unwritten), packed...)
	}
	g.frozen = true
	if len(packed) == 0 {
		return nil
	}
	g.show(packed)
	c := &osier.Command{DB: m.db.name, Ops: []osier.Op{{Kind: osier.OpKVBehind, KV: &osier.KVOp{Packed: packed}}}}
	a.e.seal(c)
	a.ownBehind = true
	_, _, err := a.carryOut(m.db, c, nil)
	a.ownBehind = false
	return err
}

// freeze makes the cut and packs what was changed before it.
func (m *kvMemory) freeze(locked bool) (packed []byte) {
	if !locked {
		m.lockAll()
	}
	for i := range m.shards {
		sh := &m.shards[i]
		sh.frozen, sh.dirty = sh.dirty, sh.frozen[:0]
		sh.epoch++
	}
	m.writing.Store(true)
	m.dirty.Store(0)
	m.dirtyBytes.Store(0)
	if !locked {
		m.unlockAll()
	}
	all := map[uint32]*pack{}
	for i := range m.shards {
		sh := &m.shards[i]
		if !locked {
			sh.w.Lock()
		}
		m.packShard(sh)
		for space, p := range sh.saved {
			if q := all[space]; q != nil {
				q.count += p.count
				q.bytes = append(q.bytes, p.bytes...)
			} else {
				all[space] = p
			}
		}
		clear(sh.saved)
		if !locked {
			sh.w.Unlock()
		}
	}
	spaces := *m.byID.Load()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		packed = kv.AppendPackedNamespace(packed, spaces[id].name, all[id].count, all[id].bytes)
	}
	return packed
}

// packShard packs a shard's frozen states that nobody has packed yet.
func (m *kvMemory) packShard(sh *kvShard) {
	epoch := sh.epoch - 1
	for _, tag := range sh.frozen {
		sh.t.Tagged(tag, func(r kvmem.Ref, space uint32, key []byte) {
			c := sh.t.Read(r)
			if c.Epoch != epoch {
				return
			}
			m.save(sh, tag, space, key, &c)
			sh.t.SetStored(r, c.Type != uint8(osier.KVNone), c.Deadline)
		})
	}
	sh.frozen = sh.frozen[:0]
}

// beforeKV readies a database's memory for a command.
func (a *applier) beforeKV(db *database, c *osier.Command) error {
	m := db.kv.Load()
	if m == nil {
		if !touchesKV(c) {
			return nil
		}
		m = a.e.kvOf(db)
	}
	if err := a.behind(m, touchesKV(c)); err != nil {
		return err
	}
	a.e.sealKV(db, c)
	return nil
}

// dropKV holds a database's memory until the database is gone.
func (a *applier) dropKV(db *database) {
	m := db.kv.Load()
	if m == nil {
		return
	}
	g := a.kvGroup(m)
	if !g.locked {
		m.lockAll()
		g.locked = true
	}
	g.dropped = true
}

func touchesKV(c *osier.Command) bool {
	for i := range c.Ops {
		if k := c.Ops[i].Kind; k >= osier.OpKV && k <= osier.OpKVDrop {
			return true
		}
	}
	for i := range c.Reads {
		if c.Reads[i].KV != nil {
			return true
		}
	}
	return false
}

// markBusy tells readers what the store is about to be given, and keeps those of
// memory from what the batch changes until they can see all of it.
func (a *applier) markBusy() {
	for _, db := range a.touched {
		db.begun.Store(uint64(db.state.lastSeq))
	}
	for _, g := range a.kv {
		if !g.locked {
			continue
		}
		for i := range g.events {
			g.mark(&g.events[i])
		}
		for _, name := range g.drops {
			if s := (*g.m.byName.Load())[name]; s != nil {
				s.whole.Store(false)
			}
		}
	}
}

func (g *kvGroup) mark(ev *kv.Event) {
	s := (*g.m.byName.Load())[ev.Namespace]
	if s == nil {
		return // no reader knows it
	}
	sh, tag := g.m.hash(s.id, ev.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r := sh.t.Find(tag, s.id, ev.Key)
	if r == 0 {
		sh.t.Put(tag, s.id, ev.Key, &kvmem.Cell{Epoch: sh.clean, Busy: true}, true)
		g.m.account(sh)
	} else {
		sh.t.SetBusy(r, true)
	}
	g.busy = append(g.busy, kvSlot{tag, s.id, ev.Key})
}

// publishKV makes memory what the store has now.
func (a *applier) publishKV() {
	for _, g := range a.kv {
		m := g.m
		if g.frozen {
			m.unwritten = nil
			m.cleaned(g.locked)
			m.stuck.Store(false)
			m.writing.Store(false)
		}
		if !g.locked {
			continue
		}
		if g.dropped {
			m.drop()
		}
		for _, name := range g.drops {
			if s := (*m.byName.Load())[name]; s != nil {
				m.forgetSpace(s)
			}
		}
		for _, ev := range g.latest() {
			m.adopt(ev)
		}
		m.unlockAll()
		g.locked = false
	}
}

// latest are the last events of each key.
func (g *kvGroup) latest() (out []*kv.Event) {
	type name struct{ namespace, key string }
	seen := make(map[name]bool, len(g.events))
	for i := len(g.events) - 1; i >= 0; i-- {
		ev := &g.events[i]
		if n := (name{ev.Namespace, ev.Key}); !seen[n] {
			seen[n] = true
			out = append(out, ev)
		}
	}
	return out
}

// cleaned notes that the frozen states are in the store.
func (m *kvMemory) cleaned(locked bool) {
	for i := range m.shards {
		sh := &m.shards[i]
		if !locked {
			sh.w.Lock()
		}
		clean := sh.epoch - 1
		sh.clean = clean
		for _, d := range sh.deleted {
			if r := sh.t.Find(d.tag, d.space, d.key); r != 0 {
				if c := sh.t.Read(r); c.Type == uint8(osier.KVNone) && int32(c.Epoch-clean) <= 0 && !c.Busy {
					m.remove(sh, d.tag, d.space, d.key)
				}
			}
		}
		sh.deleted = nil
		if !locked {
			sh.w.Unlock()
		}
	}
}

// adopt takes a committed state into memory. The caller holds all writer locks.
func (m *kvMemory) adopt(ev *kv.Event) {
	advance(&m.version, ev.Entry.Version)
	if ev.Entry.Deadline != 0 {
		m.deadlines.note(m, ev.Entry.Deadline)
	}
	s := (*m.byName.Load())[ev.Namespace]
	if s == nil {
		return
	}
	sh, tag := m.hash(s.id, ev.Key)
	if ev.Entry.Type == osier.KVNone {
		m.remove(sh, tag, s.id, ev.Key)
		return
	}
	c := cellOf(&ev.Entry, true)
	c.Epoch = sh.clean
	m.put(sh, tag, s.id, ev.Key, &c)
}

// abandonKV undoes what a failed group did to memory: what was packed is kept for
// the next one.
func (a *applier) abandonKV() {
	for _, db := range a.counted {
		db.kvCounters = nil
	}
	for _, g := range a.kv {
		m := g.m
		for _, b := range g.busy {
			sh, _ := m.shardOf(b)
			sh.mu.Lock()
			if r := sh.t.Find(b.tag, b.space, b.key); r != 0 {
				if c := sh.t.Read(r); c.Type == uint8(osier.KVNone) && int32(c.Epoch-sh.clean) <= 0 {
					sh.t.Remove(b.tag, b.space, b.key)
				} else {
					sh.t.SetBusy(r, false)
				}
			}
			sh.mu.Unlock()
		}
		if g.frozen {
			m.stuck.Store(true)
			m.writing.Store(false)
		}
		if g.locked {
			m.unlockAll()
			g.locked = false
		}
	}
}

func (m *kvMemory) shardOf(b kvSlot) (*kvShard, uint32) { return m.hash(b.space, b.key) }

// deadlines knows when the next key goes.
type deadlines struct {
	next atomic.Int64 // in milliseconds; MaxInt64: none known

	mu      sync.Mutex // guards the two below
	timer   *time.Timer
	stopped bool
}

// expiryPoll is how long a timer sleeps at most when the clock is not the
// system's: it may jump.
const expiryPoll = 250 * time.Millisecond

// note makes sure that somebody looks when a deadline has come.
func (d *deadlines) note(m *kvMemory, deadline int64) {
	for {
		next := d.next.Load()
		if deadline >= next {
			return
		}
		if d.next.CompareAndSwap(next, deadline) {
			break
		}
	}
	d.arm(m)
}

// arm sets the timer for the next deadline.
func (d *deadlines) arm(m *kvMemory) {
	next := d.next.Load()
	if next == math.MaxInt64 || m.e.opts.ReadOnly {
		return
	}
	now := m.e.now().UnixMilli()
	wait := time.Hour
	if next-now < int64(time.Hour/time.Millisecond) {
		wait = max(time.Duration(next-now)*time.Millisecond, time.Millisecond)
	}
	if m.e.opts.Clock != nil {
		wait = min(wait, expiryPoll)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.stopped:
	case d.timer == nil:
		d.timer = time.AfterFunc(wait, func() { m.expire() })
	default:
		d.timer.Reset(wait)
	}
}

func (d *deadlines) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	if d.timer != nil {
		d.timer.Stop()
	}
}

// expireBatch bounds a command of background expiry.
const expireBatch = 1000

// expire removes what is past its deadline, by commands that name key and
// deadline, and sets the timer anew.
func (m *kvMemory) expire() {
	d := &m.deadlines
	ctx := context.Background()
	if m.gone.Load() {
		return
	}
	if d.next.Load() > m.e.now().UnixMilli() {
		d.arm(m)
		return
	}
	// What comes from here on sets it again.
	d.next.Store(math.MaxInt64)
	for {
		if err := m.flush(ctx); err != nil {
			break
		}
		c, next, err := m.due(m.e.now().UnixMilli())
		if err == nil && len(c.Ops) > 0 {
			_, err = m.e.Exec(ctx, c)
		}
		if err != nil {
			break
		}
		if len(c.Ops) < expireBatch {
			if next != 0 {
				d.note(m, next)
			}
			return
		}
	}
	// The store refuses, for now or for ever: look again later.
	d.note(m, m.e.now().UnixMilli()+1000)
}

// due lists what is past its deadline, and the deadline after that.
func (m *kvMemory) due(now int64) (c *osier.Command, next int64, err error) {
	c = &osier.Command{DB: m.db.name, PerDocument: true, Durability: osier.Relaxed}
	row := kvRow(nil, m.db.num)
	lower := append(slices.Clone(row), kv.SpaceExpiry)
	it, err := m.e.store.NewIter(lower, kv.PrefixEnd(lower))
	if err != nil {
		return nil, 0, err
	}
	defer it.Close()
	names := map[uint32]string{}
	for ok := it.First(); ok; ok = it.Next() {
		deadline, num, key, err := kv.ParseExpiry(it.Key()[len(row):])
		if err != nil {
			return nil, 0, err
		}
		if deadline > now || len(c.Ops) == expireBatch {
			return c, deadline, nil
		}
		if names[num] == "" {
			if err := kvNames(m.e.store, m.db.num, names); err != nil {
				return nil, 0, err
			}
		}
		if names[num] == "" {
			continue // damage, for Check to find
		}
		c.Ops = append(c.Ops, osier.Op{Kind: osier.OpKVExpire, KV: &osier.KVOp{Namespace: names[num], Key: key, Deadline: deadline}})
	}
	return c, 0, it.Error()
}

// kvNames lists a database's namespaces by their numbers.
func kvNames(src source, db uint32, into map[uint32]string) error {
	lower := append(kvRow(nil, db), kv.NamespacePrefix()...)
	return scanPrefix(src, lower, func(tail, value []byte) error {
		n, err := kv.DecodeNamespace(value)
		into[n.Num] = string(tail)
		return err
	})
}
