package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/osierdb/osier"
)

// The rules for users' documents, in CouchDB's words.
func TestRulesForUsers(t *testing.T) {
	b := newBench(t, nil)
	for _, c := range []struct{ id, body, want string }{
		{"u", `{"name":"u","password":"x","roles":[]}`, "doc.type must be user"},
		{"u", `{"name":"u","password":"x","roles":[],"type":"robot"}`, "doc.type must be user"},
		{"u", `{"name":"u","password":"x","type":"user"}`, "doc.roles must exist"},
		{"u", `{"password":"x","roles":[],"type":"user"}`, "doc.name is required"},
		{"u", `{"name":7,"password":"x","roles":[],"type":"user"}`, "doc.name must be a string"},
		{"u", `{"name":"other","password":"x","roles":[],"type":"user"}`, "Doc ID must be of the form org.couchdb.user:name"},
		{"u", `{"name":"u","password":5,"roles":[],"type":"user"}`, "Password value of '5' is invalid."},
		{"u", `{"name":"u","password":"","roles":[],"type":"user"}`, "Password value of '\"\"' is invalid."},
		{"u", `{"name":"u","password":"x","roles":"r","type":"user"}`, "doc.roles must be an array"},
		{"u", `{"name":"u","password":"x","roles":["_admin"],"type":"user"}`, "No system roles (starting with underscore) in users db."},
		{"u", `{"name":"u","password":"x","roles":[1],"type":"user"}`, "doc.roles can only contain strings"},
		{"u", `{"name":"u","password":"x","roles":[null],"type":"user"}`, "doc.roles can only contain strings"},
		{"_u", `{"name":"_u","password":"x","roles":[],"type":"user"}`, "Username may not start with underscore."},
		{"a:b", `{"name":"a:b","password":"x","roles":[],"type":"user"}`, "Character `:` is not allowed in usernames."},
		{"", `{"name":"","password":"x","roles":[],"type":"user"}`, "doc.name is required"},
		{"u", `[]`, "document must be a JSON object"},
		{"u", `{"name":"u","roles":[],"type":"user","password_scheme":"rot13","salt":"x"}`, `unknown password_scheme "rot13"`},
		{"u", `{"name":"u","roles":[],"type":"user","password_scheme":"pbkdf2","salt":"x","iterations":99999999,"derived_key":"00"}`, "99999999 iterations, want 1 to 5000000"},
		{"u", `{"name":"u","roles":[],"type":"user","password_scheme":"argon2id","iterations":1,"memory_kib":99999999,"parallelism":1}`, "argon2id with 1 passes, 99999999 KiB, 1 lanes is out of bounds"},
		{"u", `{"name":"u","roles":[],"type":"user","password":"` + strings.Repeat("x", maxPassword+1) + `"}`, errPasswordLength.Error()},
	} {
		err := b.putUser(b.admin(), c.id, c.body)
		var f *Forbidden
		if !errors.Is(err, osier.ErrDenied) || !errors.As(err, &f) || f.Reason != c.want {
			t.Errorf("%.80s: want %q, got %v", c.body, c.want, err)
		}
	}
}

// A password becomes a hash in front; all else stays as it was, in its order.
func TestPasswordsBecomeHashes(t *testing.T) {
	b := newBench(t, nil)
	if err := b.putUser(b.admin(), "u", `{"zeta":1.50,"name":"u","password":"pw","roles":["a"],"type":"user","salt":"old","alpha":{"b":1,"a":2}}`); err != nil {
		t.Fatal(err)
	}
	doc, err := userDocs.Get(t.Context(), b.s.accounts.users, userPrefix+"u")
	if err != nil {
		t.Fatal(err)
	}
	o, err := parseObject(doc.Value)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range o {
		names = append(names, m.name)
	}
	want := "password_scheme salt iterations memory_kib parallelism derived_key zeta name roles type alpha"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("members: want %s, got %s", want, got)
	}
	if !strings.HasSuffix(string(doc.Value), `"zeta":1.50,"name":"u","roles":["a"],"type":"user","alpha":{"b":1,"a":2}}`) || strings.Contains(string(doc.Value), "old") {
		t.Errorf("want the rest as it was, got %s", doc.Value)
	}
}

// Users reach their own document and no other, and cannot give themselves
// roles, whichever way they write.
func TestUsersReachTheirOwnDocument(t *testing.T) {
	b := newBench(t, nil)
	ctx := t.Context()
	b.mustPutUser("bob", "pw", "staff")
	b.mustPutUser("eve", "pw")
	bob := b.sess("bob", "staff")
	acc, err := bob.Open(ctx, UsersDB)
	if err != nil {
		t.Fatal(err)
	}
	own, err := userDocs.Get(ctx, acc.DB, userPrefix+"bob")
	if err != nil {
		t.Fatal(err)
	}
	_, err = userDocs.Get(ctx, acc.DB, userPrefix+"eve")
	wantKind(t, "another's document", err, osier.ErrNotFound)
	_, err = userDocs.GetMany(ctx, acc.DB, userPrefix+"bob", userPrefix+"eve")
	wantKind(t, "own and another's", err, osier.ErrNotFound)
	for _, err := range userDocs.List(ctx, acc.DB, nil) {
		wantKind(t, "list", err, osier.ErrDenied)
	}
	for _, err := range acc.DB.Watch(ctx, &osier.Feed{Collection: osier.DefaultCollection}) {
		wantKind(t, "follow all", err, osier.ErrDenied)
	}
	for c, err := range acc.DB.Watch(ctx, &osier.Feed{Collection: osier.DefaultCollection, IDs: []osier.ID{osier.MustID(userPrefix + "bob")}}) {
		if err != nil || c.ID.String() != userPrefix+"bob" {
			t.Errorf("follow the own: got %v, %v", c.ID, err)
		}
	}
	write := func(op osier.Op) error {
		_, err := acc.DB.Exec(ctx, &osier.Command{Ops: []osier.Op{op}})
		return err
	}
	wantKind(t, "other roles", write(putOp(userPrefix+"bob", `{"name":"bob","type":"user","roles":["boss"],"password":"pw"}`)), osier.ErrDenied)
	wantKind(t, "another's", write(putOp(userPrefix+"eve", `{"name":"eve","type":"user","roles":[],"password":"mine"}`)), osier.ErrNotFound)
	wantKind(t, "a design document", write(putOp("_design/x", `{}`)), osier.ErrDenied)
	other := putOp("x", `{}`)
	other.Collection = "elsewhere"
	wantKind(t, "another collection", write(other), osier.ErrDenied)
	graft := putOp(userPrefix+"bob", `{"name":"bob","type":"user","roles":["boss"]}`)
	graft.Kind, graft.Path = osier.OpGraft, []osier.Rev{own.Rev}
	wantKind(t, "a graft", write(graft), osier.ErrDenied)
	wantKind(t, "new password", write(putOp(userPrefix+"bob", `{"name":"bob","type":"user","roles":["staff"],"password":"new"}`)), nil)
	if got := b.who(request{user: "bob", password: "new"}); got != "bob" {
		t.Errorf("new password: want bob, got %q", got)
	}
	stale := putOp(userPrefix+"bob", `{"name":"bob","type":"user","roles":["staff"],"password":"newer"}`)
	stale.Expect, stale.Rev = osier.ExpectRev, own.Rev
	wantKind(t, "over an old revision", write(stale), osier.ErrConflict)
	wantKind(t, "delete the own", userDocs.Delete(ctx, acc.DB, userPrefix+"bob", osier.Rev{}), nil)

	_, err = b.sess("").Open(ctx, UsersDB)
	wantKind(t, "without a name", err, osier.ErrDenied)
	if _, err := b.s.settings.Set(ctx, b.admin(), "users.own_document", "false"); err != nil {
		t.Fatal(err)
	}
	_, err = b.sess("eve").Open(ctx, UsersDB)
	wantKind(t, "with users.own_document off", err, osier.ErrDenied)
}

// Where the database is open for it, anybody signs up, without roles.
func TestSigningUp(t *testing.T) {
	b := newBench(t, nil)
	sec, err := ParseSecurity([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.admin().SetSecurity(t.Context(), UsersDB, sec); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "with a role", b.putUser(b.sess(""), "ann", `{"name":"ann","type":"user","roles":["boss"],"password":"pw"}`), osier.ErrDenied)
	wantKind(t, "without", b.putUser(b.sess(""), "ann", `{"name":"ann","type":"user","roles":[],"password":"pw"}`), nil)
	wantKind(t, "again", b.putUser(b.sess(""), "ann", `{"name":"ann","type":"user","roles":[],"password":"other"}`), osier.ErrNotFound)
	if got := b.who(request{user: "ann", password: "pw"}); got != "ann" {
		t.Errorf("want ann, got %q", got)
	}
	acc, err := b.sess("").Open(t.Context(), UsersDB)
	if err != nil {
		t.Fatal(err)
	}
	_, err = userDocs.Get(t.Context(), acc.DB, userPrefix+"ann")
	wantKind(t, "read by nobody", err, osier.ErrNotFound)
}

// In a bulk each document is judged by itself, and the results keep their
// places.
func TestABulkOfUsers(t *testing.T) {
	b := newBench(t, nil)
	acc, err := b.admin().Open(t.Context(), UsersDB)
	if err != nil {
		t.Fatal(err)
	}
	c := &osier.Command{PerDocument: true}
	for i := range 6 {
		name := fmt.Sprint("u", i)
		body := `{"name":"` + name + `","type":"user","roles":[]}`
		if i%2 == 0 {
			body = `{"name":"` + name + `","type":"robot","roles":[]}`
		}
		c.Ops = append(c.Ops, putOp(userPrefix+name, body))
	}
	res, err := acc.DB.Exec(t.Context(), c)
	if err != nil || len(res.Ops) != len(c.Ops) {
		t.Fatalf("want %d results, got %v, %v", len(c.Ops), res, err)
	}
	for i, r := range res.Ops {
		if r.ID != c.Ops[i].ID || (r.Err != nil) != (i%2 == 0) || r.Err == nil && r.Rev.IsZero() {
			t.Errorf("result %d: got %+v", i, r)
		}
	}
	c.PerDocument = false
	if _, err := acc.DB.Exec(t.Context(), c); !errors.Is(err, osier.ErrDenied) {
		t.Errorf("whole: want it refused, got %v", err)
	}
	all := &osier.Command{PerDocument: true, Ops: []osier.Op{putOp("x", `{}`)}}
	if res, err := acc.DB.Exec(t.Context(), all); err != nil || len(res.Ops) != 1 || res.Ops[0].Err == nil {
		t.Errorf("all refused: got %+v, %v", res, err)
	}
}

// A deletion's body keeps no password.
func TestADeletionHasNoPassword(t *testing.T) {
	b := newBench(t, nil)
	b.mustPutUser("bob", "pw")
	acc, err := b.admin().Open(t.Context(), UsersDB)
	if err != nil {
		t.Fatal(err)
	}
	op := putOp(userPrefix+"bob", `{"name":"bob","password":"hush","left":1}`)
	op.Deleted = true
	if _, err := acc.DB.Exec(t.Context(), &osier.Command{Ops: []osier.Op{op}}); err != nil {
		t.Fatal(err)
	}
	for c, err := range acc.DB.Watch(t.Context(), &osier.Feed{Parts: osier.WithBody}) {
		if err != nil || strings.Contains(string(c.Body), "hush") || !strings.Contains(string(c.Body), `"left":1`) {
			t.Errorf("got %s, %v", c.Body, err)
		}
	}
}

// What other servers made of passwords is read, and renewed at the login.
func TestForeignHashesAreReadAndRenewed(t *testing.T) {
	b := newBench(t, nil)
	for name, c := range map[string]struct{ password, fields string }{
		// RFC 6070, two rounds; the salt's text is what is hashed.
		"sha":    {"password", `"password_scheme":"pbkdf2","salt":"salt","iterations":2,"derived_key":"ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957"`},
		"sha256": {"password", `"password_scheme":"pbkdf2","pbkdf2_prf":"sha256","salt":"salt","iterations":1,"derived_key":"120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b"`},
		"simple": {"a", `"password_scheme":"simple","salt":"bc","password_sha":"a9993e364706816aba3e25717850c26c9cd0d89d"`},
	} {
		if err := b.putUser(b.admin(), name, `{"name":"`+name+`","roles":["r"],"type":"user","x":1,`+c.fields+`}`); err != nil {
			t.Fatal(err)
		}
		if got := b.who(request{user: name, password: "wrong"}); got != "Unauthorized" {
			t.Errorf("%s, wrong password: got %q", name, got)
		}
		for range 2 {
			if got := b.who(request{user: name, password: c.password}); got != name {
				t.Errorf("%s: want it in, got %q", name, got)
			}
		}
		doc, err := userDocs.Get(t.Context(), b.s.accounts.users, userPrefix+name)
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			credential
			X     int
			Roles []string
		}
		if err := json.Unmarshal(doc.Value, &body); err != nil || body.Scheme != schemeArgon2id || body.SHA != "" || body.PRF != "" || body.X != 1 || len(body.Roles) != 1 {
			t.Errorf("%s: want it renewed and the rest kept, got %s, %v", name, doc.Value, err)
		}
	}
}
