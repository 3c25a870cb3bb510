package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/osierdb/osier"
)

// ownDoor serves the few routes of the server itself, below /_osier/: health,
// metrics, profiles, settings and API keys. docs/server.md describes them.
type ownDoor struct{ s *Server }

// roleMetrics may read metrics, besides administrators.
const roleMetrics = "_metrics"

// maxOwnBody bounds the bodies of these routes.
const maxOwnBody = 1 << 20

// own is a handler of a route whose outcome is JSON or an error.
type own func(r *http.Request) (any, error)

func (d *ownDoor) mount(h *host) {
	h.Exempt(func(r *http.Request) bool { return r.URL.Path == "/_osier/health" })
	h.Handle("GET /_osier/health", answer(d.health))
	h.Handle("GET /_osier/metrics", d.gate(d.s.metrics.handler(), roleMetrics))
	h.Handle("GET /_osier/pprof/", d.gate(http.StripPrefix("/_osier/pprof", http.HandlerFunc(profile)), RoleAdmin))
	h.Handle("GET /_osier/settings", answer(d.settings))
	h.Handle("GET /_osier/settings/{name...}", answer(d.setting))
	h.Handle("PUT /_osier/settings/{name...}", answer(d.setSetting))
	h.Handle("DELETE /_osier/settings/{name...}", answer(d.resetSetting))
	h.Handle("GET /_osier/keys", answer(d.keys))
	h.Handle("POST /_osier/keys", answer(d.createKey))
	h.Handle("DELETE /_osier/keys/{id}", answer(d.revokeKey))
}

// gate lets administrators through, and those who have a role.
func (d *ownDoor) gate(h http.Handler, role string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sess := SessionOf(r.Context())
		if !sess.Admin() && !sess.HasRole(role) {
			refuseOwn(w, r, &osier.Error{Kind: osier.KindDenied, Op: "read"})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// profile serves package pprof's handlers without its command line, which
// may hold a password.
func profile(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/profile":
		pprof.Profile(w, r)
	case "/trace":
		pprof.Trace(w, r)
	case "/symbol":
		pprof.Symbol(w, r)
	case "/", "":
		r.URL.Path = "/debug/pprof/"
		pprof.Index(w, r)
	default:
		pprof.Handler(r.URL.Path[1:]).ServeHTTP(w, r)
	}
}

func answer(f own) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			refuseOwn(w, r, err)
			return
		}
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			refuseOwn(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		// A client that has gone needs no answer.
		_, _ = w.Write(append(text, '\n'))
	})
}

// refuseOwn is the table from Kind to status of these routes.
func refuseOwn(w http.ResponseWriter, r *http.Request, err error) {
	status, code := http.StatusInternalServerError, "internal_server_error"
	switch osier.KindOf(err) {
	case osier.KindInvalid:
		status, code = http.StatusBadRequest, "bad_request"
	case osier.KindNotFound, osier.KindDeleted:
		status, code = http.StatusNotFound, "not_found"
	case osier.KindTooLarge:
		status, code = http.StatusRequestEntityTooLarge, "too_large"
	case osier.KindFull:
		status, code = http.StatusInsufficientStorage, "insufficient_storage"
	case osier.KindDenied:
		status, code = http.StatusForbidden, "forbidden"
		if SessionOf(r.Context()).Name == "" {
			status, code = http.StatusUnauthorized, "unauthorized"
			Challenge(w, r)
		}
	case osier.KindClosed, osier.KindUnavailable, osier.KindReadOnly:
		status, code = http.StatusServiceUnavailable, "unavailable"
	}
	Refuse(w, status, code, err.Error())
}

func readJSON(r *http.Request, v any) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxOwnBody+1))
	if err == nil && len(text) > maxOwnBody {
		return &osier.Error{Kind: osier.KindTooLarge, Op: "read request", Err: fmt.Errorf("more than %d bytes", maxOwnBody)}
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil && osier.KindOf(err) == osier.KindOther {
		err = &osier.Error{Kind: osier.KindInvalid, Op: "read request", Err: err}
	}
	return err
}

func (d *ownDoor) health(*http.Request) (any, error) {
	if d.s.waits.ctx.Err() != nil {
		return nil, &osier.Error{Kind: osier.KindUnavailable, Op: "serve", Err: ErrStopping}
	}
	return map[string]any{"status": "ok", "version": d.s.instance.Version, "started": d.s.instance.Started.UTC().Format(time.RFC3339)}, nil
}

// shownSetting is a setting as these routes show it.
type shownSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
	Help   string `json:"help,omitempty"`
}

func adminOnly(r *http.Request) (*Session, error) {
	sess := SessionOf(r.Context())
	if !sess.Admin() {
		return nil, &osier.Error{Kind: osier.KindDenied, Op: "administrate", Err: errors.New("you are no server administrator")}
	}
	return sess, nil
}

func (d *ownDoor) settings(r *http.Request) (any, error) {
	if _, err := adminOnly(r); err != nil {
		return nil, err
	}
	list := []shownSetting{}
	for _, x := range d.s.settings.All() {
		list = append(list, shownSetting{x.Name, x.Value, x.Source, x.Help})
	}
	return list, nil
}

func (d *ownDoor) setting(r *http.Request) (any, error) {
	if _, err := adminOnly(r); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	for _, x := range d.s.settings.All() {
		if x.Name == name {
			return shownSetting{x.Name, x.Value, x.Source, x.Help}, nil
		}
	}
	return nil, &osier.Error{Kind: osier.KindNotFound, Op: "read setting", ID: name}
}

func (d *ownDoor) setSetting(r *http.Request) (any, error) {
	sess, err := adminOnly(r)
	if err != nil {
		return nil, err
	}
	var value string
	if err := readJSON(r, &value); err != nil {
		return nil, err
	}
	if _, err := d.s.settings.Set(r.Context(), sess, r.PathValue("name"), value); err != nil {
		return nil, err
	}
	return d.setting(r)
}

func (d *ownDoor) resetSetting(r *http.Request) (any, error) {
	sess, err := adminOnly(r)
	if err != nil {
		return nil, err
	}
	if _, err := d.s.settings.Reset(r.Context(), sess, r.PathValue("name")); err != nil {
		return nil, err
	}
	return map[string]bool{"ok": true}, nil
}

// shownGrant is a grant as these routes write it.
type shownGrant struct {
	Actions    []string `json:"actions"`
	DB         string   `json:"db"`
	Collection string   `json:"collection,omitempty"`
}

// shownKey is an API key as these routes write it.
type shownKey struct {
	APIKey
	Grants []shownGrant `json:"grants,omitempty"`
	Secret string       `json:"secret,omitempty"`
}

func showKey(k APIKey) shownKey {
	out := shownKey{APIKey: k}
	for _, g := range k.Grants {
		s := shownGrant{DB: g.DB, Collection: g.Collection}
		for _, a := range []osier.Action{osier.MayRead, osier.MayWrite, osier.MayManage} {
			if g.Actions&a != 0 {
				s.Actions = append(s.Actions, a.String())
			}
		}
		out.Grants = append(out.Grants, s)
	}
	return out
}

func (d *ownDoor) keys(r *http.Request) (any, error) {
	keys, err := d.s.Keys(r.Context(), SessionOf(r.Context()))
	if err != nil {
		return nil, err
	}
	list := []shownKey{}
	for _, k := range keys {
		list = append(list, showKey(k))
	}
	return list, nil
}

func (d *ownDoor) createKey(r *http.Request) (any, error) {
	var in shownKey
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	k := in.APIKey
	for _, g := range in.Grants {
		grant := osier.Grant{DB: g.DB, Collection: g.Collection}
		for _, name := range g.Actions {
			found := false
			for _, a := range []osier.Action{osier.MayRead, osier.MayWrite, osier.MayManage} {
				if a.String() == name {
					grant.Actions, found = grant.Actions|a, true
				}
			}
			if !found {
				return nil, &osier.Error{Kind: osier.KindInvalid, Op: "create API key", Err: fmt.Errorf("action %q is none of read, write, manage", name)}
			}
		}
		k.Grants = append(k.Grants, grant)
	}
	secret, err := d.s.CreateKey(r.Context(), SessionOf(r.Context()), k)
	if err != nil {
		return nil, err
	}
	return map[string]string{"secret": secret}, nil
}

func (d *ownDoor) revokeKey(r *http.Request) (any, error) {
	if err := d.s.RevokeKey(r.Context(), SessionOf(r.Context()), r.PathValue("id")); err != nil {
		return nil, err
	}
	return map[string]bool{"ok": true}, nil
}
