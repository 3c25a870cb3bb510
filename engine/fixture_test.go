package engine_test

import (
	"archive/zip"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

// writeFixture makes the fixture of the present format anew; one that was
// released is never written again.
var writeFixture = flag.Bool("fixture", false, "write testdata/format-1.zip")

const fixture = "testdata/format-1.zip"

type note struct{ Text string }

var notes = osier.NewCollection("notes", osier.CollectionOptions[note]{History: 2})

// TestAStoreOfEachFormatOpens opens what an earlier release wrote.
func TestAStoreOfEachFormatOpens(t *testing.T) {
	if *writeFixture {
		zipFolder(t, makeFixture(t), fixture)
	}
	dir := unzip(t, fixture)
	e, err := engine.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx := context.Background()
	db, err := e.OpenDB(ctx, "fixture")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for doc, err := range notes.List(ctx, db, &osier.ListOptions{Conflicts: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(doc.ID, " ", doc.Rev, " ", doc.Value.Text, " ", doc.Conflicts))
	}
	for v, err := range notes.Versions(ctx, db, "a") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(v.Rev.Generation(), " ", v.Value.Text))
	}
	_, r, err := notes.OpenAttachment(ctx, db, "c", "file", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	r.Close()
	got = append(got, fmt.Sprint(string(text), " ", err))
	sameAsGolden(t, "format-1.txt", got)
	if _, err := e.Check(ctx, func(p engine.Problem) { t.Error(p) }); err != nil {
		t.Error(err)
	}
}

// sameAsGolden compares lines with those of a file, or writes them there.
func sameAsGolden(t *testing.T, name string, got []string) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *writeFixture {
		if err := os.WriteFile(golden, []byte(strings.Join(got, "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(golden)
	if err != nil || string(text) != strings.Join(got, "\n")+"\n" {
		t.Errorf("got\n%s\nwant\n%s%v", strings.Join(got, "\n"), text, err)
	}
}

func makeFixture(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e, err := engine.Open(dir, &engine.Options{Clock: func() time.Time { at = at.Add(time.Second); return at }})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := e.DB(ctx, "fixture", osier.Schema(notes))
	must(err)
	for _, text := range []string{"first", "second", "third"} {
		_, err = notes.Upsert(ctx, db, "a", note{text})
		must(err)
	}
	b, err := notes.InsertWithID(ctx, db, "b", note{"root"})
	must(err)
	_, err = notes.Update(ctx, db, osier.Doc[note]{ID: b.ID, Rev: b.Rev, Value: note{"mine"}})
	must(err)
	theirs, err := osier.ParseRev("2-theirs")
	must(err)
	must(notes.Graft(ctx, db, "b", []osier.Rev{theirs, b.Rev}, note{"theirs"}))
	c, err := notes.InsertWithID(ctx, db, "c", note{"with a file"})
	must(err)
	_, err = notes.Attach(ctx, db, "c", c.Rev, "file", "text/plain", strings.NewReader("content"))
	must(err)
	d, err := notes.InsertWithID(ctx, db, osier.Tuple{"d", 4}, note{"gone"})
	must(err)
	must(notes.Delete(ctx, db, d.ID, d.Rev))
	must(e.Close())
	return dir
}

func zipFolder(t *testing.T, dir, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func unzip(t *testing.T, name string) string {
	t.Helper()
	r, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(dir, r); err != nil {
		t.Fatal(err)
	}
	return dir
}
