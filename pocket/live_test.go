package pocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A rewrite drops what is dead, keeps what is committed meanwhile, and holds
// up nobody for long.
func TestRewriteUnderLoad(t *testing.T) {
	for _, d := range []Durability{Synced, Delayed, Cached} {
		t.Run(d.String(), func(t *testing.T) {
			path := tempPath(t)
			o := testOptions()
			o.Durability = d
			s := mustOpen(t, path, o)
			var cs []Change
			for i := range 20_000 {
				cs = append(cs, Change{Key: fmt.Sprint("base", i), Value: entity{fmt.Sprint(i)}})
			}
			for range 3 {
				if _, err := s.SaveAll(cs...); err != nil {
					t.Fatal(err)
				}
			}
			before := s.Stats()
			if before.DeadBytes < before.FileBytes/2 || before.Records != 20_000 || before.DeadRecords != 40_000 {
				t.Fatalf("stats: %+v", before)
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			var saved [4]int
			for w := range saved {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						saved[w]++
						if err := s.Save(fmt.Sprint("w", w), saved[w]); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			for range 3 {
				if err := s.Rewrite(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			close(stop)
			wg.Wait()
			after := s.Stats()
			if after.Rewrites != 3 || after.FileBytes > before.FileBytes/2+after.BytesWritten-before.BytesWritten {
				t.Errorf("stats before %+v, after %+v", before, after)
			}
			t.Logf("held up commits for %v", after.LastRewritePause)
			check(t, s)
			want := dump(s)
			mustClose(t, s)
			s = mustOpen(t, path, o)
			wantSame(t, "records", dump(s), want)
			for w := range saved {
				mustGet(t, s, fmt.Sprint("w", w), saved[w])
			}
			if !s.Report().Clean() {
				t.Errorf("report: %+v", s.Report())
			}
		})
	}
}

// A file rewrites itself when most of it is dead.
func TestRewriteByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open("/x/auto.pocket", &Options{Durability: Cached, RewriteMinBytes: 10_000, fs: newCrashFS()})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			mustSave(t, s, "k", i)
		}
		synctest.Wait()
		st := s.Stats()
		if st.Rewrites == 0 || st.DeadBytes > 20_000 {
			t.Errorf("stats: %+v", st)
		}
		mustClose(t, s)
	})
}

// A rewrite that fails, or is called off, leaves the file as it was.
func TestRewriteCalledOff(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testOptions())
	mustSave(t, s, "a", 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Rewrite(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("rewrite with an ended context: %v", err)
	}
	if _, err := os.Stat(rewritePath(path)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("left behind: %v", err)
	}
	mustSave(t, s, "b", 2)
	if err := s.Rewrite(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustGet(t, s, "b", 2)
}

// Records are gone at their millisecond, by every reader's own clock; the
// writer deletes them soon after and watchers hear of it.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open("/x/ttl.pocket", &Options{Durability: Cached, RewriteRatio: -1, fs: newCrashFS()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var got []string
		var wg sync.WaitGroup
		events := s.Watch(ctx, "")
		wg.Go(func() {
			for e, err := range events {
				if err != nil {
					return
				}
				got = append(got, fmt.Sprintf("%s deleted=%v expired=%v", e.Key, e.Deleted, e.Expired))
			}
		})
		for i, ttl := range []time.Duration{3, 1, 2} {
			if err := s.SaveFor(fmt.Sprint("k", i), "v", ttl*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		mustSave(t, s, "k9", "stays")
		if err := s.SaveFor("kept", "v", time.Second); err != nil {
			t.Fatal(err)
		}
		mustSave(t, s, "kept", "without expiry")
		it, err := Lookup[string](s, "k1")
		if err != nil || !it.Expires.Equal(time.Now().Add(time.Second)) {
			t.Errorf("item: %+v, %v", it, err)
		}
		sn := s.Snapshot()
		time.Sleep(time.Second - time.Millisecond)
		if n := Count(s, All()); n != 5 {
			t.Errorf("one millisecond before: %d records", n)
		}
		time.Sleep(time.Millisecond)
		if Has(s, "k1") || Has(sn, "k1") || Count(s, All()) != 4 {
			t.Errorf("at the millisecond: %v", plainDump(s))
		}
		// Gone is gone: its place can be taken.
		if _, err := s.Update("k1", Absent(), "new"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Records != 3 || st.Expiring != 0 {
			t.Errorf("stats: %+v", st)
		}
		check(t, s)
		cancel()
		wg.Wait()
		mustClose(t, s)
		deleted := 0
		for _, g := range got {
			if strings.HasSuffix(g, "deleted=true expired=true") {
				deleted++
			}
		}
		if deleted < 2 || deleted > 3 {
			t.Errorf("events: %v", got)
		}
	})
}

// Expiry survives reopening; a record that has expired in between is gone.
func TestExpiryLasts(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testOptions())
	soon := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	if _, err := s.SaveAll(Change{Key: "later", Value: "x", Expires: soon},
		Change{Key: "over", Value: "x", Expires: time.Now().Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	s = mustOpen(t, path, testOptions())
	if it, err := Lookup[string](s, "later"); err != nil || !it.Expires.Equal(soon) {
		t.Errorf("got %+v, %v; want expiry %v", it, err, soon)
	}
	if Has(s, "over") {
		t.Error("an expired record is there")
	}
}

// A watcher gets each transaction's changes together and in order, only those
// of its prefix, and is told when it was too slow.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open("/x/watch.pocket", &Options{Durability: Cached, RewriteRatio: -1, fs: newCrashFS()})
		if err != nil {
			t.Fatal(err)
		}
		events := s.Watch(context.Background(), "a/")
		mustSave(t, s, "b/1", "x")
		if _, err := s.SaveAll(Change{Key: "a/1", Value: "1"}, Change{Key: "b/2", Value: "x"}, Change{Key: "a/2", Value: "2"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete("a/1"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for e, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			value := ""
			if !e.Deleted {
				value, _ = ValueOf[string](e.Record)
			}
			got = append(got, fmt.Sprintf("%d %s %q deleted=%v more=%v", e.Version, e.Key, value, e.Deleted, e.More))
			if len(got) == 3 {
				break
			}
		}
		wantSame(t, "events", got, []string{`2 a/1 "1" deleted=false more=true`, `2 a/2 "2" deleted=false more=false`, `3 a/1 "" deleted=true more=false`})

		slow := s.Watch(context.Background(), "")
		for range maxWatched/1000 + 1 {
			var cs []Change
			for i := range 1000 {
				cs = append(cs, Change{Key: fmt.Sprint(i), Value: i})
			}
			if _, err := s.SaveAll(cs...); err != nil {
				t.Fatal(err)
			}
		}
		for _, err := range slow {
			if !errors.Is(err, ErrLagged) {
				t.Fatalf("a slow watcher: %v", err)
			}
			break
		}
		closed := s.Watch(context.Background(), "")
		mustClose(t, s)
		for _, err := range closed {
			if !errors.Is(err, ErrClosed) {
				t.Fatalf("after close: %v", err)
			}
		}
		for _, err := range s.Watch(context.Background(), "") {
			if !errors.Is(err, ErrClosed) {
				t.Fatalf("watching a closed store: %v", err)
			}
		}
	})
}

// Read-only stores follow the writer's tail, its rewrites and its restarts.
func TestFollow(t *testing.T) {
	for _, compress := range []bool{false, true} {
		path := tempPath(t)
		o := testOptions()
		o.Compress = compress
		w := mustOpen(t, path, o)
		mustSave(t, w, "a", 1)
		ro := testOptions()
		ro.ReadOnly, ro.Poll = true, -1
		f := mustOpen(t, path, ro)
		events := f.Watch(context.Background(), "")
		follow := func(when string) {
			t.Helper()
			if err := f.Refresh(); err != nil {
				t.Fatal(err)
			}
			wantSame(t, when, dump(f), dump(w))
			check(t, f)
		}
		follow("opened")
		big := strings.Repeat("big", 1<<20)
		for i := range 50 {
			mustSave(t, w, fmt.Sprint(i%20), entity{fmt.Sprint(i)})
			if i%10 == 3 {
				follow("saved")
			}
		}
		if _, err := w.SaveAll(Change{Key: "a"}, Change{Key: "big", Value: big}, Change{Key: "c", Value: 1}); err != nil {
			t.Fatal(err)
		}
		follow("a large transaction")
		sn := f.Snapshot()
		want := dump(sn)
		if err := w.Rewrite(context.Background()); err != nil {
			t.Fatal(err)
		}
		mustSave(t, w, "after", "rewrite")
		follow("rewritten")
		if err := w.Delete("c"); err != nil {
			t.Fatal(err)
		}
		follow("after the rewrite")
		mustClose(t, w)
		w = mustOpen(t, path, o)
		mustSave(t, w, "new", "writer")
		follow("a new writer")
		wantSame(t, "an old snapshot", dump(sn), want)
		if err := f.Save("x", 1); !errors.Is(err, ErrReadOnly) {
			t.Fatalf("save: %v", err)
		}
		heard(t, events, w)
		mustClose(t, w)
		mustClose(t, f)
	}
}

// heard checks that what a watcher has heard brings a map to w's state.
func heard(t *testing.T, events iter.Seq2[Event, error], w *Store) {
	t.Helper()
	state := map[string]Version{"a": 1}
	for e, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if e.Deleted {
			delete(state, e.Key)
		} else {
			state[e.Key] = e.Record.Version()
		}
		if e.Key == "new" {
			break
		}
	}
	for k, r := range Scan[Record](w, All()) {
		if state[k] != r.Version() {
			t.Fatalf("watcher has version %d of %q, want %d", state[k], k, r.Version())
		}
	}
	if len(state) != Count(w, All()) {
		t.Fatalf("watcher has %d records, want %d", len(state), Count(w, All()))
	}
}

// A reader that goes on while the file is replaced under a follower never
// meets a missing or foreign record.
func TestFollowConcurrently(t *testing.T) {
	path := tempPath(t)
	w := mustOpen(t, path, testOptions())
	for i := range 500 {
		mustSave(t, w, fmt.Sprint(i), entity{fmt.Sprint(i)})
	}
	ro := testOptions()
	ro.ReadOnly, ro.Poll = true, time.Millisecond
	f := mustOpen(t, path, ro)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				k := fmt.Sprint(i % 500)
				if v, err := Get[entity](f, k); err != nil || v.Body != k {
					t.Errorf("get %s: %v, %v", k, v, err)
					return
				}
			}
		})
	}
	for range 20 {
		for i := range 500 {
			mustSave(t, w, fmt.Sprint(i), entity{fmt.Sprint(i)})
		}
		if err := w.Rewrite(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := f.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}

// A backup to a writer is a whole file; its sum is that of the bytes.
func TestBackupTo(t *testing.T) {
	for _, compress := range []bool{false, true} {
		o := testOptions()
		o.Compress = compress
		s := mustOpen(t, tempPath(t), o)
		for i := range 5000 {
			mustSave(t, s, fmt.Sprint(i%3000), entity{strings.Repeat("x", i%100)})
		}
		var b bytes.Buffer
		got, err := s.BackupTo(context.Background(), &b)
		if err != nil || got.Bytes != int64(b.Len()) || got.Records != 3000 || got.Version != 5000 ||
			got.CRC32C != crc32.Checksum(b.Bytes(), castagnoli()) {
			t.Fatalf("backup: %+v, %v; %d bytes", got, err, b.Len())
		}
		path := tempPath(t)
		writeFile(t, path, b.String())
		r, err := Verify(path)
		if err != nil || !r.Clean() || r.Records != 3000 {
			t.Fatalf("verify: %+v, %v", r, err)
		}
		copied := mustOpen(t, path, o)
		wantSame(t, "records", dump(copied), dump(s))
		if compress && b.Len() > int(s.Stats().LiveBytes)/3 {
			t.Errorf("compressed to %d of %d bytes", b.Len(), s.Stats().LiveBytes)
		}
	}
}

// Repair keeps every whole record, says what is lost, and keeps the evidence.
func TestRepair(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testOptions())
	for i := range 30 {
		if _, err := s.SaveAll(Change{Key: fmt.Sprint("a", i), Value: i}, Change{Key: fmt.Sprint("b", i), Value: i}); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)
	whole := readFile(t, path)
	r, err := RepairFile(context.Background(), path)
	if err != nil || !r.Clean() || r.Damaged != "" || readFile(t, path) != whole {
		t.Fatalf("repair of a whole file: %+v, %v", r, err)
	}
	// Zeros over one record line, letters over another.
	zeroed := `{"key":"a10","val":10}`
	damaged := strings.Replace(whole, zeroed, strings.Repeat("\x00", len(zeroed)), 1)
	damaged = strings.Replace(damaged, `{"key":"b20","val":20}`, `{"key":"b20"XXXXX:20}`, 1)
	damaged += `{"key":"torn","val":"x`
	writeFile(t, path, damaged)
	v, err := Verify(path)
	if err != nil || v.Clean() {
		t.Fatalf("verify: %+v, %v", v, err)
	}
	r, err = RepairFile(context.Background(), path)
	if err != nil || r.Records != 58 || r.SkippedCount != 2 || len(r.Edited) != 2 || r.Cut == nil {
		t.Fatalf("repair: %+v, %v", r, err)
	}
	if readFile(t, r.Damaged) != damaged {
		t.Fatal("the damaged file was not kept")
	}
	v, err = Verify(path)
	if err != nil || !v.Clean() || v.Records != 58 {
		t.Fatalf("verify after repair: %+v, %v", v, err)
	}
	s = mustOpen(t, path, testOptions())
	for i := range 30 {
		if Has(s, fmt.Sprint("a", i)) != (i != 10) || Has(s, fmt.Sprint("b", i)) != (i != 20) {
			t.Errorf("records a%d, b%d: %v, %v", i, i, Has(s, fmt.Sprint("a", i)), Has(s, fmt.Sprint("b", i)))
		}
	}
	if got := s.Stats().Version; got != 30 {
		t.Errorf("version %d after repair, want 30", got)
	}
}
