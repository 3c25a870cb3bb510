package couch

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/osierdb/osier/server"
)

// nodeName is how CouchDB's clients know the one node there is.
const nodeName = "nonode@nohost"

// welcome answers the root.
func (q *request) welcome() error {
	i := q.door.host.Instance()
	b := appendQuoted([]byte(`{"couchdb":"Welcome","version":"`+couchVersion+`","git_sha":"osier","uuid":`), i.UUID)
	b = append(b, `,"features":[],"vendor":{"name":"Osier","version":`...)
	q.send(http.StatusOK, append(appendQuoted(b, i.Version), "}}"...))
	return nil
}

func (q *request) up() error {
	q.send(http.StatusOK, []byte(`{"status":"ok","seeds":{}}`))
	return nil
}

// names lists the databases that a range of names asks for. It takes the
// parameters of a listing.
func (q *request) names() ([]string, error) {
	l, err := newListing(q.params)
	if err != nil {
		return nil, err
	}
	all, err := q.s.Databases(q.ctx())
	if err != nil {
		return nil, err
	}
	out := all[:0:0]
	for _, name := range all {
		if name != server.SystemDB && l.takes(name) {
			out = append(out, name)
		}
	}
	if l.descending {
		slices.Reverse(out)
	}
	out = out[min(l.skip, len(out)):]
	if l.limit >= 0 {
		out = out[:min(l.limit, len(out))]
	}
	return out, nil
}

// takes reports whether a name lies in the range.
func (l *listing) takes(name string) bool {
	if l.never {
		return false
	}
	from, to := l.start, l.end
	if l.descending {
		if to != nil && l.exclusiveEnd && name == *to {
			return false
		}
		from, to = to, from
	} else if to != nil && l.exclusiveEnd && name == *to {
		return false
	}
	return (from == nil || name >= *from) && (to == nil || name <= *to)
}

// allDatabases answers _all_dbs.
func (q *request) allDatabases() error {
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	names, err := q.names()
	if err != nil {
		return err
	}
	b := []byte{'['}
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, name)
	}
	b = append(b, ']')
	if q.notModified(contentTag(b)) {
		return nil
	}
	q.send(http.StatusOK, b)
	return nil
}

// maxInfos is how many databases _dbs_info describes for a list of names.
const maxInfos = 100

// databasesInfo answers _dbs_info.
func (q *request) databasesInfo() error {
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	var names []string
	if q.method == http.MethodPost {
		m, err := q.object("keys")
		if err != nil {
			return err
		}
		keys, given := m["keys"]
		if !given {
			return badRequest("`keys` member must exist.")
		}
		ok, err := elements(keys, func(v []byte) error {
			name, ok := unquote(v)
			if !ok {
				return badRequest("`keys` must be strings.")
			}
			names = append(names, name)
			return nil
		})
		if !ok {
			return badRequest("`keys` member must be an array.")
		}
		if err != nil {
			return err
		}
		if len(names) > maxInfos {
			return badRequest("too_many_keys")
		}
	} else {
		var err error
		if names, err = q.names(); err != nil {
			return err
		}
		// It tells more than the list, and changes with each write.
		q.w.Header().Set("Etag", `"`+q.door.uuids.next()+`"`)
	}
	s := q.stream(http.StatusOK, "application/json")
	s.buf = append(s.buf, '[')
	for i, name := range names {
		if i > 0 {
			s.buf = append(s.buf, ',')
		}
		s.buf = appendQuoted(append(s.buf, `{"key":`...), name)
		one := &request{door: q.door, r: q.r, s: q.s, path: []string{name}}
		if err := one.open(); err != nil {
			s.buf = append(s.buf, `,"error":"not_found"}`...)
			continue
		}
		info, err := one.describe(q.ctx())
		if err != nil {
			return err
		}
		s.buf = append(append(append(s.buf, `,"info":`...), info...), '}')
		if s.room() != nil {
			return nil // the client has gone
		}
	}
	s.buf = append(s.buf, "]\n"...)
	return s.end()
}

// activeTasks answers _active_tasks.
func (q *request) activeTasks() error {
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	b := []byte{'['}
	for i, t := range q.door.host.Tasks().List() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(append(b, `{"node":"`+nodeName+`","pid":`...), "<"+t.ID+">")
		b = appendQuoted(append(b, `,"type":`...), t.Kind)
		b = appendQuoted(append(b, `,"database":`...), t.DB)
		b = strconv.AppendInt(append(b, `,"changes_done":`...), t.Done, 10)
		b = strconv.AppendInt(append(b, `,"total_changes":`...), t.Total, 10)
		if t.Total > 0 {
			b = strconv.AppendInt(append(b, `,"progress":`...), 100*t.Done/t.Total, 10)
		}
		b = strconv.AppendInt(append(b, `,"started_on":`...), t.Started.Unix(), 10)
		b = strconv.AppendInt(append(b, `,"updated_on":`...), t.Updated.Unix(), 10)
		b = append(b, '}')
	}
	q.send(http.StatusOK, append(b, ']'))
	return nil
}

func (q *request) membership() error {
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	q.send(http.StatusOK, []byte(`{"all_nodes":["`+nodeName+`"],"cluster_nodes":["`+nodeName+`"]}`))
	return nil
}

// clusterSetup answers _cluster_setup: there is nothing to be set up.
func (q *request) clusterSetup() error {
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	if q.method != http.MethodPost {
		q.send(http.StatusOK, []byte(`{"state":"single_node_enabled"}`))
		return nil
	}
	m, err := q.object("action")
	if err != nil {
		return err
	}
	switch action, _ := unquote(m["action"]); action {
	case "enable_single_node", "finish_cluster":
		return q.ok(http.StatusCreated)
	}
	return badRequest("This server is a single node, which is set up already.")
}

// utils answers what CouchDB's own web interface would: there is none here.
func (q *request) utils() error { return notFound("This server has no web interface under _utils.") }

func (q *request) replicateLater() error {
	if err := q.wantJSON(); err != nil {
		return err
	}
	return errNoReplicator
}

var errNoReplicator = notImplemented("This server does not replicate by itself: let the other side pull and push, or use PouchDB or a CouchDB as the replicator.")

// scheduler answers for replications: there are none.
func (q *request) scheduler() error {
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	switch strings.Join(q.path[1:], "/") {
	case "jobs":
		q.send(http.StatusOK, []byte(`{"total_rows":0,"offset":0,"jobs":[]}`))
		return nil
	case "docs", "docs/_replicator":
		q.send(http.StatusOK, []byte(`{"total_rows":0,"offset":0,"docs":[]}`))
		return nil
	}
	return errMissing
}

func (q *request) databaseUpdates() error {
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	return notImplemented("Updates of databases as a whole are not available.")
}

func (q *request) reshard() error {
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	return errMissing
}

// node answers _node/NAME and what is below it.
func (q *request) node() error {
	if len(q.path) > 2 && (q.path[2] == "_stats" || q.path[2] == "_system" || q.path[2] == "_prometheus") && !q.s.Admin() {
		return &failure{status: http.StatusUnauthorized, code: "unauthorized", reason: "You are not a server admin or read-only metrics user"}
	}
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	if len(q.path) < 2 {
		return errMissing
	}
	if name := q.path[1]; name != "_local" && name != nodeName {
		return notFound("no such node: " + name)
	}
	if len(q.path) == 2 {
		if err := q.allow("GET,HEAD"); err != nil {
			return err
		}
		q.send(http.StatusOK, []byte(`{"name":"`+nodeName+`"}`))
		return nil
	}
	switch q.path[2] {
	case "_config":
		return q.configPath(q.path[3:])
	case "_versions":
		q.send(http.StatusOK, []byte(`{"javascript_engine":{"name":"none"},"collation_driver":{"name":"osier"}}`))
		return nil
	case "_stats", "_system", "_prometheus":
		return notImplemented("The server's figures are at its metrics address.")
	}
	return illegalName(q.path[2])
}
