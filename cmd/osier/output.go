package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/osierdb/osier"
)

// style is an ANSI colour.
type style string

const (
	styleError style = "31"
	styleHead  style = "1"
	styleDim   style = "2"
	styleName  style = "36"
	styleText  style = "32"
	styleOther style = "33"
)

// paint colours s if it goes to a terminal that wants colours.
func (e *env) paint(terminal bool, st style, s string) string {
	if !terminal || !e.color {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

// printJSON writes v on one line.
func (e *env) printJSON(v any) error {
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printBody shows a JSON text: indented for people, on one line in a pipe.
func (e *env) printBody(body []byte) error {
	var buf bytes.Buffer
	var err error
	if e.outTerminal {
		err = json.Indent(&buf, body, "", "  ")
	} else {
		err = json.Compact(&buf, body)
	}
	if err != nil {
		return fmt.Errorf("show body: %w", err)
	}
	out := buf.Bytes()
	if e.outTerminal && e.color {
		out = e.paintJSON(out)
	}
	_, err = e.stdout.Write(append(out, '\n'))
	return err
}

// paintJSON colours member names, strings and other scalars of a valid text.
func (e *env) paintJSON(b []byte) []byte {
	var out []byte
	for i := 0; i < len(b); {
		end := i + 1
		st := style("")
		switch c := b[i]; {
		case c == '"':
			end = skipString(b, i)
			st = styleText
			if end < len(b) && b[end] == ':' {
				st = styleName
			}
		case strings.IndexByte("{}[],: \n", c) < 0:
			end = i + scalarLen(b[i:])
			st = styleOther
		}
		if st == "" {
			out = append(out, b[i:end]...)
		} else {
			out = append(out, e.paint(true, st, string(b[i:end]))...)
		}
		i = end
	}
	return out
}

// count writes a number, with separators for people.
func (e *env) count(n uint64) string {
	if e.outTerminal {
		return grouped(n)
	}
	return strconv.FormatUint(n, 10)
}

// counted writes a number of things.
func (e *env) counted(n uint64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return e.count(n) + " " + noun
}

// size writes a number of bytes, rounded for people.
func (e *env) size(n uint64) string {
	if e.outTerminal {
		return humanSize(n)
	}
	return strconv.FormatUint(n, 10)
}

// time writes a time: local and short for people, RFC 3339 in UTC in a pipe.
func (e *env) time(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case e.outTerminal:
		return t.Local().Format("2006-01-02 15:04:05")
	}
	return rfc3339(t)
}

func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func humanSize(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10) + " B"
	}
	f := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB"} {
		if f /= 1000; f < 999.5 {
			// Three digits.
			return strconv.FormatFloat(f, 'f', max(0, 3-len(strconv.Itoa(int(f)))), 64) + " " + unit
		}
	}
	return strconv.FormatFloat(f/1000, 'f', 1, 64) + " PB"
}

// idText shows an id on one line.
func idText(id osier.ID) string { return oneLine(id.String()) }

// oneLine quotes a text that would break a line or a column.
func oneLine(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return strconv.Quote(s)
	}
	return s
}

// tableSample is how many rows a table looks at to find its widths; further
// rows are fitted to these, so that a long table needs no more memory.
const tableSample = 200

// table prints rows: aligned under a head for people, tab-separated without a
// head in a pipe.
type table struct {
	e      *env
	head   []string // a name that begins with ">" is aligned to the right
	cut    bool     // the last column is cut to the terminal's width
	rows   [][]string
	widths []int
}

func (e *env) table(head ...string) *table { return &table{e: e, head: head} }

func (t *table) row(cells ...string) error {
	if !t.e.outTerminal {
		_, err := fmt.Fprintln(t.e.stdout, strings.Join(cells, "\t"))
		return err
	}
	if t.widths != nil {
		return t.print(cells)
	}
	t.rows = append(t.rows, cells)
	if len(t.rows) == tableSample {
		return t.flush()
	}
	return nil
}

// flush prints what is held back; it ends the table.
func (t *table) flush() error {
	if !t.e.outTerminal || t.widths != nil || len(t.rows) == 0 {
		return nil
	}
	t.widths = make([]int, len(t.head))
	names := make([]string, len(t.head))
	for i, name := range t.head {
		names[i] = strings.TrimPrefix(name, ">")
		t.widths[i] = utf8.RuneCountInString(names[i])
		for _, r := range t.rows {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(r[i]))
		}
	}
	if _, err := fmt.Fprintln(t.e.stdout, t.e.paint(true, styleHead, t.line(names))); err != nil {
		return err
	}
	for _, r := range t.rows {
		if err := t.print(r); err != nil {
			return err
		}
	}
	t.rows = nil
	return nil
}

func (t *table) print(cells []string) error {
	_, err := fmt.Fprintln(t.e.stdout, t.line(cells))
	return err
}

func (t *table) line(cells []string) string {
	var b strings.Builder
	used := 0
	for i, cell := range cells {
		if i > 0 {
			b.WriteString("  ")
			used += 2
		}
		n := utf8.RuneCountInString(cell)
		pad := strings.Repeat(" ", max(0, t.widths[i]-n))
		switch {
		case strings.HasPrefix(t.head[i], ">"):
			b.WriteString(pad + cell)
		case i < len(cells)-1:
			b.WriteString(cell + pad)
		case t.cut:
			b.WriteString(cutText(cell, t.e.columns()-used))
		default:
			b.WriteString(cell)
		}
		used += max(n, t.widths[i])
	}
	return strings.TrimRight(b.String(), " ")
}

// cutText shortens s to width characters, at least 20.
func cutText(s string, width int) string {
	width = max(width, 20)
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

func (e *env) columns() int {
	if e.width > 0 {
		return e.width
	}
	return 80
}

// record prints names and values, a line each.
func (e *env) record(pairs ...string) error {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, utf8.RuneCountInString(pairs[i]))
	}
	for i := 0; i < len(pairs); i += 2 {
		name, sep := pairs[i], "\t"
		if e.outTerminal {
			sep = strings.Repeat(" ", width-utf8.RuneCountInString(name)+2)
			name = e.paint(true, styleHead, name)
		}
		if _, err := fmt.Fprintf(e.stdout, "%s%s%s\n", name, sep, pairs[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// rfc3339 writes a time for JSON output.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
