package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/mango"
	"github.com/osierdb/osier/internal/reduce"
)

// viewKind is the kind of an index; its numbers are stored.
type viewKind byte

const (
	viewFields viewKind = 1 // rows from fields, keys by package keys
	viewJSON   viewKind = 2 // the same, keys in CouchDB's collation
	viewGo     viewKind = 3 // rows from a program's function
)

func (k viewKind) String() string {
	switch k {
	case viewFields:
		return "fields"
	case viewJSON:
		return "json"
	}
	return "go"
}

// viewDef says what an index holds.
type viewDef struct {
	kind       viewKind
	collection string
	name       string
	policy     osier.UpdatePolicy
	keep       osier.Keep
	// id tells definitions apart whose rows may differ: a digest of the rows'
	// part of a definition, or the version of a function.
	id         [16]byte
	source     []byte // the document that defines it; nil for functions
	reduceName string
	builtin    reduce.Builtin // nil: none, or own
	own        osier.ViewReducer
	fields     *fieldRows
	code       *osier.ViewCode
}

// fieldRows make the rows of documents from fields.
type fieldRows struct {
	sort      mango.Sort
	keyer     *mango.Keyer
	collation mango.Collation
	picker    *mango.Picker // of spread views: the keys, then the value; else the value
	spread    int           // which key is spread; -1: none
	value     bool
	partial   *mango.Selector
	needsID   bool
}

// definition is the document that defines a view.
type definition struct {
	Collection string          `json:"collection"`
	Type       string          `json:"type"`
	Keys       json.RawMessage `json:"keys"`
	Value      string          `json:"value,omitempty"`
	Spread     string          `json:"spread,omitempty"`
	Reduce     string          `json:"reduce,omitempty"`
	Partial    json.RawMessage `json:"partial,omitempty"`
	Update     string          `json:"update,omitempty"`
	Keep       *struct {
		Changes int    `json:"changes"`
		After   string `json:"after"`
	} `json:"keep,omitempty"`
}

// maxViewKeys bounds the fields of a key.
const maxViewKeys = 16

// parseDefinition reads a document of the collection of definitions.
func parseDefinition(name string, body []byte) (*viewDef, error) {
	var d definition
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return nil, fmt.Errorf("definition of a view: %w", err)
	}
	v := &viewDef{name: name, collection: d.Collection, source: bytes.Clone(body), reduceName: d.Reduce}
	if err := osier.CheckCollectionName(d.Collection); err != nil || d.Collection == osier.ViewsCollection {
		return nil, errors.New(`"collection" must name the collection that the view is of`)
	}
	switch d.Type {
	case "fields", "":
		v.kind = viewFields
	case "json":
		v.kind = viewJSON
	default:
		return nil, fmt.Errorf(`"type" is "fields" or "json", not %q`, d.Type)
	}
	var err error
	if v.policy, err = osier.ParseUpdatePolicy(d.Update); err != nil {
		return nil, fmt.Errorf(`"update": %w`, err)
	}
	if d.Keep != nil {
		v.keep.Changes = d.Keep.Changes
		if d.Keep.After != "" {
			if v.keep.After, err = time.ParseDuration(d.Keep.After); err != nil {
				return nil, fmt.Errorf(`"keep": "after" is a duration such as "2s": %w`, err)
			}
		}
		if v.keep.Changes < 0 || v.keep.After < 0 {
			return nil, errors.New(`"keep" takes no negative numbers`)
		}
	}
	if d.Reduce != "" {
		b, ok := reduce.Lookup(d.Reduce)
		if !ok {
			return nil, fmt.Errorf(`"reduce" is one of %v, not %q`, reduce.Names(), d.Reduce)
		}
		v.builtin = b
	}
	if v.kind == viewJSON {
		d.ascend()
	}
	if v.fields, err = newFieldRows(v.kind, &d); err != nil {
		return nil, err
	}
	v.id = d.digest()
	return v, nil
}

// ascend turns keys that all descend: such an index is that of the ascending keys
// gone backwards. Its rows are kept in ascending order, so that with equal keys
// the ids turn too, as they do in every descending sort.
func (d *definition) ascend() {
	sort, err := mango.ParseSort(d.Keys)
	if err != nil || slices.ContainsFunc(sort, func(f mango.SortField) bool { return !f.Descending }) {
		return // newFieldRows tells what is wrong
	}
	for i := range sort {
		sort[i].Descending = false
	}
	if keys, err := sort.MarshalJSON(); err == nil {
		d.Keys = keys
	}
}

// digest covers what rows and their reduces depend on.
func (d *definition) digest() [16]byte {
	rows := *d
	rows.Update, rows.Keep = "", nil
	text, err := json.Marshal(&rows)
	if err != nil {
		return [16]byte{} // cannot be: it was decoded
	}
	sum := sha256.Sum256(text)
	return [16]byte(sum[:])
}

func newFieldRows(kind viewKind, d *definition) (*fieldRows, error) {
	f := &fieldRows{spread: -1, value: d.Value != "", collation: mango.Binary}
	if kind == viewJSON {
		f.collation = mango.Unicode
	}
	var err error
	if f.sort, err = mango.ParseSort(d.Keys); err != nil {
		return nil, fmt.Errorf(`"keys": %w`, err)
	}
	if len(f.sort) == 0 || len(f.sort) > maxViewKeys {
		return nil, fmt.Errorf(`"keys" lists 1 to %d paths`, maxViewKeys)
	}
	var paths []string
	for _, s := range f.sort {
		if kind == viewFields && s.Descending {
			return nil, errors.New(`"keys" of a fields view ascend; ask for the reverse in the query`)
		}
		paths = append(paths, s.Path)
	}
	if d.Spread != "" {
		if f.spread = slices.Index(paths, d.Spread); f.spread < 0 || kind == viewJSON {
			return nil, errors.New(`"spread" names one of the "keys" of a fields view`)
		}
	}
	if f.keyer, err = mango.NewKeyer(f.sort, f.collation); err != nil {
		return nil, fmt.Errorf(`"keys": %w`, err)
	}
	picked := []string{}
	if f.spread >= 0 {
		picked = append(picked, paths...)
	}
	if f.value {
		picked = append(picked, d.Value)
	}
	if len(picked) > 0 {
		if f.picker, err = mango.NewPicker(picked); err != nil {
			return nil, fmt.Errorf(`"value": %w`, err)
		}
	}
	if len(d.Partial) > 0 {
		if f.partial, err = mango.Compile(d.Partial, nil); err != nil {
			return nil, fmt.Errorf(`"partial": %w`, err)
		}
		paths = append(paths, f.partial.Fields()...)
	}
	f.needsID = slices.Contains(append(paths, d.Value), "_id")
	if slices.Contains(append(paths, d.Value), "_rev") {
		return nil, errors.New("a view has no revisions")
	}
	return f, nil
}

// codeDef makes the definition of a program's view.
func codeDef(c *osier.ViewCode) (*viewDef, error) {
	v := &viewDef{kind: viewGo, collection: c.Collection, name: c.Name, policy: c.Policy, keep: c.Keep, code: c, reduceName: c.Reduce, own: c.Reducer}
	for i := range 8 {
		v.id[i] = byte(c.Version >> (8 * i))
	}
	if c.Reduce != "" && c.Reducer == nil {
		b, ok := reduce.Lookup(c.Reduce)
		if !ok {
			return nil, fmt.Errorf("there is no built-in reduce %q", c.Reduce)
		}
		v.builtin = b
	}
	return v, nil
}

// eager tells whether the view is kept within transactions.
func (v *viewDef) eager() bool { return v.policy == osier.Eager || v.policy == osier.Unique }

// runs tells whether this process can make the view's rows.
func (v *viewDef) runs() bool { return v.fields != nil || v.code != nil }

// function is what the tree's nodes hold.
func (v *viewDef) function() reduce.Func {
	switch {
	case v.own != nil:
		return ownReduce{v.own}
	case v.builtin != nil && v.reduceName != "count":
		return v.builtin
	}
	return nil
}

// ownReduce runs a program's reduce, whatever it does.
type ownReduce struct{ r osier.ViewReducer }

func (o ownReduce) Reduce(values [][]byte) (out []byte, err error) {
	defer recovered("reduce", &err)
	return checkedJSON(o.r.Reduce(values))
}

func (o ownReduce) Rereduce(results [][]byte) (out []byte, err error) {
	defer recovered("rereduce", &err)
	return checkedJSON(o.r.Rereduce(results))
}

// recovered makes an error of a panic in a program's function.
func recovered(what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the %s function panicked: %v", what, p)
	}
}

// maxReduced bounds what a reduce may return: it is stored in every node.
const maxReduced = 64 << 10

func checkedJSON(b []byte, err error) ([]byte, error) {
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxReduced:
		return nil, fmt.Errorf("a reduce returned %d bytes, at most %d are allowed", len(b), maxReduced)
	}
	return bytes.Clone(b), nil
}

// checkDefinition refuses a definition that makes no view. One that comes by
// replication is taken as it is, and makes a failed view.
func checkDefinition(op *osier.Op, fail func(osier.Kind, string) error) error {
	if op.Collection != osier.ViewsCollection || op.Deleted || op.KeepBody {
		return nil
	}
	name, ok := op.ID.Text()
	if !ok || osier.CheckCollectionName(name) != nil {
		return fail(osier.KindInvalid, "the id of a view's definition is its name: letters, digits or any of _ - . $")
	}
	if op.Codec > osier.TagJSON {
		return fail(osier.KindInvalid, "the definition of a view is written in JSON")
	}
	if _, err := parseDefinition(name, op.Body); err != nil {
		return fail(osier.KindInvalid, err.Error())
	}
	return nil
}
