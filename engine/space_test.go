package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
)

// diskBytes is what the store's files take.
func diskBytes(t testing.TB, e *Engine) uint64 {
	t.Helper()
	s, err := e.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s.DiskBytes
}

// The space of what is dropped comes back by itself: of a database, of a
// collection, of attachments that are removed.
func TestSpaceComesBack(t *testing.T) {
	const size = 8 << 20
	for name, c := range map[string]struct{ fill, drop func(t *testing.T, e *Engine) }{
		"database": {fillDocuments(size), func(t *testing.T, e *Engine) {
			mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpDropDB}}})
		}},
		"collection": {fillDocuments(size), func(t *testing.T, e *Engine) {
			mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpDropCollection, Collection: "films"}}})
		}},
		"collection with attachments": {fillAttachments(size), func(t *testing.T, e *Engine) {
			mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpDropCollection, Collection: "files"}}})
		}},
		"attachments": {fillAttachments(size), func(t *testing.T, e *Engine) {
			for i := range size / (1 << 20) {
				op := set("files", i, `{}`)
				op.KeepAttachments = false
				mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{op}})
			}
		}},
		"abandoned uploads": {func(*testing.T, *Engine) {}, func(t *testing.T, e *Engine) {
			for range size / (1 << 20) {
				broken := io.MultiReader(io.LimitReader(&randomBytes{rng: rngOf(1, 1)}, 1<<20), failingReader{})
				if _, err := e.Stage(context.Background(), "shop", broken); err == nil || !errors.Is(err, errBroken) {
					t.Fatalf("an upload that broke off: %v", err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := openMem(t, "shop")
			before := diskBytes(t, e)
			c.fill(t, e)
			if err := e.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
			full := diskBytes(t, e)
			if name != "abandoned uploads" && full < before+size/2 {
				t.Fatalf("%d bytes were written, the store grew from %d to %d", size, before, full)
			}
			c.drop(t, e)
			// Other writes go on: what is dropped is found when tables are
			// written, not by a clock.
			n := 0
			eventually(t, fmt.Sprintf("the store was at %d, grew to %d and shrinks again", before, full), func() bool {
				if name != "database" {
					mustExec(t, e, &osier.Command{DB: "shop", Durability: osier.Relaxed, Ops: []osier.Op{set("other", n%100, bodyOf(rngOf(2, n), 4000))}})
					n++
				}
				return diskBytes(t, e) < before+size/3
			})
		})
	}
}

func fillDocuments(size int) func(*testing.T, *Engine) {
	return func(t *testing.T, e *Engine) {
		rng := rngOf(3, 3)
		for i := range size / 20_000 {
			mustExec(t, e, &osier.Command{DB: "shop", Durability: osier.Relaxed, Ops: []osier.Op{set("films", i, bodyOf(rng, 20_000))}})
		}
	}
}

func fillAttachments(size int) func(*testing.T, *Engine) {
	return func(t *testing.T, e *Engine) {
		for i := range size / (1 << 20) {
			content := make([]byte, 1<<20)
			_, _ = io.ReadFull(&randomBytes{rng: rngOf(4, i)}, content)
			attach(t, e, "shop", "files", i, content)
		}
	}
}

var errBroken = errors.New("the line broke")

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errBroken }

// Updates of one document that keeps no history do not make the store grow, nor
// a later update slower than the first ones by its ancestry.
func TestUpdatesOfOneDocumentDoNotGrowTheStore(t *testing.T) {
	e := openMem(t, "shop")
	rng := rngOf(5, 5)
	update := func(n int) {
		for range n {
			mustExec(t, e, &osier.Command{DB: "shop", Durability: osier.Relaxed, Ops: []osier.Op{set("films", "a", bodyOf(rng, 2000))}})
		}
	}
	n := rounds(3000, 600)
	update(n)
	if err := e.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := diskBytes(t, e)
	update(n)
	if err := e.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What grows by nature: the list of transactions and, up to the limit, the
	// names of ancestors.
	if second, allowed := diskBytes(t, e), first+uint64(200*n)+1<<20; second > allowed {
		t.Errorf("%d updates of one document take %d bytes, %d take %d, more than %d", n, first, 2*n, second, allowed)
	}
	row := getRow(t, e, "shop", "films", osier.MustID("a"), osier.WithAncestors)
	if want := min(2*n-1, osier.DefaultRevLimit); len(row.Ancestors) < want-1 || len(row.Ancestors) > want {
		t.Errorf("%d ancestors are known after %d updates, want about %d", len(row.Ancestors), 2*n, want)
	}
}

// An upload that a crash or the end of the process interrupts leaves nothing
// after the next opening, wherever it was.
func TestInterruptedUploadLeavesNothing(t *testing.T) {
	seed := seedOf(t)
	for round := range rounds(20, 4) {
		rng := rngOf(seed, round)
		fs := vfs.NewCrashableMem()
		e := mustOpen(t, "store", crashOptions(fs, time.Millisecond))
		mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
		kept := attach(t, e, "shop", "files", 1, []byte("kept"))
		gate := &gatedReader{left: rng.IntN(2 << 20), reached: make(chan struct{}), open: make(chan struct{})}
		staged := make(chan osier.Attachment, 1)
		go func() {
			a, err := e.Stage(context.Background(), "shop", gate)
			if err != nil {
				t.Errorf("stage: %v", err)
			}
			staged <- a
		}()
		<-gate.reached
		if rng.IntN(2) == 0 {
			if err := e.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		amid := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		close(gate.open)
		<-staged
		mustClose(t, e)
		for what, fs := range map[string]vfs.FS{"amid the upload": amid, "after an upload that nobody took": fs} {
			e := mustOpen(t, "store", crashOptions(fs, time.Millisecond))
			n := 0
			for _, lower := range [][]byte{{keyStaged}, prefix(nil, 1, 0, spaceBlob)} {
				if err := scanPrefix(e.store, lower, func(_, _ []byte) error { n++; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if n != 1 {
				t.Errorf("seed %d, round %d, %s: %d records of attachments, want 1", seed, round, what, n)
			}
			if b, err := fetchAll(e, "shop", kept.Blob); err != nil || string(b) != "kept" {
				t.Errorf("seed %d, round %d, %s: the other attachment is %q, %v", seed, round, what, b, err)
			}
			checkClean(t, e, what)
			mustClose(t, e)
		}
	}
}

// gatedReader gives some bytes, waits, and ends.
type gatedReader struct {
	left    int
	reached chan struct{} // closed when the bytes have been given
	open    chan struct{} // to be closed for the end
}

func (g *gatedReader) Read(p []byte) (int, error) {
	if g.left == 0 {
		close(g.reached)
		<-g.open
		return 0, io.EOF
	}
	n := min(len(p), g.left)
	clear(p[:n])
	g.left -= n
	return n, nil
}
