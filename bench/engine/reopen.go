package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/bench/peers"
	"github.com/osierdb/osier/engine"
)

// Reopened is how a store came up in a process of its own.
type Reopened struct {
	Open     time.Duration
	FirstGet time.Duration // after opening
	// Resident memory, in bytes: when opened, and idle after work; Anon is
	// without the pages of files. Go is what of it the Go runtime holds, Cache
	// what the engine says its block cache does.
	OpenRSS, IdleRSS, IdleAnon, Go, Cache int64
}

// ReopenChild is what the child process of Reopen does: it opens the store with
// the engine's default options, reads a document, then works (10,000 random
// gets, a scan of all), idles for two seconds, and writes a Reopened as JSON.
func ReopenChild(dir string, docs int64) error {
	var r Reopened
	start := time.Now()
	s, err := peers.OpenOsierWith(dir, nil, osier.Binary)
	if err != nil {
		return err
	}
	r.Open = time.Since(start)
	start = time.Now()
	if _, err := s.Get([]int64{docs / 2}); err != nil {
		return err
	}
	r.FirstGet = time.Since(start)
	if r.OpenRSS, _, err = memory(); err != nil {
		return err
	}
	d := peers.Drive(s)
	if _, err := d.Get(peers.Small, docs, 1, 10_000, 1); err != nil {
		return err
	}
	if _, err := d.Scan(peers.Small, docs, int(docs), 1, 1); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // idle
	if r.IdleRSS, r.IdleAnon, err = memory(); err != nil {
		return err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Go = int64(m.Sys - m.HeapReleased)
	st, err := s.Engine.Stats(context.Background())
	if err != nil {
		return err
	}
	r.Cache = int64(st.CacheBytes)
	if err := s.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// Reopen loads docs documents of 200 B, closes the store cleanly, and has a child
// process, started by command, open it, as often as told. It returns the median
// run by opening time and the folder's size on disk.
func Reopen(dir string, docs int64, rounds int, command func(dir string, docs int64) *exec.Cmd) (r Reopened, disk int64, err error) {
	if dir, err = os.MkdirTemp(dir, "osier-bench-"); err != nil {
		return r, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store := filepath.Join(dir, "store")
	s, err := peers.OpenOsierWith(store, &engine.Options{Durability: osier.Buffered}, osier.Binary)
	if err != nil {
		return r, 0, err
	}
	const batch = 10_000
	for id := int64(0); id < docs; id += batch {
		if err := s.Insert(peers.Small.Rows(id, int(min(batch, docs-id)))); err != nil {
			return r, 0, errors.Join(err, s.Close())
		}
	}
	if err := s.Close(); err != nil {
		return r, 0, err
	}
	var all []Reopened
	for range rounds {
		c := command(store, docs)
		c.Stderr = os.Stderr
		b, err := c.Output()
		if err != nil {
			return r, 0, fmt.Errorf("child process: %w", err)
		}
		var one Reopened
		if err := json.Unmarshal(b, &one); err != nil {
			return r, 0, fmt.Errorf("child process said %q: %w", b, err)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Reopened) int { return int(a.Open - b.Open) })
	disk, err = DiskUse(store)
	return all[len(all)/2], disk, err
}
