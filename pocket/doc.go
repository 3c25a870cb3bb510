// Package pocket keeps a program's look-up data in one file and all of it in
// memory: configuration, catalogues, lists for autocompletion, flags.
//
// The file is lines of JSON that people read, compare and merge. Gets take no
// lock and tens of nanoseconds; iterations see a snapshot and block nobody;
// writes are transactions that survive what their [Durability] says.
//
//	s, err := pocket.Open("shop.pocket", &pocket.Options{
//		Types: []pocket.Type{pocket.TypeOf[Product]("Product")},
//	})
//	err = s.Save("product/1", Product{Name: "Lamp", Cents: 4900})
//	p, err := pocket.Get[Product](s, "product/1")
//	for key, p := range pocket.Prefix[Product](s, "product/") { … }
//	err = s.Close(ctx)
//
// # How it works
//
// Records lie as bytes in an arena that the garbage collector does not scan. A
// hash table finds them by key; a copy-on-write B+tree, whose leaves hold the
// first eight bytes of each key, gives them an order. One writer at a time
// changes both; readers find out by a record's version whether they may see it
// yet. Every transaction is a run of lines in the file behind one that frames
// it with a checksum.
//
// # What it is not
//
// All records must fit into memory, which holds up to twice their size. One
// process writes. There are no indexes but the keys' order, and no queries.
package pocket
