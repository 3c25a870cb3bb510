package peers

import (
	"os"
	"runtime/pprof"
)

// Profile runs fn and writes a profile of its processor time to a file; without a
// name it only runs fn.
func Profile(file string, fn func() error) error {
	if file == "" {
		return fn()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return fn()
}
