package server

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/osierdb/osier"
)

// The collections of SystemDB.
var (
	adminDocs    = osier.NewCollection[credential]("admins")
	keyDocs      = osier.NewCollection[keyDoc]("keys")
	secretDocs   = osier.NewCollection[secretDoc]("secrets")
	securityDocs = osier.NewCollection[securityDoc]("security")
	settingDocs  = osier.NewCollection[settingDoc]("settings")
	userDocs     = osier.NewCollection[json.RawMessage](osier.DefaultCollection)
)

// secretDoc is a random value that the server made for itself.
type secretDoc struct {
	Value []byte `json:"value"`
	Text  string `json:"text,omitempty"`
}

// userPrefix begins the ids of users' documents.
const userPrefix = "org.couchdb.user:"

// Bounds of the caches of accounts.
const (
	maxRecords  = 16 << 10
	maxVerified = 16 << 10
)

// record is an account as it is stored.
type record struct {
	name  string
	admin bool
	roles []string
	cred  credential
	rev   osier.Rev
	// print is equal for equal credentials; cookies and the cache of verified
	// passwords are bound to it, so that a new password ends both.
	print [32]byte
}

// accounts checks credentials against the system databases.
type accounts struct {
	sys, users *osier.DB // with all rights
	live       func() *live
	hash       *hasher
	failures   *failures
	cookieKey  []byte    // kept in the store
	cacheKey   [32]byte  // of this process
	macs       sync.Pool // of hash.Hash, keyed: making one costs more than using it
	decoy      credential
	onFailure  func()

	mu       sync.Mutex      // guards what follows
	watching bool            // changes by others are seen: records may be cached
	followed map[string]bool // the databases whose feeds run
	gen      uint64          // counts invalidations, so that no older read is cached after one
	records  map[string]*record
	verified map[string]verified
	keys     map[string]*keyDoc
}

// verified is a password that was right: a MAC of it, never itself.
type verified struct{ mac, print [32]byte }

func newAccounts(ctx context.Context, sys, users *osier.DB, live func() *live) (*accounts, error) {
	a := &accounts{sys: sys, users: users, live: live, hash: newHasher(), failures: newFailures(), onFailure: func() {},
		followed: map[string]bool{}, records: map[string]*record{}, verified: map[string]verified{}, keys: map[string]*keyDoc{}}
	rand.Read(a.cacheKey[:])
	var err error
	if a.cookieKey, err = secret(ctx, sys, "cookie", func() secretDoc { return secretDoc{Value: randomBytes(32)} }); err != nil {
		return nil, err
	}
	// What a name that nobody has is checked against, so that it takes as long.
	a.decoy = credential{Scheme: schemeArgon2id, Salt: "decoy of no account", Iterations: argonPasses, MemoryKiB: argonKiB,
		Parallelism: argonLanes, DerivedKey: strings.Repeat("00", derivedBytes)}
	return a, nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// secret returns the stored value of that name, which make makes once.
func secret(ctx context.Context, sys *osier.DB, name string, make func() secretDoc) ([]byte, error) {
	doc, err := secretDocs.Get(ctx, sys, name)
	if errors.Is(err, osier.ErrNotFound) {
		doc, err = secretDocs.InsertWithID(ctx, sys, name, make())
		if errors.Is(err, osier.ErrConflict) {
			doc, err = secretDocs.Get(ctx, sys, name)
		}
	}
	return doc.Value.Value, err
}

// errWrongPassword is the cause of every failed login: it does not tell
// whether the name or the password is wrong.
var errWrongPassword = &osier.Error{Kind: osier.KindDenied, Op: "log in", Err: errors.New("name or password is incorrect")}

// check returns the account of a name whose password is right.
func (a *accounts) check(ctx context.Context, name, password, addr string) (*record, error) {
	rec, err := a.lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	if rec != nil && a.known(rec, password) {
		return rec, nil
	}
	if err := a.failures.before(ctx, name, addr); err != nil {
		return nil, wrapCanceled(err)
	}
	cred := &a.decoy
	if rec != nil {
		cred = &rec.cred
	}
	ok, err := a.hash.verify(ctx, cred, password)
	if err != nil {
		return nil, wrapCanceled(err)
	}
	if !ok || rec == nil {
		a.failures.failed(name, addr)
		a.onFailure()
		return nil, errWrongPassword
	}
	a.failures.succeeded(name)
	if rec.cred.stale(a.live().scheme) && password != "" {
		if renewed := a.renew(ctx, rec, password); renewed != nil {
			rec = renewed
		}
	}
	a.remember(rec, password)
	return rec, nil
}

// wrapCanceled gives the end of a context its Kind.
func wrapCanceled(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &osier.Error{Kind: osier.KindCanceled, Op: "log in", Err: err}
	}
	return err
}

func (a *accounts) mac(rec *record, password string) (sum [32]byte) {
	h, ok := a.macs.Get().(hash.Hash)
	if !ok {
		h = hmac.New(sha256.New, a.cacheKey[:])
	}
	h.Reset()
	h.Write(rec.print[:])
	h.Write([]byte(password))
	h.Sum(sum[:0])
	a.macs.Put(h)
	return sum
}

// known reports whether the password was found right before, and the account
// has not changed since.
func (a *accounts) known(rec *record, password string) bool {
	mac := a.mac(rec, password)
	a.mu.Lock()
	v, ok := a.verified[rec.name]
	a.mu.Unlock()
	return ok && v.print == rec.print && hmac.Equal(v.mac[:], mac[:])
}

func (a *accounts) remember(rec *record, password string) {
	v := verified{a.mac(rec, password), rec.print}
	a.mu.Lock()
	defer a.mu.Unlock()
	evict(a.verified, maxVerified)
	a.verified[rec.name] = v
}

// evict makes room for one more entry: any entry may go.
func evict[K comparable, V any](m map[K]V, limit int) {
	for key := range m {
		if len(m) < limit {
			return
		}
		delete(m, key)
	}
}

// lookup returns the account of that name, nil if there is none.
func (a *accounts) lookup(ctx context.Context, name string) (*record, error) {
	if checkUserName(name) != nil {
		return nil, nil
	}
	a.mu.Lock()
	rec, gen := a.records[name], a.gen
	a.mu.Unlock()
	if rec != nil {
		return rec, nil
	}
	rec, err := a.read(ctx, name)
	if err != nil || rec == nil {
		return nil, err
	}
	a.mu.Lock()
	if a.watching && a.gen == gen {
		evict(a.records, maxRecords)
		a.records[name] = rec
	}
	a.mu.Unlock()
	return rec, nil
}

func (a *accounts) read(ctx context.Context, name string) (*record, error) {
	admin, err := adminDocs.Get(ctx, a.sys, name)
	if err == nil {
		return newRecord(&record{name: name, admin: true, roles: []string{RoleAdmin}, cred: admin.Value, rev: admin.Rev}), nil
	}
	if !errors.Is(err, osier.ErrNotFound) {
		return nil, err
	}
	user, err := userDocs.Get(ctx, a.users, userPrefix+name)
	if errors.Is(err, osier.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var body struct {
		credential
		Roles []string `json:"roles"`
		Type  string   `json:"type"`
	}
	// A document that somebody wrote past the rules is no user.
	if json.Unmarshal(user.Value, &body) != nil || body.Type != "user" || body.check() != nil {
		return nil, nil
	}
	roles := slices.DeleteFunc(body.Roles, func(r string) bool { return strings.HasPrefix(r, "_") })
	return newRecord(&record{name: name, roles: roles, cred: body.credential, rev: user.Rev}), nil
}

func newRecord(r *record) *record {
	h := sha256.New()
	fmt.Fprintf(h, "%t\x00%s\x00%+v", r.admin, r.name, r.cred)
	h.Sum(r.print[:0])
	return r
}

// renew replaces an old-fashioned hash by one of the present scheme. A failure
// is no failure of the login: the next one tries again.
func (a *accounts) renew(ctx context.Context, rec *record, password string) *record {
	cred, err := a.hash.create(ctx, a.live().scheme, password)
	if err != nil {
		return nil
	}
	if rec.admin {
		_, err = adminDocs.Update(ctx, a.sys, osier.Doc[credential]{ID: osier.MustID(rec.name), Rev: rec.rev, Value: cred})
	} else {
		var doc osier.Doc[json.RawMessage]
		if doc, err = userDocs.GetRev(ctx, a.users, userPrefix+rec.name, rec.rev); err == nil {
			var obj object
			if obj, err = parseObject(doc.Value); err == nil {
				doc.Value = obj.withCredential(&cred)
				_, err = userDocs.Update(ctx, a.users, doc)
			}
		}
	}
	if err != nil {
		return nil
	}
	a.forget(rec.name)
	renewed, err := a.lookup(ctx, rec.name)
	if err != nil {
		return nil
	}
	return renewed
}

// forget drops what is cached of an account.
func (a *accounts) forget(name string) {
	a.mu.Lock()
	a.gen++
	delete(a.records, name)
	a.mu.Unlock()
}

// forgetKey drops what is cached of an API key.
func (a *accounts) forgetKey(id string) {
	a.mu.Lock()
	a.gen++
	delete(a.keys, id)
	a.mu.Unlock()
}

// setWatching notes whether a system database's feed runs. Without both
// nothing is cached.
func (a *accounts) setWatching(db string, on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gen++
	a.followed[db] = on
	if a.watching = a.followed[SystemDB] && a.followed[UsersDB]; !a.watching {
		clear(a.records)
		clear(a.keys)
	}
}

// identity is the account as a session's principal.
func (r *record) identity(m Method, expires time.Time) *Identity {
	return &Identity{Name: r.name, Roles: slices.Clone(r.roles), Method: m, Expires: expires}
}

// admins lists the administrators' names.
func (a *accounts) admins(ctx context.Context) ([]string, error) {
	var names []string
	for doc, err := range adminDocs.List(ctx, a.sys, &osier.ListOptions{NoBody: true}) {
		if err != nil {
			return nil, err
		}
		names = append(names, doc.ID.String())
	}
	return names, nil
}

// setAdmin makes, changes or (with an empty password) removes an administrator.
func (a *accounts) setAdmin(ctx context.Context, name, password string) error {
	if err := checkUserName(name); err != nil {
		return &osier.Error{Kind: osier.KindInvalid, Op: "set administrator", Err: err}
	}
	defer a.forget(name)
	if password == "" {
		return a.removeAdmin(ctx, name)
	}
	cred, err := a.hash.create(ctx, a.live().scheme, password)
	if err != nil {
		return &osier.Error{Kind: osier.KindInvalid, Op: "set administrator", Err: err}
	}
	_, err = adminDocs.Upsert(ctx, a.sys, name, cred)
	return err
}

// removeAdmin keeps the last administrator: without one nobody could make
// another.
func (a *accounts) removeAdmin(ctx context.Context, name string) error {
	return a.sys.Update(ctx, func(tx *osier.Tx) error {
		others := false
		for doc, err := range adminDocs.List(ctx, tx, &osier.ListOptions{NoBody: true}) {
			if err != nil {
				return err
			}
			others = others || doc.ID.String() != name
		}
		if !others {
			return &osier.Error{Kind: osier.KindInvalid, Op: "remove administrator", Err: errors.New("the last one stays")}
		}
		return adminDocs.Delete(ctx, tx, name, osier.Rev{})
	})
}

// ensureAdmin sees to it that name is an administrator with that password,
// and writes only if that is not so already.
func (a *accounts) ensureAdmin(ctx context.Context, name, password string) error {
	rec, err := a.lookup(ctx, name)
	if err != nil {
		return err
	}
	if rec != nil && rec.admin {
		if ok, err := a.hash.verify(ctx, &rec.cred, password); err != nil || ok {
			return err
		}
	}
	return a.setAdmin(ctx, name, password)
}
