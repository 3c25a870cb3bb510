package osier

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
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
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Tag() CodecTag { return TagJSON }

func (jsonCodec) Append(dst []byte, v any) ([]byte, error) {
	switch x := v.(type) {
	case Raw:
		return appendValid(dst, x)
	case json.RawMessage:
		return appendValid(dst, x)
	}
	var buf bytes.Buffer
	buf.Grow(256)
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return dst, fmt.Errorf("encode json: %w", err)
	}
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...), nil
}

func appendValid(dst, body []byte) ([]byte, error) {
	if !json.Valid(body) {
		return dst, errors.New("encode json: body is not valid JSON")
	}
	return append(dst, body...), nil
}

func (jsonCodec) Decode(body []byte, v any) error {
	if r, ok := v.(*Raw); ok {
		*r = append(Raw{}, body...)
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode json: %w", err)
	}
	return nil
}

func (jsonCodec) AppendJSON(dst, body []byte) ([]byte, error) { return append(dst, body...), nil }

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

// Codecs is the set a Store knows, by tag.
type Codecs map[CodecTag]Codec

// NewCodecs returns the set of JSON, Binary and more.
func NewCodecs(more ...Codec) Codecs {
	c := Codecs{TagJSON: JSON, TagBinary: Binary}
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
	return nil, &Error{Kind: KindUnsupported, Op: "decode", Err: fmt.Errorf("no codec for tag %d: give it to the store's Codecs", tag)}
}
