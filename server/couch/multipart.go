package couch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
)

// relatedBoundary returns the boundary of a multipart/related body; "" if the
// content type is another.
func relatedBoundary(contentType string) string {
	t, args, err := mime.ParseMediaType(contentType)
	if err != nil || t != "multipart/related" {
		return ""
	}
	return args["boundary"]
}

// inputRelated reads a document with its attachments: first the JSON, then the
// attachments that follow, by the names in their headers or in order. Their
// bytes stream into the store.
func (q *request) inputRelated(boundary string) (*incoming, error) {
	body, err := q.input()
	if err != nil {
		return nil, err
	}
	mr := multipart.NewReader(body, boundary)
	part, err := mr.NextRawPart()
	if err != nil {
		return nil, errBadJSON
	}
	limit := q.door.host.Limits().Document
	if limit <= 0 {
		limit = 1 << 30
	}
	// Attachments that stand in the JSON part are larger there than decoded.
	text, err := readAll(http.MaxBytesReader(nil, part, limit+q.door.host.Limits().Attachment), 0, nil)
	if err != nil {
		return nil, broken(err)
	}
	in, err := parseDoc(text, q.depth())
	if err != nil {
		return nil, err
	}
	// Rights and form are judged before bytes are put down for nothing.
	if err := q.mayWriteDoc(in); err != nil {
		return nil, err
	}
	return in, q.stageParts(mr, in)
}

// broken turns a multipart body's fault into the client's.
func broken(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return err
	}
	return badRequest("the multipart body is broken: " + err.Error())
}

func (q *request) stageParts(mr *multipart.Reader, in *incoming) error {
	var waiting []*incomingAtt
	for i := range in.atts {
		if in.atts[i].follows {
			waiting = append(waiting, &in.atts[i])
		}
	}
	for len(waiting) > 0 {
		part, err := mr.NextRawPart()
		if err == io.EOF {
			return badRequest("attachment " + waiting[0].name + " does not follow")
		}
		if err != nil {
			return broken(err)
		}
		k := 0
		if name := part.FileName(); name != "" {
			for i, a := range waiting {
				if a.name == name || strings.HasSuffix(a.name, "/"+name) {
					k = i
					break
				}
			}
		}
		a := waiting[k]
		waiting = append(waiting[:k], waiting[k+1:]...)
		encoding := a.encoding
		if encoding == "" {
			encoding = part.Header.Get("Content-Encoding")
		}
		n := &counted{r: part}
		if a.staged, err = q.stage(q.ctx(), n, encoding); err != nil {
			return err
		}
		if a.length >= 0 && n.n != a.length {
			return badRequest("attachment " + a.name + " has " + strconv.FormatInt(n.n, 10) + " bytes, " + strconv.FormatInt(a.length, 10) + " were announced")
		}
	}
	return nil
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		err = broken(err)
	}
	return n, err
}

func newBoundary() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// blob writes a part of an attachment.
func (s *stream) blob(ctx context.Context, db *osier.DB, a *osier.Attachment, br byteRange) error {
	r, err := db.Backend().Fetch(ctx, db.Name(), a.Blob, br.from, br.length)
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(s, r)
	if err == nil && n < br.length {
		err = &osier.Error{Kind: osier.KindCorrupt, Op: "read attachment " + a.Name, DB: db.Name(), Err: io.ErrUnexpectedEOF}
	}
	return err
}

// parts writes the parts of a multipart/related document, with its last
// boundary.
func (s *stream) parts(ctx context.Context, db *osier.DB, d *osier.Document, o *docOptions, boundary string) error {
	o.atts = attFollows
	s.buf = append(s.buf, "--"+boundary+"\r\nContent-Type: application/json\r\n\r\n"...)
	if err := s.document(ctx, db, d, o); err != nil {
		return err
	}
	for i := range d.Attachments {
		a := &d.Attachments[i]
		if !o.shows(a) {
			continue
		}
		s.buf = append(s.buf, "\r\n--"+boundary+"\r\nContent-Disposition: attachment; filename=\""+headerText(a.Name)+
			"\"\r\nContent-Type: "+headerText(a.ContentType)+"\r\nContent-Length: "+strconv.FormatUint(a.Size, 10)+"\r\n\r\n"...)
		if err := s.blob(ctx, db, a, byteRange{0, int64(a.Size)}); err != nil {
			return err
		}
	}
	s.buf = append(s.buf, "\r\n--"+boundary+"--"...)
	return s.room()
}

// headerText keeps a name from ending the header it stands in.
func headerText(s string) string {
	return strings.NewReplacer("\r", " ", "\n", " ", `\`, `\\`, `"`, `\"`).Replace(s)
}

// related answers with a document and its attachments.
func (q *request) related(d *osier.Document, o *docOptions) error {
	b := newBoundary()
	s := q.stream(http.StatusOK, `multipart/related; boundary="`+b+`"`)
	if err := s.parts(q.ctx(), q.db, d, o, b); err != nil {
		return err
	}
	return s.end()
}

// mixed answers with several revisions, each a part.
func (q *request) mixed(all []opened, rd *reading) error {
	b := newBoundary()
	s := q.stream(http.StatusOK, `multipart/mixed; boundary="`+b+`"`)
	for i := range all {
		s.buf = append(s.buf, "--"+b+"\r\n"...)
		if err := s.mixedPart(q, &all[i], rd, ""); err != nil {
			return err
		}
	}
	s.buf = append(s.buf, "--"+b+"--"...)
	return s.end()
}

// mixedPart writes a revision as a part: its headers, after those given, and
// its content with the line end behind it.
func (s *stream) mixedPart(q *request, o *opened, rd *reading, headers string) error {
	if o.missing {
		s.buf = append(s.buf, headers+"Content-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":"...)
		s.buf = append(appendQuoted(s.buf, o.rev.String()), "}\r\n"...)
		return nil
	}
	show := rd.show
	show.since = since(o.doc, rd.attsSince)
	follow := false
	for i := range o.doc.Attachments {
		follow = follow || o.doc.Attachments[i].RevPos > show.since
	}
	if !follow {
		show.atts = attStubs
		s.buf = append(s.buf, headers+"Content-Type: application/json\r\n\r\n"...)
		if err := s.document(q.ctx(), q.db, o.doc, &show); err != nil {
			return err
		}
		s.buf = append(s.buf, "\r\n"...)
		return nil
	}
	inner := newBoundary()
	s.buf = append(s.buf, headers+"Content-Type: multipart/related; boundary=\""+inner+"\"\r\n\r\n"...)
	if err := s.parts(q.ctx(), q.db, o.doc, &show, inner); err != nil {
		return err
	}
	s.buf = append(s.buf, "\r\n"...)
	return nil
}
