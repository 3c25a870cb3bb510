package kv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/osierdb/osier"
)

// Checked counts what Verify looked at.
type Checked struct {
	Namespaces, Keys, Elements, Bytes uint64
}

// Verify reads all key-values of a database and reports what does not fit
// together. report gets the namespace and key, "" where there is none; it may
// return an error to end the check.
func Verify(base Base, report func(namespace, key string, err error) error) (out Checked, err error) {
	v := &verifier{s: NewSpace(base, 0), base: base, report: report, names: map[uint32]string{}, listed: map[string]bool{}}
	lo := NamespacePrefix()
	var all []*namespace
	var bad error
	err = base.Scan(lo, PrefixEnd(lo), false, func(key, value []byte) bool {
		name := string(key[len(lo):])
		n, err := DecodeNamespace(value)
		if err != nil {
			bad = v.report(name, "", err)
			return bad == nil
		}
		all = append(all, &namespace{Namespace: n, name: name, known: true})
		v.names[n.Num] = name
		return true
	})
	if err = first(bad, err); err != nil {
		return v.out, err
	}
	if err := v.state(all); err != nil {
		return v.out, err
	}
	for _, n := range all {
		v.out.Namespaces++
		if err := v.namespace(n); err != nil {
			return v.out, err
		}
	}
	return v.out, first(v.deadlines(), v.orphans())
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

type verifier struct {
	s      *Space
	base   Base
	report func(namespace, key string, err error) error
	out    Checked
	names  map[uint32]string
	// listed are the rows of deadlines that heads ask for.
	listed map[string]bool
	ids    map[[12]byte]bool // numbers of namespaces with ids of structures
}

// state checks the counters that all numbers are below.
func (v *verifier) state(all []*namespace) error {
	if err := v.s.loadState(); err != nil {
		return v.report("", "", err)
	}
	for _, n := range all {
		if n.Num > v.s.state.Namespaces || n.Newest > v.s.state.Version {
			if err := v.report(n.name, "", fmt.Errorf("its number %d or version %d is above those given, %d and %d", n.Num, n.Newest, v.s.state.Namespaces, v.s.state.Version)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *verifier) namespace(n *namespace) error {
	type head struct {
		key string
		e   Entry
	}
	var structures []head
	lo := HeadKey(nil, n.Num, "")
	keys, newest := uint64(0), uint64(0)
	var bad error
	err := v.base.Scan(lo, PrefixEnd(lo), false, func(row, value []byte) bool {
		key := string(row[len(lo):])
		keys++
		v.out.Keys++
		v.out.Bytes += uint64(len(row) + len(value))
		e, err := DecodeEntry(value)
		if err != nil {
			bad = v.report(n.name, key, err)
			return bad == nil
		}
		newest = max(newest, e.Version)
		if e.Deadline != 0 {
			v.listed[string(ExpiryKey(nil, e.Deadline, n.Num, key))] = true
		}
		if e.ID != 0 {
			e.Value = nil
			structures = append(structures, head{key, e})
		}
		return true
	})
	if err = first(bad, err); err != nil {
		return err
	}
	if keys != n.Keys || newest > n.Newest {
		if err := v.report(n.name, "", fmt.Errorf("it counts %d keys up to version %d, found are %d up to %d", n.Keys, n.Newest, keys, newest)); err != nil {
			return err
		}
	}
	for i := range structures {
		h := &structures[i]
		x := &structure{s: v.s, num: n.Num, op: &osier.KVOp{Namespace: n.name, Key: h.key}, e: &h.e, res: &osier.KVResult{}}
		var id [12]byte
		binary.BigEndian.PutUint32(id[:], n.Num)
		binary.BigEndian.PutUint64(id[4:], h.e.ID)
		if v.ids == nil {
			v.ids = map[[12]byte]bool{}
		}
		v.ids[id] = true
		problem, err := x.verify(&v.out)
		if err == nil && problem != nil {
			err = v.report(n.name, h.key, problem)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// verify checks a structure's rows against its head.
func (x *structure) verify(out *Checked) (problem, err error) {
	var n uint64
	lo := ElementKey(nil, x.num, x.e.ID)
	scores := map[string]bool{}
	err = x.s.Rows.Scan(lo, PrefixEnd(lo), false, func(key, value []byte) bool {
		out.Bytes += uint64(len(key) + len(value))
		if len(key) == len(lo) {
			problem = ErrRecord
			return false
		}
		tail := key[len(lo)+1:]
		switch tag := key[len(lo)]; {
		case x.e.Type == osier.KVLists && tag == tagValue:
			if want := x.place(int64(n)); !bytes.Equal(want, key) {
				problem = fmt.Errorf("element %d of the list is missing", n)
				return false
			}
			n++
		case x.e.Type == osier.KVHashes && tag == tagField, x.e.Type == osier.KVSets && tag == tagMember:
			n++
		case x.e.Type == osier.KVSorteds && tag == tagMember && len(value) == 8:
			scores[string(value)+string(tail)] = true
			n++
		case x.e.Type == osier.KVSorteds && tag == tagScore && len(tail) >= 8:
			if !scores[string(tail)] {
				problem = fmt.Errorf("member %q has a place that is not its score's", tail[8:])
				return false
			}
			delete(scores, string(tail))
		case x.e.Type == osier.KVSorteds && tag == tagCount:
		default:
			problem = fmt.Errorf("a row %q does not belong to %v", key[len(lo):], x.e.Type)
			return false
		}
		return true
	})
	out.Elements += n
	switch {
	case err != nil || problem != nil:
		return problem, err
	case n != x.e.Count:
		return fmt.Errorf("it counts %d elements, found are %d", x.e.Count, n), nil
	case x.e.Type == osier.KVSorteds:
		return x.verifyLevels()
	}
	return nil, nil
}

// verifyLevels checks the counts of ranks: each boundary's is what lies up to the next.
func (x *structure) verifyLevels() (problem, err error) {
	places := uint64(0)
	for level := uint64(1); level <= x.e.Levels; level++ {
		var all []boundary
		lo, hi, base := x.levelRange(level, "", "")
		err := x.s.Rows.Scan(lo, hi, false, func(key, value []byte) bool {
			n, _ := binary.Uvarint(value)
			all = append(all, boundary{string(key[base:]), n})
			return true
		})
		if err != nil {
			return nil, err
		}
		if len(all) == 0 || all[0].at != "" {
			return fmt.Errorf("level %d of its ranks has no beginning", level), nil
		}
		for i, b := range all {
			next := ""
			if i+1 < len(all) {
				next = all[i+1].at
			}
			n, err := x.countElements(b.at, next)
			if err != nil {
				return nil, err
			}
			if n != b.count {
				return fmt.Errorf("level %d of its ranks counts %d elements where there are %d", level, b.count, n), nil
			}
			places += n
		}
	}
	if want := x.e.Levels * x.e.Count; places != want {
		return fmt.Errorf("its ranks cover %d places of %d", places, want), nil
	}
	return nil, nil
}

// deadlines checks that rows of deadlines and heads name each other.
func (v *verifier) deadlines() error {
	var bad error
	err := v.base.Scan([]byte{SpaceExpiry}, []byte{SpaceExpiry + 1}, false, func(row, _ []byte) bool {
		deadline, num, key, err := ParseExpiry(row)
		switch {
		case err != nil:
			bad = v.report("", "", err)
		case !v.listed[string(row)]:
			bad = v.report(v.names[num], key, fmt.Errorf("it is listed to expire at %d, but does not", deadline))
		}
		delete(v.listed, string(row))
		return bad == nil
	})
	if err = first(bad, err); err != nil {
		return err
	}
	for row := range v.listed {
		deadline, num, key, _ := ParseExpiry([]byte(row))
		if err := v.report(v.names[num], key, fmt.Errorf("it expires at %d, but is not listed", deadline)); err != nil {
			return err
		}
	}
	return nil
}

// orphans looks for rows that belong to no namespace or structure.
func (v *verifier) orphans() error {
	for _, r := range strays(v.base, v.names, v.ids) {
		if r.err != nil {
			return r.err
		}
		if err := v.report("", "", fmt.Errorf("rows of %q belong to nothing", r.lo)); err != nil {
			return err
		}
	}
	return nil
}

// stray is a range of rows that belong to nothing.
type stray struct {
	lo, hi []byte
	err    error
}

// strays finds them by jumping from one namespace or structure to the next.
func strays(base Base, names map[uint32]string, ids map[[12]byte]bool) (out []stray) {
	at := []byte{SpaceKey, 0, 0, 0, 1}
	for {
		key, err := seek(base, at, []byte{SpaceKey + 1})
		if err != nil || key == nil {
			if err != nil {
				out = append(out, stray{err: err})
			}
			break
		}
		lo := slices.Clone(key[:min(5, len(key))])
		if len(lo) < 5 || names[binary.BigEndian.Uint32(lo[1:])] == "" {
			out = append(out, stray{lo: lo, hi: PrefixEnd(lo)})
		}
		at = PrefixEnd(lo)
	}
	at = []byte{SpaceElement}
	for {
		key, err := seek(base, at, []byte{SpaceElement + 1})
		if err != nil || key == nil {
			if err != nil {
				out = append(out, stray{err: err})
			}
			return out
		}
		lo := slices.Clone(key[:min(13, len(key))])
		if len(lo) < 13 || !ids[[12]byte(lo[1:])] {
			out = append(out, stray{lo: lo, hi: PrefixEnd(lo)})
		}
		at = PrefixEnd(lo)
	}
}

// seek returns the first row from lo on, nil if there is none before hi.
func seek(base Base, lo, hi []byte) (row []byte, err error) {
	err = base.Scan(lo, hi, false, func(key, _ []byte) bool {
		row = slices.Clone(key)
		return false
	})
	return row, err
}
