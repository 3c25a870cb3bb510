package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// Goroutines that append at once lose nothing, and what each appends stays in
// its order; a tail beside them sees all of it, in order.
func TestJournalTakesManyWriters(t *testing.T) {
	const writers = 4
	each := 1_000_000
	if testing.Short() || raceEnabled {
		each = 20_000
	}
	e := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, e)
	ctx := t.Context()
	j := osier.NewJournal("events", osier.JournalSettings{Durability: osier.Relaxed})
	db, err := e.DB(ctx, "shop", osier.Schema(j))
	if err != nil {
		t.Fatal(err)
	}
	tail := make(chan error, 1)
	go func() {
		tail <- readInOrder(j.Tail(ctx, db, &osier.TailOptions{All: true, Limit: writers * each}), writers, each)
	}()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			events := make([]osier.Event, 50)
			for i := range events {
				events[i].Data = make([]byte, 16)
			}
			for n := 0; n < each; {
				k := 1
				if n%7 == 0 {
					k = min(len(events), each-n)
				}
				for i := range k {
					binary.BigEndian.PutUint64(events[i].Data, uint64(w))
					binary.BigEndian.PutUint64(events[i].Data[8:], uint64(n+i))
				}
				to := db
				if n%10_007 == 0 {
					to = db.With(osier.Buffered) // by the ordinary way
				}
				if _, err := j.AppendEvents(ctx, to, events[:k], nil); err != nil {
					t.Error(err)
					return
				}
				n += k
			}
		})
	}
	wg.Wait()
	if err := readInOrder(j.Read(ctx, db, &osier.ReadOptions{All: true}), writers, each); err != nil {
		t.Errorf("read: %v", err)
	}
	if err := <-tail; err != nil {
		t.Errorf("tail: %v", err)
	}
	if n, err := j.Count(ctx, db, &osier.ReadOptions{All: true}); err != nil || n != uint64(writers*each) {
		t.Errorf("count: got %d (%v), want %d", n, err, writers*each)
	}
	checkClean(t, e, "at the end")
}

// readInOrder wants every writer's events, each in its order.
func readInOrder(seq func(func(osier.Event, error) bool), writers, each int) error {
	next := make([]uint64, writers)
	var last osier.Position
	n := 0
	for ev, err := range seq {
		if err != nil {
			return err
		}
		w, i := binary.BigEndian.Uint64(ev.Data), binary.BigEndian.Uint64(ev.Data[8:])
		if i != next[w] || !last.Before(ev.Position) {
			return fmt.Errorf("event %d at %v after %v is number %d of writer %d, want number %d", n, ev.Position, last, i, w, next[w])
		}
		next[w]++
		last = ev.Position
		n++
	}
	if n != writers*each {
		return fmt.Errorf("got %d events, want %d", n, writers*each)
	}
	return nil
}

// A store that is closed leaves no goroutine and no timer of journals and
// subscriptions behind, and has written what was pending.
func TestJournalsAndTopicsLeaveNothingRunning(t *testing.T) {
	fs := vfs.NewMem()
	check := noLeaks(t)
	for round := range 3 {
		e := mustOpen(t, "store", smallStore(fs))
		ctx := context.Background()
		db, err := e.DB(ctx, "shop")
		if err != nil {
			t.Fatal(err)
		}
		j := osier.NewJournal("events", osier.JournalSettings{Durability: osier.Relaxed, MaxAge: time.Hour})
		if _, err := e.OpenDB(ctx, "shop", osier.Schema(j)); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if _, err := j.Append(ctx, db, []byte{byte(10*round + i)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			s, err := osier.Subscribe(ctx, db, &osier.TopicFeed{Patterns: []string{">"}})
			if err != nil {
				t.Fatal(err)
			}
			go s.Next(ctx)
			if i%2 == 0 {
				s.Close()
			}
		}
		ended := make(chan error, 1)
		go func() {
			_, err := drainEvents(j.Tail(ctx, db, nil))
			ended <- err
		}()
		n, err := j.Count(ctx, db, nil)
		if err != nil || n != uint64(10*round+10) {
			t.Errorf("round %d: %d events (%v), want %d", round, n, err, 10*round+10)
		}
		mustClose(t, e)
		if err := <-ended; osier.KindOf(err) != osier.KindClosed {
			t.Errorf("tail: got %v, want it closed", err)
		}
	}
	check()
}

func drainEvents(seq func(func(osier.Event, error) bool)) (out []osier.Event, err error) {
	for ev, err := range seq {
		if err != nil {
			return out, err
		}
		ev.Data = bytes.Clone(ev.Data)
		out = append(out, ev)
	}
	return out, nil
}

// Pending events are written within the interval, by a timer that is there only
// while they are.
func TestPendingEventsAreWrittenWithinTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := mustOpen(t, "store", &Options{InMemory: true, SyncInterval: 50 * time.Millisecond})
		defer mustClose(t, e)
		ctx := t.Context()
		db, err := e.DB(ctx, "shop")
		if err != nil {
			t.Fatal(err)
		}
		j := osier.NewJournal("events", osier.JournalSettings{Durability: osier.Relaxed})
		if _, err := e.OpenDB(ctx, "shop", osier.Schema(j)); err != nil {
			t.Fatal(err)
		}
		pending := func() uint64 {
			info, err := j.Info(ctx, db)
			if err != nil {
				t.Fatal(err)
			}
			return info.Pending
		}
		for range 3 {
			if _, err := j.Append(ctx, db, []byte("event")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(49 * time.Millisecond)
			synctest.Wait()
			if pending() != 21 {
				t.Errorf("%d bytes are pending before the interval, want 21", pending())
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if pending() != 0 {
				t.Errorf("%d bytes are pending after the interval", pending())
			}
		}
	})
}

// Retention gives space back while reads go on.
func TestRetentionGivesSpaceBack(t *testing.T) {
	o := smallStore(vfs.NewMem())
	o.keepEvery = time.Hour
	e := mustOpen(t, "store", o)
	defer mustClose(t, e)
	ctx := t.Context()
	db, err := e.DB(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	j := osier.NewJournal("events", osier.JournalSettings{Durability: osier.Relaxed, MaxBytes: 1 << 20, MaxEventBytes: 1 << 20})
	if _, err := e.OpenDB(ctx, "shop", osier.Schema(j)); err != nil {
		t.Fatal(err)
	}
	rng := rngOf(seedOf(t), 0)
	most := uint64(0)
	for i := range 60 {
		for range 10 {
			if _, err := j.Append(ctx, db, []byte(bodyOf(rng, 100_000))); err != nil {
				t.Fatal(err)
			}
		}
		reading := 0
		for ev, err := range j.Read(ctx, db, &osier.ReadOptions{All: true}) {
			if err != nil || len(ev.Data) < 100_000 {
				t.Fatalf("%d bytes, %v", len(ev.Data), err)
			}
			if reading++; reading == 3 {
				if err := e.drain(ctx, store.Sync); err != nil {
					t.Fatal(err)
				}
				e.keep(ctx)
			}
		}
		info, err := j.Info(ctx, db)
		if err != nil || info.Bytes > 1<<20 {
			t.Fatalf("round %d: %d bytes are kept (%v)", i, info.Bytes, err)
		}
		stats, err := e.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, stats.DiskBytes)
	}
	if err := e.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	stats, err := e.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if stats.DiskBytes > 8<<20 {
		t.Errorf("60 MB went through a journal of 1 MiB: the store takes %d bytes, at most %d on the way", stats.DiskBytes, most)
	}
	t.Logf("the store took %d bytes at most, %d at the end", most, stats.DiskBytes)
	checkClean(t, e, "at the end")
}

// Blocks whose events have all ended by themselves go, also in the middle.
func TestExpiredBlocksGo(t *testing.T) {
	clock := new(fakeClock)
	clock.micros.Store(1_700_000_000_000_000)
	o := smallStore(vfs.NewMem())
	o.keepEvery, o.Clock = time.Hour, clock.now
	e := mustOpen(t, "store", o)
	defer mustClose(t, e)
	ctx := t.Context()
	db, err := e.DB(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	j := osier.NewJournal("events")
	var want [][]byte
	for i := range 30 {
		ev := osier.Event{Data: fmt.Append(bytes.Repeat([]byte{'x'}, 20_000), i)}
		if i >= 10 && i < 20 {
			ev.Expires = clock.now().Add(time.Second)
		} else {
			want = append(want, ev.Data)
		}
		if _, err := j.AppendEvents(ctx, db, []osier.Event{ev}, nil); err != nil {
			t.Fatal(err)
		}
	}
	clock.micros.Add(2_000_000)
	e.keep(ctx)
	info, err := j.Info(ctx, db)
	if err != nil || info.Count != 20 {
		t.Errorf("%d events are kept (%v), want 20", info.Count, err)
	}
	events, err := drainEvents(j.Read(ctx, db, &osier.ReadOptions{All: true}))
	if err != nil || !slices.EqualFunc(events, want, func(ev osier.Event, b []byte) bool { return bytes.Equal(ev.Data, b) }) {
		t.Errorf("got %d events (%v), want %d", len(events), err, len(want))
	}
	checkClean(t, e, "after expiry")
}

// A journal's burst leaves another's readers alone: they take no lock that the
// writers' wait for the disk is under.
func TestReadersDoNotWaitForWriters(t *testing.T) {
	defer watchdog(time.Minute, "reading beside a writer")()
	e := mustOpen(t, "store", &Options{InMemory: true})
	defer mustClose(t, e)
	ctx := t.Context()
	db, err := e.DB(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	quiet, busy := osier.NewJournal("quiet"), osier.NewJournal("busy")
	for _, j := range []*osier.Journal{quiet, busy} {
		if _, err := j.Append(ctx, db, []byte("event")); err != nil {
			t.Fatal(err)
		}
	}
	// Somebody commits, for ever.
	e.queue.order.Lock()
	ended := make(chan error, 1)
	go func() {
		_, err := busy.Append(ctx, db, []byte("waits"))
		ended <- err
	}()
	for _, j := range []*osier.Journal{quiet, busy} {
		if n, err := j.Count(ctx, db, nil); err != nil || n != 1 {
			t.Errorf("%s: %d events (%v)", j.Name(), n, err)
		}
		if events, err := drainEvents(j.Read(ctx, db, nil)); err != nil || len(events) != 1 {
			t.Errorf("%s: %d events (%v)", j.Name(), len(events), err)
		}
	}
	if _, err := quiet.Append(ctx, db.With(osier.Relaxed), []byte("relaxed")); err != nil {
		t.Error(err)
	}
	e.queue.order.Unlock()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
