package engine

import (
	"errors"
	"sync"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// pins are the states that transactions hold while they run.
type pins struct {
	mu   sync.Mutex // guards all below
	last uint64
	held map[uint64]*pinned
}

type pinned struct {
	db    *database
	snap  *store.Snapshot
	used  time.Time
	users int  // queries reading from it
	ended bool // to be closed by the last user
}

// pinLife is how long a pin lives without use.
const pinLife = time.Minute

var errPin = errors.New("the pinned state was released, or not used for a minute")

// pin holds the present state of a database.
func (e *Engine) pin(db *database, yield func(osier.Row, error) bool) error {
	snap, err := e.store.NewSnapshot()
	if err != nil {
		return e.storeError("pin", err)
	}
	state, err := stateIn(snap, db.num)
	if err != nil {
		snap.Close()
		return e.storeError("pin", err)
	}
	id, ok := e.pins.add(&pinned{db: db, snap: snap, used: e.now()}, e.closing)
	if !ok {
		snap.Close()
		return &osier.Error{Kind: osier.KindClosed, Op: "pin", DB: db.name}
	}
	yield(osier.Row{Pin: id, Document: osier.Document{Seq: state.lastSeq}, DB: &osier.DBInfo{Drops: state.drops}}, nil)
	return nil
}

// add also drops pins that were forgotten, so that they are bounded by the
// work of a minute.
func (p *pins) add(n *pinned, closing <-chan struct{}) (id uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-closing:
		return 0, false
	default:
	}
	if p.held == nil {
		p.held = map[uint64]*pinned{}
	}
	for id, old := range p.held {
		if n.used.Sub(old.used) > pinLife {
			p.end(id, old)
		}
	}
	p.last++
	p.held[p.last] = n
	return p.last, true
}

// use gives out a pin's snapshot until release is called.
func (p *pins) use(id uint64, db *database, now time.Time) (snap *store.Snapshot, release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.held[id]
	if n == nil || n.db != db || now.Sub(n.used) > pinLife {
		return nil, nil, &osier.Error{Kind: osier.KindGap, Op: "query", DB: db.name, Err: errPin}
	}
	n.used = now
	n.users++
	return n.snap, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n.users--; n.users == 0 && n.ended {
			n.snap.Close()
		}
	}, nil
}

// release ends a pin; one that is not held is left alone.
func (p *pins) release(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.held[id]; n != nil {
		p.end(id, n)
	}
}

// end removes a pin; its last user closes the snapshot. The caller holds mu.
func (p *pins) end(id uint64, n *pinned) {
	delete(p.held, id)
	n.ended = true
	if n.users == 0 {
		n.snap.Close()
	}
}

func (p *pins) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, n := range p.held {
		p.end(id, n)
	}
}
