package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/osierdb/osier"
)

// target is a command line's DB or DB:COLLECTION.
type target struct {
	db         string
	collection string // osier.DefaultCollection if it was not named
	whole      bool   // the collection was not named
}

// UnmarshalText reads an argument; kong calls it.
func (t *target) UnmarshalText(b []byte) error {
	db, collection, named := strings.Cut(string(b), ":")
	if err := osier.CheckDBName(db); err != nil {
		return err
	}
	if !named {
		*t = target{db, osier.DefaultCollection, true}
		return nil
	}
	if err := osier.CheckCollectionName(collection); err != nil {
		return err
	}
	*t = target{db, collection, false}
	return nil
}

func (t target) String() string {
	if t.whole {
		return t.db
	}
	return t.db + ":" + t.collection
}

// idFlags say how ids on the command line are to be read.
type idFlags struct {
	IDType string `name:"id-type" enum:"text,int,uint,float,uuid,time,json" default:"text" help:"Kind of the ids given: text, int, uint, float, uuid, time or json (an array is a tuple)."`
}

func (f idFlags) id(s string) (osier.ID, error) {
	id, err := parseID(s, f.IDType)
	if err != nil {
		return id, usagef("id %s: %w", oneLine(s), err)
	}
	return id, nil
}

// parseID reads an id of the kind typ.
func parseID(s, typ string) (osier.ID, error) {
	var v any = s
	var err error
	switch typ {
	case "int":
		v, err = strconv.ParseInt(s, 10, 64)
	case "uint":
		v, err = strconv.ParseUint(s, 10, 64)
	case "float":
		v, err = strconv.ParseFloat(s, 64)
	case "uuid":
		v, err = parseUUID(s)
	case "time":
		v, err = parseTime(s)
	case "json":
		return idFromJSON([]byte(s))
	}
	var ne *strconv.NumError
	if errors.As(err, &ne) {
		err = fmt.Errorf("want a value of type %s: %w", typ, ne.Err)
	}
	if err != nil {
		return osier.ID{}, err
	}
	return makeID(v)
}

// makeID is osier.IDOf with an error that says no more than the reason.
func makeID(v any) (osier.ID, error) {
	id, err := osier.IDOf(v)
	var oe *osier.Error
	if errors.As(err, &oe) && oe.Err != nil {
		return id, oe.Err
	}
	return id, err
}

func parseUUID(s string) (osier.UUID, error) {
	var u osier.UUID
	digits := strings.ReplaceAll(s, "-", "")
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != len(u) || len(s) != 32 && (len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-') {
		return u, errors.New("want a UUID such as 0190a6e4-93d1-7c2e-8f00-3a5b7c9d1e2f")
	}
	return osier.UUID(b), nil
}

// parseTime reads RFC 3339, or a date with or without a time of day in the
// local zone.
func parseTime(s string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("want a time such as 2026-05-04T10:20:30Z or 2026-05-04")
}

// Ids of the kinds that JSON lacks are objects with one of these members.
const (
	idBytes = "$bytes" // base64
	idUUID  = "$uuid"
	idTime  = "$time"  // RFC 3339
	idFloat = "$float" // NaN, Inf, -Inf
)

// idFromJSON reads an id from a JSON value: what appendIDJSON writes.
func idFromJSON(b []byte) (osier.ID, error) {
	if !json.Valid(b) {
		return osier.ID{}, errors.New("want a JSON value")
	}
	if !utf8.Valid(b) {
		return osier.ID{}, errors.New("invalid UTF-8")
	}
	v, err := decodeJSON(b)
	if err != nil {
		return osier.ID{}, err
	}
	if v == nil {
		return osier.ID{}, errors.New("null is no id")
	}
	if v, err = idValue(v); err != nil {
		return osier.ID{}, err
	}
	return makeID(v)
}

// idValue turns a decoded JSON value into one that an id can hold. Decoding has
// bounded the depth.
func idValue(v any) (any, error) {
	switch x := v.(type) {
	case []any:
		t := make(osier.Tuple, len(x))
		for i := range x {
			var err error
			if t[i], err = idValue(x[i]); err != nil {
				return nil, err
			}
		}
		return t, nil
	case map[string]any:
		for name, m := range x {
			if s, ok := m.(string); ok && len(x) == 1 {
				return specialID(name, s)
			}
		}
		return nil, errors.New("an object is no id")
	}
	return v, nil
}

func specialID(name, s string) (any, error) {
	switch name {
	case idBytes:
		return base64.StdEncoding.DecodeString(s)
	case idUUID:
		return parseUUID(s)
	case idTime:
		return time.Parse(time.RFC3339Nano, s)
	case idFloat:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !math.IsNaN(f) && !math.IsInf(f, 0) {
			return nil, errors.New("want NaN, Inf or -Inf")
		}
		return f, nil
	}
	return nil, errors.New("an object is no id")
}

// appendIDJSON writes an id as a JSON value that idFromJSON reads back.
func appendIDJSON(dst []byte, id osier.ID) []byte { return appendKeyJSON(dst, id.Value()) }

func appendKeyJSON(dst []byte, v any) []byte {
	special := func(name, s string) []byte {
		return append(appendQuoted(append(appendQuoted(append(dst, '{'), name), ':'), s), '}')
	}
	switch x := v.(type) {
	case string:
		if !utf8.ValidString(x) {
			// Such a text cannot be told from its repaired form in JSON; bytes can.
			return special(idBytes, base64.StdEncoding.EncodeToString([]byte(x)))
		}
		return appendQuoted(dst, x)
	case bool:
		return strconv.AppendBool(dst, x)
	case int64:
		return strconv.AppendInt(dst, x, 10)
	case uint64:
		return strconv.AppendUint(dst, x, 10)
	case *big.Int:
		return x.Append(dst, 10)
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return special(idFloat, strings.TrimPrefix(strconv.FormatFloat(x, 'g', -1, 64), "+"))
		}
		return strconv.AppendFloat(dst, x, 'g', -1, 64)
	case time.Time:
		return special(idTime, x.UTC().Format(time.RFC3339Nano))
	case []byte:
		if len(x) == len(osier.UUID{}) {
			return special(idUUID, osier.MustID(x).String())
		}
		return special(idBytes, base64.StdEncoding.EncodeToString(x))
	case osier.Tuple:
		dst = append(dst, '[')
		for i, field := range x {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendKeyJSON(dst, field)
		}
		return append(dst, ']')
	}
	return append(dst, "null"...)
}

// jsonID shows an ID in JSON output.
type jsonID struct{ osier.ID }

// MarshalJSON writes what idFromJSON reads.
func (id jsonID) MarshalJSON() ([]byte, error) { return appendIDJSON(nil, id.ID), nil }

// looksMade reports whether id has the form of those that the store makes.
func looksMade(id osier.ID) bool {
	s, ok := id.Text()
	return ok && len(s) == 16 && strings.Trim(s, "0123456789abcdefghjkmnpqrstvwxyz") == ""
}

// idFromMember turns the value of an id member into an ID. Typ is a kind of
// parseID, or "auto": JSON values keep their kind, and what was a cell of a
// CSV file is text.
func idFromMember(value []byte, typ string, csv bool) (osier.ID, error) {
	if bytes.Equal(value, []byte("null")) {
		return osier.ID{}, errors.New("null is no id")
	}
	if typ == "json" || typ == "auto" && !csv {
		return idFromJSON(value)
	}
	text := string(value)
	switch value[0] {
	case '"':
		text = unquote(value)
	case '{', '[':
		return osier.ID{}, fmt.Errorf("an object or array is no %s", typ)
	}
	if typ == "auto" {
		typ = "text"
	}
	return parseID(text, typ)
}
