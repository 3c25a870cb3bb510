package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

func TestParseConfig(t *testing.T) {
	got, err := parseConfig(strings.NewReader("\n# a comment\n; another\n[serve]\nlisten = 127.0.0.1:1\n[ cors ]\norigins=*  \n" +
		"[jwt_keys]\nhmac:k = a=b; c # d\n[empty]\nkey =\n"))
	want := map[string]string{"serve.listen": "127.0.0.1:1", "cors.origins": "*", "jwt_keys.hmac:k": "a=b; c # d", "empty.key": ""}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("want %v, got %v, %v", want, got, err)
	}
	for text, want := range map[string]string{
		"listen = x":           "line 1: a [section] must come before",
		"[serve\nlisten = x":   "line 1: want [section]",
		"[]":                   "line 1: want [section]",
		"[a]\nhush":            "line 2: want key = value",
		"[a]\n= hush":          "line 2: want key = value",
		"[a]\nb = hush\nb = 2": "line 3: a.b is there twice",
		"[a]\nb = " + strings.Repeat("x", maxConfigBytes):   "larger than",
		"[a]\n" + strings.Repeat("# x\n", maxConfigBytes/4): "larger than",
	} {
		_, err := parseConfig(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "too long") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%.40q: want %q, got %v", text, want, err)
		}
	}
}

// No file makes the parser fail otherwise than with an error.
func FuzzParseConfig(f *testing.F) {
	f.Add("[a]\nb = c\n")
	f.Add("[a]\n\xff=\x00\n[")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := parseConfig(strings.NewReader(text))
		if err == nil {
			for name := range values {
				if !strings.Contains(name, ".") {
					t.Errorf("%q: a name without section: %q", text, name)
				}
			}
		}
	})
}

// output is what a command prints, for a test that waits for a line of it.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func newOutput() *output { return &output{more: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	select {
	case o.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// await waits for a line that matches and returns its first group.
func (o *output) await(t *testing.T, pattern string, ended <-chan int) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for {
		if m := re.FindStringSubmatch(o.String()); m != nil {
			return m[1]
		}
		select {
		case <-o.more:
		case code := <-ended:
			t.Fatalf("ended with %d; printed %q", code, o)
		}
	}
}

// serving runs osier serve on a free port; stop ends it and returns its code.
func serving(t *testing.T, args ...string) (url string, stdout, stderr *output, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stdout, stderr = newOutput(), newOutput()
	e := &env{ctx: ctx, stdin: strings.NewReader(""), stdout: stdout, stderr: stderr}
	ended := make(chan int, 1)
	go func() { ended <- run(e, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)) }()
	url = stdout.await(t, `  (https?://\S+)/\n`, ended)
	return url, stdout, stderr, func() int {
		cancel()
		return <-ended
	}
}

func get(t *testing.T, url, user, password string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		req.SetBasicAuth(user, password)
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

// A first start makes store, system databases and an administrator, whose
// password is shown then and never again.
func TestServeOnAFreshMachine(t *testing.T) {
	store := filepath.Join(t.TempDir(), "data")
	url, stdout, stderr, stop := serving(t, "--store", store)
	password := stdout.await(t, `Administrator made: admin with the password (\S+) `, nil)
	if code, body := get(t, url+"/_up", "", ""); code != 200 || !strings.Contains(body, `"ok"`) {
		t.Errorf("_up: got %d %s", code, body)
	}
	if code, body := get(t, url+"/_all_dbs", "admin", password); code != 200 || !strings.Contains(body, `"_replicator"`) || !strings.Contains(body, `"_users"`) {
		t.Errorf("databases: got %d %s", code, body)
	}
	if code, _ := get(t, url+"/_all_dbs", "", ""); code != 401 {
		t.Errorf("without a name: want 401, got %d", code)
	}
	if code := stop(); code != 0 {
		t.Errorf("stop: want 0, got %d: %s", code, stderr)
	}
	if strings.Contains(stderr.String(), password) {
		t.Errorf("the log shows the password: %s", stderr)
	}
	url, stdout, _, stop = serving(t, "--store", store, "--admin", "ann:pw-of-ann")
	if code, _ := get(t, url+"/_all_dbs", "ann", "pw-of-ann"); code != 200 {
		t.Errorf("administrator by flag: got %d", code)
	}
	if code, _ := get(t, url+"/_all_dbs", "admin", password); code != 200 {
		t.Errorf("the first administrator: got %d", code)
	}
	if code := stop(); code != 0 || strings.Contains(stdout.String(), "password") {
		t.Errorf("second start: got %d, printed %s", code, stdout)
	}
}

// What cannot work is refused before anything is made.
func TestServeRefuses(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "c.ini")
	if err := os.WriteFile(config, []byte("[serve]\nlissten = x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "can be reached from other machines"},
		{[]string{"--listen", "nonsense"}, "listen on nonsense"},
		{[]string{"--admin", "ann"}, "NAME:PASSWORD"},
		{[]string{"--tls-cert", "x"}, "belong together"},
		{[]string{"--tls-self", "--tls-cert", "x", "--tls-key", "y"}, "does not go with"},
		{[]string{"--tls-cert", "x", "--tls-key", "y"}, "read certificate"},
		{[]string{"--set", "limits.boddy=1"}, `there is no setting "limits.boddy"`},
		{[]string{"--set", "limits.body"}, "NAME=VALUE"},
		{[]string{"--config", config}, `there is no option "lissten"`},
		{[]string{"--config", filepath.Join(dir, "none")}, "configuration file"},
		{[]string{"--log-level", "loud"}, "log-level"},
	} {
		var out, errs bytes.Buffer
		e := &env{ctx: t.Context(), stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
		args := append([]string{"serve", "--store", filepath.Join(dir, "s"), "--listen", "127.0.0.1:0"}, c.args...)
		if code := run(e, args); code == 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: want %q, got %d %s", c.args, c.want, code, errs.String())
		}
	}
}

// osier config tells what is in force and why, of a store at rest and of a
// server that runs.
func TestConfigShowsWhereValuesComeFrom(t *testing.T) {
	dir := t.TempDir()
	store, config := filepath.Join(dir, "s"), filepath.Join(dir, "c.ini")
	if err := os.WriteFile(config, []byte("[serve]\nadmin = ann:hush\nlisten = 127.0.0.1:1\n[limits]\ndepth = 99\n[jwt_keys]\nhmac:k = dG9wLXNlY3JldC1obWFjLWtleQ==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OSIER_CONFIG", config)
	t.Setenv("OSIER_LIMITS_BURST", "7")
	t.Setenv("OSIER_LOG_LEVEL", "warn")
	url, _, _, stop := serving(t, "--store", store)
	show := func(args ...string) map[string]setting {
		t.Helper()
		var out, errs bytes.Buffer
		e := &env{ctx: t.Context(), stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
		if code := run(e, append([]string{"config", "--json", "--store", store}, args...)); code != 0 {
			t.Fatalf("got %d %s", code, errs.String())
		}
		if strings.Contains(out.String(), "hush") || strings.Contains(out.String(), "dG9w") {
			t.Errorf("a secret is shown: %s", out.String())
		}
		var list []setting
		if err := json.Unmarshal(out.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		byName := map[string]setting{}
		for _, s := range list {
			byName[s.Name] = s
		}
		return byName
	}
	running := show("--server", strings.Replace(url, "http://", "http://ann:hush@", 1))
	req, err := http.NewRequest(http.MethodPut, url+"/_osier/settings/limits.waits", strings.NewReader(`"55"`))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("ann", "hush")
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("set: %v, %v", res, err)
	}
	res.Body.Close()
	if code := stop(); code != 0 {
		t.Fatalf("stop: got %d", code)
	}
	atRest := show("--set", "limits.result=2000000")
	for _, c := range []struct {
		in                  map[string]setting
		name, value, source string
	}{
		{running, "limits.depth", "99", "file"}, {running, "limits.burst", "7", "environment"}, {running, "limits.waits", "10000", "default"},
		{atRest, "limits.depth", "99", "file"}, {atRest, "limits.burst", "7", "environment"}, {atRest, "limits.waits", "55", "store"},
		{atRest, "limits.result", "2000000", "flag"}, {atRest, "listen", "127.0.0.1:1", "file"}, {atRest, "log-level", "warn", "environment"},
		{atRest, "admin", "ann:(secret)", "file"}, {atRest, "jwt_keys.hmac:k", "(secret)", "file"}, {atRest, "store", store, "flag"},
	} {
		if got := c.in[c.name]; got.Value != c.value || got.Source != c.source {
			t.Errorf("%s: want %q from %s, got %q from %s", c.name, c.value, c.source, got.Value, got.Source)
		}
	}
}
