package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/osierdb/osier"
)

// Transactions that count in a document, a key-value, a journal and an eager view
// at once, from many goroutines, beside relaxed operations on the same namespace and
// journal: whatever is committed is in all four, whatever fails in none, and it
// is so after a reopen.
func TestEverythingCommitsTogether(t *testing.T) {
	type counter struct {
		N  int    `json:"n"`
		By string `json:"by"`
	}
	counters := osier.NewCollection("counters", osier.CollectionOptions[counter]{})
	byWho := osier.NewView("by-who", counters, 1, func(d osier.Doc[counter], emit func(string, int)) { emit(d.Value.By, d.Value.N) },
		osier.Sum[int](), osier.Update(osier.Eager))
	events := osier.NewJournal("events", osier.JournalSettings{Durability: osier.Relaxed})
	dir := filepath.Join(t.TempDir(), "store")
	open := func() (*Engine, *osier.DB) {
		e := mustOpen(t, dir, nil)
		db, err := e.DB(t.Context(), "shop", osier.Schema(counters, byWho, events))
		if err != nil {
			t.Fatal(err)
		}
		return e, db
	}
	e, db := open()
	const writers, each = 4, 25
	rolledBack := errors.New("rolled back")
	var wg sync.WaitGroup
	for w := range writers {
		who := fmt.Sprint("w", w)
		wg.Go(func() {
			for i := range each {
				err := db.Update(t.Context(), func(tx *osier.Tx) error {
					c, err := counters.Get(t.Context(), tx, "all")
					if err != nil && !errors.Is(err, osier.ErrNotFound) {
						return err
					}
					if _, err := counters.Upsert(t.Context(), tx, "all", counter{c.Value.N + 1, who}); err != nil {
						return err
					}
					if _, err := tx.KV("numbers").Add(t.Context(), "all", 1); err != nil {
						return err
					}
					if _, err := events.Append(t.Context(), tx, []byte(who)); err != nil {
						return err
					}
					if i%5 == 4 {
						return rolledBack
					}
					return nil
				})
				if i%5 == 4 != errors.Is(err, rolledBack) {
					t.Errorf("%s, transaction %d: %v", who, i, err)
				}
				if err := db.KV("numbers").Set(t.Context(), who, strconv.AppendInt(nil, int64(i), 10)); err != nil {
					t.Error(err)
				}
				if _, err := events.Append(t.Context(), db, []byte("alone")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	const committed = writers * (each - each/5)
	check := func(db *osier.DB) {
		t.Helper()
		ctx := context.Background()
		c, err := counters.Get(ctx, db, "all")
		if err != nil || c.Value.N != committed {
			t.Errorf("the document counts %d, %v; want %d", c.Value.N, err, committed)
		}
		n, err := db.KV("numbers").Add(ctx, "all", 0)
		if err != nil || n != committed {
			t.Errorf("the key-value counts %d, %v; want %d", n, err, committed)
		}
		inside, alone := 0, 0
		for ev, err := range events.Read(ctx, db, &osier.ReadOptions{All: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if string(ev.Data) == "alone" {
				alone++
			} else {
				inside++
			}
		}
		if inside != committed || alone != writers*each {
			t.Errorf("the journal has %d events of transactions and %d others; want %d and %d", inside, alone, committed, writers*each)
		}
		sum, err := byWho.Reduce(ctx, db)
		if err != nil || sum != committed {
			t.Errorf("the view sums to %d, %v; want %d", sum, err, committed)
		}
	}
	check(db)
	checkClean(t, e, "before the reopen")
	mustClose(t, e)
	e, db = open()
	check(db)
	checkClean(t, e, "after the reopen")
	mustClose(t, e)
}
