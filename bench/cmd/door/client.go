package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// conn is a keep-alive connection of the generator. It speaks just enough HTTP
// to cost the machine little beside the server that is measured.
type conn struct {
	c    net.Conn
	r    *bufio.Reader
	auth string
	host string
	buf  []byte
}

func dial(host, user, password string) (*conn, error) {
	c, err := net.Dial("tcp", host)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, r: bufio.NewReaderSize(c, 64<<10), host: host,
		auth: base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}, nil
}

func (c *conn) close() { c.c.Close() }

// send writes a request.
func (c *conn) send(method, path string, body []byte) error {
	b := append(c.buf[:0], method...)
	b = append(append(append(b, ' '), path...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, c.host...), "\r\nAccept: application/json\r\nAuthorization: Basic "...)
	b = append(b, c.auth...)
	if body != nil {
		b = append(b, "\r\nContent-Type: application/json\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
	}
	b = append(append(b, "\r\n\r\n"...), body...)
	c.buf = b
	_, err := c.c.Write(b)
	return err
}

// receive reads an answer; its body goes to w.
func (c *conn) receive(w io.Writer) (status int, n int64, err error) {
	line, err := c.line()
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 12 {
		return 0, 0, errors.New("no status line")
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, err
	}
	length, chunked := int64(0), false
	for {
		line, err = c.line()
		if err != nil {
			return status, 0, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			length, err = strconv.ParseInt(string(value), 10, 64)
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
		if err != nil {
			return status, 0, err
		}
	}
	if !chunked {
		n, err = io.CopyN(w, c.r, length)
		return status, n, err
	}
	for {
		line, err = c.line()
		if err != nil {
			return status, n, err
		}
		size, err := strconv.ParseInt(string(line), 16, 64)
		if err != nil {
			return status, n, err
		}
		k, err := io.CopyN(w, c.r, size)
		if n += k; err != nil {
			return status, n, err
		}
		if _, err = c.line(); err != nil || size == 0 {
			return status, n, err
		}
	}
}

// line reads a line without its end; it is valid until the next read.
func (c *conn) line() ([]byte, error) {
	b, err := c.r.ReadSlice('\n')
	return bytes.TrimRight(b, "\r\n"), err
}

// do sends a request and wants one of the statuses.
func (c *conn) do(method, path string, body []byte, w io.Writer, want int) (int64, error) {
	if err := c.send(method, path, body); err != nil {
		return 0, err
	}
	status, n, err := c.receive(w)
	if err != nil {
		return n, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if status != want {
		return n, fmt.Errorf("%s %s: status %d, want %d", method, path, status, want)
	}
	return n, nil
}
