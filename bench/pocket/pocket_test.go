//go:build linux

// Package pocket_bench compares pocket with tidwall/buntdb, with a Go map
// behind an RWMutex and with sync.Map, on the workloads of pocket's ancestor:
// 999,999 records with the decimal numbers from 0 as keys and an object with
// one text as values.
//
//	go test -bench . -benchtime 200ms ./pocket/
package pocket_bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/buntdb"
	"golang.org/x/sys/unix"

	"github.com/osierdb/osier/pocket"
)

const (
	records = 999_999
	hotKey  = "123456"
)

type entity struct {
	Body string
}

func body(i int) entity { return entity{"Test Body " + strconv.Itoa(i)} }

func key(i int) string { return strconv.Itoa(i) }

func options(d pocket.Durability) *pocket.Options {
	return &pocket.Options{Types: []pocket.Type{pocket.TypeOf[entity]("Entity")}, Durability: d, RewriteRatio: -1}
}

func openPocket(tb testing.TB, path string, d pocket.Durability) *pocket.Store {
	tb.Helper()
	s, err := pocket.Open(path, options(d))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// changes returns the first n records, as typed values or as plain texts.
func changes(n int, plain bool) []pocket.Change {
	cs := make([]pocket.Change, n)
	for i := range cs {
		cs[i].Key = key(i)
		if plain {
			cs[i].Value = body(i).Body
		} else {
			cs[i].Value = body(i)
		}
	}
	return cs
}

// fullPocket returns a store with all records, saved in one transaction.
func fullPocket(tb testing.TB, plain bool) *pocket.Store {
	tb.Helper()
	s := openPocket(tb, filepath.Join(tb.TempDir(), "full.pocket"), pocket.Cached)
	if _, err := s.SaveAll(changes(records, plain)...); err != nil {
		tb.Fatal(err)
	}
	return s
}

func openBunt(tb testing.TB, path string, policy buntdb.SyncPolicy) *buntdb.DB {
	tb.Helper()
	db, err := buntdb.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	var c buntdb.Config
	if err := db.ReadConfig(&c); err != nil {
		tb.Fatal(err)
	}
	c.SyncPolicy, c.AutoShrinkDisabled = policy, true
	if err := db.SetConfig(c); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

func fillBunt(tb testing.TB, db *buntdb.DB, n int) {
	tb.Helper()
	err := db.Update(func(tx *buntdb.Tx) error {
		for i := range n {
			if _, _, err := tx.Set(key(i), encode(body(i)), nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func fullBunt(tb testing.TB) *buntdb.DB {
	tb.Helper()
	db := openBunt(tb, filepath.Join(tb.TempDir(), "full.bunt"), buntdb.Never)
	fillBunt(tb, db, records)
	return db
}

func encode(e entity) string {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// lockedMap is the floor: what a program has that does without a store.
type lockedMap struct {
	mu sync.RWMutex
	m  map[string]entity
}

func (l *lockedMap) get(k string) (entity, bool) {
	l.mu.RLock()
	v, ok := l.m[k]
	l.mu.RUnlock()
	return v, ok
}

// gets are the ways to read one key, over the same records.
func gets(tb testing.TB) map[string]func(k string) bool {
	typed, plain, bunt := fullPocket(tb, false), fullPocket(tb, true), fullBunt(tb)
	m, l, sm := make(map[string]entity, records), &lockedMap{m: map[string]entity{}}, &sync.Map{}
	for i := range records {
		m[key(i)] = body(i)
		l.m[key(i)] = body(i)
		sm.Store(key(i), body(i))
	}
	return map[string]func(k string) bool{
		"pocket-typed": func(k string) bool { _, err := pocket.Get[entity](typed, k); return err == nil },
		"pocket-text":  func(k string) bool { _, err := pocket.Get[string](plain, k); return err == nil },
		"map":          func(k string) bool { _, ok := m[k]; return ok },
		"rwmutex-map":  func(k string) bool { _, ok := l.get(k); return ok },
		"sync.Map":     func(k string) bool { v, ok := sm.Load(k); return ok && v.(entity).Body != "" },
		"buntdb": func(k string) bool {
			return bunt.View(func(tx *buntdb.Tx) error { _, err := tx.Get(k); return err }) == nil
		},
	}
}

var names = []string{"pocket-typed", "pocket-text", "map", "rwmutex-map", "sync.Map", "buntdb"}

// measure calls f in short windows and reports the time of one call: by the
// clock, in the window that only one in ten is faster than, and in the median
// one; and the thread's processor time in the fastest window and the median
// one. On a machine that others use too, the mean tells more about them than
// about f, and the clock counts their turns.
func measure(b *testing.B, calls int, f func()) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var wall, cpu []float64
	for b.Loop() {
		began, cpuBegan := time.Now(), threadTime()
		for range calls {
			f()
		}
		cpu = append(cpu, float64(threadTime()-cpuBegan)/float64(calls))
		wall = append(wall, float64(time.Since(began).Nanoseconds())/float64(calls))
	}
	slices.Sort(wall)
	slices.Sort(cpu)
	b.ReportMetric(wall[len(wall)/10], "p10-ns")
	b.ReportMetric(wall[len(wall)/2], "p50-ns")
	b.ReportMetric(cpu[0], "cpu-min-ns")
	b.ReportMetric(cpu[len(cpu)/2], "cpu-p50-ns")
	b.ReportMetric(0, "ns/op") // of a whole window
}

// threadTime returns the processor time that the calling thread has used, in
// nanoseconds.
func threadTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// processTime returns the processor time that the process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkGet(b *testing.B) {
	all := gets(b)
	random := make([]string, 1<<20)
	for i := range random {
		random[i] = key(rand.IntN(records))
	}
	must := func(ok bool) {
		if !ok {
			b.Fatal("not found")
		}
	}
	for _, n := range names {
		get := all[n]
		b.Run("hot/"+n, func(b *testing.B) { measure(b, 500, func() { must(get(hotKey)) }) })
	}
	for _, n := range names {
		get := all[n]
		for _, k := range random {
			get(k) // pocket decodes what it is asked for the first time
		}
		i := 0
		b.Run("random/"+n, func(b *testing.B) {
			measure(b, 100, func() { must(get(random[i&(len(random)-1)])); i++ })
		})
	}
	for _, n := range names[:4] {
		get := all[n]
		b.Run("random-two-goroutines/"+n, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				i := rand.IntN(len(random))
				for ; pb.Next(); i++ {
					if !get(random[i&(len(random)-1)]) {
						b.Error("not found")
					}
				}
			})
		})
	}
}

func BenchmarkPrefix(b *testing.B) {
	typed, plain, bunt := fullPocket(b, false), fullPocket(b, true), fullBunt(b)
	n := 0
	ascend := func(pattern string, all bool) {
		err := bunt.View(func(tx *buntdb.Tx) error {
			return tx.AscendKeys(pattern, func(_, v string) bool { n += len(v); return all })
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("111/pocket-typed", func(b *testing.B) {
		measure(b, 20, func() {
			for _, v := range pocket.Prefix[entity](typed, "1234") {
				n += len(v.Body)
			}
		})
	})
	b.Run("111/pocket-text", func(b *testing.B) {
		measure(b, 20, func() {
			for _, v := range pocket.Prefix[string](plain, "1234") {
				n += len(v)
			}
		})
	})
	b.Run("111/pocket-record", func(b *testing.B) {
		measure(b, 20, func() {
			for _, r := range pocket.Prefix[pocket.Record](typed, "1234") {
				n += len(r.JSON())
			}
		})
	})
	b.Run("111/buntdb", func(b *testing.B) { measure(b, 20, func() { ascend("1234*", true) }) })
	i, prefixes, patterns := 0, make([]string, 900), make([]string, 900)
	for i := range prefixes {
		prefixes[i] = key(100 + i)
		patterns[i] = prefixes[i] + "*"
	}
	b.Run("first/pocket-record", func(b *testing.B) {
		measure(b, 20, func() {
			for range pocket.Prefix[pocket.Record](typed, prefixes[i%900]) {
				break
			}
			i += 7
		})
	})
	b.Run("first/buntdb", func(b *testing.B) {
		measure(b, 20, func() { ascend(patterns[i%900], false); i += 7 })
	})
}

// BenchmarkGC forces collections and reports the processor time of one.
func BenchmarkGC(b *testing.B) {
	collect := func(b *testing.B) {
		sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
		runtime.GC()
		metrics.Read(sample)
		before := sample[0].Value.Float64()
		n := 0
		for b.Loop() {
			runtime.GC()
			n++
		}
		metrics.Read(sample)
		b.ReportMetric((sample[0].Value.Float64()-before)*1000/float64(n), "cpu-ms")
		b.ReportMetric(0, "ns/op")
	}
	b.Run("nothing", collect)
	s := fullPocket(b, false)
	b.Run("pocket-raw", collect)
	for i := range records {
		if _, err := pocket.Get[entity](s, key(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("pocket-decoded", collect)
	m := make(map[string]*entity, records)
	for i := range records {
		e := body(i)
		m[key(i)] = &e
	}
	b.Run("pocket-decoded-and-map", collect)
	runtime.KeepAlive(m)
}

func BenchmarkSave(b *testing.B) {
	for _, d := range []pocket.Durability{pocket.Cached, pocket.Synced} {
		s := openPocket(b, filepath.Join(b.TempDir(), "save.pocket"), d)
		if _, err := s.SaveAll(changes(200_000, false)...); err != nil {
			b.Fatal(err)
		}
		calls := 50
		if d == pocket.Synced {
			calls = 1
		}
		b.Run("one/pocket-"+d.String(), func(b *testing.B) {
			measure(b, calls, func() { must(b, s.Save(hotKey, entity{"Test Body 123456"})) })
		})
		b.Run("one-text/pocket-"+d.String(), func(b *testing.B) {
			measure(b, calls, func() { must(b, s.Save(hotKey, "Test Body 123456")) })
		})
		b.Run("random/pocket-"+d.String(), func(b *testing.B) {
			measure(b, calls, func() { must(b, s.Save(key(rand.IntN(200_000)), entity{"Test Body 123456"})) })
		})
	}
	for name, p := range map[string]buntdb.SyncPolicy{"cached": buntdb.Never, "synced": buntdb.Always} {
		db := openBunt(b, filepath.Join(b.TempDir(), "save.bunt"), p)
		fillBunt(b, db, 200_000)
		b.Run("one/buntdb-"+name, func(b *testing.B) {
			measure(b, map[string]int{"cached": 50, "synced": 1}[name], func() {
				must(b, db.Update(func(tx *buntdb.Tx) error {
					_, _, err := tx.Set(hotKey, encode(entity{"Test Body 123456"}), nil)
					return err
				}))
			})
		})
	}
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSynced takes turns: the disk's time changes too much from one second
// to the next for rows that are measured one after the other. The floor is what
// the disk asks for a line of the same size: append and fdatasync.
func BenchmarkSynced(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "floor"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	line := make([]byte, 140)
	s := openPocket(b, filepath.Join(b.TempDir(), "save.pocket"), pocket.Synced)
	db := openBunt(b, filepath.Join(b.TempDir(), "save.bunt"), buntdb.Always)
	value := entity{"Test Body 123456"}
	rows := []struct {
		name string
		save func() error
		wall []float64
	}{
		{name: "floor", save: func() error {
			if _, err := f.Write(line); err != nil {
				return err
			}
			return syscall.Fdatasync(int(f.Fd()))
		}},
		{name: "pocket", save: func() error { return s.Save(hotKey, value) }},
		{name: "buntdb", save: func() error {
			return db.Update(func(tx *buntdb.Tx) error {
				_, _, err := tx.Set(hotKey, encode(value), nil)
				return err
			})
		}},
	}
	for b.Loop() {
		for i := range rows {
			began := time.Now()
			must(b, rows[i].save())
			rows[i].wall = append(rows[i].wall, float64(time.Since(began).Nanoseconds()))
		}
	}
	for _, r := range rows {
		slices.Sort(r.wall)
		b.ReportMetric(r.wall[len(r.wall)/10], r.name+"-p10-ns")
		b.ReportMetric(r.wall[len(r.wall)/2], r.name+"-p50-ns")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSaveParallel saves from many goroutines that each wait.
func BenchmarkSaveParallel(b *testing.B) {
	for _, d := range []pocket.Durability{pocket.Cached, pocket.Synced} {
		for _, g := range []int{100, 1000} {
			s := openPocket(b, filepath.Join(b.TempDir(), "save.pocket"), d)
			b.Run(fmt.Sprintf("%d/pocket-%v", g, d), func(b *testing.B) {
				parallel(b, g, func(key string) error { return s.Save(key, entity{"Just some body text"}) })
			})
		}
	}
	db := openBunt(b, filepath.Join(b.TempDir(), "save.bunt"), buntdb.Always)
	b.Run("1000/buntdb-synced", func(b *testing.B) {
		parallel(b, 1000, func(key string) error {
			return db.Update(func(tx *buntdb.Tx) error {
				_, _, err := tx.Set(key, encode(entity{"Just some body text"}), nil)
				return err
			})
		})
	})
}

// parallel shares b.N calls among goroutines, of which each has 1,024 keys, and
// reports the processor time of one call too.
func parallel(b *testing.B, goroutines int, f func(key string) error) {
	keys := make([][]string, goroutines)
	for w := range keys {
		for i := range 1024 {
			keys[w] = append(keys[w], fmt.Sprintf("%d-%d", w, i))
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	before := processTime()
	b.ResetTimer()
	for w := range goroutines {
		wg.Go(func() {
			for i := 0; next.Add(1) <= int64(b.N); i++ {
				if err := f(keys[w][i&1023]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(processTime()-before)/float64(b.N), "cpu-ns/op")
}

func BenchmarkBatch(b *testing.B) {
	const n = 10_000
	s := openPocket(b, filepath.Join(b.TempDir(), "batch.pocket"), pocket.Cached)
	typed, plain := changes(n, false), changes(n, true)
	for name, cs := range map[string][]pocket.Change{"typed": typed, "text": plain} {
		b.Run("pocket-"+name, func(b *testing.B) {
			measure(b, 1, func() {
				_, err := s.SaveAll(cs...)
				must(b, err)
			})
		})
	}
	db := openBunt(b, filepath.Join(b.TempDir(), "batch.bunt"), buntdb.Never)
	b.Run("buntdb", func(b *testing.B) {
		measure(b, 1, func() { fillBunt(b, db, n) })
	})
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "full.pocket")
	s, err := pocket.Open(path, options(pocket.Cached))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.SaveAll(changes(records, false)...); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	open := func(b *testing.B) {
		fastest(b, func() (wall, cpu time.Duration) {
			began, before := time.Now(), processTime()
			s, err := pocket.Open(path, options(pocket.Cached))
			wall, cpu = time.Since(began), processTime()-before
			must(b, err)
			if got := pocket.Count(s, pocket.All()); got != records {
				b.Fatalf("%d records", got)
			}
			must(b, s.Close(context.Background()))
			return wall, cpu
		})
	}
	b.Run("pocket", open)
	s = openPocket(b, path, pocket.Cached)
	if err := s.Rewrite(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Logf("writers paused for %v by the rewrite of %d records", s.Stats().LastRewritePause, records)
	if err := s.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Run("pocket-rewritten", open)
	bunt := filepath.Join(dir, "full.bunt")
	db, err := buntdb.Open(bunt)
	if err != nil {
		b.Fatal(err)
	}
	fillBunt(b, db, records)
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	b.Run("buntdb", func(b *testing.B) {
		fastest(b, func() (wall, cpu time.Duration) {
			began, before := time.Now(), processTime()
			db, err := buntdb.Open(bunt)
			wall, cpu = time.Since(began), processTime()-before
			must(b, err)
			must(b, db.Close())
			return wall, cpu
		})
	})
}

// fastest reports the shortest of the times that f returns.
func fastest(b *testing.B, f func() (wall, cpu time.Duration)) {
	bestWall, bestCPU := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for b.Loop() {
		runtime.GC()
		wall, cpu := f()
		bestWall, bestCPU = min(bestWall, wall), min(bestCPU, cpu)
	}
	b.ReportMetric(float64(bestWall.Microseconds())/1000, "best-ms")
	b.ReportMetric(float64(bestCPU.Microseconds())/1000, "best-cpu-ms")
	b.ReportMetric(0, "ns/op")
}
