package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/osierdb/osier"
)

// shownFailures is how many failures the description of a view lists.
const shownFailures = 10

// viewInfos describes views.
func (e *Engine) viewInfos(v *view, yield func(osier.Row, error) bool) error {
	db := v.db
	if err := e.refreshDefinitions(db); err != nil {
		return err
	}
	name := ""
	if v.q.View != nil {
		name = v.q.View.Name
	}
	var list []viewName
	vs := &db.views
	vs.mu.Lock()
	for n := range vs.slots {
		if (v.q.Collection == "" || v.q.Collection == n.coll) && (name == "" || name == n.name) {
			list = append(list, n)
		}
	}
	vs.mu.Unlock()
	sortNames(list)
	for _, n := range list {
		info, err := e.viewInfo(db, n)
		if err != nil {
			return err
		}
		if info != nil && !yield(osier.Row{ViewInfo: info}, nil) {
			return nil
		}
	}
	return nil
}

func sortNames(list []viewName) {
	slices.SortFunc(list, func(a, b viewName) int {
		return cmp.Or(cmp.Compare(a.coll, b.coll), cmp.Compare(a.name, b.name))
	})
}

// refreshDefinitions brings the slots to the definitions there are.
func (e *Engine) refreshDefinitions(db *database) error {
	vs := &db.views
	vs.sync.Lock()
	defer vs.sync.Unlock()
	return e.readDefinitions(db)
}

// viewInfo describes a view; nil if it is gone.
func (e *Engine) viewInfo(db *database, n viewName) (*osier.ViewInfo, error) {
	vs := &db.views
	vs.mu.Lock()
	s := vs.slots[n]
	if s == nil {
		vs.mu.Unlock()
		return nil, nil
	}
	def, wrong, ready, building := s.def, s.wrong, s.ready, s.building
	vs.mu.Unlock()
	info := &osier.ViewInfo{Name: n.name, Collection: n.coll, State: osier.ViewBuilding}
	ix := ready
	if ix == nil {
		ix = building
	}
	if def == nil && ix != nil {
		def = ix.def.Load()
	}
	if def != nil {
		info.Type, info.Definition, info.Policy, info.Reduce = def.kind.String(), def.source, def.policy, def.reduceName
		if def.code != nil {
			info.Version = def.code.Version
		}
	}
	if wrong != "" {
		info.State, info.Failure = osier.ViewFailed, wrong
		return info, nil
	}
	if ix == nil {
		return info, nil
	}
	return info, ix.describe(info, building)
}

// describe fills in what an index holds.
func (ix *index) describe(info *osier.ViewInfo, building *index) (err error) {
	p := ix.at.Load()
	info.State, info.Failure, info.Rows, info.Seq, info.Failed = p.state, p.failure, p.rows, p.seq, p.failed
	if !ix.def.Load().runs() && building == nil {
		info.State = osier.ViewUndeclared
	}
	last, err := ix.collectionSeq(ix.e.store)
	if errors.Is(err, errViewGone) {
		return nil // its collection was dropped: there is no more to say
	}
	if err != nil {
		return err
	}
	if ix.enforced.Load() {
		info.Seq = last
	} else if p.state == osier.ViewReady {
		if info.Behind, err = ix.behind(p.seq, last); err != nil {
			return err
		}
	}
	for _, r := range viewRanges(ix.db.num, ix.coll, ix.num) {
		n, err := ix.e.store.Size(r[0], r[1])
		if err != nil {
			return err
		}
		info.DiskBytes += n
	}
	if p.failed > 0 {
		if info.Failures, err = ix.failures(ix.e.store, shownFailures); err != nil {
			return err
		}
	}
	if building != nil {
		if bp := building.at.Load(); bp.state == osier.ViewFailed && info.Failure == "" {
			info.Failure = bp.failure
		}
		info.Build = building.shown()
	}
	return nil
}

// maxBehind bounds the count of changes that a view has not seen.
const maxBehind = 100_000

// behind counts the changes after seq.
func (ix *index) behind(seq, last osier.Seq) (n uint64, err error) {
	if seq >= last {
		return 0, nil
	}
	lower := seqKey(nil, ix.db.num, ix.coll, seq+1)
	_, upper := collSpace(ix.db.num, ix.coll, spaceSeq)
	it, err := ix.e.store.NewIter(lower, upper)
	if err != nil {
		return 0, err
	}
	defer it.Close()
	for ok := it.First(); ok && n < maxBehind; ok = it.Next() {
		n++
	}
	return n, it.Error()
}

// shown describes the build under way; nil if there is none.
func (ix *index) shown() *osier.ViewBuild {
	ix.mu.Lock()
	b := ix.build
	ix.mu.Unlock()
	if b == nil {
		return nil
	}
	select {
	case <-b.done:
		return nil
	default:
	}
	out := &osier.ViewBuild{Done: b.docs.Load(), Total: b.total.Load(), Rows: b.rows.Load()}
	if spent := ix.e.now().Sub(b.began); spent > 0 && out.Done > b.first {
		out.PerSecond = float64(out.Done-b.first) / spent.Seconds()
		if out.Total > out.Done {
			out.Left = time.Duration(float64(out.Total-out.Done) / out.PerSecond * float64(time.Second))
		}
	}
	return out
}

// refreshView builds a view or brings it up to date.
func (e *Engine) refreshView(ctx context.Context, v *view) error {
	if v.q.View == nil {
		return &osier.Error{Kind: osier.KindInvalid, Op: "refresh view", DB: v.db.name, Err: errors.New("no view is named")}
	}
	n := viewName{v.q.Collection, v.q.View.Name}
	_, building, err := e.findView(v.db, n)
	if err != nil {
		return err
	}
	if building != nil {
		// Also where an older index answers meanwhile.
		if err := building.awaitBuild(ctx); err != nil && !errors.Is(err, errViewGone) {
			return err
		}
	}
	_, err = e.freshIndex(ctx, v.db, n, osier.Fresh)
	return err
}

// tendShape builds the views of a collection that is new, if they must not wait
// for a query.
func (e *Engine) tendShape(db *database) {
	vs := &db.views
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for _, s := range vs.slots {
		if s.urgent() {
			e.tendSoon(db)
			return
		}
	}
}

// urgent tells whether a view must not wait for a query.
func (s *viewSlot) urgent() bool {
	return s.def != nil && s.wrong == "" && (s.def.eager() || s.def.keep != (osier.Keep{}))
}

// tendViews looks after the views of a database whose definitions changed:
// indexes of dropped ones go, and those that must not wait for a query are
// built.
func (e *Engine) tendViews(db *database) {
	if err := e.refreshDefinitions(db); err != nil {
		e.tolerate("read definitions of views", err)
		return
	}
	vs := &db.views
	vs.mu.Lock()
	var urgent []viewName
	for n, s := range vs.slots {
		if s.urgent() {
			urgent = append(urgent, n)
		}
	}
	vs.mu.Unlock()
	for _, n := range urgent {
		_, building, err := e.findView(db, n)
		if err == nil && building != nil && building.at.Load().state == osier.ViewBuilding {
			building.ensureBuilt()
		}
		e.tolerate("tend view "+n.name, err)
		e.startKeeper(db, n)
	}
}
