package engine

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"math"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// chunkSize of attachments: what an upload or a download holds in memory.
const chunkSize = 256 << 10

// MaxAttachmentBytes is the largest attachment.
const MaxAttachmentBytes = chunkSize * math.MaxUint32

// Stage puts attachment bytes down, a chunk at a time; see osier.Backend. They
// become durable with the command that takes them.
func (e *Engine) Stage(ctx context.Context, dbName string, r io.Reader) (osier.Attachment, error) {
	if e.opts.ReadOnly {
		return osier.Attachment{}, &osier.Error{Kind: osier.KindReadOnly, Op: "stage attachment", DB: dbName}
	}
	db, err := e.lookup("stage attachment", dbName)
	if err != nil {
		return osier.Attachment{}, err
	}
	u := upload{e: e, db: db, md5: md5.New(), sha: sha256.New()}
	rand.Read(u.blob[:])
	if err := u.copy(ctx, r); err != nil {
		u.abandon(ctx)
		return osier.Attachment{}, e.storeError("stage attachment", err)
	}
	a := osier.Attachment{Size: u.size, Blob: u.blob}
	u.md5.Sum(a.MD5[:0])
	u.sha.Sum(a.SHA256[:0])
	rec := stagedRecord{a.Size, a.MD5, a.SHA256}
	if err := u.write(ctx, stagedKey(db.num, u.blob), rec.append(nil)); err != nil {
		u.abandon(ctx)
		return osier.Attachment{}, e.storeError("stage attachment", err)
	}
	return a, nil
}

// upload is an attachment on its way in.
type upload struct {
	e        *Engine
	db       *database
	blob     osier.BlobID
	size     uint64
	md5, sha hash.Hash
}

// copy writes the marker by which an interrupted upload is found again, then
// the chunks. An empty attachment has one empty chunk.
func (u *upload) copy(ctx context.Context, r io.Reader) error {
	var mark stagedRecord
	if err := u.write(ctx, stagedKey(u.db.num, u.blob), mark.append(nil)); err != nil {
		return err
	}
	buf := make([]byte, chunkSize)
	for n := uint32(0); ; n++ {
		k, err := io.ReadFull(r, buf)
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return &osier.Error{Kind: osier.KindIO, Op: "read attachment to stage", DB: u.db.name, Err: err}
		}
		if k > 0 || n == 0 {
			if n == math.MaxUint32 {
				return &osier.Error{Kind: osier.KindTooLarge, Op: "stage attachment", DB: u.db.name}
			}
			u.md5.Write(buf[:k])
			u.sha.Write(buf[:k])
			u.size += uint64(k)
			if err := u.write(ctx, chunkKey(u.db.num, u.blob, n), buf[:k]); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// write puts one record down in order with all other writes, written behind.
func (u *upload) write(ctx context.Context, key, value []byte) error {
	r := &request{level: store.Relaxed, fill: func(a *applier) error {
		if a.database(u.db.name) != u.db {
			return &osier.Error{Kind: osier.KindNotFound, Op: "stage attachment", DB: u.db.name}
		}
		return a.b.Set(key, value)
	}}
	return u.e.submit(ctx, r, len(key)+len(value))
}

// abandon drops what was put down. If that fails too, the next opening of the
// store does it.
func (u *upload) abandon(ctx context.Context) {
	r := &request{level: store.Relaxed, fill: func(a *applier) error {
		if a.database(u.db.name) != u.db {
			return nil
		}
		return errors.Join(a.b.Delete(stagedKey(u.db.num, u.blob)), dropBlob(a.b, u.db.num, u.blob))
	}}
	_ = u.e.submit(context.WithoutCancel(ctx), r, 0)
}

// Fetch opens an attachment's bytes; see osier.Backend. A part is found
// without reading what is before it.
func (e *Engine) Fetch(ctx context.Context, dbName string, blob osier.BlobID, offset, length int64) (io.ReadCloser, error) {
	db, err := e.lookup("fetch attachment", dbName)
	if err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, &osier.Error{Kind: osier.KindInvalid, Op: "fetch attachment", DB: dbName, Err: errors.New("negative offset")}
	}
	_, closer, err := e.store.Get(chunkKey(db.num, blob, 0))
	if errors.Is(err, store.ErrNotFound) {
		return nil, &osier.Error{Kind: osier.KindNotFound, Op: "fetch attachment", DB: dbName}
	}
	if err != nil {
		return nil, e.storeError("fetch attachment", err)
	}
	closer.Close()
	_, upper := blobRange(db.num, blob)
	lower := upper // beyond the last chunk that can be
	if n := offset / chunkSize; n <= math.MaxUint32 {
		lower = chunkKey(db.num, blob, uint32(n))
	}
	it, err := e.store.NewIter(lower, upper)
	if err != nil {
		return nil, e.storeError("fetch attachment", err)
	}
	if length < 0 {
		length = math.MaxInt64
	}
	d := &download{e: e, ctx: ctx, it: it, skip: int(offset % chunkSize), left: length, next: uint32(offset / chunkSize), size: len(blobKey(db.num, blob))}
	d.ok = it.First()
	return d, nil
}

// download reads an attachment chunk by chunk. The iterator sees the state of
// its opening: a deletion meanwhile does not cut it short.
type download struct {
	e    *Engine
	ctx  context.Context
	it   *store.Iter
	ok   bool
	skip int // of the present chunk
	left int64
	next uint32 // number of the present chunk
	size int    // of a chunk's key before its number
}

func (d *download) Read(p []byte) (int, error) {
	if d.it == nil {
		return 0, errors.New("read attachment: closed")
	}
	if err := d.ctx.Err(); err != nil {
		return 0, &osier.Error{Kind: osier.KindCanceled, Op: "read attachment", Err: err}
	}
	for d.ok && d.left > 0 {
		if n := binary.BigEndian.Uint32(d.it.Key()[d.size:]); n != d.next {
			return 0, &osier.Error{Kind: osier.KindCorrupt, Op: "read attachment", Err: errors.New("a chunk is missing")}
		}
		chunk := d.it.Value()
		if d.skip < len(chunk) {
			n := copy(p, chunk[d.skip:min(int64(len(chunk)), int64(d.skip)+min(d.left, chunkSize))])
			d.skip += n
			d.left -= int64(n)
			return n, nil
		}
		d.ok = d.it.Next()
		d.skip = 0
		d.next++
	}
	if err := d.it.Error(); err != nil {
		return 0, d.e.storeError("read attachment", err)
	}
	return 0, io.EOF
}

func (d *download) Close() error {
	if d.it == nil {
		return nil
	}
	err := d.it.Close()
	d.it = nil
	return err
}
