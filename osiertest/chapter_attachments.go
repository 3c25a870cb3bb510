package osiertest

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/osierdb/osier"
)

func attachmentTests() []test {
	return []test{
		{"an attachment is listed with size and digests, and read back", func(x *tc) {
			doc := x.insert("a", "1")
			const text = "hello attachment"
			doc, err := films.Attach(x.ctx, x.db, "a", doc.Rev, "note.txt", "text/plain", strings.NewReader(text))
			x.must(err)
			x.same("generation", doc.Rev.Generation(), uint64(2))
			x.same("title", doc.Value.Title, "1")
			x.same("attachments", len(doc.Attachments), 1)
			a := doc.Attachments[0]
			if a.Name != "note.txt" || a.ContentType != "text/plain" || a.Size != uint64(len(text)) || a.RevPos != 2 ||
				a.MD5 != md5.Sum([]byte(text)) || a.SHA256 != sha256.Sum256([]byte(text)) || a.Blob.IsZero() {
				x.Fatalf("got %+v", a)
			}
			x.same("bytes", x.fetch("a", "note.txt", 0, -1), text)
			listed := collect(x, films.List(x.ctx, x.db, nil))[0]
			x.same("listed", listed.Attachments, doc.Attachments)
		}},
		{"a large attachment is streamed in and out in chunks", streamLarge},
		{"a part of an attachment is read by offset and length", func(x *tc) {
			doc := x.insert("a", "1")
			body := make([]byte, 300_000)
			for i := range body {
				body[i] = byte(i * 7 / 3)
			}
			_, err := films.Attach(x.ctx, x.db, "a", doc.Rev, "b", "", bytes.NewReader(body))
			x.must(err)
			n := int64(len(body))
			for _, r := range [][2]int64{{0, 10}, {0, n}, {0, n + 10}, {0, 0}, {65_530, 12}, {131_071, 70_000}, {n - 1, 5}, {n - 1, -1}, {n, 5}, {n, -1}, {n + 10, 5}, {250_000, -1}} {
				from, to := min(r[0], n), n
				if r[1] >= 0 {
					to = min(from+r[1], n)
				}
				if got := x.fetch("a", "b", r[0], r[1]); got != string(body[from:to]) {
					x.Fatalf("offset %d, length %d: got %d bytes, want %d", r[0], r[1], len(got), to-from)
				}
			}
		}},
		{"equal bytes of a document are stored once", func(x *tc) {
			doc := x.insert("a", "1")
			var err error
			for _, name := range []string{"one", "two"} {
				doc, err = films.Attach(x.ctx, x.db, "a", doc.Rev, name, "text/plain", strings.NewReader("the same"))
				x.must(err)
			}
			doc, err = films.Attach(x.ctx, x.db, "a", doc.Rev, "three", "text/plain", strings.NewReader("different"))
			x.must(err)
			blobs := map[osier.BlobID]bool{}
			for _, a := range doc.Attachments {
				blobs[a.Blob] = true
			}
			x.same("attachments", len(doc.Attachments), 3)
			x.same("blobs", len(blobs), 2)
			for name, want := range map[string]string{"one": "the same", "two": "the same", "three": "different"} {
				x.same(name, x.fetch("a", name, 0, -1), want)
			}
		}},
		{"equal bytes of different versions are stored once", func(x *tc) {
			x.schema(osier.NewCollection("films", osier.CollectionOptions[film]{History: osier.KeepAll}))
			doc := x.insert("a", "1")
			first, err := films.Attach(x.ctx, x.db, "a", doc.Rev, "x", "text/plain", strings.NewReader("the same"))
			x.must(err)
			doc, err = films.Detach(x.ctx, x.db, "a", first.Rev, "x")
			x.must(err)
			again, err := films.Attach(x.ctx, x.db, "a", doc.Rev, "y", "text/plain", strings.NewReader("the same"))
			x.must(err)
			x.same("blob", again.Attachments[0].Blob, first.Attachments[0].Blob)
			x.same("bytes", x.fetch("a", "y", 0, -1), "the same")
		}},
		{"an attachment outlives updates of its document, and goes with a detach", func(x *tc) {
			doc := x.insert("a", "1")
			doc, err := films.Attach(x.ctx, x.db, "a", doc.Rev, "x", "", strings.NewReader("bytes"))
			x.must(err)
			doc.Value.Title = "2"
			doc, err = films.Update(x.ctx, x.db, doc)
			x.must(err)
			_, err = films.Upsert(x.ctx, x.db, "a", film{Title: "3"})
			x.must(err)
			got, err := films.Get(x.ctx, x.db, "a")
			x.must(err)
			x.same("position", got.Attachments[0].RevPos, uint64(2))
			x.same("bytes", x.fetch("a", "x", 0, -1), "bytes")
			got, err = films.Detach(x.ctx, x.db, "a", got.Rev, "x")
			x.must(err)
			x.same("attachments", len(got.Attachments), 0)
			x.same("title", got.Value.Title, "3")
			_, _, err = films.OpenAttachment(x.ctx, x.db, "a", "x", 0, -1)
			x.kind(err, osier.KindNotFound)
			_ = doc
		}},
		{"attaching again under a name replaces it in its place", func(x *tc) {
			doc := x.insert("a", "1")
			var err error
			for _, name := range []string{"x", "y", "x"} {
				doc, err = films.Attach(x.ctx, x.db, "a", doc.Rev, name, "text/"+name, strings.NewReader(fmt.Sprint(doc.Rev.Generation())))
				x.must(err)
			}
			x.same("list", attachmentList(doc.Attachments), []string{"x text/x 1 at 4", "y text/y 1 at 3"})
			x.same("bytes", x.fetch("a", "x", 0, -1), "3")
		}},
		{"attaching needs the present revision and a name", func(x *tc) {
			doc := x.insert("a", "1")
			_, err := films.Update(x.ctx, x.db, doc)
			x.must(err)
			_, err = films.Attach(x.ctx, x.db, "a", doc.Rev, "x", "", strings.NewReader("x"))
			x.kind(err, osier.KindConflict)
			_, err = films.Attach(x.ctx, x.db, "none", doc.Rev, "x", "", strings.NewReader("x"))
			x.kind(err, osier.KindConflict)
			_, err = films.Attach(x.ctx, x.db, "a", doc.Rev, "", "", strings.NewReader("x"))
			x.kind(err, osier.KindInvalid)
			_, err = films.Detach(x.ctx, x.db, "a", doc.Rev, "x")
			x.kind(err, osier.KindConflict)
		}},
		{"detaching what is not attached is ErrNotFound", func(x *tc) {
			doc := x.insert("a", "1")
			_, err := films.Detach(x.ctx, x.db, "a", doc.Rev, "x")
			x.kind(err, osier.KindNotFound)
		}},
		{"an attachment without a content type is application/octet-stream", func(x *tc) {
			doc := x.insert("a", "1")
			doc, err := films.Attach(x.ctx, x.db, "a", doc.Rev, "x", "", strings.NewReader("x"))
			x.must(err)
			x.same("type", doc.Attachments[0].ContentType, "application/octet-stream")
		}},
		{"staged bytes wait for the command that succeeds, and are taken once", func(x *tc) {
			a, err := x.db.Backend().Stage(x.ctx, "shop", strings.NewReader("bytes"))
			x.must(err)
			x.insert("a", "1")
			put := func(id string, e osier.Expect) error {
				_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{
					Kind: osier.OpPut, Collection: "films", ID: osier.MustID(id), Expect: e, Codec: osier.TagJSON, Body: []byte(`{}`),
					Attachments: []osier.AttachmentRef{{Name: "x", Staged: a.Blob}},
				}}})
				return err
			}
			x.kind(put("a", osier.ExpectAbsent), osier.KindConflict)
			x.must(put("a", osier.ExpectPresent))
			x.same("bytes", x.fetch("a", "x", 0, -1), "bytes")
			x.kind(put("b", osier.ExpectAbsent), osier.KindInvalid)
		}},
		{"the references of a put set, keep and remove", attachmentRefs},
		{"an insert after a deletion has no old attachments", func(x *tc) {
			doc := x.insert("a", "1")
			_, err := films.Attach(x.ctx, x.db, "a", doc.Rev, "x", "", strings.NewReader("x"))
			x.must(err)
			x.must(films.Delete(x.ctx, x.db, "a", osier.Rev{}))
			x.insert("a", "2")
			got, err := films.Get(x.ctx, x.db, "a")
			x.must(err)
			x.same("attachments", len(got.Attachments), 0)
		}},
		{"each branch of a conflict has its own attachments", func(x *tc) {
			x.graft("a", "winner", "2-b", "1-x")
			x.graft("a", "loser", "2-a", "1-x")
			_, err := films.Attach(x.ctx, x.db, "a", revOf("2-a"), "x", "", strings.NewReader("on the longer branch"))
			x.must(err)
			x.same("bytes", x.fetch("a", "x", 0, -1), "on the longer branch")
			old, err := films.GetRev(x.ctx, x.db, "a", revOf("2-b"))
			x.must(err)
			x.same("attachments", len(old.Attachments), 0)
		}},
		{"bytes that are not there are ErrNotFound", func(x *tc) {
			_, err := x.db.Backend().Fetch(x.ctx, "shop", osier.BlobID{1, 2, 3}, 0, -1)
			x.kind(err, osier.KindNotFound)
			x.insert("a", "1")
			_, _, err = films.OpenAttachment(x.ctx, x.db, "a", "none", 0, -1)
			x.kind(err, osier.KindNotFound)
			_, _, err = films.OpenAttachment(x.ctx, x.db, "none", "none", 0, -1)
			x.kind(err, osier.KindNotFound)
		}},
		{"a source that fails half way stages nothing, and its error comes out", func(x *tc) {
			broken := errors.New("the cable broke")
			doc := x.insert("a", "1")
			src := io.MultiReader(strings.NewReader(strings.Repeat("x", 200_000)), failingReader{broken})
			_, err := films.Attach(x.ctx, x.db, "a", doc.Rev, "x", "", src)
			if !errors.Is(err, broken) {
				x.Fatalf("got %v, want it to wrap %v", err, broken)
			}
			got, err := films.Get(x.ctx, x.db, "a")
			x.must(err)
			x.same("revision", got.Rev, doc.Rev)
		}},
		{"an empty attachment is an attachment", func(x *tc) {
			doc := x.insert("a", "1")
			doc, err := films.Attach(x.ctx, x.db, "a", doc.Rev, "x", "", strings.NewReader(""))
			x.must(err)
			x.same("size", doc.Attachments[0].Size, uint64(0))
			x.same("bytes", x.fetch("a", "x", 0, -1), "")
		}},
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// fetch reads bytes of a film's attachment.
func (x *tc) fetch(id any, name string, offset, length int64) string {
	x.Helper()
	_, rc, err := films.OpenAttachment(x.ctx, x.db, id, name, offset, length)
	x.must(err)
	defer rc.Close()
	b, err := io.ReadAll(rc)
	x.must(err)
	return string(b)
}

func attachmentList(atts []osier.Attachment) []string {
	out := []string{}
	for _, a := range atts {
		out = append(out, fmt.Sprintf("%s %s %d at %d", a.Name, a.ContentType, a.Size, a.RevPos))
	}
	return out
}

// streamLarge sends noise of a known seed and compares digests only.
func streamLarge(x *tc) {
	size := x.h.Caps.AttachmentBytes
	if size == 0 {
		size = 8 << 20
	}
	noise := func() io.Reader {
		return io.LimitReader(rand.NewChaCha8([32]byte{1, 2, 3}), int64(size))
	}
	want := sha256.New()
	_, err := io.Copy(want, noise())
	x.must(err)
	doc := x.insert("a", "1")
	// A reader of odd pieces: a store must not rely on full ones.
	doc, err = films.Attach(x.ctx, x.db, "a", doc.Rev, "noise", "application/octet-stream", &pieces{noise(), 7919})
	x.must(err)
	a := doc.Attachments[0]
	x.same("size", a.Size, uint64(size))
	x.same("digest", fmt.Sprintf("%x", a.SHA256), fmt.Sprintf("%x", want.Sum(nil)))
	_, rc, err := films.OpenAttachment(x.ctx, x.db, "a", "noise", 0, -1)
	x.must(err)
	defer rc.Close()
	got := sha256.New()
	n, err := io.Copy(got, rc)
	x.must(err)
	x.same("size", n, int64(size))
	x.same("digest", fmt.Sprintf("%x", got.Sum(nil)), fmt.Sprintf("%x", want.Sum(nil)))
}

// pieces hands out at most n bytes at a time.
type pieces struct {
	r io.Reader
	n int
}

func (p *pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }

// attachmentRefs puts a document by hand, step by step.
func attachmentRefs(x *tc) {
	stage := func(name, body string) osier.AttachmentRef {
		x.Helper()
		a, err := x.db.Backend().Stage(x.ctx, "shop", strings.NewReader(body))
		x.must(err)
		return osier.AttachmentRef{Name: name, ContentType: "t/" + body, Staged: a.Blob}
	}
	stub := func(name string, pos uint64) osier.AttachmentRef {
		return osier.AttachmentRef{Name: name, Stub: true, RevPos: pos}
	}
	remove := func(name string) osier.AttachmentRef { return osier.AttachmentRef{Name: name, Remove: true} }
	put := func(keep bool, refs ...osier.AttachmentRef) error {
		_, err := x.db.Exec(x.ctx, &osier.Command{Ops: []osier.Op{{
			Kind: osier.OpPut, Collection: "films", ID: osier.MustID("a"), Codec: osier.TagJSON, Body: []byte(`{}`),
			Attachments: refs, KeepAttachments: keep,
		}}})
		return err
	}
	list := func() []string {
		doc, err := films.Get(x.ctx, x.db, "a")
		x.must(err)
		return attachmentList(doc.Attachments)
	}
	x.must(put(false, stage("b", "1"), stage("a", "22"), stage("c", "333")))
	x.same("in the request's order", list(), []string{"b t/1 1 at 1", "a t/22 2 at 1", "c t/333 3 at 1"})
	x.must(put(true, stage("a", "4444"), stage("d", "5"), remove("b")))
	x.same("kept, replaced, appended, removed", list(), []string{"a t/4444 4 at 2", "c t/333 3 at 1", "d t/5 1 at 2"})
	x.must(put(false, stub("d", 2), stub("c", 0), stage("e", "6")))
	x.same("stubs in the request's order, the rest gone", list(), []string{"d t/5 1 at 2", "c t/333 3 at 1", "e t/6 1 at 3"})
	for _, bad := range [][]osier.AttachmentRef{
		{stub("a", 0)}, {stub("d", 1)}, {stage("x", "x"), stage("x", "y")},
		{{Name: "x", Staged: osier.BlobID{9, 9}}}, {{Name: "x"}},
	} {
		x.kind(put(false, bad...), osier.KindInvalid)
	}
	x.same("after what was refused", list(), []string{"d t/5 1 at 2", "c t/333 3 at 1", "e t/6 1 at 3"})
	x.must(put(false, stage("", "1"), stub("d", 2)))
	x.same("a name may be empty", list(), []string{" t/1 1 at 4", "d t/5 1 at 2"})
	x.must(put(false))
	x.same("none named, none kept", list(), []string{})
}
