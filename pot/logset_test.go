package pot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

// The log set is a deterministic list of records on which serialization
// libraries of several languages are compared; its sizes are public.

type logAddress struct {
	X0 uint8 `json:"x0"`
	X1 uint8 `json:"x1"`
	X2 uint8 `json:"x2"`
	X3 uint8 `json:"x3"`
}

type logRecord struct {
	Address  logAddress `json:"address"`
	Identity string     `json:"identity"`
	UserID   string     `json:"userid"`
	Date     string     `json:"date"`
	Request  string     `json:"request"`
	Code     uint16     `json:"code"`
	Size     uint64     `json:"size"`
}

type logSet struct {
	Logs []logRecord `json:"logs"`
}

// pcg32 is the PCG generator with the XSH-RR output.
type pcg32 struct{ state, inc uint64 }

func newPCG32(state, stream uint64) *pcg32 {
	p := &pcg32{inc: 2*stream + 1}
	p.state = state + p.inc
	p.next()
	return p
}

func (p *pcg32) next() uint32 {
	s := p.state
	p.state = s*6364136223846793005 + p.inc
	return bits.RotateLeft32(uint32((s>>18^s)>>27), -int(s>>59))
}

func (p *pcg32) next64() uint64 {
	lo := uint64(p.next())
	return lo | uint64(p.next())<<32
}

// pick64 draws from lo..hi evenly, by products of 64 bits.
func (p *pcg32) pick64(lo, hi uint64) uint64 {
	n := hi - lo + 1
	zone := n<<bits.LeadingZeros64(n) - 1
	for {
		if h, l := bits.Mul64(p.next64(), n); l <= zone {
			return lo + h
		}
	}
}

// pick32 is pick64 in 32 bits.
func (p *pcg32) pick32(lo, hi uint32) uint32 {
	n := hi - lo + 1
	zone := n<<bits.LeadingZeros32(n) - 1
	for {
		if m := uint64(p.next()) * uint64(n); uint32(m) <= zone {
			return lo + uint32(m>>32)
		}
	}
}

func pick[T any](p *pcg32, list []T) T { return list[p.pick64(0, uint64(len(list)-1))] }

var (
	logUsers  = []string{"-", "alice", "bob", "carmen", "david", "eric", "frank", "george", "harry"}
	logMonths = []string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}
	logVerbs  = []string{"GET", "POST", "PUT", "UPDATE", "DELETE"}
	logPaths  = []string{"/favicon.ico", "/css/index.css", "/css/font-awsome.min.css", "/img/logo-full.svg",
		"/img/splash.jpg", "/api/login", "/api/logout"}
	logProtocols = []string{"HTTP/1.0", "HTTP/1.1", "HTTP/2", "HTTP/3"}
	logCodes     = []uint16{100, 101, 102, 103, 200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302,
		303, 304, 305, 306, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414,
		415, 416, 417, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 506,
		507, 508, 510, 511}
)

func makeLogSet() *logSet {
	p := newPCG32(3141592653, 5897932384)
	var zones []string
	for h := -12; h <= 12; h++ {
		zones = append(zones, fmt.Sprintf("%+03d00", h))
	}
	set := &logSet{Logs: make([]logRecord, p.pick64(10000, 10000))}
	for i := range set.Logs {
		day, month, year := p.pick32(1, 28), pick(p, logMonths), p.pick32(1970, 2021)
		hour, minute, second := p.pick32(0, 23), p.pick32(0, 59), p.pick32(0, 59)
		date := fmt.Sprintf("%d/%s/%d:%d:%d:%d %s", day, month, year, hour, minute, second, pick(p, zones))
		request := pick(p, logVerbs)
		request += " " + pick(p, logPaths)
		request += " " + pick(p, logProtocols)
		l := logRecord{Identity: "-", Date: date, Request: request}
		l.Address = logAddress{uint8(p.next()), uint8(p.next()), uint8(p.next()), uint8(p.next())}
		l.UserID, l.Code, l.Size = pick(p, logUsers), pick(p, logCodes), p.pick64(0, 99999999)
		set.Logs[i] = l
	}
	return set
}

// bincodeFixed writes integers at full width and lengths as 64 bits.
func bincodeFixed(set *logSet) []byte {
	le := binary.LittleEndian
	str := func(b []byte, s string) []byte { return append(le.AppendUint64(b, uint64(len(s))), s...) }
	b := le.AppendUint64(nil, uint64(len(set.Logs)))
	for _, l := range set.Logs {
		b = append(b, l.Address.X0, l.Address.X1, l.Address.X2, l.Address.X3)
		b = str(str(str(str(b, l.Identity), l.UserID), l.Date), l.Request)
		b = le.AppendUint64(le.AppendUint16(b, l.Code), l.Size)
	}
	return b
}

// bincodeVar writes integers above 250 after a byte that tells their width.
func bincodeVar(set *logSet) []byte {
	le := binary.LittleEndian
	num := func(b []byte, v uint64) []byte {
		switch {
		case v <= 250:
			return append(b, byte(v))
		case v <= 1<<16-1:
			return le.AppendUint16(append(b, 251), uint16(v))
		case v <= 1<<32-1:
			return le.AppendUint32(append(b, 252), uint32(v))
		}
		return le.AppendUint64(append(b, 253), v)
	}
	str := func(b []byte, s string) []byte { return append(num(b, uint64(len(s))), s...) }
	b := num(nil, uint64(len(set.Logs)))
	for _, l := range set.Logs {
		b = append(b, l.Address.X0, l.Address.X1, l.Address.X2, l.Address.X3)
		b = str(str(str(str(b, l.Identity), l.UserID), l.Date), l.Request)
		b = num(num(b, uint64(l.Code)), l.Size)
	}
	return b
}

// The five published encodings of the set have the published bytes.
func TestLogSetSums(t *testing.T) {
	p := newPCG32(3141592653, 5897932384)
	for i, want := range []uint32{0xb304d126, 0x60492132, 0x944b1fce, 0x2b10f465, 0x1e4b52b8, 0x91d84d8a, 0xf2804d2a, 0x50661dd5} {
		if got := p.next(); got != want {
			t.Fatalf("draw %d: want %08x, got %08x", i, want, got)
		}
	}
	set := makeLogSet()
	js, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	cb, err := cbor.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	full, err := (&EncodeOptions{Mode: Full}).Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
		size int
		sum  string
	}{
		{"JSON", js, 1827461, "c64897766e9b94cad3557a8e39f176f41a61b768371b80f045f5466fd3dc495b"},
		{"CBOR", cb, 1407835, "c0d76534032c9a3b46f7fec32a4326d44d818b509fe412752c755a4a84c9d4fb"},
		{"Pot Full", full, 971922, "1253454c0872649b58293d49e50a551b751ecb013afbf729633162a529d816b5"},
		{"bincode fixed", bincodeFixed(set), 1045784, "9a1bbfdef70d3bc5e444cbfba69ec1453222f2cf2d1e00963358f319e1c80b23"},
		{"bincode variable", bincodeVar(set), 741295, "daeef3cf895b49eb196ba1426a8d99cd1d800454a3fc18a057924e5d70b84dc2"},
	} {
		sum := sha256.Sum256(c.data)
		if len(c.data) != c.size || hex.EncodeToString(sum[:]) != c.sum {
			t.Errorf("%s: want %d bytes of sum %s, got %d of %x", c.name, c.size, c.sum, len(c.data), sum)
		}
	}
	var back logSet
	if err := Unmarshal(full, &back); err != nil {
		t.Fatal(err)
	}
	for i := range set.Logs {
		if back.Logs[i] != set.Logs[i] {
			t.Fatalf("record %d: want %+v, got %+v", i, set.Logs[i], back.Logs[i])
		}
	}
	few, err := (&EncodeOptions{Mode: Full}).Marshal(&logSet{Logs: set.Logs[:3]})
	if err != nil {
		t.Fatal(err)
	}
	const want = "506f7400a1c86c6f677383a7ce61646472657373a4c478304026c478314004c478324080c478334005d0016964656e74697479e12dcc757365726964e56461766964c864617465f90131372f4665622f313939393a32323a31383a38202b31313030ce72657175657374f002504f5354202f696d672f6c6f676f2d66756c6c2e73766720485454502f312e31c8636f646541a801c873697a6543b4ac0905a7c3a4c54041c74048c940fccb400acde12dcfe56861727279d101f90131362f4a616e2f313937323a353a31313a3237202d30363030d301ff01474554202f696d672f6c6f676f2d66756c6c2e73766720485454502f312e31d501419501d70143dd88fe02a7c3a4c540e4c7402dc9409acb4045cde12dcfe3626f62d101f80132332f4a756e2f323031343a383a32303a33202b30323030d301ff01474554202f696d672f6c6f676f2d66756c6c2e73766720485454502f312e31d50141f501d70143a5b47102"
	if got := hex.EncodeToString(few); got != want {
		t.Errorf("three records:\nwant %s\ngot  %s", want, got)
	}
}
