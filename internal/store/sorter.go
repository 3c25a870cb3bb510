package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// sorterBytes is what a sorter holds in memory before it writes a sorted file.
const sorterBytes = 48 << 20

// A sorter sorts entries in bounded memory: what does not fit goes into sorted
// files, each of which is a run.
type sorter struct {
	fs    vfs.FS
	dir   string
	limit int

	entries []entry
	bytes   int
	files   []string
}

func (s *sorter) init(f vfs.FS, dir string) { s.fs, s.dir, s.limit = f, dir, sorterBytes }

// add copies an entry.
func (s *sorter) add(e entry) error {
	e.key, e.value = bytes.Clone(e.key), bytes.Clone(e.value)
	s.entries = append(s.entries, e)
	s.bytes += len(e.key) + len(e.value) + 96
	if s.bytes < s.limit {
		return nil
	}
	return s.spill()
}

func (s *sorter) sortEntries() {
	slices.SortStableFunc(s.entries, func(a, b entry) int { return compareEntries(&a, &b) })
}

// spill writes what is in memory to a file.
func (s *sorter) spill() (err error) {
	s.sortEntries()
	if err := s.fs.MkdirAll(s.dir, 0o700); err != nil {
		return mapError("sort logs", err)
	}
	name := s.fs.PathJoin(s.dir, fmt.Sprintf("%06d.run", len(s.files)))
	f, err := s.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return mapError("sort logs", err)
	}
	s.files = append(s.files, name)
	w := bufio.NewWriterSize(f, 256<<10)
	var head []byte
	for i := range s.entries {
		e := &s.entries[i]
		head = binary.AppendUvarint(head[:0], uint64(len(e.key)))
		head = binary.AppendUvarint(head, uint64(len(e.value)))
		head = binary.AppendUvarint(head, e.seq)
		head = append(head, byte(e.kind))
		_, _ = w.Write(head) // the writer keeps its first error
		_, _ = w.Write(e.key)
		_, _ = w.Write(e.value)
	}
	s.entries, s.bytes = nil, 0
	return mapError("sort logs", errors.Join(w.Flush(), f.Close()))
}

// finish returns the sorted runs.
func (s *sorter) finish() ([]run, error) {
	s.sortEntries()
	var runs []run
	for _, name := range s.files {
		f, err := s.fs.Open(name, vfs.SequentialReadsOption)
		if err != nil {
			return runs, mapError("sort logs", err)
		}
		runs = append(runs, &fileRun{f: f, r: bufio.NewReaderSize(f, 256<<10)})
	}
	return append(runs, &memoryRun{entries: s.entries}), nil
}

func (s *sorter) close() error {
	if len(s.files) == 0 {
		return nil
	}
	return mapError("sort logs", s.fs.RemoveAll(s.dir))
}

type memoryRun struct{ entries []entry }

func (r *memoryRun) close() error { return nil }

func (r *memoryRun) next() (entry, bool, error) {
	if len(r.entries) == 0 {
		return entry{}, false, nil
	}
	e := r.entries[0]
	r.entries = r.entries[1:]
	return e, true, nil
}

type fileRun struct {
	f   vfs.File
	r   *bufio.Reader
	buf []byte
}

func (r *fileRun) close() error { return r.f.Close() }

func (r *fileRun) next() (e entry, ok bool, err error) {
	k, err := binary.ReadUvarint(r.r)
	if err == io.EOF {
		return e, false, nil
	}
	v, err2 := binary.ReadUvarint(r.r)
	seq, err3 := binary.ReadUvarint(r.r)
	kind, err4 := r.r.ReadByte()
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return e, false, mapError("sort logs", err)
	}
	if uint64(cap(r.buf)) < k+v {
		r.buf = make([]byte, k+v)
	}
	r.buf = r.buf[:k+v]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return e, false, mapError("sort logs", err)
	}
	return entry{key: r.buf[:k:k], value: r.buf[k:], seq: seq, kind: pebble.InternalKeyKind(kind)}, true, nil
}
