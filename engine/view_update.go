package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// A batch of an update is ended by these, so that what waits for the store's
// writer waits a millisecond or so.
const (
	updateDocs  = 512
	updateBytes = 512 << 10
)

// catchUp brings a ready index up to the collection's last change that readers
// see when it begins, or further.
func (ix *index) catchUp(ctx context.Context) error {
	if ix.enforced.Load() {
		return nil // apply keeps it
	}
	if ix.e.opts.ReadOnly {
		return ix.catchUpReadOnly()
	}
	c := (*ix.db.visible.Load())[ix.name.coll]
	if c.num != ix.coll {
		return errViewGone
	}
	last := osier.Seq(c.last.Load())
	if ix.at.Load().seq >= last {
		return nil
	}
	if !ix.def.Load().runs() {
		return viewError(osier.KindUnsupported, ix.db, ix.name, errUndeclared)
	}
	if err := ix.take(ctx); err != nil {
		return err
	}
	defer ix.leave()
	for ix.at.Load().seq < last {
		if err := ix.step(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return &osier.Error{Kind: osier.KindCanceled, Op: "update view", Err: ctx.Err()}
		}
	}
	return nil
}

func (ix *index) catchUpReadOnly() error {
	last, err := ix.collectionSeq(ix.e.store)
	if err == nil && ix.at.Load().seq < last {
		err = viewError(osier.KindReadOnly, ix.db, ix.name, errors.New("the view is behind, and the store was opened read-only: ask for stale rows"))
	}
	return err
}

// collectionSeq is the last change of the index's collection in a state.
func (ix *index) collectionSeq(src source) (osier.Seq, error) {
	b, closer, err := src.Get(collectionKey(ix.db.num, ix.name.coll))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	c, err := decodeCollState(b)
	if c.num != ix.coll {
		return 0, errViewGone
	}
	return c.lastSeq, err
}

// step takes the next changes of the collection into the index. The caller has
// the turn.
func (ix *index) step() error {
	snap, err := ix.e.store.NewSnapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	last, err := ix.collectionSeq(snap)
	if err != nil {
		return err
	}
	b := ix.e.store.NewBatch()
	defer b.Close()
	w := ix.edit(b)
	if err := ix.follow(snap, w, last); err != nil {
		return err
	}
	if err := w.finish(); err != nil {
		return err
	}
	if err := ix.write(b); err != nil {
		return err
	}
	p := w.p
	ix.at.Store(&p)
	return nil
}

// follow edits the index by the changes after the one it has reached, as far as
// a batch goes. src may be the edit's own batch.
func (ix *index) follow(src source, w *indexEdit, last osier.Seq) error {
	changed, err := ix.changes(src, w.p.seq, last)
	if err != nil {
		return err
	}
	m := ix.mapping()
	var list rowList
	if len(changed) == updateDocs {
		last = changed[len(changed)-1].seq
	}
	purged, err := purgedAfter(src, ix.db.num, ix.coll, w.p.seq, last)
	if err != nil {
		return err
	}
	for _, id := range purged {
		if err := ix.take1(src, w, m, id, &list); err != nil {
			return err
		}
	}
	for i := range changed {
		if err := ix.take1(src, w, m, changed[i].id, &list); err != nil {
			return err
		}
		w.p.seq = changed[i].seq
		if w.b.Len() > updateBytes && i < len(changed)-1 {
			return nil
		}
	}
	if len(changed) < updateDocs {
		w.p.seq = max(w.p.seq, last)
	}
	return nil
}

type changedDoc struct {
	seq osier.Seq
	id  osier.ID
}

// changes lists the next documents of the feed after since, as many as a batch
// takes.
func (ix *index) changes(src source, since, last osier.Seq) (list []changedDoc, err error) {
	it, err := src.NewIter(seqKey(nil, ix.db.num, ix.coll, since+1), seqKey(nil, ix.db.num, ix.coll, last+1))
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for ok := it.First(); ok && len(list) < updateDocs; ok = it.Next() {
		rec, err := decodeSeqRecord(it.Value())
		if err != nil {
			return nil, err
		}
		list = append(list, changedDoc{osier.Seq(binary.BigEndian.Uint64(it.Key()[prefixSize:])), rec.id})
	}
	return list, it.Error()
}

func (ix *index) mapping() *mapping {
	return &mapping{def: ix.def.Load(), codecs: ix.e.opts.Codecs}
}

// take1 brings the index to a document's state in src.
func (ix *index) take1(src source, w *indexEdit, m *mapping, id osier.ID, list *rowList) error {
	failure, err := ix.rowsOf(src, m, id, list)
	if err != nil {
		return err
	}
	return w.doc(id, list, failure)
}

// rowsOf makes a document's rows from its state in src.
func (ix *index) rowsOf(src source, m *mapping, id osier.ID, list *rowList) (failure, err error) {
	var d document
	v := view{e: ix.e, db: ix.db, src: src}
	found, closer, err := v.doc(ix.coll, id, &d)
	if err != nil {
		return nil, err
	}
	if !found {
		list.reset()
		return nil, nil
	}
	defer func(c io.Closer) { c.Close() }(closer)
	doc := mappedDocument(id, &d)
	return m.rows(&doc, list), nil
}

// mappedDocument is what a view's function sees of a document.
func mappedDocument(id osier.ID, d *document) osier.Document {
	return osier.Document{ID: id, Rev: d.winner.rev, Seq: d.winner.seq, Time: at(d.winner.millis), Deleted: d.winner.deleted,
		Codec: d.v.codec, Schema: d.v.schema, Body: shown(&d.v), Attachments: d.v.atts}
}
