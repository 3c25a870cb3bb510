// Package engine measures Osier's document engine beside the stores that a
// program would otherwise use. The benchmarks are run by go test -bench, the
// comparison in one interleaved run by cmd/ratios.
package engine

import (
	"github.com/osierdb/osier"
	"github.com/osierdb/osier/bench/peers"
)

// Contender is a store under measurement.
type Contender struct {
	Name string
	// Own tells Osier's entries from the peers'.
	Own  bool
	Open func(dir string, level peers.Level) (peers.Subject, error)
}

// Names of the contenders.
const (
	OsierJSON   = "osier-json"
	OsierBinary = "osier-binary"
	Pebble      = "pebble"
	Bolt        = "bbolt"
	Badger      = "badger"
	SQLite      = "sqlite"
	RocksDB     = "rocksdb"
)

// Contenders lists Osier, with its default codec and with rows that encode
// themselves, and the peers. Opening one that is not available gives an error
// that wraps peers.ErrAbsent.
func Contenders() []Contender {
	own := func(c osier.Codec) func(string, peers.Level) (peers.Subject, error) {
		return driven(func(dir string, l peers.Level) (peers.Store, error) { return peers.OpenOsier(dir, l, c) })
	}
	return []Contender{
		{OsierJSON, true, own(osier.JSON)},
		{OsierBinary, true, own(osier.Binary)},
		{Pebble, false, driven(peers.OpenPebble)},
		{Bolt, false, driven(peers.OpenBolt)},
		{Badger, false, driven(peers.OpenBadger)},
		{SQLite, false, driven(peers.OpenSQLite)},
		{RocksDB, false, peers.OpenRocksDB},
	}
}

func driven(open func(string, peers.Level) (peers.Store, error)) func(string, peers.Level) (peers.Subject, error) {
	return func(dir string, l peers.Level) (peers.Subject, error) {
		s, err := open(dir, l)
		if err != nil {
			return nil, err
		}
		return peers.Drive(s), nil
	}
}

// Fill loads rows 0 to n-1 in transactions of 10,000, lets the store settle, and
// reads all of it once, so that caches are warm.
func Fill(s peers.Subject, shape peers.Shape, n int64) error {
	const batch = 10_000
	for id := int64(0); id < n; id += batch {
		if _, err := s.Insert(shape, id, int(min(batch, n-id)), 1); err != nil {
			return err
		}
	}
	if err := s.Settle(); err != nil {
		return err
	}
	_, err := s.Scan(shape, n, int(n), 1, 0)
	return err
}

// Picks is how many rows are read at once out of n.
func Picks(n int64) []int {
	root := 1
	for int64(root+1)*int64(root+1) <= n {
		root++
	}
	return []int{1, root, int(n / 16)}
}
