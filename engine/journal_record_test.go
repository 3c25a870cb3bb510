package engine

import (
	"bytes"
	"testing"

	"github.com/osierdb/osier"
)

func someBlock(expires bool) (key, value []byte) {
	s := stretch{}
	for i := range 3 {
		e := osier.Event{Position: osier.Position{Micros: 1000, Count: uint32(i)}, Type: "t", Data: []byte("data")}
		if expires && i > 0 {
			e.Expires = at(int64(5000 + i))
		}
		if err := s.add(osier.AppendEvent(nil, &e)); err != nil {
			panic(err)
		}
	}
	return eventKey(nil, 1, 2, s.first), appendBlock(nil, &block{stats: s.stats, ordinal: 7, offset: 900, events: s.bytes})
}

func FuzzDecodeBlock(f *testing.F) {
	for _, expires := range []bool{false, true} {
		key, value := someBlock(expires)
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		b, err := readBlock(key, value)
		if err != nil {
			return
		}
		if again := appendBlock(nil, &b); !bytes.Equal(again, value) {
			t.Errorf("%x is written again as %x", value, again)
		}
	})
}

func FuzzDecodeJournalState(f *testing.F) {
	st := journalState{num: 3, last: osier.Position{Micros: 9, Count: 1}, count: 4, settings: osier.JournalSettings{MaxAge: 5, Durability: osier.Relaxed}}
	f.Add(st.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := decodeJournalState(b)
		if err != nil {
			return
		}
		if again, err := decodeJournalState(st.append(nil)); err != nil || again != st {
			t.Errorf("%x: %+v, then %+v (%v)", b, st, again, err)
		}
	})
}

// No bit of a block can change unnoticed, and zeros are no block.
func TestBlocksAreChecked(t *testing.T) {
	for _, expires := range []bool{false, true} {
		key, value := someBlock(expires)
		if _, err := readBlock(key, value); err != nil {
			t.Fatal(err)
		}
		for i := range value {
			for bit := range 8 {
				broken := bytes.Clone(value)
				broken[i] ^= 1 << bit
				if _, err := readBlock(key, broken); err == nil {
					t.Errorf("bit %d of byte %d changed unnoticed", bit, i)
				}
			}
			if _, err := readBlock(key, value[:i]); err == nil {
				t.Errorf("cut at byte %d unnoticed", i)
			}
		}
		if _, err := readBlock(key, make([]byte, len(value))); err == nil {
			t.Error("zeros pass")
		}
	}
}
