package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/store"
)

// Eager and unique views are kept by apply. Rows of fields are worked out here,
// from the body. Rows of a program's function come with the sealed command; if
// the winner turns out to be a revision that they were not made of, apply asks
// for that one's rows, and the command is sealed again: see needRows.

// eagerViews are the indexes that apply keeps of a collection.
func (db *database) eagerViews(name string, coll uint32) []*index {
	m := db.eager.Load()
	if m == nil {
		return nil
	}
	list := (*m)[name]
	if len(list) > 0 && list[0].coll != coll {
		return nil
	}
	return list
}

// setEager replaces the indexes that apply keeps.
func (db *database) setEager(change func(map[string][]*index)) {
	m := map[string][]*index{}
	if old := db.eager.Load(); old != nil {
		for name, list := range *old {
			m[name] = slices.Clone(list)
		}
	}
	change(m)
	db.eager.Store(&m)
}

// keepEager has apply keep an index.
func (db *database) keepEager(ix *index) {
	ix.enforced.Store(true)
	db.setEager(func(m map[string][]*index) {
		list := append(m[ix.name.coll], ix)
		slices.SortFunc(list, func(a, b *index) int { return int(a.num) - int(b.num) })
		m[ix.name.coll] = list
	})
}

// leaveEager has apply no longer keep some indexes.
func (db *database) leaveEager(which func(*index) bool) {
	if db.eager.Load() == nil {
		return
	}
	db.setEager(func(m map[string][]*index) {
		for name, list := range m {
			m[name] = slices.DeleteFunc(list, func(ix *index) bool {
				if !which(ix) {
					return false
				}
				ix.enforced.Store(false)
				return true
			})
		}
		maps.DeleteFunc(m, func(_ string, list []*index) bool { return len(list) == 0 })
	})
}

// reloadEager brings the indexes that apply keeps to what the store has of
// them, after a commit that failed.
func (e *Engine) reloadEager(db *database) error {
	var list []*index
	vs := &db.views
	vs.mu.Lock()
	for _, s := range vs.slots {
		for _, ix := range []*index{s.ready, s.building} {
			if ix != nil && ix.def.Load().eager() {
				list = append(list, ix)
			}
		}
	}
	vs.mu.Unlock()
	db.leaveEager(func(*index) bool { return true })
	for _, ix := range list {
		b, closer, err := e.store.Get(viewKey(db.num, ix.num))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		rec, err := decodeViewRecord(b)
		closer.Close()
		if err != nil {
			return err
		}
		if !rec.enforced {
			continue
		}
		p, err := readProgress(e.store, db.num, ix.coll, ix.num)
		if err != nil {
			return err
		}
		ix.at.Store(p)
		db.keepEager(ix)
	}
	return nil
}

// forgetViews drops what the group has worked out for indexes whose collection
// or database is dropped.
func (a *applier) forgetViews(db *database, which func(*index) bool) {
	mine := func(ix *index) bool { return ix.db == db && which(ix) }
	a.views = slices.DeleteFunc(a.views, func(w *indexEdit) bool { return mine(w.ix) })
	db.leaveEager(which)
}

// viewEdit finds or begins the group's edit of an index.
func (a *applier) viewEdit(ix *index) *indexEdit {
	for _, w := range a.views {
		if w.ix == ix {
			return w
		}
	}
	w := ix.edit(a.b)
	a.views = append(a.views, w)
	return w
}

// editRows are the rows of a document in an eager view, as they will be.
type editRows struct {
	ix      *index
	list    rowList
	failure error
}

// needRows asks for the rows of a revision that a command brings to the fore.
type needRows struct {
	ix  *index
	doc osier.Document
}

func (n *needRows) Error() string { return "rows of " + n.doc.ID.String() + " are needed" }

// viewRows works out the document's rows in the eager views of its collection.
func (ed *edit) viewRows(r *run) error {
	ed.rows = ed.rows[:0]
	if !ed.moves() {
		return nil
	}
	for _, ix := range r.db.eagerViews(ed.name, ed.coll.num) {
		if len(ed.leaves) == 0 { // purged
			ed.rows = append(ed.rows, editRows{ix: ix})
			continue
		}
		w := &ed.leaves[ed.winner()]
		v, err := ed.version(r, w)
		if err != nil {
			return err
		}
		rows := editRows{ix: ix}
		doc := osier.Document{ID: ed.id, Deleted: w.deleted, Codec: v.codec, Schema: v.schema, Body: shown(v)}
		if ix.kind == viewGo && !w.deleted {
			if err := r.sealedRows(&rows, w, &doc); err != nil {
				return err
			}
		} else {
			rows.failure = ix.mapping().rows(&doc, &rows.list)
		}
		ed.rows = append(ed.rows, rows)
	}
	return nil
}

// sealedRows finds the rows of a winner among those that came with the command.
func (r *run) sealedRows(rows *editRows, w *editLeaf, doc *osier.Document) error {
	list := r.cmd.Sealed.Views
	for i := range list {
		s := &list[i]
		if s.ID != doc.ID || s.View != rows.ix.name.name || s.Collection != rows.ix.name.coll || !rows.ix.isVersion(s.Version) {
			continue
		}
		if s.Rev != w.rev && !(s.Rev.IsZero() && s.Op < len(r.cmd.Ops) && s.Codec == doc.Codec && bytes.Equal(r.cmd.Ops[s.Op].Body, doc.Body)) {
			continue
		}
		if s.Failure != "" {
			rows.failure = errors.New(s.Failure)
			return nil
		}
		for k := range s.Rows {
			rows.list.add(s.Rows[k].Key, s.Rows[k].Value)
		}
		return nil
	}
	own := *doc.Clone()
	own.Rev = w.rev
	return &needRows{rows.ix, own}
}

func (ix *index) isVersion(version uint64) bool {
	for i := range 8 {
		if ix.id[i] != byte(version>>(8*i)) {
			return false
		}
	}
	return true
}

// flushViews writes a document's rows in eager views.
func (r *run) flushViews(ed *edit) error {
	if !ed.moves() {
		return nil
	}
	if ed.name == osier.ViewsCollection {
		return r.flushDefinition(ed)
	}
	if len(r.db.eagerViews(ed.name, ed.coll.num)) == 0 {
		return nil
	}
	for i := range ed.rows {
		w := r.a.viewEdit(ed.rows[i].ix)
		w.p.seq = r.state.lastSeq
		if err := w.doc(ed.id, &ed.rows[i].list, ed.rows[i].failure); err != nil {
			return err
		}
	}
	return nil
}

// flushDefinition ends the keeping of a view whose definition has changed; an
// index of the new one is built beside the order.
func (r *run) flushDefinition(ed *edit) error {
	m := r.db.eager.Load()
	if m == nil {
		return nil
	}
	w := &ed.leaves[ed.winner()]
	var def *viewDef
	if !w.deleted && w.v.codec == osier.TagJSON {
		def, _ = parseDefinition(ed.id.String(), w.v.body)
	}
	for _, list := range *m {
		for _, ix := range list {
			if ix.kind == viewGo || ix.name.name != ed.id.String() || def != nil && def.id == ix.id && ix.adopts(def) {
				continue
			}
			if err := r.a.release(ix, r.state.lastSeq); err != nil {
				return err
			}
		}
	}
	return nil
}

// release ends the keeping of an index.
func (a *applier) release(ix *index, seq osier.Seq) error {
	a.viewEdit(ix).p.seq = seq
	a.touch(ix.db)
	ix.db.leaveEager(func(x *index) bool { return x == ix })
	return a.b.Set(viewKey(ix.db.num, ix.num), ix.record())
}

// claims are the keys of a unique view that a command's documents take.
type claims map[string]osier.ID

// judged carries out an operation. One that breaks the rule of a unique view is
// taken back if others go on without it.
func (r *run) judged(i int) (osier.OpResult, error) {
	op := &r.cmd.Ops[i]
	if !r.cmd.PerDocument || op.Kind != osier.OpPut && op.Kind != osier.OpGraft && op.Kind != osier.OpPurge || len(r.eagerNamed(op.Collection)) == 0 {
		return r.operation(i)
	}
	if err := checkOp(r.db.name, op); err != nil {
		return osier.OpResult{}, err
	}
	ed, err := r.edit(op)
	if err != nil {
		return osier.OpResult{}, err
	}
	saved, state, changes, staged := ed.saved(), r.state, len(r.changes), len(r.staged)
	res, err := r.operation(i)
	if err != nil {
		return res, err
	}
	if err = ed.viewRows(r); err == nil {
		err = r.claim(ed, saved.rows)
	}
	if err != nil {
		*ed = saved
		r.state, r.changes, r.staged = state, r.changes[:changes], r.staged[:staged]
	}
	return res, err
}

// eagerNamed are the eager views of a collection as the command sees it.
func (r *run) eagerNamed(name string) []*index {
	c := r.collection(name, nil)
	if c == nil {
		return nil
	}
	return r.db.eagerViews(name, c.num)
}

// saved is a copy of the edit that further operations leave alone.
func (ed *edit) saved() edit {
	c := *ed
	c.leaves, c.superseded, c.nodes = slices.Clone(ed.leaves), slices.Clone(ed.superseded), slices.Clone(ed.nodes)
	c.digests, c.staged = slices.Clone(ed.digests), slices.Clone(ed.staged)
	c.rows = slices.Clone(ed.rows)
	for i := range c.rows {
		l := &c.rows[i].list
		l.buf, l.rows = slices.Clone(l.buf), slices.Clone(l.rows)
	}
	return c
}

// checkUnique works out the rows of all documents of the command in eager views,
// and judges unique ones, where that was not done operation by operation.
func (r *run) checkUnique() error {
	if r.cmd.PerDocument || r.db.eager.Load() == nil {
		return nil
	}
	for _, ed := range r.edits {
		if err := ed.viewRows(r); err != nil {
			return err
		}
	}
	for _, ed := range r.edits {
		if err := r.claim(ed, nil); err != nil {
			return err
		}
	}
	return nil
}

// claim takes the keys of a document in unique views, or refuses. old are the
// rows by which an earlier operation of the command took some.
func (r *run) claim(ed *edit, old []editRows) error {
	for i := range ed.rows {
		if err := r.judgeUnique(ed, &ed.rows[i]); err != nil {
			return err
		}
	}
	for i := range ed.rows {
		rows := &ed.rows[i]
		if rows.ix.def.Load().policy != osier.Unique {
			continue
		}
		if r.claims == nil {
			r.claims = map[*index]claims{}
		}
		c := r.claims[rows.ix]
		if c == nil {
			c = claims{}
			r.claims[rows.ix] = c
		}
		for o := range old {
			for k := range old[o].list.rows {
				if old[o].ix == rows.ix && c[string(old[o].list.key(k))] == ed.id {
					delete(c, string(old[o].list.key(k)))
				}
			}
		}
		for k := range rows.list.rows {
			c[string(rows.list.key(k))] = ed.id
		}
	}
	return nil
}

// judgeUnique refuses rows whose keys another document has.
func (r *run) judgeUnique(ed *edit, rows *editRows) error {
	if rows.ix.def.Load().policy != osier.Unique {
		return nil
	}
	c := r.claims[rows.ix]
	for k := range rows.list.rows {
		key := rows.list.key(k)
		if rows.list.rows[k].n > 0 {
			return r.notUnique(rows.ix, key, ed.id, ed.id)
		}
		other, taken := c[string(key)]
		if !taken {
			var err error
			if other, err = r.holder(rows.ix, key); err != nil {
				return err
			}
		}
		if !other.IsZero() && other != ed.id {
			return r.notUnique(rows.ix, key, ed.id, other)
		}
	}
	return nil
}

// holder returns the document that has a row of a key in the store, of those
// that the command has not changed.
func (r *run) holder(ix *index, key []byte) (osier.ID, error) {
	lower, upper := ix.bounds(string(key), string(keys.PrefixEnd(key)))
	it, err := r.a.b.NewIter(lower, upper)
	if err != nil {
		return osier.ID{}, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		_, idKey, _, _, err := splitRow(it.Key()[viewPrefixSize:], it.Value())
		if err != nil {
			return osier.ID{}, err
		}
		id := osier.TrustedID(idKey)
		if ed := r.findEdit(ix.coll, id); ed == nil || !ed.changed {
			return id, nil
		}
	}
	return osier.ID{}, it.Error()
}

// notUnique names the view, the key and both documents.
func (r *run) notUnique(ix *index, key []byte, id, other osier.ID) error {
	who := "document " + other.String() + " has it"
	if id == other {
		who = "the document emits it twice"
	}
	return &osier.Error{Kind: osier.KindNotUnique, Op: "change", DB: r.db.name, Collection: ix.name.coll, ID: id.String(),
		Err: fmt.Errorf("key %s of the unique view %s: %s", keys.Format(key), ix.name.name, who)}
}

// enforceView puts an index that has been built in force: it takes in the
// changes that are left, so that from this command on apply keeps it.
func (a *applier) enforceView(c *osier.Command) (*osier.Result, bool, error) {
	op := &c.Ops[0]
	db := a.database(c.DB)
	if db == nil {
		return nil, false, &osier.Error{Kind: osier.KindNotFound, Op: "enforce view", DB: c.DB}
	}
	n := viewName{op.Collection, op.View}
	db.views.mu.Lock()
	s := db.views.slots[n]
	var ix *index
	if s != nil {
		ix = s.building
	}
	db.views.mu.Unlock()
	coll := db.colls[op.Collection]
	if ix == nil || !ix.built.Load() || coll == nil || coll.num != ix.coll || ix.enforced.Load() {
		return nil, false, viewError(osier.KindNotFound, db, n, errors.New("there is no built index to be put in force"))
	}
	w := a.viewEdit(ix)
	for w.p.seq < coll.lastSeq {
		if err := ix.follow(a.b, w, coll.lastSeq); err != nil {
			return nil, false, &brokenBatch{err}
		}
	}
	if ix.def.Load().policy == osier.Unique {
		if err := ix.duplicateSince(a.b, ix.judged, coll.lastSeq); err != nil {
			var own *osier.Error
			if errors.As(err, &own) {
				return nil, false, own
			}
			return nil, false, &brokenBatch{err}
		}
	}
	w.p.state, w.p.last, w.p.done = osier.ViewReady, nil, 0
	db.keepEager(ix)
	if err := a.b.Set(viewKey(db.num, ix.num), ix.record()); err != nil {
		return nil, false, &brokenBatch{err}
	}
	a.touch(db)
	return &osier.Result{First: db.state.lastSeq, Last: db.state.lastSeq, Time: c.Sealed.Time, Ops: make([]osier.OpResult, 1)}, false, nil
}

// releaseView ends the keeping of a program's view.
func (a *applier) releaseView(c *osier.Command) (*osier.Result, bool, error) {
	op := &c.Ops[0]
	db := a.database(c.DB)
	if db == nil {
		return nil, false, &osier.Error{Kind: osier.KindNotFound, Op: "drop view", DB: c.DB}
	}
	if coll := db.colls[op.Collection]; coll != nil {
		for _, ix := range db.eagerViews(op.Collection, coll.num) {
			if ix.name.name != op.View || ix.kind != viewGo {
				continue
			}
			if err := a.release(ix, db.state.lastSeq); err != nil {
				return nil, false, &brokenBatch{err}
			}
		}
	}
	return &osier.Result{First: db.state.lastSeq, Last: db.state.lastSeq, Time: c.Sealed.Time, Ops: make([]osier.OpResult, 1)}, false, nil
}
