package keys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrKey is matched by every error of the decoders: the bytes are not a key.
var ErrKey = errors.New("malformed key")

// A SyntaxError tells where bytes stop being a key, and why.
type SyntaxError struct {
	Offset int // in the bytes given to the decoder
	Reason string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("keys: decode: offset %d: %s", e.Offset, e.Reason)
}

// Unwrap returns [ErrKey].
func (e *SyntaxError) Unwrap() error { return ErrKey }

// Next decodes the element that b begins with and returns what follows it. The
// Value refers to b, which must not change while it is used. The whole element
// is checked before Next returns, in time proportional to its length and without
// allocating. Errors are of type [*SyntaxError] and match [ErrKey].
func Next(b []byte) (v Value, rest []byte, err error) {
	n, err := Skip(b)
	if err != nil {
		return Value{}, b, err
	}
	return valueOf(b[:n]), b[n:], nil
}

// Skip returns the length of the element that b begins with, which it checks
// like [Next].
func Skip(b []byte) (n int, err error) {
	n, reason := scan(b, 0)
	if reason != "" {
		return 0, &SyntaxError{Offset: n, Reason: reason}
	}
	return n, nil
}

// Decode returns the value of b, which holds exactly one element: nil, bool, an
// integer as int64 or else uint64 or else *big.Int, another number as float64,
// time.Time in UTC, string, []byte, [Tuple] or [Object]. A float64 that was
// encoded with an integral value so comes back as an integer. Encoding the
// result with [Append] gives b again.
func Decode(b []byte) (any, error) {
	v, rest, err := Next(b)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, &SyntaxError{Offset: len(b) - len(rest), Reason: "bytes after the element"}
	}
	return v.Any(), nil
}

// DecodeAll returns the values of the elements of which b is the concatenation,
// as [Decode] does. Of an empty b it returns an empty Tuple.
func DecodeAll(b []byte) (Tuple, error) {
	t := Tuple{}
	for rest := b; len(rest) > 0; {
		n, reason := scan(rest, 0)
		if reason != "" {
			return nil, &SyntaxError{Offset: len(b) - len(rest) + n, Reason: reason}
		}
		t, rest = append(t, valueOf(rest[:n]).Any()), rest[n:]
	}
	return t, nil
}

// scan returns the length of the element that b begins with and "", or the
// offset in b of what is wrong, and a reason. MaxDepth bounds its recursion.
func scan(b []byte, depth int) (n int, bad string) {
	if len(b) == 0 {
		return 0, "truncated: no tag"
	}
	switch tag := b[0]; {
	case tag >= tagNil && tag <= tagTrue:
		return 1, ""
	case tag >= tagNaN && tag <= tagInf:
		_, n, bad = scanNumber(b)
		return n, bad
	case tag == tagTime:
		return scanTime(b)
	case tag == tagString, tag == tagBytes:
		return scanText(b)
	case tag == tagArray, tag == tagObject:
		return scanContainer(b, depth+1)
	}
	return 0, "unknown tag"
}

func scanContainer(b []byte, depth int) (n int, bad string) {
	if depth > MaxDepth {
		return 0, "nested too deep"
	}
	object := b[0] == tagObject
	for n = 1; ; {
		if n == len(b) {
			return n, "truncated: no end of array or object"
		}
		if b[n] == tagEnd {
			return n + 1, ""
		}
		if object {
			if b[n] != tagString {
				return n, "member name is not a string"
			}
			size, bad := scanText(b[n:])
			if n += size; bad != "" {
				return n, bad
			}
		}
		size, bad := scan(b[n:], depth)
		if n += size; bad != "" {
			return n, bad
		}
	}
}

func scanTime(b []byte) (n int, bad string) {
	if len(b) < 13 {
		return len(b), "truncated time"
	}
	if binary.BigEndian.Uint32(b[9:]) > 999_999_999 {
		return 9, "nanoseconds out of range"
	}
	return 13, ""
}

// scanText returns the length of the string or bytes that b begins with.
func scanText(b []byte) (n int, bad string) {
	end := bytes.IndexByte(b, textEnd)
	if end < 0 {
		return len(b), "truncated: no end of string or bytes"
	}
	for n = 1; ; n += 2 {
		i := bytes.IndexByte(b[n:end], escape)
		if i < 0 {
			return end + 1, ""
		}
		n += i
		if c := b[n+1]; c != 1 && c != 2 { // at the end it is textEnd
			return n, "malformed escape"
		}
	}
}
