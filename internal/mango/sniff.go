package mango

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unsafe"
)

// Of valid JSON the members that a selector asks for can be found without
// walking over the others. A name in quotes that occurs in the text, and whose
// first quote is not escaped, is a whole string: that quote cannot end another
// one, since what follows the end of a string is white space or one of ,:]}, with
// which no such name begins. It is a member of the document if a colon follows
// and if as many brackets have been closed before it as opened, but one. All of
// that is found by vectorised searches and by words of eight bytes.

// mostSniffed is up to how many members are searched for: with more a walk over
// all is as soon done.
const mostSniffed = 2

// sniffable returns the name in quotes as it stands in JSON, or "" if it may
// stand there in several ways without \u, or cannot be told from other text.
func sniffable(name string) string {
	if name == "" || strings.IndexByte(",:]} \t\r\n", name[0]) >= 0 {
		return ""
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c == '"' || c == '\\' || c == '/' || c == 0x7f {
			return ""
		}
	}
	return `"` + name + `"`
}

// prepare decides whether the scope's paths can be sniffed.
func (s *scope) prepare() {
	kids := s.tree.kids
	if s.tree.slot >= 0 || len(kids) > mostSniffed {
		return
	}
	s.sniffs = true
	for i := range kids {
		kids[i].quoted = sniffable(kids[i].name)
		s.sniffs = s.sniffs && kids[i].quoted != ""
	}
}

// sniff fills the slots as a walk over a valid object does, a member's last
// occurrence counting. ok is false if the walk has to be done.
func (s *scope) sniff(text string, slots []value) (ok bool) {
	if !s.sniffs || strings.Contains(text, `\u`) {
		return false
	}
	depth, counted := 0, 0 // brackets open at counted, which is outside of any string
	for from := 0; ; {
		colon := strings.IndexByte(text[from:], ':')
		if colon < 0 {
			return true
		}
		colon += from
		from = colon + 1
		end := colon
		for end > 2 && text[end-1] <= ' ' {
			end--
		}
		if end < 4 || text[end-1] != '"' {
			continue // within a string
		}
		kid := s.sniffed(text[:end])
		if kid == nil {
			continue
		}
		start := end - len(kid.quoted)
		if text[start-1] == '\\' {
			continue // within a string
		}
		depth += openBrackets(text[counted:start])
		if counted = start; depth != 1 {
			continue
		}
		clear(slots[kid.low:kid.high]) // of a member of the same name
		w := walk{text: text, slots: slots, found: inBody}
		if from = w.find(kid, space(text, from)); from < 0 {
			return false
		}
		depth, counted = depth+openBrackets(text[counted:from]), from
	}
}

// sniffed returns the kid whose name in quotes a text ends with. The names of
// the document itself are not the body's.
func (s *scope) sniffed(text string) *node {
	last := text[len(text)-2]
	for i := range s.tree.kids {
		kid := &s.tree.kids[i]
		n := len(kid.quoted)
		if kid.quoted[n-2] == last && n < len(text) && text[len(text)-n:] == kid.quoted && i != s.id && i != s.rev {
			return kid
		}
	}
	return nil
}

const (
	everyByte = 0x0101010101010101
	highBits  = 0x80 * everyByte
)

// equalBytes returns the high bits of the bytes of x that are c.
func equalBytes(x uint64, c byte) uint64 {
	x ^= uint64(c) * everyByte
	return ^((x&^highBits + 0x7f*everyByte) | x) & highBits
}

// openBrackets returns how many more brackets are opened than closed in a text
// that begins and ends outside of strings.
func openBrackets(s string) int {
	if strings.IndexByte(s, '\\') >= 0 {
		return openBracketsSlow(s)
	}
	open := 0
	var inside uint64 // all high bits if a string is open, else none
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for len(b) > 0 {
		var x uint64
		if len(b) >= 8 {
			x, b = binary.LittleEndian.Uint64(b), b[8:]
		} else {
			var last [8]byte
			copy(last[:], b)
			x, b = binary.LittleEndian.Uint64(last[:]), nil
		}
		quotes := equalBytes(x, '"')
		quotes ^= quotes << 8
		quotes ^= quotes << 16
		quotes ^= quotes << 32 // a bit is set now if a string is open behind the byte
		quotes ^= inside
		x |= 0x20 * everyByte // makes [ into {, ] into }, and nothing else into these
		open += bits.OnesCount64(equalBytes(x, '{')&^quotes) - bits.OnesCount64(equalBytes(x, '}')&^quotes)
		inside = uint64(int64(quotes)>>63) & highBits
	}
	return open
}

// openBracketsSlow is openBrackets for text with escapes.
func openBracketsSlow(s string) (open int) {
	for i := 0; i < len(s); {
		switch s[i] {
		case '"':
			if i = stringEnd(s, i); i < 0 {
				return open
			}
			continue
		case '{', '[':
			open++
		case '}', ']':
			open--
		}
		i++
	}
	return open
}
