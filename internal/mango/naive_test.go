package mango

import (
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A naive evaluator, the judge of the compiled one: it decodes the selector and
// the document and follows the definition word by word, without normalising.

type naive struct{ conditions []naiveMember }

// naiveObject is a decoded object in its order.
type naiveObject []naiveMember

type naiveMember struct {
	name  string
	value any
}

// naiveDecode decodes JSON with exact numbers and objects in order. Of a name that
// repeats only the last value is kept, in the first one's place, unless all shall be.
func naiveDecode(text string, repeats bool) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return naiveNext(d, repeats)
}

func naiveNext(d *json.Decoder, repeats bool) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := naiveNext(d, repeats)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		object := naiveObject{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := naiveNext(d, repeats)
			if err != nil {
				return nil, err
			}
			if i := slices.IndexFunc(object, func(m naiveMember) bool { return m.name == name }); i >= 0 && !repeats {
				object[i].value = v
			} else {
				object = append(object, naiveMember{name.(string), v})
			}
		}
		_, err = d.Token()
		return object, err
	}
	return t, nil
}

func naiveSelector(text string) naive {
	v, err := naiveDecode(text, false)
	if err != nil {
		panic(err)
	}
	return naive{v.(naiveObject)}
}

// match tests a decoded document: an object in order, or what encoding/json makes.
func (n naive) match(doc any) bool {
	for list := n.conditions; len(list) == 1; { // a lone junction of nothing
		m := list[0]
		if args, ok := m.value.([]any); ok && len(args) == 0 && slices.Contains([]string{"$and", "$or", "$nor"}, m.name) {
			return false
		}
		if strings.HasPrefix(m.name, "$") && m.name != "$not" {
			break
		}
		list, _ = m.value.(naiveObject)
	}
	if len(n.conditions) == 0 {
		return true
	}
	return naiveAll(n.conditions, doc, nil, false, true)
}

func naiveAll(list []naiveMember, doc any, path []string, not, top bool) bool {
	if len(list) == 1 {
		return naiveMatch(list[0], doc, path, not, top)
	}
	for _, m := range list {
		if naiveMatch(m, doc, path, not, top) == not {
			return not
		}
	}
	return !not
}

func naiveAny(v, doc any, path []string, not, top bool) bool {
	if o, ok := v.(naiveObject); ok && len(o) > 0 {
		return naiveAll(o, doc, path, not, top)
	}
	return naiveLeaf("$eq", v, doc, path, not, top)
}

func naiveMatch(m naiveMember, doc any, path []string, not, top bool) bool {
	if !strings.HasPrefix(m.name, "$") {
		names, _ := splitPath(m.name)
		return naiveAny(m.value, doc, slices.Concat(path, names), not, top)
	}
	switch m.name {
	case "$not":
		return naiveAny(m.value, doc, path, !not, top)
	case "$and", "$or", "$nor":
		if m.name == "$nor" {
			not = !not
		}
		list := m.value.([]any)
		or := m.name == "$or" && !not || m.name == "$and" && not || m.name == "$nor" && !not
		if m.name == "$nor" {
			or = !not
		}
		for _, v := range list {
			if naiveAny(v, doc, path, not, top) == or {
				return or
			}
		}
		return !or || len(list) == 0
	}
	return naiveLeaf(m.name, m.value, doc, path, not, top)
}

const (
	naiveFound = iota
	naiveMissing
	naiveBlocked
)

func naiveField(v any, path []string) (any, int) {
	for _, name := range path {
		switch x := v.(type) {
		case naiveObject:
			i := len(x) - 1 // the last of a name counts
			for i >= 0 && x[i].name != name {
				i--
			}
			if i < 0 {
				return nil, naiveMissing
			}
			v = x[i].value
		case map[string]any:
			e, ok := x[name]
			if !ok {
				return nil, naiveMissing
			}
			v = e
		case []any:
			i := arrayIndex(name)
			if i < 0 || i >= len(x) {
				return nil, naiveBlocked
			}
			v = x[i]
		default:
			return nil, naiveBlocked
		}
	}
	return v, naiveFound
}

func naiveLeaf(op string, arg, doc any, path []string, not, top bool) bool {
	v, state := naiveField(doc, path)
	if op == "$exists" {
		want := arg.(bool) != not
		return state == naiveFound && want || state == naiveMissing && !want
	}
	if state != naiveFound {
		return false
	}
	compare := naiveCompare
	if top && len(path) == 1 && (path[0] == "_id" || path[0] == "_rev") {
		compare = naiveCompareIDs
	}
	return naiveTest(op, arg, v, compare) != not
}

func naiveTest(op string, arg, v any, compare func(a, b any) int) bool {
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
		return kindNames[naiveKind(v)] == arg && arg != ""
	case "$size":
		return isList && naiveCompare(json.Number(strconv.Itoa(len(list))), arg) == 0
	case "$mod":
		return naiveMod(v, arg.([]any))
	case "$regex":
		return isText && regexp.MustCompile(arg.(string)).MatchString(text)
	case "$beginsWith":
		return isText && strings.HasPrefix(text, arg.(string))
	case "$elemMatch", "$allMatch":
		some := false
		for _, e := range list {
			some = true
			if m := naiveInner(arg, e); m == (op == "$elemMatch") {
				return m
			}
		}
		return some && op == "$allMatch"
	case "$keyMapMatch":
		switch o := v.(type) {
		case naiveObject:
			return slices.ContainsFunc(o, func(m naiveMember) bool { return naiveInner(arg, m.name) })
		}
		return false
	}
	panic("operator " + op)
}

func naiveInner(arg, v any) bool {
	o := arg.(naiveObject)
	return len(o) == 0 || naiveAll(o, v, nil, false, false)
}

func naiveMod(v any, arg []any) bool {
	n, ok := v.(json.Number)
	if !ok || strings.ContainsAny(string(n), ".eE") {
		return false
	}
	parse := func(s any) *big.Int { i, _ := new(big.Int).SetString(string(s.(json.Number)), 10); return i }
	return new(big.Int).Rem(parse(n), parse(arg[0])).Cmp(parse(arg[1])) == 0
}

func naiveKind(v any) kind {
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

func naiveCompareIDs(a, b any) int {
	x, y := naiveKind(a), naiveKind(b)
	if x != y {
		return 1
	}
	return strings.Compare(a.(string), b.(string))
}

func naiveCompare(a, b any) int {
	x, y := naiveKind(a), naiveKind(b)
	if x != y {
		return int(x) - int(y)
	}
	switch a := a.(type) {
	case bool:
		return naiveBool(a) - naiveBool(b.(bool))
	case json.Number:
		return naiveNumber(string(a)).Cmp(naiveNumber(string(b.(json.Number))))
	case float64:
		f, _ := b.(json.Number).Float64()
		return big.NewFloat(a).Cmp(big.NewFloat(f))
	case string:
		return Unicode.Compare(a, b.(string))
	case []any:
		b := b.([]any)
		for i := range min(len(a), len(b)) {
			if c := naiveCompare(a[i], b[i]); c != 0 {
				return c
			}
		}
		return len(a) - len(b)
	case naiveObject:
		b := b.(naiveObject)
		for i := range min(len(a), len(b)) {
			if c := Unicode.Compare(a[i].name, b[i].name); c != 0 {
				return c
			}
			if c := naiveCompare(a[i].value, b[i].value); c != 0 {
				return c
			}
		}
		return len(a) - len(b)
	}
	return 0
}

func naiveBool(b bool) int {
	if b {
		return 1
	}
	return 0
}

// naiveNumber returns an integer as it is, anything else as the nearest float64.
func naiveNumber(s string) *big.Float {
	if !strings.ContainsAny(s, ".eE") {
		i, _ := new(big.Int).SetString(s, 10)
		return new(big.Float).SetInt(i)
	}
	f, _ := json.Number(s).Float64()
	return new(big.Float).SetFloat64(f)
}
