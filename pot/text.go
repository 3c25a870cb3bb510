package pot

import (
	"encoding/binary"
	"unicode/utf8"
	"unsafe"
)

const highBits = 0x8080808080808080

// validText is utf8.Valid, quicker for the ASCII texts that most are. Texts of
// up to 32 bytes are looked through by loads that overlap, without a loop: what
// costs most in short texts is a branch that is guessed wrong.
func validText(b []byte) bool {
	n := len(b)
	var all uint64
	switch {
	case n > 32:
		rest := b
		for ; len(rest) >= 32; rest = rest[32:] {
			all |= word(rest) | word(rest[8:]) | word(rest[16:]) | word(rest[24:])
		}
		last := b[n-32:]
		all |= word(last) | word(last[8:]) | word(last[16:]) | word(last[24:])
	case n > 16:
		last := b[n-16:]
		all = word(b) | word(b[8:]) | word(last) | word(last[8:])
	case n >= 8:
		all = word(b) | word(b[n-8:])
	case n >= 4:
		all = uint64(binary.LittleEndian.Uint32(b) | binary.LittleEndian.Uint32(b[n-4:]))
	case n > 0:
		all = uint64(b[0] | b[n/2] | b[n-1])
	}
	return all&highBits == 0 || utf8.Valid(b)
}

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// copyText copies text to dst, where there is room for it, and reports whether it
// is UTF-8. Texts of up to 64 bytes are looked through by the loads that copy them.
func copyText(dst unsafe.Pointer, text string) bool {
	src, n := unsafe.Pointer(unsafe.StringData(text)), len(text)
	var all uint64
	switch {
	case n > 64:
		copy(unsafe.Slice((*byte)(dst), n), text)
		return validText(unsafe.Slice((*byte)(src), n))
	case n > 32:
		all = copyWords(dst, src, 0) | copyWords(dst, src, 16) | copyWords(dst, src, n-32) | copyWords(dst, src, n-16)
	case n > 16:
		all = copyWords(dst, src, 0) | copyWords(dst, src, n-16)
	case n >= 8:
		first, last := getWord(src, 0), getWord(src, n-8)
		all = first | last
		setWord(dst, 0, first)
		setWord(dst, n-8, last)
	case n >= 4:
		head, tail := (*[4]byte)(src), (*[4]byte)(unsafe.Add(src, n-4))
		first, last := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(tail[:])
		all = uint64(first | last)
		binary.LittleEndian.PutUint32((*[4]byte)(dst)[:], first)
		binary.LittleEndian.PutUint32((*[4]byte)(unsafe.Add(dst, n-4))[:], last)
	case n > 0:
		to := unsafe.Slice((*byte)(dst), n)
		first, middle, last := text[0], text[n/2], text[n-1]
		all = uint64(first | middle | last)
		to[0], to[n/2], to[n-1] = first, middle, last
	}
	return all&highBits == 0 || utf8.ValidString(text)
}

// copyWords copies 16 bytes from place i and returns which bits are set in
// either half.
func copyWords(dst, src unsafe.Pointer, i int) uint64 {
	first, last := getWord(src, i), getWord(src, i+8)
	setWord(dst, i, first)
	setWord(dst, i+8, last)
	return first | last
}

// getWord gets eight bytes, of which the first is the lowest.
func getWord(from unsafe.Pointer, i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(from, i))[:])
}

// setWord sets eight bytes, of which the first is the lowest.
func setWord(out unsafe.Pointer, i int, v uint64) {
	binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(out, i))[:], v)
}

// ReadText reads a string.
func (r *Reader) ReadText() (string, error) {
	b, err := r.textBytes()
	if err != nil {
		return "", err
	}
	return r.newString(b)
}

// textBytes reads a string's bytes, which point into the input.
func (r *Reader) textBytes() ([]byte, error) {
	at := r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return nil, err
	case kind == kindBytes:
		b, err := r.take(arg, "text")
		if err == nil && !validText(b) {
			err = errAt(ErrUTF8, at, "text of %d bytes", len(b))
		}
		return b, err
	case kind == kindSymbol:
		text, _, err := r.symbolBody(arg, at)
		return unsafe.Slice(unsafe.StringData(text), len(text)), err
	case kind == kindSpecial && arg <= specUnit:
		return nil, nil
	}
	return nil, r.mismatch(at, "text")
}

const (
	chunkSize   = 1 << 10
	smallChunk  = 1 << 9 // for inputs with little left; what is over serves the next
	chunkString = 128
)

// newString makes a string of valid text within the input, by the rule that
// the options give.
func (r *Reader) newString(b []byte) (string, error) {
	n := len(b)
	switch {
	case n == 0:
		return "", nil
	case r.opts.Strings == BorrowStrings:
		return unsafe.String(&b[0], n), nil
	case r.opts.Strings == InternStrings && n <= 64:
		return r.interned(b)
	}
	if r.budget -= int64(n); r.budget < 0 {
		return "", r.fail(ErrBudget, "text of %d bytes", n)
	}
	return r.copyString(b), nil
}

// copyString copies short strings into a chunk that they share, which is never
// written to again where strings lie.
func (r *Reader) copyString(b []byte) string {
	n := len(b)
	if n > chunkString {
		return string(b)
	}
	if n > len(r.chunk) {
		size := chunkSize
		if len(r.data)-r.pos < smallChunk {
			size = smallChunk
		}
		r.chunk = make([]byte, size)
	}
	copy(r.chunk, b)
	s := unsafe.String(&r.chunk[0], n)
	r.chunk = r.chunk[n:]
	return s
}

// interned returns an earlier copy of a short string if there is one.
func (r *Reader) interned(b []byte) (string, error) {
	if r.intern == nil {
		r.intern = new([256]string)
	}
	h := uint32(len(b))
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	slot := &r.intern[(h^h>>16)&255]
	if *slot == string(b) {
		return *slot, nil
	}
	if err := r.charge(len(b)); err != nil {
		return "", err
	}
	*slot = r.copyString(b)
	return *slot, nil
}

// ReadBytes reads bytes: a byte atom, or a sequence of integers up to 255. The
// result is a copy unless strings are borrowed.
func (r *Reader) ReadBytes() ([]byte, error) {
	return r.appendBytesTo(nil)
}

// appendBytesTo reads bytes into the memory of dst, if there is enough.
func (r *Reader) appendBytesTo(dst []byte) ([]byte, error) {
	at := r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return nil, err
	case kind == kindSpecial && arg <= specUnit:
		return nil, nil
	case kind == kindSeq:
		return r.byteSeq(dst, arg)
	case kind == kindSymbol:
		text, _, err := r.symbolBody(arg, at)
		return append(dst[:0], text...), err
	case kind != kindBytes:
		return nil, r.mismatch(at, "bytes")
	}
	b, err := r.take(arg, "bytes")
	if err != nil || r.opts.Strings == BorrowStrings {
		return b, err
	}
	if len(b) > cap(dst) {
		if err := r.charge(len(b)); err != nil {
			return nil, err
		}
	}
	if dst == nil {
		dst = make([]byte, 0, len(b)) // empty bytes are not nil
	}
	return append(dst[:0], b...), nil
}

func (r *Reader) byteSeq(dst []byte, n uint64) ([]byte, error) {
	if err := r.checkCount(n, 1); err != nil {
		return nil, err
	}
	if int(n) > cap(dst) || dst == nil {
		if err := r.charge(int(n)); err != nil {
			return nil, err
		}
		dst = make([]byte, 0, n)
	}
	dst = dst[:0]
	for range n {
		at := r.pos
		v, err := r.ReadUint()
		switch {
		case err != nil:
			return nil, err
		case v > 255:
			return nil, errAt(ErrRange, at, "%d in a byte", v)
		}
		dst = append(dst, byte(v))
	}
	return dst, nil
}
