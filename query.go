package osier

import "time"

// QueryKind says what a Query asks for. The list only grows.
type QueryKind uint8

const (
	// QueryGet: the documents IDs, in that order, a row each; an absent one
	// gives a row with Missing.
	QueryGet QueryKind = 1
	// QueryScan: documents of an id range in order.
	QueryScan QueryKind = 2
	// QueryVersions: the versions of IDs[0]: leaves first (the winner leading),
	// then earlier ones, newest first; each with its body if that is kept.
	QueryVersions QueryKind = 3
	// QueryRevs: the versions Revs of IDs[0], in that order; an unknown one
	// gives a row with Missing, a known one without its body a nil Body.
	QueryRevs QueryKind = 4
	// QueryAsOf: the document IDs[0] as it was at sequence Seq, or, with Seq 0,
	// at Time.
	QueryAsOf QueryKind = 5
	// QueryInfo: one row with DB filled; with Collection, only that one is
	// described.
	QueryInfo QueryKind = 6
	// QueryDatabases: a row with DB (name only) for each database, by name.
	QueryDatabases QueryKind = 7
	// QueryTransactions: a row with Tx for each executed transaction that
	// ends after sequence Seq, in order or Reverse.
	QueryTransactions QueryKind = 8
	// QueryPin: holds the database's present state; one row with Pin and Seq.
	// Queries that carry the Pin see that state, until QueryUnpin or a minute
	// without use.
	QueryPin QueryKind = 9
	// QueryUnpin: releases a Pin; no rows.
	QueryUnpin QueryKind = 10
	// QueryView: rows of the view View.Name of Collection, in order of their
	// keys, each with View filled.
	QueryView QueryKind = 20
	// QueryViewInfo: a row with ViewInfo for each view of the database, or of
	// Collection, or for View.Name alone; by collection and name.
	QueryViewInfo QueryKind = 21
	// QueryRefresh: brings the view up to date, building it if need be; no rows.
	QueryRefresh QueryKind = 22
	// QueryFind: documents that Find's selector means, then one row with Found.
	QueryFind QueryKind = 30
)

// Parts says which parts of a document a row must carry; id, revision,
// sequence and deletion are always there.
type Parts uint8

const (
	// WithBody asks for Body and Attachments.
	WithBody Parts = 1 << iota
	// WithConflicts asks for Conflicts.
	WithConflicts
	// WithAncestors asks for Ancestors.
	WithAncestors
)

// Query is a read, as data.
type Query struct {
	Kind       QueryKind
	DB         string
	Collection string
	IDs        []ID
	Revs       []Rev
	// Start and End bound a scan by encoded keys: Start is included, End is
	// not; "" is open.
	Start, End string
	Reverse    bool
	Skip       int
	Limit      int // 0: no limit
	Parts      Parts
	Deleted    bool // scans: deleted documents too; gets: a deleted winner is no miss
	// MinSeq makes the query wait until the state it sees includes this
	// sequence.
	MinSeq Seq
	Seq    Seq
	Time   time.Time
	Pin    uint64
	View   *ViewQuery // for the queries of views
	Find   *FindQuery // for QueryFind
}

// Row is one element of an answer. Slices in it are valid until the next row.
type Row struct {
	Document
	// Missing: there is no such live document (or revision). Deleted then
	// tells whether there was one.
	Missing bool
	DB      *DBInfo
	Tx      *Transaction
	Pin     uint64
	// View is a view's row. The Document beside it is the one asked for, or
	// has only the ID; Missing then says that it is not there.
	View     *ViewRow
	ViewInfo *ViewInfo
	Found    *FindSummary // the last row of a QueryFind
}

// FeedMode says what a Feed does at the end of what there is.
type FeedMode uint8

const (
	// FeedOnce ends.
	FeedOnce FeedMode = 0
	// FeedWait waits if it has shown nothing yet, and ends after the next
	// changes: a long poll.
	FeedWait FeedMode = 1
	// FeedLive goes on for ever.
	FeedLive FeedMode = 2
)

// SeqNow as Feed.Since means: from the present end on.
const SeqNow = ^Seq(0)

// Feed asks for changes in order: a row a document, at its latest change. It
// never shows a change that a crash could take back, and, resumed from any
// sequence it gave, misses none.
type Feed struct {
	DB         string
	Collection string // "" means all collections of the database
	Since      Seq    // changes after this one
	Descending bool   // from the newest; only with FeedOnce
	Limit      int    // 0: no limit
	Mode       FeedMode
	Parts      Parts
	IDs        []ID // only these documents; needs Collection
	// Marks asks for a Change with Mark set, and nothing else but Seq, each
	// time the feed has caught up: what was filtered out need not be read again.
	Marks bool
	// Live makes the feed one of a selector's documents; needs Collection.
	Live *LiveQuery
	// View has the feed show the rows of a view of Collection instead of
	// documents: see ViewFeed.
	View *ViewFeed
}

// Change is one element of a Feed. Slices in it are valid until the next one.
type Change struct {
	Collection string
	Document
	Mark bool
	// Event of a feed with Live.
	Event LiveEvent
	View  *ViewChange // in a feed of a view
}
