package osier

import "time"

// Document is one version of a document as it is stored.
type Document struct {
	ID      ID
	Rev     Rev
	Seq     Seq       // the change that wrote this version
	Time    time.Time // when it was written, to the millisecond
	Deleted bool
	Codec   CodecTag // how Body is encoded
	Schema  uint32   // the schema version it was written with
	// Body is the encoded document. In a stream of rows it is valid until the
	// next row; Clone what is kept. A version whose body is not kept any more
	// (or was not asked for) has a nil Body; a deletion may have one or not.
	Body        []byte
	Attachments []Attachment
	// Conflicts are the other leaves of the document's revision tree: live
	// ones first, each in descending order. Filled when asked for.
	Conflicts []Leaf
	// Ancestors are the revisions this one came from, newest first, as far as
	// they are kept. Filled when asked for.
	Ancestors []Rev
}

// Clone returns a copy that stays valid.
func (d *Document) Clone() *Document {
	c := *d
	if d.Body != nil {
		c.Body = append([]byte{}, d.Body...)
	}
	return &c
}

// Leaf is an end of a branch of a revision tree.
type Leaf struct {
	Rev     Rev
	Deleted bool
}

// BlobID names an attachment's stored bytes within its database.
type BlobID [16]byte

// IsZero reports whether b names nothing.
func (b BlobID) IsZero() bool { return b == BlobID{} }

// Attachment is a named piece of bytes that belongs to a version of a document.
type Attachment struct {
	Name        string
	ContentType string
	Size        uint64
	MD5         [16]byte // of the bytes; what CouchDB shows as the digest
	SHA256      [32]byte // of the bytes; by it equal attachments of a document are stored once
	RevPos      uint64   // the generation that last set it
	Blob        BlobID
}

// Doc is a document with its body decoded.
type Doc[T any] struct {
	ID          ID
	Rev         Rev
	Seq         Seq
	Time        time.Time
	Deleted     bool
	Value       T
	Attachments []Attachment
	Conflicts   []Leaf
}

// History says how many versions of a document, besides the present ones, keep
// their bodies: 0 none, n > 0 the last n, KeepAll all of them.
type History int32

// KeepAll keeps the body of every version.
const KeepAll History = -1

// DefaultRevLimit is how many ancestors' revisions (not bodies) a document
// keeps unless its collection says otherwise; CouchDB's default.
const DefaultRevLimit = 1000

// Settings of a collection. They are stored with it; every Backend sees them.
type Settings struct {
	Codec    CodecTag // for new documents; each stored body carries its own
	History  History
	RevLimit uint32 // 0: DefaultRevLimit
	Schema   uint32 // the newest schema version
}

// DefaultCollection is the one that a database's bare name means.
const DefaultCollection = "_default"

// CollectionInfo describes a collection. Counting costs O(1).
type CollectionInfo struct {
	Name      string
	Settings  Settings
	Count     uint64 // live documents
	Deleted   uint64 // documents whose winning revision is a deletion
	BodyBytes uint64 // bytes of the winning revisions' bodies
	DiskBytes uint64 // an estimate of what the collection takes on disk
	LastSeq   Seq    // its latest change
}

// DBInfo describes a database.
type DBInfo struct {
	Name        string
	UUID        UUID
	Created     time.Time
	LastSeq     Seq    // the latest change
	DurableSeq  Seq    // the latest change that no crash can take back
	Drops       uint64 // collections dropped so far, which takes no sequence
	DiskBytes   uint64
	Collections []CollectionInfo
	Namespaces  []NamespaceInfo // of key-values
	Journals    []JournalInfo   // by name
}

// Transaction is a command that was carried out.
type Transaction struct {
	First, Last Seq // the run of sequences it took
	Time        time.Time
	Session     string
	Number      uint64
	Changes     []TransactionChange
}

// TransactionChange is one document's change within a Transaction.
type TransactionChange struct {
	Collection string
	ID         ID
	Rev        Rev
	Seq        Seq
	Deleted    bool
}
