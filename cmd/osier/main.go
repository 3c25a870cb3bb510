// Command osier is the one binary of Osier: it imports, reads, changes,
// checks and repairs document stores, and works on pot payloads and pocket
// files.
//
// Exit codes: 0 done; 1 the work failed (the reason is on standard error);
// 2 the command line was wrong; 3 what was asked for is not there; 4 a
// conflict; 5 damage was found.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
)

// env is what a command may touch of the world, so that tests can hand it
// buffers instead of a terminal.
type env struct {
	ctx    context.Context
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(&env{ctx: ctx, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}
