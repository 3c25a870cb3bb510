package osier

// Operations of key-values. The list only grows.
const (
	// OpKV carries out Op.KV.
	OpKV OpKind = 30
	// OpKVBehind writes down what relaxed operations have made of keys in
	// memory (KVOp.Packed). Only the backend that holds them makes one.
	OpKVBehind OpKind = 31
	// OpKVExpire removes KVOp.Key if it still has the deadline KVOp.Deadline
	// and that has passed. Background expiry is made of these.
	OpKVExpire OpKind = 32
	// OpKVDrop deletes the namespace and all in it.
	OpKVDrop OpKind = 33
)

// Queries of key-values. The list only grows.
const (
	// QueryKVGet: the plain values under KV.Keys, a row each, in that order.
	QueryKVGet QueryKind = 40
	// QueryKVScan: keys from KV.Start to KV.End in byte order, with values.
	QueryKVScan QueryKind = 41
	// QueryKVCount: one row with KV.Count, the keys of the namespace.
	QueryKVCount QueryKind = 42
	// QueryKVRead: what KV.Read asks of the structures under KV.Keys: a row an
	// element, or one row with KV.Count.
	QueryKVRead QueryKind = 43
	// QueryKVTry: one row with KV.Result, what the last of KV.Pending would
	// give. Nothing is changed.
	QueryKVTry QueryKind = 44
	// QueryKVNamespaces: a row with KV.Key and KV.Count for each namespace.
	QueryKVNamespaces QueryKind = 45
)

// KVVerb says what a KVOp does. The list only grows.
type KVVerb uint8

// The verbs. Those on lists, hashes, sets and sorted sets make the structure
// if the key is vacant, and remove the key with the last element.
const (
	KVSet      KVVerb = 1 // Value
	KVDelete   KVVerb = 2
	KVExpire   KVVerb = 3 // TTL or Deadline
	KVPersist  KVVerb = 4
	KVAddInt   KVVerb = 5 // Number: an int64
	KVAddUint  KVVerb = 6 // Number: a uint64; with Negative it is taken off
	KVAddFloat KVVerb = 7 // Number: the bits of a float64
	KVAppend   KVVerb = 8 // Value

	KVListPush   KVVerb = 20 // Items' Values, one after the other, at the Front or the back
	KVListPop    KVVerb = 21 // up to Count, from the Front or the back
	KVListTrim   KVVerb = 22 // keeps Range.From to Range.To
	KVListSet    KVVerb = 23 // element Range.From becomes Value
	KVListRemove KVVerb = 24 // elements equal to Value: Count from the front, -Count from the back, 0: all

	KVHashSet      KVVerb = 30 // Items' Names and Values
	KVHashDelete   KVVerb = 31 // Items' Names
	KVHashAddInt   KVVerb = 32 // field Items[0].Name, Number
	KVHashAddFloat KVVerb = 33
	KVHashInsert   KVVerb = 34 // as KVHashSet, for fields that are not there

	KVSetAdd    KVVerb = 40 // Items' Names
	KVSetRemove KVVerb = 41

	KVSortedAdd         KVVerb = 50 // Items' Names and Scores
	KVSortedRemove      KVVerb = 51 // Items' Names
	KVSortedAddScore    KVVerb = 52 // Items[0]: the score is added
	KVSortedPop         KVVerb = 53 // up to Count, lowest first, or highest with Reverse
	KVSortedRemoveRange KVVerb = 54 // by Range

	KVLeaseAcquire KVVerb = 60 // Value names the holder, TTL or Deadline
	KVLeaseRenew   KVVerb = 61 // Number is the token, TTL or Deadline
	KVLeaseRelease KVVerb = 62 // Number is the token
)

// KVIf is a condition on the key's present state; unmet, it is ErrConflict.
type KVIf uint8

const (
	// IfAny: no condition.
	IfAny KVIf = 0
	// IfVacant: there is no such key.
	IfVacant KVIf = 1
	// IfPresent: there is one.
	IfPresent KVIf = 2
	// IfEqual: it holds a plain value equal to IfValue.
	IfEqual KVIf = 3
	// IfVersion: it is at version IfVersion; 0 means vacant.
	IfVersion KVIf = 4
)

// Overflow says what an addition does at the ends of its type.
type Overflow uint8

const (
	// Saturate stops at the largest or smallest number.
	Saturate Overflow = 0
	// Wrap goes on at the other end; integers only.
	Wrap Overflow = 1
	// Fail is ErrInvalid and changes nothing.
	Fail Overflow = 2
)

// KVType is what a key holds.
type KVType uint8

// The types. KVNone is a vacant key.
const (
	KVNone    KVType = 0
	KVPlain   KVType = 1
	KVLists   KVType = 2
	KVHashes  KVType = 3
	KVSets    KVType = 4
	KVSorteds KVType = 5
	KVLeases  KVType = 6
)

// String names the type.
func (t KVType) String() string {
	names := [...]string{"nothing", "a plain value", "a list", "a hash", "a set", "a sorted set", "a lease"}
	if int(t) < len(names) {
		return names[t]
	}
	return "an unknown type"
}

// KVItem is an element: a key with its value, a hash's field, a set's member, a
// sorted set's member with its score, or (Value alone) an element of a list.
type KVItem struct {
	Name  string
	Value []byte
	Score float64
}

// KVRange picks elements of a list or a sorted set. By default it is by rank:
// From and To are positions, both included, negative ones counted from the end.
// With ByScore it is by score, Min to Max.
type KVRange struct {
	From, To    int64
	ByScore     bool
	Min, Max    float64
	WithoutMin  bool // Min itself does not belong to it
	WithoutMax  bool
	Reverse     bool // from the last or highest one
	Skip, Limit int64
}

// KVOp is one operation on a key, as data. Its effect is a function of the
// key's state, the operation, and what sealing fixed: time and version.
type KVOp struct {
	Namespace string
	Key       string
	Verb      KVVerb
	If        KVIf
	IfVersion uint64
	IfValue   []byte

	Value    []byte
	Items    []KVItem
	Number   uint64
	Negative bool
	Overflow Overflow
	Front    bool
	Count    int64
	Range    KVRange
	// TTL in milliseconds from now; sealing turns it into Deadline.
	TTL int64
	// Deadline in milliseconds since 1970, 0: none. From that millisecond on
	// the key is gone.
	Deadline int64
	// Keep: KVSet leaves the present deadline as it is.
	Keep bool
	// Previous asks for the value that was there.
	Previous bool
	// Packed is the content of an OpKVBehind.
	Packed []byte
}

// KVResult is the outcome of a KVOp.
type KVResult struct {
	Found    bool   // the key was there before
	Version  uint64 // the key's version now, 0 if it is vacant
	Deadline int64  // the key's deadline now
	Type     KVType
	// Value is the previous value if asked for, after an addition or KVAppend
	// the new one.
	Value []byte
	// Number is the new number after an addition, as KVOp.Number; a lease's token;
	// the bits of the new score after KVSortedAddScore.
	Number uint64
	// Count is how many elements were added, removed or changed; after
	// KVListPush, KVAppend and KVListTrim the new length.
	Count int64
	Items []KVItem // what was popped
}

// KVReadKind says what a QueryKVRead asks for. The list only grows.
type KVReadKind uint8

// The kinds of reads. Of a vacant key there are no elements.
const (
	KVReadLen       KVReadKind = 1  // the number of elements of Keys[0]
	KVReadRange     KVReadKind = 2  // of a list or sorted set, by Range
	KVReadFields    KVReadKind = 3  // of a hash: Names, a row each, or all without Names
	KVReadMembers   KVReadKind = 4  // of a set: all
	KVReadHas       KVReadKind = 5  // of a set: Names, a row each
	KVReadIntersect KVReadKind = 6  // of all Keys, sets
	KVReadUnion     KVReadKind = 7  // of all Keys
	KVReadDiff      KVReadKind = 8  // of Keys[0] without the others
	KVReadScore     KVReadKind = 9  // of a sorted set: Names, a row each
	KVReadRank      KVReadKind = 10 // of a sorted set: Names[0], one row with Count; reverse by Range
	KVReadCount     KVReadKind = 11 // of a sorted set: how many by Range's scores
	KVReadHead      KVReadKind = 12 // type, version and deadline of Keys, a row each
)

// KVQuery are the particulars of a query of key-values.
type KVQuery struct {
	Namespace  string
	Keys       []string
	Start, End string // Start is included, End is not; "" is open
	Read       KVReadKind
	Names      []string
	Range      KVRange
	NoValues   bool // scans: keys and versions only
	// Pending operations are carried out first, on a copy of the state that is
	// given up afterwards: a transaction sees its own.
	Pending []KVOp
}

// KVRow is an answer's row. Its slices are valid until the next one.
type KVRow struct {
	Missing  bool // no such key, field or member
	Key      string
	Type     KVType
	Version  uint64
	Deadline int64 // milliseconds since 1970; 0: none
	Item     KVItem
	Count    int64
	Result   *KVResult
	// Base is the version of the key before KVQuery.Pending.
	Base uint64
}

// KVRead is a precondition of a transaction on key-values. With a Key, it is at
// Version (0: vacant). Without, the keys from Start to End give Digest, or, with
// Whole, the newest version in the namespace is Version.
type KVRead struct {
	Namespace  string
	Key        string
	Version    uint64
	Whole      bool
	Start, End string
	Digest     uint64
}

// KVFeed turns a Feed to key-values: the keys of a namespace that begin with
// Prefix, or, with Key, that one. Such a feed begins now, has no Since, and
// lives until the reader ends it (FeedLive) or has got something (FeedWait).
//
// A row shows the newest state of a key when no crash can take it back. Of a
// key that changed several times within one commit only the last state is
// shown: relaxed operations are written behind, so of theirs a feed shows what
// each interval ended with. Rows are in order of versions within a commit and
// in order of commits. What a reader has not taken is kept up to KVFeedRows
// rows; beyond that the feed ends with ErrGap.
type KVFeed struct {
	Namespace string
	Key       string
	Prefix    string
}

// KVFeedRows is how many rows a feed of key-values keeps for a slow reader.
const KVFeedRows = 4096

// KVChange is what happened to a key.
type KVChange struct {
	Key      string
	Version  uint64
	Type     KVType // KVNone: the key is gone
	Expired  bool   // gone by its deadline
	Deadline int64
	Value    []byte // of a plain value
}

// NamespaceInfo describes a namespace of key-values.
type NamespaceInfo struct {
	Name string
	Keys uint64
}
