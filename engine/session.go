package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
	"github.com/osierdb/osier/internal/store"
)

// resultsKept is how many answers to commands with a session a database
// remembers; the oldest is forgotten first.
const resultsKept = 10_000

// remembered finds the answer that the same command got before.
func (a *applier) remembered(db *database, c *osier.Command) (res *osier.Result, err error, found bool) {
	b, closer, err := a.b.Get(resultKey(db.num, c.Session, c.Number))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, false
	}
	if err != nil {
		return nil, a.e.storeError("look up session", err), false
	}
	defer closer.Close()
	res, own, err := decodeResult(b)
	if err != nil {
		return nil, &osier.Error{Kind: osier.KindCorrupt, Op: "look up session", DB: db.name, Err: err}, false
	}
	if own != nil {
		return nil, own, true
	}
	return res, nil, true
}

// remember writes the command's answer, and forgets the oldest one.
func (r *run) remember(own *osier.Error) error {
	b, db, c := r.a.b, r.db.num, r.cmd
	res := r.res
	if own != nil {
		res = &osier.Result{}
	}
	if err := b.Set(resultKey(db, c.Session, c.Number), appendResult(nil, res, own)); err != nil {
		return err
	}
	n := r.state.results
	r.state.results++
	ring := binary.BigEndian.AppendUint64(keys.AppendString(nil, c.Session), c.Number)
	if err := b.Set(resultRingKey(db, n), ring); err != nil {
		return err
	}
	if n < resultsKept {
		return nil
	}
	oldest := resultRingKey(db, n-resultsKept)
	tail, closer, err := b.Get(oldest)
	if errors.Is(err, store.ErrNotFound) {
		return nil // lost with a damaged file
	}
	if err != nil {
		return fmt.Errorf("forget session result: %w", err)
	}
	defer closer.Close()
	return errors.Join(b.Delete(append(prefix(nil, db, 0, spaceResult), tail...)), b.Delete(oldest))
}

func appendResult(dst []byte, res *osier.Result, own *osier.Error) []byte {
	version := byte(recordVersion)
	for i := range res.Ops {
		if res.Ops[i].KV != nil {
			version = resultWithKV
		}
	}
	dst = append(dst, version)
	dst = appendError(dst, own)
	dst = binary.AppendUvarint(dst, uint64(res.First))
	dst = binary.AppendUvarint(dst, uint64(res.Last))
	dst = binary.AppendUvarint(dst, uint64(max(res.Time.UnixMilli(), 0)))
	dst = binary.AppendUvarint(dst, uint64(len(res.Ops)))
	for i := range res.Ops {
		op := &res.Ops[i]
		dst = appendText(dst, op.ID.Key())
		dst = appendRev(dst, op.Rev)
		dst = binary.AppendUvarint(dst, uint64(op.Seq))
		dst = appendError(dst, op.Err)
		if version == resultWithKV {
			dst = appendKVResult(dst, op.KV)
		}
	}
	return appendPositions(dst, res.Ops)
}

func decodeResult(b []byte) (res *osier.Result, own *osier.Error, err error) {
	r := reader{b: b}
	version := r.byte()
	r.bad = version != recordVersion && version != resultWithKV
	own = r.error()
	res = &osier.Result{First: osier.Seq(r.uvarint()), Last: osier.Seq(r.uvarint()), Time: at(int64(r.uvarint()))}
	n := r.count(leastLeaf)
	if r.bad {
		return nil, nil, fmt.Errorf("session result: %w", errRecord)
	}
	res.Ops = make([]osier.OpResult, n)
	for i := range res.Ops {
		op := &res.Ops[i]
		op.ID = osier.TrustedID(r.bytes(r.uvarint()))
		op.Rev, op.Seq, op.Err = r.rev(), osier.Seq(r.uvarint()), r.error()
		if version == resultWithKV {
			op.KV = r.kvResult()
		}
	}
	for len(r.b) > 0 && !r.bad {
		switch r.byte() {
		case sectionPositions:
			r.positions(res.Ops)
		default:
			r.bad = true
		}
	}
	if r.bad || len(r.b) > 0 {
		return nil, nil, fmt.Errorf("session result: %w", errRecord)
	}
	return res, own, nil
}

func appendError(dst []byte, e *osier.Error) []byte {
	if e == nil {
		return append(dst, 0)
	}
	dst = append(dst, 1, byte(e.Kind))
	text := ""
	if e.Err != nil {
		text = e.Err.Error()
	}
	for _, s := range [...]string{e.Op, e.DB, e.Collection, e.ID, text} {
		dst = appendText(dst, s)
	}
	return dst
}

func (r *reader) error() *osier.Error {
	if r.byte() == 0 {
		return nil
	}
	e := &osier.Error{Kind: osier.Kind(r.byte()), Op: r.text(), DB: r.text(), Collection: r.text(), ID: r.text()}
	if text := r.text(); text != "" {
		e.Err = errors.New(text)
	}
	return e
}
