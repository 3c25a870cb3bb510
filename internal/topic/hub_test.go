package topic

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

// plainly is a pattern read token by token.
func plainly(pattern, topic string) bool {
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

// The tree finds whom a loop over all patterns would find, while subscriptions
// come and go, and is empty when all have gone.
func TestTreeFindsWhatALoopFinds(t *testing.T) {
	token := rapid.SampledFrom([]string{"a", "b", "cc", "*"})
	rapid.Check(t, func(t *rapid.T) {
		h := New("shop", Limits{})
		var open []*Sub
		t.Repeat(map[string]func(*rapid.T){
			"subscribe": func(t *rapid.T) {
				var patterns []string
				for range rapid.IntRange(1, 3).Draw(t, "patterns") {
					tokens := rapid.SliceOfN(token, 1, 4).Draw(t, "tokens")
					if rapid.Bool().Draw(t, "rest") {
						tokens[len(tokens)-1] = ">"
					}
					patterns = append(patterns, strings.Join(tokens, "."))
				}
				s, err := h.Subscribe(&osier.TopicFeed{Patterns: patterns})
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, s)
			},
			"close": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("none is open")
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				open[i].Close()
				open = slices.Delete(open, i, i+1)
			},
			"publish": func(t *rapid.T) {
				topic := strings.ReplaceAll(strings.Join(rapid.SliceOfN(token, 1, 4).Draw(t, "topic"), "."), "*", "x")
				if err := h.Publish(&osier.Message{Topic: topic}, false); err != nil {
					t.Fatal(err)
				}
				for _, s := range open {
					want := slices.ContainsFunc(s.patterns, func(p string) bool { return plainly(p, topic) })
					got := s.n == 1 && s.pop().Topic == topic
					if got != want || s.n != 0 || want != slices.ContainsFunc(s.patterns, func(p string) bool { return Matches(p, topic) }) {
						t.Fatalf("%q to patterns %q: got %v, want %v, %d left", topic, s.patterns, got, want, s.n)
					}
				}
			},
		})
		for _, s := range open {
			s.Close()
		}
		if !h.root.empty() || h.patterns != 0 || h.Subscriptions() != 0 {
			t.Fatalf("something is left: %+v", h.root)
		}
	})
}

// A buffer holds as much as was asked for; what is missed is counted, exactly.
func TestBufferKeepsTheNewest(t *testing.T) {
	h := New("shop", Limits{})
	for _, f := range []osier.TopicFeed{{Buffer: 3}, {BufferBytes: 3}} {
		f.Patterns = []string{"a"}
		s, err := h.Subscribe(&f)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if err := h.Publish(&osier.Message{Topic: "a", Data: []byte{byte(i)}}, false); err != nil {
				t.Fatal(err)
			}
		}
		for i := 7; i < 10; i++ {
			m, err := s.Next(t.Context())
			if err != nil || int(m.Data[0]) != i || (m.Missed != 0) != (i == 7) || m.Missed > 7 {
				t.Errorf("got %v with %d missed (%v), want %d", m.Data, m.Missed, err, i)
			}
		}
		if err := h.Publish(&osier.Message{Topic: "a", Data: make([]byte, 100)}, false); err != nil {
			t.Fatal(err)
		}
		if f.BufferBytes > 0 && s.n != 0 {
			t.Error("a message larger than the buffer is in it")
		}
		s.Close()
	}
}

// A reader sleeps until a message, the end of its context or of the hub, and
// leaves nothing behind.
func TestNextSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New("shop", Limits{})
		s, err := h.Subscribe(&osier.TopicFeed{Patterns: []string{">"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Next(ctx); osier.KindOf(err) != osier.KindCanceled {
			t.Errorf("got %v, want it canceled", err)
		}
		got := make(chan string, 10)
		go func() {
			for {
				m, err := s.Next(t.Context())
				if err != nil {
					got <- osier.KindOf(err).String()
					return
				}
				got <- m.Topic
			}
		}()
		synctest.Wait()
		if err := h.Publish(&osier.Message{Topic: "a"}, false); err != nil {
			t.Fatal(err)
		}
		if m := <-got; m != "a" {
			t.Errorf("got %q", m)
		}
		synctest.Wait()
		h.End(&osier.Error{Kind: osier.KindClosed})
		if m := <-got; m != "closed" {
			t.Errorf("got %q", m)
		}
	})
}

func TestLimitsAreKept(t *testing.T) {
	h := New("shop", Limits{Subscriptions: 2, Retained: 2, RetainedBytes: 10})
	want := func(what string, err error, kind osier.Kind) {
		t.Helper()
		if got := osier.KindOf(err); got != kind || err == nil {
			t.Errorf("%s: got %v, want %v", what, err, kind)
		}
	}
	s, err := h.Subscribe(&osier.TopicFeed{Patterns: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Subscribe(&osier.TopicFeed{Patterns: []string{"c"}})
	want("one pattern too many", err, osier.KindTooLarge)
	s.Close()
	for _, topic := range []string{"a", "b", "a"} {
		if err := h.Publish(&osier.Message{Topic: topic, Data: []byte("12345")}, true); err != nil {
			t.Fatal(err)
		}
	}
	want("one topic too many", h.Publish(&osier.Message{Topic: "c", Data: []byte{}}, true), osier.KindTooLarge)
	want("too many bytes", h.Publish(&osier.Message{Topic: "a", Data: []byte("123456")}, true), osier.KindTooLarge)
	if err := h.Publish(&osier.Message{Topic: "b"}, true); err != nil {
		t.Fatal(err)
	}
	if err := h.Publish(&osier.Message{Topic: "a", Data: []byte("123456")}, true); err != nil {
		t.Errorf("after one was forgotten: %v", err)
	}
}

// Finding the subscribers of a topic does not take a look at every pattern.
func BenchmarkPublishAmongPatterns(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n, " patterns"), func(b *testing.B) {
			h := New("shop", Limits{})
			for i := range n {
				if _, err := h.Subscribe(&osier.TopicFeed{Patterns: []string{fmt.Sprintf("orders.%d.*.x%d", i%1000, i/1000)}, Buffer: 1}); err != nil {
					b.Fatal(err)
				}
			}
			m := &osier.Message{Topic: "orders.7.eu.x0"}
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Publish(m, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
