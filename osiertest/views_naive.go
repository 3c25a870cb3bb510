package osiertest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
)

// naiveRow is a row as a recomputation over all documents gives it.
type naiveRow struct {
	key   string
	id    osier.ID
	n     uint16
	value string
}

func compareRows(a, b naiveRow) int {
	return cmp.Or(strings.Compare(a.key, b.key), a.id.Compare(b.id), cmp.Compare(a.n, b.n))
}

// naiveView recomputes a view.
type naiveView struct {
	name   string
	rows   func(id osier.ID, body map[string]any) []naiveRow
	reduce func(values []string) string
	tuple  bool // keys are arrays, not fields in a row
}

// part is the beginning of a key that holds its first fields, and the key of
// their group.
func (v *naiveView) part(key string, fields int) (part, group string) {
	if fields == osier.GroupAll {
		return key, key
	}
	rest, open := []byte(key), keys.AppendArrayStart(nil)
	if v.tuple {
		if !bytes.HasPrefix(rest, open) {
			return key, key
		}
		rest = rest[len(open):]
	}
	for range fields {
		n, err := keys.Skip(rest)
		if err != nil {
			return key, key
		}
		rest = rest[n:]
	}
	part = key[:len(key)-len(rest)]
	if v.tuple {
		return part, part + string(keys.AppendArrayEnd(nil))
	}
	return part, part
}

// viewOf recomputes a view over all documents there are.
func (x *tc) viewOf(v *naiveView) []naiveRow {
	x.Helper()
	var out []naiveRow
	for row, err := range x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryScan, Collection: "things", Parts: osier.WithBody}) {
		x.must(err)
		var body map[string]any
		dec := json.NewDecoder(bytes.NewReader(row.Body))
		dec.UseNumber()
		x.must(dec.Decode(&body))
		rows := v.rows(row.ID, body)
		seen := map[string]uint16{}
		for i := range rows {
			rows[i].id, rows[i].n = row.ID, seen[rows[i].key]
			seen[rows[i].key]++
		}
		out = append(out, rows...)
	}
	slices.SortFunc(out, compareRows)
	return out
}

// ask runs a query of a view and gives back its rows, and cursors beside them.
func (x *tc) ask(q *osier.Query) (rows []naiveRow, cursors []string) {
	x.Helper()
	q.Kind, q.Collection = osier.QueryView, "things"
	for row, err := range x.db.Query(x.ctx, q) {
		x.must(err)
		rows = append(rows, naiveRow{string(row.View.Key), row.View.ID, row.View.N, string(row.View.Value)})
		cursors = append(cursors, row.View.Cursor())
	}
	return rows, cursors
}

// sameRows wants two lists of rows to be equal.
func (x *tc) sameRows(what string, got, want []naiveRow) {
	x.Helper()
	show := func(list []naiveRow) []string {
		out := []string{}
		for _, r := range list {
			out = append(out, fmt.Sprintf("%s|%v|%d|%s", keys.Format([]byte(r.key)), r.id, r.n, r.value))
		}
		return out
	}
	if !slices.Equal(got, want) {
		x.same(what, show(got), show(want))
		x.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// rowsBetween are the rows from lo up to but not including hi.
func rowsBetween(rows []naiveRow, lo, hi string) []naiveRow {
	var out []naiveRow
	for _, r := range rows {
		if r.key >= lo && (hi == "" || r.key < hi) {
			out = append(out, r)
		}
	}
	return out
}

// judgeView compares every form of query of a view with the recomputation.
func (x *tc) judgeView(v *naiveView, r *rand.Rand) {
	x.Helper()
	all := x.viewOf(v)
	got, _ := x.ask(&osier.Query{View: &osier.ViewQuery{Name: v.name}})
	x.sameRows(v.name+": all rows", got, all)
	pick := func() string {
		if len(all) == 0 || r.IntN(5) == 0 {
			return ""
		}
		k := all[r.IntN(len(all))].key
		if r.IntN(2) == 0 {
			k = string(keys.PrefixEnd([]byte(k)))
		}
		return k
	}
	for range 3 {
		lo, hi := pick(), pick()
		reverse := r.IntN(2) == 0
		want := rowsBetween(all, lo, hi)
		values := []string{}
		for _, row := range want {
			values = append(values, row.value)
		}
		if reverse {
			slices.Reverse(want)
		}
		what := fmt.Sprintf("%s from %s to %s (reverse %v)", v.name, keys.Format([]byte(lo)), keys.Format([]byte(hi)), reverse)
		base := osier.Query{Start: lo, End: hi, Reverse: reverse}
		q := base
		q.View = &osier.ViewQuery{Name: v.name}
		got, _ := x.ask(&q)
		x.sameRows(what, got, want)
		x.judgePaged(v, base, what, want, r)
		q = base
		q.View = &osier.ViewQuery{Name: v.name, Count: true}
		got, _ = x.ask(&q)
		x.same(what+": count", got[0].value, fmt.Sprint(len(want)))
		if v.reduce == nil {
			continue
		}
		q.View = &osier.ViewQuery{Name: v.name, Reduce: true}
		got, _ = x.ask(&q)
		x.same(what+": reduce", got[0].value, v.reduce(values))
		x.judgeGroups(v, base, what, rowsBetween(all, lo, hi), r)
	}
	x.judgeKeys(v, all, r)
}

// judgePaged takes an answer in pages, by cursors, and by skip and limit.
func (x *tc) judgePaged(v *naiveView, base osier.Query, what string, want []naiveRow, r *rand.Rand) {
	x.Helper()
	var paged []naiveRow
	after := ""
	for size := 1 + r.IntN(7); ; {
		q := base
		q.Limit, q.View = size, &osier.ViewQuery{Name: v.name, After: after}
		rows, cursors := x.ask(&q)
		if paged = append(paged, rows...); len(rows) < size {
			break
		}
		after = cursors[len(cursors)-1]
	}
	x.sameRows(what+" in pages", paged, want)
	q := base
	q.Skip, q.Limit, q.View = r.IntN(len(want)+2), 1+r.IntN(5), &osier.ViewQuery{Name: v.name}
	rows, _ := x.ask(&q)
	from := min(q.Skip, len(want))
	x.sameRows(what+" with skip and limit", rows, append([]naiveRow(nil), want[from:min(from+q.Limit, len(want))]...))
}

// judgeGroups compares grouped reduces.
func (x *tc) judgeGroups(v *naiveView, base osier.Query, what string, rows []naiveRow, r *rand.Rand) {
	x.Helper()
	for _, fields := range []int{osier.GroupAll, 1} {
		want := []naiveRow{}
		for i := 0; i < len(rows); {
			part, group := v.part(rows[i].key, fields)
			values := []string{}
			for ; i < len(rows) && strings.HasPrefix(rows[i].key, part); i++ {
				values = append(values, rows[i].value)
			}
			want = append(want, naiveRow{key: group, value: v.reduce(values)})
		}
		if base.Reverse {
			slices.Reverse(want)
		}
		var got []naiveRow
		after, size := "", 1+r.IntN(4)
		for {
			q := base
			q.Limit, q.View = size, &osier.ViewQuery{Name: v.name, Reduce: true, Group: fields, After: after}
			page, cursors := x.ask(&q)
			if got = append(got, page...); len(page) < size {
				break
			}
			after = cursors[len(cursors)-1]
		}
		x.sameRows(fmt.Sprintf("%s: groups of %d fields", what, fields), append([]naiveRow{}, got...), want)
	}
}

// judgeKeys compares the rows of some keys, present ones and absent ones.
func (x *tc) judgeKeys(v *naiveView, all []naiveRow, r *rand.Rand) {
	x.Helper()
	absent, err := osier.EncodeKey("no such key", false)
	x.must(err)
	list := []string{absent}
	var want []naiveRow
	for range 3 {
		if len(all) > 0 {
			k := all[r.IntN(len(all))].key
			if slices.Contains(list, k) {
				continue
			}
			list = append(list, k)
			want = append(want, rowsBetween(all, k, string(keys.PrefixEnd([]byte(k))))...)
		}
	}
	got, _ := x.ask(&osier.Query{View: &osier.ViewQuery{Name: v.name, Keys: list}})
	x.sameRows(v.name+": rows of keys", got, want)
	for i, k := range list {
		got, _ := x.ask(&osier.Query{View: &osier.ViewQuery{Name: v.name, Keys: []string{k}, Count: true}})
		x.same(fmt.Sprint(v.name, ": count of key ", i), got[0].value, fmt.Sprint(len(rowsBetween(all, k, string(keys.PrefixEnd([]byte(k)))))))
	}
}

// naiveKey encodes fields as a field view has them.
func naiveKey(fields ...any) string {
	k, err := osier.EncodeKey(osier.Tuple(fields), true)
	if err != nil {
		panic(err) // the suite's own values
	}
	return k
}

// cursorOf makes a cursor that no answer gave, for tests of strangers' texts.
func cursorOf(at uint64, key []byte, tail ...byte) []byte {
	b := binary.AppendUvarint([]byte{1}, at)
	return append(append(binary.AppendUvarint(b, uint64(len(key))), key...), tail...)
}
