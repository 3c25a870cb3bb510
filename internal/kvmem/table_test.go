package kvmem

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"testing"

	"pgregory.net/rapid"
)

type where struct {
	space uint32
	key   string
}

// A table holds what a map holds, whatever is done to it in whatever order.
func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab Table
		model := map[where]Cell{}
		// Few tags, so that probes collide.
		tag := func(w where) uint32 { return uint32(len(w.key))*7 + w.space }
		gen := rapid.Custom(func(t *rapid.T) where {
			return where{rapid.Uint32Range(0, 2).Draw(t, "space"), fmt.Sprint(rapid.IntRange(0, 120).Draw(t, "key"))}
		})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				w := gen.Draw(t, "where")
				n := rapid.SampledFrom([]int{0, 1, 7, 64, 900, 1100, 5000, 40000, 70000}).Draw(t, "size")
				c := Cell{Value: bytes.Repeat([]byte{byte(n)}, n), Version: rapid.Uint64().Draw(t, "version"),
					Deadline: rapid.Int64().Draw(t, "deadline"), Stored: int64(n) * 2, Epoch: rapid.Uint32Range(0, 9).Draw(t, "epoch"),
					Type: uint8(n), Was: n > 7, Busy: n == 64}
				grow := rapid.IntRange(0, 3).Draw(t, "grow") > 0
				if tab.Put(tag(w), w.space, w.key, &c, grow) {
					model[w] = c
				} else if grow {
					t.Fatal("put with leave to grow failed")
				}
			},
			"overwrite": func(t *rapid.T) {
				w := gen.Draw(t, "where")
				if r := tab.Find(tag(w), w.space, w.key); r != 0 {
					c := model[w]
					c.Value, c.Version = bytes.Repeat([]byte{7}, rapid.IntRange(0, 80).Draw(t, "size")), 7
					if tab.Overwrite(r, &c) {
						model[w] = c
					}
				}
			},
			"remove": func(t *rapid.T) {
				w := gen.Draw(t, "where")
				tab.Remove(tag(w), w.space, w.key)
				delete(model, w)
			},
			"evict": func(t *rapid.T) {
				before := tab.Len()
				n := tab.Evict(3, 4, func(uint32) {})
				if tab.Len() != before-n {
					t.Fatalf("evicted %d of %d, %d are left", n, before, tab.Len())
				}
				for w, c := range model {
					if tab.Find(tag(w), w.space, w.key) == 0 {
						if c.Epoch > 4 || c.Busy {
							t.Fatalf("%v of epoch %d (busy %v) was evicted", w, c.Epoch, c.Busy)
						}
						delete(model, w)
					}
				}
			},
			"compact": func(t *rapid.T) { tab.Compact() },
			"sweep": func(t *rapid.T) {
				seen := 0
				tab.Each(func(_ Ref, space uint32, key []byte) bool {
					seen++
					if key[0] == '9' {
						delete(model, where{space, string(key)})
						return true
					}
					return false
				})
			},
			"": func(t *rapid.T) {
				if tab.Len() != len(model) {
					t.Fatalf("got %d entries, want %d", tab.Len(), len(model))
				}
				for w, want := range model {
					r := tab.Find(tag(w), w.space, w.key)
					if r == 0 {
						t.Fatalf("%v is lost", w)
					}
					got := tab.Read(r)
					if !bytes.Equal(got.Value, want.Value) || got.Version != want.Version || got.Deadline != want.Deadline ||
						got.Stored != want.Stored || got.Epoch != want.Epoch || got.Type != want.Type || got.Was != want.Was || got.Busy != want.Busy {
						t.Fatalf("%v: got %+v, want %+v", w, got, want)
					}
				}
			},
		})
	})
}

// Sizes that share a class have the same room, and the room is enough.
func TestRoom(t *testing.T) {
	seen := map[int]int{}
	for size := 1; size <= chunkUnits*unitSize; size++ {
		u := units(size)
		if u*unitSize < size || u > 64 && (u*unitSize-size)*8 > u*unitSize {
			t.Fatalf("%d bytes get %d units", size, u)
		}
		if u < ownChunk {
			c := class(u)
			if c >= classes || seen[c] != 0 && seen[c] != u {
				t.Fatalf("%d units are of class %d, as %d", u, c, seen[c])
			}
			seen[c] = u
		}
	}
}

// A million keys cost at most 120 bytes each beside keys and values.
func TestOverhead(t *testing.T) {
	const n, shards = 1_000_000, 64
	seed := maphash.MakeSeed()
	tabs := make([]Table, shards)
	content := 0
	value := make([]byte, 64)
	for i := range n {
		key := fmt.Sprintf("session:%d", i)
		h := maphash.String(seed, key)
		tabs[h%shards].Put(uint32(h>>32), 1, key, &Cell{Value: value}, true)
		content += len(key) + len(value)
	}
	total := 0
	for i := range tabs {
		total += tabs[i].Bytes()
	}
	over := float64(total-content) / n
	t.Logf("%.1f bytes of overhead a key", over)
	if over > 120 {
		t.Errorf("%.1f bytes of overhead a key, want at most 120", over)
	}
}
