package pocket

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// The lines of a pocket file, beyond those of its ancestor:
//
//	{"tx":12,"n":2,"len":57,"synced":11,"crc":"8d1f02aa"}
//	{"block":12,"n":1000,"len":61200,"crc":"01c2d3e4"}
//
// A tx line opens a transaction: sequence, number of record lines, their
// length in bytes with line feeds, optionally the last sequence that was known
// to be on the disk, and a CRC32C over everything in the line before `,"crc"`
// followed by the record lines. A block line opens a part of a rewritten file;
// its records stand for themselves and may be edited one by one. A tx line
// with n = 0 only states the sequence and what is on the disk.
//
// Record lines may have two more members between $type and val: "ver" is the
// sequence of the transaction that wrote the record, where it is not that of
// the line above; "expires" is the time at which it ends.
const (
	txPrefix     = `{"tx":`
	blockPrefix  = `{"block":`
	headerPrefix = `{"Creation":`
	expiryLayout = "2006-01-02T15:04:05.000Z07:00"

	// maxSeq keeps sequences from a damaged file away from overflow.
	maxSeq = 1 << 53
)

// controlMax is more than the longest tx or block line.
const controlMax = 160

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// control is a parsed tx or block line.
type control struct {
	block  bool
	seq    uint64
	n      int
	length int
	synced uint64
	crc    uint32
	signed int // bytes of the line that the checksum covers
}

// appendControl appends the line that opens body.
func appendControl(b []byte, c control, body []byte) []byte {
	start := len(b)
	if c.block {
		b = append(b, blockPrefix...)
	} else {
		b = append(b, txPrefix...)
	}
	b = strconv.AppendUint(b, c.seq, 10)
	b = append(b, `,"n":`...)
	b = strconv.AppendInt(b, int64(c.n), 10)
	b = append(b, `,"len":`...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	if c.synced != 0 {
		b = append(b, `,"synced":`...)
		b = strconv.AppendUint(b, c.synced, 10)
	}
	t := castagnoli()
	crc := crc32.Update(crc32.Checksum(b[start:], t), t, body)
	return appendCRC(b, crc)
}

func appendCRC(b []byte, crc uint32) []byte {
	const hex = "0123456789abcdef"
	b = append(b, `,"crc":"`...)
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, hex[crc>>shift&15])
	}
	return append(b, '"', '}', '\n')
}

// isControl reports whether a line is meant as a tx or block line.
func isControl(line []byte) bool {
	return bytes.HasPrefix(line, []byte(txPrefix)) || bytes.HasPrefix(line, []byte(blockPrefix))
}

// parseControl reads a tx or block line without its line feed. Only the exact
// form that appendControl writes is accepted.
func parseControl(line []byte) (c control, ok bool) {
	b := line
	switch {
	case bytes.HasPrefix(b, []byte(txPrefix)):
		b = b[len(txPrefix):]
	case bytes.HasPrefix(b, []byte(blockPrefix)):
		b, c.block = b[len(blockPrefix):], true
	default:
		return c, false
	}
	var n, length uint64
	if c.seq, b, ok = takeUint(b); !ok || c.seq > maxSeq {
		return c, false
	}
	if n, b, ok = takeMember(b, `,"n":`); !ok {
		return c, false
	}
	if length, b, ok = takeMember(b, `,"len":`); !ok {
		return c, false
	}
	if synced, rest, has := takeMember(b, `,"synced":`); has {
		c.synced, b = synced, rest
	}
	if n > length || length > math.MaxInt/2 || c.synced > c.seq {
		return c, false
	}
	c.n, c.length = int(n), int(length)
	c.signed = len(line) - len(b)
	const crcLen = len(`,"crc":"00000000"}`)
	if len(b) != crcLen || string(b[:8]) != `,"crc":"` || string(b[16:]) != `"}` {
		return c, false
	}
	for _, h := range b[8:16] {
		switch {
		case isDigit(h):
			c.crc = c.crc<<4 | uint32(h-'0')
		case h >= 'a' && h <= 'f':
			c.crc = c.crc<<4 | uint32(h-'a'+10)
		default:
			return c, false
		}
	}
	return c, true
}

func takeMember(b []byte, name string) (v uint64, rest []byte, ok bool) {
	if len(b) < len(name) || string(b[:len(name)]) != name {
		return 0, b, false
	}
	return takeUint(b[len(name):])
}

// takeUint reads a decimal number of at most 18 digits.
func takeUint(b []byte) (v uint64, rest []byte, ok bool) {
	i := 0
	for i < len(b) && i < 18 && isDigit(b[i]) {
		v = v*10 + uint64(b[i]-'0')
		i++
	}
	if i == 0 || i < len(b) && isDigit(b[i]) {
		return 0, b, false
	}
	return v, b[i:], true
}

// parsedLine is a record line taken apart. Its slices share the line's bytes.
type parsedLine struct {
	key      string
	typeName []byte // characters of the name; nil for none
	value    []byte // JSON; nil for a deletion
	version  uint64 // 0 when the line does not say
	expiry   int64

	lastType []byte // parseTrusted's: the member $type with its comma
}

// Reasons for which a line is skipped.
var (
	errNoKey     = errors.New("no text member \"key\"")
	errNoValue   = errors.New("no member \"val\"")
	errNeedsType = errors.New("an object or array without \"$type\"")
	errKeyLong   = errors.New("key longer than 65535 bytes")
	errBigValue  = errors.New("value longer than 1 GiB")
	errNotObject = errors.New("not a JSON object")
	errBadExpiry = errors.New("member \"expires\" is not a time")
	errUTF8      = errors.New("not valid UTF-8")
)

// parseTrusted takes a line apart that a checksum vouches for: as the writer
// of such lines always puts val last, the value is not scanned. It returns
// false for lines that need parseLine. The key shares the line's bytes.
func parseTrusted(line []byte, p *parsedLine) bool {
	const keyPrefix, valPrefix = `{"key":"`, `,"val":`
	if len(line) < len(keyPrefix)+len(valPrefix)+3 || string(line[:len(keyPrefix)]) != keyPrefix ||
		line[len(line)-1] != '}' {
		return false
	}
	b := line[len(keyPrefix) : len(line)-1]
	q := bytes.IndexByte(b, '"')
	if q < 0 || q > MaxKeyBytes || bytes.IndexByte(b[:q], '\\') >= 0 {
		return false
	}
	last := p.lastType
	*p = parsedLine{key: viewString(b[:q])}
	b = b[q+1:]
	const typePrefix = `,"$type":"`
	if len(last) > 0 && len(b) > len(last) && string(b[:len(last)]) == string(last) {
		// Most lines have the type of the one before.
		p.typeName, p.lastType, b = last[len(typePrefix):len(last)-1], last, b[len(last):]
	} else if len(b) > len(typePrefix) && string(b[:len(typePrefix)]) == typePrefix {
		q = bytes.IndexByte(b[len(typePrefix):], '"')
		if q <= 0 || bytes.IndexByte(b[len(typePrefix):len(typePrefix)+q], '\\') >= 0 {
			return false
		}
		q += len(typePrefix)
		p.typeName, p.lastType, b = b[len(typePrefix):q], b[:q+1], b[q+1:]
	}
	if v, rest, ok := takeMember(b, `,"ver":`); ok {
		p.version, b = v, rest
	}
	const expPrefix = `,"expires":"`
	if len(b) > len(expPrefix) && string(b[:len(expPrefix)]) == expPrefix {
		return false
	}
	if len(b) <= len(valPrefix) || string(b[:len(valPrefix)]) != valPrefix || len(b) > MaxValueBytes {
		return false
	}
	p.value = b[len(valPrefix):]
	if p.typeName != nil {
		return true
	}
	switch c := p.value[0]; {
	case c == 'n':
		p.value = nil
		return len(b) == len(valPrefix)+len("null")
	case c == '"':
		return len(p.value) > 1 && p.value[len(p.value)-1] == '"'
	default:
		return c == 't' || c == 'f' || c == '-' || isDigit(c)
	}
}

// parseLine takes any record line apart and checks all of it.
func parseLine(line []byte, p *parsedLine) error {
	*p = parsedLine{}
	i := skipSpace(line, 0)
	if i >= len(line) || line[i] != '{' {
		return errNotObject
	}
	i = skipSpace(line, i+1)
	hasKey, hasValue := false, false
	for first := true; ; first = false {
		if i >= len(line) {
			return errShort
		}
		if line[i] == '}' && first {
			return errNoKey
		}
		nameAt := i
		valueAt, err := skipName(line, i)
		if err != nil {
			return err
		}
		end, err := skipValue(line, valueAt, 0)
		if err != nil {
			return err
		}
		name, value := line[nameAt:], line[valueAt:end]
		switch {
		case bytes.HasPrefix(name, []byte(`"key"`)) && value[0] == '"':
			if p.key, err = unquote(value); err != nil {
				return err
			}
			hasKey = true
		case bytes.HasPrefix(name, []byte(`"val"`)):
			p.value, hasValue = value, true
		default:
			if err := p.setMember(name, value); err != nil {
				return err
			}
		}
		i = skipSpace(line, end)
		if i >= len(line) {
			return errShort
		}
		if line[i] == '}' {
			break
		}
		if line[i] != ',' {
			return errSyntax
		}
		i = skipSpace(line, i+1)
	}
	if skipSpace(line, i+1) != len(line) {
		return errSyntax
	}
	return p.check(hasKey, hasValue)
}

// setMember takes the members that need not be there; others are ignored.
func (p *parsedLine) setMember(name, value []byte) error {
	switch {
	case bytes.HasPrefix(name, []byte(`"$type"`)) && value[0] == '"':
		s, err := unquote(value)
		if err != nil {
			return err
		}
		if s != "" { // the empty name is no name
			p.typeName = []byte(s)
		}
	case bytes.HasPrefix(name, []byte(`"ver"`)):
		if v, rest, ok := takeUint(value); ok && len(rest) == 0 {
			p.version = v
		}
	case bytes.HasPrefix(name, []byte(`"expires"`)) && value[0] == '"':
		t, err := time.Parse(time.RFC3339Nano, string(value[1:len(value)-1]))
		if err != nil || t.UnixMilli() <= 0 {
			return errBadExpiry
		}
		p.expiry = t.UnixMilli()
	}
	return nil
}

func (p *parsedLine) check(hasKey, hasValue bool) error {
	switch {
	case !hasKey:
		return errNoKey
	case !hasValue:
		return errNoValue
	case len(p.key) > MaxKeyBytes:
		return errKeyLong
	case len(p.value) > MaxValueBytes:
		return errBigValue
	case p.typeName == nil && (p.value[0] == '{' || p.value[0] == '['):
		return errNeedsType
	case p.typeName == nil && p.value[0] == 'n':
		p.value = nil
	}
	return nil
}

// appendRecord appends a record line. version is left out when it is 0, value
// is JSON, "" deletes.
func appendRecord(b []byte, key, typeName, value string, version uint64, expiry int64) []byte {
	b = appendRecordHead(b, key, typeName, version, expiry)
	if value == "" {
		value = "null"
	}
	b = append(b, value...)
	return append(b, recordEnd...)
}

// recordEnd follows a record's value.
const recordEnd = "}\n"

// appendRecordHead appends what comes before a record's value.
func appendRecordHead(b []byte, key, typeName string, version uint64, expiry int64) []byte {
	b = append(b, `{"key":`...)
	b = appendQuoted(b, key)
	if typeName != "" {
		b = append(b, `,"$type":`...)
		b = appendQuoted(b, typeName)
	}
	if version != 0 {
		b = append(b, `,"ver":`...)
		b = strconv.AppendUint(b, version, 10)
	}
	if expiry != 0 {
		b = append(b, `,"expires":"`...)
		b = time.UnixMilli(expiry).UTC().AppendFormat(b, expiryLayout)
		b = append(b, '"')
	}
	return append(b, `,"val":`...)
}

// recordLineLen is the length of a record's line as a rewrite would write it,
// give or take its version.
func recordLineLen(key, typeName, value string, expiry int64) int {
	n := len(`{"key":,"val":}`+"\n") + quotedLen(key) + len(value)
	if typeName != "" {
		n += len(`,"$type":`) + quotedLen(typeName)
	}
	if expiry != 0 {
		n += len(`,"expires":""`) + len(expiryLayout) - len("07:00") + 1
	}
	return n
}

// header is the first line.
type header struct {
	Creation           time.Time
	LastRewrite        *time.Time
	CompressedEntities []string
}

// timeLayout has the seven digits that the format allows.
const timeLayout = "2006-01-02T15:04:05.0000000-07:00"

// appendHeader appends the line up to the value of CompressedEntities.
func appendHeader(b []byte, creation, rewrite time.Time) []byte {
	b = append(b, headerPrefix+`"`...)
	b = creation.AppendFormat(b, timeLayout)
	b = append(b, `","LastRewrite":`...)
	if rewrite.IsZero() {
		b = append(b, "null"...)
	} else {
		b = append(b, '"')
		b = rewrite.AppendFormat(b, timeLayout)
		b = append(b, '"')
	}
	return append(b, `,"CompressedEntities":`...)
}

func parseHeader(line []byte) (header, error) {
	var raw struct {
		Creation           string
		LastRewrite        *string
		CompressedEntities []string
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return header{}, fmt.Errorf("read header: %w", err)
	}
	h := header{CompressedEntities: raw.CompressedEntities}
	// Times are only for people: one that does not parse is not worth a
	// file that does not open.
	h.Creation, _ = time.Parse(time.RFC3339Nano, raw.Creation)
	if raw.LastRewrite != nil {
		if t, err := time.Parse(time.RFC3339Nano, *raw.LastRewrite); err == nil {
			h.LastRewrite = &t
		}
	}
	return h, nil
}

// cutLine returns the first line of b without its line feed and carriage
// return, and the rest. whole is false when the line feed is missing.
func cutLine(b []byte) (line, rest []byte, whole bool) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		line, rest = b, nil
	} else {
		line, rest, whole = b[:i], b[i+1:], true
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest, whole
}

func validKey(key string) error {
	if len(key) > MaxKeyBytes {
		return errKeyLong
	}
	if !isPlain(key) && !utf8.ValidString(key) {
		return errUTF8
	}
	return nil
}
