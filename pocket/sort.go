package pocket

import (
	"encoding/binary"
	"slices"
	"strings"
	"unsafe"
)

// entry is a key's place for bulk building.
type entry struct {
	head uint64
	off  offset
}

// compareEntries orders entries by key.
func compareEntries(dir *directory) func(a, b entry) int {
	return func(a, b entry) int {
		switch {
		case a.head < b.head:
			return -1
		case a.head > b.head:
			return 1
		}
		x, _ := dir.at(a.off)
		y, _ := dir.at(b.off)
		return strings.Compare(x.key(), y.key())
	}
}

const (
	// radixLeast is how many entries a radix sort is worth its tables for.
	radixLeast = 128
	// radixDeepest is how many bytes keys may have in common before they are
	// left to an ordinary sort.
	radixDeepest = 64
)

// sortEntries sorts entries by key. Most keys differ in few bytes of their
// heads, so that sorting by digits takes a fraction of the time of comparing.
func sortEntries(dir *directory, entries []entry) {
	compare := compareEntries(dir)
	if slices.IsSortedFunc(entries, compare) {
		return // as a rewrite has left them
	}
	if len(entries) < radixLeast {
		slices.SortFunc(entries, compare)
		return
	}
	sortDeep(dir, entries, make([]entry, len(entries)), 0)
}

// sortDeep sorts entries whose keys agree in their first depth bytes and whose
// heads are the bytes behind those.
func sortDeep(dir *directory, entries, spare []entry, depth int) {
	radixSort(entries, spare)
	for i := 0; i < len(entries); {
		j := i + 1
		for j < len(entries) && entries[j].head == entries[i].head {
			j++
		}
		if run := entries[i:j]; len(run) > 1 {
			sortEqual(dir, run, spare, depth+8)
		}
		i = j
	}
}

// sortEqual sorts entries of the same head by the keys from depth on.
func sortEqual(dir *directory, run, spare []entry, depth int) {
	if len(run) < radixLeast || depth >= radixDeepest {
		slices.SortFunc(run, compareEntries(dir))
		return
	}
	same := run[0].head
	for i := range run {
		r, _ := dir.at(run[i].off)
		key := r.key()
		run[i].head = head(key[min(depth, len(key)):])
	}
	sortDeep(dir, run, spare, depth)
	for i := range run {
		run[i].head = same
	}
}

// radixSort sorts entries by their heads. spare is at least as long.
func radixSort(entries, spare []entry) {
	var counts [8][256]uint32
	all, any := ^uint64(0), uint64(0)
	for i := range entries {
		h := entries[i].head
		all, any = all&h, any|h
		for d := range counts {
			counts[d][byte(h>>(8*d))]++
		}
	}
	differ := all ^ any
	from, to := entries, spare[:len(entries)]
	for d := range counts {
		shift := 8 * d
		if byte(differ>>shift) == 0 {
			continue
		}
		at := &counts[d]
		sum := uint32(0)
		for i, n := range at {
			at[i], sum = sum, sum+n
		}
		for _, en := range from {
			b := byte(en.head >> shift)
			to[at[b]] = en
			at[b]++
		}
		from, to = to, from
	}
	if len(from) > 0 && &from[0] != &entries[0] {
		copy(entries, from)
	}
}

// head returns the first eight bytes of key as a number that orders like it.
func head(key string) uint64 {
	n := len(key)
	b := unsafe.Slice(unsafe.StringData(key), n)
	switch {
	case n >= 8:
		return binary.BigEndian.Uint64(b)
	case n >= 4:
		// The halves overlap in bytes that are the same in both.
		hi, lo := uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[n-4:]))
		return hi<<32 | lo<<(64-8*n)
	}
	var h uint64
	for i, c := range b {
		h |= uint64(c) << (56 - 8*i)
	}
	return h
}
