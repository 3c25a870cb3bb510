package pocket

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The saves of a synced store leave the file's size as it is until the space
// allocated ahead is used up, a reader of the file loses nothing by the zeros,
// and Close takes them away.
func TestSyncedAllocatesAhead(t *testing.T) {
	path := tempPath(t)
	if f, err := os.Create(path); err != nil {
		t.Fatal(err)
	} else if err := (osFile{f}).allocate(0, 4096); err != nil {
		t.Skipf("the file system allocates nothing ahead: %v", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path, &Options{Durability: Synced, RewriteRatio: -1})
	size := func() int64 {
		t.Helper()
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	mustSave(t, s, "first", "x")
	first := size()
	if used := s.Stats().FileBytes; first < used+firstStep {
		t.Fatalf("got a file of %d bytes, want %d ahead of the %d used", first, firstStep, used)
	}
	for i := range 20 {
		mustSave(t, s, fmt.Sprint(i), "x")
	}
	if got := size(); got != first {
		t.Errorf("got a size of %d after more saves, want the %d before", got, first)
	}
	beside := mustOpen(t, path, &Options{ReadOnly: true})
	if n := Count(beside, All()); n != 21 {
		t.Errorf("a reader beside the writer has %d records, want 21", n)
	}
	mustClose(t, beside)
	large := strings.Repeat("x", 3*firstStep)
	mustSave(t, s, "large", large)
	mustClose(t, s)
	if i := strings.IndexByte(readFile(t, path), 0); i >= 0 {
		t.Errorf("the closed file has a zero at %d of %d bytes", i, size())
	}
	s = mustOpen(t, path, nil)
	mustGet(t, s, "large", large)
	if r := s.Report(); !r.Clean() {
		t.Errorf("report after reopening: %+v", r)
	}
}
