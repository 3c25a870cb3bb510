//go:build !unix

package peers

import "time"

// CPUTime is the clock's time where the processor's is not known.
func CPUTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
