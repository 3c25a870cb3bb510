package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/osierdb/osier"
)

type historyCmd struct {
	Target target `arg:"" name:"db[:collection]" help:"Where the document is."`
	ID     string `arg:"" help:"Its id."`
	idFlags
	Docs bool `help:"Show the documents, as far as they are kept."`
}

// Run shows the versions of a document.
func (c *historyCmd) Run(e *env) error {
	id, err := c.id(c.ID)
	if err != nil {
		return err
	}
	return e.withDB(reading, c.Target, func(ctx context.Context, db *osier.DB) error {
		whole, err := one(ctx, db, &osier.Query{Kind: osier.QueryGet, Collection: c.Target.collection, IDs: []osier.ID{id}, Parts: osier.WithConflicts, Deleted: true})
		if err != nil {
			return err
		}
		if whole.Missing {
			return noDocument(ctx, db, c.Target, id)
		}
		leaves := map[osier.Rev]string{whole.Rev: "present"}
		for _, l := range whole.Conflicts {
			leaves[l.Rev] = "conflict"
		}
		t := e.table("REV", ">SEQ", "TIME", "STATE", "KEPT")
		if c.Docs {
			t = e.table("REV", ">SEQ", "TIME", "STATE", "DOCUMENT")
		}
		t.cut = true
		for row, err := range db.Query(ctx, &osier.Query{Kind: osier.QueryVersions, Collection: c.Target.collection, IDs: []osier.ID{id}, Parts: osier.WithBody}) {
			if err != nil {
				return errors.Join(t.flush(), err)
			}
			state := leaves[row.Rev]
			if state == "" {
				state = "earlier"
			}
			if err := c.show(e, t, db, &row.Document, state); err != nil {
				return err
			}
		}
		return t.flush()
	})
}

func (c *historyCmd) show(e *env, t *table, db *osier.DB, d *osier.Document, state string) error {
	body, err := bodyJSON(db, d)
	if err != nil {
		return err
	}
	if e.json {
		j := describe(d, body)
		j.State = state
		return e.printJSON(j)
	}
	kept := string(body)
	switch {
	case d.Deleted:
		state += " (deleted)"
	case c.Docs:
	case body != nil:
		kept = "yes"
	default:
		kept = "no"
	}
	seq := ""
	if d.Seq > 0 {
		seq = e.count(uint64(d.Seq))
	}
	return t.row(d.Rev.String(), seq, e.time(d.Time), state, kept)
}

type changesCmd struct {
	Target     target `arg:"" name:"db[:collection]" help:"DB for all collections, DB:COLLECTION for one."`
	Since      string `placeholder:"SEQ|now" default:"0" help:"Changes after this sequence; now is the present end."`
	Follow     bool   `short:"f" xor:"end" help:"Wait for further changes, until Ctrl-C. A folder has one process at a time, so in one only changes of a server's store can come."`
	Limit      int    `help:"Show at most so many."`
	Descending bool   `xor:"end" help:"From the latest to the first."`
	Docs       bool   `help:"Show the documents, too."`
}

// Run shows a change feed.
func (c *changesCmd) Run(e *env) error {
	f := &osier.Feed{Descending: c.Descending, Marks: c.Follow}
	if c.Limit < 0 {
		return usagef("--limit: want no negative number")
	}
	if c.Since == "now" {
		f.Since = osier.SeqNow
	} else {
		n, err := strconv.ParseUint(c.Since, 10, 64)
		if err != nil {
			return usagef("--since %s: want a sequence or now", oneLine(c.Since))
		}
		f.Since = osier.Seq(n)
	}
	if c.Follow {
		f.Mode = osier.FeedLive
	}
	if c.Docs {
		f.Parts = osier.WithBody
	}
	return e.withDB(reading, c.Target, func(ctx context.Context, db *osier.DB) error {
		if !c.Target.whole {
			if _, err := needCollection(ctx, db, c.Target); err != nil {
				return err
			}
			f.Collection, f.Limit = c.Target.collection, c.Limit
		}
		return c.watch(ctx, e, db, f)
	})
}

func (c *changesCmd) watch(ctx context.Context, e *env, db *osier.DB, f *osier.Feed) error {
	head := []string{">SEQ", "COLLECTION", "ID", "REV", "STATE"}
	if c.Docs {
		head = append(head, "DOCUMENT")
	}
	t := e.table(head...)
	t.cut = true
	shown := 0
	for ch, err := range db.Watch(ctx, f) {
		switch {
		case err != nil && c.Follow && ctx.Err() != nil:
			return errors.Join(t.flush(), &exitError{code: exitInterrupted})
		case err != nil:
			return errors.Join(t.flush(), err)
		case ch.Mark:
			if err := errors.Join(t.flush(), e.flush()); err != nil {
				return err
			}
			continue
		case c.Target.whole && ch.Collection == importsCollection:
			continue // what the import command keeps for itself
		}
		if err := c.show(e, t, db, &ch); err != nil {
			return err
		}
		if shown++; shown == c.Limit {
			break
		}
	}
	return t.flush()
}

func (c *changesCmd) show(e *env, t *table, db *osier.DB, ch *osier.Change) error {
	d := &ch.Document
	body, err := bodyJSON(db, d)
	if err != nil {
		return err
	}
	collection := ch.Collection
	if collection == "" {
		collection = c.Target.collection
	}
	if e.json {
		j := describe(d, body)
		j.Collection = collection
		return e.printJSON(j)
	}
	state := "live"
	if d.Deleted {
		state = "deleted"
	}
	cells := []string{e.count(uint64(d.Seq)), collection, idText(d.ID), d.Rev.String(), state}
	if c.Docs {
		cells = append(cells, string(body))
	}
	return t.row(cells...)
}
