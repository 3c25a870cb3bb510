package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/reduce"
	"github.com/osierdb/osier/internal/store"
)

// views checks the indexes of a database: rows against back-references, counts
// and trees. Indexes being built are passed over.
func (c *checker) views(colls map[string]*collState) error {
	byNum := map[uint32]string{}
	for name, s := range colls {
		byNum[s.num] = name
	}
	known := map[[2]uint32]bool{} // collection and index
	err := scanPrefix(c.src, prefix(nil, c.db.num, 0, spaceView), func(tail, value []byte) error {
		rec, err := decodeViewRecord(value)
		if err != nil || len(tail) != 4 {
			c.here("", osier.ID{}, fmt.Errorf("view: %w", errRecord))
			return nil
		}
		num := binary.BigEndian.Uint32(tail)
		known[[2]uint32{rec.coll, num}] = true
		if _, ok := byNum[rec.coll]; !ok {
			return nil // of a dropped collection: it goes when the store is opened
		}
		c.out.Views++
		return c.view(num, &rec)
	})
	if err != nil {
		return err
	}
	for num, name := range byNum {
		c.name = name
		for _, space := range []byte{spaceRow, spaceBackref, spaceTree, spaceBuild} {
			if err := c.strayIndexes(num, space, known); err != nil {
				return err
			}
		}
	}
	c.name = ""
	return nil
}

// strayIndexes looks for records of indexes that there are not.
func (c *checker) strayIndexes(coll uint32, space byte, known map[[2]uint32]bool) error {
	lower := prefix(nil, c.db.num, coll, space)
	it, err := c.src.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		if len(it.Key()) < viewPrefixSize {
			return errRecord
		}
		num := binary.BigEndian.Uint32(it.Key()[prefixSize:])
		if !known[[2]uint32{coll, num}] {
			c.wrong(osier.ID{}, "records of an index %d that is not there", num)
		}
		ok = it.SeekGE(keys.PrefixEnd(it.Key()[:viewPrefixSize]))
	}
	return it.Error()
}

// indexIn finds an index in memory, or makes what its record tells of it.
func (c *checker) indexIn(num uint32, rec *viewRecord) (ix *index, counts bool) {
	vs := &c.db.views
	vs.mu.Lock()
	if s := vs.slots[viewName{rec.collection, rec.name}]; s != nil {
		for _, x := range []*index{s.ready, s.building} {
			if x != nil && x.num == num {
				ix = x
			}
		}
	}
	vs.mu.Unlock()
	if ix == nil {
		def := &viewDef{kind: rec.kind, collection: rec.collection, name: rec.name, id: rec.id, reduceName: rec.reduceName}
		if d, err := parseDefinition(rec.name, rec.source); rec.kind != viewGo && err == nil {
			def = d
		}
		ix = (*Engine)(nil).newIndex(c.db, num, rec.coll, def, &progress{})
	}
	def := ix.def.Load()
	return ix, def.reduceName != "" && def.builtin == nil && def.own == nil
}

func (c *checker) view(num uint32, rec *viewRecord) error {
	c.name = rec.collection
	p, err := readProgress(c.src, c.db.num, rec.coll, num)
	if err != nil {
		c.wrong(osier.ID{}, "view %s: %w", rec.name, err)
		return nil
	}
	if p.state != osier.ViewReady {
		return nil
	}
	ix, counts := c.indexIn(num, rec)
	listed, failed, err := c.backrefs(ix)
	if err != nil {
		return err
	}
	t := &treeChecker{c: c, ix: ix, counts: counts}
	rows, err := t.check()
	if err != nil {
		return err
	}
	if rows != listed || rows != p.rows || failed != p.failed {
		c.wrong(osier.ID{}, "view %s: it has %d rows, %d in back-references, counted are %d; %d failures, counted are %d",
			rec.name, rows, listed, p.rows, failed, p.failed)
	}
	return nil
}

// backrefs looks every row up that a back-reference names.
func (c *checker) backrefs(ix *index) (rows, failed uint64, err error) {
	var l rowList
	err = scanPrefix(c.src, viewSpace(nil, c.db.num, ix.coll, spaceBackref, ix.num), func(tail, value []byte) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		id := osier.TrustedID(tail)
		if err := decodeBackref(value, &l); err != nil {
			c.wrong(id, "view %s: %w", ix.name.name, err)
			return nil
		}
		for i := range l.rows {
			_, closer, err := c.src.Get(appendRowKey(viewSpace(nil, c.db.num, ix.coll, spaceRow, ix.num), l.key(i), id, l.rows[i].n))
			if errors.Is(err, store.ErrNotFound) {
				c.wrong(id, "view %s: its row of key %s is missing", ix.name.name, keys.Format(l.key(i)))
				continue
			}
			if err != nil {
				return err
			}
			closer.Close()
			rows++
		}
		return nil
	})
	if err != nil {
		return rows, failed, err
	}
	lower := append(viewSpace(nil, c.db.num, ix.coll, spaceBuild, ix.num), buildFailure)
	err = scanPrefix(c.src, lower, func([]byte, []byte) error { failed++; return nil })
	return rows, failed, err
}

// treeChecker compares a tree with the one that its rows make.
type treeChecker struct {
	c      *checker
	ix     *index
	counts bool // only counts can be compared
	nodes  int
	wrong  int
}

func (t *treeChecker) check() (rows uint64, err error) {
	tree := t.ix.tree()
	if t.counts {
		tree.Func = nil
	}
	b := tree.NewBuilder(t)
	err = scanPrefix(t.c.src, viewSpace(nil, t.c.db.num, t.ix.coll, spaceRow, t.ix.num), func(tail, value []byte) error {
		if rows++; rows%4096 == 0 && t.c.ctx.Err() != nil {
			return t.c.ctx.Err()
		}
		if _, _, _, _, err := splitRow(tail, value); err != nil {
			t.c.wrong(osier.ID{}, "view %s: %w", t.ix.name.name, err)
		}
		return b.Add(tail, rowValue(value))
	})
	if err != nil {
		return rows, err
	}
	if err := b.Finish(); err != nil {
		return rows, err
	}
	stored := 0
	err = scanPrefix(t.c.src, viewSpace(nil, t.c.db.num, t.ix.coll, spaceTree, t.ix.num), func(tail, _ []byte) error {
		if len(tail) > 1 {
			stored++ // the first node of a level that has lost its boundaries may be left
		}
		return nil
	})
	if err == nil && t.wrong == 0 && stored != t.nodes {
		t.c.wrong(osier.ID{}, "view %s: its tree has %d nodes, its rows make %d", t.ix.name.name, stored, t.nodes)
	}
	return rows, err
}

// Set compares a node with the one that is stored.
func (t *treeChecker) Set(level int, key, node []byte) error {
	if len(key) > 0 {
		t.nodes++
	}
	records := treeRecords{ix: t.ix, src: t.c.src}
	b, closer, err := t.c.src.Get(append(records.space(level), key...))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	same := err == nil
	if same {
		want, _ := reduce.DecodeNode(node)
		got, err := reduce.DecodeNode(b)
		same = err == nil && got.Count == want.Count && (t.counts || bytes.Equal(b, node) || t.ix.inexact())
		closer.Close()
	}
	if !same {
		if t.wrong++; t.wrong == 1 {
			t.c.wrong(osier.ID{}, "view %s: a node of its tree, of level %d, is not what its rows make", t.ix.name.name, level)
		}
	}
	return nil
}

// Delete is never called.
func (t *treeChecker) Delete(int, []byte) error { return nil }

// inexact tells whether a reduce may give other bytes for the same rows: a
// program's own may add floats, and nobody knows.
func (ix *index) inexact() bool { return ix.def.Load().own != nil }

// dropViews drops all indexes: they are made again of the documents.
func (m *mender) dropViews(colls map[uint32]namedColl) error {
	spaces := [][2][]byte{}
	add := func(coll uint32, space byte) {
		lower, upper := collSpace(m.num, coll, space)
		spaces = append(spaces, [2][]byte{lower, upper})
	}
	add(0, spaceView)
	for num := range colls {
		for _, space := range []byte{spaceRow, spaceBackref, spaceTree, spaceBuild} {
			add(num, space)
		}
	}
	for _, s := range spaces {
		if err := m.w.deleteRange(s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}
