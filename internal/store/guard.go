package store

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// This file stands between the engine and the file system, for two purposes:
// ending writes safely after a failure, here, and the levels of durability, in
// log.go.
//
// # The fence
//
// The engine treats a failed write to its log or its manifest as the end of the
// process: it calls Logger.Fatalf or panics, with locks held and its own state
// half changed, and who survives that finds commits, Close and sometimes reads
// blocked for good. So it never sees such a failure. When a write to a log, to the
// manifest or a marker, or a sync of one of these or of the folder fails, the
// guard raises the fence and reports success to the engine. Once the fence is up,
//
//   - no operation that changes a file under data/ is carried out any more: logs,
//     manifest and markers swallow what is written to them, everything else
//     fails;
//   - Apply, Wait and Flush of the store return FencedError.
//
// Why the success reported is harmless although it is untrue: the fence is raised
// before the engine is told, and an operation that changes files looks at the
// fence when it begins. So whatever the engine concludes from that success
// (deleting a log, naming a new table in the manifest) begins after the fence is
// up and cannot reach the disk. Operations under way while the fence rises were
// asked for before and rest on true answers. The folder is therefore in a state
// that a crash at that moment could have left, and opens like one. And since the
// store itself looks at the fence after the engine has answered, no caller is
// told of a durability that was not reached.
//
// A table that cannot be written is different: the engine expects that, keeps
// the memtable and tries again at once, for ever. If the memtable of a flush
// cannot be written the fence is raised too (log and memtables would grow until
// writes stop), and further attempts wait in Create until the store is closed. A
// failed compaction loses nothing and is tried again after a growing pause.

// errShutdown ends background work when the store is being closed.
var errShutdown = errors.New("store: shutting down")

// A fence is raised once and never lowered. All methods may be called
// concurrently and with any lock held.
type fence struct {
	err    atomic.Pointer[FencedError]
	up     chan struct{} // closed when raised
	notify func(error)   // runs in a goroutine of its own; may be nil
}

// raise puts the fence up for cause, unless it is up already.
func (f *fence) raise(cause error) {
	if !f.err.CompareAndSwap(nil, &FencedError{Err: cause}) {
		return
	}
	close(f.up)
	if f.notify != nil {
		go f.notify(f.err.Load())
	}
}

// failure returns the *FencedError if the fence is up, else nil.
func (f *fence) failure() error {
	if e := f.err.Load(); e != nil {
		return e
	}
	return nil
}

// categoryCompaction is how the engine marks tables that a compaction writes.
const categoryCompaction vfs.DiskWriteCategory = "pebble-compaction"

// A guardFS is the file system that the engine sees.
type guardFS struct {
	vfs.FS
	data  string // the engine's folder
	fence *fence

	// armed is set once the engine is open. Until then errors are passed on, and
	// opening fails with them.
	armed atomic.Bool
	// closing is closed when background work has to end.
	closing     chan struct{}
	closingOnce sync.Once

	// syncWaiters counts who needs a real sync of the log: see log.go.
	syncWaiters atomic.Int64
	realSyncs   atomic.Uint64
	elidedSyncs atomic.Uint64

	current atomic.Pointer[logFile] // the log that is written to

	compaction struct {
		sync.Mutex
		err     error         // of the last one
		pause   time.Duration // before the next one: doubles with each failure in a row
		next    uint64
		waiters map[uint64]func(error)
	}
}

func newGuardFS(inner vfs.FS, data string, f *fence) *guardFS {
	return &guardFS{FS: inner, data: data, fence: f, closing: make(chan struct{})}
}

// Unwrap implements vfs.FS.
func (g *guardFS) Unwrap() vfs.FS { return g.FS }

// shutdown ends waiting background work and makes compactions under way fail.
func (g *guardFS) shutdown() { g.closingOnce.Do(func() { close(g.closing) }) }

func (g *guardFS) shuttingDown() bool {
	select {
	case <-g.closing:
		return true
	default:
		return false
	}
}

// inside reports whether name is a file directly in the engine's folder. A
// checkpoint's files are not: their errors go back to who makes the checkpoint.
func (g *guardFS) inside(name string) bool { return g.FS.PathDir(name) == g.data }

func isLog(name string) bool   { return filepath.Ext(name) == ".log" }
func isTable(name string) bool { return filepath.Ext(name) == ".sst" }

// isManifest tells the files by which the engine knows its tables: the manifest
// and the markers that point to it.
func isManifest(base string) bool {
	return strings.HasPrefix(base, "MANIFEST-") || strings.HasPrefix(base, "marker.")
}

const (
	minCompactionPause = 100 * time.Millisecond
	maxCompactionPause = 10 * time.Second
)

// compactionEnded takes note of how a compaction went. A failure lengthens the
// pause before the next one and ends the calls of Compact that wait: the engine
// would let them wait until it succeeds. It may be called with any lock held.
func (g *guardFS) compactionEnded(err error) {
	if errors.Is(err, pebble.ErrCancelledCompaction) || errors.Is(err, errShutdown) {
		return
	}
	g.compaction.Lock()
	defer g.compaction.Unlock()
	c := &g.compaction
	c.err = err
	if err == nil {
		c.pause = 0
		return
	}
	c.pause = min(max(2*c.pause, minCompactionPause), maxCompactionPause)
	for _, fail := range c.waiters {
		fail(err) // a context's cancel function: it does not block
	}
}

// compactionError returns the error of the last compaction, or nil.
func (g *guardFS) compactionError() error {
	g.compaction.Lock()
	defer g.compaction.Unlock()
	return g.compaction.err
}

// watchCompactions calls fail when a compaction fails, until stop is called.
func (g *guardFS) watchCompactions(fail func(error)) (stop func()) {
	g.compaction.Lock()
	defer g.compaction.Unlock()
	c := &g.compaction
	if c.waiters == nil {
		c.waiters = make(map[uint64]func(error))
	}
	c.next++
	id := c.next
	c.waiters[id] = fail
	return func() {
		g.compaction.Lock()
		defer g.compaction.Unlock()
		delete(g.compaction.waiters, id)
	}
}

// waitTable holds back the creation of a table that would fail anyway.
func (g *guardFS) waitTable(cat vfs.DiskWriteCategory) error {
	if g.fence.failure() != nil {
		<-g.closing
		return errShutdown
	}
	if cat != categoryCompaction {
		return nil
	}
	g.compaction.Lock()
	p := g.compaction.pause
	g.compaction.Unlock()
	if p > 0 {
		t := time.NewTimer(p)
		defer t.Stop()
		select {
		case <-t.C:
		case <-g.closing:
		case <-g.fence.up:
			<-g.closing
		}
	}
	if g.shuttingDown() {
		return errShutdown
	}
	return nil
}

// Create implements vfs.FS.
func (g *guardFS) Create(name string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	if !g.inside(name) {
		return g.FS.Create(name, cat)
	}
	if isLog(name) {
		return g.newLog(name, func() (vfs.File, error) { return g.FS.Create(name, cat) })
	}
	if g.armed.Load() && isTable(name) {
		if err := g.waitTable(cat); err != nil {
			return nil, err
		}
	}
	f, err := g.wrap(name, cat)(g.checked(func() (vfs.File, error) { return g.FS.Create(name, cat) }))
	if err != nil && g.armed.Load() && isManifest(g.FS.PathBase(name)) {
		g.fence.raise(mapError("create "+g.FS.PathBase(name), err))
		return nullFile{}, nil
	}
	return f, err
}

// ReuseForWrite implements vfs.FS; the engine uses it for recycled logs.
func (g *guardFS) ReuseForWrite(old, name string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	reuse := func() (vfs.File, error) { return g.FS.ReuseForWrite(old, name, cat) }
	if g.inside(name) && isLog(name) {
		return g.newLog(name, reuse)
	}
	return g.wrap(name, cat)(g.checked(reuse))
}

// OpenReadWrite implements vfs.FS.
func (g *guardFS) OpenReadWrite(
	name string, cat vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	if !g.inside(name) {
		return g.FS.OpenReadWrite(name, cat, opts...)
	}
	return g.wrap(name, cat)(g.checked(func() (vfs.File, error) { return g.FS.OpenReadWrite(name, cat, opts...) }))
}

// OpenDir implements vfs.FS.
func (g *guardFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil || name != g.data {
		return f, err
	}
	return &guardDir{File: f, g: g}, nil
}

func (g *guardFS) checked(open func() (vfs.File, error)) (vfs.File, error) {
	if err := g.fence.failure(); err != nil {
		return nil, err
	}
	return open()
}

func (g *guardFS) wrap(name string, cat vfs.DiskWriteCategory) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		base := g.FS.PathBase(name)
		return &guardFile{File: f, g: g, name: base, compaction: cat == categoryCompaction, manifest: isManifest(base)}, nil
	}
}

// refuse returns the fence's error if one of the names lies in the engine's
// folder and the fence is up.
func (g *guardFS) refuse(names ...string) error {
	for _, n := range names {
		if g.inside(n) || n == g.data {
			return g.fence.failure()
		}
	}
	return nil
}

// Link implements vfs.FS.
func (g *guardFS) Link(old, name string) error {
	if err := g.refuse(name); err != nil {
		return err
	}
	return g.FS.Link(old, name)
}

// Remove implements vfs.FS.
func (g *guardFS) Remove(name string) error {
	if err := g.refuse(name); err != nil {
		return err
	}
	return g.FS.Remove(name)
}

// RemoveAll implements vfs.FS.
func (g *guardFS) RemoveAll(name string) error {
	if err := g.refuse(name); err != nil {
		return err
	}
	return g.FS.RemoveAll(name)
}

// Rename implements vfs.FS.
func (g *guardFS) Rename(old, name string) error {
	if err := g.refuse(old, name); err != nil {
		return err
	}
	return g.FS.Rename(old, name)
}

// A guardFile is a file of the engine that is not a log.
type guardFile struct {
	vfs.File
	g          *guardFS
	name       string
	compaction bool // is written by a compaction
	manifest   bool // failures are kept from the engine
}

// do carries out an operation that changes the file. It returns the error that
// the engine is to see.
func (f *guardFile) do(step string, op func() error) error {
	err := f.g.fence.failure()
	switch {
	case err != nil && f.manifest:
		return nil
	case err != nil:
		return err
	case f.compaction && f.g.shuttingDown():
		return errShutdown
	}
	if err = op(); err != nil && f.manifest && f.g.armed.Load() {
		f.g.fence.raise(mapError(step+" "+f.name, err))
		return nil
	}
	return err
}

func (f *guardFile) Write(p []byte) (n int, err error) {
	err = f.do("write", func() (err error) { n, err = f.File.Write(p); return err })
	if err == nil {
		n = len(p)
	}
	return n, err
}

func (f *guardFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.do("write", func() (err error) { n, err = f.File.WriteAt(p, off); return err })
	if err == nil {
		n = len(p)
	}
	return n, err
}

func (f *guardFile) Sync() error     { return f.do("sync", f.File.Sync) }
func (f *guardFile) SyncData() error { return f.do("sync", f.File.SyncData) }

func (f *guardFile) SyncTo(n int64) (full bool, err error) {
	err = f.do("sync", func() (err error) { full, err = f.File.SyncTo(n); return err })
	return full, err
}

func (f *guardFile) Preallocate(off, n int64) error {
	return f.do("preallocate", func() error { return f.File.Preallocate(off, n) })
}

func (f *guardFile) Close() error {
	err := f.File.Close()
	if err != nil && f.manifest && f.g.armed.Load() {
		f.g.fence.raise(mapError("close "+f.name, err))
		return nil
	}
	return err
}

// A guardDir is a handle of the engine's folder.
type guardDir struct {
	vfs.File
	g *guardFS
}

func (d *guardDir) Sync() error {
	if !d.g.armed.Load() {
		return d.File.Sync()
	}
	if d.g.fence.failure() != nil {
		return nil
	}
	if err := d.File.Sync(); err != nil {
		d.g.fence.raise(mapError("sync the data folder", err))
	}
	return nil
}
