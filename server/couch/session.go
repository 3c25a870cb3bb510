package couch

import (
	"bytes"
	"hash/fnv"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/server"
)

// contentTag is an entity tag of an answer's bytes.
func contentTag(b []byte) string {
	h := fnv.New64a()
	h.Write(b) // a hash's Write never fails
	return `"` + strconv.FormatUint(h.Sum64(), 36) + `"`
}

// session answers _session.
func (q *request) session() error {
	switch q.method {
	case http.MethodPost:
		return q.login()
	case http.MethodDelete:
		q.door.host.Accounts().Logout(q.w, q.r)
		return q.redirected("next", http.StatusOK, []byte(`{"ok":true}`))
	}
	if q.params.is("basic") && q.s.Name == "" {
		return &failure{status: http.StatusUnauthorized, code: "unauthorized", reason: "Please login."}
	}
	b := []byte(`{"ok":true,"userCtx":{"name":`)
	b = appendOrNull(b, q.s.Name, q.s.Name != "")
	b = append(appendStrings(append(b, `,"roles":`...), q.s.Roles), `},"info":{"authentication_handlers":["cookie","default"`...)
	if q.takesTokens() {
		b = append(b, `,"jwt"`...)
	}
	b = append(b, ']')
	if q.s.Method != server.Anonymous {
		b = appendQuoted(append(b, `,"authenticated":`...), string(q.s.Method))
	}
	q.send(http.StatusOK, append(b, "}}"...))
	return nil
}

// takesTokens reports whether there are keys to judge tokens by.
func (q *request) takesTokens() bool {
	return slices.ContainsFunc(q.door.host.Settings().All(), func(s server.Setting) bool {
		return strings.HasPrefix(s.Name, "jwt_keys.") && s.Name != "jwt_keys.*"
	})
}

func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, s)
	}
	return append(b, ']')
}

// credentials reads name and password from a form or a JSON object.
func (q *request) credentials() (name, password string, err error) {
	t, _, _ := strings.Cut(q.r.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(t)) {
	case "application/x-www-form-urlencoded":
		b, err := q.body()
		if err != nil {
			return "", "", err
		}
		form, err := url.ParseQuery(string(b))
		if err != nil {
			return "", "", badRequest("the form cannot be read")
		}
		if !form.Has("name") && !form.Has("username") {
			return "", "", errNoUserName
		}
		if form.Has("name") && form.Has("username") && form.Get("name") != form.Get("username") {
			return "", "", errUserNames
		}
		return first(form.Get("name"), form.Get("username")), form.Get("password"), nil
	case "application/json":
		b, err := q.jsonBody()
		if err != nil {
			return "", "", err
		}
		m, err := members(b, "name", "username", "password")
		if err != nil {
			return "", "", err
		}
		v := m["name"]
		if v == nil {
			v = m["username"]
		}
		if v == nil {
			return "", "", errNoUserName
		}
		if other := m["username"]; other != nil && !bytes.Equal(v, other) {
			return "", "", errUserNames
		}
		name, isText := unquote(v)
		if !isText {
			return "", "", badRequest("the user name must be a string")
		}
		password, isText = unquote(m["password"])
		if !isText && m["password"] != nil {
			return "", "", badRequest("the password must be a string")
		}
		return name, password, nil
	}
	return "", "", unsupportedType("Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'")
}

var (
	errNoUserName = badRequest("request body must contain a username")
	errUserNames  = badRequest("request body contains different usernames")
)

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// login answers POST of credentials.
func (q *request) login() error {
	name, password, err := q.credentials()
	if err != nil {
		return err
	}
	s, err := q.door.host.Accounts().Login(q.w, q.r, name, password)
	if osier.KindOf(err) == osier.KindDenied && err != nil {
		f := &failure{status: http.StatusUnauthorized, code: "unauthorized", reason: "Name or password is incorrect."}
		q.door.host.Accounts().Logout(q.w, q.r)
		return q.redirected("fail", f.status, f.appendJSON(nil))
	}
	if err != nil {
		return err
	}
	b := appendQuoted([]byte(`{"ok":true,"name":`), s.Name)
	b = append(appendStrings(append(b, `,"roles":`...), s.Roles), '}')
	return q.redirected("next", http.StatusOK, b)
}

// redirected answers with a redirect to the path that a parameter names, if it
// does: one of this server, whose address stands before it.
func (q *request) redirected(param string, status int, body []byte) error {
	to, ok := q.params.get(param)
	if ok {
		if !strings.HasPrefix(to, "/") || strings.ContainsAny(to, "\\\r\n") {
			q.w.Header().Del("Set-Cookie")
			return badRequest("path must begin with a /.")
		}
		q.w.Header().Set("Location", q.base()+to)
		status = http.StatusFound
	}
	q.send(status, body)
	return nil
}
