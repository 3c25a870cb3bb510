package couch

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"runtime"
	"strconv"

	"github.com/osierdb/osier"
)

// stream is an answer being written, through a buffer of bounded size. An
// answer that fits into the buffer goes out with its length.
type stream struct {
	q      *request
	status int
	buf    []byte
	whole  bool // keep all until the end, so that its length is known
	long   bool // it may be a whole collection: it takes its turn with others
	sent   bool
	err    error
}

// streamBuffer is what a stream collects before it writes.
const streamBuffer = 32 << 10

// stream begins an answer of the type.
func (q *request) stream(status int, contentType string) *stream {
	if contentType == jsonType[0] {
		q.w.Header()["Content-Type"] = jsonType
	} else {
		q.w.Header().Set("Content-Type", contentType)
	}
	b := borrow()
	return &stream{q: q, status: status, buf: *b}
}

// room writes what has been collected once it is much.
func (s *stream) room() error {
	if len(s.buf) < streamBuffer || s.whole {
		return s.err
	}
	if !s.long {
		return s.flush()
	}
	s.q.pause()
	if err := s.flush(); err != nil {
		return err
	}
	s.err = s.q.resume()
	return s.err
}

// turns let long answers work on one processor less than there are, in slices of
// a buffer each: while all processors are busy, the runtime looks for requests
// that have come only every ten milliseconds.
type turns chan struct{}

func newTurns() turns { return make(turns, max(runtime.GOMAXPROCS(0)-1, 1)) }

// resume waits for a turn. pause must follow, before anything else is waited for.
func (q *request) resume() error {
	select {
	case q.door.turns <- struct{}{}:
		q.turn = true
		return nil
	case <-q.ctx().Done():
		return context.Cause(q.ctx())
	}
}

// pause gives the request's turn back, if it has it.
func (q *request) pause() {
	if q.turn {
		<-q.door.turns
		q.turn = false
	}
}

// flush writes what has been collected.
func (s *stream) flush() error {
	if !s.sent {
		s.sent, s.q.started = true, true
		s.q.w.WriteHeader(s.status)
	}
	if s.err == nil && len(s.buf) > 0 {
		_, s.err = s.q.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
	return s.err
}

// push flushes through to the client.
func (s *stream) push() error {
	if err := s.flush(); err != nil {
		return err
	}
	s.err = http.NewResponseController(s.q.w).Flush()
	return s.err
}

// end writes the rest. The stream must not be used afterwards.
func (s *stream) end() error {
	if !s.sent {
		s.q.w.Header().Set("Content-Length", strconv.Itoa(len(s.buf)))
	}
	// If it fails the client has gone: nobody is left to be told.
	_ = s.flush()
	b := s.buf // not the stream's own, which would live as long as the buffer
	giveBack(&b)
	return nil
}

// Write lets a stream be an io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	if len(p) >= streamBuffer {
		if err := s.flush(); err != nil {
			return 0, err
		}
		n, err := s.q.w.Write(p)
		s.err = err
		return n, err
	}
	s.buf = append(s.buf, p...)
	return len(p), s.room()
}

// attMode says how attachments are shown.
type attMode uint8

const (
	attStubs   attMode = iota // that they are there
	attInline                 // with their bytes in base64
	attFollows                // as parts of a multipart answer
)

// docOptions say what is shown of a document.
type docOptions struct {
	revs             bool
	revsInfo         []revInfo
	localSeq         bool
	conflicts        bool
	deletedConflicts bool
	encodingInfo     bool
	atts             attMode
	// since, with atts: only attachments set after this generation, and
	// stubs of the others.
	since uint64
}

type revInfo struct {
	rev    osier.Rev
	status string
}

// shows reports whether an attachment comes with its bytes.
func (o *docOptions) shows(a *osier.Attachment) bool {
	return o.atts != attStubs && a.RevPos > o.since
}

// document writes a document.
func (s *stream) document(ctx context.Context, db *osier.DB, d *osier.Document, o *docOptions) error {
	s.buf = appendQuoted(append(s.buf, `{"_id":`...), idText(d.ID))
	s.buf = appendQuoted(append(s.buf, `,"_rev":`...), d.Rev.String())
	body, err := bodyMembers(db, d)
	if err != nil {
		return err
	}
	if len(body) > 0 {
		s.buf = append(append(s.buf, ','), body...)
	}
	if d.Deleted {
		s.buf = append(s.buf, `,"_deleted":true`...)
	}
	s.buf = appendMeta(s.buf, d, o)
	if len(d.Attachments) > 0 {
		if err := s.attachments(ctx, db, d, o); err != nil {
			return err
		}
	}
	s.buf = append(s.buf, '}')
	return s.room()
}

// appendMeta writes the members that tell of the document's revisions.
func appendMeta(b []byte, d *osier.Document, o *docOptions) []byte {
	if o.revs {
		b = strconv.AppendUint(append(b, `,"_revisions":{"start":`...), d.Rev.Generation(), 10)
		b = appendDigest(append(b, `,"ids":["`...), d.Rev)
		for _, rev := range d.Ancestors {
			b = appendDigest(append(b, `","`...), rev)
		}
		b = append(b, `"]}`...)
	}
	if o.revsInfo != nil {
		b = append(b, `,"_revs_info":[`...)
		for i, r := range o.revsInfo {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(append(b, `{"rev":`...), r.rev.String())
			b = append(append(append(b, `,"status":"`...), r.status...), `"}`...)
		}
		b = append(b, ']')
	}
	if o.localSeq {
		b = strconv.AppendUint(append(b, `,"_local_seq":`...), uint64(d.Seq), 10)
	}
	if o.conflicts {
		b = appendLeaves(b, `,"_conflicts":[`, d.Conflicts, false)
	}
	if o.deletedConflicts {
		b = appendLeaves(b, `,"_deleted_conflicts":[`, d.Conflicts, true)
	}
	return b
}

// appendDigest writes a revision without its generation.
func appendDigest(b []byte, rev osier.Rev) []byte {
	text := rev.String()
	for i := range len(text) {
		if text[i] == '-' {
			text = text[i+1:]
			break
		}
	}
	quoted := appendQuoted(nil, text)
	return append(b, quoted[1:len(quoted)-1]...)
}

func appendLeaves(b []byte, name string, leaves []osier.Leaf, deleted bool) []byte {
	n := 0
	for _, l := range leaves {
		if l.Deleted != deleted {
			continue
		}
		if n++; n == 1 {
			b = append(b, name...)
		} else {
			b = append(b, ',')
		}
		b = appendQuoted(b, l.Rev.String())
	}
	if n > 0 {
		b = append(b, ']')
	}
	return b
}

// bodyMembers returns the members of a document's body, without the braces.
// What the door stored is in its form already; bodies of other writers are
// brought into it.
func bodyMembers(db *osier.DB, d *osier.Document) ([]byte, error) {
	body := d.Body
	if len(body) == 0 {
		return nil, nil
	}
	if d.Codec > osier.TagJSON {
		var err error
		if body, err = db.AppendJSON(nil, d); err != nil {
			return nil, err
		}
	}
	plain := body[0] == '{' && body[len(body)-1] == '}' && bytes.IndexByte(body, '\n') < 0 && !bytes.Contains(body, []byte(`"_`))
	if !plain {
		s := scanner{in: body, out: make([]byte, 0, len(body))}
		if s.space() != '{' {
			// A collection of other things than objects.
			out, err := canonical([]byte(`"value":`), body, 0)
			return out, err
		}
		err := s.object(func(name, _ []byte) (bool, error) {
			return len(name) > 0 && name[0] == '_' && !bytes.HasPrefix(name, []byte("_replication_")), nil
		})
		if err != nil {
			return nil, &osier.Error{Kind: osier.KindCorrupt, Op: "read body", DB: db.Name(), ID: d.ID.String(), Err: err}
		}
		body = s.out
	}
	return body[1 : len(body)-1], nil
}

// attachments writes the member _attachments.
func (s *stream) attachments(ctx context.Context, db *osier.DB, d *osier.Document, o *docOptions) error {
	s.buf = append(s.buf, `,"_attachments":{`...)
	for i := range d.Attachments {
		a := &d.Attachments[i]
		if i > 0 {
			s.buf = append(s.buf, ',')
		}
		s.buf = appendQuoted(s.buf, a.Name)
		s.buf = appendQuoted(append(s.buf, `:{"content_type":`...), a.ContentType)
		s.buf = strconv.AppendUint(append(s.buf, `,"revpos":`...), a.RevPos, 10)
		s.buf = append(append(append(s.buf, `,"digest":"`...), digest(a)...), '"')
		show := o.shows(a)
		if show && o.atts == attInline {
			if err := s.inline(ctx, db, a); err != nil {
				return err
			}
		} else {
			s.buf = strconv.AppendUint(append(s.buf, `,"length":`...), a.Size, 10)
			if show {
				s.buf = append(s.buf, `,"follows":true`...)
			} else {
				s.buf = append(s.buf, `,"stub":true`...)
			}
		}
		if o.encodingInfo && !(show && o.atts == attFollows) && compressible(a.ContentType) {
			n, err := compressedSize(ctx, db, a)
			if err != nil {
				return err
			}
			s.buf = strconv.AppendInt(append(s.buf, `,"encoding":"gzip","encoded_length":`...), n, 10)
		}
		s.buf = append(s.buf, '}')
	}
	s.buf = append(s.buf, '}')
	return nil
}

// digest is an attachment's digest as CouchDB shows it.
func digest(a *osier.Attachment) string {
	return "md5-" + base64.StdEncoding.EncodeToString(a.MD5[:])
}

// inline writes an attachment's bytes in base64.
func (s *stream) inline(ctx context.Context, db *osier.DB, a *osier.Attachment) error {
	s.buf = append(s.buf, `,"data":"`...)
	r, err := db.Backend().Fetch(ctx, db.Name(), a.Blob, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	var chunk [12 << 10]byte // a multiple of three: only the last one is padded
	for {
		n, err := io.ReadFull(r, chunk[:])
		s.buf = base64.StdEncoding.AppendEncode(s.buf, chunk[:n])
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			s.buf = append(s.buf, '"')
			return s.room()
		}
		if err != nil {
			return err
		}
		if err := s.room(); err != nil {
			return err
		}
	}
}
