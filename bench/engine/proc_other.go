//go:build !linux

package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// DiskUse is what a folder's files hold.
func DiskUse(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return skipGone(err)
		}
		info, err := d.Info()
		if err != nil {
			return skipGone(err)
		}
		n += info.Size()
		return nil
	})
	return n, err
}

func skipGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

func memory() (rss, anon int64, err error) {
	return 0, 0, errors.New("resident memory is read on Linux only")
}

// Machine describes where this runs.
func Machine(string) string { return runtime.GOOS + "/" + runtime.GOARCH }

// Load is not known here.
func Load() string { return "unknown" }
