package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// jsonSource reads the elements of one JSON array, or JSON values one after
// the other, holding one of them at a time. It finds where values end by
// brackets and quotes alone; whether they are valid is judged later, so that
// one bad element need not end the reading.
type jsonSource struct {
	r      *bufio.Reader
	array  bool
	state  jsonState
	offset int64
	lines  int
	endAt  int64 // position of the latest record
	endLn  int
	max    int
	buf    []byte
}

// jsonState is what may come next.
type jsonState int

const (
	jsonBegin  jsonState = iota // nothing read yet
	jsonFirst                   // in the array: a value or its end
	jsonAfter                   // in the array, behind a value
	jsonValues                  // outside of an array
	jsonEnd                     // behind the array
)

func newJSONSource(r io.Reader, array bool, offset int64, lines int) *jsonSource {
	s := &jsonSource{r: bufio.NewReaderSize(r, 256<<10), array: array, offset: offset, lines: lines, endAt: offset, endLn: lines, max: maxRecordBytes}
	if offset > 0 {
		s.state = jsonValues
		if array {
			s.state = jsonAfter
		}
	}
	return s
}

func (s *jsonSource) position() (int64, int) { return s.endAt, s.endLn }

func (s *jsonSource) next() (record, error) {
	for {
		c, err := s.skipSpace()
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF) || s.state != jsonFirst && s.state != jsonAfter:
			if errors.Is(err, io.EOF) {
				s.endAt, s.endLn = s.offset, s.lines
			}
			return record{}, err
		default:
			return record{}, fmt.Errorf("line %d: the file ends within the array", s.lines+1)
		}
		switch {
		case s.state == jsonBegin && s.array:
			if c != '[' {
				return record{}, s.unexpected(c, "the array")
			}
			s.read()
			s.state = jsonFirst
		case s.state == jsonFirst && c == ']' || s.state == jsonAfter && c == ']':
			s.read()
			s.state = jsonEnd
		case s.state == jsonAfter:
			if c != ',' {
				return record{}, s.unexpected(c, "a comma or the end of the array")
			}
			s.read()
			if c, err = s.skipSpace(); err != nil {
				return record{}, fmt.Errorf("line %d: the file ends within the array", s.lines+1)
			}
			return s.value(c)
		case s.state == jsonEnd:
			return record{}, s.unexpected(c, "nothing behind the array")
		default:
			return s.value(c)
		}
	}
}

func (s *jsonSource) unexpected(c byte, want string) error {
	return fmt.Errorf("line %d: %q where %s should be; what follows cannot be read", s.lines+1, c, want)
}

// skipSpace returns the next byte that is no white space, without reading it.
// A byte order mark counts as white space at the beginning.
func (s *jsonSource) skipSpace() (byte, error) {
	if s.offset == 0 {
		if head, err := s.r.Peek(len(bom)); err == nil && bytes.Equal(head, bom) {
			for range bom {
				s.read()
			}
		}
	}
	for {
		c, err := s.read()
		if err != nil {
			return 0, err
		}
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		}
		return c, s.unread(c)
	}
}

func (s *jsonSource) read() (byte, error) {
	c, err := s.r.ReadByte()
	if err == nil {
		s.offset++
		if c == '\n' {
			s.lines++
		}
	}
	return c, err
}

func (s *jsonSource) unread(c byte) error {
	s.offset--
	if c == '\n' {
		s.lines--
	}
	return s.r.UnreadByte()
}

// value reads the value that begins with c, the next byte.
func (s *jsonSource) value(c byte) (record, error) {
	line := s.lines + 1
	s.buf = s.buf[:0]
	var err error
	switch c {
	case '{', '[':
		err = s.nested()
	case '"':
		s.take()
		err = s.text()
	default:
		err = s.scalar()
	}
	switch {
	case errors.Is(err, io.EOF):
		return record{}, fmt.Errorf("line %d: the file ends within the value that begins here", line)
	case err != nil:
		return record{}, fmt.Errorf("line %d: %w", line, err)
	case len(s.buf) == 0:
		return record{}, s.unexpected(c, "a value")
	}
	s.state = jsonValues
	if s.array {
		s.state = jsonAfter
	}
	s.endAt, s.endLn = s.offset, s.lines
	return record{s.buf, line}, nil
}

// take moves a byte to the value.
func (s *jsonSource) take() (byte, error) {
	c, err := s.read()
	if err != nil {
		return 0, err
	}
	if len(s.buf) == s.max {
		return 0, fmt.Errorf("a value of more than %s; what follows cannot be read", humanSize(uint64(s.max)))
	}
	s.buf = append(s.buf, c)
	return c, nil
}

// nested takes up to the bracket that closes the first one.
func (s *jsonSource) nested() error {
	for depth := 0; ; {
		c, err := s.take()
		if err != nil {
			return err
		}
		switch c {
		case '"':
			if err := s.text(); err != nil {
				return err
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return nil
			}
		}
	}
}

// text takes the rest of a string whose opening quote has been taken.
func (s *jsonSource) text() error {
	for {
		c, err := s.take()
		if err != nil {
			return err
		}
		switch c {
		case '\\':
			if _, err := s.take(); err != nil {
				return err
			}
		case '"':
			return nil
		}
	}
}

// scalar takes a number or word, up to what cannot belong to one.
func (s *jsonSource) scalar() error {
	for {
		c, err := s.read()
		if errors.Is(err, io.EOF) && len(s.buf) > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.unread(c); err != nil {
			return err
		}
		if scalarLen([]byte{c}) == 0 {
			return nil
		}
		if _, err := s.take(); err != nil {
			return err
		}
	}
}
