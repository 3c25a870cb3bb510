package osiertest

import (
	"context"
	"fmt"

	"github.com/osierdb/osier"
)

func batchTests() []test {
	return []test{
		{"an atomic batch is carried out whole", func(x *tc) {
			x.insert("a", "1")
			var b osier.Batch
			x.batchOf(&b)
			x.same("length", b.Len(), 4)
			res, err := x.db.Commit(x.ctx, &b)
			x.must(err)
			x.same("run", []osier.Seq{res.First, res.Last}, []osier.Seq{2, 5})
			for i, r := range res.Ops {
				x.same("sequence", r.Seq, osier.Seq(2+i))
				if r.Err != nil || r.Rev.IsZero() || r.ID.IsZero() {
					x.Fatalf("operation %d: got %+v", i, r)
				}
			}
			x.same("list", ids(x, x.db, &osier.ListOptions{From: "a"}), []string{"a", "b", "c"})
			x.same("made", ids(x, x.db, &osier.ListOptions{Until: "a"}), []string{res.Ops[2].ID.String()})
		}},
		{"an atomic batch that fails changes nothing", func(x *tc) {
			x.insert("a", "1")
			x.insert("c", "1") // so that the last write conflicts
			var b osier.Batch
			x.batchOf(&b)
			_, err := x.db.Commit(x.ctx, &b)
			x.kind(err, osier.KindConflict)
			x.same("list", ids(x, x.db, nil), []string{"a", "c"})
			info, err := x.db.Info(x.ctx)
			x.must(err)
			x.same("sequence", info.LastSeq, osier.Seq(2))
			x.same("changes", len(collect(x, x.db.Watch(x.ctx, nil))), 2)
		}},
		{"in a batch per document each write succeeds or fails by itself", perDocument},
		{"each write of a batch sees the ones before it", func(x *tc) {
			b := &osier.Batch{PerDocument: true}
			for range 2 {
				_, err := films.InsertWithID(x.ctx, b, "a", film{Title: "1"})
				x.must(err)
			}
			_, err := films.Overwrite(x.ctx, b, "a", film{Title: "2"})
			x.must(err)
			x.must(films.Delete(x.ctx, b, "a", osier.Rev{}))
			_, err = films.Overwrite(x.ctx, b, "a", film{Title: "3"})
			x.must(err)
			_, err = films.InsertWithID(x.ctx, b, "a", film{Title: "4"})
			x.must(err)
			res, err := x.db.Commit(x.ctx, b)
			x.must(err)
			x.same("outcomes", outcomes(res), []string{"1@1", "conflict", "2@2", "3@3", "deleted", "4@4"})
			x.same("title", x.title(x.db, "a"), "4")
			changes := collect(x, x.db.Watch(x.ctx, nil))
			x.same("changes", len(changes), 1)
			x.same("sequence", changes[0].Seq, osier.Seq(4))
		}},
		{"an empty batch changes nothing", func(x *tc) {
			x.insert("a", "1")
			res, err := x.db.Commit(x.ctx, &osier.Batch{})
			x.must(err)
			x.same("run", []osier.Seq{res.First, res.Last}, []osier.Seq{1, 1})
			x.same("operations", len(res.Ops), 0)
		}},
		{"a batch goes into several collections", func(x *tc) {
			var b osier.Batch
			_, err := films.InsertWithID(x.ctx, &b, "a", film{})
			x.must(err)
			_, err = raws.InsertWithID(x.ctx, &b, "a", osier.Raw(`[]`))
			x.must(err)
			_, err = x.db.Commit(x.ctx, &b)
			x.must(err)
			rows := collect(x, x.db.Watch(x.ctx, nil))
			x.same("collections", []string{rows[0].Collection, rows[1].Collection}, []string{"films", "raws"})
		}},
		{"a batch of thousands is one run of sequences", func(x *tc) {
			const n = 3000
			var b osier.Batch
			for i := range n {
				_, err := films.InsertWithID(x.ctx, &b, i, film{Year: i})
				x.must(err)
			}
			res, err := x.db.Commit(x.ctx, &b)
			x.must(err)
			x.same("run", []osier.Seq{res.First, res.Last}, []osier.Seq{1, n})
			for i, d := range collect(x, films.List(x.ctx, x.db, nil)) {
				x.same("year", d.Value.Year, i)
				x.same("sequence", d.Seq, osier.Seq(i+1))
			}
		}},
		{"a batch's bodies are the ones of the call, whatever becomes of the buffers", func(x *tc) {
			body := osier.Raw(`{"n":1}`)
			_, err := raws.Upsert(x.ctx, x.db, "a", body)
			x.must(err)
			copy(body, `{"n":2}`)
			doc, err := raws.Get(x.ctx, x.db, "a")
			x.must(err)
			x.same("body", string(doc.Value), `{"n":1}`)
		}},
		{"every durability answers, and reads see the write", func(x *tc) {
			for i, d := range []osier.Durability{osier.DurabilityDefault, osier.Sync, osier.Buffered, osier.Relaxed} {
				_, err := films.InsertWithID(x.ctx, x.db.With(d), i, film{Title: "x"})
				x.must(err)
				x.same("title", x.title(x.db, i), "x")
			}
		}},
	}
}

// batchOf fills b with an update of a, inserts of b and c, and an insert without
// an id.
func (x *tc) batchOf(b *osier.Batch) {
	x.Helper()
	ctx := context.Background()
	_, err := films.Overwrite(ctx, b, "a", film{Title: "2"})
	x.must(err)
	_, err = films.InsertWithID(ctx, b, "b", film{Title: "1"})
	x.must(err)
	_, err = films.Insert(ctx, b, film{Title: "made"})
	x.must(err)
	_, err = films.InsertWithID(ctx, b, "c", film{Title: "1"})
	x.must(err)
}

// outcomes shows the results of single operations: generation and sequence, or
// the kind of the error.
func outcomes(res *osier.Result) []string {
	var out []string
	for _, r := range res.Ops {
		if r.Err != nil {
			out = append(out, r.Err.Kind.String())
		} else {
			out = append(out, fmt.Sprintf("%d@%d", r.Rev.Generation(), r.Seq))
		}
	}
	return out
}

func perDocument(x *tc) {
	old := x.insert("a", "1")
	_, err := films.Update(x.ctx, x.db, old)
	x.must(err)
	b := &osier.Batch{PerDocument: true}
	_, err = films.Update(x.ctx, b, old)
	x.must(err)
	_, err = films.InsertWithID(x.ctx, b, "b", film{})
	x.must(err)
	_, err = films.Overwrite(x.ctx, b, "none", film{})
	x.must(err)
	x.must(films.Delete(x.ctx, b, "none", osier.Rev{}))
	x.must(films.Graft(x.ctx, b, "g", revsOf("2-b"), film{}))
	x.must(films.Graft(x.ctx, b, "g", revsOf("2-b", "2-b"), film{}))
	_, err = films.InsertWithID(x.ctx, b, "c", film{})
	x.must(err)
	res, err := x.db.Commit(x.ctx, b)
	x.must(err)
	x.same("outcomes", outcomes(res), []string{"conflict", "1@3", "not found", "not found", "2@4", "invalid", "1@5"})
	x.same("run", []osier.Seq{res.First, res.Last}, []osier.Seq{3, 5})
	if e := res.Ops[0].Err; e.DB != "shop" || e.Collection != "films" || e.ID != "a" {
		x.Fatalf("error %#v does not say what it is about", e)
	}
	x.same("list", ids(x, x.db, nil), []string{"a", "b", "c", "g"})
}
