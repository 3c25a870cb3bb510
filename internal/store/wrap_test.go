package store

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// cipherFS encrypts files with AES-CTR, the counter being the position in the
// file: enough to show that every file goes through the hook and that nothing
// reads or writes around it. (Real encryption needs a nonce for each file.)
type cipherFS struct {
	vfs.FS
	block cipher.Block
}

func newCipherFS(f vfs.FS) vfs.FS {
	b, err := aes.NewCipher([]byte("0123456789abcdef"))
	if err != nil {
		panic(err)
	}
	return &cipherFS{FS: f, block: b}
}

func (c *cipherFS) Unwrap() vfs.FS { return c.FS }

func (c *cipherFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &cipherFile{File: f, c: c}, nil
}

func (c *cipherFS) Create(n string, k vfs.DiskWriteCategory) (vfs.File, error) {
	return c.wrap(c.FS.Create(n, k))
}

func (c *cipherFS) Open(n string, _ ...vfs.OpenOption) (vfs.File, error) { return c.wrap(c.FS.Open(n)) }

func (c *cipherFS) OpenReadWrite(n string, k vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return c.wrap(c.FS.OpenReadWrite(n, k))
}

func (c *cipherFS) ReuseForWrite(o, n string, k vfs.DiskWriteCategory) (vfs.File, error) {
	return c.wrap(c.FS.ReuseForWrite(o, n, k))
}

type cipherFile struct {
	vfs.File
	c               *cipherFS
	readAt, writeAt int64
}

func (f *cipherFile) Fd() uintptr { return vfs.InvalidFd }

// xor applies the key stream from a position on.
func (f *cipherFile) xor(p []byte, off int64) []byte {
	var iv [aes.BlockSize]byte
	binary.BigEndian.PutUint64(iv[8:], uint64(off)/aes.BlockSize)
	s := cipher.NewCTR(f.c.block, iv[:])
	skip := make([]byte, off%aes.BlockSize)
	s.XORKeyStream(skip, skip)
	out := make([]byte, len(p))
	s.XORKeyStream(out, p)
	return out
}

func (f *cipherFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(f.xor(p, f.writeAt))
	f.writeAt += int64(n)
	return n, err
}

func (f *cipherFile) WriteAt(p []byte, off int64) (int, error) {
	return f.File.WriteAt(f.xor(p, off), off)
}

func (f *cipherFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	copy(p, f.xor(p[:n], f.readAt))
	f.readAt += int64(n)
	return n, err
}

func (f *cipherFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	copy(p, f.xor(p[:n], off))
	return n, err
}

// TestWrapFS: no file under data/ holds plain text, also in a checkpoint, and
// recovery, checkpoint, verify and salvage work through the hook.
func TestWrapFS(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	f, want := damagedStore(t, rng, newCipherFS)
	got, found := salvageAll(t, "store", &Options{FS: f, WrapFS: newCipherFS})
	sameMaps(t, fmt.Sprintf("seed %d: salvaged", seed), got, want)
	if len(found) > 0 {
		t.Errorf("seed %d: damage: %v", seed, found)
	}
	s := mustOpen(t, "store", &Options{FS: f, WrapFS: newCipherFS})
	mustPut(t, s, "key/secret", "a plain text to look for", Sync)
	want["key/secret"] = "a plain text to look for"
	if err := s.Checkpoint("copy"); err != nil {
		t.Fatal(err)
	}
	if found := verifyAll(t, s); len(found) > 0 {
		t.Errorf("seed %d: damage: %v", seed, found)
	}
	mustClose(t, s)
	for _, dir := range []string{"store", "copy"} {
		s := mustOpen(t, dir, &Options{FS: f, WrapFS: newCipherFS})
		sameMaps(t, fmt.Sprintf("seed %d: %s", seed, dir), dump(t, s), want)
		mustClose(t, s)
		names, err := f.List(path.Join(dir, dataName))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if strings.HasPrefix(n, "marker.") || n == "LOCK" {
				continue // empty
			}
			b := fileBytes(t, f, path.Join(dir, dataName, n))
			for _, plain := range []string{"key/", "plain text", "leveldb.Bytewise", "rocksdb."} {
				if bytes.Contains(b, []byte(plain)) {
					t.Errorf("%s/%s holds %q", dir, n, plain)
				}
			}
		}
	}
	if _, err := Open("store", &Options{FS: f}); err == nil {
		t.Error("opened without the key")
	}
}

// TestCheckpointTarget: it does not write into what is there.
func TestCheckpointTarget(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, "store", &Options{FS: mem})
	mustPut(t, s, "a", "1", Relaxed)
	for _, dir := range []string{"store", "store/inner"} {
		if err := s.Checkpoint(dir); err == nil {
			t.Errorf("checkpoint to %s succeeded", dir)
		}
	}
	if err := s.Checkpoint("a/b/c"); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint("a/b/c"); err == nil || !strings.Contains(err.Error(), fs.ErrExist.Error()) {
		t.Errorf("second checkpoint: %v, want exists", err)
	}
	c := mustOpen(t, "a/b/c", &Options{FS: mem})
	if got := get(t, c, "a"); got != "1" {
		t.Errorf("checkpoint holds %q, want 1", got)
	}
}
