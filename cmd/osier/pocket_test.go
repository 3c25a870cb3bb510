package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pocketRun runs one command line and returns what it prints.
func pocketRun(t *testing.T, stdin string, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(&env{ctx: context.Background(), stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}, args)
	if code != want {
		t.Fatalf("osier %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// The commands on a pocket file, as a story.
func TestPocketCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cat.pocket")
	pocketRun(t, "", 0, "pocket", "set", file, "fruit/apple", "red")
	pocketRun(t, "yellow", 0, "pocket", "set", file, "fruit/banana", "-")
	pocketRun(t, "", 0, "pocket", "set", file, "count", "--raw", "42")
	pocketRun(t, "", 0, "pocket", "set", file, "nut", "--type", "Nut", `{"hard":true}`)
	pocketRun(t, "", 1, "pocket", "set", file, "bad", "--raw", `{"no":"type"}`)
	pocketRun(t, "", 4, "pocket", "set", file, "count", "--if-absent", "x")
	pocketRun(t, "", 4, "pocket", "set", file, "count", "--if-version", "1", "x")
	pocketRun(t, "", 2, "pocket", "set", file, "count", "x", "--delete")

	out, _ := pocketRun(t, "", 0, "pocket", "get", file, "fruit/banana")
	if out != "yellow\n" {
		t.Errorf("get: %q", out)
	}
	out, _ = pocketRun(t, "", 0, "--json", "pocket", "get", file, "nut")
	var r pocketRecord
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Type != "Nut" || r.Version != 4 || string(r.Value) != `{"hard":true}` {
		t.Errorf("get as JSON: %s %v", out, err)
	}
	pocketRun(t, "", 3, "pocket", "get", file, "none")
	out, _ = pocketRun(t, "", 0, "pocket", "prefix", file, "fruit/")
	if out != "fruit/apple\tred\nfruit/banana\tyellow\n" {
		t.Errorf("prefix: %q", out)
	}
	out, _ = pocketRun(t, "", 0, "pocket", "prefix", file, "--keys", "--reverse", "--limit", "2")
	if out != "nut\nfruit/banana\n" {
		t.Errorf("reverse: %q", out)
	}
	pocketRun(t, "", 0, "pocket", "set", file, "count", "--delete")
	out, _ = pocketRun(t, "", 0, "pocket", "stats", file)
	if !strings.Contains(out, "records           3\n") {
		t.Errorf("stats: %s", out)
	}
	pocketRun(t, "", 0, "pocket", "rewrite", file)
	pocketRun(t, "", 0, "pocket", "verify", file)
	pocketRun(t, "", 0, "pocket", "rewrite", "--compress", file)
	pocketRun(t, "", 0, "pocket", "verify", file)
	pocketRun(t, "", 0, "pocket", "rewrite", file)

	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(b), `"val":"red"`, `"val":red"`, 1)
	if err := os.WriteFile(file, []byte(damaged), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ = pocketRun(t, "", 5, "pocket", "verify", file)
	if !strings.Contains(out, "line 3 skipped: not a JSON value") {
		t.Errorf("verify: %s", out)
	}
	out, _ = pocketRun(t, "", 0, "pocket", "repair", file)
	if !strings.Contains(out, "the damaged file is kept as "+file+".damaged-0") {
		t.Errorf("repair: %s", out)
	}
	pocketRun(t, "", 0, "pocket", "verify", file)
	out, _ = pocketRun(t, "", 0, "pocket", "prefix", file, "fruit/")
	if out != "fruit/banana\tyellow\n" {
		t.Errorf("after the repair: %q", out)
	}
	pocketRun(t, "", 0, "pocket", "set", file, "short", "--ttl", "1h", "x")
	pocketRun(t, "", 2, "pocket", "set", file, "short", "--ttl", "-1h", "x")
}
