// Command quickstart keeps a handful of mountains in a store of its own folder:
// typed documents, a checked update, a transaction, a range, the change feed.
// Run it twice: the second run finds what the first one left.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

// snippet: declare
type Mountain struct {
	Name      string
	Metres    int
	Countries []string
	Ascents   int `json:",omitempty"`
}

// Mountains have their name as id, and remember their last ten versions.
var Mountains = osier.NewCollection("mountains", osier.CollectionOptions[Mountain]{
	ID:      func(m Mountain) any { return m.Name },
	History: 10,
})

// end

// Climbs have an id of two parts: the mountain, and the year.
type Climb struct{ Team string }

var Climbs = osier.NewCollection[Climb]("climbs")

var known = []Mountain{
	{Name: "Aconcagua", Metres: 6961, Countries: []string{"Argentina"}},
	{Name: "Denali", Metres: 6190, Countries: []string{"United States"}},
	{Name: "Elbrus", Metres: 5642, Countries: []string{"Russia"}},
	{Name: "Everest", Metres: 8849, Countries: []string{"Nepal", "China"}},
	{Name: "K2", Metres: 8611, Countries: []string{"Pakistan", "China"}},
	{Name: "Kangchenjunga", Metres: 8586, Countries: []string{"Nepal", "India"}},
	{Name: "Kilimanjaro", Metres: 5895, Countries: []string{"Tanzania"}},
	{Name: "Mont Blanc", Metres: 4806, Countries: []string{"France", "Italy"}},
	{Name: "Puncak Jaya", Metres: 4884, Countries: []string{"Indonesia"}},
	{Name: "Vinson", Metres: 4892},
}

func main() {
	dir := flag.String("store", "quickstart.osier", "the folder to keep the data in")
	flag.Parse()
	if err := run(context.Background(), *dir); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string) error {
	// snippet: open
	eng, err := engine.Open(dir, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	db, err := eng.DB(ctx, "atlas", osier.Schema(Mountains, Climbs))
	if err != nil {
		return err
	}
	// end
	if err := fill(ctx, db); err != nil {
		return err
	}
	n, err := Mountains.Count(ctx, db)
	if err != nil {
		return err
	}
	fmt.Printf("%d mountains in %s\n", n, dir)
	if err := change(ctx, db); err != nil {
		return err
	}
	return show(ctx, db)
}

// fill inserts the mountains that are not there from an earlier run.
func fill(ctx context.Context, db *osier.DB) error {
	for _, m := range known {
		if _, err := Mountains.Insert(ctx, db, m); err != nil && !errors.Is(err, osier.ErrConflict) {
			return err
		}
	}
	return nil
}

// change writes one document, and two together.
func change(ctx context.Context, db *osier.DB) error {

	// snippet: update
	doc, err := Mountains.Get(ctx, db, "K2")
	if err != nil {
		return err
	}
	doc.Value.Ascents++
	doc, err = Mountains.Update(ctx, db, doc) // ErrConflict if somebody was faster
	if err != nil {
		return err
	}
	// end
	fmt.Printf("K2 is at revision %v\n", doc.Rev)

	// snippet: transaction
	err = db.Update(ctx, func(tx *osier.Tx) error {
		everest, err := Mountains.Get(ctx, tx, "Everest")
		if err != nil {
			return err
		}
		everest.Value.Ascents++
		if _, err := Mountains.Update(ctx, tx, everest); err != nil {
			return err
		}
		_, err = Climbs.Upsert(ctx, tx, osier.Tuple{"Everest", 1953}, Climb{Team: "Hillary and Tenzing"})
		return err
	})
	if err != nil {
		return err
	}
	// end
	return nil
}

// show lists documents in order, and the latest changes.
func show(ctx context.Context, db *osier.DB) error {
	fmt.Println("names from K on:")
	// snippet: list
	for doc, err := range Mountains.List(ctx, db, &osier.ListOptions{From: "K", Limit: 3}) {
		if err != nil {
			return err
		}
		fmt.Printf("  %-14s %d m\n", doc.Value.Name, doc.Value.Metres)
	}
	// end

	fmt.Println("the latest changes:")
	for ch, err := range db.Watch(ctx, &osier.Feed{Descending: true, Limit: 3}) {
		if err != nil {
			return err
		}
		fmt.Printf("  %3d %s %v\n", ch.Seq, ch.Collection, ch.ID)
	}
	return nil
}
