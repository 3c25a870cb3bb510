package engine

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/bench/peers"
	"github.com/osierdb/osier/engine"
)

// Hot is the median update of the first and of the last thousand of 10,000 updates
// of one document.
type Hot struct{ First, Last time.Duration }

// Slowdown is by how much the last thousand took longer; 1 is not at all.
func (h Hot) Slowdown() float64 { return float64(h.Last) / float64(h.First) }

// UpdateOne updates a document of 1 KiB 10,000 times, each time over the
// revision before. The writes are buffered, and medians are taken: neither waits
// for the disk nor a memtable that happens to be written out behind the scenes
// must hide, or feign, that an update's cost grows. Another document is updated
// before, so that the first thousand start warm.
func UpdateOne(dir string) (h Hot, err error) {
	if dir, err = os.MkdirTemp(dir, "osier-bench-"); err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := peers.OpenOsier(dir, peers.Buffered, osier.JSON)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := updates(s, -1, 1000); err != nil {
		return h, err
	}
	times, err := updates(s, 1, 10_000)
	if err != nil {
		return h, err
	}
	return Hot{times[0], times[len(times)-1]}, nil
}

// updates inserts a document, updates it n times and returns the median update of
// each thousand.
func updates(s *peers.Osier, id int64, n int) (medians []time.Duration, err error) {
	ctx := context.Background()
	doc, err := s.Rows.Insert(ctx, s.DB, peers.KiB.Row(id))
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range n {
		doc.Value.Timestamp++
		start := time.Now()
		if doc, err = s.Rows.Update(ctx, s.DB, doc); err != nil {
			return nil, err
		}
		if took = append(took, time.Since(start)); len(took) == 1000 {
			slices.Sort(took)
			medians = append(medians, took[500])
			took = took[:0]
		}
	}
	return medians, nil
}

// Overwritten is disk used per live byte while documents are written over again
// and again.
type Overwritten struct {
	Live  int64   // bytes of the documents, as JSON
	Mean  float64 // while overwriting, after the first round over all
	Worst float64
	Idle  float64 // when the background work has ended
}

// Overwrite loads docs documents of 1 KiB and writes over random ones, rounds
// times as many as there are, in batches of 100. The options are the engine's
// defaults.
func Overwrite(dir string, docs int64, rounds int) (o Overwritten, err error) {
	if dir, err = os.MkdirTemp(dir, "osier-bench-"); err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := peers.OpenOsierWith(dir, &engine.Options{Durability: osier.Buffered}, osier.JSON)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	const batch = 100
	for id := int64(0); id < docs; id += batch {
		if err := s.Insert(peers.KiB.Rows(id, batch)); err != nil {
			return o, err
		}
	}
	o.Live = docs * 1024
	var sum float64
	samples := 0
	batches := int(docs) * rounds / batch
	for i := range batches {
		if err := s.Overwrite(peers.KiB.Pick(uint64(i), docs, batch)); err != nil {
			return o, err
		}
		if i < batches/rounds || i%(1+batches/100) != 0 {
			continue
		}
		used, err := DiskUse(dir)
		if err != nil {
			return o, err
		}
		r := float64(used) / float64(o.Live)
		sum += r
		samples++
		o.Worst = max(o.Worst, r)
	}
	o.Mean = sum / float64(max(samples, 1))
	o.Idle, err = settled(dir, o.Live)
	return o, err
}

// settled waits until the folder has kept its size for two seconds, at most half
// a minute, and returns disk per live byte.
func settled(dir string, live int64) (float64, error) {
	last, still := int64(-1), 0
	for range 150 {
		used, err := DiskUse(dir)
		if err != nil {
			return 0, err
		}
		if still++; used != last {
			last, still = used, 0
		}
		if still == 10 {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	return float64(last) / float64(live), nil
}
