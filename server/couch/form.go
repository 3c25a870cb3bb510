package couch

import (
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"

	"github.com/osierdb/osier"
)

// postForm answers POST to a document: a browser's form with the fields _rev, and
// _doc (a document in JSON) or files called _attachments, which are added to the
// document. As a form can be sent from any page, the request must come from this
// server's own.
func (q *request) postForm(id string) error {
	referer := q.r.Header.Get("Referer")
	if referer == "" {
		return errNoReferer
	}
	if u, err := url.Parse(referer); err != nil || u.Host != q.r.Host {
		return badRequest("Referer header must match host.")
	}
	t, args, err := mime.ParseMediaType(q.r.Header.Get("Content-Type"))
	if err != nil || t != "multipart/form-data" {
		return unsupportedType("Content-Type must be multipart/form-data")
	}
	if err := checkID(id); err != nil {
		return err
	}
	if err := q.mayWriteDoc(&incoming{id: id}); err != nil {
		return err
	}
	return q.form(id, multipart.NewReader(q.r.Body, args["boundary"]))
}

// form reads the fields in their order; files are staged as they come.
func (q *request) form(id string, mr *multipart.Reader) error {
	var in *incoming
	var files []osier.AttachmentRef
	var rev osier.Rev
	for {
		part, err := mr.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return broken(err)
		}
		switch part.FormName() {
		case "_rev":
			text, err := readAll(http.MaxBytesReader(nil, part, 1<<10), 0, nil)
			if err != nil {
				return broken(err)
			}
			if rev, err = parseRev(string(text)); err != nil {
				return err
			}
		case "_doc":
			text, err := readAll(http.MaxBytesReader(nil, part, q.door.host.Limits().Document), 0, nil)
			if err != nil {
				return broken(err)
			}
			if in, err = parseDoc(text, q.depth()); err != nil {
				return err
			}
		case "_attachments":
			name := part.FileName()
			if name == "" {
				continue // no file was chosen
			}
			if err := checkAttName(name); err != nil {
				return err
			}
			blob, err := q.stage(q.ctx(), part, "")
			if err != nil {
				return err
			}
			files = append(files, osier.AttachmentRef{Name: name, ContentType: part.Header.Get("Content-Type"), Staged: blob})
		}
	}
	if in != nil {
		in.id = id
		if in.rev.IsZero() {
			in.rev = rev
		}
		for i := range files {
			in.setFile(&files[i])
		}
		return q.write(in, true)
	}
	return q.addFiles(id, rev, files)
}

// setFile puts a staged file among a document's attachments, in the place of one
// of its name.
func (in *incoming) setFile(f *osier.AttachmentRef) {
	a := incomingAtt{name: f.Name, contentType: f.ContentType, length: -1, staged: f.Staged}
	if a.contentType == "" {
		a.contentType = defaultType
	}
	for i := range in.atts {
		if in.atts[i].name == a.name {
			in.atts[i] = a
			return
		}
	}
	in.atts = append(in.atts, a)
}

// addFiles makes a revision with further attachments.
func (q *request) addFiles(id string, rev osier.Rev, files []osier.AttachmentRef) error {
	key, err := docID(id)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return badRequest("The form has neither a document nor files.")
	}
	op := osier.Op{Kind: osier.OpPut, Collection: q.coll, ID: key, Codec: osier.TagJSON, Body: []byte("{}"), Expect: osier.ExpectAbsent, Attachments: files}
	if !rev.IsZero() {
		op.Expect, op.Rev, op.Body, op.KeepBody, op.KeepAttachments = osier.ExpectLiveRev, rev, nil, true, true
	}
	return q.commit(op, id, http.StatusCreated)
}
