package couch

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
)

// The texts of answers to queries by selector.
const (
	warnNoIndex = "No matching index found, create an index to optimize query time."
	noBookmark  = "nil"
)

var (
	errMixedSort = &failure{status: http.StatusBadRequest, code: "unsupported_mixed_sort",
		reason: "Sorts currently only support a single direction for all fields."}
	errNoSortIndex = &failure{status: http.StatusBadRequest, code: "no_usable_index",
		reason: "No index exists for this sort, try indexing by the sort fields."}
	allDocsIndex = `{"ddoc":null,"name":"_all_docs","type":"special","def":{"fields":[{"_id":"asc"}]}}`
)

// refusedSelector is CouchDB's answer to a selector or request that is wrong;
// nil if err is about something else.
func refusedSelector(err error) *failure {
	var s *osier.SelectorError
	if !errors.As(err, &s) {
		return nil
	}
	return &failure{status: http.StatusBadRequest, code: s.Name, reason: s.Reason, cause: err}
}

// findRequest reads the body of _find or _explain.
func (q *request) findRequest() (*osier.FindRequest, error) {
	if err := q.wantJSON(); err != nil {
		return nil, err
	}
	b, err := q.jsonBody()
	if err != nil {
		return nil, err
	}
	if b[0] != '{' {
		return nil, errBodyObject
	}
	req, err := osier.ParseFindRequest(b)
	if err != nil {
		return nil, err
	}
	if req.MixedSort {
		return nil, errMixedSort
	}
	if err := q.followAll(); err != nil {
		return nil, err
	}
	// plan refuses sorts without an index itself, and waits for one being built.
	req.SortByIndex = false
	req.PassOver = designPrefix
	return req, nil
}

// plan decides how a request is carried out. As with CouchDB an index that can
// serve is used, whatever a scan would cost: clients rely on the order that it
// gives. A sort that no index serves is refused: what is slow must not become so
// unseen. It sets the request's UseIndex.
func (q *request) plan(req *osier.FindRequest) (*osier.FindPlan, error) {
	if req.UseDesign != "" {
		best, err := q.namedPlan(req)
		if best != nil || err != nil {
			return best, err
		}
	}
	req.UseIndex, req.Strict = "", false
	plan, err := q.explained(req)
	if err != nil || serves(req, plan) || len(plan.Ranges) == 0 {
		return plan, err
	}
	names, err := q.indexNames(plan)
	if err != nil {
		return nil, err
	}
	best, err := q.bestPlan(req, names)
	if best != nil || err != nil {
		return best, err
	}
	if len(req.Sort) > 0 && (plan.Sorts || sortsAll(req, plan)) {
		return nil, errNoSortIndex
	}
	return plan, nil
}

// serves tells whether a plan reads an index that gives the order asked for.
func serves(req *osier.FindRequest, p *osier.FindPlan) bool {
	return p.Index != "" && !(len(req.Sort) > 0 && p.Sorts)
}

// namedPlan is the best plan with an index that the request names; nil if none of
// them serves and others may.
func (q *request) namedPlan(req *osier.FindRequest) (*osier.FindPlan, error) {
	all, err := q.db.Indexes(q.ctx(), q.coll)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		design, name := all[i].CouchName()
		if design == strings.TrimPrefix(req.UseDesign, designPrefix) && (req.UseName == "" || req.UseName == name) {
			names = append(names, all[i].Name)
		}
	}
	best, err := q.bestPlan(req, names)
	if best != nil || err != nil || req.AllowFallback {
		return best, err
	}
	return nil, &failure{status: http.StatusBadRequest, code: "invalid_index",
		reason: notUsed(req)}
}

// bestPlan tries indexes by their names, and sets the request's UseIndex to the
// one that serves best; nil if none does.
func (q *request) bestPlan(req *osier.FindRequest, names []string) (best *osier.FindPlan, err error) {
	for _, name := range names {
		req.UseIndex, req.Strict = name, false
		p, err := q.explained(req)
		if err != nil {
			return nil, err
		}
		if p.Index == name && serves(req, p) && (best == nil || betterPlan(p, best)) {
			best = p
		}
	}
	req.UseIndex = ""
	if best != nil {
		req.UseIndex = best.Index
	}
	return best, nil
}

// betterPlan prefers fewer keys to read, then the index with more fields, then
// the first by name.
func betterPlan(a, b *osier.FindPlan) bool {
	return cmp.Or(cmp.Compare(a.ExpectedKeys, b.ExpectedKeys), cmp.Compare(len(b.IndexFields), len(a.IndexFields)), cmp.Compare(a.Index, b.Index)) < 0
}

// maxCandidates is how many indexes are tried beyond the planner's choice.
const maxCandidates = 8

// indexNames lists the indexes that may serve: those that the planner weighed, or,
// if it did not look at any since there is little to be read, those there are. A
// partial index serves only those who ask for it.
func (q *request) indexNames(plan *osier.FindPlan) ([]string, error) {
	var names []string
	for _, c := range plan.Candidates {
		if c.Usable && c.Index != "" {
			names = append(names, c.Index)
		}
	}
	if len(names) == 0 && len(plan.Candidates) <= 1 {
		all, err := q.db.Indexes(q.ctx(), q.coll)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if all[i].Filter == nil {
				names = append(names, all[i].Name)
			}
		}
	}
	return names[:min(len(names), maxCandidates)], nil
}

// findQuery is the request as a query, with the server's bounds.
func (q *request) findQuery(req *osier.FindRequest) *osier.Query {
	query := req.Query(q.coll)
	query.Find.SortBytes = q.door.host.Limits().Result
	return query
}

// explained asks the engine's planner.
func (q *request) explained(req *osier.FindRequest) (*osier.FindPlan, error) {
	query := req.Query(q.coll)
	query.Find.Explain, query.Skip, query.Limit = osier.ExplainOnly, 0, 0
	for row, err := range q.db.Query(q.ctx(), query) {
		if err != nil {
			return nil, err
		}
		if row.Found != nil && row.Found.Plan != nil {
			plan := *row.Found.Plan
			return &plan, nil
		}
	}
	return nil, errMissing
}

// sortsAll tells a sort by the id without a condition on it, for which CouchDB
// wants an index.
func sortsAll(req *osier.FindRequest, plan *osier.FindPlan) bool {
	return plan.Index == "" && !bytes.Contains(req.Selector, []byte(`"_id"`))
}

// find answers _find.
func (q *request) find() error {
	if len(q.path) > 2 {
		return errMissing
	}
	req, err := q.findRequest()
	if err != nil {
		return err
	}
	plan, err := q.plan(req)
	if err != nil {
		return err
	}
	found := &osier.FindSummary{}
	s := q.stream(http.StatusOK, "application/json")
	s.long = true
	s.buf = append(s.buf, `{"docs":[`...)
	n := 0
	if req.Limit > 0 {
		for row, err := range q.db.Query(q.ctx(), q.findQuery(req)) {
			if err != nil {
				return err
			}
			if row.Found != nil {
				found = row.Found
				break
			}
			if n++; n > 1 {
				s.buf = append(s.buf, ',')
			}
			s.buf = append(s.buf, '\n')
			if err := q.foundDoc(s, req, &row.Document); err != nil {
				return err
			}
			if s.room() != nil {
				return nil // the client has gone
			}
		}
	}
	s.buf = append(s.buf, "\n]"...)
	if len(plan.Ranges) > 0 { // something could have matched
		s.buf = appendQuoted(append(s.buf, ",\n\"bookmark\":"...), cmp.Or(found.Bookmark, noBookmark))
	}
	if req.ExecutionStats {
		s.buf = appendStats(s.buf, found, plan.Index == "")
	}
	if w := warning(req, plan); w != "" {
		s.buf = appendQuoted(append(s.buf, `,"warning":`...), w)
	}
	s.buf = append(s.buf, "}\n"...)
	return s.end()
}

func (q *request) foundDoc(s *stream, req *osier.FindRequest, d *osier.Document) error {
	if len(req.Fields) > 0 {
		s.buf = append(s.buf, d.Body...)
		return nil
	}
	return s.document(q.ctx(), q.db, d, &docOptions{conflicts: req.Conflicts})
}

// appendStats writes what a query has cost. Without an index documents are found
// by their ids, which are keys too.
func appendStats(b []byte, f *osier.FindSummary, scan bool) []byte {
	keys := f.KeysExamined
	if scan {
		keys = f.DocsExamined
	}
	b = strconv.AppendUint(append(b, `,"execution_stats":{"total_keys_examined":`...), keys, 10)
	b = strconv.AppendUint(append(b, `,"total_docs_examined":`...), f.DocsExamined, 10)
	b = strconv.AppendUint(append(b, `,"total_quorum_docs_examined":0,"results_returned":`...), f.Rows, 10)
	b = append(b, `,"execution_time_ms":`...)
	return append(appendFloat(b, float64(f.Elapsed.Microseconds())/1000), '}')
}

// warning says what could be better about a request.
func warning(req *osier.FindRequest, plan *osier.FindPlan) string {
	if req.UseDesign != "" && !usesNamed(req, plan) {
		w := notUsed(req)
		if plan.Index == "" {
			w += "\n" + warnNoIndex
		}
		return w
	}
	if plan.Index == "" && len(plan.Ranges) > 0 {
		return warnNoIndex
	}
	return ""
}

// notUsed says that the index that the request names cannot serve.
func notUsed(req *osier.FindRequest) string {
	name := designPrefix + strings.TrimPrefix(req.UseDesign, designPrefix)
	if req.UseName != "" {
		name += ", " + req.UseName
	}
	return name + " was not used because it does not contain a valid index for this query."
}

// usesNamed tells whether the index that the request names is used.
func usesNamed(req *osier.FindRequest, plan *osier.FindPlan) bool {
	if plan.Index == "" {
		return false
	}
	x := osier.Index{Name: plan.Index}
	design, name := x.CouchName()
	return design == strings.TrimPrefix(req.UseDesign, "_design/") && (req.UseName == "" || req.UseName == name)
}

// explainFind answers _explain.
func (q *request) explainFind() error {
	req, err := q.findRequest()
	if err != nil {
		return err
	}
	plan, err := q.plan(req)
	if err != nil {
		return err
	}
	b := appendQuoted([]byte(`{"dbname":`), q.dbName)
	b = append(b, `,"index":`...)
	if plan.Index == "" {
		b = append(b, allDocsIndex...)
	} else if b, err = q.appendNamedIndex(b, plan.Index); err != nil {
		return err
	}
	b = append(append(b, `,"partitioned":false,"selector":`...), cmp.Or(plan.Selector, "{}")...)
	b = strconv.AppendInt(append(b, `,"opts":{},"limit":`...), int64(req.Limit), 10)
	b = strconv.AppendInt(append(b, `,"skip":`...), int64(req.Skip), 10)
	b = appendStrings(append(b, `,"fields":`...), req.Fields)
	b = append(b, `,"index_candidates":[`...)
	for i, c := range plan.Candidates {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(append(b, `{"index":`...), cmp.Or(c.Index, "_all_docs"))
		b = strconv.AppendBool(append(b, `,"analysis":{"usable":`...), c.Usable)
		b = append(appendQuoted(append(b, `,"reason":`...), c.Reason), "}}"...)
	}
	q.send(http.StatusOK, append(b, `],"covering":false}`...))
	return nil
}

func (q *request) appendNamedIndex(b []byte, name string) ([]byte, error) {
	all, err := q.db.Indexes(q.ctx(), q.coll)
	if err != nil {
		return b, err
	}
	for i := range all {
		if all[i].Name == name {
			return q.appendIndex(b, &all[i])
		}
	}
	return append(b, "null"...), nil // dropped meanwhile
}

// appendIndex writes an index as _index lists it.
func (q *request) appendIndex(b []byte, x *osier.Index) ([]byte, error) {
	form, err := x.CouchForm()
	if err != nil {
		return b, err
	}
	m, err := members(form, "ddoc", "name", "def")
	if err != nil {
		return b, err
	}
	def := m["def"]
	if x.Filter != nil {
		// The filter as it is understood.
		plan, err := q.db.Explain(q.ctx(), q.coll, x.Filter, nil)
		if err != nil {
			return b, err
		}
		d, err := members(def, "fields")
		if err != nil {
			return b, err
		}
		def = slices.Concat([]byte(`{"fields":`), d["fields"], []byte(`,"partial_filter_selector":`), []byte(cmp.Or(plan.Selector, "{}")), []byte("}"))
	}
	b = append(append(b, `{"ddoc":`...), m["ddoc"]...)
	b = append(append(b, `,"name":`...), m["name"]...)
	b = append(append(b, `,"type":"json","partitioned":false,"def":`...), def...)
	return append(b, '}'), nil
}

// index answers _index and what is below it.
func (q *request) index() error {
	rest := q.path[2:]
	switch {
	case len(rest) == 1 && rest[0] == "_bulk_delete":
		if err := q.allow("POST"); err != nil {
			return err
		}
		return q.dropIndexes()
	case len(rest) > 0:
		if err := q.allow("DELETE"); err != nil {
			return err
		}
		return q.dropIndex(rest)
	}
	if err := q.allow("GET,POST"); err != nil {
		return err
	}
	if err := q.followAll(); err != nil {
		return err
	}
	if q.method == http.MethodPost {
		return q.createIndex()
	}
	return q.listIndexes()
}

func (q *request) listIndexes() error {
	l, err := newListing(q.params)
	if err != nil {
		return err
	}
	all, err := q.db.Indexes(q.ctx(), q.coll)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b osier.Index) int {
		aDesign, aName := a.CouchName()
		bDesign, bName := b.CouchName()
		return cmp.Or(cmp.Compare(aDesign, bDesign), cmp.Compare(aName, bName))
	})
	b := strconv.AppendInt([]byte(`{"total_rows":`), int64(len(all)+1), 10)
	b = append(b, `,"indexes":[`...)
	shown := 0
	for i := l.skip; i <= len(all) && (l.limit < 0 || shown < l.limit); i++ {
		if shown++; shown > 1 {
			b = append(b, ',')
		}
		if i == 0 {
			b = append(b, allDocsIndex...)
		} else if b, err = q.appendIndex(b, &all[i-1]); err != nil {
			return err
		}
	}
	q.send(http.StatusOK, append(b, "]}"...))
	return nil
}

func (q *request) createIndex() error {
	if err := q.wantJSON(); err != nil {
		return err
	}
	b, err := q.jsonBody()
	if err != nil {
		return err
	}
	if b[0] != '{' {
		return errBodyObject
	}
	if err := checkIndexRequest(b); err != nil {
		return err
	}
	if err := q.needDesignRight(designPrefix + "index"); err != nil {
		return err
	}
	x, err := osier.ParseIndexRequest(b)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(x.Fields, func(f osier.SortField) bool { return f.Descending != x.Fields[0].Descending }) {
		return errMixedSort
	}
	x.Collection = q.coll
	m, err := members(b, "index")
	if err != nil {
		return err
	}
	view, err := appendView(nil, x, m["index"])
	if err != nil {
		return err
	}
	design, name := x.CouchName()
	result := "created"
	err = q.changeDesign(design, func(_ *osier.Document, body []byte) ([]byte, bool, error) {
		if bytes.Equal(viewOf(body, name), view) {
			result = "exists"
			return nil, true, q.follow(q.ctx(), design)
		}
		result = "created"
		out, _, err := withView(body, name, view)
		return out, false, err
	})
	if err != nil {
		return err
	}
	out := appendQuoted([]byte(`{"result":"`+result+`","id":`), designPrefix+design)
	q.send(http.StatusOK, append(appendQuoted(append(out, `,"name":`...), name), '}'))
	return nil
}

// indexKeys are the members of a request for an index.
var indexKeys = map[string]bool{"index": true, "ddoc": true, "name": true, "type": true, "partitioned": true, "w": true}

// checkIndexRequest refuses what CouchDB refuses before it looks at the fields.
func checkIndexRequest(b []byte) error {
	refuse := func(code, reason string) error {
		return &failure{status: http.StatusBadRequest, code: code, reason: reason}
	}
	_, err := fields(b, func(name, v []byte) error {
		n, _ := unquote(name)
		text, isText := unquote(v)
		switch {
		case !indexKeys[n]:
			return refuse("invalid_key", "Invalid key "+n+" for this request.")
		case n == "index" && v[0] != '{':
			return refuse("invalid_index", "JSON indexes must be an object, not: "+string(v))
		case n == "name" || n == "ddoc":
			if !isText {
				return refuse("invalid_string", "Invalid string: "+string(v))
			}
			if text == "" {
				return refuse("invalid_empty_string", "Index name or ddoc cannot be empty string")
			}
		case n == "type" && text != "json" && text != "text":
			return refuse("invalid_index", "Invalid type for index: "+text)
		case n == "index":
			_, err := fields(v, func(name, f []byte) error {
				switch n, _ := unquote(name); n {
				case "fields", "partial_filter_selector":
					return nil
				default:
					return refuse("invalid_key", "Invalid key "+n+" for this request.")
				}
			})
			return err
		}
		return nil
	})
	return err
}

// dropIndex answers DELETE of one index: [_design/]DDOC/json/NAME.
func (q *request) dropIndex(rest []string) error {
	if rest[0] == "_design" {
		rest = rest[1:]
	}
	if len(rest) != 3 || rest[1] != "json" {
		return errMissing
	}
	rest[0] = strings.TrimPrefix(rest[0], designPrefix) // with an escaped slash
	if err := q.needDesignRight(designPrefix + rest[0]); err != nil {
		return err
	}
	missing := false
	err := q.changeDesign(rest[0], func(_ *osier.Document, body []byte) ([]byte, bool, error) {
		if missing = viewOf(body, rest[2]) == nil; missing {
			return nil, true, nil
		}
		out, left, err := withView(body, rest[2], nil)
		if left == 0 {
			out = nil
		}
		return out, false, err
	})
	if err == nil && missing {
		// Made by something else than this door, which writes no document.
		err = q.db.DropIndex(q.ctx(), osier.CouchIndexName(rest[0], rest[2]))
	}
	if errors.Is(err, osier.ErrNotFound) {
		return errMissing
	}
	if err != nil {
		return err
	}
	return q.ok(http.StatusOK)
}

// dropIndexes answers _bulk_delete: all indexes of the design documents named.
func (q *request) dropIndexes() error {
	m, err := q.object("docids")
	if err != nil {
		return err
	}
	if m["docids"] == nil {
		return &failure{status: http.StatusBadRequest, code: "missing_required_key", reason: "Missing required key: docids"}
	}
	if err := q.needDesignRight(designPrefix + "index"); err != nil {
		return err
	}
	all, err := q.db.Indexes(q.ctx(), q.coll)
	if err != nil {
		return err
	}
	var done, failed []byte
	ok, err := elements(m["docids"], func(v []byte) error {
		text, ok := unquote(v)
		if !ok {
			return badRequest("`docids` must be strings.")
		}
		design := strings.TrimPrefix(text, designPrefix)
		found := false
		err := q.changeDesign(design, func(doc *osier.Document, _ []byte) ([]byte, bool, error) {
			found = doc != nil
			return nil, !found, nil
		})
		if err != nil {
			return err
		}
		for i := range all {
			if d, _ := all[i].CouchName(); d == design {
				if err := q.db.DropIndex(q.ctx(), all[i].Name); err != nil && !errors.Is(err, osier.ErrNotFound) {
					return err
				}
				found = true
			}
		}
		if found {
			// The last one first, as CouchDB lists them.
			done = append(append(appendQuoted([]byte(`,{"id":`), designPrefix+design), `,"ok":true}`...), done...)
		} else {
			failed = append(append(appendQuoted([]byte(`,{"id":`), designPrefix+design), `,"error":"not_found"}`...), failed...)
		}
		return nil
	})
	if !ok {
		return &failure{status: http.StatusBadRequest, code: "invalid_bulk_docs", reason: "Bulk Delete requires an array of non-null docids. Docids: " + string(m["docids"])}
	}
	if err != nil {
		return err
	}
	b := append([]byte(`{"success":[`), bytes.TrimPrefix(done, []byte(","))...)
	b = append(append(b, `],"fail":[`...), bytes.TrimPrefix(failed, []byte(","))...)
	q.send(http.StatusOK, append(b, "]}"...))
	return nil
}

// filterBySelector reads the filter _selector of changes.
func (q *request) filterBySelector(body []byte) (filter, error) {
	if body == nil {
		return filter{}, badRequest("Selector must be specified in POST payload")
	}
	m, err := members(body, "selector", "fields")
	if err != nil {
		return filter{}, err
	}
	if s := m["selector"]; len(s) == 0 || s[0] != '{' {
		return filter{}, badRequest("Selector error: expected a JSON object")
	}
	var paths []string
	if f := m["fields"]; f != nil {
		ok, err := elements(f, func(v []byte) error {
			text, ok := unquote(v)
			if !ok {
				return badRequest("Invalid JSON for field spec: " + string(v))
			}
			paths = append(paths, text)
			return nil
		})
		if !ok {
			return filter{}, badRequest("Selector error: fields must be JSON array")
		}
		if err != nil {
			return filter{}, err
		}
	}
	matcher, err := osier.NewMatcher(osier.Mango(m["selector"]), paths...)
	if err != nil {
		if f := refusedSelector(err); f != nil {
			err = badRequest(f.reason)
		}
		return filter{}, err
	}
	return selectorFilter(matcher, len(paths) > 0), nil
}

// metaMembers is a JSON object of a document's members that its body does not
// hold; nil if there are none.
func (q *request) metaMembers(d *osier.Document) ([]byte, error) {
	var s stream // only its buffer is used: stubs need no client
	if d.Deleted {
		s.buf = append(s.buf, `,"_deleted":true`...)
	}
	if len(d.Attachments) > 0 {
		if err := s.attachments(q.ctx(), q.db, d, &docOptions{}); err != nil {
			return nil, err
		}
	}
	if len(s.buf) == 0 {
		return nil, nil
	}
	s.buf[0] = '{'
	return append(s.buf, '}'), nil
}

func selectorFilter(m *osier.Matcher, projects bool) filter {
	parts := func(q *request, d *osier.Document) (body, meta []byte, err error) {
		inner, err := bodyMembers(q.db, d)
		if err != nil {
			return nil, nil, err
		}
		meta, err = q.metaMembers(d)
		return slices.Concat([]byte("{"), inner, []byte("}")), meta, err
	}
	f := filter{byBody: true, keep: func(q *request, d *osier.Document) (bool, error) {
		body, meta, err := parts(q, d)
		if err != nil {
			return false, err
		}
		return m.Match(idText(d.ID), d.Rev, body, meta)
	}}
	if projects {
		f.project = func(b []byte, q *request, d *osier.Document) ([]byte, error) {
			body, meta, err := parts(q, d)
			if err != nil {
				return b, err
			}
			return m.AppendFields(b, idText(d.ID), d.Rev, body, meta)
		}
	}
	return f
}
