package pocket

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
)

// crashFS is a file system in memory that knows which bytes, sizes and names
// have reached its disk. crash returns what a loss of power would leave.
type crashFS struct {
	mu      sync.Mutex
	names   map[string]*crashInode // as the process sees them
	durable map[string]*crashInode // as flushed folders have them
	// fail makes the operation with this number, counted from 1, an error.
	ops, fail int
	// locksOpen makes it refuse to rename an open file, or to replace one.
	locksOpen bool
}

var errInUse = errors.New("file is in use")

var errInjected = errors.New("injected failure")

type crashInode struct {
	data   []byte
	synced []byte // content at the last flush
	writes []crashWrite
	open   int // handles
}

// crashWrite is a change since the last flush.
type crashWrite struct {
	at   int64
	data []byte
	size int64 // new size, for a truncation; -1 for a write
}

func newCrashFS() *crashFS {
	return &crashFS{names: map[string]*crashInode{}, durable: map[string]*crashInode{}}
}

// step counts an operation that can fail. Needs mu.
func (c *crashFS) step() error {
	c.ops++
	if c.ops == c.fail {
		return errInjected
	}
	return nil
}

func (c *crashFS) open(path string, flag int, _ os.FileMode) (file, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step(); err != nil {
		return nil, err
	}
	in := c.names[path]
	if in == nil {
		if flag&os.O_CREATE == 0 {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		in = &crashInode{}
		c.names[path] = in
	}
	if flag&os.O_TRUNC != 0 {
		in.truncate(0)
	}
	in.open++
	return &crashFile{c: c, in: in}, nil
}

type crashInfo struct{ fs.FileInfo }

func (crashInfo) Mode() fs.FileMode { return 0o644 }

func (c *crashFS) stat(path string) (os.FileInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[path] == nil {
		return nil, fs.ErrNotExist
	}
	return crashInfo{}, nil
}

func (c *crashFS) sameFile(f file, path string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.names[path]
	if in == nil {
		return false, fs.ErrNotExist
	}
	return f.(*crashFile).in == in, nil
}

func (c *crashFS) rename(from, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step(); err != nil {
		return err
	}
	for _, name := range []string{from, to} {
		if in := c.names[name]; in != nil && in.open > 0 && c.locksOpen {
			return errInUse
		}
	}
	c.names[to] = c.names[from]
	delete(c.names, from)
	return nil
}

func (c *crashFS) replacesOpen() bool { return !c.locksOpen }

func (c *crashFS) remove(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step(); err != nil {
		return err
	}
	if c.names[path] == nil {
		return fs.ErrNotExist
	}
	delete(c.names, path)
	return nil
}

func (c *crashFS) syncDir(string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step(); err != nil {
		return err
	}
	clear(c.durable)
	for n, in := range c.names {
		c.durable[n] = in
	}
	return nil
}

// crash returns a file system with what was flushed, and of what was not a
// part that r chooses: any of the names since the last flush of the folder,
// any of the writes, one of them torn at any byte.
func (c *crashFS) crash(r *rand.Rand) *crashFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := newCrashFS()
	out.locksOpen = c.locksOpen
	names := c.durable
	if r.IntN(2) == 0 {
		names = c.names
	}
	for n, in := range names {
		data := in.lose(r)
		out.names[n] = &crashInode{data: data, synced: append([]byte(nil), data...)}
		out.durable[n] = out.names[n]
	}
	return out
}

// kill returns a file system as the end of the process leaves it.
func (c *crashFS) kill() *crashFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := newCrashFS()
	out.locksOpen = c.locksOpen
	for n, in := range c.names {
		cp := &crashInode{data: append([]byte(nil), in.data...)}
		cp.synced = append([]byte(nil), in.data...)
		out.names[n], out.durable[n] = cp, cp
	}
	return out
}

func (in *crashInode) lose(r *rand.Rand) []byte {
	cp := &crashInode{data: append([]byte(nil), in.synced...)}
	mode := r.IntN(3) // all in order up to a tear; any subset; nothing
	for i, w := range in.writes {
		switch {
		case mode == 2, mode == 1 && r.IntN(2) == 0:
			continue
		case mode == 0 && r.IntN(len(in.writes)+1) == i:
			cp.apply(w, r.IntN(len(w.data)+1))
			return cp.data
		}
		cp.apply(w, len(w.data))
	}
	return cp.data
}

func (in *crashInode) apply(w crashWrite, n int) {
	if w.size >= 0 {
		in.truncate(w.size)
		return
	}
	in.write(w.data[:n], w.at)
}

func (in *crashInode) write(b []byte, at int64) {
	if end := at + int64(len(b)); end > int64(len(in.data)) {
		in.data = append(in.data, make([]byte, end-int64(len(in.data)))...)
	}
	copy(in.data[at:], b)
	in.writes = append(in.writes, crashWrite{at, append([]byte(nil), b...), -1})
}

func (in *crashInode) truncate(size int64) {
	if size <= int64(len(in.data)) {
		in.data = in.data[:size:size]
	} else {
		in.data = append(in.data, make([]byte, size-int64(len(in.data)))...)
	}
	in.writes = append(in.writes, crashWrite{0, nil, size})
}

type crashFile struct {
	c      *crashFS
	in     *crashInode
	closed bool
}

func (f *crashFile) ReadAt(b []byte, at int64) (int, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if at >= int64(len(f.in.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.in.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *crashFile) WriteAt(b []byte, at int64) (int, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.closed {
		return 0, os.ErrClosed
	}
	if err := f.c.step(); err != nil {
		f.in.write(b[:len(b)/2], at) // a failing write leaves something behind
		return len(b) / 2, err
	}
	f.in.write(b, at)
	return len(b), nil
}

// allocate makes the file longer, or half of that when it fails.
func (f *crashFile) allocate(at, size int64) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	err := f.c.step()
	if err != nil {
		size /= 2
	}
	if at+size > int64(len(f.in.data)) {
		f.in.truncate(at + size)
	}
	return err
}

func (f *crashFile) Truncate(size int64) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if err := f.c.step(); err != nil {
		return err
	}
	f.in.truncate(size)
	return nil
}

func (f *crashFile) Sync() error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if err := f.c.step(); err != nil {
		return err
	}
	f.in.synced = append([]byte(nil), f.in.data...)
	f.in.writes = nil
	return nil
}

func (f *crashFile) Size() (int64, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return int64(len(f.in.data)), nil
}

func (f *crashFile) Close() error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	f.closed = true
	f.in.open--
	return nil
}
