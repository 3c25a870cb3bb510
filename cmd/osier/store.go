package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

// access is what a command does with the store.
type access int

const (
	// reading opens what is there and changes nothing on disk.
	reading access = iota
	// changing opens what is there.
	changing
	// creating makes the store if there is none.
	creating
)

// withStore opens the store, runs fn and closes it. Unless the access is
// creating, a folder without a store is an error and stays as it is.
func (e *env) withStore(a access, fn func(*engine.Engine) error) (err error) {
	if a != creating {
		if err := e.checkFolder(); err != nil {
			return err
		}
	}
	eng, err := engine.Open(e.store, &engine.Options{ReadOnly: a == reading})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := eng.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("close store: %w", cerr)
		}
	}()
	return fn(eng)
}

// checkFolder wants something in the store's folder.
func (e *env) checkFolder() error {
	entries, err := os.ReadDir(e.store)
	if err == nil && len(entries) > 0 {
		return nil
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return &exitError{exitMissing, fmt.Errorf(
			"no store at %s: name its folder with --store or OSIER_STORE; osier import and osier databases create make one", e.store)}
	}
	return fmt.Errorf("open store: %w", err)
}

// withDB opens the store and a database in it; creating makes both.
func (e *env) withDB(a access, t target, fn func(context.Context, *osier.DB) error) error {
	return e.withStore(a, func(eng *engine.Engine) error {
		var db *osier.DB
		var err error
		if a == creating {
			db, err = eng.DB(e.ctx, t.db)
		} else {
			db, err = e.openDB(eng, t.db)
		}
		if err != nil {
			return err
		}
		return fn(e.ctx, db)
	})
}

// openDB opens a database that exists, or tells how to get one.
func (e *env) openDB(eng *engine.Engine, name string) (*osier.DB, error) {
	db, err := eng.OpenDB(e.ctx, name)
	if !errors.Is(err, osier.ErrNotFound) {
		return db, err
	}
	hint := "osier databases create " + name + " makes it"
	if names, lerr := eng.Databases(e.ctx); lerr == nil && len(names) > 0 {
		if len(names) > 10 {
			names = append(names[:10], "…")
		}
		hint = "there are " + strings.Join(names, ", ") + "; " + hint
	}
	return nil, &exitError{exitMissing, fmt.Errorf("no database %s in %s: %s", name, e.store, hint)}
}

// one runs a query that answers with a single row and returns a copy of it.
func one(ctx context.Context, db *osier.DB, q *osier.Query) (osier.Row, error) {
	for row, err := range db.Query(ctx, q) {
		if err != nil {
			return row, err
		}
		row.Document = *row.Document.Clone()
		return row, nil
	}
	return osier.Row{Missing: true}, nil
}

// collectionInfo describes a collection; nil if there is none of that name.
func collectionInfo(ctx context.Context, db *osier.DB, name string) (*osier.CollectionInfo, error) {
	info, err := db.Info(ctx)
	if err != nil {
		return nil, err
	}
	for i := range info.Collections {
		if info.Collections[i].Name == name {
			return &info.Collections[i], nil
		}
	}
	return nil, nil
}

// needCollection is collectionInfo for commands whose answer would otherwise
// be an empty one for a name that was mistyped.
func needCollection(ctx context.Context, db *osier.DB, t target) (*osier.CollectionInfo, error) {
	info, err := db.Info(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range info.Collections {
		c := &info.Collections[i]
		if c.Name == t.collection {
			return c, nil
		}
		if c.Name != importsCollection {
			names = append(names, c.Name)
		}
	}
	hint := "it has none yet"
	if len(names) > 0 {
		hint = "there are " + strings.Join(names, ", ")
	}
	return nil, &exitError{exitMissing, fmt.Errorf("no collection %s in database %s: %s", t.collection, t.db, hint)}
}

// bodyJSON returns a document's body as compact JSON, whatever its codec; nil
// if it has none.
func bodyJSON(db *osier.DB, d *osier.Document) ([]byte, error) {
	if d.Body == nil {
		return nil, nil
	}
	b, err := db.AppendJSON(nil, d)
	if err != nil {
		return nil, err
	}
	out, err := appendCompact(make([]byte, 0, len(b)), b)
	if err != nil {
		return nil, &osier.Error{Kind: osier.KindCorrupt, Op: "read body", DB: db.Name(), ID: d.ID.String(), Err: err}
	}
	return out, nil
}
