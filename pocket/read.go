package pocket

import (
	"iter"
	"math"
	"strings"
	"time"
)

// A Reader is what can be read from: a *Store, whose every call sees the
// newest state, or a *Snapshot, whose calls all see the same one.
type Reader interface {
	lookup(key string) (record, bool)
	view() (*Store, *state)
	store() *Store
}

func (s *Store) store() *Store { return s }

// view takes a snapshot; see tree.go for the order of the two steps.
func (s *Store) view() (*Store, *state) {
	s.snapshots.Add(1)
	return s, s.cur.Load()
}

// Get returns the value stored under key. It takes no lock; for texts without
// escapes, numbers, booleans and values of registered types that were read
// before, it allocates nothing.
//
// The value of a registered type is decoded once and then shared: what its
// pointers, slices and maps lead to must not be changed. T may also be a
// pointer to a registered type, an interface that registered types implement,
// any, Raw, Record, or json.RawMessage.
//
// The error matches ErrNotFound, or ErrType when the record is no T.
func Get[T any](from Reader, key string) (T, error) {
	s, ok := from.(*Store)
	var r record
	if ok {
		r, ok = s.lookup(key)
	} else {
		s = from.store()
		r, ok = from.lookup(key)
	}
	if !ok {
		var none T
		return none, ErrNotFound
	}
	return decode[T](s, r)
}

// An Item is a value with what the store knows about it.
type Item[T any] struct {
	Key     string
	Value   T
	Version Version
	Expires time.Time // zero for never
}

// Lookup is Get with the record's version and expiry.
func Lookup[T any](from Reader, key string) (Item[T], error) {
	r, ok := from.lookup(key)
	if !ok {
		return Item[T]{Key: key}, ErrNotFound
	}
	return itemOf[T](from.store(), r)
}

func itemOf[T any](s *Store, r record) (Item[T], error) {
	v, err := decode[T](s, r)
	rec := Record{r: r, s: s}
	return Item[T]{Key: r.key(), Value: v, Version: rec.Version(), Expires: rec.Expires()}, err
}

// Has reports whether something is stored under key.
func Has(from Reader, key string) bool {
	_, ok := from.lookup(key)
	return ok
}

// A Record is a record as it is stored. It stays valid, and what it returns
// unchanged, for as long as it is held, but keeps up to 1 MiB of memory from
// being freed; clone the texts of records that are kept for long.
type Record struct {
	r record
	s *Store
}

// Key returns the key.
func (r Record) Key() string { return r.r.key() }

// JSON returns the value in its JSON form.
func (r Record) JSON() string { return r.r.value() }

// Type returns the name of the value's type, "" for a plain value.
func (r Record) Type() string { return r.s.types.name(r.r.typeID()) }

// Version returns the record's version.
func (r Record) Version() Version { return Version(r.r.version()) }

// Expires returns when the record ends, the zero time for never.
func (r Record) Expires() time.Time {
	ms := r.r.expiry()
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// ValueOf returns the value of a record.
func ValueOf[T any](r Record) (T, error) { return decode[T](r.s, r.r) }

// A Snapshot is the state of a store after one transaction. It needs no
// closing; the memory of what has changed since is freed with it.
type Snapshot struct {
	s  *Store
	st *state
}

// Snapshot returns the newest state. It costs one small allocation.
func (s *Store) Snapshot() *Snapshot {
	_, st := s.view()
	return &Snapshot{s, st}
}

// Version returns the sequence of the last transaction that the snapshot sees.
func (sn *Snapshot) Version() Version { return Version(sn.st.seq) }

func (sn *Snapshot) view() (*Store, *state) { return sn.s, sn.st }
func (sn *Snapshot) store() *Store          { return sn.s }

func (sn *Snapshot) lookup(key string) (record, bool) {
	r, ok := sn.recordOf(key)
	return r, ok && !gone(r)
}

// recordOf finds a record that may have expired.
func (sn *Snapshot) recordOf(key string) (record, bool) {
	h := head(key)
	n := sn.st.root
	for {
		switch x := n.(type) {
		case *inner:
			n = x.kids[x.child(h, key)]
		case *leaf:
			i, ok := x.search(sn.st.dir, h, key)
			if !ok {
				return record{}, false
			}
			return sn.st.visible(x.at(i)), true
		default:
			return record{}, false
		}
	}
}

// A Span is a range of keys, which are ordered by their bytes. The zero Span
// is empty; see All, WithPrefix and Between.
type Span struct {
	from, to         string // from <= key < to
	fromHead, toHead uint64
	end              endKind
	fromByHead       bool // a key's head alone tells whether it is below from
}

// endKind says what a span's end is.
type endKind uint8

const (
	endKey  endKind = iota // to
	endHead                // the first key whose head is toHead; to does not count
	endNone
)

// decidesByHead reports whether head(k) < head(key) is the same as k < key for
// every k. The last byte of a short key must not be taken for the zeros that
// fill its head up.
func decidesByHead(key string) bool {
	return len(key) <= 8 && (key == "" || key[len(key)-1] != 0)
}

// All spans every key.
func All() Span { return Span{end: endNone, fromByHead: true} }

// From spans the keys from from on.
func From(from string) Span {
	return Span{from: from, fromHead: head(from), fromByHead: decidesByHead(from), end: endNone}
}

// Between spans the keys from from, inclusive, up to to, exclusive.
func Between(from, to string) Span {
	sp := From(from)
	sp.to, sp.toHead, sp.end = to, head(to), endKey
	return sp
}

// WithPrefix spans the keys that begin with prefix.
func WithPrefix(prefix string) Span {
	sp := From(prefix)
	n := len(prefix)
	if n > 0 && n <= 8 && prefix[n-1] != math.MaxUint8 {
		// The end is the prefix with one more in its last byte.
		sp.toHead, sp.end = sp.fromHead+1<<(64-8*n), endHead
		return sp
	}
	if end := prefixEnd(prefix); end != "" {
		sp.to, sp.toHead, sp.end = end, head(end), endKey
	}
	return sp
}

// prefixEnd returns the first text behind all that begin with prefix, "" when
// there is none.
func prefixEnd(prefix string) string {
	n := len(prefix)
	for n > 0 && prefix[n-1] == math.MaxUint8 {
		n--
	}
	if n == 0 {
		return ""
	}
	end := []byte(prefix[:n])
	end[n-1]++
	return viewString(end)
}

// Contains reports whether key lies in the span.
func (sp Span) Contains(key string) bool {
	switch {
	case key < sp.from:
		return false
	case sp.end == endHead:
		return head(key) < sp.toHead
	}
	return sp.end == endNone || key < sp.to
}

// Prefix yields the keys that begin with prefix, with their values, in order;
// see Scan.
func Prefix[T any](from Reader, prefix string) iter.Seq2[string, T] {
	// Small enough to be inlined where it is ranged over, as are Range, Scan and
	// Reverse: the loop's body then lies on the stack.
	return func(yield func(string, T) bool) { scan(from, WithPrefix(prefix), false, yield) }
}

// Range yields the keys from first, inclusive, up to last, exclusive, with
// their values, in order; see Scan.
func Range[T any](from Reader, first, last string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { scan(from, Between(first, last), false, yield) }
}

// Scan yields the keys in span that hold a T, with their values, in order.
// Each iteration over a *Store sees one snapshot of it, taken when it begins,
// and blocks no writer. Records that hold something else than a T are passed
// over; scan for Record to see them all.
func Scan[T any](from Reader, sp Span) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { scan(from, sp, false, yield) }
}

// Reverse is Scan from the last key of the span to the first.
func Reverse[T any](from Reader, sp Span) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { scan(from, sp, true, yield) }
}

// scan has a loop of its own for the types that need no decoding: one that
// asks again for each record takes twice the time.
func scan[T any](from Reader, sp Span, reverse bool, yield func(string, T) bool) {
	s, st := from.view()
	switch y := any(yield).(type) {
	case func(string, string) bool:
		st.scanTexts(s, sp, reverse, y)
	case func(string, Record) bool:
		st.scanRecords(s, sp, reverse, y)
	default:
		scanValues(s, st, sp, reverse, yield)
	}
}

func (st *state) scanTexts(s *Store, sp Span, reverse bool, yield func(string, string) bool) {
	c := cursor{dir: st.dir, span: &sp, reverse: reverse}
	by, seq, chunks := c.by(), st.seq, st.dir.chunkList()
	for l, i, end := c.first(st.root); l != nil; l, i, end = c.next() {
		for ; i != end; i += by {
			if r, ok := chunks.at(l.at(i)); ok && r.isTextFor(seq) {
				if !yield(r.key(), r.text()) {
					return
				}
				continue
			}
			r := st.unexpired(l.at(i))
			if r.p == nil {
				continue
			}
			if text, err := decode[string](s, r); err == nil && !yield(r.key(), text) {
				return
			}
		}
	}
}

func (st *state) scanRecords(s *Store, sp Span, reverse bool, yield func(string, Record) bool) {
	c := cursor{dir: st.dir, span: &sp, reverse: reverse}
	by, seq, chunks := c.by(), st.seq, st.dir.chunkList()
	for l, i, end := c.first(st.root); l != nil; l, i, end = c.next() {
		for ; i != end; i += by {
			r, ok := chunks.at(l.at(i))
			if !ok || !r.isFor(seq) {
				if r = st.unexpired(l.at(i)); r.p == nil {
					continue
				}
			}
			if !yield(r.key(), Record{r: r, s: s}) {
				return
			}
		}
	}
}

func scanValues[T any](s *Store, st *state, sp Span, reverse bool, yield func(string, T) bool) {
	pages := *s.cache.pages.Load()
	c := cursor{dir: st.dir, span: &sp, reverse: reverse}
	by, seq, chunks := c.by(), st.seq, st.dir.chunkList()
	for l, i, end := c.first(st.root); l != nil; l, i, end = c.next() {
		for ; i != end; i += by {
			r, ok := chunks.at(l.at(i))
			if !ok || !r.isFor(seq) {
				if r = st.unexpired(l.at(i)); r.p == nil {
					continue
				}
			}
			if x := cellAt(pages, r); x != nil {
				if v, ok := x.value.(*T); ok {
					if !yield(r.key(), *v) {
						return
					}
					continue
				}
			}
			v, err := decode[T](s, r)
			if err == nil && !yield(r.key(), v) {
				return
			}
		}
	}
}

// isFor reports whether a snapshot of sequence seq sees r itself, and no clock
// needs to be asked.
func (r record) isFor(seq uint64) bool {
	return r.p[0] <= seq && r.p[1]&(flagHasExpiry<<48) == 0
}

// isTextFor is isFor and whether r is a text that needs no decoding.
func (r record) isTextFor(seq uint64) bool {
	return r.p[0] <= seq && r.p[1]&((flagHasExpiry|flagPlainText)<<48) == flagPlainText<<48
}

// unexpired returns the version of a record that a snapshot sees, or none when
// it has expired.
func (st *state) unexpired(off offset) record {
	if r := st.visible(off); !gone(r) {
		return r
	}
	return record{}
}

// Records yields the records in span as they are stored, in order.
func Records(from Reader, sp Span) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, r := range Scan[Record](from, sp) {
			if !yield(r) {
				return
			}
		}
	}
}

// Count returns how many records of any type lie in span. It costs a step for
// each leaf of up to 128 keys, or for each record when some of them expire.
func Count(from Reader, sp Span) int {
	s, st := from.view()
	n := 0
	if s.stats.expiring.Load() == 0 {
		c := cursor{dir: st.dir, span: &sp}
		for l, i, end := c.first(st.root); l != nil; l, i, end = c.next() {
			n += end - i
		}
		return n
	}
	for range Records(from, sp) {
		n++
	}
	return n
}

// cloneKey detaches a key from the arena.
func cloneKey(r record) string { return strings.Clone(r.key()) }
