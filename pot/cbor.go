package pot

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// The major types of CBOR, RFC 8949.
const (
	cborUint byte = iota
	cborNegative
	cborBytes
	cborText
	cborArray
	cborMap
	cborTag
	cborSimple
)

const (
	cborFalse      = 0xf4
	cborTrue       = 0xf5
	cborNull       = 0xf6
	cborUndefined  = 0xf7
	cborHalf       = 0xf9
	cborSingle     = 0xfa
	cborDouble     = 0xfb
	cborBreak      = 0xff
	cborPosBignum  = 0xc2
	cborNegBignum  = 0xc3
	cborIndefinite = 31
)

// ToCBOR appends the value of a payload to dst as CBOR (RFC 8949), with
// definite lengths and the shortest heads. None becomes null and unit
// undefined; integers of more than 64 bits become bignums; text and bytes are
// told apart by whether they are UTF-8; a variant with a value becomes a map
// with its name as the only key, one without a text. CBOR can hold every value
// of a payload; it does not tell signed from unsigned integers, nor symbols
// from texts.
func ToCBOR(dst, payload []byte, opts *DecodeOptions) ([]byte, error) {
	t := newTape()
	defer t.release()
	if err := readTape(t, payload, opts); err != nil {
		return dst, err
	}
	return t.appendCBOR(dst, 0), nil
}

func (t *tape) appendCBOR(b []byte, i int) []byte {
	n := &t.nodes[i]
	switch n.kind {
	case nodeNone:
		return append(b, cborNull)
	case nodeUnit:
		return append(b, cborUndefined)
	case nodeFalse:
		return append(b, cborFalse)
	case nodeTrue:
		return append(b, cborTrue)
	case nodeInt:
		return appendCBORInt(b, n.num)
	case nodeFloat:
		return appendCBORFloat(b, n)
	case nodeText, nodeBytes:
		major := cborText
		if !utf8.ValidString(n.text) {
			major = cborBytes
		}
		return append(appendCBORHead(b, major, uint64(len(n.text))), n.text...)
	case nodeUnitVariant:
		return append(appendCBORHead(b, cborText, uint64(len(n.text))), n.text...)
	case nodeVariant:
		b = appendCBORHead(b, cborMap, 1)
		b = append(appendCBORHead(b, cborText, uint64(len(n.text))), n.text...)
		return t.appendCBOR(b, i+1)
	case nodeSeq:
		b = appendCBORHead(b, cborArray, uint64(n.n))
	case nodeMap:
		b = appendCBORHead(b, cborMap, uint64(n.n))
	}
	for j := i + 1; j < int(n.end); j = int(t.nodes[j].end) {
		b = t.appendCBOR(b, j)
	}
	return b
}

func appendCBORHead(b []byte, major byte, arg uint64) []byte {
	major <<= 5
	switch {
	case arg < 24:
		return append(b, major|byte(arg))
	case arg <= math.MaxUint8:
		return append(b, major|24, byte(arg))
	case arg <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(arg))
	case arg <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(arg))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), arg)
}

// appendCBORInt appends an integer; a negative one as -1-n, that is ^n.
func appendCBORInt(b []byte, w wide) []byte {
	major, tag := cborUint, byte(cborPosBignum)
	if w.negative() {
		w.hi, w.lo = ^w.hi, ^w.lo
		major, tag = cborNegative, cborNegBignum
	}
	if w.hi == 0 {
		return appendCBORHead(b, major, w.lo)
	}
	var buf [16]byte
	binary.BigEndian.PutUint64(buf[:8], w.hi)
	binary.BigEndian.PutUint64(buf[8:], w.lo)
	digits := buf[:]
	for digits[0] == 0 {
		digits = digits[1:]
	}
	return append(appendCBORHead(append(b, tag), cborBytes, uint64(len(digits))), digits...)
}

func appendCBORFloat(b []byte, n *node) []byte {
	own := appendNodeFloat(nil, n)[1:] // the same bytes in the other order
	b = append(b, map[int]byte{2: cborHalf, 4: cborSingle, 8: cborDouble}[len(own)])
	for i := len(own) - 1; i >= 0; i-- {
		b = append(b, own[i])
	}
	return b
}

// FromCBOR appends to dst the payload of one CBOR data item. It is the reverse
// of ToCBOR: maps whose keys are all texts become maps of symbols, or in mode
// Shapes records; integers are signed if they fit in 128 signed bits; bytes
// and texts become the same kind. Indefinite lengths are read. Tags other than
// bignums and simple values other than false, true, null and undefined are not
// representable. It fails with ErrNotRepresentable, ErrSyntax, ErrTruncated,
// ErrTrailing, ErrUTF8, ErrDepth, and with ErrDuplicate for a text key that
// occurs twice; the offset is one in data.
func FromCBOR(dst, data []byte, opts *EncodeOptions) ([]byte, error) {
	t := newTape()
	defer t.release()
	depth := 0
	if opts != nil {
		depth = opts.MaxDepth
	}
	p := cborParser{data: data, t: t, maxDepth: depthLimit(depth)}
	if err := p.value(); err != nil {
		return dst, err
	}
	if p.pos < len(data) {
		return dst, p.fail(ErrTrailing, "%d bytes", len(data)-p.pos)
	}
	return writeTape(dst, t, opts)
}

// cborParser parses CBOR onto a tape.
type cborParser struct {
	data     []byte
	pos      int
	t        *tape
	depth    int
	maxDepth int
}

func (p *cborParser) fail(code Code, format string, args ...any) error {
	return errAt(code, p.pos, format, args...)
}

// head reads an item's head. For an indefinite length open is true.
func (p *cborParser) head() (major byte, arg uint64, open bool, err error) {
	if p.pos >= len(p.data) {
		return 0, 0, false, p.fail(ErrTruncated, "CBOR head")
	}
	c := p.data[p.pos]
	major, low := c>>5, c&31
	size := 0
	switch {
	case low < 24:
		arg = uint64(low)
	case low <= 27:
		size = 1 << (low - 24)
	case low == cborIndefinite && (major >= cborBytes && major <= cborMap):
		open = true
	default:
		return 0, 0, false, p.fail(ErrSyntax, "CBOR head %#x", c)
	}
	if len(p.data)-p.pos-1 < size {
		return 0, 0, false, p.fail(ErrTruncated, "CBOR head")
	}
	p.pos++
	for range size {
		arg = arg<<8 | uint64(p.data[p.pos])
		p.pos++
	}
	return major, arg, open, nil
}

func (p *cborParser) take(n uint64) ([]byte, error) {
	if n > uint64(len(p.data)-p.pos) {
		return nil, p.fail(ErrTruncated, "CBOR string of %d bytes", n)
	}
	b := p.data[p.pos : p.pos+int(n)]
	p.pos += int(n)
	return b, nil
}

func (p *cborParser) value() error {
	if len(p.t.nodes) > maxNodes {
		return p.fail(ErrBudget, "more than %d values", maxNodes)
	}
	at := p.pos
	major, arg, open, err := p.head()
	if err != nil {
		return err
	}
	switch major {
	case cborUint:
		p.t.add(node{kind: nodeInt, num: wideUint(arg).preferSigned()})
	case cborNegative:
		p.t.add(node{kind: nodeInt, num: wide{hi: ^uint64(0), lo: ^arg, signed: true}})
	case cborBytes, cborText:
		text, err := p.text(major, arg, open)
		p.t.add(node{kind: nodeText, text: text})
		return err
	case cborArray:
		return p.container(at, arg, open, (*cborParser).array)
	case cborMap:
		return p.container(at, arg, open, (*cborParser).object)
	case cborTag:
		return p.tagged(at, arg)
	default:
		return p.simple(at, arg)
	}
	return nil
}

// text reads the bytes of a string, which may come in chunks.
func (p *cborParser) text(major byte, n uint64, open bool) (string, error) {
	at := p.pos
	if !open {
		b, err := p.take(n)
		if err == nil && major == cborText && !utf8.Valid(b) {
			err = errAt(ErrUTF8, at, "CBOR text")
		}
		return alias(b), err
	}
	begin := len(p.t.side)
	for !p.breaks() {
		at := p.pos
		m, n, open, err := p.head()
		if err != nil {
			return "", err
		}
		if m != major || open {
			return "", errAt(ErrSyntax, at, "chunk of another type")
		}
		chunk, err := p.text(major, n, false)
		if err != nil {
			return "", err
		}
		p.t.side = append(p.t.side, chunk...)
	}
	return alias(p.t.side[begin:]), nil
}

// breaks reads the end of an indefinite length if it is next.
func (p *cborParser) breaks() bool {
	if p.pos < len(p.data) && p.data[p.pos] == cborBreak {
		p.pos++
		return true
	}
	return false
}

func (p *cborParser) container(at int, n uint64, open bool, body func(*cborParser, uint64, bool) error) error {
	if p.depth >= p.maxDepth {
		return errAt(ErrDepth, at, "more than %d levels", p.maxDepth)
	}
	if n > uint64(len(p.data)-p.pos) {
		return p.fail(ErrTruncated, "%d members, but %d bytes are left", n, len(p.data)-p.pos)
	}
	p.depth++
	err := body(p, n, open)
	p.depth--
	return err
}

func (p *cborParser) array(n uint64, open bool) error {
	i := p.t.add(node{kind: nodeSeq})
	count := 0
	for ; open && !p.breaks() || !open && uint64(count) < n; count++ {
		if err := p.value(); err != nil {
			return err
		}
	}
	p.t.close(i, count)
	return nil
}

func (p *cborParser) object(n uint64, open bool) error {
	i := p.t.add(node{kind: nodeMap, symbol: true})
	count := 0
	var met map[string]struct{}
	for ; open && !p.breaks() || !open && uint64(count) < n; count++ {
		at, k := p.pos, len(p.t.nodes)
		if err := p.value(); err != nil {
			return err
		}
		key := p.t.nodes[k]
		if key.kind != nodeText || !utf8.ValidString(key.text) {
			p.t.nodes[i].symbol = false
		} else if p.t.nodes[i].symbol {
			p.t.nodes = p.t.nodes[:k]
			if p.t.hasKey(i, key.text, count, &met) {
				return errAt(ErrDuplicate, at, "key %q", key.text)
			}
			p.t.nodes = append(p.t.nodes, key)
		}
		if err := p.value(); err != nil {
			return err
		}
	}
	if p.t.nodes[i].symbol {
		for j := i + 1; j < len(p.t.nodes); j = int(p.t.nodes[p.t.nodes[j].end].end) {
			p.t.nodes[j].symbol = true
		}
	}
	p.t.close(i, count)
	return nil
}

// tagged reads a bignum.
func (p *cborParser) tagged(at int, tag uint64) error {
	if tag != cborPosBignum&31 && tag != cborNegBignum&31 {
		return errAt(ErrNotRepresentable, at, "CBOR tag %d", tag)
	}
	major, n, open, err := p.head()
	if err != nil {
		return err
	}
	if major != cborBytes {
		return errAt(ErrSyntax, at, "bignum without bytes")
	}
	digits, err := p.text(major, n, open)
	if err != nil {
		return err
	}
	var w wide
	for _, c := range []byte(digits) {
		if w.hi>>56 != 0 {
			return errAt(ErrNotRepresentable, at, "bignum of more than 128 bits")
		}
		w.hi, w.lo = w.hi<<8|w.lo>>56, w.lo<<8|uint64(c)
	}
	if tag == cborNegBignum&31 {
		if int64(w.hi) < 0 {
			return errAt(ErrNotRepresentable, at, "negative bignum of more than 127 bits")
		}
		w = wide{hi: ^w.hi, lo: ^w.lo, signed: true}
	}
	p.t.add(node{kind: nodeInt, num: w.preferSigned()})
	return nil
}

// simple reads a simple value or a float, whose bits are arg.
func (p *cborParser) simple(at int, arg uint64) error {
	switch p.data[at] {
	case cborFalse, cborTrue:
		p.t.add(node{kind: nodeFalse + nodeKind(p.data[at]-cborFalse)})
	case cborNull:
		p.t.add(node{kind: nodeNone})
	case cborUndefined:
		p.t.add(node{kind: nodeUnit})
	case cborHalf:
		p.addFloat(float64(fromHalf(uint16(arg))), 2)
	case cborSingle:
		p.addFloat(float64(math.Float32frombits(uint32(arg))), 4)
	case cborDouble:
		p.addFloat(math.Float64frombits(arg), 8)
	default:
		return errAt(ErrNotRepresentable, at, "CBOR simple value %#x", p.data[at])
	}
	return nil
}

func (p *cborParser) addFloat(f float64, width uint8) {
	p.t.add(node{kind: nodeFloat, width: width, num: wide{lo: math.Float64bits(f)}})
}
