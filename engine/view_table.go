package engine

import (
	"errors"

	"github.com/osierdb/osier/internal/reduce"
	"github.com/osierdb/osier/internal/store"
)

// A build of many documents writes its records to whole tables instead of
// batches: back-references, rows of a stretch and nodes of a level come in order
// anyway. A stretch's tables become visible at once, before its progress, which a
// crash can take back without them: like all else that is behind the progress
// they are found by their back-references then.

// buildTableDocs is from how many documents on tables are worth their fsyncs.
const buildTableDocs = 1 << 15

// buildTables are the tables that a build is filling.
type buildTables struct {
	refs  *store.SortedTable
	nodes [reduce.MaxLevel + 1]*store.SortedTable // by level
}

// into appends a record to a table, which is begun with the first.
func (ix *index) into(t **store.SortedTable, key, value []byte) (err error) {
	if *t == nil {
		if *t, err = ix.e.store.NewSortedTable(); err != nil {
			return err
		}
	}
	return (*t).Set(key, value)
}

// close gives up what was not ingested.
func (t *buildTables) close() error {
	var errs []error
	for _, table := range append(t.nodes[:], t.refs) {
		if table != nil {
			errs = append(errs, table.Close())
		}
	}
	*t = buildTables{}
	return errors.Join(errs...)
}

// ingest makes tables of an index's records visible, under the same condition as
// write. The tables are closed in any case.
func (ix *index) ingest(tables ...*store.SortedTable) error {
	var begun []*store.SortedTable
	for _, t := range tables {
		if t != nil {
			begun = append(begun, t)
		}
	}
	ix.db.fence.RLock()
	defer ix.db.fence.RUnlock()
	if ix.isGone() || ix.db.gone.Load() || (*ix.db.visible.Load())[ix.name.coll].num != ix.coll {
		for _, t := range begun {
			_ = t.Close() // nobody wants it any more
		}
		return errViewGone
	}
	return ix.e.store.Ingest(begun...)
}

// ingestStretch makes the back-references and sorted rows of a stretch visible.
func (s *buildStretch) ingestStretch() (err error) {
	var rows *store.SortedTable
	defer func() {
		if rows != nil {
			err = errors.Join(err, rows.Close())
		}
	}()
	if err := s.eachRow(func(key, record []byte) error { return s.ix.into(&rows, key, record) }); err != nil {
		return err
	}
	refs := s.tables.refs
	s.tables.refs = nil
	return s.ix.ingest(refs, rows)
}

// ingestNodes makes the tree visible.
func (s *buildStretch) ingestNodes() error {
	nodes := s.tables.nodes
	s.tables.nodes = [len(nodes)]*store.SortedTable{}
	return s.ix.ingest(nodes[:]...)
}
