// Package topic carries messages from publishers to the subscribers of one
// process. It stores nothing but the message that is kept for a topic, in
// memory. A publisher never waits: each subscriber has a bounded buffer, and
// chooses what happens when it is full.
package topic

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/osierdb/osier"
)

// Limits of a Hub. Zero ones are the defaults.
type Limits struct {
	Subscriptions int // open at once; 0: 1,000,000 patterns
	Retained      int // topics that keep a message; 0: 100,000
	RetainedBytes int // of those messages; 0: 64 MiB
}

func (l Limits) withDefaults() Limits {
	if l.Subscriptions <= 0 {
		l.Subscriptions = 1_000_000
	}
	if l.Retained <= 0 {
		l.Retained = 100_000
	}
	if l.RetainedBytes <= 0 {
		l.RetainedBytes = 64 << 20
	}
	return l
}

// Hub is where the topics of one database meet. All methods may be called
// concurrently.
type Hub struct {
	db     string
	limits Limits

	mu       sync.RWMutex // guards all below
	root     node
	patterns int // of all subscriptions
	subs     map[*Sub]struct{}
	ended    error // not nil: the hub takes no more

	keepMu   sync.Mutex // guards the two below; taken after mu
	kept     map[string]*osier.Message
	keptSize int

	turn atomic.Uint64 // moves on with each message that a group gets
}

// New returns a hub; db names the database in errors.
func New(db string, l Limits) *Hub {
	return &Hub{db: db, limits: l.withDefaults(), subs: map[*Sub]struct{}{}, kept: map[string]*osier.Message{}}
}

// node is a place in the tree of patterns, a level a token.
type node struct {
	next map[string]*node // by the token; "*" stands for any
	here []*Sub           // whose patterns end here
	rest []*Sub           // whose patterns end here with ">"
}

// Publish hands a message to all whose patterns match, and, with retain, keeps
// it. The message must not be changed afterwards. Cost: a step a token of its
// topic and "*" in patterns, however many patterns there are, and a hand-over a
// subscriber.
func (h *Hub) Publish(m *osier.Message, retain bool) error {
	if len(m.Data) > osier.MaxMessageBytes {
		return h.fail(osier.KindTooLarge, m.Topic, fmt.Errorf("a message of %d bytes, at most %d are allowed", len(m.Data), osier.MaxMessageBytes))
	}
	if err := osier.CheckTopic(m.Topic); err != nil {
		return err
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.ended != nil {
		return h.ended
	}
	if retain {
		if err := h.keep(m); err != nil || m.Data == nil {
			return err
		}
	}
	var buf [32]*Sub
	found := h.root.match(m.Topic, buf[:0])
	var groups []*Sub
	var seen map[*Sub]bool // of those with several patterns
	for _, s := range found {
		if s.several {
			if seen[s] {
				continue
			}
			if seen == nil {
				seen = map[*Sub]bool{}
			}
			seen[s] = true
		}
		if s.group != "" {
			groups = append(groups, s)
		} else {
			s.take(m)
		}
	}
	if len(groups) > 0 {
		h.share(m, groups)
	}
	return nil
}

// share hands a message to one member of each group.
func (h *Hub) share(m *osier.Message, members []*Sub) {
	slices.SortStableFunc(members, func(a, b *Sub) int { return cmp.Compare(a.group, b.group) })
	turn := h.turn.Add(1)
	for len(members) > 0 {
		n := 1
		for n < len(members) && members[n].group == members[0].group {
			n++
		}
		offer(m, members[:n], int(turn%uint64(n)))
		members = members[n:]
	}
}

func (h *Hub) fail(kind osier.Kind, topic string, err error) error {
	return &osier.Error{Kind: kind, Op: "use topic", DB: h.db, Collection: osier.TopicResource(topic), Err: err}
}

// keep keeps a message, or forgets the one that is kept. mu is held.
func (h *Hub) keep(m *osier.Message) error {
	h.keepMu.Lock()
	defer h.keepMu.Unlock()
	size := h.keptSize + len(m.Data)
	old := h.kept[m.Topic]
	if old != nil {
		size -= len(old.Data)
	}
	if m.Data == nil {
		delete(h.kept, m.Topic)
		h.keptSize = size
		return nil
	}
	if old == nil && len(h.kept) >= h.limits.Retained || size > h.limits.RetainedBytes {
		return h.fail(osier.KindTooLarge, m.Topic, errors.New("there is no room to keep one more message"))
	}
	c := *m
	c.Retained = true
	h.kept[m.Topic], h.keptSize = &c, size
	return nil
}

// match adds the subscribers whose patterns match a topic.
func (n *node) match(topic string, found []*Sub) []*Sub {
	if n == nil {
		return found
	}
	found = append(found, n.rest...)
	token, rest, more := strings.Cut(topic, ".")
	for _, next := range [...]*node{n.next[token], n.next["*"]} {
		switch {
		case next == nil:
		case more:
			found = next.match(rest, found)
		default:
			found = append(found, next.here...)
		}
	}
	return found
}

// Matches reports whether a pattern matches a topic.
func Matches(pattern, topic string) bool {
	for {
		p, prest, pmore := strings.Cut(pattern, ".")
		t, trest, tmore := strings.Cut(topic, ".")
		if p == ">" && !pmore {
			return true
		}
		if p != "*" && p != t || pmore != tmore {
			return false
		}
		if !pmore {
			return true
		}
		pattern, topic = prest, trest
	}
}

// Subscribe begins to receive. The subscription must be closed.
func (h *Hub) Subscribe(f *osier.TopicFeed) (*Sub, error) {
	if len(f.Patterns) == 0 || len(f.Patterns) > osier.MaxTopicPatterns {
		return nil, h.fail(osier.KindInvalid, "", fmt.Errorf("%d patterns; want 1 to %d", len(f.Patterns), osier.MaxTopicPatterns))
	}
	for _, p := range f.Patterns {
		if err := osier.CheckPattern(p); err != nil {
			return nil, err
		}
	}
	if f.Buffer < 0 || f.Buffer > osier.MaxTopicBuffer || f.BufferBytes < 0 || f.WhenSlow > osier.Disconnect || len(f.Group) > osier.MaxTopicBytes {
		return nil, h.fail(osier.KindInvalid, f.Patterns[0], errors.New("the buffer, the group's name or what to do on overflow is out of range"))
	}
	s := &Sub{h: h, patterns: slices.Compact(slices.Sorted(slices.Values(f.Patterns))), group: f.Group, overflow: f.WhenSlow,
		most: cmp.Or(f.Buffer, osier.DefaultTopicBuffer), mostBytes: cmp.Or(f.BufferBytes, osier.DefaultTopicBytes), wake: make(chan struct{}, 1)}
	s.several = len(s.patterns) > 1
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return nil, h.ended
	}
	if h.patterns+len(s.patterns) > h.limits.Subscriptions {
		return nil, h.fail(osier.KindTooLarge, f.Patterns[0], errors.New("there are too many subscriptions"))
	}
	if f.Retained {
		s.first = h.keptFor(s.patterns)
	}
	h.patterns += len(s.patterns)
	h.subs[s] = struct{}{}
	for _, p := range s.patterns {
		h.root.add(p, s)
	}
	return s, nil
}

// keptFor returns the kept messages that patterns match, by topic.
func (h *Hub) keptFor(patterns []string) (out []*osier.Message) {
	h.keepMu.Lock()
	defer h.keepMu.Unlock()
	if len(patterns) == 1 && !strings.ContainsAny(patterns[0], "*>") {
		if m := h.kept[patterns[0]]; m != nil {
			out = append(out, m)
		}
		return out
	}
	for _, topic := range slices.Sorted(maps.Keys(h.kept)) {
		if slices.ContainsFunc(patterns, func(p string) bool { return Matches(p, topic) }) {
			out = append(out, h.kept[topic])
		}
	}
	return out
}

// add puts s where the pattern ends; the nodes on the way are made.
func (n *node) add(pattern string, s *Sub) {
	for {
		token, rest, more := strings.Cut(pattern, ".")
		if token == ">" && !more {
			n.rest = append(n.rest, s)
			return
		}
		next := n.next[token]
		if next == nil {
			if n.next == nil {
				n.next = map[string]*node{}
			}
			next = &node{}
			n.next[token] = next
		}
		if !more {
			next.here = append(next.here, s)
			return
		}
		n, pattern = next, rest
	}
}

// remove takes s away and reports whether n is empty then.
func (n *node) remove(pattern string, s *Sub) (empty bool) {
	token, rest, more := strings.Cut(pattern, ".")
	is := func(o *Sub) bool { return o == s }
	if token == ">" && !more {
		n.rest = slices.DeleteFunc(n.rest, is)
	} else if next := n.next[token]; next != nil {
		gone := false
		if more {
			gone = next.remove(rest, s)
		} else {
			next.here = slices.DeleteFunc(next.here, is)
			gone = next.empty()
		}
		if gone {
			delete(n.next, token)
		}
	}
	return n.empty()
}

func (n *node) empty() bool { return len(n.next) == 0 && len(n.here) == 0 && len(n.rest) == 0 }

// drop ends a subscription in the tree.
func (h *Hub) drop(s *Sub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.subs[s]; !ok {
		return
	}
	delete(h.subs, s)
	h.patterns -= len(s.patterns)
	for _, p := range s.patterns {
		h.root.remove(p, s)
	}
}

// End ends the hub and all subscriptions: they show what they have and then err.
func (h *Hub) End(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return
	}
	h.ended = err
	for s := range h.subs {
		s.end(err)
	}
	clear(h.subs)
	h.root, h.patterns = node{}, 0
}

// Subscriptions is the number of open ones.
func (h *Hub) Subscriptions() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.subs)
}
