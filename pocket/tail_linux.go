package pocket

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mappedTail copies into pages of the file that are allocated and mapped
// ahead, which costs no system call. The kernel owns those pages: like written
// bytes they survive the end of the process. As JSON has no NUL bytes, a
// reader sees where the zeros that were allocated ahead begin.
//
// Only space that fallocate has granted is mapped, so that a full disk is an
// error of append and never a fault while copying.
type mappedTail struct {
	f      *os.File
	at     int64
	base   int64  // file offset of window[0], a multiple of the page size
	window []byte // ends where the allocated space ends
	step   int64  // allocated next time
}

const (
	lastStep = 8 << 20
	// writeLeast is from how many bytes on a system call costs less than
	// faulting the pages in one by one.
	writeLeast = 64 << 10
)

// newMappedTail returns a mapped tail, nil where that is not possible.
func newMappedTail(f file, at int64) tail {
	of, ok := f.(osFile)
	if !ok {
		return nil
	}
	t := &mappedTail{f: of.File, at: at, step: firstStep}
	if err := t.extend(0); err != nil {
		// The file system cannot allocate ahead; ordinary writes will tell
		// if there is anything worse.
		return nil
	}
	return t
}

func (f osFile) allocate(at, size int64) error { return fallocate(f.File, at, size) }

func (t *mappedTail) append(a, b []byte) error {
	n := int64(len(a) + len(b))
	if t.at-t.base+n > int64(len(t.window)) {
		if err := t.extend(n); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	at := t.window[t.at-t.base:]
	rest := at[copy(at, a):]
	if len(b) < writeLeast {
		copy(rest, b)
	} else if _, err := t.f.WriteAt(b, t.at+int64(len(a))); err != nil {
		clear(at[:n]) // what a shorter append would not overwrite
		return fmt.Errorf("append: %w", err)
	}
	t.at += n
	return nil
}

// extend moves the window to the end of the file, with room for n bytes.
func (t *mappedTail) extend(n int64) error {
	page := int64(os.Getpagesize())
	base := t.at &^ (page - 1)
	size := (t.at - base + n + t.step + page - 1) &^ (page - 1)
	if err := fallocate(t.f, base, size); err != nil {
		return err
	}
	w, err := unix.Mmap(int(t.f.Fd()), base, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	old := t.window
	t.base, t.window = base, w
	t.step = min(t.step*2, lastStep)
	if old != nil {
		if err := unix.Munmap(old); err != nil {
			return os.NewSyscallError("munmap", err)
		}
	}
	return nil
}

func fallocate(f *os.File, at, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, at, size)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fallocate", err)
		}
	}
}

func (t *mappedTail) flush() error { return syncData(t.f) }
func (t *mappedTail) end() int64   { return t.at }

func (t *mappedTail) finish() error {
	if t.window == nil {
		return nil
	}
	w := t.window
	t.window = nil
	if err := unix.Munmap(w); err != nil {
		return os.NewSyscallError("munmap", err)
	}
	return t.f.Truncate(t.at)
}
