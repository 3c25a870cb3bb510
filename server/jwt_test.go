package server

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"
)

// signer makes tokens of one algorithm.
type signer struct {
	name, setting, value string // the setting that makes the server accept it
	sign                 func(signed string) []byte
}

func segment(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func (s *signer) token(alg, claims string) string {
	signed := segment(`{"alg":"`+alg+`","kid":"`+s.name+`"}`) + "." + segment(claims)
	return signed + "." + base64.RawURLEncoding.EncodeToString(s.sign(signed))
}

func publicPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func signers(t *testing.T) map[string]*signer {
	t.Helper()
	out := map[string]*signer{}
	secret := []byte("a secret of enough bytes for everybody")
	for name, h := range map[string]crypto.Hash{"HS256": crypto.SHA256, "HS512": crypto.SHA512} {
		out[name] = &signer{name, "jwt_keys.hmac:" + name, base64.StdEncoding.EncodeToString(secret), func(s string) []byte {
			m := hmac.New(h.New, secret)
			m.Write([]byte(s))
			return m.Sum(nil)
		}}
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	// One line, with \n written out, as configuration files have it.
	oneLine := strings.ReplaceAll(publicPEM(t, &rsaKey.PublicKey), "\n", `\n`)
	out["RS256"] = &signer{"RS256", "jwt_keys.rsa:RS256", oneLine, func(s string) []byte {
		sum := sha256.Sum256([]byte(s))
		sig, err := rsa.SignPKCS1v15(nil, rsaKey, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}}
	for name, curve := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES512": elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = &signer{name, "jwt_keys.ec:" + name, publicPEM(t, &key.PublicKey), func(s string) []byte {
			var sum []byte
			if name == "ES256" {
				x := sha256.Sum256([]byte(s))
				sum = x[:]
			} else {
				x := sha512.Sum512([]byte(s))
				sum = x[:]
			}
			r, v, err := ecdsa.Sign(rand.Reader, key, sum)
			if err != nil {
				t.Fatal(err)
			}
			size := (curve.Params().BitSize + 7) / 8
			return append(r.FillBytes(make([]byte, size)), v.FillBytes(make([]byte, size))...)
		}}
	}
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	out["EdDSA"] = &signer{"EdDSA", "jwt_keys.eddsa:EdDSA", publicPEM(t, pub), func(s string) []byte { return ed25519.Sign(priv, []byte(s)) }}
	return out
}

func TestTokens(t *testing.T) {
	all := signers(t)
	settings := map[string]Given{}
	for _, s := range all {
		settings[s.setting] = Given{s.value, SourceFile}
	}
	b := newBench(t, &Options{Settings: settings})
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	good := fmt.Sprintf(`{"sub":"ann","exp":%d,"_couchdb.roles":["a","b","a",7]}`, in(time.Hour))
	for alg, s := range all {
		w := b.do(request{path: "/", headers: map[string]string{"Authorization": "Bearer " + s.token(alg, good)}})
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"method":"jwt","name":"ann","path":"/","roles":["a","b"]`) {
			t.Errorf("%s: want ann, got %d %s", alg, w.Code, w.Body)
		}
	}
	hs, rs := all["HS256"], all["RS256"]
	broken := hs.token("HS256", good)
	public, _ := pem.Decode([]byte(strings.ReplaceAll(rs.value, `\n`, "\n")))
	forged := &signer{"RS256", "", "", func(s string) []byte {
		m := hmac.New(sha256.New, pem.EncodeToMemory(public))
		m.Write([]byte(s))
		return m.Sum(nil)
	}}
	for name, c := range map[string]struct{ token, reason string }{
		"ended":            {hs.token("HS256", fmt.Sprintf(`{"sub":"ann","exp":%d}`, in(-time.Hour))), "has expired"},
		"not yet":          {hs.token("HS256", fmt.Sprintf(`{"sub":"ann","exp":%d,"nbf":%d}`, in(2*time.Hour), in(time.Hour))), "not valid yet"},
		"no end":           {hs.token("HS256", `{"sub":"ann"}`), `lacks the claim "exp"`},
		"no subject":       {hs.token("HS256", fmt.Sprintf(`{"exp":%d}`, in(time.Hour))), `lacks the claim "sub"`},
		"end is text":      {hs.token("HS256", `{"sub":"ann","exp":"tomorrow"}`), "is no time"},
		"none":             {segment(`{"alg":"none"}`) + "." + segment(good) + ".", "algorithm is not accepted"},
		"unknown key":      {(&signer{"other", "", "", hs.sign}).token("HS256", good), "key is not known"},
		"public as secret": {forged.token("HS256", good), "key is not known"},
		"other's key":      {(&signer{"ES256", "", "", all["ES512"].sign}).token("ES256", good), "signature is wrong"},
		"cut signature":    {broken[:len(broken)-2], "signature is wrong"},
		"critical":         {segment(`{"alg":"HS256","kid":"HS256","crit":["x"]}`) + ".e30.AA", "algorithm is not accepted"},
		"not JSON":         {"e3.e30.AA", "malformed"},
		"long":             {strings.Repeat("a", maxTokenBytes) + ".b.c", "too long"},
	} {
		w := b.do(request{path: "/", headers: map[string]string{"Authorization": "Bearer " + c.token}})
		if w.Code != 401 || !strings.Contains(w.Body.String(), strings.ReplaceAll(c.reason, `"`, `\"`)) {
			t.Errorf("%s: want 401 with %q, got %d %s", name, c.reason, w.Code, w.Body)
		}
	}
}

func TestTokenKeysAreChecked(t *testing.T) {
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"hmac":    "dG9wLXNlY3JldC1obWFjLWtleQ==",
		"hmac:":   "dG9wLXNlY3JldC1obWFjLWtleQ==",
		"hmac:a":  "not base64!",
		"hmac:b":  "c2hvcnQ=",
		"rsa:a":   "no pem",
		"ec:a":    publicPEM(t, &small.PublicKey),
		"rsa:b":   signers(t)["ES256"].value,
		"other:a": signers(t)["ES256"].value,
		"rsa:c":   "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
	} {
		if _, err := parseTokenKey(name, value); err == nil {
			t.Errorf("%s: want it refused", name)
		} else if strings.Contains(err.Error(), value) {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}

// Claims may lie deeper, where a setting says so.
func TestRolesClaimPath(t *testing.T) {
	for path, want := range map[string]string{"realm.roles": "x", "roles": "y", "_couchdb.roles": "z", "nothing.here": ""} {
		rules := tokenRules{roles: path}
		c, err := rules.judge(map[string]any{"sub": "a", "roles": []any{"y"}, "realm": map[string]any{"roles": []any{"x"}}, "_couchdb.roles": []any{"z"}}, time.Now())
		if err != nil || strings.Join(c.Roles, " ") != want {
			t.Errorf("%s: want %q, got %v, %v", path, want, c, err)
		}
	}
}

// No token makes the verifier fail otherwise than with an error, and none that
// was not signed gets in.
func FuzzTokens(f *testing.F) {
	key := []byte("0123456789abcdef0123456789abcdef")
	rules := tokenRules{keys: tokenKeys{"hmac:_default": key}, required: []string{"exp"}, roles: "_couchdb.roles"}
	mac := hmac.New(sha256.New, key)
	signed := segment(`{"alg":"HS256"}`) + "." + segment(`{"sub":"a","exp":99999999999}`)
	mac.Write([]byte(signed))
	good := signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	f.Add(good)
	f.Add("a.b.c")
	f.Add(segment(`{"alg":"none"}`) + "." + segment(`{}`) + ".")
	f.Fuzz(func(t *testing.T, token string) {
		c, err := rules.verify(token, time.Unix(1e9, 0))
		if err != nil {
			return
		}
		parts := strings.Split(token, ".")
		m := hmac.New(sha256.New, key)
		m.Write([]byte(parts[0] + "." + parts[1]))
		if sig, err := base64.RawURLEncoding.DecodeString(parts[2]); err != nil || !hmac.Equal(sig, m.Sum(nil)) && !longMAC(key, parts, sig) || c.Subject == "" {
			t.Errorf("token %q got in", token)
		}
	})
}

func longMAC(key []byte, parts []string, sig []byte) bool {
	m := hmac.New(sha512.New, key)
	m.Write([]byte(parts[0] + "." + parts[1]))
	return hmac.Equal(sig, m.Sum(nil))
}
