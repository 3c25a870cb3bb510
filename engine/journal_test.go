package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/osierdb/osier"
)

func TestSmoke(t *testing.T) {
	for _, level := range []osier.Durability{osier.Sync, osier.Buffered, osier.Relaxed} {
		e := openMem(t, "shop")
		ctx := context.Background()
		db, err := e.OpenDB(ctx, "shop")
		if err != nil {
			t.Fatal(err)
		}
		j := osier.NewJournal("events")
		var want []string
		var last osier.Position
		for i := range 3000 {
			p, err := j.Append(ctx, db.With(level), []byte(fmt.Sprintf("event %d with some more text", i)))
			if err != nil {
				t.Fatal(err)
			}
			if !last.Before(p) {
				t.Fatalf("%v after %v", p, last)
			}
			last = p
			want = append(want, fmt.Sprintf("event %d with some more text", i))
		}
		n := 0
		for ev, err := range j.Read(ctx, db, nil) {
			if err != nil {
				t.Fatal(err)
			}
			if string(ev.Data) != want[n] {
				t.Fatal(n, string(ev.Data))
			}
			n++
		}
		if n != 3000 {
			t.Fatal(n)
		}
		c, err := j.Count(ctx, db, nil)
		info, err2 := j.Info(ctx, db)
		fmt.Println(level, c, err, info, err2)
		start := time.Now()
		if err := e.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		fmt.Println(time.Since(start))
		info, err2 = j.Info(ctx, db)
		fmt.Println(info, err2)
	}
}
