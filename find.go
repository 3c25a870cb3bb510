package osier

import (
	"errors"
	"time"

	"github.com/osierdb/osier/internal/mango"
)

// SortField is a field to sort by: its path, dotted as in selectors, and the
// direction.
type SortField struct {
	Path       string
	Descending bool
}

// Asc sorts by a field, null first, then false, true, numbers, strings (in the
// order of the Unicode Collation Algorithm), arrays, objects.
func Asc(path string) SortField { return SortField{Path: path} }

// Desc sorts by a field the other way round.
func Desc(path string) SortField { return SortField{Path: path, Descending: true} }

// IndexGroupMark stands in an index's name between the group it belongs to (in
// CouchDB's words its design document) and its own name.
const IndexGroupMark = "$$"

// DefaultSortBytes is how much memory a sort without an index takes before it
// goes on in a temporary file.
const DefaultSortBytes = 32 << 20

// FindQuery is what a QueryFind asks for, as data. Query's Collection, Skip,
// Limit, Parts (WithBody and WithConflicts), MinSeq and Pin belong to it; Start,
// End, Reverse and Deleted do not.
//
// Documents that the selector means come in the order of Sort, documents that
// are equal by it in the order of their ids; without Sort in the order in which
// they are found: of their ids, or of the index that was chosen.
type FindQuery struct {
	// Selector is a JSON object; empty means {}, everything. Bodies in other
	// codecs are seen in their JSON form. Fields _id, _rev and _attachments are
	// what CouchDB shows; an _id that is no string is seen in its text form.
	Selector []byte
	// Swap says that Selector is a SwapQuery.
	Swap bool
	// Fields are paths to project bodies on: bodies then are JSON objects with
	// these fields only. Empty: bodies as they are stored.
	Fields []string
	// PassOver leaves out documents whose ids are strings that begin so, as
	// CouchDB leaves out design documents. Empty: none.
	PassOver string
	// Sort by these fields. A field that a document does not have sorts first.
	Sort []SortField
	// SortedOnly leaves documents out that lack one of Sort's fields, as CouchDB
	// does. It lets an index on them serve, whatever the selector asks for.
	SortedOnly bool
	// SortByIndex refuses a sort whose fields no usable index begins with, behind
	// fields with one value, as CouchDB does ("no_usable_index"). Such an index
	// need not be the one that is read.
	SortByIndex bool
	// Bookmark of an earlier answer to the same query: rows go on behind the last
	// one of it, also when there have been writes in between.
	Bookmark string
	// UseIndex is the name of the index to be used if it can be, waiting until it
	// is built; "_id" means none. Ending with IndexGroupMark it stands for all
	// indexes of that group. Empty: the planner chooses. Only an index that is
	// asked for may be a partial one whose filter the selector does not imply:
	// what the filter leaves out is not found then, and Warning says so.
	UseIndex string
	// Strict makes it an error if UseIndex cannot be used.
	Strict bool
	// Stale answers from indexes as they are, without bringing them up to date.
	Stale bool
	// SortBytes bounds the memory of a sort; 0: DefaultSortBytes.
	SortBytes int64
	// FailOnError ends the query with an error at a document that has no JSON
	// form; otherwise such documents are left out and counted.
	FailOnError bool
	Explain     Explain
	// NoSummary: the reader does without the FindSummary. A Backend may send it
	// all the same; making it is a good part of what a look-up costs.
	NoSummary bool
}

// Explain says whether a QueryFind shows how it is carried out.
type Explain uint8

const (
	// ExplainNone: the summary has no plan.
	ExplainNone Explain = 0
	// ExplainOnly: there are no rows but the summary, which has the plan.
	ExplainOnly Explain = 1
	// ExplainRun: rows, and the plan in the summary.
	ExplainRun Explain = 2
)

// FindSummary is the end of an answer: it comes behind the last row.
type FindSummary struct {
	// Bookmark leads on behind the last row; empty if there was none at all.
	Bookmark string
	// Complete: there is nothing behind the last row. Otherwise the limit ended
	// the answer.
	Complete bool

	KeysExamined uint64 // rows of an index that were looked at
	DocsExamined uint64 // documents that the selector was tried on
	Rows         uint64 // rows of the answer
	Failed       uint64 // documents without a JSON form, which were left out
	FirstFailed  string // the id of the first of these, in text form
	SpilledBytes uint64 // what a sort has written to temporary files
	Elapsed      time.Duration

	// Warning tells that UseIndex was not followed.
	Warning string
	Plan    *FindPlan // if it was asked for
}

// FindPlan says how a QueryFind is carried out, and why so.
type FindPlan struct {
	// Selector as it is understood: operators named, negations moved inwards,
	// a SwapQuery translated.
	Selector string
	// Index that is read; empty: the documents themselves, by id.
	Index       string
	IndexFields []SortField
	IndexFilter string // of a partial index
	// Ranges of the index (or ids) that are read; none: nothing can match.
	Ranges  []FindRange
	Reverse bool
	// Residual is what is tested on each document; empty: nothing has to be.
	Residual string
	// Sorts says that the answer is collected and sorted.
	Sorts bool
	// ExpectedKeys is how many index rows or documents will be read at most, and
	// ExpectedRows a guess at how many will match.
	ExpectedKeys, ExpectedRows uint64
	Why                        string
	Candidates                 []FindCandidate
}

// FindRange is a run of keys, in a form for people. An empty end is open.
type FindRange struct{ Low, High string }

// FindCandidate is a way that the planner weighed.
type FindCandidate struct {
	Index        string // empty: the documents by id
	Usable       bool
	Reason       string // why it is not usable, or what it costs
	ExpectedKeys uint64
	Cost         float64 // in units of one document read in order
}

// LiveQuery makes a Feed follow the documents that a selector means. The feed
// shows those that are there first, in order of their ids, each with LiveAdded,
// then every change that concerns them, in order. With Marks there is a mark
// between the two, and whenever the feed has caught up: what was shown before a
// mark is the state at its sequence.
//
// It resumes from the sequence of any mark, or of any change after the first
// mark. The first change of a document after that comes as LiveChanged if it
// matches and as LiveRemoved if it does not, unless it is known how it was: take
// LiveChanged for an addition if the document is new to you. When the collection
// is dropped, all that the reader has comes as LiveRemoved; a feed that resumes
// after that does not know of it, as a drop takes no sequence: compare
// DBInfo.Drops.
type LiveQuery struct {
	Selector []byte // as in FindQuery
	Swap     bool
	Fields   []string
	// MaxDocuments bounds how many matching documents the feed keeps in mind (some
	// 100 bytes each): more end it with KindTooLarge. 0: a million.
	MaxDocuments int
	// MaxBehind ends the feed with KindGap when its reader is that many changes
	// behind; it may resume. 0: the feed waits for its reader, at no cost.
	MaxBehind uint64
}

// LiveEvent says what a change means to a LiveQuery.
type LiveEvent uint8

const (
	// LiveAdded: the document matches, and did not before.
	LiveAdded LiveEvent = 1
	// LiveChanged: it matched before, and does so still.
	LiveChanged LiveEvent = 2
	// LiveRemoved: it matches no more; the change has no body.
	LiveRemoved LiveEvent = 3
)

// SelectorError says what is wrong with a selector, a sort, a list of fields or
// a find request, with the name and in the words in which CouchDB's answer has it
// as "error" and "reason". It is found in an Error's chain.
type SelectorError struct {
	Name   string // such as "invalid_operator"
	Reason string
	Op     string // the operator at fault, such as "$in"; empty if none is
	Place  string // in the JSON text, such as "$and[1].age.$in"
	Offset int    // of the faulty value in the JSON text
}

// Error implements error.
func (e *SelectorError) Error() string {
	if e.Place == "" {
		return e.Reason
	}
	return "at " + e.Place + ": " + e.Reason
}

// RefusedSelector makes a compiler's error about a selector, sort or projection
// an *Error of KindInvalid or, for a limit that was passed, KindTooLarge, with a
// SelectorError in it. Backends use it; nil stays nil.
func RefusedSelector(step string, err error) error {
	var m *mango.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &m):
		return &Error{Kind: KindInvalid, Op: step, Err: err}
	}
	kind := KindInvalid
	if m.Name == mango.ErrTooLarge {
		kind = KindTooLarge
	}
	return &Error{Kind: kind, Op: step, Err: &SelectorError{Name: m.Name, Reason: m.Reason, Op: m.Op, Place: m.Place, Offset: m.Offset}}
}
