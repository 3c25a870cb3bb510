package store

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A temporary file holds what was written, goes with its Close, and what a crash
// leaves of it the next Open removes, and nothing else.
func TestScratchFilesComeAndGo(t *testing.T) {
	mem := vfs.NewMem()
	open := func() *Store {
		s, err := Open("store", &Options{FS: mem})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	left, err := s.NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	gone, err := s.NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"sorted", " runs"} {
		if _, err := gone.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 4)
	if _, err := gone.ReadAt(b, 7); err != nil || string(b) != "runs" || gone.Size() != 11 {
		t.Fatalf("got %q of %d bytes, %v; want %q of 11", b, gone.Size(), err, "runs")
	}
	name := gone.name
	if err := errors.Join(gone.Close(), gone.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is still there: %v", name, err)
	}
	// A crash: the file stays, whoever had it open.
	name = left.name
	left.s.uses.leave()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Stat(name); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	if _, err := mem.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s outlived a reopening: %v", name, err)
	}
}

// A folder that is no store is left alone, also if it has a subfolder of that
// name.
func TestScratchOfOthersIsLeftAlone(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("mine/tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("mine", &Options{FS: mem}); !errors.Is(err, ErrForeign) {
		t.Fatalf("got %v, want ErrForeign", err)
	}
	if _, err := mem.Stat("mine/tmp"); err != nil {
		t.Fatal(err)
	}
}
