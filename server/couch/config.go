package couch

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/server"
)

// CouchDB's configuration has sections and keys. Those that Osier has a setting
// for are that setting; administrators are in the section "admins"; any other
// key can be set and read, and has no effect.

// configKeys are the keys that mean something here, as SECTION/KEY, and their
// settings.
var configKeys = map[string]string{
	"chttpd/enable_cors":                   "cors.enable",
	"httpd/enable_cors":                    "cors.enable",
	"cors/origins":                         "cors.origins",
	"cors/credentials":                     "cors.credentials",
	"cors/methods":                         "cors.methods",
	"cors/headers":                         "cors.headers",
	"cors/max_age":                         "cors.max_age",
	"chttpd/require_valid_user":            "auth.require_user",
	"chttpd_auth/require_valid_user":       "auth.require_user",
	"couch_httpd_auth/require_valid_user":  "auth.require_user",
	"chttpd_auth/timeout":                  "auth.session_seconds",
	"chttpd_auth/allow_persistent_cookies": "auth.persistent_cookie",
	"chttpd_auth/same_site":                "auth.same_site",
	"chttpd/max_http_request_size":         "limits.body",
	"couchdb/max_document_size":            "limits.document",
	"couchdb/max_attachment_size":          "limits.attachment",
	"couchdb/default_security":             "databases.default_security",
}

// configDefaults are keys without an effect that clients look for.
var configDefaults = map[string]string{
	"httpd/WWW-Authenticate": `Basic realm="couchdb"`,
	"couchdb/single_node":    "true",
	"cluster/q":              "2",
	"cluster/n":              "1",
	"chttpd/port":            "5984",
	"chttpd/bind_address":    "127.0.0.1",
	"log/level":              "info",
	"vendor/name":            "Osier",
}

// configSetting is the setting that keeps a key without an effect.
const configSetting = "couch_config."

// declare adds the door's settings.
func (d *Door) declare(s server.Settings) {
	s.Declare(server.Setting{Name: configSetting + "*",
		Help: "keys of CouchDB's configuration that this server keeps for clients without following them: couch_config.SECTION.KEY"})
}

// hiddenValue stands for what must not be shown.
const hiddenValue = "(hidden)"

// configuration collects all sections.
func (q *request) configuration() (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	set := func(key, value string) {
		section, name, _ := strings.Cut(key, "/")
		if out[section] == nil {
			out[section] = map[string]string{}
		}
		out[section][name] = value
	}
	for key, value := range configDefaults {
		set(key, value)
	}
	all := q.door.host.Settings()
	for key, name := range configKeys {
		if v, ok := all.Get(name); ok {
			set(key, v)
		}
	}
	for _, s := range all.All() {
		if rest, ok := strings.CutPrefix(s.Name, configSetting); ok && s.Source != "" && rest != "*" {
			if section, name, ok := strings.Cut(rest, "."); ok {
				set(section+"/"+name, s.Value)
			}
		}
		if rest, ok := strings.CutPrefix(s.Name, "jwt_keys."); ok && rest != "*" {
			set("jwt_keys/"+rest, hiddenValue)
		}
	}
	admins, err := q.door.host.Accounts().Admins(q.ctx())
	if err != nil {
		return nil, err
	}
	for _, name := range admins {
		set("admins/"+name, hiddenValue)
	}
	return out, nil
}

var errNoConfig = notFound("unknown_config_value")

// configPath answers _node/_local/_config and what is below it.
func (q *request) configPath(rest []string) error {
	switch {
	case len(rest) == 1 && rest[0] == "_reload":
		if err := q.allow("POST"); err != nil {
			return err
		}
		return q.ok(http.StatusOK)
	case len(rest) < 2:
		if err := q.allow("GET"); err != nil {
			return err
		}
	case len(rest) > 2:
		return errMissing
	default:
		if err := q.allow("GET,PUT,DELETE"); err != nil {
			return err
		}
		switch q.method {
		case http.MethodPut:
			return q.setConfig(rest[0], rest[1])
		case http.MethodDelete:
			return q.resetConfig(rest[0], rest[1])
		}
	}
	all, err := q.configuration()
	if err != nil {
		return err
	}
	switch len(rest) {
	case 0:
		b := []byte{'{'}
		for i, section := range sortedKeys(all) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendQuoted(b, section), ':')
			b = appendSection(b, all[section])
		}
		q.send(http.StatusOK, append(b, '}'))
	case 1:
		q.send(http.StatusOK, appendSection(nil, all[rest[0]]))
	default:
		v, ok := all[rest[0]][rest[1]]
		if !ok {
			return errNoConfig
		}
		q.send(http.StatusOK, appendQuoted(nil, v))
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func appendSection(b []byte, section map[string]string) []byte {
	b = append(b, '{')
	for i, key := range sortedKeys(section) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, key), ':')
		b = appendQuoted(b, section[key])
	}
	return append(b, '}')
}

// setConfig answers PUT of a key; the answer is the value before.
func (q *request) setConfig(section, key string) error {
	b, err := q.jsonBody()
	if err != nil {
		return err
	}
	value, ok := unquote(b)
	if !ok {
		return badRequest("a JSON string expected")
	}
	old, err := q.configValue(section, key)
	if err != nil {
		return err
	}
	if section == "admins" {
		if value == "" {
			return badRequest("an administrator needs a password; DELETE removes him")
		}
		err = q.door.host.Accounts().SetAdmin(q.ctx(), q.s, key, value)
	} else {
		_, err = q.door.host.Settings().Set(q.ctx(), q.s, settingOf(section, key), value)
	}
	if err != nil {
		return configError(err)
	}
	q.send(http.StatusOK, appendQuoted(nil, old))
	return nil
}

// configError tells what is wrong with a value; it does not show the value.
func configError(err error) error {
	if errors.Is(err, osier.ErrDenied) {
		return &failure{status: http.StatusForbidden, code: "forbidden", reason: reasonOf(err), cause: err}
	}
	return err
}

// settingOf is the setting of a configuration key.
func settingOf(section, key string) string {
	if name, ok := configKeys[section+"/"+key]; ok {
		return name
	}
	if section == "jwt_keys" {
		return "jwt_keys." + key
	}
	return configSetting + section + "." + key
}

// configValue is a key's value as it is shown; "" if it has none.
func (q *request) configValue(section, key string) (string, error) {
	all, err := q.configuration()
	if err != nil {
		return "", err
	}
	return all[section][key], nil
}

func (q *request) resetConfig(section, key string) error {
	all, err := q.configuration()
	if err != nil {
		return err
	}
	old, ok := all[section][key]
	if !ok {
		return errNoConfig
	}
	if section == "admins" {
		err = q.door.host.Accounts().SetAdmin(q.ctx(), q.s, key, "")
	} else {
		_, err = q.door.host.Settings().Reset(q.ctx(), q.s, settingOf(section, key))
	}
	if errors.Is(err, osier.ErrNotFound) {
		return errNoConfig
	}
	if err != nil {
		return configError(err)
	}
	q.send(http.StatusOK, appendQuoted(nil, old))
	return nil
}
