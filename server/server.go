package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/osierdb/osier"
)

// Options of New. The zero value serves no door.
type Options struct {
	// Doors are mounted in this order.
	Doors []Door
	// Authenticators are asked for the sender of a request before the server's
	// own ways.
	Authenticators []Authenticator
	// RoleGrants are rights that a role gives beyond what the databases' own
	// security objects do.
	RoleGrants map[string][]osier.Grant
	// Settings from outside; see Settings.
	Settings map[string]Given
	// LookupEnv finds settings in the environment: limits.body is
	// OSIER_LIMITS_BODY. Nil: none.
	LookupEnv func(name string) (string, bool)
	// Admin is made an administrator, or given this password, at the start.
	// Without it, and with no administrator in the store, there is none.
	Admin *Credentials
	// Version of the product; "" is "dev".
	Version string
	// Logger; nil is silent.
	Logger *slog.Logger
	// Collectors are shown with the server's own metrics.
	Collectors []prometheus.Collector
	// DrainTimeout bounds how long a stop waits for requests; 0: 10 seconds.
	DrainTimeout time.Duration
}

// Credentials are a name and a password.
type Credentials struct{ Name, Password string }

// String hides the password, so that none gets into a log.
func (c Credentials) String() string { return c.Name + ":(secret)" }

// GoString hides the password too.
func (c Credentials) GoString() string { return c.String() }

// Server serves a store over HTTP. All methods may be called concurrently.
type Server struct {
	o        Options
	store    *osier.Store // with all rights; the program's own
	sys      *osier.DB
	accounts *accounts
	settings *settings
	gates    *gates
	waits    *waits
	rates    *rates
	tasks    *tasks
	metrics  *metrics
	log      *slog.Logger
	instance Instance
	current  atomic.Pointer[live]

	mux *http.ServeMux
	// segments are the first ones of the mux's patterns: most requests are for
	// others, and asking the mux about these costs more than they do. With
	// anyPath there are patterns that may match every path.
	segments map[string]bool
	anyPath  bool
	rest     http.Handler // of requests that no pattern matches
	exempt   []func(*http.Request) bool
	handler  http.Handler

	closed   *Security     // of databases without a security object
	open4all *Security     // if a setting says so
	all      []osier.Grant // a server administrator's
	first    bool          // there was no administrator before

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	background sync.WaitGroup
}

// The server is what doors get.
var (
	_ Settings = (*settings)(nil)
	_ Accounts = (*Server)(nil)
	_ Host     = (*host)(nil)
)

// New prepares a server on a store: it creates the system databases, brings
// administrator and secrets in order and mounts the doors. The store stays the
// caller's: close it after the server. ErrInvalid for wrong settings.
func New(ctx context.Context, store *osier.Store, o *Options) (*Server, error) {
	s := &Server{store: store, gates: newGates(), rates: newRates(), tasks: newTasks(), mux: http.NewServeMux(), segments: map[string]bool{},
		all: osier.Admin("").Grants, log: slog.New(slog.DiscardHandler)}
	if o != nil {
		s.o = *o
	}
	if s.o.Logger != nil {
		s.log = s.o.Logger
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.prepare(ctx); err != nil {
		s.cancel()
		s.background.Wait()
		return nil, fmt.Errorf("prepare server: %w", err)
	}
	return s, nil
}

func (s *Server) prepare(ctx context.Context) error {
	var err error
	if s.closed, err = ParseSecurity([]byte(closedSecurity)); err != nil {
		return err
	}
	if s.open4all, err = ParseSecurity([]byte("{}")); err != nil {
		return err
	}
	if s.sys, err = s.store.DB(ctx, SystemDB); err != nil {
		return err
	}
	users, err := s.store.DB(ctx, UsersDB)
	if err != nil {
		return err
	}
	s.metrics = newMetrics(s.o.Collectors)
	s.settings = newSettings(s.o.Settings)
	if err := s.settings.load(ctx, s.sys); err != nil {
		return err
	}
	s.waits = newWaits(s.metrics.waits)
	if s.accounts, err = newAccounts(ctx, s.sys, users, s.live); err != nil {
		return err
	}
	s.accounts.onFailure = s.metrics.failedLogins.Inc
	uuid, err := secret(ctx, s.sys, "instance", func() secretDoc { return secretDoc{Value: randomBytes(16)} })
	if err != nil {
		return err
	}
	s.instance = Instance{UUID: hex.EncodeToString(uuid), Version: s.o.Version, Started: time.Now()}
	if s.instance.Version == "" {
		s.instance.Version = "dev"
	}
	s.handler = s.chain(http.HandlerFunc(s.route))
	(&ownDoor{s}).mount(&host{s: s, door: "osier"})
	for _, d := range s.o.Doors {
		h := &host{s: s, door: d.Name()}
		if err := d.Mount(h); err != nil {
			return fmt.Errorf("mount door %s: %w", d.Name(), err)
		}
	}
	s.settings.readEnv(s.o.LookupEnv)
	if err := s.settings.verify(); err != nil {
		return err
	}
	s.settings.changed = func() { s.current.Store(s.settings.compile()) }
	s.settings.changed()
	if err := s.prepareAdmin(ctx); err != nil {
		return err
	}
	s.follow(s.sys, s.sysChanged)
	s.follow(users, s.userChanged)
	return nil
}

// prepareAdmin makes the administrator that was asked for.
func (s *Server) prepareAdmin(ctx context.Context) error {
	names, err := s.accounts.admins(ctx)
	if err != nil {
		return err
	}
	s.first = len(names) == 0
	if s.o.Admin == nil {
		return nil
	}
	err = s.accounts.ensureAdmin(ctx, s.o.Admin.Name, s.o.Admin.Password)
	s.o.Admin = nil
	return err
}

// HasAdmin reports whether anybody can administrate the server.
func (s *Server) HasAdmin(ctx context.Context) (bool, error) {
	names, err := s.accounts.admins(ctx)
	return len(names) > 0, err
}

// live is what the settings say now.
func (s *Server) live() *live { return s.current.Load() }

// Settings are the server's settings, for the program that runs it.
func (s *Server) Settings() Settings { return s.settings }

// Handle registers a program's own handler beside the doors, under a pattern
// of http.ServeMux. It runs behind the same logs, limits and authentication as
// they do: SessionOf(r.Context()) tells who asks. Call it before serving.
func (s *Server) Handle(pattern string, h http.Handler) {
	(&host{s: s, door: "program"}).Handle(pattern, h)
}

// Handler serves all doors. It may be mounted in any http.Server; Serve uses
// it with bounds that suit it.
func (s *Server) Handler() http.Handler { return s.handler }

// AdminSession is a session with all rights, for the program that runs the
// server.
func (s *Server) AdminSession(name string) *Session {
	return s.session(&Identity{Name: name, Roles: []string{RoleAdmin}})
}

// Close ends waiting requests and the server's own work; it does not close
// the store. It is idempotent.
func (s *Server) Close() error {
	s.waits.stop()
	s.cancel()
	s.background.Wait()
	s.accounts.hash.close()
	return nil
}

// refollow is how long a broken feed rests.
const refollow = 200 * time.Millisecond

// follow watches a system database from now on, so that what is cached is
// right also when somebody else writes: another door, an embedded program, a
// node of a cluster. Without a feed nothing is cached.
func (s *Server) follow(db *osier.DB, changed func(*osier.Change)) {
	s.background.Go(func() {
		for s.ctx.Err() == nil {
			for c, err := range db.Watch(s.ctx, &osier.Feed{Since: osier.SeqNow, Mode: osier.FeedLive, Marks: true}) {
				if err != nil {
					if s.ctx.Err() == nil && !errors.Is(err, osier.ErrClosed) {
						s.log.Warn("follow system database", "db", db.Name(), "error", err)
					}
					break
				}
				changed(&c)
			}
			s.caching(db, false)
			select {
			case <-s.ctx.Done():
			case <-time.After(refollow):
			}
		}
	})
}

// caching turns the caches on, or off and empty, that a database's feed keeps
// right.
func (s *Server) caching(db *osier.DB, on bool) {
	if db == s.sys {
		s.gates.setWatching(on)
	}
	s.accounts.setWatching(db.Name(), on)
}

func (s *Server) sysChanged(c *osier.Change) {
	if c.Mark {
		s.caching(s.sys, true)
		return
	}
	id, _ := c.ID.Text()
	switch c.Collection {
	case adminDocs.Name():
		s.accounts.forget(id)
	case keyDocs.Name():
		s.accounts.forgetKey(id)
	case securityDocs.Name():
		var uuid osier.UUID
		if b, err := hex.DecodeString(id); err == nil && copy(uuid[:], b) == len(uuid) {
			s.gates.forget(uuid)
		}
	}
}

func (s *Server) userChanged(c *osier.Change) {
	if c.Mark {
		s.caching(s.accounts.users, true)
		return
	}
	s.accounts.forget(strings.TrimPrefix(idText(c.ID), userPrefix))
}

// host is one door's Host.
type host struct {
	s    *Server
	door string
}

func (h *host) Handle(pattern string, hd http.Handler) {
	h.s.mux.Handle(pattern, h.named(hd))
	path := pattern
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		path = strings.TrimSpace(rest)
	}
	segment := firstSegment(path)
	h.s.segments[segment] = true
	h.s.anyPath = h.s.anyPath || segment == "" || !strings.HasPrefix(path, "/") || strings.ContainsAny(segment, "{%")
}

func (h *host) Rest(hd http.Handler) {
	if h.s.rest != nil {
		panic("server: two doors want the rest of the paths")
	}
	h.s.rest = h.named(hd)
}

// named notes for logs and metrics whose handler it was.
func (h *host) named(hd http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if x := exchangeOf(r.Context()); x != nil {
			x.door = h.door
		}
		hd.ServeHTTP(w, r)
	})
}

func (h *host) Exempt(f func(*http.Request) bool) { h.s.exempt = append(h.s.exempt, f) }
func (h *host) Accounts() Accounts                { return h.s }
func (h *host) Settings() Settings                { return h.s.settings }
func (h *host) Limits() *Limits                   { return &h.s.live().limits }
func (h *host) Tasks() Tasks                      { return h.s.tasks }
func (h *host) Instance() Instance                { return h.s.instance }
func (h *host) Log() *slog.Logger                 { return h.s.log.With("door", h.door) }
func (h *host) Counter(name, help string) Meter   { return h.s.metrics.counter(h.door, name, help) }
func (h *host) Gauge(name, help string) Meter     { return h.s.metrics.gauge(h.door, name, help) }

func (h *host) Wait(ctx context.Context) (context.Context, func(), error) {
	x := exchangeOf(ctx)
	who := ""
	if x != nil {
		who = x.who()
	}
	l := &h.s.live().limits
	return h.s.waits.take(ctx, who, l.Waits, l.WaitsEach)
}
