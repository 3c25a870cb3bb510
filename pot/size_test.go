package pot

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

func gzipped(t *testing.T, data []byte) int {
	t.Helper()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Len()
}

// With a table of shapes the log set is at most 0.60 times CBOR, and 0.90 times
// when both are compressed; no stored record is larger than in CBOR, typed or
// from JSON.
func TestSizesAgainstCBOR(t *testing.T) {
	set := makeLogSet()
	table := NewTable(&TableOptions{Eager: true})
	enc := EncodeOptions{Mode: Shapes, Table: table, NoHeader: true}
	payload, err := enc.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	other, err := cbor.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	if r := float64(len(payload)) / float64(len(other)); r > 0.60 {
		t.Errorf("%d bytes, %.3f of CBOR", len(payload), r)
	}
	if r := float64(gzipped(t, payload)) / float64(gzipped(t, other)); r > 0.90 {
		t.Errorf("compressed %.3f of CBOR", r)
	}
	for i := range set.Logs {
		one, err := enc.Marshal(&set.Logs[i])
		if err != nil {
			t.Fatal(err)
		}
		other, err := cbor.Marshal(&set.Logs[i])
		if err != nil || len(one) > len(other) {
			t.Fatalf("record %d: %d bytes, %d in CBOR, %v", i, len(one), len(other), err)
		}
		if i >= 1000 {
			continue
		}
		text, err := json.Marshal(&set.Logs[i])
		if err != nil {
			t.Fatal(err)
		}
		if one, err = FromJSON(nil, text, &enc); err != nil || len(one) > len(other) {
			t.Fatalf("record %d from JSON: %d bytes, %d in CBOR, %v", i, len(one), len(other), err)
		}
	}
}

// uuid has the methods that UUID types have; the binary ones win.
type uuid [16]byte

func (u uuid) MarshalText() ([]byte, error) { return []byte("text"), nil }

func (u *uuid) UnmarshalText([]byte) error { return errors.New("not by text") }

func (u uuid) MarshalBinary() ([]byte, error) { return u[:], nil }

func (u *uuid) UnmarshalBinary(b []byte) error {
	if len(b) != len(u) {
		return errors.New("not 16 bytes")
	}
	copy(u[:], b)
	return nil
}

func TestUUID(t *testing.T) {
	in := map[uuid][]uuid{{1}: {{2}, {3}}}
	payload, err := Marshal(in)
	if err != nil || len(payload) != 4+1+18+1+36 {
		t.Fatalf("%x, %v", payload, err)
	}
	var out map[uuid][]uuid
	if err := Unmarshal(payload, &out); err != nil || len(out[uuid{1}]) != 2 || out[uuid{1}][1] != (uuid{3}) {
		t.Errorf("got %v, %v", out, err)
	}
	short, _ := Marshal([]byte{1})
	var e *Error
	if err := Unmarshal(short, new(uuid)); !errors.As(err, &e) || e.Code != ErrMarshaler || e.Offset != headerSize || !strings.Contains(err.Error(), "not 16 bytes") {
		t.Errorf("a method that fails: %v", err)
	}
}

// A stream goes on after a payload that did not fit its type.
func TestStreamAfterTypeError(t *testing.T) {
	var buf bytes.Buffer
	e := NewEncoder(&buf, &EncodeOptions{Mode: Shapes, Table: NewTable(nil), Link: true})
	for _, v := range []any{vecUser{1, "a"}, vecUser{2, "b"}} {
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	d := NewDecoder(&buf, &DecodeOptions{Table: NewTable(nil), Link: true})
	var e1 *Error
	if err := d.Decode(new(int)); !errors.As(err, &e1) || e1.Code != ErrType {
		t.Errorf("want %v, got %v", ErrType, err)
	}
	var got vecUser
	if err := d.Decode(&got); err != nil || got != (vecUser{2, "b"}) {
		t.Errorf("the next payload: %v, %v", got, err)
	}
}
