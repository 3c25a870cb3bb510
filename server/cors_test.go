package server

import (
	"net/http"
	"testing"
)

func TestCORS(t *testing.T) {
	b := newBench(t, &Options{Settings: map[string]Given{
		"cors.origins": {"http://example.net, https://app.example.org,http://localhost:*", SourceFile}, "cors.methods": {"GET, PUT", SourceFile},
		"cors.headers": {"authorization, x-custom", SourceFile}, "cors.max_age": {"3600", SourceFile},
	}})
	for name, c := range map[string]struct {
		method, origin, askMethod, askHeaders string
		status                                int
		allowed, refused                      bool
	}{
		"simple":               {"GET", "http://example.net", "", "", 200, true, false},
		"other port":           {"GET", "http://example.net:8080", "", "", 200, false, true},
		"other scheme":         {"GET", "https://example.net", "", "", 200, false, true},
		"other case":           {"GET", "http://EXAMPLE.net", "", "", 200, false, true},
		"null":                 {"GET", "null", "", "", 200, false, true},
		"any port":             {"GET", "http://localhost:5173", "", "", 200, true, false},
		"any port, no number":  {"GET", "http://localhost:5173.evil.example", "", "", 200, false, true},
		"any port, none":       {"GET", "http://localhost:", "", "", 200, false, true},
		"same origin":          {"GET", "http://example.com", "", "", 200, false, false},
		"no origin":            {"GET", "", "", "", 200, false, false},
		"preflight":            {"OPTIONS", "https://app.example.org", "PUT", "X-Custom,authorization", 204, true, false},
		"preflight, no header": {"OPTIONS", "https://app.example.org", "PUT", "", 204, true, false},
		"preflight, method":    {"OPTIONS", "https://app.example.org", "PATCH", "", 200, true, true},
		"preflight, header":    {"OPTIONS", "https://app.example.org", "PUT", "x-other", 200, true, true},
		"preflight, origin":    {"OPTIONS", "https://evil.example", "PUT", "", 200, false, true},
		"options":              {"OPTIONS", "https://app.example.org", "", "", 200, true, false},
	} {
		q := request{method: c.method, path: "/", headers: map[string]string{}}
		for header, v := range map[string]string{"Origin": c.origin, "Access-Control-Request-Method": c.askMethod, "Access-Control-Request-Headers": c.askHeaders} {
			if v != "" {
				q.headers[header] = v
			}
		}
		w := b.do(q)
		h := w.Header()
		want := ""
		if c.allowed {
			want = c.origin
		}
		if w.Code != c.status || h.Get("Access-Control-Allow-Origin") != want || (h.Get(refusedHeader) != "") != c.refused {
			t.Errorf("%s: want %d, %q, refused %t; got %d, %v", name, c.status, want, c.refused, w.Code, h)
		}
		if got := h.Get("Access-Control-Allow-Methods"); (got != "") != (c.status == http.StatusNoContent) {
			t.Errorf("%s: methods %q", name, got)
		}
		if c.status == http.StatusNoContent && (h.Get("Access-Control-Max-Age") != "3600" || h.Get("Access-Control-Allow-Headers") != c.askHeaders) {
			t.Errorf("%s: got %v", name, h)
		}
		if c.allowed && (h.Get("Access-Control-Allow-Credentials") != "true" || h.Get("Vary") == "") {
			t.Errorf("%s: got %v", name, h)
		}
	}
}

// Headers for other origins are on the server's own refusals too, or a page
// could not tell a wrong password from a dead server.
func TestCORSOnRefusals(t *testing.T) {
	b := newBench(t, nil)
	for _, origin := range []string{"app://obsidian.md", "capacitor://localhost", "http://localhost", "http://localhost:3000", "http://127.0.0.1:8080"} {
		w := b.do(request{path: "/", user: "root", password: "wrong", headers: map[string]string{"Origin": origin}})
		if w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") != origin || w.Header().Get("Access-Control-Expose-Headers") == "" {
			t.Errorf("%s: got %d %v", origin, w.Code, w.Header())
		}
		if w.Header().Get("Www-Authenticate") != "" {
			t.Errorf("%s: a script's request opens a dialog", origin)
		}
	}
}

func TestCORSOfAll(t *testing.T) {
	b := newBench(t, &Options{Settings: map[string]Given{"cors.origins": {"*", SourceFile}, "cors.headers": {"*", SourceFile}}})
	w := b.do(request{method: "OPTIONS", path: "/", headers: map[string]string{"Origin": "https://anything.example", "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-any"}})
	if w.Code != 204 || w.Header().Get("Access-Control-Allow-Origin") != "https://anything.example" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	if _, err := b.s.settings.Set(t.Context(), b.admin(), "cors.enable", "false"); err != nil {
		t.Fatal(err)
	}
	w = b.do(request{path: "/", headers: map[string]string{"Origin": "https://anything.example"}})
	if w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("off: got %v", w.Header())
	}
}
