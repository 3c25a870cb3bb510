package engine

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/mango"
)

// glimpse is what a selector needs of a document record.
type glimpse struct {
	deleted bool
	codec   osier.CodecTag
	body    []byte
}

// glance takes apart the record of an ordinary document (no conflicts,
// attachments or history) several times faster than decodeDocument, of which it
// is a part. ok is false if the record is another one, or damaged.
func glance(b []byte) (g glimpse, ok bool) {
	const least = 2 + 1 + 1 + 1 + 17 + 2
	if len(b) < least || b[0] != recordVersion || b[1]&(flagLosers|flagAttachments|flagKept) != 0 {
		return g, false
	}
	i := 2
	for range 3 { // sequence, time, generation
		for i < len(b) && b[i] >= 0x80 {
			i++
		}
		i++
	}
	digests := 1
	if b[1]&flagParent != 0 {
		digests = 2
	}
	for range digests {
		if i >= len(b) {
			return g, false
		}
		if n := int(b[i]); n == 0 {
			i += 17
		} else {
			i += 1 + n
		}
	}
	if i >= len(b) {
		return g, false
	}
	g.codec = osier.CodecTag(b[i])
	_, n := binary.Uvarint(b[i+1:]) // the schema's version
	if n <= 0 {
		return g, false
	}
	g.deleted, g.body = b[1]&flagDeleted != 0, b[i+1+n:]
	return g, true
}

// docReader gives documents the form that package mango works on. It is for one
// goroutine; what it returns is valid until its next call.
type docReader struct {
	codecs               osier.Codecs
	id, rev, attachments bool // whether these are wanted
	key                  bool // whether sort keys hold ids

	full document
	json []byte
	doc  mango.Doc
}

// needing is a selector, projection or keyer.
type needing interface{ Needs(member string) bool }

// want adds to what the reader has to provide.
func (r *docReader) want(n needing) {
	r.id = r.id || n.Needs("_id")
	r.rev = r.rev || n.Needs("_rev")
	r.attachments = r.attachments || n.Needs("_attachments")
}

// read takes a record apart. live is false if the document is deleted. A body
// that is no JSON object has no fields; one without a JSON form is an error.
func (r *docReader) read(key, record []byte) (d *mango.Doc, live bool, err error) {
	g, ordinary := glance(record)
	if !ordinary || r.rev || r.attachments {
		if err := decodeDocument(record, &r.full); err != nil {
			return nil, false, corrupt("read document", osier.TrustedID(key), err)
		}
		g = glimpse{r.full.winner.deleted, r.full.v.codec, r.full.v.body}
	}
	if g.deleted {
		return nil, false, nil
	}
	d, err = r.make(key, g.codec, g.body, r.full.winner.rev, r.full.v.atts)
	return d, true, err
}

// form is read of a decoded document that is not deleted.
func (r *docReader) form(key []byte, d *osier.Document) (*mango.Doc, error) {
	return r.make(key, d.Codec, d.Body, d.Rev, d.Attachments)
}

// make looks at the revision and the attachments only if they are wanted.
func (r *docReader) make(key []byte, codec osier.CodecTag, body []byte, rev osier.Rev, atts []osier.Attachment) (_ *mango.Doc, err error) {
	r.doc.Body, r.doc.Valid = body, codec == osier.TagJSON
	if codec > osier.TagJSON {
		if r.json, err = appendJSON(r.codecs, r.json[:0], codec, body); err != nil {
			return nil, err
		}
		r.doc.Body = r.json
	}
	if !isObject(r.doc.Body) {
		r.doc.Body = emptyObject
	}
	if r.id {
		r.doc.ID = osier.TrustedID(key).String()
	}
	if r.key {
		r.doc.Key = key
	}
	if r.rev {
		r.doc.Rev = rev.String()
	}
	if r.attachments {
		r.doc.Meta = attachmentsMember(atts)
	}
	return &r.doc, nil
}

var emptyObject = []byte("{}")

// appendJSON appends the JSON form of a body.
func appendJSON(codecs osier.Codecs, dst []byte, tag osier.CodecTag, body []byte) ([]byte, error) {
	codec := codecs[tag]
	if codec == nil {
		return dst, &osier.Error{Kind: osier.KindUnsupported, Op: "show document as JSON", Err: errCodec(tag)}
	}
	dst, err := codec.AppendJSON(dst, body)
	if err == nil && !json.Valid(dst) {
		err = errNotJSON
	}
	return dst, err
}

// attachmentsMember shows attachments as CouchDB's stubs.
func attachmentsMember(atts []osier.Attachment) []byte {
	if len(atts) == 0 {
		return nil
	}
	type stub struct {
		ContentType string `json:"content_type"`
		RevPos      uint64 `json:"revpos"`
		Digest      string `json:"digest"`
		Length      uint64 `json:"length"`
		Stub        bool   `json:"stub"`
	}
	stubs := make(map[string]stub, len(atts))
	for i := range atts {
		a := &atts[i]
		stubs[a.Name] = stub{a.ContentType, a.RevPos, "md5-" + base64.StdEncoding.EncodeToString(a.MD5[:]), a.Size, true}
	}
	b, err := json.Marshal(map[string]any{"_attachments": stubs})
	if err != nil {
		return nil // strings and numbers always encode
	}
	return b
}
