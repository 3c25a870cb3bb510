package store

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FuzzLowerSyncedOffsets: rewriting never changes anything but the checksum and
// the offset of chunks that claim too much, and is idempotent.
func FuzzLowerSyncedOffsets(f *testing.F) {
	f.Add(syncChunk(9, 1000, []byte("payload")), uint64(10))
	f.Add(append(syncChunk(12, 5, nil), syncChunk(10, 50, []byte("x"))...), uint64(20))
	f.Add([]byte{0, 0, 0, 0, 255, 255, 9, 0, 0, 0, 0}, uint64(0))
	f.Fuzz(func(t *testing.T, p []byte, synced uint64) {
		once := bytes.Clone(p)
		lowerSyncedOffsets(once, synced)
		twice := bytes.Clone(once)
		lowerSyncedOffsets(twice, synced)
		if !bytes.Equal(once, twice) {
			t.Errorf("not idempotent: %x, then %x", once, twice)
		}
		for len(p) >= chunkHeader {
			header := chunkHeader
			if typ := p[chunkTypeAt]; typ >= chunkSyncFirst && typ <= chunkSyncLast {
				header = chunkHeaderOff
			}
			n := header + int(binary.LittleEndian.Uint16(p[chunkLengthAt:]))
			if n > len(p) || p[chunkTypeAt] < chunkRecyclableFirst || p[chunkTypeAt] > chunkSyncLast {
				break
			}
			if header == chunkHeader && !bytes.Equal(p[:n], once[:n]) || !bytes.Equal(p[header:n], once[header:n]) ||
				!bytes.Equal(p[4:11], once[4:11]) {
				t.Errorf("chunk changed from %x to %x", p[:n], once[:n])
			}
			p, once = p[n:], once[n:]
		}
		if !bytes.Equal(p, once) {
			t.Errorf("rest changed from %x to %x", p, once)
		}
	})
}

func syncChunk(typ byte, offset uint64, payload []byte) []byte {
	b := make([]byte, chunkHeaderOff, chunkHeaderOff+len(payload))
	binary.LittleEndian.PutUint16(b[chunkLengthAt:], uint16(len(payload)))
	b[chunkTypeAt] = typ
	binary.LittleEndian.PutUint32(b[7:], 7)
	binary.LittleEndian.PutUint64(b[chunkOffsetAt:], offset)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, chunkChecksum(b[chunkTypeAt:]))
	return b
}

// TestChunksStayReadable: the engine reads what was rewritten.
func TestChunksStayReadable(t *testing.T) {
	b := append(syncChunk(9, 1<<40, []byte("first")), syncChunk(9, 3, []byte("second"))...)
	lowerSyncedOffsets(b, 100)
	if got := binary.LittleEndian.Uint64(b[chunkOffsetAt:]); got != 100 {
		t.Errorf("offset %d, want 100", got)
	}
	r := record.NewReader(bytes.NewReader(b), 7)
	for _, want := range []string{"first", "second"} {
		rec, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if got, err := io.ReadAll(rec); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// FuzzLogs: the readers of logs, batches and version edits take anything.
func FuzzLogs(f *testing.F) {
	f.Add(syncChunk(9, 0, []byte("\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x01k\x01v")))
	f.Add([]byte{tagComparer, 1, 'c', tagMinLog, 7})
	f.Fuzz(func(t *testing.T, p []byte) {
		_ = batchEntries(p, func(entry) error { return nil })
		_, _ = editMinLog(p)
		mem := vfs.NewMem()
		w, err := mem.Create("000007.log", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Clone(p)); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		l := recordLog{fs: mem, path: "000007.log", name: "000007.log", num: 7, limit: -1, report: func(Damage) {}}
		if err := l.each(l.checkBatch); err != nil {
			t.Errorf("each: %v", err)
		}
	})
}

// FuzzTable: the reader of tables takes anything.
func FuzzTable(f *testing.F) {
	f.Add([]byte("no table"))
	f.Fuzz(func(t *testing.T, p []byte) {
		mem := vfs.NewMem()
		w, err := mem.Create("000007.sst", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Clone(p)); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		tab, err := openTable(mem, "", "000007.sst")
		if err != nil {
			return
		}
		defer tab.close()
		r := tab.run(nil, func(Damage) {})
		defer r.close()
		for _, ok := r.next(); ok; _, ok = r.next() {
		}
	})
}
