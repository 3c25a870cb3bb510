package pocket

import (
	"errors"
	"fmt"
	"reflect"
)

// Errors to test for with errors.Is.
var (
	// ErrNotFound says that no record has the key, or none that has not expired.
	ErrNotFound = errors.New("pocket: not found")
	// ErrConflict says that a condition did not hold; see [ConflictError].
	ErrConflict = errors.New("pocket: conflict")
	// ErrType says that a record holds something else than was asked for, or
	// that a value's type is not registered; see [TypeError].
	ErrType = errors.New("pocket: type mismatch")
	// ErrLocked says that another process writes to the file; see [LockedError].
	ErrLocked = errors.New("pocket: locked by another writer")
	// ErrReadOnly says that a change was asked of a store opened read-only.
	ErrReadOnly = errors.New("pocket: read-only")
	// ErrClosed says that the store is closed.
	ErrClosed = errors.New("pocket: closed")
	// ErrFailed says that an earlier write or flush failed in a way that
	// leaves the file's end unknown. Reads go on; to write, open it again.
	ErrFailed = errors.New("pocket: failed")
	// ErrInvalid says that a key, value or option cannot be stored or used.
	ErrInvalid = errors.New("pocket: invalid")
	// ErrLagged says that a watcher was too slow and has missed changes.
	ErrLagged = errors.New("pocket: watcher lagged")
	// ErrDamaged says that a file or a backup does not hold what it should.
	ErrDamaged = errors.New("pocket: damaged")
)

// A ConflictError tells which condition failed. No change of its transaction
// was made. It matches ErrConflict.
type ConflictError struct {
	Key     string
	Version Version // of what is stored, 0 when nothing is
}

func (e *ConflictError) Error() string {
	if e.Version == 0 {
		return fmt.Sprintf("pocket: conflict on key %q: nothing is stored", e.Key)
	}
	return fmt.Sprintf("pocket: conflict on key %q: version %d is stored", e.Key, e.Version)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// A TypeError tells which type was stored and which one was asked for. It
// matches ErrType.
type TypeError struct {
	Key    string
	Stored string       // the record's type name, "" for a plain value
	Wanted reflect.Type // the Go type asked for or given
}

func (e *TypeError) Error() string {
	stored := "a plain value"
	if e.Stored != "" {
		stored = fmt.Sprintf("type %q", e.Stored)
	}
	return fmt.Sprintf("pocket: key %q holds %s, not a %v", e.Key, stored, e.Wanted)
}

// Is makes errors.Is(err, ErrType) true.
func (e *TypeError) Is(target error) bool { return target == ErrType }

// A LockedError names the process that holds the file. It matches ErrLocked.
type LockedError struct {
	Path string
	PID  int // 0 when it could not be found out
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("pocket: %s is locked by process %d", e.Path, e.PID)
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// invalid wraps a reason so that it matches ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
