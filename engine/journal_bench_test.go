package engine

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// eventBytes is the size of an event in the benchmarks.
const eventBytes = 58

func benchJournal(b *testing.B, o *Options) (*Engine, *osier.DB, *osier.Journal) {
	b.Helper()
	if o == nil {
		o = &Options{}
	}
	e := mustOpen(b, b.TempDir(), o)
	b.Cleanup(func() { mustClose(b, e) })
	db, err := e.DB(context.Background(), "shop")
	if err != nil {
		b.Fatal(err)
	}
	j := osier.NewJournal("events")
	if _, err := j.Append(context.Background(), db, make([]byte, eventBytes)); err != nil {
		b.Fatal(err)
	}
	return e, db.With(osier.Relaxed), j
}

func BenchmarkJournalAppend(b *testing.B) {
	ctx := context.Background()
	b.Run("relaxed", func(b *testing.B) {
		_, db, j := benchJournal(b, nil)
		data := make([]byte, eventBytes)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := j.Append(ctx, db, data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("relaxed batch of 100", func(b *testing.B) {
		_, db, j := benchJournal(b, nil)
		events := make([]osier.Event, 100)
		for i := range events {
			events[i].Data = make([]byte, eventBytes)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := j.AppendEvents(ctx, db, events, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/event")
	})
	b.Run("in order", func(b *testing.B) {
		_, db, j := benchJournal(b, nil)
		events := []osier.Event{{Data: make([]byte, eventBytes)}}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := j.AppendEvents(ctx, db, events, &osier.AppendOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkJournalRead(b *testing.B) {
	ctx := context.Background()
	e, db, j := benchJournal(b, nil)
	events := make([]osier.Event, 100)
	for i := range events {
		events[i].Data = make([]byte, eventBytes)
	}
	for range 200 {
		if _, err := j.AppendEvents(ctx, db, events, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := e.drain(ctx, store.Sync); err != nil {
		b.Fatal(err)
	}
	if err := e.Compact(ctx); err != nil {
		b.Fatal(err)
	}
	b.Run("10000 events", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for ev, err := range j.Read(ctx, db, &osier.ReadOptions{All: true, Limit: 10_000}) {
				if err != nil {
					b.Fatal(err)
				}
				n += len(ev.Data)
			}
			if n != 10_000*eventBytes {
				b.Fatalf("%d bytes", n)
			}
		}
	})
	b.Run("10000 events as windows", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for w, err := range j.Windows(ctx, db, &osier.ReadOptions{All: true, Limit: 10_000}) {
				if err != nil {
					b.Fatal(err)
				}
				n += w.Count
			}
			if n != 10_000 {
				b.Fatalf("%d events", n)
			}
		}
	})
}

func BenchmarkTopicFanOut(b *testing.B) {
	ctx := context.Background()
	_, db, _ := benchJournal(b, &Options{InMemory: true})
	var wg sync.WaitGroup
	const subscribers = 10
	got := make([]int, subscribers)
	for i := range subscribers {
		s, err := osier.Subscribe(ctx, db, &osier.TopicFeed{Patterns: []string{"orders.*"}, Buffer: 1 << 16})
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			defer s.Close()
			for {
				m, err := s.Next(ctx)
				if err != nil {
					b.Error(err)
					return
				}
				got[i] += 1 + int(m.Missed)
				if len(m.Data) == 1 {
					return
				}
			}
		})
	}
	data := make([]byte, 64)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := osier.Publish(ctx, db, osier.Message{Topic: "orders.created", Data: data}, false); err != nil {
			b.Fatal(err)
		}
	}
	if err := osier.Publish(ctx, db, osier.Message{Topic: "orders.created", Data: data[:1]}, false); err != nil {
		b.Fatal(err)
	}
	wg.Wait()
	b.StopTimer()
	n := 0
	for _, k := range got {
		n += k
	}
	if n != subscribers*(b.N+1) {
		b.Errorf("got %d of %d messages", n, subscribers*(b.N+1))
	}
	b.ReportMetric(float64(subscribers*b.N)/b.Elapsed().Seconds(), "deliveries/s")
	runtime.KeepAlive(got)
}
