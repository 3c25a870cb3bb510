package osiertest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
)

// Apply carries out one operation and returns its line of the transcript: what
// came back, as far as equal stores must agree on it. Errors are shown by their
// Kind. Times, made ids, the names of blobs and sizes on disk are left out.
//
// A Reopen is not Apply's to carry out: it returns "reopen".
func Apply(ctx context.Context, s *osier.Store, op Op) string {
	a := applier{ctx: ctx, store: s}
	line, err := a.apply(op)
	if err != nil {
		return strings.TrimSpace(line + " error: " + osier.KindOf(err).String())
	}
	return line
}

// applier carries out operations.
type applier struct {
	ctx   context.Context
	store *osier.Store
}

func (a applier) apply(op Op) (string, error) {
	switch op.Verb {
	case Reopen:
		return "reopen", nil
	case Names:
		names, err := a.store.Databases(a.ctx)
		return strings.Join(names, " "), err
	case Create:
		_, err := a.store.CreateDB(a.ctx, op.DB)
		return "ok", err
	case Drop:
		return "ok", a.store.DropDB(a.ctx, op.DB)
	}
	if err := checkNames(op); err != nil {
		return "", err
	}
	db, err := a.store.OpenDB(a.ctx, op.DB)
	if err != nil {
		return "", err
	}
	switch op.Verb {
	case Put, Update, Delete, Graft, Ungraft:
		return a.writeNow(db, op)
	case Get, List, Count:
		return a.read(db, op)
	case Batch:
		return a.batch(db, op)
	case Tx:
		return a.tx(db, op)
	case Settings:
		_, err := a.store.OpenDB(a.ctx, op.DB, osier.Schema(osier.NewCollection(cmp.Or(op.In, osier.DefaultCollection), osier.CollectionOptions[osier.Raw]{
			History: osier.History(op.History), RevLimit: uint32(op.RevLimit),
		})))
		return "ok", err
	case Forget:
		return "ok", db.DropCollection(a.ctx, op.In)
	case Attach, Detach:
		return a.attachment(db, op)
	}
	return a.look(db, op)
}

// handle returns the handle of a collection; a database's bare name means its
// default one.
func handle(name string) *osier.Collection[osier.Raw] {
	return osier.NewCollection[osier.Raw](cmp.Or(name, osier.DefaultCollection))
}

// checkNames refuses the collections that handle would panic on.
func checkNames(op Op) error {
	for _, m := range append([]Op{op}, op.Ops...) {
		if err := osier.CheckCollectionName(cmp.Or(m.In, osier.DefaultCollection)); err != nil {
			return err
		}
	}
	return nil
}

// write carries out a single write on w. Revisions are looked up in r.
func (a applier) write(r osier.Reader, w osier.Writer, op Op) error {
	c, id, body := handle(op.In), idOf(op.ID), osier.Raw(op.Body)
	var err error
	switch op.Verb {
	case Put:
		switch op.Expect {
		case "absent":
			_, err = c.InsertWithID(a.ctx, w, id, body)
		case "present":
			_, err = c.Overwrite(a.ctx, w, id, body)
		default:
			_, err = c.Upsert(a.ctx, w, id, body)
		}
	case Update:
		key, idErr := osier.IDOf(id)
		if idErr != nil {
			return idErr
		}
		var rev osier.Rev
		if rev, err = a.rev(r, op); err == nil {
			_, err = c.Update(a.ctx, w, osier.Doc[osier.Raw]{ID: key, Rev: rev, Value: body})
		}
	case Delete:
		var rev osier.Rev
		if rev, err = a.rev(r, op); err == nil {
			err = c.Delete(a.ctx, w, id, rev)
		}
	case Graft, Ungraft:
		path, pathErr := pathOf(op.Path)
		if pathErr != nil {
			return pathErr
		}
		if op.Verb == Ungraft {
			return c.GraftDeletion(a.ctx, w, id, path)
		}
		err = c.Graft(a.ctx, w, id, path, body)
	default:
		err = &osier.Error{Kind: osier.KindInvalid, Op: "apply", Err: fmt.Errorf("%q is not a write", op.Verb)}
	}
	return err
}

func pathOf(text string) ([]osier.Rev, error) {
	var path []osier.Rev
	for t := range strings.SplitSeq(text, ",") {
		r, err := osier.ParseRev(t)
		if err != nil {
			return nil, err
		}
		path = append(path, r)
	}
	return path, nil
}

// rev finds the revision that an operation names: see Op.Rev. One that there is
// not becomes one that no document has.
func (a applier) rev(r osier.Reader, op Op) (osier.Rev, error) {
	if op.Rev == "" {
		return osier.Rev{}, nil
	}
	if r, err := osier.ParseRev(op.Rev); err == nil {
		return r, nil
	}
	unknown := osier.NewRev(99, [16]byte{0xff})
	// The winner tells the number of leaves before the ancestors.
	winner, err := one(handle(op.In).Versions(a.ctx, r, idOf(op.ID)))
	if osier.KindOf(err) == osier.KindNotFound || winner.Rev.IsZero() {
		return unknown, nil
	}
	if err != nil {
		return unknown, err
	}
	var live, all []osier.Rev
	for v, err := range handle(op.In).Versions(a.ctx, r, idOf(op.ID)) {
		if err != nil {
			return unknown, err
		}
		all = append(all, v.Rev)
	}
	live, err = handle(op.In).Conflicts(a.ctx, r, idOf(op.ID))
	if err != nil && osier.KindOf(err) != osier.KindNotFound {
		return unknown, err
	}
	pick := func(list []osier.Rev, prefix string) osier.Rev {
		if n, err := strconv.Atoi(strings.TrimPrefix(op.Rev, prefix)); err == nil && n >= 1 && n <= len(list) {
			return list[n-1]
		}
		return unknown
	}
	switch {
	case op.Rev == "winner":
		return winner.Rev, nil
	case strings.HasPrefix(op.Rev, "leaf"):
		return pick(live, "leaf"), nil
	default:
		return pick(all[1:], "old"), nil
	}
}

// one returns the first of a stream.
func one[T any](seq iter.Seq2[T, error]) (T, error) {
	for v, err := range seq {
		return v, err
	}
	var zero T
	return zero, nil
}

// writeNow carries out a single write by itself.
func (a applier) writeNow(db *osier.DB, op Op) (string, error) {
	var b osier.Batch
	if err := a.write(db, &b, op); err != nil {
		return "", err
	}
	res, err := db.Commit(a.ctx, &b)
	if err != nil {
		return "", err
	}
	return showOp(res.Ops[0]), nil
}

func showOp(r osier.OpResult) string {
	if r.Err != nil {
		return showID(r.ID) + " error: " + r.Err.Kind.String()
	}
	return fmt.Sprintf("%s %v @%d", showID(r.ID), r.Rev, r.Seq)
}

func (a applier) batch(db *osier.DB, op Op) (string, error) {
	b := &osier.Batch{PerDocument: op.Each, Session: op.Session, Number: uint64(op.Number)}
	for _, m := range op.Ops {
		if err := a.write(db, b, m); err != nil {
			return "", err
		}
	}
	res, err := db.Commit(a.ctx, b)
	if err != nil {
		return "", err
	}
	out := []string{fmt.Sprintf("%d-%d", res.First, res.Last)}
	for _, r := range res.Ops {
		out = append(out, showOp(r))
	}
	return strings.Join(out, "; "), nil
}

// tx runs members in a transaction. Those that fail are shown and passed over, as
// a program may do. What others do meanwhile is done at the first try.
func (a applier) tx(db *osier.DB, op Op) (string, error) {
	tries := 0
	var out []string
	err := db.Update(a.ctx, func(tx *osier.Tx) error {
		tries++
		out = out[:0]
		for _, m := range op.Ops {
			var line string
			var err error
			switch {
			case m.Meanwhile && tries > 1:
				continue
			case m.Meanwhile:
				_, err = a.writeNow(db, m)
				line = "meanwhile"
			case m.Verb == Get || m.Verb == List || m.Verb == Count:
				line, err = a.read(tx, m)
			default:
				line, err = "ok", a.write(tx, tx, m)
			}
			if err != nil {
				line = "error: " + osier.KindOf(err).String()
			}
			out = append(out, line)
		}
		return nil
	})
	return fmt.Sprintf("tries %d: %s", tries, strings.Join(out, "; ")), err
}

// read carries out a read on r.
func (a applier) read(r osier.Reader, op Op) (string, error) {
	c := handle(op.In)
	switch op.Verb {
	case Get:
		doc, err := c.Get(a.ctx, r, idOf(op.ID))
		return showDoc(doc), err
	case Count:
		n, err := c.Count(a.ctx, r)
		return strconv.FormatUint(n, 10), err
	}
	o := &osier.ListOptions{From: idOf(op.From), Until: idOf(op.Until), Reverse: op.Reverse, Deleted: op.Deleted, Skip: op.Skip, Limit: op.Limit}
	var out []string
	for doc, err := range c.List(a.ctx, r, o) {
		if err != nil {
			return strings.Join(out, "; "), err
		}
		out = append(out, showDoc(doc))
	}
	return strings.Join(out, "; "), nil
}

func showDoc(d osier.Doc[osier.Raw]) string {
	if d.ID.IsZero() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v @%d", showID(d.ID), d.Rev, d.Seq)
	if d.Deleted {
		b.WriteString(" deleted")
	}
	if body := string(d.Value); len(body) > 60 {
		fmt.Fprintf(&b, " %s… of %d", body[:20], len(body))
	} else if body != "" {
		b.WriteString(" " + body)
	}
	for _, att := range d.Attachments {
		fmt.Fprintf(&b, " [%s %s %d %x at %d]", att.Name, att.ContentType, att.Size, att.MD5[:4], att.RevPos)
	}
	return b.String()
}

// look carries out the reads that no transaction makes.
func (a applier) look(db *osier.DB, op Op) (string, error) {
	c := handle(op.In)
	switch op.Verb {
	case Versions:
		return joined(c.Versions(a.ctx, db, idOf(op.ID)), showDoc)
	case GetRev:
		rev, err := a.rev(db, op)
		if err != nil {
			return "", err
		}
		doc, err := c.GetRev(a.ctx, db, idOf(op.ID), rev)
		return showDoc(doc), err
	case AsOf:
		doc, err := c.AsOf(a.ctx, db, idOf(op.ID), osier.Seq(op.Seq))
		return showDoc(doc), err
	case Changes:
		f := &osier.Feed{Collection: op.In, Since: osier.Seq(op.Seq), Limit: op.Limit, Descending: op.Reverse, Parts: osier.WithConflicts | osier.WithAncestors}
		return joined(db.Watch(a.ctx, f), func(ch osier.Change) string {
			return fmt.Sprint(showChange(ch), " ", ch.Rev, " ", ch.Conflicts, " ", ch.Ancestors)
		})
	case History:
		return joined(db.Transactions(a.ctx, osier.Seq(op.Seq), op.Limit), func(tx osier.Transaction) string {
			line := fmt.Sprintf("%d-%d %s/%d", tx.First, tx.Last, tx.Session, tx.Number)
			for _, ch := range tx.Changes {
				line += fmt.Sprintf(" %s/%s %v @%d", ch.Collection, showID(ch.ID), ch.Rev, ch.Seq)
			}
			return line
		})
	case Info:
		info, err := db.Info(a.ctx)
		if err != nil {
			return "", err
		}
		out := []string{fmt.Sprint("@", info.LastSeq)}
		for _, ci := range info.Collections {
			out = append(out, fmt.Sprintf("%s %+v live %d deleted %d @%d", ci.Name, ci.Settings, ci.Count, ci.Deleted, ci.LastSeq))
		}
		return strings.Join(out, "; "), nil
	}
	return "", &osier.Error{Kind: osier.KindInvalid, Op: "apply", Err: fmt.Errorf("unknown verb %q", op.Verb)}
}

// joined shows each element of a stream.
func joined[T any](seq iter.Seq2[T, error], show func(T) string) (string, error) {
	var out []string
	for v, err := range seq {
		if err != nil {
			return strings.Join(out, "; "), err
		}
		out = append(out, show(v))
	}
	return strings.Join(out, "; "), nil
}

func (a applier) attachment(db *osier.DB, op Op) (string, error) {
	c := handle(op.In)
	rev, err := a.rev(db, op)
	if err != nil {
		return "", err
	}
	if op.Verb == Detach {
		doc, err := c.Detach(a.ctx, db, idOf(op.ID), rev, op.Name)
		return showDoc(doc), err
	}
	doc, err := c.Attach(a.ctx, db, idOf(op.ID), rev, op.Name, "text/plain", strings.NewReader(op.Body))
	if err != nil {
		return showDoc(doc), err
	}
	_, rc, err := c.OpenAttachment(a.ctx, db, idOf(op.ID), op.Name, 3, 10)
	if err != nil {
		return showDoc(doc), err // the bytes may be on a losing branch
	}
	defer rc.Close()
	part, err := io.ReadAll(rc)
	return showDoc(doc) + " reads " + strconv.Quote(string(part)), err
}
