package engine

import (
	"bytes"
	"slices"
	"sync/atomic"
)

// splits tells the store where tables should end: around the documents of large
// collections and the transactions of their databases. Most writes go to the upper
// ends of a few spaces (new ids, the next sequences and transactions) and to the
// few records of a database that every commit writes, with all that is older
// between them. A table that reached from one end to the other would overlap every
// older table, and each compaction would write whole spaces anew; ended there, most
// tables overlap nothing and are written once or twice.
//
// The store reads it from its own goroutines; under queue.order it grows.
type splits struct {
	at atomic.Pointer[[][]byte] // in order
}

const (
	splitBytes = 1 << 20 // of bodies, from which on a collection is large
	maxSplits  = 128     // ends, up to five a collection: each adds small tables to a flush
)

// note adds a collection that has become large.
func (s *splits) note(db uint32, c *collState) {
	if c.split || c.bodyBytes < splitBytes {
		return
	}
	c.split = true
	at := s.list()
	txs, afterTxs := collSpace(db, 0, spaceTx)
	first, _ := collectionRange(db, c.num)
	docs, after := collSpace(db, c.num, spaceDoc)
	if len(at)+5 > maxSplits {
		return
	}
	at = slices.Concat(at, [][]byte{txs, afterTxs, first, docs, after})
	slices.SortFunc(at, bytes.Compare)
	at = slices.CompactFunc(at, bytes.Equal)
	s.at.Store(&at)
}

// noteAll adds the collections of an opened store, the largest first.
func (s *splits) noteAll(dbs map[string]*database) {
	type large struct {
		db uint32
		c  *collState
	}
	var all []large
	for _, db := range dbs {
		for _, c := range db.colls {
			if c.bodyBytes >= splitBytes {
				all = append(all, large{db.num, c})
			}
		}
	}
	slices.SortFunc(all, func(a, b large) int { return int(int64(b.c.bodyBytes>>1) - int64(a.c.bodyBytes>>1)) })
	for _, l := range all {
		s.note(l.db, l.c)
	}
}

func (s *splits) list() [][]byte {
	if p := s.at.Load(); p != nil {
		return *p
	}
	return nil
}

// end returns the key before which a table that begins with start should end, nil
// if it may go on.
func (s *splits) end(start []byte) []byte {
	at := s.list()
	i, exact := slices.BinarySearchFunc(at, start, bytes.Compare)
	if exact {
		i++
	}
	if i == len(at) {
		return nil
	}
	return at[i]
}
