// Command views measures views beside SQLite's indexes over json_extract, on the
// same documents in one process, and prints a table. Times are processor time of
// the process where it says CPU, which a busy machine changes least, else medians
// of wall time.
//
//	go run ./views -n 1000000 > views.md
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/bench/peers"
	"github.com/osierdb/osier/engine"
)

func main() {
	n := flag.Int("n", 1_000_000, "documents")
	dir := flag.String("dir", "", "folder for the stores; default: the system's temporary one")
	profile := flag.String("profile", "", "write CPU profiles of the build and the look-ups to files that begin so")
	flag.Parse()
	profiles = *profile
	if err := run(*n, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "views:", err)
		os.Exit(1)
	}
}

var (
	docs  = osier.NewCollection[osier.Raw]("docs")
	byKey = osier.NewFieldView[int, int]("by-key", "docs", &osier.FieldViewOptions{Keys: []string{"k"}, Value: "v", Reduce: "sum"})
	byHot = osier.NewFieldView[string, int]("by-hot", "docs", &osier.FieldViewOptions{Keys: []string{"h"}, Value: "v", Reduce: "sum"})
	few   = osier.NewCollection[osier.Raw]("few")
	byFew = osier.NewFieldView[int, int]("by-few", "few", &osier.FieldViewOptions{Keys: []string{"k"}, Value: "v", Reduce: "sum"})
)

// body is document i of some 200 bytes; keys are a permutation of the numbers.
func body(i, n int, hot string) []byte {
	key := int(uint64(i) * 2654435761 % uint64(n))
	b := fmt.Appendf(nil, `{"id":%d,"k":%d,"h":%q,"v":%d,"pad":"`, i, key, hot, i%1000)
	return append(append(b, strings.Repeat("x", max(1, 198-len(b)))...), `"}`...)
}

// profiles is the beginning of the profiles' names; empty: none are wanted.
var profiles string

// profiled runs fn and, if that is wanted, writes its profile.
func profiled(name string, fn func() error) error {
	if profiles == "" {
		return fn()
	}
	return peers.Profile(profiles+name, fn)
}

// spent measures fn.
func spent(fn func() error) (wall, busy time.Duration, err error) {
	began, before := time.Now(), peers.CPUTime()
	err = fn()
	return time.Since(began), peers.CPUTime() - before, err
}

// medianOf measures fn times times.
func medianOf(times int, fn func(i int) (time.Duration, error)) (time.Duration, error) {
	all := make([]time.Duration, times)
	for i := range all {
		var err error
		if all[i], err = fn(i); err != nil {
			return 0, err
		}
	}
	slices.Sort(all)
	return all[times/2], nil
}

func timed(fn func() error) (time.Duration, error) {
	began := time.Now()
	err := fn()
	return time.Since(began), err
}

type bench struct {
	ctx context.Context
	n   int
	e   *engine.Engine
	db  *osier.DB
	sq  *sql.DB
}

func run(n int, dir string) (err error) {
	if dir, err = os.MkdirTemp(dir, "osier-views-"); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	e, err := engine.Open(filepath.Join(dir, "osier"), &engine.Options{Durability: osier.Buffered, CacheBytes: 1 << 30})
	if err != nil {
		return err
	}
	defer e.Close()
	b := &bench{ctx: context.Background(), n: n, e: e}
	if b.db, err = e.CreateDB(b.ctx, "bench"); err != nil {
		return err
	}
	if b.sq, err = sql.Open("sqlite3", filepath.Join(dir, "sqlite.db")+"?_journal=WAL&_sync=NORMAL&_cache_size=-1048576"); err != nil {
		return err
	}
	defer b.sq.Close()
	b.sq.SetMaxOpenConns(1)
	fmt.Printf("%d documents of 200 B\n\n| what | measured |\n|---|---|\n", n)
	for _, step := range []func() error{b.fill, b.build, b.update, b.reduce, b.lookUp, b.hotKey} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) fill() error {
	if err := b.fillOsier(docs, b.n); err != nil {
		return err
	}
	if err := b.fillOsier(few, b.n/100); err != nil {
		return err
	}
	if _, err := b.sq.Exec("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)"); err != nil {
		return err
	}
	for i := 0; i < b.n; {
		tx, err := b.sq.Begin()
		if err != nil {
			return err
		}
		ins, err := tx.Prepare("INSERT INTO t VALUES (?, ?)")
		if err != nil {
			return err
		}
		for end := min(b.n, i+10_000); i < end; i++ {
			if _, err := ins.Exec(i, string(body(i, b.n, "hot"))); err != nil {
				return err
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) fillOsier(c *osier.Collection[osier.Raw], n int) error {
	for i := 0; i < n; {
		var batch osier.Batch
		for end := min(n, i+1000); i < end; i++ {
			if _, err := c.InsertWithID(b.ctx, &batch, i, osier.Raw(body(i, n, "hot"))); err != nil {
				return err
			}
		}
		if _, err := b.db.Commit(b.ctx, &batch); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) define(items ...osier.SchemaItem) error {
	s := osier.NewStore(b.db.Backend(), nil)
	_, err := s.OpenDB(b.ctx, "bench", osier.Schema(items...))
	return err
}

func (b *bench) build() error {
	if err := b.define(byKey, byHot, byFew); err != nil {
		return err
	}
	wall, busy, err := spent(func() error {
		return profiled("build", func() error { return byKey.Refresh(b.ctx, b.db) })
	})
	if err != nil {
		return err
	}
	sqWall, sqBusy, err := spent(func() error {
		_, err := b.sq.Exec("CREATE INDEX t_k ON t (json_extract(body, '$.k'))")
		return err
	})
	if err != nil {
		return err
	}
	rate := func(d time.Duration) float64 { return float64(b.n) / d.Seconds() / 1000 }
	fmt.Printf("| build: thousand documents a second and core (CPU) | %.0f; SQLite's CREATE INDEX %.0f: %.2fx |\n", rate(busy), rate(sqBusy), rate(busy)/rate(sqBusy))
	fmt.Printf("| build: wall | %v; SQLite %v: %.2fx |\n", wall.Round(time.Millisecond), sqWall.Round(time.Millisecond), sqWall.Seconds()/wall.Seconds())
	for _, refresh := range []func(context.Context, *osier.DB) error{byHot.Refresh, byFew.Refresh} {
		if err := refresh(b.ctx, b.db); err != nil {
			return err
		}
	}
	// What the store does behind a build is over when the reads are timed.
	return b.e.Compact(b.ctx)
}

// change writes one document, with a number of its own behind the others.
func (b *bench) change(i int, hot string) error {
	_, err := docs.Upsert(b.ctx, b.db, b.n+i, osier.Raw(body(b.n+i, b.n, hot)))
	return err
}

func (b *bench) update() error {
	d, err := medianOf(200, func(i int) (time.Duration, error) {
		if err := b.change(i, "update"); err != nil {
			return 0, err
		}
		return timed(func() error { return byKey.Refresh(b.ctx, b.db) })
	})
	fmt.Printf("| bring up to date after 1 change | %v |\n", d)
	return err
}

func (b *bench) reduce() error {
	half := func(v *osier.View[int, int], n int) (time.Duration, error) {
		const times = 1000
		_, busy, err := spent(func() error {
			return profiled(fmt.Sprint("reduce", n), func() error {
				for range times {
					from := rand.IntN(n / 2)
					if _, err := v.Reduce(b.ctx, b.db, osier.From(from), osier.Below(from+n/2)); err != nil {
						return err
					}
				}
				return nil
			})
		})
		return busy / times, err
	}
	for _, v := range []*osier.View[int, int]{byKey, byFew} {
		if _, err := half(v, b.n/100); err != nil { // warm
			return err
		}
	}
	large, err := half(byKey, b.n)
	if err != nil {
		return err
	}
	small, err := half(byFew, b.n/100)
	fmt.Printf("| reduce half of %d rows, of %d, CPU | %v, %v: %.2fx |\n", b.n, b.n/100, large, small, large.Seconds()/small.Seconds())
	return err
}

func (b *bench) lookUp() error {
	const times = 20_000
	keys := make([]int, times)
	for i := range keys {
		keys[i] = rand.IntN(b.n)
	}
	sel, err := b.sq.Prepare("SELECT body FROM t WHERE json_extract(body, '$.k') = ?")
	if err != nil {
		return err
	}
	own := func() error {
		for _, k := range keys {
			found := false
			for j, err := range osier.Join(b.ctx, b.db, byKey, docs, osier.Key(k)) {
				if err != nil {
					return err
				}
				found = found || len(j.Doc.Value) > 0
			}
			if !found {
				return fmt.Errorf("no document of key %d", k)
			}
		}
		return nil
	}
	theirs := func() error {
		for _, k := range keys {
			var body []byte
			if err := sel.QueryRow(k).Scan(&body); err != nil {
				return err
			}
		}
		return nil
	}
	var ours, sqlite time.Duration
	for round := range 4 {
		_, a, err := spent(func() error { return profiled("lookup", own) })
		if err != nil {
			return err
		}
		_, c, err := spent(theirs)
		if err != nil {
			return err
		}
		if round > 0 { // the first one warms the caches
			ours, sqlite = ours+a, sqlite+c
		}
	}
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / (3 * times) / 1000 }
	fmt.Printf("| look up a key with its document, CPU | %.1f us; SQLite's indexed SELECT %.1f us: %.2fx |\n", per(ours), per(sqlite), per(sqlite)/per(ours))
	return nil
}

// hotKey adds a row to a key of many rows and one to a key of none by turns.
func (b *bench) hotKey() error {
	const times = 600
	var busy [2]time.Duration
	for i := range 2 * times {
		hot := "hot"
		if i%2 == 1 {
			hot = fmt.Sprint("empty", i)
		}
		if err := b.change(1000+i, hot); err != nil {
			return err
		}
		_, d, err := spent(func() error { return byHot.Refresh(b.ctx, b.db) })
		if err != nil {
			return err
		}
		busy[i%2] += d
	}
	fmt.Printf("| one more row on a key of %d rows, on an empty key, CPU | %v, %v: %.2fx |\n", b.n, busy[0]/times, busy[1]/times, busy[0].Seconds()/busy[1].Seconds())
	return nil
}
