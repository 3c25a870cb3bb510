package engine

import (
	"fmt"

	"github.com/osierdb/osier/bench/peers"
)

// Kind is what a workload does.
type Kind int

const (
	Insert Kind = iota // Rows rows a transaction
	Commit             // one row a transaction, from Writers goroutines
	Get                // Rows random rows at once
	Scan               // Rows rows in order
)

// Workload is a row of the comparison.
type Workload struct {
	Kind    Kind
	Level   peers.Level // of writes
	Shape   peers.Shape
	Rows    int
	Writers int
	Of      int64 // rows in the store, for reads
}

// String names the workload as the tables do.
func (w Workload) String() string {
	rows := map[peers.Shape]string{peers.Nebari: "Nebari row", peers.KiB: "1 KiB document", peers.Small: "200 B document"}[w.Shape]
	many := rows + "s"
	switch w.Kind {
	case Insert:
		if w.Rows > 1 {
			rows = many
		}
		return fmt.Sprintf("insert %d %s in a transaction, %v", w.Rows, rows, w.Level)
	case Commit:
		return fmt.Sprintf("commit a %s, writers: %d, %v", rows, w.Writers, w.Level)
	case Get:
		return fmt.Sprintf("get %d of %d %s", w.Rows, w.Of, many)
	}
	return fmt.Sprintf("scan %d of %d %s", w.Rows, w.Of, many)
}

// Reads tells reads, which share a loaded store and are judged by processor
// time, from writes, which wait for the disk and are judged by the clock.
func (w Workload) Reads() bool { return w.Kind == Get || w.Kind == Scan }

// Run does the workload ops times on a store; id is the next free row.
func (w Workload) Run(s peers.Subject, id int64, ops int, seed uint64) (peers.Sample, error) {
	switch w.Kind {
	case Insert:
		return s.Insert(w.Shape, id, w.Rows, ops)
	case Commit:
		return s.Commit(w.Shape, id, w.Writers, max(1, ops/w.Writers))
	case Get:
		return s.Get(w.Shape, w.Of, w.Rows, ops, seed)
	}
	return s.Scan(w.Shape, w.Of, w.Rows, ops, seed)
}

// Value is what the tables show of a sample: microseconds an operation, per row
// where a row is what the bar is about.
func (w Workload) Value(s peers.Sample) float64 {
	switch w.Kind {
	case Insert:
		return s.PerRow() / 1e3
	case Commit:
		return s.PerOp() / 1e3
	case Get:
		return s.CPUPerOp() / 1e3
	}
	return s.CPUPerRow() / 1e3
}

// Unit of Value.
func (w Workload) Unit() string {
	switch w.Kind {
	case Insert:
		return "us a row, wall"
	case Commit:
		return "us a commit, wall"
	case Get:
		return "us a call, CPU"
	}
	return "us a row, CPU"
}

// Plan lists the comparison's workloads. The quick one has those that the bars
// need and leaves out the stores of a million rows.
func Plan(quick bool) []Workload {
	var ws []Workload
	levels := []peers.Level{peers.Synced, peers.Buffered}
	batches, writers, sizes := []int{1, 100, 1000, 10_000}, []int{1, 16, 64}, []int64{1000, 10_000, 1_000_000}
	if quick {
		levels, batches, writers, sizes = levels[:1], []int{100, 1000}, []int{1, 64}, sizes[1:2]
	}
	for _, l := range levels {
		for _, n := range writers {
			ws = append(ws, Workload{Kind: Commit, Level: l, Shape: peers.KiB, Rows: 1, Writers: n})
		}
	}
	ws = append(ws, Workload{Kind: Insert, Shape: peers.KiB, Rows: 1000})
	for _, l := range levels {
		for _, n := range batches {
			ws = append(ws, Workload{Kind: Insert, Level: l, Shape: peers.Nebari, Rows: n})
		}
	}
	for _, of := range sizes {
		for _, n := range Picks(of) {
			ws = append(ws, Workload{Kind: Get, Shape: peers.Nebari, Rows: n, Of: of})
		}
		for _, n := range Picks(of) {
			ws = append(ws, Workload{Kind: Scan, Shape: peers.Nebari, Rows: n, Of: of})
		}
	}
	of := SmallDocs(quick)
	for _, n := range []int{1, 100} {
		ws = append(ws, Workload{Kind: Get, Shape: peers.Small, Rows: n, Of: of})
	}
	return append(ws, Workload{Kind: Scan, Shape: peers.Small, Rows: 10_000, Of: of})
}

// SmallDocs is how many documents of 200 bytes the stores hold from which some
// are read.
func SmallDocs(quick bool) int64 {
	if quick {
		return 100_000
	}
	return 1_000_000
}
