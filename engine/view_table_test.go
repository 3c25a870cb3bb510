package engine

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
)

// indexRecords returns all records of an index but its progress.
func indexRecords(t *testing.T, e *Engine, db *osier.DB, name string) map[string]string {
	t.Helper()
	d, err := e.lookup("test", db.Name())
	if err != nil {
		t.Fatal(err)
	}
	ready, _, err := e.findView(d, viewName{"numbers", name})
	if err != nil || ready == nil {
		t.Fatalf("index %s: %v, %v", name, ready, err)
	}
	records := map[string]string{}
	for _, r := range viewRanges(d.num, ready.coll, ready.num)[:3] {
		it, err := e.store.NewIter(r[0], r[1])
		if err != nil {
			t.Fatal(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			records[string(it.Key())] = string(it.Value())
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return records
}

// TestBuildByTables: a build that writes tables leaves the very records that one
// by batches leaves, and goes on from there in the same way.
func TestBuildByTables(t *testing.T) {
	const docs = 3000
	fs := vfs.NewCrashableMem()
	filled := mustOpen(t, "store", smallStore(fs))
	withNumbers(t, filled, docs)
	mustClose(t, filled)
	var all []map[string]string
	for _, tableDocs := range []int{1, docs + 1} {
		o := smallStore(fs.CrashClone(vfs.CrashCloneCfg{})) // the same database: its identity shapes the tree
		o.buildTableDocs = tableDocs
		e := mustOpen(t, "store", o)
		db, err := e.OpenDB(t.Context(), "shop")
		if err != nil {
			t.Fatal(err)
		}
		makeIndex(t, db, "by-tail", osier.Mango(`{"group":{"$lt":7}}`), osier.Desc("tail"), osier.Asc("even"))
		for i := range 50 {
			if _, err := numbers.Upsert(t.Context(), db, "more", osier.Raw(`{"tail":"x","even":true,"group":1}`)); err != nil {
				t.Fatal(err)
			}
			if err := numbers.Delete(t.Context(), db, fmt.Sprintf("%06d", 7*i), osier.Rev{}); err != nil {
				t.Fatal(err)
			}
		}
		built := indexRecords(t, e, db, "by-tail")
		ids, _ := foundIDs(t, db, osier.Mango(`{"tail":{"$gte":"15"},"even":true,"group":{"$lt":7}}`), osier.FindOptions{UseIndex: "by-tail", Strict: true})
		slices.Sort(ids)
		for _, id := range ids {
			built["found "+id] = ""
		}
		for key, value := range indexRecords(t, e, db, "by-tail") {
			built["updated "+key] = value
		}
		all = append(all, built)
		checkClean(t, e, "built")
		mustClose(t, e)
	}
	if len(all[0]) < docs {
		t.Errorf("%d records, want at least %d", len(all[0]), docs)
	}
	if !maps.Equal(all[0], all[1]) {
		t.Errorf("by tables %d records, by batches %d, or other ones", len(all[0]), len(all[1]))
	}
}
