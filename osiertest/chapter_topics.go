package osiertest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/osierdb/osier"
)

// note is the suite's ordinary message.
type note struct{ N int }

// orders are the suite's ordinary topics.
var orders = osier.NewTopic[note]("orders.>")

func topicTests() []test {
	return []test{
		{"a message reaches all who are subscribed to its topic", func(x *tc) {
			one := x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.eu"}})
			two := x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.eu"}})
			other := x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.us"}})
			x.publish(1, "orders.eu")
			x.publish(2, "orders.us", "orders.eu")
			x.got(one, "orders.eu 1", "orders.eu 2")
			x.got(two, "orders.eu 1", "orders.eu 2")
			x.got(other, "orders.us 2")
		}},
		{"patterns match by tokens", func(x *tc) {
			topics := []string{"a", "a.b", "a.b.c", "a.x.c", "b", "b.b.c", "a.b.c.d"}
			for pattern, want := range map[string]string{
				"a": "a", "*": "a b", "a.*": "a.b", "a.*.c": "a.b.c a.x.c", "*.b.c": "a.b.c b.b.c", ">": strings.Join(topics, " "),
				"a.>": "a.b a.b.c a.x.c a.b.c.d", "*.*.>": "a.b.c a.x.c b.b.c a.b.c.d", "a.b.*.d": "a.b.c.d", "none": "",
			} {
				s := x.subscribe(&osier.TopicFeed{Patterns: []string{pattern}})
				x.publish(0, topics...)
				x.publish(0, "end")
				end := x.subscribe(&osier.TopicFeed{Patterns: []string{"end"}})
				x.publish(0, "end")
				x.got(end, "end 0")
				var texts []string
				for _, t := range strings.Fields(want) {
					texts = append(texts, t+" 0")
				}
				if pattern == ">" || pattern == "*" {
					texts = append(texts, "end 0", "end 0")
				}
				x.got(s, texts...)
				s.Close()
				end.Close()
			}
		}},
		{"a message that several patterns of a subscription match is shown once", func(x *tc) {
			s := x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.eu", "orders.*", ">", ">"}})
			x.publish(1, "orders.eu")
			x.publish(2, "orders.us")
			x.got(s, "orders.eu 1", "orders.us 2")
		}},
		{"messages of a publisher arrive in its order", func(x *tc) {
			s := x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.*"}})
			var wg sync.WaitGroup
			for p := range 4 {
				wg.Go(func() {
					for i := range 100 {
						if err := orders.PublishTo(x.ctx, x.db, note{i}, fmt.Sprint("orders.p", p)); err != nil {
							x.Error(err)
						}
					}
				})
			}
			wg.Wait()
			next := map[string]int{}
			for range 400 {
				m := x.next(s)
				x.same("number of "+m.Topic, m.Value.N, next[m.Topic])
				next[m.Topic]++
			}
		}},
		{"a subscriber that is too slow loses the oldest messages and is told", func(x *tc) {
			s := x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.eu"}, Buffer: 4})
			for i := range 1000 {
				x.publish(i, "orders.eu")
			}
			seen, missed := 0, uint64(0)
			for at := 0; at < 1000; {
				m := x.next(s)
				at += int(m.Missed)
				x.same("number", m.Value.N, at)
				at++
				seen++
				missed += m.Missed
			}
			if missed == 0 || seen+int(missed) != 1000 {
				x.Fatalf("%d messages shown, %d missed of 1000", seen, missed)
			}
		}},
		{"one that chose so is disconnected instead", func(x *tc) {
			for _, f := range []osier.TopicFeed{{Buffer: 4}, {BufferBytes: 40}} {
				f.Patterns, f.WhenSlow = []string{"orders.eu"}, osier.Disconnect
				s := x.subscribe(&f)
				for i := range 1000 {
					x.publish(i, "orders.eu")
				}
				n := 0
				for {
					m, err := s.Next(x.ctx)
					if err != nil {
						x.kind(err, osier.KindGap)
						break
					}
					x.same("number", m.Value.N, n)
					n++
				}
				if n == 0 || n > 100 {
					x.Fatalf("%d messages were shown before the end", n)
				}
			}
		}},
		{"a group shares messages", func(x *tc) {
			group := &osier.TopicFeed{Patterns: []string{"orders.*"}, Group: "workers"}
			a, b, alone := x.subscribe(group), x.subscribe(group), x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.eu"}, Group: "others"})
			for i := range 10 {
				x.publish(i, "orders.eu")
			}
			x.publish(-1, "end")
			seen := map[int]int{}
			for range 10 {
				x.same("of the other group", x.next(alone).Topic, "orders.eu")
			}
			for _, s := range []*osier.Subscription[note]{a, b} {
				for range 5 {
					seen[x.next(s).Value.N]++
				}
			}
			x.same("messages", len(seen), 10)
			a.Close()
			x.publish(10, "orders.eu")
			x.same("who is left gets it", x.next(b).Value.N, 10)
		}},
		{"the last message is kept for later subscribers", func(x *tc) {
			us := osier.NewTopic[note]("orders.us")
			for i := range 3 {
				x.must(us.Retain(x.ctx, x.db, note{i}))
			}
			x.must(osier.NewTopic[note]("orders.eu").Retain(x.ctx, x.db, note{7}))
			s := x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.*"}, Retained: true})
			x.got(s, "orders.eu 7 retained", "orders.us 2 retained")
			x.publish(8, "orders.us")
			x.got(s, "orders.us 8")
			x.must(us.Forget(x.ctx, x.db))
			x.got(x.subscribe(&osier.TopicFeed{Patterns: []string{">"}, Retained: true}), "orders.eu 7 retained")
			x.publish(9, "orders.us")
			x.got(x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.us"}, Retained: true}))
			once := collect(x, x.db.Watch(x.ctx, &osier.Feed{Topics: &osier.TopicFeed{Patterns: []string{">"}, Retained: true}}))
			x.same("as a feed that ends", len(once), 1)
		}},
		{"messages of a transaction or batch go out after the commit, or never", topicTransactions},
		{"subscriptions end with their context, by closing, with the database and the store", topicEnds},
		{"names and patterns are checked", topicNames},
		{"rights on topics are by their names, on patterns by all that they can match", topicRights},
	}
}

func (x *tc) subscribe(f *osier.TopicFeed) *osier.Subscription[note] {
	x.Helper()
	s, err := orders.Subscribe(x.ctx, x.db, f)
	x.must(err)
	x.Cleanup(s.Close)
	return s
}

func (x *tc) publish(n int, topics ...string) {
	x.Helper()
	x.must(orders.PublishTo(x.ctx, x.db, note{n}, topics...))
}

// next waits for a message that must come.
func (x *tc) next(s *osier.Subscription[note]) osier.Received[note] {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.ctx, patience)
	defer cancel()
	m, err := s.Next(ctx)
	x.must(err)
	return m
}

// got wants these messages and, as far as can be told, no more: one more is
// published to tell.
func (x *tc) got(s *osier.Subscription[note], want ...string) {
	x.Helper()
	got := []string{}
	for range want {
		m := x.next(s)
		text := fmt.Sprint(m.Topic, " ", m.Value.N)
		if m.Retained {
			text += " retained"
		}
		got = append(got, text)
	}
	x.same("messages", got, append([]string{}, want...))
}

func topicTransactions(x *tc) {
	s := x.subscribe(&osier.TopicFeed{Patterns: []string{"orders.*"}})
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		for i := range 3 {
			x.must(orders.PublishTo(x.ctx, tx, note{i}, "orders.tx"))
		}
		x.publish(100, "orders.direct")
		_, err := films.InsertWithID(x.ctx, tx, "a", film{Title: "1"})
		return err
	}))
	x.publish(101, "orders.direct")
	x.got(s, "orders.direct 100", "orders.tx 0", "orders.tx 1", "orders.tx 2", "orders.direct 101")
	x.same("the document is there", x.title(x.db, "a"), "1")
	_ = x.db.Update(x.ctx, func(tx *osier.Tx) error {
		x.must(orders.PublishTo(x.ctx, tx, note{200}, "orders.undone"))
		return errUndo
	})
	b := osier.Batch{Session: "s", Number: 1}
	x.must(orders.PublishTo(x.ctx, &b, note{300}, "orders.batch"))
	for range 2 { // the second time is a retry
		_, err := x.db.Commit(x.ctx, &b)
		x.must(err)
	}
	failing := osier.Batch{}
	x.must(orders.PublishTo(x.ctx, &failing, note{400}, "orders.failing"))
	_, err := films.InsertWithID(x.ctx, &failing, "a", film{})
	x.must(err)
	_, err = x.db.Commit(x.ctx, &failing)
	x.kind(err, osier.KindConflict)
	x.publish(500, "orders.end")
	x.got(s, "orders.batch 300", "orders.end 500")
	for i, level := range []osier.Durability{osier.Relaxed, osier.Sync, osier.Buffered} {
		b := osier.Batch{Durability: level}
		_, err := films.Upsert(x.ctx, &b, "b", film{Year: i})
		x.must(err)
		x.must(orders.PublishTo(x.ctx, &b, note{600 + i}, "orders.level"))
		_, err = x.db.Commit(x.ctx, &b)
		x.must(err)
		x.publish(700+i, "orders.direct")
		x.got(s, fmt.Sprint("orders.level ", 600+i), fmt.Sprint("orders.direct ", 700+i))
	}
}

func topicEnds(x *tc) {
	s := x.subscribe(nil)
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	_, err := s.Next(ctx)
	x.kind(err, osier.KindCanceled)
	x.publish(1, "orders.eu")
	x.got(s, "orders.eu 1")
	ended := make(chan error, 1)
	wait := func(s *osier.Subscription[note]) {
		_, err := s.Next(x.ctx)
		ended <- err
	}
	go wait(s)
	s.Close()
	s.Close()
	x.kind(receive(x, ended), osier.KindClosed)
	other, err := x.store.CreateDB(x.ctx, "other")
	x.must(err)
	gone, err := orders.Subscribe(x.ctx, other, nil)
	x.must(err)
	defer gone.Close()
	go wait(gone)
	x.must(x.store.DropDB(x.ctx, "other"))
	x.kind(receive(x, ended), osier.KindNotFound)
	_, err = orders.Subscribe(x.ctx, other, nil)
	x.kind(err, osier.KindNotFound)
	x.kind(orders.PublishTo(x.ctx, other, note{}, "orders.eu"), osier.KindNotFound)
	last := x.subscribe(nil)
	go wait(last)
	x.must(x.store.Close())
	x.kind(receive(x, ended), osier.KindClosed)
	x.kind(orders.PublishTo(x.ctx, x.db, note{}, "orders.eu"), osier.KindClosed)
}

func topicNames(x *tc) {
	long := strings.Repeat("a", osier.MaxTopicBytes+1)
	for _, name := range []string{"", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "*", "a\x00", long, strings.Repeat("a.", 40) + "a"} {
		x.kind(orders.PublishTo(x.ctx, x.db, note{}, name), osier.KindInvalid)
		_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPublish, Collection: osier.TopicResource(name), Topic: &osier.TopicOp{}}}})
		x.kind(err, osier.KindInvalid)
	}
	for _, pattern := range []string{"", "a.", "a..*", ">.a", "a*", "a.b>", "a b", long} {
		_, err := osier.Subscribe(x.ctx, x.db, &osier.TopicFeed{Patterns: []string{pattern}})
		x.kind(err, osier.KindInvalid)
	}
	for _, f := range []osier.TopicFeed{{}, {Patterns: make([]string, osier.MaxTopicPatterns+1)}, {Patterns: []string{"a"}, Buffer: -1},
		{Patterns: []string{"a"}, Buffer: osier.MaxTopicBuffer + 1}, {Patterns: []string{"a"}, WhenSlow: 9}} {
		_, err := osier.Subscribe(x.ctx, x.db, &f)
		x.kind(err, osier.KindInvalid)
	}
	for _, w := range []osier.Writer{x.db, x.db.As(osier.Admin("root"))} {
		x.kind(osier.Publish(x.ctx, w, osier.Message{Topic: "a", Data: make([]byte, osier.MaxMessageBytes+1)}, false), osier.KindTooLarge)
	}
	_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPublish, Collection: "orders", Topic: &osier.TopicOp{}}}})
	x.kind(err, osier.KindInvalid)
}

func topicRights(x *tc) {
	as := func(a osier.Action, pattern string) *osier.DB {
		return x.db.As(osier.Principal{Name: "p", Grants: []osier.Grant{{Actions: a, DB: "shop", Collection: pattern}}})
	}
	may := func(db *osier.DB, pattern string) bool {
		s, err := orders.Subscribe(x.ctx, db, &osier.TopicFeed{Patterns: []string{pattern}})
		if err != nil {
			x.kind(err, osier.KindDenied)
			return false
		}
		s.Close()
		return true
	}
	for _, c := range []struct {
		grant, pattern string
		want           bool
	}{
		{"topic:orders.eu", "orders.eu", true}, {"topic:orders.eu", "orders.us", false}, {"topic:orders.*", "orders.eu", true},
		{"topic:orders.*", "orders.*", true}, {"topic:orders.*", "orders.>", true}, {"topic:orders.*", "*.eu", false},
		{"topic:orders.*", ">", false}, {"topic:*", ">", true}, {"", "*.x", true}, {"topic:orders.eu", "orders.*", false},
		{"topic:*.eu", "*.eu", false}, {"topic:orders.eu.*", "orders.*.x", false}, {"orders.*", "orders.eu", false},
	} {
		x.same(fmt.Sprint(c), may(as(osier.MayRead, c.grant), c.pattern), c.want)
		x.same(fmt.Sprint(c, " without the right"), may(as(osier.MayWrite, c.grant), c.pattern), false)
	}
	_, err := drain(as(osier.MayRead, "topic:orders.*").Watch(x.ctx, &osier.Feed{Topics: &osier.TopicFeed{Patterns: []string{"orders.eu", "x"}}}))
	x.kind(err, osier.KindDenied)
	x.must(orders.PublishTo(x.ctx, as(osier.MayWrite, "topic:orders.*"), note{}, "orders.eu"))
	for _, db := range []*osier.DB{as(osier.MayWrite, "topic:orders.*"), as(osier.MayRead, "topic:users.*")} {
		x.kind(orders.PublishTo(x.ctx, db, note{}, "users.a"), osier.KindDenied)
	}
}
