package revtree

import (
	"errors"
	"fmt"
)

// ErrJSON is matched by every error of [AppendTerm].
var ErrJSON = errors.New("invalid JSON document")

// A JSONError tells where a text stops being a JSON document, and why.
type JSONError struct {
	Offset int
	Reason Reason
}

// Error implements error.
func (e *JSONError) Error() string {
	return fmt.Sprintf("read JSON: offset %d: %s", e.Offset, e.Reason)
}

// Unwrap returns [ErrJSON].
func (e *JSONError) Unwrap() error { return ErrJSON }

// A Reason says why a text is refused. ReasonSyntax and ReasonNotObject are for
// what JSON itself does not allow in this place, the others for what it leaves
// to the implementation.
type Reason uint8

// The reasons.
const (
	ReasonSyntax    Reason = iota + 1 // not the grammar of JSON
	ReasonNotObject                   // valid so far, but not an object
	ReasonUTF8                        // bytes of a string are not UTF-8
	ReasonSurrogate                   // \u escape of half a surrogate pair
	ReasonRange                       // number beyond the largest float64
	ReasonDigits                      // integer of more than MaxDigits digits
	ReasonDepth                       // nested deeper than MaxDepth
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case ReasonSyntax:
		return "syntax error"
	case ReasonNotObject:
		return "not an object"
	case ReasonUTF8:
		return "invalid UTF-8"
	case ReasonSurrogate:
		return "lone surrogate"
	case ReasonRange:
		return "number out of range"
	case ReasonDigits:
		return "too many digits"
	case ReasonDepth:
		return "nested too deep"
	}
	return "unknown reason"
}
