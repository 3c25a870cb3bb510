package kv

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/osierdb/osier"
)

// errStop ends a walk whose reader wants no more.
var errStop = errors.New("no more rows are wanted")

// Query answers a query of key-values. yield reports whether to go on; rows are
// valid until it returns. base gives, for QueryKVTry, versions before the
// pending operations.
func (s *Space) Query(kind osier.QueryKind, q *osier.KVQuery, reverse bool, skip, limit int, yield func(*osier.KVRow) bool) error {
	out := &output{yield: yield, skip: skip, limit: limit}
	base := uint64(0)
	if len(q.Pending) > 0 {
		var err error
		if base, err = s.Version(q.Pending[0].Namespace, q.Pending[0].Key); err != nil {
			return err
		}
	}
	var res osier.KVResult
	for i := range q.Pending {
		// Versions of what is not committed are of no account.
		res = osier.KVResult{}
		if err := s.Do(&q.Pending[i], pendingVersion+uint64(i), &res); err != nil {
			return err
		}
	}
	var err error
	switch kind {
	case osier.QueryKVTry:
		err = out.row(&osier.KVRow{Result: &res, Base: base})
	case osier.QueryKVGet:
		err = s.get(q, out)
	case osier.QueryKVScan:
		err = s.scan(q, reverse, out)
	case osier.QueryKVCount:
		err = s.count(q, out)
	case osier.QueryKVRead:
		err = s.read(q, out)
	case osier.QueryKVNamespaces:
		err = s.namespaces(out)
	default:
		err = &osier.Error{Kind: osier.KindUnsupported, Op: "query", Err: errors.New("unknown kind of query")}
	}
	if err == errStop {
		return nil
	}
	return err
}

// pendingVersion is above all versions that are given.
const pendingVersion = 1 << 62

// output hands rows out within skip and limit.
type output struct {
	yield       func(*osier.KVRow) bool
	skip, limit int
	shown       int
}

func (o *output) row(r *osier.KVRow) error {
	if o.skip > 0 {
		o.skip--
		return nil
	}
	if !o.yield(r) {
		return errStop
	}
	if o.shown++; o.shown == o.limit {
		return errStop
	}
	return nil
}

// headRow is a key's row without elements.
func headRow(key string, e *Entry) *osier.KVRow {
	row := &osier.KVRow{Key: key, Type: e.Type, Version: e.Version, Deadline: e.Deadline, Missing: e.Type == osier.KVNone}
	if e.Type == osier.KVPlain || e.Type == osier.KVLeases {
		row.Item.Value = e.Value
	}
	if row.Count = int64(e.Count); e.Type == osier.KVLeases {
		row.Count = int64(e.Token)
	}
	return row
}

func (s *Space) get(q *osier.KVQuery, out *output) error {
	n, err := s.space(q.Namespace, false)
	if err != nil {
		return err
	}
	for _, key := range q.Keys {
		e, err := s.live(n, key)
		if err != nil {
			return err
		}
		row := headRow(key, &e)
		if row.Count = 0; e.Type != osier.KVPlain {
			row.Item.Value = nil
		}
		if err := out.row(row); err != nil {
			return err
		}
	}
	return nil
}

func (s *Space) scan(q *osier.KVQuery, reverse bool, out *output) error {
	n, err := s.space(q.Namespace, false)
	if err != nil || !n.known {
		return err
	}
	return s.walk(n, q.Start, q.End, reverse, func(key string, e *Entry) error {
		row := headRow(key, e)
		if q.NoValues {
			row.Item.Value = nil
		}
		return out.row(row)
	})
}

// walk goes through the live keys of a range.
func (s *Space) walk(n *namespace, start, end string, reverse bool, fn func(key string, e *Entry) error) error {
	prefix := HeadKey(nil, n.Num, "")
	lo, hi := HeadKey(nil, n.Num, start), PrefixEnd(prefix)
	if end != "" {
		hi = HeadKey(nil, n.Num, end)
	}
	var bad error
	err := s.Rows.Scan(lo, hi, reverse, func(key, value []byte) bool {
		e, err := DecodeEntry(value)
		if err != nil {
			bad = corrupt(n.name, string(key[len(prefix):]), err)
			return false
		}
		if e.Live(s.Now) {
			bad = fn(string(key[len(prefix):]), &e)
		}
		return bad == nil
	})
	if bad != nil {
		return bad
	}
	return err
}

// Digest sums up which keys of a range there are, at which versions.
func (s *Space) Digest(r *osier.KVRead) (uint64, error) {
	n, err := s.space(r.Namespace, false)
	if err != nil {
		return 0, err
	}
	d := osier.NewKVDigest()
	if !n.known {
		return d.Sum(), nil
	}
	err = s.walk(n, r.Start, r.End, false, func(key string, e *Entry) error {
		d.Add(key, e.Version)
		return nil
	})
	return d.Sum(), err
}

// count is the namespace's counter, less what is past its deadline and waits to
// be removed.
func (s *Space) count(q *osier.KVQuery, out *output) error {
	n, err := s.space(q.Namespace, false)
	if err != nil {
		return err
	}
	keys, err := s.liveKeys(n)
	if err != nil {
		return err
	}
	return out.row(&osier.KVRow{Count: int64(keys), Version: n.Newest})
}

func (s *Space) liveKeys(n *namespace) (uint64, error) {
	keys := n.Keys
	err := s.Rows.Scan([]byte{SpaceExpiry}, ExpiryKey(nil, s.Now+1, 0, ""), false, func(key, _ []byte) bool {
		if len(key) >= 13 && binary.BigEndian.Uint32(key[9:]) == n.Num {
			keys--
		}
		return true
	})
	return keys, err
}

func (s *Space) namespaces(out *output) error {
	lo := NamespacePrefix()
	var names []string
	err := s.Rows.Scan(lo, PrefixEnd(lo), false, func(key, _ []byte) bool {
		names = append(names, string(key[len(lo):]))
		return true
	})
	for i := 0; err == nil && i < len(names); i++ {
		var n *namespace
		var keys uint64
		if n, err = s.space(names[i], false); err != nil {
			break
		}
		if keys, err = s.liveKeys(n); err != nil {
			break
		}
		err = out.row(&osier.KVRow{Key: names[i], Count: int64(keys)})
	}
	return err
}

// read answers about structures.
func (s *Space) read(q *osier.KVQuery, out *output) error {
	n, err := s.space(q.Namespace, false)
	if err != nil {
		return err
	}
	if len(q.Keys) == 0 {
		return &osier.Error{Kind: osier.KindInvalid, Op: "read", Collection: "kv:" + q.Namespace, Err: errors.New("no key given")}
	}
	xs := make([]*structure, len(q.Keys))
	for i, key := range q.Keys {
		e, err := s.live(n, key)
		if err != nil {
			return err
		}
		e.Value = slices.Clone(e.Value)
		op := &osier.KVOp{Namespace: q.Namespace, Key: key, Verb: readVerb(q.Read)}
		xs[i] = &structure{s: s, num: n.Num, op: op, e: &e, res: &osier.KVResult{}, fresh: e.Type == osier.KVNone}
		if want := readType(q.Read); want != osier.KVNone && !xs[i].fresh && e.Type != want && !(q.Read == osier.KVReadRange && e.Type == osier.KVLists) {
			return &osier.Error{Kind: osier.KindInvalid, Op: "read", Collection: "kv:" + q.Namespace, ID: key, Err: mismatch(op, &e).Err}
		}
	}
	return readers(q, xs, out)
}

// readType is the type that a kind of read is for; a range is for lists too.
func readType(k osier.KVReadKind) osier.KVType {
	switch k {
	case osier.KVReadFields:
		return osier.KVHashes
	case osier.KVReadMembers, osier.KVReadHas, osier.KVReadIntersect, osier.KVReadUnion, osier.KVReadDiff:
		return osier.KVSets
	case osier.KVReadRange, osier.KVReadScore, osier.KVReadRank, osier.KVReadCount:
		return osier.KVSorteds
	}
	return osier.KVNone
}

func readVerb(k osier.KVReadKind) osier.KVVerb {
	switch readType(k) {
	case osier.KVHashes:
		return osier.KVHashSet
	case osier.KVSets:
		return osier.KVSetAdd
	case osier.KVSorteds:
		return osier.KVSortedAdd
	}
	return osier.KVSet
}

func readers(q *osier.KVQuery, xs []*structure, out *output) error {
	x := xs[0]
	row := func(it osier.KVItem, missing bool) error {
		return out.row(&osier.KVRow{Key: x.op.Key, Type: x.e.Type, Version: x.e.Version, Deadline: x.e.Deadline, Item: it, Missing: missing})
	}
	switch q.Read {
	case osier.KVReadHead:
		for _, x := range xs {
			row := headRow(x.op.Key, x.e)
			row.Item.Value, row.Count = nil, 0
			if err := out.row(row); err != nil {
				return err
			}
		}
		return nil
	case osier.KVReadLen:
		return out.row(headRow(x.op.Key, x.e))
	case osier.KVReadRange:
		return x.readRange(&q.Range, func(it osier.KVItem) error { return row(it, false) })
	case osier.KVReadFields:
		return x.readRows(tagField, q.Names, row)
	case osier.KVReadMembers:
		return x.readRows(tagMember, nil, row)
	case osier.KVReadHas:
		return x.readRows(tagMember, q.Names, row)
	case osier.KVReadIntersect, osier.KVReadDiff, osier.KVReadUnion:
		return combine(q.Read, xs, func(name string) error { return row(osier.KVItem{Name: name}, false) })
	case osier.KVReadScore:
		for _, name := range q.Names {
			score, found, err := x.scoreIn(name)
			if err == nil {
				err = row(osier.KVItem{Name: name, Score: score}, !found)
			}
			if err != nil {
				return err
			}
		}
		return nil
	case osier.KVReadRank:
		return x.readRank(q, out)
	case osier.KVReadCount:
		n, err := x.countScores(&q.Range)
		if err != nil {
			return err
		}
		return out.row(&osier.KVRow{Key: x.op.Key, Type: x.e.Type, Version: x.e.Version, Count: int64(n)})
	}
	return Fail(x.op, osier.KindUnsupported, "this version does not know the read %d", q.Read)
}

func (x *structure) scoreIn(name string) (float64, bool, error) {
	if x.fresh {
		return 0, false, nil
	}
	return x.score(name)
}

func (x *structure) readRank(q *osier.KVQuery, out *output) error {
	row := &osier.KVRow{Key: x.op.Key, Type: x.e.Type, Version: x.e.Version, Missing: true}
	if len(q.Names) != 1 {
		return Fail(x.op, osier.KindInvalid, "the rank of one member is asked for at a time")
	}
	score, found, err := x.scoreIn(q.Names[0])
	if err != nil {
		return err
	}
	if found {
		rank, err := x.rankOf(position(score, q.Names[0]))
		if err != nil {
			return err
		}
		row.Missing, row.Item = false, osier.KVItem{Name: q.Names[0], Score: score}
		if row.Count = int64(rank); q.Range.Reverse {
			row.Count = int64(x.e.Count) - 1 - row.Count
		}
	}
	return out.row(row)
}

// readRange walks a range of a list or sorted set.
func (x *structure) readRange(r *osier.KVRange, fn func(osier.KVItem) error) (err error) {
	if x.fresh {
		return nil
	}
	if x.e.Type == osier.KVSorteds {
		bad := x.ranged(r, func(it osier.KVItem) bool { err = fn(it); return err == nil })
		if err != nil {
			return err
		}
		return bad
	}
	start, size := Bounds(r.From, r.To, int64(x.e.Count))
	if size == 0 {
		return nil
	}
	lo := slices.Clone(x.place(start))
	n := int64(0)
	bad := x.s.Rows.Scan(lo, slices.Clone(x.place(start+size)), r.Reverse, func(_, value []byte) bool {
		n++
		err = fn(osier.KVItem{Value: value})
		return err == nil
	})
	if err != nil {
		return err
	}
	if bad == nil && n != size {
		return x.damaged()
	}
	return bad
}

// readRows shows the rows under a tag: those named, or all.
func (x *structure) readRows(tag byte, names []string, row func(osier.KVItem, bool) error) (err error) {
	if names == nil && x.fresh {
		return nil
	}
	if names == nil {
		bad := x.scan(tag, false, func(tail, value []byte) bool {
			err = row(osier.KVItem{Name: string(tail), Value: value}, false)
			return err == nil
		})
		if err != nil {
			return err
		}
		return bad
	}
	for _, name := range names {
		var v []byte
		found := false
		if !x.fresh {
			if v, found, err = x.s.Rows.Get(x.row(tag, name)); err != nil {
				return err
			}
		}
		if err := row(osier.KVItem{Name: name, Value: v}, !found); err != nil {
			return err
		}
	}
	return nil
}

// combine shows the members of an intersection, union or difference in order.
// An intersection walks the smallest set and looks into the others; a union
// collects names in memory.
func combine(kind osier.KVReadKind, xs []*structure, fn func(name string) error) (err error) {
	if kind == osier.KVReadUnion {
		return union(xs, fn)
	}
	walked := 0
	if kind == osier.KVReadIntersect {
		for i, x := range xs {
			if x.e.Count < xs[walked].e.Count {
				walked = i
			}
		}
	}
	if xs[walked].fresh {
		return nil
	}
	bad := xs[walked].scan(tagMember, false, func(tail, _ []byte) bool {
		name := string(tail)
		for i, x := range xs {
			if i == walked {
				continue
			}
			in := false
			if !x.fresh {
				if _, in, err = x.s.Rows.Get(x.row(tagMember, name)); err != nil {
					return false
				}
			}
			if in != (kind == osier.KVReadIntersect) {
				return true
			}
		}
		err = fn(name)
		return err == nil
	})
	if err != nil {
		return err
	}
	return bad
}

func union(xs []*structure, fn func(name string) error) error {
	seen := map[string]bool{}
	for _, x := range xs {
		if x.fresh {
			continue
		}
		if err := x.scan(tagMember, false, func(tail, _ []byte) bool { seen[string(tail)] = true; return true }); err != nil {
			return err
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := fn(name); err != nil {
			return err
		}
	}
	return nil
}
