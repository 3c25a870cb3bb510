package osiertest

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/osierdb/osier"
)

// Watch shows changes.
func (m *Model) Watch(ctx context.Context, f *osier.Feed) iter.Seq2[osier.Change, error] {
	switch {
	case f.Topics != nil:
		return m.watchTopics(ctx, f)
	case f.Journal != nil:
		return m.watchJournal(ctx, f)
	}
	return func(yield func(osier.Change, error) bool) {
		if f.KV != nil {
			if err := m.watchKV(ctx, f, yield); err != nil {
				yield(osier.Change{}, err)
			}
			return
		}
		w := &watch{m: m, f: f, since: f.Since, left: f.Limit, mark: f.Marks}
		if err := w.check(); err != nil {
			yield(osier.Change{}, err)
			return
		}
		for {
			more, err := w.round(ctx, yield)
			if err != nil {
				yield(osier.Change{}, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// watch is a feed under way.
type watch struct {
	m     *Model
	f     *osier.Feed
	uuid  osier.UUID // of the database it began with
	since osier.Seq
	left  int  // of the limit
	shown bool // something has been shown
	mark  bool // a mark is due when caught up
	live  *modelLive
}

func (w *watch) check() error {
	if w.f.Live != nil {
		var err error
		if w.live, err = newModelLive(w.f); err != nil {
			return err
		}
	}
	text := ""
	switch {
	case w.f.Live != nil && (w.f.Collection == "" || w.f.Descending || len(w.f.IDs) > 0):
		text = "a live query needs a collection, goes forward, and takes no ids"
	case w.f.Descending && w.f.Mode != osier.FeedOnce:
		text = "a descending feed cannot wait"
	case len(w.f.IDs) > 0 && w.f.Collection == "":
		text = "a feed of single documents needs their collection"
	default:
		return nil
	}
	return &osier.Error{Kind: osier.KindInvalid, Op: "watch", DB: w.f.DB, Err: errors.New(text)}
}

// round shows what there is, and waits for the next change if the feed goes on.
func (w *watch) round(ctx context.Context, yield func(osier.Change, error) bool) (more bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, canceled("watch", w.f.DB, err)
	}
	rows, end, next, err := w.collect()
	if err != nil {
		return false, err
	}
	for _, row := range rows {
		if err := ctx.Err(); err != nil {
			return false, canceled("watch", w.f.DB, err)
		}
		w.shown, w.mark = true, w.f.Marks
		if !yield(row, nil) {
			return false, nil
		}
		if w.left--; w.left == 0 {
			return false, nil
		}
	}
	if w.live != nil && end > w.since {
		w.mark = w.f.Marks // also behind changes that mean nothing to the reader
	}
	w.since = end
	last := w.f.Mode == osier.FeedOnce || w.f.Mode == osier.FeedWait && w.shown
	if w.mark && (last || w.f.Mode == osier.FeedLive) {
		w.mark = false
		if !yield(osier.Change{Mark: true, Document: osier.Document{Seq: end}}, nil) {
			return false, nil
		}
	}
	if last {
		return false, nil
	}
	select {
	case <-ctx.Done():
	case <-next:
	}
	return true, nil
}

// collect returns the rows after w.since, the sequence they reach to, and the
// channel that tells of the next change.
func (w *watch) collect() (rows []osier.Change, end osier.Seq, next <-chan struct{}, err error) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	db, err := w.m.open("watch", w.f.DB)
	if err != nil {
		return nil, 0, nil, err
	}
	if w.uuid == (osier.UUID{}) {
		w.uuid = db.uuid
	}
	if w.uuid != db.uuid {
		return nil, 0, nil, &osier.Error{Kind: osier.KindNotFound, Op: "watch", DB: w.f.DB, Err: errors.New("the database has been dropped")}
	}
	if w.since == osier.SeqNow {
		w.since = db.seq
	}
	for name, c := range db.collections {
		if w.f.Collection != "" && name != w.f.Collection {
			continue
		}
		for _, d := range c.docs {
			if d.seq > w.since && (len(w.f.IDs) == 0 || slices.Contains(w.f.IDs, d.id)) {
				row := d.row(d.winner(), w.f.Parts)
				row.Seq = d.seq
				rows = append(rows, osier.Change{Collection: name, Document: row})
			}
		}
	}
	slices.SortFunc(rows, func(a, b osier.Change) int { return cmp.Compare(a.Seq, b.Seq) })
	if w.live != nil {
		if !w.live.begun {
			if present := w.live.begin(db, w.f, w.since); w.since == 0 {
				return present, db.seq, db.changed, nil
			}
		}
		rows = slices.Concat(w.live.dropped(db, w.f, w.since), w.live.events(db, w.f, rows))
	}
	if w.f.Descending {
		slices.Reverse(rows)
	}
	return rows, max(db.seq, w.since), db.changed, nil
}
