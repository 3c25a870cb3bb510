package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/osierdb/osier"
)

// kvEngine opens a store in memory with a database.
func kvEngine(t testing.TB) (*Engine, *osier.DB) {
	t.Helper()
	e := openMem(t, "shop")
	db, err := e.OpenDB(context.Background(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	return e, db
}

func TestSmoke(t *testing.T) {
	_, db := kvEngine(t)
	ctx := context.Background()
	n := db.KV("a")
	if err := n.Set(ctx, "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	e, err := n.Get(ctx, "k")
	fmt.Println(e, err)
	fmt.Println(n.Add(ctx, "n", 5))
	fmt.Println(n.List("l").PushBack(ctx, []byte("x"), []byte("y")))
	fmt.Println(n.List("l").Range(ctx, 0, -1))
	s := n.Sorted("z")
	for i := range 1000 {
		if _, err := s.Add(ctx, osier.KVItem{Name: fmt.Sprint(i), Score: float64(i % 100)}); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println(s.Rank(ctx, "555", false))
	for it, err := range s.Range(ctx, osier.KVRange{From: 555, To: 557}) {
		fmt.Println(it, err)
	}
	fmt.Println(s.CountScores(ctx, osier.KVRange{Min: 10, Max: 19}))
	fmt.Println(n.Count(ctx))
	l, err := n.Acquire(ctx, "lease", "me", 1e9)
	fmt.Println(l, err)
	_, err = n.Acquire(ctx, "lease", "me", 1e9)
	fmt.Println(err)
	err = db.Update(ctx, func(tx *osier.Tx) error {
		x := tx.KV("a")
		fmt.Println(x.Add(ctx, "n", 7))
		fmt.Println(x.List("l").PushBack(ctx, []byte("q")))
		fmt.Println(x.List("l").Range(ctx, 0, -1))
		return nil
	})
	fmt.Println(err)
	fmt.Println(n.Get(ctx, "n"))
	for e, err := range n.Scan(ctx, nil) {
		fmt.Println(e, err)
	}
	fmt.Println(db.Namespaces(ctx))
}

func BenchmarkKVSet(b *testing.B) {
	_, db := kvEngine(b)
	ctx := context.Background()
	n := db.KV("a")
	const keys = 100_000
	names := make([]string, keys)
	v := make([]byte, 64)
	for i := range names {
		names[i] = fmt.Sprintf("session:%d", i)
		if err := n.Set(ctx, names[i], v); err != nil {
			b.Fatal(err)
		}
	}
	for _, what := range []string{"set", "get"} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				i := 1
				var buf []byte
				for pb.Next() {
					i = i * 7919 % keys
					if what == "set" {
						if err := n.Set(ctx, names[i], v); err != nil {
							b.Fatal(err)
						}
					} else {
						var err error
						if buf, _, err = n.Append(ctx, buf[:0], names[i]); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		})
	}
}
