package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/osierdb/osier"
)

// Given is a setting's value from outside, and where it comes from.
type Given struct {
	Value  string
	Source string // SourceFile, SourceEnvironment, SourceFlag or SourceProgram
}

// Where a setting's value comes from, the stronger ones last but one: what
// flags, environment or program give cannot be changed while the server runs.
const (
	SourceDefault     = "default"
	SourceFile        = "file"
	SourceStore       = "store" // set while the server ran
	SourceEnvironment = "environment"
	SourceFlag        = "flag"
	SourceProgram     = "program"
)

// fixed reports whether a value from that source cannot be changed.
func (g Given) fixed() bool { return g.Source != "" && g.Source != SourceFile }

// settingDoc is a setting that was changed while the server ran.
type settingDoc struct {
	Value string `json:"value"`
}

// maxSettingBytes bounds a setting's value and name.
const maxSettingBytes = 64 << 10

// settings implements Settings.
type settings struct {
	sys     *osier.DB
	changed func() // called after each change, outside of mu

	mu       sync.RWMutex // guards what follows
	declared map[string]Setting
	given    map[string]Given
	stored   map[string]string
}

func newSettings(given map[string]Given) *settings {
	s := &settings{changed: func() {}, declared: map[string]Setting{}, given: map[string]Given{}, stored: map[string]string{}}
	maps.Copy(s.given, given)
	for _, d := range ownSettings() {
		s.Declare(d)
	}
	return s
}

// load reads what was set before.
func (s *settings) load(ctx context.Context, sys *osier.DB) error {
	s.sys = sys
	s.mu.Lock()
	defer s.mu.Unlock()
	for doc, err := range settingDocs.List(ctx, sys, nil) {
		if err != nil {
			return err
		}
		s.stored[doc.ID.String()] = doc.Value.Value
	}
	return nil
}

// verify checks the values from outside, when all doors have declared theirs.
func (s *settings) verify() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var errs []error
	for _, name := range sortedKeys(s.given) {
		g := s.given[name]
		d, ok := s.declaration(name)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: there is no setting %q", g.Source, name))
			continue
		}
		if err := d.check(g.Value); err != nil {
			errs = append(errs, fmt.Errorf("%s: setting %s: %w", g.Source, name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &osier.Error{Kind: osier.KindInvalid, Op: "configure server", Err: err}
	}
	return nil
}

// readEnv takes values of declared settings from the environment; a flag's
// value is stronger.
func (s *settings) readEnv(lookup func(string) (string, bool)) {
	if lookup == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.declared {
		v, ok := lookup(EnvName(name))
		if g := s.given[name]; ok && !strings.HasSuffix(name, ".*") && !g.fixed() {
			s.given[name] = Given{v, SourceEnvironment}
		}
	}
}

// EnvName is the environment variable of a setting.
func EnvName(setting string) string {
	return "OSIER_" + strings.ToUpper(strings.ReplaceAll(setting, ".", "_"))
}

// CopySettings copies what was set while a server ran from one store to
// another, to look at it without serving.
func CopySettings(ctx context.Context, from, to *osier.Store) error {
	src, err := from.OpenDB(ctx, SystemDB)
	if errors.Is(err, osier.ErrNotFound) {
		return nil // never served
	}
	if err != nil {
		return err
	}
	dst, err := to.DB(ctx, SystemDB)
	if err != nil {
		return err
	}
	for doc, err := range settingDocs.List(ctx, src, nil) {
		if err == nil {
			_, err = settingDocs.Upsert(ctx, dst, doc.ID, doc.Value)
		}
		if err != nil {
			return err
		}
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

func (d *Setting) check(value string) error {
	if len(value) > maxSettingBytes {
		return fmt.Errorf("value longer than %d bytes", maxSettingBytes)
	}
	if d.Check == nil {
		return nil
	}
	return d.Check(value)
}

// Declare is Settings'.
func (s *settings) Declare(d Setting) {
	s.mu.Lock()
	s.declared[d.Name] = d
	s.mu.Unlock()
}

// declaration finds a name's declaration, or that of its free section. The
// caller holds mu.
func (s *settings) declaration(name string) (Setting, bool) {
	if strings.HasSuffix(name, ".*") || len(name) > maxSettingBytes {
		return Setting{}, false
	}
	if d, ok := s.declared[name]; ok {
		return d, true
	}
	for i := range len(name) - 1 {
		if name[i] == '.' {
			if d, ok := s.declared[name[:i+1]+"*"]; ok {
				d.Name = name
				if check := d.CheckKey; check != nil {
					d.Check = func(v string) error { return check(name[i+1:], v) }
				}
				return d, true
			}
		}
	}
	return Setting{}, false
}

// inForce returns a setting's value and source; a free key that is not set has
// no source. The caller holds mu.
func (s *settings) inForce(name string, d *Setting) (value, source string) {
	g, given := s.given[name]
	if given && g.fixed() {
		return g.Value, g.Source
	}
	// A stored value that a newer version does not take any more is as none.
	if v, ok := s.stored[name]; ok && d.check(v) == nil {
		return v, SourceStore
	}
	if given {
		return g.Value, g.Source
	}
	if _, ok := s.declared[name]; ok {
		return d.Default, SourceDefault
	}
	return "", ""
}

// Get is Settings'.
func (s *settings) Get(name string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d, ok := s.declaration(name)
	if !ok {
		return "", false
	}
	v, source := s.inForce(name, &d)
	return v, source != ""
}

// Set is Settings'.
func (s *settings) Set(ctx context.Context, sess *Session, name, value string) (string, error) {
	return s.change(ctx, sess, name, func(d *Setting) error {
		if err := d.check(value); err != nil {
			return &osier.Error{Kind: osier.KindInvalid, Op: "change setting", ID: name, Err: err}
		}
		if _, err := settingDocs.Upsert(ctx, s.sys, name, settingDoc{value}); err != nil {
			return err
		}
		s.stored[name] = value
		return nil
	})
}

// Reset is Settings'.
func (s *settings) Reset(ctx context.Context, sess *Session, name string) (string, error) {
	return s.change(ctx, sess, name, func(d *Setting) error {
		if _, source := s.inForce(name, d); source == "" {
			return &osier.Error{Kind: osier.KindNotFound, Op: "reset setting", ID: name}
		}
		err := settingDocs.Delete(ctx, s.sys, name, osier.Rev{})
		if err != nil && !errors.Is(err, osier.ErrNotFound) {
			return err
		}
		delete(s.stored, name)
		return nil
	})
}

// change runs fn under the lock, which it holds while the store writes: two
// changes of a setting must reach store and memory in the same order, and
// they are rare.
func (s *settings) change(ctx context.Context, sess *Session, name string, fn func(*Setting) error) (old string, err error) {
	if !sess.Admin() {
		return "", &osier.Error{Kind: osier.KindDenied, Op: "change setting", ID: name}
	}
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		if err == nil {
			s.changed()
		}
	}()
	d, ok := s.declaration(name)
	if !ok {
		return "", &osier.Error{Kind: osier.KindNotFound, Op: "change setting", ID: name}
	}
	if g := s.given[name]; g.fixed() {
		return "", &osier.Error{Kind: osier.KindDenied, Op: "change setting", ID: name,
			Err: &Forbidden{fmt.Sprintf("%s is fixed by the %s of this server's start", name, g.Source)}}
	}
	old, _ = s.inForce(name, &d)
	return old, fn(&d)
}

// All is Settings'.
func (s *settings) All() []Setting {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := map[string]bool{}
	for name := range s.declared {
		names[name] = true
	}
	for name := range s.stored {
		names[name] = true
	}
	for name := range s.given {
		names[name] = true
	}
	var all []Setting
	for _, name := range sortedKeys(names) {
		d, ok := s.declaration(name)
		if !ok {
			continue // a free section itself, or left by a door that is not there now
		}
		if d.Value, d.Source = s.inForce(name, &d); d.Secret && d.Value != "" {
			d.Value = "(secret)"
		}
		all = append(all, d)
	}
	return all
}

// live is what the settings say, in the form the server works with.
type live struct {
	limits         Limits
	stall          time.Duration
	requireUser    bool
	ownDocument    bool
	session        time.Duration
	persistent     bool
	sameSite       string
	scheme         string
	publicDefault  bool
	tokens         tokenRules
	cors           corsRules
	logRequests    bool
	trustedProxies []netip.Prefix
}

// compile makes a live of the values in force, which have been checked.
func (s *settings) compile() *live {
	s.mu.RLock()
	defer s.mu.RUnlock()
	get := func(name string) string {
		d := s.declared[name]
		v, _ := s.inForce(name, &d)
		return v
	}
	num := func(name string) int64 { return must(strconv.ParseInt(get(name), 10, 64)) }
	on := func(name string) bool { return get(name) == "true" }
	l := &live{
		limits: Limits{
			Body: num("limits.body"), Document: num("limits.document"), Attachment: num("limits.attachment"), Result: num("limits.result"),
			Depth: int(num("limits.depth")), Requests: must(strconv.ParseFloat(get("limits.requests"), 64)), Burst: int(num("limits.burst")),
			Waits: int(num("limits.waits")), WaitsEach: int(num("limits.waits_each")),
		},
		stall:       time.Duration(num("limits.stall_seconds")) * time.Second,
		requireUser: on("auth.require_user"), ownDocument: on("users.own_document"), logRequests: on("log.requests"),
		session: time.Duration(num("auth.session_seconds")) * time.Second, persistent: on("auth.persistent_cookie"),
		sameSite: get("auth.same_site"), scheme: get("auth.password_scheme"), publicDefault: get("databases.default_security") == "everyone",
		trustedProxies: must(parsePrefixes(get("net.trusted_proxies"))),
		tokens:         tokenRules{keys: tokenKeys{}, required: splitList(get("jwt.required_claims")), roles: get("jwt.roles_claim")},
	}
	l.cors = newCORSRules(on("cors.enable"), get)
	for _, name := range append(sortedKeys(s.given), sortedKeys(s.stored)...) {
		key, ok := strings.CutPrefix(name, "jwt_keys.")
		if !ok {
			continue
		}
		d, _ := s.declaration(name)
		value, source := s.inForce(name, &d)
		if k, err := parseTokenKey(key, value); source != "" && err == nil {
			l.tokens.keys[key] = k
		}
	}
	return l
}

// must returns what was checked before it came here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("a setting that was checked is wrong: %v", err))
	}
	return v
}

// splitList splits at commas and drops blanks.
func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func parsePrefixes(s string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, part := range splitList(s) {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			a, aerr := netip.ParseAddr(part)
			if aerr != nil {
				return nil, fmt.Errorf("%q is no address and no network", part)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
