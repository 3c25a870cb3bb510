package pocket

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// groupQueue gathers transactions that will share one flush.
type groupQueue struct {
	mu   sync.Mutex // guards open and last
	open *group     // nil or taking in transactions
	last int        // size of the group before
}

// group is led by the first that joins it: that one waits for the write lock,
// then closes the group and commits it. The others wait for done.
type group struct {
	txs   []*txn
	bytes int
	done  chan struct{}

	followsMany bool // the group before had more than one
}

const maxGroupBytes = 16 << 20

// do commits a transaction and sets its seq or err.
func (s *Store) do(tx *txn) {
	if s.opts.Durability != Synced && s.mu.TryLock() {
		// Nobody to wait for and no flush to share. When the lock is taken,
		// forming a group is still cheaper than handing the lock from one
		// goroutine to the next for each transaction.
		s.stats.queued.Add(1)
		one := [1]*txn{tx}
		s.commit(one[:])
		s.mu.Unlock()
		return
	}
	s.stats.queued.Add(1)
	g, leads := s.group.join(tx)
	if !leads {
		<-g.done
		return
	}
	s.mu.Lock()
	if g.followsMany && s.opts.Durability == Synced {
		// Those that the last flush has freed are about to come again; a
		// flush for this one alone would make them all wait.
		runtime.Gosched()
	}
	s.group.close(g)
	s.commit(g.txs)
	s.mu.Unlock()
	close(g.done)
}

func (q *groupQueue) join(tx *txn) (g *group, leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil || q.open.bytes > maxGroupBytes {
		// The group will be about as large as the one before.
		q.open, leads = &group{done: make(chan struct{}), txs: make([]*txn, 0, q.last), followsMany: q.last > 1}, true
	}
	g = q.open
	g.txs = append(g.txs, tx)
	g.bytes += len(tx.body)
	return g, leads
}

func (q *groupQueue) close(g *group) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == g {
		q.open = nil
	}
	q.last = len(g.txs)
}

// commit judges, writes, flushes (when Synced), applies and publishes
// transactions, in this order: memory changes only when nothing can go wrong
// any more. Needs mu.
func (s *Store) commit(txs []*txn) {
	defer s.stats.queued.Add(-int64(len(txs)))
	if err := s.writable(); err != nil {
		failAll(txs, err)
		return
	}
	s.judge(txs)
	if err := s.write(txs); err != nil {
		failAll(txs, err)
		return
	}
	written := false
	for _, tx := range txs {
		written = written || tx.seq != 0
	}
	if !written {
		return
	}
	e := s.edit()
	for _, tx := range txs {
		if tx.seq != 0 {
			s.link(e, tx.ops, tx.seq)
			s.stats.transactions.Add(1)
			s.stats.saved.Add(int64(tx.n))
		}
	}
	s.publish(e.root, s.seq)
	s.watches.tell(s, txs)
	s.clean(e, len(txs))
	s.pokeAll()
}

// pokeAll wakes the background work that the commit has made necessary.
func (s *Store) pokeAll() {
	if s.opts.Durability == Delayed && !s.dirty {
		poke(s.wake.flush)
	}
	s.dirty = true
	if s.worthRewriting() {
		poke(s.wake.rewrite)
	}
}

func failAll(txs []*txn, err error) {
	for _, tx := range txs {
		if tx.err == nil {
			tx.err, tx.seq = err, 0
		}
	}
}

// pending is what the transactions before in the group make of a key.
type pending struct {
	version uint64
	value   encoded
	expiry  int64
}

// judge checks the conditions of all transactions, each in view of those
// before it, and gives sequences to those that will write.
func (s *Store) judge(txs []*txn) {
	var overlay map[string]pending
	if len(txs) > 1 && slices.ContainsFunc(txs, func(tx *txn) bool { return tx.conditional }) {
		overlay = make(map[string]pending)
	}
	for _, tx := range txs {
		if tx.conditional {
			if tx.err = s.judgeOne(tx, overlay, time.Now().UnixMilli()); tx.err != nil {
				continue
			}
		}
		if tx.n == 0 {
			continue
		}
		s.seq++
		tx.seq = s.seq
		if overlay == nil {
			continue
		}
		for i := range tx.ops {
			d := &tx.ops[i].draft
			if tx.ops[i].check {
				continue
			}
			p := pending{value: encoded{d.value, d.typeID}, expiry: d.expiry}
			if !d.deleted {
				p.version = tx.seq
			}
			overlay[d.key] = p
		}
	}
}

func (s *Store) judgeOne(tx *txn, overlay map[string]pending, now int64) error {
	for i := range tx.ops {
		o := &tx.ops[i]
		if o.cond == nil {
			continue
		}
		p, ok := overlay[o.draft.key]
		if !ok {
			if _, _, r := s.table.Load().find(s.arena.dir, o.draft.hash, o.draft.key); r.p != nil && !r.deleted() {
				p = pending{r.version(), encoded{r.value(), r.typeID()}, r.expiry()}
			}
		}
		// The expiry removes by version what has already expired; for all
		// others it is not there any more.
		if p.expiry != 0 && p.expiry <= now && !tx.expired {
			p = pending{}
		}
		if !s.holds(o.cond, p.version, p.value) {
			return &ConflictError{Key: o.draft.key, Version: Version(p.version)}
		}
	}
	return nil
}

// write appends the lines of all transactions that have a sequence.
func (s *Store) write(txs []*txn) error {
	out := s.out[:0]
	var large []byte // body of a transaction that is not worth another copy
	for _, tx := range txs {
		if tx.seq == 0 {
			continue
		}
		c := control{seq: tx.seq, n: tx.n}
		if s.synced > s.stated {
			c.synced, s.stated = s.synced, s.synced
		}
		out = appendControl(out, c, tx.body)
		if len(txs) == 1 && len(tx.body) > 64<<10 {
			large = tx.body
		} else {
			out = append(out, tx.body...)
		}
	}
	if len(out) == 0 {
		return nil
	}
	if s.out = out; cap(out) > 1<<20 {
		s.out = nil // one large transaction should not cost memory for ever
	}
	if err := s.writeBytes(out, large); err != nil {
		return err
	}
	s.plainBytes += int64(len(out) + len(large))
	s.stats.bytes.Add(int64(len(out) + len(large)))
	s.wrote = true
	return nil
}

// writeBytes appends to the file, and to the one that is about to replace it.
func (s *Store) writeBytes(out, large []byte) error {
	if err := s.tail.append(out, large); err != nil {
		if _, broken := errors.AsType[*brokenTailError](err); broken {
			return s.fail("append", err)
		}
		// Nothing is visible and the end is known: the sequences are lost,
		// the store is not.
		s.stated = 0
		return err
	}
	if s.shadow != nil {
		if err := s.shadow.append(out, large); err != nil {
			return s.fail("append to rewritten file", err)
		}
	}
	if s.opts.Durability != Synced {
		return nil
	}
	if err := s.tail.flush(); err != nil {
		return s.fail("flush", err)
	}
	s.stats.flushes.Add(1)
	if s.shadow != nil {
		if err := s.shadow.flush(); err != nil {
			return s.fail("flush rewritten file", err)
		}
	}
	s.synced = s.seq
	return nil
}

// edit begins a change of the tree. Needs mu, as do all below.
func (s *Store) edit() *editor {
	e := &s.editor
	e.owner++
	e.dir, e.root, e.recent = s.arena.dir, s.cur.Load().root, nil
	return e
}

// publish shows readers a new state.
func (s *Store) publish(root node, seq uint64) {
	s.arena.fresh = false
	s.settle()
	s.cur.Store(&state{seq: seq, root: root, dir: s.arena.dir, live: int(s.stats.live.Load())})
	s.editor.reclaim(s.snapshots.Load())
}

// ready must come between allocating records and storing their offsets where
// readers find them. It publishes new chunks first and asks for the number of
// snapshots second: a snapshot that the editor does not know of was then taken
// after the chunks became known, and finds every offset it may meet.
func (s *Store) ready(e *editor) {
	e.dir = s.arena.dir
	if s.arena.fresh {
		st := *s.cur.Load()
		st.dir = s.arena.dir
		s.cur.Store(&st)
		s.arena.fresh = false
	}
	e.epoch = s.snapshots.Load()
}

// placed is a record that has its place in the arena but is not linked yet.
type placed struct {
	off offset
	r   record
}

// linkStep is how many records get their places before they are linked: so few
// that the processor's cache still holds them.
const linkStep = 64

// link applies the operations of a transaction to table and tree. Readers do
// not see them before publish.
func (s *Store) link(e *editor, ops []op, seq uint64) {
	var bulk *bulkEdit
	if len(ops) >= 256 && len(ops)*4 >= s.cur.Load().live {
		bulk = &bulkEdit{seq: seq}
	}
	for len(ops) > linkStep {
		s.linkSome(e, ops[:linkStep], seq, bulk)
		ops = ops[linkStep:]
	}
	s.linkSome(e, ops, seq, bulk)
	if bulk != nil && (len(bulk.added) > 0 || bulk.removed) {
		e.root, e.recent = bulk.merge(e), nil
	}
}

// linkSome is link for at most linkStep operations.
func (s *Store) linkSome(e *editor, ops []op, seq uint64, bulk *bulkEdit) {
	places := s.places[:len(ops)]
	for i := range ops {
		if ops[i].check {
			continue
		}
		d := &ops[i].draft
		off, words := s.arena.alloc(d.words())
		d.version = seq
		// A record must be complete before the arena is walked again.
		d.put(words, 0)
		places[i] = placed{off, recordIn(words)}
	}
	s.ready(e)
	for i := range ops {
		if !ops[i].check {
			s.linkOne(e, &ops[i].draft, places[i], bulk)
		}
	}
	clear(places)
}

// bulkEdit is what a large transaction does to the tree's shape.
type bulkEdit struct {
	seq     uint64
	added   []entry
	removed bool
}

// linkOne links one record. In bulk, keys that come or go are left to merge.
func (s *Store) linkOne(e *editor, d *draft, p placed, bulk *bulkEdit) {
	t := s.table.Load()
	slot, oldOff, old := t.find(s.arena.dir, d.hash, d.key)
	existed := old.p != nil && !old.deleted()
	r := p.r
	r.p[1] |= uint64(oldOff)
	switch {
	case slot != nil:
		slot.Store(d.hash>>tagShift<<tagShift | uint64(p.off))
	case d.deleted:
		s.cache.freeze(r)
		return // nothing to delete; the words are garbage
	default:
		if t.full() {
			t = t.rebuilt(s.arena.dir, s.cur.Load().seq)
			t.insert(d.hash, p.off)
			s.table.Store(t)
		} else {
			t.insert(d.hash, p.off)
		}
	}
	if old.p != nil {
		s.cache.freeze(old)
	}
	switch {
	case existed && !d.deleted && old.hasLineLike(r):
		// The usual change, with nothing else to count.
		s.liveBytes += int64(r.valueLen() - old.valueLen())
		s.arena.liveWords += r.words() - old.words()
	default:
		if existed {
			s.retire(old)
		}
		if !d.deleted {
			s.arena.liveWords += r.words()
			s.count(r, 1)
			s.noteExpiry(r, p.off)
		}
	}
	s.linkInTree(e, d, p.off, old, oldOff, bulk)
}

// linkInTree gives the tree the new version of a record.
func (s *Store) linkInTree(e *editor, d *draft, off offset, old record, oldOff offset, bulk *bulkEdit) {
	existed := old.p != nil && !old.deleted()
	switch {
	case d.deleted && existed && bulk != nil:
		bulk.removed = true
	case d.deleted && existed:
		e.remove(d.key)
	case d.deleted:
	case existed && (bulk == nil || old.version() != bulk.seq):
		e.update(d.key, oldOff, off)
	case bulk != nil:
		// New, or saved before in the same transaction: the entry that the
		// earlier record may have is frozen.
		bulk.added = append(bulk.added, entry{head(d.key), off})
	default:
		e.insert(d.key, off)
	}
}

// retire takes a replaced record out of all accounts.
func (s *Store) retire(old record) {
	s.arena.liveWords -= old.words()
	s.count(old, -1)
}

// tally is what a transaction adds to the counters that others read.
type tally struct{ live, expiring int }

func (s *Store) count(r record, n int) {
	s.tally.live += n
	s.liveBytes += int64(n) * int64(s.lineLen(r))
	if r.flags()&flagHasExpiry != 0 {
		s.tally.expiring += n
	}
}

// lineLen returns the length of a record's line in a rewritten file.
func (s *Store) lineLen(r record) int {
	return recordLineLen(r.key(), s.types.name(r.typeID()), r.value(), r.expiry())
}

func (s *Store) settle() {
	s.stats.live.Add(int64(s.tally.live))
	s.stats.expiring.Add(int64(s.tally.expiring))
	s.tally = tally{}
}

// merge returns the editor's tree with all that was added and without what was
// removed. Removed records are frozen by now.
func (b *bulkEdit) merge(e *editor) node {
	isFrozen := func(off offset) bool {
		r, _ := e.dir.at(off)
		return r.frozen()
	}
	added := slices.DeleteFunc(b.added, func(en entry) bool { return isFrozen(en.off) })
	sortEntries(e.dir, added)
	if e.root == nil {
		return buildTree(e.dir, added)
	}
	compare := compareEntries(e.dir)
	all := make([]entry, 0, len(added))
	span := All()
	c := cursor{dir: e.dir, span: &span}
	for l, i, end := c.first(e.root); l != nil; l, i, end = c.next() {
		for ; i < end; i++ {
			en := entry{l.heads[i], l.at(i)}
			if isFrozen(en.off) {
				continue
			}
			for len(added) > 0 && compare(added[0], en) < 0 {
				all, added = append(all, added[0]), added[1:]
			}
			all = append(all, en)
		}
	}
	return buildTree(e.dir, append(all, added...))
}

// Cleaning: chunks are given up in the order in which they were filled. When
// more than half of the arena is garbage, every commit moves some records out
// of the oldest chunk, so that no commit has to wait for a large cleaning.
const (
	cleanSlack = 4 * chunkWords
	cleanStep  = 32 // records looked at for each transaction
)

func (s *Store) clean(e *editor, txs int) {
	a := s.arena
	if a.total <= 2*a.liveWords+cleanSlack {
		return
	}
	e.owner++
	e.recent = nil
	moved := false
	for range cleanStep * txs {
		c := a.dir.chunks[0]
		if s.cleanAt+headerWords > len(c) || c[s.cleanAt+1]>>48&flagUsed == 0 {
			if &c[0] == &a.last[0] {
				break // the chunk that is being filled
			}
			a.dropFirst()
			s.cleanAt = 0
			moved = true
			if a.total <= 2*a.liveWords+cleanSlack {
				break
			}
			continue
		}
		off := offset(a.dir.base)<<chunkShift + offset(s.cleanAt)
		r, _ := a.dir.at(off)
		s.cleanAt += r.words()
		moved = s.move(e, r, off) || moved
	}
	if moved {
		e.dir = a.dir
		s.publish(e.root, s.seq)
	}
}

// move copies a record to the end of the arena if it is still in force.
func (s *Store) move(e *editor, r record, off offset) bool {
	key := r.key()
	hash := s.hasher.hash(key)
	slot, at, _ := s.table.Load().find(s.arena.dir, hash, key)
	if slot == nil || at != off {
		return false
	}
	if r.deleted() {
		s.cache.freeze(r)
		slot.Store(slotGone)
		return false
	}
	d := draft{key: key, value: r.value(), version: r.version(), expiry: r.expiry(), hash: hash, typeID: r.typeID()}
	to, words := s.arena.alloc(r.words())
	d.put(words, 0)
	s.ready(e)
	slot.Store(hash>>tagShift<<tagShift | uint64(to))
	s.cache.freeze(r)
	e.update(key, off, to)
	if d.expiry != 0 {
		s.expiries.push(expiryEntry{d.expiry, to})
	}
	return true
}
