package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/mango"
)

// live makes a feed one of the documents that a selector means. It keeps in mind
// which documents its reader has, and so knows what a change means to him; it
// holds no snapshot while he works on a row.
type live struct {
	selector   *mango.Selector
	projection *mango.Projection
	docs       docReader
	turn       turn
	body       bool // rows have bodies
	caughtUp   bool
	maxBehind  uint64
	most       int

	// known has the documents that the reader has, with the sequence of what he
	// has of them; 0 is for those of which it is not known whether he has them.
	known map[string]osier.Seq

	// coll is the collection's number when the feed last looked, 0 for none: with
	// another one it was dropped, and leaving are the documents that went with it
	// and are yet to be shown as removed, last ones first.
	coll    uint32
	leaving []string
}

// maxLive is how many documents a live feed keeps in mind unless it is told.
const maxLive = 1 << 20

func (e *Engine) newLive(f *osier.Feed) (l *live, err error) {
	q := f.Live
	if f.Collection == "" || f.Descending || len(f.IDs) > 0 {
		return nil, &osier.Error{Kind: osier.KindInvalid, Op: "watch", DB: f.DB,
			Err: errors.New("a live query needs a collection, goes forward, and takes no ids")}
	}
	l = &live{body: f.Parts&osier.WithBody != 0, maxBehind: q.MaxBehind, most: q.MaxDocuments, known: map[string]osier.Seq{}}
	if l.most <= 0 {
		l.most = maxLive
	}
	if l.selector, err = compileSelector(q.Selector, q.Swap); err != nil {
		return nil, err
	}
	if l.projection, err = mango.NewProjection(q.Fields); err != nil {
		return nil, osier.RefusedSelector("watch", err)
	}
	l.turn.turns, l.docs.codecs = e.turns, e.opts.Codecs
	l.docs.want(l.selector)
	if l.projection != nil {
		l.docs.want(l.projection)
	}
	return l, nil
}

// beginLive shows the documents that are there, or, when the feed resumes, notes
// which of them its reader has.
func (w *feed) beginLive(ctx context.Context, yield func(osier.Change, error) bool) (done bool, err error) {
	resumed, first := w.since != 0, osier.Seq(0)
	for after := []byte(nil); ; {
		s := liveStretch{w: w, resumed: resumed}
		head, err := s.read(ctx, after)
		if err != nil {
			return false, err
		}
		if after == nil {
			first = head
		}
		for i := range s.rows {
			if !yield(s.rows[i], nil) {
				return true, nil
			}
			if w.shown++; w.shown == w.f.Limit {
				return true, nil
			}
		}
		if s.ended {
			break
		}
		after = s.last
	}
	if !resumed {
		w.since = first
	}
	return false, nil
}

// liveStretch is a part of the documents in order of their ids, read from one
// snapshot. Later parts are read from later ones: what changed in between the
// feed shows again.
type liveStretch struct {
	w       *feed
	resumed bool
	rows    []osier.Change
	bytes   int
	last    []byte // id that it ended with
	ended   bool   // there are no more
}

func (s *liveStretch) read(ctx context.Context, after []byte) (head osier.Seq, err error) {
	w := s.w
	snap, err := w.e.store.NewSnapshot()
	if err != nil {
		return 0, err
	}
	defer snap.Close()
	state, err := stateIn(snap, w.db.num)
	if err != nil {
		return 0, err
	}
	if err := w.awaitDurable(ctx, &state); err != nil {
		return 0, err
	}
	v := view{e: w.e, db: w.db, src: snap, fixed: true, q: &osier.Query{DB: w.f.DB, Collection: w.f.Collection, Parts: w.f.Parts}}
	c, known, err := v.coll(w.f.Collection)
	if after == nil {
		w.live.coll = c.num
	}
	if err != nil || !known {
		s.ended = true
		return state.lastSeq, err
	}
	base := prefix(nil, w.db.num, c.num, spaceDoc)
	lower := append(append([]byte(nil), base...), after...)
	if len(after) > 0 {
		lower = append(lower, 0) // no id is the beginning of another
	}
	it, err := snap.NewIter(lower, keys.PrefixEnd(base))
	if err != nil {
		return 0, err
	}
	defer it.Close()
	defer w.live.turn.pause()
	for ok := it.First(); ok; ok = it.Next() {
		if err := w.live.turn.step(ctx); err != nil {
			return 0, err
		}
		id := it.Key()[len(base):]
		if err := s.add(&v, c, id, it.Value()); err != nil {
			return 0, err
		}
		if len(s.rows) == stretchRows || s.bytes > stretchBytes {
			s.last = append([]byte(nil), id...)
			return state.lastSeq, nil
		}
	}
	s.ended = true
	return state.lastSeq, it.Error()
}

// add takes a document in.
func (s *liveStretch) add(v *view, c visibleColl, id, record []byte) error {
	l := s.w.live
	var d document
	if s.resumed {
		if err := decodeDocument(record, &d); err != nil {
			return corrupt("watch", osier.TrustedID(id), err)
		}
		// A losing revision's change can make another one win that is older.
		if latest(&d) > s.w.since {
			return l.note(string(id), 0)
		}
	}
	doc, live, err := l.docs.read(id, record)
	matches := false
	if err == nil && live {
		matches, err = l.selector.Match(doc)
	}
	switch {
	case err != nil || !matches:
		return unlessUnreadable(err)
	case s.resumed:
		return l.note(string(id), latest(&d))
	}
	if err := decodeDocument(record, &d); err != nil {
		return corrupt("watch", osier.TrustedID(id), err)
	}
	ch := osier.Change{Collection: s.w.f.Collection, Event: osier.LiveAdded}
	if err := v.fill(&ch.Document, c, osier.TrustedID(id), &d); err != nil {
		return err
	}
	ch.Document = *ch.Document.Clone()
	if err := l.project(&ch.Document, doc); err != nil {
		return unlessUnreadable(err)
	}
	s.rows = append(s.rows, ch)
	s.bytes += len(ch.Body)
	return l.note(string(id), latest(&d))
}

// unlessUnreadable drops errors about a document that has no JSON form: it has
// no fields that could match.
func unlessUnreadable(err error) error {
	if err == nil || osier.KindOf(err) == osier.KindCorrupt {
		return err
	}
	return nil
}

func (l *live) note(id string, seq osier.Seq) error {
	if l.known[id] = seq; len(l.known) > l.most {
		return &osier.Error{Kind: osier.KindTooLarge, Op: "watch", Err: fmt.Errorf("more than %d documents match the live query: see LiveQuery.MaxDocuments", l.most)}
	}
	return nil
}

// project gives a row the body that the feed asked for.
func (l *live) project(d *osier.Document, doc *mango.Doc) error {
	if !l.body || l.projection == nil {
		return nil
	}
	body, err := l.projection.AppendDoc(nil, doc)
	if err == nil {
		d.Body, d.Codec, d.Schema = body, osier.TagJSON, 0
	}
	return err
}

// event tells what a change means. shown is false if it means nothing.
func (l *live) event(ch *osier.Change) (shown bool, err error) {
	id := ch.ID.Key()
	if ch.Event == osier.LiveRemoved { // its collection was dropped
		delete(l.known, id)
		return true, nil
	}
	had, inMind := l.known[id]
	if inMind && had >= ch.Seq {
		return false, nil // shown already, when the documents were gone through
	}
	matches, doc := false, (*mango.Doc)(nil)
	if !ch.Deleted {
		if doc, err = l.docs.form([]byte(id), &ch.Document); err == nil {
			matches, err = l.selector.Match(doc)
		}
		if err := unlessUnreadable(err); err != nil {
			return false, err
		}
	}
	if matches {
		if err := l.project(&ch.Document, doc); err != nil {
			return false, unlessUnreadable(err)
		}
		if ch.Event = osier.LiveAdded; inMind {
			ch.Event = osier.LiveChanged
		}
		if !l.body {
			ch.Body = nil
		}
		return true, l.note(id, ch.Seq)
	}
	if !inMind {
		return false, nil
	}
	delete(l.known, id)
	ch.Event, ch.Body, ch.Attachments = osier.LiveRemoved, nil, nil
	return true, nil
}

// dropped returns the removal of the documents that went with their collection,
// as many as a stretch takes. A drop takes no sequence: they stand where the feed
// has come to, before what a new collection of that name brings.
func (w *feed) dropped(v *view) (rows []osier.Change, err error) {
	l := w.live
	c, _, err := v.coll(w.f.Collection)
	if err != nil {
		return nil, err
	}
	if l.coll != c.num && l.coll != 0 {
		l.leaving = slices.SortedFunc(maps.Keys(l.known), func(a, b string) int { return cmp.Compare(b, a) })
	}
	l.coll = c.num
	n := min(len(l.leaving), stretchRows)
	if w.f.Limit > 0 {
		n = min(n, w.f.Limit-w.shown)
	}
	for range n {
		last := len(l.leaving) - 1
		rows = append(rows, osier.Change{Collection: w.f.Collection, Event: osier.LiveRemoved,
			Document: osier.Document{ID: osier.TrustedID([]byte(l.leaving[last])), Seq: w.since, Deleted: true}})
		l.leaving = l.leaving[:last]
	}
	if len(rows) > 0 {
		w.begun = false // the mark that follows says that they are gone
	}
	return rows, nil
}

// behind ends a feed whose reader is too slow.
func (l *live) behind(since, head osier.Seq) error {
	if l.maxBehind == 0 || !l.caughtUp || uint64(head-since) <= l.maxBehind {
		return nil
	}
	return &osier.Error{Kind: osier.KindGap, Op: "watch", Err: fmt.Errorf(
		"the reader is %d changes behind, at most %d are allowed: resume from sequence %d", head-since, l.maxBehind, since)}
}
