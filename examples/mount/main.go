// Command mount serves a store that the program uses itself: the CouchDB door
// and the program's own routes stand side by side on an http.Server of its own,
// behind the same users. Try it with
//
//	curl -u ann:secret localhost:8080/notes
//	curl -u ann:secret localhost:8080/notebook/_all_docs
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/server"
	"github.com/osierdb/osier/server/couch"
)

// Note is what the program keeps; clients of the CouchDB door see the same
// documents.
type Note struct {
	Text string `json:"text"`
	By   string `json:"by,omitempty"`
}

// Notes are the database's default collection, which is what a CouchDB
// database shows.
var Notes = osier.NewCollection[Note](osier.DefaultCollection)

// snippet: mount
// mount serves the store: CouchDB's interface at the root, and /notes beside.
func mount(ctx context.Context, eng *engine.Engine, notebook *osier.DB) (*server.Server, error) {
	srv, err := server.New(ctx, eng.Store, &server.Options{
		Doors: []server.Door{couch.New()},
		Admin: &server.Credentials{Name: "ann", Password: "secret"},
	})
	if err != nil {
		return nil, err
	}
	srv.Handle("GET /notes", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The session's handle has the user's rights; notebook would have all.
		acc, err := server.SessionOf(r.Context()).Open(r.Context(), notebook.Name())
		if err != nil {
			server.Refuse(w, http.StatusForbidden, "forbidden", err.Error())
			return
		}
		notes := []Note{}
		for doc, err := range Notes.List(r.Context(), acc.DB, nil) {
			if err != nil {
				server.Refuse(w, http.StatusInternalServerError, "failed", err.Error())
				return
			}
			notes = append(notes, doc.Value)
		}
		if err := json.NewEncoder(w).Encode(notes); err != nil {
			log.Print(err)
		}
	}))
	return srv, nil
}

// end

func run(ctx context.Context, dir, addr string) (err error) {
	eng, err := engine.Open(dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	notebook, err := eng.DB(ctx, "notebook")
	if err != nil {
		return err
	}
	if _, err := Notes.Insert(ctx, notebook, Note{Text: "started at " + time.Now().Format(time.TimeOnly)}); err != nil {
		return err
	}
	srv, err := mount(ctx, eng, notebook)
	if err != nil {
		return err
	}
	defer srv.Close()
	ln, err := server.Listen(ctx, addr)
	if err != nil {
		return err
	}
	log.Printf("listening on http://%v/", ln.Addr())
	return srv.Serve(ctx, ln, nil)
}

func main() {
	dir := flag.String("dir", "notebook.osier", "folder of the store")
	addr := flag.String("listen", "127.0.0.1:8080", "address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *addr); err != nil {
		log.Fatal(err)
	}
}
