package engine

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// fillJournal appends n events of 1,000 bytes and returns the journal.
func fillJournal(t testing.TB, e *Engine, n int) (*osier.DB, *osier.Journal) {
	t.Helper()
	db, err := e.DB(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	j := osier.NewJournal("events")
	for i := range n {
		events := []osier.Event{{Data: fmt.Append(bytes.Repeat([]byte{'.'}, 1000), i)}}
		if _, err := j.AppendEvents(t.Context(), db.With(osier.Buffered), events, &osier.AppendOptions{Key: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	return db, j
}

// change alters the store underneath a closed engine.
func change(t *testing.T, dir string, fn func(s *store.Store, b *store.Batch) error) {
	t.Helper()
	s, err := store.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	if err := fn(s, b); err != nil {
		t.Fatal(err)
	}
	p, err := s.Apply(b, store.Sync)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// What is wrong with a journal is found, and repaired as far as it can be: what
// is whole stays, and no position comes again.
func TestDamagedJournalsAreFoundAndRepaired(t *testing.T) {
	block := func(s *store.Store, n int) (key, value []byte) {
		it, err := s.NewIter(eventsPrefix(nil, 1, 1), eventsPrefix(nil, 1, 2))
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		it.First()
		for range n {
			it.Next()
		}
		return slices.Clone(it.Key()), slices.Clone(it.Value())
	}
	for _, c := range []struct {
		name string
		do   func(s *store.Store, b *store.Batch) error
		find string
		left int // events after repair
		lost bool
	}{
		{"a block is lost", func(s *store.Store, b *store.Batch) error { k, _ := block(s, 1); return b.Delete(k) }, "are number", 77, false},
		{"a byte of a block has changed", func(s *store.Store, b *store.Batch) error {
			k, v := block(s, 1)
			v[len(v)/2]++
			return b.Set(k, v)
		}, "damaged", 77, false},
		{"the open block is lost", func(s *store.Store, b *store.Batch) error {
			k, _ := block(s, 3)
			return b.DeleteRange(k, eventsPrefix(nil, 1, 2))
		}, "missing", 99, false},
		{"the journal's record is lost", func(s *store.Store, b *store.Batch) error { return b.Delete(journalKey(1, "events")) }, "not there", 110, true},
		{"a key has no answer", func(s *store.Store, b *store.Batch) error { return b.Delete(sideKeyOf(1, 1, "7")) }, "no answer", 110, false},
		{"a key is not listed", func(s *store.Store, b *store.Batch) error { return b.Delete(keyRingKey(1, 1, 3)) }, "missing", 110, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			e := mustOpen(t, dir, nil)
			db, j := fillJournal(t, e, 110)
			before, err := j.Info(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			checkClean(t, e, "before")
			mustClose(t, e)
			change(t, dir, c.do)
			found := ""
			if e, err := Open(dir, nil); err != nil {
				found = err.Error() + " damaged"
			} else {
				for _, p := range problems(t, e) {
					found += p.String() + "\n"
				}
				mustClose(t, e)
			}
			if !strings.Contains(found, c.find) {
				t.Errorf("found %q, want it to say %q", found, c.find)
			}
			if _, err := Repair(context.Background(), dir, nil); err != nil {
				t.Fatal(err)
			}
			e = mustOpen(t, dir, nil)
			defer mustClose(t, e)
			checkClean(t, e, "after repair")
			if db, err = e.OpenDB(t.Context(), "shop"); err != nil {
				t.Fatal(err)
			}
			if c.lost {
				j = osier.NewJournal("recovered-1")
			}
			events, err := drainEvents(j.Read(t.Context(), db, &osier.ReadOptions{All: true}))
			if err != nil || len(events) != c.left {
				t.Errorf("%d events are left (%v), want %d", len(events), err, c.left)
			}
			if n, err := j.Count(t.Context(), db, &osier.ReadOptions{All: true}); err != nil || n != uint64(c.left) {
				t.Errorf("%d events are counted (%v), want %d", n, err, c.left)
			}
			p, err := j.Append(t.Context(), db, []byte("next"))
			if err != nil || !before.Last.Before(p) {
				t.Errorf("the next event is at %v (%v), the last was at %v", p, err, before.Last)
			}
			checkClean(t, e, "after an append")
		})
	}
}

// A backup has what was appended before it, also what was still to be written.
func TestBackupHasPendingEvents(t *testing.T) {
	e := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, e)
	db, j := fillJournal(t, e, 10)
	if _, err := j.Append(t.Context(), db.With(osier.Relaxed), []byte("pending")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	if err := e.Backup(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	copied := mustOpen(t, dir, nil)
	defer mustClose(t, copied)
	db, err := copied.OpenDB(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	events, err := drainEvents(j.Read(t.Context(), db, &osier.ReadOptions{Reverse: true}))
	if err != nil || len(events) != 11 || string(events[0].Data) != "pending" {
		t.Errorf("%d events (%v)", len(events), err)
	}
	checkClean(t, copied, "backup")
}
