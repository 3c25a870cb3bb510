package engine

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/osierdb/osier/bench/peers"
)

// open opens a contender in a fresh folder, or skips with the reason why not.
func open(tb testing.TB, c Contender, l peers.Level) peers.Subject {
	tb.Helper()
	s, err := c.Open(tb.TempDir(), l)
	if errors.Is(err, peers.ErrAbsent) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// report puts a sample in the place of what the test clock measured, which
// includes making the rows.
func report(b *testing.B, s peers.Sample, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ReportMetric(s.PerOp(), "ns/op")
	b.ReportMetric(s.CPUPerOp(), "cpu-ns/op")
	if s.Rows != s.Ops {
		b.ReportMetric(s.PerRow(), "ns/row")
	}
	b.ReportMetric(float64(s.Allocs)/float64(s.Ops), "allocs/op")
	b.ReportMetric(float64(s.Bytes)/float64(s.Ops), "B/op")
}

// TestContenders puts every store through each kind of measurement, small, so
// that a benchmark cannot be fast by doing nothing: what is read is compared
// with what was written.
func TestContenders(t *testing.T) {
	for _, c := range Contenders() {
		for _, l := range []peers.Level{peers.Synced, peers.Buffered} {
			t.Run(c.Name+"/"+l.String(), func(t *testing.T) {
				s := open(t, c, l)
				const n = 500
				if err := Fill(s, peers.Nebari, n-64); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Commit(peers.Nebari, n-64, 16, 4); err != nil {
					t.Fatal(err)
				}
				for _, k := range []int{1, 20, n} {
					if got, err := s.Get(peers.Nebari, n, k, 3, 1); err != nil || got.Rows != 3*k || got.Elapsed <= 0 {
						t.Errorf("get of %d: %+v, %v", k, got, err)
					}
					if got, err := s.Scan(peers.Nebari, n, k, 3, 1); err != nil || got.Rows != 3*k || got.Elapsed <= 0 {
						t.Errorf("scan of %d: %+v, %v", k, got, err)
					}
				}
				// There is no row beyond the last one.
				if _, err := s.Scan(peers.Nebari, n+1, n+1, 1, 1); err == nil {
					t.Error("a scan beyond the end went well")
				}
			})
		}
	}
}

func BenchmarkInsert(b *testing.B) {
	for _, l := range []peers.Level{peers.Synced, peers.Buffered} {
		for _, batch := range []int{1, 100, 1000, 10_000} {
			for _, c := range Contenders() {
				b.Run(fmt.Sprintf("%v/rows=%d/%s", l, batch, c.Name), func(b *testing.B) {
					s, err := open(b, c, l).Insert(peers.Nebari, 0, batch, b.N)
					report(b, s, err)
				})
			}
		}
	}
}

func BenchmarkCommit1KiB(b *testing.B) {
	for _, l := range []peers.Level{peers.Synced, peers.Buffered} {
		for _, writers := range []int{1, 16, 64} {
			for _, c := range Contenders() {
				b.Run(fmt.Sprintf("%v/writers=%d/%s", l, writers, c.Name), func(b *testing.B) {
					s, err := open(b, c, l).Commit(peers.KiB, 0, writers, (b.N+writers-1)/writers)
					report(b, s, err)
				})
			}
		}
	}
}

func BenchmarkBatch1KiB(b *testing.B) {
	for _, c := range Contenders() {
		b.Run("synced/docs=1000/"+c.Name, func(b *testing.B) {
			s, err := open(b, c, peers.Synced).Insert(peers.KiB, 0, 1000, b.N)
			report(b, s, err)
		})
	}
}

// BenchmarkRead gets and scans Nebari rows; a million of them only without
// -short.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int64{1000, 10_000, 1_000_000} {
		if testing.Short() && n > 10_000 {
			continue
		}
		for _, c := range Contenders() {
			b.Run(fmt.Sprintf("of=%d/%s", n, c.Name), func(b *testing.B) {
				s := open(b, c, peers.Buffered)
				if err := Fill(s, peers.Nebari, n); err != nil {
					b.Fatal(err)
				}
				for _, k := range Picks(n) {
					b.Run(fmt.Sprintf("get=%d", k), func(b *testing.B) {
						s, err := s.Get(peers.Nebari, n, k, b.N, 1)
						report(b, s, err)
					})
					b.Run(fmt.Sprintf("scan=%d", k), func(b *testing.B) {
						s, err := s.Scan(peers.Nebari, n, k, b.N, 1)
						report(b, s, err)
					})
				}
			})
		}
	}
}

// BenchmarkReadSmall gets and scans documents of 200 bytes.
func BenchmarkReadSmall(b *testing.B) {
	const n = 100_000
	for _, c := range Contenders() {
		b.Run(c.Name, func(b *testing.B) {
			s := open(b, c, peers.Buffered)
			if err := Fill(s, peers.Small, n); err != nil {
				b.Fatal(err)
			}
			for _, k := range []int{1, 100} {
				b.Run(fmt.Sprintf("get=%d", k), func(b *testing.B) {
					s, err := s.Get(peers.Small, n, k, b.N, 1)
					report(b, s, err)
				})
			}
			b.Run("scan=10000", func(b *testing.B) {
				s, err := s.Scan(peers.Small, n, 10_000, b.N, 1)
				report(b, s, err)
			})
		})
	}
}

// BenchmarkUpdateOne updates one document 10,000 times, an operation.
func BenchmarkUpdateOne(b *testing.B) {
	var first, last float64
	for b.Loop() {
		h, err := UpdateOne(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		first += h.First.Seconds()
		last += h.Last.Seconds()
	}
	b.ReportAllocs()
	b.ReportMetric(first/float64(b.N)*1e9, "first-ns/update")
	b.ReportMetric(last/float64(b.N)*1e9, "last-ns/update")
	b.ReportMetric(last/first, "slowdown")
}

// TestPicks: one row, the square root of n, a sixteenth of n.
func TestPicks(t *testing.T) {
	for n, want := range map[int64][3]int{1000: {1, 31, 62}, 10_000: {1, 100, 625}, 1_000_000: {1, 1000, 62_500}} {
		if got := Picks(n); [3]int(got) != want {
			t.Errorf("Picks(%d) = %v, want %v (root %v)", n, got, want, math.Sqrt(float64(n)))
		}
	}
}
