package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/revtree"
	"github.com/osierdb/osier/internal/store"
)

// edit is a document being changed by a command: its revision tree's leaves,
// and what has to be written when all is judged.
type edit struct {
	coll    *collState
	name    string // of the collection
	id      osier.ID
	doc     document // as it was; leaves point into it
	existed bool
	seq     osier.Seq // its place in the feed before the command
	live    bool      // before the command
	size    int       // of the winner's body before the command

	leaves     []editLeaf
	kept       uint64
	superseded []editLeaf // revisions that stopped being leaves
	nodes      []node     // inner nodes to write
	changed    bool
	removal    *removal  // instead of a change; see apply_purge.go
	closer     io.Closer // of the record that bodies point into

	// Attachments by digest, as they will be; see apply_blob.go.
	digests []digestEdit
	staged  []stagedUse

	rows []editRows // of eager views; see apply_view.go
}

// editLeaf is a leaf with what it holds.
type editLeaf struct {
	leaf
	v      *version // nil: in its version record
	stored bool     // there is a version record
}

// node is an inner node to be written.
type node struct {
	leaf
	absent bool
}

// loadDoc reads a document's record; its slices are valid until closer is
// closed.
func (a *applier) loadDoc(db, coll uint32, id osier.ID, d *document) (found bool, closer io.Closer, err error) {
	a.key = docKey(a.key[:0], db, coll, id)
	var v []byte
	if _, wrote := a.wrote[string(a.key)]; wrote {
		v, closer, err = a.b.Get(a.key)
	} else {
		v, closer, err = a.e.store.Get(a.key)
	}
	if err == store.ErrNotFound {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	if err := decodeDocument(v, d); err != nil {
		closer.Close()
		return false, nil, corrupt("read document", id, err)
	}
	return true, closer, nil
}

func corrupt(step string, id osier.ID, err error) *osier.Error {
	return &osier.Error{Kind: osier.KindCorrupt, Op: step, ID: id.String(), Err: err}
}

// manyEdits is from where on a map finds a command's edits.
const manyEdits = 8

// edit finds or begins the command's edit of op's document.
func (r *run) edit(op *osier.Op) (*edit, error) {
	c := r.collection(op.Collection, &osier.Settings{Codec: op.Codec})
	if ed := r.findEdit(c.num, op.ID); ed != nil {
		return ed, nil
	}
	ed := r.a.newEdit()
	ed.coll, ed.name, ed.id = c, op.Collection, op.ID
	d := &ed.doc
	absent, err := r.fresh(c, op.ID)
	if err != nil {
		return nil, err
	}
	found, closer := false, io.Closer(nil)
	if !absent {
		if found, closer, err = r.a.loadDoc(r.db.num, c.num, op.ID, d); err != nil {
			return nil, err
		}
	}
	if found {
		ed.existed, ed.closer, ed.kept = true, closer, d.kept
		ed.seq, ed.live, ed.size = latest(d), !d.winner.deleted, len(d.v.body)
		ed.leaves = append(ed.leaves, editLeaf{leaf: d.winner, v: &d.v})
		for _, l := range d.losers {
			ed.leaves = append(ed.leaves, editLeaf{leaf: l, stored: true})
		}
	}
	r.edits = append(r.edits, ed)
	switch {
	case r.byDoc != nil:
		r.byDoc[editKey{c.num, op.ID.Key()}] = ed
	case len(r.edits) > manyEdits:
		r.byDoc = make(map[editKey]*edit, len(r.cmd.Ops))
		for _, ed := range r.edits {
			r.byDoc[editKey{ed.coll.num, ed.id.Key()}] = ed
		}
	}
	return ed, nil
}

func (r *run) findEdit(coll uint32, id osier.ID) *edit {
	if r.byDoc != nil {
		return r.byDoc[editKey{coll, id.Key()}]
	}
	for _, ed := range r.edits {
		if ed.coll.num == coll && ed.id == id {
			return ed
		}
	}
	return nil
}

func (ed *edit) close() {
	if ed.closer != nil {
		ed.closer.Close()
		ed.closer = nil
	}
}

// better is CouchDB's rule among leaves: live ones first, then the higher
// generation, then the higher digest.
func better(a, b *leaf) bool {
	if a.deleted != b.deleted {
		return b.deleted
	}
	return a.rev.Compare(b.rev) > 0
}

// winner returns the index of the winning leaf, -1 if there is none.
func (ed *edit) winner() int {
	w := -1
	for i := range ed.leaves {
		if w < 0 || better(&ed.leaves[i].leaf, &ed.leaves[w].leaf) {
			w = i
		}
	}
	return w
}

func (ed *edit) leafOf(rev osier.Rev) int {
	for i := range ed.leaves {
		if ed.leaves[i].rev == rev {
			return i
		}
	}
	return -1
}

// judge applies the operation's expectation and returns the leaf that the new
// revision goes on from, -1 for none.
func (ed *edit) judge(r *run, op *osier.Op) (parent int, err error) {
	w := ed.winner()
	live := w >= 0 && !ed.leaves[w].deleted
	absent := func() error {
		if w >= 0 {
			return r.fail(op, osier.KindDeleted, "change", "")
		}
		return r.fail(op, osier.KindNotFound, "change", "")
	}
	switch op.Expect {
	case osier.ExpectAbsent:
		if live {
			return -1, r.fail(op, osier.KindConflict, "insert", "there is a document of that id already")
		}
		if op.Deleted && w >= 0 {
			return -1, r.fail(op, osier.KindConflict, "insert", "the document has been deleted already")
		}
		return w, nil
	case osier.ExpectAny:
		if op.Deleted && !live {
			return -1, absent()
		}
		return w, nil
	case osier.ExpectPresent:
		if !live {
			return -1, absent()
		}
		return w, nil
	case osier.ExpectRev, osier.ExpectLiveRev:
		i := ed.leafOf(op.Rev)
		if i < 0 || (op.Deleted || op.Expect == osier.ExpectLiveRev) && ed.leaves[i].deleted {
			return -1, r.conflict(op, w, ed)
		}
		return i, nil
	}
	return -1, r.fail(op, osier.KindInvalid, "change", "unknown expectation")
}

func (r *run) conflict(op *osier.Op, w int, ed *edit) error {
	text := "the document does not exist"
	if w >= 0 {
		text = "the document is at revision " + ed.leaves[w].rev.String() + " now; read it again"
	}
	return r.fail(op, osier.KindConflict, "update from "+op.Rev.String(), text)
}

// put makes a new revision.
func (ed *edit) put(r *run, op *osier.Op, prep *prepared) (osier.OpResult, error) {
	if ed.removal != nil {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "change", "the command purges the document")
	}
	p, err := ed.judge(r, op)
	if err != nil {
		return osier.OpResult{}, err
	}
	var parent *editLeaf
	var parentRev osier.Rev
	if p >= 0 {
		parent = &ed.leaves[p]
		parentRev = parent.rev
	}
	gen := parentRev.Generation() + 1
	v, err := ed.newVersion(r, op, parent, gen)
	if err != nil {
		return osier.OpResult{}, err
	}
	sum, err := digest(op.Deleted, parentRev, v, prep)
	if err != nil {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "change", err.Error())
	}
	rev := osier.NewRev(gen, sum)
	l := editLeaf{leaf: leaf{rev: rev, parent: parentRev, deleted: op.Deleted, millis: r.state.millis}, v: v}
	l.seq = r.nextSeq(osier.TransactionChange{Collection: ed.name, ID: ed.id, Rev: rev, Deleted: op.Deleted})
	ed.replace(p, l)
	return osier.OpResult{ID: ed.id, Rev: rev, Seq: l.seq}, ed.take(r, v)
}

// replace puts a new leaf in the place of leaf p, which becomes an inner node;
// p < 0 starts a branch.
func (ed *edit) replace(p int, l editLeaf) {
	ed.changed = true
	if p < 0 {
		ed.leaves = append(ed.leaves, l)
		return
	}
	old := ed.leaves[p]
	ed.nodes = append(ed.nodes, node{leaf: old.leaf})
	ed.superseded = append(ed.superseded, old)
	ed.leaves[p] = l
}

// newVersion puts together what the new revision holds.
func (ed *edit) newVersion(r *run, op *osier.Op, parent *editLeaf, gen uint64) (*version, error) {
	v := &version{codec: op.Codec, schema: op.Schema, body: op.Body}
	if v.codec == 0 {
		if v.codec = ed.coll.settings.Codec; v.codec == 0 {
			v.codec = osier.TagJSON
		}
	}
	var from *version
	if op.KeepBody || op.KeepAttachments || len(op.Attachments) > 0 {
		if parent != nil {
			var err error
			if from, err = ed.version(r, parent); err != nil {
				return nil, err
			}
		}
	}
	if op.KeepBody {
		if from == nil || !from.hasBody {
			return nil, r.fail(op, osier.KindInvalid, "change", "there is no body to keep")
		}
		v.codec, v.schema, v.body = from.codec, from.schema, from.body
	}
	v.hasBody = len(v.body) > 0 || !op.Deleted
	if len(op.Attachments) > 0 || op.KeepAttachments && from != nil && len(from.atts) > 0 && !op.Deleted {
		atts, err := ed.attachments(r, op, from, gen)
		if err != nil {
			return nil, err
		}
		v.atts = atts
	}
	return v, nil
}

// version returns what a leaf holds, from its record if need be.
func (ed *edit) version(r *run, l *editLeaf) (*version, error) {
	if l.v != nil {
		return l.v, nil
	}
	r.a.key = revKey(r.a.key[:0], r.db.num, ed.coll.num, spaceVersion, ed.id, l.rev)
	b, closer, err := r.a.b.Get(r.a.key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, corrupt("read version", ed.id, errors.New("body of leaf "+l.rev.String()+" is missing"))
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	_, v, err := decodeVersion(bytes.Clone(b))
	if err != nil {
		return nil, corrupt("read version", ed.id, err)
	}
	l.v = &v
	return l.v, nil
}

// graft takes a foreign revision with its ancestry.
func (ed *edit) graft(r *run, op *osier.Op, prep *prepared) (osier.OpResult, error) {
	if ed.removal != nil {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "graft", "the command purges the document")
	}
	rev := op.Path[0]
	known, err := ed.knows(r, rev)
	if err != nil {
		return osier.OpResult{}, err
	}
	if known {
		return osier.OpResult{ID: ed.id, Rev: rev, Seq: ed.place()}, nil
	}
	v, err := ed.newVersion(r, op, nil, rev.Generation())
	if err != nil {
		return osier.OpResult{}, err
	}
	if !validBody(v, prep) {
		return osier.OpResult{}, r.fail(op, osier.KindInvalid, "graft", "the body is not valid JSON")
	}
	l := editLeaf{leaf: leaf{rev: rev, deleted: op.Deleted, millis: r.state.millis}, v: v}
	if len(op.Path) > 1 {
		l.parent = op.Path[1]
	}
	// Judged: from here on the operation succeeds, but for a failing disk.
	l.seq = r.nextSeq(osier.TransactionChange{Collection: ed.name, ID: ed.id, Rev: rev, Deleted: op.Deleted})
	ends, err := ed.ancestry(r, op.Path, l.seq)
	if err != nil {
		return osier.OpResult{}, err
	}
	p := -1
	if len(ends) > 0 {
		p = ed.leafOf(ends[0])
	}
	ed.replace(p, l)
	for _, rev := range ends[min(1, len(ends)):] {
		ed.demote(ed.leafOf(rev))
	}
	return osier.OpResult{ID: ed.id, Rev: rev, Seq: l.seq}, ed.take(r, v)
}

// demote makes an inner node of a leaf that turned out to be an ancestor.
func (ed *edit) demote(k int) {
	ed.nodes = append(ed.nodes, node{leaf: ed.leaves[k].leaf})
	ed.superseded = append(ed.superseded, ed.leaves[k])
	ed.leaves = append(ed.leaves[:k], ed.leaves[k+1:]...)
}

// place is where the document stands in the feed now.
func (ed *edit) place() osier.Seq {
	seq := osier.Seq(0)
	for i := range ed.leaves {
		seq = max(seq, ed.leaves[i].seq)
	}
	return seq
}

// knows tells whether a revision is a leaf or an inner node.
func (ed *edit) knows(r *run, rev osier.Rev) (bool, error) {
	if ed.leafOf(rev) >= 0 {
		return true, nil
	}
	known := &innerNodes{ed: ed, before: len(ed.nodes)}
	_, found, err := known.find(r, rev)
	return found, err
}

// innerNodes finds a document's inner nodes, among the first so many of those to
// be written and in the store. What it has to read at length it reads once.
type innerNodes struct {
	ed      *edit
	before  int
	reached map[osier.Rev]bool // nil: not needed so far
}

func (in *innerNodes) find(r *run, rev osier.Rev) (n node, found bool, err error) {
	ed := in.ed
	for _, n := range slices.Backward(ed.nodes[:in.before]) {
		if n.rev == rev {
			return n, true, nil
		}
	}
	if !ed.existed {
		return node{}, false, nil
	}
	r.a.key = revKey(r.a.key[:0], r.db.num, ed.coll.num, spaceAncestor, ed.id, rev)
	b, closer, err := r.a.b.Get(r.a.key)
	if errors.Is(err, store.ErrNotFound) {
		return node{}, false, nil
	}
	if err != nil {
		return node{}, false, err
	}
	defer closer.Close()
	l, absent, err := decodeNode(b, rev)
	if err != nil {
		return node{}, false, corrupt("read revision", ed.id, err)
	}
	known, err := in.reaches(r, rev)
	return node{l, absent}, known, err
}

// reaches tells whether a stored inner node is known still. Only where a node
// may be waiting to be cut does this cost more than a glance.
func (in *innerNodes) reaches(r *run, rev osier.Rev) (bool, error) {
	ed := in.ed
	limit, all := ancestorsKept(&ed.coll.settings)
	highest := uint64(0)
	for i := range ed.leaves {
		highest = max(highest, ed.leaves[i].rev.Generation())
	}
	if all || rev.Generation()+limit >= highest {
		return true, nil
	}
	if in.reached == nil {
		leaves := make([]leaf, len(ed.leaves))
		for i := range ed.leaves {
			leaves[i] = ed.leaves[i].leaf
		}
		v := view{src: r.a.b, db: r.db}
		nodes, err := v.innerNodes(visibleColl{num: ed.coll.num}, ed.id)
		if err != nil {
			return false, err
		}
		in.reached = onPath(leaves, append(nodes, ed.nodes[:in.before]...), limit)
	}
	return in.reached[rev], nil
}

// ancestry adds a path's unknown ancestors, gives known ones the parent they
// lacked, and returns the leaves on the path, nearest first: they end to be
// leaves. What lies deeper than ancestors are kept is not looked at, but for
// leaves: a path may be as long as a request.
func (ed *edit) ancestry(r *run, path []osier.Rev, seq osier.Seq) (ends []osier.Rev, err error) {
	above := func(i int) (parent osier.Rev) {
		if i+1 < len(path) {
			parent = path[i+1]
		}
		return parent
	}
	for k := range ed.leaves {
		l := &ed.leaves[k]
		// The generations of a path go down by one.
		if i := path[0].Generation() - l.rev.Generation(); i > 0 && i < uint64(len(path)) && path[i] == l.rev {
			ends = append(ends, l.rev)
			if l.parent.IsZero() {
				l.parent = above(int(i))
			}
		}
	}
	slices.SortFunc(ends, func(a, b osier.Rev) int { return b.Compare(a) })
	kept := len(path)
	if limit, all := ancestorsKept(&ed.coll.settings); !all && limit < uint64(kept) {
		kept = int(limit) + 1
	}
	known := &innerNodes{ed: ed, before: len(ed.nodes)}
	for i := 1; i < kept; i++ {
		if slices.Contains(ends, path[i]) {
			continue
		}
		n, found, err := known.find(r, path[i])
		if err != nil {
			return nil, err
		}
		parent := above(i)
		switch {
		case !found:
			ed.nodes = append(ed.nodes, node{leaf{rev: path[i], parent: parent, seq: seq, millis: r.state.millis}, true})
		case n.parent.IsZero() && !parent.IsZero():
			n.parent = parent
			ed.nodes = append(ed.nodes, n)
		}
	}
	return ends, nil
}

// digest computes a revision's digest: CouchDB's for JSON objects, Osier's own
// for all else.
func digest(deleted bool, parent osier.Rev, v *version, prep *prepared) ([16]byte, error) {
	if prep.summed && prep.parent == parent && v.codec == osier.TagJSON && len(v.atts) == 0 {
		return prep.sum, nil
	}
	atts := make([]revtree.Att, len(v.atts))
	for i := range v.atts {
		atts[i] = revtree.Att{Name: v.atts[i].Name, Type: v.atts[i].ContentType, MD5: v.atts[i].MD5}
	}
	p, err := treeRev(parent)
	if err != nil {
		return [16]byte{}, err
	}
	if v.codec == osier.TagJSON && (isObject(v.body) || !v.hasBody) {
		term := prep.term
		if term == nil && v.hasBody {
			if term, err = revtree.AppendTerm(nil, v.body); err != nil {
				return [16]byte{}, err
			}
		}
		return revtree.JSONDigest(deleted, p, term, atts), nil
	}
	if v.codec == osier.TagJSON && !json.Valid(v.body) {
		return [16]byte{}, errors.New("the body is not valid JSON")
	}
	return revtree.OpaqueDigest(deleted, p, byte(v.codec), v.body, atts), nil
}

// treeRev hands a revision to package revtree.
func treeRev(r osier.Rev) (revtree.Rev, error) {
	if r.IsZero() {
		return revtree.Rev{}, nil
	}
	if sum, ok := r.Sum(); ok {
		return revtree.NewRev(r.Generation(), sum), nil
	}
	return revtree.Parse(r.String())
}

// isObject tells a JSON object from other JSON by its first character.
func isObject(body []byte) bool {
	for _, c := range body {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		}
		return c == '{'
	}
	return false
}
