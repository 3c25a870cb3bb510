package store

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A crashWriter applies numbered batches. Batch n sets "n<n>" and "m<n>" to the
// same value and "last" to n, so that a half batch and a gap show.
type crashWriter struct {
	s   *Store
	rng *rand.Rand
	n   int
	pad string
	// acked is the greatest batch acknowledged at each level.
	acked [3]int
	// synced is the greatest that OnSynced has named.
	synced atomic.Uint64
}

func (w *crashWriter) write(d Durability) (Pending, error) {
	b := w.s.NewWriteBatch()
	defer b.Close()
	w.n++
	v := []byte(strconv.Itoa(w.n) + ":" + w.pad[:w.rng.IntN(len(w.pad))])
	for _, k := range []string{"n", "m"} {
		if err := b.Set(fmt.Appendf(nil, "%s%06d", k, w.n), v); err != nil {
			return Pending{}, err
		}
	}
	if err := b.Set([]byte("last"), []byte(strconv.Itoa(w.n))); err != nil {
		return Pending{}, err
	}
	return w.s.Apply(b, d)
}

// checkPrefix checks that the store holds exactly the batches 1 to k for one k
// and returns k.
func checkPrefix(t *testing.T, m map[string]string) int {
	t.Helper()
	k, _ := strconv.Atoi(m["last"])
	for i := 1; i <= k; i++ {
		n, o := m[fmt.Sprintf("n%06d", i)], m[fmt.Sprintf("m%06d", i)]
		if n != o || !strings.HasPrefix(n, strconv.Itoa(i)+":") {
			t.Fatalf("batch %d of %d: got %.20q and %.20q", i, k, n, o)
		}
	}
	want := 2 * k
	if k > 0 {
		want++
	}
	if len(m) != want {
		t.Fatalf("%d keys for %d batches, want %d", len(m), k, want)
	}
	return k
}

func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// TestCrash: after a power cut all batches that are durable are there, after a
// killed process also the buffered ones; what is lost is the newest, no batch is
// there in part, and the store opens by itself.
func TestCrash(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range rounds(400) {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		crashRound(t, rng, fmt.Sprintf("seed %d round %d", seed, round))
		if t.Failed() {
			return
		}
	}
}

func crashRound(t *testing.T, rng *rand.Rand, name string) {
	mem := vfs.NewCrashableMem()
	w := &crashWriter{rng: rng, pad: strings.Repeat("x", 1+rng.IntN(1<<(4+rng.IntN(10))))}
	o := &Options{FS: mem, MemTableBytes: 256 << 10, SyncInterval: time.Duration(1+rng.IntN(20)) * time.Millisecond,
		OnSynced: func(n uint64) { ratchet(&w.synced, n) }}
	s, err := Open("store", o)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	w.s = s
	levels := []Durability{Durability(rng.IntN(3)), Durability(rng.IntN(3))}
	var pending []Pending
	var pendingLevels []Durability
	for range 1 + rng.IntN(120) {
		d := levels[rng.IntN(2)]
		p, err := w.write(d)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pending, pendingLevels = append(pending, p), append(pendingLevels, d)
		if rng.IntN(3) > 0 {
			continue
		}
		for i, p := range pending {
			if err := p.Wait(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w.acked[pendingLevels[i]] = int(p.Number)
		}
		pending, pendingLevels = nil, nil
		if rng.IntN(10) == 0 {
			if err := s.Flush(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w.acked[Sync] = int(s.Applied())
		}
	}
	// What is known to be durable, before the crash and not after it.
	durable := max(w.acked[Sync], int(w.synced.Load()), int(s.Synced()))
	percent := []int{0, 0, 50, rng.IntN(101)}[rng.IntN(4)]
	power := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
	buffered := max(durable, w.acked[Buffered])
	killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
	for _, p := range pending {
		if err := p.Wait(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	mustClose(t, s)
	for _, c := range []struct {
		what string
		fs   vfs.FS
		min  int
	}{{fmt.Sprintf("power cut, %d%% kept", percent), power, durable}, {"killed", killed, buffered}, {"closed", mem, w.n}} {
		got := reopenPrefix(t, name+" "+c.what, c.fs)
		if got < c.min || got > w.n {
			t.Fatalf("%s %s: %d batches after reopening, want %d to %d", name, c.what, got, c.min, w.n)
		}
	}
}

func ratchet(a *atomic.Uint64, n uint64) {
	for old := a.Load(); n > old && !a.CompareAndSwap(old, n); old = a.Load() {
	}
}

func reopenPrefix(t *testing.T, name string, f vfs.FS) int {
	t.Helper()
	s, err := Open("store", &Options{FS: f})
	if err != nil {
		t.Fatalf("%s: reopen: %v", name, err)
	}
	defer mustClose(t, s)
	return checkPrefix(t, dump(t, s))
}
