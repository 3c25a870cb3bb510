package osier_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

// A rate limiter: a counter for each user and minute, which goes by itself.
func ExampleNamespace_Add() {
	ctx := context.Background()
	eng, _ := engine.Open("", &engine.Options{InMemory: true})
	defer eng.Close()
	db, _ := eng.DB(ctx, "shop")
	limits := db.KV("limits")

	allow := func(user string, now time.Time) (bool, error) {
		key := fmt.Sprint(user, "@", now.Unix()/60)
		n, err := limits.Add(ctx, key, 1)
		if err != nil {
			return false, err
		}
		if n == 1 {
			_, err = limits.Expire(ctx, key, 2*time.Minute)
		}
		return n <= 3, err
	}
	minute := time.Unix(1_900_000_020, 0)
	for range 4 {
		fmt.Println(allow("ann", minute))
	}
	fmt.Println(allow("ann", minute.Add(time.Minute)))
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
	// false <nil>
	// true <nil>
}

// A lock: whoever holds the lease may work, and its token fences off holders
// that find out late that their time was over.
func ExampleNamespace_WithLock() {
	ctx := context.Background()
	eng, _ := engine.Open("", &engine.Options{InMemory: true})
	defer eng.Close()
	db, _ := eng.DB(ctx, "shop")
	locks := db.KV("locks")

	err := locks.WithLock(ctx, "nightly-report", "worker-1", time.Minute, func(ctx context.Context, l *osier.Lease) error {
		_, err := locks.Acquire(ctx, "nightly-report", "worker-2", time.Minute)
		fmt.Println("somebody else:", errors.Is(err, osier.ErrConflict))
		// … work, until ctx is cancelled; show l.Token to what you write to.
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// somebody else: true
	// done: <nil>
}

// A document and key-values change together or not at all.
func ExampleTx_KV() {
	ctx := context.Background()
	eng, _ := engine.Open("", &engine.Options{InMemory: true})
	defer eng.Close()
	db, _ := eng.DB(ctx, "shop")
	type order struct{ Item string }
	orders := osier.NewCollection[order]("orders")
	stock := db.KV("stock")
	_, _ = stock.Add(ctx, "lamp", 1)

	buy := func(item string) error {
		return db.Update(ctx, func(tx *osier.Tx) error {
			if _, err := orders.Insert(ctx, tx, order{item}); err != nil {
				return err
			}
			left, err := tx.KV("stock").Add(ctx, item, -1)
			if err == nil && left < 0 {
				err = errors.New("sold out")
			}
			return err
		})
	}
	fmt.Println(buy("lamp"))
	fmt.Println(buy("lamp"))
	n, _ := orders.Count(ctx, db)
	fmt.Println(n, "order")
	// Output:
	// <nil>
	// sold out
	// 1 order
}

// A leaderboard: ranks of a sorted set, in O(log n).
func ExampleNamespace_Sorted() {
	ctx := context.Background()
	eng, _ := engine.Open("", &engine.Options{InMemory: true})
	defer eng.Close()
	db, _ := eng.DB(ctx, "game")
	scores := db.KV("boards").Sorted("today")

	_, _ = scores.Add(ctx, osier.KVItem{Name: "ann", Score: 30}, osier.KVItem{Name: "bob", Score: 10})
	_, _ = scores.AddScore(ctx, "bob", 25)
	for it := range scores.Range(ctx, osier.KVRange{From: 0, To: 9, Reverse: true}) {
		fmt.Println(it.Name, it.Score)
	}
	rank, _ := scores.Rank(ctx, "ann", true)
	fmt.Println("ann is number", rank+1)
	// Output:
	// bob 35
	// ann 30
	// ann is number 2
}
