package pot

import (
	"errors"
	"io"
)

// An Encoder writes payloads one after the other to a stream. It belongs to one
// goroutine.
type Encoder struct {
	w    io.Writer
	opts EncodeOptions
	buf  []byte
}

// NewEncoder returns an encoder; nil options are the default. To keep names
// over many payloads give it a table with Link.
func NewEncoder(w io.Writer, opts *EncodeOptions) *Encoder {
	e := &Encoder{w: w}
	if opts != nil {
		e.opts = *opts
	}
	return e
}

// Encode writes the payload of v in one call of Write. After an error of the
// writer nothing more should be written to the stream, since a part of a payload
// may be in it.
func (e *Encoder) Encode(v any) error {
	b, err := e.opts.Append(e.buf[:0], v)
	if err != nil {
		return err
	}
	if e.buf = b; cap(b) > maxKeptBuffer {
		e.buf = nil
	}
	_, err = e.w.Write(b)
	return err
}

const maxKeptBuffer = 1 << 20

// DefaultMaxPayload bounds the payloads of a Decoder unless SetMaxPayload does.
const DefaultMaxPayload = 256 << 20

// A Decoder reads payloads one after the other from a stream. It reads ahead,
// but never waits for more than the payload that it was asked for. It belongs
// to one goroutine.
//
// The end of a payload follows from its bytes, except where mode Full writes a
// unit variant; a payload with variants in that mode is decoded anew each time
// when more of it has come.
type Decoder struct {
	r          io.Reader
	opts       DecodeOptions
	buf        []byte
	start      int   // of what has not been decoded, within buf
	base       int64 // of the stream at buf[0]
	maxPayload int
	err        error // of the stream
	scan       scanner
}

// NewDecoder returns a decoder; nil options are the default. With BorrowStrings
// the decoder does not write again to memory that payloads were in.
func NewDecoder(r io.Reader, opts *DecodeOptions) *Decoder {
	d := &Decoder{r: r, maxPayload: DefaultMaxPayload}
	if opts != nil {
		d.opts = *opts
	}
	return d
}

// SetMaxPayload bounds the bytes of one payload; beyond it Decode fails with
// ErrBudget.
func (d *Decoder) SetMaxPayload(n int) { d.maxPayload = n }

// Offset returns the place in the stream behind the last payload decoded.
func (d *Decoder) Offset() int64 { return d.base + int64(d.start) }

// Decode decodes the next payload into the value that v points to. At the end
// of the stream it returns io.EOF, and ErrTruncated if that lies within a
// payload. When the payload is well-formed but does not fit the Go type, the next
// one can be decoded, except after variants in mode Full. After any other error
// the stream cannot be read on, and Decode returns the error again.
func (d *Decoder) Decode(v any) error {
	if d.err != nil && d.start == len(d.buf) {
		return d.err
	}
	n, err := d.next()
	if err == errVariant {
		return d.decodeGrowing(v)
	}
	if err != nil {
		d.err = err
		d.start = len(d.buf)
		return err
	}
	payload := d.buf[d.start : d.start+n : d.start+n]
	d.start += n
	return d.opts.Unmarshal(payload, v)
}

var errVariant = errors.New("the end cannot be told without the type")

// next waits for a whole payload and returns its length.
func (d *Decoder) next() (int, error) {
	s := &d.scan
	*s = scanner{mode: d.opts.Mode, pending: 1, open: s.open[:0], lens: s.lens[:0], maxOpen: depthLimit(d.opts.MaxDepth)}
	if t := d.opts.Table; t != nil {
		for _, sh := range t.snap.Load().shapes {
			s.lens = append(s.lens, len(sh.ids))
		}
	}
	for !d.opts.NoHeader {
		data := d.buf[d.start:]
		if len(data) >= headerSize {
			mode, code := modeOf(data)
			if code != 0 {
				return 0, errAt(code, 0, "payload of a stream")
			}
			s.mode, s.pos = mode, headerSize
			break
		}
		if err := d.fill(); err != nil {
			return 0, err
		}
	}
	for {
		switch code := s.run(d.buf[d.start:]); {
		case s.variant:
			return 0, errVariant
		case code == 0:
			return s.pos, nil
		case code != ErrTruncated:
			return 0, errAt(code, s.pos, "payload of a stream")
		}
		if err := d.fill(); err != nil {
			return 0, err
		}
	}
}

// decodeGrowing decodes what has come, and again when more has come.
func (d *Decoder) decodeGrowing(v any) error {
	for {
		data := d.buf[d.start:]
		n, err := d.opts.unmarshal(data[:len(data):len(data)], v)
		if !errors.Is(err, ErrTruncated) {
			if err == nil {
				d.start += n
				return nil
			}
			d.err, d.start = err, len(d.buf)
			return err
		}
		if fillErr := d.fill(); fillErr != nil {
			d.err, d.start = fillErr, len(d.buf)
			return fillErr
		}
	}
}

// fill reads once from the stream. It returns io.EOF between payloads only.
func (d *Decoder) fill() error {
	have := len(d.buf) - d.start
	switch {
	case d.err != nil:
	case have >= d.maxPayload:
		return errAt(ErrBudget, have, "payload of more than %d bytes", d.maxPayload)
	}
	if d.err == nil && len(d.buf) == cap(d.buf) {
		d.makeRoom(have)
	}
	for tries := 0; d.err == nil && tries < 100; tries++ {
		n, err := d.r.Read(d.buf[len(d.buf):cap(d.buf)])
		d.buf = d.buf[:len(d.buf)+n]
		d.err = err
		if n > 0 {
			return nil // err, if any, is for the next time
		}
	}
	switch {
	case d.err == nil:
		return io.ErrNoProgress
	case d.err == io.EOF && have > 0:
		return errAt(ErrTruncated, have, "the stream ends within a payload")
	}
	return d.err
}

// makeRoom moves what has not been decoded to the front, in larger memory if
// it fills half, and in new memory if strings point into the old.
func (d *Decoder) makeRoom(have int) {
	into := d.buf[:0]
	if have >= cap(d.buf)/2 || d.opts.Strings == BorrowStrings {
		into = make([]byte, 0, max(4<<10, 2*have))
	}
	d.base += int64(d.start)
	d.buf, d.start = append(into, d.buf[d.start:]...), 0
}
