package pocket

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
)

const handMade = `{"Creation":"2022-12-14T17:38:24.1766817-05:00","LastRewrite":"2022-12-14T17:38:39.1187185-05:00","CompressedEntities":null}
{"key":"3-0","$type":"Entity","val":{"Body":"Just some body text 3-0"}}
{"key":"6-0","val":"some string value"}
{"key":"7-0","val":12.5}
{"key":"8-0","val":true}
{"key":"3-0","val":null}
{"key":"4-0","$type":"Entity","val":{"Body":"four"}}
`

var handMadeRecords = []string{
	`{"key":"4-0","$type":"Entity","val":{"Body":"four"}}`,
	`{"key":"6-0","val":"some string value"}`,
	`{"key":"7-0","val":12.5}`,
	`{"key":"8-0","val":true}`,
}

// A file made by hand opens, however text tools have treated it.
func TestHandMadeFiles(t *testing.T) {
	variants := map[string]string{
		"as it is":         handMade,
		"CRLF":             strings.ReplaceAll(handMade, "\n", "\r\n"),
		"blank lines":      "\n\n" + strings.ReplaceAll(handMade, "\n", "\n \t\n\n"),
		"byte-order mark":  "\ufeff" + handMade,
		"no last newline":  strings.TrimSuffix(handMade, "\n"),
		"no header":        handMade[strings.IndexByte(handMade, '\n')+1:],
		"spaces":           strings.NewReplacer(`"key":`, `"key" : `, `,"val":`, ` , "val" : `, `{"key`, ` { "key`).Replace(handMade),
		"unknown members":  strings.ReplaceAll(handMade, `{"key"`, `{"x":1,"y":null,"key"`),
		"members reversed": strings.Replace(handMade, `{"key":"6-0","val":"some string value"}`, `{"val":"some string value","key":"6-0"}`, 1),
		"escapes":          strings.Replace(handMade, `"6-0"`, `"\u0036-0"`, 1),
		"two files":        handMade + handMade,
		"all of it":        "\ufeff\r\n" + strings.TrimSuffix(strings.ReplaceAll(handMade, "\n", "\r\n\r\n"), "\r\n\r\n"),
	}
	for name, text := range variants {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			writeFile(t, path, text)
			s := mustOpen(t, path, testOptions())
			wantSame(t, "records", plainDump(s), handMadeRecords)
			if r := s.Report(); !r.Clean() {
				t.Fatalf("report: %+v", r)
			}
			if v, err := Get[entity](s, "4-0"); err != nil || v.Body != "four" {
				t.Fatalf("got %+v, %v", v, err)
			}
			mustSave(t, s, "9", "new")
			mustClose(t, s)
			s = mustOpen(t, path, testOptions())
			wantSame(t, "records after a save", plainDump(s), append(handMadeRecords[:4:4], `{"key":"9","val":"new"}`))
			if r := s.Report(); !r.Clean() {
				t.Fatalf("report after a save: %+v", r)
			}
		})
	}
}

// pack returns a compressed part as it stands in a header. The ancestor
// flushes its streams but never ends them.
func pack(lines string, finish bool) string {
	var b bytes.Buffer
	w := brotli.NewWriter(&b)
	io.WriteString(w, lines)
	if finish {
		w.Close()
	} else {
		w.Flush()
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// The ancestor's compressed parts are streams that were flushed but never
// ended; they replay before the rest.
func TestUnfinishedStreams(t *testing.T) {
	for _, finish := range []bool{false, true} {
		path := tempPath(t)
		writeFile(t, path, fmt.Sprintf(`{"Creation":"2022-12-14T17:38:24-05:00","LastRewrite":null,"CompressedEntities":["%s","%s"]}`+"\n",
			pack(`{"key":"a","val":"1"}`+"\n"+`{"key":"b","val":"2"}`+"\n", finish),
			pack(`{"key":"a","val":"3"}`+"\n"+`{"key":"c","val":"4"}`+"\n", finish))+
			`{"key":"b","val":"5"}`+"\n")
		s := mustOpen(t, path, testOptions())
		wantSame(t, "records", plainDump(s), []string{`{"key":"a","val":"3"}`, `{"key":"b","val":"5"}`, `{"key":"c","val":"4"}`})
		if r := s.Report(); !r.Clean() {
			t.Fatalf("report: %+v", r)
		}
	}
}

// Each skipped line is told with its number and reason.
func TestSkippedLines(t *testing.T) {
	lines := []string{
		`{"key":"ok1","val":"1"}`,
		`not JSON`,
		`{"key":"a"}`,
		`{"val":"1"}`,
		`{"key":5,"val":"1"}`,
		`{"key":"b","val":{"x":1}}`,
		`{"key":"c","val":"1"}}`,
		`{"key":"d","val":nul}`,
		`["key","val"]`,
		"{\"key\":\"e\xff\",\"val\":\"1\"}",
		`{"key":"f","expires":"tomorrow","val":"1"}`,
		`{"key":"` + strings.Repeat("k", MaxKeyBytes+1) + `","val":"1"}`,
		`{"tx":1,"n":one}`,
		`{"key":"g","val":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `,"$type":"T"}`,
		`{"key":"ok2","val":"2"}`,
	}
	path := tempPath(t)
	writeFile(t, path, strings.Join(lines, "\n")+"\n")
	s := mustOpen(t, path, testOptions())
	wantSame(t, "records", plainDump(s), []string{lines[0], lines[len(lines)-1]})
	r := s.Report()
	if r.SkippedCount != len(lines)-2 || len(r.Skipped) != len(lines)-2 || r.Lines != len(lines) || r.Records != 2 {
		t.Fatalf("report: %+v", r)
	}
	for i, sk := range r.Skipped {
		if sk.Line != i+2 || sk.Reason == "" || !strings.HasPrefix(lines[i+1], sk.Text) {
			t.Errorf("skip %d: %+v, line %.80s", i, sk, lines[i+1])
		}
	}
}

// acceptLine judges a line by the rules of the original format: what its
// reader takes, what it passes over. It is written apart from the package's
// own reader, with encoding/json alone.
func acceptLine(n int, line string, types map[string]bool, records map[string]string) error {
	dec := json.NewDecoder(strings.NewReader(line))
	var names []string
	values := map[string]json.RawMessage{}
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return fmt.Errorf("not an object: %v", err)
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return err
		}
		names = append(names, tok.(string))
		values[tok.(string)] = v
	}
	if n == 0 {
		if strings.Join(names, " ") != "Creation LastRewrite CompressedEntities" {
			return fmt.Errorf("header has the members %v", names)
		}
		for _, name := range names[:2] {
			if string(values[name]) == "null" && name == "LastRewrite" {
				continue
			}
			var text string
			if err := json.Unmarshal(values[name], &text); err != nil {
				return err
			}
			if _, err := time.Parse("2006-01-02T15:04:05.9999999-07:00", text); err != nil {
				return err
			}
		}
		return nil
	}
	if _, ok := values["key"]; !ok {
		for name, v := range values {
			if v[0] == '{' || v[0] == '[' {
				return fmt.Errorf("extension line with the composite member %q", name)
			}
		}
		return nil // passed over
	}
	order := map[string]int{"key": 1, "$type": 2, "val": 9}
	last := 0
	for _, name := range names {
		at := order[name]
		if at == 0 {
			if v := values[name]; v[0] == '{' || v[0] == '[' {
				return fmt.Errorf("composite member %q", name)
			}
			continue
		}
		if at <= last {
			return fmt.Errorf("member %q comes too late", name)
		}
		last = at
	}
	if last != 9 || names[0] != "key" {
		return fmt.Errorf("members %v", names)
	}
	return acceptRecord(line, values, types, records)
}

func acceptRecord(line string, values map[string]json.RawMessage, types map[string]bool, records map[string]string) error {
	var key, typ string
	if err := json.Unmarshal(values["key"], &key); err != nil {
		return err
	}
	val := string(values["val"])
	if t, ok := values["$type"]; ok {
		if err := json.Unmarshal(t, &typ); err != nil {
			return err
		}
		if !types[typ] {
			return nil // passed over
		}
	} else if val[0] == '{' || val[0] == '[' {
		return fmt.Errorf("a composite value without a type")
	}
	if !strings.HasPrefix(line, `{"key":"`) || strings.Contains(line, `": `) && !strings.Contains(val, `": `) {
		return fmt.Errorf("spaces between the members")
	}
	if val == "null" && typ == "" {
		delete(records, key)
	} else {
		records[key] = val
	}
	return nil
}

// Every line that is written is one that a reader of the original format
// takes, or passes over; and it ends with the same records.
func TestWrittenLinesAreAccepted(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testOptions())
	for i := range 300 {
		mustSave(t, s, fmt.Sprint(i%50), entity{fmt.Sprint(i, ` "quoted"`)})
		mustSave(t, s, fmt.Sprint("n", i%7), i)
		if i%3 == 0 {
			if err := s.Delete(fmt.Sprint(i % 50)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.SaveAll(Change{Key: `k"\`, Value: "text\n"}, Change{Key: "b", Value: true},
		Change{Key: "later", Value: "x", Expires: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	judge := func(when string) {
		t.Helper()
		text := strings.TrimRight(readFile(t, path), "\x00")
		records := map[string]string{}
		lines := strings.Split(text, "\n")
		if lines[len(lines)-1] != "" || strings.HasPrefix(text, "\ufeff") || strings.Contains(text, "\r") {
			t.Fatalf("%s: text form is wrong", when)
		}
		for i, l := range lines[:len(lines)-1] {
			if err := acceptLine(i, l, map[string]bool{"Entity": true}, records); err != nil {
				t.Fatalf("%s: line %d, %s: %v", when, i+1, l, err)
			}
		}
		n := 0
		for key, r := range Scan[Record](s, All()) {
			n++
			if records[key] != r.JSON() {
				t.Fatalf("%s: key %q: got %s, want %s", when, key, records[key], r.JSON())
			}
		}
		if n != len(records) {
			t.Fatalf("%s: %d records, want %d", when, len(records), n)
		}
	}
	judge("appended")
	if err := s.Rewrite(context.Background()); err != nil {
		t.Fatal(err)
	}
	judge("rewritten")
	mustClose(t, s)
	judge("closed")
}

// Files that were merged, or edited by hand inside of transactions, load with
// the edits; what was not edited is not affected.
func TestEditedFiles(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testOptions())
	if _, err := s.SaveAll(Change{Key: "a", Value: "1"}, Change{Key: "b", Value: "2"}, Change{Key: "c", Value: "3"}); err != nil {
		t.Fatal(err)
	}
	mustSave(t, s, "d", "4")
	mustClose(t, s)
	text := readFile(t, path)
	for _, c := range []struct {
		name, text string
		want       []string
		edited     int
	}{
		{"value changed", strings.Replace(text, `"val":"2"`, `"val":"22"`, 1), []string{"a=1", "b=22", "c=3", "d=4"}, 1},
		{"line removed", strings.Replace(text, `{"key":"b","val":"2"}`+"\n", "", 1), []string{"a=1", "c=3", "d=4"}, 1},
		{"line added", strings.Replace(text, `{"key":"b"`, `{"key":"x","val":"9"}`+"\n"+`{"key":"b"`, 1), []string{"a=1", "b=2", "c=3", "d=4", "x=9"}, 1},
		{"line removed from the last", strings.Replace(text, `{"key":"d","val":"4"}`+"\n", "", 1), []string{"a=1", "b=2", "c=3"}, 1},
		{"line added at the end", text + `{"key":"x","val":"9"}`, []string{"a=1", "b=2", "c=3", "d=4", "x=9"}, 0},
		{"CRLF", strings.ReplaceAll(text, "\n", "\r\n"), []string{"a=1", "b=2", "c=3", "d=4"}, 0},
		{"twice", text + text, []string{"a=1", "b=2", "c=3", "d=4"}, 0},
		{"frame lines removed", removeLines(text, txPrefix), []string{"a=1", "b=2", "c=3", "d=4"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			writeFile(t, path, c.text)
			s := mustOpen(t, path, testOptions())
			var got []string
			for k, v := range Scan[string](s, All()) {
				got = append(got, k+"="+v)
			}
			wantSame(t, "records", got, c.want)
			if r := s.Report(); len(r.Edited) != c.edited || r.SkippedCount != 0 || r.Cut != nil {
				t.Fatalf("report: %+v", r)
			}
			mustClose(t, s)
		})
	}
}

func removeLines(text, prefix string) string {
	var out []string
	for _, l := range strings.Split(text, "\n") {
		if !strings.HasPrefix(l, prefix) {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// Versions and the sequence survive reopening, rewrites and compression.
func TestVersionsLast(t *testing.T) {
	for _, compress := range []bool{false, true} {
		path := tempPath(t)
		o := testOptions()
		o.Compress = compress
		s := mustOpen(t, path, o)
		for i := range 20 {
			mustSave(t, s, fmt.Sprint(i%7), i)
		}
		mustSave(t, s, "x", 1)
		if err := s.Delete("x"); err != nil {
			t.Fatal(err)
		}
		want, seq := dump(s), s.Stats().Version
		for range 2 {
			if err := s.Rewrite(context.Background()); err != nil {
				t.Fatal(err)
			}
			mustClose(t, s)
			s = mustOpen(t, path, o)
			wantSame(t, "records with versions", dump(s), want)
			if got := s.Stats().Version; got != seq {
				t.Fatalf("sequence: got %d, want %d", got, seq)
			}
		}
		mustClose(t, s)
	}
}
