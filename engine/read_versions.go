package engine

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// innerNodes reads all inner nodes of a document's revision tree, in order of
// generations.
func (v *view) innerNodes(c visibleColl, id osier.ID) ([]node, error) {
	lower, upper := revsRange(v.db.num, c.num, spaceAncestor, id)
	it, err := v.src.NewIter(lower, upper)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var nodes []node
	for ok := it.First(); ok; ok = it.Next() {
		rev, ok := revOfKey(it.Key()[len(lower):])
		if !ok {
			return nil, corrupt("read revision", id, errRecord)
		}
		l, absent, err := decodeNode(it.Value(), rev)
		if err != nil {
			return nil, corrupt("read revision", id, err)
		}
		nodes = append(nodes, node{l, absent})
	}
	return nodes, it.Error()
}

// shown is an inner node as rows have it: of one that is known by name only,
// nobody knows when it was written.
func (n node) shown() *leaf {
	if n.absent {
		n.seq, n.millis = 0, 0
	}
	return &n.leaf
}

// ancestors walks from a leaf to the root, as far as the collection's limit.
func (v *view) ancestors(c visibleColl, id osier.ID, l *leaf) ([]osier.Rev, error) {
	if l.parent.IsZero() {
		return nil, nil
	}
	nodes, err := v.innerNodes(c, id)
	if err != nil {
		return nil, err
	}
	parents := make(map[osier.Rev]osier.Rev, len(nodes))
	for i := range nodes {
		parents[nodes[i].rev] = nodes[i].parent
	}
	path := []osier.Rev{}
	limit := int(revLimit(&c.settings))
	for rev := l.parent; !rev.IsZero() && len(path) < limit; rev = parents[rev] {
		if _, known := parents[rev]; !known {
			break
		}
		path = append(path, rev)
	}
	return path, nil
}

// versionOf reads the version record of a revision; found is false if its body
// is not kept.
func (v *view) versionOf(c visibleColl, id osier.ID, rev osier.Rev) (ver version, found bool, err error) {
	b, closer, err := v.src.Get(revKey(nil, v.db.num, c.num, spaceVersion, id, rev))
	if errors.Is(err, store.ErrNotFound) {
		return version{}, false, nil
	}
	if err != nil {
		return version{}, false, err
	}
	defer closer.Close()
	_, ver, err = decodeVersion(bytes.Clone(b))
	if err != nil {
		return version{}, false, corrupt("read version", id, err)
	}
	return ver, true, nil
}

// row makes a row of one revision and what it holds, if that is kept.
func (v *view) row(c visibleColl, id osier.ID, l *leaf, ver *version) (osier.Row, error) {
	row := osier.Row{Document: osier.Document{ID: id, Rev: l.rev, Seq: l.seq, Time: at(l.millis), Deleted: l.deleted}}
	if v.q.Parts&osier.WithAncestors != 0 {
		var err error
		if row.Ancestors, err = v.ancestors(c, id, l); err != nil {
			return row, err
		}
	}
	if ver == nil {
		got, found, err := v.versionOf(c, id, l.rev)
		if err != nil {
			return row, err
		}
		if !found {
			return row, nil
		}
		ver = &got
	}
	row.Codec, row.Schema = ver.codec, ver.schema
	if v.q.Parts&osier.WithBody != 0 {
		row.Body, row.Attachments = shown(ver), ver.atts
	}
	return row, nil
}

// versions streams the leaves, then the earlier revisions.
func (v *view) versions(yield func(osier.Row, error) bool) error {
	id := v.q.IDs[0]
	return v.withDoc(id, yield, func(c visibleColl, d *document) error {
		for i := -1; i < len(d.losers); i++ {
			l, ver := &d.winner, &d.v
			if i >= 0 {
				l, ver = &d.losers[i], nil
			}
			row, err := v.row(c, id, l, ver)
			if err != nil {
				return err
			}
			if !yield(row, nil) {
				return nil
			}
		}
		nodes, err := v.innerNodes(c, id)
		if err != nil {
			return err
		}
		nodes = within(c, d, nodes)
		slices.SortFunc(nodes, func(a, b node) int { return b.rev.Compare(a.rev) })
		for i := range nodes {
			row, err := v.row(c, id, nodes[i].shown(), nil)
			if err != nil {
				return err
			}
			if !yield(row, nil) {
				return nil
			}
		}
		return nil
	})
}

// within leaves out nodes that are only waiting to be cut.
func within(c visibleColl, d *document, nodes []node) []node {
	limit, all := ancestorsKept(&c.settings)
	if all {
		return nodes
	}
	known := onPath(append([]leaf{d.winner}, d.losers...), nodes, limit)
	return slices.DeleteFunc(nodes, func(n node) bool { return !known[n.rev] })
}

// withDoc reads the document and hands it to fn; a document that never was is
// a missing row.
func (v *view) withDoc(id osier.ID, yield func(osier.Row, error) bool, fn func(c visibleColl, d *document) error) error {
	c, known, err := v.coll(v.q.Collection)
	if err != nil {
		return err
	}
	var d document
	if known {
		found, closer, err := v.doc(c.num, id, &d)
		if err != nil {
			return err
		}
		if found {
			defer closer.Close()
			return fn(c, &d)
		}
	}
	yield(osier.Row{Missing: true, Document: osier.Document{ID: id}}, nil)
	return nil
}

// revs streams chosen revisions.
func (v *view) revs(yield func(osier.Row, error) bool) error {
	id := v.q.IDs[0]
	c, known, err := v.coll(v.q.Collection)
	if err != nil {
		return err
	}
	var d document
	found := false
	if known {
		var closer io.Closer
		if found, closer, err = v.doc(c.num, id, &d); err != nil {
			return err
		}
		if found {
			defer closer.Close()
		}
	}
	tree := knownRevs{d: &d}
	for _, rev := range v.q.Revs {
		row := osier.Row{Missing: true, Document: osier.Document{ID: id, Rev: rev}}
		if found {
			if row, err = v.revision(c, id, rev, &tree); err != nil {
				return err
			}
		}
		if !yield(row, nil) {
			return nil
		}
	}
	return nil
}

// knownRevs is a document's tree in which several revisions are looked up. Its
// inner nodes are read when the first one is asked for.
type knownRevs struct {
	d     *document
	inner map[osier.Rev]*node // nil: not read yet
}

// revision finds one revision among leaves and inner nodes.
func (v *view) revision(c visibleColl, id osier.ID, rev osier.Rev, t *knownRevs) (osier.Row, error) {
	if t.d.winner.rev == rev {
		return v.row(c, id, &t.d.winner, &t.d.v)
	}
	for i := range t.d.losers {
		if t.d.losers[i].rev == rev {
			return v.row(c, id, &t.d.losers[i], nil)
		}
	}
	if t.inner == nil {
		nodes, err := v.innerNodes(c, id)
		if err != nil {
			return osier.Row{}, err
		}
		nodes = within(c, t.d, nodes)
		t.inner = make(map[osier.Rev]*node, len(nodes))
		for i := range nodes {
			t.inner[nodes[i].rev] = &nodes[i]
		}
	}
	if n := t.inner[rev]; n != nil {
		return v.row(c, id, n.shown(), nil)
	}
	return osier.Row{Missing: true, Document: osier.Document{ID: id, Rev: rev}}, nil
}

// asOf finds the winner of the tree as it was: of the revisions written by
// then, those without a child written by then are the leaves.
func (v *view) asOf(yield func(osier.Row, error) bool) error {
	id := v.q.IDs[0]
	then := func(l *leaf) bool {
		if v.q.Seq > 0 || v.q.Time.IsZero() {
			return l.seq <= v.q.Seq
		}
		return l.millis <= v.q.Time.UnixMilli()
	}
	return v.withDoc(id, yield, func(c visibleColl, d *document) error {
		nodes, err := v.innerNodes(c, id)
		if err != nil {
			return err
		}
		all := append([]node{{leaf: d.winner}}, nodes...)
		for i := range d.losers {
			all = append(all, node{leaf: d.losers[i]})
		}
		inner := map[osier.Rev]bool{}
		oldest := all[0].rev.Generation()
		for i := range all {
			oldest = min(oldest, all[i].rev.Generation())
			if then(&all[i].leaf) {
				inner[all[i].parent] = true
			}
		}
		var best *leaf
		for i := range all {
			l := &all[i].leaf
			if then(l) && !all[i].absent && !inner[l.rev] && (best == nil || better(l, best)) {
				best = l
			}
		}
		return v.showAsOf(c, d, best, oldest > 1, yield)
	})
}

func (v *view) showAsOf(c visibleColl, d *document, best *leaf, cut bool, yield func(osier.Row, error) bool) error {
	id := v.q.IDs[0]
	gap := func(text string) error {
		return &osier.Error{Kind: osier.KindGap, Op: "get as of", ID: id.String(), Err: errors.New(text)}
	}
	if best == nil {
		if cut {
			return gap("the revisions of that time are not kept any more")
		}
		yield(osier.Row{Missing: true, Document: osier.Document{ID: id}}, nil)
		return nil
	}
	var ver *version
	if best.rev == d.winner.rev {
		ver = &d.v
	}
	row, err := v.row(c, id, best, ver)
	if err != nil {
		return err
	}
	row.Missing = best.deleted
	if !row.Missing && row.Body == nil && v.q.Parts&osier.WithBody != 0 {
		return gap("the body of revision " + best.rev.String() + " is not kept; the collection's history setting says how many are")
	}
	yield(row, nil)
	return nil
}
