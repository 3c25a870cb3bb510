package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/server"
)

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 1 << 20

// option is one of serve's own values and where it comes from. Settings, which
// may change while the server runs, are server.Settings.
type option struct {
	name, value, source string
	secret              bool
}

// configuration is what flags, environment and file say.
type configuration struct {
	options  []option
	settings map[string]server.Given
}

// serveSection is the part of a configuration file that holds serve's options.
const serveSection = "serve"

// serveOptions are serve's options besides --store with their defaults, in the
// order in which they are shown.
var serveOptions = []option{
	{name: "listen", value: "127.0.0.1:5984"},
	{name: "admin", secret: true},
	{name: "tls-cert"},
	{name: "tls-key"},
	{name: "tls-self", value: "false"},
	{name: "tls-host"},
	{name: "insecure", value: "false"},
	{name: "log-level", value: "info"},
	{name: "log-format", value: "text"},
}

// resolve puts the sources in order: a flag wins over the environment, and
// that over the file.
func (f *serveFlags) resolve(e *env) (*configuration, error) {
	c := &configuration{settings: map[string]server.Given{}}
	file, err := f.readFile(e)
	if err != nil {
		return nil, err
	}
	flags := f.values()
	for _, o := range serveOptions {
		o.source = server.SourceDefault
		if v, ok := file[serveSection+"."+o.name]; ok {
			o.value, o.source = v, server.SourceFile
			delete(file, serveSection+"."+o.name)
		}
		if v, ok := e.lookupEnv("OSIER_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))); ok && v != "" {
			o.value, o.source = v, server.SourceEnvironment
		}
		if v := flags[o.name]; v != "" {
			o.value, o.source = v, server.SourceFlag
		}
		c.options = append(c.options, o)
	}
	for name, v := range file {
		if strings.HasPrefix(name, serveSection+".") {
			return nil, usagef("configuration file %s: there is no option %q", f.Config, strings.TrimPrefix(name, serveSection+"."))
		}
		c.settings[name] = server.Given{Value: v, Source: server.SourceFile}
	}
	for _, s := range f.Set {
		name, v, ok := strings.Cut(s, "=")
		if !ok {
			return nil, usagef("--set wants NAME=VALUE")
		}
		c.settings[name] = server.Given{Value: v, Source: server.SourceFlag}
	}
	return c, nil
}

// get returns an option's value.
func (c *configuration) get(name string) string {
	return c.options[slices.IndexFunc(c.options, func(o option) bool { return o.name == name })].value
}

// on reads an option that is true or false.
func (c *configuration) on(name string) (bool, error) {
	v := c.get(name)
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, usagef("option %s: %q is neither true nor false", name, v)
	}
	return b, nil
}

// readFile reads the configuration file, if one is named.
func (f *serveFlags) readFile(e *env) (map[string]string, error) {
	if f.Config == "" {
		f.Config, _ = e.lookupEnv("OSIER_CONFIG")
	}
	if f.Config == "" {
		return map[string]string{}, nil
	}
	r, err := os.Open(f.Config)
	if err != nil {
		return nil, usagef("configuration file: %v", err)
	}
	defer r.Close()
	values, err := parseConfig(r)
	if err != nil {
		return nil, usagef("configuration file %s: %v", f.Config, err)
	}
	return values, nil
}

// parseConfig reads lines "[section]" and "key = value" and returns the values
// by "section.key". Lines that begin with "#" or ";" say nothing.
func parseConfig(r io.Reader) (map[string]string, error) {
	values := map[string]string{}
	section := ""
	in := bufio.NewScanner(io.LimitReader(r, maxConfigBytes+1))
	in.Buffer(nil, maxConfigBytes+1)
	size := 0
	for n := 1; in.Scan(); n++ {
		if size += len(in.Bytes()) + 1; size > maxConfigBytes {
			return nil, fmt.Errorf("larger than %d bytes", maxConfigBytes)
		}
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "["); ok {
			if section, ok = strings.CutSuffix(name, "]"); !ok || strings.TrimSpace(section) == "" {
				return nil, fmt.Errorf("line %d: want [section]", n)
			}
			section = strings.TrimSpace(section)
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		// The line itself may hold a secret: it is not shown.
		switch {
		case !ok || key == "":
			return nil, fmt.Errorf("line %d: want key = value", n)
		case section == "":
			return nil, fmt.Errorf("line %d: a [section] must come before", n)
		}
		name := section + "." + key
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", n, name)
		}
		values[name] = strings.TrimSpace(value)
	}
	return values, in.Err()
}

// configCmd prints what is in force.
type configCmd struct {
	serveFlags
	Server string `placeholder:"URL" help:"Ask a running server, as http://ADMIN:PASSWORD@HOST:PORT."`
}

// setting is one value in the output.
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
	Help   string `json:"help,omitempty"`
}

// Run prints serve's options and the server's settings as they would be in
// force, and where each comes from.
func (c *configCmd) Run(e *env) error {
	if c.Server != "" {
		list, err := askSettings(e.ctx, c.Server)
		if err != nil {
			return err
		}
		return e.printSettings(list)
	}
	conf, err := c.resolve(e)
	if err != nil {
		return err
	}
	list := []setting{{Name: "store", Value: e.store, Source: e.storeSource()}}
	for _, o := range conf.options {
		if o.secret && o.value != "" {
			name, _, _ := strings.Cut(o.value, ":")
			o.value = name + ":(secret)"
		}
		list = append(list, setting{Name: o.name, Value: o.value, Source: o.source})
	}
	settings, err := e.settingsInForce(conf)
	if err != nil {
		return err
	}
	return e.printSettings(append(list, settings...))
}

// storeSource tells where the store's folder was named.
func (e *env) storeSource() string {
	v, ok := e.lookupEnv("OSIER_STORE")
	switch {
	case ok && v == e.store:
		return server.SourceEnvironment
	case e.store == defaultStore:
		return server.SourceDefault
	}
	return server.SourceFlag
}

// settingsInForce asks a server that serves nobody, on a store in memory that
// holds what was set before in the real one.
func (e *env) settingsInForce(conf *configuration) ([]setting, error) {
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	if e.checkFolder() == nil {
		real, err := engine.Open(e.store, &engine.Options{ReadOnly: true})
		switch {
		case errors.Is(err, osier.ErrLocked):
			fmt.Fprintf(e.stderr, "the store %s is in use: what was set while its server ran is not shown; ask it with --server\n", e.store)
		case err != nil:
			return nil, err
		default:
			err = server.CopySettings(e.ctx, real.Store, eng.Store)
			if cerr := real.Close(); err != nil || cerr != nil {
				return nil, errors.Join(err, cerr)
			}
		}
	}
	srv, err := server.New(e.ctx, eng.Store, &server.Options{Doors: doors(), Settings: conf.settings, LookupEnv: e.lookupEnv})
	if err != nil {
		return nil, err
	}
	defer srv.Close()
	var list []setting
	for _, s := range srv.Settings().All() {
		list = append(list, setting{s.Name, s.Value, s.Source, s.Help})
	}
	return list, nil
}

// askSettings asks a running server.
func askSettings(ctx context.Context, address string) ([]setting, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		// The error of Parse would show the password.
		return nil, usagef("--server wants http://ADMIN:PASSWORD@HOST:PORT")
	}
	user := u.User
	u.User = nil
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("/_osier/settings").String(), nil)
	if err != nil {
		return nil, usagef("--server wants http://ADMIN:PASSWORD@HOST:PORT")
	}
	if user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask server: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("ask server: %w", err)
	}
	var list []setting
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask server: it answered %s", res.Status)
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, errors.New("ask server: its answer is not what an Osier server says")
	}
	return list, nil
}

func (e *env) printSettings(list []setting) error {
	if e.json {
		return e.printJSON(list)
	}
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Source, s.Value)
	}
	return w.Flush()
}
