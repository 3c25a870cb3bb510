//go:build unix

package peers

import (
	"syscall"
	"time"
)

// CPUTime is what the process has used of the processors so far.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
