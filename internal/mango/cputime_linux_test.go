package mango

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// cpuTime reports the CPU time of the benchmark's thread for each operation,
// which on a busy machine tells more than the time that passed.
func cpuTime(b *testing.B) (done func()) {
	const thread = 1 // RUSAGE_THREAD
	now := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(thread, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	runtime.LockOSThread()
	start := now()
	return func() {
		spent := now() - start
		runtime.UnlockOSThread()
		b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "cpu-ns/op")
	}
}
