//go:build !linux || !cgo

package store

// Without cgo the cache is on Go's heap.
const trims = false

func trimMemory() {}
