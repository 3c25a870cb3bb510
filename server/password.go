package server

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/crypto/argon2"
)

// Password schemes. New passwords get the one that the setting
// auth.password_scheme names; the others are read, for users that come from
// elsewhere.
const (
	schemeArgon2id = "argon2id"
	schemePBKDF2   = "pbkdf2"
	schemeSimple   = "simple" // one round of SHA-1, from before CouchDB 1.3
)

// What a new hash costs: 19 MiB and two passes, or 600,000 rounds of
// HMAC-SHA-256; each a few ten milliseconds.
const (
	argonPasses   = 2
	argonKiB      = 19 << 10
	argonLanes    = 1
	pbkdf2Rounds  = 600_000
	saltBytes     = 16
	derivedBytes  = 32
	maxPassword   = 4 << 10
	maxSaltBytes  = 1 << 10
	maxRounds     = 5_000_000 // of a stored pbkdf2 hash
	maxPasses     = 16        // of a stored argon2id hash
	maxMemoryKiB  = 256 << 10
	maxLanes      = 16
	maxKeyHexSize = 256
)

// credential is what is kept of a password, under the names that CouchDB's
// user documents use; memory_kib and parallelism are argon2id's.
type credential struct {
	Scheme      string `json:"password_scheme,omitempty"`
	PRF         string `json:"pbkdf2_prf,omitempty"`
	Salt        string `json:"salt,omitempty"`
	Iterations  int    `json:"iterations,omitempty"`
	MemoryKiB   int    `json:"memory_kib,omitempty"`
	Parallelism int    `json:"parallelism,omitempty"`
	DerivedKey  string `json:"derived_key,omitempty"`
	SHA         string `json:"password_sha,omitempty"`
}

// check refuses what verify would not compute: unknown schemes and costs that
// would let a stored document hold up the server.
func (c *credential) check() error {
	if len(c.Salt) > maxSaltBytes {
		return fmt.Errorf("salt of %d bytes, at most %d are allowed", len(c.Salt), maxSaltBytes)
	}
	if len(c.DerivedKey) > maxKeyHexSize || len(c.SHA) > maxKeyHexSize {
		return fmt.Errorf("derived key longer than %d characters", maxKeyHexSize)
	}
	switch c.Scheme {
	case schemeSimple:
		return nil
	case schemePBKDF2:
		if c.Iterations < 1 || c.Iterations > maxRounds {
			return fmt.Errorf("%d iterations, want 1 to %d", c.Iterations, maxRounds)
		}
		if prf(c.PRF) == nil {
			return fmt.Errorf("unknown pbkdf2_prf %q", c.PRF)
		}
		return nil
	case schemeArgon2id:
		if c.Iterations < 1 || c.Iterations > maxPasses || c.MemoryKiB < 8 || c.MemoryKiB > maxMemoryKiB || c.Parallelism < 1 || c.Parallelism > maxLanes {
			return fmt.Errorf("argon2id with %d passes, %d KiB, %d lanes is out of bounds", c.Iterations, c.MemoryKiB, c.Parallelism)
		}
		return nil
	}
	return fmt.Errorf("unknown password_scheme %q", c.Scheme)
}

// prf returns the hash of a pbkdf2_prf; CouchDB's old documents have none.
func prf(name string) func() hash.Hash {
	switch name {
	case "", "sha":
		return sha1.New
	case "sha224":
		return sha256.New224
	case "sha256":
		return sha256.New
	case "sha384":
		return sha512.New384
	case "sha512":
		return sha512.New
	}
	return nil
}

// hasher computes password hashes, few at a time: each takes a core for a
// while, and argon2id's memory too.
type hasher struct {
	slots chan struct{}
	// release gives the memory back to the system when nobody has logged in
	// for a while; by itself the runtime would keep it for minutes.
	release *time.Timer
}

// quiet is how long no hash is computed before the memory is given back.
const quiet = 2 * time.Second

func newHasher() *hasher {
	h := &hasher{slots: make(chan struct{}, min(4, max(1, runtime.GOMAXPROCS(0)))), release: time.AfterFunc(quiet, debug.FreeOSMemory)}
	h.release.Stop()
	return h
}

func (h *hasher) close() { h.release.Stop() }

// do runs fn when there is a slot.
func (h *hasher) do(ctx context.Context, fn func()) error {
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() {
		<-h.slots
		h.release.Reset(quiet)
	}()
	fn()
	return nil
}

var errPasswordLength = errors.New("a password has 1 to 4096 bytes")

// create makes the credential of a new password.
func (h *hasher) create(ctx context.Context, scheme, password string) (credential, error) {
	if password == "" || len(password) > maxPassword {
		return credential{}, errPasswordLength
	}
	salt := make([]byte, saltBytes)
	rand.Read(salt) // does not fail: the runtime ends the process instead
	c := credential{Scheme: schemeArgon2id, Salt: hex.EncodeToString(salt), Iterations: argonPasses, MemoryKiB: argonKiB, Parallelism: argonLanes}
	if scheme == schemePBKDF2 {
		c = credential{Scheme: schemePBKDF2, PRF: "sha256", Salt: c.Salt, Iterations: pbkdf2Rounds}
	}
	key, err := h.derive(ctx, &c, password, derivedBytes)
	c.DerivedKey = hex.EncodeToString(key)
	return c, err
}

// verify compares in constant time. A credential that check refuses fits no
// password.
func (h *hasher) verify(ctx context.Context, c *credential, password string) (bool, error) {
	if len(password) > maxPassword || c.check() != nil {
		return false, nil
	}
	stored := c.DerivedKey
	if c.Scheme == schemeSimple {
		stored = c.SHA
	}
	want, err := hex.DecodeString(stored)
	if err != nil || len(want) < sha1.Size {
		return false, nil
	}
	got, err := h.derive(ctx, c, password, len(want))
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

// derive computes size bytes of key. The salt's text is what is hashed, not
// the bytes that it writes in hexadecimal: CouchDB does so.
func (h *hasher) derive(ctx context.Context, c *credential, password string, size int) (key []byte, err error) {
	herr := h.do(ctx, func() {
		switch c.Scheme {
		case schemeSimple:
			sum := sha1.Sum([]byte(password + c.Salt))
			key = sum[:]
		case schemePBKDF2:
			key, err = pbkdf2.Key(prf(c.PRF), password, []byte(c.Salt), c.Iterations, size)
		default:
			key = argon2.IDKey([]byte(password), []byte(c.Salt), uint32(c.Iterations), uint32(c.MemoryKiB), uint8(c.Parallelism), uint32(size))
		}
	})
	return key, errors.Join(herr, err)
}

// stale reports whether a login should renew the credential: it is of a weaker
// scheme than new ones, or a cheaper one of the same.
func (c *credential) stale(scheme string) bool {
	if c.Scheme != scheme {
		return true
	}
	if scheme == schemePBKDF2 {
		return c.PRF != "sha256" || c.Iterations < pbkdf2Rounds
	}
	return c.Iterations*c.MemoryKiB < argonPasses*argonKiB
}
