package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/osierdb/osier"
)

// branch is a leaf with its ancestry, newest first.
type branch struct {
	path []osier.Rev
	body string
}

// grow makes branches of a tree with random forks.
func grow(t *testing.T, n int, pick func(int) int) []branch {
	t.Helper()
	rev := func(gen, name int) osier.Rev {
		r, err := osier.ParseRev(fmt.Sprintf("%d-%c%d", gen, 'a'+rune(name%3), name))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var all []branch
	for i := range n {
		var path []osier.Rev
		if len(all) > 0 && pick(3) > 0 {
			old := all[pick(len(all))].path
			path = slices.Clone(old[pick(len(old)):])
			if len(path) == len(old) {
				path = path[1:] // beside the leaf, not above it
			}
		}
		for range 1 + pick(3) {
			path = slices.Insert(path, 0, rev(len(path)+1, i*10+len(path)))
		}
		all = append(all, branch{path, fmt.Sprintf(`{"v":%d}`, i)})
	}
	return all
}

func (b *branch) graft(t *testing.T, db *osier.DB, att string) {
	t.Helper()
	ctx := context.Background()
	op := osier.Op{Kind: osier.OpGraft, Collection: "c", ID: osier.MustID("doc"), Path: b.path, Codec: osier.TagJSON, Body: []byte(b.body)}
	if att != "" {
		staged, err := db.Backend().Stage(ctx, db.Name(), strings.NewReader(att))
		if err != nil {
			t.Fatal(err)
		}
		op.Attachments = []osier.AttachmentRef{{Name: "x", Staged: staged.Blob, RevPos: 1}}
	}
	if _, err := db.Exec(ctx, &osier.Command{Ops: []osier.Op{op}}); err != nil {
		t.Fatal(err)
	}
}

// tree describes a document: each revision with its body and ancestry.
func tree(t *testing.T, db *osier.DB) []string {
	t.Helper()
	var out []string
	q := &osier.Query{Kind: osier.QueryVersions, Collection: "c", IDs: []osier.ID{osier.MustID("doc")}, Parts: osier.WithBody | osier.WithAncestors}
	for row, err := range db.Query(context.Background(), q) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprint(row.Missing, row.Rev, string(row.Body), row.Ancestors, len(row.Attachments)))
	}
	return out
}

// What purging leaves is what would be there if the purged branches had never
// come: tree, winner, feed, counts, attachments, all of which Check compares.
func TestPurgeLeavesNoTrace(t *testing.T) {
	ctx := context.Background()
	seed := seedOf(t)
	for round := range rounds(40, 10) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			rng := rngOf(seed, round)
			e := openMem(t, "db")
			db, err := e.DB(ctx, "db")
			if err != nil {
				t.Fatal(err)
			}
			other, err := e.CreateDB(ctx, "other")
			if err != nil {
				t.Fatal(err)
			}
			all := grow(t, 1+rng.IntN(6), rng.IntN)
			atts := make([]string, len(all))
			for i := range all {
				if rng.IntN(2) == 0 {
					atts[i] = strings.Repeat("x", rng.IntN(3)+1)
				}
				all[i].graft(t, db, atts[i])
			}
			var ops []osier.Op
			for i := range all {
				if rng.IntN(2) == 0 {
					all[i].graft(t, other, atts[i])
					continue
				}
				ops = append(ops, osier.Op{Kind: osier.OpPurge, Collection: "c", ID: osier.MustID("doc"), Rev: all[i].path[0]})
			}
			for _, op := range ops {
				if _, err := db.Exec(ctx, &osier.Command{Ops: []osier.Op{op}}); err != nil {
					t.Fatalf("purge %v: %v", op.Rev, err)
				}
			}
			if diff := cmp.Diff(tree(t, other), tree(t, db)); diff != "" {
				t.Errorf("the tree differs (- never there, + purged):\n%s", diff)
			}
			left := len(all) - len(ops)
			rows := 0
			for _, err := range db.Watch(ctx, nil) {
				if err != nil {
					t.Fatal(err)
				}
				rows++
			}
			if want := min(left, 1); rows != want {
				t.Errorf("the feed has %d rows, want %d", rows, want)
			}
		})
	}
}

func TestPurgeRefuses(t *testing.T) {
	ctx := context.Background()
	e := openMem(t, "db")
	db, err := e.DB(ctx, "db")
	if err != nil {
		t.Fatal(err)
	}
	id := osier.MustID("a")
	docs := osier.NewCollection[osier.Raw]("c")
	doc, err := docs.InsertWithID(ctx, db, "a", osier.Raw(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	purge := osier.Op{Kind: osier.OpPurge, Collection: "c", ID: id, Rev: doc.Rev}
	put := osier.Op{Kind: osier.OpPut, Collection: "c", ID: id, Codec: osier.TagJSON, Body: []byte(`{"v":1}`)}
	unknown := purge
	unknown.Rev = osier.NewRev(7, [16]byte{})
	nobody := purge
	nobody.ID = osier.MustID("b")
	nowhere := purge
	nowhere.Collection = "none"
	for _, c := range []struct {
		name string
		ops  []osier.Op
		want osier.Kind
	}{
		{"unknown revision", []osier.Op{unknown}, osier.KindNotFound},
		{"no such document", []osier.Op{nobody}, osier.KindNotFound},
		{"no such collection", []osier.Op{nowhere}, osier.KindNotFound},
		{"no id", []osier.Op{{Kind: osier.OpPurge, Collection: "c"}}, osier.KindInvalid},
		{"twice", []osier.Op{purge, purge}, osier.KindInvalid},
		{"after a put", []osier.Op{put, purge}, osier.KindInvalid},
		{"before a put", []osier.Op{purge, put}, osier.KindInvalid},
	} {
		_, err := db.Exec(ctx, &osier.Command{Ops: c.ops})
		if got := osier.KindOf(err); err == nil || got != c.want {
			t.Errorf("%s: error is %v, want kind %v", c.name, err, c.want)
		}
	}
	member := db.As(osier.Principal{Name: "m", Grants: []osier.Grant{{Actions: osier.MayRead | osier.MayWrite, DB: "db"}}})
	if _, err := member.Exec(ctx, &osier.Command{Ops: []osier.Op{purge}}); osier.KindOf(err) != osier.KindDenied {
		t.Errorf("a member's purge: error is %v, want kind denied", err)
	}
	if got, err := docs.Get(ctx, db, "a"); err != nil || got.Rev != doc.Rev {
		t.Errorf("the document is at %v (%v), want %v", got.Rev, err, doc.Rev)
	}
}

// A transaction that has read what is purged meanwhile must not commit.
func TestPurgeConflictsWithReaders(t *testing.T) {
	ctx := context.Background()
	e := openMem(t, "db")
	db, err := e.DB(ctx, "db")
	if err != nil {
		t.Fatal(err)
	}
	docs := osier.NewCollection[osier.Raw]("c")
	doc, err := docs.InsertWithID(ctx, db, "a", osier.Raw(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	info, err := db.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPurge, Collection: "c", ID: doc.ID, Rev: doc.Rev}}}); err != nil {
		t.Fatal(err)
	}
	c := &osier.Command{Snapshot: info.LastSeq, Reads: []osier.Read{{Collection: "c", ID: doc.ID}},
		Ops: []osier.Op{{Kind: osier.OpPut, Collection: "c", ID: osier.MustID("b"), Codec: osier.TagJSON, Body: []byte(`{}`)}}}
	if _, err := db.Exec(ctx, c); osier.KindOf(err) != osier.KindConflict {
		t.Errorf("error is %v, want kind conflict", err)
	}
}

// Pruning drops the bodies of earlier versions, with the attachments that only
// they had, and leaves all else.
func TestPrune(t *testing.T) {
	ctx := context.Background()
	e := openMem(t, "db")
	docs := osier.NewCollection[osier.Raw]("c", osier.CollectionOptions[osier.Raw]{History: osier.KeepAll})
	db, err := e.DB(ctx, "db", osier.Schema(docs))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := docs.InsertWithID(ctx, db, "a", osier.Raw(`{"v":0}`))
	if err != nil {
		t.Fatal(err)
	}
	if doc, err = docs.Attach(ctx, db, "a", doc.Rev, "x", "image/png", strings.NewReader("bytes")); err != nil {
		t.Fatal(err)
	}
	if doc, err = docs.Detach(ctx, db, "a", doc.Rev, "x"); err != nil {
		t.Fatal(err)
	}
	before, err := db.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	prune := &osier.Command{Ops: []osier.Op{{Kind: osier.OpPrune, Collection: "c", ID: doc.ID}}}
	for range 2 { // a second time there is nothing to be done
		if _, err := db.Exec(ctx, prune); err != nil {
			t.Fatal(err)
		}
	}
	var bodies, revs int
	for v, err := range docs.Versions(ctx, db, "a") {
		if err != nil {
			t.Fatal(err)
		}
		revs++
		if v.Value != nil {
			bodies++
		}
	}
	if revs != 3 || bodies != 1 {
		t.Errorf("there are %d revisions with %d bodies, want 3 with 1", revs, bodies)
	}
	after, err := db.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if after.LastSeq != before.LastSeq {
		t.Errorf("the sequence went from %d to %d", before.LastSeq, after.LastSeq)
	}
}

// Views of each way of keeping forget what was purged, and show the revision
// that comes to the fore instead.
func TestPurgeReachesViews(t *testing.T) {
	ctx := context.Background()
	e := openMem(t, "db")
	views := map[string]*osier.View[int, int]{}
	var schema []osier.SchemaItem
	for name, policy := range map[string]osier.UpdatePolicy{"lazy": osier.OnDemand, "eager": osier.Eager, "unique": osier.Unique} {
		views[name] = osier.NewFieldView[int, int](name, "c", &osier.FieldViewOptions{Keys: []string{"v"}, Policy: policy})
		schema = append(schema, views[name])
	}
	db, err := e.DB(ctx, "db", osier.Schema(schema...))
	if err != nil {
		t.Fatal(err)
	}
	rev := func(text string) osier.Rev {
		r, err := osier.ParseRev(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := branch{[]osier.Rev{rev("1-a")}, `{"v":1}`}, branch{[]osier.Rev{rev("1-b")}, `{"v":2}`}
	a.graft(t, db, "")
	b.graft(t, db, "")
	want := func(keys ...int) {
		t.Helper()
		for name, v := range views {
			var got []int
			for row, err := range v.Query(ctx, db) {
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got = append(got, row.Key)
			}
			if !slices.Equal(got, keys) {
				t.Errorf("the %s view has keys %v, want %v", name, got, keys)
			}
		}
	}
	want(2)
	for i, r := range []string{"1-b", "1-a"} {
		c := &osier.Command{PerDocument: i == 0, Ops: []osier.Op{{Kind: osier.OpPurge, Collection: "c", ID: osier.MustID("doc"), Rev: rev(r)}}}
		if res, err := db.Exec(ctx, c); err != nil || res.Ops[0].Err != nil {
			t.Fatal(err, res)
		}
		want([]int{1}[i:]...)
	}
}
