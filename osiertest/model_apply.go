package osiertest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/revtree"
)

// change is a command being carried out on a copy of the database.
type change struct {
	db    *database
	time  time.Time
	made  []osier.TransactionChange
	taken []osier.BlobID // staged bytes that are staged no more afterwards

	micros   int64 // the time for positions
	messages []*osier.Op
}

// apply returns the database after a sealed command. It leaves db alone; on an
// error there is no state after it.
func apply(db *database, c *osier.Command) (*database, *osier.Result, []*osier.Op, error) {
	if err := checkReads(db, c); err != nil {
		return nil, nil, nil, err
	}
	x := &change{db: db.clone(), time: c.Sealed.Time, micros: c.Sealed.Micros}
	res := &osier.Result{Time: c.Sealed.Time, Ops: make([]osier.OpResult, len(c.Ops))}
	for i := range c.Ops {
		before := len(x.taken)
		r, err := x.do(&c.Ops[i])
		if err != nil {
			x.taken = x.taken[:before]
			e := x.explain(&c.Ops[i], err)
			if !c.PerDocument {
				return nil, nil, nil, e
			}
			r = osier.OpResult{ID: c.Ops[i].ID, Err: e}
		}
		res.Ops[i] = r
	}
	res.First, res.Last = x.db.seq, x.db.seq
	if n := len(x.made); n > 0 {
		res.First = x.made[0].Seq
		x.db.transactions = append(x.db.transactions, osier.Transaction{
			First: res.First, Last: res.Last, Time: res.Time, Session: c.Session, Number: c.Number, Changes: x.made,
		})
	}
	for _, blob := range x.taken {
		delete(x.db.staged, blob)
	}
	return x.db, res, x.messages, nil
}

// checkReads judges what a transaction builds on.
func checkReads(db *database, c *osier.Command) error {
	for _, r := range c.Reads {
		conflict := &osier.Error{Kind: osier.KindConflict, Op: "commit", DB: db.name, Collection: r.Collection, ID: r.ID.String(),
			Err: errors.New("something that the transaction has read has changed")}
		if r.KV != nil {
			if db.kvChanged(r.KV, c.Sealed.Time) {
				return conflict
			}
			continue
		}
		if name, ok := osier.JournalName(r.Collection); ok {
			var last osier.Position
			if j := db.journals[name]; j != nil {
				last = j.last
			}
			if string(last.Append(nil)) != r.Start {
				return conflict
			}
			continue
		}
		if db.drops != c.Drops || r.Collection == "" && db.seq > c.Snapshot {
			return conflict
		}
		for _, d := range db.sorted(r.Collection) {
			if d.seq > c.Snapshot && within(d.id, r) {
				return conflict
			}
		}
	}
	return nil
}

func within(id osier.ID, r osier.Read) bool {
	if !r.ID.IsZero() {
		return id == r.ID
	}
	return id.Key() >= r.Start && (r.End == "" || id.Key() < r.End)
}

// failure is an error of a Kind that lacks the names of what it is about.
type failure struct {
	kind osier.Kind
	text string
}

func (f *failure) Error() string { return f.text }

func fail(kind osier.Kind, format string, args ...any) error {
	return &failure{kind, fmt.Sprintf(format, args...)}
}

// explain makes the full error of a failed operation.
func (x *change) explain(op *osier.Op, err error) *osier.Error {
	e := &osier.Error{Kind: osier.KindInvalid, Op: "write", DB: x.db.name, Collection: op.Collection, ID: op.ID.String(), Err: err}
	var f *failure
	if errors.As(err, &f) {
		e.Kind = f.kind
	}
	return e
}

func (x *change) do(op *osier.Op) (osier.OpResult, error) {
	switch op.Kind {
	case osier.OpKV, osier.OpKVDrop, osier.OpKVExpire, osier.OpKVBehind:
		return x.doKV(op)
	case osier.OpCollection:
		return osier.OpResult{}, x.declare(op)
	case osier.OpDropCollection:
		if x.db.collections[op.Collection] == nil {
			return osier.OpResult{}, fail(osier.KindNotFound, "no such collection")
		}
		delete(x.db.collections, op.Collection)
		x.db.drops++
		return osier.OpResult{}, nil
	case osier.OpGraft:
		return x.graft(op)
	case osier.OpJournal, osier.OpDropJournal, osier.OpAppend, osier.OpTrim:
		return x.journalOp(op)
	case osier.OpPublish:
		return x.publishOp(op)
	}
	return x.put(op)
}

func (x *change) declare(op *osier.Op) error {
	if op.Settings == nil {
		return fail(osier.KindInvalid, "no settings given")
	}
	if op.Settings.History < osier.KeepAll {
		return fail(osier.KindInvalid, "history of %d versions", op.Settings.History)
	}
	c := x.db.collections[op.Collection]
	if c == nil {
		c = &collection{born: x.db.drops + 1, docs: map[osier.ID]*document{}}
		x.db.collections[op.Collection] = c
	}
	c.settings = *op.Settings
	return nil
}

// put makes a new revision on the parent that the expectation names.
func (x *change) put(op *osier.Op) (osier.OpResult, error) {
	d := x.db.doc(op.Collection, op.ID)
	parent, err := expected(d, op)
	if err != nil {
		return osier.OpResult{}, err
	}
	v, err := x.content(d, parent, op)
	if err != nil {
		return osier.OpResult{}, err
	}
	var parentRev osier.Rev
	if parent != nil {
		parentRev = parent.Rev
	}
	gen := parentRev.Generation() + 1
	x.attach(v, gen)
	digest, err := digestOf(v, parentRev)
	if err != nil {
		return osier.OpResult{}, err
	}
	v.Rev = osier.NewRev(gen, digest)
	path := []osier.Rev{v.Rev}
	if parent != nil {
		path = append(path, parentRev)
	}
	return x.store(d, v, path, op)
}

// expected returns the version that a put continues, nil for none.
func expected(d *document, op *osier.Op) (*osier.Document, error) {
	w := d.winner()
	live := w != nil && !w.Deleted
	gone := fail(osier.KindNotFound, "no such document")
	if w != nil {
		gone = fail(osier.KindDeleted, "the document has been deleted")
	}
	switch op.Expect {
	case osier.ExpectAny:
		if op.Deleted && !live {
			return nil, gone
		}
		return w, nil
	case osier.ExpectAbsent:
		if live {
			return nil, fail(osier.KindConflict, "there is a document of that id, at revision %v", w.Rev)
		}
		if op.Deleted && w != nil {
			return nil, fail(osier.KindConflict, "the document has been deleted already, at revision %v", w.Rev)
		}
		return w, nil
	case osier.ExpectPresent:
		if !live {
			return nil, gone
		}
		return w, nil
	case osier.ExpectRev, osier.ExpectLiveRev:
		v := d.leaf(op.Rev)
		if v == nil || v.Deleted && (op.Deleted || op.Expect == osier.ExpectLiveRev) {
			return nil, fail(osier.KindConflict, "revision %v is not the end of a live branch", op.Rev)
		}
		return v, nil
	}
	return nil, fail(osier.KindInvalid, "unknown expectation %d", op.Expect)
}

// graft takes a revision as it was made elsewhere.
func (x *change) graft(op *osier.Op) (osier.OpResult, error) {
	if err := checkPath(op); err != nil {
		return osier.OpResult{}, err
	}
	d := x.db.doc(op.Collection, op.ID)
	if d.has(op.Path[0]) {
		return osier.OpResult{ID: op.ID, Rev: op.Path[0], Seq: d.seq}, nil
	}
	var parent *osier.Document
	if d != nil && len(op.Path) > 1 {
		parent = d.versions[op.Path[1]]
	}
	v, err := x.content(d, parent, op)
	if err != nil {
		return osier.OpResult{}, err
	}
	x.attach(v, op.Path[0].Generation())
	if _, err := digestOf(v, osier.Rev{}); err != nil {
		return osier.OpResult{}, err
	}
	v.Rev = op.Path[0]
	return x.store(d, v, op.Path, op)
}

func checkPath(op *osier.Op) error {
	if op.ID.IsZero() {
		return fail(osier.KindInvalid, "a graft needs a document id")
	}
	if len(op.Path) == 0 {
		return fail(osier.KindInvalid, "a graft needs a path of revisions")
	}
	for i, r := range op.Path {
		if _, err := toTree(r); err != nil || r.IsZero() || r.Generation()+uint64(i) != op.Path[0].Generation() {
			return fail(osier.KindInvalid, "revision %v at place %d of a path that begins with %v", r, i, op.Path[0])
		}
	}
	return nil
}

// content is the new version without revision, its attachments resolved.
func (x *change) content(d *document, parent *osier.Document, op *osier.Op) (*osier.Document, error) {
	v := &osier.Document{ID: op.ID, Deleted: op.Deleted, Codec: op.Codec, Schema: op.Schema, Body: slices.Clone(op.Body)}
	if op.KeepBody {
		if parent == nil {
			return nil, fail(osier.KindInvalid, "there is no parent revision whose body could be kept")
		}
		if parent.Body == nil && !op.Deleted {
			return nil, fail(osier.KindInvalid, "the parent revision %v is a deletion without a body that could be kept", parent.Rev)
		}
		v.Codec, v.Schema, v.Body = parent.Codec, parent.Schema, parent.Body
	}
	if !v.Deleted && v.Body == nil {
		v.Body = []byte{} // there is a body, if an empty one
	}
	var err error
	v.Attachments, err = x.attachments(d, parent, op)
	return v, err
}

// attachments returns the attachment list of a new version. Those that are set
// anew have RevPos 0.
func (x *change) attachments(d *document, parent *osier.Document, op *osier.Op) ([]osier.Attachment, error) {
	var before, list []osier.Attachment
	if parent != nil {
		before = parent.Attachments
	}
	if op.KeepAttachments {
		list = slices.Clone(before)
	}
	named := func(in []osier.Attachment, name string) int {
		return slices.IndexFunc(in, func(a osier.Attachment) bool { return a.Name == name })
	}
	seen := map[string]bool{}
	for _, ref := range op.Attachments {
		if seen[ref.Name] {
			return nil, fail(osier.KindInvalid, "attachment name %q is given twice", ref.Name)
		}
		seen[ref.Name] = true
		at := named(list, ref.Name)
		if ref.Remove {
			if at < 0 {
				return nil, fail(osier.KindNotFound, "the document has no attachment %q", ref.Name)
			}
			list = slices.Delete(list, at, at+1)
			continue
		}
		var a osier.Attachment
		if ref.Stub {
			i := named(before, ref.Name)
			if i < 0 || ref.RevPos != 0 && before[i].RevPos != ref.RevPos {
				return nil, fail(osier.KindInvalid, "missing stub: attachment %q", ref.Name)
			}
			a = before[i]
		} else {
			var err error
			if a, err = x.staged(d, op, ref); err != nil {
				return nil, err
			}
		}
		if at >= 0 {
			list[at] = a
		} else {
			list = append(list, a)
		}
	}
	return list, nil
}

// staged resolves bytes that were put down before. Equal bytes that the document
// already has are taken instead.
func (x *change) staged(d *document, op *osier.Op, ref osier.AttachmentRef) (osier.Attachment, error) {
	a, ok := x.db.staged[ref.Staged]
	if !ok || slices.Contains(x.taken, ref.Staged) {
		return a, fail(osier.KindInvalid, "attachment %q: its bytes are not staged, or were taken before", ref.Name)
	}
	x.taken = append(x.taken, ref.Staged)
	a.Name, a.ContentType = ref.Name, cmp.Or(ref.ContentType, "application/octet-stream")
	if op.Kind == osier.OpGraft {
		a.RevPos = ref.RevPos
	}
	if d == nil {
		return a, nil
	}
	for _, v := range d.versions {
		for _, have := range v.Attachments {
			if have.SHA256 == a.SHA256 {
				a.Blob = have.Blob
			}
		}
	}
	return a, nil
}

// attach gives the attachments that a version of generation gen sets their
// position, and lets equal ones among them share their bytes.
func (x *change) attach(v *osier.Document, gen uint64) {
	for i := range v.Attachments {
		a := &v.Attachments[i]
		if a.RevPos == 0 {
			a.RevPos = gen
		}
		for _, b := range v.Attachments[:i] {
			if b.SHA256 == a.SHA256 {
				a.Blob = b.Blob
			}
		}
	}
}

// digestOf returns the digest of a version on its parent, or says why its body
// is not one of its codec.
func digestOf(v *osier.Document, parent osier.Rev) ([16]byte, error) {
	p, err := toTree(parent)
	if err != nil && !parent.IsZero() {
		return [16]byte{}, err
	}
	if parent.IsZero() {
		p = revtree.Rev{}
	}
	var atts []revtree.Att
	for _, a := range v.Attachments {
		atts = append(atts, revtree.Att{Name: a.Name, Type: a.ContentType, MD5: a.MD5})
	}
	opaque := func() [16]byte { return revtree.OpaqueDigest(v.Deleted, p, byte(v.Codec), v.Body, atts) }
	if v.Codec != osier.TagJSON {
		return opaque(), nil
	}
	if v.Deleted && len(v.Body) == 0 {
		return revtree.JSONDigest(true, p, nil, atts), nil
	}
	if !json.Valid(v.Body) {
		return [16]byte{}, fail(osier.KindInvalid, "the body is not valid JSON")
	}
	term, err := revtree.AppendTerm(nil, v.Body)
	if err == nil {
		return revtree.JSONDigest(v.Deleted, p, term, atts), nil
	}
	var syntax *revtree.JSONError
	if errors.As(err, &syntax) && syntax.Reason == revtree.ReasonNotObject {
		return opaque(), nil
	}
	return [16]byte{}, fail(osier.KindInvalid, "the body is not valid JSON: %v", err)
}

// store gives a version the next sequence and puts it in its place.
func (x *change) store(d *document, v *osier.Document, path []osier.Rev, op *osier.Op) (osier.OpResult, error) {
	c := x.db.collections[op.Collection]
	settings := osier.Settings{Codec: op.Codec}
	if c != nil {
		settings = c.settings
	}
	v.Seq, v.Time = x.db.seq+1, x.time
	next, err := d.grown(v, path, settings)
	if err != nil {
		return osier.OpResult{}, err
	}
	if c == nil {
		c = &collection{born: x.db.drops + 1, settings: settings, docs: map[osier.ID]*document{}}
		x.db.collections[op.Collection] = c
	}
	x.db.seq++
	c.docs[op.ID], c.lastSeq = next, v.Seq
	x.made = append(x.made, osier.TransactionChange{Collection: op.Collection, ID: op.ID, Rev: v.Rev, Seq: v.Seq, Deleted: v.Deleted})
	return osier.OpResult{ID: op.ID, Rev: v.Rev, Seq: v.Seq}, nil
}
