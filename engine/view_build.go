package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/store"
)

// build is the making of an index from a snapshot: documents in the order of
// their ids become rows in parallel; a stretch's back-references are written,
// then its rows in their order, then the progress. So a build that a crash ends
// goes on where it stopped, and what the unfinished stretch has written is found
// by its back-references. In the end one pass over the rows makes the tree, and
// what changed meanwhile is taken in as in any update.
type build struct {
	done  chan struct{} // closed at its end
	err   error         // set before
	began time.Time
	first uint64 // documents that an earlier run had done
	docs  atomic.Uint64
	total atomic.Uint64
	rows  atomic.Uint64
}

// ensureBuilt starts the build of an index unless one is under way.
func (ix *index) ensureBuilt() *build {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.build != nil {
		select {
		case <-ix.build.done:
		default:
			return ix.build
		}
	}
	b := &build{done: make(chan struct{}), began: ix.e.now()}
	ix.build = b
	if !ix.e.spawn(func() {
		b.err = ix.e.runBuild(ix, b)
		close(b.done)
	}) {
		b.err = &osier.Error{Kind: osier.KindClosed, Op: "build view"}
		close(b.done)
	}
	return b
}

// awaitBuild waits for the build of an index.
func (ix *index) awaitBuild(ctx context.Context) error {
	b := ix.ensureBuilt()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return &osier.Error{Kind: osier.KindCanceled, Op: "wait for the build of view " + ix.name.name, Err: ctx.Err()}
	}
}

// runBuild builds an index and has it answer.
func (e *Engine) runBuild(ix *index, b *build) error {
	if p := ix.at.Load(); p.state == osier.ViewFailed {
		return viewError(osier.KindInvalid, ix.db, ix.name, errors.New(p.failure))
	}
	if !ix.def.Load().runs() {
		return viewError(osier.KindUnsupported, ix.db, ix.name, errUndeclared)
	}
	if err := ix.take(e.ctx); err != nil {
		return err
	}
	err := ix.build1(b)
	for err == nil {
		var last osier.Seq
		if last, err = ix.collectionSeq(e.store); err != nil || ix.at.Load().seq >= last {
			break
		}
		if ix.stopped() {
			err = errViewGone
			break
		}
		err = ix.step()
	}
	ix.leave()
	if err != nil {
		return e.storeError("build view", err)
	}
	return e.promote(ix)
}

func (ix *index) stopped() bool { return ix.isGone() || ix.e.ctx.Err() != nil }

// promote has a built index answer in the place of the one before.
func (e *Engine) promote(ix *index) error {
	if ix.def.Load().eager() && !ix.enforced.Load() {
		if err := e.enforce(ix); err != nil {
			return err
		}
	}
	vs := &ix.db.views
	vs.sync.Lock()
	defer vs.sync.Unlock()
	vs.mu.Lock()
	s := vs.slots[ix.name]
	if s == nil || s.building != ix {
		vs.mu.Unlock()
		if s != nil && s.ready == ix {
			return nil
		}
		return errViewGone
	}
	old := s.ready
	s.ready, s.building = ix, nil
	vs.mu.Unlock()
	if old != nil {
		return old.drop()
	}
	return nil
}

// buildRows bounds the rows of a stretch in bytes: they are sorted in memory.
const buildRows = 24 << 20

// build1 makes the rows and the tree. The caller has the turn.
func (ix *index) build1(b *build) error {
	p := *ix.at.Load()
	if p.state == osier.ViewReady {
		return nil
	}
	snap, err := ix.e.store.NewSnapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	if p.done == 0 && p.last == nil {
		if p.seq, err = ix.collectionSeq(snap); err != nil {
			return err
		}
	}
	if err := ix.undo(p.last); err != nil {
		return err
	}
	b.total.Store(ix.documents(snap))
	b.first = p.done
	b.docs.Store(p.done)
	s := &buildStretch{ix: ix, b: b, p: p, batch: ix.e.store.NewWriteBatch()}
	if b.total.Load()-p.done > chunkDocs {
		s.buf, s.rows = make([]byte, 0, buildRows/4), make([]sortedRow, 0, buildRows/256)
	}
	s.large = b.total.Load() >= p.done+uint64(cmp.Or(ix.e.opts.buildTableDocs, buildTableDocs))
	defer func() {
		s.batch.Close()
		_ = s.tables.close() // the build's own error counts
	}()
	if err := s.read(snap); err != nil {
		return err
	}
	if err := ix.plant(s); err != nil {
		return err
	}
	s.p.state, s.p.last, s.p.done = osier.ViewReady, nil, 0
	if ix.def.Load().eager() {
		s.p.state = osier.ViewBuilding // until it is in force
		s.p.last, s.p.done = []byte{0xFF}, b.docs.Load()
	}
	return s.progress()
}

// documents counts the collection's documents in a state.
func (ix *index) documents(src source) uint64 {
	b, closer, err := src.Get(collectionKey(ix.db.num, ix.name.coll))
	if err != nil {
		return 0
	}
	defer closer.Close()
	c, err := decodeCollState(b)
	if err != nil {
		return 0
	}
	return c.count + c.deleted
}

// undo takes back what an interrupted build wrote behind its progress.
func (ix *index) undo(last []byte) error {
	behind := func(space []byte) []byte {
		if last == nil {
			return space
		}
		return append(append(space[:len(space):len(space)], last...), 0)
	}
	refs := viewRanges(ix.db.num, ix.coll, ix.num)[1]
	for {
		n, err := ix.undoSome(behind(refs[0]), refs[1], len(refs[0]))
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	failures := append(viewSpace(nil, ix.db.num, ix.coll, spaceBuild, ix.num), buildFailure)
	b := ix.e.store.NewWriteBatch()
	defer b.Close()
	if err := b.DeleteRange(behind(failures), keys.PrefixEnd(failures)); err != nil {
		return err
	}
	return ix.write(b)
}

// undoSome takes back a batch of documents, and says how many.
func (ix *index) undoSome(lower, upper []byte, base int) (n int, err error) {
	it, err := ix.e.store.NewIter(lower, upper)
	if err != nil {
		return 0, err
	}
	defer it.Close()
	b := ix.e.store.NewWriteBatch()
	defer b.Close()
	var l rowList
	for ok := it.First(); ok && b.Len() < updateBytes; ok = it.Next() {
		id := osier.TrustedID(it.Key()[base:])
		if err := decodeBackref(it.Value(), &l); err != nil {
			return n, err
		}
		for i := range l.rows {
			key := appendRowKey(viewSpace(nil, ix.db.num, ix.coll, spaceRow, ix.num), l.key(i), id, l.rows[i].n)
			if err := b.Delete(key); err != nil {
				return n, err
			}
		}
		if err := b.Delete(it.Key()); err != nil {
			return n, err
		}
		n++
	}
	if err := it.Error(); err != nil || n == 0 {
		return n, err
	}
	return n, ix.write(b)
}

// chunk is some documents on their way through the pipeline.
type chunk struct {
	docs  []chunkDoc
	buf   []byte // of ids and records
	out   []chunkRows
	rows  []byte
	refs  []byte
	err   error
	ready chan struct{} // closed when out is there
}

type chunkDoc struct{ id, record []byte }

// chunkRows is what a document has become: its back-reference, and the rows as
// lengths in the chunk's buffers.
type chunkRows struct {
	id       []byte
	backref  []byte
	failure  string
	from, to int // of its rows in spans
}

// sortedRow is a row of a stretch: where its key and record are, and the first
// bytes of the key, by which most are told apart.
type sortedRow struct {
	head     uint64
	at       uint32
	key, rec uint32
}

const (
	chunkDocs  = 512
	chunkBytes = 1 << 20
)

// stretch collects rows until they are enough to be sorted and written.
type buildStretch struct {
	ix     *index
	b      *build
	p      progress
	batch  *store.Batch
	large  bool // records other than progress and failures go to tables
	tables buildTables
	buf    []byte
	rows   []sortedRow
	key    []byte
}

// read runs the documents behind the progress through the view's function, on
// all processors, and takes the rows in the order of the documents.
func (s *buildStretch) read(snap *store.Snapshot) error {
	workers := runtime.GOMAXPROCS(0)
	work := make(chan *chunk, workers)
	order := make(chan *chunk, 2*workers)
	spare := make(chan *chunk, 4*workers) // whose memory is used again
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c := range work {
				s.ix.mapChunk(c)
				close(c.ready)
			}
		})
	}
	wg.Go(func() {
		defer close(order)
		defer close(work)
		s.ix.readChunks(snap, s.p.last, spare, func(c *chunk) bool {
			select {
			case order <- c:
			case <-stop:
				return false
			}
			if c.err != nil {
				close(c.ready)
				return false
			}
			work <- c
			return true
		})
	})
	err := s.collect(order, spare)
	close(stop)
	for range order {
		// what was on its way
	}
	wg.Wait()
	if err != nil {
		return err
	}
	return s.flush()
}

// newChunk returns an empty chunk.
func newChunk(spare <-chan *chunk) *chunk {
	select {
	case c := <-spare:
		*c = chunk{docs: c.docs[:0], buf: c.buf[:0], out: c.out[:0], rows: c.rows[:0], refs: c.refs[:0], ready: make(chan struct{})}
		return c
	default:
	}
	return &chunk{
		docs: make([]chunkDoc, 0, chunkDocs), buf: make([]byte, 0, chunkDocs*256), out: make([]chunkRows, 0, chunkDocs),
		rows: make([]byte, 0, chunkDocs*64), refs: make([]byte, 0, chunkDocs*32), ready: make(chan struct{}),
	}
}

// readChunks reads the collection's documents after last.
func (ix *index) readChunks(snap *store.Snapshot, last []byte, spare <-chan *chunk, emit func(*chunk) bool) {
	lower, upper := collSpace(ix.db.num, ix.coll, spaceDoc)
	base := len(lower)
	if last != nil {
		lower = append(append(lower, last...), 0)
	}
	it, err := snap.NewIter(lower, upper)
	if err != nil {
		emit(&chunk{err: err, ready: make(chan struct{})})
		return
	}
	defer it.Close()
	for ok := it.First(); ok; {
		c := newChunk(spare)
		for ; ok && len(c.docs) < chunkDocs && len(c.buf) < chunkBytes; ok = it.Next() {
			from := len(c.buf)
			c.buf = append(c.buf, it.Key()[base:]...)
			mid := len(c.buf)
			c.buf = append(c.buf, it.Value()...)
			c.docs = append(c.docs, chunkDoc{c.buf[from:mid:mid], c.buf[mid:len(c.buf):len(c.buf)]})
		}
		if !emit(c) {
			return
		}
	}
	if err := it.Error(); err != nil {
		emit(&chunk{err: err, ready: make(chan struct{})})
	}
}

// mapChunk makes the rows of a chunk's documents.
func (ix *index) mapChunk(c *chunk) {
	m := ix.mapping()
	var list rowList
	var d document
	for i := range c.docs {
		id := osier.TrustedID(c.docs[i].id)
		if err := decodeDocument(c.docs[i].record, &d); err != nil {
			c.err = corrupt("read document", id, err)
			return
		}
		doc := mappedDocument(id, &d)
		failure := m.rows(&doc, &list)
		if failure == nil && len(list.rows) == 0 {
			continue
		}
		r := chunkRows{id: c.docs[i].id, from: len(c.rows)}
		if failure != nil {
			text := failure.Error()
			r.failure = text[:min(len(text), maxFailureText)]
		} else {
			at := len(c.refs)
			c.refs = appendBackref(c.refs, &list)
			r.backref = c.refs[at:len(c.refs):len(c.refs)]
		}
		for k := range list.rows {
			c.rows = binary.LittleEndian.AppendUint32(c.rows, uint32(len(list.key(k))+len(id.Key())+rowNumber))
			at := len(c.rows)
			c.rows = append(c.rows, 0, 0, 0, 0)
			c.rows = appendRowKey(c.rows, list.key(k), id, list.rows[k].n)
			from := len(c.rows)
			c.rows = appendRowValue(c.rows, id, list.value(k))
			binary.LittleEndian.PutUint32(c.rows[at:], uint32(len(c.rows)-from))
		}
		r.to = len(c.rows)
		c.out = append(c.out, r)
	}
}

// collect takes chunks in order, and gives them back when it has copied what it
// needs of them.
func (s *buildStretch) collect(order <-chan *chunk, spare chan<- *chunk) error {
	for c := range order {
		<-c.ready
		if c.err != nil {
			return c.err
		}
		if s.ix.stopped() {
			return errViewGone
		}
		for i := range c.out {
			if err := s.document(c, &c.out[i]); err != nil {
				return err
			}
		}
		last := c.docs[len(c.docs)-1].id
		s.p.last = append(s.p.last[:0], last...)
		s.p.done += uint64(len(c.docs))
		s.b.docs.Store(s.p.done)
		select {
		case spare <- c:
		default:
		}
		if len(s.buf) > buildRows {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// document writes what a document leads to but its rows, which are collected.
func (s *buildStretch) document(c *chunk, r *chunkRows) error {
	ix := s.ix
	if r.failure != "" {
		s.p.failed++
		s.key = append(viewSpace(s.key[:0], ix.db.num, ix.coll, spaceBuild, ix.num), buildFailure)
		return s.set(append(s.key, r.id...), []byte(r.failure))
	}
	s.key = viewSpace(s.key[:0], ix.db.num, ix.coll, spaceBackref, ix.num)
	s.key = append(s.key, r.id...)
	if err := s.record(&s.tables.refs, s.key, r.backref); err != nil {
		return err
	}
	for rows := c.rows[r.from:r.to]; len(rows) > 0; {
		key, rec := binary.LittleEndian.Uint32(rows), binary.LittleEndian.Uint32(rows[4:])
		row := sortedRow{at: uint32(len(s.buf)), key: key, rec: rec}
		s.buf = append(s.buf, rows[8:8+key+rec]...)
		row.head = headOf(s.buf[row.at : row.at+key])
		s.rows = append(s.rows, row)
		rows = rows[8+key+rec:]
	}
	return nil
}

// headOf is the first bytes of a key as a number that orders as they do.
func headOf(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// record adds a record to the table of its kind, or to the batch.
func (s *buildStretch) record(t **store.SortedTable, key, value []byte) error {
	if s.large {
		return s.ix.into(t, key, value)
	}
	return s.set(key, value)
}

// set adds a record to the batch, which is written when it is full.
func (s *buildStretch) set(key, value []byte) error {
	if err := s.batch.Set(key, value); err != nil {
		return err
	}
	if s.batch.Len() < buildBatch {
		return nil
	}
	return s.write()
}

// buildBatch bounds the batches of a build in bytes.
const buildBatch = 256 << 10

func (s *buildStretch) write() error {
	if s.batch.Count() == 0 {
		return nil
	}
	return s.ix.write(s.batch)
}

// Set takes a node of the tree: a stretch is a reduce.Sink of a build.
func (s *buildStretch) Set(level int, key, node []byte) error {
	s.key = append(viewSpace(s.key[:0], s.ix.db.num, s.ix.coll, spaceTree, s.ix.num), byte(level))
	return s.record(&s.tables.nodes[level], append(s.key, key...), node)
}

// Delete is never called: what is built has no nodes yet.
func (s *buildStretch) Delete(level int, key []byte) error {
	return s.batch.Delete(append(append(viewSpace(nil, s.ix.db.num, s.ix.coll, spaceTree, s.ix.num), byte(level)), key...))
}

// flush sorts and writes the rows of a stretch, and then its progress.
func (s *buildStretch) flush() error {
	slices.SortFunc(s.rows, func(a, b sortedRow) int {
		if a.head != b.head {
			if a.head < b.head {
				return -1
			}
			return 1
		}
		return bytes.Compare(s.buf[a.at:a.at+a.key], s.buf[b.at:b.at+b.key])
	})
	write := func() error { return s.eachRow(s.set) }
	if s.large {
		write = s.ingestStretch
	}
	if err := write(); err != nil {
		return err
	}
	s.p.rows += uint64(len(s.rows))
	s.b.rows.Store(s.p.rows)
	s.buf, s.rows = s.buf[:0], s.rows[:0]
	return s.progress()
}

// eachRow calls f with the rows of a stretch; its arguments are valid until the
// next call.
func (s *buildStretch) eachRow(f func(key, record []byte) error) error {
	base := viewSpace(nil, s.ix.db.num, s.ix.coll, spaceRow, s.ix.num)
	for i := range s.rows {
		r := &s.rows[i]
		s.key = append(append(s.key[:0], base...), s.buf[r.at:r.at+r.key]...)
		if err := f(s.key, s.buf[r.at+r.key:r.at+r.key+r.rec]); err != nil {
			return err
		}
		if i%4096 == 0 && s.ix.stopped() {
			return errViewGone
		}
	}
	return nil
}

// progress writes how far the build has come.
func (s *buildStretch) progress() error {
	if err := s.batch.Set(s.ix.progressKey(nil), s.p.append(nil)); err != nil {
		return err
	}
	if err := s.write(); err != nil {
		return err
	}
	p := s.p
	p.last = bytes.Clone(p.last)
	s.ix.at.Store(&p)
	return nil
}

// plant makes the tree of the rows.
func (ix *index) plant(s *buildStretch) error {
	r := viewRanges(ix.db.num, ix.coll, ix.num)
	if err := s.uproot(r[2][0], r[2][1]); err != nil {
		return err
	}
	it, err := ix.e.store.NewIter(r[0][0], r[0][1])
	if err != nil {
		return err
	}
	defer it.Close()
	tree := ix.tree()
	t := tree.NewBuilder(s)
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if err := t.Add(it.Key()[viewPrefixSize:], rowValue(it.Value())); err != nil {
			return err
		}
		if n++; n%4096 == 0 && ix.stopped() {
			return errViewGone
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	if err := t.Finish(); err != nil || !s.large {
		return err
	}
	return s.ingestNodes()
}

// uproot removes what an interrupted build has left of a tree.
func (s *buildStretch) uproot(lower, upper []byte) error {
	it, err := s.ix.e.store.NewIter(lower, upper)
	if err != nil {
		return err
	}
	some := it.First()
	if err := it.Close(); err != nil || !some {
		return err
	}
	if err := s.batch.DeleteRange(lower, upper); err != nil {
		return err
	}
	return s.write()
}
