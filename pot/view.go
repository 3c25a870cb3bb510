package pot

import (
	"errors"
	"iter"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// A View reads payloads without decoding them: it walks to the values that are
// asked for and reads over the rest. It checks what it passes, not what lies
// behind; Valid checks a whole payload. A View and the values from it belong to
// one goroutine, and the payload must not change while they are in use.
type View struct {
	r      Reader
	ready  bool      // Find may try the short way
	header bool      // payloads have one
	seen   *snapshot // of the table, when Find was called last
}

// NewView returns a view to be used for many payloads; nil options are the
// default. Text and bytes are copied or borrowed as the options say.
func NewView(opts *DecodeOptions) *View {
	v := new(View)
	if opts != nil {
		v.r.opts = *opts
	}
	return v
}

// Open begins to view a payload and returns its value. Values of the payload
// viewed before become invalid. It allocates nothing once the view has been
// used for a payload of the same kind.
func (v *View) Open(payload []byte) (Value, error) {
	r := &v.r
	v.seen = nil
	if err := r.opts.check(); err != nil {
		return Value{}, err
	}
	if r.opts.Link {
		return Value{}, encodeError(ErrOptions, "a view adds nothing to a table")
	}
	r.data, r.pos, r.mode, r.defined, r.depth = payload, 0, r.opts.Mode, 0, 0
	r.maxDepth = depthLimit(r.opts.MaxDepth)
	r.budget = r.opts.budget(len(payload))
	if r.opts.Table != nil {
		r.useTable()
	} else {
		r.syms, r.shapes, r.shapeAt = r.syms[:0], r.shapes[:0], r.shapeAt[:0]
	}
	if err := r.readHeader(); err != nil {
		return Value{}, err
	}
	if r.opts.Canonical {
		if err := checkCanonical(payload, &r.opts); err != nil {
			return Value{}, err
		}
	}
	v.ready, v.header = !r.opts.Canonical && r.opts.MaxAlloc == 0, !r.opts.NoHeader
	return Value{r: r, pos: r.pos}, nil
}

// Open views one payload; nil options are the default.
func Open(payload []byte, opts *DecodeOptions) (Value, error) {
	return NewView(opts).Open(payload)
}

// Valid fails if a payload is not well-formed to its end, or holds a key twice.
func Valid(payload []byte, opts *DecodeOptions) error {
	var o DecodeOptions
	if opts != nil {
		o = *opts
	}
	t := newTape()
	defer t.release()
	if err := readTape(t, payload, &o); err != nil {
		return err
	}
	canonical, err := writeTape(nil, t, &EncodeOptions{Canonical: true, MaxDepth: o.MaxDepth})
	if err == nil && o.Canonical && string(canonical) != string(payload) {
		err = checkCanonical(payload, &o)
	}
	return err
}

// ValueKind is what a value of a view is.
type ValueKind uint8

// The kinds of values.
const (
	KindInvalid ValueKind = iota // malformed, or no value at all
	KindNone
	KindUnit
	KindBool
	KindInt
	KindUint
	KindFloat
	KindText
	KindBytes // a byte atom that is not UTF-8
	KindSeq
	KindMap
	KindVariant // of an enum, with or without a value
)

var valueKindNames = [...]string{"invalid", "none", "unit", "bool", "int", "uint", "float", "text", "bytes", "sequence", "map", "variant"}

// String returns the name of the kind.
func (k ValueKind) String() string {
	if int(k) < len(valueKindNames) {
		return valueKindNames[k]
	}
	return "ValueKind(" + strconv.Itoa(int(k)) + ")"
}

// A Value is a place within a payload that a View has opened. Its zero value is
// of KindInvalid, and its methods fail with ErrNotFound.
type Value struct {
	r   *Reader
	pos int
}

// at returns the reader at the value.
func (v Value) at() (*Reader, error) {
	if v.r == nil {
		return nil, encodeError(ErrNotFound, "no value")
	}
	v.r.pos, v.r.depth = v.pos, 0
	v.r.budget = v.r.opts.budget(len(v.r.data))
	return v.r, nil
}

// Offset returns the place of the value within the payload.
func (v Value) Offset() int { return v.pos }

// Kind returns what the value is. It looks at its first bytes only, and at
// text to tell it from bytes.
func (v Value) Kind() ValueKind {
	if v.r == nil {
		return KindInvalid
	}
	kind, arg, next, code := parseHeader(v.r.data, v.pos)
	if code != 0 {
		return KindInvalid
	}
	switch kind {
	case kindInt:
		return KindInt
	case kindUint:
		return KindUint
	case kindFloat:
		return KindFloat
	case kindSeq:
		return KindSeq
	case kindMap:
		return KindMap
	case kindSymbol:
		return KindVariant
	case kindBytes:
		if end := uint64(len(v.r.data) - next); arg > end || utf8.Valid(v.r.data[next:next+int(arg)]) {
			return KindText
		}
		return KindBytes
	}
	switch {
	case arg == specNone:
		return KindNone
	case arg == specUnit:
		return KindUnit
	case arg <= specTrue:
		return KindBool
	case arg == specNamed:
		return KindVariant
	case arg == specDynMap, v.r.mode == Shapes && arg >= specDefine:
		return KindMap
	}
	return KindInvalid
}

// Get follows a path: a step is the name of a map's member, or within a
// sequence the index of an element in decimal. It fails with ErrNotFound. An
// empty path is the value itself.
func (v Value) Get(path ...string) (Value, error) {
	for _, step := range path {
		var err error
		if v.Kind() == KindSeq {
			i, convErr := strconv.Atoi(step)
			if convErr != nil {
				return Value{}, errAt(ErrNotFound, v.pos, "%q in a sequence", step)
			}
			v, err = v.Index(i)
		} else {
			v, err = v.Field(step)
		}
		if err != nil {
			return Value{}, err
		}
	}
	return v, nil
}

// Field returns the member of a map with a name. It reads over the members
// before it.
func (v Value) Field(name string) (Value, error) {
	r, err := v.at()
	if err != nil {
		return Value{}, err
	}
	sh := r.shortRecord()
	var n int
	if sh == nil {
		if n, sh, _, err = r.mapHead("map"); err != nil {
			return Value{}, err
		}
	}
	if sh != nil {
		if j := r.place(sh, name); j >= 0 {
			return v.recordField(j, name)
		}
		return Value{}, errAt(ErrNotFound, v.pos, "member %q", name)
	}
	for ; n != 0; n-- {
		if n < 0 && r.ReadMapEnd() {
			break
		}
		same, err := r.keyIs(name)
		if err != nil {
			return Value{}, err
		}
		if same {
			return Value{r: r, pos: r.pos}, nil
		}
		if err := r.Skip(); err != nil {
			return Value{}, err
		}
	}
	return Value{}, errAt(ErrNotFound, v.pos, "member %q", name)
}

// shortRecord reads the beginning of a record of one byte, or returns nil.
func (r *Reader) shortRecord() *shape {
	if r.mode != Shapes || r.pos >= len(r.data) {
		return nil
	}
	id := int(r.data[r.pos]) - specShape
	if id < 0 || id > argMask-specShape || id >= len(r.shapes) || len(r.shapes[id].ids) >= len(r.data)-r.pos {
		return nil
	}
	r.pos++
	return r.shapes[id]
}

// place is where a shape has a name: programs ask for the same fields again.
type place struct {
	sh   *shape
	name string
	at   int
}

// place returns where a shape has a name, or -1.
func (r *Reader) place(sh *shape, name string) int {
	known := &r.places[len(name)%len(r.places)]
	if known.sh == sh && known.name == name {
		return known.at
	}
	for j, id := range sh.ids {
		if r.syms[id].text == name {
			*known = place{sh, name, j}
			return j
		}
	}
	return -1
}

// recordField returns value j of the record whose values are next.
func (v Value) recordField(j int, name string) (Value, error) {
	r := v.r
	if j > 0 {
		if err := r.skipMany(uint64(j)); err != nil {
			return Value{}, err
		}
	}
	if r.pos < len(r.data) && r.data[r.pos] == specAbsent {
		return Value{}, errAt(ErrNotFound, v.pos, "member %q", name)
	}
	return Value{r: r, pos: r.pos}, nil
}

// keyIs reads over a key and reports whether it is a name.
func (r *Reader) keyIs(name string) (bool, error) {
	at := r.pos
	kind, arg, err := r.header()
	if err != nil {
		return false, err
	}
	switch kind {
	case kindSymbol:
		text, _, err := r.symbolBody(arg, at)
		return text == name, err
	case kindBytes:
		b, err := r.take(arg, "key")
		return string(b) == name, err
	}
	r.pos = at
	return false, r.Skip()
}

// Index returns an element of a sequence. It reads over those before it.
func (v Value) Index(i int) (Value, error) {
	r, err := v.at()
	if err != nil {
		return Value{}, err
	}
	n, err := r.ReadSeq()
	if err != nil {
		return Value{}, err
	}
	if i < 0 || i >= n {
		return Value{}, errAt(ErrNotFound, v.pos, "element %d of %d", i, n)
	}
	if err := r.skipMany(uint64(i)); err != nil {
		return Value{}, err
	}
	return Value{r: r, pos: r.pos}, nil
}

// Len returns the number of elements of a sequence or members of a map. For
// open maps, and records with fields left out, it reads over all of them.
func (v Value) Len() (int, error) {
	r, err := v.at()
	if err != nil {
		return 0, err
	}
	if v.Kind() == KindSeq {
		return r.ReadSeq()
	}
	n := 0
	for _, err := range v.Members() {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// Elems returns the elements of a sequence. After an error it ends.
func (v Value) Elems() iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		r, err := v.at()
		n := 0
		if err == nil {
			n, err = r.ReadSeq()
		}
		for i := 0; i < n && err == nil; i++ {
			elem := Value{r: r, pos: r.pos}
			if !yield(elem, nil) {
				return
			}
			r.pos = elem.pos // the caller may have read elsewhere
			err = r.Skip()
		}
		if err != nil {
			yield(Value{}, err)
		}
	}
}

// Member is one pair of a map.
type Member struct {
	// Name is the key if it is text, else empty.
	Name string
	// Key is the key as it is; it is invalid for the fields of records.
	Key Value
	// Value is the member's value.
	Value Value
}

// Members returns the members of a map in their order. After an error it ends.
func (v Value) Members() iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		r, err := v.at()
		var n int
		var sh *shape
		if err == nil {
			n, sh, _, err = r.mapHead("map")
		}
		for i := 0; i != n && err == nil; i++ {
			if n < 0 && r.ReadMapEnd() {
				return
			}
			var m Member
			switch {
			case sh == nil:
				m.Key = Value{r: r, pos: r.pos}
				m.Name, err = r.keyName()
			case r.pos < len(r.data) && r.data[r.pos] == specAbsent:
				r.pos++
				continue
			default:
				m.Name, err = r.ownSymbol(sh.ids[i])
			}
			if err != nil {
				break
			}
			m.Value = Value{r: r, pos: r.pos}
			if !yield(m, nil) {
				return
			}
			r.pos = m.Value.pos // the caller may have read elsewhere
			err = r.Skip()
		}
		if err != nil {
			yield(Member{}, err)
		}
	}
}

// keyName reads a key and returns it if it is text.
func (r *Reader) keyName() (string, error) {
	if !r.textNext() {
		return "", r.Skip()
	}
	at := r.pos
	name, err := r.ReadText()
	if errors.Is(err, ErrUTF8) {
		r.pos = at
		return "", r.Skip()
	}
	return name, err
}

// Variant returns the name of an enum's variant and its value, which is
// invalid for variants without one.
func (v Value) Variant() (name string, value Value, err error) {
	r, err := v.at()
	if err != nil {
		return "", Value{}, err
	}
	text, unit, err := r.ReadVariant()
	if err != nil {
		return "", Value{}, err
	}
	if !unit {
		value = Value{r: r, pos: r.pos}
	}
	name, err = r.newString([]byte(text))
	return name, value, err
}

// Int returns a signed integer; it converts as Reader.ReadInt does.
func (v Value) Int() (int64, error) {
	if v.r != nil {
		if n, end := quickWord(v.r.data, v.pos, intTag); end > 0 {
			return int64(n), nil
		}
	}
	r, err := v.at()
	if err != nil {
		return 0, err
	}
	return r.ReadInt()
}

// Uint returns an unsigned integer; it converts as Reader.ReadUint does.
func (v Value) Uint() (uint64, error) {
	if v.r != nil {
		if n, end := quickWord(v.r.data, v.pos, uintTag); end > 0 {
			return n, nil
		}
	}
	r, err := v.at()
	if err != nil {
		return 0, err
	}
	return r.ReadUint()
}

// BigInt returns an integer of up to 128 bits.
func (v Value) BigInt() (*big.Int, error) {
	r, err := v.at()
	if err != nil {
		return nil, err
	}
	return r.ReadBigInt()
}

// Float returns a float; it converts as Reader.ReadFloat64 does.
func (v Value) Float() (float64, error) {
	r, err := v.at()
	if err != nil {
		return 0, err
	}
	return r.ReadFloat64()
}

// Bool returns a truth value; it converts as Reader.ReadBool does.
func (v Value) Bool() (bool, error) {
	r, err := v.at()
	if err != nil {
		return false, err
	}
	return r.ReadBool()
}

// Text returns a text, or the name of a variant without a value.
func (v Value) Text() (string, error) {
	r, err := v.at()
	if err != nil {
		return "", err
	}
	return r.ReadText()
}

// Bytes returns bytes; see Reader.ReadBytes.
func (v Value) Bytes() ([]byte, error) {
	r, err := v.at()
	if err != nil {
		return nil, err
	}
	return r.ReadBytes()
}

// Decode decodes the value into what p points to, as Unmarshal does.
func (v Value) Decode(p any) error {
	r, err := v.at()
	if err != nil {
		return err
	}
	return r.decode(p, false)
}

// Raw returns the value as a payload of its own, which needs no table.
func (v Value) Raw() (Raw, error) {
	r, err := v.at()
	if err != nil {
		return nil, err
	}
	return r.readRaw()
}
