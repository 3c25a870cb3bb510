package pot

import (
	"testing"

	"github.com/fxamacker/cbor/v2"
)

func BenchmarkLogEncode(b *testing.B) {
	set := makeLogSet()
	run := func(name string, enc func(dst []byte) ([]byte, error)) {
		b.Run(name, func(b *testing.B) {
			buf, err := enc(nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if buf, err = enc(buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(set.Logs)), "ns/record")
			b.ReportMetric(float64(len(buf)), "bytes")
		})
	}
	for _, mode := range []Mode{Full, Shapes} {
		opts := EncodeOptions{Mode: mode}
		run("pot-"+mode.String(), func(dst []byte) ([]byte, error) { return opts.Append(dst, set) })
	}
	run("cbor", func(dst []byte) ([]byte, error) { return cbor.Marshal(set) })
}

func BenchmarkLogDecode(b *testing.B) {
	set := makeLogSet()
	run := func(name string, data []byte, dec func(data []byte, v *logSet) error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var v logSet
				if err := dec(data, &v); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(set.Logs)), "ns/record")
		})
	}
	for _, mode := range []Mode{Full, Shapes} {
		data, err := (&EncodeOptions{Mode: mode}).Marshal(set)
		if err != nil {
			b.Fatal(err)
		}
		for name, s := range map[string]StringMode{"copy": CopyStrings, "borrow": BorrowStrings, "intern": InternStrings} {
			opts := DecodeOptions{Strings: s}
			run("pot-"+mode.String()+"-"+name, data, func(data []byte, v *logSet) error { return opts.Unmarshal(data, v) })
		}
	}
	data, err := cbor.Marshal(set)
	if err != nil {
		b.Fatal(err)
	}
	run("cbor", data, func(data []byte, v *logSet) error { return cbor.Unmarshal(data, v) })
}

func BenchmarkSmallRecord(b *testing.B) {
	rec := &makeLogSet().Logs[0]
	table := NewTable(nil)
	for _, c := range []struct {
		name string
		enc  EncodeOptions
	}{{"V4", EncodeOptions{}}, {"Shapes-table", EncodeOptions{Mode: Shapes, Table: table, NoHeader: true}}} {
		dec := DecodeOptions{Mode: c.enc.Mode, Table: c.enc.Table, NoHeader: c.enc.NoHeader}
		payload, err := c.enc.Marshal(rec)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("encode-"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 512)
			for b.Loop() {
				if buf, err = c.enc.Append(buf[:0], rec); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decode-"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var v logRecord
				if err := dec.Unmarshal(payload, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("view-"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			view := NewView(&dec)
			for b.Loop() {
				root, err := view.Open(payload)
				if err != nil {
					b.Fatal(err)
				}
				v, err := root.Field("code")
				if err != nil {
					b.Fatal(err)
				}
				if code, err := v.Uint(); err != nil || code != uint64(rec.Code) {
					b.Fatal(code, err)
				}
			}
		})
	}
}

// optionalPost is a document whose fields are left out when they are empty.
type optionalPost struct {
	ID        string   `json:"id"`
	Title     string   `json:"title,omitempty"`
	Author    string   `json:"author,omitempty"`
	Tags      []string `json:"tags,omitempty"`
	Words     int32    `json:"words,omitempty"`
	Likes     uint32   `json:"likes,omitempty"`
	Score     float64  `json:"score,omitempty"`
	Published bool     `json:"published,omitempty"`
	Created   int64    `json:"created"`
}

func BenchmarkOptional(b *testing.B) {
	v := &optionalPost{ID: "post-0011", Title: "a title of this", Tags: []string{"one", "two"}, Words: 500, Score: 3.1, Created: 1 << 40}
	table := NewTable(nil)
	for _, c := range []struct {
		name string
		enc  func() ([]byte, error)
		dec  func([]byte) error
	}{
		{"cbor", func() ([]byte, error) { return cbor.Marshal(v) }, func(p []byte) error { return cbor.Unmarshal(p, new(optionalPost)) }},
		{"V4", func() ([]byte, error) { return Marshal(v) }, func(p []byte) error { return Unmarshal(p, new(optionalPost)) }},
		{"Shapes,table", func() ([]byte, error) { return (&EncodeOptions{Mode: Shapes, Table: table}).Marshal(v) }, func(p []byte) error { return (&DecodeOptions{Table: table}).Unmarshal(p, new(optionalPost)) }},
	} {
		b.Run("enc/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.enc(); err != nil {
					b.Fatal(err)
				}
			}
		})
		p, err := c.enc()
		if err != nil {
			b.Fatal(err)
		}
		b.Run("dec/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.dec(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
