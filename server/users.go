package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/osierdb/osier"
)

// checkUserName wants what a basic authentication header and a document's id
// can carry; otherwise it returns a *Forbidden in CouchDB's words.
func checkUserName(name string) error {
	switch {
	case name == "":
		return &Forbidden{"doc.name is required"}
	case name[0] == '_':
		return &Forbidden{"Username may not start with underscore."}
	case strings.Contains(name, ":"):
		return &Forbidden{"Character `:` is not allowed in usernames."}
	case len(name) > osier.MaxNameBytes:
		return &Forbidden{fmt.Sprintf("Username is longer than %d bytes.", osier.MaxNameBytes)}
	}
	return nil
}

// object is a JSON object in its order.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// parseObject reads a JSON object; of members of the same name the last value
// counts, in the place of the first.
func parseObject(text []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	t, err := d.Token()
	if err != nil || t != json.Delim('{') {
		return nil, errors.New("document must be a JSON object")
	}
	var o object
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, errors.New("document is not valid JSON")
		}
		var m member
		m.name, _ = key.(string)
		if err := d.Decode(&m.value); err != nil {
			return nil, errors.New("document is not valid JSON")
		}
		if i := o.find(m.name); i >= 0 {
			o[i].value = m.value
		} else {
			o = append(o, m)
		}
	}
	return o, nil
}

func (o object) find(name string) int {
	return slices.IndexFunc(o, func(m member) bool { return m.name == name })
}

// get decodes a member; false if it is not there or of another type.
func (o object) get(name string, v any) (there, ok bool) {
	i := o.find(name)
	if i < 0 || string(o[i].value) == "null" {
		return false, false
	}
	return true, json.Unmarshal(o[i].value, v) == nil
}

// credentialNames are the members that a credential takes.
var credentialNames = []string{"password", "password_scheme", "pbkdf2_prf", "salt", "iterations", "memory_kib", "parallelism", "derived_key", "password_sha"}

// withCredential returns the object's text with a credential in front.
func (o object) withCredential(c *credential) []byte {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	front, _ := parseObject(text)
	rest := slices.DeleteFunc(slices.Clone(o), func(m member) bool { return slices.Contains(credentialNames, m.name) })
	return append(front, rest...).text()
}

func (o object) text() []byte {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			panic(err) // a string always has a JSON form
		}
		b = append(append(append(b, name...), ':'), m.value...)
	}
	return append(b, '}')
}

// forbid is the refusal of a write to the users' database.
func forbid(id, reason string) error {
	return &osier.Error{Kind: osier.KindDenied, Op: "write user", DB: UsersDB, ID: id, Err: &Forbidden{reason}}
}

// checkUserDoc applies CouchDB's rules for users' documents, in its words.
func checkUserDoc(id string, o object) (roles []string, err error) {
	var typ, name string
	if _, ok := o.get("type", &typ); !ok || typ != "user" {
		return nil, forbid(id, "doc.type must be user")
	}
	if there, ok := o.get("name", &name); !there {
		return nil, forbid(id, "doc.name is required")
	} else if !ok {
		return nil, forbid(id, "doc.name must be a string")
	}
	var list []json.RawMessage
	if there, ok := o.get("roles", &list); !there {
		return nil, forbid(id, "doc.roles must exist")
	} else if !ok {
		return nil, forbid(id, "doc.roles must be an array")
	}
	for _, r := range list {
		var s string
		if json.Unmarshal(r, &s) != nil || string(r) == "null" {
			return nil, forbid(id, "doc.roles can only contain strings")
		}
		roles = append(roles, s)
	}
	if id != userPrefix+name {
		return nil, forbid(id, "Doc ID must be of the form org.couchdb.user:name")
	}
	if slices.ContainsFunc(roles, func(r string) bool { return strings.HasPrefix(r, "_") }) {
		return nil, forbid(id, "No system roles (starting with underscore) in users db.")
	}
	if err := checkUserName(name); err != nil {
		return nil, forbid(id, err.Error())
	}
	return roles, nil
}

// rules is a Backend for sessions: it keeps SystemDB out of sight and applies
// the rules of UsersDB, whichever door a request comes through.
type rules struct {
	osier.Backend
	s    *Server
	sess *Session
}

// own is the id of the session's own document in UsersDB.
func (r *rules) own() osier.ID {
	if r.sess.Name == "" {
		return osier.ID{}
	}
	id, err := osier.IDOf(userPrefix + r.sess.Name)
	if err != nil {
		return osier.ID{}
	}
	return id
}

func hidden(step string) error {
	return &osier.Error{Kind: osier.KindNotFound, Op: step, DB: SystemDB}
}

// Exec is Backend's.
func (r *rules) Exec(ctx context.Context, c *osier.Command) (*osier.Result, error) {
	switch c.DB {
	case SystemDB:
		return nil, hidden("change")
	case UsersDB:
		return r.execUsers(ctx, c)
	}
	res, err := r.Backend.Exec(ctx, c)
	if err == nil && len(c.Ops) == 1 && c.Ops[0].Kind == osier.OpDropDB {
		r.s.dropped(ctx, c.DB)
	}
	return res, err
}

// execUsers rewrites the users' documents of a command and carries it out.
// With PerDocument, those that are refused fail by themselves.
func (r *rules) execUsers(ctx context.Context, c *osier.Command) (*osier.Result, error) {
	own := *c
	own.Ops = make([]osier.Op, 0, len(c.Ops))
	refused := make([]*osier.Error, len(c.Ops))
	var names []string
	for i := range c.Ops {
		op := c.Ops[i]
		if op.Collection == osier.DefaultCollection && (op.Kind == osier.OpPut || op.Kind == osier.OpGraft) {
			err := r.rewrite(ctx, &op)
			if err != nil && (!c.PerDocument || !errors.As(err, &refused[i])) {
				return nil, err
			}
			if err != nil {
				continue
			}
			names = append(names, strings.TrimPrefix(idText(op.ID), userPrefix))
		}
		own.Ops = append(own.Ops, op)
	}
	defer func() {
		for _, name := range names {
			r.s.accounts.forget(name)
		}
	}()
	if len(own.Ops) == 0 && len(c.Ops) > 0 {
		return &osier.Result{Ops: refusals(nil, refused, c.Ops)}, nil
	}
	res, err := r.Backend.Exec(ctx, &own)
	if err != nil {
		return nil, err
	}
	res.Ops = refusals(res.Ops, refused, c.Ops)
	c.Sealed = own.Sealed
	return res, nil
}

// refusals puts refused operations back between the results of the others.
func refusals(done []osier.OpResult, refused []*osier.Error, ops []osier.Op) []osier.OpResult {
	out := make([]osier.OpResult, 0, len(ops))
	for i, err := range refused {
		if err != nil {
			out = append(out, osier.OpResult{ID: ops[i].ID, Err: err})
			continue
		}
		out, done = append(out, done[0]), done[1:]
	}
	return out
}

// idText is an id as a string, "" if it is none.
func idText(id osier.ID) string {
	s, _ := id.Value().(string)
	return s
}

// rewrite judges one write of a user's document and hashes its password.
func (r *rules) rewrite(ctx context.Context, op *osier.Op) error {
	id := idText(op.ID)
	admin := r.sess.Admin()
	if strings.HasPrefix(id, "_design/") {
		if admin {
			return nil
		}
		return forbid(id, "Only admins may change design documents of the users database.")
	}
	old, err := r.present(ctx, op.ID)
	if err != nil {
		return err
	}
	if !admin {
		if err := r.judge(op, id, old); err != nil {
			return err
		}
	}
	if op.KeepBody {
		return nil
	}
	if op.Deleted {
		return withoutPassword(op, id)
	}
	if op.Codec != osier.TagJSON {
		return forbid(id, "A user is a JSON document.")
	}
	o, err := parseObject(op.Body)
	if err != nil {
		return forbid(id, err.Error())
	}
	roles, err := checkUserDoc(id, o)
	if err != nil {
		return err
	}
	if !admin && !slices.Equal(roles, rolesOf(old)) {
		return forbid(id, "Only _admin may edit roles")
	}
	return r.hashPassword(ctx, op, id, o)
}

// withoutPassword keeps a password out of a deletion's body.
func withoutPassword(op *osier.Op, id string) error {
	if len(op.Body) == 0 {
		return nil
	}
	o, err := parseObject(op.Body)
	if err != nil || op.Codec != osier.TagJSON {
		return forbid(id, "A user is a JSON document.")
	}
	if i := o.find("password"); i >= 0 {
		op.Body = slices.Delete(o, i, i+1).text()
	}
	return nil
}

// present reads the document as it stands; nil if there is none.
func (r *rules) present(ctx context.Context, id osier.ID) (*osier.Document, error) {
	q := &osier.Query{Kind: osier.QueryGet, DB: UsersDB, Collection: osier.DefaultCollection, IDs: []osier.ID{id}, Parts: osier.WithBody}
	for row, err := range r.Backend.Query(ctx, q) {
		if err != nil || row.Missing {
			return nil, err
		}
		return row.Document.Clone(), nil
	}
	return nil, nil
}

func rolesOf(d *osier.Document) []string {
	if d == nil {
		return nil
	}
	var body struct {
		Roles []string `json:"roles"`
	}
	// What cannot be read has no roles to keep.
	_ = json.Unmarshal(d.Body, &body)
	return body.Roles
}

// judge lets users change their own documents and, where the database is open
// for that, anybody make one. What was judged is what must be written over:
// otherwise a change of roles in between would be undone.
func (r *rules) judge(op *osier.Op, id string, old *osier.Document) error {
	switch {
	case op.Kind != osier.OpPut:
		return forbid(id, "Only admins may replicate into the users database.")
	case old == nil && (op.Expect == osier.ExpectAny || op.Expect == osier.ExpectAbsent) && !op.Deleted:
		op.Expect = osier.ExpectAbsent
		return nil
	case old == nil || op.ID != r.own():
		return &osier.Error{Kind: osier.KindNotFound, Op: "write user", DB: UsersDB, ID: id}
	case op.Expect == osier.ExpectAbsent:
		return &osier.Error{Kind: osier.KindConflict, Op: "write user", DB: UsersDB, ID: id}
	case op.Expect == osier.ExpectRev && op.Rev != old.Rev:
		return &osier.Error{Kind: osier.KindConflict, Op: "write user", DB: UsersDB, ID: id}
	}
	op.Expect, op.Rev = osier.ExpectRev, old.Rev
	return nil
}

// hashPassword replaces the member password by its hash; without one the
// document's own credential must be one that can be verified.
func (r *rules) hashPassword(ctx context.Context, op *osier.Op, id string, o object) error {
	i := o.find("password")
	if i < 0 || string(o[i].value) == "null" {
		var cred credential
		if err := json.Unmarshal(op.Body, &cred); err != nil {
			return forbid(id, "The document's password fields are malformed.")
		}
		if cred.Scheme == "" {
			return nil // a user who cannot log in
		}
		if err := cred.check(); err != nil {
			return forbid(id, err.Error())
		}
		return nil
	}
	var password string
	if json.Unmarshal(o[i].value, &password) != nil || password == "" {
		return forbid(id, fmt.Sprintf("Password value of '%.40s' is invalid.", o[i].value))
	}
	cred, err := r.s.accounts.hash.create(ctx, r.s.live().scheme, password)
	if errors.Is(err, errPasswordLength) {
		return forbid(id, err.Error())
	}
	if err != nil {
		return wrapCanceled(err)
	}
	op.Body = o.withCredential(&cred)
	return nil
}

// Query is Backend's.
func (r *rules) Query(ctx context.Context, q *osier.Query) iter.Seq2[osier.Row, error] {
	switch {
	case q.Kind == osier.QueryDatabases:
		return r.visible(ctx, q)
	case q.DB == SystemDB:
		return func(yield func(osier.Row, error) bool) { yield(osier.Row{}, hidden("query")) }
	case q.DB == UsersDB && !r.sess.Admin():
		if err := r.mayQuery(q); err != nil {
			return func(yield func(osier.Row, error) bool) { yield(osier.Row{}, err) }
		}
	}
	return r.Backend.Query(ctx, q)
}

// visible lists all databases but the server's own.
func (r *rules) visible(ctx context.Context, q *osier.Query) iter.Seq2[osier.Row, error] {
	return func(yield func(osier.Row, error) bool) {
		for row, err := range r.Backend.Query(ctx, q) {
			if err == nil && row.DB.Name == SystemDB {
				continue
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// mayQuery lets a user see his own document and no other.
func (r *rules) mayQuery(q *osier.Query) error {
	switch q.Kind {
	case osier.QueryInfo, osier.QueryPin, osier.QueryUnpin:
		return nil
	case osier.QueryGet, osier.QueryVersions, osier.QueryRevs, osier.QueryAsOf:
		return r.onlyOwn("get", q.Collection, q.IDs)
	}
	return &osier.Error{Kind: osier.KindDenied, Op: "list users", DB: UsersDB, Err: &Forbidden{"Only admins may list users."}}
}

func (r *rules) onlyOwn(step, collection string, ids []osier.ID) error {
	own := r.own()
	if collection != osier.DefaultCollection || own.IsZero() || len(ids) == 0 {
		return &osier.Error{Kind: osier.KindNotFound, Op: step, DB: UsersDB, Collection: collection}
	}
	for _, id := range ids {
		if id != own {
			return &osier.Error{Kind: osier.KindNotFound, Op: step, DB: UsersDB, ID: id.String()}
		}
	}
	return nil
}

// Stage is Backend's.
func (r *rules) Stage(ctx context.Context, db string, body io.Reader) (osier.Attachment, error) {
	if db == SystemDB {
		return osier.Attachment{}, hidden("stage attachment")
	}
	return r.Backend.Stage(ctx, db, body)
}

// Fetch is Backend's.
func (r *rules) Fetch(ctx context.Context, db string, blob osier.BlobID, offset, length int64) (io.ReadCloser, error) {
	if db == SystemDB {
		return nil, hidden("fetch attachment")
	}
	return r.Backend.Fetch(ctx, db, blob, offset, length)
}

// Watch is Backend's.
func (r *rules) Watch(ctx context.Context, f *osier.Feed) iter.Seq2[osier.Change, error] {
	var err error
	switch {
	case f.DB == SystemDB:
		err = hidden("follow changes")
	case f.DB == UsersDB && !r.sess.Admin():
		if err = r.onlyOwn("follow changes", f.Collection, f.IDs); err != nil {
			err = &osier.Error{Kind: osier.KindDenied, Op: "follow changes", DB: UsersDB, Err: &Forbidden{"Only admins may follow the users database."}}
		}
	}
	if err != nil {
		return func(yield func(osier.Change, error) bool) { yield(osier.Change{}, err) }
	}
	return r.Backend.Watch(ctx, f)
}
