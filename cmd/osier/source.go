package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"strings"
)

// maxRecordBytes bounds what is held in memory for one line, JSON value or CSV
// row of an import.
const maxRecordBytes = 64 << 20

// sniffBytes is how much of a source is looked at to find out its format.
const sniffBytes = 64 << 10

// record is one document of a source, as text.
type record struct {
	text []byte // valid until the next record
	line int    // where it begins, from 1
}

// badRecord is the error for a record that is wrong in itself: the source can
// go on with the next one.
type badRecord struct {
	line int
	err  error
}

func (b *badRecord) Error() string { return fmt.Sprintf("line %d: %v", b.line, b.err) }
func (b *badRecord) Unwrap() error { return b.err }

// source yields the records of a file; io.EOF at the end. After any other
// error than *badRecord it cannot go on.
type source interface {
	next() (record, error)
	// position is the end of the latest record, good or bad: how many bytes
	// and line feeds lie before it. Reading can be taken up again there.
	position() (offset int64, lines int)
}

// layout is how a source is written.
type layout struct {
	Format  string `json:"format"` // jsonl, json or csv
	Array   bool   `json:"array,omitempty"`
	Comma   string `json:"comma,omitempty"`
	Strings bool   `json:"strings,omitempty"`
}

// formatOf decides how a source is written, by its name, or else by how it
// begins.
func formatOf(name, format string, head []byte) (layout, error) {
	head = bytes.TrimPrefix(head, bom)
	text := bytes.TrimLeft(head, " \t\r\n")
	array := len(text) > 0 && text[0] == '['
	if format == "auto" {
		switch strings.ToLower(filepath.Ext(name)) {
		case ".jsonl", ".ndjson":
			format = "jsonl"
		case ".csv", ".tsv":
			format = "csv"
		default:
			format = sniff(text, array)
		}
	}
	switch format {
	case "json":
		return layout{Format: format, Array: array}, nil
	case "csv":
		comma := ","
		if strings.EqualFold(filepath.Ext(name), ".tsv") {
			comma = "\t"
		}
		return layout{Format: format, Comma: comma}, nil
	case "":
		return layout{}, errors.New("cannot tell the format: give --format jsonl, json or csv")
	}
	return layout{Format: format}, nil
}

func sniff(text []byte, array bool) string {
	line, _, whole := bytes.Cut(text, []byte("\n"))
	switch {
	case len(text) == 0 || array:
		return "json"
	case text[0] == '{':
		if !whole {
			return "jsonl"
		}
		if _, err := appendCompact(nil, line); err != nil {
			return "json" // a document over several lines
		}
		return "jsonl"
	case bytes.IndexByte(line, ',') > 0:
		return "csv"
	}
	return ""
}

var bom = []byte("\xef\xbb\xbf")

// tracker reads a source and keeps the digest of what lies before a position,
// so that a later run can tell whether the file still begins the same.
type tracker struct {
	r       io.Reader
	sum     hash.Cloner
	base    int64  // how many bytes are in sum
	pending []byte // what has been read behind them
}

func newTracker(r io.Reader) *tracker {
	return &tracker{r: r, sum: sha256.New().(hash.Cloner)}
}

func (t *tracker) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.pending = append(t.pending, p[:n]...)
	return n, err
}

// digest returns the digest of the first offset bytes. Offset must lie between
// the place advanced to and what has been read.
func (t *tracker) digest(offset int64) ([]byte, error) {
	sum, err := t.sum.Clone()
	if err != nil {
		return nil, err
	}
	sum.Write(t.pending[:offset-t.base])
	return sum.Sum(nil), nil
}

// advance drops what lies before offset, keeping its digest.
func (t *tracker) advance(offset int64) {
	n := offset - t.base
	t.sum.Write(t.pending[:n])
	t.pending = append(t.pending[:0], t.pending[n:]...)
	t.base = offset
}

// skip reads up to offset, keeping only the digest.
func (t *tracker) skip(offset int64) error {
	n, err := io.CopyN(t.sum, t.r, offset-t.base)
	t.base += n
	return err
}

// lineSource reads JSON lines. Blank lines are passed over.
type lineSource struct {
	r      *bufio.Reader
	offset int64
	lines  int
	max    int
	buf    []byte
}

func newLineSource(r io.Reader, offset int64, lines int) *lineSource {
	return &lineSource{r: bufio.NewReaderSize(r, 256<<10), offset: offset, lines: lines, max: maxRecordBytes}
}

func (s *lineSource) position() (int64, int) { return s.offset, s.lines }

func (s *lineSource) next() (record, error) {
	for {
		first := s.offset == 0
		line, long, err := s.readLine()
		if err != nil {
			return record{}, err
		}
		at := s.lines + 1
		if bytes.HasSuffix(line, []byte("\n")) || long {
			s.lines++
		}
		if long {
			return record{}, &badRecord{at, fmt.Errorf("the line is longer than %s", humanSize(uint64(s.max)))}
		}
		if first {
			line = bytes.TrimPrefix(line, bom)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return record{line, at}, nil
		}
	}
}

// readLine returns the next line; of one that is too long only that it is.
func (s *lineSource) readLine() (line []byte, long bool, err error) {
	s.buf = s.buf[:0]
	got := false
	for {
		part, err := s.r.ReadSlice('\n')
		s.offset += int64(len(part))
		got = got || len(part) > 0
		if err == nil && len(s.buf) == 0 && !long {
			return part, false, nil // the common case: no copy
		}
		if !long {
			s.buf = append(s.buf, part...)
		}
		if len(s.buf) > s.max {
			long, s.buf = true, s.buf[:0]
		}
		switch {
		case err == nil:
			return s.buf, long, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && got:
			return s.buf, long, nil
		default:
			return nil, false, err
		}
	}
}
