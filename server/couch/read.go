package couch

import (
	"context"
	"encoding/base64"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/osierdb/osier"
)

// winner reads a document's winning revision, deleted or not; nil if there
// never was one.
func (q *request) winner(coll, text string, parts osier.Parts) (*osier.Document, error) {
	if !utf8.ValidString(text) {
		return nil, nil
	}
	id, err := osier.IDOf(text)
	if err != nil || id.IsZero() {
		return nil, nil
	}
	query := &osier.Query{Kind: osier.QueryGet, Collection: coll, IDs: []osier.ID{id}, Parts: parts, Deleted: true}
	for row, err := range q.db.Query(q.ctx(), query) {
		if err != nil || row.Missing {
			return nil, q.hidden(err)
		}
		return row.Document.Clone(), nil
	}
	return nil, nil
}

// hidden makes what may not be seen in the users' database look absent, as
// CouchDB does: that a name is taken is nobody else's business.
func (q *request) hidden(err error) error {
	if err != nil && q.usersDB() && osier.KindOf(err) == osier.KindDenied {
		return nil
	}
	return err
}

// opened is a revision that was asked for.
type opened struct {
	rev     osier.Rev
	doc     *osier.Document
	missing bool
}

// revisions reads revisions of a document: those listed, or, with a nil list,
// all leaves, the winner first. With latest, a listed revision stands for the
// leaves that come from it. exists is false if there never was such a document.
func (q *request) revisions(ctx context.Context, id osier.ID, revs []osier.Rev, latest bool, parts osier.Parts) (out []opened, exists bool, err error) {
	ask := parts | osier.WithConflicts
	if latest {
		ask |= osier.WithAncestors
	}
	var win *osier.Document
	query := &osier.Query{Kind: osier.QueryGet, Collection: q.coll, IDs: []osier.ID{id}, Parts: ask, Deleted: true}
	for row, err := range q.db.Query(ctx, query) {
		if err = q.hidden(err); err != nil {
			return nil, false, err
		}
		if !row.Missing {
			win = row.Document.Clone()
		}
	}
	if win == nil {
		for _, rev := range revs {
			out = append(out, opened{rev: rev, missing: true})
		}
		return out, false, nil
	}
	leaves := []osier.Rev{win.Rev}
	for _, l := range win.Conflicts {
		leaves = append(leaves, l.Rev)
	}
	want := revs
	if revs == nil {
		// The leaves in the order of CouchDB's trees: by revision, descending.
		want = append([]osier.Rev{}, leaves...)
		slices.SortFunc(want[1:], func(a, b osier.Rev) int { return b.Compare(a) })
	} else if latest {
		if want, err = q.latest(ctx, id, win, leaves, revs); err != nil {
			return nil, true, err
		}
	}
	out, err = q.pick(ctx, id, win, want, parts)
	return out, true, err
}

// pick reads the revisions in want, of which win is one perhaps.
func (q *request) pick(ctx context.Context, id osier.ID, win *osier.Document, want []osier.Rev, parts osier.Parts) ([]opened, error) {
	out := make([]opened, len(want))
	var others []osier.Rev
	var places []int
	for i, rev := range want {
		out[i] = opened{rev: rev, doc: win}
		if rev != win.Rev {
			others, places = append(others, rev), append(places, i)
		}
	}
	if len(others) == 0 {
		return out, nil
	}
	query := &osier.Query{Kind: osier.QueryRevs, Collection: q.coll, IDs: []osier.ID{id}, Revs: others, Parts: parts}
	i := 0
	for row, err := range q.db.Query(ctx, query) {
		if err != nil {
			return nil, err
		}
		o := &out[places[i]]
		o.doc, o.missing = row.Document.Clone(), row.Missing || row.Body == nil && !row.Deleted
		i++
	}
	return out, nil
}

// latest replaces revisions by the leaves that come from them. What is unknown
// stays.
func (q *request) latest(ctx context.Context, id osier.ID, win *osier.Document, leaves, revs []osier.Rev) ([]osier.Rev, error) {
	var paths [][]osier.Rev // of the leaves, once they are needed
	var want []osier.Rev
	add := func(rev osier.Rev) {
		if !slices.Contains(want, rev) {
			want = append(want, rev)
		}
	}
	for _, rev := range revs {
		if slices.Contains(leaves, rev) {
			add(rev)
			continue
		}
		if paths == nil {
			paths = append(paths, win.Ancestors)
			if len(leaves) > 1 {
				query := &osier.Query{Kind: osier.QueryRevs, Collection: q.coll, IDs: []osier.ID{id}, Revs: leaves[1:], Parts: osier.WithAncestors}
				for row, err := range q.db.Query(ctx, query) {
					if err != nil {
						return nil, err
					}
					paths = append(paths, row.Ancestors)
				}
			}
		}
		found := false
		for i, path := range paths {
			if slices.Contains(path, rev) {
				add(leaves[i])
				found = true
			}
		}
		if !found {
			add(rev)
		}
	}
	return want, nil
}

// revsInfo tells which revisions on a document's branch still have a body.
func (q *request) revsInfo(ctx context.Context, d *osier.Document) ([]revInfo, error) {
	out := []revInfo{{d.Rev, status(d.Deleted, true)}}
	if len(d.Ancestors) == 0 {
		return out, nil
	}
	query := &osier.Query{Kind: osier.QueryRevs, Collection: q.coll, IDs: []osier.ID{d.ID}, Revs: d.Ancestors, Parts: osier.WithBody}
	for row, err := range q.db.Query(ctx, query) {
		if err != nil {
			return nil, err
		}
		out = append(out, revInfo{row.Rev, status(row.Deleted && !row.Missing, row.Body != nil)})
	}
	return out, nil
}

func status(deleted, body bool) string {
	switch {
	case deleted:
		return "deleted"
	case body:
		return "available"
	}
	return "missing"
}

// since is the generation from which on a document's attachments are new to
// somebody who has the revisions known.
func since(d *osier.Document, known []osier.Rev) uint64 {
	gen := uint64(0)
	for _, rev := range known {
		if rev == d.Rev || slices.Contains(d.Ancestors, rev) {
			gen = max(gen, rev.Generation())
		}
	}
	return gen
}

// sortOpened puts revisions into the order of open_revs: what was found by
// revision, then what is missing.
func sortOpened(all []opened) {
	slices.SortStableFunc(all, func(a, b opened) int {
		if a.missing != b.missing {
			if a.missing {
				return 1
			}
			return -1
		}
		return a.rev.Compare(b.rev)
	})
}

// revList reads a JSON list of revisions.
func revList(text string) ([]osier.Rev, error) {
	b, err := parseJSON([]byte(text), 0)
	if err != nil {
		return nil, err
	}
	return parseRevs(b)
}

func parseRevs(b []byte) ([]osier.Rev, error) {
	revs := []osier.Rev{}
	ok, err := elements(b, func(v []byte) error {
		s, ok := unquote(v)
		if !ok {
			return errRevFormat
		}
		rev, err := parseRev(s)
		revs = append(revs, rev)
		return err
	})
	if !ok {
		return nil, errRevList
	}
	return revs, err
}

// compressible tells the content types that CouchDB stores compressed, and
// which are therefore sent compressed to those who accept it.
func compressible(contentType string) bool {
	t, _, _ := strings.Cut(contentType, ";")
	switch t = strings.ToLower(strings.TrimSpace(t)); t {
	case "application/javascript", "application/json", "application/xml":
		return true
	}
	return strings.HasPrefix(t, "text/")
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// compressedSize is how long an attachment is as it is sent compressed.
func compressedSize(ctx context.Context, db *osier.DB, a *osier.Attachment) (int64, error) {
	r, err := db.Backend().Fetch(ctx, db.Name(), a.Blob, 0, -1)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	var n counter
	z := newCompressor(&n)
	if _, err := io.Copy(z, r); err != nil {
		return 0, err
	}
	err = z.Close()
	return int64(n), err
}

// etagOf is the entity tag of an attachment.
func etagOf(a *osier.Attachment) string {
	return `"` + base64.StdEncoding.EncodeToString(a.MD5[:]) + `"`
}
