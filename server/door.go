package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/osierdb/osier"
)

// Door is a protocol that is served over HTTP: it translates requests into
// calls on the *osier.DB of the request's session, and answers into bytes. It
// decides nothing about rights.
//
// What holds for every door is done outside of it, before its handlers run:
// request ids, logs, metrics, CORS with its preflights, authentication, the
// limits on body, rate and header time, panics. A handler finds who asks with
// SessionOf(r.Context()); r.Body is limited already.
type Door interface {
	// Name is the door's name in logs and metrics: lower-case letters.
	Name() string
	// Mount registers the door's handlers on h. It is called once, before
	// the first request.
	Mount(h Host) error
}

// Host is what a door gets of the server that it is mounted on. All methods
// may be called concurrently, Handle, Rest, Exempt and Settings().Declare in
// Mount only.
type Host interface {
	// Handle registers a handler under a pattern of http.ServeMux.
	Handle(pattern string, h http.Handler)
	// Rest registers the handler of all requests that no pattern matches. It
	// gets their paths as they were sent, neither cleaned nor redirected. Only
	// one door of a server may have it: a second call panics.
	Rest(h http.Handler)
	// Exempt names requests that are answered without credentials even when
	// the setting auth.require_user is on (a login, say). It is asked before
	// authentication.
	Exempt(func(r *http.Request) bool)

	// Accounts are the server's users, logins and API keys.
	Accounts() Accounts
	// Settings are the values that may change while the server runs.
	Settings() Settings
	// Limits are those in force now. Cost: one atomic load.
	Limits() *Limits
	// Tasks are the long-running works that are to be shown to administrators.
	Tasks() Tasks
	// Instance tells which server this is.
	Instance() Instance
	// Log is the door's logger. Log neither passwords nor document bodies.
	Log() *slog.Logger
	// Counter and Gauge make metrics named osier_<door>_<name>; asked again
	// for the same name they return the same one.
	Counter(name, help string) Meter
	Gauge(name, help string) Meter

	// Wait takes a place for a request that waits for changes. It fails with
	// ErrUnavailable when all places are taken (the principal's or the
	// server's); otherwise release must be called, once. The returned context
	// ends with ctx, or when the server begins to stop: the feed should then
	// write its regular end. context.Cause tells which: ErrStopping.
	Wait(ctx context.Context) (waiting context.Context, release func(), err error)
}

// Meter is a counter or a gauge.
type Meter interface {
	// Add adds n, which must not be negative for a counter.
	Add(n float64)
}

// Instance tells which server this is.
type Instance struct {
	UUID    string // 32 hexadecimal digits, made when the store was first served
	Version string // of the product, such as "0.3.0"
	Started time.Time
}

// Session is who sent a request, and what he may do. The server makes one for
// each request, an anonymous one where there are no credentials.
type Session struct {
	// Name of the principal; "" is an anonymous one.
	Name string
	// Roles as they stand with the user, "_admin" among them for a server
	// administrator.
	Roles []string
	// Method is how the principal was recognised.
	Method Method
	// Expires is when a cookie or a token ends; zero if it does not.
	Expires time.Time
	// Store acts with the rights that the principal has on whole databases: a
	// server administrator's are all rights. What a database's own security
	// object gives is to be had from Open.
	Store *osier.Store

	access access
	// bounds are the grants of an API key, within its owner's rights.
	bounds     []osier.Grant
	ownerAdmin bool
}

// Method is how a principal was recognised.
type Method string

const (
	// Anonymous: the request has no credentials.
	Anonymous Method = ""
	// ByPassword: HTTP basic authentication.
	ByPassword Method = "default"
	// ByCookie: a cookie that a login gave.
	ByCookie Method = "cookie"
	// ByToken: a JSON Web Token.
	ByToken Method = "jwt"
	// ByKey: an API key.
	ByKey Method = "key"
)

// Admin reports whether s is a server administrator's.
func (s *Session) Admin() bool { return s.HasRole(RoleAdmin) }

// HasRole reports whether the principal has the role.
func (s *Session) HasRole(role string) bool {
	for _, r := range s.Roles {
		if r == role {
			return true
		}
	}
	return false
}

// RoleAdmin is the role of server administrators.
const RoleAdmin = "_admin"

// Access is what a session may do in one database.
type Access struct {
	// DB acts with these rights. A member's handle reads and writes
	// documents, an administrator's manages collections too. Rights narrower
	// than a collection are enforced by the handle as well: in the users'
	// database a user reaches his own document only, and all writes obey the
	// rules for users (see Accounts). What is refused fails with ErrDenied.
	DB *osier.DB
	// Member: reads and writes documents. Admin implies it.
	Member bool
	// Admin: also writes design documents and the security object.
	Admin bool
	// Security is the database's security object.
	Security *Security
}

// access is the server's side of Session.
type access interface {
	open(ctx context.Context, s *Session, db string) (*Access, error)
	databases(ctx context.Context, s *Session) ([]string, error)
	setSecurity(ctx context.Context, s *Session, db string, sec *Security) error
}

// Open returns what the session may do in a database. ErrNotFound if there is
// none of that name, ErrDenied if the session has no rights in it at all.
// Cost: about that of Store.OpenDB; security objects are cached.
func (s *Session) Open(ctx context.Context, db string) (*Access, error) {
	return s.access.open(ctx, s, db)
}

// Databases lists the databases in which the session may read something, in
// order.
func (s *Session) Databases(ctx context.Context) ([]string, error) {
	return s.access.databases(ctx, s)
}

// SetSecurity replaces a database's security object (see ParseSecurity);
// ErrDenied without the rights of the database's administrator.
func (s *Session) SetSecurity(ctx context.Context, db string, sec *Security) error {
	return s.access.setSecurity(ctx, s, db, sec)
}

// Security says who may use a database, as CouchDB's security objects do.
// They live in the server's own database (SystemDB), not in the database that
// they protect, so that no right to write there can change them; one whose
// database was dropped is void, also when the name is used again.
//
// A new database is open to server administrators only. With no names and no
// roles among the members anybody is one, without logging in too.
type Security struct {
	Admins, Members Principals
	// JSON is the object as it was set, with fields that mean nothing here.
	JSON json.RawMessage
}

// Principals are users by their names and by their roles.
type Principals struct {
	Names []string `json:"names,omitempty"`
	Roles []string `json:"roles,omitempty"`
}

// The system databases.
const (
	// SystemDB holds what the server itself keeps: security objects, settings,
	// API keys, secrets. Doors must not show it.
	SystemDB = "_osier"
	// UsersDB holds a document a user, of the shape of CouchDB's, with the id
	// "org.couchdb.user:NAME".
	UsersDB = "_users"
)

// Accounts check credentials. Users are documents of UsersDB; writing such a
// document through any session's handle hashes its password, so doors need no
// rule of their own for that database. A write that is against its rules
// fails with ErrDenied and a *Forbidden in the chain.
type Accounts interface {
	// Login checks a password and, if it is right, sets a session cookie on w.
	// Wrong ones fail with ErrDenied after a time that grows with their
	// number, too many with a *Throttled.
	Login(w http.ResponseWriter, r *http.Request, name, password string) (*Session, error)
	// Logout has the client forget its cookie.
	Logout(w http.ResponseWriter, r *http.Request)
	// Admins lists the administrators' names, without anything of their
	// passwords.
	Admins(ctx context.Context) ([]string, error)
	// SetAdmin makes an administrator or gives him a new password; an empty
	// one removes him. s must be an administrator's session.
	SetAdmin(ctx context.Context, s *Session, name, password string) error
	// CreateKey makes an API key for the session's principal, or, for an
	// administrator, any. The secret is in the answer only.
	CreateKey(ctx context.Context, s *Session, k APIKey) (secret string, err error)
	// Keys lists the API keys that the session may revoke.
	Keys(ctx context.Context, s *Session) ([]APIKey, error)
	// RevokeKey ends a key; ErrNotFound if there is none.
	RevokeKey(ctx context.Context, s *Session, id string) error
}

// APIKey is a credential for programs: sent as "Authorization: Bearer SECRET".
type APIKey struct {
	ID      string    `json:"id"` // made by the server
	Owner   string    `json:"owner"`
	Note    string    `json:"note,omitempty"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	// Grants narrow the owner's rights; with none the key may do all that its
	// owner may.
	Grants []osier.Grant `json:"grants,omitempty"`
	// Created is set by the server.
	Created time.Time `json:"created,omitzero"`
}

// Authenticator recognises who sends a request. A program that mounts a server
// on its own users gives one in Options; the server's own ways are asked
// after it.
type Authenticator interface {
	// Authenticate returns nil and no error if r carries no credentials that
	// this Authenticator knows, and an error matching osier.ErrDenied if they
	// are wrong. It may be called concurrently.
	Authenticate(r *http.Request) (*Identity, error)
}

// Identity is a recognised principal.
type Identity struct {
	Name    string
	Roles   []string
	Method  Method
	Expires time.Time
	// Grants, if there are any, narrow what Name and Roles may do.
	Grants []osier.Grant
}

// Forbidden is the reason for which a write was refused, in words for the
// client.
type Forbidden struct{ Reason string }

func (f *Forbidden) Error() string { return f.Reason }

// Throttled says that a client has to slow down: 429 with Retry-After.
type Throttled struct {
	Reason string
	After  time.Duration
}

func (t *Throttled) Error() string { return t.Reason }

// Limits bound what requests may cost. All sizes are in bytes; the settings
// limits.* change them while the server runs.
type Limits struct {
	Body       int64 // of a request; the server enforces it on r.Body
	Document   int64 // of a document's body, for doors to enforce
	Attachment int64 // of one attachment, for doors to enforce
	Result     int64 // memory that one answer may take where it cannot be streamed
	Depth      int   // nesting of JSON
	Requests   float64
	Burst      int // requests at once above the rate
	Waits      int // requests that wait for changes, of the whole server
	WaitsEach  int // of one principal, or of one address if anonymous
}

// Settings are values that may change while the server runs. Names are of the
// form "section.key"; every value is a string in the form that Check wants.
type Settings interface {
	// Declare adds a setting of a door's own.
	Declare(Setting)
	// Get returns the value in force; false if there is no such setting.
	Get(name string) (string, bool)
	// Set changes a value and keeps it in the store. It returns the one before.
	// ErrNotFound for an unknown name, ErrInvalid for a wrong value, ErrDenied
	// if a flag or an environment variable fixes it or s is not an
	// administrator's session.
	Set(ctx context.Context, s *Session, name, value string) (old string, err error)
	// Reset goes back to what file or default say.
	Reset(ctx context.Context, s *Session, name string) (old string, err error)
	// All lists all settings in order of their names.
	All() []Setting
}

// Setting is one value and where it comes from.
//
// A Name that ends with ".*" declares a section whose keys are free: such a
// setting is there once it has been set. (Keys may hold any character.)
type Setting struct {
	Name    string
	Default string
	Help    string
	// Check refuses wrong values; nil takes every one.
	Check func(value string) error
	// CheckKey is Check for the keys of a free section.
	CheckKey func(key, value string) error
	// Secret keeps the value out of All (and so of what is printed).
	Secret bool
	// Value and Source are what All fills in: the value in force, and whether
	// it is a "default" or comes from "file", "environment", "flag" or "store".
	Value  string
	Source string
}

// Tasks are the works under way that are shown to administrators.
type Tasks interface {
	// Start adds a task; the caller ends it with End.
	Start(kind, db string) Task
	// List shows all tasks in order of their start.
	List() []TaskInfo
}

// Task is a work under way.
type Task interface {
	// Progress reports what is done of a total (0: not known).
	Progress(done, total int64)
	// End removes the task.
	End()
}

// TaskInfo describes a task.
type TaskInfo struct {
	ID, Kind, DB     string
	Done, Total      int64
	Started, Updated time.Time
}

// SessionOf returns the session of a request whose context this is; an
// anonymous one without rights if the request did not pass a Server.
func SessionOf(ctx context.Context) *Session {
	if s, ok := ctx.Value(sessionKey{}).(*Session); ok {
		return s
	}
	if x := exchangeOf(ctx); x != nil && x.sess != nil {
		return x.sess
	}
	return &Session{access: noAccess{}}
}

type sessionKey struct{}

// RequestID returns the id under which a request is logged; it is sent to the
// client as X-Request-Id too.
func RequestID(ctx context.Context) string {
	if x := exchangeOf(ctx); x != nil {
		return x.id
	}
	return ""
}

type requestKey struct{}

// WithSession returns a context that carries s, for tests of doors.
func WithSession(ctx context.Context, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

// noAccess refuses all.
type noAccess struct{}

func (noAccess) open(_ context.Context, _ *Session, db string) (*Access, error) {
	return nil, &osier.Error{Kind: osier.KindDenied, Op: "open", DB: db}
}

func (noAccess) databases(context.Context, *Session) ([]string, error) { return nil, nil }

func (noAccess) setSecurity(_ context.Context, _ *Session, db string, _ *Security) error {
	return &osier.Error{Kind: osier.KindDenied, Op: "set security", DB: db}
}

// Refuse writes an error answer: a JSON object with the members error and
// reason. The server uses it for what it refuses itself; doors may.
func Refuse(w http.ResponseWriter, status int, code, reason string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "must-revalidate")
	body, err := json.Marshal(struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}{code, reason})
	if err != nil {
		// Two strings always have a JSON form.
		panic(err)
	}
	w.WriteHeader(status)
	// A client that has gone needs no answer.
	_, _ = w.Write(append(body, '\n'))
}

type stopping struct{}

func (stopping) Error() string { return "the server is stopping" }

// ErrStopping is the cause with which the contexts of Host.Wait end when the
// server stops.
var ErrStopping error = stopping{}
