package mango

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A Collation is an order of strings. It is a closed set, not a function: an
// index's order is part of its format, which must be told in its definition and
// be the same in every process that opens it.
//
// [Unicode] is CouchDB's order, the Unicode Collation Algorithm with CLDR's root
// weights. First the letters count, then their accents, then case with the lower
// before the upper; punctuation is not ignored and comes before symbols, digits
// and letters. Exactly as in ICU 72 are all strings of ASCII, of the Latin,
// Greek, Cyrillic and kana letters of Unicode's first blocks for them with their
// accents, composed or not, and of common punctuation and currency signs.
//
// Other characters are in order of code points, in classes: symbols before the
// digits, letters of other scripts between Cyrillic and kana, then the rest, Han
// last. Differences to ICU: digits of other scripts are not those of ASCII,
// marks of other scripts count as letters, scripts and symbols that are not
// listed stand in order of code points, and marks that follow each other in
// another than the canonical order stay different.
//
// [Binary] is the order of the strings' bytes, which is that of code points.
type Collation uint8

// The collations. Unicode is the default.
const (
	Unicode Collation = iota
	Binary
)

// String returns "unicode" or "binary".
func (o Collation) String() string {
	if o == Binary {
		return "binary"
	}
	return "unicode"
}

// Compare returns -1, 0 or 1 as a sorts before, with or behind b. Under Unicode
// different strings may be equal: "é" composed and decomposed, and strings that
// differ in control characters only.
func (o Collation) Compare(a, b string) int {
	if o == Binary {
		return cmp.Compare(a, b) // strings.Compare would move the caller's buffers to the heap
	}
	return compareUnicode(a, b)
}

// AppendKey appends bytes that order as Compare does the strings: equal strings
// give equal bytes. A Unicode key takes two bytes for most characters, a few
// more where accents or capitals occur, and cannot be turned back.
func (o Collation) AppendKey(dst []byte, s string) []byte {
	if o == Binary {
		return append(dst, s...)
	}
	return appendUnicodeKey(dst, s)
}

// An element is what a character weighs on the three levels: the primary weight
// in the upper 32 bits, then 16 bits of the secondary and of the tertiary one.
// A primary weight's bytes, without zeros at the end, are also what it is in a
// key; a zero weight means that the level skips the character.
type element uint64

const (
	common      = 3 // the least secondary and tertiary weight
	markBase    = common + 3
	upperCase   = 10 // tertiary weights are added to common
	wide        = 1
	compatUpper = 12
	compat      = 2
	hiragana    = 1 // of full size; the small ones have the least weight
	smallKata   = 2
	levelEnd    = 2 // in keys, between levels; below every weight's bytes

	leadSymbol      = 0x10 // the first byte of primary weights
	leadOtherSymbol = 0x11
	leadLetter      = 0x12 // and the bytes after it
	leadOther       = 0x20
	leadKana        = 0x21
	leadLast        = 0x22
	leadHan         = 0x23
	leadMoreHan     = 0x24

	weightBase   = 0x10 // least byte of a primary weight after the first
	weightDigits = 0x100 - weightBase
)

func newElement(primary uint32, secondary, tertiary uint8) element {
	return element(primary)<<32 | element(secondary)<<16 | element(tertiary)
}

func (e element) primary() uint32 { return uint32(e >> 32) }

// weight returns what e weighs on a level from 1 to 3.
func (e element) weight(level int) uint32 {
	switch level {
	case 1:
		return e.primary()
	case 2:
		return uint32(e>>16) & 0xFFFF
	}
	return uint32(e) & 0xFFFF
}

// A collationTable holds the elements of the listed characters. It is built once
// and then only read.
type collationTable struct {
	// The primary weight of an ASCII character and, in the lowest byte, the
	// tertiary one; 0 for ASCII's ignored characters and the bytes of others.
	ascii [256]uint32
	near  [0x600][]element // of characters below 0x600
	far   map[rune][]element
}

// table builds the table when the first string is compared, in half a millisecond.
var table = sync.OnceValue(newCollationTable)

func newCollationTable() *collationTable {
	t := &collationTable{far: make(map[rune][]element, 1024)}
	t.addOrder(symbolOrder, leadSymbol)
	t.addOrder(letterOrder, leadLetter)
	t.addOrder(kanaOrder, leadKana)
	for i, group := range markOrder() {
		for _, mark := range group {
			t.set(mark, newElement(0, uint8(markBase+i), common))
		}
	}
	t.addKana()
	t.addVariants()
	t.addCases()
	t.addMarked()
	t.addCases() // of the letters with marks
	for i := range utf8.RuneSelf {
		if e := t.near[i]; len(e) == 1 {
			t.ascii[i] = e[0].primary() | e[0].weight(3)
		}
	}
	return t
}

func (t *collationTable) get(r rune) []element {
	if uint32(r) < uint32(len(t.near)) {
		return t.near[r]
	}
	return t.far[r]
}

func (t *collationTable) set(r rune, e ...element) {
	if uint32(r) < uint32(len(t.near)) {
		t.near[r] = e
		return
	}
	t.far[r] = e
}

// addOrder gives ascending primary weights of two bytes.
func (t *collationTable) addOrder(order string, lead uint32) {
	i := uint32(0)
	for _, r := range order {
		t.set(r, newElement((lead+i/weightDigits)<<24|(weightBase+i%weightDigits)<<16, common, common))
		i++
	}
}

// addKana orders the kana of one sound: hiragana before katakana, and of either
// the small one before the full-size one.
func (t *collationTable) addKana() {
	const toKatakana = 'ア' - 'あ'
	small := []rune("ぁあぃいぅうぇえぉおゕかゖけっつゃやゅゆょよゎわ")
	full := map[rune]rune{}
	for i := 0; i < len(small); i += 2 {
		full[small[i]] = small[i+1]
	}
	for _, r := range kanaOrder {
		e := t.get(r)[0]
		if f, ok := full[r]; ok {
			t.set(r+toKatakana, e+smallKata)
			r = f
		}
		t.set(r, e+hiragana)
		t.set(r+toKatakana, e+upperCase)
	}
}

func (t *collationTable) addVariants() {
	for _, v := range variants() {
		var list []element
		for _, r := range v.like {
			e := t.get(r)[0]
			switch {
			case e.primary() == 0: // a mark
			case len(list) == 0:
				e += element(v.secondary)<<16 + element(v.tertiary)
			default:
				e += element(v.rest)
			}
			list = append(list, e)
		}
		t.set(v.char, list...)
	}
}

// addCases adds capitals and title-case letters of listed letters, and the
// full-width forms of ASCII.
func (t *collationTable) addCases() {
	for _, r := range [][2]rune{{'A', 0x58F}, {0x1E00, 0x1EFF}, {0x2126, 0x212B}} {
		for capital := r[0]; capital <= r[1]; capital++ {
			if list := t.get(unicode.ToLower(capital)); list != nil && t.get(capital) == nil && capital != 'İ' {
				t.set(capital, capitals(list, unicode.IsTitle(capital))...)
			}
		}
	}
	for r := rune('!'); r <= '~'; r++ {
		if e := t.get(r); len(e) == 1 {
			t.set(r-'!'+'！', e[0]+wide) // wide capitals so come after capitals
		}
	}
}

// capitals returns the elements of a capital, or only of its first letter.
func capitals(list []element, title bool) []element {
	list = slices.Clone(list)
	for i, e := range list {
		if e.primary() == 0 || title && i > 0 {
			continue
		}
		tertiary := element(upperCase)
		if e.weight(3) == common+compat {
			tertiary = compatUpper
		}
		list[i] = e&^0xFFFF | common + tertiary
	}
	return list
}

// addMarked adds characters with marks. What a mark is on may have a mark of a
// later list itself, so the lists are gone through until none is left.
func (t *collationTable) addMarked() {
	const toKatakana = 'ア' - 'あ'
	for left := true; left; {
		left = false
		for _, s := range marked() {
			list := []rune(s)
			for i := 1; i < len(list); i += 2 {
				whole, on := list[i], list[i+1]
				left = !t.compose(whole, on, list[0]) || left
				if whole >= 'ぁ' && on >= 'ぁ' && on < 'ァ' && t.get(whole+toKatakana) == nil {
					t.compose(whole+toKatakana, on+toKatakana, list[0])
				}
			}
		}
	}
}

func (t *collationTable) compose(whole, on, mark rune) bool {
	base := t.get(on)
	if base != nil && t.get(whole) == nil {
		t.set(whole, append(slices.Clone(base), t.get(mark)...)...)
	}
	return base != nil
}

// unlisted returns the element of a character that is in no list, 0 if it is
// ignored.
func unlisted(r rune) element {
	lead := uint32(leadLast)
	switch {
	case unicode.In(r, unicode.Cc, unicode.Cf), r >= 0xFE00 && r <= 0xFE0F:
		return 0
	case unicode.IsSymbol(r), unicode.IsPunct(r), unicode.IsSpace(r):
		lead = leadOtherSymbol
	case r < 'ぁ', r >= 0xAC00 && r <= 0xD7A3: // Hangul syllables too
		lead = leadOther
	case r >= 0x4E00 && r <= 0x9FFF:
		lead = leadHan
	case unicode.Is(unicode.Han, r):
		lead = leadMoreHan
	}
	c := uint32(r)
	return newElement(lead<<24|(weightBase+c/weightDigits/weightDigits)<<16|
		(weightBase+c/weightDigits%weightDigits)<<8|(weightBase+c%weightDigits), common, common)
}

// breve makes и another letter, й, unlike all other marks.
const breve = "\u0306"

// A collator reads the weights of a string. It is passed by value: stores
// through a pointer would move the caller's buffers to the heap.
type collator struct {
	t       *collationTable
	s       string
	pending []element
}

func newCollator(s string) collator { return collator{t: table(), s: s} }

// next returns the next weight on a level, 0 at the end, and what reads on.
func (it collator) next(level int) (uint32, collator) {
	for {
		for len(it.pending) > 0 {
			e := it.pending[0]
			it.pending = it.pending[1:]
			if w := e.weight(level); w != 0 {
				return w, it
			}
		}
		if it.s == "" {
			return 0, it
		}
		r, n := utf8.DecodeRuneInString(it.s)
		it.s = it.s[n:]
		if (r == 'и' || r == 'И') && strings.HasPrefix(it.s, breve) {
			r, it.s = r+'й'-'и', it.s[len(breve):]
		}
		if it.pending = it.t.get(r); it.pending == nil {
			if w := unlisted(r).weight(level); w != 0 {
				return w, it
			}
		}
	}
}

// compareUnicode compares in one pass while both strings are visible ASCII,
// where every character weighs on the first and third level only.
func compareUnicode(a, b string) int {
	t, tertiary := table(), 0
	for i := range min(len(a), len(b)) {
		u, v := t.ascii[a[i]], t.ascii[b[i]]
		if u == 0 || v == 0 {
			return compareLevels(a, b)
		}
		if u>>8 != v>>8 {
			return cmp.Compare(u, v)
		}
		if tertiary == 0 {
			tertiary = cmp.Compare(u, v)
		}
	}
	if len(a) == len(b) {
		return tertiary
	}
	longer, sign := a[min(len(a), len(b)):], 1
	if longer == "" {
		longer, sign = b[len(a):], -1
	}
	for i := range len(longer) {
		if t.ascii[longer[i]] == 0 {
			return compareLevels(a, b)
		}
	}
	return sign
}

// compareLevels compares level by level: a difference on an earlier one counts
// wherever in the strings it is.
func compareLevels(a, b string) int {
	for level := 1; level <= 3; level++ {
		x, y := newCollator(a), newCollator(b)
		for more := true; more; {
			var u, v uint32
			u, x = x.next(level)
			v, y = y.next(level)
			if u != v {
				return cmp.Compare(u, v)
			}
			more = u != 0
		}
	}
	return 0
}

// appendUnicodeKey appends the levels one after the other. The least weight at
// the end of the second and third is left out, which most strings consist of on
// these levels: strings that differ there have as many primary weights, so what
// is cut could only have met its like or more.
func appendUnicodeKey(dst []byte, s string) []byte {
	dst = appendPrimary(dst, s)
	end := len(dst) // of what the key needs
	for level := 2; level <= 3; level++ {
		dst = append(dst, levelEnd)
		cut := len(dst)
		w, it := newCollator(s).next(level)
		for ; w != 0; w, it = it.next(level) {
			if dst = append(dst, byte(w)); w != common {
				cut, end = len(dst), len(dst)
			}
		}
		dst = dst[:cut]
	}
	return dst[:end]
}

// appendPrimary appends the first level of the key of s, which is a prefix of
// the keys of all strings that begin with s.
func appendPrimary(dst []byte, s string) []byte {
	w, it := newCollator(s).next(1)
	for ; w != 0; w, it = it.next(1) {
		dst = append(dst, byte(w>>24), byte(w>>16))
		if w&0xFFFF != 0 {
			dst = append(dst, byte(w>>8), byte(w))
		}
	}
	return dst
}
