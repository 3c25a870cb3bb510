package osiertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/osierdb/osier"
)

func kvTogetherTests() []test {
	return []test{
		{"a transaction writes documents and key-values, all or nothing", func(x *tc) {
			n := x.db.KV("n")
			stop := errors.New("stop")
			for _, end := range []error{nil, stop} {
				err := x.db.Update(x.ctx, func(tx *osier.Tx) error {
					if _, err := films.Upsert(x.ctx, tx, "a", film{Title: fmt.Sprint(end)}); err != nil {
						return err
					}
					if _, err := tx.KV("n").Add(x.ctx, "films", 1); err != nil {
						return err
					}
					if _, err := tx.KV("n").List("log").PushBack(x.ctx, []byte("x")); err != nil {
						return err
					}
					return end
				})
				if !errors.Is(err, end) {
					x.Fatalf("got %v, want %v", err, end)
				}
			}
			sum, err := n.Add(x.ctx, "films", 0)
			x.must(err)
			length, err := n.List("log").Len(x.ctx)
			x.must(err)
			x.same("sum and length", []int64{sum, length}, []int64{1, 1})
			x.same("title", x.title(x.db, "a"), "<nil>")
		}},
		{"a transaction sees its own writes and no others'", func(x *tc) {
			n := x.db.KV("n")
			x.must(n.Set(x.ctx, "a", []byte("1")))
			once := true
			x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
				in := tx.KV("n")
				if once {
					once = false
					x.must(n.Set(x.ctx, "b", []byte("outside")))
				}
				x.must(in.Set(x.ctx, "c", []byte("inside")))
				_, err := in.Sorted("z").Add(x.ctx, osier.KVItem{Name: "m", Score: 2}, osier.KVItem{Name: "k", Score: 1})
				x.must(err)
				rank, err := in.Sorted("z").Rank(x.ctx, "m", false)
				x.must(err)
				x.same("rank", rank, int64(1))
				e, err := in.Get(x.ctx, "c")
				x.must(err)
				x.same("own", string(e.Value), "inside")
				_, err = in.Delete(x.ctx, "c")
				x.must(err)
				_, err = in.Get(x.ctx, "c")
				x.kind(err, osier.KindNotFound)
				_, err = n.Get(x.ctx, "z")
				x.kind(err, osier.KindNotFound)
				return nil
			}))
			e, err := n.Get(x.ctx, "b")
			x.must(err)
			x.same("outside", string(e.Value), "outside")
		}},
		{"what a transaction reads is a precondition: keys, absences, ranges, counts", kvPreconditions},
		{"transfers of many goroutines between keys lose nothing", func(x *tc) {
			n := x.db.KV("n")
			const accounts, workers, each = 4, 4, 15
			for i := range accounts {
				x.must(n.Set(x.ctx, fmt.Sprint(i), []byte("100")))
			}
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					for i := range each {
						err := x.db.With(osier.Buffered).Update(x.ctx, func(tx *osier.Tx) error {
							from, to := fmt.Sprint((w+i)%accounts), fmt.Sprint((w+2*i+1)%accounts)
							if _, err := tx.KV("n").Add(x.ctx, from, -1); err != nil {
								return err
							}
							_, err := tx.KV("n").Add(x.ctx, to, 1)
							return err
						})
						if err != nil && osier.KindOf(err) != osier.KindConflict {
							x.Error(err)
						}
					}
				})
			}
			wg.Wait()
			total := int64(0)
			for i := range accounts {
				v, err := n.Add(x.ctx, fmt.Sprint(i), 0)
				x.must(err)
				total += v
			}
			x.same("total", total, int64(100*accounts))
		}},
		{"a batch commits documents and key-values together", func(x *tc) {
			var b osier.Batch
			_, err := films.InsertWithID(x.ctx, &b, "a", film{})
			x.must(err)
			x.must(b.KV("n").Set(x.ctx, "a", []byte("1")))
			_, err = b.KV("n").Get(x.ctx, "a")
			x.kind(err, osier.KindInvalid)
			_, err = x.db.Commit(x.ctx, &b)
			x.must(err)
			_, err = x.db.KV("n").Get(x.ctx, "a")
			x.must(err)
			var again osier.Batch
			_, err = films.InsertWithID(x.ctx, &again, "a", film{})
			x.must(err)
			x.must(again.KV("n").Set(x.ctx, "a", []byte("2")))
			_, err = x.db.Commit(x.ctx, &again)
			x.kind(err, osier.KindConflict)
			e, err := x.db.KV("n").Get(x.ctx, "a")
			x.must(err)
			x.same("value", string(e.Value), "1")
		}},
		{"a value is gone exactly at its deadline, also after reopening", kvDeadlines},
		{"a feed of a prefix shows changes in order", func(x *tc) {
			n := x.db.KV("n").With(osier.Sync)
			each, all := x.watchKV(x.ctx, &osier.KVFeed{Namespace: "n", Prefix: "a"}, 5) // a mark is no row
			x.must(n.Set(x.ctx, "a1", []byte("1")))
			x.must(n.Set(x.ctx, "b", []byte("2")))
			x.must(x.db.KV("other").With(osier.Sync).Set(x.ctx, "a", nil))
			x.must(n.Set(x.ctx, "a2", []byte("3")))
			x.must(n.Set(x.ctx, "a1", []byte("4")))
			_, err := n.Delete(x.ctx, "a2")
			x.must(err)
			_, err = n.List("a3").PushBack(x.ctx, []byte("x"))
			x.must(err)
			var got []string
			last := uint64(0)
			for range 5 {
				ch := receive(x, each).KV
				got = append(got, fmt.Sprint(ch.Key, " ", ch.Type, " ", string(ch.Value)))
				if ch.Version <= last {
					x.Fatalf("version %d after %d", ch.Version, last)
				}
				last = ch.Version
			}
			x.must(receive(x, all).err)
			x.same("feed", got, []string{"a1 a plain value 1", "a2 a plain value 3", "a1 a plain value 4", "a2 nothing ", "a3 a list "})
		}},
		{"a feed of a relaxed namespace ends with the newest state", func(x *tc) {
			n := x.db.KV("n")
			each, _ := x.watchKV(x.ctx, &osier.KVFeed{Namespace: "n", Key: "a"}, 0)
			for i := range 100 {
				x.must(n.Set(x.ctx, "a", fmt.Append(nil, i)))
			}
			for string(receive(x, each).KV.Value) != "99" {
			}
		}},
		{"a feed shows what expires", func(x *tc) {
			n := x.db.KV("n").With(osier.Sync)
			each, _ := x.watchKV(x.ctx, &osier.KVFeed{Namespace: "n", Prefix: "s"}, 0)
			x.must(n.SetFor(x.ctx, "s", []byte("1"), 10*time.Millisecond))
			x.same("set", receive(x, each).KV.Type, osier.KVPlain)
			gone := receive(x, each).KV
			x.same("gone", []any{gone.Type, gone.Expired}, []any{osier.KVNone, true})
		}},
		{"feeds of key-values end with the database and the store", func(x *tc) {
			_, dropped := x.watchKV(x.ctx, &osier.KVFeed{Namespace: "n"}, 0)
			x.must(x.store.DropDB(x.ctx, "shop"))
			x.kind(receive(x, dropped).err, osier.KindNotFound)
			db, err := x.store.CreateDB(x.ctx, "shop")
			x.must(err)
			x.db = db
			_, closed := x.watchKV(x.ctx, &osier.KVFeed{Namespace: "n"}, 0)
			x.must(x.store.Close())
			x.kind(receive(x, closed).err, osier.KindClosed)
		}},
		{"a token of a lease only grows", leaseTokens},
		{"leases are not taken in transactions and batches", func(x *tc) {
			var b osier.Batch
			_, err := b.KV("locks").Acquire(x.ctx, "l", "me", time.Hour)
			x.kind(err, osier.KindUnsupported)
			x.kind(x.db.Update(x.ctx, func(tx *osier.Tx) error {
				_, err := tx.DoKV(x.ctx, osier.KVOp{Namespace: "locks", Key: "l", Verb: osier.KVLeaseAcquire, TTL: 1000})
				return err
			}), osier.KindUnsupported)
		}},
		{"a lease is never held twice", leaseRace},
		{"who waits for a lease gets it when it is released or expires", func(x *tc) {
			n := x.db.KV("locks")
			first, err := n.Acquire(x.ctx, "l", "first", time.Hour)
			x.must(err)
			got := make(chan *osier.Lease, 1)
			go func() {
				l, err := n.AcquireWait(x.ctx, "l", "second", 20*time.Millisecond)
				if err != nil {
					x.Error(err)
				}
				got <- l
			}()
			_, err = n.Acquire(x.ctx, "l", "third", time.Hour)
			x.kind(err, osier.KindConflict)
			x.must(first.Release(x.ctx))
			second := receive(x, got)
			third, err := n.AcquireWait(x.ctx, "l", "third", time.Hour) // after the second's 20 ms
			x.must(err)
			if !(first.Token < second.Token && second.Token < third.Token) {
				x.Fatalf("tokens %d, %d, %d", first.Token, second.Token, third.Token)
			}
			x.kind(second.Renew(x.ctx, time.Hour), osier.KindConflict)
			x.kind(second.Release(x.ctx), osier.KindConflict)
			x.must(third.Renew(x.ctx, time.Hour))
		}},
		{"a lock is held while a function runs, and given back", func(x *tc) {
			n := x.db.KV("locks")
			err := n.WithLock(x.ctx, "l", "me", time.Minute, func(ctx context.Context, l *osier.Lease) error {
				_, err := n.Acquire(ctx, "l", "other", time.Minute)
				x.kind(err, osier.KindConflict)
				return nil
			})
			x.must(err)
			l, err := n.Acquire(x.ctx, "l", "other", time.Minute)
			x.must(err)
			x.must(l.Release(x.ctx))
		}},
		{"a lock that is lost cancels its function", func(x *tc) {
			n := x.db.KV("locks")
			err := n.WithLock(x.ctx, "l", "me", 60*time.Millisecond, func(ctx context.Context, l *osier.Lease) error {
				_, err := n.Delete(x.ctx, "l") // somebody breaks it
				x.must(err)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), osier.ErrLeaseLost) {
					x.Errorf("got %v as the cause", context.Cause(ctx))
				}
				return nil
			})
			if !errors.Is(err, osier.ErrLeaseLost) {
				x.Fatalf("got %v, want the lease to be lost", err)
			}
		}},
		{"structures refuse keys of other types", kvMismatch},
	}
}

func kvPreconditions(x *tc) {
	n := x.db.KV("n")
	reads := map[string]func(in osier.Namespace) error{
		"key":     func(in osier.Namespace) error { _, err := in.Get(x.ctx, "a"); return err },
		"absence": func(in osier.Namespace) error { _, _, err := in.Append(x.ctx, nil, "new"); return err },
		"range": func(in osier.Namespace) error {
			for _, err := range in.Scan(x.ctx, nil) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"count": func(in osier.Namespace) error { _, err := in.Count(x.ctx); return err },
	}
	for name, read := range reads {
		x.must(n.Set(x.ctx, "a", []byte("1")))
		_, err := n.Delete(x.ctx, "new")
		x.must(err)
		runs := 0
		x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
			runs++
			if err := read(tx.KV("n")); err != nil {
				return err
			}
			if runs == 1 { // somebody comes in between
				x.must(n.Set(x.ctx, "a", []byte("2")))
				x.must(n.Set(x.ctx, "new", []byte("2")))
			}
			return tx.KV("n").Set(x.ctx, "out", []byte(name))
		}))
		x.same(name+": runs", runs, 2)
	}
	// A blind write depends on nothing, nor does the part of a range not looked at.
	runs := 0
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		runs++
		for _, err := range tx.KV("n").Scan(x.ctx, &osier.KVScan{Limit: 1}) {
			x.must(err)
		}
		x.must(n.Set(x.ctx, "z", []byte("2")))
		return tx.KV("n").Set(x.ctx, "z", []byte("3"))
	}))
	x.same("runs of a blind write", runs, 1)
}

func kvDeadlines(x *tc) {
	if x.h.NewAt == nil {
		x.Skip("the store's time cannot be chosen")
	}
	clock := newFakeClock()
	x = newCaseOn(x.T, x.h, x.h.NewAt(x.T, clock.now))
	n := func() osier.Namespace { return x.db.KV("n") }
	found := func() string {
		out := ""
		for _, key := range []string{"a", "b", "l"} {
			m, err := n().Info(x.ctx, key)
			x.must(err)
			if m.Type != osier.KVNone {
				out += key
			}
		}
		count, err := n().Count(x.ctx)
		x.must(err)
		x.same("count", count, uint64(len(out)))
		return out
	}
	x.must(n().SetFor(x.ctx, "a", []byte("1"), 10*time.Millisecond))
	x.must(n().With(osier.Sync).SetFor(x.ctx, "b", []byte("1"), 20*time.Millisecond))
	_, err := n().List("l").PushBack(x.ctx, []byte("1"))
	x.must(err)
	_, err = n().ExpireAt(x.ctx, "l", clock.now().Add(30*time.Millisecond))
	x.must(err)
	left, expires, err := n().TimeLeft(x.ctx, "a")
	x.must(err)
	x.same("expires", expires, true)
	_ = left // by the handle's clock, which a test need not share
	clock.move(9 * time.Millisecond)
	x.same("after 9 ms", found(), "abl")
	clock.move(time.Millisecond)
	x.same("after 10 ms", found(), "bl")
	if x.h.Reopen != nil {
		x.reopen()
	}
	clock.move(9 * time.Millisecond)
	x.same("after 19 ms", found(), "bl")
	clock.move(time.Millisecond)
	x.same("after 20 ms", found(), "l")
	ok, err := n().Persist(x.ctx, "l")
	x.must(err)
	x.same("persisted", ok, true)
	clock.move(time.Hour)
	x.same("after an hour", found(), "l")
	ok, err = n().ExpireAt(x.ctx, "l", clock.now())
	x.must(err)
	x.same("expired at once", ok, true)
	x.same("at once", found(), "")
	_, err = n().List("l").PushBack(x.ctx, []byte("new"))
	x.must(err)
	all, err := n().List("l").Range(x.ctx, 0, -1)
	x.must(err)
	x.same("a new list", len(all), 1)
}

func leaseTokens(x *tc) {
	last := uint64(0)
	take := func() *osier.Lease {
		l, err := x.db.KV("locks").Acquire(x.ctx, "l", "me", time.Hour)
		x.must(err)
		if l.Token <= last {
			x.Fatalf("token %d after %d", l.Token, last)
		}
		last = l.Token
		return l
	}
	x.must(take().Release(x.ctx))
	l := take()
	x.kind(x.db.KV("locks").Set(x.ctx, "l", nil), osier.KindInvalid)
	x.must(l.Release(x.ctx))
	if x.h.Reopen != nil {
		take()
		x.reopen()
		_, err := x.db.KV("locks").Acquire(x.ctx, "l", "you", time.Hour)
		x.kind(err, osier.KindConflict)
		_, err = x.db.KV("locks").Delete(x.ctx, "l")
		x.must(err)
		take()
	}
}

func leaseRace(x *tc) {
	n := x.db.KV("locks")
	const workers, each = 4, 6
	held, highest := 0, uint64(0) // guarded by the lease alone
	var mu sync.Mutex             // for the race detector's and the test's sake
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				err := n.WithLock(x.ctx, "l", fmt.Sprint(w), time.Minute, func(_ context.Context, l *osier.Lease) error {
					mu.Lock()
					held++
					if held != 1 || l.Token <= highest {
						x.Errorf("%d hold the lease, token %d after %d", held, l.Token, highest)
					}
					highest = l.Token
					mu.Unlock()
					mu.Lock()
					held--
					mu.Unlock()
					return nil
				})
				if err != nil {
					x.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func kvMismatch(x *tc) {
	n := x.db.KV("n")
	x.must(n.Set(x.ctx, "plain", []byte("1")))
	_, err := n.Members("set").Add(x.ctx, "m")
	x.must(err)
	_, err = n.List("plain").PushBack(x.ctx, nil)
	x.kind(err, osier.KindInvalid)
	_, err = n.Sorted("set").Add(x.ctx, osier.KVItem{Name: "m"})
	x.kind(err, osier.KindInvalid)
	_, err = n.Hash("set").Len(x.ctx)
	x.kind(err, osier.KindInvalid)
	_, err = n.List("set").Range(x.ctx, 0, -1)
	x.kind(err, osier.KindInvalid)
	_, err = n.Get(x.ctx, "set")
	x.kind(err, osier.KindInvalid)
	_, err = n.Add(x.ctx, "set", 1)
	x.kind(err, osier.KindInvalid)
	x.must(n.Set(x.ctx, "set", []byte("over it")))
	e, err := n.Get(x.ctx, "set")
	x.must(err)
	x.same("value", string(e.Value), "over it")
	_, err = n.List("gone").At(x.ctx, 0)
	x.kind(err, osier.KindNotFound)
	_, err = n.Hash("gone").Get(x.ctx, "f")
	x.kind(err, osier.KindNotFound)
	_, err = n.Sorted("gone").Score(x.ctx, "m")
	x.kind(err, osier.KindNotFound)
}
