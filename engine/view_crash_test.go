package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
)

// byPart is defined in two ways by turns, so that it is built again and again.
var (
	byPart  = osier.NewFieldView[any, int]("by-part", "parts", &osier.FieldViewOptions{Keys: []string{"kind"}, Value: "n", Reduce: "sum"})
	byPart2 = osier.NewFieldView[any, int]("by-part", "parts", &osier.FieldViewOptions{Keys: []string{"kind", "n"}, Value: "n", Reduce: "stats"})
	topPart = osier.NewFieldView[string, int]("top", "parts", &osier.FieldViewOptions{Keys: []string{"kind"}, Value: "n", Reduce: "max", Policy: osier.Eager})
)

// viewStorm changes documents under a unique view, an eager one, one that is
// brought up to date when asked and one that is redefined, until ctx ends. note
// is called after each answer.
func viewStorm(ctx context.Context, e *Engine, seed uint64, note func()) error {
	db, err := e.DB(ctx, "shop", osier.Schema(parts, serials, topPart, partSums, byPart))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for g := range errs {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for ctx.Err() == nil && errs[g] == nil {
				err := stormStep(ctx, db, rng)
				if err != nil && !errors.Is(err, osier.ErrNotUnique) && !errors.Is(err, osier.ErrNotFound) && !errors.Is(err, osier.ErrCanceled) {
					errs[g] = err
				}
				note()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func stormStep(ctx context.Context, db *osier.DB, rng *rand.Rand) error {
	id := rng.IntN(300)
	p := part{Kind: fmt.Sprint("k", rng.IntN(5)), N: rng.IntN(400)}
	with := db.With([]osier.Durability{osier.Sync, osier.Buffered, osier.Relaxed}[rng.IntN(3)])
	switch rng.IntN(12) {
	case 0:
		return parts.Delete(ctx, with, id, osier.Rev{})
	case 1:
		b := osier.Batch{PerDocument: true}
		for i := range 20 {
			if _, err := parts.Upsert(ctx, &b, rng.IntN(300), part{Kind: p.Kind, N: p.N + i}); err != nil {
				return err
			}
		}
		_, err := with.Commit(ctx, &b)
		return err
	case 2:
		return partSums.Refresh(ctx, db)
	case 3:
		v := byPart
		if rng.IntN(2) == 0 {
			v = byPart2
		}
		if _, err := redefine(ctx, db, v); err != nil {
			return err
		}
		if rng.IntN(2) == 0 {
			return v.Refresh(ctx, db)
		}
		return nil
	case 4:
		// Two documents exchange their numbers.
		return with.Update(ctx, func(tx *osier.Tx) error {
			a, err := parts.Get(ctx, tx, id)
			if err != nil {
				return err
			}
			b, err := parts.Get(ctx, tx, (id+1)%300)
			if err != nil {
				return err
			}
			a.Value.N, b.Value.N = b.Value.N, a.Value.N
			_, err1 := parts.Update(ctx, tx, a)
			_, err2 := parts.Update(ctx, tx, b)
			return errors.Join(err1, err2)
		})
	}
	_, err := parts.Upsert(ctx, with, id, p)
	return err
}

// redefine redefines a view.
func redefine(ctx context.Context, db *osier.DB, v *osier.View[any, int]) (osier.OpResult, error) {
	body := `{"collection":"parts","type":"fields","keys":["kind"],"value":"n","reduce":"sum"}`
	if v == byPart2 {
		body = `{"collection":"parts","type":"fields","keys":["kind","n"],"value":"n","reduce":"stats"}`
	}
	res, err := db.Exec(ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPut, Collection: osier.ViewsCollection, ID: osier.MustID(v.Name()), Codec: osier.TagJSON, Body: []byte(body)}}})
	if err != nil {
		return osier.OpResult{}, err
	}
	return res.Ops[0], nil
}

// judgeViews checks a store after a crash: its records, and that unique is
// unique and every view what its documents make.
func judgeViews(t *testing.T, e *Engine, name string) {
	t.Helper()
	checkClean(t, e, name)
	db, err := e.OpenDB(t.Context(), "shop")
	if errors.Is(err, osier.ErrNotFound) {
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	holders := map[int]osier.ID{}
	sums, docs := map[string]int{}, 0
	for doc, err := range parts.List(t.Context(), db, nil) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		docs++
		sums[doc.Value.Kind] += doc.Value.N
		if other, taken := holders[doc.Value.N]; taken {
			t.Errorf("%s: documents %v and %v both have number %d", name, other, doc.ID, doc.Value.N)
		}
		holders[doc.Value.N] = doc.ID
	}
	rows := 0
	for row, err := range serials.Query(t.Context(), db) {
		if errors.Is(err, osier.ErrNotFound) && docs == 0 {
			return // the crash was before the views
		}
		if err != nil {
			t.Fatalf("%s: unique view: %v", name, err)
		}
		if rows++; holders[row.Key] != row.ID {
			t.Errorf("%s: the unique view has %d at document %v, it is at %v", name, row.Key, row.ID, holders[row.Key])
		}
	}
	if rows != docs {
		t.Errorf("%s: the unique view has %d rows of %d documents", name, rows, docs)
	}
	for _, v := range []interface {
		Count(context.Context, osier.Reader, ...osier.RowsOption) (uint64, error)
		Name() string
	}{partSums, byPart, topPart} {
		n, err := v.Count(t.Context(), db)
		if errors.Is(err, osier.ErrNotFound) && docs == 0 {
			return
		}
		if err != nil || n != uint64(docs) {
			t.Errorf("%s: view %s has %d rows of %d documents (%v)", name, v.Name(), n, docs, err)
		}
	}
	for g, err := range partSums.Groups(t.Context(), db, 0) {
		if err != nil || g.Value != sums[g.Key] {
			t.Errorf("%s: sum of %s: got %d (%v), want %d", name, g.Key, g.Value, err, sums[g.Key])
		}
	}
	checkClean(t, e, name+", queried")
}

// TestViewsSurviveCrashOfTheMachine: whatever a crash keeps, unique stays unique,
// and no row is lost, doubled or left over.
func TestViewsSurviveCrashOfTheMachine(t *testing.T) {
	seed := seedOf(t)
	var fs *vfs.MemFS
	for round := range rounds(14, 2) {
		rng := rngOf(seed, round)
		if round%4 == 0 {
			fs = vfs.NewCrashableMem()
		}
		name := fmt.Sprintf("seed %d, round %d", seed, round)
		stop := watchdog(2*time.Minute, name)
		o := crashOptions(fs, interval(rng))
		o.buildTableDocs = rng.IntN(2) // half of them write tables, however few documents there are
		e := mustOpen(t, "store", o)
		ctx, cancel := context.WithCancel(context.Background())
		var left atomic.Int64
		left.Store(1 + rng.Int64N(300))
		now := make(chan struct{})
		crash := sync.OnceFunc(func() { close(now) })
		ended := make(chan error, 1)
		seed := rng.Uint64()
		go func() {
			err := viewStorm(ctx, e, seed, func() {
				if left.Add(-1) == 0 {
					crash()
				}
			})
			crash()
			ended <- err
		}()
		<-now
		fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 100, rng.IntN(101)}[rng.IntN(3)], RNG: rng})
		cancel()
		if err := errors.Join(<-ended, e.Close()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		e = mustOpen(t, "store", crashOptions(fs, interval(rng)))
		judgeViews(t, e, name)
		mustClose(t, e)
		stop()
		if t.Failed() {
			return
		}
	}
}

// The test binary started again with this variable is a process that changes
// documents under views in the folder it names, until it is killed.
const viewWriterEnv = "OSIER_TEST_VIEW_WRITER"

func viewWriterProcess(dir string) int {
	e, err := Open(dir, writerOptions())
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent has ended
		cancel()
	}()
	var mu sync.Mutex
	err = viewStorm(ctx, e, rand.Uint64(), func() {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println("step")
	})
	fmt.Println("failed", err)
	return 1
}

// TestViewsSurviveCrashOfTheProcess: the same after kill -9.
func TestViewsSurviveCrashOfTheProcess(t *testing.T) {
	if testing.Short() && raceEnabled {
		t.Skip("starts processes")
	}
	seed := seedOf(t)
	dir := filepath.Join(t.TempDir(), "store")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range rounds(5, 1) {
		rng := rngOf(seed, round)
		name := fmt.Sprintf("seed %d, round %d", seed, round)
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), viewWriterEnv+"="+dir)
		cmd.Stderr = os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 1 + rng.IntN(400); n > 0 && lines.Scan(); n-- {
			if strings.HasPrefix(lines.Text(), "failed") {
				t.Fatalf("%s: the writer says %q", name, lines.Text())
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
		}
		_ = cmd.Wait() // it was killed
		in.Close()
		e := mustOpen(t, dir, writerOptions())
		judgeViews(t, e, name)
		mustClose(t, e)
		if t.Failed() {
			return
		}
	}
}
