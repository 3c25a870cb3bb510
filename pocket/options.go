package pocket

import (
	"os"
	"time"
)

// Durability says when a change is acknowledged, and so what a crash can take.
type Durability int

const (
	// Synced acknowledges a transaction, and shows it to readers, when it is
	// flushed to the disk. It survives kill -9 and a loss of power.
	// Transactions that wait at the same time share one flush.
	Synced Durability = iota
	// Delayed acknowledges when the operating system has the bytes, and
	// flushes every SyncEvery. Everything acknowledged survives kill -9; a
	// loss of power can take the transactions since the last flush, the last
	// ones first and each of them whole.
	Delayed
	// Cached is Delayed without a flush before Close, Sync or a rewrite: the
	// file system decides when bytes reach the disk.
	Cached
)

func (d Durability) String() string {
	switch d {
	case Synced:
		return "synced"
	case Delayed:
		return "delayed"
	case Cached:
		return "cached"
	}
	return "unknown"
}

// Options of a store. The zero value is useful.
type Options struct {
	// Types are the Go types that may be saved beside plain texts, numbers
	// and booleans.
	Types []Type
	// Durability is Synced by default.
	Durability Durability
	// SyncEvery is the longest time that Delayed leaves an acknowledged
	// change unflushed; 1 s by default.
	SyncEvery time.Duration

	// ReadOnly opens beside a writer, or on a file nobody writes to, and
	// never changes it. The store follows what the writer appends.
	ReadOnly bool
	// Poll is how often a read-only store looks for news; 20 ms by default,
	// negative for only when Refresh is called.
	Poll time.Duration

	// RewriteRatio is the part of dead bytes above which the file is
	// rewritten in the background; 0.5 by default, negative for never.
	RewriteRatio float64
	// RewriteMinBytes is how many dead bytes a rewrite must be worth; 4 MiB
	// by default.
	RewriteMinBytes int64
	// Compress packs the records of rewritten files. They are smaller then,
	// open more slowly and cannot be read or merged as text.
	Compress bool

	// MaxDecoded is how many decoded values of registered types are kept for
	// the next Get; 0 for all, negative for none.
	MaxDecoded int
	// NoMap writes with one system call for each transaction in all modes, and
	// allocates no space ahead. Set it on file systems that copy on write, such as btrfs: they can
	// refuse a write into space that was allocated before.
	NoMap bool
	// OnError hears of failures of background work: a rewrite, a flush or
	// the following of a file. It must not call the store.
	OnError func(error)

	fs fileSystem // nil for the operating system's
	// maxExpanded is what compressed parts may expand to beyond maxExpansion
	// times the size of the file.
	maxExpanded int64
}

// withDefaults returns a checked copy.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Durability < Synced || c.Durability > Cached {
		return c, invalid("durability %d", c.Durability)
	}
	if c.SyncEvery < 0 {
		return c, invalid("SyncEvery %v", c.SyncEvery)
	}
	if c.SyncEvery == 0 {
		c.SyncEvery = time.Second
	}
	if c.Poll == 0 {
		c.Poll = 20 * time.Millisecond
	}
	if c.RewriteRatio == 0 {
		c.RewriteRatio = 0.5
	}
	if c.RewriteMinBytes == 0 {
		c.RewriteMinBytes = 4 << 20
	}
	if c.MaxDecoded == 0 {
		c.MaxDecoded = 1<<31 - 1
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	if c.fs == nil {
		c.fs = osFileSystem{}
	}
	if c.maxExpanded == 0 {
		c.maxExpanded = 256 << 20
	}
	return c, nil
}

const fileMode os.FileMode = 0o644
