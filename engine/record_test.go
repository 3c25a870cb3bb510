package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/keys"
)

// Generators of what records hold.
func genRev(gen uint64) *rapid.Generator[osier.Rev] {
	return rapid.Custom(func(t *rapid.T) osier.Rev {
		if rapid.IntRange(0, 4).Draw(t, "shape") == 0 {
			return osier.RevOf(gen, rapid.StringMatching(`[a-z0-9]{1,40}`).Draw(t, "text"), true)
		}
		return osier.NewRev(gen, [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "digest")))
	})
}

func genID() *rapid.Generator[osier.ID] {
	return rapid.Custom(func(t *rapid.T) osier.ID {
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			return osier.MustID(rapid.Int64().Draw(t, "number"))
		case 1:
			return osier.MustID("x" + rapid.String().Draw(t, "string"))
		}
		return osier.MustID(osier.Tuple{rapid.Int().Draw(t, "n"), rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")})
	})
}

func genLeaf(child bool) *rapid.Generator[leaf] {
	return rapid.Custom(func(t *rapid.T) leaf {
		gen := rapid.Uint64Range(1, 1<<40).Draw(t, "generation")
		l := leaf{rev: genRev(gen).Draw(t, "rev"), deleted: rapid.Bool().Draw(t, "deleted"),
			seq: osier.Seq(rapid.Uint64().Draw(t, "seq")), millis: rapid.Int64Range(0, 1<<50).Draw(t, "millis")}
		if child && gen > 1 && rapid.Bool().Draw(t, "has parent") {
			l.parent = genRev(gen-1).Draw(t, "parent")
		}
		return l
	})
}

func genVersion() *rapid.Generator[version] {
	return rapid.Custom(func(t *rapid.T) version {
		v := version{codec: osier.CodecTag(rapid.Byte().Draw(t, "codec")), schema: rapid.Uint32().Draw(t, "schema")}
		for range rapid.IntRange(0, 3).Draw(t, "attachments") {
			a := osier.Attachment{Name: rapid.String().Draw(t, "name"), ContentType: rapid.String().Draw(t, "type"),
				Size: rapid.Uint64().Draw(t, "size"), RevPos: rapid.Uint64().Draw(t, "revpos")}
			copy(a.MD5[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "md5"))
			copy(a.SHA256[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "sha256"))
			copy(a.Blob[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "blob"))
			v.atts = append(v.atts, a)
		}
		if v.hasBody = rapid.Bool().Draw(t, "has body"); v.hasBody {
			v.body = rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		}
		return v
	})
}

func sameVersion(a, b version) bool {
	return a.codec == b.codec && a.schema == b.schema && a.hasBody == b.hasBody && bytes.Equal(a.body, b.body) &&
		len(a.atts) == len(b.atts) && (len(a.atts) == 0 || reflect.DeepEqual(a.atts, b.atts))
}

// What is encoded decodes to the same: documents, versions and nodes.
func TestTreeRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := document{winner: genLeaf(true).Draw(t, "winner"), v: genVersion().Draw(t, "version"), kept: rapid.Uint64().Draw(t, "kept"),
			losers: rapid.SliceOfN(genLeaf(true), 0, 4).Draw(t, "losers")}
		got := document{kept: 99, losers: []leaf{{seq: 7}}} // leftovers of another record
		if err := decodeDocument(appendDocument(nil, &d), &got); err != nil {
			t.Fatalf("decode document %+v: %v", d, err)
		}
		if got.winner != d.winner || got.kept != d.kept || len(got.losers) != len(d.losers) ||
			len(d.losers) > 0 && !reflect.DeepEqual(got.losers, d.losers) || !sameVersion(got.v, d.v) {
			t.Fatalf("document:\ngot  %+v\nwant %+v", got, d)
		}
		l, v, err := decodeVersion(appendVersionRecord(nil, &d.winner, &d.v))
		if err != nil || l.seq != d.winner.seq || l.millis != d.winner.millis || l.deleted != d.winner.deleted || !sameVersion(v, d.v) {
			t.Fatalf("version: got %+v %+v, %v; want %+v %+v", l, v, err, d.winner, d.v)
		}
		absent := rapid.Bool().Draw(t, "absent")
		l, gotAbsent, err := decodeNode(appendNode(nil, &d.winner, absent), d.winner.rev)
		if err != nil || l != d.winner || gotAbsent != absent {
			t.Fatalf("node: got %+v %v, %v; want %+v %v", l, gotAbsent, err, d.winner, absent)
		}
		id := genID().Draw(t, "id")
		s, err := decodeSeqRecord(appendSeqRecord(nil, id, &d.winner))
		if err != nil || s != (seqRecord{id, d.winner.rev, d.winner.deleted}) {
			t.Fatalf("sequence entry: got %+v, %v; want %v %v", s, err, id, d.winner)
		}
	})
}

// What is encoded decodes to the same: transactions and answers.
func TestCommandRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := osier.Seq(rapid.Uint64Range(1, 1<<50).Draw(t, "first"))
		r := &run{a: &applier{}, state: dbState{lastSeq: first - 1},
			cmd: &osier.Command{Session: rapid.String().Draw(t, "session"), Number: rapid.Uint64().Draw(t, "number"),
				Sealed: osier.Seal{Time: at(rapid.Int64Range(1, 1<<50).Draw(t, "millis"))}}}
		r.res = &osier.Result{First: first, Time: r.cmd.Sealed.Time}
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			ch := osier.TransactionChange{Collection: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "collection"), ID: genID().Draw(t, "id"),
				Rev: genRev(rapid.Uint64Range(1, 100).Draw(t, "generation")).Draw(t, "rev"), Deleted: rapid.Bool().Draw(t, "deleted")}
			seq := r.nextSeq(ch)
			r.res.Ops = append(r.res.Ops, osier.OpResult{ID: ch.ID, Rev: ch.Rev, Seq: seq})
		}
		r.res.Last = r.state.lastSeq
		tx, err := decodeTx(first, r.appendTx(nil))
		want := &osier.Transaction{First: first, Last: r.res.Last, Time: r.cmd.Sealed.Time, Session: r.cmd.Session, Number: r.cmd.Number, Changes: r.changes}
		if err != nil || !reflect.DeepEqual(tx, want) {
			t.Fatalf("transaction:\ngot  %+v, %v\nwant %+v", tx, err, want)
		}
		if rapid.Bool().Draw(t, "an operation failed") {
			r.res.Ops = append(r.res.Ops, osier.OpResult{ID: genID().Draw(t, "failed id"), Err: genError().Draw(t, "operation's error")})
		}
		var own *osier.Error
		if rapid.Bool().Draw(t, "the command failed") {
			own = genError().Draw(t, "error")
		}
		res, gotOwn, err := decodeResult(appendResult(nil, r.res, own))
		if err != nil || !reflect.DeepEqual(res, r.res) || !reflect.DeepEqual(gotOwn, own) {
			t.Fatalf("answer:\ngot  %+v %v, %v\nwant %+v %v", res, gotOwn, err, r.res, own)
		}
	})
}

func genError() *rapid.Generator[*osier.Error] {
	return rapid.Custom(func(t *rapid.T) *osier.Error {
		e := &osier.Error{Kind: osier.Kind(rapid.IntRange(0, 18).Draw(t, "kind")), Op: rapid.String().Draw(t, "op"), DB: rapid.String().Draw(t, "db"),
			Collection: rapid.String().Draw(t, "collection"), ID: rapid.String().Draw(t, "id")}
		if text := rapid.String().Draw(t, "text"); text != "" {
			e.Err = errors.New(text)
		}
		return e
	})
}

// What is encoded decodes to the same: counters and what is beside documents.
func TestCounterRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		millis := rapid.Int64Range(0, 1<<50).Draw(t, "millis")
		s := dbState{lastSeq: osier.Seq(n("seq")), millis: millis, nextColl: uint32(n("next")), results: n("results"), drops: n("drops")}
		if got, err := decodeDBState(s.append(nil)); err != nil || got != s {
			t.Fatalf("counters: got %+v, %v; want %+v", got, err, s)
		}
		c := collState{num: uint32(n("num")), count: n("count"), deleted: n("deleted"), bodyBytes: n("bytes"), lastSeq: osier.Seq(n("last")),
			settings: osier.Settings{Codec: osier.CodecTag(n("codec")), History: osier.History(rapid.Int32().Draw(t, "history")),
				RevLimit: uint32(n("limit")), Schema: uint32(n("schema"))}}
		if got, err := decodeCollState(c.append(nil)); err != nil || got != c {
			t.Fatalf("collection: got %+v, %v; want %+v", got, err, c)
		}
		d := dirRecord{num: uint32(n("db")), millis: millis}
		copy(d.uuid[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
		if got, err := decodeDirRecord(d.append(nil)); err != nil || got != d {
			t.Fatalf("directory: got %+v, %v; want %+v", got, err, d)
		}
		h := digestRecord{blob: d.uuid, refs: n("refs")}
		if got, err := decodeDigestRecord(h.append(nil)); err != nil || got != h {
			t.Fatalf("digest: got %+v, %v; want %+v", got, err, h)
		}
		st := stagedRecord{size: n("size"), md5: d.uuid, sha256: [32]byte{1: byte(n("sum"))}}
		if got, err := decodeStaged(st.append(nil)); err != nil || got != st {
			t.Fatalf("staged: got %+v, %v; want %+v", got, err, st)
		}
	})
}

// Keys of one space lie within its range and in order of what they are made of,
// and nothing of one document lies within another's range.
func TestKeysKeepTheirOrderAndTheirRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genID().Draw(t, "a"), genID().Draw(t, "b")
		if got := bytes.Compare(docKey(nil, 1, 2, a), docKey(nil, 1, 2, b)); got != a.Compare(b) {
			t.Fatalf("documents %v and %v: order of keys %d, want %d", a, b, got, a.Compare(b))
		}
		gen := rapid.Uint64Range(1, 1<<40).Draw(t, "generation")
		rev := genRev(gen).Draw(t, "rev")
		for _, space := range []byte{spaceAncestor, spaceVersion} {
			key := revKey(nil, 1, 2, space, a, rev)
			lower, upper := revsRange(1, 2, space, a)
			if bytes.Compare(key, lower) < 0 || bytes.Compare(key, upper) >= 0 {
				t.Fatalf("%v's revision %v is outside its range", a, rev)
			}
			if got, ok := revOfKey(key[len(lower):]); !ok || got != rev {
				t.Fatalf("revision of a key: got %v %v, want %v", got, ok, rev)
			}
			if bytes.Compare(key, generationKey(1, 2, space, a, gen)) < 0 || bytes.Compare(key, generationKey(1, 2, space, a, gen+1)) >= 0 {
				t.Fatalf("revision %v is outside its generation's range", rev)
			}
			if lower, upper := revsRange(1, 2, space, b); a != b && bytes.Compare(key, lower) >= 0 && bytes.Compare(key, upper) < 0 {
				t.Fatalf("a revision of %v lies within the range of %v", a, b)
			}
		}
		lower, upper := databaseRange(1)
		collLower, collUpper := collectionRange(1, 2)
		for _, key := range [][]byte{docKey(nil, 1, 2, a), seqKey(nil, 1, 2, osier.Seq(gen)), digestKey(1, 2, a, [32]byte{1})} {
			if bytes.Compare(key, lower) < 0 || bytes.Compare(key, upper) >= 0 || bytes.Compare(key, collLower) < 0 || bytes.Compare(key, collUpper) >= 0 {
				t.Fatalf("key %x is outside its collection's range", key)
			}
		}
		session, number := rapid.String().Draw(t, "session"), rapid.Uint64().Draw(t, "number")
		ring := binary.BigEndian.AppendUint64(keys.AppendString(nil, session), number)
		if key := append(prefix(nil, 1, 0, spaceResult), ring...); !bytes.Equal(key, resultKey(1, session, number)) {
			t.Fatalf("a ring entry does not lead to its answer: %x, %x", key, resultKey(1, session, number))
		}
	})
}

// The short way to a plain record finds what the general one finds, whatever the
// bytes.
func TestPlainRecordsMeanTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := document{winner: genLeaf(true).Draw(t, "winner"), v: version{codec: 1, schema: rapid.Uint32Range(0, 200).Draw(t, "schema"), hasBody: true}}
		d.winner.seq = osier.Seq(rapid.Uint64Range(0, 1<<50).Draw(t, "seq"))
		d.winner.deleted = rapid.IntRange(0, 9).Draw(t, "deleted") == 0
		d.v.body = rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		b := appendDocument(nil, &d)
		if rapid.Bool().Draw(t, "damaged") {
			b[rapid.IntRange(0, min(len(b)-1, 50)).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			b = b[:rapid.IntRange(0, len(b)).Draw(t, "length")]
		}
		got := document{kept: 99, losers: []leaf{{seq: 7}}} // leftovers of another record
		if !got.plain(b) {
			return
		}
		var want document
		if err := want.decode(b); err != nil {
			t.Fatalf("%x: the short way reads what the general one refuses: %v", b, err)
		}
		if got.winner != want.winner || got.kept != want.kept || len(got.losers) != len(want.losers) || !sameVersion(got.v, want.v) {
			t.Fatalf("%x:\ngot  %+v\nwant %+v", b, got, want)
		}
	})
}

// decoders of all records, by name.
var decoders = map[string]func(b []byte) error{
	"document":    func(b []byte) error { var d document; return decodeDocument(b, &d) },
	"version":     func(b []byte) error { _, _, err := decodeVersion(b); return err },
	"node":        func(b []byte) error { _, _, err := decodeNode(b, osier.NewRev(3, [16]byte{1})); return err },
	"transaction": func(b []byte) error { _, err := decodeTx(1, b); return err },
	"answer":      func(b []byte) error { _, _, err := decodeResult(b); return err },
	"sequence":    func(b []byte) error { _, err := decodeSeqRecord(b); return err },
	"counters":    func(b []byte) error { _, err := decodeDBState(b); return err },
	"collection":  func(b []byte) error { _, err := decodeCollState(b); return err },
	"directory":   func(b []byte) error { _, err := decodeDirRecord(b); return err },
	"digest":      func(b []byte) error { _, err := decodeDigestRecord(b); return err },
	"staged":      func(b []byte) error { _, err := decodeStaged(b); return err },
	"revision of a key": func(b []byte) error {
		if _, ok := revOfKey(b); !ok {
			return errRecord
		}
		return nil
	},
}

// allocationFactor bounds what a decoder may allocate for a byte of input: the
// smallest encoded element of a list against its size in memory.
const allocationFactor = 24

// FuzzDecoders: whatever the bytes, also when cut short anywhere, a decoder
// returns and leaves them as they are.
func FuzzDecoders(f *testing.F) {
	for _, b := range seedRecords() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, decode := range decoders {
			exact := bytes.Clone(b)[:len(b):len(b)]
			_ = decode(exact)
			for n := range min(len(b), 64) {
				_ = decode(exact[:n:n])
			}
			if !bytes.Equal(exact, b) {
				t.Fatal("a decoder changed its input")
			}
		}
	})
}

// seedRecords are one good record of each kind, and lists that claim to be long.
func seedRecords() [][]byte {
	l := leaf{rev: osier.NewRev(3, [16]byte{3}), parent: osier.NewRev(2, [16]byte{2}), seq: 300, millis: 1_700_000_000_000}
	v := version{codec: osier.TagJSON, hasBody: true, body: []byte(`{}`), atts: []osier.Attachment{{Name: "a", ContentType: "b", Size: 5}}}
	d := document{winner: l, v: v, kept: 2, losers: []leaf{{rev: osier.RevOf(1, "text", true), deleted: true}}}
	r := &run{a: &applier{}, cmd: &osier.Command{Session: "s"}}
	r.nextSeq(osier.TransactionChange{Collection: "c", ID: osier.MustID("x"), Rev: l.rev})
	r.res = &osier.Result{First: 1, Last: 1, Ops: []osier.OpResult{{ID: osier.MustID("x"), Rev: l.rev, Seq: 1}, {Err: &osier.Error{Kind: osier.KindConflict}}}}
	s, c, dir := dbState{lastSeq: 5}, collState{num: 4}, dirRecord{num: 3}
	huge := binary.AppendUvarint(nil, 1<<62)
	return [][]byte{
		appendDocument(nil, &d), appendVersionRecord(nil, &l, &v), appendNode(nil, &l, true), bytes.Clone(r.appendTx(nil)),
		appendResult(nil, r.res, nil), appendSeqRecord(nil, osier.MustID("x"), &l), s.append(nil), c.append(nil), dir.append(nil),
		digestRecord{refs: 2}.append(nil), (&stagedRecord{size: 2}).append(nil), nil, {recordVersion, 0xFF},
		append(append([]byte{recordVersion, flagLosers, 1, 1, 1, 0}, make([]byte, 16)...), huge...),
		append([]byte{recordVersion, 0, 1, 1, 1}, huge...), append([]byte{recordVersion, 1, 1, 0, 0}, huge...),
	}
}

// A record that claims a long list allocates no more than its bytes could hold.
func TestDecodersAllocateInProportion(t *testing.T) {
	const size = 1 << 20
	claim := binary.AppendUvarint(nil, size) // as many elements as bytes
	pad := make([]byte, size)
	lists := map[string][]byte{
		"document":    append(append([]byte{recordVersion, flagLosers, 1, 1, 1, 0}, make([]byte, 16)...), append(claim, pad...)...),
		"version":     append([]byte{recordVersion, flagAttachments, 1, 1, 1, 1}, append(claim, pad...)...),
		"transaction": append([]byte{recordVersion, 1, 1, 0, 1}, append(claim, pad...)...),
		"answer":      append([]byte{recordVersion, 0, 1, 1, 1}, append(claim, pad...)...),
	}
	for name, b := range lists {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = decoders[name](b)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > allocationFactor*uint64(len(b)) {
			t.Errorf("%s: %d bytes of input made it allocate %d, %d for each", name, len(b), got, got/uint64(len(b)))
		}
	}
}

// A damaged record is an error that says so.
func TestCutRecordsAreRefused(t *testing.T) {
	whole := map[string][]byte{}
	for _, b := range seedRecords() {
		for name, decode := range decoders {
			if len(b) > 2 && decode(b) == nil && len(b) > len(whole[name]) {
				whole[name] = b
			}
		}
	}
	for name, decode := range decoders {
		if name == "revision of a key" {
			continue // a digest's text may end anywhere
		}
		if whole[name] == nil {
			t.Errorf("no seed is a %s", name)
			continue
		}
		for _, b := range [][]byte{nil, {}, {0}, {recordVersion + 1}, {recordVersion}} {
			if err := decode(b); !errors.Is(err, errRecord) {
				t.Errorf("%s of %x: %v, want %v", name, b, err, errRecord)
			}
		}
	}
}
