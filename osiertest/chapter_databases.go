package osiertest

import (
	"slices"
	"strings"

	"github.com/osierdb/osier"
)

func databaseTests() []test {
	return []test{
		{"a created database is listed in order of names and can be opened", func(x *tc) {
			for _, name := range []string{"zoo", "attic", "shop-2"} {
				_, err := x.store.CreateDB(x.ctx, name)
				x.must(err)
			}
			names, err := x.store.Databases(x.ctx)
			x.must(err)
			x.same("databases", names, []string{"attic", "shop", "shop-2", "zoo"})
			db, err := x.store.OpenDB(x.ctx, "attic")
			x.must(err)
			x.same("name", db.Name(), "attic")
		}},
		{"a new database is empty, has a UUID of its own, and begins at sequence 0", func(x *tc) {
			other, err := x.store.CreateDB(x.ctx, "other")
			x.must(err)
			a, err := x.db.Info(x.ctx)
			x.must(err)
			b, err := other.Info(x.ctx)
			x.must(err)
			if a.UUID == (osier.UUID{}) || a.UUID == b.UUID {
				x.Fatalf("UUIDs %x and %x", a.UUID, b.UUID)
			}
			if a.Created.IsZero() || a.LastSeq != 0 || len(a.Collections) != 0 {
				x.Fatalf("got %+v", a)
			}
		}},
		{"creating a database twice is ErrExists, and DB takes what is there", func(x *tc) {
			_, err := x.store.CreateDB(x.ctx, "shop")
			x.kind(err, osier.KindExists)
			x.insert("a", "Alien")
			db, err := x.store.DB(x.ctx, "shop")
			x.must(err)
			x.same("title", x.title(db, "a"), "Alien")
			_, err = x.store.DB(x.ctx, "brand-new")
			x.must(err)
		}},
		{"a database that is not there is ErrNotFound for every verb", missingDatabase},
		{"names follow CouchDB's rule", databaseNames},
		{"a dropped database is gone, and its name begins anew", func(x *tc) {
			x.insert("a", "Alien")
			before, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("identity", x.uuid(), before.UUID)
			x.must(x.store.DropDB(x.ctx, "shop"))
			x.kind(x.store.DropDB(x.ctx, "shop"), osier.KindNotFound)
			_, err = x.db.UUID(x.ctx)
			x.kind(err, osier.KindNotFound)
			_, err = films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindNotFound)
			db, err := x.store.CreateDB(x.ctx, "shop")
			x.must(err)
			after, err := db.Info(x.ctx)
			x.must(err)
			if after.UUID == before.UUID || after.LastSeq != 0 || len(after.Collections) != 0 {
				x.Fatalf("got %+v after %+v", after, before)
			}
			x.same("identity", x.uuid(), after.UUID)
			_, err = films.Get(x.ctx, db, "a")
			x.kind(err, osier.KindNotFound)
		}},
		{"databases do not see each other", func(x *tc) {
			other, err := x.store.CreateDB(x.ctx, "shop2")
			x.must(err)
			x.insert("a", "Alien")
			_, err = films.Get(x.ctx, other, "a")
			x.kind(err, osier.KindNotFound)
			x.must(x.store.DropDB(x.ctx, "shop2"))
			x.same("title", x.title(x.db, "a"), "Alien")
		}},
		{"a declared collection has its settings, and new ones take effect", collectionSettings},
		{"a collection that is not declared is made by its first write", func(x *tc) {
			x.insert("a", "Alien")
			info, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("collections", len(info.Collections), 1)
			x.same("name", info.Collections[0].Name, "films")
			x.same("settings", info.Collections[0].Settings, osier.Settings{Codec: osier.TagJSON})
		}},
		{"a failed first write makes no collection", func(x *tc) {
			_, err := films.Overwrite(x.ctx, x.db, "a", film{})
			x.kind(err, osier.KindNotFound)
			info, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("collections", len(info.Collections), 0)
		}},
		{"an older program is refused a collection of a newer schema", func(x *tc) {
			x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{Schema: 2}))
			_, err := x.store.OpenDB(x.ctx, "shop", osier.Schema(osier.NewCollection("films", osier.CollectionOptions[film]{Schema: 1})))
			x.kind(err, osier.KindUnsupported)
		}},
		{"a dropped collection is gone from reads and feeds, and sequences go on", dropCollection},
		{"info counts live and deleted documents exactly", func(x *tc) {
			for _, id := range []string{"a", "b", "c"} {
				x.insert(id, id)
			}
			x.must(films.Delete(x.ctx, x.db, "b", osier.Rev{}))
			info, err := x.db.Info(x.ctx)
			x.must(err)
			c := info.Collections[0]
			x.same("live", c.Count, uint64(2))
			x.same("deleted", c.Deleted, uint64(1))
			x.same("last sequences", []osier.Seq{c.LastSeq, info.LastSeq}, []osier.Seq{4, 4})
			if want := uint64(2 * len(`{"title":"a"}`)); c.BodyBytes != want {
				x.Fatalf("body bytes: want %d, got %d", want, c.BodyBytes)
			}
			if info.DurableSeq > info.LastSeq {
				x.Fatalf("durable sequence %d is after the last, %d", info.DurableSeq, info.LastSeq)
			}
		}},
	}
}

// uuid is the identity of the test's database.
func (x *tc) uuid() osier.UUID {
	id, err := x.db.UUID(x.ctx)
	x.must(err)
	return id
}

func missingDatabase(x *tc) {
	_, err := x.store.OpenDB(x.ctx, "nowhere")
	x.kind(err, osier.KindNotFound)
	x.kind(x.store.DropDB(x.ctx, "nowhere"), osier.KindNotFound)
	gone, err := x.store.CreateDB(x.ctx, "gone")
	x.must(err)
	x.must(x.store.DropDB(x.ctx, "gone"))
	_, err = films.Insert(x.ctx, gone, film{})
	x.kind(err, osier.KindNotFound)
	_, err = films.Get(x.ctx, gone, "a")
	x.kind(err, osier.KindNotFound)
	_, err = drain(films.List(x.ctx, gone, nil))
	x.kind(err, osier.KindNotFound)
	_, err = films.Count(x.ctx, gone)
	x.kind(err, osier.KindNotFound)
	_, err = drain(gone.Watch(x.ctx, &osier.Feed{Mode: osier.FeedLive}))
	x.kind(err, osier.KindNotFound)
	_, err = gone.Backend().Stage(x.ctx, "gone", strings.NewReader("x"))
	x.kind(err, osier.KindNotFound)
	_, err = gone.Backend().Fetch(x.ctx, "gone", osier.BlobID{1}, 0, -1)
	x.kind(err, osier.KindNotFound)
	x.kind(gone.Update(x.ctx, func(*osier.Tx) error { return nil }), osier.KindNotFound)
}

func databaseNames(x *tc) {
	good := []string{"a", "a0_$()+-/z", "_users", "x" + strings.Repeat("y", osier.MaxNameBytes-1)}
	for _, name := range good {
		_, err := x.store.CreateDB(x.ctx, name)
		x.must(err)
	}
	names, err := x.store.Databases(x.ctx)
	x.must(err)
	want := append(good, "shop")
	slices.Sort(want)
	x.same("databases", names, want)
	bad := []string{"", "A", "1a", "aB", "a b", "a.b", "é", "_", "_1", "-a", "a\x00", "x" + strings.Repeat("y", osier.MaxNameBytes)}
	for _, name := range bad {
		_, err := x.store.CreateDB(x.ctx, name)
		x.kind(err, osier.KindInvalid)
		// The backend must not rely on the handle to have looked.
		_, err = x.db.Backend().Exec(x.ctx, &osier.Command{DB: name, Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
		x.kind(err, osier.KindInvalid)
	}
	for _, name := range []string{"", "a/b", "a b", "é", strings.Repeat("y", osier.MaxNameBytes+1)} {
		_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{
			Kind: osier.OpPut, Collection: name, ID: osier.MustID("a"), Codec: osier.TagJSON, Body: []byte(`{}`),
		}}})
		x.kind(err, osier.KindInvalid)
	}
}

func collectionSettings(x *tc) {
	x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: 3, RevLimit: 20, Schema: 4}), raws)
	info, err := x.db.Info(x.ctx)
	x.must(err)
	x.same("collections", []string{info.Collections[0].Name, info.Collections[1].Name}, []string{"films", "raws"})
	x.same("settings", info.Collections[0].Settings, osier.Settings{Codec: osier.TagJSON, History: 3, RevLimit: 20, Schema: 4})
	x.same("sequence", info.LastSeq, osier.Seq(0))
	x.insert("a", "Alien")
	x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: osier.KeepAll, Schema: 5}))
	info, err = x.db.Info(x.ctx)
	x.must(err)
	x.same("settings", info.Collections[0].Settings, osier.Settings{Codec: osier.TagJSON, History: osier.KeepAll, Schema: 5})
	x.same("count", info.Collections[0].Count, uint64(1))
	x.same("sequence", info.LastSeq, osier.Seq(1))
}

func dropCollection(x *tc) {
	x.insert("a", "Alien")
	_, err := raws.Upsert(x.ctx, x.db, "r", osier.Raw(`{}`))
	x.must(err)
	x.must(x.db.DropCollection(x.ctx, "films"))
	x.kind(x.db.DropCollection(x.ctx, "films"), osier.KindNotFound)
	_, err = films.Get(x.ctx, x.db, "a")
	x.kind(err, osier.KindNotFound)
	n, err := films.Count(x.ctx, x.db)
	x.must(err)
	x.same("count", n, uint64(0))
	rows := collect(x, x.db.Watch(x.ctx, nil))
	x.same("changes", len(rows), 1)
	x.same("collection", rows[0].Collection, "raws")
	info, err := x.db.Info(x.ctx)
	x.must(err)
	x.same("collections", len(info.Collections), 1)
	doc := x.insert("a", "Aliens")
	x.same("sequence", doc.Seq, osier.Seq(3))
	x.same("generation", doc.Rev.Generation(), uint64(1))
	rows = collect(x, x.db.Watch(x.ctx, &osier.Feed{Collection: "films"}))
	x.same("changes", len(rows), 1)
	x.same("sequence", rows[0].Seq, osier.Seq(3))
}
