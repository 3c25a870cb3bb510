package topic

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/osierdb/osier"
)

// takeOver is how many messages a reader takes out of its buffer at once. They
// are beyond the buffer's bound.
const takeOver = 64

// Sub is a subscription. Next is for one goroutine at a time; Close may be called
// from any.
type Sub struct {
	h         *Hub
	patterns  []string
	several   bool
	group     string
	overflow  osier.SlowPolicy
	most      int
	mostBytes int
	first     []*osier.Message // kept ones, shown first
	batch     []*osier.Message // taken out of ring; the reader's own
	space     [takeOver]*osier.Message
	wake      chan struct{} // has an element when a waiting reader should look

	mu      sync.Mutex       // guards all below
	ring    []*osier.Message // its length is a power of two
	head, n int              // where the ring begins, and how many it holds
	bytes   int              // of their data
	missed  uint64           // just before the ring's first message
	err     error            // why nothing more comes
	waiting bool             // the reader sleeps, or is about to
}

// take puts a message into the buffer, or does what is to be done when that is
// full.
func (s *Sub) take(m *osier.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	for s.full(m) {
		if s.overflow == osier.Disconnect {
			s.stop(s.h.fail(osier.KindGap, m.Topic, errors.New("the subscriber was too slow; it asked to be disconnected then")))
			return
		}
		if s.missed++; s.n == 0 {
			return // larger than the whole buffer
		}
		s.pop()
	}
	s.push(m)
	if s.waiting {
		s.rouse()
	}
}

// full reports whether a message finds no room. The caller holds mu.
func (s *Sub) full(m *osier.Message) bool {
	return s.n == s.most || s.bytes+len(m.Data) > s.mostBytes
}

func (s *Sub) push(m *osier.Message) {
	if s.n == len(s.ring) {
		ring := make([]*osier.Message, max(8, 2*len(s.ring)))
		for i := range s.n {
			ring[i] = s.ring[(s.head+i)&(len(s.ring)-1)]
		}
		s.ring, s.head = ring, 0
	}
	s.ring[(s.head+s.n)&(len(s.ring)-1)] = m
	s.n++
	s.bytes += len(m.Data)
}

func (s *Sub) pop() *osier.Message {
	m := s.ring[s.head]
	s.ring[s.head] = nil
	s.head = (s.head + 1) & (len(s.ring) - 1)
	s.n--
	s.bytes -= len(m.Data)
	return m
}

// rouse wakes the reader. The caller holds mu.
func (s *Sub) rouse() {
	s.waiting = false
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// stop ends the subscription once what it has is shown. The caller holds mu.
func (s *Sub) stop(err error) {
	if s.err == nil {
		s.err = err
	}
	s.rouse()
}

func (s *Sub) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(err)
}

// offer gives a message to one of a group: the one whose turn it is, unless it
// has no room and another has.
func offer(m *osier.Message, members []*Sub, turn int) {
	for i := range members {
		s := members[(turn+i)%len(members)]
		s.mu.Lock()
		room := s.err == nil && !s.full(m)
		if room {
			s.push(m)
			if s.waiting {
				s.rouse()
			}
		}
		s.mu.Unlock()
		if room {
			return
		}
	}
	members[turn].take(m)
}

// Next waits for a message; see osier.MessageStream.
func (s *Sub) Next(ctx context.Context) (*osier.Message, error) {
	if len(s.first) > 0 {
		m := s.first[0]
		s.first = s.first[1:]
		return m, nil
	}
	for yielded := false; len(s.batch) == 0; {
		more, err := s.refill(yielded)
		if err != nil {
			return nil, err
		}
		if more {
			break
		}
		if !yielded {
			// Most often more comes while others run: then nobody need be woken.
			yielded = true
			runtime.Gosched()
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, &osier.Error{Kind: osier.KindCanceled, Op: "receive", DB: s.h.db, Err: ctx.Err()}
		}
	}
	m := s.batch[0]
	s.batch = s.batch[1:]
	return m, nil
}

// refill takes messages out of the buffer. wait says that the reader sleeps next
// if there are none.
func (s *Sub) refill(wait bool) (more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		s.waiting = wait
		return false, s.err
	}
	s.waiting = false
	s.batch = s.space[:0]
	missed := s.missed
	s.missed = 0
	for s.n > 0 && len(s.batch) < takeOver {
		s.batch = append(s.batch, s.pop())
	}
	if missed > 0 {
		m := *s.batch[0]
		m.Missed = missed
		s.batch[0] = &m
	}
	return true, nil
}

// Close ends the subscription; a Next that waits ends with KindClosed. It is
// idempotent.
func (s *Sub) Close() {
	s.h.drop(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ring)
	s.n, s.bytes = 0, 0
	s.stop(s.h.fail(osier.KindClosed, s.patterns[0], errors.New("the subscription was closed")))
}
