package osiertest

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/osierdb/osier"
)

// Harness tells the suite how to make the stores it judges.
type Harness struct {
	// New returns an empty store, on which the suite may do what it wants. It
	// closes it with t.Cleanup; the suite may have closed it before. It is called
	// from many tests at once.
	New func(t *testing.T) *osier.Store
	// NewAt is New with the clock that the store takes its times from. Nil if
	// time cannot be chosen.
	NewAt func(t *testing.T, clock func() time.Time) *osier.Store
	// Reopen closes a store that came from New or Reopen and opens it again, as
	// a new process would. Nil if nothing outlives a close.
	Reopen func(t *testing.T, s *osier.Store) *osier.Store
	Caps   Caps
}

// Caps says what a store can do and how much it takes. Of a zero limit the
// suite does not know, and leaves it alone or takes the default that is named.
type Caps struct {
	// Synctest: New works within a testing/synctest bubble, and a store that is
	// closed leaves no goroutine there.
	Synctest bool
	// Views: the store keeps views, and runs their functions.
	Views bool
	// MaxBodyBytes is the largest body: one more gives KindTooLarge.
	MaxBodyBytes int
	// Waiters is how many feeds the suite lets wait at once; 0: 200.
	Waiters int
	// AttachmentBytes is how long an attachment the suite streams; 0: 8 MiB.
	AttachmentBytes int
	// HistoryOps is how many operations a random history has on average; 0: 40.
	// With go test -short it is a quarter of them.
	HistoryOps int
}

// Run judges the stores that h makes, a subtest a chapter. Chapters and most of
// their tests run in parallel.
func Run(t *testing.T, h Harness) {
	chapters := []struct {
		name  string
		tests []test
	}{
		{"databases", databaseTests()},
		{"documents", documentTests()},
		{"ids", idTests()},
		{"revisions", revisionTests()},
		{"history", historyTests()},
		{"transactions", transactionTests()},
		{"batches", batchTests()},
		{"commands", commandTests()},
		{"changes", changeTests()},
		{"waiting", waitingTests()},
		{"attachments", attachmentTests()},
		{"codecs", codecTests()},
		{"access", accessTests()},
		{"limits", limitTests()},
		{"errors", errorTests()},
		{"views", viewTests()},
		{"reopening", reopenTests()},
		{"find", findTests()},
		{"live queries", liveTests()},
	}
	for _, c := range chapters {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range c.tests {
				t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
					t.Parallel()
					test.run(newCase(t, h))
				})
			}
		})
	}
	t.Run("histories", func(t *testing.T) { checkHistories(t, h) })
}

// A test is a property by name, and what shows it.
type test struct {
	name string
	run  func(x *tc)
}

// tc is what a test works with: a store of its own with one empty database.
type tc struct {
	*testing.T
	h     Harness
	ctx   context.Context
	store *osier.Store
	db    *osier.DB
}

// patience is how long the suite waits for what must come. It only guards
// against hanging for ever.
const patience = 30 * time.Second

func newCase(t *testing.T, h Harness) *tc {
	t.Helper()
	return newCaseOn(t, h, h.New(t))
}

func newCaseOn(t *testing.T, h Harness, s *osier.Store) *tc {
	t.Helper()
	db, err := s.CreateDB(t.Context(), "shop")
	if err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	return &tc{T: t, h: h, ctx: t.Context(), store: s, db: db}
}

// schema declares collections on the test's database.
func (x *tc) schema(items ...osier.SchemaItem) {
	x.Helper()
	_, err := x.store.OpenDB(x.ctx, "shop", osier.Schema(items...))
	x.must(err)
}

// reopen closes and opens the store again.
func (x *tc) reopen() {
	x.Helper()
	if x.h.Reopen == nil {
		x.Skip("nothing outlives a close of this store")
	}
	x.store = x.h.Reopen(x.T, x.store)
	db, err := x.store.OpenDB(x.ctx, "shop")
	x.must(err)
	x.db = db
}

func (x *tc) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatalf("unexpected error: %v", err)
	}
}

// kind wants an error of that Kind.
func (x *tc) kind(err error, want osier.Kind) {
	x.Helper()
	if err == nil {
		x.Fatalf("got no error, want one of kind %q", want)
	}
	if got := osier.KindOf(err); got != want {
		x.Fatalf("got an error of kind %q, want %q: %v", got, want, err)
	}
	var e *osier.Error
	if !errors.As(err, &e) {
		x.Fatalf("got an error of type %T, want *osier.Error: %v", err, err)
	}
}

// same wants two values to be equal.
func (x *tc) same(what string, got, want any) {
	x.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b osier.ID) bool { return a == b }),
		cmp.Comparer(func(a, b osier.Rev) bool { return a == b })); diff != "" {
		x.Fatalf("%s: want -, got +:\n%s", what, diff)
	}
}

// film is the suite's ordinary document.
type film struct {
	Title string `json:"title"`
	Year  int    `json:"year,omitempty"`
}

// films is the suite's ordinary collection.
var films = osier.NewCollection[film]("films")

// raws shows the suite's JSON documents as they are stored.
var raws = osier.NewCollection[osier.Raw]("raws")

// insert adds a film.
func (x *tc) insert(id any, title string) osier.Doc[film] {
	x.Helper()
	doc, err := films.InsertWithID(x.ctx, x.db, id, film{Title: title})
	x.must(err)
	return doc
}

// title reads a film's title.
func (x *tc) title(r osier.Reader, id any) string {
	x.Helper()
	doc, err := films.Get(x.ctx, r, id)
	x.must(err)
	return doc.Value.Title
}

// collect reads a stream to its end.
func collect[T any](x *tc, seq iter.Seq2[T, error]) []T {
	x.Helper()
	out, err := drain(seq)
	x.must(err)
	return out
}

// drain reads a stream to its end or its error. What a row shares with the
// store is valid until the next row only, so bodies are copied.
func drain[T any](seq iter.Seq2[T, error]) (out []T, err error) {
	for v, err := range seq {
		if err != nil {
			return out, err
		}
		switch row := any(&v).(type) {
		case *osier.Row:
			row.Document = *row.Document.Clone()
		case *osier.Change:
			row.Document = *row.Document.Clone()
		}
		out = append(out, v)
	}
	return out, nil
}

// ids lists the ids of a listing in text form.
func ids(x *tc, r osier.Reader, o *osier.ListOptions) []string {
	x.Helper()
	out := []string{}
	for _, d := range collect(x, films.List(x.ctx, r, o)) {
		out = append(out, d.ID.String())
	}
	return out
}

// receive waits for a value that must come.
func receive[T any](x *tc, c <-chan T) T {
	x.Helper()
	guard := time.NewTimer(patience)
	defer guard.Stop()
	select {
	case v, ok := <-c:
		if !ok {
			x.Fatal("the channel was closed without a value")
		}
		return v
	case <-guard.C:
		x.Fatalf("nothing came within %v", patience)
	}
	panic("not reached")
}

// outcome is what a stream gave before it ended, and how it ended.
type outcome[T any] struct {
	got []T
	err error
}

// follow reads a stream in a goroutine of its own. What it gives comes out of
// the first channel as it comes, the whole outcome out of the second.
func follow[T any](seq iter.Seq2[T, error]) (<-chan T, <-chan outcome[T]) {
	each := make(chan T, 1024)
	all := make(chan outcome[T], 1)
	go func() {
		var o outcome[T]
		for v, err := range seq {
			if err != nil {
				o.err = err
				break
			}
			o.got = append(o.got, v)
			each <- v
		}
		all <- o
	}()
	return each, all
}
