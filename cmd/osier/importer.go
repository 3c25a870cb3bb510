package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/osierdb/osier"
)

// importer carries out one import. Documents are committed in batches, each
// together with a checkpoint that says how far the source has been read, so
// that an import that was cut off goes on exactly there.
type importer struct {
	e      *env
	c      *importCmd
	db     *osier.DB
	in     *input
	track  *tracker
	src    source
	schema uint32

	// cp is the checkpoint as committed; at is how far has been read since.
	cp    checkpoint
	at    position
	begin position
	done  tally // of this run

	batch      []pending
	batchBytes int
	ids        map[osier.ID]bool // in batch
	// look: documents are looked up before they are written. It begins once
	// a write as a new document has failed.
	look bool
	bar  *progress
}

// pending is a document that waits for the batch to be full.
type pending struct {
	before position // where the source was before it
	line   int
	id     osier.ID // zero: the store makes one
	body   []byte
}

// fatalLine ends an import at a bad line.
type fatalLine struct {
	line int
	err  error
}

func (f *fatalLine) Error() string { return fmt.Sprintf("%d: %v", f.line, f.err) }
func (f *fatalLine) Unwrap() error { return f.err }

func (im *importer) run(ctx context.Context) error {
	started := im.e.clock()
	already, err := im.prepare(ctx)
	if err != nil {
		return err
	}
	rep := report{Target: im.c.Target.String(), Already: already}
	if already {
		return rep.show(im.e, im.in.name)
	}
	im.bar = im.e.newProgress(filepath.Base(im.in.name), "B", uint64(im.in.size), uint64(im.begin.Offset))
	err = im.loop(ctx)
	im.bar.clear()

	rep.tally = im.done
	rep.Skipped = im.cp.Skipped - im.begin.Skipped
	if im.begin.Offset > 0 {
		rep.FromLine = im.begin.Lines + 1
	}
	rep.Bytes = im.cp.Offset - im.begin.Offset
	rep.Seconds = im.e.clock().Sub(started).Seconds()
	rep.PerSecond = float64(im.done.total()) / max(rep.Seconds, 1e-3)
	rep.Interrupted = err != nil && ctx.Err() != nil
	if serr := rep.show(im.e, im.in.name); serr != nil && err == nil {
		err = serr
	}
	return im.conclude(ctx, err, rep.Skipped)
}

// conclude says how the import ended.
func (im *importer) conclude(ctx context.Context, err error, skipped int) error {
	again := "run the same command again to go on from there"
	if im.in.path == "-" {
		again = "what was read is in"
	}
	var fatal *fatalLine
	switch {
	case errors.As(err, &fatal):
		or := "add --on-error skip"
		if im.c.OnError != "fail" {
			or = "choose another --on-conflict"
		}
		return &exitError{exitFailed, fmt.Errorf("%s:%w; the lines before it are in: correct it and run the same command again, or %s", im.in.name, fatal, or)}
	case err != nil && ctx.Err() != nil:
		return &exitError{exitInterrupted, fmt.Errorf("interrupted: %s", again)}
	case err != nil:
		return fmt.Errorf("import %s: %w", im.in.name, err)
	case skipped > 0:
		return &exitError{exitSkipped, fmt.Errorf("%s of %s left out", (&env{}).counted(uint64(skipped), "line"), im.in.name)}
	}
	return nil
}

// prepare decides where to begin and opens the source there. It reports
// whether the file has been imported already.
func (im *importer) prepare(ctx context.Context) (already bool, err error) {
	l, err := im.c.layout(im.in)
	if err != nil {
		return false, err
	}
	info, err := collectionInfo(ctx, im.db, im.c.Target.collection)
	if err != nil {
		return false, err
	}
	if info != nil {
		im.schema = info.Settings.Schema
		im.look = info.Count > 0
	}
	if err := im.rewind(); err != nil {
		return false, err
	}
	prev, err := im.previous(ctx, info)
	if err != nil {
		return false, err
	}
	im.cp = checkpoint{Source: im.in.path, Size: im.in.size, Modified: im.in.modTime, Layout: l, ID: im.c.rule(l)}
	if prev != nil {
		if already, err = im.takeUp(prev); already || err != nil {
			return already, err
		}
	}
	im.at, im.begin = im.cp.position, im.cp.position
	return false, im.open()
}

// previous returns what is known of an earlier import of the same source.
func (im *importer) previous(ctx context.Context, info *osier.CollectionInfo) (*checkpoint, error) {
	prev, err := loadCheckpoint(ctx, im.db, im.c.Target.collection, im.in.path)
	if im.c.Restart && prev == nil {
		return nil, nil
	}
	if err != nil || prev == nil || prev.stale(info) {
		return nil, err
	}
	return prev, nil
}

// takeUp goes on where an earlier import of the source ended, if the source
// still begins with what was read then.
func (im *importer) takeUp(prev *checkpoint) (already bool, err error) {
	im.cp.Origins, im.cp.Touched = prev.Origins, prev.Touched
	if im.c.Restart || !im.in.regular {
		return false, nil
	}
	refuse := func(format string, args ...any) error {
		return &exitError{exitConflict, fmt.Errorf("%s %s; --restart imports it from its beginning", im.in.name, fmt.Sprintf(format, args...))}
	}
	if prev.Layout != im.cp.Layout || prev.ID != im.cp.ID {
		return false, refuse("was imported into %v before with another --id, --id-type, --format or --csv flag", im.c.Target)
	}
	if prev.Done && prev.Size == im.in.size && prev.Modified.Equal(im.in.modTime) {
		return true, nil
	}
	same, err := im.fromDigest(prev)
	if err != nil {
		return false, err
	}
	if same && !(prev.Done && prev.Layout.Array && im.in.size > prev.Offset) {
		im.cp.position, im.cp.tally, im.cp.Digest = prev.position, prev.tally, prev.Digest
		return prev.Done && im.in.size == prev.Offset, nil
	}
	switch {
	case !prev.Done:
		return false, refuse("has changed since its import stopped at line %d", prev.Lines+1)
	case prev.Origins.Made:
		return false, refuse("has changed since it was imported, and has no ids by which its documents could be found again")
	}
	return false, im.rewind()
}

// open makes the source at the position to begin at.
func (im *importer) open() error {
	l, at := im.cp.Layout, im.cp.position
	switch l.Format {
	case "jsonl":
		im.src = newLineSource(im.track, at.Offset, at.Lines)
	case "json":
		im.src = newJSONSource(im.track, l.Array, at.Offset, at.Lines)
	case "csv":
		return im.openCSV()
	}
	return nil
}

func (im *importer) openCSV() (err error) {
	l, at := im.cp.Layout, im.cp.position
	asText := ""
	if im.cp.ID.Member == idMember {
		asText = idMember
	}
	var names []string
	if at.Offset > 0 {
		// The header lies before what is read now.
		head, err := newCSVSource(io.NewSectionReader(im.in.file, im.bomSize(), im.in.size), l, nil, "", 0, 0)
		if err != nil {
			return err
		}
		names = head.names
	} else if n := im.bomSize(); n > 0 {
		if err := im.track.skip(n); err != nil {
			return err
		}
		at.Offset = n
	}
	im.src, err = newCSVSource(im.track, l, names, asText, at.Offset, at.Lines)
	if err != nil {
		return &exitError{exitFailed, fmt.Errorf("%s: %w", im.in.name, err)}
	}
	return nil
}

func (im *importer) bomSize() int64 {
	if bytes.HasPrefix(im.in.head, bom) {
		return int64(len(bom))
	}
	return 0
}

// loop reads the source to its end.
func (im *importer) loop(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return im.flushThen(ctx.Err())
		}
		rec, err := im.src.next()
		if errors.Is(err, io.EOF) {
			im.read()
			return im.flush(true)
		}
		before := im.at
		var doc pending
		var bad *badRecord
		if err == nil {
			doc, err = im.document(rec)
		}
		switch {
		case errors.As(err, &bad):
			if err := im.bad(bad); err != nil {
				return im.flushThen(err)
			}
			im.read()
			im.at.Skipped++
			continue
		case err != nil:
			return im.flushThen(err)
		}
		if im.ids[doc.id] || len(im.batch) >= im.c.Batch || im.batchBytes+len(doc.body) > importBatchBytes {
			if err := im.flush(false); err != nil {
				return err
			}
		}
		doc.before = before
		im.add(doc)
		im.read()
	}
}

// flushThen commits what was read before err.
func (im *importer) flushThen(err error) error {
	if ferr := im.flush(false); ferr != nil {
		return ferr
	}
	return err
}

// read notes how far the source is.
func (im *importer) read() { im.at.Offset, im.at.Lines = im.src.position() }

func (im *importer) add(doc pending) {
	im.batch = append(im.batch, doc)
	im.batchBytes += len(doc.body)
	if !doc.id.IsZero() {
		im.ids[doc.id] = true
	}
}

// bad reports a bad line; its error ends the import.
func (im *importer) bad(b *badRecord) error {
	if im.c.OnError == "fail" {
		return &fatalLine{b.line, b.err}
	}
	im.bar.clear()
	_, err := fmt.Fprintf(im.e.stderr, "%s:%d: %s; skipped\n", im.in.name, b.line, oneLine(b.err.Error()))
	return err
}

// document makes a document of a record: its body, compact, and its id.
func (im *importer) document(rec record) (pending, error) {
	doc := pending{line: rec.line}
	body, err := appendCompact(make([]byte, 0, len(rec.text)), rec.text)
	if err == nil && body[0] != '{' {
		err = errNotObject
	}
	var value []byte
	rule := im.cp.ID
	if err == nil && rule.Member == idMember {
		body, value, err = takeMember(body, idMember)
	} else if err == nil {
		value, _ = findMember(body, rule.Member)
	}
	switch {
	case err != nil:
	case value != nil:
		if doc.id, err = idFromMember(value, rule.Type, rule.CSV); err != nil {
			err = fmt.Errorf("member %s: %w", rule.Member, err)
		}
	case im.c.ID != "":
		err = fmt.Errorf("there is no member %s to take the id from", rule.Member)
	}
	if err != nil {
		return doc, &badRecord{rec.line, err}
	}
	doc.body = body
	return doc, nil
}

// origin is where the ids of docs came from.
func (im *importer) origin(docs []pending) origins {
	var o origins
	for i := range docs {
		switch {
		case docs[i].id.IsZero():
			o.Made = true
		case im.cp.ID.Member == idMember:
			o.Taken = true
		default:
			o.Rules = []idRule{im.cp.ID}
		}
	}
	return o
}

// flush commits the batch with the checkpoint; last marks the source's end.
func (im *importer) flush(last bool) error {
	if im.at == im.cp.position && !last {
		return nil
	}
	err := im.commit(im.batch, im.at, last)
	if kind := osier.KindOf(err); len(im.batch) > 1 && (kind == osier.KindTooLarge || kind == osier.KindInvalid) {
		err = im.singly(last)
	}
	im.batch, im.batchBytes = im.batch[:0:0], 0
	clear(im.ids)
	im.bar.update(uint64(im.cp.Offset), uint64(im.done.total()))
	return err
}

// singly commits a batch that the store refuses document by document, to find
// the one that it refuses. The whole batch has changed nothing.
func (im *importer) singly(last bool) error {
	batch, end := im.batch, im.at
	for i, doc := range batch {
		upTo, last := end, last && i+1 == len(batch)
		if i+1 < len(batch) {
			upTo = batch[i+1].before
		}
		// What was found to be bad only now.
		upTo.Skipped += im.at.Skipped - end.Skipped
		err := im.commit(batch[i:i+1], upTo, last)
		if kind := osier.KindOf(err); kind == osier.KindTooLarge || kind == osier.KindInvalid {
			if err = im.bad(&badRecord{doc.line, err}); err == nil {
				im.at.Skipped++
				upTo.Skipped++
				err = im.commit(nil, upTo, last)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxImportRaces bounds how often a batch is planned anew because somebody
// else changed its documents meanwhile.
const maxImportRaces = 10

// commit writes docs, and that the source has been read up to upTo.
func (im *importer) commit(docs []pending, upTo position, last bool) error {
	for race := 0; ; race++ {
		p, err := im.plan(docs)
		if err != nil {
			return err
		}
		cp, err := im.checkpoint(p, upTo, last)
		if err != nil {
			return err
		}
		op, err := cp.op(im.c.Target.collection)
		if err != nil {
			return err
		}
		c := &osier.Command{Ops: append(p.ops, op), Durability: durabilities[im.c.Durability]}
		// What has begun is finished, also after Ctrl-C.
		res, err := im.db.Exec(context.WithoutCancel(im.e.ctx), c)
		if osier.KindOf(err) == osier.KindConflict && race < maxImportRaces {
			im.look = true
			continue
		}
		if err != nil {
			return err
		}
		im.committed(cp, res, p)
		for _, b := range p.reports {
			if err := im.bad(b); err != nil {
				return err
			}
		}
		return p.stopped
	}
}

// checkpoint is what holds once a plan is carried out that reaches to upTo.
func (im *importer) checkpoint(p *plan, upTo position, last bool) (checkpoint, error) {
	if p.stopped != nil {
		// The documents before the one that ends the import are good.
		upTo, last = p.before, false
	}
	upTo.Skipped += len(p.reports)
	cp := im.cp
	cp.position, cp.Done = upTo, last
	cp.tally.add(p.tally)
	cp.Origins.Rules = slices.Clone(cp.Origins.Rules)
	cp.Origins.add(im.origin(p.docs))
	digest, err := im.track.digest(upTo.Offset)
	cp.Digest = hex.EncodeToString(digest)
	return cp, err
}

// committed takes over what a commit has changed.
func (im *importer) committed(cp checkpoint, res *osier.Result, p *plan) {
	if len(p.ops) > 0 {
		cp.Touched = res.Ops[len(p.ops)-1].Seq
	}
	im.cp = cp
	im.track.advance(cp.Offset)
	im.at.Skipped += len(p.reports)
	im.done.add(p.tally)
}

// plan is what a batch comes to.
type plan struct {
	ops     []osier.Op
	docs    []pending // those that count
	tally   tally
	reports []*badRecord
	stopped error    // the import ends, behind
	before  position // this position
}

// plan decides what to write. Unless documents must be looked at first, all
// are taken to be new.
func (im *importer) plan(docs []pending) (*plan, error) {
	p := &plan{ops: make([]osier.Op, 0, len(docs)+1)}
	present := map[osier.ID]existing{}
	if im.look {
		var err error
		if present, err = im.present(docs); err != nil {
			return nil, err
		}
	}
	for i := range docs {
		doc := &docs[i]
		op := osier.Op{Kind: osier.OpPut, Collection: im.c.Target.collection, ID: doc.id, Codec: osier.TagJSON, Schema: im.schema, Body: doc.body, Expect: osier.ExpectAbsent}
		have, exists := present[doc.id]
		switch {
		case !exists:
			p.tally.Documents++
			p.ops = append(p.ops, op)
		case have.same:
			p.tally.Unchanged++
		case im.c.OnConflict == "skip":
			p.tally.Kept++
		case im.c.OnConflict == "replace":
			op.Expect, op.Rev, op.KeepAttachments = osier.ExpectRev, have.rev, true
			p.tally.Replaced++
			p.ops = append(p.ops, op)
		default:
			bad := &badRecord{doc.line, fmt.Errorf("the id %s has other content already (see --on-conflict)", idText(doc.id))}
			if im.c.OnConflict == "fail" || im.c.OnError == "fail" {
				p.stopped, p.before = &fatalLine{bad.line, bad.err}, doc.before
				return p, nil
			}
			p.reports = append(p.reports, bad)
			continue
		}
		p.docs = append(p.docs, *doc)
	}
	return p, nil
}

// existing is what is there under the id of a document to import.
type existing struct {
	rev  osier.Rev
	same bool
}

// present looks up the documents that are there already.
func (im *importer) present(docs []pending) (map[osier.ID]existing, error) {
	q := &osier.Query{Kind: osier.QueryGet, Collection: im.c.Target.collection, Parts: osier.WithBody}
	var bodies [][]byte
	for i := range docs {
		if !docs[i].id.IsZero() {
			q.IDs = append(q.IDs, docs[i].id)
			bodies = append(bodies, docs[i].body)
		}
	}
	found := make(map[osier.ID]existing, len(q.IDs))
	if len(q.IDs) == 0 {
		return found, nil
	}
	n := 0
	for row, err := range im.db.Query(context.WithoutCancel(im.e.ctx), q) {
		if err != nil {
			return nil, err
		}
		if !row.Missing {
			body, err := bodyJSON(im.db, &row.Document)
			if err != nil {
				return nil, err
			}
			found[row.ID] = existing{row.Rev, body != nil && sameJSON(body, bodies[n])}
		}
		n++
	}
	return found, nil
}
