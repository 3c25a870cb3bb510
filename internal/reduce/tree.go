package reduce

import (
	"bytes"
	"slices"
)

// Fold reduces the rows with lo <= key < hi; an empty lo is the beginning, a nil
// hi the end. Cost: O(log n) reads, two seeks and some 30 steps a level.
func (t *Tree) Fold(src Source, lo, hi []byte) (Node, error) {
	if hi != nil && bytes.Compare(lo, hi) >= 0 {
		return Node{}, nil
	}
	top, err := src.Top()
	if err != nil {
		return Node{}, err
	}
	f := folder{src: src, acc: acc{f: t.Func}}
	defer f.close()
	if err := f.fold(top, lo, hi); err != nil {
		return Node{}, err
	}
	return f.acc.result(), nil
}

type folder struct {
	src     Source
	acc     acc
	cursors [MaxLevel + 1]Cursor
}

func (f *folder) close() {
	for _, c := range f.cursors {
		if c != nil {
			c.Close()
		}
	}
}

func (f *folder) cursor(level int) (Cursor, error) {
	if f.cursors[level] == nil {
		c, err := f.src.Cursor(level)
		if err != nil {
			return nil, err
		}
		f.cursors[level] = c
	}
	return f.cursors[level], nil
}

// fold adds the rows of a range: the nodes of the level that lie in it whole,
// and the ends from the levels below. A node lies in the range if the one after
// it begins no later than hi.
func (f *folder) fold(level int, lo, hi []byte) error {
	c, err := f.cursor(level)
	if err != nil {
		return err
	}
	ok := c.SeekGE(lo)
	if level == 0 {
		for ; ok && (hi == nil || bytes.Compare(c.Key(), hi) < 0); ok = c.Next() {
			f.acc.row(c.Value())
		}
		return c.Error()
	}
	if !ok || hi != nil && bytes.Compare(c.Key(), hi) > 0 {
		if err := c.Error(); err != nil {
			return err
		}
		return f.fold(level-1, lo, hi)
	}
	at := bytes.Clone(c.Key())
	if bytes.Compare(lo, at) < 0 {
		if err := f.fold(level-1, lo, at); err != nil {
			return err
		}
	}
	for ok {
		n, err := DecodeNode(c.Value())
		if err != nil {
			return err
		}
		n.Partial = bytes.Clone(n.Partial) // the next move takes it away
		if ok = c.Next(); ok && (hi == nil || bytes.Compare(c.Key(), hi) <= 0) || !ok && hi == nil {
			f.acc.node(&n)
			if ok {
				at = append(at[:0], c.Key()...)
			}
			continue
		}
		if err := c.Error(); err != nil {
			return err
		}
		return f.fold(level-1, at, hi)
	}
	return c.Error()
}

// State says what became of a changed row.
type State uint8

// The states of a changed row.
const (
	Touched State = iota // it was there and is, with another value
	Added
	Removed
)

// A Change is a row that changed.
type Change struct {
	Key   []byte
	State State
}

// Update brings the nodes up to date after changes of rows, which src shows
// already. Changes are in order of their keys, each key once. Cost: for each
// change, at each level, a seek and a recomputation of some 16 entries, less
// where changes are neighbours.
func (t *Tree) Update(src Source, sink Sink, changes []Change) error {
	dirty := changes
	for level := 1; len(dirty) > 0 && level <= MaxLevel; level++ {
		u := updater{t: t, src: src, sink: sink, level: level}
		if level > 1 {
			there, err := u.exists(dirty)
			if err != nil || !there {
				return err
			}
		}
		if err := u.starts(dirty); err != nil {
			return err
		}
		if err := u.recompute(); err != nil {
			return err
		}
		if err := u.write(); err != nil {
			return err
		}
		dirty = u.dirty
	}
	return nil
}

// updater brings one level up to date.
type updater struct {
	t     *Tree
	src   Source
	sink  Sink
	level int
	gone  [][]byte // boundaries of the level that are no more, in order
	dirty []Change // nodes to be computed, then also those that are gone
	nodes []Node
}

// exists tells whether the level has or gets nodes.
func (u *updater) exists(dirty []Change) (bool, error) {
	for i := range dirty {
		if dirty[i].State == Added && u.t.Level(dirty[i].Key) >= u.level {
			return true, nil
		}
	}
	c, err := u.src.Cursor(u.level)
	if err != nil {
		return false, err
	}
	defer c.Close()
	return c.SeekGE(nil), c.Error()
}

// starts finds the nodes that changes fall into.
func (u *updater) starts(dirty []Change) error {
	var added [][]byte
	for i := range dirty {
		if len(dirty[i].Key) > 0 && dirty[i].State == Removed && u.t.Level(dirty[i].Key) >= u.level {
			u.gone = append(u.gone, dirty[i].Key)
		}
	}
	c, err := u.src.Cursor(u.level)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range dirty {
		k, state := dirty[i].Key, dirty[i].State
		bound := len(k) == 0 || u.t.Level(k) >= u.level
		if bound && state == Touched {
			u.start(k, Touched)
			continue
		}
		// The node before it: its extent changes, or it holds the row.
		at, err := u.before(c, k)
		if err != nil {
			return err
		}
		if n := len(added); n > 0 && bytes.Compare(added[n-1], at) > 0 {
			at = added[n-1]
		}
		u.start(at, Touched)
		if bound && state == Added {
			added = append(added, k)
			u.start(k, Added)
		}
	}
	return nil
}

// start notes a node to be computed; they come in order, some twice.
func (u *updater) start(key []byte, s State) {
	if n := len(u.dirty); n > 0 && bytes.Equal(u.dirty[n-1].Key, key) {
		return
	}
	u.dirty = append(u.dirty, Change{key, s})
}

// before returns the key of the last node before k that stays, empty for the
// first.
func (u *updater) before(c Cursor, k []byte) ([]byte, error) {
	for ok := c.SeekLT(k); ok; ok = c.SeekLT(k) {
		k = bytes.Clone(c.Key())
		if _, gone := slices.BinarySearchFunc(u.gone, k, bytes.Compare); !gone {
			return k, nil
		}
	}
	return nil, c.Error()
}

// recompute makes the nodes from the level below.
func (u *updater) recompute() error {
	c, err := u.src.Cursor(u.level - 1)
	if err != nil {
		return err
	}
	defer c.Close()
	a := acc{f: u.t.Func}
	for i := range u.dirty {
		start := u.dirty[i].Key
		a.reset()
		for ok := c.SeekGE(start); ok; ok = c.Next() {
			k := c.Key()
			if len(k) > 0 && u.t.Level(k) >= u.level && !bytes.Equal(k, start) {
				break
			}
			if u.level == 1 {
				a.row(c.Value())
				continue
			}
			n, err := DecodeNode(c.Value())
			if err != nil {
				return err
			}
			a.node(&n)
		}
		if err := c.Error(); err != nil {
			return err
		}
		u.nodes = append(u.nodes, a.result())
	}
	return nil
}

// write hands the nodes over and adds to the dirty ones those that are gone.
func (u *updater) write() error {
	var buf []byte
	for _, k := range u.gone {
		if err := u.sink.Delete(u.level, k); err != nil {
			return err
		}
	}
	for i := range u.nodes {
		key := u.dirty[i].Key
		if u.nodes[i].Count == 0 {
			if err := u.sink.Delete(u.level, key); err != nil {
				return err
			}
			continue
		}
		buf = u.nodes[i].Append(buf[:0])
		if err := u.sink.Set(u.level, key, buf); err != nil {
			return err
		}
	}
	if len(u.gone) > 0 {
		for _, k := range u.gone {
			u.dirty = append(u.dirty, Change{k, Removed})
		}
		slices.SortFunc(u.dirty, func(a, b Change) int { return bytes.Compare(a.Key, b.Key) })
	}
	return nil
}

// A Builder makes the nodes of rows that come in order, in one pass.
type Builder struct {
	t      *Tree
	sink   Sink
	top    int // the highest level that has a boundary
	levels [MaxLevel + 1]building
	buf    []byte
}

type building struct {
	start []byte
	acc   acc
}

// NewBuilder returns a Builder for an empty tree.
func (t *Tree) NewBuilder(sink Sink) *Builder {
	b := &Builder{t: t, sink: sink, top: 1}
	for i := range b.levels {
		b.levels[i].acc.f = t.Func
	}
	return b
}

// Add takes the next row.
func (b *Builder) Add(key, value []byte) error {
	if level := b.t.Level(key); level > 0 {
		if err := b.end(level); err != nil {
			return err
		}
		b.top = max(b.top, level)
		for l := 1; l <= level; l++ {
			b.levels[l].start = append(b.levels[l].start[:0], key...)
		}
	}
	b.levels[1].acc.row(value)
	return nil
}

// Finish ends the last nodes.
func (b *Builder) Finish() error { return b.end(b.top) }

// end closes the nodes of the levels up to top.
func (b *Builder) end(top int) error {
	for l := 1; l <= top; l++ {
		g := &b.levels[l]
		n := g.acc.result()
		g.acc.reset()
		if n.Count == 0 {
			continue
		}
		b.buf = n.Append(b.buf[:0])
		if err := b.sink.Set(l, g.start, b.buf); err != nil {
			return err
		}
		if l < MaxLevel {
			b.levels[l+1].acc.node(&n)
		}
	}
	return nil
}
