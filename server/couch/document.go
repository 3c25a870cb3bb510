package couch

import (
	"errors"
	"net/http"
	"strings"

	"github.com/osierdb/osier"
)

// document answers requests to a document.
func (q *request) document(id string) error {
	switch q.method {
	case http.MethodGet, http.MethodHead:
		return q.getDoc(id)
	case http.MethodPut:
		return q.putDoc(id)
	case http.MethodDelete:
		return q.deleteDoc(id)
	case "COPY":
		return q.copyDoc(id)
	case http.MethodPost:
		return q.postForm(id)
	}
	return methodNotAllowed("DELETE,GET,HEAD,POST,PUT,COPY")
}

// reading is what a GET asks of a document.
type reading struct {
	rev       osier.Rev
	openRevs  []osier.Rev // with open: which; nil for all leaves
	open      bool
	latest    bool
	deleted   bool
	infoAsked bool
	attsSince []osier.Rev
	attsAsked bool // attachments=true or atts_since
	show      docOptions
	parts     osier.Parts
}

func (q *request) reading() (*reading, error) {
	p := q.params
	meta := p.is("meta")
	rd := &reading{
		latest: p.is("latest"), deleted: p.is("deleted"), infoAsked: meta || p.is("revs_info"),
		attsAsked: p.is("attachments"),
		show: docOptions{
			revs: p.is("revs"), localSeq: p.is("local_seq"), conflicts: meta || p.is("conflicts"),
			deletedConflicts: meta || p.is("deleted_conflicts"), encodingInfo: p.is("att_encoding_info"),
		},
		parts: osier.WithBody,
	}
	var err error
	if v, ok := p.get("rev"); ok {
		if rd.rev, err = parseRev(v); err != nil {
			return nil, err
		}
	}
	if v, ok := p.get("open_revs"); ok && v == "all" {
		rd.open = true
	} else if ok {
		if rd.openRevs, err = revList(v); err != nil {
			return nil, err
		}
		rd.open = len(rd.openRevs) > 0
	}
	if v, ok := p.get("atts_since"); ok {
		if rd.attsSince, err = revList(v); err != nil {
			return nil, err
		}
		rd.attsAsked = true
	}
	if rd.show.revs || rd.infoAsked || len(rd.attsSince) > 0 {
		rd.parts |= osier.WithAncestors
	}
	if rd.show.conflicts || rd.show.deletedConflicts {
		rd.parts |= osier.WithConflicts
	}
	return rd, nil
}

// getDoc answers GET and HEAD.
func (q *request) getDoc(id string) error {
	if err := q.mayReadDoc(id); err != nil {
		return err
	}
	rd, err := q.reading()
	if err != nil {
		return err
	}
	if rd.open {
		return q.openRevs(id, rd)
	}
	d, err := q.read(id, rd)
	if err != nil {
		return err
	}
	if rd.infoAsked && (rd.rev.IsZero() || rd.latest) {
		if rd.show.revsInfo, err = q.revsInfo(q.ctx(), d); err != nil {
			return err
		}
	}
	if !rd.show.hasMeta(d) && q.notModified(`"`+d.Rev.String()+`"`) {
		return nil
	}
	if rd.attsAsked {
		rd.show.atts, rd.show.since = attInline, since(d, rd.attsSince)
		if len(d.Attachments) > 0 && accepts(q.r, "multipart", "related") {
			return q.related(d, &rd.show)
		}
	}
	s := q.stream(http.StatusOK, "application/json")
	s.whole = rd.show.atts == attStubs // the body is in memory anyway
	if err := s.document(q.ctx(), q.db, d, &rd.show); err != nil {
		return err
	}
	s.buf = append(s.buf, '\n')
	return s.end()
}

// hasMeta tells whether the answer says more than the revision decides: it has
// no entity tag then.
func (o *docOptions) hasMeta(d *osier.Document) bool {
	if o.revsInfo != nil || o.localSeq {
		return true
	}
	for _, l := range d.Conflicts {
		if l.Deleted && o.deletedConflicts || !l.Deleted && o.conflicts {
			return true
		}
	}
	return false
}

// read finds the revision that is asked for.
func (q *request) read(id string, rd *reading) (*osier.Document, error) {
	if !rd.rev.IsZero() && !rd.latest {
		key, err := docID(id)
		if err != nil {
			return nil, errMissing
		}
		query := &osier.Query{Kind: osier.QueryRevs, Collection: q.coll, IDs: []osier.ID{key}, Revs: []osier.Rev{rd.rev}, Parts: rd.parts}
		for row, err := range q.db.Query(q.ctx(), query) {
			if err = q.hidden(err); err != nil {
				return nil, err
			}
			if row.Missing || row.Body == nil && !row.Deleted {
				return nil, errMissing
			}
			return row.Document.Clone(), nil
		}
	}
	if rd.deleted {
		d, err := q.winner(q.coll, id, rd.parts)
		if err == nil && d == nil {
			err = errMissing
		}
		return d, err
	}
	return q.live(id, rd.parts)
}

// live reads the winner of a document that is not deleted.
func (q *request) live(id string, parts osier.Parts) (*osier.Document, error) {
	d, err := q.winner(q.coll, id, parts)
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, errMissing
	case d.Deleted:
		return nil, errDeleted
	}
	return d, nil
}

// openRevs answers open_revs, as a JSON list or as multipart/mixed.
func (q *request) openRevs(id string, rd *reading) error {
	key, err := docID(id)
	if err != nil {
		return errMissing
	}
	all, exists, err := q.revisions(q.ctx(), key, rd.openRevs, rd.latest, rd.parts)
	if err != nil {
		return err
	}
	if !exists && rd.openRevs == nil {
		return errMissing
	}
	sortOpened(all)
	rd.show.conflicts, rd.show.deletedConflicts = false, false
	if accepts(q.r, "multipart", "mixed") {
		return q.mixed(all, rd)
	}
	s := q.stream(http.StatusOK, "application/json")
	for i, o := range all {
		if i == 0 {
			s.buf = append(s.buf, '[')
		} else {
			s.buf = append(s.buf, ',')
		}
		if o.missing {
			s.buf = append(appendQuoted(append(s.buf, `{"missing":`...), o.rev.String()), '}')
			continue
		}
		show := rd.show
		if rd.attsAsked {
			show.atts, show.since = attInline, since(o.doc, rd.attsSince)
		}
		s.buf = append(s.buf, `{"ok":`...)
		if err := s.document(q.ctx(), q.db, o.doc, &show); err != nil {
			return err
		}
		s.buf = append(s.buf, '}')
	}
	s.buf = append(s.buf, "]\n"...)
	return s.end()
}

// askedRev is the revision that query, If-Match and body name; they must agree.
func (q *request) askedRev(body osier.Rev) (osier.Rev, error) {
	rev := body
	if v, ok := q.params.get("rev"); ok {
		given, err := parseRev(v)
		if err != nil {
			return rev, err
		}
		if !rev.IsZero() && rev != given {
			return rev, badRequest("Document rev from request body and query string have different values")
		}
		rev = given
	}
	if v := q.r.Header.Get("If-Match"); v != "" {
		given, err := parseRev(strings.Trim(v, `"`))
		if err != nil {
			return rev, err
		}
		if !rev.IsZero() && rev != given {
			return rev, badRequest("Document rev and etag have different values")
		}
		rev = given
	}
	return rev, nil
}

// putDoc answers PUT.
func (q *request) putDoc(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	if _, err := docID(id); err != nil {
		return err
	}
	in, err := q.inputDoc()
	if err != nil {
		return err
	}
	in.id = id
	if in.rev, err = q.askedRev(in.rev); err != nil {
		return err
	}
	v, _ := q.params.get("new_edits")
	newEdits := v != "false"
	if !newEdits && in.rev.IsZero() {
		return errNoPath
	}
	return q.write(in, newEdits)
}

var errNoPath = badRequest("When `new_edits: false`, the document needs `_rev` or `_revisions` specified")

// inputDoc reads the document of a PUT: JSON, or multipart/related.
func (q *request) inputDoc() (*incoming, error) {
	if boundary := relatedBoundary(q.r.Header.Get("Content-Type")); boundary != "" {
		return q.inputRelated(boundary)
	}
	return q.jsonDoc()
}

// jsonDoc reads a document that is the whole body.
func (q *request) jsonDoc() (*incoming, error) {
	var in *incoming
	err := q.text(func(text []byte) (err error) {
		in, err = parseDoc(text, q.depth())
		return err
	})
	return in, err
}

// postDoc answers POST to the database.
func (q *request) postDoc() error {
	if err := q.wantJSON(); err != nil {
		return err
	}
	in, err := q.jsonDoc()
	if err != nil {
		return err
	}
	if in.id == "" {
		in.id = q.door.uuids.next()
	}
	if isLocal(in.id) {
		return q.writeLocal(in)
	}
	if err := checkID(in.id); err != nil {
		return err
	}
	return q.write(in, true)
}

// write stores a document and answers.
func (q *request) write(in *incoming, newEdits bool) error {
	if err := q.mayWriteDoc(in); err != nil {
		return err
	}
	op, err := q.op(q.ctx(), in, newEdits)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if in.deleted && q.method == http.MethodPut {
		status = http.StatusOK
	}
	return q.commit(op, in.id, status)
}

// commit carries out one operation on a document and answers with its revision.
func (q *request) commit(op osier.Op, id string, status int) error {
	c := &osier.Command{Ops: []osier.Op{op}}
	batch, _ := q.params.get("batch")
	if batch == "ok" {
		c.Durability = osier.Buffered
	}
	res, err := q.db.Exec(q.ctx(), c)
	if err != nil {
		return conflicted(err)
	}
	q.followWrites(id)
	h := q.w.Header()
	if status != http.StatusOK || q.method == http.MethodPut {
		h["Location"] = []string{q.location(id)}
	}
	if batch == "ok" {
		q.send(http.StatusAccepted, append(appendQuoted([]byte(`{"ok":true,"id":`), id), '}'))
		return nil
	}
	rev := res.Ops[0].Rev.String()
	h["Etag"], h["X-Couch-Update-Newrev"] = []string{`"` + rev + `"`}, []string{rev}
	q.send(status, appendDone(make([]byte, 0, len(`{"ok":true,"id":"","rev":""}`)+len(id)+len(rev)+8), id, rev))
	return nil
}

// appendDone writes the answer to a write that worked.
func appendDone(b []byte, id, rev string) []byte {
	b = appendQuoted(append(b, `{"ok":true,"id":`...), id)
	b = appendQuoted(append(b, `,"rev":`...), rev)
	return append(b, '}')
}

// conflicted turns what a write meets into CouchDB's one word for it.
func conflicted(err error) error {
	switch osier.KindOf(err) {
	case osier.KindNotFound, osier.KindDeleted:
		var own *osier.Error
		if errors.As(err, &own) && own.ID == "" {
			return errNoDB // dropped meanwhile
		}
		return errConflict
	}
	return err
}

// deleteDoc answers DELETE.
func (q *request) deleteDoc(id string) error {
	d, err := q.live(id, 0)
	if err != nil {
		return err
	}
	rev, err := q.askedRev(osier.Rev{})
	if err != nil {
		return err
	}
	if err := q.needDesignRight(id); err != nil {
		return err
	}
	if rev.IsZero() {
		return errConflict
	}
	return q.commit(osier.Op{Kind: osier.OpPut, Collection: q.coll, ID: d.ID, Codec: osier.TagJSON,
		Expect: osier.ExpectLiveRev, Rev: rev, Deleted: true}, id, http.StatusOK)
}

// destination reads the header of that name: an id, perhaps with ?rev=.
func (q *request) destination() (id string, rev osier.Rev, err error) {
	dest := q.r.Header.Get("Destination")
	if dest == "" {
		return "", rev, badRequest("Destination header is mandatory for COPY.")
	}
	if strings.HasPrefix(dest, "http://") || strings.HasPrefix(dest, "https://") {
		return "", rev, badRequest("Destination URL must be relative.")
	}
	path, query, _ := strings.Cut(dest, "?")
	id = unescape(path)
	if v, ok := parseParams(query).get("rev"); ok && v != "" {
		rev, err = parseRev(v)
	} else if v, ok := q.params.get("destination_rev"); ok && v != "" {
		rev, err = parseRev(v)
	}
	return id, rev, err
}

// copyDoc answers COPY.
func (q *request) copyDoc(id string) error {
	to, toRev, err := q.destination()
	if err != nil {
		return err
	}
	if err := q.mayReadDoc(id); err != nil {
		return err
	}
	rd, err := q.reading()
	if err != nil {
		return err
	}
	if rd.rev.IsZero() {
		if rd.rev, err = q.askedRev(osier.Rev{}); err != nil {
			return err
		}
	}
	d, err := q.read(id, rd)
	if err != nil {
		return err
	}
	if isLocal(to) {
		return q.copyToLocal(d, to)
	}
	if err := checkID(to); err != nil {
		return err
	}
	in := &incoming{id: to, rev: toRev, deleted: d.Deleted, body: d.Body}
	if err := q.mayWriteDoc(in); err != nil {
		return err
	}
	key, err := docID(to)
	if err != nil {
		return err
	}
	op := osier.Op{Kind: osier.OpPut, Collection: q.coll, ID: key, Codec: d.Codec, Schema: d.Schema, Body: d.Body,
		Expect: osier.ExpectAbsent, Deleted: d.Deleted}
	if !toRev.IsZero() {
		op.Expect, op.Rev = osier.ExpectLiveRev, toRev
	}
	for i := range d.Attachments {
		a := &d.Attachments[i]
		blob, err := q.copyBlob(q.ctx(), a)
		if err != nil {
			return err
		}
		op.Attachments = append(op.Attachments, osier.AttachmentRef{Name: a.Name, ContentType: a.ContentType, Staged: blob})
	}
	return q.commit(op, to, http.StatusCreated)
}
