package osier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"strconv"

	"github.com/osierdb/osier/internal/keys"
)

// View is a typed handle on a view: rows of a key and a value that a function,
// or the fields of a definition, make of each document of a collection. Declare
// it once, as a package variable, give it to databases with Schema, and query it
// with any of them.
type View[K, V any] struct {
	name string
	coll string
	flat bool // keys are fields in a row, as field views have them
	code func(db *DB) *ViewCode
	def  *fieldDefinition
}

// ViewOption sets up a view that NewView declares.
type ViewOption interface{ apply(c *ViewCode) }

type viewOption func(c *ViewCode)

func (f viewOption) apply(c *ViewCode) { f(c) }

// NewView declares a view by a function that emits any number of rows for a
// document. Keys are of any key type (see ID), also Tuple and Pair; values of
// any type that encoding/json takes.
//
// The function must be pure: rows depend on the document alone, not on time,
// chance or other documents. Of an Eager or Unique view's document it sees only
// ID and Value. Raise version when it changes its meaning: then the
// view is built anew, and its old rows answer until it is ready. A function that
// panics, or emits what cannot be encoded, leaves that document out; ViewInfo
// names it. It may be called from many goroutines.
//
// NewView panics if the name is against CheckCollectionName's rule, as that is a
// mistake in the program.
func NewView[T, K, V any](name string, c *Collection[T], version uint64, fn func(d Doc[T], emit func(K, V)), opts ...ViewOption) *View[K, V] {
	if err := CheckCollectionName(name); err != nil {
		panic(err)
	}
	v := &View[K, V]{name: name, coll: c.name}
	v.code = func(db *DB) *ViewCode {
		code := &ViewCode{Collection: c.name, Name: name, Version: version, Map: mapper(db, c, fn)}
		for _, o := range opts {
			o.apply(code)
		}
		return code
	}
	return v
}

// mapper makes the function that a Backend runs of a typed one.
func mapper[T, K, V any](db *DB, c *Collection[T], fn func(d Doc[T], emit func(K, V))) func(*Document, func(key, value []byte)) error {
	return func(d *Document, emit func(key, value []byte)) error {
		doc := docOf[T](d)
		if err := c.decodeInto(db, db.name, d, &doc.Value); err != nil {
			return err
		}
		var key, value []byte
		var failed error
		fn(doc, func(k K, v V) {
			if failed != nil {
				return
			}
			if key, failed = appendKey(key[:0], k, false); failed != nil {
				return
			}
			if value, failed = appendValue(value[:0], v); failed == nil {
				emit(key, value)
			}
		})
		return failed
	}
}

// appendValue encodes a row's value; null is nothing.
func appendValue(dst []byte, v any) ([]byte, error) {
	switch x := v.(type) {
	case nil:
		return dst, nil
	case int:
		return strconv.AppendInt(dst, int64(x), 10), nil
	case int64:
		return strconv.AppendInt(dst, x, 10), nil
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return strconv.AppendInt(dst, int64(x), 10), nil
		}
	case struct{}:
		return dst, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return dst, fmt.Errorf("encode value: %w", err)
	}
	if string(b) == "null" {
		return dst, nil
	}
	return append(dst, b...), nil
}

// Number is what numeric reduces take.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func builtin(name string) ViewOption { return viewOption(func(c *ViewCode) { c.Reduce = name }) }

// Sum reduces to the sum of the values: exact while all are integers and the sum
// fits 64 bits.
func Sum[V Number]() ViewOption { return builtin("sum") }

// Min reduces to the least value.
func Min[V Number]() ViewOption { return builtin("min") }

// Max reduces to the greatest value.
func Max[V Number]() ViewOption { return builtin("max") }

// CountRows reduces to the number of rows.
func CountRows() ViewOption { return builtin("count") }

// StatsOf reduces to Stats.
func StatsOf[V Number]() ViewOption { return builtin("stats") }

// Distinct reduces to an estimate of the number of different values, of 1.6 %
// standard error, nearly exact below 256.
func Distinct() ViewOption { return builtin("distinct") }

// Stats is the result of the reduce of that name.
type Stats struct {
	Count   uint64   `json:"count"`
	Sum     float64  `json:"sum"`
	Min     *float64 `json:"min"` // nil without values
	Max     *float64 `json:"max"`
	Squares float64  `json:"sumsqr"`
}

// ReduceWith reduces by the program's own functions: reduce makes a result of
// the values of neighbouring rows, in their order, at least one; rereduce makes
// one of the results of neighbouring runs. They must be pure and associative;
// they need not commute. Results are stored in every node of a tree, so keep
// them small: at most 64 KiB in JSON.
func ReduceWith[V, R any](reduce func(values []V) R, rereduce func(results []R) R) ViewOption {
	return viewOption(func(c *ViewCode) { c.Reduce, c.Reducer = "own", ownReducer[V, R]{reduce, rereduce} })
}

type ownReducer[V, R any] struct {
	reduce   func([]V) R
	rereduce func([]R) R
}

func (o ownReducer[V, R]) Reduce(values [][]byte) ([]byte, error) {
	list, err := decodeList[V](values)
	if err != nil {
		return nil, err
	}
	return json.Marshal(o.reduce(list))
}

func (o ownReducer[V, R]) Rereduce(results [][]byte) ([]byte, error) {
	list, err := decodeList[R](results)
	if err != nil {
		return nil, err
	}
	return json.Marshal(o.rereduce(list))
}

func decodeList[V any](texts [][]byte) ([]V, error) {
	list := make([]V, len(texts))
	for i, text := range texts {
		if len(text) == 0 {
			continue
		}
		if err := json.Unmarshal(text, &list[i]); err != nil {
			return nil, fmt.Errorf("decode value: %w", err)
		}
	}
	return list, nil
}

// Update sets when the view is brought up to date; OnDemand without it.
func Update(p UpdatePolicy) ViewOption { return viewOption(func(c *ViewCode) { c.Policy = p }) }

// KeepFresh has the view brought up to date in the background.
func KeepFresh(k Keep) ViewOption {
	return viewOption(func(c *ViewCode) {
		if c.Keep = k; k == (Keep{}) {
			c.Keep.Changes = defaultKeep
		}
	})
}

const defaultKeep = 1000

// FieldViewOptions of NewFieldView.
type FieldViewOptions struct {
	// Keys are the paths of the key's fields, dotted, "\." being a dot in a name.
	// Documents that lack one are left out.
	Keys []string
	// Value is the path of the value; "": null.
	Value string
	// Spread names one of Keys: an array there gives a row an element.
	Spread string
	// Reduce is "count", "sum", "min", "max", "stats", "distinct" or "".
	Reduce string
	// Partial keeps to the documents that match a selector in JSON.
	Partial json.RawMessage
	Policy  UpdatePolicy
	Keep    Keep
}

type fieldDefinition struct {
	Collection string          `json:"collection"`
	Type       string          `json:"type"`
	Keys       []string        `json:"keys"`
	Value      string          `json:"value,omitempty"`
	Spread     string          `json:"spread,omitempty"`
	Reduce     string          `json:"reduce,omitempty"`
	Partial    json.RawMessage `json:"partial,omitempty"`
	Update     string          `json:"update,omitempty"`
	Keep       *fieldKeep      `json:"keep,omitempty"`
}

type fieldKeep struct {
	Changes int    `json:"changes,omitempty"`
	After   string `json:"after,omitempty"`
}

// NewFieldView declares a view by fields of the documents of a collection. It
// needs no function, so any program can query it, and it is a document of the
// database: of the collection ViewsCollection, under the view's name. Without
// options it is a handle on a view that somebody else defines.
//
// A key of one path is that field; of several it is their Tuple. Names are
// unique in a database.
func NewFieldView[K, V any](name, collection string, o *FieldViewOptions) *View[K, V] {
	if err := errors.Join(CheckCollectionName(name), CheckCollectionName(collection)); err != nil {
		panic(err)
	}
	v := &View[K, V]{name: name, coll: collection, flat: true}
	if o == nil {
		return v
	}
	v.def = &fieldDefinition{Collection: collection, Type: "fields", Keys: o.Keys, Value: o.Value, Spread: o.Spread, Reduce: o.Reduce, Partial: o.Partial}
	if o.Policy != OnDemand {
		v.def.Update = o.Policy.String()
	}
	if o.Keep != (Keep{}) {
		v.def.Keep = &fieldKeep{Changes: o.Keep.Changes}
		if o.Keep.After != 0 {
			v.def.Keep.After = o.Keep.After.String()
		}
	}
	return v
}

// Name returns the view's name.
func (v *View[K, V]) Name() string { return v.name }

// Collection returns the name of the collection that the view is of.
func (v *View[K, V]) Collection() string { return v.coll }

func (v *View[K, V]) declare() *Op { return nil }

// install makes the view known to a database.
func (v *View[K, V]) install(ctx context.Context, db *DB) error {
	switch {
	case v.code != nil:
		d, ok := db.backend.(viewDeclarer)
		if !ok {
			return nil // who runs functions elsewhere knows the view, or says that it does not
		}
		return d.DeclareView(ctx, db.name, v.code(db))
	case v.def != nil:
		return v.define(ctx, db)
	}
	return nil
}

// define writes the view's definition unless it is there already.
func (v *View[K, V]) define(ctx context.Context, db *DB) error {
	body, err := json.Marshal(v.def)
	if err != nil {
		return &Error{Kind: KindInvalid, Op: "define view " + v.name, DB: db.name, Collection: v.coll, Err: err}
	}
	id := MustID(v.name)
	for row, err := range db.Query(ctx, &Query{Kind: QueryGet, Collection: ViewsCollection, IDs: []ID{id}, Parts: WithBody}) {
		if err != nil {
			return err
		}
		if !row.Missing && string(row.Body) == string(body) {
			return nil
		}
	}
	if _, err := db.write(ctx, &Op{Kind: OpPut, Collection: ViewsCollection, ID: id, Codec: TagJSON, Body: body}); err != nil {
		return err
	}
	if v.def.Update == Eager.String() || v.def.Update == Unique.String() {
		return v.Refresh(ctx, db)
	}
	return nil
}

// Drop drops the view: its definition, or the index of a function's view, whose
// rows are made again when the view is declared again.
func (v *View[K, V]) Drop(ctx context.Context, db *DB) error {
	op := Op{Kind: OpDropView, Collection: v.coll, View: v.name}
	if v.code == nil {
		op = Op{Kind: OpPut, Collection: ViewsCollection, ID: MustID(v.name), Codec: TagJSON, Expect: ExpectPresent, Deleted: true}
	}
	_, err := db.Exec(ctx, &Command{Ops: []Op{op}})
	return err
}

// Refresh brings the view up to date, whatever its policy, and returns when that
// is done; a new or changed view is built.
func (v *View[K, V]) Refresh(ctx context.Context, db *DB) error {
	q := &Query{Kind: QueryRefresh, Collection: v.coll, View: &ViewQuery{Name: v.name}}
	for _, err := range db.Query(ctx, q) {
		if err != nil {
			return err
		}
	}
	return nil
}

// Info describes the view; ErrNotFound if the database does not know it.
func (v *View[K, V]) Info(ctx context.Context, db *DB) (*ViewInfo, error) {
	for info, err := range db.views(ctx, v.coll, v.name) {
		return info, err
	}
	return nil, &Error{Kind: KindNotFound, Op: "view " + v.name, DB: db.name, Collection: v.coll}
}

// Views describes the database's views, by collection and name.
func (db *DB) Views(ctx context.Context) iter.Seq2[*ViewInfo, error] { return db.views(ctx, "", "") }

func (db *DB) views(ctx context.Context, coll, name string) iter.Seq2[*ViewInfo, error] {
	return func(yield func(*ViewInfo, error) bool) {
		q := &Query{Kind: QueryViewInfo, Collection: coll, View: &ViewQuery{Name: name}}
		for row, err := range db.Query(ctx, q) {
			if !yield(row.ViewInfo, err) || err != nil {
				return
			}
		}
	}
}

// Pair is a composite key of two fields.
type Pair[A, B any] struct {
	First  A
	Second B
}

func (p Pair[A, B]) tuple() Tuple { return Tuple{p.First, p.Second} }

func (p *Pair[A, B]) setTuple(t Tuple) error {
	if len(t) != 2 {
		return fmt.Errorf("a key of %d fields is no pair", len(t))
	}
	return errors.Join(setKey(&p.First, t[0]), setKey(&p.Second, t[1]))
}

// appendKey encodes a view's key. The key of a field view is its fields one
// after the other.
func appendKey(dst []byte, k any, flat bool) ([]byte, error) {
	if p, ok := k.(interface{ tuple() Tuple }); ok {
		k = p.tuple()
	}
	if id, ok := k.(ID); ok {
		return append(dst, id.key...), nil
	}
	if t, ok := k.(Tuple); ok && flat {
		var err error
		for _, f := range t {
			if dst, err = keys.Append(dst, f); err != nil {
				return dst, fmt.Errorf("encode key: %w", err)
			}
		}
		return dst, nil
	}
	dst, err := keys.Append(dst, k)
	if err != nil {
		err = fmt.Errorf("encode key: %w", err)
	}
	return dst, err
}

// KeyValue returns an encoded key as a Go value, as ID.Value does; several
// fields, of a field view's key, are a Tuple. Keys of a JSON index cannot be
// turned back: ErrInvalid.
func KeyValue(key []byte) (any, error) {
	t, err := keys.DecodeAll(key)
	if err != nil {
		return nil, &Error{Kind: KindInvalid, Op: "decode key", Err: err}
	}
	if len(t) == 1 {
		return t[0], nil
	}
	return t, nil
}

// EncodeKey encodes the key of a view: for Query.Start and End, and
// ViewQuery.Keys. The key of a field view of several fields is written with
// flat set, as a Tuple of them.
func EncodeKey(k any, flat bool) (string, error) {
	b, err := appendKey(nil, k, flat)
	if err != nil {
		return "", &Error{Kind: KindInvalid, Op: "encode key", Err: err}
	}
	return string(b), nil
}

// setPlainKey puts an encoded key into a variable of the most frequent types,
// without decoding it into a value first. It tells whether it has.
func setPlainKey(p any, key []byte) bool {
	v, rest, err := keys.Next(key)
	if err != nil || len(rest) > 0 {
		return false
	}
	switch x := p.(type) {
	case *int:
		n, ok := v.Int64()
		if ok {
			*x = int(n)
		}
		return ok
	case *int64:
		n, ok := v.Int64()
		if ok {
			*x = n
		}
		return ok
	case *string:
		if v.Kind() == keys.KindString {
			*x = v.Text()
			return true
		}
	}
	return false
}

// setKey puts a decoded key into the variable that p points to.
func setKey(p any, v any) error {
	switch x := p.(type) {
	case *any:
		*x = v
		return nil
	case *ID:
		id, err := IDOf(v)
		*x = id
		return err
	case *string:
		if s, ok := v.(string); ok {
			*x = s
			return nil
		}
	case *int:
		if n, ok := v.(int64); ok {
			*x = int(n)
			return nil
		}
	case interface{ setTuple(Tuple) error }:
		if t, ok := v.(Tuple); ok {
			return x.setTuple(t)
		}
	}
	dst := reflect.ValueOf(p).Elem()
	if v == nil {
		dst.SetZero()
		return nil
	}
	return setReflected(dst, reflect.ValueOf(v))
}

// setReflected converts between kinds that keys do not tell apart.
func setReflected(dst, src reflect.Value) error {
	switch {
	case src.Type().AssignableTo(dst.Type()):
		dst.Set(src)
		return nil
	case dst.CanInt() && src.CanInt() && !dst.OverflowInt(src.Int()):
		dst.SetInt(src.Int())
		return nil
	case dst.CanUint() && src.CanInt() && src.Int() >= 0 && !dst.OverflowUint(uint64(src.Int())):
		dst.SetUint(uint64(src.Int()))
		return nil
	case dst.CanUint() && src.CanUint() && !dst.OverflowUint(src.Uint()):
		dst.SetUint(src.Uint())
		return nil
	case dst.CanFloat() && (src.CanInt() || src.CanUint() || src.CanFloat()):
		dst.Set(src.Convert(dst.Type()))
		return nil
	case dst.Kind() == src.Kind() && src.CanConvert(dst.Type()):
		dst.Set(src.Convert(dst.Type()))
		return nil
	case dst.Kind() == reflect.Array && src.Kind() == reflect.Slice && src.CanConvert(dst.Type()):
		dst.Set(src.Convert(dst.Type()))
		return nil
	}
	return fmt.Errorf("a key that is a %s does not fit a %s", src.Type(), dst.Type())
}
