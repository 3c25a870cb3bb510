package couch

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/server"
)

// historyKept is how many earlier bodies a document of a database made here
// keeps: clients may read a revision that has just been superseded, as with a
// CouchDB that has not been compacted, without the disk filling up with them.
const historyKept = 10

// database answers requests to a database itself.
func (q *request) database() error {
	switch q.method {
	case http.MethodPut:
		return q.createDB()
	case http.MethodDelete:
		return q.dropDB()
	}
	if err := q.open(); err != nil {
		return err
	}
	if err := q.allow("DELETE,GET,HEAD,POST"); err != nil {
		return err
	}
	if q.method == http.MethodPost {
		return q.postDoc()
	}
	info, err := q.describe(q.ctx())
	if err != nil {
		return err
	}
	q.send(http.StatusOK, info)
	return nil
}

// createDB answers PUT of a database.
func (q *request) createDB() error {
	name := q.path[0]
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	switch v, given := q.params.get("partitioned"); {
	case !given || v == "false":
	case v == "true":
		return notImplemented("Partitioned databases are not available.")
	default:
		return badRequest("Invalid `partitioned` parameter")
	}
	s := newDBSettings()
	for _, p := range []struct {
		name string
		into *int
	}{{"q", &s.Q}, {"n", &s.N}} {
		if v, ok := q.params.get(p.name); ok {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 {
				return badRequest("The `" + p.name + "` value should be a positive integer.")
			}
			if n > maxShards {
				return badRequest("The `" + p.name + "` value should be at most " + strconv.Itoa(maxShards) + ".")
			}
			*p.into = n
		}
	}
	if err := checkDBName(name); err != nil {
		return err
	}
	db, err := q.s.Store.CreateDB(q.ctx(), name)
	if err != nil {
		return err
	}
	if err := prepareDB(q.ctx(), db, s); err != nil {
		return err
	}
	q.dbName = name
	q.w.Header().Set("Location", q.location())
	return q.ok(http.StatusCreated)
}

// What clients may ask for and is reported, without an effect: shards are
// CouchDB's way to spread a database over a cluster.
const (
	defaultShards = 2
	maxShards     = 1024
)

func prepareDB(ctx context.Context, db *osier.DB, s *dbSettings) error {
	_, err := db.Exec(ctx, &osier.Command{Ops: []osier.Op{
		{Kind: osier.OpCollection, Collection: osier.DefaultCollection, Settings: &osier.Settings{Codec: osier.TagJSON, History: historyKept, RevLimit: ancestors(defaultRevsLimit)}},
		// Local documents have no history, and no conflicts that would need one.
		{Kind: osier.OpCollection, Collection: localCollection, Settings: &osier.Settings{Codec: osier.TagJSON, RevLimit: 1}},
	}})
	if err != nil || s.plain() {
		return err
	}
	return s.save(ctx, db)
}

// checkDBName applies CouchDB's rules, in its words.
func checkDBName(name string) error {
	if err := osier.CheckDBName(name); err != nil && len(name) > osier.MaxNameBytes {
		return &failure{status: http.StatusBadRequest, code: "database_name_too_long",
			reason: "At least one path segment of `" + name + "` is too long."}
	} else if err != nil || name[0] == '_' && !systemDatabase(name) {
		return illegalName(name)
	}
	return nil
}

func illegalName(name string) *failure {
	return &failure{status: http.StatusBadRequest, code: "illegal_database_name", reason: "Name: '" + name +
		"'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."}
}

func (q *request) dropDB() error {
	if _, given := q.params.get("rev"); given {
		return badRequest("You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?")
	}
	name, coll, given := strings.Cut(q.path[0], ":")
	if name == server.SystemDB {
		return errNoDB
	}
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	if !given {
		return q.dropped(q.s.Store.DropDB(q.ctx(), name))
	}
	if err := q.open(); err != nil {
		return err
	}
	if coll == osier.DefaultCollection {
		return badRequest("The default collection goes with its database.")
	}
	return q.dropped(q.db.DropCollection(q.ctx(), coll))
}

func (q *request) dropped(err error) error {
	if errors.Is(err, osier.ErrNotFound) || errors.Is(err, osier.ErrInvalid) {
		return errNoDB // no name that a database can have is not there either
	}
	if err != nil {
		return err
	}
	return q.ok(http.StatusOK)
}

// dbInfo describes the request's database without its sizes, once a request.
func (q *request) dbInfo() (*osier.DBInfo, error) {
	if q.info != nil {
		return q.info, nil
	}
	for row, err := range q.db.Query(q.ctx(), &osier.Query{Kind: osier.QueryInfo, Collection: q.coll}) {
		if err != nil {
			return nil, err
		}
		q.info = row.DB
	}
	if q.info == nil {
		return nil, errNoDB
	}
	return q.info, nil
}

// collInfo describes the request's collection; one that was never written to is
// empty.
func (q *request) collInfo() (osier.CollectionInfo, error) {
	info, err := q.dbInfo()
	if err != nil || len(info.Collections) == 0 {
		return osier.CollectionInfo{Name: q.coll, Settings: osier.Settings{Codec: osier.TagJSON}}, err
	}
	return info.Collections[0], nil
}

// diskFormat is the disk_format_version that CouchDB 3.5 reports.
const diskFormat = 8

// describe writes the database's information.
func (q *request) describe(ctx context.Context) ([]byte, error) {
	info, err := q.db.Info(ctx)
	if err != nil {
		return nil, err
	}
	var coll osier.CollectionInfo
	for _, c := range info.Collections {
		if c.Name == q.coll {
			coll = c
		}
	}
	s, err := loadDBSettings(ctx, q.db)
	if err != nil {
		return nil, err
	}
	b := strconv.AppendInt([]byte(`{"instance_start_time":"`), info.Created.Unix(), 10)
	b = appendQuoted(append(b, `","db_name":`...), q.dbName)
	b = appendSeq(append(b, `,"purge_seq":`...), osier.Seq(s.PurgeSeq), token(info))
	b = appendSeq(append(b, `,"update_seq":`...), coll.LastSeq, token(info))
	b = strconv.AppendUint(append(b, `,"sizes":{"file":`...), coll.DiskBytes, 10)
	b = strconv.AppendUint(append(b, `,"external":`...), coll.BodyBytes, 10)
	b = strconv.AppendUint(append(b, `,"active":`...), coll.DiskBytes, 10)
	b = strconv.AppendUint(append(b, `},"props":{},"doc_del_count":`...), coll.Deleted, 10)
	b = strconv.AppendUint(append(b, `,"doc_count":`...), coll.Count, 10)
	b = strconv.AppendInt(append(b, `,"disk_format_version":`...), diskFormat, 10)
	b = strconv.AppendBool(append(b, `,"compact_running":`...), q.door.compacting(info.Name))
	b = strconv.AppendInt(append(b, `,"cluster":{"q":`...), int64(s.Q), 10)
	b = strconv.AppendInt(append(b, `,"n":`...), int64(s.N), 10)
	w := strconv.Itoa(s.N/2 + 1)
	return append(b, `,"w":`+w+`,"r":`+w+`}}`...), nil
}

// security answers _security.
func (q *request) security() error {
	if q.method != http.MethodPut {
		q.send(http.StatusOK, append([]byte(nil), q.access.Security.JSON...))
		return nil
	}
	if !q.access.Admin {
		return &failure{status: http.StatusUnauthorized, code: "unauthorized", reason: "You are not a db or server admin."}
	}
	b, err := q.jsonBody()
	if err != nil {
		return err
	}
	if len(b) == 0 || b[0] != '{' {
		return errBodyObject
	}
	sec, err := server.ParseSecurity(b)
	if err != nil {
		return err
	}
	if err := q.s.SetSecurity(q.ctx(), q.db.Name(), sec); err != nil {
		return err
	}
	return q.ok(http.StatusOK)
}

// defaultRevsLimit is how many revisions a branch has at most, if not told
// otherwise.
const defaultRevsLimit = osier.DefaultRevLimit

// ancestors is a limit of CouchDB's in the store's terms, where the revision
// itself does not count; there is at least one.
func ancestors(limit uint64) uint32 { return uint32(max(limit, 2) - 1) }

// revsLimit answers _revs_limit.
func (q *request) revsLimit() error {
	info, err := q.collInfo()
	if err != nil {
		return err
	}
	set := info.Settings
	if q.method != http.MethodPut {
		n := uint64(set.RevLimit) + 1
		if set.RevLimit == 0 {
			n = defaultRevsLimit
		}
		q.send(http.StatusOK, strconv.AppendUint(nil, n, 10))
		return nil
	}
	if err := q.needDBAdmin(); err != nil {
		return err
	}
	b, err := q.jsonBody()
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(string(b), 10, 31)
	if err != nil || n == 0 {
		return badRequest("`_revs_limit` must be a positive integer")
	}
	set.RevLimit = ancestors(n)
	_, err = q.db.Exec(q.ctx(), &osier.Command{Ops: []osier.Op{{Kind: osier.OpCollection, Collection: q.coll, Settings: &set}}})
	if err != nil {
		return err
	}
	return q.ok(http.StatusOK)
}

// fullCommit answers _ensure_full_commit: what was answered is on disk already.
func (q *request) fullCommit() error {
	if err := q.wantJSON(); err != nil {
		return err
	}
	info, err := q.dbInfo()
	if err != nil {
		return err
	}
	b := strconv.AppendInt([]byte(`{"ok":true,"instance_start_time":"`), info.Created.Unix(), 10)
	q.send(http.StatusCreated, append(b, `"}`...))
	return nil
}

// viewCleanup answers _view_cleanup: what views leave behind goes by itself.
func (q *request) viewCleanup() error {
	if err := q.needDBAdmin(); err != nil {
		return err
	}
	return q.ok(http.StatusAccepted)
}

// shards answers _shards: there is one, on this node.
func (q *request) shards() error {
	const all = "00000000-ffffffff"
	if len(q.path) > 2 {
		q.send(http.StatusOK, []byte(`{"range":"`+all+`","nodes":["`+nodeName+`"]}`))
		return nil
	}
	q.send(http.StatusOK, []byte(`{"shards":{"`+all+`":["`+nodeName+`"]}}`))
	return nil
}

func (q *request) syncShards() error {
	if err := q.needDBAdmin(); err != nil {
		return err
	}
	return q.ok(http.StatusAccepted)
}

func (q *request) partition() error {
	return notImplemented("Partitioned databases are not available.")
}

func (q *request) tempView() error {
	return &failure{status: http.StatusGone, code: "gone", reason: "Temporary views are not supported in CouchDB"}
}
