package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// slowLogs makes syncs of logs countable and lets a test hold them up.
type slowLogs struct {
	vfs.FS
	syncs atomic.Int64
	gate  chan struct{} // if not nil, each sync takes an element
}

func (f *slowLogs) Unwrap() vfs.FS { return f.FS }

func (f *slowLogs) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(name)(f.FS.Create(name, c))
}

func (f *slowLogs) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(name)(f.FS.ReuseForWrite(old, name, c))
}

func (f *slowLogs) wrap(name string) func(vfs.File, error) (vfs.File, error) {
	return func(file vfs.File, err error) (vfs.File, error) {
		if err != nil || !isLog(name) {
			return file, err
		}
		return &slowLog{File: file, fs: f}, nil
	}
}

type slowLog struct {
	vfs.File
	fs *slowLogs
}

func (l *slowLog) Sync() error { return l.SyncData() }

func (l *slowLog) SyncData() error {
	l.fs.syncs.Add(1)
	if l.fs.gate != nil {
		<-l.fs.gate
	}
	return l.File.SyncData()
}

// TestSyncsOfEachLevel: a Buffered or Relaxed batch costs no fsync within the
// call, a Sync batch one, Flush one for all before it and none if there is
// nothing to do.
func TestSyncsOfEachLevel(t *testing.T) {
	f := &slowLogs{FS: vfs.NewMem()}
	s := mustOpen(t, "store", &Options{FS: f, SyncInterval: time.Hour})
	step := func(what string, want int64, fn func()) {
		t.Helper()
		before := f.syncs.Load()
		fn()
		if got := f.syncs.Load() - before; got != want {
			t.Errorf("%s: %d syncs, want %d", what, got, want)
		}
	}
	step("buffered", 0, func() {
		for i := range 100 {
			mustPut(t, s, fmt.Sprint("b", i), "v", Buffered)
		}
	})
	step("relaxed", 0, func() {
		for i := range 100 {
			mustPut(t, s, fmt.Sprint("r", i), "v", Relaxed)
		}
	})
	if got := s.Synced(); got != 0 {
		t.Errorf("synced %d before any sync, want 0", got)
	}
	step("flush", 1, func() {
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	if got := s.Synced(); got != 200 {
		t.Errorf("synced %d after flush, want 200", got)
	}
	step("flush again", 0, func() {
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	step("sync", 1, func() { mustPut(t, s, "s", "v", Sync) })
	if got := s.Synced(); got != 201 {
		t.Errorf("synced %d after a sync batch, want 201", got)
	}
}

// TestSyncsAreShared: 64 Sync batches that wait at once need few fsyncs.
func TestSyncsAreShared(t *testing.T) {
	f := &slowLogs{FS: vfs.NewMem()}
	s := mustOpen(t, "store", &Options{FS: f})
	f.gate = make(chan struct{})
	var pending []Pending
	for i := range 64 {
		b := s.NewWriteBatch()
		if err := b.Set(fmt.Appendf(nil, "k%d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
		p, err := s.Apply(b, Sync)
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, p)
	}
	if got := get(t, s, "k63"); got != "v" {
		t.Errorf("not visible before its sync: got %q", got)
	}
	if s.Synced() != 0 {
		t.Errorf("synced %d while the disk is held up, want 0", s.Synced())
	}
	close(f.gate)
	var wg sync.WaitGroup
	for _, p := range pending {
		wg.Go(func() {
			for range 2 { // a second call returns the same
				if err := p.Wait(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// The first batch may be alone in its sync, the others find it under way.
	if got := f.syncs.Load(); got > 4 {
		t.Errorf("%d syncs for 64 batches, want at most 4", got)
	}
	if s.Synced() != 64 {
		t.Errorf("synced %d, want 64", s.Synced())
	}
}

// TestInterval: what is not synced by itself is after SyncInterval, in one fsync,
// and OnSynced says so; without writes there is no fsync.
func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowLogs{FS: vfs.NewMem()}
		var told atomic.Uint64
		s, err := Open("store", &Options{FS: f, SyncInterval: time.Second, OnSynced: func(n uint64) { ratchet(&told, n) }})
		if err != nil {
			t.Fatal(err)
		}
		for round := range 3 {
			before := f.syncs.Load()
			for i := range 10 {
				mustPut(t, s, fmt.Sprint(i), "v", Durability(1+i%2))
			}
			want := uint64(10 * (round + 1))
			time.Sleep(999 * time.Millisecond)
			synctest.Wait()
			if got := told.Load(); got != want-10 {
				t.Errorf("round %d: told %d before the interval's end, want %d", round, got, want-10)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if got := told.Load(); got != want || s.Synced() != want {
				t.Errorf("round %d: told %d, synced %d, want %d", round, got, s.Synced(), want)
			}
			time.Sleep(time.Minute)
			if got := f.syncs.Load() - before; got != 1 {
				t.Errorf("round %d: %d syncs, want 1", round, got)
			}
		}
		mustClose(t, s)
	})
}

// TestWaitAfterClose: a batch that nobody waited for is durable when Close has
// returned.
func TestWaitAfterClose(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: mem})
	b := s.NewWriteBatch()
	if err := b.Set([]byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	p, err := s.Apply(b, Sync)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	if err := p.Wait(); err != nil {
		t.Errorf("wait after close: %v", err)
	}
	r := mustOpen(t, "store", &Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	if got := get(t, r, "k"); got != "v" {
		t.Errorf("got %q, want v", got)
	}
}

// TestFailedSync: a sync that fails is no success for anybody, also not later,
// and reading goes on.
func TestFailedSync(t *testing.T) {
	mem := vfs.NewMem()
	bad := errors.New("bad disk")
	f := &failSync{FS: mem, err: bad}
	fenced := make(chan error, 1)
	s := mustOpen(t, "store", &Options{FS: f, OnFence: func(err error) { fenced <- err }})
	mustPut(t, s, "a", "1", Sync)
	f.on.Store(true)
	err := put(s, "b", "2", Sync)
	var fe *FencedError
	if !errors.As(err, &fe) || !errors.Is(err, ErrFenced) || !errors.Is(err, bad) {
		t.Fatalf("got %v, want a FencedError around %v", err, bad)
	}
	if err := <-fenced; !errors.Is(err, bad) {
		t.Errorf("OnFence got %v", err)
	}
	f.on.Store(false)
	for _, d := range []Durability{Sync, Buffered, Relaxed} {
		if err := put(s, "c", "3", d); !errors.Is(err, ErrFenced) {
			t.Errorf("%v after the failure: %v, want a FencedError", d, err)
		}
	}
	if err := s.Flush(); !errors.Is(err, ErrFenced) {
		t.Errorf("flush: %v, want a FencedError", err)
	}
	if get(t, s, "a") != "1" || get(t, s, "b") != "2" {
		t.Error("a fenced store does not read")
	}
	if s.Synced() != 1 {
		t.Errorf("synced %d, want 1", s.Synced())
	}
	if err := s.Close(); !errors.Is(err, ErrFenced) {
		t.Errorf("close: %v, want a FencedError", err)
	}
	if err := s.Close(); !errors.Is(err, ErrFenced) {
		t.Errorf("close again: %v, want the same", err)
	}
	r := mustOpen(t, "store", &Options{FS: mem})
	if got := get(t, r, "a"); got != "1" {
		t.Errorf("after reopening got %q, want 1", got)
	}
	mustPut(t, r, "c", "3", Sync)
}

type failSync struct {
	vfs.FS
	on  atomic.Bool
	err error
}

func (f *failSync) Unwrap() vfs.FS { return f.FS }

func (f *failSync) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err != nil || !isLog(name) {
		return file, err
	}
	return &failSyncFile{File: file, fs: f}, nil
}

type failSyncFile struct {
	vfs.File
	fs *failSync
}

func (f *failSyncFile) Sync() error { return f.SyncData() }

func (f *failSyncFile) SyncData() error {
	if f.fs.on.Load() {
		return f.fs.err
	}
	return f.File.SyncData()
}

// TestDiskReserve: below the reserve writes are refused with ErrFull and the
// store stays usable; when space comes back they go on.
func TestDiskReserve(t *testing.T) {
	f := &limitedDisk{FS: vfs.NewMem()}
	f.free.Store(1 << 30)
	s := mustOpen(t, "store", &Options{FS: f})
	mustPut(t, s, "a", "1", Sync)
	f.free.Store(1 << 20)
	var err error
	for i := 0; i < 40 && err == nil; i++ {
		err = put(s, fmt.Sprint("k", i), string(make([]byte, 64<<10)), Buffered)
	}
	if !errors.Is(err, ErrFull) || errors.Is(err, ErrFenced) {
		t.Fatalf("got %v, want ErrFull without a fence", err)
	}
	if err := put(s, "b", "1", Sync); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	if got := get(t, s, "a"); got != "1" {
		t.Errorf("read %q, want 1", got)
	}
	f.free.Store(1 << 30)
	mustPut(t, s, "b", "1", Sync)
}

type limitedDisk struct {
	vfs.FS
	free atomic.Uint64
}

func (f *limitedDisk) Unwrap() vfs.FS { return f.FS }
func (f *limitedDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: f.free.Load(), TotalBytes: 1 << 40}, nil
}

// TestLargeBatch: batches larger than a memtable, which the engine handles apart,
// keep their promises.
func TestLargeBatch(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: mem, MemTableBytes: 1 << 20})
	value := make([]byte, 64<<10)
	for i, d := range []Durability{Relaxed, Buffered, Sync} {
		b := s.NewWriteBatch()
		for j := range 64 {
			if err := b.Set(fmt.Appendf(nil, "%d-%02d", i, j), value); err != nil {
				t.Fatal(err)
			}
		}
		p, err := s.Apply(b, d)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			t.Fatalf("%v: %v", d, err)
		}
	}
	r := mustOpen(t, "store", &Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	if got := len(dump(t, r)); got != 192 {
		t.Errorf("%d keys after a power cut, want 192", got)
	}
}
