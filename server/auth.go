package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/osierdb/osier"
)

// CookieName is the name of the session cookie; CouchDB's clients know it.
const CookieName = "AuthSession"

// refusal is an answer that the server gives before a door is asked.
type refusal struct {
	status       int
	code, reason string
}

func (r *refusal) Error() string { return r.reason }

// badRequest is the refusal of credentials that cannot be read.
func badRequest(reason string) error {
	return &refusal{http.StatusBadRequest, "bad_request", reason}
}

// unauthorized is the refusal of credentials that are wrong.
func unauthorized(reason string) error {
	return &refusal{http.StatusUnauthorized, "unauthorized", reason}
}

// authenticate finds who sends a request: by what the program's own
// Authenticators know, a session cookie, or the header Authorization. A request
// without credentials has a nil Identity. A cookie that is about to end is
// renewed on w.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) (*Identity, error) {
	for _, a := range s.o.Authenticators {
		if id, err := a.Authenticate(r); id != nil || err != nil {
			return id, err
		}
	}
	if id, err := s.byCookie(w, r); id != nil || err != nil {
		return id, err
	}
	header := r.Header.Get("Authorization")
	scheme, value, _ := strings.Cut(header, " ")
	value = strings.TrimSpace(value)
	switch {
	case value == "":
		return nil, nil
	case strings.EqualFold(scheme, "basic"):
		return s.byPassword(r, value)
	case strings.EqualFold(scheme, "bearer"):
		return s.byBearer(r, value)
	}
	return nil, nil
}

func (s *Server) byPassword(r *http.Request, value string) (*Identity, error) {
	text, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		if text, err = base64.RawStdEncoding.DecodeString(value); err != nil {
			return nil, badRequest("Authorization header has invalid base64 value")
		}
	}
	name, password, ok := strings.Cut(string(text), ":")
	if !ok {
		return nil, nil
	}
	rec, err := s.accounts.check(r.Context(), name, password, s.client(r))
	if errors.Is(err, osier.ErrDenied) {
		return nil, unauthorized("Name or password is incorrect.")
	}
	if err != nil {
		return nil, err
	}
	return rec.identity(ByPassword, time.Time{}), nil
}

// byBearer knows API keys and tokens. What looks like neither counts as no
// credentials, as with CouchDB without its JWT handler.
func (s *Server) byBearer(r *http.Request, value string) (*Identity, error) {
	if strings.HasPrefix(value, keyPrefix) {
		return s.accounts.byKey(r.Context(), value, s.client(r))
	}
	rules := &s.live().tokens
	if strings.Count(value, ".") != 2 || len(rules.keys) == 0 {
		return nil, nil
	}
	c, err := rules.verify(value, time.Now())
	if err != nil {
		return nil, unauthorized(err.Error())
	}
	return &Identity{Name: c.Subject, Roles: c.Roles, Method: ByToken, Expires: c.Expires}, nil
}

// byCookie knows session cookies: NAME:TIME:MAC in base64, with the time of
// issue in hexadecimal seconds. One that has ended, or whose account has
// changed its password since, counts as none.
func (s *Server) byCookie(w http.ResponseWriter, r *http.Request) (*Identity, error) {
	c, err := r.Cookie(CookieName)
	if err != nil || c.Value == "" {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(c.Value, "="))
	parts := strings.SplitN(string(text), ":", 3)
	if err != nil || len(parts) != 3 {
		return nil, badRequest("Malformed AuthSession cookie. Please clear your cookies.")
	}
	seconds, err := strconv.ParseInt(parts[1], 16, 64)
	if err != nil {
		return nil, badRequest("Malformed AuthSession cookie. Please clear your cookies.")
	}
	rec, err := s.accounts.lookup(r.Context(), parts[0])
	if err != nil || rec == nil {
		return nil, err
	}
	mac, err := hex.DecodeString(parts[2])
	if err != nil || !hmac.Equal(mac, s.accounts.cookieMAC(rec, parts[1])) {
		return nil, nil
	}
	issued, now, l := time.Unix(seconds, 0), time.Now(), s.live()
	expires := issued.Add(l.session)
	if !now.Before(expires) || issued.After(now.Add(tokenSkew)) {
		return nil, nil
	}
	if l.cors.forged(r) {
		return nil, &refusal{http.StatusForbidden, "forbidden",
			fmt.Sprintf("cross-origin request with a cookie: %+.200q is not in the setting cors.origins", r.Header.Get("Origin"))}
	}
	if now.Sub(issued) > l.session/10 {
		expires = now.Add(l.session)
		s.setCookie(w, r, rec, now)
	}
	return rec.identity(ByCookie, expires), nil
}

func (a *accounts) cookieMAC(rec *record, issued string) []byte {
	h := hmac.New(sha256.New, a.cookieKey)
	h.Write(rec.print[:])
	fmt.Fprintf(h, "%s:%s", rec.name, issued)
	return h.Sum(nil)
}

func (s *Server) setCookie(w http.ResponseWriter, r *http.Request, rec *record, now time.Time) {
	issued := strings.ToUpper(strconv.FormatInt(now.Unix(), 16))
	text := rec.name + ":" + issued + ":" + hex.EncodeToString(s.accounts.cookieMAC(rec, issued))
	c := s.cookie(r, base64.RawURLEncoding.EncodeToString([]byte(text)))
	if l := s.live(); l.persistent {
		c.MaxAge = int(l.session / time.Second)
	}
	setCookieHeader(w, c)
}

// cookie is a session cookie with the attributes that all of them have.
func (s *Server) cookie(r *http.Request, value string) *http.Cookie {
	c := &http.Cookie{Name: CookieName, Value: value, Path: "/", HttpOnly: true, Secure: s.secure(r)}
	switch s.live().sameSite {
	case "strict":
		c.SameSite = http.SameSiteStrictMode
	case "lax":
		c.SameSite = http.SameSiteLaxMode
	case "none":
		c.SameSite = http.SameSiteNoneMode
	}
	return c
}

// setCookieHeader puts a session cookie in the place of one that was set
// before in the same answer, a renewal before a login for instance.
func setCookieHeader(w http.ResponseWriter, c *http.Cookie) {
	h := w.Header()
	h["Set-Cookie"] = slices.DeleteFunc(h["Set-Cookie"], func(v string) bool { return strings.HasPrefix(v, CookieName+"=") })
	http.SetCookie(w, c)
}

// Login is Accounts'.
func (s *Server) Login(w http.ResponseWriter, r *http.Request, name, password string) (*Session, error) {
	rec, err := s.accounts.check(r.Context(), name, password, s.client(r))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s.setCookie(w, r, rec, now)
	return s.session(rec.identity(ByCookie, now.Add(s.live().session))), nil
}

// Logout is Accounts'.
func (s *Server) Logout(w http.ResponseWriter, r *http.Request) {
	setCookieHeader(w, s.cookie(r, ""))
}

// Admins is Accounts'.
func (s *Server) Admins(ctx context.Context) ([]string, error) { return s.accounts.admins(ctx) }

// SetAdmin is Accounts'.
func (s *Server) SetAdmin(ctx context.Context, sess *Session, name, password string) error {
	if !sess.Admin() {
		return &osier.Error{Kind: osier.KindDenied, Op: "set administrator"}
	}
	return s.accounts.setAdmin(ctx, name, password)
}
