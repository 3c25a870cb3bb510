package mango

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Request is the body of CouchDB's _find and _explain.
type Request struct {
	Selector *Selector
	Fields   []string // empty: whole documents
	Sort     Sort
	Limit    int64    // default 25
	Skip     int64    // default 0
	Bookmark string   // of an earlier answer; empty: from the start
	UseIndex []string // a design document without "_design/", then perhaps an index
	R        int64    // default 1

	Conflicts      bool // default false
	Update         bool // default true
	Stable         bool // default false
	ExecutionStats bool // default false
	AllowFallback  bool // default true
	Partition      string

	projection *Projection
}

// Projection returns the projection on Fields.
func (r *Request) Projection() *Projection { return r.projection }

// A field of a request's body: its name, and what takes its value at an offset.
type requestField struct {
	name string
	read func(text string, i int) error
}

// ParseRequest reads the body of a request. Errors are of type [*Error]: the
// first of the known keys, in CouchDB's order, whose value is wrong, then the
// first unknown key. A Place is relative to the key's value, except for the
// key itself.
func ParseRequest(body []byte, o *Options) (*Request, error) {
	if !validText(body) {
		return nil, &Error{Name: ErrBadRequest, Reason: "invalid UTF-8 JSON"}
	}
	text := string(body)
	start := space(text, 0)
	if text[start] != '{' {
		return nil, &Error{Name: ErrBadRequest, Reason: "Request body must be a JSON object", Offset: start}
	}
	r := &Request{Limit: 25, R: 1, Update: true, AllowFallback: true}
	list := members(text, start)
	at := map[string]int{}
	for _, m := range list {
		at[m.name] = m.value
	}
	known := map[string]bool{}
	for _, f := range r.fields(o.withDefaults()) {
		known[f.name] = true
		i, ok := at[f.name]
		if !ok {
			if f.name == "selector" {
				return nil, &Error{Name: ErrMissingKey, Reason: "Missing required key: selector"}
			}
			continue
		}
		if err := f.read(text, i); err != nil {
			return nil, err
		}
	}
	for _, m := range list {
		if !known[m.name] {
			return nil, &Error{Name: ErrInvalidKey, Reason: "Invalid key " + brief(m.name) + " for this request.", Place: m.name, Offset: m.value}
		}
	}
	return r, nil
}

// fields returns what a body may hold, in the order in which it is checked.
func (r *Request) fields(o Options) []requestField {
	return []requestField{
		{"selector", func(text string, i int) (err error) {
			r.Selector, err = compile(text[i:valueEnd(text, i)], o)
			if e := (*Error)(nil); errors.As(err, &e) {
				e.Offset += i
			}
			return err
		}},
		{"use_index", r.readUseIndex},
		{"bookmark", r.readBookmark},
		{"limit", integerField(&r.Limit, 0)},
		{"skip", integerField(&r.Skip, 0)},
		{"sort", func(text string, i int) (err error) {
			r.Sort, err = parseSort(text, i)
			return err
		}},
		{"fields", r.readFields},
		{"partition", r.readPartition},
		{"r", integerField(&r.R, 1)},
		{"conflicts", boolField(&r.Conflicts)},
		{"stale", r.readStale},
		{"update", boolField(&r.Update)},
		{"stable", boolField(&r.Stable)},
		{"execution_stats", boolField(&r.ExecutionStats)},
		{"allow_fallback", boolField(&r.AllowFallback)},
	}
}

func integerField(p *int64, least int64) func(string, int) error {
	return func(text string, i int) error {
		value := compact(text, i)
		n, err := strconv.ParseInt(value, 10, 64)
		if err == nil && n >= least {
			*p = n
			return nil
		}
		if least == 0 {
			return &Error{Name: ErrInvalidNonNegInt, Reason: brief(value) + " is not an integer greater than or equal to zero", Offset: i}
		}
		return &Error{Name: ErrInvalidPosInt, Reason: brief(value) + " is not an integer greater than zero", Offset: i}
	}
}

func boolField(p *bool) func(string, int) error {
	return func(text string, i int) error {
		switch text[i] {
		case 't', 'f':
			*p = text[i] == 't'
			return nil
		}
		return &Error{Name: ErrInvalidBoolean, Reason: "Invalid boolean value: " + brief(compact(text, i)), Offset: i}
	}
}

// readUseIndex takes "ddoc", "ddoc/index", either with "_design/" before it, or
// an array of one or two of these names.
func (r *Request) readUseIndex(text string, i int) error {
	c := newConstant(text, i)
	var names []string
	ok := true
	switch c.kind {
	case kindNull:
	case kindString:
		names = strings.Split(strings.TrimPrefix(c.str, "_design/"), "/")
		ok = len(names) <= 2
	case kindArray:
		for _, e := range c.items {
			ok = ok && e.kind == kindString
			names = append(names, strings.TrimPrefix(e.str, "_design/"))
		}
		ok = ok && len(names) <= 2
	default:
		ok = false
	}
	if !ok {
		return &Error{Name: ErrInvalidIndexName, Reason: "Invalid index name: " + brief(c.json), Offset: i}
	}
	r.UseIndex = names
	return nil
}

func (r *Request) readBookmark(text string, i int) error {
	c := newConstant(text, i)
	if c.kind != kindString && c.kind != kindNull {
		return &Error{Name: ErrInvalidBookmark, Reason: "Invalid bookmark value: " + brief(c.json), Offset: i}
	}
	if c.str != "nil" {
		r.Bookmark = c.str
	}
	return nil
}

func (r *Request) readFields(text string, i int) (err error) {
	if text[i] != '[' {
		return &Error{Name: ErrInvalidFields, Reason: "Fields must be an array of strings, not: " + brief(compact(text, i)), Offset: i}
	}
	for k, at := range elements(text, i) {
		c := newConstant(text, at)
		if c.kind != kindString {
			return &Error{Name: ErrInvalidField, Reason: "Invalid JSON for field spec: " + brief(c.json), Place: fmt.Sprintf("[%d]", k), Offset: at}
		}
		r.Fields = append(r.Fields, c.str)
	}
	r.projection, err = NewProjection(r.Fields)
	return err
}

func (r *Request) readPartition(text string, i int) error {
	c := newConstant(text, i)
	if c.kind != kindString || strings.HasPrefix(c.str, "_") {
		return &Error{Name: ErrBadRequest, Reason: "Partition must be a string that does not begin with an underscore, not: " + brief(c.json), Offset: i}
	}
	r.Partition = c.str
	return nil
}

// readStale takes the old spelling of update: "ok" reads without bringing the
// index up to date.
func (r *Request) readStale(text string, i int) error {
	switch value := compact(text, i); value {
	case `"ok"`:
		r.Update = false
	case `"false"`, "false":
	default:
		return &Error{Name: ErrBadRequest, Reason: "Invalid value for stale: " + brief(value), Offset: i}
	}
	return nil
}

// ParseFields reads the JSON array of a projection's paths.
func ParseFields(fields []byte) (*Projection, error) {
	if !validText(fields) {
		return nil, &Error{Name: ErrBadRequest, Reason: "invalid UTF-8 JSON"}
	}
	var r Request
	text := string(bytes.TrimSpace(fields))
	if err := r.readFields(text, 0); err != nil {
		return nil, err
	}
	return r.projection, nil
}
