package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

type databasesCmd struct {
	List   databasesListCmd   `cmd:"" default:"1" help:"List databases (also without a word)."`
	Create databasesCreateCmd `cmd:"" help:"Create a database, and the store if need be."`
	Drop   databasesDropCmd   `cmd:"" help:"Delete a database and all in it."`
}

// databaseJSON is a database in JSON output.
type databaseJSON struct {
	Name        string           `json:"name"`
	UUID        string           `json:"uuid"`
	Created     string           `json:"created"`
	Documents   uint64           `json:"documents"`
	LastSeq     osier.Seq        `json:"lastSeq"`
	DiskBytes   uint64           `json:"diskBytes"`
	Collections []collectionJSON `json:"collections"`
	Journals    []journalJSON    `json:"journals,omitempty"`
}

type collectionJSON struct {
	Name      string    `json:"name"`
	Documents uint64    `json:"documents"`
	Deleted   uint64    `json:"deleted"`
	BodyBytes uint64    `json:"bodyBytes"`
	DiskBytes uint64    `json:"diskBytes"`
	LastSeq   osier.Seq `json:"lastSeq"`
	Codec     string    `json:"codec"`
	History   string    `json:"history"`
	RevLimit  uint32    `json:"revLimit"`
	Schema    uint32    `json:"schema"`
}

func describeDatabase(info *osier.DBInfo) databaseJSON {
	j := databaseJSON{
		Name: info.Name, UUID: osier.MustID(info.UUID).String(), Created: rfc3339(info.Created),
		Documents: documents(info), LastSeq: info.LastSeq, DiskBytes: info.DiskBytes, Collections: []collectionJSON{},
	}
	for i := range info.Collections {
		j.Collections = append(j.Collections, describeCollection(&info.Collections[i]))
	}
	for i := range info.Journals {
		j.Journals = append(j.Journals, describeJournal(&info.Journals[i]))
	}
	return j
}

func describeCollection(c *osier.CollectionInfo) collectionJSON {
	limit := c.Settings.RevLimit
	if limit == 0 {
		limit = osier.DefaultRevLimit
	}
	return collectionJSON{c.Name, c.Count, c.Deleted, c.BodyBytes, c.DiskBytes, c.LastSeq, codecName(c.Settings.Codec), historyName(c.Settings.History), limit, c.Settings.Schema}
}

// documents counts a database's live documents, without what the import
// command keeps for itself.
func documents(info *osier.DBInfo) uint64 {
	var n uint64
	for i := range info.Collections {
		if info.Collections[i].Name != importsCollection {
			n += info.Collections[i].Count
		}
	}
	return n
}

func codecName(tag osier.CodecTag) string {
	switch tag {
	case osier.TagJSON:
		return "json"
	case osier.TagCBOR:
		return "cbor"
	case osier.TagPot:
		return "pot"
	case osier.TagBinary:
		return "binary"
	}
	return "codec " + strconv.Itoa(int(tag))
}

func historyName(h osier.History) string {
	switch h {
	case 0:
		return "none"
	case osier.KeepAll:
		return "all"
	}
	return strconv.Itoa(int(h))
}

type databasesListCmd struct{}

// Run lists databases.
func (c *databasesListCmd) Run(e *env) error {
	return e.withStore(reading, func(eng *engine.Engine) error {
		names, err := eng.Databases(e.ctx)
		if err != nil {
			return err
		}
		t := e.table("NAME", ">COLLECTIONS", ">DOCUMENTS", ">SIZE", "CREATED")
		for _, name := range names {
			db, err := eng.OpenDB(e.ctx, name)
			if err != nil {
				return err
			}
			info, err := db.Info(e.ctx)
			if err != nil {
				return err
			}
			if e.json {
				err = e.printJSON(describeDatabase(info))
			} else {
				err = t.row(name, e.count(uint64(collections(info))), e.count(documents(info)), e.size(info.DiskBytes), e.time(info.Created))
			}
			if err != nil {
				return err
			}
		}
		return t.flush()
	})
}

// collections counts those of the user.
func collections(info *osier.DBInfo) int {
	n := len(info.Collections)
	if slices.ContainsFunc(info.Collections, func(c osier.CollectionInfo) bool { return c.Name == importsCollection }) {
		n--
	}
	return n
}

type databasesCreateCmd struct {
	Name string `arg:"" help:"Its name: a lower-case letter first, then lower-case letters, digits and _ $ ( ) + - /."`
}

// Run creates a database.
func (c *databasesCreateCmd) Run(e *env) error {
	if err := osier.CheckDBName(c.Name); err != nil {
		return err
	}
	return e.withStore(creating, func(eng *engine.Engine) error {
		db, err := eng.CreateDB(e.ctx, c.Name)
		if err != nil || !e.json {
			return err
		}
		info, err := db.Info(e.ctx)
		if err != nil {
			return err
		}
		return e.printJSON(describeDatabase(info))
	})
}

type databasesDropCmd struct {
	Name string `arg:"" help:"Its name."`
	Yes  bool   `help:"Really delete it, with all documents."`
}

// Run drops a database.
func (c *databasesDropCmd) Run(e *env) error {
	a := changing
	if !c.Yes {
		a = reading
	}
	return e.withStore(a, func(eng *engine.Engine) error {
		db, err := e.openDB(eng, c.Name)
		if err != nil {
			return err
		}
		if c.Yes {
			return eng.DropDB(e.ctx, c.Name)
		}
		info, err := db.Info(e.ctx)
		if err != nil {
			return err
		}
		return usagef("this would delete %s and its %s for good: add --yes", c.Name, e.counted(documents(info), "document"))
	})
}

type collectionsCmd struct {
	List collectionsListCmd `cmd:"" help:"List a database's collections."`
	Set  collectionsSetCmd  `cmd:"" help:"Create a collection or change its settings."`
	Drop collectionsDropCmd `cmd:"" help:"Delete a collection and all in it."`
}

type collectionsListCmd struct {
	Target target `arg:"" name:"db" help:"The database."`
}

// Run lists collections.
func (c *collectionsListCmd) Run(e *env) error {
	return e.withDB(reading, c.Target, func(ctx context.Context, db *osier.DB) error {
		info, err := db.Info(ctx)
		if err != nil {
			return err
		}
		return e.printCollections(info)
	})
}

func (e *env) printCollections(info *osier.DBInfo) error {
	t := e.table("COLLECTION", ">DOCUMENTS", ">DELETED", ">BODIES", ">ON DISK", ">LAST SEQ", "CODEC", "HISTORY")
	for i := range info.Collections {
		c := describeCollection(&info.Collections[i])
		var err error
		if e.json {
			err = e.printJSON(c)
		} else {
			err = t.row(c.Name, e.count(c.Documents), e.count(c.Deleted), e.size(c.BodyBytes), e.size(c.DiskBytes), e.count(uint64(c.LastSeq)), c.Codec, c.History)
		}
		if err != nil {
			return err
		}
	}
	return t.flush()
}

type collectionsSetCmd struct {
	Target   target  `arg:"" name:"db[:collection]" help:"The collection."`
	History  string  `placeholder:"none|N|all" help:"How many earlier versions of a document are kept whole."`
	RevLimit *uint32 `name:"rev-limit" placeholder:"N" help:"How many earlier revisions are remembered by name (0: 1000)."`
}

// Run changes settings.
func (c *collectionsSetCmd) Run(e *env) error {
	return e.withDB(changing, c.Target, func(ctx context.Context, db *osier.DB) error {
		info, err := collectionInfo(ctx, db, c.Target.collection)
		if err != nil {
			return err
		}
		s := osier.Settings{Codec: osier.TagJSON}
		if info != nil {
			s = info.Settings
		}
		if c.RevLimit != nil {
			s.RevLimit = *c.RevLimit
		}
		switch c.History {
		case "":
		case "none":
			s.History = 0
		case "all":
			s.History = osier.KeepAll
		default:
			n, err := strconv.ParseInt(c.History, 10, 32)
			if err != nil || n < 0 {
				return usagef("--history %s: want none, a number or all", oneLine(c.History))
			}
			s.History = osier.History(n)
		}
		op := osier.Op{Kind: osier.OpCollection, Collection: c.Target.collection, Settings: &s}
		if _, err := db.Exec(ctx, &osier.Command{Ops: []osier.Op{op}}); err != nil || !e.json {
			return err
		}
		if info, err = collectionInfo(ctx, db, c.Target.collection); err != nil || info == nil {
			return err
		}
		return e.printJSON(describeCollection(info))
	})
}

type collectionsDropCmd struct {
	Target target `arg:"" name:"db[:collection]" help:"The collection."`
	Yes    bool   `help:"Really delete it, with all documents."`
}

// Run drops a collection.
func (c *collectionsDropCmd) Run(e *env) error {
	a := changing
	if !c.Yes {
		a = reading
	}
	return e.withDB(a, c.Target, func(ctx context.Context, db *osier.DB) error {
		info, err := needCollection(ctx, db, c.Target)
		if err != nil {
			return err
		}
		if !c.Yes {
			return usagef("this would delete %v and its %s for good: add --yes", c.Target, e.counted(info.Count, "document"))
		}
		if err := db.DropCollection(ctx, c.Target.collection); err != nil {
			return err
		}
		return forgetImports(ctx, db, c.Target.collection)
	})
}

type statsCmd struct {
	DB string `arg:"" optional:"" help:"A database; without one the store as a whole."`
}

// Run shows numbers.
func (c *statsCmd) Run(e *env) error {
	return e.withStore(reading, func(eng *engine.Engine) error {
		if c.DB == "" {
			return c.store(e, eng)
		}
		db, err := e.openDB(eng, c.DB)
		if err != nil {
			return err
		}
		info, err := db.Info(e.ctx)
		if err != nil {
			return err
		}
		if e.json {
			return e.printJSON(describeDatabase(info))
		}
		d := describeDatabase(info)
		err = e.record("database", d.Name, "uuid", d.UUID, "created", e.time(info.Created), "documents", e.count(d.Documents),
			"last sequence", e.count(uint64(d.LastSeq)), "on disk", e.size(d.DiskBytes))
		if err != nil {
			return err
		}
		return e.printCollections(info)
	})
}

func (c *statsCmd) store(e *env, eng *engine.Engine) error {
	s, err := eng.Stats(e.ctx)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(map[string]any{
			"databases": s.Databases, "diskBytes": s.DiskBytes, "walBytes": s.WALBytes, "tables": s.Tables,
			"readAmplification": s.ReadAmplification, "cacheBytes": s.CacheBytes,
		})
	}
	return e.record("store", e.store, "databases", e.count(uint64(s.Databases)), "on disk", e.size(s.DiskBytes), "log", e.size(s.WALBytes),
		"tables", e.count(s.Tables), "read amplification", e.count(uint64(s.ReadAmplification)), "cache", e.size(s.CacheBytes))
}

type compactCmd struct{}

// Run compacts the store.
func (c *compactCmd) Run(e *env) error {
	var before, after engine.Stats
	err := e.withStore(changing, func(eng *engine.Engine) (err error) {
		if before, err = eng.Stats(e.ctx); err != nil {
			return err
		}
		return eng.Compact(e.ctx)
	})
	if err != nil {
		return err
	}
	// Files that are not needed any more are gone by the time it is closed.
	err = e.withStore(reading, func(eng *engine.Engine) (err error) {
		after, err = eng.Stats(e.ctx)
		return err
	})
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(map[string]any{"before": before.DiskBytes, "after": after.DiskBytes})
	}
	_, err = fmt.Fprintf(e.stdout, "compacted %s: %s before, %s now\n", e.store, humanSize(before.DiskBytes), humanSize(after.DiskBytes))
	return err
}

// problemJSON is damage in JSON output.
type problemJSON struct {
	DB         string `json:"db,omitempty"`
	Collection string `json:"collection,omitempty"`
	ID         string `json:"id,omitempty"`
	File       string `json:"file,omitempty"`
	Offset     int64  `json:"offset,omitempty"`
	Error      string `json:"error"`
}

// printProblem shows damage: a line on standard output, as it is the answer.
func (e *env) printProblem(p engine.Problem) error {
	if !e.json {
		_, err := fmt.Fprintln(e.stdout, oneLine(p.String()))
		return err
	}
	text := ""
	if p.Err != nil {
		text = p.Err.Error()
	}
	return e.printJSON(problemJSON{p.DB, p.Collection, p.ID, p.File, p.Offset, text})
}

type verifyCmd struct{}

// Run reads the whole store.
func (c *verifyCmd) Run(e *env) error {
	found := 0
	var shown error
	err := e.withStore(reading, func(eng *engine.Engine) error {
		rep, err := eng.Check(e.ctx, func(p engine.Problem) {
			found++
			shown = errors.Join(shown, e.printProblem(p))
		})
		if err := errors.Join(err, shown); err != nil {
			return err
		}
		if e.json {
			return e.printJSON(map[string]any{
				"databases": rep.Databases, "collections": rep.Collections, "documents": rep.Documents, "revisions": rep.Revisions,
				"attachments": rep.Attachments, "bytes": rep.Bytes, "problems": rep.Problems,
			})
		}
		_, err = fmt.Fprintf(e.stdout, "checked %s, %s, %s, %s, %s, %s: %s\n",
			e.counted(rep.Databases, "database"), e.counted(rep.Collections, "collection"), e.counted(rep.Documents, "document"),
			e.counted(rep.Revisions, "revision"), e.counted(rep.Attachments, "attachment"), humanSize(rep.Bytes), e.counted(uint64(rep.Problems), "problem"))
		return err
	})
	switch {
	case err == nil && found == 0:
		return nil
	case err == nil:
		return &exitError{exitDamage, fmt.Errorf("%s is damaged: osier repair saves what is whole", e.store)}
	case errors.Is(err, osier.ErrCorrupt):
		if e.json {
			err = errors.Join(e.printProblem(engine.Problem{File: e.store, Err: err}), err)
		}
		return &exitError{exitDamage, fmt.Errorf("%w: osier repair saves what is whole", err)}
	}
	return err
}

type repairCmd struct{}

// Run saves what is whole of a damaged store.
func (c *repairCmd) Run(e *env) error {
	if err := e.checkFolder(); err != nil {
		return err
	}
	var shown error
	rep, err := engine.Repair(e.ctx, e.store, func(p engine.Problem) { shown = errors.Join(shown, e.printProblem(p)) })
	if err := errors.Join(err, shown); err != nil {
		return err
	}
	if e.json {
		err = e.printJSON(map[string]any{
			"databases": rep.Databases, "documents": rep.Documents, "revisions": rep.Revisions, "attachments": rep.Attachments,
			"lost": len(rep.Lost), "old": rep.Old,
		})
	} else {
		_, err = fmt.Fprintf(e.stdout, "saved %s, %s, %s, %s; what was there before is in %s\n", e.counted(rep.Databases, "database"),
			e.counted(rep.Documents, "document"), e.counted(rep.Revisions, "revision"), e.counted(rep.Attachments, "attachment"), rep.Old)
	}
	if err == nil && len(rep.Lost) > 0 {
		err = &exitError{exitDamage, fmt.Errorf("some things were lost (%d): they are listed above", len(rep.Lost))}
	}
	return err
}

type backupCmd struct {
	Dir string `arg:"" help:"Folder to write; it must not exist yet, or be empty."`
}

// Run copies the store.
func (c *backupCmd) Run(e *env) error {
	// A store opened for reading only has no checkpoints to copy.
	return e.withStore(changing, func(eng *engine.Engine) error {
		if err := eng.Backup(e.ctx, c.Dir); err != nil {
			return err
		}
		if e.json {
			return e.printJSON(map[string]any{"dir": c.Dir})
		}
		_, err := fmt.Fprintf(e.stdout, "backed up %s into %s\n", e.store, c.Dir)
		return err
	})
}

type versionCmd struct{}

// Run shows the version that the module was built at.
func (c *versionCmd) Run(e *env) error {
	version, revision := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if e.json {
		return e.printJSON(map[string]any{"version": version, "revision": revision, "go": runtime.Version(), "platform": platform})
	}
	_, err := fmt.Fprintln(e.stdout, strings.Join([]string{"osier", version, runtime.Version(), platform}, " "))
	return err
}
