package osier

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Seq is a position in a database's order of changes. The first change has
// number 1; 0 is before everything.
type Seq uint64

// Rev names one version of a document: the number of edits that led to it and
// a digest of what it holds and came from, so that equal edits have equal
// revisions on every replica. Its text form is CouchDB's, "3-" and 32
// hexadecimal digits; digests of other shapes, which CouchDB allows for
// replicated documents, are kept as text. Revs are comparable with ==. The
// zero Rev is no revision.
type Rev struct {
	gen  uint64
	sum  [16]byte
	text string // set only if the digest is not 32 hexadecimal digits
}

// maxDigestText bounds digests that are not 16 bytes.
const maxDigestText = 255

var errRev = errors.New("want a revision such as 3-0123456789abcdef0123456789abcdef")

// NewRev makes a revision of a generation (from 1) and a 128-bit digest.
func NewRev(generation uint64, digest [16]byte) Rev { return Rev{gen: generation, sum: digest} }

// RevOf makes a revision of a digest in raw form: 16 bytes, or, when text is
// true, the digest's own text.
func RevOf(generation uint64, digest string, text bool) Rev {
	if !text && len(digest) == 16 {
		r := Rev{gen: generation}
		copy(r.sum[:], digest)
		return r
	}
	return Rev{gen: generation, text: digest}
}

// ParseRev reads the text form; "" is the zero Rev.
func ParseRev(s string) (Rev, error) {
	if s == "" {
		return Rev{}, nil
	}
	gen, digest, ok := strings.Cut(s, "-")
	n, err := strconv.ParseUint(gen, 10, 63)
	if !ok || err != nil || n == 0 || gen[0] == '+' || digest == "" || len(digest) > maxDigestText {
		return Rev{}, &Error{Kind: KindInvalid, Op: "parse revision", ID: s, Err: errRev}
	}
	if len(digest) == 32 {
		r := Rev{gen: n}
		if _, err := hex.Decode(r.sum[:], []byte(digest)); err == nil {
			return r, nil
		}
	}
	if !utf8.ValidString(digest) || strings.ContainsFunc(digest, unicode.IsControl) {
		return Rev{}, &Error{Kind: KindInvalid, Op: "parse revision", ID: strconv.Quote(s), Err: errRev}
	}
	return Rev{gen: n, text: digest}, nil
}

// IsZero reports whether r is no revision.
func (r Rev) IsZero() bool { return r.gen == 0 }

// Generation is the number of edits on the branch that ends at r.
func (r Rev) Generation() uint64 { return r.gen }

// Digest returns the digest's raw form: 16 bytes, or its own text.
func (r Rev) Digest() (digest string, text bool) {
	if r.text != "" {
		return r.text, true
	}
	return string(r.sum[:]), false
}

// Sum returns the 128-bit digest; ok is false if the digest is a text.
func (r Rev) Sum() (sum [16]byte, ok bool) { return r.sum, r.text == "" && r.gen != 0 }

// String returns the text form, "" for the zero Rev.
func (r Rev) String() string {
	if r.gen == 0 {
		return ""
	}
	b := strconv.AppendUint(make([]byte, 0, 40), r.gen, 10)
	b = append(b, '-')
	if r.text != "" {
		return string(append(b, r.text...))
	}
	return string(hex.AppendEncode(b, r.sum[:]))
}

// Compare orders revisions by generation, then by the digest's raw bytes: the
// order in which CouchDB picks a winner among leaves.
func (r Rev) Compare(other Rev) int {
	if r.gen != other.gen {
		if r.gen < other.gen {
			return -1
		}
		return 1
	}
	if r.text == "" && other.text == "" {
		return bytes.Compare(r.sum[:], other.sum[:])
	}
	a, aText := r.Digest()
	b, bText := other.Digest()
	if c := strings.Compare(a, b); c != 0 {
		return c
	}
	// The same bytes, once raw and once as text, are different revisions.
	switch {
	case aText == bText:
		return 0
	case bText:
		return -1
	}
	return 1
}

// MarshalText writes the text form.
func (r Rev) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the text form.
func (r *Rev) UnmarshalText(b []byte) error {
	v, err := ParseRev(string(b))
	if err != nil {
		return err
	}
	*r = v
	return nil
}
