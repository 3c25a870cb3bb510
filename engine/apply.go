package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
	"github.com/osierdb/osier/internal/store"
)

// applier carries sealed commands out on a batch that reads through to the
// store. What it does depends on nothing but these two: no clock, no chance,
// no map order, no environment.
type applier struct {
	e       *Engine
	b       *store.Batch
	touched []*database // whose counters moved
	// directory: databases were created or dropped; the maps below hold which.
	directory bool
	created   []*database
	dropped   []*database
	shape     []*database // databases whose collections changed

	journals     []*journal  // whose state moved
	journalShape []*database // whose journals were made, dropped or set up anew
	held         []*journal  // that take no events while positions are decided
	drained      []*journal  // whose pending events were written
	messages     []posting   // to go out with the batch
	fenced       []*database // databases that lose collections, or are dropped
	views        []*indexEdit
	// wrote are the documents that the group has written, if it has more than
	// one request: others are read past the batch, which is cheaper.
	wrote map[string]struct{}
	many  bool
	kv    []*kvGroup // of databases whose key-values the group reads or changes
	// counted are the databases whose counters of key-values may have moved.
	counted []*database
	// ownBehind: what is written behind comes from this engine's memory.
	ownBehind bool

	// Kept from command to command, for their memory.
	run   run
	edits []*edit
	used  int // of edits
	buf   []byte
	key   []byte
}

// begin makes the applier ready for a group.
func (a *applier) begin(e *Engine, b *store.Batch, many bool) {
	a.e, a.b, a.many = e, b, many
	if a.wrote == nil {
		a.wrote = map[string]struct{}{}
	}
	clear(a.wrote)
	a.directory = false
	a.touched, a.created, a.dropped, a.shape = a.touched[:0], nil, nil, nil
	a.kv, a.counted = nil, a.counted[:0]
	a.beginJournals()
	a.fenced, a.views = a.fenced[:0], a.views[:0]
}

// newRun makes the applier ready for a command.
func (a *applier) newRun(db *database, c *osier.Command, prep []prepared) *run {
	r := &a.run
	clear(r.colls)
	clear(r.changes)
	*r = run{a: a, db: db, cmd: c, prepared: prep, state: db.state, colls: r.colls,
		edits: r.edits[:0], changes: r.changes[:0], staged: r.staged[:0]}
	return r
}

// maxKeptEdits bounds what is kept of a large command.
const maxKeptEdits = 1024

// newEdit returns an empty edit, which may be an old one.
func (a *applier) newEdit() *edit {
	if a.used == len(a.edits) {
		a.edits = append(a.edits, new(edit))
	}
	ed := a.edits[a.used]
	a.used++
	return ed
}

// recycle releases what the command's edits hold.
func (a *applier) recycle() {
	for _, ed := range a.edits[:a.used] {
		ed.close()
		clear(ed.leaves)
		clear(ed.superseded)
		*ed = edit{leaves: ed.leaves[:0], superseded: ed.superseded[:0], nodes: ed.nodes[:0], digests: ed.digests[:0]}
	}
	a.used = 0
	if len(a.edits) > maxKeptEdits {
		a.edits = append([]*edit(nil), a.edits[:maxKeptEdits]...)
	}
	if cap(a.run.edits) > maxKeptEdits {
		a.run.edits, a.run.changes = nil, nil
	}
	a.run.cmd, a.run.prepared, a.run.byDoc, a.run.res, a.run.claims = nil, nil, nil, nil, nil
	a.run.kv, a.run.behind = nil, nil
}

// command carries out one command. Its error is the command's answer; the
// batch is then as it was.
func (a *applier) command(c *osier.Command, prep []prepared) (res *osier.Result, replayed bool, err error) {
	if len(c.Ops) == 1 {
		switch c.Ops[0].Kind {
		case osier.OpCreateDB:
			return a.createDB(c)
		case osier.OpDropDB:
			return a.dropDB(c)
		case osier.OpEnforceView:
			return a.enforceView(c)
		case osier.OpDropView:
			return a.releaseView(c)
		}
	}
	db := a.database(c.DB)
	if db == nil {
		return nil, false, &osier.Error{Kind: osier.KindNotFound, Op: "change", DB: c.DB}
	}
	if c.Session != "" {
		res, err, found := a.remembered(db, c)
		if found || err != nil {
			return res, true, err
		}
	}
	if err := a.beforeKV(db, c); err != nil {
		return nil, false, err
	}
	return a.carryOut(db, c, prep)
}

// carryOut carries out a command whose database is found, and that is new.
func (a *applier) carryOut(db *database, c *osier.Command, prep []prepared) (res *osier.Result, replayed bool, err error) {
	r := a.newRun(db, c, prep)
	err = r.carryOut()
	defer a.recycle()
	var own *osier.Error
	var rows *needRows
	if errors.As(err, &rows) {
		return nil, false, rows
	}
	if err != nil && !errors.As(err, &own) {
		return nil, false, a.e.storeError("change", err)
	}
	if own != nil && !isAnswer(own.Kind) {
		return nil, false, own
	}
	if err == nil {
		if err = r.flush(); err != nil {
			// The batch may be half written: the group must not be committed.
			return nil, false, &brokenBatch{err}
		}
	} else if c.Session == "" {
		return nil, false, own
	}
	if c.Session != "" {
		if own != nil {
			r.state = db.state
		}
		if err := r.remember(own); err != nil {
			return nil, false, &brokenBatch{err}
		}
	}
	r.adopt(own == nil)
	if own != nil {
		return nil, false, own
	}
	return r.res, false, nil // recycle comes after this
}

// brokenBatch ends a whole group: a command failed after it had begun to write.
type brokenBatch struct{ err error }

func (b *brokenBatch) Error() string { return b.err.Error() }
func (b *brokenBatch) Unwrap() error { return b.err }

// isAnswer tells a command's own outcome, the same on every replica, from a
// failure of this node.
func isAnswer(k osier.Kind) bool {
	switch k {
	case osier.KindInvalid, osier.KindNotFound, osier.KindDeleted, osier.KindConflict, osier.KindExists, osier.KindTooLarge, osier.KindUnsupported, osier.KindNotUnique:
		return true
	}
	return false
}

// database finds a database as this group sees it.
func (a *applier) database(name string) *database {
	for _, db := range slices.Backward(a.created) {
		if db.name == name && !slices.Contains(a.dropped, db) {
			return db
		}
	}
	if db := (*a.e.dbs.Load())[name]; db != nil && !slices.Contains(a.dropped, db) {
		return db
	}
	return nil
}

// touch notes that a database's counters moved.
func (a *applier) touch(db *database) {
	if !slices.Contains(a.touched, db) {
		a.touched = append(a.touched, db)
	}
}

// finish writes the counters that the group moved, once each.
func (a *applier) finish() error {
	if err := a.finishJournals(); err != nil {
		return err
	}
	for _, w := range a.views {
		if err := w.finish(); err != nil {
			return err
		}
	}
	if err := a.finishKV(); err != nil {
		return err
	}
	for _, db := range a.touched {
		a.key = prefix(a.key[:0], db.num, 0, spaceState)
		a.buf = db.state.append(a.buf[:0])
		if err := a.b.Set(a.key, a.buf); err != nil {
			return err
		}
		for name, c := range db.colls {
			if !c.dirty {
				continue
			}
			c.dirty = false
			a.e.splits.note(db.num, c)
			a.key = append(prefix(a.key[:0], db.num, 0, spaceCollection), name...)
			a.buf = c.append(a.buf[:0])
			if err := a.b.Set(a.key, a.buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// run is one command being carried out. Until flush it only reads.
type run struct {
	a        *applier
	db       *database
	cmd      *osier.Command
	prepared []prepared
	state    dbState // as it will be

	colls   map[string]*collState // collections as they will be; nil: dropped
	edits   []*edit
	byDoc   map[editKey]*edit // used beyond a few edits
	changes []osier.TransactionChange
	staged  []osier.BlobID    // taken by this command
	claims  map[*index]claims // of unique views
	res     *osier.Result
	kv      *kv.Space // nil: not needed so far
	kvDrops []string
	behind  []byte // what an OpKVBehind holds

	journals []*journalEdit
	messages []*osier.Op // to be sent after the commit
}

type editKey struct {
	coll uint32
	id   string
}

// carryOut judges the command and works out what it changes.
func (r *run) carryOut() error {
	c := r.cmd
	r.state.millis = c.Sealed.Time.UnixMilli()
	if err := r.checkReads(); err != nil {
		return err
	}
	first := r.state.lastSeq
	results := make([]osier.OpResult, len(c.Ops))
	r.changes = slices.Grow(r.changes, len(c.Ops))
	for i := range c.Ops {
		colls := r.state.nextColl
		_, dropped := r.colls[c.Ops[i].Collection] // if it is made now
		res, err := r.judged(i)
		var own *osier.Error
		if err != nil && (!errors.As(err, &own) || !isAnswer(own.Kind)) {
			return err
		}
		if own != nil {
			if !c.PerDocument {
				return own
			}
			if r.state.nextColl > colls {
				// Nothing was written that would make the collection.
				r.forget(r.colls[c.Ops[i].Collection])
				if delete(r.colls, c.Ops[i].Collection); dropped {
					r.colls[c.Ops[i].Collection] = nil
				}
				r.state.nextColl = colls
			}
			res = osier.OpResult{ID: c.Ops[i].ID, Err: own}
		}
		results[i] = res
	}
	if err := r.checkUnique(); err != nil {
		return err
	}
	r.res = &osier.Result{First: first, Last: r.state.lastSeq, Time: c.Sealed.Time, Ops: results}
	if first < r.state.lastSeq {
		r.res.First++
	}
	return nil
}

func (r *run) operation(i int) (osier.OpResult, error) {
	op := &r.cmd.Ops[i]
	if op.Kind >= osier.OpKV && op.Kind <= osier.OpKVDrop {
		return r.operateKV(i)
	}
	switch {
	case isJournalOp(op.Kind):
		return r.journalOp(op)
	case op.Kind == osier.OpPublish:
		return r.publishOp(op)
	}
	if err := checkOp(r.db.name, op); err != nil {
		return osier.OpResult{}, err
	}
	switch op.Kind {
	case osier.OpPut, osier.OpGraft:
		ed, err := r.edit(op)
		if err != nil {
			return osier.OpResult{}, err
		}
		if op.Kind == osier.OpPut {
			return ed.put(r, op, r.prep(i))
		}
		return ed.graft(r, op, r.prep(i))
	case osier.OpPurge, osier.OpPrune:
		return r.remove(op)
	case osier.OpCollection:
		return osier.OpResult{}, r.configure(op)
	case osier.OpDropCollection:
		return osier.OpResult{}, r.dropCollection(op)
	}
	return osier.OpResult{}, r.fail(op, osier.KindUnsupported, "change", "this version does not know the kind of operation")
}

// prep is what was prepared for an operation; it may be nothing.
func (r *run) prep(i int) *prepared {
	if i < len(r.prepared) {
		return &r.prepared[i]
	}
	return &prepared{}
}

func (r *run) fail(op *osier.Op, kind osier.Kind, step, text string) *osier.Error {
	e := &osier.Error{Kind: kind, Op: step, DB: r.db.name, Collection: op.Collection, ID: op.ID.String()}
	if text != "" {
		e.Err = errors.New(text)
	}
	return e
}

// nextSeq takes the next sequence for a change of a document.
func (r *run) nextSeq(ch osier.TransactionChange) osier.Seq {
	r.state.lastSeq++
	ch.Seq = r.state.lastSeq
	r.changes = append(r.changes, ch)
	return ch.Seq
}

// collection returns the working copy of a collection, made if create is set.
func (r *run) collection(name string, create *osier.Settings) *collState {
	if c, ok := r.colls[name]; ok && (c != nil || create == nil) {
		return c
	}
	old := r.db.colls[name]
	if _, dropped := r.colls[name]; dropped {
		old = nil
	}
	if old == nil && create == nil {
		return nil
	}
	if r.colls == nil {
		r.colls = make(map[string]*collState, 1)
	}
	c := &collState{}
	if old != nil {
		*c = *old
	} else {
		r.state.nextColl++
		c.num, c.settings, c.reshaped = r.state.nextColl, *create, true
	}
	r.colls[name] = c
	return c
}

func (r *run) configure(op *osier.Op) error {
	c := r.collection(op.Collection, op.Settings)
	if c.settings != *op.Settings {
		c.settings, c.reshaped = *op.Settings, true
	}
	c.dirty = true
	return nil
}

func (r *run) dropCollection(op *osier.Op) error {
	c := r.collection(op.Collection, nil)
	if c == nil {
		return r.fail(op, osier.KindNotFound, "drop collection", "")
	}
	r.colls[op.Collection] = nil
	r.forget(c)
	maps.DeleteFunc(r.claims, func(ix *index, _ claims) bool { return ix.coll == c.num })
	r.state.drops++
	return nil
}

// forget drops what the command has worked out for a collection.
func (r *run) forget(c *collState) {
	r.edits = slices.DeleteFunc(r.edits, func(ed *edit) bool { return ed.coll == c })
	maps.DeleteFunc(r.byDoc, func(k editKey, _ *edit) bool { return k.coll == c.num })
}

// flush writes all that the command changes into the batch.
func (r *run) flush() error {
	b, db := r.a.b, r.db.num
	for name, c := range r.colls {
		old := r.db.colls[name]
		if old == nil || c != nil && c.num == old.num {
			continue
		}
		// Dropped, or dropped and made again.
		r.a.fenced = append(r.a.fenced, r.db)
		r.a.forgetViews(r.db, func(ix *index) bool { return ix.coll == old.num })
		if err := r.dropBlobs(old.num); err != nil {
			return err
		}
		lower, upper := collectionRange(db, old.num)
		if err := b.DeleteRange(lower, upper); err != nil {
			return err
		}
		if err := b.Delete(collectionKey(db, name)); err != nil {
			return err
		}
	}
	for _, ed := range r.edits {
		if err := errors.Join(ed.flush(r), r.flushViews(ed)); err != nil {
			return err
		}
	}
	if err := r.flushKV(); err != nil {
		return err
	}
	if err := r.flushJournals(); err != nil {
		return err
	}
	if len(r.changes) == 0 {
		return nil
	}
	if err := b.Set(txKey(db, r.res.First), r.appendTx(r.a.buf[:0])); err != nil {
		return err
	}
	return r.trimTx()
}

// txKeep is how many sequences' transactions are listed; older ones are
// forgotten, a stretch at a time.
const (
	txKeep    = 100_000
	txStretch = 4096
)

func (r *run) trimTx() error {
	before, after := r.db.state.lastSeq/txStretch, r.state.lastSeq/txStretch
	if before == after || r.state.lastSeq < txKeep+txStretch {
		return nil
	}
	return r.a.b.DeleteRange(txKey(r.db.num, 0), txKey(r.db.num, after*txStretch-txKeep))
}

// adopt makes the command's state the database's. all is false when only the
// remembered answer changed.
func (r *run) adopt(all bool) {
	db := r.db
	db.state = r.state
	r.a.touch(db)
	if !all {
		return
	}
	r.adoptJournals()
	r.adoptMessages()
	reshaped := false
	for name, c := range r.colls {
		if c == nil {
			delete(db.colls, name)
			reshaped = true
			continue
		}
		reshaped = reshaped || c.reshaped
		c.dirty = c.dirty || c.reshaped
		c.reshaped = false
		db.colls[name] = c
	}
	if reshaped {
		r.a.shape = append(r.a.shape, db)
		r.a.directory = true
	}
}

// checkReads judges what a transaction has seen.
func (r *run) checkReads() error {
	for i := range r.cmd.Reads {
		rd := &r.cmd.Reads[i]
		changed, err := r.changedSince(rd, r.cmd.Snapshot)
		if err != nil {
			return err
		}
		if changed {
			e := &osier.Error{Kind: osier.KindConflict, Op: "commit", DB: r.db.name, Collection: rd.Collection, ID: rd.ID.String()}
			if rd.KV != nil {
				e.Collection, e.ID = "kv:"+rd.KV.Namespace, rd.KV.Key
			}
			e.Err = errors.New("what the transaction read has changed")
			return e
		}
	}
	return nil
}

// changedSince looks a document up, and goes through the few changes since the
// snapshot for a range, however large that is.
func (r *run) changedSince(rd *osier.Read, snapshot osier.Seq) (bool, error) {
	if rd.KV != nil {
		return r.kvChanged(rd.KV)
	}
	if name, ok := osier.JournalName(rd.Collection); ok {
		return r.journalChanged(name, rd), nil
	}
	if r.db.state.purged > snapshot || r.db.state.drops != r.cmd.Drops {
		return true, nil // what was purged or dropped has left nothing to be compared
	}
	if rd.Collection == "" {
		return r.db.state.lastSeq > snapshot, nil
	}
	c := r.db.colls[rd.Collection]
	if c == nil {
		return false, nil // it was not there then either
	}
	if !rd.ID.IsZero() {
		var d document
		found, closer, err := r.a.loadDoc(r.db.num, c.num, rd.ID, &d)
		if err != nil || !found {
			return false, err
		}
		defer closer.Close()
		return latest(&d) > snapshot, nil
	}
	if c.lastSeq <= snapshot {
		return false, nil
	}
	it, err := r.a.b.NewIter(seqKey(nil, r.db.num, c.num, snapshot+1), seqKey(nil, r.db.num, c.num, ^osier.Seq(0)))
	if err != nil {
		return false, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		s, err := decodeSeqRecord(it.Value())
		if err != nil {
			return false, err
		}
		if k := s.id.Key(); k >= rd.Start && (rd.End == "" || k < rd.End) {
			return true, nil
		}
	}
	return false, it.Error()
}

// latest is the sequence at which a document stands in the feed.
func latest(d *document) osier.Seq {
	seq := d.winner.seq
	for i := range d.losers {
		seq = max(seq, d.losers[i].seq)
	}
	return seq
}

// appendTx writes the record of an executed transaction.
func (r *run) appendTx(dst []byte) []byte {
	c := r.cmd
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, uint64(r.res.Last))
	dst = binary.AppendUvarint(dst, uint64(c.Sealed.Time.UnixMilli()))
	dst = appendText(dst, c.Session)
	dst = binary.AppendUvarint(dst, c.Number)
	dst = binary.AppendUvarint(dst, uint64(len(r.changes)))
	last := ""
	for i := range r.changes {
		ch := &r.changes[i]
		var f byte
		if ch.Deleted {
			f = flagDeleted
		}
		name := ch.Collection
		if name == last {
			name = "" // as the one before; collection names are never empty
		}
		last = ch.Collection
		dst = append(dst, f)
		dst = appendText(dst, name)
		dst = appendRev(dst, ch.Rev)
		dst = appendText(dst, ch.ID.Key())
	}
	r.a.buf = dst
	return dst
}

func decodeTx(first osier.Seq, b []byte) (*osier.Transaction, error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	tx := &osier.Transaction{First: first, Last: osier.Seq(r.uvarint()), Time: at(int64(r.uvarint()))}
	tx.Session, tx.Number = r.text(), r.uvarint()
	n := r.count(leastLeaf)
	if r.bad {
		return nil, errRecord
	}
	tx.Changes = make([]osier.TransactionChange, n)
	last := ""
	for i := range tx.Changes {
		ch := &tx.Changes[i]
		ch.Deleted = r.byte()&flagDeleted != 0
		if name := r.text(); name != "" {
			last = name
		}
		ch.Collection, ch.Rev = last, r.rev()
		ch.ID = osier.TrustedID(r.bytes(r.uvarint()))
		ch.Seq = first + osier.Seq(i)
	}
	if r.bad || len(r.b) > 0 {
		return nil, errRecord
	}
	return tx, nil
}

// createDB and dropDB change the directory.
func (a *applier) createDB(c *osier.Command) (*osier.Result, bool, error) {
	if a.database(c.DB) != nil {
		return nil, false, &osier.Error{Kind: osier.KindExists, Op: "create database", DB: c.DB}
	}
	num := uint32(1)
	v, closer, err := a.b.Get([]byte{keyNextDB})
	switch {
	case err == nil:
		num = binary.BigEndian.Uint32(bytes.Clone(v))
		closer.Close()
	case !errors.Is(err, store.ErrNotFound):
		return nil, false, a.e.storeError("create database", err)
	}
	db := &database{name: c.DB, num: num, uuid: c.Sealed.UUID, millis: c.Sealed.Time.UnixMilli(), colls: map[string]*collState{}}
	db.state.millis = db.millis
	db.views.init()
	db.showColls()
	dir := dirRecord{num, db.uuid, db.millis}
	if err := errors.Join(
		a.b.Set([]byte{keyNextDB}, binary.BigEndian.AppendUint32(nil, num+1)),
		a.b.Set(directoryKey(c.DB), dir.append(nil)),
	); err != nil {
		return nil, false, &brokenBatch{err}
	}
	a.created = append(a.created, db)
	a.directory = true
	a.touch(db)
	return &osier.Result{Time: c.Sealed.Time, Ops: make([]osier.OpResult, 1)}, false, nil
}

func (a *applier) dropDB(c *osier.Command) (*osier.Result, bool, error) {
	db := a.database(c.DB)
	if db == nil {
		return nil, false, &osier.Error{Kind: osier.KindNotFound, Op: "drop database", DB: c.DB}
	}
	a.dropKV(db)
	lower, upper := databaseRange(db.num)
	if err := errors.Join(a.b.Delete(directoryKey(c.DB)), a.b.DeleteRange(lower, upper)); err != nil {
		return nil, false, &brokenBatch{err}
	}
	a.touched = slices.DeleteFunc(a.touched, func(t *database) bool { return t == db })
	a.dropped = append(a.dropped, db)
	a.fenced = append(a.fenced, db)
	a.forgetViews(db, func(*index) bool { return true })
	a.directory = true
	return &osier.Result{First: db.state.lastSeq, Last: db.state.lastSeq, Time: c.Sealed.Time, Ops: make([]osier.OpResult, 1)}, false, nil
}

// publishDirectory shows readers which databases and collections there are.
func (e *Engine) publishDirectory(a *applier) {
	for _, db := range a.shape {
		db.showColls()
		e.tendShape(db)
	}
	if len(a.created) == 0 && len(a.dropped) == 0 {
		return
	}
	dbs := maps.Clone(*e.dbs.Load())
	for _, db := range a.created {
		dbs[db.name] = db
	}
	for _, db := range a.dropped {
		if dbs[db.name] == db {
			delete(dbs, db.name)
		}
		db.gone.Store(true)
		db.announce(&db.appliedWake)
		db.announce(&db.durableWake)
		e.endHub(db, &osier.Error{Kind: osier.KindNotFound, Op: "use topic", DB: db.name})
		e.reclaim(db.num)
	}
	e.dbs.Store(&dbs)
}
