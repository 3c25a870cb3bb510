package couch

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/osierdb/osier"
)

// maintenance is which databases are being compacted.
type maintenance struct {
	mu      sync.Mutex // guards running
	running map[string]int
}

func (m *maintenance) add(db string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		m.running = map[string]int{}
	}
	if m.running[db] += n; m.running[db] == 0 {
		delete(m.running, db)
	}
}

// compacting tells whether the bodies of a database's earlier versions are
// being dropped.
func (d *Door) compacting(db string) bool {
	d.maintenance.mu.Lock()
	defer d.maintenance.mu.Unlock()
	return d.maintenance.running[db] > 0
}

// compact answers _compact: the bodies of earlier versions are dropped, before
// the answer. For a view there is nothing to be done.
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
		return q.ok(http.StatusAccepted)
	}
	if err := q.dropBodies(q.ctx()); err != nil {
		return err
	}
	return q.ok(http.StatusAccepted)
}

// pruneBatch is how many documents one command prunes.
const pruneBatch = 500

func (q *request) dropBodies(ctx context.Context) error {
	info, err := q.collInfo()
	if err != nil {
		return err
	}
	name := q.db.Name()
	q.door.maintenance.add(name, 1)
	defer q.door.maintenance.add(name, -1)
	task := q.door.host.Tasks().Start("database_compaction", name)
	defer task.End()
	var ops []osier.Op
	done, total := int64(0), int64(info.Count+info.Deleted)
	prune := func() error {
		if len(ops) == 0 {
			return nil
		}
		done += int64(len(ops))
		_, err := q.db.Exec(ctx, &osier.Command{Ops: ops, PerDocument: true})
		task.Progress(done, total)
		ops = nil // the command's now
		return err
	}
	for row, err := range q.db.Query(ctx, &osier.Query{Kind: osier.QueryScan, Collection: q.coll, Deleted: true, Parts: osier.WithConflicts}) {
		if err != nil {
			return err
		}
		later := func(l osier.Leaf) bool { return l.Rev.Generation() > 1 }
		if row.Rev.Generation() == 1 && !slices.ContainsFunc(row.Conflicts, later) {
			continue // nothing came before
		}
		ops = append(ops, osier.Op{Kind: osier.OpPrune, Collection: q.coll, ID: row.ID})
		if len(ops) == pruneBatch {
			if err := prune(); err != nil {
				return err
			}
		}
	}
	return prune()
}

// purge answers _purge. Each round purges one revision of each document.
func (q *request) purge() error {
	if err := q.needServerAdmin(); err != nil {
		return err
	}
	asked, err := q.revsAsked()
	if err != nil {
		return err
	}
	purged := make([][]osier.Rev, len(asked))
	for round := 0; ; round++ {
		var ops []osier.Op
		var places []int
		for i := range asked {
			if round >= len(asked[i].revs) {
				continue
			}
			id, err := docID(asked[i].id)
			if err != nil {
				return err
			}
			ops = append(ops, osier.Op{Kind: osier.OpPurge, Collection: q.coll, ID: id, Rev: asked[i].revs[round]})
			places = append(places, i)
		}
		if len(ops) == 0 {
			break
		}
		for len(ops) > 0 {
			n := min(len(ops), bulkOps)
			res, err := q.db.Exec(q.ctx(), &osier.Command{Ops: slices.Clip(ops[:n]), PerDocument: true})
			if err != nil {
				return err
			}
			for k := range res.Ops {
				if res.Ops[k].Err == nil {
					purged[places[k]] = append(purged[places[k]], res.Ops[k].Rev)
				}
			}
			ops, places = ops[n:], places[n:]
		}
	}
	if err := q.rememberPurge(asked, purged); err != nil {
		return err
	}
	for i := range asked {
		if len(purged[i]) > 0 {
			q.followWrites(asked[i].id)
		}
	}
	b := []byte(`{"purge_seq":null,"purged":{`)
	for i := range asked {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, asked[i].id), ':')
		b = appendRevs(b, purged[i])
	}
	q.send(http.StatusCreated, append(b, "}}"...))
	return nil
}

// rememberPurge keeps what was purged for _purged_infos.
func (q *request) rememberPurge(asked []revsAsked, purged [][]osier.Rev) error {
	var infos []purgedInfo
	for i := range asked {
		if len(purged[i]) == 0 {
			continue
		}
		info := purgedInfo{ID: asked[i].id}
		for _, rev := range purged[i] {
			info.Revs = append(info.Revs, rev.String())
		}
		infos = append(infos, info)
	}
	if len(infos) == 0 {
		return nil
	}
	return changeDBSettings(q.ctx(), q.db, func(s *dbSettings) {
		s.PurgeSeq += uint64(len(infos))
		s.PurgedInfos = append(s.PurgedInfos, infos...)
		if over := len(s.PurgedInfos) - s.PurgedInfosLimit; over > 0 {
			s.PurgedInfos = s.PurgedInfos[over:]
		}
	})
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
