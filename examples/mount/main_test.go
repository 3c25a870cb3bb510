package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/osierdb/osier/engine"
)

// The program's route and the CouchDB door show the same documents to the same
// users.
func TestMount(t *testing.T) {
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	notebook, err := eng.DB(t.Context(), "notebook")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := mount(t.Context(), eng, notebook)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	ts := httptest.NewServer(srv.Handler())
	defer ts.Close()
	do := func(method, path, user, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, ts.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if user != "" {
			req.SetBasicAuth(user, "secret")
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	if code, body := do("PUT", "/notebook/first", "ann", `{"text":"from CouchDB's side","by":"ann"}`); code != 201 {
		t.Fatalf("put: got %d %s", code, body)
	}
	if _, err := Notes.InsertWithID(t.Context(), notebook, "second", Note{Text: "from the program"}); err != nil {
		t.Fatal(err)
	}
	if code, body := do("GET", "/notes", "ann", ""); code != 200 || !strings.Contains(body, "from CouchDB's side") || !strings.Contains(body, "from the program") {
		t.Errorf("notes: got %d %s", code, body)
	}
	if code, body := do("GET", "/notebook/second", "ann", ""); code != 200 || !strings.Contains(body, `"text":"from the program"`) {
		t.Errorf("by the door: got %d %s", code, body)
	}
	if code, _ := do("GET", "/notes", "", ""); code != 403 {
		t.Errorf("without a name: want 403, got %d", code)
	}
}
