package main

import (
	"errors"
	"fmt"

	"github.com/alecthomas/kong"
)

// cli is the command tree; every command is a struct with a Run(*env) error.
type cli struct {
	JSON bool `help:"Print JSON for programs instead of text for people."`
}

// exitError carries an exit code other than 1 up to run.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// run parses args, runs the command and returns the process's exit code.
func run(e *env, args []string) (code int) {
	var c cli
	exited := false
	parser, err := kong.New(&c, kong.Name("osier"),
		kong.Description("Keep, query and sync documents: embedded, served or clustered."),
		kong.Writers(e.stdout, e.stderr),
		kong.Exit(func(n int) { code, exited = n, true; panic(exitPanic{}) }),
		kong.Bind(e, &c))
	if err != nil {
		fmt.Fprintln(e.stderr, "osier:", err)
		return 1
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
		fmt.Fprintln(e.stderr, "osier:", err)
		return 2
	}
	if err := kctx.Run(); err != nil {
		fmt.Fprintln(e.stderr, "osier:", err)
		var ee *exitError
		if errors.As(err, &ee) {
			return ee.code
		}
		return 1
	}
	return 0
}

// exitPanic unwinds the parser when it wants to exit (after --help).
type exitPanic struct{}
