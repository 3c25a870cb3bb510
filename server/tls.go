package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/osierdb/osier"
)

// tlsBase is what all certificates are used with.
func tlsBase(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get}
}

// certFiles is a certificate that is read again when its files change, so that
// a renewal needs no restart.
type certFiles struct {
	cert, key string

	mu      sync.Mutex // guards what follows
	loaded  *tls.Certificate
	stamp   [2]time.Time
	checked time.Time
}

// recheck is how often the files are looked at.
const recheck = 10 * time.Second

// TLSFromFiles serves with a certificate (with its chain) and a private key,
// both in PEM files. They are read again after they have changed; while the
// new ones are not whole, the old certificate stays.
func TLSFromFiles(certFile, keyFile string) (*tls.Config, error) {
	f := &certFiles{cert: certFile, key: keyFile}
	if err := f.load(); err != nil {
		return nil, &osier.Error{Kind: osier.KindInvalid, Op: "read certificate", Err: err}
	}
	return tlsBase(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.get(), nil }), nil
}

func (f *certFiles) times() (t [2]time.Time) {
	for i, name := range []string{f.cert, f.key} {
		if info, err := os.Stat(name); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

func (f *certFiles) load() error {
	stamp := f.times()
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return err
	}
	f.loaded, f.stamp = &c, stamp
	return nil
}

func (f *certFiles) get() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.checked) > recheck {
		f.checked = now
		if f.times() != f.stamp {
			// A half-written file is read again at the next look.
			_ = f.load()
		}
	}
	return f.loaded
}

// ownCertLife is how long a self-made certificate is valid; it is made anew
// in its last month.
const ownCertLife = 397 * 24 * time.Hour

// TLSSelfMade serves with a certificate that the server makes for the given
// host names and addresses (besides localhost and the loopback addresses) and
// keeps in its store: clients must be told to trust it, for instance by its
// fingerprint, the SHA-256 in hexadecimal.
func (s *Server) TLSSelfMade(ctx context.Context, hosts ...string) (certs *tls.Config, fingerprint string, err error) {
	hosts = append([]string{"localhost", "127.0.0.1", "::1"}, hosts...)
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	doc, err := secretDocs.Get(ctx, s.sys, "tls")
	if err != nil && !errors.Is(err, osier.ErrNotFound) {
		return nil, "", err
	}
	c, perr := tls.X509KeyPair(doc.Value.Value, doc.Value.Value)
	if err != nil || perr != nil || !fits(c.Leaf, hosts) {
		text, err := makeCertificate(hosts)
		if err != nil {
			return nil, "", fmt.Errorf("make certificate: %w", err)
		}
		if _, err := secretDocs.Upsert(ctx, s.sys, "tls", secretDoc{Value: text}); err != nil {
			return nil, "", err
		}
		if c, err = tls.X509KeyPair(text, text); err != nil {
			return nil, "", fmt.Errorf("make certificate: %w", err)
		}
	}
	return tlsBase(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c, nil }), fmt.Sprintf("%x", sha256.Sum256(c.Certificate[0])), nil
}

// fits reports whether a certificate is valid for a month to come and for all
// hosts.
func fits(c *x509.Certificate, hosts []string) bool {
	if c == nil || time.Now().Add(30*24*time.Hour).After(c.NotAfter) {
		return false
	}
	for _, h := range hosts {
		if c.VerifyHostname(h) != nil {
			return false
		}
	}
	return true
}

// makeCertificate returns a certificate and its key, in PEM.
func makeCertificate(hosts []string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(randomBytes(16)), Subject: pkix.Name{CommonName: "Osier, self-made"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownCertLife), BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: private}} {
		if err := pem.Encode(&out, b); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
