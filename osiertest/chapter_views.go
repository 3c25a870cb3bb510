package osiertest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/osierdb/osier"
)

// thing is the document of the chapter's views.
type thing struct {
	Tag   any    `json:"t,omitempty"`
	N     int    `json:"n"`
	Group []any  `json:"g,omitempty"`
	Name  string `json:"name,omitempty"`
}

var (
	things = osier.NewCollection[thing]("things")

	byTag = osier.NewFieldView[any, int]("by-tag", "things", &osier.FieldViewOptions{Keys: []string{"t"}, Value: "n", Reduce: "sum"})

	byGroup = osier.NewFieldView[osier.Tuple, any]("by-group", "things",
		&osier.FieldViewOptions{Keys: []string{"g", "n"}, Spread: "g", Reduce: "count", Partial: json.RawMessage(`{"n":{"$gte":3}}`)})

	eagerTag = osier.NewFieldView[any, int]("eager-tag", "things",
		&osier.FieldViewOptions{Keys: []string{"t", "n"}, Value: "n", Reduce: "max", Policy: osier.Eager})

	// spelled joins its values in order: a reduce that does not commute.
	spelled = osier.NewView("spelled", things, 1, emitGroups, osier.ReduceWith(joinTexts, joinTexts))

	eagerSpelled = osier.NewView("eager-spelled", things, 1, emitGroups, osier.ReduceWith(joinTexts, joinTexts), osier.Update(osier.Eager))

	names = osier.NewView("names", things, 1, func(d osier.Doc[thing], emit func(string, struct{})) {
		if d.Value.Name != "" {
			emit(d.Value.Name, struct{}{})
		}
	}, osier.Update(osier.Unique))

	fieldNames = osier.NewFieldView[string, any]("field-names", "things", &osier.FieldViewOptions{Keys: []string{"name"}, Policy: osier.Unique})
)

func emitGroups(d osier.Doc[thing], emit func(osier.Tuple, string)) {
	for i, g := range d.Value.Group {
		emit(osier.Tuple{g, d.Value.N % 3}, fmt.Sprint(d.Value.N, i))
		if i%2 == 0 {
			emit(osier.Tuple{g, d.Value.N % 3}, "again")
		}
	}
}

func joinTexts(list []string) string { return strings.Join(list, ",") }

// naiveViews recompute the chapter's views.
func naiveViews() []*naiveView {
	number := func(body map[string]any, name string) int {
		n, err := body[name].(json.Number).Int64()
		if err != nil {
			panic(err) // the suite's own documents
		}
		return int(n)
	}
	fold := func(start int, f func(a, b int) int) func([]string) string {
		return func(values []string) string {
			out, any := start, false
			for _, v := range values {
				var n int
				if json.Unmarshal([]byte(v), &n) == nil {
					if out, any = f(out, n), true; len(values) == 1 {
						break
					}
				}
			}
			if !any && start != 0 {
				return "null"
			}
			return fmt.Sprint(out)
		}
	}
	const least = -1 << 40
	spell := func(values []string) string {
		if len(values) == 0 {
			return ""
		}
		list := make([]string, len(values))
		for i, v := range values {
			if err := json.Unmarshal([]byte(v), &list[i]); err != nil {
				panic(err) // the suite's own values
			}
		}
		b, err := json.Marshal(joinTexts(list))
		if err != nil {
			panic(err) // a text
		}
		return string(b)
	}
	groups := func(_ osier.ID, body map[string]any) (rows []naiveRow) {
		list, _ := body["g"].([]any)
		n := number(body, "n")
		for i, g := range list {
			key, err := osier.EncodeKey(osier.Tuple{g, n % 3}, false)
			if err != nil {
				panic(err) // the suite's own values
			}
			rows = append(rows, naiveRow{key: key, value: fmt.Sprintf("%q", fmt.Sprint(n, i))})
			if i%2 == 0 {
				rows = append(rows, naiveRow{key: key, value: `"again"`})
			}
		}
		return rows
	}
	return []*naiveView{
		{name: "by-tag", reduce: fold(0, func(a, b int) int { return a + b }), rows: func(_ osier.ID, body map[string]any) []naiveRow {
			if _, ok := body["t"]; !ok {
				return nil
			}
			return []naiveRow{{key: naiveKey(body["t"]), value: fmt.Sprint(number(body, "n"))}}
		}},
		{name: "by-group", reduce: func(values []string) string { return fmt.Sprint(len(values)) }, rows: func(_ osier.ID, body map[string]any) (rows []naiveRow) {
			list, _ := body["g"].([]any)
			for _, g := range list {
				if number(body, "n") >= 3 {
					rows = append(rows, naiveRow{key: naiveKey(g, body["n"])})
				}
			}
			return rows
		}},
		{name: "eager-tag", reduce: fold(least, func(a, b int) int { return max(a, b) }), rows: func(_ osier.ID, body map[string]any) []naiveRow {
			if _, ok := body["t"]; !ok {
				return nil
			}
			return []naiveRow{{key: naiveKey(body["t"], body["n"]), value: fmt.Sprint(number(body, "n"))}}
		}},
		{name: "spelled", reduce: spell, rows: groups, tuple: true},
		{name: "eager-spelled", reduce: spell, rows: groups, tuple: true},
	}
}

// randomThing makes a document; tags and groups are few, so that keys repeat.
func randomThing(r *rand.Rand) thing {
	tags := []any{nil, "a", "b", "ab", "b\x00c", 7, 2.5, true, "é"}
	v := thing{Tag: tags[r.IntN(len(tags))], N: r.IntN(12)}
	for range r.IntN(4) {
		v.Group = append(v.Group, tags[1+r.IntN(len(tags)-1)])
	}
	return v
}

func viewTests() []test {
	list := []test{
		{"every query of every view equals a recomputation", (*tc).viewsEqualRecomputation},
		{"a unique view names both documents and stays unique", (*tc).uniqueViews},
		{"unique keys can be exchanged in one command", (*tc).exchangedKeys},
		{"a batch keeps what does not break a unique view", (*tc).uniquePerDocument},
		{"a winner that no operation made is mapped too", (*tc).uniqueGrafts},
		{"an existing second row of a key fails a unique view", (*tc).uniqueTooLate},
		{"a transaction queries its own state", (*tc).viewsInTransactions},
		{"a function that fails leaves one document out", (*tc).failingFunctions},
		{"policies decide whether an answer is fresh", (*tc).viewPolicies},
		{"a changed function answers as before until it is built", (*tc).changedVersion},
		{"definitions are documents", (*tc).definitions},
		{"documents come with rows", (*tc).joinedDocuments},
		{"cursors of strangers are refused or harmless", (*tc).strangeCursors},
		{"views need rights", (*tc).viewRights},
		{"views outlive a reopening", (*tc).viewsReopened},
		{"ranges and prefixes of typed keys", (*tc).typedRanges},
	}
	for i := range list {
		run := list[i].run
		list[i].run = func(x *tc) {
			if !x.h.Caps.Views {
				x.Skip("this store keeps no views")
			}
			run(x)
		}
	}
	return list
}

func (x *tc) viewsEqualRecomputation() {
	for seed := range uint64(2) {
		x.Run(fmt.Sprint("seed_", seed), func(t *testing.T) {
			x := newCase(t, x.h)
			x.randomViews(seed)
		})
	}
}

// randomViews changes documents at random and judges all views after each
// stretch of changes.
func (x *tc) randomViews(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0x71E))
	x.schema(things, byTag, byGroup, eagerTag, spelled, eagerSpelled)
	views := naiveViews()
	rounds := 6
	for round := range rounds {
		for range 1 + r.IntN(60) {
			id := fmt.Sprint("d", r.IntN(80))
			x.changeThing(r, id)
		}
		for _, v := range views {
			x.judgeView(v, r)
		}
		if round == rounds/2 && x.h.Reopen != nil {
			x.reopen()
			x.schema(things, byTag, byGroup, eagerTag, spelled, eagerSpelled)
		}
	}
}

// changeThing writes, deletes, or grafts a conflict.
func (x *tc) changeThing(r *rand.Rand, id string) {
	x.Helper()
	switch r.IntN(8) {
	case 0, 1:
		if err := things.Delete(x.ctx, x.db, id, osier.Rev{}); err != nil && !errors.Is(err, osier.ErrNotFound) {
			x.Fatal(err)
		}
	case 2:
		gen := 1 + r.Uint64N(3)
		path := []osier.Rev{osier.NewRev(gen, [16]byte{byte(r.Uint32()), byte(r.Uint32())})}
		x.must(things.Graft(x.ctx, x.db, id, path, randomThing(r)))
	case 3:
		// End the losing branch or the winning one.
		for row, err := range x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryGet, Collection: "things", IDs: []osier.ID{osier.MustID(id)}, Parts: osier.WithConflicts}) {
			x.must(err)
			rev := row.Rev
			if len(row.Conflicts) > 0 && !row.Conflicts[0].Deleted && r.IntN(2) == 0 {
				rev = row.Conflicts[0].Rev
			}
			if !row.Missing {
				x.must(things.Delete(x.ctx, x.db, id, rev))
			}
		}
	case 4:
		var b osier.Batch
		b.PerDocument = r.IntN(2) == 0
		for i := range 5 {
			_, err := things.Upsert(x.ctx, &b, fmt.Sprint(id, ".", i%3), randomThing(r))
			x.must(err)
		}
		_, err := x.db.Commit(x.ctx, &b)
		x.must(err)
	default:
		_, err := things.Upsert(x.ctx, x.db, id, randomThing(r))
		x.must(err)
	}
}

// uniqueIn runs a test with a unique view of fields, and with one of a function.
func (x *tc) uniqueIn(run func(x *tc, query func() []string)) {
	list := func(x *tc, seq func(yield func(osier.ViewEntry[string, struct{}], error) bool)) (out []string) {
		for row, err := range seq {
			x.must(err)
			out = append(out, row.Key+"="+row.ID.String())
		}
		return out
	}
	x.Run("function", func(t *testing.T) {
		x := newCase(t, x.h)
		x.schema(things, names)
		run(x, func() []string { return list(x, names.Query(x.ctx, x.db)) })
	})
	x.Run("fields", func(t *testing.T) {
		x := newCase(t, x.h)
		x.schema(things, fieldNames)
		run(x, func() (out []string) {
			for _, row := range collect(x, fieldNames.Query(x.ctx, x.db)) {
				out = append(out, row.Key+"="+row.ID.String())
			}
			return out
		})
	})
}

func (x *tc) uniqueViews() {
	x.uniqueIn(func(x *tc, query func() []string) {
		_, err := things.InsertWithID(x.ctx, x.db, "1", thing{Name: "ada"})
		x.must(err)
		_, err = things.InsertWithID(x.ctx, x.db, "2", thing{Name: "ada"})
		x.kind(err, osier.KindNotUnique)
		if !errors.Is(err, osier.ErrConflict) {
			x.Errorf("got %v, want it to match ErrConflict", err)
		}
		for _, part := range []string{"names", "ada", "/1", "things/2"} {
			if !strings.Contains(strings.ReplaceAll(err.Error(), "document 1", "/1"), part) {
				x.Errorf("got %q, want it to name %q", err, part)
			}
		}
		_, err = things.Get(x.ctx, x.db, "2")
		x.kind(err, osier.KindNotFound)
		doc, err := things.Get(x.ctx, x.db, "1")
		x.must(err)
		_, err = things.Update(x.ctx, x.db, doc) // its own key is no violation
		x.must(err)
		x.must(things.Delete(x.ctx, x.db, "1", osier.Rev{}))
		_, err = things.InsertWithID(x.ctx, x.db, "2", thing{Name: "ada"})
		x.must(err)
		x.same("rows", query(), []string{"ada=2"})
		runs := 0
		err = x.db.Update(x.ctx, func(tx *osier.Tx) error {
			runs++
			_, err := things.InsertWithID(x.ctx, tx, "3", thing{Name: "ada"})
			return err
		})
		x.kind(err, osier.KindNotUnique)
		x.same("runs of a transaction that cannot succeed", runs, 1)
	})
}

func (x *tc) exchangedKeys() {
	x.uniqueIn(func(x *tc, query func() []string) {
		for _, id := range []string{"a", "b"} {
			_, err := things.InsertWithID(x.ctx, x.db, id, thing{Name: "name of " + id})
			x.must(err)
		}
		x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
			_, err1 := things.Overwrite(x.ctx, tx, "a", thing{Name: "name of b"})
			_, err2 := things.Overwrite(x.ctx, tx, "b", thing{Name: "name of a"})
			return errors.Join(err1, err2)
		}))
		x.same("rows", query(), []string{"name of a=b", "name of b=a"})
		err := x.db.Update(x.ctx, func(tx *osier.Tx) error {
			_, err1 := things.InsertWithID(x.ctx, tx, "c", thing{Name: "new"})
			_, err2 := things.InsertWithID(x.ctx, tx, "d", thing{Name: "new"})
			return errors.Join(err1, err2)
		})
		x.kind(err, osier.KindNotUnique)
		x.same("rows after two equal ones in a command", query(), []string{"name of a=b", "name of b=a"})
	})
}

func (x *tc) uniquePerDocument() {
	x.uniqueIn(func(x *tc, query func() []string) {
		_, err := things.InsertWithID(x.ctx, x.db, "0", thing{Name: "taken"})
		x.must(err)
		b := osier.Batch{PerDocument: true}
		for i, name := range []string{"x", "taken", "x", "y", "y2", "x"} {
			id := fmt.Sprint(1 + i)
			if name == "y2" {
				id = "4" // a second write to the document of "y"
			}
			_, err := things.Upsert(x.ctx, &b, id, thing{Name: name})
			x.must(err)
		}
		_, err = things.Upsert(x.ctx, &b, "7", thing{Name: "y"}) // free again
		x.must(err)
		res, err := x.db.Commit(x.ctx, &b)
		x.must(err)
		kinds := []osier.Kind{}
		for _, op := range res.Ops {
			k := osier.KindOther
			if op.Err != nil {
				k = op.Err.Kind
			}
			kinds = append(kinds, k)
		}
		no, ok := osier.KindNotUnique, osier.KindOther
		x.same("outcomes", kinds, []osier.Kind{ok, no, no, ok, ok, no, ok})
		x.same("rows", query(), []string{"taken=0", "x=1", "y=7", "y2=4"})
		if n, err := things.Count(x.ctx, x.db); err != nil || n != 4 {
			x.Errorf("got %d documents (%v), want 4", n, err)
		}
		x.same("sequences", int(res.Last-res.First)+1, 4)
	})
}

func (x *tc) uniqueGrafts() {
	x.uniqueIn(func(x *tc, query func() []string) {
		doc, err := things.InsertWithID(x.ctx, x.db, "1", thing{Name: "mine"})
		x.must(err)
		// A losing branch: its name is no row.
		low := osier.NewRev(1, [16]byte{})
		x.must(things.Graft(x.ctx, x.db, "1", []osier.Rev{low}, thing{Name: "theirs"}))
		x.same("rows", query(), []string{"mine=1"})
		_, err = things.InsertWithID(x.ctx, x.db, "2", thing{Name: "theirs"})
		x.must(err)
		// With the winner gone the loser comes to the fore, with a name that is taken.
		x.kind(things.Delete(x.ctx, x.db, "1", doc.Rev), osier.KindNotUnique)
		x.must(things.Delete(x.ctx, x.db, "2", osier.Rev{}))
		x.must(things.Delete(x.ctx, x.db, "1", doc.Rev))
		x.same("rows after the loser has come to the fore", query(), []string{"theirs=1"})
		high := osier.NewRev(5, [16]byte{1})
		x.must(things.Graft(x.ctx, x.db, "1", []osier.Rev{high}, thing{Name: "winning"}))
		x.same("rows after a graft that wins", query(), []string{"winning=1"})
		_, err = things.InsertWithID(x.ctx, x.db, "3", thing{Name: "theirs"})
		x.must(err)
		// An attachment's change keeps the body.
		_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPut, Collection: "things", ID: osier.MustID("3"), KeepBody: true}}})
		x.must(err)
		x.same("rows after a change that keeps the body", query(), []string{"theirs=3", "winning=1"})
	})
}

func (x *tc) uniqueTooLate() {
	for _, id := range []string{"1", "2"} {
		_, err := things.InsertWithID(x.ctx, x.db, id, thing{Name: "same"})
		x.must(err)
	}
	_, err := x.store.OpenDB(x.ctx, "shop", osier.Schema(things, names))
	if err == nil {
		x.Fatal("a unique view of two equal rows was declared")
	}
	info, err := names.Info(x.ctx, x.db)
	x.must(err)
	if info.Failure == "" || !strings.Contains(info.Failure, "same") {
		x.Errorf("got failure %q, want it to name the key", info.Failure)
	}
	_, err = things.InsertWithID(x.ctx, x.db, "3", thing{Name: "same"})
	x.must(err) // it is not in force
}

func (x *tc) viewsInTransactions() {
	x.schema(things, byTag, spelled)
	for i := range 20 {
		_, err := things.InsertWithID(x.ctx, x.db, fmt.Sprint("d", i), thing{Tag: i % 2, N: 1, Group: []any{"g"}})
		x.must(err)
	}
	sum := func(r osier.Reader, k any) int {
		n, err := byTag.Reduce(x.ctx, r, osier.Key(k))
		x.must(err)
		return n
	}
	x.same("sum", sum(x.db, 1), 10)
	runs := 0
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		runs++
		if runs == 1 {
			_, err := things.Upsert(x.ctx, x.db, "other", thing{Tag: 1, N: 100})
			x.must(err) // another's change, after this one's state
			x.same("sum in the transaction's state", sum(tx, 1), 10)
		}
		_, err := things.Upsert(x.ctx, tx, "mine", thing{Tag: 1, N: 1000, Group: []any{"g"}})
		x.must(err)
		want := 1010
		if runs > 1 {
			want = 1110
		}
		x.same("sum with its own write", sum(tx, 1), want)
		rows, err := drain(spelled.Query(x.ctx, tx))
		if err != nil {
			return err // it has no index in the first state
		}
		x.same("rows with its own write", len(rows), 42)
		n, err := byTag.Count(x.ctx, tx, osier.Above(0))
		x.must(err)
		x.same("count", n, uint64(11+runs-1))
		return nil
	}))
	x.same("runs, since another changed what it read", runs, 2)
	x.same("sum", sum(x.db, 1), 1110)
}

func (x *tc) failingFunctions() {
	var good atomic.Bool
	risky := osier.NewView("risky", things, 1, func(d osier.Doc[thing], emit func(any, any)) {
		switch {
		case good.Load():
			emit("good", d.Value.N)
		case d.Value.N == 3:
			panic("three")
		case d.Value.N == 4:
			emit("four", func() {})
		case d.Value.N == 5:
			emit(make(chan int), 1)
		default:
			emit("fine", d.Value.N)
		}
	})
	x.schema(things, risky)
	for i := range 8 {
		_, err := things.InsertWithID(x.ctx, x.db, fmt.Sprint("d", i), thing{N: i})
		x.must(err)
	}
	x.same("rows", len(collect(x, risky.Query(x.ctx, x.db))), 5)
	info, err := risky.Info(x.ctx, x.db)
	x.must(err)
	x.same("failed documents", info.Failed, uint64(3))
	x.same("the first of them", info.Failures[0].ID.String(), "d3")
	if !strings.Contains(info.Failures[0].Message, "three") {
		x.Errorf("got message %q, want the panic's", info.Failures[0].Message)
	}
	_, err = drain(risky.Query(x.ctx, x.db, osier.FailOnError()))
	x.kind(err, osier.KindInvalid)
	good.Store(true)
	for i := 3; i < 6; i++ {
		_, err := things.Overwrite(x.ctx, x.db, fmt.Sprint("d", i), thing{N: i})
		x.must(err)
	}
	x.same("rows once it works", len(collect(x, risky.Query(x.ctx, x.db, osier.FailOnError()))), 8)

	sad := osier.NewView("sad", things, 1, func(d osier.Doc[thing], emit func(int, int)) { emit(d.Value.N, d.Value.N) },
		osier.ReduceWith(func(list []int) int {
			if slices.Contains(list, 6) {
				panic("six")
			}
			return len(list)
		}, func(list []int) int {
			n := 0
			for _, k := range list {
				n += k
			}
			return n
		}))
	x.schema(things, sad)
	x.same("rows of a view whose reduce fails", len(collect(x, sad.Query(x.ctx, x.db))), 8)
	_, err = sad.Reduce(x.ctx, x.db)
	x.kind(err, osier.KindInvalid)
	n, err := sad.Reduce(x.ctx, x.db, osier.Below(6))
	x.must(err)
	x.same("reduce of the others", n, 6)
}

func (x *tc) viewPolicies() {
	never := osier.NewFieldView[int, any]("never", "things", &osier.FieldViewOptions{Keys: []string{"n"}, Policy: osier.Never})
	x.schema(things, never)
	count := func(f osier.Freshness) int { return len(collect(x, never.Query(x.ctx, x.db, osier.As(f)))) }
	add := func(id string) osier.Seq {
		doc, err := things.Upsert(x.ctx, x.db, id, thing{N: 1})
		x.must(err)
		return doc.Seq
	}
	add("1")
	x.same("first build", count(osier.AsDeclared), 1)
	add("2")
	x.same("as declared", count(osier.AsDeclared), 1)
	x.same("stale", count(osier.Stale), 1)
	info, err := never.Info(x.ctx, x.db)
	x.must(err)
	x.same("behind", info.Behind, uint64(1))
	x.same("fresh", count(osier.Fresh), 2)
	add("3")
	x.must(never.Refresh(x.ctx, x.db))
	x.same("refreshed", count(osier.Stale), 3)
	seq := add("3b")
	x.same("stale, but at least a sequence", len(collect(x, never.Query(x.ctx, x.db, osier.As(osier.Stale), osier.AtLeast(seq)))), 4)
	x.must(things.Delete(x.ctx, x.db, "3b", osier.Rev{}))
	x.schema(things, byTag)
	seq = add("4")
	x.same("at least a sequence", len(collect(x, byTag.Query(x.ctx, x.db, osier.AtLeast(seq)))), 0)
	x.same("eager needs no wait", count(osier.Fresh), 4)
}

func (x *tc) changedVersion() {
	made := func(version uint64, gate chan struct{}) *osier.View[string, int] {
		return osier.NewView("changing", things, version, func(d osier.Doc[thing], emit func(string, int)) {
			if gate != nil {
				<-gate
			}
			emit(fmt.Sprint("v", version), d.Value.N)
		})
	}
	one := made(1, nil)
	x.schema(things, one)
	for i := range 3 {
		_, err := things.InsertWithID(x.ctx, x.db, fmt.Sprint(i), thing{N: i})
		x.must(err)
	}
	x.same("rows of the first version", len(collect(x, one.Query(x.ctx, x.db, osier.Key("v1")))), 3)
	gate := make(chan struct{})
	two := made(2, gate)
	x.schema(things, two)
	x.same("rows while the second one is built", len(collect(x, two.Query(x.ctx, x.db, osier.Key("v1")))), 3)
	close(gate)
	x.must(two.Refresh(x.ctx, x.db))
	x.same("rows of the second version", len(collect(x, two.Query(x.ctx, x.db, osier.Key("v2")))), 3)
	x.same("all rows", len(collect(x, two.Query(x.ctx, x.db))), 3)
	x.must(two.Drop(x.ctx, x.db))
	_, err := drain(two.Query(x.ctx, x.db))
	x.kind(err, osier.KindNotFound)
}

func (x *tc) definitions() {
	for _, bad := range []string{
		`{}`, `{"collection":"things"}`, `{"collection":"things","keys":[]}`, `{"collection":"things","keys":["a"],"typo":1}`,
		`{"collection":"things","keys":["a"],"reduce":"median"}`, `{"collection":"things","keys":["a"],"type":"other"}`,
		`{"collection":"things","keys":["a"],"update":"sometimes"}`, `{"collection":"things","keys":["a"],"spread":"b"}`,
		`{"collection":"_views","keys":["a"]}`, `{"collection":"things","keys":["a"],"partial":{"$what":1}}`, `[]`, `{"collection":"things","keys":["a..b"]}`,
	} {
		_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPut, Collection: osier.ViewsCollection, ID: osier.MustID("v"), Codec: osier.TagJSON, Body: []byte(bad)}}})
		if osier.KindOf(err) != osier.KindInvalid {
			x.Errorf("definition %s: got %v, want an error of kind invalid", bad, err)
		}
	}
	_, err := drain(byTag.Query(x.ctx, x.db))
	x.kind(err, osier.KindNotFound)
	x.schema(byTag)
	x.same("rows without a collection", len(collect(x, byTag.Query(x.ctx, x.db))), 0)
	_, err = things.Upsert(x.ctx, x.db, "1", thing{Tag: "x", N: 5})
	x.must(err)
	x.same("rows", len(collect(x, byTag.Query(x.ctx, x.db))), 1)
	other := osier.NewFieldView[int, any]("by-tag", "things", &osier.FieldViewOptions{Keys: []string{"n"}})
	x.schema(other)
	x.must(other.Refresh(x.ctx, x.db))
	x.same("rows by the changed definition", collect(x, other.Query(x.ctx, x.db))[0].Key, 5)
	infos := collect(x, x.db.Views(x.ctx))
	x.same("views", []string{infos[0].Name, infos[0].Type, infos[0].State.String()}, []string{"by-tag", "fields", "ready"})
	x.must(x.db.DropCollection(x.ctx, "things"))
	x.same("rows after the drop of the collection", len(collect(x, other.Query(x.ctx, x.db))), 0)
	_, err = things.Upsert(x.ctx, x.db, "2", thing{N: 6})
	x.must(err)
	x.same("rows of the collection made again", collect(x, other.Query(x.ctx, x.db))[0].Key, 6)
	x.must(other.Drop(x.ctx, x.db))
	_, err = drain(other.Query(x.ctx, x.db))
	x.kind(err, osier.KindNotFound)
	x.same("views", len(collect(x, x.db.Views(x.ctx))), 0)
}

func (x *tc) joinedDocuments() {
	parents := osier.NewView("parents", things, 1, func(d osier.Doc[thing], emit func(string, any)) {
		if d.Value.Name != "" {
			emit(d.Value.Name, map[string]string{"_id": fmt.Sprint("p", d.Value.N)})
		}
	})
	x.schema(things, parents)
	for i, name := range []string{"a", "b", ""} {
		_, err := things.InsertWithID(x.ctx, x.db, fmt.Sprint("p", i), thing{N: i + 1, Name: name})
		x.must(err)
	}
	got := []string{}
	for _, j := range collect(x, osier.Join(x.ctx, x.db, parents, things)) {
		got = append(got, fmt.Sprint(j.Key, " of ", j.ID, " is ", j.Doc.Value.Name))
	}
	x.same("source documents", got, []string{"a of p0 is a", "b of p1 is b"})
	got = got[:0]
	for _, j := range collect(x, osier.Join(x.ctx, x.db, parents, things, osier.Linked(osier.LinkValue))) {
		got = append(got, fmt.Sprint(j.Key, " links ", j.Doc.ID, " ", j.Doc.Value.N))
	}
	x.same("linked documents", got, []string{"a links p1 2", "b links p2 3"})
	for _, j := range collect(x, osier.Join(x.ctx, x.db, parents, things, osier.Linked(osier.LinkKey))) {
		x.same("a key that names no document", j.Missing, true)
	}
}

func (x *tc) strangeCursors() {
	x.schema(things, byTag)
	_, err := things.Upsert(x.ctx, x.db, "1", thing{Tag: "x"})
	x.must(err)
	for _, text := range []string{"?", "AQ", "AAAA", "AQAA", base64.RawURLEncoding.EncodeToString(cursorOf(1<<40, nil, 0, 0))} {
		_, err := drain(byTag.Query(x.ctx, x.db, osier.Continue(text)))
		x.kind(err, osier.KindInvalid)
	}
	for _, raw := range [][]byte{cursorOf(0, nil, 0, 0), cursorOf(7, []byte("\xff\xff\xff"), 0, 0), cursorOf(0, []byte{0}, 255, 255)} {
		_, err := drain(byTag.Query(x.ctx, x.db, osier.Continue(base64.RawURLEncoding.EncodeToString(raw))))
		x.must(err)
	}
}

func (x *tc) viewRights() {
	x.schema(things, byTag)
	grant := func(a osier.Action, coll string) *osier.DB {
		return x.db.As(osier.Principal{Name: "eve", Grants: []osier.Grant{{Actions: a, DB: "shop", Collection: coll}}})
	}
	body := []byte(`{"collection":"things","keys":["n"]}`)
	define := func(db *osier.DB) error {
		_, err := db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPut, Collection: osier.ViewsCollection, ID: osier.MustID("v"), Codec: osier.TagJSON, Body: body}}})
		return err
	}
	x.kind(define(grant(osier.MayRead|osier.MayWrite, "*")), osier.KindDenied)
	x.must(define(grant(osier.MayManage, "*")))
	_, err := drain(byTag.Query(x.ctx, grant(osier.MayRead, "films")))
	x.kind(err, osier.KindDenied)
	x.same("views that may be seen", len(collect(x, grant(osier.MayRead, "films").Views(x.ctx))), 0)
	x.same("views of what may be read", len(collect(x, grant(osier.MayRead, "things").Views(x.ctx))), 2)
}

func (x *tc) viewsReopened() {
	x.schema(things, byTag, names, spelled)
	_, err := things.Upsert(x.ctx, x.db, "1", thing{Tag: "x", Name: "n", Group: []any{1}})
	x.must(err)
	x.same("rows", len(collect(x, spelled.Query(x.ctx, x.db))), 2)
	x.reopen()
	x.same("rows of fields", len(collect(x, byTag.Query(x.ctx, x.db))), 1)
	_, err = drain(spelled.Query(x.ctx, x.db))
	x.kind(err, osier.KindUnsupported)
	_, err = things.Upsert(x.ctx, x.db, "2", thing{})
	x.kind(err, osier.KindUnsupported) // a unique view's function is not there to judge it
	x.schema(things, names, spelled)
	x.same("rows of the function", len(collect(x, spelled.Query(x.ctx, x.db))), 2)
	_, err = things.Upsert(x.ctx, x.db, "2", thing{Name: "n"})
	x.kind(err, osier.KindNotUnique)
}

func (x *tc) typedRanges() {
	pairs := osier.NewView("pairs", things, 1, func(d osier.Doc[thing], emit func(osier.Pair[string, int], string)) {
		emit(osier.Pair[string, int]{First: d.Value.Name, Second: d.Value.N}, d.ID.String())
	}, osier.CountRows())
	x.schema(things, pairs)
	for i, name := range []string{"ab", "ab", "abc", "b", "b", "c"} {
		_, err := things.InsertWithID(x.ctx, x.db, fmt.Sprint(i), thing{Name: name, N: i})
		x.must(err)
	}
	list := func(o ...osier.RowsOption) string {
		out := ""
		for _, row := range collect(x, pairs.Query(x.ctx, x.db, o...)) {
			x.same("value and id", row.Value, row.ID.String())
			out += fmt.Sprint(row.Key.First, row.Key.Second, " ")
		}
		return strings.TrimSpace(out)
	}
	x.same("all", list(), "ab0 ab1 abc2 b3 b4 c5")
	x.same("first field", list(osier.Prefix(osier.Tuple{"ab"})), "ab0 ab1")
	x.same("beginning of the first field", list(osier.Prefix(osier.Tuple{osier.StringPrefix("ab")})), "ab0 ab1 abc2")
	x.same("range", list(osier.From(osier.Pair[string, int]{First: "ab", Second: 1}), osier.Below(osier.Tuple{"b", 4})), "ab1 abc2 b3")
	x.same("open and closed ends", list(osier.Above(osier.Tuple{"ab", 1}), osier.UpTo(osier.Tuple{"b", 4})), "abc2 b3 b4")
	x.same("descending with limit", list(osier.Descending(), osier.LimitRows(2)), "c5 b4")
	x.same("skip", list(osier.SkipRows(4)), "b4 c5")
	x.same("keys in their order", list(osier.Keys(osier.Tuple{"c", 5}, osier.Tuple{"ab", 0})), "c5 ab0")
	groups := ""
	tuples := osier.NewView("pairs", things, 1, func(osier.Doc[thing], func(any, any)) {})
	for _, g := range collect(x, osier.GroupsTo[int](x.ctx, x.db, tuples, 1)) {
		groups += fmt.Sprint(g.Key, "=", g.Value, " ")
	}
	x.same("groups", groups, "[ab]=2 [abc]=1 [b]=2 [c]=1 ")
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	_, err := drain(pairs.Query(ctx, x.db))
	x.kind(err, osier.KindCanceled)
}
