package couch

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// eventually polls for what has no event.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(30 * time.Second)
	defer end.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

// Clients that vanish leave nothing behind: no goroutine, no place that counts
// against the limit of waiting requests.
func TestVanishedClients(t *testing.T) {
	r := newRig(t, "limits.waits=20", "limits.waits_each=20")
	r.want(201, "PUT", "/db", "")
	r.http.Client().CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 10 {
		var stops []func()
		for i := range 20 {
			kind := []string{"longpoll", "continuous", "eventsource"}[i%3]
			lines, stop := r.openFeed(t, "/db/_changes?feed="+kind+"&since=now&heartbeat=60000", "")
			stops = append(stops, stop)
			if kind != "eventsource" {
				if _, err := lines.ReadByte(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if a := r.do("GET", "/db/_changes?feed=longpoll&since=now&timeout=1", ""); a.StatusCode != 503 && a.StatusCode != 429 || a.Header.Get("Retry-After") == "" {
			t.Fatalf("one wait too many: status %d, Retry-After %q: %s", a.StatusCode, a.Header.Get("Retry-After"), a.body)
		}
		for _, stop := range stops {
			stop()
		}
		eventually(t, "the places come back", func() bool {
			return r.do("GET", "/db/_changes?feed=longpoll&since=now&timeout=1", "").StatusCode == 200
		})
	}
	r.http.Client().CloseIdleConnections()
	eventually(t, "the goroutines end", func() bool { return runtime.NumGoroutine() <= before+5 })
}

// A request that breaks off in the middle of its body changes nothing.
func TestHalfBodies(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	for _, path := range []string{"/db/a", "/db/a/x.png", "/db/_bulk_docs"} {
		method := "PUT"
		if strings.HasSuffix(path, "docs") {
			method = "POST"
		}
		req := r.request(method, path, `{"docs":[{"_id":"a"}]}`)
		req.ContentLength = 1000 // never to come
		if resp, err := r.http.Client().Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode < 400 {
				t.Errorf("%s %s with half a body: status %d", method, path, resp.StatusCode)
			}
		}
	}
	var info struct {
		DocCount int `json:"doc_count"`
	}
	r.want(200, "GET", "/db", "").into(t, &info)
	if info.DocCount != 0 {
		t.Errorf("there are %d documents", info.DocCount)
	}
}

// Clients that leave in the middle of a long answer leave their turn to others.
func TestHalfReadAnswers(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, `,{"_id":"%04d","text":"%s"}`, i, strings.Repeat("x", 500))
	}
	r.want(201, "POST", "/db/_bulk_docs", `{"docs":[`+b.String()[1:]+`]}`)
	paths := []string{"/db/_all_docs?include_docs=true", "/db/_changes?include_docs=true"}
	for i := range 12 {
		req := r.request("GET", paths[i%2], "")
		resp, err := r.http.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if a := r.do("GET", paths[i%2], ""); a.StatusCode != 200 || len(a.body) < 3000*500 {
				t.Errorf("status %d, %d bytes", a.StatusCode, len(a.body))
			}
		})
	}
	wg.Wait()
}
