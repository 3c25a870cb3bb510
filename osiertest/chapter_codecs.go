package osiertest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/osierdb/osier"
)

// point is a document with a binary form of its own.
type point struct{ X, Y int32 }

func (p point) MarshalBinary() ([]byte, error) {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(p.X)), uint32(p.Y)), nil
}

func (p *point) UnmarshalBinary(b []byte) error {
	if len(b) != 8 {
		return errors.New("a point has 8 bytes")
	}
	p.X, p.Y = int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))
	return nil
}

// filmV2 is what film became: the year is now a text, and mandatory.
type filmV2 struct {
	Name string `json:"name"`
	Year string `json:"year"`
}

// filmsV2 reads the suite's films in their second schema.
func filmsV2() *osier.Collection[filmV2] {
	return osier.NewCollection("films", osier.CollectionOptions[filmV2]{Schema: 2, Migrate: func(old *osier.Document) (filmV2, error) {
		var f film
		if err := osier.JSON.Decode(old.Body, &f); err != nil {
			return filmV2{}, err
		}
		if f.Title == "broken" {
			return filmV2{}, errors.New("cannot be migrated")
		}
		return filmV2{f.Title, fmt.Sprint("year ", f.Year)}, nil
	}})
}

func codecTests() []test {
	return []test{
		{"a JSON body is kept byte for byte", func(x *tc) {
			for i, body := range []string{`{"b":1,"a":2}`, `{ "a" : [ 1.50 , 1e3 ] }`, `[]`, `"text"`, `null`, `0`, `{"a":"\u0000é😀"}`, `{"n":123456789012345678901234567890}`} {
				_, err := raws.InsertWithID(x.ctx, x.db, i, osier.Raw(body))
				x.must(err)
				got, err := raws.Get(x.ctx, x.db, i)
				x.must(err)
				x.same("body", string(got.Value), body)
			}
		}},
		{"a body that is not of its codec is ErrInvalid", func(x *tc) {
			for _, body := range []string{``, `{`, `{"a":}`, `{} {}`, `nul`, `{"a":1,}`, "\xff"} {
				_, err := raws.Insert(x.ctx, x.db, osier.Raw(body))
				x.kind(err, osier.KindInvalid)
				// The backend must not rely on the codec to have looked.
				_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPut, Collection: "raws", Codec: osier.TagJSON, Body: []byte(body)}}})
				x.kind(err, osier.KindInvalid)
				_, err = x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{
					Kind: osier.OpGraft, Collection: "raws", ID: osier.MustID("g"), Path: revsOf("1-a"), Codec: osier.TagJSON, Body: []byte(body),
				}}})
				x.kind(err, osier.KindInvalid)
			}
			_, err := osier.NewCollection[any]("any").Insert(x.ctx, x.db, func() {})
			x.kind(err, osier.KindInvalid)
		}},
		{"a type's own binary form is stored and read", func(x *tc) {
			points := osier.NewCollection("points", osier.CollectionOptions[point]{Codec: osier.Binary})
			// Only *point can be decoded into; point encodes.
			_, err := points.InsertWithID(x.ctx, x.db, "p", point{-1, 7})
			x.must(err)
			got, err := points.Get(x.ctx, x.db, "p")
			x.must(err)
			x.same("value", got.Value, point{-1, 7})
			row := collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryScan, Collection: "points", Parts: osier.WithBody}))[0]
			x.same("tag", row.Codec, osier.TagBinary)
			x.same("body", row.Body, []byte{255, 255, 255, 255, 0, 0, 0, 7})
			shown, err := x.db.AppendJSON(nil, &row.Document)
			x.must(err)
			x.same("as JSON", string(shown), `{"binary":"/////wAAAAc="}`)
		}},
		{"binary bodies of every kind come back, the empty one too", func(x *tc) {
			bin := osier.NewCollection("bin", osier.CollectionOptions[osier.Raw]{Codec: osier.Binary})
			bodies := []osier.Raw{{}, {0}, {0xff}, bytes.Repeat([]byte{0}, 1000), bytes.Repeat([]byte("ab\x00\xff"), 30_000)}
			for i, body := range bodies {
				_, err := bin.InsertWithID(x.ctx, x.db, i, body)
				x.must(err)
				got, err := bin.Get(x.ctx, x.db, i)
				x.must(err)
				if !bytes.Equal(got.Value, body) {
					x.Fatalf("body %d: got %d bytes, want %d", i, len(got.Value), len(body))
				}
			}
			n := 0
			for _, d := range collect(x, bin.List(x.ctx, x.db, nil)) {
				if !bytes.Equal(d.Value, bodies[n]) {
					x.Fatalf("listed body %d: got %d bytes, want %d", n, len(d.Value), len(bodies[n]))
				}
				n++
			}
		}},
		{"a body's codec travels with it", func(x *tc) {
			asJSON := osier.NewCollection[point]("points")
			asBinary := osier.NewCollection("points", osier.CollectionOptions[point]{Codec: osier.Binary})
			_, err := asJSON.InsertWithID(x.ctx, x.db, "j", point{1, 2})
			x.must(err)
			_, err = asBinary.InsertWithID(x.ctx, x.db, "b", point{3, 4})
			x.must(err)
			for _, c := range []*osier.Collection[point]{asJSON, asBinary} {
				var got []point
				for _, d := range collect(x, c.List(x.ctx, x.db, nil)) {
					got = append(got, d.Value)
				}
				x.same("values", got, []point{{3, 4}, {1, 2}})
			}
		}},
		{"a body of a codec that the program lacks is ErrUnsupported, the rest is read", func(x *tc) {
			_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpPut, Collection: "films", ID: osier.MustID("odd"), Codec: 200, Body: []byte{1}}}})
			x.must(err)
			x.insert("even", "1")
			_, err = films.Get(x.ctx, x.db, "odd")
			x.kind(err, osier.KindUnsupported)
			x.same("title", x.title(x.db, "even"), "1")
			x.same("ids", len(collect(x, films.List(x.ctx, x.db, &osier.ListOptions{NoBody: true}))), 2)
		}},
		{"an older schema is migrated when it is read, and stored anew when written", lazyMigration},
		{"all documents of an older schema are migrated on demand", migrateAll},
		{"a document that cannot be migrated stops the migration with its name", func(x *tc) {
			x.insert("a", "fine")
			x.insert("b", "broken")
			err := filmsV2().MigrateAll(x.ctx, x.db, nil)
			x.kind(err, osier.KindInvalid)
			if !strings.Contains(err.Error(), "films/b") {
				x.Fatalf("error %q does not name the document", err)
			}
		}},
		{"a newer schema than the program's is refused", func(x *tc) {
			v3 := osier.NewCollection("films", osier.CollectionOptions[filmV2]{Schema: 3})
			_, err := v3.InsertWithID(x.ctx, x.db, "a", filmV2{})
			x.must(err)
			_, err = filmsV2().Get(x.ctx, x.db, "a")
			if err == nil || !strings.Contains(err.Error(), "newer program") {
				x.Fatalf("got %v, want an error that asks for a newer program", err)
			}
		}},
	}
}

func lazyMigration(x *tc) {
	v2 := filmsV2()
	_, err := films.InsertWithID(x.ctx, x.db, "a", film{"Alien", 1979})
	x.must(err)
	doc, err := v2.Get(x.ctx, x.db, "a")
	x.must(err)
	x.same("value", doc.Value, filmV2{"Alien", "year 1979"})
	stored := func() string {
		row := collect(x, x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryScan, Collection: "films", Parts: osier.WithBody}))[0]
		return fmt.Sprintf("schema %d, %s", row.Schema, row.Body)
	}
	x.same("stored", stored(), `schema 0, {"title":"Alien","year":1979}`)
	x.same("listed", collect(x, v2.List(x.ctx, x.db, nil))[0].Value.Name, "Alien")
	x.same("in a feed", collect(x, v2.Changes(x.ctx, x.db, &osier.Feed{Parts: osier.WithBody}, nil))[0].Value.Name, "Alien")
	_, err = v2.Modify(x.ctx, x.db, "a", func(f *filmV2) error { f.Name += "!"; return nil })
	x.must(err)
	x.same("stored", stored(), `schema 2, {"name":"Alien!","year":"year 1979"}`)
}

func migrateAll(x *tc) {
	v2 := filmsV2()
	const n = 600 // more than two commits of the migration
	var b osier.Batch
	for i := range n {
		_, err := films.InsertWithID(x.ctx, &b, i, film{fmt.Sprint(i), i})
		x.must(err)
	}
	_, err := x.db.Commit(x.ctx, &b)
	x.must(err)
	_, err = v2.Overwrite(x.ctx, x.db, 5, filmV2{"new", "already"})
	x.must(err)
	x.must(films.Delete(x.ctx, x.db, 7, osier.Rev{}))
	doc, err := films.Get(x.ctx, x.db, 9)
	x.must(err)
	_, err = films.Attach(x.ctx, x.db, 9, doc.Rev, "x", "", strings.NewReader("kept"))
	x.must(err)
	var last osier.MigrateProgress
	reports := 0
	x.must(v2.MigrateAll(x.ctx, x.db, func(p osier.MigrateProgress) {
		reports++
		if p.Seen < last.Seen || p.Written < last.Written || p.Total != n-1 {
			x.Errorf("progress %+v after %+v", p, last)
		}
		last = p
	}))
	x.same("progress", last, osier.MigrateProgress{Seen: n - 1, Total: n - 1, Written: n - 2})
	if reports < 2 {
		x.Fatalf("%d reports of progress, want one a commit", reports)
	}
	for row, err := range x.db.Query(x.ctx, &osier.Query{Kind: osier.QueryScan, Collection: "films", Parts: osier.WithBody}) {
		x.must(err)
		if row.Schema != 2 {
			x.Fatalf("document %v has schema %d", row.ID, row.Schema)
		}
	}
	x.same("an attachment", x.fetchOf(v2, 9), "kept")
	before, err := x.db.Info(x.ctx)
	x.must(err)
	x.must(v2.MigrateAll(x.ctx, x.db, nil))
	after, err := x.db.Info(x.ctx)
	x.must(err)
	x.same("sequence after another run", after.LastSeq, before.LastSeq)
}

// fetchOf reads the attachment x of a migrated film.
func (x *tc) fetchOf(c *osier.Collection[filmV2], id any) string {
	x.Helper()
	doc, err := c.Get(x.ctx, x.db, id)
	x.must(err)
	x.same("attachments", len(doc.Attachments), 1)
	return x.fetch(id, "x", 0, -1)
}
