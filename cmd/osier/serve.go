package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"

	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/server"
)

// serveFlags are the flags of serve, which config takes too. Defaults are in
// serveOptions, as environment and file come between.
type serveFlags struct {
	Config    string   `placeholder:"FILE" type:"path" help:"Configuration file (OSIER_CONFIG)."`
	Listen    string   `placeholder:"HOST:PORT" help:"Address to listen on (OSIER_LISTEN; default 127.0.0.1:5984)."`
	Admin     string   `placeholder:"NAME:PASSWORD" help:"Make this administrator, or give him this password (OSIER_ADMIN, which other users of the machine do not see)."`
	TLSCert   string   `name:"tls-cert" placeholder:"FILE" type:"path" help:"Certificate for TLS with its chain, in PEM."`
	TLSKey    string   `name:"tls-key" placeholder:"FILE" type:"path" help:"Private key of the certificate, in PEM."`
	TLSSelf   bool     `name:"tls-self" help:"TLS with a certificate that the server makes."`
	TLSHost   []string `name:"tls-host" placeholder:"NAME" help:"Host names and addresses of that certificate, besides localhost."`
	Insecure  bool     `help:"Listen beyond this machine without TLS all the same."`
	LogLevel  string   `name:"log-level" placeholder:"LEVEL" help:"debug, info, warn or error."`
	LogFormat string   `name:"log-format" placeholder:"FORMAT" help:"text or json."`
	Set       []string `placeholder:"NAME=VALUE" sep:"none" help:"Give a setting its value for as long as the server runs; osier config lists them."`
}

// values are the flags that were given, by the names of serveOptions.
func (f *serveFlags) values() map[string]string {
	v := map[string]string{
		"listen": f.Listen, "admin": f.Admin, "tls-cert": f.TLSCert, "tls-key": f.TLSKey, "tls-host": strings.Join(f.TLSHost, ","),
		"log-level": f.LogLevel, "log-format": f.LogFormat,
	}
	if f.TLSSelf {
		v["tls-self"] = "true"
	}
	if f.Insecure {
		v["insecure"] = "true"
	}
	return v
}

// serveCmd serves a store over HTTP.
type serveCmd struct{ serveFlags }

// lookupEnv reads the environment.
func (e *env) lookupEnv(name string) (string, bool) { return os.LookupEnv(name) }

// Run serves until the process is told to stop.
func (c *serveCmd) Run(e *env) (err error) {
	conf, err := c.resolve(e)
	if err != nil {
		return err
	}
	log, err := conf.logger(e)
	if err != nil {
		return err
	}
	// Listening comes first: if the address is taken, nothing is made.
	ln, err := conf.listener(e.ctx)
	if err != nil {
		return err
	}
	defer ln.Close()
	eng, err := engine.Open(e.store, &engine.Options{Logger: log})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := eng.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("close store: %w", cerr)
		}
	}()
	admin, err := conf.credentials()
	if err != nil {
		return err
	}
	srv, err := server.New(e.ctx, eng.Store, &server.Options{
		Doors: doors(), Settings: conf.settings, LookupEnv: e.lookupEnv, Admin: admin, Version: moduleVersion(),
		Logger: log, Collectors: engineCollectors(eng),
	})
	if err != nil {
		return err
	}
	defer srv.Close()
	made, err := firstAdmin(e.ctx, srv)
	if err != nil {
		return err
	}
	certs, fingerprint, err := conf.certificates(e.ctx, srv)
	if err != nil {
		return err
	}
	e.announce(ln.Addr(), made, certs != nil, fingerprint)
	if err := e.flush(); err != nil {
		return err
	}
	log.Info("serving", "store", e.store, "address", ln.Addr().String(), "tls", certs != nil)
	err = srv.Serve(e.ctx, ln, certs)
	log.Info("stopped")
	return err
}

// listener listens, on other than the loopback addresses only with TLS or when
// told so: passwords would go over the wire as they are.
func (c *configuration) listener(ctx context.Context) (net.Listener, error) {
	insecure, err := c.on("insecure")
	if err != nil {
		return nil, err
	}
	self, err := c.on("tls-self")
	if err != nil {
		return nil, err
	}
	if (c.get("tls-cert") == "") != (c.get("tls-key") == "") {
		return nil, usagef("--tls-cert and --tls-key belong together")
	}
	if self && c.get("tls-cert") != "" {
		return nil, usagef("--tls-self makes a certificate: it does not go with --tls-cert")
	}
	ln, err := server.Listen(ctx, c.get("listen"))
	if err != nil {
		return nil, err
	}
	if !insecure && !self && c.get("tls-cert") == "" && !server.Loopback(ln.Addr()) {
		ln.Close()
		return nil, usagef("%s can be reached from other machines, and without TLS passwords and data can be read on the way: "+
			"give --tls-cert and --tls-key, or --tls-self, or, behind a proxy that does TLS, --insecure", c.get("listen"))
	}
	return ln, nil
}

// credentials are the administrator's that was asked for.
func (c *configuration) credentials() (*server.Credentials, error) {
	v := c.get("admin")
	if v == "" {
		return nil, nil
	}
	name, password, ok := strings.Cut(v, ":")
	if !ok || name == "" || password == "" {
		return nil, usagef("--admin wants NAME:PASSWORD")
	}
	return &server.Credentials{Name: name, Password: password}, nil
}

// firstAdmin makes an administrator with a password of chance if there is none.
func firstAdmin(ctx context.Context, srv *server.Server) (*server.Credentials, error) {
	if has, err := srv.HasAdmin(ctx); err != nil || has {
		return nil, err
	}
	c := &server.Credentials{Name: "admin", Password: rand.Text()}
	return c, srv.SetAdmin(ctx, srv.AdminSession("osier serve"), c.Name, c.Password)
}

// certificates returns nil without TLS.
func (c *configuration) certificates(ctx context.Context, srv *server.Server) (*tls.Config, string, error) {
	if cert := c.get("tls-cert"); cert != "" {
		certs, err := server.TLSFromFiles(cert, c.get("tls-key"))
		return certs, "", err
	}
	if self, err := c.on("tls-self"); err != nil || !self {
		return nil, "", err
	}
	var hosts []string
	for h := range strings.SplitSeq(c.get("tls-host"), ",") {
		if h = strings.TrimSpace(h); h != "" {
			hosts = append(hosts, h)
		}
	}
	return srv.TLSSelfMade(ctx, hosts...)
}

// logger writes to standard error.
func (c *configuration) logger(e *env) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.get("log-level"))); err != nil {
		return nil, usagef("option log-level: want debug, info, warn or error")
	}
	o := &slog.HandlerOptions{Level: level}
	switch c.get("log-format") {
	case "text":
		return slog.New(slog.NewTextHandler(e.stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(e.stderr, o)), nil
	}
	return nil, usagef("option log-format: want text or json")
}

// announce tells the person who started the server where it is. A password
// that was made up is shown here, once, and written nowhere.
func (e *env) announce(a net.Addr, made *server.Credentials, secure bool, fingerprint string) {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	fmt.Fprintf(e.stdout, "Osier serves %s at:\n", e.store)
	for _, host := range reachable(a) {
		fmt.Fprintf(e.stdout, "  %s://%s/\n", scheme, host)
	}
	if fingerprint != "" {
		fmt.Fprintf(e.stdout, "Certificate, made by this server, SHA-256: %s\n", fingerprint)
	}
	if made != nil {
		fmt.Fprintf(e.stdout, "Administrator made: %s with the password %s (shown only now; --admin changes it)\n", made.Name, made.Password)
	}
	if !secure && !server.Loopback(a) {
		fmt.Fprintln(e.stderr, e.paint(e.errTerminal, styleError, "warning:"), "without TLS passwords and data can be read on the way to this server")
	}
}

// reachable lists the addresses that a listener can be reached at.
func reachable(a net.Addr) []string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return []string{a.String()}
	}
	hosts := []string{}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return []string{a.String()}
	}
	for _, x := range addrs {
		if n, ok := x.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, (&net.TCPAddr{IP: n.IP, Port: tcp.Port}).String())
		}
	}
	return hosts
}

// moduleVersion is the version that this binary was built at.
func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return ""
}
