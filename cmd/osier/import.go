package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/osierdb/osier"
)

type importCmd struct {
	Target target `arg:"" name:"db[:collection]" help:"Where to."`
	File   string `arg:"" help:"File to read; - is standard input."`

	ID           string `name:"id" placeholder:"MEMBER" help:"Member that holds the id; dots lead into nested objects. It stays in the document, except for _id, the default, which is taken out. Without the default one the store makes an id."`
	IDType       string `name:"id-type" enum:"auto,text,int,uint,float,uuid,time,json" default:"auto" help:"Kind of the ids: auto (as in the JSON; cells of CSV are text), text, int, uint, float, uuid, time or json."`
	Format       string `enum:"auto,jsonl,json,csv" default:"auto" help:"auto, jsonl (a document a line), json (one array, or documents one after the other) or csv (with a header)."`
	CSVStrings   bool   `name:"csv-strings" help:"Keep every cell a string."`
	CSVDelimiter string `name:"csv-delimiter" placeholder:"C" help:"What separates cells (default: a comma; a tab for .tsv)."`
	OnError      string `enum:"skip,fail" default:"skip" help:"For a bad line: skip (report it and go on) or fail."`
	OnConflict   string `enum:"report,skip,replace,fail" default:"report" help:"For an id that has other content already: report (as a bad line), skip, replace or fail."`
	Batch        int    `default:"1000" help:"Documents a commit."`
	Durability   string `enum:"sync,buffered,relaxed" default:"sync" help:"What a commit waits for: sync (the disk), buffered (the operating system) or relaxed (nothing)."`
	Create       bool   `default:"true" negatable:"" help:"Make the store and the database if need be."`
	Restart      bool   `help:"Begin at the beginning of the file, whatever was imported before."`
}

// importBatchBytes bounds the bodies of a batch.
const importBatchBytes = 8 << 20

// Run imports a file.
func (c *importCmd) Run(e *env) error {
	switch {
	case c.Batch < 1 || c.Batch > 100_000:
		return usagef("--batch: want 1 to 100000")
	case c.CSVDelimiter != "" && utf8.RuneCountInString(c.CSVDelimiter) != 1:
		return usagef("--csv-delimiter: want one character")
	case c.Target.collection == importsCollection:
		return usagef("%s keeps the checkpoints of imports: choose another collection", importsCollection)
	}
	in, err := e.openInput(c.File)
	if err != nil {
		return err
	}
	defer in.close()
	a := changing
	if c.Create {
		a = creating
	}
	return e.withDB(a, c.Target, func(ctx context.Context, db *osier.DB) error {
		im := &importer{e: e, c: c, db: db, in: in, ids: map[osier.ID]bool{}}
		return im.run(ctx)
	})
}

// input is what an import reads.
type input struct {
	name    string // for people
	path    string // absolute, or "-"
	r       io.Reader
	file    *os.File // nil for standard input
	size    int64    // 0: not known
	modTime time.Time
	head    []byte
	regular bool // it can be read again from its beginning
}

func (e *env) openInput(name string) (*input, error) {
	if name == "-" {
		r := bufio.NewReaderSize(e.interruptible(e.stdin), sniffBytes)
		head, err := r.Peek(sniffBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return &input{name: "standard input", path: "-", r: r, head: slices.Clone(head)}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, openError(err)
	}
	in, err := inspect(f, name)
	if err != nil {
		f.Close() // nothing was written
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return in, nil
}

// openError gives a missing file the exit code for that.
func openError(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &exitError{exitMissing, err}
	}
	return err
}

func inspect(f *os.File, name string) (*input, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errors.New("it is a folder")
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	in := &input{name: name, path: path, r: f, file: f, modTime: info.ModTime().UTC(), regular: info.Mode().IsRegular()}
	if !in.regular {
		r := bufio.NewReaderSize(f, sniffBytes)
		head, err := r.Peek(sniffBytes)
		in.r, in.head = r, slices.Clone(head)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return in, err
	}
	in.size = info.Size()
	in.head = make([]byte, min(in.size, sniffBytes))
	n, err := f.ReadAt(in.head, 0)
	in.head = in.head[:n]
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return in, err
}

func (in *input) close() {
	if in.file != nil {
		in.file.Close() // nothing was written
	}
}

// interruptible returns a reader that ends with the command's context, which
// a blocked read of a pipe or terminal would not. Its goroutine stays in such
// a read until the process ends.
func (e *env) interruptible(r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	context.AfterFunc(e.ctx, func() { pr.CloseWithError(e.ctx.Err()) })
	return pr
}

// layout puts the format together from flags and content.
func (c *importCmd) layout(in *input) (layout, error) {
	l, err := formatOf(in.path, c.Format, in.head)
	if err != nil {
		return l, &exitError{exitUsage, fmt.Errorf("%s: %w", in.name, err)}
	}
	if l.Format == "csv" {
		l.Strings = c.CSVStrings
		if c.CSVDelimiter != "" {
			l.Comma = c.CSVDelimiter
		}
	}
	return l, nil
}

// rule is where ids come from.
func (c *importCmd) rule(l layout) idRule {
	r := idRule{Member: c.ID, Type: c.IDType, CSV: l.Format == "csv"}
	if r.Member == "" {
		r.Member = idMember
	}
	return r
}

// report is what an import ends with.
type report struct {
	Target string `json:"target"`
	tally
	Skipped     int     `json:"skipped"`
	FromLine    int     `json:"fromLine,omitempty"` // where an earlier import was taken up
	Already     bool    `json:"already,omitempty"`  // there was nothing left to do
	Interrupted bool    `json:"interrupted,omitempty"`
	Bytes       int64   `json:"bytes"`
	Seconds     float64 `json:"seconds"`
	PerSecond   float64 `json:"perSecond"`
}

// show prints the report: JSON, or a sentence.
func (r *report) show(e *env, source string) error {
	if e.json {
		return e.printJSON(r)
	}
	if r.Already {
		_, err := fmt.Fprintf(e.stdout, "%s is in %s already; --restart imports it again\n", source, r.Target)
		return err
	}
	number := func(n int) string { return e.count(uint64(n)) }
	var b strings.Builder
	fmt.Fprintf(&b, "imported %s into %s in %.2f s (%s/s, %s/s)", e.counted(uint64(r.Documents), "document"), r.Target, r.Seconds,
		number(int(r.PerSecond)), humanSize(uint64(float64(r.Bytes)/max(r.Seconds, 1e-3))))
	for _, part := range []struct {
		n    int
		text string
	}{{r.Replaced, "replaced"}, {r.Unchanged, "unchanged"}, {r.Kept, "left as they were"}} {
		if part.n > 0 {
			fmt.Fprintf(&b, ", %s %s", number(part.n), part.text)
		}
	}
	if r.Skipped > 0 {
		fmt.Fprintf(&b, ", %s skipped", e.counted(uint64(r.Skipped), "bad line"))
	}
	if r.FromLine > 0 {
		fmt.Fprintf(&b, ", from line %s on", number(r.FromLine))
	}
	_, err := fmt.Fprintln(e.stdout, b.String())
	return err
}

var durabilities = map[string]osier.Durability{"sync": osier.Sync, "buffered": osier.Buffered, "relaxed": osier.Relaxed}

// fromDigest says whether the file still begins with what cp has read.
func (im *importer) fromDigest(cp *checkpoint) (bool, error) {
	if im.in.size < cp.Offset {
		return false, nil
	}
	if err := im.track.skip(cp.Offset); err != nil {
		return false, fmt.Errorf("read %s: %w", im.in.name, err)
	}
	digest, err := im.track.digest(cp.Offset)
	return hex.EncodeToString(digest) == cp.Digest, err
}

// rewind begins to read the file anew.
func (im *importer) rewind() error {
	if im.in.regular {
		if _, err := im.in.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read %s: %w", im.in.name, err)
		}
	}
	im.track = newTracker(im.in.r)
	return nil
}
