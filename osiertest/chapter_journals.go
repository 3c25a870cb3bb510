package osiertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
)

// log is the suite's ordinary journal.
var log = osier.NewJournal("log")

func journalTests() []test {
	return []test{
		{"events come back as they were appended, in order of strictly increasing positions", journalRoundTrip},
		{"an append is seen by reads and transactions at once, at whatever level", func(x *tc) {
			for i, level := range []osier.Durability{osier.Sync, osier.Buffered, osier.Relaxed} {
				text := fmt.Sprint("event ", i)
				_, err := log.Append(x.ctx, x.db.With(level), []byte(text))
				x.must(err)
				x.same("newest", x.texts(x.db, &osier.ReadOptions{Reverse: true, Limit: 1}), []string{text})
				x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
					x.same("newest in a transaction", x.texts(tx, &osier.ReadOptions{Reverse: true, Limit: 1}), []string{text})
					return nil
				}))
			}
		}},
		{"reads are bounded by positions, times, types and a limit, forward and back", journalRanges},
		{"windows hold the same events", func(x *tc) {
			x.events(1000)
			var got []string
			for w, err := range log.Windows(x.ctx, x.db, &osier.ReadOptions{All: true}) {
				x.must(err)
				n := 0
				for e, err := range w.All {
					x.must(err)
					if n++; n == 1 {
						x.same("first", w.First, e.Position)
					}
					got = append(got, string(e.Data))
				}
				x.same("count", w.Count, n)
			}
			x.same("events", got, x.texts(x.db, &osier.ReadOptions{All: true}))
			x.same("number", len(got), 1000)
		}},
		{"a read that does not say where to begin looks back as far as the journal's window", func(x *tc) {
			x.clocked(func(x *tc, at func(time.Duration)) {
				for i := range 5 {
					at(time.Duration(i) * 20 * time.Minute)
					x.append(fmt.Sprint(i))
				}
				x.same("an hour", x.texts(x.db, nil), []string{"1", "2", "3", "4"})
				x.same("reverse", x.texts(x.db, &osier.ReadOptions{Reverse: true}), []string{"4", "3", "2", "1"})
				x.same("all", x.texts(x.db, &osier.ReadOptions{All: true}), []string{"0", "1", "2", "3", "4"})
				n, err := log.Count(x.ctx, x.db, nil)
				x.must(err)
				x.same("count", n, uint64(4))
				x.setUp(osier.JournalSettings{Window: 25 * time.Minute})
				x.same("25 minutes", x.texts(x.db, nil), []string{"3", "4"})
			})
		}},
		{"positions increase when the clock stands or goes back, also across a reopen", func(x *tc) {
			x.clocked(func(x *tc, at func(time.Duration)) {
				var last osier.Position
				for i, d := range []time.Duration{0, 0, -time.Hour, time.Second, -time.Minute, -time.Minute} {
					at(d)
					p := x.append(fmt.Sprint(i))
					if !last.Before(p) {
						x.Fatalf("position %v after %v", p, last)
					}
					if last = p; i == 3 && x.h.Reopen != nil {
						x.reopen()
					}
				}
				x.same("events", x.texts(x.db, &osier.ReadOptions{All: true}), []string{"0", "1", "2", "3", "4", "5"})
			})
		}},
		{"an event's own expiry ends it to the millisecond", func(x *tc) {
			x.clocked(func(x *tc, at func(time.Duration)) {
				_, err := log.AppendEvents(x.ctx, x.db, []osier.Event{{Data: []byte("a")},
					{Data: []byte("b"), Expires: clockStart.Add(1500 * time.Millisecond)}, {Data: []byte("c")}}, nil)
				x.must(err)
				at(1499 * time.Millisecond)
				x.same("before", x.texts(x.db, nil), []string{"a", "b", "c"})
				at(1500 * time.Millisecond)
				x.same("at its end", x.texts(x.db, nil), []string{"a", "c"})
				x.same("backwards", x.texts(x.db, &osier.ReadOptions{Reverse: true}), []string{"c", "a"})
				n, err := log.Count(x.ctx, x.db, nil)
				x.must(err)
				x.same("count", n, uint64(2))
			})
		}},
		{"retention by age hides events to the microsecond", func(x *tc) {
			x.clocked(func(x *tc, at func(time.Duration)) {
				x.setUp(osier.JournalSettings{MaxAge: time.Second})
				at(time.Millisecond)
				a := x.append("a").Time().Sub(clockStart)
				at(2 * time.Millisecond)
				b := x.append("b").Time().Sub(clockStart)
				for _, c := range []struct {
					at   time.Duration
					want []string
				}{{a, []string{"a", "b"}}, {a + time.Microsecond, []string{"b"}}, {b, []string{"b"}}, {b + time.Microsecond, []string{}}} {
					at(time.Second + c.at)
					x.same(fmt.Sprint("a second after ", c.at), x.texts(x.db, &osier.ReadOptions{All: true}), c.want)
				}
			})
		}},
		{"a key makes an append happen once", journalKeys},
		{"an append at an expected position happens there or not at all", func(x *tc) {
			p := new(osier.Position)
			res, err := log.AppendEvents(x.ctx, x.db, texted("a", "b"), &osier.AppendOptions{Expect: p})
			x.must(err)
			_, err = log.AppendEvents(x.ctx, x.db, texted("c"), &osier.AppendOptions{Expect: p})
			x.kind(err, osier.KindConflict)
			_, err = log.AppendEvents(x.ctx, x.db, texted("c"), &osier.AppendOptions{Expect: &res.First})
			x.kind(err, osier.KindConflict)
			_, err = log.AppendEvents(x.ctx, x.db, texted("c"), &osier.AppendOptions{Expect: &res.Last})
			x.must(err)
			x.same("events", x.texts(x.db, nil), []string{"a", "b", "c"})
		}},
		{"appends and documents of a transaction are there together or not at all", journalTransactions},
		{"appends take part in batches and retries", journalBatches},
		{"a trim drops what is older, and a reader that missed it is told", journalTrim},
		{"dropping a journal, or its database, drops its events", func(x *tc) {
			x.kind(log.Drop(x.ctx, x.db), osier.KindNotFound)
			x.events(10)
			x.must(log.Drop(x.ctx, x.db))
			_, err := log.Info(x.ctx, x.db)
			x.kind(err, osier.KindNotFound)
			x.same("dropped", x.texts(x.db, &osier.ReadOptions{All: true}), []string{})
			x.append("anew")
			x.same("anew", x.texts(x.db, &osier.ReadOptions{All: true}), []string{"anew"})
			x.must(x.store.DropDB(x.ctx, "shop"))
			_, err = log.Append(x.ctx, x.db, []byte("gone"))
			x.kind(err, osier.KindNotFound)
			_, err = drain(log.Read(x.ctx, x.db, nil))
			x.kind(err, osier.KindNotFound)
		}},
		{"a tail shows events as they come, and resumes after any of them", journalTail},
		{"a tail of a journal that is not there yet waits for it", func(x *tc) {
			ctx, cancel := context.WithCancel(x.ctx)
			each, all := follow(copied(log.Tail(ctx, x.db, &osier.TailOptions{All: true, Limit: 2})))
			x.append("a")
			x.same("first", string(receive(x, each).Data), "a")
			x.append("b")
			x.same("second", string(receive(x, each).Data), "b")
			x.must(receive(x, all).err)
			cancel()
		}},
		{"a waiting tail ends with its context, the store and the database", func(x *tc) {
			x.events(1)
			ctx, cancel := context.WithCancel(x.ctx)
			_, all := follow(copied(log.Tail(ctx, x.db, nil)))
			cancel()
			x.kind(receive(x, all).err, osier.KindCanceled)
			other, err := x.store.CreateDB(x.ctx, "other")
			x.must(err)
			_, err = log.Append(x.ctx, other, []byte("x"))
			x.must(err)
			each, all := follow(copied(log.Tail(x.ctx, other, &osier.TailOptions{All: true})))
			receive(x, each)
			x.must(x.store.DropDB(x.ctx, "other"))
			x.kind(receive(x, all).err, osier.KindNotFound)
			each, all = follow(copied(log.Tail(x.ctx, x.db, &osier.TailOptions{All: true})))
			receive(x, each)
			x.must(x.store.Close())
			x.kind(receive(x, all).err, osier.KindClosed)
		}},
		{"journals are declared with their settings, and described", func(x *tc) {
			kept := osier.NewJournal("kept", osier.JournalSettings{MaxAge: time.Hour, MaxEvents: 1000, Durability: osier.Relaxed})
			x.schema(kept, films)
			info, err := kept.Info(x.ctx, x.db)
			x.must(err)
			x.same("settings", info.Settings, osier.JournalSettings{MaxAge: time.Hour, MaxEvents: 1000, Durability: osier.Relaxed})
			res, err := kept.AppendEvents(x.ctx, x.db, []osier.Event{{Type: "t", Data: []byte("data")}, {}}, nil)
			x.must(err)
			info, err = kept.Info(x.ctx, x.db)
			x.must(err)
			x.same("info", []any{info.Name, info.Last, info.Count, info.Appended, info.Bytes}, []any{"kept", res.Last, uint64(2), uint64(2), uint64(16 + 2 + 4 + 16)})
			db, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("journals", len(db.Journals), 1)
			x.same("its name", db.Journals[0].Name, "kept")
			x.schema(osier.NewJournal("kept"))
			info, err = kept.Info(x.ctx, x.db)
			x.must(err)
			x.same("changed settings", info.Settings, osier.JournalSettings{})
		}},
		{"what is wrong or too large is refused, and changes nothing", journalLimits},
		{"rights on journals are by their names", journalRights},
		{"journals stand apart", func(x *tc) {
			for i := range 50 {
				j := osier.NewJournal(fmt.Sprint("j", i))
				_, err := j.AppendEvents(x.ctx, x.db.With(osier.Relaxed), texted("x", fmt.Sprint(i)), nil)
				x.must(err)
			}
			for i := range 50 {
				j := osier.NewJournal(fmt.Sprint("j", i))
				x.same("events", x.textsOf(j, x.db, nil), []string{"x", fmt.Sprint(i)})
			}
		}},
		{"journals are there after a reopen", func(x *tc) {
			x.events(300)
			_, err := log.AppendEvents(x.ctx, x.db.With(osier.Relaxed), texted("relaxed"), nil)
			x.must(err)
			_, err = log.AppendEvents(x.ctx, x.db, texted("keyed"), &osier.AppendOptions{Key: "k"})
			x.must(err)
			want := x.texts(x.db, &osier.ReadOptions{All: true})
			before, err := log.Info(x.ctx, x.db)
			x.must(err)
			x.reopen()
			x.same("events", x.texts(x.db, &osier.ReadOptions{All: true}), want)
			after, err := log.Info(x.ctx, x.db)
			x.must(err)
			x.same("info", []any{after.Last, after.Count, after.Bytes}, []any{before.Last, before.Count, before.Bytes})
			res, err := log.AppendEvents(x.ctx, x.db, texted("keyed"), &osier.AppendOptions{Key: "k"})
			x.must(err)
			x.same("repeated", res.Repeated, true)
		}},
	}
}

// texted makes events of texts.
func texted(texts ...string) []osier.Event {
	out := make([]osier.Event, len(texts))
	for i, s := range texts {
		out[i].Data = []byte(s)
	}
	return out
}

// copied makes a stream of events whose bytes stay.
func copied(seq func(func(osier.Event, error) bool)) func(func(osier.Event, error) bool) {
	return func(yield func(osier.Event, error) bool) {
		seq(func(e osier.Event, err error) bool {
			e.Data = bytes.Clone(e.Data)
			return yield(e, err)
		})
	}
}

func (x *tc) append(text string) osier.Position {
	x.Helper()
	p, err := log.Append(x.ctx, x.db, []byte(text))
	x.must(err)
	return p
}

// events appends n numbered events, some alone, some together, and returns their
// positions.
func (x *tc) events(n int) (at []osier.Position) {
	x.Helper()
	for i := 0; i < n; {
		k := min(n-i, 1+i%7*i%40)
		texts := make([]osier.Event, k)
		for m := range texts {
			texts[m] = osier.Event{Type: []string{"even", "odd"}[(i+m)%2], Data: fmt.Appendf(nil, "event %d %s", i+m, strings.Repeat(".", 100))}
		}
		db := x.db
		if i%3 == 0 {
			db = x.db.With(osier.Relaxed)
		}
		res, err := log.AppendEvents(x.ctx, db, texts, nil)
		x.must(err)
		for p := res.First; ; p = p.Next() {
			at = append(at, p)
			if p == res.Last {
				break
			}
		}
		i += k
	}
	x.same("positions", len(at), n)
	return at
}

// texts reads the suite's journal.
func (x *tc) texts(r osier.Reader, o *osier.ReadOptions) []string {
	x.Helper()
	return x.textsOf(log, r, o)
}

func (x *tc) textsOf(j *osier.Journal, r osier.Reader, o *osier.ReadOptions) []string {
	x.Helper()
	out := []string{}
	for e, err := range j.Read(x.ctx, r, o) {
		x.must(err)
		out = append(out, string(e.Data))
	}
	return out
}

func (x *tc) setUp(s osier.JournalSettings) {
	x.Helper()
	_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpJournal, Collection: osier.JournalResource("log"),
		Journal: &osier.JournalOp{Settings: &s}}}})
	x.must(err)
}

// clockStart is where the clock of clocked begins.
var clockStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clocked runs fn on a store whose clock stands where at puts it, from clockStart
// on.
func (x *tc) clocked(fn func(x *tc, at func(time.Duration))) {
	x.Helper()
	if x.h.NewAt == nil {
		x.Skip("time cannot be chosen")
	}
	var now atomic.Int64
	at := func(d time.Duration) { now.Store(clockStart.Add(d).UnixMicro()) }
	at(0)
	fn(newCaseOn(x.T, x.h, x.h.NewAt(x.T, func() time.Time { return time.UnixMicro(now.Load()) })), at)
}

func journalRoundTrip(x *tc) {
	big := bytes.Repeat([]byte("0123456789"), 5_000)
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	in := []osier.Event{{Data: []byte("plain")}, {Type: "typed", Data: []byte{0, 255}}, {}, {Type: strings.Repeat("t", osier.MaxEventType)},
		{Data: big, Expires: expires}, {Type: "both", Data: []byte("x"), Expires: expires}}
	for range 3 {
		res, err := log.AppendEvents(x.ctx, x.db, in, nil)
		x.must(err)
		if !res.First.Before(res.Last) {
			x.Fatalf("positions %v to %v", res.First, res.Last)
		}
	}
	i := 0
	var last osier.Position
	for e, err := range log.Read(x.ctx, x.db, nil) {
		x.must(err)
		want := in[i%len(in)]
		if e.Type != want.Type || !bytes.Equal(e.Data, want.Data) || !e.Expires.Equal(want.Expires) || !last.Before(e.Position) {
			x.Fatalf("event %d: got %v %q with %d bytes after %v", i, e.Position, e.Type, len(e.Data), last)
		}
		last = e.Position
		i++
	}
	x.same("events", i, 3*len(in))
	if d := time.Since(last.Time()); d < 0 || d > time.Hour {
		x.Fatalf("the last event's time is %v", last.Time())
	}
}

func journalRanges(x *tc) {
	at := x.events(400)
	all := x.texts(x.db, &osier.ReadOptions{All: true})
	x.same("number", len(all), 400)
	for _, b := range [][2]int{{0, 400}, {1, 2}, {17, 399}, {200, 200}, {399, 400}, {100, 350}} {
		o := &osier.ReadOptions{From: at[b[0]]}
		if b[1] < 400 {
			o.Until = at[b[1]]
		}
		want := all[b[0]:b[1]]
		x.same(fmt.Sprint("range ", b), x.texts(x.db, o), append([]string{}, want...))
		n, err := log.Count(x.ctx, x.db, o)
		x.must(err)
		x.same("count", n, uint64(len(want)))
		back := slices.Clone(want)
		slices.Reverse(back)
		o.Reverse = true
		x.same(fmt.Sprint("back ", b), x.texts(x.db, o), append([]string{}, back...))
		if o.Limit = 30; len(back) > 30 {
			x.same("back, limited", x.texts(x.db, o), back[:30])
			o.Reverse = false
			x.same("limited", x.texts(x.db, o), append([]string{}, want[:30]...))
		}
	}
	x.same("after", x.texts(x.db, &osier.ReadOptions{After: at[397]}), all[398:])
	x.same("since", x.texts(x.db, &osier.ReadOptions{Since: at[10].Time(), Limit: 1}), []string{all[slices.IndexFunc(at, func(p osier.Position) bool {
		return p.Micros == at[10].Micros
	})]})
	var odd []string
	for i, s := range all {
		if i%2 == 1 {
			odd = append(odd, s)
		}
	}
	types := &osier.ReadOptions{All: true, Types: []string{"odd", "none"}}
	x.same("by type", x.texts(x.db, types), odd)
	n, err := log.Count(x.ctx, x.db, types)
	x.must(err)
	x.same("count by type", n, uint64(200))
	types.Reverse, types.Limit = true, 3
	x.same("by type, back", x.texts(x.db, types), []string{odd[199], odd[198], odd[197]})
	for range log.Read(x.ctx, x.db, nil) {
		break // leaves nothing behind
	}
}

func journalKeys(x *tc) {
	first, err := log.AppendEvents(x.ctx, x.db, texted("a", "b"), &osier.AppendOptions{Key: "k"})
	x.must(err)
	x.append("c")
	again, err := log.AppendEvents(x.ctx, x.db, texted("a", "b"), &osier.AppendOptions{Key: "k"})
	x.must(err)
	first.Repeated = true
	x.same("answer", again, first)
	_, err = log.AppendEvents(x.ctx, x.db, texted("d"), &osier.AppendOptions{Key: "l"})
	x.must(err)
	x.same("events", x.texts(x.db, nil), []string{"a", "b", "c", "d"})
	x.setUp(osier.JournalSettings{KeysKept: 2})
	for i := range 3 {
		_, err := log.AppendEvents(x.ctx, x.db, texted("e"), &osier.AppendOptions{Key: fmt.Sprint("m", i)})
		x.must(err)
	}
	again, err = log.AppendEvents(x.ctx, x.db, texted("forgotten"), &osier.AppendOptions{Key: "k"})
	x.must(err)
	x.same("a key that was forgotten", again.Repeated, false)
}

var errUndo = errors.New("undo")

func journalTransactions(x *tc) {
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		_, err := films.InsertWithID(x.ctx, tx, "a", film{Title: "1"})
		x.must(err)
		_, err = log.Append(x.ctx, tx, []byte("a"))
		x.must(err)
		return nil
	}))
	x.same("events", x.texts(x.db, nil), []string{"a"})
	x.same("document", x.title(x.db, "a"), "1")
	err := x.db.Update(x.ctx, func(tx *osier.Tx) error {
		_, err := log.Append(x.ctx, tx, []byte("undone"))
		x.must(err)
		return errUndo
	})
	x.same("rolled back", errors.Is(err, errUndo), true)
	// A conflict on the document keeps the event out.
	_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{
		{Kind: osier.OpAppend, Collection: osier.JournalResource("log"), Journal: &osier.JournalOp{Events: texted("conflict")}},
		{Kind: osier.OpPut, Collection: "films", ID: osier.MustID("a"), Expect: osier.ExpectAbsent, Body: []byte(`{}`)}}})
	x.kind(err, osier.KindConflict)
	x.same("events", x.texts(x.db, nil), []string{"a"})
	// What a transaction has read of a journal must still be all at its commit.
	tries := 0
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		tries++
		n := len(x.texts(tx, nil))
		if tries == 1 {
			x.append("between")
		}
		_, err := films.Upsert(x.ctx, tx, "count", film{Year: n})
		return err
	}))
	x.same("tries", tries, 2)
	doc, err := films.Get(x.ctx, x.db, "count")
	x.must(err)
	x.same("what it counted", doc.Value.Year, 2)
}

func journalBatches(x *tc) {
	b := osier.Batch{Session: "s", Number: 1}
	_, err := films.InsertWithID(x.ctx, &b, "a", film{})
	x.must(err)
	for range 2 {
		_, err = log.AppendEvents(x.ctx, &b, texted("a", "b"), nil)
		x.must(err)
	}
	res, err := x.db.Commit(x.ctx, &b)
	x.must(err)
	if r := res.Ops[1].Journal; r == nil || !r.Last.Before(res.Ops[2].Journal.First) {
		x.Fatalf("positions of a batch: %+v, %+v", res.Ops[1].Journal, res.Ops[2].Journal)
	}
	again, err := x.db.Commit(x.ctx, &osier.Batch{Session: "s", Number: 1})
	x.must(err)
	x.same("positions of a retry", *again.Ops[2].Journal, *res.Ops[2].Journal)
	x.same("events", x.texts(x.db, nil), []string{"a", "b", "a", "b"})
	b = osier.Batch{PerDocument: true}
	wrong := osier.Beginning()
	for _, o := range []*osier.AppendOptions{nil, {Expect: &wrong}, nil} {
		_, err := log.AppendEvents(x.ctx, &b, texted("c"), o)
		x.must(err)
	}
	other := osier.NewJournal("other")
	_, err = other.AppendEvents(x.ctx, &b, texted("d"), &osier.AppendOptions{Expect: &wrong})
	x.must(err)
	res, err = x.db.Commit(x.ctx, &b)
	x.must(err)
	x.same("errors", []bool{res.Ops[0].Err == nil, res.Ops[1].Err == nil, res.Ops[2].Err == nil, res.Ops[3].Err == nil}, []bool{true, false, true, false})
	x.same("events", x.texts(x.db, nil), []string{"a", "b", "a", "b", "c", "c"})
	_, err = other.Info(x.ctx, x.db)
	x.kind(err, osier.KindNotFound)
}

func journalTrim(x *tc) {
	x.kind(log.Trim(x.ctx, x.db, osier.Beginning()), osier.KindNotFound)
	at := x.events(500)
	all := x.texts(x.db, &osier.ReadOptions{All: true})
	for _, n := range []int{0, 1, 250, 250, 499} {
		x.must(log.Trim(x.ctx, x.db, at[n]))
		x.same(fmt.Sprint("after a trim of ", n), x.texts(x.db, &osier.ReadOptions{All: true}), all[n:])
		info, err := log.Info(x.ctx, x.db)
		x.must(err)
		x.same("count", []uint64{info.Count, info.Appended}, []uint64{uint64(500 - n), 500})
		count, err := log.Count(x.ctx, x.db, &osier.ReadOptions{All: true})
		x.must(err)
		x.same("counted", count, uint64(500-n))
	}
	_, err := drain(log.Tail(x.ctx, x.db, &osier.TailOptions{After: at[100], Once: true}))
	x.kind(err, osier.KindGap)
	got, err := drain(copied(log.Tail(x.ctx, x.db, &osier.TailOptions{After: at[498], Once: true})))
	x.must(err)
	x.same("nothing missed", len(got), 1)
	x.must(log.Trim(x.ctx, x.db, osier.Position{Micros: at[499].Micros + int64(time.Hour)}))
	x.same("all", x.texts(x.db, &osier.ReadOptions{All: true}), []string{})
	if p := x.append("next"); !at[499].Before(p) {
		x.Fatalf("position %v after %v", p, at[499])
	}
	x.same("next", x.texts(x.db, &osier.ReadOptions{All: true}), []string{"next"})
}

func journalTail(x *tc) {
	at := x.events(300)
	all := x.texts(x.db, &osier.ReadOptions{All: true})
	for _, n := range []int{0, 7, 299} {
		var got []string
		for e, err := range log.Tail(x.ctx, x.db, &osier.TailOptions{After: at[n], Once: true}) {
			x.must(err)
			got = append(got, string(e.Data))
		}
		x.same(fmt.Sprint("after ", n), append([]string{}, got...), append([]string{}, all[n+1:]...))
	}
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	each, ended := follow(copied(log.Tail(ctx, x.db, &osier.TailOptions{After: at[298], Types: []string{"odd", ""}, Limit: 4})))
	x.same("what was there", string(receive(x, each).Data), all[299])
	for i, level := range []osier.Durability{osier.Sync, osier.Buffered, osier.Relaxed} {
		_, err := log.AppendEvents(x.ctx, x.db.With(level), []osier.Event{{Type: "even", Data: []byte("not this")}, {Data: fmt.Append(nil, i)}}, nil)
		x.must(err)
		x.same("live", string(receive(x, each).Data), fmt.Sprint(i))
	}
	x.must(receive(x, ended).err)
}

func journalLimits(x *tc) {
	appendOf := func(events []osier.Event, o *osier.AppendOptions) error {
		var errs []error
		for _, level := range []osier.Durability{osier.Sync, osier.Relaxed} {
			_, err := log.AppendEvents(x.ctx, x.db.With(level), events, o)
			errs = append(errs, err)
		}
		x.same("kinds", osier.KindOf(errs[0]), osier.KindOf(errs[1]))
		return errs[0]
	}
	for range 2 { // without and with a journal there
		x.kind(appendOf(nil, nil), osier.KindInvalid)
		x.kind(appendOf([]osier.Event{{Data: make([]byte, osier.DefaultMaxEventBytes+1)}}, nil), osier.KindTooLarge)
		x.kind(appendOf([]osier.Event{{Type: strings.Repeat("t", osier.MaxEventType+1)}}, nil), osier.KindTooLarge)
		x.kind(appendOf(make([]osier.Event, osier.MaxAppendEvents+1), nil), osier.KindTooLarge)
		x.kind(appendOf(texted("x"), &osier.AppendOptions{Key: strings.Repeat("k", osier.MaxJournalKeyBytes+1)}), osier.KindTooLarge)
		x.setUp(osier.JournalSettings{})
	}
	x.setUp(osier.JournalSettings{MaxEventBytes: 3})
	x.must(appendOf(texted("abc"), nil))
	x.kind(appendOf(texted("abcd"), nil), osier.KindTooLarge)
	x.setUp(osier.JournalSettings{MaxEventBytes: osier.MaxEventBytes})
	x.must(appendOf([]osier.Event{{Data: make([]byte, 3<<20)}}, nil))
	for _, op := range []osier.Op{
		{Kind: osier.OpAppend, Collection: "log", Journal: &osier.JournalOp{Events: texted("x")}},
		{Kind: osier.OpAppend, Collection: osier.JournalResource(""), Journal: &osier.JournalOp{Events: texted("x")}},
		{Kind: osier.OpAppend, Collection: osier.JournalResource("a b"), Journal: &osier.JournalOp{Events: texted("x")}},
		{Kind: osier.OpAppend, Collection: osier.JournalResource(strings.Repeat("n", 300)), Journal: &osier.JournalOp{Events: texted("x")}},
		{Kind: osier.OpAppend, Collection: osier.JournalResource("log")},
		{Kind: osier.OpJournal, Collection: osier.JournalResource("log"), Journal: &osier.JournalOp{}},
		{Kind: osier.OpJournal, Collection: osier.JournalResource("log"), Journal: &osier.JournalOp{Settings: &osier.JournalSettings{MaxAge: -1}}},
		{Kind: osier.OpPut, Collection: osier.JournalResource("log"), ID: osier.MustID("a"), Body: []byte(`{}`)},
	} {
		_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{op}})
		x.kind(err, osier.KindInvalid)
	}
	_, err := drain(log.Read(x.ctx, x.db, &osier.ReadOptions{Types: make([]string, osier.MaxJournalTypesFilter+1)}))
	x.kind(err, osier.KindTooLarge)
	long := osier.Position{Micros: -1}
	_, err = drain(log.Read(x.ctx, x.db, &osier.ReadOptions{From: long}))
	x.kind(err, osier.KindInvalid)
	_, err = log.Count(x.ctx, x.db, &osier.ReadOptions{Until: long})
	x.kind(err, osier.KindInvalid)
	x.kind(log.Trim(x.ctx, x.db, long), osier.KindInvalid)
	_, err = drain(x.db.Watch(x.ctx, &osier.Feed{Collection: osier.JournalResource("log"), Journal: &osier.JournalFeed{From: long}}))
	x.kind(err, osier.KindInvalid)
	x.same("before 1970", x.texts(x.db, &osier.ReadOptions{Before: time.Unix(-1, 0), All: true}), []string{})
	n, err := log.Count(x.ctx, x.db, &osier.ReadOptions{Since: time.Unix(-1, 0)})
	x.must(err)
	x.same("events", n, uint64(4))
}

func journalRights(x *tc) {
	x.append("a")
	_, err := osier.NewJournal("secret").Append(x.ctx, x.db, []byte("s"))
	x.must(err)
	as := func(a osier.Action, pattern string) *osier.DB {
		return x.db.As(osier.Principal{Name: "p", Grants: []osier.Grant{{Actions: a, DB: "shop", Collection: pattern}}})
	}
	reader, writer, manager := as(osier.MayRead, "journal:lo*"), as(osier.MayWrite, "journal:log"), as(osier.MayManage, "journal:*")
	for _, db := range []*osier.DB{reader, manager, as(osier.MayWrite, "log"), as(osier.MayWrite, "journal:other")} {
		for _, db := range []*osier.DB{db, db.With(osier.Relaxed)} {
			_, err := log.Append(x.ctx, db, []byte("x"))
			x.kind(err, osier.KindDenied)
		}
	}
	for _, level := range []osier.Durability{osier.Sync, osier.Relaxed} {
		_, err = log.Append(x.ctx, writer.With(level), []byte("b"))
		x.must(err)
	}
	x.same("read", x.texts(reader, nil), []string{"a", "b", "b"})
	for _, db := range []*osier.DB{writer, manager} {
		_, err = drain(log.Read(x.ctx, db, nil))
		x.kind(err, osier.KindDenied)
		_, err = log.Info(x.ctx, db)
		x.kind(err, osier.KindDenied)
		_, err = log.Count(x.ctx, db, nil)
		x.kind(err, osier.KindDenied)
		_, err = drain(log.Tail(x.ctx, db, &osier.TailOptions{All: true, Once: true}))
		x.kind(err, osier.KindDenied)
	}
	x.kind(log.Trim(x.ctx, writer, osier.Beginning()), osier.KindDenied)
	x.kind(log.Drop(x.ctx, writer), osier.KindDenied)
	info, err := reader.Info(x.ctx)
	x.must(err)
	x.same("journals seen", len(info.Journals), 1)
	x.must(log.Trim(x.ctx, manager, osier.Beginning()))
	x.must(log.Drop(x.ctx, manager))
}
