package pocket

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// The ordered index is a B+tree whose leaves hold, for every key, its first
// eight bytes as a number and the offset of its newest record. Comparing those
// heads decides nearly every step without touching a record.
//
// The tree's shape is copy-on-write: a transaction that adds or removes keys
// copies the nodes on the way and publishes a new root. A transaction that
// only gives an existing key a new version stores the new offset into the
// leaf in place, provided that no snapshot was taken since the leaf was made;
// else it copies too. A snapshot that is taken while such stores are under way
// sees records that are newer than itself and follows their prev offset.
const (
	leafCap  = 128
	innerCap = 64
	minFill  = leafCap / 8
)

// The fields of eight bytes come first: 32-bit systems align them so.
type leaf struct {
	epoch uint64 // snapshots taken before the leaf was made
	owner uint64 // transaction that made it, and may change its shape
	heads [leafCap]uint64
	offs  [leafCap]uint64 // stored by atomic steps once readers know the leaf
	n     int
}

type inner struct {
	n     int
	epoch uint64
	owner uint64
	heads [innerCap]uint64
	// seps[i] is the lower bound of the keys in kids[i]; heads[i] its head.
	seps [innerCap]string
	kids [innerCap]node
}

// node is a *leaf or an *inner.
type node interface{ size() int }

func (l *leaf) size() int   { return l.n }
func (in *inner) size() int { return in.n }

// at returns the offset at position i, which the caller knows to be in the leaf.
func (l *leaf) at(i int) offset { return offset(atomic.LoadUint64(&l.offs[i&(leafCap-1)])) }

func (l *leaf) set(i int, off offset) { atomic.StoreUint64(&l.offs[i&(leafCap-1)], uint64(off)) }

// editor changes a tree within one transaction.
type editor struct {
	dir    *directory
	root   node
	owner  uint64
	epoch  uint64
	recent *leaf // that update changed last, and nothing has replaced since
	at     int   // position of that change
	spares
}

// below returns how many of the first n heads are less than h.
func below(heads *[leafCap]uint64, n int, h uint64) int {
	i := 0
	for n > 0 {
		half := (n + 1) >> 1
		if heads[(i+half-1)&(leafCap-1)] < h {
			i += half
			n -= half
		} else {
			n = half - 1
		}
	}
	return i
}

// search returns the first position in the leaf whose key is not below key,
// and whether it is key itself.
func (l *leaf) search(dir *directory, h uint64, key string) (int, bool) {
	i := below(&l.heads, l.n, h)
	// Heads are equal from here on: only the keys themselves decide.
	if i < l.n && l.heads[i] == h {
		j := i + 1
		for j < l.n && l.heads[j] == h {
			j++
		}
		for i < j {
			m := int(uint(i+j) >> 1)
			c := strings.Compare(l.keyAt(dir, m), key)
			if c == 0 {
				return m, true
			}
			if c < 0 {
				i = m + 1
			} else {
				j = m
			}
		}
	}
	return i, false
}

// keyAt returns the key at position i. All versions of a record have the same
// key, so it does not matter which one the leaf holds at the moment.
func (l *leaf) keyAt(dir *directory, i int) string {
	r, ok := dir.at(l.at(i))
	if !ok {
		panic("pocket: index points outside the arena") // broken invariant
	}
	return r.key()
}

// child returns the position of the child that covers key.
func (in *inner) child(h uint64, key string) int {
	i, j := 1, in.n
	for i < j {
		m := int(uint(i+j) >> 1)
		if in.heads[m] < h || in.heads[m] == h && in.seps[m] <= key {
			i = m + 1
		} else {
			j = m
		}
	}
	return i - 1
}

// update stores the offset of a new version of a key that is in the tree with
// the offset old.
func (e *editor) update(key string, old, off offset) {
	// Keys that are saved together often follow each other, or lie together.
	l := e.recent
	if l != nil && e.mayStore(l) && e.at+1 < l.n && l.at(e.at+1) == old {
		e.at++
		l.set(e.at, off)
		return
	}
	h := head(key)
	if l != nil && l.heads[0] < h && h < l.heads[l.n-1] {
		e.updateLeaf(l, h, key, off)
		return
	}
	n := e.root
	for n != nil {
		switch x := n.(type) {
		case *inner:
			n = x.kids[x.child(h, key)]
		case *leaf:
			e.updateLeaf(x, h, key, off)
			return
		}
	}
	panic("pocket: key in the table but not in the index") // broken invariant
}

func (e *editor) updateLeaf(l *leaf, h uint64, key string, off offset) {
	i, ok := l.search(e.dir, h, key)
	if !ok {
		panic("pocket: key in the table but not in the index") // broken invariant
	}
	if !e.mayStore(l) {
		e.recent = nil
		e.root = e.copyPath(e.root, h, key, i, off)
		return
	}
	l.set(i, off)
	e.recent, e.at = l, i
}

// mayStore reports whether offsets may be stored into l in place.
func (e *editor) mayStore(l *leaf) bool { return l.epoch == e.epoch || l.owner == e.owner }

// copyPath copies the nodes from n down to key's leaf, in which position i
// gets off.
func (e *editor) copyPath(n node, h uint64, key string, i int, off offset) node {
	switch x := n.(type) {
	case *inner:
		x = e.ownInner(x)
		c := x.child(h, key)
		x.kids[c] = e.copyPath(x.kids[c], h, key, i, off)
		return x
	case *leaf:
		x = e.ownLeaf(x)
		x.offs[i] = uint64(off)
		return x
	}
	panic("pocket: unknown node") // broken invariant
}

func (e *editor) ownInner(x *inner) *inner {
	if x.owner == e.owner {
		return x
	}
	c := e.newInner()
	*c = *x
	c.owner, c.epoch = e.owner, e.epoch
	e.oldInners = append(e.oldInners, x)
	return c
}

func (e *editor) ownLeaf(x *leaf) *leaf {
	if x.owner == e.owner {
		return x
	}
	c := e.newLeaf(x.n)
	copy(c.heads[:x.n], x.heads[:x.n])
	// Only the writer stores offsets, so it may load them without atomic steps.
	copy(c.offs[:x.n], x.offs[:x.n])
	e.oldLeaves = append(e.oldLeaves, x)
	return c
}

// newLeaf returns a leaf whose n entries the caller fills in.
func (e *editor) newLeaf(n int) *leaf {
	var l *leaf
	if last := len(e.leaves) - 1; last >= 0 {
		l, e.leaves = e.leaves[last], e.leaves[:last]
	} else {
		l = new(leaf)
	}
	l.n, l.epoch, l.owner = n, e.epoch, e.owner
	return l
}

func (e *editor) newInner() *inner {
	if last := len(e.inners) - 1; last >= 0 {
		var in *inner
		in, e.inners = e.inners[last], e.inners[:last]
		return in
	}
	return new(inner)
}

// spares are nodes that an editor can use again. Most nodes that a transaction
// replaces were never seen by a reader: making new ones all the time would
// cost more than all else that a transaction does.
type spares struct {
	leaves    []*leaf
	inners    []*inner
	oldLeaves []*leaf // replaced by the editor
	oldInners []*inner
}

const (
	maxSpareLeaves = 1024
	maxSpareInners = 128
)

// reclaim keeps the replaced nodes that no snapshot can lead to: none was taken
// between the making of the node and the publishing of its successor.
// snapshots is their number, asked for after that.
func (sp *spares) reclaim(snapshots uint64) {
	for _, l := range sp.oldLeaves {
		if l.epoch == snapshots && len(sp.leaves) < maxSpareLeaves {
			sp.leaves = append(sp.leaves, l)
		}
	}
	for _, in := range sp.oldInners {
		if in.epoch == snapshots && len(sp.inners) < maxSpareInners {
			*in = inner{} // what it led to may be garbage now
			sp.inners = append(sp.inners, in)
		}
	}
	clear(sp.oldLeaves)
	clear(sp.oldInners)
	sp.oldLeaves, sp.oldInners = sp.oldLeaves[:0], sp.oldInners[:0]
}

// insert adds a key that is not in the tree.
func (e *editor) insert(key string, off offset) {
	e.recent = nil
	if e.root == nil {
		l := e.newLeaf(1)
		l.heads[0], l.offs[0] = head(key), uint64(off)
		e.root = l
		return
	}
	left, right, sep := e.insertAt(e.root, head(key), key, off)
	if right == nil {
		e.root = left
		return
	}
	in := &inner{n: 2, epoch: e.epoch, owner: e.owner}
	in.kids[0], in.kids[1] = left, right
	in.seps[1], in.heads[1] = sep, head(sep)
	e.root = in
}

// insertAt adds key below n. When n had to be split, right is the new node
// and sep the lower bound of its keys.
func (e *editor) insertAt(n node, h uint64, key string, off offset) (left, right node, sep string) {
	switch x := n.(type) {
	case *leaf:
		return e.insertLeaf(e.ownLeaf(x), h, key, off)
	case *inner:
		x = e.ownInner(x)
		c := x.child(h, key)
		kid, split, sep := e.insertAt(x.kids[c], h, key, off)
		x.kids[c] = kid
		if split == nil {
			return x, nil, ""
		}
		return e.insertKid(x, c+1, split, sep)
	}
	panic("pocket: unknown node") // broken invariant
}

func (e *editor) insertLeaf(l *leaf, h uint64, key string, off offset) (left, right node, sep string) {
	i, _ := l.search(e.dir, h, key)
	if l.n < leafCap {
		l.insert(i, h, off)
		return l, nil, ""
	}
	// Keys that arrive in order fill their leaves.
	cut := leafCap / 2
	if i == leafCap {
		cut = leafCap - 1
	}
	r := e.newLeaf(l.n - cut)
	copy(r.heads[:], l.heads[cut:l.n])
	copy(r.offs[:], l.offs[cut:l.n])
	l.n = cut
	if i <= cut && i < leafCap {
		l.insert(i, h, off)
	} else {
		r.insert(i-cut, h, off)
	}
	return l, r, strings.Clone(r.keyAt(e.dir, 0))
}

func (l *leaf) insert(i int, h uint64, off offset) {
	copy(l.heads[i+1:l.n+1], l.heads[i:l.n])
	copy(l.offs[i+1:l.n+1], l.offs[i:l.n])
	l.heads[i], l.offs[i] = h, uint64(off)
	l.n++
}

func (e *editor) insertKid(x *inner, i int, kid node, sep string) (left, right node, rightSep string) {
	if x.n == innerCap {
		cut := innerCap / 2
		if i == innerCap {
			cut = innerCap - 1
		}
		r := &inner{n: x.n - cut, epoch: e.epoch, owner: e.owner}
		copy(r.heads[:], x.heads[cut:x.n])
		copy(r.seps[:], x.seps[cut:x.n])
		copy(r.kids[:], x.kids[cut:x.n])
		clear(x.seps[cut:])
		clear(x.kids[cut:])
		x.n = cut
		if i <= cut {
			x.insert(i, kid, sep)
		} else {
			r.insert(i-cut, kid, sep)
		}
		return x, r, r.seps[0]
	}
	x.insert(i, kid, sep)
	return x, nil, ""
}

func (in *inner) insert(i int, kid node, sep string) {
	copy(in.heads[i+1:in.n+1], in.heads[i:in.n])
	copy(in.seps[i+1:in.n+1], in.seps[i:in.n])
	copy(in.kids[i+1:in.n+1], in.kids[i:in.n])
	in.heads[i], in.seps[i], in.kids[i] = head(sep), sep, kid
	in.n++
}

// remove takes a key out that is in the tree.
func (e *editor) remove(key string) {
	e.recent = nil
	e.root = e.removeAt(e.root, head(key), key)
	for {
		in, ok := e.root.(*inner)
		if !ok || in.n != 1 {
			return
		}
		e.root = in.kids[0]
	}
}

// removeAt returns what is left of n, nil for nothing.
func (e *editor) removeAt(n node, h uint64, key string) node {
	switch x := n.(type) {
	case *leaf:
		i, ok := x.search(e.dir, h, key)
		if !ok {
			panic("pocket: key in the table but not in the index") // broken invariant
		}
		if x.n == 1 {
			return nil
		}
		x = e.ownLeaf(x)
		copy(x.heads[i:], x.heads[i+1:x.n])
		copy(x.offs[i:], x.offs[i+1:x.n])
		x.n--
		return x
	case *inner:
		c := x.child(h, key)
		kid := e.removeAt(x.kids[c], h, key)
		if kid == nil && x.n == 1 {
			return nil
		}
		x = e.ownInner(x)
		if kid == nil {
			x.removeKid(c)
			return x
		}
		x.kids[c] = kid
		e.mergeSmall(x, c)
		return x
	}
	panic("pocket: unknown node") // broken invariant
}

func (in *inner) removeKid(i int) {
	copy(in.heads[i:], in.heads[i+1:in.n])
	copy(in.seps[i:], in.seps[i+1:in.n])
	copy(in.kids[i:], in.kids[i+1:in.n])
	in.n--
	in.seps[in.n], in.kids[in.n] = "", nil
}

// mergeSmall joins leaf c of x with the leaf after it when both together are
// small, so that a tree from which much is deleted does not stay sparse.
func (e *editor) mergeSmall(x *inner, c int) {
	l, ok := x.kids[c].(*leaf)
	if !ok || l.n > minFill {
		return
	}
	if c+1 == x.n {
		c--
	}
	if c < 0 {
		return
	}
	a, b := x.kids[c].(*leaf), x.kids[c+1].(*leaf)
	if a.n+b.n > leafCap/2 {
		return
	}
	a = e.ownLeaf(a)
	copy(a.heads[a.n:], b.heads[:b.n])
	copy(a.offs[a.n:], b.offs[:b.n])
	a.n += b.n
	x.kids[c] = a
	x.removeKid(c + 1)
}

// buildTree makes a tree of entries in key order.
func buildTree(dir *directory, entries []entry) node {
	// A little room in each leaf lets the first insertions go without a split.
	const fill = leafCap - leafCap/8
	level := make([]node, (len(entries)+fill-1)/fill)
	seps := make([]string, len(level))
	fillLeaves := func(from, to int) {
		for at := from; at < to; at++ {
			part := entries[at*fill : min((at+1)*fill, len(entries))]
			l := &leaf{n: len(part)}
			for i, en := range part {
				l.heads[i], l.offs[i] = en.head, uint64(en.off)
			}
			level[at], seps[at] = l, strings.Clone(l.keyAt(dir, 0))
		}
	}
	var wg sync.WaitGroup
	const parallel = 64 // leaves that are worth a goroutine
	step := max(parallel, (len(level)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := step; from < len(level); from += step {
		wg.Go(func() { fillLeaves(from, min(from+step, len(level))) })
	}
	fillLeaves(0, min(step, len(level)))
	wg.Wait()
	for len(level) > 1 {
		var up []node
		var upSeps []string
		for len(level) > 0 {
			n := min(innerCap-innerCap/8, len(level))
			in := &inner{n: n}
			copy(in.kids[:], level[:n])
			copy(in.seps[:], seps[:n])
			for i := range n {
				in.heads[i] = head(seps[i])
			}
			up, upSeps = append(up, in), append(upSeps, seps[0])
			level, seps = level[n:], seps[n:]
		}
		level, seps = up, upSeps
	}
	if len(level) == 0 {
		return nil
	}
	return level[0]
}

// maxHeight is more than any tree reaches: a level is added when a root has 64
// children, each of which has been split from a full one.
const maxHeight = 16

// cursor goes through the leaves of a tree that have keys in a span.
type cursor struct {
	dir     *directory
	span    *Span
	reverse bool
	depth   int
	path    [maxHeight]step
}

// step is an inner node and what is left to visit of its children.
type step struct {
	in   *inner
	i, n int32 // next child and how many more
}

// by is the way from one position in a leaf to the next.
func (c *cursor) by() int {
	if c.reverse {
		return -1
	}
	return 1
}

// first returns the first leaf with keys in the span, its first position there
// and the one behind its last, in the cursor's direction; nil when there is
// none.
func (c *cursor) first(root node) (l *leaf, i, end int) {
	if root == nil {
		return nil, 0, 0
	}
	if l := c.down(root); l != nil {
		if i, end, ok := c.clip(l); ok {
			return l, i, end
		}
	}
	return c.next()
}

// next returns the leaf after the one before.
func (c *cursor) next() (l *leaf, i, end int) {
	for c.depth > 0 {
		s := &c.path[c.depth-1]
		if s.n == 0 {
			c.depth--
			continue
		}
		kid := s.in.kids[s.i]
		s.n--
		s.i += int32(c.by())
		if l := c.down(kid); l != nil {
			if i, end, ok := c.clip(l); ok {
				return l, i, end
			}
		}
	}
	return nil, 0, 0
}

// down goes from n to its first leaf, and remembers the way.
func (c *cursor) down(n node) *leaf {
	for {
		in, ok := n.(*inner)
		if !ok {
			return n.(*leaf)
		}
		first, last := c.span.children(in)
		if first > last {
			return nil // the span ends before it begins
		}
		left := int32(last - first)
		if c.reverse {
			c.path[c.depth] = step{in, int32(last - 1), left}
			n = in.kids[last]
		} else {
			c.path[c.depth] = step{in, int32(first + 1), left}
			n = in.kids[first]
		}
		c.depth++
	}
}

// children returns the first and the last child that can have keys in sp.
func (sp *Span) children(in *inner) (first, last int) {
	if sp.from != "" {
		first = in.child(sp.fromHead, sp.from)
	}
	last = first
	switch {
	case sp.end == endNone:
		return first, in.n - 1
	case first+1 >= in.n || in.heads[first+1] > sp.toHead:
		return first, first // as with most spans in most nodes
	case sp.end == endHead:
		for i, j := first+1, in.n; ; {
			if i >= j {
				return first, i - 1
			}
			if m := int(uint(i+j) >> 1); in.heads[m] < sp.toHead {
				i = m + 1
			} else {
				j = m
			}
		}
	default:
		return first, in.child(sp.toHead, sp.to)
	}
}

// clip returns the first position of the leaf that lies in the span and the
// one behind the last, or false when there is none.
func (c *cursor) clip(l *leaf) (i, end int, ok bool) {
	from, to := 0, l.n
	if sp := c.span; sp.fromByHead {
		from = below(&l.heads, l.n, sp.fromHead)
	} else {
		from, _ = l.search(c.dir, sp.fromHead, sp.from)
	}
	// All but the last leaf end below the span's end.
	if sp := c.span; sp.end != endNone && l.heads[l.n-1] >= sp.toHead {
		if sp.end == endHead {
			to = below(&l.heads, l.n, sp.toHead)
		} else {
			to, _ = l.search(c.dir, sp.toHead, sp.to)
		}
	}
	if c.reverse {
		return to - 1, from - 1, from < to
	}
	return from, to, from < to
}
