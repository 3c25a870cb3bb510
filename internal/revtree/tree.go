package revtree

import (
	"fmt"
	"iter"
	"slices"
)

// A Leaf is a revision that no other builds on.
type Leaf struct {
	Rev     Rev
	Parent  Rev // zero if the leaf is a root or its ancestors are not known
	Deleted bool
}

// CompareLeaves orders leaves as a document shows them: the winner first, then
// the live conflicts, then the deleted leaves, each in descending order of
// [Compare]. A negative result means that a comes first.
func CompareLeaves(a, b Leaf) int {
	if a.Deleted != b.Deleted {
		if b.Deleted {
			return -1
		}
		return +1
	}
	return Compare(b.Rev, a.Rev)
}

// Winner returns the leaf that speaks for the document: not deleted before
// deleted, then the highest generation, then the highest digest. The result does
// not depend on the order of the leaves; ok is false if there are none.
func Winner(leaves []Leaf) (winner Leaf, ok bool) {
	if len(leaves) == 0 {
		return Leaf{}, false
	}
	return slices.MinFunc(leaves, CompareLeaves), true
}

// A Tree is the known ancestry of a document's revisions. It may have several
// roots, where older ancestors have been cut off or never came. The zero Tree is
// empty and ready for use. It is not safe for concurrent use.
//
// Merging is a join: whatever the order and repetition of Add and Merge, the
// same paths make the same tree.
type Tree struct {
	nodes map[Rev]node
}

// A node is what is known of a revision. Every field only ever grows, which is
// what makes merging a join: of two parents (which only a colliding or forged
// digest can cause) the higher one stays.
type node struct {
	parent   Rev
	internal bool // some path went through it to a younger revision
	present  bool // added as the head of a path, not only as an ancestor
	deleted  bool
}

func (n node) join(m node) node {
	if Compare(n.parent, m.parent) < 0 {
		n.parent = m.parent
	}
	n.internal = n.internal || m.internal
	n.present = n.present || m.present
	n.deleted = n.deleted || m.deleted
	return n
}

// Add merges a revision and its ancestors, newest first, each one generation
// below the one before. The ancestors may be known or not and may end anywhere.
// added is false if the revision itself had been added before. A path that is
// empty or not consecutive gives an error that matches [ErrRev] and leaves the
// tree as it was.
func (t *Tree) Add(path []Rev, deleted bool) (added bool, err error) {
	if err := checkPath(path); err != nil {
		return false, err
	}
	added = !t.nodes[path[0]].present
	for i, r := range path {
		n := node{internal: i > 0, present: i == 0, deleted: i == 0 && deleted}
		if i+1 < len(path) {
			n.parent = path[i+1]
		}
		t.put(r, n)
	}
	return added, nil
}

func checkPath(path []Rev) error {
	if len(path) == 0 {
		return fmt.Errorf("add path: empty: %w", ErrRev)
	}
	for i, r := range path {
		if r.Gen == 0 || r.Digest == "" {
			return fmt.Errorf("add path: no revision at %d: %w", i, ErrRev)
		}
		if r.Gen != path[0].Gen-uint64(i) {
			return fmt.Errorf("add path: generation %d at %d after %d: %w", r.Gen, i, path[i-1].Gen, ErrRev)
		}
	}
	return nil
}

func (t *Tree) put(r Rev, n node) {
	if t.nodes == nil {
		t.nodes = make(map[Rev]node)
	}
	t.nodes[r] = t.nodes[r].join(n)
}

// Merge adds to t all that u knows. It does not change u.
func (t *Tree) Merge(u *Tree) {
	for r, n := range u.nodes {
		t.put(r, n)
	}
}

// Len returns the number of revisions in the tree, ancestors included.
func (t *Tree) Len() int { return len(t.nodes) }

// Has reports whether r is in the tree, as a leaf or as an ancestor of one.
func (t *Tree) Has(r Rev) bool {
	_, ok := t.nodes[r]
	return ok
}

// Leaves returns the leaves in the order of [CompareLeaves].
func (t *Tree) Leaves() []Leaf {
	var leaves []Leaf
	for r, n := range t.nodes {
		if !n.internal {
			leaves = append(leaves, Leaf{Rev: r, Parent: n.parent, Deleted: n.deleted})
		}
	}
	slices.SortFunc(leaves, CompareLeaves)
	return leaves
}

// Winner returns the winning leaf; ok is false if the tree is empty.
func (t *Tree) Winner() (winner Leaf, ok bool) { return Winner(t.Leaves()) }

// Path returns r and its known ancestors, newest first, or nil if r is not in
// the tree.
func (t *Tree) Path(r Rev) []Rev {
	if !t.Has(r) {
		return nil
	}
	return slices.Collect(t.ancestry(r))
}

// ancestry yields r and its known ancestors. It ends, since a parent is always
// one generation below.
func (t *Tree) ancestry(r Rev) iter.Seq[Rev] {
	return func(yield func(Rev) bool) {
		for ; !r.IsZero() && yield(r); r = t.nodes[r].parent {
		}
	}
}

// Stem keeps of every leaf's path the newest limit revisions and cuts off what is
// older than that for all leaves. A path stays longer if what it has in common
// with a shorter one is kept for that. A limit below 1 acts as 1. It returns how
// many revisions it cut.
func (t *Tree) Stem(limit int) (cut int) {
	limit = max(limit, 1)
	keep := make(map[Rev]node, len(t.nodes))
	for _, leaf := range t.Leaves() {
		steps := 0
		for r := range t.ancestry(leaf.Rev) {
			if steps == limit {
				break
			}
			steps++
			keep[r] = t.nodes[r]
		}
	}
	for r, n := range keep {
		if _, ok := keep[n.parent]; !ok {
			n.parent = Rev{}
			keep[r] = n
		}
	}
	cut = len(t.nodes) - len(keep)
	t.nodes = keep
	return cut
}

// Missing returns which of revs the tree lacks, in ascending order and once each,
// and the leaves that could be ancestors of one of them, since they are of a lower
// generation, in the order of [CompareLeaves]: what CouchDB's _revs_diff answers.
// An ancestor counts as known even if only its identifier is.
func (t *Tree) Missing(revs []Rev) (missing, possibleAncestors []Rev) {
	for _, r := range revs {
		if !t.Has(r) {
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	slices.SortFunc(missing, Compare)
	missing = slices.Compact(missing)
	top := missing[len(missing)-1].Gen
	for _, leaf := range t.Leaves() {
		if leaf.Rev.Gen < top {
			possibleAncestors = append(possibleAncestors, leaf.Rev)
		}
	}
	return missing, possibleAncestors
}

// Equal reports whether both trees hold the same revisions, ancestry and leaves.
func (t *Tree) Equal(u *Tree) bool {
	if len(t.nodes) != len(u.nodes) {
		return false
	}
	for r, n := range t.nodes {
		if m, ok := u.nodes[r]; !ok || m != n {
			return false
		}
	}
	return true
}

// Revs returns all revisions in the tree in ascending order of [Compare].
func (t *Tree) Revs() []Rev {
	revs := make([]Rev, 0, len(t.nodes))
	for r := range t.nodes {
		revs = append(revs, r)
	}
	slices.SortFunc(revs, Compare)
	return revs
}
