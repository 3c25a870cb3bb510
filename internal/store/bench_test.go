package store

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Each benchmark has a sub-benchmark "pebble" that does the same with the engine
// alone, opened with the same settings: compare within one run.

func benchKey(i int) []byte { return fmt.Appendf(nil, "bench/%010d", i) }

// benchValue looks like a small document: letters and digits, half of it random.
func benchValue(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[rng.IntN(36)]
		if i%2 == 0 {
			b[i] = byte('a' + i%26)
		}
	}
	return b
}

const benchRecords = 100_000

// benchFill fills a store with records of 120 B and compacts it.
func benchFill(b *testing.B, s *Store) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	for i := 0; i < benchRecords; i += 1000 {
		w := s.NewWriteBatch()
		for j := range 1000 {
			if err := w.Set(benchKey(i+j), benchValue(rng, 120)); err != nil {
				b.Fatal(err)
			}
		}
		p, err := s.Apply(w, Relaxed)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Compact(b.Context(), nil, nil); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkGet(b *testing.B) {
	s := mustOpen(b, b.TempDir(), nil)
	benchFill(b, s)
	rng := rand.New(rand.NewPCG(2, 2))
	b.Run("store", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, c, err := s.Get(benchKey(rng.IntN(benchRecords)))
			if err != nil {
				b.Fatal(err)
			}
			_ = c.Close()
		}
	})
	b.Run("pebble", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, c, err := s.db.Get(benchKey(rng.IntN(benchRecords)))
			if err != nil {
				b.Fatal(err)
			}
			_ = c.Close()
		}
	})
}

func BenchmarkScan(b *testing.B) {
	s := mustOpen(b, b.TempDir(), nil)
	benchFill(b, s)
	b.Run("store", func(b *testing.B) {
		it, err := s.NewIter(nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer it.Close()
		it.First()
		for b.Loop() {
			if !it.Next() {
				it.First()
			}
		}
	})
	b.Run("pebble", func(b *testing.B) {
		it, err := s.db.NewIter(nil)
		if err != nil {
			b.Fatal(err)
		}
		defer it.Close()
		it.First()
		for b.Loop() {
			if !it.Next() {
				it.First()
			}
		}
	})
}

// BenchmarkBlockSize compares table block sizes for gets of one random key with a
// cache that holds everything, and reports the bytes on disk.
func BenchmarkBlockSize(b *testing.B) {
	for _, kib := range []int{8, 16, 32} {
		b.Run(fmt.Sprintf("%dKiB", kib), func(b *testing.B) {
			s := &Store{opts: (&Options{InMemory: true}).withDefaults(), fence: &fence{up: make(chan struct{})}}
			s.fs, s.files, s.dir = vfs.NewMem(), nil, "x"
			s.guard = newGuardFS(s.fs, "x/data", s.fence)
			o := s.engineOptions()
			o.FS, o.Cache, o.CacheSize = vfs.NewMem(), nil, 256<<20
			for i := range o.Levels {
				o.Levels[i].BlockSize = kib << 10
			}
			db, err := pebble.Open("x", o)
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			rng := rand.New(rand.NewPCG(1, 1))
			for i := range benchRecords {
				if err := db.Set(benchKey(i), benchValue(rng, 120), pebble.NoSync); err != nil {
					b.Fatal(err)
				}
			}
			if err := db.Compact(b.Context(), benchKey(0), benchKey(benchRecords), false); err != nil {
				b.Fatal(err)
			}
			m := db.Metrics().Total()
			for b.Loop() {
				_, c, err := db.Get(benchKey(rng.IntN(benchRecords)))
				if err != nil {
					b.Fatal(err)
				}
				_ = c.Close()
			}
			b.ReportMetric(float64(m.TablesSize)/benchRecords, "B/record")
		})
	}
}

// BenchmarkCommit applies batches of one 1 KiB record and waits, from 1, 16 and 64
// goroutines.
func BenchmarkCommit(b *testing.B) {
	for _, d := range []Durability{Sync, Buffered, Relaxed} {
		for _, writers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%v/%d/store", d, writers), func(b *testing.B) { benchStore(b, d, writers) })
			b.Run(fmt.Sprintf("%v/%d/pebble", d, writers), func(b *testing.B) { benchPebble(b, d, writers) })
		}
	}
}

// benchWriters runs b.N calls of put from several goroutines.
func benchWriters(b *testing.B, writers int, put func(key, value []byte) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	value := benchValue(rand.New(rand.NewPCG(1, 1)), 1024)
	b.ResetTimer()
	for range writers {
		wg.Go(func() {
			var key [16]byte
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				binary.BigEndian.PutUint64(key[:], uint64(n)*0x9e3779b97f4a7c15)
				binary.BigEndian.PutUint64(key[8:], uint64(n))
				if err := put(key[:], value); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

func benchStore(b *testing.B, d Durability, writers int) {
	s := mustOpen(b, b.TempDir(), nil)
	benchWriters(b, writers, func(key, value []byte) error {
		w := s.NewWriteBatch()
		if err := w.Set(key, value); err != nil {
			return err
		}
		p, err := s.Apply(w, d)
		if err != nil {
			return err
		}
		return p.Wait()
	})
}

// benchPebble: the engine has no Buffered; its nearest is a commit without sync.
func benchPebble(b *testing.B, d Durability, writers int) {
	s := mustOpen(b, b.TempDir(), nil)
	o := s.engineOptions()
	o.FS, o.Cache, o.ErrorIfNotExists, o.EventListener = vfs.Default, nil, false, nil
	o.CacheSize = defaultCacheBytes
	db, err := pebble.Open(filepath.Join(b.TempDir(), "raw"), o)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	wo := pebble.NoSync
	if d == Sync {
		wo = pebble.Sync
	}
	benchWriters(b, writers, func(key, value []byte) error {
		w := db.NewBatch()
		if err := w.Set(key, value, nil); err != nil {
			return err
		}
		if err := w.Commit(wo); err != nil {
			return err
		}
		return w.Close()
	})
}
