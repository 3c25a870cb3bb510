package pot

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// A tape is a value without a Go type, as a list of nodes in the order in which
// they are written, each container before its members. It stands between the
// formats: a container's header needs the number of its members, and a record
// its names, before any of them is written.
type tape struct {
	nodes []node
	side  []byte // texts that are not in the input as they are
}

// node is a scalar, or the head of a container.
type node struct {
	kind   nodeKind
	symbol bool   // of texts: written as a symbol; of maps: a record of a struct
	width  uint8  // of floats: the bytes it had
	end    int32  // the index after the last node that belongs to this one
	n      int32  // elements of sequences, pairs of maps
	num    wide   // of integers; of floats the bits of a float64 in lo
	text   string // of texts and bytes, and the name of variants
}

func (n *node) float() float64 { return math.Float64frombits(n.num.lo) }

type nodeKind uint8

const (
	nodeNone nodeKind = iota
	nodeUnit
	nodeFalse
	nodeTrue
	nodeInt
	nodeFloat
	nodeText  // or bytes that are not UTF-8
	nodeBytes // bytes that the other format tells from texts
	nodeSeq
	nodeMap
	nodeVariant // followed by its value
	nodeUnitVariant
)

var tapePool = sync.Pool{New: func() any { return new(tape) }}

func newTape() *tape { return tapePool.Get().(*tape) }

func (t *tape) release() {
	if cap(t.nodes) > 1<<16 || cap(t.side) > 1<<20 {
		return // one large document shall not keep its memory for ever
	}
	clear(t.nodes)
	t.nodes, t.side = t.nodes[:0], t.side[:0]
	tapePool.Put(t)
}

func (t *tape) add(n node) int {
	i := len(t.nodes)
	n.end = int32(i + 1)
	t.nodes = append(t.nodes, n)
	return i
}

// close ends the container at i.
func (t *tape) close(i, n int) {
	t.nodes[i].end, t.nodes[i].n = int32(len(t.nodes)), int32(n)
}

const maxNodes = math.MaxInt32 - 8

func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// tape reads the next value onto a tape. The texts point into the input.
func (r *Reader) tape(t *tape) error {
	if len(t.nodes) > maxNodes {
		return r.fail(ErrBudget, "more than %d values", maxNodes)
	}
	at := r.pos
	kind, arg, err := r.header()
	if err != nil {
		return err
	}
	switch kind {
	case kindInt, kindUint:
		w, err := r.wideBody(kind, arg, at)
		t.add(node{kind: nodeInt, num: w})
		return err
	case kindFloat:
		f, width, err := r.floatBody(arg, at)
		t.add(node{kind: nodeFloat, width: uint8(width), num: wide{lo: math.Float64bits(f)}})
		return err
	case kindBytes:
		b, err := r.take(arg, "bytes")
		t.add(node{kind: nodeText, text: alias(b)})
		return err
	case kindSymbol:
		text, _, err := r.symbolBody(arg, at)
		t.add(node{kind: nodeUnitVariant, text: text})
		return err
	case kindSeq:
		if err := r.checkCount(arg, 1); err != nil {
			return err
		}
		return r.tapeSeq(t, int(arg))
	case kindSpecial:
		switch arg {
		case specNone, specUnit, specFalse, specTrue:
			t.add(node{kind: nodeNone + nodeKind(arg)})
			return nil
		case specNamed:
			r.pos = at
			return r.tapeVariant(t)
		}
	}
	r.pos = at
	n, sh, _, err := r.mapHead("value")
	if err != nil {
		return err
	}
	return r.tapeMap(t, n, sh)
}

func (r *Reader) tapeSeq(t *tape, n int) error {
	if err := r.enter(); err != nil {
		return err
	}
	i := t.add(node{kind: nodeSeq})
	for range n {
		if err := r.tape(t); err != nil {
			return err
		}
	}
	t.close(i, n)
	r.depth--
	return nil
}

func (r *Reader) tapeVariant(t *tape) error {
	if err := r.enter(); err != nil {
		return err
	}
	name, unit, err := r.ReadVariant()
	if err != nil {
		return err
	}
	i := t.add(node{kind: nodeVariant, text: name})
	if unit {
		t.nodes[i].kind = nodeUnitVariant
	} else if err := r.tape(t); err != nil {
		return err
	}
	t.close(i, 1)
	r.depth--
	return nil
}

func (r *Reader) tapeMap(t *tape, n int, sh *shape) error {
	if err := r.enter(); err != nil {
		return err
	}
	i := t.add(node{kind: nodeMap, symbol: sh != nil})
	count := 0
	for j := 0; j != n; j++ {
		switch {
		case n < 0 && r.ReadMapEnd():
			t.close(i, count)
			r.depth--
			return nil
		case sh == nil:
			k := len(t.nodes)
			if err := r.tape(t); err != nil {
				return err
			}
			if key := &t.nodes[k]; key.kind == nodeUnitVariant && int(key.end) == k+1 {
				key.kind, key.symbol = nodeText, true
				t.nodes[i].symbol = true
			}
		case r.pos < len(r.data) && r.data[r.pos] == specAbsent:
			r.pos++
			continue
		default:
			t.add(node{kind: nodeText, symbol: true, text: r.syms[sh.ids[j]].text})
		}
		if err := r.tape(t); err != nil {
			return err
		}
		count++
	}
	t.close(i, count)
	r.depth--
	return nil
}

// appendNode writes the value at node i.
func (w *Writer) appendNode(b []byte, t *tape, i int) (_ []byte, err error) {
	n := &t.nodes[i]
	switch n.kind {
	case nodeInt:
		return appendWide(b, n.num), nil
	case nodeFloat:
		return appendNodeFloat(b, n), nil
	case nodeText, nodeBytes:
		return appendText(b, n.text), nil
	case nodeUnitVariant:
		w.buf = b
		err := w.WriteUnitVariant(n.text)
		return w.buf, err
	case nodeNone, nodeUnit, nodeFalse, nodeTrue:
		return append(b, byte(n.kind-nodeNone)), nil
	}
	if err := w.enter(); err != nil {
		return b, err
	}
	switch n.kind {
	case nodeVariant:
		w.buf = b
		if err := w.WriteVariant(n.text); err != nil {
			return w.buf, err
		}
		b, err = w.appendNode(w.buf, t, i+1)
	case nodeMap:
		b, err = w.appendNodeMap(b, t, i)
	default:
		b = appendHeader(b, kindSeq, uint64(n.n))
		for j := i + 1; j < int(n.end) && err == nil; j = int(t.nodes[j].end) {
			b, err = w.appendNode(b, t, j)
		}
	}
	w.depth--
	return b, err
}

// appendNodeFloat keeps the width of a NaN.
func appendNodeFloat(b []byte, n *node) []byte {
	f := n.float()
	if f == f || n.width == 8 || n.width == 0 {
		return appendFloat64(b, f)
	}
	bits := math.Float32bits(float32(f))
	if n.width == 4 {
		return binary.LittleEndian.AppendUint32(append(b, floatTag|3), bits)
	}
	return append(b, floatTag|1, byte(bits>>13), byte(bits>>24)&0x80|0x7c|byte(bits>>21)&3)
}

func (w *Writer) appendNodeMap(b []byte, t *tape, i int) (_ []byte, err error) {
	n := &t.nodes[i]
	id := int32(noShape)
	if w.opts.Mode == Shapes {
		if from := len(w.names); w.recordNames(t, i) {
			if names := w.names[from:]; n.symbol {
				b, id = w.objectShape(b, names)
			}
			clear(w.names[from:])
			w.names = w.names[:from]
		}
	}
	if id == noShape {
		b = appendHeader(b, kindMap, uint64(n.n))
	} else {
		b = appendRecord(b, id)
	}
	for j := i + 1; j < int(n.end) && err == nil; {
		key := &t.nodes[j]
		switch {
		case id != noShape:
		case key.kind == nodeText && key.symbol && w.opts.Mode != Shapes:
			if !utf8.ValidString(key.text) {
				return b, encodeError(ErrUTF8, "name %q", key.text)
			}
			b = w.appendName(b, key.text)
		default:
			if b, err = w.appendNode(b, t, j); err != nil {
				return b, err
			}
		}
		j = int(key.end)
		b, err = w.appendNode(b, t, j)
		j = int(t.nodes[j].end)
	}
	return b, err
}

// recordNames appends the keys of the map at node i to w.names. It reports
// whether all are texts; if not it appends none.
func (w *Writer) recordNames(t *tape, i int) bool {
	from := len(w.names)
	for j := i + 1; j < int(t.nodes[i].end); {
		key := &t.nodes[j]
		if key.kind != nodeText || !utf8.ValidString(key.text) {
			w.names = w.names[:from]
			return false
		}
		w.names = append(w.names, key.text)
		j = int(t.nodes[key.end].end)
	}
	return true
}

// appendCanonical writes the value at node i in canonical form.
func (w *Writer) appendCanonical(b []byte, t *tape, i int) (_ []byte, err error) {
	n := &t.nodes[i]
	switch n.kind {
	case nodeInt:
		return appendWide(b, n.num.preferSigned()), nil
	case nodeFloat:
		f := n.float()
		if f != f {
			f = math.Float64frombits(0x7ff8 << 48)
		}
		return appendFloat64(b, f), nil
	case nodeVariant:
		w.buf = b
		if err := w.WriteVariant(n.text); err != nil {
			return w.buf, err
		}
		return w.appendCanonical(w.buf, t, i+1)
	case nodeSeq:
		b = appendHeader(b, kindSeq, uint64(n.n))
		for j := i + 1; j < int(n.end) && err == nil; j = int(t.nodes[j].end) {
			b, err = w.appendCanonical(b, t, j)
		}
		return b, err
	case nodeMap:
		return w.appendCanonicalMap(b, t, i)
	}
	return w.appendNode(b, t, i)
}

// appendCanonicalMap writes the pairs whose keys are texts in the order of
// their bytes, each key as a symbol, and then the others in the order of their
// keys' canonical form.
func (w *Writer) appendCanonicalMap(b []byte, t *tape, i int) ([]byte, error) {
	type pair struct {
		key   int
		text  bool
		order string
	}
	n := &t.nodes[i]
	pairs := make([]pair, 0, n.n)
	for j := i + 1; j < int(n.end); j = int(t.nodes[t.nodes[j].end].end) {
		p := pair{key: j, order: t.nodes[j].text}
		p.text = t.nodes[j].kind == nodeText && utf8.ValidString(p.order)
		if !p.text {
			var kw Writer // symbols in a key count from 0, wherever it stands
			kw.maxDepth = w.maxDepth
			kb, err := kw.appendCanonical(nil, t, j)
			if err != nil {
				return b, err
			}
			p.order = string(kb)
		}
		pairs = append(pairs, p)
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		switch {
		case a.text && !b.text:
			return -1
		case b.text && !a.text:
			return 1
		}
		return strings.Compare(a.order, b.order)
	})
	b = appendHeader(b, kindMap, uint64(n.n))
	for k, p := range pairs {
		if k > 0 && pairs[k-1].text == p.text && pairs[k-1].order == p.order {
			return b, encodeError(ErrDuplicate, "key %q", p.order)
		}
		var err error
		if p.text {
			b = w.appendName(b, p.order)
		} else if b, err = w.appendCanonical(b, t, p.key); err != nil {
			return b, err
		}
		if b, err = w.appendCanonical(b, t, int(t.nodes[p.key].end)); err != nil {
			return b, err
		}
	}
	return b, nil
}

// readTape reads a whole payload onto a tape.
func readTape(t *tape, payload []byte, o *DecodeOptions) error {
	if o == nil {
		o = new(DecodeOptions)
	}
	if err := o.check(); err != nil {
		return err
	}
	r := newReader(payload, o)
	defer r.release()
	err := r.readHeader()
	if err == nil {
		err = r.tape(t)
	}
	if err == nil {
		err = r.end()
	}
	if err != nil {
		o.undo(err, payload, r.before)
	}
	return err
}

// writeTape appends a payload of the value on the tape.
func writeTape(dst []byte, t *tape, o *EncodeOptions) ([]byte, error) {
	if o == nil {
		o = new(EncodeOptions)
	}
	if err := o.check(); err != nil {
		return dst, err
	}
	w := newWriter(dst, o)
	w.header()
	var b []byte
	var err error
	if o.Canonical {
		b, err = w.appendCanonical(w.buf, t, 0)
	} else {
		b, err = w.appendNode(w.buf, t, 0)
	}
	w.release(err != nil)
	if err != nil {
		return dst, err
	}
	return b, nil
}

// Transcode appends to dst the value of a payload, written anew with other
// options: in another mode, with or without a table, or in canonical form. No
// Go type is needed. In mode Full a unit variant may be taken for one with a
// value, since the format does not tell.
func Transcode(dst, payload []byte, from *DecodeOptions, to *EncodeOptions) ([]byte, error) {
	t := newTape()
	defer t.release()
	if err := readTape(t, payload, from); err != nil {
		return dst, err
	}
	return writeTape(dst, t, to)
}

// Canonical appends to dst the canonical form of a payload: equal values have
// equal canonical forms, whichever way they were written. It is of mode V4
// without a table. Integers are signed if they fit in 128 signed bits, numbers
// take the fewest bytes, NaN is that of eight bytes with the bits 7ff8 and
// zeros, no map is open and no record has a shape. In each map come first the
// keys that are texts, in the order of their bytes and written as symbols, and
// then the others in the order of their canonical form.
func Canonical(dst, payload []byte, from *DecodeOptions) ([]byte, error) {
	return Transcode(dst, payload, from, &EncodeOptions{Canonical: true})
}

// appendCanonicalValue encodes a Go value in canonical form.
func appendCanonicalValue(dst []byte, v any, o *EncodeOptions) ([]byte, error) {
	plain := EncodeOptions{MaxDepth: o.MaxDepth, Unions: o.Unions}
	payload, err := plain.Append(nil, v)
	if err != nil {
		return dst, err
	}
	t := newTape()
	defer t.release()
	if err := readTape(t, payload, &DecodeOptions{MaxDepth: o.MaxDepth, MaxAlloc: -1}); err != nil {
		return dst, err
	}
	return writeTape(dst, t, o)
}

// checkCanonical fails if a well-formed payload is not its own canonical form.
func checkCanonical(payload []byte, o *DecodeOptions) error {
	want, err := Canonical(nil, payload, &DecodeOptions{MaxDepth: o.MaxDepth, MaxAlloc: o.MaxAlloc})
	if err != nil {
		return err
	}
	if bytes.Equal(want, payload) {
		return nil
	}
	at := 0
	for at < len(want) && at < len(payload) && want[at] == payload[at] {
		at++
	}
	return errAt(ErrNotCanonical, at, "the canonical form differs from here on")
}

// Raw is the payload of one value, with its header and without a table. As a
// field it keeps a value as it is: encoding writes the value that it holds, an
// empty Raw as none, and decoding stores the value for a later Unmarshal.
type Raw []byte

func (w *Writer) appendRaw(b []byte, raw Raw) ([]byte, error) {
	if len(raw) == 0 {
		return append(b, specNone), nil
	}
	t := newTape()
	defer t.release()
	if err := readTape(t, raw, &DecodeOptions{MaxDepth: w.maxDepth}); err != nil {
		return b, inPath("raw", err)
	}
	return w.appendNode(b, t, 0)
}

func (r *Reader) readRaw() (Raw, error) {
	from := r.pos
	t := newTape()
	defer t.release()
	if err := r.tape(t); err != nil {
		return nil, err
	}
	if err := r.charge(r.pos - from + headerSize); err != nil {
		return nil, err
	}
	return writeTape(nil, t, &EncodeOptions{MaxDepth: r.maxDepth})
}
