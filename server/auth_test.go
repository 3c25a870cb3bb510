package server

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/osierdb/osier"
)

// login returns the header Cookie that a login gives, "" if it fails.
func (b *bench) login(name, password string) string {
	b.t.Helper()
	w := b.do(request{method: "POST", path: "/login", body: "name=" + name + "&password=" + password,
		headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}})
	c, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), ";")
	return c
}

func TestBasicAuthentication(t *testing.T) {
	b := newBench(t, nil)
	b.mustPutUser("bob", "pw:with:colons", "r1")
	b.mustPutUser("jürgen", "pässwörd€")
	for _, c := range []struct {
		name, header, want string
		status             int
	}{
		{"right", basic("root:secret-of-root"), "root", 200},
		{"colons", basic("bob:pw:with:colons"), "bob", 200},
		{"unicode", basic("jürgen:pässwörd€"), "jürgen", 200},
		{"again, from the cache", basic("bob:pw:with:colons"), "bob", 200},
		{"wrong", basic("bob:no"), "", 401},
		{"wrong after the cache knows the right one", basic("root:no"), "", 401},
		{"no such user", basic("nobody:x"), "", 401},
		{"empty password", basic("bob:"), "", 401},
		{"empty name", basic(":x"), "", 401},
		{"no colon", basic("no"), "", 200},
		{"nothing", "", "", 200},
		{"scheme only", "Basic", "", 200},
		{"lower case", "basic " + basic("root:secret-of-root")[6:], "root", 200},
		{"not base64", "Basic !!!", "", 400},
		{"other scheme", "Negotiate abc", "", 200},
		{"bearer of nothing known", "Bearer abc", "", 200},
	} {
		w := b.do(request{path: "/", headers: map[string]string{"Authorization": c.header}})
		if w.Code != c.status || w.Code == 200 && !strings.Contains(w.Body.String(), `"name":"`+c.want+`"`) {
			t.Errorf("%s: want %d for %q, got %d %s", c.name, c.status, c.want, w.Code, w.Body)
		}
		if w.Code == 401 && (w.Header().Get("Www-Authenticate") == "" || !strings.Contains(w.Body.String(), "Name or password is incorrect.")) {
			t.Errorf("%s: want a challenge and the reason, got %v %s", c.name, w.Header(), w.Body)
		}
	}
}

func basic(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }

// Verified passwords cost no hash again, until the account changes.
func TestVerifiedPasswordsAreRememberedUntilTheAccountChanges(t *testing.T) {
	b := newBench(t, nil)
	b.mustPutUser("bob", "one")
	check := func(password, want string) {
		t.Helper()
		if got := b.who(request{user: "bob", password: password}); got != want {
			t.Errorf("password %q: want %q, got %q", password, want, got)
		}
	}
	check("one", "bob")
	// With all slots taken no hash can be computed: the answer comes from
	// what is remembered.
	for range cap(b.s.accounts.hash.slots) {
		b.s.accounts.hash.slots <- struct{}{}
	}
	check("one", "bob")
	for range cap(b.s.accounts.hash.slots) {
		<-b.s.accounts.hash.slots
	}
	b.mustPutUser("bob", "two")
	check("one", "Unauthorized")
	check("two", "bob")
	acc, err := b.admin().Open(t.Context(), UsersDB)
	if err != nil {
		t.Fatal(err)
	}
	if err := userDocs.Delete(t.Context(), acc.DB, userPrefix+"bob", osier.Rev{}); err != nil {
		t.Fatal(err)
	}
	check("two", "Unauthorized")
}

// An account that an embedded program changes past the server's rules is
// noticed through the feed.
func TestChangesBehindTheServersBackAreNoticed(t *testing.T) {
	b := newBench(t, nil)
	b.mustPutUser("bob", "one")
	if got := b.who(request{user: "bob", password: "one"}); got != "bob" {
		t.Fatalf("want bob, got %q", got)
	}
	if err := userDocs.Delete(t.Context(), b.s.accounts.users, userPrefix+"bob", osier.Rev{}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for b.who(request{user: "bob", password: "one"}) == "bob" {
		if time.Now().After(deadline) {
			t.Fatal("a deleted user still gets in")
		}
		time.Sleep(time.Millisecond) // gives the feed the processor; nothing depends on its length
	}
}

func TestCookies(t *testing.T) {
	b := newBench(t, nil)
	b.mustPutUser("bob", "pw", "r1", "r2")
	cookie := b.login("bob", "pw")
	with := func(c string) request { return request{path: "/", headers: map[string]string{"Cookie": c}} }
	if w := b.do(with("a=b; " + cookie + "; c=d")); !strings.Contains(w.Body.String(), `"method":"cookie","name":"bob"`) || !strings.Contains(w.Body.String(), `"r1","r2"`) {
		t.Errorf("want bob by cookie, got %s", w.Body)
	}
	for name, c := range map[string]string{
		"not base64": "AuthSession=*", "no parts": "AuthSession=junk",
		"no time": "AuthSession=" + base64.RawURLEncoding.EncodeToString([]byte("bob:zz:00")),
	} {
		if w := b.do(with(c)); w.Code != 400 || !strings.Contains(w.Body.String(), "Malformed AuthSession cookie") {
			t.Errorf("%s: want 400, got %d %s", name, w.Code, w.Body)
		}
	}
	for name, c := range map[string]string{
		"empty": "AuthSession=", "forged": "AuthSession=" + base64.RawURLEncoding.EncodeToString([]byte("bob:5F5F5F5F:hash")),
		"other's mac": strings.Replace(cookie, "AuthSession=", "AuthSession=AAAA", 1)[:20] + "=",
	} {
		if w := b.do(with(c)); w.Code == 200 && strings.Contains(w.Body.String(), `"name":"bob"`) {
			t.Errorf("%s: got in", name)
		}
	}
	b.mustPutUser("bob", "new")
	if got := b.who(with(cookie)); got != "" {
		t.Errorf("after a new password: want nobody, got %q", got)
	}
	if c := b.login("bob", "wrong"); c != "" {
		t.Errorf("wrong login: want no cookie, got %q", c)
	}
}

func TestCookieAttributes(t *testing.T) {
	b := newBench(t, &Options{Settings: map[string]Given{"auth.same_site": {"none", SourceFile}, "net.trusted_proxies": {"192.0.2.1", SourceFile}}})
	w := b.do(request{method: "POST", path: "/login", body: "name=root&password=secret-of-root", addr: "192.0.2.1:1",
		headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded", "X-Forwarded-Proto": "https"}})
	c := w.Header().Get("Set-Cookie")
	for _, want := range []string{"; Path=/", "; Max-Age=600", "; HttpOnly", "; Secure", "; SameSite=None"} {
		if !strings.Contains(c, want) {
			t.Errorf("want %q in %q", want, c)
		}
	}
}

// A page of an origin that may not call cannot use the cookie of somebody who
// is logged in.
func TestForgedRequestsOfOtherOrigins(t *testing.T) {
	b := newBench(t, nil)
	b.mustPutUser("bob", "pw")
	cookie := b.login("bob", "pw")
	for _, c := range []struct {
		method, origin string
		want           int
	}{
		{"POST", "https://evil.example", 403},
		{"DELETE", "null", 403},
		{"GET", "https://evil.example", 200}, // the browser does not show the page the answer
		{"POST", "http://localhost:8080", 200},
		{"POST", "http://example.com", 200}, // this server
		{"POST", "", 200},
	} {
		w := b.do(request{method: c.method, path: "/", headers: map[string]string{"Cookie": cookie, "Origin": c.origin}})
		if w.Code != c.want {
			t.Errorf("%s from %q: want %d, got %d %s", c.method, c.origin, c.want, w.Code, w.Body)
		}
	}
}

func TestAPIKeys(t *testing.T) {
	b := newBench(t, nil)
	b.mustPutUser("bob", "pw")
	for _, name := range []string{"shop", "news"} {
		if _, err := b.store.CreateDB(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		sec, err := ParseSecurity([]byte(`{"members":{"names":["bob"]},"admins":{"names":["root"]}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.admin().SetSecurity(t.Context(), name, sec); err != nil {
			t.Fatal(err)
		}
	}
	key := func(sess *Session, k APIKey) string {
		t.Helper()
		secret, err := b.s.CreateKey(t.Context(), sess, k)
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	bob := b.sess("bob")
	whole := key(bob, APIKey{})
	reads := key(bob, APIKey{Grants: []osier.Grant{{Actions: osier.MayRead, DB: "shop"}}})
	roots := key(b.admin(), APIKey{Grants: []osier.Grant{{Actions: osier.MayRead | osier.MayWrite, DB: "shop"}}})
	for _, c := range []struct{ key, db, rights, roles string }{
		{whole, "shop", "read write", ""}, {whole, "news", "read write", ""},
		{reads, "shop", "read", ""}, {reads, "news", "", ""}, {reads, UsersDB, "", ""},
		{roots, "shop", "read write", ""}, {roots, "news", "", ""},
	} {
		id, err := b.s.accounts.byKey(t.Context(), c.key, "x")
		if err != nil {
			t.Fatal(err)
		}
		sess := b.s.session(id)
		if sess.Admin() {
			t.Errorf("%s: a bounded key administrates", c.db)
		}
		if got := b.rights(sess, c.db); got != c.rights {
			t.Errorf("key of %s in %s: want %q, got %q", sess.Name, c.db, c.rights, got)
		}
		_, err = b.s.CreateKey(t.Context(), sess, APIKey{})
		wantKind(t, "a key that makes a key", err, osier.ErrDenied)
	}
	for name, secret := range map[string]string{"unknown": keyPrefix + "0123456789abcdef" + whole[20:], "cut": whole[:len(whole)-4], "other's": whole[:20] + reads[20:], "prefix": keyPrefix} {
		if got := b.who(request{headers: map[string]string{"Authorization": "Bearer " + secret}}); got != "Unauthorized" {
			t.Errorf("%s: want it refused, got %q", name, got)
		}
	}
	keys, err := b.s.Keys(t.Context(), bob)
	if err != nil || len(keys) != 2 {
		t.Fatalf("want bob's two keys, got %v, %v", keys, err)
	}
	wantKind(t, "revoke another's", b.s.RevokeKey(t.Context(), b.sess("eve"), keys[0].ID), osier.ErrNotFound)
	for _, k := range keys {
		wantKind(t, "revoke", b.s.RevokeKey(t.Context(), bob, k.ID), nil)
	}
	if got := b.who(request{headers: map[string]string{"Authorization": "Bearer " + whole}}); got != "Unauthorized" {
		t.Errorf("revoked: want it refused, got %q", got)
	}
	_, err = b.s.CreateKey(t.Context(), b.sess("eve"), APIKey{Owner: "bob"})
	wantKind(t, "a key for another", err, osier.ErrDenied)
	_, err = b.s.CreateKey(t.Context(), bob, APIKey{Expires: time.Now().Add(-time.Second)})
	wantKind(t, "a key that has ended", err, osier.ErrInvalid)
}

// A key ends with its owner, and at its time.
func TestAPIKeysEnd(t *testing.T) {
	b := newBench(t, nil)
	b.mustPutUser("bob", "pw")
	secret, err := b.s.CreateKey(t.Context(), b.sess("bob"), APIKey{Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	use := func() string { return b.who(request{headers: map[string]string{"Authorization": "Bearer " + secret}}) }
	if got := use(); got != "bob" {
		t.Errorf("want bob, got %q", got)
	}
	id := secret[len(keyPrefix) : len(keyPrefix)+2*keyIDBytes]
	doc, err := keyDocs.Get(t.Context(), b.s.sys, id)
	if err != nil {
		t.Fatal(err)
	}
	doc.Value.Expires = time.Now().Add(-time.Second)
	if doc, err = keyDocs.Update(t.Context(), b.s.sys, doc); err != nil {
		t.Fatal(err)
	}
	b.s.accounts.forgetKey(id)
	if got := use(); got != "Unauthorized" {
		t.Errorf("after its end: want it refused, got %q", got)
	}
	doc.Value.Expires = time.Time{}
	if _, err = keyDocs.Update(t.Context(), b.s.sys, doc); err != nil {
		t.Fatal(err)
	}
	b.s.accounts.forgetKey(id)
	if got := use(); got != "bob" {
		t.Errorf("without an end: want bob, got %q", got)
	}
	acc, err := b.admin().Open(t.Context(), UsersDB)
	if err != nil {
		t.Fatal(err)
	}
	if err := userDocs.Delete(t.Context(), acc.DB, userPrefix+"bob", osier.Rev{}); err != nil {
		t.Fatal(err)
	}
	if got := use(); got != "Unauthorized" {
		t.Errorf("without its owner: want it refused, got %q", got)
	}
}

// The setting auth.require_user closes all but what a door exempts.
func TestRequireUser(t *testing.T) {
	b := newBench(t, &Options{Settings: map[string]Given{"auth.require_user": {"true", SourceFile}}})
	for path, want := range map[string]int{"/": 401, "/login": 200, "/_osier/health": 200, "/_osier/settings": 401} {
		method, body := "GET", ""
		if path == "/login" {
			method, body = "POST", "name=root&password=secret-of-root"
		}
		w := b.do(request{method: method, path: path, body: body, headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}})
		if w.Code != want {
			t.Errorf("%s: want %d, got %d %s", path, want, w.Code, w.Body)
		}
	}
	if _, err := b.s.settings.Set(t.Context(), b.admin(), "auth.require_user", "false"); err != nil {
		t.Fatal(err)
	}
	if w := b.do(request{path: "/"}); w.Code != http.StatusOK {
		t.Errorf("after the setting was changed: want 200, got %d", w.Code)
	}
}

func TestAdministrators(t *testing.T) {
	b := newBench(t, nil)
	ctx := t.Context()
	wantKind(t, "by a user", b.s.SetAdmin(ctx, b.sess("bob"), "bob", "x"), osier.ErrDenied)
	wantKind(t, "remove the last", b.s.SetAdmin(ctx, b.admin(), "root", ""), osier.ErrInvalid)
	wantKind(t, "a name with a colon", b.s.SetAdmin(ctx, b.admin(), "a:b", "x"), osier.ErrInvalid)
	wantKind(t, "another", b.s.SetAdmin(ctx, b.admin(), "ann", "pw-of-ann"), nil)
	if names, err := b.s.Admins(ctx); err != nil || strings.Join(names, " ") != "ann root" {
		t.Errorf("want ann and root, got %q, %v", names, err)
	}
	if got := b.who(request{user: "ann", password: "pw-of-ann"}); got != "ann" {
		t.Errorf("want ann, got %q", got)
	}
	wantKind(t, "remove one", b.s.SetAdmin(ctx, b.admin(), "root", ""), nil)
	if got := b.who(request{user: "root", password: "secret-of-root"}); got != "Unauthorized" {
		t.Errorf("removed: want him refused, got %q", got)
	}
}
