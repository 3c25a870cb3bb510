package couch

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/server"
)

// Door serves CouchDB's interface. Make it with New and mount it on a
// server.Server.
type Door struct {
	host        server.Host
	server      []string // the Server header
	uuids       uuidSource
	counts      countCache
	maintenance maintenance
	designs     designs
	systemOnce  sync.Once // makes CouchDB's other system databases
	turns       turns
}

// New returns the door, for server.Options or Server.Mount.
func New() *Door { return &Door{} }

// Name returns "couch".
func (d *Door) Name() string { return "couch" }

// Mount takes every path that no other door has.
func (d *Door) Mount(h server.Host) error {
	d.host, d.turns = h, newTurns()
	d.server = []string{d.serverHeader()}
	d.declare(h.Settings())
	h.Exempt(func(r *http.Request) bool {
		return r.URL.Path == "/_session" && r.Method == http.MethodPost
	})
	h.Rest(d)
	return nil
}

// endpoint answers the requests to a path.
type endpoint struct {
	allow  string // methods, in CouchDB's order
	handle func(*request) error
}

// serverEndpoints are the paths outside of databases, by their first segment.
var serverEndpoints = map[string]endpoint{
	"_all_dbs":       {"GET,HEAD", (*request).allDatabases},
	"_dbs_info":      {"GET,HEAD,POST", (*request).databasesInfo},
	"_uuids":         {"GET", (*request).makeUUIDs},
	"_up":            {"GET,HEAD", (*request).up},
	"_session":       {"GET,HEAD,POST,DELETE", (*request).session},
	"_active_tasks":  {"GET,HEAD", (*request).activeTasks},
	"_membership":    {"GET", (*request).membership},
	"_cluster_setup": {"GET,POST", (*request).clusterSetup},
	"_node":          {"", (*request).node},
	"_utils":         {"GET,HEAD", (*request).utils},
	"favicon.ico":    {"GET,HEAD", (*request).utils},
	"_replicate":     {"POST", (*request).replicateLater},
	"_scheduler":     {"GET,HEAD", (*request).scheduler},
	"_db_updates":    {"GET,HEAD,POST", (*request).databaseUpdates},
	"_reshard":       {"", (*request).reshard},
}

// databaseEndpoints are the paths of a database, by their second segment.
var databaseEndpoints = map[string]endpoint{
	"_all_docs":           {"GET,HEAD,POST", (*request).allDocs},
	"_design_docs":        {"GET,HEAD,POST", (*request).designDocs},
	"_local_docs":         {"GET,HEAD,POST", (*request).localDocs},
	"_bulk_docs":          {"POST", (*request).bulkDocs},
	"_bulk_get":           {"POST", (*request).bulkGet},
	"_revs_diff":          {"POST", (*request).revsDiff},
	"_missing_revs":       {"POST", (*request).missingRevs},
	"_changes":            {"GET,POST,HEAD", (*request).changes},
	"_security":           {"PUT,GET", (*request).security},
	"_revs_limit":         {"PUT,GET", (*request).revsLimit},
	"_compact":            {"POST", (*request).compact},
	"_view_cleanup":       {"POST", (*request).viewCleanup},
	"_ensure_full_commit": {"POST", (*request).fullCommit},
	"_purge":              {"POST", (*request).purge},
	"_purged_infos":       {"GET", (*request).purgedInfos},
	"_purged_infos_limit": {"PUT,GET", (*request).purgedInfosLimit},
	"_shards":             {"GET", (*request).shards},
	"_sync_shards":        {"POST", (*request).syncShards},
	"_find":               {"POST", (*request).find},
	"_explain":            {"POST", (*request).explainFind},
	"_index":              {"", (*request).index},
	"_partition":          {"GET,POST", (*request).partition},
	"_temp_view":          {"POST", (*request).tempView},
}

// route finds who answers.
func (q *request) route() error {
	if len(q.path) == 0 {
		if err := q.allow("GET,HEAD"); err != nil {
			return err
		}
		return q.welcome()
	}
	if q.s.Admin() {
		q.door.systemOnce.Do(q.makeSystemDatabases)
	}
	if e, ok := serverEndpoints[q.path[0]]; ok {
		return q.serve(e)
	}
	if q.path[0][0] == '_' && q.s.Name == "" && !systemDatabase(q.path[0]) {
		return errServerAdmin
	}
	if len(q.path) == 1 {
		return q.database()
	}
	if q.path[0] == server.UsersDB && adminsOnly[q.path[1]] && !q.s.Admin() {
		return errServerAdmin
	}
	if err := q.open(); err != nil {
		return err
	}
	if e, ok := databaseEndpoints[q.path[1]]; ok {
		return q.serve(e)
	}
	return q.documentPath()
}

func (q *request) serve(e endpoint) error {
	if e.allow != "" {
		if err := q.allow(e.allow); err != nil {
			return err
		}
	}
	return e.handle(q)
}

// adminsOnly are the paths of the users' database that show other users.
var adminsOnly = map[string]bool{
	"_all_docs": true, "_changes": true, "_design_docs": true, "_local_docs": true, "_bulk_get": true, "_find": true, "_explain": true,
	"_revs_diff": true, "_missing_revs": true, "_purge": true, "_index": true,
}

// Databases that clients expect besides that of the users.
const (
	replicatorDB    = "_replicator"
	globalChangesDB = "_global_changes"
)

// systemDatabase tells the names with an underscore that a database may have.
func systemDatabase(name string) bool {
	return name == server.UsersDB || name == replicatorDB || name == globalChangesDB
}

// makeSystemDatabases makes the databases that a CouchDB has from the start.
func (q *request) makeSystemDatabases() {
	for _, name := range []string{replicatorDB, globalChangesDB} {
		db, err := q.s.Store.CreateDB(q.ctx(), name)
		if err == nil {
			err = prepareDB(q.ctx(), db, newDBSettings())
		}
		if err != nil && !errors.Is(err, osier.ErrExists) {
			q.door.host.Log().Error("a system database cannot be made", "db", name, "error", err)
		}
	}
}

// documentPath answers paths below a database that are no endpoint of it:
// documents and their attachments.
func (q *request) documentPath() error {
	rest := q.path[1:]
	switch {
	case rest[0] == "_local":
		return q.localPath(rest[1:])
	case isLocal(rest[0]):
		return q.localPath(append([]string{rest[0][len(localPrefix):]}, rest[1:]...))
	case rest[0] == "_design" && len(rest) > 1:
		return q.designPath(rest[1], rest[2:])
	case isDesign(rest[0]):
		if q.method == http.MethodGet || q.method == http.MethodHead {
			return q.redirectDesign(rest)
		}
		return q.designPath(rest[0][len(designPrefix):], rest[1:])
	}
	if len(rest) == 1 {
		return q.document(rest[0])
	}
	return q.attachment(rest[0], strings.Join(rest[1:], "/"))
}

// redirectDesign sends readers of an escaped slash to the path with a plain one.
func (q *request) redirectDesign(rest []string) error {
	to := q.location("_design", rest[0][len(designPrefix):])
	for _, p := range rest[1:] {
		to += "/" + escape(p)
	}
	if q.r.URL.RawQuery != "" {
		to += "?" + q.r.URL.RawQuery
	}
	q.w.Header().Set("Location", to)
	q.send(http.StatusMovedPermanently, []byte(`{"ok":true}`))
	return nil
}

// designPath answers paths of a design document.
func (q *request) designPath(name string, rest []string) error {
	id := designPrefix + name
	if len(rest) == 0 {
		return q.document(id)
	}
	switch rest[0] {
	case "_view", "_show", "_list", "_update", "_rewrite", "_info":
		return q.designFunction(id, rest)
	}
	return q.attachment(id, strings.Join(rest, "/"))
}

// designFunction answers the functions of design documents: they need a
// JavaScript runtime, which this version has not.
func (q *request) designFunction(id string, rest []string) error {
	doc, err := q.winner(q.coll, id, 0)
	if err != nil {
		return err
	}
	if doc == nil || doc.Deleted {
		return errMissing
	}
	return notImplemented("This server runs no JavaScript: " + rest[0] + " of design documents is not available.")
}

// open gives the request its database.
func (q *request) open() error {
	name, coll, given := strings.Cut(q.path[0], ":")
	if !given {
		coll = osier.DefaultCollection
	}
	q.dbName, q.coll = q.path[0], coll
	if name == server.SystemDB || given && osier.CheckCollectionName(coll) != nil {
		return errNoDB
	}
	access, err := q.s.Open(q.r.Context(), name)
	switch osier.KindOf(err) {
	case osier.KindNotFound, osier.KindInvalid:
		if err != nil {
			return errNoDB
		}
	case osier.KindDenied:
		return q.denied("You are not allowed to access this db.", "You are not authorized to access this db.")
	}
	if err != nil {
		return err
	}
	if !access.Member && !access.Admin {
		return q.denied("You are not allowed to access this db.", "You are not authorized to access this db.")
	}
	q.access, q.db = access, access.DB
	return nil
}

// denied is 403 for those who are known, 401 for those who may still log in.
func (q *request) denied(known, anonymous string) error {
	if q.s.Name != "" {
		return &failure{status: http.StatusForbidden, code: "forbidden", reason: known}
	}
	return &failure{status: http.StatusUnauthorized, code: "unauthorized", reason: anonymous}
}

// needDBAdmin refuses all but the database's administrators.
func (q *request) needDBAdmin() error {
	if q.access.Admin {
		return nil
	}
	return &failure{status: http.StatusUnauthorized, code: "unauthorized", reason: "You are not a server or db admin."}
}

// needServerAdmin refuses all but server administrators.
func (q *request) needServerAdmin() error {
	if q.s.Admin() {
		return nil
	}
	return errServerAdmin
}

// needDesignRight refuses design documents of all but the database's
// administrators.
func (q *request) needDesignRight(id string) error {
	if q.access.Admin || !isDesign(id) {
		return nil
	}
	return q.denied("You are not a db or server admin.", "You are not a db or server admin.")
}

// ctx is the request's context.
func (q *request) ctx() context.Context { return q.r.Context() }

// buffers are reused between requests, but for large ones.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxKeptBuffer bounds the buffers that are kept.
const maxKeptBuffer = 256 << 10

// borrow returns an empty buffer; giveBack takes it again.
func borrow() *[]byte {
	b := buffers.Get().(*[]byte)
	*b = (*b)[:0]
	return b
}

func giveBack(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		buffers.Put(b)
	}
}
