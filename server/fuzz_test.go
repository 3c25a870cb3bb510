package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What is read as an object has the members that encoding/json finds, and
// stays the same when it is written and read again.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"name":"u","password":"x","roles":[1,{"a":null}],"name":"v"}`))
	f.Add([]byte(`{"a":1.0e400,"":{}} trailing`))
	f.Add([]byte(`{"é\ud800":"\u0000"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := parseObject(text)
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) == nil {
			if len(want) != len(o) {
				t.Fatalf("%q: want %d members, got %d", text, len(want), len(o))
			}
			for _, m := range o {
				if !bytes.Equal(want[m.name], m.value) {
					t.Fatalf("%q: member %q: want %s, got %s", text, m.name, want[m.name], m.value)
				}
			}
		}
		again, err := parseObject(o.text())
		if err != nil || !bytes.Equal(again.text(), o.text()) {
			t.Fatalf("%q: written %q, read again %q, %v", text, o.text(), again.text(), err)
		}
	})
}

// What is taken as a security object is read the same again.
func FuzzSecurityObjects(f *testing.F) {
	f.Add([]byte(`{"admins":{"names":["a"]},"members":{"roles":["b"]},"x":1}`))
	f.Add([]byte(closedSecurity))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseSecurity(text)
		if err != nil {
			return
		}
		if !json.Valid(s.JSON) || !bytes.Equal(s.JSON, text) {
			t.Fatalf("%q: kept as %q", text, s.JSON)
		}
	})
}

// No header makes authentication fail otherwise than with an answer, and only
// the right ones get in.
func FuzzCredentials(f *testing.F) {
	b := newBench(f, nil)
	f.Add("Basic cm9vdDp3cm9uZw==", "junk")
	f.Add("Bearer osk_0123456789abcdef_AAAA", "YWRtaW46NUY1RjVGNUY6aGFzaA")
	f.Add("Bearer a.b.c", "")
	f.Fuzz(func(t *testing.T, authorization, cookie string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", authorization)
		r.Header.Set("Cookie", CookieName+"="+cookie)
		// Each as from a new address and account, or it would be slowed down.
		b.s.accounts.failures = newFailures()
		w := httptest.NewRecorder()
		b.s.Handler().ServeHTTP(w, r)
		right := strings.HasSuffix(authorization, base64.StdEncoding.EncodeToString([]byte("root:secret-of-root")))
		if w.Code == http.StatusOK && strings.Contains(w.Body.String(), `"name":"root"`) && !right {
			t.Fatalf("%q, %q got in", authorization, cookie)
		}
		if w.Code >= 500 {
			t.Fatalf("%q, %q: %d %s", authorization, cookie, w.Code, w.Body)
		}
	})
}
