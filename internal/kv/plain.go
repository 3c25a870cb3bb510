package kv

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/osierdb/osier"
)

// IsPlain reports whether a verb works on plain values alone.
func IsPlain(v osier.KVVerb) bool { return v >= osier.KVSet && v <= osier.KVAppend }

// Fail is an operation's refusal.
func Fail(op *osier.KVOp, kind osier.Kind, format string, args ...any) *osier.Error {
	e := &osier.Error{Kind: kind, Op: step(op.Verb), Collection: "kv:" + op.Namespace, ID: op.Key}
	if format != "" {
		e.Err = fmt.Errorf(format, args...)
	}
	return e
}

func step(v osier.KVVerb) string {
	switch v {
	case osier.KVSet:
		return "set"
	case osier.KVDelete:
		return "delete"
	case osier.KVExpire:
		return "set expiry"
	case osier.KVPersist:
		return "persist"
	case osier.KVAddInt, osier.KVAddUint, osier.KVAddFloat:
		return "add"
	case osier.KVAppend:
		return "append"
	}
	switch {
	case v < osier.KVHashSet:
		return "change list"
	case v < osier.KVSetAdd:
		return "change hash"
	case v < osier.KVSortedAdd:
		return "change set"
	case v < osier.KVLeaseAcquire:
		return "change sorted set"
	}
	return "lease"
}

// mismatch is the refusal of an operation on another type.
func mismatch(op *osier.KVOp, e *Entry) *osier.Error {
	return Fail(op, osier.KindInvalid, "the key holds %v", e.Type)
}

// Check judges an operation's condition on the present state, whose Type is
// KVNone if the key is vacant.
func Check(old *Entry, op *osier.KVOp) error {
	present := old.Type != osier.KVNone
	switch op.If {
	case osier.IfAny:
		return nil
	case osier.IfVacant:
		if !present {
			return nil
		}
		return Fail(op, osier.KindConflict, "the key is there")
	case osier.IfPresent:
		if present {
			return nil
		}
		return Fail(op, osier.KindConflict, "the key is not there")
	case osier.IfEqual:
		if old.Type == osier.KVPlain && bytes.Equal(old.Value, op.IfValue) {
			return nil
		}
		return Fail(op, osier.KindConflict, "the value is another")
	case osier.IfVersion:
		if present && old.Version == op.IfVersion || !present && op.IfVersion == 0 {
			return nil
		}
		return Fail(op, osier.KindConflict, "the key is at version %d, not %d", old.Version, op.IfVersion)
	}
	return Fail(op, osier.KindInvalid, "unknown condition %d", op.If)
}

// Plain is the effect of an operation on a key that is vacant or holds a plain
// value: from the old state, the operation and what sealing fixed to the new
// state and the result. old must not be past its deadline; next gets Type
// KVNone if the key is to go. next.Value may be op.Value, or memory of buf. It
// reports whether anything changed; nothing is kept.
func Plain(old *Entry, op *osier.KVOp, now int64, version uint64, buf []byte, next *Entry, res *osier.KVResult) (changed bool, err error) {
	if op.If != osier.IfAny {
		if err := Check(old, op); err != nil {
			return false, err
		}
	}
	if old.Type > osier.KVPlain && (op.Verb != osier.KVSet || old.Type == osier.KVLeases) && op.Verb != osier.KVDelete {
		return false, mismatch(op, old)
	}
	res.Found = old.Type != osier.KVNone
	if op.Previous && old.Type == osier.KVPlain {
		res.Value = append([]byte{}, old.Value...)
	}
	*next = *old
	changed = true
	switch op.Verb {
	case osier.KVSet:
		next.Type, next.Value = osier.KVPlain, op.Value
		if !op.Keep {
			next.Deadline = op.Deadline
		}
	case osier.KVDelete:
		changed = res.Found
		*next = Entry{}
	case osier.KVExpire, osier.KVPersist:
		changed = res.Found && old.Deadline != op.Deadline
		next.Deadline = op.Deadline
	case osier.KVAddInt, osier.KVAddUint, osier.KVAddFloat:
		if next.Value, res.Number, err = add(op, old.Value, buf); err != nil {
			return false, err
		}
		next.Type = osier.KVPlain
		res.Value = append([]byte{}, next.Value...)
	case osier.KVAppend:
		next.Value = append(append(buf[:0], old.Value...), op.Value...)
		next.Type = osier.KVPlain
		res.Count = int64(len(next.Value))
	default:
		return false, Fail(op, osier.KindUnsupported, "this version does not know the operation %d", op.Verb)
	}
	if next.Type == osier.KVPlain && next.Deadline != 0 && next.Deadline <= now {
		*next = Entry{} // a deadline that has passed already
		changed = changed || res.Found
	}
	if changed {
		next.Version = version
	}
	Show(next, res)
	return changed, nil
}

// Show puts a key's state into a result.
func Show(e *Entry, res *osier.KVResult) {
	res.Type, res.Version, res.Deadline = e.Type, e.Version, e.Deadline
	if e.Type == osier.KVNone {
		res.Version, res.Deadline = 0, 0
	}
}

// add adds op.Number to a number in text form; an empty value counts as 0.
func add(op *osier.KVOp, value, buf []byte) (text []byte, number uint64, err error) {
	switch op.Verb {
	case osier.KVAddInt, osier.KVHashAddInt:
		n, err := addInt(op, value)
		return strconv.AppendInt(buf[:0], n, 10), uint64(n), err
	case osier.KVAddUint:
		n, err := addUint(op, value)
		return strconv.AppendUint(buf[:0], n, 10), n, err
	}
	f, err := addFloat(op, value)
	return strconv.AppendFloat(buf[:0], f, 'g', -1, 64), math.Float64bits(f), err
}

var errOverflow = errors.New("the result does not fit the type")

func addInt(op *osier.KVOp, value []byte) (int64, error) {
	var have int64
	if len(value) > 0 {
		var err error
		if have, err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return 0, Fail(op, osier.KindInvalid, "the value is no 64-bit integer")
		}
	}
	by := int64(op.Number)
	sum := have + by
	if (sum > have) == (by > 0) || by == 0 {
		return sum, nil
	}
	switch op.Overflow {
	case osier.Wrap:
		return sum, nil
	case osier.Saturate:
		if by > 0 {
			return math.MaxInt64, nil
		}
		return math.MinInt64, nil
	}
	return 0, Fail(op, osier.KindInvalid, "%w", errOverflow)
}

func addUint(op *osier.KVOp, value []byte) (uint64, error) {
	var have uint64
	if len(value) > 0 {
		var err error
		if have, err = strconv.ParseUint(string(value), 10, 64); err != nil {
			return 0, Fail(op, osier.KindInvalid, "the value is no unsigned 64-bit integer")
		}
	}
	var sum, over uint64
	limit := uint64(math.MaxUint64)
	if op.Negative {
		sum, over = bits.Sub64(have, op.Number, 0)
		limit = 0
	} else {
		sum, over = bits.Add64(have, op.Number, 0)
	}
	switch {
	case over == 0 || op.Overflow == osier.Wrap:
		return sum, nil
	case op.Overflow == osier.Saturate:
		return limit, nil
	}
	return 0, Fail(op, osier.KindInvalid, "%w", errOverflow)
}

func addFloat(op *osier.KVOp, value []byte) (float64, error) {
	have := 0.0
	if len(value) > 0 {
		var err error
		have, err = strconv.ParseFloat(string(value), 64)
		if err != nil || math.IsNaN(have) || math.IsInf(have, 0) {
			return 0, Fail(op, osier.KindInvalid, "the value is no number")
		}
	}
	by := math.Float64frombits(op.Number)
	switch {
	case math.IsNaN(by) || math.IsInf(by, 0):
		return 0, Fail(op, osier.KindInvalid, "%v cannot be added", by)
	case op.Overflow == osier.Wrap:
		return 0, Fail(op, osier.KindInvalid, "floating-point numbers do not wrap")
	}
	sum := have + by
	if !math.IsInf(sum, 0) {
		return sum, nil
	}
	if op.Overflow == osier.Saturate {
		return math.Copysign(math.MaxFloat64, sum), nil
	}
	return 0, Fail(op, osier.KindInvalid, "%w", errOverflow)
}
