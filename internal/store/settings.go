package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

const (
	// blockBytes: measured against 8 KiB, see the benchmark BenchmarkBlockSize.
	blockBytes = 16 << 10
	bloomBits  = 10

	// The engine's own write stalls cannot be left when the store is fenced, so
	// writes are held back earlier, in admit: at stallMemTables of memory and
	// stallSublevels of overlapping young tables. The engine's limits lie where
	// they are not reached.
	stallMemTables  = 3
	engineMemTables = 4 // also bounds the recycled logs, to one more
	stallSublevels  = 20
	engineSublevels = 1000
)

// engineOptions are Pebble's settings. The comparer is the default one, plain
// byte order, and stays so for the life of a store; filters hold whole keys.
func (s *Store) engineOptions() *pebble.Options {
	o := &pebble.Options{
		FS:                          s.guard,
		Cache:                       s.cache,
		ReadOnly:                    s.opts.ReadOnly,
		DisableWAL:                  s.opts.InMemory,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                uint64(s.opts.MemTableBytes),
		MemTableStopWritesThreshold: engineMemTables,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       engineSublevels,
		LBaseMaxBytes:               64 << 20,
		BytesPerSync:                512 << 10,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener:               s.events(),
		Logger:                      &engineLogger{s: s, log: s.slogger()},
	}
	// Both data missing after osier.json said it is there, and a read-only open of
	// nothing, must fail.
	o.ErrorIfNotExists = !s.opts.InMemory && !s.meta.Creating
	if end := s.opts.TableEnd; end != nil {
		o.Experimental.SpanPolicyFunc = func(start []byte) (pebble.SpanPolicy, []byte, error) {
			return pebble.SpanPolicy{}, end(start), nil
		}
	}
	o.Levels[0].BlockSize = blockBytes
	o.Levels[0].IndexBlockSize = 256 << 10
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionBalanced })
	return o
}

// events reacts to what happens in the background. The engine calls these with
// its lock held: nothing here may block or call the engine.
func (s *Store) events() *pebble.EventListener {
	ended := func() {
		select {
		case s.progress <- struct{}{}:
		default:
		}
	}
	return &pebble.EventListener{
		BackgroundError: s.backgroundError,
		// Reads return the damage that they meet; the store goes on. The engine's
		// default is to end the process.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.slogger().Error("damaged table", "path", info.Path, "err", info.Details)
		},
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err != nil && info.Err.Error() != emptyFlush {
				s.flushFailed(info.Err)
			}
			ended()
		},
		CompactionEnd: func(info pebble.CompactionInfo) {
			s.guard.compactionEnded(info.Err)
			ended()
		},
	}
}

// emptyFlush is how the engine reports a flush that had nothing to write.
const emptyFlush = "pebble: empty table"

// flushFailed raises the fence: without flushes the log grows until nothing more
// can be written, and the engine would try again without a pause.
func (s *Store) flushFailed(err error) {
	if !errors.Is(err, errShutdown) {
		s.fence.raise(mapError("flush memtable", err))
	}
}

// backgroundError reports what went wrong behind the scenes; flushes have raised
// the fence by then, compactions are tried again.
func (s *Store) backgroundError(err error) {
	if !errors.Is(err, errShutdown) && s.fence.failure() == nil {
		s.slogger().Error("background error", "err", err)
	}
}

// isInconsistent recognises the engine's report that tables and manifest do not
// agree, which has no type.
func isInconsistent(err error) bool {
	return strings.Contains(err.Error(), "object size mismatch") ||
		strings.Contains(err.Error(), "manifest") && errors.Is(err, fs.ErrNotExist)
}

// engineLogger passes the engine's messages on. Fatalf raises the fence and
// returns. The failures for which the engine ends the process in earnest are kept
// from it, see guard.go; what is left are its checks of itself, after which
// nothing reaches the disk any more.
type engineLogger struct {
	s   *Store
	log *slog.Logger
}

func (l *engineLogger) Infof(format string, args ...any) {
	l.log.Debug(fmt.Sprintf(format, args...))
}

func (l *engineLogger) Errorf(format string, args ...any) {
	l.log.Error(fmt.Sprintf(format, args...))
}

func (l *engineLogger) Fatalf(format string, args ...any) {
	cause := fmt.Errorf("%s", fmt.Sprintf(format, args...))
	for _, a := range args {
		if err, ok := a.(error); ok {
			if errors.Is(err, fs.ErrNotExist) {
				// A table is missing. The read that wanted it fails; what is whole
				// stays usable.
				l.log.Error("missing file", "err", err)
				return
			}
			cause = err
		}
	}
	l.s.fence.raise(mapError("storage engine", cause))
}
