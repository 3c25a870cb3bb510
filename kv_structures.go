package osier

import (
	"context"
	"iter"
	"math"
)

// structure is a key that holds elements. Each element is a row of its own in
// the engine, so that a change costs the same however many there are. The key
// expires as a whole (Namespace.Expire) and is gone with its last element. An
// operation on a key of another type is ErrInvalid.
type structure struct {
	n   Namespace
	key string
}

func (s structure) do(ctx context.Context, op KVOp) (*KVResult, error) {
	op.Key = s.key
	return s.n.do(ctx, &op)
}

// count carries an operation out for its count.
func (s structure) count(ctx context.Context, op KVOp) (int64, error) {
	res, err := s.do(ctx, op)
	if err != nil {
		return 0, err
	}
	return res.Count, nil
}

// items reads elements, in memory of their own.
func (s structure) items(ctx context.Context, q KVQuery) (out []KVItem, err error) {
	for it, err := range s.stream(ctx, q) {
		if err != nil {
			return nil, err
		}
		it.Value = append([]byte(nil), it.Value...)
		out = append(out, it)
	}
	return out, nil
}

// stream reads elements that are not missing.
func (s structure) stream(ctx context.Context, q KVQuery) iter.Seq2[KVItem, error] {
	return func(yield func(KVItem, error) bool) {
		if q.Keys == nil {
			q.Keys = []string{s.key}
		}
		for row, err := range s.n.query(ctx, QueryKVRead, &q) {
			if err != nil {
				yield(KVItem{}, err)
				return
			}
			if !row.KV.Missing && !yield(row.KV.Item, nil) {
				return
			}
		}
	}
}

func (s structure) len(ctx context.Context, want KVType) (n int64, err error) {
	have := KVNone
	err = s.n.one(ctx, QueryKVRead, &KVQuery{Keys: []string{s.key}, Read: KVReadLen}, func(row *KVRow) { n, have = row.Count, row.Type })
	if err == nil && have != KVNone && have != want {
		return 0, s.n.fail(KindInvalid, "count elements", s.key, "the key holds "+have.String())
	}
	return n, err
}

func named(names []string) []KVItem {
	items := make([]KVItem, len(names))
	for i, name := range names {
		items[i].Name = name
	}
	return items
}

func valued(values [][]byte) []KVItem {
	items := make([]KVItem, len(values))
	for i, v := range values {
		items[i].Value = v
	}
	return items
}

func values(items []KVItem) [][]byte {
	out := make([][]byte, len(items))
	for i := range items {
		out[i] = items[i].Value
	}
	return out
}

// KVList is a list of values under a key. Positions begin at 0; negative ones
// count from the end, -1 being the last.
type KVList struct{ structure }

// List returns the list under a key; nothing is made before the first element.
func (n Namespace) List(key string) KVList { return KVList{structure{n, key}} }

// PushBack appends values and returns the length. Cost: a row a value.
func (l KVList) PushBack(ctx context.Context, values ...[]byte) (int64, error) {
	return l.count(ctx, KVOp{Verb: KVListPush, Items: valued(values)})
}

// PushFront puts values before the first, one after the other, so that the last
// of them is first then, and returns the length.
func (l KVList) PushFront(ctx context.Context, values ...[]byte) (int64, error) {
	return l.count(ctx, KVOp{Verb: KVListPush, Front: true, Items: valued(values)})
}

// PopFront removes up to n values at the front and returns them, first first.
func (l KVList) PopFront(ctx context.Context, n int64) ([][]byte, error) { return l.pop(ctx, true, n) }

// PopBack removes up to n values at the back and returns them, last first.
func (l KVList) PopBack(ctx context.Context, n int64) ([][]byte, error) { return l.pop(ctx, false, n) }

func (l KVList) pop(ctx context.Context, front bool, n int64) ([][]byte, error) {
	res, err := l.do(ctx, KVOp{Verb: KVListPop, Front: front, Count: n})
	if err != nil {
		return nil, err
	}
	return values(res.Items), nil
}

// Range returns the values from one position to another, both included. Cost: a
// step a value.
func (l KVList) Range(ctx context.Context, from, to int64) ([][]byte, error) {
	items, err := l.items(ctx, KVQuery{Read: KVReadRange, Range: KVRange{From: from, To: to}})
	return values(items), err
}

// At returns the value at a position; ErrNotFound if there is none.
func (l KVList) At(ctx context.Context, i int64) ([]byte, error) {
	// A negative position is a run of one from the end.
	out, err := l.Range(ctx, i, i)
	if err == nil && len(out) == 0 {
		err = l.n.fail(KindNotFound, "get element", l.key, "")
	}
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// SetAt replaces the value at a position; ErrNotFound if there is none.
func (l KVList) SetAt(ctx context.Context, i int64, value []byte) error {
	_, err := l.do(ctx, KVOp{Verb: KVListSet, Range: KVRange{From: i}, Value: value})
	return err
}

// Trim keeps the values from one position to another, both included, and returns
// the length. Cost does not grow with the number of those that go.
func (l KVList) Trim(ctx context.Context, from, to int64) (int64, error) {
	return l.count(ctx, KVOp{Verb: KVListTrim, Range: KVRange{From: from, To: to}})
}

// Remove removes values equal to value: the first n, the last -n, or with 0 all,
// and returns how many went. Cost: the whole list.
func (l KVList) Remove(ctx context.Context, value []byte, n int64) (int64, error) {
	return l.count(ctx, KVOp{Verb: KVListRemove, Value: value, Count: n})
}

// Len returns the length, 0 if the key is vacant.
func (l KVList) Len(ctx context.Context) (int64, error) { return l.len(ctx, KVLists) }

// KVHash is fields with values under a key.
type KVHash struct{ structure }

// Hash returns the hash under a key; nothing is made before the first field.
func (n Namespace) Hash(key string) KVHash { return KVHash{structure{n, key}} }

// Set writes fields (Name, Value) and returns how many are new.
func (h KVHash) Set(ctx context.Context, fields ...KVItem) (int64, error) {
	return h.count(ctx, KVOp{Verb: KVHashSet, Items: fields})
}

// SetField writes one field and reports whether it is new.
func (h KVHash) SetField(ctx context.Context, name string, value []byte) (bool, error) {
	n, err := h.Set(ctx, KVItem{Name: name, Value: value})
	return n > 0, err
}

// Insert writes those of the fields that are not there, and returns how many.
func (h KVHash) Insert(ctx context.Context, fields ...KVItem) (int64, error) {
	return h.count(ctx, KVOp{Verb: KVHashInsert, Items: fields})
}

// Get returns a field's value; ErrNotFound if there is none.
func (h KVHash) Get(ctx context.Context, name string) ([]byte, error) {
	items, err := h.items(ctx, KVQuery{Read: KVReadFields, Names: []string{name}})
	if err == nil && len(items) == 0 {
		err = h.n.fail(KindNotFound, "get field", h.key, "")
	}
	if err != nil {
		return nil, err
	}
	return items[0].Value, nil
}

// GetMany returns those of the fields that are there.
func (h KVHash) GetMany(ctx context.Context, names ...string) ([]KVItem, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return h.items(ctx, KVQuery{Read: KVReadFields, Names: names})
}

// All streams the fields in the order of their names. Values are valid until the
// next one.
func (h KVHash) All(ctx context.Context) iter.Seq2[KVItem, error] {
	return h.stream(ctx, KVQuery{Read: KVReadFields})
}

// Delete removes fields and returns how many there were.
func (h KVHash) Delete(ctx context.Context, names ...string) (int64, error) {
	return h.count(ctx, KVOp{Verb: KVHashDelete, Items: named(names)})
}

// Add adds to a field's number, as Namespace.AddWith does to a value's.
func (h KVHash) Add(ctx context.Context, name string, by int64, o Overflow) (int64, error) {
	res, err := h.do(ctx, KVOp{Verb: KVHashAddInt, Items: named([]string{name}), Number: uint64(by), Overflow: o})
	if err != nil {
		return 0, err
	}
	return int64(res.Number), nil
}

// AddFloat is Add for floating-point numbers.
func (h KVHash) AddFloat(ctx context.Context, name string, by float64, o Overflow) (float64, error) {
	res, err := h.do(ctx, KVOp{Verb: KVHashAddFloat, Items: named([]string{name}), Number: math.Float64bits(by), Overflow: o})
	if err != nil {
		return 0, err
	}
	return math.Float64frombits(res.Number), nil
}

// Len returns the number of fields, 0 if the key is vacant.
func (h KVHash) Len(ctx context.Context) (int64, error) { return h.len(ctx, KVHashes) }

// KVMembers is a set of members under a key.
type KVMembers struct{ structure }

// Members returns the set under a key; nothing is made before the first member.
func (n Namespace) Members(key string) KVMembers { return KVMembers{structure{n, key}} }

// Add adds members and returns how many are new.
func (m KVMembers) Add(ctx context.Context, members ...string) (int64, error) {
	return m.count(ctx, KVOp{Verb: KVSetAdd, Items: named(members)})
}

// Remove removes members and returns how many there were.
func (m KVMembers) Remove(ctx context.Context, members ...string) (int64, error) {
	return m.count(ctx, KVOp{Verb: KVSetRemove, Items: named(members)})
}

// Has reports whether a member is in the set.
func (m KVMembers) Has(ctx context.Context, member string) (bool, error) {
	items, err := m.items(ctx, KVQuery{Read: KVReadHas, Names: []string{member}})
	return len(items) > 0, err
}

// All streams the members in order.
func (m KVMembers) All(ctx context.Context) iter.Seq2[string, error] {
	return m.names(ctx, KVQuery{Read: KVReadMembers})
}

// Intersect streams the members that are in this set and in those under all the
// other keys, in order. Cost: a walk over the smallest with a look-up in each
// other.
func (m KVMembers) Intersect(ctx context.Context, keys ...string) iter.Seq2[string, error] {
	return m.names(ctx, KVQuery{Read: KVReadIntersect, Keys: append([]string{m.key}, keys...)})
}

// Union streams the members of this set and of those under the other keys, in
// order. The names are collected in memory.
func (m KVMembers) Union(ctx context.Context, keys ...string) iter.Seq2[string, error] {
	return m.names(ctx, KVQuery{Read: KVReadUnion, Keys: append([]string{m.key}, keys...)})
}

// Without streams the members of this set that are in none of those under the
// other keys, in order.
func (m KVMembers) Without(ctx context.Context, keys ...string) iter.Seq2[string, error] {
	return m.names(ctx, KVQuery{Read: KVReadDiff, Keys: append([]string{m.key}, keys...)})
}

func (m KVMembers) names(ctx context.Context, q KVQuery) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for it, err := range m.stream(ctx, q) {
			if !yield(it.Name, err) || err != nil {
				return
			}
		}
	}
}

// Len returns the number of members, 0 if the key is vacant.
func (m KVMembers) Len(ctx context.Context) (int64, error) { return m.len(ctx, KVSets) }

// KVSorted is a set whose members have scores, in the order of these and, among
// equal ones, of the members' bytes. A change, a rank and the begin of a range
// cost O(log n) steps in the engine.
type KVSorted struct{ structure }

// Sorted returns the sorted set under a key; nothing is made before the first
// member.
func (n Namespace) Sorted(key string) KVSorted { return KVSorted{structure{n, key}} }

// Add sets scores of members (Name, Score) and returns how many are new. A score
// may be infinite but must be a number.
func (s KVSorted) Add(ctx context.Context, members ...KVItem) (int64, error) {
	return s.count(ctx, KVOp{Verb: KVSortedAdd, Items: members})
}

// AddScore adds to a member's score, a new one beginning at 0, and returns it.
func (s KVSorted) AddScore(ctx context.Context, member string, by float64) (float64, error) {
	res, err := s.do(ctx, KVOp{Verb: KVSortedAddScore, Items: []KVItem{{Name: member, Score: by}}})
	if err != nil {
		return 0, err
	}
	return math.Float64frombits(res.Number), nil
}

// Remove removes members and returns how many there were.
func (s KVSorted) Remove(ctx context.Context, members ...string) (int64, error) {
	return s.count(ctx, KVOp{Verb: KVSortedRemove, Items: named(members)})
}

// RemoveRange removes the members of a range and returns how many there were.
func (s KVSorted) RemoveRange(ctx context.Context, r KVRange) (int64, error) {
	return s.count(ctx, KVOp{Verb: KVSortedRemoveRange, Range: r})
}

// PopMin removes up to n members with the lowest scores, and returns them,
// lowest first.
func (s KVSorted) PopMin(ctx context.Context, n int64) ([]KVItem, error) { return s.pop(ctx, n, false) }

// PopMax is PopMin from the other end, highest first.
func (s KVSorted) PopMax(ctx context.Context, n int64) ([]KVItem, error) { return s.pop(ctx, n, true) }

func (s KVSorted) pop(ctx context.Context, n int64, reverse bool) ([]KVItem, error) {
	res, err := s.do(ctx, KVOp{Verb: KVSortedPop, Count: n, Range: KVRange{Reverse: reverse}})
	if err != nil {
		return nil, err
	}
	return res.Items, nil
}

// Score returns a member's score; ErrNotFound if it is not there.
func (s KVSorted) Score(ctx context.Context, member string) (float64, error) {
	items, err := s.items(ctx, KVQuery{Read: KVReadScore, Names: []string{member}})
	if err == nil && len(items) == 0 {
		err = s.n.fail(KindNotFound, "get score", s.key, "")
	}
	if err != nil {
		return 0, err
	}
	return items[0].Score, nil
}

// Rank returns how many members are before it, or, reversed, after it;
// ErrNotFound if it is not there.
func (s KVSorted) Rank(ctx context.Context, member string, reverse bool) (rank int64, err error) {
	missing := false
	err = s.n.one(ctx, QueryKVRead, &KVQuery{Keys: []string{s.key}, Read: KVReadRank, Names: []string{member}, Range: KVRange{Reverse: reverse}}, func(row *KVRow) {
		rank, missing = row.Count, row.Missing
	})
	if err == nil && missing {
		err = s.n.fail(KindNotFound, "get rank", s.key, "")
	}
	return rank, err
}

// Range streams the members of a range by rank or score.
func (s KVSorted) Range(ctx context.Context, r KVRange) iter.Seq2[KVItem, error] {
	return s.stream(ctx, KVQuery{Read: KVReadRange, Range: r})
}

// CountScores returns how many members have a score within the range, in
// O(log n).
func (s KVSorted) CountScores(ctx context.Context, r KVRange) (n int64, err error) {
	r.ByScore = true
	err = s.n.one(ctx, QueryKVRead, &KVQuery{Keys: []string{s.key}, Read: KVReadCount, Range: r}, func(row *KVRow) { n = row.Count })
	return n, err
}

// Len returns the number of members, 0 if the key is vacant.
func (s KVSorted) Len(ctx context.Context) (int64, error) { return s.len(ctx, KVSorteds) }
