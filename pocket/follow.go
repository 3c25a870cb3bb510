package pocket

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"time"
)

// follower reads what another process appends. Guarded by the write lock.
type follower struct {
	f  file
	at int64 // up to which the file is read
}

func (fo *follower) close() error {
	if fo.f == nil {
		return nil
	}
	return fo.f.Close()
}

func (s *Store) openFollower() error {
	f, err := s.fs.open(s.path, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("pocket: open: %w", err)
	}
	end, err := s.load(f)
	if err != nil {
		f.Close()
		return err
	}
	// An unfinished end is what the writer is about to write.
	s.report.Cut = nil
	s.follow = follower{f: f, at: end}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	if s.opts.Poll > 0 {
		s.work.Go(func() { s.followLoop(ctx) })
	}
	return nil
}

func (s *Store) followLoop(ctx context.Context) {
	t := time.NewTicker(s.opts.Poll)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := s.Refresh()
		if err != nil && !failing {
			s.opts.OnError(err)
		}
		failing = err != nil // told once, not fifty times a second
	}
}

// Refresh brings a read-only store up to what the writer has acknowledged
// before the call. It is called by itself every Options.Poll.
func (s *Store) Refresh() error {
	if !s.opts.ReadOnly {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return ErrClosed
	}
	if err := s.refresh(); err != nil {
		return fmt.Errorf("pocket: follow: %w", err)
	}
	return nil
}

// refresh needs mu.
func (s *Store) refresh() error {
	same, err := s.fs.sameFile(s.follow.f, s.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it is being replaced, or gone: the last state stays
	}
	if err != nil {
		return err
	}
	if !same {
		return s.reload()
	}
	for {
		size, err := s.follow.f.Size()
		if err != nil {
			return err
		}
		if size < s.follow.at {
			return s.reload()
		}
		n, err := s.readOn(size)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

// followBytes is how much is read at a time, unless a transaction is larger.
const followBytes = 1 << 20

// readOn applies whole transactions of the file's next piece, and returns how
// many bytes they had.
func (s *Store) readOn(size int64) (int, error) {
	buf, err := s.readPiece(size, followBytes)
	if err != nil || len(buf) == 0 {
		return 0, err
	}
	if c, ok := firstControl(buf); ok && c.length+controlMax > len(buf) {
		if s.follow.at+int64(c.length) > size {
			return 0, nil // not written yet
		}
		if buf, err = s.readPiece(size, int64(c.length)+controlMax); err != nil {
			return 0, err
		}
	}
	used := 0
	for used < len(buf) {
		n, tx := s.nextFrame(buf[used:])
		if n == 0 {
			break
		}
		used += n
		if tx != nil {
			s.applyForeign(tx)
		}
	}
	s.follow.at += int64(used)
	s.plainBytes += int64(used)
	return used, nil
}

func firstControl(buf []byte) (control, bool) {
	line, _, whole := cutLine(buf)
	c, ok := parseControl(line)
	return c, ok && whole
}

// readPiece returns what is there of the next n bytes, up to the first NUL.
func (s *Store) readPiece(size, n int64) ([]byte, error) {
	buf := make([]byte, min(n, size-s.follow.at))
	got, err := s.follow.f.ReadAt(buf, s.follow.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	buf = buf[:got]
	if i := strings.IndexByte(viewString(buf), 0); i >= 0 {
		buf = buf[:i]
	}
	return buf, nil
}

// nextFrame takes a whole transaction or a line without one. n is 0 when the
// rest is not complete yet; tx is nil for lines that change nothing.
func (s *Store) nextFrame(buf []byte) (n int, tx *txn) {
	line, rest, whole := cutLine(buf)
	if !whole {
		return 0, nil
	}
	n = len(buf) - len(rest)
	if !isControl(line) {
		var l parsedLine
		if parseLine(line, &l) != nil {
			return n, nil
		}
		s.seq++
		tx = &txn{seq: s.seq}
		s.addForeign(tx, &l)
		return n, tx
	}
	c, ok := parseControl(line)
	if !ok {
		return n, nil
	}
	if c.length > len(rest) {
		return 0, nil
	}
	body := rest[:c.length]
	t := castagnoli()
	if crc32.Update(crc32.Checksum(line[:c.signed], t), t, body) != c.crc {
		return 0, nil
	}
	n += c.length
	if c.n == 0 {
		return n, nil
	}
	if s.seq++; c.seq > s.seq {
		s.seq = c.seq
	}
	tx = &txn{seq: s.seq}
	for len(body) > 0 {
		line, body, _ = cutLine(body)
		var l parsedLine
		if parseLine(line, &l) == nil {
			s.addForeign(tx, &l)
		}
	}
	return n, tx
}

func (s *Store) addForeign(tx *txn, l *parsedLine) {
	d := draft{key: l.key, value: viewString(l.value), expiry: l.expiry, deleted: l.value == nil,
		hash: s.hasher.hash(l.key)}
	if l.typeName != nil {
		id, err := s.types.intern(l.typeName)
		if err != nil {
			return // more than 65,535 types: the record cannot be told from others
		}
		d.typeID = id
	}
	tx.n++
	tx.ops = append(tx.ops, op{draft: d})
}

func (s *Store) applyForeign(tx *txn) {
	e := s.edit()
	s.link(e, tx.ops, tx.seq)
	s.publish(e.root, tx.seq)
	s.stats.transactions.Add(1)
	s.stats.saved.Add(int64(tx.n))
	txs := []*txn{tx}
	s.watches.tell(s, txs)
	s.clean(e, len(tx.ops))
}

// reload reads the file that has taken the place of the followed one.
func (s *Store) reload() error {
	f, err := s.fs.open(s.path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	ns := newStore(s.path, s.opts, s.types)
	ns.hasher = s.hasher
	// Offsets of the old and the new arena must never be the same: readers
	// look at table and state one after the other.
	ns.arena.dir = newDirectory(s.arena.dir.base+uint64(len(s.arena.dir.chunks)), nil)
	end, err := ns.load(f)
	if err != nil {
		f.Close()
		return err
	}
	old := s.cur.Load()
	tx := s.difference(old, ns)
	s.writer = ns.writer
	s.follow.f.Close()
	s.follow = follower{f: f, at: end}
	s.stats.live.Store(ns.stats.live.Load())
	s.stats.expiring.Store(ns.stats.expiring.Load())
	s.cur.Store(ns.cur.Load())
	s.table.Store(ns.table.Load())
	for _, r := range Scan[Record](&Snapshot{s, old}, All()) {
		s.cache.freeze(r.r)
	}
	s.watches.tell(s, []*txn{tx})
	return nil
}

// difference returns what changed between a state and another store's, for
// watchers.
func (s *Store) difference(old *state, ns *Store) *txn {
	tx := &txn{seq: ns.seq}
	if s.watches.n.Load() == 0 {
		return tx
	}
	before := &Snapshot{s, old}
	for key, r := range Scan[Record](ns, All()) {
		was, ok := before.lookup(key)
		if ok && was.version() == r.r.version() && was.value() == r.JSON() && was.typeID() == r.r.typeID() {
			continue
		}
		tx.ops = append(tx.ops, op{draft: draft{key: key, value: r.JSON(), version: r.r.version(),
			expiry: r.r.expiry(), hash: s.hasher.hash(key), typeID: r.r.typeID()}})
	}
	for key := range Scan[Record](before, All()) {
		if _, ok := ns.lookup(key); !ok {
			tx.ops = append(tx.ops, op{draft: draft{key: key, deleted: true}})
		}
	}
	return tx
}
