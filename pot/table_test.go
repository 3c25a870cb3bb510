package pot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// With a table a payload carries no names; a later version of the table, and a
// copy brought up to date by additions, read it as well.
func TestTableCarriesNames(t *testing.T) {
	rec := makeLogSet().Logs[0]
	table := NewTable(nil)
	enc := EncodeOptions{Mode: Shapes, Table: table, NoHeader: true}
	v0 := table.Version()
	payload, err := enc.Marshal(&rec)
	if err != nil {
		t.Fatal(err)
	}
	v1 := table.Version()
	if !v1.Covers(v0) || v1 == v0 || v1 != (TableVersion{Symbols: 11, Shapes: 2}) {
		t.Errorf("version went from %v to %v", v0, v1)
	}
	if bytes.Contains(payload, []byte("request")) || bytes.Contains(payload, []byte("x0")) {
		t.Errorf("the payload holds names: %q", payload)
	}
	again, err := enc.Marshal(&rec)
	if err != nil || !bytes.Equal(again, payload) || table.Version() != v1 {
		t.Errorf("encoding again gives %x and version %v, %v", again, table.Version(), err)
	}
	other := NewTable(nil)
	delta, v, err := table.AppendSince(nil, v0)
	if err != nil || v != v1 {
		t.Fatalf("addition up to %v, %v", v, err)
	}
	if err := other.Apply(delta); err != nil {
		t.Fatal(err)
	}
	if err := table.AddShape("later", "x0"); err != nil {
		t.Fatal(err)
	}
	for _, tb := range []*Table{table, other} {
		var got logRecord
		dec := DecodeOptions{Mode: Shapes, Table: tb, NoHeader: true}
		if err := dec.Unmarshal(payload, &got); err != nil || got != rec {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for _, into := range []any{new(logRecord), new(any), new(map[string]any)} {
		dec := DecodeOptions{Mode: Shapes, NoHeader: true}
		if err := dec.Unmarshal(payload, into); !errors.Is(err, ErrShape) {
			t.Errorf("without the table: %v", err)
		}
	}
}

// Tables read back from their serialized form; contradictions and gaps are errors
// that change nothing.
func TestTableSerialized(t *testing.T) {
	a := NewTable(nil)
	if err := a.AddSymbols("lonely"); err != nil {
		t.Fatal(err)
	}
	plain, _ := a.MarshalBinary()
	if err := a.AddShape("x", "y", "lonely"); err != nil {
		t.Fatal(err)
	}
	whole, _ := a.MarshalBinary()
	var b Table
	if err := b.UnmarshalBinary(whole); err != nil || !cmp.Equal(a.Symbols(), b.Symbols()) || !cmp.Equal(a.Shapes(), b.Shapes()) {
		t.Errorf("got %v %v, %v", b.Symbols(), b.Shapes(), err)
	}
	for _, data := range [][]byte{plain, whole} { // earlier and equal versions add nothing
		if err := b.Apply(data); err != nil || b.Version() != a.Version() {
			t.Errorf("applying %x again: %v, %v", data, b.Version(), err)
		}
	}
	c := NewTable(nil)
	if err := c.AddShape("y", "x"); err != nil {
		t.Fatal(err)
	}
	ahead, _, _ := a.AppendSince(nil, TableVersion{Symbols: 3})
	before := c.Version()
	if err := c.Merge(a); !errors.Is(err, ErrTable) {
		t.Errorf("merging a contradiction: %v", err)
	}
	for _, bad := range [][]byte{whole, ahead, nil, []byte("Pot\x80"), unhex(t, "506f740082e161e161"), unhex(t, "506f740081e2ffff"),
		unhex(t, "506f748082"+"81e178"+"8181"+"4001"), unhex(t, "506f748082"+"81e178"+"8180"), unhex(t, "506f748082"+"81e178"+"818240004000"),
		append(bytes.Clone(whole), 0)} {
		if err := c.Apply(bad); err == nil || c.Version() != before {
			t.Errorf("applying %x: %v, version %v", bad, err, c.Version())
		}
	}
	d := NewTable(nil)
	if err := d.Merge(a); err != nil || d.Version() != a.Version() {
		t.Errorf("merging into an empty table: %v", err)
	}
	if err := a.Merge(d); err != nil {
		t.Errorf("merging an equal table: %v", err)
	}
	if _, _, err := a.AppendSince(nil, TableVersion{Symbols: 99}); !errors.Is(err, ErrTable) {
		t.Errorf("addition since a later version: %v", err)
	}
}

// A full table is no failure: what it lacks is written in place.
func TestTableLimits(t *testing.T) {
	for _, opts := range []TableOptions{{MaxSymbols: 3}, {MaxShapes: 1}, {MaxTextBytes: 8}, {MaxFields: 4}} {
		for _, mode := range []Mode{V4, Full, Shapes} {
			table := NewTable(&opts)
			enc, dec := EncodeOptions{Mode: mode, Table: table}, DecodeOptions{Table: table}
			for range 3 {
				rec := makeLogSet().Logs[0]
				payload, err := enc.Marshal(&rec)
				if err != nil {
					t.Fatal(err)
				}
				var got logRecord
				if err := dec.Unmarshal(payload, &got); err != nil || got != rec {
					t.Errorf("%+v, %v: got %+v, %v", opts, mode, got, err)
				}
			}
			if v := table.Version(); opts.MaxSymbols > 0 && v.Symbols > opts.MaxSymbols || opts.MaxShapes > 0 && v.Shapes > opts.MaxShapes {
				t.Errorf("%+v: version %v", opts, v)
			}
		}
	}
}

// Keys that are values do not fill a table: only lists met again do.
func TestTableLearnsOnSecondSight(t *testing.T) {
	table := NewTable(nil)
	enc := EncodeOptions{Mode: Shapes, Table: table}
	for i := range 1000 {
		if _, err := enc.Marshal(map[string]any{fmt.Sprintf("user-%d", i): 1}); err != nil {
			t.Fatal(err)
		}
	}
	if v := table.Version(); v != (TableVersion{}) {
		t.Errorf("different keys brought the table to %v", v)
	}
	var sizes []int
	doc := map[string]any{"name": "x", "age": 3}
	for range 3 {
		payload, err := enc.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(payload))
	}
	if v := table.Version(); v != (TableVersion{2, 1}) || sizes[0] <= sizes[1] || sizes[1] != sizes[2] {
		t.Errorf("version %v, sizes %v", v, sizes)
	}
	eager := EncodeOptions{Mode: Shapes, Table: NewTable(&TableOptions{Eager: true})}
	payload, err := eager.Marshal(doc)
	if err != nil || len(payload) != sizes[2] {
		t.Errorf("eager: %d bytes, want %d, %v", len(payload), sizes[2], err)
	}
}

// Linked tables follow each other in all modes; a failure on either side leaves
// its table as it was.
func TestLinkedTables(t *testing.T) {
	for _, mode := range []Mode{V4, Full, Shapes} {
		sender, receiver := NewTable(nil), NewTable(nil)
		enc := EncodeOptions{Mode: mode, Table: sender, Link: true}
		dec := DecodeOptions{Table: receiver, Link: true}
		rec := makeLogSet().Logs[0]
		values := []any{vecUser{1, "a"}, rec, map[string]any{"k": "v", "w": int64(1)}, map[string]any{"k": "v", "w": int64(2)},
			rec, &Variant{Name: "V", Value: "x"}, goodMarshaler{[]string{"id", "mine"}}, map[string]any{"k": "v", "w": int64(3)}}
		for i, v := range values {
			before := sender.Version()
			if _, err := enc.Marshal([]any{v, struct{ Fresh, X9 int }{}, make(chan int)}); err == nil || sender.Version() != before {
				t.Fatalf("%v: failed encoding left version %v, was %v", mode, sender.Version(), before)
			}
			payload, err := enc.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var got any
			if err := dec.Unmarshal(payload[:len(payload)-1], &got); err == nil || receiver.Version() != before {
				t.Fatalf("%v: failed decoding left version %v, was %v", mode, receiver.Version(), before)
			}
			// What does not fit its type is learned from all the same.
			if err := dec.Unmarshal(payload, new([]chan int)); err == nil {
				t.Fatalf("%v, payload %d: decoded into nonsense", mode, i)
			}
			if dec.Table.truncate(before); i%2 == 0 {
				err = dec.Unmarshal(payload, &got)
			} else if err = dec.Unmarshal(payload, new(bool)); errors.Is(err, ErrType) {
				err = nil
			}
			if err != nil {
				t.Fatalf("%v, payload %d, %x: %v", mode, i, payload, err)
			}
			if !cmp.Equal(sender.Symbols(), receiver.Symbols()) || !cmp.Equal(sender.Shapes(), receiver.Shapes()) {
				t.Fatalf("%v, payload %d: sender %v %v, receiver %v %v", mode, i, sender.Symbols(), sender.Shapes(), receiver.Symbols(), receiver.Shapes())
			}
		}
		// Once both know the names, payloads are as small as with a shared table.
		linked, _ := enc.Marshal(&rec)
		shared, _ := (&EncodeOptions{Mode: mode, Table: receiver}).Marshal(&rec)
		if !bytes.Equal(linked, shared) {
			t.Errorf("%v: linked %x, shared %x", mode, linked, shared)
		}
		// Definitions in payloads for a table that is not linked are refused.
		payload, _ := (&EncodeOptions{Mode: mode}).Marshal(rec)
		if err := (&DecodeOptions{Table: receiver}).Unmarshal(payload, new(logRecord)); !errors.Is(err, ErrTable) {
			t.Errorf("%v: definitions without Link: %v", mode, err)
		}
	}
}

// Many goroutines encode, decode and convert with one table and the plans of
// the same types, while it grows.
func TestConcurrentUse(t *testing.T) {
	set := makeLogSet()
	table := NewTable(nil)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for g := range 8 {
		wg.Go(func() {
			mode := []Mode{V4, Shapes}[g%2]
			enc, dec := EncodeOptions{Mode: mode, Table: table}, DecodeOptions{Table: table}
			for i := range 300 {
				rec := set.Logs[g*300+i]
				own := map[string]any{fmt.Sprintf("k%d", i%40): int64(i), "g": "x"}
				payload, err := enc.Marshal(&rec)
				if err == nil {
					var got logRecord
					if err = dec.Unmarshal(payload, &got); err == nil && got != rec {
						err = fmt.Errorf("want %v, got %v", rec, got)
					}
				}
				if err == nil {
					if payload, err = enc.Marshal(own); err == nil {
						var got any
						if err = dec.Unmarshal(payload, &got); err == nil && !cmp.Equal(got, any(own)) {
							err = fmt.Errorf("want %v, got %v", own, got)
						}
					}
				}
				if err == nil {
					_, err = ToJSON(nil, payload, &JSONOptions{DecodeOptions: dec})
				}
				if err != nil {
					errs <- fmt.Errorf("goroutine %d, round %d: %w", g, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// The bytes of mode Shapes, as the package documentation gives them.
func TestShapesVectors(t *testing.T) {
	type point struct {
		X int8 `pot:"x"`
		Y int8 `pot:"y,omitzero"`
	}
	type line struct {
		A point `pot:"a"`
		B point `pot:"b"`
	}
	for _, v := range []struct {
		value any
		hex   string
	}{
		{point{1, 2}, "506f7480" + "08" + "82c278c279" + "20012002"},
		{[]point{{1, 2}, {3, 0}}, "506f7480" + "82" + "08" + "82c278c279" + "20012002" + "09" + "200307"},
		{line{point{1, 2}, point{3, 4}}, "506f7480" + "08" + "82c261c262" + "08" + "82c278c279" + "20012002" + "0a" + "20032004"},
		{[]vecUnit{{}}, "506f7480" + "8101"},
	} {
		got, err := (&EncodeOptions{Mode: Shapes}).Marshal(v.value)
		if err != nil || hex.EncodeToString(got) != v.hex {
			t.Errorf("%v: want %s, got %x, %v", v.value, v.hex, got, err)
		}
	}
	for _, v := range []struct {
		hex  string
		code Code
	}{
		{"09", ErrShape}, {"0801", ErrShape}, {"0880", ErrShape}, {"0881e178", ErrShape}, {"0882c278c2782001", ErrShape},
		{"08" + "82c278c1" + "20012002", ErrShape}, {"07", ErrSyntax}, {"a1e17807", ErrSyntax},
		{"1f7f", ErrShape}, {"08" + "81c278", ErrTruncated}, {"08" + "9f7fc278", ErrTruncated},
	} {
		payload := unhex(t, "506f7480"+v.hex)
		for _, into := range []any{new(point), new(any), new(map[string]int), new(Raw)} {
			if err := Unmarshal(payload, into); !errors.Is(err, v.code) {
				t.Errorf("%s into %T: want %v, got %v", v.hex, into, v.code, err)
			}
		}
		for _, mode := range []byte{0, 1} {
			payload[3] = mode
			if err := Unmarshal(payload, new(point)); err == nil {
				t.Errorf("%s in version %d: no error", v.hex, mode)
			}
		}
	}
}
