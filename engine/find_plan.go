package engine

import (
	"bytes"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/mango"
)

// way is how the documents are reached that a selector may mean.
type way struct {
	order  order // in which they come
	sorts  bool  // and it is not the order asked for
	ranges []mango.Range
	plan   *mango.Plan
	test   *mango.Selector // what is left to be tested; nil: nothing
}

// choose picks the way, nil if nothing can match.
func (f *finder) choose() (w *way, release func(), err error) {
	release = func() {}
	if f.view.q.Pin != 0 {
		if release, err = f.hold(); err != nil {
			return nil, release, err
		}
	}
	c, known, err := f.view.coll(f.view.q.Collection)
	if err != nil {
		release()
		return nil, func() {}, err
	}
	f.coll = c
	if !known || f.selector.Never() {
		f.sum.Complete = true
		return nil, release, nil
	}
	return f.byID(), release, nil
}

// byID is the way over the documents themselves, in order of their ids.
func (f *finder) byID() *way {
	w := &way{test: f.selector}
	keyer, err := mango.NewKeyer(mango.Sort{{Path: "_id"}}, mango.Binary)
	if err == nil { // it always is
		w.plan = f.selector.Ranges(keyer)
	}
	w.ranges = idRanges(w.plan)
	w.sorts = f.ordered && len(f.order.fields) > 0
	if f.ordered && !w.sorts {
		w.order.reverse = f.order.reverse
	}
	if f.from != nil && !w.sorts {
		w.ranges = beyond(w.ranges, f.from.id, w.order.reverse)
	}
	if f.selector.Everything() {
		w.test = nil
	}
	return w
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

// beyond cuts off what is not behind a key in the direction of reading.
func beyond(ranges []mango.Range, key []byte, reverse bool) []mango.Range {
	var out []mango.Range
	for _, r := range ranges {
		if reverse {
			if len(r.High) == 0 || bytes.Compare(r.High, key) > 0 {
				r.High = key
			}
		} else if bytes.Compare(r.Low, key) <= 0 {
			r.Low = append(bytes.Clone(key), 0) // no id is the beginning of another
		}
		if len(r.High) == 0 || bytes.Compare(r.Low, r.High) < 0 {
			out = append(out, r)
		}
	}
	return out
}

// walk calls take with the documents of the way that match. more is false if
// take wanted no more.
func (f *finder) walk(w *way, take func(key, id, record []byte, d *mango.Doc) (more bool, err error)) (more bool, err error) {
	base := prefix(nil, f.db.num, f.coll.num, spaceDoc)
	it, err := f.src.NewIter(base, keys.PrefixEnd(base))
	if err != nil {
		return false, err
	}
	defer it.Close()
	for i := range w.ranges {
		r := w.ranges[i]
		if w.order.reverse {
			r = w.ranges[len(w.ranges)-1-i]
		}
		lower, upper := append(bytes.Clone(base), r.Low...), keys.PrefixEnd(base)
		if len(r.High) > 0 {
			upper = append(bytes.Clone(base), r.High...)
		}
		it.SetBounds(lower, upper)
		step, ok := it.Next, false
		if w.order.reverse {
			step, ok = it.Prev, it.Last()
		} else {
			ok = it.First()
		}
		for ; ok; ok = step() {
			if more, err := f.try(w, nil, it.Key()[len(base):], it.Value(), take); !more || err != nil {
				return false, err
			}
		}
		if err := it.Error(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// try tests a document and hands it on if it matches.
func (f *finder) try(w *way, key, id, record []byte, take func(key, id, record []byte, d *mango.Doc) (bool, error)) (more bool, err error) {
	if err := f.turn.step(f.ctx); err != nil {
		return false, err
	}
	d, live, err := f.docs.read(id, record)
	if err != nil {
		return true, f.unreadable(id, err)
	}
	if !live {
		return true, nil
	}
	f.sum.DocsExamined++
	if w.test != nil {
		ok, err := w.test.Match(d)
		if err != nil {
			return true, f.unreadable(id, err)
		}
		if !ok {
			return true, nil
		}
	}
	return take(key, id, record, d)
}

// explain puts a way into words.
func (f *finder) explain(w *way) *osier.FindPlan {
	p := &osier.FindPlan{Selector: f.selector.String()}
	if w == nil {
		p.Why = "nothing can match"
		return p
	}
	p.Reverse, p.Sorts = w.order.reverse, w.sorts
	if w.test != nil {
		p.Residual = w.test.String()
	}
	return p
}
