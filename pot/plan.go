package pot

import (
	"encoding"
	"fmt"
	"math/big"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A plan says how to encode and decode one Go type. Plans are built once per
// type by reflection; after that values are reached through pointers and
// offsets alone, which is where the speed of this package comes from. The rule
// that keeps this safe: a pointer handed to a plan always points to a whole,
// live value of the plan's type.
type plan struct {
	typ  reflect.Type
	id   uintptr // the type's address
	enc  op
	dec  op
	elem *plan // of pointers, slices, arrays; the value of maps
	key  *plan // of maps
	st   *structPlan
	n    int // length of arrays; unit of opUnixTime in nanoseconds
	size uintptr

	first, rest *flatPlan // of opStructs, opStructPtr

	scratch sync.Pool // of *scratch, for values that must be copied
}

// op is the way a type is encoded or decoded.
type op uint8

const (
	opUnsupported op = iota
	opBool
	opInt8
	opInt16
	opInt32
	opInt64
	opUint8
	opUint16
	opUint32
	opUint64
	opFloat32
	opFloat64
	opString
	opBytes
	opStruct
	opByteArray
	opSlice
	opArray
	opTuple // a struct written as a sequence
	opEmpty // a struct without fields
	opPtr
	opMap
	opStringAnyMap
	opInterface
	opTime
	opUnixTime
	opEnum // a string written as a unit variant
	opBigInt
	opRaw
	opVariant
	opPotMethod
	opBinaryMethod
	opTextMethod

	// Only in flat plans:
	opTextPtr // a pointer to a string
	opTexts   // a slice of strings
	opCount   // the header of a map of those fields that are present
	opOption  // stands before a value that may be absent
	opStructs // a slice of structs, by flat plans
	opStructPtr
)

// structPlan is the part of a plan that structs have.
type structPlan struct {
	typ      reflect.Type
	num      int // counts the struct plans of the process
	fields   []field
	byName   map[string]int
	rest     *field // the inline map that takes all other members, or nil
	optional bool   // some fields may be left out
	names    []string
	whole    *binding // to a shape of all fields in order
	flat     flatPlans
}

// field is one member of a struct.
type field struct {
	name   string
	num    int32  // counts the member names of the process
	symbol []byte // the atom that defines the name as a new symbol
	offset uintptr
	via    []step // embedded pointers to go through first
	plan   *plan
	enc    op
	dec    op
	omit   omitRule
	isZero func(unsafe.Pointer) bool // set if omit is omitZero and the type has the method
}

// step leads through an embedded pointer to the struct that it points to.
type step struct {
	offset uintptr
	elem   reflect.Type
}

type omitRule uint8

const (
	omitNever omitRule = iota
	omitZero
	omitEmpty
)

// scratch is one addressable value of a plan's type, and for maps one key, one
// element and an iterator.
type scratch struct {
	val, key, elem reflect.Value
	iter           reflect.MapIter
}

func (pl *plan) getScratch() *scratch {
	if s, ok := pl.scratch.Get().(*scratch); ok {
		return s
	}
	s := &scratch{val: reflect.New(pl.typ)}
	if pl.typ.Kind() == reflect.Map {
		s.key, s.elem = reflect.New(pl.typ.Key()), reflect.New(pl.typ.Elem())
	}
	return s
}

func (pl *plan) putScratch(s *scratch) {
	s.val.Elem().SetZero()
	if s.key.IsValid() {
		s.key.Elem().SetZero()
		s.elem.Elem().SetZero()
		s.iter.Reset(reflect.Value{})
	}
	pl.scratch.Put(s)
}

// at returns the value at p.
func (pl *plan) at(p unsafe.Pointer) reflect.Value { return reflect.NewAt(pl.typ, p).Elem() }

// setZero makes the value at p the zero value of the plan's type.
func (pl *plan) setZero(p unsafe.Pointer) { pl.at(p).SetZero() }

// The caches of plans and of the numbers that they hold. They only grow, with
// the types of the program and never with its input.
var (
	plans     sync.Map // reflect.Type -> *plan, complete ones only
	planBuild sync.Mutex
	registry  names
	planCount int // struct plans; guarded by planBuild
)

// names numbers the names of struct members.
type names struct {
	mu    sync.RWMutex
	byTxt map[string]int32
}

// number returns the number of a name, or -1 if no plan has that name.
func (n *names) number(text string) int32 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if num, ok := n.byTxt[text]; ok {
		return num
	}
	return -1
}

func (n *names) add(text string) int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if num, ok := n.byTxt[text]; ok {
		return num
	}
	if n.byTxt == nil {
		n.byTxt = make(map[string]int32)
	}
	num := int32(len(n.byTxt))
	n.byTxt[text] = num
	return num
}

// recent holds plans by their types' addresses: a quicker way to most of them.
var recent [64]atomic.Pointer[plan]

// recentPlan returns the plan for the type with an address, or nil if it is not
// at hand.
func recentPlan(id uintptr) *plan {
	if pl := recent[id/32%uintptr(len(recent))].Load(); pl != nil && pl.id == id {
		return pl
	}
	return nil
}

// eface is the memory of an empty interface: the address of its type, and the
// value if that is a pointer.
type eface struct {
	typ  uintptr
	data unsafe.Pointer
}

// planOf returns the plan for a type.
func planOf(t reflect.Type) (*plan, error) {
	id := reflect.ValueOf(t).Pointer()
	if pl := recentPlan(id); pl != nil {
		return pl, nil
	}
	if known, ok := plans.Load(t); ok {
		pl := known.(*plan)
		recent[id/32%uintptr(len(recent))].Store(pl)
		return pl, nil
	}
	planBuild.Lock()
	defer planBuild.Unlock()
	pb := planner{made: make(map[reflect.Type]*plan)}
	pl, err := pb.plan(t)
	if err != nil {
		return nil, err
	}
	// Only now are all ops known: plans refer to each other. For the same reason
	// they are published together.
	for _, p := range pb.made {
		if p.st != nil {
			p.st.settle()
		}
	}
	for t, p := range pb.made {
		plans.Store(t, p)
	}
	return pl, nil
}

// planner builds the plans of a type and of all that it consists of.
type planner struct {
	made map[reflect.Type]*plan
}

var (
	timeType       = reflect.TypeFor[time.Time]()
	bigIntType     = reflect.TypeFor[big.Int]()
	rawType        = reflect.TypeFor[Raw]()
	variantType    = reflect.TypeFor[Variant]()
	stringAnyType  = reflect.TypeFor[map[string]any]()
	marshalerTo    = reflect.TypeFor[MarshalerTo]()
	unmarshalFrom  = reflect.TypeFor[UnmarshalerFrom]()
	binaryMarshal  = reflect.TypeFor[encoding.BinaryMarshaler]()
	binaryUnmarsh  = reflect.TypeFor[encoding.BinaryUnmarshaler]()
	textMarshal    = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshal  = reflect.TypeFor[encoding.TextUnmarshaler]()
	zeroMethodType = reflect.TypeFor[interface{ IsZero() bool }]()
)

var scalarOps = map[reflect.Kind]op{
	reflect.Bool: opBool, reflect.Int8: opInt8, reflect.Int16: opInt16, reflect.Int32: opInt32,
	reflect.Int64: opInt64, reflect.Uint8: opUint8, reflect.Uint16: opUint16, reflect.Uint32: opUint32,
	reflect.Uint64: opUint64, reflect.Float32: opFloat32, reflect.Float64: opFloat64, reflect.String: opString,
}

// sizedOps are the ops of kinds whose width depends on the machine.
func sizedOp(k reflect.Kind) op {
	wide := unsafe.Sizeof(uintptr(0)) == 8
	switch {
	case k == reflect.Int && wide:
		return opInt64
	case k == reflect.Int:
		return opInt32
	case k == reflect.Uint || k == reflect.Uintptr:
		if wide {
			return opUint64
		}
		return opUint32
	}
	return scalarOps[k]
}

func (pb *planner) plan(t reflect.Type) (*plan, error) {
	if pl, ok := plans.Load(t); ok {
		return pl.(*plan), nil
	}
	if pl, ok := pb.made[t]; ok {
		return pl, nil
	}
	pl := &plan{typ: t, id: reflect.ValueOf(t).Pointer(), size: t.Size()}
	pb.made[t] = pl
	if err := pb.structural(pl, t); err != nil {
		return nil, err
	}
	pb.methods(pl, t)
	return pl, nil
}

// structural sets the ops that follow from the type's kind.
func (pb *planner) structural(pl *plan, t reflect.Type) (err error) {
	set := func(o op) { pl.enc, pl.dec = o, o }
	switch t {
	case timeType:
		set(opTime)
		return nil
	case bigIntType:
		set(opBigInt)
		return nil
	case rawType:
		set(opRaw)
		return nil
	case variantType:
		set(opVariant)
		return nil
	}
	switch k := t.Kind(); k {
	case reflect.Interface:
		set(opInterface)
	case reflect.Pointer:
		set(opPtr)
		pl.elem, err = pb.plan(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 && !pb.hasMethods(t.Elem()) {
			set(opBytes)
			return nil
		}
		set(opSlice)
		pl.elem, err = pb.plan(t.Elem())
	case reflect.Array:
		pl.n = t.Len()
		set(opArray)
		if t.Elem().Kind() == reflect.Uint8 && !pb.hasMethods(t.Elem()) {
			set(opByteArray)
		}
		pl.elem, err = pb.plan(t.Elem())
	case reflect.Map:
		set(opMap)
		if t.Key() == stringAnyType.Key() && t.Elem() == stringAnyType.Elem() {
			set(opStringAnyMap)
		}
		if pl.key, err = pb.plan(t.Key()); err == nil {
			pl.elem, err = pb.plan(t.Elem())
		}
	case reflect.Struct:
		if t.NumField() == 0 {
			set(opEmpty)
			return nil
		}
		set(opStruct)
		var tuple bool
		if pl.st, tuple, err = pb.structPlan(t); tuple {
			set(opTuple)
		}
	default:
		set(sizedOp(k)) // opUnsupported for the rest, an error once a value is met
	}
	return err
}

func (pb *planner) hasMethods(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	for _, i := range []reflect.Type{marshalerTo, unmarshalFrom, binaryMarshal, binaryUnmarsh, textMarshal, textUnmarshal} {
		if p.Implements(i) {
			return true
		}
	}
	return false
}

// methods lets the type's own methods take precedence over its structure.
// Pointers and interfaces are followed to what they hold first.
func (pb *planner) methods(pl *plan, t reflect.Type) {
	switch {
	case t == timeType, t == bigIntType, t == rawType, t == variantType,
		t.Kind() == reflect.Pointer, t.Kind() == reflect.Interface:
		return
	}
	p := reflect.PointerTo(t)
	switch {
	case p.Implements(marshalerTo):
		pl.enc = opPotMethod
	case p.Implements(binaryMarshal):
		pl.enc = opBinaryMethod
	case p.Implements(textMarshal):
		pl.enc = opTextMethod
	}
	switch {
	case p.Implements(unmarshalFrom):
		pl.dec = opPotMethod
	case p.Implements(binaryUnmarsh) && pl.enc != opTextMethod:
		pl.dec = opBinaryMethod
	case p.Implements(textUnmarshal):
		pl.dec = opTextMethod
	}
}

func (pb *planner) structPlan(t reflect.Type) (st *structPlan, tuple bool, err error) {
	found, err := collectFields(t)
	if err != nil {
		return nil, false, err
	}
	planCount++
	st = &structPlan{typ: t, num: planCount - 1, byName: make(map[string]int, len(found.fields))}
	for _, c := range found.fields {
		f, err := pb.field(c)
		if err != nil {
			return nil, false, err
		}
		if c.tag.rest {
			if st.rest != nil {
				return nil, false, encodeError(ErrUnsupported, "%s has two inline maps", t)
			}
			st.rest = &f
			continue
		}
		st.optional = st.optional || f.omit != omitNever || len(f.via) > 0
		st.byName[f.name] = len(st.fields)
		st.fields = append(st.fields, f)
		st.names = append(st.names, f.name)
	}
	st.whole = &binding{st: st}
	for i := range st.fields {
		st.whole.fields = append(st.whole.fields, int32(i))
	}
	if found.tuple && (st.optional || st.rest != nil) {
		return nil, false, encodeError(ErrUnsupported, "%s: the fields of a tuple cannot be left out", t)
	}
	return st, found.tuple, nil
}

func (st *structPlan) settle() {
	for i := range st.fields {
		f := &st.fields[i]
		f.enc, f.dec = f.plan.enc, f.plan.dec
	}
}

func (pb *planner) field(c candidate) (f field, err error) {
	f = field{name: c.name, offset: c.offset, via: c.via, omit: c.tag.omit}
	if f.plan, err = pb.plan(c.typ); err != nil {
		return f, inPath(c.name, err)
	}
	if f.omit == omitZero && reflect.PointerTo(c.typ).Implements(zeroMethodType) && c.typ.Kind() != reflect.Interface {
		t := c.typ
		f.isZero = func(p unsafe.Pointer) bool {
			v := reflect.NewAt(t, p)
			if t.Kind() == reflect.Pointer && v.Elem().IsNil() {
				return true
			}
			return v.Interface().(interface{ IsZero() bool }).IsZero()
		}
	}
	if c.tag.enum || c.tag.unit != 0 {
		if f.plan, err = pb.tagged(c); err != nil {
			return f, err
		}
	}
	if !c.tag.rest {
		f.num = registry.add(f.name)
		f.symbol = append(appendHeader(nil, kindSymbol, uint64(len(f.name))*2), f.name...)
	}
	return f, nil
}

// tagged returns the plan of a string or time, or a pointer to one, that a tag
// option gives another form.
func (pb *planner) tagged(c candidate) (*plan, error) {
	t := c.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	base := &plan{typ: t, size: t.Size(), n: c.tag.unit}
	switch {
	case c.tag.enum && t.Kind() == reflect.String:
		base.enc, base.dec = opEnum, opEnum
	case c.tag.unit != 0 && t == timeType:
		base.enc, base.dec = opUnixTime, opUnixTime
	default:
		return nil, encodeError(ErrUnsupported, "field %s: tag option enum is for strings, unix for time.Time", c.name)
	}
	if t == c.typ {
		return base, nil
	}
	return &plan{typ: c.typ, size: c.typ.Size(), enc: opPtr, dec: opPtr, elem: base}, nil
}

// zero reports whether the value at p shall be left out by the field's rule.
func (f *field) zero(p unsafe.Pointer) bool {
	if f.omit == omitNever {
		return false
	}
	if f.isZero != nil {
		return f.isZero(p)
	}
	switch f.enc {
	case opBool, opInt8, opUint8:
		return *(*uint8)(p) == 0
	case opInt16, opUint16:
		return *(*uint16)(p) == 0
	case opInt32, opUint32:
		return *(*uint32)(p) == 0
	case opInt64, opUint64:
		return *(*uint64)(p) == 0
	case opString:
		return len(*(*string)(p)) == 0
	case opPtr:
		return *(*unsafe.Pointer)(p) == nil
	case opSlice, opBytes:
		h := (*sliceHeader)(p)
		return h.data == nil || h.len == 0 && f.omit == omitEmpty
	case opFloat64:
		if *(*float64)(p) != 0 { // of zeros there are two
			return false
		}
	}
	v := f.plan.at(p)
	if f.omit == omitZero {
		return v.IsZero()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.Array, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// locate returns the field's address within the struct at p, or nil if an
// embedded pointer on the way is nil. With create it fills in such pointers.
func (f *field) locate(p unsafe.Pointer, create bool) unsafe.Pointer {
	for _, s := range f.via {
		slot := (*unsafe.Pointer)(unsafe.Add(p, s.offset))
		if *slot == nil {
			if !create {
				return nil
			}
			*slot = reflect.New(s.elem).UnsafePointer()
		}
		p = *slot
	}
	return unsafe.Add(p, f.offset)
}

// typeError says that a type cannot be handled.
func typeError(t reflect.Type) error {
	return encodeError(ErrUnsupported, "%s", fmt.Sprint(t))
}
