package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ingestLevel is the level of the engine whose compression ingested tables get:
// they may stay for long, but are not worth what the last level spends.
const ingestLevel = 5

// A SortedTable is records in ascending order, on their way to becoming a table
// of the store as a whole. Many records cost a fraction of what batches of them
// do: they are written once, to neither log nor memtable. It is for one user at a
// time, and must be closed or ingested.
//
// What is ingested stands outside the order of batches: see Store.Ingest.
type SortedTable struct {
	s    *Store
	name string
	w    *sstable.Writer
	last []byte
	size int64
	err  error // of an earlier step; the table is of no use then
}

// NewSortedTable begins a table in a temporary file. ErrReadOnly if the store was
// opened so.
func (s *Store) NewSortedTable() (*SortedTable, error) {
	if s.opts.ReadOnly {
		return nil, fmt.Errorf("make table: %w", ErrReadOnly)
	}
	if !s.uses.enter() {
		return nil, ErrClosed
	}
	dir := s.fs.PathJoin(s.dir, scratchName)
	t := &SortedTable{s: s, name: s.fs.PathJoin(dir, strconv.FormatUint(s.scratches.Add(1), 10)+".sst")}
	err := s.files.MkdirAll(dir, 0o700)
	var file vfs.File
	if err == nil {
		file, err = s.files.Create(t.name, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		s.uses.leave()
		return nil, mapError("make table", err)
	}
	o := s.engineOptions()
	o.EnsureDefaults()
	t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(file), o.MakeWriterOptions(ingestLevel, s.db.TableFormat()))
	return t, nil
}

// Set appends a record. Its key must be greater than the one before.
func (t *SortedTable) Set(key, value []byte) error {
	switch {
	case t.w == nil:
		return fmt.Errorf("fill table: %w", ErrClosed)
	case t.err != nil:
		return t.err
	case t.size > 0 && bytes.Compare(key, t.last) <= 0:
		return fmt.Errorf("fill table: key %q after %q", key, t.last)
	}
	t.last = append(t.last[:0], key...)
	t.size += int64(len(key) + len(value))
	t.err = mapError("fill table", t.w.Set(key, value))
	return t.err
}

// Size is how many bytes the records have together.
func (t *SortedTable) Size() int64 { return t.size }

// Close gives the table up; it is idempotent, and does nothing after Ingest.
func (t *SortedTable) Close() error {
	if t.s == nil {
		return nil
	}
	if t.w != nil {
		_ = t.w.Close() // the file is of no use
	}
	err := t.s.files.Remove(t.name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // it was ingested
	}
	t.s.uses.leave()
	t.s, t.w = nil, nil
	return mapError("remove table", err)
}

// Ingest makes the records of tables visible, all at once, and returns when they
// are durable. They are above all that the store has of the same keys; the tables
// must not overlap each other. The tables are closed in any case; with an error,
// other than a *FencedError, nothing of them was taken.
//
// Batches that were applied before are made durable first: no crash keeps the
// records and loses what says whose they are. Salvage, which must do
// without the manifest, takes them for older than all batches. So they are for
// records that can be made anew, of which a later batch tells that they count.
func (s *Store) Ingest(tables ...*SortedTable) (err error) {
	defer func() {
		for _, t := range tables {
			err = errors.Join(err, t.Close())
		}
	}()
	if !s.uses.enter() {
		return ErrClosed
	}
	defer s.uses.leave()
	var paths []string
	size := int64(0)
	for _, t := range tables {
		if t.s != s || t.w == nil {
			return fmt.Errorf("ingest table: %w", ErrClosed)
		}
		if t.size == 0 {
			continue
		}
		w := t.w
		t.w = nil
		if err := errors.Join(t.err, mapError("finish table", w.Close())); err != nil {
			return err
		}
		paths = append(paths, t.name)
		size += t.size
	}
	if len(paths) == 0 {
		return nil
	}
	if err := s.admitTables(size); err != nil {
		return err
	}
	if err := s.barrier(); err != nil {
		return err
	}
	return s.ingestEngine(paths)
}

// admitTables is admit for what comes beside the batches.
func (s *Store) admitTables(size int64) error {
	s.commit.Lock()
	defer s.commit.Unlock()
	s.commit.checked = false // so large a write wants a look of its own
	return s.admit(size)
}

// ingestEngine hands finished tables to the engine; see commitEngine.
func (s *Store) ingestEngine(paths []string) (err error) {
	s.changes.begun.Add(1)
	defer s.changes.ended.Add(1)
	defer func() {
		if r := recover(); r != nil {
			s.fence.raise(fmt.Errorf("ingest: %v", r))
			err = s.fence.failure()
		}
	}()
	err = s.db.Ingest(context.Background(), paths)
	if ferr := s.fence.failure(); ferr != nil {
		return ferr
	}
	if errors.Is(err, pebble.ErrReadOnly) {
		return ErrReadOnly
	}
	return mapError("ingest tables", err)
}
