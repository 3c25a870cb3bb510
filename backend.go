package osier

import (
	"context"
	"io"
	"iter"
)

// documentGetter is what a Backend may have beside its verbs, as a shorter way
// for the most frequent read: QueryGet of one document's winner, without a
// stream. It means the same.
type documentGetter interface {
	// GetDocument fills d; its slices are valid until release is closed. With
	// found false there is no such document and nothing to release; a deleted
	// one is found.
	GetDocument(ctx context.Context, db, collection string, id ID, d *Document) (found bool, release io.Closer, err error)
}

// Backend carries out commands, queries and feeds. Embedded engine, remote
// client and cluster node each are one; all else in this package is written
// once, above it. Every method may be called concurrently and honours ctx.
// Errors are *Error.
type Backend interface {
	// Exec carries out a command, whole or not at all (see
	// Command.PerDocument), and answers when it is durable as asked. It may
	// fill in the command's Sealed and empty ids; the caller must not change
	// the command afterwards, and its slices stay the command's.
	Exec(ctx context.Context, c *Command) (*Result, error)
	// Query streams an answer from one state of the database. Breaking off
	// the loop ends it.
	Query(ctx context.Context, q *Query) iter.Seq2[Row, error]
	// Watch streams changes.
	Watch(ctx context.Context, f *Feed) iter.Seq2[Change, error]
	// Stage puts down attachment bytes for a later command, streaming, with
	// their digests. Bytes that no command takes are dropped when the store is
	// next opened.
	Stage(ctx context.Context, db string, r io.Reader) (Attachment, error)
	// Fetch opens an attachment's bytes from offset on; length < 0 means to
	// the end. The reader must be closed.
	Fetch(ctx context.Context, db string, blob BlobID, offset, length int64) (io.ReadCloser, error)
	// Close ends the backend after what is under way. It is idempotent.
	Close() error
}
