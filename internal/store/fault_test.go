package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// failFrom fails the n-th operation that changes files and, if stay is set, all
// later ones.
type failFrom struct {
	n     int64
	stay  bool
	err   error
	count atomic.Int64
	hit   atomic.Pointer[errorfs.Op]
	off   atomic.Bool
	only  func(errorfs.Op) bool
}

func (f *failFrom) MaybeError(op errorfs.Op) error {
	if f.off.Load() || op.Kind.ReadOrWrite() == errorfs.OpIsRead || f.only != nil && !f.only(op) {
		return nil
	}
	c := f.count.Add(1)
	if c < f.n || c > f.n && !f.stay {
		return nil
	}
	f.hit.CompareAndSwap(nil, &op)
	return f.err
}

func (f *failFrom) String() string { return fmt.Sprintf("fail operation %d", f.n) }

// within fails the test with all stacks if fn does not return in time. It is the
// only use of real time here: what it guards against is waiting for ever.
func within(t *testing.T, d time.Duration, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%s did not end\n%s\n", what, buf[:runtime.Stack(buf, true)])
		panic(what + " hangs")
	})
	go func() { defer close(done); fn() }()
	<-done
	timer.Stop()
}

// TestEveryFailure fails the 1st, 2nd, ... operation on the file system until a
// run meets no failure: no panic, no hang, nothing acknowledged is lost, and the
// store opens again.
func TestEveryFailure(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, stay := range []bool{false, true} {
		for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprintf("stay=%t,%v", stay, cause), func(t *testing.T) {
				step := int64(1)
				if testing.Short() {
					step = 7
				}
				n := int64(1)
				for ; ; n += step {
					f := &failFrom{n: n, stay: stay, err: cause}
					within(t, time.Minute, f.String(), func() { faultRun(t, f, seed) })
					if t.Failed() {
						t.Fatalf("seed %d, operation %d: %+v", seed, n, f.hit.Load())
					}
					if f.hit.Load() == nil {
						break
					}
				}
				t.Logf("%d operations", n)
			})
		}
	}
}

func faultRun(t *testing.T, f *failFrom, seed uint64) {
	mem := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &crashWriter{rng: rng, pad: strings.Repeat("x", 20_000)}
	s, err := Open("store", &Options{FS: errorfs.Wrap(mem, f), MemTableBytes: 256 << 10, SyncInterval: time.Millisecond})
	if err != nil {
		if f.hit.Load() == nil {
			t.Errorf("open failed by itself: %v", err)
		}
		reopenAfterFault(t, mem, "after a failed open", 0, 0)
		return
	}
	w.s = s
	werr := faultWorkload(w)
	if werr != nil && f.hit.Load() == nil {
		t.Errorf("failed by itself: %v", werr)
	}
	if s.Fenced() != nil {
		checkFenced(t, s, w)
	}
	durable := max(w.acked[Sync], int(s.Synced()))
	buffered := max(durable, w.acked[Buffered])
	power := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil && f.hit.Load() == nil {
		t.Errorf("close failed by itself: %v", err)
	} else if err == nil {
		durable, buffered = w.n, w.n
		if werr != nil {
			durable, buffered = w.n-1, w.n-1
		}
	}
	powerAfter := mem.CrashClone(vfs.CrashCloneCfg{})
	f.off.Store(true)
	reopenAfterFault(t, power, "after a power cut", max(w.acked[Sync], 0), w.n)
	reopenAfterFault(t, powerAfter, "after close and a power cut", durable, w.n)
	reopenAfterFault(t, mem, "after close", buffered, w.n)
}

// checkFenced checks what a fenced store still has to do.
func checkFenced(t *testing.T, s *Store, w *crashWriter) {
	t.Helper()
	if err := put(s, "x", "y", Sync); !errors.Is(err, ErrFenced) {
		t.Errorf("put on a fenced store: %v", err)
	}
	if err := s.Compact(context.Background(), nil, nil); !errors.Is(err, ErrFenced) {
		t.Errorf("compact on a fenced store: %v", err)
	}
	for i := 1; i <= w.acked[Buffered]; i++ {
		if v := get(t, s, fmt.Sprintf("n%06d", i)); v == "" {
			t.Errorf("fenced store does not read batch %d", i)
		}
	}
}

// faultWorkload writes, flushes, compacts and checkpoints until something fails.
func faultWorkload(w *crashWriter) error {
	for i := range 60 {
		d := Durability(i % 3)
		p, err := w.write(d)
		if err != nil {
			return err
		}
		if err := p.Wait(); err != nil {
			return err
		}
		w.acked[d] = int(p.Number)
		switch i {
		case 20:
			err = w.s.Flush()
		case 30:
			err = w.s.Compact(context.Background(), nil, nil)
		case 40:
			err = w.s.Checkpoint("copy")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func reopenAfterFault(t *testing.T, f vfs.FS, what string, least, most int) {
	t.Helper()
	s, err := Open("store", &Options{FS: f})
	if err != nil {
		t.Errorf("open %s: %v", what, err)
		return
	}
	defer mustClose(t, s)
	if got := checkPrefix(t, dump(t, s)); got < least || got > most {
		t.Errorf("%s: %d batches, want %d to %d", what, got, least, most)
	}
	if found := verifyAll(t, s); len(found) > 0 {
		t.Errorf("%s: damage: %v", what, found)
	}
}
