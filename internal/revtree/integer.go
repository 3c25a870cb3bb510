package revtree

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// appendUint appends the term of an integer that is not negative.
func appendUint(dst []byte, u uint64) []byte {
	switch {
	case u <= 0xFF:
		return append(dst, tagByte, byte(u))
	case u <= math.MaxInt32:
		return binary.BigEndian.AppendUint32(append(dst, tagInt), uint32(u))
	}
	return appendMagnitude(dst, u, 0)
}

// appendNegative appends the term of -abs, where abs is not zero.
func appendNegative(dst []byte, abs uint64) []byte {
	if abs <= -math.MinInt32 {
		return binary.BigEndian.AppendUint32(append(dst, tagInt), -uint32(abs))
	}
	return appendMagnitude(dst, abs, 1)
}

// appendMagnitude appends a big integer of up to 64 bits; sign is 1 for negative.
func appendMagnitude(dst []byte, abs uint64, sign byte) []byte {
	size := (bits.Len64(abs) + 7) / 8
	dst = append(dst, tagBig, byte(size), sign)
	for range size {
		dst = append(dst, byte(abs))
		abs >>= 8
	}
	return dst
}

// appendDigits appends the term of an integer of more than 19 decimal digits,
// of which the first is not zero. It computes the magnitude in place, in
// little-endian words, so that it needs no other memory.
func appendDigits(dst, digits []byte, neg bool) []byte {
	sign := byte(0)
	if neg {
		sign = 1
	}
	start := len(dst)
	dst = append(dst, tagLargeBig, 0, 0, 0, 0, sign)
	body := len(dst)
	for len(digits) > 0 {
		n := min(len(digits), 19)
		factor, carry := uint64(1), uint64(0)
		for _, c := range digits[:n] {
			factor, carry = 10*factor, 10*carry+uint64(c-'0')
		}
		digits = digits[n:]
		for i := body; i < len(dst); i += 8 {
			hi, lo := bits.Mul64(binary.LittleEndian.Uint64(dst[i:]), factor)
			lo, c := bits.Add64(lo, carry, 0)
			binary.LittleEndian.PutUint64(dst[i:], lo)
			carry = hi + c
		}
		if carry != 0 {
			dst = binary.LittleEndian.AppendUint64(dst, carry)
		}
	}
	for dst[len(dst)-1] == 0 {
		dst = dst[:len(dst)-1]
	}
	size := len(dst) - body
	if size > 0xFF {
		binary.BigEndian.PutUint32(dst[start+1:], uint32(size))
		return dst
	}
	dst = append(dst[:start], tagBig, byte(size), sign)
	return append(dst, dst[body:body+size]...)
}
