package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

// What is stronger wins, and what is fixed stays.
func TestSettingsPrecedence(t *testing.T) {
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	env := map[string]string{"OSIER_LIMITS_DEPTH": "100", "OSIER_LIMITS_BURST": "7"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	given := map[string]Given{
		"limits.depth": {"50", SourceFile}, "limits.waits": {"11", SourceFile}, "limits.burst": {"8", SourceFlag}, "test.color": {"blue", SourceFile},
		"test.free.a": {"from file", SourceFile},
	}
	b := benchOn(t, eng.Store, &Options{Settings: given, LookupEnv: lookup})
	see := func(b *bench, name, value, source string) {
		t.Helper()
		for _, s := range b.s.Settings().All() {
			if s.Name == name {
				if got, ok := b.s.Settings().Get(name); s.Value != value || s.Source != source || !ok || got != value {
					t.Errorf("%s: want %q from %s, got %q from %s (%q)", name, value, source, s.Value, s.Source, got)
				}
				return
			}
		}
		t.Errorf("%s is not listed", name)
	}
	see(b, "limits.depth", "100", SourceEnvironment)
	see(b, "limits.burst", "8", SourceFlag)
	see(b, "limits.waits", "11", SourceFile)
	see(b, "limits.document", "67108864", SourceDefault)
	see(b, "test.color", "blue", SourceFile)
	see(b, "test.free.a", "from file", SourceFile)

	ctx, root := t.Context(), b.admin()
	for name, want := range map[string]error{"limits.depth": osier.ErrDenied, "limits.burst": osier.ErrDenied, "nothing.here": osier.ErrNotFound, "test.free.*": osier.ErrNotFound} {
		_, err := b.s.Settings().Set(ctx, root, name, "9")
		wantKind(t, "set "+name, err, want)
	}
	_, err = b.s.Settings().Set(ctx, root, "limits.waits", "many")
	wantKind(t, "a wrong value", err, osier.ErrInvalid)
	_, err = b.s.Settings().Set(ctx, b.sess("bob"), "limits.waits", "12")
	wantKind(t, "by a user", err, osier.ErrDenied)
	if old, err := b.s.Settings().Set(ctx, root, "limits.waits", "12"); err != nil || old != "11" {
		t.Errorf("set: want the old 11, got %q, %v", old, err)
	}
	if got := b.door.Limits().Waits; got != 12 {
		t.Errorf("in force: want 12, got %d", got)
	}
	if _, err := b.s.Settings().Set(ctx, root, "test.free.b/c", "x"); err != nil {
		t.Error(err)
	}
	b.s.Close()

	again := benchOn(t, eng.Store, &Options{Settings: given, LookupEnv: lookup})
	see(again, "limits.waits", "12", SourceStore)
	see(again, "test.free.b/c", "x", SourceStore)
	if _, err := again.s.Settings().Reset(ctx, root, "limits.waits"); err != nil {
		t.Error(err)
	}
	see(again, "limits.waits", "11", SourceFile)
	if _, err := again.s.Settings().Reset(ctx, root, "test.free.b/c"); err != nil {
		t.Error(err)
	}
	if v, ok := again.s.Settings().Get("test.free.b/c"); ok {
		t.Errorf("want it gone, got %q", v)
	}
	_, err = again.s.Settings().Reset(ctx, root, "test.free.b/c")
	wantKind(t, "reset again", err, osier.ErrNotFound)
}

// Wrong values from outside stop the start, and all of them are named.
func TestWrongSettingsStopTheStart(t *testing.T) {
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	_, err = New(t.Context(), eng.Store, &Options{Settings: map[string]Given{
		"limits.boddy": {"1", SourceFile}, "limits.body": {"lots", SourceFlag}, "jwt_keys.hmac:x": {"hush hush", SourceFile}, "cors.origins": {"example.com", SourceFile},
	}})
	if osier.KindOf(err) != osier.KindInvalid {
		t.Fatalf("want it refused, got %v", err)
	}
	for _, want := range []string{`file: there is no setting "limits.boddy"`, `flag: setting limits.body: "lots"`, "jwt_keys.hmac:x", `"example.com" is no origin`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("the error shows a key: %v", err)
	}
}

// Every default passes its own check, and has a help text.
func TestDefaultsAreValid(t *testing.T) {
	for _, s := range ownSettings() {
		if err := s.check(s.Default); err != nil && !strings.HasSuffix(s.Name, ".*") {
			t.Errorf("%s: %v", s.Name, err)
		}
		if s.Help == "" {
			t.Errorf("%s has no help", s.Name)
		}
	}
}

// The routes of the server itself, as an administrator uses them.
func TestOwnRoutes(t *testing.T) {
	b := newBench(t, nil)
	b.mustPutUser("bob", "pw")
	do := func(user, method, path, body string, want int) string {
		t.Helper()
		password := map[string]string{"root": "secret-of-root", "bob": "pw"}[user]
		w := b.do(request{method: method, path: path, body: body, user: user, password: password})
		if w.Code != want {
			t.Errorf("%s %s by %q: want %d, got %d %s", method, path, user, want, w.Code, w.Body)
		}
		return w.Body.String()
	}
	do("", "GET", "/_osier/settings", "", 401)
	do("bob", "GET", "/_osier/settings", "", 403)
	if got := do("root", "PUT", "/_osier/settings/test.color", `"blue"`, 200); !strings.Contains(got, `"source": "store"`) {
		t.Errorf("want it stored, got %s", got)
	}
	do("root", "PUT", "/_osier/settings/test.color", `"green"`, 400)
	do("root", "PUT", "/_osier/settings/test.color", `7`, 400)
	do("root", "PUT", "/_osier/settings/test.color", `"`+strings.Repeat("x", maxOwnBody)+`"`, 413)
	do("root", "PUT", "/_osier/settings/test.colour", `"blue"`, 404)
	do("bob", "PUT", "/_osier/settings/test.color", `"red"`, 403)
	do("root", "DELETE", "/_osier/settings/test.color", "", 200)
	if got := do("root", "GET", "/_osier/settings/test.color", "", 200); !strings.Contains(got, `"value": "red"`) {
		t.Errorf("want the default, got %s", got)
	}
	for _, path := range []string{"/_osier/metrics", "/_osier/pprof/", "/_osier/pprof/goroutine?debug=1"} {
		do("", "GET", path, "", 401)
		do("bob", "GET", path, "", 403)
		do("root", "GET", path, "", 200)
	}
	if got := do("root", "GET", "/_osier/metrics", "", 200); !strings.Contains(got, `osier_http_requests_total{door="osier",method="GET",status="403"}`) ||
		!strings.Contains(got, "osier_failed_logins_total 0") {
		t.Errorf("want metrics, got %s", got)
	}
	b.door.Counter("things_total", "Things.").Add(2)
	b.door.Counter("things_total", "Things.").Add(3)
	if got := do("root", "GET", "/_osier/metrics", "", 200); !strings.Contains(got, "osier_test_things_total 5") {
		t.Errorf("want the door's counter, got %s", got)
	}
	do("bob", "POST", "/_osier/keys", `{"grants":[{"actions":["dance"],"db":"x"}]}`, 400)
	do("", "POST", "/_osier/keys", `{}`, 401)
	made := do("bob", "POST", "/_osier/keys", `{"note":"ci","grants":[{"actions":["read"],"db":"x"}]}`, 201)
	var out struct{ Secret string }
	if err := json.Unmarshal([]byte(made), &out); err != nil || !strings.HasPrefix(out.Secret, keyPrefix) {
		t.Fatalf("want a secret, got %s", made)
	}
	if got := b.who(request{headers: map[string]string{"Authorization": "Bearer " + out.Secret}}); got != "bob" {
		t.Errorf("want bob, got %q", got)
	}
	list := do("bob", "GET", "/_osier/keys", "", 200)
	if !strings.Contains(list, `"note": "ci"`) || !strings.Contains(list, `"read"`) || strings.Contains(list, "hash") {
		t.Errorf("got %s", list)
	}
	do("bob", "DELETE", "/_osier/keys/"+out.Secret[len(keyPrefix):len(keyPrefix)+2*keyIDBytes], "", 200)
	do("bob", "DELETE", "/_osier/keys/nothing", "", 404)
}
