package engine

import (
	"fmt"
	"testing"
)

// Whatever was asked for once is never called absent again, in whatever order ids
// come; and of ids that come roughly in order, nearly all are known to be absent.
func TestFreshIDsForgetNothing(t *testing.T) {
	seed := seedOf(t)
	for round := range 20 {
		rng := rngOf(seed, round)
		f := &freshIDs{floor: key(1000)}
		drift := 1 + rng.IntN(20000)
		seen := map[string]bool{}
		first, looked := 0, 0
		for i := range 60_000 {
			n := 1001 + i + rng.IntN(drift) - drift/2
			if round%2 == 1 && rng.IntN(50) == 0 {
				n = rng.IntN(70_000) // which lifts the floor over most of them
			}
			id := key(n)
			absent := f.absent(id)
			if absent && (n <= 1000 || seen[id]) {
				t.Fatalf("seed %d, round %d: id %d, asked for before or below the floor, is called absent", seed, round, n)
			}
			if !seen[id] && n > 1000 {
				first++
				if !absent {
					looked++
				}
			}
			seen[id] = true
		}
		if round%2 == 0 && drift < 4096 && looked*4 > first {
			t.Errorf("seed %d, round %d, drift %d: %d of %d new ids need a look", seed, round, drift, looked, first)
		}
	}
}

func key(n int) string { return fmt.Sprintf("%08d", max(n, 0)) }
