package osiertest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/osierdb/osier"
)

func errorTests() []test {
	return []test{
		{"an error says which database, collection and document it is about", errorTexts},
		{"an error has the sentinel of its kind and no other", func(x *tc) {
			x.insert("a", "1")
			_, err := films.InsertWithID(x.ctx, x.db, "a", film{})
			sentinels := map[string]error{
				"invalid": osier.ErrInvalid, "not found": osier.ErrNotFound, "deleted": osier.ErrDeleted, "conflict": osier.ErrConflict,
				"exists": osier.ErrExists, "denied": osier.ErrDenied, "closed": osier.ErrClosed,
			}
			for name, s := range sentinels {
				if errors.Is(err, s) != (name == "conflict") || errors.Is(fmt.Errorf("wrapped: %w", err), s) != (name == "conflict") {
					x.Errorf("errors.Is of %q: got %v for %v", name, errors.Is(err, s), err)
				}
			}
		}},
		{"a closed store is ErrClosed for every verb, and can be closed again", func(x *tc) {
			x.insert("a", "1")
			pinned, _ := x.pin()
			x.must(x.store.Close())
			x.must(x.store.Close())
			_, err := films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindClosed)
			_, err = films.Upsert(x.ctx, x.db, "a", film{})
			x.kind(err, osier.KindClosed)
			_, err = drain(films.List(x.ctx, x.db, nil))
			x.kind(err, osier.KindClosed)
			_, err = drain(x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryScan, Collection: "films", Pin: pinned}))
			x.kind(err, osier.KindClosed)
			_, err = drain(x.db.Watch(x.ctx, nil))
			x.kind(err, osier.KindClosed)
			_, err = drain(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedLive}))
			x.kind(err, osier.KindClosed)
			_, err = x.store.Databases(x.ctx)
			x.kind(err, osier.KindClosed)
			_, err = x.store.CreateDB(x.ctx, "other")
			x.kind(err, osier.KindClosed)
			_, err = x.db.Backend().Stage(x.ctx, "shop", strings.NewReader("x"))
			x.kind(err, osier.KindClosed)
			_, err = x.db.Backend().Fetch(x.ctx, "shop", osier.BlobID{1}, 0, -1)
			x.kind(err, osier.KindClosed)
		}},
		{"what a newer program asks is ErrUnsupported", func(x *tc) {
			_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: 250, Collection: "films", ID: osier.MustID("a")}}})
			x.kind(err, osier.KindUnsupported)
			_, err = drain(x.db.Query(x.ctx, &osier.Query{Kind: 250, Collection: "films", IDs: []osier.ID{osier.MustID("a")}}))
			x.kind(err, osier.KindUnsupported)
		}},
	}
}

func errorTexts(x *tc) {
	old := x.insert("a", "1")
	_, err := films.Update(x.ctx, x.db, old)
	x.must(err)
	id := func(_ any, err error) error { return err }
	cases := []struct {
		err   error
		names []string
	}{
		{id(films.InsertWithID(x.ctx, x.db, "a", film{})), []string{"shop", "films", "a", "conflict"}},
		{id(films.Update(x.ctx, x.db, old)), []string{"shop", "films", "a", "conflict"}},
		{id(films.Overwrite(x.ctx, x.db, "zz", film{})), []string{"shop", "films", "zz", "not found"}},
		{films.Delete(x.ctx, x.db, "zz", osier.Rev{}), []string{"shop", "films", "zz", "not found"}},
		{id(films.Get(x.ctx, x.db, "zz")), []string{"shop", "films", "zz", "not found"}},
		{id(films.AsOf(x.ctx, x.db, "a", 1)), []string{"shop", "films", "a", "gap"}},
		{films.Graft(x.ctx, x.db, "zz", revsOf("3-c", "1-a"), film{}), []string{"shop", "films", "zz", "invalid"}},
		{x.db.DropCollection(x.ctx, "none"), []string{"shop", "none", "not found"}},
		{id(x.store.CreateDB(x.ctx, "shop")), []string{"shop", "exists"}},
		{id(x.store.OpenDB(x.ctx, "nowhere")), []string{"nowhere", "not found"}},
		{id(x.store.CreateDB(x.ctx, "Shop")), []string{"Shop", "invalid"}},
		{id(films.Get(x.ctx, x.db.As(osier.Principal{Name: "eve"}), "a")), []string{"shop", "films", "eve", "denied"}},
	}
	for i, c := range cases {
		if c.err == nil {
			x.Fatalf("case %d: no error", i)
		}
		for _, name := range c.names {
			if !strings.Contains(c.err.Error(), name) {
				x.Errorf("error %q does not name %q", c.err, name)
			}
		}
	}
}

func limitTests() []test {
	return []test{
		{"a large body comes back whole", func(x *tc) {
			for i, size := range []int{1 << 10, 100_000, 1 << 20} {
				body := osier.Raw(`{"a":"` + strings.Repeat("x", size-8) + `"}`)
				_, err := raws.InsertWithID(x.ctx, x.db, i, body)
				x.must(err)
				doc, err := raws.Get(x.ctx, x.db, i)
				x.must(err)
				if string(doc.Value) != string(body) {
					x.Fatalf("a body of %d bytes came back as %d others", len(body), len(doc.Value))
				}
			}
		}},
		{"a body beyond the limit is ErrTooLarge, one at it is stored", func(x *tc) {
			limit := x.h.Caps.MaxBodyBytes
			if limit == 0 {
				x.Skip("the store's limit is not known")
			}
			body := osier.Raw(`{"a":"` + strings.Repeat("x", limit-8) + `"}`)
			_, err := raws.InsertWithID(x.ctx, x.db, "at", body)
			x.must(err)
			_, err = raws.InsertWithID(x.ctx, x.db, "beyond", append(body, ' '))
			x.kind(err, osier.KindTooLarge)
			_, err = raws.Get(x.ctx, x.db, "beyond")
			x.kind(err, osier.KindNotFound)
		}},
		{"JSON that nests too deep for a revision is ErrInvalid", func(x *tc) {
			deep := osier.Raw(strings.Repeat(`{"a":`, 6000) + `1` + strings.Repeat(`}`, 6000))
			_, err := raws.Insert(x.ctx, x.db, deep)
			x.kind(err, osier.KindInvalid)
		}},
		{"a document takes hundreds of conflicts", func(x *tc) {
			const n = 300
			for i := range n {
				x.graft("a", fmt.Sprint(i), fmt.Sprintf("1-%03d", i))
			}
			losers, err := films.Conflicts(x.ctx, x.db, "a")
			x.must(err)
			x.same("conflicts", len(losers), n-1)
			x.same("title", x.title(x.db, "a"), fmt.Sprint(n-1))
			doc, err := films.GetRev(x.ctx, x.db, "a", revOf("1-007"))
			x.must(err)
			x.same("title", doc.Value.Title, "7")
		}},
		{"a query for a thousand documents answers in order", func(x *tc) {
			var all []any
			for i := range 1000 {
				all = append(all, 999-i)
				if i%2 == 0 {
					x.insert(i, fmt.Sprint(i))
				}
			}
			docs, err := films.GetMany(x.ctx, x.db, all...)
			x.must(err)
			x.same("answers", len(docs), 1000)
			for i, d := range docs {
				want := 999 - i
				if (d != nil) != (want%2 == 0) || d != nil && d.Value.Title != fmt.Sprint(want) {
					x.Fatalf("answer %d: got %+v", i, d)
				}
			}
		}},
	}
}

func reopenTests() []test {
	return []test{
		{"all that was acknowledged is there again", func(x *tc) {
			x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: osier.KeepAll, Schema: 3}))
			x.story()
			x.graft("a2", "one", "2-a", "1-x")
			x.graft("a2", "two", "2-b", "1-x")
			doc, err := films.Get(x.ctx, x.db, "b")
			x.must(err)
			_, err = films.Attach(x.ctx, x.db, "b", doc.Rev, "x", "text/plain", strings.NewReader("bytes"))
			x.must(err)
			_, err = x.store.CreateDB(x.ctx, "second")
			x.must(err)
			show := func() (out []string) {
				info, err := x.db.Info(x.ctx)
				x.must(err)
				out = append(out, fmt.Sprint(info.UUID, info.Created.UTC(), info.LastSeq))
				for _, c := range info.Collections {
					out = append(out, fmt.Sprint(c.Name, c.Settings, c.Count, c.Deleted, c.LastSeq, c.BodyBytes))
				}
				for _, c := range collect(x, x.db.Watch(x.ctx, &osier.Feed{Parts: osier.WithBody | osier.WithConflicts | osier.WithAncestors})) {
					out = append(out, fmt.Sprint(showChange(c), c.Rev, c.Conflicts, c.Ancestors, string(c.Body), c.Attachments, c.Time.UTC()))
				}
				for _, tx := range collect(x, x.db.Transactions(x.ctx, 0, 0)) {
					out = append(out, fmt.Sprint(tx.First, tx.Last, tx.Time.UTC(), tx.Changes))
				}
				for _, v := range collect(x, films.Versions(x.ctx, x.db, "b")) {
					out = append(out, fmt.Sprint(v.Rev, v.Seq, v.Value))
				}
				names, err := x.store.Databases(x.ctx)
				x.must(err)
				return append(out, names...)
			}
			before := show()
			for range 3 {
				x.reopen()
				x.same("state", show(), before)
			}
			x.same("bytes", x.fetch("b", "x", 0, -1), "bytes")
		}},
		{"sequences and made ids go on", func(x *tc) {
			first, err := films.Insert(x.ctx, x.db, film{})
			x.must(err)
			x.reopen()
			second, err := films.Insert(x.ctx, x.db, film{})
			x.must(err)
			x.same("sequence", second.Seq, osier.Seq(2))
			if second.ID == first.ID {
				x.Fatalf("id %v twice", first.ID)
			}
		}},
		{"a retry is recognised by the next process", func(x *tc) {
			send := func() *osier.Result {
				b := &osier.Batch{Session: "s", Number: 1}
				_, err := films.Insert(x.ctx, b, film{})
				x.must(err)
				res, err := x.db.Commit(x.ctx, b)
				x.must(err)
				return res
			}
			first := send()
			x.reopen()
			x.same("answer", send(), first)
		}},
		{"pins are gone, dropped databases stay dropped", func(x *tc) {
			x.insert("a", "1")
			pinned, _ := x.pin()
			_, err := x.store.CreateDB(x.ctx, "other")
			x.must(err)
			x.must(x.store.DropDB(x.ctx, "other"))
			x.reopen()
			_, err = drain(x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryScan, Collection: "films", Pin: pinned}))
			x.kind(err, osier.KindGap)
			names, err := x.store.Databases(x.ctx)
			x.must(err)
			x.same("databases", names, []string{"shop"})
		}},
		{"a feed resumes where it was", func(x *tc) {
			x.story()
			x.reopen()
			x.same("changes", x.changes(&osier.Feed{Since: 4}), []string{"films/c@5 deleted", "films/a@6"})
			x.insert("z", "")
			x.same("changes", x.changes(&osier.Feed{Since: 6}), []string{"films/z@7"})
		}},
		{"an unknown staged blob of an earlier process is refused", func(x *tc) {
			a, err := x.db.Backend().Stage(x.ctx, "shop", strings.NewReader("x"))
			x.must(err)
			x.reopen()
			_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{
				Kind: osier.OpPut, Collection: "films", Codec: osier.TagJSON, Body: []byte(`{}`),
				Attachments: []osier.AttachmentRef{{Name: "x", Staged: a.Blob}},
			}}})
			x.kind(err, osier.KindInvalid)
		}},
	}
}
