// Package kv measures key-values in process against a Go map behind a lock, and
// durable ones against the engine's own group commit and Badger.
//
//	go test ./kv -run Ratios -v -ratios
package kv

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/bench/peers"
	"github.com/osierdb/osier/engine"
)

var ratios = flag.Bool("ratios", false, "measure and print the table of bench/README.md")

const (
	keys      = 100_000
	valueSize = 64
)

// names are the keys, made once.
var names = sync.OnceValue(func() []string {
	out := make([]string, keys)
	for i := range out {
		out[i] = fmt.Sprintf("session:%08d", i)
	}
	return out
})

// store is what a contender does; worker numbers begin at 0.
type store interface {
	get(worker int, key string) (size int)
	set(key string, value []byte) error
	close()
}

type osierKV struct {
	eng  *engine.Engine
	n    osier.Namespace
	bufs [64][]byte
}

func openOsier(tb testing.TB, d osier.Durability) *osierKV {
	eng, err := engine.Open(tb.TempDir(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	db, err := eng.DB(context.Background(), "bench")
	if err != nil {
		tb.Fatal(err)
	}
	return &osierKV{eng: eng, n: db.KV("sessions").With(d)}
}

func (o *osierKV) get(worker int, key string) int {
	b, _, err := o.n.Append(context.Background(), o.bufs[worker][:0], key)
	if err != nil {
		panic(err)
	}
	o.bufs[worker] = b
	return len(b)
}

func (o *osierKV) set(key string, value []byte) error {
	return o.n.Set(context.Background(), key, value)
}
func (o *osierKV) close() { o.eng.Close() }

// locked is the map; values are copied, as a store must.
type locked struct {
	mu   sync.RWMutex
	m    map[string][]byte
	bufs [64][]byte
}

func (l *locked) get(worker int, key string) int {
	l.mu.RLock()
	l.bufs[worker] = append(l.bufs[worker][:0], l.m[key]...)
	l.mu.RUnlock()
	return len(l.bufs[worker])
}

func (l *locked) set(key string, value []byte) error {
	own := append([]byte(nil), value...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m[key] = own
	return nil
}

func (l *locked) close() {}

type badgerKV struct{ db *badger.DB }

func openBadger(tb testing.TB) *badgerKV {
	db, err := badger.Open(badger.DefaultOptions(tb.TempDir()).WithSyncWrites(true).WithLogger(nil))
	if err != nil {
		tb.Fatal(err)
	}
	return &badgerKV{db}
}

func (b *badgerKV) get(int, string) int { return 0 }
func (b *badgerKV) close()              { b.db.Close() }
func (b *badgerKV) set(key string, value []byte) error {
	return b.db.Update(func(t *badger.Txn) error { return t.Set([]byte(key), value) })
}

// documents is the engine's own group commit: a durable insert of a document of
// the same bytes.
type documents struct {
	eng *engine.Engine
	db  *osier.DB
	c   *osier.Collection[osier.Raw]
}

func openDocuments(tb testing.TB) *documents {
	eng, err := engine.Open(tb.TempDir(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	db, err := eng.DB(context.Background(), "bench")
	if err != nil {
		tb.Fatal(err)
	}
	return &documents{eng, db, osier.NewCollection("docs", osier.CollectionOptions[osier.Raw]{Codec: osier.Binary})}
}

func (d *documents) get(int, string) int { return 0 }
func (d *documents) close()              { d.eng.Close() }
func (d *documents) set(key string, value []byte) error {
	_, err := d.c.Upsert(context.Background(), d.db, key, osier.Raw(value))
	return err
}

// rate runs fn on several goroutines for a time; it returns operations a second
// and processor time an operation.
func rate(workers int, d time.Duration, fn func(worker, i int)) (perSecond, cpuNanos float64) {
	var n atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	cpu, start := peers.CPUTime(), time.Now()
	for w := range workers {
		wg.Go(func() {
			own := int64(0)
			for i := w*7919 + 1; !stop.Load(); own++ {
				i = (i*31 + 7) % keys
				fn(w, i)
			}
			n.Add(own)
		})
	}
	time.Sleep(d)
	stop.Store(true)
	wg.Wait()
	took, used := time.Since(start), peers.CPUTime()-cpu
	return float64(n.Load()) / took.Seconds(), float64(used.Nanoseconds()) / float64(n.Load())
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

type row struct {
	name    string
	workers int
	run     func(s store) func(worker, i int)
	open    []func(testing.TB) store
	fill    bool
}

func rows(value []byte) []row {
	get := func(s store) func(int, int) {
		return func(w, i int) {
			if s.get(w, names()[i]) != len(value) {
				panic("a value is lost")
			}
		}
	}
	set := func(s store) func(int, int) {
		return func(_, i int) {
			if err := s.set(names()[i], value); err != nil {
				panic(err)
			}
		}
	}
	relaxed := func(tb testing.TB) store { return openOsier(tb, osier.Relaxed) }
	plain := func(testing.TB) store { return &locked{m: map[string][]byte{}} }
	return []row{
		{"get, 2 goroutines", 2, get, []func(testing.TB) store{relaxed, plain}, true},
		{"relaxed set, 2 goroutines", 2, set, []func(testing.TB) store{relaxed, plain}, true},
		{"durable set, 64 goroutines", 64, set, []func(testing.TB) store{
			func(tb testing.TB) store { return openOsier(tb, osier.Sync) },
			func(tb testing.TB) store { return openDocuments(tb) }, func(tb testing.TB) store { return openBadger(tb) },
		}, false},
	}
}

// TestRatios prints a table: operations a second and processor time of each
// contender, in turns, medians of the rounds.
func TestRatios(t *testing.T) {
	rounds, slice := 1, 50*time.Millisecond
	if *ratios {
		rounds, slice = 5, 700*time.Millisecond
	}
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	value := make([]byte, valueSize)
	for _, r := range rows(value) {
		var stores []store
		for _, open := range r.open {
			s := open(t)
			defer s.close()
			for i := range names() {
				if !r.fill {
					break
				}
				if err := s.set(names()[i], value); err != nil {
					t.Fatal(err)
				}
			}
			stores = append(stores, s)
		}
		speeds, costs := make([][]float64, len(stores)), make([][]float64, len(stores))
		for range rounds {
			for i, s := range stores {
				speed, cost := rate(r.workers, slice, r.run(s))
				speeds[i], costs[i] = append(speeds[i], speed), append(costs[i], cost)
			}
		}
		line := "| " + r.name
		for i := range stores {
			line += fmt.Sprintf(" | %.0f/s, %.0f ns of processor", median(speeds[i]), median(costs[i]))
		}
		t.Log(line + " |")
	}
}

// TestMemory prints what a key costs in memory beside its own bytes.
func TestMemory(t *testing.T) {
	n := keys
	if *ratios {
		n = 1_000_000
	}
	o := openOsier(t, osier.Relaxed)
	defer o.close()
	value, content := make([]byte, valueSize), 0
	for i := range n {
		key := fmt.Sprintf("session:%08d", i)
		content += len(key) + len(value)
		if err := o.set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.eng.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	s, err := o.eng.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	over := (float64(s.KVBytes) - float64(content)) / float64(n)
	t.Logf("%d keys: %.1f bytes of overhead each", n, over)
	if over > 120 {
		t.Errorf("%.1f bytes of overhead a key, want at most 120", over)
	}
}
