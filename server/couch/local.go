package couch

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/osierdb/osier"
)

// localCollection keeps local documents: they have no revision tree for
// clients, no place in feeds, and are not replicated. A body stored there has
// the counter that is shown as the revision in front: {"_rev":"0-3", …}. The
// documents of other collections than the default one are kept apart by the
// collection's name before the id.
const localCollection = "_local"

// localKey is the id under which a local document is kept.
func (q *request) localKey(name string) (osier.ID, error) {
	if !utf8.ValidString(name) {
		return osier.ID{}, illegalID("Document id must be valid UTF-8")
	}
	if name == "" {
		return osier.ID{}, badRequest("Invalid _local document id.")
	}
	if q.coll != osier.DefaultCollection {
		return osier.IDOf(osier.Tuple{q.coll, name})
	}
	return osier.IDOf(name)
}

// localPath answers paths below _local.
func (q *request) localPath(rest []string) error {
	name := strings.Join(rest, "/")
	if len(rest) > 1 {
		return errLocalAtts
	}
	switch q.method {
	case http.MethodGet, http.MethodHead:
		return q.getLocal(name)
	case http.MethodPut:
		in, err := q.inputDoc()
		if err != nil {
			return err
		}
		in.id = localPrefix + name
		return q.writeLocal(in)
	case http.MethodDelete:
		return q.deleteLocal(name)
	case "COPY":
		return q.copyLocal(name)
	}
	return methodNotAllowed("DELETE,GET,HEAD,POST,PUT,COPY")
}

// local reads a local document; nil if there is none.
func (q *request) local(name string) (*osier.Document, error) {
	key, err := q.localKey(name)
	if err != nil {
		return nil, err
	}
	query := &osier.Query{Kind: osier.QueryGet, Collection: localCollection, IDs: []osier.ID{key}, Parts: osier.WithBody}
	for row, err := range q.db.Query(q.ctx(), query) {
		if err != nil || row.Missing {
			return nil, err
		}
		return row.Document.Clone(), nil
	}
	return nil, nil
}

func (q *request) getLocal(name string) error {
	if _, open := q.params.get("open_revs"); open {
		return errMissing
	}
	d, err := q.local(name)
	if err != nil {
		return err
	}
	if d == nil {
		return errMissing
	}
	rev := localRevOf(d.Body)
	if q.notModified(`"` + rev + `"`) {
		return nil
	}
	b := appendLocal(nil, localPrefix+name, d.Body)
	if q.params.is("revs") {
		b = append(appendQuoted(append(b[:len(b)-1], `,"_revisions":{"start":0,"ids":[`...), rev[len("0-"):]), `]}}`...)
	}
	q.send(http.StatusOK, b)
	return nil
}

// appendLocal shows a stored local document.
func appendLocal(b []byte, id string, body []byte) []byte {
	b = appendQuoted(append(b, `{"_id":`...), id)
	return append(append(b, ','), body[1:]...)
}

// localRevOf returns the revision that a stored body begins with.
func localRevOf(body []byte) string {
	rest, ok := strings.CutPrefix(string(body[:min(len(body), 40)]), `{"_rev":"`)
	rev, _, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		return "0-1" // written by something else than this door
	}
	return rev
}

// localOp makes the operation that stores a local document.
func (q *request) localOp(in *incoming) (op osier.Op, rev string, err error) {
	key, err := q.localKey(in.id[len(localPrefix):])
	if err != nil {
		return op, "", err
	}
	op = osier.Op{Kind: osier.OpPut, Collection: localCollection, ID: key, Codec: osier.TagJSON, Expect: osier.ExpectAny}
	if in.deleted {
		op.Deleted = true
		return op, "0-0", nil
	}
	n := uint64(0)
	if in.revText != "" {
		if !localRev(in.revText) {
			return op, "", errRevFormat
		}
		n, _ = strconv.ParseUint(in.revText[len("0-"):], 10, 62)
	}
	rev = "0-" + strconv.FormatUint(n+1, 10)
	op.Body = append(append([]byte(`{"_rev":"`), rev...), '"')
	if len(in.body) > len("{}") {
		op.Body = append(op.Body, ',')
	}
	op.Body = append(op.Body, in.body[1:]...)
	return op, rev, nil
}

// writeLocal stores a local document and answers.
func (q *request) writeLocal(in *incoming) error {
	v, given := q.params.get("rev")
	if given && in.revText == "" {
		in.revText = v
	}
	op, rev, err := q.localOp(in)
	if err != nil {
		return err
	}
	if op.Deleted {
		return q.commitLocal(op, in.id, rev, http.StatusOK)
	}
	return q.commitLocal(op, in.id, rev, http.StatusCreated)
}

func (q *request) commitLocal(op osier.Op, id, rev string, status int) error {
	_, err := q.db.Exec(q.ctx(), &osier.Command{Ops: []osier.Op{op}})
	if op.Deleted && (osier.KindOf(err) == osier.KindNotFound || osier.KindOf(err) == osier.KindDeleted) {
		return errMissing
	}
	if err != nil {
		return err
	}
	q.w.Header().Set("Etag", `"`+rev+`"`)
	if q.method != http.MethodDelete {
		q.w.Header().Set("Location", q.location(id))
	}
	q.send(status, appendDone(nil, id, rev))
	return nil
}

func (q *request) deleteLocal(name string) error {
	op, rev, err := q.localOp(&incoming{id: localPrefix + name, deleted: true})
	if err != nil {
		return err
	}
	return q.commitLocal(op, localPrefix+name, rev, http.StatusOK)
}

// copyLocal answers COPY of a local document.
func (q *request) copyLocal(name string) error {
	d, err := q.local(name)
	if err != nil {
		return err
	}
	if d == nil {
		return errMissing
	}
	to, toRev, err := q.destination()
	if err != nil {
		return err
	}
	in, err := parseDoc(d.Body, 0)
	if err != nil {
		return err
	}
	in.id, in.rev, in.revText = to, toRev, ""
	if isLocal(to) {
		return q.writeLocal(in)
	}
	if err := checkID(to); err != nil {
		return err
	}
	return q.write(in, true)
}

// copyToLocal stores a copy of a document as a local one.
func (q *request) copyToLocal(d *osier.Document, to string) error {
	body, err := bodyMembers(q.db, d)
	if err != nil {
		return err
	}
	return q.writeLocal(&incoming{id: to, body: append(append([]byte{'{'}, body...), '}')})
}
