package kv

import (
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
	base  Base
	rows  sortedRows
	drops [][2]string // ranges deleted below rows
}

// NewOverlay begins with no writes.
func NewOverlay(base Base) *Overlay { return &Overlay{base: base} }

// Get reads a row.
func (o *Overlay) Get(key []byte) ([]byte, bool, error) {
	if r := o.rows.get(string(key)); r != nil {
		return r.value, r.value != nil, nil
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
	o.rows.put(string(key), append(make([]byte, 0, len(value)), value...))
}

// Delete removes a row.
func (o *Overlay) Delete(key []byte) { o.rows.put(string(key), nil) }

// DeleteRange removes the rows from lo to hi (not included).
func (o *Overlay) DeleteRange(lo, hi []byte) {
	for _, r := range o.rows.between(string(lo), string(hi)) {
		o.rows.remove(r.key)
	}
	o.drops = append(o.drops, [2]string{string(lo), string(hi)})
}

// Scan reads rows in order.
func (o *Overlay) Scan(lo, hi []byte, reverse bool, fn func(key, value []byte) bool) error {
	own := o.rows.between(string(lo), string(hi))
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
		r := own[0]
		own = own[1:]
		if r.value != nil && !fn([]byte(r.key), r.value) {
			stopped = true
		}
		return !stopped
	}
	err := o.base.Scan(lo, hi, reverse, func(key, value []byte) bool {
		for len(own) > 0 {
			c := before(own[0].key, key)
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
		if o.dropped(key) {
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
	for _, block := range o.rows.blocks {
		for _, r := range block {
			var err error
			if r.value != nil {
				err = set([]byte(r.key), r.value)
			} else {
				err = del([]byte(r.key))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// written is a row of an overlay; a nil value is a deletion.
type written struct {
	key   string
	value []byte
}

// sortedRows is an ordered list of rows in blocks, so that an insertion moves few
// of them.
type sortedRows struct{ blocks [][]written }

const blockRows = 256

// find returns the block that k belongs to.
func (s *sortedRows) find(k string) int {
	i := sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i][0].key > k })
	return max(i-1, 0)
}

func compareKey(r written, k string) int { return strings.Compare(r.key, k) }

func (s *sortedRows) get(k string) *written {
	if len(s.blocks) == 0 {
		return nil
	}
	b := s.blocks[s.find(k)]
	if i, found := slices.BinarySearchFunc(b, k, compareKey); found {
		return &b[i]
	}
	return nil
}

func (s *sortedRows) put(k string, value []byte) {
	if len(s.blocks) == 0 {
		s.blocks = [][]written{{{k, value}}}
		return
	}
	b := s.find(k)
	i, found := slices.BinarySearchFunc(s.blocks[b], k, compareKey)
	if found {
		s.blocks[b][i].value = value
		return
	}
	s.blocks[b] = slices.Insert(s.blocks[b], i, written{k, value})
	if n := len(s.blocks[b]); n >= 2*blockRows {
		right := slices.Clone(s.blocks[b][n/2:])
		s.blocks[b] = s.blocks[b][: n/2 : n/2]
		s.blocks = slices.Insert(s.blocks, b+1, right)
	}
}

func (s *sortedRows) remove(k string) {
	if len(s.blocks) == 0 {
		return
	}
	b := s.find(k)
	i, found := slices.BinarySearchFunc(s.blocks[b], k, compareKey)
	if !found {
		return
	}
	if s.blocks[b] = slices.Delete(s.blocks[b], i, i+1); len(s.blocks[b]) == 0 {
		s.blocks = slices.Delete(s.blocks, b, b+1)
	}
}

// between lists the rows from lo to hi (not included; "" is no bound).
func (s *sortedRows) between(lo, hi string) (out []written) {
	if len(s.blocks) == 0 {
		return nil
	}
	for b := s.find(lo); b < len(s.blocks); b++ {
		i, _ := slices.BinarySearchFunc(s.blocks[b], lo, compareKey)
		for _, r := range s.blocks[b][i:] {
			if hi != "" && r.key >= hi {
				return out
			}
			out = append(out, r)
		}
	}
	return out
}
