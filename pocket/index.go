package pocket

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// slotEntry is a record on its way into the table.
type slotEntry struct {
	word uint64 // for the slot
	hash uint64
}

// tableParts is how many parts of the table are filled one after the other.
// Each is small enough for the processor's cache, in which a slot at random is
// found in a tenth of the time that the memory takes.
const (
	tableParts = 64
	partShift  = tagShift - 6
)

func (x slotEntry) part() int { return int(x.hash >> partShift & (tableParts - 1)) }

// slotRuns are the records of a segment by parts of the table, and within
// those in the order of the file.
type slotRuns struct {
	all  []slotEntry
	ends [tableParts]uint32
}

func (r *slotRuns) part(i int) []slotEntry {
	from := uint32(0)
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.all[from:r.ends[i]]
}

func runsOf(entries []slotEntry) slotRuns {
	r := slotRuns{all: make([]slotEntry, len(entries))}
	for _, x := range entries {
		r.ends[x.part()]++
	}
	at := uint32(0)
	for i, n := range r.ends {
		r.ends[i], at = at, at+n
	}
	for _, x := range entries {
		i := x.part()
		r.all[r.ends[i]] = x
		r.ends[i]++
	}
	return r
}

// index makes table and tree. The last line of a key wins.
func (b *builder) index() {
	s := b.s
	a := newArena()
	a.dir = newDirectory(b.base, b.chunks)
	n := 0
	for _, p := range b.segs {
		n += len(p.recs)
	}
	for _, c := range b.chunks {
		a.total += len(c)
	}
	s.arena, s.cleanAt = a, 0
	t := newTable(n)
	b.fillTable(t)
	s.table.Store(t)
	entries := b.sorted()
	s.publish(buildTree(a.dir, entries), s.seq)
	s.report.Records = len(entries)
}

// fillTable enters all records, in file order for each key. The workers share
// the parts of the table among them, so that none has to wait for another.
func (b *builder) fillTable(t *table) {
	dir := b.s.arena.dir
	var next, used atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			n := 0
			for {
				i := int(next.Add(1)) - 1
				if i >= tableParts {
					break
				}
				for _, p := range b.segs {
					for _, x := range p.slots.part(i) {
						n += t.load(dir, x)
					}
				}
			}
			used.Add(int64(n))
		})
	}
	wg.Wait()
	t.used = int(used.Load())
	for _, p := range b.segs {
		p.slots = slotRuns{}
	}
}

// load enters a record while others enter records of other keys. It marks the
// records that do not count any more as frozen, and returns how many slots it
// has taken.
func (t *table) load(dir *directory, x slotEntry) int {
	for i := t.slot(x.hash); ; {
		have := t.slots[i].Load()
		if have == slotEmpty {
			if !t.slots[i].CompareAndSwap(slotEmpty, x.word) {
				continue // look again at what came in between
			}
			return 1
		}
		if have>>tagShift == x.word>>tagShift && have != slotGone {
			old, _ := dir.at(offset(have & offsetMask))
			if r, _ := dir.at(offset(x.word & offsetMask)); old.key() == r.key() {
				old.setCacheIndex(0, frozen) // nobody reads yet
				t.slots[i].Store(x.word)
				return 0
			}
		}
		i = (i + 1) & t.mask
	}
}

// account is what the records in force of some segments come to.
type account struct {
	entries []entry // sorted by key
	words   int
	bytes   int64
	expiry  []expiryEntry
	tally
}

// sorted returns the records in force, sorted by key, and does their accounts:
// in parts at the same time, which are then merged.
func (b *builder) sorted() []entry {
	s := b.s
	n := 0
	for _, p := range b.segs {
		n += len(p.recs)
	}
	room := make([]entry, n)
	parts := make([]account, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for w := range parts {
		segs := b.segs[w*len(b.segs)/len(parts) : (w+1)*len(b.segs)/len(parts)]
		parts[w].entries = room[:0]
		for _, p := range segs {
			room = room[len(p.recs):]
		}
		wg.Go(func() {
			s.account(&parts[w], segs)
			sortEntries(s.arena.dir, parts[w].entries)
		})
	}
	wg.Wait()
	var all []entry
	for _, p := range parts {
		s.arena.liveWords += p.words
		s.liveBytes += p.bytes
		s.tally.live += p.live
		s.tally.expiring += p.expiring
		for _, e := range p.expiry {
			r, _ := s.arena.dir.at(e.off)
			s.noteExpiry(r, e.off)
		}
		all = mergeEntries(s.arena.dir, all, p.entries)
	}
	return all
}

// account adds the records in force of segments to a, in file order.
func (s *Store) account(a *account, segs []*parsed) {
	for _, p := range segs {
		for _, x := range p.recs {
			r, _ := s.arena.dir.at(x.off)
			if r.frozen() || r.deleted() {
				continue
			}
			a.entries = append(a.entries, x)
			a.words += r.words()
			a.live++
			a.bytes += int64(s.lineLen(r))
			if r.flags()&flagHasExpiry != 0 {
				a.expiring++
				a.expiry = append(a.expiry, expiryEntry{r.expiry(), x.off})
			}
		}
		p.recs = nil
	}
}

// mergeEntries merges two sorted lists into one.
func mergeEntries(dir *directory, a, b []entry) []entry {
	if len(a) == 0 {
		return b
	}
	compare := compareEntries(dir)
	if len(b) == 0 || compare(a[len(a)-1], b[0]) < 0 {
		return append(a, b...) // in place, when b lies behind a
	}
	out := make([]entry, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].head < b[0].head || a[0].head == b[0].head && compare(a[0], b[0]) < 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}
