package store

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The log and the levels of durability.
//
// The engine knows two kinds of commit. One with sync returns when the log's
// writer has written the record to the file and called Sync on it; one without
// leaves it in a block in the process's memory until the block is full. Buffered
// lies between: the record must be in the operating system's hands, so that it
// survives the process, but nobody pays for an fsync. So a Buffered commit is one
// with sync, and the log's file, which is ours, does not carry out a Sync that
// nobody needs.
//
// # When a Sync may be left out
//
// syncWaiters counts the Sync commits and barriers that are under way: it is
// raised before the commit is handed to the engine and lowered after its wait has
// ended. A call of Sync is carried out iff the counter is above zero.
//
// Claim: the Sync that serves a Sync commit is carried out. The log's writer
// serves commits from a queue: it takes the commits queued, writes their records
// (and all before them), calls Sync, then ends their waits. A commit C enters the
// queue after its counter was raised, and its counter is lowered only after its
// wait has ended, that is after the call of Sync that serves it has returned. So
// at the time of that call the counter includes C. It may also be above zero
// without need, for a commit that is not queued yet: then a sync too many is
// done. It is never done for fewer.
//
// A log is closed before the next one is begun, and Close syncs whatever is not
// synced yet. So in all logs but the newest everything is durable, the newest is
// durable up to its last real sync, and every commit before a durable one is
// durable too: numbers become durable in order.
//
// # Synced offsets
//
// Each chunk of the log carries the offset up to which the log had been synced
// when it was written. At recovery that offset decides whether a hole is the torn
// end of an unsynced log (the log ends there) or damage to synced data (opening
// fails). After a Sync that was left out, the engine would write too high an
// offset, and a power cut that keeps a later block and loses an earlier one would
// look like damage. So chunks are corrected on their way to the file: the offset
// is lowered to what has really been synced, and the chunk's checksum made new.
// The engine's contract for files allows a Write to change its argument.

// A logFile is one log of the engine. The engine never calls its methods
// concurrently.
type logFile struct {
	vfs.File
	g       *guardFS
	name    string
	written int64        // bytes written
	synced  atomic.Int64 // bytes known to be durable; -1 if not even the empty file is
}

// newLog opens a log through open. After the fence it gives out a file that
// swallows everything: the engine panics if it cannot have a log.
func (g *guardFS) newLog(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if g.fence.failure() != nil {
		return nullFile{}, nil
	}
	f, err := open()
	if err != nil {
		if !g.armed.Load() {
			return nil, err
		}
		g.fence.raise(mapError("create a log", err))
		return nullFile{}, nil
	}
	l := &logFile{File: f, g: g, name: g.FS.PathBase(name)}
	l.synced.Store(-1)
	g.current.Store(l)
	return l, nil
}

// failed reports whether err is to be kept from the engine, having raised the
// fence for it.
func (l *logFile) failed(step string, err error) bool {
	if !l.g.armed.Load() {
		return false
	}
	l.g.fence.raise(mapError(step, err))
	return true
}

func (l *logFile) Write(p []byte) (int, error) {
	if l.g.fence.failure() != nil {
		return len(p), nil
	}
	lowerSyncedOffsets(p, uint64(max(l.synced.Load(), 0)))
	n, err := l.File.Write(p)
	l.written += int64(n)
	if err != nil && l.failed("write the log", err) {
		return len(p), nil
	}
	return n, err
}

func (l *logFile) Sync() error     { return l.syncIfNeeded(l.File.Sync) }
func (l *logFile) SyncData() error { return l.syncIfNeeded(l.File.SyncData) }

func (l *logFile) syncIfNeeded(sync func() error) error {
	if l.g.syncWaiters.Load() == 0 {
		l.g.elidedSyncs.Add(1)
		return nil
	}
	return l.sync(sync)
}

func (l *logFile) sync(sync func() error) error {
	if l.g.fence.failure() != nil {
		return nil
	}
	if err := sync(); err != nil {
		// What a failed fsync has kept is unknown, and asking again may succeed
		// without the data having been written: never retried.
		if l.failed("sync the log", err) {
			return nil
		}
		return err
	}
	l.g.realSyncs.Add(1)
	l.synced.Store(l.written)
	return nil
}

// SyncTo asks for writing out early, without a promise: it never replaces a sync.
func (l *logFile) SyncTo(n int64) (bool, error) {
	if l.g.fence.failure() != nil {
		return false, nil
	}
	if _, err := l.File.SyncTo(n); err != nil {
		if l.failed("sync the log", err) {
			return false, nil
		}
		return false, err
	}
	return false, nil
}

func (l *logFile) Preallocate(off, n int64) error {
	if l.g.fence.failure() != nil {
		return nil
	}
	return l.File.Preallocate(off, n) // the engine ignores an error
}

func (l *logFile) Stat() (vfs.FileInfo, error) {
	fi, err := l.File.Stat()
	if err != nil && l.failed("inspect the log", err) {
		return nullInfo{}, nil
	}
	return fi, err
}

func (l *logFile) Close() error {
	var err error
	if l.synced.Load() < l.written {
		err = l.sync(l.File.SyncData)
	}
	if cerr := l.File.Close(); cerr != nil && err == nil && !l.failed("close the log", cerr) {
		err = cerr
	}
	return err
}

// The log's chunk header: checksum (4 bytes), payload length (2), type (1), the
// log's number (4) and, for the types with a synced offset, that offset (8). The
// checksum covers everything from the type on.
const (
	chunkLengthAt  = 4
	chunkTypeAt    = 6
	chunkOffsetAt  = 11
	chunkHeader    = 11
	chunkHeaderOff = 19

	chunkRecyclableFirst = 5 // full, first, middle, last
	chunkSyncFirst       = 9 // the same four with a synced offset
	chunkSyncLast        = 12
)

// lowerSyncedOffsets rewrites the chunks in p, which begins at a chunk and lies
// within one block, so that none claims more than synced. What it does not
// recognise it leaves as it is.
func lowerSyncedOffsets(p []byte, synced uint64) {
	for len(p) >= chunkHeader {
		header := chunkHeader
		switch t := p[chunkTypeAt]; {
		case t >= chunkSyncFirst && t <= chunkSyncLast:
			header = chunkHeaderOff
		case t >= chunkRecyclableFirst && t < chunkSyncFirst:
		default:
			return // the zeros at the end of a block
		}
		end := header + int(binary.LittleEndian.Uint16(p[chunkLengthAt:]))
		if end > len(p) {
			return
		}
		if header == chunkHeaderOff && binary.LittleEndian.Uint64(p[chunkOffsetAt:]) > synced {
			binary.LittleEndian.PutUint64(p[chunkOffsetAt:], synced)
			binary.LittleEndian.PutUint32(p, chunkChecksum(p[chunkTypeAt:end]))
		}
		p = p[end:]
	}
}

// chunkChecksum is CRC-32C, rotated and offset as the format of LevelDB's logs
// has it. (MakeTable returns the library's own table for this polynomial.)
func chunkChecksum(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

// A nullFile takes the place of a log after the fence.
type nullFile struct{}

func (nullFile) Close() error                           { return nil }
func (nullFile) Read([]byte) (int, error)               { return 0, os.ErrInvalid }
func (nullFile) ReadAt([]byte, int64) (int, error)      { return 0, os.ErrInvalid }
func (nullFile) Write(p []byte) (int, error)            { return len(p), nil }
func (nullFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nullFile) Preallocate(int64, int64) error         { return nil }
func (nullFile) Stat() (vfs.FileInfo, error)            { return nullInfo{}, nil }
func (nullFile) Sync() error                            { return nil }
func (nullFile) SyncTo(int64) (bool, error)             { return false, nil }
func (nullFile) SyncData() error                        { return nil }
func (nullFile) Prefetch(int64, int64) error            { return nil }
func (nullFile) Fd() uintptr                            { return vfs.InvalidFd }

type nullInfo struct{}

func (nullInfo) Name() string           { return "" }
func (nullInfo) Size() int64            { return 0 }
func (nullInfo) Mode() os.FileMode      { return 0 }
func (nullInfo) ModTime() time.Time     { return time.Time{} }
func (nullInfo) IsDir() bool            { return false }
func (nullInfo) Sys() any               { return nil }
func (nullInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
