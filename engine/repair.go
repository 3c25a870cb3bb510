package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// RepairReport says what Repair saved and what is lost.
type RepairReport struct {
	Databases, Documents, Revisions, Attachments uint64
	Keys                                         uint64 // of key-values
	Journals, Events                             uint64
	Lost                                         []Problem
	// Old is the folder that the damaged store was moved to.
	Old string
}

// Repair salvages what is whole in a damaged store, also one that Open
// refuses, into a fresh one in its place. The damaged one is kept beside it,
// untouched, as dir.damaged-1 (or the next free number), so there must be room
// for both. What is lost is reported as it is found and listed in the result:
// documents by their ids where the feed still names them, else damaged files
// with the bounds of the keys in them. Nobody may have the store open.
func Repair(ctx context.Context, dir string, report func(Problem)) (RepairReport, error) {
	return repair(ctx, dir, nil, report)
}

func repair(ctx context.Context, dir string, so *store.Options, report func(Problem)) (out RepairReport, err error) {
	dir = filepath.Clean(dir)
	if so == nil {
		so = &store.Options{}
	}
	e := &Engine{}
	lost := func(p Problem) {
		out.Lost = append(out.Lost, p)
		if report != nil {
			report(p)
		}
	}
	fresh := dir + ".repairing"
	if err := os.RemoveAll(fresh); err != nil {
		return out, &osier.Error{Kind: osier.KindIO, Op: "repair", Err: err}
	}
	defer func() {
		if err != nil {
			os.RemoveAll(fresh)
		}
	}()
	st, err := store.Open(fresh, so)
	if err != nil {
		return out, e.storeError("repair into "+fresh, err)
	}
	w := &rewriter{st: st}
	err = store.Salvage(ctx, dir, so, w.set, func(d store.Damage) {
		lost(Problem{File: d.File, Offset: d.Offset, Err: fmt.Errorf("%w%s", d.Err, keyRange(d.Keys))})
	})
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = mend(ctx, st, lost)
	}
	if err = errors.Join(err, st.Close()); err != nil {
		return out, e.storeError("repair "+dir, err)
	}
	if err := out.count(ctx, fresh, so, lost); err != nil {
		return out, err
	}
	out.Old, err = swap(dir, fresh)
	return out, err
}

// count opens the mended store as anybody will, and checks it.
func (r *RepairReport) count(ctx context.Context, dir string, so *store.Options, lost func(Problem)) error {
	e, err := Open(dir, &Options{store: *so})
	if err != nil {
		return err
	}
	rep, err := e.Check(ctx, lost)
	r.Databases, r.Documents, r.Revisions, r.Attachments = rep.Databases, rep.Documents, rep.Revisions, rep.Attachments
	r.Keys = rep.Keys
	r.Journals, r.Events = rep.Journals, rep.Events
	return errors.Join(err, e.Close())
}

// swap puts the mended store in the place of the damaged one.
func swap(dir, fresh string) (old string, err error) {
	for n := 1; ; n++ {
		old = fmt.Sprintf("%s.damaged-%d", dir, n)
		if _, err := os.Lstat(old); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return "", &osier.Error{Kind: osier.KindIO, Op: "repair", Err: err}
		}
	}
	if err := os.Rename(dir, old); err != nil {
		return "", &osier.Error{Kind: osier.KindIO, Op: "repair: set the damaged store aside", Err: err}
	}
	if err := os.Rename(fresh, dir); err != nil {
		return "", &osier.Error{Kind: osier.KindIO, Op: "repair: move the mended store from " + fresh, Err: errors.Join(err, os.Rename(old, dir))}
	}
	if d, err := os.Open(filepath.Dir(dir)); err == nil {
		// Not every system can sync a folder; the move is done either way.
		_ = d.Sync()
		d.Close()
	}
	return old, nil
}

// rewriter writes records in batches of some megabytes, written behind: the
// store's Close makes them durable.
type rewriter struct {
	st   *store.Store
	b    *store.Batch
	size int
}

const rewriteBatch = 4 << 20

func (w *rewriter) room(n int) error {
	if w.b == nil {
		w.b = w.st.NewWriteBatch()
	}
	if w.size += n; w.size < rewriteBatch {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.b, w.size = w.st.NewWriteBatch(), n
	return nil
}

func (w *rewriter) set(key, value []byte) error {
	if err := w.room(len(key) + len(value)); err != nil {
		return err
	}
	return w.b.Set(key, value)
}

func (w *rewriter) delete(key []byte) error {
	if err := w.room(len(key)); err != nil {
		return err
	}
	return w.b.Delete(key)
}

func (w *rewriter) deleteRange(lower, upper []byte) error {
	if err := w.room(len(lower) + len(upper)); err != nil {
		return err
	}
	return w.b.DeleteRange(lower, upper)
}

func (w *rewriter) flush() error {
	if w.b == nil {
		return nil
	}
	b := w.b
	w.b, w.size = nil, 0
	defer b.Close()
	_, err := w.st.Apply(b, store.Relaxed)
	return err
}

// mend makes the invariants hold again among salvaged records: what hangs in
// the air is dropped and reported, what can be derived is derived anew.
func mend(ctx context.Context, st *store.Store, lost func(Problem)) error {
	snap, err := st.NewSnapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	m := &mender{ctx: ctx, src: snap, w: &rewriter{st: st}, lost: lost}
	names := map[uint32]string{}
	err = scanPrefix(snap, []byte{keyDirectory}, func(tail, value []byte) error {
		d, err := decodeDirRecord(value)
		if err != nil {
			lost(Problem{DB: string(tail), Offset: -1, Err: errors.New("its directory entry is damaged")})
			return m.w.delete(directoryKey(string(tail)))
		}
		names[d.num] = string(tail)
		return nil
	})
	if err != nil {
		return err
	}
	last, err := m.databases(names)
	if err != nil {
		return err
	}
	if err := m.w.set([]byte{keyNextDB}, binary.BigEndian.AppendUint32(nil, last+1)); err != nil {
		return err
	}
	return m.w.flush()
}
