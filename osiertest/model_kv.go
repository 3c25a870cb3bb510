package osiertest

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/osierdb/osier"
)

// A value is what the model keeps under a key: a plain Go value of its type.
// Once it is in a state it is not changed any more; a change works on a copy.
type value struct {
	typ      osier.KVType
	version  uint64
	deadline int64
	plain    []byte // also a lease's holder
	token    uint64
	list     [][]byte
	hash     map[string][]byte
	set      map[string]bool
	sorted   map[string]float64
}

func (v *value) clone() *value {
	c := *v
	c.list, c.hash, c.set, c.sorted = slices.Clone(v.list), maps.Clone(v.hash), maps.Clone(v.set), maps.Clone(v.sorted)
	return &c
}

func (v *value) size() int { return len(v.list) + len(v.hash) + len(v.set) + len(v.sorted) }

// kvState are the key-values of a database's state.
type kvState struct {
	spaces  map[string]map[string]*value
	newest  map[string]uint64
	version uint64
	log     []kvEvent // what feeds show; it only grows
}

type kvEvent struct {
	namespace string
	change    osier.KVChange
}

func (s *kvState) clone() kvState {
	c := *s
	c.spaces = make(map[string]map[string]*value, len(s.spaces))
	for name, keys := range s.spaces {
		c.spaces[name] = maps.Clone(keys)
	}
	c.newest = make(map[string]uint64, len(s.newest))
	maps.Copy(c.newest, s.newest)
	c.log = slices.Clip(s.log)
	return c
}

// live returns what is under a key at a time, nil if it is vacant.
func (s *kvState) live(namespace, key string, now int64) *value {
	v := s.spaces[namespace][key]
	if v == nil || v.deadline != 0 && v.deadline <= now {
		return nil
	}
	return v
}

// put makes v the state of a key; nil is none.
func (s *kvState) put(namespace, key string, v *value, version uint64, expired bool) {
	if s.spaces[namespace] == nil {
		s.spaces[namespace] = map[string]*value{}
	}
	ch := osier.KVChange{Key: key, Version: version, Expired: expired}
	if v == nil {
		delete(s.spaces[namespace], key)
	} else {
		v.version = version
		s.spaces[namespace][key] = v
		ch.Type, ch.Deadline = v.typ, v.deadline
		if v.typ == osier.KVPlain {
			ch.Value = v.plain
		}
	}
	s.newest[namespace] = version
	s.log = append(s.log, kvEvent{namespace, ch})
}

// expire removes what is past its deadline, in its order.
func (s *kvState) expire(now int64) {
	type due struct {
		namespace, key string
		deadline       int64
	}
	var all []due
	for name, keys := range s.spaces {
		for key, v := range keys {
			if v.deadline != 0 && v.deadline <= now {
				all = append(all, due{name, key, v.deadline})
			}
		}
	}
	slices.SortFunc(all, func(a, b due) int {
		return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.key, b.key))
	})
	for _, d := range all {
		s.version++
		s.put(d.namespace, d.key, nil, s.version, true)
	}
}

// doKV carries an operation on key-values out.
func (x *change) doKV(op *osier.Op) (osier.OpResult, error) {
	s, now := &x.db.kv, x.time.UnixMilli()
	if op.KV == nil {
		return osier.OpResult{}, fail(osier.KindInvalid, "no operation on key-values given")
	}
	switch op.Kind {
	case osier.OpKV:
		s.version++
		res := new(osier.KVResult)
		err := s.do(op.KV, now, s.version, res)
		return osier.OpResult{KV: res}, err
	case osier.OpKVDrop:
		_, existed := s.spaces[op.KV.Namespace]
		delete(s.spaces, op.KV.Namespace)
		delete(s.newest, op.KV.Namespace)
		return osier.OpResult{KV: &osier.KVResult{Found: existed}}, nil
	}
	return osier.OpResult{}, fail(osier.KindUnsupported, "only an engine makes these")
}

func (s *kvState) do(op *osier.KVOp, now int64, version uint64, res *osier.KVResult) error {
	old := s.live(op.Namespace, op.Key, now)
	if err := kvCondition(old, op); err != nil {
		return err
	}
	res.Found = old != nil
	v := &value{}
	if old != nil {
		v = old.clone()
	}
	own := *op
	if own.TTL > 0 {
		own.Deadline = now + own.TTL
	}
	next, changed, err := v.apply(&own, now, version, res)
	if err != nil {
		return err
	}
	if next != nil && next.deadline != 0 && next.deadline <= now {
		next, changed = nil, true
	}
	if !changed || next == nil && old == nil {
		next = old
	} else {
		s.put(op.Namespace, op.Key, next, version, false)
	}
	if next != nil {
		res.Type, res.Version, res.Deadline = next.typ, next.version, next.deadline
	}
	return nil
}

func kvCondition(old *value, op *osier.KVOp) error {
	ok := true
	switch op.If {
	case osier.IfVacant:
		ok = old == nil
	case osier.IfPresent:
		ok = old != nil
	case osier.IfEqual:
		ok = old != nil && old.typ == osier.KVPlain && bytes.Equal(old.plain, op.IfValue)
	case osier.IfVersion:
		ok = old == nil && op.IfVersion == 0 || old != nil && old.version == op.IfVersion
	}
	if !ok {
		return fail(osier.KindConflict, "the condition does not hold")
	}
	return nil
}

// kvTypeOf is the type a verb works on.
func kvTypeOf(v osier.KVVerb) osier.KVType {
	switch {
	case v < osier.KVListPush:
		return osier.KVPlain
	case v < osier.KVHashSet:
		return osier.KVLists
	case v < osier.KVSetAdd:
		return osier.KVHashes
	case v < osier.KVSortedAdd:
		return osier.KVSets
	case v < osier.KVLeaseAcquire:
		return osier.KVSorteds
	}
	return osier.KVLeases
}

// apply changes v, whose type is KVNone if the key is vacant.
func (v *value) apply(op *osier.KVOp, now int64, version uint64, res *osier.KVResult) (next *value, changed bool, err error) {
	typ := kvTypeOf(op.Verb)
	other := v.typ != osier.KVNone && v.typ != typ
	switch op.Verb {
	case osier.KVDelete:
		other = false
	case osier.KVSet, osier.KVExpire, osier.KVPersist:
		other = v.typ == osier.KVLeases
	}
	if other {
		return nil, false, fail(osier.KindInvalid, "the key holds %v", v.typ)
	}
	if op.Previous && v.typ == osier.KVPlain {
		res.Value = slices.Clone(v.plain)
		if res.Value == nil {
			res.Value = []byte{}
		}
	}
	switch typ {
	case osier.KVPlain:
		return v.applyPlain(op, res)
	case osier.KVLeases:
		return v.applyLease(op, now, version, res)
	}
	if v.typ == osier.KVNone {
		v.typ, v.hash, v.set, v.sorted = typ, map[string][]byte{}, map[string]bool{}, map[string]float64{}
	}
	switch typ {
	case osier.KVLists:
		changed, err = v.applyList(op, res)
	case osier.KVHashes:
		changed, err = v.applyHash(op, res)
	case osier.KVSets:
		changed, err = v.applySet(op, res)
	default:
		changed, err = v.applySorted(op, res)
	}
	if v.size() == 0 {
		return nil, changed, err
	}
	return v, changed, err
}

func (v *value) applyPlain(op *osier.KVOp, res *osier.KVResult) (*value, bool, error) {
	switch op.Verb {
	case osier.KVSet:
		n := &value{typ: osier.KVPlain, plain: op.Value, deadline: op.Deadline}
		if op.Keep {
			n.deadline = v.deadline
		}
		return n, true, nil
	case osier.KVDelete:
		return nil, v.typ != osier.KVNone, nil
	case osier.KVExpire, osier.KVPersist:
		if v.typ == osier.KVNone {
			return nil, false, nil
		}
		changed := v.deadline != op.Deadline
		v.deadline = op.Deadline
		return v, changed, nil
	case osier.KVAppend:
		v.typ = osier.KVPlain
		v.plain = slices.Concat(v.plain, op.Value)
		res.Count = int64(len(v.plain))
		return v, true, nil
	case osier.KVAddInt, osier.KVAddUint, osier.KVAddFloat:
		text, number, err := kvSum(op, v.plain)
		if err != nil {
			return nil, false, err
		}
		v.typ, v.plain = osier.KVPlain, text
		res.Value, res.Number = slices.Clone(text), number
		return v, true, nil
	}
	return nil, false, fail(osier.KindUnsupported, "unknown verb %d", op.Verb)
}

// kvSum adds with numbers that have no end, and then looks whether the sum fits.
func kvSum(op *osier.KVOp, have []byte) (text []byte, number uint64, err error) {
	if len(have) == 0 {
		have = []byte("0")
	}
	bad := fail(osier.KindInvalid, "not a number, or one that does not fit")
	if op.Verb == osier.KVAddFloat || op.Verb == osier.KVHashAddFloat {
		a, err := strconv.ParseFloat(string(have), 64)
		b := math.Float64frombits(op.Number)
		if err != nil || a-a != 0 || b-b != 0 || op.Overflow == osier.Wrap {
			return nil, 0, bad
		}
		sum := a + b
		if math.IsInf(sum, 0) {
			if op.Overflow != osier.Saturate {
				return nil, 0, bad
			}
			sum = math.Copysign(math.MaxFloat64, sum)
		}
		return strconv.AppendFloat(nil, sum, 'g', -1, 64), math.Float64bits(sum), nil
	}
	lo, hi := big.NewInt(math.MinInt64), big.NewInt(math.MaxInt64)
	by := big.NewInt(int64(op.Number))
	if op.Verb == osier.KVAddUint {
		lo, hi = big.NewInt(0), new(big.Int).SetUint64(math.MaxUint64)
		if by.SetUint64(op.Number); op.Negative {
			by.Neg(by)
		}
		if _, err := strconv.ParseUint(string(have), 10, 64); err != nil {
			return nil, 0, bad
		}
	} else if _, err := strconv.ParseInt(string(have), 10, 64); err != nil {
		return nil, 0, bad
	}
	sum, _ := new(big.Int).SetString(string(have), 10)
	sum.Add(sum, by)
	if sum.Cmp(lo) < 0 || sum.Cmp(hi) > 0 {
		switch op.Overflow {
		case osier.Fail:
			return nil, 0, bad
		case osier.Saturate:
			if sum.Cmp(lo) < 0 {
				sum = lo
			} else {
				sum = hi
			}
		default:
			span := new(big.Int).Lsh(big.NewInt(1), 64)
			for sum.Cmp(hi) > 0 {
				sum.Sub(sum, span)
			}
			for sum.Cmp(lo) < 0 {
				sum.Add(sum, span)
			}
		}
	}
	number = sum.Uint64()
	if op.Verb != osier.KVAddUint {
		number = uint64(sum.Int64())
	}
	return []byte(sum.String()), number, nil
}

// positions is the run of a list that two positions name.
func positions(from, to int64, n int) (lo, hi int) {
	if from < 0 {
		from = max(from+int64(n), 0)
	}
	if to < 0 {
		to += int64(n)
	}
	to = min(to+1, int64(n))
	if from >= to {
		return 0, 0
	}
	return int(from), int(to)
}

func (v *value) applyList(op *osier.KVOp, res *osier.KVResult) (changed bool, err error) {
	switch op.Verb {
	case osier.KVListPush:
		for _, it := range op.Items {
			if op.Front {
				v.list = slices.Insert(v.list, 0, it.Value)
			} else {
				v.list = append(v.list, it.Value)
			}
		}
		res.Count = int64(len(v.list))
		return len(op.Items) > 0, nil
	case osier.KVListPop:
		for res.Count < op.Count && len(v.list) > 0 {
			i := len(v.list) - 1
			if op.Front {
				i = 0
			}
			res.Items = append(res.Items, osier.KVItem{Value: v.list[i]})
			v.list = slices.Delete(v.list, i, i+1)
			res.Count++
		}
		return res.Count > 0, nil
	case osier.KVListTrim:
		before := len(v.list)
		lo, hi := positions(op.Range.From, op.Range.To, before)
		v.list = v.list[lo:hi]
		res.Count = int64(len(v.list))
		return len(v.list) != before, nil
	case osier.KVListSet:
		i := op.Range.From
		if i < 0 {
			i += int64(len(v.list))
		}
		if i < 0 || i >= int64(len(v.list)) {
			return false, fail(osier.KindNotFound, "no such element")
		}
		v.list[i] = op.Value
		return true, nil
	case osier.KVListRemove:
		left := op.Count
		for i := 0; i < len(v.list) && op.Count >= 0; {
			if bytes.Equal(v.list[i], op.Value) && (op.Count == 0 || left > 0) {
				v.list = slices.Delete(v.list, i, i+1)
				left--
				res.Count++
			} else {
				i++
			}
		}
		for i := len(v.list) - 1; i >= 0 && op.Count < 0; i-- {
			if bytes.Equal(v.list[i], op.Value) && left < 0 {
				v.list = slices.Delete(v.list, i, i+1)
				left++
				res.Count++
			}
		}
		return res.Count > 0, nil
	}
	return false, fail(osier.KindUnsupported, "unknown verb %d", op.Verb)
}

func (v *value) applyHash(op *osier.KVOp, res *osier.KVResult) (changed bool, err error) {
	switch op.Verb {
	case osier.KVHashSet, osier.KVHashInsert:
		for _, it := range op.Items {
			_, there := v.hash[it.Name]
			if there && op.Verb == osier.KVHashInsert {
				continue
			}
			if !there {
				res.Count++
			}
			v.hash[it.Name], changed = it.Value, true
		}
		return changed, nil
	case osier.KVHashDelete:
		for _, it := range op.Items {
			if _, there := v.hash[it.Name]; there {
				delete(v.hash, it.Name)
				res.Count++
			}
		}
		return res.Count > 0, nil
	case osier.KVHashAddInt, osier.KVHashAddFloat:
		text, number, err := kvSum(op, v.hash[op.Items[0].Name])
		if err != nil {
			return false, err
		}
		v.hash[op.Items[0].Name] = text
		res.Value, res.Number = text, number
		return true, nil
	}
	return false, fail(osier.KindUnsupported, "unknown verb %d", op.Verb)
}

func (v *value) applySet(op *osier.KVOp, res *osier.KVResult) (changed bool, err error) {
	for _, it := range op.Items {
		if v.set[it.Name] != (op.Verb == osier.KVSetAdd) {
			res.Count++
		}
		if op.Verb == osier.KVSetAdd {
			v.set[it.Name] = true
		} else {
			delete(v.set, it.Name)
		}
	}
	return res.Count > 0, nil
}

// ranking lists a sorted set in order.
func (v *value) ranking() []osier.KVItem {
	var out []osier.KVItem
	for name, score := range v.sorted {
		out = append(out, osier.KVItem{Name: name, Score: score})
	}
	slices.SortFunc(out, func(a, b osier.KVItem) int {
		return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// ranged picks a range of a sorted set.
func (v *value) ranged(r *osier.KVRange) []osier.KVItem {
	all := v.ranking()
	if r.Reverse {
		slices.Reverse(all)
	}
	if !r.ByScore {
		lo, hi := positions(r.From, r.To, len(all))
		return all[lo:hi]
	}
	var out []osier.KVItem
	skip := r.Skip
	for _, it := range all {
		if it.Score < r.Min || it.Score > r.Max || r.WithoutMin && it.Score == r.Min || r.WithoutMax && it.Score == r.Max {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		if r.Limit > 0 && int64(len(out)) == r.Limit {
			break
		}
		out = append(out, it)
	}
	return out
}

func (v *value) applySorted(op *osier.KVOp, res *osier.KVResult) (changed bool, err error) {
	var gone []osier.KVItem
	switch op.Verb {
	case osier.KVSortedAdd:
		for _, it := range op.Items {
			if math.IsNaN(it.Score) {
				return false, fail(osier.KindInvalid, "not a number")
			}
		}
		for _, it := range op.Items {
			old, there := v.sorted[it.Name]
			if !there {
				res.Count++
			}
			changed = changed || !there || old != it.Score
			v.sorted[it.Name] = it.Score
		}
		return changed, nil
	case osier.KVSortedAddScore:
		old, there := v.sorted[op.Items[0].Name]
		sum := old + op.Items[0].Score
		if math.IsNaN(sum) {
			return false, fail(osier.KindInvalid, "not a number")
		}
		v.sorted[op.Items[0].Name] = sum
		res.Number = math.Float64bits(sum)
		return !there || sum != old, nil
	case osier.KVSortedRemove:
		for _, it := range op.Items {
			if _, there := v.sorted[it.Name]; there {
				delete(v.sorted, it.Name)
				res.Count++
			}
		}
		return res.Count > 0, nil
	case osier.KVSortedPop:
		gone = v.ranged(&osier.KVRange{From: 0, To: op.Count - 1, Reverse: op.Range.Reverse})
		if op.Count <= 0 {
			gone = nil
		}
		res.Items = gone
	case osier.KVSortedRemoveRange:
		gone = v.ranged(&op.Range)
	default:
		return false, fail(osier.KindUnsupported, "unknown verb %d", op.Verb)
	}
	for _, it := range gone {
		delete(v.sorted, it.Name)
	}
	res.Count = int64(len(gone))
	return len(gone) > 0, nil
}

func (v *value) applyLease(op *osier.KVOp, now int64, version uint64, res *osier.KVResult) (*value, bool, error) {
	switch op.Verb {
	case osier.KVLeaseAcquire:
		switch {
		case v.typ != osier.KVNone:
			return nil, false, fail(osier.KindConflict, "the lease is held by %q", v.plain)
		case op.Deadline == 0:
			return nil, false, fail(osier.KindInvalid, "a lease needs a time to live")
		}
		res.Number = version
		return &value{typ: osier.KVLeases, plain: op.Value, deadline: op.Deadline, token: version}, true, nil
	case osier.KVLeaseRenew, osier.KVLeaseRelease:
		if v.typ == osier.KVNone || v.token != op.Number {
			return nil, false, fail(osier.KindConflict, "the lease is not held any more")
		}
		if op.Verb == osier.KVLeaseRelease {
			return nil, true, nil
		}
		if op.Deadline <= now {
			return nil, false, fail(osier.KindInvalid, "a lease needs a time to live")
		}
		v.deadline, res.Number = op.Deadline, v.token
		return v, true, nil
	}
	return nil, false, fail(osier.KindUnsupported, "unknown verb %d", op.Verb)
}

// kvChanged judges what a transaction has seen of key-values.
func (db *database) kvChanged(r *osier.KVRead, now time.Time) bool {
	switch millis := now.UnixMilli(); {
	case r.Key != "":
		v := db.kv.live(r.Namespace, r.Key, millis)
		return v == nil && r.Version != 0 || v != nil && v.version != r.Version
	case r.Whole:
		return db.kv.newest[r.Namespace] != r.Version
	default:
		return db.kv.digest(r, millis) != r.Digest
	}
}

func (s *kvState) digest(r *osier.KVRead, now int64) uint64 {
	d := osier.NewKVDigest()
	for _, key := range slices.Sorted(maps.Keys(s.spaces[r.Namespace])) {
		if v := s.live(r.Namespace, key, now); v != nil && key >= r.Start && (r.End == "" || key < r.End) {
			d.Add(key, v.version)
		}
	}
	return d.Sum()
}

// sealKV refuses what no state could make right, and fixes deadlines.
func sealKV(op *osier.Op, now time.Time) error {
	if op.KV == nil {
		return &osier.Error{Kind: osier.KindInvalid, Op: "exec", Err: fail(osier.KindInvalid, "no operation on key-values given")}
	}
	if op.Kind == osier.OpKVBehind {
		return nil
	}
	if err := osier.CheckKVName(op.KV.Namespace); err != nil {
		return err
	}
	if op.Kind == osier.OpKV && op.KV.Key == "" {
		return &osier.Error{Kind: osier.KindInvalid, Op: "exec", Collection: "kv:" + op.KV.Namespace, Err: fail(osier.KindInvalid, "a key must not be empty")}
	}
	if op.KV.TTL > 0 {
		op.KV.Deadline, op.KV.TTL = now.UnixMilli()+op.KV.TTL, 0
	}
	return nil
}
