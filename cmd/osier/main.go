// Command osier is the one binary of Osier: it imports, reads, changes,
// checks and repairs document stores, and works on pot payloads and pocket
// files. docs/cli.md has an example of every command.
//
// Exit codes:
//
//	0    done
//	1    the work failed; the reason is on standard error
//	2    the command line, or a value given on it, was wrong
//	3    what was asked for is not there
//	4    a conflict: the document, revision or name is not as expected
//	5    damage was found
//	6    an import is done, but left out lines that it listed
//	130  stopped by Ctrl-C; what was committed until then stays
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// env is what a command may touch of the world, so that tests can hand it
// buffers instead of a terminal.
type env struct {
	ctx    context.Context
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	// What a person is looking at, if any; the zero values mean a pipe.
	outTerminal bool
	errTerminal bool
	color       bool
	width       int              // of the terminal; 0: 80
	now         func() time.Time // nil: time.Now

	// From the global flags.
	json  bool
	store string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the work cleanly, the second one the process.
	context.AfterFunc(ctx, stop)
	e := &env{ctx: ctx, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	e.outTerminal, e.errTerminal = isTerminal(os.Stdout), isTerminal(os.Stderr)
	e.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= 20 {
		e.width = n
	}
	code := run(e, os.Args[1:])
	stop()
	os.Exit(code)
}

// isTerminal takes any character device for a terminal; the one other that is
// met in practice, the null device, does not mind.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (e *env) clock() time.Time {
	if e.now != nil {
		return e.now()
	}
	return time.Now()
}
