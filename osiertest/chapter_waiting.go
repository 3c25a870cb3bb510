package osiertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/osierdb/osier"
)

func waitingTests() []test {
	return []test{
		{"a long poll shows what there is and ends", func(x *tc) {
			x.story()
			x.same("changes", x.changes(&osier.Feed{Mode: osier.FeedWait, Since: 4}), []string{"films/c@5 deleted", "films/a@6"})
			x.same("limited", x.changes(&osier.Feed{Mode: osier.FeedWait, Limit: 1}), []string{"films/b@3"})
		}},
		{"a long poll with nothing to show waits for the next change", func(x *tc) {
			x.insert("a", "1")
			_, all := follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedWait, Since: 1}))
			x.insert("b", "2")
			o := receive(x, all)
			x.must(o.err)
			if len(o.got) != 1 || showChange(o.got[0]) != "films/b@2" {
				x.Fatalf("got %+v", o.got)
			}
		}},
		{"a long poll of single documents waits for one of them", func(x *tc) {
			_, all := follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedWait, Collection: "films", IDs: []osier.ID{osier.MustID("x")}}))
			for i := range 5 {
				x.insert(i, "")
			}
			x.insert("x", "")
			o := receive(x, all)
			x.must(o.err)
			if len(o.got) != 1 || showChange(o.got[0]) != "films/x@6" {
				x.Fatalf("got %+v", o.got)
			}
		}},
		{"a live feed goes on from what there was to what comes", func(x *tc) {
			x.insert("a", "1")
			ctx, cancel := context.WithCancel(x.ctx)
			each, all := follow(x.db.Watch(ctx, &osier.Feed{Mode: osier.FeedLive}))
			x.same("first", showChange(receive(x, each)), "films/a@1")
			x.insert("b", "2")
			x.same("second", showChange(receive(x, each)), "films/b@2")
			x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
			x.same("third", showChange(receive(x, each)), "films/a@3 deleted")
			cancel()
			x.kind(receive(x, all).err, osier.KindCanceled)
		}},
		{"a live feed ends at its limit", func(x *tc) {
			_, all := follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedLive, Limit: 3}))
			for i := range 3 {
				x.insert(i, "")
			}
			o := receive(x, all)
			x.must(o.err)
			x.same("rows", len(o.got), 3)
		}},
		{"a live feed from now shows only what comes", func(x *tc) {
			x.insert("a", "1")
			each, _ := follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedLive, Since: osier.SeqNow, Marks: true, Limit: 1}))
			x.same("mark", showChange(receive(x, each)), "mark@1")
			x.insert("b", "2")
			x.same("row", showChange(receive(x, each)), "films/b@2")
		}},
		{"a live feed marks that it has caught up", func(x *tc) {
			x.insert("a", "1")
			each, _ := follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedLive, Marks: true, Limit: 3}))
			x.same("row", showChange(receive(x, each)), "films/a@1")
			x.same("mark", showChange(receive(x, each)), "mark@1")
			var b osier.Batch
			for _, id := range []string{"b", "c"} {
				_, err := films.InsertWithID(x.ctx, &b, id, film{})
				x.must(err)
			}
			_, err := x.db.Commit(x.ctx, &b)
			x.must(err)
			x.same("row", showChange(receive(x, each)), "films/b@2")
			x.same("row", showChange(receive(x, each)), "films/c@3")
		}},
		{"a feed of a collection goes on when that is dropped and made again", func(x *tc) {
			x.insert("a", "1")
			each, _ := follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedLive, Collection: "films", Limit: 2}))
			x.same("row", showChange(receive(x, each)), "films/a@1")
			x.must(x.db.DropCollection(x.ctx, "films"))
			x.insert("a", "2")
			x.same("row", showChange(receive(x, each)), "films/a@2")
		}},
		{"many waiters are all woken, and each misses nothing", manyWaiters},
		{"feeds that wait end with ErrNotFound when the database is dropped", func(x *tc) {
			wait, live := x.waitingFeeds()
			x.must(x.store.DropDB(x.ctx, "shop"))
			x.kind(receive(x, wait).err, osier.KindNotFound)
			x.kind(receive(x, live).err, osier.KindNotFound)
		}},
		{"feeds do not go over to a new database of the same name", func(x *tc) {
			wait, live := x.waitingFeeds()
			x.must(x.store.DropDB(x.ctx, "shop"))
			db, err := x.store.CreateDB(x.ctx, "shop")
			x.must(err)
			for i := range 3 {
				_, err := films.InsertWithID(x.ctx, db, i, film{})
				x.must(err)
			}
			x.kind(receive(x, live).err, osier.KindNotFound)
			// The long poll may have begun after all that.
			if o := receive(x, wait); o.err != nil {
				x.kind(o.err, osier.KindNotFound)
			}
		}},
		{"feeds that wait end with ErrClosed when the store is closed", func(x *tc) {
			wait, live := x.waitingFeeds()
			x.must(x.store.Close())
			x.kind(receive(x, wait).err, osier.KindClosed)
			x.kind(receive(x, live).err, osier.KindClosed)
		}},
		{"writers that race give one order, and a live feed shows it whole", racingWriters},
		{"a waiting feed sleeps until there is a change", sleepingFeed},
	}
}

// waitingFeeds starts a long poll and a live feed. The live one is known to wait
// when this returns.
func (x *tc) waitingFeeds() (wait, live <-chan outcome[osier.Change]) {
	x.Helper()
	x.insert("a", "1")
	_, wait = follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedWait, Since: 1}))
	each, live := follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedLive, Since: 1, Marks: true}))
	x.same("mark", showChange(receive(x, each)), "mark@1")
	return wait, live
}

func manyWaiters(x *tc) {
	waiters := x.h.Caps.Waiters
	if waiters == 0 {
		waiters = 200
	}
	const writes = 10
	var lives []<-chan outcome[osier.Change]
	var eaches []<-chan osier.Change
	for i := range waiters {
		f := &osier.Feed{Mode: osier.FeedLive, Marks: true, Limit: writes}
		if i%2 == 0 {
			f.Collection = "films"
		}
		each, live := follow(x.db.Watch(x.ctx, f))
		eaches, lives = append(eaches, each), append(lives, live)
	}
	for _, each := range eaches {
		x.same("mark", showChange(receive(x, each)), "mark@0")
	}
	for i := range writes {
		x.insert(i, "")
	}
	for _, live := range lives {
		o := receive(x, live)
		x.must(o.err)
		next := osier.Seq(1)
		for _, c := range o.got {
			if !c.Mark {
				x.same("sequence", c.Seq, next)
				next++
			}
		}
		x.same("last", next, osier.Seq(writes+1))
	}
}

func racingWriters(x *tc) {
	const writers, each = 8, 20
	_, all := follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedLive, Limit: writers * each}))
	var wg sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := films.InsertWithID(x.ctx, x.db, fmt.Sprint(w, "-", i), film{}); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		x.must(err)
	}
	o := receive(x, all)
	x.must(o.err)
	for i, c := range o.got {
		x.same("sequence", c.Seq, osier.Seq(i+1))
	}
	var again []string
	for _, c := range o.got {
		again = append(again, showChange(c))
	}
	x.same("the feed read later", x.changes(nil), again)
}

// sleepingFeed runs in a bubble whose time only moves when all in it sleep: a
// feed that polled would move it.
func sleepingFeed(x *tc) {
	if !x.h.Caps.Synctest {
		x.Skip("the store does not run in a bubble of its own time")
	}
	synctest.Test(x.T, func(t *testing.T) {
		s := x.h.New(t)
		defer s.Close()
		x := newCaseOn(t, x.h, s)
		_, all := follow(x.db.Watch(x.ctx, &osier.Feed{Mode: osier.FeedWait}))
		synctest.Wait() // the feed waits
		start := time.Now()
		x.insert("a", "1")
		o := <-all
		x.must(o.err)
		x.same("rows", len(o.got), 1)
		if d := time.Since(start); d > 100*time.Millisecond {
			x.Fatalf("the feed slept on for %v after the change", d)
		}
		ctx, cancel := context.WithTimeout(x.ctx, time.Hour)
		defer cancel()
		_, all = follow(x.db.Watch(ctx, &osier.Feed{Mode: osier.FeedWait, Since: 1}))
		x.kind((<-all).err, osier.KindCanceled)
		if d := time.Since(start); d != time.Hour {
			x.Fatalf("the feed ended after %v, want its context's hour", d)
		}
	})
}
