package reduce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// A Builtin is a reduce over values in JSON. Numeric ones pass over null.
type Builtin interface {
	Func
	// Check refuses a value that the reduce cannot take.
	Check(value []byte) error
	// AppendResult appends what n stands for, in JSON.
	AppendResult(dst []byte, n *Node) ([]byte, error)
}

// Lookup returns a built-in reduce by its name.
func Lookup(name string) (Builtin, bool) {
	switch name {
	case "count":
		return counter{}, true
	case "sum":
		return summer{}, true
	case "min":
		return extreme{-1}, true
	case "max":
		return extreme{1}, true
	case "stats":
		return statistics{}, true
	case "distinct":
		return distinct{}, true
	}
	return nil, false
}

// Names are the built-in reduces.
func Names() []string { return []string{"count", "sum", "min", "max", "stats", "distinct"} }

var errPartial = errors.New("reduce: partial is damaged")

// number is a JSON number: an integer while that is exact, else a float.
type number struct {
	int   int64
	float float64
	exact bool
}

func isNull(b []byte) bool { return string(b) == "null" }

func parseNumber(b []byte) (number, error) {
	if i, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		return number{int: i, float: float64(i), exact: true}, nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || len(b) == 0 || b[0] > '9' || math.IsInf(f, 0) || math.IsNaN(f) {
		return number{}, fmt.Errorf("%.40q is not a number", b)
	}
	return number{float: f}, nil
}

func (n number) add(m number) number {
	if n.exact && m.exact {
		sum := n.int + m.int
		if (sum > n.int) == (m.int > 0) {
			return number{int: sum, float: float64(sum), exact: true}
		}
	}
	return number{float: n.float + m.float}
}

func (n number) square() number {
	const root = 3037000499 // of the greatest int64
	if n.exact && -root <= n.int && n.int <= root {
		sq := n.int * n.int
		return number{int: sq, float: float64(sq), exact: true}
	}
	return number{float: n.float * n.float}
}

func (n number) compare(m number) int {
	if n.exact && m.exact {
		switch {
		case n.int < m.int:
			return -1
		case n.int > m.int:
			return 1
		}
		return 0
	}
	switch {
	case n.float < m.float:
		return -1
	case n.float > m.float:
		return 1
	}
	return 0
}

func (n number) append(dst []byte) []byte {
	if n.exact {
		return binary.LittleEndian.AppendUint64(append(dst, 1), uint64(n.int))
	}
	return binary.LittleEndian.AppendUint64(append(dst, 0), math.Float64bits(n.float))
}

const numberSize = 9

func decodeNumber(b []byte) (number, error) {
	if len(b) < numberSize || b[0] > 1 {
		return number{}, errPartial
	}
	v := binary.LittleEndian.Uint64(b[1:])
	if b[0] == 1 {
		return number{int: int64(v), float: float64(int64(v)), exact: true}, nil
	}
	return number{float: math.Float64frombits(v)}, nil
}

func (n number) json(dst []byte) ([]byte, error) {
	if n.exact {
		return strconv.AppendInt(dst, n.int, 10), nil
	}
	if math.IsInf(n.float, 0) || math.IsNaN(n.float) {
		return dst, errors.New("the result is beyond the range of numbers")
	}
	return strconv.AppendFloat(dst, n.float, 'g', -1, 64), nil
}

func checkNumber(value []byte) error {
	if isNull(value) {
		return nil
	}
	_, err := parseNumber(value)
	return err
}

// counter counts rows: nodes do so anyway.
type counter struct{}

func (counter) Check([]byte) error                { return nil }
func (counter) Reduce([][]byte) ([]byte, error)   { return nil, nil }
func (counter) Rereduce([][]byte) ([]byte, error) { return nil, nil }
func (counter) AppendResult(dst []byte, n *Node) ([]byte, error) {
	return strconv.AppendUint(dst, n.Count, 10), nil
}

// summer adds numbers: exactly while all are integers of 64 bits and so is the
// sum, else in floating point, whose rounding depends on the range asked for.
type summer struct{}

func (summer) Check(value []byte) error { return checkNumber(value) }

func (summer) Reduce(values [][]byte) ([]byte, error) {
	sum := number{exact: true}
	for _, v := range values {
		if isNull(v) {
			continue
		}
		n, err := parseNumber(v)
		if err != nil {
			return nil, err
		}
		sum = sum.add(n)
	}
	return sum.append(make([]byte, 0, numberSize)), nil
}

func (summer) Rereduce(partials [][]byte) ([]byte, error) {
	sum := number{exact: true}
	for _, p := range partials {
		n, err := decodeNumber(p)
		if err != nil {
			return nil, err
		}
		sum = sum.add(n)
	}
	return sum.append(make([]byte, 0, numberSize)), nil
}

func (summer) AppendResult(dst []byte, n *Node) ([]byte, error) {
	if n.Partial == nil {
		return append(dst, '0'), nil
	}
	sum, err := decodeNumber(n.Partial)
	if err != nil {
		return dst, err
	}
	return sum.json(dst)
}

// extreme keeps the least or the greatest number; an empty partial is none.
type extreme struct{ sign int }

func (extreme) Check(value []byte) error { return checkNumber(value) }

func (e extreme) Reduce(values [][]byte) ([]byte, error) {
	var best number
	found := false
	for _, v := range values {
		if isNull(v) {
			continue
		}
		n, err := parseNumber(v)
		if err != nil {
			return nil, err
		}
		if !found || n.compare(best)*e.sign > 0 {
			best, found = n, true
		}
	}
	if !found {
		return []byte{}, nil
	}
	return best.append(nil), nil
}

func (e extreme) Rereduce(partials [][]byte) ([]byte, error) {
	var best number
	found := false
	for _, p := range partials {
		if len(p) == 0 {
			continue
		}
		n, err := decodeNumber(p)
		if err != nil {
			return nil, err
		}
		if !found || n.compare(best)*e.sign > 0 {
			best, found = n, true
		}
	}
	if !found {
		return []byte{}, nil
	}
	return best.append(nil), nil
}

func (extreme) AppendResult(dst []byte, n *Node) ([]byte, error) {
	if len(n.Partial) == 0 {
		return append(dst, "null"...), nil
	}
	best, err := decodeNumber(n.Partial)
	if err != nil {
		return dst, err
	}
	return best.json(dst)
}

// statistics keeps count, sum, least, greatest and the sum of squares.
type statistics struct{}

func (statistics) Check(value []byte) error { return checkNumber(value) }

type stats struct {
	count                   uint64
	sum, low, high, squares number
}

func (s *stats) add(o *stats) {
	if o.count == 0 {
		return
	}
	if s.count == 0 {
		*s = *o
		return
	}
	s.count += o.count
	s.sum = s.sum.add(o.sum)
	s.squares = s.squares.add(o.squares)
	if o.low.compare(s.low) < 0 {
		s.low = o.low
	}
	if o.high.compare(s.high) > 0 {
		s.high = o.high
	}
}

func (s *stats) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, s.count)
	return s.squares.append(s.high.append(s.low.append(s.sum.append(dst))))
}

func decodeStats(b []byte) (s stats, err error) {
	count, k := binary.Uvarint(b)
	if k <= 0 || len(b) != k+4*numberSize {
		return s, errPartial
	}
	s.count, b = count, b[k:]
	for _, n := range []*number{&s.sum, &s.low, &s.high, &s.squares} {
		if *n, err = decodeNumber(b); err != nil {
			return s, err
		}
		b = b[numberSize:]
	}
	return s, nil
}

func (statistics) Reduce(values [][]byte) ([]byte, error) {
	var all stats
	for _, v := range values {
		if isNull(v) {
			continue
		}
		n, err := parseNumber(v)
		if err != nil {
			return nil, err
		}
		all.add(&stats{count: 1, sum: n, low: n, high: n, squares: n.square()})
	}
	return all.append(nil), nil
}

func (statistics) Rereduce(partials [][]byte) ([]byte, error) {
	var all stats
	for _, p := range partials {
		s, err := decodeStats(p)
		if err != nil {
			return nil, err
		}
		all.add(&s)
	}
	return all.append(nil), nil
}

func (statistics) AppendResult(dst []byte, n *Node) ([]byte, error) {
	var s stats
	if n.Partial != nil {
		var err error
		if s, err = decodeStats(n.Partial); err != nil {
			return dst, err
		}
	}
	if s.count == 0 {
		return append(dst, `{"count":0,"sum":0,"min":null,"max":null,"sumsqr":0}`...), nil
	}
	dst = strconv.AppendUint(append(dst, `{"count":`...), s.count, 10)
	for _, f := range []struct {
		name string
		n    number
	}{{"sum", s.sum}, {"min", s.low}, {"max", s.high}, {"sumsqr", s.squares}} {
		dst = append(append(append(dst, `,"`...), f.name...), `":`...)
		var err error
		if dst, err = f.n.json(dst); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// distinct estimates how many different values there are, by HyperLogLog with
// 4,096 registers: the standard error is 1.6 %, and small numbers are nearly
// exact. A partial of few values lists their hashes.
type distinct struct{}

const (
	registerBits = 12
	registers    = 1 << registerBits
	listed       = registers / 4 / 4 // hashes of 4 bytes, up to a quarter of a full partial
	asList       = 0
	asRegisters  = 1
)

func (distinct) Check([]byte) error { return nil }

// sketch is a partial being put together.
type sketch struct {
	list []uint32 // sorted, without repetition; nil once there are registers
	regs []byte
}

// add takes a hash: the upper bits name the register, the others give its rank.
func (s *sketch) add(h uint32) {
	if s.regs != nil {
		rank := byte(1)
		for v := h << registerBits; v&(1<<31) == 0 && rank < 32-registerBits+1; v <<= 1 {
			rank++
		}
		i := h >> (32 - registerBits)
		s.regs[i] = max(s.regs[i], rank)
		return
	}
	at, found := slices.BinarySearch(s.list, h)
	if found {
		return
	}
	if s.list = slices.Insert(s.list, at, h); len(s.list) > listed {
		s.spread()
	}
}

func (s *sketch) spread() {
	list := s.list
	s.list, s.regs = nil, make([]byte, registers)
	for _, h := range list {
		s.add(h)
	}
}

func (s *sketch) merge(p []byte) error {
	switch {
	case len(p) > 0 && p[0] == asList && len(p)%4 == 1 && len(p)/4 <= listed:
		for p = p[1:]; len(p) > 0; p = p[4:] {
			s.add(binary.LittleEndian.Uint32(p))
		}
		return nil
	case len(p) == 1+registers && p[0] == asRegisters:
		if s.regs == nil {
			s.spread()
		}
		for i, rank := range p[1:] {
			s.regs[i] = max(s.regs[i], rank)
		}
		return nil
	}
	return errPartial
}

func (s *sketch) append() []byte {
	if s.regs != nil {
		return append([]byte{asRegisters}, s.regs...)
	}
	dst := []byte{asList}
	for _, h := range s.list {
		dst = binary.LittleEndian.AppendUint32(dst, h)
	}
	return dst
}

func (s *sketch) estimate() uint64 {
	if s.regs == nil {
		return uint64(len(s.list))
	}
	sum, zeros := 0.0, 0
	for _, rank := range s.regs {
		sum += math.Ldexp(1, -int(min(rank, 64)))
		if rank == 0 {
			zeros++
		}
	}
	const m = float64(registers)
	raw := 0.7213 / (1 + 1.079/m) * m * m / sum
	if raw <= 2.5*m && zeros > 0 {
		raw = m * math.Log(m/float64(zeros))
	} else if raw > (1<<32)/30 {
		raw = -(1 << 32) * math.Log(1-min(raw/(1<<32), 0.999))
	}
	return uint64(math.Round(raw))
}

func (distinct) Reduce(values [][]byte) ([]byte, error) {
	var s sketch
	for _, v := range values {
		s.add(uint32(hash(0x05E1E8, v) >> 32))
	}
	return s.append(), nil
}

func (distinct) Rereduce(partials [][]byte) ([]byte, error) {
	var s sketch
	for _, p := range partials {
		if err := s.merge(p); err != nil {
			return nil, err
		}
	}
	return s.append(), nil
}

func (distinct) AppendResult(dst []byte, n *Node) ([]byte, error) {
	var s sketch
	if n.Partial != nil {
		if err := s.merge(n.Partial); err != nil {
			return dst, err
		}
	}
	return strconv.AppendUint(dst, s.estimate(), 10), nil
}
