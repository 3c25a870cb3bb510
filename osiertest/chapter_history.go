package osiertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/osierdb/osier"
)

func historyTests() []test {
	return []test{
		{"without history superseded bodies are dropped, their revisions known", func(x *tc) {
			x.same("titles", x.superseded(osier.CollectionOptions[film]{}), []string{"5", "-", "-", "-", "-"})
		}},
		{"a history of n keeps the last n superseded bodies", func(x *tc) {
			x.same("titles", x.superseded(osier.CollectionOptions[film]{History: 2}), []string{"5", "4", "3", "-", "-"})
		}},
		{"of one generation the history drops the body that loses, whatever the form of digests", func(x *tc) {
			x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: 1}))
			const raw = "1-ff00000000000000000000000000000f"
			for _, path := range [][]string{{"1-text"}, {raw}, {"2-b", "1-text"}, {"2-a", raw}} {
				x.must(films.Graft(x.ctx, x.db, "a", revsOf(path...), film{Title: path[0]}))
			}
			doc, err := films.GetRev(x.ctx, x.db, "a", revOf(raw))
			x.must(err)
			x.same("title", doc.Value.Title, raw)
			_, err = films.GetRev(x.ctx, x.db, "a", revOf("1-text"))
			x.kind(err, osier.KindNotFound)
		}},
		{"a history of all keeps every body", func(x *tc) {
			x.same("titles", x.superseded(osier.CollectionOptions[film]{History: osier.KeepAll}), []string{"5", "4", "3", "2", "1"})
		}},
		{"versions are the leaves, the winner leading, then ancestors", versionOrder},
		{"versions know when they were written", func(x *tc) {
			x.superseded(osier.CollectionOptions[film]{History: 1})
			seq := osier.Seq(5)
			for _, v := range collect(x, films.Versions(x.ctx, x.db, "a")) {
				if v.Seq != seq || v.Time.IsZero() {
					x.Fatalf("version %v: sequence %d at %v, want sequence %d", v.Rev, v.Seq, v.Time, seq)
				}
				seq--
			}
		}},
		{"versions of what is not there are ErrNotFound", func(x *tc) {
			rows := collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryVersions, Collection: "films", IDs: []osier.ID{osier.MustID("none")}}))
			if len(rows) != 1 || !rows[0].Missing {
				x.Fatalf("got %+v, want one missing row", rows)
			}
			_, err := drain(films.Versions(x.ctx, x.db, "none"))
			x.kind(err, osier.KindNotFound)
		}},
		{"a document is got at a revision, kept, dropped or unknown", func(x *tc) {
			first := x.insert("a", "1")
			second, err := films.Update(x.ctx, x.db, osier.Doc[film]{ID: first.ID, Rev: first.Rev, Value: film{Title: "2"}})
			x.must(err)
			doc, err := films.GetRev(x.ctx, x.db, "a", second.Rev)
			x.must(err)
			x.same("title", doc.Value.Title, "2")
			_, err = films.GetRev(x.ctx, x.db, "a", first.Rev)
			x.kind(err, osier.KindNotFound)
			_, err = films.GetRev(x.ctx, x.db, "a", revOf("1-unknown"))
			x.kind(err, osier.KindNotFound)
			rows := collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryRevs, Collection: "films", IDs: []osier.ID{first.ID},
				Revs: []osier.Rev{first.Rev, revOf("1-unknown"), second.Rev}, Parts: osier.WithBody}))
			x.same("rows", len(rows), 3)
			if r := rows[0]; r.Missing || r.Body != nil || r.Rev != first.Rev {
				x.Fatalf("a known revision whose body is dropped: got %+v", r)
			}
			if r := rows[1]; !r.Missing || r.Rev != revOf("1-unknown") {
				x.Fatalf("an unknown revision: got %+v", r)
			}
			if r := rows[2]; r.Missing || string(r.Body) != `{"title":"2"}` {
				x.Fatalf("the present revision: got %+v", r)
			}
		}},
		{"a deletion is a version of the history", func(x *tc) {
			x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: osier.KeepAll}))
			x.insert("a", "1")
			x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
			x.insert("a", "3")
			var got []string
			for _, v := range collect(x, films.Versions(x.ctx, x.db, "a")) {
				got = append(got, fmt.Sprintf("%d %v %s", v.Rev.Generation(), v.Deleted, v.Value.Title))
			}
			x.same("versions", got, []string{"3 false 3", "2 true ", "1 false 1"})
		}},
		{"a document is read as of every sequence", asOfSequences},
		{"as of a sequence the winner is the one of that time", asOfWinner},
		{"as of a version whose body is dropped is ErrGap", func(x *tc) {
			x.insert("a", "1")
			_, err := films.Upsert(x.ctx, x.db, "a", film{Title: "2"})
			x.must(err)
			_, err = films.AsOf(x.ctx, x.db, "a", 1)
			x.kind(err, osier.KindGap)
			doc, err := films.AsOf(x.ctx, x.db, "a", 2)
			x.must(err)
			x.same("title", doc.Value.Title, "2")
		}},
		{"a document is read as of every time", asOfTimes},
		{"times never go back, also if the clock does", clockGoesBack},
		{"executed transactions are listed by sequence", transactionList},
	}
}

// superseded writes the versions 1 to 5 of a document and lists their titles,
// newest first, "-" for one whose body is not kept.
func (x *tc) superseded(o osier.CollectionOptions[film]) (titles []string) {
	x.Helper()
	x.schema(osier.NewCollection("films", o))
	for i := 1; i <= 5; i++ {
		_, err := films.Upsert(x.ctx, x.db, "a", film{Title: fmt.Sprint(i)})
		x.must(err)
	}
	for _, v := range collect(x, films.Versions(x.ctx, x.db, "a")) {
		if v.Value.Title == "" {
			v.Value.Title = "-"
		}
		titles = append(titles, v.Value.Title)
	}
	return titles
}

func versionOrder(x *tc) {
	x.graft("a", "1", "1-a")
	x.graft("a", "2b", "2-b", "1-a")
	x.graft("a", "2c", "2-c", "1-a")
	x.graft("a", "4d", "4-d", "3-d", "2-b", "1-a")
	x.graftDeletion("a", "5-e", "4-e", "3-e")
	x.graft("a", "1z", "1-z")
	var got []string
	for _, v := range collect(x, films.Versions(x.ctx, x.db, "a")) {
		got = append(got, fmt.Sprint(v.Rev, " ", v.Value.Title))
	}
	x.same("versions", got, []string{"4-d 4d", "2-c 2c", "1-z 1z", "5-e ", "4-e ", "3-e ", "3-d ", "2-b ", "1-a "})
}

func asOfSequences(x *tc) {
	x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: osier.KeepAll}))
	x.insert("other", "1")
	x.insert("a", "2")
	_, err := films.Upsert(x.ctx, x.db, "a", film{Title: "3"})
	x.must(err)
	x.insert("more", "4")
	x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
	x.insert("a", "6")
	for seq, want := range []string{"not found", "not found", "2", "3", "3", "deleted", "6", "6"} {
		doc, err := films.AsOf(x.ctx, x.db, "a", osier.Seq(seq))
		got := doc.Value.Title
		if err != nil {
			got = osier.KindOf(err).String()
		}
		x.same(fmt.Sprint("as of ", seq), got, want)
	}
}

func asOfWinner(x *tc) {
	x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: osier.KeepAll}))
	x.graft("a", "first", "2-b", "1-a")
	x.graft("a", "loser", "2-a", "1-a")
	x.graft("a", "winner", "3-a", "2-a", "1-a")
	x.graftDeletion("a", "4-a", "3-a", "2-a", "1-a")
	for seq, want := range map[osier.Seq]string{1: "first", 2: "first", 3: "winner", 4: "first"} {
		doc, err := films.AsOf(x.ctx, x.db, "a", seq)
		x.must(err)
		x.same(fmt.Sprint("as of ", seq), doc.Value.Title, want)
	}
}

// handClock is a clock that tests set.
type handClock struct {
	mu  sync.Mutex
	now time.Time // guarded by mu
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// timed returns the case on a store whose clock the test holds.
func (x *tc) timed() (*tc, *handClock) {
	x.Helper()
	if x.h.NewAt == nil {
		x.Skip("the store's time cannot be chosen")
	}
	c := &handClock{now: time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)}
	return newCaseOn(x.T, x.h, x.h.NewAt(x.T, c.Now)), c
}

func asOfTimes(x *tc) {
	x, clock := x.timed()
	x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: osier.KeepAll}))
	start := clock.Now()
	for i := range 4 {
		clock.move(time.Second)
		_, err := films.Upsert(x.ctx, x.db, "a", film{Title: fmt.Sprint(i)})
		x.must(err)
	}
	clock.move(time.Second)
	x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
	cases := []struct {
		after time.Duration
		want  string
	}{
		{0, "not found"}, {999 * time.Millisecond, "not found"}, {time.Second, "0"}, {1999 * time.Millisecond, "0"},
		{2 * time.Second, "1"}, {4500 * time.Millisecond, "3"}, {5 * time.Second, "deleted"}, {time.Hour, "deleted"},
	}
	for _, c := range cases {
		doc, err := films.AsOfTime(x.ctx, x.db, "a", start.Add(c.after))
		got := doc.Value.Title
		if err != nil {
			got = osier.KindOf(err).String()
		}
		x.same(fmt.Sprint("as of ", c.after), got, c.want)
	}
}

func clockGoesBack(x *tc) {
	x, clock := x.timed()
	clock.move(time.Second + 1234567*time.Nanosecond)
	x.insert("a", "1")
	clock.move(-time.Hour)
	x.insert("b", "2")
	clock.move(2 * time.Hour)
	x.insert("c", "3")
	var times []time.Time
	for _, d := range collect(x, films.List(x.ctx, x.db, nil)) {
		times = append(times, d.Time.UTC())
	}
	at := time.Date(2024, 5, 1, 12, 0, 1, 1e6, time.UTC)
	x.same("times", times, []time.Time{at, at, at.Add(time.Hour)})
}

func transactionList(x *tc) {
	x.insert("a", "1")
	b := &osier.Batch{Session: "s", Number: 7}
	for _, id := range []string{"z", "y"} {
		_, err := films.InsertWithID(x.ctx, b, id, film{Title: id})
		x.must(err)
	}
	x.must(films.Delete(x.ctx, b, "a", osier.Rev{}))
	res, err := x.db.Commit(x.ctx, b)
	x.must(err)
	_, err = films.Overwrite(x.ctx, x.db, "none", film{}) // fails, is no transaction
	x.kind(err, osier.KindNotFound)
	x.insert("b", "5")
	show := func(txs []osier.Transaction) (out []string) {
		for _, tx := range txs {
			line := fmt.Sprintf("%d-%d %s/%d:", tx.First, tx.Last, tx.Session, tx.Number)
			for _, c := range tx.Changes {
				line += fmt.Sprintf(" %s/%v@%d,%v", c.Collection, c.ID, c.Seq, c.Deleted)
			}
			out = append(out, line)
		}
		return out
	}
	all := []string{
		"1-1 /0: films/a@1,false",
		"2-4 s/7: films/z@2,false films/y@3,false films/a@4,true",
		"5-5 /0: films/b@5,false",
	}
	x.same("all", show(collect(x, x.db.Transactions(x.ctx, 0, 0))), all)
	x.same("after 1", show(collect(x, x.db.Transactions(x.ctx, 1, 0))), all[1:])
	x.same("after the middle of one", show(collect(x, x.db.Transactions(x.ctx, 3, 0))), all[1:])
	x.same("after 4", show(collect(x, x.db.Transactions(x.ctx, 4, 0))), all[2:])
	x.same("limited", show(collect(x, x.db.Transactions(x.ctx, 0, 2))), all[:2])
	x.same("at the end", show(collect(x, x.db.Transactions(x.ctx, 5, 0))), []string(nil))
	tx := collect(x, x.db.Transactions(x.ctx, 1, 1))[0]
	x.same("revision", tx.Changes[0].Rev, res.Ops[0].Rev)
	x.same("time", tx.Time.Equal(res.Time), true)
	var reversed []osier.Seq
	for _, row := range collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryTransactions, Reverse: true})) {
		reversed = append(reversed, row.Tx.First)
	}
	x.same("reversed", reversed, []osier.Seq{5, 2, 1})
}
