package couch

import (
	"encoding/base64"
	"strings"
	"testing"
)

// Each documented limit holds at its edge, and can be changed while the server
// runs.
func TestLimits(t *testing.T) {
	r := newRig(t, "limits.document=2000", "limits.attachment=3000", "limits.body=50000")
	r.want(201, "PUT", "/db", "")
	r.want(200, "PUT", "/_osier/settings/limits.depth", `"20"`)
	nested := func(n int) string { return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}` }
	sized := func(n int) string { return `{"text":"` + strings.Repeat("x", n-11) + `"}` }
	inline := func(n int) string {
		return `{"_attachments":{"f":{"data":"` + base64.StdEncoding.EncodeToString(make([]byte, n)) + `"}}}`
	}
	r.want(201, "PUT", "/db/depth", nested(20))
	r.want(400, "PUT", "/db/depth2", nested(21))
	r.want(400, "POST", "/db/_bulk_docs", `{"docs":[`+nested(19)+`]}`)
	r.want(400, "POST", "/db/_find", `{"selector":`+nested(20)+`}`)
	r.want(201, "PUT", "/db/size", sized(2000))
	r.want(413, "PUT", "/db/size2", sized(2001))
	r.want(201, "PUT", "/db/inline", inline(3000))
	r.want(413, "PUT", "/db/inline2", inline(3001))
	rev := r.want(201, "PUT", "/db/file", `{}`).rev(t)
	r.want(413, "PUT", "/db/file/f?rev="+rev, strings.Repeat("x", 3001))
	r.want(201, "PUT", "/db/file/f?rev="+rev, strings.Repeat("x", 3000))
	r.want(413, "POST", "/db/_bulk_docs", `{"docs":[`+strings.Repeat(sized(1000)+",", 50)+`{}]}`)
	r.want(404, "GET", "/db/size2", "")
	r.want(200, "PUT", "/_osier/settings/limits.depth", `"21"`)
	r.want(201, "PUT", "/db/depth2", nested(21))
}

// A client may name its requests; what could be no name is replaced.
func TestRequestIDs(t *testing.T) {
	r := newRig(t)
	for sent, want := range map[string]bool{
		"E7498DE1-B661-42FA-943D-17F890143068": true, "a_b": true, "": false, "a b": false, "ü": false,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
	} {
		got := r.want(200, "GET", "/", "", "X-Couch-Request-Id: "+sent).Header.Get("X-Couch-Request-Id")
		if (got == sent) != want || got == "" {
			t.Errorf("sent %q: told %q; want it taken over: %v", sent, got, want)
		}
	}
}
