package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/osierdb/osier"
)

// cli is the command tree; every command is a struct with a Run(*env) error.
type cli struct {
	Store string `env:"OSIER_STORE" placeholder:"DIR" help:"Folder of the store (default: data.osier)."`
	JSON  bool   `name:"json" help:"Print JSON for programs instead of text for people."`

	Import importCmd `cmd:"" group:"documents" help:"Read documents from JSON lines, JSON or CSV."`
	Export exportCmd `cmd:"" group:"documents" help:"Write a collection's documents to a file."`
	Get    getCmd    `cmd:"" group:"documents" help:"Show a document."`
	Put    putCmd    `cmd:"" group:"documents" help:"Add or change a document."`
	Rm     rmCmd     `cmd:"" group:"documents" help:"Delete a document."`
	List   listCmd   `cmd:"" group:"documents" help:"Show documents in order of their ids."`
	Find   findCmd   `cmd:"" group:"documents" help:"Show the documents that a selector means."`
	Index  indexCmd  `cmd:"" group:"documents" help:"Make, list and drop indexes for find."`

	View viewCmd `cmd:"" group:"documents" help:"Define, query, list and drop views of a collection."`

	History     historyCmd     `cmd:"" group:"documents" help:"Show what is known of a document's versions."`
	Changes     changesCmd     `cmd:"" group:"documents" help:"Show the change feed of a database or collection."`
	Attachments attachmentsCmd `cmd:"" aliases:"attach" group:"documents" help:"Put, get and list attachments."`

	Serve   serveCmd   `cmd:"" group:"store" help:"Serve the store over HTTP, as CouchDB does."`
	Config  configCmd  `cmd:"" group:"store" help:"Show what a server's configuration is and where it comes from."`
	KV      kvCmd      `cmd:"" name:"kv" group:"documents" help:"Read and change key-values."`
	Journal journalCmd `cmd:"" group:"documents" help:"Append to, read and look after journals (DB:JOURNAL)."`

	Databases   databasesCmd   `cmd:"" group:"store" help:"List, create and drop databases."`
	Collections collectionsCmd `cmd:"" group:"store" help:"List, set up and drop collections."`
	Stats       statsCmd       `cmd:"" group:"store" help:"Show numbers about the store or a database."`
	Compact     compactCmd     `cmd:"" group:"store" help:"Give back the disk space of what was deleted."`
	Verify      verifyCmd      `cmd:"" group:"store" help:"Read everything and report damage."`
	Repair      repairCmd      `cmd:"" group:"store" help:"Save what is whole of a damaged store."`
	Backup      backupCmd      `cmd:"" group:"store" help:"Copy the store into a folder that opens by itself."`

	Pot    potCmd    `cmd:"" group:"store" help:"Decode, encode and explain pot payloads."`
	Pocket pocketCmd `cmd:"" group:"store" help:"Read, change, check and repair pocket files."`

	Version versionCmd `cmd:"" group:"store" help:"Show the version."`
}

// defaultStore is the folder of the store if none is named.
const defaultStore = "data.osier"

// Exit codes; main.go documents them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitMissing     = 3
	exitConflict    = 4
	exitDamage      = 5
	exitSkipped     = 6
	exitInterrupted = 130
)

const exitCodesHelp = `
Exit codes: 0 done; 1 failed; 2 wrong command line; 3 not there; 4 conflict;
5 damage was found; 6 an import left out lines; 130 stopped by Ctrl-C.
`

// exitError carries an exit code other than 1 up to run. Without an err
// everything has been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef is the error of a wrong command line that kong cannot see.
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// run parses args, runs the command and returns the process's exit code.
func run(e *env, args []string) (code int) {
	var c cli
	out := bufio.NewWriterSize(e.stdout, 64<<10)
	inner := *e
	inner.stdout = out
	defer func() {
		// A panic passes; what was printed before it is not worth keeping.
		if err := out.Flush(); err != nil && code == 0 {
			code = inner.fail(fmt.Errorf("write output: %w", err))
		}
	}()
	exited := false
	parser, err := newParser(&inner, &c, func(n int) { code, exited = n, true; panic(exitPanic{}) })
	if err != nil {
		return inner.fail(err)
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exitPanic); !ok || !exited {
				panic(r)
			}
		}
	}()
	kctx, err := parser.Parse(args)
	if err != nil {
		return inner.fail(&exitError{exitUsage, fmt.Errorf("%w: see osier --help", err)})
	}
	inner.json, inner.store = c.JSON, c.Store
	if inner.store == "" {
		inner.store = defaultStore // an empty OSIER_STORE counts as none
	}
	if err := kctx.Run(); err != nil {
		// In the order in which it happened, as far as a reader can tell.
		if ferr := out.Flush(); ferr != nil {
			err = errors.Join(err, ferr)
		}
		return inner.fail(err)
	}
	return 0
}

func newParser(e *env, c *cli, exit func(int)) (*kong.Kong, error) {
	return kong.New(c, kong.Name("osier"),
		kong.Description("Keep, query and sync documents: embedded, served or clustered."),
		kong.Writers(e.stdout, e.stderr),
		kong.Exit(exit),
		kong.Bind(e, c),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "documents", Title: "Documents (DB is its default collection, DB:COLLECTION another):"},
			{Key: "store", Title: "Databases and the store:"},
		}),
		kong.Help(func(o kong.HelpOptions, ctx *kong.Context) error {
			if err := kong.DefaultHelpPrinter(o, ctx); err != nil || ctx.Selected() != nil {
				return err
			}
			_, err := io.WriteString(ctx.Stdout, exitCodesHelp)
			return err
		}))
}

// exitPanic unwinds the parser when it wants to exit (after --help).
type exitPanic struct{}

// fail reports err in one line and returns its exit code.
func (e *env) fail(err error) int {
	var ee *exitError
	if !errors.As(err, &ee) || ee.err != nil {
		text := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
		fmt.Fprintln(e.stderr, e.paint(e.errTerminal, styleError, "osier:"), text)
	}
	if ee != nil {
		return ee.code
	}
	switch osier.KindOf(err) {
	case osier.KindInvalid:
		return exitUsage
	case osier.KindNotFound, osier.KindDeleted, osier.KindGap:
		return exitMissing
	case osier.KindConflict, osier.KindExists, osier.KindNotUnique:
		return exitConflict
	case osier.KindCorrupt:
		return exitDamage
	}
	if e.ctx.Err() != nil {
		return exitInterrupted
	}
	return exitFailed
}

// flush shows what has been printed so far; a follower of changes calls it.
func (e *env) flush() error {
	if w, ok := e.stdout.(*bufio.Writer); ok {
		return w.Flush()
	}
	return nil
}
