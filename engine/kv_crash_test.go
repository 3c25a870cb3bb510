package engine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
)

// What the tests of crashes write: step i sets key r to i, relaxed, and, at some
// steps, key b buffered and a document or key s synced. Orders are checked by
// what is found of them.
type kvCrashWriter struct {
	db *osier.DB
	// said tells that a step was acknowledged at a level.
	said func(what byte, i int)
}

func (w *kvCrashWriter) step(ctx context.Context, i int) error {
	text := []byte(strconv.Itoa(i))
	n := w.db.KV("n")
	if err := n.Set(ctx, "r", text); err != nil {
		return err
	}
	if err := n.Set(ctx, fmt.Sprint("r", i%10), text); err != nil {
		return err
	}
	w.said('r', i)
	switch {
	case i%40 == 39:
		if err := n.With(osier.Sync).Set(ctx, "s", text); err != nil {
			return err
		}
		w.said('s', i)
	case i%40 == 19:
		_, err := w.db.With(osier.Sync).Exec(ctx, &osier.Command{Ops: []osier.Op{set("films", "d", string(text))}})
		if err != nil {
			return err
		}
		w.said('s', i)
	case i%8 == 7:
		if err := n.With(osier.Buffered).Set(ctx, "b", text); err != nil {
			return err
		}
		w.said('b', i)
	}
	return nil
}

// judgeKV checks what is found after a crash: at least step `least` is there, no
// later write without the earlier ones, and relaxed steps as a prefix.
func judgeKV(t *testing.T, name string, e *Engine, least int) (found int) {
	t.Helper()
	ctx := context.Background()
	db, err := e.OpenDB(ctx, "shop")
	if osier.KindOf(err) == osier.KindNotFound && least < 0 {
		return -1
	}
	must(t, err)
	number := func(key string) int {
		v, m, err := db.KV("n").Append(ctx, nil, key)
		if err != nil || !m.Found() {
			return -1
		}
		i, err := strconv.Atoi(string(v))
		must(t, err)
		return i
	}
	r, b, s, doc := number("r"), number("b"), number("s"), -1
	if rows := mustRows(t, e, &osier.Query{Kind: osier.QueryGet, DB: "shop", Collection: "films", IDs: []osier.ID{osier.MustID("d")}, Parts: osier.WithBody}); !rows[0].Missing {
		doc, err = strconv.Atoi(string(rows[0].Body))
		must(t, err)
	}
	if r < least || b > r || s > r || doc > r {
		t.Errorf("%s: relaxed steps up to %d, buffered %d, synced %d, document %d; acknowledged durably was %d", name, r, b, s, doc, least)
	}
	for k := range 10 {
		// The last step may be between its two relaxed writes.
		want := r - ((r-k)%10+10)%10
		if got := number(fmt.Sprint("r", k)); want >= 0 && got != want && !(r%10 == k && got == max(r-10, -1)) {
			t.Errorf("%s: r is %d, r%d is %d, want %d", name, r, k, got, want)
		}
	}
	checkClean(t, e, name)
	return r
}

// After a power cut what was synced is there with everything before it, and the
// rest is a prefix.
func TestKVCrashOfTheMachine(t *testing.T) {
	seed := seedOf(t)
	fs := vfs.NewCrashableMem()
	at := 0
	for round := range rounds(60, 8) {
		rng := rngOf(seed, round)
		name := fmt.Sprintf("seed %d, round %d", seed, round)
		o := crashOptions(fs, interval(rng))
		o.KVInterval = []time.Duration{time.Millisecond, time.Hour}[rng.IntN(2)]
		e := mustOpen(t, "store", o)
		db, err := e.DB(t.Context(), "shop")
		must(t, err)
		keep := []int{0, 100, rng.IntN(101)}[rng.IntN(3)]
		least := -1
		if at > 0 {
			least = at - 1
		}
		w := &kvCrashWriter{db: db, said: func(what byte, i int) {
			if what == 's' || what == 'b' && keep == 100 {
				least = i
			}
		}}
		for range 1 + rng.IntN(200) {
			must(t, w.step(t.Context(), at))
			at++
		}
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rng})
		mustClose(t, e)
		fs = after
		e = mustOpen(t, "store", crashOptions(fs, time.Hour))
		at = judgeKV(t, name, e, least) + 1
		mustClose(t, e)
		if t.Failed() {
			return
		}
	}
}

const kvWriterEnv = "OSIER_TEST_KV_WRITER"

// kvWriterProcess writes until it is killed, saying what is acknowledged.
func kvWriterProcess(dir string) int {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	ctx := context.Background()
	e, err := Open(dir, writerOptions())
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	db, err := e.DB(ctx, "shop")
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	begin := 0
	if v, m, err := db.KV("n").Append(ctx, nil, "r"); err == nil && m.Found() {
		begin, _ = strconv.Atoi(string(v))
		begin++
	}
	w := &kvCrashWriter{db: db, said: func(what byte, i int) {
		if what != 'r' {
			_, _ = os.Stdout.WriteString(fmt.Sprintf("%c %d\n", what, i))
		}
	}}
	go func() { // what a feed shows cannot be lost either
		for ch, err := range db.KV("n").WatchKey(ctx, "r") {
			if err != nil {
				return
			}
			if !ch.Mark && ch.KV.Type == osier.KVPlain {
				i, _ := strconv.ParseInt(string(ch.KV.Value), 10, 64)
				_, _ = os.Stdout.WriteString(fmt.Sprintf("f %d\n", i))
			}
		}
	}()
	for i := begin; ; i++ {
		if err := w.step(ctx, i); err != nil {
			fmt.Println("failed", err)
			return 1
		}
	}
}

// After kill -9 everything acknowledged as Sync or Buffered, and everything that
// a feed has shown, is there with all that came before it.
func TestKVCrashOfTheProcess(t *testing.T) {
	if testing.Short() && raceEnabled {
		t.Skip("starts processes")
	}
	seed := seedOf(t)
	dir := filepath.Join(t.TempDir(), "store")
	found := -1
	for round := range rounds(10, 2) {
		rng := rngOf(seed, round)
		name := fmt.Sprintf("seed %d, round %d", seed, round)
		stop := watchdog(2*time.Minute, name)
		exe, err := os.Executable()
		must(t, err)
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), kvWriterEnv+"="+dir)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		least, left := found, 1+rng.IntN(300)
		for r := bufio.NewScanner(out); r.Scan(); left-- {
			if left == 0 {
				must(t, cmd.Process.Kill())
			}
			what, number, _ := strings.Cut(r.Text(), " ")
			if what == "failed" {
				t.Fatalf("%s: %s", name, r.Text())
			}
			if i, err := strconv.Atoi(number); err == nil {
				least = max(least, i)
			}
		}
		_ = cmd.Wait()
		in.Close()
		e := mustOpen(t, dir, writerOptions())
		found = judgeKV(t, name, e, least)
		mustClose(t, e)
		stop()
		if t.Failed() {
			return
		}
	}
}

// What was acknowledged before Close refused it is there after reopening, however
// Close comes in between.
func TestKVCloseLosesNothing(t *testing.T) {
	fs := vfs.NewMem()
	acked := make([]int, 4)
	for round := range 5 {
		e := mustOpen(t, "store", smallStore(fs))
		db, err := e.DB(t.Context(), "shop")
		must(t, err)
		for w, want := range acked {
			v, _, err := db.KV(fmt.Sprint("n", w)).Append(t.Context(), nil, "a")
			must(t, err)
			if got, _ := strconv.Atoi(string(v)); got != want {
				t.Errorf("round %d: writer %d: got %d, acknowledged was %d", round, w, got, want)
			}
		}
		var wg sync.WaitGroup
		begun := make(chan struct{}, len(acked))
		for w := range acked {
			wg.Go(func() {
				n := db.KV(fmt.Sprint("n", w))
				for i := acked[w] + 1; ; i++ {
					err := n.Set(context.Background(), "a", []byte(strconv.Itoa(i)))
					if err != nil {
						if osier.KindOf(err) != osier.KindClosed && osier.KindOf(err) != osier.KindUnavailable {
							t.Errorf("writer %d: %v", w, err)
						}
						return
					}
					if acked[w] = i; i%50 == 1 {
						select {
						case begun <- struct{}{}:
						default:
						}
					}
				}
			})
		}
		<-begun
		mustClose(t, e)
		wg.Wait()
	}
}
