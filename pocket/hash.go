package pocket

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"unsafe"
)

// hasher hashes keys with secrets of its own, so that nobody can choose keys
// that collide. Short keys, which are most, are mixed with two
// multiplications in place; a call of maphash would cost as much again as the
// rest of a Get.
type hasher struct {
	seed    maphash.Seed
	secrets [4]uint64
}

func newHasher() hasher {
	h := hasher{seed: maphash.MakeSeed()}
	for i := range h.secrets {
		h.secrets[i] = maphash.Bytes(h.seed, []byte{byte(i)}) | 1
	}
	return h
}

func (h *hasher) hash(key string) uint64 {
	n := len(key)
	if n > 16 {
		return maphash.String(h.seed, key)
	}
	var x, y uint64
	b := unsafe.Slice(unsafe.StringData(key), n)
	switch {
	case n >= 8:
		x, y = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:])
	case n >= 4:
		x, y = uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:]))
	case n > 0:
		x = uint64(b[0])<<16 | uint64(b[n>>1])<<8 | uint64(b[n-1])
	}
	hi, lo := bits.Mul64(x^h.secrets[0], y^h.secrets[1])
	hi, lo = bits.Mul64(hi^lo^h.secrets[2], uint64(n)^h.secrets[3])
	return hi ^ lo
}
