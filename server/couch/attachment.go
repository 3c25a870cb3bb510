package couch

import (
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/osierdb/osier"
)

// attachment answers requests to an attachment.
func (q *request) attachment(id, name string) error {
	if err := q.allow("DELETE,GET,HEAD,PUT"); err != nil {
		return err
	}
	switch q.method {
	case http.MethodPut:
		return q.putAttachment(id, name)
	case http.MethodDelete:
		return q.deleteAttachment(id, name)
	}
	return q.getAttachment(id, name)
}

// newCompressor compresses as answers are compressed.
func newCompressor(w io.Writer) *gzip.Writer { return gzip.NewWriter(w) }

func (q *request) getAttachment(id, name string) error {
	if err := q.mayReadDoc(id); err != nil {
		return err
	}
	rd, err := q.reading()
	if err != nil {
		return err
	}
	d, err := q.read(id, &reading{rev: rd.rev, parts: osier.WithBody})
	if err != nil {
		return err
	}
	for i := range d.Attachments {
		if d.Attachments[i].Name == name {
			return q.sendAttachment(&d.Attachments[i])
		}
	}
	return errNoAtt
}

func (q *request) sendAttachment(a *osier.Attachment) error {
	h := q.w.Header()
	packed := compressible(a.ContentType)
	h.Set("Content-Type", a.ContentType)
	// What users upload must not run with the rights of the server's origin.
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Accept-Ranges", "bytes")
	if packed {
		h.Set("Accept-Ranges", "none")
		h.Add("Vary", "Accept-Encoding")
	}
	if q.notModified(etagOf(a)) {
		return nil
	}
	if packed && acceptsGzip(q.r) {
		return q.sendPacked(a)
	}
	if ranges, ok := parseRanges(q.r.Header.Get("Range"), int64(a.Size)); ok && !packed {
		switch len(ranges) {
		case 0:
			h.Set("Content-Range", "bytes */"+strconv.FormatUint(a.Size, 10))
			return &failure{status: http.StatusRequestedRangeNotSatisfiable, code: "requested_range_not_satisfiable", reason: "Requested range not satisfiable"}
		case 1:
			h.Set("Content-Range", ranges[0].header(a.Size))
			return q.sendBytes(http.StatusPartialContent, a, ranges[0])
		}
		return q.sendRanges(a, ranges)
	}
	h.Set("Content-Md5", base64.StdEncoding.EncodeToString(a.MD5[:]))
	return q.sendBytes(http.StatusOK, a, byteRange{0, int64(a.Size)})
}

// sendBytes answers with a part of an attachment.
func (q *request) sendBytes(status int, a *osier.Attachment, br byteRange) error {
	q.w.Header().Set("Content-Length", strconv.FormatInt(br.length, 10))
	if q.method == http.MethodHead {
		q.started = true
		q.w.WriteHeader(status)
		return nil
	}
	r, err := q.db.Backend().Fetch(q.ctx(), q.db.Name(), a.Blob, br.from, br.length)
	if err != nil {
		return err
	}
	defer r.Close()
	q.started = true
	q.w.WriteHeader(status)
	// A short copy breaks the connection off: its length was announced.
	_, err = io.Copy(q.w, r)
	return err
}

// sendPacked answers with an attachment compressed.
func (q *request) sendPacked(a *osier.Attachment) error {
	q.w.Header().Set("Content-Encoding", "gzip")
	if q.method == http.MethodHead {
		q.started = true
		q.w.WriteHeader(http.StatusOK)
		return nil
	}
	r, err := q.db.Backend().Fetch(q.ctx(), q.db.Name(), a.Blob, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	q.started = true
	z := newCompressor(q.w)
	if _, err := io.Copy(z, r); err != nil {
		return err
	}
	return z.Close()
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ToLower(part), ";")
		if name = strings.TrimSpace(name); name != "gzip" && name != "*" {
			continue
		}
		w, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
		return err != nil || w > 0
	}
	return false
}

// byteRange is a part of an attachment.
type byteRange struct{ from, length int64 }

func (b byteRange) header(size uint64) string {
	return fmt.Sprintf("bytes %d-%d/%d", b.from, b.from+b.length-1, size)
}

// maxRanges bounds the parts of one answer; a request for more gets all.
const maxRanges = 9

// parseRanges reads a Range header. ok is false where there is none that counts;
// no ranges mean that one cannot be satisfied.
func parseRanges(header string, size int64) (ranges []byteRange, ok bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok || strings.Count(spec, ",") >= maxRanges {
		return nil, false
	}
	for part := range strings.SplitSeq(spec, ",") {
		first, last, dash := strings.Cut(strings.TrimSpace(part), "-")
		if !dash || first == "" && last == "" {
			return nil, false
		}
		from, err := strconv.ParseInt("0"+first, 10, 62)
		if err != nil {
			return nil, false
		}
		to, err := strconv.ParseInt("0"+last, 10, 62)
		if err != nil {
			return nil, false
		}
		switch {
		case first == "": // the last bytes
			from, to = max(size-to, 0), size-1
		case last == "" && from == 0:
			return nil, false // all of it, which is no part
		case last == "":
			to = size - 1
		}
		to = min(to, size-1)
		if to < from {
			return nil, true
		}
		ranges = append(ranges, byteRange{from, to - from + 1})
	}
	return ranges, true
}

// sendRanges answers with several parts.
func (q *request) sendRanges(a *osier.Attachment, ranges []byteRange) error {
	b := newBoundary()
	s := q.stream(http.StatusPartialContent, `multipart/byteranges; boundary="`+b+`"`)
	for _, br := range ranges {
		s.buf = append(s.buf, "--"+b+"\r\nContent-Type: "+a.ContentType+"\r\nContent-Range: "+br.header(a.Size)+"\r\n\r\n"...)
		if err := s.blob(q.ctx(), q.db, a, br); err != nil {
			return err
		}
		s.buf = append(s.buf, "\r\n"...)
	}
	s.buf = append(s.buf, "--"+b+"--\r\n"...)
	return s.end()
}

// attachable reads the revision that an attachment is to be put on or taken
// from; nil if a new document is to be made.
func (q *request) attachable(id, name string) (*osier.Document, error) {
	if !utf8.ValidString(name) {
		return nil, badRequest("Attachment name is not UTF-8 encoded")
	}
	if err := checkAttName(name); err != nil {
		return nil, err
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	key, err := docID(id)
	if err != nil {
		return nil, err
	}
	if err := q.mayWriteDoc(&incoming{id: id}); err != nil {
		return nil, err
	}
	rev, err := q.askedRev(osier.Rev{})
	if err != nil || rev.IsZero() {
		return nil, err
	}
	query := &osier.Query{Kind: osier.QueryRevs, Collection: q.coll, IDs: []osier.ID{key}, Revs: []osier.Rev{rev}, Parts: osier.WithBody}
	for row, err := range q.db.Query(q.ctx(), query) {
		switch {
		case err != nil:
			return nil, err
		case row.Missing:
			return nil, &failure{status: http.StatusConflict, code: "not_found", reason: "missing_rev"}
		case row.Deleted:
			return nil, errConflict
		}
		return row.Document.Clone(), nil
	}
	return nil, errConflict
}

// putAttachment answers PUT: the attachment comes first in the new revision's
// list, as CouchDB has it, which its revision id tells.
func (q *request) putAttachment(id, name string) error {
	d, err := q.attachable(id, name)
	if err != nil {
		return err
	}
	key, err := docID(id)
	if err != nil {
		return err
	}
	contentType := q.r.Header.Get("Content-Type")
	if contentType == "" {
		contentType = defaultType
	}
	blob, err := q.stage(q.ctx(), q.r.Body, q.r.Header.Get("Content-Encoding"))
	if err != nil {
		return err
	}
	op := osier.Op{Kind: osier.OpPut, Collection: q.coll, ID: key, Codec: osier.TagJSON, Body: []byte("{}"), Expect: osier.ExpectAbsent,
		Attachments: []osier.AttachmentRef{{Name: name, ContentType: contentType, Staged: blob}}}
	if d != nil {
		keepOthers(&op, d, name)
	}
	return q.commitAttachment(op, id, name, http.StatusCreated)
}

// keepOthers makes op go on from the revision d, with its other attachments.
func keepOthers(op *osier.Op, d *osier.Document, name string) {
	op.Expect, op.Rev, op.Body, op.KeepBody = osier.ExpectLiveRev, d.Rev, nil, true
	for i := range d.Attachments {
		if a := &d.Attachments[i]; a.Name != name {
			op.Attachments = append(op.Attachments, osier.AttachmentRef{Name: a.Name, Stub: true})
		}
	}
}

func (q *request) deleteAttachment(id, name string) error {
	d, err := q.attachable(id, name)
	if err != nil {
		return err
	}
	have := d
	if d == nil {
		if have, err = q.live(id, osier.WithBody); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(have.Attachments, func(a osier.Attachment) bool { return a.Name == name }) {
		return errNoAtt
	}
	if d == nil {
		return errConflict
	}
	op := osier.Op{Kind: osier.OpPut, Collection: q.coll, ID: d.ID, Codec: osier.TagJSON}
	keepOthers(&op, d, name)
	return q.commitAttachment(op, id, name, http.StatusOK)
}

func (q *request) commitAttachment(op osier.Op, id, name string, status int) error {
	res, err := q.db.Exec(q.ctx(), &osier.Command{Ops: []osier.Op{op}})
	if err != nil {
		return conflicted(err)
	}
	if status == http.StatusCreated {
		q.w.Header().Set("Location", q.location(id, name))
	}
	q.send(status, appendDone(nil, id, res.Ops[0].Rev.String()))
	return nil
}
