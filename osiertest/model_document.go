package osiertest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/revtree"
)

// document is one state of a document; it is never changed.
type document struct {
	id   osier.ID
	tree *revtree.Tree
	// versions holds those revisions of the tree that were written here, their
	// body or not. Ancestors that only came with a graft are not in it.
	versions map[osier.Rev]*osier.Document
	seq      osier.Seq // its latest change
}

// toTree converts a revision to the tree's type.
func toTree(r osier.Rev) (revtree.Rev, error) {
	digest, text := r.Digest()
	if !text {
		return revtree.Rev{Gen: r.Generation(), Digest: digest}, nil
	}
	return revtree.FromParts(r.Generation(), digest)
}

func fromTree(r revtree.Rev) osier.Rev { return osier.RevOf(r.Gen, r.Digest, !r.IsRaw()) }

// has reports whether r is known, as a leaf or an ancestor.
func (d *document) has(r osier.Rev) bool {
	t, err := toTree(r)
	return err == nil && d != nil && d.tree.Has(t)
}

// leaves returns the ends of all branches, the winner first.
func (d *document) leaves() []osier.Leaf {
	if d == nil {
		return nil
	}
	var out []osier.Leaf
	for _, l := range d.tree.Leaves() {
		out = append(out, osier.Leaf{Rev: fromTree(l.Rev), Deleted: l.Deleted})
	}
	return out
}

// winner returns the version that speaks for the document, nil for no document.
func (d *document) winner() *osier.Document {
	if d == nil {
		return nil
	}
	return d.versions[d.leaves()[0].Rev]
}

// leaf returns the version of a leaf, nil if r is none.
func (d *document) leaf(r osier.Rev) *osier.Document {
	for _, l := range d.leaves() {
		if l.Rev == r {
			return d.versions[r]
		}
	}
	return nil
}

// path returns r and its known ancestors, newest first.
func (d *document) path(r osier.Rev) []osier.Rev {
	t, err := toTree(r)
	if err != nil {
		return nil
	}
	var out []osier.Rev
	for _, a := range d.tree.Path(t) {
		out = append(out, fromTree(a))
	}
	return out
}

// grown returns d (nil: no document yet) with one more version, whose ancestors
// are path[1:], under the collection's settings.
func (d *document) grown(v *osier.Document, path []osier.Rev, s osier.Settings) (*document, error) {
	next := &document{id: v.ID, tree: new(revtree.Tree), versions: map[osier.Rev]*osier.Document{}, seq: v.Seq}
	if d != nil {
		next.tree.Merge(d.tree)
		maps.Copy(next.versions, d.versions)
	}
	treePath := make([]revtree.Rev, len(path))
	for i, r := range path {
		var err error
		if treePath[i], err = toTree(r); err != nil {
			return nil, err
		}
	}
	if _, err := next.tree.Add(treePath, v.Deleted); err != nil {
		return nil, err
	}
	next.versions[v.Rev] = v
	next.trim(s)
	return next, nil
}

// trim forgets what the settings do not keep: ancestors beyond RevLimit, and
// bodies of superseded versions beyond History.
func (d *document) trim(s osier.Settings) {
	limit := int(s.RevLimit)
	if limit == 0 {
		limit = osier.DefaultRevLimit
	}
	d.tree.Stem(limit + 1) // a leaf is no ancestor
	maps.DeleteFunc(d.versions, func(r osier.Rev, _ *osier.Document) bool { return !d.has(r) })
	for i, v := range d.superseded() {
		if s.History != osier.KeepAll && i >= int(s.History) {
			bare := osier.Document{ID: v.ID, Rev: v.Rev, Seq: v.Seq, Time: v.Time, Deleted: v.Deleted}
			d.versions[v.Rev] = &bare
		}
	}
}

// superseded returns the versions that are not leaves, newest first.
func (d *document) superseded() []*osier.Document {
	older := maps.Clone(d.versions)
	for _, l := range d.leaves() {
		delete(older, l.Rev)
	}
	out := slices.Collect(maps.Values(older))
	slices.SortFunc(out, func(a, b *osier.Document) int { return b.Rev.Compare(a.Rev) })
	return out
}

// asOf returns the winner among the versions that hold keeps, nil if there was
// no document.
func (d *document) asOf(keep func(*osier.Document) bool) *osier.Document {
	if d == nil {
		return nil
	}
	var then revtree.Tree
	for r, v := range d.versions {
		if !keep(v) {
			continue
		}
		t, err := toTree(r)
		if err == nil {
			_, err = then.Add(d.tree.Path(t), v.Deleted)
		}
		if err != nil {
			panic(err) // it was in a tree before
		}
	}
	w, ok := then.Winner()
	if !ok {
		return nil
	}
	return d.versions[fromTree(w.Rev)]
}

// row shows a version with the parts that a query asks for.
func (d *document) row(v *osier.Document, parts osier.Parts) osier.Document {
	out := *v
	out.Body, out.Attachments = nil, nil
	if parts&osier.WithBody != 0 {
		out.Body = slices.Clone(v.Body)
		out.Attachments = slices.Clone(v.Attachments)
	}
	if parts&osier.WithConflicts != 0 {
		for _, l := range d.leaves() {
			if l.Rev != v.Rev {
				out.Conflicts = append(out.Conflicts, l)
			}
		}
	}
	if parts&osier.WithAncestors != 0 {
		out.Ancestors = d.path(v.Rev)[1:]
	}
	return out
}

// known returns all revisions: leaves in their order, then ancestors by
// generation and digest, descending.
func (d *document) known() []osier.Rev {
	var out, ancestors []osier.Rev
	for _, l := range d.leaves() {
		out = append(out, l.Rev)
	}
	for _, t := range d.tree.Revs() {
		if r := fromTree(t); !slices.Contains(out, r) {
			ancestors = append(ancestors, r)
		}
	}
	slices.SortFunc(ancestors, func(a, b osier.Rev) int {
		return cmp.Or(cmp.Compare(b.Generation(), a.Generation()), b.Compare(a))
	})
	return append(out, ancestors...)
}

// version returns what is known of a revision of the tree.
func (d *document) version(r osier.Rev) *osier.Document {
	if v := d.versions[r]; v != nil {
		return v
	}
	return &osier.Document{ID: d.id, Rev: r}
}
