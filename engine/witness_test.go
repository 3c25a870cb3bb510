package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/osierdb/osier"
)

// docID names a document of the storm's database.
type docID struct {
	coll string
	id   osier.ID
}

func (d docID) String() string { return d.coll + "/" + d.id.String() }

// A witness remembers what a storm was told.
type witness struct {
	mu      sync.Mutex        // guards all below while a storm runs
	acks    []event           // since the last judgement
	base    map[docID]event   // what was there at the last judgement
	floor   osier.Seq         // the last sequence then
	shown   map[docID]event   // what the feed showed of each document last
	shownTo osier.Seq         // how far the feed has come
	wrong   []string          // what was wrong by itself
	count   map[eventKind]int // of all events
}

func newWitness() *witness {
	return &witness{base: map[docID]event{}, shown: map[docID]event{}, count: map[eventKind]int{}}
}

func (w *witness) note(ev event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[ev.kind]++
	if ev.kind == eventAcked {
		if ev.seq <= w.floor {
			w.wrong = append(w.wrong, fmt.Sprintf("%v: acknowledged with sequence %d, the store was at %d before", docID{ev.coll, ev.id}, ev.seq, w.floor))
		}
		w.acks = append(w.acks, ev)
		return
	}
	if ev.seq <= w.shownTo {
		w.wrong = append(w.wrong, fmt.Sprintf("the feed showed sequence %d after %d", ev.seq, w.shownTo))
	}
	w.shownTo = ev.seq
	w.shown[docID{ev.coll, ev.id}] = ev
}

// freeze returns a copy that hears no more.
func (w *witness) freeze() *witness {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &witness{acks: slices.Clone(w.acks), base: w.base, floor: w.floor, shown: maps.Clone(w.shown), shownTo: w.shownTo,
		wrong: slices.Clone(w.wrong), count: maps.Clone(w.count)}
}

// reopened is told the last sequence after a crash. What the crash may have
// taken back, and did, is forgotten: its sequences are taken anew.
func (w *witness) reopened(last osier.Seq, survives func(osier.Durability) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := func(format string, args ...any) { w.wrong = append(w.wrong, fmt.Sprintf(format, args...)) }
	if last < w.floor {
		bad("the last sequence is %d, it was %d before", last, w.floor)
	}
	if last < w.shownTo {
		bad("the feed has shown sequence %d, which the crash took back: %d is the last", w.shownTo, last)
	}
	w.acks = slices.DeleteFunc(w.acks, func(ev event) bool {
		if ev.seq > last && survives(ev.level) {
			bad("%v: sequence %d was acknowledged at level %d, the last is %d", docID{ev.coll, ev.id}, ev.seq, ev.level, last)
		}
		return ev.seq > last
	})
	w.floor = last
}

// judge compares what is there with what was told. survives says which
// durability the crash had to respect. Afterwards the witness starts from what
// is there.
func (w *witness) judge(t testing.TB, name string, e *Engine, survives func(osier.Durability) bool) {
	t.Helper()
	j := &judgement{t: t, name: name, e: e, now: map[docID]event{}}
	j.last = lastSeqOf(t, e, stormDB)
	w.reopened(j.last, survives)
	for _, s := range w.wrong {
		j.wrong("%s", s)
	}
	j.feed(w)
	for d, ev := range w.base {
		j.there(d, ev)
	}
	for d, ev := range w.shown {
		j.there(d, ev)
	}
	for _, ev := range w.acks {
		j.there(docID{ev.coll, ev.id}, ev)
	}
	j.ancestry()
	j.accounts()
	j.batches()
	j.files()
	j.counts()
	j.transactions()
	w.base, w.acks, w.floor = j.now, nil, j.last
}

// judgement is one comparison.
type judgement struct {
	t    testing.TB
	name string
	e    *Engine
	last osier.Seq
	now  map[docID]event
	// older are events that later revisions of their documents must descend from.
	older []event
	bad   int
}

func (j *judgement) wrong(format string, args ...any) {
	j.t.Helper()
	if j.bad++; j.bad < 20 {
		j.t.Errorf("%s: %s", j.name, fmt.Sprintf(format, args...))
	}
}

// feed reads the whole feed. What is not after the follower's position must
// have been shown to it, as it is.
func (j *judgement) feed(w *witness) {
	all, err := changesOf(j.e, &osier.Feed{DB: stormDB})
	if err != nil {
		j.wrong("feed: %v", err)
	}
	seq := osier.Seq(0)
	for _, ch := range all {
		d := docID{ch.Collection, ch.ID}
		if ch.Seq <= seq {
			j.wrong("%v: the feed has sequence %d after %d", d, ch.Seq, seq)
		}
		seq = ch.Seq
		if !isScratch(ch.Collection) {
			j.now[d] = event{coll: ch.Collection, id: ch.ID, rev: ch.Rev, seq: ch.Seq}
		}
		if before := w.shown[d]; ch.Seq <= w.shownTo && before.seq != ch.Seq {
			j.wrong("%v: the follower is at %d and will never be shown sequence %d (it saw %d)", d, w.shownTo, ch.Seq, before.seq)
		}
	}
	if seq > j.last {
		j.wrong("the feed goes to %d, the last sequence is %d", seq, j.last)
	}
}

// there checks one event against the present: unless the crash took it back,
// the document is at that revision or at one that came from it.
func (j *judgement) there(d docID, ev event) {
	if ev.seq > j.last || isScratch(d.coll) {
		return
	}
	now, found := j.now[d]
	switch {
	case !found || now.seq < ev.seq:
		j.wrong("%v: revision %v at %d is lost, there is %v at %d", d, ev.rev, ev.seq, now.rev, now.seq)
	case now.seq == ev.seq && now.rev != ev.rev:
		j.wrong("%v: revision %v was told for sequence %d, there is %v", d, ev.rev, ev.seq, now.rev)
	case now.seq > ev.seq:
		j.older = append(j.older, ev)
	}
}

func (j *judgement) ancestry() {
	byDoc := map[docID][]event{}
	for _, ev := range j.older {
		byDoc[docID{ev.coll, ev.id}] = append(byDoc[docID{ev.coll, ev.id}], ev)
	}
	for d, evs := range byDoc {
		row := getRow(j.t, j.e, stormDB, d.coll, d.id, osier.WithAncestors)
		known := map[osier.Rev]bool{}
		for _, rev := range row.Ancestors {
			known[rev] = true
		}
		if row.Rev.Generation() > osier.DefaultRevLimit {
			continue // its ancestry has been cut
		}
		for _, ev := range evs {
			if !known[ev.rev] {
				j.wrong("%v: revision %v at %d is no ancestor of %v at %d", d, ev.rev, ev.seq, row.Rev, row.Seq)
			}
		}
	}
}

// accounts: no half transaction.
func (j *judgement) accounts() {
	ctx := context.Background()
	db, err := j.e.OpenDB(ctx, stormDB)
	if err != nil {
		j.wrong("open database: %v", err)
		return
	}
	sum, moves, count, moved := 0, 0, 0, 0
	net := map[int]int{}
	for doc, err := range accounts.List(ctx, db, nil) {
		if err != nil {
			j.wrong("list accounts: %v", err)
			return
		}
		id, _ := doc.ID.Int64()
		sum, moves, count = sum+doc.Value.Balance, moves+doc.Value.Moves, count+1
		net[int(id)] += doc.Value.Balance - accountBalance
	}
	for doc, err := range ledger.List(ctx, db, nil) {
		if err != nil {
			j.wrong("list ledger: %v", err)
			return
		}
		moved++
		net[doc.Value.From] += doc.Value.Amount
		net[doc.Value.To] -= doc.Value.Amount
	}
	if count == 0 && moved == 0 {
		return // crashed before there were any
	}
	if count != accountCount || sum != accountCount*accountBalance || moves != 2*moved {
		j.wrong("%d accounts with %d and %d moves for %d entries; want %d with %d", count, sum, moves, moved, accountCount, accountCount*accountBalance)
	}
	for id, n := range net {
		if n != 0 {
			j.wrong("account %d is off its entries by %d", id, n)
		}
	}
}

// batches: all documents of a batch or none.
func (j *judgement) batches() {
	type batch struct{ worker, n any }
	parts := map[batch]int{}
	for d := range j.now {
		if d.coll == batchColl(0) || d.coll == batchColl(1) {
			id := d.id.Value().(osier.Tuple)
			parts[batch{id[0], id[1]}]++
		}
	}
	for b, n := range parts {
		if n != batchSize {
			j.wrong("batch %v has %d documents of %d", b, n, batchSize)
		}
	}
}

// files: every attachment is whole.
func (j *judgement) files() {
	rows := mustRows(j.t, j.e, &osier.Query{Kind: osier.QueryScan, DB: stormDB, Collection: "files", Parts: osier.WithBody})
	for i := range rows {
		row := &rows[i]
		if len(row.Attachments) != 1 {
			j.wrong("files/%v has %d attachments", row.ID, len(row.Attachments))
			continue
		}
		a := row.Attachments[0]
		if want := fmt.Sprintf(`{"sha256":"%x"}`, a.SHA256); string(row.Body) != want {
			j.wrong("files/%v: its attachment has digest %x, its body says %s", row.ID, a.SHA256, row.Body)
		}
	}
}

// counts are those of the documents that are there.
func (j *judgement) counts() {
	info := mustRows(j.t, j.e, &osier.Query{Kind: osier.QueryInfo, DB: stormDB})[0].DB
	for _, c := range info.Collections {
		live, deleted := uint64(0), uint64(0)
		for _, row := range mustRows(j.t, j.e, &osier.Query{Kind: osier.QueryScan, DB: stormDB, Collection: c.Name, Deleted: true}) {
			if row.Deleted {
				deleted++
			} else {
				live++
			}
		}
		if live != c.Count || deleted != c.Deleted {
			j.wrong("%s counts %d live and %d deleted, there are %d and %d", c.Name, c.Count, c.Deleted, live, deleted)
		}
	}
}

// transactions are listed without a gap.
func (j *judgement) transactions() {
	next := osier.Seq(0)
	for _, row := range mustRows(j.t, j.e, &osier.Query{Kind: osier.QueryTransactions, DB: stormDB}) {
		if next != 0 && row.Tx.First != next {
			j.wrong("a transaction begins at %d, the one before ended at %d", row.Tx.First, next-1)
		}
		next = row.Tx.Last + 1
	}
	if next != 0 && next != j.last+1 {
		j.wrong("the last transaction ends at %d, the last sequence is %d", next-1, j.last)
	}
}
