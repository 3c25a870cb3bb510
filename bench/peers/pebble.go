package peers

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// rawPebble is the engine under Osier, by itself: a key and a bare row.
type rawPebble struct {
	db   *pebble.DB
	sync *pebble.WriteOptions
}

// OpenPebble opens Pebble with the settings of a tuned server: a memtable of
// 64 MiB, filters of 10 bits, blocks of 16 KiB.
func OpenPebble(dir string, level Level) (Store, error) {
	cache := pebble.NewCache(CacheBytes)
	defer cache.Unref()
	o := &pebble.Options{
		Cache: cache, MemTableSize: 64 << 20, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 4, LBaseMaxBytes: 64 << 20, Logger: quiet{},
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize = 16 << 10
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, err
	}
	s := &rawPebble{db: db, sync: pebble.Sync}
	if level == Buffered {
		s.sync = pebble.NoSync
	}
	return s, nil
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(f string, a ...any) { pebble.DefaultLogger.Errorf(f, a...) }
func (quiet) Fatalf(f string, a ...any) { pebble.DefaultLogger.Fatalf(f, a...) }

func (s *rawPebble) Insert(rows []Row) error {
	b := s.db.NewBatch()
	var k, v []byte
	for i := range rows {
		k, v = key(k[:0], rows[i].ID), bare(v[:0], &rows[i])
		if err := b.Set(k, v, nil); err != nil {
			return err
		}
	}
	return b.Commit(s.sync)
}

func (s *rawPebble) Put(row Row) error {
	return s.db.Set(key(nil, row.ID), bare(nil, &row), s.sync)
}

func (s *rawPebble) Get(ids []int64) (n int, err error) {
	var k [8]byte
	for _, id := range ids {
		v, closer, err := s.db.Get(key(k[:0], id))
		if err != nil {
			return n, err
		}
		n += lettersOf(v)
		closer.Close()
	}
	return n, nil
}

func (s *rawPebble) Scan(id int64, limit int) (rows, n int, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: key(nil, id)})
	if err != nil {
		return 0, 0, err
	}
	defer it.Close()
	for ok := it.First(); ok && rows < limit; ok = it.Next() {
		if binary.BigEndian.Uint64(it.Key()) < uint64(id) {
			return 0, 0, errMissing
		}
		n += lettersOf(it.Value())
		rows++
	}
	return rows, n, it.Error()
}

func (s *rawPebble) Settle() error {
	if err := s.db.Flush(); err != nil {
		return err
	}
	return s.db.Compact(bg, key(nil, 0), key(nil, 1<<62), true)
}

func (s *rawPebble) Close() error { return s.db.Close() }
