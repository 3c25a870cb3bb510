package couch

import (
	"context"
	"errors"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/server"
)

// feedKind is what the parameter feed names.
type feedKind uint8

const (
	feedNormal feedKind = iota
	feedLongpoll
	feedContinuous
	feedEvents
)

var feedKinds = map[string]feedKind{
	"": feedNormal, "normal": feedNormal, "longpoll": feedLongpoll, "continuous": feedContinuous,
	"live": feedContinuous, "eventsource": feedEvents,
}

// defaultTimeout is how long a feed waits for a change, unless it is told or
// sends heartbeats.
const defaultTimeout = 60 * time.Second

// defaultHeartbeat is what heartbeat=true means.
const defaultHeartbeat = 60 * time.Second

// changesQuery is a request for changes.
type changesQuery struct {
	kind       feedKind
	since      osier.Seq
	limit      int // negative: none
	descending bool
	allLeaves  bool // style=all_docs
	docs       bool // include_docs
	show       docOptions
	heartbeat  time.Duration
	timeout    time.Duration
	interval   int // seq_interval
	filter     filter
	info       *osier.DBInfo
	last       osier.Seq // the collection's last change when the request came
	total      uint64    // its documents, deleted ones too
}

func (q *request) changesQuery() (*changesQuery, error) {
	info, err := q.dbInfo()
	if err != nil {
		return nil, err
	}
	p := q.params
	c := &changesQuery{limit: -1, timeout: defaultTimeout, info: info}
	if coll, err := q.collInfo(); err != nil {
		return nil, err
	} else {
		c.last, c.total = coll.LastSeq, coll.Count+coll.Deleted
	}
	v, _ := p.get("feed")
	kind, ok := feedKinds[v]
	if !ok {
		return nil, badRequest("Supported `feed` types: normal, continuous, live, longpoll, eventsource")
	}
	c.kind = kind
	v, given := p.get("since")
	if last, ok := p.get("last-event-id"); ok {
		v, given = last, true
	}
	if h := q.r.Header.Get("Last-Event-Id"); h != "" && c.kind == feedEvents {
		v, given = h, true
	}
	if given {
		if c.since, err = parseSince(v, info); err != nil {
			return nil, err
		}
	}
	c.descending = p.is("descending")
	c.docs = p.is("include_docs")
	if c.docs {
		c.show = docOptions{conflicts: p.is("conflicts"), encodingInfo: p.is("att_encoding_info")}
		if p.is("attachments") {
			c.show.atts = attInline
		}
	}
	if c.descending {
		c.since = 0
	}
	return c, c.numbers(p)
}

// numbers reads the parameters that are numbers, and style.
func (c *changesQuery) numbers(p params) error {
	if v, ok := p.get("limit"); ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			return badRequest("Invalid limit value. Expecting an integer.")
		}
		c.limit = n
	}
	if v, ok := p.get("seq_interval"); ok {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return badRequest("invalid_seq_interval")
		}
		c.interval = n
	}
	if v, ok := p.get("timeout"); ok {
		n, err := strconv.ParseInt(v, 10, 40)
		if err != nil || n < 0 {
			return badRequest("Invalid timeout value. Expecting an integer from 0 on (in milliseconds).")
		}
		c.timeout = time.Duration(n) * time.Millisecond
	}
	if v, ok := p.get("heartbeat"); ok && v == "true" {
		c.heartbeat = defaultHeartbeat
	} else if ok {
		n, err := strconv.ParseInt(v, 10, 40)
		if err != nil {
			return badRequest("Invalid heartbeat value. Expecting a positive integer value (in milliseconds).")
		}
		if n <= 0 {
			return badRequest("The heartbeat value should be a positive integer (in milliseconds).")
		}
		c.heartbeat = max(time.Duration(n)*time.Millisecond, minHeartbeat)
	}
	switch v, _ := p.get("style"); v {
	case "", "main_only":
	case "all_docs":
		c.allLeaves = true
	default:
		return badRequest("Supported `style` values: main_only, all_docs")
	}
	return nil
}

// minHeartbeat bounds what heartbeats may cost.
const minHeartbeat = 100 * time.Millisecond

// changes answers _changes.
func (q *request) changes() error {
	c, err := q.changesQuery()
	if err != nil {
		return err
	}
	if c.filter, err = q.filter(); err != nil {
		return err
	}
	if c.kind == feedNormal {
		if q.notModified(c.etag(q.r.URL.RawQuery)) && q.method != http.MethodPost {
			return nil
		}
		if q.method == http.MethodHead {
			q.w.Header().Set("Content-Type", "application/json")
			q.started = true
			q.w.WriteHeader(http.StatusOK)
			return nil
		}
	}
	ctx := q.ctx()
	if c.kind != feedNormal {
		waiting, release, err := q.door.host.Wait(ctx)
		if err != nil {
			return err
		}
		defer release()
		ctx = waiting
	}
	f := newFeed(q, c)
	return f.run(ctx)
}

// etag names the answer to a query in the database's present state.
func (c *changesQuery) etag(query string) string {
	h := fnv.New64a()
	h.Write([]byte(query)) // a hash's Write never fails
	return `"` + strconv.FormatUint(uint64(c.last), 36) + "-" + token(c.info) + "-" + strconv.FormatUint(h.Sum64(), 36) + `"`
}

// feed is an answer to _changes. The handler's goroutine reads the changes and
// writes them; a timer writes heartbeats in between, so that a waiting request
// costs no further goroutine.
type feed struct {
	q      *request
	c      *changesQuery
	token  string
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards what follows, and writing
	s     *stream
	timer *time.Timer
	ended bool
	idle  bool // it has shown what there was, and waits
	shown int
	last  osier.Seq   // what has been shown or passed over
	rows  osier.Seq   // the last row's sequence
	revs  []osier.Rev // of the present row
}

// errIdle ends a feed that has waited long enough.
var errIdle = errors.New("no change within the time allowed")

func newFeed(q *request, c *changesQuery) *feed {
	contentType := "application/json"
	if c.kind == feedEvents {
		contentType = "text/event-stream"
		q.w.Header().Set("Cache-Control", "no-cache")
	}
	s := q.stream(http.StatusOK, contentType)
	s.long = c.kind == feedNormal // the others wait
	return &feed{q: q, c: c, token: token(c.info), s: s, last: c.since}
}

func (f *feed) run(ctx context.Context) error {
	ctx, f.cancel = context.WithCancelCause(ctx)
	defer f.cancel(nil)
	if f.c.since == osier.SeqNow {
		f.last = f.c.last
	}
	if f.c.kind != feedNormal {
		if err := f.begin(); err != nil {
			return nil // the client has gone
		}
		defer f.stopTimer()
	} else {
		f.s.buf = append(f.s.buf, `{"results":[`...)
	}
	if f.c.limit != 0 {
		if err := f.watch(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	return f.end(ctx)
}

// begin sends the headers at once: clients wait for them.
func (f *feed) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.c.kind {
	case feedLongpoll:
		f.s.buf = append(f.s.buf, `{"results":[`...)
	case feedContinuous:
		f.s.buf = append(f.s.buf, '\n')
	}
	if f.c.heartbeat > 0 {
		f.timer = time.AfterFunc(f.c.heartbeat, f.tick)
	}
	return f.s.push()
}

// await begins to count the time that a feed may be idle.
func (f *feed) await() {
	switch {
	case f.c.kind == feedNormal || f.c.heartbeat > 0:
	case f.timer == nil:
		f.timer = time.AfterFunc(f.c.timeout, f.tick)
	default:
		f.timer.Reset(f.c.timeout)
	}
}

// tick sends a heartbeat, or ends a feed that has been idle.
func (f *feed) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	if f.c.heartbeat == 0 {
		f.cancel(errIdle)
		return
	}
	if f.c.kind == feedEvents {
		f.s.buf = append(f.s.buf, "event: heartbeat\ndata: \n\n"...)
	} else {
		f.s.buf = append(f.s.buf, '\n')
	}
	if f.s.push() != nil {
		f.cancel(context.Canceled)
		return
	}
	f.timer.Reset(f.c.heartbeat)
}

// stopTimer makes sure that nothing is written any more.
func (f *feed) stopTimer() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	if f.timer != nil {
		f.timer.Stop()
	}
}

// watch shows changes until the feed's end.
func (f *feed) watch(ctx context.Context) error {
	w := &osier.Feed{Collection: f.q.coll, Since: f.c.since, Descending: f.c.descending, Marks: true}
	if f.c.descending && f.c.kind != feedNormal {
		w.Mode = osier.FeedOnce
	} else {
		switch f.c.kind {
		case feedLongpoll, feedContinuous, feedEvents:
			w.Mode = osier.FeedLive
		}
	}
	if f.c.since == osier.SeqNow && f.c.kind == feedNormal {
		return nil
	}
	if f.c.since == osier.SeqNow {
		// From the state that was looked at, so that last_seq is right also if
		// nothing comes.
		w.Since = f.c.last
	}
	if f.c.filter.ids != nil {
		if len(f.c.filter.ids) == 0 && w.Mode == osier.FeedOnce {
			return nil
		}
		w.IDs = f.c.filter.ids
	}
	if f.c.docs || f.c.filter.keep != nil {
		w.Parts |= osier.WithBody
	}
	if f.c.allLeaves || f.c.show.conflicts {
		w.Parts |= osier.WithConflicts
	}
	for ch, err := range f.q.db.Watch(ctx, w) {
		if err != nil {
			return f.over(ctx, err)
		}
		done, err := f.change(&ch)
		if done || err != nil {
			return err
		}
	}
	return nil
}

// over tells a feed's regular end from a failure.
func (f *feed) over(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errIdle), errors.Is(cause, server.ErrStopping):
		return nil
	case ctx.Err() != nil:
		return nil // the client has gone
	case f.c.kind != feedNormal && (osier.KindOf(err) == osier.KindNotFound || osier.KindOf(err) == osier.KindClosed):
		return nil // the database has been dropped, or the store is being closed
	}
	return err
}

// change shows a change if it passes; done ends the feed.
func (f *feed) change(ch *osier.Change) (done bool, err error) {
	if !ch.Mark {
		// Before the lock: heartbeats go on while leaves are read.
		if err := f.judge(ch); err != nil {
			return false, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ch.Mark {
		f.last = max(f.last, min(ch.Seq, max(f.c.last, f.last)))
		if f.c.kind == feedLongpoll && f.shown > 0 {
			return true, nil
		}
		if !f.idle {
			f.idle = true
			f.await()
		}
		return false, f.pushed()
	}
	f.last = ch.Seq
	if len(f.revs) == 0 {
		return false, nil
	}
	if err := f.row(ch); err != nil {
		return false, err
	}
	if f.idle {
		f.await()
	}
	if f.s.room() != nil {
		return true, nil // the client has gone
	}
	return f.c.limit > 0 && f.shown == f.c.limit, nil
}

// judge sets the revisions that a change's row names: those that pass, of the
// winner and, with style=all_docs, of the other leaves.
func (f *feed) judge(ch *osier.Change) error {
	f.revs = f.revs[:0]
	judge := &f.c.filter
	if judge.keep != nil {
		keep, err := judge.keep(f.q, &ch.Document)
		if err != nil || !keep && !(judge.byBody && f.c.allLeaves) {
			return err
		}
		if keep {
			f.revs = append(f.revs, ch.Rev)
		}
	} else {
		f.revs = append(f.revs, ch.Rev)
	}
	if !f.c.allLeaves || len(ch.Conflicts) == 0 {
		return nil
	}
	if judge.byBody {
		return f.judgeLeaves(ch)
	}
	for _, l := range ch.Conflicts {
		f.revs = append(f.revs, l.Rev)
	}
	return nil
}

// judgeLeaves reads the leaves that lose: each of them passes or not by itself.
func (f *feed) judgeLeaves(ch *osier.Change) error {
	query := &osier.Query{Kind: osier.QueryRevs, Collection: f.q.coll, IDs: []osier.ID{ch.ID}, Parts: osier.WithBody}
	for _, l := range ch.Conflicts {
		query.Revs = append(query.Revs, l.Rev)
	}
	for row, err := range f.q.db.Query(f.q.ctx(), query) {
		if err != nil {
			return err
		}
		if row.Missing || row.Body == nil && !row.Deleted {
			continue // the document has changed since: another row will follow
		}
		keep, err := f.c.filter.keep(f.q, &row.Document)
		if err != nil {
			return err
		}
		if keep {
			f.revs = append(f.revs, row.Rev)
		}
	}
	return nil
}

// pushed sends what has been written when a feed has caught up.
func (f *feed) pushed() error {
	if f.c.kind != feedNormal && len(f.s.buf) > 0 && f.s.push() != nil {
		f.cancel(context.Canceled)
	}
	return nil
}

// row writes a change in the feed's form.
func (f *feed) row(ch *osier.Change) error {
	f.shown++
	f.rows = ch.Seq
	s := f.s
	switch f.c.kind {
	case feedNormal, feedLongpoll:
		if f.shown > 1 {
			s.buf = append(s.buf, ',')
		}
		s.buf = append(s.buf, '\n')
	case feedEvents:
		s.buf = append(s.buf, "data: "...)
	}
	if f.c.interval > 1 && f.shown%f.c.interval != 0 {
		s.buf = append(s.buf, `{"seq":null`...)
	} else {
		s.buf = appendSeq(append(s.buf, `{"seq":`...), ch.Seq, f.token)
	}
	s.buf = appendQuoted(append(s.buf, `,"id":`...), idText(ch.ID))
	s.buf = append(s.buf, `,"changes":[`...)
	for i, rev := range f.revs {
		if i > 0 {
			s.buf = append(s.buf, ',')
		}
		s.buf = append(appendQuoted(append(s.buf, `{"rev":`...), rev.String()), '}')
	}
	s.buf = append(s.buf, ']')
	if ch.Deleted {
		s.buf = append(s.buf, `,"deleted":true`...)
	}
	if f.c.docs {
		s.buf = append(s.buf, `,"doc":`...)
		if err := f.doc(&ch.Document); err != nil {
			return err
		}
	}
	s.buf = append(s.buf, '}')
	switch f.c.kind {
	case feedContinuous:
		s.buf = append(s.buf, '\n')
	case feedEvents:
		s.buf = append(appendSeq(append(s.buf, "\nid: "...), ch.Seq, f.token), "\n\n"...)
	}
	return nil
}

func (f *feed) doc(d *osier.Document) error {
	if f.c.filter.project != nil {
		var err error
		f.s.buf, err = f.c.filter.project(f.s.buf, f.q, d)
		return err
	}
	return f.s.document(f.q.ctx(), f.q.db, d, &f.c.show)
}

// end writes the feed's last line.
func (f *feed) end(ctx context.Context) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errIdle) && !errors.Is(context.Cause(ctx), server.ErrStopping) {
		return nil // nobody reads it
	}
	last := f.last
	limited := f.c.limit == 0 || f.c.limit > 0 && f.shown == f.c.limit
	switch {
	case f.c.descending && f.shown > 0:
		last = f.rows
	case limited:
	case f.c.kind == feedNormal:
		last = max(last, f.c.last)
	}
	s := f.s
	switch f.c.kind {
	case feedEvents:
		return s.end()
	case feedContinuous:
		s.buf = append(s.buf, `{"last_seq":`...)
	default:
		s.buf = append(s.buf, "\n],\n\"last_seq\":"...)
	}
	s.buf = appendSeq(s.buf, last, f.token)
	pending, err := f.pending(ctx, last, limited)
	if err != nil {
		return err
	}
	s.buf = strconv.AppendUint(append(s.buf, `,"pending":`...), pending, 10)
	s.buf = append(s.buf, "}\n"...)
	if f.c.kind == feedContinuous {
		s.buf = append(s.buf, '\n')
	}
	return s.end()
}

// pending is how many changes there are that have not been shown. As with
// CouchDB, filters by id count what they left out.
func (f *feed) pending(ctx context.Context, last osier.Seq, limited bool) (uint64, error) {
	counting := f.c.filter.counts
	if f.c.descending || counting && (f.c.since == 0 || !limited) {
		from := f.c.total
		if f.c.since != 0 && f.c.since != osier.SeqNow && !f.c.descending {
			n, err := f.q.door.counts.after(ctx, f.q, f.c, f.c.since)
			if err != nil {
				return 0, err
			}
			from = n
		}
		if f.c.since == osier.SeqNow || f.c.kind != feedNormal && !f.c.descending {
			return 0, nil
		}
		return from - min(from, uint64(f.shown)), nil
	}
	if !limited {
		return 0, nil
	}
	if f.c.since == 0 && f.c.filter.plain() {
		return f.c.total - min(f.c.total, uint64(f.shown)), nil
	}
	return f.q.door.counts.after(ctx, f.q, f.c, last)
}

// countCache remembers how many changes follow a sequence. Clients that read a
// feed page by page ask for that at every page; without it each page would cost
// a walk over all that follow.
type countCache struct {
	mu      sync.Mutex
	entries map[countKey]uint64
}

type countKey struct {
	token, coll string
	seq, last   osier.Seq // the counted ones' beginning; the collection's state
}

// maxCounts bounds the cache; it is emptied when full.
const maxCounts = 1024

// after counts the changes after seq.
func (cc *countCache) after(ctx context.Context, q *request, c *changesQuery, seq osier.Seq) (uint64, error) {
	if seq >= c.last {
		return 0, nil
	}
	if seq == 0 {
		return c.total, nil
	}
	key := countKey{token(c.info), q.coll, seq, c.last}
	cc.mu.Lock()
	n, ok := cc.entries[key]
	cc.mu.Unlock()
	if ok {
		return n, nil
	}
	// A page's end is where the page before has counted from, less its rows.
	before := countKey{key.token, key.coll, c.since, c.last}
	cc.mu.Lock()
	n, ok = cc.entries[before]
	cc.mu.Unlock()
	if ok && c.filter.plain() && c.limit > 0 {
		n -= min(n, uint64(c.limit))
	} else {
		n = 0
		for _, err := range q.db.Watch(ctx, &osier.Feed{Collection: q.coll, Since: seq}) {
			if err != nil {
				return 0, err
			}
			n++
		}
	}
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if cc.entries == nil || len(cc.entries) >= maxCounts {
		cc.entries = make(map[countKey]uint64)
	}
	cc.entries[key] = n
	return n, nil
}

// filter is what a change must pass.
type filter struct {
	ids    []osier.ID // only these; nil: all
	counts bool       // pending counts what is left out
	byBody bool       // keep judges each leaf by its body, not the document as a whole
	// keep looks at a document; nil keeps all.
	keep func(q *request, d *osier.Document) (bool, error)
	// project writes the document of a row, where not all of it is asked for.
	project func(b []byte, q *request, d *osier.Document) ([]byte, error)
}

func (f *filter) plain() bool { return f.ids == nil && f.keep == nil }

// filter reads the filter and its arguments.
func (q *request) filter() (filter, error) {
	name, given := q.params.get("filter")
	var body []byte
	if q.method == http.MethodPost {
		b, err := q.changesBody()
		if err != nil {
			return filter{}, err
		}
		body = b
	}
	switch {
	case !given || name == "":
		return filter{}, nil
	case name == "_doc_ids":
		return q.filterByIDs(body)
	case name == "_design":
		return filter{counts: true, keep: func(_ *request, d *osier.Document) (bool, error) {
			return isDesign(idText(d.ID)), nil
		}}, nil
	case name == "_selector":
		return q.filterBySelector(body)
	case name == "_view":
		view, ok := q.params.get("view")
		if !ok {
			return filter{}, badRequest("`view` filter parameter is not provided.")
		}
		return filter{}, q.noFunction(view, "views", "`view` must be of the form `designname/viewname`")
	case strings.HasPrefix(name, "_"):
		return filter{}, badRequest("unknown builtin filter name")
	}
	return filter{}, q.noFunction(name, "filters", "`filter` must be of the form `designname/filtername`")
}

// changesBody reads the body of a POST, which may be empty.
func (q *request) changesBody() ([]byte, error) {
	if err := q.wantJSON(); err != nil {
		return nil, err
	}
	b, err := q.body()
	if err != nil || len(b) == 0 {
		return []byte("{}"), err
	}
	if b, err = parseJSON(b, q.depth()); err == nil && b[0] != '{' {
		err = errBodyObject
	}
	return b, err
}

var errDocIDs = badRequest("`doc_ids` filter parameter is not a list of doc ids.")

func (q *request) filterByIDs(body []byte) (filter, error) {
	list := []byte(nil)
	if body != nil {
		m, err := members(body, "doc_ids")
		if err != nil {
			return filter{}, err
		}
		list = m["doc_ids"]
	} else if v, ok := q.params.get("doc_ids"); ok {
		b, err := parseJSON([]byte(v), 0)
		if err != nil {
			return filter{}, err
		}
		list = b
	}
	f := filter{ids: []osier.ID{}, counts: true}
	ok, err := elements(list, func(v []byte) error {
		text, ok := unquote(v)
		if !ok {
			return errDocIDs
		}
		if id, err := osier.IDOf(text); err == nil {
			f.ids = append(f.ids, id)
		}
		return nil
	})
	if !ok {
		err = errDocIDs
	}
	return f, err
}

// noFunction answers for the functions of design documents, which need a
// JavaScript runtime; mistakes in the name are told first.
func (q *request) noFunction(name, section, form string) error {
	design, function, ok := strings.Cut(name, "/")
	if !ok || design == "" || function == "" || strings.Contains(function, "/") {
		return badRequest(form)
	}
	d, err := q.winner(q.coll, designPrefix+design, osier.WithBody)
	if err != nil {
		return err
	}
	if d == nil || d.Deleted {
		return errMissing
	}
	body, err := parseJSON(d.Body, 0)
	if err != nil {
		return err
	}
	m, err := members(body, section)
	if err != nil {
		return err
	}
	if in := m[section]; in != nil {
		if m, err := members(in, function); err == nil && m[function] != nil {
			return notImplemented("This server runs no JavaScript: the functions of design documents are not available.")
		}
	}
	return notFound("missing json key: " + function)
}
