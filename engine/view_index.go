package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/reduce"
	"github.com/osierdb/osier/internal/store"
)

// index is one index of a view: its rows, back-references and tree. A view whose
// definition changes has two for a while.
type index struct {
	e    *Engine
	db   *database
	num  uint32
	coll uint32 // the collection's number
	name viewName
	id   [16]byte // of the definition it was made for
	kind viewKind
	seed uint64 // of the tree

	rowLow, rowHigh []byte // bound its rows

	def atomic.Pointer[viewDef]  // with the same id; policy and code may be replaced
	at  atomic.Pointer[progress] // how far it has come; written by who has the turn
	// enforced: apply keeps it, and nobody else writes to it.
	enforced atomic.Bool
	// current is a sequence of the database at which the index was up to date.
	current atomic.Uint64
	// built: it waits, with its turn taken, to be put in force.
	built atomic.Bool
	// judged is the sequence up to which a unique view that waits to be put in force
	// is known to have no key of two rows. It goes with the turn.
	judged osier.Seq

	turn chan struct{} // holds a token while somebody updates it
	gone chan struct{} // closed when it is dropped
	once sync.Once     // closes gone

	mu    sync.Mutex // guards the one below
	build *build     // under way
}

type viewName struct{ coll, name string }

// viewSet is a database's views.
type viewSet struct {
	// sync is held while definitions are read and indexes made or dropped. Lock
	// order: sync, then mu.
	sync sync.Mutex

	mu    sync.Mutex // guards all below
	slots map[viewName]*viewSlot
	code  map[viewName]*viewDef // declared by this program
	defs  uint64                // the change of the definitions that slots reflect
	next  uint32                // the number that the next index gets
}

// viewSlot is what a name stands for.
type viewSlot struct {
	def      *viewDef // as wanted; nil: only an index is left, of code not declared
	wrong    string   // why the definition makes no view
	ready    *index   // answers
	building *index
	kept     bool // a keeper looks after it
}

var (
	errNoView     = errors.New("there is no such view")
	errViewGone   = errors.New("the view was dropped or replaced meanwhile")
	errUndeclared = errors.New("the view needs its function: declare it with osier.Schema in this program")
)

// newIndex makes what is kept of an index in memory.
func (e *Engine) newIndex(db *database, num, coll uint32, def *viewDef, p *progress) *index {
	ix := &index{
		e: e, db: db, num: num, coll: coll, name: viewName{def.collection, def.name}, id: def.id, kind: def.kind,
		seed: binary.LittleEndian.Uint64(db.uuid[:]) ^ uint64(num)*0x9E3779B97F4A7C15,
		turn: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	ix.rowLow, ix.rowHigh = ix.bounds("", "")
	ix.def.Store(def)
	ix.at.Store(p)
	return ix
}

func (vs *viewSet) init() {
	vs.slots, vs.code, vs.next = map[viewName]*viewSlot{}, map[viewName]*viewDef{}, 1
}

// tree is the index's tree, with the reduce that its definition has now.
func (ix *index) tree() reduce.Tree {
	return reduce.Tree{Seed: ix.seed, Func: ix.def.Load().function()}
}

// loadViews reads the indexes of a database when the store is opened, and drops
// those whose collection is gone.
func (e *Engine) loadViews(db *database) error {
	vs := &db.views
	vs.init()
	nums := map[uint32]bool{}
	for _, c := range db.colls {
		nums[c.num] = true
	}
	if c := db.colls[osier.ViewsCollection]; c != nil {
		db.defs.Store(uint64(c.lastSeq))
	}
	var left []uint32 // numbers whose collection is gone
	err := scanPrefix(e.store, prefix(nil, db.num, 0, spaceView), func(tail, value []byte) error {
		if len(tail) != 4 {
			return errRecord
		}
		num := binary.BigEndian.Uint32(tail)
		vs.next = max(vs.next, num+1)
		rec, err := decodeViewRecord(value)
		if err != nil {
			return &osier.Error{Kind: osier.KindCorrupt, Op: "read views", DB: db.name, Err: err}
		}
		if !nums[rec.coll] {
			left = append(left, num)
			return nil
		}
		return e.loadIndex(db, num, &rec)
	})
	if err != nil || e.opts.ReadOnly || len(left) == 0 {
		return err
	}
	b := e.store.NewWriteBatch()
	defer b.Close()
	for _, num := range left {
		if err := b.Delete(viewKey(db.num, num)); err != nil {
			return err
		}
	}
	_, err = e.store.Apply(b, store.Relaxed)
	return err
}

func (e *Engine) loadIndex(db *database, num uint32, rec *viewRecord) error {
	def := &viewDef{kind: rec.kind, collection: rec.collection, name: rec.name, policy: rec.policy, id: rec.id, source: rec.source, reduceName: rec.reduceName}
	if rec.kind != viewGo {
		// A definition that a newer program wrote, or that this one no longer
		// takes, is as one of code that is not declared.
		if d, err := parseDefinition(rec.name, rec.source); err == nil && d.id == rec.id {
			def = d
		}
	}
	p, err := readProgress(e.store, db.num, rec.coll, num)
	if err != nil {
		return err
	}
	ix := e.newIndex(db, num, rec.coll, def, p)
	if rec.enforced {
		db.keepEager(ix)
	}
	slot := db.views.slot(ix.name)
	switch {
	case p.state != osier.ViewReady:
		slot.building = ix
	case slot.ready != nil:
		// It has just replaced the other, which is dropped when the view is used.
		slot.ready, slot.building = ix, slot.ready
	default:
		slot.ready = ix
	}
	return nil
}

// readProgress reads how far an index has come; nothing yet is the beginning.
func readProgress(src source, db, coll, num uint32) (*progress, error) {
	b, closer, err := src.Get(append(viewSpace(nil, db, coll, spaceBuild, num), buildProgress))
	if errors.Is(err, store.ErrNotFound) {
		return &progress{state: osier.ViewBuilding}, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	p, err := decodeProgress(b)
	return &p, err
}

// slot returns the slot of a name, made if need be. The caller holds mu, or is
// alone.
func (vs *viewSet) slot(n viewName) *viewSlot {
	s := vs.slots[n]
	if s == nil {
		s = &viewSlot{}
		vs.slots[n] = s
	}
	return s
}

// noteDefinitions notes the last change of the definitions. It is called under
// queue.order, or alone.
func (e *Engine) noteDefinitions(db *database) {
	seq := uint64(0)
	if c := db.colls[osier.ViewsCollection]; c != nil {
		seq = uint64(c.lastSeq)
	}
	if db.defs.Swap(seq) != seq {
		e.tendSoon(db)
	}
}

// tendSoon looks after a database's views in the background.
func (e *Engine) tendSoon(db *database) {
	if !e.opts.ReadOnly {
		e.spawn(func() { e.tendViews(db) })
	}
}

// spawn runs fn as a goroutine of the engine's, unless it is closing.
func (e *Engine) spawn(fn func()) bool {
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	if e.queue.closed {
		return false
	}
	e.background.Go(fn)
	return true
}

// fenceDrops keeps derived records from being written while what they are
// derived from is dropped.
func (a *applier) fenceDrops() (release func()) {
	seen := map[*database]bool{}
	for _, db := range a.fenced {
		if !seen[db] {
			seen[db] = true
			db.fence.Lock()
		}
	}
	return func() {
		for db := range seen {
			db.fence.Unlock()
		}
	}
}

// write applies a batch of an index's records, beside the order: nobody else
// writes them. It fails with errViewGone once the index, its collection or its
// database is dropped.
func (ix *index) write(b *store.Batch) error {
	ix.db.fence.RLock()
	defer ix.db.fence.RUnlock()
	if ix.isGone() || ix.db.gone.Load() || (*ix.db.visible.Load())[ix.name.coll].num != ix.coll {
		return errViewGone
	}
	_, err := ix.e.store.Apply(b, store.Relaxed)
	return err
}

func (ix *index) isGone() bool {
	select {
	case <-ix.gone:
		return true
	default:
		return false
	}
}

// take waits for the right to update the index.
func (ix *index) take(ctx context.Context) error {
	select {
	case ix.turn <- struct{}{}:
		if ix.isGone() {
			<-ix.turn
			return errViewGone
		}
		return nil
	case <-ctx.Done():
		return &osier.Error{Kind: osier.KindCanceled, Op: "update view", Err: ctx.Err()}
	case <-ix.gone:
		return errViewGone
	case <-ix.e.closing:
		return &osier.Error{Kind: osier.KindClosed, Op: "update view"}
	}
}

func (ix *index) leave() { <-ix.turn }

// record is the index's identity as it is stored.
func (ix *index) record() []byte {
	def := ix.def.Load()
	r := viewRecord{kind: ix.kind, policy: def.policy, enforced: ix.enforced.Load(), id: ix.id, coll: ix.coll,
		collection: ix.name.coll, name: ix.name.name, reduceName: def.reduceName, source: def.source}
	return r.append(nil)
}

// progressKey is where the index's progress is.
func (ix *index) progressKey(dst []byte) []byte {
	return append(viewSpace(dst, ix.db.num, ix.coll, spaceBuild, ix.num), buildProgress)
}

// erase adds the index's end to a batch.
func (ix *index) erase(b *store.Batch) error {
	if err := b.Delete(viewKey(ix.db.num, ix.num)); err != nil {
		return err
	}
	for _, r := range viewRanges(ix.db.num, ix.coll, ix.num) {
		if err := b.DeleteRange(r[0], r[1]); err != nil {
			return err
		}
	}
	return nil
}

// drop ends an index: whoever updates it stops, and its records go. The caller
// holds views.sync.
func (ix *index) drop() error {
	if ix.enforced.Load() {
		if err := ix.e.releaseIndex(ix); err != nil {
			return err
		}
	}
	ix.once.Do(func() { close(ix.gone) })
	ix.turn <- struct{}{} // who has it leaves soon: builds look at gone
	defer ix.leave()
	if ix.enforced.Load() { // it was put in force meanwhile
		if err := ix.e.releaseIndex(ix); err != nil {
			return err
		}
	}
	ix.db.fence.RLock()
	defer ix.db.fence.RUnlock()
	if ix.db.gone.Load() {
		return nil
	}
	b := ix.e.store.NewWriteBatch()
	defer b.Close()
	if err := ix.erase(b); err != nil {
		return err
	}
	if _, err := ix.e.store.Apply(b, store.Relaxed); err != nil {
		return err
	}
	ix.reclaim()
	return nil
}

// releaseIndex ends the keeping of an index, in the order.
func (e *Engine) releaseIndex(ix *index) error {
	return e.submit(e.ctx, &request{level: store.Relaxed, fill: func(a *applier) error {
		if !ix.enforced.Load() || !slices.Contains(ix.db.eagerViews(ix.name.coll, ix.coll), ix) {
			return nil
		}
		return a.release(ix, ix.db.state.lastSeq)
	}}, 0)
}

// reclaim gives a dropped index's space back, in the background.
func (ix *index) reclaim() {
	if ix.at.Load().rows < reclaimRows {
		return // it comes back with the next compaction of its neighbours
	}
	ix.e.spawn(func() {
		for _, r := range viewRanges(ix.db.num, ix.coll, ix.num) {
			if err := ix.e.store.Compact(ix.e.ctx, r[0], r[1]); err != nil {
				return
			}
		}
	})
}

// reclaimRows is from how many rows on a dropped index's space is worth a
// compaction of its own.
const reclaimRows = 10_000

// findView returns the index that answers for a view, nil if there is none yet,
// and the one being built, if any.
func (e *Engine) findView(db *database, n viewName) (ready, building *index, err error) {
	vs := &db.views
	c, known := (*db.visible.Load())[n.coll]
	vs.mu.Lock()
	s := vs.slots[n]
	if vs.defs == db.defs.Load() && s != nil && s.settled(c.num) {
		ready, building = s.ready, s.building
		vs.mu.Unlock()
		return ready, building, nil
	}
	vs.mu.Unlock()
	if e.opts.ReadOnly {
		return e.findReadOnly(db, n, s)
	}
	vs.sync.Lock()
	defer vs.sync.Unlock()
	if err := e.readDefinitions(db); err != nil {
		return nil, nil, err
	}
	vs.mu.Lock()
	s = vs.slots[n]
	vs.mu.Unlock()
	switch {
	case s == nil:
		return nil, nil, viewError(osier.KindNotFound, db, n, errNoView)
	case s.wrong != "":
		return nil, nil, viewError(osier.KindInvalid, db, n, errors.New(s.wrong))
	case !known:
		return nil, nil, nil
	}
	if err := e.settleView(db, s, c.num); err != nil {
		return nil, nil, err
	}
	if s.ready == nil && s.building == nil {
		return nil, nil, viewError(osier.KindUnsupported, db, n, errUndeclared)
	}
	return s.ready, s.building, nil
}

// findReadOnly finds what there is in a store that takes no new indexes.
func (e *Engine) findReadOnly(db *database, n viewName, s *viewSlot) (ready, building *index, err error) {
	if s == nil || s.ready == nil {
		return nil, nil, viewError(osier.KindReadOnly, db, n, errors.New("the view has no index, and the store was opened read-only"))
	}
	return s.ready, nil, nil
}

func viewError(kind osier.Kind, db *database, n viewName, err error) *osier.Error {
	return &osier.Error{Kind: kind, Op: "view " + n.name, DB: db.name, Collection: n.coll, Err: err}
}

// settled tells whether the slot's indexes are those of its definition and of
// the collection that there is.
func (s *viewSlot) settled(coll uint32) bool {
	fits := func(ix *index) bool { return ix == nil || ix.coll == coll }
	if s.def == nil || s.wrong != "" || !fits(s.ready) || !fits(s.building) {
		return false
	}
	newest := s.building
	if newest == nil {
		newest = s.ready
	}
	return newest != nil && newest.def.Load() == s.def
}

// settleView makes the slot's indexes those of its definition. The caller holds
// views.sync; readers see the slot under mu.
func (e *Engine) settleView(db *database, s *viewSlot, coll uint32) error {
	vs := &db.views
	set := func(ready, building *index) {
		vs.mu.Lock()
		s.ready, s.building = ready, building
		vs.mu.Unlock()
	}
	if s.ready != nil && s.ready.coll != coll || s.building != nil && s.building.coll != coll {
		// Of a collection that was dropped: its records went with it.
		for _, ix := range []*index{s.ready, s.building} {
			if ix != nil && ix.coll != coll {
				if err := ix.drop(); err != nil {
					return err
				}
			}
		}
		ready, building := s.ready, s.building
		if ready != nil && ready.coll != coll {
			ready = nil
		}
		if building != nil && building.coll != coll {
			building = nil
		}
		set(ready, building)
	}
	if s.def == nil || s.settled(coll) {
		return nil
	}
	for _, ix := range []*index{s.building, s.ready} {
		if ix == nil {
			continue
		}
		if ix.id == s.def.id && ix.kind == s.def.kind && ix.adopts(s.def) {
			if err := ix.adopt(s.def); err != nil {
				return err
			}
			if ix == s.ready && s.building != nil {
				old := s.building
				set(s.ready, nil)
				return old.drop()
			}
			return nil
		}
	}
	old := s.building
	ix, err := e.createIndex(db, s.def, coll)
	if err != nil {
		return err
	}
	set(s.ready, ix)
	if old != nil {
		return old.drop()
	}
	return nil
}

// adopts tells whether an index of the same rows serves a definition as it is:
// one that becomes eager or unique, or ceases to be, is built anew.
func (ix *index) adopts(def *viewDef) bool {
	old := ix.def.Load()
	return old.eager() == def.eager() && (!def.eager() || old.policy == def.policy) && old.reduceName == def.reduceName
}

// adopt gives the index a definition with other settings, or its function.
func (ix *index) adopt(def *viewDef) error {
	if err := ix.take(ix.e.ctx); err != nil {
		return err
	}
	defer ix.leave()
	ix.def.Store(def)
	b := ix.e.store.NewWriteBatch()
	defer b.Close()
	if err := b.Set(viewKey(ix.db.num, ix.num), ix.record()); err != nil {
		return err
	}
	return ix.write(b)
}

// createIndex begins an index. The caller holds views.sync.
func (e *Engine) createIndex(db *database, def *viewDef, coll uint32) (*index, error) {
	vs := &db.views
	vs.mu.Lock()
	num := vs.next
	vs.next++
	vs.mu.Unlock()
	ix := e.newIndex(db, num, coll, def, &progress{state: osier.ViewBuilding})
	b := e.store.NewWriteBatch()
	defer b.Close()
	if err := b.Set(viewKey(db.num, num), ix.record()); err != nil {
		return nil, err
	}
	if err := ix.write(b); err != nil {
		return nil, err
	}
	return ix, nil
}

// readDefinitions brings the slots to what the documents of the collection of
// definitions say, and this program. The caller holds views.sync.
func (e *Engine) readDefinitions(db *database) error {
	vs := &db.views
	seq := db.defs.Load()
	if vs.defs == seq {
		return nil
	}
	want := map[viewName]*viewDef{}
	wrong := map[viewName]string{}
	v := view{e: e, db: db, src: e.store, q: &osier.Query{Collection: osier.ViewsCollection, Parts: osier.WithBody}}
	err := v.scan(e.ctx, func(row osier.Row, _ error) bool {
		def, n, err := e.definitionOf(&row.Document)
		if err != nil {
			wrong[n] = err.Error()
			return true
		}
		want[n] = def
		return true
	})
	if err != nil {
		return err
	}
	var drop []*index
	vs.mu.Lock()
	for n, s := range vs.slots {
		if vs.code[n] != nil || want[n] != nil || s.kind() == viewGo {
			continue
		}
		drop = append(drop, s.ready, s.building)
		delete(vs.slots, n)
	}
	for n, def := range want {
		if s := vs.slot(n); vs.code[n] == nil && (s.def == nil || !s.def.same(def)) {
			s.def, s.wrong = def, ""
		}
	}
	for n, text := range wrong {
		vs.slot(n).wrong = text
	}
	vs.defs = seq
	vs.mu.Unlock()
	for _, ix := range drop {
		if ix != nil {
			if err := ix.drop(); err != nil {
				return err
			}
		}
	}
	return nil
}

// definitionOf reads a document of the collection of definitions.
func (e *Engine) definitionOf(d *osier.Document) (*viewDef, viewName, error) {
	name := d.ID.String()
	n := viewName{name: name}
	codec := e.opts.Codecs[d.Codec]
	if codec == nil {
		return nil, n, fmt.Errorf("no codec for tag %d", d.Codec)
	}
	body, err := codec.AppendJSON(nil, d.Body)
	if err != nil {
		return nil, n, err
	}
	def, err := parseDefinition(name, body)
	if err != nil {
		return nil, n, err
	}
	n.coll = def.collection
	return def, n, nil
}

// kind is the kind of the view that a slot is or was for.
func (s *viewSlot) kind() viewKind {
	switch {
	case s.ready != nil:
		return s.ready.kind
	case s.building != nil:
		return s.building.kind
	case s.def != nil:
		return s.def.kind
	}
	return viewFields
}

// same tells whether two definitions ask for the same.
func (v *viewDef) same(o *viewDef) bool {
	return v.id == o.id && v.kind == o.kind && v.policy == o.policy && v.keep == o.keep && v.code == o.code
}

// bounds are the keys of the index's rows from lo up to but not including hi;
// empty ones are open.
func (ix *index) bounds(lo, hi string) (lower, upper []byte) {
	b := make([]byte, 0, 2*viewPrefixSize+len(lo)+len(hi)) // of both
	b = append(viewSpace(b, ix.db.num, ix.coll, spaceRow, ix.num), lo...)
	lower = b[:len(b):len(b)]
	if hi == "" {
		return lower, keys.PrefixEnd(lower[:viewPrefixSize])
	}
	return lower, append(append(b[len(b):], lower[:viewPrefixSize]...), hi...)
}
