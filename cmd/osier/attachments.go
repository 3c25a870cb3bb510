package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"os"
	"path/filepath"

	"github.com/osierdb/osier"
)

type attachmentsCmd struct {
	List attachListCmd `cmd:"" help:"List a document's attachments."`
	Put  attachPutCmd  `cmd:"" help:"Add or replace an attachment."`
	Get  attachGetCmd  `cmd:"" help:"Write an attachment to a file or standard output."`
	Rm   attachRmCmd   `cmd:"" help:"Take an attachment away."`
}

// attachmentJSON is an attachment in JSON output.
type attachmentJSON struct {
	Name        string `json:"name"`
	ContentType string `json:"contentType"`
	Size        uint64 `json:"size"`
	SHA256      string `json:"sha256"`
	MD5         string `json:"md5"`
	RevPos      uint64 `json:"revPos"`
}

func describeAttachment(a *osier.Attachment) attachmentJSON {
	return attachmentJSON{a.Name, a.ContentType, a.Size, hex.EncodeToString(a.SHA256[:]), hex.EncodeToString(a.MD5[:]), a.RevPos}
}

// documentArgs name a document.
type documentArgs struct {
	Target target `arg:"" name:"db[:collection]" help:"Where the document is."`
	ID     string `arg:"" help:"Its id."`
	idFlags
}

// with opens the database and looks the document up.
func (d *documentArgs) with(e *env, a access, fn func(context.Context, *osier.DB, *osier.Document) error) error {
	id, err := d.id(d.ID)
	if err != nil {
		return err
	}
	return e.withDB(a, d.Target, func(ctx context.Context, db *osier.DB) error {
		row, err := one(ctx, db, &osier.Query{Kind: osier.QueryGet, Collection: d.Target.collection, IDs: []osier.ID{id}, Parts: osier.WithBody})
		if err != nil {
			return err
		}
		if row.Missing {
			return noDocument(ctx, db, d.Target, id)
		}
		return fn(ctx, db, &row.Document)
	})
}

// raw is the handle for calls that take a collection.
func (d *documentArgs) raw() *osier.Collection[osier.Raw] {
	return osier.NewCollection[osier.Raw](d.Target.collection)
}

// rev is the revision to change: the one given, or the present one.
func (d *documentArgs) rev(given string, doc *osier.Document) (osier.Rev, error) {
	if given == "" {
		return doc.Rev, nil
	}
	return parseRev(given)
}

// changed shows what a change led to, or explains a conflict.
func (d *documentArgs) changed(ctx context.Context, e *env, db *osier.DB, given string, doc *osier.Doc[osier.Raw], id osier.ID, err error) error {
	if osier.KindOf(err) == osier.KindConflict {
		p := putCmd{Target: d.Target, Rev: given}
		return p.conflict(ctx, db, &osier.Op{Collection: d.Target.collection, ID: id}, err)
	}
	if err != nil {
		return err
	}
	return e.printWritten(&osier.OpResult{ID: doc.ID, Rev: doc.Rev, Seq: doc.Seq})
}

type attachListCmd struct{ documentArgs }

// Run lists a document's attachments.
func (c *attachListCmd) Run(e *env) error {
	return c.with(e, reading, func(_ context.Context, _ *osier.DB, d *osier.Document) error {
		t := e.table("NAME", "TYPE", ">SIZE", "SHA-256")
		for i := range d.Attachments {
			a := describeAttachment(&d.Attachments[i])
			var err error
			if e.json {
				err = e.printJSON(a)
			} else {
				err = t.row(oneLine(a.Name), oneLine(a.ContentType), e.size(a.Size), a.SHA256)
			}
			if err != nil {
				return err
			}
		}
		return t.flush()
	})
}

type attachPutCmd struct {
	documentArgs
	Name string `arg:"" help:"The attachment's name."`
	File string `arg:"" help:"File to read; - is standard input."`
	Type string `placeholder:"TYPE" help:"Content type (default: by the file's name)."`
	Rev  string `placeholder:"REV" help:"Change that revision (default: the present one)."`
}

// Run adds an attachment.
func (c *attachPutCmd) Run(e *env) error {
	var r io.Reader
	if c.File == "-" {
		r = e.interruptible(e.stdin)
	} else {
		f, err := os.Open(c.File)
		if err != nil {
			return openError(err)
		}
		defer f.Close() // nothing was written
		r = f
	}
	contentType := c.Type
	if contentType == "" {
		contentType = mime.TypeByExtension(filepath.Ext(c.File))
	}
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	return c.with(e, changing, func(ctx context.Context, db *osier.DB, d *osier.Document) error {
		rev, err := c.rev(c.Rev, d)
		if err != nil {
			return err
		}
		doc, err := c.raw().Attach(ctx, db, d.ID, rev, c.Name, contentType, r)
		return c.changed(ctx, e, db, c.Rev, &doc, d.ID, err)
	})
}

type attachGetCmd struct {
	documentArgs
	Name   string `arg:"" help:"The attachment's name."`
	File   string `arg:"" optional:"" default:"-" help:"File to write; - is standard output."`
	Offset int64  `help:"Begin at this byte."`
	Length int64  `default:"-1" help:"Write at most so many bytes."`
}

// Run writes an attachment out.
func (c *attachGetCmd) Run(e *env) error {
	if c.Offset < 0 {
		return usagef("--offset: want no negative number")
	}
	return c.with(e, reading, func(ctx context.Context, db *osier.DB, d *osier.Document) error {
		_, r, err := c.raw().OpenAttachment(ctx, db, d.ID, c.Name, c.Offset, c.Length)
		if errors.Is(err, osier.ErrNotFound) {
			return &exitError{exitMissing, fmt.Errorf("no attachment %s at %v/%s", oneLine(c.Name), c.Target, idText(d.ID))}
		}
		if err != nil {
			return err
		}
		copyTo := func(w io.Writer) error {
			_, err := io.Copy(w, r)
			return errors.Join(err, r.Close())
		}
		if c.File == "-" {
			return copyTo(e.stdout)
		}
		return writeFile(c.File, copyTo)
	})
}

type attachRmCmd struct {
	documentArgs
	Name string `arg:"" help:"The attachment's name."`
	Rev  string `placeholder:"REV" help:"Change that revision (default: the present one)."`
}

// Run takes an attachment away.
func (c *attachRmCmd) Run(e *env) error {
	return c.with(e, changing, func(ctx context.Context, db *osier.DB, d *osier.Document) error {
		rev, err := c.rev(c.Rev, d)
		if err != nil {
			return err
		}
		doc, err := c.raw().Detach(ctx, db, d.ID, rev, c.Name)
		return c.changed(ctx, e, db, c.Rev, &doc, d.ID, err)
	})
}
