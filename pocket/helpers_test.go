package pocket

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// entity is the type of the ancestor's examples.
type entity struct {
	Body string
}

func testOptions() *Options {
	return &Options{Types: []Type{TypeOf[entity]("Entity")}, Durability: Cached, RewriteRatio: -1}
}

func tempPath(t testing.TB) string { return filepath.Join(t.TempDir(), "test.pocket") }

func mustOpen(t testing.TB, path string, o *Options) *Store {
	t.Helper()
	s, err := Open(path, o)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func mustSave(t testing.TB, s *Store, key string, value any) {
	t.Helper()
	if err := s.Save(key, value); err != nil {
		t.Fatalf("save %q: %v", key, err)
	}
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// dump returns what a reader sees, as lines that a failing test can print.
func dump(from Reader) []string {
	var out []string
	for key, r := range Scan[Record](from, All()) {
		out = append(out, strings.TrimSuffix(string(appendRecord(nil, key, r.Type(), r.JSON(), uint64(r.Version()), 0)), "\n"))
	}
	return out
}

// plainDump is dump without versions.
func plainDump(from Reader) []string {
	var out []string
	for key, r := range Scan[Record](from, All()) {
		out = append(out, strings.TrimSuffix(string(appendRecord(nil, key, r.Type(), r.JSON(), 0, 0)), "\n"))
	}
	return out
}

func wantSame[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// check compares table, tree and accounts of a store that nobody writes to.
func check(t testing.TB, s *Store) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.cur.Load()
	n, words, bytes := 0, 0, int64(0)
	last, first := "", true
	span := All()
	c := cursor{dir: st.dir, span: &span}
	for l, i, end := c.first(st.root); l != nil; l, i, end = c.next() {
		for ; i < end; i++ {
			off := l.at(i)
			r, ok := st.dir.at(off)
			if !ok || r.deleted() || r.version() > st.seq || l.heads[i] != head(r.key()) {
				t.Fatalf("index entry %d of key %q is wrong", i, r.key())
			}
			if !first && r.key() <= last {
				t.Fatalf("key %q comes after %q", r.key(), last)
			}
			last, first = r.key(), false
			got, ok := s.lookup(r.key())
			if ok != !gone(r) || ok && got != r {
				t.Fatalf("table and index differ for key %q", r.key())
			}
			n++
			words += r.words()
			bytes += int64(recordLineLen(r.key(), s.types.name(r.typeID()), r.value(), r.expiry()))
		}
	}
	if n != st.live || int64(n) != s.stats.live.Load() {
		t.Fatalf("live records: index %d, state %d, counter %d", n, st.live, s.stats.live.Load())
	}
	if words != s.arena.liveWords || bytes != s.liveBytes {
		t.Fatalf("accounts: words %d counted %d, bytes %d counted %d", words, s.arena.liveWords, bytes, s.liveBytes)
	}
	total := 0
	for _, c := range s.arena.dir.chunks {
		total += len(c)
	}
	if total != s.arena.total {
		t.Fatalf("arena: %d words, %d counted", total, s.arena.total)
	}
}
