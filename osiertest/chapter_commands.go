package osiertest

import (
	"context"
	"fmt"

	"github.com/osierdb/osier"
)

func commandTests() []test {
	return []test{
		{"a repeated command gets its first answer and changes nothing", func(x *tc) {
			send := func() *osier.Result {
				b := &osier.Batch{Session: "s", Number: 1}
				_, err := films.Insert(x.ctx, b, film{Title: "made"}) // its id is chance
				x.must(err)
				_, err = films.Upsert(x.ctx, b, "a", film{Title: "1"})
				x.must(err)
				res, err := x.db.Commit(x.ctx, b)
				x.must(err)
				return res
			}
			first := send()
			x.insert("between", "")
			x.same("answer", send(), first)
			n, err := films.Count(x.ctx, x.db)
			x.must(err)
			x.same("count", n, uint64(3))
		}},
		{"a repeated command that failed gets its first error", func(x *tc) {
			send := func() error {
				b := &osier.Batch{Session: "s", Number: 1}
				_, err := films.Overwrite(x.ctx, b, "a", film{})
				x.must(err)
				_, err = x.db.Commit(x.ctx, b)
				return err
			}
			x.kind(send(), osier.KindNotFound)
			x.insert("a", "1")
			x.kind(send(), osier.KindNotFound)
			x.same("title", x.title(x.db, "a"), "1")
		}},
		{"session and number together identify a command, in its database", func(x *tc) {
			put := func(db *osier.DB, session string, number uint64) osier.Seq {
				b := &osier.Batch{Session: session, Number: number}
				_, err := films.Upsert(x.ctx, b, "a", film{})
				x.must(err)
				res, err := db.Commit(x.ctx, b)
				x.must(err)
				return res.Last
			}
			other, err := x.store.CreateDB(x.ctx, "other")
			x.must(err)
			got := []osier.Seq{
				put(x.db, "s", 1), put(x.db, "s", 2), put(x.db, "t", 1), put(x.db, "s", 1), put(x.db, "t", 1),
				put(x.db, "", 1), put(x.db, "", 1), put(x.db, "s", 0), put(x.db, "s", 0), put(other, "s", 2), put(other, "s", 2),
			}
			x.same("sequences", got, []osier.Seq{1, 2, 3, 1, 3, 4, 5, 6, 6, 1, 1})
		}},
		{"a retry is recognised after a thousand other commands", func(x *tc) {
			x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{RevLimit: 5}))
			put := func(number uint64) osier.Seq {
				b := &osier.Batch{Session: "s", Number: number, Durability: osier.Relaxed}
				_, err := films.Upsert(x.ctx, b, "a", film{})
				x.must(err)
				res, err := x.db.Commit(x.ctx, b)
				x.must(err)
				return res.Last
			}
			for i := range uint64(1001) {
				put(i)
			}
			x.same("sequence of the first", put(0), osier.Seq(1))
			x.same("sequence of a new one", put(5000), osier.Seq(1002))
		}},
		{"a retry comes before any judgement of the command", func(x *tc) {
			send := func(snapshot osier.Seq) (*osier.Result, error) {
				return x.db.Exec(x.ctx, &osier.Command{
					Session: "s", Number: 1, Snapshot: snapshot, Reads: []osier.Read{{Collection: "films", ID: osier.MustID("a")}},
					Ops: []osier.Op{{Kind: osier.OpPut, Collection: "films", ID: osier.MustID("a"), Codec: osier.TagJSON, Body: []byte(`{}`)}},
				})
			}
			first, err := send(0)
			x.must(err)
			again, err := send(0)
			x.must(err)
			x.same("answer", again, first)
		}},
		{"preconditions are judged as they stand", preconditions},
		{"a change of settings takes no sequence", func(x *tc) {
			x.insert("a", "1")
			res, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{
				{Kind: osier.OpCollection, Collection: "new", Settings: &osier.Settings{Codec: osier.TagJSON}},
				{Kind: osier.OpPut, Collection: "new", ID: osier.MustID("b"), Codec: osier.TagJSON, Body: []byte(`{}`)},
				{Kind: osier.OpDropCollection, Collection: "films"},
			}})
			x.must(err)
			x.same("run", []osier.Seq{res.First, res.Last}, []osier.Seq{2, 2})
			res, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpDropCollection, Collection: "new"}}})
			x.must(err)
			x.same("run", []osier.Seq{res.First, res.Last}, []osier.Seq{2, 2})
		}},
		{"making and dropping collections is undone with the rest", func(x *tc) {
			x.insert("a", "1")
			_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{
				{Kind: osier.OpDropCollection, Collection: "films"},
				{Kind: osier.OpCollection, Collection: "new", Settings: &osier.Settings{Codec: osier.TagJSON}},
				{Kind: osier.OpDropCollection, Collection: "none"},
			}})
			x.kind(err, osier.KindNotFound)
			x.same("title", x.title(x.db, "a"), "1")
			info, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("collections", len(info.Collections), 1)
		}},
		{"creating and dropping a database stand alone", func(x *tc) {
			for _, kind := range []osier.OpKind{osier.OpCreateDB, osier.OpDropDB} {
				_, err := x.db.Backend().Exec(x.ctx, &osier.Command{DB: "shop", Ops: []osier.Op{
					{Kind: kind}, {Kind: osier.OpPut, Collection: "films", Codec: osier.TagJSON, Body: []byte(`{}`)},
				}})
				x.kind(err, osier.KindInvalid)
			}
		}},
		{"a put that keeps the body needs a parent", func(x *tc) {
			keep := func(expect osier.Expect) (*osier.Result, error) {
				return x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{
					{Kind: osier.OpPut, Collection: "films", ID: osier.MustID("a"), Expect: expect, KeepBody: true},
				}})
			}
			_, err := keep(osier.ExpectAny)
			x.kind(err, osier.KindInvalid)
			x.insert("a", "1")
			res, err := keep(osier.ExpectPresent)
			x.must(err)
			x.same("generation", res.Ops[0].Rev.Generation(), uint64(2))
			x.same("title", x.title(x.db, "a"), "1")
		}},
		{"a first revision may be a deletion if absence is expected", func(x *tc) {
			del := osier.Op{Kind: osier.OpPut, Collection: "films", ID: osier.MustID("a"), Deleted: true, Codec: osier.TagJSON, Expect: osier.ExpectAny}
			_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{del}})
			x.kind(err, osier.KindNotFound)
			del.Expect = osier.ExpectAbsent
			res, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{del}})
			x.must(err)
			x.same("generation", res.Ops[0].Rev.Generation(), uint64(1))
			_, err = films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindDeleted)
			_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{del}})
			x.kind(err, osier.KindConflict)
			del.Expect = osier.ExpectAny
			_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{del}})
			x.kind(err, osier.KindDeleted)
		}},
		{"a query waits for the sequence it must see", func(x *tc) {
			x.insert("a", "1")
			each, _ := follow(x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryGet, Collection: "films", IDs: []osier.ID{osier.MustID("b")}, MinSeq: 2}))
			x.insert("b", "2")
			if row := receive(x, each); row.Missing || row.Seq != 2 {
				x.Fatalf("got %+v, want the document of sequence 2", row)
			}
			ctx, cancel := context.WithCancel(x.ctx)
			_, all := follow(x.db.Query(ctx, &osier.Query{Kind: osier.QueryInfo, MinSeq: 1000}))
			cancel()
			x.kind(receive(x, all).err, osier.KindCanceled)
		}},
		{"an ended context is ErrCanceled for every verb", endedContext},
		{"every query of one pin sees one state", pinnedQueries},
	}
}

func preconditions(x *tc) {
	x.insert("a", "1")                                       // 1
	x.insert("m", "2")                                       // 2
	x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))      // 3
	_, err := raws.Insert(x.ctx, x.db, osier.Raw(`{"n":4}`)) // 4
	x.must(err)
	key := func(v any) string { return osier.MustID(v).Key() }
	cases := []struct {
		read     osier.Read
		snapshot osier.Seq
		holds    bool
	}{
		{osier.Read{Collection: "films", ID: osier.MustID("a")}, 3, true},
		{osier.Read{Collection: "films", ID: osier.MustID("a")}, 2, false},
		{osier.Read{Collection: "films", ID: osier.MustID("none")}, 0, true},
		{osier.Read{Collection: "none", ID: osier.MustID("a")}, 0, true},
		{osier.Read{Collection: "none"}, 0, true},
		{osier.Read{Collection: "films"}, 3, true},
		{osier.Read{Collection: "films"}, 2, false},
		{osier.Read{Collection: "films", Start: key("b")}, 2, true},
		{osier.Read{Collection: "films", Start: key("b")}, 1, false},
		{osier.Read{Collection: "films", Start: key("m"), End: key("n")}, 1, false},
		{osier.Read{Collection: "films", Start: key("b"), End: key("m")}, 0, true},
		{osier.Read{Collection: "films", End: key("b")}, 2, false},
		{osier.Read{}, 4, true},
		{osier.Read{}, 3, false},
	}
	for _, c := range cases {
		_, err := x.db.Exec(x.ctx, &osier.Command{Snapshot: c.snapshot, Reads: []osier.Read{c.read}})
		what := fmt.Sprintf("read of %s, id %q, from %q to %q, since %d", c.read.Collection, c.read.ID, c.read.Start, c.read.End, c.snapshot)
		if c.holds && err != nil || !c.holds && osier.KindOf(err) != osier.KindConflict {
			x.Fatalf("%s: want it to hold: %v; got %v", what, c.holds, err)
		}
	}
}

func endedContext(x *tc) {
	x.insert("a", "1")
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	_, err := films.Upsert(ctx, x.db, "a", film{Title: "2"})
	x.kind(err, osier.KindCanceled)
	_, err = films.Get(ctx, x.db, "a")
	x.kind(err, osier.KindCanceled)
	_, err = drain(films.List(ctx, x.db, nil))
	x.kind(err, osier.KindCanceled)
	_, err = drain(x.db.Watch(ctx, nil))
	x.kind(err, osier.KindCanceled)
	_, err = drain(x.db.Watch(ctx, &osier.Feed{Mode: osier.FeedLive}))
	x.kind(err, osier.KindCanceled)
	x.kind(x.db.Update(ctx, func(*osier.Tx) error { return nil }), osier.KindCanceled)
	x.same("title", x.title(x.db, "a"), "1")
}

func pinnedQueries(x *tc) {
	x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: osier.KeepAll}))
	x.insert("a", "1")
	x.insert("b", "1")
	a := []osier.ID{osier.MustID("a")}
	queries := []osier.Query{
		{Kind: osier.QueryGet, Collection: "films", IDs: a, Parts: osier.WithBody},
		{Kind: osier.QueryScan, Collection: "films", Parts: osier.WithBody},
		{Kind: osier.QueryVersions, Collection: "films", IDs: a, Parts: osier.WithBody},
		{Kind: osier.QueryRevs, Collection: "films", IDs: a, Revs: revsOf(x.leaves("a")[0])},
		{Kind: osier.QueryAsOf, Collection: "films", IDs: a, Seq: 100, Parts: osier.WithBody},
		{Kind: osier.QueryInfo},
		{Kind: osier.QueryInfo, Collection: "films"},
		{Kind: osier.QueryTransactions},
	}
	pinned, _ := x.pin()
	show := func(q osier.Query) (out []string) {
		q.Pin = pinned
		for _, row := range collect(x, x.db.Query(x.ctx, &q)) {
			line := fmt.Sprintf("%v %v %d %s missing=%v", row.ID, row.Rev, row.Seq, row.Body, row.Missing)
			if row.DB != nil {
				line = fmt.Sprint(row.DB.LastSeq)
				for _, c := range row.DB.Collections {
					line += fmt.Sprint(" ", c.Name, " ", c.Count, " ", c.Deleted, " ", c.LastSeq)
				}
			}
			if row.Tx != nil {
				line = fmt.Sprint(row.Tx.First, row.Tx.Last)
			}
			out = append(out, line)
		}
		return out
	}
	var before, after [][]string
	for _, q := range queries {
		before = append(before, show(q))
	}
	_, err := films.Upsert(x.ctx, x.db, "a", film{Title: "2"})
	x.must(err)
	x.must(films.Delete(x.ctx, x.db, "b", osier.Rev{}))
	x.insert("c", "1")
	_, err = raws.Insert(x.ctx, x.db, osier.Raw(`{}`))
	x.must(err)
	for _, q := range queries {
		after = append(after, show(q))
	}
	x.same("answers", after, before)
}
