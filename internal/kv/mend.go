package kv

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/osierdb/osier"
)

// Mend makes the key-values of a database fit together again after rows were
// lost: counts and ranks are derived anew, lists close up, rows that belong to
// nothing go. What is lost for good is reported, by namespace and key. The
// changes are in s.Rows.
func Mend(s *Space, lost func(namespace, key string, err error)) error {
	m := &mender{s: s, lost: lost, names: map[uint32]string{}, ids: map[[12]byte]bool{}}
	if err := m.namespaces(); err != nil {
		return err
	}
	for _, n := range m.all {
		if err := m.namespace(n); err != nil {
			return err
		}
	}
	if err := m.deadlines(); err != nil {
		return err
	}
	for _, r := range strays(s.Rows, m.names, m.ids) {
		if r.err != nil {
			return r.err
		}
		s.Rows.DeleteRange(r.lo, r.hi)
		lost("", "", fmt.Errorf("elements of a key that is lost"))
	}
	if len(m.all) > 0 || m.found {
		s.Rows.Set(stateKey(), s.state.Append(nil))
	}
	return nil
}

type mender struct {
	s     *Space
	lost  func(namespace, key string, err error)
	all   []*namespace
	names map[uint32]string
	ids   map[[12]byte]bool
	found bool // there was a state's record
	rows  [][]byte
}

// namespaces finds the namespaces; one whose record is lost gets a name anew.
func (m *mender) namespaces() error {
	b, found, err := m.s.Rows.Get(stateKey())
	if err != nil {
		return err
	}
	if m.found = found; found {
		if m.s.state, err = DecodeState(b); err != nil {
			m.lost("", "", errors.New("the counters are damaged; they are derived anew"))
		}
	}
	m.s.loaded = true
	lo := NamespacePrefix()
	var damaged [][]byte
	err = m.s.Rows.Scan(lo, PrefixEnd(lo), false, func(key, value []byte) bool {
		name := string(key[len(lo):])
		n, err := DecodeNamespace(value)
		if err != nil {
			m.lost(name, "", errors.New("its record is damaged"))
			damaged = append(damaged, slices.Clone(key))
			return true
		}
		m.names[n.Num] = name
		m.all = append(m.all, &namespace{Namespace: n, name: name, known: true})
		return true
	})
	for _, key := range damaged {
		m.s.Rows.Delete(key)
	}
	for _, r := range strays(m.s.Rows, m.names, nil) {
		if r.err != nil || len(r.lo) != 5 || r.lo[0] != SpaceKey {
			continue
		}
		n := &namespace{known: true}
		n.Num = uint32(r.lo[1])<<24 | uint32(r.lo[2])<<16 | uint32(r.lo[3])<<8 | uint32(r.lo[4])
		n.name = fmt.Sprintf("recovered_%d", n.Num)
		m.lost(n.name, "", errors.New("the name of this namespace is lost"))
		m.names[n.Num] = n.name
		m.all = append(m.all, n)
	}
	for _, n := range m.all {
		m.s.state.Namespaces = max(m.s.state.Namespaces, n.Num)
	}
	return err
}

// namespace goes through a namespace's keys and counts them anew.
func (m *mender) namespace(n *namespace) error {
	lo := HeadKey(nil, n.Num, "")
	var keys []string
	if err := m.s.Rows.Scan(lo, PrefixEnd(lo), false, func(row, _ []byte) bool {
		keys = append(keys, string(row[len(lo):]))
		return true
	}); err != nil {
		return err
	}
	n.Keys = 0
	for _, key := range keys {
		b, _, err := m.s.Rows.Get(HeadKey(nil, n.Num, key))
		if err != nil {
			return err
		}
		e, err := DecodeEntry(b)
		if err != nil {
			m.lost(n.name, key, errors.New("its record is damaged"))
			m.s.Rows.Delete(HeadKey(nil, n.Num, key))
			continue
		}
		e.Value = slices.Clone(e.Value)
		if e.ID != 0 {
			kept, err := m.structure(n, key, &e)
			if err != nil {
				return err
			}
			if !kept {
				continue
			}
		}
		if e.Deadline != 0 {
			m.rows = append(m.rows, ExpiryKey(nil, e.Deadline, n.Num, key))
		}
		n.Keys++
		n.Newest = max(n.Newest, e.Version)
	}
	m.s.state.Version = max(m.s.state.Version, n.Newest)
	m.s.Rows.Set(namespaceKey(n.name), n.Append(nil))
	return nil
}

// structure builds a structure anew from the rows that hold its elements, if it
// does not fit together.
func (m *mender) structure(n *namespace, key string, e *Entry) (kept bool, err error) {
	x := &structure{s: m.s, num: n.Num, op: &osier.KVOp{Namespace: n.name, Key: key}, e: e, res: &osier.KVResult{}}
	lo := ElementKey(nil, n.Num, e.ID)
	m.ids[[12]byte(lo[1:])] = true
	problem, err := x.verify(&Checked{})
	if err != nil || problem == nil {
		return err == nil, err
	}
	m.lost(n.name, key, fmt.Errorf("elements are lost: %w", problem))
	type row struct{ key, value []byte }
	var rows []row
	err = m.s.Rows.Scan(lo, PrefixEnd(lo), false, func(key, value []byte) bool {
		rows = append(rows, row{slices.Clone(key[len(lo):]), slices.Clone(value)})
		return true
	})
	if err != nil {
		return false, err
	}
	m.s.Rows.DeleteRange(lo, PrefixEnd(lo))
	e.Count, e.First, e.Levels = 0, 0, 0
	for _, r := range rows {
		if len(r.key) == 0 {
			continue
		}
		name := string(r.key[1:])
		switch tag := r.key[0]; {
		case e.Type == osier.KVLists && tag == tagValue:
			m.s.Rows.Set(x.place(int64(e.Count)), r.value)
			e.Count++
		case e.Type == osier.KVHashes && tag == tagField, e.Type == osier.KVSets && tag == tagMember:
			m.s.Rows.Set(x.row(tag, name), r.value)
			e.Count++
		case e.Type == osier.KVSorteds && tag == tagMember && len(r.value) == 8:
			if _, _, err := x.placeScored(name, scoreOf(r.value)); err != nil {
				return false, err
			}
		case e.Type == osier.KVSorteds && tag == tagScore && len(name) >= 8:
			// The place tells the score of a member whose own row is lost.
			if _, found, err := x.score(name[8:]); err != nil || found {
				continue
			}
			if _, _, err := x.placeScored(name[8:], scoreOf([]byte(name))); err != nil {
				return false, err
			}
		}
	}
	if e.Count == 0 {
		m.s.Rows.Delete(HeadKey(nil, n.Num, key))
		return false, nil
	}
	m.s.Rows.Set(HeadKey(nil, n.Num, key), e.Append(nil))
	return true, nil
}

// deadlines lists deadlines anew where that differs.
func (m *mender) deadlines() error {
	slices.SortFunc(m.rows, bytes.Compare)
	var wrong [][]byte
	have := map[string]bool{}
	err := m.s.Rows.Scan([]byte{SpaceExpiry}, []byte{SpaceExpiry + 1}, false, func(row, _ []byte) bool {
		if _, wanted := slices.BinarySearchFunc(m.rows, row, bytes.Compare); !wanted {
			wrong = append(wrong, slices.Clone(row))
		}
		have[string(row)] = true
		return true
	})
	for _, row := range wrong {
		m.s.Rows.Delete(row)
	}
	for _, row := range m.rows {
		if !have[string(row)] {
			m.s.Rows.Set(row, nil)
		}
	}
	return err
}
