package pot

import (
	"errors"
	"math"
	"math/big"
	"reflect"
	"sync/atomic"
	"time"
	"unsafe"
)

// Unmarshal decodes a payload into the value that v points to, with default
// options. See the package documentation for what fits into what. After an
// error the value may be changed in part. It may be called by many goroutines
// at once.
func Unmarshal(data []byte, v any) error { return (*DecodeOptions)(nil).Unmarshal(data, v) }

// Unmarshal decodes a payload into the value that v points to.
func (o *DecodeOptions) Unmarshal(data []byte, v any) error {
	n, err := o.unmarshal(data, v)
	if err == nil && n < len(data) {
		return errAt(ErrTrailing, n, "%d bytes", len(data)-n)
	}
	return err
}

// UnmarshalPrefix decodes a payload at the start of data and returns what
// follows it.
func (o *DecodeOptions) UnmarshalPrefix(data []byte, v any) (rest []byte, err error) {
	n, err := o.unmarshal(data, v)
	if err != nil {
		return data, err
	}
	return data[n:], nil
}

// unmarshal returns the length of the payload.
func (o *DecodeOptions) unmarshal(data []byte, v any) (int, error) {
	if o == nil {
		o = new(DecodeOptions)
	}
	if err := o.check(); err != nil {
		return 0, err
	}
	r := newReader(data, o)
	err := r.readHeader()
	if err == nil {
		err = r.decode(v, true)
	}
	n := r.pos
	if err == nil && o.Canonical {
		err = checkCanonical(data[:n], o)
	}
	if err != nil {
		o.undo(err, data, r.before)
	}
	r.release()
	return n, err
}

// undo takes back what a payload that could not be decoded has added to a
// linked table, unless the payload is well-formed and only does not fit the Go
// type: the sender goes on from there.
func (o *DecodeOptions) undo(cause error, data []byte, before TableVersion) {
	if !o.Link {
		return
	}
	o.Table.truncate(before)
	if errors.Is(cause, ErrTruncated) {
		return // in mode Full what is there may look whole
	}
	r := newReader(data, o)
	defer r.release()
	err := r.readHeader()
	if err == nil {
		err = r.Skip()
	}
	if err != nil {
		o.Table.truncate(before)
	}
}

// decode decodes the next value, which may be the whole payload.
func (r *Reader) decode(v any, whole bool) error {
	e := (*eface)(unsafe.Pointer(&v))
	pl := recentPlan(e.typ)
	if pl == nil || pl.dec != opPtr || e.data == nil {
		rv := reflect.ValueOf(v)
		if rv.Kind() != reflect.Pointer || rv.IsNil() {
			return encodeError(ErrUnsupported, "decoding needs a pointer, not %T", v)
		}
		var err error
		if pl, err = planOf(rv.Type()); err != nil {
			return err
		}
	}
	if whole && pl.elem.dec == opStruct {
		return r.wholeInto(pl.elem, e.data)
	}
	return r.value(pl.elem, pl.elem.dec, e.data)
}

// value decodes the next value by op o of plan pl into p.
func (r *Reader) value(pl *plan, o op, p unsafe.Pointer) (err error) {
	switch o {
	case opInt64:
		*(*int64)(p), err = r.ReadInt()
	case opUint64:
		*(*uint64)(p), err = r.ReadUint()
	case opInt32:
		v, err := r.readIntWithin(math.MinInt32, math.MaxInt32)
		*(*int32)(p) = int32(v)
		return err
	case opUint32:
		v, err := r.readUintWithin(math.MaxUint32)
		*(*uint32)(p) = uint32(v)
		return err
	case opInt16:
		v, err := r.readIntWithin(math.MinInt16, math.MaxInt16)
		*(*int16)(p) = int16(v)
		return err
	case opUint16:
		v, err := r.readUintWithin(math.MaxUint16)
		*(*uint16)(p) = uint16(v)
		return err
	case opInt8:
		v, err := r.readIntWithin(math.MinInt8, math.MaxInt8)
		*(*int8)(p) = int8(v)
		return err
	case opUint8:
		if pos := r.pos; pos+1 < len(r.data) && r.data[pos] == uintTag {
			*(*uint8)(p) = r.data[pos+1]
			r.pos += 2
			return nil
		}
		v, err := r.readUintWithin(math.MaxUint8)
		*(*uint8)(p) = uint8(v)
		return err
	case opBool:
		*(*bool)(p), err = r.ReadBool()
	case opFloat64:
		*(*float64)(p), err = r.ReadFloat64()
	case opFloat32:
		*(*float32)(p), err = r.ReadFloat32()
	case opString:
		return r.stringInto((*string)(p))
	case opStruct:
		return r.structInto(pl, p)
	case opBytes:
		return r.bytesInto((*[]byte)(p))
	case opPtr:
		return r.pointerInto(pl, p)
	case opSlice:
		return r.sliceInto(pl, p)
	default:
		return r.otherInto(pl, o, p)
	}
	return err
}

// readIntWithin reads a signed integer from low to high.
func (r *Reader) readIntWithin(low, high int64) (int64, error) {
	at := r.pos
	v, err := r.ReadInt()
	if err == nil && (v < low || v > high) {
		return 0, errAt(ErrRange, at, "%d is not within %d and %d", v, low, high)
	}
	return v, err
}

// readUintWithin reads an unsigned integer up to high.
func (r *Reader) readUintWithin(high uint64) (uint64, error) {
	at := r.pos
	v, err := r.ReadUint()
	if err == nil && v > high {
		return 0, errAt(ErrRange, at, "%d is more than %d", v, high)
	}
	return v, err
}

// otherInto is the part of value that needs no speed, or gains it elsewhere.
func (r *Reader) otherInto(pl *plan, o op, p unsafe.Pointer) (err error) {
	switch o {
	case opByteArray:
		return r.byteArrayInto(pl, p)
	case opArray:
		return r.arrayInto(pl, p)
	case opTuple:
		return r.tupleInto(pl, p)
	case opMap, opStringAnyMap:
		return r.mapInto(pl, p)
	case opInterface:
		return r.interfaceInto(pl, p)
	case opTime:
		return r.timeInto((*time.Time)(p))
	case opUnixTime:
		*(*time.Time)(p), err = r.readUnixTime(pl.n)
		return err
	case opEnum:
		*(*string)(p), err = r.readEnum()
		return err
	case opBigInt:
		w, err := r.readWide("integer")
		if err == nil {
			(*big.Int)(p).Set(w.big())
			err = r.charge(16)
		}
		return err
	case opRaw:
		*(*Raw)(p), err = r.readRaw()
		return err
	case opVariant:
		return r.variantInto((*Variant)(p))
	case opEmpty:
		return r.emptyInto()
	case opPotMethod, opBinaryMethod, opTextMethod:
		return r.methodInto(pl, o, p)
	}
	return typeError(pl.typ)
}

func (r *Reader) stringInto(p *string) (err error) {
	var b []byte
	if n, from := r.shortBytes(); from > 0 && validText(r.data[from:from+n]) {
		b = r.data[from : from+n]
		r.pos = from + n
	} else if b, err = r.textBytes(); err != nil {
		return err
	}
	if len(b) == len(*p) && string(b) == *p && r.opts.Strings != BorrowStrings {
		return nil // decoding the same again allocates nothing
	}
	*p, err = r.newString(b)
	return err
}

// shortBytes looks for a byte atom of up to 2047 bytes that the input holds
// whole, and returns its length and where its bytes begin, or else 0.
func (r *Reader) shortBytes() (n, from int) {
	pos := r.pos
	if pos+1 >= len(r.data) {
		return 0, 0
	}
	c := r.data[pos]
	if c < bytesTag {
		return 0, 0
	}
	n, from = int(c&argMask), pos+1
	if c&moreFlag != 0 {
		high := r.data[pos+1]
		if high >= 0x80 {
			return 0, 0
		}
		n |= int(high) << 4
		from++
	}
	if n > len(r.data)-from {
		return 0, 0
	}
	return n, from
}

func (r *Reader) bytesInto(p *[]byte) (err error) {
	if r.opts.Strings == BorrowStrings { // what p has may be a caller's input
		*p, err = r.appendBytesTo(nil)
		return err
	}
	*p, err = r.appendBytesTo(*p)
	return err
}

// structInto decodes a map, an open map or a record into a struct.
func (r *Reader) structInto(pl *plan, p unsafe.Pointer) error {
	at := r.pos
	kind, arg, err := r.header()
	if err != nil {
		return err
	}
	switch {
	case kind == kindMap:
		if err := r.checkCount(arg, 2); err != nil {
			return err
		}
		return r.membersInto(pl, p, int(arg))
	case kind == kindSpecial && arg <= specUnit:
		pl.setZero(p)
		return nil
	case kind == kindSpecial && arg == specDynMap:
		return r.membersInto(pl, p, -1)
	case kind == kindSpecial && arg >= specDefine && r.mode == Shapes:
		return r.recordInto(pl, p, at, arg)
	}
	return r.mismatch(at, "struct")
}

// seenFields says which fields of a struct have been met.
type seenFields struct {
	low  uint64
	more []uint64
}

func (s *seenFields) test(i int) bool {
	if i < 64 {
		return s.low>>uint(i)&1 == 1
	}
	i -= 64
	return i/64 < len(s.more) && s.more[i/64]>>uint(i%64)&1 == 1
}

func (s *seenFields) set(i int) {
	if i < 64 {
		s.low |= 1 << uint(i)
		return
	}
	i -= 64
	for i/64 >= len(s.more) {
		s.more = append(s.more, 0)
	}
	s.more[i/64] |= 1 << uint(i%64)
}

// membersInto decodes n pairs, or those of an open map if n is -1.
func (r *Reader) membersInto(pl *plan, p unsafe.Pointer, n int) error {
	if err := r.enter(); err != nil {
		return err
	}
	st := pl.st
	if r.wipe {
		st.zeroRest(p)
	}
	var seen seenFields
	var i, next int
	var name string
	var err error
	for ; n != 0; n-- {
		if n < 0 && r.ReadMapEnd() {
			break
		}
		at := r.pos
		if r.nextKnown(st, next) {
			i, next = next, next+1
		} else if i, name, err = r.memberKey(st, next); err != nil {
			return err
		} else {
			next = i + 1
		}
		if i < 0 {
			if err := r.unknownMember(st, p, name, at); err != nil {
				return err
			}
			continue
		}
		if seen.test(i) && !r.opts.AllowDuplicates {
			return errAt(ErrDuplicate, at, "member %q", st.fields[i].name)
		}
		seen.set(i)
		f := &st.fields[i]
		fp := unsafe.Add(p, f.offset)
		if len(f.via) > 0 {
			fp = f.locate(p, true)
		}
		if end := r.quick(f.dec, fp, r.pos); end > 0 {
			r.pos = end
		} else if err := r.value(f.plan, f.dec, fp); err != nil {
			return inPath(f.name, err)
		}
	}
	if r.wipe {
		for i := range st.fields {
			if !seen.test(i) {
				st.zeroField(p, i)
			}
		}
	}
	r.depth--
	return nil
}

// nextKnown reads a key if it is a known symbol with a header of one or two
// bytes, and names the field that comes next in the struct's order.
func (r *Reader) nextKnown(st *structPlan, next int) bool {
	if r.pos+1 >= len(r.data) || next >= len(st.fields) {
		return false
	}
	c, size := r.data[r.pos], 1
	arg := int(c & argMask)
	if c&moreFlag != 0 {
		high := r.data[r.pos+1]
		if high >= 0x80 {
			return false
		}
		arg, size = arg|int(high)<<4, 2
	}
	id := arg >> 1
	if c>>5 != kindSymbol || arg&1 == 0 || id >= len(r.syms) {
		return false
	}
	if atomic.LoadInt32(&r.syms[id].num) != st.fields[next].num {
		return false
	}
	r.pos += size
	return true
}

// nextDefined reads a key if it defines as a new symbol the name of a field: the
// way of a record that is met first. No table is in use.
func (r *Reader) nextDefined(st *structPlan, i int) bool {
	if i >= len(st.fields) || r.pos < r.defined {
		return false
	}
	f := &st.fields[i]
	end := r.pos + len(f.symbol)
	if end > len(r.data) || r.data[r.pos] != f.symbol[0] || string(r.data[r.pos:end]) != string(f.symbol) || r.budget < int64(symbolCost) {
		return false
	}
	r.budget -= int64(symbolCost)
	r.syms = append(r.syms, sym{text: f.name, num: f.num, own: true})
	r.defined, r.pos = r.pos+1, end
	return true
}

// fewFields is how many fields are tried before a name is looked up.
const fewFields = 8

// memberKey reads a key and returns which field it names, or -1 and the name.
func (r *Reader) memberKey(st *structPlan, next int) (int, string, error) {
	at := r.pos
	if at < len(r.data) && r.data[at]>>5 == kindSymbol && r.data[at]&1 == 0 && r.opts.Table == nil {
		for i := next; i < next+fewFields; i++ { // fields may be left out
			if r.nextDefined(st, i) {
				return i, "", nil
			}
		}
	}
	kind, arg, err := r.header()
	if err != nil {
		return 0, "", err
	}
	var name string
	switch kind {
	case kindSymbol:
		text, id, err := r.symbolBody(arg, at)
		if err != nil {
			return 0, "", err
		}
		if id >= 0 {
			return r.memberOf(st, id, next), text, nil
		}
		name = text
	case kindBytes:
		r.pos = at
		b, err := r.textBytes()
		if err != nil {
			return 0, "", err
		}
		name = unsafe.String(unsafe.SliceData(b), len(b))
	default:
		return 0, "", r.mismatch(at, "name of a member")
	}
	if i, ok := st.byName[name]; ok {
		return i, name, nil
	}
	return -1, name, nil
}

// unknownMember decodes a member that the struct lacks into its inline map, or
// skips it. The name may point into the input.
func (r *Reader) unknownMember(st *structPlan, p unsafe.Pointer, name string, at int) error {
	switch {
	case st.rest != nil:
		pl := st.rest.plan
		m := pl.at(unsafe.Add(p, st.rest.offset))
		if err := r.charge(int(pl.key.size+pl.elem.size) + mapEntryCost + len(name)); err != nil {
			return err
		}
		if m.IsNil() {
			m.Set(reflect.MakeMap(pl.typ))
		}
		key := reflect.ValueOf(string([]byte(name))).Convert(pl.typ.Key())
		if m.MapIndex(key).IsValid() && !r.opts.AllowDuplicates {
			return errAt(ErrDuplicate, at, "member %q", name)
		}
		val := reflect.New(pl.typ.Elem())
		if err := r.fresh(pl.elem, val.UnsafePointer()); err != nil {
			return inPath(name, err)
		}
		m.SetMapIndex(key, val.Elem())
		return nil
	case r.opts.DisallowUnknownFields:
		return errAt(ErrUnknownField, at, "%q in %s", name, st.typ)
	}
	return r.Skip()
}

// fresh decodes into memory that is zero.
func (r *Reader) fresh(pl *plan, p unsafe.Pointer) error {
	wipe := r.wipe
	r.wipe = false
	err := r.value(pl, pl.dec, p)
	r.wipe = wipe
	return err
}

// recordShape reads what comes before the values of a record: nothing, or the
// definition of its shape. The special's argument is arg, its place at.
func (r *Reader) recordShape(at int, arg uint64) (*shape, error) {
	id := arg - specShape
	if arg == specDefine {
		n, err := r.readDefinition(at)
		if err != nil {
			return nil, err
		}
		id = uint64(n)
	}
	if id >= uint64(len(r.shapes)) {
		return nil, errAt(ErrShape, at, "shape %d of %d", id, len(r.shapes))
	}
	sh := r.shapes[id]
	return sh, r.checkCount(uint64(len(sh.ids)), 1)
}

// recordInto decodes a record into a struct.
func (r *Reader) recordInto(pl *plan, p unsafe.Pointer, at int, arg uint64) error {
	sh, err := r.recordShape(at, arg)
	if err != nil {
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	st := pl.st
	bound := sh.bound.Load()
	if bound == nil || bound.st != st {
		bound = r.bind(sh, st)
	}
	if r.wipe {
		st.prepare(p, bound)
	}
	for j, i := range bound.fields {
		if r.pos < len(r.data) && r.data[r.pos] == specAbsent {
			r.pos++
			if i >= 0 && r.wipe {
				st.zeroField(p, int(i))
			}
			continue
		}
		if i < 0 {
			if err := r.unknownMember(st, p, r.syms[sh.ids[j]].text, at); err != nil {
				return err
			}
			continue
		}
		f := &st.fields[i]
		fp := unsafe.Add(p, f.offset)
		if len(f.via) > 0 {
			fp = f.locate(p, true)
		}
		if end := r.quick(f.dec, fp, r.pos); end > 0 {
			r.pos = end
		} else if err := r.value(f.plan, f.dec, fp); err != nil {
			return inPath(f.name, err)
		}
	}
	r.depth--
	return nil
}

// prepare clears what a record decoded over another value will not set.
func (st *structPlan) prepare(p unsafe.Pointer, b *binding) {
	for _, i := range b.missing {
		st.zeroField(p, int(i))
	}
	st.zeroRest(p)
}

func (st *structPlan) zeroField(p unsafe.Pointer, i int) {
	if fp := st.fields[i].locate(p, false); fp != nil {
		st.fields[i].plan.setZero(fp)
	}
}

func (st *structPlan) zeroRest(p unsafe.Pointer) {
	if st.rest != nil {
		st.rest.plan.setZero(unsafe.Add(p, st.rest.offset))
	}
}

// inOrder reports whether a shape without a binding so far names all fields of
// a struct in the struct's own order.
func (r *Reader) inOrder(sh *shape, st *structPlan) bool {
	if len(sh.ids) != len(st.fields) || sh.bound.Load() != nil {
		return false
	}
	for j, id := range sh.ids {
		if r.syms[id].text != st.names[j] {
			return false
		}
	}
	return true
}

// maxBindings bounds the list of a shape's bindings; beyond it the oldest go.
const maxBindings = 8

// bind finds the fields of a struct that a shape's entries name, and keeps the
// result with the shape.
func (r *Reader) bind(sh *shape, st *structPlan) *binding {
	head := sh.bound.Load()
	n := 0
	for b := head; b != nil && n < maxBindings; b, n = b.next, n+1 {
		if b.st == st {
			return b
		}
	}
	if r.inOrder(sh, st) {
		sh.bound.Store(st.whole)
		return st.whole
	}
	b := &binding{st: st, fields: make([]int32, len(sh.ids))}
	found := make([]bool, len(st.fields))
	for j, id := range sh.ids {
		b.fields[j] = -1
		if i, ok := st.byName[r.syms[id].text]; ok {
			b.fields[j], found[i] = int32(i), true
		}
	}
	for i, ok := range found {
		if !ok {
			b.missing = append(b.missing, int32(i))
		}
	}
	if n < maxBindings {
		b.next = head
	}
	sh.bound.Store(b) // of two at once one wins, and both are right
	return b
}
