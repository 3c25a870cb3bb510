package clients

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/server"
	"github.com/osierdb/osier/server/couch"
)

// Environment: storeEnv makes the test binary a server on that store, to be
// killed; documentsEnv is how many documents each replica of the killing test
// writes.
const (
	storeEnv     = "OSIER_CLIENTS_STORE"
	addressEnv   = "OSIER_CLIENTS_ADDRESS"
	documentsEnv = "OSIER_CLIENTS_DOCUMENTS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(storeEnv); dir != "" {
		if err := serveForEver(dir, os.Getenv(addressEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func serveForEver(dir, address string) error {
	eng, err := engine.Open(dir, nil)
	if err != nil {
		return err
	}
	s, err := server.New(context.Background(), eng.Store, &server.Options{Doors: []server.Door{couch.New()},
		Admin: &server.Credentials{Name: user, Password: password}})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	return http.Serve(l, s.Handler())
}

// process is a child that is talked to by lines.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, in, bufio.NewReader(out)}
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	// It may have ended by itself.
	_ = p.Process.Kill()
	_ = p.Wait()
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	text, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", p.Args[1], err)
	}
	return strings.TrimSpace(text)
}

// tell sends a line and returns the answer.
func (p *process) tell(t *testing.T, line string) string {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		t.Fatal(err)
	}
	return p.line(t)
}

// Two PouchDBs write and sync through one server, which is killed again and
// again; in the end all three hold the same.
func TestSyncSurvivesKills(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while")
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("Node is not installed")
	}
	if _, err := os.Stat("node/node_modules/pouchdb"); err != nil {
		t.Skip("npm's clients are not installed: run npm install --no-package-lock in server/couch/clients/node")
	}
	documents := 600
	if n, err := strconv.Atoi(os.Getenv(documentsEnv)); err == nil {
		documents = n
	}
	seed := rand.Uint64()
	t.Logf("seed %d, %d documents a replica", seed, documents)
	rng := rand.New(rand.NewPCG(seed, 0))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	serverProcess := func() *process {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), storeEnv+"="+dir, addressEnv+"="+address)
		p := start(t, cmd)
		if got := p.line(t); got != "listening" {
			t.Fatalf("the server says %q", got)
		}
		return p
	}
	srv := serverProcess()
	url := "http://" + user + ":" + password + "@" + address + "/kill"
	req, err := http.NewRequest("PUT", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("create database: %v, %v", resp, err)
	}
	replica := func(name string, n int) *process {
		cmd := exec.Command("node", "replica.js", url, name, strconv.Itoa(n))
		cmd.Dir = "node"
		return start(t, cmd)
	}
	a, b := replica("a", documents), replica("b", documents)
	written := make(chan error, 2)
	for _, p := range []*process{a, b} {
		go func() {
			text, err := p.out.ReadString('\n')
			if err == nil && strings.TrimSpace(text) != "written" {
				err = errors.New("it says " + text)
			}
			written <- err
		}()
	}
	kills := 0
	for waiting := 2; waiting > 0; {
		select {
		case err := <-written:
			if err != nil {
				t.Fatalf("a replica: %v", err)
			}
			waiting--
		case <-time.After(time.Duration(200+rng.IntN(600)) * time.Millisecond):
			srv.kill()
			kills++
			srv = serverProcess()
		}
	}
	for _, p := range []*process{a, b, a, b} {
		p.tell(t, "sync")
	}
	r := replica("remote", 0)
	r.line(t)
	want := a.tell(t, "content")
	for name, p := range map[string]*process{"the other replica": b, "the server": r} {
		if got := p.tell(t, "content"); got != want {
			t.Errorf("%s holds %s, want %s", name, got, want)
		}
	}
	srv.kill()
	eng, err := engine.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	rep, err := eng.Check(context.Background(), func(p engine.Problem) { t.Errorf("check: %v", p) })
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d kills; %s; %d revisions", kills, want, rep.Revisions)
}
