package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/osierdb/osier"
)

// An API key's secret is "osk_" + ID + "_" + 32 random bytes in base64. The
// store keeps the SHA-256 of these bytes: there is nothing in them to guess, so
// a slow hash would protect nothing.
const (
	keyPrefix  = "osk_"
	keyIDBytes = 8
	keyBytes   = 32
	maxKeys    = 16 << 10 // cached
	maxGrants  = 256
	maxNote    = 1 << 10
)

// keyDoc is an API key as it is stored.
type keyDoc struct {
	APIKey
	Hash []byte `json:"hash"`
}

// byKey finds the principal of an API key's secret: its owner, with the key's
// grants as bounds.
func (a *accounts) byKey(ctx context.Context, secret, addr string) (*Identity, error) {
	id, value, ok := strings.Cut(strings.TrimPrefix(secret, keyPrefix), "_")
	raw, err := base64.RawURLEncoding.DecodeString(value)
	if !ok || err != nil || len(raw) != keyBytes || len(id) != 2*keyIDBytes {
		return nil, unauthorized("API key is malformed.")
	}
	k, err := a.key(ctx, id)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	if k == nil || subtle.ConstantTimeCompare(sum[:], k.Hash) != 1 {
		a.onFailure()
		return nil, unauthorized("API key is not known.")
	}
	if !k.Expires.IsZero() && !time.Now().Before(k.Expires) {
		return nil, unauthorized("API key has expired.")
	}
	rec, err := a.lookup(ctx, k.Owner)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, unauthorized("API key's owner is not there any more.")
	}
	ident := rec.identity(ByKey, k.Expires)
	ident.Grants = k.Grants
	return ident, nil
}

// key returns the stored key, nil if there is none.
func (a *accounts) key(ctx context.Context, id string) (*keyDoc, error) {
	a.mu.Lock()
	k, gen := a.keys[id], a.gen
	a.mu.Unlock()
	if k != nil {
		return k, nil
	}
	doc, err := keyDocs.Get(ctx, a.sys, id)
	if errors.Is(err, osier.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	if a.watching && a.gen == gen {
		evict(a.keys, maxKeys)
		a.keys[id] = &doc.Value
	}
	a.mu.Unlock()
	return &doc.Value, nil
}

// CreateKey is Accounts'.
func (s *Server) CreateKey(ctx context.Context, sess *Session, k APIKey) (string, error) {
	refuse := func(kind osier.Kind, reason string) (string, error) {
		return "", &osier.Error{Kind: kind, Op: "create API key", Err: &Forbidden{reason}}
	}
	if k.Owner == "" {
		k.Owner = sess.Name
	}
	switch {
	case sess.Name == "" || sess.Method == ByKey || k.Owner != sess.Name && !sess.Admin():
		// A key must not make keys: it could outlive its own end so.
		return refuse(osier.KindDenied, "keys are made for oneself, or by an administrator, and not with a key")
	case len(k.Grants) > maxGrants || len(k.Note) > maxNote:
		return refuse(osier.KindTooLarge, fmt.Sprintf("a key has at most %d grants and a note of %d bytes", maxGrants, maxNote))
	case !k.Expires.IsZero() && !time.Now().Before(k.Expires):
		return refuse(osier.KindInvalid, "the key's end is in the past")
	}
	for _, g := range k.Grants {
		if g.DB == "" || g.Actions == 0 {
			return refuse(osier.KindInvalid, "a grant names actions and a database")
		}
	}
	if rec, err := s.accounts.lookup(ctx, k.Owner); err != nil {
		return "", err
	} else if rec == nil {
		return refuse(osier.KindInvalid, "there is no user of that name")
	}
	raw := randomBytes(keyBytes)
	sum := sha256.Sum256(raw)
	k.ID, k.Created = hex.EncodeToString(randomBytes(keyIDBytes)), time.Now().UTC().Truncate(time.Second)
	if _, err := keyDocs.InsertWithID(ctx, s.accounts.sys, k.ID, keyDoc{k, sum[:]}); err != nil {
		return "", err
	}
	return keyPrefix + k.ID + "_" + base64.RawURLEncoding.EncodeToString(raw), nil
}

// Keys is Accounts'.
func (s *Server) Keys(ctx context.Context, sess *Session) ([]APIKey, error) {
	if sess.Name == "" || sess.Method == ByKey {
		return nil, &osier.Error{Kind: osier.KindDenied, Op: "list API keys"}
	}
	keys := []APIKey{}
	for doc, err := range keyDocs.List(ctx, s.accounts.sys, nil) {
		if err != nil {
			return nil, err
		}
		if sess.Admin() || doc.Value.Owner == sess.Name {
			keys = append(keys, doc.Value.APIKey)
		}
	}
	return keys, nil
}

// RevokeKey is Accounts'.
func (s *Server) RevokeKey(ctx context.Context, sess *Session, id string) error {
	missing := &osier.Error{Kind: osier.KindNotFound, Op: "revoke API key", ID: id}
	if id == "" {
		return missing
	}
	doc, err := keyDocs.Get(ctx, s.accounts.sys, id)
	if err != nil {
		return err
	}
	if sess.Name == "" || sess.Method == ByKey || doc.Value.Owner != sess.Name && !sess.Admin() {
		return missing
	}
	defer s.accounts.forgetKey(id)
	return keyDocs.Delete(ctx, s.accounts.sys, id, osier.Rev{})
}
