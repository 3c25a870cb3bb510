// Package revtree is the arithmetic of revisions: their identifiers and compact
// form, the rules by which a winner is chosen, trees of ancestry and their merge,
// and the digests that make equal edits equal revisions on every replica.
//
// For JSON bodies the digests and all orders are those of CouchDB, so that
// replicas of either kind agree on every revision.
//
// Functions are pure and safe for concurrent use; a [Tree] is not.
package revtree

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrRev is matched by every error about a revision: malformed text or bytes, or
// a path of ancestors that is not one.
var ErrRev = errors.New("malformed revision")

// MaxText is the greatest length in bytes of a digest that is kept as text.
const MaxText = 255

const rawSize = 16

// A Rev identifies a revision: the generation, from 1, and a digest that tells
// edits of the same generation apart. The zero Rev means none. Two Revs are the
// same revision if they are equal by ==.
//
// Digest holds 16 raw bytes if the text form has 32 hexadecimal digits, which is
// what this package and CouchDB make. Other writers choose digests freely (1-x);
// then Digest is that text. Only [Parse] and [DecodeBinary] make a Rev whose text
// has 16 bytes; in one put together by hand, 16 bytes are raw.
type Rev struct {
	Gen    uint64
	Digest string
	text16 bool // Digest is a text that happens to have the length of a raw one
}

// NewRev returns the revision with a computed digest.
func NewRev(gen uint64, digest [16]byte) Rev { return Rev{Gen: gen, Digest: string(digest[:])} }

// IsZero reports whether r is the zero Rev.
func (r Rev) IsZero() bool { return r == Rev{} }

// IsRaw reports whether the digest of r is 16 raw bytes, not text.
func (r Rev) IsRaw() bool { return len(r.Digest) == rawSize && !r.text16 }

// Parse reads the text form of a revision, such as "3-" and 32 hexadecimal
// digits in either case. The generation is decimal without leading zeros, from 1
// to 2^63-1; a digest of another form is kept as it is: 1 to [MaxText] bytes of
// UTF-8 without control characters. Errors match [ErrRev].
func Parse(text string) (Rev, error) {
	num, digest, ok := strings.Cut(text, "-")
	if !ok {
		return Rev{}, fmt.Errorf("parse revision: no dash: %w", ErrRev)
	}
	gen, err := parseGen(num)
	if err != nil {
		return Rev{}, err
	}
	return newRev(gen, digest)
}

func parseGen(num string) (uint64, error) {
	if num == "" || num[0] < '1' || num[0] > '9' { // no sign, no leading zero
		return 0, fmt.Errorf("parse revision: generation: %w", ErrRev)
	}
	gen, err := strconv.ParseUint(num, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("parse revision: generation: %w", ErrRev)
	}
	return gen, nil
}

// FromParts returns the revision of a generation and the text of a digest, as
// they stand in a list of ancestors. It holds them to the rules of [Parse].
func FromParts(gen uint64, digest string) (Rev, error) {
	if gen == 0 || gen > math.MaxInt64 {
		return Rev{}, fmt.Errorf("make revision: generation %d: %w", gen, ErrRev)
	}
	return newRev(gen, digest)
}

// newRev makes a revision of a valid generation and the text of a digest.
func newRev(gen uint64, digest string) (Rev, error) {
	if len(digest) == 2*rawSize {
		var raw [rawSize]byte
		if _, err := hex.Decode(raw[:], []byte(digest)); err == nil {
			return NewRev(gen, raw), nil
		}
	}
	if !validText(digest) {
		return Rev{}, fmt.Errorf("parse revision: digest: %w", ErrRev)
	}
	// The caller's text may be part of a large request: keep only this of it.
	return Rev{Gen: gen, Digest: strings.Clone(digest), text16: len(digest) == rawSize}, nil
}

// validText reports whether s can be a digest that is kept as text.
func validText(s string) bool {
	if len(s) == 0 || len(s) > MaxText || !utf8.ValidString(s) {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7F }) < 0
}

// String returns the text form, with lower-case digits; "" for the zero Rev.
func (r Rev) String() string {
	if r.IsZero() {
		return ""
	}
	return string(r.AppendText(nil))
}

// AppendText appends what String returns, without an allocation of its own.
func (r Rev) AppendText(dst []byte) []byte {
	if r.IsZero() {
		return dst
	}
	dst = strconv.AppendUint(dst, r.Gen, 10)
	return r.AppendDigest(append(dst, '-'))
}

// AppendDigest appends the text form of the digest alone.
func (r Rev) AppendDigest(dst []byte) []byte {
	if !r.IsRaw() {
		return append(dst, r.Digest...)
	}
	const digits = "0123456789abcdef"
	for i := range len(r.Digest) {
		c := r.Digest[i]
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	return dst
}

// Compare orders revisions by generation, then by the bytes of the digest. It
// returns -1, 0 or +1, and 0 only for equal revisions.
func Compare(a, b Rev) int {
	switch {
	case a.Gen < b.Gen:
		return -1
	case a.Gen > b.Gen:
		return +1
	case a.Digest != b.Digest:
		return strings.Compare(a.Digest, b.Digest)
	case a.text16 == b.text16:
		return 0
	case b.text16:
		return -1
	}
	return +1
}

// AppendBinary appends the compact form of r, which marks its own end: the
// generation as a minimal unsigned varint; unless that is zero, a byte that is 0
// for a raw digest and else the length of a text; the digest. A Rev that is
// neither zero nor one that Parse can give does not decode again.
func (r Rev) AppendBinary(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, r.Gen)
	if r.Gen == 0 {
		return dst
	}
	size := byte(0)
	if !r.IsRaw() {
		size = byte(len(r.Digest))
	}
	return append(append(dst, size), r.Digest...)
}

// DecodeBinary reads the compact form that b begins with and returns what
// follows it. It accepts exactly what [Rev.AppendBinary] writes of the zero Rev
// and of those that Parse can give. Errors match [ErrRev].
func DecodeBinary(b []byte) (r Rev, rest []byte, err error) {
	gen, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 || gen > math.MaxInt64 {
		return Rev{}, b, fmt.Errorf("decode revision: generation: %w", ErrRev)
	}
	if gen == 0 {
		return Rev{}, b[n:], nil
	}
	if n == len(b) {
		return Rev{}, b, fmt.Errorf("decode revision: truncated: %w", ErrRev)
	}
	size, raw := int(b[n]), b[n] == 0
	if raw {
		size = rawSize
	}
	if rest = b[n+1:]; len(rest) < size {
		return Rev{}, b, fmt.Errorf("decode revision: truncated: %w", ErrRev)
	}
	digest, rest := string(rest[:size]), rest[size:]
	if raw {
		return Rev{Gen: gen, Digest: digest}, rest, nil
	}
	if r, err = newRev(gen, digest); err != nil {
		return Rev{}, b, err
	}
	if r.IsRaw() { // 32 hexadecimal digits have a shorter form
		return Rev{}, b, fmt.Errorf("decode revision: digits of a raw digest as text: %w", ErrRev)
	}
	return r, rest, nil
}
