package store

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestLatestIterSeesWrites: an iterator that was kept is not handed out once
// something has been written, by a batch or by a table.
func TestLatestIterSeesWrites(t *testing.T) {
	s := mustOpen(t, "", &Options{InMemory: true})
	defer s.Close()
	lower, upper := []byte("a"), []byte("b")
	count := func() (n int) {
		t.Helper()
		it, err := s.LatestIter(lower, upper)
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			n++
		}
		if !it.Latest() {
			t.Error("the store is quiet, and the state is not the latest")
		}
		return n
	}
	for i := range 20 {
		for range 2 {
			if n := count(); n != i {
				t.Fatalf("want %d keys, got %d", i, n)
			}
		}
		held, err := s.LatestIter(lower, upper)
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Appendf(nil, "a%02d", i)
		if i%2 == 0 {
			b := s.NewBatch()
			if err := b.Set(key, key); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Apply(b, Relaxed); err != nil {
				t.Fatal(err)
			}
		} else {
			table, err := s.NewSortedTable()
			if err != nil {
				t.Fatal(err)
			}
			if err := table.Set(key, key); err != nil {
				t.Fatal(err)
			}
			if err := s.Ingest(table); err != nil {
				t.Fatal(err)
			}
		}
		if held.Latest() {
			t.Error("something was written, and the state is still the latest")
		}
		if held.SeekExact(key) {
			t.Errorf("an older iterator sees %s", key)
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestShelfIsCleared: what nobody asks for again is closed, and so is the rest
// with the store, whoever puts something back meanwhile.
func TestShelfIsCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, "", &Options{InMemory: true})
		for i := range 2 * shelfSize {
			it, err := s.LatestIter([]byte{byte(i)}, []byte{byte(i + 1)})
			if err != nil {
				t.Fatal(err)
			}
			it.First()
			if err := it.Close(); err != nil {
				t.Fatal(err)
			}
		}
		lying := func() int {
			s.shelf.mu.Lock()
			defer s.shelf.mu.Unlock()
			return len(s.shelf.list)
		}
		if n := lying(); n != shelfSize {
			t.Errorf("want %d iterators kept, got %d", shelfSize, n)
		}
		<-time.After(2 * shelfTime)
		synctest.Wait()
		if n := lying(); n != 0 {
			t.Errorf("%d iterators are kept after %v", n, 2*shelfTime)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					it, err := s.LatestIter([]byte("a"), []byte("b"))
					if err != nil {
						return // closed
					}
					it.First()
					if err := it.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}
