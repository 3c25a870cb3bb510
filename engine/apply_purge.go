package engine

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/osierdb/osier"
)

// removal is what a command takes away from a document without a new revision
// in its place. It must be the command's only operation on that document.
type removal struct {
	leaf   *editLeaf // to be purged; nil: only earlier bodies are dropped
	seq    osier.Seq // of the purge
	bodies bool      // drop the bodies of earlier versions
}

// remove judges an OpPurge or OpPrune.
func (r *run) remove(op *osier.Op) (osier.OpResult, error) {
	if r.collection(op.Collection, nil) == nil {
		return osier.OpResult{}, r.fail(op, osier.KindNotFound, "purge", "")
	}
	switch {
	case op.ID.IsZero():
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "purge", "no document id given")
	case op.Collection == osier.ViewsCollection:
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "purge", "a view is dropped by deleting its definition")
	}
	ed, err := r.edit(op)
	if err != nil {
		return osier.OpResult{}, err
	}
	switch {
	case ed.changed || ed.removal != nil:
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "purge", "it must be the command's only operation on its document")
	case !ed.existed:
		return osier.OpResult{}, r.fail(op, osier.KindNotFound, "purge", "")
	}
	out := osier.OpResult{ID: ed.id, Rev: op.Rev, Seq: ed.seq}
	if op.Kind == osier.OpPrune {
		out.Rev = ed.doc.winner.rev
		if ed.kept > 0 {
			ed.removal = &removal{bodies: true}
		}
		return out, nil
	}
	k := ed.leafOf(op.Rev)
	if k < 0 {
		return osier.OpResult{}, r.fail(op, osier.KindNotFound, "purge", "revision "+op.Rev.String()+" is no leaf of the document")
	}
	leaf := ed.leaves[k]
	ed.leaves = slices.Delete(ed.leaves, k, k+1)
	ed.removal = &removal{leaf: &leaf}
	ed.removal.seq = r.nextSeq(osier.TransactionChange{Collection: ed.name, ID: ed.id, Rev: op.Rev, Deleted: true})
	r.state.purged = ed.removal.seq
	out.Seq = ed.removal.seq
	return out, nil
}

// moves tells whether the document's winner may be another one, or none, after
// the command.
func (ed *edit) moves() bool { return ed.changed || ed.removal != nil && ed.removal.leaf != nil }

// purgedAfter lists the documents that were purged after one sequence and up to
// another: a view that follows the feed does not meet them there.
func purgedAfter(src source, db, coll uint32, since, last osier.Seq) (ids []osier.ID, err error) {
	it, err := src.NewIter(purgeKey(db, coll, since+1), purgeKey(db, coll, last+1))
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		id, err := osier.DecodeID(it.Value())
		if err != nil {
			return nil, corrupt("read purge", id, err)
		}
		ids = append(ids, id)
	}
	return ids, it.Error()
}

// flushRemoval writes what is left of the document.
func (ed *edit) flushRemoval(r *run) error {
	if ed.removal.bodies {
		if err := errors.Join(ed.pruneTo(r, 0), ed.flushBlobs(r)); err != nil {
			return err
		}
		d := ed.doc
		d.kept = ed.kept
		return ed.flushRecords(r, &d)
	}
	if err := errors.Join(ed.forgetLeaf(r), ed.forgetBranch(r)); err != nil {
		return err
	}
	ed.coll.lastSeq = max(ed.coll.lastSeq, ed.removal.seq)
	if err := r.a.b.Set(purgeKey(r.db.num, ed.coll.num, ed.removal.seq), ed.id.Encoded()); err != nil {
		return err
	}
	if len(ed.leaves) == 0 {
		return ed.flushGone(r)
	}
	w := ed.winner()
	win := &ed.leaves[w]
	if _, err := ed.version(r, win); err != nil {
		return err
	}
	if err := errors.Join(ed.flushLeaves(r, w), ed.flushBlobs(r)); err != nil {
		return err
	}
	d := ed.present(win)
	ed.count(win)
	return ed.flushRecords(r, &d)
}

// forgetLeaf drops what the purged leaf holds.
func (ed *edit) forgetLeaf(r *run) error {
	l := ed.removal.leaf
	v, err := ed.version(r, l)
	if err != nil {
		return err
	}
	if err := ed.release(r, v); err != nil || !l.stored {
		return err
	}
	return r.a.b.Delete(revKey(nil, r.db.num, ed.coll.num, spaceVersion, ed.id, l.rev))
}

// forgetBranch drops the inner nodes, and the bodies kept of them, that lead to
// no leaf any more.
func (ed *edit) forgetBranch(r *run) error {
	v := view{src: r.a.b, db: r.db}
	nodes, err := v.innerNodes(visibleColl{num: ed.coll.num}, ed.id)
	if err != nil {
		return err
	}
	leaves := make([]leaf, len(ed.leaves))
	for i := range ed.leaves {
		leaves[i] = ed.leaves[i].leaf
	}
	known := onPath(leaves, nodes, math.MaxUint64)
	lower, _ := revsRange(r.db.num, ed.coll.num, spaceAncestor, ed.id)
	for i := range nodes {
		if known[nodes[i].rev] {
			continue
		}
		key := revKey(nil, r.db.num, ed.coll.num, spaceAncestor, ed.id, nodes[i].rev)
		if err := errors.Join(r.a.b.Delete(key), ed.dropKept(r, key[len(lower):])); err != nil {
			return err
		}
	}
	return nil
}

// flushGone removes a document of which nothing is left.
func (ed *edit) flushGone(r *run) error {
	if err := ed.flushBlobs(r); err != nil {
		return err
	}
	c := ed.coll
	c.bodyBytes -= uint64(ed.size)
	if ed.live {
		c.count--
	} else {
		c.deleted--
	}
	c.dirty = true
	a := r.a
	a.key = seqKey(a.key[:0], r.db.num, c.num, ed.seq)
	if err := a.b.Delete(a.key); err != nil {
		return err
	}
	a.key = docKey(a.key[:0], r.db.num, c.num, ed.id)
	if a.many {
		a.wrote[string(a.key)] = struct{}{}
	}
	return a.b.Delete(a.key)
}

// decodePurged reads the counter that was added to the database's record
// later: the sequence of the last purge, 0 in older records.
func decodePurged(r *reader) osier.Seq {
	if r.bad || len(r.b) == 0 {
		return 0
	}
	return osier.Seq(r.uvarint())
}

// appendPurged writes it; a database without purges has its older form.
func appendPurged(dst []byte, seq osier.Seq) []byte {
	if seq == 0 {
		return dst
	}
	return binary.AppendUvarint(dst, uint64(seq))
}
