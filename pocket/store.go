package pocket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Version tells the states of one record apart: the sequence of the
// transaction that wrote it. It survives reopening and rewrites. 0 stands for
// a record that does not exist.
type Version uint64

// A Store is an open pocket file. All methods may be called concurrently.
//
// Reads take no lock and never wait for a writer: they see the state after
// some whole transaction, at least the newest one that was acknowledged
// before they began. After Close they go on to see the last state.
type Store struct {
	path   string
	opts   Options
	fs     fileSystem
	types  *registry
	cache  *cache
	hasher hasher
	pool   sync.Pool // of *encoderBuffer
	txns   sync.Pool // of *txn
	mode   loadMode

	table atomic.Pointer[table]
	cur   atomic.Pointer[state]
	// snapshots counts those ever taken; see tree.go.
	snapshots atomic.Uint64

	group groupQueue

	// Locks are taken in this order: rewriting, flushing, mu.
	rewriting sync.Mutex // held by a rewrite from begin to end
	flushing  sync.Mutex // held while the tail is flushed outside mu

	mu sync.Mutex // the write lock; guards everything below
	writer

	lock    *lockFile
	report  Report
	follow  follower
	watches watchList

	stop    context.CancelFunc
	work    sync.WaitGroup
	wake    wakers
	closing sync.Once
	closed  chan struct{} // closed when Close is done
	closeE  error

	stats counters
}

// state is what readers see: everything up to a sequence.
type state struct {
	seq  uint64
	root node
	dir  *directory
	live int // records
}

// writer is the part of a store that the write lock guards.
type writer struct {
	arena   *arena
	editor  editor           // of the tree
	places  [linkStep]placed // for linkSome
	cleanAt int              // word of the oldest chunk up to which it is cleaned

	file   file
	tail   tail
	shadow tail // the rewritten file, from the moment it must not miss anything
	out    []byte

	creation    time.Time
	lastRewrite time.Time
	seq         uint64 // last one given out
	synced      uint64 // last one known to be on the disk
	stated      uint64 // last synced that the file tells of
	plainBytes  int64  // of all lines, compressed ones expanded
	liveBytes   int64  // of the lines of live records
	tally       tally
	lines       int64 // of records that the file held when it was opened
	foreign     [][]byte
	expiries    expiryHeap

	dirty    bool // appended since the last flush
	wrote    bool // since the store was opened
	isClosed bool
	failed   error
}

// wakers tell the background work that there is some.
type wakers struct {
	rewrite, flush, expire chan struct{}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake already
	}
}

// Open opens the file at path, or creates it. opts may be nil.
//
// Open reads the whole file. What it had to skip, and what a crash had left
// half-written, is told by Report. It returns an error that matches ErrLocked
// when another process writes to the file.
func Open(path string, opts *Options) (*Store, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	types, err := newRegistry(o.Types)
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // a rewrite must replace the file, not a link to it
	}
	s := newStore(path, o, types)
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(path string, o Options, types *registry) *Store {
	s := &Store{path: path, opts: o, fs: o.fs, types: types, hasher: newHasher(),
		cache: newCache(max(o.MaxDecoded, 0)), closed: make(chan struct{})}
	s.pool.New = newEncoderBuffer
	s.txns.New = func() any { return new(txn) }
	s.wake = wakers{make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)}
	s.reset()
	return s
}

// reset makes the store empty.
func (s *Store) reset() {
	s.arena = newArena()
	s.table.Store(newTable(0))
	s.cur.Store(&state{dir: s.arena.dir})
}

func (s *Store) open() error {
	if s.opts.ReadOnly {
		return s.openFollower()
	}
	if _, ok := s.fs.(osFileSystem); ok {
		l, err := acquireLock(s.path)
		if err != nil {
			return err
		}
		s.lock = l
	}
	if err := s.openWriter(); err != nil {
		if s.file != nil {
			s.file.Close()
		}
		if s.lock != nil {
			s.lock.release()
		}
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.work.Go(func() { s.rewriteLoop(ctx) })
	s.work.Go(func() { s.expireLoop(ctx) })
	if s.opts.Durability == Delayed {
		s.work.Go(func() { s.flushLoop(ctx) })
	}
	return nil
}

func rewritePath(path string) string { return path + ".rewrite" }

func (s *Store) openWriter() error {
	// What a crash left of a rewrite was never the file.
	if err := s.fs.remove(rewritePath(s.path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("pocket: remove orphan: %w", err)
	}
	f, err := s.fs.open(s.path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return fmt.Errorf("pocket: open: %w", err)
	}
	s.file = f
	end, err := s.load(f)
	if err != nil {
		return err
	}
	if size, err := f.Size(); err != nil {
		return fmt.Errorf("pocket: open: %w", err)
	} else if size > end {
		if err := f.Truncate(end); err != nil {
			return fmt.Errorf("pocket: cut torn tail: %w", err)
		}
	}
	if err := s.beginFile(f, end); err != nil {
		return err
	}
	s.tail = s.newTail(f, s.tail.end())
	return nil
}

// beginFile writes the header of a new file, or the line feed that a file
// edited by hand may lack, and makes sure that both last.
func (s *Store) beginFile(f file, end int64) error {
	t := &plainTail{f: f, at: end}
	s.tail = t
	if end > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, end-1); err != nil {
			return fmt.Errorf("pocket: open: %w", err)
		}
		if last[0] == '\n' {
			return nil
		}
		if err := t.append([]byte{'\n'}, nil); err != nil {
			return fmt.Errorf("pocket: end last line: %w", err)
		}
		return nil
	}
	s.creation = time.Now()
	line := append(appendHeader(nil, s.creation, time.Time{}), "null}\n"...)
	if err := t.append(line, nil); err != nil {
		return fmt.Errorf("pocket: write header: %w", err)
	}
	if err := t.flush(); err != nil {
		return fmt.Errorf("pocket: write header: %w", err)
	}
	if err := s.fs.syncDir(dirOf(s.path)); err != nil {
		return fmt.Errorf("pocket: flush folder: %w", err)
	}
	return nil
}

// lookup finds the newest record of key that readers may see.
func (s *Store) lookup(key string) (record, bool) {
	hash := s.hasher.hash(key)
	tag := hash >> tagShift
retry:
	t := s.table.Load()
	for i := t.slot(hash); ; i = (i + 1) & t.mask {
		w := t.slots[i&uint64(len(t.slots)-1)].Load() // the mask saves a bounds check
		if w == slotEmpty {
			return record{}, false
		}
		if w>>tagShift != tag || w == slotGone {
			continue
		}
		// The state is loaded after the slot, so it is at most one group of
		// transactions behind it.
		st := s.cur.Load()
		r, ok := st.dir.at(offset(w & offsetMask))
		if !ok {
			goto retry // a chunk that was made or cleaned in between
		}
		if r.key() != key {
			continue
		}
		if r.version() > st.seq {
			off := r.prev()
			for off != 0 && r.version() > st.seq {
				if r, ok = st.dir.at(off); !ok {
					goto retry
				}
				off = r.prev()
			}
			if r.version() > st.seq {
				return record{}, false // created by a transaction under way
			}
		}
		if r.flags()&(flagDeleted|flagHasExpiry) != 0 && gone(r) {
			return record{}, false
		}
		return r, true
	}
}

// gone reports whether r is a deletion or has expired.
func gone(r record) bool {
	return r.deleted() || r.flags()&flagHasExpiry != 0 && r.expiry() <= time.Now().UnixMilli()
}

// visible returns the version of a record that a snapshot sees, given the one
// that its index holds.
func (st *state) visible(off offset) record {
	r, ok := st.dir.at(off)
	for ok && r.version() > st.seq {
		r, ok = st.dir.at(r.prev())
	}
	if !ok {
		panic("pocket: snapshot points outside the arena") // broken invariant
	}
	return r
}

// Sync returns when everything acknowledged before the call is on the disk.
func (s *Store) Sync() error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	return s.flush()
}

// flush flushes the tail without holding up appends.
func (s *Store) flush() error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.mu.Lock()
	t, next, seq, err := s.tail, s.shadow, s.seq, s.writable()
	s.dirty = false
	s.mu.Unlock()
	if err != nil {
		return err
	}
	err = t.flush()
	if err == nil && next != nil {
		err = next.flush()
	}
	s.stats.flushes.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return s.fail("flush", err)
	}
	s.synced = max(s.synced, seq)
	return nil
}

// writable needs mu.
func (s *Store) writable() error {
	switch {
	case s.isClosed:
		return ErrClosed
	case s.failed != nil:
		return s.failed
	}
	return nil
}

// fail ends writing: after a failed flush nobody knows what the disk holds,
// and asking again would be answered with a yes that means nothing. Needs mu.
func (s *Store) fail(step string, err error) error {
	if s.failed == nil {
		s.failed = fmt.Errorf("%w: %s: %w", ErrFailed, step, err)
	}
	return s.failed
}

func (s *Store) flushLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake.flush:
		}
		t := time.NewTimer(s.opts.SyncEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		if err := s.flush(); err != nil {
			s.opts.OnError(err)
		}
	}
}

// Close finishes what is under way, flushes in every durability mode, and
// gives the lock up. When ctx ends first, its error is returned and the rest
// is done in the background. Closing again waits for the first.
func (s *Store) Close(ctx context.Context) error {
	s.closing.Do(func() {
		go func() {
			s.closeE = s.close()
			close(s.closed)
		}()
	})
	select {
	case <-s.closed:
		return s.closeE
	case <-ctx.Done():
		select {
		case <-s.closed: // both were ready
			return s.closeE
		default:
		}
		return fmt.Errorf("pocket: close: %w", ctx.Err())
	}
}

func (s *Store) close() error {
	s.stop()
	s.work.Wait()
	s.rewriting.Lock() // waits for a rewrite or backup that a caller runs
	defer s.rewriting.Unlock()
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed = true
	s.watches.end(ErrClosed)
	if s.opts.ReadOnly {
		return s.follow.close()
	}
	var errs []error
	if s.failed == nil {
		errs = append(errs, s.finishFile())
	}
	if s.file != nil { // a failed rewrite may have left none
		errs = append(errs, s.file.Close())
	}
	errs = append(errs, s.lockRelease())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pocket: close: %w", err)
	}
	return nil
}

func (s *Store) lockRelease() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.release()
}

// finishFile flushes, then says so in the file: edits by hand that follow can
// never be taken for the traces of a crash.
func (s *Store) finishFile() error {
	if err := s.tail.finish(); err != nil {
		return err
	}
	if !s.wrote {
		return nil
	}
	t := &plainTail{f: s.file, at: s.tail.end()}
	if err := t.flush(); err != nil {
		return err
	}
	if s.stated < s.seq {
		mark := appendControl(nil, control{seq: s.seq, synced: s.seq}, nil)
		if err := t.append(mark, nil); err != nil {
			return err
		}
		s.plainBytes += int64(len(mark))
	}
	return t.flush()
}

// Report returns what Open found in the file.
func (s *Store) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}
