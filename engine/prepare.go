package engine

import (
	"runtime"
	"slices"
	"sync"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/revtree"
)

// prepared is what was worked out for an operation outside the order, where
// requests do not wait for each other. It needs no state: the digest is a guess,
// whose premise apply checks.
type prepared struct {
	term []byte // the form of a JSON body that its digest is taken of; nil if there is none

	summed bool      // whether sum is set
	sum    [16]byte  // the new revision's digest, if it follows parent
	parent osier.Rev // zero: none
}

// maxKeptTerms bounds the scratch memory that is kept for the next command.
const maxKeptTerms = 4 << 20

// A command is prepared by several goroutines if each has so many bytes of
// operations to work on.
const minShare = 64 << 10

// prepare works out what can be known of a command without state, and returns
// the command's size. Its memory comes from scratch and goes back to it with
// release.
func (r *request) prepare(scratch *sync.Pool) (size int) {
	c := r.cmd
	needed := false
	for i := range c.Ops {
		op := &c.Ops[i]
		size += len(op.Body) + 64 + kvSize(op.KV)
		if isJournalOp(op.Kind) {
			r.journals = true
			size += journalOpSize(op.Journal)
		}
		needed = needed || op.Codec <= osier.TagJSON && len(op.Body) > 0
	}
	if !needed {
		return size
	}
	r.prepared, r.scratch = r.one.prepared[:], r.one.scratch[:0]
	if len(c.Ops) > 1 {
		r.prepared = make([]prepared, len(c.Ops))
	}
	shares := 1
	if size >= 2*minShare && len(c.Ops) > 1 {
		shares = min(runtime.GOMAXPROCS(0), len(c.Ops), size/minShare)
	}
	for range shares {
		r.scratch = append(r.scratch, scratch.Get().(*[]byte))
	}
	var wg sync.WaitGroup
	for k := 1; k < shares; k++ {
		wg.Go(func() { r.prepareShare(k, shares, size) })
	}
	r.prepareShare(0, shares, size)
	wg.Wait()
	return size
}

// prepareShare prepares one of several equal parts of the operations.
func (r *request) prepareShare(k, shares, size int) {
	ops := r.cmd.Ops
	from, to := k*len(ops)/shares, (k+1)*len(ops)/shares
	buf := slices.Grow((*r.scratch[k])[:0], (size+size/4)/shares)
	for i := from; i < to; i++ {
		op, p := &ops[i], &r.prepared[i]
		if op.Codec > osier.TagJSON || !isObject(op.Body) {
			continue
		}
		at := len(buf)
		out, err := revtree.AppendTerm(buf, op.Body)
		if err != nil {
			continue // apply says so, in its place
		}
		buf = out
		p.term = buf[at:len(buf):len(buf)]
		p.guess(op)
	}
	*r.scratch[k] = buf
}

// guess works out the new revision's digest for the parent that the operation
// expects.
func (p *prepared) guess(op *osier.Op) {
	if op.Kind != osier.OpPut || len(op.Attachments) > 0 || op.KeepAttachments || op.KeepBody {
		return
	}
	switch op.Expect {
	case osier.ExpectAbsent:
	case osier.ExpectRev, osier.ExpectLiveRev:
		p.parent = op.Rev
	default:
		return
	}
	parent, err := treeRev(p.parent)
	if err != nil {
		return // apply says so, in its place
	}
	p.sum, p.summed = revtree.JSONDigest(op.Deleted, parent, p.term, nil), true
}

// release gives scratch memory back. Nothing that was prepared is used any more.
func (r *request) release(scratch *sync.Pool) {
	for _, s := range r.scratch {
		if cap(*s) <= maxKeptTerms {
			scratch.Put(s)
		}
	}
	r.scratch, r.prepared = nil, nil
}
