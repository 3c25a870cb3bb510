package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/mango"
)

// way is how the documents are reached that a selector may mean.
type way struct {
	index  *index // nil: the documents by id
	keyer  *mango.Keyer
	plan   *mango.Plan
	ranges []mango.Range
	order  order // in which they come
	sorts  bool  // and it is not the order asked for
	test   *mango.Selector
	over   *overlay   // what the index lacks in the state that is read
	ahead  []smallRow // the index's rows, if they have been read

	filter *mango.Selector // of a partial index
	forced bool            // the index was asked for, though its filter is not implied
	keys   uint64          // rows or documents to be read at most
	cost   float64
}

// What ways cost, in documents read in order of their ids.
const (
	costRow    = 8.0 // a row of an index with its document
	costSorted = 1.0 // a row that is sorted
	costBegin  = 4.0 // a range that is sought
)

// choose picks the way, nil if nothing can match, and holds the state that is to
// be read until release is called. Where the statistics are the same a way that
// does not sort is chosen, then the index that fixes and bounds more fields, then
// the first by name.
func (f *finder) choose() (w *way, release func(), err error) {
	if w, release, err = f.small(); w != nil || err != nil {
		return w, release, err
	}
	var without []*index // indexes that could not be used after all
	for {
		w, err := f.plan(without)
		if err != nil || w == nil {
			return nil, func() {}, err
		}
		release, err := f.prepare(w)
		if err == nil {
			return w, release, nil
		}
		release()
		f.view.src, f.view.fixed = f.e.store, false
		if w.index == nil || !errors.Is(err, errViewGone) && osier.KindOf(err) != osier.KindConflict {
			return nil, func() {}, err
		}
		without = append(without, w.index)
		f.sum.Warning, f.candidates = "", nil
	}
}

// plan weighs the ways.
func (f *finder) plan(without []*index) (*way, error) {
	c, known := (*f.db.visible.Load())[f.view.q.Collection]
	if !known && f.view.q.Pin == 0 || f.selector.Never() {
		f.sum.Complete = true
		return nil, nil
	}
	f.coll = c
	ways, err := f.ways(without)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(ways, func(a, b *way) int {
		switch {
		case a.cost != b.cost:
			if a.cost < b.cost {
				return -1
			}
			return 1
		case a.sorts != b.sorts:
			return flagOrder(a.sorts, b.sorts)
		}
		return 1000*(b.plan.Fixed-a.plan.Fixed) + b.plan.Bounded - a.plan.Bounded
	})
	return ways[0], nil
}

func flagOrder(a, b bool) int { return int(flag(a)) - int(flag(b)) }

// ways returns the ways that lead to all matches, among them that by id unless
// another one was asked for.
func (f *finder) ways(without []*index) ([]*way, error) {
	total, err := f.documents()
	if err != nil {
		return nil, err
	}
	byID := f.byID(total)
	ways := []*way{byID}
	if f.q.UseIndex == "_id" && !f.q.SortByIndex {
		return ways, nil
	}
	indexes, asked, err := f.indexes()
	if err != nil {
		return nil, err
	}
	matches := total // at most
	for _, ix := range indexes {
		w, reason, err := f.byIndex(ix, asked)
		if err == nil && slices.Contains(without, ix) {
			w, reason = nil, "it cannot show the state that is to be read"
		}
		if err != nil {
			return nil, err
		}
		if w == nil {
			f.candidates = append(f.candidates, osier.FindCandidate{Index: ix.name.name, Reason: reason})
			continue
		}
		if err := w.count(f.src); err != nil {
			return nil, err
		}
		ways = append(ways, w)
		matches = min(matches, w.keys)
	}
	if f.q.SortByIndex && !slices.ContainsFunc(ways, func(w *way) bool { return w.begins(f.q.Sort) }) {
		return nil, &osier.Error{Kind: osier.KindInvalid, Op: "find", Err: &osier.SelectorError{Name: "no_usable_index", Reason: "No index exists for this sort, try indexing by the sort fields."}}
	}
	f.expected = matches
	for _, w := range ways {
		f.weigh(w, total, matches)
	}
	return f.follow(ways, asked)
}

// follow keeps to the index that was asked for, if it can be used.
func (f *finder) follow(ways []*way, asked bool) ([]*way, error) {
	if f.q.UseIndex == "" {
		return ways, nil
	}
	if asked && len(ways) > 1 {
		return ways[1:], nil
	}
	f.sum.Warning = fmt.Sprintf("index %s was not used: there is no such index", f.q.UseIndex)
	kind := osier.KindNotFound
	if asked {
		kind = osier.KindInvalid
		f.sum.Warning = fmt.Sprintf("index %s was not used: %s", f.q.UseIndex, f.candidates[0].Reason)
	}
	if f.q.Strict {
		return nil, &osier.Error{Kind: kind, Op: "find", Err: &osier.SelectorError{Name: "invalid_index", Reason: f.sum.Warning}}
	}
	return ways, nil
}

// indexes returns the JSON indexes to be weighed. asked tells that they are what
// UseIndex names.
func (f *finder) indexes() (list []*index, asked bool, err error) {
	if name := f.q.UseIndex; name != "" && f.view.q.Pin == 0 && osier.CheckCollectionName(name) == nil {
		// Who asks for an index waits until it is built.
		ix, err := f.e.freshIndex(f.ctx, f.db, viewName{f.view.q.Collection, name}, osier.Stale)
		if err == nil && ix != nil && ix.kind == viewJSON {
			return []*index{ix}, true, nil
		}
		if err != nil && osier.KindOf(err) != osier.KindNotFound && osier.KindOf(err) != osier.KindReadOnly {
			return nil, false, err
		}
	}
	all, err := f.e.jsonIndexes(f.db, f.view.q.Collection)
	if err != nil || f.q.UseIndex == "" {
		return all, false, err
	}
	for _, ix := range all {
		if strings.HasSuffix(f.q.UseIndex, osier.IndexGroupMark) && strings.HasPrefix(ix.name.name, f.q.UseIndex) || ix.name.name == strings.TrimSuffix(f.q.UseIndex, osier.IndexGroupMark) {
			list = append(list, ix)
		}
	}
	if len(list) > 0 {
		return list, true, nil
	}
	return all, false, nil
}

// byIndex is the way over an index, or why there is none.
func (f *finder) byIndex(ix *index, asked bool) (w *way, reason string, err error) {
	keyer, p := ix.keyer(), ix.at.Load()
	if keyer == nil || !ix.def.Load().runs() {
		return nil, "its definition is not understood", nil
	}
	if p.failed > 0 {
		return nil, fmt.Sprintf("%d documents could not be indexed", p.failed), nil
	}
	w = &way{index: ix, keyer: keyer, filter: ix.partial(), plan: f.selector.Ranges(keyer), order: order{fields: keyer.Sort()}}
	for i, field := range keyer.Sort() {
		if strings.HasPrefix(field.Path, "_") {
			return nil, "it holds " + field.Path, nil
		}
		if !w.plan.Exists[i] {
			return nil, "the selector also means documents without " + field.Path, nil
		}
	}
	w.ranges, w.test = w.plan.Ranges, w.plan.Residual
	if w.filter != nil && !f.selector.Implies(w.filter) {
		if !asked {
			return nil, "the selector also means documents that the index's filter leaves out", nil
		}
		w.forced = true
	}
	if f.q.Stale {
		w.test = f.selector // rows may be out of date
	}
	if f.ordered {
		var ok bool
		w.order.reverse, ok = f.order.servedBy(w)
		// A bookmark's key is one of the very order that it was made in.
		w.sorts = !ok || f.from != nil && !slices.Equal(f.from.fields, w.order.fields)
	}
	if f.from != nil && !w.sorts {
		w.ranges = beyond(w.ranges, append(f.after(), 0xff, 0xff, 0xff), f.after(), w.order.reverse)
	}
	return w, "", nil
}

// servedBy tells whether a way gives documents in the order, and whether for
// that it is gone backwards. Fields with one value only do not matter.
func (o order) servedBy(w *way) (reverse, ok bool) {
	fields := w.order.fields
	fixed := func(i int) bool { return i < w.plan.Fixed && len(w.ranges) == 1 }
	i, turned, known := 0, false, false
	for _, want := range o.fields {
		for i < len(fields) && fields[i].Path != want.Path && fixed(i) {
			i++
		}
		if i == len(fields) || fields[i].Path != want.Path {
			return false, false
		}
		if differs := fields[i].Descending != want.Descending; !fixed(i) {
			if known && turned != differs {
				return false, false
			}
			turned, known = differs, true
		}
		i++
	}
	for ; i < len(fields); i++ {
		if !fixed(i) {
			return false, false // what is equal shall come in order of ids
		}
	}
	// The ids turn with the fields, so these must not have to be turned alone.
	return o.reverse, !turned
}

// begins tells whether the way's order begins with the sort's fields, behind
// others with one value.
func (w *way) begins(sort []osier.SortField) bool {
	fields := w.order.fields
	if w.index == nil {
		return len(sort) == 0 || sort[0].Path == "_id"
	}
	i := 0
	for _, s := range sort {
		for i < len(fields) && fields[i].Path != s.Path && i < w.plan.Fixed {
			i++
		}
		if i == len(fields) || fields[i].Path != s.Path {
			return false
		}
		i++
	}
	return true
}

// documents is how many documents there are.
func (f *finder) documents() (uint64, error) {
	colls := map[string]*collState{}
	if err := f.oneColl(colls); err != nil || len(colls) == 0 {
		return 0, err
	}
	return colls[f.view.q.Collection].count, nil
}

// byID is the way over the documents themselves, in order of their ids.
func (f *finder) byID(total uint64) *way {
	w := &way{test: f.selector, keys: total}
	keyer, err := mango.NewKeyer(mango.Sort{{Path: "_id"}}, mango.Binary)
	if err != nil { // it never is
		return w
	}
	w.keyer, w.plan = keyer, f.selector.Ranges(keyer)
	w.ranges = idRanges(w.plan)
	w.sorts = f.ordered && len(f.order.fields) > 0
	if f.ordered && !w.sorts {
		w.order.reverse = f.order.reverse
	}
	if f.from != nil && !w.sorts {
		w.ranges = beyond(w.ranges, append(bytes.Clone(f.from.id), 0), f.from.id, w.order.reverse)
	}
	if f.selector.Everything() {
		w.test = nil
	}
	if w.plan.Bounded > 0 {
		w.keys = min(total, f.share(w.ranges, total))
	}
	return w
}

// share guesses how many of the documents are in ranges of ids, by the bytes
// that these take in the store.
func (f *finder) share(ranges []mango.Range, total uint64) uint64 {
	lower, upper := collSpace(f.db.num, f.coll.num, spaceDoc)
	all, err := f.e.store.Size(lower, upper)
	if err != nil || all == 0 {
		return total
	}
	var part uint64
	for _, r := range ranges {
		low, high := f.idBounds(r)
		n, err := f.e.store.Size(low, high)
		if err != nil {
			return total
		}
		part += n
	}
	return uint64(float64(total)*float64(part)/float64(all)) + 1
}

// weigh says what a way costs, if so many documents match at most.
func (f *finder) weigh(w *way, total, matches uint64) {
	each := 1.0
	if w.index != nil {
		each = costRow
	}
	w.cost = float64(w.keys)*each + costBegin*float64(min(len(w.ranges), maxCounted))
	if w.sorts {
		w.cost += costSorted * float64(min(matches, w.keys))
	} else if want := uint64(max(f.view.q.Skip, 0) + max(f.view.q.Limit, 0)); f.view.q.Limit > 0 && want < matches {
		// It ends early, if the matches are spread evenly.
		w.cost *= float64(want) / float64(matches)
	}
	name := ""
	if w.index != nil {
		name = w.index.name.name
	}
	text := fmt.Sprintf("reads %d of %d", w.keys, total)
	if w.sorts {
		text += " and sorts"
	}
	f.candidates = append(f.candidates, osier.FindCandidate{Index: name, Usable: true, Reason: text, ExpectedKeys: w.keys, Cost: w.cost})
}

// prepare makes the way ready to be gone: an index is brought up to date, and
// the state is fixed in which it is read. release must be called in any case.
func (f *finder) prepare(w *way) (release func(), err error) {
	release = func() {}
	fresh := w.index != nil && !f.q.Stale && f.view.q.Pin == 0 && !f.e.opts.ReadOnly && f.q.Explain != osier.ExplainOnly
	if fresh {
		if err := w.index.catchUp(f.ctx); err != nil {
			return release, err
		}
	}
	if w.index == nil && f.view.q.Pin == 0 {
		return release, nil // one iterator sees one state by itself
	}
	if release, err = f.hold(); err != nil {
		return func() {}, err
	}
	c, known, err := f.view.coll(f.view.q.Collection)
	if err != nil || !known {
		w.ranges = nil // the state has no such collection
		return release, err
	}
	if f.coll = c; w.index == nil {
		return release, nil
	}
	p, ready, err := w.index.readableIn(f.src)
	if err != nil {
		return release, err
	}
	if !ready || p.failed > 0 || w.index.coll != c.num {
		return release, errViewGone
	}
	if !f.q.Stale {
		r := &viewReader{v: f.view, q: f.view.q, vq: &osier.ViewQuery{}, ix: w.index}
		err = r.overlay(p)
		w.over = r.over
	}
	return release, err
}

// explain puts a way into words.
func (f *finder) explain(w *way) *osier.FindPlan {
	p := &osier.FindPlan{Selector: f.selector.String(), Candidates: f.candidates, ExpectedRows: f.expected}
	if w == nil {
		p.Why = "nothing can match"
		return p
	}
	p.Reverse, p.Sorts, p.ExpectedKeys = w.order.reverse, w.sorts, w.keys
	if w.test != nil {
		p.Residual = w.test.String()
	}
	for _, r := range w.plan.Ranges {
		p.Ranges = append(p.Ranges, osier.FindRange{Low: w.keyer.Describe(r.Low, f.selector), High: w.keyer.Describe(r.High, f.selector)})
	}
	if w.index != nil {
		p.Index = w.index.name.name
		for _, s := range w.order.fields {
			p.IndexFields = append(p.IndexFields, osier.SortField(s))
		}
		if w.filter != nil {
			p.IndexFilter = w.filter.String()
		}
	}
	p.Why = f.why(w)
	return p
}

func (f *finder) why(w *way) string {
	usable := 0
	for _, c := range f.candidates {
		usable += int(flag(c.Usable))
	}
	switch {
	case f.q.UseIndex == "_id":
		return "the documents by id were asked for"
	case f.q.UseIndex != "" && f.sum.Warning == "":
		return "the index was asked for"
	case usable == 1 && len(f.candidates) > 1:
		return "no index holds all that the selector means"
	case usable == 1:
		return "there is no index"
	case w.index == nil:
		return fmt.Sprintf("reading all documents costs less than the best of %d indexes", usable-1)
	}
	return fmt.Sprintf("it costs the least of %d ways", usable)
}

// idRanges returns where the documents are whose ids a plan allows. It speaks of
// ids that are strings; the text forms of others are not in order, so these are
// all looked at. Most collections have none, which costs two seeks.
func idRanges(p *mango.Plan) []mango.Range {
	if p.Bounded == 0 {
		return []mango.Range{{}}
	}
	low := keys.StringPrefix(nil, "")
	high := keys.PrefixEnd(low)
	out := []mango.Range{{High: low}}
	for _, r := range p.Ranges {
		if len(r.Low) == 0 || bytes.Compare(r.Low, low) < 0 {
			r.Low = low
		}
		if len(r.High) == 0 || bytes.Compare(r.High, high) > 0 {
			r.High = high
		}
		if bytes.Compare(r.Low, r.High) < 0 {
			out = append(out, r)
		}
	}
	return append(out, mango.Range{Low: high})
}

// beyond cuts off what is not behind a row in the direction of reading: behind
// is the least key behind it, at is its own.
func beyond(ranges []mango.Range, behind, at []byte, reverse bool) []mango.Range {
	var out []mango.Range
	for _, r := range ranges {
		if reverse {
			if len(r.High) == 0 || bytes.Compare(r.High, at) > 0 {
				r.High = at
			}
		} else if bytes.Compare(r.Low, behind) < 0 {
			r.Low = behind
		}
		if len(r.High) == 0 || bytes.Compare(r.Low, r.High) < 0 {
			out = append(out, r)
		}
	}
	return out
}
