package peers

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Sample is one measurement.
type Sample struct {
	Ops     int // transactions, reads or commits
	Rows    int // rows in all of them
	Elapsed time.Duration
	CPU     time.Duration // of the whole process, garbage collection included
	Allocs  uint64        // 0 for a peer that is another process
	Bytes   uint64
}

// PerOp is an operation's share of the time.
func (s Sample) PerOp() float64 { return float64(s.Elapsed.Nanoseconds()) / float64(max(s.Ops, 1)) }

// PerRow is a row's share of the time.
func (s Sample) PerRow() float64 { return float64(s.Elapsed.Nanoseconds()) / float64(max(s.Rows, 1)) }

// CPUPerOp is an operation's share of the processor time, which a busy machine
// changes far less.
func (s Sample) CPUPerOp() float64 { return float64(s.CPU.Nanoseconds()) / float64(max(s.Ops, 1)) }

// CPUPerRow is a row's share of the processor time.
func (s Sample) CPUPerRow() float64 { return float64(s.CPU.Nanoseconds()) / float64(max(s.Rows, 1)) }

// Subject is a store under measurement, filled with rows 0 to n-1 of one shape
// by Insert. It times itself, so that a peer in another process pays nothing
// for the way there. What it needs is made before the clock starts.
type Subject interface {
	// Insert runs txs transactions of batch new rows each, from row id on.
	Insert(s Shape, id int64, batch, txs int) (Sample, error)
	// Commit has writers threads put each rows, one a transaction.
	Commit(s Shape, id int64, writers, each int) (Sample, error)
	// Get runs reads of k rows each, picked at random out of the first n.
	Get(s Shape, n int64, k, reads int, seed uint64) (Sample, error)
	// Scan reads k rows in order, as often as told, from random places among
	// the first n.
	Scan(s Shape, n int64, k, reads int, seed uint64) (Sample, error)
	Settle() error
	Close() error
}

// Drive measures a Store from within this process.
func Drive(s Store) Subject { return &driven{s} }

type driven struct{ s Store }

// clock times fn and counts what it allocates.
func clock(ops, rows int, fn func() error) (Sample, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := CPUTime(), time.Now()
	err := fn()
	d := time.Since(start)
	cpu = CPUTime() - cpu
	runtime.ReadMemStats(&after)
	return Sample{ops, rows, d, cpu, after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc}, err
}

func (d *driven) Insert(sh Shape, id int64, batch, txs int) (Sample, error) {
	rows := sh.Rows(id, batch*txs)
	return clock(txs, len(rows), func() error {
		for len(rows) > 0 {
			if err := d.s.Insert(rows[:batch]); err != nil {
				return err
			}
			rows = rows[batch:]
		}
		return nil
	})
}

func (d *driven) Commit(sh Shape, id int64, writers, each int) (Sample, error) {
	if writers == 1 {
		// Nobody to share with: a peer that waits for company must not.
		return d.Insert(sh, id, 1, each)
	}
	rows := sh.Rows(id, writers*each)
	errs := make([]error, writers)
	return clock(len(rows), len(rows), func() error {
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					// Neighbours are written at about the same time.
					if err := d.s.Put(rows[i*writers+w]); err != nil {
						errs[w] = err
						return
					}
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *driven) Get(sh Shape, n int64, k, reads int, seed uint64) (Sample, error) {
	r := rand.New(rand.NewPCG(seed, 1))
	ids := make([]int64, k*reads)
	want := 0
	for i := range ids {
		ids[i] = r.Int64N(n)
		want += sh.Len(ids[i])
	}
	got := 0
	s, err := clock(reads, len(ids), func() error {
		for ids := ids; len(ids) > 0; ids = ids[k:] {
			n, err := d.s.Get(ids[:k])
			if err != nil {
				return err
			}
			got += n
		}
		return nil
	})
	if err == nil && got != want {
		err = fmt.Errorf("get: %d letters read, want %d", got, want)
	}
	return s, err
}

func (d *driven) Scan(sh Shape, n int64, k, reads int, seed uint64) (Sample, error) {
	r := rand.New(rand.NewPCG(seed, 2))
	from := make([]int64, reads)
	for i := range from {
		from[i] = r.Int64N(n - int64(k) + 1)
	}
	return clock(reads, k*reads, func() error {
		for _, id := range from {
			rows, _, err := d.s.Scan(id, k)
			if err != nil {
				return err
			}
			if rows != k {
				return fmt.Errorf("scan: %d rows, want %d", rows, k)
			}
		}
		return nil
	})
}

func (d *driven) Settle() error { return d.s.Settle() }
func (d *driven) Close() error  { return d.s.Close() }
