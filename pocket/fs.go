package pocket

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// fileSystem is what a store does to a disk. The crash tests put one in its
// place that forgets what was not flushed.
type fileSystem interface {
	open(path string, flag int, mode os.FileMode) (file, error)
	stat(path string) (os.FileInfo, error)
	// sameFile compares what an open file and a path lead to.
	sameFile(f file, path string) (bool, error)
	rename(from, to string) error
	// replacesOpen reports whether rename works with files that are open.
	replacesOpen() bool
	remove(path string) error
	syncDir(dir string) error
}

type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error // of the data and the size
	Size() (int64, error)
}

// osFileSystem is the operating system's.
type osFileSystem struct{}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return syncData(f.File) }

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (osFileSystem) open(path string, flag int, mode os.FileMode) (file, error) {
	f, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFileSystem) stat(path string) (os.FileInfo, error) { return os.Stat(path) }

func (osFileSystem) sameFile(f file, path string) (bool, error) {
	a, err := f.(osFile).Stat()
	if err != nil {
		return false, err
	}
	b, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return os.SameFile(a, b), nil
}

func (osFileSystem) replacesOpen() bool { return runtime.GOOS != "windows" }

func (osFileSystem) rename(from, to string) error { return os.Rename(from, to) }
func (osFileSystem) remove(path string) error     { return os.Remove(path) }

func (osFileSystem) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = syncDirHandle(d)
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

func dirOf(path string) string { return filepath.Dir(path) }
