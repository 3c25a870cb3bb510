package engine

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// repeated streams a text n times.
func repeated(s string, n int) io.Reader { return strings.NewReader(strings.Repeat(s, n)) }

// item is a step of a replayable log: a command, and the attachment bytes that
// have to be there for it. Bytes that the command does not take are dropped
// again, so that between two items nothing is staged.
type item struct {
	cmd    *osier.Command
	staged []stagedBytes
}

type stagedBytes struct {
	blob osier.BlobID
	body []byte
}

// outcome is what a command answered.
type outcome struct {
	res *osier.Result
	err error
}

func (o outcome) String() string {
	if o.err != nil {
		return fmt.Sprintf("error %v (%v)", o.err, osier.KindOf(o.err))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d to %d at %d:", o.res.First, o.res.Last, o.res.Time.UnixMilli())
	for _, op := range o.res.Ops {
		fmt.Fprintf(&b, " [%q %v %d %v]", op.ID.Key(), op.Rev, op.Seq, op.Err)
	}
	return b.String()
}

// runGroup carries items out as one group, that is as one batch of the store.
func runGroup(e *Engine, items []item) []outcome {
	g := &group{applied: make(chan struct{}), done: make(chan struct{})}
	outs := make([]outcome, len(items))
	reqs := make([]*request, len(items))
	for i, it := range items {
		if outs[i].err = checkCommand(it.cmd); outs[i].err != nil {
			continue
		}
		for _, s := range it.staged {
			g.reqs = append(g.reqs, &request{level: store.Relaxed, fill: s.put(it.cmd.DB)})
		}
		reqs[i] = &request{cmd: it.cmd, level: e.level(it.cmd.Durability)}
		reqs[i].prepare(&e.terms)
		g.reqs = append(g.reqs, reqs[i])
		for _, s := range it.staged {
			g.reqs = append(g.reqs, &request{level: store.Relaxed, fill: s.drop(it.cmd.DB)})
		}
	}
	e.lead(g, store.Sync)
	for i, r := range reqs {
		if r != nil {
			outs[i] = outcome{r.res, r.err}
		}
	}
	return outs
}

func (s stagedBytes) put(db string) func(*applier) error {
	return func(a *applier) error {
		d := a.database(db)
		if d == nil {
			return nil
		}
		rec := stagedRecord{uint64(len(s.body)), md5.Sum(s.body), sha256.Sum256(s.body)}
		return errors.Join(a.b.Set(stagedKey(d.num, s.blob), rec.append(nil)), a.b.Set(chunkKey(d.num, s.blob, 0), s.body))
	}
}

func (s stagedBytes) drop(db string) func(*applier) error {
	return func(a *applier) error {
		d := a.database(db)
		if d == nil {
			return nil
		}
		_, closer, err := a.b.Get(stagedKey(d.num, s.blob))
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		closer.Close()
		return errors.Join(a.b.Delete(stagedKey(d.num, s.blob)), dropBlob(a.b, d.num, s.blob))
	}
}

// generator makes commands that mean something in the present state of its
// engine: of every kind, succeeding and failing.
type generator struct {
	rng     *rand.Rand
	e       *Engine
	numbers [3]uint64 // of the sessions
}

var (
	genDBs   = []string{"one", "two"}
	genColls = []string{"a", "b", "c"}
)

// next returns the next item; it is not carried out.
func (g *generator) next() item {
	c := &osier.Command{DB: genDBs[min(g.rng.IntN(4)/3, 1)], Durability: osier.Durability(g.rng.IntN(4))}
	it := item{cmd: c}
	switch n := g.rng.IntN(100); {
	case n < 3 || !g.exists(c.DB) && n < 80:
		c.Ops = []osier.Op{{Kind: osier.OpCreateDB}}
		return it
	case n < 4:
		c.Ops = []osier.Op{{Kind: osier.OpDropDB}}
		return it
	}
	c.PerDocument = g.rng.IntN(3) == 0
	for range 1 + g.rng.IntN(5) {
		g.operation(&it)
	}
	g.preconditions(c)
	if g.rng.IntN(3) == 0 {
		g.session(c)
	}
	return it
}

func (g *generator) exists(db string) bool { return (*g.e.dbs.Load())[db] != nil }

func (g *generator) session(c *osier.Command) {
	k := g.rng.IntN(len(g.numbers))
	c.Session, c.Number = fmt.Sprintf("session-%d", k), g.numbers[k]
	if n := g.numbers[k]; n > 0 && g.rng.IntN(5) == 0 {
		c.Number = g.rng.Uint64N(n) // a retry, or an answer to something else
	} else {
		g.numbers[k]++
	}
}

func (g *generator) preconditions(c *osier.Command) {
	if g.rng.IntN(4) > 0 || !g.exists(c.DB) {
		return
	}
	last := osier.Seq((*g.e.dbs.Load())[c.DB].applied.Load())
	c.Snapshot = last - min(last, osier.Seq(g.rng.IntN(4)))
	for range 1 + g.rng.IntN(3) {
		r := osier.Read{Collection: genColls[g.rng.IntN(len(genColls))]}
		switch g.rng.IntN(6) {
		case 0:
			r.Collection = ""
		case 1, 2:
			r.Start, r.End = g.id().Key(), g.id().Key()
		default:
			r.ID = g.id()
		}
		c.Reads = append(c.Reads, r)
	}
}

func (g *generator) id() osier.ID {
	n := g.rng.IntN(9)
	switch n % 3 {
	case 0:
		return osier.MustID(n)
	case 1:
		return osier.MustID(fmt.Sprintf("doc-%d", n))
	}
	return osier.MustID(osier.Tuple{n, "x\x00y"})
}

// operation appends one operation to the command.
func (g *generator) operation(it *item) {
	op := osier.Op{Collection: genColls[g.rng.IntN(len(genColls))]}
	switch n := g.rng.IntN(100); {
	case n < 6:
		op.Kind = osier.OpCollection
		op.Settings = &osier.Settings{Codec: osier.TagJSON, Schema: uint32(g.rng.IntN(3)),
			History: []osier.History{0, 1, 3, osier.KeepAll}[g.rng.IntN(4)], RevLimit: []uint32{0, 3, 8}[g.rng.IntN(3)]}
	case n < 9:
		op.Kind = osier.OpDropCollection
	case n < 25:
		g.graft(it, &op)
	default:
		g.put(it, &op)
	}
	it.cmd.Ops = append(it.cmd.Ops, op)
}

func (g *generator) body(op *osier.Op) {
	op.Schema = uint32(g.rng.IntN(3))
	switch g.rng.IntN(12) {
	case 0:
		op.Codec, op.Body = osier.TagJSON, []byte(`{"broken":`)
	case 1:
		op.Codec, op.Body = osier.TagBinary, []byte{0, 1, 2, byte(g.rng.IntN(256))}
	case 2:
		op.Codec, op.Body = osier.TagJSON, []byte(`[1,2]`)
	default:
		op.Codec, op.Body = osier.TagJSON, fmt.Appendf(nil, `{"n":%d,"s":%q}`, g.rng.IntN(1000), strings.Repeat("y", g.rng.IntN(60)))
	}
}

func (g *generator) put(it *item, op *osier.Op) {
	op.Kind, op.ID = osier.OpPut, g.id()
	if g.rng.IntN(10) == 0 {
		op.ID = osier.ID{}
	}
	g.body(op)
	op.Expect = osier.Expect(g.rng.IntN(4))
	op.Deleted = g.rng.IntN(6) == 0
	if op.Deleted && g.rng.IntN(2) == 0 {
		op.Body = nil
	}
	op.KeepBody = g.rng.IntN(12) == 0
	op.KeepAttachments = g.rng.IntN(3) > 0
	if leaves := g.leaves(it.cmd.DB, op.Collection, op.ID); len(leaves) > 0 && (op.Expect == osier.ExpectRev || g.rng.IntN(2) == 0) {
		op.Expect, op.Rev = osier.ExpectRev, leaves[g.rng.IntN(len(leaves))]
	}
	g.attachments(it, op)
}

func (g *generator) attachments(it *item, op *osier.Op) {
	for _, name := range []string{"front", "back", "side"} {
		if g.rng.IntN(6) > 0 {
			continue
		}
		ref := osier.AttachmentRef{Name: name}
		switch g.rng.IntN(5) {
		case 0:
			ref.Stub = true
		case 1:
			ref.Remove = true
		default:
			// Few contents, so that some are shared.
			s := stagedBytes{body: bytes.Repeat([]byte{byte('p' + g.rng.IntN(3))}, 40)}
			for i := range s.blob {
				s.blob[i] = byte(g.rng.Uint32())
			}
			it.staged = append(it.staged, s)
			ref.Staged, ref.ContentType = s.blob, "text/plain"
		}
		op.Attachments = append(op.Attachments, ref)
	}
}

// leaves returns the revisions that can be written over.
func (g *generator) leaves(db, coll string, id osier.ID) (out []osier.Rev) {
	if id.IsZero() {
		return nil
	}
	q := &osier.Query{Kind: osier.QueryGet, DB: db, Collection: coll, IDs: []osier.ID{id}, Parts: osier.WithConflicts, Deleted: true}
	for row, err := range g.e.Query(context.Background(), q) {
		if err != nil || row.Rev.IsZero() {
			return nil
		}
		out = append(out, row.Rev)
		for _, l := range row.Conflicts {
			out = append(out, l.Rev)
		}
	}
	return out
}

// graft makes a path that hangs on a known leaf, or begins a branch; now and
// then a long one, which cuts the ancestry.
func (g *generator) graft(it *item, op *osier.Op) {
	op.Kind, op.ID = osier.OpGraft, g.id()
	g.body(op)
	op.Deleted = g.rng.IntN(5) == 0
	var path []osier.Rev
	if leaves := g.leaves(it.cmd.DB, op.Collection, op.ID); len(leaves) > 0 && g.rng.IntN(4) > 0 {
		path = append(path, leaves[g.rng.IntN(len(leaves))])
	} else {
		path = append(path, g.rev(1+g.rng.Uint64N(3)))
	}
	more := g.rng.IntN(4)
	if g.rng.IntN(12) == 0 {
		more = stemEvery + g.rng.IntN(stemEvery)
	}
	for range more {
		path = append(path, g.rev(path[len(path)-1].Generation()+1))
	}
	slices.Reverse(path)
	op.Path = path
	g.attachments(it, op)
}

// rev makes a foreign revision; few digests, so that paths meet again.
func (g *generator) rev(gen uint64) osier.Rev {
	if g.rng.IntN(10) == 0 {
		return osier.RevOf(gen, fmt.Sprintf("text-%d", g.rng.IntN(3)), true)
	}
	return osier.NewRev(gen, [16]byte{byte(g.rng.IntN(4)), 15: byte(gen)})
}

// history generates a log of n items on an engine of its own. It returns each
// command's outcome and the state after each, state 0 being the beginning.
type history struct {
	items    []item
	outcomes []outcome
	states   [][32]byte
}

// generateHistory carries out what it generates, one by one, on e.
func generateHistory(rng *rand.Rand, e *Engine, n int, state func() [32]byte) *history {
	h := &history{states: [][32]byte{state()}}
	g := &generator{rng: rng, e: e}
	for range n {
		it := g.next()
		h.items = append(h.items, it)
		h.outcomes = append(h.outcomes, runGroup(e, []item{it})...)
		h.states = append(h.states, state())
	}
	return h
}

// generatorClock is a clock that moves by chance, back at times.
func generatorClock(rng *rand.Rand) func() time.Time {
	now := time.UnixMilli(1_700_000_000_000)
	return func() time.Time {
		now = now.Add(time.Duration(rng.IntN(2000)-200) * time.Millisecond)
		return now
	}
}
