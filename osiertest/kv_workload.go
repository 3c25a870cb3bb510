package osiertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

// A kvStep is a step of a random history of key-values, and what it prints is
// what it takes to see that two stores do the same: everything but versions,
// which may be any that grow.
type kvStep struct {
	what string // op, batch, query, tx or wait
	ops  []osier.KVOp
	q    osier.Query
	wait time.Duration
}

func (s kvStep) String() string {
	switch s.what {
	case "wait":
		return fmt.Sprintf("wait %v", s.wait)
	case "query":
		return fmt.Sprintf("query %d %+v reverse %v skip %d limit %d", s.q.Kind, *s.q.KV, s.q.Reverse, s.q.Skip, s.q.Limit)
	}
	return fmt.Sprintf("%s %+v", s.what, s.ops)
}

var kvKeys = []string{"a", "aa", "ab", "b", "\xff", "\xff\xff"}

// drawKVHistory draws a history over few keys, so that they meet.
func drawKVHistory(t *rapid.T, steps int) []kvStep {
	gen := rapid.Custom(func(t *rapid.T) kvStep {
		switch rapid.IntRange(0, 19).Draw(t, "what") {
		case 0, 1:
			return kvStep{what: "wait", wait: time.Duration(rapid.SampledFrom([]int{1, 9, 10, 11, 49, 50, 1000}).Draw(t, "millis")) * time.Millisecond}
		case 2, 3, 4, 5, 6:
			return kvStep{what: "query", q: drawKVQuery(t)}
		case 7, 8:
			return kvStep{what: rapid.SampledFrom([]string{"batch", "tx"}).Draw(t, "together"), ops: rapid.SliceOfN(rapid.Custom(drawKVOp), 1, 4).Draw(t, "ops")}
		}
		return kvStep{what: "op", ops: []osier.KVOp{drawKVOp(t)}}
	})
	return rapid.SliceOfN(gen, steps, steps).Draw(t, "history")
}

func drawKVValue(t *rapid.T) []byte {
	return []byte(rapid.SampledFrom([]string{"", "x", "7", "-3", "2.5", "9223372036854775807", "a longer value that does not fit where a short one was"}).Draw(t, "value"))
}

func drawKVItems(t *rapid.T) []osier.KVItem {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) osier.KVItem {
		return osier.KVItem{Name: rapid.SampledFrom([]string{"", "m", "n", "o", "p"}).Draw(t, "name"), Value: drawKVValue(t),
			Score: rapid.SampledFrom([]float64{math.Inf(-1), -1, 0, 0, 1, 1.5, math.Inf(1)}).Draw(t, "score")}
	}), 1, 4).Draw(t, "items")
}

func drawKVRange(t *rapid.T) osier.KVRange {
	place := rapid.Int64Range(-4, 4)
	score := rapid.SampledFrom([]float64{math.Inf(-1), -1, 0, 1, 2, math.Inf(1)})
	return osier.KVRange{From: place.Draw(t, "from"), To: place.Draw(t, "to"), ByScore: rapid.Bool().Draw(t, "by score"),
		Min: score.Draw(t, "min"), Max: score.Draw(t, "max"), WithoutMin: rapid.Bool().Draw(t, "without min"),
		WithoutMax: rapid.Bool().Draw(t, "without max"), Reverse: rapid.Bool().Draw(t, "reverse"),
		Skip: rapid.Int64Range(0, 2).Draw(t, "skip"), Limit: rapid.Int64Range(0, 2).Draw(t, "limit")}
}

func drawKVOp(t *rapid.T) osier.KVOp {
	verbs := []osier.KVVerb{
		osier.KVSet, osier.KVSet, osier.KVSet, osier.KVDelete, osier.KVExpire, osier.KVPersist, osier.KVAddInt, osier.KVAddUint, osier.KVAddFloat, osier.KVAppend,
		osier.KVListPush, osier.KVListPush, osier.KVListPop, osier.KVListTrim, osier.KVListSet, osier.KVListRemove,
		osier.KVHashSet, osier.KVHashDelete, osier.KVHashAddInt, osier.KVHashAddFloat, osier.KVHashInsert, osier.KVSetAdd, osier.KVSetRemove,
		osier.KVSortedAdd, osier.KVSortedAdd, osier.KVSortedRemove, osier.KVSortedAddScore, osier.KVSortedPop, osier.KVSortedRemoveRange,
	}
	op := osier.KVOp{Namespace: "n", Key: rapid.SampledFrom(kvKeys).Draw(t, "key"), Verb: rapid.SampledFrom(verbs).Draw(t, "verb")}
	op.If = osier.KVIf(max(0, rapid.IntRange(-9, 3).Draw(t, "if")))
	op.IfValue, op.Previous = drawKVValue(t), rapid.Bool().Draw(t, "previous")
	op.Overflow = osier.Overflow(rapid.IntRange(0, 2).Draw(t, "overflow"))
	op.Front, op.Negative = rapid.Bool().Draw(t, "front"), rapid.Bool().Draw(t, "negative")
	op.Count, op.Range = rapid.Int64Range(0, 3).Draw(t, "count"), drawKVRange(t)
	op.Number = rapid.SampledFrom([]uint64{0, 1, math.MaxUint64, 1 << 63, math.MaxInt64, math.Float64bits(1.5), math.Float64bits(math.MaxFloat64), math.Float64bits(math.NaN())}).Draw(t, "number")
	switch op.Verb {
	case osier.KVSet:
		op.Value = drawKVValue(t)
		if op.Keep = rapid.IntRange(0, 3).Draw(t, "keep") == 0; !op.Keep {
			op.TTL = rapid.SampledFrom([]int64{0, 0, 10, 50}).Draw(t, "ttl")
		}
	case osier.KVAppend, osier.KVListSet, osier.KVListRemove:
		op.Value = drawKVValue(t)
		op.Count -= 1
	case osier.KVExpire:
		op.TTL = rapid.SampledFrom([]int64{10, 50, 1000}).Draw(t, "ttl")
	case osier.KVHashAddInt, osier.KVHashAddFloat, osier.KVSortedAddScore:
		op.Items = drawKVItems(t)[:1]
	case osier.KVListPush, osier.KVHashSet, osier.KVHashDelete, osier.KVHashInsert, osier.KVSetAdd, osier.KVSetRemove, osier.KVSortedAdd, osier.KVSortedRemove:
		op.Items = drawKVItems(t)
	}
	if op.Verb == osier.KVListPop || op.Verb == osier.KVSortedPop {
		op.Count = max(op.Count, 0)
	}
	return op
}

func drawKVQuery(t *rapid.T) osier.Query {
	q := osier.Query{KV: &osier.KVQuery{Namespace: "n"}, Reverse: rapid.Bool().Draw(t, "reverse"), Skip: rapid.IntRange(0, 1).Draw(t, "skip"), Limit: rapid.IntRange(0, 3).Draw(t, "limit")}
	q.Kind = rapid.SampledFrom([]osier.QueryKind{osier.QueryKVGet, osier.QueryKVScan, osier.QueryKVCount, osier.QueryKVRead, osier.QueryKVRead, osier.QueryKVNamespaces}).Draw(t, "kind")
	keys := rapid.SliceOfN(rapid.SampledFrom(kvKeys), 1, 3).Draw(t, "keys")
	switch q.Kind {
	case osier.QueryKVScan:
		q.KV.Start, q.KV.End = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "start"), rapid.SampledFrom([]string{"", "b", "\xff"}).Draw(t, "end")
	case osier.QueryKVGet:
		q.KV.Keys, q.Skip, q.Limit = keys, 0, 0
	case osier.QueryKVRead:
		q.KV.Keys, q.Skip, q.Limit, q.Reverse = keys, 0, 0, false
		q.KV.Read = osier.KVReadKind(rapid.IntRange(1, 12).Draw(t, "read"))
		q.KV.Range = drawKVRange(t)
		switch q.KV.Read {
		case osier.KVReadFields, osier.KVReadHas, osier.KVReadScore:
			q.KV.Names = []string{"m", "", "o"}
		case osier.KVReadRank:
			q.KV.Names = []string{"m"}
		}
	}
	return q
}

// kvPlayer carries a history out on a store.
type kvPlayer struct {
	db    *osier.DB
	level osier.Durability
	clock *fakeClock
}

// fakeClock is a clock that stands still until it is moved.
type fakeClock struct {
	mu sync.Mutex
	t  time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{t: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *fakeClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func kvResultText(r *osier.KVResult) string {
	c := *r
	c.Version = min(c.Version, 1)
	return fmt.Sprintf("%+v", c)
}

// step carries a step out and tells what came of it.
func (p *kvPlayer) step(ctx context.Context, s *kvStep) string {
	show := func(err error) string { return fmt.Sprintf("error %v", osier.KindOf(err)) }
	switch s.what {
	case "op", "batch":
		c := &osier.Command{Durability: p.level}
		for i := range s.ops {
			op := s.ops[i]
			c.Ops = append(c.Ops, osier.Op{Kind: osier.OpKV, KV: &op})
		}
		res, err := p.db.Exec(ctx, c)
		if err != nil {
			return show(err)
		}
		out := ""
		for i := range res.Ops {
			out += kvResultText(res.Ops[i].KV) + "; "
		}
		return out
	case "tx":
		return p.transaction(ctx, s)
	case "query":
		q := s.q
		kq := *s.q.KV
		q.KV = &kq
		return kvRowsText(p.db, ctx, &q)
	}
	return ""
}

func kvRowsText(db *osier.DB, ctx context.Context, q *osier.Query) string {
	out := ""
	for row, err := range db.Query(ctx, q) {
		if err != nil {
			return fmt.Sprintf("%serror %v", out, osier.KindOf(err))
		}
		r := *row.KV
		r.Version = min(r.Version, 1)
		if r.Type == osier.KVLeases || q.Kind == osier.QueryKVCount {
			r.Version = 0
		}
		out += fmt.Sprintf("%v %q %v %v %q %q %v %v; ", r.Missing, r.Key, r.Type, r.Deadline, r.Item.Name, r.Item.Value, r.Item.Score, r.Count)
	}
	return out
}

// transaction carries operations out in a transaction, looks at what it sees, and
// fails it if one of them failed.
func (p *kvPlayer) transaction(ctx context.Context, s *kvStep) string {
	out := ""
	err := p.db.Update(ctx, func(tx *osier.Tx) error {
		out = ""
		n := tx.KV("n")
		for i := range s.ops {
			// The handle's ways all end in one operation.
			res, err := tx.DoKV(ctx, s.ops[i])
			if err != nil {
				return err
			}
			if s.ops[i].Verb != osier.KVSet {
				res.Version = 0
				out += kvResultText(res) + "; "
			}
		}
		for e, err := range n.Scan(ctx, nil) {
			if err != nil {
				return err
			}
			out += fmt.Sprintf("%q %v %v %q; ", e.Key, e.Type, e.Deadline, e.Value)
		}
		count, err := n.Count(ctx)
		if err != nil {
			return err
		}
		out += fmt.Sprint(count)
		if count == 3 {
			return errGivenUp
		}
		return nil
	})
	if err != nil && !errors.Is(err, errGivenUp) {
		return fmt.Sprintf("error %v", osier.KindOf(err))
	}
	return out
}

var errGivenUp = errors.New("given up")
