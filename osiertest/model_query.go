package osiertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/osierdb/osier"
)

// Query answers from one state.
func (m *Model) Query(ctx context.Context, q *osier.Query) iter.Seq2[osier.Row, error] {
	return func(yield func(osier.Row, error) bool) {
		rows, err := m.answer(ctx, q)
		if err != nil {
			yield(osier.Row{}, err)
			return
		}
		for _, row := range rows {
			if err := ctx.Err(); err != nil {
				yield(osier.Row{}, canceled("query", q.DB, err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

func (m *Model) answer(ctx context.Context, q *osier.Query) ([]osier.Row, error) {
	for {
		rows, wait, err := m.tryAnswer(ctx, q)
		if wait == nil {
			return rows, err
		}
		select {
		case <-ctx.Done():
		case <-wait:
		}
	}
}

// tryAnswer collects the whole answer, or returns the channel to wait on until
// the state is one that the query may see.
func (m *Model) tryAnswer(ctx context.Context, q *osier.Query) (rows []osier.Row, wait <-chan struct{}, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, canceled("query", q.DB, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, &osier.Error{Kind: osier.KindClosed, Op: "query", DB: q.DB}
	}
	if q.Kind == osier.QueryDatabases {
		for _, name := range slices.Sorted(maps.Keys(m.dbs)) {
			rows = append(rows, osier.Row{DB: &osier.DBInfo{Name: name}})
		}
		return rows, nil, nil
	}
	db := m.dbs[q.DB]
	if db == nil {
		return nil, nil, &osier.Error{Kind: osier.KindNotFound, Op: "query", DB: q.DB, Err: errors.New("no such database")}
	}
	if db.seq < q.MinSeq && q.Pin == 0 {
		return nil, db.changed, nil
	}
	if q.Pin != 0 {
		if db, err = m.pinned(q); err != nil {
			return nil, nil, err
		}
	}
	switch q.Kind {
	case osier.QueryPin:
		m.lastPin++
		m.pins[m.lastPin] = &pin{db, m.clock()}
		return []osier.Row{{Pin: m.lastPin, Document: osier.Document{Seq: db.seq}, DB: &osier.DBInfo{Drops: db.drops}}}, nil, nil
	case osier.QueryUnpin:
		delete(m.pins, q.Pin)
		return nil, nil, nil
	}
	if q.KV != nil {
		rows, err = db.queryKV(q, m.clock())
		return rows, nil, err
	}
	if q.Kind >= osier.QueryJournal && q.Kind <= osier.QueryJournalInfo {
		rows, err = db.journal(q, m.clock())
		return rows, nil, err
	}
	rows, err = db.query(q)
	if q.Kind == osier.QueryInfo && q.Collection == "" && err == nil {
		rows[0].DB.Namespaces = db.namespaces(m.clock())
	}
	return rows, nil, err
}

// pinned returns the state that a query's pin holds.
func (m *Model) pinned(q *osier.Query) (*database, error) {
	p := m.pins[q.Pin]
	if p == nil || p.db.name != q.DB || m.clock().Sub(p.used) > pinLife {
		delete(m.pins, q.Pin)
		return nil, &osier.Error{Kind: osier.KindGap, Op: "query", DB: q.DB, Err: errors.New("the pinned state is not held any more")}
	}
	p.used = m.clock()
	return p.db, nil
}

func (db *database) query(q *osier.Query) ([]osier.Row, error) {
	switch q.Kind {
	case osier.QueryGet:
		return db.get(q), nil
	case osier.QueryScan:
		return db.scan(q), nil
	case osier.QueryInfo:
		return []osier.Row{{DB: db.info(q.Collection)}}, nil
	case osier.QueryTransactions:
		return db.executed(q), nil
	case osier.QueryFind:
		return db.find(q)
	case osier.QueryVersions, osier.QueryRevs, osier.QueryAsOf:
		if len(q.IDs) != 1 {
			return nil, &osier.Error{Kind: osier.KindInvalid, Op: "query", DB: q.DB, Collection: q.Collection, Err: errors.New("want one document id")}
		}
		switch d := db.doc(q.Collection, q.IDs[0]); q.Kind {
		case osier.QueryVersions:
			return versions(d, q), nil
		case osier.QueryRevs:
			return revs(d, q), nil
		default:
			return asOf(d, q)
		}
	}
	return nil, &osier.Error{Kind: osier.KindUnsupported, Op: "query", DB: q.DB, Err: fmt.Errorf("unknown query %d", q.Kind)}
}

func (db *database) get(q *osier.Query) []osier.Row {
	var rows []osier.Row
	for _, id := range q.IDs {
		d := db.doc(q.Collection, id)
		w := d.winner()
		switch {
		case w == nil:
			rows = append(rows, osier.Row{Missing: true, Document: osier.Document{ID: id}})
		case w.Deleted && !q.Deleted:
			rows = append(rows, tombstone(w))
		default:
			rows = append(rows, osier.Row{Document: d.row(w, q.Parts)})
		}
	}
	return rows
}

// tombstone is the row of a document that was there once.
func tombstone(v *osier.Document) osier.Row {
	return osier.Row{Missing: true, Document: osier.Document{ID: v.ID, Rev: v.Rev, Seq: v.Seq, Time: v.Time, Deleted: true}}
}

func (db *database) scan(q *osier.Query) []osier.Row {
	docs := db.sorted(q.Collection)
	if q.Reverse {
		slices.Reverse(docs)
	}
	var rows []osier.Row
	skip := q.Skip
	for _, d := range docs {
		w := d.winner()
		if d.id.Key() < q.Start || q.End != "" && d.id.Key() >= q.End || w.Deleted && !q.Deleted {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if q.Limit > 0 && len(rows) == q.Limit {
			break
		}
		rows = append(rows, osier.Row{Document: d.row(w, q.Parts)})
	}
	return rows
}

// info describes the database, with col only that collection of it.
func (db *database) info(col string) *osier.DBInfo {
	info := &osier.DBInfo{Name: db.name, UUID: db.uuid, Created: db.created, LastSeq: db.seq, DurableSeq: db.seq, Drops: db.drops}
	for _, name := range slices.Sorted(maps.Keys(db.collections)) {
		if col != "" && name != col {
			continue
		}
		c := db.collections[name]
		ci := osier.CollectionInfo{Name: name, Settings: c.settings, LastSeq: c.lastSeq}
		for _, d := range c.docs {
			w := d.winner()
			if w.Deleted {
				ci.Deleted++
			} else {
				ci.Count++
			}
			ci.BodyBytes += uint64(len(w.Body))
		}
		info.Collections = append(info.Collections, ci)
	}
	for _, name := range slices.Sorted(maps.Keys(db.journals)) {
		if col == "" {
			info.Journals = append(info.Journals, db.journals[name].info(name))
		}
	}
	return info
}

func (db *database) executed(q *osier.Query) []osier.Row {
	var rows []osier.Row
	for _, tx := range db.transactions {
		if tx.Last > q.Seq {
			tx.Changes = slices.Clone(tx.Changes)
			rows = append(rows, osier.Row{Tx: &tx})
		}
	}
	if q.Reverse {
		slices.Reverse(rows)
	}
	if q.Limit > 0 && len(rows) > q.Limit {
		rows = rows[:q.Limit]
	}
	return rows
}

func versions(d *document, q *osier.Query) []osier.Row {
	if d == nil {
		return []osier.Row{{Missing: true, Document: osier.Document{ID: q.IDs[0]}}}
	}
	var rows []osier.Row
	for _, r := range d.known() {
		rows = append(rows, osier.Row{Document: d.row(d.version(r), q.Parts)})
	}
	return rows
}

func revs(d *document, q *osier.Query) []osier.Row {
	var rows []osier.Row
	for _, r := range q.Revs {
		if d.has(r) {
			rows = append(rows, osier.Row{Document: d.row(d.version(r), q.Parts)})
		} else {
			rows = append(rows, osier.Row{Missing: true, Document: osier.Document{ID: q.IDs[0], Rev: r}})
		}
	}
	return rows
}

func asOf(d *document, q *osier.Query) ([]osier.Row, error) {
	v := d.asOf(func(v *osier.Document) bool {
		if q.Seq > 0 {
			return v.Seq <= q.Seq
		}
		return !v.Time.After(q.Time)
	})
	switch {
	case v == nil:
		return []osier.Row{{Missing: true, Document: osier.Document{ID: q.IDs[0]}}}, nil
	case v.Deleted:
		return []osier.Row{tombstone(v)}, nil
	case v.Body == nil:
		return nil, &osier.Error{Kind: osier.KindGap, Op: "get as of", DB: q.DB, Collection: q.Collection, ID: d.id.String(),
			Err: fmt.Errorf("the body of revision %v is not kept any more", v.Rev)}
	}
	return []osier.Row{{Document: d.row(v, q.Parts)}}, nil
}

// open returns a database's present state.
func (m *Model) open(step, name string) (*database, error) {
	if m.closed {
		return nil, &osier.Error{Kind: osier.KindClosed, Op: step, DB: name}
	}
	db := m.dbs[name]
	if db == nil {
		return nil, &osier.Error{Kind: osier.KindNotFound, Op: step, DB: name, Err: errors.New("no such database")}
	}
	return db, nil
}
