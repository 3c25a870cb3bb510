package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
)

// measured are an encoded run's stats, found by looking into it.
func measured(events []byte) (s stats, err error) {
	for b := events; len(b) > 0; {
		e, rest, err := osier.CutEvent(b)
		if err != nil {
			return s, err
		}
		if s.count > 0 && !s.last.Before(e.Position) {
			return s, fmt.Errorf("event %v comes after %v", e.Position, s.last)
		}
		s.note(&e)
		b = rest
	}
	return s, nil
}

// readBlock reads a block and checks it by itself.
func readBlock(key, value []byte) (block, error) {
	b, err := decodeBlock(key, value)
	if err != nil {
		return b, err
	}
	s, err := measured(b.events)
	if err == nil && s != b.stats {
		err = fmt.Errorf("its header does not fit its events: %+v, %+v", b.stats, s)
	}
	return b, err
}

// journals checks all journals of the database, and that no events lie about
// that belong to none.
func (c *checker) journals() error {
	states, err := readJournals(c.src, c.db.num)
	if err != nil {
		return err
	}
	known := map[uint32]bool{}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		st := states[name]
		known[st.num] = true
		c.out.Journals++
		c.name = osier.JournalResource(name)
		if err := c.journal(&st); err != nil {
			return err
		}
	}
	c.name = ""
	for _, space := range [...]byte{spaceEvents, spaceJournalSide} {
		lower := prefix(nil, c.db.num, 0, space)
		it, err := c.src.NewIter(lower, keys.PrefixEnd(lower))
		if err != nil {
			return err
		}
		for ok := it.First(); ok; {
			tail := it.Key()[len(lower):]
			if len(tail) < 4 {
				c.wrong(osier.ID{}, "a record of a journal without its number")
				ok = it.Next()
				continue
			}
			num := binary.BigEndian.Uint32(tail)
			if !known[num] {
				c.wrong(osier.ID{}, "records of a journal with number %d, which is not there", num)
			}
			ok = it.SeekGE(keys.PrefixEnd(it.Key()[:len(lower)+4]))
		}
		if err := it.Close(); err != nil {
			return err
		}
	}
	return nil
}

// journal checks a journal's blocks, one after the other, its counts and what is
// beside it.
func (c *checker) journal(st *journalState) error {
	var count, size, nextOrdinal, nextOffset uint64
	var last stats // of the block before
	openFound := st.tailFirst.IsZero()
	lower, _ := eventsRange(c.db.num, st.num)
	err := scanPrefix(c.src, lower, func(tail, value []byte) error {
		b, err := readBlock(append(slices.Clone(lower), tail...), value)
		if err != nil {
			c.wrong(osier.ID{}, "events from %v on: %w", b.first, err)
			return c.ctx.Err()
		}
		switch {
		case count > 0 && !last.last.Before(b.first):
			c.wrong(osier.ID{}, "events from %v on overlap those up to %v", b.first, last.last)
		case b.ordinal < nextOrdinal || b.offset < nextOffset,
			count > 0 && st.expiring.Before(last.first) && (b.ordinal != nextOrdinal || b.offset != nextOffset):
			c.wrong(osier.ID{}, "events from %v on are number %d at byte %d; want number %d at byte %d",
				b.first, b.ordinal, b.offset, nextOrdinal, nextOffset)
		case !st.trimmed.Before(b.first):
			c.wrong(osier.ID{}, "events from %v on were trimmed", b.first)
		}
		openFound = openFound || b.first == st.tailFirst
		count += uint64(b.count)
		size += uint64(len(b.events))
		c.out.Events += uint64(b.count)
		c.out.Bytes += uint64(len(value))
		last, nextOrdinal, nextOffset = b.stats, b.ordinal+uint64(b.count), b.offset+uint64(len(b.events))
		if b.maxExpiry != never && (st.tailFirst.IsZero() || b.first.Before(st.tailFirst)) {
			_, closer, err := c.src.Get(expiryKey(c.db.num, st.num, b.maxExpiry, b.first))
			if err != nil {
				c.wrong(osier.ID{}, "events from %v on are not listed by their expiry", b.first)
				return c.ctx.Err()
			}
			closer.Close()
		}
		return c.ctx.Err()
	})
	if err != nil {
		return err
	}
	switch {
	case !openFound:
		c.wrong(osier.ID{}, "the events from %v on, which belong to no complete block, are missing", st.tailFirst)
	case count != st.count || size != st.bytes:
		c.wrong(osier.ID{}, "counts are %d events, %d bytes; found %d, %d", st.count, st.bytes, count, size)
	case st.last.Before(last.last):
		c.wrong(osier.ID{}, "its last event should be at %v, found one at %v", st.last, last.last)
	case nextOrdinal > st.appended || nextOffset > st.written:
		c.wrong(osier.ID{}, "%d events of %d bytes were appended, found number %d up to byte %d", st.appended, st.written, nextOrdinal, nextOffset)
	}
	return c.keyRing(st)
}

// keyRing checks that the remembered keys and the order to forget them in agree.
func (c *checker) keyRing(st *journalState) error {
	n, listed := st.keysFirst, uint64(0)
	ring := sidePrefix(c.db.num, st.num, sideKeyRing)
	err := scanPrefix(c.src, ring, func(tail, value []byte) error {
		if len(tail) != 8 || binary.BigEndian.Uint64(tail) != n {
			c.wrong(osier.ID{}, "idempotency key number %d is missing", n)
			return errRecord
		}
		n++
		listed++
		v, closer, err := c.src.Get(sideKeyOf(c.db.num, st.num, string(value)))
		if err != nil {
			c.wrong(osier.ID{}, "idempotency key %q has no answer", value)
			return c.ctx.Err()
		}
		defer closer.Close()
		if _, err := decodeAnswer(v); err != nil {
			c.wrong(osier.ID{}, "idempotency key %q: %w", value, err)
		}
		return c.ctx.Err()
	})
	if errors.Is(err, errRecord) {
		return nil // reported
	}
	if err == nil && n != st.keysNext {
		c.wrong(osier.ID{}, "%d idempotency keys are remembered, found %d", st.keysNext-st.keysFirst, listed)
	}
	return err
}

// journals mends the journals of a database: what is whole stays, counts are
// derived anew.
func (m *mender) journals() error {
	states := map[uint32]namedJournal{}
	lower := prefix(nil, m.num, 0, spaceJournal)
	err := scanPrefix(m.src, lower, func(tail, value []byte) error {
		st, err := decodeJournalState(value)
		if err != nil {
			m.lost(Problem{DB: m.name, Collection: osier.JournalResource(string(tail)), Offset: -1, Err: errors.New("its settings are lost")})
			return m.w.delete(append(slices.Clone(lower), tail...))
		}
		states[st.num] = namedJournal{st, string(tail)}
		return nil
	})
	if err != nil {
		return err
	}
	for _, space := range [...]byte{spaceEvents, spaceJournalSide} {
		err := m.numbers(prefix(nil, m.num, 0, space), func(num uint32) error {
			if _, ok := states[num]; ok {
				return nil
			}
			if space == spaceJournalSide {
				lower, upper := sideRange(m.num, num)
				return m.w.deleteRange(lower, upper)
			}
			name := fmt.Sprintf("recovered-%d", num)
			m.lost(Problem{DB: m.name, Collection: osier.JournalResource(name), Offset: -1, Err: errors.New("the name of this journal is lost")})
			// No position up to the last command's time is given out again.
			states[num] = namedJournal{journalState{num: num, last: osier.Position{Micros: m.state.millis*1000 + 999}}, name}
			slower, supper := sideRange(m.num, num)
			return m.w.deleteRange(slower, supper)
		})
		if err != nil {
			return err
		}
	}
	for _, num := range slices.Sorted(maps.Keys(states)) {
		j := states[num]
		m.collName = osier.JournalResource(j.name)
		m.state.nextColl = max(m.state.nextColl, num)
		if err := m.journal(&j.journalState); err != nil {
			return err
		}
		if err := m.w.set(journalKey(m.num, j.name), j.append(nil)); err != nil {
			return err
		}
	}
	m.collName = ""
	return nil
}

type namedJournal struct {
	journalState
	name string
}

// journal mends a journal's blocks and derives its counts anew.
func (m *mender) journal(st *journalState) error {
	count, size := st.count, st.bytes
	st.count, st.bytes = 0, 0
	index := sidePrefix(m.num, st.num, sideExpiry)
	if err := m.w.deleteRange(index, keys.PrefixEnd(index)); err != nil {
		return err
	}
	open, openFrom := osier.Position{}, st.tailFirst
	lower, _ := eventsRange(m.num, st.num)
	err := scanPrefix(m.src, lower, func(tail, value []byte) error {
		key := append(slices.Clone(lower), tail...)
		b, err := readBlock(key, value)
		if err != nil || !st.trimmed.Before(b.first) {
			m.say(osier.ID{}, "the events from %v on are damaged", b.first)
			return errors.Join(m.w.delete(key), m.ctx.Err())
		}
		st.count += uint64(b.count)
		st.bytes += uint64(len(b.events))
		st.appended = max(st.appended, b.ordinal+uint64(b.count))
		st.written = max(st.written, b.offset+uint64(len(b.events)))
		if st.last.Before(b.last) {
			st.last = b.last
		}
		isOpen := !openFrom.IsZero() && !b.first.Before(openFrom)
		if isOpen && open.IsZero() {
			open = b.first
		}
		if !isOpen && b.maxExpiry != never {
			return errors.Join(m.w.set(expiryKey(m.num, st.num, b.maxExpiry, b.first), []byte{}), m.ctx.Err())
		}
		return m.ctx.Err()
	})
	st.tailFirst = open
	if st.count != count || st.bytes != size {
		if count > st.count {
			m.say(osier.ID{}, "%d of %d events are lost", count-st.count, count)
		}
		st.expiring = st.last // there may be holes: ordinals do not count any more
	}
	return errors.Join(err, m.mendKeys(st))
}

// mendKeys keeps the remembered idempotency keys if they are whole.
func (m *mender) mendKeys(st *journalState) error {
	n, whole := st.keysFirst, true
	err := scanPrefix(m.src, sidePrefix(m.num, st.num, sideKeyRing), func(tail, value []byte) error {
		whole = whole && len(tail) == 8 && binary.BigEndian.Uint64(tail) == n
		n++
		v, closer, err := m.src.Get(sideKeyOf(m.num, st.num, string(value)))
		if err != nil {
			whole = false
			return m.ctx.Err()
		}
		_, err = decodeAnswer(v)
		whole = whole && err == nil
		closer.Close()
		return m.ctx.Err()
	})
	if err != nil || whole && n == st.keysNext {
		return err
	}
	if st.keysNext > st.keysFirst {
		m.say(osier.ID{}, "idempotency keys are lost; all are forgotten")
	}
	st.keysFirst, st.keysNext = 0, 0
	for _, part := range [...]byte{sideKey, sideKeyRing} {
		lower := sidePrefix(m.num, st.num, part)
		if err := m.w.deleteRange(lower, keys.PrefixEnd(lower)); err != nil {
			return err
		}
	}
	return nil
}
