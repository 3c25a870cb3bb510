package osier_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

type Film struct {
	Title    string
	Year     int
	Director string
}

var Films = osier.NewCollection[Film]("films")

// openShop opens an in-memory store for an example.
func openShop(items ...osier.SchemaItem) (*osier.DB, func()) {
	tick := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	eng, err := engine.Open("", &engine.Options{InMemory: true, Clock: func() time.Time {
		tick = tick.Add(time.Second)
		return tick
	}})
	if err != nil {
		panic(err)
	}
	db, err := eng.DB(context.Background(), "shop", osier.Schema(items...))
	if err != nil {
		panic(err)
	}
	return db, func() { eng.Close() }
}

func ExampleCollection_Insert() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()

	doc, err := Films.InsertWithID(ctx, db, "alien", Film{"Alien", 1979, "Ridley Scott"})
	fmt.Println(doc.ID, doc.Rev.Generation(), err)

	_, err = Films.InsertWithID(ctx, db, "alien", Film{Title: "Alien"})
	fmt.Println(errors.Is(err, osier.ErrConflict))
	fmt.Println(err)
	// Output:
	// alien 1 <nil>
	// true
	// insert shop:films/alien: conflict: there is a document of that id already
}

func ExampleCollection_Update() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()
	mine, _ := Films.InsertWithID(ctx, db, "alien", Film{Title: "Alien"})
	theirs := mine

	theirs.Value.Year = 1979
	if _, err := Films.Update(ctx, db, theirs); err != nil {
		fmt.Println(err)
	}
	mine.Value.Director = "Ridley Scott"
	_, err := Films.Update(ctx, db, mine)
	fmt.Println(osier.KindOf(err))

	// Modify reads again when somebody else was faster.
	doc, err := Films.Modify(ctx, db, "alien", func(f *Film) error {
		f.Director = "Ridley Scott"
		return nil
	})
	fmt.Println(doc.Value, err)
	// Output:
	// conflict
	// {Alien 1979 Ridley Scott} <nil>
}

func ExampleCollection_List() {
	type Reading struct{ Celsius float64 }
	readings := osier.NewCollection[Reading]("readings")
	db, done := openShop(readings)
	defer done()
	ctx := context.Background()

	// Ids of several parts sort part by part; numbers sort as numbers.
	for _, day := range []int{9, 10, 1} {
		readings.InsertWithID(ctx, db, osier.Tuple{"oslo", day}, Reading{float64(-day)})
		readings.InsertWithID(ctx, db, osier.Tuple{"rome", day}, Reading{float64(day)})
	}
	for doc, err := range readings.List(ctx, db, &osier.ListOptions{Prefix: osier.Tuple{"oslo"}}) {
		fmt.Println(doc.ID, doc.Value.Celsius, err)
	}
	// Output:
	// oslo/1 -1 <nil>
	// oslo/9 -9 <nil>
	// oslo/10 -10 <nil>
}

func ExampleDB_Update() {
	type Account struct{ Cents int }
	accounts := osier.NewCollection[Account]("accounts")
	db, done := openShop(accounts)
	defer done()
	ctx := context.Background()
	accounts.InsertWithID(ctx, db, "ann", Account{1000})
	accounts.InsertWithID(ctx, db, "ben", Account{0})

	transfer := func(from, to string, cents int) error {
		return db.Update(ctx, func(tx *osier.Tx) error {
			a, err := accounts.Get(ctx, tx, from)
			if err != nil {
				return err
			}
			b, err := accounts.Get(ctx, tx, to)
			if err != nil {
				return err
			}
			if a.Value.Cents < cents {
				return fmt.Errorf("%s has %d cents", from, a.Value.Cents)
			}
			a.Value.Cents -= cents
			b.Value.Cents += cents
			if _, err := accounts.Update(ctx, tx, a); err != nil {
				return err
			}
			_, err = accounts.Update(ctx, tx, b)
			return err
		})
	}
	fmt.Println(transfer("ann", "ben", 300))
	fmt.Println(transfer("ann", "ben", 900))
	b, _ := accounts.Get(ctx, db, "ben")
	fmt.Println(b.Value.Cents)
	// Output:
	// <nil>
	// ann has 700 cents
	// 300
}

func ExampleDB_Commit() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()

	var batch osier.Batch
	batch.PerDocument = true
	Films.InsertWithID(ctx, &batch, "alien", Film{Title: "Alien"})
	Films.InsertWithID(ctx, &batch, "alien", Film{Title: "Alien, again"})
	Films.InsertWithID(ctx, &batch, "solaris", Film{Title: "Solaris"})
	res, err := db.Commit(ctx, &batch)
	fmt.Println(err)
	for _, op := range res.Ops {
		if op.Err != nil {
			fmt.Println(op.ID, op.Err.Kind)
			continue
		}
		fmt.Println(op.ID, op.Seq)
	}
	// Output:
	// <nil>
	// alien 1
	// alien conflict
	// solaris 2
}

func ExampleCollection_Changes() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()
	Films.InsertWithID(ctx, db, "alien", Film{Title: "Alien"})
	Films.InsertWithID(ctx, db, "solaris", Film{Title: "Solaris"})
	Films.Delete(ctx, db, "alien", osier.Rev{})

	// A feed shows each document once, at its latest change.
	var last osier.Seq
	for ch, err := range Films.Changes(ctx, db, nil, nil) {
		fmt.Println(ch.Seq, ch.ID, ch.Deleted, err)
		last = ch.Seq
	}

	// A long poll waits for what comes after.
	go Films.InsertWithID(ctx, db, "stalker", Film{Title: "Stalker"})
	for ch, err := range Films.Changes(ctx, db, &osier.Feed{Since: last, Mode: osier.FeedWait, Parts: osier.WithBody}, nil) {
		fmt.Println(ch.Seq, ch.Value.Title, err)
	}
	// Output:
	// 2 solaris false <nil>
	// 3 alien true <nil>
	// 4 Stalker <nil>
}

func ExampleCollection_AsOf() {
	films := osier.NewCollection("films", osier.CollectionOptions[Film]{History: osier.KeepAll})
	db, done := openShop(films)
	defer done()
	ctx := context.Background()
	doc, _ := films.InsertWithID(ctx, db, "alien", Film{Title: "Star Beast"})
	first := doc.Seq
	doc.Value.Title = "Alien"
	films.Update(ctx, db, doc)

	was, err := films.AsOf(ctx, db, "alien", first)
	fmt.Println(was.Value.Title, err)
	for v, err := range films.Versions(ctx, db, "alien") {
		fmt.Println(v.Rev.Generation(), v.Value.Title, v.Time.Format(time.TimeOnly), err)
	}
	// Output:
	// Star Beast <nil>
	// 2 Alien 12:00:04 <nil>
	// 1 Star Beast 12:00:03 <nil>
}

func ExampleCollection_Graft() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()
	doc, _ := Films.InsertWithID(ctx, db, "alien", Film{Title: "Alien"})

	// Two replicas edited the same revision; theirs arrives with its ancestry.
	mine := doc
	mine.Value.Year = 1979
	mine, _ = Films.Update(ctx, db, mine)
	theirs, _ := osier.ParseRev("2-ffffffffffffffffffffffffffffffff")
	Films.Graft(ctx, db, "alien", []osier.Rev{theirs, doc.Rev}, Film{Title: "Alien", Director: "Ridley Scott"})

	won, _ := Films.Get(ctx, db, "alien")
	lost, _ := Films.Conflicts(ctx, db, "alien")
	fmt.Println(won.Rev == theirs, lost[0] == mine.Rev)

	// Resolve: merge into the winner, end the loser.
	won.Value.Year = mine.Value.Year
	var batch osier.Batch
	Films.Update(ctx, &batch, won)
	Films.Delete(ctx, &batch, "alien", mine.Rev)
	_, err := db.Commit(ctx, &batch)
	lost, _ = Films.Conflicts(ctx, db, "alien")
	fmt.Println(len(lost), err)
	// Output:
	// true true
	// 0 <nil>
}

func ExampleCollection_Attach() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()
	doc, _ := Films.InsertWithID(ctx, db, "alien", Film{Title: "Alien"})

	doc, err := Films.Attach(ctx, db, doc.ID, doc.Rev, "tagline.txt", "text/plain",
		strings.NewReader("In space no one can hear you scream."))
	fmt.Println(doc.Attachments[0].Name, doc.Attachments[0].Size, err)

	_, r, err := Films.OpenAttachment(ctx, db, "alien", "tagline.txt", 3, 5)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	part, err := io.ReadAll(r)
	fmt.Printf("%q %v\n", part, err)
	// Output:
	// tagline.txt 36 <nil>
	// "space" <nil>
}

func ExampleDB_As() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()
	Films.InsertWithID(ctx, db, "alien", Film{Title: "Alien"})

	reader := db.As(osier.Principal{Name: "ann", Grants: []osier.Grant{
		{Actions: osier.MayRead, DB: "shop", Collection: "films"},
	}})
	doc, err := Films.Get(ctx, reader, "alien")
	fmt.Println(doc.Value.Title, err)
	err = Films.Delete(ctx, reader, "alien", osier.Rev{})
	fmt.Println(err)
	// Output:
	// Alien <nil>
	// change shop:films: denied: "ann" lacks the right to write
}

func ExampleCollectionOptions_migrate() {
	ctx := context.Background()
	db, done := openShop()
	defer done()

	type filmV1 struct{ Name string }
	old := osier.NewCollection("films", osier.CollectionOptions[filmV1]{Schema: 1})
	old.InsertWithID(ctx, db, "alien", filmV1{"Alien"})

	films := osier.NewCollection("films", osier.CollectionOptions[Film]{
		Schema: 2,
		Migrate: func(d *osier.Document) (Film, error) {
			var was filmV1
			err := osier.JSON.Decode(d.Body, &was)
			return Film{Title: was.Name}, err
		},
	})
	doc, err := films.Get(ctx, db, "alien") // migrated as it is read
	fmt.Println(doc.Value.Title, err)

	err = films.MigrateAll(ctx, db, func(p osier.MigrateProgress) {
		fmt.Printf("%d of %d, %d written\n", p.Seen, p.Total, p.Written)
	})
	fmt.Println(err)
	// Output:
	// Alien <nil>
	// 1 of 1, 1 written
	// <nil>
}

func ExampleNewView() {
	type post struct {
		Tags  []string
		Words int
	}
	posts := osier.NewCollection[post]("posts")
	wordsByTag := osier.NewView("words-by-tag", posts, 1,
		func(d osier.Doc[post], emit func(tag string, words int)) {
			for _, tag := range d.Value.Tags {
				emit(tag, d.Value.Words)
			}
		}, osier.Sum[int]())
	db, done := openShop(posts, wordsByTag)
	defer done()
	ctx := context.Background()

	posts.InsertWithID(ctx, db, "hello", post{[]string{"go", "db"}, 120})
	posts.InsertWithID(ctx, db, "again", post{[]string{"go"}, 80})
	for row, err := range wordsByTag.Query(ctx, db, osier.Key("go")) {
		fmt.Println(row.Key, row.Value, row.ID, err)
	}
	for tag, err := range wordsByTag.Groups(ctx, db, 0) {
		fmt.Println(tag.Key, tag.Value, tag.Count, err)
	}
	// Output:
	// go 80 again <nil>
	// go 120 hello <nil>
	// db 120 1 <nil>
	// go 200 2 <nil>
}

func ExampleNewFieldView() {
	titles := osier.NewFieldView[string, any]("titles", "films", &osier.FieldViewOptions{Keys: []string{"Title"}, Policy: osier.Unique})
	db, done := openShop(Films, titles)
	defer done()
	ctx := context.Background()

	_, err := Films.InsertWithID(ctx, db, "alien", Film{Title: "Alien"})
	fmt.Println(err)
	_, err = Films.InsertWithID(ctx, db, "copy", Film{Title: "Alien"})
	fmt.Println(errors.Is(err, osier.ErrNotUnique))
	fmt.Println(err)
	// Output:
	// <nil>
	// true
	// change shop:films/copy: not unique: key Alien of the unique view titles: document alien has it
}

func ExampleCollection_Find() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()
	for _, f := range []Film{{"Alien", 1979, "Ridley Scott"}, {"Blade Runner", 1982, "Ridley Scott"}, {"Stalker", 1979, "Andrei Tarkovsky"}} {
		if _, err := Films.Insert(ctx, db, f); err != nil {
			panic(err)
		}
	}

	selector := osier.Where("Director").HasPrefix("Ridley").And(osier.Where("Year").Lt(1990))
	o := &osier.FindOptions{Sort: []osier.SortField{osier.Desc("Year")}, Limit: 1, Summary: new(osier.FindSummary)}
	for doc, err := range Films.Find(ctx, db, selector, o) {
		fmt.Println(doc.Value.Title, doc.Value.Year, err)
	}
	fmt.Println("all:", o.Summary.Complete)

	o.Bookmark = o.Summary.Bookmark // the next page
	for doc, err := range Films.Find(ctx, db, selector, o) {
		fmt.Println(doc.Value.Title, doc.Value.Year, err)
	}
	// Output:
	// Blade Runner 1982 <nil>
	// all: false
	// Alien 1979 <nil>
}

func ExampleDB_Find() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()
	for _, f := range []Film{{"Alien", 1979, "Ridley Scott"}, {"Stalker", 1979, "Andrei Tarkovsky"}, {"Solaris", 1972, "Andrei Tarkovsky"}} {
		if _, err := Films.Insert(ctx, db, f); err != nil {
			panic(err)
		}
	}

	o := &osier.FindOptions{Fields: []string{"Title", "Year"}, Sort: []osier.SortField{osier.Asc("Year")}}
	for row, err := range db.Find(ctx, "films", osier.Mango(`{"Director": {"$regex": "^Andrei"}}`), o) {
		fmt.Println(string(row.Body), err)
	}
	for row, err := range db.Find(ctx, "films", osier.Swap(`{"=": {"Year": 1979}, "!=": {"Title": "Alien"}}`), o) {
		fmt.Println(string(row.Body), err)
	}
	// Output:
	// {"Title":"Solaris","Year":1972} <nil>
	// {"Title":"Stalker","Year":1979} <nil>
	// {"Title":"Stalker","Year":1979} <nil>
}

func ExampleDB_CreateIndex() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()

	created, err := db.CreateIndex(ctx, osier.Index{Name: "by-year", Collection: "films", Fields: []osier.SortField{osier.Asc("Year")}})
	fmt.Println(created, err)

	plan, err := db.Explain(ctx, "films", osier.Mango(`{"Year": {"$gte": 1980}}`), &osier.FindOptions{UseIndex: "by-year"})
	fmt.Println(plan.Selector, err)
	// Output:
	// true <nil>
	// {"Year":{"$gte":1980}} <nil>
}

func ExampleCollection_Live() {
	db, done := openShop(Films)
	defer done()
	ctx := context.Background()
	if _, err := Films.InsertWithID(ctx, db, "alien", Film{"Alien", 1979, "Ridley Scott"}); err != nil {
		panic(err)
	}

	for l, err := range Films.Live(ctx, db, osier.Where("Year").Lt(1980), nil) {
		switch {
		case err != nil:
			panic(err)
		case l.Event == osier.LiveAdded:
			fmt.Println("added", l.Value.Title)
		case l.Event == osier.LiveRemoved:
			fmt.Println("removed", l.ID)
			return
		case l.Event == 0: // all there was has been shown
			if _, err := Films.Overwrite(ctx, db, "alien", Film{"Aliens", 1986, "James Cameron"}); err != nil {
				panic(err)
			}
		}
	}
	// Output:
	// added Alien
	// removed alien
}
