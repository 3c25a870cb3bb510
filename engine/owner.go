package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
)

// Stats are the engine's figures since it was opened, and of its folder.
type Stats struct {
	Databases         int
	DiskBytes         uint64 // of the folder
	WALBytes          uint64 // of them, write-ahead log
	CacheBytes        uint64 // held by the block cache
	CacheHits         uint64
	CacheMisses       uint64
	Tables            uint64 // table files
	Flushes           uint64
	Compactions       uint64
	ReadAmplification int    // tables that a look-up may have to consult
	Commands          uint64 // taken into order
	Commits           uint64 // batches they became
	Syncs             uint64 // fsyncs of the log
}

// Stats returns the figures. Cost: microseconds.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	if err := e.open("stats"); err != nil {
		return Stats{}, err
	}
	m := e.store.Metrics()
	return Stats{
		Databases: len(*e.dbs.Load()), DiskBytes: m.DiskBytes, WALBytes: m.LogBytes,
		CacheBytes: uint64(m.CacheBytes), CacheHits: uint64(m.CacheHits), CacheMisses: uint64(m.CacheMisses),
		Tables: uint64(m.Tables), Flushes: uint64(m.Flushes), Compactions: uint64(m.Compactions), ReadAmplification: m.ReadAmplification,
		Commands: e.commands.Load(), Commits: e.commits.Load(), Syncs: m.LogSyncs,
	}, nil
}

func (e *Engine) open(step string) error {
	select {
	case <-e.closing:
		return &osier.Error{Kind: osier.KindClosed, Op: step}
	default:
		return nil
	}
}

// Compact rewrites the store so that it takes the least space now. Space comes
// back by itself too; this is for who cannot wait. Reads and writes go on.
func (e *Engine) Compact(ctx context.Context) error {
	if err := e.open("compact"); err != nil {
		return err
	}
	return e.storeError("compact", e.store.Compact(ctx, []byte{0}, []byte{0xFF}))
}

// Flush returns when everything written before is durable, whatever level it
// was written with.
func (e *Engine) Flush(ctx context.Context) error {
	if err := e.open("flush"); err != nil {
		return err
	}
	return e.storeError("flush", e.store.Flush())
}

// Backup writes the store as of now into a new folder, which opens by itself.
// Tables are hard links where the file system has them: it costs milliseconds
// and, at first, no space. Reads and writes go on.
func (e *Engine) Backup(ctx context.Context, dir string) error {
	if err := e.open("backup"); err != nil {
		return err
	}
	if e.opts.ReadOnly {
		return &osier.Error{Kind: osier.KindReadOnly, Op: "backup to " + dir, Err: errors.New("a store that was opened read-only cannot make one")}
	}
	return e.storeError("backup to "+dir, e.store.Checkpoint(dir))
}

// StateHash digests the logical state of a database: two engines that carried
// out the same sealed commands have the same. Cost: a read of everything.
func (e *Engine) StateHash(ctx context.Context, name string) ([32]byte, error) {
	db, err := e.lookup("hash state", name)
	if err != nil {
		return [32]byte{}, err
	}
	lower, upper := databaseRange(db.num)
	it, err := e.store.NewIter(lower, upper)
	if err != nil {
		return [32]byte{}, e.storeError("hash state", err)
	}
	defer it.Close()
	h := sha256.New()
	var size [8]byte
	part := func(b []byte) {
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		for ok && isViewSpace(it.Key()) {
			ok = it.SeekGE(keys.PrefixEnd(it.Key()[:prefixSize])) // derived, and each engine's own
		}
		if !ok {
			break
		}
		part(it.Key())
		part(it.Value())
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return [32]byte{}, &osier.Error{Kind: osier.KindCanceled, Op: "hash state", DB: name, Err: ctx.Err()}
		}
	}
	return [32]byte(h.Sum(nil)), e.storeError("hash state", it.Error())
}

// ApplySealed carries out commands that were sealed elsewhere, in order, each
// to its end: how a log is replayed. A command's own failure (a conflict, say)
// is part of its outcome and is returned in errs; err is a failure of this
// engine.
func (e *Engine) ApplySealed(ctx context.Context, cmds []*osier.Command) (errs []error, err error) {
	for _, c := range cmds {
		if c.Sealed.Time.IsZero() {
			return errs, &osier.Error{Kind: osier.KindInvalid, Op: "apply", DB: c.DB, Err: errors.New("the command is not sealed")}
		}
		_, err := e.Exec(ctx, c)
		if err != nil && !isAnswer(osier.KindOf(err)) {
			return errs, err
		}
		errs = append(errs, err)
	}
	return errs, nil
}

// scanPrefix walks a space of records.
func scanPrefix(s source, lower []byte, fn func(tail, value []byte) error) error {
	it, err := s.NewIter(lower, keys.PrefixEnd(lower))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if err := fn(it.Key()[len(lower):], it.Value()); err != nil {
			return err
		}
	}
	return it.Error()
}
