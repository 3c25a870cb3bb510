//go:build linux && cgo

package store

/*
#include <malloc.h>

static void osier_trim(void) {
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
*/
import "C"

const trims = true

// trimMemory returns what the C library keeps of freed memory.
func trimMemory() { C.osier_trim() }
