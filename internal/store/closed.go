package store

import (
	"encoding/json"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// closedName is a note that Close leaves: how long the manifest is. The engine
// takes a manifest that was cut between two records for a whole one, forgets the
// tables that the missing ones name, and removes them; the note tells the two
// apart. Manifests only grow and get higher numbers, so an old note does no harm:
// after a crash there is at least as much as it says.
const closedName = "osier.closed"

type closedNote struct {
	Manifest string `json:"manifest"`
	Bytes    int64  `json:"bytes"`
}

// noteClosed writes the note. That it may fail is no failure of Close: without it,
// or with an older one, opening sees less.
func (s *Store) noteClosed() {
	name, err := atomicfs.ReadMarker(s.files, s.dataDir(), "manifest")
	if err != nil || name == "" {
		return
	}
	info, err := s.files.Stat(s.fs.PathJoin(s.dataDir(), name))
	if err != nil {
		return
	}
	n := closedNote{name, info.Size()}
	if old, ok := s.readClosed(); ok && old == n {
		return
	}
	if b, err := json.Marshal(n); err == nil {
		_ = writeSmall(s.fs, s.dir, closedName, append(b, '\n')) // see above
	}
}

// readClosed returns the note; ok is false if there is none that can be read.
func (s *Store) readClosed() (n closedNote, ok bool) {
	b, err := readSmall(s.fs, s.fs.PathJoin(s.dir, closedName))
	if err != nil || json.Unmarshal(b, &n) != nil {
		return closedNote{}, false
	}
	return n, true
}

// judgeClosed refuses a store that has less of a manifest than when it was closed.
func (s *Store) judgeClosed(manifest string) error {
	n, ok := s.readClosed()
	if !ok {
		return nil
	}
	was, ok1 := fileNumber(n.Manifest)
	is, ok2 := fileNumber(manifest)
	if !ok1 || !ok2 || is > was {
		return nil
	}
	if is < was {
		return &CorruptError{File: manifest, Err: fmt.Errorf("open store %s: the store was closed with %s; salvage it with repair", s.dir, n.Manifest)}
	}
	info, err := s.files.Stat(s.fs.PathJoin(s.dataDir(), manifest))
	if err != nil || info.Size() >= n.Bytes {
		return nil // the engine says what is wrong
	}
	return &CorruptError{File: manifest, Err: fmt.Errorf("open store %s: it has %d bytes, and had %d when the store was closed; salvage it with repair",
		s.dir, info.Size(), n.Bytes)}
}
