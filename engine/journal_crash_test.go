package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
)

// acked is an append that was answered.
type acked struct {
	first, last osier.Position
	from        uint64 // number of its first event
	level       osier.Durability
}

// journalWitness knows what was answered, in order, and what tails have shown.
type journalWitness struct {
	mu    sync.Mutex // guards all below
	acks  []acked
	shown osier.Position // by a tail of a journal set to Sync
	high  osier.Position // no position up to here may come again
}

func (w *journalWitness) note(a acked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks = append(w.acks, a)
	if w.high.Before(a.last) {
		w.high = a.last
	}
}

func (w *journalWitness) copy() *journalWitness {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &journalWitness{acks: append([]acked(nil), w.acks...), shown: w.shown, high: w.high}
}

// appendUntil appends numbered events of all levels, single and together, until
// told to stop. Numbers go on from where the journal ends.
func (w *journalWitness) appendUntil(e *Engine, rng *rand.Rand, number uint64, stop func() bool) error {
	ctx := context.Background()
	db, err := e.DB(ctx, "shop")
	if err != nil {
		return err
	}
	j := osier.NewJournal("events")
	levels := []osier.Durability{osier.Relaxed, osier.Relaxed, osier.Relaxed, osier.Relaxed, osier.Buffered, osier.Sync}
	for !stop() {
		events := make([]osier.Event, 1+rng.IntN(3)*rng.IntN(40))
		a := acked{from: number, level: levels[rng.IntN(len(levels))]}
		for i := range events {
			events[i].Data = binary.BigEndian.AppendUint64(make([]byte, 0, 8+rng.IntN(400)), number)
			events[i].Data = events[i].Data[:cap(events[i].Data)]
			number++
		}
		res, err := j.AppendEvents(ctx, db.With(a.level), events, nil)
		if err != nil {
			return err
		}
		a.first, a.last = res.First, res.Last
		w.note(a)
	}
	return nil
}

// judge compares what is there after a crash with what was said before it, and
// returns the number of the next event. From what is lost on, the witness forgets.
func (w *journalWitness) judge(t *testing.T, name string, e *Engine, survives func(osier.Durability) bool) (next uint64) {
	t.Helper()
	ctx := context.Background()
	db, err := e.DB(ctx, "shop")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var last osier.Position
	for ev, err := range osier.NewJournal("events").Read(ctx, db, &osier.ReadOptions{All: true}) {
		if err != nil {
			t.Fatalf("%s: read: %v", name, err)
		}
		if n := binary.BigEndian.Uint64(ev.Data); n != next {
			t.Fatalf("%s: event number %d at %v comes after number %d: a hole", name, n, ev.Position, int64(next)-1)
		}
		next++
		last = ev.Position
	}
	for i, a := range w.acks {
		there := !last.Before(a.first)
		if there && last.Before(a.last) {
			t.Fatalf("%s: an append of %v to %v is there up to %v only", name, a.first, a.last, last)
		}
		if !there {
			for _, a := range w.acks[i:] {
				if survives(a.level) {
					t.Fatalf("%s: an append at level %d, answered with %v to %v, is lost; the last event is at %v", name, a.level, a.first, a.last, last)
				}
			}
			w.acks = w.acks[:i]
			break
		}
	}
	if last.Before(w.shown) {
		t.Fatalf("%s: a tail had shown %v; the last event is at %v", name, w.shown, last)
	}
	p, err := osier.NewJournal("events").Append(ctx, db, binary.BigEndian.AppendUint64(nil, next))
	if err != nil {
		t.Fatalf("%s: append: %v", name, err)
	}
	if !w.high.Before(p) {
		t.Fatalf("%s: position %v was given out again, or before: %v was the highest", name, p, w.high)
	}
	w.note(acked{p, p, next, osier.Sync})
	return next + 1
}

// watch follows the journal and remembers how far it was shown.
func (w *journalWitness) watch(ctx context.Context, e *Engine) error {
	db, err := e.OpenDB(context.WithoutCancel(ctx), "shop")
	if err != nil {
		return err
	}
	for ev, err := range osier.NewJournal("events").Tail(ctx, db, nil) {
		if err != nil {
			return nil // the end
		}
		w.mu.Lock()
		w.shown = ev.Position
		w.mu.Unlock()
	}
	return nil
}

// After a crash of the machine a journal has what was answered at Sync, and of
// the rest a beginning, whole appends in order; no position comes again, even
// if the clock has gone back meanwhile; and a tail has shown nothing that is gone.
func TestJournalAfterACrashOfTheMachine(t *testing.T) {
	seed := seedOf(t)
	var fs *vfs.MemFS
	w, next := &journalWitness{}, uint64(0)
	var clock fakeClock
	clock.micros.Store(1_700_000_000_000_000)
	for round := range rounds(40, 8) {
		rng := rngOf(seed, round)
		if round%6 == 0 {
			fs, w, next = vfs.NewCrashableMem(), &journalWitness{}, 0
		}
		keep := []int{0, 100, rng.IntN(101)}[rng.IntN(3)]
		name := fmt.Sprintf("seed %d, round %d, %d%% kept", seed, round, keep)
		done := watchdog(time.Minute, name)
		o := crashOptions(fs, interval(rng))
		o.Clock = func() time.Time { clock.micros.Add(int64(3)); return clock.now() }
		e := mustOpen(t, "store", o)
		ctx, cancel := context.WithCancel(context.Background())
		if _, err := e.DB(ctx, "shop"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tail, ended := make(chan error, 1), make(chan error, 1)
		go func() { tail <- w.watch(ctx, e) }()
		left, crash := atomic.Int64{}, make(chan struct{})
		left.Store(1 + rng.Int64N(300))
		writer := rand.New(rand.NewPCG(rng.Uint64(), 0))
		var stopped atomic.Bool
		go func() {
			ended <- w.appendUntil(e, writer, next, func() bool {
				if left.Add(-1) == 0 {
					close(crash)
				}
				return stopped.Load()
			})
		}()
		<-crash
		told := w.copy() // before the crash, so that it must be in it
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rng})
		stopped.Store(true)
		if err := <-ended; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cancel()
		if err := errors.Join(<-tail, e.Close()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fs, w = after, told
		if rng.IntN(2) == 0 {
			clock.micros.Add(-rng.Int64N(500_000))
		}
		e = mustOpen(t, "store", crashOptions(fs, interval(rng)))
		e.now = func() time.Time { return clock.now() }
		// A crash that keeps everything is the end of the process alone.
		next = w.judge(t, name, e, func(d osier.Durability) bool { return d == osier.Sync || keep == 100 && d == osier.Buffered })
		checkClean(t, e, name)
		mustClose(t, e)
		done()
	}
}

// The test binary started again with this variable appends to the journal of the
// folder it names, until it is killed.
const (
	appenderEnv       = "OSIER_TEST_APPENDER"
	appenderSeedEnv   = "OSIER_TEST_APPENDER_SEED"
	appenderNumberEnv = "OSIER_TEST_APPENDER_NUMBER"
)

// appenderProcess prints a line an answered append.
func appenderProcess(dir string) int {
	fail := func(err error) int {
		fmt.Println("failed", err)
		return 1
	}
	seed, err := strconv.ParseUint(os.Getenv(appenderSeedEnv), 10, 64)
	if err != nil {
		return fail(err)
	}
	number, err := strconv.ParseUint(os.Getenv(appenderNumberEnv), 10, 64)
	if err != nil {
		return fail(err)
	}
	e, err := Open(dir, writerOptions())
	if err != nil {
		return fail(err)
	}
	w := &journalWitness{}
	said := 0
	err = w.appendUntil(e, rngOf(seed, 1), number, func() bool {
		for ; said < len(w.acks); said++ {
			a := w.acks[said]
			if _, err := fmt.Printf("%v %v %d %d\n", a.first, a.last, a.from, a.level); err != nil {
				return true // nobody listens
			}
		}
		return false
	})
	return fail(err)
}

// hearAppends reads what an appender says until it is killed, which happens after
// n lines.
func hearAppends(t *testing.T, name, dir string, seed, number uint64, n int, w *journalWitness) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), appenderEnv+"="+dir, fmt.Sprintf("%s=%d", appenderSeedEnv, seed), fmt.Sprintf("%s=%d", appenderNumberEnv, number))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	buf := make([]byte, 4096)
	for killed := false; ; {
		k, err := out.Read(buf)
		text.Write(buf[:k])
		if !killed && strings.Count(text.String(), "\n") >= n {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("%s: the appender ended by itself", name)
	}
	lines := strings.Split(text.String(), "\n")
	for _, line := range lines[:len(lines)-1] { // the last one may be cut off
		var first, last string
		var a acked
		if _, err := fmt.Sscan(line, &first, &last, &a.from, &a.level); err != nil {
			t.Fatalf("%s: the appender said %q", name, line)
		}
		if a.first, err = osier.ParsePosition(first); err != nil {
			t.Fatal(err)
		}
		if a.last, err = osier.ParsePosition(last); err != nil {
			t.Fatal(err)
		}
		w.note(a)
	}
}

// After a process was killed a journal has what was answered at Sync and at
// Buffered, and of the rest a beginning, whole appends in order.
func TestJournalAfterAKill(t *testing.T) {
	if testing.Short() && raceEnabled {
		t.Skip("starts many processes")
	}
	seed := seedOf(t)
	dir := filepath.Join(t.TempDir(), "store")
	e := mustOpen(t, dir, writerOptions())
	w := &journalWitness{}
	next := w.judge(t, "at the beginning", e, afterKill)
	mustClose(t, e)
	lost := 0
	for round := range rounds(6, 2) {
		rng := rngOf(seed, round)
		name := fmt.Sprintf("seed %d, round %d", seed, round)
		hearAppends(t, name, dir, rng.Uint64(), next, 1+rng.IntN(800), w)
		said := len(w.acks)
		e := mustOpen(t, dir, writerOptions())
		next = w.judge(t, name, e, afterKill)
		lost += said + 1 - len(w.acks)
		checkClean(t, e, name)
		mustClose(t, e)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d relaxed appends were lost with their processes", lost)
}

// One log of sealed commands gives one state, however the events came into it:
// those that were written behind too.
func TestJournalReplayIsPure(t *testing.T) {
	seed := seedOf(t)
	rng := rngOf(seed, 0)
	var cmds []*osier.Command
	ctx := context.Background()
	// No engine drops events by a command of its own.
	open := func() *Engine {
		o := smallStore(vfs.NewMem())
		o.keepEvery = time.Hour
		e := mustOpen(t, "store", o)
		t.Cleanup(func() { checkClean(t, e, "at the end"); mustClose(t, e) })
		mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
		return e
	}
	e, twin := open(), open()
	for i := range 400 {
		j := &osier.JournalOp{}
		op := osier.Op{Kind: osier.OpAppend, Collection: osier.JournalResource([]string{"a", "b"}[rng.IntN(2)]), Journal: j}
		switch k := rng.IntN(10); {
		case k == 0:
			op.Kind, j.Before = osier.OpTrim, osier.PositionAt(time.Now().Add(-time.Duration(rng.IntN(20))*time.Millisecond))
			j.ExpiredMillis = time.Now().UnixMilli()
		case k == 1:
			j.Key = fmt.Sprint("k", rng.IntN(3))
			fallthrough
		default:
			for range 1 + rng.IntN(100) {
				ev := osier.Event{Data: make([]byte, rng.IntN(1000)), Type: "t"}
				if k < 5 {
					ev.Expires = time.Now().Add(time.Duration(rng.IntN(30)) * time.Millisecond)
				}
				j.Events = append(j.Events, ev)
			}
		}
		c := &osier.Command{DB: "shop", Durability: osier.Buffered, Ops: []osier.Op{op}}
		_, err := e.Exec(ctx, c)
		if err != nil && !isAnswer(osier.KindOf(err)) {
			t.Fatalf("seed %d, command %d: %v", seed, i, err)
		}
		cmds = append(cmds, c)
		if i%10 > 0 {
			continue
		}
		// As a group of its own, or several at once: the state is the same.
		if _, err := twin.ApplySealed(ctx, cmds); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		cmds = nil
		if got, want := stateOf(t, twin), stateOf(t, e); got != want && i > 0 {
			t.Fatalf("seed %d: after %d commands the states differ", seed, i)
		}
	}
}
