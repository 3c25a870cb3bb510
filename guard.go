package osier

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// Action is a set of rights.
type Action uint8

const (
	// MayRead: get, list, count, follow changes, fetch attachments.
	MayRead Action = 1 << iota
	// MayWrite: put, delete and graft documents, stage attachments. It
	// includes making a collection by writing to it.
	MayWrite
	// MayManage: create and drop databases and collections, change settings,
	// define views.
	MayManage
)

// String names the rights.
func (a Action) String() string {
	var names []string
	for i, n := range [...]string{"read", "write", "manage"} {
		if a&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, "+")
}

// Resource is what a right is about: a database, or a collection of one.
type Resource struct {
	DB         string
	Collection string // "" is the database as a whole
}

// Grant gives rights on the resources that its patterns match. A pattern is a
// name, or the beginning of names followed by "*"; an empty Collection means
// all collections.
type Grant struct {
	Actions    Action
	DB         string
	Collection string
}

// Principal is who asks. Its rights are the union of its grants.
type Principal struct {
	Name   string
	Grants []Grant
}

// Admin may do everything.
func Admin(name string) Principal {
	return Principal{Name: name, Grants: []Grant{{Actions: MayRead | MayWrite | MayManage, DB: "*"}}}
}

// Can reports whether p has all of the rights on r. A right on a database as a
// whole takes a grant for all of its collections.
func (p Principal) Can(a Action, r Resource) bool {
	var have Action
	for _, g := range p.Grants {
		if match(g.DB, r.DB) && (g.Collection == "" || g.Collection == "*" || r.Collection != "" && match(g.Collection, r.Collection)) {
			have |= g.Actions
		}
	}
	return have&a == a
}

func match(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// As returns a handle that acts with p's rights only: what they do not cover
// fails with ErrDenied. Rights can be narrowed this way, never widened.
func (db *DB) As(p Principal) *DB {
	c := *db
	c.backend = guard{db.backend, p}
	return &c
}

// As returns a store handle that acts with p's rights only.
func (s *Store) As(p Principal) *Store {
	c := *s
	c.backend = guard{s.backend, p}
	return &c
}

// guard is a Backend around a Backend that judges every request.
type guard struct {
	Backend
	p Principal
}

func (g guard) judge(step string, a Action, r Resource) error {
	if g.p.Can(a, r) {
		return nil
	}
	return &Error{Kind: KindDenied, Op: step, DB: r.DB, Collection: r.Collection,
		Err: fmt.Errorf("%q lacks the right to %v", g.p.Name, a)}
}

func (g guard) Exec(ctx context.Context, c *Command) (*Result, error) {
	for i := range c.Ops {
		a := MayWrite
		switch c.Ops[i].Kind {
		case OpCreateDB, OpDropDB, OpCollection, OpDropCollection, OpPurge, OpPrune, OpEnforceView, OpDropView:
			a = MayManage
		}
		if c.Ops[i].Collection == ViewsCollection {
			a = MayManage // a document there makes a view
		}
		if err := g.judge("change", a, Resource{c.DB, c.Ops[i].Collection}); err != nil {
			return nil, err
		}
	}
	for _, r := range c.Reads {
		// A precondition tells whether something has changed.
		if err := g.judge("read", MayRead, Resource{c.DB, r.Collection}); err != nil {
			return nil, err
		}
	}
	return g.Backend.Exec(ctx, c)
}

func (g guard) Query(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	switch q.Kind {
	case QueryDatabases:
		return g.visible(ctx, q)
	case QueryInfo:
		if q.Collection == "" && g.sees(q.DB) {
			return g.visibleInfo(ctx, q)
		}
	case QueryViewInfo:
		if q.Collection == "" && g.sees(q.DB) {
			return g.visibleViews(ctx, q)
		}
	case QueryPin, QueryUnpin:
		// A pin shows nothing by itself.
		return g.Backend.Query(ctx, q)
	}
	if err := g.judge("read", MayRead, Resource{q.DB, q.Collection}); err != nil {
		return failed(err)
	}
	return g.Backend.Query(ctx, q)
}

// visible lists the databases in which something may be read.
func (g guard) visible(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row, err := range g.Backend.Query(ctx, q) {
			if err == nil && !g.sees(row.DB.Name) {
				continue
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// visibleInfo describes a database by the collections that may be read.
func (g guard) visibleInfo(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row, err := range g.Backend.Query(ctx, q) {
			if err == nil {
				info := *row.DB
				info.Collections = slices.DeleteFunc(slices.Clone(info.Collections), func(c CollectionInfo) bool {
					return !g.p.Can(MayRead, Resource{q.DB, c.Name})
				})
				row.DB = &info
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// visibleViews describes the views of the collections that may be read.
func (g guard) visibleViews(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row, err := range g.Backend.Query(ctx, q) {
			if err == nil && !g.p.Can(MayRead, Resource{q.DB, row.ViewInfo.Collection}) {
				continue
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

func (g guard) sees(db string) bool {
	for _, grant := range g.p.Grants {
		if grant.Actions&MayRead != 0 && match(grant.DB, db) {
			return true
		}
	}
	return false
}

func (g guard) Watch(ctx context.Context, f *Feed) iter.Seq2[Change, error] {
	if err := g.judge("follow changes", MayRead, Resource{f.DB, f.Collection}); err != nil {
		return func(yield func(Change, error) bool) { yield(Change{}, err) }
	}
	return g.Backend.Watch(ctx, f)
}

func (g guard) Stage(ctx context.Context, db string, r io.Reader) (Attachment, error) {
	// Bytes put down change nothing until a command takes them, which needs
	// the right on a collection.
	if !g.writesIn(db) {
		return Attachment{}, g.judge("stage attachment", MayWrite, Resource{DB: db})
	}
	return g.Backend.Stage(ctx, db, r)
}

func (g guard) writesIn(db string) bool {
	for _, grant := range g.p.Grants {
		if grant.Actions&MayWrite != 0 && match(grant.DB, db) {
			return true
		}
	}
	return false
}

func (g guard) Fetch(ctx context.Context, db string, blob BlobID, offset, length int64) (io.ReadCloser, error) {
	// A blob's name is learnt from a document that could be read; it is 128
	// random bits otherwise.
	if !g.sees(db) {
		return nil, g.judge("fetch attachment", MayRead, Resource{DB: db})
	}
	return g.Backend.Fetch(ctx, db, blob, offset, length)
}

// DeclareView takes the function of a view, from whoever may manage the
// collection.
func (g guard) DeclareView(ctx context.Context, db string, v *ViewCode) error {
	if err := g.judge("declare view", MayManage, Resource{db, v.Collection}); err != nil {
		return err
	}
	if d, ok := g.Backend.(viewDeclarer); ok {
		return d.DeclareView(ctx, db, v)
	}
	return nil
}
