// Command door measures the CouchDB door over loopback: server and generator
// share one process and its processors. Writes are durable; the disk's floor is
// probed beside them.
//
//	go run ./cmd/door [-dir DIR] [-seconds N] [-rows N] [-only ROW,...]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/bench/peers"
	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/server"
	"github.com/osierdb/osier/server/couch"
)

const (
	user     = "admin"
	password = "secret"
)

// bench is the server that is measured.
type bench struct {
	eng     *engine.Engine
	host    string
	seconds time.Duration
	rows    int
	turns   atomic.Int64 // operations of the generator so far
}

// processor returns a function that tells what an operation has cost the
// process since, generator and server together: unlike a rate it does not
// depend much on who else uses the machine.
func processor(turns *atomic.Int64) func() string {
	before, at := peers.CPUTime(), turns.Load()
	return func() string {
		n := turns.Load() - at
		return fmt.Sprintf("%v of processor each,", ((peers.CPUTime() - before) / time.Duration(max(n, 1))).Round(time.Microsecond))
	}
}

// groups returns a function that tells how many commands have shared a commit, and
// an fsync, since: what a writer waits for depends on who else arrives in time.
func (b *bench) groups(ctx context.Context) func() string {
	before, _ := b.eng.Stats(ctx) // an engine that is closing fails the row itself
	return func() string {
		now, _ := b.eng.Stats(ctx)
		n := float64(now.Commands - before.Commands)
		return fmt.Sprintf("%.1f commands a commit, %.1f an fsync", n/float64(max(now.Commits-before.Commits, 1)), n/float64(max(now.Syncs-before.Syncs, 1)))
	}
}

func main() {
	dir := flag.String("dir", "", "folder for the store, on the disk to be measured (default: a temporary one)")
	seconds := flag.Float64("seconds", 3, "how long a rate is measured")
	rows := flag.Int("rows", 20_000, "documents of the bulk and listing rows")
	polls := flag.Int("polls", 1000, "waiting long polls")
	only := flag.String("only", "", "the rows to run, of floor, embedded, puts, gets, bulk, listings, polls, scans (gets need puts, listings bulk, scans both)")
	profile := flag.String("cpuprofile", "", "write a processor profile of all rows to this file")
	flag.Parse()
	err := peers.Profile(*profile, func() error { return run(*dir, *only, *seconds, *rows, *polls) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "door:", err)
		os.Exit(1)
	}
}

func run(dir, only string, seconds float64, rows, polls int) error {
	ctx := context.Background()
	dir, err := os.MkdirTemp(dir, "osier-door-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	eng, err := engine.Open(dir+"/store", nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	s, err := server.New(ctx, eng.Store, &server.Options{Doors: []server.Door{couch.New()},
		Admin: &server.Credentials{Name: user, Password: password}})
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	hs := &http.Server{Handler: s.Handler()}
	go hs.Serve(l) // ends with Close
	defer hs.Close()
	b := &bench{eng: eng, host: l.Addr().String(), seconds: time.Duration(seconds * float64(time.Second)), rows: rows}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"floor", b.floor(dir)}, {"embedded", b.embedded}, {"puts", b.puts}, {"gets", b.gets}, {"bulk", b.bulk}, {"listings", b.listings},
		{"polls", func(ctx context.Context) error { return b.polls(ctx, polls) }}, {"scans", b.underScans},
	} {
		if only != "" && !slices.Contains(strings.Split(only, ","), step.name) {
			continue
		}
		if err := step.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) floor(dir string) func(context.Context) error {
	return func(context.Context) error {
		s, err := peers.Floor(dir, 2000)
		if err != nil {
			return err
		}
		fmt.Printf("floor: append 1 KiB + fdatasync           %8.0f /s\n", float64(s.Ops)/s.Elapsed.Seconds())
		return nil
	}
}

// document is 1 KiB of JSON.
func document(rng *rand.Rand, n int) []byte {
	pad := make([]byte, n-60)
	for i := range pad {
		pad[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[rng.IntN(36)]
	}
	return fmt.Appendf(nil, `{"n":%d,"pad":"%s"}`, rng.IntN(1<<30), pad)
}

const docBytes = 1 << 10

// clients runs fn on n connections until the time is over and returns the rate.
func (b *bench) clients(n int, fn func(c *conn, rng *rand.Rand, worker, turn int) error) (float64, []time.Duration, error) {
	var wg sync.WaitGroup
	var total atomic.Int64
	var first atomic.Pointer[error]
	times := make([][]time.Duration, n)
	began := time.Now()
	for w := range n {
		c, err := dial(b.host, user, password)
		if err != nil {
			return 0, nil, err
		}
		wg.Go(func() {
			defer c.close()
			rng := rand.New(rand.NewPCG(uint64(w), uint64(n)))
			for turn := 0; time.Since(began) < b.seconds; turn++ {
				at := time.Now()
				if err := fn(c, rng, w, turn); err != nil {
					first.CompareAndSwap(nil, &err)
					return
				}
				times[w] = append(times[w], time.Since(at))
				total.Add(1)
				b.turns.Add(1)
			}
		})
	}
	wg.Wait()
	rate := float64(total.Load()) / time.Since(began).Seconds()
	if err := first.Load(); err != nil {
		return 0, nil, *err
	}
	all := slices.Concat(times...)
	slices.Sort(all)
	return rate, all, nil
}

const writers = 64

func (b *bench) embedded(ctx context.Context) error {
	db, err := b.eng.CreateDB(ctx, "embedded")
	if err != nil {
		return err
	}
	docs := osier.NewCollection[osier.Raw](osier.DefaultCollection)
	var wg sync.WaitGroup
	var total atomic.Int64
	each, groups := processor(&b.turns), b.groups(ctx)
	began := time.Now()
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for i := 0; time.Since(began) < b.seconds; i++ {
				if _, err := docs.InsertWithID(ctx, db, fmt.Sprintf("d%03d-%08d", w, i), osier.Raw(document(rng, docBytes))); err != nil {
					errs[w] = err
					return
				}
				total.Add(1)
				b.turns.Add(1)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	fmt.Printf("embedded: insert 1 KiB, 64 writers        %8.0f /s   %s %s\n", float64(total.Load())/time.Since(began).Seconds(), each(), groups())
	return nil
}

// create makes a database through the door.
func (b *bench) create(name string) error {
	c, err := dial(b.host, user, password)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = c.do("PUT", "/"+name, []byte{}, io.Discard, 201)
	return err
}

func (b *bench) puts(ctx context.Context) error {
	if err := b.create("puts"); err != nil {
		return err
	}
	each, groups := processor(&b.turns), b.groups(ctx)
	rate, times, err := b.clients(writers, func(c *conn, rng *rand.Rand, w, i int) error {
		_, err := c.do("PUT", fmt.Sprintf("/puts/d%03d-%08d", w, i), document(rng, docBytes), io.Discard, 201)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("PUT 1 KiB, 64 clients                     %8.0f /s   %s p50 %v p99 %v, %s\n", rate, each(), percentile(times, 50), percentile(times, 99), groups())
	return nil
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*p/100))].Round(time.Microsecond)
}

const readers = 16

func (b *bench) get(c *conn, rng *rand.Rand, _, _ int) error {
	_, err := c.do("GET", fmt.Sprintf("/puts/d%03d-%08d", rng.IntN(writers), rng.IntN(20)), nil, io.Discard, 200)
	return err
}

func (b *bench) gets(context.Context) error {
	each := processor(&b.turns)
	rate, times, err := b.clients(readers, b.get)
	if err != nil {
		return err
	}
	fmt.Printf("GET 1 KiB, 16 clients                     %8.0f /s   %s p50 %v p99 %v\n", rate, each(), percentile(times, 50), percentile(times, 99))
	return nil
}

func (b *bench) bulk(context.Context) error {
	if err := b.create("bulk"); err != nil {
		return err
	}
	c, err := dial(b.host, user, password)
	if err != nil {
		return err
	}
	defer c.close()
	rng := rand.New(rand.NewPCG(1, 1))
	var bodies [][]byte
	for i := 0; i < b.rows; i += 1000 {
		var s strings.Builder
		s.WriteString(`{"docs":[`)
		for k := range 1000 {
			if k > 0 {
				s.WriteByte(',')
			}
			fmt.Fprintf(&s, `{"_id":"doc-%08d","type":"item","n":%d,"name":"item %d","tags":["a","b"],"price":%d.5}`, i+k, i+k, rng.IntN(1000), rng.IntN(100))
		}
		s.WriteString(`]}`)
		bodies = append(bodies, []byte(s.String()))
	}
	began := time.Now()
	for _, body := range bodies {
		if _, err := c.do("POST", "/bulk/_bulk_docs", body, io.Discard, 201); err != nil {
			return err
		}
	}
	fmt.Printf("_bulk_docs, %d by 1,000                %8.3f s\n", b.rows, time.Since(began).Seconds())
	return nil
}

func (b *bench) listings(context.Context) error {
	for _, path := range []string{"/bulk/_all_docs?include_docs=true", "/bulk/_all_docs", "/bulk/_changes", "/bulk/_changes?include_docs=true"} {
		c, err := dial(b.host, user, password)
		if err != nil {
			return err
		}
		best, size := time.Duration(1<<62), int64(0)
		for range 5 {
			began := time.Now()
			if size, err = c.do("GET", path, nil, io.Discard, 200); err != nil {
				return err
			}
			best = min(best, time.Since(began))
		}
		c.close()
		fmt.Printf("%-41s %8.3f s   %d bytes\n", path, best.Seconds(), size)
	}
	return nil
}

// polls measures from a write's answer until the last of n waiting long polls
// has been told.
func (b *bench) polls(_ context.Context, n int) error {
	if err := b.create("polls"); err != nil {
		return err
	}
	told := make([]time.Time, n)
	errs := make([]error, n)
	var ready, done sync.WaitGroup
	for i := range n {
		c, err := dial(b.host, user, password)
		if err != nil {
			return err
		}
		ready.Add(1)
		done.Go(func() {
			defer c.close()
			first := &begun{ready: &ready}
			_, errs[i] = c.do("GET", "/polls/_changes?feed=longpoll&since=now", nil, first, 200)
			told[i] = time.Now()
		})
	}
	ready.Wait()
	c, err := dial(b.host, user, password)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.do("PUT", "/polls/a", []byte(`{}`), io.Discard, 201); err != nil {
		return err
	}
	answered := time.Now()
	done.Wait()
	late := make([]time.Duration, n)
	for i := range n {
		if errs[i] != nil {
			return errs[i]
		}
		late[i] = told[i].Sub(answered)
	}
	slices.Sort(late)
	fmt.Printf("%d long polls told after a write        p50 %v, last %v\n", n, percentile(late, 50), late[n-1].Round(time.Microsecond))
	return nil
}

// begun tells of the first byte that is written to it.
type begun struct {
	ready *sync.WaitGroup
	once  sync.Once
}

func (b *begun) Write(p []byte) (int, error) {
	b.once.Do(b.ready.Done)
	return len(p), nil
}

// underScans compares the tail of GET with and without full scans beside it.
func (b *bench) underScans(ctx context.Context) error {
	_, idle, err := b.clients(4, b.get)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var scans sync.WaitGroup
	var rows atomic.Int64
	for range 2 {
		c, err := dial(b.host, user, password)
		if err != nil {
			stop()
			return err
		}
		scans.Go(func() {
			defer c.close()
			for ctx.Err() == nil {
				if _, err := c.do("GET", "/bulk/_all_docs?include_docs=true", nil, io.Discard, 200); err != nil {
					return
				}
				rows.Add(int64(b.rows))
			}
		})
	}
	_, busy, err := b.clients(4, b.get)
	stop()
	scans.Wait()
	if err != nil {
		return err
	}
	fmt.Printf("GET, 4 clients: p99.9 idle %v, under 2 full scans %v (%.1fx; p50 %v, %v; %d rows scanned)\n", percentile(idle, 99.9),
		percentile(busy, 99.9), float64(percentile(busy, 99.9))/float64(percentile(idle, 99.9)), percentile(idle, 50), percentile(busy, 50), rows.Load())
	return nil
}
