package pot

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// pathDoc has all that a path goes through or passes.
type pathDoc struct {
	ID    string
	Flag  bool
	N     int32
	Inner struct {
		A uint8
		B *string
		C float64
	}
	List  []pathPoint
	Names map[string]int16
	Maybe uint16 `pot:",omitempty"`
	Long  string
	Any   any
	Last  uint64
}

type pathPoint struct {
	X, Y int8 `pot:",omitempty"`
	Name string
}

func pathDocs() []pathDoc {
	text, long := "b", string(make([]byte, 40))
	docs := []pathDoc{{}, {ID: "one", N: 1, Long: long, Last: 1 << 40}, {ID: long, Flag: true, N: 1 << 20, Maybe: 7, Last: 3}}
	docs[1].Inner.B, docs[2].Inner.C = &text, 0.1
	docs[1].List = []pathPoint{{1, 2, "p"}, {0, 3, "q"}}
	docs[2].List = []pathPoint{{3, 0, "r"}}
	docs[1].Names = map[string]int16{"n": 300}
	docs[1].Any, docs[2].Any = []any{1, "x", map[string]any{"k": 1.5}}, map[string]any{"k": uint8(1), "l": nil}
	return docs
}

func testPaths() []*Path {
	return []*Path{NewPath("ID"), NewPath("N"), NewPath("Inner", "C"), NewPath("Inner"), NewPath("List"), NewPath("List", "0", "Name"), NewPath("List", "1", "Y"),
		NewPath("Names", "n"), NewPath("Maybe"), NewPath("Long"), NewPath("Any", "k"), NewPath("Any", "2", "k"), NewPath("Any", "-1"), NewPath("Last"), NewPath("none"), NewPath()}
}

// sameAsGet follows a path by a view used before, and as Open and Get do.
func sameAsGet(v *View, opts *DecodeOptions, payload []byte, p *Path) error {
	got, err := v.Find(payload, p)
	var want Value
	root, wantErr := Open(payload, opts)
	if wantErr == nil {
		want, wantErr = root.Get(p.names...)
	}
	if err != nil || wantErr != nil {
		var e, w *Error
		if !errors.As(err, &e) || !errors.As(wantErr, &w) || e.Code != w.Code || e.Offset != w.Offset {
			return fmt.Errorf("%v: want the error %v, got %w", p, wantErr, err)
		}
		return nil
	}
	if got.Offset() != want.Offset() || got.Kind() != want.Kind() {
		return fmt.Errorf("%v: want %v at %d, got %v at %d", p, want.Kind(), want.Offset(), got.Kind(), got.Offset())
	}
	raw, err := got.Raw()
	wantRaw, wantErr := want.Raw()
	if string(raw) != string(wantRaw) || codeOf(err) != codeOf(wantErr) {
		return fmt.Errorf("%v: want %x, %v, got %x, %w", p, wantRaw, wantErr, raw, err)
	}
	n, err := got.Uint()
	wantN, wantErr := want.Uint()
	if n != wantN || (err == nil) != (wantErr == nil) {
		return fmt.Errorf("%v: want %d, %v, got %d, %w", p, wantN, wantErr, n, err)
	}
	return nil
}

// viewOptions returns pairs of options for all modes, with tables that hold what
// the documents need and without.
func viewOptions(t testing.TB) (enc []EncodeOptions, dec []*DecodeOptions) {
	for _, mode := range []Mode{V4, Full, Shapes} {
		table := NewTable(&TableOptions{Eager: true})
		enc = append(enc, EncodeOptions{Mode: mode}, EncodeOptions{Mode: mode, Table: table}, EncodeOptions{Mode: mode, Table: table, NoHeader: true})
		mustMarshal(t, &enc[len(enc)-1], pathDocs())
		dec = append(dec, nil, &DecodeOptions{Table: table}, &DecodeOptions{Mode: mode, Table: table, NoHeader: true})
	}
	return enc, dec
}

// Find leads where Open and Get lead, whatever the view and the path went
// through before, for payloads that are whole, cut off anywhere, or changed in
// any byte.
func TestFindEqualsGet(t *testing.T) {
	enc, dec := viewOptions(t)
	paths := testPaths()
	for i := range enc {
		view := NewView(dec[i])
		var payloads [][]byte
		for _, doc := range pathDocs() {
			payloads = append(payloads, mustMarshal(t, &enc[i], &doc))
		}
		payloads = append(payloads, mustMarshal(t, &enc[i], pathPoint{1, 2, "ID"}))
		try := func(payload []byte, p *Path) {
			if err := sameAsGet(view, dec[i], payload, p); err != nil {
				t.Fatalf("options %d, %x: %v", i, payload, err)
			}
		}
		for _, p := range paths {
			for range 3 {
				for _, payload := range payloads {
					try(payload, p)
				}
			}
		}
		payload := payloads[1]
		for k := range payload {
			for _, p := range paths {
				try(payload[:k], p)
				for _, c := range []byte{payload[k] ^ 1, payload[k] ^ 0x10, 0, 7, 0x80, 0xff} {
					changed := slices.Clone(payload)
					changed[k] = c
					try(changed, NewPath(p.names...)) // a trail that is not spoilt
					try(payload, p)
					try(changed, p)
				}
			}
		}
	}
}

// A path goes through payloads of one kind by its trail, whatever their texts
// and numbers are, and allocates nothing.
func TestFindByTrail(t *testing.T) {
	enc, dec := viewOptions(t)
	logs := makeLogSet().Logs[:500]
	for i := range enc {
		view, p := NewView(dec[i]), NewPath("code")
		var payloads [][]byte
		for k := range logs {
			payloads = append(payloads, mustMarshal(t, &enc[i], &logs[k]))
		}
		find := func() {
			for k, payload := range payloads {
				v, err := view.Find(payload, p)
				if err != nil {
					t.Fatal(err)
				}
				if code, err := v.Uint(); err != nil || code != uint64(logs[k].Code) {
					t.Fatalf("options %d, record %d: want %d, got %d, %v", i, k, logs[k].Code, code, err)
				}
			}
		}
		find()
		if lost := p.lost.Load(); lost > 8 {
			t.Errorf("options %d: %d of %d payloads did not fit the trail", i, lost, len(logs))
		}
		if n := testing.AllocsPerRun(3, find); n > 0 && !raceEnabled {
			t.Errorf("options %d: %v allocations", i, n)
		}
	}
}

// One path serves views of several goroutines and tables at once.
func TestFindConcurrently(t *testing.T) {
	enc, dec := viewOptions(t)
	docs := pathDocs()
	p := NewPath("Last")
	var wg sync.WaitGroup
	for i := range enc {
		wg.Go(func() {
			view := NewView(dec[i])
			for k := range 300 {
				doc := docs[k%len(docs)]
				payload, err := enc[i].Marshal(&doc)
				if err != nil {
					t.Error(err)
					return
				}
				v, err := view.Find(payload, p)
				if err != nil {
					t.Errorf("options %d: %v", i, err)
					return
				}
				if n, err := v.Uint(); err != nil || n != doc.Last {
					t.Errorf("options %d: want %d, got %d, %v", i, doc.Last, n, err)
				}
			}
		})
	}
	wg.Wait()
}

// FuzzFind follows paths through bytes, by views and paths that went through a
// document before.
func FuzzFind(f *testing.F) {
	enc, dec := viewOptions(f)
	var payloads [][][]byte
	for i := range enc {
		payloads = append(payloads, nil)
		for _, doc := range pathDocs() {
			payload := mustMarshal(f, &enc[i], &doc)
			payloads[i] = append(payloads[i], payload)
			f.Add(byte(i), payload)
		}
	}
	f.Fuzz(func(t *testing.T, o byte, payload []byte) {
		i := int(o) % len(enc)
		view := NewView(dec[i])
		for _, p := range testPaths() {
			for _, b := range [][]byte{payloads[i][1], payload, payloads[i][1], payload} {
				if err := sameAsGet(view, dec[i], b, p); err != nil {
					t.Fatalf("options %d, %x: %v", i, b, err)
				}
			}
		}
	})
}
