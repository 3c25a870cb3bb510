package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FormatVersion is the format of the stores this package writes.
const FormatVersion = 1

// A migration brings a store from one format to the next. It may run again after
// a crash, on a store that it has changed in part or whole.
type migration func(*Store) error

// migrations leads from format i+1 to i+2; none is needed yet.
var migrations = make([]migration, FormatVersion-1)

const (
	product   = "osier"
	metaName  = "osier.json"
	lockName  = "osier.lock"
	ownerName = "osier.owner"
	dataName  = "data"
	tmpSuffix = ".tmp"
)

// metaFile is the content of osier.json.
type metaFile struct {
	Product string    `json:"product"`
	Format  int       `json:"format"`
	Created time.Time `json:"created"`
	// Creating is set until the first Open has ended: such a folder holds nothing.
	Creating bool `json:"creating,omitempty"`
}

type folderState int

const (
	folderEmpty folderState = iota
	folderStore
)

type folder struct {
	state folderState
	meta  metaFile
}

// maxMetaBytes bounds what is read of a small JSON file.
const maxMetaBytes = 64 << 10

// inspect looks at what the folder holds and changes nothing.
func (s *Store) inspect() (folder, error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return folder{}, fmt.Errorf("open store %s: %w", s.dir, err)
	}
	var hasMeta, hasData bool
	var foreign []string
	for _, n := range names {
		switch {
		case n == metaName:
			hasMeta = true
		case n == dataName:
			hasData = true
		case n == lockName, n == ownerName, n == closedName, n == salvageName, n == "lost+found",
			n == metaName+tmpSuffix, n == ownerName+tmpSuffix, n == closedName+tmpSuffix:
		default:
			foreign = append(foreign, n)
		}
	}
	switch {
	case hasMeta:
		return s.inspectStore(hasData)
	case hasData:
		return folder{}, &CorruptError{File: metaName, Err: fmt.Errorf("open store %s: %s is missing next to %s/; "+
			"restore it from a backup or salvage the folder with repair", s.dir, metaName, dataName)}
	case len(foreign) > 0:
		return folder{}, fmt.Errorf("open store %s: %w: it holds %s; choose an empty folder", s.dir, ErrForeign,
			strings.Join(foreign[:min(len(foreign), 3)], ", "))
	}
	return folder{state: folderEmpty}, nil
}

// inspectStore reads osier.json and judges it.
func (s *Store) inspectStore(hasData bool) (folder, error) {
	m, err := readMeta(s.fs, s.dir)
	if err != nil {
		return folder{}, err
	}
	if newest := len(s.opts.migrations) + 1; m.Format > newest {
		return folder{}, &FormatError{Dir: s.dir, Found: m.Format, Newest: newest}
	}
	if !hasData && !m.Creating {
		return folder{}, &CorruptError{File: dataName, Err: fmt.Errorf("open store %s: %s/ is missing; restore it "+
			"from a backup, or remove %s to begin an empty store", s.dir, dataName, metaName)}
	}
	return folder{state: folderStore, meta: m}, nil
}

func readMeta(f vfs.FS, dir string) (metaFile, error) {
	var m metaFile
	b, err := readSmall(f, f.PathJoin(dir, metaName))
	if err != nil {
		return m, mapError("read "+metaName, err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, &CorruptError{File: metaName, Err: fmt.Errorf("store %s: %w", dir, err)}
	}
	if m.Product != product {
		return m, fmt.Errorf("open store %s: %w: %s names product %q", dir, ErrForeign, metaName, m.Product)
	}
	if m.Format < 1 {
		return m, &CorruptError{File: metaName, Err: fmt.Errorf("store %s: format %d", dir, m.Format)}
	}
	return m, nil
}

func writeMeta(f vfs.FS, dir string, m metaFile) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", metaName, err)
	}
	return mapError("write "+metaName, writeSmall(f, dir, metaName, append(b, '\n')))
}

func readSmall(f vfs.FS, name string) ([]byte, error) {
	r, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxMetaBytes))
	return b, errors.Join(err, r.Close())
}

// writeSmall replaces a file so that a crash leaves the old or the new content.
func writeSmall(f vfs.FS, dir, name string, b []byte) error {
	tmp := f.PathJoin(dir, name+tmpSuffix)
	w, err := f.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	if err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	if err := f.Rename(tmp, f.PathJoin(dir, name)); err != nil {
		return err
	}
	return syncDir(f, dir)
}

func syncDir(f vfs.FS, dir string) error {
	d, err := f.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeFolder makes dir and what is above it, durably.
func makeFolder(f vfs.FS, dir string) error {
	var above []string
	for p := dir; ; p = f.PathDir(p) {
		if _, err := f.Stat(p); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		parent := f.PathDir(p)
		if parent == p {
			break
		}
		above = append(above, parent)
	}
	if len(above) == 0 {
		return nil
	}
	if err := f.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range above {
		if err := syncDir(f, p); err != nil {
			return err
		}
	}
	return nil
}

// migrate climbs the ladder from the store's format to the newest. The number is
// raised only after the step's writes are durable, so a crash repeats a step and
// never skips one.
func (s *Store) migrate() error {
	for int(s.meta.Format) <= len(s.opts.migrations) {
		from := s.meta.Format
		if err := s.opts.migrations[from-1](s); err != nil {
			return fmt.Errorf("migrate store %s from format %d: %w", s.dir, from, err)
		}
		if err := s.Flush(); err != nil {
			return fmt.Errorf("migrate store %s from format %d: %w", s.dir, from, err)
		}
		s.meta.Format++
		if err := writeMeta(s.fs, s.dir, s.meta); err != nil {
			return err
		}
	}
	return nil
}

// owner is the content of osier.owner.
type owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// A folderLock is held by the one that has the folder open.
type folderLock struct {
	fs   vfs.FS
	dir  string
	lock io.Closer
}

// lockFolder takes the lock at once or says who has it. The operating system
// drops the lock of a process that ends, however it ends.
func lockFolder(f vfs.FS, dir string) (*folderLock, error) {
	c, err := f.Lock(f.PathJoin(dir, lockName))
	if err != nil {
		if !heldElsewhere(err) {
			return nil, mapError("lock store "+dir, err)
		}
		le := &LockedError{Dir: dir}
		var o owner
		if b, err := readSmall(f, f.PathJoin(dir, ownerName)); err == nil && json.Unmarshal(b, &o) == nil {
			le.PID, le.Host, le.Since = o.PID, o.Host, o.Since
		}
		return nil, le
	}
	l := &folderLock{fs: f, dir: dir, lock: c}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	b, err := json.Marshal(owner{PID: os.Getpid(), Host: host, Since: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = writeSmall(f, dir, ownerName, append(b, '\n'))
	}
	if err != nil {
		return nil, errors.Join(mapError("write "+ownerName, err), l.release())
	}
	return l, nil
}

// heldElsewhere tells a lock that is taken from one that cannot be had at all.
// Within one process the engine's file system has no type for it.
func heldElsewhere(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) && !errors.Is(err, fs.ErrNotExist) && !isPathError(err) ||
		strings.Contains(err.Error(), "held by current process")
}

// isPathError: opening the lock file failed, as opposed to locking it.
func isPathError(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe)
}

func (l *folderLock) release() error {
	// A stale owner is harmless: it is read only while the lock is held.
	err := l.fs.Remove(l.fs.PathJoin(l.dir, ownerName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.lock.Close())
}
