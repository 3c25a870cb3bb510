package pocket

import (
	"fmt"
)

// tail is the growing end of the file. The store's write lock guards append
// and reserve; flush may run beside append.
type tail interface {
	// append writes a and b behind what was appended before: all of it, or an
	// error and nothing that a later append would not overwrite.
	append(a, b []byte) error
	// flush returns when everything appended before the call is on the disk.
	flush() error
	// end is the offset behind the last byte.
	end() int64
	// finish removes what was allocated ahead. The file stays open.
	finish() error
}

// plainTail writes with one call each.
type plainTail struct {
	f  file
	at int64
}

func (t *plainTail) append(a, b []byte) error {
	_, err := t.f.WriteAt(a, t.at)
	if err == nil && len(b) > 0 {
		_, err = t.f.WriteAt(b, t.at+int64(len(a)))
	}
	if err != nil {
		// Without this a half-written transaction would stay visible behind a
		// shorter one that is written over its beginning.
		if terr := t.f.Truncate(t.at); terr != nil {
			return &brokenTailError{fmt.Errorf("append: %w; cut it off again: %w", err, terr)}
		}
		return fmt.Errorf("append: %w", err)
	}
	t.at += int64(len(a) + len(b))
	return nil
}

func (t *plainTail) flush() error  { return t.f.Sync() }
func (t *plainTail) end() int64    { return t.at }
func (t *plainTail) finish() error { return nil }

// brokenTailError says that the end of the file is not known any more.
type brokenTailError struct{ err error }

func (e *brokenTailError) Error() string { return e.err.Error() }
func (e *brokenTailError) Unwrap() error { return e.err }
