package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"sort"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Reading a table directly, around its damaged blocks.

// A Damage is one thing that Verify or Salvage found.
type Damage struct {
	// File is the file's name, below data/ unless it is osier.json.
	File string
	// Offset is the place in the file, or -1 if the file as a whole is meant.
	Offset int64
	// Keys bounds the keys that are affected, as far as known.
	Keys KeyRange
	Err  error
}

func (d Damage) String() string {
	s := d.File
	if d.Offset >= 0 {
		s += fmt.Sprintf(" at offset %d", d.Offset)
	}
	if d.Keys.After != nil || d.Keys.Before != nil {
		s += fmt.Sprintf(", keys between %q and %q", d.Keys.After, d.Keys.Before)
	}
	return s + ": " + d.Err.Error()
}

// A KeyRange bounds keys by their readable neighbours: the affected keys lie
// between After and Before (an older value of a neighbour itself may be affected
// too). nil is unknown or unbounded.
type KeyRange struct{ After, Before []byte }

// An entry is one write of one key.
type entry struct {
	key, value []byte
	seq        uint64
	kind       pebble.InternalKeyKind
	file       uint64 // number of the table it is from, 0 for a log
	lost       bool   // the value cannot be read
}

// isSet reports whether the entry gives the key a value, as opposed to removing
// it.
func (e *entry) isSet() bool {
	switch e.kind {
	case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete, pebble.InternalKeyKindMerge:
		return true
	}
	return false
}

var errLostValue = errors.New("the value's block cannot be read")

// A tombstone removes all keys from start up to end that were written before it.
type tombstone struct {
	start, end []byte
	seq        uint64
}

// A table is an open table file. It is for one goroutine at a time.
type table struct {
	name string
	r    *sstable.Reader
	src  *tracedFile
	// blocks are the offsets of the data blocks and bad those that cannot be read;
	// both are loaded when first needed.
	blocks []block.Handle
	bad    map[uint64]error
}

// tableOptions are what the reader needs to know about our tables.
func tableOptions() sstable.ReaderOptions {
	o := &pebble.Options{FS: vfs.Default}
	o.EnsureDefaults()
	return o.MakeReaderOptions()
}

func openTable(f vfs.FS, dir, name string) (t *table, err error) {
	file, err := f.Open(f.PathJoin(dir, name), vfs.RandomReadsOption)
	if err != nil {
		return nil, err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	src := &tracedFile{Readable: readable}
	r, err := newTableReader(src)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return &table{name: name, r: r, src: src}, nil
}

func newTableReader(src *tracedFile) (r *sstable.Reader, err error) {
	defer recoverInto(&err)
	return sstable.NewReader(context.Background(), src, tableOptions())
}

func (t *table) close() error { return t.r.Close() }

// A tracedFile remembers where it was read last. Without a cache, that is the
// block on which an iterator stands or failed. Blocks known to be bad fail at
// once: for a wrong checksum the engine tries every bit, which takes a tenth of a
// second, and a search meets the same block many times.
type tracedFile struct {
	objstorage.Readable
	last int64
	bad  map[uint64]error
}

func (f *tracedFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	f.last = off
	if err := f.bad[uint64(off)]; err != nil {
		return err
	}
	return f.Readable.ReadAt(ctx, p, off)
}

func (f *tracedFile) NewReadHandle(n objstorage.ReadBeforeSize) objstorage.ReadHandle {
	return &tracedHandle{f: f, ReadHandle: f.Readable.NewReadHandle(n)}
}

type tracedHandle struct {
	objstorage.ReadHandle
	f *tracedFile
}

func (h *tracedHandle) ReadAt(ctx context.Context, p []byte, off int64) error {
	h.f.last = off
	if err := h.f.bad[uint64(off)]; err != nil {
		return err
	}
	return h.ReadHandle.ReadAt(ctx, p, off)
}

// checkBlock reads a block and compares its checksum.
func (t *table) checkBlock(h block.Handle, buf []byte) ([]byte, error) {
	size := t.src.Size()
	if h.Length > uint64(size) || h.Offset > uint64(size)-h.Length || h.Offset+h.Length+block.TrailerLen > uint64(size) {
		return buf, fmt.Errorf("block of %d bytes lies beyond the end of the file", h.Length)
	}
	n := int(h.Length) + block.TrailerLen
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if err := t.src.ReadAt(context.Background(), buf, int64(h.Offset)); err != nil {
		return buf, err
	}
	kind := t.r.BlockReader().ChecksumType()
	if kind != block.ChecksumTypeCRC32c {
		return buf, block.ValidateChecksum(kind, buf, h)
	}
	// The trailer is a type byte, which the checksum covers, and the checksum.
	want := binary.LittleEndian.Uint32(buf[h.Length+1:])
	if got := chunkChecksum(buf[:h.Length+1]); got != want {
		return buf, fmt.Errorf("checksum of the block of %d bytes is %08x instead of %08x", h.Length, got, want)
	}
	return buf, nil
}

// loadBlocks checks all data blocks, once.
func (t *table) loadBlocks() error {
	if t.bad != nil {
		return nil
	}
	l, err := t.r.Layout()
	if err != nil {
		return err
	}
	t.bad = make(map[uint64]error)
	defer func() { t.src.bad = t.bad }()
	var buf []byte
	for i := range l.Data {
		h := l.Data[i].Handle
		t.blocks = append(t.blocks, h)
		if buf, err = t.checkBlock(h, buf); err != nil {
			t.bad[h.Offset] = err
		}
	}
	return nil
}

// checkOthers reports damage of the blocks that hold no keys.
func (t *table) checkOthers(report func(Damage)) {
	l, err := t.r.Layout()
	if err != nil {
		report(Damage{File: t.name, Offset: -1, Err: err})
		return
	}
	others := append([]block.Handle{l.TopIndex, l.RangeDel, l.RangeKey, l.ValueIndex, l.Properties, l.MetaIndex,
		l.BlobReferenceIndex}, l.Index...)
	others = append(others, l.ValueBlock...)
	for _, f := range l.Filter {
		others = append(others, f.Handle)
	}
	var buf []byte
	for _, h := range others {
		if h.Length == 0 {
			continue
		}
		if buf, err = t.checkBlock(h, buf); err != nil {
			report(Damage{File: t.name, Offset: int64(h.Offset), Err: err})
		}
	}
}

// tombstones returns the table's range deletions.
func (t *table) tombstones() (ts []tombstone, err error) {
	defer recoverInto(&err)
	it, err := t.r.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil || it == nil {
		return nil, err
	}
	defer it.Close()
	s, err := it.First()
	for ; s != nil; s, err = it.Next() {
		for _, k := range s.Keys {
			ts = append(ts, tombstone{start: bytes.Clone(s.Start), end: bytes.Clone(s.End), seq: uint64(k.SeqNum())})
		}
	}
	return ts, err
}

// recoverInto turns a panic of the engine into an error: its decoders trust a
// block whose checksum is right, and a few places do not expect a failure.
func recoverInto(err *error) {
	switch r := recover().(type) {
	case nil:
	case error:
		*err = r
	default:
		*err = fmt.Errorf("storage engine: %v", r)
	}
}

// A tableRun delivers a table's entries in order and steps over what it cannot
// read.
type tableRun struct {
	t      *table
	it     sstable.Iterator
	begun  bool
	last   []byte // the last key delivered
	live   *liveTable
	report func(Damage)
}

func (t *table) run(live *liveTable, report func(Damage)) *tableRun {
	return &tableRun{t: t, live: live, report: report}
}

func (r *tableRun) close() error {
	if r.it == nil {
		return nil
	}
	err := r.it.Close()
	r.it = nil
	return err
}

// open replaces the iterator by a fresh one.
func (r *tableRun) open() (err error) {
	_ = r.close() // its error has been dealt with
	r.it, err = r.t.r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	return err
}

// next returns the next entry, whose slices are valid until the call after.
func (r *tableRun) next() (e entry, ok bool) {
	e, ok, err := r.step()
	for err != nil {
		e, ok, err = r.skip(err)
	}
	if ok && e.lost {
		k := bytes.Clone(e.key)
		r.report(Damage{File: r.t.name, Offset: r.t.src.last, Keys: KeyRange{k, k}, Err: errLostValue})
	}
	if ok {
		r.last = append(r.last[:0], e.key...)
	}
	if ok && r.live != nil && r.live.part && bytes.Compare(e.key, r.live.largest) > 0 {
		return entry{}, false
	}
	return e, ok
}

// step moves the iterator once.
func (r *tableRun) step() (entry, bool, error) {
	if r.begun {
		return r.move(toNext, nil)
	}
	r.begun = true
	if err := r.open(); err != nil {
		return entry{}, false, err
	}
	if r.live != nil && r.live.part {
		return r.move(toGE, r.live.smallest)
	}
	return r.move(toFirst, nil)
}

type movement int

const (
	toFirst movement = iota
	toNext
	toPrev
	toLast
	toGE
)

// move moves the iterator and returns the entry it comes to stand on. (The type
// of what the engine returns has no name here, so all movements are in one
// place.)
func (r *tableRun) move(m movement, key []byte) (e entry, ok bool, err error) {
	defer recoverInto(&err)
	to := r.it.First
	switch m {
	case toNext:
		to = r.it.Next
	case toPrev:
		to = r.it.Prev
	case toLast:
		to = r.it.Last
	case toGE:
		to = bind(r.it.SeekGE, key, 0)
	}
	found := to()
	if found == nil {
		return entry{}, false, r.it.Error()
	}
	e = entry{key: found.K.UserKey, seq: uint64(found.K.SeqNum()), kind: found.K.Kind()}
	v, _, err := found.Value(nil)
	if err != nil {
		e.lost = true
	}
	e.value = v
	return e, true, nil
}

// skip finds the first entry of the next readable block after the one that the
// iterator failed in, and reports the gap.
func (r *tableRun) skip(cause error) (e entry, ok bool, err error) {
	at := r.t.src.last
	d := Damage{File: r.t.name, Offset: at, Keys: KeyRange{After: bytes.Clone(r.last)}, Err: cause}
	if r.live != nil {
		// Where no neighbour is readable the table's own bounds are known.
		if d.Keys.Before = r.live.largest; d.Keys.After == nil {
			d.Keys.After = r.live.smallest
		}
	}
	if err := r.t.loadBlocks(); err != nil {
		d.Offset = -1
		d.Err = err
		r.report(d)
		return entry{}, false, nil
	}
	// A block that has the right checksum and does not decode counts as bad.
	if i := r.t.blockIndex(at); i >= 0 && r.t.bad[uint64(at)] == nil {
		r.t.bad[uint64(at)] = cause
	}
	i := r.t.nextGood(at)
	if i < 0 {
		r.report(d)
		return entry{}, false, nil
	}
	e, ok, err = r.seekBlock(r.t.blocks[i].Offset)
	if err != nil {
		r.t.src.last = int64(r.t.blocks[i].Offset) // give this block up too: each step has to advance
	}
	if ok {
		d.Keys.Before = bytes.Clone(e.key)
	}
	r.report(d)
	return e, ok, err
}

func (t *table) blockIndex(off int64) int {
	i := sort.Search(len(t.blocks), func(i int) bool { return t.blocks[i].Offset >= uint64(off) })
	if i < len(t.blocks) && t.blocks[i].Offset == uint64(off) {
		return i
	}
	return -1
}

// nextGood returns the index of the first readable block behind off, or -1.
func (t *table) nextGood(off int64) int {
	for i, h := range t.blocks {
		if int64(h.Offset) > off && t.bad[h.Offset] == nil {
			return i
		}
	}
	return -1
}

// seekBlock positions the iterator on the first entry of the block at offset
// want. The index's keys are not accessible, so it searches for a key that leads
// to that block: which block a key leads to grows with the key, and the traced
// file tells which one it was, also if reading it failed.
func (r *tableRun) seekBlock(want uint64) (entry, bool, error) {
	lo, hi, err := r.searchBounds()
	if err != nil {
		return entry{}, false, err
	}
	width := max(len(lo), len(hi)) + 1
	l, h := keyToInt(lo, width), keyToInt(hi, width)
	for l.Cmp(h) <= 0 {
		mid := new(big.Int).Rsh(new(big.Int).Add(l, h), 1)
		if err := r.open(); err != nil {
			return entry{}, false, err
		}
		e, ok, err := r.move(toGE, intToKey(mid, width))
		switch at := uint64(r.t.src.last); {
		case at == want && ok:
			return r.firstOfBlock(e.key)
		case err == nil && !ok: // behind the last key
			h = mid.Sub(mid, big.NewInt(1))
		case at < want:
			l = mid.Add(mid, big.NewInt(1))
		default:
			h = mid.Sub(mid, big.NewInt(1))
		}
	}
	return entry{}, false, errors.New("block is not reachable through the index")
}

// firstOfBlock goes back from a key to the first one of its block, which the
// block before it, unreadable or absent, makes known.
func (r *tableRun) firstOfBlock(key []byte) (entry, bool, error) {
	first := bytes.Clone(key)
	for {
		e, ok, err := r.move(toPrev, nil)
		if err != nil || !ok || bytes.Compare(e.key, r.last) <= 0 {
			break // the damage, most likely: the caller knows of it
		}
		first = append(first[:0], e.key...)
	}
	if err := r.open(); err != nil {
		return entry{}, false, err
	}
	e, ok, err := r.move(toGE, first)
	if err != nil {
		// Versions of this key begin in the block before.
		if err := r.open(); err != nil {
			return entry{}, false, err
		}
		return r.move(toGE, append(first, 0))
	}
	return e, ok, nil
}

// searchBounds returns keys between which the rest of the table lies.
func (r *tableRun) searchBounds() (lo, hi []byte, err error) {
	lo = r.last
	if r.live != nil && r.live.largest != nil {
		return lo, append(bytes.Clone(r.live.largest), 0), nil
	}
	if err := r.open(); err != nil {
		return nil, nil, err
	}
	if e, ok, err := r.move(toLast, nil); err == nil && ok {
		return lo, append(bytes.Clone(e.key), 0), nil
	}
	// The last block is damaged: any key that is great enough.
	return lo, bytes.Repeat([]byte{0xff}, len(lo)+16), nil
}

// keyToInt reads a key as a fraction of width bytes, so that integers order as
// keys do.
func keyToInt(k []byte, width int) *big.Int {
	b := make([]byte, width)
	copy(b, k)
	return new(big.Int).SetBytes(b)
}

func intToKey(n *big.Int, width int) []byte {
	return bytes.TrimRight(n.FillBytes(make([]byte, width)), "\x00")
}

// bind closes a method over its arguments.
func bind[K, F, V any](f func(K, F) V, k K, x F) func() V {
	return func() V { return f(k, x) }
}
