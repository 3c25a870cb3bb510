package osiertest

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

func TestModelConforms(t *testing.T) {
	var models sync.Map // *osier.Store to its *Model
	open := func(t *testing.T, m *Model) *osier.Store {
		s := osier.NewStore(m, nil)
		models.Store(s, m)
		t.Cleanup(func() {
			s.Close()
			models.Delete(s)
		})
		return s
	}
	Run(t, Harness{
		New: func(t *testing.T) *osier.Store { return open(t, NewModel(nil)) },
		NewAt: func(t *testing.T, clock func() time.Time) *osier.Store {
			return open(t, NewModel(&ModelOptions{Clock: clock}))
		},
		Reopen: func(t *testing.T, s *osier.Store) *osier.Store {
			m, _ := models.Load(s)
			return open(t, m.(*Model).Reopen())
		},
		Caps: Caps{Synctest: true},
	})
}

// play carries out a drawn workload on a new model, checking after each step.
func play(t *testing.T, check func(rt *rapid.T, m *Model, op Op, before map[string]*database)) {
	rapid.Check(t, func(rt *rapid.T) {
		m := NewModel(nil)
		s := osier.NewStore(m, nil)
		w := drawWorkload(rt, 40, false)
		for _, op := range w {
			before := map[string]*database{}
			for name, db := range m.dbs {
				before[name] = db
			}
			Apply(t.Context(), s, op)
			check(rt, m, op, before)
		}
	})
}

func TestModelSequencesAreDenseAndFeedsCoverThem(t *testing.T) {
	play(t, func(rt *rapid.T, m *Model, op Op, _ map[string]*database) {
		for _, db := range m.dbs {
			next := osier.Seq(1)
			for _, tx := range db.transactions {
				if tx.First != next || tx.Last+1 != next+osier.Seq(len(tx.Changes)) {
					rt.Fatalf("after %v: transaction %d-%d of %d changes, want it to begin at %d", op, tx.First, tx.Last, len(tx.Changes), next)
				}
				for _, c := range tx.Changes {
					if c.Seq != next {
						rt.Fatalf("after %v: change of sequence %d, want %d", op, c.Seq, next)
					}
					next++
				}
			}
			if db.seq != next-1 {
				rt.Fatalf("after %v: sequence %d, want %d", op, db.seq, next-1)
			}
		}
	})
}

func TestModelDocumentsHoldTheirInvariants(t *testing.T) {
	play(t, func(rt *rapid.T, m *Model, op Op, _ map[string]*database) {
		for _, db := range m.dbs {
			seen := map[osier.Seq]bool{}
			for name, c := range db.collections {
				for id, d := range c.docs {
					if id != d.id || seen[d.seq] || d.seq == 0 || d.seq > c.lastSeq || c.lastSeq > db.seq {
						rt.Fatalf("after %v: %s/%v at sequence %d of %d", op, name, id, d.seq, c.lastSeq)
					}
					seen[d.seq] = true
					checkDocument(rt, op, c, d)
				}
			}
		}
	})
}

// checkDocument wants leaves to be whole, and no more bodies than are kept.
func checkDocument(rt *rapid.T, op Op, c *collection, d *document) {
	for _, l := range d.leaves() {
		v := d.versions[l.Rev]
		if v == nil || v.Deleted != l.Deleted || !v.Deleted && v.Body == nil {
			rt.Fatalf("after %v: leaf %v of %v is %+v", op, l.Rev, d.id, v)
		}
		if v.Seq > d.seq {
			rt.Fatalf("after %v: leaf %v of %v was written at %d, the document at %d", op, l.Rev, d.id, v.Seq, d.seq)
		}
	}
	for r, v := range d.versions {
		if !d.has(r) || v.Rev != r || v.ID != d.id {
			rt.Fatalf("after %v: version %v of %v is %+v", op, r, d.id, v)
		}
	}
	latest := d.asOf(func(*osier.Document) bool { return true })
	if w := d.winner(); latest != w {
		rt.Fatalf("after %v: as of now %v is %v, its winner %v", op, d.id, latest.Rev, w.Rev)
	}
}

func TestModelFailedCommandsChangeNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := NewModel(nil)
		s := osier.NewStore(m, nil)
		w := drawWorkload(rt, 40, false)
		look := Op{Verb: Changes, DB: "db0"}
		for _, op := range w {
			if op.DB != "db0" || op.Verb == Tx || op.Verb == Batch && op.Each {
				continue
			}
			before := Apply(t.Context(), s, look) + Apply(t.Context(), s, Op{Verb: Info, DB: "db0"})
			answer := Apply(t.Context(), s, op)
			after := Apply(t.Context(), s, look) + Apply(t.Context(), s, Op{Verb: Info, DB: "db0"})
			if len(answer) >= 6 && answer[:6] == "error:" && before != after {
				rt.Fatalf("%v: %s\nbefore %s\nafter  %s", op, answer, before, after)
			}
		}
	})
}

func TestModelStatesAreNeverChanged(t *testing.T) {
	type print struct {
		seq  osier.Seq
		docs int
		txs  int
	}
	of := func(db *database) print {
		p := print{seq: db.seq, txs: len(db.transactions)}
		for _, c := range db.collections {
			p.docs += len(c.docs)
		}
		return p
	}
	held := map[*database]print{}
	play(t, func(rt *rapid.T, m *Model, op Op, before map[string]*database) {
		for _, db := range before {
			if p, ok := held[db]; ok && p != of(db) {
				rt.Fatalf("%v changed a state from %+v to %+v", op, p, of(db))
			}
		}
		for _, db := range m.dbs {
			held[db] = of(db)
		}
		if len(m.pins) > 0 {
			rt.Fatalf("%v left %d pins", op, len(m.pins))
		}
	})
}
