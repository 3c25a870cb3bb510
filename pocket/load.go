package pocket

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"sort"
	"time"
)

// loadMode is what a file is read for.
type loadMode int

const (
	modeOpen   loadMode = iota
	modeVerify          // every value is scanned, checksum or not
	modeRepair          // the same, and all that is whole is taken
)

// A Report tells what was found while a file was read.
type Report struct {
	Lines   int   // in the file, compressed ones not counted
	Bytes   int64 // that were read
	Records int   // in force at the end

	// Skipped are the lines that could not be used, at most the first 1,000;
	// SkippedCount counts them all.
	Skipped      []Skip
	SkippedCount int
	// Edited are the lines of transactions and blocks whose checksum differs
	// although their records were read: somebody has edited or merged them.
	Edited []int
	// Cut is what a crash had left at the end, nil for nothing.
	Cut *Cut
}

// Clean reports whether every byte was understood and found unchanged.
func (r Report) Clean() bool {
	return r.SkippedCount == 0 && len(r.Edited) == 0 && r.Cut == nil
}

// A Skip is a line that was not used.
type Skip struct {
	Line   int // from 1; 0 for a line of a compressed part
	Reason string
	Text   string // its first 80 bytes
}

// A Cut is an unfinished end. A store opened for writing removes it.
type Cut struct {
	Line   int
	Offset int64
	Bytes  int64
	Reason string
	// Saved names the file that received what was removed, when it held more
	// than one unfinished transaction; "" else.
	Saved string
}

const (
	maxReported  = 1000
	segmentBytes = 1 << 20
)

// segment is a run of whole lines that are read in one go.
type segment struct {
	data    []byte
	trusted bool // checksums hold: values need not be scanned
	// version is that of records whose line does not say, up to the first tx
	// or block line. step is added with every line.
	version uint64
	step    uint64
	line    int
	packed  string // base64 of a compressed stream, instead of data
}

// scanner finds out how far a file can be trusted, and cuts it into segments.
type scanner struct {
	data   []byte
	pos    int
	line   int // of pos, from 1
	seq    uint64
	stated uint64 // last sequence that the file says is on the disk
	// salvage takes the lines one by one of whatever is not whole, except an
	// unfinished transaction at the very end.
	salvage bool
	emit    func(segment)
	report  *Report
	header  header

	open    segment // trusted segment that may grow
	openEnd int
	marks   []syncMark // see syncedLater
	// lastFrame is where the last transaction begins, 0 for not known yet.
	lastFrame int
}

// scan reads data and returns how much of it counts.
func (sc *scanner) scan() (end int) {
	sc.data = bytes.TrimRight(sc.data, "\x00") // space allocated ahead
	sc.line = 1
	if bytes.HasPrefix(sc.data, []byte("\ufeff")) {
		sc.pos = len("\ufeff")
	}
	for sc.pos < len(sc.data) && sc.report.Cut == nil {
		line, _, whole := cutLine(sc.data[sc.pos:])
		switch {
		case len(line) > 0 && line[0] == 0:
			sc.hole()
		case !isSpecial(line, whole):
			sc.loose()
		case isControl(line):
			sc.frame(line)
		default:
			sc.headerLine(line)
		}
	}
	sc.closeSegment()
	sc.report.Lines = sc.line - 1
	if sc.pos > 0 && sc.data[sc.pos-1] != '\n' {
		sc.report.Lines++
	}
	sc.report.Bytes = int64(sc.pos)
	return sc.pos
}

// isSpecial reports whether a line is meant as a header, or to open a
// transaction or block, right or wrong. One without its line feed must not end
// in the middle of a value; then it is what it will be with one.
func isSpecial(line []byte, whole bool) bool {
	return (isControl(line) || bytes.HasPrefix(line, []byte(headerPrefix))) && (whole || checkJSON(line) != errShort)
}

func (sc *scanner) closeSegment() {
	if sc.openEnd > 0 {
		sc.emit(sc.open)
	}
	sc.open, sc.openEnd = segment{}, 0
}

func (sc *scanner) headerLine(line []byte) {
	sc.closeSegment()
	h, err := parseHeader(line)
	if err != nil {
		sc.skip(sc.line, "broken header", line)
		h.CompressedEntities = salvagePacked(line)
	}
	if sc.header.Creation.IsZero() {
		sc.header = h
	}
	// Records of a compressed part that do not tell their version all get the
	// same one.
	if len(h.CompressedEntities) > 0 {
		sc.seq++
	}
	for _, packed := range h.CompressedEntities {
		sc.emit(segment{packed: packed, version: sc.seq})
	}
	sc.header.CompressedEntities = nil
	sc.advance(lineEnd(sc.data, sc.pos), 1)
}

// salvagePacked returns the texts of a broken header that may be compressed
// parts. One that is not whole will say so when it is unpacked.
func salvagePacked(line []byte) []string {
	const name = `"CompressedEntities":[`
	i := bytes.Index(line, []byte(name))
	if i < 0 {
		return nil
	}
	var out []string
	for i, part := range bytes.Split(line[i+len(name):], []byte{'"'}) {
		if i%2 == 1 && len(part) > 0 {
			out = append(out, string(part))
		}
	}
	return out
}

func (sc *scanner) skip(line int, reason string, text []byte) {
	sc.report.SkippedCount++
	if len(sc.report.Skipped) < maxReported {
		sc.report.Skipped = append(sc.report.Skipped, Skip{line, reason, string(text[:min(len(text), 80)])})
	}
}

func (sc *scanner) advance(to, lines int) {
	sc.pos = to
	sc.line += lines
}

// lineEnd returns the offset behind the line that begins at pos.
func lineEnd(data []byte, pos int) int {
	if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
		return pos + i + 1
	}
	return len(data)
}

// loose takes lines that no transaction frames: files of the ancestor, and
// what people write.
func (sc *scanner) loose() {
	sc.closeSegment()
	start, startLine := sc.pos, sc.line
	for sc.pos < len(sc.data) && sc.pos-start < segmentBytes {
		line, _, whole := cutLine(sc.data[sc.pos:])
		if isSpecial(line, whole) || len(line) > 0 && line[0] == 0 {
			break
		}
		if !whole {
			var p parsedLine
			if isSpecial(line, true) || parseLine(line, &p) == errShort {
				sc.cut(sc.pos, "the last line is incomplete")
				break
			}
		}
		sc.advance(lineEnd(sc.data, sc.pos), 1)
	}
	sc.emit(segment{data: sc.data[start:sc.pos], version: sc.seq + 1, step: 1, line: startLine})
	sc.seq += uint64(sc.line - startLine)
	if sc.pos == start && sc.report.Cut == nil {
		panic("pocket: scanner does not advance") // broken invariant
	}
}

// hole takes NUL bytes where a line should begin: a write that did not reach
// the disk while later ones did, or damage.
func (sc *scanner) hole() {
	sc.closeSegment()
	end := sc.pos
	for sc.data[end] == 0 { // the last byte of data is not NUL
		end++
	}
	if !sc.salvage && sc.moreFrames(end) && sc.syncedLater(sc.pos) <= sc.seq {
		sc.cut(sc.pos, fmt.Sprintf("transaction %d is missing", sc.seq+1))
		return
	}
	sc.skip(sc.line, fmt.Sprintf("%d NUL bytes", end-sc.pos), nil)
	sc.advance(end, 0)
}

// frame takes a tx or block line with its records.
func (sc *scanner) frame(line []byte) {
	c, ok := parseControl(line)
	if !ok {
		// The lines behind it are taken one by one.
		sc.closeSegment()
		sc.skip(sc.line, "broken transaction line", line)
		sc.advance(lineEnd(sc.data, sc.pos), 1)
		return
	}
	body := lineEnd(sc.data, sc.pos)
	end := body + c.length
	if end <= len(sc.data) && sc.data[body-2] != '\r' {
		t := castagnoli()
		crc := crc32.Update(crc32.Checksum(line[:c.signed], t), t, sc.data[body:end])
		if crc == c.crc {
			sc.accept(c, sc.pos, body, end)
			return
		}
	}
	sc.changedFrame(line, c, body)
}

// accept takes a frame that is as it was written.
func (sc *scanner) accept(c control, start, body, end int) {
	version, forced := c.seq, false
	switch {
	case c.block || c.n == 0:
		sc.seq = max(sc.seq, c.seq)
	case c.seq > sc.seq:
		sc.seq = c.seq
	default:
		// Two histories were merged: sequences must not go back.
		sc.seq++
		version, forced = sc.seq, true
	}
	sc.stated = max(sc.stated, c.synced)
	switch {
	case forced || end-start > 2*segmentBytes:
		sc.closeSegment()
		sc.split(segment{data: sc.data[body:end], trusted: true, version: version, line: sc.line + 1})
	case sc.openEnd > 0 && sc.openEnd == start && end-start+len(sc.open.data) <= segmentBytes:
		sc.open.data = sc.open.data[:len(sc.open.data)+end-start]
		sc.openEnd = end
	default:
		sc.closeSegment()
		sc.open = segment{data: sc.data[start:end], trusted: true, line: sc.line}
		sc.openEnd = end
	}
	sc.advance(end, c.n+1)
}

// split emits a large segment in parts.
func (sc *scanner) split(seg segment) {
	rest := seg.data
	for len(rest) > 0 {
		n := len(rest)
		if n > segmentBytes {
			n = lineEnd(rest, segmentBytes)
		}
		seg.data, rest = rest[:n], rest[n:]
		sc.emit(seg)
		seg.line += bytes.Count(seg.data, []byte{'\n'})
	}
}

// changedFrame takes a frame that is not byte for byte as it was written. Text
// tools may only have changed the line ends; people may have edited its
// lines; or it is where a crash struck.
func (sc *scanner) changedFrame(line []byte, c control, body int) {
	t := castagnoli()
	crc := crc32.Checksum(line[:c.signed], t)
	n, lines, end, good := 0, 0, body, true
	for n < c.n && end < len(sc.data) {
		l, _, whole := cutLine(sc.data[end:])
		if isSpecial(l, whole) {
			break
		}
		end = lineEnd(sc.data, end)
		lines++
		if len(bytes.TrimSpace(l)) == 0 {
			continue
		}
		var p parsedLine
		good = good && parseLine(l, &p) == nil
		n++
		crc = crc32.Update(crc32.Update(crc, t, l), t, []byte{'\n'})
	}
	sc.closeSegment()
	if !c.block && c.seq > sc.seq || c.n == 0 || c.block {
		sc.seq = max(sc.seq, c.seq)
	} else {
		sc.seq++
	}
	version := sc.seq
	if c.block {
		version = c.seq
	}
	seg := segment{data: sc.data[body:end], version: version, line: sc.line + 1}
	switch {
	case n == c.n && crc == c.crc:
		sc.stated = max(sc.stated, c.synced)
	case c.block || sc.syncedLater(sc.pos) >= c.seq || n == c.n && good || sc.salvage && sc.moreFrames(end):
		sc.report.Edited = append(sc.report.Edited, sc.line)
	default:
		sc.cut(sc.pos, fmt.Sprintf("transaction %d is incomplete", c.seq))
		return
	}
	sc.emit(seg)
	sc.advance(end, lines+1)
}

// moreFrames reports whether another transaction begins at or behind pos.
func (sc *scanner) moreFrames(pos int) bool {
	if sc.lastFrame == 0 {
		// Found once: a file full of damage asks often. NULs may stand where
		// the line feed before it was.
		sc.lastFrame = max(bytes.LastIndex(sc.data, []byte("\n"+txPrefix))+1,
			bytes.LastIndex(sc.data, []byte("\x00"+txPrefix))+1, 1)
	}
	return sc.lastFrame >= pos && sc.lastFrame > 1
}

func (sc *scanner) cut(pos int, reason string) {
	sc.report.Cut = &Cut{Line: sc.line, Offset: int64(pos), Bytes: int64(len(sc.data) - pos), Reason: reason}
}

// syncMark is a place behind which the file says that everything up to synced
// had reached the disk.
type syncMark struct {
	pos    int
	synced uint64
}

// syncedLater returns the highest sequence that a line behind pos says was on
// the disk. A broken transaction that had reached the disk was not broken by a
// crash, so what follows it counts.
func (sc *scanner) syncedLater(pos int) uint64 {
	if sc.marks == nil {
		sc.marks = []syncMark{}
		sep := []byte("\n" + txPrefix)
		for at := pos; ; {
			i := bytes.Index(sc.data[at:], sep)
			if i < 0 {
				break
			}
			at += i + 1
			line, _, whole := cutLine(sc.data[at:])
			if c, ok := parseControl(line); ok && whole && c.synced > 0 && sc.vouched(c, line, at) {
				sc.marks = append(sc.marks, syncMark{at, c.synced})
			}
		}
		for i := len(sc.marks) - 2; i >= 0; i-- {
			sc.marks[i].synced = max(sc.marks[i].synced, sc.marks[i+1].synced)
		}
	}
	i := sort.Search(len(sc.marks), func(i int) bool { return sc.marks[i].pos > pos })
	if i == len(sc.marks) {
		return 0
	}
	return sc.marks[i].synced
}

// vouched reports whether the frame at a mark is whole: what a broken one says
// counts for nothing.
func (sc *scanner) vouched(c control, line []byte, at int) bool {
	body := lineEnd(sc.data, at)
	if body+c.length > len(sc.data) {
		return false
	}
	t := castagnoli()
	return crc32.Update(crc32.Checksum(line[:c.signed], t), t, sc.data[body:body+c.length]) == c.crc
}

// load reads f into the empty store and returns how much of it counts.
func (s *Store) load(f file) (end int64, err error) {
	began := time.Now()
	defer func() { s.stats.loadNanos.Store(int64(time.Since(began))) }()
	data, err := readAll(f)
	if err != nil {
		return 0, fmt.Errorf("pocket: read: %w", err)
	}
	n, err := s.loadBytes(data)
	if err != nil {
		return 0, fmt.Errorf("pocket: load: %w", err)
	}
	if c := s.report.Cut; c != nil && !s.opts.ReadOnly {
		if err := s.saveCut(c, data[n:]); err != nil {
			return 0, fmt.Errorf("pocket: save what is cut off: %w", err)
		}
	}
	return int64(n), nil
}
