package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

const kvFixture = "testdata/kv-1.zip"

// notesByText and topics are views of the fixture; every text is one of a kind.
var (
	notesByText = osier.NewFieldView[string, any]("by-text", "notes", &osier.FieldViewOptions{Keys: []string{"Text"}, Policy: osier.Unique})
	lengths     = osier.NewView("lengths", notes, 1, func(d osier.Doc[note], emit func(int, int)) { emit(len(d.Value.Text), 1) }, osier.Sum[int]())
)

// TestKeyValuesAndViewsOfEachFormatAreRead opens what an earlier release wrote:
// key-values of every type, expiries, a lease, and views with their indexes.
func TestKeyValuesAndViewsOfEachFormatAreRead(t *testing.T) {
	if *writeFixture {
		zipFolder(t, makeKVFixture(t), kvFixture)
	}
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	e, err := engine.Open(unzip(t, kvFixture), &engine.Options{Clock: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx := context.Background()
	db, err := e.OpenDB(ctx, "fixture")
	if err != nil {
		t.Fatal(err)
	}
	kv := db.KV("all")
	var got []string
	line := func(v any, err error) { got = append(got, fmt.Sprint(v, " ", err)) }
	for entry, err := range kv.Scan(ctx, nil) {
		line(fmt.Sprintf("%s %q %d %d %d", entry.Key, entry.Value, entry.Type, entry.Version, entry.Deadline), err)
	}
	line(kv.Count(ctx))
	list, err := kv.List("list").Range(ctx, 0, -1)
	line(fmt.Sprintf("%s", list), err)
	for f, err := range kv.Hash("hash").All(ctx) {
		line(fmt.Sprintf("%s=%s", f.Name, f.Value), err)
	}
	for m, err := range kv.Members("set").All(ctx) {
		line(m, err)
	}
	for m, err := range kv.Sorted("sorted").Range(ctx, osier.KVRange{From: 0, To: -1}) {
		line(fmt.Sprint(m.Name, m.Score), err)
	}
	line(kv.Add(ctx, "number", 1))
	_, err = kv.Acquire(ctx, "lease", "another", time.Hour)
	line(fmt.Sprint("a lease that is held: ", errors.Is(err, osier.ErrConflict)), nil)
	free, err := kv.Acquire(ctx, "freed", "another", time.Hour)
	// How many versions expiry has taken meanwhile is left to chance.
	line(fmt.Sprint("its token has grown: ", free.Token > 20), err)
	for row, err := range notesByText.Query(ctx, db) {
		line(fmt.Sprint(row.Key, " ", row.ID), err)
	}
	_, err = notes.Insert(ctx, db, note{"alpha"})
	line(fmt.Sprint("a key that is taken: ", errors.Is(err, osier.ErrNotUnique)), nil)
	if db, err = e.OpenDB(ctx, "fixture", osier.Schema(lengths)); err != nil {
		t.Fatal(err)
	}
	line(lengths.Reduce(ctx, db))
	sameAsGolden(t, "kv-1.txt", got)
	if _, err := e.Check(ctx, func(p engine.Problem) { t.Error(p) }); err != nil {
		t.Error(err)
	}
}

func makeKVFixture(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	start, ticks := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), new(atomic.Int64)
	e, err := engine.Open(dir, &engine.Options{Clock: func() time.Time { return start.Add(time.Duration(ticks.Add(1)) * time.Millisecond) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := e.DB(ctx, "fixture", osier.Schema(notes, notesByText, lengths))
	must(err)
	for _, text := range []string{"alpha", "beta", "gamma", "delta"} {
		_, err = notes.InsertWithID(ctx, db, text[:1], note{text})
		must(err)
	}
	must(notes.Delete(ctx, db, "d", osier.Rev{}))
	must(lengths.Refresh(ctx, db))
	kv := db.KV("all")
	must(kv.With(osier.Relaxed).Set(ctx, "relaxed", []byte("r")))
	must(kv.With(osier.Sync).Set(ctx, "plain", []byte{0, 1, 255}))
	must(kv.SetFor(ctx, "a day", []byte("x"), 30*time.Hour))
	must(kv.SetFor(ctx, "an hour", []byte("x"), time.Hour))
	_, err = kv.Add(ctx, "number", 41)
	must(err)
	_, err = kv.AddFloat(ctx, "float", 0.25, osier.Saturate)
	must(err)
	_, err = kv.List("list").PushBack(ctx, []byte("b"), []byte("c"))
	must(err)
	_, err = kv.List("list").PushFront(ctx, []byte("a"))
	must(err)
	_, err = kv.Hash("hash").Set(ctx, osier.KVItem{Name: "f", Value: []byte("1")}, osier.KVItem{Name: "g", Value: []byte("2")})
	must(err)
	_, err = kv.Members("set").Add(ctx, "x", "y", "z")
	must(err)
	_, err = kv.Sorted("sorted").Add(ctx, osier.KVItem{Name: "low", Score: -1.5}, osier.KVItem{Name: "high", Score: 7})
	must(err)
	_, err = kv.Acquire(ctx, "lease", "holder", 48*time.Hour)
	must(err)
	l, err := kv.Acquire(ctx, "freed", "holder", time.Hour)
	must(err)
	must(l.Release(ctx))
	must(db.KV("dropped").Set(ctx, "k", []byte("v")))
	must(db.KV("dropped").Drop(ctx))
	must(e.Close())
	return dir
}
