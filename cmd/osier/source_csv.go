package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// csvSource turns the rows of a CSV file with a header into JSON objects, a
// member a column, in the header's order.
type csvSource struct {
	r       *csv.Reader
	limit   *recordLimit
	names   []string
	idAt    int   // index of a column that stays text; -1: none
	strings bool  // all cells are
	base    int64 // where r begins in the file
	lines   int   // line feeds before base
	endLn   int
	buf     []byte
}

// recordLimit ends reading when a record (one with an open quote, say) takes
// in more than its share.
type recordLimit struct {
	r    io.Reader
	left int
}

var errLongRow = fmt.Errorf("a row of more than %s: a quote may be open; what follows cannot be read", humanSize(maxRecordBytes))

func (l *recordLimit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLongRow
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// newCSVSource reads rows from r, which begins at offset, lines into the file;
// without names the header comes first. The column id, unless it is "", stays
// text.
func newCSVSource(r io.Reader, l layout, names []string, id string, offset int64, lines int) (*csvSource, error) {
	s := &csvSource{limit: &recordLimit{r, maxRecordBytes}, idAt: -1, strings: l.Strings, base: offset, lines: lines, endLn: lines}
	s.r = csv.NewReader(s.limit)
	for _, c := range l.Comma {
		s.r.Comma = c
		break
	}
	if names == nil {
		var err error
		if names, err = s.header(); err != nil {
			return nil, err
		}
	}
	s.r.ReuseRecord = true
	s.r.FieldsPerRecord = len(names)
	s.names = names
	s.idAt = slices.Index(names, id)
	return s, nil
}

// header reads the names of the columns.
func (s *csvSource) header() ([]string, error) {
	names, err := s.r.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("line 1: want a header with the names of the columns")
	}
	if err != nil {
		return nil, csvError(err, 0)
	}
	s.endLn = s.lines + s.lastLine(names)
	seen := map[string]bool{}
	for i, name := range names {
		if name == "" {
			name = fmt.Sprintf("column%d", i+1)
		}
		if seen[name] {
			return nil, fmt.Errorf("line 1: there are two columns %q", name)
		}
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("line 1: the name of column %d is not UTF-8", i+1)
		}
		names[i], seen[name] = name, true
	}
	return names, nil
}

// lastLine returns the line on which the latest row ends: a quoted cell may
// span lines.
func (s *csvSource) lastLine(row []string) int {
	line, _ := s.r.FieldPos(len(row) - 1)
	return line + strings.Count(row[len(row)-1], "\n")
}

func (s *csvSource) position() (int64, int) { return s.base + s.r.InputOffset(), s.endLn }

func (s *csvSource) next() (record, error) {
	s.limit.left = maxRecordBytes
	row, err := s.r.Read()
	if err != nil {
		var pe *csv.ParseError
		if !errors.As(err, &pe) {
			return record{}, err
		}
		s.endLn = s.lines + pe.Line
		if len(row) > 0 {
			s.endLn = s.lines + s.lastLine(row)
		}
		return record{}, &badRecord{s.lines + pe.StartLine, s.explain(pe, len(row))}
	}
	first, _ := s.r.FieldPos(0)
	s.endLn = s.lines + s.lastLine(row)
	s.buf = append(s.buf[:0], '{')
	for i, cell := range row {
		if i > 0 {
			s.buf = append(s.buf, ',')
		}
		s.buf = append(appendQuoted(s.buf, s.names[i]), ':')
		s.buf = appendCell(s.buf, cell, s.strings || i == s.idAt)
	}
	s.buf = append(s.buf, '}')
	return record{s.buf, s.lines + first}, nil
}

func (s *csvSource) explain(pe *csv.ParseError, fields int) error {
	if errors.Is(pe, csv.ErrFieldCount) {
		return fmt.Errorf("%d cells where the header has %d", fields, len(s.names))
	}
	return fmt.Errorf("column %d: %w", pe.Column, pe.Err)
}

// csvError adds the line to an error that ends the reading.
func csvError(err error, lines int) error {
	var pe *csv.ParseError
	if errors.As(err, &pe) {
		return fmt.Errorf("line %d: %w", lines+pe.StartLine, pe.Err)
	}
	return err
}

// appendCell writes a cell as the JSON value it looks like: a number with the
// same digits, true or false, null for an empty cell, or else a string. With
// text it is a string in any case.
func appendCell(dst []byte, cell string, text bool) []byte {
	if text {
		return appendQuoted(dst, cell)
	}
	switch cell {
	case "":
		return append(dst, "null"...)
	case "true", "TRUE", "True":
		return append(dst, "true"...)
	case "false", "FALSE", "False":
		return append(dst, "false"...)
	}
	if isJSONNumber(cell) {
		return append(dst, cell...)
	}
	return appendQuoted(dst, cell)
}

// isJSONNumber applies JSON's grammar: no plus sign, no leading zeros, so that
// postal codes and telephone numbers that have them stay text.
func isJSONNumber(s string) bool {
	digits := func() bool {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		s = s[n:]
		return n > 0
	}
	if s != "" && s[0] == '-' {
		s = s[1:]
	}
	if s != "" && s[0] == '0' {
		s = s[1:]
	} else if !digits() {
		return false
	}
	if s != "" && s[0] == '.' {
		if s = s[1:]; !digits() {
			return false
		}
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		s = s[1:]
		if s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		if !digits() {
			return false
		}
	}
	return s == ""
}
