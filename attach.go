package osier

import (
	"context"
	"errors"
	"io"
)

// whole notices an attachment that ends before its size.
type whole struct {
	io.ReadCloser
	left     int64
	name, db string
}

func (w *whole) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if w.left -= int64(n); err == io.EOF && w.left > 0 {
		err = &Error{Kind: KindCorrupt, Op: "read attachment " + w.name, DB: w.db, Err: errors.New("its end is missing")}
	}
	return n, err
}

// Attach streams bytes into the attachment name of the document's revision
// rev, and makes a new revision with it. Equal bytes are stored once a
// document. Memory does not grow with their size. ErrConflict if rev is not a
// leaf.
func (c *Collection[T]) Attach(ctx context.Context, db *DB, id any, rev Rev, name, contentType string, r io.Reader) (Doc[T], error) {
	staged, err := db.backend.Stage(ctx, db.name, r)
	if err != nil {
		return Doc[T]{}, err
	}
	return c.reattach(ctx, db, "attach", id, rev, AttachmentRef{Name: name, ContentType: contentType, Staged: staged.Blob})
}

// Detach makes a new revision without the attachment name.
func (c *Collection[T]) Detach(ctx context.Context, db *DB, id any, rev Rev, name string) (Doc[T], error) {
	return c.reattach(ctx, db, "detach", id, rev, AttachmentRef{Name: name, Remove: true})
}

func (c *Collection[T]) reattach(ctx context.Context, db *DB, step string, id any, rev Rev, ref AttachmentRef) (Doc[T], error) {
	key, err := c.id(step, id)
	if err != nil {
		return Doc[T]{}, err
	}
	if ref.Name == "" {
		return Doc[T]{}, invalid(step, "an attachment needs a name")
	}
	res, err := db.write(ctx, &Op{
		Kind: OpPut, Collection: c.name, ID: key, Expect: ExpectRev, Rev: rev,
		KeepBody: true, KeepAttachments: true, Attachments: []AttachmentRef{ref},
	})
	if err != nil {
		return Doc[T]{}, err
	}
	return c.GetRev(ctx, db, key, res.Rev)
}

// OpenAttachment opens the bytes of the attachment name of the document's
// winning revision, from offset on, length of them (negative: to the end). The
// reader must be closed; it streams and holds a chunk at a time.
func (c *Collection[T]) OpenAttachment(ctx context.Context, db *DB, id any, name string, offset, length int64) (Attachment, io.ReadCloser, error) {
	key, err := c.id("open attachment", id)
	if err != nil {
		return Attachment{}, nil, err
	}
	for row, err := range db.Query(ctx, &Query{Kind: QueryGet, Collection: c.name, IDs: []ID{key}, Parts: WithBody}) {
		if err != nil {
			return Attachment{}, nil, err
		}
		for _, a := range row.Attachments {
			if a.Name == name && !row.Missing {
				rc, err := db.backend.Fetch(ctx, db.name, a.Blob, offset, length)
				if err != nil {
					return a, nil, err
				}
				want := max(int64(a.Size)-offset, 0)
				if length >= 0 {
					want = min(want, length)
				}
				return a, &whole{ReadCloser: rc, left: want, name: name, db: db.name}, nil
			}
		}
	}
	return Attachment{}, nil, &Error{Kind: KindNotFound, Op: "open attachment " + name, DB: db.name, Collection: c.name, ID: key.String()}
}
