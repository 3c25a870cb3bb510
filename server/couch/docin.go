package couch

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
)

// incoming is a document as a client sent it.
type incoming struct {
	id      string // "" if the body names none
	revText string // as sent, for the counters of local documents
	rev     osier.Rev
	path    []osier.Rev // from _revisions, newest first
	// pathless is set by _revisions of generation 0.
	pathless bool
	deleted  bool
	body     []byte // canonical, without the members that begin with "_"
	atts     []incomingAtt
}

// incomingAtt is an entry of _attachments.
type incomingAtt struct {
	name, contentType string
	encoding          string
	stub, follows     bool
	data              []byte // base64
	revPos            uint64
	length            int64 // -1: not said
	staged            osier.BlobID
}

// parseDoc reads a document's JSON text, which may nest as deep as most says.
func parseDoc(text []byte, most int) (*incoming, error) {
	s := scanner{in: text, out: make([]byte, 0, len(text)), most: most}
	in, err := s.doc()
	if (err == nil || err == errNotObject) && s.atEnd() != nil {
		err = errBadJSON
	}
	return in, err
}

// doc reads a document at the scanner's place; its body is written behind the
// scanner's output and stays valid.
func (s *scanner) doc() (*incoming, error) {
	in := &incoming{}
	if s.space() != '{' {
		if s.value() != nil {
			return nil, errBadJSON
		}
		return nil, errNotObject
	}
	start := len(s.out)
	if err := s.object(in.take); err != nil {
		if errors.Is(err, errJSON) {
			err = errBadJSON
		}
		return nil, err
	}
	in.body = s.out[start:len(s.out):len(s.out)]
	if len(in.path) > 0 {
		in.rev = in.path[0]
	}
	return in, nil
}

// take reads a member of the document itself that begins with "_".
func (in *incoming) take(name, value []byte) (drop bool, err error) {
	if len(name) == 0 || name[0] != '_' {
		return false, nil
	}
	switch string(name) {
	case "_id":
		s, ok := unquote(value)
		if !ok {
			return false, illegalID("Document id must be a string")
		}
		if s == "" {
			return false, illegalID("Document id must not be empty")
		}
		in.id = s
	case "_rev":
		s, ok := unquote(value)
		if !ok {
			return false, errRevFormat
		}
		in.revText = s
		if in.rev, err = parseRev(s); err != nil && !localRev(s) {
			return false, err
		}
	case "_deleted":
		switch string(value) {
		case "true", "false":
			in.deleted = value[0] == 't'
		default:
			return false, invalidDoc("Bad special document member: _deleted")
		}
	case "_revisions":
		// Those of local documents are counters, which make no path.
		if in.path, err = parsePath(value); err == errNoGeneration {
			in.pathless, err = true, nil
		}
		return true, err
	case "_attachments":
		in.atts, err = parseAttachments(value)
		return true, err
	case "_conflicts", "_deleted_conflicts", "_revs_info", "_local_seq":
		// What an earlier answer told; CouchDB takes it back silently.
	case "_replication_id", "_replication_state", "_replication_state_time", "_replication_state_reason",
		"_replication_stats", "_replication_start_time":
		return false, nil
	default:
		s, _ := unquote(append(append([]byte{'"'}, name...), '"'))
		return false, invalidDoc("Bad special document member: " + s)
	}
	return true, nil
}

// parseRev reads a revision; "" is not one.
func parseRev(s string) (osier.Rev, error) {
	rev, err := osier.ParseRev(s)
	if err != nil || rev.IsZero() {
		return osier.Rev{}, errRevFormat
	}
	return rev, nil
}

// localRev tells the revisions of local documents, which are counters.
func localRev(s string) bool {
	n, ok := strings.CutPrefix(s, "0-")
	_, err := strconv.ParseUint(n, 10, 62)
	return ok && err == nil
}

// parsePath reads _revisions. Names beyond generation 1 are left out.
func parsePath(value []byte) ([]osier.Rev, error) {
	m, err := members(value, "start", "ids")
	if err != nil {
		return nil, invalidDoc("Bad special document member: _revisions")
	}
	start, err := strconv.ParseUint(string(m["start"]), 10, 62)
	if err != nil {
		return nil, invalidDoc("_revisions.start isn't an integer.")
	}
	var path []osier.Rev
	ok, err := elements(m["ids"], func(v []byte) error {
		id, ok := unquote(v)
		if !ok {
			return invalidDoc("RevId isn't a string")
		}
		if uint64(len(path)) >= start {
			return nil
		}
		rev, err := parseRev(strconv.FormatUint(start-uint64(len(path)), 10) + "-" + id)
		path = append(path, rev)
		return err
	})
	if !ok {
		return nil, invalidDoc("_revisions.ids isn't a array.")
	}
	if err == nil && len(path) == 0 {
		err = errNoGeneration
	}
	return path, err
}

// errNoGeneration tells _revisions that name no revision of a document.
var errNoGeneration = badRequest("Invalid rev format")

func parseAttachments(value []byte) ([]incomingAtt, error) {
	var out []incomingAtt
	ok, err := fields(value, func(name, value []byte) error {
		if value[0] != '{' {
			return nil // as CouchDB, which takes it for no attachment
		}
		a := incomingAtt{length: -1, contentType: defaultType}
		a.name, _ = unquote(name)
		if err := checkAttName(a.name); err != nil {
			return err
		}
		if err := a.parse(value); err != nil {
			return err
		}
		out = append(out, a)
		return nil
	})
	if !ok {
		return nil, invalidDoc("Bad special document member: _attachments")
	}
	return out, err
}

const defaultType = "application/octet-stream"

func checkAttName(name string) error {
	if strings.HasPrefix(name, "_") {
		return badRequest("Attachment name '" + name + "' starts with prohibited character '_'")
	}
	return nil
}

func (a *incomingAtt) parse(value []byte) error {
	bad := badRequest("Invalid attachment data for " + a.name)
	encoded := int64(-1)
	_, err := fields(value, func(name, v []byte) error {
		n, _ := unquote(name)
		switch n {
		case "content_type":
			if s, ok := unquote(v); ok {
				a.contentType = s
			}
		case "encoding":
			a.encoding, _ = unquote(v)
		case "stub":
			a.stub = string(v) == "true"
		case "follows":
			a.follows = string(v) == "true"
		case "revpos":
			a.revPos, _ = strconv.ParseUint(string(v), 10, 62)
		case "length":
			if k, err := strconv.ParseInt(string(v), 10, 62); err == nil {
				a.length = k
			}
		case "encoded_length":
			if k, err := strconv.ParseInt(string(v), 10, 62); err == nil {
				encoded = k
			}
		case "data":
			if len(v) < 2 || v[0] != '"' || !validBase64(v[1:len(v)-1]) {
				return bad
			}
			// A copy: the scanner writes over what is taken out.
			a.data = bytes.Clone(v[1 : len(v)-1])
		}
		return nil
	})
	if err == nil && a.data == nil && !a.stub && !a.follows {
		err = bad
	}
	if a.encoding != "" && a.encoding != "identity" {
		a.length = encoded // what follows is the encoded form
	}
	return err
}

// validBase64 tells whether b is padded base64.
func validBase64(b []byte) bool {
	if len(b)%4 != 0 {
		return false
	}
	pad := len(b) - len(bytes.TrimRight(b, "="))
	if pad > 2 {
		return false
	}
	for _, c := range b[:len(b)-pad] {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '+', c == '/':
		default:
			return false
		}
	}
	return true
}

// op makes the operation that stores the document, its attachments staged.
func (q *request) op(ctx context.Context, in *incoming, newEdits bool) (osier.Op, error) {
	id, err := docID(in.id)
	if err != nil {
		return osier.Op{}, err
	}
	if in.pathless {
		return osier.Op{}, errNoGeneration
	}
	if limit := q.door.host.Limits().Document; limit > 0 && int64(len(in.body)) > limit {
		return osier.Op{}, tooLarge("")
	}
	op := osier.Op{Kind: osier.OpPut, Collection: q.coll, ID: id, Codec: osier.TagJSON, Body: in.body, Deleted: in.deleted}
	if in.deleted && len(in.body) == len("{}") {
		op.Body = nil
	}
	switch {
	case !newEdits:
		op.Kind, op.Path = osier.OpGraft, in.path
		if len(op.Path) == 0 {
			op.Path = []osier.Rev{in.rev}
		}
	case in.rev.IsZero():
		op.Expect = osier.ExpectAbsent
	default:
		op.Expect, op.Rev = osier.ExpectLiveRev, in.rev
	}
	if len(in.atts) > 0 {
		op.Attachments, err = q.attach(ctx, in, &op)
	}
	return op, err
}

// attach puts the attachments' bytes down and names them for the operation.
func (q *request) attach(ctx context.Context, in *incoming, op *osier.Op) ([]osier.AttachmentRef, error) {
	known, err := q.stubs(ctx, in, op)
	if err != nil {
		return nil, err
	}
	refs := make([]osier.AttachmentRef, 0, len(in.atts))
	for i := range in.atts {
		a := &in.atts[i]
		ref := osier.AttachmentRef{Name: a.name, ContentType: a.contentType, Staged: a.staged, RevPos: a.revPos}
		switch {
		case !a.staged.IsZero():
		case a.data != nil:
			ref.Staged, err = q.stage(ctx, base64.NewDecoder(base64.StdEncoding, bytes.NewReader(a.data)), a.encoding)
		case a.stub:
			have, ok := known[a.name]
			if !ok || a.revPos != 0 && a.revPos != have.RevPos {
				return nil, missingStub(in.id, a.name)
			}
			if op.Kind == osier.OpPut {
				ref = osier.AttachmentRef{Name: a.name, Stub: true}
				break
			}
			ref.ContentType, ref.RevPos = have.ContentType, have.RevPos
			ref.Staged, err = q.copyBlob(ctx, &have)
		default:
			return nil, badRequest("Attachment " + a.name + " does not follow")
		}
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// stubs returns the attachments that stubs of the document may mean: those of
// the revision that is edited, or of a replicated revision's known ancestors.
func (q *request) stubs(ctx context.Context, in *incoming, op *osier.Op) (map[string]osier.Attachment, error) {
	any := false
	for i := range in.atts {
		any = any || in.atts[i].stub
	}
	if !any {
		return nil, nil
	}
	revs := op.Path[min(1, len(op.Path)):]
	if op.Kind == osier.OpPut {
		if revs = nil; !op.Rev.IsZero() {
			revs = []osier.Rev{op.Rev}
		}
	}
	known := map[string]osier.Attachment{}
	if len(revs) == 0 {
		return known, nil
	}
	query := &osier.Query{Kind: osier.QueryRevs, Collection: q.coll, IDs: []osier.ID{op.ID}, Revs: revs, Parts: osier.WithBody}
	for row, err := range q.db.Query(ctx, query) {
		if err != nil {
			return nil, err
		}
		for _, a := range row.Attachments {
			if _, newer := known[a.Name]; !newer {
				known[a.Name] = a
			}
		}
	}
	return known, nil
}

// stage puts bytes down for a later write, decompressed if need be.
func (q *request) stage(ctx context.Context, r io.Reader, encoding string) (osier.BlobID, error) {
	limit := q.door.host.Limits().Attachment
	in, err := decoded(io.NopCloser(r), encoding, limit)
	if err != nil {
		return osier.BlobID{}, err
	}
	watched := &limited{r: in, left: limit}
	a, err := q.db.Backend().Stage(ctx, q.db.Name(), watched)
	if watched.err != nil {
		return a.Blob, watched.err
	}
	return a.Blob, err
}

// limited fails beyond its limit, and remembers the reader's own error, which
// would reach the client as a failure of the store otherwise.
type limited struct {
	r    io.Reader
	left int64
	err  error
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		err = &failure{status: 413, code: "attachment_too_large", reason: "the attachment is larger than the server allows"}
	}
	if err != nil && err != io.EOF {
		l.err = err
	}
	return n, err
}

// copyBlob stages the bytes of a stored attachment again.
func (q *request) copyBlob(ctx context.Context, a *osier.Attachment) (osier.BlobID, error) {
	r, err := q.db.Backend().Fetch(ctx, q.db.Name(), a.Blob, 0, -1)
	if err != nil {
		return osier.BlobID{}, err
	}
	defer r.Close()
	return q.stage(ctx, r, "")
}
