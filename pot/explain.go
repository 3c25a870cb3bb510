package pot

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Explain appends to dst a line for each atom of a payload: its offset, its
// bytes in hexadecimal and what they mean, indented by nesting. It explains
// malformed input up to the failure, which it returns as well.
func Explain(dst, payload []byte, opts *DecodeOptions) ([]byte, error) {
	if opts == nil {
		opts = new(DecodeOptions)
	}
	if err := opts.check(); err != nil {
		return dst, err
	}
	if opts.Link {
		return dst, encodeError(ErrOptions, "explaining adds nothing to a table")
	}
	r := newReader(payload, opts)
	defer r.release()
	e := explainer{r: r, b: dst}
	err := r.readHeader()
	if err == nil {
		if r.pos > 0 {
			e.line(0, "header: Pot, mode %v", r.mode)
		}
		err = e.value("")
	}
	if err == nil {
		err = r.end()
	}
	if err != nil {
		e.b = fmt.Appendf(e.b, "%v\n", err)
	}
	return e.b, err
}

type explainer struct {
	r *Reader
	b []byte
}

const explainWidth = 8 // bytes of an atom shown on one line

// line explains the bytes from at to the reader's position.
func (e *explainer) line(at int, format string, args ...any) {
	data := e.r.data[at:e.r.pos]
	rest := ""
	if len(data) > explainWidth {
		data, rest = data[:explainWidth], ".."
	}
	var digits []string
	for i := range data {
		digits = append(digits, hex.EncodeToString(data[i:i+1]))
	}
	e.b = fmt.Appendf(e.b, "%06x  %-*s  %s%s\n", at, explainWidth*3+1, strings.Join(digits, " ")+rest,
		strings.Repeat("  ", e.r.depth), fmt.Sprintf(format, args...))
}

// value explains the next value, which plays a role.
func (e *explainer) value(role string) error {
	r := e.r
	at := r.pos
	kind, arg, err := r.header()
	if err != nil {
		return err
	}
	switch kind {
	case kindInt, kindUint:
		w, err := r.wideBody(kind, arg, at)
		if err == nil {
			e.line(at, "%s%s %s", role, kindNames[kind], w.append(nil))
		}
		return err
	case kindFloat:
		f, width, err := r.floatBody(arg, at)
		if err == nil {
			e.line(at, "%sfloat %s of %d bytes", role, appendFloatText(nil, f), width)
		}
		return err
	case kindBytes:
		b, err := r.take(arg, "bytes")
		if err != nil {
			return err
		}
		if utf8.Valid(b) {
			e.line(at, "%stext of %d bytes %s", role, len(b), clip(strconv.Quote(string(b))))
		} else {
			e.line(at, "%s%d bytes", role, len(b))
		}
		return nil
	case kindSymbol:
		if role == "" {
			role = "unit variant: "
		}
		return e.symbol(at, arg, role)
	case kindSeq:
		if err := r.checkCount(arg, 1); err != nil {
			return err
		}
		e.line(at, "%ssequence of %d", role, arg)
		return e.members(int(arg), nil, false)
	case kindMap:
		if err := r.checkCount(arg, 2); err != nil {
			return err
		}
		e.line(at, "%smap of %d pairs", role, arg)
		return e.members(int(arg), nil, true)
	}
	return e.special(at, arg, role)
}

func clip(s string) string {
	if len(s) <= 60 {
		return s
	}
	n := 57
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// symbol explains a symbol whose header has been read.
func (e *explainer) symbol(at int, arg uint64, role string) error {
	text, id, err := e.r.symbolBody(arg, at)
	if err != nil {
		return err
	}
	is := "symbol"
	if arg&1 == 0 {
		is = "new symbol"
	}
	e.line(at, "%s%s %d %s", role, is, id, clip(strconv.Quote(text)))
	return nil
}

func (e *explainer) special(at int, arg uint64, role string) error {
	r := e.r
	switch {
	case arg <= specTrue:
		e.line(at, "%s%s", role, specialName(arg, r.mode))
		return nil
	case arg == specNamed:
		return e.variant(at, role)
	case arg == specDynMap:
		e.line(at, "%sopen map", role)
		return e.members(-1, nil, true)
	case r.mode == Shapes && arg == specDefine:
		return e.definition(at, role)
	case r.mode == Shapes && arg >= specShape:
		sh, err := r.recordShape(at, arg)
		if err != nil {
			return err
		}
		e.line(at, "%srecord of shape %d, %d fields", role, arg-specShape, len(sh.ids))
		return e.members(len(sh.ids), sh, false)
	}
	return r.mismatch(at, "value")
}

func (e *explainer) variant(at int, role string) error {
	r := e.r
	e.line(at, "%svariant", role)
	if err := r.enter(); err != nil {
		return err
	}
	at = r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return err
	case kind == kindSymbol:
		err = e.symbol(at, arg, "name: ")
	case kind == kindBytes:
		r.pos = at
		err = e.value("name: ")
	default:
		return errAt(ErrSyntax, at, "variant without a name")
	}
	if err == nil && !(r.mode == Full && unitFollows(r.data, r.pos)) {
		err = e.value("value: ")
	}
	r.depth--
	return err
}

// definition explains the definition of a shape and its first record.
func (e *explainer) definition(at int, role string) error {
	r := e.r
	from := r.pos
	id, err := r.readDefinition(at)
	if err != nil {
		return err
	}
	end := r.pos
	sh := r.shapes[id]
	r.pos = from
	e.line(at, "%sdefinition of shape %d and its first record", role, id)
	r.depth++
	if _, _, err := r.header(); err != nil {
		return err
	}
	e.line(from, "%d names", len(sh.ids))
	for _, id := range sh.ids {
		at := r.pos
		_, arg, err := r.header()
		if err != nil {
			return err
		}
		if arg&1 == 0 {
			r.pos += int(arg / 2)
		}
		e.line(at, "symbol %d %s", id, clip(strconv.Quote(r.syms[id].text)))
	}
	r.pos = end
	r.depth--
	return e.members(len(sh.ids), sh, false)
}

// members explains the members of a container; n is -1 for open maps.
func (e *explainer) members(n int, sh *shape, pairs bool) error {
	r := e.r
	if err := r.enter(); err != nil {
		return err
	}
	for i := 0; i != n; i++ {
		at := r.pos
		if n < 0 && r.ReadMapEnd() {
			r.depth--
			e.line(at, "end of the map")
			return nil
		}
		role := ""
		switch {
		case sh != nil && r.pos < len(r.data) && r.data[r.pos] == specAbsent:
			r.pos++
			e.line(at, "%s: absent", r.syms[sh.ids[i]].text)
			continue
		case sh != nil:
			role = r.syms[sh.ids[i]].text + ": "
		case pairs:
			if err := e.value("key: "); err != nil {
				return err
			}
			role = "value: "
		}
		if err := e.value(role); err != nil {
			return err
		}
	}
	r.depth--
	return nil
}

// Format appends to dst the value of a payload in a notation for people:
// unsigned integers end in u, bytes are hexadecimal in h”, variants are their
// name and, in parentheses, their value. A value of another kind than that
// never looks the same. Each member stands on a line of its own if indent is
// not empty.
func Format(dst, payload []byte, indent string, opts *DecodeOptions) ([]byte, error) {
	t := newTape()
	defer t.release()
	if err := readTape(t, payload, opts); err != nil {
		return dst, err
	}
	f := formatter{t: t, indent: indent}
	return f.value(dst, 0), nil
}

type formatter struct {
	t      *tape
	indent string
	level  int
}

func (f *formatter) value(b []byte, i int) []byte {
	n := &f.t.nodes[i]
	switch n.kind {
	case nodeNone:
		return append(b, "none"...)
	case nodeUnit:
		return append(b, "unit"...)
	case nodeFalse:
		return append(b, "false"...)
	case nodeTrue:
		return append(b, "true"...)
	case nodeInt:
		if b = n.num.append(b); !n.num.signed {
			b = append(b, 'u')
		}
		return b
	case nodeFloat:
		return appendFloatText(b, n.float())
	case nodeUnitVariant:
		return appendName(b, n.text)
	case nodeVariant:
		b = append(appendName(b, n.text), '(')
		return append(f.value(b, i+1), ')')
	case nodeSeq:
		return f.members(append(b, '['), i, false, ']')
	case nodeMap:
		return f.members(append(b, '{'), i, true, '}')
	}
	if n.symbol {
		return appendName(b, n.text)
	}
	if utf8.ValidString(n.text) {
		return strconv.AppendQuote(b, n.text)
	}
	b = append(b, "h'"...)
	b = hex.AppendEncode(b, []byte(n.text))
	return append(b, '\'')
}

// appendName appends a symbol, in backquotes unless it is a word.
func appendName(b []byte, name string) []byte {
	word := name != ""
	for i, c := range name {
		word = word && (c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9')
	}
	switch name {
	case "none", "unit", "true", "false", "h":
		word = false
	}
	if word {
		return append(b, name...)
	}
	q := strconv.Quote(name)
	return append(append(append(b, '`'), strings.ReplaceAll(q[1:len(q)-1], "`", `\x60`)...), '`')
}

func (f *formatter) members(b []byte, i int, pairs bool, end byte) []byte {
	n := &f.t.nodes[i]
	f.level++
	first := true
	for j := i + 1; j < int(n.end); j = int(f.t.nodes[j].end) {
		if !first {
			b = append(b, ',')
		}
		b = f.newline(b, !first)
		first = false
		b = f.value(b, j)
		if pairs {
			j = int(f.t.nodes[j].end)
			b = f.value(append(b, ": "...), j)
		}
	}
	f.level--
	if !first {
		b = f.newline(b, false)
	}
	return append(b, end)
}

func (f *formatter) newline(b []byte, space bool) []byte {
	if f.indent != "" {
		return append(append(b, '\n'), strings.Repeat(f.indent, f.level)...)
	}
	if space {
		b = append(b, ' ')
	}
	return b
}
