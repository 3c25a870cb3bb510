package pot

import (
	"bytes"
	"encoding"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// Marshal returns the payload of v with default options. See the package
// documentation for what becomes of each Go type. It may be called by many
// goroutines at once.
func Marshal(v any) ([]byte, error) { return (*EncodeOptions)(nil).Marshal(v) }

// MarshalAppend appends the payload of v to dst. On failure it returns dst as
// it was.
func MarshalAppend(dst []byte, v any) ([]byte, error) {
	return (*EncodeOptions)(nil).Append(dst, v)
}

// Marshal returns the payload of v.
func (o *EncodeOptions) Marshal(v any) ([]byte, error) {
	buf, ok := marshalBuffers.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	b, err := o.Append((*buf)[:0], v)
	switch {
	case err != nil:
		b = nil
	case cap(b) > maxMarshalBuffer: // worth more than a copy of it
		return b, nil
	default:
		*buf = b
		b = bytes.Clone(b)
	}
	marshalBuffers.Put(buf)
	return b, err
}

// marshalBuffers holds the memory in which Marshal finds out how long a payload is.
var marshalBuffers sync.Pool

const maxMarshalBuffer = 64 << 10

// Append appends the payload of v to dst. On failure it returns dst as it was.
// To a dst with ample room it allocates nothing for values without maps and
// interfaces, once their type has been seen some times. It may write to the
// spare memory of dst behind the payload.
func (o *EncodeOptions) Append(dst []byte, v any) ([]byte, error) {
	if o == nil {
		o = new(EncodeOptions)
	}
	if err := o.check(); err != nil {
		return dst, err
	}
	if o.Canonical {
		return appendCanonicalValue(dst, v, o)
	}
	if b, done := o.appendWhole(dst, v); done {
		return b, nil
	}
	w := newWriter(dst, o)
	w.header()
	b, err := w.appendAny(w.buf, v)
	w.release(err != nil)
	if err != nil {
		return dst, err
	}
	return b, nil
}

// appendAny appends a value of any type.
func (w *Writer) appendAny(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, specNone), nil
	case string:
		return appendValidText(b, v)
	case bool:
		return appendBool(b, v), nil
	case int:
		return appendInt(b, int64(v)), nil
	case int64:
		return appendInt(b, v), nil
	case uint64:
		return appendUint(b, v), nil
	case float64:
		return appendFloat64(b, v), nil
	case []any:
		return w.appendAnySlice(b, v)
	case map[string]any:
		return w.appendObject(b, v)
	}
	rv := reflect.ValueOf(v)
	pl, err := planOf(rv.Type())
	if err != nil {
		return b, err
	}
	if pl.enc == opPtr && pl.elem.enc != opPtr {
		p := rv.UnsafePointer()
		if p == nil {
			return append(b, specNone), nil
		}
		return w.append(b, pl.elem, pl.elem.enc, p)
	}
	// A value within an interface has no address that could be asked for.
	s := pl.getScratch()
	s.val.Elem().Set(rv)
	b, err = w.append(b, pl, pl.enc, s.val.UnsafePointer())
	pl.putScratch(s)
	return b, err
}

// enter counts a level of nesting; every success is paired with w.depth--.
func (w *Writer) enter() error {
	if w.depth >= w.maxDepth {
		return encodeError(ErrDepth, "more than %d levels, or a cycle", w.maxDepth)
	}
	w.depth++
	return nil
}

// append appends the value of plan pl at p by way of op o.
func (w *Writer) append(b []byte, pl *plan, o op, p unsafe.Pointer) ([]byte, error) {
	switch o {
	case opBool:
		return appendBool(b, *(*bool)(p)), nil
	case opInt8:
		return appendInt(b, int64(*(*int8)(p))), nil
	case opInt16:
		return appendInt(b, int64(*(*int16)(p))), nil
	case opInt32:
		return appendInt(b, int64(*(*int32)(p))), nil
	case opInt64:
		return appendInt(b, *(*int64)(p)), nil
	case opUint8:
		return append(b, uintTag, *(*uint8)(p)), nil
	case opUint16:
		return appendUint(b, uint64(*(*uint16)(p))), nil
	case opUint32:
		return appendUint(b, uint64(*(*uint32)(p))), nil
	case opUint64:
		return appendUint(b, *(*uint64)(p)), nil
	case opFloat32:
		return appendFloat32(b, *(*float32)(p)), nil
	case opFloat64:
		return appendFloat64(b, *(*float64)(p)), nil
	case opString:
		return appendValidText(b, *(*string)(p))
	case opBytes:
		v := *(*[]byte)(p)
		return append(appendHeader(b, kindBytes, uint64(len(v))), v...), nil
	case opByteArray:
		return append(appendHeader(b, kindBytes, uint64(pl.n)), unsafe.Slice((*byte)(p), pl.n)...), nil
	case opStruct:
		return w.appendStruct(b, pl.st, p)
	case opPtr:
		return w.appendPointer(b, pl, p)
	case opSlice:
		h := (*sliceHeader)(p)
		return w.appendElems(b, pl.elem, h.data, h.len)
	}
	return w.appendOther(b, pl, o, p)
}

// appendOther is the part of append that needs no speed, or gains it elsewhere.
func (w *Writer) appendOther(b []byte, pl *plan, o op, p unsafe.Pointer) ([]byte, error) {
	switch o {
	case opArray:
		return w.appendElems(b, pl.elem, p, pl.n)
	case opTuple:
		return w.appendTuple(b, pl.st, p)
	case opEmpty:
		return append(b, specUnit), nil
	case opMap:
		return w.appendMap(b, pl, p)
	case opStringAnyMap:
		return w.appendObject(b, *(*map[string]any)(p))
	case opInterface:
		return w.appendInterface(b, pl, p)
	case opTime:
		return appendTime(b, *(*time.Time)(p))
	case opUnixTime:
		return appendUnixTime(b, *(*time.Time)(p), pl.n)
	case opEnum:
		w.buf = b
		err := w.WriteUnitVariant(*(*string)(p))
		return w.buf, err
	case opBigInt:
		w.buf = b
		err := w.WriteBigInt((*big.Int)(p))
		return w.buf, err
	case opRaw:
		return w.appendRaw(b, *(*Raw)(p))
	case opVariant:
		return w.appendVariant(b, (*Variant)(p))
	case opPotMethod, opBinaryMethod, opTextMethod:
		return w.appendMethod(b, pl, o, p)
	}
	return b, typeError(pl.typ)
}

// sliceHeader is the memory of a slice.
type sliceHeader struct {
	data unsafe.Pointer
	len  int
	cap  int
}

func (w *Writer) appendPointer(b []byte, pl *plan, p unsafe.Pointer) ([]byte, error) {
	p = *(*unsafe.Pointer)(p)
	if p == nil {
		return append(b, specNone), nil
	}
	elem := pl.elem
	if elem.enc != opPtr {
		return w.append(b, elem, elem.enc, p)
	}
	if err := w.enter(); err != nil { // a pointer may lead to itself
		return b, err
	}
	b, err := w.append(b, elem, opPtr, p)
	w.depth--
	return b, err
}

// appendStruct appends a struct as a record in mode Shapes, else as a map.
func (w *Writer) appendStruct(b []byte, st *structPlan, p unsafe.Pointer) (_ []byte, err error) {
	if fp := w.flatPlan(st); fp != nil {
		if b, done := appendFlat(b, fp, p, w); done {
			return b, nil
		}
	}
	if err := w.enter(); err != nil {
		return b, err
	}
	if w.opts.Mode == Shapes {
		id := int32(0)
		if st.num < len(w.shapes) {
			id = w.shapes[st.num]
		}
		if id > 0 {
			id--
		} else if id == 0 {
			b, id = w.structShape(b, st)
		}
		if id != noShape {
			b = appendRecord(b, id)
			if st.optional {
				b, err = w.appendPresent(b, st, p)
			} else {
				b, err = w.appendFields(b, st, p, false)
			}
			w.depth--
			return b, err
		}
	}
	if st.optional || st.rest != nil {
		b, err = w.appendPartial(b, st, p)
		w.depth--
		return b, err
	}
	b, err = w.appendFields(appendHeader(b, kindMap, uint64(len(st.fields))), st, p, true)
	w.depth--
	return b, err
}

// appendFields appends the values of all fields, each after its key if keyed.
// The commonest kinds are done here, without another call.
func (w *Writer) appendFields(b []byte, st *structPlan, p unsafe.Pointer, keyed bool) (_ []byte, err error) {
	for i := range st.fields {
		f := &st.fields[i]
		if keyed {
			if n := int(f.num); n < len(w.symbols) && w.symbols[n]-1 < argMask {
				b = append(b, symbolTag|byte(w.symbols[n]))
			} else {
				b = w.appendKey(b, f)
			}
		}
		fp := unsafe.Add(p, f.offset)
		switch f.enc {
		case opString:
			if b, err = appendValidText(b, *(*string)(fp)); err != nil {
				return b, inPath(f.name, err)
			}
			continue
		case opUint8:
			b = append(b, uintTag, *(*uint8)(fp))
			continue
		case opUint64:
			b = appendUint(b, *(*uint64)(fp))
			continue
		case opInt64:
			b = appendInt(b, *(*int64)(fp))
			continue
		case opInt32:
			b = appendInt(b, int64(*(*int32)(fp)))
			continue
		case opUint16:
			b = appendUint(b, uint64(*(*uint16)(fp)))
			continue
		case opUint32:
			b = appendUint(b, uint64(*(*uint32)(fp)))
			continue
		case opBool:
			b = appendBool(b, *(*bool)(fp))
			continue
		case opFloat64:
			b = appendFloat64(b, *(*float64)(fp))
			continue
		}
		if b, err = w.append(b, f.plan, f.enc, fp); err != nil {
			return b, inPath(f.name, err)
		}
	}
	return b, nil
}

// appendPresent appends the values of a record whose fields may be left out.
func (w *Writer) appendPresent(b []byte, st *structPlan, p unsafe.Pointer) (_ []byte, err error) {
	for i := range st.fields {
		f := &st.fields[i]
		fp := f.locate(p, false)
		if fp == nil || f.zero(fp) {
			b = append(b, specAbsent)
			continue
		}
		if b, err = w.append(b, f.plan, f.enc, fp); err != nil {
			return b, inPath(f.name, err)
		}
	}
	return b, nil
}

// appendTuple appends the fields of a struct as a sequence.
func (w *Writer) appendTuple(b []byte, st *structPlan, p unsafe.Pointer) ([]byte, error) {
	if err := w.enter(); err != nil {
		return b, err
	}
	b, err := w.appendFields(appendHeader(b, kindSeq, uint64(len(st.fields))), st, p, false)
	w.depth--
	return b, err
}

// appendPartial appends a struct as a map of those fields that are present.
func (w *Writer) appendPartial(b []byte, st *structPlan, p unsafe.Pointer) (_ []byte, err error) {
	var absent seenFields
	count := len(st.fields)
	for i := range st.fields {
		if fp := st.fields[i].locate(p, false); fp == nil || st.fields[i].zero(fp) {
			absent.set(i)
			count--
		}
	}
	var rest reflect.Value
	if st.rest != nil {
		rest = st.rest.plan.at(unsafe.Add(p, st.rest.offset))
		count += rest.Len()
	}
	b = appendHeader(b, kindMap, uint64(count))
	for i := range st.fields {
		if absent.test(i) {
			continue
		}
		f := &st.fields[i]
		b = w.appendKey(b, f)
		if b, err = w.append(b, f.plan, f.enc, f.locate(p, false)); err != nil {
			return b, inPath(f.name, err)
		}
	}
	if st.rest == nil || rest.Len() == 0 {
		return b, nil
	}
	for it := rest.MapRange(); it.Next(); {
		if _, own := st.byName[it.Key().String()]; own {
			return b, encodeError(ErrDuplicate, "inline map has key %q, which is a field", it.Key().String())
		}
	}
	return w.appendPairs(b, st.rest.plan, rest)
}

func (w *Writer) appendElems(b []byte, elem *plan, p unsafe.Pointer, n int) (_ []byte, err error) {
	if err := w.enter(); err != nil {
		return b, err
	}
	b = appendHeader(b, kindSeq, uint64(n))
	if elem.enc == opString {
		for i, s := range unsafe.Slice((*string)(p), n) {
			if b, err = appendValidText(b, s); err != nil {
				return b, inPath("["+strconv.Itoa(i)+"]", err)
			}
		}
		w.depth--
		return b, nil
	}
	for i := range n {
		if b, err = w.append(b, elem, elem.enc, unsafe.Add(p, uintptr(i)*elem.size)); err != nil {
			return b, inPath("["+strconv.Itoa(i)+"]", err)
		}
	}
	w.depth--
	return b, nil
}

func (w *Writer) appendAnySlice(b []byte, v []any) (_ []byte, err error) {
	if err := w.enter(); err != nil {
		return b, err
	}
	b = appendHeader(b, kindSeq, uint64(len(v)))
	for i := range v {
		if b, err = w.appendAny(b, v[i]); err != nil {
			return b, inPath("["+strconv.Itoa(i)+"]", err)
		}
	}
	w.depth--
	return b, nil
}

// appendObject appends a map[string]any: in mode Shapes as a record if its
// keys have a shape, else as a map with its keys in place.
func (w *Writer) appendObject(b []byte, m map[string]any) (_ []byte, err error) {
	if err := w.enter(); err != nil {
		return b, err
	}
	if w.opts.Mode != Shapes && !w.opts.Deterministic {
		b = appendHeader(b, kindMap, uint64(len(m)))
		for k, v := range m {
			if b, err = appendValidText(b, k); err != nil {
				return b, err
			}
			if b, err = w.appendAny(b, v); err != nil {
				return b, inPath(k, err)
			}
		}
		w.depth--
		return b, nil
	}
	from := len(w.names)
	for k := range m {
		w.names = append(w.names, k)
	}
	names := w.names[from:]
	slices.Sort(names)
	id := int32(noShape)
	if w.opts.Mode == Shapes {
		b, id = w.objectShape(b, names)
	}
	if id == noShape {
		b = appendHeader(b, kindMap, uint64(len(m)))
	} else {
		b = appendRecord(b, id)
	}
	for _, k := range names {
		if id == noShape {
			if b, err = appendValidText(b, k); err != nil {
				return b, err
			}
		}
		if b, err = w.appendAny(b, m[k]); err != nil {
			return b, inPath(k, err)
		}
	}
	clear(names)
	w.names = w.names[:from]
	w.depth--
	return b, nil
}

// appendMap appends a map of any other type.
func (w *Writer) appendMap(b []byte, pl *plan, p unsafe.Pointer) ([]byte, error) {
	if err := w.enter(); err != nil {
		return b, err
	}
	m := pl.at(p)
	b, err := w.appendPairs(appendHeader(b, kindMap, uint64(m.Len())), pl, m)
	w.depth--
	return b, err
}

// appendPairs appends the keys and values of a map.
func (w *Writer) appendPairs(b []byte, pl *plan, m reflect.Value) (_ []byte, err error) {
	if m.Len() == 0 {
		return b, nil
	}
	if w.opts.Deterministic {
		return w.appendSortedPairs(b, pl, m)
	}
	s := pl.getScratch()
	defer pl.putScratch(s)
	key, elem := s.key.Elem(), s.elem.Elem()
	s.iter.Reset(m)
	for s.iter.Next() {
		key.SetIterKey(&s.iter)
		elem.SetIterValue(&s.iter)
		if b, err = w.append(b, pl.key, pl.key.enc, s.key.UnsafePointer()); err != nil {
			return b, inPath("key", err)
		}
		if b, err = w.append(b, pl.elem, pl.elem.enc, s.elem.UnsafePointer()); err != nil {
			return b, inPath(keyText(key), err)
		}
	}
	return b, nil
}

// appendSortedPairs appends the pairs in the order of their keys: of texts by
// their bytes, of others by their bytes when encoded each for itself.
func (w *Writer) appendSortedPairs(b []byte, pl *plan, m reflect.Value) (_ []byte, err error) {
	type pair struct {
		order    string
		key, val reflect.Value
	}
	pairs := make([]pair, 0, m.Len())
	opts := EncodeOptions{NoHeader: true, Deterministic: true, MaxDepth: w.maxDepth, Unions: w.opts.Unions}
	for it := m.MapRange(); it.Next(); {
		pr := pair{key: reflect.New(pl.typ.Key()), val: reflect.New(pl.typ.Elem())}
		pr.key.Elem().Set(it.Key())
		pr.val.Elem().Set(it.Value())
		if pl.key.enc == opString {
			pr.order = it.Key().String()
		} else {
			kw := newWriter(nil, &opts)
			kb, err := kw.append(nil, pl.key, pl.key.enc, pr.key.UnsafePointer())
			kw.release(err != nil)
			if err != nil {
				return b, inPath("key", err)
			}
			pr.order = string(kb)
		}
		pairs = append(pairs, pr)
	}
	slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.order, b.order) })
	for _, pr := range pairs {
		if b, err = w.append(b, pl.key, pl.key.enc, pr.key.UnsafePointer()); err != nil {
			return b, inPath("key", err)
		}
		if b, err = w.append(b, pl.elem, pl.elem.enc, pr.val.UnsafePointer()); err != nil {
			return b, inPath(keyText(pr.key.Elem()), err)
		}
	}
	return b, nil
}

// keyText shows a map's key in the path of an error.
func keyText(k reflect.Value) string {
	switch {
	case k.Kind() == reflect.String:
		return k.String()
	case k.CanInt():
		return "[" + strconv.FormatInt(k.Int(), 10) + "]"
	case k.CanUint():
		return "[" + strconv.FormatUint(k.Uint(), 10) + "]"
	}
	return "[" + k.Type().String() + "]"
}

// appendInterface appends what an interface holds, as a variant if the options
// know the interface as a union.
func (w *Writer) appendInterface(b []byte, pl *plan, p unsafe.Pointer) ([]byte, error) {
	if err := w.enter(); err != nil {
		return b, err
	}
	defer func() { w.depth-- }()
	if pl.typ.NumMethod() == 0 && w.opts.Unions == nil {
		return w.appendAny(b, *(*any)(p))
	}
	v := pl.at(p)
	if v.IsNil() {
		return append(b, specNone), nil
	}
	u := w.opts.Unions.of(pl.typ)
	if u == nil {
		return w.appendAny(b, v.Elem().Interface())
	}
	member := u.byType[v.Elem().Type()]
	if member == nil {
		return b, encodeError(ErrUnknownVariant, "%s is not registered for %s", v.Elem().Type(), pl.typ)
	}
	w.buf = b
	if member.unit {
		err := w.WriteUnitVariant(member.name)
		return w.buf, err
	}
	if err := w.WriteVariant(member.name); err != nil {
		return w.buf, err
	}
	return w.appendAny(w.buf, v.Elem().Interface())
}

func (w *Writer) appendVariant(b []byte, v *Variant) ([]byte, error) {
	if err := w.enter(); err != nil {
		return b, err
	}
	defer func() { w.depth-- }()
	w.buf = b
	if v.Unit {
		err := w.WriteUnitVariant(v.Name)
		return w.buf, err
	}
	if err := w.WriteVariant(v.Name); err != nil {
		return w.buf, err
	}
	return w.appendAny(w.buf, v.Value)
}

func appendTime(b []byte, t time.Time) ([]byte, error) {
	var buf [40]byte
	text, err := t.AppendText(buf[:0])
	if err != nil {
		return b, &Error{Code: ErrRange, Offset: -1, Detail: "time", Err: err}
	}
	return append(appendHeader(b, kindBytes, uint64(len(text))), text...), nil
}

func appendUnixTime(b []byte, t time.Time, unit int) ([]byte, error) {
	perSecond := int64(time.Second) / int64(unit)
	sec := t.Unix()
	n := sec*perSecond + int64(t.Nanosecond())/int64(unit)
	if back := sec * perSecond / perSecond; back != sec || (n < 0) != (sec < 0) {
		return b, encodeError(ErrRange, "time %v in units of %v", t, time.Duration(unit))
	}
	return appendInt(b, n), nil
}

// appendMethod lets the value write itself.
func (w *Writer) appendMethod(b []byte, pl *plan, o op, p unsafe.Pointer) ([]byte, error) {
	v := reflect.NewAt(pl.typ, p).Interface()
	switch o {
	case opBinaryMethod:
		data, err := v.(encoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			return b, wrapMarshaler(err, -1, "MarshalBinary of "+pl.typ.String())
		}
		return append(appendHeader(b, kindBytes, uint64(len(data))), data...), nil
	case opTextMethod:
		text, err := v.(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return b, wrapMarshaler(err, -1, "MarshalText of "+pl.typ.String())
		}
		return appendValidText(b, string(text))
	}
	if err := w.enter(); err != nil {
		return b, err
	}
	w.buf = b
	depth, from := w.depth, len(b)
	if err := v.(MarshalerTo).MarshalPotTo(w); err != nil {
		return w.buf, wrapMarshaler(err, -1, "MarshalPotTo of "+pl.typ.String())
	}
	b, w.depth = w.buf, depth-1
	if len(b) < from {
		return b, encodeError(ErrMarshaler, "MarshalPotTo of %s cut the payload", pl.typ)
	}
	if !w.wholeValue(b, from) {
		return b, encodeError(ErrMarshaler, "MarshalPotTo of %s did not write exactly one value", pl.typ)
	}
	return b, nil
}

// wholeValue reports whether b holds exactly one value after from. It cannot
// tell for variants in mode Full.
func (w *Writer) wholeValue(b []byte, from int) bool {
	s := scanner{mode: w.opts.Mode, pos: from, pending: 1, maxOpen: w.maxDepth, lens: w.lens, complete: true}
	if t := w.opts.Table; t != nil {
		for _, sh := range t.snap.Load().shapes {
			s.lens = append(s.lens, len(sh.ids))
		}
	}
	code := s.run(b)
	return s.variant || code == 0 && s.pos == len(b)
}
