package pocket

import (
	"sync/atomic"
	"time"
)

// counters are counted without a lock.
type counters struct {
	transactions, saved, flushes, bytes   atomic.Int64
	live, expiring, queued                atomic.Int64
	rewrites, rewritePause, rewriteFailed atomic.Int64
	bytesRewritten                        atomic.Int64
	loadNanos                             atomic.Int64
}

// Stats are figures of a store since it was opened, unless they say otherwise.
type Stats struct {
	Transactions int64 // committed
	Changes      int64 // saved and deleted records in them
	Flushes      int64 // waits for the disk by commits, Sync and Delayed
	BytesWritten int64 // by transactions
	Queued       int64 // transactions that wait or are under way, now

	Version     Version // sequence of the last visible transaction
	Records     int64   // stored now
	Expiring    int64   // of them, those that will expire
	DeadRecords int64   // record lines in the file that count no more, about
	LiveBytes   int64   // of the stored records' lines
	DeadBytes   int64   // of all other lines; what a rewrite would save
	FileBytes   int64   // size of the file without space allocated ahead

	MemoryBytes int64 // of the records in memory, garbage included
	Decoded     int64 // decoded values kept

	LoadTime         time.Duration // that Open took
	Rewrites         int64
	BytesRewritten   int64
	FailedRewrites   int64
	LastRewritePause time.Duration // for which the last rewrite held up commits
}

// Stats returns the figures. It takes the write lock for a moment.
func (s *Store) Stats() Stats {
	c := &s.stats
	st := s.cur.Load()
	out := Stats{
		Transactions: c.transactions.Load(), Changes: c.saved.Load(), Flushes: c.flushes.Load(),
		BytesWritten: c.bytes.Load(), Queued: c.queued.Load(),
		Version: Version(st.seq), Records: int64(st.live), Expiring: c.expiring.Load(),
		Decoded:  int64(s.cache.size()),
		LoadTime: time.Duration(c.loadNanos.Load()),
		Rewrites: c.rewrites.Load(), BytesRewritten: c.bytesRewritten.Load(), FailedRewrites: c.rewriteFailed.Load(),
		LastRewritePause: time.Duration(c.rewritePause.Load()),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.MemoryBytes = int64(s.arena.total) * wordBytes
	out.LiveBytes = s.liveBytes
	out.DeadBytes = max(s.plainBytes-s.liveBytes, 0)
	out.DeadRecords = max(s.lines+c.saved.Load()-c.live.Load(), 0)
	out.FileBytes = s.follow.at
	if s.tail != nil {
		out.FileBytes = s.tail.end()
	}
	return out
}
