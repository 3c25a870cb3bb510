package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/osierdb/osier"
)

type post struct {
	Title string
	Words int
}

var posts = osier.NewCollection[post]("posts")

func TestADocumentSurvivesReopening(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	e, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	db, err := e.DB(ctx, "blog", osier.Schema(posts))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := posts.Insert(ctx, db, post{"Hello", 2})
	if err != nil {
		t.Fatal(err)
	}
	doc.Value.Words = 3
	if doc, err = posts.Update(ctx, db, doc); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := posts.Get(ctx, db, doc.ID); !errors.Is(err, osier.ErrClosed) {
		t.Fatalf("get on a closed engine: %v, want ErrClosed", err)
	}
	if e, err = Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if db, err = e.OpenDB(ctx, "blog"); err != nil {
		t.Fatal(err)
	}
	got, err := posts.Get(ctx, db, doc.ID)
	if err != nil || got.Value != doc.Value || got.Rev != doc.Rev || got.Rev.Generation() != 2 {
		t.Fatalf("got %+v, %v; want %+v", got, err, doc)
	}
	n, err := posts.Count(ctx, db)
	if n != 1 || err != nil {
		t.Fatalf("count %d, %v; want 1", n, err)
	}
}
