//go:build linux

package peers

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Floor is what the disk alone takes: appending 1 KiB to a growing file and
// fdatasync, n times.
func Floor(dir string, n int) (Sample, error) {
	f, err := os.Create(filepath.Join(dir, "floor"))
	if err != nil {
		return Sample{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	buf := []byte(letters[:1024])
	start := time.Now()
	for range n {
		if _, err := f.Write(buf); err != nil {
			return Sample{}, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return Sample{}, err
		}
	}
	return Sample{Ops: n, Rows: n, Elapsed: time.Since(start)}, nil
}
