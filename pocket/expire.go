package pocket

import (
	"container/heap"
	"context"
	"errors"
	"time"
)

// Records that have expired are hidden at once, by every reader's own clock.
// The writer deletes them soon after with ordinary transactions, so that
// watchers hear of it and the space comes back.

type expiryEntry struct {
	at  int64 // Unix milliseconds
	off offset
}

// expiryHeap has the earliest entry first. Entries of records that were
// replaced stay in it until their time or the next pruning.
type expiryHeap []expiryEntry

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h expiryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push and Pop are for container/heap.
func (h *expiryHeap) Push(x any) { *h = append(*h, x.(expiryEntry)) }

// Pop removes the last entry.
func (h *expiryHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (h *expiryHeap) push(e expiryEntry) { heap.Push(h, e) }

// noteExpiry remembers when a new record ends. Needs mu.
func (s *Store) noteExpiry(r record, off offset) {
	at := r.expiry()
	if at == 0 || s.opts.ReadOnly {
		return
	}
	s.expiries.push(expiryEntry{at, off})
	if len(s.expiries) > 2*(int(s.stats.expiring.Load())+s.tally.expiring)+1024 {
		s.pruneExpiries()
	}
	if s.expiries[0].off == off {
		poke(s.wake.expire)
	}
}

// pruneExpiries drops the entries of records that are not in force any more.
func (s *Store) pruneExpiries() {
	kept := s.expiries[:0]
	for _, e := range s.expiries {
		if r, ok := s.arena.dir.at(e.off); ok && !r.frozen() {
			kept = append(kept, e)
		}
	}
	s.expiries = kept
	heap.Init(&s.expiries)
}

// expireBatch is how many records one transaction of the expiry deletes.
const expireBatch = 256

// takeExpired returns conditional deletions for what is over at now, and how
// long to wait when there are none: negative for until something is saved.
func (s *Store) takeExpired(now int64) (changes []Change, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.expiries) > 0 && len(changes) < expireBatch {
		e := s.expiries[0]
		if e.at > now {
			if len(changes) > 0 {
				return changes, 0
			}
			return nil, time.Duration(e.at-now) * time.Millisecond
		}
		heap.Pop(&s.expiries)
		r, ok := s.arena.dir.at(e.off)
		if !ok || r.frozen() {
			continue
		}
		changes = append(changes, Change{Key: cloneKey(r), If: At(Version(r.version()))})
	}
	return changes, -1
}

func (s *Store) expireLoop(ctx context.Context) {
	var changes []Change
	for {
		var wait time.Duration
		if len(changes) == 0 {
			changes, wait = s.takeExpired(time.Now().UnixMilli())
		}
		if len(changes) > 0 {
			err := s.expire(changes)
			if err == nil {
				changes = nil
				continue
			}
			s.opts.OnError(err)
			if errors.Is(err, ErrFailed) {
				return
			}
			wait = time.Second // the disk may be full for now
		}
		var after <-chan time.Time
		t := time.NewTimer(max(wait, 0))
		if wait >= 0 {
			after = t.C
		}
		select {
		case <-ctx.Done():
		case <-s.wake.expire:
		case <-after:
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// expire deletes in one transaction what is still there of changes.
func (s *Store) expire(changes []Change) error {
	for len(changes) > 0 {
		tx, err := s.prepare(changes)
		if err != nil {
			return err
		}
		tx.expired = true
		s.do(tx)
		err = tx.err
		s.release(tx)
		conflict, ok := errors.AsType[*ConflictError](err)
		if !ok {
			return err
		}
		// This one was saved again in the meantime.
		kept := changes[:0]
		for _, c := range changes {
			if c.Key != conflict.Key {
				kept = append(kept, c)
			}
		}
		changes = kept
	}
	return nil
}
