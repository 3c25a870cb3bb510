package osiertest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/osierdb/osier"
)

// subscriber is an open subscription of the model: a slice of messages.
type subscriber struct {
	db     string
	f      *osier.TopicFeed
	queue  []osier.Message
	missed uint64
	err    error         // why nothing more comes
	wake   chan struct{} // closed when something has come
}

// matches is the plain reading of a pattern.
func matches(pattern, topic string) bool {
	p, t := strings.Split(pattern, "."), strings.Split(topic, ".")
	for i := range p {
		if p[i] == ">" && i == len(p)-1 {
			return len(t) > i
		}
		if i >= len(t) || p[i] != "*" && p[i] != t[i] {
			return false
		}
	}
	return len(p) == len(t)
}

func (s *subscriber) wants(topic string) bool {
	return slices.ContainsFunc(s.f.Patterns, func(p string) bool { return matches(p, topic) })
}

func (s *subscriber) bounds() (messages, bytes int) {
	messages, bytes = s.f.Buffer, s.f.BufferBytes
	if messages == 0 {
		messages = osier.DefaultTopicBuffer
	}
	if bytes == 0 {
		bytes = osier.DefaultTopicBytes
	}
	return messages, bytes
}

// take puts a message into the queue.
func (s *subscriber) take(m osier.Message) {
	messages, bytes := s.bounds()
	s.queue = append(s.queue, m)
	size := 0
	for i := range s.queue {
		size += len(s.queue[i].Data)
	}
	for len(s.queue) > messages || size > bytes {
		if s.f.WhenSlow == osier.Disconnect {
			s.queue = s.queue[:len(s.queue)-1]
			s.end(&osier.Error{Kind: osier.KindGap, Op: "receive", DB: s.db})
			return
		}
		size -= len(s.queue[0].Data)
		s.queue = s.queue[1:]
		s.missed++
	}
	s.rouse()
}

func (s *subscriber) rouse() {
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *subscriber) end(err error) {
	if s.err == nil {
		s.err = err
	}
	s.rouse()
}

// publishOp takes a message into a command.
func (x *change) publishOp(op *osier.Op) (osier.OpResult, error) {
	name, ok := osier.TopicName(op.Collection)
	switch {
	case !ok || op.Topic == nil:
		return osier.OpResult{}, fail(osier.KindInvalid, "no topic named, or no message")
	case len(op.Topic.Data) > osier.MaxMessageBytes:
		return osier.OpResult{}, fail(osier.KindTooLarge, "a message of %d bytes", len(op.Topic.Data))
	}
	if err := osier.CheckTopic(name); err != nil {
		return osier.OpResult{}, err
	}
	x.messages = append(x.messages, op)
	return osier.OpResult{}, nil
}

// send hands out a command's messages. The caller holds mu.
func (m *Model) send(db string, ops []*osier.Op) {
	for _, op := range ops {
		name, _ := osier.TopicName(op.Collection)
		msg := osier.Message{Topic: name, Codec: op.Topic.Codec, Data: op.Topic.Data}
		if op.Topic.Retain {
			key := db + " " + name
			if msg.Data == nil {
				delete(m.retained, key)
				continue
			}
			kept := msg
			kept.Retained = true
			m.retained[key] = kept
		}
		groups := map[string][]*subscriber{}
		for _, s := range m.subscribers {
			switch {
			case s.db != db || s.err != nil || !s.wants(name):
			case s.f.Group != "":
				groups[s.f.Group] = append(groups[s.f.Group], s)
			default:
				s.take(msg)
			}
		}
		for _, members := range groups {
			slices.SortStableFunc(members, func(a, b *subscriber) int { return len(a.queue) - len(b.queue) })
			members[0].take(msg)
		}
	}
}

// endSubscribers ends the subscriptions of a database, or all of them. The caller
// holds mu.
func (m *Model) endSubscribers(db string, kind osier.Kind) {
	for _, s := range m.subscribers {
		if db == "" || s.db == db {
			s.end(&osier.Error{Kind: kind, Op: "receive", DB: s.db})
		}
	}
}

func (m *Model) subscribe(f *osier.Feed) (*subscriber, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.open("subscribe", f.DB); err != nil {
		return nil, err
	}
	t := f.Topics
	if len(t.Patterns) == 0 || len(t.Patterns) > osier.MaxTopicPatterns || t.Buffer < 0 || t.Buffer > osier.MaxTopicBuffer ||
		t.BufferBytes < 0 || t.WhenSlow > osier.Disconnect || len(t.Group) > osier.MaxTopicBytes {
		return nil, &osier.Error{Kind: osier.KindInvalid, Op: "subscribe", DB: f.DB, Err: errors.New("a number is out of range")}
	}
	for _, p := range t.Patterns {
		if err := osier.CheckPattern(p); err != nil {
			return nil, err
		}
	}
	s := &subscriber{db: f.DB, f: t, wake: make(chan struct{})}
	if t.Retained {
		for key, msg := range m.retained {
			if db, topic, _ := strings.Cut(key, " "); db == f.DB && s.wants(topic) {
				s.queue = append(s.queue, msg)
			}
		}
		slices.SortFunc(s.queue, func(a, b osier.Message) int { return strings.Compare(a.Topic, b.Topic) })
	}
	m.subscribers = append(m.subscribers, s)
	return s, nil
}

// watchTopics is a subscription.
func (m *Model) watchTopics(ctx context.Context, f *osier.Feed) iter.Seq2[osier.Change, error] {
	return func(yield func(osier.Change, error) bool) {
		s, err := m.subscribe(f)
		if err != nil {
			yield(osier.Change{}, err)
			return
		}
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.subscribers = slices.DeleteFunc(m.subscribers, func(o *subscriber) bool { return o == s })
		}()
		if f.Marks && !yield(osier.Change{Mark: true}, nil) {
			return
		}
		for shown := 0; ; {
			msg, wait, err := m.receive(s)
			switch {
			case err != nil:
				yield(osier.Change{}, err)
				return
			case msg == nil && f.Mode == osier.FeedOnce:
				return
			case msg == nil:
				select {
				case <-wait:
				case <-ctx.Done():
					yield(osier.Change{}, canceled("receive", f.DB, ctx.Err()))
					return
				}
				continue
			}
			if !yield(osier.Change{Message: msg}, nil) {
				return
			}
			if shown++; shown == f.Limit || f.Mode == osier.FeedWait {
				return
			}
		}
	}
}

// receive takes the next message, or says what to wait for.
func (m *Model) receive(s *subscriber) (*osier.Message, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, s.wake, s.err
	}
	msg := s.queue[0]
	s.queue = s.queue[1:]
	msg.Missed, s.missed = s.missed, 0
	return &msg, nil, nil
}
