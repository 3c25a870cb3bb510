//go:build cgo

// Command find measures Osier's selectors beside SQLite's json_extract over the
// same documents, in one interleaved run, and prints Markdown.
//
//	go run ./cmd/find              100,000 documents of about 200 bytes, some two minutes
//	go run ./cmd/find -docs 1000000
//
// Times are processor time of the whole process, the median of the rounds; both
// stores are read whole before. The last part measures how long point gets take
// while 16 goroutines scan all documents without end.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	_ "github.com/mattn/go-sqlite3" // the driver "sqlite3"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/bench/peers"
	"github.com/osierdb/osier/engine"
)

func main() {
	log.SetFlags(0)
	docs := flag.Int("docs", 100_000, "documents of the large collection")
	rounds := flag.Int("rounds", 7, "rounds that medians are taken over")
	dir := flag.String("dir", os.TempDir(), "folder for the stores")
	storm := flag.Duration("storm", 5*time.Second, "how long gets are measured beside scans; 0: not at all")
	flag.StringVar(&profiles, "profile", "", "write CPU profiles of Osier's scans and look-ups to files that begin so")
	flag.Parse()
	if err := run(*dir, *docs, *rounds, *storm); err != nil {
		log.Fatal("find: ", err)
	}
}

// pair is the same documents in both stores.
type pair struct {
	eng   *engine.Engine
	db    *osier.DB
	lite  *sql.DB
	docs  int
	fresh int // ids of gets go round
}

var posts = osier.NewCollection[osier.Raw]("posts")

// post is a document of about 200 bytes, the members looked at in its midst.
func post(i int) []byte {
	return fmt.Appendf(nil, `{"type":"post","title":"Notes on number %d","author":"Ada %d","words":%d,"score":%d.%d,"city":"Oslo","address":{"zip":"0%d","lat":59.%d},"draft":false,"key":"k%07d"}`,
		i, i%50, i%1000, i%10, i%10, 100+i%900, i%100, (i*7919)%10_000_000)
}

func run(dir string, docs, rounds int, storm time.Duration) (err error) {
	if dir, err = os.MkdirTemp(dir, "osier-find-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Printf("%d processors, %d rounds.\n\n| workload | unit | osier | sqlite | sqlite / osier |\n|---|---|---|---|---|\n", runtime.GOMAXPROCS(0), rounds)
	for _, n := range []int{5000, docs} {
		if err := measure(filepath.Join(dir, fmt.Sprint(n)), n, rounds, storm, n == docs); err != nil {
			return err
		}
	}
	return nil
}

func measure(dir string, docs, rounds int, storm time.Duration, large bool) (err error) {
	p, err := open(dir, docs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.eng.Close(), p.lite.Close()) }()
	scans := []struct{ name, selector, where string }{
		{"equal", `{"city":"Bergen"}`, `json_extract(doc, '$.city') = 'Bergen'`},
		{"range", `{"score":{"$gt":9.8}}`, `json_extract(doc, '$.score') > 9.8`},
		{"nested", `{"address.lat":{"$gte":59.995}}`, `json_extract(doc, '$.address.lat') >= 59.995`},
		{"three conditions", `{"type":"post","words":{"$gt":998},"draft":false}`,
			`json_extract(doc, '$.type') = 'post' AND json_extract(doc, '$.words') > 998 AND json_extract(doc, '$.draft') = 0`},
	}
	for _, s := range scans {
		var ours, theirs []float64
		for range rounds {
			a, n, err := cpu(func() (int, error) { return p.find(s.selector) })
			if err != nil {
				return err
			}
			b, m, err := cpu(func() (int, error) { return p.count("SELECT id, doc FROM posts WHERE " + s.where) })
			if err != nil {
				return err
			}
			if n != m {
				return fmt.Errorf("%s: osier finds %d, sqlite %d", s.name, n, m)
			}
			ours, theirs = append(ours, a/float64(docs)), append(theirs, b/float64(docs))
		}
		report(fmt.Sprintf("scan %d, %s", docs, s.name), "ns a document, CPU", ours, theirs)
	}
	if err := profiled(fmt.Sprint("scan", docs), 2*time.Second, func() error {
		_, err := p.find(scans[0].selector)
		return err
	}); err != nil || !large {
		return err
	}
	if err := p.index(); err != nil {
		return err
	}
	const gets = 2000
	var ours, theirs []float64
	for range rounds {
		a, n, err := cpu(func() (int, error) { return p.lookups(gets) })
		if err != nil {
			return err
		}
		b, m, err := cpu(func() (int, error) { return p.lookupsLite(gets) })
		if err != nil || n != m {
			return errors.Join(err, fmt.Errorf("look-ups: osier finds %d, sqlite %d", n, m))
		}
		ours, theirs = append(ours, a/gets), append(theirs, b/gets)
	}
	report(fmt.Sprintf("look up 1 of %d by indexed field, with the document", docs), "ns a look-up, CPU", ours, theirs)
	if err := profiled("lookups", 2*time.Second, func() error {
		_, err := p.lookups(gets)
		return err
	}); err != nil || storm == 0 {
		return err
	}
	return p.storm(storm)
}

// profiles is the beginning of the profiles' names; empty: none are wanted.
var profiles string

// profiled runs f again and again for a while and writes its profile.
func profiled(name string, d time.Duration, f func() error) error {
	if profiles == "" {
		return nil
	}
	return peers.Profile(profiles+name, func() error {
		for end := time.Now().Add(d); time.Now().Before(end); {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	})
}

func open(dir string, docs int) (*pair, error) {
	ctx := context.Background()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p := &pair{docs: docs}
	var err error
	if p.eng, err = engine.Open(filepath.Join(dir, "osier"), &engine.Options{CacheBytes: peers.CacheBytes}); err != nil {
		return nil, err
	}
	if p.db, err = p.eng.DB(ctx, "bench"); err != nil {
		return nil, err
	}
	if p.lite, err = sql.Open("sqlite3", fmt.Sprintf("file:%s?_journal_mode=WAL&_cache_size=-%d", filepath.Join(dir, "rows.sqlite"), peers.CacheBytes>>10)); err != nil {
		return nil, err
	}
	p.lite.SetMaxOpenConns(1)
	if _, err = p.lite.Exec("CREATE TABLE posts (id TEXT PRIMARY KEY, doc TEXT NOT NULL)"); err != nil {
		return nil, err
	}
	for from := 0; from < docs; from += 5000 {
		tx, err := p.lite.Begin()
		if err != nil {
			return nil, err
		}
		var b osier.Batch
		for i := from; i < min(from+5000, docs); i++ {
			id, body := fmt.Sprintf("post-%08d", i), post(i)
			_, err1 := posts.InsertWithID(ctx, &b, id, body)
			_, err2 := tx.Exec("INSERT INTO posts VALUES (?, ?)", id, string(body))
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
		}
		if _, err := p.db.Commit(ctx, &b); err != nil {
			return nil, err
		}
		if err := tx.Commit(); err != nil {
			return nil, err
		}
	}
	for range 2 { // what is measured is warm
		_, err1 := p.find(`{"nowhere":1}`)
		_, err2 := p.count("SELECT id, doc FROM posts WHERE json_extract(doc, '$.nowhere') = 1")
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// cpu is the processor time of f.
func cpu(f func() (int, error)) (nanos float64, n int, err error) {
	runtime.GC()
	start := peers.CPUTime()
	n, err = f()
	return float64(peers.CPUTime() - start), n, err
}

func (p *pair) find(selector string) (n int, err error) {
	for _, err := range p.db.Find(context.Background(), "posts", osier.Mango(selector), &osier.FindOptions{UseIndex: "_id"}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (p *pair) count(query string, args ...any) (n int, err error) {
	rows, err := p.lite.Query(query, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var id, doc string
	for rows.Next() {
		if err := rows.Scan(&id, &doc); err != nil {
			return n, err
		}
		n++
	}
	return n, rows.Err()
}

// index makes an index of the same field in both.
func (p *pair) index() error {
	ctx := context.Background()
	if _, err := p.db.CreateIndex(ctx, osier.Index{Name: "by-key", Collection: "posts", Fields: []osier.SortField{osier.Asc("key")}}); err != nil {
		return err
	}
	for _, err := range p.db.Query(ctx, &osier.Query{Kind: osier.QueryRefresh, Collection: "posts", View: &osier.ViewQuery{Name: "by-key"}}) {
		if err != nil {
			return err
		}
	}
	_, err := p.lite.Exec("CREATE INDEX by_key ON posts (json_extract(doc, '$.key'))")
	return err
}

func (p *pair) key(i int) string { return fmt.Sprintf("k%07d", ((i*104729)%p.docs*7919)%10_000_000) }

func (p *pair) lookups(n int) (found int, err error) {
	for i := range n {
		for _, err := range p.db.Find(context.Background(), "posts", osier.Mango(`{"key":"`+p.key(i)+`"}`), nil) {
			if err != nil {
				return found, err
			}
			found++
		}
	}
	return found, nil
}

func (p *pair) lookupsLite(n int) (found int, err error) {
	for i := range n {
		m, err := p.count("SELECT id, doc FROM posts WHERE json_extract(doc, '$.key') = ?", p.key(i))
		if err != nil {
			return found, err
		}
		found += m
	}
	return found, nil
}

// storm measures gets alone on one processor, and beside scans on all of them.
func (p *pair) storm(d time.Duration) error {
	all := runtime.GOMAXPROCS(1)
	idle, err := p.gets(d)
	runtime.GOMAXPROCS(all)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	scans := 0
	var mu sync.Mutex
	for range 16 {
		wg.Go(func() {
			for ctx.Err() == nil {
				for range p.db.Find(ctx, "posts", osier.Mango(`{"city":"Bergen"}`), &osier.FindOptions{UseIndex: "_id"}) {
				}
				mu.Lock()
				scans++
				mu.Unlock()
			}
		})
	}
	busy, err := p.gets(d)
	cancel()
	wg.Wait()
	fmt.Printf("\nGets of one document, wall time, %v each:\n\n| | p50 | p99 | p99.9 |\n|---|---|---|---|\n", d)
	for _, row := range []struct {
		name  string
		times []time.Duration
	}{{"alone, GOMAXPROCS=1", idle}, {fmt.Sprintf("beside 16 goroutines that scan (%d scans ended), GOMAXPROCS=%d", scans, all), busy}} {
		at := func(q float64) time.Duration { return row.times[int(q*float64(len(row.times)-1))] }
		fmt.Printf("| %s | %v | %v | %v |\n", row.name, at(0.5), at(0.99), at(0.999))
	}
	return err
}

func (p *pair) gets(d time.Duration) ([]time.Duration, error) {
	var times []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end); {
		p.fresh++
		start := time.Now()
		if _, err := posts.Get(context.Background(), p.db, fmt.Sprintf("post-%08d", p.fresh*7919%p.docs)); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times, nil
}

func report(name, unit string, ours, theirs []float64) {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = theirs[i] / ours[i]
	}
	fmt.Printf("| %s | %s | %.0f | %.0f | %.2fx |\n", name, unit, median(ours), median(theirs), median(ratios))
}

func median(list []float64) float64 {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}
