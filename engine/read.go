package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/store"
)

// Query streams the answer to a query; see osier.Backend.
func (e *Engine) Query(ctx context.Context, q *osier.Query) iter.Seq2[osier.Row, error] {
	return func(yield func(osier.Row, error) bool) {
		if err := e.query(ctx, q, yield); err != nil {
			yield(osier.Row{}, err)
		}
	}
}

// query answers q. It returns nil when yield wants no more.
func (e *Engine) query(ctx context.Context, q *osier.Query, yield func(osier.Row, error) bool) error {
	if err := ctx.Err(); err != nil {
		return &osier.Error{Kind: osier.KindCanceled, Op: "query", DB: q.DB, Err: err}
	}
	switch q.Kind {
	case osier.QueryDatabases:
		return e.databases(yield)
	case osier.QueryUnpin:
		e.pins.release(q.Pin)
		return nil
	}
	db, err := e.lookup("query", q.DB)
	if err != nil {
		return err
	}
	if err := e.awaitSeq(ctx, db, &db.applied, &db.appliedWake, q.MinSeq); err != nil {
		return err
	}
	if q.Kind == osier.QueryPin {
		if err := e.settleKV(ctx, db); err != nil {
			return e.storeError("pin", err)
		}
		if err := e.drain(ctx, store.Relaxed); err != nil {
			return err // a pin shows what is stored
		}
		return e.pin(db, yield)
	}
	if isKVQuery(q.Kind) {
		return e.queryKV(ctx, db, q, yield)
	}
	v := view{e: e, db: db, q: q, src: e.store}
	switch q.Kind {
	case osier.QueryFind:
		return v.failed(v.find(ctx, yield))
	case osier.QueryView:
		return v.failed(e.queryView(ctx, &v, yield))
	case osier.QueryViewInfo:
		return v.failed(e.viewInfos(&v, yield))
	case osier.QueryRefresh:
		return v.failed(e.refreshView(ctx, &v))
	}
	if q.Pin != 0 || q.Parts&osier.WithAncestors != 0 || q.Kind != osier.QueryGet && q.Kind != osier.QueryScan && q.Kind < osier.QueryJournal && !oneInfo(q) {
		release, err := v.hold()
		if err != nil {
			return v.failed(err)
		}
		defer release()
	} // else one look-up or one iterator sees one state by itself
	switch q.Kind {
	case osier.QueryGet:
		return v.failed(v.get(yield))
	case osier.QueryScan:
		return v.failed(v.scan(ctx, yield))
	case osier.QueryVersions:
		return v.failed(v.versions(yield))
	case osier.QueryRevs:
		return v.failed(v.revs(yield))
	case osier.QueryAsOf:
		return v.failed(v.asOf(yield))
	case osier.QueryInfo:
		return v.failed(v.info(yield))
	case osier.QueryTransactions:
		return v.failed(v.transactions(ctx, yield))
	case osier.QueryJournal, osier.QueryJournalCount, osier.QueryJournalInfo:
		return v.failed(v.journal(ctx, yield))
	}
	return &osier.Error{Kind: osier.KindUnsupported, Op: "query", DB: q.DB, Err: errors.New("unknown kind of query")}
}

// oneInfo tells the description of one collection, which is read before the
// database's counters: they are no older, which is all that is promised.
func oneInfo(q *osier.Query) bool { return q.Kind == osier.QueryInfo && q.Collection != "" }

// GetDocument is QueryGet of one document, without a stream.
func (e *Engine) GetDocument(ctx context.Context, dbName, collection string, id osier.ID, d *osier.Document) (found bool, release io.Closer, err error) {
	if err := ctx.Err(); err != nil {
		return false, nil, &osier.Error{Kind: osier.KindCanceled, Op: "get", DB: dbName, Err: err}
	}
	db, err := e.lookup("get", dbName)
	if err != nil {
		return false, nil, err
	}
	c, known := (*db.visible.Load())[collection]
	if !known {
		return false, nil, nil
	}
	key := e.keys.Get().(*[]byte)
	defer e.keys.Put(key)
	*key = docKey(*key, db.num, c.num, id)
	record, closer, err := e.store.Get(*key)
	if err == store.ErrNotFound {
		return false, nil, nil
	}
	fail := func(err error) (bool, io.Closer, error) {
		v := view{db: db, q: &osier.Query{Collection: collection}}
		return false, nil, v.failed(err)
	}
	if err != nil {
		return fail(err)
	}
	var doc document
	if err := decodeDocument(record, &doc); err != nil {
		closer.Close()
		return fail(corrupt("read document", id, err))
	}
	*d = osier.Document{
		ID: id, Rev: doc.winner.rev, Seq: doc.winner.seq, Time: at(doc.winner.millis), Deleted: doc.winner.deleted,
		Codec: doc.v.codec, Schema: doc.v.schema, Body: shown(&doc.v), Attachments: doc.v.atts,
	}
	return true, closer, nil
}

// view is a query being answered from one state.
type view struct {
	e     *Engine
	db    *database
	q     *osier.Query
	src   source
	fixed bool // src is a snapshot: collections must be looked up in it
	key   []byte
}

// hold fixes the state: the query's pin, or a snapshot of now.
func (v *view) hold() (release func(), err error) {
	v.fixed = true
	if v.q.Pin != 0 {
		snap, release, err := v.e.pins.use(v.q.Pin, v.db, v.e.now())
		if err != nil {
			return nil, err
		}
		v.src = snap
		return release, nil
	}
	snap, err := v.e.store.NewSnapshot()
	if err != nil {
		return nil, err
	}
	v.src = snap
	return func() { snap.Close() }, nil
}

// failed names the query in an error.
func (v *view) failed(err error) error {
	if err == nil {
		return nil
	}
	var own *osier.Error
	if !errors.As(err, &own) {
		own = &osier.Error{Kind: kindOf(err), Op: "query", Err: err}
	}
	if own.DB == "" {
		c := *own
		c.DB, c.Collection = v.db.name, v.q.Collection
		own = &c
	}
	return own
}

// coll finds a collection; found is false if there is none, which reads as
// empty.
func (v *view) coll(name string) (c visibleColl, found bool, err error) {
	if !v.fixed {
		c, found = (*v.db.visible.Load())[name]
		return c, found, nil
	}
	b, closer, err := v.src.Get(collectionKey(v.db.num, name))
	if errors.Is(err, store.ErrNotFound) {
		return visibleColl{}, false, nil
	}
	if err != nil {
		return visibleColl{}, false, err
	}
	defer closer.Close()
	s, err := decodeCollState(b)
	return visibleColl{num: s.num, settings: s.settings}, true, err
}

// doc reads a document's record; d is valid until closer is closed.
func (v *view) doc(coll uint32, id osier.ID, d *document) (found bool, closer io.Closer, err error) {
	v.key = docKey(v.key[:0], v.db.num, coll, id)
	b, closer, err := v.src.Get(v.key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	if err := decodeDocument(b, d); err != nil {
		closer.Close()
		return false, nil, corrupt("read document", id, err)
	}
	return true, closer, nil
}

func (v *view) get(yield func(osier.Row, error) bool) error {
	c, known, err := v.coll(v.q.Collection)
	if err != nil {
		return err
	}
	if known && (len(v.q.IDs) >= sortedFrom || len(v.q.IDs) > 1 && !v.fixed) {
		return v.getSorted(c, yield)
	}
	for _, id := range v.q.IDs {
		more, err := v.getOne(c, known, id, yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// From sortedFrom ids on it pays to walk them in order with one iterator;
// sortedAt of them are read ahead to be shown in the order asked for.
const (
	sortedFrom = 8
	sortedAt   = 256
)

// getSorted reads a stretch of ids in the order of the keys, where neighbours
// share blocks, and shows them in the order asked for.
func (v *view) getSorted(c visibleColl, yield func(osier.Row, error) bool) error {
	it, err := v.src.NewIter(collSpace(v.db.num, c.num, spaceDoc))
	if err != nil {
		return err
	}
	defer it.Close()
	var order []int
	var values [][]byte
	var buf []byte
	for ids := v.q.IDs; len(ids) > 0; ids = ids[min(sortedAt, len(ids)):] {
		part := ids[:min(sortedAt, len(ids))]
		order, values, buf = order[:0], append(values[:0], make([][]byte, len(part))...), buf[:0]
		for i := range part {
			order = append(order, i)
		}
		slices.SortFunc(order, func(a, b int) int { return part[a].Compare(part[b]) })
		for _, i := range order {
			v.key = docKey(v.key[:0], v.db.num, c.num, part[i])
			if it.SeekGE(v.key) && bytes.Equal(it.Key(), v.key) {
				at := len(buf)
				buf = append(buf, it.Value()...)
				values[i] = buf[at:len(buf):len(buf)]
			}
		}
		if err := it.Error(); err != nil {
			return err
		}
		for i, id := range part {
			more, err := v.showOne(c, id, values[i], yield)
			if err != nil || !more {
				return err
			}
		}
	}
	return nil
}

// showOne yields a document's record, or, without one, a missing row.
func (v *view) showOne(c visibleColl, id osier.ID, record []byte, yield func(osier.Row, error) bool) (more bool, err error) {
	if record == nil {
		return yield(osier.Row{Missing: true, Document: osier.Document{ID: id}}, nil), nil
	}
	var d document
	if err := decodeDocument(record, &d); err != nil {
		return false, corrupt("read document", id, err)
	}
	row := osier.Row{Missing: d.winner.deleted && !v.q.Deleted}
	if err := v.fill(&row.Document, c, id, &d); err != nil {
		return false, err
	}
	return yield(row, nil), nil
}

func (v *view) getOne(c visibleColl, known bool, id osier.ID, yield func(osier.Row, error) bool) (more bool, err error) {
	if !known {
		return v.showOne(c, id, nil, yield)
	}
	v.key = docKey(v.key, v.db.num, c.num, id)
	record, closer, err := v.src.Get(v.key)
	if err == store.ErrNotFound {
		return v.showOne(c, id, nil, yield)
	}
	if err != nil {
		return false, err
	}
	defer closer.Close()
	return v.showOne(c, id, record, yield)
}

// fill makes a row of a document's winner, with the parts asked for.
func (v *view) fill(out *osier.Document, c visibleColl, id osier.ID, d *document) error {
	*out = osier.Document{
		ID: id, Rev: d.winner.rev, Seq: d.winner.seq, Time: at(d.winner.millis), Deleted: d.winner.deleted,
		Codec: d.v.codec, Schema: d.v.schema,
	}
	if v.q.Parts&osier.WithBody != 0 {
		out.Body, out.Attachments = shown(&d.v), d.v.atts
	}
	if v.q.Parts&osier.WithConflicts != 0 {
		for i := range d.losers {
			out.Conflicts = append(out.Conflicts, osier.Leaf{Rev: d.losers[i].rev, Deleted: d.losers[i].deleted})
		}
	}
	if v.q.Parts&osier.WithAncestors != 0 {
		var err error
		if out.Ancestors, err = v.ancestors(c, id, &d.winner); err != nil {
			return err
		}
	}
	return nil
}

// shown is a version's body as rows have it: not nil if there is one.
func shown(v *version) []byte {
	if v.hasBody && v.body == nil {
		return []byte{}
	}
	if !v.hasBody {
		return nil
	}
	return v.body
}

// scan streams a range of documents.
func (v *view) scan(ctx context.Context, yield func(osier.Row, error) bool) error {
	c, known, err := v.coll(v.q.Collection)
	if err != nil || !known {
		return err
	}
	base := prefix(nil, v.db.num, c.num, spaceDoc)
	lower := append(slices.Clone(base), v.q.Start...)
	upper := keys.PrefixEnd(base)
	if v.q.End != "" {
		upper = append(slices.Clone(base), v.q.End...)
	}
	if bytes.Compare(lower, upper) >= 0 {
		return nil
	}
	it, err := v.src.NewIter(lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	step, ok := it.Next, false
	if v.q.Reverse {
		step, ok = it.Prev, it.Last()
	} else {
		ok = it.First()
	}
	skip, shown := v.q.Skip, 0
	var d document
	var row osier.Row
	var ids idArena
	for ; ok; ok = step() {
		id := ids.id(it.Key()[len(base):])
		if err := decodeDocument(it.Value(), &d); err != nil {
			return corrupt("read document", id, err)
		}
		if d.winner.deleted && !v.q.Deleted {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if err := v.fill(&row.Document, c, id, &d); err != nil {
			return err
		}
		if !yield(row, nil) {
			return nil
		}
		if shown++; shown == v.q.Limit {
			return nil
		}
		if shown%256 == 0 && ctx.Err() != nil {
			return &osier.Error{Kind: osier.KindCanceled, Op: "scan", Err: ctx.Err()}
		}
	}
	return it.Error()
}

// idArena makes ids, some dozens from one piece of memory. The pieces are small,
// so that an id that is kept does not keep much else, and the first ones smaller:
// most answers have one row.
type idArena struct{ b strings.Builder }

const idArenaSize = 1 << 10

func (a *idArena) id(key []byte) osier.ID {
	if a.b.Len()+len(key) > a.b.Cap() {
		next := max(len(key), min(4*a.b.Cap(), idArenaSize))
		a.b.Reset()
		a.b.Grow(next)
	}
	at := a.b.Len()
	a.b.Write(key)
	return osier.TrustedID(a.b.String()[at:])
}

func (e *Engine) databases(yield func(osier.Row, error) bool) error {
	select {
	case <-e.closing:
		return &osier.Error{Kind: osier.KindClosed, Op: "list databases"}
	default:
	}
	for _, name := range slices.Sorted(maps.Keys(*e.dbs.Load())) {
		if !yield(osier.Row{DB: &osier.DBInfo{Name: name}}, nil) {
			return nil
		}
	}
	return nil
}

// info describes the database, or one of its collections.
func (v *view) info(yield func(osier.Row, error) bool) error {
	db := v.db
	info := &osier.DBInfo{Name: db.name, UUID: db.uuid, Created: at(db.millis)}
	colls := map[string]*collState{}
	var err error
	if v.q.Collection == "" {
		if colls, err = readColls(v.src, db.num); err != nil {
			return err
		}
		lower, upper := databaseRange(db.num)
		if info.DiskBytes, err = v.e.store.Size(lower, upper); err != nil {
			return err
		}
		if info.Journals, err = v.journalInfos(); err != nil {
			return err
		}
	} else if err := v.oneColl(colls); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(colls)) {
		c := colls[name]
		ci := osier.CollectionInfo{Name: name, Settings: c.settings, Count: c.count, Deleted: c.deleted, BodyBytes: c.bodyBytes, LastSeq: c.lastSeq}
		if v.q.Collection == "" {
			lower, upper := collectionRange(db.num, c.num)
			if ci.DiskBytes, err = v.e.store.Size(lower, upper); err != nil {
				return err
			}
		}
		info.Collections = append(info.Collections, ci)
	}
	if v.q.Collection == "" {
		if info.Namespaces, err = v.namespaces(); err != nil {
			return err
		}
	}
	state, err := stateIn(v.src, db.num)
	if err != nil {
		return err
	}
	info.LastSeq, info.Drops = state.lastSeq, state.drops
	info.DurableSeq = osier.Seq(db.durable.Load())
	yield(osier.Row{DB: info}, nil)
	return nil
}

func (v *view) oneColl(into map[string]*collState) error {
	b, closer, err := v.src.Get(collectionKey(v.db.num, v.q.Collection))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	c, err := decodeCollState(b)
	into[v.q.Collection] = &c
	return err
}

func lastSeq(src source, db uint32) (osier.Seq, error) {
	s, err := stateIn(src, db)
	return s.lastSeq, err
}

// stateIn reads a database's counters; none yet are zeros.
func stateIn(src source, db uint32) (dbState, error) {
	b, closer, err := src.Get(stateKey(db))
	if errors.Is(err, store.ErrNotFound) {
		return dbState{}, nil
	}
	if err != nil {
		return dbState{}, err
	}
	defer closer.Close()
	return decodeDBState(b)
}

// transactions lists executed transactions after a sequence.
func (v *view) transactions(ctx context.Context, yield func(osier.Row, error) bool) error {
	base := prefix(nil, v.db.num, 0, spaceTx)
	it, err := v.src.NewIter(base, keys.PrefixEnd(base))
	if err != nil {
		return err
	}
	defer it.Close()
	var ok bool
	step := it.Next
	switch {
	case v.q.Reverse:
		step, ok = it.Prev, it.Last()
	case v.q.Seq == 0:
		ok = it.First()
	default:
		// The transaction that holds Seq begins at or before it.
		if ok = it.SeekLT(txKey(v.db.num, v.q.Seq+1)); !ok {
			ok = it.First()
		}
	}
	shown := 0
	for ; ok; ok = step() {
		tx, err := decodeTx(osier.Seq(binary.BigEndian.Uint64(it.Key()[len(base):])), it.Value())
		if err != nil {
			return &osier.Error{Kind: osier.KindCorrupt, Op: "list transactions", Err: err}
		}
		if tx.Last <= v.q.Seq {
			if v.q.Reverse {
				break
			}
			continue
		}
		if !yield(osier.Row{Tx: tx}, nil) {
			return nil
		}
		if shown++; shown == v.q.Limit {
			return nil
		}
		if ctx.Err() != nil {
			return &osier.Error{Kind: osier.KindCanceled, Op: "list transactions", Err: ctx.Err()}
		}
	}
	return it.Error()
}
