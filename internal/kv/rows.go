package kv

import (
	"bytes"
	"slices"
	"sort"
	"strings"
)

// Base is where rows are read from. Values given out are valid until the next
// call; a nil hi is no bound.
type Base interface {
	Get(key []byte) (value []byte, found bool, err error)
	// Scan calls fn for the rows from lo to hi (not included) in order, or from
	// the last to the first, until fn returns false.
	Scan(lo, hi []byte, reverse bool, fn func(key, value []byte) bool) error
}

// Overlay is writes over a Base, which is left alone. Cost: a write is a step
// among few keys; a scan merges.
type Overlay struct {
	base   Base
	values map[string][]byte // nil: deleted
	keys   sortedKeys        // of values
	drops  [][2]string       // ranges deleted below values
}

// NewOverlay begins with no writes.
func NewOverlay(base Base) *Overlay { return &Overlay{base: base, values: map[string][]byte{}} }

// Get reads a row.
func (o *Overlay) Get(key []byte) ([]byte, bool, error) {
	if v, ok := o.values[string(key)]; ok {
		return v, v != nil, nil
	}
	if o.dropped(key) {
		return nil, false, nil
	}
	return o.base.Get(key)
}

func (o *Overlay) dropped(key []byte) bool {
	for i := range o.drops {
		if string(key) >= o.drops[i][0] && string(key) < o.drops[i][1] {
			return true
		}
	}
	return false
}

// Set writes a row; value is copied.
func (o *Overlay) Set(key, value []byte) {
	own := append(make([]byte, 0, len(value)), value...)
	o.put(key, own)
}

// Delete removes a row.
func (o *Overlay) Delete(key []byte) { o.put(key, nil) }

func (o *Overlay) put(key, value []byte) {
	if _, known := o.values[string(key)]; known {
		o.values[string(key)] = value
		return
	}
	k := string(key)
	o.values[k] = value
	o.keys.insert(k)
}

// DeleteRange removes the rows from lo to hi (not included).
func (o *Overlay) DeleteRange(lo, hi []byte) {
	for _, k := range o.keys.between(string(lo), string(hi)) {
		delete(o.values, k)
		o.keys.remove(k)
	}
	o.drops = append(o.drops, [2]string{string(lo), string(hi)})
}

// Scan reads rows in order.
func (o *Overlay) Scan(lo, hi []byte, reverse bool, fn func(key, value []byte) bool) error {
	own := o.keys.between(string(lo), string(hi))
	if reverse {
		slices.Reverse(own)
	}
	before := func(a string, b []byte) int {
		c := strings.Compare(a, string(b))
		if reverse {
			return -c
		}
		return c
	}
	stopped := false
	emit := func() bool { // own[0]
		k := own[0]
		own = own[1:]
		v, ok := o.values[k]
		if ok && v != nil && !fn([]byte(k), v) {
			stopped = true
		}
		return !stopped
	}
	err := o.base.Scan(lo, hi, reverse, func(key, value []byte) bool {
		for len(own) > 0 {
			c := before(own[0], key)
			if c > 0 {
				break
			}
			if !emit() {
				return false
			}
			if c == 0 {
				return true // the overlay's row hides it
			}
		}
		if _, hidden := o.values[string(key)]; hidden || o.dropped(key) {
			return true
		}
		if !fn(key, value) {
			stopped = true
		}
		return !stopped
	})
	for err == nil && !stopped && len(own) > 0 {
		emit()
	}
	return err
}

// Flush hands all writes on, ranges first, the rest in order of keys.
func (o *Overlay) Flush(set func(key, value []byte) error, del func(key []byte) error, delRange func(lo, hi []byte) error) error {
	for i := range o.drops {
		if err := delRange([]byte(o.drops[i][0]), []byte(o.drops[i][1])); err != nil {
			return err
		}
	}
	for _, block := range o.keys.blocks {
		for _, k := range block {
			var err error
			if v := o.values[k]; v != nil {
				err = set([]byte(k), v)
			} else {
				err = del([]byte(k))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Empty reports whether there are no writes.
func (o *Overlay) Empty() bool { return len(o.values) == 0 && len(o.drops) == 0 }

// sortedKeys is an ordered list of keys in blocks, so that an insertion moves
// few of them.
type sortedKeys struct{ blocks [][]string }

const blockKeys = 256

// find returns the block that k belongs to.
func (s *sortedKeys) find(k string) int {
	i := sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i][0] > k })
	return max(i-1, 0)
}

func (s *sortedKeys) insert(k string) {
	if len(s.blocks) == 0 {
		s.blocks = [][]string{{k}}
		return
	}
	b := s.find(k)
	i, found := slices.BinarySearch(s.blocks[b], k)
	if found {
		return
	}
	s.blocks[b] = slices.Insert(s.blocks[b], i, k)
	if n := len(s.blocks[b]); n >= 2*blockKeys {
		right := slices.Clone(s.blocks[b][n/2:])
		s.blocks[b] = s.blocks[b][: n/2 : n/2]
		s.blocks = slices.Insert(s.blocks, b+1, right)
	}
}

func (s *sortedKeys) remove(k string) {
	if len(s.blocks) == 0 {
		return
	}
	b := s.find(k)
	i, found := slices.BinarySearch(s.blocks[b], k)
	if !found {
		return
	}
	if s.blocks[b] = slices.Delete(s.blocks[b], i, i+1); len(s.blocks[b]) == 0 {
		s.blocks = slices.Delete(s.blocks, b, b+1)
	}
}

// between lists the keys from lo to hi (not included; "" is no bound).
func (s *sortedKeys) between(lo, hi string) (out []string) {
	if len(s.blocks) == 0 {
		return nil
	}
	for b := s.find(lo); b < len(s.blocks); b++ {
		i, _ := slices.BinarySearch(s.blocks[b], lo)
		for _, k := range s.blocks[b][i:] {
			if hi != "" && k >= hi {
				return out
			}
			out = append(out, k)
		}
	}
	return out
}

// MapBase is rows in a map, for tests and for empty beginnings.
type MapBase map[string][]byte

// Get reads a row.
func (m MapBase) Get(key []byte) ([]byte, bool, error) {
	v, ok := m[string(key)]
	return v, ok, nil
}

// Scan reads rows in order, sorting all of them first.
func (m MapBase) Scan(lo, hi []byte, reverse bool, fn func(key, value []byte) bool) error {
	var own []string
	for k := range m {
		if k >= string(lo) && (hi == nil || bytes.Compare([]byte(k), hi) < 0) {
			own = append(own, k)
		}
	}
	slices.Sort(own)
	if reverse {
		slices.Reverse(own)
	}
	for _, k := range own {
		if !fn([]byte(k), m[k]) {
			break
		}
	}
	return nil
}
