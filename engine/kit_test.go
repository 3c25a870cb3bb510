package engine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// Environment of the tests. A failing test prints its seed; with seedEnv set to
// it the same choices are made again. roundsEnv multiplies the rounds of the
// tests that have some.
const (
	seedEnv   = "OSIER_SEED"
	roundsEnv = "OSIER_ROUNDS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		os.Exit(writerProcess(dir))
	}
	if dir := os.Getenv(viewWriterEnv); dir != "" {
		os.Exit(viewWriterProcess(dir))
	}
	if dir := os.Getenv(openerEnv); dir != "" {
		os.Exit(openerProcess(dir))
	}
	os.Exit(m.Run())
}

// seedOf returns the test's seed and prints it.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(seedEnv); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
		seed = n
	}
	t.Logf("%s=%d", seedEnv, seed)
	return seed
}

func rngOf(seed uint64, round int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(round))) }

// rounds is how often a test with chance in it goes round.
func rounds(full, short int) int {
	if testing.Short() {
		return short
	}
	if n, err := strconv.Atoi(os.Getenv(roundsEnv)); err == nil && n > 0 {
		return full * n
	}
	return full
}

// watchdog ends the process with all stacks if the returned function is not
// called in time. It guards against waiting for ever and nothing else.
func watchdog(d time.Duration, what string) (done func() bool) {
	return time.AfterFunc(d, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("%s did not end within %v", what, d))
	}).Stop
}

// eventually polls for what has no event, such as disk space given back.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(30 * time.Second)
	defer end.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

// smallStore are options that make tables and compactions out of little data.
func smallStore(fs vfs.FS) *Options {
	return &Options{CacheBytes: 2 << 20, store: store.Options{FS: fs, MemTableBytes: 256 << 10}}
}

func mustOpen(t testing.TB, dir string, o *Options) *Engine {
	t.Helper()
	e, err := Open(dir, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return e
}

func mustClose(t testing.TB, e *Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// openMem opens a store in memory with a database, and checks and closes it
// when the test ends.
func openMem(t testing.TB, db string) *Engine {
	t.Helper()
	e := mustOpen(t, "store", smallStore(vfs.NewMem()))
	t.Cleanup(func() {
		checkClean(t, e, "at the end")
		mustClose(t, e)
	})
	mustExec(t, e, &osier.Command{DB: db, Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	return e
}

// checkClean runs the engine's own checker.
func checkClean(t testing.TB, e *Engine, what string) CheckReport {
	t.Helper()
	rep, err := e.Check(context.Background(), func(p Problem) { t.Errorf("%s: check: %v", what, p) })
	if err != nil {
		t.Errorf("%s: check: %v", what, err)
	}
	return rep
}

// problems is what the checker finds.
func problems(t testing.TB, e *Engine) (out []Problem) {
	t.Helper()
	rep, err := e.Check(context.Background(), func(p Problem) { out = append(out, p) })
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	if rep.Problems != len(out) {
		t.Errorf("check counts %d problems, reported %d", rep.Problems, len(out))
	}
	return out
}

func mustExec(t testing.TB, e *Engine, c *osier.Command) *osier.Result {
	t.Helper()
	res, err := e.Exec(context.Background(), c)
	if err != nil {
		t.Fatalf("exec: %v", err)
	}
	return res
}

// set is an operation that writes a JSON body over whatever is there.
func set(coll string, id any, body string) osier.Op {
	return osier.Op{Kind: osier.OpPut, Collection: coll, ID: osier.MustID(id), Codec: osier.TagJSON, Body: []byte(body), KeepAttachments: true}
}

// bodyOf returns a body of about n bytes that does not compress.
func bodyOf(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyz-_ABCDEFGHIJKLMNOPQRSTUVWXYZ"[rng.IntN(64)]
	}
	return `{"pad":"` + string(b) + `"}`
}

// rowsOf collects an answer; bodies are copied.
func rowsOf(e *Engine, q *osier.Query) (rows []osier.Row, err error) {
	for row, err := range e.Query(context.Background(), q) {
		if err != nil {
			return rows, err
		}
		row.Document = *row.Document.Clone()
		rows = append(rows, row)
	}
	return rows, nil
}

func mustRows(t testing.TB, e *Engine, q *osier.Query) []osier.Row {
	t.Helper()
	rows, err := rowsOf(e, q)
	if err != nil {
		t.Fatalf("query: %v", err)
	}
	return rows
}

// getRow reads one document, a deleted one too.
func getRow(t testing.TB, e *Engine, db, coll string, id osier.ID, parts osier.Parts) osier.Row {
	t.Helper()
	return mustRows(t, e, &osier.Query{Kind: osier.QueryGet, DB: db, Collection: coll, IDs: []osier.ID{id}, Parts: parts, Deleted: true})[0]
}

// changesOf collects a feed that ends.
func changesOf(e *Engine, f *osier.Feed) (out []osier.Change, err error) {
	for ch, err := range e.Watch(context.Background(), f) {
		if err != nil {
			return out, err
		}
		ch.Document = *ch.Document.Clone()
		out = append(out, ch)
	}
	return out, nil
}

func lastSeqOf(t testing.TB, e *Engine, db string) osier.Seq {
	t.Helper()
	return mustRows(t, e, &osier.Query{Kind: osier.QueryInfo, DB: db})[0].DB.LastSeq
}

// fetchAll reads an attachment whole.
func fetchAll(e *Engine, db string, blob osier.BlobID) ([]byte, error) {
	r, err := e.Fetch(context.Background(), db, blob, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// attach stages bytes and puts them into a document of their own.
func attach(t testing.TB, e *Engine, db, coll string, id any, content []byte) osier.Attachment {
	t.Helper()
	a, err := e.Stage(context.Background(), db, strings.NewReader(string(content)))
	if err != nil {
		t.Fatalf("stage: %v", err)
	}
	if a.SHA256 != sha256.Sum256(content) || a.Size != uint64(len(content)) {
		t.Fatalf("staged %d bytes with digest %x; want %d, %x", a.Size, a.SHA256, len(content), sha256.Sum256(content))
	}
	op := set(coll, id, `{}`)
	op.Attachments = []osier.AttachmentRef{{Name: "file", Staged: a.Blob}}
	mustExec(t, e, &osier.Command{DB: db, Ops: []osier.Op{op}})
	return a
}

// stateOf digests everything that commands have made of an engine.
func stateOf(t testing.TB, e *Engine) [32]byte {
	t.Helper()
	h := sha256.New()
	next, closer, err := e.store.Get([]byte{keyNextDB})
	if err == nil {
		h.Write(next)
		closer.Close()
	}
	for _, row := range mustRows(t, e, &osier.Query{Kind: osier.QueryDatabases}) {
		sum, err := e.StateHash(context.Background(), row.DB.Name)
		if err != nil {
			t.Fatalf("hash state: %v", err)
		}
		fmt.Fprintf(h, "%s %x\n", row.DB.Name, sum)
	}
	return [32]byte(h.Sum(nil))
}

// noLeaks remembers which goroutines there are; the returned function fails the
// test if more are left that run this module's or the storage engine's code.
func noLeaks(t testing.TB) (check func()) {
	t.Helper()
	before := goroutines()
	return func() {
		t.Helper()
		var left []string
		eventually(t, "all goroutines end", func() bool {
			left = left[:0]
			for id, stack := range goroutines() {
				if before[id] == "" && (strings.Contains(stack, "osierdb/") || strings.Contains(stack, "pebble/")) &&
					!strings.Contains(stack, "testing.tRunner") {
					left = append(left, stack)
				}
			}
			return len(left) == 0
		})
	}
}

// goroutines returns the stacks of all goroutines by their numbers.
func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	out := map[string]string{}
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		out[id] = stack
	}
	return out
}
