package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/osierdb/osier"
)

// TestFindByIndexWhileWriting: two documents exchange their values in transactions
// without end, so that exactly one document has each at any time. A look-up by the
// index, which tests no document again, finds that one, as of one state.
func TestFindByIndexWhileWriting(t *testing.T) {
	e := mustOpen(t, "", &Options{InMemory: true})
	defer mustClose(t, e)
	db := withNumbers(t, e, 100)
	makeIndex(t, db, "by-n", nil, osier.Asc("n"))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			var b osier.Batch
			for k := range 2 {
				body := fmt.Appendf(nil, `{"n":%d}`, 10+(i+k)%2)
				if _, err := numbers.Upsert(ctx, &b, fmt.Sprintf("%06d", 10+k), osier.Raw(body)); err != nil {
					t.Error(err)
					return
				}
			}
			if _, err := db.Commit(ctx, &b); err != nil && !errors.Is(err, osier.ErrCanceled) {
				t.Error(err)
				return
			}
		}
	})
	for i := range rounds(1500, 200) {
		value := 10 + i%2
		rows := 0
		for row, err := range db.Find(t.Context(), "numbers", osier.Mango(fmt.Sprintf(`{"n":%d}`, value)), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Appendf(nil, `"n":%d`, value); !bytes.Contains(row.Body, want) {
				t.Errorf("look-up %d: got %s, want one with %s", i, row.Body, want)
			}
			rows++
		}
		if rows != 1 {
			t.Errorf("look-up %d: got %d rows of value %d, want 1", i, rows, value)
		}
	}
	cancel()
	wg.Wait()
}
