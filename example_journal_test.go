package osier_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/osierdb/osier"
)

// An event log: append, read a stretch, go on later from where it was left.
func ExampleJournal() {
	log := osier.NewJournal("log", osier.JournalSettings{MaxAge: 30 * 24 * time.Hour, Durability: osier.Relaxed})
	db, done := openShop(log)
	defer done()
	ctx := context.Background()

	for _, text := range []string{"started", "took an order", "stopped"} {
		if _, err := log.Append(ctx, db, []byte(text)); err != nil {
			panic(err)
		}
	}
	var last osier.Position
	for e, err := range log.Read(ctx, db, &osier.ReadOptions{Limit: 2}) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s\n", e.Data)
		last = e.Position
	}
	for e, err := range log.Read(ctx, db, &osier.ReadOptions{After: last}) {
		fmt.Printf("later: %s %v\n", e.Data, err)
	}
	n, err := log.Count(ctx, db, &osier.ReadOptions{All: true})
	fmt.Println(n, err)
	// Output:
	// started
	// took an order
	// later: stopped <nil>
	// 3 <nil>
}

func ExampleJournal_AppendEvents() {
	log := osier.NewJournal("log")
	db, done := openShop(log)
	defer done()
	ctx := context.Background()

	// Sent twice, since the first answer was lost: there once.
	for range 2 {
		res, err := log.AppendEvents(ctx, db, []osier.Event{{Type: "order", Data: []byte("42")}}, &osier.AppendOptions{Key: "order-42"})
		fmt.Println(res.Repeated, err)
	}
	// Only if nobody came in between.
	info, err := log.Info(ctx, db)
	if err != nil {
		panic(err)
	}
	_, err = log.AppendEvents(ctx, db, []osier.Event{{Data: []byte("next")}}, &osier.AppendOptions{Expect: &info.Last})
	fmt.Println(err)
	_, err = log.AppendEvents(ctx, db, []osier.Event{{Data: []byte("too late")}}, &osier.AppendOptions{Expect: &info.Last})
	fmt.Println(errors.Is(err, osier.ErrConflict))
	// Output:
	// false <nil>
	// true <nil>
	// <nil>
	// true
}

// A document and the event that tells of it, together or not at all, and a
// message once they are there.
func ExampleJournal_Append_transaction() {
	log := osier.NewJournal("log")
	news := osier.NewTopic[string]("films.added")
	db, done := openShop(Films, log)
	defer done()
	ctx := context.Background()

	sub, err := news.Subscribe(ctx, db, nil)
	if err != nil {
		panic(err)
	}
	defer sub.Close()
	err = db.Update(ctx, func(tx *osier.Tx) error {
		if _, err := Films.InsertWithID(ctx, tx, "alien", Film{Title: "Alien", Year: 1979}); err != nil {
			return err
		}
		if _, err := log.Append(ctx, tx, []byte("added alien")); err != nil {
			return err
		}
		return news.Publish(ctx, tx, "alien")
	})
	fmt.Println(err)
	m, err := sub.Next(ctx)
	fmt.Println(m.Value, err)
	for e, err := range log.Read(ctx, db, nil) {
		fmt.Printf("%s %v\n", e.Data, err)
	}
	// Output:
	// <nil>
	// alien <nil>
	// added alien <nil>
}

// Said is a line of a chat.
type Said struct{ Who, Text string }

// Chat has a topic a room.
var Chat = osier.NewTopic[Said]("chat.*")

// A chat: a room is a topic, who listens to all of them takes a pattern.
func ExampleTopic() {
	db, done := openShop()
	defer done()
	ctx := context.Background()

	sub, err := Chat.Subscribe(ctx, db, nil)
	if err != nil {
		panic(err)
	}
	defer sub.Close()
	for _, s := range []Said{{"Ann", "hello"}, {"Bob", "hello, Ann"}} {
		if err := Chat.PublishTo(ctx, db, s, "chat.lobby"); err != nil {
			panic(err)
		}
	}
	if err := Chat.PublishTo(ctx, db, Said{"Cleo", "anybody here?"}, "chat.garden"); err != nil {
		panic(err)
	}
	n := 0
	for m, err := range sub.All(ctx) {
		fmt.Println(m.Topic, m.Value.Who, m.Value.Text, err)
		if n++; n == 3 {
			break
		}
	}
	// Output:
	// chat.lobby Ann hello <nil>
	// chat.lobby Bob hello, Ann <nil>
	// chat.garden Cleo anybody here? <nil>
}
