package osiertest

import (
	"fmt"

	"github.com/osierdb/osier"
)

func changeTests() []test {
	return []test{
		{"each document is shown once, at its latest change, in order", func(x *tc) {
			x.story()
			x.same("films", x.changes(&osier.Feed{Collection: "films"}), []string{"films/b@3", "films/c@5 deleted", "films/a@6"})
			x.same("all", x.changes(&osier.Feed{}), []string{"films/b@3", "raws/r@4", "films/c@5 deleted", "films/a@6"})
			x.same("nothing asked", x.changes(nil), []string{"films/b@3", "raws/r@4", "films/c@5 deleted", "films/a@6"})
		}},
		{"a feed resumed from any sequence misses none", func(x *tc) {
			x.story()
			all := x.changes(nil)
			skipped := []int{0, 0, 0, 1, 2, 3, 4, 4} // how many of them lie at or before a sequence
			for since, n := range skipped {
				x.same(fmt.Sprint("since ", since), x.changes(&osier.Feed{Since: osier.Seq(since)}), all[n:])
			}
			x.same("since now", x.changes(&osier.Feed{Since: osier.SeqNow}), []string{})
		}},
		{"a limit counts rows", func(x *tc) {
			x.story()
			all := x.changes(nil)
			for limit := 1; limit <= 5; limit++ {
				x.same(fmt.Sprint("limit ", limit), x.changes(&osier.Feed{Limit: limit}), all[:min(limit, 4)])
			}
			x.same("since and limit", x.changes(&osier.Feed{Since: 3, Limit: 1}), all[1:2])
			x.same("of one collection", x.changes(&osier.Feed{Collection: "raws", Limit: 1}), all[1:2])
		}},
		{"a descending feed begins with the newest", func(x *tc) {
			x.story()
			x.same("all", x.changes(&osier.Feed{Descending: true}), []string{"films/a@6", "films/c@5 deleted", "raws/r@4", "films/b@3"})
			x.same("limited", x.changes(&osier.Feed{Descending: true, Limit: 2, Collection: "films"}), []string{"films/a@6", "films/c@5 deleted"})
			for _, mode := range []osier.FeedMode{osier.FeedWait, osier.FeedLive} {
				_, err := drain(x.db.Watch(x.ctx, &osier.Feed{Descending: true, Mode: mode}))
				x.kind(err, osier.KindInvalid)
			}
		}},
		{"a feed of single documents shows those only", func(x *tc) {
			x.story()
			only := []osier.ID{osier.MustID("a"), osier.MustID("none"), osier.MustID("c")}
			x.same("two", x.changes(&osier.Feed{Collection: "films", IDs: only}), []string{"films/c@5 deleted", "films/a@6"})
			x.same("limited", x.changes(&osier.Feed{Collection: "films", IDs: only, Limit: 1}), []string{"films/c@5 deleted"})
			x.same("since", x.changes(&osier.Feed{Collection: "films", IDs: only, Since: 5}), []string{"films/a@6"})
			_, err := drain(x.db.Watch(x.ctx, &osier.Feed{IDs: only}))
			x.kind(err, osier.KindInvalid)
		}},
		{"a mark tells how far a feed has come", func(x *tc) {
			x.story()
			marks := func(f osier.Feed) []string {
				f.Marks = true
				return x.changes(&f)
			}
			x.same("all", marks(osier.Feed{Since: 4}), []string{"films/c@5 deleted", "films/a@6", "mark@6"})
			x.same("filtered", marks(osier.Feed{Collection: "films", IDs: []osier.ID{osier.MustID("b")}}), []string{"films/b@3", "mark@6"})
			x.same("nothing new", marks(osier.Feed{Since: 6}), []string{"mark@6"})
			x.same("now", marks(osier.Feed{Since: osier.SeqNow}), []string{"mark@6"})
			x.same("an unknown collection", marks(osier.Feed{Collection: "none"}), []string{"mark@6"})
			x.same("waiting", marks(osier.Feed{Since: 5, Mode: osier.FeedWait}), []string{"films/a@6", "mark@6"})
		}},
		{"bodies, conflicts and ancestors are shown if asked for", func(x *tc) {
			x.graft("a", "one", "2-a", "1-x")
			x.graft("a", "two", "2-b", "1-x")
			row := collect(x, x.db.Watch(x.ctx, &osier.Feed{}))[0]
			if row.Body != nil || row.Conflicts != nil || row.Ancestors != nil || row.Rev.String() != "2-b" {
				x.Fatalf("got %+v, want the revision alone", row)
			}
			row = collect(x, x.db.Watch(x.ctx, &osier.Feed{Parts: osier.WithBody | osier.WithConflicts | osier.WithAncestors}))[0]
			x.same("body", string(row.Body), `{"title":"two"}`)
			x.same("conflicts", row.Conflicts, []osier.Leaf{{Rev: revOf("2-a")}})
			x.same("ancestors", texts(row.Ancestors), []string{"1-x"})
		}},
		{"a change of a losing branch shows the document anew", func(x *tc) {
			x.graft("a", "winner", "3-a", "2-a", "1-a")
			x.insert("b", "2")
			x.graft("a", "loser", "1-z")
			rows := collect(x, x.db.Watch(x.ctx, nil))
			x.same("rows", len(rows), 2)
			last := rows[1]
			x.same("last", fmt.Sprintf("%v %v @%d", last.ID, last.Rev, last.Seq), "a 3-a @3")
		}},
		{"a predicate chooses, and a limit counts what passed", func(x *tc) {
			for i := range 6 {
				x.insert(i, fmt.Sprint(i))
			}
			odd := func(d osier.Doc[film]) bool { return d.Seq%2 == 1 }
			var got []osier.Seq
			for _, c := range collect(x, films.Changes(x.ctx, x.db, &osier.Feed{Limit: 2, Parts: osier.WithBody}, odd)) {
				got = append(got, c.Seq)
				x.same("title", c.Value.Title, fmt.Sprint(c.Seq-1))
			}
			x.same("sequences", got, []osier.Seq{1, 3})
			x.same("all", len(collect(x, films.Changes(x.ctx, x.db, nil, nil))), 6)
		}},
		{"a feed shows one state whatever is written meanwhile", func(x *tc) {
			for i := range 50 {
				x.insert(i, "")
			}
			n := 0
			for c, err := range x.db.Watch(x.ctx, nil) {
				x.must(err)
				if n++; n == 1 {
					x.insert("new", "")
					x.must(films.Delete(x.ctx, x.db, 40, osier.Rev{}))
				}
				if c.Deleted {
					x.Fatalf("row %d shows a deletion that came later", n)
				}
			}
			x.same("rows", n, 50)
		}},
	}
}

// story makes some changes: a, b, b again, another collection, c deleted, a
// again. c takes sequence 5 within a batch that inserts nothing else.
func (x *tc) story() {
	x.Helper()
	x.insert("a", "1")
	x.insert("b", "2")
	put := func(id string) {
		_, err := films.Upsert(x.ctx, x.db, id, film{Title: "again"})
		x.must(err)
	}
	put("b")
	_, err := raws.InsertWithID(x.ctx, x.db, "r", osier.Raw(`{}`))
	x.must(err)
	x.graftDeletion("c", "2-c", "1-c")
	put("a")
}

// changes lists what a feed shows until it ends.
func (x *tc) changes(f *osier.Feed) []string {
	x.Helper()
	out := []string{}
	for _, c := range collect(x, x.db.Watch(x.ctx, f)) {
		out = append(out, showChange(c))
	}
	return out
}

func showChange(c osier.Change) string {
	if c.Mark {
		return fmt.Sprint("mark@", c.Seq)
	}
	s := fmt.Sprintf("%s/%v@%d", c.Collection, c.ID, c.Seq)
	if c.Deleted {
		s += " deleted"
	}
	return s
}
