package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestHumanSize(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		want string
	}{{0, "0 B"}, {999, "999 B"}, {1000, "1.00 kB"}, {12345, "12.3 kB"}, {999_499, "999 kB"}, {999_500, "1.00 MB"}, {5 << 30, "5.37 GB"}, {1 << 50, "1.1 PB"}} {
		if got := humanSize(c.n); got != c.want {
			t.Errorf("%d: want %s, got %s", c.n, c.want, got)
		}
	}
	if got := grouped(1234567); got != "1,234,567" {
		t.Errorf("grouped: got %s", got)
	}
}

// For people a table is aligned and cut to the width; in a pipe it is not.
func TestTable(t *testing.T) {
	show := func(e *env) string {
		var out bytes.Buffer
		e.stdout = &out
		tab := e.table("ID", ">N", "TEXT")
		tab.cut = true
		for _, r := range [][]string{{"é", "1", "short"}, {"long-id", "1234", strings.Repeat("x", 50)}} {
			if err := tab.row(r...); err != nil {
				t.Fatal(err)
			}
		}
		if err := tab.flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got, want := show(&env{}), "é\t1\tshort\nlong-id\t1234\t"+strings.Repeat("x", 50)+"\n"; got != want {
		t.Errorf("piped: want %q, got %q", want, got)
	}
	want := "ID          N  TEXT\né           1  short\nlong-id  1234  " + strings.Repeat("x", 24) + "…\n"
	if got := show(&env{outTerminal: true, width: 40}); got != want {
		t.Errorf("terminal:\nwant %q\ngot  %q", want, got)
	}
	if got := show(&env{outTerminal: true, width: 40, color: true}); !strings.HasPrefix(got, "\x1b[1mID") {
		t.Errorf("terminal with colours: want a bold head, got %q", got)
	}
}

// A long table is printed as it comes, in bounded memory.
func TestTableStreams(t *testing.T) {
	var out bytes.Buffer
	tab := (&env{stdout: &out, outTerminal: true}).table("A", "B")
	for range tableSample + 10 {
		if err := tab.row("a", "b"); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(out.String(), "\n"); got != tableSample+11 || len(tab.rows) != 0 {
		t.Errorf("want all %d lines printed, got %d and %d held back", tableSample+11, got, len(tab.rows))
	}
}

func TestPrintBody(t *testing.T) {
	const body = `{"a":"x:\"","b":[1,true,null]}`
	for _, c := range []struct {
		e    env
		want string
	}{
		{env{}, body + "\n"},
		{env{outTerminal: true}, "{\n  \"a\": \"x:\\\"\",\n  \"b\": [\n    1,\n    true,\n    null\n  ]\n}\n"},
		{env{outTerminal: true, color: true}, "{\n  \x1b[36m\"a\"\x1b[0m: \x1b[32m\"x:\\\"\"\x1b[0m,\n  \x1b[36m\"b\"\x1b[0m: [\n    \x1b[33m1\x1b[0m,\n    \x1b[33mtrue\x1b[0m,\n    \x1b[33mnull\x1b[0m\n  ]\n}\n"},
	} {
		var out bytes.Buffer
		c.e.stdout = &out
		if err := c.e.printBody([]byte(body)); err != nil || out.String() != c.want {
			t.Errorf("want %q, got %q, %v", c.want, out.String(), err)
		}
	}
}

// The bar tells share, size, rate and time left, and keeps within the width.
func TestProgress(t *testing.T) {
	now := time.Unix(1000, 0)
	var out bytes.Buffer
	e := &env{stderr: &out, errTerminal: true, width: 100, now: func() time.Time { return now }}
	p := e.newProgress("films.jsonl", "B", 4_000_000, 1_000_000)
	p.update(1_500_000, 500)
	if out.Len() > 0 {
		t.Errorf("at once: want nothing drawn, got %q", out.String())
	}
	now = now.Add(10 * time.Second)
	p.update(2_000_000, 1000)
	got, want := out.String(), "\r\x1b[Kfilms.jsonl  [##############---------------]  50%  2.00 MB of 4.00 MB  1,000 docs  100/s  0:20 left"
	if got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	p.update(2_100_000, 1100)
	if out.String() != got {
		t.Errorf("a moment later: want nothing more, got %q", out.String())
	}
	p.clear()
	if !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Errorf("clear: want the line taken away, got %q", out.String())
	}

	for width := 10; width < 140; width++ {
		p.width = width
		for _, total := range []uint64{0, 1, 4_000_000} {
			p.total = total
			if line := p.line(3_999_999, 123456, 4000*time.Second); utf8.RuneCountInString(line) >= width {
				t.Errorf("width %d, total %d: the line is %d long: %s", width, total, utf8.RuneCountInString(line), line)
			}
		}
	}

	silent := (&env{stderr: &out, now: e.now}).newProgress("x", "B", 1, 0)
	out.Reset()
	now = now.Add(time.Hour)
	silent.update(1, 1)
	silent.clear()
	if out.Len() > 0 {
		t.Errorf("in a pipe: want nothing, got %q", out.String())
	}
}

func TestClockTime(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0:00", 300 * time.Millisecond: "0:01", 61 * time.Second: "1:01", 2*time.Hour + 3*time.Minute + 4*time.Second: "2:03:04"} {
		if got := clockTime(d); got != want {
			t.Errorf("%v: want %s, got %s", d, want, got)
		}
	}
}

// Asking for help is no failure.
func TestRunHelp(t *testing.T) {
	var out bytes.Buffer
	e := &env{ctx: t.Context(), stdout: &out, stderr: &out}
	if code := run(e, []string{"import", "--help"}); code != 0 || !strings.Contains(out.String(), "--on-conflict") {
		t.Errorf("want code 0 and the flags, got %d: %s", code, out.String())
	}
}

// failing is a full disk behind standard output.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

var errFull = bytes.ErrTooLarge

// Output that cannot be written is a failure.
func TestOutputError(t *testing.T) {
	var errs bytes.Buffer
	e := &env{ctx: t.Context(), stdout: failing{}, stderr: &errs}
	if code := run(e, []string{"version"}); code != exitFailed || !strings.Contains(errs.String(), "write output") {
		t.Errorf("want code %d, got %d: %s", exitFailed, code, errs.String())
	}
}
