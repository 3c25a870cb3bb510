package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/osierdb/osier/engine"
)

// figure is one of the engine's figures for Prometheus.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*engine.Stats) float64
}

// engineFigures reads all figures at one moment.
type engineFigures struct {
	eng     *engine.Engine
	figures []figure
}

func engineCollectors(eng *engine.Engine) []prometheus.Collector {
	f := &engineFigures{eng: eng}
	add := func(name, help string, kind prometheus.ValueType, of func(*engine.Stats) float64) {
		f.figures = append(f.figures, figure{prometheus.NewDesc("osier_engine_"+name, help, nil, nil), kind, of})
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	add("databases", "Databases.", gauge, func(s *engine.Stats) float64 { return float64(s.Databases) })
	add("disk_bytes", "Size of the store's folder.", gauge, func(s *engine.Stats) float64 { return float64(s.DiskBytes) })
	add("wal_bytes", "Size of the write-ahead log.", gauge, func(s *engine.Stats) float64 { return float64(s.WALBytes) })
	add("cache_bytes", "Memory held by the block cache.", gauge, func(s *engine.Stats) float64 { return float64(s.CacheBytes) })
	add("cache_hits_total", "Blocks found in the cache.", counter, func(s *engine.Stats) float64 { return float64(s.CacheHits) })
	add("cache_misses_total", "Blocks read from the disk.", counter, func(s *engine.Stats) float64 { return float64(s.CacheMisses) })
	add("compactions_total", "Compactions.", counter, func(s *engine.Stats) float64 { return float64(s.Compactions) })
	add("commands_total", "Commands taken into order.", counter, func(s *engine.Stats) float64 { return float64(s.Commands) })
	add("commits_total", "Batches that the commands became.", counter, func(s *engine.Stats) float64 { return float64(s.Commits) })
	add("syncs_total", "Fsyncs of the write-ahead log.", counter, func(s *engine.Stats) float64 { return float64(s.Syncs) })
	return []prometheus.Collector{f}
}

// Describe is prometheus.Collector's.
func (f *engineFigures) Describe(ch chan<- *prometheus.Desc) {
	for _, x := range f.figures {
		ch <- x.desc
	}
}

// Collect is prometheus.Collector's.
func (f *engineFigures) Collect(ch chan<- prometheus.Metric) {
	s, err := f.eng.Stats(context.Background())
	for _, x := range f.figures {
		if err != nil {
			ch <- prometheus.NewInvalidMetric(x.desc, err)
			continue
		}
		ch <- prometheus.MustNewConstMetric(x.desc, x.kind, x.of(&s))
	}
}
