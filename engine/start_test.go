package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/osierdb/osier"
)

// Keys that are overdue when a store is opened go once it is open: the timers of
// databases that are loaded do not run into the loading of others.
func TestOverdueKeysWaitForTheStoreToOpen(t *testing.T) {
	const dbs = 64
	dir, now := t.TempDir(), time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	each := func(at time.Time, fn func(ns osier.Namespace) error) {
		t.Helper()
		e := mustOpen(t, dir, &Options{Clock: func() time.Time { return at }})
		for i := range dbs {
			db, err := e.DB(t.Context(), fmt.Sprintf("db-%02d", i))
			if err != nil {
				t.Fatal(err)
			}
			if err := fn(db.KV("cache")); err != nil {
				t.Fatalf("database %d: %v", i, err)
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	each(now, func(ns osier.Namespace) error {
		return ns.SetFor(t.Context(), "key", []byte("value"), time.Minute)
	})
	each(now.Add(time.Hour), func(ns osier.Namespace) error {
		if _, err := ns.Get(t.Context(), "key"); osier.KindOf(err) != osier.KindNotFound {
			return fmt.Errorf("got %v, want not found", err)
		}
		return nil
	})
}
