package server

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Bounds of what is read of a token.
const (
	maxTokenBytes = 16 << 10
	tokenSkew     = 30 * time.Second // between our clock and the issuer's
	minRSABits    = 2048
	minHMACBytes  = 16
)

// tokenKeys are the keys that tokens may be signed with, by "TYPE:KID". The
// type decides which algorithms a key may be used for, so that a public key is
// never taken for an HMAC secret.
type tokenKeys map[string]any // []byte, *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey

// parseTokenKey reads a setting jwt_keys.TYPE:KID: an HMAC secret in base64,
// or a public key in PEM, whose line breaks may be written as \n.
func parseTokenKey(name, value string) (any, error) {
	typ, kid, ok := strings.Cut(name, ":")
	if !ok || kid == "" {
		return nil, errors.New("want a name of the form TYPE:KID with hmac, rsa, ec or eddsa as TYPE")
	}
	if typ == "hmac" {
		secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
		if err != nil {
			return nil, errors.New("an hmac key is written in base64")
		}
		if len(secret) < minHMACBytes {
			return nil, fmt.Errorf("an hmac key has %d bytes or more", minHMACBytes)
		}
		return secret, nil
	}
	block, _ := pem.Decode([]byte(strings.ReplaceAll(value, `\n`, "\n")))
	if block == nil {
		return nil, fmt.Errorf("want a public key in PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, errors.New("want a public key in PEM")
	}
	switch k := key.(type) {
	case *rsa.PublicKey:
		ok = typ == "rsa" && k.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey:
		ok = typ == "ec" && (k.Curve == elliptic.P256() || k.Curve == elliptic.P521())
	case ed25519.PublicKey:
		ok = typ == "eddsa"
	default:
		ok = false
	}
	if !ok {
		return nil, fmt.Errorf("not a key for %q: rsa keys have 2048 bits or more, ec keys are on P-256 or P-521", typ)
	}
	return key, nil
}

// algorithm says what a signature algorithm needs.
type algorithm struct {
	keyType string
	hash    crypto.Hash
	size    int // of each half of an ECDSA signature
}

// algorithms that are accepted. "none" is not, nor is any that is not asked for
// by a client known to us.
func algorithmOf(name string) (algorithm, bool) {
	switch name {
	case "HS256":
		return algorithm{"hmac", crypto.SHA256, 0}, true
	case "HS512":
		return algorithm{"hmac", crypto.SHA512, 0}, true
	case "RS256":
		return algorithm{"rsa", crypto.SHA256, 0}, true
	case "ES256":
		return algorithm{"ec", crypto.SHA256, 32}, true
	case "ES512":
		return algorithm{"ec", crypto.SHA512, 66}, true
	case "EdDSA":
		return algorithm{"eddsa", 0, 0}, true
	}
	return algorithm{}, false
}

// claims of a token whose signature is good.
type claims struct {
	Subject string
	Expires time.Time
	Roles   []string
}

// tokenRules say what a token must have.
type tokenRules struct {
	keys     tokenKeys
	required []string // claims that must be there
	roles    string   // path of the claim with the roles
}

// verify checks a token and returns its claims. Errors tell the reason, but
// nothing of the token.
func (t *tokenRules) verify(token string, now time.Time) (*claims, error) {
	if len(token) > maxTokenBytes {
		return nil, errors.New("token is too long")
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("token is malformed")
	}
	var header struct {
		Alg  string   `json:"alg"`
		Kid  string   `json:"kid"`
		Crit []string `json:"crit"`
	}
	if err := decodeSegment(parts[0], &header); err != nil {
		return nil, err
	}
	alg, ok := algorithmOf(header.Alg)
	if !ok || header.Crit != nil {
		return nil, errors.New("token's algorithm is not accepted")
	}
	if header.Kid == "" {
		header.Kid = "_default"
	}
	key, ok := t.keys[alg.keyType+":"+header.Kid]
	if !ok {
		return nil, errors.New("token's key is not known")
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !alg.verify(key, parts[0]+"."+parts[1], sig) {
		return nil, errors.New("token's signature is wrong")
	}
	var body map[string]any
	if err := decodeSegment(parts[1], &body); err != nil {
		return nil, err
	}
	return t.judge(body, now)
}

func decodeSegment(s string, v any) error {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return errors.New("token is malformed")
	}
	return nil
}

// verify checks a signature of signed.
func (a algorithm) verify(key any, signed string, sig []byte) bool {
	var sum []byte
	switch a.hash {
	case crypto.SHA256:
		x := sha256.Sum256([]byte(signed))
		sum = x[:]
	case crypto.SHA512:
		x := sha512.Sum512([]byte(signed))
		sum = x[:]
	}
	switch k := key.(type) {
	case []byte:
		mac := hmac.New(a.hash.New, k)
		mac.Write([]byte(signed))
		return hmac.Equal(mac.Sum(nil), sig)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(k, a.hash, sum, sig) == nil
	case *ecdsa.PublicKey:
		if len(sig) != 2*a.size || (k.Params().BitSize+7)/8 != a.size {
			return false
		}
		return ecdsa.Verify(k, sum, new(big.Int).SetBytes(sig[:a.size]), new(big.Int).SetBytes(sig[a.size:]))
	case ed25519.PublicKey:
		return ed25519.Verify(k, []byte(signed), sig)
	}
	return false
}

// judge checks the claims of a token that is signed well.
func (t *tokenRules) judge(body map[string]any, now time.Time) (*claims, error) {
	for _, name := range t.required {
		if _, ok := body[name]; !ok {
			return nil, fmt.Errorf("token lacks the claim %q", name)
		}
	}
	var c claims
	for _, name := range []string{"exp", "nbf", "iat"} {
		v, there := body[name]
		if !there {
			continue
		}
		// Beyond the year 5138 it is no date but a mistake.
		seconds, ok := v.(float64)
		if !ok || seconds < 0 || seconds > 1e11 {
			return nil, fmt.Errorf("token's claim %q is no time", name)
		}
		at := time.Unix(int64(seconds), 0)
		switch {
		case name == "exp":
			if c.Expires = at; !now.Before(at.Add(tokenSkew)) {
				return nil, errors.New("token has expired")
			}
		case now.Add(tokenSkew).Before(at):
			return nil, errors.New("token is not valid yet")
		}
	}
	c.Subject, _ = body["sub"].(string)
	if c.Subject == "" {
		return nil, errors.New(`token lacks the claim "sub"`)
	}
	var roles any = body
	if v, ok := body[t.roles]; ok {
		roles = v // a claim whose name has dots
	} else {
		for name := range strings.SplitSeq(t.roles, ".") {
			m, _ := roles.(map[string]any)
			roles = m[name]
		}
	}
	list, _ := roles.([]any)
	for _, r := range list {
		if s, ok := r.(string); ok && !slices.Contains(c.Roles, s) {
			c.Roles = append(c.Roles, s)
		}
	}
	return &c, nil
}
