package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
)

// kvEngine opens a store in memory with a database.
func kvEngine(t testing.TB, change func(*Options)) (*Engine, *osier.DB) {
	t.Helper()
	o := smallStore(vfs.NewMem())
	if change != nil {
		change(o)
	}
	e := mustOpen(t, "store", o)
	t.Cleanup(func() {
		checkClean(t, e, "at the end")
		mustClose(t, e)
	})
	db, err := e.DB(context.Background(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	return e, db
}

// must ends the test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Under a cap that holds a small part of the keys, everything is read as it was
// written, and memory stays near the cap.
func TestKVMemoryHasACap(t *testing.T) {
	const limit = 1 << 20
	e, db := kvEngine(t, func(o *Options) { o.KVMemoryBytes, o.KVWriteKeys = limit, 500 })
	ctx := t.Context()
	n := db.KV("n")
	rng := rngOf(seedOf(t), 0)
	value := func(i int) []byte { return bytes.Repeat([]byte(fmt.Sprint(i, ",")), 1+i%60) }
	const keys = 20_000
	for i := range keys {
		must(t, n.Set(ctx, fmt.Sprint(i), value(i)))
	}
	for range rounds(keys, keys/10) {
		i := rng.IntN(keys)
		got, err := n.Get(ctx, fmt.Sprint(i))
		must(t, err)
		if !bytes.Equal(got.Value, value(i)) {
			t.Fatalf("key %d: got %q, want %q", i, got.Value, value(i))
		}
		if _, m, err := n.Append(ctx, nil, fmt.Sprint("none", i)); err != nil || m.Found() {
			t.Fatalf("a vacant key: %v, found %v", err, m.Found())
		}
	}
	must(t, e.Flush(ctx))
	s, err := e.Stats(ctx)
	must(t, err)
	// Dirty values are kept in any case, and pieces are given back in part.
	if s.KVBytes > 3*limit {
		t.Errorf("%d bytes in memory under a cap of %d", s.KVBytes, limit)
	}
	count, err := n.Count(ctx)
	must(t, err)
	if count != keys {
		t.Errorf("got %d keys, want %d", count, keys)
	}
}

// What expires leaves memory and disk by itself, within a second of its deadline.
func TestKVExpiryGivesBackMemoryAndRows(t *testing.T) {
	e, db := kvEngine(t, nil)
	ctx := t.Context()
	n := db.KV("n")
	for i := range 3000 {
		must(t, n.SetFor(ctx, fmt.Sprint(i), bytes.Repeat([]byte("x"), 100), time.Duration(1+i%40)*time.Millisecond))
	}
	_, err := n.List("l").PushBack(ctx, []byte("1"), []byte("2"))
	must(t, err)
	_, err = n.Expire(ctx, "l", 20*time.Millisecond)
	must(t, err)
	rows := func(space byte) (rows int) {
		must(t, scanPrefix(e.store, append(kvRow(nil, 1), space), func(_, _ []byte) error { rows++; return nil }))
		return rows
	}
	eventually(t, "rows and memory are given back", func() bool {
		s, err := e.Stats(ctx)
		must(t, err)
		return rows(kv.SpaceExpiry) == 0 && rows(kv.SpaceElement) == 0 && rows(kv.SpaceKey) == 2 && s.KVBytes < 200<<10
	})
}

// Readers by key, by scan and by transaction never see a counter go back, while
// it is added to in memory, in commits and in transactions.
func TestKVReadsNeverGoBack(t *testing.T) {
	_, db := kvEngine(t, func(o *Options) { o.KVInterval, o.KVMemoryBytes = time.Millisecond, 64<<10 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := db.KV("n")
	keys := []string{"a", "b", "c"}
	for _, k := range keys {
		must(t, n.Set(ctx, k, []byte("0")))
	}
	var writers, readers sync.WaitGroup
	const each = 150
	add := func(fn func(k string) error) {
		writers.Go(func() {
			for i := range each {
				if err := fn(keys[i%len(keys)]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		add(func(k string) error { _, err := n.Add(ctx, k, 1); return err })
		add(func(k string) error { _, err := n.With(osier.Buffered).Add(ctx, k, 1); return err })
	}
	add(func(k string) error { // evicts and reads again
		for i := range 20 {
			if err := n.Set(ctx, fmt.Sprint("fill", k, i), make([]byte, 500)); err != nil {
				return err
			}
		}
		return nil
	})
	for range 2 {
		readers.Go(func() {
			last := map[string]int{}
			see := func(how, k string, value []byte) {
				v, err := strconv.Atoi(string(value))
				if err != nil || v < last[k] {
					t.Errorf("%s: %s is %q after %d", how, k, value, last[k])
				}
				last[k] = v
			}
			for ctx.Err() == nil {
				for _, k := range keys {
					v, _, err := n.Append(ctx, nil, k)
					if err != nil {
						t.Error(err)
						return
					}
					see("get", k, v)
				}
				for e, err := range n.Scan(context.WithoutCancel(ctx), &osier.KVScan{Until: "d"}) {
					if err != nil {
						t.Error(err)
						return
					}
					see("scan", e.Key, e.Value)
				}
			}
		})
	}
	writers.Wait()
	cancel()
	readers.Wait()
	for _, k := range keys {
		sum, err := n.Add(t.Context(), k, 0)
		must(t, err)
		if sum != 4*each/int64(len(keys)) {
			t.Errorf("%s is %d, want %d", k, sum, 4*each/len(keys))
		}
	}
}

// The same sealed commands make the same state, byte for byte, whatever memory
// there is above it.
func TestKVApplyIsPure(t *testing.T) {
	seed := seedOf(t)
	rng := rngOf(seed, 0)
	var millis atomic.Int64
	millis.Store(1_900_000_000_000)
	clock := func() time.Time { return time.UnixMilli(millis.Load()) }
	e, _ := kvEngine(t, func(o *Options) { o.Clock = clock })
	var sealed []*osier.Command
	exec := func(ops ...osier.Op) {
		c := &osier.Command{DB: "shop", Durability: osier.Buffered, PerDocument: rng.IntN(2) == 0, Ops: ops}
		if _, err := e.Exec(t.Context(), c); err != nil && !isAnswer(osier.KindOf(err)) {
			t.Fatal(err)
		}
		sealed = append(sealed, c)
	}
	states := kv.AppendPacked(nil, []byte("p1"), &kv.Entry{Type: osier.KVPlain, Version: 1000, Deadline: millis.Load() + 5, Value: []byte("v")}, false, 0)
	exec(osier.Op{Kind: osier.OpKVBehind, KV: &osier.KVOp{Packed: kv.AppendPackedNamespace(nil, "behind", 1, states)}})
	for range 300 {
		millis.Add(int64(rng.IntN(3)))
		var ops []osier.Op
		for range 1 + rng.IntN(3) {
			op := &osier.KVOp{Namespace: "n", Key: fmt.Sprint(rng.IntN(5)), TTL: int64(rng.IntN(3) * 10)}
			items := []osier.KVItem{{Name: fmt.Sprint(rng.IntN(50)), Value: []byte("v"), Score: float64(rng.IntN(9))}}
			op.Verb = []osier.KVVerb{osier.KVSet, osier.KVDelete, osier.KVAddInt, osier.KVListPush, osier.KVSortedAdd, osier.KVHashSet,
				osier.KVSetAdd, osier.KVLeaseAcquire, osier.KVSortedRemove, osier.KVExpire}[rng.IntN(10)]
			op.Key, op.Items, op.Value = op.Key+fmt.Sprint(op.Verb/10), items, []byte("value")
			ops = append(ops, osier.Op{Kind: osier.OpKV, KV: op})
		}
		exec(ops...)
	}
	other := mustOpen(t, "other", smallStore(vfs.NewMem()))
	defer mustClose(t, other)
	mustExec(t, other, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	// What expired by itself came between; only deadlines of the future stay equal.
	first, second := kvWithoutExpiry(t, e), ""
	if _, err := other.ApplySealed(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
	if second = kvWithoutExpiry(t, other); first != second {
		t.Errorf("seed %d: the states differ:\n%s\n%s", seed, first, second)
	}
}

// What a log says was written behind elsewhere is seen by readers of memory.
func TestKVBehindFromALogReachesMemory(t *testing.T) {
	e, db := kvEngine(t, nil)
	ctx := t.Context()
	n := db.KV("n")
	must(t, n.With(osier.Sync).Set(ctx, "a", []byte("old")))
	old, err := n.Get(ctx, "a")
	must(t, err)
	states := kv.AppendPacked(nil, []byte("a"), &kv.Entry{Type: osier.KVPlain, Version: old.Version + 10, Value: []byte("new")}, true, 0)
	states = kv.AppendPacked(states, []byte("b"), &kv.Entry{Type: osier.KVPlain, Version: old.Version + 11, Value: []byte("b")}, false, 0)
	c := &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpKVBehind, KV: &osier.KVOp{Packed: kv.AppendPackedNamespace(nil, "n", 2, states)}}}}
	mustExec(t, e, c)
	for key, want := range map[string]string{"a": "new", "b": "b"} {
		if got, err := n.Get(ctx, key); err != nil || string(got.Value) != want {
			t.Errorf("%s: got %q, %v, want %q", key, got.Value, err, want)
		}
	}
	must(t, n.Set(ctx, "a", []byte("newer")))
	got, err := n.Get(ctx, "a")
	must(t, err)
	if got.Version <= old.Version+11 {
		t.Errorf("version %d after %d", got.Version, old.Version+11)
	}
}

// kvWithoutExpiry shows the live keys of all namespaces.
func kvWithoutExpiry(t *testing.T, e *Engine) string {
	t.Helper()
	var out strings.Builder
	for _, name := range []string{"behind", "n"} {
		for row, err := range e.Query(t.Context(), &osier.Query{Kind: osier.QueryKVScan, DB: "shop", KV: &osier.KVQuery{Namespace: name}}) {
			must(t, err)
			if row.KV.Deadline == 0 {
				fmt.Fprintf(&out, "%s/%q %v %d %q %d\n", name, row.KV.Key, row.KV.Type, row.KV.Version, row.KV.Item.Value, row.KV.Count)
			}
		}
	}
	return out.String()
}

// Sizes beyond the limits are ErrTooLarge, on every way, and change nothing.
func TestKVLimits(t *testing.T) {
	_, db := kvEngine(t, func(o *Options) { o.KVLimits = KVLimits{KeyBytes: 10, ValueBytes: 100, Elements: 3} })
	ctx := t.Context()
	n := db.KV("n")
	long, big := strings.Repeat("k", 11), make([]byte, 101)
	_, getErr := n.Get(ctx, long)
	_, addErr := n.Add(ctx, long, 1)
	_, pushErr := n.List("l").PushBack(ctx, big)
	_, manyErr := n.Members("s").Add(ctx, "a", "b", "c", "d")
	_, nameErr := n.Hash("h").SetField(ctx, long, nil)
	_, popErr := n.List("l").PopBack(ctx, 4)
	_, manyKeys := n.GetMany(ctx, "a", "b", "c", "d")
	for what, err := range map[string]error{
		"set a long key": n.Set(ctx, long, nil), "set a large value": n.Set(ctx, "a", big), "durable": n.With(osier.Sync).Set(ctx, "a", big),
		"get": getErr, "add": addErr, "push": pushErr, "members": manyErr, "field": nameErr, "pop": popErr, "get many": manyKeys,
		"in a transaction": db.Update(ctx, func(tx *osier.Tx) error { return tx.KV("n").Set(ctx, "a", big) }),
	} {
		if osier.KindOf(err) != osier.KindTooLarge {
			t.Errorf("%s: got %v, want it too large", what, err)
		}
	}
	must(t, n.Set(ctx, strings.Repeat("k", 10), make([]byte, 100)))
	if count, err := n.Count(ctx); err != nil || count != 1 {
		t.Errorf("got %d keys, %v", count, err)
	}
}

// A feed that is not read is told so, and holds up nobody.
func TestKVFeedThatIsNotRead(t *testing.T) {
	_, db := kvEngine(t, nil)
	ctx := t.Context()
	n := db.KV("n")
	shown := 0
	var last error
	for ch, err := range n.Watch(ctx, "") {
		if err != nil {
			last = err
			break
		}
		if ch.Mark {
			for i := range 3 * osier.KVFeedRows {
				must(t, n.Set(ctx, fmt.Sprint(i), nil))
			}
			must(t, n.With(osier.Sync).Set(ctx, "end", nil)) // all of it is durable
			continue
		}
		shown++
	}
	if !errors.Is(last, osier.ErrGap) || shown != osier.KVFeedRows {
		t.Errorf("got %d rows and then %v, want %d and a gap", shown, last, osier.KVFeedRows)
	}
}

// A flush that the store refuses loses nothing: writers are told, and what was
// acknowledged is written when there is room again.
func TestKVFullDisk(t *testing.T) {
	disk := vfs.NewCrashableMem()
	e, db := kvEngine(t, func(o *Options) { o.store.FS, o.store.ReserveBytes, o.KVInterval = disk, 1<<20, time.Hour })
	ctx := t.Context()
	n := db.KV("n")
	for i := range 100 {
		must(t, n.Set(ctx, fmt.Sprint(i), append([]byte("before"), make([]byte, 40_000)...)))
	}
	disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1000, TotalBytes: 1 << 30})
	m := e.kvOf((*e.dbs.Load())["shop"])
	keys := uint64(100)
	for ; m.flush(ctx) == nil; keys++ {
		if keys > 500 {
			t.Fatal("a full disk took 20 MB")
		}
		must(t, n.Set(ctx, fmt.Sprint(keys), make([]byte, 40_000)))
	}
	if err := n.Set(ctx, "x", nil); osier.KindOf(err) != osier.KindFull {
		t.Errorf("got %v, want the disk to be full", err)
	}
	if v, err := n.Get(ctx, "7"); err != nil || !bytes.HasPrefix(v.Value, []byte("before")) {
		t.Errorf("read while full: %.10q, %v", v.Value, err)
	}
	disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40})
	eventually(t, "writes go on", func() bool { return n.Set(ctx, "7", []byte("after")) == nil })
	must(t, m.flush(ctx))
	count, err := n.Count(ctx)
	must(t, err)
	if count != keys {
		t.Errorf("got %d keys, want %d", count, keys)
	}
}

// storm of operations in memory, commits, drops and reads, for the race detector.
func TestKVStorm(t *testing.T) {
	_, db := kvEngine(t, func(o *Options) { o.KVInterval, o.KVMemoryBytes, o.KVWriteKeys = time.Millisecond, 128<<10, 50 })
	seed := seedOf(t)
	ctx := t.Context()
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			rng := rngOf(seed, w)
			for range rounds(150, 40) {
				if err := kvStormStep(ctx, db, rng); err != nil && osier.KindOf(err) != osier.KindConflict && osier.KindOf(err) != osier.KindInvalid && osier.KindOf(err) != osier.KindNotFound {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func kvStormStep(ctx context.Context, db *osier.DB, rng *rand.Rand) error {
	n := db.KV(fmt.Sprint("n", rng.IntN(3)))
	if rng.IntN(4) == 0 {
		n = n.With(osier.Buffered)
	}
	key := fmt.Sprint(rng.IntN(60))
	switch rng.IntN(12) {
	case 0, 1:
		return n.SetFor(ctx, key, make([]byte, rng.IntN(3000)), time.Duration(rng.IntN(8))*time.Millisecond)
	case 2:
		_, err := n.Add(ctx, "c"+key, 1)
		return err
	case 3:
		_, err := n.Delete(ctx, key)
		return err
	case 4:
		_, err := n.Sorted("z"+key).Add(ctx, osier.KVItem{Name: key, Score: rng.Float64()})
		return err
	case 5:
		_, err := n.List("l"+key).PushFront(ctx, []byte(key))
		return err
	case 6:
		for _, err := range n.Scan(ctx, &osier.KVScan{Limit: 20}) {
			return err
		}
		return nil
	case 7:
		if rng.IntN(10) == 0 {
			return n.Drop(ctx)
		}
		_, err := n.Count(ctx)
		return err
	case 8:
		return db.Update(ctx, func(tx *osier.Tx) error {
			_, err := tx.KV(n.Name()).Add(ctx, "c"+key, 1)
			return err
		})
	}
	_, _, err := n.Append(ctx, nil, key)
	return err
}
