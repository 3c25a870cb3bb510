// Package cbor is the codec for documents in CBOR (RFC 8949): smaller than
// JSON and faster to read, with byte strings and exact integers. Give it to a
// collection:
//
//	var Events = osier.NewCollection("events", osier.CollectionOptions[Event]{Codec: cbor.Codec})
package cbor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"
	"github.com/osierdb/osier"
)

// Codec encodes documents with the rules of github.com/fxamacker/cbor: struct
// tags "cbor" with "json" as a fallback, maps in a deterministic order, times
// as RFC 3339 text. Decoding refuses duplicate map keys, invalid UTF-8 and
// nesting deeper than 64. Shown as JSON, byte strings are base64 texts, and
// what JSON has no form for (a map with other keys than texts, a NaN) is an
// error.
var Codec osier.Codec = newCodec()

type codec struct {
	enc  cbor.EncMode
	dec  cbor.DecMode
	show cbor.DecMode
}

func newCodec() codec {
	eo := cbor.CoreDetEncOptions()
	eo.Time = cbor.TimeRFC3339Nano
	enc, err := eo.EncMode()
	if err != nil {
		panic("cbor: encoding options: " + err.Error())
	}
	do := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 64}
	dec, err := do.DecMode()
	if err != nil {
		panic("cbor: decoding options: " + err.Error())
	}
	do.DefaultMapType = reflect.TypeFor[map[string]any]()
	show, err := do.DecMode()
	if err != nil {
		panic("cbor: decoding options: " + err.Error())
	}
	return codec{enc, dec, show}
}

func (codec) Tag() osier.CodecTag { return osier.TagCBOR }

// Append encodes v; a Raw body must be one well-formed CBOR item.
func (c codec) Append(dst []byte, v any) ([]byte, error) {
	if raw, ok := v.(osier.Raw); ok {
		if err := cbor.Wellformed(raw); err != nil {
			return dst, fmt.Errorf("encode cbor: %w", err)
		}
		return append(dst, raw...), nil
	}
	buf := bytes.NewBuffer(dst)
	if err := c.enc.NewEncoder(buf).Encode(v); err != nil {
		return dst, fmt.Errorf("encode cbor: %w", err)
	}
	return buf.Bytes(), nil
}

func (c codec) Decode(body []byte, v any) error {
	if raw, ok := v.(*osier.Raw); ok {
		*raw = bytes.Clone(body)
		return nil
	}
	if err := c.dec.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode cbor: %w", err)
	}
	return nil
}

func (c codec) AppendJSON(dst, body []byte) ([]byte, error) {
	var v any
	if err := c.show.Unmarshal(body, &v); err != nil {
		return dst, fmt.Errorf("show cbor as json: %w", err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return dst, fmt.Errorf("show cbor as json: %w", err)
	}
	return append(dst, b...), nil
}
