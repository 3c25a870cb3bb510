package engine

import (
	"bytes"
	"context"
	"fmt"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
)

// Putting a unique view in force must not hold up writes while all its rows are
// looked at. So they are before, beside the writes; what these have changed since
// is looked at again, in ever smaller portions, and the command that puts the view
// in force has but the last few changes left.

// fewChanges may be left to that command; readyRounds bounds how often it is put
// off where writes come faster than they can be looked at.
const (
	fewChanges  = 64
	readyRounds = 16
)

// ready makes an index ready to be put in force. The caller has the turn.
func (ix *index) ready(ctx context.Context) error {
	unique := ix.def.Load().policy == osier.Unique
	for round := range readyRounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := ix.at.Load().seq
		last, err := ix.collectionSeq(ix.e.store)
		for err == nil && ix.at.Load().seq < last {
			err = ix.step()
		}
		if err != nil {
			return err
		}
		reached := ix.at.Load().seq
		switch {
		case !unique:
		case round == 0:
			err = ix.duplicate(ix.e.store)
		default:
			err = ix.duplicateSince(ix.e.store, ix.judged, reached)
		}
		if err != nil {
			return err
		}
		ix.judged = reached
		if round > 0 && reached-before <= fewChanges {
			break
		}
	}
	return nil
}

// duplicate looks for a key of two rows.
func (ix *index) duplicate(src source) error {
	return ix.duplicateWithin(src, "", "")
}

// duplicateWithin looks for a key of two rows from lo up to but not including hi.
func (ix *index) duplicateWithin(src source, lo, hi string) error {
	lower, upper := ix.bounds(lo, hi)
	it, err := src.NewIter(lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	var last, lastID []byte
	for ok := it.First(); ok; ok = it.Next() {
		key, id, _, _, err := splitRow(it.Key()[viewPrefixSize:], it.Value())
		if err != nil {
			return err
		}
		if last != nil && bytes.Equal(key, last) {
			return viewError(osier.KindNotUnique, ix.db, ix.name, fmt.Errorf("key %s of both document %s and document %s",
				keys.Format(key), osier.TrustedID(lastID), osier.TrustedID(id)))
		}
		last, lastID = append(last[:0], key...), append(lastID[:0], id...)
	}
	return it.Error()
}

// duplicateSince looks for a key of two rows where documents have changed after a
// sequence. The index has these changes in src.
func (ix *index) duplicateSince(src source, since, last osier.Seq) error {
	var list rowList
	var buf []byte
	for since < last {
		changed, err := ix.changes(src, since, last)
		if err != nil {
			return err
		}
		for i := range changed {
			if _, err := ix.backref(src, changed[i].id, &list, &buf); err != nil {
				return err
			}
			for k := range list.rows {
				key := list.key(k)
				if err := ix.duplicateWithin(src, string(key), string(keys.PrefixEnd(key))); err != nil {
					return err
				}
			}
			since = changed[i].seq
		}
		if len(changed) < updateDocs {
			return nil
		}
	}
	return nil
}
