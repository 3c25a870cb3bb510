package osiertest

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

func liveTests() []test {
	return []test{
		{"what is there comes first, then what changes", testLive},
		{"a live query resumes from a mark", testLiveResume},
		{"a live query resumes where an older revision has come to win", testLiveOlderWins},
		{"dropping its collection removes all from a live query", testLiveDrop},
		{"what a live query shows is what a find finds", testLiveRandom},
		{"a live query that cannot be is refused", testLiveRefusals},
		{"a live query that matches too much ends", testLiveTooMuch},
		{"a slow reader is told", testLiveSlow},
	}
}

// liveText names an event, as in "+ann" for an addition.
func liveText(ch osier.Change) string {
	if ch.Mark {
		return "mark"
	}
	return string(" +~-"[ch.Event]) + ch.ID.String()
}

func testLive(x *tc) {
	x.people()
	each, _ := follow(x.db.Watch(x.ctx, &osier.Feed{Collection: "raws", Mode: osier.FeedLive, Parts: osier.WithBody, Marks: true,
		Live: &osier.LiveQuery{Selector: []byte(`{"city":"Oslo"}`), Fields: []string{"age"}}}))
	expect := func(want ...string) {
		x.Helper()
		for _, w := range want {
			if got := receive(x, each); liveText(got)+" "+string(got.Body) != w {
				x.Fatalf("got %s %s, want %s", liveText(got), got.Body, w)
			}
		}
	}
	expect(`+ann {"age":30}`, `+cid {"age":41}`, `mark `)
	put := func(id, body string) {
		_, err := raws.Upsert(x.ctx, x.db, id, osier.Raw(body))
		x.must(err)
	}
	put("bob", `{"city":"Oslo","age":26}`)
	expect(`+bob {"age":26}`, `mark `)
	put("ann", `{"city":"Oslo","age":31}`)
	expect(`~ann {"age":31}`, `mark `)
	put("cid", `{"city":"Rome","age":41}`)
	expect(`-cid `, `mark `)
	put("dee", `{"city":"Rome"}`)
	expect(`mark `)
	x.must(raws.Delete(x.ctx, x.db, "bob", osier.Rev{}))
	expect(`-bob `, `mark `)
	put("cid", `{"city":"Oslo","age":42}`)
	expect(`+cid {"age":42}`, `mark `)
}

// typedLive reads a live query through a typed handle until its first mark.
func (x *tc) typedLive(since osier.Seq) (events []string, mark osier.Seq) {
	x.Helper()
	for l, err := range raws.Live(x.ctx, x.db, osier.Where("city").Eq("Oslo"), &osier.LiveOptions{Since: since}) {
		x.must(err)
		if l.Event == 0 {
			return events, l.Seq
		}
		events = append(events, string(" +~-"[l.Event])+l.ID.String()+" "+string(l.Value))
	}
	return events, 0
}

func testLiveResume(x *tc) {
	x.people()
	_, mark := x.typedLive(0)
	_, err := raws.Upsert(x.ctx, x.db, "bob", osier.Raw(`{"city":"Oslo"}`))
	x.must(err)
	_, err = raws.Upsert(x.ctx, x.db, "cid", osier.Raw(`{"city":"Rome"}`))
	x.must(err)
	events, next := x.typedLive(mark)
	// How bob was before is not kept: his first change may be an addition.
	x.same("events", events, []string{`~bob {"city":"Oslo"}`, `-cid `})
	x.same("sequence", next, mark+2)
	events, _ = x.typedLive(next)
	x.same("nothing new", len(events), 0)
}

func testLiveOlderWins(x *tc) {
	rev := func(s string) osier.Rev {
		r, err := osier.ParseRev(s)
		x.must(err)
		return r
	}
	x.must(raws.Graft(x.ctx, x.db, "bob", []osier.Rev{rev("1-aa")}, osier.Raw(`{"city":"Rome"}`)))
	x.must(raws.Graft(x.ctx, x.db, "bob", []osier.Rev{rev("2-bb"), rev("1-bb")}, osier.Raw(`{"city":"Oslo"}`)))
	events, mark := x.typedLive(0)
	x.same("at first", events, []string{`+bob {"city":"Oslo"}`})
	x.must(raws.Delete(x.ctx, x.db, "bob", rev("2-bb")))
	events, _ = x.typedLive(mark)
	x.same("then", events, []string{`-bob `})
}

func testLiveDrop(x *tc) {
	x.people()
	each, _ := follow(x.db.Watch(x.ctx, &osier.Feed{Collection: "raws", Mode: osier.FeedLive, Marks: true,
		Live: &osier.LiveQuery{Selector: []byte(`{"city":"Oslo"}`)}}))
	last := osier.Seq(0)
	expect := func(want ...string) {
		x.Helper()
		for _, w := range want {
			got := receive(x, each)
			if liveText(got) != w || got.Seq < last {
				x.Fatalf("got %s at %d behind %d, want %s", liveText(got), got.Seq, last, w)
			}
			if got.Mark {
				last = got.Seq // what is there already comes in the order of ids
			}
		}
	}
	expect("+ann", "+cid", "mark")
	x.insert("elsewhere", "A")
	expect("mark")
	x.must(x.db.DropCollection(x.ctx, "films"))
	x.must(x.db.DropCollection(x.ctx, "raws"))
	expect("-ann", "-cid", "mark")
	_, err := raws.Upsert(x.ctx, x.db, "ann", osier.Raw(`{"city":"Oslo"}`))
	x.must(err)
	expect("+ann", "mark")
	_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpDropCollection, Collection: "raws"},
		{Kind: osier.OpPut, Collection: "raws", ID: osier.MustID("bob"), Body: []byte(`{"city":"Oslo"}`), Codec: osier.TagJSON}}})
	x.must(err)
	expect("-ann")
	for row := receive(x, each); !row.Mark || row.Seq == last; row = receive(x, each) {
		if !row.Mark && liveText(row) != "+bob" {
			x.Fatalf("got %s, want +bob", liveText(row))
		}
	}
}

func testLiveRandom(x *tc) {
	round := 0
	rapid.Check(x.T, func(t *rapid.T) {
		if round++; round > 25 {
			return // a round waits for the disk several times
		}
		name := fmt.Sprintf("live%d", round)
		selector := []byte(drawFindSelector(t, 2))
		have := map[string]string{} // what the reader has
		since := osier.Seq(0)
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			var ops []osier.Op
			for range rapid.IntRange(0, 8).Draw(t, "writes") {
				ops = append(ops, drawFindOp(t, name))
			}
			_, err := x.db.Exec(x.ctx, &osier.Command{Ops: ops, PerDocument: true})
			x.must(err)
			f := &osier.Feed{Collection: name, Since: since, Parts: osier.WithBody, Marks: true, Live: &osier.LiveQuery{Selector: selector}}
			last := osier.Seq(0)
			for ch, err := range x.db.Watch(x.ctx, f) {
				x.must(err)
				_, had := have[ch.ID.String()]
				if known := since == 0; known && !ch.Mark && had != (ch.Event != osier.LiveAdded) {
					t.Fatalf("%s: event %s, but the reader has %v", selector, liveText(ch), have)
				}
				switch {
				case ch.Mark:
					since = ch.Seq
				case ch.Event == osier.LiveRemoved:
					delete(have, ch.ID.String())
				default:
					have[ch.ID.String()] = canonical(t, ch.Body)
				}
				if since > 0 && !ch.Mark && ch.Seq <= last {
					t.Fatalf("%s: sequence %d behind %d", selector, ch.Seq, last)
				}
				last = ch.Seq
			}
			want := map[string]string{}
			for row, err := range x.db.Find(x.ctx, name, osier.Mango(selector), nil) {
				x.must(err)
				want[row.ID.String()] = canonical(t, row.Body)
			}
			if fmt.Sprint(have) != fmt.Sprint(want) {
				t.Fatalf("%s: at %d the reader has\n%v\nwant\n%v", selector, since, have, want)
			}
		}
	})
}

func testLiveRefusals(x *tc) {
	x.people()
	for _, f := range []osier.Feed{
		{Live: &osier.LiveQuery{}},
		{Collection: "raws", Descending: true, Live: &osier.LiveQuery{}},
		{Collection: "raws", IDs: []osier.ID{osier.MustID("ann")}, Live: &osier.LiveQuery{}},
		{Collection: "raws", Live: &osier.LiveQuery{Selector: []byte(`{"a":{"$what":1}}`)}},
		{Collection: "raws", Live: &osier.LiveQuery{Swap: true, Selector: []byte(`{"what":1}`)}},
		{Collection: "raws", Live: &osier.LiveQuery{Fields: []string{""}}},
	} {
		_, err := drain(x.db.Watch(x.ctx, &f))
		x.kind(err, osier.KindInvalid)
	}
}

func testLiveTooMuch(x *tc) {
	x.people()
	got, err := drain(x.db.Watch(x.ctx, &osier.Feed{Collection: "raws", Live: &osier.LiveQuery{MaxDocuments: 3}}))
	if err == nil && len(got) == 6 {
		x.Skip("this store sets no bound")
	}
	x.kind(err, osier.KindTooLarge)
}

func testLiveSlow(x *tc) {
	x.people()
	var got []string
	var err error
	for ch, e := range x.db.Watch(x.ctx, &osier.Feed{Collection: "raws", Mode: osier.FeedLive, Marks: true, Limit: 20, Live: &osier.LiveQuery{MaxBehind: 5}}) {
		if err = e; e != nil {
			break
		}
		if got = append(got, liveText(ch)); ch.Mark {
			// The reader dawdles.
			for i := range 8 {
				_, err := raws.Upsert(x.ctx, x.db, fmt.Sprintf("new%d", i), osier.Raw(`{}`))
				x.must(err)
			}
		}
	}
	if !slices.Contains(got, "mark") || err == nil && strings.Count(strings.Join(got, " "), "new") > 8 {
		x.Skip("this store sets no bound")
	}
	x.kind(err, osier.KindGap)
}
