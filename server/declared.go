package server

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ownSettings are those of the server itself. docs/server.md lists them.
func ownSettings() []Setting {
	return slices.Concat(authSettings(), corsSettings(), limitSettings(), []Setting{
		{Name: "databases.default_security", Default: "admin_only", Check: oneOf("admin_only", "everyone"),
			Help: "who may use a database that has no security object of its own"},
		{Name: "log.requests", Default: "false", Check: boolean, Help: "log every request at level info (otherwise debug)"},
		{Name: "net.trusted_proxies", Check: func(v string) error { _, err := parsePrefixes(v); return err },
			Help: "addresses and networks whose X-Forwarded-For and X-Forwarded-Proto are believed"},
	})
}

func authSettings() []Setting {
	return []Setting{
		{Name: "auth.require_user", Default: "false", Check: boolean, Help: "answer nothing without credentials"},
		{Name: "auth.session_seconds", Default: "600", Check: number(10, 366*24*3600), Help: "how long a session cookie is valid without use"},
		{Name: "auth.persistent_cookie", Default: "true", Check: boolean, Help: "let the session cookie outlive the browser window"},
		{Name: "auth.same_site", Check: oneOf("", "strict", "lax", "none"), Help: "SameSite attribute of the session cookie"},
		{Name: "auth.password_scheme", Default: schemeArgon2id, Check: oneOf(schemeArgon2id, schemePBKDF2),
			Help: "hash of new passwords; pbkdf2 for users that are replicated to a CouchDB"},
		{Name: "users.own_document", Default: "true", Check: boolean, Help: "let users read and change their own document of _users"},
		{Name: "jwt.roles_claim", Default: "_couchdb.roles", Help: "path of the claim of a token that holds its roles"},
		{Name: "jwt.required_claims", Default: "exp", Help: "claims that a token must have"},
		{Name: "jwt_keys.*", Secret: true, CheckKey: func(key, v string) error { _, err := parseTokenKey(key, v); return err }, Help: "keys that tokens are signed with: jwt_keys.TYPE:KID, an hmac secret in base64, or an rsa, ec or eddsa public key in PEM"},
	}
}

func corsSettings() []Setting {
	return []Setting{
		{Name: "cors.enable", Default: "true", Check: boolean, Help: "answer browsers' questions about other origins"},
		{Name: "cors.origins", Default: "app://obsidian.md,capacitor://localhost,ionic://localhost,http://localhost,https://localhost,http://localhost:*,http://127.0.0.1:*",
			Check: checkOrigins, Help: "origins that may call this server; * is all, a final :* any port"},
		{Name: "cors.credentials", Default: "true", Check: boolean, Help: "let them send cookies and credentials"},
		{Name: "cors.methods", Default: "GET, PUT, POST, HEAD, DELETE, COPY", Help: "methods that they may use"},
		{Name: "cors.headers", Default: "accept, authorization, content-type, content-encoding, destination, if-match, if-none-match, last-event-id, origin, prefer, range, referer, x-couch-full-commit, x-csrf-token, x-http-method-override, x-requested-with",
			Help: "headers that they may send"},
		{Name: "cors.expose", Default: "content-type, cache-control, accept-ranges, etag, server, x-couch-request-id, x-couch-update-newrev, x-couchdb-body-time",
			Help: "headers of answers that they may read"},
		{Name: "cors.max_age", Default: "600", Check: number(0, 86400*30), Help: "seconds for which browsers may keep an answer to a preflight"},
	}
}

func limitSettings() []Setting {
	return []Setting{
		{Name: "limits.body", Default: strconv.Itoa(4 << 30), Check: number(1<<10, math.MaxInt64), Help: "bytes of a request's body"},
		{Name: "limits.document", Default: strconv.Itoa(64 << 20), Check: number(1, math.MaxInt64), Help: "bytes of a document without its attachments"},
		{Name: "limits.attachment", Default: strconv.Itoa(1 << 30), Check: number(1, math.MaxInt64), Help: "bytes of an attachment"},
		{Name: "limits.result", Default: strconv.Itoa(64 << 20), Check: number(1<<20, math.MaxInt64), Help: "bytes of memory that an answer may take where it cannot be streamed; sorts go to disk beyond it"},
		{Name: "limits.depth", Default: "5000", Check: number(8, 5000), Help: "nesting of JSON"},
		{Name: "limits.requests", Default: "0", Check: rate, Help: "requests a second of a user, or of an address without user; 0 is no limit"},
		{Name: "limits.burst", Default: "100", Check: number(1, math.MaxInt32), Help: "requests at once above limits.requests"},
		{Name: "limits.waits", Default: "10000", Check: number(1, math.MaxInt32), Help: "requests that wait for changes at a time"},
		{Name: "limits.waits_each", Default: "2000", Check: number(1, math.MaxInt32), Help: "those of one user, or of one address without user"},
		{Name: "limits.stall_seconds", Default: "60", Check: number(1, 3600), Help: "seconds for which a client may neither send nor take anything while it is its turn"},
	}
}

func boolean(v string) error {
	if v != "true" && v != "false" {
		return fmt.Errorf("%q is neither true nor false", v)
	}
	return nil
}

func number(least, most int64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is no whole number from %d to %d", v, least, most)
		}
		return nil
	}
}

func rate(v string) error {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f >= 0 && f <= 1e9) {
		return fmt.Errorf("%q is no number from 0 to 1e9", v)
	}
	return nil
}

func oneOf(values ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("%q is none of %q", v, values)
		}
		return nil
	}
}

func checkOrigins(v string) error {
	for _, o := range splitList(v) {
		if o != "*" && !strings.Contains(o, "://") {
			return fmt.Errorf("%q is no origin: want SCHEME://HOST[:PORT] or *", o)
		}
	}
	return nil
}
