package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/osierdb/osier"
)

// What a connection may take, whichever door it speaks to. A header that is
// not there in time, or is larger, is a client of no use.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	maxStreams     = 1000 // of an HTTP/2 connection
	drainTimeout   = 10 * time.Second
)

// Listen opens a TCP listener whose connections find out within a minute that
// their other end has vanished.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 3}}
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, &osier.Error{Kind: osier.KindIO, Op: "listen on " + addr, Err: err}
	}
	return ln, nil
}

// Serve answers requests from ln until ctx ends, then lets feeds end, waits for
// requests under way (Options.DrainTimeout), and closes ln. With a non-nil
// certs it speaks TLS, with HTTP/1.1 or HTTP/2; without, HTTP/1.1, and HTTP/2
// with clients that know beforehand. It may be called for several listeners at
// once. The store is still open when it returns.
func (s *Server) Serve(ctx context.Context, ln net.Listener, certs *tls.Config) error {
	srv := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // what clients do wrong
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: 20 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: time.Minute},
	}
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() {
		if certs != nil {
			srv.TLSConfig = certs.Clone()
			ended <- srv.ServeTLS(ln, "", "")
			return
		}
		ended <- srv.Serve(ln)
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %v: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.waits.stop()
	return s.drain(srv, ended)
}

// drain stops a server whose context has ended.
func (s *Server) drain(srv *http.Server, ended <-chan error) error {
	limit := s.o.DrainTimeout
	if limit <= 0 {
		limit = drainTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests did not end in time: connections are closed", "after", limit)
		err = srv.Close()
	}
	<-ended
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// Loopback reports whether only this machine can reach a listener's address.
func Loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
