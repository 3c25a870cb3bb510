package store

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Memory is given back once reads that filled the cache have ended, not while they
// go on, not again without more of them, and not after stop.
func TestTrimmerWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var misses atomic.Int64
		tr := &trimmer{misses: misses.Load}
		trimmed := func() int64 { tr.mu.Lock(); defer tr.mu.Unlock(); return tr.done }
		misses.Store(trimMisses - 1)
		tr.arm()
		time.Sleep(5 * trimAfter)
		if n := trimmed(); n != 0 {
			t.Fatalf("trimmed at %d misses, before there was much to trim", n)
		}
		misses.Store(2 * trimMisses)
		tr.arm()
		for range 10 {
			misses.Add(10 * quietMisses)
			time.Sleep(trimAfter / 2)
			if n := trimmed(); n != 0 {
				t.Fatalf("trimmed at %d misses, while reads went on", n)
			}
		}
		time.Sleep(2 * trimAfter)
		if n := trimmed(); n != misses.Load() {
			t.Fatalf("trimmed at %d misses, want %d: reads have ended", n, misses.Load())
		}
		misses.Add(2 * trimMisses)
		tr.arm()
		tr.stop()
		time.Sleep(5 * trimAfter)
		if n := trimmed(); n == misses.Load() {
			t.Fatal("trimmed after stop")
		}
	})
}
