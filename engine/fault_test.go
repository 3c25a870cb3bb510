package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/osierdb/osier"
)

// failing fails the n-th operation that changes files and, if stay is set, all
// after it, until off is set.
type failing struct {
	n     int64
	stay  bool
	cause error
	count atomic.Int64
	hit   atomic.Pointer[errorfs.Op]
	off   atomic.Bool
}

func (f *failing) MaybeError(op errorfs.Op) error {
	if f.off.Load() || op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	if c := f.count.Add(1); c < f.n || c > f.n && !f.stay {
		return nil
	}
	f.hit.CompareAndSwap(nil, &op)
	return f.cause
}

func (f *failing) String() string {
	return fmt.Sprintf("operation %d fails with %v, stay=%t (%+v)", f.n, f.cause, f.stay, f.hit.Load())
}

// When the 1st, 2nd, 3rd, ... write, sync, create, rename or removal of a file
// fails, nothing panics or hangs, every command is either refused with a typed
// error or durable, reads go on, and the store opens again and is whole.
func TestEveryFailureOfTheDisk(t *testing.T) {
	seed := seedOf(t)
	for _, stay := range []bool{false, true} {
		for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprintf("stay=%t,%v", stay, cause), func(t *testing.T) {
				step, runs := int64(9), 0
				switch {
				case testing.Short():
					step = 60
				case rounds(1, 1) > 1:
					step = 1 // a long run takes every operation
				}
				n := 1 + rngOf(seed, 0).Int64N(step)
				for ; ; n += step {
					f := &failing{n: n, stay: stay, cause: cause}
					runs++
					faultyRun(t, f, seed)
					if t.Failed() {
						t.Fatalf("seed %d: %v", seed, f)
					}
					if f.hit.Load() == nil {
						break
					}
				}
				t.Logf("%d runs, the last of %d operations had no failure", runs, n)
			})
		}
	}
}

// faultyRun carries out a workload over a failing disk, then looks at what is
// there: after a power cut, after Close, and after the end of the process.
func faultyRun(t *testing.T, f *failing, seed uint64) {
	t.Helper()
	defer watchdog(2*time.Minute, "a faulty run")()
	mem := vfs.NewCrashableMem()
	e, err := Open("store", crashOptions(errorfs.Wrap(mem, f), time.Millisecond))
	if err != nil {
		requireTyped(t, f, "open", err)
		f.off.Store(true)
		e := mustOpen(t, "store", crashOptions(mem, time.Millisecond))
		checkClean(t, e, "after a failed open")
		mustClose(t, e)
		return
	}
	w := &faultyWriter{t: t, f: f, e: e, rng: rngOf(seed, 1), w: newWitness()}
	w.run()
	w.readOn()
	told := w.w
	power := mem.CrashClone(vfs.CrashCloneCfg{})
	killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: w.rng})
	closed := e.Close()
	if closed != nil {
		requireTyped(t, f, "close", closed)
	}
	f.off.Store(true)
	for _, c := range []struct {
		what     string
		fs       vfs.FS
		survives func(osier.Durability) bool
	}{
		{"power cut", power, func(d osier.Durability) bool { return d == osier.Sync }},
		{"killed", killed, func(d osier.Durability) bool { return d != osier.Relaxed }},
		{"closed", mem, func(d osier.Durability) bool { return d != osier.Relaxed || closed == nil }},
	} {
		e, err := Open("store", crashOptions(c.fs, time.Millisecond))
		if err != nil {
			t.Errorf("%s: open: %v", c.what, err)
			continue
		}
		if len(mustRows(t, e, &osier.Query{Kind: osier.QueryDatabases})) > 0 {
			told.freeze().judge(t, c.what, e, c.survives)
		} else if len(told.acks) > 0 {
			t.Errorf("%s: the database is gone", c.what)
		}
		checkClean(t, e, c.what)
		mustClose(t, e)
	}
}

// requireTyped: an error has a Kind that tells what happened, and comes only
// after the disk failed.
func requireTyped(t *testing.T, f *failing, what string, err error) {
	t.Helper()
	if f.hit.Load() == nil {
		t.Errorf("%s failed by itself: %v", what, err)
	}
	switch k := osier.KindOf(err); {
	case k == osier.KindFull && f.cause == syscall.ENOSPC, k == osier.KindIO:
	default:
		t.Errorf("%s: kind %v of %v, want %v or %v", what, k, err, osier.KindIO, osier.KindFull)
	}
}

// faultyWriter writes in order until the disk fails.
type faultyWriter struct {
	t   *testing.T
	f   *failing
	e   *Engine
	rng *rand.Rand
	w   *witness
	s   *storm
}

func (w *faultyWriter) run() {
	ctx := context.Background()
	var err error
	if w.s, err = newStorm(w.e, 0, w.w.note); err != nil {
		requireTyped(w.t, w.f, "begin", err)
		return
	}
	for i := range 60 {
		d := osier.Durability(1 + i%3)
		switch i % 12 {
		case 3:
			err = w.s.transfer(ctx, w.rng, 1, d)
		case 5:
			err = w.s.batch(ctx, w.rng, 1, d)
		case 7:
			err = w.upload(ctx, i)
		case 9:
			err = w.s.scratch(ctx, w.rng, 1, d)
		default:
			err = w.s.document(ctx, w.rng, 1, d)
		}
		if err == nil && i == 20 {
			err = w.e.Flush(ctx)
		}
		if err == nil && i == 40 {
			err = w.e.Compact(ctx)
		}
		if err != nil {
			requireTyped(w.t, w.f, fmt.Sprintf("step %d", i), err)
			if w.e.store.Fenced() != nil {
				return
			}
		}
	}
}

// upload is an attachment that fills a memtable.
func (w *faultyWriter) upload(ctx context.Context, i int) error {
	content := make([]byte, 300_000)
	for k := range content {
		content[k] = byte(w.rng.Uint32())
	}
	a, err := w.e.Stage(ctx, stormDB, bytes.NewReader(content))
	if err != nil {
		return err
	}
	op := set("files", osier.Tuple{1, i}, fmt.Sprintf(`{"sha256":"%x"}`, a.SHA256))
	op.Attachments = []osier.AttachmentRef{{Name: "content", Staged: a.Blob}}
	_, err = w.e.Exec(ctx, &osier.Command{DB: stormDB, Ops: []osier.Op{op}})
	return err
}

// readOn: whatever failed, reads are answered, a feed ends, and nothing that
// was acknowledged is missing.
func (w *faultyWriter) readOn() {
	t := w.t
	for _, ev := range w.w.acks {
		rows, err := rowsOf(w.e, &osier.Query{Kind: osier.QueryGet, DB: stormDB, Collection: ev.coll, IDs: []osier.ID{ev.id}, Deleted: true})
		if err != nil || rows[0].Seq < ev.seq {
			t.Errorf("read of %s/%v after the failure: %v, %v; it was at %d", ev.coll, ev.id, rows, err, ev.seq)
			return
		}
	}
	if len((*w.e.dbs.Load())) == 0 {
		return
	}
	changes, err := changesOf(w.e, &osier.Feed{DB: stormDB})
	if err != nil {
		requireTyped(t, w.f, "feed", err)
	}
	for _, ch := range changes {
		w.w.note(event{kind: eventShown, coll: ch.Collection, id: ch.ID, rev: ch.Rev, seq: ch.Seq})
	}
	fenced := w.e.store.Fenced()
	_, err = w.e.Exec(context.Background(), &osier.Command{DB: stormDB, Ops: []osier.Op{set("late", 1, `{}`)}})
	if err != nil {
		requireTyped(t, w.f, "a write after the failure", err)
	} else if fenced != nil {
		t.Errorf("a write after %v succeeded", fenced)
	}
}

// A full disk refuses writes with ErrFull and answers reads; when there is space
// again, at once or after reopening, everything acknowledged is there.
func TestFullDisk(t *testing.T) {
	for _, hard := range []bool{false, true} {
		t.Run(fmt.Sprintf("hard=%t", hard), func(t *testing.T) {
			defer watchdog(2*time.Minute, "full disk")()
			mem := vfs.NewCrashableMem()
			f := &failing{n: 1, stay: true, cause: syscall.ENOSPC}
			f.off.Store(true)
			o := crashOptions(errorfs.Wrap(mem, f), time.Millisecond)
			o.store.ReserveBytes = 1 << 20
			e := mustOpen(t, "store", o)
			mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
			rng := rngOf(7, 7)
			for i := range 50 {
				mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", i, bodyOf(rng, 5000))}})
			}
			if hard {
				f.off.Store(false)
			} else {
				mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1000, TotalBytes: 1 << 30})
			}
			acked := writeUntilFull(t, e, rng)
			for i := range acked {
				if row := getRow(t, e, "shop", "films", osier.MustID(i), osier.WithBody); row.Missing {
					t.Errorf("full disk: document %d is not read", i)
				}
			}
			if _, err := e.Stage(context.Background(), "shop", io.LimitReader(zeros{}, 3<<20)); !errors.Is(err, osier.ErrFull) {
				t.Errorf("stage on a full disk: %v, want ErrFull", err)
			}
			f.off.Store(true)
			mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40})
			if !hard {
				mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "again", `{}`)}})
			}
			if err := e.Close(); err != nil && !(hard && errors.Is(err, osier.ErrFull)) {
				t.Errorf("close: %v", err)
			}
			e = mustOpen(t, "store", crashOptions(mem, time.Millisecond))
			defer mustClose(t, e)
			for i := range acked {
				if row := getRow(t, e, "shop", "films", osier.MustID(i), osier.WithBody); row.Missing {
					t.Errorf("reopened with space: document %d of %d is lost", i, acked)
				}
			}
			mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "more", `{}`)}})
			checkClean(t, e, "reopened with space")
		})
	}
}

// writeUntilFull returns how many documents there are by then.
func writeUntilFull(t *testing.T, e *Engine, rng *rand.Rand) (acked int) {
	t.Helper()
	for i := 50; ; i++ {
		_, err := e.Exec(context.Background(), &osier.Command{DB: "shop", Ops: []osier.Op{set("films", i, bodyOf(rng, 5000))}})
		if errors.Is(err, osier.ErrFull) {
			return i
		}
		if err != nil {
			t.Fatalf("write to a full disk: %v, want ErrFull", err)
		}
		if i > 2000 {
			t.Fatal("a full disk took 10 MB")
		}
	}
}

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A feed that waits for what will not become durable ends with the error that
// ended the store's writes.
func TestFeedEndsWhenWritesEnd(t *testing.T) {
	mem := vfs.NewCrashableMem()
	f := &failing{n: 1, stay: true, cause: syscall.EIO}
	f.off.Store(true)
	e := mustOpen(t, "store", crashOptions(errorfs.Wrap(mem, f), time.Hour))
	defer e.Close()
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	mustExec(t, e, &osier.Command{DB: "shop", Durability: osier.Relaxed, Ops: []osier.Op{set("films", 1, `{}`)}})
	ended := make(chan error, 2)
	for _, mode := range []osier.FeedMode{osier.FeedOnce, osier.FeedLive} {
		go func() {
			_, err := changesOf(e, &osier.Feed{DB: "shop", Mode: mode})
			ended <- err
		}()
	}
	defer watchdog(time.Minute, "feeds of a store without writes")()
	f.off.Store(false)
	if _, err := e.Exec(context.Background(), &osier.Command{DB: "shop", Ops: []osier.Op{set("films", 2, `{}`)}}); !errors.Is(err, osier.ErrIO) {
		t.Errorf("write with a broken disk: %v, want ErrIO", err)
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, osier.ErrIO) {
			t.Errorf("a feed ended with %v, want ErrIO", err)
		}
	}
	if _, err := changesOf(e, &osier.Feed{DB: "shop"}); !errors.Is(err, osier.ErrIO) {
		t.Errorf("a feed begun later ended with %v, want ErrIO", err)
	}
}
