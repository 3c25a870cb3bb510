package couch

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/osierdb/osier"
)

// An index that clients make is a view of a design document whose language is
// "query": they read it there, change it and replicate it. The store's indexes
// follow these documents: after each write of one they are made equal to what it
// says. A crash in between is made good when the database's indexes are first
// looked at.

const queryLanguage = "query"

// designs remembers the collections whose indexes have followed all design
// documents.
type designs struct {
	mu       sync.Mutex // guards followed
	followed map[string]bool
}

// maxFollowed bounds what is remembered of databases; it is forgotten when full.
const maxFollowed = 10_000

// designIndexes reads the indexes that a design document defines. Views that make
// no index are passed over.
func designIndexes(coll, design string, body []byte) []osier.Index {
	m, err := members(body, "language", "views")
	if language, _ := unquote(m["language"]); err != nil || language != queryLanguage {
		return nil
	}
	var out []osier.Index
	_, _ = fields(m["views"], func(name, view []byte) error {
		if x, err := designIndex(design, name, view); err == nil {
			x.Collection = coll
			out = append(out, *x)
		}
		return nil
	})
	return out
}

// designIndex reads one view, as the request that would make it.
func designIndex(design string, quotedName, view []byte) (*osier.Index, error) {
	m, err := members(view, "map")
	if err != nil {
		return nil, err
	}
	if m, err = members(m["map"], "fields", "partial_filter_selector"); err != nil {
		return nil, err
	}
	b := []byte(`{"index":{"fields":[`)
	n := 0
	if _, err := fields(m["fields"], func(name, direction []byte) error {
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = append(append(append(append(append(b, '{'), name...), ':'), direction...), '}')
		return nil
	}); err != nil {
		return nil, err
	}
	b = append(b, ']')
	if p := m["partial_filter_selector"]; p != nil && string(p) != "{}" {
		b = append(append(b, `,"partial_filter_selector":`...), p...)
	}
	b = append(append(b, `},"name":`...), quotedName...)
	b = append(appendQuoted(append(b, `,"ddoc":`...), design), '}')
	return osier.ParseIndexRequest(b)
}

// appendView writes an index as a view; def is the request's member "index".
func appendView(b []byte, x *osier.Index, def []byte) ([]byte, error) {
	m, err := members(def, "partial_filter_selector")
	if err != nil {
		return b, err
	}
	b = append(b, `{"map":{"fields":{`...)
	for i, f := range x.Fields {
		if i > 0 {
			b = append(b, ',')
		}
		direction := `:"asc"`
		if f.Descending {
			direction = `:"desc"`
		}
		b = append(appendQuoted(b, f.Path), direction...)
	}
	b = append(b, `},"partial_filter_selector":`...)
	if p := m["partial_filter_selector"]; p != nil {
		b = append(b, p...)
	} else {
		b = append(b, "{}"...)
	}
	b = append(append(b, `},"reduce":"_count","options":{"def":`...), def...)
	return append(b, "}}"...), nil
}

// withView returns a design document's body with a view set, or removed if view
// is nil. left is how many views it has then.
func withView(body []byte, name string, view []byte) (out []byte, left int, err error) {
	views := []byte{'{'}
	set := func(quoted, v []byte) {
		if left++; left > 1 {
			views = append(views, ',')
		}
		views = append(append(append(views, quoted...), ':'), v...)
	}
	m, err := members(body, "views")
	if err != nil {
		return nil, 0, err
	}
	found := false
	if _, err := fields(m["views"], func(quoted, v []byte) error {
		if n, _ := unquote(quoted); n == name {
			found = true
			if view != nil {
				set(quoted, view)
			}
			return nil
		}
		set(quoted, v)
		return nil
	}); err != nil {
		return nil, 0, err
	}
	if !found && view != nil {
		set(appendQuoted(nil, name), view)
	}
	views = append(views, '}')
	out = []byte{'{'}
	if _, err := fields(body, func(quoted, v []byte) error {
		if string(quoted) != `"views"` {
			out = append(append(append(append(out, quoted...), ':'), v...), ',')
		}
		return nil
	}); err != nil {
		return nil, 0, err
	}
	return append(append(append(out, `"views":`...), views...), '}'), left, nil
}

// viewOf returns a view of a design document; nil if it has none of the name.
func viewOf(body []byte, name string) (view []byte) {
	m, err := members(body, "views")
	if err == nil {
		_, _ = fields(m["views"], func(quoted, v []byte) error {
			if n, _ := unquote(quoted); n == name {
				view = v
			}
			return nil
		})
	}
	return view
}

// queryDesign reads a design document for its indexes to be changed: its body is
// that of an empty one if there is none, and doc nil.
func (q *request) queryDesign(design string) (doc *osier.Document, body []byte, err error) {
	doc, err = q.winner(q.coll, designPrefix+design, osier.WithBody)
	if err != nil {
		return nil, nil, err
	}
	if doc == nil || doc.Deleted {
		return nil, []byte(`{"language":"` + queryLanguage + `"}`), nil
	}
	inner, err := bodyMembers(q.db, doc)
	if err != nil {
		return nil, nil, err
	}
	body = slices.Concat([]byte("{"), inner, []byte("}"))
	m, err := members(body, "language")
	if err != nil {
		return nil, nil, err
	}
	if language, _ := unquote(m["language"]); language != queryLanguage {
		return nil, nil, &failure{status: http.StatusBadRequest, code: "invalid_ddoc_lang",
			reason: "Existing design doc has an invalid language: " + strconv.Quote(language)}
	}
	return doc, body, nil
}

// designTries bounds the attempts to write a design document that others write at
// the same time.
const designTries = 10

// changeDesign reads a design document, and writes what change makes of its body
// until nobody has come between; nil deletes it. It changes nothing if change
// returns done.
func (q *request) changeDesign(design string, change func(doc *osier.Document, body []byte) (out []byte, done bool, err error)) error {
	id, err := docID(designPrefix + design)
	if err != nil {
		return err
	}
	for range designTries {
		doc, body, err := q.queryDesign(design)
		if err != nil {
			return err
		}
		out, done, err := change(doc, body)
		if err != nil || done {
			return err
		}
		op := osier.Op{Kind: osier.OpPut, Collection: q.coll, ID: id, Codec: osier.TagJSON, Body: out, Expect: osier.ExpectAbsent, Deleted: out == nil}
		if doc != nil {
			op.Expect, op.Rev, op.KeepAttachments = osier.ExpectLiveRev, doc.Rev, out != nil
		}
		if _, err = q.db.Exec(q.ctx(), &osier.Command{Ops: []osier.Op{op}}); err == nil {
			return q.follow(q.ctx(), design)
		}
		if k := osier.KindOf(err); k != osier.KindConflict && k != osier.KindDeleted && k != osier.KindNotFound {
			return err
		}
	}
	return errConflict
}

// follow makes the store's indexes of a design document what the document says.
// Where several follow at the same time, whoever finds the document changed when
// it is done follows again.
func (q *request) follow(ctx context.Context, design string) error {
	for range designTries {
		doc, err := q.winner(q.coll, designPrefix+design, osier.WithBody)
		if err != nil {
			return err
		}
		err = q.followState(ctx, design, doc)
		if err != nil && !errors.Is(err, osier.ErrExists) && !errors.Is(err, osier.ErrNotFound) && !errors.Is(err, osier.ErrConflict) {
			return err
		}
		now, errNow := q.winner(q.coll, designPrefix+design, 0)
		if errNow != nil {
			return errNow
		}
		if err == nil && (doc == nil) == (now == nil) && (doc == nil || doc.Rev == now.Rev) {
			return nil
		}
	}
	return errConflict
}

func (q *request) followState(ctx context.Context, design string, doc *osier.Document) error {
	var want []osier.Index
	if doc != nil && !doc.Deleted {
		want = designIndexes(q.coll, design, doc.Body)
	}
	all, err := q.db.Indexes(ctx, q.coll)
	if err != nil {
		return err
	}
	for i := range all {
		x := &all[i]
		if d, name := x.CouchName(); d != design || x.Name != osier.CouchIndexName(d, name) {
			continue
		}
		k := slices.IndexFunc(want, func(w osier.Index) bool { return w.Name == x.Name })
		if k >= 0 && sameIndex(&want[k], x) {
			want = slices.Delete(want, k, k+1)
			continue
		}
		if err := q.db.DropIndex(ctx, x.Name); err != nil {
			return err
		}
	}
	for i := range want {
		if _, err := q.db.CreateIndex(ctx, want[i]); err != nil {
			return err
		}
	}
	return nil
}

func sameIndex(a, b *osier.Index) bool {
	x, errX := a.CouchForm()
	y, errY := b.CouchForm()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// followWrites lets indexes follow the documents that were written, as far as
// they are design documents. The writes stand, so what goes wrong is only logged:
// the next look at the indexes tries again.
func (q *request) followWrites(ids ...string) {
	for _, id := range ids {
		if !isDesign(id) {
			continue
		}
		// The client may be gone; the document is there all the same.
		if err := q.follow(context.WithoutCancel(q.ctx()), id[len(designPrefix):]); err != nil {
			q.door.host.Log().Error("the indexes of a design document could not be made", "db", q.dbName, "document", id, "error", err)
			q.door.designs.forget()
		}
	}
}

func (d *designs) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.followed = nil
}

// followAll lets the indexes follow all design documents, once in the life of
// the door, for a database's administrator.
func (q *request) followAll() error {
	if !q.access.Admin {
		return nil
	}
	info, err := q.dbInfo()
	if err != nil {
		return err
	}
	key := token(info) + " " + q.coll
	d := &q.door.designs
	d.mu.Lock()
	known := d.followed[key]
	d.mu.Unlock()
	if known {
		return nil
	}
	low, high, err := osier.PrefixRange(designPrefix)
	if err != nil {
		return err
	}
	var all []string
	for row, err := range q.db.Query(q.ctx(), &osier.Query{Kind: osier.QueryScan, Collection: q.coll, Start: low, End: high, Deleted: true}) {
		if err != nil {
			return err
		}
		all = append(all, idText(row.ID)[len(designPrefix):])
	}
	for _, design := range all {
		if err := q.follow(q.ctx(), design); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.followed == nil || len(d.followed) >= maxFollowed {
		d.followed = map[string]bool{}
	}
	d.followed[key] = true
	return nil
}
