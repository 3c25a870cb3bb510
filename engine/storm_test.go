package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/osierdb/osier"
)

// A storm is many goroutines writing to one database until it ends, each
// telling what was acknowledged to it, and a follower telling what the feed
// showed. A witness (witness_test.go) hears that and judges what is there
// after a crash.
type storm struct {
	e      *Engine
	db     *osier.DB
	since  osier.Seq // where the follower goes on
	report func(event)
}

const stormDB = "storm"

// An event is something a caller was told and may rely on.
type event struct {
	kind  eventKind
	level osier.Durability // of an acknowledgement
	coll  string
	id    osier.ID
	rev   osier.Rev
	seq   osier.Seq
}

type eventKind byte

const (
	eventAcked eventKind = 'a' // a write was acknowledged
	eventShown eventKind = 'f' // the feed showed a change
)

func (ev event) String() string {
	return fmt.Sprintf("%c %d %s %x %s %d", ev.kind, ev.level, ev.coll, ev.id.Key(), ev.rev, ev.seq)
}

func parseEvent(line string) (ev event, err error) {
	var id, rev string
	if _, err := fmt.Sscanf(line, "%c %d %s %s %s %d", &ev.kind, &ev.level, &ev.coll, &id, &rev, &ev.seq); err != nil {
		return ev, fmt.Errorf("event %q: %w", line, err)
	}
	key, err := hex.DecodeString(id)
	if err != nil {
		return ev, err
	}
	if ev.id, err = osier.DecodeID(key); err != nil {
		return ev, err
	}
	ev.rev, err = osier.ParseRev(rev)
	return ev, err
}

type account struct{ Balance, Moves int }

type move struct{ From, To, Amount int }

var (
	accounts = osier.NewCollection[account]("accounts")
	ledger   = osier.NewCollection[move]("ledger")
)

const (
	accountCount   = 6
	accountBalance = 1000
	batchSize      = 4
	scratchPrefix  = "scratch-"
)

// newStorm makes the database and its accounts, or finds them.
func newStorm(e *Engine, since osier.Seq, report func(event)) (*storm, error) {
	ctx := context.Background()
	db, err := e.DB(ctx, stormDB)
	if err != nil {
		return nil, err
	}
	s := &storm{e: e, db: db, since: since, report: report}
	if _, err := accounts.Get(ctx, db, 0); err == nil || !errors.Is(err, osier.ErrNotFound) {
		return s, err
	}
	return s, db.Update(ctx, func(tx *osier.Tx) error {
		for i := range accountCount {
			if _, err := accounts.InsertWithID(ctx, tx, i, account{Balance: accountBalance}); err != nil {
				return err
			}
		}
		return nil
	})
}

// run goes on until ctx ends, and returns what went wrong otherwise.
func (s *storm) run(ctx context.Context, seed uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work := []func(context.Context, *rand.Rand, int) error{s.follow}
	for _, d := range []osier.Durability{osier.Sync, osier.Buffered, osier.Relaxed} {
		work = append(work, s.at(d, s.document), s.at(d, s.transfer), s.at(d, s.batch), s.at(d, s.attachment))
	}
	work = append(work, s.at(osier.Sync, s.document), s.at(osier.Relaxed, s.scratch))
	errs := make([]error, len(work))
	var wg sync.WaitGroup
	for i, fn := range work {
		wg.Go(func() {
			errs[i] = fn(ctx, rand.New(rand.NewPCG(seed, uint64(i))), i)
			cancel()
		})
	}
	wg.Wait()
	var failures []error
	for _, err := range errs {
		if k := osier.KindOf(err); err != nil && k != osier.KindCanceled && k != osier.KindClosed {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// at repeats one kind of write at a durability.
func (s *storm) at(d osier.Durability, fn func(context.Context, *rand.Rand, int, osier.Durability) error) func(context.Context, *rand.Rand, int) error {
	return func(ctx context.Context, rng *rand.Rand, worker int) error {
		for {
			if err := fn(ctx, rng, worker, d); err != nil {
				return err
			}
		}
	}
}

func (s *storm) acked(d osier.Durability, coll string, r osier.OpResult) {
	s.report(event{eventAcked, d, coll, r.ID, r.Rev, r.Seq})
}

// document inserts, updates or deletes a document of the worker's own.
func (s *storm) document(ctx context.Context, rng *rand.Rand, worker int, d osier.Durability) error {
	const coll = "documents"
	op := set(coll, osier.Tuple{worker, rng.IntN(60)}, bodyOf(rng, rng.IntN(2000)))
	q := &osier.Query{Kind: osier.QueryGet, DB: stormDB, Collection: coll, IDs: []osier.ID{op.ID}, Deleted: true}
	for row, err := range s.e.Query(ctx, q) {
		if err != nil {
			return err
		}
		switch {
		case row.Missing || row.Deleted:
			op.Expect = osier.ExpectAbsent
		default:
			op.Expect, op.Rev = osier.ExpectRev, row.Rev
			if op.Deleted = rng.IntN(4) == 0; op.Deleted {
				op.Body = nil
			}
		}
	}
	res, err := s.e.Exec(ctx, &osier.Command{DB: stormDB, Durability: d, Ops: []osier.Op{op}})
	if err != nil {
		return err
	}
	s.acked(d, coll, res.Ops[0])
	return nil
}

// transfer moves money between two accounts and writes it down, in one
// transaction.
func (s *storm) transfer(ctx context.Context, rng *rand.Rand, _ int, d osier.Durability) error {
	from := rng.IntN(accountCount)
	to := (from + 1 + rng.IntN(accountCount-1)) % accountCount
	amount := rng.IntN(50)
	var entry osier.ID
	err := s.db.With(d).Update(ctx, func(tx *osier.Tx) error {
		for _, leg := range []struct{ id, amount int }{{from, -amount}, {to, amount}} {
			a, err := accounts.Get(ctx, tx, leg.id)
			if err != nil {
				return err
			}
			a.Value.Balance += leg.amount
			a.Value.Moves++
			if _, err := accounts.Update(ctx, tx, a); err != nil {
				return err
			}
		}
		doc, err := ledger.Insert(ctx, tx, move{from, to, amount})
		entry = doc.ID
		return err
	})
	if osier.KindOf(err) == osier.KindConflict {
		return nil // lost the race too often
	}
	if err != nil {
		return err
	}
	doc, err := ledger.Get(ctx, s.db, entry)
	if err != nil {
		return fmt.Errorf("an acknowledged entry: %w", err)
	}
	s.acked(d, "ledger", osier.OpResult{ID: doc.ID, Rev: doc.Rev, Seq: doc.Seq})
	return nil
}

// batch writes batchSize documents into two collections, all or nothing.
func (s *storm) batch(ctx context.Context, rng *rand.Rand, worker int, d osier.Durability) error {
	c := &osier.Command{DB: stormDB, Durability: d}
	n := rng.Uint64()
	for k := range batchSize {
		c.Ops = append(c.Ops, set(batchColl(k), osier.Tuple{worker, n, k}, fmt.Sprintf(`{"k":%d}`, k)))
	}
	if rng.IntN(2) == 0 {
		c.Session, c.Number = fmt.Sprint("worker-", worker), n
	}
	res, err := s.e.Exec(ctx, c)
	if err != nil {
		return err
	}
	for k, r := range res.Ops {
		s.acked(d, batchColl(k), r)
	}
	if c.Session == "" || rng.IntN(2) == 0 {
		return nil
	}
	again := *c
	again.Sealed = osier.Seal{}
	res2, err := s.e.Exec(ctx, &again)
	if err == nil && res2.First != res.First {
		err = fmt.Errorf("a retry took sequence %d, the first try had %d", res2.First, res.First)
	}
	return err
}

func batchColl(k int) string { return fmt.Sprintf("batches-%d", k%2) }

// attachment streams bytes in and puts them into a document. What they are is
// in its body.
func (s *storm) attachment(ctx context.Context, rng *rand.Rand, worker int, d osier.Durability) error {
	const coll = "files"
	content := bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(3000))
	if rng.IntN(30) == 0 {
		content = bytes.Repeat([]byte{byte(rng.Uint32()), 1, 2}, chunkSize/2)
	}
	sum := sha256.Sum256(content)
	op := set(coll, osier.Tuple{worker, rng.IntN(8)}, fmt.Sprintf(`{"sha256":"%x"}`, sum))
	op.Attachments = []osier.AttachmentRef{{Name: "content"}}
	a, err := s.e.Stage(ctx, stormDB, bytes.NewReader(content))
	if err != nil {
		return err
	}
	if rng.IntN(10) == 0 {
		return nil // an upload that nobody takes
	}
	op.Attachments[0].Staged = a.Blob
	res, err := s.e.Exec(ctx, &osier.Command{DB: stormDB, Durability: d, Ops: []osier.Op{op}})
	if err != nil {
		return err
	}
	s.acked(d, coll, res.Ops[0])
	return nil
}

// scratch fills a collection and drops it. Nothing of it is promised to be there.
func (s *storm) scratch(ctx context.Context, rng *rand.Rand, _ int, _ osier.Durability) error {
	coll := fmt.Sprintf("%s%x", scratchPrefix, rng.Uint32())
	level := func() osier.Durability { return osier.Durability(1 + rng.IntN(3)) }
	for range 1 + rng.IntN(3) {
		c := &osier.Command{DB: stormDB, Durability: level(), Ops: []osier.Op{set(coll, rng.IntN(5), bodyOf(rng, 100))}}
		if _, err := s.e.Exec(ctx, c); err != nil {
			return err
		}
	}
	_, err := s.e.Exec(ctx, &osier.Command{DB: stormDB, Durability: level(), Ops: []osier.Op{{Kind: osier.OpDropCollection, Collection: coll}}})
	return err
}

// follow tells what the database's feed shows, from where the last follower
// stopped.
func (s *storm) follow(ctx context.Context, rng *rand.Rand, _ int) error {
	f := &osier.Feed{DB: stormDB, Since: s.since, Mode: osier.FeedLive}
	if rng.IntN(2) == 0 {
		f.Parts = osier.WithBody
	}
	for ch, err := range s.e.Watch(ctx, f) {
		if err != nil {
			return err
		}
		if ch.Seq <= s.since {
			return fmt.Errorf("the feed showed sequence %d after %d", ch.Seq, s.since)
		}
		s.since = ch.Seq
		s.report(event{kind: eventShown, coll: ch.Collection, id: ch.ID, rev: ch.Rev, seq: ch.Seq})
	}
	return errors.New("a live feed ended by itself")
}

func isScratch(coll string) bool { return strings.HasPrefix(coll, scratchPrefix) }
