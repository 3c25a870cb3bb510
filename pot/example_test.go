package pot_test

import (
	"fmt"
	"log"

	"github.com/osierdb/osier/pot"
)

type Film struct {
	Title string `pot:"title"`
	Year  int    `pot:"year"`
	Stars []string
}

func Example() {
	payload, err := pot.Marshal(Film{"Metropolis", 1927, []string{"Brigitte Helm"}})
	if err != nil {
		log.Fatal(err)
	}
	var film Film
	if err := pot.Unmarshal(payload, &film); err != nil {
		log.Fatal(err)
	}
	fmt.Println(film.Title, film.Year, film.Stars)
	// Output: Metropolis 1927 [Brigitte Helm]
}

// With a table documents carry no names. The table goes to stable storage
// before the documents that need it.
func ExampleTable() {
	table := pot.NewTable(nil)
	enc := pot.EncodeOptions{Mode: pot.Shapes, Table: table, NoHeader: true}
	dec := pot.DecodeOptions{Mode: pot.Shapes, Table: table, NoHeader: true}
	stored := table.Version()
	for _, film := range []Film{{"Metropolis", 1927, nil}, {"M", 1931, nil}} {
		payload, err := enc.Marshal(film)
		if err != nil {
			log.Fatal(err)
		}
		if now := table.Version(); now != stored {
			addition, next, err := table.AppendSince(nil, stored)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("store %d bytes of table first\n", len(addition))
			stored = next
		}
		json, err := pot.ToJSON(nil, payload, &pot.JSONOptions{DecodeOptions: dec})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d bytes for %s\n", len(payload), json)
	}
	// Output:
	// store 35 bytes of table first
	// 16 bytes for {"title":"Metropolis","year":1927,"Stars":[]}
	// 7 bytes for {"title":"M","year":1931,"Stars":[]}
}

func ExampleValue_Get() {
	payload, err := pot.Marshal([]Film{{"M", 1931, nil}, {"Metropolis", 1927, []string{"Brigitte Helm"}}})
	if err != nil {
		log.Fatal(err)
	}
	root, err := pot.Open(payload, nil)
	if err != nil {
		log.Fatal(err)
	}
	star, err := root.Get("1", "Stars", "0")
	if err != nil {
		log.Fatal(err)
	}
	name, err := star.Text()
	fmt.Println(name, err)
	// Output: Brigitte Helm <nil>
}

// A path reads the same field of many payloads.
func ExampleView_Find() {
	view, year := pot.NewView(nil), pot.NewPath("year")
	for _, film := range []Film{{"M", 1931, nil}, {"Metropolis", 1927, []string{"Brigitte Helm"}}} {
		payload, err := pot.Marshal(film)
		if err != nil {
			log.Fatal(err)
		}
		v, err := view.Find(payload, year)
		if err != nil {
			log.Fatal(err)
		}
		n, err := v.Int()
		fmt.Println(n, err)
	}
	// Output:
	// 1931 <nil>
	// 1927 <nil>
}

type Figure interface{ Area() float64 }

type Square struct{ Side float64 }

func (s Square) Area() float64 { return s.Side * s.Side }

type Nothing struct{}

func (Nothing) Area() float64 { return 0 }

// A union lets an interface hold one of several registered types.
func ExampleRegisterUnion() {
	unions := pot.NewUnions()
	if err := pot.RegisterUnion(unions, map[string]Figure{"Square": Square{}, "Nothing": Nothing{}}); err != nil {
		log.Fatal(err)
	}
	payload, err := (&pot.EncodeOptions{Unions: unions}).Marshal([]Figure{Square{3}, Nothing{}})
	if err != nil {
		log.Fatal(err)
	}
	var figures []Figure
	if err := (&pot.DecodeOptions{Unions: unions}).Unmarshal(payload, &figures); err != nil {
		log.Fatal(err)
	}
	notation, err := pot.Format(nil, payload, "", nil)
	fmt.Printf("%v\n%s %v\n", figures, notation, err)
	// Output:
	// [{3} {}]
	// [Square({Side: 3.0}), Nothing] <nil>
}

func ExampleFromJSON() {
	a, err := pot.FromJSON(nil, []byte(`{"b": 1.0, "a": 18446744073709551616}`), nil)
	if err != nil {
		log.Fatal(err)
	}
	json, err := pot.ToJSON(nil, a, nil)
	fmt.Println(string(json), err)
	// Output: {"b":1.0,"a":18446744073709551616} <nil>
}
