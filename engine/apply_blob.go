package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// digestEdit is the sharing of one attachment's bytes by a document's stored
// versions, as it will be.
type digestEdit struct {
	sum    [32]byte
	was    digestRecord
	blob   osier.BlobID
	change int64
}

func (d *digestEdit) refs() int64 { return int64(d.was.refs) + d.change }

// stagedUse is a staged blob that a new revision took; drop says that its
// bytes were there already.
type stagedUse struct {
	blob osier.BlobID
	drop bool
}

// stagedRecord describes staged bytes.
type stagedRecord struct {
	size   uint64
	md5    [16]byte
	sha256 [32]byte
}

func (s *stagedRecord) append(dst []byte) []byte {
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, s.size)
	dst = append(dst, s.md5[:]...)
	return append(dst, s.sha256[:]...)
}

func decodeStaged(b []byte) (s stagedRecord, err error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	s.size = r.uvarint()
	copy(s.md5[:], r.bytes(16))
	copy(s.sha256[:], r.bytes(32))
	if r.bad {
		err = fmt.Errorf("staged attachment: %w", errRecord)
	}
	return s, err
}

const defaultContentType = "application/octet-stream"

// attachments works out the list of a new revision's attachments. from is the
// parent's version, nil without one.
func (ed *edit) attachments(r *run, op *osier.Op, from *version, gen uint64) ([]osier.Attachment, error) {
	var list, parents []osier.Attachment
	if from != nil {
		parents = from.atts
	}
	if op.KeepAttachments {
		list = slices.Clone(parents)
	}
	for i := range op.Attachments {
		ref := &op.Attachments[i]
		named := func(a osier.Attachment) bool { return a.Name == ref.Name }
		if ref.Remove {
			k := slices.IndexFunc(list, named)
			if k < 0 {
				return nil, r.fail(op, osier.KindNotFound, "detach "+ref.Name, "the document has no such attachment")
			}
			list = slices.Delete(list, k, k+1)
			continue
		}
		att, err := ed.attachment(r, op, ref, parents, gen)
		if err != nil {
			return nil, err
		}
		if k := slices.IndexFunc(list, named); k >= 0 {
			list[k] = att
		} else {
			list = append(list, att)
		}
	}
	return list, nil
}

func (ed *edit) attachment(r *run, op *osier.Op, ref *osier.AttachmentRef, parents []osier.Attachment, gen uint64) (osier.Attachment, error) {
	if ref.Stub {
		for _, a := range parents {
			if a.Name == ref.Name && (ref.RevPos == 0 || ref.RevPos == a.RevPos) {
				return a, nil
			}
		}
		return osier.Attachment{}, r.fail(op, osier.KindInvalid, "attach "+ref.Name, "missing stub: the parent revision has no such attachment")
	}
	unknown := func() error {
		return r.fail(op, osier.KindInvalid, "attach "+ref.Name, "its bytes have not been staged, or were taken already")
	}
	if slices.Contains(r.staged, ref.Staged) {
		return osier.Attachment{}, unknown()
	}
	b, closer, err := r.a.b.Get(stagedKey(r.db.num, ref.Staged))
	if errors.Is(err, store.ErrNotFound) {
		return osier.Attachment{}, unknown()
	}
	if err != nil {
		return osier.Attachment{}, err
	}
	defer closer.Close()
	s, err := decodeStaged(b)
	if err != nil {
		return osier.Attachment{}, corrupt("attach", ed.id, err)
	}
	att := osier.Attachment{Name: ref.Name, ContentType: ref.ContentType, Size: s.size, MD5: s.md5, SHA256: s.sha256, RevPos: gen, Blob: ref.Staged}
	if att.ContentType == "" {
		att.ContentType = defaultContentType
	}
	if op.Kind == osier.OpGraft && ref.RevPos > 0 {
		att.RevPos = ref.RevPos
	}
	return att, nil
}

// digestOf finds or loads the sharing of a digest's bytes.
func (ed *edit) digestOf(r *run, sum [32]byte) (*digestEdit, error) {
	for i := range ed.digests {
		if ed.digests[i].sum == sum {
			return &ed.digests[i], nil
		}
	}
	d := digestEdit{sum: sum}
	b, closer, err := r.a.b.Get(digestKey(r.db.num, ed.coll.num, ed.id, sum))
	switch {
	case err == nil:
		d.was, err = decodeDigestRecord(b)
		closer.Close()
		if err != nil {
			return nil, corrupt("attach", ed.id, err)
		}
		d.blob = d.was.blob
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	ed.digests = append(ed.digests, d)
	return &ed.digests[len(ed.digests)-1], nil
}

// take counts a new version's attachments: equal bytes of a document are
// stored once.
func (ed *edit) take(r *run, v *version) error {
	for i := range v.atts {
		a := &v.atts[i]
		d, err := ed.digestOf(r, a.SHA256)
		if err != nil {
			return err
		}
		fresh := d.refs() == 0 && d.blob != a.Blob
		if fresh {
			d.blob = a.Blob
		}
		d.change++
		if a.Blob == d.blob && !fresh {
			continue
		}
		ed.staged = append(ed.staged, stagedUse{a.Blob, !fresh})
		r.staged = append(r.staged, a.Blob)
		a.Blob = d.blob
	}
	return nil
}

// release uncounts the attachments of a version that is dropped.
func (ed *edit) release(r *run, v *version) error {
	for i := range v.atts {
		d, err := ed.digestOf(r, v.atts[i].SHA256)
		if err != nil {
			return err
		}
		d.change--
	}
	return nil
}

// flushBlobs writes the counts, and drops the bytes that nothing shows any more.
func (ed *edit) flushBlobs(r *run) error {
	b, db := r.a.b, r.db.num
	for _, s := range ed.staged {
		if err := b.Delete(stagedKey(db, s.blob)); err != nil {
			return err
		}
		if s.drop {
			if err := dropBlob(b, db, s.blob); err != nil {
				return err
			}
		}
	}
	for i := range ed.digests {
		d := &ed.digests[i]
		key := digestKey(db, ed.coll.num, ed.id, d.sum)
		var err error
		switch {
		case d.refs() <= 0 && !d.blob.IsZero():
			err = errors.Join(b.Delete(key), dropBlob(b, db, d.blob))
		case d.change != 0:
			err = b.Set(key, digestRecord{d.blob, uint64(d.refs())}.append(nil))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func dropBlob(b *store.Batch, db uint32, blob osier.BlobID) error {
	lower, upper := blobRange(db, blob)
	return b.DeleteRange(lower, upper)
}

// dropBlobs drops the attachment bytes of a collection's documents, which lie
// outside the collection's range. Cost: a read of the digests' records.
func (r *run) dropBlobs(coll uint32) error {
	var blobs []osier.BlobID
	err := scanPrefix(r.a.b, prefix(nil, r.db.num, coll, spaceDigest), func(_, value []byte) error {
		d, err := decodeDigestRecord(value)
		blobs = append(blobs, d.blob)
		return err
	})
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		if err := dropBlob(r.a.b, r.db.num, blob); err != nil {
			return err
		}
	}
	return nil
}
