package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

// countdown is a context that ends after its Err has been asked so many times:
// an interruption at a chosen place.
type countdown struct {
	context.Context
	left atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// sampleFile writes documents without ids in the given format, and returns the
// file's name and the documents as exported.
func sampleFile(t *testing.T, format string, n int) (name string, want []string) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		doc := fmt.Sprintf(`{"n":%d,"s":"x%d"}`, i, i%3)
		want = append(want, doc)
		switch {
		case format == "csv":
			fmt.Fprintf(&b, "%d,x%d\n", i, i%3)
		case format == "json" && i > 0:
			b.WriteString(",\n" + doc)
		default:
			b.WriteString(doc)
			if format == "jsonl" {
				b.WriteByte('\n')
			}
		}
	}
	text := b.String()
	switch format {
	case "csv":
		text = "\xef\xbb\xbfn,s\n" + text
	case "json":
		text = "[" + text + "]\n"
	}
	name = filepath.Join(t.TempDir(), "sample."+format)
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name, want
}

// runImport imports into db as the command does.
func runImport(ctx context.Context, db *osier.DB, name string, c importCmd) (stdout string, err error) {
	var out bytes.Buffer
	e := &env{ctx: ctx, stdout: &out, stderr: &out, stdin: strings.NewReader("")}
	in, err := e.openInput(name)
	if err != nil {
		return "", err
	}
	defer in.close()
	im := &importer{e: e, c: &c, db: db, in: in, ids: map[osier.ID]bool{}}
	err = im.run(ctx)
	return out.String(), err
}

// importFlags are the command's defaults, with small batches.
func importFlags(t *testing.T) importCmd {
	t.Helper()
	c := importCmd{IDType: "auto", Format: "auto", OnError: "skip", OnConflict: "report", Batch: 3, Durability: "relaxed"}
	if err := c.Target.UnmarshalText([]byte("shop:docs")); err != nil {
		t.Fatal(err)
	}
	return c
}

func memoryDB(t *testing.T) *osier.DB {
	t.Helper()
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	})
	db, err := eng.DB(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// stored lists the bodies of a collection in order of the members n.
func stored(t *testing.T, db *osier.DB, collection string) []string {
	t.Helper()
	var got []string
	for row, err := range db.Query(t.Context(), &osier.Query{Kind: osier.QueryScan, Collection: collection, Parts: osier.WithBody}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(row.Body))
	}
	sort.Slice(got, func(i, j int) bool {
		return len(got[i]) < len(got[j]) || len(got[i]) == len(got[j]) && got[i] < got[j]
	})
	return got
}

// Wherever an import is interrupted, running it again gives every document
// once.
func TestImportInterrupted(t *testing.T) {
	for _, format := range []string{"jsonl", "json", "csv"} {
		t.Run(format, func(t *testing.T) {
			name, want := sampleFile(t, format, 20)
			for after := int64(0); after < 30; after++ {
				db := memoryDB(t)
				interrupted := 0
				for {
					ctx := &countdown{Context: t.Context()}
					ctx.left.Store(after + int64(interrupted))
					_, err := runImport(ctx, db, name, importFlags(t))
					if err == nil {
						break
					}
					var ee *exitError
					if !errors.As(err, &ee) && osier.KindOf(err) != osier.KindCanceled {
						t.Fatalf("after %d: want an interruption, got %v", after, err)
					}
					interrupted++
				}
				if got := stored(t, db, "docs"); strings.Join(got, "\n") != strings.Join(want, "\n") {
					t.Fatalf("interrupted %d times, first after %d: want %q, got %q", interrupted, after, want, got)
				}
				if out, err := runImport(t.Context(), db, name, importFlags(t)); err != nil || !strings.Contains(out, "already") {
					t.Fatalf("a third time: want nothing to do, got %q, %v", out, err)
				}
			}
		})
	}
}

// Ctrl-C ends an import that waits for standard input; what was read is in.
func TestImportInterruptedInput(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	pr, pw := io.Pipe()
	defer pw.Close()
	go func() {
		// Enough to fill what the command looks at before it begins.
		for i := range 4000 {
			fmt.Fprintf(pw, "{\"_id\":%d,\"text\":\"................\"}\n", i)
		}
		cancel()
	}()
	r := osierIn(ctx, dir, pr, "import", "shop:docs", "-", "--batch", "100", "--durability", "relaxed")
	if r.code != exitInterrupted || !strings.Contains(r.stderr, "interrupted") {
		t.Fatalf("want exit code %d, got %d: %s", exitInterrupted, r.code, r.stderr)
	}
	if out := must(t, dir, "list", "shop:docs", "--ids-only", "--limit", "2"); out != "0\n1\n" {
		t.Fatalf("want the documents read before, got %q", out)
	}
}

// picky refuses bodies that contain a word, as a store does documents that are
// too large for it.
type picky struct{ osier.Backend }

func (p picky) Exec(ctx context.Context, c *osier.Command) (*osier.Result, error) {
	for _, op := range c.Ops {
		if op.Collection == "docs" && bytes.Contains(op.Body, []byte(`"n":7,`)) {
			return nil, &osier.Error{Kind: osier.KindTooLarge, Op: "put"}
		}
	}
	return p.Backend.Exec(ctx, c)
}

// A document that the store refuses is a bad line like any other; those around
// it get in.
func TestImportRefused(t *testing.T) {
	for _, onError := range []string{"skip", "fail"} {
		name, want := sampleFile(t, "jsonl", 12)
		s := osier.NewStore(picky{memoryDB(t).Backend()}, nil)
		db, err := s.OpenDB(t.Context(), "shop")
		if err != nil {
			t.Fatal(err)
		}
		c := importFlags(t)
		c.OnError, c.Batch = onError, 5
		out, err := runImport(t.Context(), db, name, c)
		var ee *exitError
		if !errors.As(err, &ee) {
			t.Fatalf("%s: want an exit code, got %v", onError, err)
		}
		got := strings.Join(stored(t, db, "docs"), "\n")
		if onError == "fail" {
			if ee.code != exitFailed || got != strings.Join(want[:7], "\n") || !strings.Contains(err.Error(), ":8: ") {
				t.Errorf("fail: want the 7 documents before line 8, got code %d, %v and %s", ee.code, err, got)
			}
			continue
		}
		if ee.code != exitSkipped || got != strings.Join(append(want[:7:7], want[8:]...), "\n") || !strings.Contains(out, ":8: put: too large; skipped") || !strings.Contains(out, "1 bad line skipped") {
			t.Errorf("skip: want all but line 8, got code %d, %s and %s", ee.code, out, got)
		}
	}
}

// racing writes a document of its own under an id just before the import does.
type racing struct {
	osier.Backend
	raced *atomic.Bool
}

func (r racing) Exec(ctx context.Context, c *osier.Command) (*osier.Result, error) {
	if len(c.Ops) > 1 && r.raced.CompareAndSwap(false, true) {
		own := &osier.Command{DB: c.DB, Ops: []osier.Op{{Kind: osier.OpPut, Collection: "docs", ID: osier.MustID("b"), Codec: osier.TagJSON, Body: []byte(`{"n":9}`)}}}
		if _, err := r.Backend.Exec(ctx, own); err != nil {
			return nil, err
		}
	}
	return r.Backend.Exec(ctx, c)
}

func (r racing) Query(ctx context.Context, q *osier.Query) iter.Seq2[osier.Row, error] {
	return r.Backend.Query(ctx, q)
}

// Somebody else's write in between is found, and treated as the flag says.
func TestImportRace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.jsonl")
	if err := os.WriteFile(name, []byte("{\"_id\":\"a\",\"n\":1}\n{\"_id\":\"b\",\"n\":2}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for onConflict, want := range map[string]string{"skip": "{\"n\":1}\n{\"n\":9}", "replace": "{\"n\":1}\n{\"n\":2}"} {
		s := osier.NewStore(racing{memoryDB(t).Backend(), new(atomic.Bool)}, nil)
		db, err := s.OpenDB(t.Context(), "shop")
		if err != nil {
			t.Fatal(err)
		}
		c := importFlags(t)
		c.OnConflict = onConflict
		if out, err := runImport(t.Context(), db, name, c); err != nil {
			t.Fatalf("%s: %v: %s", onConflict, err, out)
		}
		if got := strings.Join(stored(t, db, "docs"), "\n"); got != want {
			t.Errorf("%s: want %s, got %s", onConflict, want, got)
		}
	}
}

// Conflicting revisions, as replication leaves them, can be seen and ended.
func TestConflicts(t *testing.T) {
	dir := t.TempDir()
	eng, err := engine.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	db, err := eng.DB(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	docs := osier.NewCollection[osier.Raw]("docs")
	for _, rev := range []string{"2-aa", "2-bb"} {
		path := make([]osier.Rev, 2)
		for i, s := range []string{rev + strings.Repeat("0", 30), "1-" + strings.Repeat("0", 32)} {
			if path[i], err = osier.ParseRev(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := docs.Graft(t.Context(), db, "x", path, osier.Raw(`{"rev":"`+rev+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := eng.Close(); err != nil {
		t.Fatal(err)
	}
	loser := "2-aa" + strings.Repeat("0", 30)
	if got, want := must(t, dir, "get", "shop:docs", "x", "--conflicts"), "conflict\t"+loser+"\n{\"rev\":\"2-bb\"}\n"; got != want {
		t.Errorf("get --conflicts: want %q, got %q", want, got)
	}
	if got := must(t, dir, "get", "shop:docs", "x", "--json", "--conflicts"); !strings.Contains(got, `"conflicts":[{"rev":"`+loser+`"}]`) {
		t.Errorf("get --json --conflicts: want %s, got %s", loser, got)
	}
	if got, want := must(t, dir, "get", "shop:docs", "x", "--rev", loser), "{\"rev\":\"2-aa\"}\n"; got != want {
		t.Errorf("get --rev: want %q, got %q", want, got)
	}
	if got := must(t, dir, "history", "shop:docs", "x"); strings.Count(got, "\tpresent\tyes") != 1 || strings.Count(got, "\tconflict\tyes") != 1 || strings.Count(got, "\tearlier\tno") != 1 {
		t.Errorf("history: want one present, conflict and earlier version, got %s", got)
	}
	must(t, dir, "rm", "shop:docs", "x", "--rev", loser)
	if got, want := must(t, dir, "get", "shop:docs", "x"), "{\"rev\":\"2-bb\"}\n"; got != want {
		t.Errorf("after rm --rev of the loser: want %q, got %q", want, got)
	}
	if got := must(t, dir, "get", "shop:docs", "x", "--conflicts"); !strings.HasPrefix(got, "deleted conflict\t3-") {
		t.Errorf("after rm --rev of the loser: want a deleted conflict, got %q", got)
	}
}

// A store that another process has open is refused with an error, not waited for.
func TestLocked(t *testing.T) {
	dir := t.TempDir()
	eng, err := engine.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	if r := osierIn(t.Context(), dir, nil, "databases"); r.code != exitFailed || !strings.Contains(r.stderr, fmt.Sprint(os.Getpid())) {
		t.Errorf("want exit code %d and the pid %d, got %d: %s", exitFailed, os.Getpid(), r.code, r.stderr)
	}
}
