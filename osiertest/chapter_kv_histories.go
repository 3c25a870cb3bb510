package osiertest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

// checkKVHistories plays random histories of key-values on a store and on the
// model, with one clock that stands still between steps: every answer is the
// same, also after reopening.
func checkKVHistories(t *testing.T, h Harness) {
	if h.NewAt == nil {
		t.Skip("the store's time cannot be chosen")
	}
	clock := newFakeClock()
	model := osier.NewStore(NewModel(&ModelOptions{Clock: clock.now}), nil)
	defer model.Close()
	store := h.NewAt(t, clock.now)
	names := 0
	steps := 60
	if testing.Short() {
		steps = 12
	}
	rapid.Check(t, func(rt *rapid.T) {
		names++
		name := fmt.Sprintf("db%d", names)
		level := rapid.SampledFrom([]osier.Durability{osier.DurabilityDefault, osier.Buffered, osier.Relaxed}).Draw(rt, "durability")
		history := drawKVHistory(rt, steps)
		var players [2]kvPlayer
		for i, s := range []*osier.Store{model, store} {
			db, err := s.CreateDB(t.Context(), name)
			if err != nil {
				rt.Fatalf("create database: %v", err)
			}
			players[i] = kvPlayer{db: db, level: level, clock: clock}
		}
		reopens := rapid.IntRange(0, 5).Draw(rt, "reopen") == 0 && h.Reopen != nil
		for i := range history {
			s := &history[i]
			if s.what == "wait" {
				clock.move(s.wait)
				if reopens && i%7 == 0 {
					store = h.Reopen(t, store)
					db, err := store.OpenDB(t.Context(), name)
					if err != nil {
						rt.Fatalf("reopen: %v", err)
					}
					players[1].db = db
				}
				continue
			}
			want, got := players[0].step(t.Context(), s), players[1].step(t.Context(), s)
			if got != want {
				for k := range history[:i+1] {
					rt.Logf("%v", &history[k])
				}
				rt.Fatalf("step %d, %v:\ngot  %s\nwant %s", i, s, got, want)
			}
		}
	})
}
