package osiertest

import (
	"maps"
	"slices"
	"strings"

	"github.com/osierdb/osier"
)

// modelLive is what a live feed knows of its reader.
type modelLive struct {
	find  *finding
	begun bool
	known map[osier.ID]bool // whether the reader has the document for sure
	coll  uint64            // the collection's birth when it was last looked at; 0: none
}

func newModelLive(f *osier.Feed) (*modelLive, error) {
	q := &osier.Query{DB: f.DB, Collection: f.Collection, Find: &osier.FindQuery{Selector: f.Live.Selector, Swap: f.Live.Swap, Fields: f.Live.Fields}}
	find, err := newFinding(q)
	return &modelLive{find: find, known: map[osier.ID]bool{}}, err
}

// matches tells whether the selector means a document, and how it sees it.
func (l *modelLive) matches(d *document) (*seen, bool) {
	if d.winner().Deleted {
		return nil, false
	}
	s, ok := look(d, osier.NewCodecs())
	return s, ok && judge.Match(l.find.selector, s.object)
}

// begin returns what is there, or, resuming behind a sequence, notes what the
// reader has.
func (l *modelLive) begin(db *database, f *osier.Feed, since osier.Seq) (rows []osier.Change) {
	l.begun, l.coll = true, db.birth(f.Collection)
	for _, d := range db.sorted(f.Collection) {
		s, ok := l.matches(d)
		switch {
		case since == 0 && ok:
			rows = append(rows, l.change(s, f, d.winner().Seq, osier.LiveAdded))
			l.known[d.id] = true
		case since > 0 && d.seq > since:
			l.known[d.id] = false
		case since > 0 && ok:
			l.known[d.id] = true
		}
	}
	return rows
}

func (l *modelLive) change(s *seen, f *osier.Feed, seq osier.Seq, e osier.LiveEvent) osier.Change {
	ch := osier.Change{Collection: f.Collection, Event: e, Document: s.doc.row(s.doc.winner(), f.Parts)}
	if ch.Seq = seq; len(f.Live.Fields) > 0 && f.Parts&osier.WithBody != 0 {
		ch.Body, ch.Codec, ch.Schema = appendNaive(nil, project(s.object, f.Live.Fields)), osier.TagJSON, 0
	}
	return ch
}

// events turns changes into what they mean to the reader.
func (l *modelLive) events(db *database, f *osier.Feed, changes []osier.Change) (rows []osier.Change) {
	for _, ch := range changes {
		s, ok := l.matches(db.doc(f.Collection, ch.ID))
		_, inMind := l.known[ch.ID]
		switch {
		case ok && inMind:
			rows = append(rows, l.change(s, f, ch.Seq, osier.LiveChanged))
		case ok:
			rows = append(rows, l.change(s, f, ch.Seq, osier.LiveAdded))
		case inMind:
			ch.Event, ch.Body, ch.Attachments = osier.LiveRemoved, nil, nil
			rows = append(rows, ch)
		}
		if delete(l.known, ch.ID); ok {
			l.known[ch.ID] = true
		}
	}
	return slices.Clip(rows)
}

// birth is 0 for a collection that is not there.
func (db *database) birth(collection string) uint64 {
	if c := db.collections[collection]; c != nil {
		return c.born
	}
	return 0
}

// dropped removes what went with the collection that the feed knew.
func (l *modelLive) dropped(db *database, f *osier.Feed, since osier.Seq) (rows []osier.Change) {
	now := db.birth(f.Collection)
	if l.coll != now && l.coll != 0 {
		for _, id := range slices.SortedFunc(maps.Keys(l.known), func(a, b osier.ID) int { return strings.Compare(a.Key(), b.Key()) }) {
			rows = append(rows, osier.Change{Collection: f.Collection, Event: osier.LiveRemoved, Document: osier.Document{ID: id, Seq: since, Deleted: true}})
		}
		clear(l.known)
	}
	l.coll = now
	return rows
}
