package pocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Verify reads the file at path, checks every line of it, and tells what it
// found; Report.Clean says whether that was nothing. It changes nothing and
// may run beside a writer, whose unfinished transaction then looks like a cut.
func Verify(path string) (Report, error) {
	s, err := scratch(path, modeVerify)
	if err != nil {
		return Report{}, err
	}
	return s.report, nil
}

// scratch loads a file into a store that is not open.
func scratch(path string, mode loadMode) (*Store, error) {
	o, err := (&Options{ReadOnly: true}).withDefaults()
	if err != nil {
		return nil, err
	}
	types, err := newRegistry(nil)
	if err != nil {
		return nil, err
	}
	f, err := o.fs.open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("pocket: open: %w", err)
	}
	defer f.Close()
	s := newStore(path, o, types)
	s.mode = mode
	if _, err := s.load(f); err != nil {
		return nil, err
	}
	return s, nil
}

// A Repair tells what became of a damaged file.
type Repair struct {
	Report         // what was found, and so what was lost; Records are saved
	Damaged string // where the file lies as it was; "" when there was no damage
}

// RepairFile makes a whole file of a damaged one: it takes every record line
// that is whole, also from transactions that are not, except from one that was
// never finished at the very end. The damaged file is kept beside it. It takes
// the writer's lock. A file without damage is left alone.
func RepairFile(ctx context.Context, path string) (Repair, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if _, err := os.Stat(path); err != nil {
		return Repair{}, fmt.Errorf("pocket: repair: %w", err)
	}
	lock, err := acquireLock(path)
	if err != nil {
		return Repair{}, err
	}
	out, err := repair(ctx, path)
	if rerr := lock.release(); err == nil {
		err = rerr
	}
	if err != nil {
		return out, fmt.Errorf("pocket: repair: %w", err)
	}
	return out, nil
}

func repair(ctx context.Context, path string) (Repair, error) {
	s, err := scratch(path, modeRepair)
	if err != nil {
		return Repair{}, err
	}
	out := Repair{Report: s.report}
	if s.report.Clean() {
		return out, nil
	}
	creation := s.creation
	if creation.IsZero() {
		creation = time.Now()
	}
	part := rewritePath(path)
	if err := writeRepaired(ctx, s, part, creation); err != nil {
		return out, errors.Join(err, ignoreMissing(os.Remove(part)))
	}
	if out.Damaged, err = keepDamaged(path); err != nil {
		return out, errors.Join(err, os.Remove(part))
	}
	if err := os.Rename(part, path); err != nil {
		return out, err
	}
	return out, s.fs.syncDir(dirOf(path))
}

func writeRepaired(ctx context.Context, s *Store, part string, creation time.Time) error {
	mode := fileMode
	if fi, err := os.Stat(s.path); err == nil {
		mode = fi.Mode().Perm()
	}
	f, err := s.fs.open(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	w := &fileWriter{f: f}
	im := image{w: w, s: s, st: s.cur.Load(), creation: creation, rewrite: time.Now()}
	err = im.run(ctx)
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// keepDamaged gives the damaged file a second name, or copies it where links
// are not possible, so that there is a file at path at every moment.
func keepDamaged(path string) (string, error) {
	for i := range 1000 {
		name := fmt.Sprintf("%s.damaged-%d", path, i)
		err := os.Link(path, name)
		if err == nil {
			return name, nil
		}
		if errors.Is(err, os.ErrExist) {
			continue
		}
		return name, copyFile(path, name)
	}
	return "", errors.New("a thousand damaged files are kept already")
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err == nil {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
