package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

// bench is a server on a store in memory, with a door of the test's own.
type bench struct {
	t     testing.TB
	store *osier.Store
	s     *Server
	door  *testDoor
	log   *lockedBuffer
}

// lockedBuffer is a log that the server writes while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testDoor tells a client who it is, and does what a test sets.
type testDoor struct {
	Host
	handle func(w http.ResponseWriter, r *http.Request)
}

func (d *testDoor) Name() string { return "test" }

func (d *testDoor) Mount(h Host) error {
	d.Host = h
	h.Exempt(func(r *http.Request) bool { return r.URL.Path == "/login" })
	h.Settings().Declare(Setting{Name: "test.color", Default: "red", Check: oneOf("red", "blue")})
	h.Settings().Declare(Setting{Name: "test.free.*"})
	h.Handle("POST /login", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := h.Accounts().Login(w, r, r.FormValue("name"), r.FormValue("password")); err != nil {
			Refuse(w, http.StatusUnauthorized, "unauthorized", err.Error())
		}
	}))
	h.Rest(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.handle != nil {
			d.handle(w, r)
			return
		}
		sess := SessionOf(r.Context())
		if err := json.NewEncoder(w).Encode(map[string]any{"name": sess.Name, "roles": sess.Roles, "method": sess.Method, "path": r.URL.EscapedPath()}); err != nil {
			panic(err)
		}
	}))
	return nil
}

// newBench starts a server whose administrator is root with the password
// "secret-of-root".
func newBench(t testing.TB, o *Options) *bench {
	t.Helper()
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	})
	return benchOn(t, eng.Store, o)
}

func benchOn(t testing.TB, store *osier.Store, o *Options) *bench {
	t.Helper()
	b := &bench{t: t, store: store, door: &testDoor{}, log: &lockedBuffer{}}
	var own Options
	if o != nil {
		own = *o
	}
	own.Doors = append(own.Doors, b.door)
	if own.Logger == nil {
		own.Logger = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if own.Admin == nil {
		own.Admin = &Credentials{"root", "secret-of-root"}
	}
	var err error
	if b.s, err = New(t.Context(), store, &own); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.s.Close() })
	return b
}

// request is one that a test sends to the handler.
type request struct {
	method, path, body string
	user, password     string
	headers            map[string]string
	addr               string
}

func (b *bench) do(q request) *httptest.ResponseRecorder {
	b.t.Helper()
	if q.method == "" {
		q.method = http.MethodGet
	}
	r := httptest.NewRequest(q.method, q.path, strings.NewReader(q.body))
	if q.user != "" {
		r.SetBasicAuth(q.user, q.password)
	}
	for name, v := range q.headers {
		r.Header.Set(name, v)
	}
	if q.addr != "" {
		r.RemoteAddr = q.addr
	}
	w := httptest.NewRecorder()
	b.s.Handler().ServeHTTP(w, r)
	return w
}

// who is the name that the door sees.
func (b *bench) who(q request) string {
	b.t.Helper()
	q.path = "/"
	w := b.do(q)
	if w.Code != http.StatusOK {
		return http.StatusText(w.Code)
	}
	var out struct{ Name string }
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		b.t.Fatalf("answer %q: %v", w.Body, err)
	}
	return out.Name
}

// sess is the session of a user as the server makes it.
func (b *bench) sess(name string, roles ...string) *Session {
	if name == "" {
		return b.s.session(nil)
	}
	return b.s.session(&Identity{Name: name, Roles: roles})
}

func (b *bench) admin() *Session { return b.sess("root", RoleAdmin) }

// putUser writes a user's document through a session.
func (b *bench) putUser(sess *Session, name, body string) error {
	b.t.Helper()
	acc, err := sess.Open(b.t.Context(), UsersDB)
	if err != nil {
		return err
	}
	_, err = acc.DB.Exec(b.t.Context(), &osier.Command{Ops: []osier.Op{putOp(userPrefix+name, body)}})
	return err
}

func putOp(id, body string) osier.Op {
	return osier.Op{Kind: osier.OpPut, Collection: osier.DefaultCollection, ID: osier.MustID(id), Expect: osier.ExpectAny, Codec: osier.TagJSON, Body: []byte(body)}
}

func (b *bench) mustPutUser(name, password string, roles ...string) {
	b.t.Helper()
	body, err := json.Marshal(map[string]any{"name": name, "password": password, "roles": append([]string{}, roles...), "type": "user"})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.putUser(b.admin(), name, string(body)); err != nil {
		b.t.Fatal(err)
	}
}

func wantKind(t *testing.T, what string, err, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: want %v, got %v", what, want, err)
	}
}

// The system databases, the administrator and the secrets are made once, and
// a server on the same store finds them again.
func TestAServerFindsWhatAnotherMade(t *testing.T) {
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	a := benchOn(t, eng.Store, nil)
	a.mustPutUser("bob", "pw")
	cookie := a.login("bob", "pw")
	uuid := a.door.Instance().UUID
	if err := a.s.Close(); err != nil {
		t.Fatal(err)
	}
	b := benchOn(t, eng.Store, nil)
	if got := b.door.Instance().UUID; got != uuid || len(uuid) != 32 {
		t.Errorf("uuid: want %q, got %q", uuid, got)
	}
	if got := b.who(request{headers: map[string]string{"Cookie": cookie}}); got != "bob" {
		t.Errorf("cookie of the first server: want bob, got %q", got)
	}
	if got := b.who(request{user: "root", password: "secret-of-root"}); got != "root" {
		t.Errorf("administrator: want root, got %q", got)
	}
	names, err := eng.Databases(t.Context())
	if want := []string{SystemDB, UsersDB}; err != nil || strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("databases: want %q, got %q, %v", want, names, err)
	}
}

// A door's handlers get the requests that no pattern matches with their paths
// as they were sent.
func TestTheRestGetsPathsAsTheyWereSent(t *testing.T) {
	b := newBench(t, nil)
	for _, path := range []string{"/db/doc", "/db/a%2Fb", "/db//x", "/db/./x", "/db/../y", "/db/%2e%2e/y", "/login", "/_osier", "/"} {
		w := b.do(request{path: path})
		var out struct{ Path string }
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Path != path {
			t.Errorf("%s: want it as it is, got %d %q", path, w.Code, w.Body)
		}
	}
}

// A program's own routes stand behind the same authentication as the doors.
func TestAProgramMountsItsOwnRoutes(t *testing.T) {
	b := newBench(t, nil)
	b.s.Handle("GET /hello", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello "+SessionOf(r.Context()).Name)
	}))
	if got := b.do(request{path: "/hello", user: "root", password: "secret-of-root"}).Body.String(); got != "hello root" {
		t.Errorf("want hello root, got %q", got)
	}
}

// A program's own Authenticator comes first.
func TestAProgramsAuthenticator(t *testing.T) {
	b := newBench(t, &Options{Authenticators: []Authenticator{ticketAuth{}}, RoleGrants: map[string][]osier.Grant{
		"reader": {{Actions: osier.MayRead, DB: "news*"}}}})
	for ticket, want := range map[string]string{"good": "holder", "bad": "Unauthorized", "": ""} {
		if got := b.who(request{headers: map[string]string{"Ticket": ticket}}); got != want {
			t.Errorf("ticket %q: want %q, got %q", ticket, want, got)
		}
	}
	for _, name := range []string{"news", "newsletter", "shop"} {
		if _, err := b.store.CreateDB(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	sess := b.sess("holder", "reader")
	names, err := sess.Databases(t.Context())
	if want := "_users news newsletter"; err != nil || strings.Join(names, " ") != want {
		t.Errorf("databases: want %q, got %q, %v", want, names, err)
	}
	acc, err := sess.Open(t.Context(), "news")
	if err != nil {
		t.Fatal(err)
	}
	_, err = acc.DB.Exec(t.Context(), &osier.Command{Ops: []osier.Op{putOp("a", `{}`)}})
	wantKind(t, "write with a right to read", err, osier.ErrDenied)
}

type ticketAuth struct{}

func (ticketAuth) Authenticate(r *http.Request) (*Identity, error) {
	switch r.Header.Get("Ticket") {
	case "good":
		return &Identity{Name: "holder", Roles: []string{"reader"}, Method: "ticket"}, nil
	case "bad":
		return nil, &osier.Error{Kind: osier.KindDenied, Op: "check ticket"}
	}
	return nil, nil
}

// Neither logs nor answers show a password, a key or a token.
func TestSecretsAreNotShown(t *testing.T) {
	b := newBench(t, &Options{Settings: map[string]Given{
		"log.requests": {"true", SourceFlag}, "jwt_keys.hmac:k": {"dG9wLXNlY3JldC1obWFjLWtleQ==", SourceFlag}}})
	b.mustPutUser("bob", "hush-bob")
	secret, err := b.s.CreateKey(t.Context(), b.admin(), APIKey{Owner: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	var answers strings.Builder
	for _, q := range []request{
		{user: "bob", password: "hush-bob", path: "/?token=hush-query"},
		{user: "bob", password: "hush-wrong", path: "/"},
		{user: "root", password: "secret-of-root", path: "/_osier/settings"},
		{path: "/", headers: map[string]string{"Authorization": "Bearer " + secret}},
		{path: "/", headers: map[string]string{"Authorization": "Bearer " + secret + "x"}},
		{path: "/", headers: map[string]string{"Authorization": "Bearer hush.hush.hush"}},
		{path: "/login", method: "POST", body: "name=bob&password=hush-bob", headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}},
		{user: "root", password: "secret-of-root", path: "/_osier/keys"},
	} {
		w := b.do(q)
		answers.WriteString(w.Body.String())
	}
	b.door.handle = func(http.ResponseWriter, *http.Request) { panic("handler fails") }
	b.do(request{path: "/", user: "bob", password: "hush-bob"})
	text := b.log.String() + answers.String()
	for _, hidden := range []string{"hush", "secret-of-root", secret[len(keyPrefix):], "dG9wLXNl", "top-secret"} {
		if strings.Contains(text, hidden) {
			t.Errorf("%q is shown in logs or answers:\n%s", hidden, text)
		}
	}
	if !strings.Contains(text, "msg=request") || !strings.Contains(text, "handler panicked") {
		t.Errorf("want requests in the log, got:\n%s", text)
	}
	// What is stored has no password either.
	for _, name := range []string{SystemDB, UsersDB} {
		db, err := b.store.OpenDB(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for c, err := range db.Watch(context.Background(), &osier.Feed{Parts: osier.WithBody}) {
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(c.Body, []byte("hush")) || bytes.Contains(c.Body, []byte("secret-of-root")) {
				t.Errorf("%s/%v holds a password: %s", name, c.ID, c.Body)
			}
		}
	}
}
