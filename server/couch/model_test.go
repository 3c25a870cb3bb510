package couch

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/osiertest"
)

// TestDoorFollowsTheModel plays random writes through HTTP and, as operations, on
// the model that judges every backend: each must be answered as the model's result
// says, and after each all leaves, lists and changes must be the model's. Equal
// revisions show that what was stored is equal to the last byte.
func TestDoorFollowsTheModel(t *testing.T) {
	r := newRig(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		p := newPlay(rt, r, fmt.Sprintf("model%d", n))
		steps := []func(id string){p.write, p.write, p.remove, p.graft, p.graft, p.bulk, p.attach, p.detach, p.copy}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			id := p.id()
			rapid.SampledFrom(steps).Draw(rt, "step")(id)
			p.compareDoc(id)
			p.compareLists()
		}
	})
}

// play is one history: a database behind the door and its double on the model.
type play struct {
	t     *rapid.T
	rig   *rig
	ctx   context.Context
	path  string // of the database
	model *osier.DB
	known map[string][]string // by id: revisions that were told, and some that never were
	what  string              // the last request, for failures
}

func newPlay(t *rapid.T, r *rig, name string) *play {
	p := &play{t: t, rig: r, ctx: r.t.Context(), path: "/" + name, known: map[string][]string{}}
	r.want(http.StatusCreated, http.MethodPut, p.path, "")
	db, err := osier.NewStore(osiertest.NewModel(nil), nil).CreateDB(p.ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	p.model = db
	if err := prepareDB(p.ctx, db, newDBSettings()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *play) id() string { return rapid.SampledFrom([]string{"a", "b", "é/c d"}).Draw(p.t, "id") }

func (p *play) body() string {
	return rapid.SampledFrom([]string{`{}`, `{"v":1}`, `{"v":2}`, `{"t":"ü\u0001","n":[1,2.5,null,{"":-0.5}]}`}).Draw(p.t, "body")
}

// rev draws a revision to write on: none, one that was, or one that never was.
func (p *play) rev(id string) string {
	return rapid.SampledFrom(append([]string{"", "", "1-abc"}, p.known[id]...)).Draw(p.t, "rev")
}

// leaf draws a live leaf, so that most writes work; else any revision.
func (p *play) leaf(id string) string {
	var live []string
	for _, d := range p.leaves(id) {
		if !d.Deleted {
			live = append(live, d.Rev.String())
		}
	}
	if len(live) == 0 || rapid.IntRange(0, 3).Draw(p.t, "luck") == 0 {
		return p.rev(id)
	}
	return rapid.SampledFrom(live).Draw(p.t, "leaf")
}

func (p *play) at(id string) string { return p.path + "/" + escape(id) }

func (p *play) ask(method, path, body string, headers ...string) *reply {
	p.what = fmt.Sprint(method, " ", path, " ", headers, " ", body)
	return p.rig.do(method, path, body, headers...)
}

// exec carries out one operation on the model; its revision is told from then on.
func (p *play) exec(op osier.Op) (string, error) {
	res, err := p.model.Exec(p.ctx, &osier.Command{Ops: []osier.Op{op}})
	if err != nil {
		return "", err
	}
	rev := res.Ops[0].Rev.String()
	p.learn(op.ID, rev)
	return rev, nil
}

func (p *play) learn(id osier.ID, rev string) {
	if text := id.String(); !slices.Contains(p.known[text], rev) {
		p.known[text] = append(p.known[text], rev)
	}
}

// answered compares an answer with the model's result.
func (p *play) answered(a *reply, good int, rev string, err error) {
	p.t.Helper()
	want := good
	switch osier.KindOf(err) {
	case osier.KindConflict, osier.KindNotFound, osier.KindDeleted:
		if err != nil {
			want = http.StatusConflict
		}
	}
	if a.StatusCode != want {
		p.t.Fatalf("%s: status %d, want %d (the model: %v): %s", p.what, a.StatusCode, want, err, a.body)
	}
	if err != nil {
		return
	}
	var got struct{ Rev string }
	if json.Unmarshal(a.body, &got); got.Rev != rev {
		p.t.Fatalf("%s: revision %q, want %q", p.what, got.Rev, rev)
	}
}

// put makes the operation of an ordinary write.
func (p *play) put(id, rev, body string, deleted bool) osier.Op {
	op := osier.Op{Kind: osier.OpPut, Collection: osier.DefaultCollection, ID: osier.MustID(id), Codec: osier.TagJSON,
		Body: []byte(body), Deleted: deleted, Expect: osier.ExpectAbsent}
	if deleted && body == "{}" {
		op.Body = nil
	}
	if rev != "" {
		op.Expect, op.Rev = osier.ExpectLiveRev, p.parse(rev)
	}
	return op
}

func (p *play) parse(text string) osier.Rev {
	rev, err := osier.ParseRev(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return rev
}

// stage puts bytes down on the model.
func (p *play) stage(data string) osier.BlobID {
	a, err := p.model.Backend().Stage(p.ctx, p.model.Name(), strings.NewReader(data))
	if err != nil {
		p.t.Fatal(err)
	}
	return a.Blob
}

// with adds members to a JSON object.
func with(body string, members ...string) string {
	all := strings.Join(members, ",")
	switch {
	case all == "":
		return body
	case body == "{}":
		return "{" + all + "}"
	}
	return body[:len(body)-1] + "," + all + "}"
}

// write is PUT or POST, with the revision in one of the places for it, and
// perhaps attachments: new ones, and stubs of those of the revision.
func (p *play) write(id string) {
	rev, body := p.leaf(id), p.body()
	deleted := rapid.IntRange(0, 4).Draw(p.t, "deleted") == 0
	op := p.put(id, rev, body, deleted)
	var members, headers, atts []string
	add := func(name, json string, ref osier.AttachmentRef) {
		atts = append(atts, fmt.Sprintf("%q:%s", name, json))
		ref.Name = name
		op.Attachments = append(op.Attachments, ref)
	}
	data := rapid.SampledFrom([]string{"-", "", "x", "hello"}).Draw(p.t, "data")
	for _, d := range p.leaves(id) {
		for _, a := range d.Attachments {
			if a.Name == "new.txt" && data != "-" {
				continue // it is set anew
			}
			if d.Rev.String() == rev && !d.Deleted && rapid.Bool().Draw(p.t, "stub") {
				add(a.Name, fmt.Sprintf(`{"stub":true,"revpos":%d}`, a.RevPos), osier.AttachmentRef{Stub: true, RevPos: a.RevPos})
			}
		}
	}
	if data != "-" {
		add("new.txt", fmt.Sprintf(`{"content_type":"text/plain","data":%q}`, base64.StdEncoding.EncodeToString([]byte(data))),
			osier.AttachmentRef{ContentType: "text/plain", Staged: p.stage(data)})
	}
	if len(atts) > 0 {
		members = append(members, `"_attachments":{`+strings.Join(atts, ",")+"}")
	}
	if deleted {
		members = append(members, `"_deleted":true`)
	}
	where := rapid.SampledFrom([]string{"body", "query", "header", "post"}).Draw(p.t, "where")
	method, path, good := http.MethodPut, p.at(id), http.StatusCreated
	if deleted {
		good = http.StatusOK
	}
	if where == "post" {
		method, path, good = http.MethodPost, p.path, http.StatusCreated
		members = append(members, fmt.Sprintf(`"_id":%q`, id))
	}
	switch {
	case rev == "":
	case where == "query":
		path += "?rev=" + rev
	case where == "header":
		headers = append(headers, `If-Match: "`+rev+`"`)
	default:
		members = append(members, fmt.Sprintf(`"_rev":%q`, rev))
	}
	a := p.ask(method, path, with(body, members...), headers...)
	told, err := p.exec(op)
	p.answered(a, good, told, err)
}

// remove is DELETE.
func (p *play) remove(id string) {
	rev := p.leaf(id)
	path := p.at(id)
	if rev != "" {
		path += "?rev=" + rev
	}
	a := p.ask(http.MethodDelete, path, "")
	if all := p.leaves(id); len(all) == 0 || all[0].Deleted {
		if a.StatusCode != http.StatusNotFound {
			p.t.Fatalf("%s: status %d, want 404: %s", p.what, a.StatusCode, a.body)
		}
		return
	}
	if rev == "" {
		if a.StatusCode != http.StatusConflict {
			p.t.Fatalf("%s: status %d, want 409: %s", p.what, a.StatusCode, a.body)
		}
		return
	}
	told, err := p.exec(p.put(id, rev, "{}", true))
	p.answered(a, http.StatusOK, told, err)
}

// grafted draws a foreign revision with its path.
func (p *play) grafted(id string) (op osier.Op, text string) {
	// A digest tells the whole path, so that no revision has two parents.
	name := rapid.StringMatching(`[abc]{1,4}`).Draw(p.t, "digest")
	gen := len(name)
	var digests []string
	for i := range rapid.IntRange(1, gen).Draw(p.t, "told") {
		digests = append(digests, name[:gen-i])
	}
	body := p.body()
	op = p.put(id, "", body, rapid.IntRange(0, 3).Draw(p.t, "deleted") == 0)
	op.Kind, op.Expect = osier.OpGraft, 0
	for i, d := range digests {
		op.Path = append(op.Path, p.parse(fmt.Sprintf("%d-%s", gen-i, d)))
	}
	list, err := json.Marshal(digests)
	if err != nil {
		p.t.Fatal(err)
	}
	members := []string{fmt.Sprintf(`"_id":%q,"_deleted":%t,"_revisions":{"start":%d,"ids":%s}`, id, op.Deleted, gen, list)}
	if pos := rapid.IntRange(-2, gen).Draw(p.t, "revpos"); pos >= 0 {
		members = append(members, fmt.Sprintf(`"_attachments":{"x":{"content_type":"image/png","revpos":%d,"data":"AAEC"}}`, pos))
		op.Attachments = []osier.AttachmentRef{{Name: "x", ContentType: "image/png", RevPos: uint64(pos), Staged: p.stage("\x00\x01\x02")}}
	}
	return op, with(body, members...)
}

// graft is a write with new_edits=false, by PUT or in a list.
func (p *play) graft(id string) {
	op, text := p.grafted(id)
	if rapid.Bool().Draw(p.t, "listed") {
		a := p.ask(http.MethodPost, p.path+"/_bulk_docs", `{"new_edits":false,"docs":[`+text+`]}`)
		if _, err := p.exec(op); err != nil || a.StatusCode != http.StatusCreated || string(a.body) != "[]\n" {
			p.t.Fatalf("%s: %d %s, want 201 [] (the model: %v)", p.what, a.StatusCode, a.body, err)
		}
		return
	}
	a := p.ask(http.MethodPut, p.at(id)+"?new_edits=false", text)
	told, err := p.exec(op)
	good := http.StatusCreated
	if op.Deleted {
		good = http.StatusOK
	}
	p.answered(a, good, told, err)
}

// bulk is several writes at once, which succeed or fail each by itself.
func (p *play) bulk(string) {
	var ops []osier.Op
	var docs []string
	for range rapid.IntRange(1, 4).Draw(p.t, "documents") {
		id := p.id()
		rev, body := p.leaf(id), p.body()
		ops = append(ops, p.put(id, rev, body, rapid.IntRange(0, 4).Draw(p.t, "deleted") == 0))
		members := []string{fmt.Sprintf(`"_id":%q,"_deleted":%t`, id, ops[len(ops)-1].Deleted)}
		if rev != "" {
			members = append(members, fmt.Sprintf(`"_rev":%q`, rev))
		}
		docs = append(docs, with(body, members...))
	}
	a := p.ask(http.MethodPost, p.path+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`)
	res, err := p.model.Exec(p.ctx, &osier.Command{Ops: ops, PerDocument: true})
	if err != nil || a.StatusCode != http.StatusCreated {
		p.t.Fatalf("%s: status %d, want 201 (the model: %v): %s", p.what, a.StatusCode, err, a.body)
	}
	var got []struct{ ID, Rev, Error string }
	if err := json.Unmarshal(a.body, &got); err != nil || len(got) != len(ops) {
		p.t.Fatalf("%s: %s, want %d outcomes", p.what, a.body, len(ops))
	}
	for i, o := range res.Ops {
		want := struct{ ID, Rev, Error string }{ID: ops[i].ID.String()}
		if o.Err != nil {
			want.Error = "conflict"
		} else {
			want.Rev = o.Rev.String()
			p.learn(o.ID, want.Rev)
		}
		if got[i] != want {
			p.t.Fatalf("%s: outcome %d is %+v, want %+v", p.what, i, got[i], want)
		}
	}
}

// edit makes the operation that changes one attachment of a revision; nil if
// the model has no such live revision.
func (p *play) edit(id, rev, name string) (*osier.Op, *osier.Document) {
	query := &osier.Query{Kind: osier.QueryRevs, Collection: osier.DefaultCollection, IDs: []osier.ID{osier.MustID(id)}, Revs: []osier.Rev{p.parse(rev)}, Parts: osier.WithBody}
	for row, err := range p.model.Query(p.ctx, query) {
		if err != nil {
			p.t.Fatal(err)
		}
		if row.Missing || row.Deleted {
			return nil, nil
		}
		op := p.put(id, rev, "", false)
		op.Body, op.KeepBody = nil, true
		for _, a := range row.Attachments {
			if a.Name != name {
				op.Attachments = append(op.Attachments, osier.AttachmentRef{Name: a.Name, Stub: true})
			}
		}
		return &op, row.Document.Clone()
	}
	return nil, nil
}

func (p *play) attName() string {
	return rapid.SampledFrom([]string{"x", "new.txt", "dir/ü"}).Draw(p.t, "name")
}

// attach is PUT of an attachment.
func (p *play) attach(id string) {
	rev, name := p.leaf(id), p.attName()
	data := rapid.SampledFrom([]string{"1", "22", "hello"}).Draw(p.t, "data")
	path := p.at(id) + "/" + escape(name)
	op := new(osier.Op)
	if rev == "" {
		*op = p.put(id, "", "{}", false)
	} else {
		path += "?rev=" + rev
		op, _ = p.edit(id, rev, name)
	}
	a := p.ask(http.MethodPut, path, data, "Content-Type: image/png")
	if op == nil {
		if a.StatusCode != http.StatusConflict {
			p.t.Fatalf("%s: status %d, want 409: %s", p.what, a.StatusCode, a.body)
		}
		return
	}
	op.Attachments = append([]osier.AttachmentRef{{Name: name, ContentType: "image/png", Staged: p.stage(data)}}, op.Attachments...)
	told, err := p.exec(*op)
	p.answered(a, http.StatusCreated, told, err)
	if err == nil {
		got := p.ask(http.MethodGet, p.at(id)+"/"+escape(name)+"?rev="+told, "")
		if got.StatusCode != http.StatusOK || string(got.body) != data {
			p.t.Fatalf("%s: %d %q, want 200 %q", p.what, got.StatusCode, got.body, data)
		}
	}
}

// detach is DELETE of an attachment.
func (p *play) detach(id string) {
	rev, name := p.leaf(id), p.attName()
	if rev == "" {
		return
	}
	op, d := p.edit(id, rev, name)
	a := p.ask(http.MethodDelete, p.at(id)+"/"+escape(name)+"?rev="+rev, "")
	want := http.StatusConflict
	if op != nil && !slices.ContainsFunc(d.Attachments, func(a osier.Attachment) bool { return a.Name == name }) {
		op, want = nil, http.StatusNotFound
	}
	if op == nil {
		if a.StatusCode != want {
			p.t.Fatalf("%s: status %d, want %d: %s", p.what, a.StatusCode, want, a.body)
		}
		return
	}
	told, err := p.exec(*op)
	p.answered(a, http.StatusOK, told, err)
}

// copy is COPY of a document onto another.
func (p *play) copy(id string) {
	to := p.id()
	rev := p.leaf(to)
	dest := escape(to)
	if rev != "" {
		dest += "?rev=" + rev
	}
	a := p.ask("COPY", p.at(id), "", "Destination: "+dest)
	all := p.leaves(id)
	if len(all) == 0 || all[0].Deleted {
		if a.StatusCode != http.StatusNotFound {
			p.t.Fatalf("%s: status %d, want 404: %s", p.what, a.StatusCode, a.body)
		}
		return
	}
	from := all[0]
	op := p.put(to, rev, string(from.Body), false)
	for _, att := range from.Attachments {
		r, err := p.model.Backend().Fetch(p.ctx, p.model.Name(), att.Blob, 0, -1)
		if err != nil {
			p.t.Fatal(err)
		}
		staged, err := p.model.Backend().Stage(p.ctx, p.model.Name(), r)
		if err != nil {
			p.t.Fatal(err)
		}
		op.Attachments = append(op.Attachments, osier.AttachmentRef{Name: att.Name, ContentType: att.ContentType, Staged: staged.Blob})
	}
	told, err := p.exec(op)
	p.answered(a, http.StatusCreated, told, err)
}

// leaves reads the model's leaves of a document, the winner first.
func (p *play) leaves(id string) (out []*osier.Document) {
	query := &osier.Query{Kind: osier.QueryGet, Collection: osier.DefaultCollection, IDs: []osier.ID{osier.MustID(id)}, Deleted: true,
		Parts: osier.WithBody | osier.WithAncestors | osier.WithConflicts}
	for row, err := range p.model.Query(p.ctx, query) {
		if err != nil {
			p.t.Fatal(err)
		}
		if !row.Missing {
			out = append(out, row.Document.Clone())
		}
	}
	if len(out) == 0 || len(out[0].Conflicts) == 0 {
		return out
	}
	query = &osier.Query{Kind: osier.QueryRevs, Collection: osier.DefaultCollection, IDs: query.IDs, Parts: osier.WithBody | osier.WithAncestors}
	for _, l := range out[0].Conflicts {
		query.Revs = append(query.Revs, l.Rev)
	}
	for row, err := range p.model.Query(p.ctx, query) {
		if err != nil {
			p.t.Fatal(err)
		}
		out = append(out, row.Document.Clone())
	}
	return out
}

// jsonOf is a document as the door must show it.
func (p *play) jsonOf(d *osier.Document, revs, conflicts bool) map[string]any {
	m := map[string]any{}
	if len(d.Body) > 0 {
		if err := json.Unmarshal(d.Body, &m); err != nil {
			p.t.Fatal(err)
		}
	}
	m["_id"], m["_rev"] = d.ID.String(), d.Rev.String()
	if d.Deleted {
		m["_deleted"] = true
	}
	if len(d.Attachments) > 0 {
		atts := map[string]any{}
		for _, a := range d.Attachments {
			atts[a.Name] = map[string]any{"content_type": a.ContentType, "revpos": float64(a.RevPos), "length": float64(a.Size), "stub": true,
				"digest": "md5-" + base64.StdEncoding.EncodeToString(a.MD5[:])}
		}
		m["_attachments"] = atts
	}
	if revs {
		ids := []any{}
		for _, r := range append([]osier.Rev{d.Rev}, d.Ancestors...) {
			_, digest, _ := strings.Cut(r.String(), "-")
			ids = append(ids, digest)
		}
		m["_revisions"] = map[string]any{"start": float64(d.Rev.Generation()), "ids": ids}
	}
	if conflicts {
		for _, l := range d.Conflicts {
			name := "_conflicts"
			if l.Deleted {
				name = "_deleted_conflicts"
			}
			list, _ := m[name].([]any)
			m[name] = append(list, l.Rev.String())
		}
	}
	return m
}

// shows compares an answer with the JSON that it must be.
func (p *play) shows(path string, status int, want any) {
	p.t.Helper()
	a := p.rig.do(http.MethodGet, path, "")
	var got any
	if err := json.Unmarshal(a.body, &got); err != nil || a.StatusCode != status {
		p.t.Fatalf("after %s: GET %s: %d %s, want %d %v", p.what, path, a.StatusCode, a.body, status, want)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Fatalf("after %s: GET %s: want -, got +:\n%s", p.what, path, diff)
	}
}

// compareDoc compares all that the door tells of a document.
func (p *play) compareDoc(id string) {
	all := p.leaves(id)
	if len(all) == 0 {
		missing := map[string]any{"error": "not_found", "reason": "missing"}
		p.shows(p.at(id), http.StatusNotFound, missing)
		p.shows(p.at(id)+"?open_revs=all", http.StatusNotFound, missing)
		return
	}
	win := all[0]
	if win.Deleted {
		p.shows(p.at(id), http.StatusNotFound, map[string]any{"error": "not_found", "reason": "deleted"})
	} else {
		p.shows(p.at(id)+"?revs=true&conflicts=true&deleted_conflicts=true", http.StatusOK, p.jsonOf(win, true, true))
	}
	slices.SortFunc(all, func(a, b *osier.Document) int { return a.Rev.Compare(b.Rev) })
	opened := []any{}
	for _, d := range all {
		opened = append(opened, map[string]any{"ok": p.jsonOf(d, true, false)})
		p.shows(p.at(id)+"?rev="+d.Rev.String(), http.StatusOK, p.jsonOf(d, false, false))
	}
	p.shows(p.at(id)+"?open_revs=all&revs=true", http.StatusOK, opened)
}

// compareLists compares the database's list, feed and counts.
func (p *play) compareLists() {
	rows := []any{}
	for row, err := range p.model.Query(p.ctx, &osier.Query{Kind: osier.QueryScan, Collection: osier.DefaultCollection, Parts: osier.WithBody | osier.WithConflicts}) {
		if err != nil {
			p.t.Fatal(err)
		}
		doc := p.jsonOf(&row.Document, false, true)
		delete(doc, "_deleted_conflicts")
		id := row.ID.String()
		rows = append(rows, map[string]any{"id": id, "key": id, "value": map[string]any{"rev": row.Rev.String()}, "doc": doc})
	}
	p.shows(p.path+"/_all_docs?include_docs=true&conflicts=true", http.StatusOK,
		map[string]any{"total_rows": float64(len(rows)), "offset": float64(0), "rows": rows})

	var want []string
	for ch, err := range p.model.Watch(p.ctx, &osier.Feed{Collection: osier.DefaultCollection, Parts: osier.WithConflicts}) {
		if err != nil {
			p.t.Fatal(err)
		}
		line := fmt.Sprint(uint64(ch.Seq), " ", ch.ID, " ", ch.Deleted, " ", ch.Rev)
		for _, l := range ch.Conflicts {
			line += " " + l.Rev.String()
		}
		want = append(want, line)
	}
	if diff := cmp.Diff(want, p.changes()); diff != "" {
		p.t.Fatalf("after %s: the changes: want -, got +:\n%s", p.what, diff)
	}
	info, err := p.model.Info(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	i := slices.IndexFunc(info.Collections, func(c osier.CollectionInfo) bool { return c.Name == osier.DefaultCollection })
	coll := info.Collections[i]
	var got struct {
		Count     uint64 `json:"doc_count"`
		Deleted   uint64 `json:"doc_del_count"`
		UpdateSeq string `json:"update_seq"`
	}
	p.rig.want(http.StatusOK, http.MethodGet, p.path, "").into(p.rig.t, &got)
	seq, _, _ := strings.Cut(got.UpdateSeq, "-")
	if got.Count != coll.Count || got.Deleted != coll.Deleted || seq != fmt.Sprint(uint64(coll.LastSeq)) {
		p.t.Fatalf("after %s: the door tells %+v, the model %+v", p.what, got, coll)
	}
}

// changes reads the door's feed in the form of compareLists.
func (p *play) changes() (out []string) {
	a := p.rig.want(http.StatusOK, http.MethodGet, p.path+"/_changes?feed=continuous&timeout=0&style=all_docs", "")
	for line := range bytes.Lines(a.body) {
		var ch struct {
			Seq, ID string
			Deleted bool
			Changes []struct{ Rev string }
		}
		if json.Unmarshal(line, &ch) != nil || ch.ID == "" {
			continue // an empty line, or the last one
		}
		seq, _, _ := strings.Cut(ch.Seq, "-")
		text := fmt.Sprint(seq, " ", ch.ID, " ", ch.Deleted)
		for _, c := range ch.Changes {
			text += " " + c.Rev
		}
		out = append(out, text)
	}
	return out
}
