package engine

import (
	"errors"
	"testing"

	"github.com/osierdb/osier"
)

// TestDuplicatesAreFoundWhereDocumentsChanged: what a unique view looks at last is
// the keys of the documents that changed, and no others.
func TestDuplicatesAreFoundWhereDocumentsChanged(t *testing.T) {
	byNumber := osier.NewFieldView[int, any]("by-number", "parts", &osier.FieldViewOptions{Keys: []string{"n"}})
	e, db := openViews(t, parts, byNumber)
	reach := func() osier.Seq {
		t.Helper()
		if err := byNumber.Refresh(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		return e.indexes(t, "shop")[0].at.Load().seq
	}
	put := func(id, n int) osier.Seq {
		t.Helper()
		if _, err := parts.Upsert(t.Context(), db, id, part{N: n}); err != nil {
			t.Fatal(err)
		}
		return reach()
	}
	putParts(t, db, 0, 1500) // more than a batch of changes
	s1 := reach()
	ix := e.indexes(t, "shop")[0]
	judge := func(name string, err error, twice bool) {
		t.Helper()
		if errors.Is(err, osier.ErrNotUnique) != twice || !twice && err != nil {
			t.Errorf("%s: %v, want a key of two rows: %t", name, err, twice)
		}
	}
	judge("all", ix.duplicate(e.store), false)
	judge("all as changes", ix.duplicateSince(e.store, 0, s1), false)
	s2 := put(5000, 1499)
	judge("one more", ix.duplicateSince(e.store, s1, s2), true)
	s3 := put(6000, 6000)
	judge("one after it", ix.duplicateSince(e.store, s2, s3), false)
	judge("from the beginning", ix.duplicateSince(e.store, 0, s3), true)
	s4 := put(5000, 5000)
	judge("mended", ix.duplicateSince(e.store, s1, s4), false)
	judge("all again", ix.duplicate(e.store), false)
	if err := parts.Delete(t.Context(), db, 5000, osier.Rev{}); err != nil {
		t.Fatal(err)
	}
	judge("deleted", ix.duplicateSince(e.store, s4, reach()), false)
}

// TestUniqueComesInForceBesideWrites: what is written while a unique view is being
// built is judged too.
func TestUniqueComesInForceBesideWrites(t *testing.T) {
	for _, twice := range []bool{false, true} {
		gate, reached := make(chan struct{}), make(chan struct{}, 1)
		numbers := osier.NewView("numbers", parts, 1, func(d osier.Doc[part], emit func(int, int)) {
			if d.Value.N == 1500 {
				select {
				case reached <- struct{}{}:
				default:
				}
				<-gate
			}
			emit(d.Value.N, 0)
		}, osier.Update(osier.Unique))
		e, db := openViews(t, parts)
		putParts(t, db, 0, 2000)
		opened := make(chan error)
		go func() {
			_, err := e.OpenDB(t.Context(), "shop", osier.Schema(numbers))
			opened <- err
		}()
		<-reached
		putParts(t, db, 2000, 2000+3*fewChanges)
		if twice {
			if _, err := parts.Upsert(t.Context(), db, 9999, part{N: 2001}); err != nil {
				t.Fatal(err)
			}
		}
		close(gate)
		err := <-opened
		if errors.Is(err, osier.ErrNotUnique) != twice || !twice && err != nil {
			t.Fatalf("declared: %v, want a key of two documents: %t", err, twice)
		}
		if twice {
			continue
		}
		if _, err := parts.Upsert(t.Context(), db, 9999, part{N: 2001}); !errors.Is(err, osier.ErrNotUnique) {
			t.Errorf("a second 2001: %v", err)
		}
	}
}
