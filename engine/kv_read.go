package engine

import (
	"context"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/kv"
)

func isKVQuery(k osier.QueryKind) bool { return k >= osier.QueryKVGet && k <= osier.QueryKVNamespaces }

// queryKV answers a query of key-values: of one key from memory, else from one
// state of the store, which then has everything that was acknowledged.
func (e *Engine) queryKV(ctx context.Context, db *database, q *osier.Query, yield func(osier.Row, error) bool) error {
	if err := e.checkKVQuery(q); err != nil {
		return err
	}
	single := q.Pin == 0 && len(q.KV.Keys) == 1 && len(q.KV.Pending) == 0 &&
		(q.Kind == osier.QueryKVGet || q.Kind == osier.QueryKVRead && q.KV.Read == osier.KVReadHead)
	if single {
		return e.oneKV(ctx, q, yield)
	}
	if q.Pin == 0 {
		if err := e.settleKV(ctx, db); err != nil {
			return e.storeError("query", err)
		}
	}
	v := view{e: e, db: db, q: q, src: e.store}
	release, err := v.hold()
	if err != nil {
		return v.failed(err)
	}
	defer release()
	now := e.now().UnixMilli()
	s := kv.NewSpace(&kvBase{src: v.src, db: db.num}, now)
	pending := q.KV
	if len(q.KV.Pending) > 0 {
		own := *q.KV
		own.Pending = slices.Clone(own.Pending)
		for i := range own.Pending {
			sealTTL(&own.Pending[i], now)
		}
		pending = &own
	}
	var canceled error
	rows := 0
	err = s.Query(q.Kind, pending, q.Reverse, q.Skip, q.Limit, func(row *osier.KVRow) bool {
		if rows++; rows%256 == 0 && ctx.Err() != nil {
			canceled = &osier.Error{Kind: osier.KindCanceled, Op: "query", DB: q.DB, Err: ctx.Err()}
			return false
		}
		return yield(osier.Row{KV: row}, nil)
	})
	if canceled != nil {
		return canceled
	}
	if err != nil {
		return named(e.storeError("query", err), q.DB, q.KV.Namespace, "")
	}
	return nil
}

// oneKV answers about one key from memory.
func (e *Engine) oneKV(ctx context.Context, q *osier.Query, yield func(osier.Row, error) bool) error {
	h := kvHandle{e: e, db: q.DB, name: q.KV.Namespace}
	value, m, err := h.GetKV(ctx, nil, q.KV.Keys[0])
	if err != nil {
		return err
	}
	row := &osier.KVRow{Key: q.KV.Keys[0], Type: m.Type, Version: m.Version, Deadline: m.Deadline, Missing: m.Type == osier.KVNone}
	if q.Kind == osier.QueryKVGet && m.Found() {
		row.Item.Value = value
	}
	yield(osier.Row{KV: row}, nil)
	return nil
}

// namespaces lists a database's for QueryInfo.
func (v *view) namespaces() (out []osier.NamespaceInfo, err error) {
	base := &kvBase{src: v.src, db: v.db.num}
	_, any, err := base.Get([]byte{kv.SpaceKey, 0, 0, 0, 0})
	if err != nil || !any {
		return nil, err
	}
	s := kv.NewSpace(base, v.e.now().UnixMilli())
	err = s.Query(osier.QueryKVNamespaces, &osier.KVQuery{}, false, 0, 0, func(row *osier.KVRow) bool {
		out = append(out, osier.NamespaceInfo{Name: row.Key, Keys: uint64(row.Count)})
		return true
	})
	return out, err
}

// loadKV finds out, at open, which versions were given and when the first key
// goes. Versions begin far above those that are stored: a crash may have taken
// back operations, and no version is given twice.
func (e *Engine) loadKV(db *database) error {
	base := &kvBase{src: e.store, db: db.num}
	b, found, err := base.Get([]byte{kv.SpaceKey, 0, 0, 0, 0})
	if err != nil || !found {
		return err
	}
	s, err := kv.DecodeState(b)
	if err != nil {
		return &osier.Error{Kind: osier.KindCorrupt, Op: "read database", DB: db.name, Err: err}
	}
	db.kvVersion = s.Version + kvVersionGap
	if e.opts.ReadOnly {
		return nil
	}
	return base.Scan([]byte{kv.SpaceExpiry}, []byte{kv.SpaceExpiry + 1}, false, func(key, _ []byte) bool {
		if deadline, _, _, err := kv.ParseExpiry(key); err == nil {
			e.kvOf(db).deadlines.next.Store(deadline) // start sets the timer
		}
		return false
	})
}

// kvVersionGap is more than the operations that can be lost in a crash.
const kvVersionGap = 1 << 32

// closeKV ends operations in memory and writes them behind.
func (e *Engine) closeKV() error {
	if e.opts.ReadOnly {
		return nil
	}
	e.kvClosed.Store(true)
	for _, db := range *e.dbs.Load() {
		db.mu.Lock() // whoever made it before has finished, whoever comes sees that it is over
		m := db.kv.Load()
		db.mu.Unlock()
		if m != nil {
			m.deadlines.stop()
			m.lockAll()
			m.gone.Store(true)
			m.unlockAll()
		}
	}
	return e.submit(context.Background(), &request{fill: func(a *applier) error {
		for _, db := range *e.dbs.Load() {
			if m := db.kv.Load(); m != nil {
				if err := a.behind(m, false); err != nil {
					return err
				}
			}
		}
		return nil
	}}, 64)
}
