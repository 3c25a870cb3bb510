package osiertest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/mango"
	"github.com/osierdb/osier/internal/naive"
)

// judge evaluates selectors for the model.
var judge = naive.Judge{Strings: mango.Unicode.Compare}

// seen is a document as a selector sees it.
type seen struct {
	doc    *document
	object naive.Object
	sort   []sortValue
}

// sortValue is what a document sorts by; a missing field is before all else.
type sortValue struct {
	Missing bool
	JSON    string `json:",omitempty"`
}

// look gives a document the form that selectors work on. ok is false if it has
// no JSON form.
func look(d *document, codecs osier.Codecs) (s *seen, ok bool) {
	w := d.winner()
	body := w.Body
	if w.Codec > osier.TagJSON {
		codec := codecs[w.Codec]
		if codec == nil {
			return nil, false
		}
		var err error
		if body, err = codec.AppendJSON(nil, w.Body); err != nil || !json.Valid(body) {
			return nil, false
		}
	}
	v, err := naive.Decode(string(body), true)
	if err != nil {
		v = naive.Object{} // no body
	}
	object, _ := v.(naive.Object)
	hidden := naive.Object{{Name: "_id", Value: w.ID.String()}, {Name: "_rev", Value: w.Rev.String()}}
	if len(w.Attachments) > 0 {
		stubs := naive.Object{}
		for _, a := range w.Attachments {
			stub := map[string]any{"content_type": a.ContentType, "revpos": a.RevPos, "length": a.Size, "stub": true,
				"digest": "md5-" + base64.StdEncoding.EncodeToString(a.MD5[:])}
			text, _ := json.Marshal(stub) // of strings and numbers
			value, _ := naive.Decode(string(text), true)
			stubs = append(stubs, naive.Member{Name: a.Name, Value: value})
		}
		slices.SortFunc(stubs, func(a, b naive.Member) int { return strings.Compare(a.Name, b.Name) })
		hidden = append(hidden, naive.Member{Name: "_attachments", Value: stubs})
	}
	for _, m := range object {
		if !slices.ContainsFunc(hidden, func(h naive.Member) bool { return h.Name == m.Name }) {
			hidden = append(hidden, m)
		}
	}
	return &seen{doc: d, object: hidden}, true
}

// finding is a QueryFind being answered.
type finding struct {
	q        *osier.Query
	selector string
	from     *modelBookmark
}

// modelBookmark is the place of a row: what it sorts by, and its id.
type modelBookmark struct {
	Selector string
	Fields   []osier.SortField
	Sort     []sortValue
	ID       []byte
}

func (db *database) find(q *osier.Query) ([]osier.Row, error) {
	f, err := newFinding(q)
	if err != nil {
		return nil, err
	}
	sum := &osier.FindSummary{Complete: true}
	var rows []*seen
	for _, d := range db.sorted(q.Collection) {
		if d.winner().Deleted {
			continue
		}
		if text, is := d.id.Value().(string); is && q.Find.PassOver != "" && strings.HasPrefix(text, q.Find.PassOver) {
			continue
		}
		s, ok := look(d, osier.NewCodecs())
		if !ok {
			if q.Find.FailOnError {
				return nil, &osier.Error{Kind: osier.KindInvalid, Op: "find", DB: q.DB, Collection: q.Collection, ID: d.id.String()}
			}
			if sum.Failed++; sum.Failed == 1 {
				sum.FirstFailed = d.id.String()
			}
			continue
		}
		sum.DocsExamined++
		if judge.Match(f.selector, s.object) && f.sortable(s) {
			rows = append(rows, s)
		}
	}
	slices.SortFunc(rows, f.compare)
	if f.from != nil {
		last := &seen{doc: &document{id: osier.TrustedID(f.from.ID)}, sort: f.from.Sort}
		rows = slices.DeleteFunc(rows, func(s *seen) bool { return f.compare(s, last) <= 0 })
	}
	rows = rows[min(max(q.Skip, 0), len(rows)):]
	if q.Limit > 0 && len(rows) >= q.Limit {
		rows, sum.Complete = rows[:q.Limit], false
	}
	sum.Rows = uint64(len(rows))
	return f.show(rows, sum), nil
}

func newFinding(q *osier.Query) (*finding, error) {
	bad := func(err error) error { return osier.RefusedSelector("find", err) }
	if q.Find == nil {
		return nil, bad(errors.New("no selector given"))
	}
	text := q.Find.Selector
	if len(text) == 0 {
		text = []byte("{}")
	} else if q.Find.Swap {
		var err error
		if text, err = mango.Translate(text, nil); err != nil {
			return nil, bad(err)
		}
	}
	if _, err := mango.Compile(text, nil); err != nil {
		return nil, bad(err)
	}
	if _, err := mango.NewProjection(q.Find.Fields); err != nil {
		return nil, bad(err)
	}
	for _, s := range q.Find.Sort {
		if _, err := mango.NewKeyer(mango.Sort{mango.SortField(s)}, mango.Unicode); err != nil {
			return nil, bad(err)
		}
	}
	f := &finding{q: q, selector: string(text)}
	if q.Find.Bookmark != "" {
		f.from = new(modelBookmark)
		b, err := base64.RawURLEncoding.DecodeString(q.Find.Bookmark)
		if err == nil {
			err = json.Unmarshal(b, f.from)
		}
		if err != nil || f.from.Selector != f.selector || !slices.Equal(f.from.Fields, q.Find.Sort) || len(f.from.Sort) != len(q.Find.Sort) {
			return nil, bad(errors.New("the bookmark is of another query, or none"))
		}
	}
	return f, nil
}

// sortable finds what a document sorts by. It is false if one of the fields is
// missing and shall not be.
func (f *finding) sortable(s *seen) bool {
	for _, field := range f.q.Find.Sort {
		v, state := naive.Field(s.object, naive.SplitPath(field.Path))
		if state != naive.Found {
			if f.q.Find.SortedOnly {
				return false
			}
			s.sort = append(s.sort, sortValue{Missing: true})
			continue
		}
		s.sort = append(s.sort, sortValue{JSON: string(appendNaive(nil, v))})
	}
	return true
}

// compare orders by the sort's fields, then by id, which descends if the first
// field does.
func (f *finding) compare(a, b *seen) int {
	for i, field := range f.q.Find.Sort {
		result := 0
		switch x, y := a.sort[i], b.sort[i]; {
		case field.Path == "_id":
			result = a.doc.id.Compare(b.doc.id)
		case x.Missing || y.Missing:
			result = boolInt(y.Missing) - boolInt(x.Missing)
		default:
			v, _ := naive.Decode(x.JSON, true) // it was made by appendNaive
			w, _ := naive.Decode(y.JSON, true)
			if result = judge.Compare(v, w); field.Path == "_rev" {
				result = strings.Compare(v.(string), w.(string))
			}
		}
		if field.Descending {
			result = -result
		}
		if result != 0 {
			return result
		}
	}
	result := a.doc.id.Compare(b.doc.id)
	if len(f.q.Find.Sort) > 0 && f.q.Find.Sort[0].Descending {
		result = -result
	}
	return result
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// show makes rows, and the summary behind them.
func (f *finding) show(found []*seen, sum *osier.FindSummary) []osier.Row {
	var rows []osier.Row
	for _, s := range found {
		row := osier.Row{Document: s.doc.row(s.doc.winner(), f.q.Parts)}
		if len(f.q.Find.Fields) > 0 {
			row.Body, row.Codec, row.Schema = appendNaive(nil, project(s.object, f.q.Find.Fields)), osier.TagJSON, 0
		}
		rows = append(rows, row)
	}
	sum.Bookmark = f.q.Find.Bookmark
	if len(found) > 0 {
		last := found[len(found)-1]
		text, _ := json.Marshal(modelBookmark{f.selector, f.q.Find.Sort, last.sort, last.doc.id.Encoded()}) // of strings
		sum.Bookmark = base64.RawURLEncoding.EncodeToString(text)
	}
	return append(rows, osier.Row{Found: sum})
}

// project keeps the wanted fields. Of a whole and its parts the whole is kept.
func project(o naive.Object, fields []string) naive.Object {
	out := naive.Object{}
	whole := map[string]bool{}
	for _, field := range fields {
		path := naive.SplitPath(field)
		v, state := naive.Field(o, path)
		if state != naive.Found {
			continue
		}
		out = put(out, path, v, whole, "")
	}
	return out
}

func put(o naive.Object, path []string, v any, whole map[string]bool, at string) naive.Object {
	at += "/" + path[0]
	i := slices.IndexFunc(o, func(m naive.Member) bool { return m.Name == path[0] })
	if i < 0 {
		o, i = append(o, naive.Member{Name: path[0], Value: naive.Object{}}), len(o)
	}
	switch {
	case len(path) == 1:
		o[i].Value, whole[at] = v, true
	case !whole[at]:
		o[i].Value = put(o[i].Value.(naive.Object), path[1:], v, whole, at)
	}
	return o
}

// appendNaive writes a decoded value as JSON.
func appendNaive(dst []byte, v any) []byte {
	switch x := v.(type) {
	case naive.Object:
		dst = append(dst, '{')
		for i, m := range x {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendNaive(append(appendNaive(dst, m.Name), ':'), m.Value)
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i, e := range x {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendNaive(dst, e)
		}
		return append(dst, ']')
	}
	text, _ := json.Marshal(v) // null, bools, numbers and strings always encode
	return append(dst, text...)
}
