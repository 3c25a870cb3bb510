package kv

import (
	"errors"
	"slices"

	"github.com/osierdb/osier"
)

// Event is the new state of a key that a command changed.
type Event struct {
	Namespace string
	Key       string
	Entry     Entry // Type KVNone: gone, at Version
	Expired   bool
}

// Space is the key-values of a database while a command is carried out, or a
// query answered, on an Overlay.
type Space struct {
	Rows *Overlay
	// Now is the sealed time, or a query's, in milliseconds.
	Now    int64
	Events []Event
	// Counters holds them from command to command; nil: they are read from rows
	// and written there.
	Counters *Counters

	state    State
	loaded   bool // state is
	dirty    bool // state is
	spaces   map[string]*namespace
	newNames []string
	buf      []byte
}

// Counters are a database's counters of key-values while many commands are
// carried out. Whoever lets commands fail halfway must begin with new ones.
type Counters struct {
	state  State
	loaded bool
	dirty  bool
	spaces map[string]Namespace // Num 0: there is none
	moved  map[string]bool      // whose rows are to be written
}

// Flush writes what has moved.
func (c *Counters) Flush(set func(key, value []byte) error) error {
	for name := range c.moved {
		if n := c.spaces[name]; n.Num != 0 {
			if err := set(namespaceKey(name), n.Append(nil)); err != nil {
				return err
			}
		}
	}
	clear(c.moved)
	if !c.dirty {
		return nil
	}
	c.dirty = false
	return set(stateKey(), c.state.Append(nil))
}

// keep takes a command's counters.
func (c *Counters) keep(s *Space) {
	if c.spaces == nil {
		c.spaces, c.moved = map[string]Namespace{}, map[string]bool{}
	}
	for _, name := range s.newNames {
		n := s.spaces[name]
		if !n.known {
			n.Namespace = Namespace{}
		}
		c.spaces[name] = n.Namespace
		if n.dirty {
			c.moved[name] = true
		}
	}
	if s.loaded {
		c.state, c.loaded = s.state, true
		c.dirty = c.dirty || s.dirty
	}
}

type namespace struct {
	Namespace
	name  string
	known bool // it has a number
	dirty bool
}

// NewSpace works on rows.
func NewSpace(base Base, now int64) *Space {
	return &Space{Rows: NewOverlay(base), Now: now, spaces: map[string]*namespace{}}
}

func (s *Space) loadState() error {
	if s.loaded {
		return nil
	}
	if s.Counters != nil && s.Counters.loaded {
		s.state, s.loaded = s.Counters.state, true
		return nil
	}
	b, found, err := s.Rows.Get(stateKey())
	if err != nil {
		return err
	}
	if found {
		if s.state, err = DecodeState(b); err != nil {
			return corrupt("", "", err)
		}
	}
	s.loaded = true
	return nil
}

func corrupt(namespace, key string, err error) error {
	return &osier.Error{Kind: osier.KindCorrupt, Op: "read key-value", Collection: "kv:" + namespace, ID: key, Err: err}
}

// space finds a namespace; with create it gets a number.
func (s *Space) space(name string, create bool) (*namespace, error) {
	n := s.spaces[name]
	if n == nil {
		n = &namespace{name: name}
		if err := s.readSpace(n); err != nil {
			return nil, err
		}
		s.spaces[name] = n
		s.newNames = append(s.newNames, name)
	}
	if create && !n.known {
		if err := s.loadState(); err != nil {
			return nil, err
		}
		s.state.Namespaces++
		s.dirty = true
		n.Namespace = Namespace{Num: s.state.Namespaces}
		n.known, n.dirty = true, true
	}
	return n, nil
}

// readSpace finds a namespace's record.
func (s *Space) readSpace(n *namespace) error {
	if s.Counters != nil {
		if kept, ok := s.Counters.spaces[n.name]; ok {
			n.Namespace, n.known = kept, kept.Num != 0
			return nil
		}
	}
	b, found, err := s.Rows.Get(namespaceKey(n.name))
	if err != nil || !found {
		return err
	}
	if n.Namespace, err = DecodeNamespace(b); err != nil {
		return corrupt(n.name, "", err)
	}
	n.known = true
	return nil
}

// head reads a key's head as it is stored, past its deadline or not. Its Value
// is valid until the next read.
func (s *Space) head(n *namespace, key string) (Entry, error) {
	if !n.known {
		return Entry{}, nil
	}
	s.buf = HeadKey(s.buf[:0], n.Num, key)
	b, found, err := s.Rows.Get(s.buf)
	if err != nil || !found {
		return Entry{}, err
	}
	e, err := DecodeEntry(b)
	if err != nil {
		return Entry{}, corrupt(n.name, key, err)
	}
	return e, nil
}

// live is head without what is past its deadline.
func (s *Space) live(n *namespace, key string) (Entry, error) {
	e, err := s.head(n, key)
	if err != nil || !e.Live(s.Now) {
		return Entry{}, err
	}
	return e, nil
}

// put makes next the state of a key: its head, its place among the deadlines,
// the namespace's counters, an event. What a structure leaves behind goes.
func (s *Space) put(n *namespace, key string, old, next *Entry, version uint64, expired bool) error {
	if old.ID != 0 && old.ID != next.ID {
		lo := ElementKey(nil, n.Num, old.ID)
		s.Rows.DeleteRange(lo, PrefixEnd(lo))
	}
	if old.Deadline != 0 && old.Deadline != next.Deadline {
		s.Rows.Delete(ExpiryKey(nil, old.Deadline, n.Num, key))
	}
	if next.Deadline != 0 && old.Deadline != next.Deadline {
		s.Rows.Set(ExpiryKey(nil, next.Deadline, n.Num, key), nil)
	}
	next.Version = version
	if next.Type == osier.KVNone {
		s.Rows.Delete(HeadKey(nil, n.Num, key))
	} else {
		s.Rows.Set(HeadKey(nil, n.Num, key), next.Append(nil))
	}
	switch {
	case old.Type == osier.KVNone && next.Type != osier.KVNone:
		n.Keys++
	case old.Type != osier.KVNone && next.Type == osier.KVNone:
		if n.Keys == 0 {
			return corrupt(n.name, key, errors.New("the count of keys is too low"))
		}
		n.Keys--
	}
	n.Newest, n.dirty = max(n.Newest, version), true
	s.Events = append(s.Events, Event{Namespace: n.name, Key: key, Entry: *next, Expired: expired})
	return s.advance(version)
}

func (s *Space) advance(version uint64) error {
	if err := s.loadState(); err != nil {
		return err
	}
	if version > s.state.Version {
		s.state.Version, s.dirty = version, true
	}
	return nil
}

// Do carries an operation out. On an error nothing is changed.
func (s *Space) Do(op *osier.KVOp, version uint64, res *osier.KVResult) error {
	n, err := s.space(op.Namespace, false)
	if err != nil {
		return err
	}
	if !n.known {
		// It needs a number for its rows, and loses it again if there are none.
		if n, err = s.space(op.Namespace, true); err != nil {
			return err
		}
		defer func() {
			if n.Keys == 0 {
				s.state.Namespaces--
				n.known, n.dirty = false, false
			}
		}()
	}
	stored, err := s.head(n, op.Key)
	if err != nil {
		return err
	}
	if op.Verb != osier.KVSet || op.Previous || op.If == osier.IfEqual {
		stored.Value = slices.Clone(stored.Value)
	}
	old := stored
	if old.Expired(s.Now) {
		old = Entry{}
	}
	next, changed := old, false
	switch {
	case IsPlain(op.Verb) && (old.Type <= osier.KVPlain || op.Verb == osier.KVSet || op.Verb == osier.KVDelete):
		changed, err = Plain(&old, op, s.Now, version, nil, &next, res)
	case op.Verb == osier.KVExpire || op.Verb == osier.KVPersist:
		changed, err = s.expire(&old, op, &next, res)
	case IsPlain(op.Verb):
		if err = Check(&old, op); err == nil {
			err = mismatch(op, &old)
		}
	default:
		changed, err = s.structure(n, &old, op, version, &next, res)
	}
	if err != nil || !changed {
		return err
	}
	if next.Type == osier.KVPlain {
		next = Entry{Type: osier.KVPlain, Deadline: next.Deadline, Value: next.Value}
	}
	if err := s.put(n, op.Key, &stored, &next, version, false); err != nil {
		return err
	}
	Show(&next, res)
	return nil
}

// expire changes the deadline of a structure.
func (s *Space) expire(old *Entry, op *osier.KVOp, next *Entry, res *osier.KVResult) (changed bool, err error) {
	if err := Check(old, op); err != nil {
		return false, err
	}
	if old.Type == osier.KVLeases {
		return false, mismatch(op, old)
	}
	res.Found = true
	next.Deadline = op.Deadline
	if next.Expired(s.Now) {
		*next = Entry{}
	}
	Show(old, res)
	return old.Deadline != op.Deadline, nil
}

// structure carries out a verb on a list, hash, set, sorted set or lease.
func (s *Space) structure(n *namespace, old *Entry, op *osier.KVOp, version uint64, next *Entry, res *osier.KVResult) (changed bool, err error) {
	if err := Check(old, op); op.If != osier.IfAny && err != nil {
		return false, err
	}
	typ, do := verbOf(op.Verb)
	if do == nil {
		return false, Fail(op, osier.KindUnsupported, "this version does not know the operation %d", op.Verb)
	}
	if old.Type != osier.KVNone && old.Type != typ {
		return false, mismatch(op, old)
	}
	res.Found = old.Type != osier.KVNone
	if !res.Found {
		*next = Entry{Type: typ, ID: version}
		if typ == osier.KVLeases {
			next.ID = 0
		}
	}
	x := &structure{s: s, num: n.Num, op: op, e: next, res: res, version: version, fresh: !res.Found}
	changed, err = do(x)
	if err != nil {
		return false, err
	}
	if next.Type != osier.KVLeases && next.Count == 0 {
		// The last element went, or none came.
		if *next = (Entry{}); !res.Found {
			changed = false
		}
	}
	Show(next, res)
	if !changed {
		Show(old, res)
	}
	return changed, nil
}

// Expire removes a key if it has that deadline still and it has passed.
func (s *Space) Expire(name, key string, deadline int64, version uint64) (gone bool, err error) {
	n, err := s.space(name, false)
	if err != nil || !n.known {
		return false, err
	}
	e, err := s.head(n, key)
	if err != nil || e.Deadline == deadline && !e.Expired(s.Now) {
		return false, err
	}
	if e.Type == osier.KVNone || e.Deadline != deadline {
		s.Rows.Delete(ExpiryKey(nil, deadline, n.Num, key)) // left behind by damage
		return false, nil
	}
	return true, s.put(n, key, &e, &Entry{}, version, true)
}

// Drop deletes a namespace and all in it. Cost: a step for each of its keys that
// has a deadline.
func (s *Space) Drop(name string) (existed bool, err error) {
	n, err := s.space(name, false)
	if err != nil || !n.known {
		return false, err
	}
	var gone [][]byte
	lo := HeadKey(nil, n.Num, "")
	var bad error
	err = s.Rows.Scan(lo, PrefixEnd(lo), false, func(key, value []byte) bool {
		e, err := DecodeEntry(value)
		if err != nil {
			bad = corrupt(name, string(key[len(lo):]), err)
			return false
		}
		if e.Deadline != 0 {
			gone = append(gone, ExpiryKey(nil, e.Deadline, n.Num, string(key[len(lo):])))
		}
		return true
	})
	if err = errors.Join(err, bad); err != nil {
		return false, err
	}
	for _, k := range gone {
		s.Rows.Delete(k)
	}
	s.Rows.DeleteRange(lo, PrefixEnd(lo))
	elements := ElementKey(nil, n.Num, 0)[:5]
	s.Rows.DeleteRange(elements, PrefixEnd(elements))
	s.Rows.Delete(namespaceKey(name))
	*n = namespace{name: name}
	return true, nil
}

// Finish writes the counters that moved.
func (s *Space) Finish() error {
	if s.Counters != nil {
		s.Counters.keep(s)
		return nil
	}
	for _, name := range s.newNames {
		n := s.spaces[name]
		if n.dirty {
			s.Rows.Set(namespaceKey(name), n.Append(nil))
			n.dirty = false
		}
	}
	if s.dirty {
		s.Rows.Set(stateKey(), s.state.Append(nil))
		s.dirty = false
	}
	return nil
}

// Version returns a live key's version, 0 if it is vacant.
func (s *Space) Version(name, key string) (uint64, error) {
	n, err := s.space(name, false)
	if err != nil {
		return 0, err
	}
	e, err := s.live(n, key)
	return e.Version, err
}

// Newest returns the version of a namespace's latest change.
func (s *Space) Newest(name string) (uint64, error) {
	n, err := s.space(name, false)
	if err != nil {
		return 0, err
	}
	return n.Newest, nil
}
