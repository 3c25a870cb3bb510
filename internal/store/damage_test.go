package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// damagedStore makes a folder with overwritten, deleted and range-deleted keys in
// several tables and in logs, as a crash leaves it, and returns it with what it
// holds.
func damagedStore(t *testing.T, rng *rand.Rand, wrap func(vfs.FS) vfs.FS) (*vfs.MemFS, map[string]string) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: mem, MemTableBytes: 256 << 10, WrapFS: wrap})
	want := map[string]string{}
	for n := range 60 {
		b := s.NewWriteBatch()
		for range 40 {
			k := fmt.Sprintf("key/%05d", rng.IntN(3000))
			var err error
			if rng.IntN(8) == 0 {
				err = b.Delete([]byte(k))
				delete(want, k)
			} else {
				v := randomText(rng, 20+rng.IntN(600))
				err = b.Set([]byte(k), []byte(v))
				want[k] = v
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n%9 == 0 {
			lo, hi := fmt.Sprintf("key/%05d", 100*(n%30)), fmt.Sprintf("key/%05d", 100*(n%30)+60)
			if err := b.DeleteRange([]byte(lo), []byte(hi)); err != nil {
				t.Fatal(err)
			}
			for k := range want {
				if lo <= k && k < hi {
					delete(want, k)
				}
			}
		}
		p, err := s.Apply(b, Sync)
		if err == nil {
			err = p.Wait()
		}
		if err == nil && n == 30 {
			err = s.Compact(context.Background(), nil, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cut := mem.CrashClone(vfs.CrashCloneCfg{})
	if tables := filesOf(t, cut, "store", ".sst"); len(tables) == 0 {
		t.Fatal("no tables")
	}
	return cut, want
}

func randomText(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + rng.IntN(26))
	}
	return string(b)
}

func fileBytes(t *testing.T, f vfs.FS, name string) []byte {
	t.Helper()
	r, err := f.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

func setFile(t *testing.T, f vfs.FS, name string, b []byte) {
	t.Helper()
	w, err := f.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(bytes.Clone(b))
	if err = errors.Join(err, w.Sync(), w.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSalvageWhole: of an undamaged folder salvage returns exactly what the store
// would, also when it has to read the logs in small sorted pieces.
func TestSalvageWhole(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, i))
		f, want := damagedStore(t, rng, nil)
		got, found := salvageAll(t, "store", &Options{FS: f})
		sameMaps(t, fmt.Sprintf("seed %d round %d: salvaged", seed, i), got, want)
		if len(found) > 0 {
			t.Errorf("seed %d round %d: damage: %v", seed, i, found)
		}
		s := mustOpen(t, "store", &Options{FS: f})
		sameMaps(t, fmt.Sprintf("seed %d round %d: reopened", seed, i), dump(t, s), want)
		if found := verifyAll(t, s); len(found) > 0 {
			t.Errorf("seed %d round %d: verify: %v", seed, i, found)
		}
		mustClose(t, s)
		if t.Failed() {
			return
		}
	}
}

// checkSalvaged checks a salvaged map against what was stored: nothing invented,
// and at least a share of what was there.
func checkSalvaged(t *testing.T, what string, got, want map[string]string, share float64) {
	t.Helper()
	same := 0
	for k, v := range want {
		if got[k] == v {
			same++
		}
	}
	if float64(same) < share*float64(len(want)) {
		t.Errorf("%s: %d of %d keys salvaged, want %.0f%%", what, same, len(want), 100*share)
	}
}

// TestFlippedTable: flipped bits in tables are found by reading, Verify and
// Salvage, which name the file, and cost no more than the blocks they are in.
func TestFlippedTable(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(rounds(60)) {
		what := fmt.Sprintf("seed %d round %d", seed, i)
		rng := rand.New(rand.NewPCG(seed, i))
		f, want := damagedStore(t, rng, nil)
		s := mustOpen(t, "store", &Options{FS: f})
		if err := s.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		live, err := liveNames(f)
		if err != nil || len(live) == 0 {
			t.Fatalf("%s: %v, %d tables", what, err, len(live))
		}
		name := live[rng.IntN(len(live))]
		path := "store/data/" + name
		b := fileBytes(t, f, path)
		blocks := 1 + rng.IntN(3)
		for range blocks {
			// The first four fifths of a table are its data blocks.
			b[rng.IntN(len(b)*4/5)] ^= 1 << rng.IntN(8)
		}
		setFile(t, f, path, b)

		got, found := salvageAll(t, "store", &Options{FS: f})
		if len(found) == 0 {
			t.Errorf("%s: salvage found no damage", what)
		}
		for _, d := range found {
			if d.File != name || d.Offset < 0 || d.Err == nil {
				t.Errorf("%s: salvage reports %v, want file %s with an offset", what, d, name)
			}
		}
		// A block is 16 KiB of about 300 B values.
		for k, v := range got {
			if want[k] != v {
				t.Errorf("%s: salvaged %q as %.20q, want %.20q", what, k, v, want[k])
			}
		}
		if lost := len(want) - len(got); lost <= 0 || lost > blocks*200 {
			t.Errorf("%s: %d of %d keys lost with %d flipped bits", what, lost, len(want), blocks)
		}
		r := mustOpen(t, "store", &Options{FS: f, CacheBytes: 1 << 20})
		checkDamageSeen(t, what, r, name)
		_ = r.Close() // compactions may have failed
		if t.Failed() {
			return
		}
	}
}

// liveNames returns the tables of a closed store.
func liveNames(f vfs.FS) ([]string, error) {
	s, err := Open("store", &Options{FS: f, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	live, err := s.tables()
	var names []string
	for _, l := range live {
		names = append(names, l.file)
	}
	return names, errors.Join(err, s.Close())
}

// checkDamageSeen checks that reading and verifying meet the damage of a file.
func checkDamageSeen(t *testing.T, what string, s *Store, name string) {
	t.Helper()
	it, err := s.NewIter(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		_ = it.Value()
	}
	var ce *CorruptError
	if err := it.Close(); !errors.As(err, &ce) || !errors.Is(err, ErrCorrupt) || ce.File != name {
		t.Errorf("%s: reading: %v, want a CorruptError of %s", what, err, name)
	}
	found := verifyAll(t, s)
	if len(found) == 0 {
		t.Errorf("%s: verify found no damage", what)
	}
	for _, d := range found {
		if d.File != name || d.Offset < 0 || d.Keys.After == nil && d.Keys.Before == nil {
			t.Errorf("%s: verify reports %v, want file %s, an offset and keys", what, d, name)
		}
	}
	if err := put(s, "new", "value", Sync); err != nil {
		t.Errorf("%s: writing next to the damage: %v", what, err)
	}
}

// TestLostFiles: each kind of missing, truncated or overwritten file is a
// CorruptError or found by reading, and salvage returns the rest.
func TestLostFiles(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	remove := func(t *testing.T, f vfs.FS, name string) {
		if err := f.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	half := func(t *testing.T, f vfs.FS, name string) {
		b := fileBytes(t, f, name)
		setFile(t, f, name, b[:len(b)/2])
	}
	zero := func(t *testing.T, f vfs.FS, name string) {
		setFile(t, f, name, make([]byte, len(fileBytes(t, f, name))))
	}
	tests := []struct {
		name, file string
		damage     func(*testing.T, vfs.FS, string)
		share      float64 // what salvage has to return at least
	}{
		{"missing table", "table", remove, 0.3},
		{"truncated table", "table", half, 0.3},
		{"zeroed table", "table", zero, 0.3},
		{"missing manifest", "MANIFEST", remove, 1},
		{"truncated manifest", "MANIFEST", half, 0.9},
		{"zeroed manifest", "MANIFEST", zero, 1},
		{"missing osier.json", metaName, remove, 1},
		{"zeroed log", "log", zero, 0.5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, want := damagedStore(t, rng, nil)
			name := victim(t, f, tt.file)
			tt.damage(t, f, name)
			got, found := salvageAll(t, "store", &Options{FS: f})
			what := fmt.Sprintf("seed %d, %s", seed, name)
			if len(found) == 0 && tt.file != "log" {
				t.Errorf("%s: salvage found no damage", what)
			}
			checkSalvaged(t, what, got, want, tt.share)
			s, err := Open("store", &Options{FS: f})
			if err == nil {
				defer s.Close()
			}
			if tt.file == "log" {
				return // a log that ends early is what a crash leaves
			}
			if err == nil && tt.file == "table" { // its size is right
				it, ierr := s.NewIter(nil, nil)
				if ierr == nil {
					for ok := it.First(); ok; ok = it.Next() {
						_ = it.Value()
					}
					ierr = it.Close()
				}
				err = ierr
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: open and read: %v, want ErrCorrupt", what, err)
			}
		})
	}
}

// victim returns the file of a kind that a test damages: the largest.
func victim(t *testing.T, f vfs.FS, kind string) string {
	t.Helper()
	if kind == metaName {
		return "store/" + metaName
	}
	names, err := f.List("store/data")
	if err != nil {
		t.Fatal(err)
	}
	if kind == "table" {
		if names, err = liveNames(f); err != nil {
			t.Fatal(err)
		}
	}
	best, size := "", int64(-1)
	for _, n := range names {
		fits := kind == "table" && isTable(n) || kind == "log" && isLog(n) || strings.HasPrefix(n, kind)
		if fi, err := f.Stat("store/data/" + n); err == nil && fits && fi.Size() > size {
			best, size = "store/data/"+n, fi.Size()
		}
	}
	if best == "" {
		t.Fatalf("no %s", kind)
	}
	return best
}

// TestFlippedLog: a bit flipped in the synced part of a log makes Open fail with
// the log's name, and salvage returns all but the batch it is in.
func TestFlippedLog(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(rounds(50)) {
		what := fmt.Sprintf("seed %d round %d", seed, i)
		rng := rand.New(rand.NewPCG(seed, i))
		mem := vfs.NewCrashableMem()
		s := mustOpen(t, "store", &Options{FS: mem})
		want := map[string]string{}
		for n := range 300 {
			k, v := fmt.Sprintf("k%05d", n), randomText(rng, 1000)
			want[k] = v
			mustPut(t, s, k, v, Sync)
		}
		f := mem.CrashClone(vfs.CrashCloneCfg{})
		name := victim(t, f, "log")
		b := fileBytes(t, f, name)
		end := bytes.LastIndex(b, []byte("k00200"))
		b[rng.IntN(end)] ^= 1 << rng.IntN(8)
		setFile(t, f, name, b)
		_, err := Open("store", &Options{FS: f})
		var ce *CorruptError
		if !errors.As(err, &ce) || "store/data/"+ce.File != name {
			t.Errorf("%s: open: %v, want a CorruptError of %s", what, err, name)
		}
		got, found := salvageAll(t, "store", &Options{FS: f})
		if len(found) == 0 || "store/data/"+found[0].File != name || found[0].Offset < 0 {
			t.Errorf("%s: damage %v, want one in %s", what, found, name)
		}
		// A damaged record costs the rest of its block of 32 KiB.
		checkSalvaged(t, what, got, want, 0.85)
		for k, v := range got {
			if want[k] != v {
				t.Errorf("%s: salvaged %q wrongly", what, k)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// TestSorter: entries come out in order, from memory and from files.
func TestSorter(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	mem := vfs.NewMem()
	var s sorter
	s.init(mem, "tmp")
	s.limit = 4000
	const n = 2000
	for i := range n {
		e := entry{key: fmt.Appendf(nil, "%03d", rng.IntN(500)), value: fmt.Append(nil, i), seq: uint64(i), kind: 1}
		if err := s.add(e); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := s.finish()
	if err != nil {
		t.Fatal(err)
	}
	h, err := newMergeHeap(runs)
	if err != nil {
		t.Fatal(err)
	}
	var last entry
	got := 0
	for ; len(h) > 0; got++ {
		e := h[0].e
		if got > 0 && compareEntries(&last, &e) >= 0 || string(e.value) != fmt.Sprint(e.seq) {
			t.Fatalf("seed %d: entry %d is %q %d after %q %d", seed, got, e.key, e.seq, last.key, last.seq)
		}
		last = entry{key: bytes.Clone(e.key), seq: e.seq}
		if err := h.advance(); err != nil {
			t.Fatal(err)
		}
	}
	if got != n || len(s.files) < 10 {
		t.Errorf("seed %d: %d entries from %d files, want %d", seed, got, len(s.files), n)
	}
	for _, r := range runs {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if _, err := mem.Stat("tmp"); err == nil {
		t.Error("files were left behind")
	}
}

// TestSalvageStops: emit's error and the context's end it.
func TestSalvageStops(t *testing.T) {
	f, _ := damagedStore(t, rand.New(rand.NewPCG(1, 1)), nil)
	stop := errors.New("stop")
	n := 0
	err := Salvage(context.Background(), "store", &Options{FS: f}, func(_, _ []byte) error {
		n++
		return stop
	}, func(Damage) {})
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("got %v after %d keys, want %v after 1", err, n, stop)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err = Salvage(ctx, "store", &Options{FS: f}, func(_, _ []byte) error { return nil }, func(Damage) {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}
