package osiertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/osierdb/osier"
)

func revisionTests() []test {
	return []test{
		{"JSON bodies have CouchDB's revisions", couchRevisions},
		{"a deletion with a body and attachments have CouchDB's revisions", couchMore},
		{"the id is not part of a revision, the parent is", func(x *tc) {
			a, b := x.insert("a", "same"), x.insert("b", "same")
			x.same("revisions", a.Rev, b.Rev)
			a2, err := films.Update(x.ctx, x.db, a)
			x.must(err)
			if a2.Rev == a.Rev {
				x.Fatalf("revision %v twice", a.Rev)
			}
		}},
		{"bodies that are no JSON object have a revision by their bytes and codec", func(x *tc) {
			bin := osier.NewCollection("bin", osier.CollectionOptions[osier.Raw]{Codec: osier.Binary})
			a, err := bin.Upsert(x.ctx, x.db, "a", osier.Raw(`{}`))
			x.must(err)
			b, err := raws.Upsert(x.ctx, x.db, "b", osier.Raw(`{}`))
			x.must(err)
			c, err := raws.Upsert(x.ctx, x.db, "c", osier.Raw(`[1]`))
			x.must(err)
			d, err := raws.Upsert(x.ctx, x.db, "d", osier.Raw(`[2]`))
			x.must(err)
			e, err := raws.Upsert(x.ctx, x.db, "e", osier.Raw(`[1]`))
			x.must(err)
			if a.Rev == b.Rev || c.Rev == d.Rev || c.Rev != e.Rev {
				x.Fatalf("revisions %v %v %v %v %v", a.Rev, b.Rev, c.Rev, d.Rev, e.Rev)
			}
		}},
		{"who expects a live revision does not go on from a deletion", liveRevision},
		{"every revision tells its ancestors", func(x *tc) {
			x.graft("a", "1", "3-c", "2-b", "1-a")
			x.graft("a", "2", "2-z", "1-a")
			rows := collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryRevs, Collection: "films", IDs: []osier.ID{osier.MustID("a")},
				Revs: revsOf("2-z", "3-c", "2-b"), Parts: osier.WithAncestors}))
			x.same("of a loser", texts(rows[0].Ancestors), []string{"1-a"})
			x.same("of the winner", texts(rows[1].Ancestors), []string{"2-b", "1-a"})
			x.same("of an ancestor", texts(rows[2].Ancestors), []string{"1-a"})
		}},
		{"a grafted revision is taken with its ancestry", graftAncestry},
		{"a known revision grafted again changes nothing", func(x *tc) {
			x.graft("a", "new", "3-c", "2-b", "1-a")
			for _, path := range [][]string{{"3-c", "2-b", "1-a"}, {"3-c"}, {"2-b", "1-a"}, {"1-a"}} {
				res := x.graft("a", "other body", path...)
				x.same("sequence", res.Seq, osier.Seq(1))
				x.same("revision", res.Rev.String(), path[0])
			}
			x.same("leaves", x.leaves("a"), []string{"3-c"})
			x.same("title", x.title(x.db, "a"), "new")
			info, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("sequence", info.LastSeq, osier.Seq(1))
		}},
		{"a graft on a leaf replaces it, beside it makes a conflict", func(x *tc) {
			x.graft("a", "1", "1-a")
			x.graft("a", "2", "2-b", "1-a")
			x.same("leaves", x.leaves("a"), []string{"2-b"})
			x.graft("a", "2c", "2-c", "1-a")
			x.same("leaves", x.leaves("a"), []string{"2-c", "2-b"})
			x.graft("a", "5", "5-e", "4-d", "3-d", "2-b")
			x.same("leaves", x.leaves("a"), []string{"5-e", "2-c"})
			x.graft("a", "root", "1-z")
			x.same("leaves", x.leaves("a"), []string{"5-e", "2-c", "1-z"})
		}},
		{"the winner is live, then of the highest generation, then of the highest digest", winnerRule},
		{"the same grafts in any order give the same document", graftOrders},
		{"every leaf keeps its body, and is read by its revision", func(x *tc) {
			x.graft("a", "one", "1-a")
			x.graft("a", "two", "1-b")
			x.graft("a", "three", "1-c")
			for rev, title := range map[string]string{"1-a": "one", "1-b": "two", "1-c": "three"} {
				doc, err := films.GetRev(x.ctx, x.db, "a", revOf(rev))
				x.must(err)
				x.same(rev, doc.Value.Title, title)
			}
		}},
		{"conflicts are listed in descending order", func(x *tc) {
			x.graft("a", "1", "1-a")
			x.graft("a", "2", "2-b", "1-b")
			x.graft("a", "3", "1-c")
			x.graft("a", "4", "1-d")
			x.graftDeletion("a", "4-e", "3-e")
			got, err := films.Conflicts(x.ctx, x.db, "a")
			x.must(err)
			x.same("conflicts", texts(got), []string{"1-d", "1-c", "1-a"})
			rows := collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryScan, Collection: "films", Parts: osier.WithConflicts}))
			var all []string
			for _, l := range rows[0].Conflicts {
				all = append(all, fmt.Sprint(l.Rev, " ", l.Deleted))
			}
			x.same("leaves", all, []string{"1-d false", "1-c false", "1-a false", "4-e true"})
			_, err = films.Conflicts(x.ctx, x.db, "none")
			x.kind(err, osier.KindNotFound)
		}},
		{"an update of a losing leaf extends that branch", func(x *tc) {
			x.graft("a", "winner", "3-a", "2-a", "1-a")
			x.graft("a", "loser", "1-b")
			_, err := films.Update(x.ctx, x.db, osier.Doc[film]{ID: osier.MustID("a"), Rev: revOf("1-b"), Value: film{Title: "2"}})
			x.must(err)
			x.same("title", x.title(x.db, "a"), "winner")
			leaves := x.leaves("a")
			x.same("winner", leaves[0], "3-a")
			if len(leaves) != 2 || !strings.HasPrefix(leaves[1], "2-") {
				x.Fatalf("leaves %v", leaves)
			}
		}},
		{"a conflict is ended by deleting the losers", func(x *tc) {
			x.graft("a", "one", "2-a", "1-x")
			x.graft("a", "two", "2-b", "1-x")
			losers, err := films.Conflicts(x.ctx, x.db, "a")
			x.must(err)
			for _, r := range losers {
				x.must(films.Delete(x.ctx, x.db, "a", r))
			}
			losers, err = films.Conflicts(x.ctx, x.db, "a")
			x.must(err)
			x.same("conflicts", len(losers), 0)
			x.same("title", x.title(x.db, "a"), "two")
		}},
		{"when the winner is deleted the next live leaf wins", func(x *tc) {
			x.graft("a", "one", "2-a", "1-x")
			x.graft("a", "two", "2-b", "1-x")
			x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
			x.same("title", x.title(x.db, "a"), "one")
			n, err := films.Count(x.ctx, x.db)
			x.must(err)
			x.same("count", n, uint64(1))
			x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
			_, err = films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindDeleted)
		}},
		{"a deleted leaf can be extended by a live revision", func(x *tc) {
			x.graft("a", "one", "2-a", "1-x")
			x.graftDeletion("a", "2-b", "1-x")
			_, err := films.Update(x.ctx, x.db, osier.Doc[film]{ID: osier.MustID("a"), Rev: revOf("2-b"), Value: film{Title: "back"}})
			x.must(err)
			x.same("title", x.title(x.db, "a"), "back")
		}},
		{"a grafted deletion of an unknown document is a deleted document", func(x *tc) {
			x.graftDeletion("a", "2-b", "1-a")
			_, err := films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindDeleted)
			info, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("deleted", info.Collections[0].Deleted, uint64(1))
		}},
		{"a path that is not contiguous is ErrInvalid", func(x *tc) {
			for _, path := range [][]string{{}, {"3-c", "1-a"}, {"2-b", "2-a"}, {"1-a", "2-b"}, {"2-b", ""}} {
				err := films.Graft(x.ctx, x.db, "a", revsOf(path...), film{})
				x.kind(err, osier.KindInvalid)
			}
			_, err := films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindNotFound)
		}},
		{"as many ancestors are known as the collection's RevLimit says", revLimit},
		{"paths much longer than what is kept end in branches of one tree", longPaths},
	}
}

func revOf(text string) osier.Rev {
	r, err := osier.ParseRev(text)
	if err != nil {
		panic(err) // the suite's own constants
	}
	return r
}

func revsOf(list ...string) []osier.Rev {
	var out []osier.Rev
	for _, s := range list {
		out = append(out, revOf(s))
	}
	return out
}

func texts(revs []osier.Rev) []string {
	out := []string{}
	for _, r := range revs {
		out = append(out, r.String())
	}
	return out
}

// graft adds a foreign revision of a film.
func (x *tc) graft(id, title string, path ...string) osier.OpResult {
	x.Helper()
	var b osier.Batch
	x.must(films.Graft(x.ctx, &b, id, revsOf(path...), film{Title: title}))
	res, err := x.db.Commit(x.ctx, &b)
	x.must(err)
	return res.Ops[0]
}

func (x *tc) graftDeletion(id string, path ...string) {
	x.Helper()
	x.must(films.GraftDeletion(x.ctx, x.db, id, revsOf(path...)))
}

// leaves lists a film's leaves, the winner first.
func (x *tc) leaves(id string) []string {
	x.Helper()
	rows := collect(x, x.db.Query(x.ctx, &osier.Query{
		Kind: osier.QueryGet, Collection: "films", IDs: []osier.ID{osier.MustID(id)}, Parts: osier.WithConflicts, Deleted: true,
	}))
	out := []string{rows[0].Rev.String()}
	for _, l := range rows[0].Conflicts {
		out = append(out, l.Rev.String())
	}
	return out
}

// ancestors lists those of a film's winner, newest first.
func (x *tc) ancestors(id string) []string {
	x.Helper()
	rows := collect(x, x.db.Query(x.ctx, &osier.Query{
		Kind: osier.QueryGet, Collection: "films", IDs: []osier.ID{osier.MustID(id)}, Parts: osier.WithAncestors, Deleted: true,
	}))
	return texts(rows[0].Ancestors)
}

func liveRevision(x *tc) {
	doc, err := raws.Insert(x.ctx, x.db, osier.Raw(`{}`))
	x.must(err)
	op := osier.Op{Kind: osier.OpPut, Collection: raws.Name(), ID: doc.ID, Expect: osier.ExpectLiveRev, Rev: doc.Rev, Deleted: true}
	res, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{op}})
	x.must(err)
	op.Rev, op.Deleted, op.Codec, op.Body = res.Ops[0].Rev, false, osier.TagJSON, []byte(`{}`)
	_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{op}})
	x.kind(err, osier.KindConflict)
	op.Expect = osier.ExpectRev
	_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{op}})
	x.must(err)
}

func couchRevisions(x *tc) {
	for _, c := range couchChains() {
		doc, err := raws.Insert(x.ctx, x.db, osier.Raw(c.body))
		x.must(err)
		got := []string{doc.Rev.String()}
		if len(c.revs) > 1 {
			second, err := raws.Update(x.ctx, x.db, doc)
			x.must(err)
			x.must(raws.Delete(x.ctx, x.db, doc.ID, second.Rev))
			fourth, err := raws.Upsert(x.ctx, x.db, doc.ID, osier.Raw(c.body))
			x.must(err)
			ancestors := collect(x, x.db.Query(x.ctx, &osier.Query{
				Kind: osier.QueryGet, Collection: "raws", IDs: []osier.ID{doc.ID}, Parts: osier.WithAncestors,
			}))[0].Ancestors
			x.same("first ancestor of "+c.body, ancestors[2].String(), c.revs[0])
			got = append(got, second.Rev.String(), ancestors[0].String(), fourth.Rev.String())
		}
		x.same("revisions of "+c.body, got, c.revs)
		back, err := raws.Get(x.ctx, x.db, doc.ID)
		x.must(err)
		x.same("body", string(back.Value), c.body)
	}
}

func couchMore(x *tc) {
	put := func(op osier.Op) string {
		x.Helper()
		op.Kind, op.Collection, op.Codec = osier.OpPut, "raws", osier.TagJSON
		res, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{op}})
		x.must(err)
		return res.Ops[0].Rev.String()
	}
	ref := func(name, contentType, body string) osier.AttachmentRef {
		a, err := x.db.Backend().Stage(x.ctx, "shop", strings.NewReader(body))
		x.must(err)
		return osier.AttachmentRef{Name: name, ContentType: contentType, Staged: a.Blob}
	}
	id := osier.MustID("why")
	x.same("first", put(osier.Op{ID: id, Body: []byte(`{"a":1}`)}), "1-23202479633c2b380f79507a776743d5")
	x.same("deletion with a body", put(osier.Op{ID: id, Deleted: true, Body: []byte(`{"why":"gone"}`)}), "2-14870346349153af58e0323682f9d4ce")
	x.same("one attachment", put(osier.Op{Body: []byte(`{}`), Attachments: []osier.AttachmentRef{
		ref("a.bin", "application/octet-stream", "hello"),
	}}), "1-8c161e6ebc477eb9060fcacc36b6c836")
	x.same("two attachments", put(osier.Op{Body: []byte(`{"x":1}`), Attachments: []osier.AttachmentRef{
		ref("b.bin", "image/png", strings.Repeat("B", 100)), ref("a.bin", "application/octet-stream", ""),
	}}), "1-3ca6cc91ea3e72c24555e6b2f7f25c3f")
	x.same("an attachment alone", put(osier.Op{Body: []byte(`{}`), Attachments: []osier.AttachmentRef{
		ref("file.bin", "application/x-thing", "standalone"),
	}}), "1-933333d05a782f7d423deef0d5ef77f0")
}

func graftAncestry(x *tc) {
	x.graft("a", "three", "3-c", "2-b", "1-a")
	doc, err := films.Get(x.ctx, x.db, "a")
	x.must(err)
	x.same("revision", doc.Rev.String(), "3-c")
	x.same("title", doc.Value.Title, "three")
	x.same("ancestors", x.ancestors("a"), []string{"2-b", "1-a"})
	next, err := films.Update(x.ctx, x.db, doc)
	x.must(err)
	x.same("generation", next.Rev.Generation(), uint64(4))
	x.same("ancestors", x.ancestors("a"), []string{"3-c", "2-b", "1-a"})
}

func winnerRule(x *tc) {
	x.graft("a", "low", "1-zz")
	x.same("first", x.leaves("a")[0], "1-zz")
	x.graft("a", "high", "2-a", "1-b")
	x.same("generation beats digest", x.leaves("a")[0], "2-a")
	x.graft("a", "higher", "2-b", "1-b")
	x.same("digest breaks the tie", x.leaves("a")[0], "2-b")
	x.graft("a", "ten", "10-a", "9-a")
	x.same("generations are numbers", x.leaves("a")[0], "10-a")
	x.graftDeletion("a", "99-z", "98-z")
	x.same("a live leaf beats a deleted one", x.leaves("a")[0], "10-a")
	x.same("title", x.title(x.db, "a"), "ten")
	raw := "2-" + strings.Repeat("b0", 16)
	x.graft("b", "raw", raw, "1-b")
	x.graft("b", "text", "2-abc", "1-b")
	x.same("digests compare by their bytes", x.leaves("b")[0], raw)
}

// graftOrders plays the same grafts in several orders on a document each.
func graftOrders(x *tc) {
	paths := [][]string{
		{"1-a"}, {"2-b", "1-a"}, {"2-c", "1-a"}, {"4-d", "3-d", "2-b", "1-a"}, {"3-e", "2-c", "1-a"}, {"1-z"}, {"4-f", "3-d", "2-b", "1-a"},
	}
	var want []string
	for seed := range 12 {
		id := fmt.Sprint("doc", seed)
		order := slices.Clone(paths)
		for i := range order { // a different shuffle each
			j := (i*5 + seed*3 + 1) % len(order)
			order[i], order[j] = order[j], order[i]
		}
		for _, p := range order {
			x.graft(id, p[0], p...)
		}
		got := append(x.leaves(id), x.ancestors(id)...)
		if want == nil {
			want = got
		}
		x.same(fmt.Sprintf("leaves and ancestors after order %v", order), got, want)
		x.same("title", x.title(x.db, id), "4-f")
	}
	x.same("leaves", want, []string{"4-f", "4-d", "3-e", "1-z", "3-d", "2-b", "1-a"})
}

func revLimit(x *tc) {
	x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{RevLimit: 3}))
	x.insert("a", "0")
	var all []string
	for i := range 8 {
		before, err := films.Get(x.ctx, x.db, "a")
		x.must(err)
		all = append([]string{before.Rev.String()}, all...)
		_, err = films.Upsert(x.ctx, x.db, "a", film{Title: fmt.Sprint(i + 1)})
		x.must(err)
		x.same("ancestors", x.ancestors("a"), all[:min(3, len(all))])
	}
	x.graft("b", "grafted", "6-f", "5-e", "4-d", "3-c", "2-b", "1-a")
	x.same("ancestors of a graft", x.ancestors("b"), []string{"5-e", "4-d", "3-c"})
	var versions []string
	for _, v := range collect(x, films.Versions(x.ctx, x.db, "b")) {
		versions = append(versions, v.Rev.String())
	}
	x.same("versions of a graft", versions, []string{"6-f", "5-e", "4-d", "3-c"})
}

// longPaths grafts branches with a common past of which most is not kept: a
// store that looked for each forgotten ancestor by itself would take minutes.
func longPaths(x *tc) {
	x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{RevLimit: 100}))
	const length = 6000
	var past []string
	for g := length - 1; g > 0; g-- {
		past = append(past, fmt.Sprintf("%d-common%d", g, g))
	}
	tips := []string{fmt.Sprintf("%d-a", length), fmt.Sprintf("%d-b", length)}
	for _, tip := range tips {
		x.graft("a", tip, append([]string{tip}, past...)...)
	}
	x.same("leaves", x.leaves("a"), []string{tips[1], tips[0]})
	x.same("ancestors", x.ancestors("a"), past[:100])
	revs := make([]osier.Rev, len(past))
	for i, text := range past {
		rev, err := osier.ParseRev(text)
		x.must(err)
		revs[i] = rev
	}
	known := 0
	for row, err := range x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryRevs, Collection: "films", IDs: []osier.ID{osier.MustID("a")}, Revs: revs}) {
		x.must(err)
		if !row.Missing {
			known++
		}
	}
	x.same("known ancestors", known, 100)
	x.graft("a", "short", append([]string{fmt.Sprintf("%d-c", length-50)}, past[50:]...)...)
	x.same("leaves with a shorter branch", x.leaves("a"), []string{tips[1], tips[0], fmt.Sprintf("%d-c", length-50)})
}
