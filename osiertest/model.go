package osiertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/osierdb/osier"
)

// ModelOptions of NewModel. The zero value is useful.
type ModelOptions struct {
	Clock func() time.Time // nil: time.Now
}

// Model is an in-memory osier.Backend that is plain enough to be checked by
// reading: it is the judge of the clever ones. A command works on a copy of its
// database, which takes the place of the original if all went well; a query
// collects its whole answer before it shows the first row. Nothing survives the
// process, and every change is as durable as it will ever be at once.
//
// It is safe for concurrent use.
type Model struct {
	clock func() time.Time
	ids   *osier.IDSource

	mu      sync.Mutex // guards all below
	dbs     map[string]*database
	pins    map[uint64]*pin
	lastPin uint64
	latest  time.Time // no sealed time may be before it
	closed  bool

	micros      int64 // no position may be before it
	subscribers []*subscriber
	retained    map[string]osier.Message // by database and topic
}

// pin is a state that is held for its holder.
type pin struct {
	db   *database
	used time.Time
}

// pinLife is how long a pin lasts without use.
const pinLife = time.Minute

var _ osier.Backend = (*Model)(nil)

// NewModel returns an empty Model. o may be nil.
func NewModel(o *ModelOptions) *Model {
	m := &Model{clock: time.Now, ids: new(osier.IDSource), dbs: map[string]*database{}, pins: map[uint64]*pin{}, retained: map[string]osier.Message{}}
	if o != nil && o.Clock != nil {
		m.clock = o.Clock
	}
	return m
}

// Close ends the model; feeds that wait end too.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	m.endSubscribers("", osier.KindClosed)
	for _, db := range m.dbs {
		db.announce()
	}
	return nil
}

// Reopen closes the model and returns one that holds what a store finds on its
// disk when it is opened again: all but pins and staged bytes.
func (m *Model) Reopen() *Model {
	m.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	next := NewModel(&ModelOptions{Clock: m.clock})
	next.latest, next.micros = m.latest, m.micros
	for name, db := range m.dbs {
		db = db.clone()
		db.staged = map[osier.BlobID]osier.Attachment{}
		db.changed = make(chan struct{})
		next.dbs[name] = db
	}
	return next
}

// Exec carries out a command.
func (m *Model) Exec(ctx context.Context, c *osier.Command) (*osier.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, canceled("exec", c.DB, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, &osier.Error{Kind: osier.KindClosed, Op: "exec", DB: c.DB}
	}
	if err := m.seal(c); err != nil {
		return nil, err
	}
	if len(c.Ops) > 0 && c.Ops[0].Kind == osier.OpCreateDB {
		return m.createDB(c)
	}
	db := m.dbs[c.DB]
	if db == nil {
		return nil, &osier.Error{Kind: osier.KindNotFound, Op: "exec", DB: c.DB, Err: errors.New("no such database")}
	}
	key := attempt{c.Session, c.Number}
	if first, again := db.answers[key]; again && c.Session != "" {
		return first.result, first.err
	}
	if len(c.Ops) > 0 && c.Ops[0].Kind == osier.OpDropDB {
		return m.dropDB(c, db)
	}
	after, res, messages, err := apply(db, c)
	if err != nil {
		after = db.clone()
	}
	if c.Session != "" {
		after.answers[key] = answer{res, err}
	}
	m.dbs[c.DB] = after
	db.announce()
	m.send(c.DB, messages)
	return res, err
}

// seal fixes what must not depend on clock or chance later, and refuses what no
// state could make right.
func (m *Model) seal(c *osier.Command) error {
	now := m.clock().UTC().Truncate(time.Millisecond)
	if now.Before(m.latest) {
		now = m.latest
	}
	m.latest, c.Sealed.Time = now, now
	m.micros = max(m.micros+1, m.clock().UnixMicro(), 1)
	c.Sealed.Micros = m.micros
	for i := range c.Ops {
		op := &c.Ops[i]
		switch op.Kind {
		case osier.OpCreateDB, osier.OpDropDB:
			if len(c.Ops) > 1 {
				return &osier.Error{Kind: osier.KindInvalid, Op: "exec", DB: c.DB, Err: errors.New("creating or dropping a database must be the only operation")}
			}
			if op.Kind == osier.OpCreateDB {
				rand.Read(c.Sealed.UUID[:])
				return osier.CheckDBName(c.DB)
			}
		case osier.OpCollection, osier.OpDropCollection, osier.OpPut, osier.OpGraft:
			if err := osier.CheckCollectionName(op.Collection); err != nil {
				return err
			}
			if op.Kind == osier.OpPut && op.ID.IsZero() {
				op.ID = osier.MustID(m.ids.Next(now))
			}
		case osier.OpKV, osier.OpKVDrop, osier.OpKVExpire, osier.OpKVBehind:
			if err := sealKV(op, now); err != nil {
				return err
			}
		case osier.OpJournal, osier.OpDropJournal, osier.OpAppend, osier.OpTrim, osier.OpPublish:
			// Their names are judged as they are carried out.
		default:
			return &osier.Error{Kind: osier.KindUnsupported, Op: "exec", DB: c.DB, Err: fmt.Errorf("unknown operation %d", op.Kind)}
		}
	}
	return nil
}

func (m *Model) createDB(c *osier.Command) (*osier.Result, error) {
	if m.dbs[c.DB] != nil {
		return nil, &osier.Error{Kind: osier.KindExists, Op: "create database", DB: c.DB}
	}
	m.dbs[c.DB] = &database{
		name: c.DB, uuid: c.Sealed.UUID, created: c.Sealed.Time,
		collections: map[string]*collection{}, journals: map[string]*journal{}, answers: map[attempt]answer{},
		blobs: map[osier.BlobID][]byte{}, staged: map[osier.BlobID]osier.Attachment{},
		changed: make(chan struct{}),
	}
	return &osier.Result{Time: c.Sealed.Time, Ops: make([]osier.OpResult, 1)}, nil
}

func (m *Model) dropDB(c *osier.Command, db *database) (*osier.Result, error) {
	delete(m.dbs, c.DB)
	m.endSubscribers(c.DB, osier.KindNotFound)
	maps.DeleteFunc(m.retained, func(key string, _ osier.Message) bool { return strings.HasPrefix(key, c.DB+" ") })
	maps.DeleteFunc(m.pins, func(_ uint64, p *pin) bool { return p.db.name == c.DB })
	db.announce()
	return &osier.Result{First: db.seq, Last: db.seq, Time: c.Sealed.Time, Ops: make([]osier.OpResult, 1)}, nil
}

// database is one state of a database. Once it is in Model.dbs or in a pin it is
// not changed any more, but for staged bytes: they belong to no state.
type database struct {
	name         string
	uuid         osier.UUID
	created      time.Time
	seq          osier.Seq
	drops        uint64 // of collections
	collections  map[string]*collection
	journals     map[string]*journal
	transactions []osier.Transaction
	answers      map[attempt]answer
	blobs        map[osier.BlobID][]byte // shared by all states; nothing is ever taken out
	staged       map[osier.BlobID]osier.Attachment
	changed      chan struct{} // closed when this state is not the latest any more
	kv           kvState
}

// attempt identifies a command for retries.
type attempt struct {
	session string
	number  uint64
}

// answer is what a command got.
type answer struct {
	result *osier.Result
	err    error
}

type collection struct {
	settings osier.Settings
	docs     map[osier.ID]*document
	lastSeq  osier.Seq
	born     uint64 // tells it from one of its name that was dropped
}

// clone returns a copy that may be changed: all maps are new. Documents are
// shared, as a changed document is always a new one.
func (db *database) clone() *database {
	c := *db
	c.collections = make(map[string]*collection, len(db.collections))
	for name, col := range db.collections {
		copied := *col
		copied.docs = maps.Clone(col.docs)
		c.collections[name] = &copied
	}
	c.journals = maps.Clone(db.journals)
	c.transactions = slices.Clone(db.transactions)
	c.answers = maps.Clone(db.answers)
	c.kv = db.kv.clone()
	c.changed = make(chan struct{})
	return &c
}

// announce wakes the feeds that wait on this state.
func (db *database) announce() { close(db.changed) }

// doc returns a document, nil if there is none.
func (db *database) doc(col string, id osier.ID) *document {
	if c := db.collections[col]; c != nil {
		return c.docs[id]
	}
	return nil
}

// sorted returns a collection's documents in order of their ids.
func (db *database) sorted(col string) []*document {
	c := db.collections[col]
	if c == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(c.docs), func(a, b *document) int { return a.id.Compare(b.id) })
}

func canceled(step, db string, cause error) error {
	return &osier.Error{Kind: osier.KindCanceled, Op: step, DB: db, Err: cause}
}
