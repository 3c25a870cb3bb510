package pocket

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/andybalholm/brotli"
)

// readAll reads a file up to its last byte that is not NUL, on all processors:
// most of the time goes into making pages.
func readAll(f file) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	const stripe = 4 << 20
	var buf [64 << 10]byte
	for size > 0 {
		n := min(size, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], size-n); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		kept := len(bytes.TrimRight(buf[:n], "\x00"))
		size -= n - int64(kept)
		if kept > 0 {
			break
		}
	}
	data := make([]byte, size)
	var next atomic.Int64
	errs := make([]error, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for {
				at := (next.Add(1) - 1) * stripe
				if at >= size {
					return
				}
				part := data[at:min(at+stripe, size)]
				// The file may shrink while a follower reads: zeros are
				// then taken for what they are, space not written yet.
				if _, err := f.ReadAt(part, at); err != nil && !errors.Is(err, io.EOF) {
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return data, errors.Join(errs...)
}

// parsed is what a worker makes of a segment.
type parsed struct {
	seg     segment
	recs    []entry  // in the order of the file
	slots   slotRuns // the same records, for the table
	plain   int64    // bytes of lines
	lines   int      // record lines
	maxVer  uint64
	skips   []Skip
	foreign [][]byte
	err     error
}

// maxExpansion is how many times its size a file may expand to.
const maxExpansion = 1000

// builder makes a store's memory from segments.
type builder struct {
	s    *Store
	base uint64 // number of the first chunk
	segs []*parsed
	jobs chan *parsed

	budget atomic.Int64 // bytes that compressed parts may still expand to

	mu     sync.Mutex // guards chunks
	chunks [][]uint64
}

// loadBytes fills an empty store.
func (s *Store) loadBytes(data []byte) (end int, err error) {
	b := &builder{s: s, base: s.arena.dir.base, jobs: make(chan *parsed, 64)}
	b.budget.Store(s.opts.maxExpanded + maxExpansion*int64(len(data)))
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(b.work)
	}
	sc := &scanner{data: data, report: &s.report, salvage: s.mode == modeRepair, emit: func(seg segment) {
		p := &parsed{seg: seg}
		b.segs = append(b.segs, p)
		b.jobs <- p
	}}
	end = sc.scan()
	close(b.jobs)
	wg.Wait()
	if err := b.collect(sc); err != nil {
		return 0, err
	}
	b.index()
	return end, nil
}

func (b *builder) work() {
	w := &segmentWorker{b: b}
	for p := range b.jobs {
		if p.seg.packed != "" {
			p.err = w.unpack(p)
		} else {
			w.parse(p, p.seg.data)
		}
		p.slots = runsOf(w.slots)
		w.slots = w.slots[:0]
	}
}

// segmentWorker has chunks of its own, so that workers need no lock.
type segmentWorker struct {
	b    *builder
	next offset
	room []uint64

	slots    []slotEntry // of the segment, in the order of the file
	typeName []byte      // of the last record
	typeID   uint16
}

func (w *segmentWorker) alloc(n int) (offset, []uint64) {
	if n > len(w.room) {
		size, numbers := chunkWords, 1
		if n > size {
			size, numbers = n, (n+chunkWords-1)/chunkWords
		} else if w.next == 0 {
			size = max(chunkWords/16, n) // most files are small
		}
		c := make([]uint64, size)
		w.b.mu.Lock()
		w.next = offset(w.b.base+uint64(len(w.b.chunks))) << chunkShift
		w.b.chunks = append(w.b.chunks, c)
		w.b.chunks = append(w.b.chunks, make([][]uint64, numbers-1)...)
		w.b.mu.Unlock()
		w.room = c
	}
	off, words := w.next, w.room[:n:n]
	w.room = w.room[n:]
	w.next += offset(n)
	return off, words
}

// parse reads the lines of a segment.
func (w *segmentWorker) parse(p *parsed, data []byte) {
	p.recs = slices.Grow(p.recs, len(data)/80)
	version, number := p.seg.version, p.seg.line
	var l parsedLine
	for len(data) > 0 {
		var line []byte
		line, data, _ = cutLine(data)
		p.plain += int64(len(line)) + 1
		err := error(nil)
		switch {
		case p.seg.trusted && w.b.s.mode == modeOpen && parseTrusted(line, &l):
		case p.seg.trusted && isControl(line):
			if c, ok := parseControl(line); ok {
				version = c.seq
			}
			number++
			continue
		case len(bytes.TrimSpace(line)) == 0:
			number++
			version += p.seg.step
			continue
		default:
			err = parseLine(line, &l)
		}
		if err == nil {
			err = w.add(p, &l, version)
		}
		if err != nil {
			p.skip(number, err, line)
		}
		number++
		version += p.seg.step
	}
}

func (p *parsed) skip(number int, err error, line []byte) {
	p.skips = append(p.skips, Skip{number, err.Error(), string(line[:min(len(line), 80)])})
	// What people wrote is kept through rewrites; damage is not.
	if utf8.Valid(line) && bytes.IndexByte(line, 0) < 0 {
		p.foreign = append(p.foreign, bytes.Clone(line))
	}
}

func (w *segmentWorker) add(p *parsed, l *parsedLine, version uint64) error {
	s := w.b.s
	d := draft{key: l.key, value: viewString(l.value), expiry: l.expiry, deleted: l.value == nil,
		hash: s.hasher.hash(l.key), version: version}
	if l.version != 0 && l.version <= maxSeq {
		d.version = l.version
	}
	if l.typeName != nil {
		if !bytes.Equal(l.typeName, w.typeName) {
			id, err := s.types.intern(l.typeName)
			if err != nil {
				return err
			}
			w.typeName, w.typeID = append(w.typeName[:0], l.typeName...), id // a line's bytes may not last
		}
		d.typeID = w.typeID
	}
	off, words := w.alloc(d.words())
	d.put(words, 0)
	p.recs = append(p.recs, entry{head(d.key), off})
	w.slots = append(w.slots, slotEntry{d.hash>>tagShift<<tagShift | uint64(off), d.hash})
	p.maxVer = max(p.maxVer, d.version)
	p.lines++
	return nil
}

// unpack reads a compressed part. Its streams come from writers that flushed
// them but never ended them, so that an end that comes too early is no error.
func (w *segmentWorker) unpack(p *parsed) error {
	src := base64.NewDecoder(base64.StdEncoding, strings.NewReader(p.seg.packed))
	plain := brotli.NewReader(src)
	buf := make([]byte, 0, 128<<10)
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, cap(buf))
		}
		n, err := plain.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if w.b.budget.Add(-int64(n)) < 0 {
			return errors.New("compressed part expands to more than a file of this size may hold")
		}
		if end := bytes.LastIndexByte(buf, '\n') + 1; end > 0 {
			w.parse(p, buf[:end])
			buf = append(buf[:0], buf[end:]...)
		}
		if err != nil {
			if err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
				p.skips = append(p.skips, Skip{0, "broken compressed part: " + err.Error(), ""})
			}
			w.parse(p, buf)
			return nil
		}
	}
}

// collect brings together what the workers found.
func (b *builder) collect(sc *scanner) error {
	s := b.s
	maxVer := sc.seq
	for _, p := range b.segs {
		if p.err != nil {
			return p.err
		}
		s.plainBytes += p.plain
		s.lines += int64(p.lines)
		maxVer = max(maxVer, p.maxVer)
		s.foreign = append(s.foreign, p.foreign...)
		s.report.SkippedCount += len(p.skips)
		if room := maxReported - len(s.report.Skipped); room > 0 {
			s.report.Skipped = append(s.report.Skipped, p.skips[:min(room, len(p.skips))]...)
		}
	}
	sort.SliceStable(s.report.Skipped, func(i, j int) bool { return s.report.Skipped[i].Line < s.report.Skipped[j].Line })
	s.seq, s.synced, s.stated = maxVer, maxVer, sc.stated
	s.creation = sc.header.Creation
	if sc.header.LastRewrite != nil {
		s.lastRewrite = *sc.header.LastRewrite
	}
	return nil
}

// saveCut keeps what is cut off beside the file, if more follows the broken
// transaction:
// a crash of the machine in the middle of unflushed transactions can leave
// later ones whole, which must not come back without the earlier ones.
func (s *Store) saveCut(c *Cut, rest []byte) error {
	frames := 0
	for b := rest; len(b) > 0; {
		var line []byte
		line, b, _ = cutLine(b)
		if _, ok := parseControl(line); ok {
			frames++
		}
	}
	if frames < 2 {
		return nil
	}
	name := fmt.Sprintf("%s.cut-%d", s.path, c.Offset)
	f, err := s.fs.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(bytes.TrimRight(rest, "\x00"), 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	c.Saved = name
	return err
}
