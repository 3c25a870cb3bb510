package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/osierdb/osier/bench/peers"
)

// Comparison runs workloads over all contenders, round by round, each round
// with every contender in turn, so that what disturbs the machine disturbs all.
type Comparison struct {
	Dir    string        // for the stores; it must be on the disk in question
	Rounds int           // medians are taken over these
	Slice  time.Duration // how long a contender works in a round
	Log    func(format string, args ...any)
	// Absent says, by name, why a contender is missing.
	Absent map[string]string
}

// Outcome is what a workload came to: by contender, a sample a round.
type Outcome struct {
	Workload Workload
	Samples  map[string][]peers.Sample
	Floor    map[string][]peers.Sample // the disk alone, just before and after each of them, for synced writes
}

// entry is a contender with its open store.
type entry struct {
	name string
	s    peers.Subject
	next int64 // row id
	ops  int   // that fill a slice
}

// Run measures the workloads. Reads from stores of the same content share them.
func (c *Comparison) Run(ws []Workload) (out []Outcome, err error) {
	for len(ws) > 0 {
		n := 1
		for n < len(ws) && ws[0].Reads() && ws[n].Reads() && ws[n].Of == ws[0].Of && ws[n].Shape == ws[0].Shape {
			n++
		}
		got, err := c.group(ws[:n])
		out = append(out, got...)
		if err != nil {
			return out, err
		}
		ws = ws[n:]
	}
	return out, nil
}

// group measures workloads on one set of stores.
func (c *Comparison) group(ws []Workload) (out []Outcome, err error) {
	dir, err := os.MkdirTemp(c.Dir, "osier-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	entries, err := c.open(dir, ws[0])
	defer func() {
		for _, e := range entries {
			err = errors.Join(err, e.s.Close())
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, w := range ws {
		c.Log("%v", w)
		o, err := c.rounds(dir, w, entries)
		if err != nil {
			return out, fmt.Errorf("%v: %w", w, err)
		}
		out = append(out, o)
	}
	return out, nil
}

// open opens every contender that is there, and loads it for reads.
func (c *Comparison) open(dir string, w Workload) (entries []*entry, err error) {
	level := w.Level
	if w.Reads() {
		level = peers.Buffered // loading need not wait for the disk
	}
	for _, x := range Contenders() {
		sub := filepath.Join(dir, x.Name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			return entries, err
		}
		s, err := x.Open(sub, level)
		if errors.Is(err, peers.ErrAbsent) {
			c.Absent[x.Name] = err.Error()
			continue
		}
		if err != nil {
			return entries, fmt.Errorf("open %s: %w", x.Name, err)
		}
		entries = append(entries, &entry{name: x.Name, s: s})
		if !w.Reads() {
			continue
		}
		start := time.Now()
		if err := Fill(s, w.Shape, w.Of); err != nil {
			return entries, fmt.Errorf("load %s: %w", x.Name, err)
		}
		c.Log("loaded %d rows into %s in %v", w.Of, x.Name, time.Since(start).Round(time.Millisecond))
	}
	return entries, nil
}

// floorProbes is how many appends the floor is measured with, each time.
const floorProbes = 25

// rounds runs one workload. The order of the contenders turns from round to
// round.
func (c *Comparison) rounds(dir string, w Workload, entries []*entry) (Outcome, error) {
	o := Outcome{Workload: w, Samples: map[string][]peers.Sample{}, Floor: map[string][]peers.Sample{}}
	for _, e := range entries {
		if err := c.calibrate(w, e); err != nil {
			return o, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	probe := func() (peers.Sample, error) {
		if w.Reads() || w.Level != peers.Synced {
			return peers.Sample{}, nil
		}
		return peers.Floor(dir, floorProbes)
	}
	for round := range c.Rounds {
		before, err := probe()
		if err != nil {
			return o, err
		}
		for i := range entries {
			e := entries[(i+round)%len(entries)]
			s, err := e.run(w, e.ops, uint64(round))
			if err != nil {
				return o, fmt.Errorf("%s: %w", e.name, err)
			}
			after, err := probe()
			if err != nil {
				return o, err
			}
			o.Samples[e.name] = append(o.Samples[e.name], s)
			o.Floor[e.name] = append(o.Floor[e.name], peers.Sample{Ops: before.Ops + after.Ops, Elapsed: before.Elapsed + after.Elapsed})
			before = after
		}
	}
	return o, nil
}

// calibrate finds how many operations fill a slice; that also warms the store.
func (c *Comparison) calibrate(w Workload, e *entry) error {
	least := max(1, w.Writers)
	for e.ops = least; ; {
		s, err := e.run(w, e.ops, 99)
		if err != nil {
			return err
		}
		if s.Elapsed >= c.Slice/3 || e.ops*w.Rows >= maxSliceRows {
			per := s.Elapsed / time.Duration(s.Ops)
			e.ops = min(max(least, int(c.Slice/max(per, 1))), max(least, maxSliceRows/w.Rows))
			return nil
		}
		e.ops *= 3
	}
}

// maxSliceRows bounds the rows of a slice, for memory and disk.
const maxSliceRows = 200_000

func (e *entry) run(w Workload, ops int, seed uint64) (peers.Sample, error) {
	s, err := w.Run(e.s, e.next, ops, seed)
	if !w.Reads() {
		e.next += int64(s.Rows)
	}
	return s, err
}
