//go:build !linux

package main

import "time"

var start = time.Now()

// threadTime returns the time of day where there is no clock of the thread.
func threadTime() time.Duration { return time.Since(start) }
