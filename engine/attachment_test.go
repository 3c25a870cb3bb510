package engine

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/osierdb/osier"
)

// randomBytes is an endless stream that does not compress.
type randomBytes struct{ rng *rand.Rand }

func (r *randomBytes) Read(p []byte) (int, error) {
	for i := 0; i+8 <= len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], r.rng.Uint64())
	}
	return len(p), nil
}

// counted is a stream of size bytes: zeros, with a counter at the beginning of
// each block of countedBlock bytes.
type counted struct{ at, size int64 }

const countedBlock = 4096

func (c *counted) Read(p []byte) (int, error) {
	if c.at == c.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), c.size-c.at, countedBlock-c.at%countedBlock))
	clear(p[:n])
	if in := c.at % countedBlock; in < 8 {
		var head [8]byte
		binary.BigEndian.PutUint64(head[:], uint64(c.at/countedBlock))
		copy(p[:n], head[in:])
	}
	c.at += int64(n)
	return n, nil
}

// heapPeak samples the heap until stop is called, which returns the most that
// lived beyond the beginning.
func heapPeak() (stop func() uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	first := sample[0].Value.Uint64()
	quit, peak := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		most := first
		for {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-tick.C:
			case <-quit:
				peak <- most - first
				return
			}
		}
	}()
	return func() uint64 { close(quit); return <-peak }
}

// A large attachment streams in and out through a few chunks of memory, with
// the right digests, and its parts are found without reading what is before.
func TestLargeAttachmentStreams(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 32 << 20
	}
	size += 12345 // not a whole number of chunks
	e := mustOpen(t, filepath.Join(t.TempDir(), "store"), &Options{CacheBytes: 8 << 20})
	defer mustClose(t, e)
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	wantMD5, wantSHA := md5.New(), sha256.New()
	if _, err := io.Copy(io.MultiWriter(wantMD5, wantSHA), &counted{size: size}); err != nil {
		t.Fatal(err)
	}
	const allowed = 64 << 20
	peak := heapPeak()
	a, err := e.Stage(context.Background(), "shop", &counted{size: size})
	if err != nil {
		t.Fatal(err)
	}
	op := set("files", "large", `{}`)
	op.Attachments = []osier.AttachmentRef{{Name: "file", Staged: a.Blob}}
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{op}})
	in := peak()
	if a.Size != uint64(size) || !bytes.Equal(a.MD5[:], wantMD5.Sum(nil)) || !bytes.Equal(a.SHA256[:], wantSHA.Sum(nil)) {
		t.Errorf("staged %d bytes, MD5 %x, SHA-256 %x; want %d, %x, %x", a.Size, a.MD5, a.SHA256, size, wantMD5.Sum(nil), wantSHA.Sum(nil))
	}
	peak = heapPeak()
	r, err := e.Fetch(context.Background(), "shop", a.Blob, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	got := sha256.New()
	n, err := io.Copy(got, r)
	if err := errors.Join(err, r.Close()); err != nil || n != size || !bytes.Equal(got.Sum(nil), wantSHA.Sum(nil)) {
		t.Errorf("fetched %d bytes with SHA-256 %x, %v; want %d, %x", n, got.Sum(nil), err, size, wantSHA.Sum(nil))
	}
	out := peak()
	t.Logf("%d MiB: the heap grew by at most %d MiB on the way in, %d MiB out", size>>20, in>>20, out>>20)
	// Under the race detector memory is the detector's and the collector lags.
	if !raceEnabled && (in > allowed || out > allowed) {
		t.Errorf("the heap grew by %d bytes on the way in, %d out; at most %d are allowed", in, out, allowed)
	}
	ranges(t, e, a.Blob, size)
}

// ranges compares parts of a counted stream with the stream.
func ranges(t *testing.T, e *Engine, blob osier.BlobID, size int64) {
	t.Helper()
	seed := seedOf(t)
	rng := rngOf(seed, 0)
	type span struct{ offset, length int64 }
	spans := []span{{0, 0}, {0, 1}, {size - 1, 1}, {size - 1, -1}, {size, -1}, {size + 1, 5}, {1 << 60, 1}, {chunkSize - 1, 2}, {chunkSize, chunkSize},
		{chunkSize - 3, 2*chunkSize + 7}}
	for range 30 {
		spans = append(spans, span{rng.Int64N(size), rng.Int64N(3 * chunkSize)})
	}
	for _, s := range spans {
		r, err := e.Fetch(context.Background(), "shop", blob, s.offset, s.length)
		if err != nil {
			t.Errorf("seed %d: fetch %d from %d: %v", seed, s.length, s.offset, err)
			continue
		}
		got, err := io.ReadAll(r)
		r.Close()
		first := min(s.offset, size)
		length := size - first
		if s.length >= 0 {
			length = min(length, s.length)
		}
		want, _ := io.ReadAll(io.LimitReader(&counted{at: first, size: size}, length))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("seed %d: fetch %d from %d: %d bytes, %v; want %d", seed, s.length, s.offset, len(got), err, len(want))
		}
	}
	if _, err := e.Fetch(context.Background(), "shop", blob, -1, 1); !errors.Is(err, osier.ErrInvalid) {
		t.Errorf("fetch from -1: %v, want ErrInvalid", err)
	}
	if _, err := e.Fetch(context.Background(), "shop", osier.BlobID{1}, 0, 1); !errors.Is(err, osier.ErrNotFound) {
		t.Errorf("fetch of an unknown attachment: %v, want ErrNotFound", err)
	}
}

// Equal bytes within a document are stored once and go when the last revision
// that shows them goes.
func TestEqualAttachmentsShareTheirBytes(t *testing.T) {
	e := openMem(t, "shop")
	content := bytes.Repeat([]byte("same"), 1000)
	first := attach(t, e, "shop", "files", "a", content)
	again, err := e.Stage(context.Background(), "shop", bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	op := set("files", "a", `{}`)
	op.Attachments = []osier.AttachmentRef{{Name: "copy", Staged: again.Blob}}
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{op}})
	row := getRow(t, e, "shop", "files", osier.MustID("a"), osier.WithBody)
	if len(row.Attachments) != 2 || row.Attachments[0].Blob != first.Blob || row.Attachments[1].Blob != first.Blob {
		t.Fatalf("got attachments %+v, want two that share %x", row.Attachments, first.Blob)
	}
	if _, err := fetchAll(e, "shop", again.Blob); !errors.Is(err, osier.ErrNotFound) {
		t.Errorf("the second copy's bytes: %v, want ErrNotFound", err)
	}
	for i, name := range []string{"file", "copy"} {
		op := set("files", "a", `{}`)
		op.Attachments = []osier.AttachmentRef{{Name: name, Remove: true}}
		mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{op}})
		_, err := fetchAll(e, "shop", first.Blob)
		if i == 0 && err != nil || i == 1 && !errors.Is(err, osier.ErrNotFound) {
			t.Errorf("the shared bytes after %d removals: %v", i+1, err)
		}
	}
}
