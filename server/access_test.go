package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/osierdb/osier"
)

// rights tells what a session can do with documents of a database, found by
// doing it.
func (b *bench) rights(sess *Session, db string) string {
	b.t.Helper()
	acc, err := sess.Open(b.t.Context(), db)
	if osier.KindOf(err) == osier.KindDenied {
		return ""
	}
	if err != nil {
		b.t.Fatal(err)
	}
	var have []string
	var failed error
	for _, err := range acc.DB.Query(b.t.Context(), &osier.Query{Kind: osier.QueryScan, Collection: osier.DefaultCollection}) {
		failed = err
	}
	if failed == nil {
		have = append(have, "read")
	}
	_, err = acc.DB.Exec(b.t.Context(), &osier.Command{Ops: []osier.Op{putOp("rights", `{"x":1}`)}})
	if err == nil {
		have = append(have, "write")
	}
	if acc.Admin {
		have = append(have, "admin")
	}
	return strings.Join(have, " ")
}

// Security objects mean what they mean to CouchDB.
func TestSecurityObjects(t *testing.T) {
	b := newBench(t, nil)
	sessions := map[string]*Session{
		"nobody": b.sess(""), "bob": b.sess("bob", "staff"), "eve": b.sess("eve"), "boss": b.sess("boss", "bosses"), "root": b.admin(),
	}
	for i, c := range []struct {
		security string
		want     map[string]string
	}{
		{"", map[string]string{"root": "read write admin"}},
		{`{}`, map[string]string{"nobody": "read write", "bob": "read write", "eve": "read write", "boss": "read write", "root": "read write admin"}},
		{`{"members":{"names":["bob"]}}`, map[string]string{"bob": "read write", "root": "read write admin"}},
		{`{"members":{"roles":["staff"]},"admins":{"roles":["bosses"]}}`, map[string]string{"bob": "read write", "boss": "read write admin", "root": "read write admin"}},
		{`{"admins":{"names":["bob"]}}`, map[string]string{"nobody": "read write", "bob": "read write admin", "eve": "read write", "boss": "read write", "root": "read write admin"}},
		{`{"members":{"names":[""]}}`, map[string]string{"root": "read write admin"}},
		{`{"members":{"names":[],"roles":[]},"admins":{"names":[],"roles":[]},"extra":{"x":[1]}}`,
			map[string]string{"nobody": "read write", "bob": "read write", "eve": "read write", "boss": "read write", "root": "read write admin"}},
	} {
		name := fmt.Sprintf("db%d", i)
		if _, err := b.admin().Store.CreateDB(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if c.security != "" {
			sec, err := ParseSecurity([]byte(c.security))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.admin().SetSecurity(t.Context(), name, sec); err != nil {
				t.Fatal(err)
			}
			acc, err := b.admin().Open(t.Context(), name)
			if err != nil || string(acc.Security.JSON) != c.security {
				t.Errorf("want the object back as it was, %s, got %s, %v", c.security, acc.Security.JSON, err)
			}
		}
		for who, sess := range sessions {
			if got := b.rights(sess, name); got != c.want[who] {
				t.Errorf("%s with security %s: want %q, got %q", who, c.security, c.want[who], got)
			}
		}
	}
}

func TestSecurityObjectsAreChecked(t *testing.T) {
	for _, bad := range []string{"", "[]", "null", `"x"`, "{", `{"admins":[]}`, `{"members":{"names":"bob"}}`, `{"members":{"roles":[1]}}`} {
		if _, err := ParseSecurity([]byte(bad)); osier.KindOf(err) != osier.KindInvalid {
			t.Errorf("%q: want it refused, got %v", bad, err)
		}
	}
	sec, err := ParseSecurity([]byte(`{"Members":{"names":["bob"]},"members":{"Names":["eve"],"roles":null},"admins":null}`))
	if err != nil || !sec.public() || !sec.Admins.none() {
		t.Errorf("names in other letters: want members and administrators to be nobody, got %+v, %v", sec, err)
	}
	if _, err := ParseSecurity([]byte(`{"x":"` + strings.Repeat("a", maxSecurityBytes) + `"}`)); osier.KindOf(err) != osier.KindTooLarge {
		t.Errorf("a large one: want it refused, got %v", err)
	}
}

// Only a database's administrators change its security object; nobody reaches
// it by writing in the database, and it ends with the database.
func TestSecurityObjectsAreOutOfReach(t *testing.T) {
	b := newBench(t, nil)
	ctx := t.Context()
	if _, err := b.admin().Store.CreateDB(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	sec, err := ParseSecurity([]byte(`{"members":{"names":["bob"]},"admins":{"names":["boss"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, "by a stranger", b.sess("eve").SetSecurity(ctx, "shop", sec), osier.ErrDenied)
	wantKind(t, "by root", b.admin().SetSecurity(ctx, "shop", sec), nil)
	wantKind(t, "by a member", b.sess("bob").SetSecurity(ctx, "shop", sec), osier.ErrDenied)
	wantKind(t, "by the database's administrator", b.sess("boss").SetSecurity(ctx, "shop", sec), nil)
	wantKind(t, "of no database", b.admin().SetSecurity(ctx, "none", sec), osier.ErrNotFound)

	// A member's handle does not reach other databases, the server's own least.
	acc, err := b.sess("bob").Open(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, db := range []string{SystemDB, UsersDB, "other"} {
		_, err := acc.DB.Backend().Exec(ctx, &osier.Command{DB: db, Ops: []osier.Op{putOp("x", `{}`)}})
		wantKind(t, "write "+db, err, osier.ErrDenied)
	}
	wantKind(t, "drop", b.sess("bob").Store.DropDB(ctx, "shop"), osier.ErrDenied)

	wantKind(t, "drop by root", b.admin().Store.DropDB(ctx, "shop"), nil)
	if n, err := securityDocs.Count(ctx, b.s.sys); err != nil || n != 0 {
		t.Errorf("security objects after the drop: want none, got %d, %v", n, err)
	}
	if _, err := b.admin().Store.CreateDB(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	_, err = b.sess("bob").Open(ctx, "shop")
	wantKind(t, "the name's next database", err, osier.ErrDenied)
}

// The server's own database is in no session's sight, an administrator's
// neither.
func TestTheSystemDatabaseIsHidden(t *testing.T) {
	b := newBench(t, nil)
	ctx := t.Context()
	root := b.admin()
	_, err := root.Open(ctx, SystemDB)
	wantKind(t, "open", err, osier.ErrNotFound)
	_, err = root.Store.OpenDB(ctx, SystemDB)
	wantKind(t, "open through the store", err, osier.ErrNotFound)
	wantKind(t, "drop", root.Store.DropDB(ctx, SystemDB), osier.ErrNotFound)
	names, err := root.Store.Databases(ctx)
	if err != nil || strings.Join(names, " ") != UsersDB {
		t.Errorf("list: want %s, got %q, %v", UsersDB, names, err)
	}
	acc, err := root.Open(ctx, UsersDB)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range acc.DB.Backend().Query(ctx, &osier.Query{Kind: osier.QueryScan, DB: SystemDB, Collection: "secrets"}) {
		wantKind(t, "scan", err, osier.ErrNotFound)
	}
	_, err = acc.DB.Backend().Stage(ctx, SystemDB, strings.NewReader("x"))
	wantKind(t, "stage", err, osier.ErrNotFound)
	_, err = acc.DB.Backend().Fetch(ctx, SystemDB, osier.BlobID{1}, 0, -1)
	wantKind(t, "fetch", err, osier.ErrNotFound)
	_, err = acc.DB.Backend().Exec(ctx, &osier.Command{DB: SystemDB, Ops: []osier.Op{putOp("x", `{}`)}})
	wantKind(t, "write", err, osier.ErrNotFound)
	for _, err := range acc.DB.Backend().Watch(ctx, &osier.Feed{DB: SystemDB}) {
		wantKind(t, "watch", err, osier.ErrNotFound)
	}
}

func TestDefaultSecurity(t *testing.T) {
	b := newBench(t, &Options{Settings: map[string]Given{"databases.default_security": {"everyone", SourceFile}}})
	if _, err := b.admin().Store.CreateDB(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	if got := b.rights(b.sess(""), "shop"); got != "read write" {
		t.Errorf("want everybody in, got %q", got)
	}
	_, err := b.sess("").Open(t.Context(), UsersDB)
	wantKind(t, "users' database", err, osier.ErrDenied)
}
