package peers

import (
	"github.com/dgraph-io/badger/v4"
)

type badgerStore struct{ db *badger.DB }

// OpenBadger opens Badger with its defaults and the common block cache.
func OpenBadger(dir string, level Level) (Store, error) {
	o := badger.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(level == Synced).WithBlockCacheSize(CacheBytes)
	db, err := badger.Open(o)
	if err != nil {
		return nil, err
	}
	return &badgerStore{db}, nil
}

func (s *badgerStore) Insert(rows []Row) error {
	return s.db.Update(func(tx *badger.Txn) error {
		for i := range rows {
			if err := tx.Set(key(nil, rows[i].ID), bare(nil, &rows[i])); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *badgerStore) Put(row Row) error { return s.Insert([]Row{row}) }

func (s *badgerStore) Get(ids []int64) (n int, err error) {
	err = s.db.View(func(tx *badger.Txn) error {
		var k [8]byte
		for _, id := range ids {
			item, err := tx.Get(key(k[:0], id))
			if err != nil {
				return err
			}
			if err := item.Value(func(v []byte) error { n += lettersOf(v); return nil }); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

func (s *badgerStore) Scan(id int64, limit int) (rows, n int, err error) {
	err = s.db.View(func(tx *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchSize = min(limit, o.PrefetchSize)
		it := tx.NewIterator(o)
		defer it.Close()
		for it.Seek(key(nil, id)); it.Valid() && rows < limit; it.Next() {
			if err := it.Item().Value(func(v []byte) error { n += lettersOf(v); return nil }); err != nil {
				return err
			}
			rows++
		}
		return nil
	})
	return rows, n, err
}

func (s *badgerStore) Settle() error { return s.db.Flatten(2) }
func (s *badgerStore) Close() error  { return s.db.Close() }
