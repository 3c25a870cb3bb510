package peers

import (
	"context"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

var bg = context.Background()

// Osier is a document store driven through its typed API.
type Osier struct {
	Engine *engine.Engine
	DB     *osier.DB
	Rows   *osier.Collection[Row]
}

// OpenOsier opens a database whose documents are encoded with codec.
func OpenOsier(dir string, level Level, codec osier.Codec) (*Osier, error) {
	o := &engine.Options{Durability: osier.Sync, CacheBytes: CacheBytes}
	if level == Buffered {
		o.Durability = osier.Buffered
	}
	return OpenOsierWith(dir, o, codec)
}

// OpenOsierWith is OpenOsier with the engine's options at hand.
func OpenOsierWith(dir string, o *engine.Options, codec osier.Codec) (*Osier, error) {
	e, err := engine.Open(dir, o)
	if err != nil {
		return nil, err
	}
	s := &Osier{Engine: e, Rows: osier.NewCollection("rows", osier.CollectionOptions[Row]{
		ID: func(r Row) any { return r.ID }, Codec: codec,
	})}
	if s.DB, err = e.DB(bg, "bench", osier.Schema(s.Rows)); err != nil {
		e.Close()
		return nil, err
	}
	return s, nil
}

// Insert commits rows as one batch.
func (s *Osier) Insert(rows []Row) error {
	if len(rows) == 1 {
		return s.Put(rows[0])
	}
	var b osier.Batch
	for i := range rows {
		if _, err := s.Rows.Insert(bg, &b, rows[i]); err != nil {
			return err
		}
	}
	_, err := s.DB.Commit(bg, &b)
	return err
}

func (s *Osier) Put(row Row) error {
	_, err := s.Rows.Insert(bg, s.DB, row)
	return err
}

func (s *Osier) Get(ids []int64) (n int, err error) {
	if len(ids) == 1 {
		doc, err := s.Rows.Get(bg, s.DB, ids[0])
		return len(doc.Value.Message), err
	}
	keys := make([]any, len(ids))
	for i, id := range ids {
		keys[i] = id
	}
	docs, err := s.Rows.GetMany(bg, s.DB, keys...)
	if err != nil {
		return 0, err
	}
	for _, d := range docs {
		if d == nil {
			return n, errMissing
		}
		n += len(d.Value.Message)
	}
	return n, nil
}

func (s *Osier) Scan(id int64, limit int) (rows, n int, err error) {
	for doc, err := range s.Rows.List(bg, s.DB, &osier.ListOptions{From: id, Limit: limit}) {
		if err != nil {
			return rows, n, err
		}
		n += len(doc.Value.Message)
		rows++
	}
	return rows, n, nil
}

func (s *Osier) Settle() error { return s.Engine.Compact(bg) }
func (s *Osier) Close() error  { return s.Engine.Close() }

// Overwrite writes new bodies over rows that are there, as one batch.
func (s *Osier) Overwrite(rows []Row) error {
	var b osier.Batch
	for i := range rows {
		if _, err := s.Rows.Overwrite(bg, &b, rows[i].ID, rows[i]); err != nil {
			return err
		}
	}
	_, err := s.DB.Commit(bg, &b)
	return err
}
