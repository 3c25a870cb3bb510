package pocket

import (
	"encoding/json"
	"reflect"
	"time"
)

// A Change is one part of a transaction: save, delete or only check a record.
type Change struct {
	Key string
	// Value to save; nil deletes, whether the key exists or not.
	Value any
	// Expires is the moment from which the record is gone, exact to the
	// millisecond; the zero time for never.
	Expires time.Time
	// If must hold, or nothing of the transaction is done.
	If Condition
	// Check leaves the record as it is: only If counts.
	Check bool
}

// A Condition on what is stored under a key. The zero Condition always holds.
type Condition struct {
	kind    condKind
	version Version
	value   any
	enc     encoded
}

type condKind int

const (
	condNone condKind = iota
	condAbsent
	condVersion
	condValue
)

// Absent holds when nothing is stored under the key.
func Absent() Condition { return Condition{kind: condAbsent} }

// At holds when the record has the version v; At(0) is Absent.
func At(v Version) Condition {
	if v == 0 {
		return Absent()
	}
	return Condition{kind: condVersion, version: v}
}

// Equals holds when the record's value is v, compared by their JSON forms and,
// when those differ, by what v's Go type makes of the record. Equals(nil) is
// Absent.
func Equals(v any) Condition {
	if v == nil {
		return Absent()
	}
	return Condition{kind: condValue, value: v}
}

// op is a Change made ready.
type op struct {
	draft draft
	cond  Condition
	check bool
}

// txn is a transaction on its way.
type txn struct {
	ops  []op
	body []byte // record lines
	n    int    // of them
	err  error
	seq  uint64 // 0 when nothing was written

	conditional bool
	expired     bool // made by the expiry
	one         [1]op
}

// prepare encodes changes outside the write lock.
func (s *Store) prepare(changes []Change) (*txn, error) {
	tx := &txn{}
	if tx.ops = tx.one[:0]; len(changes) > 1 {
		tx.ops = make([]op, 0, len(changes))
		tx.body = make([]byte, 0, min(len(changes)*96, 64<<20)) // most lines are shorter
	}
	for i := range changes {
		if err := s.addChange(tx, &changes[i]); err != nil {
			return nil, err
		}
	}
	return tx, nil
}

func (s *Store) addChange(tx *txn, c *Change) error {
	if err := validKey(c.Key); err != nil {
		return invalid("key %.40q: %v", c.Key, err)
	}
	o := op{check: c.Check, cond: c.If}
	o.draft.key = c.Key
	o.draft.hash = s.hasher.hash(c.Key)
	if c.If.kind != condNone {
		tx.conditional = true
	}
	if c.If.kind == condValue {
		enc, err := s.types.encode(&s.pool, c.If.value)
		if err != nil {
			return withKey(err, c.Key)
		}
		o.cond.enc = enc
	}
	if c.Check {
		tx.ops = append(tx.ops, o)
		return nil
	}
	if isNil(c.Value) {
		o.draft.deleted = true
	} else {
		enc, err := s.types.encode(&s.pool, c.Value)
		if err != nil {
			return withKey(err, c.Key)
		}
		o.draft.value, o.draft.typeID = enc.json, enc.typeID
		if !c.Expires.IsZero() {
			o.draft.expiry = max(c.Expires.UnixMilli(), 1)
			if c.Expires.Year() > 9999 {
				return invalid("key %q: expiry %v", c.Key, c.Expires)
			}
		}
	}
	if tx.body == nil {
		tx.body = make([]byte, 0, len(c.Key)+len(o.draft.value)+64)
	}
	tx.body = appendRecord(tx.body, o.draft.key, s.types.name(o.draft.typeID), o.draft.value, 0, o.draft.expiry)
	tx.n++
	tx.ops = append(tx.ops, o)
	return nil
}

// isNil is true for nil and for nil pointers.
func isNil(v any) bool {
	switch v.(type) {
	case nil:
		return true
	case string, int, bool:
		return false
	}
	x := reflect.ValueOf(v)
	return x.Kind() == reflect.Pointer && x.IsNil()
}

func withKey(err error, key string) error {
	if te, ok := err.(*TypeError); ok {
		return invalid("key %q: type %v is not registered in Options.Types", key, te.Wanted)
	}
	return err
}

// Save stores value under key, whatever was there. See SaveAll for values.
func (s *Store) Save(key string, value any) error {
	_, err := s.SaveAll(Change{Key: key, Value: value})
	return err
}

// SaveFor stores value under key for a limited time.
func (s *Store) SaveFor(key string, value any, ttl time.Duration) error {
	_, err := s.SaveAll(Change{Key: key, Value: value, Expires: time.Now().Add(ttl)})
	return err
}

// Delete removes the records that exist of keys, in one transaction.
func (s *Store) Delete(keys ...string) error {
	changes := make([]Change, len(keys))
	for i, k := range keys {
		changes[i].Key = k
	}
	_, err := s.SaveAll(changes...)
	return err
}

// SaveAll makes all changes or, with an error, none: one transaction. When a
// key comes twice, the later change counts; conditions look at the state
// before the transaction. It returns the version that the saved records have.
//
// A value is a text, boolean or number, of a registered type or a pointer to
// it, a Raw, a Record, or nil to delete. It is encoded before SaveAll returns
// and may be changed afterwards.
//
// An error that matches ErrConflict says that a condition did not hold, one
// that matches ErrInvalid that something cannot be stored. Any other error
// leaves open whether the transaction is on the disk; it is not visible. A
// full disk is such an error, and leaves the store usable.
func (s *Store) SaveAll(changes ...Change) (Version, error) {
	if s.opts.ReadOnly {
		return 0, ErrReadOnly
	}
	tx, err := s.prepare(changes)
	if err != nil {
		return 0, err
	}
	s.do(tx)
	return Version(tx.seq), tx.err
}

// Update stores value under key if cond holds, and returns its version. It
// returns a ConflictError when cond does not hold. A nil value deletes.
func (s *Store) Update(key string, cond Condition, value any) (Version, error) {
	return s.SaveAll(Change{Key: key, If: cond, Value: value})
}

// Swap stores value under key if cond holds, and returns what is stored
// afterwards: value, or else what kept cond from holding. The Item's Version
// is 0 when nothing is stored.
func Swap[T any](s *Store, key string, cond Condition, value T) (stored Item[T], swapped bool, err error) {
	for {
		c := Change{Key: key, If: cond, Value: value}
		v, err := s.SaveAll(c)
		if err == nil {
			return Item[T]{Key: key, Value: value, Version: v}, true, nil
		}
		conflict, ok := err.(*ConflictError)
		if !ok {
			return stored, false, err
		}
		r, found := s.lookup(key)
		switch {
		case !found && conflict.Version == 0:
			return Item[T]{Key: key}, false, nil
		case found && Version(r.version()) == conflict.Version:
			stored, err = itemOf[T](s, r)
			return stored, false, err
		}
		// It has changed since: ask again, so that the answer is what was
		// stored when the condition was judged.
	}
}

// holds judges a condition. stored is the value in force, version 0 for none.
func (s *Store) holds(c *Condition, version uint64, stored encoded) bool {
	switch c.kind {
	case condAbsent:
		return version == 0
	case condVersion:
		return version == uint64(c.version)
	case condValue:
		if version == 0 || stored.typeID != c.enc.typeID {
			return false
		}
		return stored.json == c.enc.json || s.sameValue(stored, c)
	}
	return true
}

// sameValue compares by what the condition's Go type makes of the stored
// value: files written by hand have other spaces and orders of members.
func (s *Store) sameValue(stored encoded, c *Condition) bool {
	t := reflect.TypeOf(c.value)
	if t == reflect.TypeFor[Raw]() || t == reflect.TypeFor[Record]() || t == reflect.TypeFor[json.RawMessage]() {
		return sameJSON(stored.json, c.enc.json)
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	x := reflect.New(t)
	if err := json.Unmarshal([]byte(stored.json), x.Interface()); err != nil {
		return false
	}
	enc, err := s.types.encode(&s.pool, x.Elem().Interface())
	return err == nil && enc.json == c.enc.json
}

// sameJSON compares two JSON values without regard to spaces and the order of
// members.
func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}
