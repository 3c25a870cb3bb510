package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// Verify reads everything the store consists of, osier.json, the manifest, all
// live tables and all logs, past every cache, and checks checksums and that it
// decodes. Each damage is reported, in calls one after the other; the result is
// an error only if Verify itself could not go on. The store may be used
// meanwhile. It costs reading the whole store once.
//
// What is only in memory is not verified, and of the log in use only the part
// that is synced.
func (s *Store) Verify(ctx context.Context, report func(Damage)) error {
	if !s.uses.enter() {
		return ErrClosed
	}
	defer s.uses.leave()
	if s.opts.InMemory {
		return nil
	}
	if _, err := readMeta(s.fs, s.dir); err != nil {
		report(Damage{File: metaName, Offset: -1, Err: err})
	}
	minLog, err := s.verifyManifest(report)
	if err != nil {
		return err
	}
	if err := s.verifyTables(ctx, report); err != nil {
		return err
	}
	return s.verifyLogs(ctx, minLog, report)
}

// exists reports whether a file of the engine is there. One that background work
// has removed or recycled while it was read is not damaged.
func (s *Store) exists(name string) bool {
	_, err := s.files.Stat(s.fs.PathJoin(s.dataDir(), name))
	return !errors.Is(err, fs.ErrNotExist)
}

func (s *Store) verifyTables(ctx context.Context, report func(Damage)) error {
	live, err := s.tables()
	if err != nil {
		return err
	}
	done := make(map[string]bool)
	for i := range live {
		t := &live[i]
		if done[t.file] {
			continue
		}
		done[t.file] = true
		if err := ctx.Err(); err != nil {
			return err
		}
		var found []Damage
		verifyTable(s, t, func(d Damage) { found = append(found, d) })
		if len(found) > 0 && !s.exists(t.file) && !s.isLive(t.file) {
			continue
		}
		for _, d := range found {
			report(d)
		}
	}
	return nil
}

func (s *Store) isLive(file string) bool {
	live, err := s.tables()
	return err != nil || slices.ContainsFunc(live, func(t liveTable) bool { return t.file == file })
}

// verifyTable checks one table file, all of it.
func verifyTable(s *Store, live *liveTable, report func(Damage)) {
	whole := KeyRange{After: live.smallest, Before: live.largest}
	t, err := openTable(s.files, s.dataDir(), live.file)
	if err != nil {
		report(Damage{File: live.file, Offset: -1, Keys: whole, Err: err})
		return
	}
	defer t.close()
	t.checkOthers(report)
	if err := t.loadBlocks(); err != nil {
		return // its index: reported
	}
	// Checksums say where; decoding says what else, and between which keys.
	run := t.run(nil, report)
	defer run.close()
	var last []byte
	for e, ok := run.next(); ok; e, ok = run.next() {
		if bytes.Compare(e.key, last) < 0 {
			report(Damage{File: live.file, Offset: t.src.last, Keys: KeyRange{After: bytes.Clone(last),
				Before: bytes.Clone(e.key)}, Err: errors.New("keys are out of order")})
		}
		last = append(last[:0], e.key...)
	}
	if _, err := t.tombstones(); err != nil {
		report(Damage{File: live.file, Offset: -1, Err: fmt.Errorf("range deletions: %w", err)})
	}
}

// verifyLogs checks the logs from number least on. Older ones are waiting to be
// removed, and the end of one may be torn from a crash that is dealt with.
func (s *Store) verifyLogs(ctx context.Context, least uint64, report func(Damage)) error {
	current := s.guard.current.Load()
	names, err := s.files.List(s.dataDir())
	if err != nil {
		return mapError("list data folder", err)
	}
	logs := logNames(names)
	for i, name := range logs {
		if err := ctx.Err(); err != nil {
			return err
		}
		num, _ := fileNumber(name)
		if num < least {
			continue
		}
		var found []Damage
		l := recordLog{fs: s.files, path: s.fs.PathJoin(s.dataDir(), name), name: name, num: num, limit: -1,
			newest: i == len(logs)-1, report: func(d Damage) { found = append(found, d) }}
		if current != nil && current.name == name {
			l.limit, l.newest = max(current.synced.Load(), 0), true
		} else if current != nil && i > slices.Index(logs, current.name) {
			continue // begun after this began
		}
		if err := l.each(l.checkBatch); err != nil {
			return err
		}
		if len(found) > 0 && !s.exists(name) {
			continue
		}
		for _, d := range found {
			report(d)
		}
	}
	return nil
}

// checkBatch reports a record that is no batch.
func (l *recordLog) checkBatch(rec []byte, off int64) error {
	if err := batchEntries(rec, func(entry) error { return nil }); err != nil {
		l.report(Damage{File: l.name, Offset: off, Err: err})
	}
	return nil
}

// manifestAttempts: a manifest that is written to while it is read may look torn.
const manifestAttempts = 3

// verifyManifest also returns the oldest log that the manifest calls live.
func (s *Store) verifyManifest(report func(Damage)) (minLog uint64, err error) {
	var found []Damage
	for range manifestAttempts {
		name, err := atomicfs.ReadMarker(s.files, s.dataDir(), "manifest")
		if err != nil {
			return 0, mapError("find the manifest", err)
		}
		found = nil
		num, _ := fileNumber(name)
		l := recordLog{fs: s.files, path: s.fs.PathJoin(s.dataDir(), name), name: name, num: num, limit: -1,
			report: func(d Damage) { found = append(found, d) }}
		minLog = 0
		err = l.each(func(rec []byte, _ int64) error {
			if n, ok := editMinLog(rec); ok {
				minLog = max(minLog, n)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		if len(found) == 0 {
			return minLog, nil
		}
	}
	for _, d := range found {
		report(d)
	}
	return minLog, nil
}

// checkManifest refuses a store whose manifest lost a part. The engine takes any
// damage to it for the torn end that a crash leaves, goes on with the state
// before it, perhaps that of an empty store, and removes the tables which that
// state does not name. A crash leaves the logs of that state in place, as they go
// only when a later state is durable: if the oldest is not there, or records
// follow the damage, it was no crash.
func (s *Store) checkManifest() error {
	name, err := atomicfs.ReadMarker(s.files, s.dataDir(), "manifest")
	if err != nil || name == "" {
		return nil // the engine says what is wrong
	}
	if err := s.judgeClosed(name); err != nil {
		return err
	}
	var first *Damage
	minLog, follow := uint64(0), false
	num, _ := fileNumber(name)
	l := recordLog{fs: s.files, path: s.fs.PathJoin(s.dataDir(), name), name: name, num: num, limit: -1, report: func(d Damage) {
		if first == nil {
			first = &d
		}
	}}
	err = l.each(func(rec []byte, _ int64) error {
		if follow = first != nil; follow {
			return nil
		}
		if n, ok := editMinLog(rec); ok {
			minLog = max(minLog, n)
		}
		return nil
	})
	if err != nil {
		return mapError("read the manifest", err)
	}
	if minLog == 0 {
		minLog = num + 1 // the first log of a new store
	}
	if first == nil || !follow && s.exists(fmt.Sprintf("%06d.log", minLog)) {
		return nil
	}
	return &CorruptError{File: name, Err: fmt.Errorf("open store %s: at offset %d: %w; salvage it with repair", s.dir, first.Offset, first.Err)}
}
