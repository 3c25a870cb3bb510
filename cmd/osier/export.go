package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/osierdb/osier"
)

type exportCmd struct {
	Target target `arg:"" name:"db[:collection]" help:"What to export."`
	File   string `arg:"" optional:"" default:"-" help:"File to write; - is standard output."`

	Format  string   `enum:"auto,jsonl,json,csv" default:"auto" help:"auto (by the file's name, else jsonl), jsonl, json (one array) or csv."`
	IDs     string   `name:"ids" enum:"auto,always,never" default:"auto" help:"Whether lines begin with _id: always, never, or auto (unless the store made the id, or it was taken from another member, in an import)."`
	NoID    bool     `name:"no-id" help:"Short for --ids never."`
	Order   string   `enum:"id,seq" default:"id" help:"In order of ids, or of the documents' latest changes (seq)."`
	Columns []string `placeholder:"NAME,…" help:"Columns of a CSV file (default: all members, found by reading the collection twice)."`
}

// Run exports a collection.
func (c *exportCmd) Run(e *env) error {
	if c.NoID {
		c.IDs = "never"
	}
	if c.Format == "auto" {
		c.Format = "jsonl"
		switch strings.ToLower(filepath.Ext(c.File)) {
		case ".json":
			c.Format = "json"
		case ".csv":
			c.Format = "csv"
		}
	}
	if c.Order == "seq" && c.Format == "csv" && len(c.Columns) == 0 {
		return usagef("--order seq needs --columns for a CSV file")
	}
	return e.withDB(reading, c.Target, func(ctx context.Context, db *osier.DB) error {
		info, err := needCollection(ctx, db, c.Target)
		if err != nil {
			return err
		}
		x := &exporter{c: c, db: db, bar: e.newProgress(c.Target.String(), "documents", info.Count, 0)}
		if x.origins, x.known, err = loadOrigins(ctx, db, c.Target.collection); err != nil {
			return err
		}
		defer x.bar.clear()
		if c.File == "-" {
			return x.write(ctx, e.stdout)
		}
		if err := writeFile(c.File, func(w io.Writer) error { return x.write(ctx, w) }); err != nil {
			return err
		}
		x.bar.clear()
		if e.json {
			return e.printJSON(map[string]any{"documents": x.count, "file": c.File})
		}
		_, err = fmt.Fprintf(e.stdout, "exported %s to %s\n", e.counted(x.count, "document"), c.File)
		return err
	})
}

// writeFile fills a file beside name and gives it that name when it is whole.
func writeFile(name string, fill func(io.Writer) error) (err error) {
	if info, serr := os.Stat(name); serr == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0) // a pipe or device
		if err != nil {
			return err
		}
		return errors.Join(fill(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			f.Close()           // the first error counts
			os.Remove(f.Name()) // as far as it goes
		}
	}()
	w := bufio.NewWriterSize(f, 256<<10)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.Chmod(0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.Rename(f.Name(), name)
}

// exporter writes the live documents of a collection.
type exporter struct {
	c       *exportCmd
	db      *osier.DB
	origins origins
	known   bool // something was imported into the collection
	bar     *progress
	count   uint64
	pin     uint64
	buf     []byte
}

func (x *exporter) write(ctx context.Context, w io.Writer) error {
	switch x.c.Format {
	case "json":
		return x.array(ctx, w)
	case "csv":
		return x.csv(ctx, w)
	}
	return x.each(ctx, func(doc []byte) error {
		_, err := w.Write(append(doc, '\n'))
		return err
	})
}

func (x *exporter) array(ctx context.Context, w io.Writer) error {
	sep := "[\n"
	err := x.each(ctx, func(doc []byte) error {
		if _, err := io.WriteString(w, sep); err != nil {
			return err
		}
		sep = ",\n"
		_, err := w.Write(doc)
		return err
	})
	if err != nil {
		return err
	}
	end := "\n]\n"
	if x.count == 0 {
		end = "[]\n"
	}
	_, err = io.WriteString(w, end)
	return err
}

// csv reads twice, the first time for the columns, both times the same state.
func (x *exporter) csv(ctx context.Context, w io.Writer) error {
	columns := x.c.Columns
	if len(columns) == 0 {
		row, err := one(ctx, x.db, &osier.Query{Kind: osier.QueryPin})
		if err != nil {
			return err
		}
		x.pin = row.Pin
		defer func() {
			for range x.db.Query(context.WithoutCancel(ctx), &osier.Query{Kind: osier.QueryUnpin, Pin: x.pin}) {
			}
		}()
		if columns, err = x.columns(ctx); err != nil {
			return err
		}
		x.count = 0
	}
	if len(columns) == 0 {
		return nil
	}
	cw := csv.NewWriter(w)
	if err := cw.Write(columns); err != nil {
		return err
	}
	row := make([]string, len(columns))
	at := make(map[string]int, len(columns))
	for i, name := range columns {
		at[name] = i
	}
	err := x.each(ctx, func(doc []byte) error {
		clear(row)
		for m := range members(doc) {
			if i, ok := at[m.name]; ok {
				row[i] = cellText(m.value)
			}
		}
		if len(row) == 1 && row[0] == "" {
			// A blank line would be passed over by readers.
			_, err := io.WriteString(w, "\"\"\n")
			return err
		}
		if err := cw.Write(row); err != nil {
			return err
		}
		cw.Flush()
		return cw.Error()
	})
	cw.Flush()
	return errors.Join(err, cw.Error())
}

// columns are the names of all documents' members, in the order of first sight.
func (x *exporter) columns(ctx context.Context) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	err := x.each(ctx, func(doc []byte) error {
		for m := range members(doc) {
			if !seen[m.name] {
				seen[m.name] = true
				names = append(names, m.name)
			}
		}
		return nil
	})
	return names, err
}

// cellText is a JSON value as a cell: null is empty, a string its text, all
// else its JSON.
func cellText(value []byte) string {
	switch value[0] {
	case 'n':
		return ""
	case '"':
		return unquote(value)
	}
	return string(value)
}

// each calls fn with every live document as a line of JSON, which is valid
// during the call.
func (x *exporter) each(ctx context.Context, fn func(doc []byte) error) error {
	show := func(d *osier.Document) error {
		line, err := x.line(d)
		if err != nil {
			return err
		}
		x.count++
		x.bar.update(x.count, x.count)
		return fn(line)
	}
	if x.c.Order == "seq" {
		feed := &osier.Feed{Collection: x.c.Target.collection, Parts: osier.WithBody}
		for ch, err := range x.db.Watch(ctx, feed) {
			if err != nil {
				return err
			}
			if ch.Deleted {
				continue
			}
			if err := show(&ch.Document); err != nil {
				return err
			}
		}
		return nil
	}
	q := &osier.Query{Kind: osier.QueryScan, Collection: x.c.Target.collection, Parts: osier.WithBody, Pin: x.pin}
	for row, err := range x.db.Query(ctx, q) {
		if err != nil {
			return err
		}
		if err := show(&row.Document); err != nil {
			return err
		}
	}
	return nil
}

// line is a document as it is exported.
func (x *exporter) line(d *osier.Document) ([]byte, error) {
	body, err := bodyJSON(x.db, d)
	if err != nil {
		return nil, err
	}
	if !x.wantsID(d.ID, body) {
		return body, nil
	}
	fail := func(text string) error {
		return &osier.Error{Kind: osier.KindInvalid, Op: "export", DB: x.c.Target.db, Collection: x.c.Target.collection, ID: d.ID.String(), Err: errors.New(text)}
	}
	if len(body) == 0 || body[0] != '{' {
		return nil, fail("the document is no JSON object, so it has no place for _id: use --ids never")
	}
	if own, has := findMember(body, idMember); has {
		if id, err := idFromJSON(own); err == nil && id == d.ID {
			return body, nil
		}
		return nil, fail("the document has another _id of its own: use --ids never")
	}
	x.buf = appendWithMember(x.buf[:0], idMember, appendIDJSON(nil, d.ID), body)
	return x.buf, nil
}

// wantsID decides whether a line must begin with the id, so that importing it
// gives the same document.
func (x *exporter) wantsID(id osier.ID, body []byte) bool {
	switch {
	case x.c.IDs == "always":
		return true
	case x.c.IDs == "never":
		return false
	}
	for _, r := range x.origins.Rules {
		if value, ok := findMember(body, r.Member); ok {
			if from, err := idFromMember(value, r.Type, r.CSV); err == nil && from == id {
				return false
			}
		}
	}
	return !x.known || !x.origins.Made || x.origins.Taken || !looksMade(id)
}
