package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/osierdb/osier"
)

// exchange is a request being answered: what all handlers share of it, and the
// writer that they write to.
type exchange struct {
	http.ResponseWriter
	s        *Server
	control  *http.ResponseController
	id       string
	addr     string // of the client, as far as it is believed
	door     string
	sess     *Session
	start    time.Time
	extended time.Time // when the deadline for writing was set
	status   int
	bytes    int64
	hijacked bool
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(requestKey{}).(*exchange)
	return x
}

// who is the principal for limits.
func (x *exchange) who() string {
	if x.sess != nil && x.sess.Name != "" {
		return "user " + x.sess.Name
	}
	return "address " + x.addr
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader notes the status.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write sends, and gives the client its time again to take it.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	x.extend()
	n, err := x.ResponseWriter.Write(p)
	x.bytes += int64(n)
	return n, err
}

// FlushError sends what is buffered.
func (x *exchange) FlushError() error {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	x.extend()
	return x.control.Flush()
}

// Flush is FlushError for those who know http.Flusher only.
func (x *exchange) Flush() {
	// The next write tells of a client that has gone.
	_ = x.FlushError()
}

// Hijack hands the connection over, without deadlines.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := x.control.Hijack()
	if err == nil {
		x.hijacked = true
		if x.status == 0 {
			x.status = http.StatusSwitchingProtocols
		}
		err = c.SetDeadline(time.Time{})
	}
	return c, rw, err
}

// extend moves the deadline for writing on: a client that takes nothing for
// long must not hold a connection, its buffers and a snapshot. Setting it
// costs a timer, so that it is done a few times a stall only.
func (x *exchange) extend() {
	now, stall := time.Now(), x.s.live().stall
	if now.Sub(x.extended) < stall/8 {
		return
	}
	x.extended = now
	// A writer of a test has no connection to set a deadline on.
	_ = x.control.SetWriteDeadline(now.Add(stall))
}

// body is a request's body within its limits of size and time.
type body struct {
	io.ReadCloser
	x     *exchange
	limit int64
	n     int64
	until time.Time
	done  bool
}

// leastRate is the rate in bytes a second that a body has to keep on the
// whole, after the first stall: trickling is stalling too.
const leastRate = 256

// Read reads, and gives the client its time again to send.
func (b *body) Read(p []byte) (int, error) {
	now, stall := time.Now(), b.x.s.live().stall
	if b.until.Sub(now) < stall*3/4 && !b.done {
		b.until = now.Add(stall)
		if slowest := b.x.start.Add(2*stall + time.Duration(b.n/leastRate)*time.Second); slowest.Before(b.until) {
			b.until = slowest
		}
		_ = b.x.control.SetReadDeadline(b.until)
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if err == nil {
		return n, nil
	}
	b.rest()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		err = &osier.Error{Kind: osier.KindTooLarge, Op: "read request body", Err: fmt.Errorf("more than the %d bytes of the setting limits.body", b.limit)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = &osier.Error{Kind: osier.KindCanceled, Op: "read request body", Err: fmt.Errorf("the client sent too slowly: %w", err)}
	}
	return n, err
}

// rest takes the deadline off: with the body read, a wait for changes may
// take as long as it wants.
func (b *body) rest() {
	if !b.done {
		b.done = true
		_ = b.x.control.SetReadDeadline(time.Time{})
	}
}

// Close ends reading.
func (b *body) Close() error {
	b.rest()
	return b.ReadCloser.Close()
}

// chain puts what is common to all doors around their handlers.
func (s *Server) chain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{ResponseWriter: w, s: s, control: http.NewResponseController(w), id: requestID(r), addr: s.address(r),
			door: "none", start: time.Now()}
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, x))
		w.Header().Set("X-Request-Id", x.id)
		s.metrics.inFlight.Inc()
		defer x.finish(r)
		x.extend()
		l := s.live()
		if l.cors.apply(x, r) || !s.admit(x, r, l) {
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			if r.ContentLength > l.limits.Body {
				Refuse(x, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body has more than the %d bytes of the setting limits.body", l.limits.Body))
				return
			}
			r.Body = &body{ReadCloser: http.MaxBytesReader(w, r.Body, l.limits.Body), x: x, limit: l.limits.Body}
		}
		next.ServeHTTP(x, r)
	})
}

// admit finds out who asks and whether he may at all; otherwise it answers.
func (s *Server) admit(x *exchange, r *http.Request, l *live) bool {
	id, err := s.authenticate(x, r)
	if err == nil {
		x.sess = s.session(id)
		if id == nil && l.requireUser && !s.exempted(r) {
			err = unauthorized("Authentication required.")
		}
	}
	if err == nil {
		if wait, ok := s.rates.take(x.who(), l.limits.Requests, l.limits.Burst); !ok {
			err = &Throttled{Reason: "more requests than the setting limits.requests allows", After: wait}
		}
	}
	if err != nil {
		s.refuse(x, r, err)
	}
	return err == nil
}

// exempted reports whether a request is answered without credentials in any
// case.
func (s *Server) exempted(r *http.Request) bool {
	for _, f := range s.exempt {
		if f(r) {
			return true
		}
	}
	return false
}

// refuse answers a request that did not get to a door.
func (s *Server) refuse(x *exchange, r *http.Request, err error) {
	var known *refusal
	var throttled *Throttled
	switch {
	case errors.As(err, &known):
	case errors.As(err, &throttled):
		x.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(max(1, throttled.After.Seconds())))))
		known = &refusal{http.StatusTooManyRequests, "too_many_requests", throttled.Reason}
	case errors.Is(err, osier.ErrDenied):
		known = &refusal{http.StatusUnauthorized, "unauthorized", "Credentials are not valid."}
	case r.Context().Err() != nil:
		known = &refusal{http.StatusServiceUnavailable, "canceled", "The request was given up."}
	case errors.Is(err, osier.ErrClosed), errors.Is(err, osier.ErrUnavailable):
		known = &refusal{http.StatusServiceUnavailable, "unavailable", "The store is not available."}
	default:
		s.log.ErrorContext(r.Context(), "authenticate", "request", x.id, "error", err)
		known = &refusal{http.StatusInternalServerError, "internal_server_error", "The server failed; its log has the request " + x.id + "."}
	}
	if known.status == http.StatusUnauthorized {
		Challenge(x, r)
	}
	Refuse(x, known.status, known.code, known.reason)
}

// Challenge asks for basic authentication, unless the client is a script in a
// page, where browsers would open a dialog over it.
func Challenge(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") == "" && r.Header.Get("X-Requested-With") == "" {
		w.Header().Set("Www-Authenticate", `Basic realm="server"`)
	}
}

// route finds the handler: a pattern's, or the rest's, which gets paths as
// they were sent.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	pattern := ""
	if (s.anyPath || s.segments[firstSegment(r.URL.Path)]) && cleanPath(r.URL.Path) {
		_, pattern = s.mux.Handler(r)
	}
	switch {
	case pattern != "":
		s.mux.ServeHTTP(w, r)
	case s.rest != nil:
		s.rest.ServeHTTP(w, r)
	default:
		Refuse(w, http.StatusNotFound, "not_found", "There is nothing at this path.")
	}
}

// firstSegment is "a" of "/a/b".
func firstSegment(path string) string {
	segment, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return segment
}

// cleanPath reports whether http.ServeMux would leave a path as it is.
func cleanPath(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return true
	}
	c := path.Clean(p)
	return c == p || c+"/" == p
}

// finish ends a request: panics, log, metrics.
func (x *exchange) finish(r *http.Request) {
	s := x.s
	s.metrics.inFlight.Dec()
	v := recover()
	abort := v == http.ErrAbortHandler
	if v != nil && !abort {
		s.log.ErrorContext(r.Context(), "handler panicked", "request", x.id, "door", x.door, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		if x.status == 0 {
			Refuse(x, http.StatusInternalServerError, "internal_server_error", "The server failed; its log has the request "+x.id+".")
		} else {
			abort = true // half an answer must not look like a whole one
		}
	}
	if x.status == 0 {
		x.status = http.StatusOK
	}
	took := time.Since(x.start)
	s.metrics.observe(x.door, r.Method, x.status, took)
	level := slog.LevelDebug
	if x.status >= 500 && x.status != http.StatusNotImplemented {
		level = slog.LevelWarn
	} else if s.live().logRequests {
		level = slog.LevelInfo
	}
	if s.log.Enabled(r.Context(), level) {
		name := ""
		if x.sess != nil {
			name = x.sess.Name
		}
		// Without the query: tokens may stand there.
		s.log.LogAttrs(r.Context(), level, "request", slog.String("request", x.id), slog.String("door", x.door), slog.String("method", r.Method),
			slog.String("path", r.URL.EscapedPath()), slog.Int("status", x.status), slog.Int64("bytes", x.bytes), slog.Duration("took", took),
			slog.String("user", name), slog.String("address", x.addr), slog.String("proto", r.Proto))
	}
	if abort {
		panic(http.ErrAbortHandler)
	}
}

// requestID takes over a well-formed id of the client's, or makes one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	ok := id != "" && len(id) <= 64
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	if ok {
		return id
	}
	return strconv.FormatUint(rand.Uint64()>>24, 16)
}

// client is the address of a request that is being answered.
func (s *Server) client(r *http.Request) string {
	if x := exchangeOf(r.Context()); x != nil {
		return x.addr
	}
	return s.address(r)
}

// address is the client's address: the connection's, or what a trusted proxy
// says it is. Of an IPv6 address it is the network that one customer has.
func (s *Server) address(r *http.Request) string {
	l := s.live()
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr // a test's, or a Unix socket's
	}
	addr := from.Addr().Unmap()
	if l.trusts(addr) {
		// From the right: what stands further left may be made up.
		hops := splitList(strings.Join(r.Header.Values("X-Forwarded-For"), ","))
		for i := len(hops) - 1; i >= 0 && l.trusts(addr); i-- {
			hop, err := netip.ParseAddr(hops[i])
			if err != nil {
				break
			}
			addr = hop.Unmap()
		}
	}
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}

func (l *live) trusts(a netip.Addr) bool {
	for _, p := range l.trustedProxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// secure reports whether the client came by TLS, to us or to a trusted proxy.
func (s *Server) secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && s.live().trusts(from.Addr().Unmap()) && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
