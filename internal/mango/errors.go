package mango

import (
	"errors"
	"fmt"
)

// An Error says what is wrong with a selector, a sort, a list of fields or a
// request, in CouchDB's words: Name and Reason are what its answer holds as
// "error" and "reason", with status 400.
type Error struct {
	Name   string // such as "invalid_operator"; see the Err constants
	Reason string // for people
	Op     string // the operator at fault, such as "$in"; empty if none is
	Place  string // where in the JSON text, such as "$and[1].age.$in"
	Offset int    // of the faulty value in the JSON text, in bytes
}

// The names of errors.
const (
	ErrBadArg              = "bad_arg"
	ErrBadRequest          = "bad_request"
	ErrInvalidBookmark     = "invalid_bookmark"
	ErrInvalidBoolean      = "invalid_boolean"
	ErrInvalidField        = "invalid_field"
	ErrInvalidFieldName    = "invalid_field_name"
	ErrInvalidFields       = "invalid_fields"
	ErrInvalidIndexName    = "invalid_index_name"
	ErrInvalidKey          = "invalid_key"
	ErrInvalidNonNegInt    = "invalid_non_neg_integer"
	ErrInvalidOperator     = "invalid_operator"
	ErrInvalidPosInt       = "invalid_pos_integer"
	ErrInvalidSelector     = "invalid_selector"
	ErrInvalidSelectorJSON = "invalid_selector_json"
	ErrInvalidSortField    = "invalid_sort_field"
	ErrInvalidSortJSON     = "invalid_sort_json"
	ErrMissingKey          = "missing_required_key"
	ErrMixedSort           = "unsupported_mixed_sort"
	ErrNotSupported        = "not_supported"
	ErrTooLarge            = "selector_too_large" // of this package alone: a limit of Options
)

// Error implements error.
func (e *Error) Error() string {
	if e.Place == "" {
		return fmt.Sprintf("mango: %s: %s", e.Name, e.Reason)
	}
	return fmt.Sprintf("mango: %s at %s: %s", e.Name, e.Place, e.Reason)
}

// ErrDocument is matched by every error about a document.
var ErrDocument = errors.New("malformed document")

// A DocumentError tells where a document stops being the JSON object it should be.
type DocumentError struct {
	Offset int // in the document's bytes, at or after the fault
	Reason string
}

// Error implements error.
func (e *DocumentError) Error() string {
	return fmt.Sprintf("mango: read document: offset %d: %s", e.Offset, e.Reason)
}

// Unwrap returns [ErrDocument].
func (e *DocumentError) Unwrap() error { return ErrDocument }
