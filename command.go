package osier

import "time"

// OpKind says what an Op does. The list only grows.
type OpKind uint8

const (
	// OpCreateDB creates the command's database; it must be the only operation.
	OpCreateDB OpKind = 1
	// OpDropDB deletes the command's database; it must be the only operation.
	OpDropDB OpKind = 2
	// OpCollection creates a collection or changes its settings.
	OpCollection OpKind = 3
	// OpDropCollection deletes a collection and all in it.
	OpDropCollection OpKind = 4
	// OpPut makes a new revision of a document.
	OpPut OpKind = 5
	// OpGraft takes a foreign revision with its ancestry (new_edits=false in
	// CouchDB's words). It never conflicts: it adds a leaf or finds it known.
	OpGraft OpKind = 6

	// OpJournal creates a journal or changes its settings.
	OpJournal OpKind = 50
	// OpDropJournal deletes a journal and all in it.
	OpDropJournal OpKind = 51
	// OpAppend adds events to a journal, which is made if there is none.
	OpAppend OpKind = 52
	// OpTrim drops a journal's oldest events.
	OpTrim OpKind = 53
	// OpPublish sends a message to a topic once the command is committed.
	OpPublish OpKind = 60
	// OpEnforceView puts the Eager or Unique view of that name in force, or, if
	// its rows break the rule, marks it failed.
	OpEnforceView OpKind = 10
	// OpDropView drops the index of a view that a program declared.
	OpDropView OpKind = 11
	// OpPurge takes the leaf Rev of a document back, with what leads to no
	// other leaf: as if it had never been there, with no deletion for replicas
	// to learn of. Feeds do not show it. KindNotFound if Rev is no leaf. Like
	// OpPrune it must be the command's only operation on its document.
	OpPurge OpKind = 70
	// OpPrune drops the bodies of a document's earlier versions that the
	// collection's history keeps.
	OpPrune OpKind = 71
)

// Expect is what an OpPut demands of the document's present state.
type Expect uint8

const (
	// ExpectAny writes over whatever is there.
	ExpectAny Expect = 0
	// ExpectAbsent wants no live document of that id; a deleted one is continued,
	// but not by another deletion.
	ExpectAbsent Expect = 1
	// ExpectRev wants Op.Rev to be a leaf: the winner, or a losing branch,
	// which is then extended.
	ExpectRev Expect = 2
	// ExpectPresent wants a live document of that id.
	ExpectPresent Expect = 3
	// ExpectLiveRev is ExpectRev, and the leaf must not be a deletion.
	ExpectLiveRev Expect = 4
)

// Op is one operation of a Command.
type Op struct {
	Kind       OpKind
	Collection string
	// ID of the document. A zero ID in an OpPut is filled when the command is
	// sealed.
	ID     ID
	Expect Expect
	Rev    Rev // for ExpectRev
	// Path of an OpGraft: the revision, its parent, and so on, newest first.
	Path []Rev

	Deleted bool // the new revision is a deletion
	Codec   CodecTag
	Schema  uint32
	Body    []byte
	// KeepBody takes the parent revision's body, codec and schema instead.
	KeepBody bool
	// Attachments of the new revision, in the request's order.
	Attachments []AttachmentRef
	// KeepAttachments also carries over those of the parent that are not
	// named; otherwise they are gone from the new revision.
	KeepAttachments bool

	Settings *Settings // for OpCollection
	KV       *KVOp     // for OpKV and its like

	// Journal is for operations on journals, whose Collection is the journal's
	// JournalResource.
	Journal *JournalOp
	// Topic is for OpPublish, whose Collection is the topic's TopicResource.
	Topic *TopicOp

	View string // for OpEnforceView and OpDropView: of Collection
}

// AttachmentRef sets, keeps or removes one attachment of a new revision.
type AttachmentRef struct {
	Name        string
	ContentType string
	Staged      BlobID // bytes put down with Backend.Stage; zero with Stub or Remove
	Stub        bool   // keep the parent's attachment of that name
	Remove      bool   // drop the parent's, with KeepAttachments
	// RevPos: for Stub, the generation the caller believes it was set at (0:
	// not checked); for OpGraft the position it had where it came from.
	RevPos uint64
}

// Durability says what an answered command survives.
type Durability uint8

const (
	// DurabilityDefault is the store's own setting, Sync if it has none.
	DurabilityDefault Durability = 0
	// Sync: on disk, fsynced, before the answer. Survives a power loss. All who
	// wait share one fsync.
	Sync Durability = 1
	// Buffered: handed to the operating system before the answer, fsynced
	// within the store's interval. Survives kill -9, not a power loss.
	Buffered Durability = 2
	// Relaxed: written behind within the store's interval. A kill -9 may take
	// back the last interval's commands, whole ones, in order from the end.
	Relaxed Durability = 3
)

// Read is a precondition of a transaction: the document ID, or, with a zero
// ID, the ids from Start up to but not including End (an empty End is
// unbounded) have not changed since the command's Snapshot. An empty
// Collection means that no document in the database has. No collection may have
// been dropped either; see Command.Drops. With a journal's
// JournalResource as Collection it says that the journal's last position is
// Start, in binary form; zero if there is no journal.
type Read struct {
	Collection string
	ID         ID
	Start, End string  // encoded keys
	KV         *KVRead // instead of all above
}

// Command is a change, as data. It names what must hold and what is to be
// written; carrying it out needs nothing else but the present state.
type Command struct {
	DB  string
	Ops []Op
	// PerDocument lets each operation succeed or fail by itself within one
	// commit; otherwise the first failure undoes all.
	PerDocument bool
	// Snapshot, Drops and Reads: what a transaction saw and builds on. Drops is the
	// DBInfo's in that state.
	Snapshot Seq
	Drops    uint64
	Reads    []Read
	// Session and Number identify the command for retries: a second one with
	// the same gets the first one's answer and changes nothing. An empty
	// Session opts out.
	Session    string
	Number     uint64
	Durability Durability
	// Sealed is filled by the ordering backend: after that, nothing in a
	// command depends on clock or chance.
	Sealed Seal
}

// Seal holds what was decided when the command was put in order.
type Seal struct {
	Time time.Time // to the millisecond
	UUID UUID      // identity of a database being created
	// KVVersion is the version of the first operation on key-values; each
	// further one takes the next.
	KVVersion uint64
	// Micros is the same moment in microseconds since 1970, for the positions
	// of events; 0 unless the command has any. It is later than every position
	// that its journals have given out.
	Micros int64
	// Views are rows that functions of eager views have made.
	Views []SealedRows
}

// SealedRows are the rows that the function of an eager view made of a
// document's body: of the body of operation Op if Rev is zero, else of the
// revision Rev.
type SealedRows struct {
	Collection string
	View       string
	Version    uint64
	ID         ID
	Op         int
	Rev        Rev
	Codec      CodecTag
	Rows       []SealedRow
	Failure    string // why there are none
}

// SealedRow is a row with its encoded key and its value in JSON.
type SealedRow struct{ Key, Value []byte }

// Result is the answer to a Command.
type Result struct {
	// First and Last are the run of sequences the changes took; both are the
	// database's present sequence if nothing changed.
	First, Last Seq
	Time        time.Time
	Ops         []OpResult // one an operation, in order
}

// OpResult is the outcome of one operation.
type OpResult struct {
	ID  ID
	Rev Rev
	Seq Seq
	Err *Error // only with PerDocument
	KV  *KVResult

	Journal *JournalResult // of an OpAppend
}
