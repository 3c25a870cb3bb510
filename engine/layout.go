package engine

import (
	"encoding/binary"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
)

// The key space, byte by byte; docs/format/store.md has it as a table. Numbers
// are big-endian, so that their order is the order of the keys; ids are in the
// self-delimiting form of package keys, so what follows them cannot be taken
// for a part of them.
const (
	keyNextDB    = 0x01 // -> the number the next database gets
	keyDirectory = 0x02 // name -> a database's number, identity and birth
	keyStaged    = 0x03 // db, blob -> attachment bytes that no document has yet
	keyHorizon   = 0x05 // -> no position of a journal is given out from there on
	keyDatabase  = 0x10 // db, collection, space, …: all else of a database
)

// Spaces of a database as a whole: they carry collection number 0.
const (
	spaceState      = 'm' // -> counters
	spaceCollection = 'c' // name -> a collection's number, settings, counts
	spaceTx         = 't' // first sequence -> an executed transaction
	spaceResult     = 'r' // session, number -> the answer given
	spaceResultRing = 'q' // ring number -> session, number: what to forget next
	spaceBlob       = 'b' // blob, chunk -> attachment bytes

	spaceJournal     = 'J' // name -> a journal's number, settings, counts
	spaceEvents      = 'j' // journal, position -> a block of events
	spaceJournalSide = 'o' // journal, part, … -> idempotency keys, blocks by expiry
	// 'k', 'l' and 'e' are key-values': see package kv.
)

// Spaces of a collection.
const (
	spaceDoc      = 'd' // id -> the document's record with the winner's body
	spaceAncestor = 'a' // id, revision -> an inner node of the revision tree
	spaceVersion  = 'v' // id, revision -> the body of a loser or of an earlier version
	spaceSeq      = 's' // sequence -> the document that took it last
	spaceDigest   = 'h' // id, SHA-256 -> the blob that a document's attachments share
	spacePurge    = 'u' // sequence -> the id of a document of which a leaf was purged
)

const prefixSize = 10 // class, database, collection, space

// prefix begins a key of a collection's space.
func prefix(dst []byte, db, coll uint32, space byte) []byte {
	dst = append(dst, keyDatabase)
	dst = binary.BigEndian.AppendUint32(dst, db)
	dst = binary.BigEndian.AppendUint32(dst, coll)
	return append(dst, space)
}

// databaseRange bounds all keys of a database.
func databaseRange(db uint32) (lower, upper []byte) {
	lower = binary.BigEndian.AppendUint32([]byte{keyDatabase}, db)
	return lower, keys.PrefixEnd(lower)
}

// collectionRange bounds all keys of a collection.
func collectionRange(db, coll uint32) (lower, upper []byte) {
	lower = prefix(nil, db, coll, 0)[:prefixSize-1]
	return lower, keys.PrefixEnd(lower)
}

// collSpace bounds the keys of a collection's space.
func collSpace(db, coll uint32, space byte) (lower, upper []byte) {
	lower = prefix(nil, db, coll, space)
	return lower, keys.PrefixEnd(lower)
}

func directoryKey(name string) []byte { return append([]byte{keyDirectory}, name...) }

func stateKey(db uint32) []byte { return prefix(nil, db, 0, spaceState) }

func collectionKey(db uint32, name string) []byte {
	return append(prefix(nil, db, 0, spaceCollection), name...)
}

func txKey(db uint32, first osier.Seq) []byte {
	return binary.BigEndian.AppendUint64(prefix(nil, db, 0, spaceTx), uint64(first))
}

func resultKey(db uint32, session string, number uint64) []byte {
	k := keys.AppendString(prefix(nil, db, 0, spaceResult), session)
	return binary.BigEndian.AppendUint64(k, number)
}

func resultRingKey(db uint32, n uint64) []byte {
	return binary.BigEndian.AppendUint64(prefix(nil, db, 0, spaceResultRing), n)
}

func blobKey(db uint32, blob osier.BlobID) []byte {
	return append(prefix(nil, db, 0, spaceBlob), blob[:]...)
}

func chunkKey(db uint32, blob osier.BlobID, n uint32) []byte {
	return binary.BigEndian.AppendUint32(blobKey(db, blob), n)
}

func stagedKey(db uint32, blob osier.BlobID) []byte {
	k := binary.BigEndian.AppendUint32([]byte{keyStaged}, db)
	return append(k, blob[:]...)
}

func docKey(dst []byte, db, coll uint32, id osier.ID) []byte {
	dst = slices.Grow(dst[:0], prefixSize+len(id.Key()))
	return append(prefix(dst, db, coll, spaceDoc), id.Key()...)
}

func seqKey(dst []byte, db, coll uint32, seq osier.Seq) []byte {
	return binary.BigEndian.AppendUint64(prefix(dst, db, coll, spaceSeq), uint64(seq))
}

func purgeKey(db, coll uint32, seq osier.Seq) []byte {
	return binary.BigEndian.AppendUint64(prefix(nil, db, coll, spacePurge), uint64(seq))
}

// revKey is the key of a revision's node or version.
func revKey(dst []byte, db, coll uint32, space byte, id osier.ID, rev osier.Rev) []byte {
	dst = append(prefix(dst, db, coll, space), id.Key()...)
	dst = binary.BigEndian.AppendUint64(dst, rev.Generation())
	return appendDigest(dst, rev)
}

// generationKey is the lower bound of an id's revisions of a generation.
func generationKey(db, coll uint32, space byte, id osier.ID, gen uint64) []byte {
	k := append(prefix(nil, db, coll, space), id.Key()...)
	return binary.BigEndian.AppendUint64(k, gen)
}

// revsRange bounds an id's nodes or versions.
func revsRange(db, coll uint32, space byte, id osier.ID) (lower, upper []byte) {
	lower = append(prefix(nil, db, coll, space), id.Key()...)
	return lower, keys.PrefixEnd(lower)
}

func digestKey(db, coll uint32, id osier.ID, sum [32]byte) []byte {
	k := append(prefix(nil, db, coll, spaceDigest), id.Key()...)
	return append(k, sum[:]...)
}

// appendDigest writes a digest's raw form behind its kind: 0 for 16 bytes, 1
// for a text.
func appendDigest(dst []byte, rev osier.Rev) []byte {
	if sum, ok := rev.Sum(); ok {
		return append(append(dst, 0), sum[:]...)
	}
	text, _ := rev.Digest()
	return append(append(dst, 1), text...)
}

// revOfKey reads the revision at the end of a node's or version's key, after
// the id.
func revOfKey(tail []byte) (osier.Rev, bool) {
	if len(tail) < 10 {
		return osier.Rev{}, false
	}
	gen := binary.BigEndian.Uint64(tail)
	switch {
	case tail[8] == 0 && len(tail) == 25:
		return osier.NewRev(gen, [16]byte(tail[9:])), true
	case tail[8] == 1:
		return osier.RevOf(gen, string(tail[9:]), true), true
	}
	return osier.Rev{}, false
}
