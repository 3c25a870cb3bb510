package pocket

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"
)

// A Backup tells what was written.
type Backup struct {
	Version Version // last transaction that is in it
	Records int
	Bytes   int64
	CRC32C  uint32 // of all bytes
}

// summing counts and sums what passes through.
type summing struct {
	w   io.Writer
	n   int64
	crc uint32
}

func (s *summing) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.n += int64(n)
	s.crc = crc32.Update(s.crc, castagnoli(), b[:n])
	return n, err
}

// BackupTo writes a snapshot to w as a pocket file without dead bytes, while
// reads and writes go on. The sum in the result serves to verify what arrives.
func (s *Store) BackupTo(ctx context.Context, w io.Writer) (Backup, error) {
	b, err := s.backupTo(ctx, w, s.Snapshot())
	if err != nil {
		return b, fmt.Errorf("pocket: backup: %w", err)
	}
	return b, nil
}

func (s *Store) backupTo(ctx context.Context, w io.Writer, sn *Snapshot) (Backup, error) {
	sum := &summing{w: w}
	now := time.Now()
	im := image{w: sum, s: s, st: sn.st, compress: s.opts.Compress, creation: now, rewrite: now}
	err := im.run(ctx)
	return Backup{Version: sn.Version(), Records: im.count, Bytes: sum.n, CRC32C: sum.crc}, err
}

// Backup writes a snapshot to a file at path, reads it again and compares it
// with the snapshot, and only then lets it take the place of whatever was
// there. It needs about the memory of a second store for that.
func (s *Store) Backup(ctx context.Context, path string) (Backup, error) {
	b, err := s.backup(ctx, path)
	if err != nil {
		return b, fmt.Errorf("pocket: backup to %s: %w", path, err)
	}
	return b, nil
}

func (s *Store) backup(ctx context.Context, path string) (b Backup, err error) {
	if same, err := samePath(path, s.path); err != nil || same {
		return b, errors.Join(err, invalid("it is the store's own file"))
	}
	part := path + ".partial"
	f, err := s.fs.open(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return b, err
	}
	defer func() {
		if f != nil {
			err = errors.Join(err, f.Close(), s.fs.remove(part))
		}
	}()
	sn := s.Snapshot()
	out := &fileWriter{f: f}
	if b, err = s.backupTo(ctx, out, sn); err != nil {
		return b, err
	}
	if err := out.flush(); err != nil {
		return b, err
	}
	if err := f.Sync(); err != nil {
		return b, err
	}
	if err := s.verifyBackup(ctx, f, sn); err != nil {
		return b, err
	}
	err = f.Close()
	f = nil
	if err == nil {
		err = s.fs.rename(part, path)
	}
	if err != nil {
		return b, errors.Join(err, s.fs.remove(part))
	}
	return b, s.fs.syncDir(dirOf(path))
}

func samePath(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	y, err := os.Stat(b)
	if err != nil {
		return false, nil // a store that is not on the system's disk
	}
	return os.SameFile(x, y), nil
}

// verifyBackup reads a backup as Open would and compares every record.
func (s *Store) verifyBackup(ctx context.Context, f file, sn *Snapshot) error {
	o := s.opts
	o.ReadOnly = true
	got := newStore("", o, s.types)
	got.mode = modeVerify
	if _, err := got.load(f); err != nil {
		return err
	}
	if !got.report.Clean() {
		return fmt.Errorf("%w: what was read back has broken lines", ErrDamaged)
	}
	have := got.Snapshot()
	n := 0
	for key, r := range Scan[Record](have, All()) {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		w, ok := sn.recordOf(key)
		if !ok || w.version() != r.r.version() || w.value() != r.JSON() || w.typeID() != r.r.typeID() ||
			w.expiry() != r.r.expiry() {
			return fmt.Errorf("%w: key %q was read back differently", ErrDamaged, key)
		}
	}
	// Records may have expired since they were written.
	for key, r := range Scan[Record](sn, All()) {
		if _, ok := have.recordOf(key); !ok {
			return fmt.Errorf("%w: key %q, version %d, is missing", ErrDamaged, key, r.Version())
		}
	}
	return nil
}
