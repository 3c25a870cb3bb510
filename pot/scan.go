package pot

// simpleLen maps the first byte of an atom that stands for itself to the length
// of the whole atom; atoms that need a closer look map to 0.
var simpleLen = func() (t [256]uint8) {
	for c := range t {
		if wordLen[c] > 0 {
			t[c] = 1 + wordLen[c]
		}
	}
	for n := range byte(16) {
		t[bytesTag|n] = 1 + n
		if n&1 == 1 {
			t[symbolTag|n] = 1
		}
	}
	for _, c := range []byte{specNone, specUnit, specFalse, specTrue} {
		t[c] = 1
	}
	t[intTag|15], t[uintTag|15] = 17, 17
	t[floatTag|1], t[floatTag|3], t[floatTag|7] = 3, 5, 9
	return t
}()

// A scanner finds the end of a value without decoding it and without recursion.
// It checks the structure, not the texts. When the data ends too early it can
// go on where it stopped once there is more.
type scanner struct {
	mode     Mode
	pos      int
	pending  uint64   // values still to come before the enclosing open map goes on
	open     []uint64 // the pending values around each open map
	maxOpen  int
	r        *Reader // is told of definitions; may be nil
	lens     []int   // the lengths of shapes, if r is nil
	complete bool    // lens holds what the data defines already
	variant  bool    // a variant was met in mode Full and r is nil
}

// maxCount bounds what a header may announce, so that sums do not overflow.
const maxCount = 1 << 60

// run scans until the value is whole. It returns 0, or the code of a failure,
// which lies at s.pos. In mode Full without a reader it stops at a variant.
func (s *scanner) run(data []byte) Code {
	for {
		if s.pending == 0 {
			if len(s.open) == 0 {
				return 0
			}
			if s.pos >= len(data) {
				return ErrTruncated
			}
			if data[s.pos] == specDynEnd {
				s.pos++
				s.pending = s.open[len(s.open)-1]
				s.open = s.open[:len(s.open)-1]
				continue
			}
			s.pending = 2
		}
		s.pos, s.pending = skipSimple(data, s.pos, s.pending)
		if s.pending == 0 {
			continue
		}
		if code := s.atom(data); code != 0 || s.variant {
			return code
		}
	}
}

// skipSimple reads over up to n atoms that stand for themselves and are whole.
// It returns where it stopped, and how many are left.
func skipSimple(data []byte, pos int, n uint64) (int, uint64) {
	for n > 0 && uint(pos) < uint(len(data)) {
		size := int(simpleLen[data[pos]])
		if size == 0 || size > len(data)-pos {
			break
		}
		pos += size
		n--
	}
	return pos, n
}

// atom scans one atom by its header. On failure s stays in front of it.
func (s *scanner) atom(data []byte) Code {
	kind, arg, next, code := parseHeader(data, s.pos)
	if code != 0 {
		return code
	}
	var size, members uint64
	switch kind {
	case kindSpecial:
		return s.special(data, arg, next)
	case kindInt, kindUint:
		if size = arg + 1; !validIntLen(arg) {
			return ErrSyntax
		}
	case kindFloat:
		if size = arg + 1; arg != 1 && arg != 3 && arg != 7 {
			return ErrSyntax
		}
	case kindSeq:
		members = arg
	case kindMap:
		members = 2 * arg
	case kindSymbol:
		if next, code = s.symbol(data, arg, next); code != 0 {
			return code
		}
	case kindBytes:
		size = arg
	}
	if arg > maxCount || s.pending > maxCount {
		return ErrTruncated
	}
	if size > uint64(len(data)-next) {
		return ErrTruncated
	}
	s.pos = next + int(size)
	s.pending += members - 1
	return 0
}

func validIntLen(arg uint64) bool { return arg <= 3 || arg == 5 || arg == 7 || arg == 15 }

// symbol returns the end of a symbol whose header has been read.
func (s *scanner) symbol(data []byte, arg uint64, next int) (int, Code) {
	if arg&1 == 1 {
		return next, 0
	}
	if arg/2 > uint64(len(data)-next) {
		return next, ErrTruncated
	}
	end := next + int(arg/2)
	if s.r != nil {
		if code := s.r.defineSymbol(s.pos, data[next:end]); code != 0 {
			return next, code
		}
	}
	return end, 0
}

func (s *scanner) special(data []byte, arg uint64, next int) Code {
	switch {
	case arg <= specTrue:
	case arg == specNamed:
		return s.named(data, next)
	case arg == specDynMap:
		if len(s.open) >= s.maxOpen {
			return ErrDepth
		}
		s.open = append(s.open, s.pending-1)
		s.pos, s.pending = next, 0
		return 0
	case s.mode == Shapes && arg == specAbsent:
	case s.mode == Shapes && arg == specDefine:
		return s.definition(data, next)
	case s.mode == Shapes && arg >= specShape:
		n, ok := s.shapeLen(arg - specShape)
		if !ok {
			return ErrShape
		}
		s.pending += uint64(n)
	default:
		return ErrSyntax
	}
	s.pos = next
	s.pending--
	return 0
}

func (s *scanner) shapeLen(id uint64) (int, bool) {
	if s.r != nil {
		if id < uint64(len(s.r.shapes)) {
			return len(s.r.shapes[id].ids), true
		}
	} else if id < uint64(len(s.lens)) {
		return s.lens[id], true
	}
	return 0, false
}

// named scans the name of a variant; its value is then still to come.
func (s *scanner) named(data []byte, next int) Code {
	if s.mode == Full && s.r == nil {
		s.variant = true
		return 0
	}
	kind, arg, body, code := parseHeader(data, next)
	switch {
	case code != 0:
		return code
	case kind == kindSymbol:
		at := s.pos
		s.pos = next // where the symbol's definition begins
		body, code = s.symbol(data, arg, body)
		s.pos = at
		if code != 0 {
			return code
		}
	case kind == kindBytes && arg <= uint64(len(data)-body):
		body += int(arg)
	case kind == kindBytes:
		return ErrTruncated
	default:
		return ErrSyntax
	}
	s.pos = body
	if s.mode == Full && unitFollows(data, body) {
		s.pending--
	}
	return 0
}

// unitFollows reports whether in mode Full a variant whose name ends at pos can
// have no value: the input ends here, or goes on with what is not a value.
func unitFollows(data []byte, pos int) bool {
	return pos >= len(data) || data[pos]>>5 == kindSymbol || data[pos] == specDynEnd
}

// definition scans the definition of a shape; the values of its first record
// are then still to come.
func (s *scanner) definition(data []byte, next int) Code {
	kind, n, pos, code := parseHeader(data, next)
	switch {
	case code != 0:
		return code
	case kind != kindSeq || n == 0:
		return ErrSyntax
	}
	if s.r != nil {
		at := s.r.pos
		s.r.pos = next
		_, err := s.r.readDefinition(s.pos)
		pos, s.r.pos = s.r.pos, at
		if err != nil {
			return codeOf(err)
		}
	} else {
		for range n {
			kind, arg, body, code := parseHeader(data, pos)
			switch {
			case code != 0:
				return code
			case kind != kindSymbol:
				return ErrSyntax
			}
			if pos, code = s.symbol(data, arg, body); code != 0 {
				return code
			}
		}
		if !s.complete {
			s.lens = append(s.lens, int(n))
		}
	}
	s.pos = pos
	s.pending += n - 1
	return 0
}

// Skip reads over one value. It checks the structure but not the texts in it.
func (r *Reader) Skip() error {
	if r.pos < len(r.data) {
		if n := int(simpleLen[r.data[r.pos]]); n > 0 && r.pos+n <= len(r.data) {
			r.pos += n
			return nil
		}
	}
	return r.skipMany(1)
}

// skipMany reads over n values.
func (r *Reader) skipMany(n uint64) error {
	if n = r.skipShort(n); n == 0 {
		return nil
	}
	s := &r.scan
	s.mode, s.pos, s.pending, s.open, s.maxOpen, s.r = r.mode, r.pos, n, s.open[:0], r.maxDepth, r
	code := s.run(r.data)
	s.r = nil
	if code != 0 {
		return errAt(code, s.pos, "in a value that is skipped")
	}
	r.pos = s.pos
	return nil
}

// skipShort reads over values as long as their atoms have headers of at most
// two bytes and define nothing, and returns how many are left.
func (r *Reader) skipShort(n uint64) uint64 {
	data, pos := r.data, r.pos
	for n > 0 && uint(pos) < uint(len(data)) {
		c := data[pos]
		if size := int(simpleLen[c]); size > 0 && size <= len(data)-pos {
			pos += size
			n--
			continue
		}
		arg, next := int(c&argMask), pos+1
		if c&moreFlag != 0 {
			if next >= len(data) || data[next] >= 0x80 {
				break
			}
			arg |= int(data[next]) << 4
			next++
		}
		members, ok := r.shortBody(c>>5, arg)
		if c >= bytesTag {
			next, ok = next+arg, arg <= len(data)-next
		}
		if !ok {
			break
		}
		pos = next
		n += members - 1
	}
	r.pos = pos
	return n
}

// shortBody returns how many values follow the header of an atom that is no
// bytes. It reports false for atoms that need a closer look.
func (r *Reader) shortBody(kind byte, arg int) (members uint64, ok bool) {
	switch kind {
	case kindSeq:
		return uint64(arg), true
	case kindMap:
		return 2 * uint64(arg), true
	case kindSymbol:
		return 0, arg&1 == 1
	case kindSpecial:
		if id := arg - specShape; r.mode == Shapes && uint(id) < uint(len(r.shapes)) {
			return uint64(len(r.shapes[id].ids)), true
		}
	}
	return 0, false
}
