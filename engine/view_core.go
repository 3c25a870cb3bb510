package engine

import (
	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/mango"
)

// jsonIndexes returns the JSON indexes of a collection that can answer, in order
// of their names. Bring one up to date with catchUp, take a snapshot, and make
// sure with readableIn that it is still there; then newRowCursor with bounds
// walks over its rows, and rangeCount counts them.
func (e *Engine) jsonIndexes(db *database, coll string) ([]*index, error) {
	if !e.opts.ReadOnly {
		if err := e.refreshDefinitions(db); err != nil {
			return nil, err
		}
	}
	var names []viewName
	vs := &db.views
	vs.mu.Lock()
	for n, s := range vs.slots {
		if n.coll == coll && s.kind() == viewJSON && s.wrong == "" {
			names = append(names, n)
		}
	}
	vs.mu.Unlock()
	sortNames(names)
	var out []*index
	for _, n := range names {
		ready, building, err := e.findView(db, n)
		if err != nil {
			return nil, err
		}
		if building != nil && building.at.Load().state == osier.ViewBuilding && building.def.Load().runs() {
			building.ensureBuilt()
		}
		if ready != nil {
			out = append(out, ready)
		}
	}
	return out, nil
}

// readableIn tells whether the index is there and ready in a state, and how far
// it has come in it.
func (ix *index) readableIn(src source) (*progress, bool, error) {
	p, err := readProgress(src, ix.db.num, ix.coll, ix.num)
	return p, err == nil && p.state == osier.ViewReady, err
}

// keyer makes the keys of the index's rows; nil for a program's view.
func (ix *index) keyer() *mango.Keyer {
	if f := ix.def.Load().fields; f != nil {
		return f.keyer
	}
	return nil
}

// partial is the selector that the index's documents match; nil if it is of all
// that have its fields.
func (ix *index) partial() *mango.Selector {
	if f := ix.def.Load().fields; f != nil {
		return f.partial
	}
	return nil
}

// rangeCount counts an index's rows in a range of encoded keys, in O(log n).
func (ix *index) rangeCount(src source, lo, hi string) (uint64, error) {
	n, err := ix.fold(src, lo, hi, true)
	return n.Count, err
}
