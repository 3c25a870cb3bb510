package store

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// scratchName is the subfolder of temporary files. What a crash leaves there the
// next Open removes.
const scratchName = "tmp"

// A Scratch is a temporary file for one user at a time: it is written from its
// beginning to its end, and read anywhere. It goes through Options.WrapFS as the
// data does, since it holds the same content. Its failures are its user's alone:
// they do not fence the store.
type Scratch struct {
	s    *Store
	name string
	file vfs.File
	size int64
}

// NewScratch makes a temporary file; it must be closed. ErrReadOnly if the store
// was opened so.
func (s *Store) NewScratch() (*Scratch, error) {
	if s.opts.ReadOnly {
		return nil, fmt.Errorf("make temporary file: %w", ErrReadOnly)
	}
	if !s.uses.enter() {
		return nil, ErrClosed
	}
	dir := s.fs.PathJoin(s.dir, scratchName)
	t := &Scratch{s: s, name: s.fs.PathJoin(dir, strconv.FormatUint(s.scratches.Add(1), 10))}
	err := s.files.MkdirAll(dir, 0o700)
	if err == nil {
		t.file, err = s.files.Create(t.name, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		s.uses.leave()
		return nil, mapError("make temporary file", err)
	}
	return t, nil
}

// Size is how many bytes have been written.
func (t *Scratch) Size() int64 { return t.size }

// Write appends.
func (t *Scratch) Write(b []byte) (int, error) {
	n, err := t.file.Write(b)
	t.size += int64(n)
	return n, mapError("write temporary file", err)
}

// ReadAt reads what was written at an offset.
func (t *Scratch) ReadAt(b []byte, at int64) (int, error) { return t.file.ReadAt(b, at) }

// Close removes the file; it is idempotent.
func (t *Scratch) Close() error {
	if t.file == nil {
		return nil
	}
	err := errors.Join(t.file.Close(), t.s.files.Remove(t.name))
	t.file = nil
	t.s.uses.leave()
	return mapError("remove temporary file", err)
}

// clearScratch removes what an earlier process left.
func (s *Store) clearScratch() error {
	if s.opts.ReadOnly {
		return nil
	}
	err := s.files.RemoveAll(s.fs.PathJoin(s.dir, scratchName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return mapError("clear temporary files", err)
}
