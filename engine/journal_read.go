package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// journalState reads a journal's record as the view's state has it; found is
// false if there is none.
func (v *view) journalState(name string) (st journalState, found bool, err error) {
	b, closer, err := v.src.Get(journalKey(v.db.num, name))
	if errors.Is(err, store.ErrNotFound) {
		return st, false, nil
	}
	if err != nil {
		return st, false, err
	}
	defer closer.Close()
	st, err = decodeJournalState(b)
	return st, true, err
}

// journal answers the queries about a journal. Without a pin it reads memory and
// then the store, whose complete blocks are no older than what memory had.
func (v *view) journal(ctx context.Context, yield func(osier.Row, error) bool) error {
	name, ok := osier.JournalName(v.q.Collection)
	if !ok || v.q.Journal == nil && v.q.Kind != osier.QueryJournalInfo {
		return &osier.Error{Kind: osier.KindInvalid, Op: "read journal", DB: v.db.name, Collection: v.q.Collection,
			Err: errors.New("the query does not name a journal, or does not say what to read")}
	}
	r, found, err := v.openJournal(name)
	if err != nil {
		return err
	}
	switch v.q.Kind {
	case osier.QueryJournalInfo:
		if !found {
			return &osier.Error{Kind: osier.KindNotFound, Op: "info", DB: v.db.name, Collection: v.q.Collection}
		}
		info, err := v.journalInfo(name, r)
		if err == nil {
			yield(osier.Row{Journal: &osier.JournalRow{Info: info}}, nil)
		}
		return err
	case osier.QueryJournalCount:
		row := osier.JournalRow{}
		if found {
			if row.Count, err = r.count(ctx, v.q.Journal); err != nil {
				return err
			}
		}
		yield(osier.Row{Journal: &row}, nil)
		return nil
	}
	if !found {
		return nil
	}
	if err := r.ask(v.q.Journal, v.q.Reverse, v.q.Limit); err != nil {
		return err
	}
	row := osier.Row{Journal: new(osier.JournalRow)}
	return r.windows(ctx, func(w *osier.Window) bool {
		row.Journal.Window = *w
		return yield(row, nil)
	})
}

// openJournal finds a journal and what of it is in memory.
func (v *view) openJournal(name string) (r *journalReader, found bool, err error) {
	r = &journalReader{src: v.src, db: v.db.num, now: v.e.now()}
	if v.fixed {
		r.st, found, err = v.journalState(name)
		return r, found, err
	}
	j := (*v.db.journalsSeen())[name]
	if j == nil {
		return r, false, nil
	}
	r.look(j)
	return r, true, nil
}

// journalInfo describes a journal.
func (v *view) journalInfo(name string, r *journalReader) (*osier.JournalInfo, error) {
	st := &r.st
	info := &osier.JournalInfo{Name: name, Settings: st.settings, Last: st.last, Trimmed: st.trimmed,
		Count: st.count, Appended: st.appended, Bytes: st.bytes}
	for i := r.stored; i < len(r.mem); i++ {
		s := &r.mem[i]
		info.Last = s.last
		info.Count += uint64(s.count)
		info.Appended += uint64(s.count)
		info.Bytes += uint64(len(s.bytes))
		info.Pending += uint64(len(s.bytes))
	}
	lower, upper := eventsRange(v.db.num, st.num)
	var err error
	info.DiskBytes, err = v.e.store.Size(lower, upper)
	return info, err
}

// journalInfos describes all journals of the view's state, by name.
func (v *view) journalInfos() ([]osier.JournalInfo, error) {
	states, err := readJournals(v.src, v.db.num)
	if err != nil {
		return nil, err
	}
	var out []osier.JournalInfo
	for name, st := range states {
		r := &journalReader{st: st}
		if j := (*v.db.journalsSeen())[name]; j != nil && v.q.Pin == 0 {
			r.look(j)
		}
		info, err := v.journalInfo(name, r)
		if err != nil {
			return nil, err
		}
		out = append(out, *info)
	}
	slices.SortFunc(out, func(a, b osier.JournalInfo) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// journalReader reads a range of a journal, from blocks in the store and then
// from memory, or the other way round.
type journalReader struct {
	src    source
	db     uint32
	st     journalState
	now    time.Time
	mem    []stretch // what is in memory; the store has complete blocks before it
	stored int       // of mem, stretches that the store has too

	from, until osier.Position // until zero: open
	types       map[string]bool
	reverse     bool
	left        int // events still wanted; negative: all

	w       osier.Window
	scratch []byte
}

// look takes what a journal has in memory. What it takes is never changed.
func (r *journalReader) look(j *journal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.st, r.mem, r.stored = j.shown, r.mem[:0], 0
	if len(j.open.bytes) > 0 {
		r.mem, r.stored = append(r.mem, j.open), 1
	}
	r.mem = append(append(r.mem, j.draining...), j.pending...)
}

// ask sets what is to be read.
func (r *journalReader) ask(q *osier.JournalQuery, reverse bool, limit int) error {
	if err := q.Check(); err != nil {
		return err
	}
	r.from, r.until, r.reverse, r.left = q.From, q.Until, reverse, limit
	if limit == 0 {
		r.left = -1
	}
	if r.from.IsZero() {
		back := r.st.settings.Window
		if back == 0 {
			back = osier.DefaultJournalWindow
		}
		r.from = osier.PositionAt(r.now.Add(-back))
	}
	if age := r.st.settings.MaxAge; age > 0 {
		if least := osier.PositionAt(r.now.Add(-age)); r.from.Before(least) {
			r.from = least
		}
	}
	r.filter(q.Types)
	return nil
}

func (r *journalReader) filter(types []string) {
	r.types = nil
	for _, t := range types {
		if r.types == nil {
			r.types = make(map[string]bool, len(types))
		}
		r.types[t] = true
	}
}

// windows shows the range as runs of events, each valid until the next.
func (r *journalReader) windows(ctx context.Context, yield func(*osier.Window) bool) error {
	if r.left == 0 || !r.until.IsZero() && !r.from.Before(r.until) {
		return nil
	}
	if r.reverse {
		for i := len(r.mem) - 1; i >= 0; i-- {
			if more, err := r.show(&r.mem[i].stats, r.mem[i].bytes, yield); err != nil || !more {
				return err
			}
		}
		_, err := r.blocks(ctx, yield)
		return err
	}
	if more, err := r.blocks(ctx, yield); err != nil || !more {
		return err
	}
	for i := range r.mem {
		if more, err := r.show(&r.mem[i].stats, r.mem[i].bytes, yield); err != nil || !more {
			return err
		}
	}
	return nil
}

// end is where the reader's part of the store ends: where memory begins, or the
// range ends.
func (r *journalReader) end() osier.Position {
	end := r.until
	if len(r.mem) > 0 && (end.IsZero() || r.mem[0].first.Before(end)) {
		end = r.mem[0].first
	}
	return end
}

// blocks shows what the store has of the range.
func (r *journalReader) blocks(ctx context.Context, yield func(*osier.Window) bool) (more bool, err error) {
	if len(r.mem) > 0 && !r.from.Before(r.mem[0].first) {
		return true, nil // memory has all of it
	}
	lower, _ := eventsRange(r.db, r.st.num)
	it, err := r.src.NewIter(lower, eventsEnd(r.db, r.st.num, r.end()))
	if err != nil {
		return false, err
	}
	defer it.Close()
	step, ok := it.Next, false
	if r.reverse {
		step, ok = it.Prev, it.Last()
	} else if ok = it.SeekLT(eventKey(nil, r.db, r.st.num, r.from.Next())); !ok {
		ok = it.First()
	}
	for ; ok; ok = step() {
		b, err := decodeBlock(it.Key(), it.Value())
		if err != nil {
			return false, &osier.Error{Kind: osier.KindCorrupt, Op: "read journal", Err: err}
		}
		if b.last.Before(r.from) {
			if r.reverse {
				return true, nil
			}
			continue
		}
		if more, err := r.show(&b.stats, b.events, yield); err != nil || !more {
			return false, err
		}
		if err := ctx.Err(); err != nil {
			return false, &osier.Error{Kind: osier.KindCanceled, Op: "read journal", Err: err}
		}
	}
	return true, it.Error()
}

// show yields what is wanted of a run, as it lies there if that is all of it.
func (r *journalReader) show(s *stats, events []byte, yield func(*osier.Window) bool) (more bool, err error) {
	whole := !s.first.Before(r.from) && (r.until.IsZero() || s.last.Before(r.until)) && r.types == nil &&
		s.minExpiry > r.now.UnixMilli() && (r.left < 0 || int(s.count) <= r.left)
	if whole {
		r.w = osier.Window{First: s.first, Last: s.last, Count: int(s.count), Bytes: events}
	} else if err := r.pick(events); err != nil {
		return false, &osier.Error{Kind: osier.KindCorrupt, Op: "read journal", Err: err}
	}
	if r.w.Count == 0 {
		return true, nil
	}
	if r.left > 0 {
		r.left -= r.w.Count
	}
	return yield(&r.w) && r.left != 0, nil
}

// pick makes the window of the events that are wanted: a part of the run if they
// lie together, else copies.
func (r *journalReader) pick(events []byte) error {
	type part struct{ from, to int }
	var one part // while they lie together
	copied := false
	var ends []int // of each event, for a limit backwards
	r.w, r.scratch = osier.Window{}, r.scratch[:0]
	now := r.now.UnixMilli()
	for b := events; len(b) > 0; {
		if r.left > 0 && r.w.Count == r.left && !r.reverse {
			break
		}
		at := len(events) - len(b)
		e, rest, err := osier.CutEvent(b)
		if err != nil {
			return err
		}
		b = rest
		if !r.until.IsZero() && !e.Position.Before(r.until) {
			break
		}
		if e.Position.Before(r.from) || e.Expires != 0 && e.Expires <= now || r.types != nil && !r.types[string(e.Type)] {
			continue
		}
		to := len(events) - len(rest)
		switch {
		case copied:
			r.scratch = append(r.scratch, events[at:to]...)
		case r.w.Count == 0:
			one = part{at, to}
		case one.to == at:
			one.to = to
		default:
			copied = true
			r.scratch = append(append(r.scratch, events[one.from:one.to]...), events[at:to]...)
		}
		if r.w.Count == 0 {
			r.w.First = e.Position
		}
		r.w.Last = e.Position
		r.w.Count++
		if r.reverse && r.left > 0 {
			ends = append(ends, to-at)
		}
	}
	if r.w.Bytes = r.scratch; !copied {
		r.w.Bytes = events[one.from:one.to]
	}
	for i := 0; r.reverse && r.left > 0 && r.w.Count > r.left; i++ {
		r.w.Bytes = r.w.Bytes[ends[i]:]
		r.w.Count--
		e, _, err := osier.CutEvent(r.w.Bytes)
		if err != nil {
			return err
		}
		r.w.First = e.Position
	}
	return nil
}

// count counts a range. Where no event has an expiry of its own, and none of some
// types are asked for, ordinals tell.
func (r *journalReader) count(ctx context.Context, q *osier.JournalQuery) (uint64, error) {
	if err := r.ask(q, false, 0); err != nil {
		return 0, err
	}
	if !r.until.IsZero() && !r.from.Before(r.until) {
		return 0, nil
	}
	uneven := r.types != nil || !r.st.expiring.Before(r.from)
	for i := range r.mem {
		uneven = uneven || r.mem[i].minExpiry != never
	}
	if uneven {
		n := uint64(0)
		err := r.windows(ctx, func(w *osier.Window) bool { n += uint64(w.Count); return true })
		return n, err
	}
	until := r.until
	if until.IsZero() {
		until = osier.Position{Micros: never}
	}
	a, err := r.ordinal(r.from)
	if err != nil {
		return 0, err
	}
	b, err := r.ordinal(until)
	return b - min(a, b), err
}

// ordinal is how many events the journal ever had before p; before the first one
// kept it is that one's.
func (r *journalReader) ordinal(p osier.Position) (uint64, error) {
	n := r.st.appended
	if len(r.mem) > 0 {
		if r.stored > 0 {
			n -= uint64(r.mem[0].count)
		}
		if !p.Before(r.mem[0].first) {
			for i := range r.mem {
				k, err := before(&block{stats: r.mem[i].stats, events: r.mem[i].bytes}, p)
				if err != nil {
					return 0, err
				}
				n += k
			}
			return n, nil
		}
	}
	lower, _ := eventsRange(r.db, r.st.num)
	it, err := r.src.NewIter(lower, eventsEnd(r.db, r.st.num, r.end()))
	if err != nil {
		return 0, err
	}
	defer it.Close()
	ok := it.SeekLT(eventKey(nil, r.db, r.st.num, p))
	if !ok {
		ok = it.First()
	}
	if !ok {
		return n, it.Error()
	}
	b, err := decodeBlock(it.Key(), it.Value())
	if err != nil {
		return 0, &osier.Error{Kind: osier.KindCorrupt, Op: "count events", Err: err}
	}
	k, err := before(&b, p)
	return b.ordinal + k, err
}

// before counts a run's events before p.
func before(b *block, p osier.Position) (uint64, error) {
	if b.last.Before(p) {
		return uint64(b.count), nil
	}
	if !b.first.Before(p) {
		return 0, nil
	}
	gone, _, err := split(b, p)
	return uint64(gone.count), err
}

// watchJournal shows a journal's events as they come. It reads a stretch at a
// time and shows it without holding anything.
func (e *Engine) watchJournal(ctx context.Context, f *osier.Feed, yield func(osier.Change, error) bool) error {
	db, err := e.lookup("watch", f.DB)
	if err != nil {
		return err
	}
	name, ok := osier.JournalName(f.Collection)
	if !ok || f.Descending {
		return &osier.Error{Kind: osier.KindInvalid, Op: "watch", DB: f.DB, Collection: f.Collection,
			Err: errors.New("a journal's feed names the journal, and goes forward")}
	}
	if err := (&osier.JournalQuery{From: f.Journal.From, Types: f.Journal.Types}).Check(); err != nil {
		return err
	}
	w := &journalFeed{e: e, db: db, f: f, from: f.Journal.From, name: name, first: f.Journal.From}
	for {
		if err := ctx.Err(); err != nil {
			return &osier.Error{Kind: osier.KindCanceled, Op: "watch", DB: f.DB, Err: err}
		}
		done, wake, err := w.round(ctx, yield)
		if err != nil || done {
			return w.failed(err)
		}
		if wake == nil {
			continue
		}
		s := feed{e: e, db: db}
		if err := s.sleep(ctx, wake); err != nil {
			return err
		}
	}
}

// journalFeed is a journal's feed being shown.
type journalFeed struct {
	e     *Engine
	db    *database
	f     *osier.Feed
	name  string
	j     *journal
	from  osier.Position
	first osier.Position // where it was asked to begin
	shown int
	r     journalReader
	buf   []byte
	wins  []osier.Window
}

func (w *journalFeed) failed(err error) error {
	var own *osier.Error
	if errors.As(err, &own) {
		if own.DB == "" {
			c := *own
			c.DB, c.Collection = w.f.DB, w.f.Collection
			return &c
		}
		return own
	}
	return w.e.storeError("watch", err)
}

// round shows what there is. It returns what to wait for, nil if there may be
// more already.
func (w *journalFeed) round(ctx context.Context, yield func(osier.Change, error) bool) (done bool, wake <-chan struct{}, err error) {
	wake = w.db.wakeOn(&w.db.appliedWake)
	w.j = (*w.db.journalsSeen())[w.name]
	if w.j != nil {
		wake = w.j.wakeOn()
	}
	full, err := w.read(ctx)
	if err != nil {
		return false, nil, err
	}
	for i := range w.wins {
		win := &w.wins[i]
		if !yield(osier.Change{Window: win}, nil) {
			return true, nil, nil
		}
		if w.shown += win.Count; w.shown == w.f.Limit {
			return true, nil, nil
		}
	}
	if full {
		return false, nil, nil
	}
	if w.f.Mode == osier.FeedOnce || w.f.Mode == osier.FeedWait && w.shown > 0 {
		return true, nil, nil
	}
	return false, wake, nil
}

// read copies the next stretch. full says that it ended by its bound.
func (w *journalFeed) read(ctx context.Context) (full bool, err error) {
	w.wins, w.buf = w.wins[:0], w.buf[:0]
	r := &w.r
	if w.j == nil {
		if w.from.IsZero() {
			w.from = osier.Beginning() // whatever comes is from now on
		}
		return false, w.e.usable(w.db)
	}
	*r = journalReader{src: w.e.store, db: w.db.num, now: w.e.now(), mem: r.mem, scratch: r.scratch}
	r.look(w.j)
	w.j.mu.Lock()
	durable := w.j.durable
	w.j.mu.Unlock()
	last := r.st.last
	if n := len(r.mem); n > 0 {
		last = r.mem[n-1].last
	}
	if w.from.IsZero() {
		w.from = last.Next()
	}
	if w.first.Micros != 0 && !r.st.trimmed.Before(w.from) {
		return false, &osier.Error{Kind: osier.KindGap, Op: "watch", Err: errors.New(
			"events from " + w.from.String() + " on were dropped before they were shown, up to " + r.st.trimmed.String())}
	}
	until := last.Next()
	if w.e.journalLevel(osier.DurabilityDefault, &r.st.settings) == store.Sync && durable.Before(last) {
		until = durable.Next()
	}
	if !w.from.Before(until) {
		return false, nil
	}
	q := osier.JournalQuery{From: w.from, Until: until, Types: w.f.Journal.Types}
	limit := 0
	if w.f.Limit > 0 {
		limit = w.f.Limit - w.shown
	}
	if err := r.ask(&q, false, limit); err != nil {
		return false, err
	}
	err = r.windows(ctx, func(win *osier.Window) bool {
		at := len(w.buf)
		w.buf = append(w.buf, win.Bytes...)
		c := *win
		c.Bytes = w.buf[at:len(w.buf):len(w.buf)]
		w.wins = append(w.wins, c)
		full = len(w.buf) >= stretchBytes
		return !full
	})
	if err != nil {
		return false, err
	}
	w.first = osier.Position{Micros: 1} // from here on, a gap is one
	if full {
		w.from = w.wins[len(w.wins)-1].Last.Next()
	} else {
		w.from = until
	}
	return full, nil
}
