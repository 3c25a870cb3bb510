package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
)

// Close, many times at once, amid writers, readers, feeds and uploads: everyone
// is told ErrClosed or finishes, what was acknowledged is there, no goroutine is
// left, and the folder opens without recovery.
func TestCloseAmidAStorm(t *testing.T) {
	seed := seedOf(t)
	for round := range rounds(20, 4) {
		rng := rngOf(seed, round)
		name := fmt.Sprintf("seed %d, round %d", seed, round)
		leaks := noLeaks(t)
		fs, w := vfs.NewMem(), newWitness()
		e := mustOpen(t, "store", crashOptions(fs, time.Millisecond))
		begun := make(chan struct{})
		left := 1 + rng.IntN(150)
		var mu sync.Mutex
		s, err := newStorm(e, 0, func(ev event) {
			w.note(ev)
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				close(begun)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		stormEnded := make(chan error, 1)
		storm := rng.Uint64()
		go func() { stormEnded <- s.run(context.Background(), storm) }()
		<-begun
		done := watchdog(time.Minute, name+": close")
		var wg sync.WaitGroup
		wg.Go(func() { waitClosed(t, e, osier.FeedWait) })
		wg.Go(func() { waitClosed(t, e, osier.FeedLive) })
		for range 4 {
			wg.Go(func() {
				if err := e.Close(); err != nil {
					t.Errorf("%s: close: %v", name, err)
				}
			})
		}
		wg.Wait()
		if err := <-stormEnded; err != nil {
			t.Errorf("%s: a request failed with another error than ErrClosed: %v", name, err)
		}
		done()
		leaks()
		allClosed(t, e)
		emptyLogs(t, fs)
		e = mustOpen(t, "store", crashOptions(fs, time.Millisecond))
		w.judge(t, name, e, func(osier.Durability) bool { return true })
		checkClean(t, e, name)
		mustClose(t, e)
		if t.Failed() {
			return
		}
	}
}

// emptyLogs takes away what a closed store would recover from, if it had to.
func emptyLogs(t *testing.T, fs vfs.FS) {
	t.Helper()
	names, err := fs.List("store/data")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.HasSuffix(n, ".log") {
			continue
		}
		f, err := fs.Create("store/data/"+n, vfs.WriteCategoryUnspecified)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// waitClosed follows the feed from now on until it ends.
func waitClosed(t *testing.T, e *Engine, mode osier.FeedMode) {
	for _, err := range e.Watch(context.Background(), &osier.Feed{DB: stormDB, Since: osier.SeqNow, Mode: mode}) {
		if err != nil && !errors.Is(err, osier.ErrClosed) {
			t.Errorf("a waiting feed ended with %v, want ErrClosed", err)
		}
	}
}

// allClosed: every method of a closed engine says so.
func allClosed(t *testing.T, e *Engine) {
	t.Helper()
	ctx := context.Background()
	calls := map[string]func() error{
		"exec": func() error {
			_, err := e.Exec(ctx, &osier.Command{DB: stormDB, Ops: []osier.Op{set("a", 1, `{}`)}})
			return err
		},
		"query": func() error {
			_, err := rowsOf(e, &osier.Query{Kind: osier.QueryScan, DB: stormDB, Collection: "accounts"})
			return err
		},
		"databases": func() error { _, err := rowsOf(e, &osier.Query{Kind: osier.QueryDatabases}); return err },
		"pin":       func() error { _, err := rowsOf(e, &osier.Query{Kind: osier.QueryPin, DB: stormDB}); return err },
		"watch":     func() error { _, err := changesOf(e, &osier.Feed{DB: stormDB}); return err },
		"stage":     func() error { _, err := e.Stage(ctx, stormDB, strings.NewReader("x")); return err },
		"fetch":     func() error { _, err := e.Fetch(ctx, stormDB, osier.BlobID{1}, 0, -1); return err },
		"stats":     func() error { _, err := e.Stats(ctx); return err },
		"compact":   func() error { return e.Compact(ctx) },
		"flush":     func() error { return e.Flush(ctx) },
		"check":     func() error { _, err := e.Check(ctx, nil); return err },
		"backup":    func() error { return e.Backup(ctx, "elsewhere") },
		"hash":      func() error { _, err := e.StateHash(ctx, stormDB); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, osier.ErrClosed) {
			t.Errorf("%s on a closed engine: %v, want ErrClosed", name, err)
		}
	}
	if err := e.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

// Close waits for a reader of an attachment and for a query under way, and both
// get all of what they read.
func TestCloseWaitsForReaders(t *testing.T) {
	e := mustOpen(t, "store", smallStore(vfs.NewMem()))
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	content := bytes.Repeat([]byte("0123456789"), chunkSize/4)
	a := attach(t, e, "shop", "files", 0, content)
	for i := range 500 {
		mustExec(t, e, &osier.Command{DB: "shop", Durability: osier.Relaxed, Ops: []osier.Op{set("files", i+1, `{}`)}})
	}
	r, err := e.Fetch(context.Background(), "shop", a.Blob, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	n := 0
	for _, err := range e.Query(context.Background(), &osier.Query{Kind: osier.QueryScan, DB: "shop", Collection: "files"}) {
		if err != nil {
			t.Fatalf("query while closing: %v", err)
		}
		if n++; n == 1 {
			go func() { closed <- e.Close() }()
			<-e.closing
		}
	}
	if n != 501 {
		t.Errorf("the query gave %d documents of 501", n)
	}
	select {
	case <-closed:
		t.Fatal("close did not wait for the reader")
	default:
	}
	var got bytes.Buffer
	if _, err := got.ReadFrom(r); err != nil || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("the reader got %d bytes of %d, %v", got.Len(), len(content), err)
	}
	r.Close()
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
}

const openerEnv = "OSIER_TEST_OPENER"

// openerProcess opens the folder and prints what came of it.
func openerProcess(dir string) int {
	e, err := Open(dir, nil)
	fmt.Printf("%v\n%v\n", osier.KindOf(err), err)
	if err == nil {
		e.Close()
	}
	return 0
}

// One at a time has a folder open. Others, in this process or another, are told
// at once who: process and host.
func TestSecondOpenIsToldWhoHasTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	e := mustOpen(t, dir, nil)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	owner := []string{fmt.Sprint(os.Getpid()), host}
	for _, o := range []*Options{nil, {ReadOnly: true}} {
		_, err := Open(dir, o)
		requireLocked(t, "in this process", osier.KindOf(err).String(), fmt.Sprint(err), owner)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err == nil {
		_, err := Open(link, nil)
		requireLocked(t, "by another name", osier.KindOf(err).String(), fmt.Sprint(err), owner)
	}
	kind, text := openElsewhere(t, dir)
	requireLocked(t, "in another process", kind, text, owner)
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	mustClose(t, e)
	if kind, text := openElsewhere(t, dir); kind != osier.KindOther.String() || text != "<nil>" {
		t.Errorf("open elsewhere after Close: %s, %s", kind, text)
	}
	mustClose(t, mustOpen(t, dir, nil))
}

func requireLocked(t *testing.T, where, kind, text string, owner []string) {
	t.Helper()
	if kind != osier.KindLocked.String() || !strings.Contains(text, owner[0]) || !strings.Contains(text, owner[1]) {
		t.Errorf("second open %s: %s: %s; want %v that names %v", where, kind, text, osier.KindLocked, owner)
	}
}

func openElsewhere(t *testing.T, dir string) (kind, text string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), openerEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("opener: %v: %s", err, out)
	}
	kind, text, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return kind, text
}

// A store that was opened for reading is read, refuses every write with
// ErrReadOnly, and has the same files after Close, also if it needs recovery.
func TestReadOnly(t *testing.T) {
	s := newSample(t, rngOf(seedOf(t), 0), true)
	if _, err := Open(filepath.Join(t.TempDir(), "none"), &Options{ReadOnly: true}); err == nil {
		t.Error("a store that is not there opened for reading")
	}
	before := filesOf(t, s.dir)
	e := mustOpen(t, s.dir, &Options{ReadOnly: true})
	s.reads(t, e, "read-only", "nothing")
	checkClean(t, e, "read-only")
	ctx := context.Background()
	calls := map[string]func() error{
		"put": func() error {
			_, err := e.Exec(ctx, &osier.Command{DB: "shop", Ops: []osier.Op{set("a", 1, `{}`)}})
			return err
		},
		"create": func() error {
			_, err := e.Exec(ctx, &osier.Command{DB: "new", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
			return err
		},
		"stage":   func() error { _, err := e.Stage(ctx, "shop", strings.NewReader("x")); return err },
		"compact": func() error { return e.Compact(ctx) },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, osier.ErrReadOnly) {
			t.Errorf("%s in a store opened for reading: %v, want ErrReadOnly", name, err)
		}
	}
	if all, err := changesOf(e, &osier.Feed{DB: "shop"}); err != nil || len(all) == 0 {
		t.Errorf("feed of a store opened for reading: %d changes, %v", len(all), err)
	}
	mustClose(t, e)
	after := filesOf(t, s.dir)
	lock := func(name string) bool { return name == "osier.lock" || name == "osier.owner" }
	for name, b := range before {
		if after[name] != b && !lock(name) {
			t.Errorf("%s changed", name)
		}
	}
	for name := range after {
		if _, old := before[name]; !old && !lock(name) {
			t.Errorf("%s is new", name)
		}
	}
}

// filesOf reads all files of a folder.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A store of a newer format is refused and not touched.
func TestNewerFormatIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	mustClose(t, mustOpen(t, dir, nil))
	meta := filepath.Join(dir, "osier.json")
	b, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(b, []byte(`"format":1`), []byte(`"format":999`), 1)
	if bytes.Equal(b, newer) {
		t.Fatalf("no format in %s", b)
	}
	if err := os.WriteFile(meta, newer, 0o644); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	for _, o := range []*Options{nil, {ReadOnly: true}} {
		if _, err := Open(dir, o); !errors.Is(err, osier.ErrFormat) || !strings.Contains(err.Error(), "999") {
			t.Errorf("open: %v, want ErrFormat that names 999", err)
		}
	}
	if _, err := Repair(context.Background(), dir, nil); !errors.Is(err, osier.ErrFormat) {
		t.Errorf("repair: %v, want ErrFormat", err)
	}
	if after := filesOf(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the attempts changed the folder")
	}
}
