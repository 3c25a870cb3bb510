package couch

import (
	"net/http"

	"github.com/osierdb/osier"
)

// wanted is an entry of a _bulk_get request.
type wanted struct {
	id        string
	hasID     bool
	rev       string // as sent
	hasRev    bool
	attsSince []osier.Rev
	bad       *failure // what is wrong with it
}

func (q *request) wantedDocs() ([]wanted, error) {
	m, err := q.object("docs")
	if err != nil {
		return nil, err
	}
	docs, given := m["docs"]
	if !given {
		return nil, badRequest("Missing JSON list of 'docs'.")
	}
	var out []wanted
	ok, err := elements(docs, func(v []byte) error {
		w, err := parseWanted(v)
		out = append(out, w)
		return err
	})
	if !ok {
		return nil, badRequest("Missing JSON list of 'docs'.")
	}
	return out, err
}

func parseWanted(v []byte) (w wanted, err error) {
	n := 0
	ok, err := fields(v, func(name, value []byte) error {
		n++
		s, text := unquote(value)
		switch string(name) {
		case `"id"`:
			if !text {
				return badRequest("Document id must be a string")
			}
			w.id, w.hasID = s, true
		case `"rev"`:
			w.rev, w.hasRev = s, text
		case `"atts_since"`:
			revs, err := parseRevs(value)
			w.attsSince = revs
			return err
		}
		return nil
	})
	switch {
	case err != nil:
	case !ok || n == 0:
		w.bad = badRequest("document must be a JSON object")
	case !w.hasID:
		w.bad = badRequest("document id missed")
	case isLocal(w.id):
	default:
		if f, ok := checkID(w.id).(*failure); ok {
			w.bad = f
		}
	}
	return w, err
}

// bulkGet answers _bulk_get, as JSON or multipart. Documents are read one by
// one as they are sent.
func (q *request) bulkGet() error {
	docs, err := q.wantedDocs()
	if err != nil {
		return err
	}
	for i := range q.params {
		if name := q.params[i].name; notOfBulkGet[name] {
			return badRequest(`"` + name + `" query parameter is not acceptable`)
		}
	}
	rd, err := q.reading()
	if err != nil {
		return err
	}
	rd.show.conflicts, rd.show.deletedConflicts, rd.show.localSeq = false, false, false
	if !accepts(q.r, "application", "json") {
		for _, kind := range []string{"mixed", "related"} {
			if accepts(q.r, "multipart", kind) {
				return q.bulkGetParts(docs, rd, kind)
			}
		}
	}
	s := q.stream(http.StatusOK, "application/json")
	s.buf = append(s.buf, `{"results":[`...)
	for i := range docs {
		if i > 0 {
			s.buf = append(s.buf, ',')
		}
		if err := q.bulkGetOne(s, &docs[i], rd); err != nil {
			return err
		}
		if s.room() != nil {
			return nil // the client has gone
		}
	}
	s.buf = append(s.buf, "]}\n"...)
	return s.end()
}

// notOfBulkGet are parameters of a document that mean nothing for many: they
// belong to the entries, or to writes.
var notOfBulkGet = map[string]bool{"open_revs": true, "new_edits": true, "w": true, "rev": true, "atts_since": true}

// openWanted reads an entry's revisions.
func (q *request) openWanted(w *wanted, rd *reading) ([]opened, *failure, error) {
	if w.bad != nil {
		return nil, w.bad, nil
	}
	var revs []osier.Rev
	if w.hasRev {
		rev, err := parseRev(w.rev)
		if err != nil {
			return nil, errRevFormat, nil
		}
		revs = []osier.Rev{rev}
	}
	id, err := docID(w.id)
	if err != nil || isLocal(w.id) {
		return nil, errMissing, nil
	}
	parts := rd.parts
	if len(w.attsSince) > 0 {
		parts |= osier.WithAncestors
	}
	all, exists, err := q.revisions(q.ctx(), id, revs, rd.latest && revs != nil, parts)
	if err != nil {
		return nil, nil, err
	}
	if !exists && revs == nil {
		return nil, errMissing, nil
	}
	return all, nil, nil
}

// known returns the revisions whose attachments the client has.
func (w *wanted) known(rd *reading) []osier.Rev {
	if w.attsSince != nil {
		return w.attsSince
	}
	return rd.attsSince
}

func (q *request) bulkGetOne(s *stream, w *wanted, rd *reading) error {
	all, refused, err := q.openWanted(w, rd)
	if err != nil {
		return err
	}
	s.buf = append(s.buf, `{"id":`...)
	s.buf = appendOrNull(s.buf, w.id, w.hasID)
	s.buf = append(s.buf, `,"docs":[`...)
	if refused != nil {
		s.buf = w.appendError(s.buf, refused)
	}
	for i := range all {
		if i > 0 {
			s.buf = append(s.buf, ',')
		}
		o := &all[i]
		if o.missing {
			s.buf = w.appendError(s.buf, errMissing)
			continue
		}
		show := rd.show
		if rd.attsAsked || w.attsSince != nil {
			show.atts, show.since = attInline, since(o.doc, w.known(rd))
		}
		s.buf = append(s.buf, `{"ok":`...)
		if err := s.document(q.ctx(), q.db, o.doc, &show); err != nil {
			return err
		}
		s.buf = append(s.buf, '}')
	}
	s.buf = append(s.buf, "]}"...)
	return nil
}

func appendOrNull(b []byte, text string, given bool) []byte {
	if !given {
		return append(b, "null"...)
	}
	return appendQuoted(b, text)
}

// appendError writes what is wrong with an entry.
func (w *wanted) appendError(b []byte, f *failure) []byte {
	return append(w.appendRefusal(append(b, `{"error":`...), f), '}')
}

func (w *wanted) appendRefusal(b []byte, f *failure) []byte {
	b = appendOrNull(append(b, `{"id":`...), w.id, w.hasID)
	b = append(b, `,"rev":`...)
	switch {
	case w.hasRev && w.hasID:
		b = appendQuoted(b, w.rev)
	case w.bad != nil:
		b = append(b, "null"...)
	default:
		b = append(b, `"undefined"`...)
	}
	b = appendQuoted(append(b, `,"error":`...), f.code)
	return append(appendQuoted(append(b, `,"reason":`...), f.reason), '}')
}

// bulkGetParts answers with a part for each revision.
func (q *request) bulkGetParts(docs []wanted, rd *reading, kind string) error {
	b := newBoundary()
	s := q.stream(http.StatusOK, "multipart/"+kind+`; boundary="`+b+`"`)
	for i := range docs {
		w := &docs[i]
		all, refused, err := q.openWanted(w, rd)
		if err != nil {
			return err
		}
		if refused != nil {
			s.buf = w.appendRefusal(append(s.buf, "--"+b+errorPart...), refused)
			s.buf = append(s.buf, "\r\n"...)
		}
		for k := range all {
			o := &all[k]
			if o.missing {
				s.buf = appendQuoted(append(s.buf, "--"+b+errorPart+`{"rev":`...), o.rev.String())
				s.buf = append(s.buf, `,"error":"not_found","reason":"missing"}`+"\r\n"...)
				continue
			}
			show := *rd
			show.attsSince = w.known(rd)
			s.buf = append(s.buf, "--"+b+"\r\n"...)
			headers := "X-Doc-Id: " + headerText(w.id) + "\r\nX-Rev-Id: " + headerText(o.rev.String()) + "\r\n"
			if err := s.mixedPart(q, o, &show, headers); err != nil {
				return err
			}
		}
		if s.room() != nil {
			return nil // the client has gone
		}
	}
	s.buf = append(s.buf, "--"+b+"--\r\n"...)
	return s.end()
}

// errorPart is the head, after the boundary, of a part that says why there is no
// document.
const errorPart = "\r\nContent-Type: application/json; error=\"true\"\r\n\r\n"
