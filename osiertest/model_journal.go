package osiertest

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/osierdb/osier"
)

// journal is a journal as it is meant to be: a slice of events. One that is in a
// database's state is not changed any more.
type journal struct {
	settings osier.JournalSettings
	events   []osier.Event // their bytes are copies
	last     osier.Position
	trimmed  osier.Position
	appended uint64
	keys     map[string]osier.JournalResult
	order    []string // of keys, oldest first
}

func (j *journal) clone() *journal {
	c := *j
	c.events, c.keys, c.order = slices.Clone(j.events), maps.Clone(j.keys), slices.Clone(j.order)
	return &c
}

// journalOp carries out an operation on a journal.
func (x *change) journalOp(op *osier.Op) (osier.OpResult, error) {
	name, ok := osier.JournalName(op.Collection)
	if !ok || op.Journal == nil {
		return osier.OpResult{}, fail(osier.KindInvalid, "no journal named, or nothing to do")
	}
	if err := osier.CheckJournalName(name); err != nil {
		return osier.OpResult{}, err
	}
	j := x.db.journals[name]
	if j != nil {
		j = j.clone()
	}
	switch op.Kind {
	case osier.OpAppend:
		return x.appendEvents(op, name, j)
	case osier.OpJournal:
		if op.Journal.Settings == nil || op.Journal.Settings.Check() != nil {
			return osier.OpResult{}, fail(osier.KindInvalid, "no settings, or senseless ones")
		}
		if j == nil {
			j = &journal{keys: map[string]osier.JournalResult{}}
		}
		j.settings = *op.Journal.Settings
	case osier.OpDropJournal, osier.OpTrim:
		if j == nil {
			return osier.OpResult{}, fail(osier.KindNotFound, "no such journal")
		}
		if op.Journal.Before.Micros < 0 {
			return osier.OpResult{}, fail(osier.KindInvalid, "a position before 1970")
		}
		if op.Kind == osier.OpDropJournal {
			delete(x.db.journals, name)
			return osier.OpResult{}, nil
		}
		n := 0
		for n < len(j.events) && j.events[n].Position.Before(op.Journal.Before) {
			j.trimmed = j.events[n].Position
			n++
		}
		j.events = j.events[n:]
	}
	x.db.journals[name] = j
	return osier.OpResult{}, nil
}

func (x *change) appendEvents(op *osier.Op, name string, j *journal) (osier.OpResult, error) {
	o := op.Journal
	if j == nil {
		j = &journal{keys: map[string]osier.JournalResult{}}
	}
	if err := checkEvents(j, o); err != nil {
		return osier.OpResult{}, err
	}
	if res, ok := j.keys[o.Key]; ok && o.Key != "" {
		res.Repeated = true
		return osier.OpResult{Journal: &res}, nil
	}
	if o.Expect != nil && *o.Expect != j.last {
		return osier.OpResult{}, fail(osier.KindConflict, "the last event is at %v", j.last)
	}
	var res osier.JournalResult
	for i, e := range o.Events {
		e.Data = slices.Clone(e.Data)
		if e.Position = (osier.Position{Micros: x.micros}); !j.last.Before(e.Position) {
			e.Position = j.last.Next()
		}
		if !e.Expires.IsZero() {
			e.Expires = e.Expires.UTC().Truncate(time.Millisecond)
		}
		if i == 0 {
			res.First = e.Position
		}
		j.last = e.Position
		j.events = append(j.events, e)
		j.appended++
	}
	res.Last = j.last
	if o.Key != "" {
		j.keys[o.Key] = res
		j.order = append(j.order, o.Key)
		kept := int(j.settings.KeysKept)
		if kept == 0 {
			kept = osier.DefaultJournalKeys
		}
		for len(j.order) > kept {
			delete(j.keys, j.order[0])
			j.order = j.order[1:]
		}
	}
	x.db.journals[name] = j
	return osier.OpResult{Journal: &res}, nil
}

// checkEvents refuses what is wrong with an append by itself.
func checkEvents(j *journal, o *osier.JournalOp) error {
	most := int(j.settings.MaxEventBytes)
	if most == 0 {
		most = osier.DefaultMaxEventBytes
	}
	size := 0
	for i := range o.Events {
		e := &o.Events[i]
		if len(e.Type) > osier.MaxEventType || len(e.Type)+len(e.Data) > most {
			return fail(osier.KindTooLarge, "an event of %d bytes with a type of %d", len(e.Data), len(e.Type))
		}
		size += e.EncodedSize()
	}
	switch {
	case len(o.Encoded) > 0:
		return fail(osier.KindUnsupported, "encoded events")
	case len(o.Events) == 0:
		return fail(osier.KindInvalid, "no events")
	case len(o.Events) > osier.MaxAppendEvents || size > osier.MaxAppendBytes || len(o.Key) > osier.MaxJournalKeyBytes:
		return fail(osier.KindTooLarge, "too much at once")
	}
	return nil
}

// shown are the events that a query is about, oldest first.
func (j *journal) shown(q *osier.JournalQuery, now time.Time) (out []osier.Event) {
	from := q.From
	if from.IsZero() {
		back := j.settings.Window
		if back == 0 {
			back = osier.DefaultJournalWindow
		}
		from = osier.PositionAt(now.Add(-back))
	}
	for _, e := range j.events {
		old := j.settings.MaxAge > 0 && e.Position.Before(osier.PositionAt(now.Add(-j.settings.MaxAge)))
		ended := !e.Expires.IsZero() && e.Expires.UnixMilli() <= now.UnixMilli()
		outside := e.Position.Before(from) || !q.Until.IsZero() && !e.Position.Before(q.Until)
		if !old && !ended && !outside && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) {
			out = append(out, e)
		}
	}
	return out
}

func (j *journal) info(name string) osier.JournalInfo {
	info := osier.JournalInfo{Name: name, Settings: j.settings, Last: j.last, Trimmed: j.trimmed, Count: uint64(len(j.events)), Appended: j.appended}
	for i := range j.events {
		info.Bytes += uint64(j.events[i].EncodedSize())
	}
	return info
}

// journal answers the queries about journals.
func (db *database) journal(q *osier.Query, now time.Time) ([]osier.Row, error) {
	name, ok := osier.JournalName(q.Collection)
	if !ok || q.Journal == nil && q.Kind != osier.QueryJournalInfo {
		return nil, &osier.Error{Kind: osier.KindInvalid, Op: "read journal", DB: q.DB, Err: errors.New("no journal named, or nothing asked")}
	}
	j := db.journals[name]
	switch {
	case j == nil && q.Kind == osier.QueryJournalInfo:
		return nil, &osier.Error{Kind: osier.KindNotFound, Op: "info", DB: q.DB, Collection: q.Collection}
	case j == nil && q.Kind == osier.QueryJournalCount:
		return []osier.Row{{Journal: &osier.JournalRow{}}}, nil
	case j == nil:
		return nil, nil
	case q.Kind == osier.QueryJournalInfo:
		info := j.info(name)
		return []osier.Row{{Journal: &osier.JournalRow{Info: &info}}}, nil
	}
	if err := q.Journal.Check(); err != nil {
		return nil, err
	}
	events := j.shown(q.Journal, now)
	if q.Kind == osier.QueryJournalCount {
		return []osier.Row{{Journal: &osier.JournalRow{Count: uint64(len(events))}}}, nil
	}
	if q.Reverse {
		slices.Reverse(events)
	}
	if q.Limit > 0 && len(events) > q.Limit {
		events = events[:q.Limit]
	}
	rows := make([]osier.Row, len(events))
	for i := range events {
		rows[i].Journal = &osier.JournalRow{Window: *window(&events[i])}
	}
	return rows, nil
}

// window is an event as a run of one.
func window(e *osier.Event) *osier.Window {
	return &osier.Window{First: e.Position, Last: e.Position, Count: 1, Bytes: osier.AppendEvent(nil, e)}
}

// watchJournal shows a journal's events as they come.
func (m *Model) watchJournal(ctx context.Context, f *osier.Feed) iter.Seq2[osier.Change, error] {
	return func(yield func(osier.Change, error) bool) {
		from, begun, shown := f.Journal.From, f.Journal.From.Micros != 0, 0
		var uuid osier.UUID
		for {
			events, next, err := m.journalStep(ctx, f, &from, &begun, &uuid)
			if err != nil {
				yield(osier.Change{}, err)
				return
			}
			for i := range events {
				if !yield(osier.Change{Window: window(&events[i])}, nil) {
					return
				}
				if shown++; shown == f.Limit {
					return
				}
			}
			if f.Mode == osier.FeedOnce || f.Mode == osier.FeedWait && shown > 0 {
				return
			}
			select {
			case <-ctx.Done():
			case <-next:
			}
		}
	}
}

// journalStep returns the events from *from on, moves it on, and says what to
// wait for.
func (m *Model) journalStep(ctx context.Context, f *osier.Feed, from *osier.Position, begun *bool, uuid *osier.UUID) ([]osier.Event, <-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, canceled("watch", f.DB, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	db, err := m.open("watch", f.DB)
	if err != nil {
		return nil, nil, err
	}
	if *uuid == (osier.UUID{}) {
		*uuid = db.uuid
	}
	if err := (&osier.JournalQuery{From: f.Journal.From, Types: f.Journal.Types}).Check(); err != nil {
		return nil, nil, err
	}
	name, ok := osier.JournalName(f.Collection)
	switch {
	case *uuid != db.uuid:
		return nil, nil, &osier.Error{Kind: osier.KindNotFound, Op: "watch", DB: f.DB}
	case !ok || f.Descending:
		return nil, nil, &osier.Error{Kind: osier.KindInvalid, Op: "watch", DB: f.DB, Err: errors.New("no journal named, or backwards")}
	}
	j := db.journals[name]
	if j == nil {
		if from.IsZero() {
			*from = osier.Beginning()
		}
		return nil, db.changed, nil
	}
	if from.IsZero() {
		*from = j.last.Next()
	}
	if *begun && !j.trimmed.Before(*from) {
		return nil, nil, &osier.Error{Kind: osier.KindGap, Op: "watch", DB: f.DB, Collection: f.Collection}
	}
	events := j.shown(&osier.JournalQuery{From: *from, Types: f.Journal.Types}, m.clock())
	*begun = true
	if from.Before(j.last.Next()) {
		*from = j.last.Next()
	}
	return events, db.changed, nil
}
