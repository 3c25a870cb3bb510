package main

import (
	"strings"
	"testing"
)

// Each codec on each set; an operation is one value. For profiles: main.go
// prints the ratios.
func BenchmarkCodecs(b *testing.B) {
	for _, s := range sets() {
		list, err := codecs()
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range list {
			b.Run(strings.SplitN(s.name, ":", 2)[0]+"/"+c.name+"/encode", func(b *testing.B) {
				b.ReportAllocs()
				var buf []byte
				for i := 0; b.Loop(); i++ {
					if buf, err = c.encode(buf[:0], s.values[i%len(s.values)]); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(strings.SplitN(s.name, ":", 2)[0]+"/"+c.name+"/decode", func(b *testing.B) {
				encoded := make([][]byte, len(s.values))
				for range 2 { // the second time with what the first left in a table
					for i, v := range s.values {
						if encoded[i], err = c.encode(nil, v); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if err := c.decode(encoded[i%len(encoded)], s.fresh()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
