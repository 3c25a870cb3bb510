package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/store"
)

// Problem is one thing that Check or Repair found wrong.
type Problem struct {
	DB, Collection, ID string
	File               string // of the folder, when a file's bytes are damaged
	Offset             int64  // in File; -1: the file as a whole
	Err                error
}

// String says where and what.
func (p Problem) String() string {
	where := p.File
	if p.File != "" && p.Offset >= 0 {
		where = fmt.Sprintf("%s at offset %d", p.File, p.Offset)
	}
	if p.DB != "" {
		where = p.DB
		if p.Collection != "" && p.Collection != osier.DefaultCollection {
			where += ":" + p.Collection
		}
		if p.ID != "" {
			where += "/" + p.ID
		}
	}
	if where == "" {
		return p.Err.Error()
	}
	return where + ": " + p.Err.Error()
}

// CheckReport counts what Check looked at.
type CheckReport struct {
	Databases, Collections, Documents, Revisions, Attachments, Views, Bytes uint64
	Journals, Events                                                        uint64
	Keys, Elements                                                          uint64 // of key-values
	Problems                                                                int
}

// Check reads everything: every block's checksum, and every invariant between
// the records of one state. Each problem is reported as it is found, in calls
// one after the other; the error is for a check that could not go on. Reads and
// writes go on meanwhile. Cost: a read of the whole store.
func (e *Engine) Check(ctx context.Context, report func(Problem)) (CheckReport, error) {
	if err := e.open("check"); err != nil {
		return CheckReport{}, err
	}
	for _, db := range *e.dbs.Load() {
		if err := e.settleKV(ctx, db); err != nil {
			return CheckReport{}, e.storeError("check", err)
		}
	}
	c := &checker{ctx: ctx, report: report}
	err := e.store.Verify(ctx, func(d store.Damage) {
		c.problem(Problem{File: d.File, Offset: d.Offset, Err: fmt.Errorf("%w%s", d.Err, keyRange(d.Keys))})
	})
	if err != nil {
		return c.out, e.storeError("check", err)
	}
	snap, err := e.store.NewSnapshot()
	if err != nil {
		return c.out, e.storeError("check", err)
	}
	defer snap.Close()
	c.src = snap
	dbs := *e.dbs.Load()
	for _, name := range slices.Sorted(maps.Keys(dbs)) {
		c.db = dbs[name]
		c.out.Databases++
		if err := c.database(); err != nil {
			if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				return c.out, e.storeError("check", err)
			}
			c.here("", osier.ID{}, err)
		}
	}
	return c.out, nil
}

func keyRange(k store.KeyRange) string {
	if k.After == nil && k.Before == nil {
		return ""
	}
	return fmt.Sprintf(" (keys between %q and %q)", k.After, k.Before)
}

type checker struct {
	ctx    context.Context
	src    source
	db     *database
	report func(Problem)
	out    CheckReport

	// Of the collection being checked.
	name string
	coll *collState
	sums map[[32]byte]uint64 // scratch: references of one document's attachments
}

func (c *checker) problem(p Problem) {
	c.out.Problems++
	if c.report != nil {
		c.report(p)
	}
}

func (c *checker) here(coll string, id osier.ID, err error) {
	c.problem(Problem{DB: c.db.name, Collection: coll, ID: id.String(), Offset: -1, Err: err})
}

func (c *checker) wrong(id osier.ID, format string, args ...any) {
	c.here(c.name, id, fmt.Errorf(format, args...))
}

func (c *checker) database() error {
	colls, err := readColls(c.src, c.db.num)
	if err != nil {
		return err
	}
	last, err := lastSeq(c.src, c.db.num)
	if err != nil {
		return err
	}
	blobs := map[osier.BlobID]bool{}
	for _, name := range slices.Sorted(maps.Keys(colls)) {
		c.out.Collections++
		c.name, c.coll = name, colls[name]
		if c.coll.lastSeq > last {
			c.wrong(osier.ID{}, "its last sequence %d is after the database's %d", c.coll.lastSeq, last)
		}
		if err := c.collection(blobs); err != nil {
			return err
		}
	}
	c.name = ""
	if err := c.views(colls); err != nil {
		return err
	}
	err = scanPrefix(c.src, prefix(nil, c.db.num, 0, spaceTx), func(tail, value []byte) error {
		if len(tail) != 8 {
			return errRecord
		}
		tx, err := decodeTx(osier.Seq(binary.BigEndian.Uint64(tail)), value)
		if err != nil {
			return fmt.Errorf("transaction: %w", err)
		}
		if tx.Last > last || tx.Last-tx.First+1 != osier.Seq(len(tx.Changes)) {
			c.here("", osier.ID{}, fmt.Errorf("transaction %d to %d does not fit", tx.First, tx.Last))
		}
		return c.ctx.Err()
	})
	if err != nil {
		return err
	}
	return errors.Join(c.orphans(blobs), c.keyValues(), c.journals())
}

// orphans looks for attachment bytes that no document knows.
func (c *checker) orphans(known map[osier.BlobID]bool) error {
	lower := prefix(nil, c.db.num, 0, spaceBlob)
	it, err := c.src.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		if len(it.Key()) != len(lower)+20 {
			return errRecord
		}
		blob := osier.BlobID(it.Key()[len(lower):])
		if !known[blob] {
			_, closer, err := c.src.Get(stagedKey(c.db.num, blob))
			if err == nil {
				closer.Close()
			} else {
				c.here("", osier.ID{}, fmt.Errorf("attachment bytes %x belong to no document", blob))
			}
		}
		_, next := blobRange(c.db.num, blob)
		ok = it.SeekGE(next)
	}
	return it.Error()
}

// collection checks every document against all that belongs to it. Whatever
// cannot be read is reported, and the rest is gone through.
func (c *checker) collection(blobs map[osier.BlobID]bool) error {
	var count, deleted, size, listed uint64
	err := scanPrefix(c.src, prefix(nil, c.db.num, c.coll.num, spaceDoc), func(tail, value []byte) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		c.out.Documents++
		c.out.Bytes += uint64(len(tail) + len(value))
		id, err := osier.DecodeID(tail)
		if err != nil {
			c.wrong(id, "a damaged id: %w", err)
			return nil
		}
		var d document
		if err := decodeDocument(value, &d); err != nil {
			c.wrong(id, "%w", err)
			return nil
		}
		size += uint64(len(d.v.body))
		if d.winner.deleted {
			deleted++
		} else {
			count++
		}
		return c.document(id, &d, blobs)
	})
	if err != nil {
		return err
	}
	if c.coll.count != count || c.coll.deleted != deleted || c.coll.bodyBytes != size {
		c.wrong(osier.ID{}, "counts are %d live, %d deleted, %d bytes; found %d, %d, %d",
			c.coll.count, c.coll.deleted, c.coll.bodyBytes, count, deleted, size)
	}
	err = scanPrefix(c.src, prefix(nil, c.db.num, c.coll.num, spaceSeq), func(tail, value []byte) error {
		listed++
		if err := c.ctx.Err(); err != nil || len(tail) != 8 {
			return errors.Join(err, errRecord)
		}
		s, err := decodeSeqRecord(value)
		if err != nil {
			c.wrong(osier.ID{}, "sequence %d: %w", binary.BigEndian.Uint64(tail), err)
			return nil
		}
		v := view{db: c.db, src: c.src}
		var d document
		found, closer, err := v.doc(c.coll.num, s.id, &d)
		if err != nil {
			return nil // reported with the document
		}
		if !found {
			c.wrong(s.id, "the feed names it at sequence %d, but it is not there", binary.BigEndian.Uint64(tail))
			return nil
		}
		defer closer.Close()
		if uint64(latest(&d)) != binary.BigEndian.Uint64(tail) {
			c.wrong(s.id, "the feed has it at sequence %d, it is at %d", binary.BigEndian.Uint64(tail), latest(&d))
		}
		return nil
	})
	if err == nil && listed != count+deleted {
		c.wrong(osier.ID{}, "the feed has %d documents of %d", listed, count+deleted)
	}
	return err
}

// document checks one document's tree, bodies, place in the feed and
// attachments.
func (c *checker) document(id osier.ID, d *document, blobs map[osier.BlobID]bool) error {
	v := view{db: c.db, src: c.src, fixed: true, q: &osier.Query{}}
	vc := visibleColl{num: c.coll.num, settings: c.coll.settings}
	nodes, err := v.innerNodes(vc, id)
	if err != nil {
		c.wrong(id, "%w", err)
		return nil
	}
	c.out.Revisions += uint64(1 + len(d.losers) + len(nodes))
	leaves := map[osier.Rev]bool{}
	for i := range d.losers {
		leaves[d.losers[i].rev] = true
		if better(&d.losers[i], &d.winner) {
			c.wrong(id, "revision %v should win over %v", d.losers[i].rev, d.winner.rev)
		}
	}
	c.sums = map[[32]byte]uint64{}
	c.refer(&d.v)
	if err := c.versions(id, d, leaves, nodes); err != nil {
		c.wrong(id, "%w", err)
		return nil
	}
	b, closer, err := c.src.Get(seqKey(nil, c.db.num, c.coll.num, latest(d)))
	if err != nil {
		c.wrong(id, "it has no place in the feed at its sequence %d", latest(d))
	} else {
		if s, err := decodeSeqRecord(b); err != nil || s.id != id {
			c.wrong(id, "its place %d in the feed is another document's", latest(d))
		}
		closer.Close()
	}
	return c.attachments(id, blobs)
}

// versions checks the bodies beside a document's record.
func (c *checker) versions(id osier.ID, d *document, leaves map[osier.Rev]bool, nodes []node) error {
	lower, _ := revsRange(c.db.num, c.coll.num, spaceVersion, id)
	kept := uint64(0)
	err := scanPrefix(c.src, lower, func(tail, value []byte) error {
		rev, ok := revOfKey(tail)
		if !ok {
			return errRecord
		}
		_, ver, err := decodeVersion(value)
		if err != nil {
			return fmt.Errorf("revision %v: %w", rev, err)
		}
		c.out.Bytes += uint64(len(tail) + len(value))
		c.refer(&ver)
		switch {
		case leaves[rev]:
			delete(leaves, rev)
		case slices.ContainsFunc(nodes, func(n node) bool { return n.rev == rev }):
			kept++
		default:
			c.wrong(id, "a body of revision %v, which is not in its tree", rev)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for rev := range leaves {
		c.wrong(id, "the body of leaf %v is missing", rev)
	}
	if kept != d.kept {
		c.wrong(id, "%d earlier bodies are kept, counted are %d", kept, d.kept)
	}
	return nil
}

func (c *checker) refer(v *version) {
	for i := range v.atts {
		c.sums[v.atts[i].SHA256]++
	}
}

// attachments checks a document's shared bytes: counts, presence, digests.
func (c *checker) attachments(id osier.ID, blobs map[osier.BlobID]bool) error {
	lower := append(prefix(nil, c.db.num, c.coll.num, spaceDigest), id.Key()...)
	err := scanPrefix(c.src, lower, func(tail, value []byte) error {
		d, err := decodeDigestRecord(value)
		if err != nil || len(tail) != 32 {
			c.wrong(id, "attachment digest: %w", errRecord)
			return nil
		}
		c.out.Attachments++
		blobs[d.blob] = true
		sum := [32]byte(tail)
		if c.sums[sum] != d.refs {
			c.wrong(id, "attachment bytes %x are counted %d times, used %d times", d.blob, d.refs, c.sums[sum])
		}
		delete(c.sums, sum)
		if err := c.whole(d.blob, sum); err != nil {
			c.wrong(id, "attachment bytes %x: %w", d.blob, err)
		}
		return c.ctx.Err()
	})
	for range c.sums {
		c.wrong(id, "the bytes of an attachment are missing")
	}
	return err
}

// whole reads an attachment's bytes and compares their digest.
func (c *checker) whole(blob osier.BlobID, sum [32]byte) error {
	h := sha256.New()
	next := uint32(0)
	err := scanPrefix(c.src, blobKey(c.db.num, blob), func(tail, value []byte) error {
		if len(tail) != 4 || binary.BigEndian.Uint32(tail) != next {
			return fmt.Errorf("chunk %d is missing", next)
		}
		next++
		c.out.Bytes += uint64(len(value))
		h.Write(value)
		return nil
	})
	switch {
	case err != nil:
		return err
	case next == 0:
		return errors.New("they are missing")
	case [32]byte(h.Sum(nil)) != sum:
		return errors.New("they do not have their digest")
	}
	return nil
}
