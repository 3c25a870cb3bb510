package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options of Open. The zero value is useful; nil means the zero value.
type Options struct {
	// FS is the file system that holds the folder; nil is the disk.
	FS vfs.FS
	// InMemory keeps everything in memory: no folder, no lock, nothing survives
	// Close, and every batch counts as durable at once.
	InMemory bool
	// ReadOnly opens an existing store and changes nothing in it but the lock.
	// The folder is locked all the same: one opener at a time.
	ReadOnly bool
	// CacheBytes bounds the block cache; 0 is 64 MiB. Memtables count towards it.
	CacheBytes int64
	// MemTableBytes is the size at which a memtable is written to a table; 0 is
	// 6 MiB, the least is 256 KiB. Logs have about this size too.
	MemTableBytes int64
	// SyncInterval bounds how long a Buffered or Relaxed batch stays without an
	// fsync; 0 is 100 ms.
	SyncInterval time.Duration
	// WrapFS, if set, is called once with the file system; all files under data/
	// and tmp/ go through what it returns. This is where encryption belongs.
	WrapFS func(vfs.FS) vfs.FS
	// Logger gets what the engine has to say; nil is silent.
	Logger *slog.Logger
	// ReserveBytes is the free disk space below which writes are refused with
	// ErrFull; 0 is 32 MiB, negative is none. It is looked at about once for each
	// MiB written, so that flushes and compactions under way find room.
	ReserveBytes int64
	// OnFence is called once, in a goroutine of its own, with the *FencedError when
	// the store stops accepting writes.
	OnFence func(error)
	// OnSynced is called whenever all batches numbered upTo and lower have become
	// durable: from Wait, from Flush and from the interval's fsync, without a lock
	// held, perhaps concurrently, so that a lower number may arrive after a higher
	// one: take the greatest. See also Store.Synced. It must not call Close.
	OnSynced func(upTo uint64)

	// TableEnd, if set, is asked when a table is begun, with its first key, and
	// returns the key before which the table must end; nil is any. It is called
	// from background goroutines and must not block. A good answer keeps tables
	// from overlapping; any answer is right.
	TableEnd func(start []byte) []byte

	// migrations overrides the ladder of format migrations in tests: step i leads
	// from format i+1 to i+2. formatVersion is then len(migrations)+1.
	migrations []migration
}

const (
	defaultCacheBytes    = 64 << 20
	defaultMemTableBytes = 6 << 20
	minMemTableBytes     = 256 << 10
	defaultReserveBytes  = 32 << 20
	defaultSyncInterval  = 100 * time.Millisecond

	// closeTimeout bounds Close of a fenced store.
	closeTimeout = 10 * time.Second
)

func (o *Options) withDefaults() *Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.CacheBytes <= 0 {
		c.CacheBytes = defaultCacheBytes
	}
	if c.MemTableBytes <= 0 {
		c.MemTableBytes = defaultMemTableBytes
	}
	c.MemTableBytes = max(c.MemTableBytes, minMemTableBytes)
	if c.SyncInterval <= 0 {
		c.SyncInterval = defaultSyncInterval
	}
	if c.ReserveBytes == 0 {
		c.ReserveBytes = defaultReserveBytes
	}
	if c.migrations == nil {
		c.migrations = migrations
	}
	return &c
}

// A Store is an open folder of ordered keys and values. All methods may be
// called concurrently.
type Store struct {
	opts  *Options
	dir   string
	fs    vfs.FS // of osier.json, lock and owner
	files vfs.FS // of data/, before the guard
	guard *guardFS
	fence *fence
	cache *pebble.Cache
	db    *pebble.DB
	lock  *folderLock // nil in memory
	meta  metaFile

	uses   useCount  // operations, snapshots, iterators and values in use
	values sync.Pool // of *heldValue: saves an allocation a Get
	close  struct {
		once sync.Once
		err  error
		done chan struct{}
	}

	// progress has an element when a flush or compaction has ended since it was
	// last emptied.
	progress chan struct{}

	commit struct {
		sync.Mutex       // serialises Apply
		unchecked  int64 // bytes applied since the last look at stalls and the disk
		checked    bool  // whether that look has been taken at all
	}
	applied atomic.Uint64 // number of the last batch visible
	synced  atomic.Uint64 // all batches up to this number are durable
	ticker  intervalSync
	trimmer trimmer
	changes changeCount
	shelf   shelf

	scratches atomic.Uint64 // number of the last temporary file
}

// Open opens the store in dir and makes it if the folder is missing or empty.
//
// Errors: ErrLocked (*LockedError) if it is open elsewhere, ErrFormat
// (*FormatError) if a newer version wrote it, ErrCorrupt (*CorruptError) if it is
// damaged, ErrForeign if the folder holds something else; in these cases nothing
// in it has been changed. After an unclean end the log is replayed; after Close
// there is nothing to replay.
func Open(dir string, o *Options) (*Store, error) {
	opts := o.withDefaults()
	s := &Store{
		opts:     opts,
		dir:      dir,
		progress: make(chan struct{}, 1),
		fence:    &fence{up: make(chan struct{}), notify: opts.OnFence},
	}
	s.uses.init()
	s.close.done = make(chan struct{})
	var err error
	if opts.InMemory {
		s.fs, s.files, s.dir = vfs.NewMem(), nil, "memory"
		s.files = s.fs
		err = s.openEngine()
	} else {
		err = s.openFolder()
	}
	if err != nil {
		return nil, err
	}
	s.guard.armed.Store(true)
	s.ticker.start(s)
	if trims {
		s.trimmer.misses = func() int64 { return s.cache.Metrics().Misses }
	}
	return s, nil
}

// openFolder locks and checks the folder and opens the engine in it.
func (s *Store) openFolder() (err error) {
	if err := s.resolveDir(); err != nil {
		return err
	}
	s.files = s.fs
	if s.opts.WrapFS != nil {
		s.files = s.opts.WrapFS(s.fs)
	}
	// Look before locking: taking the lock makes a file, and a folder that is not
	// ours stays untouched.
	if _, err := s.inspect(); err != nil {
		return err
	}
	if s.lock, err = lockFolder(s.fs, s.dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = s.lock.release() // the first error tells more
		}
	}()
	return s.openLocked()
}

// resolveDir chooses the file system, makes the folder and, on the disk, finds
// its one true name: the lock knows a folder by its name only, and a process's
// own lock does not exclude itself.
func (s *Store) resolveDir() error {
	s.fs = s.opts.FS
	onDisk := s.fs == nil
	if onDisk {
		s.fs = vfs.Default
	}
	if s.dir == "" {
		return errors.New("open store: no folder given")
	}
	if !s.opts.ReadOnly {
		if err := makeFolder(s.fs, s.dir); err != nil {
			return mapError("make folder "+s.dir, err)
		}
	}
	if !onDisk {
		return nil
	}
	abs, err := filepath.Abs(s.dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	s.dir = abs
	return nil
}

// openLocked does what has to happen under the folder's lock.
func (s *Store) openLocked() error {
	found, err := s.inspect() // again: it may have changed before the lock
	if err != nil {
		return err
	}
	newest := len(s.opts.migrations) + 1
	switch found.state {
	case folderEmpty:
		if s.opts.ReadOnly {
			return fmt.Errorf("open store %s: %w", s.dir, fs.ErrNotExist)
		}
		s.meta = metaFile{Product: product, Format: newest, Created: time.Now().UTC(), Creating: true}
		if err := writeMeta(s.fs, s.dir, s.meta); err != nil {
			return err
		}
	case folderStore:
		s.meta = found.meta
		if err := s.clearScratch(); err != nil {
			return err
		}
	}
	if s.meta.Creating {
		// Nothing was ever acknowledged from a store whose first Open did not end.
		if s.opts.ReadOnly {
			return fmt.Errorf("open store %s: it was never finished: %w", s.dir, fs.ErrNotExist)
		}
		if err := s.files.RemoveAll(s.dataDir()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return mapError("clear unfinished store", err)
		}
	}
	if s.meta.Format < newest && s.opts.ReadOnly {
		return fmt.Errorf("open store %s: format %d must be migrated to %d first: %w", s.dir,
			s.meta.Format, newest, ErrReadOnly)
	}
	if !s.meta.Creating {
		if err := s.checkManifest(); err != nil {
			return err
		}
	}
	if err := s.openEngine(); err != nil {
		return err
	}
	if err := s.finishOpen(newest); err != nil {
		_ = s.db.Close() // the first error tells more
		s.cache.Unref()
		return err
	}
	return nil
}

// finishOpen marks a new store as complete and migrates an old one.
func (s *Store) finishOpen(newest int) error {
	if s.meta.Creating {
		s.meta.Creating, s.meta.Format = false, newest
		if err := writeMeta(s.fs, s.dir, s.meta); err != nil {
			return err
		}
	}
	return s.migrate()
}

func (s *Store) dataDir() string { return s.fs.PathJoin(s.dir, dataName) }

// openEngine opens Pebble behind the guard.
func (s *Store) openEngine() error {
	s.guard = newGuardFS(s.files, s.dataDir(), s.fence)
	s.cache = pebble.NewCache(s.opts.CacheBytes)
	db, err := s.openPebble()
	if err != nil {
		s.cache.Unref()
		if errors.Is(err, pebble.ErrDBDoesNotExist) || isInconsistent(err) {
			return &CorruptError{File: damagedFile(err), Err: fmt.Errorf("open store %s: %w; salvage it with repair", s.dir, err)}
		}
		return mapError("open store "+s.dir, err)
	}
	s.db = db
	return nil
}

// openPebble opens the engine, which panics if a sync of its folder fails; what it
// holds by then it has released.
func (s *Store) openPebble() (db *pebble.DB, err error) {
	defer recoverInto(&err)
	return pebble.Open(s.dataDir(), s.engineOptions())
}

// Get returns the value of key, or ErrNotFound. The value is valid until closer
// is closed, which must happen exactly once; both are nil with an error. Cost: a
// memtable search and usually one table's block.
func (s *Store) Get(key []byte) (value []byte, closer io.Closer, err error) {
	if !s.uses.enter() {
		return nil, nil, ErrClosed
	}
	v, c, err := s.db.Get(key)
	return s.holdValue(v, c, err)
}

// holdValue passes on the result of an engine's Get; the use entered for it ends
// when the value is released.
func (s *Store) holdValue(v []byte, c io.Closer, err error) ([]byte, io.Closer, error) {
	if err != nil {
		s.uses.leave()
		if err == pebble.ErrNotFound { // the common case, unwrapped by the engine
			return nil, nil, ErrNotFound
		}
		return nil, nil, mapError("get", err)
	}
	h, ok := s.values.Get().(*heldValue)
	if !ok {
		h = &heldValue{s: s}
	}
	h.c = c
	return v, h, nil
}

// A heldValue keeps a value's memory until it is closed.
type heldValue struct {
	s *Store
	c io.Closer
}

func (h *heldValue) Close() error {
	if h.c == nil {
		return ErrClosed
	}
	err := h.c.Close()
	h.c = nil
	s := h.s
	s.values.Put(h)
	s.uses.leave()
	return err
}

// Close ends the store. New calls fail with ErrClosed from its beginning; it
// waits for calls under way and until all snapshots, iterators and values have
// been released, so a goroutine that holds one must not call it. Memtables are
// written to tables first, so that the next Open has nothing to replay. Further
// calls, also concurrent ones, wait for the first and return its result.
//
// After a failure Close changes nothing on disk, returns the *FencedError, and
// takes at most ten seconds beyond the release of what is in use: if the engine
// does not end by then it is left behind, without a way to reach the disk.
func (s *Store) Close() error {
	s.close.once.Do(func() {
		s.close.err = s.shut()
		close(s.close.done)
	})
	<-s.close.done
	return s.close.err
}

func (s *Store) shut() error {
	s.uses.closeAndWait(s.fence.up)
	s.shelf.stop()
	s.ticker.stop()
	s.trimmer.stop()
	var err error
	if !s.opts.ReadOnly && !s.opts.InMemory && s.fence.failure() == nil {
		err = s.flushMemtables()
	}
	s.guard.shutdown()
	if cerr := s.closeEngine(); err == nil {
		err = cerr
	}
	if ferr := s.fence.failure(); ferr != nil {
		err = ferr
	} else if err == nil {
		s.markSynced(s.applied.Load())
		if !s.opts.ReadOnly && !s.opts.InMemory {
			s.noteClosed()
		}
	}
	if s.lock != nil {
		if lerr := s.lock.release(); err == nil {
			err = lerr
		}
	}
	return err
}

// flushMemtables writes what is in memory to tables, if anything is.
func (s *Store) flushMemtables() error {
	if s.applied.Load() == 0 {
		return nil // Open has flushed what it replayed
	}
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return mapError("flush", err)
	}
	select {
	case <-flushed:
		return nil
	case <-s.fence.up:
		return s.fence.failure()
	}
}

// closeEngine closes Pebble, for a bounded time if the store is fenced.
func (s *Store) closeEngine() error {
	if s.fence.failure() == nil {
		err := s.db.Close()
		s.cache.Unref()
		return mapError("close store", err)
	}
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				ended <- fmt.Errorf("close store: %v", r)
			}
		}()
		ended <- s.db.Close()
	}()
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case err := <-ended:
		s.cache.Unref()
		return mapError("close store", err)
	case <-t.C:
		// The cache stays referenced: the engine may still use it.
		return fmt.Errorf("close store: the engine did not end within %v", closeTimeout)
	}
}

// useCount counts what is in use and closes only when nothing is.
type useCount struct {
	n     atomic.Int64 // uses, and the closed flag
	empty chan struct{}
	once  sync.Once
}

const usesClosed = 1 << 62

func (u *useCount) init() { u.empty = make(chan struct{}) }

// enter begins a use, unless closing has begun.
func (u *useCount) enter() bool {
	if u.n.Add(1) < usesClosed {
		return true
	}
	u.leave()
	return false
}

func (u *useCount) leave() {
	if u.n.Add(-1) == usesClosed {
		u.once.Do(func() { close(u.empty) })
	}
}

// closeAndWait lets no more uses begin and waits until all have ended, but not
// longer than closeTimeout once failed is closed.
func (u *useCount) closeAndWait(failed <-chan struct{}) {
	if u.n.Add(usesClosed) == usesClosed {
		return
	}
	select {
	case <-u.empty:
		return
	case <-failed:
	}
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case <-u.empty:
	case <-t.C:
	}
}

// slogger is where the engine's messages go.
func (s *Store) slogger() *slog.Logger {
	if s.opts.Logger != nil {
		return s.opts.Logger
	}
	return slog.New(slog.DiscardHandler)
}
