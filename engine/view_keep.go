package engine

import (
	"errors"
	"time"

	"github.com/osierdb/osier"
)

// What the zero fields of a Keep mean.
const (
	keepChanges = 1000
	keepAfter   = time.Second
)

// startKeeper has a view brought up to date in the background if it wants that,
// unless that is done already.
func (e *Engine) startKeeper(db *database, n viewName) {
	vs := &db.views
	vs.mu.Lock()
	defer vs.mu.Unlock()
	s := vs.slots[n]
	if s == nil || s.kept || !s.keeps() {
		return
	}
	s.kept = e.spawn(func() {
		e.keepView(db, n, s)
		vs.mu.Lock()
		s.kept = false
		vs.mu.Unlock()
	})
}

// keeps tells whether the view is to be kept fresh. The caller holds mu.
func (s *viewSlot) keeps() bool {
	return s.def != nil && s.wrong == "" && !s.def.eager() && s.def.keep != (osier.Keep{})
}

// keepView keeps a view at most so many changes, or so long, behind. It ends
// with the engine, the database, or the wish.
func (e *Engine) keepView(db *database, n viewName, s *viewSlot) {
	var since time.Time // since when the view has been behind; zero: it is not
	for e.usable(db) == nil {
		db.views.mu.Lock()
		there := db.views.slots[n] == s && s.keeps()
		db.views.mu.Unlock()
		if !there {
			return
		}
		wake := db.wakeOn(&db.appliedWake)
		ix, due, err := e.keptIndex(db, n, &since)
		if err == nil && ix != nil && due == 0 {
			err, since = ix.catchUp(e.ctx), time.Time{}
			if err == nil {
				continue
			}
		}
		if err != nil && !errors.Is(err, errViewGone) {
			e.tolerate("keep view "+n.name+" fresh", err)
			due = keepAfter // later, perhaps
		}
		if !e.rest(wake, due) {
			return
		}
	}
}

// keptIndex returns a view's index and after what time it has to be brought up
// to date: at once if that is 0, at no time if it is negative.
func (e *Engine) keptIndex(db *database, n viewName, since *time.Time) (*index, time.Duration, error) {
	ready, building, err := e.findView(db, n)
	if err != nil {
		return nil, -1, err
	}
	if building != nil && building.def.Load().runs() && building.at.Load().state == osier.ViewBuilding {
		if err := building.awaitBuild(e.ctx); err != nil {
			return nil, -1, err
		}
		return nil, 0, errViewGone // look again
	}
	if ready == nil || !ready.def.Load().runs() {
		return nil, -1, nil
	}
	last, err := ready.collectionSeq(e.store)
	if err != nil {
		return nil, -1, err
	}
	seq := ready.at.Load().seq
	if seq >= last {
		*since = time.Time{}
		return ready, -1, nil
	}
	keep := ready.def.Load().keep
	if keep.Changes == 0 {
		keep.Changes = keepChanges
	}
	if keep.After == 0 {
		keep.After = keepAfter
	}
	if last-seq >= osier.Seq(keep.Changes) {
		return ready, 0, nil
	}
	now := time.Now()
	if since.IsZero() {
		*since = now
	}
	return ready, max(0, keep.After-now.Sub(*since)), nil
}

// rest waits for changes, at most due if that is not negative, and tells whether
// the engine goes on.
func (e *Engine) rest(wake <-chan struct{}, due time.Duration) bool {
	var timer <-chan time.Time
	if due >= 0 {
		t := time.NewTimer(due)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-wake:
		return true
	case <-timer:
		return true
	case <-e.closing:
		return false
	}
}
