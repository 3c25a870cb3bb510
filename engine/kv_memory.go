package engine

import (
	"hash/maphash"
	"maps"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
	"github.com/osierdb/osier/internal/kvmem"
)

// kvMemory is what a database keeps of its key-values in memory: heads that were
// read, and the newest states that relaxed operations have made and that are
// still to be written behind.
//
// Who changes a key holds its shard's writer lock for the operation. Who commits
// key-values holds the writer locks of all shards from before it writes behind
// until readers see the commit, so that a commit and the operations in memory
// have one order. Readers take only the table's lock, which nobody holds longer
// than it takes to copy an entry (compaction of a shard aside).
//
// Lock order: queue.order, then writer locks in the order of shards, then a
// table's lock, then spaceMu.
type kvMemory struct {
	e    *Engine
	db   *database
	seed maphash.Seed
	mask uint64

	shards  []kvShard
	version atomic.Uint64 // the highest given
	gone    atomic.Bool   // closed or dropped

	spaceMu sync.Mutex // guards changes of the two below
	byName  atomic.Pointer[map[string]*kvSpace]
	byID    atomic.Pointer[[]*kvSpace]

	dirty      atomic.Int64 // entries to be written behind, about
	dirtyBytes atomic.Int64
	armed      atomic.Bool // a flush is on its way
	kicked     atomic.Bool // at once
	// unwritten is a flush that the store refused; it comes before the next.
	// Under queue.order.
	unwritten []byte
	stuck     atomic.Bool // there is such a one
	writing   atomic.Bool // a flush is in a batch that is not in the store yet

	deadlines deadlines
	watchers  kvWatchers
}

// kvShard is a part of the keys.
type kvShard struct {
	w  sync.Mutex   // the writer lock; guards all below, with mu the table
	mu sync.RWMutex // guards table
	t  kvmem.Table

	bytes   int    // t's, as counted for the engine
	epoch   uint32 // of changes made now
	clean   uint32 // changes up to this epoch are in the store
	dirty   []uint32
	frozen  []uint32         // changed in the epoch that is being written
	saved   map[uint32]*pack // by namespace: frozen states taken out so far
	deleted []kvSlot         // frozen states that are vacant
	_       [64]byte
}

// kvSlot is an entry by its name.
type kvSlot struct {
	tag, space uint32
	key        string
}

// pack is the packed states of a namespace.
type pack struct {
	count int
	bytes []byte
}

// kvSpace is a namespace in memory.
type kvSpace struct {
	id   uint32
	name string
	num  atomic.Uint32 // in the store; 0: not known to be there
	// whole: what is not in the table is not in the store.
	whole atomic.Bool
}

const (
	kvShardsLeast = 16
	kvShardsMost  = 256
)

// kvOf returns a database's key-values, made by the first use.
func (e *Engine) kvOf(db *database) *kvMemory {
	if m := db.kv.Load(); m != nil {
		return m
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if m := db.kv.Load(); m != nil {
		return m
	}
	n := kvShardsLeast
	for n < 4*runtime.GOMAXPROCS(0) && n < kvShardsMost {
		n *= 2
	}
	m := &kvMemory{e: e, db: db, seed: maphash.MakeSeed(), mask: uint64(n - 1), shards: make([]kvShard, n)}
	for i := range m.shards {
		m.shards[i].epoch = 1
	}
	m.byName.Store(&map[string]*kvSpace{})
	m.byID.Store(&[]*kvSpace{})
	m.version.Store(db.kvVersion)
	m.deadlines.next.Store(math.MaxInt64)
	m.gone.Store(e.kvClosed.Load())
	db.kv.Store(m)
	return m
}

// hash says where a key is.
func (m *kvMemory) hash(space uint32, key string) (sh *kvShard, tag uint32) {
	h := maphash.String(m.seed, key) + uint64(space)*0x9E3779B97F4A7C15
	h ^= h >> 29
	return &m.shards[h&m.mask], uint32(h >> 32)
}

// space finds a namespace, or takes it in.
func (m *kvMemory) space(name string) (*kvSpace, error) {
	if s := (*m.byName.Load())[name]; s != nil {
		return s, nil
	}
	// What is being committed might be of the namespace.
	m.e.queue.order.Lock()
	defer m.e.queue.order.Unlock()
	m.spaceMu.Lock()
	defer m.spaceMu.Unlock()
	old := *m.byName.Load()
	if s := old[name]; s != nil {
		return s, nil
	}
	num, err := namespaceNum(m.e.store, m.db.num, name)
	if err != nil {
		return nil, err
	}
	ids := *m.byID.Load()
	s := &kvSpace{id: uint32(len(ids)), name: name}
	s.num.Store(num)
	s.whole.Store(num == 0)
	ids = append(ids[:len(ids):len(ids)], s)
	m.byID.Store(&ids)
	next := maps.Clone(old)
	next[name] = s
	m.byName.Store(&next)
	return s, nil
}

// lockAll takes all writer locks.
func (m *kvMemory) lockAll() {
	for i := range m.shards {
		m.shards[i].w.Lock()
	}
}

func (m *kvMemory) unlockAll() {
	for i := range m.shards {
		m.shards[i].w.Unlock()
	}
}

// put writes an entry. Others are evicted if the engine's cap is reached. The
// caller holds sh.w.
func (m *kvMemory) put(sh *kvShard, tag, space uint32, key string, c *kvmem.Cell) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	over := m.e.kvBytes.Load() >= m.e.opts.KVMemoryBytes
	for tries := 0; !sh.t.Put(tag, space, key, c, !over || tries == evictTries); tries++ {
		if m.evict(sh) == 0 {
			tries = evictTries - 1
		}
	}
	m.account(sh)
}

// overwrite changes an entry in its place, if it fits there. The caller holds
// sh.w.
func (m *kvMemory) overwrite(sh *kvShard, r kvmem.Ref, c *kvmem.Cell) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.t.Overwrite(r, c)
}

// evictTries bounds how often room is sought for one entry.
const evictTries = 4

// evict gives up entries that the store has. The caller holds sh.w and sh.mu.
func (m *kvMemory) evict(sh *kvShard) int {
	spaces := *m.byID.Load()
	n := sh.t.Evict(16, sh.clean, func(space uint32) { spaces[space].whole.Store(false) })
	if sh.t.Sparse() {
		sh.t.Compact()
	}
	return n
}

// account counts what the table takes. The caller holds sh.w and sh.mu.
func (m *kvMemory) account(sh *kvShard) {
	if n := sh.t.Bytes(); n != sh.bytes {
		m.e.kvBytes.Add(int64(n - sh.bytes))
		sh.bytes = n
	}
}

// remove takes an entry out. The caller holds sh.w.
func (m *kvMemory) remove(sh *kvShard, tag, space uint32, key string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.t.Remove(tag, space, key)
	if sh.t.Sparse() {
		sh.t.Compact()
	}
	m.account(sh)
}

// load finds an entry, reading it from the store if need be. The cell's Value is
// valid while the caller holds sh.w and does not write.
func (m *kvMemory) load(sh *kvShard, tag uint32, s *kvSpace, key string) (kvmem.Cell, error) {
	if r := sh.t.Find(tag, s.id, key); r != 0 {
		return sh.t.Read(r), nil
	}
	if s.whole.Load() {
		return kvmem.Cell{Epoch: sh.clean}, nil
	}
	c, closer, err := m.read(s, key, true)
	if err != nil {
		return kvmem.Cell{}, err
	}
	if closer != nil {
		defer closer.Close()
	}
	c.Epoch = sh.clean
	m.put(sh, tag, s.id, key, &c)
	if r := sh.t.Find(tag, s.id, key); r != 0 {
		return sh.t.Read(r), nil
	}
	return c, nil
}

// drop forgets everything: the database is gone or the engine closes. The caller
// holds all writer locks.
func (m *kvMemory) drop() {
	m.gone.Store(true)
	m.deadlines.stop()
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		sh.t = kvmem.Table{}
		m.account(sh)
		sh.mu.Unlock()
		sh.dirty, sh.frozen, sh.saved, sh.deleted = nil, nil, nil, nil
	}
}

// forgetSpace removes a dropped namespace's entries. The caller holds all writer
// locks, and nothing of the namespace is dirty.
func (m *kvMemory) forgetSpace(s *kvSpace) {
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		sh.t.Each(func(_ kvmem.Ref, space uint32, _ []byte) bool { return space == s.id })
		if sh.t.Sparse() {
			sh.t.Compact()
		}
		m.account(sh)
		sh.mu.Unlock()
	}
	s.num.Store(0)
	s.whole.Store(true)
}

// modify notes that an entry has changed in memory. The caller holds sh.w, has
// not changed it yet, and gives the changed cell the epoch returned, and what old
// then says of the store.
func (m *kvMemory) modify(sh *kvShard, tag uint32, s *kvSpace, key string, old *kvmem.Cell, size int) (epoch uint32) {
	if old.Epoch == sh.epoch {
		return sh.epoch // listed already
	}
	if len(sh.frozen) > 0 && old.Epoch == sh.epoch-1 {
		m.save(sh, tag, s.id, []byte(key), old)
		old.Was, old.Stored = old.Type != uint8(osier.KVNone), old.Deadline
	}
	sh.dirty = append(sh.dirty, tag)
	m.dirtyBytes.Add(int64(size + len(key) + 64))
	if m.dirty.Add(1) >= m.e.opts.KVWriteKeys || m.dirtyBytes.Load() >= kvWriteBytes {
		m.kick()
	} else if !m.armed.Load() && m.armed.CompareAndSwap(false, true) {
		time.AfterFunc(m.e.opts.KVInterval, m.flushArmed)
	}
	return sh.epoch
}

// save packs a frozen state before it is changed, or when its turn has come.
func (m *kvMemory) save(sh *kvShard, tag, space uint32, key []byte, c *kvmem.Cell) {
	p := sh.saved[space]
	if p == nil {
		if sh.saved == nil {
			sh.saved = map[uint32]*pack{}
		}
		p = &pack{}
		sh.saved[space] = p
	}
	e := kv.Entry{Type: osier.KVType(c.Type), Version: c.Version, Deadline: c.Deadline, Value: c.Value}
	p.bytes = kv.AppendPacked(p.bytes, key, &e, c.Was, c.Stored)
	p.count++
	if e.Type == osier.KVNone {
		sh.deleted = append(sh.deleted, kvSlot{tag, space, string(key)})
	}
}
