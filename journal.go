package osier

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// JournalSettings of a journal. They are stored with it. The zero value keeps
// every event for ever.
type JournalSettings struct {
	// Durability of appends that do not say; DurabilityDefault is the store's.
	// It is also what a tail waits for: see Journal.Tail.
	Durability Durability
	// MaxAge ends events that are older. Reads stop showing them to the
	// microsecond; their space comes back within seconds.
	MaxAge time.Duration
	// MaxEvents and MaxBytes bound the journal, bytes as events are stored (16
	// more than data, type and expiry have). A journal that grows fast may be
	// beyond them for about a second.
	MaxEvents uint64
	MaxBytes  uint64
	// Window is how far back a read looks that does not say where to begin; 0
	// is an hour.
	Window time.Duration
	// MaxEventBytes bounds an event's data and type together; 0 is 1 MiB.
	MaxEventBytes uint32
	// KeysKept is how many idempotency keys are remembered, the newest; 0 is
	// 10,000.
	KeysKept uint32
}

// Defaults of JournalSettings.
const (
	DefaultJournalWindow  = time.Hour
	DefaultMaxEventBytes  = 1 << 20
	DefaultJournalKeys    = 10_000
	MaxJournalKeys        = 10_000_000
	MaxAppendEvents       = 1 << 20  // events of one append
	MaxAppendBytes        = 64 << 20 // bytes of one append
	MaxJournalKeyBytes    = 256      // bytes of an idempotency key
	MaxJournalTypesFilter = 256      // types in a filter
)

// Check refuses settings that make no sense.
func (s *JournalSettings) Check() error {
	switch {
	case s.Durability > Relaxed:
		return invalid("set up journal", "unknown durability")
	case s.MaxAge < 0 || s.Window < 0:
		return invalid("set up journal", "a negative time")
	case s.MaxEventBytes > MaxEventBytes:
		return invalid("set up journal", fmt.Sprintf("events of %d bytes, at most %d are possible", s.MaxEventBytes, MaxEventBytes))
	case s.KeysKept > MaxJournalKeys:
		return invalid("set up journal", fmt.Sprintf("%d keys to be kept, at most %d are possible", s.KeysKept, MaxJournalKeys))
	}
	return nil
}

// JournalOp is what an operation on a journal says beside the journal's name.
type JournalOp struct {
	Settings *JournalSettings // OpJournal

	// OpAppend. The events get consecutive positions; all or none are appended.
	Events []Event
	// Key, if not empty, makes the append repeatable: a second one with the key
	// gets the first one's answer and appends nothing.
	Key string
	// Expect, if not nil, must be the position of the journal's last event, zero
	// if it never had one; otherwise KindConflict.
	Expect *Position
	// Encoded are runs of events in the form of AppendEvent with their
	// positions, which a command that comes sealed may have instead of Events.
	// They come after the journal's last, and not after the command's
	// Sealed.Micros.
	Encoded [][]byte

	// OpTrim drops all events before Before, and runs of events whose own expiry
	// has come by ExpiredMillis.
	Before        Position
	ExpiredMillis int64
}

// JournalResult is the answer to an OpAppend.
type JournalResult struct {
	First, Last Position
	Repeated    bool // an append with that key was there; this is its answer
}

// JournalQuery bounds what QueryJournal and QueryJournalCount look at.
type JournalQuery struct {
	// From is the first position wanted, Until the first one not wanted any
	// more. A zero From means the journal's Window back from now; Beginning
	// shows all. A zero Until is open.
	From, Until Position
	Types       []string // only events of these types; none: all
}

// Check refuses bounds that are no positions, and too many types.
func (q *JournalQuery) Check() error {
	switch {
	case q.From.Micros < 0 || q.Until.Micros < 0:
		return invalid("read journal", "a position before 1970")
	case len(q.Types) > MaxJournalTypesFilter:
		return &Error{Kind: KindTooLarge, Op: "read journal",
			Err: fmt.Errorf("%d types in a filter, at most %d are possible", len(q.Types), MaxJournalTypesFilter)}
	}
	return nil
}

// JournalFeed makes a Feed one of a journal's events.
type JournalFeed struct {
	// From is where to go on: the last position seen, Next. Zero means what
	// comes from now on, Beginning all that is kept. When events from there on
	// were dropped before they could be shown, the feed fails with KindGap.
	From  Position
	Types []string // only events of these types; none: all
}

// JournalRow is the part of a Row that is about a journal.
type JournalRow struct {
	Window Window
	Info   *JournalInfo // QueryJournalInfo
	Count  uint64       // QueryJournalCount
}

// JournalInfo describes a journal.
type JournalInfo struct {
	Name      string
	Settings  JournalSettings
	Last      Position // of the last event ever appended; zero: none yet
	Trimmed   Position // of the last event that was dropped; zero: none yet
	Count     uint64   // events kept
	Appended  uint64   // events ever appended
	Bytes     uint64   // of the events kept, as they are stored
	Pending   uint64   // bytes of them that are still to be written behind
	DiskBytes uint64   // an estimate of what the journal takes on disk
}

// journalPrefix begins what the Collection field of an operation, a query, a
// feed or a Resource holds for a journal. Names of collections have no colon.
const journalPrefix = "journal:"

// JournalResource returns the Collection field that means the journal.
func JournalResource(name string) string { return journalPrefix + name }

// JournalName returns the name of the journal that a Collection field means.
func JournalName(resource string) (name string, ok bool) {
	if len(resource) <= len(journalPrefix) || resource[:len(journalPrefix)] != journalPrefix {
		return "", false
	}
	return resource[len(journalPrefix):], true
}

// CheckJournalName applies the rule of CheckCollectionName.
func CheckJournalName(name string) error {
	if err := CheckCollectionName(name); err != nil {
		return &Error{Kind: KindInvalid, Op: "name journal", Collection: name, Err: err.(*Error).Err}
	}
	return nil
}

// journalAppender is what a Backend may have beside its verbs, as a shorter way
// for the most frequent append. It means the same as a command with one
// OpAppend. handled is false if the ordinary way must be taken.
type journalAppender interface {
	AppendJournal(ctx context.Context, db, resource string, level Durability, events []Event) (res JournalResult, handled bool, err error)
}

// Journal is a handle on an append-only log of events in the order of their
// time. Declare it once, as a package variable, and use it with any database;
// it is made by its first append, or by Schema with the settings declared.
//
// A journal's appends stand in one order, and take part in transactions and
// batches. Positions are given when a command is put in order, so an append
// inside a transaction or batch has none yet.
//
// What an append survives: at Sync the end of the process and a power cut; at
// Buffered the end of the process; at Relaxed neither, for the store's
// SyncInterval (100 ms unless set otherwise) or 1 MiB of events, whichever
// comes first: then they are written and fsynced together. Whatever is lost is
// the newest: whole appends, in order from the end. A stronger append makes all
// before it in its journal as strong. A Relaxed append by itself, without Key
// and Expect, costs no engine step; the first one after a second of silence
// waits for an fsync, which reserves the positions of the next second.
type Journal struct {
	name     string
	resource string
	settings JournalSettings
}

// NewJournal declares a journal. It panics if the name is against
// CheckJournalName's rule or the settings against Check, as that is a mistake in
// the program.
func NewJournal(name string, settings ...JournalSettings) *Journal {
	j := &Journal{name: name, resource: JournalResource(name)}
	if len(settings) > 0 {
		j.settings = settings[0]
	}
	if err := errors.Join(CheckJournalName(name), j.settings.Check()); err != nil {
		panic(err)
	}
	return j
}

// Name returns the journal's name.
func (j *Journal) Name() string { return j.name }

func (j *Journal) declare() *Op {
	s := j.settings
	return &Op{Kind: OpJournal, Collection: j.resource, Journal: &JournalOp{Settings: &s}}
}

// Append adds an event and returns its position (in a transaction or batch: the
// zero position). data must not be changed until it returns, in a transaction
// or batch until that is over.
func (j *Journal) Append(ctx context.Context, w Writer, data []byte) (Position, error) {
	events := [1]Event{{Data: data}}
	res, err := j.AppendEvents(ctx, w, events[:], nil)
	return res.First, err
}

// AppendOptions make an append conditional or repeatable.
type AppendOptions struct {
	Key    string    // see JournalOp.Key
	Expect *Position // see JournalOp.Expect
}

// AppendEvents adds events with consecutive positions, all or none; their
// Position fields are ignored. The result has the first and the last position
// (in a transaction or batch: zero ones). Errors: ErrConflict if Expect does not
// hold, ErrTooLarge beyond the limits, ErrInvalid for no events.
func (j *Journal) AppendEvents(ctx context.Context, w Writer, events []Event, o *AppendOptions) (JournalResult, error) {
	op := JournalOp{Events: events}
	if o != nil {
		op.Key, op.Expect = o.Key, o.Expect
	} else if db, ok := w.(*DB); ok {
		if a, ok := db.backend.(journalAppender); ok {
			res, handled, err := a.AppendJournal(ctx, db.name, j.resource, DurabilityDefault, events)
			if handled {
				return res, err
			}
		}
	}
	return j.append(ctx, w, op)
}

func (j *Journal) append(ctx context.Context, w Writer, op JournalOp) (JournalResult, error) {
	res, err := w.write(ctx, &Op{Kind: OpAppend, Collection: j.resource, Journal: &op})
	if err != nil || res.Journal == nil {
		return JournalResult{}, err
	}
	return *res.Journal, nil
}

// Trim drops all events before a position. Readers under way go on. It needs the
// right to manage the journal.
func (j *Journal) Trim(ctx context.Context, w Writer, before Position) error {
	_, err := w.write(ctx, &Op{Kind: OpTrim, Collection: j.resource, Journal: &JournalOp{Before: before}})
	return err
}

// Drop deletes the journal and all in it; ErrNotFound if there is none.
func (j *Journal) Drop(ctx context.Context, db *DB) error {
	_, err := db.write(ctx, &Op{Kind: OpDropJournal, Collection: j.resource, Journal: &JournalOp{}})
	return err
}

// ReadOptions choose what Read, Windows and Count look at. The zero value is the
// journal's Window back from now, all types, oldest first.
type ReadOptions struct {
	// From is the first position wanted; After, if From is zero, the one before
	// it; Since, if both are zero, the time to begin at; All shows everything
	// that is kept.
	From, After Position
	Since       time.Time
	All         bool
	// Until is the first position not wanted any more, Before, if Until is zero,
	// the time of it; both zero: to the end.
	Until   Position
	Before  time.Time
	Types   []string // only these
	Reverse bool     // newest first
	Limit   int      // 0: no limit
}

func (o *ReadOptions) bounds() JournalQuery {
	q := JournalQuery{From: o.From, Until: o.Until, Types: o.Types}
	switch {
	case !q.From.IsZero():
	case !o.After.IsZero():
		q.From = o.After.Next()
	case !o.Since.IsZero():
		q.From = latest(PositionAt(o.Since), Beginning())
	case o.All:
		q.From = Beginning()
	}
	if q.Until.IsZero() && !o.Before.IsZero() {
		q.Until = latest(PositionAt(o.Before), Beginning())
	}
	return q
}

func latest(p, q Position) Position {
	if p.Before(q) {
		return q
	}
	return p
}

func (j *Journal) reading(kind QueryKind, o *ReadOptions) *Query {
	if o == nil {
		o = new(ReadOptions)
	}
	b := o.bounds()
	return &Query{Kind: kind, Collection: j.resource, Journal: &b, Reverse: o.Reverse, Limit: o.Limit}
}

// Read streams events, all of one state. Their Data is valid until the next one.
// A journal that was never appended to reads as empty. Cost: a step of the
// engine every 32 KiB or so of events, and nothing is decoded or allocated an
// event.
func (j *Journal) Read(ctx context.Context, r Reader, o *ReadOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		var d eventDecoder
		reverse := o != nil && o.Reverse
		for row, err := range r.query(ctx, j.reading(QueryJournal, o)) {
			if err != nil {
				yield(Event{}, err)
				return
			}
			if row.Journal != nil && !d.walk(&row.Journal.Window, reverse, yield) {
				return
			}
		}
	}
}

// Windows is Read for who passes events on: whole runs of them as they are
// stored, each valid until the next. With Reverse the runs come newest first;
// within one the order is ascending all the same.
func (j *Journal) Windows(ctx context.Context, r Reader, o *ReadOptions) iter.Seq2[Window, error] {
	return func(yield func(Window, error) bool) {
		for row, err := range r.query(ctx, j.reading(QueryJournal, o)) {
			if err != nil {
				yield(Window{}, err)
				return
			}
			if row.Journal != nil && !yield(row.Journal.Window, nil) {
				return
			}
		}
	}
}

// Count returns the number of events that Read would show, Limit aside. Cost:
// two look-ups; but a look at every event of the range if types are asked for
// or events with an expiry of their own are in it.
func (j *Journal) Count(ctx context.Context, r Reader, o *ReadOptions) (uint64, error) {
	for row, err := range r.query(ctx, j.reading(QueryJournalCount, o)) {
		if err != nil {
			return 0, err
		}
		return row.Journal.Count, nil
	}
	return 0, nil
}

// Info describes the journal; ErrNotFound if there is none.
func (j *Journal) Info(ctx context.Context, r Reader) (*JournalInfo, error) {
	for row, err := range r.query(ctx, &Query{Kind: QueryJournalInfo, Collection: j.resource}) {
		if err != nil {
			return nil, err
		}
		return row.Journal.Info, nil
	}
	return nil, &Error{Kind: KindNotFound, Op: "info", Collection: j.resource}
}

// TailOptions choose what Tail shows. The zero value is what comes from now on.
type TailOptions struct {
	After Position // go on after this one; zero: from now on
	All   bool     // begin with all that is kept
	Types []string // only these
	Limit int      // end after so many; 0: no limit
	Once  bool     // end at the end of what there is
}

// Tail streams events as they are appended, for ever. Their Data is valid until
// the next one. To resume, give the last position seen as After: no event is
// missed or shown twice. When retention or a trim has dropped events that it
// should have shown, it fails with ErrGap.
//
// It shows an event when it is as durable as the journal's settings say: in a
// journal set to Sync (or to the store's default, if that is Sync) never one
// that a crash can take back. In a journal set to Buffered it may show what a
// power cut takes back, in one set to Relaxed what the end of the process takes
// back too: such positions never come again, so a reader that resumes after one
// misses nothing.
func (j *Journal) Tail(ctx context.Context, db *DB, o *TailOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := &Feed{DB: db.name, Collection: j.resource, Mode: FeedLive, Journal: &JournalFeed{}}
		if o != nil {
			f.Limit, f.Journal.Types = o.Limit, o.Types
			switch {
			case !o.After.IsZero():
				f.Journal.From = o.After.Next()
			case o.All:
				f.Journal.From = Beginning()
			}
			if o.Once {
				f.Mode = FeedOnce
			}
		}
		var d eventDecoder
		for ch, err := range db.backend.Watch(ctx, f) {
			if err != nil {
				yield(Event{}, err)
				return
			}
			if ch.Window != nil && !d.walk(ch.Window, false, yield) {
				return
			}
		}
	}
}

// journal returns what is said of the journal that a Collection field means.
func (i *DBInfo) journal(resource string) *JournalInfo {
	for k := range i.Journals {
		if JournalResource(i.Journals[k].Name) == resource {
			return &i.Journals[k]
		}
	}
	return nil
}

// journal reads a journal as the transaction's state has it, without its own
// appends, which have no positions yet. The commit fails if others have appended
// to it since.
func (tx *Tx) journal(ctx context.Context, q *Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if k := (docKey{collection: q.Collection}); !tx.read[k] {
			var last Position
			for row, err := range tx.db.backend.Query(ctx, &Query{Kind: QueryJournalInfo, DB: q.DB, Pin: q.Pin, Collection: q.Collection}) {
				if err != nil && KindOf(err) != KindNotFound {
					yield(Row{}, err)
					return
				}
				if err == nil {
					last = row.Journal.Info.Last
				}
			}
			tx.read[k] = true
			tx.reads = append(tx.reads, Read{Collection: q.Collection, Start: string(last.Append(nil))})
		}
		for row, err := range tx.db.backend.Query(ctx, q) {
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}
