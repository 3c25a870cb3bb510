package kv

import (
	"encoding/binary"
	"slices"

	"github.com/osierdb/osier"
)

// structure is a verb at work on a list, hash, set, sorted set or lease. Verbs
// check everything before they write.
type structure struct {
	s       *Space
	num     uint32
	op      *osier.KVOp
	e       *Entry // as it will be
	res     *osier.KVResult
	version uint64
	fresh   bool // the key is vacant so far
	key     []byte
}

// Tags of element rows.
const (
	tagValue  = 'v' // lists: place(8) -> value
	tagField  = 'f' // hashes: name -> value
	tagMember = 'm' // sets: member; sorted sets: member -> score(8)
	tagScore  = 's' // sorted sets: score(8) member
	tagCount  = 'c' // sorted sets: level(1) [score(8) member] -> elements up to the next of the level
)

// verbOf says which type a verb is for, and what it does.
func verbOf(v osier.KVVerb) (osier.KVType, func(*structure) (bool, error)) {
	switch v {
	case osier.KVListPush:
		return osier.KVLists, (*structure).push
	case osier.KVListPop:
		return osier.KVLists, (*structure).pop
	case osier.KVListTrim:
		return osier.KVLists, (*structure).trim
	case osier.KVListSet:
		return osier.KVLists, (*structure).setAt
	case osier.KVListRemove:
		return osier.KVLists, (*structure).removeEqual
	case osier.KVHashSet, osier.KVHashInsert:
		return osier.KVHashes, (*structure).setFields
	case osier.KVHashDelete:
		return osier.KVHashes, (*structure).deleteFields
	case osier.KVHashAddInt, osier.KVHashAddFloat:
		return osier.KVHashes, (*structure).addToField
	case osier.KVSetAdd:
		return osier.KVSets, (*structure).addMembers
	case osier.KVSetRemove:
		return osier.KVSets, (*structure).removeMembers
	case osier.KVSortedAdd:
		return osier.KVSorteds, (*structure).addScored
	case osier.KVSortedRemove:
		return osier.KVSorteds, (*structure).removeScored
	case osier.KVSortedAddScore:
		return osier.KVSorteds, (*structure).addScore
	case osier.KVSortedPop:
		return osier.KVSorteds, (*structure).popScored
	case osier.KVSortedRemoveRange:
		return osier.KVSorteds, (*structure).removeRange
	case osier.KVLeaseAcquire:
		return osier.KVLeases, (*structure).acquire
	case osier.KVLeaseRenew:
		return osier.KVLeases, (*structure).renew
	case osier.KVLeaseRelease:
		return osier.KVLeases, (*structure).release
	}
	return osier.KVNone, nil
}

// row is the key of an element; it is valid until the next call.
func (x *structure) row(tag byte, name string) []byte {
	x.key = append(ElementKey(x.key[:0], x.num, x.e.ID, tag), name...)
	return x.key
}

// rows bounds the elements under a tag.
func (x *structure) rows(tag byte) (lo, hi []byte) {
	lo = ElementKey(nil, x.num, x.e.ID, tag)
	return lo, PrefixEnd(lo)
}

// scan walks rows; tail is what follows the tag.
func (x *structure) scan(tag byte, reverse bool, fn func(tail, value []byte) bool) error {
	lo, hi := x.rows(tag)
	return x.s.Rows.Scan(lo, hi, reverse, func(key, value []byte) bool { return fn(key[len(lo):], value) })
}

func (x *structure) damaged() error { return corrupt(x.op.Namespace, x.op.Key, ErrRecord) }

// Lists: element i of n is in the row of place First+i.

// place is an element's row, in an order-preserving form.
func (x *structure) place(i int64) []byte {
	x.key = ElementKey(x.key[:0], x.num, x.e.ID, tagValue)
	x.key = binary.BigEndian.AppendUint64(x.key, uint64(x.e.First+i)^1<<63)
	return x.key
}

func (x *structure) element(i int64) ([]byte, error) {
	v, found, err := x.s.Rows.Get(x.place(i))
	if err == nil && !found {
		err = x.damaged()
	}
	return v, err
}

func (x *structure) push() (bool, error) {
	for i := range x.op.Items {
		if x.op.Front {
			x.e.First--
			x.s.Rows.Set(x.place(0), x.op.Items[i].Value)
		} else {
			x.s.Rows.Set(x.place(int64(x.e.Count)), x.op.Items[i].Value)
		}
		x.e.Count++
	}
	x.res.Count = int64(x.e.Count)
	return len(x.op.Items) > 0, nil
}

func (x *structure) pop() (bool, error) {
	n := min(x.op.Count, int64(x.e.Count))
	for i := range n {
		at := i
		if !x.op.Front {
			at = int64(x.e.Count) - 1 - i
		}
		v, err := x.element(at)
		if err != nil {
			return false, err
		}
		x.res.Items = append(x.res.Items, osier.KVItem{Value: slices.Clone(v)})
	}
	x.res.Count = max(n, 0)
	x.cut(x.op.Front, n)
	return n > 0, nil
}

// cut removes n elements at an end. Many of them go as a range.
func (x *structure) cut(front bool, n int64) {
	if n <= 0 {
		return
	}
	from := int64(0)
	if !front {
		from = int64(x.e.Count) - n
	}
	if n < 16 {
		for i := range n {
			x.s.Rows.Delete(x.place(from + i))
		}
	} else {
		lo := slices.Clone(x.place(from))
		x.s.Rows.DeleteRange(lo, slices.Clone(x.place(from+n)))
	}
	if front {
		x.e.First += n
	}
	x.e.Count -= uint64(n)
}

// Bounds turns positions, negative ones counted from the end, into a run of n
// elements; size 0 is none.
func Bounds(from, to, n int64) (start, size int64) {
	if from < 0 {
		from = max(from+n, 0)
	}
	if to < 0 {
		to += n
	}
	to = min(to, n-1)
	if from > to {
		return 0, 0
	}
	return from, to - from + 1
}

func (x *structure) trim() (bool, error) {
	n := int64(x.e.Count)
	start, size := Bounds(x.op.Range.From, x.op.Range.To, n)
	x.cut(false, n-start-size)
	x.cut(true, start)
	x.res.Count = int64(x.e.Count)
	return size != n, nil
}

func (x *structure) setAt() (bool, error) {
	i := x.op.Range.From
	if i < 0 {
		i += int64(x.e.Count)
	}
	if i < 0 || i >= int64(x.e.Count) {
		return false, Fail(x.op, osier.KindNotFound, "the list has %d elements", x.e.Count)
	}
	x.s.Rows.Set(x.place(i), x.op.Value)
	return true, nil
}

// removeEqual rewrites the list from the first removed element on: its cost is
// the length of the list.
func (x *structure) removeEqual() (bool, error) {
	var all [][]byte
	err := x.scan(tagValue, false, func(_, value []byte) bool {
		all = append(all, slices.Clone(value))
		return true
	})
	if err != nil || len(all) == 0 {
		return false, err
	}
	back := x.op.Count < 0
	left := x.op.Count
	if back {
		left = -left
		slices.Reverse(all)
	}
	kept := make([][]byte, 0, len(all))
	for _, v := range all {
		if string(v) == string(x.op.Value) && (x.op.Count == 0 || left > 0) {
			left--
			continue
		}
		kept = append(kept, v)
	}
	if back {
		slices.Reverse(all)
		slices.Reverse(kept)
	}
	n := len(all) - len(kept)
	for i, v := range kept {
		if string(v) != string(all[i]) {
			x.s.Rows.Set(x.place(int64(i)), v)
		}
	}
	x.cut(false, int64(n))
	x.res.Count = int64(n)
	return n > 0, nil
}

// Hashes.

func (x *structure) setFields() (bool, error) {
	changed := false
	for i := range x.op.Items {
		it := &x.op.Items[i]
		_, found, err := x.s.Rows.Get(x.row(tagField, it.Name))
		if err != nil {
			return false, err
		}
		if found && x.op.Verb == osier.KVHashInsert {
			continue
		}
		x.s.Rows.Set(x.row(tagField, it.Name), it.Value)
		changed = true
		if !found {
			x.e.Count++
			x.res.Count++
		}
	}
	return changed, nil
}

// remove removes rows under a tag by the items' names.
func (x *structure) remove(tag byte) (bool, error) {
	for i := range x.op.Items {
		_, found, err := x.s.Rows.Get(x.row(tag, x.op.Items[i].Name))
		if err != nil {
			return false, err
		}
		if found && x.e.Count > 0 {
			x.s.Rows.Delete(x.row(tag, x.op.Items[i].Name))
			x.e.Count--
			x.res.Count++
		}
	}
	return x.res.Count > 0, nil
}

func (x *structure) deleteFields() (bool, error) { return x.remove(tagField) }

func (x *structure) addToField() (bool, error) {
	if len(x.op.Items) != 1 {
		return false, Fail(x.op, osier.KindInvalid, "an addition is to one field")
	}
	name := x.op.Items[0].Name
	v, found, err := x.s.Rows.Get(x.row(tagField, name))
	if err != nil {
		return false, err
	}
	sum, number, err := add(x.op, v, nil)
	if err != nil {
		return false, err
	}
	x.s.Rows.Set(x.row(tagField, name), sum)
	if !found {
		x.e.Count++
	}
	x.res.Value, x.res.Number = sum, number
	return true, nil
}

// Sets.

func (x *structure) addMembers() (bool, error) {
	for i := range x.op.Items {
		key := x.row(tagMember, x.op.Items[i].Name)
		_, found, err := x.s.Rows.Get(key)
		if err != nil {
			return false, err
		}
		if !found {
			x.s.Rows.Set(key, nil)
			x.e.Count++
			x.res.Count++
		}
	}
	return x.res.Count > 0, nil
}

func (x *structure) removeMembers() (bool, error) { return x.remove(tagMember) }

// Leases: whoever holds one has its token, the version at which it was taken.
// Versions only grow, so a later holder's token is always greater.

func (x *structure) acquire() (bool, error) {
	if !x.fresh {
		return false, Fail(x.op, osier.KindConflict, "the lease is held by %q", x.e.Value)
	}
	if x.op.Deadline == 0 {
		return false, Fail(x.op, osier.KindInvalid, "a lease needs a time to live")
	}
	x.e.Value, x.e.Deadline, x.e.Token = x.op.Value, x.op.Deadline, x.version
	x.res.Number = x.version
	return x.e.Deadline > x.s.Now, nil
}

// held refuses a token that is not the present holder's.
func (x *structure) held() error {
	if x.fresh || x.e.Token != x.op.Number {
		return Fail(x.op, osier.KindConflict, "the lease with token %d is not held any more", x.op.Number)
	}
	return nil
}

func (x *structure) renew() (bool, error) {
	if err := x.held(); err != nil {
		return false, err
	}
	if x.op.Deadline <= x.s.Now {
		return false, Fail(x.op, osier.KindInvalid, "a lease needs a time to live")
	}
	x.e.Deadline = x.op.Deadline
	x.res.Number = x.e.Token
	return true, nil
}

func (x *structure) release() (bool, error) {
	if err := x.held(); err != nil {
		return false, err
	}
	*x.e = Entry{}
	return true, nil
}
