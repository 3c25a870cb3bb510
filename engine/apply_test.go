package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// Dropping a collection drops its attachments' bytes, which lie beside it.
func TestDroppedCollectionTakesItsAttachmentsAlong(t *testing.T) {
	e := openMem(t, "shop")
	gone := attach(t, e, "shop", "films", "a", []byte("celluloid"))
	stays := attach(t, e, "shop", "books", "a", []byte("paper"))
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpDropCollection, Collection: "films"}}})
	if _, err := fetchAll(e, "shop", gone.Blob); !errors.Is(err, osier.ErrNotFound) {
		t.Errorf("fetch of a dropped collection's attachment: %v, want ErrNotFound", err)
	}
	if b, err := fetchAll(e, "shop", stays.Blob); err != nil || string(b) != "paper" {
		t.Errorf("fetch of another collection's attachment: %q, %v", b, err)
	}
}

// A collection that one command drops and fills again holds the new documents
// and no attachments of the old.
func TestCollectionDroppedAndMadeAgainInOneCommand(t *testing.T) {
	e := openMem(t, "shop")
	gone := attach(t, e, "shop", "films", "a", []byte("celluloid"))
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{
		set("films", "b", `{"n":1}`),
		{Kind: osier.OpDropCollection, Collection: "films"},
		set("films", "c", `{"n":2}`),
	}})
	rows := mustRows(t, e, &osier.Query{Kind: osier.QueryScan, DB: "shop", Collection: "films"})
	if len(rows) != 1 || rows[0].ID != osier.MustID("c") {
		t.Errorf("got %d documents %v, want c alone", len(rows), rows)
	}
	if _, err := fetchAll(e, "shop", gone.Blob); !errors.Is(err, osier.ErrNotFound) {
		t.Errorf("fetch of a dropped collection's attachment: %v, want ErrNotFound", err)
	}
}

// A dropped collection's attachment that the same command staged leaves nothing.
func TestAttachmentPutAndDroppedInOneCommand(t *testing.T) {
	e := openMem(t, "shop")
	a, err := e.Stage(context.Background(), "shop", repeated("x", 1000))
	if err != nil {
		t.Fatal(err)
	}
	op := set("films", "b", `{"n":1}`)
	op.Attachments = []osier.AttachmentRef{{Name: "file", Staged: a.Blob}}
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{op, {Kind: osier.OpDropCollection, Collection: "films"}}})
	// Taken or not: the bytes may stay staged until the next opening, but no
	// document may have them and nothing else may refer to them.
	checkClean(t, e, "after the drop")
}

// With PerDocument an operation that fails changes nothing that one before it
// did: not a drop either.
func TestFailedOperationKeepsTheDropBeforeIt(t *testing.T) {
	e := openMem(t, "shop")
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "a", `{"n":1}`)}})
	bad := set("films", "b", `{"n":`)
	res := mustExec(t, e, &osier.Command{DB: "shop", PerDocument: true, Ops: []osier.Op{
		{Kind: osier.OpDropCollection, Collection: "films"}, bad,
	}})
	if res.Ops[0].Err != nil || res.Ops[1].Err == nil || res.Ops[1].Err.Kind != osier.KindInvalid {
		t.Fatalf("got %v and %v, want success and KindInvalid", res.Ops[0].Err, res.Ops[1].Err)
	}
	info := mustRows(t, e, &osier.Query{Kind: osier.QueryInfo, DB: "shop"})[0].DB
	if len(info.Collections) != 0 {
		t.Errorf("got collections %+v, want none: the drop succeeded", info.Collections)
	}
}

// An earlier body that is kept stays in the revision tree, however far the
// ancestry between it and the present goes beyond the limit.
func TestKeptBodyStaysInTheTree(t *testing.T) {
	e := openMem(t, "shop")
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCollection, Collection: "films",
		Settings: &osier.Settings{Codec: osier.TagJSON, History: 3, RevLimit: 5}}}})
	first := mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "a", `{"n":1}`)}}).Ops[0].Rev
	// A path of stemEvery generations that ends in the first revision.
	var path []osier.Rev
	for gen := uint64(stemEvery); gen > 1; gen-- {
		path = append(path, osier.NewRev(gen, [16]byte{byte(gen)}))
	}
	path = append(path, first)
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpGraft, Collection: "films",
		ID: osier.MustID("a"), Path: path, Codec: osier.TagJSON, Body: []byte(`{"n":2}`)}}})
	checkClean(t, e, "after a graft far ahead")
}

// A group that the store refuses changes nothing in memory either, also not of
// a database that the group dropped.
func TestRefusedGroupLeavesADroppedDatabaseAsItWas(t *testing.T) {
	fs := vfs.NewMem()
	o := smallStore(fs)
	o.store.ReserveBytes = 1 << 20
	e := mustOpen(t, "store", o)
	defer mustClose(t, e)
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "a", `{"n":1}`)}})

	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 100, TotalBytes: 1000, UsedBytes: 900})
	if _, err := e.Exec(context.Background(), &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "b", bodyOf(rngOf(1, 1), 2<<20))}}); err != nil {
		t.Logf("first write without space: %v", err)
	}
	outs := runGroup(e, []item{
		{cmd: &osier.Command{DB: "shop", Ops: []osier.Op{set("books", "a", `{"n":1}`), set("films", "c", `{"n":1}`)}}},
		{cmd: &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpDropDB}}}},
	})
	for i := range outs {
		if !errors.Is(outs[i].err, osier.ErrFull) {
			t.Fatalf("command %d without space: %v, want ErrFull", i, outs[i].err)
		}
	}
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40})
	before := lastSeqOf(t, e, "shop")
	res := mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "d", `{"n":1}`)}})
	if res.First != before+1 {
		t.Errorf("the next change takes sequence %d after %d", res.First, before)
	}
	checkClean(t, e, "after a refused group")
}

// A retried command gets its first answer again, equal in every field, also
// after a restart, whether it succeeded, failed or both by parts.
func TestRetryGetsTheFirstAnswer(t *testing.T) {
	fs := vfs.NewMem()
	e := mustOpen(t, "store", smallStore(fs))
	defer func() { mustClose(t, e) }()
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	commands := func() []*osier.Command {
		dup := set("films", "a", `{"n":2}`)
		dup.Expect = osier.ExpectAbsent
		return []*osier.Command{
			{DB: "shop", Session: "s", Number: 1, Ops: []osier.Op{set("films", "a", `{"n":1}`), set("books", 7, `{}`)}},
			{DB: "shop", Session: "s", Number: 2, Ops: []osier.Op{dup}},
			{DB: "shop", Session: "s", Number: 3, PerDocument: true, Ops: []osier.Op{dup, set("films", "c", `{}`)}},
			{DB: "shop", Session: "s", Number: 4, Ops: []osier.Op{{Kind: osier.OpCollection, Collection: "x", Settings: &osier.Settings{Codec: osier.TagJSON}}}},
			{DB: "shop", Session: "t", Number: 1, Ops: []osier.Op{{Kind: osier.OpDropCollection, Collection: "x"}}},
		}
	}
	type answer struct {
		res *osier.Result
		err string
	}
	run := func() (out []answer) {
		for _, c := range commands() {
			res, err := e.Exec(context.Background(), c)
			out = append(out, answer{res, fmt.Sprint(err)})
		}
		return out
	}
	first := run()
	state := stateOf(t, e)
	compare := func(what string) {
		t.Helper()
		for i, again := range run() {
			if first[i].err != again.err {
				t.Errorf("%s: command %d: got error %s, want %s", what, i, again.err, first[i].err)
			}
			if !equalResults(first[i].res, again.res) {
				t.Errorf("%s: command %d: got %+v, want %+v", what, i, again.res, first[i].res)
			}
		}
		if stateOf(t, e) != state {
			t.Errorf("%s: retries changed the state", what)
		}
	}
	compare("at once")
	mustClose(t, e)
	e = mustOpen(t, "store", smallStore(fs))
	compare("after a restart")
	checkClean(t, e, "at the end")
}

// equalResults compares all that a caller can see of two results.
func equalResults(a, b *osier.Result) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.First != b.First || a.Last != b.Last || !a.Time.Equal(b.Time) || len(a.Ops) != len(b.Ops) {
		return false
	}
	for i := range a.Ops {
		x, y := a.Ops[i], b.Ops[i]
		if x.ID != y.ID || x.Rev != y.Rev || x.Seq != y.Seq || fmt.Sprint(x.Err) != fmt.Sprint(y.Err) || (x.Err == nil) != (y.Err == nil) {
			return false
		}
	}
	return true
}

// Answers beyond the number that is remembered are forgotten, oldest first, and
// their commands carried out anew.
func TestOldestAnswerIsForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("writes more commands than a database remembers")
	}
	e := openMem(t, "shop")
	put := func(n uint64) *osier.Result {
		return mustExec(t, e, &osier.Command{DB: "shop", Session: "s", Number: n, Durability: osier.Relaxed, Ops: []osier.Op{set("films", "a", `{}`)}})
	}
	var answers []*osier.Result
	for n := range uint64(resultsKept + 2) {
		answers = append(answers, put(n))
	}
	last := lastSeqOf(t, e, "shop")
	for _, n := range []uint64{2, resultsKept / 2, resultsKept + 1} {
		if again := put(n); !reflect.DeepEqual(again.Ops, answers[n].Ops) {
			t.Errorf("command %d again: %+v, want %+v", n, again.Ops, answers[n].Ops)
		}
	}
	if got := lastSeqOf(t, e, "shop"); got != last {
		t.Errorf("retries moved the sequence from %d to %d", last, got)
	}
	if again := put(0); again.First != last+1 {
		t.Errorf("a forgotten command took sequence %d, want %d", again.First, last+1)
	}
}

// A remembered answer that damage took away is not missed when it is its turn to
// be forgotten.
func TestLostAnswerNeedNotBeForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("writes more commands than a database remembers")
	}
	e := openMem(t, "shop")
	command := func(n uint64) *osier.Command {
		return &osier.Command{DB: "shop", Session: "s", Number: n, Durability: osier.Relaxed, Ops: []osier.Op{set("films", "a", `{}`)}}
	}
	for n := range uint64(resultsKept) {
		mustExec(t, e, command(n))
	}
	lose := &request{level: store.Relaxed, fill: func(a *applier) error { return a.b.Delete(resultRingKey(1, 0)) }}
	if err := e.submit(context.Background(), lose, 0); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(2) {
		if _, err := e.Exec(context.Background(), command(resultsKept+n)); err != nil {
			t.Fatalf("command %d after the loss: %v", n, err)
		}
	}
}

// The clock's steps back do not show in what is stored, not across a restart.
func TestTimeNeverGoesBack(t *testing.T) {
	fs := vfs.NewMem()
	now := time.UnixMilli(1_000_000)
	o := smallStore(fs)
	o.Clock = func() time.Time { return now }
	e := mustOpen(t, "store", o)
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	first := mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "a", `{}`)}})
	now = now.Add(-time.Hour)
	second := mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "a", `{}`)}})
	mustClose(t, e)
	e = mustOpen(t, "store", o)
	defer mustClose(t, e)
	third := mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "a", `{}`)}})
	if second.Time.Before(first.Time) || third.Time.Before(second.Time) {
		t.Errorf("times %v, %v, %v go back", first.Time, second.Time, third.Time)
	}
}

// A command replayed from a log moves the clock's floor too.
func TestReplayedTimeIsAFloor(t *testing.T) {
	e := openMem(t, "shop")
	future := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	c := &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "a", `{}`)}, Sealed: osier.Seal{Time: future}}
	if _, err := e.ApplySealed(context.Background(), []*osier.Command{c}); err != nil {
		t.Fatal(err)
	}
	if res := mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", "a", `{}`)}}); res.Time.Before(future) {
		t.Errorf("a command after one of %v was sealed with %v", future, res.Time)
	}
}
