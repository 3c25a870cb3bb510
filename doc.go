// Package osier is a document database with one typed interface, wherever the
// data lives: in a folder of the program's own process (package engine), on a
// server or on a cluster.
//
// A [Store] holds databases. A [DB] holds collections of documents; it is the
// unit of naming, permission, backup and transaction. A [Collection] is a
// typed handle, declared once and used with any DB:
//
//	type Post struct{ Title string; Tags []string }
//
//	var Posts = osier.NewCollection[Post]("posts")
//
//	eng, err := engine.Open("blog.osier", nil)
//	blog, err := eng.DB(ctx, "blog", osier.Schema(Posts))
//	doc, err := Posts.Insert(ctx, blog, Post{Title: "Hello"})
//
// Beside its collections a DB has journals, append-only logs of events that take
// part in its transactions ([Journal]), and topics, messages to whoever listens
// ([Topic]).
//
// Every change is a [Command], every read a [Query], every wait a [Feed]; a
// [Backend] carries them out. Programs use the handles above them.
//
// All types are safe for concurrent use unless they say otherwise.
package osier
