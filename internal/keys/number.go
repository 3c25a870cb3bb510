package keys

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
)

const (
	longExponent = 0xFFFF // marks an exponent in eight more bytes
	fullExponent = 1024   // from here on the mantissa is written whole
	minExponent  = -1074  // of the least float64
)

// AppendInt appends the encoding of v: 1 byte for zero, 2 for values of up to
// 8 bits, at most 10.
func AppendInt(dst []byte, v int64) []byte {
	if v < 0 {
		return appendInteger(dst, -uint64(v), true)
	}
	return appendInteger(dst, uint64(v), false)
}

// AppendUint appends the encoding of v, of the same size as an int64's.
func AppendUint(dst []byte, v uint64) []byte { return appendInteger(dst, v, false) }

func appendInteger(dst []byte, abs uint64, neg bool) []byte {
	if abs == 0 {
		return append(dst, tagZero)
	}
	zeros := bits.LeadingZeros64(abs)
	tag := byte(tagExp0 + 63 - zeros)
	mant := abs << zeros << 1
	if neg {
		return appendMantissa(append(dst, tagMirror-tag), mant, 0xFF)
	}
	return appendMantissa(append(dst, tag), mant, 0)
}

// appendMantissa appends the bits of mant, most significant first, in groups of
// seven; flip is 0xFF for a negative number.
func appendMantissa(dst []byte, mant uint64, flip byte) []byte {
	for {
		b := byte(mant>>57) << 1
		mant <<= 7
		if mant == 0 {
			return append(dst, b^flip)
		}
		dst = append(dst, (b|1)^flip)
	}
}

// AppendFloat appends the encoding of v: 2 to 11 bytes. Every NaN is the same
// key, as are 0 and -0, and a float with an integral value is the same key as
// that integer. A float32 converts to float64 without loss.
func AppendFloat(dst []byte, v float64) []byte {
	u := math.Float64bits(v)
	neg, exp, frac := u>>63 != 0, int(u>>52&0x7FF), u<<12
	switch {
	case v != v:
		return append(dst, tagNaN)
	case exp == 0x7FF && neg:
		return append(dst, tagNegInf)
	case exp == 0x7FF:
		return append(dst, tagInf)
	case v == 0:
		return append(dst, tagZero)
	case exp == 0: // subnormal: the leading one is in the fraction
		zeros := bits.LeadingZeros64(frac)
		exp, frac = -1023-zeros, frac<<zeros<<1
	default:
		exp -= 1023
	}
	var flip byte
	if neg {
		flip = 0xFF
	}
	return appendMantissa(appendExponent(dst, int64(exp), neg), frac, flip)
}

// appendExponent appends the tag of a number and what of exp it does not imply.
func appendExponent(dst []byte, exp int64, neg bool) []byte {
	tag, rest, flip := byte(tagBig), uint64(exp)-64, byte(0)
	switch {
	case exp < 0:
		tag, rest, flip = tagSmall, uint64(-1-exp), 0xFF
	case exp < 64:
		tag = tagExp0 + byte(exp)
	}
	if neg {
		tag, flip = tagMirror-tag, ^flip
	}
	dst = append(dst, tag)
	if 0 <= exp && exp < 64 {
		return dst
	}
	start := len(dst)
	if rest < longExponent {
		dst = binary.BigEndian.AppendUint16(dst, uint16(rest))
	} else {
		dst = binary.BigEndian.AppendUint16(dst, longExponent)
		dst = binary.BigEndian.AppendUint64(dst, rest-longExponent)
	}
	for i := start; i < len(dst); i++ {
		dst[i] ^= flip
	}
	return dst
}

// AppendBig appends the encoding of v, which is not nil. Up to 1,024 bits it is
// as long as the significant bits need, beyond that a byte for every seven bits.
func AppendBig(dst []byte, v *big.Int) []byte {
	if v.IsInt64() {
		return AppendInt(dst, v.Int64())
	}
	exp := v.BitLen() - 1
	groups := (exp + 6) / 7
	if exp < fullExponent {
		groups = max(1, (exp-int(v.TrailingZeroBits())+6)/7)
	}
	var flip byte
	if v.Sign() < 0 {
		flip = 0xFF
	}
	dst = appendExponent(dst, int64(exp), v.Sign() < 0)
	abs := v.Bytes()
	pos := 8*len(abs) - exp // the bit after the leading one
	for i := range groups {
		b := bits7(abs, pos+7*i) << 1
		if i < groups-1 {
			b |= 1
		}
		dst = append(dst, b^flip)
	}
	return dst
}

// bits7 returns seven bits of buf from bit pos on, zeros beyond its end.
func bits7(buf []byte, pos int) byte {
	i := pos / 8
	var w uint16
	if i < len(buf) {
		w = uint16(buf[i]) << 8
	}
	if i+1 < len(buf) {
		w |= uint16(buf[i+1])
	}
	return byte(w << (pos % 8) >> 9)
}

// A number is a decoded number: ±2^exp × 1.mant, unless its tag says otherwise.
type number struct {
	tag    byte // tagZero, tagNaN, tagInf, tagNegInf; 0 for all others
	neg    bool
	exp    int64
	mant   uint64 // the first 64 bits of the mantissa, left-aligned
	bits   int64  // how many bits the mantissa has up to its last one
	groups []byte // the mantissa as encoded; complemented if neg
}

// integral reports whether x is finite and an integer.
func (x *number) integral() bool { return x.tag == tagZero || x.tag == 0 && x.bits <= x.exp }

// scanNumber reads the number that b begins with and returns it, its length and
// "", or what is wrong at which offset. The tag of b is one of a number.
func scanNumber(b []byte) (x number, n int, bad string) {
	tag := b[0]
	switch tag {
	case tagZero, tagNaN, tagInf, tagNegInf:
		return number{tag: tag}, 1, ""
	}
	var flip byte
	if tag < tagZero {
		x.neg, flip, tag = true, 0xFF, tagMirror-tag
	}
	n = 1
	if tag == tagSmall || tag == tagBig {
		if x.exp, n, bad = scanExponent(b, tag, flip); bad != "" {
			return x, n, bad
		}
	} else {
		x.exp = int64(tag - tagExp0)
	}
	size, bad := x.scanMantissa(b[n:], flip)
	if bad != "" {
		return x, n + size, bad
	}
	// Only integers and the values of float64 have keys.
	if x.bits > x.exp && (x.bits > 52 || x.exp-x.bits < minExponent) {
		return x, n, "fraction too fine for float64"
	}
	return x, n + size, ""
}

// scanExponent reads the exponent after a tag that does not imply it; flip is
// 0xFF for a negative number.
func scanExponent(b []byte, tag, flip byte) (exp int64, n int, bad string) {
	if tag == tagSmall {
		flip = ^flip
	}
	if len(b) < 3 {
		return 0, len(b), "truncated exponent"
	}
	rest := uint64(b[1]^flip)<<8 | uint64(b[2]^flip)
	n = 3
	if rest == longExponent {
		if len(b) < 11 {
			return 0, len(b), "truncated exponent"
		}
		rest = 0
		for _, c := range b[3:11] {
			rest = rest<<8 | uint64(c^flip)
		}
		if rest > math.MaxInt64-longExponent-64 {
			return 0, 3, "exponent out of range"
		}
		rest, n = rest+longExponent, 11
	}
	if tag == tagSmall {
		if rest > -1-minExponent {
			return 0, 1, "exponent out of range"
		}
		return -1 - int64(rest), n, ""
	}
	return int64(rest) + 64, n, ""
}

// scanMantissa reads the mantissa that b begins with and returns its length.
func (x *number) scanMantissa(b []byte, flip byte) (n int, bad string) {
	var c byte
	for {
		if n == len(b) {
			return n, "truncated mantissa"
		}
		c = b[n] ^ flip
		if shift := 57 - 7*n; shift >= 0 {
			x.mant |= uint64(c>>1) << shift
		} else if n == 9 { // the first bit of the tenth group is the 64th
			x.mant |= uint64(c >> 7)
		}
		n++
		if c>>1 != 0 {
			x.bits = int64(7*n - bits.TrailingZeros8(c>>1))
		}
		if c&1 == 0 {
			break
		}
	}
	x.groups = b[:n]
	if x.exp >= fullExponent {
		if (x.exp+6)/7 != int64(n) || x.bits > x.exp {
			return n, "mantissa not of the exponent's size"
		}
		return n, ""
	}
	if c>>1 == 0 && n > 1 {
		return n, "mantissa ends in zeros"
	}
	return n, ""
}

// int64 returns x if it is an integer that fits.
func (x *number) int64() (int64, bool) {
	switch {
	case x.tag == tagZero:
		return 0, true
	case !x.integral():
		return 0, false
	case x.exp < 63 && x.neg:
		return -int64(x.abs()), true
	case x.exp < 63:
		return int64(x.abs()), true
	}
	return math.MinInt64, x.exp == 63 && x.neg && x.bits == 0
}

// uint64 returns x if it is an integer that fits.
func (x *number) uint64() (uint64, bool) {
	if x.tag == tagZero {
		return 0, true
	}
	if x.neg || !x.integral() || x.exp > 63 {
		return 0, false
	}
	return x.abs(), true
}

// abs returns the absolute value of a finite integer other than zero, whose
// exponent is at most 63.
func (x *number) abs() uint64 { return (x.mant>>1 | 1<<63) >> (63 - x.exp) }

// big returns x if it is an integer, else nil.
func (x *number) big() *big.Int {
	if !x.integral() {
		return nil
	}
	v := new(big.Int)
	if x.tag == tagZero {
		return v
	}
	var flip byte
	if x.neg {
		flip = 0xFF
	}
	// The bits from the leading one on, right-aligned in bytes.
	size := 1 + 7*len(x.groups)
	buf := make([]byte, 0, size/8+1)
	acc, have := uint16(1), (8-size%8)%8+1 // acc's low bits fill up to whole bytes
	if have == 8 {
		buf, acc, have = append(buf, 1), 0, 0
	}
	for _, c := range x.groups {
		acc, have = acc<<7|uint16((c^flip)>>1), have+7
		if have >= 8 {
			have -= 8
			buf = append(buf, byte(acc>>have))
		}
	}
	v.SetBytes(buf)
	if shift := x.exp - 7*int64(len(x.groups)); shift >= 0 {
		v.Lsh(v, uint(shift)) // at most 1,023
	} else {
		v.Rsh(v, uint(-shift))
	}
	if x.neg {
		v.Neg(v)
	}
	return v
}

// float64 returns the float64 nearest to x, ties to even; beyond the largest it
// is an infinity.
func (x *number) float64() float64 {
	switch x.tag {
	case tagZero:
		return 0
	case tagNaN:
		return math.NaN()
	case tagInf:
		return math.Inf(1)
	case tagNegInf:
		return math.Inf(-1)
	}
	var f float64
	if x.bits <= 52 && x.exp < fullExponent { // exact
		f = math.Ldexp(1+math.Ldexp(float64(x.mant>>12), -52), int(x.exp))
		if x.neg {
			f = -f
		}
		return f
	}
	f, _ = new(big.Float).SetInt(x.big()).Float64()
	return f
}
