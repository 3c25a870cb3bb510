package engine

import (
	"slices"

	"github.com/osierdb/osier/bench/peers"
)

// Median of the values; 0 of none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// Figure is a contender's median in the workload's unit; 0 if it was not there.
func (o *Outcome) Figure(name string) float64 { return o.median(name, o.Workload.Value) }

// Allocs is a contender's median of allocations an operation.
func (o *Outcome) Allocs(name string) float64 {
	return o.median(name, func(s peers.Sample) float64 { return float64(s.Allocs) / float64(max(s.Ops, 1)) })
}

// AllocBytes is a contender's median of bytes allocated an operation.
func (o *Outcome) AllocBytes(name string) float64 {
	return o.median(name, func(s peers.Sample) float64 { return float64(s.Bytes) / float64(max(s.Ops, 1)) })
}

// CPU is a contender's median of processor microseconds a row.
func (o *Outcome) CPU(name string) float64 {
	return o.median(name, func(s peers.Sample) float64 { return s.CPUPerRow() / 1e3 })
}

func (o *Outcome) median(name string, of func(peers.Sample) float64) float64 {
	var v []float64
	for _, s := range o.Samples[name] {
		v = append(v, of(s))
	}
	return Median(v)
}

// Ratio is the median over the rounds of a's figure divided by b's in the same
// round; 0 if either is missing.
func (o *Outcome) Ratio(a, b string) float64 {
	x, y := o.Samples[a], o.Samples[b]
	var v []float64
	for i := range min(len(x), len(y)) {
		if d := o.Workload.Value(y[i]); d > 0 {
			v = append(v, o.Workload.Value(x[i])/d)
		}
	}
	return Median(v)
}

// FloorRatio is the median over the rounds of a's time an operation divided by
// the disk's own just before and after.
func (o *Outcome) FloorRatio(a string) float64 {
	var v []float64
	for i, f := range o.Floor[a] {
		if f.Ops > 0 {
			v = append(v, o.Samples[a][i].PerOp()/f.PerOp())
		}
	}
	return Median(v)
}

// FloorMicros is the median of the disk's own time.
func (o *Outcome) FloorMicros() float64 {
	var v []float64
	for _, fs := range o.Floor {
		for _, f := range fs {
			if f.Ops > 0 {
				v = append(v, f.PerOp()/1e3)
			}
		}
	}
	return Median(v)
}
