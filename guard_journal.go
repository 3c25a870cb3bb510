package osier

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// visibleJournals leaves the journals that may be read.
func (g guard) visibleJournals(db string, all []JournalInfo) []JournalInfo {
	return slices.DeleteFunc(slices.Clone(all), func(j JournalInfo) bool {
		return !g.p.Can(MayRead, Resource{db, JournalResource(j.Name)})
	})
}

// judgeTopics judges a subscription. A topic by name takes a grant that matches
// it, a pattern one that covers every topic beginning as the pattern does up to
// its first wildcard.
func (g guard) judgeTopics(f *Feed) error {
	if len(f.Topics.Patterns) == 0 {
		return g.judge("subscribe", MayRead, Resource{f.DB, topicPrefix})
	}
	for _, pattern := range f.Topics.Patterns {
		at := strings.IndexAny(pattern, "*>")
		if at < 0 {
			if err := g.judge("subscribe", MayRead, Resource{f.DB, topicPrefix + pattern}); err != nil {
				return err
			}
			continue
		}
		if !g.p.covers(MayRead, f.DB, topicPrefix+pattern[:at]) {
			return &Error{Kind: KindDenied, Op: "subscribe", DB: f.DB, Collection: topicPrefix + pattern,
				Err: fmt.Errorf("%q lacks the right to %v all topics that the pattern can match", g.p.Name, MayRead)}
		}
	}
	return nil
}

// covers reports whether p has a right on every resource of a database whose
// name begins so.
func (p Principal) covers(a Action, db, beginning string) bool {
	var have Action
	for _, g := range p.Grants {
		prefix, open := strings.CutSuffix(g.Collection, "*")
		if match(g.DB, db) && (g.Collection == "" || open && strings.HasPrefix(beginning, prefix)) {
			have |= g.Actions
		}
	}
	return have&a == a
}

// AppendJournal is the shorter way, judged.
func (g guard) AppendJournal(ctx context.Context, db, resource string, level Durability, events []Event) (JournalResult, bool, error) {
	a, ok := g.Backend.(journalAppender)
	if !ok {
		return JournalResult{}, false, nil
	}
	if err := g.judge("append", MayWrite, Resource{db, resource}); err != nil {
		return JournalResult{}, true, err
	}
	return a.AppendJournal(ctx, db, resource, level, events)
}

// PublishMessage is the shorter way, judged.
func (g guard) PublishMessage(ctx context.Context, db string, m *Message, retain bool) (bool, error) {
	b, ok := g.Backend.(messenger)
	if !ok {
		return false, nil
	}
	if err := g.judge("publish", MayWrite, Resource{db, topicPrefix + m.Topic}); err != nil {
		return true, err
	}
	return b.PublishMessage(ctx, db, m, retain)
}

// SubscribeMessages is the shorter way, judged.
func (g guard) SubscribeMessages(ctx context.Context, f *Feed) (MessageStream, bool, error) {
	b, ok := g.Backend.(messenger)
	if !ok || f.Topics == nil {
		return nil, false, nil
	}
	if err := g.judgeTopics(f); err != nil {
		return nil, true, err
	}
	return b.SubscribeMessages(ctx, f)
}

// AppendJournal is the shorter way, with the durability set.
func (b durable) AppendJournal(ctx context.Context, db, resource string, level Durability, events []Event) (JournalResult, bool, error) {
	a, ok := b.Backend.(journalAppender)
	if !ok {
		return JournalResult{}, false, nil
	}
	if level == DurabilityDefault {
		level = b.d
	}
	return a.AppendJournal(ctx, db, resource, level, events)
}

// PublishMessage is the shorter way; durability means nothing to it.
func (b durable) PublishMessage(ctx context.Context, db string, m *Message, retain bool) (bool, error) {
	if p, ok := b.Backend.(messenger); ok {
		return p.PublishMessage(ctx, db, m, retain)
	}
	return false, nil
}

// SubscribeMessages is the shorter way.
func (b durable) SubscribeMessages(ctx context.Context, f *Feed) (MessageStream, bool, error) {
	if p, ok := b.Backend.(messenger); ok {
		return p.SubscribeMessages(ctx, f)
	}
	return nil, false, nil
}
