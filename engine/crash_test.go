package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
)

// After a crash, everything acknowledged at a level that survives it is there,
// and everything else as a whole prefix of what was carried out: no half
// transaction, no gap, no sequence that goes back, exact counts; and a feed
// resumed from where it was misses nothing and has shown nothing that is gone.
func TestCrashOfTheMachine(t *testing.T) {
	seed := seedOf(t)
	total := map[eventKind]int{}
	chain := crashChain{}
	for round := range rounds(200, 12) {
		chain.round(t, rngOf(seed, round), fmt.Sprintf("seed %d, round %d", seed, round), total)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d acknowledgements, %d changes shown", total[eventAcked], total[eventShown])
}

// crashChain is a store that crashes again and again; now and then a new one.
type crashChain struct {
	fs *vfs.MemFS
	w  *witness
	n  int
}

func (c *crashChain) round(t *testing.T, rng *rand.Rand, name string, total map[eventKind]int) {
	t.Helper()
	defer watchdog(2*time.Minute, name)()
	if c.fs == nil || c.n >= 8 {
		*c = crashChain{fs: vfs.NewCrashableMem(), w: newWitness()}
	}
	c.n++
	// A crash that keeps everything is the end of the process alone.
	keep := []int{0, 100, rng.IntN(101)}[rng.IntN(3)]
	survives := func(d osier.Durability) bool { return d == osier.Sync || keep == 100 && d == osier.Buffered }
	name = fmt.Sprintf("%s, crash %d of the store, %d%% kept", name, c.n, keep)
	c.crash(t, rng, name, keep)
	e, err := Open("store", crashOptions(c.fs, interval(rng)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for k, n := range c.w.count {
		total[k] += n
	}
	clear(c.w.count)
	c.w.judge(t, name, e, survives)
	checkClean(t, e, name)
	mustClose(t, e)
}

func interval(rng *rand.Rand) time.Duration {
	return []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Hour}[rng.IntN(3)]
}

// crash lets a storm blow and stops the world at a random event. The chain goes
// on with the file system as it may be then, and what had been told before.
func (c *crashChain) crash(t *testing.T, rng *rand.Rand, name string, keep int) {
	t.Helper()
	e, err := Open("store", crashOptions(c.fs, interval(rng)))
	if err != nil {
		t.Fatalf("%s: open: %v", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left atomic.Int64
	left.Store(1 + rng.Int64N(400))
	now := make(chan struct{})
	crash := sync.OnceFunc(func() { close(now) })
	w := c.w
	s, err := newStorm(e, w.shownTo, func(ev event) {
		w.note(ev)
		if left.Add(-1) == 0 {
			crash()
		}
	})
	if err != nil {
		t.Fatalf("%s: begin: %v", name, err)
	}
	ended, seed := make(chan error, 1), rng.Uint64()
	go func() {
		ended <- s.run(ctx, seed)
		crash()
	}()
	<-now
	// In this order: what was told before the crash must be in it.
	told := w.freeze()
	after := c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rng})
	cancel()
	if err := errors.Join(<-ended, e.Close()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	c.fs, c.w = after, told
}

// A feed does not go past changes that a dropped collection hides as long as a
// crash can bring the collection back: resumed from where it was, it would
// never show them.
func TestFeedWaitsForADropToBeDurable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	e := mustOpen(t, "store", crashOptions(fs, time.Hour))
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "a", `{}`)}})
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("books", "a", `{}`)}})
	mustExec(t, e, &osier.Command{DB: "shop", Durability: osier.Relaxed, Ops: []osier.Op{{Kind: osier.OpDropCollection, Collection: "films"}}})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	at := osier.Seq(0)
	for ch, err := range e.Watch(ctx, &osier.Feed{DB: "shop", Marks: true}) {
		if err != nil {
			break // it waits for an fsync that nobody asks for
		}
		at = ch.Seq
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, e)
	e = mustOpen(t, "store", crashOptions(after, time.Hour))
	defer mustClose(t, e)
	rows := mustRows(t, e, &osier.Query{Kind: osier.QueryScan, DB: "shop", Collection: "films"})
	if len(rows) == 1 && rows[0].Seq <= at {
		t.Errorf("the feed went to %d without showing films/a, which is at %d after the crash", at, rows[0].Seq)
	}
}

// A feed shows nothing before it is durable, and all of it then, at whatever
// level it was written.
func TestFeedShowsWhatIsDurable(t *testing.T) {
	for _, level := range []osier.Durability{osier.Sync, osier.Buffered, osier.Relaxed} {
		fs := vfs.NewCrashableMem()
		e := mustOpen(t, "store", crashOptions(fs, time.Hour))
		mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
		for i := range 20 {
			mustExec(t, e, &osier.Command{DB: "shop", Durability: level, Ops: []osier.Op{set("films", i, `{}`)}})
		}
		feed := make(chan osier.Seq)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer close(feed)
			for ch, err := range e.Watch(ctx, &osier.Feed{DB: "shop", Mode: osier.FeedLive}) {
				if err != nil {
					return
				}
				feed <- ch.Seq
			}
		}()
		if level != osier.Sync {
			select {
			case seq := <-feed:
				t.Errorf("level %d: the feed showed %d before any fsync", level, seq)
			case <-time.After(20 * time.Millisecond):
			}
			if err := e.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		for want := osier.Seq(1); want <= 20; want++ {
			if got := <-feed; got != want {
				t.Errorf("level %d: the feed showed %d, want %d", level, got, want)
			}
		}
		cancel()
		for range feed {
		}
		mustClose(t, e)
	}
}
