package mango

import (
	"cmp"
	"slices"
	"strings"

	"github.com/osierdb/osier/internal/keys"
)

// A kind is a type of JSON value. Kinds order as the values do; false and true
// are one kind of two values.
type kind uint8

const (
	kindNone kind = iota // not JSON
	kindNull
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = [...]string{"", "null", "boolean", "number", "string", "array", "object"}

// kindOf returns the kind of the JSON value that begins with c.
func kindOf(c byte) kind {
	switch c {
	case 'n':
		return kindNull
	case 'f', 't':
		return kindBool
	case '"':
		return kindString
	case '[':
		return kindArray
	case '{':
		return kindObject
	}
	if c == '-' || '0' <= c && c <= '9' {
		return kindNumber
	}
	return kindNone
}

// A constant is a value of a selector.
type constant struct {
	kind  kind
	json  string // compact
	bool  bool
	num   number
	str   string     // the text of a string
	items []constant // of an array, or the values of an object
	names []string   // of an object
}

// newConstant reads the value at i of valid JSON text.
func newConstant(s string, i int) constant {
	c := constant{kind: kindOf(s[i]), json: compact(s, i)}
	switch s = c.json; c.kind {
	case kindBool:
		c.bool = s == "true"
	case kindNumber:
		c.num, _ = parseNumber(s)
	case kindString:
		c.str = strings.Clone(plain(s[1:len(s)-1], nil))
	case kindArray:
		for _, i := range elements(s, 0) {
			c.items = append(c.items, newConstant(s, i))
		}
	case kindObject:
		for _, m := range members(s, 0) {
			c.names = append(c.names, m.name)
			c.items = append(c.items, newConstant(s, m.value))
		}
	}
	return c
}

// hasText reports whether the order of strings bears on c.
func (c *constant) hasText() bool {
	return c.kind == kindString || c.kind == kindObject && len(c.items) > 0 ||
		slices.ContainsFunc(c.items, func(e constant) bool { return e.hasText() })
}

// broken is what comparisons return instead of an offset for text that is not JSON.
const broken = -1

// compare compares the value at i with c. The offset behind the value is
// returned if they are equal.
func (o Collation) compare(s string, i int, c *constant) (result, end int) {
	k := kindNone
	if i < len(s) {
		k = kindOf(s[i])
	}
	switch {
	case k == kindNone:
		return 0, broken
	case k != c.kind:
		return cmp.Compare(k, c.kind), i
	}
	switch k {
	case kindString:
		if end = stringEnd(s, i); end < 0 {
			return 0, broken
		}
		return o.compareText(s[i+1:end-1], c), end
	case kindArray:
		return o.compareArray(s, i, c)
	case kindObject:
		return o.compareObject(s, i, c)
	}
	if end = scalarEnd(s, i); end < 0 {
		return 0, broken
	}
	if k == kindNumber {
		x, ok := parseNumber(s[i:end])
		if !ok {
			return 0, broken
		}
		return compareNumbers(x, c.num), end
	}
	if b := s[i] == 't'; b != c.bool {
		if c.bool {
			return -1, end
		}
		return 1, end
	}
	return 0, end
}

// compareText compares the text of a JSON string, without quotes, with c.
func (o Collation) compareText(raw string, c *constant) int {
	if raw == c.str && strings.IndexByte(raw, '\\') < 0 {
		return 0
	}
	var buf [64]byte
	text := plain(raw, buf[:])
	return o.Compare(text, c.str)
}

func (o Collation) compareArray(s string, i int, c *constant) (result, end int) {
	if i = space(s, i+1); i >= len(s) {
		return 0, broken
	}
	for k := range c.items {
		if s[i] == ']' {
			return -1, i
		}
		result, end = o.compare(s, i, &c.items[k])
		if end < 0 || result != 0 {
			return result, end
		}
		if i = next(s, end, ']'); i < 0 {
			return 0, broken
		}
	}
	if s[i] != ']' {
		return 1, i
	}
	return 0, i + 1
}

// compareObject compares member by member in stored order, the name first.
func (o Collation) compareObject(s string, i int, c *constant) (result, end int) {
	if i = space(s, i+1); i >= len(s) {
		return 0, broken
	}
	for k := range c.items {
		if s[i] == '}' {
			return -1, i
		}
		nameEnd, value := memberName(s, i)
		if value < 0 {
			return 0, broken
		}
		var buf [64]byte
		if result = o.Compare(plain(s[i+1:nameEnd-1], buf[:]), c.names[k]); result != 0 {
			return result, i
		}
		result, end = o.compare(s, value, &c.items[k])
		if end < 0 || result != 0 {
			return result, end
		}
		if i = next(s, end, '}'); i < 0 {
			return 0, broken
		}
	}
	if s[i] != '}' {
		return 1, i
	}
	return 0, i + 1
}

// sortSet sorts constants and drops those that equal another.
func (o Collation) sortSet(set []constant) []constant {
	set = slices.Clone(set)
	compare := func(a, b constant) int {
		result, _ := o.compare(a.json, 0, &b)
		return result
	}
	slices.SortStableFunc(set, compare)
	return slices.CompactFunc(set, func(a, b constant) bool { return compare(a, b) == 0 })
}

// find returns the place in a sorted set of what equals the value at i, or -1.
// ok is false if the value is not JSON.
func (o Collation) find(s string, i int, set []constant) (place int, ok bool) {
	low, high := 0, len(set)
	for low < high {
		mid := int(uint(low+high) >> 1)
		result, end := o.compare(s, i, &set[mid])
		switch {
		case end < 0:
			return 0, false
		case result == 0:
			return mid, true
		case result < 0:
			high = mid
		default:
			low = mid + 1
		}
	}
	return -1, true
}

// appendKey appends the key of the value at i as an index in order c holds it:
// its encoding by package keys, with strings and names replaced by their
// collation keys. It returns the offset behind the value, or broken.
func (o Collation) appendKey(dst []byte, s string, i, depth int) (key []byte, end int) {
	if i >= len(s) {
		return dst, broken
	}
	switch kindOf(s[i]) {
	case kindNull:
		return keys.AppendNil(dst), scalarEnd(s, i)
	case kindBool:
		return keys.AppendBool(dst, s[i] == 't'), scalarEnd(s, i)
	case kindNumber:
		end = scalarEnd(s, i)
		dst, ok := appendNumberKey(dst, s[i:end])
		if !ok {
			return dst, broken
		}
		return dst, end
	case kindString:
		if end = stringEnd(s, i); end < 0 {
			return dst, broken
		}
		return o.appendTextKey(dst, s[i+1:end-1]), end
	case kindArray:
		return o.appendArrayKey(dst, s, i, depth+1)
	case kindObject:
		return o.appendObjectKey(dst, s, i, depth+1)
	}
	return dst, broken
}

// appendTextKey appends the key of the text of a JSON string.
func (o Collation) appendTextKey(dst []byte, raw string) []byte {
	var plainBuf [64]byte
	text := plain(raw, plainBuf[:])
	if o == Binary {
		return keys.AppendString(dst, text)
	}
	var keyBuf [128]byte
	return keys.AppendString(dst, view(o.AppendKey(keyBuf[:0], text)))
}

func (o Collation) appendArrayKey(dst []byte, s string, i, depth int) (key []byte, end int) {
	if i = space(s, i+1); i >= len(s) || depth > keys.MaxDepth {
		return dst, broken
	}
	dst = keys.AppendArrayStart(dst)
	for s[i] != ']' {
		if dst, end = o.appendKey(dst, s, i, depth); end < 0 {
			return dst, broken
		}
		if i = next(s, end, ']'); i < 0 {
			return dst, broken
		}
	}
	return keys.AppendArrayEnd(dst), i + 1
}

func (o Collation) appendObjectKey(dst []byte, s string, i, depth int) (key []byte, end int) {
	if i = space(s, i+1); i >= len(s) || depth > keys.MaxDepth {
		return dst, broken
	}
	dst = keys.AppendObjectStart(dst)
	for s[i] != '}' {
		nameEnd, value := memberName(s, i)
		if value < 0 {
			return dst, broken
		}
		dst = o.appendTextKey(dst, s[i+1:nameEnd-1])
		if dst, end = o.appendKey(dst, s, value, depth); end < 0 {
			return dst, broken
		}
		if i = next(s, end, '}'); i < 0 {
			return dst, broken
		}
	}
	return keys.AppendObjectEnd(dst), i + 1
}
