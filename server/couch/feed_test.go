package couch

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// openFeed sends a request for changes and returns its lines as they come.
func (r *rig) openFeed(t *testing.T, path string, body string) (lines *bufio.Reader, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	method := "GET"
	if body != "" {
		method = "POST"
	}
	resp, err := r.http.Client().Do(r.request(method, path, body).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d", path, resp.StatusCode)
	}
	return bufio.NewReader(resp.Body), func() {
		cancel()
		resp.Body.Close()
	}
}

// line reads the next line that is not empty.
func line(t *testing.T, lines *bufio.Reader) string {
	t.Helper()
	for {
		text, err := lines.ReadString('\n')
		if text = strings.TrimSpace(text); text != "" {
			return text
		}
		if err != nil {
			t.Fatalf("read feed: %v", err)
		}
	}
}

type change struct {
	Seq     string
	ID      string
	Deleted bool
	Doc     map[string]any
	LastSeq string `json:"last_seq"`
	Pending *int
}

func parse(t *testing.T, text string) (c change) {
	t.Helper()
	if err := json.Unmarshal([]byte(strings.TrimSuffix(text, ",")), &c); err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	return c
}

// A long poll sends its headers at once, waits, and ends with the next change.
func TestLongpollWakes(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	r.want(201, "PUT", "/db/old", `{}`)
	lines, stop := r.openFeed(t, "/db/_changes?feed=longpoll&since=now&include_docs=true", "")
	defer stop()
	// The headers are here; only now comes the change.
	r.want(201, "PUT", "/db/_local/checkpoint", `{"seq":1}`) // wakes nobody
	r.want(201, "PUT", "/db/new", `{"v":1}`)
	if got := line(t, lines); got != `{"results":[` {
		t.Fatalf("it begins with %q", got)
	}
	if c := parse(t, line(t, lines)); c.ID != "new" || c.Doc["v"] != 1.0 {
		t.Errorf("the change is %+v", c)
	}
	if got := line(t, lines); got != "]," {
		t.Errorf("after the change comes %q", got)
	}
}

// A filtered long poll is not ended by what does not pass.
func TestLongpollFiltered(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	for _, q := range []struct{ filter, id, body string }{
		{"filter=_doc_ids", "want", `{"doc_ids":["want"]}`}, {"filter=_design", "_design/want", `{}`},
	} {
		lines, stop := r.openFeed(t, "/db/_changes?feed=longpoll&since=now&"+q.filter, q.body)
		r.want(201, "POST", "/db/_bulk_docs", `{"docs":[{"_id":"other`+q.filter+`"}]}`)
		r.want(201, "PUT", "/db/"+q.id, `{}`)
		line(t, lines)
		if c := parse(t, line(t, lines)); c.ID != q.id {
			t.Errorf("%s: the change is %+v", q.filter, c)
		}
		stop()
	}
}

// A continuous feed can be followed for ever, resumed from any of its sequences,
// and ends regularly at its limit.
func TestContinuousFollows(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	lines, stop := r.openFeed(t, "/db/_changes?feed=continuous&heartbeat=60000", "")
	defer stop()
	var seqs []string
	for i := range 20 {
		r.want(201, "PUT", fmt.Sprintf("/db/d%02d", i), `{}`)
		c := parse(t, line(t, lines))
		if want := fmt.Sprintf("d%02d", i); c.ID != want {
			t.Fatalf("change %d is of %s, want %s", i, c.ID, want)
		}
		seqs = append(seqs, c.Seq)
	}
	again, end := r.openFeed(t, "/db/_changes?feed=continuous&limit=3&since="+seqs[9], "")
	defer end()
	for i := range 3 {
		if c := parse(t, line(t, again)); c.Seq != seqs[10+i] {
			t.Errorf("resumed change %d is at %s, want %s", i, c.Seq, seqs[10+i])
		}
	}
	if c := parse(t, line(t, again)); c.LastSeq != seqs[12] || c.Pending == nil || *c.Pending != 7 {
		t.Errorf("the last line is %+v", c)
	}
}

func TestHeartbeats(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	for _, kind := range []string{"longpoll", "continuous", "eventsource"} {
		lines, stop := r.openFeed(t, "/db/_changes?feed="+kind+"&heartbeat=100&since=now", "")
		beats := 0
		for beats < 3 {
			text, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if text == "\n" || text == "event: heartbeat\n" {
				beats++
			}
		}
		stop()
	}
}

// Feeds end when their database goes, and so does the wait for them.
func TestFeedEndsWithDatabase(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	lines, stop := r.openFeed(t, "/db/_changes?feed=continuous&since=now&heartbeat=60000", "")
	defer stop()
	r.want(200, "DELETE", "/db", "")
	if c := parse(t, line(t, lines)); c.LastSeq == "" {
		t.Errorf("the last line is %+v", c)
	}
}

// A sequence of a database that was made anew under the same name starts over.
func TestSinceOfAnotherIncarnation(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	r.want(201, "POST", "/db/_bulk_docs", `{"docs":[{"_id":"a"},{"_id":"b"}]}`)
	var old struct {
		LastSeq string `json:"last_seq"`
	}
	r.want(200, "GET", "/db/_changes", "").into(t, &old)
	r.want(200, "DELETE", "/db", "")
	r.want(201, "PUT", "/db", "")
	r.want(201, "POST", "/db/_bulk_docs", `{"docs":[{"_id":"c"},{"_id":"d"},{"_id":"e"}]}`)
	var now struct{ Results []change }
	r.want(200, "GET", "/db/_changes?since="+old.LastSeq, "").into(t, &now)
	if len(now.Results) != 3 {
		t.Errorf("there are %d changes, want 3", len(now.Results))
	}
}

// pending is right on every page, with writes in between too.
func TestPendingByPages(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	total := 0
	write := func(n int) {
		for range n {
			r.want(201, "PUT", fmt.Sprintf("/db/d%03d", total), `{}`)
			total++
		}
	}
	write(25)
	since, seen := "0", 0
	for page := 0; ; page++ {
		var a struct {
			Results []change
			LastSeq string `json:"last_seq"`
			Pending int
		}
		r.want(200, "GET", "/db/_changes?limit=4&since="+since, "").into(t, &a)
		seen += len(a.Results)
		if a.Pending != total-seen {
			t.Fatalf("page %d: %d pending after %d of %d", page, a.Pending, seen, total)
		}
		if since = a.LastSeq; a.Pending == 0 {
			break
		}
		if page == 2 {
			write(3)
		}
	}
	if seen != total {
		t.Errorf("%d changes were shown, want %d", seen, total)
	}
}
