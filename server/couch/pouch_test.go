package couch

import (
	"fmt"
	"strings"
	"testing"
)

// TestRevsLimitCountsTheRevisionItself wants a branch to have as many revisions
// as _revs_limit says, the newest among them.
func TestRevsLimitCountsTheRevisionItself(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	count := func(path string) int {
		t.Helper()
		var doc struct {
			Revisions struct{ IDs []string } `json:"_revisions"`
		}
		r.want(200, "GET", path+"?revs=true", "").into(t, &doc)
		return len(doc.Revisions.IDs)
	}
	graft := func(id string) {
		t.Helper()
		var ids []string
		for i := range 1500 {
			ids = append(ids, fmt.Sprintf("%q", fmt.Sprint("r", i)))
		}
		r.want(201, "POST", "/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"`+id+`","_revisions":{"start":1500,"ids":[`+strings.Join(ids, ",")+`]}}]}`)
	}
	graft("a")
	if n := count("/db/a"); n != 1000 {
		t.Errorf("a has %d revisions, want 1000", n)
	}
	r.want(200, "PUT", "/db/_revs_limit", "5")
	if got := strings.TrimSpace(string(r.want(200, "GET", "/db/_revs_limit", "").body)); got != "5" {
		t.Errorf("_revs_limit is %s, want 5", got)
	}
	graft("b")
	if n := count("/db/b"); n != 5 {
		t.Errorf("b has %d revisions, want 5", n)
	}
}

// TestLocalDocumentWithRevisions wants a local document to be taken back as it was
// told with revs=true, and other documents to need a revision that can be one.
func TestLocalDocumentWithRevisions(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	r.want(201, "PUT", "/db/_local/a", `{"v":1}`)
	told := r.want(200, "GET", "/db/_local/a?revs=true", "")
	if rev := r.want(201, "PUT", "/db/_local/a", string(told.body)).rev(t); rev != "0-2" {
		t.Errorf("put back: got revision %s, want 0-2", rev)
	}
	if again := r.want(200, "GET", "/db/_local/a", ""); strings.Contains(string(again.body), "_revisions") {
		t.Errorf("_revisions were stored: %s", again.body)
	}
	r.want(400, "PUT", "/db/a", `{"_revisions":{"start":0,"ids":["1"]}}`)
}

// TestCompactionOfLosingBranches wants _compact to drop the earlier bodies of
// branches that do not win, and to keep those of all leaves.
func TestCompactionOfLosingBranches(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	r.want(201, "POST", "/db/_bulk_docs", `{"new_edits":false,"docs":[
		{"_id":"a","_revisions":{"start":1,"ids":["a1"]}},
		{"_id":"a","_revisions":{"start":2,"ids":["a2","a1"]}},
		{"_id":"a","_revisions":{"start":3,"ids":["a3","a2","a1"]},"_deleted":true},
		{"_id":"a","_revisions":{"start":1,"ids":["b1"]}}]}`)
	for _, compacted := range []bool{false, true} {
		if compacted {
			r.want(202, "POST", "/db/_compact", "{}")
		}
		for rev, leaf := range map[string]bool{"1-a1": false, "2-a2": false, "3-a3": true, "1-b1": true} {
			want := 200
			if compacted && !leaf {
				want = 404
			}
			r.want(want, "GET", "/db/a?rev="+rev, "")
		}
	}
}
