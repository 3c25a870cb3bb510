package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
)

// recordVersion begins every record that may change its shape one day.
const recordVersion = 1

// Flags of documents, versions and nodes.
const (
	flagDeleted     = 1 << iota // the revision is a deletion
	flagLosers                  // losing leaves follow
	flagAttachments             // attachments follow
	flagParent                  // the parent's digest follows
	flagAbsent                  // a node known by name only
	flagKept                    // the count of kept earlier bodies follows
	flagBody                    // there is a body, even an empty one
)

var errRecord = errors.New("record is damaged")

// leaf is a revision with its place in the tree.
type leaf struct {
	rev     osier.Rev
	parent  osier.Rev // zero: none known
	deleted bool
	seq     osier.Seq
	millis  int64
}

// version is what a revision holds.
type version struct {
	codec   osier.CodecTag
	schema  uint32
	atts    []osier.Attachment
	hasBody bool
	body    []byte
}

// document is a decoded document record: the winner with its version, and the
// losing leaves. body points into the record.
type document struct {
	winner leaf
	v      version
	losers []leaf
	kept   uint64 // earlier versions (not leaves) whose bodies are kept
}

func appendRev(dst []byte, r osier.Rev) []byte {
	dst = binary.AppendUvarint(dst, r.Generation())
	return appendSizedDigest(dst, r)
}

// appendSizedDigest writes a digest with its length; 0 stands for 16 raw bytes.
func appendSizedDigest(dst []byte, r osier.Rev) []byte {
	if sum, ok := r.Sum(); ok {
		return append(append(dst, 0), sum[:]...)
	}
	text, _ := r.Digest()
	return append(append(dst, byte(len(text))), text...)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendAttachments(dst []byte, atts []osier.Attachment) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(atts)))
	for i := range atts {
		a := &atts[i]
		dst = appendText(dst, a.Name)
		dst = appendText(dst, a.ContentType)
		dst = binary.AppendUvarint(dst, a.Size)
		dst = append(dst, a.MD5[:]...)
		dst = append(dst, a.SHA256[:]...)
		dst = binary.AppendUvarint(dst, a.RevPos)
		dst = append(dst, a.Blob[:]...)
	}
	return dst
}

func leafFlags(l *leaf) byte {
	var f byte
	if l.deleted {
		f |= flagDeleted
	}
	if !l.parent.IsZero() {
		f |= flagParent
	}
	return f
}

// appendLeaf writes all of a leaf but its flags.
func appendLeaf(dst []byte, l *leaf) []byte {
	dst = binary.AppendUvarint(dst, uint64(l.seq))
	dst = binary.AppendUvarint(dst, uint64(l.millis))
	dst = appendRev(dst, l.rev)
	if !l.parent.IsZero() {
		dst = appendSizedDigest(dst, l.parent)
	}
	return dst
}

func appendDocument(dst []byte, d *document) []byte {
	f := leafFlags(&d.winner) | versionFlags(&d.v)
	if len(d.losers) > 0 {
		f |= flagLosers
	}
	if d.kept > 0 {
		f |= flagKept
	}
	dst = append(dst, recordVersion, f)
	dst = appendLeaf(dst, &d.winner)
	if d.kept > 0 {
		dst = binary.AppendUvarint(dst, d.kept)
	}
	if len(d.losers) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(d.losers)))
		for i := range d.losers {
			dst = append(dst, leafFlags(&d.losers[i]))
			dst = appendLeaf(dst, &d.losers[i])
		}
	}
	return appendVersion(dst, &d.v)
}

func versionFlags(v *version) byte {
	var f byte
	if len(v.atts) > 0 {
		f |= flagAttachments
	}
	if v.hasBody {
		f |= flagBody
	}
	return f
}

// appendVersion writes all of a version but its flags.
func appendVersion(dst []byte, v *version) []byte {
	dst = append(dst, byte(v.codec))
	dst = binary.AppendUvarint(dst, uint64(v.schema))
	if len(v.atts) > 0 {
		dst = appendAttachments(dst, v.atts)
	}
	return append(dst, v.body...)
}

// appendVersionRecord writes a version that stands by itself.
func appendVersionRecord(dst []byte, l *leaf, v *version) []byte {
	f := versionFlags(v)
	if l.deleted {
		f |= flagDeleted
	}
	dst = append(dst, recordVersion, f)
	dst = binary.AppendUvarint(dst, uint64(l.seq))
	dst = binary.AppendUvarint(dst, uint64(l.millis))
	return appendVersion(dst, v)
}

// appendNode writes an inner node of a revision tree.
func appendNode(dst []byte, l *leaf, absent bool) []byte {
	f := leafFlags(l)
	if absent {
		f |= flagAbsent
	}
	dst = append(dst, recordVersion, f)
	dst = binary.AppendUvarint(dst, uint64(l.seq))
	dst = binary.AppendUvarint(dst, uint64(l.millis))
	if !l.parent.IsZero() {
		dst = appendSizedDigest(dst, l.parent)
	}
	return dst
}

// reader takes a record apart. After a step past the end, bad is set and all
// further steps give zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	n, k := binary.Uvarint(r.b)
	if k <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[k:]
	return n
}

// The least bytes that an element of a list takes.
const (
	leastAttachment = 3 + 16 + 32 + 1 + 16
	leastLeaf       = 6 // also of a transaction's change and a result's operation
)

// count reads the length of a list whose elements take least bytes or more, so
// that a damaged one cannot ask for more memory than its record could fill.
func (r *reader) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/least) {
		r.bad, r.b = true, nil
		return 0
	}
	return int(n)
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) text() string { return string(r.bytes(r.uvarint())) }

func (r *reader) digest(gen uint64) osier.Rev {
	n := r.byte()
	if n == 0 {
		raw := r.bytes(16)
		if raw == nil {
			return osier.Rev{}
		}
		return osier.NewRev(gen, [16]byte(raw))
	}
	return osier.RevOf(gen, string(r.bytes(uint64(n))), true)
}

// rev reads a revision; the zero one has a digest's bytes too.
func (r *reader) rev() osier.Rev {
	gen := r.uvarint()
	rev := r.digest(gen)
	if gen == 0 {
		return osier.Rev{}
	}
	return rev
}

func (r *reader) leaf(flags byte) leaf {
	l := leaf{deleted: flags&flagDeleted != 0}
	l.seq = osier.Seq(r.uvarint())
	l.millis = int64(r.uvarint())
	l.rev = r.rev()
	if flags&flagParent != 0 {
		l.parent = r.digest(l.rev.Generation() - 1)
	}
	return l
}

func (r *reader) attachments() []osier.Attachment {
	n := r.count(leastAttachment)
	atts := make([]osier.Attachment, n)
	for i := range atts {
		a := &atts[i]
		a.Name, a.ContentType, a.Size = r.text(), r.text(), r.uvarint()
		copy(a.MD5[:], r.bytes(16))
		copy(a.SHA256[:], r.bytes(32))
		a.RevPos = r.uvarint()
		copy(a.Blob[:], r.bytes(16))
	}
	return atts
}

func (r *reader) version(flags byte) version {
	v := version{codec: osier.CodecTag(r.byte())}
	v.schema = uint32(r.uvarint())
	if flags&flagAttachments != 0 {
		v.atts = r.attachments()
	}
	if v.hasBody = flags&flagBody != 0; v.hasBody {
		v.body = r.b
	} else if len(r.b) > 0 {
		r.bad = true
	}
	return v
}

// header reads version byte and flags.
func (r *reader) header() (flags byte) {
	if r.byte() != recordVersion {
		r.bad = true
	}
	return r.byte()
}

// decodeDocument reads a document record into d, whose slices point into b.
func decodeDocument(b []byte, d *document) error {
	if d.plain(b) {
		return nil
	}
	return d.decode(b)
}

// decode reads any document record.
func (d *document) decode(b []byte) error {
	r := reader{b: b}
	f := r.header()
	d.winner = r.leaf(f)
	d.kept, d.losers = 0, nil
	if f&flagKept != 0 {
		d.kept = r.uvarint()
	}
	if f&flagLosers != 0 {
		n := r.count(leastLeaf)
		d.losers = make([]leaf, n)
		for i := range d.losers {
			d.losers[i] = r.leaf(r.byte())
		}
	}
	d.v = r.version(f)
	if r.bad || d.winner.rev.IsZero() {
		return fmt.Errorf("document: %w", errRecord)
	}
	return nil
}

// plain reads the records that nearly all are: one leaf with 16-byte digests and
// a body, no attachments, nothing kept. It reports false for any other, damaged
// ones among them, and leaves those to the general way.
func (d *document) plain(b []byte) bool {
	if len(b) < 2 || b[0] != recordVersion || b[1]&^flagParent != flagBody {
		return false
	}
	f, at := b[1], 2
	seq, n := shortUvarint(b, at)
	at += n
	millis, m := shortUvarint(b, at)
	at += m
	gen, k := shortUvarint(b, at)
	at += k
	if n == 0 || m == 0 || k == 0 || gen == 0 || len(b) < at+1+16 || b[at] != 0 {
		return false
	}
	w := &d.winner
	w.rev = osier.NewRev(gen, [16]byte(b[at+1:]))
	at += 1 + 16
	w.parent = osier.Rev{}
	if f&flagParent != 0 {
		if len(b) < at+1+16 || b[at] != 0 {
			return false
		}
		w.parent = osier.NewRev(gen-1, [16]byte(b[at+1:]))
		at += 1 + 16
	}
	// The codec and a schema version of one byte.
	if len(b) < at+2 || b[at+1] >= 0x80 {
		return false
	}
	w.deleted, w.seq, w.millis = false, osier.Seq(seq), int64(millis)
	d.kept, d.losers = 0, nil
	d.v = version{codec: osier.CodecTag(b[at]), schema: uint32(b[at+1]), hasBody: true, body: b[at+2:]}
	return true
}

// shortUvarint reads a number of up to seven bytes at b[at]; n is 0 if there is
// none.
func shortUvarint(b []byte, at int) (v uint64, n int) {
	for shift := 0; shift < 49 && at < len(b); shift += 7 {
		c := b[at]
		at++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, shift/7 + 1
		}
	}
	return 0, 0
}

func decodeVersion(b []byte) (l leaf, v version, err error) {
	r := reader{b: b}
	f := r.header()
	l.deleted = f&flagDeleted != 0
	l.seq, l.millis = osier.Seq(r.uvarint()), int64(r.uvarint())
	v = r.version(f)
	if r.bad {
		err = fmt.Errorf("version: %w", errRecord)
	}
	return l, v, err
}

// decodeNode reads an inner node whose revision is known from its key.
func decodeNode(b []byte, rev osier.Rev) (l leaf, absent bool, err error) {
	r := reader{b: b}
	f := r.header()
	l = leaf{rev: rev, deleted: f&flagDeleted != 0, seq: osier.Seq(r.uvarint()), millis: int64(r.uvarint())}
	if f&flagParent != 0 {
		l.parent = r.digest(rev.Generation() - 1)
	}
	if r.bad {
		err = fmt.Errorf("revision: %w", errRecord)
	}
	return l, f&flagAbsent != 0, err
}

// seqRecord is what the feed needs without a look at the document.
type seqRecord struct {
	id      osier.ID
	rev     osier.Rev
	deleted bool
}

func appendSeqRecord(dst []byte, id osier.ID, l *leaf) []byte {
	var f byte
	if l.deleted {
		f = flagDeleted
	}
	dst = append(dst, f)
	dst = appendRev(dst, l.rev)
	return append(dst, id.Key()...)
}

func decodeSeqRecord(b []byte) (s seqRecord, err error) {
	r := reader{b: b}
	s.deleted = r.byte()&flagDeleted != 0
	s.rev = r.rev()
	if r.bad || len(r.b) == 0 {
		return s, fmt.Errorf("sequence entry: %w", errRecord)
	}
	s.id = osier.TrustedID(r.b)
	return s, nil
}

// digestRecord counts the versions of a document that share an attachment.
type digestRecord struct {
	blob osier.BlobID
	refs uint64
}

func (d digestRecord) append(dst []byte) []byte {
	return binary.AppendUvarint(append(dst, d.blob[:]...), d.refs)
}

func decodeDigestRecord(b []byte) (d digestRecord, err error) {
	r := reader{b: b}
	copy(d.blob[:], r.bytes(16))
	d.refs = r.uvarint()
	if r.bad {
		err = fmt.Errorf("attachment digest: %w", errRecord)
	}
	return d, err
}

// dbState are a database's counters.
type dbState struct {
	lastSeq  osier.Seq
	millis   int64 // of the last command
	nextColl uint32
	results  uint64    // answers remembered so far
	drops    uint64    // collections dropped so far, which takes no sequence
	purged   osier.Seq // the last purge, which leaves no trace in the feed
}

func (s *dbState) append(dst []byte) []byte {
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, uint64(s.lastSeq))
	dst = binary.AppendUvarint(dst, uint64(s.millis))
	dst = binary.AppendUvarint(dst, uint64(s.nextColl))
	dst = binary.AppendUvarint(dst, s.results)
	return appendPurged(binary.AppendUvarint(dst, s.drops), s.purged)
}

func decodeDBState(b []byte) (s dbState, err error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	s.lastSeq, s.millis = osier.Seq(r.uvarint()), int64(r.uvarint())
	s.nextColl, s.results, s.drops = uint32(r.uvarint()), r.uvarint(), r.uvarint()
	s.purged = decodePurged(&r)
	if r.bad {
		err = fmt.Errorf("database counters: %w", errRecord)
	}
	return s, err
}

// collState is a collection's record.
type collState struct {
	num       uint32
	settings  osier.Settings
	count     uint64
	deleted   uint64
	bodyBytes uint64
	lastSeq   osier.Seq
	dirty     bool      // the writer has changed it since it was last written
	fresh     *freshIDs // nil until the first look
	split     bool      // was shown to splits.note
	reshaped  bool      // new, or its settings changed: readers must be told
	// shown is the last sequence that readers see; one for all copies.
	shown *atomic.Uint64
}

func (c *collState) append(dst []byte) []byte {
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, uint64(c.num))
	dst = append(dst, byte(c.settings.Codec))
	dst = binary.AppendVarint(dst, int64(c.settings.History))
	dst = binary.AppendUvarint(dst, uint64(c.settings.RevLimit))
	dst = binary.AppendUvarint(dst, uint64(c.settings.Schema))
	dst = binary.AppendUvarint(dst, c.count)
	dst = binary.AppendUvarint(dst, c.deleted)
	dst = binary.AppendUvarint(dst, c.bodyBytes)
	return binary.AppendUvarint(dst, uint64(c.lastSeq))
}

func (r *reader) varint() int64 {
	n, k := binary.Varint(r.b)
	if k <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[k:]
	return n
}

func decodeCollState(b []byte) (c collState, err error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	c.num = uint32(r.uvarint())
	c.settings.Codec = osier.CodecTag(r.byte())
	c.settings.History = osier.History(r.varint())
	c.settings.RevLimit, c.settings.Schema = uint32(r.uvarint()), uint32(r.uvarint())
	c.count, c.deleted, c.bodyBytes = r.uvarint(), r.uvarint(), r.uvarint()
	c.lastSeq = osier.Seq(r.uvarint())
	if r.bad {
		err = fmt.Errorf("collection: %w", errRecord)
	}
	return c, err
}

// dirRecord is a database's entry in the directory.
type dirRecord struct {
	num    uint32
	uuid   osier.UUID
	millis int64
}

func (d *dirRecord) append(dst []byte) []byte {
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, uint64(d.num))
	dst = append(dst, d.uuid[:]...)
	return binary.AppendUvarint(dst, uint64(d.millis))
}

func decodeDirRecord(b []byte) (d dirRecord, err error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	d.num = uint32(r.uvarint())
	copy(d.uuid[:], r.bytes(16))
	d.millis = int64(r.uvarint())
	if r.bad {
		err = fmt.Errorf("directory entry: %w", errRecord)
	}
	return d, err
}

// at makes a time of stored milliseconds; 0 is unknown.
func at(millis int64) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis).UTC()
}
