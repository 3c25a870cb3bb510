package osiertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"testing"
	"testing/synctest"

	"github.com/osierdb/osier"
)

func transactionTests() []test {
	return []test{
		{"a transaction's writes become visible together, when it has committed", func(x *tc) {
			x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
				if _, err := films.InsertWithID(x.ctx, tx, "a", film{Title: "A"}); err != nil {
					return err
				}
				if _, err := raws.InsertWithID(x.ctx, tx, "r", osier.Raw(`{}`)); err != nil {
					return err
				}
				_, err := films.Get(x.ctx, x.db, "a")
				x.kind(err, osier.KindNotFound)
				return nil
			}))
			x.same("title", x.title(x.db, "a"), "A")
			txs := collect(x, x.db.Transactions(x.ctx, 0, 0))
			x.same("transactions", len(txs), 1)
			x.same("changes", len(txs[0].Changes), 2)
		}},
		{"reads see one snapshot, and the commit notices that it is old", snapshotReads},
		{"a transaction that only reads never conflicts", func(x *tc) {
			x.insert("a", "1")
			calls := 0
			x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
				calls++
				x.same("title", x.title(tx, "a"), "1")
				_, err := films.Upsert(x.ctx, x.db, "a", film{Title: "2"})
				x.must(err)
				x.same("title", x.title(tx, "a"), "1")
				x.same("list", len(collect(x, films.List(x.ctx, tx, nil))), 1)
				return nil
			}))
			x.same("calls", calls, 1)
		}},
		{"write skew is caught", writeSkew},
		{"what others did is noticed exactly where it was looked at", lookedAt},
		{"dropping a collection is noticed by who read in it", droppedBelow},
		{"an error rolls back and comes out as it is", func(x *tc) {
			stop := errors.New("stop")
			err := x.db.Update(x.ctx, func(tx *osier.Tx) error {
				_, err := films.InsertWithID(x.ctx, tx, "a", film{})
				x.must(err)
				return stop
			})
			if err != stop {
				x.Fatalf("got %v, want the function's own error", err)
			}
			_, err = films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindNotFound)
		}},
		{"a transaction sees its own writes in get, list and count", ownWrites},
		{"several writes to a document are one change", foldedWrites},
		{"an upsert and a deletion of a new document leave nothing", func(x *tc) {
			x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
				_, err := films.Upsert(x.ctx, tx, "a", film{})
				x.must(err)
				return films.Delete(x.ctx, tx, "a", osier.Rev{})
			}))
			_, err := films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindNotFound)
		}},
		{"an upsert and a deletion of an old document delete it", func(x *tc) {
			x.insert("a", "1")
			x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
				_, err := films.Upsert(x.ctx, tx, "a", film{})
				x.must(err)
				return films.Delete(x.ctx, tx, "a", osier.Rev{})
			}))
			_, err := films.Get(x.ctx, x.db, "a")
			x.kind(err, osier.KindDeleted)
		}},
		{"expectations are judged at once, on what the transaction sees", txExpectations},
		{"deleting a deleted leaf fails at once, without another try", func(x *tc) {
			x.insert("a", "1")
			x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
			leaf := revOf(x.leaves("a")[0])
			calls := 0
			err := x.db.Update(x.ctx, func(tx *osier.Tx) error {
				calls++
				return films.Delete(x.ctx, tx, "a", leaf)
			})
			x.kind(err, osier.KindConflict)
			x.same("calls", calls, 1)
		}},
		{"a list with a limit in a transaction passes over its own deletions", func(x *tc) {
			for _, id := range []string{"a", "b", "c", "d"} {
				x.insert(id, id)
			}
			x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
				x.must(films.Delete(x.ctx, tx, "a", osier.Rev{}))
				x.same("limited", ids(x, tx, &osier.ListOptions{Limit: 2}), []string{"b", "c"})
				x.same("skipped", ids(x, tx, &osier.ListOptions{Skip: 1}), []string{"c", "d"})
				return nil
			}))
		}},
		{"a losing branch can be updated in a transaction", func(x *tc) {
			x.graft("a", "one", "2-a", "1-x")
			x.graft("a", "two", "2-b", "1-x")
			x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
				return films.Delete(x.ctx, tx, "a", revOf("2-a"))
			}))
			left, err := films.Conflicts(x.ctx, x.db, "a")
			x.must(err)
			x.same("conflicts", len(left), 0)
		}},
		{"a graft is refused in a transaction", func(x *tc) {
			err := x.db.Update(x.ctx, func(tx *osier.Tx) error {
				return films.Graft(x.ctx, tx, "a", revsOf("1-a"), film{})
			})
			x.kind(err, osier.KindUnsupported)
		}},
		{"a transaction is over when its function has returned", func(x *tc) {
			x.insert("a", "1")
			var late *osier.Tx
			x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error { late = tx; return nil }))
			_, err := films.Get(x.ctx, late, "a")
			x.kind(err, osier.KindInvalid)
			_, err = films.Upsert(x.ctx, late, "a", film{})
			x.kind(err, osier.KindInvalid)
		}},
		{"every way out of a transaction releases its pin", releasesPin},
		{"many writers of one counter lose no increment", func(x *tc) {
			counter := osier.NewCollection[int]("counters")
			_, err := counter.Upsert(x.ctx, x.db, "n", 0)
			x.must(err)
			const writers, each = 8, 10
			errs := make(chan error, writers)
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() {
					for range each {
						if err := increment(x.ctx, x.db, counter); err != nil {
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
			doc, err := counter.Get(x.ctx, x.db, "n")
			x.must(err)
			x.same("counter", doc.Value, writers*each)
			x.same("generation", doc.Rev.Generation(), uint64(writers*each+1))
		}},
		{"a pinned state lasts while it is used, and a minute without", pinLasts},
		{"a released or unknown pin is ErrGap", func(x *tc) {
			x.insert("a", "1")
			pinned, seq := x.pin()
			x.same("sequence", seq, osier.Seq(1))
			x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
			q := osier.Query{Kind: osier.QueryScan, Collection: "films", Pin: pinned}
			x.same("rows", len(collect(x, x.db.Query(x.ctx, &q))), 1)
			x.same("rows of unpin", len(collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryUnpin, Pin: pinned}))), 0)
			_, err := drain(x.db.Query(x.ctx, &q))
			x.kind(err, osier.KindGap)
			q.Pin = 1<<63 + 12345
			_, err = drain(x.db.Query(x.ctx, &q))
			x.kind(err, osier.KindGap)
		}},
	}
}

func increment(ctx context.Context, db *osier.DB, counter *osier.Collection[int]) error {
	for {
		err := db.Update(ctx, func(tx *osier.Tx) error {
			doc, err := counter.Get(ctx, tx, "n")
			if err != nil {
				return err
			}
			doc.Value++
			_, err = counter.Update(ctx, tx, doc)
			return err
		})
		if !errors.Is(err, osier.ErrConflict) {
			return err
		}
	}
}

// pin holds the present state.
func (x *tc) pin() (uint64, osier.Seq) {
	x.Helper()
	rows := collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryPin}))
	if len(rows) != 1 || rows[0].Pin == 0 {
		x.Fatalf("got %+v, want one row with a pin", rows)
	}
	return rows[0].Pin, rows[0].Seq
}

func snapshotReads(x *tc) {
	x.insert("a", "1")
	x.insert("b", "1")
	calls := 0
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		calls++
		a := x.title(tx, "a")
		if calls == 1 {
			for _, id := range []string{"a", "b"} {
				_, err := films.Upsert(x.ctx, x.db, id, film{Title: "2"})
				x.must(err)
			}
		}
		x.same("both of one state", x.title(tx, "b"), a)
		_, err := films.Upsert(x.ctx, tx, "sum", film{Title: a + a})
		return err
	}))
	x.same("calls", calls, 2)
	x.same("sum", x.title(x.db, "sum"), "22")
}

// writeSkew: each of two takes the other's place as the one who may leave.
func writeSkew(x *tc) {
	x.insert("ann", "on duty")
	x.insert("bob", "on duty")
	leave := func(me, other string, between func()) error {
		return x.db.Update(x.ctx, func(tx *osier.Tx) error {
			if x.title(tx, other) != "on duty" {
				return errors.New("the other has left")
			}
			between()
			_, err := films.Overwrite(x.ctx, tx, me, film{Title: "off"})
			return err
		})
	}
	err := leave("ann", "bob", func() { x.must(leave("bob", "ann", func() {})) })
	if err == nil {
		x.Fatal("both have left")
	}
	x.same("ann", x.title(x.db, "ann"), "on duty")
}

// lookedAt lets others write between a transaction's read and its commit, and
// counts whether the function ran again.
func lookedAt(x *tc) {
	list := func(o *osier.ListOptions) func(*osier.Tx) {
		return func(tx *osier.Tx) { collect(x, films.List(x.ctx, tx, o)) }
	}
	get := func(id string) func(*osier.Tx) {
		return func(tx *osier.Tx) { films.Get(x.ctx, tx, id) }
	}
	breakOff := func(tx *osier.Tx) {
		for range films.List(x.ctx, tx, nil) {
			break
		}
	}
	count := func(tx *osier.Tx) { films.Count(x.ctx, tx) }
	put := func(id string) func() {
		return func() {
			_, err := films.Upsert(x.ctx, x.db, id, film{Title: "theirs"})
			x.must(err)
		}
	}
	remove := func(id string) func() { return func() { x.must(films.Delete(x.ctx, x.db, id, osier.Rev{})) } }
	cases := []struct {
		what    string
		read    func(*osier.Tx)
		theirs  func()
		noticed bool
	}{
		{"a document read is changed", get("d1"), put("d1"), true},
		{"another document is changed", get("d1"), put("d2"), false},
		{"a document read is deleted", get("d1"), remove("d1"), true},
		{"an absent document appears", get("d15"), put("d15"), true},
		{"another absent document appears", get("d15"), put("d16"), false},
		{"a phantom in the range listed", list(&osier.ListOptions{From: "d2", Until: "d4"}), put("d25"), true},
		{"a phantom at the start of the range", list(&osier.ListOptions{From: "d2", Until: "d4"}), put("d2"), true},
		{"a write at the end of the range, which is not in it", list(&osier.ListOptions{From: "d2", Until: "d4"}), put("d4"), false},
		{"a phantom outside of the range", list(&osier.ListOptions{From: "d2", Until: "d4"}), put("d5"), false},
		{"a deletion in the range", list(&osier.ListOptions{From: "d2", Until: "d4"}), remove("d3"), true},
		{"a phantom in an empty range", list(&osier.ListOptions{From: "x", Until: "y"}), put("x5"), true},
		{"a phantom under a prefix", list(&osier.ListOptions{Prefix: "d"}), put("dzz"), true},
		{"a phantom beside a prefix", list(&osier.ListOptions{Prefix: "d"}), put("e"), false},
		{"a phantom after the limit was reached", list(&osier.ListOptions{Limit: 2}), put("d3"), false},
		{"a phantom before the limit was reached", list(&osier.ListOptions{Limit: 2}), put("d0"), true},
		{"a phantom before the limit was reached in reverse", list(&osier.ListOptions{Limit: 2, Reverse: true}), put("z"), true},
		{"a phantom after the limit was reached in reverse", list(&osier.ListOptions{Limit: 2, Reverse: true}), put("d2"), false},
		{"a phantom among what was skipped", list(&osier.ListOptions{Skip: 2, Limit: 1}), put("d11"), true},
		{"a phantom after a listing that was broken off", breakOff, put("d3"), false},
		{"a phantom before a listing was broken off", breakOff, put("d0"), true},
		{"a counted collection grows", count, put("new"), true},
		{"another collection grows", count, func() { raws.Insert(x.ctx, x.db, osier.Raw(`{}`)) }, false},
		{"a blind write is written over", func(*osier.Tx) {}, put("mine"), false},
	}
	for i, c := range cases {
		name := fmt.Sprint("case", i)
		var err error
		x.db, err = x.store.CreateDB(x.ctx, name)
		x.must(err)
		for d := 1; d <= 5; d++ {
			x.insert(fmt.Sprint("d", d), "")
		}
		calls := 0
		x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
			c.read(tx)
			if calls++; calls == 1 {
				c.theirs()
			}
			_, err := films.Upsert(x.ctx, tx, "mine", film{})
			return err
		}))
		x.same(c.what+": noticed", calls > 1, c.noticed)
	}
}

func ownWrites(x *tc) {
	for _, id := range []string{"b", "d", "f"} {
		x.insert(id, "old "+id)
	}
	show := func(r osier.Reader, o *osier.ListOptions) (out []string) {
		for _, d := range collect(x, films.List(x.ctx, r, o)) {
			out = append(out, d.ID.String()+"="+d.Value.Title)
		}
		return out
	}
	options := []*osier.ListOptions{
		nil, {Reverse: true}, {Limit: 2}, {Skip: 1, Limit: 2}, {Skip: 1, Limit: 2, Reverse: true}, {From: "b", Until: "e"}, {Skip: 2},
	}
	var inside [][]string
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		for _, id := range []string{"a", "c", "z"} {
			_, err := films.InsertWithID(x.ctx, tx, id, film{Title: "new " + id})
			x.must(err)
		}
		_, err := films.Overwrite(x.ctx, tx, "d", film{Title: "new d"})
		x.must(err)
		x.must(films.Delete(x.ctx, tx, "f", osier.Rev{}))
		x.same("get", x.title(tx, "d"), "new d")
		_, err = films.Get(x.ctx, tx, "f")
		x.kind(err, osier.KindDeleted)
		docs, err := films.GetMany(x.ctx, tx, "c", "f", "b", "none")
		x.must(err)
		x.same("many", []bool{docs[0] == nil, docs[1] == nil, docs[2] == nil, docs[3] == nil}, []bool{false, true, false, true})
		for _, o := range options {
			inside = append(inside, show(tx, o))
		}
		n, err := films.Count(x.ctx, tx)
		x.must(err)
		x.same("count", n, uint64(5))
		return nil
	}))
	for i, o := range options {
		x.same(fmt.Sprintf("list with %+v", o), inside[i], show(x.db, o))
	}
	n, err := films.Count(x.ctx, x.db)
	x.must(err)
	x.same("count", n, uint64(5))
}

func foldedWrites(x *tc) {
	x.insert("old", "1")
	x.insert("gone", "1")
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		doc, err := films.Get(x.ctx, tx, "old")
		x.must(err)
		for i := range 3 {
			doc.Value.Title = fmt.Sprint(i)
			_, err = films.Update(x.ctx, tx, doc)
			x.must(err)
		}
		again, err := films.Get(x.ctx, tx, "old")
		x.must(err)
		again.Value.Title += "!"
		_, err = films.Update(x.ctx, tx, again)
		x.must(err)

		x.must(films.Delete(x.ctx, tx, "gone", osier.Rev{}))
		_, err = films.InsertWithID(x.ctx, tx, "gone", film{Title: "back"})
		x.must(err)

		_, err = films.InsertWithID(x.ctx, tx, "fleeting", film{})
		x.must(err)
		x.must(films.Delete(x.ctx, tx, "fleeting", osier.Rev{}))

		_, err = films.InsertWithID(x.ctx, tx, "new", film{Title: "1"})
		x.must(err)
		_, err = films.InsertWithID(x.ctx, tx, "new", film{Title: "2"})
		x.kind(err, osier.KindConflict)
		_, err = films.Overwrite(x.ctx, tx, "new", film{Title: "3"})
		x.must(err)
		return nil
	}))
	var got []string
	for _, d := range collect(x, films.List(x.ctx, x.db, nil)) {
		got = append(got, fmt.Sprint(d.ID, " ", d.Value.Title, " ", d.Rev.Generation()))
	}
	x.same("documents", got, []string{"gone back 2", "new 3 1", "old 2! 2"})
	txs := collect(x, x.db.Transactions(x.ctx, 2, 0))
	x.same("transactions", len(txs), 1)
	x.same("changes", len(txs[0].Changes), 3)
}

func txExpectations(x *tc) {
	old := x.insert("a", "1")
	_, err := films.Upsert(x.ctx, x.db, "a", film{Title: "2"})
	x.must(err)
	x.insert("gone", "1")
	x.must(films.Delete(x.ctx, x.db, "gone", osier.Rev{}))
	calls := 0
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		calls++
		_, err := films.InsertWithID(x.ctx, tx, "a", film{})
		x.kind(err, osier.KindConflict)
		_, err = films.Update(x.ctx, tx, old)
		x.kind(err, osier.KindConflict)
		_, err = films.Overwrite(x.ctx, tx, "none", film{})
		x.kind(err, osier.KindNotFound)
		x.kind(films.Delete(x.ctx, tx, "none", osier.Rev{}), osier.KindNotFound)
		x.kind(films.Delete(x.ctx, tx, "gone", osier.Rev{}), osier.KindDeleted)
		x.kind(films.Delete(x.ctx, tx, "a", old.Rev), osier.KindConflict)
		return nil
	}))
	x.same("calls", calls, 1)
}

// pinSpy is a Backend around a Backend that counts the pins held.
type pinSpy struct {
	osier.Backend
	mu       sync.Mutex
	taken    int             // guarded by mu
	held     map[uint64]bool // guarded by mu
	commands int             // guarded by mu
}

func (s *pinSpy) Exec(ctx context.Context, c *osier.Command) (*osier.Result, error) {
	s.mu.Lock()
	s.commands++
	s.mu.Unlock()
	return s.Backend.Exec(ctx, c)
}

func (s *pinSpy) Query(ctx context.Context, q *osier.Query) iter.Seq2[osier.Row, error] {
	return func(yield func(osier.Row, error) bool) {
		for row, err := range s.Backend.Query(ctx, q) {
			if err == nil && q.Kind == osier.QueryPin {
				s.note(func() { s.taken, s.held[row.Pin] = s.taken+1, true })
			}
			if !yield(row, err) {
				return
			}
		}
		if q.Kind == osier.QueryUnpin {
			s.note(func() { delete(s.held, q.Pin) })
		}
	}
}

func (s *pinSpy) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func releasesPin(x *tc) {
	spy := &pinSpy{Backend: x.db.Backend(), held: map[uint64]bool{}}
	db, err := osier.NewStore(spy, nil).OpenDB(x.ctx, "shop")
	x.must(err)
	x.must(db.Update(x.ctx, func(*osier.Tx) error { return nil }))
	x.same("commands of an empty transaction", spy.commands, 0)
	if db.Update(x.ctx, func(*osier.Tx) error { return errors.New("stop") }) == nil {
		x.Fatal("want an error")
	}
	ctx, cancel := context.WithCancel(x.ctx)
	err = db.Update(ctx, func(tx *osier.Tx) error {
		_, err := films.Upsert(ctx, tx, "a", film{})
		cancel()
		return err
	})
	x.kind(err, osier.KindCanceled)
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				x.Fatalf("recovered %v, want the function's own panic", got)
			}
		}()
		db.Update(x.ctx, func(tx *osier.Tx) error {
			_, err := films.Upsert(x.ctx, tx, "b", film{})
			x.must(err)
			panic("boom")
		})
	}()
	x.same("pins taken", spy.taken, 4)
	x.same("pins still held", len(spy.held), 0)
	n, err := films.Count(x.ctx, x.db)
	x.must(err)
	x.same("documents", n, uint64(0))
}

func pinLasts(x *tc) {
	if !x.h.Caps.Synctest {
		x.Skip("the store does not run in a bubble of its own time")
	}
	synctest.Test(x.T, func(t *testing.T) {
		s := x.h.New(t)
		defer s.Close()
		x := newCaseOn(t, x.h, s)
		x.insert("a", "1")
		pinned, _ := x.pin()
		x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
		q := osier.Query{Kind: osier.QueryScan, Collection: "films", Pin: pinned}
		for range 5 {
			time.Sleep(50 * time.Second) // of the bubble's time
			x.same("rows", len(collect(x, x.db.Query(x.ctx, &q))), 1)
		}
		time.Sleep(3 * time.Minute)
		_, err := drain(x.db.Query(x.ctx, &q))
		x.kind(err, osier.KindGap)
	})
}

// droppedBelow: a collection that is dropped, and made again too, while a
// transaction runs takes away what that has read.
func droppedBelow(x *tc) {
	read := map[string]func(tx *osier.Tx) int{
		"a document": func(tx *osier.Tx) int {
			if _, err := films.Get(x.ctx, tx, "a"); err != nil {
				x.kind(err, osier.KindNotFound)
				return 0
			}
			return 1
		},
		"a range": func(tx *osier.Tx) int { return len(collect(x, films.List(x.ctx, tx, nil))) },
	}
	for name, look := range read {
		for _, again := range []bool{false, true} {
			x.insert("a", "A")
			var seen []int
			x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
				seen = append(seen, look(tx))
				if len(seen) == 1 {
					x.must(x.db.DropCollection(x.ctx, "films"))
					if again {
						x.insert("b", "B")
						x.must(films.Delete(x.ctx, x.db, "b", osier.Rev{}))
					}
				}
				_, err := raws.Upsert(x.ctx, tx, "n", osier.Raw(`{}`))
				return err
			}))
			x.same("documents seen in each try of one that reads "+name, seen, []int{1, 0})
		}
	}
	info, err := x.db.Info(x.ctx)
	x.must(err)
	x.same("drops", info.Drops, uint64(4))
}
