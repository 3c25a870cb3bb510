//go:build !linux

package pocket

// newTail returns a tail that writes with one call each: only Linux promises
// that space allocated ahead cannot run out under a mapping.
func newTail(f file, at int64, _ bool) tail { return &plainTail{f: f, at: at} }
