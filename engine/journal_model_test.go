package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

// fakeClock is a clock that tests move.
type fakeClock struct{ micros atomic.Int64 }

func (c *fakeClock) now() time.Time { return time.UnixMicro(c.micros.Load()) }

// journalModel is what a journal must be: a slice.
type journalModel struct {
	events []osier.Event
	last   osier.Position
	set    osier.JournalSettings
	keys   map[string]osier.JournalResult
}

// want is what a read must show at a moment.
func (m *journalModel) want(q *osier.ReadOptions, now time.Time) (out []osier.Event) {
	from, until := q.From, q.Until
	if from.IsZero() {
		from = osier.PositionAt(now.Add(-time.Hour))
		if m.set.Window > 0 {
			from = osier.PositionAt(now.Add(-m.set.Window))
		}
		if q.All {
			from = osier.Position{}
		}
	}
	for _, e := range m.events {
		switch {
		case e.Position.Before(from), !until.IsZero() && !e.Position.Before(until):
		case !e.Expires.IsZero() && !e.Expires.After(now.Truncate(time.Millisecond)):
		case m.set.MaxAge > 0 && e.Position.Before(osier.PositionAt(now.Add(-m.set.MaxAge))):
		case len(q.Types) > 0 && !slices.Contains(q.Types, e.Type):
		default:
			out = append(out, e)
		}
	}
	if q.Reverse {
		slices.Reverse(out)
	}
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	return out
}

// journalRig is an engine with a journal beside its model.
type journalRig struct {
	fs    *vfs.MemFS
	clock *fakeClock
	e     *Engine
	db    *osier.DB
	j     *osier.Journal
	m     journalModel
}

func (r *journalRig) open(t *rapid.T) {
	e, err := Open("store", &Options{Clock: r.clock.now, SyncInterval: time.Hour, keepEvery: time.Hour, CacheBytes: 2 << 20, store: smallStore(r.fs).store})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	r.e = e
	if r.db, err = e.DB(context.Background(), "shop"); err != nil {
		t.Fatalf("open database: %v", err)
	}
}

func (r *journalRig) close(t *rapid.T) {
	rep, err := r.e.Check(context.Background(), func(p Problem) { t.Errorf("check: %v", p) })
	if err != nil || rep.Problems > 0 {
		t.Fatalf("check: %v, %d problems", err, rep.Problems)
	}
	if err := r.e.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func drawEvents(t *rapid.T, now time.Time) []osier.Event {
	n := rapid.SampledFrom([]int{1, 1, 1, 2, 7, 300}).Draw(t, "events")
	size := rapid.SampledFrom([]int{0, 1, 58, 700, 40_000}).Draw(t, "size")
	if n == 300 {
		size = min(size, 700)
	}
	expire := rapid.IntRange(0, 3).Draw(t, "expire") == 0
	events := make([]osier.Event, n)
	for i := range events {
		events[i].Type = []string{"", "a", "bb"}[(i+size)%3]
		events[i].Data = fmt.Appendf(make([]byte, size), "%d", i)
		if expire {
			events[i].Expires = now.Add(time.Duration(i%5+1) * 700 * time.Millisecond).Truncate(time.Millisecond).UTC()
		}
	}
	return events
}

func (r *journalRig) append(t *rapid.T) {
	ctx := context.Background()
	level := rapid.SampledFrom([]osier.Durability{osier.Sync, osier.Buffered, osier.Relaxed, osier.Relaxed, osier.Relaxed}).Draw(t, "level")
	events := drawEvents(t, r.clock.now())
	var o *osier.AppendOptions
	key := ""
	switch rapid.IntRange(0, 5).Draw(t, "options") {
	case 0:
		key = rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(t, "key")
		o = &osier.AppendOptions{Key: key}
	case 1:
		o = &osier.AppendOptions{Expect: &r.m.last}
	case 2:
		wrong := r.m.last.Next()
		_, err := r.j.AppendEvents(ctx, r.db.With(level), events, &osier.AppendOptions{Expect: &wrong})
		if osier.KindOf(err) != osier.KindConflict {
			t.Fatalf("append at the wrong position: got %v, want a conflict", err)
		}
		return
	}
	res, err := r.j.AppendEvents(ctx, r.db.With(level), events, o)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	if old, again := r.m.keys[key]; key != "" && again {
		old.Repeated = true
		if res != old {
			t.Fatalf("repeated append: got %+v, want %+v", res, old)
		}
		return
	}
	if !r.m.last.Before(res.First) {
		t.Fatalf("position %v after %v", res.First, r.m.last)
	}
	at := res.First
	for i := range events {
		events[i].Position = at
		r.m.last = at
		at = at.Next()
	}
	if res.Last != r.m.last {
		t.Fatalf("last position: got %v, want %v", res.Last, r.m.last)
	}
	if key != "" {
		r.m.keys[key] = res
	}
	r.m.events = append(r.m.events, events...)
}

func (r *journalRig) drawRead(t *rapid.T) *osier.ReadOptions {
	q := &osier.ReadOptions{Reverse: rapid.Bool().Draw(t, "reverse")}
	at := func(name string) osier.Position {
		if len(r.m.events) == 0 {
			return osier.Beginning()
		}
		p := r.m.events[rapid.IntRange(0, len(r.m.events)-1).Draw(t, name)].Position
		if rapid.Bool().Draw(t, name+" next") {
			p = p.Next()
		}
		return p
	}
	switch rapid.IntRange(0, 2).Draw(t, "from") {
	case 0:
		q.All = true
	case 1:
		q.From = at("from at")
	}
	if rapid.Bool().Draw(t, "until") {
		q.Until = at("until at")
	}
	if rapid.IntRange(0, 2).Draw(t, "types") == 0 {
		q.Types = []string{"a", "zz"}
	}
	if rapid.Bool().Draw(t, "limit") {
		q.Limit = rapid.IntRange(1, 400).Draw(t, "limit at")
	}
	return q
}

func (r *journalRig) read(t *rapid.T, from osier.Reader) {
	ctx := context.Background()
	q := r.drawRead(t)
	want := r.m.want(q, r.clock.now())
	n := 0
	for e, err := range r.j.Read(ctx, from, q) {
		if err != nil {
			t.Fatalf("read %+v: %v", q, err)
		}
		if n >= len(want) || !sameEvent(&e, &want[n]) {
			t.Fatalf("read %+v: event %d of %d is %v %q %v", q, n, len(want), e.Position, e.Type, e.Expires)
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("read %+v: got %d events, want %d", q, n, len(want))
	}
	q.Limit = 0
	got, err := r.j.Count(ctx, from, q)
	if all := uint64(len(r.m.want(q, r.clock.now()))); err != nil || got != all {
		t.Fatalf("count %+v: got %d (%v), want %d", q, got, err, all)
	}
}

func sameEvent(a, b *osier.Event) bool {
	return a.Position == b.Position && a.Type == b.Type && a.Expires.Equal(b.Expires) && string(a.Data) == string(b.Data)
}

// dropped takes the engine's word for what it dropped, after checking that it
// might.
func (r *journalRig) dropped(t *rapid.T, may func(e *osier.Event) bool) {
	there := map[osier.Position]bool{}
	// Seen from long ago, nothing has ended that is still there.
	defer r.clock.micros.Store(r.clock.micros.Swap(1))
	for row, err := range r.e.Query(context.Background(), &osier.Query{Kind: osier.QueryJournal, DB: "shop", Collection: "journal:events",
		Journal: &osier.JournalQuery{From: osier.Beginning()}}) {
		if err != nil {
			t.Fatal(err)
		}
		for e := range row.Journal.Window.All {
			there[e.Position] = true
		}
	}
	r.m.events = slices.DeleteFunc(r.m.events, func(e osier.Event) bool {
		if there[e.Position] {
			return false
		}
		if !may(&e) {
			t.Fatalf("event %v is gone", e.Position)
		}
		return true
	})
}

func (r *journalRig) keep(t *rapid.T) {
	// Retention looks at what is stored.
	if err := r.e.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.e.keep(context.Background())
	now := r.clock.now()
	set := r.m.set
	surplus := len(r.m.events)
	if set.MaxEvents > 0 {
		surplus -= int(set.MaxEvents)
	} else {
		surplus = 0
	}
	info, err := r.j.Info(context.Background(), r.db)
	if err != nil {
		t.Fatal(err)
	}
	if set.MaxEvents > 0 && info.Count > set.MaxEvents {
		t.Fatalf("%d events are kept, at most %d should be", info.Count, set.MaxEvents)
	}
	n := 0
	r.dropped(t, func(e *osier.Event) bool {
		n++
		return n <= surplus || !e.Expires.IsZero() && !e.Expires.After(now) ||
			set.MaxAge > 0 && e.Position.Before(osier.PositionAt(now.Add(-set.MaxAge)))
	})
}

// A journal is a slice of events, whatever is asked of it, in whatever order,
// also across reopening and when the clock goes back.
func TestJournalIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &journalRig{fs: vfs.NewMem(), clock: new(fakeClock), j: osier.NewJournal("events")}
		r.m.keys = map[string]osier.JournalResult{}
		r.clock.micros.Store(1_700_000_000_000_000)
		r.open(t)
		defer func() { r.e.Close() }()
		ctx := context.Background()
		if _, err := r.db.Exec(ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpJournal, Collection: "journal:events",
			Journal: &osier.JournalOp{Settings: &r.m.set}}}}); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"append":  r.append,
			"append2": r.append,
			"read":    func(t *rapid.T) { r.read(t, r.db) },
			"read in a transaction": func(t *rapid.T) {
				if err := r.db.Update(ctx, func(tx *osier.Tx) error { r.read(t, tx); return nil }); err != nil {
					t.Fatal(err)
				}
			},
			"flush": func(t *rapid.T) {
				if err := r.e.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			},
			"clock": func(t *rapid.T) {
				r.clock.micros.Add(rapid.SampledFrom([]int64{1, 999, 300_000, 2_500_000, 3_000_000_000, -5_000_000}).Draw(t, "by"))
			},
			"trim": func(t *rapid.T) {
				p := osier.Position{Micros: r.m.last.Micros + 7}
				if n := len(r.m.events); n > 0 && rapid.IntRange(0, 9).Draw(t, "all") > 0 {
					p = r.m.events[rapid.IntRange(0, n-1).Draw(t, "at")].Position
				}
				if err := r.j.Trim(ctx, r.db, p); err != nil {
					t.Fatal(err)
				}
				r.m.events = slices.DeleteFunc(r.m.events, func(e osier.Event) bool { return e.Position.Before(p) })
			},
			"settings": func(t *rapid.T) {
				r.m.set = osier.JournalSettings{
					MaxAge:    rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second}).Draw(t, "age"),
					MaxEvents: rapid.SampledFrom([]uint64{0, 0, 0, 5, 500}).Draw(t, "most"),
					Window:    rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "window"),
				}
				set := r.m.set
				if _, err := r.db.Exec(ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpJournal, Collection: "journal:events",
					Journal: &osier.JournalOp{Settings: &set}}}}); err != nil {
					t.Fatal(err)
				}
			},
			"keep": r.keep,
			"reopen": func(t *rapid.T) {
				r.close(t)
				r.open(t)
			},
			"": func(t *rapid.T) {
				info, err := r.j.Info(ctx, r.db)
				if err != nil || info.Last != r.m.last && !info.Last.IsZero() {
					t.Fatalf("info: last %v, want %v (%v)", info.Last, r.m.last, err)
				}
			},
		})
		r.close(t)
	})
}
