package mango

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// A parser turns the text of a selector into normalised conditions.
type parser struct {
	text    string
	options Options
	count   int  // conditions so far
	inner   bool // within an element operator: a condition may be on the element itself
}

// A place is where in the text the parser is, for messages.
type place struct {
	up     *place
	name   string
	offset int
}

func (p place) at(name string, offset int) place { return place{up: &p, name: name, offset: offset} }

func (p place) String() string {
	if p.up == nil {
		return p.name
	}
	s := p.up.String()
	if s != "" && !strings.HasPrefix(p.name, "[") {
		s += "."
	}
	return s + p.name
}

func (p *parser) fail(at place, name, op, reason string) error {
	return &Error{Name: name, Reason: reason, Op: op, Place: at.String(), Offset: at.offset}
}

func (p *parser) badArg(at place, op string) error {
	return p.fail(at, ErrBadArg, op, "Bad argument for operator "+op+": "+brief(compact(p.text, at.offset)))
}

// newCondition counts, so that what a selector costs is bounded.
func (p *parser) newCondition(at place, c condition) (*condition, error) {
	if p.count++; p.count > p.options.MaxConditions {
		return nil, p.fail(at, ErrTooLarge, "", fmt.Sprintf("selector has more than %d conditions", p.options.MaxConditions))
	}
	return &c, nil
}

// conditions returns the condition that all members of an object make together.
func (p *parser) conditions(list []member, at place, path []string, not bool) (*condition, error) {
	if len(list) == 1 {
		return p.condition(list[0], at, path, not)
	}
	return p.junction(at, not, len(list), func(i int) (*condition, error) {
		return p.condition(list[i], at, path, not)
	})
}

// junction joins n conditions by and, or, if they are negated, by or.
func (p *parser) junction(at place, or bool, n int, kid func(int) (*condition, error)) (*condition, error) {
	c, err := p.newCondition(at, condition{op: opAnd})
	if err != nil {
		return nil, err
	}
	if or {
		c.op = opOr
	}
	for i := range n {
		k, err := kid(i)
		if err != nil {
			return nil, err
		}
		c.kids = append(c.kids, k)
	}
	return c, nil
}

// value returns the condition that a value of any kind is on a path: an object
// is conditions, all else is what the field shall equal.
func (p *parser) value(at place, path []string, not bool) (*condition, error) {
	if p.text[at.offset] == '{' {
		if list := members(p.text, at.offset); len(list) > 0 {
			return p.conditions(list, at, path, not)
		}
	}
	return p.leafCondition(opEq, at, path, not)
}

// condition returns the condition of one member.
func (p *parser) condition(m member, at place, path []string, not bool) (*condition, error) {
	at = at.at(m.name, m.value)
	if !strings.HasPrefix(m.name, "$") {
		names, ok := splitPath(m.name)
		if !ok {
			return nil, p.fail(at, ErrInvalidFieldName, "", "Invalid field name: "+brief(m.name))
		}
		return p.value(at, slices.Concat(path, names), not)
	}
	switch m.name {
	case "$and", "$or", "$nor":
		if p.text[m.value] != '[' {
			return nil, p.badArg(at, m.name)
		}
		inner := not != (m.name == "$nor")
		list := elements(p.text, m.value)
		return p.junction(at, not != (m.name == "$or"), len(list), func(i int) (*condition, error) {
			return p.value(at.at("["+strconv.Itoa(i)+"]", list[i]), path, inner)
		})
	case "$not":
		if p.text[m.value] != '{' {
			return nil, p.badArg(at, m.name)
		}
		return p.value(at, path, !not)
	case "$where", "$geoWithin", "$geoIntersects", "$near", "$nearSphere":
		return nil, p.fail(at, ErrNotSupported, m.name, "Unsupported operator: "+m.name)
	}
	op, ok := operatorOf(m.name)
	if !ok || op == opText && !p.options.AcceptText {
		return nil, p.fail(at, ErrInvalidOperator, m.name, "Invalid operator: "+m.name)
	}
	return p.leafCondition(op, at, path, not)
}

// leafCondition returns the condition of an operator with its argument at the
// place, on a path.
func (p *parser) leafCondition(op operator, at place, path []string, not bool) (*condition, error) {
	if op == opText {
		return p.textCondition(at, path, not)
	}
	if len(path) == 0 && !p.inner {
		return nil, p.fail(at, ErrInvalidSelector, operatorNames[op], "One or more conditions is missing a field name.")
	}
	if n := pathBytes(path); n > maxPathBytes {
		return nil, p.fail(at, ErrTooLarge, "", fmt.Sprintf("field name of %d bytes, at most %d are allowed", n, maxPathBytes))
	}
	c, err := p.newCondition(at, condition{op: op, path: path})
	if err != nil {
		return nil, err
	}
	if c.text = p.options.Collation; !p.inner && isIdent(path) {
		c.text = Binary // like the primary index
	}
	if op >= opElemMatch {
		c.not = not
		return c, p.elementArgument(c, at)
	}
	c.arg = newConstant(p.text, at.offset)
	if err := p.argument(c, at); err != nil {
		return nil, err
	}
	contrary, ok := negations[op]
	switch {
	case not && ok:
		c.op = contrary
	case not && op == opExists:
		c.exists = !c.exists
		c.arg.json = strconv.FormatBool(c.exists)
	default:
		c.not = not
	}
	return c, nil
}

func (p *parser) textCondition(at place, path []string, not bool) (*condition, error) {
	switch arg := newConstant(p.text, at.offset); {
	case not:
		return nil, p.badArg(at, "$not")
	case len(path) > 0 || p.inner:
		return nil, p.fail(at, "bad_field", "$text", "$text stands outside of fields only")
	case arg.kind != kindString && arg.kind != kindNumber && arg.kind != kindBool:
		return nil, p.badArg(at, "$text")
	default:
		return p.newCondition(at, condition{op: opText, arg: arg})
	}
}

// elementArgument reads the selector that elements or names shall match.
func (p *parser) elementArgument(c *condition, at place) error {
	if p.text[at.offset] != '{' {
		return p.badArg(at, operatorNames[c.op])
	}
	outer := p.inner
	p.inner = true
	defer func() { p.inner = outer }()
	var root *condition
	if list := members(p.text, at.offset); len(list) > 0 {
		var err error
		if root, err = p.conditions(list, at, nil, false); err != nil {
			return err
		}
	}
	inner := newScope(root)
	c.inner = &inner
	return nil
}

// argument checks the argument of c and prepares it for matching.
func (p *parser) argument(c *condition, at place) error {
	name, ok := operatorNames[c.op], true
	switch c.op {
	case opIn, opNin, opAll:
		if ok = c.arg.kind == kindArray; ok {
			c.set = c.text.sortSet(c.arg.items)
		}
		if c.op == opAll && len(c.arg.items) == 1 && c.arg.items[0].kind == kindArray {
			c.whole = &c.arg.items[0]
		}
	case opExists:
		ok, c.exists = c.arg.kind == kindBool, c.arg.bool
	case opType:
		ok, c.kind = c.arg.kind == kindString, kind(max(slices.Index(kindNames[1:], c.arg.str)+1, 0))
	case opSize:
		c.number, ok = c.arg.integer()
		ok = ok && c.number >= 0
	case opMod:
		ok = len(c.arg.items) == 2 && c.arg.kind == kindArray
		if ok {
			var ok1, ok2 bool
			c.divisor, ok1 = c.arg.items[0].integer()
			c.number, ok2 = c.arg.items[1].integer()
			ok = ok1 && ok2 && c.divisor != 0
		}
	case opBeginsWith, opRegex:
		if c.arg.kind != kindString {
			return p.fail(at, ErrInvalidOperator, name, "Invalid operator: "+name)
		}
		if c.op == opRegex {
			return p.regex(c, at)
		}
	}
	if !ok {
		return p.badArg(at, name)
	}
	return nil
}

// integer returns the value of a number written as an integer.
func (c *constant) integer() (int64, bool) {
	return c.num.int, c.kind == kindNumber && c.num.form == formInt
}

// regex compiles a pattern. Go's expressions take linear time, for which they
// lack what needs backtracking.
func (p *parser) regex(c *condition, at place) error {
	var err error
	if c.regex, err = regexp.Compile(c.arg.str); err == nil {
		return nil
	}
	why := err.Error()
	if e := (*syntax.Error)(nil); errors.As(err, &e) {
		why = e.Code.String() + " " + strconv.Quote(e.Expr)
	}
	if backtracks(c.arg.str) {
		why += "; look-around, back references, possessive and atomic groups are not supported, since patterns match in linear time"
	}
	return p.fail(at, ErrBadArg, "$regex", "Bad argument for operator $regex: "+brief(c.arg.json)+" ("+brief(why)+")")
}

// backtracks reports whether a pattern seems to use what only a backtracking
// matcher has.
func backtracks(pattern string) bool {
	for _, form := range []string{"(?=", "(?!", "(?<", "(?>", "(?P=", "(?#", "(?|", "(?R", "++", "*+", "?+", "}+", `\1`, `\2`, `\3`, `\k`, `\g`} {
		if strings.Contains(pattern, form) {
			return true
		}
	}
	return false
}
