package pocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The faults of the format's first implementation, each as a test that fails
// where it is made again.

// 1. Deletions came back after reopening.
func TestDeletionsStayDeleted(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testOptions())
	mustSave(t, s, "gone", entity{"x"})
	mustSave(t, s, "stays", entity{"y"})
	if err := s.Delete("gone"); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	s = mustOpen(t, path, testOptions())
	if _, err := Get[entity](s, "gone"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("got %v, want ErrNotFound", err)
	}
	wantSame(t, "records", plainDump(s), []string{`{"key":"stays","$type":"Entity","val":{"Body":"y"}}`})
}

// 2. A get could return another key's value.
func TestNeighbouringKeys(t *testing.T) {
	s := mustOpen(t, tempPath(t), testOptions())
	mustSave(t, s, "abcX", "x")
	mustSave(t, s, "abcY", "y")
	for _, key := range []string{"abX", "abY", "abc", "abcXX", "bcX", ""} {
		if v, err := Get[string](s, key); !errors.Is(err, ErrNotFound) {
			t.Errorf("get %q: got %q, %v", key, v, err)
		}
		if v, err := Get[string](s.Snapshot(), key); !errors.Is(err, ErrNotFound) {
			t.Errorf("get %q from a snapshot: got %q, %v", key, v, err)
		}
	}
}

// 3. Keys with a quote, backslash or control character destroyed their line;
// keys named like members could not be read back.
func TestAwkwardKeys(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testOptions())
	keys := []string{"", `"`, `\`, "\n", "\r\n", "\x00", "\x1f", "\x7f", "val", "$type", "key", "tx", "block",
		`{"tx":1}`, "\u2028", "\ufeff", "\U0001f600", strings.Repeat("k", MaxKeyBytes)}
	for i, k := range keys {
		mustSave(t, s, k, i)
		if len(k) < MaxKeyBytes {
			mustSave(t, s, k+".", k)
			mustSave(t, s, k+"!", entity{k})
		} else if err := s.Save(k+"!", i); !errors.Is(err, ErrInvalid) {
			t.Errorf("key of %d bytes: %v", len(k)+1, err)
		}
	}
	verify := func(when string) {
		for i, k := range keys {
			if v, err := Get[int](s, k); err != nil || v != i {
				t.Errorf("%s: get %.20q: got %d, %v; want %d", when, k, v, err, i)
			}
		}
	}
	verify("at once")
	mustClose(t, s)
	s = mustOpen(t, path, testOptions())
	verify("reopened")
	if err := s.Rewrite(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	s = mustOpen(t, path, testOptions())
	verify("rewritten")
	if !s.Report().Clean() {
		t.Errorf("report: %+v", s.Report())
	}
	if err := s.Save("\xff", 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("key that is not UTF-8: %v", err)
	}
}

// 4. A torn tail was not cut off, so that the next record was lost with it. (A
// transaction that is half there: TestTornAtEveryByte, TestPowerLoss.)
func TestTornLegacyTail(t *testing.T) {
	path := tempPath(t)
	writeFile(t, path, `{"key":"a","val":"1"}`+"\n"+`{"key":"b","val":"2`)
	s := mustOpen(t, path, testOptions())
	cut := s.Report().Cut
	if cut == nil || cut.Line != 2 || cut.Bytes != int64(len(`{"key":"b","val":"2`)) {
		t.Fatalf("cut: %+v", cut)
	}
	mustSave(t, s, "c", "3")
	mustClose(t, s)
	s = mustOpen(t, path, testOptions())
	wantSame(t, "records", plainDump(s), []string{`{"key":"a","val":"1"}`, `{"key":"c","val":"3"}`})
}

// 5. Callers were answered before the flush, and after an I/O error later
// saves hung.
func TestAnsweredAfterFlush(t *testing.T) {
	disk := newCrashFS()
	s, err := Open("/x/f.pocket", &Options{fs: disk, RewriteRatio: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	mustSave(t, s, "a", "1")
	in := disk.names["/x/f.pocket"]
	if !bytes.Contains(in.synced, []byte(`{"key":"a","val":"1"}`)) {
		t.Fatalf("answered before the flush: %q", in.synced)
	}
	disk.fail = disk.ops + 2 // the flush of the next save
	if err := s.Save("b", "2"); !errors.Is(err, ErrFailed) || !errors.Is(err, errInjected) {
		t.Fatalf("save with a failing flush: %v", err)
	}
	if _, err := Get[string](s, "b"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("what may not be on the disk is visible: %v", err)
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if err := s.Save(fmt.Sprint(i), "x"); !errors.Is(err, ErrFailed) {
				t.Errorf("save after a failure: %v", err)
			}
		})
	}
	wg.Wait()
	if v, err := Get[string](s, "a"); v != "1" {
		t.Fatalf("get after a failure: %q, %v", v, err)
	}
}

// 6. The rewrite renamed before it was complete, flushed nothing and left
// orphans. (Crashes during rewrites: TestPowerLoss.)
func TestOrphanIsRemoved(t *testing.T) {
	path := tempPath(t)
	writeFile(t, path, `{"key":"a","val":"1"}`+"\n")
	writeFile(t, rewritePath(path), `{"key":"a","val":"old`)
	s := mustOpen(t, path, testOptions())
	if _, err := os.Stat(rewritePath(path)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("orphan: %v", err)
	}
	mustClose(t, s)
	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) != 1 {
		t.Fatalf("files: %v, %v", left, err)
	}
}

// 7. Compare-and-swap was not checked when the key was absent.
func TestConditionsOnAbsentKeys(t *testing.T) {
	s := mustOpen(t, tempPath(t), testOptions())
	for _, c := range []Condition{Equals("old"), At(1), Equals(entity{"x"})} {
		_, err := s.Update("k", c, "new")
		conflict, ok := errors.AsType[*ConflictError](err)
		if !ok || conflict.Key != "k" || conflict.Version != 0 || !errors.Is(err, ErrConflict) {
			t.Errorf("update of an absent key if %+v: %v", c, err)
		}
		got, swapped, err := Swap(s, "k", c, "new")
		if err != nil || swapped || got.Version != 0 {
			t.Errorf("swap of an absent key if %+v: %+v, %v, %v", c, got, swapped, err)
		}
	}
	if _, err := s.Update("k", Absent(), "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update("k", Absent(), "newer"); !errors.Is(err, ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
}

// 8. Unknown types vanished at load and were erased by the next rewrite.
func TestUnknownTypesAreKept(t *testing.T) {
	for _, compress := range []bool{false, true} {
		path := tempPath(t)
		line := `{"key":"k","$type":"Else","val":{ "b":1, "a":[1.50,"\u00e9"] }}`
		broken := `{"key":"typo","val":{"Body":"x"}`
		writeFile(t, path, line+"\n"+broken+"\n"+`{"key":"z","val":"1"}`+"\n")
		o := testOptions()
		o.Compress = compress
		for range 3 {
			s := mustOpen(t, path, o)
			if err := s.Rewrite(context.Background()); err != nil {
				t.Fatal(err)
			}
			r, err := Get[Raw](s, "k")
			if err != nil || r.Type != "Else" || r.JSON != `{ "b":1, "a":[1.50,"\u00e9"] }` {
				t.Fatalf("got %+v, %v", r, err)
			}
			if _, err := Get[entity](s, "k"); !errors.Is(err, ErrType) {
				t.Fatalf("as another type: %v", err)
			}
			skips := s.Report().Skipped
			if len(skips) != 1 || skips[0].Text != broken {
				t.Fatalf("skipped: %+v", skips)
			}
			mustClose(t, s)
		}
		if text := readFile(t, path); !strings.Contains(text, broken+"\n") {
			t.Fatalf("the line with a typo is gone: %s", text)
		}
	}
}

// 9. A backup onto an older, longer file left garbage at its end.
func TestBackupReplacesLongerFile(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testOptions())
	mustSave(t, s, "a", "1")
	to := path + ".backup"
	writeFile(t, to, strings.Repeat(`{"key":"old","val":"garbage"}`+"\n", 1000))
	b, err := s.Backup(context.Background(), to)
	if err != nil {
		t.Fatal(err)
	}
	if text := readFile(t, to); int64(len(text)) != b.Bytes || strings.Contains(text, "garbage") {
		t.Fatalf("backup %+v: %s", b, text)
	}
	copied := mustOpen(t, to, testOptions())
	wantSame(t, "records", dump(copied), dump(s))
	if _, err := s.Backup(context.Background(), path); !errors.Is(err, ErrInvalid) {
		t.Fatalf("backup onto itself: %v", err)
	}
}

// 10. The rewrite ratio was computed with integer division.
func TestRewriteRatio(t *testing.T) {
	s := mustOpen(t, tempPath(t), testOptions())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.RewriteMinBytes = 100
	for _, c := range []struct {
		plain, live int64
		ratio       float64
		want        bool
	}{
		{1000, 600, 0.5, false}, {1000, 490, 0.5, true}, {1000, 700, 0.25, true},
		{1000, 760, 0.25, false}, {100, 1, 0.25, false}, {1000, 1, -1, false},
	} {
		s.plainBytes, s.opts.RewriteRatio = c.plain, c.ratio
		live := s.liveBytes
		s.liveBytes = c.live
		if got := s.worthRewriting(); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
		s.liveBytes = live
	}
}

// What a last line without its line feed stands for does not change when it is
// given one: by the first opening, or by an editor.
func TestLastLineStaysWhatItIs(t *testing.T) {
	part := pack(`{"key":"a","val":"x"}`+"\n", false)
	header := `{"Creation":"2020-01-01T00:00:00Z","LastRewrite":null,"CompressedEntities":null}` + "\n"
	for _, last := range []string{
		`{"key":"a","val":"x"}`,
		`{"key":"a","val":"x`,
		`{"tx":1,"key":"a","val":"x"}`,
		`{"tx":1,"n":0,"len":0}`,
		`{"tx":1,"n":1,"le`,
		`{"block":1,"key":"a","val":"x"}`,
		`{"Creation":0,"key":"a","val":"x"}`,
		`{"Creation":0"CompressedEntities":["` + part + `"]}`,
		`{"Creation":0"CompressedEntities":["` + part,
		`{"Creation":0,"key":5,"CompressedEntities":["` + part,
	} {
		path := tempPath(t)
		writeFile(t, path, header+last)
		s := mustOpen(t, path, testOptions())
		first := dump(s)
		mustClose(t, s)
		s = mustOpen(t, path, testOptions())
		wantSame(t, last+" opened again", dump(s), first)
		mustClose(t, s)
	}
}

// A file that has lost its header, as in a merge, begins with a transaction.
func TestTransactionWithoutHeader(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testOptions())
	mustSave(t, s, "a", "x")
	mustSave(t, s, "b", "y")
	want := dump(s)
	mustClose(t, s)
	_, rest, _ := strings.Cut(readFile(t, path), "\n")
	writeFile(t, path, rest)
	s = mustOpen(t, path, testOptions())
	wantSame(t, "records", dump(s), want)
	if r := s.Report(); !r.Clean() {
		t.Errorf("report: %+v", r)
	}
}
