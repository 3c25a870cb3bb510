package pocket

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// Raw is a value in its JSON form, with the name of its type ("" for a plain
// text, number or boolean). It is stored as it is, registered or not, and
// Get[Raw] returns any record so.
type Raw struct {
	Type string
	JSON string
}

// encoded is a value ready to be stored.
type encoded struct {
	json   string
	typeID uint16
}

type encoderBuffer struct {
	buf bytes.Buffer
	enc *json.Encoder
}

func newEncoderBuffer() any {
	e := &encoderBuffer{}
	e.enc = json.NewEncoder(&e.buf)
	e.enc.SetEscapeHTML(false) // the file is read by people, not by browsers
	return e
}

// viewString lends the bytes of b as a text.
func viewString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// encode turns a value into its JSON form. The value is not nil.
func (g *registry) encode(pool *sync.Pool, v any) (encoded, error) {
	switch x := v.(type) {
	case string:
		return encodeText(x)
	case bool:
		return encoded{json: strconv.FormatBool(x)}, nil
	case int:
		return encoded{json: strconv.Itoa(x)}, nil
	case Raw:
		return g.encodeRaw(x)
	case json.RawMessage:
		return g.encodeRaw(Raw{JSON: string(x)})
	case Record:
		return g.encodeRaw(Raw{Type: x.Type(), JSON: x.JSON()})
	}
	if t := g.lookup(reflect.TypeOf(v)); t != nil {
		b, err := t.append(nil, pool, v)
		return encoded{json: viewString(b), typeID: t.id}, err
	}
	return encodePlain(v)
}

// append appends the JSON form of a value of type t.
func (t *goType) append(b []byte, pool *sync.Pool, v any) ([]byte, error) {
	if t.flat != nil {
		x := reflect.ValueOf(v)
		if x.Kind() == reflect.Pointer {
			x = x.Elem()
		}
		if out, ok := t.flat.append(b, x); ok && len(out)-len(b) <= MaxValueBytes {
			return out, nil
		}
	}
	e := pool.Get().(*encoderBuffer)
	defer pool.Put(e)
	e.buf.Reset()
	if err := e.enc.Encode(v); err != nil {
		return b, invalid("encode %v: %v", t.typ, err)
	}
	out := e.buf.Bytes()
	out = out[:len(out)-1] // Encode ends with a line feed
	if len(out) > MaxValueBytes {
		return b, invalid("encode %v: %v", t.typ, errBigValue)
	}
	if !utf8.Valid(out) { // possible with a json.RawMessage in it
		return b, invalid("encode %v: %v", t.typ, errUTF8)
	}
	return append(b, out...), nil
}

func encodeText(s string) (encoded, error) {
	if err := validText(s); err != nil {
		return encoded{}, err
	}
	b := appendQuoted(make([]byte, 0, len(s)+2), s)
	return encoded{json: viewString(b)}, nil
}

func validText(s string) error {
	if !isPlain(s) && !utf8.ValidString(s) {
		return invalid("text: %v", errUTF8)
	}
	if len(s) > MaxValueBytes/6 {
		return invalid("text: %v", errBigValue)
	}
	return nil
}

func (g *registry) encodeRaw(r Raw) (encoded, error) {
	if len(r.JSON) > MaxValueBytes {
		return encoded{}, invalid("raw value: %v", errBigValue)
	}
	src := []byte(r.JSON)
	if strings.IndexByte(r.JSON, '\n') >= 0 {
		var c bytes.Buffer
		if err := json.Compact(&c, src); err != nil {
			return encoded{}, invalid("raw value: %v", err)
		}
		src = c.Bytes()
	}
	src = bytes.TrimSpace(src)
	if err := checkJSON(src); err != nil {
		return encoded{}, invalid("raw value: %v", err)
	}
	if r.Type == "" {
		if c := src[0]; c == '{' || c == '[' || c == 'n' {
			return encoded{}, invalid("raw value: a null, an object or array needs a type")
		}
		return encoded{json: string(src)}, nil
	}
	if !utf8.ValidString(r.Type) {
		return encoded{}, invalid("raw value: type name is %v", errUTF8)
	}
	id, err := g.intern([]byte(r.Type))
	if err != nil {
		return encoded{}, invalid("raw value: %v", err)
	}
	return encoded{json: string(src), typeID: id}, nil
}

// encodePlain takes the values that need no registration by their kind.
func encodePlain(v any) (encoded, error) {
	x := reflect.ValueOf(v)
	switch x.Kind() {
	case reflect.String:
		if n, ok := v.(json.Number); ok {
			if end, err := skipValue([]byte(n), 0, 0); err != nil || end != len(n) || !isDigit(n[len(n)-1]) {
				return encoded{}, invalid("%q is not a number", string(n))
			}
			return encoded{json: string(n)}, nil
		}
		return encodeText(x.String())
	case reflect.Bool:
		return encoded{json: strconv.FormatBool(x.Bool())}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return encoded{json: strconv.FormatInt(x.Int(), 10)}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return encoded{json: strconv.FormatUint(x.Uint(), 10)}, nil
	case reflect.Float32, reflect.Float64:
		f := x.Float()
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return encoded{}, invalid("JSON has no number %v", f)
		}
		b, err := json.Marshal(v)
		if err != nil {
			return encoded{}, invalid("encode number: %v", err)
		}
		return encoded{json: string(b)}, nil
	}
	return encoded{}, &TypeError{Wanted: x.Type()}
}

// decode returns the value of r as a T.
func decode[T any](s *Store, r record) (T, error) {
	if r.flags()&flagPlainText != 0 {
		// Asked for first: the switch of decodePlain takes longer than all of this.
		text := r.text()
		if p, ok := any(&text).(*T); ok {
			return *p, nil
		}
	} else if r.typeID() != 0 {
		if x := cellAt(*s.cache.pages.Load(), r); x != nil {
			if p, ok := x.value.(*T); ok {
				return *p, nil
			}
		}
	}
	var v T
	if decodePlain(s, r, &v) {
		return v, nil
	}
	return decodeSlow[T](s, r)
}

// decodePlain takes the types that come straight from the record's bytes.
func decodePlain[T any](s *Store, r record, v *T) bool {
	switch p := any(v).(type) {
	case *Record:
		*p = Record{r: r, s: s}
		return true
	case *Raw:
		*p = Raw{Type: s.types.name(r.typeID()), JSON: r.value()}
		return true
	case *int:
		if r.typeID() == 0 {
			if n, err := strconv.ParseInt(r.value(), 10, strconv.IntSize); err == nil {
				*p = int(n)
				return true
			}
		}
	case *int64:
		if r.typeID() == 0 {
			if n, err := strconv.ParseInt(r.value(), 10, 64); err == nil {
				*p = n
				return true
			}
		}
	case *float64:
		if r.typeID() == 0 && isNumber(r.value()) {
			if f, err := strconv.ParseFloat(r.value(), 64); err == nil {
				*p = f
				return true
			}
		}
	case *bool:
		if r.typeID() == 0 && (r.value() == "true" || r.value() == "false") {
			*p = r.value() == "true"
			return true
		}
	case *json.RawMessage:
		*p = json.RawMessage(r.value()) // a copy: the caller may write to it
		return true
	}
	return false
}

func isNumber(s string) bool { return s != "" && (s[0] == '-' || isDigit(s[0])) }

// decodeSlow decodes with encoding/json and keeps the result for the next
// reader, when it belongs to a registered type.
func decodeSlow[T any](s *Store, r record) (T, error) {
	want := reflect.TypeFor[T]()
	stored := s.types.goType(r.typeID())
	c := &decoded[T]{}
	var err error
	switch {
	case r.typeID() == 0 && isPlainKind(want), stored == nil && want == reflect.TypeFor[any]():
		err = json.Unmarshal([]byte(r.value()), &c.v)
	case stored != nil && (stored == want || want.Kind() == reflect.Pointer && want.Elem() == stored):
		err = json.Unmarshal([]byte(r.value()), &c.v)
	case stored != nil && want.Kind() == reflect.Interface:
		x := reflect.New(stored)
		err = json.Unmarshal([]byte(r.value()), x.Interface())
		var ok bool
		if c.v, ok = x.Elem().Interface().(T); !ok {
			c.v, ok = x.Interface().(T) // the methods may be on the pointer
		}
		if !ok {
			return c.v, s.typeError(r, want)
		}
	default:
		return c.v, s.typeError(r, want)
	}
	if err != nil {
		var none T
		return none, &ValueError{Key: r.key(), Err: err}
	}
	if stored != nil {
		c.cell.value = &c.v
		s.cache.store(r, &c.cell)
	}
	return c.v, nil
}

func (s *Store) typeError(r record, want reflect.Type) error {
	return &TypeError{Key: strings.Clone(r.key()), Stored: s.types.name(r.typeID()), Wanted: want}
}

// isPlainKind reports whether a value without a type can become a t.
func isPlainKind(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	case reflect.Interface:
		return t.NumMethod() == 0
	}
	return false
}

// A ValueError says that a record's JSON does not fit the Go type.
type ValueError struct {
	Key string
	Err error
}

func (e *ValueError) Error() string {
	return "pocket: decode value of key " + strconv.Quote(e.Key) + ": " + e.Err.Error()
}

// Unwrap returns the decoder's error.
func (e *ValueError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrType) true.
func (e *ValueError) Is(target error) bool { return target == ErrType }
