package couch

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var rewrite = flag.Bool("rewrite", false, "write the answers into testdata/*.txtar instead of comparing them")

// TestStories plays the requests of testdata/*.txtar against a fresh server,
// one file one server. A file named "METHOD PATH" is a request: header lines, an
// empty line and a body, or a body alone; the file after it, named by the status,
// is the answer. What changes from run to run is replaced by a name: see normal.
// {{rev N}} in a request is the N-th revision that an answer of this story told,
// {{base}} the server's address.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			tell(t, file)
		})
	}
}

func tell(t *testing.T, file string) {
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a := txtar.Parse(was)
	r := newRig(t)
	s := &story{rig: r}
	out := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		if !strings.Contains(f.Name, " ") {
			continue // an answer
		}
		out.Files = append(out.Files, f, s.ask(f))
	}
	now := txtar.Format(out)
	if *rewrite {
		if err := os.WriteFile(file, now, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(was), string(now)); diff != "" {
		t.Errorf("the answers differ (- story, + server); -rewrite takes them over:\n%s", diff)
	}
}

type story struct {
	rig  *rig
	revs []string
}

var revName = regexp.MustCompile(`\{\{rev (\d+)\}\}`)

// ask sends a story's request and returns the answer's file.
func (s *story) ask(f txtar.File) txtar.File {
	s.rig.t.Helper()
	insert := func(text string) string {
		text = strings.ReplaceAll(text, "{{base}}", s.rig.http.URL)
		return revName.ReplaceAllStringFunc(text, func(m string) string {
			n := 0
			fmt.Sscanf(m, "{{rev %d}}", &n)
			if n < 1 || n > len(s.revs) {
				s.rig.t.Fatalf("%s: no revision %d has been told yet", f.Name, n)
			}
			return s.revs[n-1]
		})
	}
	method, path, _ := strings.Cut(insert(f.Name), " ")
	head, body, split := strings.Cut(insert(string(f.Data)), "\n\n")
	if !split || strings.HasPrefix(head, "{") || strings.HasPrefix(head, "[") {
		head, body = "", insert(string(f.Data))
	}
	body = strings.TrimSuffix(body, "\n")
	if strings.Contains(head, "multipart/") {
		body = strings.ReplaceAll(body, "\n", "\r\n")
	}
	var headers []string
	if head != "" {
		headers = strings.Split(head, "\n")
	}
	resp := s.rig.do(method, path, body, headers...)
	return txtar.File{Name: fmt.Sprint(resp.StatusCode), Data: s.show(resp)}
}

// shown are the headers that stories show.
var shown = []string{"Allow", "Accept-Ranges", "Content-Encoding", "Content-Range", "Content-Type", "Etag", "Location", "Retry-After"}

func (s *story) show(resp *reply) []byte {
	var b bytes.Buffer
	for _, name := range shown {
		if v := resp.Header.Get(name); v != "" && (name != "Content-Type" || v != "application/json") {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	b.Write(bytes.ReplaceAll(resp.body, []byte("\r\n"), []byte("\n")))
	if b.Len() > 0 && !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	text := b.String()
	for _, m := range told.FindAllStringSubmatch(string(resp.body), -1) {
		if rev := m[1]; !slices.Contains(s.revs, rev) {
			s.revs = append(s.revs, rev)
		}
	}
	return []byte(s.normal(text, resp.Response))
}

var (
	told     = regexp.MustCompile(`"rev":"(\d+-[^"]+)"`)
	seqToken = regexp.MustCompile(`"(\d+)-[0-9a-f]{16}"`)
	started  = regexp.MustCompile(`"instance_start_time":"\d+"`)
	diskSize = regexp.MustCompile(`"(file|active)":\d+`)
	madeID   = regexp.MustCompile(`"id":"[0-9a-f]{32}"`)
	madePath = regexp.MustCompile(`Location: (.*)/[0-9a-f]{32}\n`)
	hashed   = regexp.MustCompile(`\d+-[0-9a-f]{32}`)
	bookmark = regexp.MustCompile(`"bookmark":"[A-Za-z0-9_-]{8,}"`)
	boundary = regexp.MustCompile(`boundary="([0-9a-f]{32})"`)
	etagText = regexp.MustCompile(`Etag: "[0-9a-z]+-[0-9a-f]{16}-[0-9a-z]+"`)
)

// normal replaces what changes from run to run.
func (s *story) normal(text string, resp *http.Response) string {
	text = strings.ReplaceAll(text, s.rig.http.URL, "{{base}}")
	text = seqToken.ReplaceAllString(text, `"$1-TOKEN"`)
	text = started.ReplaceAllString(text, `"instance_start_time":"TIME"`)
	text = diskSize.ReplaceAllString(text, `"$1":SIZE`)
	text = bookmark.ReplaceAllString(text, `"bookmark":"BOOKMARK"`)
	text = madeID.ReplaceAllString(text, `"id":"UUID"`)
	text = madePath.ReplaceAllString(text, "Location: $1/UUID\n")
	if strings.Contains(resp.Request.URL.Path, "/_users/") {
		text = hashed.ReplaceAllString(text, "REV") // it depends on a salt
	}
	text = etagText.ReplaceAllString(text, `Etag: "FEED"`)
	for i, m := range boundary.FindAllStringSubmatch(text+resp.Header.Get("Content-Type"), -1) {
		text = strings.ReplaceAll(text, m[1], fmt.Sprintf("BOUNDARY%d", i+1))
	}
	return text
}
