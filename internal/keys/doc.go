// Package keys encodes values as bytes whose lexicographic order is the order
// of the values:
//
//	nil < false < true < numbers < times < strings < bytes < arrays < objects
//
// Numbers compare by their exact value whatever their Go type is, so the int64
// 9007199254740993 sorts after the float64 9007199254740992, and 1 and 1.0 are
// one key. Strings and bytes compare bytewise, arrays element by element (the
// shorter first when one is a prefix of the other), objects member by member
// in stored order, name before value.
//
// Every encoded element marks its own end: no encoding is a prefix of another.
// The concatenation of elements therefore sorts like the tuple of them, whatever
// follows, and the keys that begin with the elements p, and no others, are the
// range from p to [PrefixEnd](p). Each value has exactly one encoding; the decoders
// refuse any other.
//
// # Format
//
// An element is a tag byte and a payload. No tag is 0x00 or 0xFF; the tags that
// are not listed are reserved, and decoders refuse them.
//
//	0x01  end of an array or object; lower than every tag
//	0x02  nil
//	0x03  false
//	0x04  true
//	0x08  NaN, below all other numbers
//	0x09  -Inf
//	0x0A  negative, binary exponent 64 or more
//	0x0B  negative, exponents 63 (0x0B) down to 0 (0x4A)
//	0x4B  negative, exponent below 0
//	0x4C  zero
//	0x4D  positive, exponent below 0
//	0x4E  positive, exponents 0 (0x4E) to 63 (0x8D)
//	0x8E  positive, exponent 64 or more
//	0x8F  +Inf
//	0xA0  time: seconds since 1970 as big-endian int64 with the sign bit
//	      flipped, then nanoseconds as big-endian uint32
//	0xA8  string: bytes with 0x00 written 0x01 0x01 and 0x01 written 0x01 0x02,
//	      then 0x00
//	0xB0  bytes: like string
//	0xB8  array: elements, then 0x01
//	0xC0  object: string and element by turns, then 0x01
//
// A number other than zero, NaN and the infinities is ±2^e × 1.m in binary. Its
// payload is the exponent, unless the tag implies it, and the mantissa m. An
// exponent of 64 or more is written as e-64, an exponent below 0 as the
// complement of -1-e: in two big-endian bytes if it is below 0xFFFF, else as
// 0xFFFF and the rest in eight bytes. The mantissa follows in groups of seven
// bits, most significant first, each in the upper bits of a byte whose lowest
// bit tells that another follows. Groups of zeros at the end are cut, but one
// group is always written; only from exponent 1024 on, where every value is an
// integer, all e bits are written, so that a short key can never decode to a
// large number. A negative number has the payload of its absolute value,
// complemented.
//
// All functions are pure and safe for concurrent use.
package keys

const (
	tagEnd    = 0x01
	tagNil    = 0x02
	tagFalse  = 0x03
	tagTrue   = 0x04
	tagNaN    = 0x08
	tagNegInf = 0x09
	tagNegBig = 0x0A
	tagZero   = 0x4C
	tagSmall  = 0x4D // positive, exponent below 0
	tagExp0   = 0x4E // positive, exponent 0
	tagBig    = 0x8E // positive, exponent 64 or more
	tagInf    = 0x8F
	tagTime   = 0xA0
	tagString = 0xA8
	tagBytes  = 0xB0
	tagArray  = 0xB8
	tagObject = 0xC0

	// tagMirror minus the tag of a positive number is the tag of its negative.
	tagMirror = 2 * tagZero

	// The end of a string is a byte that occurs nowhere within one. Escaping only
	// 0x00, as 0x00 0xFF, would be a little shorter, but then the key of "a" is a
	// prefix of that of "a\x00b", and a scan or deletion of all that belongs to "a"
	// takes the other along.
	textEnd = 0x00
	escape  = 0x01 // before a byte of the text that is 0x00 or 0x01, plus one

	// MaxDepth is how deep arrays and objects may nest, in Append and in the
	// decoders: a scalar has depth 0, an array of scalars depth 1.
	MaxDepth = 64
)
