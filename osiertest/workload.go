package osiertest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/osierdb/osier"
)

// Workload is a list of operations to be carried out one after the other. Its
// text form has one operation a line and can be edited by hand:
//
//	create db=shop
//	settings db=shop in=films history=2
//	put db=shop in=films id=a expect=absent body="{\"n\":1}"
//	update db=shop in=films id=a rev=winner body="{\"n\":2}"
//	tx db=shop
//	  get in=films id=a
//	  meanwhile put in=films id=b expect=any body="{}"
//	  delete in=films id=a
//	list db=shop in=films reverse limit=2
//	reopen
//
// Lines that are indented belong to the batch or tx above them. Lines that begin
// with "#" are comments. Revisions are named by what they are at that moment
// (see Op.Rev), so that an operation makes sense whatever came before it: any
// part of a workload is a workload.
type Workload []Op

// Verb says what an Op does.
type Verb string

// The verbs. Those of the first group may stand in a batch or tx, and those of
// the second in a tx.
const (
	Put      Verb = "put"      // expect: any, absent or present
	Update   Verb = "update"   // of rev
	Delete   Verb = "delete"   // of rev, or whatever there is
	Graft    Verb = "graft"    // path; not in a tx
	Ungraft  Verb = "ungraft"  // path, as a deletion; not in a tx
	Get      Verb = "get"      // id
	List     Verb = "list"     // from, until, skip, limit, reverse, deleted
	Count    Verb = "count"    //
	Batch    Verb = "batch"    // members; each: by themselves; session, number
	Tx       Verb = "tx"       // members; with meanwhile others do it, at the first try
	Create   Verb = "create"   // a database
	Drop     Verb = "drop"     // a database
	Settings Verb = "settings" // history, revlimit
	Forget   Verb = "forget"   // drop a collection
	Versions Verb = "versions" // id
	GetRev   Verb = "getrev"   // id, rev
	AsOf     Verb = "asof"     // id, seq
	Changes  Verb = "changes"  // in or all; seq, limit, reverse
	History  Verb = "history"  // transactions after seq; limit
	Info     Verb = "info"     //
	Names    Verb = "names"    // databases
	Attach   Verb = "attach"   // id, rev, name, body
	Detach   Verb = "detach"   // id, rev, name
	Reopen   Verb = "reopen"   // carried out by the workload's runner
)

// Op is one operation. Fields that a verb does not need are zero.
type Op struct {
	Verb      Verb
	Meanwhile bool // in a tx: done by others, outside of it, at the first try
	DB        string
	In        string // the collection
	// ID is a string, or, after "#", an integer.
	ID     string
	Expect string // any, absent, present
	// Rev names a revision: winner; leaf1, leaf2 … of the other leaves in their
	// order; old1, old2 … of the ancestors, newest first; or its text.
	Rev      string
	Path     string // of a graft, revisions joined with ","
	Body     string
	Name     string // of an attachment
	From     string // ids like ID
	Until    string
	Skip     int
	Limit    int
	Reverse  bool
	Deleted  bool
	Seq      int
	History  int
	RevLimit int
	Each     bool
	Session  string
	Number   int
	Ops      []Op // of a batch or tx
}

// field is a field of an Op in the text form: one of the pointers is set.
type field struct {
	name string
	text *string
	num  *int
	flag *bool
}

// fields lists an operation's fields in the order of the text form.
func (o *Op) fields() []field {
	return []field{
		{name: "db", text: &o.DB}, {name: "in", text: &o.In}, {name: "id", text: &o.ID},
		{name: "expect", text: &o.Expect}, {name: "rev", text: &o.Rev}, {name: "path", text: &o.Path},
		{name: "name", text: &o.Name}, {name: "from", text: &o.From}, {name: "until", text: &o.Until},
		{name: "seq", num: &o.Seq}, {name: "skip", num: &o.Skip}, {name: "limit", num: &o.Limit},
		{name: "history", num: &o.History}, {name: "revlimit", num: &o.RevLimit},
		{name: "session", text: &o.Session}, {name: "number", num: &o.Number},
		{name: "reverse", flag: &o.Reverse}, {name: "deleted", flag: &o.Deleted}, {name: "each", flag: &o.Each},
		{name: "body", text: &o.Body},
	}
}

// String returns the text form, without a final newline. Members of a batch or
// tx follow on lines of their own.
func (o Op) String() string {
	var b strings.Builder
	if o.Meanwhile {
		b.WriteString("meanwhile ")
	}
	b.WriteString(string(o.Verb))
	for _, f := range o.fields() {
		switch {
		case f.text != nil && *f.text != "":
			b.WriteString(" " + f.name + "=" + quoted(*f.text))
		case f.num != nil && *f.num != 0:
			b.WriteString(" " + f.name + "=" + strconv.Itoa(*f.num))
		case f.flag != nil && *f.flag:
			b.WriteString(" " + f.name)
		}
	}
	for _, m := range o.Ops {
		b.WriteString("\n  " + m.String())
	}
	return b.String()
}

// quoted returns a value as it stands in the text form.
func quoted(s string) string {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '`' {
			return strconv.Quote(s)
		}
	}
	return s
}

// String returns the text form: Parse reads it back.
func (w Workload) String() string {
	var b strings.Builder
	for _, o := range w {
		b.WriteString(o.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Parse reads the text form.
func Parse(text string) (Workload, error) {
	var w Workload
	for i, line := range strings.Split(text, "\n") {
		bare := strings.TrimSpace(line)
		if bare == "" || bare[0] == '#' {
			continue
		}
		op, err := parseOp(bare)
		if err != nil {
			return nil, fmt.Errorf("parse workload: line %d: %w", i+1, err)
		}
		if line[0] != ' ' {
			w = append(w, op)
			continue
		}
		if len(w) == 0 || w[len(w)-1].Verb != Batch && w[len(w)-1].Verb != Tx {
			return nil, fmt.Errorf("parse workload: line %d: nothing above that it could belong to", i+1)
		}
		last := &w[len(w)-1]
		last.Ops = append(last.Ops, op)
	}
	return w, nil
}

func parseOp(line string) (Op, error) {
	var op Op
	rest, ok := strings.CutPrefix(line, "meanwhile ")
	op.Meanwhile = ok
	verb, rest, _ := strings.Cut(rest, " ")
	op.Verb = Verb(verb)
	if !known(op.Verb) {
		return op, fmt.Errorf("unknown verb %q", verb)
	}
	fields := op.fields()
	for rest != "" {
		name, value := rest, ""
		if i := strings.IndexAny(rest, " ="); i >= 0 {
			name = rest[:i]
			rest = rest[i:]
		} else {
			rest = ""
		}
		if after, ok := strings.CutPrefix(rest, "="); ok {
			var err error
			if value, rest, err = cutValue(after); err != nil {
				return op, fmt.Errorf("value of %s: %w", name, err)
			}
		}
		rest = strings.TrimPrefix(rest, " ")
		if err := setField(fields, name, value); err != nil {
			return op, err
		}
	}
	return op, nil
}

func known(v Verb) bool {
	switch v {
	case Put, Update, Delete, Graft, Ungraft, Get, List, Count, Batch, Tx, Create, Drop, Settings, Forget,
		Versions, GetRev, AsOf, Changes, History, Info, Names, Attach, Detach, Reopen:
		return true
	}
	return false
}

// cutValue takes a value, quoted or not, from the front of s.
func cutValue(s string) (value, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, " ")
		return value, rest, nil
	}
	q, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", err
	}
	value, err = strconv.Unquote(q)
	return value, s[len(q):], err
}

func setField(fields []field, name, value string) error {
	for _, f := range fields {
		if f.name != name {
			continue
		}
		switch {
		case f.text != nil:
			*f.text = value
		case f.flag != nil:
			*f.flag = true
		default:
			n, err := strconv.Atoi(value)
			if err != nil {
				return fmt.Errorf("value of %s: %w", name, err)
			}
			*f.num = n
		}
		return nil
	}
	return fmt.Errorf("unknown field %q", name)
}

// idOf reads an id of the text form.
func idOf(s string) any {
	if digits, ok := strings.CutPrefix(s, "#"); ok {
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
			return n
		}
	}
	if s == "" {
		return nil
	}
	return s
}

// showID is the inverse of idOf.
func showID(id osier.ID) string {
	if n, ok := id.Int64(); ok {
		return "#" + strconv.FormatInt(n, 10)
	}
	return quoted(id.String())
}
