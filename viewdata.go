package osier

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// ViewsCollection is the reserved collection whose documents define field views
// and JSON indexes, each under its view's name. Writing to it needs MayManage.
const ViewsCollection = "_views"

// UpdatePolicy says when a view is brought up to date. The list only grows.
type UpdatePolicy uint8

const (
	// OnDemand: when it is asked, before it answers. The default.
	OnDemand UpdatePolicy = 0
	// Eager: within the transaction that changes a document.
	Eager UpdatePolicy = 1
	// Unique is Eager with at most one row a key: a write that would make a
	// second one fails with ErrNotUnique, naming the view, the key and both
	// documents.
	Unique UpdatePolicy = 2
	// AfterAnswer: it answers as it is and is brought up to date afterwards.
	AfterAnswer UpdatePolicy = 3
	// Never: it answers as it is; only its first build, RefreshView and a
	// Keep bring it up to date.
	Never UpdatePolicy = 4
)

var policyNames = [...]string{OnDemand: "on-demand", Eager: "eager", Unique: "unique", AfterAnswer: "after", Never: "never"}

// String returns the policy's name in definitions.
func (p UpdatePolicy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return "unknown"
}

// ParseUpdatePolicy reads what String writes; "" is OnDemand.
func ParseUpdatePolicy(s string) (UpdatePolicy, error) {
	for i, name := range policyNames {
		if s == name {
			return UpdatePolicy(i), nil
		}
	}
	if s == "" {
		return OnDemand, nil
	}
	return 0, invalid("read update policy", `want "on-demand", "eager", "unique", "after" or "never", not "`+s+`"`)
}

// Keep has the engine bring a view up to date in the background, so that who
// asks need not wait: when it is Changes behind (0: 1000) or when a change is
// After old (0: a second). The zero Keep does nothing.
type Keep struct {
	Changes int
	After   time.Duration
}

// Freshness is what a query asks of a view beyond its policy.
type Freshness uint8

const (
	// AsDeclared follows the view's policy.
	AsDeclared Freshness = 0
	// Fresh brings the view up to date first, whatever its policy.
	Fresh Freshness = 1
	// Stale answers from what there is.
	Stale Freshness = 2
	// StaleThenUpdate answers from what there is, and has it updated.
	StaleThenUpdate Freshness = 3
)

// GroupAll groups by the whole key.
const GroupAll = -1

// ViewQuery is what a Query asks of a view. The Query's Start and End bound the
// keys, Reverse, Skip, Limit, MinSeq and Pin mean what they always do, and Parts
// asks for the documents.
type ViewQuery struct {
	Name string
	// Keys are encoded keys whose rows are wanted, in this order; with it Start
	// and End mean nothing.
	Keys []string
	// Reduce asks for one row with the reduced value, or, with Group, a row for
	// each group of equal first Group fields (GroupAll: of equal keys).
	Reduce bool
	Group  int
	// Count asks for one row with the number of rows.
	Count     bool
	Freshness Freshness
	// After continues behind a row (RowCursor of it), or, with Group, behind a
	// group.
	After string
	// Link says which documents Parts asks for.
	Link Link
	// FailOnError refuses to answer while there are documents that the view's
	// function failed on.
	FailOnError bool
	// Pending are a transaction's own writes, seen as if they were committed.
	Pending []Op
}

// Link says which documents go with a view's rows.
type Link uint8

const (
	// LinkSource: those that the rows come from.
	LinkSource Link = 0
	// LinkValue: those of the same collection whose ids are the rows' values, a
	// string or a number, or the _id of a value that is an object.
	LinkValue Link = 1
	// LinkKey: those of the same collection whose ids are the rows' keys.
	LinkKey Link = 2
)

// ViewRow is a row of a view. Its slices are valid until the next row.
type ViewRow struct {
	Key   []byte // encoded; of a group, its first fields
	ID    ID     // of the document that it comes from
	N     uint16 // among the document's rows of that key
	Value []byte // JSON; empty is null
	Count uint64 // of a reduced row: how many rows it stands for
	At    int    // which of the query's Keys it belongs to
}

// ViewCursor is a place in an answer, behind a row.
type ViewCursor struct {
	At  int
	Key string // encoded
	ID  ID     // zero: behind a group
	N   uint16
}

const cursorVersion = 1

// Cursor returns the place behind the row, as text for ViewQuery.After.
func (r *ViewRow) Cursor() string {
	c := ViewCursor{At: r.At, Key: string(r.Key), ID: r.ID, N: r.N}
	return c.encode()
}

func (c *ViewCursor) encode() string {
	b := binary.AppendUvarint([]byte{cursorVersion}, uint64(c.At))
	b = append(binary.AppendUvarint(b, uint64(len(c.Key))), c.Key...)
	b = binary.BigEndian.AppendUint16(b, c.N)
	return base64.RawURLEncoding.EncodeToString(append(b, c.ID.key...))
}

// ParseViewCursor reads what Cursor writes. Any text is safe to give it; one
// that is no cursor is an error of KindInvalid.
func ParseViewCursor(s string) (ViewCursor, error) {
	var c ViewCursor
	bad := invalid("read cursor", "the text is no cursor")
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != cursorVersion {
		return c, bad
	}
	at, n := binary.Uvarint(b[1:])
	if n <= 0 || at > 1<<30 {
		return c, bad
	}
	b = b[1+n:]
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) || uint64(len(b)-n)-size < 2 {
		return c, bad
	}
	c.At, c.Key, b = int(at), string(b[n:n+int(size)]), b[n+int(size):]
	c.N = binary.BigEndian.Uint16(b)
	if b = b[2:]; len(b) > 0 {
		if c.ID, err = DecodeID(b); err != nil {
			return c, bad
		}
	}
	return c, nil
}

// ViewFeed asks for the rows of a view, of the keys from Start up to but not
// including End, as they change. Feeds of Since 0 begin with the rows there are,
// others with what has changed since; a Mark follows in either case.
//
// A change's Seq is where a feed can be resumed after it: 0 before all present
// rows have been shown, and for all but the last row of a document the one
// before. Rows of a document that changed while nobody watched are told as one
// ViewRemoved without a key, which stands for all rows that it had, and a
// ViewAdded for each that it has.
//
// The feed holds a state of the store while its rows are taken. Who takes them
// too slowly (a minute, or 65,536 documents behind) gets ErrGap, and resumes.
// ErrGap also ends a feed whose view was dropped or replaced.
type ViewFeed struct {
	Name       string
	Start, End string // encoded keys; empty: open
}

// ViewChangeKind says what happened to a row.
type ViewChangeKind uint8

const (
	// ViewAdded: the row is there.
	ViewAdded ViewChangeKind = 1
	// ViewChanged: it has another value.
	ViewChanged ViewChangeKind = 2
	// ViewRemoved: it is gone; Row has its key, and no value.
	ViewRemoved ViewChangeKind = 3
)

// String returns the kind in a word.
func (k ViewChangeKind) String() string {
	switch k {
	case ViewAdded:
		return "added"
	case ViewChanged:
		return "changed"
	case ViewRemoved:
		return "removed"
	}
	return "unknown"
}

// ViewChange is a change of a view's row.
type ViewChange struct {
	Kind ViewChangeKind
	Row  ViewRow
}

// ViewState is the state of a view's index.
type ViewState uint8

const (
	// ViewBuilding: it is being built, or waits to be.
	ViewBuilding ViewState = 1
	// ViewReady: it answers.
	ViewReady ViewState = 2
	// ViewFailed: it cannot be built; Failure says why.
	ViewFailed ViewState = 3
	// ViewUndeclared: it needs a function that this program has not declared.
	ViewUndeclared ViewState = 4
)

// String returns the state in a word.
func (s ViewState) String() string {
	switch s {
	case ViewBuilding:
		return "building"
	case ViewReady:
		return "ready"
	case ViewFailed:
		return "failed"
	case ViewUndeclared:
		return "undeclared"
	}
	return "unknown"
}

// ViewInfo describes a view.
type ViewInfo struct {
	Name       string
	Collection string
	Type       string // "fields", "json" or "go"
	Definition []byte // JSON, of a view that a document defines
	Version    uint64 // of a Go view
	Policy     UpdatePolicy
	Reduce     string // "" none; "own" for a function
	State      ViewState
	Failure    string // of a failed view
	Rows       uint64
	Seq        Seq    // what it has reached
	Behind     uint64 // changes it has not seen
	DiskBytes  uint64
	// Failed counts the documents that its function failed on; Failures shows
	// the first of them.
	Failed   uint64
	Failures []ViewFailure
	// Build is set while an index is being built.
	Build *ViewBuild
}

// ViewFailure is a document that a view's function failed on.
type ViewFailure struct {
	ID      ID
	Message string
}

// ViewBuild is how far a build has come.
type ViewBuild struct {
	Done, Total uint64 // documents
	PerSecond   float64
	Left        time.Duration // an estimate; 0: unknown
	Rows        uint64
}

// ViewCode is a view with a function, as a Backend takes it.
type ViewCode struct {
	Collection string
	Name       string
	Version    uint64
	Policy     UpdatePolicy
	Keep       Keep
	// Map emits a document's rows: encoded keys and values in JSON. The slices
	// given to emit are free afterwards.
	Map func(d *Document, emit func(key, value []byte)) error
	// Reduce is the name of a built-in reduce, or "own" for Reducer's, or "".
	Reduce  string
	Reducer ViewReducer
}

// ViewReducer is a reduce of the program's own over values and results in JSON.
type ViewReducer interface {
	Reduce(values [][]byte) ([]byte, error)
	Rereduce(results [][]byte) ([]byte, error)
}

// viewDeclarer is what a Backend has beside its verbs if it runs views'
// functions in its own process.
type viewDeclarer interface {
	// DeclareView makes a function known, until the Backend is closed. A view
	// with another version than its index has is built anew. It returns when an
	// Eager or Unique view is in force.
	DeclareView(ctx context.Context, db string, v *ViewCode) error
}
