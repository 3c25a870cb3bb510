package pot

import "fmt"

// Mode is the version of the wire format, the fourth byte of the header.
type Mode uint8

// The modes. V4 is the default: every reader of Pot 3 understands it, and an
// untyped reader can tell where each value ends.
const (
	// V4 writes a unit variant of an enum as a symbol alone.
	V4 Mode = iota
	// Full writes a unit variant as the special Named and a symbol, which a
	// reader without types cannot tell from the start of a variant with a value.
	Full
	// Shapes is V4 with the extension described in the package documentation:
	// the names of a record's fields are listed once and then referred to by a
	// number. Readers of Pot 3 refuse it by its version.
	Shapes
)

const (
	versionFull   = 0x00
	versionV4     = 0x01
	versionShapes = 0x80
	headerSize    = 4
)

// String returns the name of the mode.
func (m Mode) String() string {
	switch m {
	case V4:
		return "V4"
	case Full:
		return "Full"
	case Shapes:
		return "Shapes"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

func (m Mode) version() byte {
	switch m {
	case Full:
		return versionFull
	case Shapes:
		return versionShapes
	}
	return versionV4
}

// The limits that hold unless the options say otherwise.
const (
	// DefaultMaxDepth is how many containers and variants may nest.
	DefaultMaxDepth = 256
	// DefaultMaxAlloc is the budget of one decoding in bytes, to which sixteen
	// times the length of the input is added.
	DefaultMaxAlloc = 64 << 20

	allocPerInputByte = 16
)

// EncodeOptions says how to encode. The zero value, and a nil pointer where one
// is accepted, is the default. Options may be used by many goroutines at once.
type EncodeOptions struct {
	// Mode is the wire format to write.
	Mode Mode
	// NoHeader leaves out the four bytes of the header. The reader must be told
	// the mode by other means.
	NoHeader bool
	// Table holds symbols and shapes that outlive the payload. What is missing
	// in it is added; a payload that was written with a table can be read only
	// with that table or a later version of it.
	Table *Table
	// Link also defines every symbol and shape that is new to the table within
	// the payload, so that a receiver's table follows in step, as the
	// persistent symbol maps of Pot 3 do. Payloads must then be read in the
	// order in which they were written, and the table must be used by this one
	// sender only. Without Link a payload holds no definitions, and the table
	// itself must reach the reader before the payload.
	Link bool
	// Canonical writes the one canonical form of the value (see Canonical). It
	// excludes Table, NoHeader and modes other than V4.
	Canonical bool
	// Deterministic writes maps in the order of their encoded keys.
	Deterministic bool
	// MaxDepth bounds the nesting; 0 means DefaultMaxDepth.
	MaxDepth int
	// Unions tells which types the values of an interface type may have.
	Unions *Unions
}

// DecodeOptions says how to decode. The zero value, and a nil pointer where one
// is accepted, is the default. Options may be used by many goroutines at once.
type DecodeOptions struct {
	// NoHeader expects payloads without the four bytes of the header, written
	// in mode Mode. With a header, Mode is ignored.
	NoHeader bool
	Mode     Mode
	// Table holds the symbols and shapes that the payload refers to.
	Table *Table
	// Link adds the definitions within payloads to the table; see EncodeOptions.
	// Without it a payload that holds definitions although a table is given is
	// refused.
	Link bool
	// Canonical refuses payloads that are not in canonical form. It costs one
	// more pass over the payload.
	Canonical bool
	// Strings says who owns the memory of decoded strings.
	Strings StringMode
	// DisallowUnknownFields refuses struct members that the Go type lacks.
	DisallowUnknownFields bool
	// AllowDuplicates lets the last of several equal keys win.
	AllowDuplicates bool
	// MaxDepth bounds the nesting; 0 means DefaultMaxDepth.
	MaxDepth int
	// MaxAlloc bounds the bytes that one decoding may allocate for strings,
	// elements, map entries and symbols; 0 means DefaultMaxAlloc plus sixteen
	// times the length of the input, a negative value means no bound.
	MaxAlloc int64
	// Unions tells which types the values of an interface type may have.
	Unions *Unions
}

// StringMode says who owns the memory of decoded strings.
type StringMode uint8

// The ways to decode strings.
const (
	// CopyStrings copies each string out of the input. Strings of up to 128
	// bytes share chunks of at most 1 KiB, also with those of inputs decoded
	// before and after, so that one that is kept can keep as much alive.
	CopyStrings StringMode = iota
	// BorrowStrings makes strings and byte slices point into the input, which
	// must not change while any of them is in use. Nothing is copied. A value
	// with such strings must not be decoded into in another mode, since that
	// reuses what it holds.
	BorrowStrings
	// InternStrings copies like CopyStrings but returns the earlier copy when
	// one decoding meets a short string again soon.
	InternStrings
)

func (o *EncodeOptions) check() error {
	switch {
	case o.Mode > Shapes:
		return encodeError(ErrOptions, "mode %d does not exist", o.Mode)
	case o.Canonical && (o.Table != nil || o.NoHeader || o.Mode != V4):
		return encodeError(ErrOptions, "canonical form has no table, has a header and is of mode V4")
	case o.Link && o.Table == nil:
		return encodeError(ErrOptions, "Link needs a Table")
	}
	return nil
}

func (o *DecodeOptions) check() error {
	switch {
	case o.Mode > Shapes:
		return encodeError(ErrOptions, "mode %d does not exist", o.Mode)
	case o.Link && o.Table == nil:
		return encodeError(ErrOptions, "Link needs a Table")
	case o.Canonical && (o.Table != nil || o.NoHeader):
		return encodeError(ErrOptions, "canonical form has no table and has a header")
	}
	return nil
}

// budget returns how much decoding an input of n bytes may allocate.
func (o *DecodeOptions) budget(n int) int64 {
	switch {
	case o.MaxAlloc == 0:
		return DefaultMaxAlloc + allocPerInputByte*int64(n)
	case o.MaxAlloc < 0:
		return 1 << 62
	}
	return o.MaxAlloc
}

func depthLimit(n int) int {
	if n <= 0 {
		return DefaultMaxDepth
	}
	return n
}
