package pot

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"
	"unsafe"
)

// mapEntryCost is what an entry of a map is charged beyond its key and value.
const mapEntryCost = 16

// pointerInto decodes into what a pointer points to. In wiped memory the old
// target is left alone, since others may still have it.
func (r *Reader) pointerInto(pl *plan, p unsafe.Pointer) error {
	slot := (*unsafe.Pointer)(p)
	if r.ReadNone() {
		*slot = nil
		return nil
	}
	elem := pl.elem
	if elem.dec == opPtr { // a pointer type may lead to itself
		if err := r.enter(); err != nil {
			return err
		}
		defer func() { r.depth-- }()
	}
	if *slot != nil && !r.wipe {
		return r.value(elem, elem.dec, *slot)
	}
	if err := r.charge(int(elem.size)); err != nil {
		return err
	}
	target := reflect.New(elem.typ).UnsafePointer()
	if err := r.fresh(elem, target); err != nil {
		return err
	}
	*slot = target
	return nil
}

// sliceInto decodes a sequence into a slice, in its memory if that is enough.
func (r *Reader) sliceInto(pl *plan, p unsafe.Pointer) error {
	at := r.pos
	kind, arg, err := r.header()
	if err != nil {
		return err
	}
	h := (*sliceHeader)(p)
	switch {
	case kind == kindSpecial && arg <= specUnit:
		*(*[]struct{})(p) = nil
		return nil
	case kind != kindSeq:
		return r.mismatch(at, "sequence")
	}
	if err := r.checkCount(arg, 1); err != nil {
		return err
	}
	n, wipe := int(arg), true
	if n > h.cap || h.data == nil {
		if err := r.chargeElems(n, pl.elem.size); err != nil {
			return err
		}
		h.data = pl.makeElems(n)
		h.cap, wipe = n, false
	}
	h.len = n
	return r.elemsInto(pl.elem, h.data, n, wipe)
}

// makeElems allocates the memory of n elements of a slice. For the commonest
// types it saves what reflection allocates besides.
func (pl *plan) makeElems(n int) unsafe.Pointer {
	size := pl.elem.size
	switch {
	case pl.elem.dec == opString:
		return unsafe.Pointer(unsafe.SliceData(make([]string, n)))
	case pl.elem.dec >= opBool && pl.elem.dec <= opFloat64: // no pointers, aligned to 8 at most
		return unsafe.Pointer(unsafe.SliceData(make([]uint64, (uintptr(n)*size+7)/8)))
	}
	return reflect.MakeSlice(pl.typ, n, n).UnsafePointer()
}

// elemsInto decodes n elements; wipe tells that their memory is not zero.
func (r *Reader) elemsInto(elem *plan, p unsafe.Pointer, n int, wipe bool) error {
	if err := r.enter(); err != nil {
		return err
	}
	before := r.wipe
	r.wipe = wipe
	for i := range n {
		ep := unsafe.Add(p, uintptr(i)*elem.size)
		if elem.dec <= opString {
			if end := r.quick(elem.dec, ep, r.pos); end > 0 {
				r.pos = end
				continue
			}
		}
		if err := r.value(elem, elem.dec, ep); err != nil {
			r.wipe = before
			return inPath("["+strconv.Itoa(i)+"]", err)
		}
	}
	r.wipe = before
	r.depth--
	return nil
}

func (r *Reader) arrayInto(pl *plan, p unsafe.Pointer) error {
	n, zero, err := r.fixedSeq(pl.typ, pl.n)
	if err != nil {
		return err
	}
	if zero {
		pl.setZero(p)
		return nil
	}
	return r.elemsInto(pl.elem, p, n, true)
}

// fixedSeq reads the beginning of a sequence of exactly want elements, or a
// none or unit, for which zero is true.
func (r *Reader) fixedSeq(t reflect.Type, want int) (n int, zero bool, err error) {
	at := r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return 0, false, err
	case kind == kindSpecial && arg <= specUnit:
		return 0, true, nil
	case kind != kindSeq:
		return 0, false, r.mismatch(at, "sequence")
	case arg != uint64(want):
		return 0, false, errAt(ErrType, at, "%d elements for %s", arg, t)
	}
	return want, false, nil
}

func (r *Reader) tupleInto(pl *plan, p unsafe.Pointer) error {
	_, zero, err := r.fixedSeq(pl.typ, len(pl.st.fields))
	if err != nil {
		return err
	}
	if zero {
		pl.setZero(p)
		return nil
	}
	if err := r.enter(); err != nil {
		return err
	}
	for i := range pl.st.fields {
		f := &pl.st.fields[i]
		if err := r.value(f.plan, f.dec, unsafe.Add(p, f.offset)); err != nil {
			return inPath(f.name, err)
		}
	}
	r.depth--
	return nil
}

func (r *Reader) byteArrayInto(pl *plan, p unsafe.Pointer) error {
	at := r.pos
	dst := unsafe.Slice((*byte)(p), pl.n)
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return err
	case kind == kindSpecial && arg <= specUnit:
		clear(dst)
		return nil
	case kind == kindBytes || kind == kindSeq:
		if arg != uint64(pl.n) {
			return errAt(ErrType, at, "%d bytes for %s", arg, pl.typ)
		}
		if kind == kindSeq {
			_, err := r.byteSeq(dst[:0:len(dst)], arg)
			return err
		}
		b, err := r.take(arg, "bytes")
		copy(dst, b)
		return err
	}
	return r.mismatch(at, "bytes")
}

// mapHead reads the beginning of a map or record. For a record it returns the
// shape; for an open map n is -1; for none and unit zero is true.
func (r *Reader) mapHead(want string) (n int, sh *shape, zero bool, err error) {
	at := r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return 0, nil, false, err
	case kind == kindMap:
		return int(arg), nil, false, r.checkCount(arg, 2)
	case kind == kindSpecial && arg <= specUnit:
		return 0, nil, true, nil
	case kind == kindSpecial && arg == specDynMap:
		return -1, nil, false, nil
	case kind == kindSpecial && arg >= specDefine && r.mode == Shapes:
		sh, err = r.recordShape(at, arg)
		if err != nil {
			return 0, nil, false, err
		}
		return len(sh.ids), sh, false, nil
	}
	return 0, nil, false, r.mismatch(at, want)
}

// mapInto decodes a map or record into a Go map; entries that it has stay.
func (r *Reader) mapInto(pl *plan, p unsafe.Pointer) error {
	n, sh, zero, err := r.mapHead("map")
	if err != nil {
		return err
	}
	m := pl.at(p)
	if zero {
		m.SetZero()
		return nil
	}
	if pl.dec == opStringAnyMap && (m.IsNil() || r.wipe) {
		obj, err := r.objectBody(n, sh)
		*(*map[string]any)(p) = obj
		if _, mixed := err.(*mixedKeys); mixed {
			return r.mismatch(r.pos, "text as a key")
		}
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	into := mapFiller{r: r, pl: pl, m: m, cost: int(pl.key.size+pl.elem.size) + mapEntryCost}
	if m.IsNil() || r.wipe {
		m.Set(reflect.MakeMapWithSize(pl.typ, min(max(n, 0), 1<<10)))
	} else if m.Len() > 0 {
		into.met = reflect.MakeMap(reflect.MapOf(pl.typ.Key(), reflect.TypeFor[struct{}]()))
	}
	if err := into.fill(n, sh); err != nil {
		return err
	}
	r.depth--
	return nil
}

// mapFiller adds decoded entries to a map.
type mapFiller struct {
	r    *Reader
	pl   *plan
	m    reflect.Value
	met  reflect.Value // the keys met, if the map was not empty before
	cost int
}

func (f *mapFiller) fill(n int, sh *shape) error {
	r := f.r
	s := f.pl.getScratch()
	defer f.pl.putScratch(s)
	for i := 0; i != n; i++ {
		if n < 0 && r.ReadMapEnd() {
			break
		}
		if err := r.charge(f.cost); err != nil {
			return err
		}
		at := r.pos
		s.key.Elem().SetZero()
		if sh == nil {
			if err := r.fresh(f.pl.key, s.key.UnsafePointer()); err != nil {
				return inPath("key", err)
			}
		} else {
			if r.pos < len(r.data) && r.data[r.pos] == specAbsent {
				r.pos++
				continue
			}
			if f.pl.typ.Key().Kind() != reflect.String {
				return errAt(ErrType, at, "a record has names, %s has not", f.pl.typ)
			}
			name, err := r.ownSymbol(sh.ids[i])
			if err != nil {
				return err
			}
			s.key.Elem().SetString(name)
		}
		if err := f.entry(s, at); err != nil {
			return err
		}
	}
	return nil
}

// entry decodes the value of the key in s.
func (f *mapFiller) entry(s *scratch, at int) error {
	key := s.key.Elem()
	if !key.Comparable() {
		return errAt(ErrType, at, "key of type %s cannot be compared", key.Type())
	}
	s.elem.Elem().SetZero()
	if err := f.r.fresh(f.pl.elem, s.elem.UnsafePointer()); err != nil {
		return inPath(keyText(key), err)
	}
	size := f.m.Len()
	f.m.SetMapIndex(key, s.elem.Elem())
	twice := f.m.Len() == size
	if f.met.IsValid() {
		size = f.met.Len()
		f.met.SetMapIndex(key, reflect.ValueOf(struct{}{}))
		twice = f.met.Len() == size
	}
	if twice && !f.r.opts.AllowDuplicates {
		return errAt(ErrDuplicate, at, "key %v", key)
	}
	return nil
}

// ownSymbol returns a symbol's text in memory that outlives the input.
func (r *Reader) ownSymbol(id uint32) (string, error) {
	s := &r.syms[id]
	if s.own || r.opts.Strings == BorrowStrings {
		return s.text, nil
	}
	if err := r.charge(len(s.text)); err != nil {
		return "", err
	}
	s.text, s.own = string([]byte(s.text)), true
	return s.text, nil
}

// readAny decodes a value without a Go type: see the package documentation.
func (r *Reader) readAny() (any, error) {
	at := r.pos
	kind, arg, err := r.header()
	if err != nil {
		return nil, err
	}
	switch kind {
	case kindInt, kindUint:
		w, err := r.wideBody(kind, arg, at)
		if err != nil {
			return nil, err
		}
		if err := r.charge(8); err != nil {
			return nil, err
		}
		return w.any(), nil
	case kindFloat:
		f, _, err := r.floatBody(arg, at)
		if err != nil {
			return nil, err
		}
		return f, r.charge(8)
	case kindSeq:
		return r.anySeq(arg)
	case kindSymbol, kindBytes:
		return r.anyText(kind, arg, at)
	case kindSpecial:
		switch arg {
		case specNone, specUnit:
			return nil, nil
		case specFalse, specTrue:
			return arg == specTrue, nil
		case specNamed:
			return r.anyVariant(at)
		}
	}
	r.pos = at
	n, sh, _, err := r.mapHead("value")
	if err != nil {
		return nil, err
	}
	return r.anyMap(n, sh)
}

// anyVariant decodes a variant: without a value, which only mode Full writes so,
// it is its name, as it is in the other modes.
func (r *Reader) anyVariant(at int) (any, error) {
	v := new(Variant)
	r.pos = at
	if err := r.charge(int(unsafe.Sizeof(*v))); err != nil {
		return nil, err
	}
	if err := r.variantInto(v); err != nil {
		return nil, err
	}
	if v.Unit {
		return v.Name, nil
	}
	return v, nil
}

// any returns the integer as int64 or uint64 by its kind, or as a big.Int.
func (w wide) any() any {
	if w.signed {
		if v, ok := w.int64(); ok {
			return v
		}
	} else if v, ok := w.uint64(); ok {
		return v
	}
	return w.big()
}

func (r *Reader) anySeq(n uint64) (any, error) {
	if err := r.checkCount(n, 1); err != nil {
		return nil, err
	}
	if err := r.chargeElems(int(n), unsafe.Sizeof(any(nil))); err != nil {
		return nil, err
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	out := make([]any, n)
	for i := range out {
		v, err := r.readAny()
		if err != nil {
			return nil, inPath("["+strconv.Itoa(i)+"]", err)
		}
		out[i] = v
	}
	r.depth--
	return out, nil
}

// anyText returns a string, or bytes if they are not UTF-8.
func (r *Reader) anyText(kind byte, arg uint64, at int) (any, error) {
	if kind == kindSymbol {
		text, id, err := r.symbolBody(arg, at)
		if err != nil {
			return nil, err
		}
		if id >= 0 {
			return r.ownSymbol(uint32(id))
		}
		return r.newString(unsafe.Slice(unsafe.StringData(text), len(text)))
	}
	r.pos = at
	b, err := r.textBytes()
	if err == nil {
		if err := r.charge(int(unsafe.Sizeof(""))); err != nil {
			return nil, err
		}
		return r.newString(b)
	}
	if codeOf(err) == ErrUTF8 {
		r.pos = at
		return r.ReadBytes()
	}
	return nil, err
}

// anyMap decodes the pairs of a map or record into a map[string]any, or into a
// map[any]any from the first key on that is not a text.
func (r *Reader) anyMap(n int, sh *shape) (any, error) {
	from := r.pos
	if sh == nil && n != 0 && !r.textNext() && !r.ReadMapEnd() {
		return r.mixedMap(n, nil)
	}
	r.pos = from
	obj, err := r.objectBody(n, sh)
	if errMixed, ok := err.(*mixedKeys); ok {
		return r.mixedMap(errMixed.left, obj)
	}
	if err != nil {
		return nil, err
	}
	return obj, nil
}

// mixedKeys is how objectBody tells that it met a key that is not a text.
type mixedKeys struct{ left int }

func (*mixedKeys) Error() string { return "key is not a text" }

// textNext reports whether a symbol or valid text is next.
func (r *Reader) textNext() bool {
	kind, _, _, code := parseHeader(r.data, r.pos)
	return code == 0 && (kind == kindSymbol || kind == kindBytes)
}

const anyEntryCost = int(unsafe.Sizeof("")+unsafe.Sizeof(any(nil))) + mapEntryCost

// objectBody decodes the pairs of a map with text keys, or a record.
func (r *Reader) objectBody(n int, sh *shape) (map[string]any, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	obj := make(map[string]any, min(max(n, 0), 1<<10))
	for i := 0; i != n; i++ {
		if n < 0 && r.ReadMapEnd() {
			break
		}
		if err := r.charge(anyEntryCost); err != nil {
			return nil, err
		}
		at := r.pos
		var name any
		var err error
		switch {
		case sh == nil && !r.textNext():
			if r.pos >= len(r.data) {
				return nil, r.fail(ErrTruncated, "key of a map")
			}
			r.depth--
			return obj, &mixedKeys{left: max(n-i, -1)}
		case sh == nil:
			name, err = r.readAny()
		case r.pos < len(r.data) && r.data[r.pos] == specAbsent:
			r.pos++
			continue
		default:
			name, err = r.ownSymbol(sh.ids[i])
		}
		if err != nil {
			return nil, err
		}
		key, isText := name.(string)
		if !isText {
			r.pos = at
			r.depth--
			return obj, &mixedKeys{left: max(n-i, -1)}
		}
		v, err := r.readAny()
		if err != nil {
			return nil, inPath(key, err)
		}
		size := len(obj)
		obj[key] = v
		if len(obj) == size && !r.opts.AllowDuplicates {
			return nil, errAt(ErrDuplicate, at, "key %q", key)
		}
	}
	r.depth--
	return obj, nil
}

// mixedMap decodes the pairs that are left of a map with keys of any kind.
func (r *Reader) mixedMap(n int, begun map[string]any) (any, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	m := make(map[any]any, len(begun))
	for k, v := range begun {
		m[k] = v
	}
	for i := 0; i != n; i++ {
		if n < 0 && r.ReadMapEnd() {
			break
		}
		if err := r.charge(2 * anyEntryCost); err != nil {
			return nil, err
		}
		at := r.pos
		key, err := r.readAny()
		if err != nil {
			return nil, inPath("key", err)
		}
		if key != nil && !reflect.TypeOf(key).Comparable() {
			return nil, errAt(ErrType, at, "key of type %T cannot be compared", key)
		}
		v, err := r.readAny()
		if err != nil {
			return nil, inPath(fmt.Sprintf("[%v]", key), err)
		}
		size := len(m)
		m[key] = v
		if len(m) == size && !r.opts.AllowDuplicates {
			return nil, errAt(ErrDuplicate, at, "key %v", key)
		}
	}
	r.depth--
	return m, nil
}

// interfaceInto decodes a variant of a union, or into an empty interface a
// value without a Go type.
func (r *Reader) interfaceInto(pl *plan, p unsafe.Pointer) error {
	u := r.opts.Unions.of(pl.typ)
	switch {
	case u == nil && pl.typ.NumMethod() == 0:
		v, err := r.readAny()
		*(*any)(p) = v
		return err
	case r.ReadNone():
		pl.setZero(p)
		return nil
	case u == nil:
		return r.fail(ErrUnsupported, "%s is not a registered union", pl.typ)
	}
	at := r.pos
	name, named, err := r.variantName()
	if err != nil {
		return err
	}
	member := u.byName[name]
	if member == nil {
		return errAt(ErrUnknownVariant, at, "%q of %s", name, pl.typ)
	}
	if member.unit == named && r.mode != Full || !member.unit && !named {
		return errAt(ErrType, at, "variant %q of %s with or without a value", name, pl.typ)
	}
	if err := r.enter(); err != nil {
		return err
	}
	mp, err := planOf(member.typ)
	if err != nil {
		return err
	}
	if err := r.charge(int(mp.size)); err != nil {
		return err
	}
	v := reflect.New(member.typ)
	if member.unit && member.typ.Kind() == reflect.Pointer {
		v.Elem().Set(reflect.New(member.typ.Elem()))
	}
	if !member.unit {
		if err := r.fresh(mp, v.UnsafePointer()); err != nil {
			return inPath(name, err)
		}
	}
	pl.at(p).Set(v.Elem())
	r.depth--
	return nil
}

func (r *Reader) variantInto(v *Variant) (err error) {
	*v = Variant{}
	if r.ReadNone() {
		return nil
	}
	if err := r.enter(); err != nil {
		return err
	}
	name, unit, err := r.ReadVariant()
	if err != nil {
		return err
	}
	b, err := r.newString(unsafe.Slice(unsafe.StringData(name), len(name)))
	if err != nil {
		return err
	}
	v.Name, v.Unit = b, unit
	if !unit {
		if v.Value, err = r.readAny(); err != nil {
			return inPath(v.Name, err)
		}
	}
	r.depth--
	return nil
}

// readEnum reads the name of a unit variant.
func (r *Reader) readEnum() (string, error) {
	if r.ReadNone() {
		return "", nil
	}
	at := r.pos
	name, named, err := r.variantName()
	if err == nil && named && r.mode != Full {
		err = errAt(ErrType, at, "variant %q has a value", name)
	}
	if err != nil {
		return "", err
	}
	return r.newString([]byte(name))
}

func (r *Reader) timeInto(p *time.Time) error {
	at := r.pos
	b, err := r.textBytes()
	if err != nil {
		return err
	}
	if len(b) == 0 {
		*p = time.Time{}
		return nil
	}
	if err := p.UnmarshalText(b); err != nil {
		return &Error{Code: ErrType, Offset: int64(at), Detail: "time", Err: err}
	}
	return nil
}

func (r *Reader) readUnixTime(unit int) (time.Time, error) {
	if r.ReadNone() {
		return time.Time{}, nil
	}
	n, err := r.ReadInt()
	if err != nil {
		return time.Time{}, err
	}
	perSecond := int64(time.Second) / int64(unit)
	sec, part := n/perSecond, n%perSecond
	if part < 0 {
		sec, part = sec-1, part+perSecond
	}
	if sec > math.MaxInt64-62135596800 { // beyond what time.Time counts from year 1
		return time.Time{}, r.fail(ErrRange, "time of %d seconds", sec)
	}
	return time.Unix(sec, part*int64(unit)).UTC(), nil
}

// emptyInto reads the value of a struct without fields.
func (r *Reader) emptyInto() error {
	at := r.pos
	kind, arg, err := r.header()
	switch {
	case err != nil:
		return err
	case kind == kindSpecial && arg <= specUnit:
		return nil
	case kind == kindMap, kind == kindSpecial && (arg == specDynMap || arg >= specDefine && r.mode == Shapes):
		r.pos = at
		if r.opts.DisallowUnknownFields && !(kind == kindMap && arg == 0) {
			return r.fail(ErrUnknownField, "struct without fields")
		}
		return r.Skip()
	}
	return r.mismatch(at, "unit")
}

// methodInto lets the value read itself.
func (r *Reader) methodInto(pl *plan, o op, p unsafe.Pointer) error {
	at := r.pos
	v := reflect.NewAt(pl.typ, p).Interface()
	if o != opPotMethod {
		if r.ReadNone() {
			pl.setZero(p)
			return nil
		}
		if o == opTextMethod {
			b, err := r.textBytes()
			if err != nil {
				return err
			}
			if err := v.(encoding.TextUnmarshaler).UnmarshalText(b); err != nil {
				return wrapMarshaler(err, at, "UnmarshalText of "+pl.typ.String())
			}
			return nil
		}
		b, err := r.ReadBytes()
		if err != nil {
			return err
		}
		if err := v.(encoding.BinaryUnmarshaler).UnmarshalBinary(b); err != nil {
			return wrapMarshaler(err, at, "UnmarshalBinary of "+pl.typ.String())
		}
		return nil
	}
	end := -1 // in mode Full the end of a value cannot be told without its type
	if r.mode != Full {
		if err := r.Skip(); err != nil {
			return err
		}
		end, r.pos = r.pos, at
	}
	if err := r.enter(); err != nil {
		return err
	}
	depth := r.depth
	if err := v.(UnmarshalerFrom).UnmarshalPotFrom(r); err != nil {
		return wrapMarshaler(err, at, "UnmarshalPotFrom of "+pl.typ.String())
	}
	r.depth = depth - 1
	if end >= 0 && r.pos != end || r.pos <= at {
		return errAt(ErrMarshaler, at, "UnmarshalPotFrom of %s did not read exactly one value", pl.typ)
	}
	return nil
}
