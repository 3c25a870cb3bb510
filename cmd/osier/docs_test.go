package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// example is a command of the documentation and what it says comes out.
type example struct {
	line    int
	command string
	want    []string
}

// examples are the lines of console blocks: "$ " and a command, then output,
// in which an ellipsis stands for anything.
func examples(text string) []example {
	var out []example
	inside := false
	for i, line := range strings.Split(text, "\n") {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case isCommand:
			out = append(out, example{line: i + 1, command: command})
		default:
			last := &out[len(out)-1]
			last.want = append(last.want, line)
		}
	}
	return out
}

// Every example of docs/cli.md works as shown.
func TestDocs(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell")
	}
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"films.jsonl", "countries.json", "capitals.csv"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list := examples(string(text))
	if len(list) < 30 {
		t.Fatalf("want dozens of examples, got %d", len(list))
	}
	spaces := regexp.MustCompile(`\s+`)
	for _, ex := range list {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", ex.command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "OSIER_STORE=")
		out, err := cmd.CombinedOutput()
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			out = append(out, fmt.Sprintf("[exit code %d]", ee.ExitCode())...)
		} else if err != nil {
			t.Fatal(err)
		}
		got := spaces.ReplaceAllString(strings.TrimSpace(string(out)), " ")
		want := spaces.ReplaceAllString(strings.TrimSpace(strings.Join(ex.want, "\n")), " ")
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*") + "$"
		if !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("docs/cli.md:%d: %s\nwant %s\ngot  %s", ex.line, ex.command, want, got)
		}
	}
}
