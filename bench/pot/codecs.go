package main

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"

	"github.com/fxamacker/cbor/v2"
	"github.com/tinylib/msgp/msgp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/osierdb/osier/pot"
)

// codec encodes into a buffer that it is given back, and decodes.
type codec struct {
	name   string
	encode func(dst []byte, v any) ([]byte, error)
	decode func(data []byte, v any) error
}

// byBuffer makes an encode function of one that writes to a buffer.
func byBuffer(enc func(b *bytes.Buffer, v any) error) func([]byte, any) ([]byte, error) {
	return func(dst []byte, v any) ([]byte, error) {
		b := bytes.NewBuffer(dst)
		err := enc(b, v)
		return b.Bytes(), err
	}
}

func potCodec(name string, mode pot.Mode, table *pot.Table, strings pot.StringMode) codec {
	enc := &pot.EncodeOptions{Mode: mode, Table: table, NoHeader: table != nil}
	dec := &pot.DecodeOptions{Mode: mode, Table: table, NoHeader: table != nil, Strings: strings}
	return codec{name, enc.Append, dec.Unmarshal}
}

// codecs returns the codecs in the order in which they are shown; the second
// is the one that times are divided by.
func codecs() ([]codec, error) {
	mode, err := cbor.EncOptions{}.UserBufferEncMode()
	if err != nil {
		return nil, fmt.Errorf("set up cbor: %w", err)
	}
	return []codec{
		{"encoding/json", byBuffer(func(b *bytes.Buffer, v any) error { return json.NewEncoder(b).Encode(v) }), json.Unmarshal},
		{"fxamacker/cbor", byBuffer(func(b *bytes.Buffer, v any) error { return mode.MarshalToBuffer(v, b) }), cbor.Unmarshal},
		{"vmihailenco/msgpack", byBuffer(func(b *bytes.Buffer, v any) error {
			e := msgpack.GetEncoder()
			defer msgpack.PutEncoder(e)
			e.Reset(b)
			e.SetCustomStructTag("json")
			e.UseCompactInts(true)
			return e.Encode(v)
		}), func(data []byte, v any) error {
			d := msgpack.GetDecoder()
			defer msgpack.PutDecoder(d)
			d.Reset(bytes.NewReader(data))
			d.SetCustomStructTag("json")
			return d.Decode(v)
		}},
		{"tinylib/msgp (generated)", func(dst []byte, v any) ([]byte, error) { return v.(msgp.Marshaler).MarshalMsg(dst) },
			func(data []byte, v any) error { _, err := v.(msgp.Unmarshaler).UnmarshalMsg(data); return err }},
		{"encoding/gob", byBuffer(func(b *bytes.Buffer, v any) error { return gob.NewEncoder(b).Encode(v) }),
			func(data []byte, v any) error { return gob.NewDecoder(bytes.NewReader(data)).Decode(v) }},
		potCodec("pot V4", pot.V4, nil, pot.CopyStrings),
		potCodec("pot Shapes", pot.Shapes, nil, pot.CopyStrings),
		potCodec("pot V4, table", pot.V4, pot.NewTable(nil), pot.CopyStrings),
		potCodec("pot Shapes, table", pot.Shapes, pot.NewTable(nil), pot.CopyStrings),
		potCodec("pot Shapes, table, borrowed", pot.Shapes, pot.NewTable(nil), pot.BorrowStrings),
	}, nil
}

const baseline = "fxamacker/cbor"
