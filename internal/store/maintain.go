package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// lastKey is greater than the keys anybody uses: where the engine wants an end.
var lastKey = bytes.Repeat([]byte{0xff}, 256)

// span turns optional bounds into the engine's.
func span(lower, upper []byte) (start, end []byte) {
	if lower == nil {
		lower = []byte{}
	}
	if upper == nil {
		upper = lastKey
	}
	return lower, upper
}

// Compact rewrites the tables that overlap lower to upper (nil: all), down to the
// last level, so that the space of what was deleted or overwritten comes back. It
// costs reading and writing all of that range; reads and writes go on. With
// ctx's end it returns at once, a step under way is finished behind it.
func (s *Store) Compact(ctx context.Context, lower, upper []byte) error {
	if !s.uses.enter() {
		return ErrClosed
	}
	defer s.uses.leave()
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	start, end := span(lower, upper)
	if bytes.Compare(start, end) >= 0 {
		return nil
	}
	if err := s.fence.failure(); err != nil {
		return err
	}
	return s.compactEngine(ctx, start, end)
}

// compactEngine runs the engine's compaction and leaves it, by ending its
// context, where the engine itself would wait without end.
func (s *Store) compactEngine(outer context.Context, start, end []byte) error {
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	defer s.guard.watchCompactions(cancel)()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-s.fence.up:
			cancel(s.fence.failure())
		case <-done:
		}
	}()
	err := s.db.Compact(ctx, start, end, true)
	if ferr := s.fence.failure(); ferr != nil {
		return ferr
	}
	if err != nil && outer.Err() == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return mapError("compact", err)
}

// Size estimates the bytes on disk of the keys from lower to upper (nil: no
// bound). What is not in a table yet, at most a few memtables, is not counted.
func (s *Store) Size(lower, upper []byte) (uint64, error) {
	if !s.uses.enter() {
		return 0, ErrClosed
	}
	defer s.uses.leave()
	start, end := span(lower, upper)
	if bytes.Compare(start, end) >= 0 {
		return 0, nil
	}
	n, err := s.db.EstimateDiskUsage(start, end)
	return n, mapError("estimate size", err)
}

// Metrics are gauges of now and counters since Open.
type Metrics struct {
	DiskBytes     uint64 // all files under data/
	TableBytes    uint64 // live tables
	LogBytes      uint64 // logs, recycled ones included
	Tables        int64  // live tables
	MemTableBytes uint64 // allocated by memtables
	CacheBytes    int64  // in the block cache
	CacheHits     int64
	CacheMisses   int64
	Flushes       int64
	Compactions   int64
	// CompactionDebt is about how many bytes compactions still have to rewrite.
	CompactionDebt uint64
	// ReadAmplification is how many places a read may have to look in.
	ReadAmplification int
	LogSyncs          uint64 // fsyncs of logs carried out
	LogSyncsElided    uint64 // fsyncs that no level of durability asked for
	Applied, Synced   uint64 // batch numbers, see Store.Applied and Store.Synced
	Fenced            bool
}

// Metrics returns a copy of the store's metrics; after Close the zero value.
func (s *Store) Metrics() Metrics {
	if !s.uses.enter() {
		return Metrics{}
	}
	defer s.uses.leave()
	m := s.db.Metrics()
	t := m.Total()
	return Metrics{
		DiskBytes:         m.DiskSpaceUsage(),
		TableBytes:        uint64(t.TablesSize),
		LogBytes:          m.WAL.PhysicalSize + m.WAL.ObsoletePhysicalSize,
		Tables:            t.TablesCount,
		MemTableBytes:     m.MemTable.Size,
		CacheBytes:        m.BlockCache.Size,
		CacheHits:         m.BlockCache.Hits,
		CacheMisses:       m.BlockCache.Misses,
		Flushes:           m.Flush.Count,
		Compactions:       m.Compact.Count,
		CompactionDebt:    m.Compact.EstimatedDebt,
		ReadAmplification: m.ReadAmp(),
		LogSyncs:          s.guard.realSyncs.Load(),
		LogSyncsElided:    s.guard.elidedSyncs.Load(),
		Applied:           s.applied.Load(),
		Synced:            s.synced.Load(),
		Fenced:            s.fence.failure() != nil,
	}
}

// Checkpoint makes dir, on the same file system, a store of its own with all
// batches applied before the call. Tables are hard-linked where possible, so it
// costs little space and about a millisecond a MiB. dir must not exist or be
// empty. Whatever interrupts it leaves a folder that does not open.
func (s *Store) Checkpoint(dir string) error {
	if !s.uses.enter() {
		return ErrClosed
	}
	defer s.uses.leave()
	if s.opts.InMemory {
		return errors.New("checkpoint: a store in memory has no files")
	}
	if s.opts.FS == nil {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		dir = abs
	}
	if dir == s.dir || strings.HasPrefix(dir, s.fs.PathJoin(s.dir, "")+"/") {
		return fmt.Errorf("checkpoint: %s is inside the store", dir)
	}
	if names, err := s.fs.List(dir); err == nil && len(names) > 0 {
		return fmt.Errorf("checkpoint: folder %s is not empty: %w", dir, fs.ErrExist)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return mapError("checkpoint", err)
	}
	if err := s.barrier(); err != nil {
		return err
	}
	if err := makeFolder(s.fs, dir); err != nil {
		return mapError("checkpoint", err)
	}
	err := s.checkpointEngine(s.fs.PathJoin(dir, dataName))
	// Behind the fence the engine believes in a manifest that is not on disk.
	if ferr := s.fence.failure(); ferr != nil {
		return ferr
	}
	if err != nil {
		return mapError("checkpoint", err)
	}
	meta := metaFile{Product: product, Format: s.meta.Format, Created: time.Now().UTC()}
	return writeMeta(s.fs, dir, meta)
}

// checkpointEngine: the engine panics if a sync of the new folder fails; its locks
// are free then.
func (s *Store) checkpointEngine(dir string) (err error) {
	defer recoverInto(&err)
	return s.db.Checkpoint(dir)
}

// tables returns the live tables, one element for each file.
func (s *Store) tables() ([]liveTable, error) {
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, mapError("list tables", err)
	}
	return liveTables(levels), nil
}

// A liveTable is a table that the store reads from. A table file may be live in
// several disjoint parts.
type liveTable struct {
	file     string
	smallest []byte // inclusive
	largest  []byte // inclusive
	part     bool   // only this range of the file is live
	guess    bool   // the manifest does not know it
	level    int
}

func liveTables(levels [][]pebble.SSTableInfo) []liveTable {
	var ts []liveTable
	for level, infos := range levels {
		for i := range infos {
			t := &infos[i]
			ts = append(ts, liveTable{
				file:     fmt.Sprintf("%06d.sst", uint64(t.BackingSSTNum)),
				smallest: t.Smallest.UserKey,
				largest:  t.Largest.UserKey,
				part:     t.Virtual,
				level:    level,
			})
		}
	}
	return ts
}
