//go:build unix && !aix && !solaris

package pocket

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the lock of an open file for as long as it stays open.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}
