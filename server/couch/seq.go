package couch

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
)

// A sequence is shown as N-TOKEN. N only grows, and clients read it as a number;
// the token names the database's incarnation, so that a sequence of one that
// was dropped, and made again under the same name, starts over instead of
// hiding changes.

// token is what a database's sequences end with.
func token(info *osier.DBInfo) string { return hex.EncodeToString(info.UUID[:8]) }

// seqText writes a sequence.
func appendSeq(b []byte, seq osier.Seq, token string) []byte {
	b = strconv.AppendUint(append(b, '"'), uint64(seq), 10)
	return append(append(append(b, '-'), token...), '"')
}

// appendSeq writes a sequence of the request's database.
func (q *request) appendSeq(b []byte, seq osier.Seq) []byte {
	info, err := q.dbInfo()
	if err != nil {
		return append(b, "null"...)
	}
	return appendSeq(b, seq, token(info))
}

var errSince = badRequest("Malformed sequence supplied in 'since' parameter.")

// parseSince reads a sequence that a client sends back. One of another
// incarnation, or beyond the database's end, as after a restore from a backup,
// means the beginning: rather changes twice than never.
func parseSince(text string, info *osier.DBInfo) (osier.Seq, error) {
	text = strings.Trim(text, `"`)
	switch text {
	case "", "0":
		return 0, nil
	case "now":
		return osier.SeqNow, nil
	}
	number, tail, hasToken := strings.Cut(text, "-")
	if strings.HasPrefix(tail, couchToken) {
		return 0, nil // from the CouchDB that the client used before
	}
	n, err := strconv.ParseUint(number, 10, 62)
	if err != nil || hasToken && !isToken(tail) {
		return 0, errSince
	}
	if hasToken && tail != token(info) || osier.Seq(n) > info.LastSeq {
		return 0, nil
	}
	return osier.Seq(n), nil
}

// couchToken is what the tokens of a CouchDB's sequences begin with.
const couchToken = "g1AAA"

func isToken(s string) bool {
	_, err := hex.DecodeString(s)
	return len(s) == 16 && err == nil
}
