package keys

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Format returns an encoded key for people to read: in messages, logs and tools.
// It never fails, and it is not meant to be parsed.
//
// A key that is one string is that string as it is. An array, or several
// elements in a row, is its elements joined by "/". Elsewhere a string is quoted
// as in Go if it is empty, has a slash, comma, colon, quote, bracket, space or
// character that does not print, or could be taken for another kind of element;
// bytes are "0x" and hexadecimal digits, 16 bytes a UUID; times are RFC 3339 in
// UTC; integers of more than 1,024 bits are "16#" and hexadecimal digits, since
// their decimal form costs more than linear time; nested arrays and objects look like [a,b] and {name:a}. What is not a key
// is "!" and hexadecimal digits to the end.
func Format(b []byte) string {
	v, rest, err := Next(b)
	if err == nil && len(rest) == 0 {
		switch v.Kind() {
		case KindString:
			return v.Text()
		case KindArray:
			b = v.raw[1 : len(v.raw)-1]
			if len(b) == 0 {
				return "[]"
			}
		}
	}
	var out []byte
	for sep := false; len(b) > 0; sep = true {
		if sep {
			out = append(out, '/')
		}
		v, rest, err := Next(b)
		if err != nil {
			return string(hex.AppendEncode(append(out, '!'), b))
		}
		out, b = appendFormat(out, v), rest
	}
	return string(out)
}

// String returns v as [Format] does an element among others.
func (v Value) String() string { return string(appendFormat(nil, v)) }

func appendFormat(out []byte, v Value) []byte {
	switch v.Kind() {
	case KindNil:
		return append(out, "nil"...)
	case KindBool:
		return strconv.AppendBool(out, v.Bool())
	case KindNumber:
		x, _ := v.number()
		return appendFormatNumber(out, &x)
	case KindTime:
		return v.Time().AppendFormat(out, time.RFC3339Nano)
	case KindString:
		return appendText(out, v.Text())
	case KindBytes:
		return appendHex(out, v.Bytes())
	case KindArray:
		out = append(out, '[')
		sep := ""
		for e := range v.Elems() {
			out = appendFormat(append(out, sep...), e)
			sep = ","
		}
		return append(out, ']')
	}
	out = append(out, '{')
	sep := ""
	for name, e := range v.Members() {
		out = append(appendText(append(out, sep...), name), ':')
		out = appendFormat(out, e)
		sep = ","
	}
	return append(out, '}')
}

func appendFormatNumber(out []byte, x *number) []byte {
	if i, ok := x.int64(); ok {
		return strconv.AppendInt(out, i, 10)
	}
	i := x.big()
	switch {
	case i == nil:
		return strconv.AppendFloat(out, x.float64(), 'g', -1, 64)
	case x.exp < fullExponent:
		return i.Append(out, 10)
	case x.neg:
		out = append(out, '-')
	}
	return i.Abs(i).Append(append(out, "16#"...), 16)
}

// appendHex appends bytes in hexadecimal, 16 of them in the form of a UUID.
func appendHex(out, b []byte) []byte {
	if len(b) != 16 {
		return hex.AppendEncode(append(out, "0x"...), b)
	}
	for i, n := range []int{4, 2, 2, 2, 6} {
		if i > 0 {
			out = append(out, '-')
		}
		out, b = hex.AppendEncode(out, b[:n]), b[n:]
	}
	return out
}

// appendText appends a string, quoted if it needs to be.
func appendText(out []byte, s string) []byte {
	if plain(s) {
		return append(out, s...)
	}
	return strconv.AppendQuote(out, s)
}

// plain reports whether s can stand unquoted: it cannot be taken for a number,
// time, UUID or bytes, since those begin with a digit or sign or are words.
func plain(s string) bool {
	switch s {
	case "", "nil", "true", "false", "NaN", "Inf":
		return false
	}
	if c := s[0]; '0' <= c && c <= '9' || c == '-' || c == '+' || c == '!' || looksLikeUUID(s) {
		return false
	}
	if !utf8.ValidString(s) {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return strings.ContainsRune(` "/,:[]{}`, r) || !strconv.IsPrint(r)
	}) < 0
}

// looksLikeUUID reports whether s has the dashes of a UUID.
func looksLikeUUID(s string) bool {
	return len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-'
}
