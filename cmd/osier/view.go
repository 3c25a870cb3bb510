package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/osierdb/osier"
)

type viewCmd struct {
	Create viewCreateCmd `cmd:"" help:"Define a view by fields of a collection's documents, and build it."`
	List   viewListCmd   `cmd:"" help:"List the views of a database or collection."`
	Info   viewInfoCmd   `cmd:"" help:"Show a view's state, numbers and failures."`
	Query  viewQueryCmd  `cmd:"" help:"Show rows of a view, or their reduce."`
	Drop   viewDropCmd   `cmd:"" help:"Drop a view."`
}

type viewCreateCmd struct {
	Target  target   `arg:"" name:"db:collection" help:"The collection that the view is of."`
	Name    string   `arg:"" help:"The view's name, unique in the database."`
	Keys    []string `name:"key" short:"k" required:"" sep:"none" placeholder:"PATH" help:"Path of a key's field, dotted; several make a composite key."`
	Value   string   `placeholder:"PATH" help:"Path of the value."`
	Spread  string   `placeholder:"PATH" help:"One of the keys: an array there gives a row an element."`
	Reduce  string   `enum:",count,sum,min,max,stats,distinct" default:"" placeholder:"NAME" help:"count, sum, min, max, stats or distinct."`
	Partial string   `placeholder:"JSON" help:"Only documents that match this selector."`
	Type    string   `enum:"fields,json" default:"fields" help:"fields, or json: an index in CouchDB's order, for find."`
	Update  string   `enum:"on-demand,eager,unique,after,never" default:"on-demand" help:"When it is brought up to date: on-demand, eager, unique, after or never."`
	Changes int      `name:"keep-changes" placeholder:"N" help:"Keep it at most so many changes behind, while a program has the store open."`
	After   string   `name:"keep-after" placeholder:"TIME" help:"Keep it at most so long behind, such as 2s."`
}

// Run defines a view and builds it.
func (c *viewCreateCmd) Run(e *env) error {
	body, err := c.definition()
	if err != nil {
		return err
	}
	return e.withDB(changing, c.Target, func(ctx context.Context, db *osier.DB) error {
		op := osier.Op{Kind: osier.OpPut, Collection: osier.ViewsCollection, ID: osier.MustID(c.Name), Codec: osier.TagJSON, Body: body}
		if _, err := db.Exec(ctx, &osier.Command{Ops: []osier.Op{op}}); err != nil {
			return err
		}
		for _, err := range db.Query(ctx, &osier.Query{Kind: osier.QueryRefresh, Collection: c.Target.collection, View: &osier.ViewQuery{Name: c.Name}}) {
			if err != nil {
				return err
			}
		}
		return e.showView(ctx, db, c.Target, c.Name)
	})
}

func (c *viewCreateCmd) definition() ([]byte, error) {
	def := map[string]any{"collection": c.Target.collection, "type": c.Type, "keys": c.Keys}
	for name, v := range map[string]string{"value": c.Value, "spread": c.Spread, "reduce": c.Reduce} {
		if v != "" {
			def[name] = v
		}
	}
	if c.Update != osier.OnDemand.String() {
		def["update"] = c.Update
	}
	if c.Partial != "" {
		if !json.Valid([]byte(c.Partial)) {
			return nil, usagef("--partial %s: want a selector in JSON", oneLine(c.Partial))
		}
		def["partial"] = json.RawMessage(c.Partial)
	}
	if c.Changes != 0 || c.After != "" {
		keep := map[string]any{"changes": c.Changes}
		if c.After != "" {
			keep["after"] = c.After
		}
		def["keep"] = keep
	}
	body, err := json.Marshal(def)
	if err != nil {
		return nil, fmt.Errorf("write definition: %w", err)
	}
	return body, nil
}

type viewListCmd struct {
	Target target `arg:"" name:"db[:collection]" help:"Whose views."`
}

// viewJSON is a view in JSON output.
type viewJSON struct {
	Name       string          `json:"name"`
	Collection string          `json:"collection"`
	Type       string          `json:"type"`
	Update     string          `json:"update"`
	Reduce     string          `json:"reduce,omitempty"`
	Version    uint64          `json:"version,omitempty"`
	State      string          `json:"state"`
	Failure    string          `json:"failure,omitempty"`
	Rows       uint64          `json:"rows"`
	Seq        osier.Seq       `json:"seq"`
	Behind     uint64          `json:"behind"`
	DiskBytes  uint64          `json:"diskBytes"`
	Failed     uint64          `json:"failedDocuments"`
	Failures   []failureJSON   `json:"failures,omitempty"`
	Definition json.RawMessage `json:"definition,omitempty"`
}

type failureJSON struct {
	ID      jsonID `json:"id"`
	Message string `json:"message"`
}

func describeView(v *osier.ViewInfo) viewJSON {
	j := viewJSON{Name: v.Name, Collection: v.Collection, Type: v.Type, Update: v.Policy.String(), Reduce: v.Reduce, Version: v.Version,
		State: v.State.String(), Failure: v.Failure, Rows: v.Rows, Seq: v.Seq, Behind: v.Behind, DiskBytes: v.DiskBytes, Failed: v.Failed, Definition: v.Definition}
	for _, f := range v.Failures {
		j.Failures = append(j.Failures, failureJSON{jsonID{f.ID}, f.Message})
	}
	return j
}

// viewsOf lists views; an empty name means all.
func viewsOf(ctx context.Context, db *osier.DB, t target, name string) (list []*osier.ViewInfo, err error) {
	q := &osier.Query{Kind: osier.QueryViewInfo, View: &osier.ViewQuery{Name: name}}
	if !t.whole {
		q.Collection = t.collection
	}
	for row, err := range db.Query(ctx, q) {
		if err != nil {
			return nil, err
		}
		list = append(list, row.ViewInfo)
	}
	return list, nil
}

// Run lists views.
func (c *viewListCmd) Run(e *env) error {
	return e.withDB(changing, c.Target, func(ctx context.Context, db *osier.DB) error {
		list, err := viewsOf(ctx, db, c.Target, "")
		if err != nil {
			return err
		}
		t := e.table("collection", "view", "type", "update", "reduce", "state", ">rows", ">behind")
		for _, v := range list {
			if e.json {
				if err := e.printJSON(describeView(v)); err != nil {
					return err
				}
				continue
			}
			if err := t.row(v.Collection, v.Name, v.Type, v.Policy.String(), dash(v.Reduce), v.State.String(), e.count(v.Rows), e.count(v.Behind)); err != nil {
				return err
			}
		}
		return t.flush()
	})
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type viewInfoCmd struct {
	Target target `arg:"" name:"db:collection" help:"The collection that the view is of."`
	Name   string `arg:"" help:"The view."`
}

// Run describes a view.
func (c *viewInfoCmd) Run(e *env) error {
	return e.withDB(changing, c.Target, func(ctx context.Context, db *osier.DB) error {
		return e.showView(ctx, db, c.Target, c.Name)
	})
}

func (e *env) showView(ctx context.Context, db *osier.DB, t target, name string) error {
	t.whole = false
	list, err := viewsOf(ctx, db, t, name)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return &osier.Error{Kind: osier.KindNotFound, Op: "view " + name, DB: t.db, Collection: t.collection, Err: errors.New("there is no such view; see osier view list")}
	}
	v := list[0]
	if e.json {
		return e.printJSON(describeView(v))
	}
	pairs := []string{"view", v.Name, "collection", v.Collection, "type", v.Type, "update", v.Policy.String(), "reduce", dash(v.Reduce),
		"state", v.State.String(), "rows", e.count(v.Rows), "behind", e.counted(v.Behind, "change"), "disk", e.size(v.DiskBytes)}
	if v.Failure != "" {
		pairs = append(pairs, "failure", oneLine(v.Failure))
	}
	if b := v.Build; b != nil {
		pairs = append(pairs, "build", fmt.Sprintf("%s of %s, %s left", e.count(b.Done), e.counted(b.Total, "document"), b.Left.Round(time.Second)))
	}
	if v.Failed > 0 {
		pairs = append(pairs, "failed", e.counted(v.Failed, "document"))
		for _, f := range v.Failures {
			pairs = append(pairs, "", idText(f.ID)+": "+oneLine(f.Message))
		}
	}
	if v.Definition != nil {
		pairs = append(pairs, "definition", string(v.Definition))
	}
	return e.record(pairs...)
}

type viewDropCmd struct {
	Target target `arg:"" name:"db:collection" help:"The collection that the view is of."`
	Name   string `arg:"" help:"The view."`
}

// Run drops a view: its definition, or the index that a program's view left.
func (c *viewDropCmd) Run(e *env) error {
	return e.withDB(changing, c.Target, func(ctx context.Context, db *osier.DB) error {
		t := c.Target
		t.whole = false
		list, err := viewsOf(ctx, db, t, c.Name)
		if err != nil {
			return err
		}
		op := osier.Op{Kind: osier.OpPut, Collection: osier.ViewsCollection, ID: osier.MustID(c.Name), Codec: osier.TagJSON, Expect: osier.ExpectPresent, Deleted: true}
		if len(list) > 0 && list[0].Type == "go" {
			op = osier.Op{Kind: osier.OpDropView, Collection: t.collection, View: c.Name}
		}
		_, err = db.Exec(ctx, &osier.Command{Ops: []osier.Op{op}})
		return err
	})
}

type viewQueryCmd struct {
	Target     target   `arg:"" name:"db:collection" help:"The collection that the view is of."`
	Name       string   `arg:"" help:"The view."`
	Keys       []string `name:"key" short:"k" sep:"none" placeholder:"KEY" help:"Rows of this key; again for more. A key is JSON, an array being a composite one; what is not JSON is a text."`
	From       string   `placeholder:"KEY" help:"Keys from this one on."`
	Above      string   `placeholder:"KEY" help:"Keys above this one."`
	Below      string   `placeholder:"KEY" help:"Keys below this one."`
	UpTo       string   `name:"up-to" placeholder:"KEY" help:"Keys up to this one and itself."`
	Prefix     string   `placeholder:"KEY" help:"Texts that begin so, or composite keys with these first fields."`
	Descending bool     `help:"From the greatest key down."`
	Limit      int      `short:"n" placeholder:"N" help:"At most so many rows."`
	Skip       int      `placeholder:"N" help:"Pass over so many rows."`
	After      string   `placeholder:"CURSOR" help:"Go on behind the row that had this cursor in --json output."`
	Docs       bool     `help:"Show the documents that the rows come from."`
	Linked     string   `enum:",value,key" default:"" placeholder:"BY" help:"Show the documents that the rows' values or keys name: value or key."`
	Reduce     bool     `xor:"form" help:"Reduce all these rows to one value."`
	Group      string   `xor:"form" placeholder:"N|all" help:"Reduce the rows of each key (all), or of each first N fields."`
	Count      bool     `xor:"form" help:"Show how many rows there are, without reading them."`
	Stale      bool     `help:"Answer from the rows there are."`
	Strict     bool     `help:"Fail if the view leaves out documents that it failed on."`
}

// viewKey reads a key on the command line.
func viewKey(text string) any {
	v, err := decodeJSON([]byte(text))
	if err != nil || !json.Valid([]byte(text)) {
		return text
	}
	switch x := v.(type) {
	case []any:
		return osier.Tuple(x)
	case map[string]any:
		return text
	}
	return v
}

// Run queries a view.
func (c *viewQueryCmd) Run(e *env) error {
	opts, err := c.options()
	if err != nil {
		return err
	}
	q, err := osier.NewFieldView[any, any](c.Name, c.Target.collection, nil).NewQuery(opts...)
	if err != nil {
		return err
	}
	if err := c.form(q); err != nil {
		return err
	}
	return e.withDB(changing, c.Target, func(ctx context.Context, db *osier.DB) error {
		t := c.table(e)
		for row, err := range db.Query(ctx, q) {
			if err != nil {
				return err
			}
			if err := c.show(e, t, db, &row); err != nil {
				return err
			}
		}
		return t.flush()
	})
}

func (c *viewQueryCmd) options() ([]osier.RowsOption, error) {
	var opts []osier.RowsOption
	if len(c.Keys) > 0 {
		list := make([]any, len(c.Keys))
		for i, k := range c.Keys {
			list[i] = viewKey(k)
		}
		opts = append(opts, osier.Keys(list...))
	}
	for _, o := range []struct {
		text string
		opt  func(any) osier.RowsOption
	}{{c.From, osier.From}, {c.Above, osier.Above}, {c.Below, osier.Below}, {c.UpTo, osier.UpTo}, {c.Prefix, osier.Prefix}} {
		if o.text != "" {
			opts = append(opts, o.opt(viewKey(o.text)))
		}
	}
	if c.Descending {
		opts = append(opts, osier.Descending())
	}
	if c.Limit < 0 || c.Skip < 0 {
		return nil, usagef("--limit and --skip take no negative numbers")
	}
	opts = append(opts, osier.LimitRows(c.Limit), osier.SkipRows(c.Skip), osier.Continue(c.After))
	if c.Stale {
		opts = append(opts, osier.As(osier.Stale))
	}
	if c.Strict {
		opts = append(opts, osier.FailOnError())
	}
	switch c.Linked {
	case "value":
		opts = append(opts, osier.Linked(osier.LinkValue))
	case "key":
		opts = append(opts, osier.Linked(osier.LinkKey))
	}
	return opts, nil
}

// form sets what is wanted of the rows.
func (c *viewQueryCmd) form(q *osier.Query) error {
	q.View.Reduce, q.View.Count = c.Reduce || c.Group != "", c.Count
	switch n, err := strconv.Atoi(c.Group); {
	case c.Group == "":
	case c.Group == "all":
		q.View.Group = osier.GroupAll
	case err != nil || n < 1:
		return usagef("--group %s: want a number of fields, or all", oneLine(c.Group))
	default:
		q.View.Group = n
	}
	if c.Docs || c.Linked != "" {
		q.Parts = osier.WithBody
	}
	return nil
}

func (c *viewQueryCmd) reduced() bool { return c.Reduce || c.Group != "" || c.Count }

func (c *viewQueryCmd) table(e *env) *table {
	switch {
	case c.Reduce || c.Count:
		return e.table("value")
	case c.Group != "":
		return e.table("key", "value")
	case c.Docs || c.Linked != "":
		t := e.table("key", "id", "value", "document")
		t.cut = true
		return t
	}
	return e.table("key", "id", "value")
}

// rowJSON is a row in JSON output.
type rowJSON struct {
	Key    json.RawMessage `json:"key,omitempty"`
	ID     *jsonID         `json:"id,omitempty"`
	Value  json.RawMessage `json:"value"`
	Count  uint64          `json:"count,omitempty"`
	Cursor string          `json:"cursor,omitempty"`
	Doc    json.RawMessage `json:"doc,omitempty"`
}

func (c *viewQueryCmd) show(e *env, t *table, db *osier.DB, row *osier.Row) error {
	v := row.View
	key, value := keyJSON(v.Key), json.RawMessage(v.Value)
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	var doc []byte
	if row.Body != nil && !row.Missing {
		var err error
		if doc, err = bodyJSON(db, &row.Document); err != nil {
			return err
		}
	}
	if e.json {
		j := rowJSON{Value: value, Count: v.Count, Doc: doc}
		if !c.Reduce && !c.Count {
			j.Key, j.Cursor = key, v.Cursor()
		}
		if !c.reduced() {
			j.ID = &jsonID{v.ID}
		}
		return e.printJSON(j)
	}
	switch {
	case c.Reduce || c.Count:
		return t.row(string(value))
	case c.Group != "":
		return t.row(plainKey(key), string(value))
	case c.Docs || c.Linked != "":
		return t.row(plainKey(key), idText(v.ID), string(value), string(doc))
	}
	return t.row(plainKey(key), idText(v.ID), string(value))
}

// keyJSON shows a key as JSON; one that cannot be turned back is null.
func keyJSON(key []byte) json.RawMessage {
	v, err := osier.KeyValue(key)
	if err != nil {
		return json.RawMessage("null")
	}
	return appendKeyJSON(nil, v)
}

// plainKey shows a key in a table: a text without quotes.
func plainKey(key json.RawMessage) string {
	if strings.HasPrefix(string(key), `"`) {
		return oneLine(unquote(key))
	}
	return string(key)
}
