package engine

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
	"github.com/osierdb/osier/internal/topic"
)

// topics are the messages on their way. One by itself goes straight to its
// database's hub; those of commands wait here, in order, until their command is
// as durable as it asked to be.
type topics struct {
	hubs   sync.Map // *database -> *topic.Hub
	closed atomic.Bool

	queued atomic.Int64 // length of outbox
	mu     sync.Mutex   // guards outbox; held while messages are handed over
	outbox []posting
}

// posting is a message that goes out once a batch is durable.
type posting struct {
	e      *Engine
	number uint64 // of the batch; 0: at once
	hub    *topic.Hub
	msg    *osier.Message
	retain bool
}

// maxOutbox bounds the messages that wait behind those of commands.
const maxOutbox = 1 << 16

var errStoreClosed = errors.New("the store was closed")

// hub returns a database's hub.
func (e *Engine) hub(db *database) *topic.Hub {
	if h, ok := e.topics.hubs.Load(db); ok {
		return h.(*topic.Hub)
	}
	h, _ := e.topics.hubs.LoadOrStore(db, topic.New(db.name, e.opts.Topics))
	hub := h.(*topic.Hub)
	switch {
	case db.gone.Load():
		e.endHub(db, &osier.Error{Kind: osier.KindNotFound, Op: "use topic", DB: db.name})
	case e.topics.closed.Load():
		hub.End(&osier.Error{Kind: osier.KindClosed, Op: "use topic", DB: db.name, Err: errStoreClosed})
	}
	return hub
}

// endHub ends a database's subscriptions.
func (e *Engine) endHub(db *database, err error) {
	if h, ok := e.topics.hubs.LoadAndDelete(db); ok {
		h.(*topic.Hub).End(err)
	}
}

// close ends all subscriptions.
func (t *topics) close() {
	t.closed.Store(true)
	for db, h := range t.hubs.Range {
		h.(*topic.Hub).End(&osier.Error{Kind: osier.KindClosed, Op: "use topic", DB: db.(*database).name, Err: errStoreClosed})
	}
}

// PublishMessage is a command with one OpPublish, by a shorter way: what is not
// stored needs no order. It only stays behind messages of earlier commands.
func (e *Engine) PublishMessage(ctx context.Context, dbName string, m *osier.Message, retain bool) (handled bool, err error) {
	if err := ctx.Err(); err != nil {
		return true, &osier.Error{Kind: osier.KindCanceled, Op: "publish", DB: dbName, Err: err}
	}
	if e.opts.ReadOnly {
		return true, &osier.Error{Kind: osier.KindReadOnly, Op: "publish", DB: dbName, Err: errors.New("the store was opened read-only")}
	}
	db, err := e.lookup("publish", dbName)
	if err != nil {
		return true, err
	}
	hub := e.hub(db)
	if n := e.topics.queued.Load(); n > 0 {
		if n >= maxOutbox {
			return true, &osier.Error{Kind: osier.KindUnavailable, Op: "publish", DB: dbName,
				Err: errors.New("too many messages wait for the commands before them to be durable")}
		}
		if err := checkMessage(m); err != nil {
			return true, err
		}
		e.topics.post(posting{e: e, hub: hub, msg: m, retain: retain})
		return true, nil
	}
	return true, hub.Publish(m, retain)
}

func checkMessage(m *osier.Message) error {
	if len(m.Data) > osier.MaxMessageBytes {
		return &osier.Error{Kind: osier.KindTooLarge, Op: "publish", Collection: osier.TopicResource(m.Topic), Err: errors.New("the message is too large")}
	}
	return osier.CheckTopic(m.Topic)
}

// SubscribeMessages opens a subscription.
func (e *Engine) SubscribeMessages(_ context.Context, f *osier.Feed) (osier.MessageStream, bool, error) {
	if f.Topics == nil {
		return nil, false, nil
	}
	db, err := e.lookup("subscribe", f.DB)
	if err != nil {
		return nil, true, err
	}
	s, err := e.hub(db).Subscribe(f.Topics)
	if err != nil {
		return nil, true, err
	}
	return s, true, nil
}

// watchTopics is a subscription as a feed.
func (e *Engine) watchTopics(ctx context.Context, f *osier.Feed) iter.Seq2[osier.Change, error] {
	return func(yield func(osier.Change, error) bool) {
		s, _, err := e.SubscribeMessages(ctx, f)
		if err != nil {
			yield(osier.Change{}, err)
			return
		}
		defer s.Close()
		if f.Marks && !yield(osier.Change{Mark: true}, nil) {
			return
		}
		if f.Mode == osier.FeedOnce {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel() // what is there is shown all the same
		}
		for shown := 0; ; {
			m, err := s.Next(ctx)
			if f.Mode == osier.FeedOnce && osier.KindOf(err) == osier.KindCanceled {
				return
			}
			if !yield(osier.Change{Message: m}, err) || err != nil {
				return
			}
			if shown++; shown == f.Limit || f.Mode == osier.FeedWait {
				return
			}
		}
	}
}

// publishOp takes a message into a command.
func (r *run) publishOp(op *osier.Op) (osier.OpResult, error) {
	name, ok := osier.TopicName(op.Collection)
	if !ok || op.Topic == nil {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "publish", "the operation does not name a topic, or has no message")
	}
	m := &osier.Message{Topic: name, Codec: op.Topic.Codec, Data: op.Topic.Data}
	if err := checkMessage(m); err != nil {
		return osier.OpResult{}, err
	}
	r.messages = append(r.messages, op)
	return osier.OpResult{}, nil
}

// adoptMessages makes the command's messages go out with the group.
func (r *run) adoptMessages() {
	for _, op := range r.messages {
		name, _ := osier.TopicName(op.Collection)
		m := &osier.Message{Topic: name, Codec: op.Topic.Codec, Data: op.Topic.Data}
		r.a.messages = append(r.a.messages, posting{e: r.a.e, hub: r.a.e.hub(r.db), msg: m, retain: op.Topic.Retain})
	}
}

// queue puts a group's messages behind those of the groups before it. number is
// the group's batch, 0 if it wrote nothing. The caller holds queue.order.
func (t *topics) queue(a *applier, number uint64, level store.Durability) {
	if len(a.messages) == 0 {
		return
	}
	if level != store.Sync {
		number = 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range a.messages {
		p.number = number
		t.outbox = append(t.outbox, p)
	}
	t.queued.Add(int64(len(a.messages)))
}

// post puts a message behind those that wait, and sends what can go.
func (t *topics) post(p posting) {
	t.mu.Lock()
	t.outbox = append(t.outbox, p)
	t.queued.Add(1)
	t.mu.Unlock()
	t.send()
}

// send hands over the messages whose turn has come.
func (t *topics) send() {
	if t.queued.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for n < len(t.outbox) {
		p := &t.outbox[n]
		if p.number > 0 && p.number > p.e.store.Synced() {
			break
		}
		// A hub that has ended meanwhile has nobody to tell.
		_ = p.hub.Publish(p.msg, p.retain)
		*p = posting{}
		n++
	}
	t.queued.Add(int64(-n))
	if t.outbox = t.outbox[n:]; len(t.outbox) == 0 {
		t.outbox = nil
	}
}

// publishesOnly tells commands that change nothing and need no order. One with a
// session is remembered, and takes its place like others.
func publishesOnly(c *osier.Command) bool {
	if len(c.Ops) == 0 || len(c.Reads) > 0 || c.Session != "" || c.PerDocument {
		return false
	}
	for i := range c.Ops {
		if c.Ops[i].Kind != osier.OpPublish {
			return false
		}
	}
	return true
}

// publishOnly sends a command's messages, or none if one of them is wrong.
func (e *Engine) publishOnly(ctx context.Context, c *osier.Command) (*osier.Result, error) {
	db, err := e.lookup("publish", c.DB)
	if err != nil {
		return nil, err
	}
	r := &run{db: db, cmd: c}
	for i := range c.Ops {
		if _, err := r.publishOp(&c.Ops[i]); err != nil {
			return nil, err
		}
	}
	for _, op := range r.messages {
		name, _ := osier.TopicName(op.Collection)
		m := &osier.Message{Topic: name, Codec: op.Topic.Codec, Data: op.Topic.Data}
		if _, err := e.PublishMessage(ctx, c.DB, m, op.Topic.Retain); err != nil {
			return nil, err
		}
	}
	seq := osier.Seq(db.applied.Load())
	return &osier.Result{First: seq, Last: seq, Time: e.now().UTC().Truncate(time.Millisecond), Ops: make([]osier.OpResult, len(c.Ops))}, nil
}
