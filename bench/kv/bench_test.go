package kv

import (
	"testing"

	"github.com/osierdb/osier"
)

func BenchmarkGet(b *testing.B) {
	o := openOsier(b, osier.Relaxed)
	defer o.close()
	fill(b, o)
	b.ReportAllocs()
	for i := 1; b.Loop(); i = (i*31 + 7) % keys {
		o.get(0, names()[i])
	}
}

func BenchmarkRelaxedSet(b *testing.B) {
	o := openOsier(b, osier.Relaxed)
	defer o.close()
	fill(b, o)
	value := make([]byte, valueSize)
	b.ReportAllocs()
	for i := 1; b.Loop(); i = (i*31 + 7) % keys {
		if err := o.set(names()[i], value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDurableSet64(b *testing.B) {
	o := openOsier(b, osier.Sync)
	defer o.close()
	value := make([]byte, valueSize)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for i := 1; pb.Next(); i = (i*31 + 7) % keys {
			if err := o.set(names()[i], value); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func fill(b *testing.B, o *osierKV) {
	b.Helper()
	for _, name := range names() {
		if err := o.set(name, make([]byte, valueSize)); err != nil {
			b.Fatal(err)
		}
	}
}
