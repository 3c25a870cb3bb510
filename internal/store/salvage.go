package store

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// Salvage reads what is whole from a store's folder, also one that Open refuses,
// and calls emit with every key it finds and its newest value, in key order; the
// slices are valid during the call. Everything that could not be read is
// reported. The folder is locked meanwhile and its files stay as they are
// (osier.salvage/ is used for sorting if the logs are large, and removed).
//
// It reads tables and logs without the engine: of a table with damaged blocks
// the other blocks, of a damaged log the records before and after. The newest
// write of a key wins, deletions of keys and ranges are honoured as far as they
// can be read. A batch in a log is taken whole or not at all, but damage may take
// away one batch and leave a later one, and may take away a deletion: then an
// older value comes back.
//
// Which files belong to the store is in the manifest. If it cannot be read that
// is reported, and all files count. Files that had become obsolete and were not
// yet removed are then read too; what they hold is older than what replaced it,
// but a deletion may have been dropped with what it deleted, so that a deleted
// key can come back. A manifest that lost its end is noticed by newer tables that
// it does not name; those are read as well.
//
// Memory is bounded by about 64 MiB, a few blocks for each overlapping table, the
// largest batch in a log, and all range deletions that compaction has not removed
// yet. Errors are ErrLocked, ErrFormat, ctx's, emit's, and those of a file system
// that cannot be read at all.
func Salvage(
	ctx context.Context, dir string, o *Options, emit func(key, value []byte) error, report func(Damage),
) (err error) {
	opts := o.withDefaults()
	opts.ReadOnly = true
	s := &Store{opts: opts, dir: dir}
	if err := s.resolveDir(); err != nil {
		return err
	}
	s.files = s.fs
	if opts.WrapFS != nil {
		s.files = opts.WrapFS(s.fs)
	}
	if s.lock, err = lockFolder(s.fs, s.dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.lock.release()) }()
	m, merr := readMeta(s.fs, s.dir)
	if merr != nil {
		report(Damage{File: metaName, Offset: -1, Err: merr})
	} else if newest := len(opts.migrations) + 1; m.Format > newest {
		return &FormatError{Dir: s.dir, Found: m.Format, Newest: newest}
	}
	sv := &salvage{s: s, ctx: ctx, report: report}
	defer func() { err = errors.Join(err, sv.close()) }()
	if err := sv.collect(); err != nil {
		return err
	}
	return sv.merge(emit)
}

// salvageName is the folder that sorting uses.
const salvageName = "osier.salvage"

type salvage struct {
	s      *Store
	ctx    context.Context
	report func(Damage)

	runs  []run
	tombs []tombstone
	sort  sorter
}

// A run delivers entries in the order of less.
type run interface {
	// next returns the next entry, valid until the call after.
	next() (e entry, ok bool, err error)
	close() error
}

func (v *salvage) close() error {
	var errs []error
	for _, r := range v.runs {
		errs = append(errs, r.close())
	}
	return errors.Join(append(errs, v.sort.close())...)
}

// collect finds the files, reads the logs and opens the runs.
func (v *salvage) collect() error {
	names, err := v.s.files.List(v.s.dataDir())
	if err != nil {
		return mapError("list data folder", err)
	}
	live, known := v.liveTables()
	live = v.completeTables(names, live, known)
	v.tableTombstones(live)
	for _, ts := range disjoint(live) {
		v.runs = append(v.runs, &tablesRun{v: v, tables: ts})
	}
	minLog := uint64(0)
	if known {
		minLog = v.minLog()
	}
	if err := v.readLogs(names, minLog); err != nil {
		return err
	}
	logRuns, err := v.sort.finish()
	v.runs = append(v.runs, logRuns...)
	return err
}

// A manifestFS hides logs, so that the engine opens what the manifest says and
// nothing else, and its options, which may be damaged and are not needed.
type manifestFS struct{ vfs.FS }

func (f manifestFS) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	return slices.DeleteFunc(names, func(n string) bool {
		return isLog(n) || bytes.HasPrefix([]byte(n), []byte("OPTIONS-"))
	}), err
}

func (f manifestFS) Unwrap() vfs.FS { return f.FS }

// liveTables asks the manifest; known is false if it cannot be read.
func (v *salvage) liveTables() (ts []liveTable, known bool) {
	err := func() (err error) {
		defer recoverInto(&err)
		f := manifestFS{v.s.files}
		failed := &fence{up: make(chan struct{})}
		db, err := pebble.Open(v.s.dataDir(), &pebble.Options{
			FS: f, ReadOnly: true, ErrorIfNotExists: true, DisableConsistencyCheck: true,
			FormatMajorVersion: pebble.FormatNewest,
			Logger:             &engineLogger{s: &Store{opts: v.s.opts, fence: failed}, log: v.s.slogger()},
		})
		if err != nil {
			return err
		}
		defer db.Close()
		levels, err := db.SSTables()
		if err != nil {
			return err
		}
		ts = liveTables(levels)
		return failed.failure()
	}()
	if err != nil {
		v.report(Damage{File: "MANIFEST", Offset: -1, Err: fmt.Errorf("%w; reading all files instead", err)})
		return nil, false
	}
	return ts, true
}

// completeTables adds the files that the manifest cannot have known: all of them
// if it was unreadable, else those younger than any it names.
func (v *salvage) completeTables(names []string, live []liveTable, known bool) []liveTable {
	var newest uint64
	for _, t := range live {
		n, _ := fileNumber(t.file)
		newest = max(newest, n)
	}
	missing := false
	for _, t := range live {
		missing = missing || !slices.Contains(names, t.file)
	}
	for _, name := range names {
		n, ok := fileNumber(name)
		if !ok || !isTable(name) || known && n <= newest {
			continue
		}
		t := liveTable{file: name, guess: known}
		if known && missing {
			v.report(Damage{File: name, Offset: -1, Err: errors.New("the manifest does not know this newer table; it is read all the same")})
		}
		v.findBounds(&t)
		live = append(live, t)
	}
	return live
}

// findBounds reads a table's first and last key, as far as it can.
func (v *salvage) findBounds(t *liveTable) {
	tab, err := openTable(v.s.files, v.s.dataDir(), t.file)
	if err != nil {
		return // reported when it is read
	}
	defer tab.close()
	quiet := func(Damage) {}
	r := tab.run(nil, quiet)
	defer r.close()
	first, ok := r.next()
	if !ok {
		return
	}
	t.smallest = bytes.Clone(first.key)
	if r.open() == nil {
		if e, ok, err := r.move(toLast, nil); err == nil && ok {
			t.largest = bytes.Clone(e.key)
		}
	}
}

// disjoint arranges tables in groups within which keys do not overlap, in order.
func disjoint(ts []liveTable) [][]liveTable {
	sort.SliceStable(ts, func(i, j int) bool { return bytes.Compare(ts[i].smallest, ts[j].smallest) < 0 })
	var groups [][]liveTable
next:
	for _, t := range ts {
		for i, g := range groups {
			if end := g[len(g)-1].largest; end != nil && t.smallest != nil && bytes.Compare(end, t.smallest) < 0 {
				groups[i] = append(g, t)
				continue next
			}
		}
		groups = append(groups, []liveTable{t})
	}
	return groups
}

// tableTombstones collects the range deletions of all tables.
func (v *salvage) tableTombstones(live []liveTable) {
	for i := range live {
		l := &live[i]
		t, err := openTable(v.s.files, v.s.dataDir(), l.file)
		if err != nil {
			continue // reported when its keys are read
		}
		ts, err := t.tombstones()
		if err != nil {
			v.report(Damage{File: l.file, Offset: -1, Keys: KeyRange{l.smallest, l.largest},
				Err: fmt.Errorf("range deletions: %w", err)})
		}
		for _, d := range ts {
			if l.part && bytes.Compare(d.start, l.smallest) < 0 {
				d.start = l.smallest
			}
			if end := append(bytes.Clone(l.largest), 0); l.part && bytes.Compare(d.end, end) > 0 {
				d.end = end
			}
			if bytes.Compare(d.start, d.end) < 0 {
				v.tombs = append(v.tombs, d)
			}
		}
		_ = t.close() // only read
	}
}

// minLog returns the oldest log whose content is not in tables, from the
// manifest: its edits begin with fields that tell it.
func (v *salvage) minLog() uint64 {
	name, err := atomicfs.ReadMarker(v.s.files, v.s.dataDir(), "manifest")
	if err != nil {
		return 0
	}
	var least uint64
	num, _ := fileNumber(name)
	l := recordLog{fs: v.s.files, path: v.s.fs.PathJoin(v.s.dataDir(), name), name: name, num: num, limit: -1,
		report: v.report}
	_ = l.each(func(rec []byte, _ int64) error { // fn does not fail
		if n, ok := editMinLog(rec); ok {
			least = max(least, n)
		}
		return nil
	})
	return least
}

// Tags of a version edit, of those that are written before its lists of files.
const (
	tagComparer   = 1
	tagMinLog     = 2
	tagNextFile   = 3
	tagPrevLog    = 9
	maxEditPrefix = 8 // fields looked at
)

// editMinLog returns the log number of an encoded version edit, if it has one.
func editMinLog(rec []byte) (least uint64, ok bool) {
	uvarint := func() uint64 {
		x, n := binary.Uvarint(rec)
		rec = rec[max(n, 0):]
		if n <= 0 {
			rec = nil
		}
		return x
	}
	for range maxEditPrefix {
		switch uvarint() {
		case tagComparer:
			n := uvarint()
			rec = rec[min(n, uint64(len(rec))):]
		case tagMinLog:
			return uvarint(), true
		case tagNextFile, tagPrevLog:
			uvarint()
		default:
			return 0, false
		}
	}
	return 0, false
}

// readLogs sorts the writes in the logs from number least on.
func (v *salvage) readLogs(names []string, least uint64) error {
	v.sort.init(v.s.files, v.s.fs.PathJoin(v.s.dir, salvageName))
	logs := logNames(names)
	for i, name := range logs {
		num, _ := fileNumber(name)
		if num < least {
			continue
		}
		if err := v.ctx.Err(); err != nil {
			return err
		}
		l := recordLog{fs: v.s.files, path: v.s.fs.PathJoin(v.s.dataDir(), name), name: name, num: num, limit: -1,
			newest: i == len(logs)-1, report: v.report}
		if err := l.each(func(rec []byte, off int64) error { return v.addBatch(&l, rec, off) }); err != nil {
			return err
		}
	}
	return nil
}

// addBatch takes a batch whole, or reports it and takes nothing.
func (v *salvage) addBatch(l *recordLog, rec []byte, off int64) error {
	if err := batchEntries(rec, func(entry) error { return nil }); err != nil {
		v.report(Damage{File: l.name, Offset: off, Err: err})
		return nil
	}
	return batchEntries(rec, func(e entry) error {
		if e.kind == pebble.InternalKeyKindRangeDelete {
			v.tombs = append(v.tombs, tombstone{bytes.Clone(e.key), bytes.Clone(e.value), e.seq})
			return nil
		}
		return v.sort.add(e)
	})
}

// logNames returns the logs among names, oldest first.
func logNames(names []string) []string {
	logs := slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		_, ok := fileNumber(n)
		return !ok || !isLog(n)
	})
	slices.SortFunc(logs, func(a, b string) int {
		x, _ := fileNumber(a)
		y, _ := fileNumber(b)
		return cmp.Compare(x, y)
	})
	return logs
}

// A tablesRun reads tables that do not overlap one after the other.
type tablesRun struct {
	v      *salvage
	tables []liveTable
	t      *table
	r      *tableRun
}

func (r *tablesRun) close() error {
	if r.t == nil {
		return nil
	}
	err := errors.Join(r.r.close(), r.t.close())
	r.t = nil
	return err
}

func (r *tablesRun) next() (entry, bool, error) {
	for {
		if r.t == nil {
			if len(r.tables) == 0 {
				return entry{}, false, nil
			}
			if err := r.v.ctx.Err(); err != nil {
				return entry{}, false, err
			}
			live := &r.tables[0]
			r.tables = r.tables[1:]
			t, err := openTable(r.v.s.files, r.v.s.dataDir(), live.file)
			if err != nil && live.guess {
				continue // a crash interrupted its writing
			}
			if err != nil {
				r.v.report(Damage{File: live.file, Offset: -1, Keys: KeyRange{live.smallest, live.largest}, Err: err})
				continue
			}
			r.t, r.r = t, t.run(live, r.v.report)
		}
		if e, ok := r.r.next(); ok {
			e.file, _ = fileNumber(r.t.name)
			return e, true, nil
		}
		_ = r.close() // reading errors have been reported
	}
}

// merge delivers the newest value of each key that is not deleted.
func (v *salvage) merge(emit func(key, value []byte) error) error {
	h, err := newMergeHeap(v.runs)
	if err != nil {
		return err
	}
	deleted := newCover(v.tombs)
	var last []byte
	first := true
	for n := 0; len(h) > 0; n++ {
		if n%1024 == 0 && v.ctx.Err() != nil {
			return v.ctx.Err()
		}
		e := &h[0].e
		if first || !bytes.Equal(e.key, last) {
			first = false
			last = append(last[:0], e.key...)
			if e.isSet() && !e.lost && deleted.newest(e.key) <= e.seq {
				if err := emit(e.key, e.value); err != nil {
					return err
				}
			}
		}
		if err := h.advance(); err != nil {
			return err
		}
	}
	return nil
}

// A mergeHeap has the least entry of all runs on top.
type mergeHeap []mergeItem

type mergeItem struct {
	e entry
	r run
}

func newMergeHeap(runs []run) (mergeHeap, error) {
	var h mergeHeap
	for _, r := range runs {
		e, ok, err := r.next()
		if err != nil {
			return nil, err
		}
		if ok {
			h = append(h, mergeItem{e: e, r: r})
		}
	}
	heap.Init(&h)
	return h, nil
}

// advance replaces the top by the next entry of its run.
func (h *mergeHeap) advance() error {
	e, ok, err := (*h)[0].r.next()
	switch {
	case err != nil:
		return err
	case ok:
		(*h)[0].e = e
		heap.Fix(h, 0)
	default:
		heap.Pop(h)
	}
	return nil
}

func (h mergeHeap) Len() int      { return len(h) }
func (h mergeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h mergeHeap) Less(i, j int) bool {
	return compareEntries(&h[i].e, &h[j].e) < 0
}
func (h *mergeHeap) Push(x any) { *h = append(*h, x.(mergeItem)) }
func (h *mergeHeap) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}

// compareEntries orders by key and then newest first. The last level's tables
// forget sequence numbers; if tables of several generations are read, the younger
// file decides.
func compareEntries(a, b *entry) int {
	return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(b.seq, a.seq), cmp.Compare(b.file, a.file))
}

// A cover answers, for keys in ascending order, which range deletion is newest.
type cover struct {
	todo   []tombstone // by start
	active []tombstone
}

func newCover(ts []tombstone) *cover {
	slices.SortFunc(ts, func(a, b tombstone) int { return bytes.Compare(a.start, b.start) })
	return &cover{todo: ts}
}

// newest returns the sequence number of the newest range deletion over key, or 0.
func (c *cover) newest(key []byte) (seq uint64) {
	for len(c.todo) > 0 && bytes.Compare(c.todo[0].start, key) <= 0 {
		c.active = append(c.active, c.todo[0])
		c.todo = c.todo[1:]
	}
	c.active = slices.DeleteFunc(c.active, func(t tombstone) bool { return bytes.Compare(t.end, key) <= 0 })
	for _, t := range c.active {
		seq = max(seq, t.seq)
	}
	return seq
}
