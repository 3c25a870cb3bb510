package pocket

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"
	"unsafe"
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
	cond  *Condition // nil for none
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
}

// maxPooled is how large the parts of a transaction may be that are kept for
// the next one.
const maxPooled = 8 << 20

// prepare encodes changes outside the write lock. The transaction is given
// back with release.
func (s *Store) prepare(changes []Change) (*txn, error) {
	tx := s.txns.Get().(*txn)
	tx.ops = slices.Grow(tx.ops, len(changes))
	if len(changes) > 1 {
		tx.body = slices.Grow(tx.body, min(len(changes)*96, 64<<20)) // most lines are shorter
	}
	for i := range changes {
		tx.ops = tx.ops[:i+1]
		if err := s.addChange(tx, &tx.ops[i], &changes[i]); err != nil {
			s.release(tx)
			return nil, err
		}
	}
	return tx, nil
}

// release ends the use of a transaction that prepare has made.
func (s *Store) release(tx *txn) {
	if cap(tx.body) > maxPooled || cap(tx.ops)*int(unsafe.Sizeof(op{})) > maxPooled {
		return
	}
	clear(tx.ops)
	*tx = txn{ops: tx.ops[:0], body: tx.body[:0]}
	s.txns.Put(tx)
}

// addChange makes o, which is zero, of c.
func (s *Store) addChange(tx *txn, o *op, c *Change) error {
	if err := validKey(c.Key); err != nil {
		return invalid("key %.40q: %v", c.Key, err)
	}
	o.check = c.Check
	o.draft.key = c.Key
	o.draft.hash = s.hasher.hash(c.Key)
	if c.If.kind != condNone {
		cond := c.If
		o.cond, tx.conditional = &cond, true
	}
	if c.If.kind == condValue {
		enc, err := s.types.encode(&s.pool, c.If.value)
		if err != nil {
			return withKey(err, c.Key)
		}
		o.cond.enc = enc
	}
	if c.Check {
		return nil
	}
	if !c.Expires.IsZero() && !isNil(c.Value) {
		if c.Expires.Year() > 9999 {
			return invalid("key %q: expiry %v", c.Key, c.Expires)
		}
		o.draft.expiry = max(c.Expires.UnixMilli(), 1)
	}
	if err := s.addLine(tx, &o.draft, c.Value); err != nil {
		return withKey(err, c.Key)
	}
	tx.n++
	return nil
}

// addLine appends a record's line to the transaction's body. The draft's value
// shares its bytes: also when the body grows, and moves, the old ones stay.
func (s *Store) addLine(tx *txn, d *draft, value any) error {
	b := tx.body
	at := 0
	switch v := value.(type) {
	case string:
		if d.plain = isPlain(v) && len(v) <= MaxValueBytes/6; !d.plain {
			if err := validText(v); err != nil {
				return err
			}
		}
		b = appendRecordHead(b, d.key, "", 0, d.expiry)
		at = len(b)
		if d.plain {
			b = appendPlain(b, v)
		} else {
			b = appendQuoted(b, v)
		}
	default:
		if isNil(value) {
			d.deleted = true
			tx.body = appendRecord(b, d.key, "", "", 0, 0)
			return nil
		}
		if t := s.types.lookup(reflect.TypeOf(value)); t != nil {
			d.typeID = t.id
			b = appendRecordHead(b, d.key, s.types.name(t.id), 0, d.expiry)
			at = len(b)
			var err error
			if b, err = t.append(b, &s.pool, value); err != nil {
				return err
			}
			break
		}
		enc, err := s.types.encode(&s.pool, value)
		if err != nil {
			return err
		}
		d.typeID = enc.typeID
		b = appendRecordHead(b, d.key, s.types.name(enc.typeID), 0, d.expiry)
		at = len(b)
		b = append(b, enc.json...)
	}
	d.value = viewString(b[at:])
	tx.body = append(b, recordEnd...)
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
	return reflect.TypeOf(v).Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil()
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
	v, err := Version(tx.seq), tx.err
	s.release(tx)
	return v, err
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
