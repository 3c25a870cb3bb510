package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// MaxBodyBytes is the largest body of a document. Larger content belongs into
// an attachment, which streams.
const MaxBodyBytes = 64 << 20

// Exec carries out a command; see osier.Backend.
func (e *Engine) Exec(ctx context.Context, c *osier.Command) (*osier.Result, error) {
	if e.opts.ReadOnly {
		return nil, &osier.Error{Kind: osier.KindReadOnly, Op: "change", DB: c.DB, Err: errors.New("the store was opened read-only")}
	}
	if err := checkCommand(c); err != nil {
		return nil, err
	}
	if err := e.checkKVCommand(c); err != nil {
		return nil, err
	}
	if res, done, err := e.execFast(ctx, c); done || err != nil {
		return res, err
	}
	if publishesOnly(c) {
		return e.publishOnly(ctx, c)
	}
	if err := e.sealViews(c); err != nil {
		return nil, err
	}
	r := &request{cmd: c, level: e.commandLevel(c)}
	size := r.prepare(&e.terms)
	err := e.submit(ctx, r, size)
	for attempt := 0; err != nil && e.resealed(c, err, attempt); attempt++ {
		again := &request{cmd: c, prepared: r.prepared, scratch: r.scratch, level: r.level}
		r, err = again, e.submit(ctx, again, size)
	}
	r.release(&e.terms)
	if err == nil && r.journals && r.level != store.Sync {
		err = e.coverHorizon(ctx, c.Sealed.Micros)
	}
	if err != nil {
		return nil, err
	}
	if len(c.Ops) == 1 && c.Ops[0].Kind == osier.OpDropView {
		return r.res, e.dropCode(c.DB, viewName{c.Ops[0].Collection, c.Ops[0].View})
	}
	return r.res, nil
}

func (e *Engine) level(d osier.Durability) store.Durability {
	if d == osier.DurabilityDefault {
		d = e.opts.Durability
	}
	switch d {
	case osier.Buffered:
		return store.Buffered
	case osier.Relaxed:
		return store.Relaxed
	}
	return store.Sync
}

// checkCommand refuses what no state of the database could make right.
func checkCommand(c *osier.Command) error {
	for i := range c.Ops {
		switch c.Ops[i].Kind {
		case osier.OpCreateDB, osier.OpDropDB:
			if len(c.Ops) > 1 {
				return &osier.Error{Kind: osier.KindInvalid, Op: "change", DB: c.DB,
					Err: errors.New("creating or dropping a database must be the only operation")}
			}
			return osier.CheckDBName(c.DB)
		case osier.OpAppend:
			if op := c.Ops[i].Journal; op != nil && len(op.Encoded) > 0 && c.Sealed.Time.IsZero() {
				return &osier.Error{Kind: osier.KindInvalid, Op: "append", DB: c.DB, Collection: c.Ops[i].Collection,
					Err: errors.New("only a command that comes sealed has events with positions")}
			}
		case osier.OpEnforceView, osier.OpDropView:
			if len(c.Ops) > 1 {
				return &osier.Error{Kind: osier.KindInvalid, Op: "change", DB: c.DB,
					Err: errors.New("what is done to a view must be the only operation")}
			}
		case osier.OpCollection:
			if c.Ops[i].Settings == nil {
				return &osier.Error{Kind: osier.KindInvalid, Op: "configure collection", DB: c.DB, Collection: c.Ops[i].Collection,
					Err: errors.New("no settings given")}
			}
		}
	}
	return nil
}

// checkOp refuses what is wrong with an operation by itself.
func checkOp(db string, op *osier.Op) error {
	fail := func(kind osier.Kind, text string) error {
		return &osier.Error{Kind: kind, Op: "change", DB: db, Collection: op.Collection, ID: op.ID.String(), Err: errors.New(text)}
	}
	if err := osier.CheckCollectionName(op.Collection); err != nil {
		return err
	}
	if op.Kind != osier.OpPut && op.Kind != osier.OpGraft {
		return nil
	}
	if op.ID.IsZero() {
		return fail(osier.KindInvalid, "no document id given")
	}
	if len(op.Body) > MaxBodyBytes {
		return fail(osier.KindTooLarge, fmt.Sprintf("a body of %d bytes, at most %d are allowed; put large content into an attachment", len(op.Body), MaxBodyBytes))
	}
	for i := range op.Attachments {
		for k := range i {
			if op.Attachments[k].Name == op.Attachments[i].Name {
				return fail(osier.KindInvalid, "attachment "+op.Attachments[i].Name+" is named twice")
			}
		}
	}
	if op.Kind == osier.OpPut {
		return checkDefinition(op, fail)
	}
	if len(op.Path) == 0 {
		return fail(osier.KindInvalid, "a foreign revision needs its path")
	}
	for i, rev := range op.Path {
		if rev.IsZero() || i > 0 && rev.Generation()+1 != op.Path[i-1].Generation() {
			return fail(osier.KindInvalid, "the generations of a path go down by one, from the newest")
		}
	}
	return nil
}

// validBody checks what a grafted revision holds; put finds out by itself.
func validBody(v *version, p *prepared) bool {
	return v.codec != osier.TagJSON || !v.hasBody || p.term != nil || json.Valid(v.body)
}

// seal decides all that depends on clock and chance. A command that comes
// sealed, from a log, is left alone. The caller holds queue.order.
func (e *Engine) seal(c *osier.Command) {
	if !c.Sealed.Time.IsZero() {
		e.lastSeal = later(e.lastSeal, c.Sealed.Time)
		return
	}
	now := e.now().UTC().Truncate(time.Millisecond)
	if now.Before(e.lastSeal) {
		now = e.lastSeal
	}
	e.lastSeal = now
	c.Sealed.Time = now
	for i := range c.Ops {
		op := &c.Ops[i]
		switch {
		case op.Kind == osier.OpCreateDB:
			rand.Read(c.Sealed.UUID[:])
		case op.Kind == osier.OpKV && op.KV != nil:
			sealTTL(op.KV, now.UnixMilli())
		case op.Kind == osier.OpPut && op.ID.IsZero():
			op.ID = osier.MustID(e.ids.Next(now))
		}
	}
}
