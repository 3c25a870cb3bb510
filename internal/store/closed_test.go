package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// closedStore makes a store in memory that was closed cleanly, with tables.
func closedStore(t *testing.T) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewMem()
	for round := range 3 {
		s := mustOpen(t, "store", &Options{FS: mem})
		b := s.NewWriteBatch()
		if err := b.Set(fmt.Appendf(nil, "key/%d", round), []byte("value")); err != nil {
			t.Fatal(err)
		}
		p, err := s.Apply(b, Sync)
		if err == nil {
			err = errors.Join(p.Wait(), s.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// A manifest that was cut between two records is whole to the engine, which
// forgets the newest tables.
func TestManifestCutBetweenRecords(t *testing.T) {
	mem := closedStore(t)
	name := victim(t, mem, "MANIFEST")
	whole := fileBytes(t, mem, name)
	var ends []int64
	l := recordLog{fs: mem, path: name, name: name, limit: -1, report: func(d Damage) { t.Errorf("damage: %+v", d) }}
	if err := l.each(func(_ []byte, off int64) error { ends = append(ends, off); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(ends) < 3 {
		t.Fatalf("the manifest has %d records", len(ends))
	}
	for _, end := range ends[1:] {
		setFile(t, mem, name, whole[:end])
		s, err := Open("store", &Options{FS: mem})
		if err == nil {
			s.Close()
		}
		var c *CorruptError
		if !errors.As(err, &c) || !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d of %d: %v, want ErrCorrupt", end, len(whole), err)
		}
	}
	setFile(t, mem, name, whole)
	mustClose(t, mustOpen(t, "store", &Options{FS: mem}))
}

// A note that is missing, torn or older does no harm.
func TestNoteOfClosing(t *testing.T) {
	for name, change := range map[string]func(*testing.T, vfs.FS, string){
		"missing": func(t *testing.T, f vfs.FS, name string) {
			if err := f.Remove(name); err != nil {
				t.Fatal(err)
			}
		},
		"torn": func(t *testing.T, f vfs.FS, name string) { setFile(t, f, name, []byte(`{"manif`)) },
		"older": func(t *testing.T, f vfs.FS, name string) {
			setFile(t, f, name, []byte(`{"manifest":"MANIFEST-000001","bytes":99999}`))
		},
		"less": func(*testing.T, vfs.FS, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			mem := closedStore(t)
			if name == "less" { // written to, and never closed again
				s := mustOpen(t, "store", &Options{FS: mem})
				b := s.NewWriteBatch()
				if err := b.Set([]byte("more"), []byte("value")); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Apply(b, Sync); err != nil {
					t.Fatal(err)
				}
				if err := s.Compact(t.Context(), nil, nil); err != nil {
					t.Fatal(err)
				}
				note := fileBytes(t, mem, "store/"+closedName)
				mustClose(t, s)
				setFile(t, mem, "store/"+closedName, note)
			}
			change(t, mem, "store/"+closedName)
			mustClose(t, mustOpen(t, "store", &Options{FS: mem}))
		})
	}
}
