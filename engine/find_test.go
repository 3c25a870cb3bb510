package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/mango"
)

var numbers = osier.NewCollection[osier.Raw]("numbers")

// withNumbers fills a database with n documents {"n", "even", "tail", "group"}.
func withNumbers(t testing.TB, e *Engine, n int) *osier.DB {
	t.Helper()
	db, err := e.DB(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	var b osier.Batch
	for i := range n {
		body := fmt.Sprintf(`{"n":%d,"even":%v,"group":%d,"tail":"%03d"}`, i, i%2 == 0, i%10, (i*7919)%n)
		if _, err := numbers.InsertWithID(t.Context(), &b, fmt.Sprintf("%06d", i), osier.Raw(body)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return db
}

func makeIndex(t testing.TB, db *osier.DB, name string, filter osier.Selector, fields ...osier.SortField) {
	t.Helper()
	if _, err := db.CreateIndex(t.Context(), osier.Index{Name: name, Collection: "numbers", Fields: fields, Filter: filter}); err != nil {
		t.Fatal(err)
	}
	for _, err := range db.Query(t.Context(), &osier.Query{Kind: osier.QueryRefresh, Collection: "numbers", View: &osier.ViewQuery{Name: name}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func foundIDs(t testing.TB, db *osier.DB, s osier.Selector, o osier.FindOptions) ([]string, *osier.FindSummary) {
	t.Helper()
	o.Summary = new(osier.FindSummary)
	var ids []string
	for row, err := range db.Find(t.Context(), "numbers", s, &o) {
		if err != nil {
			t.Fatalf("find %v: %v", s, err)
		}
		ids = append(ids, row.ID.String())
	}
	return ids, o.Summary
}

// The planner takes what costs least, says so, and expects what it then sees.
func TestPlannerTakesTheCheapestWay(t *testing.T) {
	e := mustOpen(t, "", &Options{InMemory: true})
	defer e.Close()
	db := withNumbers(t, e, 2000)
	makeIndex(t, db, "by-n", nil, osier.Asc("n"))
	makeIndex(t, db, "by-group", nil, osier.Asc("group"), osier.Asc("n"))
	makeIndex(t, db, "even", osier.Where("even").Eq(true), osier.Asc("tail"))
	for _, c := range []struct {
		selector string
		o        osier.FindOptions
		index    string
		sorts    bool
		reverse  bool
		keys     uint64
		rows     uint64
	}{
		{`{"n":{"$lt":20}}`, osier.FindOptions{}, "by-n", false, false, 20, 20},
		{`{"n":{"$gte":100}}`, osier.FindOptions{}, "", false, false, 2000, 1900},
		{`{"group":3,"n":{"$gt":1900}}`, osier.FindOptions{}, "by-group", false, false, 10, 10},
		{`{"n":{"$gt":null}}`, osier.FindOptions{Sort: []osier.SortField{osier.Desc("n")}, Limit: 5}, "by-n", false, true, 2000, 5},
		{`{"group":3,"n":{"$gt":null}}`, osier.FindOptions{Sort: []osier.SortField{osier.Asc("n")}, Limit: 5}, "by-group", false, false, 200, 5},
		{`{"n":{"$lt":20}}`, osier.FindOptions{Sort: []osier.SortField{osier.Desc("tail")}}, "by-n", true, false, 20, 20},
		{`{"tail":{"$lt":"009"},"even":true}`, osier.FindOptions{}, "even", false, false, 5, 5},
		{`{"tail":{"$lt":"009"}}`, osier.FindOptions{}, "", false, false, 2000, 9},
		{`{"n":{"$lt":20}}`, osier.FindOptions{UseIndex: "_id"}, "", false, false, 2000, 20},
		{`{"n":{"$lt":20},"group":{"$gt":null}}`, osier.FindOptions{UseIndex: "by-group"}, "by-group", false, false, 2000, 20},
		{`{"nowhere":1}`, osier.FindOptions{}, "", false, false, 2000, 0},
		{`{"_id":{"$gte":"001990"}}`, osier.FindOptions{}, "", false, false, 0, 10},
	} {
		c.o.Explain = true
		ids, sum := foundIDs(t, db, osier.Mango(c.selector), c.o)
		p := sum.Plan
		if c.keys == 0 {
			c.keys = p.ExpectedKeys // of ids it is a guess
		}
		if p.Index != c.index || p.Sorts != c.sorts || p.Reverse != c.reverse || p.ExpectedKeys != c.keys || uint64(len(ids)) != c.rows {
			t.Errorf("%s with %+v: got %d rows by %+v, want %d by %q, sorts %v, reverse %v, keys %d", c.selector, c.o, len(ids), *p, c.rows, c.index, c.sorts, c.reverse, c.keys)
		}
		if c.index != "" && c.o.Limit == 0 && sum.KeysExamined != c.keys {
			t.Errorf("%s: saw %d rows of the index, want %d", c.selector, sum.KeysExamined, c.keys)
		}
		if c.index != "" && c.o.Limit > 0 && sum.KeysExamined > uint64(c.o.Limit) {
			t.Errorf("%s: saw %d rows of the index for %d", c.selector, sum.KeysExamined, c.o.Limit)
		}
		if p.Why == "" || len(p.Candidates) == 0 && c.o.UseIndex == "" {
			t.Errorf("%s: nothing is explained: %+v", c.selector, *p)
		}
	}
}

// A sort that has to be served by an index is refused without one.
func TestSortsByIndexAlone(t *testing.T) {
	e := mustOpen(t, "", &Options{InMemory: true})
	defer e.Close()
	db := withNumbers(t, e, 100)
	makeIndex(t, db, "by-group", nil, osier.Asc("group"), osier.Asc("n"), osier.Asc("tail"))
	for _, c := range []struct {
		selector string
		sort     string
		ok       bool
	}{
		{`{"group":{"$gt":null},"n":{"$gt":null},"tail":{"$gt":null}}`, "group", true},
		{`{"group":3,"n":{"$gt":null},"tail":{"$gt":null}}`, "n", true},
		{`{"group":{"$gt":3},"n":{"$gt":null},"tail":{"$gt":null}}`, "n", false},
		{`{"group":{"$gt":null}}`, "group", false}, // the index lacks documents
		{`{}`, "even", false},
		{`{}`, "_id", true},
	} {
		q := &osier.Query{Kind: osier.QueryFind, Collection: "numbers", Find: &osier.FindQuery{Selector: []byte(c.selector), Sort: []osier.SortField{osier.Asc(c.sort)}, SortByIndex: true}}
		n := 0
		var err error
		for _, err = range db.Query(t.Context(), q) {
			n++
		}
		var refused *osier.SelectorError
		if c.ok && err != nil || !c.ok && (!errors.As(err, &refused) || refused.Name != "no_usable_index") {
			t.Errorf("%s by %s: got %d rows, %v, want ok %v", c.selector, c.sort, n, err, c.ok)
		}
	}
}

// An index that is behind is brought up to date by the query, and a pinned state
// is seen through it as it was.
func TestIndexShowsTheStateThatIsRead(t *testing.T) {
	e := mustOpen(t, "", &Options{InMemory: true})
	defer e.Close()
	db := withNumbers(t, e, 500)
	makeIndex(t, db, "by-n", nil, osier.Asc("n"))
	use := osier.FindOptions{UseIndex: "by-n", Strict: true}
	selector := osier.Mango(`{"n":{"$lt":3}}`)
	err := db.Update(t.Context(), func(tx *osier.Tx) error {
		if _, err := numbers.Upsert(t.Context(), db, "000001", osier.Raw(`{"n":700}`)); err != nil {
			return err
		}
		if _, err := numbers.Upsert(t.Context(), db, "new", osier.Raw(`{"n":2.5}`)); err != nil {
			return err
		}
		if ids, _ := foundIDs(t, db, selector, use); !slices.Equal(ids, []string{"000000", "000002", "new"}) {
			t.Errorf("got %v now", ids)
		}
		var ids []string
		for row, err := range tx.Find(t.Context(), "numbers", selector, &use) {
			if err != nil {
				return err
			}
			ids = append(ids, row.ID.String())
		}
		if !slices.Equal(ids, []string{"000000", "000001", "000002"}) {
			t.Errorf("got %v in the transaction", ids)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A sort beyond its memory goes on in a temporary file, which goes with the
// query, however that ends; a failure of the file is the query's alone.
func TestSortsSpill(t *testing.T) {
	mem := vfs.NewMem()
	f := &failing{n: 1, stay: true, cause: syscall.ENOSPC}
	f.off.Store(true)
	e := mustOpen(t, "store", crashOptions(errorfs.Wrap(mem, f), 0))
	defer e.Close()
	db := withNumbers(t, e, 3000)
	files := func() int {
		names, err := mem.List("store/tmp")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return len(names)
	}
	o := osier.FindOptions{Sort: []osier.SortField{osier.Asc("tail"), osier.Desc("n")}}
	want, sum := foundIDs(t, db, osier.Mango(`{}`), o)
	if sum.SpilledBytes != 0 {
		t.Fatalf("spilled %d bytes of a small sort", sum.SpilledBytes)
	}
	o.SortBytes = 20_000
	got, sum := foundIDs(t, db, osier.Mango(`{}`), o)
	if !slices.Equal(got, want) || sum.SpilledBytes < 100_000 || files() != 0 {
		t.Fatalf("got %d rows, %d bytes spilled, %d files left; want %d rows in the same order", len(got), sum.SpilledBytes, files(), len(want))
	}
	o.Limit = 10 // fits into memory again
	got, sum = foundIDs(t, db, osier.Mango(`{}`), o)
	if !slices.Equal(got, want[:10]) || sum.SpilledBytes != 0 {
		t.Fatalf("got %v, %d bytes spilled, want %v", got, sum.SpilledBytes, want[:10])
	}
	o.Limit = 0
	for range db.Find(t.Context(), "numbers", osier.Mango(`{}`), &o) {
		if files() != 1 {
			t.Fatalf("%d files in the midst of the answer", files())
		}
		break
	}
	if files() != 0 {
		t.Fatal("a file was left by a loop that was broken off")
	}
	f.off.Store(false)
	var err error
	for _, err = range db.Find(t.Context(), "numbers", osier.Mango(`{}`), &o) {
		if err != nil {
			break
		}
	}
	f.off.Store(true)
	if osier.KindOf(err) != osier.KindFull {
		t.Fatalf("got %v from a full disk", err)
	}
	if _, err := numbers.InsertWithID(t.Context(), db, "after", osier.Raw(`{}`)); err != nil {
		t.Fatalf("a write after the failed sort: %v", err)
	}
}

// A reader's end ends a find, wherever it is, with the right Kind.
func TestFindsEndWithTheirContext(t *testing.T) {
	e := mustOpen(t, "", &Options{InMemory: true})
	defer e.Close()
	db := withNumbers(t, e, 2000)
	for _, sort := range [][]osier.SortField{nil, {osier.Asc("tail")}} {
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		n := 0
		for _, err = range db.Find(ctx, "numbers", osier.Mango(`{}`), &osier.FindOptions{Sort: sort}) {
			if n++; err != nil {
				break
			}
			if sort == nil || n == 1 {
				cancel()
			}
		}
		cancel()
		if sort == nil && osier.KindOf(err) != osier.KindCanceled {
			t.Errorf("got %v behind %d rows", err, n)
		}
	}
}

// However many scans there are, they hold one turn less than there are
// processors, none while its reader works, and every scan comes to its end.
func TestScansTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := turns{slots: make(chan struct{}, 2)}
		var holding, most atomic.Int64
		done := make(chan struct{})
		for range 16 {
			go func() {
				defer func() { done <- struct{}{} }()
				s := turn{turns: ts}
				for range 20 * scanSlice {
					had := s.held
					if had {
						holding.Add(-1)
					}
					if err := s.step(t.Context()); err != nil {
						t.Error(err)
					}
					if s.held {
						n := holding.Add(1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
					}
				}
				if s.held {
					holding.Add(-1)
				}
				s.pause()
			}()
		}
		for range 16 {
			<-done
		}
		if len(ts.slots) != 0 || most.Load() > 2 {
			t.Errorf("%d turns are still held, %d were at once", len(ts.slots), most.Load())
		}
	})
}

// A glance sees what decodeDocument does, or declines.
func FuzzGlance(f *testing.F) {
	for _, b := range seedRecords() {
		f.Add(b)
	}
	l := leaf{rev: osier.NewRev(1, [16]byte{3}), seq: 300, millis: 1_700_000_000_000}
	plain := document{winner: l, v: version{codec: osier.TagJSON, hasBody: true, body: []byte(`{"a":1}`)}}
	f.Add(appendDocument(nil, &plain))
	plain.winner.parent = osier.RevOf(2, "text", true)
	f.Add(appendDocument(nil, &plain))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, ok := glance(b)
		var d document
		if err := decodeDocument(b, &d); err != nil || !ok {
			return
		}
		if g.deleted != d.winner.deleted || g.codec != d.v.codec || !bytes.Equal(g.body, d.v.body) {
			t.Fatalf("record %x: got %+v, want %+v", b, g, d)
		}
	})
}

// A bookmark is read back as it was written; anything else is refused.
func FuzzBookmark(f *testing.F) {
	p := &place{order: order{fields: mango.Sort{{Path: "a"}, {Path: "b.c", Descending: true}}, reverse: true}, key: []byte{1, 2}, id: osier.MustID("x").Encoded()}
	f.Add(encodeBookmark(p, 7))
	f.Add(encodeBookmark(&place{id: osier.MustID(5).Encoded()}, 7))
	f.Add("")
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := decodeBookmark(text, 7)
		if err != nil {
			return
		}
		again, err := decodeBookmark(encodeBookmark(p, 7), 7)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(p) {
			t.Fatalf("%q: got %v, %v, want %v", text, again, err, p)
		}
		if _, err := decodeBookmark(text, 8); err == nil {
			t.Fatal("a bookmark led into another query")
		}
	})
}

// A forged bookmark, whatever it holds, shows rows of the collection or an error.
func TestForgedBookmarksAreHarmless(t *testing.T) {
	e := mustOpen(t, "", &Options{InMemory: true})
	defer e.Close()
	db := withNumbers(t, e, 50)
	makeIndex(t, db, "by-n", nil, osier.Asc("n"))
	s, err := mango.Compile([]byte(`{"n":{"$gt":5}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	mark := fingerprint(s.String(), nil, false)
	for _, p := range []*place{
		{id: osier.MustID("000010").Encoded()},
		{order: order{fields: mango.Sort{{Path: "n"}}}, key: []byte{0xff, 0xff}, id: osier.MustID("a").Encoded()},
		{order: order{fields: mango.Sort{{Path: "n"}}, reverse: true}, id: osier.MustID("a").Encoded()},
		{order: order{fields: mango.Sort{{Path: "tail"}, {Path: "_id", Descending: true}}}, key: []byte{1}, id: osier.MustID(1).Encoded()},
		{order: order{fields: mango.Sort{{Path: "a..b"}}}, id: osier.MustID("a").Encoded()},
	} {
		for row, err := range db.Find(t.Context(), "numbers", osier.Mango(`{"n":{"$gt":5}}`), &osier.FindOptions{Bookmark: encodeBookmark(p, mark)}) {
			if err == nil && strings.Compare(row.ID.String(), "000005") <= 0 {
				t.Errorf("%+v: got %v", p, row.ID)
			}
		}
	}
}
