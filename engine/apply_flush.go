package engine

import (
	"errors"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/store"
)

// flush writes a changed document: its record, its place in the feed, the
// revisions and bodies beside it, the collection's counts.
func (ed *edit) flush(r *run) error {
	if ed.removal != nil {
		return ed.flushRemoval(r)
	}
	if !ed.changed {
		return nil
	}
	w := ed.winner()
	win := &ed.leaves[w]
	if _, err := ed.version(r, win); err != nil {
		return err
	}
	if err := errors.Join(ed.flushSuperseded(r), ed.flushLeaves(r, w), ed.flushNodes(r)); err != nil {
		return err
	}
	if err := errors.Join(ed.prune(r), ed.stem(r), ed.flushBlobs(r)); err != nil {
		return err
	}
	d := ed.present(win)
	ed.count(win)
	return ed.flushRecords(r, &d)
}

// present is the document's record as it will be.
func (ed *edit) present(win *editLeaf) document {
	d := document{winner: win.leaf, v: *win.v, kept: ed.kept}
	for i := range ed.leaves {
		if &ed.leaves[i] != win {
			d.losers = append(d.losers, ed.leaves[i].leaf)
		}
	}
	slices.SortFunc(d.losers, func(a, b leaf) int {
		if better(&a, &b) {
			return -1
		}
		return 1
	})
	return d
}

// flushRecords writes the document's record and moves it in the feed.
func (ed *edit) flushRecords(r *run, d *document) error {
	a, db := r.a, r.db.num
	if ed.existed {
		a.key = seqKey(a.key[:0], db, ed.coll.num, ed.seq)
		if err := a.b.Delete(a.key); err != nil {
			return err
		}
	}
	a.key = seqKey(a.key[:0], db, ed.coll.num, latest(d))
	a.buf = appendSeqRecord(a.buf[:0], ed.id, &d.winner)
	if err := a.b.Set(a.key, a.buf); err != nil {
		return err
	}
	a.key = docKey(a.key[:0], db, ed.coll.num, ed.id)
	if a.many {
		a.wrote[string(a.key)] = struct{}{}
	}
	a.buf = appendDocument(a.buf[:0], d)
	return a.b.Set(a.key, a.buf)
}

// flushSuperseded keeps the bodies of revisions that are no leaves any more,
// or drops them, as the collection says.
func (ed *edit) flushSuperseded(r *run) error {
	for i := range ed.superseded {
		s := &ed.superseded[i]
		key := revKey(nil, r.db.num, ed.coll.num, spaceVersion, ed.id, s.rev)
		v, err := ed.version(r, s)
		if err != nil {
			return err
		}
		empty := !v.hasBody && len(v.atts) == 0
		if ed.coll.settings.History != 0 && !empty {
			ed.kept++
			if !s.stored {
				r.a.buf = appendVersionRecord(r.a.buf[:0], &s.leaf, v)
				err = r.a.b.Set(key, r.a.buf)
			}
		} else {
			err = ed.release(r, v)
			if err == nil && s.stored {
				err = r.a.b.Delete(key)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flushLeaves keeps the winner's body in the document's record and every other
// leaf's in a record of its own.
func (ed *edit) flushLeaves(r *run, w int) error {
	for i := range ed.leaves {
		l := &ed.leaves[i]
		if (i != w) == l.stored {
			continue
		}
		key := revKey(nil, r.db.num, ed.coll.num, spaceVersion, ed.id, l.rev)
		var err error
		if l.stored {
			err = r.a.b.Delete(key)
		} else {
			r.a.buf = appendVersionRecord(r.a.buf[:0], &l.leaf, l.v)
			err = r.a.b.Set(key, r.a.buf)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (ed *edit) flushNodes(r *run) error {
	for i := range ed.nodes {
		n := &ed.nodes[i]
		r.a.key = revKey(r.a.key[:0], r.db.num, ed.coll.num, spaceAncestor, ed.id, n.rev)
		r.a.buf = appendNode(r.a.buf[:0], &n.leaf, n.absent)
		if err := r.a.b.Set(r.a.key, r.a.buf); err != nil {
			return err
		}
	}
	return nil
}

// prune drops the oldest bodies beyond the collection's history: of the lowest
// generation, and of one generation those that lose.
func (ed *edit) prune(r *run) error {
	if limit := ed.coll.settings.History; limit >= 0 {
		return ed.pruneTo(r, uint64(limit))
	}
	return nil
}

// pruneTo drops the oldest bodies beyond limit.
func (ed *edit) pruneTo(r *run, limit uint64) error {
	if ed.kept <= limit {
		return nil
	}
	old, err := ed.oldest(r, ed.kept-limit)
	if err != nil {
		return err
	}
	for _, k := range old {
		_, v, err := decodeVersion(k.value)
		if err != nil {
			return corrupt("read version", ed.id, err)
		}
		if err := errors.Join(ed.release(r, &v), r.a.b.Delete(k.key)); err != nil {
			return err
		}
		ed.kept--
	}
	return nil
}

// keptBody is the record of an earlier version.
type keptBody struct {
	rev        osier.Rev
	key, value []byte
}

// oldest returns the n oldest kept bodies. Keys are in order of generations, but
// within one not in that of revisions, so it is read to its end.
func (ed *edit) oldest(r *run, n uint64) ([]keptBody, error) {
	lower, upper := revsRange(r.db.num, ed.coll.num, spaceVersion, ed.id)
	it, err := r.a.b.NewIter(lower, upper)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var old []keptBody
	for ok := it.First(); ok; ok = it.Next() {
		rev, ok := revOfKey(it.Key()[len(lower):])
		if !ok {
			return nil, corrupt("read version", ed.id, errRecord)
		}
		if ed.leafOf(rev) >= 0 {
			continue
		}
		if uint64(len(old)) >= n && rev.Generation() > old[len(old)-1].rev.Generation() {
			break
		}
		old = append(old, keptBody{rev, slices.Clone(it.Key()), slices.Clone(it.Value())})
	}
	slices.SortFunc(old, func(a, b keptBody) int { return a.rev.Compare(b.rev) })
	return old[:min(n, uint64(len(old)))], it.Error()
}

// stemEvery is how many generations pass between two cuts of the ancestry, so
// that their cost is shared. Each cut looks at the last two stretches, and once
// in a while at all, since a graft or a lower limit may have left more.
const (
	stemEvery = 32
	stemAll   = 1024
)

// stem forgets ancestors beyond the collection's limit, with the bodies that are
// kept of them. Paths are cut exactly when they are read.
func (ed *edit) stem(r *run) error {
	least := ed.leaves[0].rev.Generation()
	for i := range ed.leaves {
		least = min(least, ed.leaves[i].rev.Generation())
	}
	limit, all := ancestorsKept(&ed.coll.settings)
	if all || least <= limit+1 || least%stemEvery != 0 {
		return nil
	}
	lower, _ := revsRange(r.db.num, ed.coll.num, spaceAncestor, ed.id)
	from := lower
	if least%stemAll != 0 && least-limit > 2*stemEvery {
		// What is older was cut before; walking over its remains is not free.
		from = generationKey(r.db.num, ed.coll.num, spaceAncestor, ed.id, least-limit-2*stemEvery)
	}
	it, err := r.a.b.NewIter(from, generationKey(r.db.num, ed.coll.num, spaceAncestor, ed.id, least-limit))
	if err != nil {
		return err
	}
	defer it.Close()
	var drop [][]byte
	for ok := it.First(); ok; ok = it.Next() {
		drop = append(drop, slices.Clone(it.Key()))
	}
	if err := it.Error(); err != nil {
		return err
	}
	for _, key := range drop {
		if err := r.a.b.Delete(key); err != nil {
			return err
		}
		if err := ed.dropKept(r, key[len(lower):]); err != nil {
			return err
		}
	}
	return nil
}

// dropKept drops the kept body of an ancestor that is forgotten, if there is
// one. tail is the revision's part of its key.
func (ed *edit) dropKept(r *run, tail []byte) error {
	if ed.kept == 0 {
		return nil
	}
	lower, _ := revsRange(r.db.num, ed.coll.num, spaceVersion, ed.id)
	key := append(lower, tail...)
	b, closer, err := r.a.b.Get(key)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	_, v, err := decodeVersion(b)
	if err == nil {
		err = ed.release(r, &v)
	} else {
		err = corrupt("read version", ed.id, err)
	}
	closer.Close()
	if err != nil {
		return err
	}
	ed.kept--
	return r.a.b.Delete(key)
}

func revLimit(s *osier.Settings) uint64 {
	if s.RevLimit == 0 {
		return osier.DefaultRevLimit
	}
	return uint64(s.RevLimit)
}

// onPath tells which inner nodes are known: those on a path from a leaf, as far
// as the limit. Others are only waiting to be cut.
func onPath(leaves []leaf, nodes []node, limit uint64) map[osier.Rev]bool {
	parents := make(map[osier.Rev]osier.Rev, len(nodes))
	for i := range nodes {
		parents[nodes[i].rev] = nodes[i].parent
	}
	known := make(map[osier.Rev]bool, len(nodes))
	for i := range leaves {
		rev := leaves[i].parent
		for n := uint64(0); n < limit && !rev.IsZero(); n++ {
			parent, ok := parents[rev]
			if !ok {
				break
			}
			known[rev] = true
			rev = parent
		}
	}
	return known
}

// ancestorsKept is how many generations below a leaf stay known: none is
// forgotten whose body is kept.
func ancestorsKept(s *osier.Settings) (limit uint64, all bool) {
	return max(revLimit(s), uint64(max(s.History, 0))), s.History < 0
}

// count keeps the collection's numbers.
func (ed *edit) count(win *editLeaf) {
	c := ed.coll
	if ed.existed {
		c.bodyBytes -= uint64(ed.size)
		if ed.live {
			c.count--
		} else {
			c.deleted--
		}
	}
	c.bodyBytes += uint64(len(win.v.body))
	if win.deleted {
		c.deleted++
	} else {
		c.count++
	}
	c.lastSeq = max(c.lastSeq, ed.place())
	c.dirty = true
}

// blobRange bounds an attachment's chunks.
func blobRange(db uint32, blob osier.BlobID) (lower, upper []byte) {
	lower = blobKey(db, blob)
	return lower, keys.PrefixEnd(lower)
}
