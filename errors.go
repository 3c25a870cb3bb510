package osier

import (
	"errors"
	"strings"
)

// Kind says what went wrong, for programs. The list only grows: a number,
// once given, keeps its meaning, also on the wire.
type Kind uint8

const (
	// KindOther is a failure that has no kind of its own.
	KindOther Kind = 0
	// KindInvalid: the request itself is wrong; repeating it cannot help.
	KindInvalid Kind = 1
	// KindNotFound: the database, collection, document or revision is not there.
	KindNotFound Kind = 2
	// KindDeleted: the document was there and has been deleted. It matches ErrNotFound too.
	KindDeleted Kind = 3
	// KindConflict: an expectation about the present state did not hold.
	KindConflict Kind = 4
	// KindExists: what was to be created is there already.
	KindExists Kind = 5
	// KindDenied: the principal lacks the right.
	KindDenied Kind = 6
	// KindClosed: the store has been closed.
	KindClosed Kind = 7
	// KindReadOnly: the store was opened for reading only.
	KindReadOnly Kind = 8
	// KindCorrupt: stored bytes are damaged.
	KindCorrupt Kind = 9
	// KindFull: the disk has no room left for writes; reads go on.
	KindFull Kind = 10
	// KindLocked: another process owns the store.
	KindLocked Kind = 11
	// KindFormat: the store was written by a newer Osier.
	KindFormat Kind = 12
	// KindTooLarge: a limit on size, depth or number was passed.
	KindTooLarge Kind = 13
	// KindUnavailable: the store cannot serve this now; a retry may succeed.
	KindUnavailable Kind = 14
	// KindCanceled: the context ended first.
	KindCanceled Kind = 15
	// KindUnsupported: this backend cannot do it.
	KindUnsupported Kind = 16
	// KindIO: the operating system refused a read or a write; the store takes no more writes.
	KindIO Kind = 17
	// KindGap: a position asked for is no longer kept, or a reader was too slow.
	KindGap Kind = 18
	// KindNotUnique: a unique view would get a second row of a key. It matches
	// ErrConflict too, but running a transaction again does not help.
	KindNotUnique Kind = 19
)

var kindNames = [...]string{
	KindOther: "failed", KindInvalid: "invalid", KindNotFound: "not found", KindDeleted: "deleted",
	KindConflict: "conflict", KindExists: "exists already", KindDenied: "denied", KindClosed: "closed",
	KindReadOnly: "read-only", KindCorrupt: "corrupt", KindFull: "disk full", KindLocked: "locked",
	KindFormat: "newer format", KindTooLarge: "too large", KindUnavailable: "unavailable",
	KindCanceled: "canceled", KindUnsupported: "unsupported", KindIO: "input or output failed", KindGap: "gap",
	KindNotUnique: "not unique",
}

// String returns the kind in words.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "failed"
}

// sentinel is the comparable error of a Kind.
type sentinel Kind

func (s sentinel) Error() string { return Kind(s).String() }

// The sentinels: errors.Is(err, ErrConflict) holds for every *Error of that
// Kind, however deep it is wrapped.
var (
	ErrInvalid     error = sentinel(KindInvalid)
	ErrNotFound    error = sentinel(KindNotFound)
	ErrDeleted     error = sentinel(KindDeleted)
	ErrConflict    error = sentinel(KindConflict)
	ErrExists      error = sentinel(KindExists)
	ErrDenied      error = sentinel(KindDenied)
	ErrClosed      error = sentinel(KindClosed)
	ErrReadOnly    error = sentinel(KindReadOnly)
	ErrCorrupt     error = sentinel(KindCorrupt)
	ErrFull        error = sentinel(KindFull)
	ErrLocked      error = sentinel(KindLocked)
	ErrFormat      error = sentinel(KindFormat)
	ErrTooLarge    error = sentinel(KindTooLarge)
	ErrUnavailable error = sentinel(KindUnavailable)
	ErrCanceled    error = sentinel(KindCanceled)
	ErrUnsupported error = sentinel(KindUnsupported)
	ErrIO          error = sentinel(KindIO)
	ErrGap         error = sentinel(KindGap)
	ErrNotUnique   error = sentinel(KindNotUnique)
)

// Error is the one error type of Osier: what was being done, to what, and why
// it failed. Its text names database, collection and document. Fields that do
// not apply are empty.
type Error struct {
	Kind       Kind
	Op         string // the step, such as "update" or "open store"
	DB         string
	Collection string
	ID         string // the document's id in text form
	Err        error  // the cause or the detail; may be nil
}

// Error writes "update shop:movies/42: conflict: …".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	sep := " "
	if e.DB != "" {
		b.WriteString(sep + e.DB)
		sep = "/"
	}
	if e.Collection != "" && (e.DB == "" || e.Collection != DefaultCollection) {
		if e.DB != "" {
			sep = ":"
		}
		b.WriteString(sep + e.Collection)
		sep = "/"
	}
	if e.ID != "" {
		b.WriteString(sep + e.ID)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if e.Kind != KindOther || e.Err == nil {
		b.WriteString(e.Kind.String())
		if e.Err != nil {
			b.WriteString(": ")
		}
	}
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the sentinel of the error's kind.
func (e *Error) Is(target error) bool {
	s, ok := target.(sentinel)
	if !ok {
		return false
	}
	return Kind(s) == e.Kind || e.Kind == KindDeleted && Kind(s) == KindNotFound || e.Kind == KindNotUnique && Kind(s) == KindConflict
}

// KindOf returns the Kind of the first *Error in err's chain, KindOther if
// there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindOther
}

// invalid is the short form for refused arguments.
func invalid(op, text string) *Error {
	return &Error{Kind: KindInvalid, Op: op, Err: errors.New(text)}
}
