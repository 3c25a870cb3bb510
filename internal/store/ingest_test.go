package store

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// sortedTable makes a table of n records whose keys begin with prefix.
func sortedTable(t testing.TB, s *Store, prefix, value string, n int) *SortedTable {
	t.Helper()
	table, err := s.NewSortedTable()
	if err != nil {
		t.Fatalf("begin table: %v", err)
	}
	for i := range n {
		if err := table.Set(fmt.Appendf(nil, "%s%05d", prefix, i), []byte(value)); err != nil {
			t.Fatalf("fill table: %v", err)
		}
	}
	return table
}

func scratchFiles(t testing.TB, s *Store) []string {
	t.Helper()
	names, err := s.files.List(s.fs.PathJoin(s.dir, scratchName))
	if err != nil {
		t.Fatalf("list temporary files: %v", err)
	}
	return names
}

// TestIngest: tables become visible at once, above what was there, not to
// snapshots taken before; they survive a power cut at once, and later batches are
// above them.
func TestIngest(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: mem})
	mustPut(t, s, "a00001", "old", Sync)
	snap, err := s.NewSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	if err := s.Ingest(sortedTable(t, s, "b", "new", 2000), sortedTable(t, s, "a", "new", 3000)); err != nil {
		t.Fatalf("ingest: %v", err)
	}
	if v, c, err := snap.Get([]byte("a00001")); err != nil || string(v) != "old" {
		t.Errorf("snapshot: got %q, %v, want %q", v, err, "old")
	} else {
		c.Close()
	}
	if _, _, err := snap.Get([]byte("b00000")); !errors.Is(err, ErrNotFound) {
		t.Errorf("snapshot has an ingested key: %v", err)
	}
	want := map[string]string{}
	for i := range 3000 {
		want[fmt.Sprintf("a%05d", i)] = "new"
	}
	for i := range 2000 {
		want[fmt.Sprintf("b%05d", i)] = "new"
	}
	if got := dump(t, s); !maps.Equal(got, want) {
		t.Errorf("%d records, want the %d ingested ones", len(got), len(want))
	}
	if names := scratchFiles(t, s); len(names) > 0 {
		t.Errorf("temporary files are left: %v", names)
	}
	after := mustOpen(t, "store", &Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	if got := dump(t, after); !maps.Equal(got, want) {
		t.Errorf("after a power cut: %d records, want %d", len(got), len(want))
	}
	if found := verifyAll(t, after); len(found) > 0 {
		t.Errorf("after a power cut: damage: %v", found)
	}
	mustPut(t, s, "a00001", "newest", Sync)
	if got := get(t, s, "a00001"); got != "newest" {
		t.Errorf("batch after the tables: got %q", got)
	}
}

// TestIngestRefuses: what is no sorted run of records is refused, whole, and
// leaves no file.
func TestIngestRefuses(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	table := sortedTable(t, s, "a", "v", 10)
	if err := table.Set([]byte("a00009"), nil); err == nil || !strings.Contains(err.Error(), "after") {
		t.Errorf("a key twice: got %v", err)
	}
	if err := s.Ingest(table, sortedTable(t, s, "a", "w", 5)); err == nil {
		t.Error("tables that overlap were ingested")
	}
	if err := table.Set([]byte("b"), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("fill after ingest: got %v, want ErrClosed", err)
	}
	if err := s.Ingest(table); !errors.Is(err, ErrClosed) {
		t.Errorf("ingest twice: got %v, want ErrClosed", err)
	}
	if err := s.Ingest(sortedTable(t, s, "", "", 0)); err != nil {
		t.Errorf("an empty table: %v", err)
	}
	given := sortedTable(t, s, "c", "v", 10)
	if err := errors.Join(given.Close(), given.Close()); err != nil {
		t.Errorf("give a table up: %v", err)
	}
	if got := dump(t, s); len(got) > 0 {
		t.Errorf("%d records are there, want none", len(got))
	}
	if names := scratchFiles(t, s); len(names) > 0 {
		t.Errorf("temporary files are left: %v", names)
	}
}

// TestIngestEveryFailure fails the 1st, 2nd, ... operation on the file system:
// nothing hangs or panics, tables are there whole or not at all, and surely if
// Ingest said so, also after a power cut.
func TestIngestEveryFailure(t *testing.T) {
	for _, stay := range []bool{false, true} {
		for n := int64(1); ; n++ {
			f := &failFrom{n: n, stay: stay, err: syscall.EIO}
			f.off.Store(true)
			within(t, time.Minute, f.String(), func() { ingestFault(t, f) })
			if t.Failed() {
				t.Fatalf("stay=%t, operation %d: %+v", stay, n, f.hit.Load())
			}
			if f.hit.Load() == nil {
				t.Logf("%d operations", n)
				break
			}
		}
	}
}

func ingestFault(t *testing.T, f *failFrom) {
	mem := vfs.NewCrashableMem()
	s, err := Open("store", &Options{FS: errorfs.Wrap(mem, f)})
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	f.off.Store(false)
	err = func() error {
		var tables []*SortedTable
		for _, prefix := range []string{"a", "b"} {
			table, err := s.NewSortedTable()
			if err != nil {
				return err
			}
			defer table.Close()
			for i := range 500 {
				if err := table.Set(fmt.Appendf(nil, "%s%05d", prefix, i), make([]byte, 100)); err != nil {
					return err
				}
			}
			tables = append(tables, table)
		}
		return s.Ingest(tables...)
	}()
	if err != nil && f.hit.Load() == nil {
		t.Errorf("failed by itself: %v", err)
	}
	power := mem.CrashClone(vfs.CrashCloneCfg{})
	f.off.Store(true)
	if cerr := s.Close(); cerr != nil && s.Fenced() == nil {
		t.Errorf("close: %v", cerr)
	}
	for what, fs := range map[string]vfs.FS{"after close": mem, "after a power cut": power} {
		again, oerr := Open("store", &Options{FS: fs})
		if oerr != nil {
			t.Errorf("open %s: %v", what, oerr)
			continue
		}
		got := len(dump(t, again))
		if got != 0 && got != 1000 || err == nil && got != 1000 {
			t.Errorf("%s: %d records of 1000, ingest said %v", what, got, err)
		}
		mustClose(t, again)
	}
}

// TestIngestComesAfterWhatWasBefore: no power cut keeps ingested records and loses a
// batch that was applied before them.
func TestIngestComesAfterWhatWasBefore(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: mem, SyncInterval: time.Hour})
	mustPut(t, s, "owner", "here", Relaxed)
	if err := s.Ingest(sortedTable(t, s, "row", "v", 100)); err != nil {
		t.Fatalf("ingest: %v", err)
	}
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	s = mustOpen(t, "store", &Options{FS: after})
	defer mustClose(t, s)
	for _, key := range []string{"row00000", "owner"} {
		_, c, err := s.Get([]byte(key))
		if err != nil {
			t.Errorf("after a power cut: %s: %v", key, err)
			continue
		}
		c.Close()
	}
}
