package peers

import (
	"path/filepath"

	"go.etcd.io/bbolt"
)

type bolt struct{ db *bbolt.DB }

var bucket = []byte("rows")

// OpenBolt opens bbolt with the map freelist, which is not synced, as its
// heavy users do.
func OpenBolt(dir string, level Level) (Store, error) {
	db, err := bbolt.Open(filepath.Join(dir, "bolt.db"), 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, NoSync: level == Buffered,
	})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	return &bolt{db}, err
}

func (s *bolt) Insert(rows []Row) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for i := range rows {
			if err := b.Put(key(nil, rows[i].ID), bare(nil, &rows[i])); err != nil {
				return err
			}
		}
		return nil
	})
}

// Put shares a transaction with the other callers.
func (s *bolt) Put(row Row) error {
	return s.db.Batch(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).Put(key(nil, row.ID), bare(nil, &row))
	})
}

func (s *bolt) Get(ids []int64) (n int, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		var k [8]byte
		for _, id := range ids {
			v := b.Get(key(k[:0], id))
			if v == nil {
				return errMissing
			}
			n += lettersOf(v)
		}
		return nil
	})
	return n, err
}

func (s *bolt) Scan(id int64, limit int) (rows, n int, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		for k, v := c.Seek(key(nil, id)); k != nil && rows < limit; k, v = c.Next() {
			n += lettersOf(v)
			rows++
		}
		return nil
	})
	return rows, n, err
}

func (s *bolt) Settle() error { return nil }
func (s *bolt) Close() error  { return s.db.Close() }
