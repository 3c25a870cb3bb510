package osiertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/osierdb/osier"
)

// queryKV answers a query of key-values from one state.
func (db *database) queryKV(q *osier.Query, clock time.Time) ([]osier.Row, error) {
	wrong := func(err error) error {
		e := &osier.Error{Kind: osier.KindInvalid, Op: "query", DB: db.name, Collection: "kv:" + q.KV.Namespace, Err: err}
		var f *failure
		if errors.As(err, &f) {
			e.Kind = f.kind
		}
		return e
	}
	if q.Kind != osier.QueryKVNamespaces {
		if err := osier.CheckKVName(q.KV.Namespace); err != nil {
			return nil, err
		}
	}
	for _, key := range q.KV.Keys {
		if key == "" {
			return nil, wrong(fail(osier.KindInvalid, "empty key"))
		}
	}
	s, now := db.kv.clone(), clock.UnixMilli()
	r := &kvReader{s: &s, q: q, now: now}
	var base uint64
	var res osier.KVResult
	for i := range q.KV.Pending {
		op := &q.KV.Pending[i]
		if v := s.live(op.Namespace, op.Key, now); i == 0 && v != nil {
			base = v.version
		}
		res = osier.KVResult{}
		if err := s.do(op, now, 1<<62+uint64(i), &res); err != nil {
			return nil, wrong(err)
		}
	}
	if q.Kind == osier.QueryKVTry {
		return []osier.Row{{KV: &osier.KVRow{Result: &res, Base: base}}}, nil
	}
	if err := r.answer(); err != nil {
		return nil, wrong(err)
	}
	rows := r.rows
	rows = rows[min(q.Skip, len(rows)):]
	if q.Limit > 0 {
		rows = rows[:min(q.Limit, len(rows))]
	}
	return rows, nil
}

// kvReader collects an answer.
type kvReader struct {
	s    *kvState
	q    *osier.Query
	now  int64
	rows []osier.Row
}

func (r *kvReader) row(row osier.KVRow) { r.rows = append(r.rows, osier.Row{KV: &row}) }

func (r *kvReader) live(key string) *value { return r.s.live(r.q.KV.Namespace, key, r.now) }

// keys lists a namespace's live keys in order.
func (r *kvReader) keys(namespace string) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(r.s.spaces[namespace])) {
		if r.s.live(namespace, key, r.now) != nil {
			out = append(out, key)
		}
	}
	return out
}

func kvHead(key string, v *value) osier.KVRow {
	if v == nil {
		return osier.KVRow{Key: key, Missing: true}
	}
	row := osier.KVRow{Key: key, Type: v.typ, Version: v.version, Deadline: v.deadline, Count: int64(v.size()), Item: osier.KVItem{Value: v.plain}}
	if v.typ == osier.KVLeases {
		row.Count = int64(v.token)
	}
	return row
}

func (r *kvReader) answer() error {
	k := r.q.KV
	switch r.q.Kind {
	case osier.QueryKVGet:
		for _, key := range k.Keys {
			row := kvHead(key, r.live(key))
			if row.Count = 0; row.Type != osier.KVPlain {
				row.Item.Value = nil
			}
			r.row(row)
		}
	case osier.QueryKVScan:
		keys := r.keys(k.Namespace)
		if r.q.Reverse {
			slices.Reverse(keys)
		}
		for _, key := range keys {
			if key >= k.Start && (k.End == "" || key < k.End) {
				row := kvHead(key, r.live(key))
				if k.NoValues {
					row.Item.Value = nil
				}
				r.row(row)
			}
		}
	case osier.QueryKVCount:
		r.row(osier.KVRow{Count: int64(len(r.keys(k.Namespace))), Version: r.s.newest[k.Namespace]})
	case osier.QueryKVNamespaces:
		for _, name := range slices.Sorted(maps.Keys(r.s.spaces)) {
			r.row(osier.KVRow{Key: name, Count: int64(len(r.keys(name)))})
		}
	case osier.QueryKVRead:
		return r.read()
	default:
		return fail(osier.KindUnsupported, "unknown query")
	}
	return nil
}

func (r *kvReader) read() error {
	k := r.q.KV
	if len(k.Keys) == 0 {
		return fail(osier.KindInvalid, "no key given")
	}
	vs := make([]*value, len(k.Keys))
	for i, key := range k.Keys {
		if vs[i] = r.live(key); vs[i] == nil {
			vs[i] = &value{}
		}
		if err := kvReadable(k.Read, vs[i].typ); err != nil {
			return err
		}
	}
	v := vs[0]
	item := func(it osier.KVItem, missing bool) {
		r.row(osier.KVRow{Key: k.Keys[0], Type: v.typ, Version: v.version, Deadline: v.deadline, Item: it, Missing: missing})
	}
	switch k.Read {
	case osier.KVReadHead:
		for _, key := range k.Keys {
			row := kvHead(key, r.live(key))
			row.Item.Value, row.Count = nil, 0
			r.row(row)
		}
	case osier.KVReadLen:
		r.row(kvHead(k.Keys[0], r.live(k.Keys[0])))
	case osier.KVReadRange:
		if v.typ == osier.KVLists {
			lo, hi := positions(k.Range.From, k.Range.To, len(v.list))
			out := slices.Clone(v.list[lo:hi])
			if k.Range.Reverse {
				slices.Reverse(out)
			}
			for _, b := range out {
				item(osier.KVItem{Value: b}, false)
			}
			return nil
		}
		for _, it := range v.ranged(&k.Range) {
			item(it, false)
		}
	case osier.KVReadFields:
		names := k.Names
		if names == nil {
			names = slices.Sorted(maps.Keys(v.hash))
		}
		for _, name := range names {
			b, there := v.hash[name]
			item(osier.KVItem{Name: name, Value: b}, !there)
		}
	case osier.KVReadScore:
		for _, name := range k.Names {
			score, there := v.sorted[name]
			item(osier.KVItem{Name: name, Score: score}, !there)
		}
	default:
		return r.readSets(vs, item)
	}
	return nil
}

func kvReadable(k osier.KVReadKind, typ osier.KVType) error {
	want := []osier.KVType{typ}
	switch k {
	case osier.KVReadFields:
		want = []osier.KVType{osier.KVHashes}
	case osier.KVReadMembers, osier.KVReadHas, osier.KVReadIntersect, osier.KVReadUnion, osier.KVReadDiff:
		want = []osier.KVType{osier.KVSets}
	case osier.KVReadRange:
		want = []osier.KVType{osier.KVLists, osier.KVSorteds}
	case osier.KVReadScore, osier.KVReadRank, osier.KVReadCount:
		want = []osier.KVType{osier.KVSorteds}
	}
	if typ != osier.KVNone && !slices.Contains(want, typ) {
		return fail(osier.KindInvalid, "the key holds %v", typ)
	}
	return nil
}

func (r *kvReader) readSets(vs []*value, item func(osier.KVItem, bool)) error {
	k, v := r.q.KV, vs[0]
	switch k.Read {
	case osier.KVReadMembers:
		for _, name := range slices.Sorted(maps.Keys(v.set)) {
			item(osier.KVItem{Name: name}, false)
		}
	case osier.KVReadHas:
		for _, name := range k.Names {
			item(osier.KVItem{Name: name}, !v.set[name])
		}
	case osier.KVReadIntersect, osier.KVReadUnion, osier.KVReadDiff:
		all := map[string]int{}
		for i, v := range vs {
			for name := range v.set {
				if i == 0 {
					all[name] += len(vs) // in the first
				}
				all[name]++
			}
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			n := all[name]
			if k.Read == osier.KVReadUnion || k.Read == osier.KVReadIntersect && n == 2*len(vs) || k.Read == osier.KVReadDiff && n == len(vs)+1 {
				item(osier.KVItem{Name: name}, false)
			}
		}
	case osier.KVReadRank:
		row := osier.KVRow{Key: k.Keys[0], Type: v.typ, Version: v.version, Missing: true}
		all := v.ranking()
		if k.Range.Reverse {
			slices.Reverse(all)
		}
		for i, it := range all {
			if it.Name == k.Names[0] {
				row.Missing, row.Item, row.Count = false, it, int64(i)
			}
		}
		r.row(row)
	case osier.KVReadCount:
		c := k.Range
		c.ByScore, c.Skip, c.Limit = true, 0, 0
		r.row(osier.KVRow{Key: k.Keys[0], Type: v.typ, Version: v.version, Count: int64(len(v.ranged(&c)))})
	default:
		return fail(osier.KindUnsupported, "unknown read %d", k.Read)
	}
	return nil
}

// watchKV shows what happens to keys from now on. It looks at the clock now and
// then for what expires.
func (m *Model) watchKV(ctx context.Context, f *osier.Feed, yield func(osier.Change, error) bool) error {
	wrong := func(kind osier.Kind, text string) error {
		return &osier.Error{Kind: kind, Op: "watch", DB: f.DB, Collection: "kv:" + f.KV.Namespace, Err: errors.New(text)}
	}
	if f.Mode == osier.FeedOnce || f.Descending || len(f.IDs) > 0 {
		return wrong(osier.KindInvalid, "a feed of key-values begins now and waits")
	}
	at, shown := -1, 0
	var uuid osier.UUID
	for {
		log, next, err := m.kvLog(f.DB, &uuid)
		if err != nil {
			return err
		}
		if at < 0 {
			at = len(log)
			if f.Marks && !yield(osier.Change{Mark: true}, nil) {
				return nil
			}
		}
		if len(log)-at > osier.KVFeedRows {
			return wrong(osier.KindGap, "the feed was not read fast enough")
		}
		for ; at < len(log); at++ {
			ev := log[at]
			if ev.namespace != f.KV.Namespace || f.KV.Key != "" && ev.change.Key != f.KV.Key || !strings.HasPrefix(ev.change.Key, f.KV.Prefix) {
				continue
			}
			if !yield(osier.Change{KV: &ev.change}, nil) {
				return nil
			}
			if shown++; shown == f.Limit {
				return nil
			}
		}
		if shown > 0 && f.Mode == osier.FeedWait {
			return nil
		}
		look := time.NewTimer(20 * time.Millisecond)
		select {
		case <-ctx.Done():
			look.Stop()
			return canceled("watch", f.DB, ctx.Err())
		case <-next:
		case <-look.C:
		}
		look.Stop()
	}
}

// kvLog removes what is past its deadline and returns what has happened.
func (m *Model) kvLog(name string, uuid *osier.UUID) ([]kvEvent, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	db, err := m.open("watch", name)
	if err != nil {
		return nil, nil, err
	}
	if *uuid == (osier.UUID{}) {
		*uuid = db.uuid
	}
	if *uuid != db.uuid {
		return nil, nil, &osier.Error{Kind: osier.KindNotFound, Op: "watch", DB: name, Err: errors.New("the database has been dropped")}
	}
	after := db.clone()
	if after.kv.expire(m.clock().UnixMilli()); len(after.kv.log) > len(db.kv.log) {
		m.dbs[name] = after
		db.announce()
		db = after
	}
	return db.kv.log, db.changed, nil
}

// namespaces lists the namespaces by name.
func (db *database) namespaces(clock time.Time) (out []osier.NamespaceInfo) {
	r := &kvReader{s: &db.kv, now: clock.UnixMilli()}
	for _, name := range slices.Sorted(maps.Keys(db.kv.spaces)) {
		out = append(out, osier.NamespaceInfo{Name: name, Keys: uint64(len(r.keys(name)))})
	}
	return out
}
