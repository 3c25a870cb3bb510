package couch

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/server"
)

const (
	adminName = "admin"
	adminPass = "secret"
)

// rig is a server with the door on a store in memory.
type rig struct {
	t    testing.TB
	eng  *engine.Engine
	srv  *server.Server
	http *httptest.Server
}

func newRig(t testing.TB, settings ...string) *rig {
	t.Helper()
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]server.Given{}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		given[name] = server.Given{Value: value, Source: server.SourceProgram}
	}
	srv, err := server.New(context.Background(), eng.Store, &server.Options{Doors: []server.Door{New()}, Settings: given,
		Admin: &server.Credentials{Name: adminName, Password: adminPass}, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, eng: eng, srv: srv, http: httptest.NewServer(srv.Handler())}
	t.Cleanup(r.close)
	return r
}

func (r *rig) close() {
	r.http.CloseClientConnections()
	r.http.Close()
	if err := r.srv.Close(); err != nil {
		r.t.Errorf("close server: %v", err)
	}
	rep, err := r.eng.Check(context.Background(), func(p engine.Problem) { r.t.Errorf("check: %v", p) })
	if err != nil {
		r.t.Errorf("check: %v (%+v)", err, rep)
	}
	if err := r.eng.Close(); err != nil {
		r.t.Errorf("close engine: %v", err)
	}
}

// reply is an answer with its body read.
type reply struct {
	*http.Response
	body []byte
}

// do sends a request as the administrator. Headers are "Name: value".
func (r *rig) do(method, path, body string, headers ...string) *reply {
	r.t.Helper()
	req := r.request(method, path, body, headers...)
	return r.send(req)
}

func (r *rig) request(method, path, body string, headers ...string) *http.Request {
	r.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, r.http.URL+path, in)
	if err != nil {
		r.t.Fatal(err)
	}
	req.SetBasicAuth(adminName, adminPass)
	req.Header.Set("Accept", "application/json")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		switch {
		case name == "Authorization" && value == "":
			req.Header.Del(name)
		default:
			req.Header.Set(name, value)
		}
	}
	return req
}

func (r *rig) send(req *http.Request) *reply {
	r.t.Helper()
	client := *r.http.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: read: %v", req.Method, req.URL, err)
	}
	return &reply{resp, body}
}

// want sends a request and wants a status.
func (r *rig) want(status int, method, path, body string, headers ...string) *reply {
	r.t.Helper()
	a := r.do(method, path, body, headers...)
	if a.StatusCode != status {
		r.t.Fatalf("%s %s: status %d, want %d: %s", method, path, a.StatusCode, status, a.body)
	}
	return a
}

// into decodes the answer.
func (a *reply) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("decode %q: %v", a.body, err)
	}
}

// rev is the revision that an answer to a write tells.
func (a *reply) rev(t testing.TB) string {
	t.Helper()
	var v struct{ Rev string }
	a.into(t, &v)
	return v.Rev
}
