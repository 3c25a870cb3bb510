package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
)

// Carrying out sealed commands depends on nothing but the commands: one log
// gives one state and the same answers, whatever the batches, the number of
// processors and the crashes in between.
func TestReplayIsPure(t *testing.T) {
	seed := seedOf(t)
	kinds := map[osier.Kind]int{}
	wanted := []osier.Kind{osier.KindOther, osier.KindInvalid, osier.KindNotFound, osier.KindConflict, osier.KindDeleted, osier.KindExists}
	lacking := func(k osier.Kind) bool { return kinds[k] == 0 }
	// A rare answer may need more rounds than were asked for.
	least := rounds(12, 2)
	for round := 0; round < least || round < least+20 && slices.ContainsFunc(wanted, lacking); round++ {
		rng := rngOf(seed, round)
		name := fmt.Sprintf("seed %d, round %d", seed, round)
		h := referenceHistory(t, rng, 300)
		for _, o := range h.outcomes {
			if o.err != nil {
				kinds[osier.KindOf(o.err)]++
				if !isAnswer(osier.KindOf(o.err)) {
					t.Fatalf("%s: a command failed: %v", name, o.err)
				}
			} else {
				kinds[osier.KindOther]++
			}
		}
		for _, procs := range []int{1, 2} {
			replayInGroups(t, fmt.Sprintf("%s, %d processors", name, procs), rng, h, procs)
		}
		replaySealed(t, name, h)
		replayWithCrashes(t, name, rng, h)
		if t.Failed() {
			return
		}
	}
	t.Logf("outcomes by kind (failed is success): %v", kinds)
	for _, k := range wanted {
		if lacking(k) {
			t.Errorf("the workload never answered %v", k)
		}
	}
}

// referenceHistory generates a log and seals it.
func referenceHistory(t *testing.T, rng *rand.Rand, n int) *history {
	t.Helper()
	o := smallStore(vfs.NewMem())
	o.Clock = generatorClock(rng)
	e := mustOpen(t, "store", o)
	defer mustClose(t, e)
	h := generateHistory(rng, e, n, func() [32]byte { return stateOf(t, e) })
	checkClean(t, e, "reference")
	return h
}

// compare fails the test if outcomes differ from the reference's.
func (h *history) compare(t *testing.T, name string, from int, outs []outcome) {
	t.Helper()
	for i, got := range outs {
		if want := h.outcomes[from+i]; got.String() != want.String() {
			t.Fatalf("%s: command %d %+v:\ngot  %v\nwant %v", name, from+i, *h.items[from+i].cmd, got, want)
		}
	}
}

func replayInGroups(t *testing.T, name string, rng *rand.Rand, h *history, procs int) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	e := mustOpen(t, "store", smallStore(vfs.NewMem()))
	defer mustClose(t, e)
	most := 1 + rng.IntN(40)
	for at := 0; at < len(h.items); {
		n := min(1+rng.IntN(most), len(h.items)-at)
		outs := runGroup(e, h.items[at:at+n])
		h.compare(t, fmt.Sprintf("%s, groups of up to %d", name, most), at, outs)
		at += n
		if got := stateOf(t, e); got != h.states[at] {
			t.Fatalf("%s: state after %d commands: got %x, want %x", name, at, got, h.states[at])
		}
	}
	checkClean(t, e, name)
}

// replaySealed goes in by the front door. Commands with attachments of their own
// go in with their bytes.
func replaySealed(t *testing.T, name string, h *history) {
	t.Helper()
	e := mustOpen(t, "store", smallStore(vfs.NewMem()))
	defer mustClose(t, e)
	for i, it := range h.items {
		if len(it.staged) > 0 {
			h.compare(t, name, i, runGroup(e, []item{it}))
			continue
		}
		errs, err := e.ApplySealed(context.Background(), []*osier.Command{it.cmd})
		if err != nil || len(errs) != 1 {
			t.Fatalf("%s: apply command %d: %v", name, i, err)
		}
		if want := h.outcomes[i].err; fmt.Sprint(errs[0]) != fmt.Sprint(want) {
			t.Fatalf("%s: command %d: got error %v, want %v", name, i, errs[0], want)
		}
	}
	if got, want := stateOf(t, e), h.states[len(h.items)]; got != want {
		t.Fatalf("%s: sealed replay ends in %x, want %x", name, got, want)
	}
}

// replayWithCrashes crashes between groups. What is there after each is a state
// that the log passed through, not before what was acknowledged as durable, and
// going on from there ends in the same state.
func replayWithCrashes(t *testing.T, name string, rng *rand.Rand, h *history) {
	t.Helper()
	position := map[[32]byte]int{}
	for i, s := range h.states {
		position[s] = i // the last of those that look the same
	}
	fs := vfs.NewCrashableMem()
	e := mustOpen(t, "store", crashOptions(fs, time.Hour))
	at, durable, crashes := 0, 0, 0
	for at < len(h.items) {
		n := min(1+rng.IntN(8), len(h.items)-at)
		outs := runGroup(e, h.items[at:at+n])
		h.compare(t, name+", with crashes", at, outs)
		for i := at; i < at+n; i++ {
			// One Sync command makes its group and all before it durable.
			if d := h.items[i].cmd.Durability; d == osier.Sync || d == osier.DurabilityDefault {
				if outs[i-at].err == nil && h.states[at] != h.states[at+n] {
					durable = at + n
				}
			}
		}
		at += n
		if rng.IntN(12) > 0 {
			continue
		}
		crashes++
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		mustClose(t, e)
		fs = after
		e = mustOpen(t, "store", crashOptions(fs, time.Hour))
		k, known := position[stateOf(t, e)]
		if !known {
			t.Fatalf("%s: crash after %d commands, %d of them durable: the state is none that the log passed through", name, at, durable)
		}
		if k < durable && h.states[k] != h.states[durable] {
			t.Fatalf("%s: crash after %d commands: back at %d, but %d are durable", name, at, k, durable)
		}
		at, durable = k, k
	}
	if got, want := stateOf(t, e), h.states[len(h.items)]; got != want {
		t.Fatalf("%s: after %d crashes the state is %x, want %x", name, crashes, got, want)
	}
	checkClean(t, e, name+", with crashes")
	mustClose(t, e)
}

func crashOptions(fs vfs.FS, interval time.Duration) *Options {
	o := smallStore(fs)
	o.SyncInterval = interval
	return o
}
