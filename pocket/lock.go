package pocket

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// A lockFile keeps other writers out. It lies beside the data file, since that
// one is replaced by rewrites, and holds the owner's pid for their error.
type lockFile struct{ f *os.File }

func lockPath(path string) string { return path + ".lock" }

// acquireLock returns a LockedError when another store holds the lock.
func acquireLock(path string) (*lockFile, error) {
	name := lockPath(path)
	// A closing owner removes the file it has locked. Whoever opened it just
	// before locks a file that no one else can see, and has to try again.
	for range 100 {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("pocket: open lock: %w", err)
		}
		ok, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("pocket: lock %s: %w", name, err)
		}
		if !ok {
			pid := readPID(f)
			f.Close()
			return nil, &LockedError{Path: path, PID: pid}
		}
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("pocket: lock %s: %w", name, err)
		}
		if now, err := os.Stat(name); err != nil || !os.SameFile(mine, now) {
			f.Close()
			continue
		}
		if err := writePID(f); err != nil {
			f.Close()
			return nil, fmt.Errorf("pocket: write lock: %w", err)
		}
		return &lockFile{f}, nil
	}
	return nil, &LockedError{Path: path}
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func readPID(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// release gives the lock up. Systems that cannot remove an open file leave an
// unlocked one behind, which hinders nobody.
func (l *lockFile) release() error {
	os.Remove(l.f.Name()) // see above: a file that stays is harmless
	return l.f.Close()
}
