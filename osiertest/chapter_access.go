package osiertest

import (
	"strings"

	"github.com/osierdb/osier"
)

// verb is something that a program does, and the right it takes.
type verb struct {
	name  string
	needs osier.Action
	// whole: the right is needed on the whole database.
	whole bool
	do    func(db *osier.DB) error
}

func accessTests() []test {
	return []test{
		{"each verb takes its right, and is ErrDenied without it", eachVerb},
		{"an administrator may do everything", func(x *tc) {
			x.insert("a", "1")
			for _, v := range x.verbs() {
				if err := v.do(x.db.As(osier.Admin("root"))); osier.KindOf(err) == osier.KindDenied {
					x.Fatalf("%s: %v", v.name, err)
				}
			}
		}},
		{"a principal without grants may do nothing", func(x *tc) {
			x.insert("a", "1")
			for _, v := range x.verbs() {
				if err := v.do(x.db.As(osier.Principal{Name: "nobody"})); osier.KindOf(err) != osier.KindDenied {
					x.Fatalf("%s: got %v, want it denied", v.name, err)
				}
			}
			x.same("title", x.title(x.db, "a"), "1")
		}},
		{"a grant is for the database and collection that its patterns match", grantPatterns},
		{"rights can be narrowed, never widened", func(x *tc) {
			x.insert("a", "1")
			reader := osier.Principal{Name: "reader", Grants: []osier.Grant{{Actions: osier.MayRead, DB: "shop"}}}
			db := x.db.As(reader).As(osier.Admin("root"))
			x.same("title", x.title(db, "a"), "1")
			_, err := films.Upsert(x.ctx, db, "a", film{})
			x.kind(err, osier.KindDenied)
			_, err = films.Upsert(x.ctx, db.With(osier.Sync), "a", film{})
			x.kind(err, osier.KindDenied)
			_, err = films.Upsert(x.ctx, x.db.As(osier.Admin("root")).As(reader), "a", film{})
			x.kind(err, osier.KindDenied)
		}},
		{"rights on databases: create, drop and see", func(x *tc) {
			s := x.store.As(osier.Principal{Name: "tenant", Grants: []osier.Grant{
				{Actions: osier.MayRead | osier.MayWrite | osier.MayManage, DB: "tenant-*"},
			}})
			_, err := s.CreateDB(x.ctx, "other")
			x.kind(err, osier.KindDenied)
			x.kind(s.DropDB(x.ctx, "shop"), osier.KindDenied)
			_, err = s.OpenDB(x.ctx, "shop")
			x.kind(err, osier.KindDenied)
			_, err = s.CreateDB(x.ctx, "tenant-1", osier.Schema(films))
			x.must(err)
			names, err := s.Databases(x.ctx)
			x.must(err)
			x.same("visible", names, []string{"tenant-1"})
			x.must(s.DropDB(x.ctx, "tenant-1"))
		}},
		{"a command is denied whole if one of its operations is", func(x *tc) {
			db := x.db.As(osier.Principal{Name: "p", Grants: []osier.Grant{{Actions: osier.MayRead | osier.MayWrite, DB: "shop", Collection: "films"}}})
			for _, perDocument := range []bool{false, true} {
				b := &osier.Batch{PerDocument: perDocument}
				_, err := films.InsertWithID(x.ctx, b, "a", film{})
				x.must(err)
				_, err = raws.InsertWithID(x.ctx, b, "a", osier.Raw(`{}`))
				x.must(err)
				_, err = db.Commit(x.ctx, b)
				x.kind(err, osier.KindDenied)
			}
			_, err := films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindNotFound)
		}},
		{"a transaction works within the rights of its handle", func(x *tc) {
			x.insert("a", "1")
			_, err := raws.InsertWithID(x.ctx, x.db, "r", osier.Raw(`{}`))
			x.must(err)
			db := x.db.As(osier.Principal{Name: "p", Grants: []osier.Grant{{Actions: osier.MayRead | osier.MayWrite, DB: "shop", Collection: "films"}}})
			for _, denied := range []func(*osier.Tx) error{
				func(tx *osier.Tx) error { _, err := raws.Get(x.ctx, tx, "r"); return err },
				func(tx *osier.Tx) error { _, err := drain(raws.List(x.ctx, tx, nil)); return err },
				func(tx *osier.Tx) error { _, err := raws.Upsert(x.ctx, tx, "r", osier.Raw(`[]`)); return err },
			} {
				x.kind(db.Update(x.ctx, denied), osier.KindDenied)
			}
			x.must(db.Update(x.ctx, func(tx *osier.Tx) error {
				doc, err := films.Get(x.ctx, tx, "a")
				x.must(err)
				doc.Value.Title = "2"
				_, err = films.Update(x.ctx, tx, doc)
				return err
			}))
			x.same("title", x.title(x.db, "a"), "2")
		}},
	}
}

// verbs lists what can be done on a database with the film a.
func (x *tc) verbs() []verb {
	one := func(q osier.Query) func(*osier.DB) error {
		return func(db *osier.DB) error {
			q := q
			q.Collection, q.IDs, q.Revs = "films", []osier.ID{osier.MustID("a")}, revsOf("1-a")
			_, err := drain(db.Query(x.ctx, &q))
			return err
		}
	}
	return []verb{
		{"get", osier.MayRead, false, func(db *osier.DB) error { _, err := films.Get(x.ctx, db, "a"); return err }},
		{"list", osier.MayRead, false, func(db *osier.DB) error { _, err := drain(films.List(x.ctx, db, nil)); return err }},
		{"count", osier.MayRead, false, func(db *osier.DB) error { _, err := films.Count(x.ctx, db); return err }},
		{"versions", osier.MayRead, false, one(osier.Query{Kind: osier.QueryVersions})},
		{"revisions", osier.MayRead, false, one(osier.Query{Kind: osier.QueryRevs})},
		{"as of", osier.MayRead, false, one(osier.Query{Kind: osier.QueryAsOf, Seq: 1})},
		{"changes", osier.MayRead, false, func(db *osier.DB) error {
			_, err := drain(films.Changes(x.ctx, db, nil, nil))
			return err
		}},
		{"changes of all", osier.MayRead, true, func(db *osier.DB) error { _, err := drain(db.Watch(x.ctx, nil)); return err }},
		{"info, of the collections that may be read", osier.MayRead, false, func(db *osier.DB) error { _, err := db.Info(x.ctx); return err }},
		{"transactions", osier.MayRead, true, func(db *osier.DB) error { _, err := drain(db.Transactions(x.ctx, 0, 0)); return err }},
		{"insert", osier.MayWrite, false, func(db *osier.DB) error { _, err := films.Insert(x.ctx, db, film{}); return err }},
		{"upsert", osier.MayWrite, false, func(db *osier.DB) error { _, err := films.Upsert(x.ctx, db, "u", film{}); return err }},
		{"delete", osier.MayWrite, false, func(db *osier.DB) error {
			if err := films.Delete(x.ctx, db, "d", osier.Rev{}); osier.KindOf(err) != osier.KindNotFound {
				return err
			}
			return nil
		}},
		{"graft", osier.MayWrite, false, func(db *osier.DB) error { return films.Graft(x.ctx, db, "g", revsOf("1-a"), film{}) }},
		{"stage", osier.MayWrite, false, func(db *osier.DB) error {
			_, err := db.Backend().Stage(x.ctx, "shop", strings.NewReader("x"))
			return err
		}},
		{"make a collection", osier.MayManage, false, func(db *osier.DB) error {
			_, err := db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpCollection, Collection: "films", Settings: &osier.Settings{Codec: osier.TagJSON}}}})
			return err
		}},
		{"fetch", osier.MayRead, false, func(db *osier.DB) error {
			_, err := db.Backend().Fetch(x.ctx, "shop", osier.BlobID{1}, 0, -1)
			if osier.KindOf(err) == osier.KindNotFound {
				return nil
			}
			return err
		}},
		// Last, as it takes the film away.
		{"drop a collection", osier.MayManage, false, func(db *osier.DB) error { return db.DropCollection(x.ctx, "films") }},
	}
}

// eachVerb tries every verb with every single right.
func eachVerb(x *tc) {
	for _, have := range []osier.Action{osier.MayRead, osier.MayWrite, osier.MayManage} {
		for _, collection := range []string{"", "films"} {
			name := "db-" + strings.ReplaceAll(have.String(), "+", "") + "-" + collection + "x"
			_, err := x.store.CreateDB(x.ctx, name)
			x.must(err)
			db, err := x.store.OpenDB(x.ctx, name)
			x.must(err)
			_, err = films.InsertWithID(x.ctx, db, "a", film{})
			x.must(err)
			p := osier.Principal{Name: "p", Grants: []osier.Grant{{Actions: have, DB: "*", Collection: collection}}}
			for _, v := range x.verbs() {
				allowed := v.needs == have && !(v.whole && collection != "")
				err := v.do(db.As(p))
				if allowed && err != nil || !allowed && osier.KindOf(err) != osier.KindDenied {
					x.Fatalf("%s with the right to %v on %q: want allowed: %v; got %v", v.name, have, collection, allowed, err)
				}
			}
		}
	}
}

func grantPatterns(x *tc) {
	cases := []struct {
		grant osier.Grant
		may   bool
	}{
		{osier.Grant{DB: "shop"}, true},
		{osier.Grant{DB: "sh*"}, true},
		{osier.Grant{DB: "*"}, true},
		{osier.Grant{DB: "shop", Collection: "films"}, true},
		{osier.Grant{DB: "shop", Collection: "fi*"}, true},
		{osier.Grant{DB: "*", Collection: "*"}, true},
		{osier.Grant{DB: "shopp*"}, false},
		{osier.Grant{DB: "sho"}, false},
		{osier.Grant{DB: "shop2"}, false},
		{osier.Grant{DB: ""}, false},
		{osier.Grant{DB: "shop", Collection: "film"}, false},
		{osier.Grant{DB: "shop", Collection: "raws"}, false},
		{osier.Grant{DB: "other", Collection: "films"}, false},
	}
	x.insert("a", "1")
	for _, c := range cases {
		c.grant.Actions = osier.MayRead
		_, err := films.Get(x.ctx, x.db.As(osier.Principal{Name: "p", Grants: []osier.Grant{c.grant}}), "a")
		if c.may && err != nil || !c.may && osier.KindOf(err) != osier.KindDenied {
			x.Fatalf("%+v: want allowed: %v; got %v", c.grant, c.may, err)
		}
	}
	both := osier.Principal{Name: "p", Grants: []osier.Grant{{Actions: osier.MayRead, DB: "shop"}, {Actions: osier.MayWrite, DB: "shop", Collection: "films"}}}
	_, err := films.Modify(x.ctx, x.db.As(both), "a", func(*film) error { return nil })
	x.must(err)
}
