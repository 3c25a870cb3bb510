package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/store"
)

// journalEdit is a journal being changed by a command. What it writes is only
// planned until the command is flushed.
type journalEdit struct {
	name    string
	db      uint32
	j       *journal // nil: made by this command
	st      journalState
	tail    tail
	plan    []planned
	touched bool // an operation of this command was here before
	shape   bool // made, dropped, or its settings changed
	dropped bool
}

// planned is a write; with an end it deletes a range, without a value a key.
type planned struct{ key, end, value []byte }

// isJournalOp tells operations on journals from others.
func isJournalOp(k osier.OpKind) bool { return k >= osier.OpJournal && k <= osier.OpTrim }

// micros is when a command was sealed. One from a log that knows milliseconds
// only has those.
func micros(s *osier.Seal) int64 { return max(s.Micros, s.Time.UnixMicro(), 1) }

// journalOp carries out an operation on a journal.
func (r *run) journalOp(op *osier.Op) (osier.OpResult, error) {
	name, ok := osier.JournalName(op.Collection)
	if !ok || op.Journal == nil {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "change journal", "the operation does not name a journal, or does not say what to do")
	}
	if err := osier.CheckJournalName(name); err != nil {
		return osier.OpResult{}, err
	}
	ed := r.journal(name)
	switch op.Kind {
	case osier.OpAppend:
		return r.appendEvents(op, name, ed)
	case osier.OpJournal:
		if op.Journal.Settings == nil {
			return osier.OpResult{}, r.fail(op, osier.KindInvalid, "set up journal", "no settings given")
		}
		if err := op.Journal.Settings.Check(); err != nil {
			return osier.OpResult{}, r.fail(op, osier.KindInvalid, "set up journal", err.(*osier.Error).Err.Error())
		}
		if ed == nil {
			ed = r.makeJournal(name)
		}
		ed.shape = ed.shape || ed.st.settings != *op.Journal.Settings
		ed.st.settings, ed.touched = *op.Journal.Settings, true
		return osier.OpResult{}, nil
	}
	if ed == nil {
		return osier.OpResult{}, r.fail(op, osier.KindNotFound, "change journal", "")
	}
	if op.Journal.Before.Micros < 0 {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "trim", "a position before 1970")
	}
	if ed.touched {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "change journal", "a trim or drop must come first of what a command does to a journal")
	}
	ed.touched = true
	if op.Kind == osier.OpDropJournal {
		ed.dropped, ed.shape = true, true
		return osier.OpResult{}, nil
	}
	err := ed.trim(r.a.b, op.Journal.Before)
	if err == nil && op.Journal.ExpiredMillis > 0 {
		err = ed.expire(r.a.b, op.Journal.ExpiredMillis)
	}
	return osier.OpResult{}, err
}

// journal returns the working copy of a journal, nil if there is none.
func (r *run) journal(name string) *journalEdit {
	for i := len(r.journals) - 1; i >= 0; i-- {
		if ed := r.journals[i]; ed.name == name {
			if ed.dropped {
				return nil
			}
			return ed
		}
	}
	j := r.db.journals[name]
	if j == nil {
		return nil
	}
	ed := &journalEdit{name: name, db: r.db.num, j: j, st: j.st, tail: j.tail}
	r.journals = append(r.journals, ed)
	return ed
}

func (r *run) makeJournal(name string) *journalEdit {
	r.state.nextColl++ // numbers are shared with collections
	ed := &journalEdit{name: name, db: r.db.num, st: journalState{num: r.state.nextColl}, shape: true}
	r.journals = append(r.journals, ed)
	return ed
}

// checkAppend refuses what is wrong with an append by itself. known is the
// journal's settings.
func checkAppend(set *osier.JournalSettings, events []osier.Event) (size int, kind osier.Kind, text string) {
	if len(events) == 0 {
		return 0, osier.KindInvalid, "no events given"
	}
	if len(events) > osier.MaxAppendEvents {
		return 0, osier.KindTooLarge, fmt.Sprintf("%d events, at most %d are allowed at once", len(events), osier.MaxAppendEvents)
	}
	most := int(set.MaxEventBytes)
	if most == 0 {
		most = osier.DefaultMaxEventBytes
	}
	for i := range events {
		e := &events[i]
		if len(e.Data)+len(e.Type) > most {
			return 0, osier.KindTooLarge, fmt.Sprintf("an event of %d bytes, the journal allows %d", len(e.Data)+len(e.Type), most)
		}
		if len(e.Type) > osier.MaxEventType {
			return 0, osier.KindTooLarge, fmt.Sprintf("a type of %d bytes, at most %d are allowed", len(e.Type), osier.MaxEventType)
		}
		size += e.EncodedSize()
	}
	if size > osier.MaxAppendBytes {
		return 0, osier.KindTooLarge, fmt.Sprintf("events of %d bytes, at most %d are allowed at once", size, osier.MaxAppendBytes)
	}
	return size, 0, ""
}

// appendEvents carries out an append. ed is nil if there is no journal yet.
func (r *run) appendEvents(op *osier.Op, name string, ed *journalEdit) (osier.OpResult, error) {
	o, st := op.Journal, journalState{}
	if ed != nil {
		st = ed.st
	}
	fail := func(kind osier.Kind, text string) (osier.OpResult, error) {
		return osier.OpResult{}, r.fail(op, kind, "append", text)
	}
	if len(o.Encoded) == 0 {
		if _, kind, text := checkAppend(&st.settings, o.Events); text != "" {
			return fail(kind, text)
		}
	}
	if len(o.Key) > osier.MaxJournalKeyBytes {
		return fail(osier.KindTooLarge, fmt.Sprintf("a key of %d bytes, at most %d are allowed", len(o.Key), osier.MaxJournalKeyBytes))
	}
	if o.Key != "" && ed != nil {
		res, err := ed.repeated(r.a.b, o.Key)
		if res != nil || err != nil {
			return osier.OpResult{Journal: res}, err
		}
	}
	if o.Expect != nil && *o.Expect != st.last {
		return fail(osier.KindConflict, fmt.Sprintf("the journal's last event is at %v, not at %v", st.last, *o.Expect))
	}
	var err error
	if len(o.Encoded) > 0 {
		if err = checkEncoded(o, st.last, micros(&r.cmd.Sealed)); err != nil {
			return fail(osier.KindInvalid, err.Error())
		}
	}
	if ed == nil {
		ed = r.makeJournal(name)
	}
	ed.touched = true
	res := &osier.JournalResult{}
	if len(o.Encoded) > 0 {
		e, _, _ := osier.CutEvent(o.Encoded[0]) // checked above
		res.First = e.Position
		for _, b := range o.Encoded {
			ed.add(b)
		}
	} else {
		res.First = next(st.last, micros(&r.cmd.Sealed))
		ed.encode(r.a, o.Events, res.First)
	}
	res.Last = ed.st.last
	if o.Key != "" {
		err = ed.remember(r.a.b, o.Key, res)
	}
	return osier.OpResult{Journal: res}, err
}

// checkEncoded wants events with positions after last, up to a moment.
func checkEncoded(o *osier.JournalOp, last osier.Position, micros int64) error {
	n := 0
	for _, b := range o.Encoded {
		n++
		for first := true; len(b) > 0 || first; first = false {
			e, rest, err := osier.CutEvent(b)
			if err != nil {
				return err
			}
			if !last.Before(e.Position) || e.Position.Micros > micros {
				return fmt.Errorf("an event with position %v after %v, sealed at %d", e.Position, last, micros)
			}
			last, b = e.Position, rest
		}
	}
	if n == 0 || len(o.Events) > 0 {
		return errors.New("events or encoded ones, not both")
	}
	return nil
}

// encode adds events with consecutive positions from first on.
func (ed *journalEdit) encode(a *applier, events []osier.Event, first osier.Position) {
	buf := a.buf[:0]
	at := first
	for i := range events {
		e := events[i]
		e.Position = at
		buf = osier.AppendEvent(buf, &e)
		at = at.Next()
		if len(buf) >= blockBytes {
			ed.add(buf)
			buf = buf[:0]
		}
	}
	if len(buf) > 0 {
		ed.add(buf)
	}
	if cap(buf) <= 4*blockBytes {
		a.buf = buf
	}
}

// add takes encoded events that are in order after the journal's last, and plans
// the blocks that they complete.
func (ed *journalEdit) add(b []byte) {
	t := &ed.tail
	for len(b) > 0 {
		n := 0
		for n < len(b) && len(t.bytes)+n < blockBytes {
			e, rest, _ := osier.CutEvent(b[n:]) // encoded here, or checked before
			t.note(&e)
			t.fresh.note(&e)
			if e.Expires != 0 {
				ed.st.expiring = e.Position
			}
			n = len(b) - len(rest)
			ed.st.count++
			ed.st.appended++
		}
		ed.st.last = t.last
		ed.st.bytes += uint64(n)
		ed.st.written += uint64(n)
		if t.buf == nil {
			t.buf = make([]byte, blockMost, blockMost+min(max(n, len(b)), blockBytes+blockBytes/8))
		}
		t.buf = append(t.buf, b[:n]...)
		t.bytes = t.buf[blockMost:]
		if len(t.bytes) >= blockBytes {
			ed.complete()
		}
		b = b[n:]
	}
	ed.st.tailFirst = t.first
	if t.count == 0 {
		ed.st.tailFirst = osier.Position{}
	}
}

// complete plans the open block as one record, in place of those of its appends.
func (ed *journalEdit) complete() {
	t := &ed.tail
	if t.stored > 0 {
		ed.deleteRange(eventKey(nil, ed.db, ed.st.num, t.first), eventKey(nil, ed.db, ed.st.num, t.last.Next()))
	}
	b := block{stats: t.stats, events: t.bytes}
	ed.place(&b)
	ed.set(eventKey(nil, ed.db, ed.st.num, t.first), sealBlock(t.buf, &b))
	if t.maxExpiry != never {
		ed.set(expiryKey(ed.db, ed.st.num, t.maxExpiry, t.first), nil)
	}
	ed.tail = tail{}
}

// place says where in the journal a block of its last events is.
func (ed *journalEdit) place(b *block) {
	b.ordinal, b.offset = ed.st.appended-uint64(b.count), ed.st.written-uint64(len(b.events))
}

func (ed *journalEdit) set(key, value []byte) {
	if value == nil {
		value = []byte{}
	}
	ed.plan = append(ed.plan, planned{key: key, value: value})
}

func (ed *journalEdit) delete(key []byte) { ed.plan = append(ed.plan, planned{key: key}) }

func (ed *journalEdit) deleteRange(lower, upper []byte) {
	ed.plan = append(ed.plan, planned{key: lower, end: upper})
}

// repeated finds the answer that an append with the key got before.
func (ed *journalEdit) repeated(src source, key string) (*osier.JournalResult, error) {
	side := sideKeyOf(ed.db, ed.st.num, key)
	for i := range ed.plan {
		if bytes.Equal(ed.plan[i].key, side) && ed.plan[i].value != nil {
			return decodeAnswer(ed.plan[i].value)
		}
	}
	b, closer, err := src.Get(side)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return decodeAnswer(b)
}

func decodeAnswer(b []byte) (*osier.JournalResult, error) {
	r := reader{b: b}
	res := &osier.JournalResult{First: r.position(), Last: r.position(), Repeated: true}
	if r.bad || len(r.b) > 0 {
		return nil, fmt.Errorf("idempotency key: %w", errRecord)
	}
	return res, nil
}

// forgetAtOnce bounds how many keys an append forgets, when the journal's limit
// was lowered.
const forgetAtOnce = 16

// remember plans the answer under the key, and forgets the oldest ones.
func (ed *journalEdit) remember(src source, key string, res *osier.JournalResult) error {
	ed.set(sideKeyOf(ed.db, ed.st.num, key), res.Last.Append(res.First.Append(nil)))
	ed.set(keyRingKey(ed.db, ed.st.num, ed.st.keysNext), []byte(key))
	ed.st.keysNext++
	kept := uint64(ed.st.settings.KeysKept)
	if kept == 0 {
		kept = osier.DefaultJournalKeys
	}
	for range forgetAtOnce {
		if ed.st.keysNext-ed.st.keysFirst <= kept {
			break
		}
		ring := keyRingKey(ed.db, ed.st.num, ed.st.keysFirst)
		ed.st.keysFirst++
		b, closer, err := src.Get(ring)
		if errors.Is(err, store.ErrNotFound) {
			for i := range ed.plan { // remembered by this command
				if bytes.Equal(ed.plan[i].key, ring) && ed.plan[i].value != nil {
					ed.delete(sideKeyOf(ed.db, ed.st.num, string(ed.plan[i].value)))
					break
				}
			}
			ed.delete(ring)
			continue
		}
		if err != nil {
			return fmt.Errorf("forget idempotency key: %w", err)
		}
		ed.delete(sideKeyOf(ed.db, ed.st.num, string(b)))
		ed.delete(ring)
		closer.Close()
	}
	return nil
}

// flushJournals writes what the command's journals planned, and the events that
// no complete block has taken.
func (r *run) flushJournals() error {
	b := r.a.b
	for _, ed := range r.journals {
		if ed.dropped {
			if err := dropJournal(b, r.db.num, ed.name, ed.st.num); err != nil {
				return err
			}
			continue
		}
		if t := &ed.tail; t.stored < len(t.bytes) {
			part := block{stats: t.fresh, events: t.bytes[t.stored:]}
			ed.place(&part)
			ed.set(eventKey(nil, ed.db, ed.st.num, t.fresh.first), appendBlock(make([]byte, 0, blockMost+len(part.events)), &part))
			t.stored, t.fresh = len(t.bytes), stats{}
		}
		for i := range ed.plan {
			var err error
			switch p := &ed.plan[i]; {
			case p.end != nil:
				err = b.DeleteRange(p.key, p.end)
			case p.value == nil:
				err = b.Delete(p.key)
			default:
				err = b.Set(p.key, p.value)
			}
			if err != nil {
				return err
			}
		}
		ed.plan = nil
	}
	return nil
}

func dropJournal(b *store.Batch, db uint32, name string, num uint32) error {
	lower, upper := eventsRange(db, num)
	slower, supper := sideRange(db, num)
	return errors.Join(b.Delete(journalKey(db, name)), b.DeleteRange(lower, upper), b.DeleteRange(slower, supper))
}

// adoptJournals makes what the command did to journals the database's.
func (r *run) adoptJournals() {
	for _, ed := range r.journals {
		if !ed.touched {
			continue
		}
		j := ed.j
		switch {
		case ed.dropped:
			if j == nil {
				continue
			}
			j.gone = true
			if r.db.journals[ed.name] == j {
				delete(r.db.journals, ed.name)
			}
		case j == nil:
			j = newJournal(r.db, ed.name, ed.st)
			if r.db.journals == nil {
				r.db.journals = map[string]*journal{}
			}
			r.db.journals[ed.name] = j
			fallthrough
		default:
			j.st, j.tail = ed.st, ed.tail
		}
		r.a.touchJournal(j)
		if ed.shape && !slices.Contains(r.a.journalShape, r.db) {
			r.a.journalShape = append(r.a.journalShape, r.db)
		}
	}
}

// journalChanged judges what a transaction saw of a journal.
func (r *run) journalChanged(name string, rd *osier.Read) bool {
	var last osier.Position
	if j := r.db.journals[name]; j != nil {
		last = j.st.last
	}
	return string(last.Append(nil)) != rd.Start
}

// trim plans that all events before p go.
func (ed *journalEdit) trim(src source, p osier.Position) error {
	if ed.st.last.Before(p) {
		p = ed.st.last.Next()
	}
	lower, upper := eventsRange(ed.db, ed.st.num)
	it, err := src.NewIter(lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	if !it.SeekLT(eventKey(nil, ed.db, ed.st.num, p)) {
		return it.Error() // nothing is older
	}
	edge, err := decodeBlock(it.Key(), it.Value())
	if err != nil {
		return err
	}
	gone, kept, err := split(&edge, p)
	if err != nil {
		return err
	}
	if gone.count == 0 {
		return errRecord // the key says that it is older
	}
	kept.events = slices.Clone(kept.events)
	count, size, err := ed.before(it, &edge)
	if err != nil {
		return err
	}
	ed.st.count -= count + uint64(gone.count)
	ed.st.bytes -= size + uint64(len(edge.events)-len(kept.events))
	ed.st.trimmed = gone.last
	if !ed.st.tailFirst.IsZero() && ed.st.tailFirst.Before(p) {
		return ed.trimTail(p, lower, upper)
	}
	ed.deleteRange(lower, eventKey(nil, ed.db, ed.st.num, p))
	if kept.count == 0 {
		return nil
	}
	if edge.maxExpiry != never {
		ed.delete(expiryKey(ed.db, ed.st.num, edge.maxExpiry, edge.first))
	}
	if kept.maxExpiry != never {
		ed.set(expiryKey(ed.db, ed.st.num, kept.maxExpiry, kept.first), nil)
	}
	ed.set(eventKey(nil, ed.db, ed.st.num, kept.first), appendBlock(nil, &kept))
	return nil
}

// before counts the events in blocks before edge. The iterator stands on edge.
func (ed *journalEdit) before(it *store.Iter, edge *block) (count, size uint64, err error) {
	even := false
	for ok := it.First(); ok; ok = it.Next() {
		b, err := decodeBlock(it.Key(), it.Value())
		if err != nil {
			return 0, 0, err
		}
		if even = ed.st.expiring.Before(b.first); even || !b.first.Before(edge.first) {
			if even {
				// No holes from here on: ordinals tell the rest.
				count, size = count+edge.ordinal-b.ordinal, size+edge.offset-b.offset
			}
			return count, size, nil
		}
		count, size = count+uint64(b.count), size+uint64(len(b.events))
	}
	return count, size, it.Error()
}

// split divides a block's events into those before p and the others, whose place
// in the journal is right.
func split(b *block, p osier.Position) (gone stats, kept block, err error) {
	kept.ordinal, kept.offset = b.ordinal, b.offset
	rest := b.events
	for len(rest) > 0 {
		e, after, err := osier.CutEvent(rest)
		if err != nil {
			return gone, kept, err
		}
		if !e.Position.Before(p) {
			break
		}
		gone.note(&e)
		rest = after
	}
	kept.ordinal += uint64(gone.count)
	kept.offset += uint64(len(b.events) - len(rest))
	kept.events = rest
	for b := rest; len(b) > 0; {
		e, after, err := osier.CutEvent(b)
		if err != nil {
			return gone, kept, err
		}
		kept.note(&e)
		b = after
	}
	return gone, kept, nil
}

// trimTail plans that what is left of the open block is one record.
func (ed *journalEdit) trimTail(p osier.Position, lower, upper []byte) error {
	_, kept, err := split(&block{events: ed.tail.bytes}, p)
	if err != nil {
		return err
	}
	ed.deleteRange(lower, upper)
	ed.tail = tail{}
	if ed.st.tailFirst = kept.first; kept.count > 0 {
		ed.tail.keep(stretch{kept.stats, kept.events})
		ed.tail.stored, ed.tail.fresh = 0, kept.stats // to be written as one
	}
	return nil
}

// expireAtOnce bounds the blocks that one command drops by their expiry.
const expireAtOnce = 1024

// expire plans that blocks go whose events have all ended by themselves.
func (ed *journalEdit) expire(src source, millis int64) error {
	lower := sidePrefix(ed.db, ed.st.num, sideExpiry)
	upper := binary.BigEndian.AppendUint64(slices.Clone(lower), uint64(millis)+1)
	it, err := src.NewIter(lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	n := 0
	for ok := it.First(); ok && n < expireAtOnce; ok = it.Next() {
		n++
		tail := it.Key()[len(lower):]
		if len(tail) != 8+osier.PositionBytes {
			return fmt.Errorf("expiry of a block: %w", errRecord)
		}
		ed.delete(slices.Clone(it.Key()))
		first, err := osier.DecodePosition(tail[8:])
		if err != nil {
			return fmt.Errorf("expiry of a block: %w", errRecord)
		}
		if first.Before(ed.st.trimmed.Next()) {
			continue // went with a trim, perhaps this one
		}
		if err := ed.dropBlock(src, first, millis); err != nil {
			return err
		}
	}
	return it.Error()
}

// dropBlock plans that a block goes, if it is there and has expired.
func (ed *journalEdit) dropBlock(src source, first osier.Position, millis int64) error {
	key := eventKey(nil, ed.db, ed.st.num, first)
	v, closer, err := src.Get(key)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	b, err := decodeBlock(key, v)
	if err != nil {
		return err
	}
	if b.maxExpiry <= millis {
		ed.delete(key)
		ed.st.count -= uint64(b.count)
		ed.st.bytes -= uint64(len(b.events))
	}
	return nil
}

// eventsEnd bounds the keys of a journal's blocks up to a position.
func eventsEnd(db, num uint32, until osier.Position) []byte {
	if until.IsZero() {
		return keys.PrefixEnd(eventsPrefix(nil, db, num))
	}
	return eventKey(nil, db, num, until)
}
