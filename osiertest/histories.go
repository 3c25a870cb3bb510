package osiertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

// checkHistories lays the store beside the Model: random operations, the same
// answers. rapid shrinks a history that fails, and tells its seed.
func checkHistories(t *testing.T, h Harness) {
	n := h.Caps.HistoryOps
	if n == 0 {
		n = 40
	}
	if testing.Short() {
		n /= 4
	}
	t.Run("the_store_and_the_model_give_equal_transcripts", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			w := drawWorkload(rt, n, h.Reopen != nil)
			if diff := difference(t, h, w); diff != "" {
				rt.Fatalf("%s\nthe workload:\n%s", diff, w)
			}
		})
	})
	t.Run("longer_histories_agree_too", func(t *testing.T) {
		for seed := range uint64(3) {
			w := Generate(seed, 10*n, GenerateOptions{IDs: 12, Reopen: h.Reopen != nil})
			if diff := difference(t, h, w); diff != "" {
				t.Fatalf("seed %d, %d operations: %s", seed, 10*n, diff)
			}
		}
	})
}

// drawWorkload draws n operations on average. rapid makes slices of 5 by itself,
// and drops elements of each when it shrinks.
func drawWorkload(rt *rapid.T, n int, reopen bool) Workload {
	w := Workload{{Verb: Create, DB: "db0"}}
	for range (n + 4) / 5 {
		w = append(w, rapid.SliceOfN(opGenerator(reopen), 0, 20).Draw(rt, "ops")...)
	}
	return w
}

// opGenerator draws operations decision by decision, so that rapid can shrink
// each.
func opGenerator(reopen bool) *rapid.Generator[Op] {
	return rapid.Custom(func(rt *rapid.T) Op {
		g := &generator{
			pick: func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "pick") },
			o:    GenerateOptions{Reopen: reopen}.filled(),
		}
		return g.op()
	})
}

// difference plays a workload on a new store and a new Model, and returns where
// their transcripts part, "" if they do not.
func difference(t *testing.T, h Harness, w Workload) string {
	t.Helper()
	store := h.New(t)
	defer func() { store.Close() }()
	model := NewModel(nil)
	judge := osier.NewStore(model, nil)
	defer func() { judge.Close() }()
	var transcript []string
	for i, op := range w {
		if op.Verb == Reopen && h.Reopen != nil {
			store = h.Reopen(t, store)
			model = model.Reopen()
			judge = osier.NewStore(model, nil)
		}
		want, got := Apply(t.Context(), judge, op), Apply(t.Context(), store, op)
		transcript = append(transcript, fmt.Sprintf("%v\n    -> %s", op, want))
		if got != want {
			tail := transcript[max(0, len(transcript)-10):]
			return fmt.Sprintf("operation %d:\n%v\nwant %s\ngot  %s\nthe last lines of the transcript:\n%s",
				i, op, want, got, strings.Join(slices.Clone(tail), "\n"))
		}
	}
	return ""
}
