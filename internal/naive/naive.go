// Package naive is the judge of package mango: it decodes selector and document
// and follows the definition of selectors word by word, without normalising,
// indexes, or any care for speed. Only tests use it.
package naive

import (
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Judge evaluates selectors.
type Judge struct {
	Strings func(a, b string) int // the order of strings
}

// Object is a decoded object in its order.
type Object []Member

// Member is a name of an Object and its value.
type Member struct {
	Name  string
	Value any
}

// Decode decodes JSON with exact numbers and objects in order. Of a name that
// repeats only the last value is kept, in the first one's place, unless all shall be.
func Decode(text string, repeats bool) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return next(d, repeats)
}

func next(d *json.Decoder, repeats bool) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := next(d, repeats)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		object := Object{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := next(d, repeats)
			if err != nil {
				return nil, err
			}
			if i := slices.IndexFunc(object, func(m Member) bool { return m.Name == name }); i >= 0 && !repeats {
				object[i].Value = v
			} else {
				object = append(object, Member{name.(string), v})
			}
		}
		_, err = d.Token()
		return object, err
	}
	return t, nil
}

// Match tells whether a selector, which must be one, means a document: an Object,
// or what encoding/json makes.
func (j Judge) Match(selector string, doc any) bool {
	v, err := Decode(selector, false)
	if err != nil {
		panic(err)
	}
	conditions := v.(Object)
	for list := conditions; len(list) == 1; { // a lone junction of nothing
		m := list[0]
		if args, ok := m.Value.([]any); ok && len(args) == 0 && slices.Contains([]string{"$and", "$or", "$nor"}, m.Name) {
			return false
		}
		if strings.HasPrefix(m.Name, "$") && m.Name != "$not" {
			break
		}
		list, _ = m.Value.(Object)
	}
	if len(conditions) == 0 {
		return true
	}
	return j.all(conditions, doc, nil, false, true)
}

func (j Judge) all(list []Member, doc any, path []string, not, top bool) bool {
	if len(list) == 1 {
		return j.member(list[0], doc, path, not, top)
	}
	for _, m := range list {
		if j.member(m, doc, path, not, top) == not {
			return not
		}
	}
	return !not
}

func (j Judge) any(v, doc any, path []string, not, top bool) bool {
	if o, ok := v.(Object); ok && len(o) > 0 {
		return j.all(o, doc, path, not, top)
	}
	return j.leaf("$eq", v, doc, path, not, top)
}

func (j Judge) member(m Member, doc any, path []string, not, top bool) bool {
	if !strings.HasPrefix(m.Name, "$") {
		names := SplitPath(m.Name)
		return j.any(m.Value, doc, slices.Concat(path, names), not, top)
	}
	switch m.Name {
	case "$not":
		return j.any(m.Value, doc, path, !not, top)
	case "$and", "$or", "$nor":
		if m.Name == "$nor" {
			not = !not
		}
		list := m.Value.([]any)
		or := m.Name == "$or" && !not || m.Name == "$and" && not || m.Name == "$nor" && !not
		if m.Name == "$nor" {
			or = !not
		}
		for _, v := range list {
			if j.any(v, doc, path, not, top) == or {
				return or
			}
		}
		return !or || len(list) == 0
	}
	return j.leaf(m.Name, m.Value, doc, path, not, top)
}

// What Field finds.
const (
	Found   = iota
	Missing // the last object on the way does not have the name
	Blocked // there is a value on the way that has no members of such names
)

// Field returns the value at a path.
func Field(v any, path []string) (any, int) {
	for _, name := range path {
		switch x := v.(type) {
		case Object:
			i := len(x) - 1 // the last of a name counts
			for i >= 0 && x[i].Name != name {
				i--
			}
			if i < 0 {
				return nil, Missing
			}
			v = x[i].Value
		case map[string]any:
			e, ok := x[name]
			if !ok {
				return nil, Missing
			}
			v = e
		case []any:
			i := arrayIndex(name)
			if i < 0 || i >= len(x) {
				return nil, Blocked
			}
			v = x[i]
		default:
			return nil, Blocked
		}
	}
	return v, Found
}

func (j Judge) leaf(op string, arg, doc any, path []string, not, top bool) bool {
	v, state := Field(doc, path)
	if op == "$exists" {
		want := arg.(bool) != not
		return state == Found && want || state == Missing && !want
	}
	if state != Found {
		return false
	}
	compare := j.Compare
	if top && len(path) == 1 && (path[0] == "_id" || path[0] == "_rev") {
		compare = compareIDs
	}
	return j.test(op, arg, v, compare) != not
}

func (j Judge) test(op string, arg, v any, compare func(a, b any) int) bool {
	list, isList := v.([]any)
	text, isText := v.(string)
	equals := func(v any) bool {
		return slices.ContainsFunc(arg.([]any), func(a any) bool { return compare(v, a) == 0 })
	}
	switch op {
	case "$eq":
		return compare(v, arg) == 0
	case "$ne":
		return compare(v, arg) != 0
	case "$lt":
		return compare(v, arg) < 0
	case "$lte":
		return compare(v, arg) <= 0
	case "$gt":
		return compare(v, arg) > 0
	case "$gte":
		return compare(v, arg) >= 0
	case "$in", "$nin":
		in := !isList && equals(v) || slices.ContainsFunc(list, equals)
		return in == (op == "$in")
	case "$all":
		args := arg.([]any)
		if !isList || len(args) == 0 {
			return false
		}
		if whole, ok := args[0].([]any); ok && len(args) == 1 && compare(v, whole) == 0 {
			return true
		}
		for _, a := range args {
			if !slices.ContainsFunc(list, func(e any) bool { return compare(e, a) == 0 }) {
				return false
			}
		}
		return true
	case "$type":
		return kindNames[kindOf(v)] == arg
	case "$size":
		return isList && j.Compare(json.Number(strconv.Itoa(len(list))), arg) == 0
	case "$mod":
		return mod(v, arg.([]any))
	case "$regex":
		return isText && regexp.MustCompile(arg.(string)).MatchString(text)
	case "$beginsWith":
		return isText && strings.HasPrefix(text, arg.(string))
	case "$elemMatch", "$allMatch":
		some := false
		for _, e := range list {
			some = true
			if m := j.inner(arg, e); m == (op == "$elemMatch") {
				return m
			}
		}
		return some && op == "$allMatch"
	case "$keyMapMatch":
		switch o := v.(type) {
		case Object:
			return slices.ContainsFunc(o, func(m Member) bool { return j.inner(arg, m.Name) })
		}
		return false
	}
	panic("operator " + op)
}

func (j Judge) inner(arg, v any) bool {
	o := arg.(Object)
	return len(o) == 0 || j.all(o, v, nil, false, false)
}

func mod(v any, arg []any) bool {
	n, ok := v.(json.Number)
	if !ok || strings.ContainsAny(string(n), ".eE") {
		return false
	}
	parse := func(s any) *big.Int { i, _ := new(big.Int).SetString(string(s.(json.Number)), 10); return i }
	return new(big.Int).Rem(parse(n), parse(arg[0])).Cmp(parse(arg[1])) == 0
}

func kindOf(v any) int {
	switch v.(type) {
	case nil:
		return kindNull
	case bool:
		return kindBool
	case json.Number, float64:
		return kindNumber
	case string:
		return kindString
	case []any:
		return kindArray
	}
	return kindObject
}

func compareIDs(a, b any) int {
	x, y := kindOf(a), kindOf(b)
	if x != y {
		return 1
	}
	return strings.Compare(a.(string), b.(string))
}

// Compare orders decoded JSON values.
func (j Judge) Compare(a, b any) int {
	x, y := kindOf(a), kindOf(b)
	if x != y {
		return x - y
	}
	switch a := a.(type) {
	case bool:
		return boolNumber(a) - boolNumber(b.(bool))
	case json.Number:
		return number(string(a)).Cmp(number(string(b.(json.Number))))
	case float64:
		f, _ := b.(json.Number).Float64()
		return big.NewFloat(a).Cmp(big.NewFloat(f))
	case string:
		return j.Strings(a, b.(string))
	case []any:
		b := b.([]any)
		for i := range min(len(a), len(b)) {
			if c := j.Compare(a[i], b[i]); c != 0 {
				return c
			}
		}
		return len(a) - len(b)
	case Object:
		b := b.(Object)
		for i := range min(len(a), len(b)) {
			if c := j.Strings(a[i].Name, b[i].Name); c != 0 {
				return c
			}
			if c := j.Compare(a[i].Value, b[i].Value); c != 0 {
				return c
			}
		}
		return len(a) - len(b)
	}
	return 0
}

func boolNumber(b bool) int {
	if b {
		return 1
	}
	return 0
}

// number returns an integer as it is, anything else as the nearest float64.
func number(s string) *big.Float {
	if !strings.ContainsAny(s, ".eE") {
		i, _ := new(big.Int).SetString(s, 10)
		return new(big.Float).SetInt(i)
	}
	f, _ := json.Number(s).Float64()
	return new(big.Float).SetFloat64(f)
}

// The kinds of JSON values in their order.
const (
	kindNull = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = [...]string{"null", "boolean", "number", "string", "array", "object"}

// SplitPath returns the names of a dotted path, in which a backslash takes the
// meaning from what follows.
func SplitPath(path string) (names []string) {
	name := ""
	for i := 0; i < len(path); i++ {
		switch {
		case path[i] == '\\' && i+1 < len(path):
			i++
			name += path[i : i+1]
		case path[i] == '.':
			names, name = append(names, name), ""
		default:
			name += path[i : i+1]
		}
	}
	return append(names, name)
}

// arrayIndex returns the index that a name is, or -1.
func arrayIndex(name string) int {
	i, err := strconv.Atoi(name)
	if err != nil || i < 0 || strconv.Itoa(i) != name {
		return -1
	}
	return i
}
