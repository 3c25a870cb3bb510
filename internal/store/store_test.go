package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"
)

// holderEnv makes the test binary open the folder it names and keep it open.
const holderEnv = "OSIER_STORE_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderEnv); dir != "" {
		hold(dir)
		return
	}
	os.Exit(m.Run())
}

// hold opens a store, writes acknowledged batches and tells each on standard
// output until it is killed or its standard input ends.
func hold(dir string) {
	s, err := Open(dir, &Options{MemTableBytes: 256 << 10})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	stop := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(stop)
	}()
	w := &crashWriter{s: s, rng: rand.New(rand.NewPCG(1, 1)), pad: strings.Repeat("x", 4000)}
	for {
		select {
		case <-stop:
			_ = s.Close()
			os.Exit(0)
		default:
		}
		p, err := w.write(Buffered)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(w.n)
	}
}

// startHolder starts a process that holds dir and waits until it has written.
func startHolder(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	sc := bufio.NewScanner(out)
	if !sc.Scan() || sc.Text() != "1" {
		t.Fatalf("holder said %q", sc.Text())
	}
	return cmd, sc
}

// TestLockedByProcess: a second process is refused at once and told who has the
// store.
func TestLockedByProcess(t *testing.T) {
	dir := t.TempDir()
	cmd, sc := startHolder(t, dir)
	go func() {
		for sc.Scan() {
		}
	}()
	for range 2 { // the attempt itself must not take the lock away
		_, err := Open(dir, nil)
		var le *LockedError
		if !errors.As(err, &le) || !errors.Is(err, ErrLocked) {
			t.Fatalf("got %v, want a LockedError", err)
		}
		host, _ := os.Hostname()
		if le.PID != cmd.Process.Pid || le.Host != host || time.Since(le.Since) > time.Hour {
			t.Errorf("got %+v, want process %d on %s", le, cmd.Process.Pid, host)
		}
		if err := Salvage(context.Background(), dir, nil, nil, nil); !errors.Is(err, ErrLocked) {
			t.Errorf("salvage: got %v, want ErrLocked", err)
		}
	}
}

// TestKilledProcess: what a killed process had acknowledged as Buffered is there.
func TestKilledProcess(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds(10) {
		dir := t.TempDir()
		cmd, sc := startHolder(t, dir)
		acked := 1
		for stop := 50 + rng.IntN(500); acked < stop && sc.Scan(); {
			if _, err := fmt.Sscan(sc.Text(), &acked); err != nil {
				t.Fatalf("holder said %q", sc.Text())
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for sc.Scan() { // it may have acknowledged more
			_, _ = fmt.Sscan(sc.Text(), &acked)
		}
		_ = cmd.Wait()
		s := mustOpen(t, dir, nil)
		if got := checkPrefix(t, dump(t, s)); got < acked {
			t.Errorf("seed %d round %d: %d batches, acknowledged were %d", seed, round, got, acked)
		}
	}
}

// TestLockedInProcess: a second Open in the same process is refused, by whatever
// name the folder is given, and leaves the lock alone.
func TestLockedInProcess(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, nil)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(dir))
	for _, name := range []string{dir, link, filepath.Base(dir), dir + "/."} {
		_, err := Open(name, nil)
		var le *LockedError
		if !errors.As(err, &le) || le.PID != os.Getpid() {
			t.Errorf("open %s: got %v, want a LockedError of this process", name, err)
		}
	}
	if _, err := Open(dir, &Options{ReadOnly: true}); !errors.Is(err, ErrLocked) {
		t.Errorf("open read-only: got %v, want ErrLocked", err)
	}
	mustClose(t, s)
	mustClose(t, mustOpen(t, dir, nil))
}

type folderCase struct {
	name string
	make func(*testing.T) string
	want error
}

// folderCases are folders that Open refuses.
func folderCases() []folderCase {
	write := func(t *testing.T, dir, name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newStore := func(t *testing.T) string {
		dir := t.TempDir()
		s := mustOpen(t, dir, nil)
		mustPut(t, s, "k", "v", Sync)
		mustClose(t, s)
		return dir
	}
	return []folderCase{
		{"foreign files", func(t *testing.T) string { d := t.TempDir(); write(t, d, "photo.jpg", "x"); return d }, ErrForeign},
		{"another product", func(t *testing.T) string {
			d := t.TempDir()
			write(t, d, metaName, `{"product":"pear","format":1}`)
			return d
		}, ErrForeign},
		{"newer format", func(t *testing.T) string {
			d := newStore(t)
			write(t, d, metaName, `{"product":"osier","format":99}`)
			return d
		}, ErrFormat},
		{"no osier.json", func(t *testing.T) string {
			d := newStore(t)
			if err := os.Remove(filepath.Join(d, metaName)); err != nil {
				t.Fatal(err)
			}
			return d
		}, ErrCorrupt},
		{"torn osier.json", func(t *testing.T) string { d := newStore(t); write(t, d, metaName, `{"prod`); return d }, ErrCorrupt},
		{"no data", func(t *testing.T) string {
			d := newStore(t)
			if err := os.RemoveAll(filepath.Join(d, dataName)); err != nil {
				t.Fatal(err)
			}
			return d
		}, ErrCorrupt},
		{"empty data", func(t *testing.T) string {
			d := newStore(t)
			if err := os.RemoveAll(filepath.Join(d, dataName)); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(d, dataName), 0o755); err != nil {
				t.Fatal(err)
			}
			return d
		}, ErrCorrupt},
	}
}

// TestFolder: what Open does with folders that are not a store of its own.
func TestFolder(t *testing.T) {
	for _, tt := range folderCases() {
		t.Run(tt.name, func(t *testing.T) {
			dir := tt.make(t)
			before := listTree(t, dir)
			_, err := Open(dir, nil)
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if tt.name == "empty data" {
				return // the engine has looked into it
			}
			if after := listTree(t, dir); after != before {
				t.Errorf("the folder was changed: %s\nwas: %s", after, before)
			}
			var fe *FormatError
			if tt.want == ErrFormat && (!errors.As(err, &fe) || fe.Found != 99 || fe.Newest != FormatVersion) {
				t.Errorf("got %+v", fe)
			}
		})
	}
}

func listTree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err == nil && d.Name() != lockName {
			fmt.Fprintf(&b, "%s %d\n", p, fi.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestMigration: the ladder is climbed step by step, a crash repeats the step it
// met and no other, and an older program refuses the result.
func TestMigration(t *testing.T) {
	mem := vfs.NewCrashableMem()
	one := []migration{}
	s := mustOpen(t, "store", &Options{FS: mem, migrations: one})
	mustPut(t, s, "name", "a", Sync)
	mustClose(t, s)
	var ran []string
	step := func(name string) migration {
		return func(s *Store) error {
			ran = append(ran, name)
			return put(s, name, "done", Relaxed)
		}
	}
	boom := errors.New("power cut")
	ladder := []migration{step("one"), step("two"), step("three")}
	broken := []migration{step("one"), func(s *Store) error { return boom }, step("three")}
	if _, err := Open("store", &Options{FS: mem, migrations: broken}); !errors.Is(err, boom) {
		t.Fatalf("got %v, want %v", err, boom)
	}
	if _, err := Open("store", &Options{FS: mem, migrations: ladder, ReadOnly: true}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only open of an old store: %v, want ErrReadOnly", err)
	}
	cut := mem.CrashClone(vfs.CrashCloneCfg{})
	r := mustOpen(t, "store", &Options{FS: cut, migrations: ladder})
	if got := strings.Join(ran, " "); got != "one two three" {
		t.Errorf("ran %q", got)
	}
	sameMaps(t, "after migration", dump(t, r), map[string]string{"name": "a", "one": "done", "two": "done", "three": "done"})
	mustClose(t, r)
	var fe *FormatError
	if _, err := Open("store", &Options{FS: cut, migrations: one}); !errors.As(err, &fe) || fe.Found != 4 || fe.Newest != 1 {
		t.Errorf("got %v, want a FormatError of 4 over 1", err)
	}
	n := mustOpen(t, "new", &Options{FS: cut, migrations: ladder})
	mustClose(t, n)
	if m, err := readMeta(cut, "new"); err != nil || m.Format != 4 || len(ran) != 3 {
		t.Errorf("a new store: format %d, %v, ran %v", m.Format, err, ran)
	}
}

// TestUnfinishedCreation: a power cut at any moment of the first Open leaves a
// folder that opens.
func TestUnfinishedCreation(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, i))
		mem := vfs.NewCrashableMem()
		f := &failFrom{n: int64(1 + rng.IntN(60)), stay: true, err: errors.New("power cut")}
		s, err := Open("store", &Options{FS: errorfs.Wrap(mem, f)})
		cut := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		if err == nil {
			_ = s.Close() // may fail: the disk is gone
		}
		r, err := Open("store", &Options{FS: cut})
		if err != nil {
			t.Fatalf("seed %d round %d: %v", seed, i, err)
		}
		if err := put(r, "k", "v", Sync); err != nil {
			t.Fatalf("seed %d round %d: %v", seed, i, err)
		}
		mustClose(t, r)
	}
}

// TestCloseLeavesNothingToReplay: after Close all logs are empty.
func TestCloseLeavesNothingToReplay(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, "store", &Options{FS: mem})
	for i := range 1000 {
		mustPut(t, s, fmt.Sprintf("k%04d", i), "v", Durability(i%3))
	}
	mustClose(t, s)
	name, err := readSmall(mem, mem.PathJoin("store", metaName))
	if err != nil {
		t.Fatal(err)
	}
	var m metaFile
	if err := json.Unmarshal(name, &m); err != nil || m.Product != product || m.Format != FormatVersion || m.Creating {
		t.Errorf("osier.json is %s: %v", name, err)
	}
	sv := &salvage{s: &Store{opts: (&Options{}).withDefaults(), dir: "store", fs: mem, files: mem}, ctx: context.Background(),
		report: func(d Damage) { t.Errorf("damage: %v", d) }}
	names, err := mem.List("store/data")
	if err != nil {
		t.Fatal(err)
	}
	if err := sv.readLogs(names, sv.minLog()); err != nil {
		t.Fatal(err)
	}
	if n := len(sv.sort.entries); n > 0 {
		t.Errorf("%d writes are in logs, want 0", n)
	}
	r := mustOpen(t, "store", &Options{FS: mem})
	if got := len(dump(t, r)); got != 1000 {
		t.Errorf("%d keys, want 1000", got)
	}
}

// TestClose: it waits for what is in use, refuses what is new and is idempotent.
func TestClose(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	mustPut(t, s, "a", "1", Sync)
	it, err := s.NewIter(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := s.NewSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	v, c, err := s.Get([]byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	closed := make(chan error, 4)
	for range 4 {
		go func() { closed <- s.Close() }()
	}
	for s.uses.n.Load() < usesClosed { // until one of them has begun
		_ = s.Fenced()
	}
	if _, err := s.NewIter(nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("new iterator: %v, want ErrClosed", err)
	}
	if _, err := snap.NewIter(nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("new iterator of a snapshot: %v, want ErrClosed", err)
	}
	if !it.First() || string(it.Key()) != "a" || string(v) != "1" {
		t.Error("what was open does not work")
	}
	select {
	case err := <-closed:
		t.Errorf("closed with things in use: %v", err)
	default:
	}
	if err := errors.Join(it.Close(), it.Close(), snap.Close(), snap.Close(), c.Close()); err != nil {
		t.Errorf("release: %v", err)
	}
	for range 4 {
		if err := <-closed; err != nil {
			t.Errorf("close: %v", err)
		}
	}
	_, _, getErr := s.Get([]byte("a"))
	_, snapErr := s.NewSnapshot()
	_, sizeErr := s.Size(nil, nil)
	_, _, batchErr := b.Get([]byte("a"))
	for i, err := range []error{getErr, snapErr, sizeErr, batchErr, put(s, "b", "1", Sync), s.Flush(),
		s.Compact(context.Background(), nil, nil), s.Checkpoint("c"), s.Verify(context.Background(), nil)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("call %d after close: %v, want ErrClosed", i, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Errorf("batch: %v", err)
	}
}

// TestReadOnly: everything can be read, also from a log, and nothing changes.
func TestReadOnly(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if _, err := Open("store", &Options{FS: mem, ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v, want not exist", err)
	}
	s := mustOpen(t, "store", &Options{FS: mem})
	mustPut(t, s, "a", "1", Sync)
	cut := mem.CrashClone(vfs.CrashCloneCfg{})
	r := mustOpen(t, "store", &Options{FS: cut, ReadOnly: true})
	if got := get(t, r, "a"); got != "1" {
		t.Errorf("got %q, want 1", got)
	}
	for i, err := range []error{put(r, "b", "1", Sync), r.Compact(context.Background(), nil, nil)} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("write %d: %v, want ErrReadOnly", i, err)
		}
	}
	if err := r.Flush(); err != nil {
		t.Errorf("flush: %v", err)
	}
	if found := verifyAll(t, r); len(found) > 0 {
		t.Errorf("damage: %v", found)
	}
}

// TestModel: random operations give what a map gives, through batches, snapshots,
// bounds, compaction, restarts and a checkpoint.
func TestModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		mem := vfs.NewMem()
		o := &Options{FS: mem, MemTableBytes: 256 << 10}
		s, err := Open("store", o)
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = s.Close() }() // checked below; this is for failures
		want := map[string]string{}
		key := rapid.StringMatching(`[a-d]{1,3}`)
		copies := 0
		for range rapid.IntRange(1, 30).Draw(r, "ops") {
			switch rapid.IntRange(0, 9).Draw(r, "op") {
			default:
				modelBatch(r, s, want, key)
			case 7:
				if err := s.Compact(context.Background(), nil, nil); err != nil {
					r.Fatal(err)
				}
			case 8:
				if err := s.Close(); err != nil {
					r.Fatal(err)
				}
				if s, err = Open("store", o); err != nil {
					r.Fatal(err)
				}
			case 9:
				copies++
				name := fmt.Sprint("copy", copies)
				if err := s.Checkpoint(name); err != nil {
					r.Fatal(err)
				}
				c, err := Open(name, o)
				if err != nil {
					r.Fatal(err)
				}
				sameMaps(t, "checkpoint", dump(t, c), want)
				if err := c.Close(); err != nil {
					r.Fatal(err)
				}
			}
			sameMaps(t, "store", dump(t, s), want)
			if t.Failed() {
				r.FailNow()
			}
		}
	})
}

// modelBatch applies one random batch to the store and the map and checks that
// the batch sees itself, before.
func modelBatch(r *rapid.T, s *Store, want map[string]string, key *rapid.Generator[string]) {
	b := s.NewBatch()
	defer b.Close()
	for range rapid.IntRange(0, 5).Draw(r, "writes") {
		k, v := key.Draw(r, "key"), rapid.StringN(0, 40, -1).Draw(r, "value")
		var err error
		switch rapid.IntRange(0, 3).Draw(r, "kind") {
		default:
			err = b.Set([]byte(k), []byte(v))
			want[k] = v
		case 2:
			err = b.Delete([]byte(k))
			delete(want, k)
		case 3:
			end := key.Draw(r, "end")
			err = b.DeleteRange([]byte(k), []byte(end))
			for x := range want {
				if k <= x && x < end {
					delete(want, x)
				}
			}
		}
		if err != nil {
			r.Fatal(err)
		}
	}
	it, err := b.NewIter(nil, nil)
	if err != nil {
		r.Fatal(err)
	}
	n := 0
	for ok := it.Last(); ok; ok = it.Prev() {
		if v, ok := want[string(it.Key())]; !ok || v != string(it.Value()) {
			r.Fatalf("batch: key %q is %q, want %q (%t)", it.Key(), it.Value(), v, ok)
		}
		n++
	}
	if err := it.Close(); err != nil || n != len(want) {
		r.Fatalf("batch: %d keys, want %d: %v", n, len(want), err)
	}
	p, err := s.Apply(b, Durability(rapid.IntRange(0, 2).Draw(r, "level")))
	if err == nil {
		err = p.Wait()
	}
	if err != nil || b.Count() != 0 {
		r.Fatalf("apply: %v, %d writes left", err, b.Count())
	}
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	s := mustOpen(t, t.TempDir(), &Options{MemTableBytes: 256 << 10, SyncInterval: time.Millisecond})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				k := fmt.Sprintf("%d-%03d", g, i)
				if err := put(s, k, strings.Repeat("v", 500), Durability((g+i)%3)); err != nil {
					t.Error(err)
					return
				}
				v, c, err := s.Get([]byte(k))
				if err != nil || len(v) != 500 {
					t.Errorf("get %s: %d bytes, %v", k, len(v), err)
					return
				}
				_ = c.Close()
				if i%100 == 0 {
					_ = s.Metrics()
					if err := errors.Join(s.Flush(), s.Verify(context.Background(), func(d Damage) { t.Errorf("damage: %v", d) })); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Go(func() {
		if err := s.Compact(context.Background(), nil, nil); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	if got := len(dump(t, s)); got != 2400 {
		t.Errorf("%d keys, want 2400", got)
	}
	m := s.Metrics()
	if m.Applied != 2400 || m.Tables == 0 || m.DiskBytes == 0 || m.Flushes == 0 || m.LogSyncs == 0 {
		t.Errorf("metrics: %+v", m)
	}
	if n, err := s.Size(nil, nil); err != nil || n == 0 {
		t.Errorf("size %d, %v", n, err)
	}
}

// TestBatchLimits: too large is an error, not a panic.
func TestBatchLimits(t *testing.T) {
	s := mustOpen(t, "", &Options{InMemory: true})
	b := s.NewWriteBatch()
	defer b.Close()
	half := make([]byte, MaxBatchBytes/2)
	if err := b.Set([]byte("a"), half); err != nil {
		t.Fatal(err)
	}
	if err := b.Set([]byte("b"), half); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	for _, k := range [][]byte{nil, {}, make([]byte, MaxKeyBytes+1)} {
		want := ErrEmptyKey
		if len(k) > 0 {
			want = ErrTooLarge
		}
		if err := errors.Join(b.Set(k, nil), b.Delete(k)); !errors.Is(err, want) {
			t.Errorf("key of %d bytes: %v, want %v", len(k), err, want)
		}
	}
	b.Reset()
	if err := b.Set([]byte("b"), []byte("v")); err != nil || b.Count() != 1 {
		t.Errorf("after reset: %v, %d writes", err, b.Count())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Set([]byte("c"), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("set on a closed batch: %v, want ErrClosed", err)
	}
	if _, err := s.Apply(b, Sync); !errors.Is(err, ErrClosed) {
		t.Errorf("apply of a closed batch: %v, want ErrClosed", err)
	}
	if _, err := s.Apply(s.NewBatch(), Durability(9)); err == nil {
		t.Error("unknown durability was taken")
	}
}

// TestInMemory: a store without a folder behaves like one with.
func TestInMemory(t *testing.T) {
	s := mustOpen(t, "", &Options{InMemory: true})
	for i := range 10 {
		mustPut(t, s, fmt.Sprint(i), "v", Durability(i%3))
	}
	if s.Synced() != 10 || len(dump(t, s)) != 10 {
		t.Errorf("synced %d, %d keys, want 10 and 10", s.Synced(), len(dump(t, s)))
	}
	if err := s.Checkpoint("x"); err == nil {
		t.Error("checkpoint of a store in memory succeeded")
	}
}
