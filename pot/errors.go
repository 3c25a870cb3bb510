package pot

import (
	"errors"
	"fmt"
	"strings"
)

// Code names a cause of failure. A Code is itself an error, so that
// errors.Is(err, pot.ErrTruncated) asks for the cause of any error of this
// package. New codes may be added; none changes its meaning.
type Code uint8

// The causes of failure.
const (
	_ Code = iota
	// ErrHeader: the payload does not begin with "Pot" and a known version.
	ErrHeader
	// ErrTruncated: the payload ends inside a value.
	ErrTruncated
	// ErrTrailing: bytes follow the value.
	ErrTrailing
	// ErrSyntax: the bytes are not well-formed: an unknown special or number
	// width, an argument of more than 64 bits, an atom that cannot stand here.
	ErrSyntax
	// ErrUTF8: text or a symbol is not UTF-8.
	ErrUTF8
	// ErrSymbol: a symbol is used that was never defined.
	ErrSymbol
	// ErrShape: a shape is used that was never defined, or defined wrongly.
	ErrShape
	// ErrDepth: values are nested deeper than allowed, or are cyclic.
	ErrDepth
	// ErrBudget: decoding would allocate more than allowed.
	ErrBudget
	// ErrType: the value is of another kind than the Go type can hold.
	ErrType
	// ErrRange: the number does not fit, or would lose precision.
	ErrRange
	// ErrDuplicate: a map or struct holds a key twice.
	ErrDuplicate
	// ErrUnknownField: a struct has no such field and the options forbid that.
	ErrUnknownField
	// ErrUnknownVariant: a union has no such variant.
	ErrUnknownVariant
	// ErrNotCanonical: the payload is well-formed but not in canonical form.
	ErrNotCanonical
	// ErrUnsupported: the Go type cannot be encoded or decoded at all.
	ErrUnsupported
	// ErrNotRepresentable: the other format cannot hold the value.
	ErrNotRepresentable
	// ErrTable: a serialized table is malformed, or contradicts another table.
	ErrTable
	// ErrMarshaler: a method of a caller's type failed, or wrote or read
	// something other than exactly one value.
	ErrMarshaler
	// ErrOptions: the options contradict each other.
	ErrOptions
	// ErrNotFound: a view has no such member or element.
	ErrNotFound
)

var codeText = [...]string{
	ErrHeader:           "not a pot payload",
	ErrTruncated:        "unexpected end of input",
	ErrTrailing:         "bytes after the value",
	ErrSyntax:           "malformed input",
	ErrUTF8:             "invalid UTF-8",
	ErrSymbol:           "unknown symbol",
	ErrShape:            "bad shape",
	ErrDepth:            "nested too deeply",
	ErrBudget:           "allocation budget exceeded",
	ErrType:             "type mismatch",
	ErrRange:            "number out of range",
	ErrDuplicate:        "duplicate key",
	ErrUnknownField:     "unknown field",
	ErrUnknownVariant:   "unknown variant",
	ErrNotCanonical:     "not in canonical form",
	ErrUnsupported:      "unsupported type",
	ErrNotRepresentable: "not representable",
	ErrTable:            "bad table",
	ErrMarshaler:        "marshaler failed",
	ErrOptions:          "contradictory options",
	ErrNotFound:         "not found",
}

// Error returns the cause in words.
func (c Code) Error() string {
	if int(c) < len(codeText) && codeText[c] != "" {
		return codeText[c]
	}
	return fmt.Sprintf("error code %d", uint8(c))
}

// Error is the type of every error that this package returns, except those of
// an io.Reader or io.Writer. It matches its Code and its Err with errors.Is.
type Error struct {
	Code Code
	// Offset is the byte of the input at which the cause lies, counted from
	// the start of the payload, header included; -1 when encoding. For the
	// conversions from JSON and CBOR it is an offset in that input.
	Offset int64
	// Path leads to the Go value concerned, as in "users[3].name"; it may be empty.
	Path string
	// Detail says more, in words; it may be empty.
	Detail string
	// Err is the wrapped error of a caller's method, or nil.
	Err error
}

// Error returns the place, the path, the cause and the detail in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("pot: ")
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Code.Error())
	if e.Offset >= 0 {
		fmt.Fprintf(&b, " at offset %d", e.Offset)
	}
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the code and the wrapped error.
func (e *Error) Unwrap() []error {
	if e.Err != nil {
		return []error{e.Code, e.Err}
	}
	return []error{e.Code}
}

// encodeError makes an error that has no place in an input.
func encodeError(code Code, format string, args ...any) error {
	return &Error{Code: code, Offset: -1, Detail: fmt.Sprintf(format, args...)}
}

// errAt makes an error at an offset of the input.
func errAt(code Code, at int, format string, args ...any) error {
	return &Error{Code: code, Offset: int64(at), Detail: fmt.Sprintf(format, args...)}
}

// inPath puts a step in front of the path of err.
func inPath(step string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Path == "":
		e.Path = step
	case e.Path[0] == '[':
		e.Path = step + e.Path
	default:
		e.Path = step + "." + e.Path
	}
	return err
}

// wrapMarshaler gives an error of a caller's method a code and a place, unless
// it is one of ours already.
func wrapMarshaler(err error, at int, what string) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Code: ErrMarshaler, Offset: int64(at), Detail: what, Err: err}
}
