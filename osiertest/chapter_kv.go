package osiertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/osierdb/osier"
)

func kvTests() []test {
	return []test{
		{"a value is what was set last, and its version grows", func(x *tc) {
			n := x.db.KV("n")
			_, err := n.Get(x.ctx, "a")
			x.kind(err, osier.KindNotFound)
			x.must(n.Set(x.ctx, "a", []byte("1")))
			first, err := n.Get(x.ctx, "a")
			x.must(err)
			x.must(n.Set(x.ctx, "a", []byte("a longer one")))
			second, err := n.Get(x.ctx, "a")
			x.must(err)
			x.same("values", string(first.Value)+","+string(second.Value), "1,a longer one")
			if second.Version <= first.Version {
				x.Fatalf("versions %d, then %d", first.Version, second.Version)
			}
		}},
		{"Append leaves what is before it, and a vacant key alone", func(x *tc) {
			n := x.db.KV("n")
			x.must(n.Set(x.ctx, "a", []byte("1")))
			b, m, err := n.Append(x.ctx, []byte("x"), "a")
			x.must(err)
			x.same("appended", string(b), "x1")
			b, none, err := n.Append(x.ctx, b, "b")
			x.must(err)
			x.same("found", []bool{m.Found(), none.Found()}, []bool{true, false})
			x.same("appended", string(b), "x1")
		}},
		{"conditions that do not hold are ErrConflict and change nothing", kvConditions},
		{"the previous value is returned when asked for", func(x *tc) {
			n := x.db.KV("n")
			d, err := n.Put(x.ctx, "a", []byte("1"), osier.KVSetOptions{Previous: true})
			x.must(err)
			x.same("found", d.Found, false)
			d, err = n.Put(x.ctx, "a", []byte("2"), osier.KVSetOptions{Previous: true})
			x.must(err)
			x.same("previous", string(d.Previous), "1")
			d, err = n.Take(x.ctx, "a")
			x.must(err)
			x.same("taken", string(d.Previous), "2")
			found, err := n.Delete(x.ctx, "a")
			x.must(err)
			x.same("found", found, false)
		}},
		{"numbers saturate, wrap or fail as asked", kvNumbers},
		{"several keys are written, read and deleted in one call", func(x *tc) {
			n := x.db.KV("n")
			x.must(n.SetMany(x.ctx, osier.KVItem{Name: "a", Value: []byte("1")}, osier.KVItem{Name: "b", Value: []byte("2")}))
			got, err := n.GetMany(x.ctx, "b", "c", "a")
			x.must(err)
			x.same("values", []string{string(got[0].Value), string(got[1].Value), string(got[2].Value)}, []string{"2", "", "1"})
			x.same("found", []bool{got[0].Found(), got[1].Found()}, []bool{true, false})
			gone, err := n.DeleteMany(x.ctx, "a", "b", "c")
			x.must(err)
			x.same("deleted", gone, 2)
		}},
		{"a scan goes by prefix and range, both ways, with a cursor", kvScans},
		{"namespaces are apart, counted, listed and dropped", func(x *tc) {
			for _, name := range []string{"one", "two"} {
				for i := range 3 {
					x.must(x.db.KV(name).Set(x.ctx, fmt.Sprint(i), []byte(name)))
				}
			}
			_, err := x.db.KV("two").List("l").PushBack(x.ctx, []byte("x"))
			x.must(err)
			x.must(x.db.KV("one").Drop(x.ctx))
			x.must(x.db.KV("none").Drop(x.ctx))
			count, err := x.db.KV("one").Count(x.ctx)
			x.must(err)
			x.same("count", count, uint64(0))
			_, err = x.db.KV("one").Get(x.ctx, "1")
			x.kind(err, osier.KindNotFound)
			all, err := x.db.Namespaces(x.ctx)
			x.must(err)
			x.same("namespaces", all, []osier.NamespaceInfo{{Name: "two", Keys: 4}})
			info, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("namespaces", info.Namespaces, all)
		}},
		{"bad names, keys and arguments are ErrInvalid", func(x *tc) {
			n := x.db.KV("n")
			x.kind(x.db.KV("a:b").Set(x.ctx, "a", nil), osier.KindInvalid)
			x.kind(x.db.KV("").Set(x.ctx, "a", nil), osier.KindInvalid)
			x.kind(n.Set(x.ctx, "", nil), osier.KindInvalid)
			_, err := n.Get(x.ctx, "")
			x.kind(err, osier.KindInvalid)
			x.kind(n.SetFor(x.ctx, "a", nil, -1), osier.KindInvalid)
			_, err = n.Expire(x.ctx, "a", 0)
			x.kind(err, osier.KindInvalid)
			_, err = n.Put(x.ctx, "a", nil, osier.KVSetOptions{For: time.Second, KeepExpiration: true})
			x.kind(err, osier.KindInvalid)
			for _, err := range x.db.Watch(x.ctx, &osier.Feed{KV: &osier.KVFeed{Namespace: "n"}}) {
				x.kind(err, osier.KindInvalid)
			}
		}},
		{"increments of many goroutines are never lost", func(x *tc) {
			for _, level := range []osier.Durability{osier.Relaxed, osier.Buffered} {
				n := x.db.KV("n").With(level)
				const workers, each = 8, 50
				var wg sync.WaitGroup
				for range workers {
					wg.Go(func() {
						for range each {
							if _, err := n.Add(x.ctx, "hits", 1); err != nil {
								x.Error(err)
							}
						}
					})
				}
				wg.Wait()
				sum, err := n.Add(x.ctx, "hits", 0)
				x.must(err)
				x.same("sum", sum, int64(workers*each))
				_, err = n.Delete(x.ctx, "hits")
				x.must(err)
			}
		}},
		{"what was acknowledged is there after reopening, at every level", func(x *tc) {
			for i, level := range []osier.Durability{osier.Relaxed, osier.Buffered, osier.Sync} {
				x.must(x.db.KV("n").With(level).Set(x.ctx, fmt.Sprint(i), []byte("v")))
			}
			before, err := x.db.KV("n").Get(x.ctx, "2")
			x.must(err)
			x.reopen()
			n := x.db.KV("n")
			for i := range 3 {
				_, err := n.Get(x.ctx, fmt.Sprint(i))
				x.must(err)
			}
			x.must(n.Set(x.ctx, "2", nil))
			after, err := n.Get(x.ctx, "2")
			x.must(err)
			if after.Version <= before.Version {
				x.Fatalf("version %d after reopening, %d before", after.Version, before.Version)
			}
		}},
		{"a typed namespace keeps values of its type", func(x *tc) {
			kv := osier.NewKV[film]("films")
			x.must(kv.Set(x.ctx, x.db, "a", film{Title: "One", Year: 1}))
			v, m, err := kv.Get(x.ctx, x.db, "a")
			x.must(err)
			x.same("value", v, film{Title: "One", Year: 1})
			x.same("found", m.Found(), true)
			_, err = kv.Modify(x.ctx, x.db, "a", func(f *film) error { f.Year++; return nil })
			x.must(err)
			x.must(kv.SetFor(x.ctx, x.db, "b", film{Title: "Two"}, time.Hour))
			var titles []string
			for p, err := range kv.Scan(x.ctx, x.db, nil) {
				x.must(err)
				titles = append(titles, fmt.Sprint(p.Key, p.Value.Title, p.Value.Year))
			}
			x.same("scan", titles, []string{"aOne2", "bTwo0"})
			x.must(x.db.KV("films").Set(x.ctx, "c", []byte("{")))
			_, _, err = kv.Get(x.ctx, x.db, "c")
			x.kind(err, osier.KindInvalid)
		}},
		{"rights are by namespace", kvAccess},
		{"a repeated command gets its first answer", func(x *tc) {
			add := func(number uint64) *osier.Result {
				res, err := x.db.Exec(x.ctx, &osier.Command{Session: "s", Number: number, Ops: []osier.Op{
					{Kind: osier.OpKV, KV: &osier.KVOp{Namespace: "n", Key: "a", Verb: osier.KVAddInt, Number: 1}},
					{Kind: osier.OpKV, KV: &osier.KVOp{Namespace: "n", Key: "l", Verb: osier.KVListPush, Items: []osier.KVItem{{Value: []byte("x")}}}},
					{Kind: osier.OpKV, KV: &osier.KVOp{Namespace: "n", Key: "l", Verb: osier.KVListPop, Count: 2}},
				}})
				x.must(err)
				return res
			}
			first, again, next := add(1), add(1), add(2)
			for i := range first.Ops {
				x.same("answer", *again.Ops[i].KV, *first.Ops[i].KV)
			}
			x.same("sums", []uint64{first.Ops[0].KV.Number, next.Ops[0].KV.Number}, []uint64{1, 2})
			x.reopen()
			for i, op := range add(1).Ops {
				x.same("answer after reopening", *op.KV, *first.Ops[i].KV)
			}
		}},
		{"a new database of the same name is empty, also for old handles", func(x *tc) {
			n := x.db.KV("n")
			x.must(n.Set(x.ctx, "a", []byte("1")))
			x.must(x.store.DropDB(x.ctx, "shop"))
			_, err := n.Get(x.ctx, "a")
			x.kind(err, osier.KindNotFound)
			x.kind(n.Set(x.ctx, "a", nil), osier.KindNotFound)
			_, err = x.store.CreateDB(x.ctx, "shop")
			x.must(err)
			_, m, err := n.Append(x.ctx, nil, "a")
			x.must(err)
			x.same("found", m.Found(), false)
			x.must(n.Set(x.ctx, "a", []byte("2")))
			e, err := n.Get(x.ctx, "a")
			x.must(err)
			x.same("value", string(e.Value), "2")
		}},
		{"after Close everything is ErrClosed", func(x *tc) {
			n := x.db.KV("n")
			x.must(n.Set(x.ctx, "a", []byte("1")))
			x.must(x.store.Close())
			x.kind(n.Set(x.ctx, "a", nil), osier.KindClosed)
			_, err := n.Get(x.ctx, "a")
			x.kind(err, osier.KindClosed)
			_, err = n.Add(x.ctx, "a", 1)
			x.kind(err, osier.KindClosed)
		}},
	}
}

func kvConditions(x *tc) {
	n := x.db.KV("n")
	put := func(key string, o osier.KVSetOptions) error {
		_, err := n.Put(x.ctx, key, []byte("new"), o)
		return err
	}
	x.must(n.Set(x.ctx, "a", []byte("1")))
	e, err := n.Get(x.ctx, "a")
	x.must(err)
	for name, o := range map[string]osier.KVSetOptions{
		"vacant": {If: osier.IfVacant}, "equal": {If: osier.IfEqual, Equal: []byte("2")},
		"version": {If: osier.IfVersion, Version: e.Version - 1}, "no version": {If: osier.IfVersion},
	} {
		if err := put("a", o); !errors.Is(err, osier.ErrConflict) {
			x.Fatalf("%s: got %v", name, err)
		}
	}
	x.kind(put("b", osier.KVSetOptions{If: osier.IfPresent}), osier.KindConflict)
	x.kind(put("b", osier.KVSetOptions{If: osier.IfVersion, Version: 1}), osier.KindConflict)
	same, err := n.Get(x.ctx, "a")
	x.must(err)
	x.same("version", same.Version, e.Version)
	x.must(put("b", osier.KVSetOptions{If: osier.IfVacant}))
	x.must(put("c", osier.KVSetOptions{If: osier.IfVersion}))
	x.must(put("a", osier.KVSetOptions{If: osier.IfVersion, Version: e.Version}))
	x.must(put("a", osier.KVSetOptions{If: osier.IfEqual, Equal: []byte("new")}))
	x.must(put("a", osier.KVSetOptions{If: osier.IfPresent}))
	_, err = n.DeleteIf(x.ctx, "a", osier.KVSetOptions{If: osier.IfEqual, Equal: []byte("old")})
	x.kind(err, osier.KindConflict)
}

func kvNumbers(x *tc) {
	n := x.db.KV("n")
	at := func(key, value string) { x.must(n.Set(x.ctx, key, []byte(value))) }
	at("i", "9223372036854775806")
	sum, err := n.Add(x.ctx, "i", 5)
	x.must(err)
	x.same("saturated", sum, int64(math.MaxInt64))
	sum, err = n.AddWith(x.ctx, "i", 1, osier.Wrap)
	x.must(err)
	x.same("wrapped", sum, int64(math.MinInt64))
	_, err = n.AddWith(x.ctx, "i", -1, osier.Fail)
	x.kind(err, osier.KindInvalid)
	u, err := n.SubUint(x.ctx, "u", 1, osier.Saturate)
	x.must(err)
	x.same("saturated", u, uint64(0))
	u, err = n.SubUint(x.ctx, "u", 1, osier.Wrap)
	x.must(err)
	x.same("wrapped", u, uint64(math.MaxUint64))
	_, err = n.AddUint(x.ctx, "u", 1, osier.Fail)
	x.kind(err, osier.KindInvalid)
	f, err := n.AddFloat(x.ctx, "f", 1.25, osier.Saturate)
	x.must(err)
	x.same("sum", f, 1.25)
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		_, err = n.AddFloat(x.ctx, "f", bad, osier.Saturate)
		x.kind(err, osier.KindInvalid)
	}
	_, err = n.AddFloat(x.ctx, "f", 1, osier.Wrap)
	x.kind(err, osier.KindInvalid)
	at("t", "text")
	_, err = n.Add(x.ctx, "t", 1)
	x.kind(err, osier.KindInvalid)
	length, err := n.Extend(x.ctx, "t", []byte("+"))
	x.must(err)
	x.same("length", length, int64(5))
}

func kvScans(x *tc) {
	n := x.db.KV("n")
	for _, key := range []string{"b2", "a", "b1", "\xff", "c", "b"} {
		x.must(n.Set(x.ctx, key, []byte("v"+key)))
	}
	keys := func(o *osier.KVScan) (out []string) {
		for e, err := range n.Scan(x.ctx, o) {
			x.must(err)
			out = append(out, e.Key)
		}
		return out
	}
	x.same("all", keys(nil), []string{"a", "b", "b1", "b2", "c", "\xff"})
	x.same("prefix", keys(&osier.KVScan{Prefix: "b"}), []string{"b", "b1", "b2"})
	x.same("last prefix", keys(&osier.KVScan{Prefix: "\xff"}), []string{"\xff"})
	x.same("range", keys(&osier.KVScan{From: "b1", Until: "c"}), []string{"b1", "b2"})
	x.same("reverse", keys(&osier.KVScan{Prefix: "b", Reverse: true, Limit: 2}), []string{"b2", "b1"})
	x.same("skip", keys(&osier.KVScan{Skip: 4}), []string{"c", "\xff"})
	var paged []string
	for from := ""; ; {
		page := keys(&osier.KVScan{From: from, Limit: 2})
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
		from = page[len(page)-1] + "\x00"
	}
	x.same("paged", paged, []string{"a", "b", "b1", "b2", "c", "\xff"})
	for e, err := range n.Scan(x.ctx, &osier.KVScan{NoValues: true, Limit: 1}) {
		x.must(err)
		x.same("no value", len(e.Value), 0)
	}
}

func kvAccess(x *tc) {
	x.must(x.db.KV("mine").Set(x.ctx, "a", []byte("1")))
	x.must(x.db.KV("other").Set(x.ctx, "a", []byte("1")))
	reader := x.db.As(osier.Principal{Name: "r", Grants: []osier.Grant{{Actions: osier.MayRead, DB: "shop", Collection: "kv:mine"}}})
	_, err := reader.KV("mine").Get(x.ctx, "a")
	x.must(err)
	_, err = reader.KV("other").Get(x.ctx, "a")
	x.kind(err, osier.KindDenied)
	x.kind(reader.KV("mine").Set(x.ctx, "a", nil), osier.KindDenied)
	all, err := reader.Namespaces(x.ctx)
	x.must(err)
	x.same("seen", all, []osier.NamespaceInfo{{Name: "mine", Keys: 1}})
	for _, err := range reader.KV("other").Watch(x.ctx, "") {
		x.kind(err, osier.KindDenied)
	}
	writer := x.db.As(osier.Principal{Name: "w", Grants: []osier.Grant{{Actions: osier.MayWrite, DB: "shop", Collection: "kv:*"}}})
	x.must(writer.KV("mine").Set(x.ctx, "a", []byte("2")))
	_, err = writer.KV("mine").Put(x.ctx, "a", nil, osier.KVSetOptions{Previous: true})
	x.kind(err, osier.KindDenied)
	_, err = writer.KV("mine").Add(x.ctx, "a", 1)
	x.kind(err, osier.KindDenied)
	x.kind(writer.KV("mine").Drop(x.ctx), osier.KindDenied)
	_, err = films.Upsert(x.ctx, writer, "a", film{})
	x.kind(err, osier.KindDenied)
	x.kind(writer.Update(x.ctx, func(tx *osier.Tx) error {
		_, err := tx.KV("mine").Add(x.ctx, "a", 1)
		return err
	}), osier.KindDenied)
	admin := x.db.As(osier.Admin("root"))
	_, err = admin.KV("mine").Add(x.ctx, "a", 1)
	x.must(err)
	x.must(admin.KV("mine").Drop(x.ctx))
}

// watchKV begins a feed and returns when it has begun.
func (x *tc) watchKV(ctx context.Context, f *osier.KVFeed, limit int) (<-chan osier.Change, <-chan outcome[osier.Change]) {
	x.Helper()
	each, all := follow(x.db.Watch(ctx, &osier.Feed{Mode: osier.FeedLive, Marks: true, Limit: limit, KV: f}))
	if ch := receive(x, each); !ch.Mark {
		x.Fatalf("got %+v, want a mark", ch)
	}
	return each, all
}
