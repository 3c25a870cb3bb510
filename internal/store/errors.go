package store

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Sentinels, matched with errors.Is. Errors of this package wrap one of them or
// the operating system's error.
var (
	// ErrNotFound: the key is not in the store.
	ErrNotFound = errors.New("store: not found")
	// ErrClosed: the store, or the handle used, has been closed.
	ErrClosed = errors.New("store: closed")
	// ErrReadOnly: a write to a store that was opened read-only.
	ErrReadOnly = errors.New("store: read-only")
	// ErrFull: too little free disk space to accept a write. Nothing was written;
	// the write may be tried again once there is space. Inside a FencedError it
	// means that the disk ran full under a write, and the store must be reopened.
	ErrFull = errors.New("store: disk full")
	// ErrCorrupt: a file is damaged or missing. See CorruptError.
	ErrCorrupt = errors.New("store: corrupt")
	// ErrFenced: writes have ended after a failure. See FencedError.
	ErrFenced = errors.New("store: fenced after a write failure")
	// ErrLocked: another process, or this one, has the folder open. See
	// LockedError.
	ErrLocked = errors.New("store: folder is open elsewhere")
	// ErrFormat: the folder was written by a newer version. See FormatError.
	ErrFormat = errors.New("store: unknown format")
	// ErrForeign: the folder holds files that are not a store's.
	ErrForeign = errors.New("store: folder is not a store")
	// ErrTooLarge: a batch larger than MaxBatchBytes or a key larger than
	// MaxKeyBytes.
	ErrTooLarge = errors.New("store: key or batch too large")
	// ErrEmptyKey: keys have at least one byte.
	ErrEmptyKey = errors.New("store: empty key")
)

// A LockedError names who has the folder open. PID is 0 if that is not known.
type LockedError struct {
	Dir   string
	PID   int
	Host  string
	Since time.Time
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("store %s is open in another process", e.Dir)
	}
	return fmt.Sprintf("store %s is open in process %d on %s since %s", e.Dir, e.PID, e.Host,
		e.Since.Format(time.RFC3339))
}

func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// A FormatError says that a store's format is newer than this program knows.
type FormatError struct {
	Dir           string
	Found, Newest int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("store %s has format %d, this program reads up to %d: use a newer version",
		e.Dir, e.Found, e.Newest)
}

func (e *FormatError) Is(target error) bool { return target == ErrFormat }

// A CorruptError says that a file is damaged or missing; File is empty if the
// engine did not name it.
type CorruptError struct {
	File string
	Err  error
}

func (e *CorruptError) Error() string {
	// The engine marks such errors with a text of its own, which tells nobody anything.
	cause := strings.TrimSuffix(strings.TrimSpace(strings.ReplaceAll(e.Err.Error(), "<corruption detail carrier>", "")), ":")
	if e.File == "" {
		return "store is corrupt: " + cause
	}
	return "store is corrupt: file " + e.File + ": " + cause
}

func (e *CorruptError) Unwrap() error        { return e.Err }
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// A FencedError is what every write returns after the first failure that left
// the state on disk uncertain; Err is that failure. A write that returned it may
// or may not be found after the store is reopened.
type FencedError struct{ Err error }

func (e *FencedError) Error() string {
	return "store accepts no more writes, reopen it: " + e.Err.Error()
}

func (e *FencedError) Unwrap() error        { return e.Err }
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// fileInText finds the engine's names for its files in an error's text.
var fileInText = regexp.MustCompile(`\b(\d{6,}(?:-\d+)?\.(?:sst|log|blob)|MANIFEST-\d{6,}|OPTIONS-\d{6,})\b`)

// tableInText finds a table that the engine names by its number alone.
var tableInText = regexp.MustCompile(`\b(?:table|sstable|file|backing file|L\d:) (\d{6,})\b`)

// walInText finds a log that the engine names by its number alone.
var walInText = regexp.MustCompile(`(?i)\bwal (\d+)\b`)

// damagedFile returns the file that err is about, or "".
func damagedFile(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) && strings.HasPrefix(fileInText.FindString(pe.Path), pe.Path) {
		return pe.Path
	}
	// The verbose form carries the details that the engine attaches to an error
	// without putting them into its text.
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err)} {
		if m := fileInText.FindString(text); m != "" {
			return m
		}
		if m := tableInText.FindStringSubmatch(text); m != nil {
			return m[1] + ".sst"
		}
		if m := walInText.FindStringSubmatch(text); m != nil {
			return fmt.Sprintf("%06s.log", m[1])
		}
	}
	return ""
}

// mapError turns an error of the engine or the operating system into one of this
// package's. step says what was being done. The order matters: what already is
// of this package stays as it is.
func mapError(step string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pebble.ErrNotFound):
		return ErrNotFound
	case errors.Is(err, pebble.ErrClosed):
		return ErrClosed
	case errors.Is(err, pebble.ErrReadOnly):
		return ErrReadOnly
	case isOurs(err):
		return err
	case pebble.IsCorruptionError(err):
		return &CorruptError{File: damagedFile(err), Err: fmt.Errorf("%s: %w", step, err)}
	case errors.Is(err, fs.ErrNotExist) && damagedFile(err) != "":
		return &CorruptError{File: damagedFile(err), Err: fmt.Errorf("%s: file is missing: %w", step, err)}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: %w: %w", step, ErrFull, err)
	}
	return fmt.Errorf("%s: %w", step, err)
}

func isOurs(err error) bool {
	for _, s := range []error{ErrNotFound, ErrClosed, ErrReadOnly, ErrFull, ErrCorrupt, ErrFenced, ErrTooLarge} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}
