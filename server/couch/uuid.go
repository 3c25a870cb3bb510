package couch

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strconv"
	"sync"
)

// uuidSource makes ids of 32 hexadecimal digits, as CouchDB's sequential
// algorithm does: 26 random digits and six that count up in random steps, so
// that ids made one after the other lie side by side.
type uuidSource struct {
	mu      sync.Mutex // guards the two below
	prefix  [13]byte
	counter uint32
}

// A counter has three bytes; its steps are from 1 to uuidStep.
const (
	uuidMost = 1<<24 - 1
	uuidStep = 0xFFE
)

func (u *uuidSource) next() string {
	var b [16]byte
	var step [2]byte
	rand.Read(step[:])
	u.mu.Lock()
	u.counter += 1 + uint32(binary.BigEndian.Uint16(step[:]))%uuidStep
	if u.counter > uuidMost || u.prefix == [13]byte{} {
		rand.Read(u.prefix[:])
		u.counter = 1 + uint32(binary.BigEndian.Uint16(step[:]))%uuidStep
	}
	copy(b[:], u.prefix[:])
	b[13], b[14], b[15] = byte(u.counter>>16), byte(u.counter>>8), byte(u.counter)
	u.mu.Unlock()
	return hex.EncodeToString(b[:])
}

// maxUUIDs is how many _uuids makes at once.
const maxUUIDs = 1000

// makeUUIDs answers _uuids.
func (q *request) makeUUIDs() error {
	n := 1
	if v, ok := q.params.get("count"); ok {
		k, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return badRequest("count must be a positive integer")
		}
		if k > maxUUIDs {
			return badRequest("count parameter too large")
		}
		n = int(k)
	}
	b := []byte(`{"uuids":[`)
	first := ""
	for i := range n {
		id := q.door.uuids.next()
		if i == 0 {
			first = id
		} else {
			b = append(b, ',')
		}
		b = appendQuoted(b, id)
	}
	h := q.w.Header()
	h.Set("Cache-Control", "no-cache, no-store, must-revalidate")
	h.Set("Expires", "Mon, 01 Jan 1990 00:00:00 GMT")
	h.Set("Pragma", "no-cache")
	h.Set("Etag", `"`+first+strconv.Itoa(n)+`"`)
	q.send(http.StatusOK, append(b, "]}"...))
	return nil
}
