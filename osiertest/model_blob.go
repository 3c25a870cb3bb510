package osiertest

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/osierdb/osier"
)

// Stage keeps bytes for a later command.
func (m *Model) Stage(ctx context.Context, db string, r io.Reader) (osier.Attachment, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		return osier.Attachment{}, &osier.Error{Kind: osier.KindOther, Op: "stage attachment", DB: db, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return osier.Attachment{}, canceled("stage attachment", db, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.open("stage attachment", db)
	if err != nil {
		return osier.Attachment{}, err
	}
	a := osier.Attachment{Size: uint64(len(body)), MD5: md5.Sum(body), SHA256: sha256.Sum256(body)}
	rand.Read(a.Blob[:])
	d.blobs[a.Blob], d.staged[a.Blob] = body, a
	return a, nil
}

// Fetch opens bytes that were staged.
func (m *Model) Fetch(ctx context.Context, db string, blob osier.BlobID, offset, length int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, canceled("fetch attachment", db, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.open("fetch attachment", db)
	if err != nil {
		return nil, err
	}
	body, ok := d.blobs[blob]
	if !ok {
		return nil, &osier.Error{Kind: osier.KindNotFound, Op: "fetch attachment", DB: db, Err: errors.New("no such bytes")}
	}
	if offset < 0 {
		return nil, &osier.Error{Kind: osier.KindInvalid, Op: "fetch attachment", DB: db, Err: fmt.Errorf("offset %d", offset)}
	}
	body = body[min(offset, int64(len(body))):]
	if length >= 0 {
		body = body[:min(length, int64(len(body)))]
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}
