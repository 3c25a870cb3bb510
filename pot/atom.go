package pot

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// The kinds of atoms, the top three bits of an atom's first byte.
const (
	kindSpecial byte = iota
	kindInt
	kindUint
	kindFloat
	kindSeq
	kindMap
	kindSymbol
	kindBytes
)

// The arguments of specials. Those from absent on exist in mode Shapes only.
const (
	specNone = iota
	specUnit
	specFalse
	specTrue
	specNamed
	specDynMap
	specDynEnd
	specAbsent
	specDefine
	specShape // the record of shape n is specShape+n
)

const (
	moreFlag = 0x10 // the argument goes on in the next byte
	argMask  = 0x0f

	seqTag    = kindSeq << 5
	mapTag    = kindMap << 5
	symbolTag = kindSymbol << 5
	bytesTag  = kindBytes << 5
	intTag    = kindInt << 5
	uintTag   = kindUint << 5
	floatTag  = kindFloat << 5
)

var kindNames = [8]string{"special", "int", "uint", "float", "sequence", "map", "symbol", "bytes"}

// appendHeader appends the header of an atom.
func appendHeader(b []byte, kind byte, arg uint64) []byte {
	if arg <= argMask {
		return append(b, kind<<5|byte(arg))
	}
	return appendLongHeader(b, kind, arg)
}

func appendLongHeader(b []byte, kind byte, arg uint64) []byte {
	b = append(b, kind<<5|moreFlag|byte(arg&argMask))
	for arg >>= 4; arg >= 0x80; arg >>= 7 {
		b = append(b, byte(arg)|0x80)
	}
	return append(b, byte(arg))
}

// headerLen returns the length of the shortest header with the argument.
func headerLen(arg uint64) int {
	n := 1
	for arg >>= 4; arg > 0; arg >>= 7 {
		n++
	}
	return n
}

// parseHeader reads the atom header at pos and returns where its payload
// begins. The code is 0, ErrTruncated or ErrSyntax.
func parseHeader(data []byte, pos int) (kind byte, arg uint64, next int, code Code) {
	if uint(pos) >= uint(len(data)) {
		return 0, 0, pos, ErrTruncated
	}
	c := data[pos]
	pos++
	kind, arg = c>>5, uint64(c&argMask)
	if c&moreFlag == 0 {
		return kind, arg, pos, 0
	}
	for shift := uint(4); ; shift += 7 {
		if pos >= len(data) {
			return kind, arg, pos, ErrTruncated
		}
		c = data[pos]
		pos++
		if shift == 60 && c > argMask {
			return kind, arg, pos, ErrSyntax // more than 64 bits
		}
		arg |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return kind, arg, pos, 0
		}
	}
}

// numberLen rounds a count of bits up to a width that the format has, in bytes.
var numberLen = func() (t [65]uint8) {
	for i := range t {
		switch n := (i + 7) / 8; {
		case n == 0:
			t[i] = 1
		case n <= 4:
			t[i] = uint8(n)
		case n <= 6:
			t[i] = 6
		default:
			t[i] = 8
		}
	}
	return t
}()

// wordLen maps the first byte of an integer of up to eight bytes to its width;
// all other bytes map to 0.
var wordLen = [256]uint8{
	0x20: 1, 0x21: 2, 0x22: 3, 0x23: 4, 0x25: 6, 0x27: 8,
	0x40: 1, 0x41: 2, 0x42: 3, 0x43: 4, 0x45: 6, 0x47: 8,
}

// appendUint appends an unsigned integer in the fewest bytes.
func appendUint(b []byte, v uint64) []byte {
	if v < 1<<8 {
		return append(b, uintTag, byte(v))
	}
	return appendWord(b, uintTag, v, int(numberLen[bits.Len64(v)]))
}

// appendInt appends a signed integer in the fewest bytes.
func appendInt(b []byte, v int64) []byte {
	magnitude := uint64(v ^ v>>63)
	if magnitude < 1<<7 {
		return append(b, intTag, byte(v))
	}
	n := 8
	if l := bits.Len64(magnitude) + 1; l <= 64 {
		n = int(numberLen[l])
	}
	return appendWord(b, intTag, uint64(v), n)
}

// appendWord appends a tag and the low n bytes of v. It writes all eight and
// takes the rest back, which is cheaper than a loop.
func appendWord(b []byte, tag byte, v uint64, n int) []byte {
	i := len(b)
	b = append(b, tag|byte(n-1), byte(v), byte(v>>8), byte(v>>16), byte(v>>24),
		byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
	return b[:i+1+n]
}

// appendWide appends a 128-bit integer, as two's complement when signed, in
// the fewest bytes.
func appendWide(b []byte, w wide) []byte {
	if w.signed {
		if v := int64(w.lo); uint64(v>>63) == w.hi {
			return appendInt(b, v)
		}
		b = append(b, intTag|15)
	} else {
		if w.hi == 0 {
			return appendUint(b, w.lo)
		}
		b = append(b, uintTag|15)
	}
	b = binary.LittleEndian.AppendUint64(b, w.lo)
	return binary.LittleEndian.AppendUint64(b, w.hi)
}

// appendFloat64 appends a float in the fewest bytes that lose nothing. A NaN
// keeps its width and its bits.
func appendFloat64(b []byte, v float64) []byte {
	if f := float32(v); float64(f) == v {
		return appendFloat32(b, f)
	}
	return binary.LittleEndian.AppendUint64(append(b, floatTag|7), math.Float64bits(v))
}

// appendFloat32 is like appendFloat64 for a value of four bytes.
func appendFloat32(b []byte, v float32) []byte {
	if h, ok := toHalf(v); ok {
		return append(b, floatTag|1, byte(h), byte(h>>8))
	}
	return binary.LittleEndian.AppendUint32(append(b, floatTag|3), math.Float32bits(v))
}

// toHalf converts to an IEEE 754 half if that loses nothing. NaN does not.
func toHalf(v float32) (uint16, bool) {
	u := math.Float32bits(v)
	sign, exp, man := uint16(u>>16)&0x8000, int(u>>23)&0xff, u&0x7fffff
	switch e := exp - 127; {
	case exp == 0xff:
		return sign | 0x7c00, man == 0
	case exp == 0: // zero; what is subnormal here is far too small
		return sign, man == 0
	case e > 15:
		return 0, false
	case e >= -14:
		return sign | uint16(e+15)<<10 | uint16(man>>13), man&0x1fff == 0
	case e >= -24: // subnormal as a half
		man |= 1 << 23
		shift := uint(-1 - e)
		return sign | uint16(man>>shift), man&(1<<shift-1) == 0
	}
	return 0, false
}

// fromHalf converts from an IEEE 754 half, keeping the bits of a NaN.
func fromHalf(h uint16) float32 {
	sign, exp, man := uint32(h&0x8000)<<16, uint32(h>>10)&0x1f, uint32(h&0x3ff)
	switch exp {
	case 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | man<<13)
	case 0:
		f := float32(man) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// wide is an integer of up to 128 bits: two's complement when signed.
type wide struct {
	hi, lo uint64
	signed bool
}

func (w wide) negative() bool { return w.signed && int64(w.hi) < 0 }

func wideInt(v int64) wide   { return wide{hi: uint64(v >> 63), lo: uint64(v), signed: true} }
func wideUint(v uint64) wide { return wide{lo: v} }

// int64 converts if the value fits.
func (w wide) int64() (int64, bool) {
	v := int64(w.lo)
	if w.signed {
		return v, uint64(v>>63) == w.hi
	}
	return v, w.hi == 0 && v >= 0
}

// uint64 converts if the value fits.
func (w wide) uint64() (uint64, bool) { return w.lo, w.hi == 0 }

// preferSigned makes the integer signed if it fits in 128 signed bits: the
// kind that integers without a Go type take.
func (w wide) preferSigned() wide {
	if int64(w.hi) >= 0 {
		w.signed = true
	}
	return w
}
