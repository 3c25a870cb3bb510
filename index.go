package osier

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/osierdb/osier/internal/mango"
)

// Index is a JSON index: it holds a row for every document that has all of the
// fields (and is what the filter means), in the order of a sort by them. Find
// uses indexes by itself; see DB.Explain. An index is built in the background,
// brought up to date by the query that needs it, and travels with the database as
// a document of ViewsCollection.
type Index struct {
	Name       string // letters, digits or any of _ - . $
	Collection string
	Fields     []SortField
	Filter     Selector // nil: all documents
}

// definition is the document that an index is defined by.
type indexDefinition struct {
	Collection string          `json:"collection"`
	Type       string          `json:"type"`
	Keys       json.RawMessage `json:"keys"`
	Partial    json.RawMessage `json:"partial,omitempty"`
}

// definition returns the document that defines the index.
func (x *Index) definition() ([]byte, error) {
	sort := make(mango.Sort, len(x.Fields))
	for i, f := range x.Fields {
		sort[i] = mango.SortField(f)
	}
	keys, err := sort.MarshalJSON()
	if err != nil {
		return nil, err
	}
	d := indexDefinition{Collection: x.Collection, Type: "json", Keys: keys}
	if x.Filter != nil {
		text, swap, err := x.Filter.selector()
		if err == nil && swap {
			if text, err = mango.Translate(text, nil); err != nil {
				err = RefusedSelector("create index", err)
			}
		}
		if err != nil {
			return nil, err
		}
		d.Partial = text
	}
	return json.Marshal(d)
}

// CreateIndex defines an index. created is false if there is the same one
// already; ErrExists if there is another of that name, ErrInvalid if the
// definition makes none. It returns before the index is built: see ViewInfo.
func (db *DB) CreateIndex(ctx context.Context, x Index) (created bool, err error) {
	if err := CheckCollectionName(x.Name); err != nil {
		return false, &Error{Kind: KindInvalid, Op: "create index", DB: db.name, ID: x.Name, Err: errors.New("the name of an index is of letters, digits or any of _ - . $")}
	}
	body, err := x.definition()
	if err != nil {
		return false, err
	}
	op := &Op{Kind: OpPut, Collection: ViewsCollection, ID: MustID(x.Name), Expect: ExpectAbsent, Codec: TagJSON, Body: body}
	_, err = db.write(ctx, op)
	if KindOf(err) != KindConflict {
		return err == nil, err
	}
	have, found, err := db.index(ctx, x.Name)
	if err != nil {
		return false, err
	}
	if found {
		if same, err := have.definition(); err == nil && bytes.Equal(same, body) {
			return false, nil
		}
	}
	return false, &Error{Kind: KindExists, Op: "create index", DB: db.name, ID: x.Name, Err: errors.New("there is another view or index of that name")}
}

// DropIndex removes an index; ErrNotFound if there is none of that name. Its
// space comes back by itself.
func (db *DB) DropIndex(ctx context.Context, name string) error {
	_, found, err := db.index(ctx, name)
	if err != nil {
		return err
	}
	if !found {
		return &Error{Kind: KindNotFound, Op: "drop index", DB: db.name, ID: name}
	}
	_, err = db.write(ctx, &Op{Kind: OpPut, Collection: ViewsCollection, ID: MustID(name), Expect: ExpectPresent, Deleted: true, Codec: TagJSON})
	return err
}

// index reads one index's definition; found is false for what is none.
func (db *DB) index(ctx context.Context, name string) (x Index, found bool, err error) {
	if name == "" {
		return x, false, nil
	}
	for row, err := range db.Query(ctx, &Query{Kind: QueryGet, Collection: ViewsCollection, IDs: []ID{MustID(name)}, Parts: WithBody}) {
		if err != nil {
			return x, false, err
		}
		if !row.Missing {
			x, found = parseIndex(name, row.Body)
		}
	}
	return x, found, nil
}

// Indexes lists the JSON indexes of a collection, or of all with "", by name.
func (db *DB) Indexes(ctx context.Context, collection string) ([]Index, error) {
	var list []Index
	for row, err := range db.Query(ctx, &Query{Kind: QueryScan, Collection: ViewsCollection, Parts: WithBody}) {
		if err != nil {
			return nil, err
		}
		if x, ok := parseIndex(row.ID.String(), row.Body); ok && (collection == "" || x.Collection == collection) {
			list = append(list, x)
		}
	}
	return list, nil
}

// parseIndex reads a definition; ok is false if it is not one of an index.
func parseIndex(name string, body []byte) (x Index, ok bool) {
	var d indexDefinition
	if err := json.Unmarshal(body, &d); err != nil || d.Type != "json" {
		return x, false
	}
	sort, err := mango.ParseSort(d.Keys)
	if err != nil {
		return x, false
	}
	x = Index{Name: name, Collection: d.Collection}
	for _, f := range sort {
		x.Fields = append(x.Fields, SortField(f))
	}
	if len(d.Partial) > 0 {
		x.Filter = Mango(d.Partial)
	}
	return x, true
}

// CouchName returns what CouchDB's _index calls the index: the design document,
// without "_design/", and the name in it. An index that was not made there has
// its own name for both.
func (x *Index) CouchName() (design, name string) {
	d, n, grouped := strings.Cut(x.Name, IndexGroupMark)
	if !grouped {
		return x.Name, x.Name
	}
	return unescapeName(d), unescapeName(n)
}

// CouchIndexName returns the name of the index that CouchDB's _index calls so,
// and, without a name, what all those of the design document begin with.
func CouchIndexName(design, name string) string {
	design = strings.TrimPrefix(design, "_design/")
	return escapeName(design) + IndexGroupMark + escapeName(name)
}

// escapeName writes what names may not hold, and $ itself, as $ and two digits.
func escapeName(s string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
			b.WriteByte(c)
		default:
			b.WriteString("$" + digits[c>>4:c>>4+1] + digits[c&15:c&15+1])
		}
	}
	return b.String()
}

func unescapeName(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '$' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// ParseIndexRequest reads the body of CouchDB's POST _index: the index, without
// its Collection. Design document and name that are not given are made of the
// definition. Errors hold a SelectorError.
func ParseIndexRequest(body []byte) (*Index, error) {
	var req struct {
		Index *struct {
			Fields  json.RawMessage `json:"fields"`
			Partial json.RawMessage `json:"partial_filter_selector"`
		} `json:"index"`
		Design string `json:"ddoc"`
		Name   string `json:"name"`
		Type   string `json:"type"`
	}
	bad := func(name, reason string) error {
		return &Error{Kind: KindInvalid, Op: "create index", Err: &SelectorError{Name: name, Reason: reason}}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, bad(mango.ErrBadRequest, "invalid UTF-8 JSON")
	}
	switch {
	case req.Index == nil:
		return nil, bad(mango.ErrMissingKey, "Missing required key: index")
	case req.Type != "" && req.Type != "json":
		return nil, &Error{Kind: KindUnsupported, Op: "create index", Err: &SelectorError{Name: "invalid_index", Reason: "Unsupported index type: " + req.Type}}
	case len(req.Index.Fields) == 0:
		return nil, bad(mango.ErrMissingKey, "Missing required key: fields")
	}
	sort, err := mango.ParseSort(req.Index.Fields)
	if err != nil {
		return nil, RefusedSelector("create index", err)
	}
	if len(sort) == 0 {
		return nil, bad(mango.ErrInvalidFields, "Index has no fields.")
	}
	x := &Index{}
	for _, f := range sort {
		x.Fields = append(x.Fields, SortField(f))
	}
	if len(req.Index.Partial) > 0 {
		if _, err := mango.Compile(req.Index.Partial, nil); err != nil {
			return nil, RefusedSelector("create index", err)
		}
		x.Filter = Mango(req.Index.Partial)
	}
	definition, err := x.definition()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(definition)
	own := hex.EncodeToString(sum[:20])
	if req.Design == "" {
		req.Design = own
		if req.Name != "" {
			// One of another name is another index.
			sum = sha256.Sum256(append(definition, req.Name...))
			req.Design = hex.EncodeToString(sum[:20])
		}
	}
	if req.Name == "" {
		req.Name = own
	}
	if x.Name = CouchIndexName(req.Design, req.Name); CheckCollectionName(x.Name) != nil {
		return nil, bad("invalid_index_name", "Invalid index name: it is too long")
	}
	return x, nil
}

// CouchForm returns the index as CouchDB's GET _index lists it.
func (x *Index) CouchForm() ([]byte, error) {
	type form struct {
		Design string `json:"ddoc"`
		Name   string `json:"name"`
		Type   string `json:"type"`
		Def    struct {
			Fields  json.RawMessage `json:"fields"`
			Partial json.RawMessage `json:"partial_filter_selector,omitempty"`
		} `json:"def"`
	}
	var f form
	f.Design, f.Name = x.CouchName()
	f.Design, f.Type = "_design/"+f.Design, "json"
	body, err := x.definition()
	if err != nil {
		return nil, err
	}
	var d indexDefinition
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, err
	}
	f.Def.Fields, f.Def.Partial = d.Keys, d.Partial
	return json.Marshal(f)
}
