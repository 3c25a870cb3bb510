package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

// pipes is a listener whose connections are pipes in memory, so that a test's
// clock governs their deadlines.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

// served runs a server on pipes, in a bubble, until the test's function ends.
func served(t *testing.T, o *Options, test func(b *bench, p *pipes, stop func() error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		eng, err := engine.Open("", &engine.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		defer eng.Close()
		b := benchOn(t, eng.Store, o)
		defer b.s.Close()
		p := newPipes()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- b.s.Serve(ctx, p, nil) }()
		stopped := false
		stop := func() error {
			stopped = true
			cancel()
			return <-ended
		}
		test(b, p, stop)
		if !stopped {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// readAll reads until the other end closes.
func readAll(c net.Conn) string {
	b, _ := io.ReadAll(c) // the text tells how far it came
	return string(b)
}

// A client that does not send its header, or sends it by drops, is dropped.
func TestSlowHeadersAreDropped(t *testing.T) {
	served(t, nil, func(b *bench, p *pipes, _ func() error) {
		for name, drip := range map[string]string{"silent": "", "dripping": "GET / HTTP/1.1\r\nHost: x\r\n"} {
			c := p.dial()
			start := time.Now()
			var ends sync.WaitGroup
			ends.Go(func() {
				for i := range len(drip) {
					if _, err := c.Write([]byte{drip[i]}); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			})
			readAll(c)
			if took := time.Since(start); took > headerTimeout+time.Second {
				b.t.Errorf("%s: dropped after %v", name, took)
			}
			c.Close()
			ends.Wait()
		}
	})
}

func TestLargeHeadersAreRefused(t *testing.T) {
	served(t, nil, func(b *bench, p *pipes, _ func() error) {
		c := p.dial()
		go func() {
			// The server may close while this is being sent.
			_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n", strings.Repeat("a", 2*maxHeaderBytes))
		}()
		if got := readAll(c); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
			b.t.Errorf("want 431, got %.80q", got)
		}
	})
}

// A body that stalls, or trickles, ends with an error after its time; one that
// flows may take as long as it needs.
func TestSlowBodies(t *testing.T) {
	type outcome struct {
		n    int64
		err  error
		took time.Duration
	}
	for name, c := range map[string]struct {
		chunk, count int // what is sent
		length       int // what is promised
		pause        time.Duration
		within       time.Duration
	}{
		"stalled":   {100, 1, 200, 0, 61 * time.Second},
		"trickling": {1, 1000, 1000, 10 * time.Second, 3 * time.Minute},
		"flowing":   {10_000, 100, 1_000_000, 20 * time.Second, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			served(t, nil, func(b *bench, p *pipes, _ func() error) {
				got := make(chan outcome, 1)
				b.door.handle = func(w http.ResponseWriter, r *http.Request) {
					start := time.Now()
					n, err := io.Copy(io.Discard, r.Body)
					got <- outcome{n, err, time.Since(start)}
				}
				conn := p.dial()
				var ends sync.WaitGroup
				ends.Go(func() { io.Copy(io.Discard, conn) })
				ends.Go(func() {
					fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", c.length)
					for range c.count {
						if _, err := conn.Write(make([]byte, c.chunk)); err != nil {
							return
						}
						time.Sleep(c.pause)
					}
				})
				o := <-got
				whole := c.chunk*c.count == c.length && c.chunk > 1
				if (o.err == nil) != whole || o.err != nil && osier.KindOf(o.err) != osier.KindCanceled || o.took > c.within {
					b.t.Errorf("got %d bytes, %v, after %v", o.n, o.err, o.took)
				}
				conn.Close()
				ends.Wait()
			})
		})
	}
}

// A client that takes nothing of its answer does not hold the handler.
func TestClientsThatDoNotReadAreDropped(t *testing.T) {
	served(t, nil, func(b *bench, p *pipes, _ func() error) {
		ended := make(chan error, 1)
		b.door.handle = func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					ended <- err
					return
				}
			}
		}
		c := p.dial()
		defer c.Close()
		start := time.Now()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) > 2*time.Minute {
			b.t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

// A long wait is no slow client: deadlines do not end it, heartbeats reach
// the client, a vanished client ends it, and so does a stop, cleanly.
func TestWaitingRequests(t *testing.T) {
	served(t, nil, func(b *bench, p *pipes, stop func() error) {
		causes := make(chan error, 1)
		b.door.handle = func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				panic(err)
			}
			ctx, release, err := b.door.Wait(r.Context())
			if err != nil {
				panic(err)
			}
			defer release()
			for {
				select {
				case <-ctx.Done():
					causes <- context.Cause(ctx)
					io.WriteString(w, "end")
					return
				case <-time.After(10 * time.Second):
					io.WriteString(w, "\n")
					w.(http.Flusher).Flush()
				}
			}
		}
		c := p.dial()
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		in := bufio.NewReader(c)
		for beats := 0; beats < 60; {
			line, err := in.ReadString('\n')
			if err != nil {
				b.t.Fatalf("after %d heartbeats: %v", beats, err)
			}
			if line == "\n" {
				beats++
			}
		}
		c.Close()
		if err := <-causes; !errors.Is(err, context.Canceled) {
			b.t.Errorf("vanished client: got %v", err)
		}
		c = p.dial()
		text := make(chan string)
		go func() { text <- readAll(c) }()
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		time.Sleep(15 * time.Second)
		if err := stop(); err != nil {
			b.t.Error(err)
		}
		if err := <-causes; err != ErrStopping {
			b.t.Errorf("stop: want %v, got %v", ErrStopping, err)
		}
		if got := <-text; !strings.HasSuffix(got, "end\r\n0\r\n\r\n") {
			b.t.Errorf("want a regular end, got %q", got)
		}
	})
}

// A request that does not end is cut off when the stop has waited long enough.
func TestAStopDoesNotWaitForEver(t *testing.T) {
	served(t, &Options{DrainTimeout: 3 * time.Second}, func(b *bench, p *pipes, stop func() error) {
		gone := make(chan struct{})
		b.door.handle = func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done() // what it does not look at is the stop
			close(gone)
		}
		c := p.dial()
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		start := time.Now()
		if err := stop(); err != nil {
			b.t.Error(err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 5*time.Second {
			b.t.Errorf("want it within its time, got %v", took)
		}
		<-gone
	})
}

// A client that has closed its sending side counts as gone, and nothing of
// the request is left.
func TestHalfClosedClients(t *testing.T) {
	b := newBench(t, nil)
	gone := make(chan struct{}, 1)
	b.door.handle = func(_ http.ResponseWriter, r *http.Request) {
		ctx, release, err := b.door.Wait(r.Context())
		if err != nil {
			panic(err)
		}
		defer release()
		<-ctx.Done()
		gone <- struct{}{}
	}
	ln, stop := b.listen(nil)
	defer stop()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-gone
}

// listen serves on a loopback address until stop.
func (b *bench) listen(certs *tls.Config) (net.Listener, func()) {
	b.t.Helper()
	ln, err := Listen(b.t.Context(), "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.s.Serve(ctx, ln, certs) }()
	return ln, func() {
		b.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}
}

func TestBodiesHaveALimit(t *testing.T) {
	b := newBench(t, &Options{Settings: map[string]Given{"limits.body": {"2000", SourceFile}}})
	var kind osier.Kind
	b.door.handle = func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		kind = osier.KindOf(err)
		if err != nil {
			Refuse(w, http.StatusRequestEntityTooLarge, "too_large", err.Error())
		}
	}
	ln, stop := b.listen(nil)
	defer stop()
	url := "http://" + ln.Addr().String() + "/"
	for _, c := range []struct {
		size, want int
		chunked    bool
	}{{2000, 200, false}, {2001, 413, false}, {2000, 200, true}, {2001, 413, true}} {
		kind = 255
		var body io.Reader = strings.NewReader(strings.Repeat("x", c.size))
		if c.chunked {
			body = io.MultiReader(body)
		}
		res, err := http.Post(url, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.want || c.want == 413 && !strings.Contains(string(text), "limits.body") {
			t.Errorf("%+v: got %d %s", c, res.StatusCode, text)
		}
		if c.chunked && c.want == 413 && kind != osier.KindTooLarge {
			t.Errorf("%+v: want KindTooLarge, got %v", c, kind)
		}
	}
}

func TestRequestRates(t *testing.T) {
	b := newBench(t, &Options{Settings: map[string]Given{"limits.requests": {"0.001", SourceFile}, "limits.burst": {"3", SourceFile}}})
	for i, c := range []struct {
		user, addr string
		want       int
	}{
		{"", "10.0.0.1:1", 200}, {"", "10.0.0.1:2", 200}, {"", "10.0.0.1:3", 200}, {"", "10.0.0.1:4", 429},
		{"root", "10.0.0.1:5", 200}, {"", "10.0.0.2:1", 200},
		{"", "[2001:db8::1]:1", 200}, {"", "[2001:db8::2]:1", 200}, {"", "[2001:db8::3]:1", 200}, {"", "[2001:db8::4]:1", 429},
	} {
		w := b.do(request{path: "/", user: c.user, password: "secret-of-root", addr: c.addr})
		if w.Code != c.want || (w.Code == 429) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("%d: want %d, got %d %v", i, c.want, w.Code, w.Header())
		}
	}
}

func TestAddressesBehindProxies(t *testing.T) {
	b := newBench(t, &Options{Settings: map[string]Given{"net.trusted_proxies": {"10.0.0.0/8, 192.0.2.7", SourceFile}}})
	for _, c := range []struct{ remote, forwarded, want string }{
		{"203.0.113.5:1", "1.2.3.4", "203.0.113.5"},
		{"10.0.0.1:1", "1.2.3.4", "1.2.3.4"},
		{"10.0.0.1:1", "6.6.6.6, 1.2.3.4, 192.0.2.7", "1.2.3.4"},
		{"10.0.0.1:1", "", "10.0.0.1"},
		{"10.0.0.1:1", "rubbish", "10.0.0.1"},
		{"[::ffff:10.0.0.1]:1", "1.2.3.4", "1.2.3.4"},
		{"[2001:db8:1:2:3::4]:1", "", "2001:db8:1:2::/64"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": {c.forwarded}}}
		if got := b.s.address(r); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// A handler's panic ends its request only: with an answer, or, where one has
// begun, with a cut connection.
func TestPanicsEndOneRequest(t *testing.T) {
	b := newBench(t, nil)
	ln, stop := b.listen(nil)
	defer stop()
	url := "http://" + ln.Addr().String() + "/"
	b.door.handle = func(w http.ResponseWriter, r *http.Request) { panic("broken invariant") }
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "my-request.7")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 500 || strings.Contains(string(text), "invariant") || res.Header.Get("X-Request-Id") != "my-request.7" {
		t.Errorf("got %d %s %v", res.StatusCode, text, res.Header)
	}
	if log := b.log.String(); !strings.Contains(log, "broken invariant") || !strings.Contains(log, "my-request.7") {
		t.Errorf("want the panic with its request in the log, got %s", log)
	}
	b.door.handle = func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("half"))
		w.(http.Flusher).Flush()
		panic("broken invariant")
	}
	if res, err = http.Get(url); err == nil {
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	if err == nil {
		t.Error("half an answer looks like a whole one")
	}
}

// HTTP/2, by TLS and without it.
func TestHTTP2(t *testing.T) {
	b := newBench(t, nil)
	b.door.handle = func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }
	certs, print, err := b.s.TLSSelfMade(t.Context(), "db.example.org", "192.0.2.9")
	if err != nil {
		t.Fatal(err)
	}
	again, samePrint, err := b.s.TLSSelfMade(t.Context(), "db.example.org")
	if err != nil || print != samePrint || again == nil {
		t.Errorf("want the certificate kept, got %s and %s, %v", print, samePrint, err)
	}
	if _, other, err := b.s.TLSSelfMade(t.Context(), "other.example.org"); err != nil || other == print {
		t.Errorf("want another for other hosts, got %s, %v", other, err)
	}
	c, err := certs.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c.Leaf)
	for _, host := range []string{"localhost", "127.0.0.1", "db.example.org", "192.0.2.9"} {
		if err := c.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	secure, stopSecure := b.listen(certs)
	defer stopSecure()
	plain, stopPlain := b.listen(nil)
	defer stopPlain()
	for name, c := range map[string]struct {
		url, want string
		set       func(*http.Protocols)
	}{
		"tls 2":   {"https://" + secure.Addr().String(), "HTTP/2.0", func(p *http.Protocols) { p.SetHTTP2(true) }},
		"tls 1":   {"https://" + secure.Addr().String(), "HTTP/1.1", func(p *http.Protocols) { p.SetHTTP1(true) }},
		"plain 2": {"http://" + plain.Addr().String(), "HTTP/2.0", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }},
		"plain 1": {"http://" + plain.Addr().String(), "HTTP/1.1", func(p *http.Protocols) { p.SetHTTP1(true) }},
	} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: new(http.Protocols)}
		c.set(tr.Protocols)
		res, err := (&http.Client{Transport: tr}).Get(c.url)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(text) != c.want {
			t.Errorf("%s: want %s, got %s", name, c.want, text)
		}
		tr.CloseIdleConnections()
	}
}

// A certificate's files are read again after a renewal; half-written ones
// change nothing.
func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "both.pem")
	write := func(text []byte, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	first, err := makeCertificate([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := makeCertificate([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TLSFromFiles(file, file); osier.KindOf(err) != osier.KindInvalid {
		t.Errorf("no file: got %v", err)
	}
	write(first, 3*time.Hour)
	f := &certFiles{cert: file, key: file}
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		f.checked = time.Time{}
		return f.get().Leaf.SerialNumber.String()
	}
	old := serial()
	write(second[:len(second)/2], 2*time.Hour)
	if got := serial(); got != old {
		t.Errorf("half-written: want the old one, got %s", got)
	}
	write(second, time.Hour)
	if got := serial(); got == old {
		t.Error("want the new one")
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1": true, "127.8.8.8": true, "::1": true, "0.0.0.0": false, "::": false, "192.168.1.1": false} {
		if got := Loopback(&net.TCPAddr{IP: net.ParseIP(addr)}); got != want {
			t.Errorf("%s: want %t, got %t", addr, want, got)
		}
	}
}
