package osier

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/osierdb/osier/internal/jsonplan"
	"github.com/osierdb/osier/pot"
)

// CodecTag is the byte that travels with every stored body and says how it is
// encoded. Tags below 128 belong to Osier.
type CodecTag uint8

const (
	TagJSON   CodecTag = 1 // a JSON text
	TagCBOR   CodecTag = 2 // RFC 8949
	TagPot    CodecTag = 3 // package pot
	TagBinary CodecTag = 4 // the type's own MarshalBinary
)

// Codec encodes documents. Implementations are safe for concurrent use.
type Codec interface {
	// Tag is stored with each body.
	Tag() CodecTag
	// Append encodes v behind dst.
	Append(dst []byte, v any) ([]byte, error)
	// Decode fills the variable that v points to. It must not keep body.
	Decode(body []byte, v any) error
	// AppendJSON shows a body as JSON behind dst, without knowing its type.
	AppendJSON(dst, body []byte) ([]byte, error)
}

// Raw is a body that the program encodes itself: a Collection[Raw] stores the
// bytes as they are, under the collection's codec.
type Raw []byte

// JSON is the default codec. A Raw body must be valid JSON.
var JSON Codec = &jsonCodec{encoders: sync.Pool{New: newEncoder}}

// jsonCodec does what encoding/json does: by plans for types where there are
// some, else by encoding/json. It keeps encoders, which cost more than most
// documents.
type jsonCodec struct{ encoders sync.Pool }

type encoder struct {
	buf bytes.Buffer
	enc *json.Encoder
}

func newEncoder() any {
	e := new(encoder)
	e.enc = json.NewEncoder(&e.buf)
	e.enc.SetEscapeHTML(false)
	return e
}

// maxKeptEncoder bounds the buffers that are kept.
const maxKeptEncoder = 64 << 10

func (*jsonCodec) Tag() CodecTag { return TagJSON }

func (c *jsonCodec) Append(dst []byte, v any) ([]byte, error) {
	switch x := v.(type) {
	case Raw:
		return appendValid(dst, x)
	case json.RawMessage:
		return appendValid(dst, x)
	}
	if out, ok := jsonplan.Append(dst, v); ok {
		return out, nil
	}
	e := c.encoders.Get().(*encoder)
	e.buf.Reset()
	if err := e.enc.Encode(v); err != nil {
		return dst, fmt.Errorf("encode json: %w", err)
	}
	dst = append(dst, bytes.TrimSuffix(e.buf.Bytes(), []byte("\n"))...)
	if e.buf.Cap() <= maxKeptEncoder {
		c.encoders.Put(e)
	}
	return dst, nil
}

func appendValid(dst, body []byte) ([]byte, error) {
	if !json.Valid(body) {
		return dst, errors.New("encode json: body is not valid JSON")
	}
	return append(dst, body...), nil
}

func (*jsonCodec) Decode(body []byte, v any) error {
	if r, ok := v.(*Raw); ok {
		*r = append(Raw{}, body...)
		return nil
	}
	if jsonplan.Decode(body, v) {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode json: %w", err)
	}
	return nil
}

func (*jsonCodec) AppendJSON(dst, body []byte) ([]byte, error) { return append(dst, body...), nil }

// Binary stores what a type's own MarshalBinary (or AppendBinary) writes and
// reads it back with UnmarshalBinary; Raw and []byte are stored as they are.
// Shown as JSON such a body is an object with its bytes in base64.
var Binary Codec = binaryCodec{}

type binaryCodec struct{}

func (binaryCodec) Tag() CodecTag { return TagBinary }

func (binaryCodec) Append(dst []byte, v any) ([]byte, error) {
	switch x := v.(type) {
	case Raw:
		return append(dst, x...), nil
	case []byte:
		return append(dst, x...), nil
	case encoding.BinaryAppender:
		return x.AppendBinary(dst)
	case encoding.BinaryMarshaler:
		b, err := x.MarshalBinary()
		return append(dst, b...), err
	}
	return dst, fmt.Errorf("encode binary: %T has no MarshalBinary", v)
}

func (binaryCodec) Decode(body []byte, v any) error {
	switch x := v.(type) {
	case *Raw:
		*x = append(Raw{}, body...)
		return nil
	case *[]byte:
		*x = append([]byte{}, body...)
		return nil
	case encoding.BinaryUnmarshaler:
		return x.UnmarshalBinary(body)
	}
	return fmt.Errorf("decode binary: %T has no UnmarshalBinary", v)
}

func (binaryCodec) AppendJSON(dst, body []byte) ([]byte, error) {
	b, err := json.Marshal(struct {
		Binary []byte `json:"binary"`
	}{body})
	return append(dst, b...), err
}

// Pot stores documents in the compact self-describing form of package pot: fast
// to read, and each body can be read by itself, so it names its fields. A Raw
// body must be a valid payload.
var Pot Codec = potCodec{}

type potCodec struct{}

func (potCodec) Tag() CodecTag { return TagPot }

func (potCodec) Append(dst []byte, v any) ([]byte, error) {
	raw, ok := v.(Raw)
	if !ok {
		return pot.MarshalAppend(dst, v)
	}
	if err := pot.Valid(raw, nil); err != nil {
		return dst, err
	}
	return append(dst, raw...), nil
}

func (potCodec) Decode(body []byte, v any) error {
	if r, ok := v.(*Raw); ok {
		*r = append(Raw{}, body...)
		return nil
	}
	return pot.Unmarshal(body, v)
}

func (potCodec) AppendJSON(dst, body []byte) ([]byte, error) { return pot.ToJSON(dst, body, nil) }

// Codecs is the set a Store knows, by tag.
type Codecs map[CodecTag]Codec

// NewCodecs returns the set of JSON, Binary, Pot and more.
func NewCodecs(more ...Codec) Codecs {
	c := Codecs{TagJSON: JSON, TagBinary: Binary, TagPot: Pot}
	for _, x := range more {
		c[x.Tag()] = x
	}
	return c
}

// lookup returns the codec of a tag.
func (c Codecs) lookup(tag CodecTag) (Codec, error) {
	if x := c[tag]; x != nil {
		return x, nil
	}
	return nil, &Error{Kind: KindUnsupported, Op: "decode document", Err: fmt.Errorf("no codec for tag %d: give it to the store's Codecs", tag)}
}
