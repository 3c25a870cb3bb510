//go:build !linux && !windows

package pocket

import "os"

func syncData(f *os.File) error { return f.Sync() }

func syncDirHandle(d *os.File) error { return d.Sync() }
