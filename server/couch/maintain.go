package couch

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/osierdb/osier"
)

// maintenance is which databases are being compacted.
type maintenance struct {
	mu      sync.Mutex // guards running
	running map[string]int
}

func (d *Door) compacting(db string) bool {
	d.maintenance.mu.Lock()
	defer d.maintenance.mu.Unlock()
	return d.maintenance.running[db] > 0
}

// compact answers _compact.
func (q *request) compact() error {
	if err := q.wantJSON(); err != nil {
		return err
	}
	if err := q.needDBAdmin(); err != nil {
		return err
	}
	if len(q.path) > 2 {
		d, err := q.winner(q.coll, designPrefix+q.path[2], 0)
		if err != nil {
			return err
		}
		if d == nil || d.Deleted {
			return errMissing
		}
	}
	return q.ok(http.StatusAccepted)
}

// purge answers _purge.
func (q *request) purge() error {
	if err := q.wantJSON(); err != nil {
		return err
	}
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	return notImplemented("soon")
}

// purgedInfos answers _purged_infos.
func (q *request) purgedInfos() error {
	s, err := loadDBSettings(q.ctx(), q.db)
	if err != nil {
		return err
	}
	b, err := s.purgedText()
	if err != nil {
		return err
	}
	q.send(http.StatusOK, b)
	return nil
}

// purgedInfosLimit answers _purged_infos_limit.
func (q *request) purgedInfosLimit() error {
	if q.method != http.MethodPut {
		s, err := loadDBSettings(q.ctx(), q.db)
		if err != nil {
			return err
		}
		q.send(http.StatusOK, strconv.AppendInt(nil, int64(s.PurgedInfosLimit), 10))
		return nil
	}
	if err := q.needDBAdmin(); err != nil {
		return err
	}
	b, err := q.jsonBody()
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 1 {
		return badRequest("`purged_infos_limit` must be positive integer")
	}
	if err := changeDBSettings(q.ctx(), q.db, func(s *dbSettings) { s.PurgedInfosLimit = n }); err != nil {
		return err
	}
	return q.ok(http.StatusOK)
}

var _ osier.Op
