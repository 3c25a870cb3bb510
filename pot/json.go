package pot

import (
	"encoding/base64"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// JSONOptions says how ToJSON reads the payload and writes the text. The zero
// value, and a nil pointer, is the default.
type JSONOptions struct {
	DecodeOptions
	// Lossy writes what JSON cannot hold in the way nearest to it, instead of
	// failing with ErrNotRepresentable: bytes that are not UTF-8 as base64,
	// floats that are not finite as null, and numbers and truth values that are
	// keys as texts.
	Lossy bool
	// Indent, if not empty, puts each member on a line of its own.
	Indent string
}

// ToJSON appends the value of a payload to dst as JSON. Members keep their
// order; integers of up to 128 bits are written exactly; floats are written
// with a point or an exponent, so that they remain floats. A variant with a
// value becomes an object with its name as the only key, one without a text.
// It needs no Go type and allocates nothing but dst for payloads with a table.
func ToJSON(dst, payload []byte, opts *JSONOptions) ([]byte, error) {
	if opts == nil {
		opts = new(JSONOptions)
	}
	if err := opts.check(); err != nil {
		return dst, err
	}
	r := newReader(payload, &opts.DecodeOptions)
	j := jsonWriter{r: r, lossy: opts.Lossy, indent: opts.Indent}
	err := r.readHeader()
	b := dst
	if err == nil {
		b, err = j.value(dst)
	}
	if err == nil {
		err = r.end()
	}
	if err == nil && opts.Canonical {
		err = checkCanonical(payload, &opts.DecodeOptions)
	}
	if err != nil {
		opts.undo(err, payload, r.before)
	}
	r.release()
	if err != nil {
		return dst, err
	}
	return b, nil
}

// jsonWriter writes values as JSON.
type jsonWriter struct {
	r      *Reader
	lossy  bool
	indent string
	level  int
}

// value appends the next value.
func (j *jsonWriter) value(b []byte) ([]byte, error) {
	r := j.r
	at := r.pos
	kind, arg, err := r.header()
	if err != nil {
		return b, err
	}
	switch kind {
	case kindInt, kindUint:
		w, err := r.wideBody(kind, arg, at)
		return w.append(b), err
	case kindFloat:
		f, _, err := r.floatBody(arg, at)
		if err != nil {
			return b, err
		}
		return j.float(b, f, at)
	case kindBytes:
		text, err := r.take(arg, "text")
		if err != nil {
			return b, err
		}
		return j.text(b, text, at)
	case kindSymbol:
		text, _, err := r.symbolBody(arg, at)
		if err != nil {
			return b, err
		}
		return appendJSONText(b, text), nil
	case kindSeq:
		if err := r.checkCount(arg, 1); err != nil {
			return b, err
		}
		return j.seq(b, int(arg))
	case kindSpecial:
		switch arg {
		case specNone, specUnit:
			return append(b, "null"...), nil
		case specFalse:
			return append(b, "false"...), nil
		case specTrue:
			return append(b, "true"...), nil
		case specNamed:
			r.pos = at
			return j.variant(b)
		}
	}
	r.pos = at
	n, sh, _, err := r.mapHead("value")
	if err != nil {
		return b, err
	}
	return j.object(b, n, sh)
}

func (j *jsonWriter) float(b []byte, f float64, at int) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		if j.lossy {
			return append(b, "null"...), nil
		}
		return b, errAt(ErrNotRepresentable, at, "%v in JSON", f)
	}
	return appendFloatText(b, f), nil
}

// appendFloatText appends the shortest text that reads back as f and cannot be
// taken for an integer.
func appendFloatText(b []byte, f float64) []byte {
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	from := len(b)
	b = strconv.AppendFloat(b, f, format, -1, 64)
	for _, c := range b[from:] {
		if c == '.' || c == 'e' || c == 'I' || c == 'N' {
			return b
		}
	}
	return append(b, '.', '0')
}

func (j *jsonWriter) text(b, text []byte, at int) ([]byte, error) {
	if utf8.Valid(text) {
		return appendJSONText(b, alias(text)), nil
	}
	if !j.lossy {
		return b, errAt(ErrNotRepresentable, at, "bytes that are not UTF-8 in JSON")
	}
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, text)
	return append(b, '"'), nil
}

func (j *jsonWriter) seq(b []byte, n int) ([]byte, error) {
	if n == 0 {
		return append(b, "[]"...), nil
	}
	if err := j.r.enter(); err != nil {
		return b, err
	}
	b = j.open(b, '[')
	for i := range n {
		b = j.next(b, i)
		var err error
		if b, err = j.value(b); err != nil {
			return b, err
		}
	}
	j.r.depth--
	return j.close(b, ']'), nil
}

func (j *jsonWriter) variant(b []byte) ([]byte, error) {
	if err := j.r.enter(); err != nil {
		return b, err
	}
	name, unit, err := j.r.ReadVariant()
	if err != nil {
		return b, err
	}
	if unit {
		j.r.depth--
		return appendJSONText(b, name), nil
	}
	b = j.colon(appendJSONText(j.next(j.open(b, '{'), 0), name))
	b, err = j.value(b)
	j.r.depth--
	return j.close(b, '}'), err
}

func (j *jsonWriter) object(b []byte, n int, sh *shape) (_ []byte, err error) {
	r := j.r
	if err := r.enter(); err != nil {
		return b, err
	}
	b = j.open(b, '{')
	count := 0
	for i := 0; i != n; i++ {
		if n < 0 && r.ReadMapEnd() {
			break
		}
		if sh != nil && r.pos < len(r.data) && r.data[r.pos] == specAbsent {
			r.pos++
			continue
		}
		b = j.next(b, count)
		count++
		if sh != nil {
			b = appendJSONText(b, r.syms[sh.ids[i]].text)
		} else if b, err = j.key(b); err != nil {
			return b, err
		}
		if b, err = j.value(j.colon(b)); err != nil {
			return b, err
		}
	}
	r.depth--
	if count == 0 {
		j.level--
		return append(b, '}'), nil
	}
	return j.close(b, '}'), nil
}

// key appends a key, which must be a text or made one.
func (j *jsonWriter) key(b []byte) ([]byte, error) {
	at, from := j.r.pos, len(b)
	kind, arg, _, code := parseHeader(j.r.data, at)
	scalar := kind == kindInt || kind == kindUint || kind == kindFloat || kind == kindSpecial && arg >= specFalse && arg <= specTrue
	switch {
	case code != 0:
		return b, j.r.fail(code, "atom header")
	case kind == kindBytes || kind == kindSymbol:
		return j.value(b)
	case !scalar || !j.lossy:
		return b, j.r.fail(ErrNotRepresentable, "%s as a key in JSON", kindNames[kind])
	}
	b, err := j.value(append(b, '"'))
	if err != nil {
		return b[:from], err
	}
	return append(b, '"'), nil
}

func (j *jsonWriter) open(b []byte, c byte) []byte {
	j.level++
	return append(b, c)
}

func (j *jsonWriter) close(b []byte, c byte) []byte {
	j.level--
	return append(j.line(b), c)
}

func (j *jsonWriter) next(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return j.line(b)
}

func (j *jsonWriter) line(b []byte) []byte {
	if j.indent == "" {
		return b
	}
	b = append(b, '\n')
	for range j.level {
		b = append(b, j.indent...)
	}
	return b
}

func (j *jsonWriter) colon(b []byte) []byte {
	if j.indent == "" {
		return append(b, ':')
	}
	return append(b, ':', ' ')
}

// append appends the integer in decimal.
func (w wide) append(b []byte) []byte {
	if v, ok := w.int64(); ok {
		return strconv.AppendInt(b, v, 10)
	}
	if v, ok := w.uint64(); ok && !w.negative() {
		return strconv.AppendUint(b, v, 10)
	}
	return w.big().Append(b, 10)
}

// plainJSON marks the bytes that stand for themselves within a JSON string.
var plainJSON = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

// appendJSONText appends valid UTF-8 as a JSON string.
func appendJSONText(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if plainJSON[c] {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		default:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}

// FromJSON appends to dst the payload of a JSON text (RFC 8259). Objects become
// maps whose keys are symbols, or in mode Shapes records, in the order of their
// members; integers of up to 128 bits are kept exactly, as signed ones if they
// fit; numbers with a point or an exponent, and -0, become floats. It fails
// with ErrSyntax, ErrTruncated, ErrTrailing, ErrUTF8, ErrDuplicate, ErrDepth,
// and with ErrRange for numbers that are too large; the offset is one in text.
// It takes memory in proportion to the length of the text.
func FromJSON(dst, text []byte, opts *EncodeOptions) ([]byte, error) {
	t := newTape()
	defer t.release()
	depth := 0
	if opts != nil {
		depth = opts.MaxDepth
	}
	p := jsonParser{data: text, t: t, maxDepth: depthLimit(depth)}
	if err := p.value(); err != nil {
		return dst, err
	}
	if p.space(); p.pos < len(text) {
		return dst, p.fail(ErrTrailing, "%d bytes", len(text)-p.pos)
	}
	return writeTape(dst, t, opts)
}

// jsonParser parses JSON onto a tape.
type jsonParser struct {
	data     []byte
	pos      int
	t        *tape
	depth    int
	maxDepth int
}

func (p *jsonParser) fail(code Code, format string, args ...any) error {
	if p.pos >= len(p.data) && code == ErrSyntax {
		code = ErrTruncated
	}
	return errAt(code, p.pos, format, args...)
}

func (p *jsonParser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// peek returns the next byte that is not space, or 0.
func (p *jsonParser) peek() byte {
	p.space()
	if p.pos < len(p.data) {
		return p.data[p.pos]
	}
	return 0
}

func (p *jsonParser) value() error {
	if len(p.t.nodes) > maxNodes {
		return p.fail(ErrBudget, "more than %d values", maxNodes)
	}
	switch c := p.peek(); {
	case c == '"':
		s, err := p.text()
		p.t.add(node{kind: nodeText, text: s})
		return err
	case c == '{':
		return p.container((*jsonParser).object)
	case c == '[':
		return p.container((*jsonParser).array)
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case c == 'n':
		return p.word("null", nodeNone)
	case c == 't':
		return p.word("true", nodeTrue)
	case c == 'f':
		return p.word("false", nodeFalse)
	}
	return p.fail(ErrSyntax, "no JSON value")
}

func (p *jsonParser) word(w string, kind nodeKind) error {
	if len(p.data)-p.pos < len(w) || string(p.data[p.pos:p.pos+len(w)]) != w {
		return p.fail(ErrSyntax, "no JSON value")
	}
	p.pos += len(w)
	p.t.add(node{kind: kind})
	return nil
}

func (p *jsonParser) container(body func(*jsonParser) error) error {
	if p.depth >= p.maxDepth {
		return p.fail(ErrDepth, "more than %d levels", p.maxDepth)
	}
	p.depth++
	p.pos++
	err := body(p)
	p.depth--
	return err
}

// more reads the comma or the end after a member; before the first, n is 0.
func (p *jsonParser) more(n int, end byte) (bool, error) {
	switch c := p.peek(); {
	case c == end:
		p.pos++
		return false, nil
	case n == 0:
		return true, nil
	case c == ',':
		p.pos++
		return true, nil
	}
	return false, p.fail(ErrSyntax, "want a comma or %q", end)
}

func (p *jsonParser) array() error {
	i := p.t.add(node{kind: nodeSeq})
	for n := 0; ; n++ {
		more, err := p.more(n, ']')
		if err != nil {
			return err
		}
		if !more {
			p.t.close(i, n)
			return nil
		}
		if err := p.value(); err != nil {
			return err
		}
	}
}

func (p *jsonParser) object() error {
	i := p.t.add(node{kind: nodeMap, symbol: true})
	var met map[string]struct{}
	for n := 0; ; n++ {
		more, err := p.more(n, '}')
		if err != nil {
			return err
		}
		if !more {
			p.t.close(i, n)
			return nil
		}
		if p.peek() != '"' {
			return p.fail(ErrSyntax, "want the name of a member")
		}
		at := p.pos
		name, err := p.text()
		if err != nil {
			return err
		}
		if twice := p.t.hasKey(i, name, n, &met); twice {
			p.pos = at
			return p.fail(ErrDuplicate, "member %q", name)
		}
		p.t.add(node{kind: nodeText, symbol: true, text: name})
		if p.peek() != ':' {
			return p.fail(ErrSyntax, "want a colon")
		}
		p.pos++
		if err := p.value(); err != nil {
			return err
		}
	}
}

// hasKey reports whether the map at node i, of n pairs so far, has the key. A
// few are compared one by one, more by way of the set in met.
func (t *tape) hasKey(i int, name string, n int, met *map[string]struct{}) bool {
	const few = 12
	if n < few {
		for j := i + 1; j < len(t.nodes); j = int(t.nodes[t.nodes[j].end].end) {
			if t.nodes[j].text == name {
				return true
			}
		}
		return false
	}
	if *met == nil {
		*met = make(map[string]struct{}, 2*few)
		for j := i + 1; j < len(t.nodes); j = int(t.nodes[t.nodes[j].end].end) {
			(*met)[t.nodes[j].text] = struct{}{}
		}
	}
	if _, twice := (*met)[name]; twice {
		return true
	}
	(*met)[name] = struct{}{}
	return false
}

// text reads a string; p.pos is at its quote.
func (p *jsonParser) text() (string, error) {
	from := p.pos + 1
	for i := from; i < len(p.data); i++ {
		c := p.data[i]
		if plainJSON[c] {
			continue
		}
		if c != '"' {
			return p.escaped(from, i)
		}
		if !utf8.Valid(p.data[from:i]) {
			return "", p.fail(ErrUTF8, "JSON string")
		}
		p.pos = i + 1
		return alias(p.data[from:i]), nil
	}
	p.pos = len(p.data)
	return "", p.fail(ErrTruncated, "JSON string")
}

// escaped reads a string with escapes, the first of which is at i, into the
// tape's own memory.
func (p *jsonParser) escaped(from, i int) (string, error) {
	side := p.t.side
	begin := len(side)
	side = append(side, p.data[from:i]...)
	for i < len(p.data) {
		c := p.data[i]
		switch {
		case c == '"':
			if !utf8.Valid(side[begin:]) {
				return "", p.fail(ErrUTF8, "JSON string")
			}
			p.pos, p.t.side = i+1, side
			return alias(side[begin:]), nil
		case c == '\\':
			var err error
			if side, i, err = p.escape(side, i+1); err != nil {
				return "", err
			}
		case c < 0x20:
			p.pos = i
			return "", p.fail(ErrSyntax, "control character %#x in a JSON string", c)
		default:
			side = append(side, c)
			i++
		}
	}
	p.pos = len(p.data)
	return "", p.fail(ErrTruncated, "JSON string")
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads the escape whose letter is at i.
func (p *jsonParser) escape(side []byte, i int) ([]byte, int, error) {
	if i >= len(p.data) {
		p.pos = len(p.data)
		return side, i, p.fail(ErrTruncated, "JSON string")
	}
	if c, ok := escapes[p.data[i]]; ok {
		return append(side, c), i + 1, nil
	}
	u, ok := p.hex4(i)
	if !ok {
		p.pos = i
		return side, i, p.fail(ErrSyntax, "bad escape")
	}
	i += 5
	if u >= 0xd800 && u < 0xe000 { // half of a pair
		low, ok := uint32(0), false
		if i < len(p.data) && p.data[i] == '\\' {
			low, ok = p.hex4(i + 1)
		}
		if !ok || u >= 0xdc00 || low < 0xdc00 || low >= 0xe000 {
			p.pos = i
			return side, i, p.fail(ErrUTF8, "half of a surrogate pair")
		}
		u = (u-0xd800)<<10 | (low - 0xdc00) + 0x10000
		i += 6
	}
	return utf8.AppendRune(side, rune(u)), i, nil
}

// hex4 reads the letter u at i and four digits.
func (p *jsonParser) hex4(i int) (u uint32, ok bool) {
	if i+5 > len(p.data) || p.data[i] != 'u' {
		return 0, false
	}
	for _, c := range p.data[i+1 : i+5] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		u = u<<4 | uint32(c)
	}
	return u, true
}

func (p *jsonParser) digits() (n int) {
	for p.pos < len(p.data) && p.data[p.pos]-'0' <= 9 {
		p.pos++
		n++
	}
	return n
}

func (p *jsonParser) at(c byte) bool { return p.pos < len(p.data) && p.data[p.pos] == c }

func (p *jsonParser) number() error {
	from, whole := p.pos, true
	if p.at('-') {
		p.pos++
	}
	if p.at('0') {
		p.pos++
		if n := p.digits(); n > 0 {
			p.pos -= n
			return p.fail(ErrSyntax, "number with a leading zero")
		}
	} else if p.digits() == 0 {
		return p.fail(ErrSyntax, "number without digits")
	}
	if p.at('.') {
		whole = false
		if p.pos++; p.digits() == 0 {
			return p.fail(ErrSyntax, "number without digits after the point")
		}
	}
	if p.at('e') || p.at('E') {
		whole = false
		if p.pos++; p.at('+') || p.at('-') {
			p.pos++
		}
		if p.digits() == 0 {
			return p.fail(ErrSyntax, "number without digits in the exponent")
		}
	}
	text := alias(p.data[from:p.pos])
	if whole && text != "-0" {
		w, ok := wideFromText(text)
		if !ok {
			p.pos = from
			return p.fail(ErrRange, "integer of more than 128 bits")
		}
		p.t.add(node{kind: nodeInt, num: w})
		return nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		p.pos = from
		return p.fail(ErrRange, "number %s", text)
	}
	p.t.add(node{kind: nodeFloat, num: wide{lo: math.Float64bits(f)}})
	return nil
}

// wideFromText converts decimal digits with an optional minus.
func wideFromText(text string) (wide, bool) {
	digits, neg := text, text[0] == '-'
	if neg {
		digits = text[1:]
	}
	if len(digits) <= 18 {
		v := int64(0)
		for _, c := range []byte(digits) {
			v = v*10 + int64(c-'0')
		}
		if neg {
			v = -v
		}
		return wideInt(v), true
	}
	if len(digits) > 39 {
		return wide{}, false
	}
	var w wide
	for _, c := range []byte(digits) {
		over, hi := bits.Mul64(w.hi, 10)
		carry, lo := bits.Mul64(w.lo, 10)
		hi, c1 := bits.Add64(hi, carry, 0)
		lo, c2 := bits.Add64(lo, uint64(c-'0'), 0)
		hi, c3 := bits.Add64(hi, 0, c2)
		if over|c1|c3 != 0 {
			return w, false
		}
		w.hi, w.lo = hi, lo
	}
	if !neg {
		return w.preferSigned(), true
	}
	return wideFromBig(new(big.Int).Neg(w.big()))
}
