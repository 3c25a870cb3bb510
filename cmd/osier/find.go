package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
)

type findCmd struct {
	Target   target   `arg:"" name:"db[:collection]" help:"Where to look."`
	Selector string   `arg:"" optional:"" help:"What is meant, in JSON, such as '{\"year\": {\"$gt\": 1990}}'; nothing means all documents."`
	Swap     bool     `help:"The selector is a SwapQuery, such as '{\">\": {\"year\": 1990}}'."`
	Sort     []string `placeholder:"FIELD[:desc]" help:"Sort by these fields."`
	Fields   []string `placeholder:"FIELD" help:"Show only these fields."`
	Skip     int      `help:"Pass over so many."`
	Limit    int      `help:"Show at most so many."`
	Bookmark string   `placeholder:"TEXT" help:"Go on where an earlier answer ended."`
	UseIndex string   `name:"use-index" placeholder:"NAME" help:"Read that index, if it can be; _id: none."`
	Explain  bool     `help:"Show how the answer is found and what that took, instead of the answer."`
}

// sortBytes is the memory of a sort: a store that is opened for reading has no
// place for temporary files.
const sortBytes = 512 << 20

// Run finds documents.
func (c *findCmd) Run(e *env) error {
	if c.Skip < 0 || c.Limit < 0 {
		return usagef("--skip and --limit: want no negative number")
	}
	o := &osier.FindOptions{Fields: c.Fields, Skip: c.Skip, Limit: c.Limit, Bookmark: c.Bookmark, UseIndex: c.UseIndex,
		Explain: c.Explain, SortBytes: sortBytes, Summary: new(osier.FindSummary)}
	var err error
	if o.Sort, err = parseSort(c.Sort); err != nil {
		return err
	}
	selector := osier.Selector(osier.Mango(c.Selector))
	if c.Swap {
		selector = osier.Swap(c.Selector)
	}
	return e.withDB(reading, c.Target, func(ctx context.Context, db *osier.DB) error {
		if _, err := needCollection(ctx, db, c.Target); err != nil {
			return err
		}
		t := c.table(e)
		for row, err := range db.Find(ctx, c.Target.collection, selector, o) {
			if err == nil && !c.Explain {
				err = c.show(e, t, db, &row.Document)
			}
			if err != nil {
				return errors.Join(t.flush(), err)
			}
		}
		if err := t.flush(); err != nil {
			return err
		}
		return c.end(e, o.Summary)
	})
}

// parseSort reads fields with a direction behind a colon.
func parseSort(list []string) (sort []osier.SortField, err error) {
	for _, s := range list {
		switch path, dir, _ := cutLast(s, ":"); dir {
		case "desc":
			sort = append(sort, osier.Desc(path))
		case "asc":
			sort = append(sort, osier.Asc(path))
		default:
			sort = append(sort, osier.Asc(s))
		}
		if s == "" {
			return nil, usagef("--sort: want a field's name, with :desc behind it for descending")
		}
	}
	return sort, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (c *findCmd) table(e *env) *table {
	t := e.table("ID", "DOCUMENT")
	if len(c.Fields) > 0 {
		t = e.table(c.Fields...)
	}
	t.cut = true
	return t
}

func (c *findCmd) show(e *env, t *table, db *osier.DB, d *osier.Document) error {
	body, err := bodyJSON(db, d)
	switch {
	case err != nil:
		return err
	case e.json && len(c.Fields) > 0:
		_, err := fmt.Fprintf(e.stdout, "%s\n", body)
		return err
	case e.json:
		return e.printJSON(describe(d, body))
	case len(c.Fields) == 0:
		return t.row(idText(d.ID), string(body))
	}
	cells := make([]string, len(c.Fields))
	for i, f := range c.Fields {
		cells[i] = cellOf(body, f)
	}
	return t.row(cells...)
}

// cellOf shows a field of a projected body in a column: a string as it is, other
// values in JSON, a missing one empty.
func cellOf(body []byte, path string) string {
	value := json.RawMessage(body)
	for _, name := range pathNames(path) {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil || object[name] == nil {
			return ""
		}
		value = object[name]
	}
	var text string
	if bytes.HasPrefix(value, []byte(`"`)) && json.Unmarshal(value, &text) == nil {
		return oneLine(text)
	}
	return string(value)
}

// pathNames splits a path at dots without a backslash in front.
func pathNames(path string) []string {
	names := []string{""}
	for i := 0; i < len(path); i++ {
		last := &names[len(names)-1]
		switch {
		case path[i] == '\\' && i+1 < len(path):
			i++
			*last += path[i : i+1]
		case path[i] == '.':
			names = append(names, "")
		default:
			*last += path[i : i+1]
		}
	}
	return names
}

// foundJSON is the last line of JSON output.
type foundJSON struct {
	Found struct {
		Rows         uint64          `json:"rows"`
		Complete     bool            `json:"complete"`
		Bookmark     string          `json:"bookmark,omitempty"`
		KeysExamined uint64          `json:"keysExamined"`
		DocsExamined uint64          `json:"docsExamined"`
		Failed       uint64          `json:"failed,omitempty"`
		Milliseconds float64         `json:"milliseconds"`
		Warning      string          `json:"warning,omitempty"`
		Plan         *osier.FindPlan `json:"plan,omitempty"`
	} `json:"found"`
}

// end says what a reader of the rows cannot know: that there are more, and what
// went wrong.
func (c *findCmd) end(e *env, s *osier.FindSummary) error {
	if e.json {
		var j foundJSON
		f := &j.Found
		f.Rows, f.Complete, f.Bookmark, f.KeysExamined, f.DocsExamined = s.Rows, s.Complete, s.Bookmark, s.KeysExamined, s.DocsExamined
		f.Failed, f.Warning, f.Plan, f.Milliseconds = s.Failed, s.Warning, s.Plan, float64(s.Elapsed.Microseconds())/1000
		return e.printJSON(j)
	}
	if s.Warning != "" {
		fmt.Fprintln(e.stderr, "osier:", s.Warning)
	}
	if s.Failed > 0 {
		fmt.Fprintf(e.stderr, "osier: %s without a JSON form left out, the first is %s\n", e.counted(s.Failed, "document"), oneLine(s.FirstFailed))
	}
	if c.Explain && s.Plan != nil {
		return c.explain(e, s)
	}
	if !s.Complete {
		fmt.Fprintf(e.stderr, "osier: there may be more: go on with --bookmark %s\n", s.Bookmark)
	}
	return nil
}

func (c *findCmd) explain(e *env, s *osier.FindSummary) error {
	p := s.Plan
	index := "none: documents by id"
	if p.Index != "" {
		index = p.Index + " on " + sortText(p.IndexFields)
		if p.IndexFilter != "" {
			index += " where " + p.IndexFilter
		}
	}
	pairs := []string{"selector", p.Selector, "index", index, "because", p.Why}
	for _, r := range p.Ranges {
		if r.Low != "" || r.High != "" {
			pairs = append(pairs, "range", "["+r.Low+"] up to ["+r.High+"]")
		}
	}
	if p.Residual != "" {
		pairs = append(pairs, "tested", p.Residual)
	}
	order := "as it is read"
	if p.Reverse {
		order += ", backwards"
	}
	if p.Sorts {
		order = "sorted"
	}
	pairs = append(pairs, "order", order,
		"expected", fmt.Sprintf("%d read, at most %d found", p.ExpectedKeys, p.ExpectedRows),
		"seen", fmt.Sprintf("%d index rows, %d documents, %d found, in %v", s.KeysExamined, s.DocsExamined, s.Rows, s.Elapsed))
	for _, w := range p.Candidates {
		name, reason := w.Index, w.Reason
		if name == "" {
			name = "documents by id"
		}
		if w.Usable {
			reason += "; cost " + strconv.FormatFloat(w.Cost, 'f', 0, 64)
		}
		pairs = append(pairs, "weighed", name+": "+reason)
	}
	return e.record(pairs...)
}

func sortText(sort []osier.SortField) string {
	parts := make([]string, len(sort))
	for i, f := range sort {
		if parts[i] = f.Path; f.Descending {
			parts[i] += ":desc"
		}
	}
	return strings.Join(parts, ",")
}

type indexCmd struct {
	Create indexCreateCmd `cmd:"" help:"Make an index for osier find."`
	List   indexListCmd   `cmd:"" help:"List the indexes."`
	Drop   indexDropCmd   `cmd:"" help:"Drop an index."`
}

type indexCreateCmd struct {
	Target target   `arg:"" name:"db[:collection]" help:"What is indexed."`
	Name   string   `arg:"" help:"The index's name."`
	Fields []string `arg:"" name:"field[:desc]" help:"The fields, the first counting most."`
	Where  string   `placeholder:"SELECTOR" help:"Only documents that this selector means."`
}

// Run makes an index and waits until it is built.
func (c *indexCreateCmd) Run(e *env) error {
	fields, err := parseSort(c.Fields)
	if err != nil {
		return err
	}
	x := osier.Index{Name: c.Name, Collection: c.Target.collection, Fields: fields}
	if c.Where != "" {
		x.Filter = osier.Mango(c.Where)
	}
	return e.withDB(changing, c.Target, func(ctx context.Context, db *osier.DB) error {
		if _, err := needCollection(ctx, db, c.Target); err != nil {
			return err
		}
		created, err := db.CreateIndex(ctx, x)
		if err != nil {
			return err
		}
		view := &osier.ViewQuery{Name: c.Name}
		for _, err := range db.Query(ctx, &osier.Query{Kind: osier.QueryRefresh, Collection: c.Target.collection, View: view}) {
			if err != nil {
				return err
			}
		}
		row, err := one(ctx, db, &osier.Query{Kind: osier.QueryViewInfo, Collection: c.Target.collection, View: view})
		if err != nil {
			return err
		}
		var rows uint64
		if row.ViewInfo != nil {
			rows = row.ViewInfo.Rows
		}
		if e.json {
			return e.printJSON(map[string]any{"name": c.Name, "created": created, "rows": rows})
		}
		_, err = fmt.Fprintf(e.stdout, "%s\t%s\n", c.Name, e.counted(rows, "row"))
		return err
	})
}

type indexListCmd struct {
	Target target `arg:"" name:"db[:collection]" help:"Whose indexes; a database alone means all of its collections."`
}

// Run lists indexes.
func (c *indexListCmd) Run(e *env) error {
	return e.withDB(reading, c.Target, func(ctx context.Context, db *osier.DB) error {
		collection := c.Target.collection
		if collection == osier.DefaultCollection {
			collection = ""
		}
		list, err := db.Indexes(ctx, collection)
		if err != nil {
			return err
		}
		t := e.table("NAME", "COLLECTION", "FIELDS", "WHERE")
		for _, x := range list {
			where := ""
			if m, ok := x.Filter.(osier.Mango); ok {
				where = string(m)
			}
			if e.json {
				err = e.printJSON(struct {
					Name       string          `json:"name"`
					Collection string          `json:"collection"`
					Fields     string          `json:"fields"`
					Where      json.RawMessage `json:"where,omitempty"`
				}{x.Name, x.Collection, sortText(x.Fields), json.RawMessage(where)})
			} else {
				err = t.row(x.Name, x.Collection, sortText(x.Fields), where)
			}
			if err != nil {
				return err
			}
		}
		return t.flush()
	})
}

type indexDropCmd struct {
	Target target `arg:"" name:"db" help:"The database."`
	Name   string `arg:"" help:"The index's name."`
}

// Run drops an index.
func (c *indexDropCmd) Run(e *env) error {
	return e.withDB(changing, c.Target, func(ctx context.Context, db *osier.DB) error {
		err := db.DropIndex(ctx, c.Name)
		if errors.Is(err, osier.ErrNotFound) {
			return &exitError{exitMissing, fmt.Errorf("no index %s in database %s: osier index list %s shows them", c.Name, c.Target.db, c.Target.db)}
		}
		return err
	})
}
