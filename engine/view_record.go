package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
)

// Spaces of views. All keys of a collection's spaces begin with the number of
// the view's index.
const (
	spaceView    = 'V' // of the database: number -> an index's identity
	spaceRow     = 'i' // key, id, n -> a row
	spaceBackref = 'x' // id -> the keys of a document's rows
	spaceTree    = 'y' // level, row -> a node of package reduce
	spaceBuild   = 'z' // 0 -> how far an index has come; 1, id -> a failure
)

// isViewSpace tells whether a key of a database is one of a view's.
func isViewSpace(key []byte) bool {
	if len(key) < prefixSize {
		return false
	}
	switch key[prefixSize-1] {
	case spaceView, spaceRow, spaceBackref, spaceTree, spaceBuild:
		return true
	}
	return false
}

func viewKey(db, num uint32) []byte {
	return binary.BigEndian.AppendUint32(prefix(nil, db, 0, spaceView), num)
}

// viewRecord is an index's identity.
type viewRecord struct {
	kind       viewKind
	policy     osier.UpdatePolicy
	enforced   bool // eager: apply keeps it
	id         [16]byte
	coll       uint32
	collection string
	name       string
	reduceName string
	source     []byte
}

func (v *viewRecord) append(dst []byte) []byte {
	dst = append(dst, recordVersion, byte(v.kind), byte(v.policy), flag(v.enforced))
	dst = append(dst, v.id[:]...)
	dst = binary.AppendUvarint(dst, uint64(v.coll))
	dst = appendText(appendText(appendText(dst, v.collection), v.name), v.reduceName)
	return append(dst, v.source...)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func decodeViewRecord(b []byte) (v viewRecord, err error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	v.kind, v.policy, v.enforced = viewKind(r.byte()), osier.UpdatePolicy(r.byte()), r.byte() == 1
	copy(v.id[:], r.bytes(16))
	v.coll = uint32(r.uvarint())
	v.collection, v.name, v.reduceName = r.text(), r.text(), r.text()
	v.source = append([]byte(nil), r.b...)
	if r.bad || v.kind < viewFields || v.kind > viewGo {
		err = fmt.Errorf("view: %w", errRecord)
	}
	return v, err
}

// progress is how far an index has come.
type progress struct {
	state  osier.ViewState
	seq    osier.Seq // every change up to it is in the rows
	rows   uint64
	failed uint64 // documents
	// While it is built: the documents up to last are in the rows, done of them.
	done    uint64
	last    []byte
	failure string // why it failed
}

func (p *progress) append(dst []byte) []byte {
	dst = append(dst, recordVersion, byte(p.state))
	for _, n := range []uint64{uint64(p.seq), p.rows, p.failed, p.done} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = append(binary.AppendUvarint(dst, uint64(len(p.last))), p.last...)
	return appendText(dst, p.failure)
}

func decodeProgress(b []byte) (p progress, err error) {
	r := reader{b: b}
	r.bad = r.byte() != recordVersion
	p.state = osier.ViewState(r.byte())
	p.seq, p.rows, p.failed, p.done = osier.Seq(r.uvarint()), r.uvarint(), r.uvarint(), r.uvarint()
	p.last = append([]byte(nil), r.bytes(r.uvarint())...)
	p.failure = r.text()
	if r.bad || len(r.b) > 0 || p.state < osier.ViewBuilding || p.state > osier.ViewFailed {
		err = fmt.Errorf("progress of a view: %w", errRecord)
	}
	return p, err
}

// A row's key ends with the document's id and two bytes of its number among the
// document's rows of that key. Its value begins with the id's length.
const rowNumber = 2

func appendRowKey(dst, key []byte, id osier.ID, n uint16) []byte {
	dst = append(append(dst, key...), id.Key()...)
	return binary.BigEndian.AppendUint16(dst, n)
}

func appendRowValue(dst []byte, id osier.ID, value []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(id.Key()))), value...)
}

// splitRow takes a row's record apart; tail is its key behind the index's prefix.
func splitRow(tail, record []byte) (key, id []byte, n uint16, value []byte, err error) {
	size, k := binary.Uvarint(record)
	if k <= 0 || size == 0 || uint64(len(tail)) < size+rowNumber {
		return nil, nil, 0, nil, fmt.Errorf("row of a view: %w", errRecord)
	}
	at := len(tail) - rowNumber
	from := at - int(size)
	return tail[:from], tail[from:at], binary.BigEndian.Uint16(tail[at:]), record[k:], nil
}

// rowValue returns a row's value alone.
func rowValue(record []byte) []byte {
	_, k := binary.Uvarint(record)
	return record[max(k, 0):]
}

// appendBackref lists the keys of a document's rows, in the order they were
// emitted, which also gives their numbers.
func appendBackref(dst []byte, l *rowList) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(l.rows)))
	for i := range l.rows {
		k := l.key(i)
		dst = append(binary.AppendUvarint(dst, uint64(len(k))), k...)
	}
	return dst
}

func decodeBackref(b []byte, l *rowList) error {
	r := reader{b: b}
	n := r.count(1)
	l.reset()
	for range n {
		l.add(r.bytes(r.uvarint()), nil)
	}
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("back-reference of a view: %w", errRecord)
	}
	return nil
}

// viewSpace is a space of an index.
func viewSpace(dst []byte, db, coll uint32, space byte, num uint32) []byte {
	return binary.BigEndian.AppendUint32(prefix(dst, db, coll, space), num)
}

const viewPrefixSize = prefixSize + 4

// viewRanges bound all records of an index but its identity.
func viewRanges(db, coll, num uint32) [][2][]byte {
	var out [][2][]byte
	for _, space := range []byte{spaceRow, spaceBackref, spaceTree, spaceBuild} {
		lower := viewSpace(nil, db, coll, space, num)
		out = append(out, [2][]byte{lower, keys.PrefixEnd(lower)})
	}
	return out
}

// Parts of the build space.
const (
	buildProgress = 0
	buildFailure  = 1
)
