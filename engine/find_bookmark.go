package engine

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/fnv"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/mango"
)

// order is a total order of documents: by the key of fields, then by id, and all
// of it the other way round if it is reversed. Without fields it is that of ids.
// An order with fields begins with an ascending one or is an index's own.
type order struct {
	fields  mango.Sort
	reverse bool
}

// orderOf is the order that a sort stands for.
func orderOf(sort []osier.SortField) (o order) {
	fields := make(mango.Sort, len(sort))
	for i, f := range sort {
		fields[i] = mango.SortField(f)
	}
	o.fields, o.reverse = fields.Order()
	return o
}

// place is where a row stands in an order.
type place struct {
	order
	key []byte // of the fields
	id  []byte // encoded
}

// A bookmark is a place, and a mark of the query it belongs to:
//
//	version u8 | flags u8 | query u64 | fields uvarint, each: descending u8, path | key | id
//
// with lengths as uvarints before paths, key and id, and the first 4 bytes of
// the FNV-1a hash of all that before it; in base64 for URLs.
const (
	bookmarkVersion = 1
	bookmarkReverse = 1 << 0

	// A bookmark holds a key, which is some multiple of the fields' values.
	maxBookmark = 4 << 20
	maxFields   = 256
)

// fingerprint tells queries apart whose answers come in different orders or hold
// different rows.
func fingerprint(selector string, sort []osier.SortField, sortedOnly bool) uint64 {
	h := fnv.New64a()
	write := func(s string) { _, _ = h.Write(append(binary.AppendUvarint(nil, uint64(len(s))), s...)) }
	write(selector)
	for _, f := range sort {
		write(f.Path)
		if f.Descending {
			write("desc")
		}
	}
	if sortedOnly {
		write("sorted only")
	}
	return h.Sum64()
}

func bookmarkSum(b []byte) []byte {
	h := fnv.New32a()
	_, _ = h.Write(b)
	return h.Sum(nil)
}

// encodeBookmark returns the text of a place.
func encodeBookmark(p *place, query uint64) string {
	b := []byte{bookmarkVersion, 0}
	if p.reverse {
		b[1] = bookmarkReverse
	}
	b = binary.BigEndian.AppendUint64(b, query)
	b = binary.AppendUvarint(b, uint64(len(p.fields)))
	for _, f := range p.fields {
		descending := byte(0)
		if f.Descending {
			descending = 1
		}
		b = appendText(append(b, descending), f.Path)
	}
	b = appendText(b, string(p.key))
	b = appendText(b, string(p.id))
	return base64.RawURLEncoding.EncodeToString(append(bookmarkSum(b), b...))
}

var errBookmark = errors.New("the bookmark is damaged")

// decodeBookmark reads what encodeBookmark wrote, or anything: a bookmark comes
// from a stranger.
func decodeBookmark(text string, query uint64) (*place, error) {
	if len(text) > maxBookmark {
		return nil, errBookmark
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 4 || string(bookmarkSum(b[4:])) != string(b[:4]) {
		return nil, errBookmark
	}
	r := reader{b: b[4:]}
	if r.byte() != bookmarkVersion {
		return nil, errors.New("the bookmark is of another version")
	}
	flags := r.byte()
	mark := r.bytes(8)
	n := r.count(2)
	if r.bad || flags&^bookmarkReverse != 0 || n > maxFields {
		return nil, errBookmark
	}
	if binary.BigEndian.Uint64(mark) != query {
		return nil, errors.New("the bookmark is of another query")
	}
	p := &place{order: order{reverse: flags&bookmarkReverse != 0}}
	for range n {
		descending := r.byte()
		p.fields = append(p.fields, mango.SortField{Path: r.text(), Descending: descending == 1})
	}
	p.key, p.id = []byte(r.text()), []byte(r.text())
	if r.bad || len(r.b) > 0 {
		return nil, errBookmark
	}
	if end, err := keys.Skip(p.id); err != nil || end != len(p.id) {
		return nil, errBookmark
	}
	return p, nil
}
