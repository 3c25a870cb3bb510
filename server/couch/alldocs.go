package couch

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
)

// listing is a request for a list of documents: the parameters of _all_docs.
type listing struct {
	start, end   *string // nil: not given, or of another type than the ids
	never        bool    // key is of another type than the ids: no row
	keys         [][]byte
	hasKeys      bool
	descending   bool
	exclusiveEnd bool
	skip         int
	limit        int // negative: none
	updateSeq    bool
	includeDocs  bool
	attachments  bool
	conflicts    bool
	encodingInfo bool
}

// newListing reads the parameters of a query.
func newListing(p params) (*listing, error) {
	l := &listing{limit: -1}
	return l, l.query(p)
}

// query reads the parameters of a query; of a repeated one the last counts.
func (l *listing) query(p params) error {
	for i := range p {
		if err := l.set(p[i].name, p[i].value); err != nil {
			return err
		}
	}
	return nil
}

// body reads the parameters in a JSON object.
func (l *listing) body(b []byte) error {
	ok, err := fields(b, func(name, value []byte) error {
		n, _ := unquote(name)
		text := string(value)
		if s, isText := unquote(value); isText && !jsonParams[n] {
			text = s
		}
		return l.set(n, text)
	})
	if !ok {
		return errBodyObject
	}
	if errors.Is(err, errKeysParam) {
		return errKeysBody
	}
	return err
}

// jsonParams are those whose values are JSON.
var jsonParams = map[string]bool{
	"key": true, "keys": true, "startkey": true, "start_key": true, "endkey": true, "end_key": true,
}

func (l *listing) set(name, value string) (err error) {
	switch name {
	case "key", "keys", "startkey", "start_key", "endkey", "end_key":
		return l.setKey(name, value)
	case "limit":
		l.limit, err = whole(value)
	case "skip":
		l.skip, err = whole(value)
	case "descending":
		l.descending, err = boolean(value)
	case "inclusive_end":
		l.exclusiveEnd, err = boolean(value)
		l.exclusiveEnd = !l.exclusiveEnd
	case "include_docs":
		l.includeDocs, err = boolean(value)
	case "attachments":
		l.attachments, err = boolean(value)
	case "att_encoding_info":
		l.encodingInfo, err = boolean(value)
	case "conflicts":
		l.conflicts, err = boolean(value)
	case "update_seq":
		l.updateSeq, err = boolean(value)
	case "sorted":
		_, err = boolean(value)
	case "stable":
		if value != "true" && value != "false" {
			err = queryError("Invalid value for `stable`.")
		}
	case "reduce":
		var on bool
		if on, err = boolean(value); on {
			err = queryError("Reduce is invalid for map-only views.")
		}
	case "group":
		var on bool
		if on, err = boolean(value); on {
			err = queryError("Invalid use of grouping on a map view.")
		}
	case "group_level":
		if _, err = whole(value); err == nil {
			err = queryError("Invalid use of grouping on a map view.")
		}
	case "stale":
		if value != "ok" && value != "update_after" {
			err = queryError("Invalid value for `stale`.")
		}
	case "update":
		if value != "true" && value != "false" && value != "lazy" {
			err = queryError("Invalid value for `update`.")
		}
	}
	return err
}

func (l *listing) setKey(name, value string) error {
	b, err := parseJSON([]byte(value), 0)
	if err != nil {
		return err
	}
	if name == "keys" {
		l.keys, l.hasKeys = nil, true
		ok, err := elements(b, func(v []byte) error {
			l.keys = append(l.keys, v)
			return nil
		})
		if !ok {
			return errKeysParam
		}
		return err
	}
	var text *string
	if s, ok := unquote(b); ok {
		text = &s
	}
	switch name {
	case "key":
		l.start, l.end, l.never = text, text, text == nil
	case "startkey", "start_key":
		l.start = text
	default:
		l.end = text
	}
	return nil
}

var (
	errKeysParam = badRequest("`keys` parameter must be an array.")
	errKeysBody  = badRequest("`keys` body member must be an array.")
)

// whole reads a number from 0 on.
func whole(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0, queryError("Invalid value for integer: " + string(appendQuoted(nil, value)))
	}
	if n < 0 {
		return 0, queryError("Invalid value for positive integer: " + string(appendQuoted(nil, value)))
	}
	return n, nil
}

func boolean(value string) (bool, error) {
	switch {
	case strings.EqualFold(value, "true"):
		return true, nil
	case strings.EqualFold(value, "false"):
		return false, nil
	}
	return false, queryError("Invalid boolean parameter: " + string(appendQuoted(nil, value)))
}

// bounds are the encoded ids between which a listing's rows lie.
type bounds struct {
	low, high string // low included, high not; "" is open
	empty     bool
	bounded   bool // the end at which rows begin is not open
}

// bounds works out the range; within, if not "", is what all ids begin with.
func (l *listing) bounds() (b bounds, err error) {
	start, end, exclusive := l.start, l.end, l.exclusiveEnd
	if l.never {
		return bounds{empty: true}, nil
	}
	b.bounded = start != nil
	if l.descending {
		if start != nil {
			b.high, err = after(*start)
			b.empty = *start == ""
		}
		if end != nil && err == nil {
			if b.low, err = at(*end); exclusive && err == nil {
				b.low, err = after(*end)
			}
		}
		return b.checked(), err
	}
	if start != nil {
		b.low, err = at(*start)
	}
	if end != nil && err == nil {
		if b.high, err = after(*end); exclusive && err == nil {
			b.high, err = at(*end)
		}
		b.empty = b.empty || *end == ""
	}
	return b.checked(), err
}

func (b bounds) checked() bounds {
	b.empty = b.empty || b.high != "" && b.low >= b.high
	return b
}

// at is the encoded form of an id; an empty text is before all.
func at(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	id, err := osier.IDOf(text)
	if err != nil {
		return "", queryError(reasonOf(err))
	}
	return id.Key(), nil
}

// after is the bound behind an id.
func after(text string) (string, error) {
	key, err := at(text)
	return key + "\x00", err
}

// list is a listing of one kind of documents being answered.
type list struct {
	q     *request
	coll  string
	local bool   // local documents: their form, and no counts
	space bounds // all ids of that kind
}

func (q *request) allDocs() error { return q.list(&list{q: q, coll: q.coll}) }

func (q *request) designDocs() error {
	low, high, err := osier.PrefixRange(designPrefix)
	if err != nil {
		return err
	}
	return q.list(&list{q: q, coll: q.coll, space: bounds{low: low, high: high}})
}

func (q *request) localDocs() error {
	of := any("")
	if q.coll != osier.DefaultCollection {
		of = osier.Tuple{q.coll}
	}
	low, high, err := osier.PrefixRange(of)
	if err != nil {
		return err
	}
	return q.list(&list{q: q, coll: localCollection, local: true, space: bounds{low: low, high: high}})
}

// list answers GET and POST of a listing, and several queries at once.
func (q *request) list(ls *list) error {
	if len(q.path) > 3 || len(q.path) == 3 && q.path[2] != "queries" {
		return errMissing
	}
	several := len(q.path) == 3
	if several && q.method != http.MethodPost {
		return methodNotAllowed("POST")
	}
	all, err := q.listings(several)
	if err != nil {
		return err
	}
	s := q.stream(http.StatusOK, "application/json")
	s.long = true
	if several {
		s.buf = append(s.buf, `{"results":[`...)
	}
	for i, l := range all {
		if i > 0 {
			s.buf = append(s.buf, ",\n"...)
		}
		if err := ls.answer(s, l); err != nil {
			return err
		}
		if s.err != nil {
			return nil // the client has gone
		}
	}
	if several {
		s.buf = append(s.buf, "]}"...)
	}
	s.buf = append(s.buf, '\n')
	return s.end()
}

// listings reads what a request asks for: a query, or several in its body. The
// parameters of the address go before those of a body, and are the ones that the
// queries of several begin with.
func (q *request) listings(several bool) ([]*listing, error) {
	if q.method != http.MethodPost {
		l, err := newListing(q.params)
		return []*listing{l}, err
	}
	if !several {
		if err := q.wantJSON(); err != nil {
			return nil, err
		}
	}
	b, err := q.jsonBody()
	if err != nil {
		return nil, err
	}
	if several {
		return q.queries(b)
	}
	l := &listing{limit: -1}
	if err := l.body(b); err != nil {
		return nil, err
	}
	return []*listing{l}, l.query(q.params)
}

func (q *request) queries(b []byte) ([]*listing, error) {
	base, err := newListing(q.params)
	if err != nil {
		return nil, err
	}
	m, err := members(b, "queries")
	if err != nil {
		return nil, err
	}
	queries, given := m["queries"]
	if !given {
		return nil, badRequest("POST body must include `queries` parameter.")
	}
	var out []*listing
	ok, err := elements(queries, func(v []byte) error {
		own := *base
		out = append(out, &own)
		return own.body(v)
	})
	if !ok {
		return nil, badRequest("`queries` member must be an array.")
	}
	return out, err
}

// answer writes one listing's object.
func (ls *list) answer(s *stream, l *listing) error {
	q := ls.q
	b, err := l.bounds()
	if err != nil {
		return err
	}
	if ls.space.low != "" {
		b = ls.narrow(l, b)
	}
	total, seq := int64(-1), osier.Seq(0)
	if !ls.local {
		if total, seq, err = ls.total(); err != nil {
			return err
		}
	}
	offset := int64(-1)
	if !l.hasKeys && !ls.local {
		if offset, err = ls.offset(l, b, total); err != nil {
			return err
		}
	}
	s.buf = append(s.buf, `{"total_rows":`...)
	s.buf = appendCount(s.buf, total)
	switch {
	case !l.updateSeq:
	case ls.local || l.hasKeys:
		s.buf = append(s.buf, `,"update_seq":null`...)
	default:
		s.buf = q.appendSeq(append(s.buf, `,"update_seq":`...), seq)
	}
	s.buf = appendCount(append(s.buf, `,"offset":`...), offset)
	s.buf = append(s.buf, `,"rows":[`...)
	if l.hasKeys {
		err = ls.byKeys(s, l)
	} else if !b.empty && l.limit != 0 {
		err = ls.scan(s, l, b)
	}
	if err != nil {
		return err
	}
	s.buf = append(s.buf, "\n]}"...)
	return nil
}

// appendCount writes a number; a negative one is not known.
func appendCount(b []byte, n int64) []byte {
	if n < 0 {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, n, 10)
}

// narrow keeps a range within the ids of the listing's kind, and brings bounds
// of local documents into the form of their keys.
func (ls *list) narrow(l *listing, b bounds) bounds {
	if ls.local {
		own := *l
		for _, p := range []**string{&own.start, &own.end} {
			if *p != nil {
				// Ids are shown with a prefix that their keys lack.
				name, ok := strings.CutPrefix(**p, localPrefix)
				if !ok && **p > localPrefix {
					name = "\U0010FFFF"
				}
				*p = &name
			}
		}
		b, _ = own.bounds()
	}
	b.low = max(b.low, ls.space.low)
	if b.high == "" || b.high > ls.space.high {
		b.high = ls.space.high
	}
	return b.checked()
}

// total is how many documents of the kind there are.
func (ls *list) total() (int64, osier.Seq, error) {
	info, err := ls.q.collInfo()
	if err != nil {
		return 0, 0, err
	}
	if ls.space.low == "" {
		return int64(info.Count), info.LastSeq, nil
	}
	n, err := ls.count(ls.space.low, ls.space.high)
	return n, info.LastSeq, err
}

// countMost is how many documents are counted to tell an offset. Beyond, the
// answer would cost more than the rows.
const countMost = 10_000

// count counts documents of a range; it is -1 for more than countMost.
func (ls *list) count(low, high string) (int64, error) {
	n := int64(0)
	query := &osier.Query{Kind: osier.QueryScan, Collection: ls.coll, Start: low, End: high, Limit: countMost + 1}
	for _, err := range ls.q.db.Query(ls.q.ctx(), query) {
		if err != nil {
			return 0, err
		}
		n++
	}
	if n > countMost {
		n = -1
	}
	return n, nil
}

// offset is how many documents there are before the first row.
func (ls *list) offset(l *listing, b bounds, total int64) (int64, error) {
	n := int64(0)
	if b.bounded {
		low, high := ls.space.low, b.low
		if l.descending {
			low, high = b.high, ls.space.high
		}
		var err error
		if (low != "" || high != "") && (high == "" || low < high) {
			if n, err = ls.count(low, high); err != nil || n < 0 {
				return n, err
			}
		}
	}
	if n += int64(l.skip); total >= 0 {
		n = min(n, total)
	}
	return n, nil
}

// scan writes the rows of a range.
func (ls *list) scan(s *stream, l *listing, b bounds) error {
	query := &osier.Query{Kind: osier.QueryScan, Collection: ls.coll, Start: b.low, End: b.high, Reverse: l.descending,
		Skip: l.skip, Limit: max(l.limit, 0), Parts: ls.parts(l)}
	n := 0
	for row, err := range ls.q.db.Query(ls.q.ctx(), query) {
		if err != nil {
			return err
		}
		if n++; n > 1 {
			s.buf = append(s.buf, ',')
		}
		if err := ls.row(s, l, &row.Document); err != nil {
			return err
		}
		if s.room() != nil {
			return nil // the client has gone
		}
	}
	return nil
}

func (ls *list) parts(l *listing) osier.Parts {
	p := osier.Parts(0)
	if l.includeDocs || ls.local {
		p |= osier.WithBody
	}
	if l.includeDocs && l.conflicts {
		p |= osier.WithConflicts
	}
	return p
}

// row writes a document's row.
func (ls *list) row(s *stream, l *listing, d *osier.Document) error {
	id := idText(d.ID)
	rev := d.Rev.String()
	if ls.local {
		id, rev = localText(d.ID), localRevOf(d.Body)
	}
	s.buf = appendQuoted(append(s.buf, "\n{\"id\":"...), id)
	s.buf = appendQuoted(append(s.buf, `,"key":`...), id)
	s.buf = appendQuoted(append(s.buf, `,"value":{"rev":`...), rev)
	if d.Deleted {
		s.buf = append(s.buf, `,"deleted":true`...)
	}
	s.buf = append(s.buf, '}')
	if l.includeDocs {
		s.buf = append(s.buf, `,"doc":`...)
		switch {
		case d.Deleted:
			s.buf = append(s.buf, "null"...)
		case ls.local:
			s.buf = appendLocal(s.buf, id, d.Body)
		default:
			o := docOptions{conflicts: l.conflicts, encodingInfo: l.encodingInfo}
			if l.attachments {
				o.atts = attInline
			}
			if err := s.document(ls.q.ctx(), ls.q.db, d, &o); err != nil {
				return err
			}
		}
	}
	s.buf = append(s.buf, '}')
	return nil
}

// localText is a local document's id as clients see it.
func localText(id osier.ID) string {
	if t, ok := id.Value().(osier.Tuple); ok && len(t) == 2 {
		name, _ := t[1].(string)
		return localPrefix + name
	}
	return localPrefix + idText(id)
}

// byKeys writes rows in the order of keys.
func (ls *list) byKeys(s *stream, l *listing) error {
	keys := l.keys
	if l.descending {
		keys = slices.Clone(keys)
		slices.Reverse(keys)
	}
	keys = keys[min(l.skip, len(keys)):]
	if l.limit >= 0 {
		keys = keys[:min(l.limit, len(keys))]
	}
	first := true
	for len(keys) > 0 && s.err == nil {
		n := min(len(keys), diffBatch)
		if err := ls.someKeys(s, l, keys[:n], &first); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func (ls *list) someKeys(s *stream, l *listing, keys [][]byte, first *bool) error {
	ids := make([]osier.ID, 0, len(keys))
	has := make([]bool, len(keys)) // whether a key can be an id
	for i, k := range keys {
		text, ok := unquote(k)
		if !ok {
			continue
		}
		id, err := osier.IDOf(text)
		if ls.local {
			name, is := strings.CutPrefix(text, localPrefix)
			if !is || name == "" {
				continue
			}
			id, err = ls.q.localKey(name)
		}
		if err != nil || id.IsZero() {
			continue
		}
		ids, has[i] = append(ids, id), true
	}
	begin := func() {
		if !*first {
			s.buf = append(s.buf, ',')
		}
		*first = false
	}
	at := 0
	miss := func(until int) {
		for ; at < until && !has[at]; at++ {
			begin()
			s.buf = append(append(append(s.buf, "\n{\"key\":"...), keys[at]...), `,"error":"not_found"}`...)
		}
	}
	miss(len(keys))
	if len(ids) == 0 {
		return nil
	}
	query := &osier.Query{Kind: osier.QueryGet, Collection: ls.coll, IDs: ids, Parts: ls.parts(l), Deleted: !ls.local}
	for row, err := range ls.q.db.Query(ls.q.ctx(), query) {
		if err != nil {
			return err
		}
		begin()
		if row.Missing {
			s.buf = append(append(append(s.buf, "\n{\"key\":"...), keys[at]...), `,"error":"not_found"}`...)
		} else if err := ls.row(s, l, &row.Document); err != nil {
			return err
		}
		at++
		miss(len(keys))
		if s.room() != nil {
			return nil // the client has gone
		}
	}
	return nil
}
