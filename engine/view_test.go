package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
)

type part struct {
	Kind string `json:"kind"`
	N    int    `json:"n"`
}

var (
	parts    = osier.NewCollection[part]("parts")
	partSums = osier.NewFieldView[string, int]("sums", "parts", &osier.FieldViewOptions{Keys: []string{"kind"}, Value: "n", Reduce: "sum"})
	serials  = osier.NewFieldView[int, any]("serials", "parts", &osier.FieldViewOptions{Keys: []string{"n"}, Policy: osier.Unique})
)

// openViews opens a store in memory with a database that knows some views.
func openViews(t *testing.T, items ...osier.SchemaItem) (*Engine, *osier.DB) {
	t.Helper()
	e := openMem(t, "shop")
	db, err := e.OpenDB(t.Context(), "shop", osier.Schema(items...))
	if err != nil {
		t.Fatal(err)
	}
	return e, db
}

// putParts writes parts from..to-1 in one batch.
func putParts(t *testing.T, db *osier.DB, from, to int) {
	t.Helper()
	var b osier.Batch
	for i := from; i < to; i++ {
		if _, err := parts.Upsert(t.Context(), &b, i, part{Kind: fmt.Sprint("k", i%10), N: i}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestKeeperBoundsTheLag: a kept view is brought up to date after its time, and
// at once beyond its number of changes, with nobody asking.
func TestKeeperBoundsTheLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := mustOpen(t, "", &Options{InMemory: true, Durability: osier.Relaxed})
		defer mustClose(t, e)
		kept := osier.NewFieldView[string, int]("kept", "parts", &osier.FieldViewOptions{Keys: []string{"kind"}, Policy: osier.Never,
			Keep: osier.Keep{Changes: 50, After: time.Minute}})
		db, err := e.CreateDB(t.Context(), "shop", osier.Schema(parts, kept))
		if err != nil {
			t.Fatal(err)
		}
		rows := func() uint64 {
			synctest.Wait()
			info, err := kept.Info(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			return info.Rows
		}
		putParts(t, db, 0, 10)
		rows()
		time.Sleep(2 * time.Minute) // of the bubble's clock
		if got := rows(); got != 10 {
			t.Errorf("after its time the view has %d rows, want 10", got)
		}
		putParts(t, db, 10, 20)
		time.Sleep(30 * time.Second)
		if got := rows(); got != 10 {
			t.Errorf("before its time the view has %d rows, want 10", got)
		}
		time.Sleep(31 * time.Second)
		if got := rows(); got != 20 {
			t.Errorf("after its time the view has %d rows, want 20", got)
		}
		putParts(t, db, 20, 80)
		if got := rows(); got != 80 {
			t.Errorf("beyond its number of changes the view has %d rows, want 80", got)
		}
		if err := kept.Drop(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBuildCanBeWatchedAndDropped: a build shows how far it is, lets writes and
// reads go on, and ends when its view is dropped; its space is empty then.
func TestBuildCanBeWatchedAndDropped(t *testing.T) {
	gate, reached := make(chan struct{}), make(chan struct{}, 1)
	slow := osier.NewView("slow", parts, 1, func(d osier.Doc[part], emit func(string, int)) {
		if d.Value.N == 1500 {
			select {
			case reached <- struct{}{}:
			default:
			}
			<-gate
		}
		emit(d.Value.Kind, d.Value.N)
	})
	e, db := openViews(t, parts)
	putParts(t, db, 0, 3000)
	if _, err := e.OpenDB(t.Context(), "shop", osier.Schema(parts, slow)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- slow.Refresh(context.Background(), db) }()
	<-reached
	info, err := slow.Info(t.Context(), db)
	if err != nil || info.State != osier.ViewBuilding || info.Build == nil || info.Build.Total != 3000 || info.Build.Done >= 3000 {
		t.Errorf("during the build: %+v, %v; want it to be building, some of 3000", info, err)
	}
	putParts(t, db, 3000, 3010)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range slow.Query(ctx, db) {
		if !errors.Is(err, osier.ErrCanceled) {
			t.Errorf("who waits no longer gets %v, want ErrCanceled", err)
		}
	}
	dropped := make(chan error, 1)
	go func() { dropped <- slow.Drop(context.Background(), db) }()
	ix := e.indexes(t, "shop")[0]
	<-ix.gone
	close(gate)
	if err := <-dropped; err != nil {
		t.Errorf("drop: %v", err)
	}
	if err := <-done; !errors.Is(err, osier.ErrNotFound) {
		t.Errorf("who waited for the dropped view gets %v, want ErrNotFound", err)
	}
	if n := e.viewRecords(t, "shop"); n != 0 {
		t.Errorf("%d records of the dropped view are left", n)
	}
}

// indexes lists the indexes of a database.
func (e *Engine) indexes(t *testing.T, name string) (list []*index) {
	t.Helper()
	db, err := e.lookup("test", name)
	if err != nil {
		t.Fatal(err)
	}
	db.views.mu.Lock()
	defer db.views.mu.Unlock()
	for _, s := range db.views.slots {
		for _, ix := range []*index{s.ready, s.building} {
			if ix != nil {
				list = append(list, ix)
			}
		}
	}
	return list
}

// viewRecords counts the records of views of a database.
func (e *Engine) viewRecords(t *testing.T, name string) (n int) {
	t.Helper()
	db, err := e.lookup("test", name)
	if err != nil {
		t.Fatal(err)
	}
	lower, upper := databaseRange(db.num)
	it, err := e.store.NewIter(lower, upper)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if isViewSpace(it.Key()) {
			n++
		}
	}
	return n
}

// TestBuildIsResumed: a build that was ended goes on behind what it had done,
// and what it wrote of an unfinished stretch leaves nothing behind.
func TestBuildIsResumed(t *testing.T) {
	fs := vfs.NewCrashableMem()
	e := mustOpen(t, "store", smallStore(fs))
	db, err := e.CreateDB(t.Context(), "shop", osier.Schema(parts))
	if err != nil {
		t.Fatal(err)
	}
	putParts(t, db, 0, 2000)
	def, err := parseDefinition("sums", []byte(`{"collection":"parts","keys":["kind"],"value":"n","reduce":"sum"}`))
	if err != nil {
		t.Fatal(err)
	}
	inner, _ := e.lookup("test", "shop")
	ix, err := e.createIndex(inner, def, inner.colls["parts"].num)
	if err != nil {
		t.Fatal(err)
	}
	// A build as far as its first 512 documents, and the back-references and
	// rows of some more, without the progress.
	snap, err := e.store.NewSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	p := *ix.at.Load()
	p.seq, _ = ix.collectionSeq(snap)
	s := &buildStretch{ix: ix, b: &build{}, p: p, batch: e.store.NewWriteBatch()}
	n := 0
	ix.readChunks(snap, nil, nil, func(c *chunk) bool {
		ix.mapChunk(c)
		for i := range c.out {
			if err := s.document(c, &c.out[i]); err != nil {
				t.Fatal(err)
			}
		}
		if n++; n == 1 {
			s.p.last, s.p.done = append([]byte(nil), c.docs[len(c.docs)-1].id...), uint64(len(c.docs))
			if err := s.flush(); err != nil {
				t.Fatal(err)
			}
			return true
		}
		return false
	})
	if err := s.write(); err != nil { // the second chunk's back-references
		t.Fatal(err)
	}
	snap.Close()
	s.batch.Close()
	// The unfinished documents change before the build goes on.
	for i := 600; i < 700; i++ {
		if _, err := parts.Upsert(t.Context(), db, i, part{Kind: "other", N: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := parts.Delete(t.Context(), db, 10, osier.Rev{}); err != nil { // one of the finished
		t.Fatal(err)
	}
	mustClose(t, e)
	e = mustOpen(t, "store", smallStore(fs))
	defer mustClose(t, e)
	db, err = e.OpenDB(t.Context(), "shop", osier.Schema(partSums))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(e.indexes(t, "shop")); got != 1 {
		t.Fatalf("%d indexes after reopening, want the one that was begun", got)
	}
	if got := e.indexes(t, "shop")[0].at.Load().done; got != 512 {
		t.Errorf("the build is at %d documents, want 512", got)
	}
	if n, err := partSums.Count(t.Context(), db); err != nil || n != 1999 {
		t.Errorf("rows: %d, %v; want 1999", n, err)
	}
	if sum, err := partSums.Reduce(t.Context(), db, osier.Key("other")); err != nil || sum != 100 {
		t.Errorf("sum of the changed ones: %d, %v; want 100", sum, err)
	}
	if _, err := e.Check(t.Context(), func(p Problem) { t.Errorf("check: %v", p) }); err != nil {
		t.Error(err)
	}
}

// TestCheckFindsDamagedViews: a missing row, a stray one, a wrong node and a
// wrong count are each reported.
func TestCheckFindsDamagedViews(t *testing.T) {
	damages := map[string]func(e *Engine, ix *index) error{
		"missing": func(e *Engine, ix *index) error {
			return e.poke(ix.bounds("", ""))
		},
		"back-reference": func(e *Engine, ix *index) error {
			r := viewRanges(ix.db.num, ix.coll, ix.num)[1]
			return e.poke(r[0], r[1])
		},
		"tree": func(e *Engine, ix *index) error {
			r := viewRanges(ix.db.num, ix.coll, ix.num)[2]
			return e.poke(r[0], r[1])
		},
		"not there": func(e *Engine, ix *index) error {
			k := viewKey(ix.db.num, ix.num)
			return e.poke(k, append(k, 0))
		},
	}
	for want, damage := range damages {
		t.Run(want, func(t *testing.T) {
			e := mustOpen(t, "", &Options{InMemory: true})
			defer mustClose(t, e)
			db, err := e.CreateDB(t.Context(), "shop", osier.Schema(parts, partSums))
			if err != nil {
				t.Fatal(err)
			}
			putParts(t, db, 0, 200)
			if err := partSums.Refresh(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Check(t.Context(), func(p Problem) { t.Errorf("before the damage: %v", p) }); err != nil {
				t.Fatal(err)
			}
			if err := damage(e, e.indexes(t, "shop")[0]); err != nil {
				t.Fatal(err)
			}
			found := ""
			if _, err := e.Check(t.Context(), func(p Problem) { found += p.String() + "\n" }); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(found, want) {
				t.Errorf("check found %q, want %q in it", found, want)
			}
		})
	}
}

// poke deletes the first record of a range.
func (e *Engine) poke(lower, upper []byte) error {
	it, err := e.store.NewIter(lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	if !it.First() {
		return errors.New("nothing to damage")
	}
	b := e.store.NewBatch()
	defer b.Close()
	if err := b.Delete(it.Key()); err != nil {
		return err
	}
	_, err = e.store.Apply(b, 0)
	return err
}

// TestStateHashPassesOverViews: views are each engine's own.
func TestStateHashPassesOverViews(t *testing.T) {
	e, db := openViews(t, parts)
	putParts(t, db, 0, 50)
	before, err := e.StateHash(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	code := osier.NewView("code", parts, 1, func(d osier.Doc[part], emit func(string, int)) { emit(d.Value.Kind, 1) })
	if db, err = e.OpenDB(t.Context(), "shop", osier.Schema(code)); err != nil {
		t.Fatal(err)
	}
	if n, err := code.Count(t.Context(), db); err != nil || n != 50 {
		t.Fatalf("rows: %d, %v; want 50", n, err)
	}
	after, err := e.StateHash(t.Context(), "shop")
	if err != nil || before != after {
		t.Errorf("the hash changed with a view: %x, then %x (%v)", before, after, err)
	}
}

// TestWatchedViewTellsEachChange: a feed of a range shows what is there, then
// each row's coming, change and going, and can be resumed.
func TestWatchedViewTellsEachChange(t *testing.T) {
	_, db := openViews(t, parts, partSums)
	put := func(id int, kind string, n int) {
		t.Helper()
		if _, err := parts.Upsert(t.Context(), db, id, part{Kind: kind, N: n}); err != nil {
			t.Fatal(err)
		}
	}
	put(1, "a", 1)
	put(2, "b", 2)
	put(3, "z", 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := make(chan string)
	var last osier.Seq
	go func() {
		defer close(events)
		for ev, err := range partSums.Watch(ctx, db, 0, osier.Below("m")) {
			if err != nil {
				events <- osier.KindOf(err).String()
				return
			}
			if ev.Seq > 0 {
				last = ev.Seq
			}
			if ev.Mark {
				events <- "mark"
				continue
			}
			events <- fmt.Sprint(ev.Kind, " ", ev.Key, ev.Value, " of ", ev.ID)
		}
	}()
	want := func(list ...string) {
		t.Helper()
		for _, w := range list {
			if got := <-events; got != w {
				t.Errorf("got event %q, want %q", got, w)
			}
		}
	}
	want("added a1 of 1", "added b2 of 2", "mark")
	put(1, "a", 5)
	want("changed a5 of 1")
	put(3, "c", 3)
	want("added c3 of 3")
	put(2, "y", 2)
	want("removed b0 of 2")
	put(2, "x", 2) // outside the range all the time
	put(1, "b", 5)
	want("removed a0 of 1", "added b5 of 1")
	cancel()
	want("canceled")
	put(1, "d", 6)
	put(4, "q", 6)
	got := []string{}
	for ev, err := range partSums.Watch(t.Context(), db, last, osier.Below("m")) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Mark {
			break
		}
		got = append(got, fmt.Sprint(ev.Kind, " ", ev.Key, ev.Value, " of ", ev.ID, " ", ev.Whole))
	}
	if fmt.Sprint(got) != "[removed 0 of 1 true added d6 of 1 false removed 0 of 4 true]" {
		t.Errorf("resumed: %v", got)
	}
}

// TestWatchedViewEndsWithItsView: a feed is told when its view is no more.
func TestWatchedViewEndsWithItsView(t *testing.T) {
	_, db := openViews(t, parts, partSums)
	marked := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for ev, err := range partSums.Watch(context.Background(), db, 0) {
			if err != nil {
				ended <- err
				return
			}
			if ev.Mark {
				close(marked)
			}
		}
	}()
	putParts(t, db, 0, 1)
	<-marked
	if err := partSums.Drop(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, osier.ErrGap) && !errors.Is(err, osier.ErrNotFound) {
		t.Errorf("the feed of a dropped view ended with %v, want ErrGap or ErrNotFound", err)
	}
}

// TestSwitchedDefinition: a definition that changes while queries go on is
// answered by the old index or the new one, never by neither.
func TestSwitchedDefinition(t *testing.T) {
	_, db := openViews(t, parts, partSums)
	putParts(t, db, 0, 500)
	stop := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if n, err := partSums.Count(context.Background(), db); err != nil || n != 500 {
				ended <- fmt.Errorf("count %d: %w", n, err)
				return
			}
		}
	}()
	for i := range 6 {
		body, _ := json.Marshal(map[string]any{"collection": "parts", "keys": []string{"kind", "n"}[:1+i%2], "reduce": "sum", "value": "n"})
		op := osier.Op{Kind: osier.OpPut, Collection: osier.ViewsCollection, ID: osier.MustID("sums"), Codec: osier.TagJSON, Body: body}
		if _, err := db.Exec(t.Context(), &osier.Command{Ops: []osier.Op{op}}); err != nil {
			t.Fatal(err)
		}
		if err := partSums.Refresh(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// FuzzViewRecords: no bytes make the decoders of views panic.
func FuzzViewRecords(f *testing.F) {
	f.Add([]byte(`{"collection":"c","keys":["a"],"spread":"a","reduce":"sum","partial":{"a":1}}`))
	var l rowList
	l.add([]byte("k"), nil)
	f.Add(appendBackref(nil, &l))
	f.Add((&viewRecord{kind: viewFields, collection: "c", name: "n"}).append(nil))
	f.Add((&progress{state: osier.ViewReady, last: []byte("x")}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseDefinition("v", b)
		_, _ = decodeViewRecord(b)
		_, _ = decodeProgress(b)
		_, _, _, _, _ = splitRow(b, b)
		_, _ = osier.ParseViewCursor(string(b))
		var l rowList
		if decodeBackref(b, &l) == nil && string(appendBackref(nil, &l)) != string(b) {
			var again rowList
			if err := decodeBackref(appendBackref(nil, &l), &again); err != nil || !again.sameKeys(&l) {
				t.Errorf("%x: back-reference changes when it is written again", b)
			}
		}
	})
}

// TestJSONIndex: a JSON index holds the documents that have all its fields and
// match its selector, in CouchDB's order, and counts ranges.
func TestJSONIndex(t *testing.T) {
	e, db := openViews(t, parts)
	for i, kind := range []string{"b", "B", "a", "", "á"} {
		if _, err := parts.Upsert(t.Context(), db, i, part{Kind: kind, N: i}); err != nil {
			t.Fatal(err)
		}
	}
	def := `{"collection":"parts","type":"json","keys":["kind",{"n":"desc"}],"partial":{"kind":{"$gt":""}}}`
	op := osier.Op{Kind: osier.OpPut, Collection: osier.ViewsCollection, ID: osier.MustID("by-kind"), Codec: osier.TagJSON, Body: []byte(def)}
	if _, err := db.Exec(t.Context(), &osier.Command{Ops: []osier.Op{op}}); err != nil {
		t.Fatal(err)
	}
	ids := ""
	for row, err := range db.Query(t.Context(), &osier.Query{Kind: osier.QueryView, Collection: "parts", View: &osier.ViewQuery{Name: "by-kind"}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids += row.View.ID.String()
	}
	if ids != "2401" {
		t.Errorf("order of the documents: %s, want 2401: a, á, b, B", ids)
	}
	inner, err := e.lookup("test", "shop")
	if err != nil {
		t.Fatal(err)
	}
	list, err := e.jsonIndexes(inner, "parts")
	if err != nil || len(list) != 1 || list[0].keyer() == nil || list[0].partial() == nil {
		t.Fatalf("indexes: %v, %v; want one with a keyer and a selector", list, err)
	}
	if _, ok, err := list[0].readableIn(e.store); !ok || err != nil {
		t.Errorf("it is not readable: %v", err)
	}
	if n, err := list[0].rangeCount(e.store, "", ""); n != 4 || err != nil {
		t.Errorf("rows: %d, %v; want 4", n, err)
	}
}
