package engine

import (
	"context"
	"errors"
	"time"

	"github.com/osierdb/osier"
)

// DeclareView makes a program's view known; see osier.ViewCode.
func (e *Engine) DeclareView(ctx context.Context, dbName string, code *osier.ViewCode) error {
	db, err := e.lookup("declare view", dbName)
	if err != nil {
		return err
	}
	n := viewName{code.Collection, code.Name}
	def, err := codeDef(code)
	if err != nil {
		return viewError(osier.KindInvalid, db, n, err)
	}
	if err := e.declareCode(db, n, def); err != nil {
		return err
	}
	if e.opts.ReadOnly {
		return nil
	}
	if !def.eager() {
		e.tendSoon(db)
		return nil
	}
	return e.enforceNow(ctx, db, n)
}

// declareCode puts a program's view in its slot.
func (e *Engine) declareCode(db *database, n viewName, def *viewDef) error {
	vs := &db.views
	vs.sync.Lock()
	defer vs.sync.Unlock()
	if !e.opts.ReadOnly {
		if err := e.readDefinitions(db); err != nil {
			return err
		}
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	s := vs.slot(n)
	if s.def != nil && s.def.kind != viewGo {
		return viewError(osier.KindExists, db, n, errors.New("there is a field view of that name"))
	}
	s.def = def
	vs.code[n] = def
	if ix := s.ready; ix != nil && ix.id == def.id && ix.adopts(def) && (e.opts.ReadOnly || ix.enforced.Load()) {
		// Nothing of it changes but that its function is there.
		ix.def.Store(def)
	}
	return nil
}

// enforceNow returns when an eager view is in force. Its collection is made if
// it is not there, so that its first document is judged too.
func (e *Engine) enforceNow(ctx context.Context, db *database, n viewName) error {
	if _, known := (*db.visible.Load())[n.coll]; !known {
		c := &osier.Command{DB: db.name, Ops: []osier.Op{{Kind: osier.OpCollection, Collection: n.coll, Settings: &osier.Settings{}}}}
		if _, err := e.Exec(ctx, c); err != nil {
			return err
		}
	}
	for range maxViewAttempts {
		ready, building, err := e.findView(db, n)
		if err != nil {
			return err
		}
		if ready != nil && ready.enforced.Load() && !ready.def.Load().runs() {
			// An older version, whose function nobody has any more.
			if err := e.releaseIndex(ready); err != nil {
				return err
			}
		}
		if building == nil {
			if ready == nil || !ready.enforced.Load() {
				return viewError(osier.KindUnavailable, db, n, errors.New("the view is not in force"))
			}
			return nil
		}
		if err := building.awaitBuild(ctx); err != nil && !errors.Is(err, errViewGone) {
			return err
		}
	}
	return viewError(osier.KindUnavailable, db, n, errViewGone)
}

// enforce puts a built index in force.
func (e *Engine) enforce(ix *index) error {
	if err := ix.take(e.ctx); err != nil {
		return err
	}
	defer ix.leave()
	err := ix.ready(e.ctx)
	if err == nil {
		ix.built.Store(true)
		defer ix.built.Store(false)
		c := &osier.Command{DB: ix.db.name, Ops: []osier.Op{{Kind: osier.OpEnforceView, Collection: ix.name.coll, View: ix.name.name}}}
		_, err = e.Exec(e.ctx, c)
	}
	if osier.KindOf(err) != osier.KindNotUnique {
		return err
	}
	return errors.Join(err, ix.failed(err))
}

// failed marks an index as one that cannot be had.
func (ix *index) failed(why error) error {
	p := *ix.at.Load()
	p.state, p.failure = osier.ViewFailed, why.Error()
	b := ix.e.store.NewWriteBatch()
	defer b.Close()
	if err := b.Set(ix.progressKey(nil), p.append(nil)); err != nil {
		return err
	}
	if err := ix.write(b); err != nil {
		return err
	}
	ix.at.Store(&p)
	return nil
}

// sealViews makes the rows of eager views that have functions, of the bodies
// that a command brings.
func (e *Engine) sealViews(c *osier.Command) error {
	db := (*e.dbs.Load())[c.DB]
	if db == nil || !c.Sealed.Time.IsZero() {
		return nil
	}
	eager := db.eager.Load()
	if eager == nil || len(*eager) == 0 {
		return nil
	}
	for i := range c.Ops {
		op := &c.Ops[i]
		for _, ix := range (*eager)[op.Collection] {
			if ix.kind != viewGo || op.Kind != osier.OpPut && op.Kind != osier.OpGraft {
				continue
			}
			if !ix.def.Load().runs() {
				return viewError(osier.KindUnsupported, db, ix.name, errUndeclared)
			}
			if op.ID.IsZero() && op.Kind == osier.OpPut {
				op.ID = osier.MustID(e.ids.Next(e.now().UTC().Truncate(time.Millisecond)))
			}
			if op.Deleted || op.KeepBody {
				continue // no rows, or those of a body that apply will name
			}
			doc := osier.Document{ID: op.ID, Codec: op.Codec, Schema: op.Schema, Body: op.Body}
			if doc.Codec == 0 {
				if doc.Codec = (*db.visible.Load())[op.Collection].settings.Codec; doc.Codec == 0 {
					doc.Codec = osier.TagJSON
				}
			}
			s := ix.sealed(&doc)
			s.Op = i
			c.Sealed.Views = append(c.Sealed.Views, s)
		}
	}
	return nil
}

// sealed makes the rows of a document for a sealed command.
func (ix *index) sealed(doc *osier.Document) osier.SealedRows {
	s := osier.SealedRows{Collection: ix.name.coll, View: ix.name.name, ID: doc.ID, Codec: doc.Codec}
	def := ix.def.Load()
	s.Version = def.code.Version
	bare := osier.Document{ID: doc.ID, Codec: doc.Codec, Schema: doc.Schema, Body: doc.Body}
	var l rowList
	if err := ix.mapping().rows(&bare, &l); err != nil {
		s.Failure = err.Error()
		return s
	}
	for k := range l.rows {
		s.Rows = append(s.Rows, osier.SealedRow{Key: l.key(k), Value: l.value(k)})
	}
	return s
}

// maxReseals bounds how often a command is sealed anew because others came
// between.
const maxReseals = 1000

// resealed adds the rows that apply asked for to a command, and tells whether it
// is worth another try.
func (e *Engine) resealed(c *osier.Command, err error, attempt int) bool {
	var need *needRows
	if !errors.As(err, &need) || attempt == maxReseals || !need.ix.def.Load().runs() {
		return false
	}
	s := need.ix.sealed(&need.doc)
	s.Rev = need.doc.Rev
	c.Sealed.Views = append(c.Sealed.Views, s)
	c.Sealed.Time = time.Time{} // it is put in order anew
	return true
}

// dropCode drops the index of a program's view, and what the program declared.
func (e *Engine) dropCode(dbName string, n viewName) error {
	db, err := e.lookup("drop view", dbName)
	if err != nil {
		return err
	}
	vs := &db.views
	vs.sync.Lock()
	defer vs.sync.Unlock()
	vs.mu.Lock()
	s := vs.slots[n]
	if s == nil || s.kind() != viewGo {
		vs.mu.Unlock()
		return viewError(osier.KindNotFound, db, n, errNoView)
	}
	delete(vs.slots, n)
	delete(vs.code, n)
	vs.mu.Unlock()
	for _, ix := range []*index{s.ready, s.building} {
		if ix != nil {
			if err := ix.drop(); err != nil {
				return e.storeError("drop view", err)
			}
		}
	}
	return nil
}
