package osiertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

func findTests() []test {
	return []test{
		{"a selector finds what it means", testFind},
		{"a filter and a SwapQuery say the same", testFindSpellings},
		{"sorts order all kinds of values", testFindSort},
		{"a bookmark leads on whatever is written", testFindBookmark},
		{"random queries find what a naive evaluation finds", testFindRandom},
		{"random queries find the same with indexes", testFindIndexed},
		{"indexes are defined, listed and dropped", testIndexes},
		{"a transaction finds its own writes", testFindTx},
		{"a transaction that found is one that read all", testFindTxConflict},
		{"bad queries are refused", testFindRefusals},
		{"ids that begin with a text are passed over", testFindPassOver},
		{"a find sees as far as it was told to", testFindMinSeq},
		{"documents without a JSON form are left out and counted", testFindUnreadable},
	}
}

// people puts some documents in place, an odd one among them.
func (x *tc) people() {
	x.Helper()
	for id, body := range map[string]string{
		"ann": `{"name":"Ann","age":30,"city":"Oslo","tags":["a","b"],"addr":{"zip":"0150","geo":{"lat":59.9}}}`,
		"bob": `{"name":"bob","age":25,"city":"Bergen","tags":["b"],"addr":{"zip":"5003"}}`,
		"cid": `{"name":"Cid","age":41,"city":"Oslo","tags":[],"addr":{}}`,
		"dee": `{"name":"Dee","age":30,"city":"Tromsø","tags":["c","a",5]}`,
		"eve": `{"name":"Eve","age":"7","dot.ted":1}`,
		"odd": `["no","object"]`,
	} {
		_, err := raws.InsertWithID(x.ctx, x.db, id, osier.Raw(body))
		x.must(err)
	}
}

// found lists the ids that a find gives, joined, and its summary.
func (x *tc) found(r osier.Reader, s osier.Selector, o *osier.FindOptions) (string, *osier.FindSummary) {
	x.Helper()
	var own osier.FindOptions
	if o != nil {
		own = *o
	}
	own.Summary = new(osier.FindSummary)
	var ids []string
	for _, d := range collect(x, raws.Find(x.ctx, r, s, &own)) {
		ids = append(ids, d.ID.String())
	}
	return strings.Join(ids, " "), own.Summary
}

func testFind(x *tc) {
	x.people()
	for _, c := range []struct{ selector, want string }{
		{``, "ann bob cid dee eve odd"},
		{`{}`, "ann bob cid dee eve odd"},
		{`{"city":"Oslo"}`, "ann cid"},
		{`{"age":{"$gt":25,"$lte":41}}`, "ann cid dee"},
		{`{"age":{"$gt":25}}`, "ann cid dee eve"},
		{`{"addr.zip":{"$exists":true}}`, "ann bob"},
		{`{"addr":{"geo":{"lat":{"$gte":59}}}}`, "ann"},
		{`{"dot\\.ted":1}`, "eve"},
		{`{"tags":{"$all":["a","b"]}}`, "ann"},
		{`{"tags":{"$elemMatch":{"$eq":5}}}`, "dee"},
		{`{"$or":[{"city":"Bergen"},{"age":"7"}]}`, "bob eve"},
		{`{"$nor":[{"city":"Oslo"}],"name":{"$regex":"^[A-Z]"}}`, "dee"},
		{`{"_id":{"$gte":"c","$lt":"e"}}`, "cid dee"},
		{`{"_id":{"$in":["eve","nobody","ann"]}}`, "ann eve"},
		{`{"nowhere":{"$exists":false},"_id":{"$gt":"dee"}}`, "eve odd"},
		{`{"$and":[]}`, ""},
		{`{"city":"Atlantis"}`, ""},
	} {
		got, sum := x.found(x.db, osier.Mango(c.selector), nil)
		if want := len(strings.Fields(c.want)); got != c.want || !sum.Complete || sum.Rows != uint64(want) || (sum.Bookmark != "") != (want > 0) {
			x.Errorf("%s: got %q and %+v, want %q", c.selector, got, *sum, c.want)
		}
	}
	rows := collect(x, x.db.Find(x.ctx, "raws", osier.Mango(`{"name":"Ann"}`), &osier.FindOptions{Fields: []string{"_id", "addr.zip", "tags.1", "nowhere"}}))
	x.same("rows", len(rows), 1)
	x.same("projected", string(rows[0].Body), `{"_id":"ann","addr":{"zip":"0150"},"tags":{"1":"b"}}`)
	x.same("codec", rows[0].Codec, osier.TagJSON)
	rows = collect(x, x.db.Find(x.ctx, "raws", osier.Mango(`{"city":"Oslo"}`), &osier.FindOptions{Skip: 1, Limit: 5}))
	x.same("skipped to", rows[0].ID.String(), "cid")
	x.same("nothing there", len(collect(x, x.db.Find(x.ctx, "nothing", osier.Mango(`{}`), nil))), 0)
}

func testFindSpellings(x *tc) {
	x.people()
	for _, c := range []struct {
		mango  osier.Mango
		swap   osier.Swap
		filter osier.Filter
		want   string
	}{
		{`{"city":"Oslo","age":{"$gt":30}}`, `{"=":{"city":"Oslo"},">":{"age":30}}`, osier.Where("city").Eq("Oslo").And(osier.Where("age").Gt(30)), "cid"},
		{`{"addr.zip":"0150"}`, `{"=":{"addr":{"zip":"0150"}}}`, osier.WhereNames("addr", "zip").Eq("0150"), "ann"},
		{`{"addr":{"$eq":{"zip":"5003"}}}`, `{"==":{"addr":{"zip":"5003"}}}`, osier.Where("addr").Eq(map[string]string{"zip": "5003"}), "bob"},
		{`{"$or":[{"city":"Bergen"},{"age":41}]}`, `{"or":[{"=":{"city":"Bergen"}},{"=":{"age":41}}]}`, osier.Where("city").Eq("Bergen").Or(osier.Where("age").Eq(41)), "bob cid"},
		{`{"$nor":[{"city":"Oslo"},{"city":"Bergen"}]}`, `{"not":{"in":{"city":["Oslo","Bergen"]}}}`, osier.NoneOf(osier.Where("city").Eq("Oslo"), osier.Where("city").Eq("Bergen")), "dee"},
		{`{}`, `{}`, osier.Filter{}, "ann bob cid dee eve odd"},
	} {
		for _, s := range []osier.Selector{c.mango, c.swap, c.filter} {
			if got, _ := x.found(x.db, s, nil); got != c.want {
				x.Errorf("%v: got %q, want %q", s, got, c.want)
			}
		}
	}
	plan, err := x.db.Explain(x.ctx, "raws", osier.Swap(`{"=":{"addr":{"zip":"0150"}}}`), nil)
	if osier.KindOf(err) == osier.KindUnsupported {
		return
	}
	x.must(err)
	x.same("translation", plan.Selector, `{"addr.zip":{"$eq":"0150"}}`)
}

func testFindSort(x *tc) {
	values := []string{``, `null`, `false`, `true`, `-1`, `0`, `2`, `10`, `""`, `"a"`, `"A"`, `"aa"`, `"B"`, `"é"`, `"z"`, `[]`, `[1]`, `["a"]`, `{}`, `{"a":1}`}
	for i, v := range values {
		body := `{"n":1}`
		if v != "" {
			body = `{"n":1,"v":` + v + `}`
		}
		_, err := raws.InsertWithID(x.ctx, x.db, (i*7)%len(values), osier.Raw(body)) // 7 and 20 have no common divisor
		x.must(err)
	}
	var want []string
	for i := range values {
		want = append(want, fmt.Sprint((i*7)%len(values)))
	}
	check := func(what string, o osier.FindOptions, want []string) {
		x.Helper()
		if got, _ := x.found(x.db, osier.Mango(`{}`), &o); got != strings.Join(want, " ") {
			x.Errorf("%s: got %s, want %s", what, got, strings.Join(want, " "))
		}
	}
	check("ascending", osier.FindOptions{Sort: []osier.SortField{osier.Asc("v")}}, want)
	check("only what has it", osier.FindOptions{Sort: []osier.SortField{osier.Asc("v")}, SortedOnly: true}, want[1:])
	check("within little memory", osier.FindOptions{Sort: []osier.SortField{osier.Asc("v")}, SortBytes: 1}, want)
	check("the first", osier.FindOptions{Sort: []osier.SortField{osier.Asc("v")}, Limit: 3}, want[:3])
	check("some after the first", osier.FindOptions{Sort: []osier.SortField{osier.Asc("v")}, Skip: 2, Limit: 3}, want[2:5])
	reversed := slices.Clone(want)
	slices.Reverse(reversed)
	check("descending", osier.FindOptions{Sort: []osier.SortField{osier.Desc("v")}}, reversed)
	var ids []string
	for i := range values {
		ids = append(ids, fmt.Sprint(i))
	}
	check("by id", osier.FindOptions{Sort: []osier.SortField{osier.Asc("_id")}}, ids)
	check("equal, then by id", osier.FindOptions{Sort: []osier.SortField{osier.Asc("n")}}, ids)
	slices.Reverse(ids)
	check("by id, descending", osier.FindOptions{Sort: []osier.SortField{osier.Desc("_id"), osier.Asc("v")}}, ids)
	check("equal and descending, then by id", osier.FindOptions{Sort: []osier.SortField{osier.Desc("n")}}, ids)
	check("mixed directions", osier.FindOptions{Sort: []osier.SortField{osier.Asc("n"), osier.Desc("v")}}, reversed)
}

func testFindBookmark(x *tc) {
	put := func(id, n int) {
		_, err := raws.Upsert(x.ctx, x.db, id, osier.Raw(fmt.Sprintf(`{"n":%d,"even":%v}`, n, n%2 == 0)))
		x.must(err)
	}
	for id := range 20 {
		put(id, 100-id)
	}
	for _, sort := range [][]osier.SortField{nil, {osier.Asc("n")}, {osier.Desc("n")}, {osier.Asc("even"), osier.Desc("n")}} {
		o := &osier.FindOptions{Sort: sort}
		all, _ := x.found(x.db, osier.Mango(`{}`), o)
		want := strings.Fields(all)
		var got []string
		for range 5 {
			o.Limit = 5
			page, sum := x.found(x.db, osier.Mango(`{}`), o)
			got = append(got, strings.Fields(page)...)
			if sum.Complete {
				break
			}
			o.Bookmark = sum.Bookmark
			// What is written behind the reader's back changes nothing before him, and
			// the row of the bookmark may go.
			last := osier.MustID(rowID(x, got[len(got)-1]))
			doc, err := raws.Get(x.ctx, x.db, last)
			x.must(err)
			x.must(raws.Delete(x.ctx, x.db, last, osier.Rev{}))
			next, sum2 := x.found(x.db, osier.Mango(`{}`), o)
			if len(got) < 20 && (sum2.Rows == 0 || strings.Fields(next)[0] != want[len(got)]) {
				x.Fatalf("sort %v: behind %s came %s, want %s", sort, got[len(got)-1], next, want[len(got)])
			}
			_, err = raws.InsertWithID(x.ctx, x.db, last, doc.Value)
			x.must(err)
		}
		x.same(fmt.Sprintf("pages by %v", sort), got, want)
	}
	_, sum := x.found(x.db, osier.Mango(`{}`), &osier.FindOptions{Limit: 3})
	for _, bad := range []string{"x", "!", sum.Bookmark + "A", sum.Bookmark[:len(sum.Bookmark)-2], strings.Repeat("A", 40)} {
		_, err := drain(x.db.Find(x.ctx, "raws", osier.Mango(`{}`), &osier.FindOptions{Bookmark: bad}))
		x.kind(err, osier.KindInvalid)
	}
	_, err := drain(x.db.Find(x.ctx, "raws", osier.Mango(`{"n":1}`), &osier.FindOptions{Bookmark: sum.Bookmark}))
	x.kind(err, osier.KindInvalid)
}

// rowID reads an integer id.
func rowID(x *tc, s string) int {
	x.Helper()
	var n int
	_, err := fmt.Sscan(s, &n)
	x.must(err)
	return n
}

func testIndexes(x *tc) {
	x.people()
	byCity := osier.Index{Name: "by-city", Collection: "raws", Fields: []osier.SortField{osier.Asc("city"), osier.Asc("age")}, Filter: osier.Where("age").Gt(18)}
	for _, want := range []bool{true, false} {
		created, err := x.db.CreateIndex(x.ctx, byCity)
		x.must(err)
		x.same("created", created, want)
	}
	other := byCity
	other.Fields = other.Fields[:1]
	_, err := x.db.CreateIndex(x.ctx, other)
	x.kind(err, osier.KindExists)
	other.Name = "not a name"
	_, err = x.db.CreateIndex(x.ctx, other)
	x.kind(err, osier.KindInvalid)
	list, err := x.db.Indexes(x.ctx, "raws")
	x.must(err)
	x.same("indexes", len(list), 1)
	x.same("fields", list[0].Fields, byCity.Fields)
	x.same("filter", list[0].Filter, osier.Selector(osier.Mango(`{"age":{"$gt":18}}`)))
	list, err = x.db.Indexes(x.ctx, "others")
	x.must(err)
	x.same("of others", len(list), 0)
	got, _ := x.found(x.db, osier.Mango(`{"city":"Oslo","age":{"$gt":35}}`), &osier.FindOptions{UseIndex: "by-city", Strict: true})
	x.same("found", got, "cid")
	_, err = drain(x.db.Find(x.ctx, "raws", osier.Mango(`{}`), &osier.FindOptions{UseIndex: "nothing", Strict: true}))
	if err != nil { // a store without indexes does not mind
		x.kind(err, osier.KindNotFound)
	}
	denied := x.db.As(osier.Principal{Grants: []osier.Grant{{Actions: osier.MayRead | osier.MayWrite, DB: "*"}}})
	other.Name = "by-name"
	_, err = denied.CreateIndex(x.ctx, other)
	x.kind(err, osier.KindDenied)
	x.must(x.db.DropIndex(x.ctx, "by-city"))
	x.kind(x.db.DropIndex(x.ctx, "by-city"), osier.KindNotFound)
	got, sum := x.found(x.db, osier.Mango(`{"city":"Oslo"}`), &osier.FindOptions{UseIndex: "by-city"})
	x.same("found", got, "ann cid")
	if sum.Plan != nil && sum.Warning == "" {
		x.Error("no warning of an index that is not there")
	}
}

func testFindTx(x *tc) {
	x.people()
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		_, err := raws.InsertWithID(x.ctx, tx, "fay", osier.Raw(`{"city":"Oslo","age":8}`))
		x.must(err)
		x.must(raws.Delete(x.ctx, tx, "ann", osier.Rev{}))
		_, err = raws.Upsert(x.ctx, tx, "bob", osier.Raw(`{"city":"Oslo","age":9}`))
		x.must(err)
		got, _ := x.found(tx, osier.Mango(`{"city":"Oslo"}`), nil)
		x.same("in order of ids", got, "bob cid fay")
		got, sum := x.found(tx, osier.Mango(`{"city":"Oslo"}`), &osier.FindOptions{Sort: []osier.SortField{osier.Desc("age")}, Limit: 2})
		x.same("sorted", got, "cid bob")
		x.same("complete", sum.Complete, false)
		rows := collect(x, tx.Find(x.ctx, "raws", osier.Mango(`{"age":8}`), &osier.FindOptions{Fields: []string{"age"}}))
		x.same("projected", string(rows[0].Body), `{"age":8}`)
		_, err = drain(tx.Find(x.ctx, "raws", osier.Mango(`{"age":{"$what":1}}`), nil))
		x.kind(err, osier.KindInvalid)
		return nil
	}))
	got, _ := x.found(x.db, osier.Mango(`{"city":"Oslo"}`), nil)
	x.same("committed", got, "bob cid fay")
}

func testFindTxConflict(x *tc) {
	x.people()
	tries := 0
	x.must(x.db.Update(x.ctx, func(tx *osier.Tx) error {
		tries++
		got, _ := x.found(tx, osier.Mango(`{"city":"Oslo"}`), nil)
		if tries == 1 {
			_, err := raws.InsertWithID(x.ctx, x.db, "fay", osier.Raw(`{"city":"Oslo"}`))
			x.must(err)
		}
		_, err := raws.Upsert(x.ctx, tx, "sum", osier.Raw(fmt.Sprintf(`{"of":%q}`, got)))
		return err
	}))
	x.same("tries", tries, 2)
	doc, err := raws.Get(x.ctx, x.db, "sum")
	x.must(err)
	x.same("sum", string(doc.Value), `{"of":"ann cid fay"}`)
}

func testFindRefusals(x *tc) {
	x.people()
	for _, c := range []struct {
		s    osier.Selector
		o    *osier.FindOptions
		kind osier.Kind
		name string
	}{
		{osier.Mango(`{"a":`), nil, osier.KindInvalid, "bad_request"},
		{osier.Mango(`[]`), nil, osier.KindInvalid, "invalid_selector_json"},
		{osier.Mango(`{"a":{"$near":1}}`), nil, osier.KindInvalid, "not_supported"},
		{osier.Mango(`{"a":{"$foo":1}}`), nil, osier.KindInvalid, "invalid_operator"},
		{osier.Mango(`{"a":{"$regex":"(?=x)"}}`), nil, osier.KindInvalid, "bad_arg"},
		{osier.Mango(strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)), nil, osier.KindTooLarge, "selector_too_large"},
		{osier.Mango(`{"$or":[` + strings.Repeat(`{"a":1},`, 2000) + `{"a":1}]}`), nil, osier.KindTooLarge, "selector_too_large"},
		{osier.Swap(`{"<>":{"a":1}}`), nil, osier.KindInvalid, "invalid_operator"},
		{osier.Mango(`{}`), &osier.FindOptions{Fields: []string{"a..b"}}, osier.KindInvalid, "invalid_field_name"},
		{osier.Mango(`{}`), &osier.FindOptions{Sort: []osier.SortField{osier.Asc("")}}, osier.KindInvalid, "invalid_sort_field"},
		{osier.Where("a").Eq(func() {}), nil, osier.KindInvalid, ""},
	} {
		_, err := drain(x.db.Find(x.ctx, "raws", c.s, c.o))
		x.kind(err, c.kind)
		var e *osier.SelectorError
		if c.name != "" && (!errors.As(err, &e) || e.Name != c.name) {
			x.Errorf("%.60v: got %v, want a SelectorError named %s", c.s, err, c.name)
		}
	}
	_, err := drain(x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryFind, Collection: "raws"}))
	x.kind(err, osier.KindInvalid)
}

func testFindMinSeq(x *tc) {
	x.people()
	info, err := x.db.Info(x.ctx)
	x.must(err)
	each, end := follow(x.db.Find(x.ctx, "raws", osier.Mango(`{"name":"Fay"}`), &osier.FindOptions{MinSeq: info.LastSeq + 1}))
	_, err = raws.InsertWithID(x.ctx, x.db, "fay", osier.Raw(`{"name":"Fay"}`))
	x.must(err)
	x.same("found", receive(x, each).ID.String(), "fay")
	x.must(receive(x, end).err)
}

func testFindUnreadable(x *tc) {
	x.people()
	strange := osier.Op{Kind: osier.OpPut, Collection: "raws", ID: osier.MustID("dud"), Codec: 99, Body: []byte("?")}
	_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{strange}})
	x.must(err)
	sum := new(osier.FindSummary)
	rows := collect(x, x.db.Find(x.ctx, "raws", osier.Mango(`{"city":"Oslo"}`), &osier.FindOptions{Summary: sum}))
	x.same("rows", len(rows), 2)
	x.same("failed", sum.Failed, uint64(1))
	x.same("first failed", sum.FirstFailed, "dud")
	_, err = drain(x.db.Find(x.ctx, "raws", osier.Mango(`{"city":"Oslo"}`), &osier.FindOptions{FailOnError: true}))
	if err == nil {
		x.Fatal("a document without a JSON form was passed over")
	}
}

// Random documents and queries are made of few names and values, so that they
// meet often.
var (
	findNames   = []string{"a", "b", "c"}
	findScalars = []string{"null", "true", "false", "0", "1", "2", "-1.5", "10", `""`, `"a"`, `"A"`, `"ab"`, `"ä"`, `"z"`}
	findPaths   = []string{"a", "b", "c", "a.b", "b.c", "a.0"}
)

func drawFindValue(t *rapid.T, depth int) string {
	switch kind := rapid.IntRange(0, 7).Draw(t, "kind"); {
	case depth == 0 || kind < 5:
		return rapid.SampledFrom(findScalars).Draw(t, "scalar")
	case kind == 5:
		var parts []string
		for range rapid.IntRange(0, 2).Draw(t, "elements") {
			parts = append(parts, drawFindValue(t, depth-1))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return drawFindObject(t, depth-1)
}

func drawFindObject(t *rapid.T, depth int) string {
	var parts []string
	for _, name := range findNames {
		if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
			parts = append(parts, `"`+name+`":`+drawFindValue(t, depth))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func drawFindSelector(t *rapid.T, depth int) string {
	if depth > 0 && rapid.IntRange(0, 3).Draw(t, "junction") == 0 {
		op := rapid.SampledFrom([]string{"$and", "$or", "$nor"}).Draw(t, "op")
		var parts []string
		for range rapid.IntRange(1, 3).Draw(t, "parts") {
			parts = append(parts, drawFindSelector(t, depth-1))
		}
		return `{"` + op + `":[` + strings.Join(parts, ",") + `]}`
	}
	path := rapid.SampledFrom(append([]string{"_id"}, findPaths...)).Draw(t, "path")
	value := func() string { return drawFindValue(t, 1) }
	switch op := rapid.SampledFrom([]string{"", "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$type", "range"}).Draw(t, "operator"); op {
	case "":
		return `{"` + path + `":` + rapid.SampledFrom(findScalars).Draw(t, "scalar") + `}`
	case "range":
		return `{"` + path + `":{"$gte":` + value() + `,"$lt":` + value() + `}}`
	case "$in", "$nin":
		return `{"` + path + `":{"` + op + `":[` + value() + `,` + value() + `]}}`
	case "$exists":
		return fmt.Sprintf(`{"%s":{"$exists":%v}}`, path, rapid.Bool().Draw(t, "exists"))
	case "$type":
		return `{"` + path + `":{"$type":"` + rapid.SampledFrom([]string{"null", "number", "string", "array", "object"}).Draw(t, "type") + `"}}`
	default:
		return `{"` + path + `":{"` + op + `":` + value() + `}}`
	}
}

func drawFindSort(t *rapid.T) (s []osier.SortField) {
	for _, path := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "a.b", "_id"}), 0, 2, rapid.ID).Draw(t, "sort") {
		s = append(s, osier.SortField{Path: path, Descending: rapid.Bool().Draw(t, "descending")})
	}
	return s
}

// drawFindOp draws a write: a document, a deletion or a foreign branch.
func drawFindOp(t *rapid.T, collection string) osier.Op {
	id := rapid.Custom(func(t *rapid.T) osier.ID {
		if rapid.IntRange(0, 4).Draw(t, "number") == 0 {
			return osier.MustID(rapid.IntRange(0, 5).Draw(t, "id"))
		}
		return osier.MustID(rapid.StringMatching(`[a-c]{1,2}`).Draw(t, "id"))
	}).Draw(t, "id")
	op := osier.Op{Kind: osier.OpPut, Collection: collection, ID: id, Codec: osier.TagJSON}
	switch rapid.IntRange(0, 9).Draw(t, "write") {
	case 0:
		op.Deleted = true
	case 1:
		op.Kind = osier.OpGraft
		op.Path = []osier.Rev{osier.NewRev(uint64(rapid.IntRange(1, 3).Draw(t, "generation")), [16]byte{byte(rapid.IntRange(0, 255).Draw(t, "digest"))})}
		fallthrough
	default:
		op.Body = []byte(drawFindObject(t, 2))
	}
	return op
}

func testFindRandom(x *tc) { findRandomly(x, false) }

func testFindIndexed(x *tc) { findRandomly(x, true) }

// findRandomly has random documents written and random queries answered by the
// store and by a model beside it.
func findRandomly(x *tc, indexed bool) {
	round := 0
	rapid.Check(x.T, func(t *rapid.T) {
		if round++; round > 60 || indexed && round > 30 {
			return // a round commits several times, and may build indexes
		}
		model := osier.NewStore(NewModel(nil), nil)
		defer model.Close()
		judged, err := model.CreateDB(x.ctx, "shop")
		x.must(err)
		c := &findCase{tc: x, t: t, judged: judged, name: fmt.Sprintf("random%d", round)}
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			var ops []osier.Op
			for range rapid.IntRange(0, 12).Draw(t, "writes") {
				ops = append(ops, drawFindOp(t, c.name))
			}
			for _, db := range []*osier.DB{x.db, judged} {
				_, err := db.Exec(x.ctx, &osier.Command{Ops: slices.Clone(ops), PerDocument: true, Durability: osier.Relaxed})
				x.must(err)
			}
			if indexed && len(c.indexes) < 3 {
				c.index()
			}
			for range 4 {
				c.compare()
			}
		}
		for _, name := range c.indexes {
			x.must(x.db.DropIndex(x.ctx, name))
		}
	})
}

// findCase is a collection that is also a model's.
type findCase struct {
	*tc
	t       *rapid.T
	judged  *osier.DB
	name    string
	indexes []string
}

// index defines an index of the store alone.
func (c *findCase) index() {
	x := osier.Index{Name: fmt.Sprintf("%s.%d", c.name, len(c.indexes)), Collection: c.name}
	for _, path := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "a.b"}), 1, 3, rapid.ID).Draw(c.t, "index") {
		x.Fields = append(x.Fields, osier.SortField{Path: path, Descending: rapid.IntRange(0, 4).Draw(c.t, "descending") == 0})
	}
	if rapid.IntRange(0, 3).Draw(c.t, "partial") == 0 {
		x.Filter = osier.Mango(drawFindSelector(c.t, 0))
	}
	created, err := c.db.CreateIndex(c.ctx, x)
	if err != nil || !created {
		c.t.Fatalf("create index %+v: %v, %v", x, created, err)
	}
	c.indexes = append(c.indexes, x.Name)
}

// compare draws a query and wants the store's answer to be the model's, whole
// and page by page.
func (c *findCase) compare() {
	t := c.t
	s := osier.Mango(drawFindSelector(t, 2))
	o := osier.FindOptions{Sort: drawFindSort(t), SortedOnly: rapid.Bool().Draw(t, "sorted only"), Skip: rapid.IntRange(0, 2).Draw(t, "skip"),
		Limit: rapid.IntRange(0, 6).Draw(t, "limit"), Conflicts: true, Explain: true}
	if rapid.IntRange(0, 2).Draw(t, "projected") == 0 {
		o.Fields = rapid.SliceOfN(rapid.SampledFrom(append([]string{"_id", "_rev"}, findPaths...)), 1, 3).Draw(t, "fields")
	}
	if len(c.indexes) > 0 && rapid.IntRange(0, 3).Draw(t, "index asked for") > 0 {
		o.UseIndex = rapid.SampledFrom(c.indexes).Draw(t, "use index")
	}
	// Without a sort an index may show its own order.
	inOrder := len(o.Sort) > 0 || len(c.indexes) == 0
	if !inOrder {
		o.Skip, o.Limit = 0, 0
	}
	got, gotSum := c.shown(c.db, s, o)
	if strings.Contains(gotSum.Warning, "filter leaves out") {
		return // as it was asked for
	}
	want, wantSum := c.shown(c.judged, s, o)
	same := func(got, want []string) bool {
		if !inOrder {
			got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
		}
		return slices.Equal(got, want)
	}
	fail := func(what string) {
		plan, _ := json.Marshal(gotSum.Plan)
		t.Fatalf("%s: find %s with %+v\ngot  %q %+v\nwant %q %+v\nplan %s", what, s, o, got, *gotSum, want, *wantSum, plan)
	}
	if !same(got, want) || gotSum.Complete != wantSum.Complete || gotSum.Rows != wantSum.Rows {
		fail("rows differ")
	}
	o.Limit = 0
	want, _ = c.shown(c.judged, s, o)
	o.Limit = rapid.IntRange(1, 4).Draw(t, "page")
	got = nil
	partly := false // a page came from an index that was asked for and lacks some
	for {
		var rows []string
		rows, gotSum = c.shown(c.db, s, o)
		partly = partly || strings.Contains(gotSum.Warning, "filter leaves out")
		if got = append(got, rows...); gotSum.Complete || len(got) > len(want) {
			break
		}
		o.Bookmark, o.Skip = gotSum.Bookmark, 0
		if len(c.indexes) > 0 {
			o.UseIndex = rapid.SampledFrom(append([]string{""}, c.indexes...)).Draw(t, "index of the next page")
		}
	}
	if !same(got, want) && !partly {
		fail("pages differ")
	}
}

// shown lists what a find shows.
func (c *findCase) shown(db *osier.DB, s osier.Selector, o osier.FindOptions) ([]string, *osier.FindSummary) {
	o.Summary = new(osier.FindSummary)
	var out []string
	rows, err := drain(db.Find(c.ctx, c.name, s, &o))
	if err != nil {
		c.t.Fatalf("find %s with %+v: %v", s, o, err)
	}
	for _, r := range rows {
		out = append(out, fmt.Sprint(r.ID, " ", r.Rev, " ", canonical(c.t, r.Body), " ", r.Conflicts))
	}
	return out, o.Summary
}

// canonical writes JSON with members in order.
func canonical(t *rapid.T, body []byte) string {
	if len(body) == 0 {
		return ""
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func testFindPassOver(x *tc) {
	for _, id := range []string{"_a/1", "_a/2", "_b", "a", "b"} {
		_, err := raws.InsertWithID(x.ctx, x.db, id, osier.Raw(`{"n":1}`))
		x.must(err)
	}
	_, err := x.db.CreateIndex(x.ctx, osier.Index{Name: "n", Collection: "raws", Fields: []osier.SortField{osier.Asc("n")}})
	x.must(err)
	for _, index := range []string{"_id", "n"} {
		var got []string
		var bookmark string
		for range 3 {
			q := &osier.FindQuery{Selector: []byte(`{"n":1}`), PassOver: "_a/", UseIndex: index, Bookmark: bookmark}
			for row, err := range x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryFind, Collection: "raws", Limit: 2, Find: q}) {
				x.must(err)
				if row.Found != nil {
					bookmark = row.Found.Bookmark
				} else {
					got = append(got, row.ID.String())
				}
			}
		}
		x.same("found by "+index, got, []string{"_b", "a", "b"})
	}
}
