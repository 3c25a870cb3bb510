package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mustOpen opens a store and closes it when the test ends.
func mustOpen(t testing.TB, dir string, o *Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, ErrFenced) {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// put applies one key with a level and waits.
func put(s *Store, key, value string, d Durability) error {
	b := s.NewWriteBatch()
	defer b.Close()
	if err := b.Set([]byte(key), []byte(value)); err != nil {
		return err
	}
	p, err := s.Apply(b, d)
	if err != nil {
		return err
	}
	return p.Wait()
}

func mustPut(t testing.TB, s *Store, key, value string, d Durability) {
	t.Helper()
	if err := put(s, key, value, d); err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
}

// get returns a value as text, "" if the key is not there.
func get(t testing.TB, s *Store, key string) string {
	t.Helper()
	v, c, err := s.Get([]byte(key))
	if errors.Is(err, ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	defer c.Close()
	return string(v)
}

// dump returns everything in the store.
func dump(t testing.TB, s *Store) map[string]string {
	t.Helper()
	it, err := s.NewIter(nil, nil)
	if err != nil {
		t.Fatalf("iterate: %v", err)
	}
	m := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		m[string(it.Key())] = string(it.Value())
	}
	if err := it.Close(); err != nil {
		t.Fatalf("iterate: %v", err)
	}
	return m
}

// salvageAll salvages a folder into a map and checks the order of keys.
func salvageAll(t testing.TB, dir string, o *Options) (map[string]string, []Damage) {
	t.Helper()
	got := map[string]string{}
	var found []Damage
	var last []byte
	err := Salvage(context.Background(), dir, o, func(k, v []byte) error {
		if last != nil && bytes.Compare(k, last) <= 0 {
			t.Errorf("salvage: key %q after %q", k, last)
		}
		last = append(last[:0], k...)
		got[string(k)] = string(v)
		return nil
	}, func(d Damage) { found = append(found, d) })
	if err != nil {
		t.Fatalf("salvage: %v", err)
	}
	return got, found
}

func verifyAll(t testing.TB, s *Store) []Damage {
	t.Helper()
	var found []Damage
	if err := s.Verify(context.Background(), func(d Damage) { found = append(found, d) }); err != nil {
		t.Fatalf("verify: %v", err)
	}
	return found
}

func sameMaps(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	var diff []string
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			diff = append(diff, fmt.Sprintf("%q: got %.20q, want %.20q", k, got[k], v))
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			diff = append(diff, fmt.Sprintf("%q: got %.20q, want none", k, v))
		}
	}
	slices.Sort(diff)
	t.Errorf("%s: %d keys instead of %d, %d differ: %v", what, len(got), len(want), len(diff), diff[:min(len(diff), 8)])
}

// filesOf returns the engine's files with an extension, oldest first.
func filesOf(t testing.TB, f vfs.FS, dir, ext string) []string {
	t.Helper()
	names, err := f.List(f.PathJoin(dir, dataName))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range names {
		if len(n) > len(ext) && n[len(n)-len(ext):] == ext {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
