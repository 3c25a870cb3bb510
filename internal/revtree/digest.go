package revtree

import (
	"cmp"
	"crypto/md5"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// Tags of the Erlang external term format, version 131, as far as a revision's
// digest needs them.
const (
	termVersion  = 131
	tagFloat     = 70  // 8 bytes, big-endian
	tagByte      = 97  // 1 byte
	tagInt       = 98  // 4 bytes, big-endian, signed
	tagAtom      = 100 // 2 bytes of length, name
	tagTuple     = 104 // 1 byte of arity, elements
	tagNil       = 106 // the empty list, and the tail of lists
	tagString    = 107 // 2 bytes of length: a list of that many bytes
	tagList      = 108 // 4 bytes of length, elements, tail
	tagBinary    = 109 // 4 bytes of length, bytes
	tagBig       = 110 // 1 byte of length, sign, little-endian magnitude
	tagLargeBig  = 111 // 4 bytes of length, sign, little-endian magnitude
	headerSize   = 5   // of a list or binary: tag and length
	maxStringLen = 0xFFFF
)

// An Att is what a digest needs to know of an attachment.
type Att struct {
	Name, Type string
	MD5        [16]byte // as in the digest that the document shows
}

// JSONDigest returns the digest of a revision with a JSON body, the one that
// CouchDB gives to the same edit. A zero parent is none. bodyTerm is what
// [AppendTerm] makes of the body; empty, it is the body {}, which is also that of
// a deletion without body. atts are all attachments of the new revision in the
// order in which the request names them.
func JSONDigest(deleted bool, parent Rev, bodyTerm []byte, atts []Att) [16]byte {
	h := md5.New()
	head := append(make([]byte, 0, 320), termVersion, tagList, 0, 0, 0, 5)
	head = appendAtom(head, deleted)
	head = appendUint(head, parent.Gen)
	if parent.IsZero() {
		head = appendUint(head, 0)
	} else {
		head = appendBinary(head, parent.Digest)
	}
	h.Write(head)
	if len(bodyTerm) == 0 {
		bodyTerm = []byte{tagTuple, 1, tagNil}
	}
	h.Write(bodyTerm)
	h.Write(append(appendAtts(head[:0], atts), tagNil))
	var sum [16]byte
	h.Sum(sum[:0])
	return sum
}

// appendAtts appends the list of attachments, which CouchDB keeps in reverse.
func appendAtts(dst []byte, atts []Att) []byte {
	if len(atts) == 0 {
		return append(dst, tagNil)
	}
	dst = binary.BigEndian.AppendUint32(append(dst, tagList), uint32(len(atts)))
	for _, a := range slices.Backward(atts) {
		dst = appendBinary(append(dst, tagTuple, 3), a.Name)
		dst = appendBinary(dst, a.Type)
		dst = appendBinary(dst, string(a.MD5[:]))
	}
	return append(dst, tagNil)
}

func appendBinary(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(append(dst, tagBinary), uint32(len(s))), s...)
}

func appendAtom(dst []byte, v bool) []byte {
	if v {
		return append(dst, tagAtom, 0, 4, 't', 'r', 'u', 'e')
	}
	return append(dst, tagAtom, 0, 5, 'f', 'a', 'l', 's', 'e')
}

// opaqueDomain keeps these digests apart from those of other uses of SHA-256, and
// from those of later forms.
const opaqueDomain = "osier revision 1\x00"

// OpaqueDigest returns the digest of a revision whose body is bytes in a codec:
// the first 128 bits of SHA-256 over the parent, the deletion, the codec's tag,
// the body and the attachments, each of which tells its own length. A zero parent
// is none. The order of the attachments does not matter.
func OpaqueDigest(deleted bool, parent Rev, codecTag byte, body []byte, atts []Att) [16]byte {
	h := sha256.New()
	buf := append(make([]byte, 0, 320), opaqueDomain...)
	buf = parent.AppendBinary(buf)
	if deleted {
		buf = append(buf, 1)
	} else {
		buf = append(buf, 0)
	}
	buf = append(buf, codecTag)
	buf = binary.AppendUvarint(buf, uint64(len(body)))
	h.Write(buf)
	h.Write(body)
	h.Write(binary.AppendUvarint(buf[:0], uint64(len(atts))))
	if !slices.IsSortedFunc(atts, compareAtts) {
		atts = slices.SortedFunc(slices.Values(atts), compareAtts)
	}
	for _, a := range atts {
		writeString(h, buf, a.Name)
		writeString(h, buf, a.Type)
		h.Write(a.MD5[:])
	}
	sum := h.Sum(nil)
	return [16]byte(sum[:16])
}

// writeString writes the length of s and s, using buf as scratch.
func writeString(h hash.Hash, buf []byte, s string) {
	buf = binary.AppendUvarint(buf[:0], uint64(len(s)))
	h.Write(append(buf, s...))
}

// compareAtts orders attachments by name, then by the rest.
func compareAtts(a, b Att) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type), slices.Compare(a.MD5[:], b.MD5[:]))
}
