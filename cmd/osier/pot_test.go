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

// runPot runs a pot command on an input and returns its output and exit code.
func runPot(t *testing.T, stdin []byte, args ...string) (string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	e := &env{ctx: context.Background(), stdin: bytes.NewReader(stdin), stdout: &out, stderr: &errs}
	code := run(e, append([]string{"pot"}, args...))
	if code != 0 && errs.Len() == 0 {
		t.Errorf("pot %v: exit code %d without a word", args, code)
	}
	return out.String(), code
}

// What encode makes of JSON, decode shows as the same JSON, in each mode, with
// a table and by way of CBOR.
func TestPotThereAndBack(t *testing.T) {
	const text = `{"beta":[1,-2,18446744073709551615,1.5],"alpha":{"x":null,"y":"\n"}}`
	table := filepath.Join(t.TempDir(), "names.pot")
	for _, flags := range [][]string{{}, {"--mode=full"}, {"--mode=shapes"}, {"--mode=shapes", "--table=" + table},
		{"--mode=shapes", "--no-header", "--table=" + table}} {
		payload, code := runPot(t, []byte(text), append([]string{"encode"}, flags...)...)
		if code != 0 {
			t.Fatalf("encode %v: exit code %d", flags, code)
		}
		got, code := runPot(t, []byte(payload), append([]string{"decode", "--compact"}, flags...)...)
		if code != 0 || got != text+"\n" {
			t.Errorf("%v: want %s, got %s, exit code %d", flags, text, got, code)
		}
		cb, code := runPot(t, []byte(payload), append([]string{"decode", "--to=cbor"}, flags...)...)
		if code != 0 {
			t.Errorf("%v: to CBOR: exit code %d", flags, code)
		}
		back, _ := runPot(t, []byte(cb), "encode", "--from=cbor")
		if got, _ := runPot(t, []byte(back), "decode", "--compact"); got != text+"\n" {
			t.Errorf("%v by way of CBOR: want %s, got %s", flags, text, got)
		}
	}
	with, _ := runPot(t, []byte(text), "encode", "--mode=shapes", "--table="+table)
	without, _ := runPot(t, []byte(text), "encode", "--mode=shapes")
	if strings.Contains(with, "alpha") || len(with) >= len(without) {
		t.Errorf("with a table %q, without %q", with, without)
	}
	if _, code := runPot(t, []byte(with), "decode"); code != exitFailed {
		t.Errorf("without its table: exit code %d", code)
	}
}

func TestPotCanonical(t *testing.T) {
	a, _ := runPot(t, []byte(`{"a":1,"b":2}`), "encode", "--canonical")
	b, _ := runPot(t, []byte(` {"b":2, "a":1}`), "encode", "--canonical")
	if a == "" || a != b {
		t.Errorf("%q and %q", a, b)
	}
	if _, code := runPot(t, nil, "encode", "--canonical", "--mode=full"); code != exitUsage {
		t.Errorf("contradictory flags: exit code %d", code)
	}
}

func TestPotNotation(t *testing.T) {
	got, code := runPot(t, []byte("Pot\x01\x82\x40\x2a\xe1\xff"), "decode", "--to=notation", "--compact")
	if want := "[42u, h'ff']\n"; code != 0 || got != want {
		t.Errorf("want %q, got %q, exit code %d", want, got, code)
	}
	if _, code := runPot(t, []byte("Pot\x01\xe1\xff"), "decode"); code != exitFailed {
		t.Errorf("bytes as JSON: exit code %d", code)
	}
	if got, _ := runPot(t, []byte("Pot\x01\xe1\xff"), "decode", "--lossy"); got != "\"/w==\"\n" {
		t.Errorf("bytes as lossy JSON: %s", got)
	}
}

func TestPotExplain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pot")
	if err := os.WriteFile(name, []byte("Pot\x01\xa1\xc2x\x40"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, code := runPot(t, nil, "explain", name)
	for _, want := range []string{"header: Pot, mode V4", "map of 1 pairs", `key: new symbol 0 "x"`, "unexpected end of input at offset 8"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	if code != exitDamage {
		t.Errorf("exit code %d", code)
	}
	var out, errs bytes.Buffer
	e := &env{ctx: context.Background(), stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
	run(e, []string{"--json", "pot", "explain", name})
	var x potExplanation
	if err := json.Unmarshal(out.Bytes(), &x); err != nil || len(x.Lines) != 3 || x.Error == "" {
		t.Errorf("for programs: %s, %v", out.Bytes(), err)
	}
	if _, code := runPot(t, nil, "explain", name+".none"); code != exitMissing {
		t.Errorf("no file: exit code %d", code)
	}
}
