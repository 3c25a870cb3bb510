package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Reading logs directly.

// logBlock is the size of a log's block; chunks do not cross its bounds.
const logBlock = 32 << 10

// fileNumber returns the number in the name of one of the engine's files.
func fileNumber(name string) (uint64, bool) {
	name, _, _ = strings.Cut(name, ".")
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "MANIFEST-"), 10, 64)
	return n, err == nil
}

// A recordLog reads the records of a file in the log format.
type recordLog struct {
	fs   vfs.FS
	path string
	name string
	num  uint64
	// limit ends the reading there; negative reads to the end of the file.
	limit int64
	// newest allows the torn end that a crash leaves in the newest log.
	newest bool
	report func(Damage)
}

// newRecords names the reader's second parameter, whose type has no name here.
func newRecords[N ~uint64](f func(io.Reader, N) *record.Reader, r io.Reader, n uint64) *record.Reader {
	return f(r, N(n))
}

// each calls fn with every readable record, in order. What cannot be read is
// reported and stepped over, block by block.
func (l *recordLog) each(fn func(rec []byte, off int64) error) (err error) {
	f, err := l.fs.Open(l.path, vfs.SequentialReadsOption)
	if err != nil {
		l.report(Damage{File: l.name, Offset: -1, Err: err})
		return nil
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end := l.limit
	if end < 0 {
		fi, err := f.Stat()
		if err != nil {
			l.report(Damage{File: l.name, Offset: -1, Err: err})
			return nil
		}
		end = fi.Size()
	}
	damaged := false // within a damaged stretch that was reported
	for start := int64(0); start < end; {
		at, recs, done, err := l.stretch(f, start, end, fn)
		if err != nil || done == nil {
			return err
		}
		if recs > 0 {
			damaged = false
		}
		if l.newest && errors.Is(done, record.ErrUnexpectedEOF) {
			return nil
		}
		if !damaged {
			l.report(Damage{File: l.name, Offset: at, Err: done})
			damaged = true
		}
		start = (at/logBlock + 1) * logBlock
	}
	return nil
}

// stretch reads records from a block's beginning until the end, when damage is
// nil, or to what cannot be read, at offset at. err is fn's.
func (l *recordLog) stretch(
	f io.ReaderAt, start, end int64, fn func([]byte, int64) error,
) (at int64, recs int, damage, err error) {
	r := newRecords(record.NewReader, io.NewSectionReader(f, start, end-start), l.num)
	var buf bytes.Buffer
	for {
		at = start + r.Offset()
		rec, err := r.Next()
		if err == nil {
			buf.Reset()
			_, err = buf.ReadFrom(rec)
		}
		if err == io.EOF {
			return at, recs, nil, nil
		}
		if err != nil {
			return at, recs, err, nil
		}
		recs++
		if err := fn(buf.Bytes(), at); err != nil {
			return at, recs, nil, err
		}
	}
}

// batchEntries decodes one log record and calls fn with its writes. A deleted
// range comes as an entry with the end as value.
func batchEntries(rec []byte, fn func(entry) error) error {
	if len(rec) < batchrepr.HeaderLen {
		return errors.New("record is shorter than a batch")
	}
	h, ok := batchrepr.ReadHeader(rec)
	if !ok {
		return errors.New("batch has no header")
	}
	seq := uint64(h.SeqNum)
	r := batchrepr.Read(rec)
	for n := uint32(0); ; {
		e, ok, err := nextWrite(&r)
		if err != nil {
			return err
		}
		if !ok {
			if n != h.Count {
				return fmt.Errorf("batch has %d writes instead of %d", n, h.Count)
			}
			return nil
		}
		if e.kind == pebble.InternalKeyKindLogData {
			continue
		}
		e.seq = seq
		if err := fn(e); err != nil {
			return err
		}
		seq++
		n++
	}
}

// nextWrite decodes a write; the engine's decoder panics if one is cut off.
func nextWrite(r *batchrepr.Reader) (e entry, ok bool, err error) {
	defer recoverInto(&err)
	e.kind, e.key, e.value, ok, err = r.Next()
	return e, ok, err
}
