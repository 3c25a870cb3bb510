package kv

import (
	"encoding/binary"
	"math"

	"github.com/osierdb/osier"
)

// Packed states are what an OpKVBehind carries: for each namespace its name and
// the states of keys, each with what the store has of it, so that nothing need be
// read to write it down.
//
//	packed    = { namespace }
//	namespace = name(bytes) count(uvarint) { state }
//	state     = flags(1) key(bytes) version(uvarint) [deadline] [stored deadline] [value(bytes)]
const (
	packLive     = 1 << iota // the key holds a plain value; else it is gone
	packDeadline             // deadline follows
	packWas                  // the store has the key
	packStored               // the store has it under a deadline, which follows
)

// Packed is one key's state in memory, and what the store has of it.
type Packed struct {
	Key            []byte // of the packed bytes, as Entry.Value
	Entry          Entry
	Was            bool
	StoredDeadline int64
}

// AppendPacked adds a state to a namespace's.
func AppendPacked(dst []byte, key []byte, e *Entry, was bool, stored int64) []byte {
	var f byte
	if e.Type == osier.KVPlain {
		f |= packLive
	}
	if e.Deadline != 0 {
		f |= packDeadline
	}
	if was {
		f |= packWas
	}
	if stored != 0 {
		f |= packStored
	}
	dst = appendBytes(append(dst, f), key)
	dst = binary.AppendUvarint(dst, e.Version)
	if e.Deadline != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Deadline))
	}
	if stored != 0 {
		dst = binary.AppendUvarint(dst, uint64(stored))
	}
	if e.Type == osier.KVPlain {
		dst = appendBytes(dst, e.Value)
	}
	return dst
}

// AppendPackedNamespace adds the states of a namespace, count of them.
func AppendPackedNamespace(dst []byte, name string, count int, states []byte) []byte {
	dst = binary.AppendUvarint(appendBytes(dst, name), uint64(count))
	return append(dst, states...)
}

func (r *reader) packed() (p Packed) {
	f := r.byte()
	p.Key = r.bytes()
	p.Entry.Version = r.uvarint()
	if f&packDeadline != 0 {
		p.Entry.Deadline = int64(r.uvarint())
	}
	if f&packStored != 0 {
		p.StoredDeadline = int64(r.uvarint())
	}
	if p.Was = f&packWas != 0; f&packLive != 0 {
		p.Entry.Type, p.Entry.Value = osier.KVPlain, r.bytes()
	}
	r.bad = r.bad || f > packLive|packDeadline|packWas|packStored || p.Entry.Deadline < 0 || p.StoredDeadline < 0
	return p
}

// ReadPacked calls fn with each state; its Value points into b.
func ReadPacked(b []byte, fn func(namespace string, p *Packed) error) error {
	r := reader{b: b}
	for len(r.b) > 0 && !r.bad {
		name, count := string(r.bytes()), r.uvarint()
		for ; count > 0 && !r.bad; count-- {
			p := r.packed()
			if r.bad {
				break
			}
			if err := fn(name, &p); err != nil {
				return err
			}
		}
	}
	if r.bad {
		return &osier.Error{Kind: osier.KindInvalid, Op: "write behind", Err: ErrRecord}
	}
	return nil
}

// Writer is where Behind writes rows: a batch.
type Writer interface {
	Set(key, value []byte) error
	Delete(key []byte) error
}

// Behind writes packed states down, past the overlay: nothing of them can fail
// for what the store holds. row completes a row's key in scratch memory.
func Behind(b []byte, s *Space, w Writer, row func(dst []byte) []byte) error {
	var key, value []byte
	return ReadPacked(b, func(name string, p *Packed) error {
		n, err := s.space(name, true)
		if err != nil {
			return err
		}
		if p.StoredDeadline != 0 && p.StoredDeadline != p.Entry.Deadline {
			key = ExpiryKey(row(key[:0]), p.StoredDeadline, n.Num, p.Key)
			if err := w.Delete(key); err != nil {
				return err
			}
		}
		if p.Entry.Deadline != 0 && p.StoredDeadline != p.Entry.Deadline {
			key = ExpiryKey(row(key[:0]), p.Entry.Deadline, n.Num, p.Key)
			if err := w.Set(key, nil); err != nil {
				return err
			}
		}
		key = HeadKey(row(key[:0]), n.Num, p.Key)
		if p.Entry.Type == osier.KVPlain {
			value = p.Entry.Append(value[:0])
			err = w.Set(key, value)
		} else if p.Was {
			err = w.Delete(key)
		}
		if err != nil {
			return err
		}
		switch live := p.Entry.Type == osier.KVPlain; {
		case live && !p.Was:
			n.Keys++
		case !live && p.Was:
			n.Keys -= min(n.Keys, 1)
		}
		n.Newest, n.dirty = max(n.Newest, p.Entry.Version), true
		return s.advance(min(p.Entry.Version, math.MaxInt64))
	})
}
