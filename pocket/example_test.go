package pocket_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/osierdb/osier/pocket"
)

type Product struct {
	Name  string
	Cents int
}

// exampleFile returns the path of a file in a new folder.
func exampleFile() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "pocket")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, "shop.pocket"), func() { os.RemoveAll(dir) }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func Example() {
	path, remove := exampleFile()
	defer remove()
	s, err := pocket.Open(path, &pocket.Options{
		Types: []pocket.Type{pocket.TypeOf[Product]("Product")},
	})
	check(err)
	check(s.Save("product/1", Product{Name: "Lamp", Cents: 4900}))
	check(s.Save("product/2", Product{Name: "Chair", Cents: 8900}))
	check(s.Save("currency", "EUR"))

	p, err := pocket.Get[Product](s, "product/1")
	fmt.Println(p.Name, p.Cents, err)
	for key, p := range pocket.Prefix[Product](s, "product/") {
		fmt.Println(key, p.Name)
	}
	_, err = pocket.Get[Product](s, "product/3")
	fmt.Println(errors.Is(err, pocket.ErrNotFound))
	check(s.Close(context.Background()))
	// Output:
	// Lamp 4900 <nil>
	// product/1 Lamp
	// product/2 Chair
	// true
}

func ExampleOpenMap() {
	path, remove := exampleFile()
	defer remove()
	products, err := pocket.OpenMap[Product](path, nil)
	check(err)
	check(products.Save("1", Product{Name: "Lamp", Cents: 4900}))
	p, err := products.Get("1")
	fmt.Println(p.Name, err)
	check(products.Close(context.Background()))
	// Output: Lamp <nil>
}

// Several changes, all or none, on a condition.
func ExampleStore_SaveAll() {
	path, remove := exampleFile()
	defer remove()
	s, err := pocket.Open(path, nil)
	check(err)
	check(s.Save("stock/lamp", 3))
	sell := func() error {
		_, err := s.SaveAll(
			pocket.Change{Key: "stock/lamp", If: pocket.Equals(3), Value: 2},
			pocket.Change{Key: "order/1", If: pocket.Absent(), Value: "lamp"},
		)
		return err
	}
	fmt.Println(sell())
	fmt.Println(sell())
	check(s.Close(context.Background()))
	// Output:
	// <nil>
	// pocket: conflict on key "stock/lamp": version 2 is stored
}

func ExampleSwap() {
	path, remove := exampleFile()
	defer remove()
	s, err := pocket.Open(path, nil)
	check(err)
	got, swapped, err := pocket.Swap(s, "leader", pocket.Absent(), "anna")
	fmt.Println(got.Value, swapped, err)
	got, swapped, err = pocket.Swap(s, "leader", pocket.Absent(), "bert")
	fmt.Println(got.Value, swapped, err)
	check(s.Close(context.Background()))
	// Output:
	// anna true <nil>
	// anna false <nil>
}

func ExampleStore_Watch() {
	path, remove := exampleFile()
	defer remove()
	s, err := pocket.Open(path, nil)
	check(err)
	events := s.Watch(context.Background(), "flag/")
	check(s.Save("flag/dark-mode", true))
	check(s.Save("other", true))
	check(s.SaveFor("flag/sale", true, time.Hour))
	check(s.Close(context.Background()))
	for e, err := range events {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(e.Key, e.Record.JSON())
	}
	// Output:
	// flag/dark-mode true
	// flag/sale true
	// pocket: closed
}

// Other processes read, and follow what the writer does.
func ExampleOptions_readOnly() {
	path, remove := exampleFile()
	defer remove()
	writer, err := pocket.Open(path, nil)
	check(err)
	reader, err := pocket.Open(path, &pocket.Options{ReadOnly: true})
	check(err)
	check(writer.Save("greeting", "hello"))
	check(reader.Refresh()) // or wait for 20 ms
	v, err := pocket.Get[string](reader, "greeting")
	fmt.Println(v, err)
	check(reader.Close(context.Background()))
	check(writer.Close(context.Background()))
	// Output: hello <nil>
}
