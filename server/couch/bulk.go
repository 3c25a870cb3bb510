package couch

import (
	"errors"
	"net/http"
	"slices"

	"github.com/osierdb/osier"
)

// eachMember reads an object; fn is told each name and reads the value.
func (s *scanner) eachMember(fn func(name string) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.space() == '}' {
		s.pos++
		s.depth--
		return nil
	}
	for {
		if s.space() != '"' {
			return errJSON
		}
		at := len(s.out)
		if err := s.text(); err != nil {
			return err
		}
		name, _ := unquote(s.out[at:])
		s.out = s.out[:at]
		if s.space() != ':' {
			return errJSON
		}
		s.pos++
		if err := fn(name); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			s.depth--
			return nil
		default:
			return errJSON
		}
	}
}

// eachElement reads an array; fn reads each element.
func (s *scanner) eachElement(fn func() error) error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.space() == ']' {
		s.pos++
		s.depth--
		return nil
	}
	for {
		if err := fn(); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			s.depth--
			return nil
		default:
			return errJSON
		}
	}
}

// raw reads a value and returns it in canonical form.
func (s *scanner) raw() ([]byte, error) {
	at := len(s.out)
	err := s.value()
	return s.out[at:len(s.out):len(s.out)], err
}

// bulk is a _bulk_docs request.
type bulk struct {
	docs         []*incoming
	given        bool // docs was there
	newEdits     bool
	allOrNothing bool
}

func parseBulk(body []byte, most int) (*bulk, error) {
	s := scanner{in: body, out: make([]byte, 0, len(body)), most: most}
	b := &bulk{newEdits: true}
	if s.space() != '{' {
		if s.value() != nil || s.atEnd() != nil {
			return nil, errBadJSON
		}
		return nil, errBodyObject
	}
	err := s.eachMember(func(name string) error { return b.member(&s, name) })
	if err == nil {
		err = s.atEnd()
	}
	if errors.Is(err, errJSON) {
		err = errBadJSON
	}
	if err == nil && !b.given {
		err = badRequest("POST body must include `docs` parameter.")
	}
	return b, err
}

func (b *bulk) member(s *scanner, name string) error {
	if name == "docs" && s.space() == '[' {
		b.given = true
		return s.eachElement(func() error {
			in, err := s.doc()
			b.docs = append(b.docs, in)
			return err
		})
	}
	v, err := s.raw()
	if err != nil {
		return err
	}
	switch name {
	case "docs":
		return badRequest("`docs` parameter must be an array.")
	case "new_edits":
		if string(v) != "true" && string(v) != "false" {
			return badRequest("`new_edits` parameter must be a boolean.")
		}
		b.newEdits = v[0] == 't'
	case "all_or_nothing":
		b.allOrNothing = string(v) == "true"
	}
	return nil
}

// outcome is what became of one document of a _bulk_docs request.
type outcome struct {
	id, rev string
	err     error
}

// bulkDocs answers _bulk_docs. All is judged and staged before anything is
// written; then documents succeed or fail each by itself.
func (q *request) bulkDocs() error {
	if err := q.wantJSON(); err != nil {
		return err
	}
	var b *bulk
	err := q.text(func(text []byte) (err error) {
		b, err = parseBulk(text, q.depth())
		return err
	})
	if err != nil {
		return err
	}
	if b.allOrNothing {
		return q.refuseAllOrNothing(b)
	}
	outcomes := make([]outcome, len(b.docs))
	ops, places, err := q.bulkOps(b, outcomes)
	if err != nil {
		return err
	}
	if err := q.commitBulk(ops, places, outcomes); err != nil {
		return err
	}
	s := q.stream(http.StatusCreated, "application/json")
	s.buf = append(s.buf, '[')
	n := 0
	for i := range outcomes {
		o := &outcomes[i]
		if o.err == nil {
			q.followWrites(o.id)
		}
		if o.err == nil && !b.newEdits {
			continue
		}
		if n++; n > 1 {
			s.buf = append(s.buf, ',')
		}
		s.buf = o.appendJSON(s.buf, b.newEdits)
		if err := s.room(); err != nil {
			break
		}
	}
	s.buf = append(s.buf, "]\n"...)
	return s.end()
}

func (o *outcome) appendJSON(b []byte, newEdits bool) []byte {
	if o.err == nil {
		return appendDone(b, o.id, o.rev)
	}
	b = appendQuoted(append(b, `{"id":`...), o.id)
	if !newEdits {
		b = appendQuoted(append(b, `,"rev":`...), o.rev)
	}
	f := explain(conflicted(o.err))
	b = appendQuoted(append(b, `,"error":`...), f.code)
	return append(appendQuoted(append(b, `,"reason":`...), f.reason), '}')
}

func (q *request) refuseAllOrNothing(b *bulk) error {
	out := []byte{'['}
	for i, in := range b.docs {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendQuoted(append(out, `{"id":`...), in.id)
		out = append(out, `,"rev":"0-","error":"not_implemented","reason":"all_or_nothing is not supported"}`...)
	}
	q.send(http.StatusExpectationFailed, append(out, ']'))
	return nil
}

// bulkOps makes the operations; places tells whose document each one is. A
// document that is refused by itself has its outcome already.
func (q *request) bulkOps(b *bulk, outcomes []outcome) (ops []osier.Op, places []int, err error) {
	for i, in := range b.docs {
		if in.id == "" {
			in.id = q.door.uuids.next()
		}
		if !isLocal(in.id) {
			if err := checkID(in.id); err != nil {
				return nil, nil, err
			}
		}
		if !b.newEdits && in.rev.IsZero() && !isLocal(in.id) {
			if in.revText != "" {
				return nil, nil, errRevFormat // generation 0
			}
			return nil, nil, errNoPath
		}
		outcomes[i] = outcome{id: in.id, rev: in.rev.String()}
	}
	ops, places = make([]osier.Op, 0, len(b.docs)), make([]int, 0, len(b.docs))
	for i, in := range b.docs {
		var op osier.Op
		if isLocal(in.id) {
			if op, outcomes[i].rev, err = q.localOp(in); err != nil {
				return nil, nil, err
			}
		} else {
			if outcomes[i].err = q.mayWriteDoc(in); outcomes[i].err != nil {
				continue
			}
			if op, err = q.op(q.ctx(), in, b.newEdits); err != nil {
				var f *failure
				if errors.As(err, &f) && f.status == http.StatusRequestEntityTooLarge {
					err = tooLarge(in.id)
				}
				return nil, nil, err
			}
		}
		ops, places = append(ops, op), append(places, i)
	}
	return ops, places, nil
}

// A command of _bulk_docs has so many documents and bytes of bodies at most, so
// that others get their turn in between.
const (
	bulkOps   = 2000
	bulkBytes = 4 << 20
)

// commitBulk writes the operations, a stretch at a time.
func (q *request) commitBulk(ops []osier.Op, places []int, outcomes []outcome) error {
	for len(ops) > 0 {
		n, size := 0, 0
		for n < len(ops) && n < bulkOps && (n == 0 || size+len(ops[n].Body) <= bulkBytes) {
			size += len(ops[n].Body)
			n++
		}
		res, err := q.db.Exec(q.ctx(), &osier.Command{Ops: slices.Clip(ops[:n]), PerDocument: true})
		if err != nil {
			return conflicted(err)
		}
		for i := range res.Ops {
			o := &outcomes[places[i]]
			switch {
			case res.Ops[i].Err != nil:
				o.err = res.Ops[i].Err
			case ops[i].Collection != localCollection:
				o.rev = res.Ops[i].Rev.String()
			}
		}
		ops, places = ops[n:], places[n:]
	}
	return nil
}

// revsAsked is the document ids and revisions of a _revs_diff request.
type revsAsked struct {
	id   string
	revs []osier.Rev
}

func (q *request) revsAsked() ([]revsAsked, error) {
	if err := q.wantJSON(); err != nil {
		return nil, err
	}
	b, err := q.jsonBody()
	if err != nil {
		return nil, err
	}
	var out []revsAsked
	ok, err := fields(b, func(name, value []byte) error {
		id, _ := unquote(name)
		revs, err := parseRevs(value)
		out = append(out, revsAsked{id, revs})
		return err
	})
	if !ok {
		return nil, errBodyObject
	}
	return out, err
}

// diff is what is not known of a document.
type diff struct {
	id        string
	missing   []osier.Rev
	ancestors []osier.Rev // leaves that the missing ones may come from
}

// diffBatch is how many documents' winners are read at once.
const diffBatch = 500

// eachDiff tells, for each document, which revisions are missing.
func (q *request) eachDiff(asked []revsAsked, fn func(*diff) error) error {
	for len(asked) > 0 {
		n := min(len(asked), diffBatch)
		if err := q.diffs(asked[:n], fn); err != nil {
			return err
		}
		asked = asked[n:]
	}
	return nil
}

func (q *request) diffs(asked []revsAsked, fn func(*diff) error) error {
	ids := make([]osier.ID, len(asked))
	for i := range asked {
		var err error
		if ids[i], err = docID(asked[i].id); err != nil {
			return err
		}
	}
	type known struct {
		exists bool
		leaves []osier.Rev
	}
	have := make([]known, 0, len(asked))
	query := &osier.Query{Kind: osier.QueryGet, Collection: q.coll, IDs: ids, Parts: osier.WithConflicts, Deleted: true}
	for row, err := range q.db.Query(q.ctx(), query) {
		if err != nil {
			return err
		}
		k := known{exists: !row.Missing}
		if k.exists {
			k.leaves = append(k.leaves, row.Rev)
			for _, l := range row.Conflicts {
				k.leaves = append(k.leaves, l.Rev)
			}
		}
		have = append(have, k)
	}
	for i := range asked {
		d := diff{id: asked[i].id}
		for _, rev := range asked[i].revs {
			if !slices.Contains(have[i].leaves, rev) {
				d.missing = append(d.missing, rev)
			}
		}
		if len(d.missing) > 0 && have[i].exists {
			if err := q.dropKnown(ids[i], &d); err != nil {
				return err
			}
			d.findAncestors(have[i].leaves)
		}
		if len(d.missing) == 0 {
			continue
		}
		slices.SortFunc(d.missing, osier.Rev.Compare)
		if err := fn(&d); err != nil {
			return err
		}
	}
	return nil
}

// dropKnown leaves out revisions that are inner nodes of the document's tree.
func (q *request) dropKnown(id osier.ID, d *diff) error {
	missing := d.missing
	d.missing = nil
	query := &osier.Query{Kind: osier.QueryRevs, Collection: q.coll, IDs: []osier.ID{id}, Revs: missing}
	for row, err := range q.db.Query(q.ctx(), query) {
		if err != nil {
			return err
		}
		if row.Missing {
			d.missing = append(d.missing, row.Rev)
		}
	}
	return nil
}

func (d *diff) findAncestors(leaves []osier.Rev) {
	highest := uint64(0)
	for _, rev := range d.missing {
		highest = max(highest, rev.Generation())
	}
	for _, rev := range leaves {
		if rev.Generation() < highest {
			d.ancestors = append(d.ancestors, rev)
		}
	}
	slices.SortFunc(d.ancestors, func(a, b osier.Rev) int { return b.Compare(a) })
}

// revsDiff answers _revs_diff.
func (q *request) revsDiff() error {
	asked, err := q.revsAsked()
	if err != nil {
		return err
	}
	s := q.stream(http.StatusOK, "application/json")
	s.buf = append(s.buf, '{')
	n := 0
	err = q.eachDiff(asked, func(d *diff) error {
		if n++; n > 1 {
			s.buf = append(s.buf, ',')
		}
		s.buf = append(appendQuoted(s.buf, d.id), `:{"missing":`...)
		s.buf = appendRevs(s.buf, d.missing)
		if len(d.ancestors) > 0 {
			s.buf = appendRevs(append(s.buf, `,"possible_ancestors":`...), d.ancestors)
		}
		s.buf = append(s.buf, '}')
		return s.room()
	})
	if err != nil {
		return err
	}
	s.buf = append(s.buf, "}\n"...)
	return s.end()
}

// missingRevs answers _missing_revs.
func (q *request) missingRevs() error {
	asked, err := q.revsAsked()
	if err != nil {
		return err
	}
	s := q.stream(http.StatusOK, "application/json")
	s.buf = append(s.buf, `{"missing_revs":{`...)
	n := 0
	err = q.eachDiff(asked, func(d *diff) error {
		if n++; n > 1 {
			s.buf = append(s.buf, ',')
		}
		s.buf = append(appendQuoted(s.buf, d.id), ':')
		s.buf = appendRevs(s.buf, d.missing)
		return s.room()
	})
	if err != nil {
		return err
	}
	s.buf = append(s.buf, "}}\n"...)
	return s.end()
}

func appendRevs(b []byte, revs []osier.Rev) []byte {
	b = append(b, '[')
	for i, rev := range revs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, rev.String())
	}
	return append(b, ']')
}
