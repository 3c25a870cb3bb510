package pocket

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncData flushes the data and what is needed to find it again, but not the
// times, which would cost another write of the journal.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

func syncDirHandle(d *os.File) error { return d.Sync() }
