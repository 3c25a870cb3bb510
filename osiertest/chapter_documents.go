package osiertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/osierdb/osier"
)

func documentTests() []test {
	return []test{
		{"an inserted document is read back with id, revision, sequence and time", func(x *tc) {
			put := x.insert("a", "Alien")
			got, err := films.Get(x.ctx, x.db, "a")
			x.must(err)
			x.same("value", got.Value, film{Title: "Alien"})
			x.same("revision", got.Rev, put.Rev)
			x.same("sequences", []osier.Seq{put.Seq, got.Seq}, []osier.Seq{1, 1})
			x.same("id", got.ID, osier.MustID("a"))
			if got.Time.IsZero() || got.Time.Nanosecond()%1e6 != 0 {
				x.Fatalf("time %v: want one to the millisecond", got.Time)
			}
		}},
		{"a document without an id gets one, 16 letters in order of time", madeIDs},
		{"a natural id is taken from the document", func(x *tc) {
			byYear := osier.NewCollection("years", osier.CollectionOptions[film]{ID: func(f film) any { return f.Year }})
			doc, err := byYear.Insert(x.ctx, x.db, film{"Alien", 1979})
			x.must(err)
			x.same("id", doc.ID, osier.MustID(1979))
			_, err = byYear.Insert(x.ctx, x.db, film{"Mad Max", 1979})
			x.kind(err, osier.KindConflict)
			got, err := byYear.Get(x.ctx, x.db, 1979)
			x.must(err)
			x.same("title", got.Value.Title, "Alien")
		}},
		{"inserting over a live document is ErrConflict and changes nothing", func(x *tc) {
			x.insert("a", "Alien")
			_, err := films.InsertWithID(x.ctx, x.db, "a", film{Title: "Aliens"})
			x.kind(err, osier.KindConflict)
			x.same("title", x.title(x.db, "a"), "Alien")
			info, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("sequence", info.LastSeq, osier.Seq(1))
		}},
		{"an update needs the present revision", func(x *tc) {
			first := x.insert("a", "Alien")
			next := first
			next.Value.Title = "Aliens"
			second, err := films.Update(x.ctx, x.db, next)
			x.must(err)
			x.same("generation", second.Rev.Generation(), uint64(2))
			_, err = films.Update(x.ctx, x.db, first)
			x.kind(err, osier.KindConflict)
			x.same("title", x.title(x.db, "a"), "Aliens")
			_, err = films.Update(x.ctx, x.db, osier.Doc[film]{ID: osier.MustID("none"), Rev: first.Rev})
			x.kind(err, osier.KindConflict)
			_, err = films.Update(x.ctx, x.db, osier.Doc[film]{ID: osier.MustID("a")})
			x.kind(err, osier.KindConflict)
		}},
		{"overwrite needs a document, upsert does not", func(x *tc) {
			_, err := films.Overwrite(x.ctx, x.db, "a", film{Title: "Alien"})
			x.kind(err, osier.KindNotFound)
			_, err = films.Upsert(x.ctx, x.db, "a", film{Title: "Alien"})
			x.must(err)
			_, err = films.Upsert(x.ctx, x.db, "a", film{Title: "Aliens"})
			x.must(err)
			doc, err := films.Overwrite(x.ctx, x.db, "a", film{Title: "Alien 3"})
			x.must(err)
			x.same("generation", doc.Rev.Generation(), uint64(3))
			x.same("title", x.title(x.db, "a"), "Alien 3")
			x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
			_, err = films.Overwrite(x.ctx, x.db, "a", film{})
			x.kind(err, osier.KindDeleted)
		}},
		{"a deleted document is ErrDeleted and ErrNotFound, and can be continued", deletedDocument},
		{"deleting checks the revision, and needs something to delete", func(x *tc) {
			x.kind(films.Delete(x.ctx, x.db, "a", osier.Rev{}), osier.KindNotFound)
			first := x.insert("a", "Alien")
			second, err := films.Update(x.ctx, x.db, first)
			x.must(err)
			x.kind(films.Delete(x.ctx, x.db, "a", first.Rev), osier.KindConflict)
			x.must(films.Delete(x.ctx, x.db, "a", second.Rev))
			x.kind(films.Delete(x.ctx, x.db, "a", second.Rev), osier.KindConflict)
			x.kind(films.Delete(x.ctx, x.db, "a", revOf(x.leaves("a")[0])), osier.KindConflict)
			x.kind(films.Delete(x.ctx, x.db, "a", osier.Rev{}), osier.KindDeleted)
		}},
		{"modify reads, changes and writes, again when somebody else came first", modify},
		{"get many keeps the order, repeats, and nil for what is not there", func(x *tc) {
			x.insert("a", "Alien")
			x.insert("b", "Brazil")
			x.insert("c", "Casablanca")
			x.must(films.Delete(x.ctx, x.db, "c", osier.Rev{}))
			docs, err := films.GetMany(x.ctx, x.db, "b", "none", "a", "c", "b")
			x.must(err)
			var titles []string
			for _, d := range docs {
				if d == nil {
					titles = append(titles, "-")
				} else {
					titles = append(titles, d.Value.Title)
				}
			}
			x.same("titles", titles, []string{"Brazil", "-", "Alien", "-", "Brazil"})
			docs, err = films.GetMany(x.ctx, x.db)
			x.must(err)
			x.same("none", len(docs), 0)
		}},
		{"what is not there is missing, empty or zero, with or without a collection", func(x *tc) {
			for range 2 {
				_, err := films.Get(x.ctx, x.db, "none")
				x.kind(err, osier.KindNotFound)
				if errors.Is(err, osier.ErrDeleted) {
					x.Fatal("a document that never was is not a deleted one")
				}
				x.same("list", len(collect(x, films.List(x.ctx, x.db, nil))), 0)
				n, err := films.Count(x.ctx, x.db)
				x.must(err)
				x.same("count", n, uint64(0))
				x.schema(films)
			}
		}},
		{"list options choose what is shown", listOptions},
		{"a listing shows one state whatever is written meanwhile", func(x *tc) {
			for i := range 100 {
				x.insert(i, "before")
			}
			n := 0
			for doc, err := range films.List(x.ctx, x.db, nil) {
				x.must(err)
				if n == 0 {
					x.must(films.Delete(x.ctx, x.db, 50, osier.Rev{}))
					_, err := films.Upsert(x.ctx, x.db, 60, film{Title: "after"})
					x.must(err)
					x.insert(1000, "after")
				}
				x.same("id", doc.ID, osier.MustID(n))
				x.same("title", doc.Value.Title, "before")
				n++
			}
			x.same("rows", n, 100)
		}},
		{"a listing that is broken off leaves the store usable", func(x *tc) {
			for i := range 10 {
				x.insert(i, "x")
			}
			for range 50 {
				for _, err := range films.List(x.ctx, x.db, nil) {
					x.must(err)
					break
				}
			}
			x.must(films.Delete(x.ctx, x.db, 3, osier.Rev{}))
		}},
		{"count is exact through every kind of change", func(x *tc) {
			want := func(n uint64) {
				x.Helper()
				got, err := films.Count(x.ctx, x.db)
				x.must(err)
				x.same("count", got, n)
			}
			x.insert("a", "1")
			x.insert("b", "1")
			want(2)
			_, err := films.Upsert(x.ctx, x.db, "a", film{Title: "2"})
			x.must(err)
			want(2)
			x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
			want(1)
			x.insert("a", "3")
			want(2)
		}},
	}
}

func madeIDs(x *tc) {
	var before string
	for range 200 {
		doc, err := films.Insert(x.ctx, x.db, film{})
		x.must(err)
		id, ok := doc.ID.Text()
		if !ok || len(id) != 16 || id <= before {
			x.Fatalf("id %q after %q: want 16 letters, ascending", id, before)
		}
		before = id
		_, err = films.Get(x.ctx, x.db, id)
		x.must(err)
	}
}

func deletedDocument(x *tc) {
	first := x.insert("a", "Alien")
	x.must(films.Delete(x.ctx, x.db, "a", first.Rev))
	_, err := films.Get(x.ctx, x.db, "a")
	x.kind(err, osier.KindDeleted)
	if !errors.Is(err, osier.ErrNotFound) || !errors.Is(err, osier.ErrDeleted) {
		x.Fatalf("want an error that is both: %v", err)
	}
	rows := collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryGet, Collection: "films", IDs: []osier.ID{first.ID}}))
	row := rows[0]
	if !row.Missing || !row.Deleted || row.Rev.Generation() != 2 || row.Seq != 2 || row.ID != first.ID {
		x.Fatalf("got %+v, want the deletion as a missing row", row)
	}
	rows = collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryGet, Collection: "films", IDs: []osier.ID{first.ID}, Deleted: true}))
	if row := rows[0]; row.Missing || !row.Deleted || row.Rev.Generation() != 2 {
		x.Fatalf("got %+v, want the deletion as a row", row)
	}
	again := x.insert("a", "Alien")
	x.same("generation", again.Rev.Generation(), uint64(3))
	x.same("title", x.title(x.db, "a"), "Alien")
	x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
	over, err := films.Upsert(x.ctx, x.db, "a", film{Title: "Aliens"})
	x.must(err)
	x.same("generation", over.Rev.Generation(), uint64(5))
}

func modify(x *tc) {
	x.insert("a", "Alien")
	calls := 0
	doc, err := films.Modify(x.ctx, x.db, "a", func(f *film) error {
		if calls++; calls == 1 {
			_, err := films.Upsert(x.ctx, x.db, "a", film{Title: "Alien", Year: 1979})
			return err
		}
		f.Title += "!"
		return nil
	})
	x.must(err)
	x.same("calls", calls, 2)
	x.same("value", doc.Value, film{"Alien!", 1979})
	x.same("generation", doc.Rev.Generation(), uint64(3))
	_, err = films.Modify(x.ctx, x.db, "none", func(*film) error { return nil })
	x.kind(err, osier.KindNotFound)
	stop := errors.New("stop")
	_, err = films.Modify(x.ctx, x.db, "a", func(*film) error { return stop })
	if err != stop {
		x.Fatalf("got %v, want the function's own error", err)
	}
	x.same("title", x.title(x.db, "a"), "Alien!")
}

func listOptions(x *tc) {
	var all []string
	for i := range 10 {
		id := fmt.Sprintf("k%d", i)
		all = append(all, id)
		x.insert(id, id)
	}
	x.insert("other", "other")
	x.must(films.Delete(x.ctx, x.db, "k5", osier.Rev{}))
	live := slices.Delete(slices.Clone(all), 5, 6)
	reversed := slices.Clone(live)
	slices.Reverse(reversed)
	cases := []struct {
		what string
		o    osier.ListOptions
		want []string
	}{
		{"from and until", osier.ListOptions{From: "k2", Until: "k4"}, []string{"k2", "k3"}},
		{"from only", osier.ListOptions{From: "k8"}, []string{"k8", "k9", "other"}},
		{"until only", osier.ListOptions{Until: "k2"}, []string{"k0", "k1"}},
		{"bounds that are no ids", osier.ListOptions{From: "k11", Until: "k22"}, []string{"k2"}},
		{"an empty range", osier.ListOptions{From: "k4", Until: "k4"}, []string{}},
		{"a range the wrong way round", osier.ListOptions{From: "k4", Until: "k2"}, []string{}},
		{"prefix", osier.ListOptions{Prefix: "k"}, live},
		{"prefix and from", osier.ListOptions{Prefix: "k", From: "k7"}, []string{"k7", "k8", "k9"}},
		{"prefix and until", osier.ListOptions{Prefix: "k", Until: "k1"}, []string{"k0"}},
		{"reverse", osier.ListOptions{Prefix: "k", Reverse: true}, reversed},
		{"reverse within bounds", osier.ListOptions{From: "k1", Until: "k4", Reverse: true}, []string{"k3", "k2", "k1"}},
		{"limit", osier.ListOptions{Limit: 3}, []string{"k0", "k1", "k2"}},
		{"skip and limit", osier.ListOptions{Skip: 4, Limit: 2}, []string{"k4", "k6"}},
		{"skip and limit in reverse", osier.ListOptions{Skip: 1, Limit: 2, Reverse: true}, []string{"k9", "k8"}},
		{"skip beyond the end", osier.ListOptions{Skip: 100}, []string{}},
		{"deleted too", osier.ListOptions{From: "k4", Until: "k7", Deleted: true}, []string{"k4", "k5", "k6"}},
	}
	for _, c := range cases {
		x.same(c.what, ids(x, x.db, &c.o), c.want)
	}
	for _, d := range collect(x, films.List(x.ctx, x.db, &osier.ListOptions{NoBody: true, Deleted: true})) {
		if d.Value != (film{}) || d.Rev.IsZero() || d.Seq == 0 || d.Deleted != (d.ID.String() == "k5") {
			x.Fatalf("without bodies: got %+v", d)
		}
	}
	_, err := drain(films.List(x.ctx, x.db, &osier.ListOptions{Prefix: 7}))
	x.kind(err, osier.KindInvalid)
}
