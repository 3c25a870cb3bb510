package osier

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// Message is what was published to a topic. Messages are shared by all who get
// them: nothing in one must be changed.
type Message struct {
	Topic string
	Codec CodecTag // how Data is encoded
	Data  []byte
	// Retained: it was published before the subscription, as its topic's last.
	Retained bool
	// Missed is how many messages the subscriber was too slow for, just before
	// this one.
	Missed uint64
}

// SlowPolicy says what happens when a subscriber's buffer is full. The publisher
// never waits.
type SlowPolicy uint8

const (
	// DropOldest drops the oldest message in the buffer; the next message shown
	// says how many were missed.
	DropOldest SlowPolicy = 0
	// Disconnect ends the subscription: it shows what is in the buffer and then
	// fails with KindGap.
	Disconnect SlowPolicy = 1
)

// TopicOp is what an OpPublish says beside the topic's name.
type TopicOp struct {
	Codec CodecTag
	Data  []byte
	// Retain keeps the message, in memory, for those who subscribe later, in
	// place of the one that was kept for its topic before. One without Data
	// only forgets that one, and is published to nobody.
	Retain bool
}

// TopicFeed makes a Feed a subscription. With Feed.Marks the first Change is a
// Mark, when all that is published from then on will be shown.
type TopicFeed struct {
	// Patterns name the topics: see CheckPattern. A message that several of
	// them match is shown once.
	Patterns []string
	// Group, if not empty, shares the messages with the other subscribers of
	// that group: each message goes to one of them.
	Group string
	// Buffer and BufferBytes bound what waits for the subscriber, in messages
	// and in bytes of their data; 0 is 1,024 and 4 MiB.
	Buffer      int
	BufferBytes int
	WhenSlow    SlowPolicy
	// Retained shows, first, the messages that are kept for the topics.
	Retained bool
}

// Limits of topics.
const (
	MaxTopicBytes      = 255     // of a topic's name or a pattern
	MaxTopicTokens     = 32      // parts between the dots
	MaxMessageBytes    = 8 << 20 // of a message's data
	MaxTopicPatterns   = 1024    // of one subscription
	MaxTopicBuffer     = 1 << 20 // messages
	DefaultTopicBuffer = 1024
	DefaultTopicBytes  = 4 << 20
)

// topicPrefix begins what the Collection field of an operation or a Resource
// holds for a topic.
const topicPrefix = "topic:"

// TopicResource returns the Collection field that means the topic.
func TopicResource(name string) string { return topicPrefix + name }

// TopicName returns the name of the topic that a Collection field means.
func TopicName(resource string) (name string, ok bool) {
	return strings.CutPrefix(resource, topicPrefix)
}

// CheckTopic wants tokens with a dot between each two: of letters, digits and
// other characters, but no spaces, control characters, "*" or ">".
func CheckTopic(name string) error { return checkTopic(name, false) }

// CheckPattern takes topics and patterns: a token "*" stands for any one token,
// a last token ">" for one or more.
func CheckPattern(pattern string) error { return checkTopic(pattern, true) }

func checkTopic(name string, pattern bool) error {
	fail := func(text string) error {
		return &Error{Kind: KindInvalid, Op: "name topic", Collection: topicPrefix + name[:min(len(name), MaxTopicBytes)], Err: errors.New(text)}
	}
	if name == "" || len(name) > MaxTopicBytes {
		return fail(fmt.Sprintf("want 1 to %d bytes", MaxTopicBytes))
	}
	tokens := 0
	for rest := name; ; {
		token, after, more := strings.Cut(rest, ".")
		if tokens++; tokens > MaxTopicTokens {
			return fail(fmt.Sprintf("more than %d tokens", MaxTopicTokens))
		}
		switch {
		case token == "":
			return fail("an empty token")
		case pattern && token == "*" || pattern && token == ">" && !more:
		default:
			for i := range len(token) {
				if c := token[i]; c <= ' ' || c == 0x7F || c == '*' || c == '>' {
					return fail(`spaces, control characters, "*" and ">" are not allowed in a name; in a pattern "*" is a token, ">" the last one`)
				}
			}
		}
		if !more {
			return nil
		}
		rest = after
	}
}

// MessageStream is an open subscription of a Backend.
type MessageStream interface {
	// Next waits for a message. Errors: KindGap when a subscriber that chose
	// Disconnect was too slow, KindClosed after Close or the end of the store,
	// KindNotFound when the database was dropped, KindCanceled.
	Next(ctx context.Context) (*Message, error)
	// Close ends the subscription; it is idempotent.
	Close()
}

// messenger is what a Backend may have beside its verbs, as a shorter way for
// messages. It means the same as a command with one OpPublish, and as Watch of
// a Feed with Topics. handled is false if the ordinary way must be taken.
type messenger interface {
	PublishMessage(ctx context.Context, db string, m *Message, retain bool) (handled bool, err error)
	SubscribeMessages(ctx context.Context, f *Feed) (s MessageStream, handled bool, err error)
}

// Topic is a typed handle on messages that go to whoever listens and are stored
// nowhere. Declare it once, as a package variable, and use it with any database.
//
// Messages of one publisher arrive in the order in which they were published.
// One that is published in a transaction or batch goes out after the commit, as
// durable as that, in the order of commits. A subscriber that is too slow loses
// messages and is told so; it never slows a publisher.
type Topic[T any] struct {
	name  string
	codec Codec
}

// TopicOptions of NewTopic. The zero value is useful.
type TopicOptions struct {
	Codec Codec // for messages; nil: JSON. Raw messages take Binary.
}

// NewTopic declares a topic, or with a pattern a set of them, to which Publish
// and Subscribe refer by their names. It panics if the name is against
// CheckPattern's rule, as that is a mistake in the program.
func NewTopic[T any](name string, opts ...TopicOptions) *Topic[T] {
	if err := CheckPattern(name); err != nil {
		panic(err)
	}
	t := &Topic[T]{name: name, codec: JSON}
	if len(opts) > 0 && opts[0].Codec != nil {
		t.codec = opts[0].Codec
	}
	return t
}

// Name returns the topic's name or pattern.
func (t *Topic[T]) Name() string { return t.name }

// Publish sends v to all who are subscribed now. In a transaction or batch it
// goes out after the commit. It fails for a topic declared as a pattern: see
// PublishTo.
func (t *Topic[T]) Publish(ctx context.Context, w Writer, v T) error {
	return t.publish(ctx, w, v, false, t.name)
}

// PublishTo is Publish to other topics, or to those of a pattern. Nothing is
// sent if one of the names is wrong.
func (t *Topic[T]) PublishTo(ctx context.Context, w Writer, v T, topics ...string) error {
	return t.publish(ctx, w, v, false, topics...)
}

// Retain is Publish, and keeps the message as the topic's last for those who
// subscribe later and ask for it. It is kept in memory: it lasts as long as the
// store is open.
func (t *Topic[T]) Retain(ctx context.Context, w Writer, v T) error {
	return t.publish(ctx, w, v, true, t.name)
}

func (t *Topic[T]) publish(ctx context.Context, w Writer, v T, retain bool, topics ...string) error {
	for _, name := range topics {
		if err := CheckTopic(name); err != nil {
			return err
		}
	}
	data, err := t.codec.Append(nil, v)
	if err != nil {
		return &Error{Kind: KindInvalid, Op: "publish", Collection: topicPrefix + t.name, Err: err}
	}
	for _, name := range topics {
		m := Message{Topic: name, Codec: t.codec.Tag(), Data: data}
		if err := publish(ctx, w, &m, retain); err != nil {
			return err
		}
	}
	return nil
}

// Publish sends a raw message, whose Data must not be changed any more; see
// Topic.Publish and, for retain, Topic.Retain.
func Publish(ctx context.Context, w Writer, m Message, retain bool) error {
	if err := CheckTopic(m.Topic); err != nil {
		return err
	}
	return publish(ctx, w, &m, retain)
}

func publish(ctx context.Context, w Writer, m *Message, retain bool) error {
	if db, ok := w.(*DB); ok {
		if b, ok := db.backend.(messenger); ok {
			if handled, err := b.PublishMessage(ctx, db.name, m, retain); handled {
				return err
			}
		}
	}
	_, err := w.write(ctx, &Op{Kind: OpPublish, Collection: topicPrefix + m.Topic,
		Topic: &TopicOp{Codec: m.Codec, Data: m.Data, Retain: retain}})
	return err
}

// Forget drops the message that is kept for a topic.
func (t *Topic[T]) Forget(ctx context.Context, w Writer) error {
	return Publish(ctx, w, Message{Topic: t.name}, true)
}

// Subscription receives messages, from the moment Subscribe has returned until
// it is closed. It is for one goroutine at a time; Close may be called from any.
type Subscription[T any] struct {
	s     MessageStream
	set   *Store
	codec Codec
}

// Received is a message with its data decoded.
type Received[T any] struct {
	Message
	Value T
}

// Subscribe begins to receive the topic's messages, or those of o.Patterns if
// there are any. o may be nil. The subscription must be closed.
func (t *Topic[T]) Subscribe(ctx context.Context, db *DB, o *TopicFeed) (*Subscription[T], error) {
	f := TopicFeed{}
	if o != nil {
		f = *o
	}
	if len(f.Patterns) == 0 {
		f.Patterns = []string{t.name}
	}
	s, err := Subscribe(ctx, db, &f)
	if err != nil {
		return nil, err
	}
	return &Subscription[T]{s: s, set: db.store, codec: t.codec}, nil
}

// Subscribe begins to receive raw messages. The subscription must be closed.
func Subscribe(ctx context.Context, db *DB, f *TopicFeed) (MessageStream, error) {
	feed := &Feed{DB: db.name, Topics: f, Mode: FeedLive, Marks: true}
	if b, ok := db.backend.(messenger); ok {
		if s, handled, err := b.SubscribeMessages(ctx, feed); handled {
			return s, err
		}
	}
	return watchMessages(ctx, db.backend, feed)
}

// Next waits for a message.
func (s *Subscription[T]) Next(ctx context.Context) (Received[T], error) {
	m, err := s.s.Next(ctx)
	if err != nil {
		return Received[T]{}, err
	}
	r := Received[T]{Message: *m}
	codec := s.codec
	if m.Codec != codec.Tag() {
		if codec, err = s.set.codecs.lookup(m.Codec); err != nil {
			return r, err
		}
	}
	if err := codec.Decode(m.Data, &r.Value); err != nil {
		return r, &Error{Kind: KindInvalid, Op: "receive", Collection: topicPrefix + m.Topic, Err: err}
	}
	return r, nil
}

// All streams the messages until ctx ends or the subscription is closed, which
// end it without an error. A message that cannot be decoded is an error, after
// which it goes on.
func (s *Subscription[T]) All(ctx context.Context) iter.Seq2[Received[T], error] {
	return func(yield func(Received[T], error) bool) {
		for {
			r, err := s.Next(ctx)
			if k := KindOf(err); err != nil && (k == KindCanceled || k == KindClosed) {
				return
			}
			if !yield(r, err) || err != nil && r.Topic == "" {
				return
			}
		}
	}
}

// Close ends the subscription; it is idempotent.
func (s *Subscription[T]) Close() { s.s.Close() }

// watched is a subscription over Watch, for Backends without a shorter way. A
// goroutine of its own reads the feed and ends with Close.
type watched struct {
	cancel context.CancelFunc
	next   chan *Message
	ended  chan struct{} // closed after err is set
	err    error
}

func watchMessages(ctx context.Context, b Backend, f *Feed) (MessageStream, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &watched{cancel: cancel, next: make(chan *Message), ended: make(chan struct{})}
	begun := make(chan struct{})
	go w.read(ctx, b, f, begun)
	select {
	case <-begun:
		return w, nil
	case <-w.ended:
		cancel()
		return nil, w.err
	}
}

func (w *watched) read(ctx context.Context, b Backend, f *Feed, begun chan struct{}) {
	defer close(w.ended)
	w.err = &Error{Kind: KindClosed, Op: "receive", DB: f.DB}
	for ch, err := range b.Watch(ctx, f) {
		if err != nil {
			if ctx.Err() == nil {
				w.err = err
			}
			return
		}
		if ch.Mark {
			close(begun)
		}
		if ch.Message == nil {
			continue
		}
		select {
		case w.next <- ch.Message:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watched) Next(ctx context.Context) (*Message, error) {
	select {
	case m := <-w.next:
		return m, nil
	case <-w.ended:
		return nil, w.err
	case <-ctx.Done():
		return nil, &Error{Kind: KindCanceled, Op: "receive", Err: ctx.Err()}
	}
}

func (w *watched) Close() {
	w.cancel()
	<-w.ended
}
