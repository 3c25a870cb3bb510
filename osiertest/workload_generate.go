package osiertest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// GenerateOptions choose what Generate makes. The zero value is useful.
type GenerateOptions struct {
	Databases   int  // how many names there are; 0: 2
	Collections int  // 0: 2
	IDs         int  // 0: 6
	Reopen      bool // whether the store is reopened now and then
	WritesOnly  bool // only single writes and batches, as crash tests want them
	RevLimits   bool // settings may bound the ancestors; stores may differ in when they forget them
}

// Generate makes a workload of n operations. The same seed, n and options make
// the same one.
func Generate(seed uint64, n int, o GenerateOptions) Workload {
	r := rand.New(rand.NewPCG(seed, 0x05137))
	g := &generator{pick: r.IntN, o: o.filled()}
	w := Workload{{Verb: Create, DB: "db0"}}
	for len(w) < n {
		w = append(w, g.op())
	}
	return w
}

func (o GenerateOptions) filled() GenerateOptions {
	if o.Databases == 0 {
		o.Databases = 2
	}
	if o.Collections == 0 {
		o.Collections = 2
	}
	if o.IDs == 0 {
		o.IDs = 6
	}
	return o
}

// generator makes operations that do not depend on each other, of decisions:
// pick returns a number from 0 on below n. Where a choice has a plain answer it
// is number 0, so that a search for a smaller failure comes to it.
type generator struct {
	pick func(n int) int
	o    GenerateOptions
}

// choice is an operation that may be made, and how often compared to others.
type choice struct {
	weight int
	make   func() Op
}

func (g *generator) choose(list []choice) Op {
	total := 0
	for _, c := range list {
		total += c.weight
	}
	n := g.pick(total)
	for _, c := range list {
		if n < c.weight {
			return c.make()
		}
		n -= c.weight
	}
	panic("not reached")
}

// op makes any operation.
func (g *generator) op() Op {
	db := g.db()
	in := func(op Op) Op { op.DB = db; return op }
	list := []choice{
		{40, func() Op { return in(g.write(true)) }},
		{10, func() Op { return in(g.batch()) }},
	}
	if !g.o.WritesOnly {
		list = append(list,
			choice{20, func() Op { return in(g.read()) }},
			choice{20, func() Op { return in(g.look()) }},
			choice{10, func() Op { return in(g.tx()) }},
			choice{6, func() Op { return in(g.attachment()) }},
		)
	}
	list = append(list,
		choice{4, func() Op { return Op{Verb: Create, DB: db} }},
		choice{4, func() Op { return in(g.settings()) }},
		choice{1, func() Op { return Op{Verb: Drop, DB: db} }},
		choice{1, func() Op { return Op{Verb: Forget, DB: db, In: g.in()} }},
	)
	if g.o.Reopen {
		list = append(list, choice{3, func() Op { return Op{Verb: Reopen} }})
	}
	return g.choose(list)
}

func (g *generator) db() string {
	// The first one is the usual one, and the only one that is there at first.
	return fmt.Sprint("db", max(0, g.pick(g.o.Databases*3)-2*g.o.Databases))
}

func (g *generator) in() string { return fmt.Sprint("c", g.pick(g.o.Collections)) }

func (g *generator) id() string {
	switch n := g.pick(g.o.IDs + 2); {
	case n < (g.o.IDs+1)/2:
		return fmt.Sprint("k", n)
	case n < g.o.IDs:
		return fmt.Sprint("#", n*7-20) // some of them negative
	case n == g.o.IDs:
		return "k\x00 odd"
	default:
		return "k1/é"
	}
}

func (g *generator) body() string {
	switch g.pick(8) {
	case 0:
		return `{}`
	case 1:
		return `[` + fmt.Sprint(g.pick(3)) + `]`
	case 2:
		return `{"text":"` + strings.Repeat("long ", 50+g.pick(2000)) + `"}`
	default:
		return fmt.Sprintf(`{"n":%d}`, g.pick(5))
	}
}

func (g *generator) rev() string {
	return []string{"winner", "winner", "leaf1", "leaf2", "old1", "old2", "1-f0", "3-b1"}[g.pick(8)]
}

// path makes a graft's path, of branches that all grow from a few roots, in such
// a way that equal revisions have equal ancestors.
func (g *generator) path() string {
	root, branch, length := g.pick(2), g.pick(3), 1+g.pick(4)
	fork := 1 + branch // the generation from which on a branch has revisions of its own
	var path []string
	for gen := length; gen >= 1; gen-- {
		name := fmt.Sprintf("%d-f%d", gen, root)
		if gen > fork {
			name = fmt.Sprintf("%d-b%d%d", gen, root, branch)
		}
		path = append(path, name)
	}
	return strings.Join(path, ",")
}

// write makes a single write; grafts are not for a tx.
func (g *generator) write(grafts bool) Op {
	op := Op{In: g.in(), ID: g.id()}
	list := []choice{
		{6, func() Op { op.Verb, op.Expect, op.Body = Put, "any", g.body(); return op }},
		{4, func() Op { op.Verb, op.Expect, op.Body = Put, "absent", g.body(); return op }},
		{2, func() Op { op.Verb, op.Expect, op.Body = Put, "present", g.body(); return op }},
		{6, func() Op { op.Verb, op.Rev, op.Body = Update, g.rev(), g.body(); return op }},
		{2, func() Op { op.Verb = Delete; return op }},
		{3, func() Op { op.Verb, op.Rev = Delete, g.rev(); return op }},
	}
	if grafts {
		list = append(list,
			choice{4, func() Op { op.Verb, op.Path, op.Body = Graft, g.path(), g.body(); return op }},
			choice{1, func() Op { op.Verb, op.Path = Ungraft, g.path(); return op }},
		)
	}
	return g.choose(list)
}

// read makes a read that a tx can make too.
func (g *generator) read() Op {
	op := Op{In: g.in()}
	return g.choose([]choice{
		{4, func() Op { op.Verb, op.ID = Get, g.id(); return op }},
		{4, func() Op { return g.list(op) }},
		{1, func() Op { op.Verb = Count; return op }},
	})
}

func (g *generator) list(op Op) Op {
	op.Verb = List
	op.Reverse, op.Deleted = g.pick(3) == 1, g.pick(4) == 1
	op.Skip, op.Limit = max(0, g.pick(6)-3), max(0, g.pick(8)-3)
	if g.pick(3) == 1 {
		op.From = g.id()
	}
	if g.pick(3) == 1 {
		op.Until = g.id()
	}
	return op
}

// look makes a read of what is not documents alone.
func (g *generator) look() Op {
	op := Op{In: g.in(), Seq: g.pick(40)}
	return g.choose([]choice{
		{4, func() Op { op.Verb, op.ID, op.Seq = Versions, g.id(), 0; return op }},
		{3, func() Op { op.Verb, op.ID, op.Rev, op.Seq = GetRev, g.id(), g.rev(), 0; return op }},
		{4, func() Op { op.Verb, op.ID = AsOf, g.id(); return op }},
		{5, func() Op { return g.changes(op) }},
		{2, func() Op { return Op{Verb: History, Seq: op.Seq, Limit: g.pick(4)} }},
		{3, func() Op { return Op{Verb: Info} }},
		{1, func() Op { return Op{Verb: Names} }},
	})
}

func (g *generator) changes(op Op) Op {
	op.Verb, op.Limit, op.Reverse = Changes, max(0, g.pick(8)-4), g.pick(4) == 1
	if g.pick(2) == 1 {
		op.In = ""
	}
	if g.pick(2) == 0 {
		op.Seq = 0
	}
	return op
}

func (g *generator) batch() Op {
	op := Op{Verb: Batch, Each: g.pick(2) == 1}
	if g.pick(3) == 1 {
		op.Session, op.Number = fmt.Sprint("s", g.pick(2)), 1+g.pick(4)
	}
	for range 1 + g.pick(5) {
		op.Ops = append(op.Ops, g.write(true))
	}
	return op
}

func (g *generator) tx() Op {
	op := Op{Verb: Tx}
	for range 1 + g.pick(6) {
		m := g.choose([]choice{
			{4, func() Op { return g.write(false) }},
			{3, g.read},
			{2, func() Op { w := g.write(true); w.Meanwhile = true; return w }},
		})
		op.Ops = append(op.Ops, m)
	}
	return op
}

func (g *generator) settings() Op {
	op := Op{Verb: Settings, In: g.in(), History: g.pick(5) - 1}
	if g.o.RevLimits && g.pick(3) == 1 {
		op.RevLimit = 1 + g.pick(6)
	}
	return op
}

func (g *generator) attachment() Op {
	op := Op{Verb: Attach, In: g.in(), ID: g.id(), Rev: g.rev(), Name: fmt.Sprint("att", g.pick(3))}
	if g.pick(4) == 1 {
		op.Verb = Detach
		return op
	}
	op.Body = strings.Repeat(fmt.Sprint("bytes ", g.pick(3)), 1+g.pick(50))
	return op
}
