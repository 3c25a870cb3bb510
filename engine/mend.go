package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/store"
)

// mender reads salvaged records from a snapshot and writes what is to change.
type mender struct {
	ctx  context.Context
	src  *store.Snapshot
	w    *rewriter
	lost func(Problem)

	num   uint32 // of the database being mended
	name  string
	state dbState
	blobs map[osier.BlobID]bool // its attachments' bytes that are in use

	coll     *collState
	collName string
	lacking  map[osier.ID]bool // its documents that were reported as lost or older
}

func (m *mender) say(id osier.ID, format string, args ...any) {
	m.lost(Problem{DB: m.name, Collection: m.collName, ID: id.String(), Offset: -1, Err: fmt.Errorf(format, args...)})
}

// databases mends every database that has a name or any record. It returns the
// highest number in use.
func (m *mender) databases(names map[uint32]string) (last uint32, err error) {
	err = m.numbers([]byte{keyDatabase}, func(num uint32) error {
		if _, ok := names[num]; ok {
			return nil
		}
		name := fmt.Sprintf("recovered_%d", num)
		names[num] = name
		m.lost(Problem{DB: name, Offset: -1, Err: errors.New("the name of this database is lost")})
		dir := dirRecord{num: num}
		binary.BigEndian.PutUint32(dir.uuid[12:], num)
		return m.w.set(directoryKey(name), dir.append(nil))
	})
	if err != nil {
		return 0, err
	}
	for num, name := range names {
		last = max(last, num)
		m.num, m.name, m.collName = num, name, ""
		if err := m.database(); err != nil {
			return 0, err
		}
	}
	return last, nil
}

// numbers calls fn with each 4-byte number that follows lower in a key.
func (m *mender) numbers(lower []byte, fn func(uint32) error) error {
	it, err := m.src.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		k := it.Key()
		if len(k) < len(lower)+4 {
			ok = it.Next()
			continue
		}
		num := binary.BigEndian.Uint32(k[len(lower):])
		if err := fn(num); err != nil {
			return err
		}
		ok = it.SeekGE(keys.PrefixEnd(k[:len(lower)+4]))
	}
	return it.Error()
}

func (m *mender) database() error {
	m.blobs = map[osier.BlobID]bool{}
	if err := m.counters(); err != nil {
		return err
	}
	colls, err := m.collections()
	if err != nil {
		return err
	}
	if err := m.dropViews(colls); err != nil {
		return err
	}
	for num, c := range colls {
		m.coll, m.collName = c.collState, c.name
		m.state.nextColl = max(m.state.nextColl, num)
		if err := m.collection(); err != nil {
			return err
		}
		m.state.lastSeq = max(m.state.lastSeq, m.coll.lastSeq)
		if err := m.w.set(collectionKey(m.num, c.name), c.append(nil)); err != nil {
			return err
		}
	}
	m.collName = ""
	err = scanPrefix(m.src, prefix(nil, m.num, 0, spaceTx), func(tail, value []byte) error {
		if len(tail) == 8 {
			tx, err := decodeTx(osier.Seq(binary.BigEndian.Uint64(tail)), value)
			if err == nil {
				m.state.lastSeq = max(m.state.lastSeq, tx.Last)
				return nil
			}
		}
		m.say(osier.ID{}, "an entry of the list of transactions is damaged")
		return m.w.delete(append(prefix(nil, m.num, 0, spaceTx), tail...))
	})
	if err != nil {
		return err
	}
	if err := m.dropBlobs(); err != nil {
		return err
	}
	return m.w.set(stateKey(m.num), m.state.append(nil))
}

// counters reads the database's counters; lost ones are found again from the
// records, and the remembered answers of sessions, which need them, are given
// up.
func (m *mender) counters() error {
	m.state = dbState{}
	b, closer, err := m.src.Get(stateKey(m.num))
	if err == nil {
		m.state, err = decodeDBState(b)
		closer.Close()
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, errRecord) {
		return err
	}
	m.say(osier.ID{}, "the counters are lost; they are derived anew")
	for _, space := range []byte{spaceResult, spaceResultRing} {
		lower := prefix(nil, m.num, 0, space)
		if err := m.w.deleteRange(lower, keys.PrefixEnd(lower)); err != nil {
			return err
		}
	}
	return nil
}

type namedColl struct {
	*collState
	name string
}

// collections finds the collections by their records, and by the keys of
// documents whose collection's record is lost.
func (m *mender) collections() (map[uint32]namedColl, error) {
	colls := map[uint32]namedColl{}
	lower := prefix(nil, m.num, 0, spaceCollection)
	err := scanPrefix(m.src, lower, func(tail, value []byte) error {
		c, err := decodeCollState(value)
		if err != nil {
			m.lost(Problem{DB: m.name, Collection: string(tail), Offset: -1, Err: errors.New("its settings are lost")})
			return m.w.delete(append(slices.Clone(lower), tail...))
		}
		colls[c.num] = namedColl{&c, string(tail)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	base, _ := databaseRange(m.num)
	err = m.numbers(base, func(num uint32) error {
		if _, ok := colls[num]; !ok && num > 0 {
			name := fmt.Sprintf("recovered-%d", num)
			m.lost(Problem{DB: m.name, Collection: name, Offset: -1, Err: errors.New("the name of this collection is lost")})
			colls[num] = namedColl{&collState{num: num, settings: osier.Settings{Codec: osier.TagJSON}}, name}
		}
		return nil
	})
	return colls, err
}

// collection mends the documents, and derives the feed and the counts anew.
func (m *mender) collection() error {
	c := m.coll
	c.count, c.deleted, c.bodyBytes = 0, 0, 0
	m.lacking = map[osier.ID]bool{}
	lower := prefix(nil, m.num, c.num, spaceSeq)
	if err := m.w.deleteRange(lower, keys.PrefixEnd(lower)); err != nil {
		return err
	}
	err := scanPrefix(m.src, prefix(nil, m.num, c.num, spaceDoc), func(tail, value []byte) error {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		id, err := osier.DecodeID(tail)
		var d document
		if err == nil {
			err = decodeDocument(value, &d)
		}
		if err != nil {
			m.lacks(id, "the document is damaged: %w", err)
			return m.w.delete(append(prefix(nil, m.num, c.num, spaceDoc), tail...))
		}
		return m.document(id, &d)
	})
	if err != nil {
		return err
	}
	// Documents that the feed knows and that are not there, or older.
	err = scanPrefix(m.src, lower, func(tail, value []byte) error {
		s, err := decodeSeqRecord(value)
		if err != nil || len(tail) != 8 {
			return nil // the feed is derived anew
		}
		at, found, err := m.place(s.id)
		switch {
		case err != nil:
			return err
		case !found:
			m.lacks(s.id, "the document is lost; it was at revision %v", s.rev)
		case uint64(at) < binary.BigEndian.Uint64(tail):
			m.lacks(s.id, "the document is older again; its revision %v is lost", s.rev)
		}
		return nil
	})
	for _, space := range []byte{spaceAncestor, spaceVersion, spaceDigest} {
		err = errors.Join(err, m.sweep(space))
	}
	return err
}

// lacks reports, once, that a document or its newest revision is lost.
func (m *mender) lacks(id osier.ID, format string, args ...any) {
	if !m.lacking[id] {
		m.lacking[id] = true
		m.say(id, format, args...)
	}
}

// place is where a document stands in the feed; found is false if its record is
// lost or damaged.
func (m *mender) place(id osier.ID) (at osier.Seq, found bool, err error) {
	v := view{src: m.src, db: &database{num: m.num}}
	var d document
	found, closer, err := v.doc(m.coll.num, id, &d)
	if found {
		at = latest(&d)
		closer.Close()
	}
	if osier.KindOf(err) == osier.KindCorrupt {
		err = nil
	}
	return at, found, err
}

// sweep drops what belongs to documents that are not there, which would come up
// again with new documents of their ids.
func (m *mender) sweep(space byte) error {
	lower := prefix(nil, m.num, m.coll.num, space)
	it, err := m.src.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok && m.ctx.Err() == nil; {
		tail := it.Key()[len(lower):]
		n, err := keys.Skip(tail)
		if err != nil || n == 0 {
			if err := m.w.delete(it.Key()); err != nil {
				return err
			}
			ok = it.Next()
			continue
		}
		id := osier.TrustedID(slices.Clone(tail[:n]))
		_, found, err := m.place(id)
		if err != nil {
			return err
		}
		if !found {
			m.lacks(id, "the document is lost")
			if err := m.strays(id); err != nil {
				return err
			}
		}
		_, next := revsRange(m.num, m.coll.num, space, id)
		ok = it.SeekGE(next)
	}
	return errors.Join(it.Error(), m.ctx.Err())
}

// strays drops what belonged to a lost document.
func (m *mender) strays(id osier.ID) error {
	for _, space := range []byte{spaceAncestor, spaceVersion, spaceDigest} {
		lower, upper := revsRange(m.num, m.coll.num, space, id)
		if err := m.w.deleteRange(lower, upper); err != nil {
			return err
		}
	}
	return nil
}

// document mends one document and counts it.
func (m *mender) document(id osier.ID, d *document) error {
	r := &mending{m: m, id: id, d: d, refs: map[[32]byte]uint64{}, blob: map[[32]byte]osier.BlobID{}}
	if err := r.digests(); err != nil {
		return err
	}
	if err := r.versions(); err != nil {
		return err
	}
	r.attachments(&d.v)
	if err := r.write(); err != nil {
		return err
	}
	c := m.coll
	c.bodyBytes += uint64(len(d.v.body))
	if d.winner.deleted {
		c.deleted++
	} else {
		c.count++
	}
	c.lastSeq = max(c.lastSeq, latest(d))
	return m.w.set(seqKey(nil, m.num, c.num, latest(d)), appendSeqRecord(nil, id, &d.winner))
}

// mending is one document being mended.
type mending struct {
	m    *mender
	id   osier.ID
	d    *document
	refs map[[32]byte]uint64
	blob map[[32]byte]osier.BlobID // attachments' bytes that are whole
}

// digests finds which attachment bytes are whole.
func (r *mending) digests() error {
	m := r.m
	lower := append(prefix(nil, m.num, m.coll.num, spaceDigest), r.id.Key()...)
	return scanPrefix(m.src, lower, func(tail, value []byte) error {
		d, err := decodeDigestRecord(value)
		if err == nil && len(tail) == 32 {
			c := checker{src: m.src, db: &database{num: m.num}}
			if err = c.whole(d.blob, [32]byte(tail)); err == nil {
				r.blob[[32]byte(tail)] = d.blob
				return nil
			}
		}
		return m.w.delete(append(slices.Clone(lower), tail...))
	})
}

// versions keeps the bodies of known revisions, and drops leaves that lost
// theirs.
func (r *mending) versions() error {
	m := r.m
	v := view{src: m.src, db: &database{num: m.num}}
	nodes, err := v.innerNodes(visibleColl{num: m.coll.num}, r.id)
	if err != nil {
		m.say(r.id, "its ancestry is damaged and dropped: %w", err)
		nodes = nil
		lower, upper := revsRange(m.num, m.coll.num, spaceAncestor, r.id)
		if err := m.w.deleteRange(lower, upper); err != nil {
			return err
		}
	}
	if nodes, err = r.ancestry(nodes); err != nil {
		return err
	}
	whole := map[osier.Rev]bool{}
	r.d.kept = 0
	lower, _ := revsRange(m.num, m.coll.num, spaceVersion, r.id)
	err = scanPrefix(m.src, lower, func(tail, value []byte) error {
		rev, ok := revOfKey(tail)
		l, ver, err := decodeVersion(value)
		inner := slices.ContainsFunc(nodes, func(n node) bool { return n.rev == rev })
		leaf := slices.ContainsFunc(r.d.losers, func(l leaf) bool { return l.rev == rev })
		key := append(slices.Clone(lower), tail...)
		if !ok || err != nil || !inner && !leaf {
			if leaf || inner {
				m.say(r.id, "the body of revision %v is damaged", rev)
			}
			return m.w.delete(key)
		}
		if whole[rev] = true; inner {
			r.d.kept++
		}
		if !r.attachments(&ver) {
			return nil
		}
		return m.w.set(key, appendVersionRecord(nil, &l, &ver))
	})
	r.d.losers = slices.DeleteFunc(r.d.losers, func(l leaf) bool {
		if !whole[l.rev] {
			m.say(r.id, "the conflicting revision %v is lost", l.rev)
		}
		return !whole[l.rev]
	})
	return err
}

// ancestry drops the nodes that stand at or after a leaf: they belong to
// revisions that are lost, and the document's record is an older one.
func (r *mending) ancestry(nodes []node) (kept []node, err error) {
	m := r.m
	leaves, newest := map[osier.Rev]bool{r.d.winner.rev: true}, r.d.winner.rev.Generation()
	for i := range r.d.losers {
		leaves[r.d.losers[i].rev] = true
		newest = max(newest, r.d.losers[i].rev.Generation())
	}
	parents := make(map[osier.Rev]osier.Rev, len(nodes))
	for i := range nodes {
		parents[nodes[i].rev] = nodes[i].parent
	}
	for _, n := range nodes {
		rev := n.rev
		for !rev.IsZero() && !leaves[rev] {
			rev = parents[rev]
		}
		if rev.IsZero() && n.rev.Generation() <= newest {
			kept = append(kept, n)
			continue
		}
		m.lacks(r.id, "the document is older again; what came after revision %v is lost", r.d.winner.rev)
		if err := m.w.delete(revKey(nil, m.num, m.coll.num, spaceAncestor, r.id, n.rev)); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// attachments drops those whose bytes are lost and counts the others. It tells
// whether the version changed.
func (r *mending) attachments(v *version) (changed bool) {
	kept := v.atts[:0:0]
	for _, a := range v.atts {
		blob, ok := r.blob[a.SHA256]
		if !ok {
			r.m.say(r.id, "the bytes of attachment %q are lost", a.Name)
			changed = true
			continue
		}
		if a.Blob != blob {
			a.Blob, changed = blob, true
		}
		r.refs[a.SHA256]++
		kept = append(kept, a)
	}
	v.atts = kept
	return changed
}

func (r *mending) write() error {
	m := r.m
	for sum, blob := range r.blob {
		key := digestKey(m.num, m.coll.num, r.id, sum)
		var err error
		if r.refs[sum] > 0 {
			m.blobs[blob] = true
			err = m.w.set(key, digestRecord{blob, r.refs[sum]}.append(nil))
		} else {
			err = m.w.delete(key)
		}
		if err != nil {
			return err
		}
	}
	return m.w.set(docKey(nil, m.num, m.coll.num, r.id), appendDocument(nil, r.d))
}

// dropBlobs drops attachment bytes that no document shows any more.
func (m *mender) dropBlobs() error {
	lower := prefix(nil, m.num, 0, spaceBlob)
	it, err := m.src.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		if len(it.Key()) < len(lower)+16 {
			ok = it.Next()
			continue
		}
		blob := osier.BlobID(it.Key()[len(lower):])
		from, next := blobRange(m.num, blob)
		if !m.blobs[blob] {
			if err := m.w.deleteRange(from, next); err != nil {
				return err
			}
		}
		ok = it.SeekGE(next)
	}
	return it.Error()
}
