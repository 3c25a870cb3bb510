package kv

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/osierdb/osier"
)

// A sorted set keeps its members in order of (score, member), and above them
// levels of counts, so that ranks need no walk. About one element in 32 is also
// a boundary on level 1, one in 32 of these on level 2, and so on, chosen by a
// hash of the member: a skip list whose shape depends on nothing but its
// content. A boundary's row on a level holds how many elements there are from it
// up to the level's next boundary; before the first boundary of a level stands
// its beginning, a row without an element. A change touches one row a level,
// and a rank adds up some 32 rows a level.

// maxLevels is enough for 32^8 elements.
const maxLevels = 8

// levelOf says up to which level an element is a boundary.
func levelOf(id uint64, member string) uint64 {
	h := uint64(14695981039346656037) ^ id*0x9E3779B97F4A7C15
	for i := range len(member) {
		h = (h ^ uint64(member[i])) * 1099511628211
	}
	// Spread what the last bytes changed over all bits.
	h ^= h >> 33
	h *= 0xFF51AFD7ED558CCD
	h ^= h >> 33
	level := uint64(0)
	for h&31 == 0 && level < maxLevels {
		level++
		h >>= 5
	}
	return level
}

// appendScore writes a score so that the order of bytes is that of numbers.
func appendScore(dst []byte, f float64) []byte {
	b := math.Float64bits(f + 0) // -0 becomes 0
	if b>>63 != 0 {
		b = ^b
	} else {
		b |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, b)
}

func scoreOf(b []byte) float64 {
	n := binary.BigEndian.Uint64(b)
	if n>>63 != 0 {
		return math.Float64frombits(n &^ (1 << 63))
	}
	return math.Float64frombits(^n)
}

// position is an element's place in the order, as rows have it.
func position(score float64, member string) string {
	return string(append(appendScore(make([]byte, 0, 8+len(member)), score), member...))
}

// boundary is a row of counts.
type boundary struct {
	at    string // its position; "" is the level's beginning
	count uint64
}

func (x *structure) setBoundary(level uint64, b boundary) {
	x.key = append(ElementKey(x.key[:0], x.num, x.e.ID, tagCount, byte(level)), b.at...)
	var buf [binary.MaxVarintLen64]byte
	x.s.Rows.Set(x.key, binary.AppendUvarint(buf[:0], b.count))
}

// levelRange bounds the boundaries of a level between two positions; "" for
// hi is no bound.
func (x *structure) levelRange(level uint64, lo, hi string) (from, to []byte, base int) {
	start := ElementKey(nil, x.num, x.e.ID, tagCount, byte(level))
	from = append(slices.Clone(start), lo...)
	if to = PrefixEnd(start); hi != "" {
		to = append(slices.Clone(start), hi...)
	}
	return from, to, len(start)
}

// boundaryAt finds the last boundary of a level that is not after a position.
func (x *structure) boundaryAt(level uint64, at string) (b boundary, err error) {
	lo, hi, base := x.levelRange(level, "", at+"\x00")
	bad := true
	err = x.s.Rows.Scan(lo, hi, true, func(key, value []byte) bool {
		n, k := binary.Uvarint(value)
		b, bad = boundary{string(key[base:]), n}, k <= 0
		return false
	})
	if err == nil && bad {
		err = x.damaged()
	}
	return b, err
}

// before counts the elements from a boundary of the level above up to, but
// without, a position; cur is the last boundary of level that is not after it.
func (x *structure) before(level uint64, from, at string) (n uint64, cur string, err error) {
	lo, hi, base := x.levelRange(level, from, at)
	bad, last := false, uint64(0)
	cur = from
	err = x.s.Rows.Scan(lo, hi, false, func(key, value []byte) bool {
		c, k := binary.Uvarint(value)
		bad = bad || k <= 0
		n += last
		last, cur = c, string(key[base:])
		return true
	})
	if err == nil && bad {
		err = x.damaged()
	}
	return n, cur, err
}

// countElements counts elements between two positions, one by one.
func (x *structure) countElements(from, to string) (n uint64, err error) {
	start, end := x.rows(tagScore)
	lo := append(slices.Clone(start), from...)
	if to != "" {
		end = append(slices.Clone(start), to...)
	}
	err = x.s.Rows.Scan(lo, end, false, func(_, _ []byte) bool { n++; return true })
	return n, err
}

// rankOf counts the elements before a position.
func (x *structure) rankOf(at string) (n uint64, err error) {
	cur := ""
	for level := x.e.Levels; level > 0; level-- {
		part, next, err := x.before(level, cur, at)
		if err != nil {
			return 0, err
		}
		n += part
		cur = next
	}
	part, err := x.countElements(cur, at)
	return n + part, err
}

// selectAt finds the position of the element of a rank.
func (x *structure) selectAt(rank uint64) (at string, err error) {
	cur, n := "", uint64(0)
	for level := x.e.Levels; level > 0; level-- {
		lo, hi, base := x.levelRange(level, cur, "")
		bad := false
		err := x.s.Rows.Scan(lo, hi, false, func(key, value []byte) bool {
			c, k := binary.Uvarint(value)
			if bad = k <= 0; bad {
				return false
			}
			cur = string(key[base:])
			if n+c > rank {
				return false
			}
			n += c
			return true
		})
		if err != nil || bad {
			return "", orDamaged(err, x)
		}
	}
	start, end := x.rows(tagScore)
	found := false
	err = x.s.Rows.Scan(append(slices.Clone(start), cur...), end, false, func(key, _ []byte) bool {
		if found = n == rank; found {
			at = string(key[len(start):])
			return false
		}
		n++
		return true
	})
	if err != nil || !found {
		return "", orDamaged(err, x)
	}
	return at, nil
}

func orDamaged(err error, x *structure) error {
	if err != nil {
		return err
	}
	return x.damaged()
}

// link puts an element that is not there into the order.
func (x *structure) link(score float64, member string) error {
	at, top := position(score, member), levelOf(x.e.ID, member)
	for x.e.Levels < top {
		x.e.Levels++
		x.setBoundary(x.e.Levels, boundary{"", x.e.Count})
	}
	x.s.Rows.Set(x.row(tagScore, at), nil)
	for level := uint64(1); level <= x.e.Levels; level++ {
		b, err := x.boundaryAt(level, at)
		if err != nil {
			return err
		}
		if level > top {
			b.count++
			x.setBoundary(level, b)
			continue
		}
		// The element divides b's stretch.
		left, err := x.stretch(level, b.at, at)
		if err != nil {
			return err
		}
		x.setBoundary(level, boundary{at, b.count - left + 1})
		b.count = left
		x.setBoundary(level, b)
	}
	x.e.Count++
	return nil
}

// stretch counts the elements of a level's stretch before a position, which is
// a boundary of the levels below already.
func (x *structure) stretch(level uint64, from, at string) (n uint64, err error) {
	if level == 1 {
		return x.countElements(from, at)
	}
	lo, hi, _ := x.levelRange(level-1, from, at)
	err = x.s.Rows.Scan(lo, hi, false, func(_, value []byte) bool {
		c, _ := binary.Uvarint(value)
		n += c
		return true
	})
	return n, err
}

// unlink takes an element out of the order.
func (x *structure) unlink(score float64, member string) error {
	at, top := position(score, member), levelOf(x.e.ID, member)
	x.s.Rows.Delete(x.row(tagScore, at))
	for level := uint64(1); level <= x.e.Levels; level++ {
		b, err := x.boundaryAt(level, at)
		if err != nil {
			return err
		}
		if level > top {
			b.count--
			x.setBoundary(level, b)
			continue
		}
		// Its stretch joins the one before it.
		lo, _, _ := x.levelRange(level, at, "")
		x.s.Rows.Delete(lo)
		left, err := x.boundaryAt(level, at)
		if err != nil {
			return err
		}
		left.count += b.count - 1
		x.setBoundary(level, left)
	}
	x.e.Count--
	return nil
}

// score reads a member's score.
func (x *structure) score(member string) (score float64, found bool, err error) {
	v, found, err := x.s.Rows.Get(x.row(tagMember, member))
	if err != nil || !found {
		return 0, false, err
	}
	if len(v) != 8 {
		return 0, false, x.damaged()
	}
	return scoreOf(v), true, nil
}

// place sets a member's score.
func (x *structure) placeScored(member string, score float64) (added, moved bool, err error) {
	old, found, err := x.score(member)
	if err != nil || found && old == score {
		return false, false, err
	}
	if found {
		if err := x.unlink(old, member); err != nil {
			return false, false, err
		}
	}
	var buf [8]byte
	x.s.Rows.Set(x.row(tagMember, member), appendScore(buf[:0], score))
	return !found, true, x.link(score, member)
}

func (x *structure) addScored() (bool, error) {
	for i := range x.op.Items {
		if math.IsNaN(x.op.Items[i].Score) {
			return false, Fail(x.op, osier.KindInvalid, "a score must be a number")
		}
	}
	changed := false
	for i := range x.op.Items {
		added, moved, err := x.placeScored(x.op.Items[i].Name, x.op.Items[i].Score)
		if err != nil {
			return false, err
		}
		if changed = changed || moved; added {
			x.res.Count++
		}
	}
	return changed, nil
}

func (x *structure) addScore() (bool, error) {
	if len(x.op.Items) != 1 {
		return false, Fail(x.op, osier.KindInvalid, "an addition is to one member")
	}
	it := &x.op.Items[0]
	old, found, err := x.score(it.Name)
	if err != nil {
		return false, err
	}
	sum := old + it.Score
	if math.IsNaN(sum) {
		return false, Fail(x.op, osier.KindInvalid, "a score must be a number")
	}
	x.res.Number = math.Float64bits(sum)
	if found && sum == old {
		return false, nil
	}
	_, _, err = x.placeScored(it.Name, sum)
	return true, err
}

func (x *structure) removeMember(member string, score float64) error {
	x.s.Rows.Delete(x.row(tagMember, member))
	x.res.Count++
	return x.unlink(score, member)
}

func (x *structure) removeScored() (bool, error) {
	for i := range x.op.Items {
		member := x.op.Items[i].Name
		score, found, err := x.score(member)
		if err != nil {
			return false, err
		}
		if found {
			if err := x.removeMember(member, score); err != nil {
				return false, err
			}
		}
	}
	return x.res.Count > 0, nil
}

// elements walks the sorted set from a position on, in either direction.
func (x *structure) elements(from string, reverse bool, fn func(at string, it osier.KVItem) bool) error {
	start, end := x.rows(tagScore)
	lo, hi := append(slices.Clone(start), from...), end
	if reverse {
		if lo = start; from != "" {
			hi = append(append(slices.Clone(start), from...), 0)
		}
	}
	bad := false
	err := x.s.Rows.Scan(lo, hi, reverse, func(key, _ []byte) bool {
		at := key[len(start):]
		if bad = len(at) < 8; bad {
			return false
		}
		return fn(string(at), osier.KVItem{Name: string(at[8:]), Score: scoreOf(at)})
	})
	if bad {
		return x.damaged()
	}
	return err
}

// ranged walks the elements of a range. Cost: O(log n) to begin, then a step an
// element.
func (x *structure) ranged(r *osier.KVRange, fn func(it osier.KVItem) bool) error {
	n := int64(x.e.Count)
	if n == 0 {
		return nil
	}
	if r.ByScore {
		return x.byScore(r, fn)
	}
	start, size := Bounds(r.From, r.To, n)
	if size == 0 {
		return nil
	}
	if r.Reverse {
		start = n - 1 - start
	}
	at, err := x.selectAt(uint64(start))
	if err != nil {
		return err
	}
	return x.elements(at, r.Reverse, func(_ string, it osier.KVItem) bool {
		size--
		return fn(it) && size > 0
	})
}

// scoreBounds are the positions that bound a range of scores.
func scoreBounds(r *osier.KVRange) (lo, hi string) {
	low, high := appendScore(nil, r.Min), appendScore(nil, r.Max)
	if r.WithoutMin {
		low = PrefixEnd(low)
	}
	if !r.WithoutMax {
		high = PrefixEnd(high)
	}
	return string(low), string(high)
}

func (x *structure) byScore(r *osier.KVRange, fn func(it osier.KVItem) bool) error {
	lo, hi := scoreBounds(r)
	from := lo
	if r.Reverse {
		from = hi
	}
	skip, left := r.Skip, r.Limit
	return x.elements(from, r.Reverse, func(at string, it osier.KVItem) bool {
		if r.Reverse && at < lo || !r.Reverse && at >= hi {
			return false
		}
		if at >= hi {
			return true // the upper bound itself
		}
		if skip > 0 {
			skip--
			return true
		}
		left--
		return fn(it) && left != 0
	})
}

// countScores counts a range of scores in O(log n).
func (x *structure) countScores(r *osier.KVRange) (uint64, error) {
	if x.e.Count == 0 {
		return 0, nil
	}
	lo, hi := scoreBounds(r)
	if lo >= hi {
		return 0, nil
	}
	from, err := x.rankOf(lo)
	if err != nil {
		return 0, err
	}
	to, err := x.rankOf(hi)
	return to - from, err
}

// take removes the elements of a range, or up to a number of them.
func (x *structure) take(r *osier.KVRange) (items []osier.KVItem, err error) {
	err = x.ranged(r, func(it osier.KVItem) bool { items = append(items, it); return true })
	for i := 0; err == nil && i < len(items); i++ {
		err = x.removeMember(items[i].Name, items[i].Score)
	}
	return items, err
}

func (x *structure) popScored() (bool, error) {
	if x.op.Count <= 0 {
		return false, nil
	}
	items, err := x.take(&osier.KVRange{From: 0, To: x.op.Count - 1, Reverse: x.op.Range.Reverse})
	x.res.Items = items
	return len(items) > 0, err
}

func (x *structure) removeRange() (bool, error) {
	items, err := x.take(&x.op.Range)
	return len(items) > 0, err
}
