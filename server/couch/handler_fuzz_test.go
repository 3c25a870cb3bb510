package couch

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// Whatever is sent, the answer is one of CouchDB's kind: no failure of the
// server, no panic. The server stays the same through all inputs, so that what
// one leaves behind is met by the next.
func FuzzRequests(f *testing.F) {
	for _, seed := range []struct{ method, path, headers, body string }{
		{"PUT", "/db/a?rev=1-a", "If-Match: 1-a", `{"_attachments":{"x":{"data":"AAEC"}}}`},
		{"PUT", "/db/a?new_edits=false", "", `{"_rev":"2-b","_revisions":{"start":2,"ids":["b","a"]}}`},
		{"PUT", "/db/m", "Content-Type: multipart/related;boundary=x", "--x\r\n\r\n{\"_attachments\":{\"a\":{\"follows\":true}}}\r\n--x\r\n\r\nabc\r\n--x--"},
		{"POST", "/db/_bulk_docs", "", `{"docs":[{"_id":"a"},{"_id":"_local/l"}],"new_edits":false}`},
		{"POST", "/db/_bulk_get?revs=true&attachments=true", "Accept: multipart/mixed", `{"docs":[{"id":"a","rev":"1-a","atts_since":["1-b"]}]}`},
		{"POST", "/db/_revs_diff", "", `{"a":["1-a","3-c"]}`}, {"POST", "/db/_purge", "", `{"a":["1-a"]}`},
		{"POST", "/db/_all_docs/queries", "", `{"queries":[{"keys":["a",1]},{"startkey":[],"endkey":"z","descending":true}]}`},
		{"GET", "/db/a?open_revs=all&latest=true&atts_since=[]", "Accept: */*", ""},
		{"GET", "/db/a?revs=true&revs_info=true&conflicts=true&meta=true&local_seq=true", "", ""},
		{"GET", "/db/_changes?since=1-0000000000000000&limit=0&style=all_docs&seq_interval=2", "", ""},
		{"GET", "/db/_changes?feed=continuous&timeout=0&filter=_doc_ids&doc_ids=[\"a\"]", "", ""},
		{"GET", "/db/a/att", "Range: bytes=0-1,-5", ""}, {"COPY", "/db/a", "Destination: b?rev=1-a", ""},
		{"PUT", "/db/_security", "", `{"members":{"names":[]}}`}, {"PUT", "/db/_revs_limit", "", "5"},
		{"GET", "/_node/_local/_config/cors", "", ""}, {"PUT", "/_node/_local/_config/a/b", "", `"x"`},
		{"POST", "/_dbs_info", "", `{"keys":["db"]}`}, {"GET", "/_all_dbs?startkey=\"a\"&descending=true", "", ""},
		{"GET", "/db/_design%2fx/_view/v", "", ""}, {"POST", "/_session", "", `{"name":"admin","password":5}`},
		{"DELETE", "/db/_local/a", "", ""}, {"POST", "/db/a", "Referer: http://x/", ""}, {"PUT", "/db/a", "Content-Encoding: gzip", "junk"},
	} {
		f.Add(seed.method, seed.path, seed.headers, seed.body)
	}
	r := newRig(f)
	r.want(201, "PUT", "/db", "")
	r.want(201, "PUT", "/db/a/att", "bytes", "Content-Type: image/png")
	f.Fuzz(func(t *testing.T, method, path, headers, body string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || strings.ContainsAny(method, " \r\n") || method == "" || u.Host != "" {
			return
		}
		if strings.Contains(path, "heartbeat") || strings.Contains(path, "feed=") && !strings.Contains(path, "timeout=0") {
			return // it would wait, as it should
		}
		if method == "DELETE" && len(segments(u.EscapedPath())) == 1 {
			return // the database stays
		}
		req := httptest.NewRequest("GET", "/", strings.NewReader(body))
		req.Method, req.URL, req.RequestURI = method, u, path
		req.SetBasicAuth(adminName, adminPass)
		req.Header.Set("Content-Type", "application/json")
		for h := range strings.SplitSeq(headers, "\n") {
			if name, value, ok := strings.Cut(h, ": "); ok && name != "Authorization" && name != "Cookie" {
				req.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		r.srv.Handler().ServeHTTP(w, req)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented {
			t.Fatalf("%s %s: status %d: %s", method, path, w.Code, w.Body)
		}
	})
}
