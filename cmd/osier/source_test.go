package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// read is what a source gave: texts of good records, lines of bad ones.
type read struct {
	texts []string
	lines []int
	bad   []int
	ends  []int64 // position behind each good record
	endLn []int
	err   error // nil at the end
}

func readAll(s source) read {
	var r read
	for {
		rec, err := s.next()
		var bad *badRecord
		switch {
		case errors.Is(err, io.EOF):
			return r
		case errors.As(err, &bad):
			r.bad = append(r.bad, bad.line)
		case err != nil:
			r.err = err
			return r
		default:
			r.texts = append(r.texts, string(rec.text))
			r.lines = append(r.lines, rec.line)
			offset, lines := s.position()
			r.ends, r.endLn = append(r.ends, offset), append(r.endLn, lines)
		}
	}
}

func TestLineSource(t *testing.T) {
	const text = "\xef\xbb\xbf{\"a\":1}\r\n\n  \n{\"b\":2}\n{\"c\":3}"
	r := readAll(newLineSource(iotest.OneByteReader(strings.NewReader(text)), 0, 0))
	want := []string{`{"a":1}`, `{"b":2}`, `{"c":3}`}
	if r.err != nil || !reflect.DeepEqual(r.texts, want) || !reflect.DeepEqual(r.lines, []int{1, 4, 5}) {
		t.Errorf("want %q on lines 1, 4, 5; got %q on %v, %v", want, r.texts, r.lines, r.err)
	}
}

// A line beyond the bound is reported, and reading goes on behind it.
func TestLineSourceBound(t *testing.T) {
	text := "{}\n" + strings.Repeat("x", 600<<10) + "\n[]\n" + strings.Repeat("y", 400<<10)
	s := newLineSource(strings.NewReader(text), 0, 0)
	s.max = 300 << 10
	r := readAll(s)
	if r.err != nil || !reflect.DeepEqual(r.texts, []string{"{}", "[]"}) || !reflect.DeepEqual(r.bad, []int{2, 4}) {
		t.Errorf("want {}, [] and bad lines 2, 4; got %q, %v, %v", r.texts, r.bad, r.err)
	}
	if cap(s.buf) > 1<<20 {
		t.Errorf("want a bounded buffer, got %d bytes", cap(s.buf))
	}
}

func TestJSONSource(t *testing.T) {
	for _, c := range []struct {
		in    string
		array bool
		want  []string
		err   string
	}{
		{"[]", true, nil, ""},
		{" [ ] \n", true, nil, ""},
		{"\xef\xbb\xbf[{\"a\":[1,{}]} , \n\"]\\\"\",-1.5e3,null]", true, []string{`{"a":[1,{}]}`, `"]\""`, `-1.5e3`, `null`}, ""},
		{"{\"a\":\n1}{\"b\":2} 3\n[4]", false, []string{"{\"a\":\n1}", `{"b":2}`, "3", "[4]"}, ""},
		{"", false, nil, ""},
		{"[", true, nil, "line 1: the file ends within the array"},
		{"[1", true, nil, "line 1: the file ends within the array"},
		{"[1,", true, []string{"1"}, "line 1: the file ends within the array"},
		{"[1,]", true, []string{"1"}, "line 1: ']' where a value should be"},
		{"[,1]", true, nil, "line 1: ',' where a value should be"},
		{"[1\n2]", true, []string{"1"}, "line 2: '2' where a comma or the end of the array should be"},
		{"[1]]", true, []string{"1"}, "line 1: ']' where nothing behind the array should be"},
		{"[1,\n{\"a\":\"]}", true, []string{"1"}, "line 2: the file ends within the value that begins here"},
		{"{", false, nil, "line 1: the file ends within the value that begins here"},
	} {
		r := readAll(newJSONSource(iotest.OneByteReader(strings.NewReader(c.in)), c.array, 0, 0))
		if c.in == "[1" {
			c.want = []string{"1"}
		}
		got := ""
		if r.err != nil {
			got = r.err.Error()
		}
		if !reflect.DeepEqual(r.texts, c.want) || !strings.HasPrefix(got, c.err) || (c.err == "") != (got == "") {
			t.Errorf("%q: want %q, %q; got %q, %q", c.in, c.want, c.err, r.texts, got)
		}
	}
}

func TestJSONSourceBound(t *testing.T) {
	s := newJSONSource(io.MultiReader(strings.NewReader(`[{}, "`), endless{}), true, 0, 0)
	s.max = 1000
	if r := readAll(s); len(r.texts) != 1 || r.err == nil || !strings.Contains(r.err.Error(), "a value of more than 1.00 kB") {
		t.Errorf("want one value and an error about the second, got %q, %v", r.texts, r.err)
	}
}

// endless is a string that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// On a valid array the source gives the elements that encoding/json gives; on
// anything it neither panics nor loses its place: reading again from behind any
// record gives the same rest.
func FuzzJSONSource(f *testing.F) {
	for _, s := range []string{`[]`, `[1,{"a":"]"},[[]]]`, "{}\n{}", `{"a":1}{"b":2}`, `[1 2]`, `[`, `]`, "\xef\xbb\xbf[1]", `["\\\"", tru]`, `[1,]`, ` `, `"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		l, err := formatOf("x", "json", in)
		if err != nil {
			t.Fatal(err)
		}
		whole := readAll(newJSONSource(bytes.NewReader(in), l.Array, 0, 0))
		var want []json.RawMessage
		if l.Array && json.Unmarshal(bytes.TrimPrefix(in, bom), &want) == nil {
			if whole.err != nil || len(whole.texts) != len(want) {
				t.Fatalf("want %d elements, got %d, %v", len(want), len(whole.texts), whole.err)
			}
			for i := range want {
				if strings.TrimSpace(string(want[i])) != whole.texts[i] {
					t.Fatalf("element %d: want %q, got %q", i, want[i], whole.texts[i])
				}
			}
		}
		for i, end := range whole.ends {
			rest := readAll(newJSONSource(bytes.NewReader(in[end:]), l.Array, end, whole.endLn[i]))
			checkRest(t, &whole, &rest, i)
		}
	})
}

// checkRest compares what was read from behind record i with what is known.
func checkRest(t *testing.T, whole, rest *read, i int) {
	t.Helper()
	if fmt.Sprint(whole.texts[i+1:]) != fmt.Sprint(rest.texts) || fmt.Sprint(whole.lines[i+1:]) != fmt.Sprint(rest.lines) ||
		fmt.Sprint(whole.ends[i+1:]) != fmt.Sprint(rest.ends) || fmt.Sprint(whole.err) != fmt.Sprint(rest.err) {
		t.Fatalf("again from behind record %d (byte %d):\nwant %q on lines %v up to %v, %v\ngot  %q on lines %v up to %v, %v", i, whole.ends[i],
			whole.texts[i+1:], whole.lines[i+1:], whole.ends[i+1:], whole.err, rest.texts, rest.lines, rest.ends, rest.err)
	}
}

// The same for lines.
func FuzzLineSource(f *testing.F) {
	f.Add([]byte("{}\n\n[]\r\n1"))
	f.Add([]byte("\xef\xbb\xbf\n \n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole := readAll(newLineSource(bytes.NewReader(in), 0, 0))
		if whole.err != nil {
			t.Fatal(whole.err)
		}
		var want []string
		for _, line := range strings.Split(strings.TrimPrefix(string(in), string(bom)), "\n") {
			if line := string(bytes.TrimSpace([]byte(line))); line != "" {
				want = append(want, line)
			}
		}
		if fmt.Sprint(whole.texts) != fmt.Sprint(want) {
			t.Fatalf("want %q, got %q", want, whole.texts)
		}
		for i, end := range whole.ends {
			rest := readAll(newLineSource(bytes.NewReader(in[end:]), end, whole.endLn[i]))
			checkRest(t, &whole, &rest, i)
		}
	})
}

func TestAppendCell(t *testing.T) {
	for _, c := range []struct{ cell, want string }{
		{"", "null"}, {"true", "true"}, {"TRUE", "true"}, {"False", "false"}, {"tRUE", `"tRUE"`},
		{"0", "0"}, {"-0", "-0"}, {"12", "12"}, {"-1.50", "-1.50"}, {"1e3", "1e3"}, {"1E+20", "1E+20"}, {"0.1", "0.1"},
		{"123456789012345678901234567890", "123456789012345678901234567890"},
		{"007", `"007"`}, {"+49", `"+49"`}, {"1.", `"1."`}, {".5", `".5"`}, {"1e", `"1e"`}, {"-", `"-"`}, {"1 000", `"1 000"`},
		{"NaN", `"NaN"`}, {"Infinity", `"Infinity"`}, {"0x10", `"0x10"`}, {" 1", `" 1"`}, {"null", `"null"`},
		{"a\"b\n", `"a\"b\n"`}, {"2026-05-04", `"2026-05-04"`},
	} {
		if got := string(appendCell(nil, c.cell, false)); got != c.want {
			t.Errorf("%q: want %s, got %s", c.cell, c.want, got)
		}
		var text string
		if err := json.Unmarshal(appendCell(nil, c.cell, true), &text); err != nil || text != c.cell {
			t.Errorf("%q as text: got %q, %v", c.cell, text, err)
		}
	}
}

// A cell is a number exactly if JSON says so.
func FuzzIsJSONNumber(f *testing.F) {
	for _, s := range []string{"", "0", "-", "-0.0e-0", "01", "1e", "1.5E+7", "1.", "--1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := s != "" && strings.Trim(s, "0123456789+-.eE") == "" && json.Valid([]byte(s))
		if got := isJSONNumber(s); got != want {
			t.Errorf("%q: want %v, got %v", s, want, got)
		}
	})
}

// Rows are the cells that encoding/csv gives, and reading can be taken up again
// behind any of them.
func FuzzCSVSource(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n3,4", "a,b\n\"x\ny\",2\n\n3\n4,5\r\n", "a\n\"", "a,a\n", ",\n1,\n", "a,b\n1,\"x\"y\n2,3\n", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		l := layout{Format: "csv", Comma: ",", Strings: true}
		s, err := newCSVSource(bytes.NewReader(in), l, nil, "", 0, 0)
		if err != nil {
			return
		}
		whole := readAll(s)
		if whole.err != nil {
			t.Fatal(whole.err)
		}
		if want, err := csv.NewReader(bytes.NewReader(in)).ReadAll(); err == nil && len(whole.texts)+1 != len(want) {
			t.Fatalf("want %d rows, got %d", len(want)-1, len(whole.texts))
		}
		for i, end := range whole.ends {
			rs, err := newCSVSource(bytes.NewReader(in[end:]), l, s.names, "", end, whole.endLn[i])
			if err != nil {
				t.Fatal(err)
			}
			rest := readAll(rs)
			checkRest(t, &whole, &rest, i)
		}
	})
}

// An open quote must not take the whole file into memory.
func TestCSVBound(t *testing.T) {
	limit := &recordLimit{r: endless{}, left: 1000}
	if n, err := io.Copy(io.Discard, limit); n != 1000 || !errors.Is(err, errLongRow) {
		t.Errorf("want 1000 bytes and %v, got %d and %v", errLongRow, n, err)
	}
}

func TestFormatOf(t *testing.T) {
	for _, c := range []struct{ name, head, format string }{
		{"x.jsonl", "[", "jsonl"}, {"x.NDJSON", "", "jsonl"}, {"x.csv", "{", "csv"}, {"x.tsv", "a\tb", "csv"},
		{"x.json", "[1]", "json"}, {"x.json", "{\"a\":1}\n{\"a\":2}\n", "jsonl"}, {"x.json", "{\n\"a\":1}", "json"}, {"x.json", "{\"a\":1}", "jsonl"},
		{"-", "\xef\xbb\xbf\n [", "json"}, {"-", "a,b\n1,2", "csv"}, {"x.txt", "hello", ""}, {"-", "", "json"},
	} {
		l, err := formatOf(c.name, "auto", []byte(c.head))
		if l.Format != c.format || (err == nil) != (c.format != "") {
			t.Errorf("%s, %q: want %q, got %q, %v", c.name, c.head, c.format, l.Format, err)
		}
	}
}

// The digest is of what lies before the position, however far was read.
func TestTracker(t *testing.T) {
	tr := newTracker(strings.NewReader("0123456789"))
	if _, err := io.ReadFull(tr, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	sum := func(n int64) string {
		b, err := tr.digest(n)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	five := sum(5)
	tr.advance(3)
	if got := sum(5); got != five {
		t.Errorf("digest of 5 bytes: want %x, got %x", five, got)
	}
	other := newTracker(strings.NewReader("01234xxx"))
	if err := other.skip(5); err != nil {
		t.Fatal(err)
	}
	if got, err := other.digest(5); err != nil || string(got) != five {
		t.Errorf("digest of a file that begins the same: want %x, got %x, %v", five, got, err)
	}
	if err := other.skip(100); !errors.Is(err, io.EOF) {
		t.Errorf("skip beyond the end: want EOF, got %v", err)
	}
}
