package mango

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// swapOperators are the operators of a SwapQuery that are put on fields, and
// what they are in a selector.
var swapOperators = map[string]string{
	"=": "$eq", "!=": "$ne", ">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte",
	"==": "$eq", "!==": "$ne",
	"in": "$in", "!in": "$nin", "all": "$all",
	"^=": "$beginsWith", "~": "$regex",
	"exists": "$exists", "type": "$type", "size": "$size", "mod": "$mod",
}

// wholeOperators take an object as the value itself, not as fields below.
var wholeOperators = []string{"==", "!=="}

// Translate returns the selector of a SwapQuery, as the package documentation
// describes it, in JSON. Errors are of type [*Error]; an unknown operator has the
// name "invalid_operator". What arguments may be, Compile tells.
func Translate(query []byte, o *Options) ([]byte, error) {
	d := o.withDefaults()
	if !validText(query) {
		return nil, &Error{Name: ErrBadRequest, Reason: "invalid UTF-8 JSON"}
	}
	t := translator{text: string(query), left: d.MaxConditions}
	start := space(t.text, 0)
	switch {
	case len(t.text) > d.MaxBytes:
		return nil, &Error{Name: ErrTooLarge, Reason: "query of " + strconv.Itoa(len(t.text)) + " bytes, at most " + strconv.Itoa(d.MaxBytes) + " are allowed"}
	case t.text[start] != '{':
		return nil, &Error{Name: ErrInvalidSelectorJSON, Reason: "Query must be a JSON object, not: " + brief(compact(t.text, start))}
	}
	if n := depth(t.text); n > d.MaxDepth {
		return nil, &Error{Name: ErrTooLarge, Reason: "query nests " + strconv.Itoa(n) + " deep, at most " + strconv.Itoa(d.MaxDepth) + " are allowed"}
	}
	list, err := t.query(place{offset: start})
	if err != nil {
		return nil, err
	}
	return join(list), nil
}

// CompileSwap compiles a SwapQuery. The selector's String shows the translation.
func CompileSwap(query []byte, o *Options) (*Selector, error) {
	selector, err := Translate(query, o)
	if err != nil {
		return nil, err
	}
	d := o.withDefaults()
	d.MaxBytes = max(d.MaxBytes, len(selector)) // the query itself was within bounds
	d.MaxDepth = min(d.MaxDepth*2, 1000)        // a selector needs two levels where a query needs one
	return compile(string(selector), d)
}

type translator struct {
	text string
	left int // how many more conditions are allowed
}

// join returns the selector that all of a list make.
func join(list []string) []byte {
	switch len(list) {
	case 0:
		return []byte("{}")
	case 1:
		return []byte(list[0])
	}
	return []byte(`{"$and":[` + strings.Join(list, ",") + `]}`)
}

// query returns the selectors that the query at a place consists of.
func (t *translator) query(at place) (list []string, err error) {
	for _, m := range members(t.text, at.offset) {
		at := at.at(m.name, m.value)
		switch m.name {
		case "and", "or":
			if list, err = t.junction(list, m.name, at); err != nil {
				return nil, err
			}
			continue
		case "not":
			inner, err := t.inner(m.name, at)
			if err != nil {
				return nil, err
			}
			list = append(list, `{"$not":`+inner+`}`)
			continue
		}
		op, ok := swapOperators[m.name]
		if !ok {
			return nil, &Error{Name: ErrInvalidOperator, Op: m.name, Reason: "Invalid operator: " + brief(m.name), Place: at.String(), Offset: m.value}
		}
		if t.text[m.value] != '{' {
			return nil, t.badArg(m.name, at)
		}
		for _, f := range members(t.text, m.value) {
			if list, err = t.leaf(list, m.name, op, []string{f.name}, at.at(f.name, f.value)); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

func (t *translator) badArg(op string, at place) error {
	return &Error{Name: ErrBadArg, Op: op, Reason: "Bad argument for operator " + op + ": " + brief(compact(t.text, at.offset)), Place: at.String(), Offset: at.offset}
}

// inner returns the selector of a query that is an operator's argument.
func (t *translator) inner(op string, at place) (string, error) {
	if t.text[at.offset] != '{' {
		return "", t.badArg(op, at)
	}
	list, err := t.query(at)
	if err == nil && len(list) == 0 { // everything, which a selector says by {} at the top only
		return "", t.badArg(op, at)
	}
	return string(join(list)), err
}

func (t *translator) junction(list []string, name string, at place) ([]string, error) {
	if t.text[at.offset] != '[' {
		return nil, t.badArg(name, at)
	}
	var kids []string
	for i, e := range elements(t.text, at.offset) {
		kid, err := t.inner(name, at.at("["+strconv.Itoa(i)+"]", e))
		if err != nil {
			return nil, err
		}
		kids = append(kids, kid)
	}
	if len(kids) == 0 {
		return nil, t.badArg(name, at)
	}
	return append(list, `{"$`+name+`":[`+strings.Join(kids, ",")+`]}`), nil
}

// leaf appends the conditions that an operator puts on a field and, if its value
// is an object, on the fields below.
func (t *translator) leaf(list []string, name, op string, path []string, at place) ([]string, error) {
	if path[len(path)-1] == "" {
		return nil, &Error{Name: ErrInvalidFieldName, Op: name, Reason: "Invalid field name: it is empty", Place: at.String(), Offset: at.offset}
	}
	if t.left--; t.left < 0 || pathBytes(path) > maxPathBytes {
		return nil, &Error{Name: ErrTooLarge, Op: name, Reason: "too many conditions, or too long a field name", Place: at.String(), Offset: at.offset}
	}
	if t.text[at.offset] == '{' && !slices.Contains(wholeOperators, name) {
		below := members(t.text, at.offset)
		for _, m := range below {
			var err error
			if list, err = t.leaf(list, name, op, append(slices.Clip(path), m.name), at.at(m.name, m.value)); err != nil {
				return nil, err
			}
		}
		switch {
		case len(below) > 0:
			return list, nil
		case name != "=":
			return nil, t.badArg(name, at)
		}
		return append(list, t.condition(path, `"$type":"object"`)), nil
	}
	return append(list, t.condition(path, `"`+op+`":`+compact(t.text, at.offset))), nil
}

func (t *translator) condition(path []string, what string) string {
	return string(appendQuoted([]byte{'{'}, JoinPath(path))) + ":{" + what + "}}"
}

// IsSwapQuery reports whether a JSON object looks like a SwapQuery rather than a
// selector: it has members, and each is named as one of its operators.
func IsSwapQuery(text []byte) bool {
	if text = bytes.TrimSpace(text); !validText(text) || text[0] != '{' {
		return false
	}
	list := members(string(text), 0)
	for _, m := range list {
		if _, ok := swapOperators[m.name]; !ok && !slices.Contains([]string{"and", "or", "not"}, m.name) {
			return false
		}
	}
	return len(list) > 0
}
