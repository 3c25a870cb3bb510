package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"osier": main})
}

// The stories in testdata/script, each in a fresh folder that has the sample
// files of testdata in it.
func TestScripts(t *testing.T) {
	samples, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"films.jsonl", "countries.json", "capitals.csv"} {
				b, err := os.ReadFile(filepath.Join(samples, name))
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(env.WorkDir, name), b, 0o644); err != nil {
					return err
				}
			}
			return os.CopyFS(filepath.Join(env.WorkDir, "samples"), os.DirFS(filepath.Join(samples, "samples")))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  exits,
			"damage": damage,
			"lines":  countLines,
		},
	})
}

// exits CODE COMMAND ARGS... runs a command that must end with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var ee *exec.ExitError
	switch {
	case errors.As(err, &ee):
		got = ee.ExitCode()
	case err != nil:
		ts.Fatalf("run %s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("%s: exit code: want %d, got %d", strings.Join(args[1:], " "), want, got)
	}
}

// damage GLOB changes some bytes in the middle of the largest file that matches.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: damage glob")
	}
	names, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	var largest []byte
	var name string
	for _, n := range names {
		b, err := os.ReadFile(n)
		ts.Check(err)
		if len(b) > len(largest) {
			largest, name = b, n
		}
	}
	if len(largest) < 100 {
		ts.Fatalf("nothing to damage matches %s", args[0])
	}
	for i := range 8 {
		largest[len(largest)/3+i] ^= 0xFF
	}
	ts.Check(os.WriteFile(name, largest, 0o644))
}

// lines N FILE checks how many lines a file has; FILE may be stdout.
func countLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines n file")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := strings.Count(ts.ReadFile(args[1]), "\n"); got != want {
		ts.Fatalf("%s: want %d lines, got %d", args[1], want, got)
	}
}

// result of a command that ran in the test's own process.
type result struct {
	code           int
	stdout, stderr string
}

// osierIn runs a command on the store in dir.
func osierIn(ctx context.Context, dir string, stdin io.Reader, args ...string) result {
	var out, errs bytes.Buffer
	e := &env{ctx: ctx, stdin: stdin, stdout: &out, stderr: &errs}
	code := run(e, append([]string{"--store", dir}, args...))
	return result{code, out.String(), errs.String()}
}

// must runs a command that has to succeed.
func must(t *testing.T, dir string, args ...string) string {
	t.Helper()
	r := osierIn(t.Context(), dir, strings.NewReader(""), args...)
	if r.code != 0 {
		t.Fatalf("osier %s: want exit code 0, got %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}
