package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/osierdb/osier"
)

// importsCollection keeps a checkpoint a source, committed together with the
// documents it speaks of.
const importsCollection = "_imports"

// position is how far an import has read its source.
type position struct {
	Offset  int64 `json:"offset"`
	Lines   int   `json:"lines"`   // line feeds before Offset
	Skipped int   `json:"skipped"` // bad lines before Offset
}

// tally counts what became of a source's documents.
type tally struct {
	Documents int `json:"documents"` // new ones
	Replaced  int `json:"replaced"`
	Unchanged int `json:"unchanged"` // there already, with the same content
	Kept      int `json:"kept"`      // there with other content, left alone
}

func (t *tally) add(u tally) {
	t.Documents += u.Documents
	t.Replaced += u.Replaced
	t.Unchanged += u.Unchanged
	t.Kept += u.Kept
}

func (t tally) total() int { return t.Documents + t.Replaced + t.Unchanged + t.Kept }

// idRule says where a source's ids came from.
type idRule struct {
	Member string `json:"member"` // "_id" is taken out of the body, others stay
	Type   string `json:"type"`
	CSV    bool   `json:"csv,omitempty"` // a cell's text is the id, whatever it looks like
}

// idMember is the member that is taken out of bodies and put back.
const idMember = "_id"

// origins sum up, over all imports of a collection from a source, where its
// ids came from; export goes by it.
type origins struct {
	Made  bool     `json:"made,omitempty"`  // by the store
	Taken bool     `json:"taken,omitempty"` // from _id
	Rules []idRule `json:"rules,omitempty"` // from members that stayed
}

func (o *origins) add(p origins) {
	o.Made = o.Made || p.Made
	o.Taken = o.Taken || p.Taken
	for _, r := range p.Rules {
		if !slices.Contains(o.Rules, r) {
			o.Rules = append(o.Rules, r)
		}
	}
}

// checkpoint is the document of importsCollection for one source.
type checkpoint struct {
	Source   string    `json:"source"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Layout   layout    `json:"layout"`
	ID       idRule    `json:"id"`
	position
	tally
	Digest  string  `json:"digest"` // SHA-256 of the source's first Offset bytes
	Done    bool    `json:"done"`
	Origins origins `json:"origins"`
	// Touched is a sequence that the import gave to the collection: one without
	// a change that late has been dropped and made anew since.
	Touched osier.Seq `json:"touched"`
}

// checkpointID names the checkpoint of a source and collection.
func checkpointID(collection, source string) (osier.ID, error) {
	return osier.IDOf(osier.Tuple{collection, source})
}

// loadCheckpoint returns the checkpoint of a source, nil if there is none.
func loadCheckpoint(ctx context.Context, db *osier.DB, collection, source string) (*checkpoint, error) {
	id, err := checkpointID(collection, source)
	if err != nil {
		return nil, err
	}
	row, err := one(ctx, db, &osier.Query{Kind: osier.QueryGet, Collection: importsCollection, IDs: []osier.ID{id}, Parts: osier.WithBody})
	if err != nil || row.Missing {
		return nil, err
	}
	var cp checkpoint
	if err := json.Unmarshal(row.Body, &cp); err != nil {
		return nil, fmt.Errorf("read checkpoint of %s: %w; --restart ignores it", source, err)
	}
	return &cp, nil
}

// loadOrigins sums up the origins of a collection's ids; known is false if
// nothing was imported into it.
func loadOrigins(ctx context.Context, db *osier.DB, collection string) (sum origins, known bool, err error) {
	err = eachCheckpoint(ctx, db, collection, func(_ osier.ID, body []byte) error {
		var cp checkpoint
		if err := json.Unmarshal(body, &cp); err != nil {
			return fmt.Errorf("read import checkpoint: %w", err)
		}
		sum.add(cp.Origins)
		known = true
		return nil
	})
	return sum, known, err
}

// eachCheckpoint visits the checkpoints of a collection.
func eachCheckpoint(ctx context.Context, db *osier.DB, collection string, fn func(osier.ID, []byte) error) error {
	start, end, err := osier.PrefixRange(osier.Tuple{collection})
	if err != nil {
		return err
	}
	q := &osier.Query{Kind: osier.QueryScan, Collection: importsCollection, Start: start, End: end, Parts: osier.WithBody}
	for row, err := range db.Query(ctx, q) {
		if err != nil {
			return err
		}
		if err := fn(row.ID, row.Body); err != nil {
			return err
		}
	}
	return nil
}

// forgetImports deletes the checkpoints of a collection that is dropped.
func forgetImports(ctx context.Context, db *osier.DB, collection string) error {
	var c osier.Command
	err := eachCheckpoint(ctx, db, collection, func(id osier.ID, _ []byte) error {
		c.Ops = append(c.Ops, osier.Op{Kind: osier.OpPut, Collection: importsCollection, ID: id, Deleted: true, Codec: osier.TagJSON, Expect: osier.ExpectAny})
		return nil
	})
	if err != nil || len(c.Ops) == 0 {
		return err
	}
	_, err = db.Exec(ctx, &c)
	return err
}

// stale reports whether the collection that cp speaks of, present if there is
// one of its name, is not the one that was imported into.
func (cp *checkpoint) stale(present *osier.CollectionInfo) bool {
	if present == nil {
		return cp.total() > 0
	}
	return present.LastSeq < cp.Touched
}

// op is the write of the checkpoint.
func (cp *checkpoint) op(collection string) (osier.Op, error) {
	id, err := checkpointID(collection, cp.Source)
	if err != nil {
		return osier.Op{}, err
	}
	body, err := json.Marshal(cp)
	if err != nil {
		return osier.Op{}, err
	}
	return osier.Op{Kind: osier.OpPut, Collection: importsCollection, ID: id, Codec: osier.TagJSON, Body: body, Expect: osier.ExpectAny}, nil
}
