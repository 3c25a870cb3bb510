// Package kv is what operations on key-values mean: pure functions over rows of
// ordered bytes. The same functions serve memory, a commit, a transaction's own
// view and the replay of sealed commands, so that all of them agree. There is no
// clock and no chance in it.
//
// Rows are named by a space letter and what follows it; docs/format/store.md has
// the table.
package kv

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/osierdb/osier"
)

// recordVersion begins every record.
const recordVersion = 1

// ErrRecord is damage in a stored record.
var ErrRecord = errors.New("record is damaged")

// Spaces.
const (
	SpaceKey     = 'k' // namespaces, and the heads of keys
	SpaceElement = 'l' // elements of structures
	SpaceExpiry  = 'e' // deadline, key: what is to go next
)

// Entry is what is known of a key: its head. A vacant key has Type KVNone.
type Entry struct {
	Type     osier.KVType
	Version  uint64
	Deadline int64 // milliseconds since 1970; 0: none
	// Value of a plain value; the holder's name of a lease.
	Value []byte

	// Of structures: ID names their element rows and is never used again.
	ID     uint64
	Count  uint64
	First  int64  // of lists: the place of the first element
	Levels uint64 // of sorted sets: how many levels of counts there are
	Token  uint64 // of leases
}

// Expired reports whether the key is gone at the time now.
func (e *Entry) Expired(now int64) bool { return e.Deadline != 0 && e.Deadline <= now }

// Live reports whether there is something under the key at the time now.
func (e *Entry) Live(now int64) bool { return e.Type != osier.KVNone && !e.Expired(now) }

const flagDeadline = 1

// Append writes the head's record.
func (e *Entry) Append(dst []byte) []byte {
	var f byte
	if e.Deadline != 0 {
		f |= flagDeadline
	}
	dst = append(dst, recordVersion, byte(e.Type), f)
	dst = binary.AppendUvarint(dst, e.Version)
	if e.Deadline != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Deadline))
	}
	switch e.Type {
	case osier.KVPlain:
	case osier.KVLeases:
		dst = binary.AppendUvarint(dst, e.Token)
	default:
		dst = binary.AppendUvarint(dst, e.ID)
		dst = binary.AppendUvarint(dst, e.Count)
		switch e.Type {
		case osier.KVLists:
			dst = binary.AppendVarint(dst, e.First)
		case osier.KVSorteds:
			dst = binary.AppendUvarint(dst, e.Levels)
		}
	}
	return append(dst, e.Value...)
}

// DecodeEntry reads a head's record; Value points into b.
func DecodeEntry(b []byte) (e Entry, err error) {
	r := reader{b: b}
	if r.byte() != recordVersion {
		r.bad = true
	}
	e.Type = osier.KVType(r.byte())
	f := r.byte()
	e.Version = r.uvarint()
	if f&flagDeadline != 0 {
		e.Deadline = int64(r.uvarint())
		r.bad = r.bad || e.Deadline <= 0
	}
	switch e.Type {
	case osier.KVPlain:
		e.Value = r.b
	case osier.KVLeases:
		e.Token = r.uvarint()
		e.Value = r.b
	case osier.KVLists, osier.KVHashes, osier.KVSets, osier.KVSorteds:
		e.ID, e.Count = r.uvarint(), r.uvarint()
		switch e.Type {
		case osier.KVLists:
			e.First = r.varint()
		case osier.KVSorteds:
			e.Levels = r.uvarint()
			r.bad = r.bad || e.Levels > maxLevels
		}
		r.bad = r.bad || len(r.b) > 0 || e.Count == 0
	default:
		r.bad = true
	}
	if r.bad || f&^flagDeadline != 0 {
		return Entry{}, ErrRecord
	}
	return e, nil
}

// Namespace is a namespace's record.
type Namespace struct {
	Num  uint32
	Keys uint64 // that have a head, those past their deadline too
	// Newest is the version of its latest change.
	Newest uint64
}

// Append writes the record.
func (n *Namespace) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, recordVersion), uint64(n.Num))
	return binary.AppendUvarint(binary.AppendUvarint(dst, n.Keys), n.Newest)
}

// DecodeNamespace reads the record.
func DecodeNamespace(b []byte) (n Namespace, err error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	num := r.uvarint()
	n = Namespace{Num: uint32(num), Keys: r.uvarint(), Newest: r.uvarint()}
	if r.bad || len(r.b) > 0 || num == 0 || num > math.MaxUint32 {
		return Namespace{}, ErrRecord
	}
	return n, nil
}

// State are the counters of a database's key-values.
type State struct {
	Version    uint64 // the highest version given
	Namespaces uint32 // numbers given
}

// Append writes the record.
func (s *State) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, recordVersion), s.Version)
	return binary.AppendUvarint(dst, uint64(s.Namespaces))
}

// DecodeState reads the record.
func DecodeState(b []byte) (s State, err error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	s.Version = r.uvarint()
	n := r.uvarint()
	if r.bad || len(r.b) > 0 || n > math.MaxUint32 {
		return State{}, ErrRecord
	}
	s.Namespaces = uint32(n)
	return s, nil
}

// reader takes a record apart; after a step past its end, bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	n, k := binary.Uvarint(r.b)
	if k <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[k:]
	return n
}

func (r *reader) varint() int64 {
	n, k := binary.Varint(r.b)
	if k <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[k:]
	return n
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func appendBytes[B []byte | string](dst []byte, b B) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// Keys of rows.

func stateKey() []byte { return []byte{SpaceKey, 0, 0, 0, 0} }

// NamespacePrefix begins the rows of namespaces; their names follow.
func NamespacePrefix() []byte { return []byte{SpaceKey, 0, 0, 0, 0, 'n'} }

func namespaceKey(name string) []byte { return append(NamespacePrefix(), name...) }

// HeadKey is the row of a key's head.
func HeadKey[K []byte | string](dst []byte, num uint32, key K) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, SpaceKey), num)
	return append(dst, key...)
}

// ElementKey begins the rows of a structure; a tag and what it says follow.
func ElementKey(dst []byte, num uint32, id uint64, tag ...byte) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, SpaceElement), num)
	dst = binary.BigEndian.AppendUint64(dst, id)
	return append(dst, tag...)
}

// ExpiryKey is the row that lists a key under its deadline.
func ExpiryKey[K []byte | string](dst []byte, deadline int64, num uint32, key K) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, SpaceExpiry), uint64(deadline))
	dst = binary.BigEndian.AppendUint32(dst, num)
	return append(dst, key...)
}

// ParseExpiry takes the row's key apart.
func ParseExpiry(row []byte) (deadline int64, num uint32, key string, err error) {
	if len(row) < 13 || row[0] != SpaceExpiry {
		return 0, 0, "", ErrRecord
	}
	return int64(binary.BigEndian.Uint64(row[1:])), binary.BigEndian.Uint32(row[9:]), string(row[13:]), nil
}

// PrefixEnd is the least key after all that begin with prefix; nil if there is
// none.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}
