package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
)

// docJSON is a document in JSON output.
type docJSON struct {
	Collection  string           `json:"collection,omitempty"`
	ID          jsonID           `json:"id"`
	Rev         string           `json:"rev"`
	Seq         osier.Seq        `json:"seq,omitempty"`
	Time        string           `json:"time,omitempty"`
	Deleted     bool             `json:"deleted,omitempty"`
	State       string           `json:"state,omitempty"` // in a history
	Schema      uint32           `json:"schema,omitempty"`
	Conflicts   []leafJSON       `json:"conflicts,omitempty"`
	Attachments []attachmentJSON `json:"attachments,omitempty"`
	Body        json.RawMessage  `json:"body,omitempty"`
}

type leafJSON struct {
	Rev     osier.Rev `json:"rev"`
	Deleted bool      `json:"deleted,omitempty"`
}

// describe makes the JSON form of d; body may be nil.
func describe(d *osier.Document, body []byte) docJSON {
	j := docJSON{ID: jsonID{d.ID}, Rev: d.Rev.String(), Seq: d.Seq, Deleted: d.Deleted, Schema: d.Schema, Body: body}
	if !d.Time.IsZero() {
		j.Time = rfc3339(d.Time)
	}
	for _, l := range d.Conflicts {
		j.Conflicts = append(j.Conflicts, leafJSON(l))
	}
	for i := range d.Attachments {
		j.Attachments = append(j.Attachments, describeAttachment(&d.Attachments[i]))
	}
	return j
}

// parseRev reads a --rev flag.
func parseRev(s string) (osier.Rev, error) {
	rev, err := osier.ParseRev(s)
	if err != nil {
		return rev, usagef("--rev %s: want a revision such as 3-0123456789abcdef0123456789abcdef", oneLine(s))
	}
	return rev, nil
}

type getCmd struct {
	Target target `arg:"" name:"db[:collection]" help:"Where the document is."`
	ID     string `arg:"" help:"Its id."`
	idFlags
	Rev       string `placeholder:"REV" xor:"version" help:"That revision instead of the present one."`
	AsOf      string `name:"as-of" placeholder:"SEQ|TIME" xor:"version" help:"As it was at a sequence, or at a time (2026-05-04T10:20:30Z, or a date)."`
	Conflicts bool   `help:"Show conflicting revisions, too."`
	Meta      bool   `help:"Show id, revision, sequence, time and attachments, too."`
}

// Run shows a document.
func (c *getCmd) Run(e *env) error {
	id, err := c.id(c.ID)
	if err != nil {
		return err
	}
	q, err := c.query(id)
	if err != nil {
		return err
	}
	return e.withDB(reading, c.Target, func(ctx context.Context, db *osier.DB) error {
		row, err := one(ctx, db, q)
		if osier.KindOf(err) == osier.KindGap {
			return fmt.Errorf("%w; osier collections set %v --history all keeps versions from then on", err, c.Target)
		}
		if err != nil {
			return err
		}
		if row.Missing || row.Deleted || row.Body == nil {
			return c.missing(ctx, db, id, &row)
		}
		if c.Conflicts && q.Kind != osier.QueryGet {
			whole, err := one(ctx, db, &osier.Query{Kind: osier.QueryGet, Collection: c.Target.collection, IDs: q.IDs, Parts: osier.WithConflicts, Deleted: true})
			if err != nil {
				return err
			}
			row.Conflicts = whole.Conflicts
		}
		return c.show(e, db, &row.Document)
	})
}

func (c *getCmd) query(id osier.ID) (*osier.Query, error) {
	q := &osier.Query{Kind: osier.QueryGet, Collection: c.Target.collection, IDs: []osier.ID{id}, Parts: osier.WithBody}
	if c.Conflicts {
		q.Parts |= osier.WithConflicts
	}
	switch {
	case c.Rev != "":
		rev, err := parseRev(c.Rev)
		if err != nil {
			return nil, err
		}
		q.Kind, q.Revs = osier.QueryRevs, []osier.Rev{rev}
	case c.AsOf != "":
		q.Kind = osier.QueryAsOf
		seq, err := strconv.ParseUint(c.AsOf, 10, 64)
		if err != nil {
			if q.Time, err = parseTime(c.AsOf); err != nil {
				return nil, usagef("--as-of %s: want a sequence or a time such as 2026-05-04T10:20:30Z", oneLine(c.AsOf))
			}
		} else if seq == 0 {
			return nil, usagef("--as-of 0: sequences begin with 1")
		}
		q.Seq = osier.Seq(seq)
	}
	return q, nil
}

// missing explains why there is nothing to show.
func (c *getCmd) missing(ctx context.Context, db *osier.DB, id osier.ID, row *osier.Row) error {
	what := fmt.Sprintf("%v/%s", c.Target, idText(id))
	switch {
	case row.Deleted && c.Rev != "":
		return &exitError{exitMissing, fmt.Errorf("revision %s of %s is a deletion", c.Rev, what)}
	case row.Deleted && c.AsOf != "":
		return &exitError{exitMissing, fmt.Errorf("%s was deleted at %s", what, c.AsOf)}
	case row.Deleted:
		return &exitError{exitMissing, fmt.Errorf("%s has been deleted; osier history shows its versions", what)}
	case c.Rev != "" && !row.Missing:
		return &exitError{exitMissing, fmt.Errorf("the body of revision %s of %s is not kept any more; osier collections set %v --history all keeps them from then on", c.Rev, what, c.Target)}
	case c.Rev != "":
		return &exitError{exitMissing, fmt.Errorf("no revision %s of %s is known; osier history shows those that are", c.Rev, what)}
	case c.AsOf != "":
		return &exitError{exitMissing, fmt.Errorf("%s was not there yet at %s", what, c.AsOf)}
	}
	return noDocument(ctx, db, c.Target, id)
}

// noDocument is the error for an id that no document has. A number given as
// text is the likely reason, so that is looked into.
func noDocument(ctx context.Context, db *osier.DB, t target, id osier.ID) error {
	if _, err := needCollection(ctx, db, t); err != nil {
		return err
	}
	hint := ""
	if text, ok := id.Text(); ok {
		for _, typ := range []string{"int", "float", "uuid"} {
			other, err := parseID(text, typ)
			if err != nil {
				continue
			}
			row, err := one(ctx, db, &osier.Query{Kind: osier.QueryGet, Collection: t.collection, IDs: []osier.ID{other}})
			if err == nil && !row.Missing {
				hint = "; there is one with that id as a value of another type: add --id-type " + typ
				break
			}
		}
	}
	return &exitError{exitMissing, fmt.Errorf("no document %s in %v%s", idText(id), t, hint)}
}

func (c *getCmd) show(e *env, db *osier.DB, d *osier.Document) error {
	body, err := bodyJSON(db, d)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(describe(d, body))
	}
	if c.Meta {
		pairs := []string{"id", idText(d.ID), "rev", d.Rev.String(), "seq", e.count(uint64(d.Seq)), "time", e.time(d.Time)}
		if d.Schema > 0 {
			pairs = append(pairs, "schema", strconv.FormatUint(uint64(d.Schema), 10))
		}
		for i := range d.Attachments {
			a := &d.Attachments[i]
			pairs = append(pairs, "attachment", fmt.Sprintf("%s (%s, %s bytes)", oneLine(a.Name), oneLine(a.ContentType), e.count(a.Size)))
		}
		if err := e.record(pairs...); err != nil {
			return err
		}
	}
	for _, l := range d.Conflicts {
		name := "conflict"
		if l.Deleted {
			name = "deleted conflict"
		}
		if err := e.record(name, l.Rev.String()); err != nil {
			return err
		}
	}
	return e.printBody(body)
}

type putCmd struct {
	Target target   `arg:"" name:"db[:collection]" help:"Where to."`
	Args   []string `arg:"" optional:"" name:"[ID] [JSON|@FILE|-]" help:"The id (without one the store makes it, unless the document has a member _id, which is taken out) and the document: JSON, @ and the name of a file, or - for standard input, the default."`
	idFlags
	Rev    string `placeholder:"REV" xor:"expect" help:"Change that revision; a conflict if it is not the present one any more."`
	Upsert bool   `xor:"expect" help:"Write, whether there is such a document or not."`
	Create bool   `help:"Make the store and the database if need be."`
}

// Run writes a document.
func (c *putCmd) Run(e *env) error {
	idArg, bodyArg, err := c.split()
	if err != nil {
		return err
	}
	var id osier.ID
	if idArg != "" {
		if id, err = c.id(idArg); err != nil {
			return err
		}
	}
	text, err := e.readBody(bodyArg)
	if err != nil {
		return err
	}
	body, err := appendCompact(nil, text)
	if err != nil {
		return usagef("the document: %w", err)
	}
	if id, body, err = ownID(id, body); err != nil {
		return err
	}
	op := osier.Op{Kind: osier.OpPut, Collection: c.Target.collection, ID: id, Codec: osier.TagJSON, Body: body, Expect: osier.ExpectAbsent}
	switch {
	case c.Upsert:
		op.Expect, op.KeepAttachments = osier.ExpectAny, true
	case c.Rev != "":
		op.Expect, op.KeepAttachments = osier.ExpectRev, true
		if op.Rev, err = parseRev(c.Rev); err != nil {
			return err
		}
	}
	if id.IsZero() && op.Expect != osier.ExpectAbsent {
		return usagef("--rev and --upsert need an id")
	}
	a := changing
	if c.Create {
		a = creating
	}
	return e.withDB(a, c.Target, func(ctx context.Context, db *osier.DB) error { return c.write(ctx, e, db, &op) })
}

// split tells id and document apart: a document begins with what no sensible
// id begins with.
func (c *putCmd) split() (id, body string, err error) {
	switch len(c.Args) {
	case 0:
		return "", "-", nil
	case 1:
		if s := c.Args[0]; s == "-" || s != "" && strings.Contains("{[@", s[:1]) {
			return "", s, nil
		}
		return c.Args[0], "-", nil
	case 2:
		return c.Args[0], c.Args[1], nil
	}
	return "", "", usagef("want at most an id and a document: put the JSON in quotes")
}

// readBody reads a document given as JSON, @FILE or -.
func (e *env) readBody(arg string) ([]byte, error) {
	var r io.Reader
	switch name, isFile := strings.CutPrefix(arg, "@"); {
	case arg == "-":
		r = e.interruptible(e.stdin)
	case isFile:
		f, err := os.Open(name)
		if err != nil {
			return nil, openError(err)
		}
		defer f.Close() // nothing was written
		r = f
	default:
		return []byte(arg), nil
	}
	b, err := io.ReadAll(io.LimitReader(r, maxRecordBytes+1))
	if err == nil && len(b) > maxRecordBytes {
		err = fmt.Errorf("more than %s; large things are best kept as attachments", humanSize(maxRecordBytes))
	}
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	return b, nil
}

// ownID takes _id out of a document; it must agree with an id given.
func ownID(id osier.ID, body []byte) (osier.ID, []byte, error) {
	body, value, err := takeMember(body, idMember)
	if err != nil {
		return id, nil, usagef("the document: %w", err)
	}
	if value == nil {
		return id, body, nil
	}
	own, err := idFromJSON(value)
	if err != nil {
		return id, nil, usagef("the document's _id: %w", err)
	}
	if !id.IsZero() && id != own {
		return id, nil, usagef("the document's _id is %s, not %s", idText(own), idText(id))
	}
	return own, body, nil
}

func (c *putCmd) write(ctx context.Context, e *env, db *osier.DB, op *osier.Op) error {
	info, err := collectionInfo(ctx, db, op.Collection)
	if err != nil {
		return err
	}
	if info != nil {
		op.Schema = info.Settings.Schema
	}
	res, err := db.Exec(ctx, &osier.Command{Ops: []osier.Op{*op}})
	if osier.KindOf(err) == osier.KindConflict {
		return c.conflict(ctx, db, op, err)
	}
	if err != nil {
		return err
	}
	return e.printWritten(&res.Ops[0])
}

// conflict says what is there instead and what can be done.
func (c *putCmd) conflict(ctx context.Context, db *osier.DB, op *osier.Op, err error) error {
	row, qerr := one(ctx, db, &osier.Query{Kind: osier.QueryGet, Collection: op.Collection, IDs: []osier.ID{op.ID}})
	what := fmt.Sprintf("%v/%s", c.Target, idText(op.ID))
	switch {
	case qerr != nil:
		return err
	case row.Missing:
		return &exitError{exitConflict, fmt.Errorf("%s is not there, so it has no revision %s: leave out --rev", what, c.Rev)}
	case c.Rev != "":
		return &exitError{exitConflict, fmt.Errorf("%s has changed: it is at revision %v, not %s", what, row.Rev, c.Rev)}
	}
	return &exitError{exitConflict, fmt.Errorf("%s exists, with revision %v: give it with --rev to change the document, or --upsert to write over it", what, row.Rev)}
}

// printWritten shows the revision that a write made.
func (e *env) printWritten(r *osier.OpResult) error {
	if e.json {
		return e.printJSON(docJSON{ID: jsonID{r.ID}, Rev: r.Rev.String(), Seq: r.Seq})
	}
	_, err := fmt.Fprintf(e.stdout, "%s\t%v\n", idText(r.ID), r.Rev)
	return err
}

type rmCmd struct {
	Target target `arg:"" name:"db[:collection]" help:"Where the document is."`
	ID     string `arg:"" help:"Its id."`
	idFlags
	Rev string `placeholder:"REV" help:"Only if that is a present revision; also ends the losing branch of a conflict."`
}

// Run deletes a document.
func (c *rmCmd) Run(e *env) error {
	id, err := c.id(c.ID)
	if err != nil {
		return err
	}
	op := osier.Op{Kind: osier.OpPut, Collection: c.Target.collection, ID: id, Deleted: true, Codec: osier.TagJSON, Expect: osier.ExpectPresent}
	if c.Rev != "" {
		op.Expect = osier.ExpectRev
		if op.Rev, err = parseRev(c.Rev); err != nil {
			return err
		}
	}
	return e.withDB(changing, c.Target, func(ctx context.Context, db *osier.DB) error {
		res, err := db.Exec(ctx, &osier.Command{Ops: []osier.Op{op}})
		switch {
		case errors.Is(err, osier.ErrDeleted):
			return &exitError{exitMissing, fmt.Errorf("%v/%s has been deleted already", c.Target, idText(id))}
		case errors.Is(err, osier.ErrNotFound):
			return noDocument(ctx, db, c.Target, id)
		case osier.KindOf(err) == osier.KindConflict:
			p := putCmd{Target: c.Target, Rev: c.Rev}
			return p.conflict(ctx, db, &op, err)
		case err != nil:
			return err
		}
		return e.printWritten(&res.Ops[0])
	})
}

type listCmd struct {
	Target target `arg:"" name:"db[:collection]" help:"What to list."`
	idFlags
	From    string `placeholder:"ID" help:"Begin with this id."`
	Until   string `placeholder:"ID" help:"End before this id."`
	Prefix  string `placeholder:"ID" help:"Ids that begin so: a text, or the first fields of a tuple."`
	Reverse bool   `help:"From the last to the first."`
	Skip    int    `help:"Pass over so many."`
	Limit   int    `help:"Show at most so many."`
	IDsOnly bool   `name:"ids-only" help:"Ids alone."`
	Deleted bool   `help:"Deleted documents, too."`
}

// Run lists documents.
func (c *listCmd) Run(e *env) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	return e.withDB(reading, c.Target, func(ctx context.Context, db *osier.DB) error {
		if _, err := needCollection(ctx, db, c.Target); err != nil {
			return err
		}
		t := e.table("ID", "REV", "DOCUMENT")
		if c.IDsOnly {
			t = e.table("ID")
		}
		t.cut = true
		for row, err := range db.Query(ctx, q) {
			if err != nil {
				return errors.Join(t.flush(), err)
			}
			if err := c.show(e, t, db, &row.Document); err != nil {
				return err
			}
		}
		return t.flush()
	})
}

func (c *listCmd) query() (*osier.Query, error) {
	if c.Skip < 0 || c.Limit < 0 {
		return nil, usagef("--skip and --limit: want no negative number")
	}
	q := &osier.Query{Kind: osier.QueryScan, Collection: c.Target.collection, Reverse: c.Reverse, Skip: c.Skip, Limit: c.Limit, Deleted: c.Deleted}
	if !c.IDsOnly {
		q.Parts = osier.WithBody
	}
	for _, bound := range []struct {
		arg string
		set *string
	}{{c.From, &q.Start}, {c.Until, &q.End}} {
		if bound.arg != "" {
			id, err := c.id(bound.arg)
			if err != nil {
				return nil, err
			}
			*bound.set = id.Key()
		}
	}
	if c.Prefix == "" {
		return q, nil
	}
	id, err := c.id(c.Prefix)
	if err != nil {
		return nil, err
	}
	start, end, err := osier.PrefixRange(id)
	if err != nil {
		return nil, usagef("--prefix: %w", err)
	}
	q.Start = max(q.Start, start)
	if q.End == "" || end < q.End {
		q.End = end
	}
	return q, nil
}

func (c *listCmd) show(e *env, t *table, db *osier.DB, d *osier.Document) error {
	body, err := bodyJSON(db, d)
	switch {
	case err != nil:
		return err
	case e.json:
		return e.printJSON(describe(d, body))
	case c.IDsOnly:
		return t.row(idText(d.ID))
	case d.Deleted:
		body = []byte("deleted")
	}
	return t.row(idText(d.ID), d.Rev.String(), string(body))
}
