// Package engine keeps Osier's databases in a folder of the program's own
// process, or in memory. Open returns a Store like any other, plus what only
// the owner of the folder can do: check it, back it up, look at its figures.
//
//	eng, err := engine.Open("blog.osier", nil)
//	blog, err := eng.DB(ctx, "blog", osier.Schema(Posts))
//
// One process at a time has a folder open. Everything is safe for concurrent
// use; readers block nobody and are blocked by nobody, and writers share the
// disk's fsync.
package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/cbor"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/store"
	"github.com/osierdb/osier/internal/topic"
)

// Options of Open. The zero value is useful, and so is a nil *Options.
type Options struct {
	// Durability of commands that do not say; the default is osier.Sync.
	Durability osier.Durability
	// SyncInterval bounds how long a Buffered or Relaxed command stays without
	// an fsync; 0 is 100 ms.
	SyncInterval time.Duration
	// CacheBytes bounds the block cache, memtables included; 0 is 64 MiB.
	CacheBytes int64
	// ReadOnly opens an existing folder and changes nothing in it.
	ReadOnly bool
	// InMemory keeps everything in memory; the folder is ignored and nothing
	// survives Close.
	InMemory bool
	// Clock gives the time of changes; nil is time.Now. Times never go back
	// within a store, whatever the clock does.
	Clock func() time.Time
	// Codecs that typed handles may meet; nil is JSON, CBOR, Pot and Binary.
	Codecs osier.Codecs
	// KVMemoryBytes is about how much of key-values is kept in memory; 0 is
	// 256 MiB. What is not written behind yet is kept in any case.
	KVMemoryBytes int64
	// KVInterval bounds how long a relaxed operation on key-values stays in
	// memory only; 0 is 100 ms. With KVWriteKeys changed keys (0: 32,768), or
	// 16 MiB of values, they are written behind at once.
	KVInterval  time.Duration
	KVWriteKeys int64
	KVLimits    KVLimits
	// Logger gets the rare messages about the engine's state; nil is silent.
	Logger *slog.Logger
	// Topics bounds what subscriptions and kept messages may take, for each
	// database; see TopicLimits.
	Topics TopicLimits
	store  store.Options // what tests set underneath
	// keepEvery is how often retention is looked at; tests that do so themselves
	// set it to an hour.
	keepEvery time.Duration
	// buildTableDocs is what tests set instead of the constant of that name.
	buildTableDocs int
}

// TopicLimits bound a database's topics. Zero ones are the defaults.
type TopicLimits = topic.Limits

// Engine is an open folder. Its Store opens and lists databases.
type Engine struct {
	*osier.Store
	opts  Options
	store *store.Store
	now   func() time.Time
	ids   osier.IDSource

	queue    queue
	applier  applier   // under queue.order
	lastSeal time.Time // under queue.order
	durable  durableState
	splits   splits
	dbs      atomic.Pointer[map[string]*database]
	pins     pins
	terms    sync.Pool // of *[]byte, for prepare
	keys     sync.Pool // of *[]byte, for GetDocument
	commands atomic.Uint64
	commits  atomic.Uint64
	kvBytes  atomic.Int64 // of key-values in memory
	kvClosed atomic.Bool  // relaxed operations in memory have ended
	lanes    lanes
	horizon  horizon
	keeper   keeper
	topics   topics
	turns    turns // of scans

	fenced     chan struct{} // closed when the store takes no more writes
	fenceErr   error         // why; set before
	closing    chan struct{}
	closeOnce  sync.Once
	closeErr   error
	background sync.WaitGroup // owned goroutines; they end with closing
	ctx        context.Context
	cancel     context.CancelFunc
}

// Open opens the store in the folder dir, creating it if it is not there (not
// with ReadOnly). Errors: ErrLocked, naming process and host, when it is open
// elsewhere; ErrFormat when a newer Osier wrote it; ErrCorrupt, naming the
// file, when it is damaged: see Check and Repair. A store that was open at a
// crash recovers by itself.
func Open(dir string, o *Options) (*Engine, error) {
	e := &Engine{closing: make(chan struct{}), fenced: make(chan struct{}), turns: newTurns()}
	if o != nil {
		e.opts = *o
	}
	if e.opts.Codecs == nil {
		e.opts.Codecs = osier.NewCodecs(cbor.Codec)
	}
	e.opts.kvDefaults()
	if e.now = e.opts.Clock; e.now == nil {
		e.now = time.Now
	}
	e.terms.New = func() any { return new([]byte) }
	e.keys.New = func() any { return new([]byte) }
	e.ctx, e.cancel = context.WithCancel(context.Background())
	so := e.opts.store
	so.SyncInterval, so.CacheBytes, so.Logger = e.opts.SyncInterval, e.opts.CacheBytes, e.opts.Logger
	so.ReadOnly, so.InMemory = e.opts.ReadOnly, e.opts.InMemory
	so.OnSynced = e.synced
	so.TableEnd = e.splits.end
	so.OnFence = func(err error) { e.fenceErr = err; close(e.fenced) }
	st, err := store.Open(dir, &so)
	if err != nil {
		return nil, e.storeError("open "+dir, err)
	}
	e.store = st
	e.Store = osier.NewStore(e, &osier.StoreOptions{Codecs: e.opts.Codecs, Clock: e.opts.Clock})
	if err := e.load(); err != nil {
		st.Close()
		return nil, e.storeError("open "+dir, err)
	}
	return e, nil
}

// Backend returns what carries out the requests of the engine's handles.
func (e *Engine) Backend() osier.Backend { return e }

// Close ends the engine: it refuses new requests, ends waiting feeds with
// ErrClosed, waits for commands and streams under way, and leaves a folder that
// opens without recovery. It is idempotent.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		kvErr := e.closeKV()
		e.queue.mu.Lock()
		e.queue.closed = true
		e.queue.mu.Unlock()
		close(e.closing)
		e.cancel()
		e.closeLanes()
		e.closeKeeper()
		e.topics.close()
		e.queue.active.Wait()
		e.background.Wait()
		e.lastDrain()
		e.pins.closeAll()
		if err := e.store.Close(); err != nil {
			e.closeErr = e.storeError("close", err)
		} else if kvErr != nil {
			e.closeErr = e.storeError("close", kvErr)
		}
	})
	return e.closeErr
}

// load reads the directory and every database's counters, and drops what
// interrupted uploads left.
func (e *Engine) load() error {
	dbs := map[string]*database{}
	e.dbs.Store(&dbs)
	it, err := e.store.NewIter([]byte{keyDirectory}, []byte{keyDirectory + 1})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		d, err := decodeDirRecord(it.Value())
		if err != nil {
			return &osier.Error{Kind: osier.KindCorrupt, Op: "read directory", DB: string(it.Key()[1:]), Err: err}
		}
		db := &database{name: string(it.Key()[1:]), num: d.num, uuid: d.uuid, millis: d.millis}
		if err := e.reload([]*database{db}); err != nil {
			return err
		}
		if err := e.loadKV(db); err != nil {
			return err
		}
		db.showColls()
		e.loadJournals(db)
		db.applied.Store(uint64(db.state.lastSeq))
		db.durable.Store(uint64(db.state.lastSeq))
		db.durableDrops.Store(db.state.drops)
		e.lastSeal = later(e.lastSeal, at(db.state.millis))
		dbs[db.name] = db
		if err := e.loadViews(db); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	e.splits.noteAll(dbs)
	if err := e.loadHorizon(); err != nil {
		return err
	}
	if !e.opts.ReadOnly {
		if err := e.dropStaged(); err != nil {
			return err
		}
	}
	e.start(dbs)
	return nil
}

// start begins what goes on in the background. Until now nothing else ran: what
// was loaded needed no locks.
func (e *Engine) start(dbs map[string]*database) {
	for _, db := range dbs {
		if m := db.kv.Load(); m != nil {
			m.deadlines.arm(m)
		}
		e.keepJournals(slices.Collect(maps.Values(db.journals)))
		if db.defs.Load() != 0 {
			e.tendSoon(db)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// reload reads databases' counters as the store has them.
func (e *Engine) reload(dbs []*database) error {
	for _, db := range dbs {
		b, closer, err := e.store.Get(stateKey(db.num))
		if errors.Is(err, store.ErrNotFound) {
			continue // was being created
		}
		if err != nil {
			return err
		}
		db.state, err = decodeDBState(b)
		closer.Close()
		if err != nil {
			return &osier.Error{Kind: osier.KindCorrupt, Op: "read database", DB: db.name, Err: err}
		}
		if db.colls, err = readColls(e.store, db.num); err != nil {
			return err
		}
		if err := errors.Join(e.reloadJournals(db), e.reloadEager(db)); err != nil {
			return err
		}
	}
	return nil
}

// source is where records are read from: the store's latest state, a snapshot
// of it, or a batch over it.
type source interface {
	Get(key []byte) (value []byte, closer io.Closer, err error)
	NewIter(lower, upper []byte) (*store.Iter, error)
}

func readColls(s source, db uint32) (map[string]*collState, error) {
	colls := map[string]*collState{}
	lower := prefix(nil, db, 0, spaceCollection)
	it, err := s.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		c, err := decodeCollState(it.Value())
		if err != nil {
			return nil, &osier.Error{Kind: osier.KindCorrupt, Op: "read collection", Collection: string(it.Key()[len(lower):]), Err: err}
		}
		colls[string(it.Key()[len(lower):])] = &c
	}
	return colls, it.Error()
}

// dropStaged drops attachment bytes that no document took before the last
// close.
func (e *Engine) dropStaged() error {
	it, err := e.store.NewIter([]byte{keyStaged}, []byte{keyStaged + 1})
	if err != nil {
		return err
	}
	defer it.Close()
	b := e.store.NewBatch()
	defer b.Close()
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		if len(k) != 1+4+16 {
			continue
		}
		db := binary.BigEndian.Uint32(k[1:])
		if err := errors.Join(b.Delete(k), dropBlob(b, db, osier.BlobID(k[5:]))); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil || b.Count() == 0 {
		return err
	}
	_, err = e.store.Apply(b, store.Relaxed)
	return err
}

// reclaim gives a dropped database's space back, in the background.
func (e *Engine) reclaim(db uint32) {
	lower, upper := databaseRange(db)
	e.background.Go(func() {
		if err := e.store.Compact(e.ctx, lower, upper); err != nil && e.opts.Logger != nil && e.ctx.Err() == nil {
			e.opts.Logger.Warn("space of a dropped database comes back later", "error", err)
		}
	})
}

// DatabaseUUID returns the identity of a database, false if there is none of that
// name. See osier.DB.UUID.
func (e *Engine) DatabaseUUID(name string) (osier.UUID, bool) {
	db := (*e.dbs.Load())[name]
	if db == nil {
		return osier.UUID{}, false
	}
	return db.uuid, true
}
