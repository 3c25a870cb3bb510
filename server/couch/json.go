package couch

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
)

// maxDepth is how deep objects and arrays may nest, the outermost included: as
// deep as CouchDB takes them. Requests may have a lower limit.
const maxDepth = 5000

// maxDigits bounds an integer's digits, as the engine does.
const maxDigits = 1 << 14

// errJSON is the answer to every text that is not JSON.
var errJSON = errors.New("invalid JSON")

// scanner reads a JSON text once and writes it again in CouchDB's form: no
// white space, strings in raw UTF-8 with the fewest escapes, floats shortest
// with a point, repeated members once, in the first one's place with the last
// one's value. It never panics, and its memory is bounded by the text's length
// and maxDepth.
type scanner struct {
	in    []byte
	pos   int
	out   []byte
	depth int
	most  int      // of depth; 0: maxDepth
	marks []member // members of the objects that are open
}

// member is a written member: "name":value at [start:end) of the output.
type member struct {
	start, colon, end int
}

// canonical returns a JSON text in CouchDB's form, appended to dst. It may nest as
// deep as most says.
func canonical(dst, text []byte, most int) ([]byte, error) {
	s := scanner{in: text, out: dst, most: most}
	if err := s.value(); err != nil {
		return dst, err
	}
	return s.out, s.atEnd()
}

func (s *scanner) atEnd() error {
	if s.space(); s.pos != len(s.in) {
		return errJSON
	}
	return nil
}

// space skips white space and returns the byte that follows, 0 at the end.
func (s *scanner) space() byte {
	for s.pos < len(s.in) {
		switch c := s.in[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) value() error {
	switch c := s.space(); {
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array()
	case c == '"':
		return s.text()
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return errJSON
}

func (s *scanner) word(w string) error {
	if len(s.in)-s.pos < len(w) || string(s.in[s.pos:s.pos+len(w)]) != w {
		return errJSON
	}
	s.pos += len(w)
	s.out = append(s.out, w...)
	return nil
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > cmp.Or(s.most, maxDepth) {
		return errJSON
	}
	s.pos++
	return nil
}

func (s *scanner) array() error {
	if err := s.enter(); err != nil {
		return err
	}
	s.out = append(s.out, '[')
	if s.space() == ']' {
		s.pos++
		s.depth--
		s.out = append(s.out, ']')
		return nil
	}
	for {
		if err := s.value(); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.pos++
			s.out = append(s.out, ',')
		case ']':
			s.pos++
			s.depth--
			s.out = append(s.out, ']')
			return nil
		default:
			return errJSON
		}
	}
}

// object reads an object. take, unless nil, is shown each member that was just
// written, at the end of the output, and tells whether to leave it out.
func (s *scanner) object(take func(name, value []byte) (drop bool, err error)) error {
	if err := s.enter(); err != nil {
		return err
	}
	start, first := len(s.out), len(s.marks)
	s.out = append(s.out, '{')
	if s.space() == '}' {
		s.pos++
		return s.leave(start, first)
	}
	for {
		if s.space() != '"' {
			return errJSON
		}
		m := member{start: len(s.out)}
		if err := s.text(); err != nil {
			return err
		}
		if s.space() != ':' {
			return errJSON
		}
		s.pos++
		m.colon = len(s.out)
		s.out = append(s.out, ':')
		if err := s.value(); err != nil {
			return err
		}
		if err := s.keep(m, take); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return s.leave(start, first)
		default:
			return errJSON
		}
	}
}

// keep ends a member that was written: it stays, or is taken out again.
func (s *scanner) keep(m member, take func(name, value []byte) (bool, error)) error {
	if take != nil {
		drop, err := take(s.out[m.start+1:m.colon-1], s.out[m.colon+1:])
		if err != nil {
			return err
		}
		if drop {
			s.out = s.out[:m.start]
			return nil
		}
	}
	m.end = len(s.out)
	s.marks = append(s.marks, m)
	s.out = append(s.out, ',')
	return nil
}

// leave closes an object whose members are marks[first:].
func (s *scanner) leave(start, first int) error {
	s.depth--
	members := s.marks[first:]
	if len(members) > 0 {
		s.out = s.out[:len(s.out)-1] // the last comma
		if repeated(s.out, members) {
			s.unrepeat(start, members)
		}
	}
	s.marks = s.marks[:first]
	s.out = append(s.out, '}')
	return nil
}

// manyMembers is from where on a map finds repeated names.
const manyMembers = 24

func repeated(out []byte, members []member) bool {
	if len(members) > manyMembers {
		seen := make(map[string]struct{}, len(members))
		for _, m := range members {
			name := out[m.start:m.colon]
			if _, ok := seen[string(name)]; ok {
				return true
			}
			seen[string(name)] = struct{}{}
		}
		return false
	}
	for i := 1; i < len(members); i++ {
		a := out[members[i].start:members[i].colon]
		for j := range i {
			if b := out[members[j].start:members[j].colon]; len(a) == len(b) && a[1] == b[1] && bytes.Equal(a, b) {
				return true
			}
		}
	}
	return false
}

// unrepeat writes an object's members again, each name once.
func (s *scanner) unrepeat(start int, members []member) {
	last := make(map[string]member, len(members))
	for _, m := range members {
		last[string(s.out[m.start:m.colon])] = m
	}
	fresh := append(make([]byte, 0, len(s.out)-start), '{')
	for _, m := range members {
		name := s.out[m.start:m.colon]
		l, ok := last[string(name)]
		if !ok {
			continue // written already
		}
		delete(last, string(name))
		fresh = append(append(fresh, s.out[l.start:l.end]...), ',')
	}
	s.out = append(s.out[:start], fresh[:len(fresh)-1]...)
}

// text reads a string and writes it with the fewest escapes.
func (s *scanner) text() error {
	s.pos++
	s.out = append(s.out, '"')
	from := s.pos
	for s.pos < len(s.in) {
		switch c := s.in[s.pos]; {
		case c == '"':
			s.out = append(append(s.out, s.in[from:s.pos]...), '"')
			s.pos++
			return nil
		case c == '\\':
			s.out = append(s.out, s.in[from:s.pos]...)
			if err := s.escape(); err != nil {
				return err
			}
			from = s.pos
		case c < ' ':
			return errJSON
		case c < utf8.RuneSelf:
			s.pos++
		default:
			_, size := utf8.DecodeRune(s.in[s.pos:])
			if size == 1 {
				return errJSON
			}
			s.pos += size
		}
	}
	return errJSON
}

// escape reads an escape sequence, at whose backslash the text stands.
func (s *scanner) escape() error {
	if s.pos+1 >= len(s.in) {
		return errJSON
	}
	c := s.in[s.pos+1]
	switch c {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		s.out = append(s.out, '\\', c)
	case '/':
		s.out = append(s.out, '/')
	case 'u':
		return s.unicode()
	default:
		return errJSON
	}
	s.pos += 2
	return nil
}

func (s *scanner) unicode() error {
	r, ok := s.unit(s.pos)
	if !ok {
		return errJSON
	}
	size := 6
	if 0xD800 <= r && r < 0xE000 {
		low, ok := s.unit(s.pos + 6)
		if !ok || r >= 0xDC00 || low < 0xDC00 || low >= 0xE000 {
			return errJSON
		}
		r, size = 0x10000+(r-0xD800)<<10+(low-0xDC00), 12
	}
	s.pos += size
	s.out = appendRune(s.out, r)
	return nil
}

// unit returns the code unit of the escape \uXXXX at pos.
func (s *scanner) unit(pos int) (r rune, ok bool) {
	if len(s.in)-pos < 6 || s.in[pos] != '\\' || s.in[pos+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s.in[pos+2:pos+6]), 16, 16)
	return rune(n), err == nil && s.in[pos+2] != '+'
}

// appendRune writes a character of a string as JSON demands.
func appendRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if r < ' ' {
		const digits = "0123456789ABCDEF"
		return append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
	}
	return utf8.AppendRune(dst, r)
}

// number reads a number: an integer keeps its digits, a float is written anew.
func (s *scanner) number() error {
	start := s.pos
	if s.in[s.pos] == '-' {
		s.pos++
	}
	first := s.pos
	n := s.digits()
	if n == 0 || n > 1 && s.in[first] == '0' {
		return errJSON
	}
	if s.pos < len(s.in) {
		if c := s.in[s.pos]; c == '.' || c|0x20 == 'e' {
			return s.float(start)
		}
	}
	if n > maxDigits {
		return errJSON
	}
	if n == 1 && s.in[first] == '0' {
		start = first // -0 is 0
	}
	s.out = append(s.out, s.in[start:s.pos]...)
	return nil
}

func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.in) && '0' <= s.in[s.pos] && s.in[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

func (s *scanner) float(start int) error {
	if s.in[s.pos] == '.' {
		s.pos++
		if s.digits() == 0 {
			return errJSON
		}
	}
	if s.pos < len(s.in) && s.in[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.in) && (s.in[s.pos] == '+' || s.in[s.pos] == '-') {
			s.pos++
		}
		if s.digits() == 0 {
			return errJSON
		}
	}
	f, err := strconv.ParseFloat(string(s.in[start:s.pos]), 64)
	if err != nil {
		return errJSON
	}
	s.out = appendFloat(s.out, f)
	return nil
}

// appendFloat writes a float as CouchDB does: the shortest digits that mean it,
// with a point or an exponent. Numbers below the least normal one are zero.
func appendFloat(dst []byte, f float64) []byte {
	const leastNormal = 0x1p-1022
	a := math.Abs(f)
	if a < leastNormal {
		if math.Signbit(f) {
			return append(dst, "-0.0"...)
		}
		return append(dst, "0.0"...)
	}
	if a >= 1e-6 && a < 1e21 {
		at := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
		if bytes.IndexByte(dst[at:], '.') < 0 {
			dst = append(dst, '.', '0')
		}
		return dst
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1] // e-07 is e-7
		dst = dst[:n-1]
	}
	return dst
}

// appendQuoted writes s as a JSON string. What is not UTF-8 in it becomes the
// replacement character.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r != utf8.RuneError || size > 1 {
			if c >= utf8.RuneSelf {
				i += size
				continue
			}
		}
		dst = append(dst, s[from:i]...)
		dst = appendRune(dst, r)
		i += size
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

// unquote returns the string that a canonical JSON string stands for; ok is
// false if the value is none.
func unquote(value []byte) (s string, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	in := value[1 : len(value)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return string(in), true
	}
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' || i+1 >= len(in) {
			out = append(out, in[i])
			continue
		}
		i++
		switch in[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			n, err := strconv.ParseUint(string(in[i+1:min(i+5, len(in))]), 16, 16)
			if err != nil {
				return "", false
			}
			out = utf8.AppendRune(out, rune(n))
			i += 4
		default:
			out = append(out, in[i])
		}
	}
	return string(out), true
}

// fields walks over the members of a canonical JSON object; fn gets names and
// values that alias it. ok is false if the value is no object.
func fields(value []byte, fn func(name, value []byte) error) (ok bool, err error) {
	if len(value) == 0 || value[0] != '{' {
		return false, nil
	}
	for i := 1; i < len(value) && value[i] != '}'; {
		if value[i] == ',' {
			i++
		}
		end := skip(value, i)
		stop := skip(value, end+1)
		if err := fn(value[i:end], value[end+1:stop]); err != nil {
			return true, err
		}
		i = stop
	}
	return true, nil
}

// elements walks over the elements of a canonical JSON array.
func elements(value []byte, fn func(value []byte) error) (ok bool, err error) {
	if len(value) == 0 || value[0] != '[' {
		return false, nil
	}
	for i := 1; i < len(value) && value[i] != ']'; {
		if value[i] == ',' {
			i++
		}
		end := skip(value, i)
		if err := fn(value[i:end]); err != nil {
			return true, err
		}
		i = end
	}
	return true, nil
}

// skip returns where the value that begins at i of a canonical text ends.
func skip(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',', ':':
			if depth == 0 {
				return i
			}
		}
		if i++; depth == 0 && i < len(b) && (b[i] == ',' || b[i] == ':' || b[i] == '}' || b[i] == ']') {
			return i
		}
	}
	return min(i, len(b))
}
